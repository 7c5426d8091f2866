"""control(): a form A under which chosen tokens lead, or the reason why there is none.

Token i leads from layer 0 on exactly when <A z_i, z_i - z_j> > 0 for every z_j != z_i: linear in A.
So the forms that make a set T lead are the interior of a convex cone, and both answers can be
checked by hand: an A by its sets C_i, which are decided exactly, and an impossibility by
multipliers that sum the inequalities to a contradiction (docs/mathematics.md B15).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib import import_module
from typing import Any, SupportsIndex, final

import numpy as np
import scipy  # loads its submodules on first use only
from jaxtyping import Float, Int

from .._scale import lengths, lossless, unit
from .._types import Array, as_array, as_tokens, definite
from ..attention import Hardmax

__all__ = ["Control", "Witness", "control", "different", "indices", "programme"]

TOL = 1e-11  # a cosine margin below this is the rounding of the tokens' differences
LARGEST_CONDITION = 1e8  # of the semidefinite programme: its solver works to about 1e-9


@final
@dataclass(frozen=True, eq=False)
class Witness:
    """Why a set of tokens can lead, or why it cannot; everything in it can be recomputed.

    `reason` is one of
      "leads"      A was found, and the exact sets C_i at layer 0 confirm it;
      "inside"     token `token` is sum_j weights[j] z_j with weights >= 0 summing to at most 1:
                   no vertex of conv(Z u {0}), so no A makes it lead even alone;
      "together"   each target can lead alone, but S = sum_ij weights[i, j] sym(u_i, u_ij) has no
                   positive eigenvalue (`residual` is the largest): then the sum of the
                   inequalities <A u_i, u_ij> > 0 with these weights is <A, S> <= 0 for every A > 0;
      "condition"  an A exists, but its condition number is larger than asked for: at least
                   `condition` (the infimum for one token; just the bound given for several);
      "undecided"  the solver found neither an A nor multipliers within rounding.
    Here u_i = z_i/|z_i| and u_ij = (z_i - z_j)/|z_i - z_j|.
    `residual` is what rounding leaves of the stated equality or inequality, relative to 1.
    """

    reason: str
    weights: np.ndarray | None = None
    residual: float = 0.0
    token: int = -1
    condition: float = float("nan")

    def __str__(self) -> str:
        return {
            "leads": "the sets C_i at layer 0 confirm it exactly",
            "inside": f"token {self.token} is a convex combination of other tokens and 0",
            "together": "each can lead alone, but their inequalities contradict each other",
            "condition": f"it needs a condition number of {self.condition:.4g} or more",
            "undecided": "neither a form nor a contradiction was found within rounding",
        }[self.reason]


@final
@dataclass(frozen=True, eq=False)
class Control:
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
    """A symmetric positive definite A, of condition number <= `condition`, that makes targets lead.

        find A > 0 with <A z_i, z_i - z_j> > 0 for all i in T and all z_j != z_i
        (docs/mathematics.md B15)

    One target has a closed form. It can lead iff it is a vertex of conv(Z u {0}), that is, iff
    some q has <q, z_i> > 0 and <q, z_i - z_j> > 0 for all j; then any A with A z_i = q will do,
    and the best conditioned one is I minus a multiple of a projection, with condition number
    (1 + sin t)/(1 - sin t), t the angle between z_i and q. Several targets are a semidefinite
    programme, solved by cvxpy (`pip install "cynosure[control]"`). Either way the A returned is
    confirmed by the exact sets C_i, not by the solver.

    Trap: the targets lead, but others may lead beside them. A bound of more than 1e8 on the
    condition number is taken as 1e8 for several targets.

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
    alone = None
    for i in chosen.tolist():
        alone = _one(z, i, condition)
        if not alone.feasible:
            return _infeasible(alone.witness, chosen)
    distinct = np.unique(z[chosen], axis=0)
    if len(distinct) == 1:
        assert alone is not None
        return Control(alone.A, alone.margin, True, alone.witness, chosen)
    plain = np.eye(z.shape[1])
    if Hardmax().followed(z).leads[chosen].all():  # nothing to do: the best conditioned form
        return Control(plain, _margin(z, chosen, plain), True, Witness("leads"), chosen)
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
    return min(cosines)


# --- one token -----------------------------------------------------------------------------------


