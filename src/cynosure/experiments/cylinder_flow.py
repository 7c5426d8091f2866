"""The leaders of a flow past a cylinder: which snapshots does hardmax attention single out?

A real flow: the two-dimensional wake of a cylinder at Re = 100, computed by the lattice Boltzmann
method from rest until vortices are shed periodically. Its snapshots are expanded in their proper
orthogonal modes (POD), the coefficients are tokens, and the model of arXiv 2407.01602 runs on them.
See: the tokens trace a closed curve; leaders are its outermost snapshots, always among the extreme
points of the curve; how many there are is a matter of how the modes are weighted, A =
diag(energies^p): the more the weak modes count, the more snapshots lead. The Strouhal number beside
the literature's 0.16 to 0.17 says that the flow is the right one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, final

import numpy as np

from ..attention import Hardmax
from ..dynamics import PureAttention
from ..limits import Limit, limit
from ..polytope import hull
from ..report import Picture, Report, Table
from ..simulation import simulate
from ..theorems import check
from . import Progress
from ._lattice_boltzmann import Wake, vorticity, wake

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "The leaders of a flow past a cylinder"


@final
@dataclass(frozen=True)
class Params:
    """The flow (cells per diameter, domain and times in diameters and D/U), and the tokens.

    `dims`: numbers of modes kept; `powers`: p of A = diag(energies^p), on the largest of them.
    """

    reynolds: float = 100.0
    diameter: int = 14
    length: float = 24.0
    height: float = 16.0
    start: float = 60.0
    time: float = 60.0
    snapshots: int = 300
    dims: tuple[int, ...] = (2, 4, 8)
    powers: tuple[float, ...] = (-1.0, -0.75, -0.5, -0.25, 0.0, 0.5, 1.0)
    alpha: float = 1.0
    show: int = 4


QUICK = Params(
    diameter=10,
    length=12.0,
    height=7.0,
    start=30.0,
    time=15.0,
    snapshots=80,
    powers=(-1.0, -0.5, 0.0, 1.0),
)


class Pod(NamedTuple):
    """Proper orthogonal decomposition of the snapshots about their mean."""

    tokens: np.ndarray  # (snapshots, modes), coefficients
    energy: np.ndarray  # share of the fluctuating kinetic energy by mode
    frequency: float  # of the leading pair, in units of U/D: the Strouhal number


class Choice(NamedTuple):
    """Snapshots singled out for one form A."""

    d: int
    power: float
    li: Limit
    extreme: np.ndarray  # vertices of the hull of the tokens
    medoids: np.ndarray
    cost: tuple[float, float, float]  # mean distance to the nearest leader, medoid, even choice


def run(p: Params, progress: Progress | None = None) -> Report:
    """Flow, POD, leaders."""

    def say(share: float, what: str) -> None:
        if progress is not None:
            progress(share, what)

    if p.snapshots < max(p.dims) + 2 or min(p.dims) < 2:
        raise ValueError(f"cylinder_flow: dims start at 2 and stay below snapshots; got {p}")
    flow = wake(
        p.diameter,
        p.length,
        p.height,
        p.reynolds,
        p.start,
        p.time,
        p.snapshots,
        progress=lambda share: say(0.85 * share, "flow"),
    )
    if not np.isfinite(flow.velocity).all():
        raise ArithmeticError(
            "cylinder_flow: the flow became unstable; use more cells per diameter or a smaller Re"
        )
    say(0.85, "modes")
    pod = _pod(flow, max(p.dims))
    cases = [(d, 0.0) for d in p.dims] + [(max(p.dims), q) for q in p.powers if q != 0]
    choices = []
    for done, (d, power) in enumerate(cases):
        say(0.88 + 0.08 * done / len(cases), f"d = {d}, p = {power:g}")
        choices.append(_choice(p, pod, d, power))
    say(0.96, "figures")
    figures = (
        Picture("The cycle and its leaders", _CYCLE, _cycle(pod, choices)),
        Picture("Leading snapshots", _FIELDS, _fields(p, flow, choices[0])),
        Picture("Against the weight of the modes", _POWERS, _power_curve(p, choices)),
    )
    tr = simulate(PureAttention(alpha=p.alpha), pod.tokens[:, : p.dims[0]], layers=12)
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, pod, choices),
        asdict(p),
        (_flow_table(p, flow, pod), _choice_table(choices), _energy_table(pod)),
        {f"{p.dims[0]} modes": tuple(check(tr))},
        figures,
        command="cynosure run cylinder_flow",
    )


_CYCLE = (
    "Tokens are snapshots: their coefficients on modes 1 and 2, 1 and 3. Stars lead (A = I, the "
    "smallest number of modes), open circles are extreme points that do not, crosses are medoids."
)
_FIELDS = (
    "Vorticity (red: anticlockwise) of leading snapshots, chosen for their phases in the shedding "
    "cycle: leaders are different moments of the same street."
)
_POWERS = (
    "A = diag(energies^p) on the largest number of modes. p = -1 makes all modes count alike, "
    "p > 0 leaves the leading pair alone. Left: leaders and extreme points. Right: mean distance "
    "of a snapshot to the nearest representative, as a share of the mean size of a snapshot."
)


def _pod(flow: Wake, modes: int) -> Pod:
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


def _form(pod: Pod, d: int, power: float) -> np.ndarray:
    weight = (pod.energy[:d] / pod.energy[0]) ** power
    return np.diag(weight / weight.max())


def _choice(p: Params, pod: Pod, d: int, power: float) -> Choice:
    z = pod.tokens[:, :d]
    A = _form(pod, d, power)
    li = limit(PureAttention(Hardmax(A), alpha=p.alpha), z)
    x = z * np.sqrt(np.diag(A))  # the A-norm is the plain one here
    distance = np.linalg.norm(x[:, None] - x, axis=-1)
    k = len(li.leaders)
    medoids = _medoids(distance, k)
    even = np.unique(np.linspace(0, len(z) - 1, k).round().astype(int))
    size = np.linalg.norm(x, axis=1).mean()
    cost = [float(distance[:, s].min(axis=1).mean() / size) for s in (li.leaders, medoids, even)]
    return Choice(d, power, li, hull(z).index, medoids, (cost[0], cost[1], cost[2]))


def _medoids(distance: np.ndarray, k: int) -> np.ndarray:
    """k members with the least mean distance to the nearest: greedy start, then the best swaps."""
    chosen = [int(distance.sum(axis=1).argmin())]
    while len(chosen) < k:
        now = distance[:, chosen].min(axis=1)
        gain = np.maximum(now[:, None] - distance, 0).sum(axis=0)
        chosen.append(int(gain.argmax()))
    for _ in range(20):
        swapped = False
        for at in range(k):
            rest = chosen[:at] + chosen[at + 1 :]
            now = distance[:, rest].min(axis=1) if rest else np.full(len(distance), np.inf)
            best = int(np.minimum(now[:, None], distance).sum(axis=0).argmin())
            if best != chosen[at]:
                chosen[at], swapped = best, True
        if not swapped:
            break
    return np.sort(np.unique(chosen))


def _shared(a: np.ndarray, b: np.ndarray) -> int:
    return len(np.intersect1d(a, b))


def _probe_frequency(p: Params, flow: Wake) -> float:
    """Strouhal number from the cross-stream velocity behind the cylinder, by its zero crossings."""
    v = flow.lift[round(p.start * flow.convective) :]
    v = v - v.mean()
    up = np.flatnonzero((v[:-1] < 0) & (v[1:] >= 0)) + 0.0
    return float((len(up) - 1) / (up[-1] - up[0]) * flow.convective) if len(up) > 1 else np.nan


def _flow_table(p: Params, flow: Wake, pod: Pod) -> Table:
    rows = (
        ("Reynolds number", p.reynolds),
        ("cells per diameter", p.diameter),
        ("height of the domain in diameters", p.height),
        ("steps", len(flow.lift)),
        ("Strouhal number, leading POD pair", pod.frequency),
        ("Strouhal number, velocity behind the cylinder", _probe_frequency(p, flow)),
        ("Strouhal number, literature", "0.16 to 0.17"),
        ("shedding periods recorded", p.time * pod.frequency),
    )
    note = (
        "The domain repeats above and below, so the cylinder sees neighbours: that raises the "
        "number a little, the more the lower the domain."
    )
    return Table("The flow", ("quantity", "value"), rows, note)


def _choice_table(choices: list[Choice]) -> Table:
    rows = tuple(
        (
            c.d,
            c.power,
            len(c.li.leaders),
            len(c.extreme),
            _shared(c.li.leaders, c.extreme),
            _shared(c.li.leaders, c.medoids),
            *c.cost,
            c.li.certified,
            int(c.li.layers),
        )
        for c in choices
    )
    columns = (
        "modes",
        "p",
        "leaders",
        "extreme points",
        "leaders that are extreme",
        "leaders that are medoids",
        "distance to leaders",
        "to medoids",
        "to evenly spaced",
        "certified",
        "at layer",
    )
    note = "Distances in the A-norm, as shares of the mean size of a snapshot."
    return Table("Which snapshots lead", columns, rows, note)


def _energy_table(pod: Pod) -> Table:
    total = np.cumsum(pod.energy)
    rows = tuple((k + 1, float(pod.energy[k]), float(total[k])) for k in range(pod.tokens.shape[1]))
    return Table("Energy of the modes", ("mode", "share", "together"), rows)


def _summary(p: Params, pod: Pod, choices: list[Choice]) -> str:
    first = choices[0]
    extreme = all(_shared(c.li.leaders, c.extreme) == len(c.li.leaders) for c in choices)
    plain = {c.d: c for c in choices if c.power == 0}
    most = max(plain)
    swept = [c for c in choices if c.d == most]
    low, high = min(swept, key=lambda c: c.power), max(swept, key=lambda c: c.power)
    counts = ", ".join(f"{len(c.li.leaders)} on {c.d} modes" for c in plain.values())
    proved = sum(c.li.certified for c in choices)
    return (
        f"Vortices are shed at a Strouhal number of {pod.frequency:.3f} (literature 0.16 to 0.17); "
        f"the first two modes carry {pod.energy[:2].sum():.1%} of the fluctuating energy. Of "
        f"{p.snapshots} snapshots over {p.time * pod.frequency:.1f} periods lead, for A = I: "
        f"{counts}; "
        + ("all leaders are" if extreme else "not all leaders are")
        + f" extreme points of the curve, but only {len(first.li.leaders)} of "
        f"{len(first.extreme)} extreme points lead on {first.d} modes. With A = diag(energies^p) "
        f"on {most} modes the leaders go from {len(low.li.leaders)} (p = {low.power:g}) to "
        f"{len(high.li.leaders)} (p = {high.power:g}). As a summary of the cycle leaders cost "
        f"{first.cost[0] / first.cost[1]:.2f} times the distance of as many medoids "
        f"({first.d} modes). {proved} of {len(choices)} limits are proved."
    )


def _cycle(pod: Pod, choices: list[Choice]) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from ..plot import GREY, PALETTE

    c, z = choices[0], pod.tokens
    figure = Figure(figsize=(10, 5), layout="constrained")
    for ax, (a, b) in zip(figure.subplots(1, 2), ((0, 1), (0, 2))):
        b = min(b, z.shape[1] - 1)
        ax.plot(z[:, a], z[:, b], ".", color=GREY, ms=4, label="snapshots")
        rest = np.setdiff1d(c.extreme, c.li.leaders)
        ax.plot(*z[rest][:, [a, b]].T, "o", mfc="none", mec=PALETTE[0], ms=8, label="extreme only")
        ax.plot(*z[c.medoids][:, [a, b]].T, "x", color=PALETTE[2], ms=8, mew=2, label="medoids")
        ax.plot(*z[c.li.leaders][:, [a, b]].T, "*", color=PALETTE[1], ms=14, label="leaders")
        ax.set(xlabel=f"mode {a + 1}", ylabel=f"mode {b + 1}")
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.spines[["top", "right"]].set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _fields(p: Params, flow: Wake, choice: Choice) -> Any:
    from matplotlib.figure import Figure

    leaders = choice.li.leaders
    period = flow.convective / _probe_frequency(p, flow)
    phase = (leaders * flow.interval / period) % 1
    apart = np.abs((phase - np.arange(p.show)[:, None] / p.show + 0.5) % 1 - 0.5)
    shown = leaders[list(dict.fromkeys(apart.argmin(axis=1).tolist()))]  # spread over the cycle
    columns = 2
    rows = -(-len(shown) // columns)
    ny, nx = flow.solid.shape
    band = slice(max(0, ny // 2 - p.diameter), ny // 2 + p.diameter)  # two diameters up and down
    body = np.ma.masked_where(~flow.solid[band], np.ones_like(flow.solid[band], dtype=float))
    fields = [vorticity(flow.velocity[i])[band] for i in shown]
    top = float(np.quantile(np.abs(fields), 0.99))
    tall = 5.6 * 4 / (nx * 2 / p.diameter) + 0.5
    figure = Figure(figsize=(5.6 * columns, tall * rows + 0.3), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    extent = (0, nx * 2 / p.diameter, -2, 2)
    for ax, i, field in zip(axes, shown, fields):
        view = {"origin": "lower", "extent": extent, "aspect": "equal"}
        ax.imshow(field, cmap="RdBu_r", vmin=-top, vmax=top, interpolation="bilinear", **view)
        ax.imshow(body, cmap="gray", vmin=0, vmax=2, **view)
        ax.set_title(f"snapshot {i}, phase {(i * flow.interval / period) % 1:.2f}", fontsize=9)
        ax.tick_params(labelsize=7)
        ax.set_ylabel("y/D", fontsize=8)
    for ax in axes[len(shown) :]:
        ax.set_visible(False)
    for ax in axes[max(0, len(shown) - columns) : len(shown)]:
        ax.set_xlabel("x/D", fontsize=8)
    return figure


def _power_curve(p: Params, choices: list[Choice]) -> Any:
    from matplotlib.figure import Figure

    from ..plot import PALETTE

    line = sorted((c for c in choices if c.d == max(p.dims)), key=lambda c: c.power)
    power = [c.power for c in line]
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    leaders = [len(c.li.leaders) for c in line]
    left.plot(power, leaders, "*-", color=PALETTE[1], ms=10, label="leaders")
    extreme = [len(c.extreme) for c in line]
    left.plot(power, extreme, "o-", color=PALETTE[0], ms=4, label="extreme points")
    left.set(xlabel="p", ylabel="snapshots")
    left.set_ylim(bottom=0)
    left.legend(frameon=False, fontsize="small")
    for k, (colour, name) in enumerate(
        ((PALETTE[1], "leaders"), (PALETTE[2], "medoids"), (PALETTE[4], "evenly spaced"))
    ):
        right.plot(power, [c.cost[k] for c in line], "o-", color=colour, ms=4, label=name)
    right.set(xlabel="p", ylabel="mean distance")
    right.set_ylim(bottom=0)
    right.legend(frameon=False, fontsize="small")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    return figure
