"""Inspect: the report on a text, the command, Jacobians, and the experiments' own measures."""

from __future__ import annotations

import dataclasses
import io
import json
import shlex
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest

from cynosure.analysis.spectra import freeze
from cynosure.catalogue import study as experiment
from cynosure.cli import main
from cynosure.drawing.plot import new_axes
from cynosure.drawing.report import Report
from cynosure.pretrained import (
    HYPOTHESES,
    Head,
    attention_table,
    cosines,
    facts,
    hypothesis_counts,
    load_transformer,
    sentence_table,
    settling,
)
from cynosure.pretrained.pages.chapters import heads_chapter, tokens_chapter, visible
from cynosure.pretrained.pages.inspection import inspection, iteration_chapter
from cynosure.pretrained.pages.pictures import token_map, write_words
from cynosure.pretrained.reading import examples as examples_module
from cynosure.pretrained.reading.examples import (
    RANDOM,
    example_transformer,
    random_transformer,
    weights_note,
)
from cynosure.pretrained.reading.iterations import (
    agreement,
    foretold,
    frozen_error,
    iterated_cases,
    other_starts,
    places,
    random_tokens,
)
from cynosure.pretrained.reading.jacobians import block_jacobians, coupling
from cynosure.pretrained.reading.surveys import surveyed_trace
from cynosure.pretrained.reading.weights import weights_sha256
from cynosure.simulation.loop import simulate
from cynosure.simulation.steppers import RK4
from cynosure.simulation.trajectory import Status, Trajectory
from test_architecture import _loaded_by
from test_pretrained import random_head
from tiny_models import TEXT, tiny_model, tiny_tokenizer

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("inspect") / "bert"
    tiny_model("bert").save_pretrained(path)
    tiny_tokenizer("bert").save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def m(folder):
    return load_transformer(folder, dtype="float64")


@pytest.fixture(scope="module")
def report(m) -> Report:
    return inspection(m, TEXT, layer=1, head=2)


def rows(report: Report, title: str) -> list[dict]:
    (table,) = [t for r in report.parts() for t in r.tables if t.title == title]
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


# --- the report ---------------------------------------------------------------------------------


def test_the_report_has_its_chapters_figures_and_movie(m, report: Report) -> None:
    titles = ["Tokens by layer", "Attention by layer and head", "Sinks and gathering by layer",
              "Heads", "Does hardmax describe these heads?"]  # fmt: skip
    assert [c.title for c in report.chapters] == titles
    assert [len(c.figures) for c in report.chapters] == [3, 2, 1, 2, 0]
    assert report.chapters[0].movies[0].drawing.startswith(b"GIF8")
    assert "Spectra of L1H2" in [p.title for p in report.chapters[3].figures]
    assert report.params["weights_sha256"] == weights_sha256(m) and TEXT in report.title
    json.loads(report.to_json())


def test_the_tables_are_those_of_the_trace(m, report: Report) -> None:
    trace = m.trace(TEXT)
    by_layer = sentence_table(trace)
    for row, found in zip(by_layer, rows(report, "Tokens by layer"), strict=True):
        assert found["mean cosine"] == row["mean_cosine"] and found["layer"] == row["layer"]
        assert found["clusters at 0.5"] == row["clusters"]
    curve = rows(report, "Clusters by tolerance")
    assert [r["layer 1"] for r in curve] == by_layer[1]["cluster_counts"]
    histogram = rows(report, "Pairwise cosines by layer")
    assert sum(r["layer 2"] for r in histogram) == len(cosines(trace.z[2]))
    shown = rows(report, "Attention by layer and head")
    for row, found in zip(attention_table(trace), shown, strict=True):
        assert found["mass on the argmax"] == row["argmax_mass"]
        assert found["sink"] == trace.words[row["sink"]]
        assert found["leaders"] == ", ".join(trace.words[i] for i in row["leaders"])


def test_the_head_tables_are_the_facts(m, report: Report) -> None:
    heads = [h for layer in range(2) for h in m.heads(layer)]
    spectra, distances = (
        rows(report, "Spectra of the heads"),
        rows(report, "Distances of the heads"),
    )
    for head, one, other in zip(heads, spectra, distances, strict=True):
        row = facts(head)
        assert one["head"] == other["head"] == head.name
        assert one["β = |A|"] == row["beta"] and one["trace V"] == row["trace_V"]
        assert all(other[name] == row[f"distance: {name}"] for name in HYPOTHESES)
    counted = rows(report, "Hypotheses of the theorems")
    for row, found in zip(hypothesis_counts(heads), counted, strict=True):
        assert found["heads that satisfy it"] == row["satisfied"] and found["of"] == 8
    spectrum = [r for r in rows(report, "Eigenvalues of L1H2") if r["matrix"] == "V"]
    values = [complex(r["real part"], r["imaginary part"]) for r in spectrum]
    np.testing.assert_allclose(values, m.heads(1)[2].V_eigenvalues)


