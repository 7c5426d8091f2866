"""The classifier's model: words as tokens, hardmax layers, their mean, a linear decoder.

A text with known terms j_1..j_m becomes the tokens z = (anchor, E_{j_1}, ..., E_{j_m}), the anchor
as long as the text needs it (`plane`); after `layers` layers of `PureAttention` the decision is

    decision_r = b_r + < v_r, (m z_anchor + sum_i z_i) / (m + terms) >.

The anchor, one neutral token per text, keeps the mean defined; it counts m times there, as m equal
anchors would: evidence from few words weighs little. One `Plane` holds one embedding and its
decoder rows; several planes (one class against the rest each) are read side by side.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from ..._files import LONGEST_LINE, Folder, parsed_json
from ..._files.folders import canonical as _canonical  # noqa: F401 - of the checksums, for tests
from ..._files.folders import sha256 as _sha256  # noqa: F401
from ...dynamics import PureAttention
from ...engine.layers import certified_layers
from ...simulation.loop import simulate
from ...simulation.trajectory import Trajectory
from ..text.documents import Documents
from ..text.vocabulary import Tokenizer, Vocabulary, name_of, named, negators_of
from .plane import Plane, Rays, Together

FORMAT, VERSION = "cynosure-classifier", 4  # 1: the anchor counts once; 2: it has one length;
# 3: planes read by themselves


@final
@dataclass(frozen=True, eq=False)
class Verdicts:
    """What the model made of many texts.

    `decision` (texts, rows); `known` (texts,) is how many terms the model knows. By text and plane:
    `leaders`, how many tokens lead, the anchor included where it does; `on_leaders`, the share of
    the tokens' mean (the anchor counted once) on leaders, of which a token that has followed since
    layer s leaves rho^(layers - s) elsewhere; `speaking`, how many terms the anchor does not
    silence; `direct`, whether one pass along the rays sufficed and no layer had to be walked.
    """

    decision: np.ndarray
    leaders: np.ndarray
    on_leaders: np.ndarray
    speaking: np.ndarray
    known: np.ndarray
    direct: np.ndarray

    @property
    def evidence(self) -> np.ndarray:
        """(texts,) whether anything was read: without, there is a prior and no verdict."""
        return np.asarray(self.speaking.any(axis=1))

    @classmethod
    def joined(cls, parts: Sequence[Verdicts]) -> Verdicts:
        """The verdicts of one list of texts after the other."""
        names = [f.name for f in fields(cls)]
        return cls(**{k: np.concatenate([getattr(part, k) for part in parts]) for k in names})


@final
@dataclass(frozen=True, eq=False)
class Model:
    """Planes that share the layers: alpha > 0 and their number.

    `joint`: the decisions of several planes are the logits of one softmax; otherwise each is the
    log-odds of its class against the rest.
    """

    planes: tuple[Plane, ...]
    alpha: float | int = 1.0
    layers: int = 8
    joint: bool = False

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

    def read(self, documents: Documents, *, layers: int | None = None) -> Verdicts:
        """Every text through the layers, or through another number of them."""
        if layers is not None and layers != self.layers:
            return replace(self, layers=layers).read(documents)
        decisions, found = [], []
        for plane in self.planes:
            mean, *rest = self._means(plane, documents)
            decision = mean @ plane.v.T + plane.b
            decision[documents.sizes == 0] = plane.prior
            decisions.append(decision)
            found.append(rest)
        leaders, on_leaders, speaking, direct = (np.stack(x, axis=1) for x in zip(*found))
        decision = np.concatenate(decisions, axis=1)
        return Verdicts(decision, leaders, on_leaders, speaking, documents.sizes, direct)

    def _means(
        self, plane: Plane, documents: Documents
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """By text the mean token at the last layer and, of `Verdicts`, leaders to direct."""
        n = len(documents)
        length = plane.lengths(documents)
        mean, share = np.zeros((n, len(plane.anchor))), np.ones(n)
        led, said = np.full(n, -1, dtype=np.intp), np.zeros(n, dtype=np.intp)
        if plane.rays is not None:
            mean, led, said = self._along_rays(plane, plane.rays, documents, length)
            left = self._rho**self.layers
            share = 1.0 - left * (1.0 - led / (documents.sizes + 1.0))
        direct = led >= 0
        open_ = np.flatnonzero(~direct)
        for batch, real, last, history in self.walk(plane, documents.take(open_)):
            rows, born, settled_at = open_[batch], history.born, history.settled_at
            count = real.sum(axis=1)
            more = plane.count - 1.0
            mean[rows] = (last * real[..., None]).sum(axis=1) + more * last[:, 0]
            mean[rows] /= (count + more)[:, None]
            left = self._rho ** (self.layers - np.maximum(settled_at, 0.0))
            elsewhere = np.where(born >= 0, 0.0, np.where(settled_at >= 0, left, 1.0))
            led[rows] = (born >= 0).sum(axis=1)
            said[rows] = (real & (history.leader != history.leader[:, :1])).sum(axis=1)
            share[rows] = 1.0 - (elsewhere * real).sum(axis=1) / count
        return mean, led, share, said, direct

    def walk(
        self, plane: Plane, documents: Documents
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, Any]]:
        """(rows, real tokens, their last layer, their history), batch by batch, layer by layer."""
        alpha, length = self.dynamics.exact_alpha, plane.lengths(documents)
        for rows, terms, mask in documents.padded_batches():
            z = plane.tokens(terms, length[rows])
            real = np.pad(mask, ((0, 0), (1, 0)), constant_values=True)
            states, _, history = certified_layers(z, None, alpha, real, np.array([self.layers]))
            yield rows, real, states[0], history

    def _along_rays(
        self, plane: Plane, rays: Rays, documents: Documents, length: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean token, leaders (-1 for the texts that need the general path), terms that speak."""
        from ..kernels.rays import ray_means

        mass = np.zeros((len(documents), len(rays.direction)))
        said = np.zeros(len(documents), dtype=np.intp)
        longest = max(float(rays.radius.max(initial=1.0)), float(length.max(initial=1.0)))
        gap = 16 * (len(rays.direction[0]) + 4) * 2.0**-53 * longest
        led = ray_means(
            documents.indptr, documents.indices, rays.ray, rays.radius,
            plane.cosine, rays.anchor_ray, length, plane.count,
            self._rho**self.layers, gap, rays.apart, mass, said,
        )  # fmt: skip
        return mass @ rays.direction, led, said

    def carry(self, plane: int, terms: np.ndarray, words: tuple[str, ...]) -> Trajectory:
        """One text through the layers, all of them kept; `words` names its terms."""
        where, rows = self.planes[plane], np.asarray(terms, dtype=np.intp)
        length = where.lengths(Documents(np.array([0, len(rows)]), rows))
        z = where.tokens(rows[None], length)[0]
        return simulate(self.dynamics, z, layers=self.layers, words=("", *words))


