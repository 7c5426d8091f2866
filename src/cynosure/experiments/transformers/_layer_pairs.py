"""Every pair of layers of a model, and how far their Jacobians share singular vectors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import cynosure as cy

from ...pretrained.jacobians import block_jacobians
from .._frame import resampled


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
    """`cynosure.pretrained.jacobians.coupling` of the two, from their decompositions."""
    S = np.diag(one.S[:K])
    size = float(np.linalg.norm(S))
    return float(np.linalg.norm(two.U[:, :K].T @ one.J @ two.Vt[:K].T - S)) / size if size else 0.0


class Pair(NamedTuple):
    """Two layers at one token: m_K as it is, without trace, and for other K."""

    weights: str
    text: str
    token: int
    word: str
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
    first, last = (1, n - 2) if run.words is not None and n > 2 else (0, n - 1)
    picks = np.linspace(0, last - first, min(most, last - first + 1)).round().astype(int)
    return (first + np.unique(picks)).tolist()


def _traceless(J: np.ndarray) -> np.ndarray:
    return J - np.trace(J) / len(J) * np.eye(len(J))


def pairs_of(
    m: cy.Transformer,
    texts: tuple[str, ...],
    weights: str,
    tokens: int,
    K: int,
    others: tuple[int, ...],
    seed: int,
) -> list[Pair]:
    """m_K of every pair of layers, at some tokens of both texts."""
    draw = np.random.default_rng(seed)
    out = []
    for text in dict.fromkeys(texts):
        trace = m.trace(text)
        words = trace.words or tuple(map(str, range(trace.z.shape[1])))
        chosen = spread(trace.trajectory, tokens)
        J = [block_jacobians(m, trace.z[k], k, chosen) for k in range(m.depth)]
        for i, token in enumerate(chosen):
            whole = [Decomposed.of(x[i]) for x in J]
            bare = [Decomposed.of(_traceless(x[i])) for x in J]
            turn = np.linalg.qr(draw.standard_normal(J[0][i].shape))[0]
            for a in range(m.depth):
                for b in range(a + 1, m.depth):
                    turned = whole[b]._replace(J=turn @ whole[b].J, U=turn @ whole[b].U)
                    pair = Pair(
                        weights=weights,
                        text=text,
                        token=token,
                        word=words[token],
                        first=a,
                        second=b,
                        m=coupled(whole[a], whole[b], K),
                        traceless=coupled(bare[a], bare[b], K),
                        turned=coupled(whole[a], turned, K),
                        others=tuple(coupled(whole[a], whole[b], k) for k in others),
                    )
                    out.append(pair)
    return out


def gaps(pairs: list[Pair], weights: str, what: str) -> np.ndarray:
    """For each token of each text: mean m_K of its distant pairs minus that of consecutive ones."""
    mine = [x for x in pairs if x.weights == weights]
    out = []
    for place in dict.fromkeys((x.text, x.token) for x in mine):
        here = [x for x in mine if (x.text, x.token) == place]
        near, far = (
            [_value(x, what) for x in here if (x.distance == 1) == close] for close in (True, False)
        )
        if near and far:
            out.append(float(np.mean(far)) - float(np.mean(near)))
    return np.array(out)


def _value(pair: Pair, what: str) -> float:
    return pair.others[int(what)] if what.isdigit() else float(getattr(pair, what))


def mean_of(pairs: list[Pair], weights: str, what: str, near: bool | None = None) -> float:
    chosen = [
        x for x in pairs if x.weights == weights and (near is None or (x.distance == 1) == near)
    ]
    return float(np.mean([_value(x, what) for x in chosen])) if chosen else float("nan")


def said(x: np.ndarray) -> str:
    if not len(x):
        return "no pair to compare"
    low, high = resampled(x)
    return f"{x.mean():+.3f} (95 % over {len(x)} tokens: {low:+.3f} to {high:+.3f})"


def above_zero(x: np.ndarray) -> bool:
    return len(x) > 0 and resampled(x)[0] > 0


def token_interval(pairs: list[Pair]) -> tuple[float, float]:
    """95 % of the mean m_K, the tokens resampled and not their pairs."""
    by: dict[tuple[str, int], list[float]] = {}
    for x in pairs:
        by.setdefault((x.text, x.token), []).append(x.m)
    return resampled([float(np.mean(v)) for v in by.values()])
