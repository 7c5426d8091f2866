"""B42: softmax keeps its clusters for as long as is proved.

The plateaus are those of `analysis.shadowing`, proved from the first saved state alone. What they
say of later layers is compared with the states saved there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from .._deadline import Deadline
from ..analysis.shadowing.following import Run
from ..analysis.shadowing.record import law_of
from ..analysis.shadowing.rounding import norms
from ..analysis.shadowing.trap import Tube
from .checks import Hypothesis, Part, Reading, U, least, need, some, statement

MOST = 2_000  # layers that the proof follows; a plateau says what comes after them
LARGEST = 100  # tokens


@final
@dataclass(frozen=True, eq=False)
class ClusteredRun(Reading):
    """A run of softmax layers in float64, and the plateaus that its first state proves."""

    @cached_property
    def base(self) -> tuple[Hypothesis, ...]:
        tr = self.trajectory
        rule = None if tr.in_time else tr.made_by.averaging
        heads = () if rule is None else rule.softmaxes
        soft = len(heads) == 1 and not heads[0].causal
        double, n = tr.values.dtype == np.float64, self.n
        start = len(tr.t) > 1 and tr.t[0] == 0
        return (
            self.alone,
            Hypothesis.of("layers of softmax attention, V = I", soft),
            Hypothesis("layer 0 and a later one saved, in float64", start and double, float(start)),
            Hypothesis(f"at most {LARGEST} tokens (number)", n <= LARGEST, float(n)),
        )

    @cached_property
    def proof(self) -> Run:
        run = Run(
            law_of(self.trajectory.dynamics, self.d),  # type: ignore[arg-type]
            self.states[0],
            min(int(self.trajectory.t[-1]), MOST),
            Deadline(None),
        )
        run.follow()
        return run

    @cached_property
    def plateaus(self) -> list[tuple[Tube, int]]:
        return [(tube, k) for tube, k in self.proof.found if len(tube.balls.first) > 1]

    def within(self, tube: Tube, k: int) -> np.ndarray:
        """Which saved layers are in the time of the tube."""
        t = np.asarray(self.trajectory.t, dtype=np.float64)
        return np.flatnonzero((t >= k) & (np.log(np.maximum(t - k, 1)) <= tube.lasts))


_lasting = need(
    "clusters are proved to last (saved layers in their time)",
    lambda run: sum(len(run.within(tube, k)) for tube, k in run.plateaus),
    some,
)


@statement(
    ClusteredRun,
    "B42",
    "docs/mathematics.md B42, C12, C13",
    "clusters of softmax stay in the proved tube; tokens stay within the proved rounding",
    (_lasting,),
)
def lasting(run: ClusteredRun) -> list[Part]:
    """Tokens are compared as far as they were followed, then clusters with their tube.

    The run's own rounding is of the size of the proof's: four times it is allowed.
    """
    t = np.asarray(run.trajectory.t)
    R = float(norms(run.states[0]).max())
    known = np.flatnonzero(t < len(run.proof.z))
    error = np.array([run.proof.error[k] for k in t[known]])
    place = np.array([run.proof.z[k] for k in t[known]])
    off = norms(run.states[known] - place)
    parts = [least("token where it was followed", 4 * error - off, 64 * U * R, "layer", "token")]
    for tube, k in run.plateaus:
        saved = run.within(tube, k)
        for a, tokens in enumerate(tube.balls.tokens):
            centre = tube.balls.points[tube.balls.first[a]]
            far = norms(run.states[np.ix_(saved, tokens)] - centre)
            slack = tube.radius - far
            parts.append(least(f"cluster {a} in its time", slack, 1e-9 * R, "layer", "token"))
    return parts