def test_sinks_and_gathering_are_those_of_the_survey(m, report: Report) -> None:
    survey = m.survey(TEXT)
    shown = rows(report, "Sinks and gathering by layer")
    assert [row["layer"] for row in shown] == [0, 1]
    for k, row in enumerate(shown):
        assert row["on the first token"] == pytest.approx(survey.heads["first_mass"][k].mean())
        assert row["spread"] == pytest.approx(survey.tokens["spread"][k])
    assert f"factor {survey.collapse:.3f} per layer" in report.chapters[2].summary


@pytest.mark.parametrize("family", ["bert", "llama", "bloom", "albert"])
@pytest.mark.parametrize("layers", [None, 1, 3])
def test_one_pass_gives_trace_and_survey(family: str, layers: int | None, monkeypatch) -> None:
    """For a text and for given tokens, as the two passes give them."""
    m = load_transformer(tiny_model(family), tokenizer=tiny_tokenizer(family))
    layers = None if layers == 3 and family != "albert" else layers
    passes, forward = [], type(m)._forward
    monkeypatch.setattr(
        type(m), "_forward", lambda self, **given: passes.append(1) or forward(self, **given)
    )
    for tokens in (TEXT, random_tokens(m, 5)):
        passes.clear()
        trace, survey = surveyed_trace(m, tokens, layers)
        assert len(passes) == 1
        alone, own = m.trace(tokens, layers), m.survey(tokens)
        np.testing.assert_allclose(trace.z, alone.z, atol=1e-6)
        np.testing.assert_allclose(trace.attentions, alone.attentions, atol=1e-6)
        for name, values in (own.heads | own.tokens).items():
            found = (survey.heads | survey.tokens)[name]
            np.testing.assert_allclose(found, values, rtol=1e-4, atol=1e-5, err_msg=name)
        np.testing.assert_array_equal(survey.leads, own.leads)


def test_a_rotary_head_shows_its_forms_by_offset() -> None:
    model = load_transformer(tiny_model("llama").double(), tokenizer=tiny_tokenizer("llama"))
    found = rows(heads_chapter(model, layer=1, head=2, pictures=False), "Forms of L1H2 by offset")
    head = model.heads(1)[2]
    assert [row["offset j - i"] for row in found] == [0, -1, -2, -4, -8, -16, -64]
    assert found[0]["|A_offset - A| / |A|"] == 0
    for row in found:
        A = head.form(row["offset j - i"])
        assert row["trace"] == pytest.approx(np.trace(A))
        skew = np.linalg.norm(A - A.T) / 2 / np.linalg.norm(A)
        assert row["antisymmetric share"] == pytest.approx(skew)


def test_without_a_choice_the_sharpest_head_is_drawn(m) -> None:
    found = inspection(m, TEXT, pictures=False)
    best = max(attention_table(m.trace(TEXT)), key=lambda row: row["argmax_mass"])
    assert (found.params["layer"], found.params["head"]) == (best["layer"], best["index"])
    assert not any(c.figures or c.movies for c in found.chapters)


@pytest.mark.parametrize("family", ["albert", "gpt2", "qwen3", "bloom", "modernbert"])
def test_other_families_have_a_report_too(family: str) -> None:
    model = load_transformer(tiny_model(family).double(), tokenizer=tiny_tokenizer(family))
    found = inspection(model, TEXT, pictures=False)
    json.loads(found.to_json())
    heads = rows(found, "Spectra of the heads")
    assert len(heads) == (4 if family == "albert" else 8)
    assert ("all with the same weights" in found.summary) == (family == "albert")
    assert ("causal" in found.summary) == (family in ("gpt2", "qwen3", "bloom"))
    chapter = heads_chapter(model, layer=0, head=1)
    assert len(chapter.figures) == 2


def test_words_and_layers_of_the_text(m) -> None:
    whole = "[CLS] The film was slow but the ending is wonderful . [SEP]".split()
    found = inspection(m, TEXT, layers=1, words=True, pictures=False)
    assert [r["layer"] for r in rows(found, "Tokens by layer")] == [0, 1]
    shown = rows(found, "Leaders and sinks by layer")
    assert [r["word"] for r in shown] == whole
    assert found.params["words"] is True and found.params["layers"] == 1
    with pytest.raises(ValueError, match="about a text"):
        inspection(m, layers=1)
    titles = [chapter.title for chapter in found.chapters]
    assert "Sinks and gathering by layer" in titles, "no chapter leaves without a word"
    albert = load_transformer(tiny_model("albert"), tokenizer=tiny_tokenizer("albert"))
    long = inspection(albert, TEXT, layers=48, pictures=False)
    assert len(rows(long, "Tokens by layer")) == 49
    assert len(rows(long, "Attention by layer and head")) == 48 * 4
    assert long.params["layer"] == 0  # the sharpest head may be found at any of the 48
    last = inspection(albert, layer=1, head=2, pictures=False)
    assert rows(last, "Eigenvalues of L0H2") and len(rows(last, "Spectra of the heads")) == 4


