"""The vortex street behind a cylinder as tokens: snapshots in their proper orthogonal modes (POD).

With u_s the velocity of snapshot s about the mean, u_s = sum_m z_sm phi_m, where the phi_m are
orthonormal and ordered by energy: the rows z_s are the tokens of `cylinder_flow`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._frame import Progress, silent
from ._lattice_boltzmann import Wake, vorticity, wake

__all__ = ["Pod", "Street", "pod", "street_of"]


class Pod(NamedTuple):
    """Proper orthogonal decomposition of the snapshots about their mean."""

    tokens: np.ndarray  # (snapshots, modes), coefficients
    energy: np.ndarray  # share of the fluctuating kinetic energy by mode
    frequency: float  # of the leading pair, in units of U/D: the Strouhal number


class Street(NamedTuple):
    """What the report needs of a flow: its modes, its frequency, pictures of its vorticity."""

    pod: Pod
    probed: float  # Strouhal number from the velocity behind the cylinder
    steps: int
    period: float  # of the shedding, in snapshots
    fields: np.ndarray  # (snapshots, y, x) vorticity in units of U/D, two diameters up and down
    body: np.ndarray  # (y, x), True inside the cylinder


def street_of(of: dict[str, Any], progress: Progress = silent) -> Street:
    """Run the flow and take what the figures need; 32 modes are more than anybody asks for."""
    flow = wake(**of, progress=progress)
    if not np.isfinite(flow.velocity).all():
        raise ArithmeticError(
            "cylinder_flow: the flow became unstable; use more cells per diameter or a smaller Re"
        )
    probed = _probe_frequency(of["start"], flow)
    middle, two = flow.solid.shape[0] // 2, of["diameter"]  # every second cell is stored: 2 D
    band = slice(max(0, middle - two), middle + two)
    fields = vorticity(flow.velocity)[:, band] * flow.diameter / 2
    return Street(
        pod(flow, min(32, len(flow.velocity))),
        probed,
        len(flow.lift),
        flow.convective / probed / flow.interval,
        fields.astype(np.float16),
        flow.solid[band],
    )


def pod(flow: Wake, modes: int) -> Pod:
    """By the Gram matrix of the snapshots: many cells, few snapshots."""
    m = len(flow.velocity)
    x = flow.velocity.reshape(m, -1).astype(np.float64)
    x = (x - x.mean(axis=0)) / np.sqrt(x.shape[1])
    values, vectors = np.linalg.eigh(x @ x.T)
    order = np.argsort(values)[::-1]
    values, vectors = values[order].clip(0), vectors[:, order]
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(m)])
    tokens = vectors[:, :modes] * np.sqrt(values[:modes])
    phase = np.unwrap(np.arctan2(tokens[:, 1], tokens[:, 0]))
    slope = np.polyfit(np.arange(m) * flow.interval, phase, 1)[0]
    return Pod(tokens, values / values.sum(), abs(slope) / (2 * np.pi) * flow.convective)


def _probe_frequency(start: float, flow: Wake) -> float:
    """Strouhal number from the cross-stream velocity behind the cylinder, by its zero crossings."""
    v = flow.lift[round(start * flow.convective) :]
    v = v - v.mean()
    up = np.flatnonzero((v[:-1] < 0) & (v[1:] >= 0)) + 0.0
    return float((len(up) - 1) / (up[-1] - up[0]) * flow.convective) if len(up) > 1 else np.nan
