"""remove_leader(): the smallest changes of one token, or of the form A, that take a lead away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, SupportsIndex, final

import numpy as np
import scipy  # loads its submodules on first use only

from ..._display import Shown
from ..._scale import exponent, lossless, scaled, shifted, unit
from ..._shapes import Float
from ..._types import Array, as_matrix, as_tokens, definite
from ...attention import Hardmax
from .steering import TOL, different, indices


@final
@dataclass(frozen=True, eq=False)
class Removal(Shown):
    """The smallest changes after which token `leader` does not lead at layer 0 any more.

    Of one token: `z` are the tokens after the leader has moved by `distance` in the A-norm, and
    `follows` is the token it then follows. Where all others are 0 that token has moved instead: a
    leader that comes to 0 itself meets them there, and leads with them. Of the form: `A` is the
    nearest one, at `change` in the Frobenius norm; None where no form takes the lead away. Both
    overshoot the tie by a share of about 1e-12, since at the tie itself rounding decides.
    """

    leader: int
    z: Float[np.ndarray, "n d"]
    follows: int
    distance: float
    A: Float[np.ndarray, "d d"] | None
    change: float


def remove_leader(z0: Array, i: SupportsIndex, A: Array | None = None) -> Removal:
    """The smallest change of one token, and the smallest change of A, that removes leader i.

    Token i leads while <A z_i, z_i - z_j> > 0 for all j. In the A-norm, the lead ends
      by moving i into the ball of diameter [0, z_j]:   |z_i - z_j/2| - |z_j|/2,
      by moving j over the hyperplane <A z_i, y> = |z_i|^2:   <A z_i, z_i - z_j>/|z_i|,
      by changing A:   <A z_i, z_i - z_j>/|S|_F,   S = sym(z_i (z_i - z_j)^T), as long as A stays
    positive definite (else one root to find); each time for the cheapest j. By Cauchy-Schwarz the
    first is never larger than the second, so of all single tokens it is the leader itself whose
    move is smallest; only for z_j = 0 they are the same, and the second alone is a move.

    Trap: at later layers the token may lead again.

    Examples
    --------
    >>> import cynosure as cy
    >>> r = cy.analysis.remove_leader([[2.0, 0.0], [0.0, 1.0]], 1)
    >>> round(r.distance, 6), r.follows, cy.Hardmax().followed(r.z).leads.tolist()
    (0.414214, 0, [True, False])
    """
    z, e = lossless(as_tokens(z0, "z0", ndim=2).astype(np.float64))
    form, n, d = as_matrix(A), *z.shape
    leader = int(indices(i, n)[0])
    if not definite(form):
        raise ValueError("A: expected a symmetric positive definite matrix")
    attention = Hardmax(form)
    if not attention.followed(z).leads[leader]:
        raise ValueError(f"i: token {leader} does not lead at layer 0, so there is no lead to take")
    others = different(z, leader)
    if len(others) < n - 1:
        raise ValueError(f"i: token {leader} has duplicates, which lead with it; drop them first")
    if n == 1:
        raise ValueError("z0: the only token always leads")
    form = np.eye(d) if form is None else form
    h = exponent(form) // 2
    form = shifted(form, -2 * h)  # the A-norm is 2^h times that of this form
    moved, follows, distance = _move(z, leader, others, form, attention)
    nearest, change = _nearest_form(z, leader, others, form)
    return Removal(
        leader,
        shifted(moved, e),
        follows,
        float(shifted(np.float64(distance), e + h)),
        None if nearest is None else shifted(nearest, 2 * h),
        float(shifted(np.float64(change), 2 * h)),
    )


def _move(
    z: np.ndarray, i: int, others: np.ndarray, A: np.ndarray, attention: Hardmax
) -> tuple[np.ndarray, int, float]:
    """(tokens, whom i follows then, how far one token moved)."""

    def size(x: np.ndarray) -> Any:
        y, e = scaled(x, -1)
        return shifted(np.sqrt(np.einsum("...a,ab,...b->...", y, A, y)), e[..., 0])

    there = others[z[others].any(axis=1)]  # not 0
    if len(there) == 0:  # one of them has to come to the leader: beyond it, as seen from 0
        j = int(others[0])
        moved = _push(z, j, z[i], z[i], i, attention)
        return moved, j, float(size(moved[j]))
    middle = z[there] / 2
    away = size(z[i] - middle) - size(middle)
    j = int(away.argmin())
    out = (z[i] - middle[j]) / size(z[i] - middle[j])
    target = middle[j] + size(middle[j]) * out  # from its own ball, which may be tiny beside z_i
    inwards = -min(size(z[i]), size(z[there[j]])) * out
    moved = _push(z, i, target, inwards, i, attention)
    return moved, int(there[j]), float(size(moved[i] - z[i]))


def _push(
    z: np.ndarray, j: int, target: np.ndarray, ahead: np.ndarray, i: int, attention: Hardmax
) -> np.ndarray:
    """Token j put at `target` and as little further `ahead` as it takes for i not to lead."""
    overshoot = 1e-12
    while overshoot < 1:
        moved = z.copy()
        moved[j] = target + overshoot * ahead
        if not attention.followed(moved).leads[i]:
            return moved
        overshoot *= 4
    raise ArithmeticError(
        f"i: rounding keeps token {i} in the lead wherever it goes; its tokens are too close to "
        "each other, or to 0, for their floats"
    )


def _nearest_form(
    z: np.ndarray, i: int, others: np.ndarray, A: np.ndarray
) -> tuple[np.ndarray | None, float]:
    """The nearest positive definite form under which i does not lead, over the tokens j.

    Half-spaces {<A', S_j> <= 0} are tried by distance, until the next is farther than the best.
    """
    S = np.einsum("a,jb->jab", unit(z[i]), unit(z[i] - z[others]))
    S = (S + S.swapaxes(1, 2)) / 2
    S = S / np.linalg.norm(S, axis=(1, 2))[:, None, None]
    away = np.einsum("ab,jab->j", A, S)
    best, least = None, float("inf")
    smallest = 1e-12 * float(np.linalg.norm(A))
    for j in np.argsort(away).tolist():
        if away[j] >= least:
            break
        if np.linalg.eigvalsh(S[j])[0] >= -TOL:
            continue  # z_j is a multiple s z_i, s < 1: no form prefers it
        form = A - (1 + 1e-12) * away[j] * S[j]
        if not definite(form):
            form = _project_form(A, S[j])
        overshoot, leads = 1e-12, Hardmax(form).followed(z).leads[i]
        while leads and overshoot < 1:  # a lead that rounds to 0 is one all the same
            form = form - overshoot * max(away[j], smallest) * S[j]
            leads = Hardmax(form).followed(z).leads[i]
            overshoot *= 4
        if leads or not definite(form):
            continue
        if (change := float(np.linalg.norm(form - A))) < least:
            best, least = form, change
    return best, least


def _project_form(A: np.ndarray, S: np.ndarray) -> np.ndarray:
    """argmin |X - A|_F over <X, S> <= 0, X >= floor I: X(m) = cut(A - m S), one root to find.

    The floor, a millionth of A's least eigenvalue, keeps X positive definite.
    """
    floor = 1e-6 * float(np.linalg.eigvalsh(A)[0])

    def cut(m: float) -> np.ndarray:
        values, vectors = np.linalg.eigh(A - m * S)
        X = (vectors * np.maximum(values, floor)) @ vectors.T
        return (X + X.T) / 2

    def side(m: float) -> float:
        return float((cut(m) * S).sum())

    far = float(np.linalg.norm(A))
    while side(far) > 0:
        far *= 2
    return cut(scipy.optimize.brentq(side, 0.0, far, xtol=1e-14 * far, rtol=1e-14))
