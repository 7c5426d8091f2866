"""shadow(): how long a softmax run provably keeps its clusters, and the leaders they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, final

import numpy as np

from ..._deadline import Deadline
from ..._display import facts, grid
from ..._types import Array, as_number, as_tokens, as_whole
from ...attention import Hardmax, SoftHead
from ...dynamics import Dynamics, PureAttention
from ...simulation.loop import simulate
from ..limits import Limit, limit
from .enclosure import Form, Layer
from .following import Run
from .merging import gathered
from .rounding import MORE, ROUNDINGS, U, norms, roundings
from .trap import Balls, Places, Tube, follow

_JOINED = 0.1  # of the distance that parts had, when they count as one
_HARDMAX = 10_000  # layers in which the limit of hardmax may be proved
_LN10 = float(np.log(10.0))


@final
@dataclass(frozen=True, eq=False)
class Plateau:
    """Clusters of a softmax run with a proved lifetime.

    From layer `since` to layer `since` + `lasts` at least, no token leaves its cluster:
    `clusters` are the tokens of each, `centres` (c, d) their means at layer `checked`. The place of
    a token is its centre, or the hull of the centres that `Shadow.coarser` has joined. Until the
    end no token is farther than `radius` from its place. `binding` is the cluster and the rival
    that draws most of its attention, `gap` the smallest <A x, y - w> for x, y in the cluster and w
    in the rival. `leaders` are, per cluster, the tokens that its tokens follow under hardmax.
    """

    since: int
    checked: int
    clusters: tuple[np.ndarray, ...]
    centres: np.ndarray
    leaders: tuple[np.ndarray, ...]
    tube: Tube = field(repr=False)
    layer: Layer = field(repr=False)
    log_joined: float = field(default=-np.inf, repr=False)

    def __repr__(self) -> str:
        if len(self.clusters) == 1:
            return f"Plateau(one cluster from layer {self.since} on)"
        return (
            f"Plateau({len(self.clusters)} clusters from layer {self.since} for at least "
            f"{_count(self.log10_lasts)} layers)"
        )

    def to_dict(self) -> dict[str, Any]:
        names = "since checked log10_lasts log10_joined radius binding gap ends".split()
        told = {name: getattr(self, name) for name in names}
        sets = {name: [x.tolist() for x in getattr(self, name)] for name in ("clusters", "leaders")}
        return told | sets | {"centres": self.centres.tolist()}

    @property
    def log10_lasts(self) -> float:
        """The decimal logarithm of `lasts`; inf for a single cluster."""
        known = self.checked - self.since
        log = float(np.logaddexp(self.tube.lasts, np.log(known) if known else -np.inf))
        return log * (1 - 1e-9 * np.sign(log)) / _LN10

    @property
    def lasts(self) -> float:
        """Layers, at least; 1e308 stands for any more, inf for a proof without end."""
        log = self.log10_lasts
        return log if log == np.inf else float(10.0 ** min(log, 308.0))

    @property
    def log10_joined(self) -> float:
        """For a plateau of `Shadow.coarser`: within 10^this layers its clusters are one each.

        Then the tokens of each are within a tenth of the distance that its parts had. inf where
        that is not proved.
        """
        return self.log_joined * (1 + 1e-9 * np.sign(self.log_joined)) / _LN10

    @property
    def until(self) -> float:
        """The last layer of the proof."""
        return self.since + self.lasts

    @property
    def radius(self) -> float:
        return self.tube.radius

    @property
    def binding(self) -> tuple[int, int]:
        return self.tube.pair

    @property
    def gap(self) -> float:
        return self.tube.gap

    @property
    def ends(self) -> str:
        """Why the proof ends where it does."""
        return self.tube.ends

    def leaves(self, radius: float) -> tuple[float, float]:
        """The first layer at which a token is farther than `radius` from its place, enclosed.

        Until the first number none is, at the second one some token is.
        """
        until, at_last = self.tube.leaves(float(radius))
        if radius < self.tube.width[0].max():
            return float(self.checked - 1), np.inf
        return (
            self.checked + float(np.exp(min(until * (1 - 1e-9), 709.0))),
            self.checked + (float(np.exp(at_last * (1 + 1e-9))) if at_last < 709 else np.inf),
        )

    def beta_for(self, layers: float) -> float:
        """The smallest beta found for which these clusters, at these places, last `layers`.

        Another beta also leads the tokens to other places: it is a statement about a run that
        starts here. Heads keep the ratios of their betas; the first one's is returned.
        """
        layers = as_number(layers, "layers", "a number of layers >= 1", lambda x: x >= 1)
        if len(self.clusters) == 1:
            return 0.0
        wanted = float(np.log(layers)) * (1 + 2e-9) + 1e-9

        def enough(factor: float) -> bool:
            law, balls = self.layer.scaled(factor), self.tube.balls
            if Places(law, balls, balls.points).guess(balls.radius) < wanted - 2:
                return False
            return follow(law, balls, most=wanted).lasts >= wanted

        high = 1.0
        while not enough(high):
            high *= 2
            if high > 1e6:
                return np.inf
        low = high / 2
        while low > 1e-3 and enough(low):
            high, low = low, low / 2
        while high - low > 5e-3 * high:
            mid = (low + high) / 2
            low, high = (low, mid) if enough(mid) else (mid, high)
        return high * self.layer.forms[0].beta


@final
@dataclass(frozen=True, eq=False)
class Shadow:
    """What is proved of a softmax run.

    `plateaus`, in the order of time: clusters and how long they last at least. `coarser`: the last
    plateau with clusters joined one after another, each with a lifetime from the same layer on.
    `layers` were followed token by token, each within `error` (layers + 1, n) of the exact run;
    `z` (layers + 1, n, d). `stopped` says why no more. `distance` (layers + 1, n) bounds how far
    each token is from the same token of the hardmax run; `hardmax` is the limit of that run.
    """

    plateaus: tuple[Plateau, ...]
    coarser: tuple[Plateau, ...]
    z: np.ndarray
    error: np.ndarray
    distance: np.ndarray
    hardmax: Limit | None
    tolerance: float
    stopped: str
    _left: np.ndarray = field(repr=False)

    def __repr__(self) -> str:
        last, (_, n, d) = self.plateaus[-1] if self.plateaus else "no plateau proved", self.z.shape
        many = f"{len(self.plateaus)} plateaus, last: {last}"
        return f"Shadow(n={n}, d={d}, {many}, {self._followed()})"

    def _followed(self) -> str:
        until = self.agrees_until(self.tolerance)
        last = float(until.max())
        here, form = int((until >= 0.99 * last).sum()), ",.0f" if last < 1e6 else ".3g"
        return f"{here} of {len(until)} tokens follow hardmax until layer {last:{form}}"

    def _repr_html_(self) -> str:
        told = [
            ("followed", f"{self.layers} layers: {self.stopped}"),
            ("rounding", f"at most {self.error.max():.2g}"),
            ("hardmax", f"{self._followed()}, within {self.tolerance:.3g}"),
        ]
        head = ("clusters", "from layer", "for at least", "radius", "gap")
        rows = [
            (len(p.clusters), p.since, f"{_count(p.log10_lasts)} layers", p.radius, p.gap)
            for p in (*self.plateaus, *self.coarser)
        ]
        return facts("Shadow", told) + grid(head, rows, len(rows))

    def to_dict(self) -> dict[str, Any]:
        """Everything but the tokens, as numbers and lists."""
        return {
            "layers": self.layers,
            "stopped": self.stopped,
            "error": float(self.error.max()),
            "tolerance": self.tolerance,
            "follows_hardmax_until": self.follows_hardmax_until,
            "agrees_until": self.agrees_until(self.tolerance).tolist(),
            "plateaus": [p.to_dict() for p in self.plateaus],
            "coarser": [p.to_dict() for p in self.coarser],
        }

    @property
    def layers(self) -> int:
        return len(self.z) - 1

    @cached_property
    def follows_hardmax_until(self) -> float:
        """Up to this layer *every* token is within `tolerance` of itself under hardmax."""
        return float(self.agrees_until(self.tolerance).min())

    def agrees_until(self, within: float) -> np.ndarray:
        """Per token: the last layer up to which it is proved `within` a distance of hardmax, (n,).

        Beyond the layers followed this puts together what the last plateau keeps and what the
        proved limits of hardmax say.
        """
        far = ~(self.distance <= within)
        gone, first = far.any(axis=0), far.argmax(axis=0)
        last = np.where(gone, first - 1, self.layers).astype(float)
        for plateau in self.plateaus[-1:]:
            last = np.where(gone, last, np.maximum(last, self._beyond(plateau, within)))
        return last

    def _beyond(self, plateau: Plateau, within: float) -> np.ndarray:
        """A follower of a leader is never farther from it than at an earlier layer (C5)."""
        end, k, tube = self.hardmax, plateau.checked, plateau.tube
        last = np.full(self.z.shape[1], -1.0)
        if end is None:
            return last
        for a, tokens in enumerate(plateau.clusters):
            for i in tokens[np.isin(end.rule[tokens], ("S", "leader"))]:
                if end.settled_at[i] > k:
                    continue
                apart = float(norms(plateau.centres[a] - end.points[i])) + self._left[k, i]
                good = (tube.moved[:, a] + tube.width[:, a] + apart) * MORE <= within
                steps = int(np.argmin(good)) if not good.all() else len(good)
                if steps:
                    log = min(float(tube.log_layers[steps - 1]) * (1 - 1e-9), 709.0)
                    last[i] = k + float(np.exp(log))
        return last


def shadow(
    dynamics: Dynamics,
    z0: Array,
    *,
    layers: int = 1_000,
    tolerance: float | None = None,
    plateaus: bool = True,
    deadline: float | int | None = None,
) -> Shadow:
    """Proves how long a softmax run keeps its clusters, and how long it follows hardmax.

        z_i <- (z_i + alpha m_i) / (1 + alpha),   m_i = sum_j softmax_j(beta <A z_i, z_j>) z_j

    The run is followed layer by layer with a bound on its rounding. Where tokens have gathered in
    clusters, a tube around the motion of the clusters proves how many layers they last, which may
    be 10^30. Nothing is assumed of A. docs/mathematics.md B42, C12 and C13 have the proofs.

    Parameters
    ----------
    dynamics
        `PureAttention(Softmax(beta, A), alpha)`.
    z0
        The tokens of one configuration, (n, d), taken as exact numbers.
    layers
        The most layers that are followed token by token. The run stops earlier once a plateau is
        proved to last longer than that.
    tolerance
        The distance up to which softmax and hardmax count as the same, for
        `follows_hardmax_until`. The default is a twentieth of the largest distance of two tokens.
    plateaus
        False does not look for clusters, which takes most of the time.
    deadline
        Seconds after which no more layers are followed.

    Returns
    -------
    Shadow

    Raises
    ------
    TypeError
        For another dynamics.

    Examples
    --------
    >>> import cynosure as cy
    >>> z = cy.configurations.gaussian(40, 2, seed=0)
    >>> run = cy.shadow(cy.PureAttention(cy.Softmax(beta=12.0), alpha=0.5), z)
    >>> len(run.plateaus[-1].clusters), run.plateaus[-1].lasts > 12_000
    (5, True)
    """
    tokens = np.asarray(as_tokens(z0, "z0", ndim=2), dtype=np.float64)
    law = law_of(dynamics, tokens.shape[1])
    if law is None:
        rule = getattr(dynamics, "attention", None)
        raise TypeError(
            "shadow: expected PureAttention, AttentionFlow or SphereFlow (V = I) with "
            "Softmax(beta), Causal(Softmax(beta)) or an average of such heads, whose clusters can "
            f"be proved to last; got {type(dynamics).__name__} with {type(rule).__name__}"
        )
    _in_range(law, tokens)
    run = Run(law, tokens, as_whole(layers, "layers", 0), Deadline(deadline))
    stopped = run.follow(look=plateaus)
    end = None
    distance = left = np.full((len(run.z), len(tokens)), np.inf)
    if law.alpha is not None and len(law.forms) == 1 and not law.forms[0].causal:
        hard = PureAttention(Hardmax(law.forms[0].A), law.alpha)
        end = limit(hard, tokens, max_layers=_HARDMAX, deadline=deadline)
        path = np.asarray(simulate(hard, tokens, layers=len(run.z) - 1).z)
        distance, left = _compared(run, path, end)
    if tolerance is None:
        within = float(norms(tokens[None] - tokens[:, None]).max()) / 20
    else:
        within = as_number(tolerance, "tolerance", "a distance > 0", lambda x: x > 0)
    found = [_plateau(t, run.since(t.balls.tokens, k), k, end, law) for t, k in run.found]
    return Shadow(
        plateaus=tuple(found),
        coarser=tuple(_coarser(found[-1], end)) if found and not law.sphere else (),
        z=np.array(run.z),
        error=np.array(run.error),
        distance=distance,
        hardmax=end,
        tolerance=within,
        stopped=stopped,
        _left=left,
    )


def law_of(dynamics: Dynamics, d: int) -> Layer | None:
    """What is followed, with every beta >= 0; None for what has no proof."""
    rule = dynamics.averaging or dynamics.projected
    heads = () if rule is None else rule.softmaxes
    if not heads:
        return None
    forms = tuple(_form(head, np.eye(d) if head.A is None else head.A) for head in heads)
    return Layer(forms, dynamics.exact_alpha, dynamics.projected is not None)


def _form(head: SoftHead, A: Array) -> Form:
    """A negative beta is the positive one of -A."""
    A = np.asarray(A, dtype=np.float64)
    return Form(abs(float(head.beta)), -A if head.beta < 0 else A, head.causal)


def _in_range(law: Layer, tokens: np.ndarray) -> None:
    """Squares of lengths must neither overflow nor vanish: the bounds are made of them.

    Nor may there be more roundings than MORE covers.
    """
    n, d = tokens.shape
    if roundings(n, d, len(law.forms)) > ROUNDINGS:
        said = "expected fewer or shorter tokens: the rounding of their bounds is not covered"
        raise ValueError(f"shadow: {said} beyond d (n + 2 d) = {ROUNDINGS:,}; got n = {n}, d = {d}")
    if law.sphere and not (np.abs(tokens) > 0).any(axis=1).all():
        raise ValueError("shadow: expected tokens on the sphere, got one at 0")
    sizes = [float(np.abs(x).max()) for x in (tokens, *(form.A for form in law.forms))]
    beta = max(form.beta for form in law.forms)
    if not all(x == 0 or 1e-30 <= x <= 1e30 for x in sizes) or beta > 1e30:
        raise ValueError(
            "shadow: expected the largest coordinate and entry of A between 1e-30 and 1e30, and "
            f"beta up to 1e30; got {sizes[0]:.3g}, {max(sizes[1:]):.3g} and {beta:.3g}. "
            "c z with beta / c^2 is the same run"
        )


def _plateau(tube: Tube, since: int, k: int, end: Limit | None, law: Layer) -> Plateau:
    balls = tube.balls
    follows = [np.unique(end.follows[i]) for i in balls.tokens] if end is not None else []
    return Plateau(
        since=since,
        checked=k,
        clusters=balls.tokens,
        centres=np.array([p.mean(axis=0) for p in np.split(balls.points, balls.first[1:])]),
        leaders=tuple(x[x >= 0] for x in follows),
        tube=tube,
        layer=law,
    )


def _coarser(plateau: Plateau, end: Limit | None) -> Iterator[Plateau]:
    """Join the pair that ends the plateau, and so on: each union is a cluster that lasts longer."""
    balls, law, tube = plateau.tube.balls, plateau.layer, plateau.tube
    groups = [[a] for a in range(len(balls.first))]
    while len(groups) > 2:
        a, b = sorted(tube.pair)
        groups[a] += groups.pop(b)
        order = np.concatenate(groups)
        union = Balls(
            points=balls.points[order],
            first=np.cumsum([0, *(len(g) for g in groups[:-1])]),
            radius=np.array([balls.radius[g].max() for g in groups]),
            tokens=tuple(np.sort(np.concatenate([balls.tokens[c] for c in g])) for g in groups),
        )
        joined = follow(law, union)
        if joined.lasts > tube.lasts + 0.1:
            found = _plateau(joined, plateau.checked, plateau.checked, end, law)
            times = [
                gathered(law, joined, g, _JOINED * 2 * float(union.spread[g]))
                for g in range(len(groups))
                if len(groups[g]) > 1
            ]
            yield replace(found, log_joined=max(times))
        tube = joined


def _compared(run: Run, path: np.ndarray, end: Limit) -> tuple[np.ndarray, np.ndarray]:
    """Per layer and token: how far softmax is from hardmax at most, and hardmax from its limit."""
    layers, (n, d) = np.arange(len(path)), path.shape[1:]
    largest = float(np.abs(path[0]).max())
    rounded = (layers + 2) * (n + 16) * U * largest * np.sqrt(d)  # C8
    z, error = np.array(run.z), np.array(run.error)
    distance = norms(z - path) + error + rounded[:, None]
    limits = 2 * (end.layers + 2) * (n + 16) * U * largest * np.sqrt(d)
    left = norms(path - end.points) + rounded[:, None] + limits
    return distance * MORE, left * MORE


def _count(log10: float) -> str:
    if np.isinf(log10):
        return "all later" if log10 > 0 else "0"
    return f"{int(10**log10):,}" if log10 < 6 else f"10^{log10:.3g}"
