"""limit(): the state at infinite depth, with a proof per token.

Layers are walked until every token's sets are proved constant; then its limit is known. The proofs
(`engine.certificates`) are local: leaders, followers of a leader (S), ties between fixed tokens
(fixed, G), frozen chains of ties (H), and, where none of these fires, the exact sign of every
score difference for all later layers (T), which also skips to the next layer where a set changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, final

import numpy as np

from .._types import Array, Rational, as_mask, as_rationals, as_tokens, definite
from ..dynamics import Dynamics
from ..engine.certificates import FIXED, LEADER, RULES, Frozen, H, T
from ..engine.walk import AllKeys, Walk
from .polytope import Polytope, hull

__all__ = ["Limit", "limit"]


@final
@dataclass(frozen=True, eq=False)
class Limit:
    """Tokens at infinite depth, and how each was settled.

    `points` (n, d): limits; rows of `undecided` tokens hold where they are after `layers` layers.
    `leaders`: indices, duplicates included; `born`, `settled_at`: layers, -1 for never.
    `rule`: "leader", "S", "G", "fixed", "H", "T" or "". `follows`: the leader a token tends to, -1
    where the limit is no leader. `margin`: the smallest gap between the best and the next score
    seen before the token settled. `exact_points`: the limits as rationals when exact=True.
    """

    points: np.ndarray
    leaders: np.ndarray
    born: np.ndarray
    settled_at: np.ndarray
    rule: np.ndarray
    follows: np.ndarray
    margin: np.ndarray
    layers: int
    arithmetic: str
    exact_decisions: int
    exact_points: tuple[Rational, ...] | None = None
    _leading: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.intp), repr=False)
    _hull_of_leaders: bool = field(default=True, repr=False)

    def __repr__(self) -> str:
        n, d = self.points.shape
        what = "certified" if self.certified else f"{len(self.undecided)} undecided"
        return f"Limit(n={n}, d={d}, {len(self.leaders)} leaders, {what} at layer {self.layers})"

    @property
    def undecided(self) -> np.ndarray:
        """Indices of the tokens whose limit is not proved."""
        return np.flatnonzero(self.settled_at < 0)

    @property
    def certified(self) -> bool:
        """True when every token's limit is proved."""
        return len(self.undecided) == 0

    @cached_property
    def polytope(self) -> Polytope:
        """K, the limit of the hulls: the convex hull of the limits.

        For A symmetric positive definite its vertices are the leaders (docs/mathematics.md B5), so
        none need be computed. While tokens are undecided it is the hull of the leaders found so
        far, inside K.
        """
        if self._hull_of_leaders or not self.certified:
            if len(self._leading) == 0:
                raise ValueError("polytope: no leader was found, so the polytope is not known")
            return Polytope.from_vertices(self.points[self._leading], index=self._leading)
        return hull(self.points)


def limit(
    dynamics: Dynamics,
    z0: Array,
    *,
    exact: bool = False,
    mask: Array | None = None,
    max_layers: int = 100_000,
    progress: Callable[[int, int], Any] | None = None,
) -> Limit:
    """The limit of every token of one configuration z0 (n, d) under hardmax layers.

    The floats of z0, A and alpha are taken as exact numbers. The default walks in floating point
    and turns to integers only where rounding could matter, so its sets are those of exact
    arithmetic; `exact=True` takes every decision in rationals (z0 may then hold Fractions) and
    returns the limits as rationals too. A token that is not settled within `max_layers` layers is
    `undecided`; that can only happen with ties that persist, or with A not positive definite.
    `progress(layer, undecided)` is called after each layer.

    Example
    -------
    >>> import cynosure as cy
    >>> square = [[1, 1], [1, -1], [-1, -1], [-1, 1], [0.5, 0.0]]
    >>> li = cy.limit(cy.PureAttention(alpha=0.5), square)
    >>> li.points[4].tolist(), str(li.rule[4]), li.leaders.tolist()
    ([1.0, 0.0], 'G', [0, 1, 2, 3])
    """
    layers = dynamics.hardmax_layers if isinstance(dynamics, Dynamics) else None
    if layers is None or not layers.normalised:
        raise TypeError(
            "limit: expected PureAttention(Hardmax(...)), the model whose limit can be proved; "
            f"got {type(dynamics).__name__}. Unnormalised layers grow for ever; use PureAttention"
        )
    if max_layers < 0:
        raise ValueError(f"max_layers: expected a whole number >= 0, got {max_layers!r}")
    rationals = as_rationals(z0) if exact else None
    tokens = as_tokens(
        [[float(x) for x in r] for r in rationals] if rationals else z0, "z0", ndim=2
    )
    real = as_mask(mask, tokens.shape[:-1])
    keep = np.arange(len(tokens)) if real is None else np.flatnonzero(real)
    A = layers.attention.matrix(tokens.shape[1])
    z = tokens[keep].astype(np.float64, copy=False)
    if rationals is not None:
        rows = [rationals[i] for i in keep]
        walk = Walk(z, A, layers.alpha, search=AllKeys(), rationals=rows)
    else:
        walk = Walk(z, A, layers.alpha, gaps=True)
    _settle(walk, max_layers, progress)
    return _result(walk, tokens, keep, exact)


