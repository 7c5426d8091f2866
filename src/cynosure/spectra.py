"""Reading matrices and runs: spectra of A, V, P; good triples; rates; limiting objects.

Each function returns a small frozen record with `to_dict()`, ready for a table or JSON.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from math import sqrt
from typing import Any, SupportsIndex, final

import numpy as np

from ._types import Array, as_matrix, as_tokens, is_torch
from .clustering import clusters
from .dynamics import (
    AttentionFlow,
    Dynamics,
    EuclideanFlow,
    LeadingFlow,
    PureAttention,
    RescaledFlow,
    UnnormalizedFlow,
)
from .polytope import hull
from .trajectory import Trajectory

__all__ = [
    "BooleanLimit",
    "GoodTriple",
    "Hyperplanes",
    "LimitingObject",
    "MasterEquation",
    "NeuralCollapse",
    "Plateau",
    "Rate",
    "Spectrum",
    "attention_matrix",
    "boolean_limit",
    "energy",
    "epsilon_rank",
    "freeze",
    "good_triple",
    "hyperplane_values",
    "metastable",
    "neural_collapse",
    "rate",
    "recognise",
    "spectrum",
]

_SAME = 1e-8  # eigenvalues closer than this, relative to the largest, are one eigenvalue


class _Record(abc.ABC):  # noqa: B024 - records share only how they are written out
    def to_dict(self) -> dict[str, Any]:
        """Plain Python values for JSON; complex numbers as [real, imaginary]."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]


@final
@dataclass(frozen=True, eq=False)
class Spectrum(_Record):
    """Eigenvalues of M by decreasing modulus; those of its symmetric part, ascending.

    `inertia` counts positive, zero and negative eigenvalues of the symmetric part, which is what
    the sign of <Mx, x> sees; `antisymmetric_share` is |M - M^T|_F / (2 |M|_F), 0 for symmetric M.
    """

    eigenvalues: np.ndarray
    symmetric_eigenvalues: np.ndarray
    inertia: tuple[int, int, int]
    rank: int
    antisymmetric_share: float


def spectrum(M: Array) -> Spectrum:
    """The spectrum of a square matrix (A, V, or the attention matrix P)."""
    m = as_matrix(M, "M")
    if m is None:
        raise ValueError("M: expected a square matrix, got None")
    values = np.linalg.eigvals(m)
    symmetric = np.linalg.eigvalsh((m + m.T) / 2)
    size = float(np.linalg.norm(m))
    zero = len(m) * np.finfo(float).eps * max(float(np.abs(symmetric).max()), 1e-300)
    above, below = int((symmetric > zero).sum()), int((symmetric < -zero).sum())
    return Spectrum(
        values[np.argsort(-np.abs(values), kind="stable")],
        symmetric,
        (above, len(m) - above - below, below),
        int(np.linalg.matrix_rank(m)),
        float(np.linalg.norm(m - m.T) / (2 * size)) if size else 0.0,
    )


def epsilon_rank(P: Array, eps: float = 1e-6) -> int:
    """The number of singular values above eps times the largest: the rank of P up to eps.

    By Eckart-Young no matrix of smaller rank is nearer to P (in operator norm) than eps |P|.
    """
    values = np.linalg.svd(_matrix(P), compute_uv=False)
    return int((values > eps * values[0]).sum())


@final
@dataclass(frozen=True, eq=False)
class GoodTriple(_Record):
    """How far (Q, K, V) is from each hypothesis of arXiv 2305.05465; a positive margin means met.

    Good triple: the leading eigenvalue l1 of V is real (`imaginary` = |Im l1| is 0), positive
    (`leading`), simple and dominant (`gap` = l1 - |l2| > 0), with <Q f, K f> = `alignment` > 0 on
    its unit eigenvector f. `dual` is f1*, with f1*(f) = 1.

    With multiplicity (`paranormal`): V = l I on its `multiplicity`-dimensional leading eigenspace
    (`defect` = 0 when l has no Jordan block) and `rest_gap` = l - (next modulus) > 0, while Q^T K
    is symmetric (`asymmetry` = 0) positive definite (`definiteness`, its least eigenvalue).
    """

    leading: complex
    imaginary: float
    gap: float
    alignment: float
    eigenvector: np.ndarray
    dual: np.ndarray
    multiplicity: int
    defect: int
    rest_gap: float
    asymmetry: float
    definiteness: float
    holds: bool
    paranormal: bool


