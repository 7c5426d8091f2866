"""Limiting objects: what the end of a run looks like."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, final

import numpy as np

from ..._types import Array, as_matrix, as_number, as_tokens
from ...engine.joining import RELATIVE_TOL
from ...simulation.trajectory import Trajectory
from ..clustering import bounded, clusters
from ..polytope import hull
from .matrices import SAME, Finding, attention_matrix, epsilon_rank, good_triple, square


@final
@dataclass(frozen=True, eq=False)
class BooleanLimit(Finding):
    """P against the Boolean matrices of B22: rows e_a or e_b, at most one exceptional row.

    `columns` are the tokens still looked at, `exceptional` the rows further than tol from every
    unit vector, `distance` the largest distance of the other rows from theirs.
    """

    columns: tuple[int, ...]
    exceptional: tuple[int, ...]
    distance: float
    rank: int
    holds: bool


def boolean_limit(P: Array, tol: float = 1e-8) -> BooleanLimit:
    """Read P as the limiting attention matrix of d = 1 (arXiv 2305.05465, theorem on Booleans)."""
    p = square(P)
    best = p.argmax(axis=1)
    away = np.abs(p - np.eye(len(p))[best]).max(axis=1)
    odd = np.flatnonzero(away > tol)
    rows = np.setdiff1d(np.arange(len(p)), odd)
    columns = tuple(np.unique(best[rows]).tolist())
    return BooleanLimit(
        columns,
        tuple(odd.tolist()),
        float(away[rows].max()) if len(rows) else float("inf"),
        epsilon_rank(p, max(tol, 1e-12)),
        len(columns) <= 2 and len(odd) <= 1,
    )


@final
@dataclass(frozen=True, eq=False)
class Hyperplanes(Finding):
    """The values of f1* on the tokens, clustered: at most three, {a, 0, b}, in the limit (B26).

    `values` ascending, one per group; `labels[i]` the group of token i; `spread` the widest group;
    `f` the value of f1* on every token. `holds`: one negative, one positive and a zero at most.
    """

    values: np.ndarray
    labels: np.ndarray
    spread: float
    f: np.ndarray
    holds: bool


def hyperplane_values(
    trajectory: Trajectory, V: Array | None = None, tol: float = 1e-6
) -> Hyperplanes:
    """f1*(z_i) at the end of a run, groups being separated by gaps above tol times the largest.

    f1* is the dual eigenvector of the eigenvalue l1 of V with the largest real part, f1*(f1) = 1.
    V is that of the dynamics unless given. The values are the same in `RescaledFlow` and
    `LeadingFlow`; tokens of `EuclideanFlow` are divided by e^{l1 t} first.
    """
    matrix = trajectory.made_by.V if V is None else as_matrix(V, "V")
    z = as_tokens(trajectory.values[-1], ndim=2).astype(np.float64)
    leading = _Leading.of(np.eye(z.shape[1]) if matrix is None else matrix)
    f = leading.seen(trajectory, z)[:, 0]
    groups = clusters(f[:, None], tol * max(float(np.abs(f).max()), np.finfo(float).tiny))
    order = np.argsort(groups.centres[:, 0])
    labels, values = np.argsort(order)[groups.labels], groups.centres[order, 0]
    spread = max(float(np.ptp(f[labels == g])) for g in range(len(values)))
    zero = np.abs(values) <= 10 * groups.tol
    sides = int(((values > 0) & ~zero).sum()), int(((values < 0) & ~zero).sum())
    return Hyperplanes(values, labels, spread, f, int(zero.sum()) <= 1 and max(sides) <= 1)


@final
@dataclass(frozen=True, eq=False)
class _Leading:
    """The eigenvalue of V with the largest real part, its multiplicity and left eigenspace.

    One dual vector f1* with f1*(f1) = 1 where it is simple, else an orthonormal basis.
    """

    value: complex
    multiplicity: int
    duals: np.ndarray  # (d, multiplicity)

    @classmethod
    def of(cls, V: np.ndarray) -> _Leading:
        values, vectors = np.linalg.eig(V.T)
        value = complex(values[np.argmax(values.real)])
        same = np.abs(values - value) <= SAME * max(float(np.abs(values).max()), 1e-300)
        duals = np.linalg.qr(vectors[:, same].real)[0]
        if same.sum() == 1 and abs(value.imag) <= SAME * abs(value):
            right, columns = np.linalg.eig(V)
            f = columns[:, int(np.argmin(np.abs(right - value)))].real
            f = f * np.sign(f[np.argmax(np.abs(f))]) / np.linalg.norm(f)
            pairing = float(duals[:, 0] @ f)
            duals = duals / pairing if abs(pairing) > 1e-12 else duals
        return cls(value, int(same.sum()), duals)

    def seen(self, trajectory: Trajectory, z: np.ndarray) -> np.ndarray:
        """Coordinates along the duals of z, the last state, with its growth divided out."""
        return (z * trajectory.made_by.growth(-trajectory.t[-1:])) @ self.duals


@final
@dataclass(frozen=True, eq=False)
class LimitingObject(Finding):
    """What the end of a run looks like: `kind`, the points (or values) found, labels per token.

    "zero": all tokens at 0. "point": one cluster. "boolean": d = 1, at most one exceptional row.
    "polytope": clusters at vertices of their hull or elsewhere in the set S (`details["in_S"]`).
    "hyperplanes": f1* takes at most three values. "polytope x hyperplane": the components in a
    leading eigenspace of dimension > 1 cluster. "turning": the leading eigenvalues of V are a
    complex pair. "metastable": clusters that theory lets merge in the end, with their `lifetime`
    so far. "clusters": anything else. `margin` is how far within (positive) or beyond (negative)
    the tolerance the description is; `speed` the largest motion per unit of time (or layer)
    between the last two states, in the unit of `tol`. Padding has the label -1.
    """

    kind: str
    points: np.ndarray
    labels: np.ndarray
    margin: float
    speed: float
    details: dict[str, Any]
    tol: float  # distance within which tokens share a cluster, in units of the longest start token

    def __repr__(self) -> str:
        return f"LimitingObject({self}; tol {self.tol:g} of the longest token at the start)"

    def _table(self) -> list[tuple[str, object]]:
        sizes = np.bincount(self.labels[self.labels >= 0])
        listed = ", ".join(map(str, sizes[:20])) + (" ..." if len(sizes) > 20 else "")
        return [
            ("kind", str(self)),
            ("tokens in each", listed),
            ("joined", f"within {self.tol:g} of the longest token at the start"),
            ("margin", f"{self.margin:.3g} (below 0: beyond the tolerance)"),
            ("speed", f"{self.speed:.3g} a unit of time"),
        ]

    def __str__(self) -> str:
        points, details = len(self.points), self.details
        corners = len(details.get("vertices", ()))
        if self.kind == "polytope":
            inside = "all" if all(details["in_S"]) else f"{sum(details['in_S'])}"
            text = f"{points} points, {corners} vertices of their hull, {inside} in S"
        elif self.kind == "boolean":
            rows = ", ".join(f"e_{j}" for j in details["boolean"]["columns"])
            odd = details["boolean"]["exceptional"]
            text = f"rows of P are {rows}; exceptional row: {odd[0] if odd else 'none'}"
        elif self.kind == "hyperplanes":
            text = "f1* is " + ", ".join(f"{v:.6g}" for v in self.points[:, 0].tolist())
        elif self.kind == "polytope x hyperplane":
            text = f"{points} points in the leading eigenspace, {corners} vertices of their hull"
        elif self.kind == "metastable":
            text = f"{points} clusters since {details['since']:g}, lifetime {details['lifetime']:g}"
        elif self.kind in ("zero", "point"):
            text = "all tokens at one place"
        else:
            text = f"{points} cluster{'s' * (points != 1)}"
        moving = "" if self.speed <= 1e-3 else f" (still moving, {self.speed:.2g} a unit of time)"
        return f"{self.kind}: {text}{moving}"


def recognise(trajectory: Trajectory, tol: float = RELATIVE_TOL) -> LimitingObject:
    """Names what one run tends to: a point, clusters, a polytope, hyperplanes, ...

    It reads the last saved state, so run until the tokens stand still; `speed` says whether they
    do. `cynosure.limit` proves limits of hardmax runs instead.

    Parameters
    ----------
    trajectory
        One run. Tokens that grow by a known factor are divided by it.
    tol
        The distance at which tokens are joined, relative to the longest token of the first state.

    Returns
    -------
    LimitingObject
        `kind`, `points`, `labels`, the `speed` at the end, and the `margin` of the description.

    Examples
    --------
    >>> import cynosure as cy
    >>> tr = cy.simulate(cy.dynamics.RescaledFlow(), cy.configurations.gaussian(12, 2), time=20.0)
    >>> print(cy.recognise(tr))
    polytope: 2 points, 2 vertices of their hull, all in S
    """
    tol = as_number(tol, "tol", "a distance >= 0", lambda x: x >= 0)
    total, real = trajectory.z.shape[-2], trajectory.real
    trajectory = replace(trajectory, z=trajectory.tokens, mask=None, words=None)
    made_by, states = trajectory.made_by, bounded(trajectory)
    t, ends, z = np.asarray(trajectory.t[-2:], dtype=float), states[-2:], states[-1]
    scale = float(np.linalg.norm(states[0], axis=-1).max()) or 1.0
    lapse = float(t[-1] - t[0]) if len(trajectory) > 1 else 1.0
    if made_by.tends_to(z.shape[1]) == "hyperplanes":  # motion along other eigenvectors goes on
        ends = ends @ _Leading.of(made_by.V).duals
    speed = float(np.abs(ends[-1] - ends[0]).max()) / scale / lapse
    kind, points, labels, spread, details = _described(trajectory, z, scale, tol)
    if kind == "metastable" and speed > 10 * tol:
        kind = "clusters"  # on their way to each other
    labelled = np.full(total, -1, dtype=np.intp)
    labelled[real] = labels
    return LimitingObject(kind, points, labelled, tol - spread, speed, details, tol)


_Description = tuple[str, np.ndarray, np.ndarray, float, dict[str, Any]]


def _described(trajectory: Trajectory, z: np.ndarray, scale: float, tol: float) -> _Description:
    """Kind, points, labels, spread and details of the end state z."""
    made_by = trajectory.made_by
    tendency = made_by.tends_to(z.shape[1])
    radius = float(np.linalg.norm(z, axis=1).max()) / scale
    if radius <= tol:
        return "zero", np.zeros((1, z.shape[1])), np.zeros(len(z), np.intp), radius, {}
    if tendency == "hyperplanes":
        return _leading_limit(trajectory, z, made_by.V, tol)
    groups = clusters(z, tol * scale)
    spread = float(np.linalg.norm(z - groups.centres[groups.labels], axis=1).max()) / scale
    plain = groups.centres, groups.labels, spread
    if groups.count == 1:
        return "point", *plain, {}
    if tendency == "unknown":
        return "clusters", *plain, {}
    if tendency == "one point":
        plateau = _plateau(trajectory, groups.count, tol * scale)
        return ("clusters", *plain, {}) if plateau is None else ("metastable", *plain, plateau)
    details: dict[str, Any] = {}
    kind = "polytope"
    if tendency == "boolean":
        P = attention_matrix(made_by, trajectory.values[-1], float(trajectory.t[-1]))
        boolean = boolean_limit(P)
        kind = "boolean" if boolean.holds else "polytope"
        details["boolean"] = boolean.to_dict()
    body = hull(groups.centres)
    form = np.eye(z.shape[1]) if made_by.score_matrix is None else made_by.score_matrix
    norms = np.einsum("id,de,ie->i", groups.centres, form.T, groups.centres)
    excess = (groups.centres @ form.T @ body.vertices.T).max(axis=1) - norms
    details["vertices"] = body.index.tolist()
    details["in_S"] = (excess <= tol * scale**2).tolist()
    return kind, *plain, details


def _plateau(trajectory: Trajectory, count: int, tol: float) -> dict[str, Any] | None:
    """Since when there have been so many clusters, if for three states and fewer than tokens."""
    if count == trajectory.z.shape[1]:
        return None
    backwards = trajectory.made_by.converging(trajectory.values)[::-1]
    alike = list(takewhile(lambda z: clusters(z, tol).count == count, backwards))
    if len(alike) < 3:
        return None
    since = float(trajectory.t[len(trajectory) - len(alike)])
    return {"since": since, "lifetime": float(trajectory.t[-1]) - since}


def _leading_limit(
    trajectory: Trajectory, z: np.ndarray, V: np.ndarray, tol: float
) -> _Description:
    """Clusters of the components along the eigenspace of V that grows fastest."""
    leading = _Leading.of(V)
    details: dict[str, Any] = {"good_triple": good_triple(V=V).to_dict()}
    if abs(leading.value.imag) > SAME * abs(leading.value):
        size = float(np.abs(z).max())
        groups = clusters(z, tol * size)
        spread = float(np.abs(z - groups.centres[groups.labels]).max()) / size
        details["leading"] = [leading.value.real, abs(leading.value.imag)]
        return "turning", groups.centres, groups.labels, spread, details
    if leading.multiplicity == 1:
        planes = hyperplane_values(trajectory, V, tol)
        kind = "hyperplanes" if planes.holds else "clusters"
        size = max(float(np.abs(planes.f).max()), np.finfo(float).tiny)
        return kind, planes.values[:, None], planes.labels, planes.spread / size, details
    seen = leading.seen(trajectory, trajectory.values[-1].astype(np.float64))
    size = max(float(np.abs(seen).max()), np.finfo(float).tiny)
    groups = clusters(seen, tol * size)
    spread = float(np.abs(seen - groups.centres[groups.labels]).max()) / size
    details["vertices"] = hull(groups.centres).index.tolist()
    return "polytope x hyperplane", groups.centres, groups.labels, spread, details
