"""Functions to sweep; the files in `named` sweep them: `cynosure sweep NAME --store FOLDER`.

A cell takes its place of the grid as keywords and gives numbers and arrays; write your own like
these, in a module of yours.
"""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np

from ..analysis.limits import limit
from ..attention import Hardmax, Softmax
from ..dynamics import PureAttention, SphereFlow
from ..simulation.configurations import gaussian, sphere
from ..simulation.loop import simulate
from ..simulation.steppers import RK4
from ..theorems import expected_leaders
from ..theorems.long_context import output_cosine

__all__ = ["emergent_leaders", "leaders", "long_context", "sphere_met"]


def sphere_met(
    beta: float | int,
    d: int,
    seed: Any,
    n: int = 32,
    time: float | int = 30.0,
    times: int = 200,
    met: float | int = 1e-3,
) -> dict[str, Any]:
    """The share of pairs of tokens on the sphere of R^d with cosine >= 1 - `met`, over time.

    n uniform tokens under the flow dx_i = P_{x_i}(sum_j P_ij x_j) with softmax at `beta`, all seeds
    in one batch (vectorized=True): the (beta, t) diagram of arXiv 2312.10794, section 6.
    """
    t = np.linspace(0, time, times)
    z0 = np.stack([sphere(n, d, s) for s in seed.tolist()])
    x = simulate(SphereFlow(Softmax(beta)), z0, times=t, stepper=RK4(0.2)).values
    i, j = np.triu_indices(n, 1)
    near = (x @ x.swapaxes(-1, -2))[..., i, j] >= 1 - met
    return {"t": ("t", t), "met": ("t", near.mean(axis=-1).T)}


def leaders(d: int, n: int, seed: int, alpha: float | int = 0.5) -> dict[str, Any]:
    """Leaders of n Gaussian tokens in R^d: at layer 0, at infinite depth, and E|L_0| (B14)."""
    z0 = gaussian(n, d, seed)
    ends = limit(PureAttention(alpha=alpha), z0)
    return {
        "first": int(Hardmax().followed(z0).leads.sum()),
        "final": len(ends.leaders),
        "undecided": len(ends.undecided),
        "expected": expected_leaders(n, d),
    }


def emergent_leaders(alpha: float | int, n: int, d: int, seed: int) -> dict[str, Any]:
    """Leaders of n Gaussian tokens that are born after layer 0, and the layer of the last one."""
    born = limit(PureAttention(alpha=alpha), gaussian(n, d, seed)).born
    return {"first": int((born == 0).sum()), "late": int((born > 0).sum()), "last": int(born.max())}


def long_context(gamma: float | int, r: float | int, n: int) -> dict[str, Any]:
    """One softmax layer at beta = gamma log n on n tokens of common cosine r (B32).

    `cosine` is that of two outputs y_i = sum_j P_ij x_j, computed on tokens; `closed` the formula.
    """
    x = np.linalg.cholesky((1 - r) * np.eye(n) + r * np.ones((n, n)))
    beta = gamma * log(n)
    y = Softmax(beta).pull(x)
    unit = y / np.linalg.norm(y, axis=1, keepdims=True)
    return {"cosine": float(unit[0] @ unit[-1]), "closed": output_cosine(n, r, beta)}
