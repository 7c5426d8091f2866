"""The words that decided, of many texts at once: the same as one explanation each gives."""

from __future__ import annotations

import numpy as np
import pytest

from cynosure import datasets
from cynosure.classifier.bundled import folder_of
from cynosure.classifier.estimator import HardmaxClassifier
from cynosure.classifier.explaining import evidence
from cynosure.classifier.explaining.loaded_model import LoadedModel
from cynosure.classifier.model.model import Model
from cynosure.classifier.model.plane import Plane
from cynosure.classifier.text.vocabulary import Tokenizer, Vocabulary

REVIEWS = [
    "I didn't like it. Not good, not bad either; DON’T watch. I do not like the plot!",
    "A wonderful, moving film. The cast is superb and the ending never dull, never wooden.",
    "The worst of the worst: boring, boring, boring. Nothing works, hardly a good line.",
    "It is just a film. Is just the cover of a job; would watch again, but it has a plot.",
    "", "zzzz qqqq", "good", "not", "not good", "Film film FILM film?! 10/10 😀 <br />great",
    "nobody cares; nothing good, no good plot, without good music, can't say good",
    "Not a dull plot. The plot is NOT dull, not dull, Never dull: it was never a dull plot",
]  # fmt: skip


def shipped() -> LoadedModel:
    return LoadedModel.load(folder_of("imdb"))


def fitted(**how) -> LoadedModel:
    data = datasets.synthetic(80, seed=1, classes=how.pop("classes", ("pos", "neg")))
    return HardmaxClassifier(min_df=1, leaders=6, **how).fit(data.texts, data.labels)._opened


def scattered(d: int, layers: int, seed: int = 0, rows: int = 1) -> LoadedModel:
    """Words anywhere, so that no ray is shared and layers are walked."""
    draw = np.random.default_rng(seed)
    vocabulary, _ = Vocabulary.build(
        datasets.synthetic(30).texts, Tokenizer((1, 2), negation=True), min_df=1
    )
    embedding = draw.normal(size=(len(vocabulary), d))
    b = np.zeros(rows)
    plane = Plane(embedding, draw.normal(size=d), draw.normal(size=(rows, d)), b, b, 3.0)
    classes = np.array(list("ab") if rows == 1 else list("abcdef")[:rows])
    return LoadedModel(Model((plane,), 0.7, layers), vocabulary, classes)


def mirrored() -> LoadedModel:
    """Pairs of words of equal and opposite weight, and two at one place: every order is a tie."""
    vocabulary, _ = Vocabulary.build(["a b c d e f g h"], Tokenizer((1, 1)), min_df=1)
    u = np.array([0.5, -0.5, 0.5, -0.5, 0.25, -0.25, 0.25, 0.125])
    z = np.column_stack((u, np.sqrt(1 - u**2)))
    one = np.ones(1)
    plane = Plane(z, np.array([0.0, 1.0]), np.array([[2.0, 0.0]]), one, one)
    return LoadedModel(Model((plane,)), vocabulary, np.array(["x", "y"]))


MODELS = {
    "shipped": shipped,
    "two classes": fitted,
    "opposites": lambda: fitted(negation="opposite", ngrams=(1, 3)),
    "cases kept": lambda: fitted(negation=True, ngrams=(2, 3), lowercase=False),
    "three classes": lambda: fitted(classes=("a", "b", "c")),
    "no layers": lambda: fitted(layers=0),
    "everything is read": lambda: fitted(words=None),
    "scattered": lambda: scattered(3, 8),
    "scattered, on their way": lambda: scattered(2, 1, 4),
    "several rows": lambda: scattered(3, 6, 2, rows=4),
    "mirrored": mirrored,
}


@pytest.mark.many  # every text is explained
@pytest.mark.parametrize("name", MODELS)
def test_words_of_many_texts_are_those_of_their_explanations(name: str) -> None:
    opened = MODELS[name]()
    texts = [*REVIEWS, *datasets.synthetic(9, seed=5).texts, "a b c d e f g h", "h g f e d c b a"]
    verdicts, enough = opened.read_with_words(texts)
    assert np.array_equal(verdicts.decision, opened.read(texts).decision)
    assert enough == [opened.explain(text).enough for text in texts]
    assert any(enough)


@pytest.mark.many
def test_reviews_are_seldom_explained_one_by_one(imdb, monkeypatch) -> None:
    """The oracle on real reviews; and all but a few of them take the fast path."""
    texts = datasets.imdb(imdb, "test").texts[::500]
    opened = shipped()
    explained = []
    monkeypatch.setattr(
        LoadedModel, "explain", lambda self, text: explained.append(text) or _Explained()
    )
    _, enough = opened.read_with_words(texts)
    monkeypatch.undo()
    assert len(explained) <= 2
    plain = [(text, words) for text, words in zip(texts, enough) if text not in explained]
    assert [words for _, words in plain] == [opened.explain(text).enough for text, _ in plain]


class _Explained:
    enough = ()


def test_what_is_too_close_to_call_is_explained(monkeypatch) -> None:
    """With a wrong order of near ties the fast path would be wrong: it knows which they are."""
    opened = scattered(3, 8)
    plane = opened.model.planes[0]
    words = opened.vocabulary
    i, j = words.index["film"], words.index["plot"]
    embedding = plane.embedding.copy()
    embedding[j] = embedding[i]  # one place, two words
    twin = Plane(embedding, plane.anchor, plane.v, plane.b, plane.prior, plane.count)
    opened = LoadedModel(Model((twin,), 0.7, 8), words, opened.classes_)
    documents = words.encode(["the plot of a film"])
    (ordered,) = evidence._loud(
        opened.model, documents, opened.model.read(documents), 0, np.ones(1, bool)
    )
    heard = set(documents.indices[ordered.entry].tolist())
    assert {i, j} <= heard and ordered.unsure.tolist() == [0]