def _settle(walk: Walk, max_layers: int, progress: Callable[[int, int], Any] | None) -> None:
    """Walk until everything is settled, trying the global rules where ties persist."""
    patience = 0  # layers to wait before the next attempt at H and T
    while True:
        walk.decide()
        if progress is not None:
            progress(walk.k, len(walk.active))
        if walk.settled:
            return
        if patience == 0 and _has_ties(walk):
            outcome = _frozen_rules(walk, max_layers - walk.k)
            if outcome == "done":
                return
            if outcome == "jumped":
                continue  # the new layer is still to be decided
            patience = 0 if outcome == "some" else 1 + walk.k // 4
        elif patience:
            patience -= 1
        if walk.k >= max_layers:
            return
        walk.advance()


def _has_ties(walk: Walk) -> bool:
    """True when a class still searched follows several; without ties rule S ends every walk."""
    record = walk.records[-1]
    return bool((walk.settled_at[record.ids[np.diff(record.indptr) > 1]] < 0).any())


def _frozen_rules(walk: Walk, budget: int) -> str:
    """Rules H and T at the decided layer: "done", "some" settled, "jumped" ahead, or "nothing"."""
    frozen = Frozen(walk)
    if not frozen.stable:
        return "nothing"
    settled = frozen.settled_by_h()
    if settled:
        walk.settle(settled, H, frozen.end)
        return "done" if walk.settled else "some"
    change, proved = frozen.first_change(_rivals(walk, frozen), budget)
    if change is not None and change > 1:
        walk.jump(walk.k + change, *frozen.after(change))
        return "jumped"
    if change is None and proved:
        walk.settle(frozen.open, T, frozen.end)
        return "done"
    return "nothing"


def _rivals(walk: Walk, frozen: Frozen) -> list[int]:
    """The classes that could ever enter or leave an open set: all but the safely beaten ones.

    z_i(s) lies in the hull of its Y_i^(r) and a settled class l in the segment from z_l to its
    limit, so if <A Y_i^(r), .> at both ends stays below the worst of a followed class by more than
    any rounding, l can never matter.
    """
    m = len(walk.z)
    keep = np.zeros(m, dtype=bool)
    keep[walk.active] = keep[walk.moving] = True
    scale = walk.path.scale(walk.k)
    ends = walk.z.copy()
    for _, ids, limits, _ in walk.closed:
        ends[ids] = limits
    margin = 1e-6 * walk.form_norm * walk.radius**2
    assert frozen.depth is not None
    for c in frozen.open:
        own = _floats([frozen.y(c, r) for r in range(frozen.depth + 1)], scale)
        best = int(walk.following(c)[0])
        target = _floats([frozen.y(best, q) for q in range(frozen.depth + 2)], scale)
        query = own if walk.A is None else own @ walk.A.T
        worst = (query @ target.T).min(axis=1)
        top = np.maximum(query @ walk.z.T, query @ ends.T)
        keep |= (top > worst[:, None] - margin).any(axis=0)
        keep[list(walk.following(c))] = True
    return [int(c) for c in np.flatnonzero(keep)]


def _floats(rows: list, scale: int) -> np.ndarray:
    return np.array([[float(Fraction(x) / scale) for x in row] for row in rows])


def _result(walk: Walk, tokens: np.ndarray, keep: np.ndarray, exact: bool) -> Limit:
    """Limits and bookkeeping at the level of tokens; padding is settled where it is."""
    walk.refresh()
    ends = walk.z.copy()
    for _, ids, limits, _ in walk.closed:
        ends[ids] = limits
    final = {c: _end(walk, c) for c in (range(len(ends)) if exact else walk.ends)}
    for c, end in final.items():
        ends[c] = [float(x) for x in end]
    n = len(tokens)
    label = np.full(n, -1)
    label[keep] = walk.label

    def spread(values: np.ndarray, default: Any) -> np.ndarray:
        out = np.full(n, default, dtype=values.dtype)
        out[keep] = values[walk.label]
        return out

    points = tokens.copy()
    points[keep] = (ends[walk.label] if exact else np.ldexp(ends[walk.label], walk.shift)).astype(
        tokens.dtype
    )
    lead = spread(walk.leader, -1)
    unit = walk.A_shift + (0 if exact else 2 * walk.shift)  # rationals are walked unscaled
    first = keep[walk.first]
    exact_points = None
    if exact:
        exact_points = tuple(tuple(final[c]) if c >= 0 else () for c in label.tolist())
    return Limit(
        points=points,
        leaders=np.flatnonzero(spread(walk.born, -1) >= 0),
        born=spread(walk.born, -1),
        settled_at=spread(walk.settled_at, 0),
        rule=np.array(RULES)[spread(walk.rule, 0)],
        follows=np.where(lead >= 0, first[lead], -1),
        margin=spread(np.ldexp(walk.gap, unit), np.inf),
        layers=walk.k,
        arithmetic="exact" if exact else "float64 with exact ties",
        exact_decisions=walk.exact_decisions,
        exact_points=exact_points,
        _leading=np.sort(first[walk.born >= 0]),
        _hull_of_leaders=definite(walk.A) or bool((walk.leader >= 0).all()),
    )


def _end(walk: Walk, c: int) -> list[Fraction]:
    """The exact limit of class c; where an undecided one is now."""
    if c in walk.ends:
        return walk.ends[c]
    scale = walk.path.scale(walk.k)
    if walk.settled_at[c] < 0 or walk.rule[c] in (LEADER, FIXED):
        return [Fraction(x, scale) for x in walk.point(c)]
    return [x / scale for x in walk.path.mean(walk.sets(c, walk.k), walk.k)]
