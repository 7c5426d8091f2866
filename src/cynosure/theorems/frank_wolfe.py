"""B17 to B20: a hardmax layer as a Frank-Wolfe step over the hull of the tokens (arXiv 2508.09628).

z_i' = z_i + g (m_i - z_i) with m_i in argmax over K of <A z_i, y> and g = eta: one step towards
maximising J(z) = <Az, z>/2. What is said holds for each choice among tied maximisers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, final

import numpy as np

from ..analysis.polytope import CONTAINS_TOL, Polytope
from ..dynamics import HardmaxLayers
from .checks import Hypothesis, Part, Reading, U, least, need, none, statement
from .layers import SPD, LayerRun, symmetric
from .leadership import firsts

_statement = partial(statement, LayerRun)


_one_cell = need(
    "each token in one cell at layer 0 (number tied)",
    lambda run: (np.diff(run.sets[0].indptr) > 1).sum(),
    none,
)


def _vertices_lead(run: LayerRun) -> Hypothesis:
    """Every vertex of K_0 leads: no other token sticks out of the hull of the leaders."""
    z, leads = run.z[0], run.sets[0].leads
    directions = np.random.default_rng(0).standard_normal((64, run.d))
    extreme = np.unique((z @ directions.T).argmax(axis=0))
    followed = run.single(0)  # each alone the best for somebody: vertices, whatever floats say
    wrong = int((~leads[extreme]).sum()) + int((~leads[followed[followed >= 0]]).sum())
    rest = np.flatnonzero(~leads)
    if not wrong and len(rest):
        body = Polytope.from_vertices(z[firsts(run, np.flatnonzero(leads))])
        if body.dim > 3:  # a projection each: stop at the first outside, or when too dear
            some = run.sample(rest, 100 * len(body.vertices) * run.d)
            inside = all(body.contains(z[i]) for i in some)
            wrong = len(rest) - len(some) if inside else 1
        else:
            wrong = int((~body.contains(z[rest])).sum())
    name = "every vertex of K_0 leads at layer 0 (number that do not, or were not looked at)"
    return Hypothesis(name, wrong == 0, float(wrong))


@_statement(
    "B17",
    "arXiv 2508.09628, theorem on exponential convergence, as corrected",
    "each vertex of K_0 in its own cell alone, each token in one cell: z^k = v + rho^k (z^0 - v)",
    (_one_cell, _vertices_lead),
)
def single_cells(run: LayerRun) -> list[Part]:
    """The closed form towards the vertex v whose cell holds the token, for any matrix A.

    As printed, "converges exponentially" is false: with step sizes of finite sum no token arrives.
    A constant alpha has g = eta > 0 at every layer, where it is true.
    """
    target = run.single(0)
    goal = run.z[0, target]
    age = np.arange(run.layers + 1)[:, None, None]
    off = np.linalg.norm(run.z - (goal + run.rho**age * (run.z[0] - goal)), axis=2)
    return [least("closed form", -off, 4 * run.error, "layer", "token")]


@_statement(
    "B18",
    "docs/mathematics.md B18",
    "cells are a power diagram: C_i minimises |z_i - z_j|_A² - |z_j|_A²; equal norms: Voronoi",
    (symmetric,),
)
def power_cells(run: LayerRun) -> list[Part]:
    """Power distances, formed from differences, of the recorded sets against all tokens.

    Where all tokens followed are equally long, the nearest is followed.
    """
    cost = 4 * run.n * run.d**2 * (run.layers + 1)
    rows = run.sample(firsts(run, np.arange(run.n)), cost)
    g, parts = 8 * run.score_error(), []
    for k in range(run.layers + 1):
        f, z = run.sets[k], run.z[k]
        followed = f.first[np.unique(f.indices)]
        equal = bool(np.ptp(run.squares[k, followed]) <= run.score_error())
        power, near = [], []
        for i in rows.tolist():
            away = z[i] - z
            distance = run.form(away, away)
            of = f.label[i]
            members = f.first[f.indices[f.indptr[of] : f.indptr[of + 1]]]
            cell = distance - run.squares[k]
            power.append(cell.min() - cell[members].max())
            if equal:
                near.append(distance[followed].min() - distance[members].max())
        parts += [
            least("power distance", power, g, "token", token=rows, layer=k),
            least("Voronoi", near, g, "token", token=rows, layer=k),
        ]
    return parts


_two_layers = need("at least two layers", lambda run: run.layers, lambda layers: layers > 1)


@_statement(
    "B19",
    "arXiv 2508.09628, duality gap",
    "min over 1 <= s <= t of (M_i^s - |z_i^s|_A²) <= (max_K J - J(z_i^1)) / (eta t), J = |.|_A²/2",
    (*SPD, _two_layers),
)
def duality_gap(run: LayerRun) -> list[Part]:
    """Multiplied by eta t; the sum of the gaps is what B2 bounds."""
    q = run.squares[:, run.rows]
    smallest = np.minimum.accumulate(run.tops[1:] - q[1:], axis=0)
    t = np.arange(1, run.layers + 1)[:, None]
    slack = (run.squares[0].max() - q[1]) / 2 - run.eta * t * smallest
    tol = 2 * (1 + run.eta * run.layers) * run.score_error()
    layers: Any = {"layer": t[:, 0], "token": run.rows}
    return [least("duality gap", slack, tol, "layer", "token", **layers)]


# --- A negative definite: tokens descend <-Az, z>/2 towards 0 -------------------------------------


@final
@dataclass(frozen=True, eq=False)
class DescentRun(Reading):
    """Hardmax layers with one matrix A and a step g_k of their own: constant or `Scheduled`.

    Units as in `LayerRun`, and the same two errors with n for the widest set.
    """

    @cached_property
    def layers(self) -> list[HardmaxLayers]:
        """The normalised hardmax layers of the run, one by one; empty if one of them is none."""
        made_by = self.trajectory.made_by
        if made_by.in_time:
            return []
        taken = [made_by.at(k).hardmax_layers for k in range(len(self.trajectory.t) - 1)]
        layers = [layer for layer in taken if layer is not None and layer.normalised]
        return layers if len(layers) == len(taken) else []

    @cached_property
    def base(self) -> tuple[Hypothesis, ...]:
        pure, forms = bool(self.layers), [layer.attention.A for layer in self.layers]
        matrices = {b"" if A is None else A.tobytes() for A in forms}
        return (
            self.alone,
            Hypothesis.of("normalised layers of hardmax attention", pure),
            Hypothesis("one matrix A (number)", len(matrices) == 1, float(len(matrices))),
            self.every_layer,
        )

    @cached_property
    def z(self) -> np.ndarray:
        return np.ldexp(self.states, -self.found.exponent)

    @cached_property
    def A(self) -> np.ndarray:
        A = self.layers[0].attention.A
        return np.eye(self.d) if A is None else np.ldexp(A, -int(np.frexp(np.abs(A).max())[1]))

    @cached_property
    def g(self) -> np.ndarray:
        """g_k = alpha_k / (1 + alpha_k)."""
        return np.array([float(layer.alpha / (1 + layer.alpha)) for layer in self.layers])

    @cached_property
    def error(self) -> float:
        return len(self.z) * (self.n + 16) * self.u * float(np.sqrt(self.d))

    @cached_property
    def diameter(self) -> float:
        """Of the tokens at layer 0: hulls shrink. Above 2000 tokens, a bound."""
        z = self.z[0]
        if len(z) > 2000:
            return 2 * float(np.linalg.norm(z - z.mean(axis=0), axis=1).max())
        from scipy.spatial.distance import pdist

        return float(pdist(z).max(initial=0.0))


def _negative(run: DescentRun) -> Hypothesis:
    top = float(np.linalg.eigvalsh((run.A + run.A.T) / 2)[-1])
    ok = top < 0 and bool((run.A == run.A.T).all())
    return Hypothesis("A symmetric negative definite (largest eigenvalue)", ok, top)


def _zero_inside(run: DescentRun) -> Hypothesis:
    """0 in the last hull, hence in all of them."""
    away = float(Polytope.from_vertices(run.z[-1]).distance(np.zeros(run.d)))
    inside = away <= run.error + CONTAINS_TOL
    return Hypothesis("0 in every K_k (distance from the last)", inside, away)


@statement(
    DescentRun,
    "B20",
    "arXiv 2508.09628, negative definite case, as corrected",
    "A negative definite, 0 in every K_k: J' <= (1-g) J + g² c/2; g = 2/(t+2): J <= 2c/(t+1)",
    (_negative, _zero_inside),
)
def descent(run: DescentRun) -> list[Part]:
    """J = <-Az, z>/2 and c = (largest eigenvalue of -A) diam(K_0)^2, layer k being t = k + 1.

    The printed statement asks for 0 in K_0 only, and is false (docs/mathematics.md B20). The bound
    for g = 2/(t+2) is looked at when the run has those steps from t = 1 on.
    """
    largest = -float(np.linalg.eigvalsh(run.A)[0])
    J = -((run.z @ run.A.T) * run.z).sum(axis=2) / 2
    c, g = largest * run.diameter**2, run.g[:, None]
    R = float(np.linalg.norm(run.z[0], axis=1).max())
    tol = 8 * largest * R * run.error + 8 * run.d * U * largest * R**2
    fall = (1 - g) * J[:-1] + g**2 * c / 2 - J[1:]
    parts = [least("one step", fall, tol, "layer", "token")]
    k = np.arange(len(J))
    if np.allclose(run.g, 2 / (k[:-1] + 3), rtol=1e-12, atol=0):
        bound = 2 * c / (k[:, None] + 2) - J
        parts.append(least("J <= 2c/(t+1)", bound, tol, "layer", "token"))
    return parts