def good_triple(
    Q: Array | None = None, K: Array | None = None, V: Array | None = None, *, d: int | None = None
) -> GoodTriple:
    """Test the hypotheses on (Q, K, V); None is the identity, and `d` is needed if all are."""
    flow = EuclideanFlow(Q, K, V)
    A, v = flow.attention.A, flow.V
    size = len(v) if v is not None else len(A) if A is not None else d
    if size is None:
        raise ValueError("d: Q, K and V are all identities; say of which dimension, d=...")
    A = np.eye(size) if A is None else A
    v = np.eye(size) if v is None else v
    values, vectors = np.linalg.eig(v)
    order = np.lexsort((-values.real, -np.round(np.abs(values), 12)))
    values, vectors = values[order], vectors[:, order]
    leading = complex(values[0])
    scale = max(float(np.abs(values).max()), np.finfo(float).tiny)
    same = np.abs(values - leading) <= _SAME * scale
    rest = np.abs(values[~same])
    f = _real_unit(vectors[:, 0])
    left, left_vectors = np.linalg.eig(v.T)
    dual = _real_unit(left_vectors[:, int(np.argmin(np.abs(left - leading)))])
    pairing = float(dual @ f)
    multiplicity = int(same.sum())
    eigenspace = size - int(
        np.linalg.matrix_rank(v - leading * np.eye(size), tol=sqrt(_SAME) * scale)
    )
    gap = leading.real - float(np.abs(values[1])) if size > 1 else leading.real
    rest_gap = leading.real - (float(rest.max()) if len(rest) else 0.0)
    alignment = float(f @ A @ f)
    definiteness = float(np.linalg.eigvalsh((A + A.T) / 2)[0])
    asymmetry = float(np.linalg.norm(A - A.T))
    real_positive = abs(leading.imag) <= _SAME * scale and leading.real > 0
    simple = multiplicity == 1 and gap > _SAME * scale
    defect = max(0, multiplicity - eigenspace)
    symmetric = asymmetry <= 1e-12 * float(np.linalg.norm(A))
    return GoodTriple(
        leading=leading,
        imaginary=abs(leading.imag),
        gap=gap,
        alignment=alignment,
        eigenvector=f,
        dual=dual / pairing if abs(pairing) > 1e-12 else dual,
        multiplicity=multiplicity,
        defect=defect,
        rest_gap=rest_gap,
        asymmetry=asymmetry,
        definiteness=definiteness,
        holds=bool(real_positive and simple and alignment > 0),
        paranormal=bool(
            real_positive and not defect and rest_gap > 0 and symmetric and definiteness > 0
        ),
    )


def attention_matrix(dynamics: Dynamics, z: Array, t: float = 0.0) -> np.ndarray:
    """P at the tokens z and time t of a run of `dynamics`, as a NumPy array (*b, n, n)."""
    if isinstance(dynamics, RescaledFlow | LeadingFlow):
        P = dynamics.weights(z, float(t))
    elif hasattr(dynamics, "attention"):
        P = dynamics.attention.weights(z)
    else:
        raise ValueError(f"dynamics: {type(dynamics).__name__} has no attention matrix")
    return P.detach().cpu().numpy() if is_torch(P) else P


@final
@dataclass(frozen=True, eq=False)
class MasterEquation(_Record):
    """The run with P frozen at time t0 against the run itself (theory E9).

    `error[s]` = |X(t_s) - predicted_s|_F / |X(t_s)|_F at the saved times t_s >= t0; `eigenvalues`
    are those of P(t0), `near_one` how many lie within 1e-6 of 1: as many as there are closed
    groups of tokens, so in the end the number of clusters.
    """

    t: np.ndarray
    predicted: np.ndarray
    error: np.ndarray
    eigenvalues: np.ndarray
    near_one: int


