"""The classifier's model: words as tokens, hardmax layers, their mean, a linear decoder.

A text with known terms j_1..j_m becomes the tokens z = (anchor, E_{j_1}, ..., E_{j_m}); after
`layers` layers of `PureAttention` the decision is

    decision_r = b_r + < v_r, (m z_anchor + sum_i z_i) / (m + terms) >.

The anchor, one neutral token per text, keeps the mean defined; it counts m times there, as m equal
anchors would: evidence from few words weighs little. One `Plane` holds one embedding and its
decoder rows; several planes (one class against the rest each) are read side by side.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from jaxtyping import Float

from .._files import LONGEST_LINE, Folder, parsed_json
from .._files.folders import canonical as _canonical  # noqa: F401 - of the checksums, for tests
from .._files.folders import sha256 as _sha256  # noqa: F401
from ..dynamics import PureAttention
from ..engine.layers import certified_layers
from ..simulation.loop import simulate
from ..simulation.trajectory import Trajectory
from .text import Documents, Tokenizer, Vocabulary

__all__ = ["Model", "Plane", "Verdicts", "load_files", "save_files"]

FORMAT, VERSION = "cynosure-classifier", 2  # 1: the anchor counts once
_MOST_RAYS = 512  # beyond, directions are as good as all different


class Rays(NamedTuple):
    """Tokens as radius times direction[ray]; the anchor likewise."""

    direction: np.ndarray
    ray: np.ndarray
    radius: np.ndarray
    anchor_ray: int
    anchor_radius: float


@final
@dataclass(frozen=True, eq=False)
class Plane:
    """Where the terms are placed, and how the mean of a text is decoded.

    embedding (terms, d), anchor (d,), v (rows, d), b (rows,); `prior` (rows,) is the decision for a
    text without any known term; `count` is m, how often the anchor counts in the mean.
    """

    embedding: Float[np.ndarray, "terms d"]
    anchor: Float[np.ndarray, " d"]
    v: Float[np.ndarray, "rows d"]
    b: Float[np.ndarray, " rows"]
    prior: Float[np.ndarray, " rows"]
    count: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.count < float("inf"):
            raise ValueError(f"count: the anchor counts a number > 0 of times, got {self.count}")

    @cached_property
    def rays(self) -> Rays | None:
        """The few directions all tokens lie on, or None when there are many."""
        z = np.concatenate((self.anchor[None], self.embedding))
        radius = np.linalg.norm(z, axis=1)
        if not (radius > 0).all():
            return None
        near = np.round(z / radius[:, None], 12)
        if len(np.unique(near[: 4 * _MOST_RAYS], axis=0)) > _MOST_RAYS:
            return None
        _, first, ray = np.unique(near, axis=0, return_index=True, return_inverse=True)
        direction = z[first] / radius[first, None]
        if len(first) > _MOST_RAYS or np.abs(direction[ray] - z / radius[:, None]).max() > 1e-15:
            return None
        return Rays(direction, ray[1:].astype(np.intp), radius[1:], int(ray[0]), float(radius[0]))

    def tokens(self, terms: np.ndarray) -> np.ndarray:
        """The anchor, then the embeddings of `terms` (*b, m): shape (*b, m + 1, d)."""
        first = np.broadcast_to(self.anchor, (*terms.shape[:-1], 1, len(self.anchor)))
        return np.concatenate((first, self.embedding[terms]), axis=-2)


@final
@dataclass(frozen=True, eq=False)
class Verdicts:
    """What the model made of many texts.

    `decision` (texts, rows); `leaders` (texts, planes) is how many tokens lead, the anchor included
    where it does; `on_leaders` (texts, planes) the share of the tokens' mean (the anchor counted
    once) that sits on leaders: a token that has followed its leader since layer s has
    rho^(layers - s) of it left elsewhere.
    """

    decision: np.ndarray
    leaders: np.ndarray
    on_leaders: np.ndarray


@final
@dataclass(frozen=True, eq=False)
class Model:
    """Planes that share the layers: alpha > 0 and their number."""

    planes: tuple[Plane, ...]
    alpha: float | int = 1.0
    layers: int = 8

    def __post_init__(self) -> None:
        _ = self.dynamics  # alpha > 0 is checked there
        if not self.planes or self.layers < 0:
            raise ValueError(f"a model needs a plane and layers >= 0, got {self.layers} layers")

    @property
    def dynamics(self) -> PureAttention:
        return PureAttention(alpha=self.alpha)

    @property
    def _rho(self) -> float:
        return float(1 / (1 + self.dynamics.exact_alpha))

    @property
    def rows(self) -> int:
        return sum(len(plane.b) for plane in self.planes)

    def locate(self, row: int) -> tuple[int, int]:
        """(plane, row within that plane) of decision `row`."""
        for p, plane in enumerate(self.planes):
            if row < len(plane.b):
                return p, row
            row -= len(plane.b)
        raise IndexError(f"row: the model has {self.rows}")

    def read(self, documents: Documents, progress: Callable[[int], Any] | None = None) -> Verdicts:
        """Every text through the layers; progress(k) after k texts of a plane are done."""
        n = len(documents)
        decision = np.empty((n, self.rows))
        leaders = np.zeros((n, len(self.planes)), dtype=np.intp)
        on_leaders = np.ones((n, len(self.planes)))
        column = 0
        for p, plane in enumerate(self.planes):
            rows_of = slice(column, column + len(plane.b))
            column += len(plane.b)
            mean, leaders[:, p], on_leaders[:, p] = self._means(plane, documents, progress)
            decision[:, rows_of] = mean @ plane.v.T + plane.b
            decision[documents.sizes == 0, rows_of] = plane.prior
        return Verdicts(decision, leaders, on_leaders)

    def _means(
        self, plane: Plane, documents: Documents, progress: Callable[[int], Any] | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean token at the last layer, number of leaders, share on leaders, for each text."""
        n, alpha = len(documents), self.dynamics.exact_alpha
        mean, share = np.zeros((n, len(plane.anchor))), np.ones(n)
        led = np.full(n, -1, dtype=np.intp)
        if self.layers and plane.rays is not None:
            mean, led = self._along_rays(plane, plane.rays, documents)
            left = self._rho**self.layers
            share = 1.0 - left * (1.0 - led / (documents.sizes + 1.0))
        open_ = np.flatnonzero(led < 0)
        done = n - len(open_)
        for batch, terms, mask in documents.take(open_).padded_batches():
            rows = open_[batch]
            z, real = plane.tokens(terms), np.pad(mask, ((0, 0), (1, 0)), constant_values=True)
            states, _, history = certified_layers(z, None, alpha, real, np.array([self.layers]))
            last, born, settled_at = states[0], history.born, history.settled_at
            count = real.sum(axis=1)
            more = plane.count - 1.0
            mean[rows] = (last * real[..., None]).sum(axis=1) + more * last[:, 0]
            mean[rows] /= (count + more)[:, None]
            left = self._rho ** (self.layers - np.maximum(settled_at, 0.0))
            elsewhere = np.where(born >= 0, 0.0, np.where(settled_at >= 0, left, 1.0))
            led[rows] = (born >= 0).sum(axis=1)
            share[rows] = 1.0 - (elsewhere * real).sum(axis=1) / count
            done += len(rows)
            if progress is not None:
                progress(done)
        return mean, led, share

    def _along_rays(
        self, plane: Plane, rays: Rays, documents: Documents
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean token and number of leaders, -1 for the texts that need the general path."""
        from ..engine.kernels.rays import ray_means

        mass = np.zeros((len(documents), len(rays.direction)))
        gap = 16 * (len(rays.direction[0]) + 4) * 2.0**-53 * float(rays.radius.max(initial=1.0))
        led = ray_means(
            documents.indptr, documents.indices, rays.ray, rays.radius,
            rays.direction @ rays.direction.T, rays.anchor_ray, rays.anchor_radius, plane.count,
            self._rho**self.layers, gap, mass,
        )  # fmt: skip
        return mass @ rays.direction, led

    def carry(self, plane: int, terms: np.ndarray, words: tuple[str, ...]) -> Trajectory:
        """One text through the layers, all of them kept; `words` names its terms."""
        z = self.planes[plane].tokens(np.asarray(terms, dtype=np.intp))
        return simulate(self.dynamics, z, layers=self.layers, words=("", *words))


# --- files ------------------------------------------------------------------------------------


FOLDER = Folder(
    what="a cynosure model",
    writer="HardmaxClassifier.save",
    format=FORMAT,
    manifest="model.json",
    files=("model.safetensors", "vocabulary.json"),
)
_LARGEST_TENSORS_HEADER = 16 << 20  # bytes
MOST_LAYERS = 100_000  # an explanation keeps them all
_LARGEST = 1e100  # of any coordinate: squares and sums of squares stay finite


def save_files(
    path: str | os.PathLike[str], model: Model, vocabulary: Vocabulary, settings: dict[str, Any]
) -> Path:
    """Write a model folder: model.safetensors, vocabulary.json, model.json with their checksums.

    The folder is the old one or the new one at every instant, see `Folder`; a folder that is not a
    model, or that holds anything else, is never touched.
    """
    from safetensors.numpy import save

    arrays = {"df": vocabulary.df.astype(np.int32)}
    arrays["count"] = np.array([plane.count for plane in model.planes])
    for p, plane in enumerate(model.planes):
        for name in ("embedding", "anchor", "v", "b", "prior"):
            arrays[f"{name}.{p}"] = np.ascontiguousarray(getattr(plane, name))
    if model.layers > MOST_LAYERS:
        raise ValueError(f"layers: a saved model has at most {MOST_LAYERS}, got {model.layers}")
    tokenizer = vocabulary.tokenizer
    files = {
        "model.safetensors": save(arrays),
        "vocabulary.json": json.dumps(vocabulary.terms, ensure_ascii=False).encode(),
    }
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "planes": len(model.planes),
        "alpha": model.alpha,
        "layers": model.layers,
        "tokenizer": {"ngrams": list(tokenizer.ngrams), "lowercase": tokenizer.lowercase},
        "settings": settings,
    }
    return FOLDER.save(path, files, header)


def load_files(path: str | os.PathLike[str]) -> tuple[Model, Vocabulary, dict[str, Any]]:
    """Read what `save_files` wrote; anything truncated, edited, foreign or newer is refused.

    A checksum is no signature: whoever writes the folder can write a matching one. So shapes,
    types, finiteness and sizes are checked against each other before compiled code sees them.
    """
    path = Path(path)
    header, data = FOLDER.load(path, VERSION)
    try:
        model, vocabulary = _checked(header, data)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        said = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise FOLDER.refused(path, said) from None
    return model, vocabulary, header["settings"]


def _checked(header: dict[str, Any], data: dict[str, bytes]) -> tuple[Model, Vocabulary]:
    """The model and its vocabulary, or ValueError, KeyError, TypeError, IndexError."""
    arrays = _tensors(data["model.safetensors"])
    count = header["planes"]
    if type(count) is not int or not 1 <= count <= len(arrays):
        raise ValueError(f"planes: expected how many there are, got {count!r}")
    if "settings" not in header:
        raise KeyError("settings")
    df = arrays["df"]
    if df.dtype.kind not in "iu" or df.ndim != 1 or (df < 0).any():
        raise ValueError("df: expected the number of texts of each term")
    counts = arrays["count"] if header["version"] > 1 else np.ones(count)
    _finite("count", counts, (count,))
    planes = tuple(_plane(arrays, p, len(df), float(counts[p])) for p in range(count))
    terms = _terms(data["vocabulary.json"], len(df))
    words = header["tokenizer"]
    low, high = words["ngrams"]
    if {type(low), type(high), type(words["lowercase"])} != {int, bool}:
        raise ValueError(f"tokenizer: expected ngrams and lowercase, got {words!r}")
    vocabulary = Vocabulary(terms, df.astype(np.intp), Tokenizer((low, high), words["lowercase"]))
    alpha, layers = header["alpha"], header["layers"]
    if type(alpha) not in (int, float) or type(layers) is not int or layers > MOST_LAYERS:
        raise ValueError(f"alpha, layers: expected two numbers, got {alpha!r} and {layers!r}")
    return Model(planes, alpha, layers), vocabulary


def _tensors(data: bytes) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if int.from_bytes(data[:8], "little") > _LARGEST_TENSORS_HEADER:
        raise ValueError("model.safetensors lists far too many arrays")
    try:
        return load(data)
    except (SafetensorError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"model.safetensors is not readable ({error})") from None


def _plane(arrays: dict[str, np.ndarray], p: int, terms: int, count: float) -> Plane:
    """Plane p, its arrays of one dimension d and one number of rows."""
    parts = {name: arrays[f"{name}.{p}"] for name in ("embedding", "anchor", "v", "b", "prior")}
    (d,), (rows,) = parts["anchor"].shape, parts["b"].shape
    if not (d and rows and terms):
        raise ValueError(f"plane {p} is empty")
    shapes = {"embedding": (terms, d), "anchor": (d,), "v": (rows, d)}
    for name, values in parts.items():
        _finite(f"{name}.{p}", values, shapes.get(name, (rows,)))
    return Plane(**parts, count=count)


def _finite(name: str, values: np.ndarray, shape: tuple[int, ...]) -> None:
    if values.shape != shape or values.dtype not in (np.float64, np.float32):
        raise ValueError(
            f"{name}: expected floats of shape {shape}, got {values.dtype} of {values.shape}"
        )
    if not (np.abs(values) <= _LARGEST).all():
        raise ValueError(f"{name}: expected finite numbers up to {_LARGEST:g}")


def _terms(data: bytes, expected: int) -> tuple[str, ...]:
    """The terms of vocabulary.json, a list of `expected` words.

    Words have no quote, bracket or comma: where the text is large, counting those tells before
    parsing how many objects it would make, and that they are strings.
    """
    marks = [data.count(mark) for mark in (b'"', b"[", b"{", b",")]
    as_listed = marks == [2 * expected, 1, 0, expected - 1]
    terms = parsed_json(data, "vocabulary.json", len(data)) if as_listed else None
    if not as_listed and len(data) <= LONGEST_LINE:
        terms = parsed_json(data, "vocabulary.json")
    if not isinstance(terms, list) or not all(isinstance(term, str) for term in terms):
        raise ValueError("vocabulary.json: expected a list of terms")
    if len(terms) != expected:
        raise ValueError(f"vocabulary.json: expected {expected} terms, got {len(terms)}")
    return tuple(terms)
