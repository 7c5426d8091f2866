"""Null models of the sentiment experiments: the same words without attention, a bag of words.

A classifier whose verdicts are the same with 0 layers owes its accuracy to where its words were
placed, not to its attention: the layers then change what is *shown* (few places, leaders) and not
what is *decided*. Differences are given per test review and their intervals by blocks of
consecutive reviews, since neighbours are often about the same film.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.classifier.fitting.soft_model import Schedule
from cynosure.classifier.model.plane import Plane
from cynosure.classifier.text.documents import Documents

from ._models import LAYERS, Fitted, Variant, called, evaluate, kind_of, one_thread, train
from ._reviews import Reviews, Split

BLOCK = 25  # consecutive test reviews that are resampled together
FEWEST = 20  # blocks, where there are so many reviews: an interval of few blocks is too short


def blockwise(values: np.ndarray) -> tuple[float, float]:
    """The 95 % bootstrap interval of a mean over reviews, whole blocks of them resampled."""
    values = np.asarray(values, dtype=np.float64)
    count = min(len(values), max(FEWEST, len(values) // BLOCK))
    return st.resampled([float(block.mean()) for block in np.array_split(values, count)])


def said(values: np.ndarray) -> str:
    """A mean over reviews with its interval: "+0.012 (95 %: -0.003 to +0.027)"."""
    low, high = blockwise(values)
    return f"{np.mean(values):+.4f} (95 %: {low:+.4f} to {high:+.4f})"


def above(values: np.ndarray) -> bool:
    """Is the whole interval above 0?"""
    return blockwise(values)[0] > 0


def below(values: np.ndarray) -> bool:
    return blockwise(values)[1] < 0


# --- the classifier with placed words -------------------------------------------------------------


def mean_tokens(plane: Plane, documents: Documents) -> np.ndarray:
    """Mean token of each text before the first layer (texts, d), the anchor counted m times."""
    row = np.repeat(np.arange(len(documents)), documents.sizes)
    total = np.zeros((len(documents), plane.embedding.shape[1]))
    np.add.at(total, row, plane.embedding[documents.indices])
    total += plane.count * plane.anchor
    return total / (documents.sizes + plane.count)[:, None]


def without_layers(clf: cy.HardmaxClassifier, documents: Documents) -> np.ndarray:
    """Decisions of a two-class model with the same weights and 0 layers of attention."""
    (plane,) = clf.model_.planes
    decision = mean_tokens(plane, documents) @ plane.v[0] + plane.b[0]
    return np.where(documents.sizes == 0, plane.prior[0], decision)


class Placed0(NamedTuple):
    """A classifier beside itself with 0 layers: verdicts of each, and with its decoder fit anew."""

    layers: np.ndarray
    none: np.ndarray
    refit: np.ndarray

    @property
    def same(self) -> int:
        """Texts with the same verdict with and without the layers."""
        return int((self.layers == self.none).sum())


def beside_no_layers(
    clf: cy.HardmaxClassifier, fitted: Any, labels: np.ndarray, texts: Any
) -> Placed0:
    """Verdicts (True: the second class) on `texts`; the decoder is fit anew on `fitted`."""
    from sklearn.linear_model import LogisticRegression

    (plane,) = clf.model_.planes
    known, new = (clf.vocabulary_.encode(x) for x in (fitted, texts))
    linear = LogisticRegression(C=1e4, max_iter=1000)
    linear.fit(mean_tokens(plane, known), labels == clf.classes_[1])
    return Placed0(
        layers=clf.model_.read(new).decision[:, 0] > 0,
        none=without_layers(clf, new) > 0,
        refit=linear.predict(mean_tokens(plane, new)),
    )


# --- a bag of words -------------------------------------------------------------------------------


def bag_of_words(data: Split) -> np.ndarray:
    """Test predictions of logistic regression on the share of each word, C chosen on data.held."""
    from scipy.sparse import csr_array
    from sklearn.linear_model import LogisticRegression

    def shares(r: Reviews) -> Any:
        mask = r.count > 0
        row = np.repeat(np.arange(len(r)), mask.sum(axis=1))
        share = (r.count / np.sqrt((r.count**2).sum(axis=1, keepdims=True)))[mask]
        return csr_array((share, (row, r.terms[mask])), shape=(len(r), len(data.words)))

    fits = [LogisticRegression(C=C, max_iter=500) for C in (0.3, 1.0, 3.0, 10.0)]
    x, held = shares(data.train), shares(data.held)
    best = max(fits, key=lambda fit: fit.fit(x, data.train.y).score(held, data.held.y))
    return best.predict(shares(data.test))


# --- the learned model ----------------------------------------------------------------------------


class Null(NamedTuple):
    """A model on the test reviews (means over seeds, one entry per review): which it has right.

    `hard` with its hardmax layers, `bare` the same weights with 0 layers, `trained` the same words
    trained with 0 layers, `linear` logistic regression; `same` is the share of verdicts that do not
    change when the layers are left out.
    """

    dim: int
    tokens: int
    kind: str
    seeds: int
    hard: np.ndarray
    bare: np.ndarray
    same: float
    trained: np.ndarray
    linear: np.ndarray

    @property
    def name(self) -> str:
        return called(self.dim, self.tokens, self.kind)

    def rate(self, what: str = "hard") -> float:
        return float(getattr(self, what).mean())


def null_model(fits: Sequence[Fitted], schedule: Schedule) -> Null:
    """The null models of one dimension; `fits` are its models, one for each seed."""
    history, first, data = fits[0]
    truth, dim = data.test.y, int(history["dim"])
    hard, bare = zip(*(_with_and_without(weights, data) for _, weights, _ in fits))
    schedules = [replace(schedule, seed=schedule.seed + k) for k in range(len(fits))]
    trained = [_depth_0(data, dim, one) for one in schedules]
    right = [np.mean([x == truth for x in of], axis=0) for of in (hard, bare, trained)]
    return Null(
        *(dim, int(history["tokens"]), kind_of(first), len(fits)),
        hard=right[0],
        bare=right[1],
        same=float(np.mean([a == b for a, b in zip(hard, bare)])),
        trained=right[2],
        linear=(_linear(data) == truth).astype(float),
    )


@one_thread()
def _with_and_without(weights: Mapping[str, Any], data: Split) -> tuple[np.ndarray, np.ndarray]:
    """Verdicts on the test reviews with hardmax layers and with none, by the same weights."""
    import torch

    w = {k: torch.as_tensor(np.asarray(x), dtype=torch.float32) for k, x in weights.items()}
    layers = (Variant(matrix=kind_of(w), layers=k) for k in (LAYERS, 0))
    with_, without = (evaluate(w, data.test, network) > 0 for network in layers)
    return with_, without


_linear = lru_cache(maxsize=4)(bag_of_words)  # models with another A have the same null models


@lru_cache(maxsize=16)
@one_thread()
def _depth_0(data: Split, dim: int, schedule: Schedule) -> np.ndarray:
    """Verdicts of the model trained with 0 layers, at the epoch that is best on data.held."""
    bare = Variant(layers=0)
    *_, last = train(data, dim, bare, schedule)
    return evaluate(last.best, data.test, bare) > 0


def null_controls(nulls: Sequence[Null]) -> list[st.Comparison]:
    """Is the accuracy, and its growth with d, the work of attention? And of a trained A?"""
    out = []
    for x in nulls:
        trained, linear = x.hard - x.trained, x.hard - x.linear
        out.append(
            st.Comparison(
                f"{x.name}: attention makes the model more accurate.",
                f"the same words trained with 0 layers, {x.seeds} seeds of each; logistic "
                "regression",
                f"{x.rate():.4f}; 0 layers {x.rate('trained'):.4f}, difference {said(trained)};"
                f" logistic regression {x.rate('linear'):.4f}, difference {said(linear)}; by "
                f"blocks of {len(x.hard)} test reviews",
                above(trained) and above(linear),
            )
        )
    same = float(np.mean([x.same for x in nulls]))
    gain, bare = (float(np.mean([x.rate(what) for x in nulls])) for what in ("hard", "bare"))
    out.append(
        st.Comparison(
            "The layers decide.",
            "the same weights read with 0 layers",
            f"{same:.1%} of the verdicts stay; accuracy {gain:.4f} with, {bare:.4f} without",
            any(above(x.hard - x.bare) for x in nulls),
        )
    )
    plain = [x for x in nulls if x.kind == "I"]
    if len({x.dim for x in plain}) > 1:
        out.append(_growth(plain))
    for x in nulls:
        same_size = [p for p in plain if (p.dim, p.tokens) == (x.dim, x.tokens)]
        if x.kind != "I" and same_size:
            gap, seeds = x.hard - same_size[0].hard, min(x.seeds, same_size[0].seeds)
            out.append(
                st.Comparison(
                    f"{x.name}: training A makes the model more accurate.",
                    f"the same words and schedule with A = I, {seeds} seeds of each",
                    f"{x.rate():.4f}, with A = I {same_size[0].rate():.4f}, difference "
                    f"{said(gap)}" + ("" if seeds > 1 else "; one seed of each decides nothing"),
                    seeds > 1 and above(gap),
                )
            )
    return out


def _growth(nulls: Sequence[Null]) -> st.Comparison:
    low, high = (pick(nulls, key=lambda x: (x.dim, x.tokens)) for pick in (min, max))
    mine, none = high.hard.mean() - low.hard.mean(), high.trained.mean() - low.trained.mean()
    gains = [x.hard - x.trained for x in (high, low)]
    alike = len(gains[0]) == len(gains[1])
    return st.Comparison(
        "Accuracy grows with d because more words can lead.",
        "the same words trained with 0 layers",
        f"from {low.name} to {high.name}: {mine:+.4f} with layers, {none:+.4f} with none"
        + (f", difference {said(gains[0] - gains[1])}" if alike else ""),
        bool(mine > 0 and alike and above(gains[0] - gains[1])),
    )


def null_table(nulls: Sequence[Null]) -> st.Table:
    columns: dict[str, Any] = {
        **{"d": "dim", "A": "kind", "n": "tokens", "seeds": "seeds"},
        **{"test reviews": lambda x: len(x.hard), "hardmax": Null.rate},
        "95 % from": lambda x: blockwise(x.hard)[0],
        "to": lambda x: blockwise(x.hard)[1],
        **{"same weights, 0 layers": lambda x: x.rate("bare"), "verdicts that stay": "same"},
        "trained with 0 layers": lambda x: x.rate("trained"),
        "logistic regression": lambda x: x.rate("linear"),
        "hardmax minus 0 layers": lambda x: float((x.hard - x.trained).mean()),
        "from": lambda x: blockwise(x.hard - x.trained)[0],
        "to ": lambda x: blockwise(x.hard - x.trained)[1],
    }
    note = (
        "All on the same words and test reviews, means over seeds; epochs and regularisation are "
        "chosen on held-out blocks of the training part. Intervals by blocks of consecutive "
        "reviews."
    )
    return st.Table.of("Beside no attention and a bag of words", list(nulls), columns, note)
