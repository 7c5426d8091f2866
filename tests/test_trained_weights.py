"""Trained weights: the script that makes their folders, and what is said of the models."""

from __future__ import annotations

import importlib.util
import os
import struct
from pathlib import Path
from types import ModuleType
from typing import Literal

import numpy as np
import pytest

import cynosure as cy
from cynosure.pretrained import load_transformer

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

ROOT = Path(__file__).resolve().parent.parent
WEIGHTS = Path(os.environ.get("CYNOSURE_WEIGHTS", ROOT.parent / "shared" / "data" / "weights"))
SCRIPT = ROOT / "research" / "trained_weights" / "make.py"


@pytest.fixture(scope="module")
def make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- the script ---------------------------------------------------------------------------------


def test_a_file_of_llama2c_is_the_model_it_was_trained_as(
    make: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores with coordinates 0 and 1, 2 and 3, ... turned, as llama2.c does, by hand."""
    d, inner, layers, heads, words, longest = 8, 12, 2, 2, 5, 16
    sizes = [words * d, layers * d, *[layers * d * d] * 4, layers * d]
    sizes += [layers * inner * d] * 3 + [d]
    values = np.random.default_rng(0).standard_normal(sum(sizes)).astype("<f4")
    data = struct.pack("<7i", d, inner, layers, heads, heads, words, longest) + values.tobytes()
    tensors, config = make.llama_tensors(data)

    monkeypatch.setitem(make.LICENCES, "tiny", "none")

    class NoTokenizer:
        def save(self, path: str) -> None:
            Path(path).write_text("{}")

    folder = tmp_path / "tiny"
    make.write(folder, tensors, config, NoTokenizer(), {})
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    m = load_transformer(folder, dtype="float64")
    place = np.cumsum([0, *sizes])
    W_Q, W_K = (values[place[k] : place[k + 1]].reshape(layers, d, d)[1] for k in (2, 3))
    trace = m.trace([1, 3, 0, 4])
    x, size = trace.seen[1], d // heads
    angle = 10000.0 ** (-np.arange(0, size, 2) / size)
    for head in range(heads):
        rows = slice(head * size, (head + 1) * size)
        q, k = (_turned(x @ W[rows].astype(float).T, angle) for W in (W_Q, W_K))
        s = q @ k.T / np.sqrt(size)
        s[np.triu_indices(4, 1)] = -np.inf
        P = np.exp(s - s.max(axis=1, keepdims=True))
        P /= P.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(trace.attentions[1, head], P, atol=1e-6)


def _turned(y: np.ndarray, angle: np.ndarray) -> np.ndarray:
    pairs = y[:, ::2] + 1j * y[:, 1::2]
    pairs = pairs * np.exp(1j * np.arange(len(y))[:, None] * angle)
    return np.stack([pairs.real, pairs.imag], axis=-1).reshape(y.shape)


def test_tensors_and_nodes_of_a_graph_that_is_cut(make: ModuleType) -> None:
    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2]) + _number(len(content)) + content

    W = np.arange(6, dtype="<f4").reshape(2, 3)
    tensor = b"\x08\x02\x08\x03" + b"\x10\x01" + field(8, b"encoder.W") + field(9, W.tobytes())
    packed = field(1, b"\x02\x03") + b"\x10\x01" + field(8, b"packed") + field(9, W.tobytes())
    node = field(1, b"x") + field(1, b"encoder.W") + field(3, b"/encoder/MatMul")
    node += field(4, b"MatMul")
    late = field(5, field(8, b"late") + field(9, bytes(500)))
    graph = field(1, node) + field(5, tensor) + field(5, packed) + late
    data = b"\x08\x07" + field(7, graph)
    tensors, nodes = make.onnx_graph(data[:-300])
    assert nodes == [("/encoder/MatMul", "MatMul", ["x", "encoder.W"])]
    assert list(tensors) == ["encoder.W", "packed"]
    for name in tensors:
        np.testing.assert_array_equal(tensors[name], W)


def _number(x: int) -> bytes:
    out = b""
    while x > 127:
        out, x = out + bytes([x & 127 | 128]), x >> 7
    return out + bytes([x])


def test_a_package_with_another_sum_is_refused(make: ModuleType, tmp_path: Path) -> None:
    (tmp_path / make.STORIES.file).write_bytes(b"something else")
    with pytest.raises(ValueError, match="expected SHA-256 e1aa"):
        make.fetch(make.STORIES, tmp_path)


# --- the models ---------------------------------------------------------------------------------


def trained(name: str) -> cy.pretrained.Transformer:
    folder = WEIGHTS / name
    if not folder.is_dir():
        pytest.skip(f"no {folder}: made by research/trained_weights/make.py; CYNOSURE_WEIGHTS=...")
    return load_transformer(folder)


def test_the_good_triples_of_a_trained_albert() -> None:
    heads = trained("plbert").heads(0)
    leads = {head.index: head.leading for head in heads}
    assert [k for k, lead in leads.items() if lead is not None and lead.gap > 0] == [8, 10]
    assert leads[3] is None  # all real eigenvalues of its V are negative
    assert {k: round(leads[k].value, 3) for k in (8, 10)} == {8: 2.931, 10: 0.863}  # type: ignore[union-attr]
    assert sum(lead is not None and lead.form > 0 for lead in leads.values()) == 11


def test_its_layer_rests_without_feed_forward_part_and_cycles_without_heads() -> None:
    m = trained("plbert")
    start = m.trace("ðə fˈɪlm").z[0]
    silent = m.iterate(start, 0, 400, head=(), save_every=100)
    assert silent.status.code == "cycle" and "period 2 since" in silent.status.message

    def step(parts: Literal["block", "attention"]) -> float:
        z = m.iterate(start, 0, 250, save_every=249, parts=parts).values
        return float(np.linalg.norm(z[-1] - z[-2]) / np.linalg.norm(z[-1]))

    whole, alone = step("block"), step("attention")
    assert whole > 0.05 and alone < 1e-3 * whole


@pytest.mark.parametrize("name", ["plbert", "stories15M"])
def test_A_rebuilds_the_attention_of_a_trained_model(name: str) -> None:
    m = trained(name)
    trace = m.trace("ðə fˈɪlm" if name == "plbert" else "Once upon a time there was")
    for layer in (0, m.depth - 1):
        for head in m.heads(m.original(layer)):
            P = trace.attentions[layer, head.index]
            np.testing.assert_allclose(head.weights(trace.seen[layer]), P, atol=2e-5)
