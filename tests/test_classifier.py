"""HardmaxClassifier as scikit-learn users meet it, its bad input, its files."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from cynosure.classifier.estimator import HardmaxClassifier
from cynosure.classifier.fitting.placement import Placed
from cynosure.classifier.text.datasets import Dataset, read, synthetic
from cynosure.classifier.text.inputs import as_labels, as_texts

SRC = Path(__file__).resolve().parent.parent / "src"


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthetic(240)


@pytest.fixture(scope="module")
def clf(data: Dataset) -> HardmaxClassifier:
    return HardmaxClassifier(leaders=6).fit(data.texts, data.labels)


def test_it_learns_what_there_is_to_learn(clf: HardmaxClassifier) -> None:
    fresh = synthetic(300, seed=7)
    assert clf.score(fresh.texts, fresh.labels) > 0.9
    assert clf.classes_.tolist() == ["negative", "positive"]
    upset = np.random.default_rng(0).permutation(fresh.labels)
    assert clf.score(fresh.texts, upset) < 0.65


def test_prediction_probability_and_decision_agree(clf: HardmaxClassifier) -> None:
    texts = [*synthetic(60, seed=3).texts, "", "zzz"]
    decision, p = clf.decision_function(texts), clf.predict_proba(texts)
    assert decision.shape == (62,) and p.shape == (62, 2)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.log(p[:, 1] / p[:, 0]), decision, atol=1e-9)
    assert (clf.predict(texts) == clf.classes_[(decision > 0).astype(int)]).all()


def test_more_than_two_classes(data: Dataset) -> None:
    many = synthetic(400, classes=("a", "b", "c", "d"))
    clf = HardmaxClassifier(leaders=5).fit(many.texts, many.labels)
    fresh = synthetic(200, classes=("a", "b", "c", "d"), seed=2)
    assert clf.score(fresh.texts, fresh.labels) > 0.85
    p = clf.predict_proba(fresh.texts)
    assert clf.decision_function(fresh.texts).shape == p.shape == (200, 4)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert (clf.classes_[p.argmax(axis=1)] == clf.predict(fresh.texts)).all()
    assert len(clf.model_.planes) == 4
    for label in "abcd":
        ex = clf.explain(fresh.texts[0], label)
        column = clf.classes_.tolist().index(label)
        assert ex.label == label
        assert ex.decision == pytest.approx(clf.decision_function(fresh.texts[:1])[0, column])
    assert clf.explain(fresh.texts[0]).label == clf.predict(fresh.texts[:1])[0]


@pytest.mark.parametrize("labels", [[0, 1], [True, False], [2.0, -1.0], ["ja", "nein"]])
def test_labels_of_any_kind_come_back(data: Dataset, labels: list) -> None:
    y = [labels[int(x == "positive")] for x in data.labels]
    clf = HardmaxClassifier(leaders=4).fit(data.texts, y)
    assert set(clf.predict(data.texts).tolist()) == set(labels)


# --- scikit-learn -----------------------------------------------------------------------------


def test_parameters_are_stored_untouched_and_cloned() -> None:
    method = Placed(C=3.0)
    clf = HardmaxClassifier(4, (1, 3), 7, method=method, min_df=1, class_weight={"a": 2})
    assert clf.get_params()["method"] is method and clf.get_params()["leaders"] == 7
    twin = clone(clf)
    assert twin is not clf and twin.get_params() == clf.get_params()
    assert clf.set_params(dim=3, ngrams=(1, 1)) is clf and clf.dim == 3
    with pytest.raises(ValueError, match="Invalid parameter"):
        clf.set_params(colour="red")
    with pytest.raises(NotFittedError):
        clf.predict(["x"])


def test_pipeline_grid_search_and_cross_validation(data: Dataset) -> None:
    lower = FunctionTransformer(lambda texts: [t.upper() for t in texts])
    pipe = Pipeline([("upper", lower), ("clf", HardmaxClassifier(ngrams=(1, 1)))])
    search = GridSearchCV(pipe, {"clf__leaders": [3, 6]}, cv=2).fit(list(data.texts), data.labels)
    assert search.best_params_["clf__leaders"] in (3, 6) and search.best_score_ > 0.85
    scores = cross_val_score(HardmaxClassifier(ngrams=(1, 1)), list(data.texts), data.labels, cv=3)
    assert scores.shape == (3,) and scores.min() > 0.8


def test_tags_say_that_it_reads_text() -> None:
    tags = HardmaxClassifier().__sklearn_tags__()
    assert tags.input_tags.string and not tags.input_tags.two_d_array
    assert tags.estimator_type == "classifier"


def test_pandas_and_arrays(data: Dataset, clf: HardmaxClassifier) -> None:
    expected = clf.predict(data.texts).tolist()
    assert clf.predict(np.array(data.texts)).tolist() == expected
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": data.texts, "label": data.labels})
    again = HardmaxClassifier(leaders=6).fit(frame["text"], frame["label"])
    assert again.predict(frame["text"]).tolist() == expected


def test_polars(data: Dataset, clf: HardmaxClassifier) -> None:
    polars = pytest.importorskip("polars")
    expected = clf.predict(data.texts).tolist()
    series = polars.DataFrame({"text": list(data.texts), "label": data.labels.tolist()})
    again = HardmaxClassifier(leaders=6).fit(series["text"], series["label"])
    assert again.predict(series["text"]).tolist() == expected


class Bare:
    """An array as other libraries hand it over: `__array__` and nothing else."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self.rows, dtype=dtype)


