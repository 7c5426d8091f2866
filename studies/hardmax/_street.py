"""The vortex street behind a cylinder, by the lattice Boltzmann method, in its POD modes.

    f_q(x + c_q, t + 1) = f_q - w+ (f_q^+ - e_q^+) - w- (f_q^- - e_q^-),   q = 0..8

f_q^+- are the parts of f_q even and odd under c_q -> -c_q, e_q the equilibrium of the local density
and velocity, and the viscosity is nu = (1/w+ - 1/2)/3. The odd rate follows from
(1/w+ - 1/2)(1/w- - 1/2) = 1/12, which cancels the largest error of advection and keeps coarse
grids stable down to about ten cells per diameter at Re = 100. Walls bounce half-way between cells.
Units are those of the lattice: one cell, one step. The stream enters at speed U on the left,
leaves on the right, and is periodic from top to bottom, so a row of cylinders `height` apart.

With u_s the velocity of snapshot s about the mean, u_s = sum_m z_sm phi_m, where the phi_m are
orthonormal and ordered by energy: the rows z_s are the tokens of `cylinder_flow`.
"""

from typing import Any, NamedTuple

import numpy as np

from cynosure import study as st

_C = ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1))
_BACK = (0, 3, 4, 1, 2, 7, 8, 5, 6)
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


class Pod(NamedTuple):
    """Proper orthogonal decomposition of the snapshots about their mean."""

    tokens: np.ndarray  # (snapshots, modes), coefficients
    energy: np.ndarray  # share of the fluctuating kinetic energy by mode
    frequency: float  # of the leading pair, in units of U/D: the Strouhal number


def street_of(of: dict[str, Any], progress: st.Progress = st.silent) -> st.Cell:
    """What the report needs of a flow: 32 modes at most, its frequency, its vorticity."""
    flow = wake(**of, progress=progress)
    if not np.isfinite(flow.velocity).all():
        raise ArithmeticError(
            "cylinder_flow: the flow became unstable; use more cells per diameter or a smaller Re"
        )
    v = flow.lift[round(of["start"] * flow.convective) :]  # its zero crossings tell the frequency
    up = np.flatnonzero((v[:-1] < v.mean()) & (v[1:] >= v.mean())) + 0.0
    crossings = (len(up) - 1) / (up[-1] - up[0]) if len(up) > 1 else np.nan
    probed = float(crossings * flow.convective)
    middle, two = flow.solid.shape[0] // 2, of["diameter"]  # every second cell is stored: 2 D
    band = slice(max(0, middle - two), middle + two)
    u, w = flow.velocity[:, 0], flow.velocity[:, 1]
    fields = (np.gradient(w, axis=-1) - np.gradient(u, axis=-2))[:, band] * flow.diameter / 2
    return st.Cell(
        pod=pod(flow, min(32, len(flow.velocity))),
        probed=probed,  # Strouhal number from the velocity behind the cylinder
        steps=len(flow.lift),
        period=flow.convective / probed / flow.interval,  # of the shedding, in snapshots
        fields=fields.astype(np.float16),  # (snapshots, y, x) vorticity in units of U/D
        body=flow.solid[band],  # (y, x), True inside the cylinder
    )


def pod(flow: Wake, modes: int) -> Pod:
    """By the Gram matrix of the snapshots: many cells, few snapshots."""
    m = len(flow.velocity)
    x = flow.velocity.reshape(m, -1).astype(np.float64)
    x = (x - x.mean(axis=0)) / np.sqrt(x.shape[1])
    values, vectors = np.linalg.eigh(x @ x.T)
    values, vectors = values[::-1].clip(0), vectors[:, ::-1]
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(m)])
    tokens = vectors[:, :modes] * np.sqrt(values[:modes])
    phase = np.unwrap(np.arctan2(tokens[:, 1], tokens[:, 0]))
    slope = np.polyfit(np.arange(m) * flow.interval, phase, 1)[0]
    return Pod(tokens, values / values.sum(), abs(slope) / (2 * np.pi) * flow.convective)


