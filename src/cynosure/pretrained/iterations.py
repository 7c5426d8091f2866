"""A layer run many times over, in every variant, each beside the same layer without its heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from jaxtyping import Float

from ..clustering import clusters
from ..trajectory import Trajectory
from .examples import ONE_THREAD
from .traces import settling
from .transformer import Transformer

__all__ = [
    "COLUMNS",
    "CONTROL",
    "Iterated",
    "agreement",
    "iterated_cases",
    "places",
    "random_tokens",
]

CONTROL = (
    "Norm and output bias act even when every head is silent, so each run is held against that "
    "control: what the control does too is the work of norm and bias, not of the heads."
)
COLUMNS = {
    "run": "run",
    "norm": "norm",
    "layers": "times",
    "clusters": "clusters",
    "directions": "directions",
    "mean_cosine": "mean cosine",
    "rate": "rate",
    "growth": "growth",
    "step": "last step",
    "control": "control",
    "places": "places",
    "status": "status",
}
Parts = Literal["block", "attention", "head"]


@final
@dataclass(frozen=True, eq=False)
class Iterated:
    """One run, what it is held against (None for a control itself), and its row of the table."""

    name: str
    parts: Parts
    run: Trajectory
    control: Trajectory | None
    norm: bool

    @property
    def row(self) -> dict[str, Any]:
        """`settling` of the run, and its agreement with the control."""
        end: dict[str, Any] = dict.fromkeys(COLUMNS)
        if len(self.run) > 1:
            end |= settling(self.run)
        end |= {"run": self.name, "norm": self.norm, "status": self.run.status.code}
        if self.control is not None:
            end["control"] = agreement(self.run, self.control)
            end["places"] = places(self.run, self.control)
        return end


def agreement(run: Trajectory, control: Trajectory) -> float | None:
    """Mean over tokens of the cosine between the two last states; None where a token is 0."""
    a, b = (tr.values[-1].astype(np.float64) for tr in (run, control))
    length = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return float(((a * b).sum(axis=1) / length).mean()) if (length > 0).all() else None


def places(run: Trajectory, control: Trajectory, tol: float = 0.01) -> float | None:
    """How near every cluster of the run is to some cluster of the control, as the least cosine.

    1: the run ends where the control ends, though perhaps with other tokens at each place. None
    where a cluster is at 0.
    """
    centres = []
    for tr in (run, control):
        z = tr.values[-1].astype(np.float64)
        scale = float(np.sqrt((z**2).sum(axis=1).mean())) or 1.0
        c = clusters(z / scale, tol).centres
        length = np.linalg.norm(c, axis=1, keepdims=True)
        if not length.all():
            return None
        centres.append(c / length)
    return float((centres[0] @ centres[1].T).max(axis=1).min())


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
    """The layer run n times: whole, without feed-forward, one head (or each); with and without
    its norms.

    The control of a whole layer keeps the feed-forward part, that of the others has norm and bias
    only; both have every head silent.
    """
    heads = range(transformer.width) if head is None else (head,)
    every = max(1, n // 200)

    def go(parts: Parts, only: Any, norm: bool) -> Trajectory:
        return transformer.iterate(
            tokens, layer, n, parts=parts, head=only, norm=norm, save_every=every
        )

    out = []
    for norm in norms:
        whole, plain = go("block", (), norm), go("attention", (), norm)
        wanted: list[tuple[str, Parts, Any, Trajectory | None]] = [
            ("whole layer", "block", None, whole),
            ("all heads", "attention", None, plain),
            *((f"head {h}", "head", h, plain) for h in heads),
            ("whole layer, no head", "block", (), None),
            ("no head", "attention", (), None),
        ]
        for name, parts, only, control in wanted:
            if control is None:
                run = whole if parts == "block" else plain
            else:
                run = go(parts, only, norm)
            out.append(Iterated(name, parts, run, control, norm))
    return out