class Arrow:
    """What pyarrow's arrays and tables can do, where pyarrow itself is not installed."""

    def __init__(self, **columns: list) -> None:
        self.columns = list(columns.values())
        self.column_names = list(columns)

    def __getitem__(self, name: str) -> ArrowColumn:
        return ArrowColumn(self.columns[self.column_names.index(name)])


class ArrowColumn:
    def __init__(self, rows: list) -> None:
        self.rows = rows

    def to_pylist(self) -> list:
        return self.rows


def tables() -> list[Any]:
    """Ways to make a table of named columns."""
    out: list[Any] = [pytest.param(Arrow, id="like pyarrow")]
    for library, make in (
        ("pandas", lambda m: lambda **c: m.DataFrame(c)),
        ("polars", lambda m: lambda **c: m.DataFrame(c)),
        ("pyarrow", lambda m: lambda **c: m.table(c)),
    ):
        try:
            out.append(pytest.param(make(__import__(library)), id=library))
        except ImportError:
            out.append(pytest.param(None, id=library, marks=pytest.mark.skip(f"needs {library}")))
    return out


@pytest.mark.parametrize("table", tables())
def test_a_table_of_one_column_is_that_column(table: Callable[..., Any]) -> None:
    texts, labels = ["a good film", "a bad film"] * 4, ["good", "bad"] * 4
    one, both = table(text=texts), table(text=texts, label=labels)
    clf = HardmaxClassifier(ngrams=(1, 1)).fit(one, table(label=labels))
    assert clf.predict(one).tolist() == labels
    assert clf.predict(both["text"]).tolist() == labels
    assert as_labels(both["label"]).tolist() == labels
    with pytest.raises(ValueError, match=r"2 columns: 'text', 'label'; .*table\['text'\]"):
        clf.predict(both)
    with pytest.raises(ValueError, match=r"y: expected one column of labels.*'text', 'label'"):
        clf.fit(one, both)


def test_missing_values_of_every_library_are_named() -> None:
    pandas = pytest.importorskip("pandas")
    for missing in (pandas.NA, pandas.NaT, None, float("nan"), np.nan):
        with pytest.raises(ValueError, match=r"texts\[1\].*missing value"):
            as_texts(["a", missing])
        with pytest.raises(ValueError, match=r"y\[1\]: a missing label"):
            as_labels(["a", missing])


def test_arrays_of_others() -> None:
    assert as_texts(Bare(["a", "b"])) == ["a", "b"]
    assert as_labels(Bare([1, 0])).tolist() == [1, 0]
    assert as_labels(Bare(["x", "y"])).tolist() == ["x", "y"]
    record = np.array([("a",), ("b",)], dtype=[("text", "U3")])
    assert as_texts(record) == ["a", "b"]
    polars = pytest.importorskip("polars")
    with pytest.raises(TypeError, match=r"frame\.collect\(\)"):
        as_texts(polars.LazyFrame({"text": ["a"]}))


def test_the_display_has_nothing_to_complain_about(clf: HardmaxClassifier) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for shown in (clf, HardmaxClassifier(), Pipeline([("clf", clf)])):
            assert "HardmaxClassifier" in shown._repr_html_()