def freeze(trajectory: Trajectory, at: SupportsIndex = 0) -> MasterEquation:
    """Freeze P at the saved state number `at` and predict the rest by the linear equation.

        EuclideanFlow, UnnormalizedFlow   X' = P X V^T          AttentionFlow, RescaledFlow
        X' = (P - I) X V^T                PureAttention         X^{k+1} = ((1-eta) I + eta P) X^k

    Exact while the pattern of a hardmax run is frozen (theory C3); elsewhere the error says how
    long the attention matrix keeps its word.
    """
    start, dynamics = int(at), trajectory.dynamics
    z = trajectory.values.astype(np.float64)
    if z.ndim != 3:
        raise ValueError("trajectory: expected one configuration; use trajectory.select(b)")
    t = np.asarray(trajectory.t[start:], dtype=np.float64)
    linear = (EuclideanFlow, UnnormalizedFlow, AttentionFlow, RescaledFlow, PureAttention)
    if not isinstance(dynamics, linear):
        raise ValueError(
            f"trajectory: no master equation for {type(dynamics).__name__}; expected one of "
            + ", ".join(kind.__name__ for kind in linear)
        )
    P = attention_matrix(dynamics, z[start], float(t[0]))
    n = len(P)
    V = getattr(dynamics, "V", None)
    if isinstance(dynamics, PureAttention):
        eta = float(dynamics.exact_alpha / (1 + dynamics.exact_alpha))
        M = (1 - eta) * np.eye(n) + eta * P
        steps = (t - t[0]).astype(int).tolist()
        predicted = np.stack([np.linalg.matrix_power(M, s) @ z[start] for s in steps])
    else:
        M = P - np.eye(n) if isinstance(dynamics, AttentionFlow | RescaledFlow) else P
        predicted = np.stack([_propagate(M, V, s, z[start]) for s in (t - t[0]).tolist()])
    size = np.linalg.norm(z[start:], axis=(1, 2))
    error = np.linalg.norm(z[start:] - predicted, axis=(1, 2)) / np.where(size > 0, size, 1.0)
    values = np.linalg.eigvals(P)
    values = values[np.argsort(-np.abs(values), kind="stable")]
    return MasterEquation(t, predicted, error, values, int((np.abs(values - 1) < 1e-6).sum()))


def _propagate(M: np.ndarray, V: np.ndarray | None, s: float, x: np.ndarray) -> np.ndarray:
    """e^{s (M . V^T)} x, the solution at time s of X' = M X V^T from x."""
    from scipy.linalg import expm

    if V is None:
        return expm(s * M) @ x
    values, vectors = np.linalg.eig(V)
    if np.linalg.cond(vectors) > 1e6:  # near a Jordan block: the full Kronecker product
        return (expm(s * np.kron(M, V)) @ x.ravel()).reshape(x.shape)
    y = x @ np.linalg.inv(vectors).T
    modes = [expm(s * value * M) @ column for value, column in zip(values, y.T, strict=True)]
    return (np.stack(modes, axis=1) @ vectors.T).real


@final
@dataclass(frozen=True, eq=False)
class Rate(_Record):
    """distance ~ exp(-exponent t): the fitted exponent, its 95 % interval, and what was fitted."""

    exponent: float
    low: float
    high: float
    points: int
    start: float
    stop: float


