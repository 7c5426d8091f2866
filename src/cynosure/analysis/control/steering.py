"""control(): a score matrix A under which chosen tokens lead, or a proof that none exists.

Token i leads from layer 0 on exactly when <A z_i, z_i - z_j> > 0 for every z_j != z_i: linear in A.
So the matrices that make a set T lead are the interior of a convex cone. Both answers are checked
in exact arithmetic: an A by its sets C_i, and an impossibility by multipliers that sum the
inequalities to a contradiction (docs/mathematics.md B15). What has neither is undecided.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from fractions import Fraction
from importlib import import_module
from typing import Any, SupportsIndex, final

import numpy as np
import scipy  # loads its submodules on first use only

from ..._display import Shown
from ..._scale import lengths, lossless, unit
from ..._shapes import Float, Int
from ..._types import Array, as_array, as_tokens, definite
from ...attention import Hardmax
from .contradictions import Proof, cone, refutes, repaired, size, whole

Pairs = list[tuple[int, int]]
TOL = 1e-11  # a cosine margin below this is the rounding of the tokens' differences
LARGEST_CONDITION = 1e8  # of the semidefinite programme: its solver works to about 1e-9


@final
@dataclass(frozen=True, eq=False)
class Witness(Shown):
    """Why a set of tokens can lead, or why it cannot; everything in it can be recomputed.

    `reason` is one of
      "leads"      A was found, and the exact sets C_i at layer 0 confirm it;
      "inside"     token `token` is sum_j weights[j] z_j with weights >= 0 summing to at most 1:
                   no vertex of conv(Z u {0}), so no A makes it lead even alone; proved;
      "together"   each target can lead alone, but S = sum_ij weights[i, j] sym(u_i, u_ij) has no
                   positive eigenvalue: then the sum of the inequalities <A u_i, u_ij> > 0 with
                   these weights is <A, S> <= 0 for every A > 0; proved;
      "condition"  no A was found whose condition number is as small as asked for: one token needs
                   at least `condition`, about; for several it is the bound given;
      "undecided"  neither an A nor a proof was found.
    Here u_i = z_i/|z_i| and u_ij = (z_i - z_j)/|z_i - z_j|.
    `weights` are floats, and `residual` is what their rounding leaves of the stated equality or
    inequality, relative to 1. `proofs` has the exact weights of each proof as terms (i, j, w): the
    sum of w <A z_i, z_i - z_j> over them, with z_j = 0 for j = -1, is <A, S> with no positive
    eigenvalue of S.
    """

    reason: str
    weights: np.ndarray | None = None
    residual: float = 0.0
    token: int = -1
    condition: float = float("nan")
    proofs: tuple[Proof, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return {
            "leads": "the sets C_i at layer 0 confirm it exactly",
            "inside": f"token {self.token} is a convex combination of other tokens and 0",
            "together": "each can lead alone, but their inequalities contradict each other",
            "condition": f"it needs a condition number of {self.condition:.4g} or more",
            "undecided": "neither a matrix A nor a proof that none exists was found",
        }[self.reason]


@final
@dataclass(frozen=True, eq=False)
class Control(Shown):
    """The answer of `control`: A, symmetric positive definite with largest eigenvalue 1, or None.

    `margin` is the least cosine <A z_i, z_i - z_j>/(|z_i| |z_i - z_j|) over the targets i and
    all z_j != z_i: how far A is from losing one of them. `condition` is that of A.
    """

    A: Float[np.ndarray, "d d"] | None
    margin: float
    feasible: bool
    witness: Witness
    targets: Int[np.ndarray, "t"]

    def __repr__(self) -> str:
        what = f"margin={self.margin:.3g}, condition={self.condition:.3g}" if self.feasible else ""
        return f"Control({self.targets.tolist()}, {what or f'infeasible: {self.witness}'})"

    @property
    def condition(self) -> float:
        if self.A is None:
            return float("inf")
        eigenvalues = np.linalg.eigvalsh(self.A)
        return float(eigenvalues[-1] / eigenvalues[0])


def control(z0: Array, targets: SupportsIndex | Array, *, condition: float | int = 1e6) -> Control:
    """Finds a symmetric positive definite A under which the given tokens lead.

        find A > 0 with <A z_i, z_i - z_j> > 0 for all i in T and all z_j != z_i
        (docs/mathematics.md B15)

    One target has a closed form. It can lead iff it is a vertex of conv(Z u {0}). Then some q has
    <q, z_i> > 0 and <q, z_i - z_j> > 0 for all j, any A with A z_i = q will do, and the best
    conditioned one is I minus a multiple of a projection. Several targets are a semidefinite
    programme, solved by cvxpy (`pip install "cynosure[control]"`). The exact sets C_i confirm each
    answer.

    Trap: other tokens may lead as well; see `control_exactly`.

    Parameters
    ----------
    z0
        Tokens (n, d).
    targets
        The token or tokens that are to lead.
    condition
        The largest condition number of A. For several targets at most 1e8.

    Returns
    -------
    Control
        `A` with its `margin`, or a `witness` that proves that no A exists.

    Examples
    --------
    >>> import cynosure as cy
    >>> z = [[2.0, 0.0], [0.2, 1.0], [1.5, 0.9], [0.1, 0.1]]
    >>> cy.Hardmax().followed(z).leads.tolist()
    [True, False, True, False]
    >>> cy.Hardmax(cy.control(z, 1).A).followed(z).leads.tolist()
    [True, True, False, False]
    >>> print(control(z, 3).witness)
    token 3 is a convex combination of other tokens and 0
    """
    z, _ = lossless(as_tokens(z0, "z0", ndim=2).astype(np.float64))  # no form sees a common factor
    chosen = indices(targets, len(z))
    if not condition > 1:
        raise ValueError(f"condition: expected a bound > 1 for that of A, got {condition}")
    distinct, first = np.unique(z[chosen], axis=0, return_index=True)
    plain = np.eye(z.shape[1])
    trivial = len(distinct) > 1 or not z.any()
    if trivial and Hardmax().followed(z).leads[chosen].all():  # the best conditioned form
        return Control(plain, _margin(z, chosen, plain), True, Witness("leads"), chosen)
    alone = [_one(z, i, condition) for i in chosen[first].tolist()]
    if len(distinct) == 1:
        return replace(alone[0], targets=chosen)
    refused = [one for one in alone if not one.feasible]
    if refused:  # one that is proved, if there is one
        refused.sort(key=lambda one: one.witness.reason != "inside")
        return _infeasible(refused[0].witness, chosen)
    return _several(z, chosen, min(float(condition), LARGEST_CONDITION))


def indices(targets: Any, n: int) -> np.ndarray:
    """Targets as indices of tokens, ascending and each once."""
    rows = np.atleast_1d(as_array(targets, "targets", "indices of tokens", dtype=None))
    whole = rows.ndim == 1 and rows.size > 0 and rows.dtype.kind in "iu"
    if not whole or rows.min() < -n or rows.max() >= n:
        raise ValueError(f"targets: expected indices of tokens, 0..{n - 1}, got {targets!r}")
    return np.unique(rows % n).astype(np.intp)


def _infeasible(witness: Witness, chosen: np.ndarray) -> Control:
    return Control(None, -float("inf"), False, witness, chosen)


def different(z: np.ndarray, i: int) -> np.ndarray:
    """Indices of the tokens that differ from token i."""
    return np.flatnonzero((z != z[i]).any(axis=1))


def _margin(z: np.ndarray, chosen: np.ndarray, A: np.ndarray) -> float:
    """min over i, j of <A u_i, u_ij>; 1 where there is nobody else."""
    cosines = [1.0]
    for i in chosen.tolist():
        away = unit(z[i] - z[different(z, i)])
        cosines += (away @ (A @ unit(z[i]))).tolist()
    return max(0.0, min(cosines))  # exactly positive, though its rounding may not be


# --- one token -----------------------------------------------------------------------------------


def _one(z: np.ndarray, i: int, condition: float) -> Control:
    """The answer for one target: two least-squares problems, in rationals where they are near."""
    me, others = np.array([i], dtype=np.intp), different(z, i)
    if not z[i].any():  # a sum of no terms; with nobody else the caller has answered
        proof = ((i, -1, Fraction(1)),)
        return _infeasible(Witness("inside", np.zeros(len(z)), 0.0, i, proofs=(proof,)), me)
    own = unit(z[i])
    away = unit(z[i] - z[others]) if len(others) else np.empty((0, z.shape[1]))
    directions = np.vstack([own, away])
    # The shortest vector p of conv{u_i, u_ij} has <p, u> >= |p|^2 for every u in it: the direction
    # of largest margin. If p = 0 its weights say that z_i is a combination of the others and 0.
    weights = _shortest(directions)
    p = weights @ directions
    if np.linalg.norm(p) > TOL:
        # the unit vector of {q : <q, u_ij> >= 0 for all j} at the least angle from u_i (Moreau)
        nearest = unit(own + scipy.optimize.nnls(-away.T, own)[0] @ away) if len(away) else own
        least = _condition(own, nearest)
        if not condition > least:
            return _infeasible(Witness("condition", None, 0.0, i, least), me)
        share = 1.0
        while share > 1e-12:  # from the largest margin towards the best condition
            q = share * unit(p) + (1 - share) * nearest
            found = _along(z, i, own, q, condition)
            if found is not None:
                return found
            share /= 2
    return _near(z, i, others, weights, condition)


def _along(
    z: np.ndarray, i: int, own: np.ndarray, q: np.ndarray, condition: float
) -> Control | None:
    """The form with A z_i along q, if it is conditioned well enough and the exact sets agree."""
    if _condition(own, q) > condition:
        return None
    A = _turning(own, unit(q))
    if not Hardmax(A).followed(z).leads[i]:
        return None
    me = np.array([i], dtype=np.intp)
    return Control(A, _margin(z, me, A), True, Witness("leads"), me)


def _near(
    z: np.ndarray, i: int, others: np.ndarray, weights: np.ndarray, condition: float
) -> Control:
    """One target where floats do not decide: a combination or a direction in rationals."""
    me, own = np.array([i], dtype=np.intp), unit(z[i])
    plain = _along(z, i, own, own, condition)
    if plain is not None:
        return plain
    rows = whole(z)
    ends = [-1, *others.tolist()]
    vectors = [
        rows[i] if j < 0 else [a - b for a, b in zip(rows[i], rows[j], strict=True)] for j in ends
    ]
    order = np.argsort(-weights)[: int((weights > TOL).sum())]
    exact, direction = cone(vectors, order.tolist())
    if exact is not None:
        proof = tuple((i, ends[k], w) for k, w in exact.items())
        if refutes(rows, proof):
            return _infeasible(_combination(z, i, proof), me)
    if direction is not None:
        top = max(map(abs, direction))
        q = np.array([float(x / top) for x in direction])
        for share in (1.0, 0.5, 0.9, 0.1, 0.99, 0.999, 0.01):
            found = _along(z, i, own, share * unit(q) + (1 - share) * own, condition)
            if found is not None:
                return found
    return _infeasible(Witness("undecided", token=i), me)


def _combination(z: np.ndarray, i: int, proof: Proof) -> Witness:
    """sum_j w_j (z_i - z_j) + w_0 z_i = 0, solved for z_i."""
    total = sum(w for *_, w in proof)
    full = np.zeros(len(z))
    for _, j, w in proof:
        if j >= 0:
            full[j] = float(w / total)
    residual = float(lengths(full @ z - z[i]) / lengths(z[i]))
    return Witness("inside", full, residual, i, proofs=(proof,))


def _shortest(directions: np.ndarray) -> np.ndarray:
    """Weights of the shortest vector of conv(rows): least |sum w_j a_j|^2 + (sum w_j - 1)^2."""
    rows = np.vstack([directions.T, np.ones(len(directions))])
    weights = scipy.optimize.nnls(rows, np.append(np.zeros(directions.shape[1]), 1.0))[0]
    return weights / weights.sum()


def _condition(own: np.ndarray, q: np.ndarray) -> float:
    """Least condition number of A > 0 with A u_i along q: (1 + sin t)/(1 - sin t), t the angle."""
    s = np.linalg.norm(unit(q) - own)
    c = np.linalg.norm(unit(q) + own)
    half = np.arctan2(s, c)  # t/2, accurate for small angles too
    return float(np.tan(np.pi / 4 - half) ** -2) if half < np.pi / 4 else float("inf")


def _turning(own: np.ndarray, q: np.ndarray) -> np.ndarray:
    """A = I - (1 - 1/condition) e e^T with A u_i a multiple of q, symmetric to the last bit.

    The direction e, half a right angle beyond their bisector, is where a form turns most.
    """
    apart = own - q
    if not apart.any():
        return np.eye(len(own))
    e = unit(unit(own + q) + unit(apart))
    A = np.eye(len(own)) - (1 - 1 / _condition(own, q)) * np.outer(e, e)
    return (A + A.T) / 2


# --- several tokens ------------------------------------------------------------------------------


def _several(z: np.ndarray, chosen: np.ndarray, condition: float) -> Control:
    """The form of largest margin with eigenvalues in [1/condition, 1], or why there is none."""
    own, away, pairs = inequalities(z, chosen)
    A, _ = programme(own, away, floor=1 / condition)
    if A is not None:
        A = _conditioned(A, own, away)
        if definite(A) and Hardmax(A).followed(z).leads[chosen].all():
            return Control(A, _margin(z, chosen, A), True, Witness("leads"), chosen)
    # Without the floor the dual is well scaled: its value is negative, or an A > 0 exists.
    free, multipliers = programme(own, away, floor=0.0)
    if multipliers is None:
        return _infeasible(Witness("undecided"), chosen)
    weights = np.clip(multipliers, 0.0, None)
    weights /= weights.sum()
    S = (own * weights[:, None]).T @ away
    residual = float(np.linalg.eigvalsh((S + S.T) / 2)[-1])
    if residual <= 1e-6:
        proof = repaired(z, [(*pair, w) for pair, w in zip(pairs, weights.tolist(), strict=True)])
        if proof is not None:
            return _infeasible(_together(z, chosen, proof), chosen)
    reason = "condition" if free is not None and residual > 1e-9 else "undecided"
    return _infeasible(Witness(reason, None, residual, condition=condition), chosen)


def _together(z: np.ndarray, chosen: np.ndarray, proof: Proof) -> Witness:
    """The witness of a proof, its weights those of unit vectors and with sum 1."""
    table = np.zeros((len(chosen), len(z)))
    S = np.zeros((z.shape[1], z.shape[1]))
    place = {i: row for row, i in enumerate(chosen.tolist())}
    sizes = [w * size(z, i, j) for i, j, w in proof]
    for (i, j, _), w in zip(proof, sizes, strict=True):
        table[place[i], j] = float(w / max(sizes))
    table /= table.sum()
    for i, j, _ in proof:
        S += table[place[i], j] * np.outer(unit(z[i]), unit(z[i] - z[j]))
    residual = float(np.linalg.eigvalsh((S + S.T) / 2)[-1])
    return Witness("together", table, residual, proofs=(proof,))


def _conditioned(A: np.ndarray, own: np.ndarray, away: np.ndarray) -> np.ndarray:
    """A mixed with as much of the identity as half its margin allows: far better conditioned."""
    now, plain = np.sum((own @ A) * away, axis=1), np.sum(own * away, axis=1)
    goal = now.min() / 2
    if goal > 0:
        falling = plain < goal
        steps = (now[falling] - goal) / (now[falling] - plain[falling])
        share = min(1.0, *steps) if falling.any() else 1.0
        A = (1 - share) * A + share * np.eye(len(A))
    return A / np.linalg.eigvalsh(A)[-1]


def inequalities(z: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, Pairs]:
    """u_i and u_ij row by row, for every target i and other token j, and these pairs (i, j)."""
    pairs = [(i, j) for i in chosen.tolist() for j in different(z, i).tolist()]
    i, j = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    return unit(z[i]), unit(z[i] - z[j]), pairs


def programme(
    own: np.ndarray, away: np.ndarray, floor: float
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """max t with <A u_i, u_ij> >= t, and the multipliers of these inequalities.

    floor > 0: floor I <= A <= I. floor = 0: A >= 0 of trace 1, whose dual is the least largest
    eigenvalue of S over multipliers that sum to 1.
    """
    try:
        cp: Any = import_module("cvxpy")
    except ImportError:
        raise ImportError(
            "control of several tokens is a semidefinite programme: "
            'pip install "cynosure[control]" (one token needs nothing)'
        ) from None
    d = own.shape[1]
    A, t = cp.Variable((d, d), symmetric=True), cp.Variable()
    # <A u_i, u_ij> as one product with the entries of A: a single sparse constraint.
    rows = np.einsum("ra,rb->rab", own, away)
    rows = ((rows + rows.swapaxes(1, 2)) / 2).reshape(len(own), -1)
    leads = rows @ cp.vec(A, order="C") >= t
    if floor > 0:
        shape = [A >> floor * np.eye(d), np.eye(d) - A >> 0]
    else:
        shape = [A >> 0, cp.trace(A) == 1]
    problem = cp.Problem(cp.Maximize(t), [leads, *shape])
    try:
        with warnings.catch_warnings():  # an inaccurate solution is judged by what it proves
            warnings.simplefilter("ignore")
            problem.solve(solver=cp.CLARABEL)
    except cp.SolverError:
        return None, None
    if A.value is None:
        return None, None
    return (A.value + A.value.T) / 2, leads.dual_value