@pytest.mark.parametrize(
    ("share", "number"), [(0.07, 7), (0.1, 10), (1.0, 100), (0.0, 1), (1 / 3, 34)]
)
def test_a_share_of_the_texts_is_a_number_of_them(share: float, number: int) -> None:
    """Term k is in k of 100 texts; 0.07 * 100 is above 7 in floats, and 7 texts are 0.07 of 100."""
    names = [a + b for a in "abcdefghij" for b in "klmnopqrst"]
    texts = [" ".join(names[k] for k in range(100) if k >= t) for t in range(100)]
    found = HardmaxClassifier(ngrams=(1, 1), min_df=share).fit(texts, [0, 1] * 50).vocabulary_
    assert found.df.min() == number and found.df.max() == 100
    assert len(found) == 101 - number


def test_pickling_and_refitting(data: Dataset, clf: HardmaxClassifier) -> None:
    again = pickle.loads(pickle.dumps(clf))
    assert (again.decision_function(data.texts) == clf.decision_function(data.texts)).all()
    moved = HardmaxClassifier(leaders=6).fit(data.texts[:100], data.labels[:100])
    moved.fit(data.texts, data.labels)
    assert (moved.decision_function(data.texts) == clf.decision_function(data.texts)).all()


def test_class_weights_and_sample_weights(data: Dataset) -> None:
    texts, y = data.texts, data.labels
    plain = HardmaxClassifier(leaders=4).fit(texts, y)
    tilted = HardmaxClassifier(leaders=4, class_weight={"positive": 5, "negative": 1}).fit(texts, y)
    assert tilted.decision_function([""])[0] == pytest.approx(np.log(5))
    noisy = synthetic(400, noise=0.4)
    share = [
        (HardmaxClassifier(class_weight=given).fit(noisy.texts, noisy.labels)
         .predict(noisy.texts) == "positive").mean()
        for given in (None, {"positive": 5, "negative": 1})
    ]  # fmt: skip
    assert share[1] > share[0] + 0.05
    weights = np.where(y == "positive", 5.0, 1.0)
    same = HardmaxClassifier(leaders=4).fit(texts, y, sample_weight=weights)
    np.testing.assert_allclose(same.decision_function(texts), tilted.decision_function(texts))
    with pytest.raises(ValueError, match="sample_weight"):
        plain.fit(texts, y, sample_weight=[1.0])


def test_a_class_that_weights_leave_empty_is_refused() -> None:
    data = synthetic(60, classes=("good", "bad", "odd"))
    weight = np.where(data.labels == "odd", 0.0, 1.0)
    with pytest.raises(ValueError, match="sample_weight: leaves no text of the class 'odd'"):
        HardmaxClassifier(leaders=4).fit(data.texts, data.labels, weight)
    with pytest.raises(ValueError, match="at least two classes with a weight > 0"):
        HardmaxClassifier(leaders=4).fit(data.texts, data.labels, 1.0 * (data.labels == "odd"))
    weight[np.flatnonzero(weight == 0)[0]] = 1.0  # one is enough to be known
    clf = HardmaxClassifier(leaders=4).fit(data.texts, data.labels, weight)
    assert clf.classes_.tolist() == ["bad", "good", "odd"]


def test_the_same_seed_gives_the_same_model_in_another_process(tmp_path: Path) -> None:
    program = """
import sys
from cynosure import HardmaxClassifier
from cynosure.classifier.text.datasets import synthetic
data = synthetic(120)
HardmaxClassifier(leaders=5).fit(data.texts, data.labels).save(sys.argv[1])
"""
    found = []
    for name in ("one", "two"):
        path = os.pathsep.join(filter(None, [str(SRC), os.environ.get("PYTHONPATH")]))
        env = {
            **os.environ,
            "PYTHONPATH": path,
            "PYTHONHASHSEED": str(len(name + name) + len(found)),
        }
        subprocess.run([sys.executable, "-c", program, str(tmp_path / name)], check=True, env=env)
        found.append((tmp_path / name / "model.safetensors").read_bytes())
    assert found[0] == found[1]


# --- texts that are not reviews ---------------------------------------------------------------


