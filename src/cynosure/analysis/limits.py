"""limit(): the state at infinite depth, with a proof per token.

Layers are walked until every token's sets are proved constant, by the rules that
`engine.certificates` has and `engine.proofs` tries; then its limit is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, SupportsIndex, final

import numpy as np

from .._deadline import Deadline
from .._display import MOST_ROWS, facts, grid
from .._exports import guarded
from .._frames import dataframe, dataset
from .._progress import Progress, showing
from .._types import Array, Rational, as_mask, as_rationals, as_tokens, as_whole, definite
from ..dynamics import Dynamics
from ..engine.budget import Budget
from ..engine.certificates import RULE_WORDS, RULES
from ..engine.gpu import there
from ..engine.proofs import prove
from ..engine.walk import Walk
from .polytope import Polytope, hull

_LAYER = 100  # more of them per pair of tokens when every score is exact
_WORK = 10_000_000  # units of exact arithmetic, some seconds: ties that no rule can settle


@guarded
@final
@dataclass(frozen=True, eq=False)
class Limit:
    """Tokens at infinite depth, and how each was settled.

    `points` (n, d): limits; rows of `undecided` tokens hold where they are after `layers` layers.
    `leaders`: indices, duplicates included; `born`, `settled_at`: layers, -1 for never.
    `rule`: "leader", "S", "G", "fixed", "H", "T" or "" (`in_words(i)` says it in words). `follows`:
    the leader a token tends to, -1 where the limit is no leader. `margin`: the smallest gap between
    the best and the next score seen before the token settled. `exact_points`: the limits as
    rationals when exact=True.
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
    _distinct_leaders: np.ndarray = field(default_factory=lambda: np.empty(0, np.intp), repr=False)
    _hull_of_leaders: bool = field(default=True, repr=False)

    def __repr__(self) -> str:
        n, d = self.points.shape
        what = "certified" if self.certified else f"{len(self.undecided)} undecided"
        return f"Limit(n={n}, d={d}, {len(self.leaders)} leaders, {what} at layer {self.layers})"

    def _repr_html_(self) -> str:
        n, d = self.points.shape
        what = "all proved" if self.certified else f"{len(self.undecided)} of {n} undecided"
        head = ("token", "how it was settled", *(f"limit{j}" for j in range(min(d, 4))))
        shown = self.points[:, :4].tolist()
        rows = [(i, self.in_words(i), *shown[i]) for i in range(min(n, MOST_ROWS))]
        told = [
            ("tokens", f"{n} in dimension {d}: {what}, at layer {self.layers}"),
            ("leaders", len(self.leaders)),
            ("arithmetic", self.arithmetic),
        ]
        return facts("Limit", told) + grid(head, rows, n)

    @property
    def undecided(self) -> np.ndarray:
        """Indices of the tokens whose limit is not proved."""
        return np.flatnonzero(self.settled_at < 0)

    @property
    def certified(self) -> bool:
        """True when every token's limit is proved."""
        return len(self.undecided) == 0

    def in_words(self, i: SupportsIndex) -> str:
        """How token i was settled, for people: "follows a leader: token 3, proved at layer 2"."""
        if not -len(self.rule) <= int(i) < len(self.rule):
            raise IndexError(f"i: expected a token from 0 to {len(self.rule) - 1}, got {i}")
        rule, settled_at = str(self.rule[i]), int(self.settled_at[i])
        if settled_at < 0:
            return f"{RULE_WORDS['']} after {self.layers} layers"
        if not rule:
            return "padding"
        leader = f": token {self.follows[i]}" if rule == "S" else ""
        return f"{RULE_WORDS[rule]}{leader}, proved at layer {settled_at}"

    def _by_token(self) -> dict[str, np.ndarray]:
        names = ("born", "settled_at", "rule", "follows", "margin")
        return {name: getattr(self, name) for name in names}

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with one row per token: its limit, and how it was settled."""
        n, d = self.points.shape
        limits = {f"limit{j}": self.points[:, j] for j in range(d)}
        return dataframe({"token": np.arange(n)} | limits | self._by_token())

    def to_xarray(self) -> Any:
        """An xarray Dataset: points over token and dim, how each was settled over token."""
        values: dict[str, Any] = {"points": (("token", "dim"), self.points)}
        values |= {name: (("token",), x) for name, x in self._by_token().items()}
        return dataset(values, {}, {"layers": self.layers, "arithmetic": self.arithmetic})

    @cached_property
    def polytope(self) -> Polytope:
        """K, the limit of the hulls: the convex hull of the limits.

        For A symmetric positive definite its vertices are the leaders (docs/mathematics.md B5), so
        none need be computed. While tokens are undecided it is the hull of the leaders found so
        far, inside K.
        """
        if self._hull_of_leaders or not self.certified:
            if len(self._distinct_leaders) == 0:
                raise ValueError("polytope: no leader was found, so the polytope is not known")
            return Polytope.from_vertices(
                self.points[self._distinct_leaders], index=self._distinct_leaders
            )
        real = np.flatnonzero(self.rule != "")  # padding ends where it is, and is no limit
        found = hull(self.points[real])
        return Polytope(found.vertices, real[found.index])


def limit(
    dynamics: Dynamics,
    z0: Array,
    *,
    exact: bool = False,
    mask: Array | None = None,
    max_layers: int = 100_000,
    deadline: float | int | None = None,
    progress: Progress = None,
) -> Limit:
    """Proves the limit of every token of one configuration under hardmax layers.

    The floats of z0, A and alpha are taken as exact numbers. The run turns to integers only where
    rounding could change a set C_i, so its sets are those of exact arithmetic.

    Parameters
    ----------
    dynamics
        Hardmax layers, such as PureAttention(alpha=0.5).
    z0
        Tokens (n, d).
    exact
        Decides everything in rationals and returns rational limits. z0 may then hold Fractions.
    mask
        True for real tokens (n,).
    max_layers
        A token that is not proved within so many layers is undecided.
    deadline
        Seconds after which open tokens are undecided. Work is counted, not timed: without a
        deadline the same call gives the same answer everywhere.
    progress
        None shows a bar after a second, False never. A function is called with the layer and the
        number of undecided tokens.

    Returns
    -------
    Limit
        `points`, `leaders`, for each token the `rule` that proves its limit, and `undecided`.
        Tokens stay undecided only with ties that persist, an A that is not positive definite, or an
        alpha so small (1e-4) that thousands of layers do not suffice.

    Raises
    ------
    ValueError
        If the dynamics are not hardmax layers, or if z0 is a batch.

    Examples
    --------
    >>> import cynosure as cy
    >>> square = [[1, 1], [1, -1], [-1, -1], [-1, 1], [0.5, 0.0]]
    >>> li = cy.limit(cy.PureAttention(alpha=0.5), square)
    >>> li.points[4].tolist(), str(li.rule[4]), li.leaders.tolist()
    ([1.0, 0.0], 'G', [0, 1, 2, 3])
    """
    layers = dynamics.hardmax_layers if isinstance(dynamics, Dynamics) else None
    if layers is None or not layers.normalised:
        rule = type(getattr(dynamics, "attention", None)).__name__
        why = "Simulate it: cy.recognise(run) names what its end looks like"
        if layers is not None:
            why = "Layers without normalisation grow without bound; use PureAttention"
        if rule == "Rotary":
            why = "Leaders may lose their lead (docs/mathematics.md A8); simulate() it instead"
        raise TypeError(
            "limit: expected PureAttention(Hardmax(...)), the model whose limit can be proved; "
            f"got {type(dynamics).__name__} with {rule}. {why}"
        )
    max_layers = as_whole(max_layers, "max_layers", 0)
    until = Deadline(deadline)
    rationals = as_rationals(z0) if exact else None
    tokens = as_tokens(z0 if rationals is None else _nearest_floats(rationals), "z0", ndim=2)
    real = as_mask(mask, tokens.shape[:-1])
    rows = np.arange(len(tokens)) if real is None else np.flatnonzero(real)
    A = layers.attention.matrix(tokens.shape[1])
    walk = Walk(
        tokens[rows].astype(np.float64, copy=False),
        A,
        layers.alpha,
        rationals=None if rationals is None else [rationals[i] for i in rows],
        gaps=not exact,
        budget=Budget(_WORK + (_LAYER * len(rows) ** 2 if exact else 0), until),
        there=None if exact else there(z0, real),
    )
    with showing(progress, "proving limits", None, " layers") as tell:
        if tell is None or callable(progress):
            prove(walk, max_layers, tell)
        else:
            prove(walk, max_layers, lambda k, left: tell(k, f"{left} undecided"))
    return _limit_of(walk, tokens, rows, exact, definite(A))


def _nearest_floats(rationals: list[Rational]) -> list[list[float]]:
    try:
        return [[float(x) for x in row] for row in rationals]
    except OverflowError:
        raise ValueError(
            "z0: a coordinate beyond 1.8e308 has no float beside its rational; scale the tokens "
            "(the limits scale with them)"
        ) from None


def _limit_of(
    walk: Walk, tokens: np.ndarray, real: np.ndarray, exact: bool, hull_of_leaders: bool
) -> Limit:
    """Everything the walk proved, token by token; padding (not in `real`) is settled as it is."""
    table = walk.table()

    def spread(values: np.ndarray, padding: Any) -> np.ndarray:
        out = np.full(len(tokens), padding, dtype=values.dtype)
        out[real] = values[table.label]
        return out

    points = tokens.copy()
    points[real] = table.ends[table.label].astype(tokens.dtype)
    born = spread(table.born, -1)
    leader = spread(table.leader, -1)
    first = real[table.first]
    exact_points = None
    if table.exact_ends is not None:
        classes = spread(np.arange(len(first)), -1).tolist()
        exact_points = tuple(tuple(table.exact_ends[c]) if c >= 0 else () for c in classes)
    return Limit(
        points=points,
        leaders=np.flatnonzero(born >= 0),
        born=born,
        settled_at=spread(table.settled_at, 0),
        rule=np.array(RULES)[spread(table.rule, 0)],
        follows=np.where(leader >= 0, first[leader], -1),
        margin=spread(table.margin, np.inf),
        layers=walk.k,
        arithmetic="exact" if exact else "float64 with exact ties",
        exact_decisions=walk.exact_decisions,
        exact_points=exact_points,
        _distinct_leaders=np.sort(first[table.born >= 0]),
        _hull_of_leaders=hull_of_leaders or bool((table.leader >= 0).all()),
    )
