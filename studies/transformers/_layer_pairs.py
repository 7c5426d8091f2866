"""Every pair of layers of a model, and how far their Jacobians share singular vectors."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np

import cynosure as cy
from cynosure.pretrained.reading.jacobians import block_jacobians


class Decomposed(NamedTuple):
    """A Jacobian and its singular value decomposition, made once and compared with many."""

    J: np.ndarray
    U: np.ndarray
    S: np.ndarray
    Vt: np.ndarray

    @classmethod
    def of(cls, J: np.ndarray) -> Decomposed:
        return cls(J, *np.linalg.svd(J))


def coupled(one: Decomposed, two: Decomposed, K: int) -> float:
    """`cynosure.pretrained.reading.jacobians.coupling` of the two, from their decompositions."""
    S = np.diag(one.S[:K])
    size = float(np.linalg.norm(S))
    return float(np.linalg.norm(two.U[:, :K].T @ one.J @ two.Vt[:K].T - S)) / size if size else 0.0


class Pair(NamedTuple):
    """Two layers at one token: m_K as it is, without trace, and for other K."""

    weights: str
    text: int
    token: int
    first: int
    second: int
    m: float
    traceless: float
    turned: float
    others: tuple[float, ...]

    @property
    def distance(self) -> int:
        return self.second - self.first


def spread(run: cy.Trajectory, most: int) -> list[int]:
    """Tokens spread over the text, special ones at its ends avoided where there are others."""
    n = run.z.shape[1]
    first, last = (1, n - 2) if n > 2 else (0, n - 1)
    picks = np.linspace(0, last - first, min(most, last - first + 1)).round().astype(int)
    return (first + np.unique(picks)).tolist()


def pairs_of(
    m: cy.pretrained.Transformer,
    texts: np.ndarray,
    weights: str,
    layers: int,
    tokens: int,
    K: int,
    others: tuple[int, ...],
    seed: int,
) -> list[Pair]:
    """m_K of every pair of the first layers, at some tokens of the texts (texts, n, d)."""
    draw = np.random.default_rng(seed)
    out = []
    for text, z in enumerate(texts):
        trace = m.trace(z, min(layers, m.depth))
        chosen, depth = spread(trace.trajectory, tokens), len(trace.z) - 1
        J = [block_jacobians(m, trace.z[k], k, chosen) for k in range(depth)]
        for i, token in enumerate(chosen):
            whole = [Decomposed.of(x[i]) for x in J]
            identity = np.eye(J[0].shape[-1])
            bare = [Decomposed.of(x - np.trace(x) / len(x) * identity) for x in (y[i] for y in J)]
            turn = np.linalg.qr(draw.standard_normal(J[0][i].shape))[0]
            for a, b in combinations(range(depth), 2):
                turned = whole[b]._replace(J=turn @ whole[b].J, U=turn @ whole[b].U)
                values = (
                    coupled(whole[a], whole[b], K),
                    coupled(bare[a], bare[b], K),
                    coupled(whole[a], turned, K),
                    tuple(coupled(whole[a], whole[b], k) for k in others),
                )
                out.append(Pair(weights, text, token, a, b, *values))
    return out


def gaps(pairs: list[Pair], weights: str, what: str) -> np.ndarray:
    """For each token of each text: mean m_K of its distant pairs minus that of consecutive ones."""
    out = []
    for here in cy.study.grouped(_of(pairs, weights), "text", "token").values():
        near, far = (mean_of(here, weights, what, close) for close in (True, False))
        if not np.isnan(far - near):
            out.append(far - near)
    return np.array(out)


def _of(pairs: list[Pair], weights: str) -> list[Pair]:
    return [x for x in pairs if x.weights == weights]


def value_of(pair: Pair, what: str) -> float:
    return pair.others[int(what)] if what.isdigit() else float(getattr(pair, what))


def mean_of(pairs: list[Pair], weights: str, what: str, near: bool | None = None) -> float:
    chosen = [x for x in _of(pairs, weights) if near is None or (x.distance == 1) == near]
    return float(np.mean([value_of(x, what) for x in chosen])) if chosen else float("nan")


def said(x: np.ndarray) -> str:
    if not len(x):
        return "no pair to compare"
    low, high = cy.study.resampled(x)
    return f"{x.mean():+.3f} (95 % over {len(x)} tokens: {low:+.3f} to {high:+.3f})"


def above_zero(x: np.ndarray) -> bool:
    return len(x) > 0 and cy.study.resampled(x)[0] > 0


def token_interval(pairs: list[Pair]) -> tuple[float, float]:
    """95 % of the mean m_K, the tokens resampled and not their pairs."""
    places = cy.study.grouped(pairs, "text", "token").values()
    return cy.study.resampled([float(np.mean([x.m for x in here])) for here in places])
