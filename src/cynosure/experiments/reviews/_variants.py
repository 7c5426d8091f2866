"""The sentiment model with one part changed, for the ablations: its layers, leaders and places."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...classifier.soft_model import Network, Tensor, Weights, embedded, pull, step
from ._models import read_hard
from ._reviews import Reviews
from ._training import final_tokens


@dataclass(frozen=True)
class Variant(Network):
    """`layers` layers whose `attention` is "softmax" (at `temperature`, 0 for hardmax), "uniform"
    (all words alike) or "random" (hardmax of random tokens that are not trained; the values are).

    `hidden` > 0 adds a feed-forward map of that width after each layer; `norm` "sphere" or "layer"
    normalises tokens before the first and after each layer, "" does not.
    """

    attention: str = "softmax"
    temperature: float = 0.0
    layers: int = 8
    hidden: int = 0
    norm: str = ""

    @property
    def hard(self) -> Variant:
        """The same layers with softmax at temperature 0."""
        return replace(self, temperature=0.0)

    def initial(
        self, terms: int, dim: int, alpha: float, draw: Any, rows: tuple[int, ...] = ()
    ) -> dict[str, Tensor]:
        import torch

        weights = Network.initial(self, terms, dim, alpha, draw, rows)
        if self.attention == "random":
            weights["constant"] = torch.randn((terms, dim), generator=draw)
        if self.hidden:
            weights["inner"] = torch.randn((dim, self.hidden), generator=draw) / math.sqrt(dim)
            weights["inner_bias"] = torch.zeros(self.hidden)
            outer = torch.randn((self.hidden, dim), generator=draw)
            weights["outer"] = 0.1 * outer / math.sqrt(self.hidden)
        return weights

    def carried(self, weights: Weights, terms: Tensor, count: Tensor) -> Tensor:
        z, eta = self._normed(embedded(weights, terms)), step(weights)
        random = self.attention == "random"
        constant = embedded(weights, terms, "constant") if random else None
        for _ in range(self.layers):
            if self.attention == "uniform":
                pulled = (count[:, None, :] @ z) / count.sum(dim=1)[:, None, None]
            else:
                pulled = pull(z, z if constant is None else constant, count, self.temperature)
            z = z.lerp(pulled, eta)
            if self.hidden:
                inner = (z @ weights["inner"] + weights["inner_bias"]).relu()
                z = z + inner @ weights["outer"]
            z = self._normed(z)
        return z

    def _normed(self, z: Tensor) -> Tensor:
        from torch.nn import functional

        if self.norm == "sphere":
            return functional.normalize(z, dim=-1)
        return functional.layer_norm(z, z.shape[-1:]) if self.norm == "layer" else z


def leaders(v: Variant, w: dict[str, Any], some: Reviews) -> tuple[float, float, float]:
    """Mean number of words that lead at layer 0, at any layer, and the weight on leaders.

    The last two are for the pure layers only: after a feed-forward map or a norm a leader moves.
    """
    if v.attention != "softmax" or v.layers == 0:
        return np.nan, np.nan, np.nan
    if not (v.hidden or v.norm):
        hard = read_hard(w, some, v.layers)
        return float(hard.initial.mean()), float(hard.leaders.mean()), float(hard.on_leaders.mean())
    z, mask = final_tokens(w, some, replace(v, layers=0)), some.count > 0
    score = np.where(mask[:, None, :], z @ z.swapaxes(1, 2), -np.inf)
    diagonal = np.einsum("bii->bi", score)
    own = diagonal.copy()
    diagonal[...] = -np.inf
    return float(((own > score.max(axis=2)) & mask).sum(axis=1).mean()), np.nan, np.nan


def places(v: Variant, w: dict[str, Any], some: Reviews, cell: float = 0.05) -> float:
    """Distinct places of a review's tokens at the end, on a grid of `cell` times their size."""
    z, start = (final_tokens(w, some, x) for x in (v, replace(v, layers=0)))
    mask = some.count > 0
    grid = cell * float(np.sqrt((start[mask] ** 2).sum(axis=1).mean()))
    return float(np.mean([len(np.unique(np.round(x[m] / grid), axis=0)) for x, m in zip(z, mask)]))
