"""Models in other languages: the readers of the exported file against the model itself."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest

import cynosure as cy
from cynosure.classifier import exports
from cynosure.classifier.exports import write_json
from cynosure.classifier.text.datasets import synthetic

READER = Path(exports.__file__).parent
THREE = synthetic(300, classes=("a", "b", "c"), noise=0.3)
MODELS = {
    "imdb": cy.load_pretrained(),
    "three": cy.HardmaxClassifier(words=3).fit(THREE.texts, THREE.labels),
    "unbounded": cy.HardmaxClassifier(ngrams=(1, 3), words=None, negation=False).fit(
        THREE.texts[:200], np.where(THREE.labels[:200] == "a", 1, 0)
    ),
}
ODD = [
    "", "zzz", "Don't <br />stop! NOT that good, but fun.", "It's <script>bad</script> awful",
    "<style>wonderful", "a < b and b > a", "l'été où “l’œuvre” fut BELLE; ÉTÉ", "电影很好看!",
    "naïve café ǅungla ß İstanbul", "good😀bad 3.14 <b>great</b> O'Brien's 'quoted'", "not! good",
    "never ever seen anything dull", "wonderful wonderful awful", "ʼtis … what—a mess«superb»",
]  # fmt: skip


def texts_of(name: str) -> list[str]:
    reviews = ["A slow film, but what a wonderful ending! I was not bored at all.",
               "The plot is a mess, the acting is awful. A waste of two hours."]  # fmt: skip
    return [*ODD, *reviews, *THREE.texts[:60]]


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("exported")
    return {name: write_json(clf, folder / f"{name}.json") for name, clf in MODELS.items()}


@pytest.mark.parametrize("name", MODELS)
def test_sql_gives_the_decisions(name: str, exported) -> None:
    clf, model = MODELS[name], json.loads(exported[name].read_text("utf-8"))
    db = sqlite3.connect(":memory:")
    db.executescript(
        'CREATE TABLE plane(plane, intercept, prior, count, kappa, "left", together);'
        "CREATE TABLE ray(plane, ray, score, level, value); CREATE TABLE texts(text);"
        "CREATE TABLE term(plane, term, ray, radius); CREATE TABLE found(text, term);"
        "CREATE INDEX terms ON term(term);"
    )
    for p, plane in enumerate(model["planes"]):
        keys = ("intercept", "prior", "count", "kappa", "left")
        db.execute(
            "INSERT INTO plane VALUES (?,?,?,?,?,?,?)",
            (p, *(plane[k] for k in keys), model["together"]),
        )
        rays = zip(plane["score"], plane["level"], plane["value"])
        db.executemany(
            "INSERT INTO ray VALUES (?,?,?,?,?)", [(p, g, *ray) for g, ray in enumerate(rays)]
        )
        terms = zip(plane["ray"], plane["radius"])
        db.executemany(
            "INSERT INTO term VALUES (?,?,?,?)", [(p, j, *term) for j, term in enumerate(terms)]
        )
    texts = texts_of(name)
    documents = clf.vocabulary_.encode(texts)
    db.executemany("INSERT INTO texts VALUES (?)", [(t,) for t in range(len(texts))])
    found = [(t, j) for t in range(len(texts)) for j in documents[t].tolist()]
    db.executemany("INSERT INTO found VALUES (?,?)", found)
    rows = db.execute((READER / "reader.sql").read_text()).fetchall()
    verdicts = clf.read(texts)
    got = np.array([row[3] for row in rows]).reshape(len(texts), -1)
    np.testing.assert_allclose(got, verdicts.decision, rtol=1e-9, atol=1e-9)
    words = np.array([row[2] for row in rows]).reshape(len(texts), -1)
    assert (words == verdicts.speaking).all()


@pytest.mark.parametrize("name", MODELS)
def test_javascript_gives_labels_probabilities_and_words(name: str, exported, tmp_path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    from test_browser import found_browser  # skips where there is none

    clf, texts = MODELS[name], texts_of(name)
    script = (READER / "reader.js").read_text("utf-8").replace("export function", "function")
    with playwright.sync_playwright() as run:
        browser = run.chromium.launch(executable_path=found_browser(), args=["--no-sandbox"])
        page = browser.new_page()
        page.add_script_tag(content=script)
        got = page.evaluate(
            "([model, texts]) => { const m = JSON.parse(model), read = reader(m);"
            " return texts.map((t) => [words(t, m.tokenizer), read(t)]); }",
            [exported[name].read_text("utf-8"), texts],
        )
        browser.close()
    verdicts, p = clf.read(texts), clf.predict_proba(texts)
    labels = clf.predict(texts)
    for t, (words, one) in enumerate(got):
        assert words == [w for w, *_ in clf.vocabulary_.tokenizer.words(texts[t])], texts[t]
        np.testing.assert_allclose(one["decisions"], verdicts.decision[t], rtol=1e-9, atol=1e-9)
        if verdicts.evidence[t]:
            assert one["label"] == labels[t]
            assert one["probability"] == pytest.approx(p[t].max(), abs=1e-12)
        else:
            assert one["label"] is None and one["probability"] is None
        assert set(one["read"]) == {w.text for w in clf.explain(texts[t], labels[t]).read}


def test_a_learned_model_is_refused(tmp_path) -> None:
    from cynosure.classifier.explaining.loaded_model import LoadedModel
    from test_explanation import loose_classifier

    vocabulary, model = loose_classifier(0)
    with pytest.raises(ValueError, match="fitted by Placed"):
        write_json(LoadedModel(model, vocabulary, np.array(["a", "b"])), tmp_path / "x.json")
    assert not (tmp_path / "x.json").exists()