# --- files ------------------------------------------------------------------------------------


FOLDER = Folder(
    what="a cynosure model", writer="HardmaxClassifier.save", format=FORMAT, manifest="model.json",
    files=("model.safetensors", "vocabulary.json"),
)  # fmt: skip
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

    arrays = {"df": vocabulary.df.astype(np.int32), "hash": vocabulary.hashes}
    for name in ("count", "kappa"):
        arrays[name] = np.array([getattr(plane, name) for plane in model.planes])
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
        "format": FORMAT, "version": VERSION, "planes": len(model.planes), "alpha": model.alpha,
        "layers": model.layers, "joint": model.joint,
        "together": model.planes[0].together is not None,
        "tokenizer": {
            "ngrams": list(tokenizer.ngrams), "lowercase": tokenizer.lowercase,
            "negation": tokenizer.negation, "negators": list(tokenizer.negators),
            "own": name_of(tokenizer.own),
        },
        "settings": settings,
    }  # fmt: skip
    return FOLDER.save(path, files, header)


def load_files(path: str | os.PathLike[str]) -> tuple[Model, Vocabulary, dict[str, Any]]:
    """Read what `save_files` wrote; anything truncated, edited, foreign or newer is refused.

    A checksum is no signature, so shapes, types, finiteness and sizes are checked against each
    other before compiled code sees them."""
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
    kappa = arrays["kappa"] if header["version"] > 2 else np.full(count, np.inf)
    _finite("kappa", np.where(np.isposinf(kappa), 0.0, kappa), (count,))
    planes = tuple(
        _plane(arrays, p, len(df), float(counts[p]), float(kappa[p])) for p in range(count)
    )
    terms = _terms(data["vocabulary.json"], len(df))
    words = header["tokenizer"]
    low, high = words["ngrams"]
    negation = words["negation"] if header["version"] > 2 else False
    flags = {type(words["lowercase"]), type(negation)}
    if {type(low), type(high)} != {int} or flags != {bool}:
        raise ValueError(f"tokenizer: expected ngrams, lowercase and negation, got {words!r}")
    tokenizer = Tokenizer((low, high), words["lowercase"], negation)
    if header["version"] > 3:
        negators = negators_of([str(w) for w in words["negators"]])
        tokenizer = replace(tokenizer, negators=negators, own=named(words.get("own")))
    hashes = arrays.get("hash")  # older files have none
    if hashes is not None and (hashes.dtype != np.uint64 or hashes.shape != df.shape):
        raise ValueError("hash: expected the hash of each term")
    vocabulary = Vocabulary(terms, df.astype(np.intp), tokenizer, hashes)
    alpha, layers = header["alpha"], header["layers"]
    if type(alpha) not in (int, float) or type(layers) is not int or layers > MOST_LAYERS:
        raise ValueError(f"alpha, layers: expected two numbers, got {alpha!r} and {layers!r}")
    joint = header["joint"] if header["version"] > 2 else False
    together = header["together"] if header["version"] > 3 else False
    if type(joint) is not bool or type(together) is not bool:
        raise ValueError(f"joint, together: expected true or false, got {joint!r}, {together!r}")
    if together:
        planes = Together.of(planes)
    return Model(planes, alpha, layers, joint), vocabulary