def wake(
    diameter: int,
    length: float,
    height: float,
    reynolds: float,
    start: float,
    time: float,
    snapshots: int,
    speed: float = 0.1,
    progress: st.Progress = st.silent,
) -> Wake:
    """Snapshots over `time`, after the flow has run for `start` (both in units of D/U).

    `diameter` in cells, `length` and `height` of the domain in diameters; the cylinder sits a
    third of the length from the inlet. `speed` is U in cells per step; the Mach number is 1.7 U.
    A small push to one side at t = 0 starts the shedding.
    """
    nx, ny = round(length * diameter), round(height * diameter)
    y, x = np.mgrid[:ny, :nx]
    # Half a cell off the lattice: symmetric, and no single cell sticks out at the poles.
    solid = (x - nx / 3 - 0.5) ** 2 + (y - ny / 2 + 0.5) ** 2 <= (diameter / 2) ** 2
    x = np.arange(nx)
    # A viscous strip before the outlet, or vortices that leave send waves back.
    strip = np.clip((x - nx + 1) / (1.5 * diameter) + 1, 0, 1) ** 2
    rates = relaxation(speed * diameter / reynolds + 0.15 * strip)
    push = 0.3 * speed * np.exp(-(((x - nx / 3 - 2 * diameter) / (1.5 * diameter)) ** 2))
    u = np.stack([np.full((ny, nx), speed), np.tile(push, (ny, 1))])
    f = equilibrium(np.ones((ny, nx)), u)
    first = round(start * diameter / speed)
    interval = max(1, round(time * diameter / speed / snapshots))
    probe = ny // 2, min(nx - 2, round(nx / 3 + 2 * diameter))
    total, lift, shots = first + snapshots * interval, [], []
    for step in range(1, total + 1):
        f, v = advance(f, solid, rates, speed)
        lift.append(v[1][probe])
        if step >= first and (step - first) % interval == 0:
            progress(step / total, "flow")
            if step > first:
                shots.append(velocity(f, solid)[:, ::2, ::2].astype(np.float32) / speed)
    return Wake(np.array(shots), solid[::2, ::2], np.array(lift), interval, float(diameter), speed)


def relaxation(nu: Any) -> tuple[Any, Any]:
    """The rates w+ and w- of a viscosity."""
    even = 1 / (3 * nu + 0.5)
    return even, 1 / (1 / 12 / (1 / even - 0.5) + 0.5)


def equilibrium(rho: np.ndarray, u: np.ndarray) -> np.ndarray:
    along = np.einsum("qa,ayx->qyx", np.array(_C, float), u)
    square = (u * u).sum(axis=0)
    return _WEIGHT[:, None, None] * rho * (1 + 3 * along + 4.5 * along**2 - 1.5 * square)


def velocity(f: np.ndarray, solid: np.ndarray) -> np.ndarray:
    u = np.einsum("qa,qyx->ayx", np.array(_C, float), f) / f.sum(axis=0)
    return np.where(solid, 0.0, u)


def advance(
    f: np.ndarray, solid: np.ndarray, rates: tuple[Any, Any], speed: float
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """One step: the populations after it, and the velocity they collided with."""
    p = np.empty_like(f)
    for q, (cx, cy_) in enumerate(_C):
        p[q] = np.roll(f[q], (cy_, cx), axis=(0, 1))
        wall = np.roll(solid, (cy_, cx), axis=(0, 1))
        p[q][wall] = f[_BACK[q]][wall]
        if cx > 0:  # the undisturbed stream
            p[q][:, 0] = _WEIGHT[q] * (1 + 3 * speed + 3 * speed * speed)
        elif cx < 0:  # nothing changes across the outlet
            p[q][:, -1] = f[q][:, -2]
    rho = p.sum(axis=0)
    ux = (p[1] - p[3] + p[5] - p[6] - p[7] + p[8]) / rho
    uy = (p[2] - p[4] + p[5] + p[6] - p[7] - p[8]) / rho
    rest, (even, odd) = 1.0 - 1.5 * (ux * ux + uy * uy), rates
    g = np.empty_like(f)
    g[0] = p[0] - even * (p[0] - 4 / 9 * rho * rest)
    pairs = ((1, 3, ux), (2, 4, uy), (5, 7, ux + uy), (6, 8, uy - ux))
    for a, b, c in pairs:  # opposite populations; c is the velocity along the first
        w = _WEIGHT[a] * rho
        same = even * (0.5 * (p[a] + p[b]) - w * (rest + 4.5 * c * c))
        other = odd * (0.5 * (p[a] - p[b]) - 3.0 * w * c)
        g[a], g[b] = p[a] - same - other, p[b] - same + other
    g[:, solid] = f[:, solid]
    return g, (ux, uy)
