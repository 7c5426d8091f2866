"""B30, B31, B33, B34: attention on the sphere: one point, equal angles, caps, causal masks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from math import comb, exp, log
from typing import NamedTuple, final

import numpy as np

from ..analysis.polytope import Polytope
from ..attention import Causal, Softmax
from ..dynamics import SphereFlow, UnnormalizedSphereFlow
from .checks import Hypothesis, Part, least, need, statement
from .flows import ContinuousRun, at_equal_angles


@final
@dataclass(frozen=True, eq=False)
class SphereRun(ContinuousRun):
    """A run of SA (`SphereFlow`) or USA (`UnnormalizedSphereFlow`); |x_i| = 1."""

    family = "attention flow on the sphere"
    kinds = (SphereFlow, UnnormalizedSphereFlow)

    @cached_property
    def unnormalized(self) -> Softmax | None:
        """The softmax whose numerators a run of USA takes as weights; None for SA."""
        flow = self.trajectory.dynamics
        return Softmax(flow.beta, flow.A) if isinstance(flow, UnnormalizedSphereFlow) else None

    @cached_property
    def rule(self) -> Softmax | None:
        """The softmax every token applies to all tokens; None for any other attention."""
        attention = self.unnormalized or self.trajectory.made_by.attention
        return attention if isinstance(attention, Softmax) else None

    @property
    def R(self) -> float:
        return 1.0

    @cached_property
    def pole_since(self) -> int:
        """The first saved time with all tokens in an open hemisphere, -1 if there is none."""
        found = (k for k, x in enumerate(self.states) if _pole(x)[1] > 4 * self.local)
        return next(found, -1)

    @cached_property
    def to_first(self) -> np.ndarray:
        """<x_i, x_1>, (times, n)."""
        return np.einsum("tnd,td->tn", self.states, self.states[:, 0])

    def least_weight(self, rule: Softmax) -> float:
        """A lower bound of every weight: scores lie within b = |beta| |A| of 0."""
        b = abs(rule.beta) * (1.0 if rule.A is None else float(np.linalg.norm(rule.A, 2)))
        return exp(-b if self.unnormalized else -2 * b) / self.n


_statement = partial(statement, SphereRun)


def _identity_value(run: SphereRun) -> Hypothesis:
    V = run.trajectory.made_by.V
    off = 0.0 if V is None else float(np.abs(V - np.eye(run.d)).max())
    return Hypothesis("V = I (largest |V - I|)", off == 0, off)


_weights_alone = need(
    "heads without value matrices",
    lambda run: getattr(run.trajectory.made_by.attention, "values", None) is None,
)


def _softmax_of_all(run: SphereRun) -> Hypothesis:
    """One softmax over all tokens with A = I and beta >= 0."""
    name, rule = "softmax over all tokens, A = I, beta >= 0 (beta)", run.rule
    if rule is None:
        return Hypothesis(name, False, np.nan)
    plain = rule.A is None or np.array_equal(rule.A, np.eye(run.d))
    return Hypothesis(name, plain and rule.beta >= 0, float(rule.beta))


def hemisphere_probability(n: int, d: int) -> float:
    """Wendel: n uniform tokens of S^{d-1} lie in an open hemisphere, 2^{1-n} sum_{k<d} C(n-1, k).

    >>> hemisphere_probability(4, 3)
    0.875
    """
    return sum(comb(n - 1, k) for k in range(d)) / 2 ** (n - 1)


def _pole(x: np.ndarray) -> tuple[np.ndarray, float]:
    """The unit w with the largest min_i <x_i, w>, if that is positive, and this minimum."""
    # w points to the token of least norm of the hull
    nearest = Polytope.from_vertices(np.unique(x, axis=0)).project(np.zeros(x.shape[1]))
    length = float(np.linalg.norm(nearest))
    w = nearest / length if length > 0 else nearest
    return w, float((x @ w).min())


def _hemisphere(run: SphereRun) -> Hypothesis:
    k = run.pole_since
    ok = 0 <= k < len(run.t) - 1
    name = "all tokens in an open hemisphere before the last time (first time)"
    return Hypothesis(name, ok, float(run.t[k]) if ok else np.inf)


@_statement(
    "B30",
    "arXiv 2312.10794, hemisphere lemma; rate: docs/mathematics.md B30",
    "once in an open hemisphere about w: min <x_i, w> grows, and the tokens tend to one point",
    (_identity_value, _weights_alone, _hemisphere),
)
def one_point(run: SphereRun) -> list[Part]:
    """min_i <x_i, w> for the w of the first such time; for a softmax over all tokens also the rate

    r' >= p r (1 - r^2),   r(t) = max over w of min_i <x_i(t), w>,   p <= every weight (B30).
    """
    first = run.pole_since
    x, t = run.states[first:], run.t[first:]
    lowest = (x @ _pole(x[0])[0]).min(axis=1)
    times = {"time": t[1:], "since": float(t[0])}
    parts = [least("min <x_i, w>", np.diff(lowest), 4 * run.local, "time", **times)]
    if run.rule is not None:
        p = run.least_weight(run.rule)
        r2 = np.array([_pole(y)[1] for y in x]) ** 2
        growth = np.exp(np.minimum(2 * p * np.diff(t), 700.0))
        bound = (1 - r2[:-1]) / (1 - r2[:-1] + r2[:-1] * growth)
        parts.append(least("rate", bound - (1 - r2[1:]), 4 * run.local, "time", **times))
    return parts


def equiangular(
    r: float, t: np.ndarray, n: int, beta: float, unnormalized: bool = False
) -> np.ndarray:
    """The common cosine at the times t (from t = 0 on) of n tokens that start with cosine r.

        r' = 2 e^{beta r} (1 - r) ((n-1) r + 1) / (e^beta + (n-1) e^{beta r})       (SA)
        r' = (2/n) e^{beta r} (1 - r) ((n-1) r + 1)                                 (USA)

    >>> bool(abs(equiangular(0.0, np.array([0.0, 1.0]), 2, 0.0)[1] - np.tanh(1.0)) < 1e-11)
    True
    """
    from scipy.integrate import solve_ivp

    def velocity(_: float, y: np.ndarray) -> np.ndarray:
        plain = np.exp(beta * y) / n
        weight = plain if unnormalized else 1 / (np.exp(beta * (1 - y)) + n - 1)
        return 2 * weight * (1 - y) * ((n - 1) * y + 1)

    times = np.asarray(t, dtype=np.float64)
    found = solve_ivp(
        velocity, (0.0, times[-1]), [r], "DOP853", t_eval=times, rtol=1e-12, atol=1e-14
    )
    return found.y[0]


@_statement(
    "B31",
    "arXiv 2312.10794, equiangular tokens",
    "equal angles stay equal, the cosine r solves r' = 2 e^{br}(1-r)((n-1)r+1)/(e^b+(n-1)e^{br})",
    (_identity_value, _softmax_of_all, at_equal_angles),
)
def equal_angles(run: SphereRun) -> list[Part]:
    """Every pair at every time against the scalar equation, integrated to 1e-12.

    The bound on 1 - r printed "for t >= 0" fails at t = 0; the equation is what is checked.
    """
    assert run.rule is not None
    i, j = run.pairs
    cosines = np.stack([(x[i] * x[j]).sum(axis=1) for x in run.states])
    usa = run.unnormalized is not None
    r = equiangular(float(cosines[0].mean()), run.t, run.n, run.rule.beta, usa)
    off = np.abs(cosines - r[:, None])
    pair = np.stack([i, j], axis=1)
    return [least("cosine", -off, 4 * run.error, "time", "pair", time=run.t, pair=pair)]


class _Caps(NamedTuple):
    """Caps of height e about unit centres, one per group of tokens; `gamma` > 0: separated."""

    label: np.ndarray
    centres: np.ndarray
    e: float
    overlap: float
    gamma: float


def _caps(x: np.ndarray, beta: float) -> _Caps | None:
    """The grouping of the tokens (by single linkage) and the height e < 1/16 of largest gamma."""
    from scipy.cluster.hierarchy import fcluster, linkage

    n, best = len(x), None
    tree = linkage(x) if n > 1 else None
    for k in range(1, min(n, 16) + 1):
        label = np.zeros(1, int) if tree is None else fcluster(tree, k, "maxclust") - 1
        centres = np.stack([x[label == q].sum(axis=0) for q in range(label.max() + 1)])
        centres /= np.linalg.norm(centres, axis=1, keepdims=True).clip(1e-300)
        height = float((1 - (x * centres[label]).sum(axis=1)).max())
        for e in np.geomspace(max(height, 1e-9), 1 / 16, 60, endpoint=False).tolist():
            if not height <= e < 1 / 16:
                continue
            overlap = _overlap(centres, 2 * e)
            gamma = 1 - overlap - 8 * e - log(2 * n**2 / e) / beta
            if best is None or gamma > best.gamma:
                best = _Caps(label, centres, e, overlap, gamma)
    return best


def _overlap(centres: np.ndarray, height: float) -> float:
    """The largest cosine between tokens of different caps of that height; 0 for one cap."""
    if len(centres) == 1:
        return 0.0
    cosine = (centres @ centres.T)[np.triu_indices(len(centres), 1)].max()
    angle = np.arccos(np.clip(cosine, -1, 1)) - 2 * np.arccos(1 - height)
    return float(np.cos(max(angle, 0.0)))


def _separated(run: SphereRun) -> Hypothesis:
    name = "beta > 1, at most 2000 tokens, start in separated caps (largest gamma)"
    rule = run.rule
    if rule is None or rule.beta <= 1 or run.n > 2000:
        return Hypothesis(name, False, -np.inf)
    found = _caps(run.states[0], rule.beta)
    gamma = -np.inf if found is None else found.gamma
    return Hypothesis(name, gamma > 0, float(gamma))


@_statement(
    "B33",
    "arXiv 2410.06833, metastability, with the sign of its bound corrected",
    "separated caps of height e: tokens stay in the doubled caps up to (e/n) e^{(1-a) beta}",
    (_identity_value, _softmax_of_all, _separated),
)
def metastability(run: SphereRun) -> list[Part]:
    """gamma = 1 - a - 8e - log(2n^2/e)/beta > 0, a the largest cosine between doubled caps. Up to
    T2 = (e/n) e^{(1-a) beta} tokens keep to their doubled caps, and from
    T1 = 2n e^{8 e beta} + exp(1) n l beta^2/(beta - 1) on |x_i - x_j|^2 <= 2 e^{-l beta} in a cap,
    for every l < 1 - a - 8e - log(2n^2/(1 - 8e))/beta that makes T1 < T2. (Printed with the sign of
    its last term wrong.) Here l is the largest with T1(l) <= t. The times are those of SA, and of
    USA with weights e^{beta(<x, y> - 1)}/n: our USA runs e^beta times as fast.
    """
    assert run.rule is not None
    beta, n = run.rule.beta, run.n
    caps = _caps(run.states[0], beta)
    assert caps is not None
    clock = run.t * exp(min(beta, 700.0)) if run.unnormalized else run.t
    last = caps.e / n * exp(min((1 - caps.overlap) * beta, 700.0))
    x = run.states[clock <= last]
    t = clock[clock <= last]
    inside = (x * caps.centres[caps.label]).sum(axis=2) - (1 - 2 * caps.e)
    where = {"time": run.t[: len(t)], "T2": last, "caps": len(caps.centres), "gamma": caps.gamma}
    parts = [least("doubled caps", inside, 2 * run.error, "time", "token", **where)]
    most = 1 - caps.overlap - 8 * caps.e - log(2 * n**2 / (1 - 8 * caps.e)) / beta
    late = (t - 2 * n * exp(min(8 * caps.e * beta, 700.0))) * (beta - 1) / (exp(1) * n * beta**2)
    rate = np.minimum(late, most)
    i, j = run.pairs
    same = caps.label[i] == caps.label[j]
    i, j = i[same], j[same]
    if (rate > 0).any() and len(i):
        apart = np.linalg.norm(x[:, i] - x[:, j], axis=2)
        bound = np.sqrt(2 * np.exp(-rate * beta))[:, None]
        slack = np.where(rate[:, None] > 0, bound - apart, np.inf)
        pair = np.stack([i, j], axis=1)
        parts.append(least("one cap", slack, 4 * run.local, "time", "pair", **where, pair=pair))
    return parts


def _causal_head(run: SphereRun) -> Softmax | None:
    """The softmax that every token applies to the tokens before it."""
    attention = run.trajectory.made_by.attention
    inner = attention.attention if isinstance(attention, Causal) else None
    return inner if isinstance(inner, Softmax) else None


_causal = need("causal softmax", lambda run: _causal_head(run) is not None)
_not_a_line = need("d >= 2", lambda run: run.d, lambda d: d >= 2)


def _near_the_first(run: SphereRun) -> int:
    """The first saved time with every <x_i, x_1> > 0, -1 if there is none."""
    lowest = run.to_first.min(axis=1)
    found = np.flatnonzero(lowest > 4 * run.local)
    return int(found[0]) if len(found) else -1


def _in_sight(run: SphereRun) -> Hypothesis:
    k = _near_the_first(run)
    ok = 0 <= k < len(run.t) - 1
    name = "all tokens in the hemisphere of x_1 before the last time (first time)"
    return Hypothesis(name, ok, float(run.t[k]) if ok else np.inf)


@_statement(
    "B34",
    "arXiv 2411.04990, causal attention; rate: docs/mathematics.md B34",
    "causal, V = I, d >= 2: x_1 stands still and every token tends to x_1, for almost every start",
    (_causal, _identity_value, _not_a_line, _in_sight),
)
def causal_collapse(run: SphereRun) -> list[Part]:
    """x_1 at all times; once m = min_i <x_i, x_1> > 0, the rate m' >= p (1 - m^2) of all tokens.

    Before that time, which almost every start reaches, nothing is claimed from the third token on.
    """
    rule = _causal_head(run)
    assert rule is not None
    p, first = run.least_weight(rule), _near_the_first(run)
    moved = np.linalg.norm(run.states[:, 0] - run.states[0, 0], axis=1)
    m = run.to_first[first:, 1:].min(axis=1, initial=1.0).clip(-1, 1)
    with np.errstate(divide="ignore"):
        bound = np.tanh(np.arctanh(m[:-1]) + p * np.diff(run.t[first:]))
    where = {"time": run.t[first + 1 :], "since": float(run.t[first])}
    return [
        least("x_1 stands still", -moved, 2 * run.error, "time", time=run.t),
        least("min <x_i, x_1>", m[1:] - bound, 4 * run.local, "time", **where),
    ]
