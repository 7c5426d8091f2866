"""B38: doubly stochastic attention keeps the mean, and no direction spreads.

Sinkhorn's iteration is finite, so its columns sum to 1 + e_j with small e_j. They are measured on
the saved states, and what they allow is allowed (docs/mathematics.md B38).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from .._types import is_torch, like
from ..attention import Sinkhorn
from ..dynamics import AttentionFlow
from .checks import Hypothesis, Part, Reading, least, need, statement
from .flows import ContinuousRun

_FINISHED = 1e-3  # columns farther from 1 than this are not doubly stochastic


@final
@dataclass(frozen=True, eq=False)
class _InTime(ContinuousRun):
    """What the stepper of a flow may have done wrong."""

    family = "flow of attention, V = I"
    kinds = (AttentionFlow,)


@final
@dataclass(frozen=True, eq=False)
class BalancedRun(Reading):
    """Layers or a flow of Sinkhorn attention: the saved states, and the columns of P there."""

    @cached_property
    def base(self) -> tuple[Hypothesis, ...]:
        tr = self.trajectory
        every = tr.in_time or (len(tr.t) > 1 and bool((np.diff(tr.t) == 1).all()))
        needs = (
            self.alone,
            Hypothesis.of(
                "layers or flow of Sinkhorn attention, V = I",
                isinstance(tr.made_by.averaging, Sinkhorn),
            ),
            Hypothesis("at least two saved states; of layers every one", every, float(len(tr.t))),
        )
        if tr.in_time and all(h.holds for h in needs):
            return needs + _InTime(tr).base[-2:]
        return needs

    @cached_property
    def excess(self) -> np.ndarray:
        """e_j, the sum of column j of P less 1, at every saved state; (times, n)."""
        tr, attention = self.trajectory, self.trajectory.made_by.attention
        assert attention is not None
        out = []
        for k in range(len(tr.t)):
            z = tr.z[k].detach() if is_torch(tr.z) else tr.z[k]
            P = np.asarray(like(attention.weights(z, mask=tr.mask), np.zeros(())), np.float64)
            out.append(P[np.ix_(self.real, self.real)].sum(axis=0) - 1)
        return np.stack(out)

    @cached_property
    def reach(self) -> tuple[np.ndarray, float]:
        """From one saved state to the next: by how much P is applied, and what else may move."""
        tr, R = self.trajectory, float(np.linalg.norm(self.states, axis=2).max())
        if tr.in_time:
            return np.diff(np.asarray(tr.t, dtype=np.float64)), _InTime(tr).local
        rounding = 2 * (self.n + 16) * self.u * R * float(np.sqrt(self.d))
        return np.full(len(tr.t) - 1, self.eta), rounding

    @cached_property
    def allowed(self) -> np.ndarray:
        """|e_j| during each step. In time it is seen at the saved times only: twice the most."""
        e = np.abs(self.excess)
        if not self.trajectory.in_time:
            return e[:-1]
        tol = self.trajectory.made_by.attention.tol  # type: ignore[union-attr]
        return np.full(e[:-1].shape, 2 * float(e.max()) + tol)


_finished = need(
    "Sinkhorn's iteration has converged (largest |column sum - 1|)",
    lambda run: np.abs(run.excess).max(),
    lambda worst: worst <= _FINISHED,
)


@statement(
    BalancedRun,
    "B38",
    "arXiv 2110.11773; docs/mathematics.md B38",
    "columns of P sum to 1 as rows do: the mean stays, and the variance in no direction grows",
    (_finished,),
)
def balance(run: BalancedRun) -> list[Part]:
    """Mean and second moments about it, in 32 directions, from each saved state to the next.

    With columns 1 + e_j the mean moves by at most eta/n sum |e_j| |y_j|, y_j = z_j - mean, and
    sum <c, y_j>^2 grows by at most eta sum |e_j| <c, y_j>^2; eta is the time of a flow.
    """
    share, other = run.reach
    z, n, d = run.states, run.n, run.d
    mean = z.mean(axis=1)
    y = z - mean[:, None]
    drift = np.linalg.norm(np.diff(mean, axis=0), axis=1)
    lengths = np.linalg.norm(y[:-1], axis=2)
    moved = share * (run.allowed * lengths).mean(axis=1)
    c = np.concatenate([np.random.default_rng(0).standard_normal((32, d)), np.eye(d)])
    c /= np.linalg.norm(c, axis=1, keepdims=True)
    along = (y @ c.T) ** 2  # (times, n, directions)
    spread = along.sum(axis=1)
    grown = share[:, None] * (run.allowed[:, :, None] * along[:-1]).sum(axis=1)
    # a token moved by s changes its square by at most 2 |y| s + s^2
    noise = n * (2 * float(np.linalg.norm(y, axis=2).max()) * other + other**2)
    where: Any = {"until": run.trajectory.t[1:]}
    where["largest |column sum - 1|"] = float(np.abs(run.excess).max())
    fall, axes = spread[:-1] - spread[1:] + grown, ("until", "direction")
    return [
        least("mean", moved - drift, other, "until", **where),
        least("second moments about the mean", fall, noise, *axes, direction=c, **where),
    ]