def test_texts_without_a_known_word_get_the_prior(clf: HardmaxClassifier) -> None:
    for text in ("", "   ", "qqq xyzzy", "...", "日本"):
        assert clf.decision_function([text])[0] == 0.0
        ex = clf.explain(text)
        assert "prior" in ex.note and ex.leaders == () and ex.decision == ex.intercept == 0.0
        assert "prior" in ex.to_html()
    assert clf.explain("great").note == ""
    assert clf.decision_function([]).shape == (0,)


def test_one_word_is_enough(clf: HardmaxClassifier) -> None:
    assert clf.predict(["superb", "tedious"]).tolist() == ["positive", "negative"]


def test_a_text_of_ten_megabytes(clf: HardmaxClassifier) -> None:
    word = " ".join(f"w{i}" for i in range(50_000))
    text = (word + " superb! ") * 31
    assert len(text) > 10_000_000 and clf.predict([text])[0] == "positive"


def test_a_text_of_very_many_terms() -> None:
    texts = [" ".join(f"w{i}" for i in range(s, s + 3000)) + tone for s, tone in
             ((0, " good"), (1500, " bad"), (500, " good"), (1000, " bad")) * 2]  # fmt: skip
    clf = HardmaxClassifier(ngrams=(1, 1)).fit(texts, [1, 0] * 4)
    assert clf.read(texts).leaders.max() <= 10
    assert (clf.predict(texts) == [1, 0] * 4).all()