def test_a_text_that_was_cut_says_so_in_the_report(m) -> None:
    with pytest.warns(UserWarning, match="cut after"):
        found = inspection(m, TEXT * 10, pictures=False)
    assert "cut after character" in found.summary


def test_one_token_and_odd_words() -> None:
    """No pair of tokens, words that are no words to a typesetter, glyphs a font may lack."""
    words = ("$a_1$", "x^{", "語", "")
    z = np.random.default_rng(0).standard_normal((3, 4, 6))
    P = np.full((2, 1, 4, 4), 0.25)
    from cynosure.pretrained import Trace

    trace = Trace(Trajectory(z, np.arange(3), Status("done", ""), words=words), P, z[:-1])
    assert tokens_chapter(trace).figures[0].encode(".png").startswith(b"\x89PNG")
    alone = Trace(
        Trajectory(z[:, :1], np.arange(3), Status("done", "")), P[..., :1, :1], z[:-1, :1]
    )
    chapter = tokens_chapter(alone)
    assert "from – to –" in chapter.summary
    assert chapter.figures[1].encode(".png").startswith(b"\x89PNG")


def test_a_token_far_longer_than_the_rest_is_drawn_as_a_direction() -> None:
    z = np.random.default_rng(0).standard_normal((3, 5, 4))
    run = Trajectory(z, np.arange(3), Status("done", ""))
    assert visible(run) == (run, "")
    z[1, 0] *= 100
    shown, said = visible(Trajectory(z, np.arange(3), Status("done", "")))
    np.testing.assert_allclose(np.linalg.norm(shown.values, axis=-1), 1)
    assert "directions" in said


@pytest.mark.parametrize("n", [1, 12, 100])
def test_words_lie_over_no_word_and_no_token(n: int) -> None:
    x = np.random.default_rng(n).standard_normal((n, 2))
    ax = new_axes(None, size=(3.0, 3.0) if n > 50 else (6.0, 5.0))
    ax.set(xlim=(-4, 4), ylim=(-4, 4))
    names = [f"word{i}" for i in range(n)]
    left = write_words(ax, x, names)
    ax.figure.draw_without_rendering()
    texts = [t for t in ax.texts if t.get_text()]
    spots = ax.transData.transform(x)
    boxes = [t.get_window_extent() for t in texts]
    shown = [word for t in texts for word in t.get_text().replace("\n", " ").split(", ")]
    assert len(shown) + left == n and len(set(shown)) == len(shown)
    assert left == 0 if n < 50 else left > 0  # 100 words cannot all find room there
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[i + 1 :])
        assert not any(box.contains(*spot) for spot in spots)


def test_a_long_list_keeps_off_its_tokens_in_the_svg_of_a_page() -> None:
    """Glyphs moved to whole pixels make a list shorter on a screen than it is in an SVG."""
    from matplotlib.textpath import text_to_path

    ax = new_axes(None)
    ax.set(xlim=(-1, 9), ylim=(-5, 5))
    words = "at is the I have .".split()
    write_words(ax, np.zeros((len(words), 2)), words)
    (text,) = (t for t in ax.texts if t.get_text())
    font = text.get_fontproperties()
    wide = text_to_path.get_text_width_height_descent(text.get_text(), font, False)[0]
    assert abs(text.xyann[0]) - wide / 2 > 3  # points; a dot reaches 2.5 with its edge
    assert text.get_text() == "at, is, the, I, have, “.”"


def test_two_panels_are_laid_out_before_their_words(monkeypatch) -> None:
    """Words keep off tokens where the tokens are in the end, not where they were on the way."""
    from cynosure.pretrained.pages import pictures
    from cynosure.pretrained.pages.inspection import beside
    from cynosure.pretrained.reading.iterations import Iterated

    places = []

    def write(ax, x, *args, **how):
        ax.figure.draw_without_rendering()
        places.append(ax.transData.transform(x))
        return 2

    monkeypatch.setattr(pictures, "write_words", write)
    z = np.random.default_rng(0).standard_normal((3, 5, 2))
    one, two = (
        Iterated(name, "head", True, Trajectory(x, np.arange(3), Status("done", "")))
        for name, x in (("head 0", z), ("no head", 1e4 * z))  # more room for its numbers
    )
    figure = beside(one, two)
    figure.draw_without_rendering()
    for ax, place in zip(figure.axes, places, strict=True):
        ends = next(line for line in ax.lines if line.get_gid() == "end").get_xydata()
        np.testing.assert_allclose(ax.transData.transform(ends), place, atol=1.0)  # pixels
        assert "2 words found no place" in ax.get_title("left")


