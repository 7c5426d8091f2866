"""A softmax run layer by layer, and the clusters on its way that provably last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import numpy as np

from ..._deadline import Deadline
from .enclosure import Enclosed, Layer
from .rounding import MORE, U, norms
from .trap import Balls, Places, Tube, follow

_APART = 3.0  # clusters are groups this many times farther apart than their tokens are


@final
class Run:
    """The softmax run, layer by layer, and the plateaus found on its way."""

    def __init__(self, law: Layer, tokens: np.ndarray, most: int, until: Deadline) -> None:
        self.law, self.most, self.until = law, most, until
        self.now = Enclosed.start(law, tokens)
        if law.sphere:
            lengths = np.sqrt((tokens * tokens).sum(axis=1, keepdims=True))
            rounded = np.full(len(tokens), (tokens.shape[1] + 8) * U)
            self.now = Enclosed(law, tokens / lengths, rounded)
        self.z, self.error = [self.now.z], [self.now.error]
        self.found: list[tuple[Tube, int]] = []

    def follow(self, *, look: bool = True) -> str:
        """Why it stopped."""
        check = 0
        while True:
            if look and self.now.k >= check:
                if self._look():
                    return "the last plateau is proved to last longer"
                check = max(self.now.k + 1, int(1.2 * self.now.k))
            if self.law.flows:
                return "a flow is proved from its start: give a state that has gathered"
            if self.now.k >= self.most:
                return "as many as asked for"
            if self.until.passed:
                return "the deadline passed"
            after = self.now.step()
            if after is None:
                return "rounding has grown too large to follow tokens"
            self.now = after
            self.z.append(after.z)
            self.error.append(after.error)

    def _look(self) -> bool:
        """Enter the plateau of this layer, if there is one; True when following on adds nothing."""
        k, z = self.now.k, self.now.z
        least = float(np.log(max(k, 10)))
        for balls in _candidates(z, self.now.error, sphere=self.law.sphere):
            if len(balls.first) == 1:
                together = float(balls.radius[0]) <= 1e-3 * float(norms(self.z[0]).max())
                if not together:
                    return False
                tube = follow(self.law, balls)
                return tube.lasts >= least and self._enter(tube)
            if Places(self.law, balls, balls.points).guess(balls.radius) < least:
                continue
            tube = follow(self.law, balls)
            if tube.lasts >= least:
                return self._enter(tube)
        return False

    def _enter(self, tube: Tube) -> bool:
        end = float(np.logaddexp(tube.lasts, np.log(self.now.k + 1)))
        gained, enough = np.inf, float(np.log(self.most + 1))
        if self.found and np.array_equal(self.found[-1][0].balls.home, tube.balls.home):
            before, k = self.found.pop()
            gained = end - float(np.logaddexp(before.lasts, np.log(k + 1)))
            if gained < 0:
                self.found.append((before, k))
                return end - gained > enough
        self.found.append((tube, self.now.k))
        return len(tube.balls.first) == 1 or (gained < 0.01 and end > enough)

    def since(self, clusters: tuple[np.ndarray, ...], k: int) -> int:
        """From which layer on, up to k, the clusters have been apart."""
        while k and _separate(self.z[k - 1], self.error[k - 1], clusters):
            k -= 1
        return k


def _candidates(z: np.ndarray, error: np.ndarray, *, sphere: bool) -> Iterator[Balls]:
    """Partitions into groups that are far apart beside their own size, the finest first."""
    from scipy.cluster.hierarchy import fcluster, linkage

    if len(z) == 1:
        yield _balls(z, error, np.zeros(1, dtype=np.intp), sphere)
        return
    tree = linkage(z, "single")
    heights = np.concatenate(([0.0], np.maximum(tree[:, 2], 1e-300), [np.inf]))
    for i in np.flatnonzero(heights[1:] > _APART * heights[:-1]):
        label = fcluster(tree, heights[i] * (1 + 1e-9), "distance")
        _, first, label = np.unique(label, return_index=True, return_inverse=True)
        order = np.argsort(np.argsort(first))[label]  # in the order of tokens
        yield _balls(z, error, order, sphere)


def _balls(z: np.ndarray, error: np.ndarray, label: np.ndarray, sphere: bool) -> Balls:
    order = np.argsort(label, kind="stable")
    first = np.flatnonzero(np.diff(label[order], prepend=-1))
    tokens = tuple(np.split(order, first[1:]))
    centres = np.array([z[i].mean(axis=0) for i in tokens])
    if sphere:
        centres = centres / np.maximum(norms(centres), 1e-300)[:, None]
    R = float(norms(z).max())
    radius = _radius(z, error, tokens, centres) * MORE + (z.shape[1] + 8) * U * R
    return Balls(centres, np.arange(len(tokens)), radius, tokens)


def _radius(
    z: np.ndarray, error: np.ndarray, clusters: tuple[np.ndarray, ...], centres: np.ndarray
) -> np.ndarray:
    pairs = zip(clusters, centres, strict=True)
    return np.array([float((norms(z[i] - c) + error[i]).max()) for i, c in pairs])


def _separate(z: np.ndarray, error: np.ndarray, clusters: tuple[np.ndarray, ...]) -> bool:
    """Is each cluster's ball farther from the others than it is wide?"""
    if len(clusters) == 1:
        return False
    centres = np.array([z[i].mean(axis=0) for i in clusters])
    radius = _radius(z, error, clusters, centres)
    apart = norms(centres[None] - centres[:, None]) - radius[:, None] - radius[None]
    np.fill_diagonal(apart, np.inf)
    return bool((apart > 2 * radius.max()).all())