def _tensors(data: bytes) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if int.from_bytes(data[:8], "little") > _LARGEST_TENSORS_HEADER:
        raise ValueError("model.safetensors lists far too many arrays")
    try:
        return load(data)
    except (SafetensorError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"model.safetensors is not readable ({error})") from None


def _plane(arrays: dict[str, np.ndarray], p: int, terms: int, count: float, kappa: float) -> Plane:
    """Plane p, its arrays of one dimension d and one number of rows."""
    parts: dict[str, Any] = {
        name: arrays[f"{name}.{p}"] for name in ("embedding", "anchor", "v", "b", "prior")
    }
    (d,), (rows,) = parts["anchor"].shape, parts["b"].shape
    if not (d and rows and terms):
        raise ValueError(f"plane {p} is empty")
    shapes = {"embedding": (terms, d), "anchor": (d,), "v": (rows, d)}
    for name, values in parts.items():
        _finite(f"{name}.{p}", values, shapes.get(name, (rows,)))
    return Plane(**parts, count=count, kappa=kappa)


def _finite(name: str, values: np.ndarray, shape: tuple[int, ...]) -> None:
    if values.shape != shape or values.dtype not in (np.float64, np.float32):
        raise ValueError(
            f"{name}: expected floats of shape {shape}, got {values.dtype} of {values.shape}"
        )
    if not (np.abs(values) <= _LARGEST).all():
        raise ValueError(f"{name}: expected finite numbers up to {_LARGEST:g}")


def _terms(data: bytes, expected: int) -> tuple[str, ...]:
    """The terms of vocabulary.json, a list of `expected` words. Words have no quote, bracket or
    comma: counting those tells before parsing how many objects a large file would make."""
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
