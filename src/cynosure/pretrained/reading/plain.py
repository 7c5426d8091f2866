"""Plain: BERT (MiniLM) in NumPy, which reads a text while torch is still being imported.

Importing torch and transformers takes seconds; the embeddings, six layers and a tokenizer take a
few hundredths. Only what is common is taken; for anything else `plain` is None, or `trace` raises
LookupError, and the model itself answers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final

import numpy as np

from ..._files.bounded import parsed_json, read_bytes
from ...simulation.status import Status
from ...simulation.trajectory import Trajectory
from ..loading.checkpoints import LARGEST_CONFIG
from .sentences import word_pieces
from .traces import Trace

_WANTED = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
_MOST_BYTES = 200_000_000  # of weights: a larger model is better read once


@final
@dataclass(frozen=True, eq=False)
class Plain:
    """Weights by name, as `trace` needs them; the word embeddings are read row by row."""

    name: str
    config: dict[str, Any]
    weights: dict[str, np.ndarray]
    rows: Callable[[list[int]], np.ndarray]
    tokenizer: Any

    @property
    def depth(self) -> int:
        return int(self.config["num_hidden_layers"])

    @property
    def width(self) -> int:
        return int(self.config["num_attention_heads"])

    def trace(self, text: str, *, words: bool = False) -> Trace:
        """What `Transformer.trace` gives, up to the rounding of float32."""
        read = self.tokenizer.encode(text)
        special = [bool(x) for x in read.special_tokens_mask]
        unknown = self.tokenizer.token_to_id("[UNK]")
        if all(special) or unknown in read.ids or len(read.ids) > self.config["most"]:
            raise LookupError("this text needs a word of the tokenizer's own")
        z = [self._start(read.ids)]
        weights = []
        for k in range(self.depth):
            after, P = self._layer(z[-1], f"encoder.layer.{k}.")
            z.append(after)
            weights.append(P)
        pieces = word_pieces(text, read.tokens, special, read.offsets, read.word_ids)
        status = Status("done", f"{self.depth} layers of bert {self.name}.")
        t = np.arange(self.depth + 1)
        trajectory = Trajectory(np.stack(z), t, status, words=pieces[0])
        trace = Trace(trajectory, np.stack(weights), np.stack(z[:-1]), *pieces[1:])
        return trace.by_word() if words else trace

    def _start(self, ids: list[int]) -> np.ndarray:
        w, n = self.weights, len(ids)
        at = w["embeddings.position_embeddings.weight"][:n]
        kind = w["embeddings.token_type_embeddings.weight"][0]
        return self._norm(self.rows(ids) + kind + at, "embeddings.")

    def _layer(self, z: np.ndarray, at: str) -> tuple[np.ndarray, np.ndarray]:
        """z <- LN(x + W_2 gelu(W_1 x)) with x = LN(z + W_O P V z): the block, and its P."""
        from scipy.special import erf

        n, heads = len(z), self.width
        q, k, v = (
            self._linear(z, f"{at}attention.self.{one}.").reshape(n, heads, -1).swapaxes(0, 1)
            for one in ("query", "key", "value")
        )
        scores = q @ k.swapaxes(1, 2) / np.float32(np.sqrt(q.shape[-1]))
        P = np.exp(scores - scores.max(axis=-1, keepdims=True))
        P /= P.sum(axis=-1, keepdims=True)
        seen = (P @ v).swapaxes(0, 1).reshape(z.shape)
        z = self._norm(
            self._linear(seen, f"{at}attention.output.dense.") + z, f"{at}attention.output."
        )
        inner = self._linear(z, f"{at}intermediate.dense.")
        inner *= 0.5 * (1 + erf(inner * np.float32(np.sqrt(0.5))))
        return self._norm(self._linear(inner, f"{at}output.dense.") + z, f"{at}output."), P

    def _linear(self, x: np.ndarray, at: str) -> np.ndarray:
        return x @ self.weights[f"{at}weight"].T + self.weights[f"{at}bias"]

    def _norm(self, x: np.ndarray, at: str) -> np.ndarray:
        x = x - x.mean(axis=-1, keepdims=True)
        size = np.sqrt(
            (x * x).mean(axis=-1, keepdims=True) + np.float32(self.config["layer_norm_eps"])
        )
        return (
            x / size * self.weights[f"{at}LayerNorm.weight"] + self.weights[f"{at}LayerNorm.bias"]
        )


def plain(folder: str | Path) -> Plain | None:
    """The model of that folder, if it is a common one in every respect; None otherwise."""
    with suppress(Exception):  # what is wrong with its files `load_transformer` says
        return _opened(Path(folder))
    return None


def _opened(folder: Path) -> Plain | None:
    if find_spec("transformers") is None:
        return None  # which load_transformer says
    config = _json(folder / "config.json")
    said = _json(folder / "tokenizer_config.json")
    made = _json(folder / "tokenizer.json")
    path = folder / "model.safetensors"
    like = all(config.get(key, value) == value for key, value in _WANTED.items())
    lower = made["normalizer"]["lowercase"] == said["do_lower_case"]
    plainly = (made["normalizer"]["type"], made["model"]["type"]) == ("BertNormalizer", "WordPiece")
    if not (like and lower and plainly) or config.get("is_decoder") or "model_type" not in config:
        return None
    if path.stat().st_size > _MOST_BYTES:
        return None
    from safetensors import safe_open
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(read_bytes(folder / "tokenizer.json", LARGEST_CONFIG).decode())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    file = safe_open(path, "np")
    stored = list(file.keys())
    before = "bert." if "bert.embeddings.LayerNorm.weight" in stored else ""
    table = "embeddings.word_embeddings.weight"
    names = [name.removeprefix(before) for name in stored if name.startswith(before)]
    used = [
        name for name in names if name.startswith(("embeddings.", "encoder.")) and name != table
    ]
    weights = {name: file.get_tensor(before + name) for name in used if "position_ids" not in name}
    words = file.get_slice(before + table)
    if any(x.dtype != np.float32 or not np.isfinite(x).all() for x in weights.values()):
        return None
    config["most"] = min(config["max_position_embeddings"], said.get("model_max_length", 512))

    def rows(ids: list[int]) -> np.ndarray:
        return np.concatenate([words[i : i + 1] for i in ids])

    return Plain(folder.name, config, weights, rows, tokenizer)


def _json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = parsed_json(read_bytes(path, LARGEST_CONFIG), str(path))
    return found
