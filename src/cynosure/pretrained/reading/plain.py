"""Plain: BERT (MiniLM) in NumPy, which reads a text while torch is still being imported.

Importing torch and transformers takes seconds; MiniLM and its tokenizer take a few hundredths. Only
what is common is taken: for other folders `plain` is None, for other texts `trace` raises
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
_WORDS = "embeddings.word_embeddings.weight"


@final
@dataclass(frozen=True, eq=False)
class Plain:
    """The weights of a BERT by name; those of its words are read row by row."""

    name: str
    depth: int
    width: int
    longest: int
    eps: np.float32
    weights: dict[str, np.ndarray]
    rows: Callable[[list[int]], np.ndarray]
    tokenizer: Any

    def trace(self, text: str, *, words: bool = False) -> Trace:
        """What `Transformer.trace` gives, up to the rounding of float32."""
        read = self.tokenizer.encode(text)
        special = [bool(x) for x in read.special_tokens_mask]
        unknown = self.tokenizer.token_to_id("[UNK]")
        if all(special) or unknown in read.ids or len(read.ids) > self.longest:
            raise LookupError("this text needs the model itself")
        place = self.weights["embeddings.position_embeddings.weight"][: len(read.ids)]
        kind = self.weights["embeddings.token_type_embeddings.weight"][0]
        z, P = [self._norm(self.rows(read.ids) + kind + place, "embeddings.")], []
        for k in range(self.depth):
            after, weights = self._layer(z[-1], f"encoder.layer.{k}.")
            z.append(after)
            P.append(weights)
        pieces, groups, names = word_pieces(text, read.tokens, special, read.offsets, read.word_ids)
        status = Status("done", f"{self.depth} layers of bert {self.name}.")
        run = Trajectory(np.stack(z), np.arange(len(z)), status, words=pieces)
        trace = Trace(run, np.stack(P), np.stack(z[:-1]), groups, names)
        return trace.by_word() if words else trace

    def _layer(self, z: np.ndarray, at: str) -> tuple[np.ndarray, np.ndarray]:
        """norm(x + W_2 gelu(W_1 x)) with x = norm(z + W_O P V z), and P."""
        from scipy.special import erf

        q, k, v = (
            self._linear(z, f"{at}attention.self.{one}.")
            .reshape(len(z), self.width, -1)
            .swapaxes(0, 1)
            for one in ("query", "key", "value")
        )
        scores = q @ k.swapaxes(1, 2) / np.float32(np.sqrt(q.shape[-1]))
        P = np.exp(scores - scores.max(axis=-1, keepdims=True))
        P /= P.sum(axis=-1, keepdims=True)
        heard = (P @ v).swapaxes(0, 1).reshape(z.shape)
        x = z + self._linear(heard, f"{at}attention.output.dense.")
        x = self._norm(x, f"{at}attention.output.")
        inner = self._linear(x, f"{at}intermediate.dense.")
        inner *= 0.5 * (1 + erf(inner * np.float32(np.sqrt(0.5))))
        return self._norm(x + self._linear(inner, f"{at}output.dense."), f"{at}output."), P

    def _linear(self, x: np.ndarray, at: str) -> np.ndarray:
        return x @ self.weights[f"{at}weight"].T + self.weights[f"{at}bias"]

    def _norm(self, x: np.ndarray, at: str) -> np.ndarray:
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.eps)
        return x * self.weights[f"{at}LayerNorm.weight"] + self.weights[f"{at}LayerNorm.bias"]


def plain(folder: str | Path) -> Plain | None:
    """The model of that folder, if it is a common one in every respect; None otherwise."""
    with suppress(Exception):  # what is wrong with its files `load_transformer` says
        return _opened(Path(folder))
    return None


def _opened(folder: Path) -> Plain | None:
    from safetensors import safe_open
    from tokenizers import Tokenizer

    texts = [
        read_bytes(folder / f"{name}.json", LARGEST_CONFIG)
        for name in ("config", "tokenizer_config", "tokenizer")
    ]
    config, said, made = (parsed_json(text, str(folder)) for text in texts)
    like = all(config.get(key, value) == value for key, value in _WANTED.items())
    lower = made["normalizer"]["lowercase"] == said["do_lower_case"]
    plainly = (made["normalizer"]["type"], made["model"]["type"]) == ("BertNormalizer", "WordPiece")
    small = (folder / "model.safetensors").stat().st_size < _MOST_BYTES
    known = "model_type" in config and not config.get("is_decoder") and find_spec("transformers")
    if not (like and lower and plainly and small and known):
        return None
    tokenizer = Tokenizer.from_str(texts[2].decode())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    file = safe_open(folder / "model.safetensors", "np")
    names = list(file.keys())
    front = "bert." if f"bert.{_WORDS}" in names else ""
    used = [name.removeprefix(front) for name in names if name.startswith(front)]
    used = [name for name in used if name.endswith(("weight", "bias")) and "pooler" not in name]
    weights = {name: file.get_tensor(front + name) for name in used if name != _WORDS}
    words = file.get_slice(front + _WORDS)
    sound = all(x.dtype == np.float32 and np.isfinite(x).all() for x in weights.values())
    if not sound or words.get_dtype() != "F32":
        return None
    return Plain(
        name=folder.name,
        depth=int(config["num_hidden_layers"]),
        width=int(config["num_attention_heads"]),
        longest=min(config["max_position_embeddings"], said["model_max_length"]),
        eps=np.float32(config["layer_norm_eps"]),
        weights=weights,
        rows=lambda ids: np.concatenate([words[i : i + 1] for i in ids]),
        tokenizer=tokenizer,
    )
