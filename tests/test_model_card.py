"""The card of a model: its words are the strongest, its counts those of a plain count."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cynosure import HardmaxClassifier, datasets
from cynosure.classifier.evaluating.model_card import _interval, card
from cynosure.cli import main

TRAIN = datasets.synthetic(120, seed=1, noise=0.25)
TEST = datasets.synthetic(60, seed=2, noise=0.25)


@pytest.fixture(scope="module")
def clf() -> HardmaxClassifier:
    return HardmaxClassifier(leaders=6).fit(TRAIN.texts, TRAIN.labels)


@pytest.mark.many
def test_the_card_says_what_the_model_and_the_texts_say(clf) -> None:
    report = card(clf, TEST, name="mine")
    tables = {table.title: table for part in report.parts() for table in part.tables}
    coef = dict(zip(clf.get_feature_names_out(), clf.coef_[0]))
    for label, sign in (("negative", -1), ("positive", 1)):
        rows = tables[f"Words for {label}"].rows
        weights = [sign * coef[term] for term, *_ in rows]
        assert [row[1] for row in rows] == weights and min(weights) > 0
        assert weights[0] == pytest.approx(max(sign * w for w in coef.values()))
        leads = {lexeme.term: lexeme.texts for lexeme in clf.lexicon(TEST.texts, top=None)}
        assert [row[3] for row in rows] == [leads.get(row[0], 0) for row in rows]
    labels, guess = TEST.labels.tolist(), clf.predict(TEST.texts).tolist()
    count = Counter(zip(labels, guess, strict=True))
    names = clf.classes_.tolist()
    for name, row in zip(names, tables["What is taken for what"].rows, strict=True):
        assert row[:-1] == (name, *(count[name, other] for other in names))
    sure = clf.predict_proba(TEST.texts).max(axis=1)
    wrong = [i for i in np.argsort(-sure, kind="stable") if labels[i] != guess[i]]
    said = [row for row in tables["Examples"].rows if row[0] == "surely wrong"]
    assert [row[3] for row in said] == [f"{sure[i]:.3f}" for i in wrong[:5]]
    for row, i in zip(said, wrong):
        assert row[4].split(", ")[0] == clf.explain(TEST.texts[i]).enough[0]
    assert ("training texts", "120") in tables["The model"].rows
    page = report.to_html()
    assert "Model card: mine" in page and "http://" not in page.replace("http://www.w3.org", "")


def test_a_loaded_model_says_how_many_texts_it_was_made_from(clf, tmp_path: Path) -> None:
    again = HardmaxClassifier.load(clf.save(tmp_path / "model"))
    assert again.texts_ == clf.texts_ == len(TRAIN)
    again.texts_ = None  # as files say that were written before
    old = HardmaxClassifier.load(again.save(tmp_path / "old"))
    assert ("training texts", "not recorded") in card(old).tables[0].rows
    again.texts_ = "120"  # type: ignore[assignment]
    with pytest.raises(ValueError, match="texts: expected how many"):
        HardmaxClassifier.load(again.save(tmp_path / "strange"))


def test_intervals_of_shares_stay_within_and_are_never_empty() -> None:
    share, count = np.array([0.0, 1.0, 0.5, 2 / 3]), np.array([2, 8, 4, 3])
    low, high = _interval(share, count)
    assert (low >= -1e-12).all() and (high <= 1 + 1e-12).all() and (high - low > 0.1).all()
    for end in (low, high):  # Wilson: the shares 1.96 standard errors away, of their own error
        assert (share - end) ** 2 == pytest.approx(1.96**2 * end * (1 - end) / count, abs=1e-12)


def test_long_cells_keep_the_width_of_a_line(clf) -> None:
    """Or a phone shows an example's text as a column of single words."""
    examples = card(clf, TEST).chapters[0].tables[-1]
    text = examples.rows[0][-1]
    assert len(text) > 60 and f'<td class="say">{text}' in examples.to_html()


def test_a_card_of_several_classes_and_without_texts() -> None:
    data = datasets.synthetic(90, classes=("a", "b", "c"))
    report = card(HardmaxClassifier(leaders=4).fit(data.texts, data.labels))
    titles = [table.title for table in report.tables]
    assert titles == ["The model", "Words for a", "Words for b", "Words for c"]
    assert not report.chapters and len(report.figures) == 1


def test_the_command_writes_the_page_and_prints_the_tables(clf, tmp_path: Path, capsys) -> None:
    model = clf.save(tmp_path / "model")
    lines = [json.dumps({"text": t, "label": y}) for t, y in zip(TEST.texts[:8], TEST.labels[:8])]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    line = ["card", str(model), "--data", str(tmp_path / "texts.jsonl")]
    assert main([*line, "--html", str(tmp_path / "card.html"), "-q"]) == 0
    assert "What is taken for what" in (tmp_path / "card.html").read_text()
    assert capsys.readouterr().out == ""
    assert main([*line, "--html", str(tmp_path / "card.html"), "-q"]) == 2
    assert "exists" in capsys.readouterr().err
    assert main([*line, "-q"]) == 0
    assert "Words for positive" in capsys.readouterr().out