def test_tokens_on_one_spot_share_a_list() -> None:
    ax = new_axes(None)
    ax.set(xlim=(-1, 2), ylim=(-1, 2))
    assert write_words(ax, np.array([[0.0, 0], [1, 1], [0, 0]]), ["a", "b", "c"]) == 0
    assert sorted(t.get_text() for t in ax.texts) == ["a, c", "b"]
    ax = new_axes(None)
    assert write_words(ax, np.full((4, 2), 0.5), ["the", "film", "the", "the"]) == 0
    assert [t.get_text() for t in ax.texts] == ["the ×3, film"]
    for count, said in ((3, "0, 1, 2"), (9, "9 tokens")):
        ax = new_axes(None)
        assert write_words(ax, np.full((count, 2), 0.5), [str(i) for i in range(count)]) == 0
        assert [t.get_text() for t in ax.texts] == [said]


def test_a_map_of_many_tokens_shows_those_with_the_largest_values() -> None:
    values = np.random.default_rng(0).random((3, 90)) / 2
    values[1, [7, 80]] = 0.9, 0.8
    figure = token_map(values, [f"w{i}" for i in range(90)], "share")
    shown = [int(t.get_text()[1:]) for t in figure.axes[0].get_xticklabels()]
    assert len(shown) == 40 and shown == sorted(shown) and {7, 80} <= set(shown)
    least = min(values.max(axis=0)[shown])
    assert all(values[:, i].max() <= least for i in range(90) if i not in shown)
    np.testing.assert_array_equal(figure.axes[0].images[0].get_array(), values[:, shown])


# --- iteration ----------------------------------------------------------------------------------


def test_every_run_stands_beside_its_control(m) -> None:
    cases = iterated_cases(m, TEXT, 1, None, 12)
    names = ["whole layer", "all heads", *(f"head {h}" for h in range(4)),
             "whole layer, no head", "no head"]  # fmt: skip
    assert [case.name for case in cases] == names * 2
    silent = m.iterate(TEXT, 1, 12, parts="attention", head=())
    two = cases[4]
    close = {"rtol": 1e-9, "atol": 1e-12}  # sums depend on the number of threads
    np.testing.assert_allclose(two.control.values, silent.values, **close)
    run = m.iterate(TEXT, 1, 12, parts="head", head=2)
    expected = {**settling(run), "control": agreement(run, silent)}
    expected |= {"places": places(run, silent), "norm": True}
    assert {key: two.row[key] for key in expected} == pytest.approx(expected)
    whole = m.iterate(TEXT, 1, 12, head=())
    np.testing.assert_allclose(cases[0].control.values, whole.values, **close)
    assert cases[6].row["control"] is None and not cases[-1].norm
    still = m.iterate(TEXT, 1, 12, parts="head", head=2, frozen=True)
    np.testing.assert_allclose(two.frozen.values, still.values, **close)
    assert (two.row["foretold"], two.row["frozen"]) == pytest.approx(foretold(run, still))
    lead = m.heads(1)[2].leading
    np.testing.assert_allclose(two.coordinates, run.values @ lead.dual, **close)
    ends = np.sort(two.coordinates[-1]) / np.abs(two.coordinates[-1]).max()
    assert two.row["values"] == 1 + (np.diff(ends) > 0.01).sum()
    assert cases[0].coordinates is None and cases[0].row["values"] is None
    assert cases[6].frozen is None and cases[6].row["foretold"] is None


def test_a_prediction_counts_until_it_is_first_ten_per_cent_off() -> None:
    def of(*lengths: float) -> Trajectory:
        z = np.array(lengths)[:, None, None] * np.array([[[3.0, 4.0]]])
        return Trajectory(z, 2 * np.arange(len(z)), Status("done", ""))

    run = of(1, 1, 1, 1)
    np.testing.assert_allclose(frozen_error(run, of(1, 1.05, 1.5, 1)), [0, 0.05, 0.5, 0])
    assert foretold(run, of(1, 1.05, 1.5, 1)) == (2, 0.0)  # what comes right again was luck
    assert foretold(run, of(1, 1, 1, 1.05)) == (6, pytest.approx(0.05))
    assert foretold(of(1, 1), of(1, 1, 1, 1)) == (2, 0.0)  # one of them left the floats