@pytest.mark.parametrize(
    ("texts", "labels", "error", "message"),
    [
        (["a", "b"], ["x", "x"], ValueError, "at least two classes"),
        (["a", "b"], [0.5, 1.25], ValueError, "continuous"),
        (["a", "b"], ["x", ""], ValueError, r"y\[1\]: an empty label"),
        (["a", "b"], ["x", " "], ValueError, r"y\[1\]: an empty label"),
        (["a", "b"], [0.0, float("inf")], ValueError, r"y\[1\]: an infinite label"),
        (["a", "b"], [date(2020, 1, 1), date(2020, 1, 2)], TypeError, r"y\[0\].*date.*str"),
        (["a", "b"], np.array(["2020-01-01", "2020-01-02"], "M8[D]"), TypeError, "date"),
        (["a", "b"], [Fraction(1, 2), Fraction(1, 3)], TypeError, "Fraction"),
        (["a", "b"], [True, 2], TypeError, "partly booleans"),
        (["a", "b"], [1, 2**70], ValueError, "beyond 64 bits"),
        (["a", "b"], {"x": 0, "y": 1}, TypeError, "keys 'x', 'y'"),
        (["a", "b"], None, ValueError, "y is None"),
        ({"text": ["a", "b"]}, [0, 1], TypeError, "keys 'text'"),
        ({"a", "b"}, [0, 1], TypeError, "no order"),
        (np.array("abc"), [0, 1, 0], TypeError, "got one value 'abc'"),
        (np.array([["a", "b"], ["c", "d"]]), [0, 1], ValueError, r"one column .*\(2, 2\)"),
        (["a", "b"], ["x"], ValueError, "2 texts and 1 labels"),
        ([], [], ValueError, "at least one text"),
        (["a", float("nan")], [0, 1], ValueError, r"texts\[1\].*missing value"),
        (["a", b"\xff"], [0, 1], ValueError, "not UTF-8"),
        (["a", "b"], ["x", None], ValueError, "missing label"),
        (["a", "b"], [0.0, float("nan")], ValueError, r"y\[1\]: a missing label"),
        (["a", "b"], [["x", "y"], ["x", "z"]], ValueError, "one label per text"),
        (["a", "b"], ["x", 1], TypeError, "partly strings"),
        (["a", "b"], "xy", TypeError, "one string"),
        ("text", ["x"], TypeError, r"write \[text\]"),
        ([".", ","], ["x", "y"], ValueError, "no term occurs"),
    ],
)
def test_bad_input_is_named(
    texts: object, labels: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        HardmaxClassifier().fit(texts, labels)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"leaders": 0}, "budget of at least 1"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": -1.0}, "alpha"),
        ({"ngrams": (2, 1)}, "ngrams"),
        ({"ngrams": (1, 2, 3)}, "ngrams"),
        ({"ngrams": (1.5, 2)}, "ngrams: expected two whole numbers"),
        ({"ngrams": 2}, "ngrams"),
        ({"class_weight": "heavy"}, "class_weight"),
        ({"class_weight": {"positive": 0.0, "negative": 1.0}}, "class_weight: .* > 0"),
        ({"layers": 1.5}, "layers: expected a whole number"),
        ({"layers": -1}, "layers"),
        ({"layers": True}, "layers"),
        ({"dim": 2.5}, "dim: expected a whole number"),
        ({"words": float("nan")}, "words"),
        ({"alpha": float("nan")}, "alpha"),
        ({"min_df": 0}, "min_df: expected a number of texts"),
        ({"min_df": 1.5}, "min_df"),
        ({"min_df": -0.1}, "min_df"),
        ({"max_features": -5}, "max_features: expected a whole number >= 1"),
        ({"max_features": 0}, "max_features"),
        ({"max_features": 10.0}, "max_features"),
        ({"random_state": -1}, "random_state"),
        ({"random_state": np.random.default_rng(0)}, "random_state"),
    ],
)
def test_bad_parameters_are_named(data: Dataset, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HardmaxClassifier().set_params(**options).fit(data.texts, data.labels)


def test_a_method_must_be_a_fit(data: Dataset) -> None:
    clf = HardmaxClassifier()
    clf.set_params(method="placed")
    with pytest.raises(TypeError, match=r"expected Placed\(\) or Learned\(\)"):
        clf.fit(data.texts, data.labels)


# --- files and the global view ----------------------------------------------------------------


def test_save_and_load(data: Dataset, clf: HardmaxClassifier, tmp_path: Path) -> None:
    again = HardmaxClassifier.load(clf.save(tmp_path / "model"))
    assert (again.decision_function(data.texts) == clf.decision_function(data.texts)).all()
    assert again.get_params() == clf.get_params()
    assert again.predict(data.texts[:9]).tolist() == clf.predict(data.texts[:9]).tolist()
    assert again.explain(data.texts[0]).to_json() == clf.explain(data.texts[0]).to_json()


def test_save_keeps_labels_weights_and_method(data: Dataset, tmp_path: Path) -> None:
    y = (data.labels == "positive").astype(int)
    clf = HardmaxClassifier(method=Placed(C=2.0), class_weight={0: 1.0, 1: 2.0}).fit(data.texts, y)
    again = HardmaxClassifier.load(clf.save(tmp_path / "m"))
    assert again.classes_.tolist() == [0, 1] and again.class_weight == {0: 1.0, 1: 2.0}
    assert again.method == Placed(C=2.0)
    with pytest.raises(NotFittedError):
        HardmaxClassifier().save(tmp_path / "n")


@pytest.mark.parametrize(
    "options",
    [
        {"layers": np.int64(6), "dim": np.int32(3), "leaders": np.float32(4.5)},
        {"alpha": Fraction(1, 2), "words": Fraction(9, 2), "min_df": np.float64(0.05)},
        {"ngrams": np.array([1, 2]).tolist(), "max_features": np.int64(50)},
        {"lowercase": np.bool_(False), "class_weight": {"positive": np.int64(2), "negative": 1}},
        {"random_state": np.random.RandomState(3)},
        {"random_state": None},
        {"method": Placed(C=float(np.float64(2.0)))},
    ],
)
def test_parameters_of_any_kind_are_saved(data: Dataset, options: dict, tmp_path: Path) -> None:
    clf = HardmaxClassifier(**options).fit(data.texts, data.labels)
    again = HardmaxClassifier.load(clf.save(tmp_path / "m"))
    assert (again.decision_function(data.texts) == clf.decision_function(data.texts)).all()
    refitted = clone(again).fit(data.texts, data.labels)
    assert (refitted.decision_function(data.texts) == clf.decision_function(data.texts)).all()


def test_a_grid_of_numpy_numbers_is_saved(data: Dataset, tmp_path: Path) -> None:
    grid = {"layers": np.arange(2, 4), "leaders": np.linspace(3, 5, 2)}
    search = GridSearchCV(HardmaxClassifier(ngrams=(1, 1)), grid, cv=2)
    best = search.fit(list(data.texts), data.labels).best_estimator_
    again = HardmaxClassifier.load(best.save(tmp_path / "m"))
    assert again.get_params() == best.get_params()


def test_what_cannot_be_saved_is_refused_before_anything_is_written(
    data: Dataset, tmp_path: Path
) -> None:
    clf = HardmaxClassifier(leaders=4).fit(data.texts, data.labels)
    clf.set_params(class_weight={"positive": date(2020, 1, 1)})
    with pytest.raises(TypeError, match="class_weight: a model file cannot hold date"):
        clf.save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_either_of_two_labels_is_explained(data: Dataset, clf: HardmaxClassifier) -> None:
    for text in [*data.texts[:10], "", "great"]:
        second, first = clf.explain(text, "positive"), clf.explain(text, "negative")
        assert second.to_json() == clf.explain(text).to_json()
        assert (first.label, first.other) == ("negative", "positive")
        assert first.decision == -second.decision
        assert second.decision == pytest.approx(clf.decision_function([text])[0], abs=1e-12)
        assert first.probability == clf.predict_proba([text])[0, 0]
        assert first.prediction == second.prediction == clf.predict([text])[0]
        total = first.intercept + sum(leader.contribution for leader in first.leaders)
        assert total == pytest.approx(first.decision, abs=1e-12)
        assert [-w.contribution for w in first.words] == [w.contribution for w in second.words]
        assert first.without(0) == -second.without(0) if first.leaders else True
        assert f'"tie": "{clf.classes_[0]}"' in first.to_html()
    scores = {x.term: x.score for x in clf.lexicon(data.texts[:20], "negative")}
    assert all(-x.score == scores[x.term] for x in clf.lexicon(data.texts[:20]))


def test_lexicon_lists_the_leaders(data: Dataset, clf: HardmaxClassifier) -> None:
    lexicon = clf.lexicon(data.texts[:60])
    assert [x.texts for x in lexicon] == sorted((x.texts for x in lexicon), reverse=True)
    found = {x.term: x for x in lexicon}
    assert all(0 < x.share <= 1 for x in lexicon)
    times = sum(any(e.text == lexicon[0].term for e in clf.explain(t).leaders)
                for t in data.texts[:60])  # fmt: skip
    assert lexicon[0].texts == times
    assert any(x.score > 0 for x in found.values()) and any(x.score < 0 for x in found.values())
    assert len(clf.lexicon(data.texts[:60], top=2)) == 2


@pytest.mark.data
def test_a_part_of_the_real_reviews(imdb: Path) -> None:
    data = read(imdb)
    part = data.take(np.arange(len(data)) % 1250 < 250)
    kept, held = part.split(0.2)
    auto = HardmaxClassifier(ngrams=(1, 1), leaders=10).fit(kept.texts, kept.labels)
    assert auto.score(held.texts, held.labels) > 0.82
    more = auto.read(held.texts).leaders.mean()
    assert more <= 11 or "keeps to the budget" in auto.notes_[0]  # and then it is said
    clf = HardmaxClassifier(ngrams=(1, 1), leaders=10, words=14).fit(kept.texts, kept.labels)
    reading = clf.read(held.texts)
    assert clf.score(held.texts, held.labels) > 0.82
    assert reading.leaders.mean() <= 11 and reading.on_leaders.mean() > 0.99


# --- evidence, terms and threads --------------------------------------------------------------


def test_a_text_without_evidence_gets_the_prior_or_what_abstain_says() -> None:
    for classes in (("a", "b"), ("a", "b", "c")):
        data = synthetic(300, classes=classes)
        rows = np.flatnonzero((data.labels != "a") | (np.arange(300) % 3 == 0))
        texts, y = [data.texts[i] for i in rows], data.labels[rows]
        clf = HardmaxClassifier(ngrams=(1, 1)).fit(texts, y)
        share = [(y == c).mean() for c in clf.classes_]
        assert clf.predict_proba(["xyzzy", ""]) == pytest.approx(np.array([share, share]))
        known = clf.predict(texts[:3])
        assert clf.predict([*texts[:3], "xyzzy"], abstain="?").tolist() == [*known, "?"]
        assert clf.predict([*texts[:3]], abstain="?").tolist() == known.tolist()
        assert "No evidence" in clf.explain("xyzzy").note


def test_several_classes_are_calibrated_together() -> None:
    from cynosure.classifier.evaluating.evaluation import evaluate

    train, test = (synthetic(1500, classes=("a", "b", "c"), noise=0.3, seed=s) for s in (0, 1))
    clf = HardmaxClassifier(ngrams=(1, 1)).fit(train.texts, train.labels)
    found = evaluate(clf, test.texts, test.labels, explained=0)
    assert found.calibration < 0.04 and 0.5 < found.accuracy < 0.99
    ex = clf.explain(test.texts[0])
    assert ex.prediction == clf.predict([test.texts[0]])[0] == ex.label
    odds = ex.decision - ex.rest
    assert ex.probability == pytest.approx(1 / (1 + np.exp(-odds)))


def test_weights_of_the_terms_by_name(clf: HardmaxClassifier, data: Dataset) -> None:
    names, weight = clf.get_feature_names_out(), clf.coef_[0]
    assert names.tolist() == list(clf.vocabulary_.terms) and weight.shape == (len(names),)
    (plane,), text = clf.model_.planes, data.texts[0]
    terms = clf.vocabulary_.encode([text])[0]
    expected = plane.b[0] + weight[terms].sum() / (len(terms) + plane.count)
    assert clf.decision_function([text], layers=0)[0] == pytest.approx(expected)


def test_threads_read_alike(clf: HardmaxClassifier, data: Dataset) -> None:
    many = clone(clf).set_params(n_jobs=3)
    many.model_, many.vocabulary_, many.classes_ = clf.model_, clf.vocabulary_, clf.classes_
    one, other = clf.read(data.texts), many.read(data.texts)
    for name in ("decision", "leaders", "on_leaders", "speaking", "known"):
        assert (getattr(one, name) == getattr(other, name)).all()


def test_parameters_of_the_method_are_searched(data: Dataset) -> None:
    search = GridSearchCV(
        HardmaxClassifier(ngrams=(1, 1), method=Placed()), {"method__C": [0.01, 3.0]}, cv=2
    ).fit(list(data.texts), data.labels)
    assert search.best_params_["method__C"] == search.best_estimator_.method.C
    twin = clone(search.best_estimator_)
    twin.set_params(method__C=7.0)
    assert search.best_estimator_.method.C != 7.0


def test_rows_of_a_table(clf: HardmaxClassifier, data: Dataset) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(clf.explain_all([*data.texts[:3], "xyzzy"]))
    assert table.label[:3].tolist() == clf.predict(data.texts[:3]).tolist()
    assert table.evidence.tolist() == [True, True, True, False]
    assert table.label.isna().tolist() == table.probability.isna().tolist() == [False] * 3 + [True]
    p = clf.predict_proba(data.texts[:3]).max(axis=1)
    assert table.probability[:3].to_numpy() == pytest.approx(p)
    assert table.enough[0] == list(clf.explain(data.texts[0]).enough)


def test_rows_of_a_polars_table(clf: HardmaxClassifier, data: Dataset) -> None:
    """Columns there have one type each, also when the first text has nothing to show."""
    polars = pytest.importorskip("polars")
    table = polars.DataFrame(clf.explain_all(["xyzzy", *data.texts[:3]]))
    assert table["enough"].to_list()[0] == []
    assert table["spans"].to_list() == [
        [{"text": span.text, "contribution": span.contribution} for span in clf.explain(text).spans]
        for text in ("xyzzy", *data.texts[:3])
    ]


def test_opposite_negation_turns_a_word_round() -> None:
    """ "Not" is never seen with a tone: plain negation knows nothing of it, opposite turns it."""
    good, bad = ["superb", "moving", "tender"], ["dull", "awful", "tedious"]
    texts, y = [], []
    rng = np.random.default_rng(0)
    for i in range(300):
        tone = (good if i % 2 else bad)[rng.integers(3)]
        other = (bad if i % 2 else good)[rng.integers(3)]
        said = f"not {other}, " if rng.random() < 0.2 and other != "awful" else ""
        texts.append(f"{said}a film {tone} w{chr(97 + i % 26)}")
        y.append("pos" if i % 2 else "neg")
    clf = HardmaxClassifier(ngrams=(1, 1), negation="opposite").fit(texts, y)
    assert clf.predict(["not dull", "not superb", "superb", "dull"]).tolist() == [
        "pos", "neg", "pos", "neg",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="negation: expected True or False, 'opposite' or None"):
        HardmaxClassifier(negation="maybe").fit(texts, y)
