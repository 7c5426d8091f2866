"""The null models of the experiments on real transformers, and the controls computed from them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import cynosure as cy
from cynosure.pretrained.pages.pictures import grid, word_paths, write_words
from cynosure.pretrained.reading.examples import random_transformer
from cynosure.pretrained.reading.head_flows import head_run
from cynosure.pretrained.reading.jacobians import coupling
from cynosure.pretrained.reading.weights import untrained
from cynosure.simulation.trajectory import Status, Trajectory
from studies.transformers import _head_ends as head_ends
from studies.transformers import _head_places, _models, layer_cycles, sentence_flow
from studies.transformers._crowds import Crowd, crowd_controls
from studies.transformers._layer_pairs import Decomposed, Pair, coupled, gaps
from studies.transformers._null_heads import (
    MATRICES,
    forms,
    is_good,
    lean,
    named_heads,
    random_head,
    uniform_head,
)
from studies.transformers._sentence_starts import KEYS
from test_studies import quick

MODEL = random_transformer()


def heads() -> list[cy.pretrained.Head]:
    return [head for layer in MODEL.distinct_layers for head in MODEL.heads(layer)]


# --- heads that know nothing --------------------------------------------------------------------


def test_a_random_head_has_the_shape_and_norms_of_the_trained_one_and_nothing_else() -> None:
    head = heads()[0]
    one, two = (random_head(head, np.random.default_rng(k)) for k in (0, 1))
    for name in MATRICES:
        real, a, b = (getattr(h, name) for h in (head, one, two))
        assert a.shape == real.shape and np.linalg.norm(a) == pytest.approx(np.linalg.norm(real))
        assert np.abs(a - b).max() > 0 and abs((a * real).sum()) < 0.5 * np.linalg.norm(real) ** 2
    assert one.name == head.name


def test_forms_have_the_heads_own_on_the_diagonal() -> None:
    all_ = heads()
    F = forms(all_)
    for i, head in enumerate(all_):
        if head.leading is None:
            assert np.isnan(F[i]).all()
        else:
            assert F[i, i] == pytest.approx(head.leading.form)
            f = head.leading.f
            assert F[i, 1] == pytest.approx(float((all_[1].Q @ f) @ (all_[1].K @ f)))


def test_the_lean_of_a_spectrum() -> None:
    d, zero = 4, np.zeros(4)

    def of(values: list[float]) -> float:
        V = np.diag(values)
        return lean(cy.pretrained.Head(np.eye(d), np.eye(d), V, np.eye(d), zero, zero, zero))

    assert of([1.0, 2, 3, 4]) == of([-1.0, -2, -3, -4]) == 1.0
    assert of([1.0, 2, -3, -4]) == 0.0 and of([1.0, 2, 3, -4]) == 0.5


def test_uniform_attention_in_closed_form_is_its_flow() -> None:
    head = next(h for h in heads() if h.leading is not None)
    z0 = np.random.default_rng(0).standard_normal((7, head.Q.shape[1]))
    end = head_ends.uniform_end(head, z0, 3.0)
    tr, _ = head_run(uniform_head(head), z0, 3.0, 0.01)
    assert head.leading is not None
    np.testing.assert_allclose(end, tr.values[-1] @ head.leading.dual, rtol=1e-7, atol=1e-9)
    late = head_ends.uniform_row(head, "text", z0, 20.0)
    assert late["values of f1*"] == 1


# --- controls that can say no and yes -----------------------------------------------------------


def rows(group: str, counts: list[int]) -> list[dict]:
    return [
        {"head": f"{group}{i}", "start": "text", "group": group, "values of f1*": k, "finer": k,
         "coarser": k}
        for i, k in enumerate(counts)
    ]  # fmt: skip


def test_few_values_are_a_mark_only_where_others_have_more() -> None:
    good = rows(head_ends.GOOD, [2] * 20)
    alike = head_ends.grouped([*good, *rows(head_ends.OTHER, [1] * 20)])
    apart = head_ends.grouped([*good, *rows(head_ends.OTHER, [5] * 20)])
    (few, keeps), (few_, keeps_) = (head_ends.end_controls(x) for x in (alike, apart))
    assert not few.survives and keeps.survives  # others end at one value, good triples at two
    assert few_.survives and not keeps_.survives
    assert "20 of 20" in few.seen
    uncounted = head_ends.grouped([*rows(head_ends.GOOD, [2]), *rows(head_ends.OTHER, [1])])
    assert uncounted[0].heads == 1 and uncounted[0].within(1) == 0
    nothing = [row | {"values of f1*": None} for row in good]
    assert head_ends.grouped(nothing)[0].heads == 0


def crowd(kind: str, clusters: int) -> Crowd:
    return Crowd(0, kind, "text", clusters, 1.0, 0.0, None, 5)


def test_a_single_cluster_is_training_only_where_null_models_have_more() -> None:
    mine = [crowd("trained heads", 1)] * 20
    (same,) = crowd_controls([*mine, *[crowd("uniform attention", 1)] * 20])
    (other,) = crowd_controls([*mine, *[crowd("uniform attention", 3)] * 20])
    assert not same.survives and other.survives
    assert crowd_controls(mine) == []


def test_places_of_a_control() -> None:
    z = np.array([[1.0, 0, 0], [1, 0.001, 0], [0, -2, 0]])
    places = _head_places.centres(z)
    assert len(places) == 2 and np.linalg.norm(places, axis=1) == pytest.approx([1, 1])
    assert _head_places.at_places(places[:1], places)
    assert not _head_places.at_places(-places, places)


def test_the_rule_of_places_is_computed() -> None:
    def counted(own: int, any_: int, other: int) -> _head_places.Counted:
        return _head_places.Counted(layer=1, text=0, heads=12, own=own, any=any_, other=other)

    verdicts = [c.survives for c in _head_places.place_controls([counted(7, 12, 0)])]
    assert verdicts == [False, True, True]
    verdicts = [c.survives for c in _head_places.place_controls([counted(12, 12, 12)])]
    assert verdicts == [True, True, False]


# --- layers -------------------------------------------------------------------------------------


def test_coupling_from_decompositions_is_coupling() -> None:
    draw = np.random.default_rng(0)
    for d, K in ((6, 3), (9, 9)):
        J, L = draw.standard_normal((2, d, d))
        assert coupled(Decomposed.of(J), Decomposed.of(L), K) == pytest.approx(coupling(J, L, K))
        assert coupled(Decomposed.of(J), Decomposed.of(J), K) == pytest.approx(0, abs=1e-12)


def test_gaps_are_over_tokens_and_signed() -> None:
    def pair(token: int, first: int, second: int, m: float) -> Pair:
        return Pair(
            weights="trained", text=0, token=token, first=first, second=second, m=m,
            traceless=m, turned=1.0, others=(),
        )  # fmt: skip

    pairs = [pair(0, 0, 1, 0.5), pair(0, 1, 2, 0.7), pair(0, 0, 2, 0.9), pair(1, 0, 1, 0.5)]
    np.testing.assert_allclose(gaps(pairs, "trained", "m"), [0.3])  # token 1 has no distant pair
    assert len(gaps(pairs, "untrained", "m")) == 0


def test_the_untrained_model_is_the_same_architecture_with_other_weights() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, two, three = (untrained(MODEL, seed) for seed in (0, 0, 1))
    assert torch.equal(before, torch.random.get_rng_state())
    a, b, c, real = (m.heads(0)[0].Q for m in (one, two, three, MODEL))
    assert a.shape == real.shape and (a == b).all()
    assert np.abs(a - c).max() > 0 and np.abs(a - real).max() > 0
    assert "untrained" in one.name and one.depth == MODEL.depth
    assert one.trace("The film was slow").z.shape == MODEL.trace("The film was slow").z.shape


# --- sentences ----------------------------------------------------------------------------------


def test_random_words_leave_special_tokens_and_draw_whole_words() -> None:
    known = sentence_flow.vocabulary(MODEL)
    assert MODEL.tokenizer is not None
    named = MODEL.tokenizer.convert_ids_to_tokens(known.tolist())
    assert all(w.isalpha() for w in named) and not set(named) & {"[CLS]", "[SEP]"}
    ids, special = sentence_flow.ids_of(MODEL, "The film was slow", 50)
    drawn = sentence_flow.random_words(ids, special, known, np.random.default_rng(0))
    assert len(drawn) == len(ids) and (np.array(drawn)[special] == ids[special]).all()
    assert np.isin(np.array(drawn)[~special], known).all()


def ensemble(name: str, ends: list[float]) -> sentence_flow.Ensemble:
    values = {key: np.column_stack((np.zeros(len(ends)), ends)) for key in KEYS}
    return sentence_flow.Ensemble(name, values)


def test_a_sentence_is_judged_by_random_words() -> None:
    def controls(sentence: float, words: list[float], more: float) -> list[bool]:
        named = {
            "sentence": [sentence],
            sentence_flow.ORDER: [0.2, 0.4],
            sentence_flow.WORDS: words,
            sentence_flow.GAUSSIAN: [0.7, 0.8],
        }
        starts = {name: ensemble(name, ends) for name, ends in named.items()}
        shifts = np.linspace(-0.01, 0.01, 8)
        beside = [sentence_flow.Beside(more + x, more + x) for x in shifts.tolist()]
        return [c.survives for c in sentence_flow._controls(starts, beside)]

    # Below Gaussian tokens and above random words: the published claim falls.
    assert controls(0.3, [0.2, 0.25], 0.1) == [False, True, True, False]
    assert controls(0.1, [0.2, 0.25], 0.0) == [True, False, False, True]


# --- several models -----------------------------------------------------------------------------


def test_models_stand_side_by_side_with_a_chapter_each(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(m: SimpleNamespace, say: object) -> _models.Measured:
        claim = cy.study.Comparison("It is so.", "nothing", "1 of 1", m.name == "one")
        report = cy.study.report_of(layer_cycles.QUICK, f"{m.name}: text.", controls=[claim])
        return _models.Measured(report, {"length": len(m.name)}, m.name)

    two = [SimpleNamespace(name=name) for name in ("one", "three")]
    report = _models.side_by_side(layer_cycles.QUICK, two, measure, cy.study.silent)  # type: ignore[arg-type]
    assert report.tables[0].rows == (("one", 3), ("three", 5))
    assert [(c.claim, c.survives) for c in report.controls] == [
        ("one: It is so.", True),
        ("three: It is so.", False),
    ]
    assert [c.title for c in report.chapters] == ["one", "three"]
    (alone,) = [_models.side_by_side(layer_cycles.QUICK, two[:1], measure, cy.study.silent)]  # type: ignore[arg-type]
    assert alone.chapters == () and alone.summary == "one: text."
    named = []
    monkeypatch.setattr(_models, "example_transformer", lambda *asked: named.append(asked[0]))
    _models.models_of("./a, MiniLM,b")
    _models.models_of("")
    assert named == ["./a", "", "b", ""]


def test_sentences_are_spoken_to_a_model_that_reads_phonemes() -> None:
    letters = _models.TEXTS[0]
    spoken = SimpleNamespace(tokenizer=SimpleNamespace(get_vocab=lambda: {"ˈ": 1, "ə": 2}))
    assert _models.read_as(MODEL, letters) == letters
    assert _models.read_as(spoken, letters).startswith("ðə fˈɪlm")  # type: ignore[arg-type]
    assert _models.read_as(spoken, "other words") == "other words"  # type: ignore[arg-type]
    z = _models.starts_of(MODEL, _models.TEXTS[:3], 2, 5)
    assert z.shape == (3, 5, 48)
    ids = MODEL.tokenizer(letters)["input_ids"]  # type: ignore[misc]
    np.testing.assert_array_equal(z[0], MODEL.trace([*ids[:4], ids[-1]]).z[2])


# --- layers repeated ----------------------------------------------------------------------------


def test_ends_of_repeated_layers_are_told_apart() -> None:
    def ended(distances: list[float], period: int | None) -> layer_cycles.Ended:
        far = np.array(distances)
        return layer_cycles.Ended(0, "whole layer", 0, period, far, 1)

    assert ended([0.0, 0.0, 0.0], 0).end == "rest"
    assert ended([0.5, 1e-9, 0.5], 2).end == "period 2"
    assert ended([0.5, 0.6, 0.1], None).end == "almost 3"
    assert ended([0.5, 0.6, 0.4], None).end == "moving"
    few = [ended([0.5, 1e-9, 0.5], 2), ended([0.5, 0.6, 0.1], None), ended([0.5, 1e-9, 0.5], 2)]
    assert layer_cycles._counted(few) == "period 2 ×2, almost 3 ×1"


def test_a_layer_without_feed_forward_and_its_nulls_are_run() -> None:
    p = layer_cycles.QUICK
    z = _models.starts_of(MODEL, _models.TEXTS[:2], 0, p.tokens)
    ends = layer_cycles.ends_of(MODEL, z, 0, p.times, "whole layer")
    assert [e.text for e in ends] == [0, 1]
    states = [MODEL.iterate(x, 0, p.times).z for x in z]
    for e, run in zip(ends, states, strict=True):
        u = run / np.linalg.norm(run, axis=-1, keepdims=True)
        away = [np.linalg.norm(u[-1] - u[-1 - k]) / np.linalg.norm(u[-1]) for k in (1, 2, 3)]
        np.testing.assert_allclose(e.distances[:3], away, rtol=1e-3, atol=1e-5)
    other = layer_cycles.scrambled(MODEL, 0)
    a, b = (np.sort(m.heads(0)[0].W_O.ravel()) for m in (MODEL, other))
    assert np.abs(a - b).max() > 0  # entries of the whole matrix change places, not of one head
    whole = [
        np.sort(dict(m.model.named_parameters())[name].detach().numpy().ravel())
        for m in (MODEL, other)
        for name in [n for n, w in m.model.named_parameters() if w.dim() == 2][-1:]
    ]
    np.testing.assert_array_equal(*whole)


# --- pictures -----------------------------------------------------------------------------------


def test_words_lie_beside_the_paths() -> None:
    """All tokens end at one spot, as in the flow of a head: the list of words covered the paths."""
    draw = np.random.default_rng(0)
    start = np.column_stack((-draw.uniform(4, 9, 9), draw.uniform(-8, 5, 9)))
    share = np.linspace(1, 0, 30)[:, None, None]
    tr = Trajectory(
        share * start, np.arange(30), Status("done", ""), words=tuple(f"word{i}" for i in range(9))
    )
    ax, left = word_paths(tr)
    assert left == 0
    ax.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    drawn = ax.transData.transform((share * start).reshape(-1, 2))
    inside = [((drawn > b.min) & (drawn < b.max)).all(axis=1).sum() for b in boxes]
    assert boxes and sum(inside) == 0


def test_a_word_over_a_path_is_better_than_none() -> None:
    ax = grid(1, 1, (3.0, 3.0))[0, 0]
    ax.set(xlim=(-1, 1), ylim=(-1, 1))
    x = np.linspace(-1, 1, 60)
    everywhere = np.stack([np.column_stack((x, np.full(60, y))) for y in x])
    assert write_words(ax, np.zeros((1, 2)), ["here"], paths=everywhere) == 0
    assert [text.get_text() for text in ax.texts] == ["here"]


@pytest.mark.parametrize(
    "name",
    ["head_spectra", "head_flow", "sentence_flow", "layer_cycles", "block_coupling"],
)
def test_every_experiment_on_transformers_has_controls_and_names_its_weights(name: str) -> None:
    report, _ = quick(name)
    assert len(report.controls) >= 2
    for c in report.controls:
        assert c.claim and c.beside and c.seen
    assert any(x.isdigit() for x in report.controls[0].seen)
    whose = report.summary.partition(":")[0]
    if name == "head_spectra":
        first = report.figures[0]
        assert first.title.startswith("Eigenvalues of V") and whose.split("\n")[-1] in first.title
    if name in ("sentence_flow", "head_flow"):
        assert all(ax.get_title(loc="left") for ax in report.figures[0].drawing.axes)


def test_good_triples_are_those_of_the_hypotheses() -> None:
    for head in heads():
        (named,) = (h.holds for h in head.hypotheses() if h.name == "good triple")
        assert is_good(head) == named


def test_heads_are_named_by_numbers_counted_from_zero() -> None:
    """Heads 5 and 14 of arXiv 2305.05465, which counts from 1, are 4 and 13."""
    heads = [SimpleNamespace(name=f"L0H{k}") for k in range(16)]
    assert named_heads(heads, "4,13") == [heads[5 - 1], heads[14 - 1]]
    with pytest.raises(ValueError, match="there are L0H0 to L0H15"):
        named_heads(heads, "16")