def test_other_starts_have_their_controls(m) -> None:
    found = other_starts(m, TEXT, (0, 1), 3, 4)
    wanted = [(k, start, run) for k in (0, 1) for start in ("text", "random tokens", "unit sphere")
              for run in ("all heads", "head 3", "no head")]  # fmt: skip
    assert [row[:3] for row in found.rows] == wanted
    assert all((row[-1] is None) == (row[2] == "no head") for row in found.rows)
    sphere = random_tokens(m) / np.linalg.norm(random_tokens(m), axis=1, keepdims=True)
    run = m.iterate(sphere, 1, 4, parts="attention", head=3)
    assert found.rows[-2][4] == pytest.approx(settling(run)["mean_cosine"])
    assert {row[1] for row in other_starts(m, None, (0,), None, 2).rows} == {
        "random tokens",
        "unit sphere",
    }


def test_agreement_is_a_mean_of_cosines() -> None:
    def ends(*z) -> Trajectory:
        return Trajectory(np.array([z, z], dtype=float), np.arange(2), Status("done", ""))

    assert agreement(ends([1, 0], [0, 2]), ends([3, 0], [0, 1])) == pytest.approx(1)
    assert agreement(ends([1, 0], [0, 2]), ends([-1, 0], [1, 1])) == pytest.approx(
        (-1 + 2**-0.5) / 2
    )
    assert agreement(ends([1, 0], [0, 0]), ends([1, 0], [0, 1])) is None
    # the same places, taken by other tokens; then one place of two; then a place of its own
    assert places(ends([1, 0], [0, 2]), ends([0, 1], [3, 0])) == pytest.approx(1)
    assert places(ends([1, 0], [1, 0]), ends([0, 1], [3, 0])) == pytest.approx(1)
    assert places(ends([1, 0], [-3, 4]), ends([0, 1], [1, 0])) == pytest.approx(0.8)
    assert places(ends([1, 0], [0, 0]), ends([1, 0], [0, 1])) is None


def test_the_iteration_chapter_says_what_the_control_does(m) -> None:
    chapter = iteration_chapter(m, TEXT, 0, 3, 5)
    assert "every head is silent" in chapter.summary and len(chapter.figures) == 3
    assert chapter.figures[2].encode(".png").startswith(b"\x89PNG")
    table = rows(chapter, "The layer iterated")
    assert [r["run"] for r in table[:3]] == ["whole layer", "all heads", "head 3"]
    used = [r["control"] for r in table if r["norm"] and r["control"] is not None]
    assert f"{min(used):.3f}" in chapter.summary
    assert random_tokens(m, 100).shape == (40, 24)  # as many as the model takes


# --- Jacobians ----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_jacobians_are_differences(family: str) -> None:
    model = load_transformer(tiny_model(family).double(), tokenizer=tiny_tokenizer(family))
    z = model.trace(TEXT).z[1]
    (J,) = block_jacobians(model, z, 1, [3])
    for j in (0, 11, 23):
        up, down = z.copy(), z.copy()
        up[3, j] += 1e-5
        down[3, j] -= 1e-5
        slope = (model.iterate(up, 1, 1).values[-1] - model.iterate(down, 1, 1).values[-1])[
            3
        ] / 2e-5
        np.testing.assert_allclose(J[:, j], slope - np.eye(z.shape[1])[j], atol=1e-6)
    with pytest.raises(ValueError, match="tokens: there are 0 to"):
        block_jacobians(model, z, 1, [99])


def test_coupling_by_its_definition() -> None:
    rng = np.random.default_rng(0)
    J = rng.standard_normal((30, 30))
    assert coupling(J, J, 5) < 1e-12 and coupling(3 * J, J, 5) < 1e-12
    U, S, Vt = np.linalg.svd(J)
    other = U @ np.diag(np.linspace(9, 1, 30)) @ Vt  # same vectors, other values
    assert coupling(other, J, 5) < 1e-12
    turned = np.linalg.qr(rng.standard_normal((30, 30)))[0] @ J
    u, _, vt = np.linalg.svd(turned)
    expected = np.linalg.norm(u[:, :5].T @ J @ vt[:5].T - np.diag(S[:5])) / np.linalg.norm(S[:5])
    assert coupling(J, turned, 5) == pytest.approx(expected) and expected > 0.5
    with pytest.raises(ValueError, match="K: expected 1 to 30"):
        coupling(J, J, 31)


# --- experiments --------------------------------------------------------------------------------


@pytest.fixture
def no_wheel(monkeypatch) -> None:
    monkeypatch.setattr(examples_module, "find_spec", lambda name: None)


def test_the_model_of_the_experiments(no_wheel, folder) -> None:
    named = example_transformer(str(folder))
    assert named.depth == 2 and weights_note(named) == ""
    for family in ("albert", "bert"):
        random = example_transformer("", "Some words, unseen before", family)
        assert RANDOM in random.name and "random" in weights_note(random)
        words = "[CLS] Some words , unseen before [SEP]".split()
        assert list(random.trace("Some words, unseen before").words) == words
        P = random.trace("Some words, unseen before").attentions
        assert 0.2 < P.max(axis=-1).mean() < 0.95  # neither uniform (1/7) nor frozen
    again = random_transformer("Some words, unseen before", "bert")
    assert weights_sha256(again) == weights_sha256(random)
    assert weights_sha256(random_transformer(seed=1)) != weights_sha256(random)


