"""One layer of a transformer run many times over, beside the same layer with its heads silent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, final

import numpy as np

from ..._shapes import Float
from ...analysis.clustering import clusters
from ...drawing.tables import Table
from ...simulation.trajectory import Trajectory
from ..heads.head import Head
from .examples import ONE_THREAD
from .traces import settling
from .transformer import Transformer

NEAR = 0.01  # clusters, and values of f1*, are counted at this share of the token length
TRUSTED = 0.1  # a prediction counts while its relative error is below this

CONTROL = (
    "Norm and output bias act even when every head is silent, so each run is held against that "
    "control: what the control does too is the work of norm and bias, not of the heads."
)
COLUMNS = {
    "run": "run", "norm": "norm", "layers": "times", "clusters": "clusters",
    "directions": "directions", "mean_cosine": "mean cosine", "rate": "rate", "growth": "growth",
    "step": "last step", "values": "values of f1*", "control": "control", "places": "places",
    "foretold": "foretold", "frozen": "frozen error", "status": "status",
}  # fmt: skip
Parts = Literal["block", "attention", "head"]


@final
@dataclass(frozen=True, eq=False)
class Iterated:
    """One layer run many times over, and the runs it is compared with.

    `control` is the same run with every head silent (None for a control itself); `frozen` the same
    run with the attention matrix P held at its first value, which is the prediction of the master
    equation; `head` is the head, where only one was left on.
    """

    name: str
    parts: Parts
    norm: bool
    run: Trajectory
    control: Trajectory | None = None
    frozen: Trajectory | None = None
    head: Head | None = None

    @property
    def coordinates(self) -> Float[np.ndarray, "layers n"] | None:
        """f1*(z_i) along the leading eigenvector of the head, by layer; None without one."""
        lead = None if self.head is None else self.head.leading
        return None if lead is None else self.run.values.astype(np.float64) @ lead.dual

    @cached_property
    def row(self) -> dict[str, Any]:
        """One row of the table: `settling`, agreement with the control, distinct f1*(z_i) of one
        head at the end (`values`), and the two numbers of `foretold()`."""
        end: dict[str, Any] = dict.fromkeys(COLUMNS)
        if len(self.run) > 1:
            end |= settling(self.run)
        end |= {"run": self.name, "norm": self.norm, "status": self.run.status.short}
        if self.control is not None:
            end["control"] = agreement(self.run, self.control)
            end["places"] = places(self.run, self.control)
        f = self.coordinates
        if f is not None:
            size = float(np.abs(f[-1]).max()) or 1.0
            end["values"] = clusters(f[-1][:, None] / size, NEAR).count
        if self.frozen is not None:
            end["foretold"], end["frozen"] = foretold(self.run, self.frozen)
        return end


def foretold(run: Trajectory, frozen: Trajectory) -> tuple[int, float]:
    """How many layers the run with frozen attention predicts, up to the last before the error first
    exceeds 10 %, and its relative error at the end."""
    error = frozen_error(run, frozen)
    late = np.flatnonzero(error > TRUSTED)
    return int(run.t[late[0] - 1 if len(late) else len(error) - 1]), float(error[-1])


def frozen_error(run: Trajectory, frozen: Trajectory) -> Float[np.ndarray, "layers"]:
    """|Z - Z_frozen| / |Z| for every layer that both runs reached."""
    m = min(len(run), len(frozen))
    a, b = (tr.values[:m].astype(np.float64) for tr in (run, frozen))
    size = np.linalg.norm(a, axis=(1, 2))
    return np.linalg.norm(a - b, axis=(1, 2)) / np.where(size > 0, size, 1.0)


def agreement(run: Trajectory, control: Trajectory) -> float | None:
    """Mean over tokens of the cosine between the two last states; None where a token is 0."""
    a, b = (tr.values[-1].astype(np.float64) for tr in (run, control))
    length = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return float(((a * b).sum(axis=1) / length).mean()) if (length > 0).all() else None


def places(run: Trajectory, control: Trajectory, tol: float = NEAR) -> float | None:
    """The least cosine of a cluster of the run with the nearest one of the control; 1: it ends at
    the same places, perhaps with other tokens at each. None where a cluster is at 0."""
    found, known = (centres(tr.values[-1], tol) for tr in (run, control))
    if not (found.any(axis=1).all() and known.any(axis=1).all()):
        return None
    return float((found @ known.T).max(axis=1).min())


def centres(z: np.ndarray, tol: float = NEAR) -> Float[np.ndarray, "clusters d"]:
    """Directions of the clusters of tokens z (n, d), counted at `tol` of their length."""
    z = z.astype(np.float64)
    scale = float(np.sqrt((z**2).sum(axis=1).mean())) or 1.0
    c = clusters(z / scale, tol).centres
    return c / np.maximum(np.linalg.norm(c, axis=1, keepdims=True), np.finfo(float).tiny)


def random_tokens(transformer: Transformer, n: int = 24, seed: int = 0) -> Float[np.ndarray, "n d"]:
    """Gaussian tokens of length about √d, the length a norm gives them; fewer for short models."""
    d = int(transformer.model.config.hidden_size)
    rng = np.random.default_rng(seed)
    return rng.standard_normal((min(n, transformer.max_tokens), d))


@ONE_THREAD
def iterated_cases(
    transformer: Transformer,
    tokens: Any,
    layer: int,
    head: int | None,
    n: int,
    norms: Sequence[bool] = (True, False),
) -> list[Iterated]:
    """The layer run n times over: whole, without feed-forward part, and one head alone (`head`, or
    each in turn), with and without norms. The controls have every head silent; that of the whole
    layer keeps the feed-forward part. All but the controls also run with frozen attention."""
    heads = transformer.heads(layer)
    chosen = heads if head is None else (heads[head],)
    every = max(1, n // 200)

    def go(parts: Parts, only: Any, norm: bool, frozen: bool = False) -> Trajectory:
        options: dict[str, Any] = {"norm": norm, "frozen": frozen, "save_every": every}
        return transformer.iterate(tokens, layer, n, parts=parts, head=only, **options)

    out = []
    for norm in norms:
        whole, plain = go("block", (), norm), go("attention", (), norm)
        wanted: list[tuple[str, Parts, Head | None, Trajectory]] = [
            ("whole layer", "block", None, whole),
            ("all heads", "attention", None, plain),
            *((f"head {one.index}", "head", one, plain) for one in chosen),
        ]
        for name, parts, one, control in wanted:
            only = None if one is None else one.index
            run, frozen = (go(parts, only, norm, still) for still in (False, True))
            out.append(Iterated(name, parts, norm, run, control=control, frozen=frozen, head=one))
        out.append(Iterated("whole layer, no head", "block", norm, whole))
        out.append(Iterated("no head", "attention", norm, plain))
    return out


@ONE_THREAD
def other_starts(
    transformer: Transformer, text: Any, layers: Sequence[int], head: int | None, n: int
) -> Table:
    """Attention alone from the text (if any), random tokens and the unit sphere, with controls."""
    random = random_tokens(transformer)
    sphere = random / np.linalg.norm(random, axis=1, keepdims=True)
    starts = {} if text is None else {"text": text}
    starts |= {"random tokens": random, "unit sphere": sphere}
    one = {} if head is None else {f"head {head}": head}
    variants: dict[str, Any] = {"all heads": None, **one, "no head": ()}
    keys = ("clusters", "mean_cosine", "rate", "step")
    rows = []
    for layer in layers:
        for start, z in starts.items():
            runs = {
                name: transformer.iterate(
                    z, layer, n, parts="attention", head=only, save_every=max(1, n // 100)
                )
                for name, only in variants.items()
            }
            for name, run in runs.items():
                same = None if name == "no head" else agreement(run, runs["no head"])
                end = settling(run)
                rows.append((layer, start, name, *(end[key] for key in keys), same))
    columns = ("layer", "start", "run", "clusters", "mean cosine", "rate", "last step", "control")
    return Table("From other starts, without feed-forward", columns, tuple(rows))
