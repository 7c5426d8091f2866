"""B36: two tokens on the sphere in common noise meet, or become antipodes.

Read on runs of `NoisySphere` (docs/mathematics.md A7). The angle theta of two tokens, as
phi = log tan(theta/2), is a diffusion on the line in which the dimension cancels:

    d phi = (-g(cos theta) - sigma^2 cos theta) dt + sqrt(2) sigma dB,   cos theta = -tanh phi

g = w_12 + w_21 being what each looks at the other with. The tokens may also be two groups of equal
ones, the first holding a `share` of all tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf, log, sqrt
from typing import Any, final

import numpy as np

from .._scale import unit
from ..dynamics import NoisySphere
from .checks import Hypothesis, Part, Reading, need, some, statement

_LEVEL = 6.0  # what has a probability below 10^-6 is a violation
_WIDE = 20.0  # beyond |phi| = 20 the cosine is +-1 to the last bit: tails are exponentials
_NEVER = 8.0  # where antipodes do not attract, a pair that comes to phi = 8 is called antipodal
_CLEAR = 12.0  # increments of phi are judged up to here, where rounding is far below them


@final
@dataclass(frozen=True)
class PairLaw:
    """Where phi ends: at -inf (the tokens meet) or at +inf (antipodes).

        s(phi) = exp(-int_0^phi mu / sigma^2) = exp(int_0^phi (g - drift) / sigma^2) / cosh(phi)
        P(antipodal | phi) = int_{-inf}^phi s / int_{-inf}^{inf} s

    mu is the drift of phi; a constant `drift` added to it stands for what is not known about it.
    All in logarithms: s spans e^{+-20/sigma^2}.
    """

    beta: float
    sigma: float
    share: float = 0.5
    drift: float = 0.0

    def __post_init__(self) -> None:
        if not (0 < self.sigma < inf and 0 < self.share < 1 and abs(self.beta) < inf):
            raise ValueError(
                "PairLaw: expected a finite beta, sigma > 0 and 0 < share < 1, got "
                f"beta = {self.beta!r}, sigma = {self.sigma!r}, share = {self.share!r}"
            )

    @property
    def attracting(self) -> bool:
        """Do antipodes attract, so that P(antipodal) > 0?"""
        return self.sigma**2 + self.drift > antipodal_threshold(self.beta, self.share)

    @property
    def edge(self) -> float:
        """How far phi must come to be called antipodal: to infinity where that happens at all."""
        return inf if self.attracting else _NEVER

    def mu(self, phi: Any) -> Any:
        """The drift of phi."""
        r = -np.tanh(phi)
        return -_mutual(r, self.beta, self.share) - self.sigma**2 * r + self.drift

    def probability(self, phi: Any) -> Any:
        """P(phi reaches `edge` before it falls to -inf | it is at phi), an array like `phi`."""
        at = np.asarray(phi, dtype=np.float64)
        top = self._log_scale(np.array([self.edge]))[0]
        return np.where(at >= self.edge, 1.0, np.exp(np.minimum(self._log_scale(at) - top, 0.0)))

    def _log_scale(self, phi: Any) -> Any:
        """log int_{-inf}^phi s; the slopes of log s are constant beyond the grid."""
        grid, log_s, log_S, left, right = _scale_function(self)
        inside = np.interp(phi, grid, log_S)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            below = log_S[0] + left * (phi + _WIDE)
            more = np.where(np.isinf(phi) & (right < 0), -1.0, np.expm1(right * (phi - _WIDE)))
            above = np.logaddexp(log_S[-1], log_s[-1] + np.log(np.maximum(more / right, 0.0)))
        return np.where(phi < -_WIDE, below, np.where(phi > _WIDE, above, inside))


@lru_cache(maxsize=64)
def _scale_function(law: PairLaw) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, float]:
    """Nodes, log s and log int s there, and the slopes of log s on the left and on the right.

    Simpson's rule, in logarithms; intervals are short beside sigma^2, on which s changes.
    """
    count = 2 * int(min(4000 / min(law.sigma, 1.0), 2e5))
    grid, step = np.linspace(-_WIDE, _WIDE, count + 1, retstep=True)
    g, h = _mutual(-np.tanh(grid), law.beta, law.share) - law.drift, float(step)
    middle = _mutual(-np.tanh(grid[:-1] + h / 2), law.beta, law.share) - law.drift
    whole = h / 6 * (g[:-1] + 4 * middle + g[1:])
    half = h / 24 * (5 * g[:-1] + 8 * middle - g[1:])  # up to the middle, to the same order
    up_to = np.concatenate([[0.0], np.cumsum(whole)])
    up_to -= up_to[count // 2]  # phi = 0 is a node
    log_s = up_to / law.sigma**2 - _log_cosh(grid)
    log_m = (up_to[:-1] + half) / law.sigma**2 - _log_cosh(grid[:-1] + h / 2)
    parts = np.logaddexp(np.logaddexp(log_s[:-1], log_s[1:]), log_m + log(4)) + log(h / 6)
    left, right = float(g[0]) / law.sigma**2 + 1, float(g[-1]) / law.sigma**2 - 1
    log_S = np.logaddexp.accumulate(np.concatenate([[log_s[0] - log(left)], parts]))
    return grid, log_s, log_S, left, right if right != 0 else 1e-300


def _log_cosh(phi: np.ndarray) -> np.ndarray:
    return np.logaddexp(phi, -phi) - log(2)


def _mutual(r: Any, beta: float, share: float) -> Any:
    """g = w_12 + w_21 at cosine r: scores beta r for the other group, beta for one's own."""
    from scipy.special import expit

    score = beta * (np.asarray(r, dtype=np.float64) - 1)
    odds = log((1 - share) / share)
    return expit(score + odds) + expit(score - odds)


