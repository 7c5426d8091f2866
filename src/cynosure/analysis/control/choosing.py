"""control_exactly() and control_limit(): a matrix under which chosen tokens lead and no others do.

That T leads is convex in A (`control`). That a token j outside T does not is a choice: some l must
have <A z_j, z_l - z_j> >= 0. Given these blockers all is linear in A again, so the search goes back
and forth: blockers read off a form, the form of largest margin for them, and so on. It may miss;
what it finds is proved by the exact sets C_i, or by the certified limit (docs/mathematics.md B15).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, SupportsIndex, final

import numpy as np

from ..._display import Shown
from ..._scale import lossless, unit
from ..._shapes import Float, Int
from ..._types import Array, as_alpha, as_generator, as_tokens, as_whole, definite
from ...attention import Hardmax
from ...dynamics import PureAttention
from ..limits import limit
from .contradictions import Proof, repaired
from .plane_forms import strips
from .steering import (
    LARGEST_CONDITION,
    Witness,
    control,
    different,
    indices,
    inequalities,
    programme,
)

ROUNDS = 5  # of blockers and forms from one start
DRAWN = 50  # random forms looked at for each try
FORCED = 3  # tokens that lead under every form found: how many are tried for a proof that they must
SUBSETS = 8  # of the targets, as leaders of layer 0 whom the others join later


@final
@dataclass(frozen=True, eq=False)
class Choice(Shown):
    """Whether some matrix A makes exactly the targets lead, and how that is known.

    `reason` is one of
      "found"       A was found; the exact sets C_i, or the certified limit, confirm it;
      "impossible"  no matrix does, and `why` has the reason; `witness` has its numbers;
      "not found"   neither: the search ended after `tried` matrices; the best left `amiss`,
                    the tokens that lead although they should not, or do not although they should.
    Tokens equal to a target count as targets: they lead with it.
    """

    A: Float[np.ndarray, "d d"] | None
    targets: Int[np.ndarray, "t"]
    reason: str
    why: str
    tried: int
    amiss: Int[np.ndarray, "a"]
    witness: Witness | None = field(default=None, repr=False)

    @property
    def found(self) -> bool:
        return self.reason == "found"

    def __repr__(self) -> str:
        return f"Choice({self.targets.tolist()}, {self.reason}: {self.why})"


def control_exactly(
    z0: Array,
    targets: SupportsIndex | Array,
    *,
    condition: float | int = 1e6,
    tries: int = 8,
    seed: int = 0,
) -> Choice:
    """Finds a positive definite A under which the targets lead at layer 0, and nobody else.

        <A z_i, z_i - z_j> > 0 for i in T, z_j != z_i;   for each j not in T some l with
        <A z_j, z_l - z_j> > 0                                  (docs/mathematics.md B15)

    It is impossible, with a proof, if T cannot lead at all (`control` says why) or if some token
    leads whenever T does. Otherwise starts are searched by semidefinite programmes (`pip install
    "cynosure[control]"`); in the plane all matrices are enumerated instead.

    Trap: "not found" is no proof. Others may become leaders at later layers: `control_limit`.

    Parameters
    ----------
    z0, targets, condition
        As for `control`.
    tries, seed
        How many starts are searched, and their seed.

    Returns
    -------
    Choice
        `found`, with `A`; "impossible", with the reason; or "not found".

    Examples
    --------
    >>> import cynosure as cy
    >>> z = [[2.0, 0.0], [0.2, 1.0], [1.5, 0.9], [0.1, 0.1]]
    >>> cy.Hardmax(cy.control(z, 1).A).followed(z).leads.tolist()
    [True, True, False, False]
    >>> choice = cy.control_exactly(z, 1)
    >>> cy.Hardmax(choice.A).followed(z).leads.tolist()
    [False, True, False, False]
    >>> cy.control_exactly([[1.0], [-2.0]], 0)
    Choice([0], impossible: token 1 leads whenever the targets do)
    """
    z, chosen = _asked(z0, targets)
    tries = as_whole(tries, "tries", 1)
    search = _Search(z, chosen, condition)
    if search.able.A is not None and z.shape[1] == 2:
        form = _of_the_plane(z, search.wanted, search.condition)
        if form is not None and search.exactly(form):
            return search.answer(form)
        tries, search.enumerated = 1, form is None
    for A in search.forms(tries, seed):
        return search.answer(A)
    return search.failure()


def control_limit(
    z0: Array,
    targets: SupportsIndex | Array,
    *,
    alpha: float | int = 1.0,
    condition: float | int = 1e6,
    tries: int = 8,
    seed: int = 0,
) -> Choice:
    """Finds a matrix A under which the leaders at infinite depth are exactly the targets.

    A leader of layer 0 leads at every later layer, and others may join. So matrices are tried under
    which the leaders of layer 0 are the targets or some of them, then random ones; `limit` decides.

    Parameters
    ----------
    z0, targets, condition
        As for `control`.
    alpha
        The step of the layers.
    tries, seed
        How many matrices are tried, and their seed.

    Returns
    -------
    Choice
        `found`, with `A`; "impossible" if none of the targets can lead at layer 0; or "not found".

    Examples
    --------
    >>> import cynosure as cy
    >>> z = cy.configurations.gaussian(12, 2)
    >>> cy.limit(cy.PureAttention(), z).leaders.tolist()
    [3, 4, 6, 10]
    >>> choice = cy.control_limit(z, [3, 4])
    >>> choice.found, cy.limit(cy.PureAttention(cy.Hardmax(choice.A)), z).leaders.tolist()
    (True, [3, 4])
    """
    z, chosen = _asked(z0, targets)
    tries = as_whole(tries, "tries", 1)
    as_alpha(alpha)
    alone = [control(z, i, condition=float("inf")) for i in chosen.tolist()]
    if all(one.witness.reason == "inside" for one in alone):
        why = "none of the targets can lead at layer 0, where some token must"
        return Choice(None, chosen, "impossible", why, 0, chosen, alone[0].witness)
    best, tried = chosen, 0
    for A in _forms_for_the_limit(z, chosen, condition, tries, seed):
        tried += 1
        end = limit(PureAttention(Hardmax(A), alpha=alpha), z)
        amiss = np.setxor1d(end.leaders, chosen)
        if end.certified and len(amiss) == 0:
            return Choice(A, chosen, "found", "the certified limit confirms it", tried, amiss)
        if tried == 1 or 0 < len(amiss) < len(best):
            best = amiss
    none = "no form is known under which only targets lead at layer 0, as they must"
    why = _amiss(tried, best) if tried else none
    return Choice(None, chosen, "not found", why, tried, best)


def _amiss(tried: int, amiss: np.ndarray) -> str:
    return f"no proof and no matrix; the best of {tried} is wrong for {len(amiss)} tokens"


def _asked(z0: Any, targets: Any) -> tuple[np.ndarray, np.ndarray]:
    """Tokens, and the targets with all tokens equal to one of them."""
    z, _ = lossless(as_tokens(z0, "z0", ndim=2).astype(np.float64))
    chosen = indices(targets, len(z))
    equal = (z[:, None, :] == z[chosen]).all(axis=2).any(axis=1)
    return z, np.flatnonzero(equal)


def _forms_for_the_limit(
    z: np.ndarray, chosen: np.ndarray, condition: float, tries: int, seed: int
) -> Iterator[np.ndarray]:
    classes: dict[tuple[float, ...], list[int]] = {}  # equal tokens lead together or not at all
    for i in chosen.tolist():
        classes.setdefault(tuple(z[i].tolist()), []).append(i)
    sizes = range(len(classes), 0, -1)
    subsets = (s for size in sizes for s in combinations(classes.values(), size))
    for _, first in zip(range(SUBSETS), subsets):
        yield from _Search(z, np.sort(np.concatenate(first)), condition).forms(2, seed)
    rng = as_generator(seed)
    for _ in range(DRAWN * tries):
        A = _random_form(rng, z.shape[1], condition)
        if not np.setdiff1d(np.flatnonzero(Hardmax(A).followed(z).leads), chosen).size:
            yield A


def _of_the_plane(z: np.ndarray, wanted: np.ndarray, condition: float) -> np.ndarray | None:
    """The form of the widest cell in which exactly the wanted lead, conditioned well enough."""
    for part in strips(z):
        vertices = (z[:, None] == z[part.who]).all(axis=2).any(axis=1)  # or equal to one
        if (wanted & ~vertices).any():
            return None  # no vertex of the hull: never a leader
        form = part.alone(wanted[part.who])
        if form is not None and np.linalg.cond(form) <= condition:
            return form
    return None


def _random_form(rng: np.random.Generator, d: int, condition: float) -> np.ndarray:
    """Eigenvalues spread evenly in their logarithms over four decades at most, axes at random."""
    vectors = np.linalg.qr(rng.standard_normal((d, d)))[0]
    values = np.exp(-np.log(min(condition, 1e4)) * rng.random(d))
    A = (vectors * (values / values.max())) @ vectors.T
    return (A + A.T) / 2


class _Search:
    """Forms under which `chosen` leads at layer 0 and no other token does."""

    def __init__(self, z: np.ndarray, chosen: np.ndarray, condition: float) -> None:
        self.z, self.chosen = z, chosen
        self.condition = min(float(condition), LARGEST_CONDITION)
        self.wanted = np.zeros(len(z), dtype=bool)
        self.wanted[chosen] = True
        self.able = control(z, chosen, condition=condition)
        self.tried, self.amiss = 0, np.flatnonzero(~self.wanted)
        self.enumerated = False  # were all forms looked at?
        self.always = ~self.wanted  # tokens that led under every form under which the targets did

    def forms(self, tries: int, seed: int) -> Iterator[np.ndarray]:
        """The forms found, from each start, with anybody or only targets for blockers."""
        if self.able.A is None:
            return
        own, away, _ = inequalities(self.z, self.chosen)
        for start in self._starts(own, away, tries, seed):
            if self.exactly(start):
                yield start
                continue
            for among in (np.arange(len(self.z)), self.chosen):
                form = self._back_and_forth(start, among, own, away)
                if form is not None:
                    yield form

    def _starts(
        self, own: np.ndarray, away: np.ndarray, tries: int, seed: int
    ) -> Iterator[np.ndarray]:
        """Forms under which the targets lead: of `control`, of programmes, the best random ones."""
        assert self.able.A is not None
        yield self.able.A
        rng = as_generator(seed)
        for k in range(tries - 1):
            share = np.exp(-3 * rng.random((len(own), 1))) if k else 1.0
            form, _ = programme(own, share * away, floor=1 / self.condition)
            if form is not None:
                yield form
        drawn = [_random_form(rng, self.z.shape[1], self.condition) for _ in range(DRAWN * tries)]

        def missed(A: np.ndarray) -> int:
            return int((Hardmax(A).followed(self.z).leads != self.wanted).sum())

        yield from sorted(drawn, key=missed)[:tries]

    def _back_and_forth(
        self, A: np.ndarray, among: np.ndarray, own: np.ndarray, away: np.ndarray
    ) -> np.ndarray | None:
        """Blockers `among` some tokens for the form A, the best form for them, and so on."""
        seen: set[bytes] = set()
        for _ in range(ROUNDS):
            blocked, blockers = self._blockers(A, among)
            if blockers.tobytes() in seen:
                return None
            seen.add(blockers.tobytes())
            rows = np.vstack([own, unit(self.z[blocked])])
            gaps = np.vstack([away, unit(self.z[blockers] - self.z[blocked])])
            form, _ = programme(rows, gaps, floor=1 / self.condition)
            if form is None:
                return None
            A = form / np.linalg.eigvalsh(form)[-1]
            if self.exactly(A):
                return A
        return None

    def exactly(self, A: np.ndarray) -> bool:
        """Do the targets lead, and they alone? Decided by the exact sets; notes what is amiss."""
        self.tried += 1
        if not definite(A):  # the solver's rounding
            return False
        leads = Hardmax(A).followed(self.z).leads
        amiss = np.flatnonzero(leads != self.wanted)
        if len(amiss) < len(self.amiss) or self.tried == 1:
            self.amiss = amiss
        if leads[self.chosen].all():
            self.always = self.always & leads
        return len(amiss) == 0

    def _blockers(self, A: np.ndarray, among: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Tokens outside the targets, not 0; for each the l of largest cosine with A z_j."""
        blocked, blockers = [], []
        for j in np.flatnonzero(~self.wanted & self.z.any(axis=1)).tolist():
            others = np.intersect1d(different(self.z, j), among)
            cosines = unit(self.z[others] - self.z[j]) @ (A @ unit(self.z[j]))
            blocked.append(j)
            blockers.append(int(others[cosines.argmax()]))
        return np.array(blocked, dtype=np.intp), np.array(blockers, dtype=np.intp)

    def answer(self, A: np.ndarray) -> Choice:
        why, none = "the exact sets C_i at layer 0 confirm it", np.empty(0, dtype=np.intp)
        return Choice(A, self.chosen, "found", why, self.tried, none)

    def failure(self) -> Choice:
        """Impossible, if that can be proved; else not found."""
        if self.able.A is None:
            witness = self.able.witness
            reason = "impossible" if witness.reason in ("inside", "together") else "not found"
            return Choice(None, self.chosen, reason, str(witness), 0, self.chosen, witness)
        for j in np.flatnonzero(self.always)[:FORCED].tolist():
            if (proofs := self._forced(j)) is not None:
                why = f"token {j} leads whenever the targets do"
                witness = Witness("together", token=j, proofs=proofs)
                return Choice(None, self.chosen, "impossible", why, self.tried, self.amiss, witness)
        why = _amiss(self.tried, self.amiss)
        if self.enumerated:
            why = (
                "no cell of the plane's forms, thinner ones than rounding aside, has these leaders"
            )
        return Choice(None, self.chosen, "not found", why, self.tried, self.amiss)

    def _forced(self, j: int) -> tuple[Proof, ...] | None:
        """Proofs that j leads whenever the targets do, one for each other token, or None."""
        own, away, pairs = inequalities(self.z, self.chosen)
        proofs: list[Proof] = []
        for other in different(self.z, j).tolist():
            rows = np.vstack([own, unit(self.z[j])])
            gaps = np.vstack([away, unit(self.z[other] - self.z[j])])
            _, multipliers = programme(rows, gaps, floor=0.0)
            if multipliers is None:
                return None
            *weights, last = np.clip(multipliers, 0.0, None).tolist()
            terms = [(*pair, w) for pair, w in zip(pairs, weights, strict=True)]
            if (proof := repaired(self.z, [*terms, (j, other, -last)])) is None:
                return None
            proofs.append(proof)
        return tuple(proofs)
