"""The experiment over families: null models by hand, controls on surveys made to fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cynosure.pretrained import load_transformer
from studies.transformers import leaders_and_sinks as experiment
from tiny_models import tiny_config, tiny_model, tiny_tokenizer

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


def test_even_shares_are_those_of_even_rows() -> None:
    P = np.tril(np.ones((7, 7)))
    P /= P.sum(axis=1, keepdims=True)
    assert experiment.even_share(7, True) == pytest.approx(P[:, 0].mean())
    assert experiment.even_share(7, False) == pytest.approx(1 / 7)


@pytest.fixture(scope="module")
def found():
    config, tokenizer = tiny_config("llama", max_position_embeddings=99), tiny_tokenizer("llama")
    tokenizer.model_max_length = 99
    m = load_transformer(tiny_model("llama", config), tokenizer=tokenizer)
    return experiment._measured(experiment.QUICK, m)


def test_a_model_is_measured_beside_its_controls(found) -> None:
    assert found.trained and found.causal and found.family == "llama"
    assert len(found.real) == len(found.shuffled) == len(found.moved) == len(found.before) == 2
    assert [row[1] for row in found.offsets] == list(experiment.OFFSETS)
    head_distances = {row[2] for row in found.offsets}
    assert len(head_distances) > 1  # a form changes with the offset
    controls = experiment._controls(found)
    assert found.long.n > max(s.n for s in found.real)
    assert len(controls) == 8 and all(any(x.isdigit() for x in c.seen) for c in controls)


def changed_tokens(surveys, name, of):
    return tuple(replace(s, tokens={**s.tokens, name: of(s.tokens[name])}) for s in surveys)


def test_controls_can_fail_and_can_hold(found) -> None:
    def changed(surveys, name, value):
        heads = [{**s.heads, name: np.full_like(s.heads[name], value)} for s in surveys]
        return tuple(replace(s, heads=h) for s, h in zip(surveys, heads, strict=True))

    def said(one):
        return {c.claim.split(": ")[1]: c.survives for c in experiment._controls(one)}

    sink = found.replace(real=changed(found.real, "first_mass", 0.9))
    none = found.replace(real=changed(found.real, "first_mass", 0.0))
    for one, holds in ((sink, True), (none, False)):
        verdicts = said(one)
        assert verdicts["the first token receives more than even attention gives it."] is holds
        assert verdicts["training makes the first token receive more."] is holds
    sharp = found.replace(real=changed(found.real, "evenness", 0.01))
    flat = found.replace(real=changed(found.real, "evenness", 1.0))
    for one, holds in ((sharp, True), (flat, False)):
        assert said(one)["training makes attention less even."] is holds
    grown = changed_tokens(found.real, "spread", lambda x: np.arange(1, len(x) + 1.0))
    claim = "trained, its tokens part again in the last layers."
    assert said(found.replace(real=grown))[claim] is True
    same = found.replace(real=grown, before=grown)
    assert said(same)[claim] is False  # they part before training too
    middle = (found.moved[0].n - 1) // 2
    one = found.replace(moved=changed(found.moved[:1], "sink", float(middle)))
    place = found.replace(moved=changed(found.moved[:1], "sink", 0.0))
    claim = "attention goes to the first token for what it is, not for its place."
    assert said(one)[claim] is True and said(place)[claim] is False


def test_what_a_model_cannot_tell_is_left_out(found) -> None:
    unknown = [np.full_like(s.heads["first_leads"], np.nan) for s in found.real]
    real = tuple(
        replace(s, heads={**s.heads, "first_leads": x})
        for s, x in zip(found.real, unknown, strict=True)
    )
    blind = found.replace(real=real)
    assert "were there no mask" in experiment._summary([found])
    assert "were there no mask" not in experiment._summary([blind])
    assert "nan" not in str(experiment._by_model([blind]).rows)
    assert "nan" not in str(experiment._by_layer([blind]).rows)


def test_the_first_token_is_put_in_the_middle() -> None:
    m = load_transformer(tiny_model("bert"), tokenizer=tiny_tokenizer("bert"))
    ids = m.tokenizer("The film was slow.")["input_ids"]
    moved = experiment._moved(m, "The film was slow.")
    at = (len(ids) - 1) // 2
    assert moved[at] == ids[0] and moved[:at] + moved[at + 1 :] == ids[1:]
