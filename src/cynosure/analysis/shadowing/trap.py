"""How long clusters of softmax last: a tube around their motion, proved step by step.

Cluster a is a ball of radius r_a around the hull of its points P_a, which all move alike. One step
assumes that for the next S layers it stays in this ball moved along s v_a, 0 <= s <= S, and widened
to rho_a. It bounds the weights on other clusters over all such places, and confirms that what these
weights can do in S layers stays inside. S may be 10^30: a step costs as much for any S.
docs/mathematics.md B42 has the statement and its proof, C13 the arithmetic. For a flow S is a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from .enclosure import Form, Layer
from .rounding import MORE, U, exponential, norms

STEP = 0.02  # by how much beta times a gap may change in one step
_WHOLE = 36.0  # e^36 < 2^53: shorter times are whole numbers of layers
_NEGLIGIBLE = -600.0
_NOTHING = 8.0


@final
@dataclass(frozen=True, eq=False)
class Balls:
    """Clusters: `points` (m, d) sorted by cluster, `first` (c,) where each begins.

    `tokens`: the indices of each. All are within `radius` (c,) of the hull of their points.
    """

    points: np.ndarray
    first: np.ndarray
    radius: np.ndarray
    tokens: tuple[np.ndarray, ...]

    @property
    def spread(self) -> np.ndarray:
        """How far the points of each cluster are from its first one."""
        return np.maximum.reduceat(
            norms(self.points - self.points[self.first][self.label]), self.first
        )

    @property
    def home(self) -> np.ndarray:
        """The cluster of each token."""
        out = np.empty(sum(map(len, self.tokens)), dtype=np.intp)
        for a, tokens in enumerate(self.tokens):
            out[tokens] = a
        return out

    @property
    def label(self) -> np.ndarray:
        sizes = np.diff(np.append(self.first, len(self.points)))
        return np.repeat(np.arange(len(self.first)), sizes)


@final
@dataclass(frozen=True, eq=False)
class Tube:
    """What was proved of `balls`: where they are after exp(log_layers[s]) layers.

    Then every token of cluster a is within `width`[s, a] of the hull of its points `path`[s], and
    on the straight way there before. `log_layers` (steps + 1,) begins with -inf; `path`
    (steps + 1, m, d), `width` (steps + 1, c). `ends` says why the tube stops. `pair` is the cluster
    and the rival that draws most of its attention at the start, `gap` the smallest difference of
    their scores.
    """

    balls: Balls
    log_layers: np.ndarray
    path: np.ndarray
    width: np.ndarray
    pair: tuple[int, int]
    gap: float
    ends: str

    @property
    def lasts(self) -> float:
        """The logarithm of the number of layers that is certified."""
        return float(self.log_layers[-1])

    @cached_property
    def moved(self) -> np.ndarray:
        """The way of each cluster, (steps + 1, c)."""
        return norms((self.path - self.path[0])[:, self.balls.first])

    @property
    def radius(self) -> float:
        """No token is farther than this from the hull of the points its cluster had."""
        return float((self.moved + self.width).max()) * MORE

    def leaves(self, radius: float) -> tuple[float, float]:
        """Logarithms of layers: no token has moved by `radius` before, one has at the latest."""
        still = ((self.moved + self.width) * MORE <= radius).all(axis=1)
        apart = self.moved - self.width - self.balls.radius - 2 * self.balls.spread
        gone = self.log_layers[(apart > radius * MORE).any(axis=1)]
        steps = int(np.argmin(still)) if not still.all() else len(still)
        until = float(self.log_layers[steps - 1]) if steps else -np.inf
        return until, float(gone[0]) if len(gone) else np.inf


def follow(layer: Layer, balls: Balls, *, most: float = np.inf, steps: int = 5_000) -> Tube:
    """Follow clusters for as long as the proof reaches, at most e^most layers."""
    points, radius, time = balls.points, balls.radius, -np.inf
    times, path, width = [time], [points], [radius]
    pair, gap, ends = (0, 0), np.inf, "the tube has more steps than asked for"
    caps = not layer.sphere or float(radius.max()) < 1.4  # less than half of the sphere each
    if len(balls.first) == 1 and caps:
        times, path, width = [time, np.inf], [points] * 2, [radius] * 2
        steps, ends = 0, "one cluster: its hull shrinks, so it lasts indefinitely"
    for s in range(steps):
        here = Places(layer, balls, points)
        if s == 0:
            if np.isinf(here.log_most).all():
                if not caps:
                    ends = "a cluster is wider than half of the sphere"
                    break
                ends = "no cluster looks at another: each lasts indefinitely"
                times, path, width = [time, np.inf], [points] * 2, [radius] * 2
                break
            pair, gap = here.tightest(radius)
        done = here.advance(radius)
        if done is None:
            ends = "clusters meet or spread faster than the tube can follow"
            break
        points, radius, log_time = done
        time = float(np.logaddexp(time, log_time))
        times.append(time)
        path.append(points)
        width.append(radius)
        if time >= most:
            ends = "as long as asked for"
            break
        if log_time < time - _NOTHING:
            ends = "clusters move so fast that the layers to come add nothing"
            break
    return Tube(balls, np.array(times), np.array(path), np.array(width), pair, gap, ends)


@final
class Sight:
    """The scores of one head at points of clusters."""

    def __init__(self, form: Form, places: Places) -> None:
        self.form, self.places, points = form, places, places.points
        self.queries, self.keys = points @ form.A.T, points @ form.A
        self.scores = self.queries @ points.T
        # how many tokens a token finds in each cluster, beside those of its own
        home, c = places.balls.home, len(places.first)
        if form.causal:
            counts = np.cumsum(np.eye(c)[home], axis=0)
            with np.errstate(divide="ignore"):
                ratio = np.log(counts / counts[np.arange(len(home)), home][:, None])
            order = np.argsort(home, kind="stable")
            begin = np.flatnonzero(np.diff(home[order], prepend=-1))
            self.log_most = np.maximum.reduceat(ratio[order], begin)
            self.log_least = np.minimum.reduceat(ratio[order], begin)
        else:
            size = np.bincount(home).astype(float)
            self.log_most = np.log(size[None] / size[:, None])
            self.log_least = self.log_most.copy()
        np.fill_diagonal(self.log_most, -np.inf)
        np.fill_diagonal(self.log_least, -np.inf)
        self.slip = 8 * (points.shape[1] + 2) * U * form.entries * places.R**2

    def gaps(self, rho: np.ndarray, v: np.ndarray, half: float) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of <Ax, y - w> over x, y in cluster a and w in b, shape (c, c).

        All tokens may be `rho` off, and all points moved along t v, |t| <= half.
        """
        at, size = self.places, self.form.size
        top, bottom = at.over(self.scores, 1, most=True), at.over(self.scores, 1, most=False)
        own = np.arange(len(at.label))
        low = at.over(bottom[own, at.label][:, None] - top, 0, most=False)
        high = at.over(top[own, at.label][:, None] - bottom, 0, most=True)
        # tokens off their places: |A^T(y - w)| rho_a + |A x| (rho_a + rho_b) + |A| rho_a (...)
        if len(at.first) == len(at.label):
            apart = norms(self.keys[:, None] - self.keys[None]) + self.slip
        else:
            wide = at.over(norms(self.keys), 0, most=True)
            near = size * (at.between + at.spread[:, None] + at.spread[None])
            apart = np.minimum(wide[:, None] + wide[None], near) + self.slip
        query = at.over(norms(self.queries) + self.slip, 0, most=True)[:, None]
        both = rho[:, None] + rho[None]
        speed = norms(v)
        relative = norms(v[:, None] - v[None])
        apart_moving = apart + half * size * relative
        query_moving = query + half * size * speed[:, None]
        off = apart_moving * rho[:, None] + query_moving * both + size * rho[:, None] * both
        if half:
            off = off + half * self.drift(v) + half * half * size * speed[:, None] * relative
        off = (off + self.slip) * MORE
        return low - off, high + off

    def drift(self, v: np.ndarray) -> np.ndarray:
        """The largest |<A v_a, y - w> + <A x, v_a - v_b>| over the points, shape (c, c)."""
        at = self.places
        along = at.points @ (v @ self.form.A.T).T  # (m, c): <A v_a, y>
        cross = self.queries @ v.T  # (m, c): <A x, v_b>
        clusters = np.arange(len(v))
        most, least = at.over(along, 0, most=True), at.over(along, 0, most=False)  # (b, a)
        own = cross[np.arange(len(at.label)), at.label][:, None] - cross
        up = most[clusters, clusters][:, None] - least.T + at.over(own, 0, most=True)
        down = least[clusters, clusters][:, None] - most.T + at.over(own, 0, most=False)
        speed = float(norms(v).max())
        slip = 8 * (at.points.shape[1] + 2) * U * self.form.entries * at.R * speed
        return np.maximum(np.abs(up), np.abs(down)) * MORE + slip


