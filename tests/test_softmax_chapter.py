"""The chapter on softmax beside hardmax in real heads, against the model's own attention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import cynosure as cy

pytest.importorskip("transformers")

from cynosure.pretrained.pages.softmax_chapter import ALPHA, NEAR, _row, softmax_chapter
from cynosure.pretrained.reading.examples import random_transformer

TEXT = "the film was slow but the ending is wonderful"


@pytest.fixture(scope="module")
def read() -> tuple:
    model = random_transformer(TEXT)
    return model, model.trace(TEXT)


def test_rows_are_those_of_the_models_own_attention(read) -> None:
    model, trace = read
    for layer, x in enumerate(trace.seen[: model.depth]):
        diameter = np.linalg.norm(x[None] - x[:, None], axis=2).max()
        for h, head in enumerate(model.heads(layer)):
            P, found = trace.attentions[layer, h], _row(head, x.astype(float))
            best = P.argmax(axis=1)
            assert found["mass"] == pytest.approx(np.median(P.max(axis=1)), rel=1e-3)
            off = ALPHA / (1 + ALPHA) * np.linalg.norm(P @ x - x[best], axis=1) / diameter
            assert found["off"] == pytest.approx(np.median(off), rel=1e-3)
            ranked = np.sort(np.log(P), axis=1)
            gap = np.median(ranked[:, -1] - ranked[:, -2])
            assert found["gap"] == pytest.approx(gap, rel=1e-2, abs=1e-5)


def test_a_sharp_head_is_proved_for_as_long_as_it_agrees(read) -> None:
    model, trace = read
    x, head = trace.seen[0].astype(float), model.heads(0)[0]
    row = _row(head, x)
    assert row["proved"] == 0 and row["half"] > 1, "random heads are far from hardmax"
    for factor, enough in ((1.03, True), (0.97, False)):
        scaled = replace(head, Q=head.Q * factor * row["half"], b_Q=head.b_Q * factor * row["half"])
        assert (2 * _row(scaled, x)["near"] >= len(x)) is enough
    sharp = replace(head, Q=head.Q * 30 * row["half"], b_Q=head.b_Q * 30 * row["half"])
    proved = _row(sharp, x)["proved"]
    assert proved > 0
    z = np.column_stack([x, np.ones(len(x))])
    A = sharp.lifted().A
    soft, hard = (
        cy.simulate(cy.PureAttention(rule, ALPHA), z, layers=proved).values
        for rule in (cy.Softmax(1.0, A), cy.Hardmax(A))
    )
    off = np.linalg.norm(soft - hard, axis=2)
    near = off <= NEAR * 1.001 * np.linalg.norm(x[None] - x[:, None], axis=2).max()
    assert 2 * near.all(axis=0).sum() >= len(x)


def test_the_chapter_says_how_many_heads_hardmax_describes(read) -> None:
    model, trace = read
    chapter = softmax_chapter(model, trace)
    table = chapter.tables[0]
    assert len(table.rows) == model.depth * model.width
    assert f"0 of {len(table.rows)} heads" in chapter.summary