def _one(z: np.ndarray, i: int, condition: float) -> Control:
    """The exact answer for one target, from two non-negative least-squares problems."""
    me, others = np.array([i], dtype=np.intp), different(z, i)
    if not z[i].any():
        return _infeasible(Witness("inside", np.zeros(len(z)), 0.0, i), me)
    own = unit(z[i])
    away = unit(z[i] - z[others]) if len(others) else np.empty((0, z.shape[1]))
    directions = np.vstack([own, away])
    # The shortest vector p of conv{u_i, u_ij} has <p, u> >= |p|^2 for every u in it: the direction
    # of largest margin. If p = 0 its weights say that z_i is a combination of the others and 0.
    weights = _shortest(directions)
    p = weights @ directions
    if np.linalg.norm(p) > TOL:
        nearest = _nearest_in_cone(own, away)
        least = _condition(own, nearest)
        if not condition > least:
            return _infeasible(Witness("condition", None, 0.0, i, least), me)
        share = 1.0
        while share > 1e-12:  # from the largest margin towards the best condition
            q = share * unit(p) + (1 - share) * nearest
            if _condition(own, q) <= condition:
                A = _turning(own, unit(q))
                if Hardmax(A).followed(z).leads[i]:
                    return Control(A, _margin(z, me, A), True, Witness("leads"), me)
            share /= 2
    return _infeasible(_combination(z, i, others, weights), me)


def _combination(z: np.ndarray, i: int, others: np.ndarray, weights: np.ndarray) -> Witness:
    """sum_j w_j (z_i - z_j)/|z_i - z_j| + w_0 z_i/|z_i| = 0, solved for z_i."""
    size = lengths(np.vstack([z[i], z[i] - z[others]]))
    share = weights * (size.min() / size)  # of 1e-300 and less no reciprocal is a float
    full = np.zeros(len(z))
    full[others] = share[1:] / share.sum()
    residual = float(lengths(full @ z - z[i]) / lengths(z[i]))
    return Witness("inside" if residual <= 1e-9 else "undecided", full, residual, i)


def _shortest(directions: np.ndarray) -> np.ndarray:
    """Weights of the shortest vector of conv(rows).

    |sum w_j a_j|^2 + (sum w_j - 1)^2 over w >= 0 is least at a multiple of that convex combination.
    """
    rows = np.vstack([directions.T, np.ones(len(directions))])
    target = np.append(np.zeros(directions.shape[1]), 1.0)
    weights = scipy.optimize.nnls(rows, target)[0]
    return weights / weights.sum()


def _nearest_in_cone(own: np.ndarray, away: np.ndarray) -> np.ndarray:
    """The unit vector of {q : <q, u_ij> >= 0 for all j} at the least angle from u_i (Moreau)."""
    if len(away) == 0:
        return own
    weights = scipy.optimize.nnls(-away.T, own)[0]
    return unit(own + weights @ away)


def _condition(own: np.ndarray, q: np.ndarray) -> float:
    """The least condition number of a form A > 0 with A u_i a multiple of q.

    tan(45 deg - t/2)^-2 = (1 + sin t)/(1 - sin t) with t the angle between the two.
    """
    s = np.linalg.norm(unit(q) - own)
    c = np.linalg.norm(unit(q) + own)
    half = np.arctan2(s, c)  # t/2, accurate for small angles too
    return float(np.tan(np.pi / 4 - half) ** -2) if half < np.pi / 4 else float("inf")


def _turning(own: np.ndarray, q: np.ndarray) -> np.ndarray:
    """A = I - (1 - 1/condition) e e^T with A u_i a multiple of q, symmetric to the last bit.

    In the plane of the two, A shrinks the direction e half a right angle beyond their bisector on
    the side of u_i: that is where a form of given condition turns a vector most.
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
    own, away, pairs = _inequalities(z, chosen)
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
    table = np.zeros((len(chosen), len(z)))
    table[pairs[:, 0], pairs[:, 1]] = weights
    if residual <= 1e-9:
        return _infeasible(Witness("together", table, residual), chosen)
    reason = "undecided" if free is None else "condition"
    return _infeasible(Witness(reason, table, residual, condition=condition), chosen)


def _conditioned(A: np.ndarray, own: np.ndarray, away: np.ndarray) -> np.ndarray:
    """A mixed with as much of the identity as half its margin allows, largest eigenvalue 1.

    The largest margin lies at the edge of the forms allowed, where the condition number is the
    bound itself; half of it is usually to be had at a far better condition.
    """
    now, plain = np.sum((own @ A) * away, axis=1), np.sum(own * away, axis=1)
    goal = now.min() / 2
    if goal > 0:
        falling = plain < goal
        steps = (now[falling] - goal) / (now[falling] - plain[falling])
        share = min(1.0, *steps) if falling.any() else 1.0
        A = (1 - share) * A + share * np.eye(len(A))
    return A / np.linalg.eigvalsh(A)[-1]


def _inequalities(z: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """u_i, u_ij row by row, and which (position of i in chosen, j) each row is.

    Only vertices of the hull can be followed, but finding them costs more than it saves here.
    """
    own, away, pairs = [], [], []
    for position, i in enumerate(chosen.tolist()):
        others = different(z, i)
        own.append(np.tile(unit(z[i]), (len(others), 1)))
        away.append(unit(z[i] - z[others]))
        pairs.append(np.stack([np.full(len(others), position), others], axis=1))
    return np.vstack(own), np.vstack(away), np.vstack(pairs)


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