@pytest.mark.filterwarnings("ignore:.*unknown to the tokenizer")  # tiny vocabulary, real texts
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("head_spectra", {"panels": 2}),
        ("head_flow", {"tokens": 4}),
        ("sentence_flow", {"times": 5}),
    ],
)
def test_random_weights_are_called_random(name: str, change: dict, no_wheel) -> None:
    module = experiment(name)
    found = module.run(dataclasses.replace(module.QUICK, **change))
    assert RANDOM in found.summary and "weights are random" in found.summary
    assert found.failures == []


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("head_spectra", {"panels": 0}),
        ("head_flow", {"time": 0.0}),
        ("sentence_flow", {"layers": -1}),
        ("layer_cycles", {"times": 1}),
        ("block_coupling", {"K": 0}),
    ],
)
def test_experiments_refuse_what_they_cannot_measure(name: str, change: dict) -> None:
    module = experiment(name)
    with pytest.raises(ValueError, match="got"):
        module.run(dataclasses.replace(module.QUICK, **change))


def test_the_heads_of_the_paper_with_one_command(tmp_path, capsys) -> None:
    """A small ALBERT stands for ALBERT-xlarge: `--model FOLDER --set only=...`."""
    folder = tmp_path / "albert"
    tiny_model("albert").save_pretrained(folder)
    tiny_tokenizer("albert").save_pretrained(folder)
    out = tmp_path / "out"
    asked = ["run", "head_spectra", "--quick", "--model", str(folder), "--set", "only=1,3"]
    assert main(["-q", *asked, "--out", str(out)]) == 0
    capsys.readouterr()
    found = json.loads((out / "report.json").read_text())
    drawn = found["summary"].split("The heads drawn: ")[1]
    for head in (load_transformer(folder).heads(0)[i] for i in (1, 3)):
        assert f"{head.name}, " in drawn
        if head.leading is not None:
            assert f"⟨Qf, Kf⟩ = {head.leading.form:.3g}" in drawn
    assert "2 heads" in found["figures"][0]["caption"]
    assert main(["-q", *asked[:-1], "only=9", "--out", str(tmp_path / "no")]) == 2
    assert "no head L0H9; there are L0H0 to L0H3" in capsys.readouterr().err
    assert main(["-q", "run", "figure1", "--model", "x", "--out", str(tmp_path / "no")]) == 2
    assert "model" in capsys.readouterr().err


def a_good_head() -> Head:
    d, zero = 4, np.zeros(4)
    V = np.diag([1.0, 0.3, -0.2, 0.1])
    return Head(np.eye(d), np.eye(d), V, np.eye(d), zero, zero, zero)


def test_three_values_can_fail() -> None:
    from studies.transformers.head_flow import three_values

    head, z = a_good_head(), np.random.default_rng(3).standard_normal((9, 4))
    tr = simulate(head.leading_flow(), z, time=12.0, stepper=RK4(0.05))
    right = three_values(head, tr)
    assert right.applies and right.holds and right.margin > 0
    moved = tr.z.copy()
    ends = moved[-1, :, 0]
    moved[-2:, 0, 0] = (ends.max() - ends.min()) / 3 + ends.min()  # a fourth value, standing still
    wrong = three_values(head, dataclasses.replace(tr, z=moved))
    assert wrong.applies and not wrong.holds
    early = simulate(head.leading_flow(), z, time=0.5, stepper=RK4(0.05))
    assert three_values(head, early).holds is None


@pytest.mark.parametrize("causal", [False, True])
def test_the_flow_of_the_experiment_is_that_of_the_whole_head(causal: bool) -> None:
    """Run in the small space the head acts on, against the flow in all d dimensions."""
    from cynosure.pretrained.reading.head_flows import growth_rate, head_run

    head = random_head(2, 11, seed=4, causal=causal)  # 8 of 11 dimensions
    z = np.random.default_rng(0).standard_normal((6, 11)) / 3
    tr, twin = head_run(head, z, 3.0, 0.01)
    assert 0 < twin < 1e-7  # close to its twin, but not the same
    full = dataclasses.replace(head, causal=False).leading_flow()
    expected = simulate(full, z, times=tr.t, stepper=RK4(0.01 / growth_rate(head)))
    np.testing.assert_allclose(tr.values, expected.values, rtol=1e-6, atol=1e-8)
    assert tr.t[-1] == pytest.approx(3.0 / growth_rate(head))