def antipodal_threshold(beta: float, share: float = 0.5) -> float:
    """Antipodes attract iff sigma^2 > g(-1); for two single tokens, 2/(1 + e^{2 beta}).

    >>> round(antipodal_threshold(1.0), 4)
    0.2384
    """
    return float(_mutual(-1.0, beta, share))


def antipodal_probability(r: float, beta: float, sigma: float, share: float = 0.5) -> float:
    """P(two tokens, or groups, of cosine r end as antipodes) in common noise; 0 if it cannot be.

    >>> round(antipodal_probability(0.0, 1.0, 1.0), 3)
    0.25
    """
    law = PairLaw(beta, sigma, share)
    return float(law.probability(-np.arctanh(r))) if law.attracting else 0.0


def tail_of_ends(law: PairLaw, start: float, ends: np.ndarray, doubt: float) -> tuple[float, float]:
    """log10 of how probable it is, at most, that so many (so few) of the pairs end as antipodes.

    P(antipodal | phi) is a martingale. With the drift of phi known up to `doubt`, P for the larger
    drift can only fall, P for the smaller only rise in the mean; a mean of N numbers in [0, 1] is
    beyond q with probability e^{-N KL(q, p)} at most (Chernoff, Hoeffding). `ends` are independent
    values of phi, each at `law.edge` if it has ever been there.
    """
    tails = []
    for sign in (1, -1):
        moved = PairLaw(law.beta, law.sigma, law.share, sign * doubt)
        if sign < 0 and not moved.attracting:
            tails.append(0.0)  # it is not known whether antipodes attract at all: no lower bound
            continue
        p = float(moved.probability(start))
        q = float(moved.probability(np.minimum(ends, moved.edge)).mean())
        tails.append(-ends.size * _divergence(q, p) / log(10) if sign * (q - p) > 0 else 0.0)
    return tails[0], tails[1]


def _divergence(q: float, p: float) -> float:
    """q log(q/p) + (1 - q) log((1 - q)/(1 - p)), the tiniest p standing for 0."""
    pairs, tiny = ((q, p), (1 - q, 1 - p)), float(np.finfo(float).tiny)
    return sum(a * log(a / max(b, tiny)) for a, b in pairs if a > 0)


