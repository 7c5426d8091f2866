"""Survey: statistics of a text by layer, against the same taken from the whole P and all tokens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cynosure.analysis.clustering import clusters
from cynosure.pretrained import Trace, attention_table, cosines, load_transformer
from cynosure.pretrained.reading.rows import rows_at_once
from cynosure.pretrained.reading.surveys import _components, _joined, _points, _ranks, survey
from tiny_models import CONFIGS, TEXT, tiny_model, tiny_tokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

IDS = list(range(3, 20))


def made(family: str):
    return load_transformer(tiny_model(family).double())


def expected(trace: Trace) -> dict[str, np.ndarray]:
    """Every statistic of the heads, slowly, from P."""
    P = trace.attentions.astype(np.float64)
    layers, heads = P.shape[:2]
    rows = attention_table(trace)

    def of(value) -> np.ndarray:
        return np.array([value(row) for row in rows], dtype=float).reshape(layers, heads)

    H = -np.where(P > 0, P * np.log(np.where(P > 0, P, 1)), 0).sum(axis=-1)
    seen = (P > 0).sum(axis=-1)
    even = np.where(seen > 1, H / np.log(np.maximum(seen, 2)), np.nan)
    first = P[:, :, 1:, 0] >= P[:, :, 1:].max(axis=-1) * (1 - 1e-13)
    return {
        "entropy": H.mean(axis=-1),
        "evenness": np.nanmean(even, axis=-1),
        "argmax_mass": of(lambda r: r["argmax_mass"]),
        "first_mass": P[..., 0].mean(axis=-1),
        "follow_first": first.mean(axis=-1),
        "sink": of(lambda r: r["sink"]),
        "sink_mass": of(lambda r: r["sink_mass"]),
        "leaders": of(lambda r: len(r["leaders"])),
        "followed": of(lambda r: len(r["followed"])),
    }


OWN_CODE = ("bloom", "falcon", "gptj")  # which the library does not let others compute by rows


@pytest.mark.parametrize(("family", "rows"), [*((f, 3) for f in sorted(CONFIGS)), ("llama", 17)])
def test_heads_as_from_the_whole_P(family, rows) -> None:
    m = made(family)
    given = (
        np.random.default_rng(0).standard_normal((3, 16, 16)) if family in ("deit", "vit") else IDS
    )
    trace = m.trace(given)
    found = survey(m, given, budget=8 * 4 * len(trace.seen[0]) * rows)
    for name, values in expected(trace).items():
        np.testing.assert_allclose(found.heads[name], values, atol=1e-12, err_msg=name)
    leads = [
        [row["leaders"] for row in attention_table(trace) if row["layer"] == k] for k in (0, 1)
    ]
    for k in (0, 1):
        counted = [sum(i in leaders for leaders in leads[k]) for i in range(found.n)]
        assert found.leads[k].tolist() == counted
    seen = len(trace.seen[0]) if family in OWN_CODE else rows
    assert f"{seen} rows of P at a time" in found.notes[-1]
    # the first token without the mask: rebuilt from the heads
    for k, x in enumerate(trace.seen):
        scores = [head.scores(x)[0] for head in m.heads(k)]
        lost = [-np.inf if head.sink is None else head.sink for head in m.heads(k)]
        pairs = zip(scores, lost, strict=True)
        own = np.array([1 / (np.exp(s - s[0]).sum() + np.exp(x - s[0])) for s, x in pairs])
        leads_ = np.array([s[0] > s[1:].max() for s in scores], dtype=float)
        if family in OWN_CODE:
            assert np.isnan(found.heads["first_leads"][k]).all()
        else:
            np.testing.assert_allclose(found.heads["first_own"][k], own, atol=1e-12)
            np.testing.assert_array_equal(found.heads["first_leads"][k], leads_)


@pytest.mark.parametrize("family", ["albert", "llama", "bloom"])
def test_tokens_as_from_the_whole_trajectory(family) -> None:
    m = made(family)
    z = m.trace(IDS).z
    found = m.survey(IDS).tokens
    for k, x in enumerate(z):
        scale = np.sqrt((x**2).sum(axis=1).mean())
        assert found["length"][k] == pytest.approx(scale)
        assert found["mean_cosine"][k] == pytest.approx(cosines(x).mean())
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        spread = np.sqrt(((unit - unit.mean(axis=0)) ** 2).sum(axis=1).mean())
        assert found["spread"][k] == pytest.approx(spread)
        sigma = np.linalg.svd(x, compute_uv=False)
        share = sigma**2 / (sigma**2).sum()
        assert found["rank"][k] == (sigma > 0.01 * sigma[0]).sum()
        effective = np.exp(-(share[share > 0] * np.log(share[share > 0])).sum())
        assert found["effective_rank"][k] == pytest.approx(effective)
        assert found["clusters"][k] == clusters(x / scale, 0.5).count
        length = np.linalg.norm(x, axis=1)
        assert found["first_length"][k] == pytest.approx(length[0] / np.median(length))


def test_tokens_given_as_an_array_are_surveyed_as_the_text(monkeypatch) -> None:
    m = made("llama")
    text, array = m.survey(IDS), m.survey(m.trace(IDS).z[0])
    for name, values in text.heads.items():
        np.testing.assert_allclose(array.heads[name], values, atol=1e-12)
    for name, values in text.tokens.items():
        np.testing.assert_allclose(array.tokens[name], values, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 30])
@pytest.mark.parametrize("tol", [0.1, 0.9, 3.0])
def test_clusters_by_walking_are_those_of_the_library(n, tol) -> None:
    x = np.random.default_rng(n).standard_normal((n, 3))
    assert _joined(torch.tensor(x), tol) == clusters(x, tol).count


def test_components_and_ranks_by_hand() -> None:
    near = np.eye(5, dtype=bool)
    near[0, 3] = near[3, 0] = near[3, 4] = near[4, 3] = True
    assert _components(near) == 3 and _components(np.ones((4, 4), dtype=bool)) == 1
    rank, effective = _ranks(torch.diag(torch.tensor([1.0, 1.0, 0.001])))
    assert rank == 2 and effective == pytest.approx(2, rel=1e-4)
    met = _points(torch.ones(1, 4, 3))
    assert met["clusters"] == 1 and met["spread"] < 1e-6 and met["mean_cosine"] == pytest.approx(1)
    lonely = _points(torch.ones(1, 1, 3))
    assert lonely["mean_cosine"] == 1 and lonely["rank"] == 1


def test_the_rate_of_collapse_is_that_of_the_spread() -> None:
    m = made("llama")
    found = m.survey(IDS)
    shrinking = {**found.tokens, "spread": 0.8 * 0.5 ** np.arange(3)}
    assert replace(found, tokens=shrinking).collapse == pytest.approx(0.5)
    assert replace(found, tokens={"spread": np.zeros(3)}).collapse == 0


def test_a_model_is_left_as_it_was() -> None:
    model = transformers.LlamaForCausalLM._from_config(tiny_model("llama").config).train()
    model.set_attn_implementation("sdpa")
    load_transformer(model).survey(IDS)
    assert model.config._attn_implementation == "sdpa" and model.training
    assert not any(mod._forward_hooks or mod._forward_pre_hooks for mod in model.modules())


def test_words_frames_and_arrays() -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("xarray")
    m = load_transformer(tiny_model("llama"), tokenizer=tiny_tokenizer("llama"))
    found = m.survey(TEXT)
    assert found.words[0] == "The" and "llama" in repr(found)
    frame = found.to_dataframe()
    assert len(frame) == 8 and frame["layer"].tolist() == [0] * 4 + [1] * 4
    picked = frame[(frame["layer"] == 1) & (frame["head"] == 2)].iloc[0]
    assert picked["entropy"] == found.heads["entropy"][1, 2]
    assert picked["spread"] == found.tokens["spread"][1]
    data = found.to_xarray()
    assert float(data["entropy"].sel(layer=1, head=2)) == found.heads["entropy"][1, 2]
    assert data["leads"].dims == ("layer", "token") and data["tokens_rank"].size == 3
    assert str(data["word"].values[0]) == "The" and data.attrs["collapse"] == found.collapse
    row = found.table()[1]
    assert row["first_mass"] == pytest.approx(found.heads["first_mass"][1].mean())


def test_a_trace_as_frame_and_arrays() -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("xarray")
    trace = load_transformer(tiny_model("gpt2"), tokenizer=tiny_tokenizer("gpt2")).trace(TEXT)
    frame = trace.to_dataframe()
    assert frame["head"].tolist() == [row["head"] for row in attention_table(trace)]
    data = trace.to_xarray()
    np.testing.assert_array_equal(data["P"].sel(layer=1, head=3), trace.attentions[1, 3])
    np.testing.assert_array_equal(data["z"].sel(depth=2), trace.z[2])
    assert tuple(data["word"].values) == trace.words


def test_without_the_libraries_it_is_said_what_to_install(monkeypatch) -> None:
    import sys

    trace = load_transformer(tiny_model("gpt2")).trace(IDS)
    for name, made_ in (("pandas", trace.to_dataframe), ("xarray", trace.to_xarray)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ImportError, match=r"cynosure\[scale\]"):
            made_()


def test_rows_fit_the_budget() -> None:
    assert rows_at_once(32, 4096, 4, 64_000_000) == 122
    assert rows_at_once(32, 4096, 4, 1) == 1 and rows_at_once(4, 10, 4) == 10
