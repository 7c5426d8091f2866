"""A flow past a cylinder by the lattice Boltzmann method, D2Q9 with two relaxation times.

    f_q(x + c_q, t + 1) = f_q - w+ (f_q^+ - e_q^+) - w- (f_q^- - e_q^-),   q = 0..8

f_q^+- are the parts of f_q even and odd under c_q -> -c_q, e_q the equilibrium of the local density
and velocity, and the viscosity is nu = (1/w+ - 1/2)/3. The odd rate follows from
(1/w+ - 1/2)(1/w- - 1/2) = 1/12, which cancels the largest error of advection and keeps coarse
grids stable down to about ten cells per diameter at Re = 100. Walls bounce half-way between cells.
Units are those of the lattice: one cell, one step. The stream enters at speed U on the left,
leaves on the right, and is periodic from top to bottom, so a row of cylinders `height` apart.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from .._frame import Progress, silent

__all__ = ["Wake", "vorticity", "wake"]

_C = np.array([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, 1], [-1, -1], [1, -1]])
_BACK = np.array([0, 3, 4, 1, 2, 7, 8, 5, 6])
_WEIGHT = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)


class Wake(NamedTuple):
    """Snapshots of the velocity, every second cell, and what they were taken of."""

    velocity: np.ndarray  # (snapshots, 2, y, x), in units of U
    solid: np.ndarray  # (y, x), the same cells
    lift: np.ndarray  # (steps,) cross-stream velocity behind the cylinder, all steps
    interval: int  # steps between snapshots
    diameter: float
    speed: float

    @property
    def convective(self) -> float:
        """D/U in steps: the unit of time of the Strouhal number."""
        return self.diameter / self.speed


def wake(
    diameter: int,
    length: float,
    height: float,
    reynolds: float,
    start: float,
    time: float,
    snapshots: int,
    speed: float = 0.1,
    progress: Progress = silent,
) -> Wake:
    """Snapshots over `time`, after the flow has run for `start` (both in units of D/U).

    `diameter` in cells, `length` and `height` of the domain in diameters; the cylinder sits a
    third of the length from the inlet. `speed` is U in cells per step; the Mach number is 1.7 U.
    A small push to one side at t = 0 starts the shedding.
    """
    nx, ny = round(length * diameter), round(height * diameter)
    solid = _disc(nx, ny, diameter)
    x = np.arange(nx)
    # A viscous strip before the outlet, or vortices that leave send waves back.
    strip = np.clip((x - nx + 1) / (1.5 * diameter) + 1, 0, 1) ** 2
    nu = speed * diameter / reynolds + 0.15 * strip
    even = 1 / (3 * nu + 0.5)
    odd = 1 / (1 / 12 / (1 / even - 0.5) + 0.5)
    push = 0.3 * speed * np.exp(-(((x - nx / 3 - 2 * diameter) / (1.5 * diameter)) ** 2))
    u = np.stack([np.full((ny, nx), speed), np.tile(push, (ny, 1))])
    f = _equilibrium(np.ones((ny, nx)), u)
    plain = _plain(solid)
    unit = diameter / speed
    first, interval = round(start * unit), max(1, round(time * unit / snapshots))
    probe = ny // 2, min(nx - 2, round(nx / 3 + 2 * diameter))
    lift, shots = [], []
    for s in range(snapshots + 1):
        steps = first if s == 0 else interval
        for done in range(0, steps, interval):  # in pieces, for the progress
            piece = min(interval, steps - done)
            f, track = _advance(f, f.copy(), solid, plain, even, odd, speed, piece, *probe)
            lift.append(track)
            progress(sum(map(len, lift)) / (first + snapshots * interval), "flow")
        if s > 0:
            shots.append(_velocity(f, solid)[:, ::2, ::2].astype(np.float32) / speed)
    return Wake(
        np.array(shots), solid[::2, ::2], np.concatenate(lift), interval, float(diameter), speed
    )


def vorticity(velocity: np.ndarray) -> np.ndarray:
    """dv/dx - du/dy of (..., 2, y, x), per cell of the grid given; central differences."""
    u, v = velocity[..., 0, :, :], velocity[..., 1, :, :]
    return np.gradient(v, axis=-1) - np.gradient(u, axis=-2)


def _disc(nx: int, ny: int, diameter: int) -> np.ndarray:
    y, x = np.mgrid[:ny, :nx]
    # Half a cell off the lattice: symmetric, and no single cell sticks out at the poles.
    return (x - nx / 3 - 0.5) ** 2 + (y - ny / 2 + 0.5) ** 2 <= (diameter / 2) ** 2


def _plain(solid: np.ndarray) -> np.ndarray:
    """Cells all of whose neighbours are fluid and inside the domain: no case distinctions there."""
    wall = np.zeros_like(solid)
    for cx, cy in _C.tolist():
        wall |= np.roll(solid, (cy, cx), axis=(0, 1))
    wall[[0, -1]] = wall[:, [0, -1]] = True
    return ~wall


def _equilibrium(rho: np.ndarray, u: np.ndarray) -> np.ndarray:
    along = np.einsum("qa,ayx->qyx", _C.astype(float), u)
    square = (u * u).sum(axis=0)
    weight = _WEIGHT[:, None, None]
    return weight * rho * (1 + 3 * along + 4.5 * along**2 - 1.5 * square)


def _velocity(f: np.ndarray, solid: np.ndarray) -> np.ndarray:
    rho = f.sum(axis=0)
    u = np.einsum("qa,qyx->ayx", _C.astype(float), f) / rho
    return np.where(solid, 0.0, u)


def _compiled(function: Callable[..., Any]) -> Any:
    """The plain function compiled, whatever a run-time type checker may have put around it."""
    return njit(cache=True)(unwrap(function))


@_compiled
def _advance(f, g, solid, plain, even, odd, speed, steps, py, px):  # type: ignore[no-untyped-def]
    """`steps` steps from f, with g as scratch; the last state and v at the probe, step by step."""
    ny, nx = solid.shape
    track = np.empty(steps)
    for step in range(steps):
        for y in range(ny):
            for x in range(nx):
                if solid[y, x]:
                    continue
                if plain[y, x]:
                    p = (
                        f[0, y, x],
                        f[1, y, x - 1],
                        f[2, y - 1, x],
                        f[3, y, x + 1],
                        f[4, y + 1, x],
                        f[5, y - 1, x - 1],
                        f[6, y - 1, x + 1],
                        f[7, y + 1, x + 1],
                        f[8, y + 1, x - 1],
                    )
                else:
                    p = (
                        f[0, y, x],
                        _edge(f, solid, speed, y, x, 1),
                        _edge(f, solid, speed, y, x, 2),
                        _edge(f, solid, speed, y, x, 3),
                        _edge(f, solid, speed, y, x, 4),
                        _edge(f, solid, speed, y, x, 5),
                        _edge(f, solid, speed, y, x, 6),
                        _edge(f, solid, speed, y, x, 7),
                        _edge(f, solid, speed, y, x, 8),
                    )
                rho = p[0] + p[1] + p[2] + p[3] + p[4] + p[5] + p[6] + p[7] + p[8]
                ux = (p[1] - p[3] + p[5] - p[6] - p[7] + p[8]) / rho
                uy = (p[2] - p[4] + p[5] + p[6] - p[7] - p[8]) / rho
                if y == py and x == px:
                    track[step] = uy
                rest = 1.0 - 1.5 * (ux * ux + uy * uy)
                near, far = rho / 9.0, rho / 36.0
                g[0, y, x] = p[0] - even[x] * (p[0] - 4.0 * near * rest)
                g[1, y, x], g[3, y, x] = _relax(p[1], p[3], near, ux, rest, even[x], odd[x])
                g[2, y, x], g[4, y, x] = _relax(p[2], p[4], near, uy, rest, even[x], odd[x])
                g[5, y, x], g[7, y, x] = _relax(p[5], p[7], far, ux + uy, rest, even[x], odd[x])
                g[6, y, x], g[8, y, x] = _relax(p[6], p[8], far, uy - ux, rest, even[x], odd[x])
        f, g = g, f
    return f, track


@_compiled
def _relax(a, b, w, c, rest, even, odd):  # type: ignore[no-untyped-def]
    """A pair of opposite populations after the collision; c is the velocity along the first."""
    same = even * (0.5 * (a + b) - w * (rest + 4.5 * c * c))
    other = odd * (0.5 * (a - b) - 3.0 * w * c)
    return a - same - other, b - same + other


@_compiled
def _edge(f, solid, speed, y, x, q):  # type: ignore[no-untyped-def]
    """What streams along c_q into a cell at a wall or at the edge of the domain."""
    ny, nx = solid.shape
    fx, fy = x - _C[q, 0], (y - _C[q, 1]) % ny
    if fx < 0:  # the undisturbed stream
        c = _C[q, 0] * speed
        return _WEIGHT[q] * (1.0 + 3.0 * c + 4.5 * c * c - 1.5 * speed * speed)
    if fx >= nx:  # nothing changes across the outlet
        return f[q, y, x - 1]
    if solid[fy, fx]:
        return f[_BACK[q], y, x]
    return f[q, fy, fx]