def test_decay_growth_and_values_of_a_run() -> None:
    from cynosure.pretrained.reading.head_flows import decay
    from studies.transformers.head_flow import _row

    head, t = a_good_head(), np.linspace(0, 15, 61)
    ends = np.array([[1.0, 0, 0, 0], [1, 0, 0, 0], [-2, 0, 0, 0]])
    start = np.random.default_rng(0).standard_normal((3, 4))

    def run(values: np.ndarray) -> Trajectory:
        return Trajectory(values, t, Status("done", ""))

    fades = run(ends + np.exp(-0.7 * t)[:, None, None] * start)
    assert decay(head, fades) == pytest.approx(0.7, rel=1e-3)
    row = _row(head, "text", fades, 0.0)
    assert row["good triple"] and row["values of f1*"] == row["clusters of y"] == 2
    assert (row["least"], row["largest"]) == pytest.approx((-2, 1), abs=1e-3)
    grows = _row(head, "text", run(np.exp(3 * t)[:, None, None] * start), 0.0)
    assert grows["values of f1*"] is grows["least"] is grows["largest"] is None
    assert grows["growth"] > 1e6


def test_all_heads_on_the_sphere_meet() -> None:
    """Two equal heads with V = I are one with 2I, and B30 says that its tokens meet."""
    from cynosure.pretrained.reading.head_flows import pace, sphere_run

    head = dataclasses.replace(a_good_head(), W_V=np.eye(4))
    z = np.random.default_rng(1).standard_normal((7, 4)) / 2  # beta = |z|² about 1
    end, when = sphere_run((head, head), z, 60.0)
    assert pace((head, head)) == pytest.approx(2)
    assert end["clusters"] == 1 and 0 < when < 60
    early, never = sphere_run((head, head), z, 0.5)
    assert early["clusters"] == 7 and never is None


def test_frozen_attention_of_a_head_is_the_master_equation() -> None:
    from scipy.linalg import expm

    head = random_head(3, 5)
    x = np.random.default_rng(1).standard_normal((6, 5)) / 3
    times = np.linspace(0, 0.6, 7)
    tr = simulate(head.flow(), x, times=times, stepper=RK4(0.01))
    generator = np.kron(head.attention().weights(x), head.V)
    expected = [(expm(t * generator) @ x.ravel()).reshape(6, 5) for t in times]
    np.testing.assert_allclose(freeze(tr, 0).predicted, expected, rtol=1e-9, atol=1e-12)


# --- the command --------------------------------------------------------------------------------


