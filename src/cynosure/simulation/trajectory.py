"""Trajectory: tokens by layer, with how the run went."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, SupportsIndex, final

import numpy as np

from .._display import facts
from .._exports import guarded
from .._frames import dataframe, dataset
from .._types import Array, as_number, as_numpy, is_torch
from ..dynamics import Dynamics, LayerMap, Unknown
from ..engine.followed import History
from .status import Status as Status
from .steppers import Stepper

_LONGEST = 300  # characters of a value in a notebook


@guarded
@final
@dataclass(frozen=True, eq=False)
class Trajectory:
    """A run: tokens by layer or time. `simulate` and `load` make it.

    Parameters
    ----------
    z
        The saved states (saved, *b, n, d).
    t
        The layer or time of each.
    status
        How the run ended, and what to do next.
    dynamics
        What made the run; None for a real transformer.
    mask
        True for real tokens (*b, n).
    words
        The names of the tokens.
    history
        Who followed whom in a hardmax run; `roles` reads it.
    stepper
        How a flow was integrated; None for layers.

    Examples
    --------
    >>> import cynosure as cy
    >>> run = cy.simulate(cy.PureAttention(), [[2.0, 0.0], [0.0, 1.0]], layers=3)
    >>> run.z.shape, run.t.tolist()
    ((4, 2, 2), [0, 1, 2, 3])
    >>> run.continued(layers=2).t[-1].item()
    5
    """

    z: Array
    t: np.ndarray
    status: Status
    dynamics: Dynamics | None = None
    mask: np.ndarray | None = None
    words: tuple[str, ...] | None = None
    history: History | None = None
    stepper: Stepper | None = None

    def __repr__(self) -> str:
        span = f"t={self.t[0]}..{self.t[-1]}" if len(self.t) else "no state"
        return f"Trajectory(z{tuple(self.z.shape)}, {span}, {self.status.code})"

    def _repr_html_(self) -> str:
        *batch, n, d = self.z.shape[1:]
        unit = "time" if self.in_time else "layer"
        ends = f", {unit} {self.t[0]} to {self.t[-1]}" if len(self.t) else ""
        rows = [
            ("made by", repr(self.made_by)),
            ("tokens", f"{n} in dimension {d}" + (f", batch {tuple(batch)}" if batch else "")),
            ("saved", f"{len(self)} states{ends}"),
            ("status", f"{self.status.code}: {self.status.message}"),
        ]
        if self.words:
            rows.append(("words", " ".join(self.words[:20]) + (" ..." if n > 20 else "")))
        return facts("Trajectory", [(name, _cut(value)) for name, value in rows])

    def __len__(self) -> int:
        return len(self.t)

    @property
    def made_by(self) -> Dynamics:
        """`dynamics`, or layers of which nothing is known where it is None."""
        return Unknown() if self.dynamics is None else self.dynamics

    @property
    def in_time(self) -> bool:
        """True where `t` are times of a flow, False where they are layers."""
        return self.stepper is not None or self.made_by.in_time

    @property
    def values(self) -> np.ndarray:
        """`z` as a NumPy array."""
        return as_numpy(self.z)

    @property
    def real(self) -> np.ndarray:
        """Indices of the tokens of one configuration that are no padding."""
        return np.arange(self.z.shape[-2]) if self.mask is None else np.flatnonzero(self.mask)

    @property
    def tokens(self) -> np.ndarray:
        """The tokens of one configuration that are no padding, (saved, n, d), in float64."""
        if self.z.ndim != 3:
            raise ValueError(
                "trajectory: expected one configuration, z of shape (saved, n, d); got "
                f"{tuple(self.z.shape)}. Take trajectory.select(b)"
            )
        z = self.values
        return (z if self.mask is None else z[:, self.mask]).astype(np.float64, copy=False)

    def at(self, t: float | SupportsIndex) -> Array:
        """The tokens at layer or time t, which must have been saved."""
        t = as_number(t, "t", "one layer or time", lambda t: t == t)
        at = np.flatnonzero(self.t == t)
        if len(at) == 0:
            what, how = "layer", "save_every=1"
            if self.in_time:
                what, how = "time", f"times=[..., {t:g}]"
            saved = f"saved are {self.t[0]:g}..{self.t[-1]:g} ({len(self.t)} of them)"
            raise ValueError(f"{what} {t:g} was not saved; {saved}. Run simulate with {how}")
        return self.z[int(at[0])]

    def nearest(self, t: float | int) -> int:
        """The number of the saved state whose layer or time is nearest to t."""
        t = as_number(t, "t", "one layer or time, finite", math.isfinite)
        return int(np.abs(np.asarray(self.t, dtype=float) - t).argmin())

    def select(self, *index: SupportsIndex) -> Trajectory:
        """One configuration of a batch, with its own history."""
        batch = tuple(self.z.shape[1:-2])
        if len(index) != len(batch):
            raise ValueError(
                f"select: expected {len(batch)} indices for batch {batch}, got {index}"
            )
        if not index:
            return self
        try:
            place = int(np.arange(math.prod(batch)).reshape(batch)[index])
        except (IndexError, OverflowError, TypeError):
            raise IndexError(f"select: {index} is no place in a batch of {batch}") from None
        history = self.history
        if history is not None:
            names = "born", "settled_at", "leader"
            history = replace(history, **{name: getattr(history, name)[index] for name in names})
        made_by = self.dynamics
        if isinstance(made_by, LayerMap):
            made_by = made_by.alone(place)
        return replace(
            self,
            z=self.z[(slice(None), *index)],
            dynamics=made_by,
            mask=None if self.mask is None else self.mask[index],
            history=history,
        )

    def continued(self, *, layers: Any = None, time: Any = None, **how: Any) -> Trajectory:
        """The run and `layers` more layers, or `time` more of a flow, as one run.

        `save_every`, `stop_when`, `progress` and `deadline` are those of `simulate`. Layers go on
        from the last state as if the run had never stopped. Hardmax layers are run again from
        layer 0, so that who leads since when is known of all of them.
        """
        from .loop import continued

        return continued(self, layers=layers, time=time, **how)

    def to_xarray(self) -> Any:
        """An xarray Dataset: z over layer (or time), the batch, token and dim."""
        first = "time" if self.in_time else "layer"
        batch = tuple(f"batch_{k}" for k in range(self.z.ndim - 3))
        values: dict[str, Any] = {"z": ((first, *batch, "token", "dim"), self.values)}
        if self.mask is not None:
            values["mask"] = ((*batch, "token"), self.mask)
        named: dict[str, Any] = {first: self.t}
        if self.words is not None:
            named["word"] = (("token",), np.array(self.words))
        about = {"made_by": repr(self.made_by), "status": self.status.message}
        return dataset(values, named, about)

    @staticmethod
    def of(z: Any, t: Any = None, *, words: Sequence[str] | None = None) -> Trajectory:
        """A trajectory of states (saved, *b, n, d) that something else made, not copied.

        `z` is an array, a tensor, or the Dataset of `to_xarray` (also of one's own making, with
        `z` over layer or time, token and dim); `t` are the layers or times, 0, 1, ... by default.
        """
        if hasattr(z, "data_vars"):
            first = str(z["z"].dims[0])
            t = z[first].values if t is None else t
            words = z["word"].values.tolist() if words is None and "word" in z else words
            z = z["z"].values
        z = z if is_torch(z) else np.asarray(z)
        at = np.arange(len(z)) if t is None else np.asarray(t)
        if z.ndim < 3 or at.shape != tuple(z.shape[:1]):
            raise ValueError(f"z: expected states (saved, *b, n, d) with a t each, got {z.shape}")
        named = None if words is None else tuple(words)
        if named is not None and len(named) != z.shape[-2]:
            raise ValueError(f"words: expected {z.shape[-2]} names, got {len(named)}")
        return Trajectory(z, at, Status("done", "states made elsewhere."), words=named)

    def to_torch(self) -> Any:
        """The states as a torch tensor, which shares their memory."""
        return self.z if is_torch(self.z) else as_torch(self.z)

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with one row per state and token: its coordinates z0, z1, ..."""
        *batch, n, d = self.z.shape[1:]
        places = np.indices((len(self), *batch, n)).reshape(2 + len(batch), -1)
        named = ["time" if self.in_time else "layer", *(f"batch_{k}" for k in range(len(batch)))]
        columns: dict[str, Any] = dict(zip([*named, "token"], [self.t[places[0]], *places[1:]]))
        if self.words is not None:
            columns["word"] = np.array(self.words)[places[-1]]
        flat = self.values.reshape(-1, d)
        return dataframe(columns | {f"z{j}": flat[:, j] for j in range(d)})

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write an .npz, or a .safetensors: arrays and JSON, whole or not at all, no pickle."""
        from .saving import save

        return save(self, path)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ..."


def as_torch(z: np.ndarray) -> Array:
    import torch

    return torch.from_numpy(z)