def rate(trajectory: Trajectory, limit: Array, *, floor: float = 1e-10) -> Rate:
    """Least squares of log max_i |z_i(t) - limit_i| against t (or the layer), late half of the run.

    Distances below `floor` times the first are rounding and left out; of the rest the later half
    is fitted, since the rate is a statement about the end.
    """
    from scipy.stats import t as student

    gap = np.linalg.norm(trajectory.values - np.asarray(limit, dtype=float), axis=-1).max(axis=-1)
    if gap.ndim != 1:
        raise ValueError("trajectory: expected one configuration; use trajectory.select(b)")
    gone = np.flatnonzero(gap <= floor * gap[0])
    usable = np.arange(int(gone[0]) if len(gone) else len(gap))
    usable = usable[len(usable) // 2 :]
    if len(usable) < 3:
        raise ValueError(
            f"rate: only {len(usable)} saved states lie above the floor; save more of the run"
        )
    x, y = np.asarray(trajectory.t, dtype=float)[usable], np.log(gap[usable])
    slope, intercept = np.polyfit(x, y, 1)
    residual = y - (slope * x + intercept)
    spread = sqrt(float(residual @ residual) / (len(x) - 2) / float(((x - x.mean()) ** 2).sum()))
    half = float(student.ppf(0.975, len(x) - 2)) * spread
    return Rate(-slope, -slope - half, -slope + half, len(x), float(x[0]), float(x[-1]))


@final
@dataclass(frozen=True, eq=False)
class NeuralCollapse(_Record):
    """Scatter within and between labelled groups, and the shape of the group means (theory E11).

    `scatter` = tr(Sw Sb^+) / C, 0 at collapse; `cosines` are those between centred means, all
    equal to `simplex` = -1/(C-1) for a simplex ETF; `norm_spread` = std/mean of their lengths.
    """

    scatter: float
    cosines: np.ndarray
    simplex: float
    angle_error: float
    norm_spread: float


def neural_collapse(z: Array, labels: Sequence[int] | np.ndarray) -> NeuralCollapse:
    """Neural-collapse measures of one layer z (n, d) with a group label per token."""
    x = as_tokens(z, ndim=2).astype(np.float64)
    names, group = np.unique(np.asarray(labels), return_inverse=True)
    if len(group) != len(x) or len(names) < 2:
        raise ValueError("labels: expected one label per token and at least two groups")
    means = np.stack([x[group == c].mean(axis=0) for c in range(len(names))])
    centred = means - means.mean(axis=0)
    away = x - means[group]
    within, between = away.T @ away / len(x), centred.T @ centred / len(names)
    length = np.linalg.norm(centred, axis=1)
    unit = centred / np.where(length > 0, length, 1.0)[:, None]
    cosines = (unit @ unit.T)[np.triu_indices(len(names), 1)]
    simplex = -1 / (len(names) - 1)
    return NeuralCollapse(
        float(np.trace(within @ np.linalg.pinv(between))) / len(names),
        cosines,
        simplex,
        float(np.abs(cosines - simplex).max()),
        float(length.std() / length.mean()) if length.any() else 0.0,
    )


@final
@dataclass(frozen=True, eq=False)
class BooleanLimit(_Record):
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
    p = _matrix(P)
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
class Hyperplanes(_Record):
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

    V is that of the dynamics unless given. The values are the same in `RescaledFlow` and
    `LeadingFlow`; tokens of `EuclideanFlow` are divided by e^{l1 t} first.
    """
    matrix = getattr(trajectory.dynamics, "V", None) if V is None else as_matrix(V, "V")
    z = as_tokens(trajectory.values[-1], ndim=2).astype(np.float64)
    triple = good_triple(V=matrix, d=z.shape[1])
    f = z @ triple.dual
    if isinstance(trajectory.dynamics, EuclideanFlow):
        f = f * np.exp(-triple.leading.real * float(trajectory.t[-1]))
    groups = clusters(f[:, None], tol * max(float(np.abs(f).max()), np.finfo(float).tiny))
    centres = groups.centres[:, 0]
    order = np.argsort(centres)
    labels = np.argsort(order)[groups.labels]
    values = centres[order]
    spread = max(float(np.ptp(f[labels == g])) for g in range(len(values)))
    zero = np.abs(values) <= 10 * groups.tol
    sides = int(((values > 0) & ~zero).sum()), int(((values < 0) & ~zero).sum())
    return Hyperplanes(values, labels, spread, f, int(zero.sum()) <= 1 and max(sides) <= 1)


@final
@dataclass(frozen=True, eq=False)
class Plateau(_Record):
    """A stretch of a run with a constant number of clusters: metastable unless it is the last."""

    clusters: int
    start: float
    stop: float

    @property
    def lifetime(self) -> float:
        return self.stop - self.start


def metastable(trajectory: Trajectory, tol: float, *, least: int = 3) -> tuple[Plateau, ...]:
    """Plateaus of the number of clusters (joined at distance tol), of at least `least` saves.

    The lifetime is read between saved times, so save densely (or at geometric times: lifetimes
    grow like e^{c beta}, theory B33).
    """
    counts = [clusters(z, tol).count for z in trajectory.values]
    edges = [0, *(np.flatnonzero(np.diff(counts)) + 1).tolist(), len(counts)]
    t = np.asarray(trajectory.t, dtype=float)
    return tuple(
        Plateau(counts[a], float(t[a]), float(t[b - 1]))
        for a, b in pairwise(edges)
        if b - a >= least
    )


def energy(z: Array, beta: float) -> np.ndarray:
    """(1/n^2) sum_ij exp(beta (<x_i, x_j> - 1)), shape of the leading axes: 1 when all agree.

    The interaction energy of arXiv 2312.10794 up to a factor, normalised so that metastable
    states show as stairs between 1/n and 1 (theory B33).
    """
    x = as_tokens(z).astype(np.float64)
    return np.exp(beta * (x @ np.swapaxes(x, -1, -2) - 1)).mean(axis=(-1, -2))


@final
@dataclass(frozen=True, eq=False)
class LimitingObject(_Record):
    """What the end of a run looks like: `kind`, the points (or values) found, labels per token.

    "zero": all tokens at 0. "point": one cluster. "boolean": d = 1, at most one exceptional row.
    "polytope": clusters at vertices of their hull or elsewhere in the set S (`details["in_S"]`).
    "hyperplanes": f1* takes at most three values. "polytope x hyperplane": the components in a
    leading eigenspace of dimension > 1 cluster. "clusters": anything else. `margin` is how far
    within (positive) or beyond (negative) the tolerance the description is.
    """

    kind: str
    points: np.ndarray
    labels: np.ndarray
    margin: float
    details: dict[str, Any]


def recognise(trajectory: Trajectory, tol: float = 1e-3) -> LimitingObject:
    """Name the limiting object of one configuration; lengths are relative to the first state.

    Reads the last saved state: run until it stands still. For the certified limits of hardmax runs
    take `cynosure.limit`.
    """
    z = as_tokens(trajectory.values[-1], ndim=2).astype(np.float64)
    scale = float(np.linalg.norm(trajectory.values[0], axis=-1).max()) or 1.0
    radius = float(np.linalg.norm(z, axis=1).max()) / scale
    dynamics = trajectory.dynamics
    if radius <= tol:
        labels = np.zeros(len(z), dtype=np.intp)
        return LimitingObject("zero", np.zeros((1, z.shape[1])), labels, tol - radius, {})
    growing = isinstance(dynamics, EuclideanFlow | RescaledFlow | LeadingFlow)
    V = getattr(dynamics, "V", None) if growing else None
    if V is not None and not np.array_equal(V, V[0, 0] * np.eye(len(V))):
        return _leading_limit(trajectory, z, V, tol)
    found = clusters(z, tol * scale)
    spread = float(np.linalg.norm(z - found.centres[found.labels], axis=1).max()) / scale
    if found.count == 1:
        return LimitingObject("point", found.centres, found.labels, tol - spread, {})
    details: dict[str, Any] = {}
    kind = "polytope" if isinstance(dynamics, RescaledFlow | LeadingFlow) else "clusters"
    if kind == "polytope" and z.shape[1] == 1:
        P = attention_matrix(dynamics, trajectory.values[-1], float(trajectory.t[-1]))  # type: ignore[arg-type]
        boolean = boolean_limit(P)
        kind = "boolean" if boolean.holds else "polytope"
        details["boolean"] = boolean.to_dict()
    body = hull(found.centres)
    A = getattr(dynamics, "_A", None)
    form = np.eye(z.shape[1]) if A is None else A
    norms = np.einsum("id,de,ie->i", found.centres, form.T, found.centres)
    excess = (found.centres @ form.T @ body.vertices.T).max(axis=1) - norms
    details["vertices"] = body.index.tolist()
    details["in_S"] = (excess <= tol * scale**2).tolist()
    return LimitingObject(kind, found.centres, found.labels, tol - spread, details)


def _leading_limit(
    trajectory: Trajectory, z: np.ndarray, V: np.ndarray, tol: float
) -> LimitingObject:
    """Clusters of the components along the leading eigenspace of V."""
    triple = good_triple(V=V)
    details = {"good_triple": triple.to_dict()}
    if triple.multiplicity == 1:
        planes = hyperplane_values(trajectory, V, tol)
        kind = "hyperplanes" if planes.holds else "clusters"
        size = max(float(np.abs(planes.f).max()), np.finfo(float).tiny)
        margin = tol - planes.spread / size
        return LimitingObject(kind, planes.values[:, None], planes.labels, margin, details)
    values, vectors = np.linalg.eig(V.T)
    same = np.abs(values - triple.leading) <= _SAME * float(np.abs(values).max())
    duals = np.linalg.qr(vectors[:, same].real)[0]
    seen = z @ duals
    if isinstance(trajectory.dynamics, EuclideanFlow):
        seen = seen * np.exp(-triple.leading.real * float(trajectory.t[-1]))
    size = max(float(np.abs(seen).max()), np.finfo(float).tiny)
    found = clusters(seen, tol * size)
    spread = float(np.abs(seen - found.centres[found.labels]).max()) / size
    details["vertices"] = hull(found.centres).index.tolist()
    kind = "polytope x hyperplane"
    return LimitingObject(kind, found.centres, found.labels, tol - spread, details)


def _matrix(P: Array) -> np.ndarray:
    m = as_matrix(P, "P")
    if m is None:
        raise ValueError("P: expected a square matrix, got None")
    return m


def _real_unit(vector: np.ndarray) -> np.ndarray:
    """The real part of an eigenvector turned to be as real as it can, of length 1."""
    turned = vector * np.exp(-1j * np.angle(vector[np.argmax(np.abs(vector))]))
    real = turned.real
    return real / np.linalg.norm(real)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, complex):
        return [value.real, value.imag]
    return value.item() if isinstance(value, np.generic) else value