def test_a_model_alone_prints_its_heads(folder, capsys) -> None:
    assert main(["inspect", "heads", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert "Hypotheses of the theorems" in out and "L1H3" in out
    assert "bert, 2 layers of 4 heads" in err
    assert main(["inspect", "heads", str(folder), "--layer", "1", "-q"]) == 0
    out, err = capsys.readouterr()
    assert "L1H3" in out and "\nL0H" not in out and err == ""
    assert main(["inspect", "heads", str(folder), "--layer", "1", "--head", "2"]) == 0
    out = capsys.readouterr().out
    assert "Eigenvalues of L1H2" in out and "\nL1H3" not in out


def test_a_text_prints_tokens_and_attention(folder, capsys) -> None:
    assert main(["inspect", "text", str(folder), TEXT]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Tokens by layer") and "Attention by layer and head" in out
    assert "mean cosine" in err and "[CLS]" in out
    assert main(["inspect", "text", str(folder), TEXT * 10]) == 0
    assert "cut after character" in capsys.readouterr().err


@pytest.mark.parametrize("family", ["albert", "gpt2"])
def test_a_folder_of_another_family_from_end_to_end(family, tmp_path, capsys) -> None:
    path = tmp_path / family
    tiny_model(family).save_pretrained(path)
    tiny_tokenizer(family).save_pretrained(path)
    text = ["inspect", "text", str(path), TEXT, "--words", "-q"]
    assert main([*text, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    tables = {t["title"]: t["rows"] for c in data["chapters"] for t in c["tables"]}
    words = [row[2] for row in tables["Leaders and sinks by layer"] if row[0] == 0]
    assert [w for w in words if w not in ("[CLS]", "[SEP]")] == TEXT[:-1].split() + ["."]
    assert main([*text, "--layers", "48"]) == (0 if family == "albert" else 2)
    out, err = capsys.readouterr()
    assert ("L47H3" in out) == (family == "albert")
    assert ("only a weight-shared model can be run deeper" in err) == (family == "gpt2")
    assert main(["inspect", "heads", str(path), "--layer", "1", "-q"]) == 0
    heads = capsys.readouterr().out  # of ALBERT, layer 1 is layer 0 again
    assert ("\nL0H3" in heads, "\nL1H3" in heads) == (family == "albert", family == "gpt2")
    assert main(["inspect", "iterate", str(path), "--layer", "1", "--times", "3", "-q"]) == 0
    assert "unit sphere" in capsys.readouterr().out


def test_json_is_one_document(folder, capsys) -> None:
    assert main(["inspect", "text", str(folder), TEXT, "--json", "-q"]) == 0
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert err == "" and data["command"].startswith("cynosure inspect")
    assert data["params"]["text"] == TEXT and len(data["params"]["weights_sha256"]) == 64
    assert [c["title"] for c in data["chapters"]][-2] == "Heads"


def test_iteration_prints_the_control(folder, capsys) -> None:
    args = ["inspect", "iterate", str(folder), "--layer", "1", "--head", "2", "--times", "4"]
    assert main(args) == 0
    out, err = capsys.readouterr()
    assert "head 2" in out and "no head" in out and "head 1" not in out
    assert "random tokens" in err and "silent" in err
    assert main([*args[:5], "--times", "2", "--text", TEXT]) == 0
    out, err = capsys.readouterr()
    assert "head 3" in out and "the tokens of the text" in err


def test_a_page_with_everything_is_left_and_not_overwritten(folder, tmp_path, capsys) -> None:
    out = tmp_path / "page"
    args = [
        "inspect",
        "iterate",
        str(folder),
        "--layer",
        "0",
        "--head",
        "1",
        "--times",
        "3",
        "--out",
    ]
    out.mkdir()
    (out / "report.html").write_text("an earlier one")
    assert main([*args, str(out)]) == 2
    assert "--force" in capsys.readouterr().err
    assert [p.name for p in out.iterdir()] == ["report.html"]
    assert main([*args, str(out), "--force"]) == 0
    assert capsys.readouterr().out.strip() == str(out / "report.html")
    assert "an earlier one" not in (out / "report.html").read_text("utf-8")
    assert {p.name for p in out.iterdir()} == {"report.html", "report.json", "data"}
    assert len(json.loads((out / "report.json").read_text("utf-8"))["chapters"]) == 1
    written = {p.suffix for p in out.glob("data/1-layer-0-iterated/*")}
    assert written == {".csv", ".png", ".svg"}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("heads MODEL --layer 2", "layers 0 to 1"),
        ("heads MODEL --layer -1", "layers 0 to 1"),
        ("heads MODEL --layer 1 --head 4", "heads 0 to 3"),
        ("heads MODEL --head 1", "say which layer"),
        ("heads MODEL --layer x", "--layer"),
        ("heads MODEL --words", "--words"),
        ("iterate MODEL --times 3", "say which layer"),
        ("iterate MODEL --times 0 --layer 0", "--times"),
        ("iterate MODEL --layer 0 --words", "about a text"),
        ("iterate MODEL --layer 0 --text a --image b.png", "one or the other"),
        ("text MODEL '  '", "empty"),
        ("text MODEL a --layers 3", "only a weight-shared model can be run deeper"),
        ("text MODEL a --layers 0", "at least 1"),
        ("text MODEL", "TEXT"),
        ("survey MODEL lines.txt", "--store"),
        ("survey MODEL lines.txt --store c.zarr --layer 0", "--layer"),
        ("MODEL", "No such command"),
    ],
)
def test_bad_options_are_one_line_and_exit_2(folder, args, words, capsys) -> None:
    words_typed = [str(folder) if word == "MODEL" else word for word in shlex.split(args)]
    assert main(["inspect", *words_typed]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and words in err and "Traceback" not in err


def test_bad_models_are_one_line_and_exit_2(folder, tmp_path, capsys) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    from safetensors.torch import load_file

    torch.save(load_file(broken / "model.safetensors"), broken / "pytorch_model.bin")
    (broken / "model.safetensors").unlink()
    cases = [(["./nowhere"], "no such folder"), ([str(tmp_path)], "no config.json"),
             ([str(broken)], "pickled")]  # fmt: skip
    for args, words in cases:
        assert main(["inspect", "heads", *args]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and words in err
    assert main(["inspect", "heads", str(broken), "--allow-pickle"]) == 0
    (broken / "tokenizer.json").unlink()
    (broken / "tokenizer_config.json").unlink()
    capsys.readouterr()
    assert main(["inspect", "text", str(broken), TEXT, "--allow-pickle"]) == 2
    assert "without a tokenizer" in capsys.readouterr().err


def test_a_folder_needs_no_network(folder, monkeypatch, capsys) -> None:
    def refuse(*args, **kwargs):
        raise AssertionError("a connection was asked for")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert main(["inspect", "text", str(folder), TEXT, "--json"]) == 0
    json.loads(capsys.readouterr().out)


def test_help_is_light() -> None:
    program = "from cynosure.cli import main\nassert main(['inspect', 'text', '--help']) == 0"
    assert _loaded_by(program, "torch transformers matplotlib sklearn scipy") == []


def test_a_text_may_come_from_stdin(folder, monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(TEXT + "\n"))
    assert main(["inspect", "text", str(folder), "-", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["params"]["text"] == TEXT