@final
@dataclass(frozen=True, eq=False)
class PairRun(Reading):
    """Sphere tokens in common noise that start in two places."""

    @cached_property
    def base(self) -> tuple[Hypothesis, ...]:
        tr = self.trajectory
        first = len(tr.t) > 1 and float(tr.t[0]) == 0
        plain = isinstance(tr.dynamics, NoisySphere) and self.softmax is not None
        return (
            self.alone,
            Hypothesis.of("sphere in common noise, softmax over all, A = I", plain),
            Hypothesis("at least two saved layers, from layer 0", first, float(len(tr.t))),
        )

    @property
    def noise(self) -> NoisySphere:
        assert isinstance(self.trajectory.dynamics, NoisySphere)
        return self.trajectory.dynamics

    @cached_property
    def x(self) -> np.ndarray:
        return unit(self.states)

    @cached_property
    def groups(self) -> np.ndarray:
        """0 for the tokens that start where the first one does, 1 for the others."""
        return (self.x[0] != self.x[0, 0]).any(axis=1).astype(int)

    @cached_property
    def law(self) -> PairLaw:
        assert self.softmax is not None
        share = 1 - float(self.groups.mean())
        return PairLaw(float(self.softmax.beta), float(self.noise.sigma), share)

    @cached_property
    def phi(self) -> np.ndarray:
        """log tan(theta/2) = log(|x - y| / |x + y|), which does not cancel; (saved,)."""
        first, second = self.x[:, 0], self.x[:, int(np.argmax(self.groups))]
        with np.errstate(divide="ignore"):
            apart = np.log(np.linalg.norm(first - second, axis=1))
            return apart - np.log(np.linalg.norm(first + second, axis=1))

    @property
    def doubt(self) -> float:
        """What a step dt may change of the drift over half the variance, see B36."""
        return (1 + float(self.noise.sigma) ** 2) ** 2 * float(self.noise.dt)


def _two_places(run: PairRun) -> Hypothesis:
    x = run.x[0]
    other = x[run.groups == 1]
    two = len(other) > 0 and bool((other == other[0]).all()) and bool(np.isfinite(run.phi[0]))
    name = "tokens start in two places, not opposite ones (cosine)"
    return Hypothesis(name, two, float(x[0] @ other[0]) if len(other) else 1.0)


_noise = need("sigma > 0", lambda run: run.noise.sigma, some)
_short_steps = need("(1 + sigma^2)^2 dt <= 1/4", lambda run: run.doubt, lambda x: x <= 0.25)


@statement(
    PairRun,
    "B36",
    "arXiv 2601.21942, two tokens in common noise; law: docs/mathematics.md B36",
    "antipodes attract iff sigma^2 > 2/(1 + e^{2 beta}), with the P of a diffusion in phi",
    (_two_places, _noise, _short_steps),
)
def common_noise(run: PairRun) -> list[Part]:
    """The end of the run must not have a probability below 1e-6, nor must, where every layer is
    saved, the mean and the variance of the increments of phi.
    """
    law = run.law
    where = {"cosine": float(-np.tanh(run.phi[-1])), "antipodes attract": law.attracting}
    reached = bool((run.phi >= law.edge).any())
    end = np.array([law.edge if reached else run.phi[-1]])
    many, few = tail_of_ends(law, float(run.phi[0]), end, run.doubt)
    parts = [
        Part("log10 of the probability of so antipodal an end", many, _LEVEL, where),
        Part("log10 of the probability of so collapsed an end", few, _LEVEL, where),
    ]
    return parts + (_increments(run) if (np.diff(run.trajectory.t) == 1).all() else [])


def _increments(run: PairRun) -> list[Part]:
    """(d phi - mu dt)/(sigma sqrt(2 dt)) is standard normal: the sum and the sum of squares.

    Up to the first layer beyond |phi| = 12. A step dt shifts the mean of an increment by at most
    d (1 + sigma^2)^2 dt^2, and scales its variance by 1 +- 2 d (1 + sigma^2) dt at most (B36).
    """
    from scipy.stats import chi2, norm

    gone = np.flatnonzero(np.abs(run.phi) > _CLEAR)
    phi = run.phi[: gone[0] if len(gone) else None]
    m, dt, sigma, d = len(phi) - 1, float(run.noise.dt), float(run.noise.sigma), run.x.shape[2]
    if m < 30:
        return []
    e = (np.diff(phi) - run.law.mu(phi[:-1]) * dt) / (sigma * sqrt(2 * dt))
    shift = d * (1 + sigma**2) ** 2 * dt**2 / (sigma * sqrt(2 * dt))
    scale = min(2 * d * (1 + sigma**2) * dt, 0.9)
    off = max(abs(float(e.sum())) - m * shift, 0.0) / sqrt(m * (1 + scale))
    square = float((e**2).sum())
    high = chi2.logsf(square / (1 + scale), m) / log(10)
    low = chi2.logcdf(square / (1 - scale), m) / log(10)
    where = {"layers": m, "variance": square / m, "mean": float(e.mean())}
    tails = {"mean": float(norm.logsf(off)) / log(10), "variance": float(min(high, low))}
    return [  # a probability that is no float counts as 10^-1e6
        Part(f"log10 of the probability of the {name} of increments", max(p, -1e6), _LEVEL, where)
        for name, p in tails.items()
    ]