@final
class Places:
    """Clusters at one moment: scores of their points, and what one step of the tube can prove."""

    def __init__(self, layer: Layer, balls: Balls, points: np.ndarray) -> None:
        self.layer, self.balls, self.points = layer, balls, points
        self.first, self.label = balls.first, balls.label
        self.R = R = float(norms(points).max())
        sizes = np.diff(np.append(self.first, len(points)))
        self.centre = np.add.reduceat(points, self.first) / sizes[:, None]
        away = norms(points - self.centre[self.label])
        self.spread = np.maximum.reduceat(away, self.first) + 4 * U * R
        self.between = norms(self.centre[None] - self.centre[:, None]) + 4 * U * R
        self.sights = [Sight(form, self) for form in layer.forms]
        # relative: exponents are rounded, and so are the logarithms of times
        most = max(form.beta * form.size for form in layer.forms)
        self.blur = 1e-9 + 64 * U * (most * R * R + 1_000)

    @property
    def log_most(self) -> np.ndarray:
        """Heads' logarithms of how many tokens of b a token of a finds for each of its own."""
        return np.array([sight.log_most for sight in self.sights])

    def over(self, table: np.ndarray, axis: int, *, most: bool) -> np.ndarray:
        return (np.maximum if most else np.minimum).reduceat(table, self.first, axis=axis)

    def weights(
        self, rho: np.ndarray, v: np.ndarray, half: float
    ) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        """Bounds of the weight of cluster a on b, the mean over heads, both times e^-scale.

        The scale, and the logarithms of the upper bounds of the ratio to the own weight, by head.
        """
        logs = []
        for sight in self.sights:
            low, high = sight.gaps(rho, v, half)
            beta = sight.form.beta
            logs.append((sight.log_least - beta * high, sight.log_most - beta * low))
        upper = np.array([high for _, high in logs])
        scale = min(float(upper.max()), 0.0)
        whole, blur = float(np.exp(scale)), 1 + self.blur
        total: list[np.ndarray] = [np.zeros(upper.shape[1:]), np.zeros(upper.shape[1:])]
        for log_low, log_high in logs:
            more = exponential(np.minimum(log_high - scale, 700.0)) * blur
            less = np.where(log_low - scale > _NEGLIGIBLE, exponential(log_low - scale), 0.0) / blur
            np.fill_diagonal(more, 0.0)
            np.fill_diagonal(less, 0.0)
            every = more.sum(axis=1, keepdims=True)
            total[0] = total[0] + less / (1 + whole * every * MORE) / MORE
            total[1] = total[1] + more / (1 + whole * more / MORE) * MORE
        return total[0] / len(logs), total[1] / len(logs), scale, upper

    def velocities(
        self, rho: np.ndarray, v: np.ndarray, half: float
    ) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        """A ball that holds what a layer adds to any token of each cluster, times e^-scale.

        On the sphere without what the own cluster adds: there it only draws tokens to the middle.
        Its centres, its radii, the scale, and the logarithms of the ratios of weights.
        """
        less, more, scale, upper = self.weights(rho, v, half)
        eta = self.layer.eta
        mid, off = (less + more) / 2, (more - less) / 2
        room = self.spread + rho
        if self.layer.sphere:
            centre = mid @ self.centre
            between, wide = norms(self.centre)[None], (room + half * norms(v))[None]
        else:
            to = self.centre[None] - self.centre[:, None]
            centre, between = eta * (mid[:, :, None] * to).sum(axis=1), self.between
            wide = room[:, None] + room[None] + half * norms(v[:, None] - v[None])
        radius = eta * (off * between + more * wide).sum(axis=1)
        return centre, radius * MORE + 8 * U * self.R * more.sum(axis=1), scale, upper

    def _pace(self, r: np.ndarray) -> tuple[float, np.ndarray, float]:
        """By how much beta times a gap that matters may change while time is 1; v and scale."""
        v, wide, scale, upper = self.velocities(r, np.zeros_like(self.centre), 0.0)
        if self.layer.sphere:
            v = v - (v * self.points).sum(axis=1, keepdims=True) * self.points
        change = [
            sight.form.beta
            * (sight.drift(v) + 2 * sight.form.size * self.R * (wide[:, None] + wide[None]))
            for sight in self.sights
        ]
        relevant = upper > scale - 12.0
        return float(np.where(relevant, np.array(change), 0.0).max()), v, scale

    def tightest(self, r: np.ndarray) -> tuple[tuple[int, int], float]:
        """The cluster and the rival that draws most of its attention, and their smallest gap."""
        upper = self.weights(r, np.zeros_like(self.centre), 0.0)[3]
        head, a, b = np.unravel_index(int(upper.argmax()), upper.shape)
        low = self.sights[int(head)].gaps(r, np.zeros_like(self.centre), 0.0)[0]
        return (int(a), int(b)), float(low[a, b])

    def guess(self, r: np.ndarray) -> float:
        """About how many layers the clusters may last, as a logarithm; no proof."""
        pace, _, scale = self._pace(r)
        return float(-np.log(pace) - scale) if pace > 0 else -np.inf

    def advance(self, r: np.ndarray) -> tuple[np.ndarray, np.ndarray, float] | None:
        """Points and radii after some layers, and the logarithm of how many; None if not proved."""
        pace, v, scale = self._pace(r)
        if not pace > 0:
            return None
        time, flows, sphere = STEP / pace, self.layer.flows, self.layer.sphere
        # time is counted in units of e^-scale layers: whole numbers of them where that matters
        for _ in range(6):
            log_time = np.log(time) - scale
            if log_time < _WHOLE and not flows:
                log_time = float(np.log(max(np.floor(np.exp(log_time)), 1.0)))
                time = float(np.exp(log_time + scale))
            shifted = Places(self.layer, self.balls, self.points + time / 2 * v[self.label])
            rho = r + 2 * time * shifted.velocities(r, v, time / 2)[1]
            for _ in range(4):
                found, width, other, _ = shifted.velocities(rho, v, time / 2)
                if not (other - scale < 5 and float(rho.max()) < 4 * self.R):
                    break  # the guess explodes: a shorter step, or none
                factor = float(np.exp(other - scale))
                slip = (width + self.blur * norms(found)) * factor * MORE + self.blur * norms(v)
                u = norms(found * factor - v) + slip
                bend = np.zeros_like(u)
                if sphere:
                    if not float(rho.max()) < 1:
                        break
                    u, bend = self._curved(found * factor, v, slip, rho, time)
                rounded = (8 + sphere * self.points.shape[1]) * U * self.R
                wanted = (r + time * u + bend + rounded) * MORE
                if (wanted <= rho).all():
                    points = self.points + time * v[self.label]
                    if sphere:
                        points = points / np.sqrt((points * points).sum(axis=1, keepdims=True))
                    return points, wanted, log_time
                rho = wanted * (1 + 1e-3) + 0.1 * (wanted - r)
            if log_time == 0 and not flows:
                return None
            time /= 2
        return None

    def _curved(
        self, f: np.ndarray, v: np.ndarray, slip: np.ndarray, rho: np.ndarray, time: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """How fast radii grow on the sphere, and how far points leave their straight lines."""
        normal = (f * self.points).sum(axis=1, keepdims=True)
        side, speed, length = norms(f - normal * self.points - v), norms(v), norms(f)
        turn = time * speed * MORE
        apart = np.maximum(-normal[:, 0], 0.0) + 8 * U * length + slip + (length + speed) * turn
        return side + slip + length * turn + rho * (speed + apart), turn**2
