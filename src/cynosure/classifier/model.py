"""The classifier's model: words as tokens, hardmax layers, their mean, a linear decoder.

A text with known terms j_1..j_m becomes the tokens z = (anchor, E_{j_1}, ..., E_{j_m}); after
`layers` layers of `PureAttention` the decision is

    decision_r = b_r + < v_r, (m z_anchor + sum_i z_i) / (m + terms) >.

The anchor, one neutral token per text, keeps the mean defined; it counts m times there, as m equal
anchors would: evidence from few words weighs little. One `Plane` holds one embedding and its
decoder rows; several planes (one class against the rest each) are read side by side.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from jaxtyping import Float

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


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _canonical(header: dict[str, Any]) -> bytes:
    return json.dumps(header, sort_keys=True, ensure_ascii=False).encode()


def save_files(
    path: str | os.PathLike[str], model: Model, vocabulary: Vocabulary, settings: dict[str, Any]
) -> Path:
    """Write a model folder: model.safetensors, vocabulary.json, model.json with their checksums.

    The folder appears whole or not at all; a folder that is not a model is never replaced.
    """
    from safetensors.numpy import save

    path = Path(path)
    if path.exists() and not (path / "model.json").is_file():
        raise ValueError(f"{path}: exists and is not a cynosure model; choose another folder")
    arrays = {"df": vocabulary.df.astype(np.int32)}
    arrays["count"] = np.array([plane.count for plane in model.planes])
    for p, plane in enumerate(model.planes):
        for name in ("embedding", "anchor", "v", "b", "prior"):
            arrays[f"{name}.{p}"] = np.ascontiguousarray(getattr(plane, name))
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
        "sha256": {name: _sha256(data) for name, data in files.items()},
    }
    header["checksum"] = _sha256(_canonical(header))
    files["model.json"] = json.dumps(header, indent=1, ensure_ascii=False).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        for name, data in files.items():
            (new / name).write_bytes(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(new, 0o777 & ~umask)
        if path.exists():
            old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
            os.replace(path, old)
            os.replace(new, path)
            shutil.rmtree(old)
        else:
            os.replace(new, path)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return path


def load_files(path: str | os.PathLike[str]) -> tuple[Model, Vocabulary, dict[str, Any]]:
    """Read what `save_files` wrote; anything truncated, edited, foreign or newer is refused."""
    from safetensors.numpy import load

    path = Path(path)
    if not (path / "model.json").is_file():
        raise FileNotFoundError(f"{path}: no model here; expected a folder with model.json")
    try:
        header = json.loads((path / "model.json").read_bytes())
        kind, version = header["format"], header["version"]
        stated = header.pop("checksum")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _refused(path, "model.json is not readable") from None
    if kind != FORMAT:
        raise _refused(path, f"it is a {kind!r}")
    if not isinstance(version, int) or version > VERSION:
        raise ValueError(
            f"{path}: written by a newer cynosure (format {version}, this one reads {VERSION}); "
            "upgrade with `pip install -U cynosure`"
        )
    if stated != _sha256(_canonical(header)):
        raise _refused(path, "model.json was changed")
    data = {}
    for name in ("model.safetensors", "vocabulary.json"):
        if not (path / name).is_file():
            raise _refused(path, f"{name} is missing")
        data[name] = (path / name).read_bytes()
        if _sha256(data[name]) != header["sha256"][name]:
            raise _refused(path, f"{name} was changed or cut short")
    arrays = load(data["model.safetensors"])
    counts = arrays["count"].tolist() if version > 1 else [1.0] * header["planes"]
    planes = tuple(
        Plane(
            arrays[f"embedding.{p}"], arrays[f"anchor.{p}"], arrays[f"v.{p}"], arrays[f"b.{p}"],
            arrays[f"prior.{p}"], count,
        )
        for p, count in enumerate(counts)
    )  # fmt: skip
    words = header["tokenizer"]
    tokenizer = Tokenizer((words["ngrams"][0], words["ngrams"][1]), words["lowercase"])
    terms = tuple(json.loads(data["vocabulary.json"]))
    vocabulary = Vocabulary(terms, arrays["df"].astype(np.intp), tokenizer)
    return Model(planes, header["alpha"], header["layers"]), vocabulary, header["settings"]


def _refused(path: Path, why: str) -> ValueError:
    return ValueError(
        f"{path}: {why}; expected a folder written by HardmaxClassifier.save, copy it again"
    )
