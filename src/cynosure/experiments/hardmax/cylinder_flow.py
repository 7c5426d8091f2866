"""The leaders of a flow past a cylinder: which snapshots does hardmax attention single out?

A real flow: the two-dimensional wake of a cylinder at Re = 100, computed by the lattice Boltzmann
method from rest until vortices are shed periodically. Its snapshots are expanded in their proper
orthogonal modes (POD), the coefficients are tokens, and the model of arXiv 2407.01602 runs on them.
See: the tokens trace a closed curve; leaders are extreme points of it, but only those where it is
perpendicular to the radius; how many there are is a matter of how the modes are weighted, A =
diag(energies^p): the more the weak modes count, the more snapshots lead. The Strouhal number beside
the literature's 0.16 to 0.17 says whether the flow is the right one: with `--quick` it is not (a
coarse grid, neighbours too near), and the report says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, final

import numpy as np

from ...analysis.limits import Limit, limit
from ...analysis.polytope import hull
from ...attention import Hardmax
from ...drawing.report import Picture, Report, Table
from ...drawing.style import sheet
from ...dynamics import PureAttention
from ...simulation.loop import simulate
from ...theorems import check
from .._frame import Progress, silent
from .._measurements import kept
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


class Street(NamedTuple):
    """What is kept of a flow: its modes, its frequency, and pictures of its vorticity."""

    pod: Pod
    probed: float  # Strouhal number from the velocity behind the cylinder
    steps: int
    period: float  # of the shedding, in snapshots
    fields: np.ndarray  # (snapshots, y, x) vorticity in units of U/D, two diameters up and down
    body: np.ndarray  # (y, x), True inside the cylinder


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
    say = progress or silent
    if p.snapshots < max(p.dims) + 2 or min(p.dims) < 2:
        raise ValueError(f"cylinder_flow: dims start at 2 and stay below snapshots; got {p}")
    names = ("diameter", "length", "height", "reynolds", "start", "time", "snapshots")
    flow = {name: getattr(p, name) for name in names}
    street = kept(_street, flow, progress=lambda share: say(0.85 * share, "flow"))
    pod = street.pod
    cases = [(d, 0.0) for d in p.dims] + [(max(p.dims), q) for q in p.powers if q != 0]
    choices = []
    for done, (d, power) in enumerate(cases):
        say(0.88 + 0.08 * done / len(cases), f"d = {d}, p = {power:g}")
        choices.append(kept(_choice, p.alpha, pod, d, power))
    say(0.96, "figures")
    figures = (
        Picture("Leading snapshots", _FIELDS, _fields(p, street, choices[0])),
        Picture("The cycle and its leaders", _CYCLE, _cycle(pod, choices)),
        Picture("Against the weight of the modes", _POWERS, _power_curve(p, choices)),
    )
    tr = simulate(PureAttention(alpha=p.alpha), pod.tokens[:, : p.dims[0]], layers=12)
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, pod, choices),
        asdict(p),
        (_flow_table(p, street), _choice_table(choices), _energy_table(pod, max(p.dims))),
        {f"{p.dims[0]} modes": tuple(check(tr))},
        figures,
        command="cynosure run cylinder_flow",
    )


_CYCLE = (
    "Tokens are snapshots: their coefficients on modes 1 and 2, 1 and 3, in units of U. Stars lead "
    "(A = I, the smallest number of modes), open circles are extreme points that do not, crosses "
    "are as many medoids. See: leaders crowd where the curve is perpendicular to the radius, at "
    "its farthest and nearest points, for a token leads when the plane through it perpendicular to "
    "it has all others on one side; medoids are spread along the curve."
)
_FIELDS = (
    "Vorticity of leading snapshots (red: anticlockwise), chosen to be spread over the shedding "
    "cycle of period T: leaders are different moments of the same street. Lengths are measured in "
    "diameters D from the centre of the cylinder."
)
_POWERS = (
    "A = diag(energies^p) on the largest number of modes. p = -1 makes all modes count alike, "
    "p > 0 leaves the leading pair alone. Left: leaders and extreme points. Right: mean distance "
    "of a snapshot to the nearest representative, as a share of the mean size of a snapshot."
)


def _street(of: dict[str, Any], progress: Callable[[float], Any] | None = None) -> Street:
    """Run the flow and keep what the figures need; 32 modes are more than anybody asks for."""
    flow = wake(**of, progress=progress)
    if not np.isfinite(flow.velocity).all():
        raise ArithmeticError(
            "cylinder_flow: the flow became unstable; use more cells per diameter or a smaller Re"
        )
    probed = _probe_frequency(of["start"], flow)
    middle, two = flow.solid.shape[0] // 2, of["diameter"]  # every second cell is kept: 2 D
    band = slice(max(0, middle - two), middle + two)
    fields = vorticity(flow.velocity)[:, band] * flow.diameter / 2
    return Street(
        _pod(flow, min(32, len(flow.velocity))),
        probed,
        len(flow.lift),
        flow.convective / probed / flow.interval,
        fields.astype(np.float16),
        flow.solid[band],
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


def _choice(alpha: float, pod: Pod, d: int, power: float) -> Choice:
    z = pod.tokens[:, :d]
    A = _form(pod, d, power)
    li = limit(PureAttention(Hardmax(A), alpha=alpha), z)
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


def _probe_frequency(start: float, flow: Wake) -> float:
    """Strouhal number from the cross-stream velocity behind the cylinder, by its zero crossings."""
    v = flow.lift[round(start * flow.convective) :]
    v = v - v.mean()
    up = np.flatnonzero((v[:-1] < 0) & (v[1:] >= 0)) + 0.0
    return float((len(up) - 1) / (up[-1] - up[0]) * flow.convective) if len(up) > 1 else np.nan


def _flow_table(p: Params, street: Street) -> Table:
    rows = (
        ("Reynolds number", p.reynolds),
        ("cells per diameter", p.diameter),
        ("height of the domain in diameters", p.height),
        ("steps", street.steps),
        ("Strouhal number, leading POD pair", street.pod.frequency),
        ("Strouhal number, velocity behind the cylinder", street.probed),
        ("Strouhal number, literature", "0.16 to 0.17"),
        ("shedding periods recorded", p.time * street.pod.frequency),
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


def _energy_table(pod: Pod, modes: int) -> Table:
    total = np.cumsum(pod.energy)
    rows = tuple((k + 1, float(pod.energy[k]), float(total[k])) for k in range(modes))
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
        f"Vortices are shed at a Strouhal number of {pod.frequency:.3f} (literature 0.16 to 0.17). "
        + _caution(p, pod)
        + f"The first two modes carry {pod.energy[:2].sum():.1%} of the fluctuating energy. "
        f"Leaders among {p.snapshots} snapshots over {p.time * pod.frequency:.1f} periods, A = I: "
        f"{counts}; "
        + ("all leaders are" if extreme else "not all leaders are")
        + f" extreme points of the curve, but only {len(first.li.leaders)} of "
        f"{len(first.extreme)} extreme points lead on {first.d} modes. With A = diag(energies^p) "
        f"on {most} modes the leaders go from {len(low.li.leaders)} (p = {low.power:g}) to "
        f"{len(high.li.leaders)} (p = {high.power:g}). As a summary of the cycle leaders cost "
        f"{first.cost[0] / first.cost[1]:.2f} times the distance of as many medoids "
        f"({first.d} modes). {proved} of {len(choices)} limits are proved."
    )


def _caution(p: Params, pod: Pod) -> str:
    """What a reader of a rehearsal must know before quoting it."""
    if round(pod.frequency, 2) in (0.16, 0.17):
        return ""
    return (
        f"This is not the flow of the literature: {p.diameter} cells per diameter are coarse, and "
        f"neighbours {p.height:g} diameters away hasten the shedding; what follows is a rehearsal "
        f"on a flow of the same kind. "
    )


def _cycle(pod: Pod, choices: list[Choice]) -> Any:
    from matplotlib.ticker import MaxNLocator

    from ...drawing.plot import GREY, PALETTE

    c, z = choices[0], pod.tokens
    figure, grid = sheet(1, 2, width=5, height=5)
    for ax, (a, b) in zip(grid[0], ((0, 1), (0, 2))):
        b = min(b, z.shape[1] - 1)
        ax.plot(z[:, a], z[:, b], ".", color=GREY, ms=4, label="snapshots")
        rest = np.setdiff1d(c.extreme, c.li.leaders)
        ax.plot(*z[rest][:, [a, b]].T, "o", mfc="none", mec=PALETTE[0], ms=5, label="extreme only")
        ax.plot(*z[c.medoids][:, [a, b]].T, "x", color=PALETTE[2], ms=8, mew=2, label="medoids")
        ax.plot(*z[c.li.leaders][:, [a, b]].T, "*", color=PALETTE[1], ms=11, label="leaders")
        ax.set(xlabel=f"coefficient of mode {a + 1}", ylabel=f"coefficient of mode {b + 1}")
        ax.xaxis.set_major_locator(MaxNLocator(5))
    handles = grid[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _fields(p: Params, street: Street, choice: Choice) -> Any:
    leaders = choice.li.leaders
    phase = (leaders / street.period) % 1
    apart = np.abs((phase - np.arange(p.show)[:, None] / p.show + 0.5) % 1 - 0.5)
    rows_shown = list(dict.fromkeys(apart.argmin(axis=1).tolist()))  # spread over the cycle
    fields = street.fields[leaders[rows_shown]].astype(np.float64)
    body = np.ma.masked_where(~street.body, np.ones(street.body.shape))
    cell = 2 / p.diameter  # every second one is kept
    high, wide = (x * cell for x in street.body.shape)
    centre = street.body.nonzero()[1].mean() * cell
    box = (-centre, wide - centre, -high / 2, high / 2)
    top = float(np.quantile(np.abs(fields), 0.99))
    columns = 2
    rows = -(-len(fields) // columns)
    right = box[1]
    figure, axes = sheet(rows, columns, width=6, height=6 * high / (right + 1.5) + 0.5)
    view: dict[str, Any] = {"origin": "lower", "extent": box, "aspect": "equal"}
    for ax, i, field in zip(axes.flat, rows_shown, fields):
        image = ax.imshow(
            field, cmap="RdBu_r", vmin=-top, vmax=top, interpolation="bilinear", **view
        )
        ax.imshow(body, cmap="gray", vmin=0, vmax=2, **view)
        ax.set_title(f"snapshot {leaders[i]}, t/T = {phase[i]:.2f}", fontsize=10)
        ax.set(xlim=(-1.5, right), xlabel="x/D", ylabel="y/D")
    for ax in axes.flat[len(fields) :]:
        ax.set_visible(False)
    figure.colorbar(image, ax=axes, label="vorticity, U/D", shrink=0.7)
    return figure


def _power_curve(p: Params, choices: list[Choice]) -> Any:
    from ...drawing.plot import PALETTE

    line = sorted((c for c in choices if c.d == max(p.dims)), key=lambda c: c.power)
    power = [c.power for c in line]
    figure, grid = sheet(1, 2, width=5, height=3.6)
    left, right = grid[0]
    leaders = [len(c.li.leaders) for c in line]
    left.plot(power, leaders, "*-", color=PALETTE[1], ms=10, label="leaders")
    extreme = [len(c.extreme) for c in line]
    left.plot(power, extreme, "o-", color=PALETTE[0], ms=4, label="extreme points")
    left.set(xlabel="p in A = diag(energies$^p$)", ylabel="number of snapshots")
    left.set_ylim(bottom=0)
    left.legend(frameon=False, fontsize="small")
    for k, (colour, name) in enumerate(
        ((PALETTE[1], "leaders"), (PALETTE[2], "medoids"), (PALETTE[4], "evenly spaced"))
    ):
        right.plot(power, [c.cost[k] for c in line], "o-", color=colour, ms=4, label=name)
    right.set(xlabel="p in A = diag(energies$^p$)", ylabel="mean distance to the nearest")
    right.set_ylim(bottom=0)
    right.legend(frameon=False, fontsize="small")
    return figure
