"""B21: at finite beta the vertices of a polygon hold their tokens for a time exponential in beta.

Read on runs of `JumpChain`, the finite-beta chain of arXiv 2508.09628 (docs/mathematics.md A6).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import exp, expm1, log, log1p, pi
from typing import final

import numpy as np

from ..dynamics import JumpChain
from .checks import Hypothesis, Part, Reading, need, some, statement

_LEVEL = 6.0  # an exit time whose tail probability is below 10^-6 is a violation
_REGULAR = 1e-9  # relative: tokens this close to a regular polygon are on it


def exit_probability(k: int, beta: float) -> float:
    """q = s/(1 + s), s = sum_{j=1}^{k-1} exp(-beta (1 - cos(2 pi j/k))): a token leaves a vertex.

    Regular k-gon of radius 1, equally many tokens at each vertex, all still there. Trap: 1 - P_ii
    cancels; for beta = 100 it would be 0 for most k.
    """
    if k < 2:
        raise ValueError(f"k: a polygon has at least 2 vertices, got {k!r}")
    s = float(np.exp(-beta * (1 - np.cos(2 * pi * np.arange(1, k) / k))).sum())
    return s / (1 + s)


@final
@dataclass(frozen=True, eq=False)
class ChainRun(Reading):
    """A run of the finite-beta chain."""

    @cached_property
    def base(self) -> tuple[Hypothesis, ...]:
        chain = isinstance(self.trajectory.dynamics, JumpChain) and self.softmax is not None
        right = Hypothesis.of("finite-beta chain with A = I", chain)
        return self.alone, right, self.every_layer, self.steps

    @cached_property
    def corners(self) -> int:
        """k if the tokens start on a regular k-gon about 0, equally many at each vertex, else 0."""
        z = self.states[0]
        if z.shape[1] != 2:
            return 0
        radius = np.hypot(*z.T)
        R = radius.max()
        if not R > 0 or np.ptp(radius) > _REGULAR * R:
            return 0
        turn = np.sort(np.arctan2(z[:, 1], z[:, 0]) / (2 * pi) % 1)
        gaps = np.diff(np.append(turn, turn[0] + 1))
        k = int((gaps > _REGULAR).sum())
        if k < 2 or len(z) % k:
            return 0
        jumps = np.flatnonzero(gaps > _REGULAR)
        even = np.abs(gaps[jumps] - 1 / k).max() <= _REGULAR
        alike = len({int(c) for c in np.diff(np.append(jumps, jumps[0] + len(z)))}) == 1
        return k if even and alike else 0

    @cached_property
    def exit(self) -> int:
        """The first layer at which some token has left its vertex; 0 if none has."""
        radius = np.linalg.norm(self.states[0], axis=1).max()
        moved = np.abs(self.states - self.states[0]).max(axis=(1, 2)) > 1e-6 * radius
        return int(np.argmax(moved)) if moved.any() else 0


_polygon = need(
    "start at the vertices of a regular polygon about 0 (number of vertices)",
    lambda run: run.corners,
    some,
)


@statement(
    ChainRun,
    "B21",
    "arXiv 2508.09628, finite beta; docs/mathematics.md B21",
    "exit from a vertex is geometric, probability q a layer; log median ~ beta (1 - cos(2 pi/k))",
    (_polygon,),
)
def trapping(run: ChainRun) -> list[Part]:
    """The first exit of any of the n tokens has survival (1 - q)^(n t), in logarithms.

    It may not lie in a tail of probability below 1e-6. Later exits see other weights.
    """
    assert run.softmax is not None
    q = exit_probability(
        run.corners, run.softmax.beta * float(np.linalg.norm(run.states[0, 0])) ** 2
    )
    rate = run.n * log1p(-q)
    layers = len(run.states) - 1
    tails = {"no exit": exp(layers * rate)}
    if run.exit:
        late = exp((run.exit - 1) * rate)
        tails = {"exit so late": late, "exit so early": -expm1(run.exit * rate)}
    where = {"exit_layer": run.exit, "exit_probability": q, "tokens": run.n}
    tiny = float(np.finfo(float).tiny)
    return [
        Part(f"log10 of the probability of {what}", log(max(p, tiny)) / log(10), _LEVEL, where)
        for what, p in tails.items()
    ]
