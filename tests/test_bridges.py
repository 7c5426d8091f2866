"""To other tools and back: xarray, pandas, torch, safetensors, recorded models, papers."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import cynosure as cy


@pytest.fixture(scope="module")
def run():
    z = cy.configurations.gaussian(5, 3, seed=1)
    return cy.simulate(cy.PureAttention(), z, layers=4, words=list("abcde"))


def test_states_of_others_are_not_copied(run):
    z = np.array(run.z)
    assert np.shares_memory(cy.Trajectory.of(z).z, z)
    again = cy.Trajectory.of(z, run.t, words="abcde")
    assert again.words == run.words and cy.clusters(again).count == cy.clusters(run).count
    for bad in (z[0], z[..., 0]):
        with pytest.raises(ValueError, match="with a t each"):
            cy.Trajectory.of(bad)
    with pytest.raises(ValueError, match="5 names"):
        cy.Trajectory.of(z, words="ab")


def test_xarray_and_back(run):
    pytest.importorskip("xarray")
    ds = run.to_xarray()
    again = cy.Trajectory.of(ds)
    assert (again.z == run.z).all() and (again.t == run.t).all() and again.words == run.words
    assert all(" " not in name for name in ds.attrs)


def test_pandas_has_a_row_per_state_and_token(run):
    pytest.importorskip("pandas")
    frame = run.to_dataframe()
    assert len(frame) == 25 and list(frame.columns) == ["layer", "token", "word", "z0", "z1", "z2"]
    row = frame[(frame.layer == 3) & (frame.word == "d")].iloc[0]
    assert row[["z0", "z1", "z2"]].tolist() == run.z[3, 3].tolist()
    batch = cy.simulate(cy.PureAttention(), np.stack([run.z[0], run.z[0] + 1]), layers=1)
    assert (
        batch.to_dataframe().query("batch_0 == 1 and layer == 0").z0 == run.z[0, :, 0] + 1
    ).all()


def test_torch_shares_the_memory(run):
    torch = pytest.importorskip("torch")
    tensor = run.to_torch()
    assert isinstance(tensor, torch.Tensor) and np.shares_memory(tensor.numpy(), run.z)
    assert cy.Trajectory.of(tensor).to_torch() is tensor


def test_safetensors_hold_all_that_an_npz_holds(run, tmp_path):
    path = run.save(tmp_path / "run.safetensors")
    again = cy.load(path)
    assert (again.z == run.z).all() and again.status == run.status and again.words == run.words
    assert cy.roles(again).born.tolist() == cy.roles(run).born.tolist()
    assert repr(again.dynamics) == repr(run.dynamics)
    for cut in (
        path.read_bytes()[:40],
        b"{}",
        path.read_bytes().replace(b"cynosure-traj", b"cynosure-tr4j"),
    ):
        path.write_bytes(cut)
        with pytest.raises(ValueError, match="not a cynosure trajectory"):
            cy.load(path)


def test_a_paper_folder_has_vector_figures_tables_versions_and_a_citation(tmp_path):
    from cynosure.drawing.paper import paper
    from cynosure.study import Picture, Report, Table

    run = cy.simulate(cy.PureAttention(), cy.configurations.gaussian(5, 2), layers=2)
    figure = Picture("Leaders", "Who leads.", cy.plot.layers(run))
    table = Table("Counts", ("n", "leaders"), ((5, 3),))
    chapter = Report("One", "A chapter.", tables=(table,), figures=(figure,))
    report = Report("All", "A study.", chapters=(chapter,), command="cynosure run all")
    names = {path.name for path in paper(report, tmp_path)}
    assert {"figure1-leaders.pdf", "table1-counts.csv", "CITATION.bib", "requirements.txt"} <= names
    pdf = (tmp_path / "figure1-leaders.pdf").read_bytes()
    assert pdf[:5] == b"%PDF-" and b"/FontFile2" in pdf and b"/Type3" not in pdf
    assert f"numpy=={np.__version__}" in (tmp_path / "requirements.txt").read_text()
    assert "cynosure run all" in (tmp_path / "CITATION.bib").read_text()
    assert (tmp_path / "table1-counts.csv").read_text().splitlines()[0] == "n,leaders"


# --- real models ---------------------------------------------------------------------------------

TEXT = "The film was slow but the ending is wonderful."


@pytest.fixture(scope="module", params=["gpt2", "bert", "albert", "llama"])
def model(request):
    pytest.importorskip("transformers")
    from tiny_models import tiny_model, tiny_tokenizer

    return cy.load_transformer(tiny_model(request.param), tokenizer=tiny_tokenizer(request.param))


def test_activations_are_those_of_the_trace(model):
    trace = model.trace(TEXT)
    found = cy.pretrained.activations(model, TEXT, ["L1", "L1H2", "L1.attention", "L0@2"])
    assert_allclose(found["L1"], trace.z[1], atol=1e-6)
    assert_allclose(found["L0@2"], trace.z[0, 2], atol=1e-6)
    head = model.heads(1)[2]
    values = trace.seen[1] @ head.W_V.T + head.b_V
    assert_allclose(found["L1H2"], trace.attentions[1, 2] @ values, atol=1e-5)
    all_heads = sum(
        (trace.attentions[1, h] @ (trace.seen[1] @ one.W_V.T + one.b_V)) @ one.W_O.T
        for h, one in enumerate(model.heads(1))
    )
    assert_allclose(found["L1.attention"], all_heads + model.output_bias(1), atol=1e-5)


def test_an_ablated_head_is_gone_and_a_patch_of_all_is_the_other_text(model):
    other = "The ending was slow but the film is wonderful."
    plain, donor = model.trace(TEXT), model.trace(other)
    assert plain.z.shape == donor.z.shape
    with cy.pretrained.intervene(model, {"L1H2": 0, "L1H0": lambda x: x}):
        gone = model.trace(TEXT)
    assert (gone.z[1] == plain.z[1]).all() and (gone.z[2] != plain.z[2]).any()
    silent = dict.fromkeys([f"L1H{h}" for h in range(model.width)], 0)
    with cy.pretrained.intervene(model, silent):
        zeroed = cy.pretrained.activations(model, TEXT, ["L1.attention"])["L1.attention"]
    assert_allclose(zeroed, np.tile(model.output_bias(1), (len(zeroed), 1)), atol=1e-6)
    with cy.pretrained.intervene(model, {"L1": donor.z[1]}):
        patched = model.trace(TEXT)
    assert_allclose(patched.z[2], donor.z[2], atol=1e-6)
    with cy.pretrained.intervene(model, {"L1@0": donor.z[1, 0]}):
        one = model.trace(TEXT)
    assert_allclose(one.z[1, 0], donor.z[1, 0], atol=1e-6)
    assert (one.z[1, 1:] == plain.z[1, 1:]).all()
    assert (model.trace(TEXT).z == plain.z).all(), "nothing stays"


def test_names_that_are_none_are_refused(model):
    for name, said in (("3H1", "expected L3"), ("L9H0", "layers 0 to"), ("L0H9", "heads 0 to")):
        with pytest.raises(ValueError, match=said), cy.pretrained.intervene(model, {name: 0}):
            pass
    with (
        pytest.raises(ValueError, match=r"expected an array \("),
        cy.pretrained.intervene(model, {"L0": np.ones(3)}),
    ):
        model.trace(TEXT)


def test_a_word_is_found_and_the_lens_is_softmax_of_the_normed_tokens(model):
    import torch

    trace = model.trace(TEXT)
    assert all("film" in trace.names[trace.groups[i]] for i in cy.pretrained.find(trace, "film"))
    assert (
        len(cy.pretrained.find(trace, "film")) >= 1 and cy.pretrained.find(trace, "nowhere") == []
    )
    d = trace.z.shape[2]
    W = np.random.default_rng(0).standard_normal((50, d)).astype(np.float32)
    rows = cy.pretrained.logit_lens(model, trace, W, top=3)
    assert repr(rows) == f"Rows({len(rows)} of layer, token, word, says, probability, top)"
    assert rows._repr_html_().count("<tr>") == 12 and f"... {len(rows) - 10} more" in (
        rows._repr_html_()
    )
    assert len(rows) == trace.z.shape[0] * trace.z.shape[1]
    norm = getattr(model.model, "ln_f", getattr(model.model, "norm", lambda x: x))
    with torch.no_grad():
        last = norm(torch.as_tensor(trace.z[-1])).numpy() @ W.T
    p = np.exp(last - last.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    assert_allclose([row["probability"] for row in rows[-len(p) :]], p.max(axis=1), atol=1e-5)


def test_recorded_hidden_states_make_the_same_trace(model):
    import torch

    ids = model._read(TEXT).ids
    with torch.no_grad():
        model.model.set_attn_implementation("eager")
        out = model.model(torch.tensor([ids]), output_hidden_states=True, output_attentions=True)
    recorded = cy.pretrained.trace_of_outputs(out.hidden_states, out.attentions)
    trace = model.trace(TEXT)
    assert_allclose(recorded.z[:-1], trace.z[:-1], atol=1e-6)
    assert_allclose(recorded.attentions, trace.attentions, atol=1e-6)
    with pytest.raises(ValueError, match="output_hidden_states=True"):
        cy.pretrained.trace_of_outputs(out.hidden_states, None)
