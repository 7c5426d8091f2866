"""The words of a review ranked by every method of explanation, first the one that matters most.

LIME (Ribeiro et al. 2016) and SHAP (Lundberg and Lee 2017) are small samplers here, named so: they
ask a `Probe` for the probability of a label when only some words (masks (s, m)) stay.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.classifier.text.documents import Documents

CLUSTERS, LEADERS, OWN, SIZE = "leaders with clusters", "leaders alone", "<v, E>", "|<v, E>|"
GRADIENT, RANDOM = "gradient", "random"
RANDOM_SIDE = "random of the winning side"
Probe: TypeAlias = Callable[[np.ndarray], np.ndarray]


def ranked_review(
    clf: cy.HardmaxClassifier,
    ex: cy.classifier.Explanation,
    samples: int,
    draw: np.random.Generator,
) -> st.Cell:
    """Every method's ranking of the words of a review.

    They name only words that speak for the label, but for the random one. Random words of the
    winning side are the fair null model: chosen among those that speak for it.
    """
    index = clf.vocabulary_.index
    terms = np.array([index[w] for w in (ex.trajectory.words or ())[1:]], np.int32)
    m, label = len(terms), int(ex.decision > 0)
    ranking = _exact_rankings(ex) | {RANDOM: draw.permutation(m)}
    side = ranking[OWN]
    ranking[RANDOM_SIDE] = draw.permutation(side)
    overlap, evaluations = dict.fromkeys(ranking, 1.0), dict.fromkeys(ranking, 1)
    overlap[RANDOM] = _jaccard(ranking[RANDOM], draw.permutation(m))
    overlap[RANDOM_SIDE] = _jaccard(ranking[RANDOM_SIDE], draw.permutation(side))

    asked: list[int] = []

    def probe(masks: np.ndarray) -> np.ndarray:
        asked.append(len(masks))
        return probabilities(clf, [terms[mask] for mask in masks])[:, label]

    for name, sampler in SAMPLERS.items():
        asked.clear()
        seeds = (int(draw.integers(1 << 31)) for _ in range(2))
        first, second = (_positive(sampler(probe, m, samples, seed)) for seed in seeds)
        ranking[name], overlap[name] = first, _jaccard(first, second)
        evaluations[name] = sum(asked) // 2
    return st.Cell(
        terms=terms,  # known ones
        label=label,  # predicted
        ranking=ranking,
        winning=len(ranking[CLUSTERS]),  # words in the clusters that speak for the label
        overlap=overlap,  # of the first ten words with those under another seed
        evaluations=evaluations,
    )


def _exact_rankings(ex: cy.classifier.Explanation) -> dict[str, np.ndarray]:
    """Rankings that need no sampling: by clusters, leaders, gradient, own score and its size."""
    sign = 1.0 if ex.decision > 0 else -1.0
    own = sign * (ex.trajectory.values[0] @ ex.v)[1:]
    clusters = [
        [leader.token - 1, *sorted((w.token - 1 for w in leader.followers), key=lambda j: -own[j])]
        for leader in sorted(ex.leaders, key=lambda leader: -sign * leader.score)
        if sign * leader.score > 0
    ]
    winning = [cluster for cluster in clusters if -1 not in cluster]  # -1: the anchor, neutral
    return {
        CLUSTERS: np.array([j for cluster in winning for j in cluster], np.intp),
        LEADERS: np.array([cluster[0] for cluster in winning], np.intp),
        GRADIENT: _positive(sign * ex.gradient_times_token()[1:]),
        OWN: _positive(own),
        SIZE: np.argsort(-np.abs(own), kind="stable"),
    }


def _positive(x: np.ndarray) -> np.ndarray:
    """Positions with x > 0, largest first."""
    order = np.argsort(-x, kind="stable")
    return order[x[order] > 0]


def _jaccard(a: np.ndarray, b: np.ndarray, top: int = 10) -> float:
    one, two = set(a[:top].tolist()), set(b[:top].tolist())
    return len(one & two) / max(len(one | two), 1)


def probabilities(clf: cy.HardmaxClassifier, rows: Sequence[np.ndarray]) -> np.ndarray:
    """Probabilities of both labels of reviews given as sets of terms."""
    return clf.probabilities(clf.model_.read(documents(rows)).decision)


def documents(rows: Sequence[np.ndarray]) -> Documents:
    """Reviews given as sets of terms, as the model reads them."""
    indptr = np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int64)
    terms = np.concatenate([np.empty(0, np.int32), *rows]).astype(np.int32)
    return Documents(indptr, terms)


def own_shap(probe: Probe, m: int, samples: int, seed: int) -> np.ndarray:
    """Shapley values by random orders and their reverses: mean change when a word comes in."""
    draw = np.random.default_rng(seed)
    rounds = max(1, samples // (2 * (m + 1)))
    value = np.zeros(m)
    for _ in range(rounds):
        order = draw.permutation(m)
        for path in (order, order[::-1]):
            masks = np.argsort(path) < np.arange(m + 1)[:, None]  # one word more in each row
            value[path] += np.diff(probe(masks))
    return value / (2 * rounds)


def own_lime(probe: Probe, m: int, samples: int, seed: int) -> np.ndarray:
    """Coefficients of a ridge regression on random subsets, near ones weighted more."""
    draw = np.random.default_rng(seed)
    masks = np.ones((samples, m), bool)
    for mask in masks[1:]:
        mask[draw.choice(m, int(draw.integers(1, m + 1)), replace=False)] = False
    distance = 100 * (1 - np.sqrt(masks.mean(axis=1)))  # cosine distance to the whole review
    weight = np.sqrt(np.exp(-(distance**2) / 25**2))
    x, y = masks.astype(float), probe(masks)
    x0, y0 = weight @ x / weight.sum(), weight @ y / weight.sum()
    xw = (x - x0) * weight[:, None]
    return np.linalg.solve(xw.T @ (x - x0) + np.eye(m), xw.T @ (y - y0))


SAMPLERS = {"LIME, own sampler": own_lime, "SHAP, own sampler": own_shap}
