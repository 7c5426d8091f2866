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
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

import cynosure as cy

from .._frame import Progress, part, report_of
from .._measurements import kept
from ._lattice_boltzmann import Wake, vorticity, wake

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "The leaders of a flow past a cylinder"


@final
@dataclass(frozen=True)
class Params:
    """The flow (cells per diameter, domain and times in diameters and D/U), and the tokens.

    `dims`: numbers of modes used; `powers`: p of A = diag(energies^p), on the largest of them.
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
    """What the report needs of a flow: its modes, its frequency, pictures of its vorticity."""

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
    li: cy.Limit
    extreme: np.ndarray  # vertices of the hull of the tokens
    medoids: np.ndarray
    cost: tuple[float, float, float]  # mean distance to the nearest leader, medoid, even choice

    def leaders_among(self, others: np.ndarray) -> int:
        return len(np.intersect1d(self.li.leaders, others))


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Flow, POD, leaders."""
    if p.snapshots < max(p.dims) + 2 or min(p.dims) < 2:
        raise ValueError(f"cylinder_flow: dims start at 2 and stay below snapshots; got {p}")
    names = ("diameter", "length", "height", "reynolds", "start", "time", "snapshots")
    flow = {name: getattr(p, name) for name in names}
    flow_part, say = part(progress, 0.0, 0.85), part(progress, 0.85, 1.0)
    street = kept(_street, flow, progress=lambda share: flow_part(share, "flow"))
    pod = street.pod
    cases = [(d, 0.0) for d in p.dims] + [(max(p.dims), q) for q in p.powers if q != 0]
    choices: list[Choice] = []
    for d, power in cases:
        say(len(choices) / len(cases), f"d = {d}, p = {power:g}")
        choices.append(kept(_choice, p.alpha, pod, d, power))
    tr = cy.simulate(cy.PureAttention(alpha=p.alpha), pod.tokens[:, : p.dims[0]], layers=12)
    modes = zip(range(1, max(p.dims) + 1), pod.energy, np.cumsum(pod.energy))
    energy = cy.Table("Energy of the modes", ("mode", "share", "together"), tuple(modes))
    return report_of(
        __name__,
        p,
        _summary(p, pod, choices),
        tables=[_flow_table(p, street), _choice_table(choices), energy],
        checks={f"{p.dims[0]} modes": cy.check(tr)},
        figures=[
            _fields(p, street, choices[0].li.leaders),
            _cycle(pod, choices[0]),
            _power_curve([c for c in choices if c.d == max(p.dims)]),
        ],
    )


def _street(of: dict[str, Any], progress: Callable[[float], Any] | None = None) -> Street:
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


def _choice(alpha: float, pod: Pod, d: int, power: float) -> Choice:
    z = pod.tokens[:, :d]
    weight = (pod.energy[:d] / pod.energy[0]) ** power
    A = np.diag(weight / weight.max())
    li = cy.limit(cy.PureAttention(cy.Hardmax(A), alpha=alpha), z)
    x = z * np.sqrt(np.diag(A))  # the A-norm is the plain one here
    distance = np.linalg.norm(x[:, None] - x, axis=-1)
    k = len(li.leaders)
    medoids = _medoids(distance, k)
    even = np.unique(np.linspace(0, len(z) - 1, k).round().astype(int))
    size = np.linalg.norm(x, axis=1).mean()
    cost = [float(distance[:, s].min(axis=1).mean() / size) for s in (li.leaders, medoids, even)]
    return Choice(d, power, li, cy.hull(z).index, medoids, (cost[0], cost[1], cost[2]))


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


def _probe_frequency(start: float, flow: Wake) -> float:
    """Strouhal number from the cross-stream velocity behind the cylinder, by its zero crossings."""
    v = flow.lift[round(start * flow.convective) :]
    v = v - v.mean()
    up = np.flatnonzero((v[:-1] < 0) & (v[1:] >= 0)) + 0.0
    return float((len(up) - 1) / (up[-1] - up[0]) * flow.convective) if len(up) > 1 else np.nan


def _flow_table(p: Params, street: Street) -> cy.Table:
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
    return cy.Table("The flow", ("quantity", "value"), rows, note)


def _choice_table(choices: list[Choice]) -> cy.Table:
    return cy.Table.of(
        "Which snapshots lead",
        choices,
        {
            **{"modes": "d", "p": "power"},
            "leaders": lambda c: len(c.li.leaders),
            "extreme points": lambda c: len(c.extreme),
            "leaders that are extreme": lambda c: c.leaders_among(c.extreme),
            "leaders that are medoids": lambda c: c.leaders_among(c.medoids),
            "distance to leaders": lambda c: c.cost[0],
            "to medoids": lambda c: c.cost[1],
            "to evenly spaced": lambda c: c.cost[2],
            **{"certified": "li.certified", "at layer": "li.layers"},
        },
        "Distances in the A-norm, as shares of the mean size of a snapshot.",
    )


def _summary(p: Params, pod: Pod, choices: list[Choice]) -> str:
    first = choices[0]
    extreme = all(c.leaders_among(c.extreme) == len(c.li.leaders) for c in choices)
    swept = [c for c in choices if c.d == max(p.dims)]
    low, high = min(swept, key=lambda c: c.power), max(swept, key=lambda c: c.power)
    plain = {c.d: len(c.li.leaders) for c in choices if c.power == 0}
    counts = ", ".join(f"{leaders} on {d} modes" for d, leaders in plain.items())
    return (
        f"Vortices are shed at a Strouhal number of {pod.frequency:.3f} (literature 0.16 to 0.17). "
        f"{_caution(p, pod)}"
        f"The first two modes carry {pod.energy[:2].sum():.1%} of the fluctuating energy. "
        f"Leaders among {p.snapshots} snapshots over {p.time * pod.frequency:.1f} periods, A = I: "
        f"{counts}; {'all' if extreme else 'not all'} leaders are"
        f" extreme points of the curve, but only {len(first.li.leaders)} of "
        f"{len(first.extreme)} extreme points lead on {first.d} modes. With A = diag(energies^p) "
        f"on {max(p.dims)} modes the leaders go from {len(low.li.leaders)} (p = {low.power:g}) to "
        f"{len(high.li.leaders)} (p = {high.power:g}). As a summary of the cycle leaders cost "
        f"{first.cost[0] / first.cost[1]:.2f} times the distance of as many medoids "
        f"({first.d} modes). {sum(c.li.certified for c in choices)} of {len(choices)} limits are "
        "proved."
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


def _cycle(pod: Pod, c: Choice) -> cy.Picture:
    from matplotlib.ticker import MaxNLocator

    z, leaders, rest = pod.tokens, c.li.leaders, np.setdiff1d(c.extreme, c.li.leaders)
    blue, orange, green, *_ = cy.plot.PALETTE
    figure, axes = cy.plot.sheet(1, 2, 5, 5)
    for ax, mode in zip(axes[0], (1, 2)):
        b = min(mode, z.shape[1] - 1)
        x, y = z[:, 0], z[:, b]
        ax.plot(x, y, ".", color=cy.plot.GREY, ms=4, label="snapshots")
        ax.plot(x[rest], y[rest], "o", mfc="none", mec=blue, ms=5, label="extreme only")
        ax.plot(x[c.medoids], y[c.medoids], "x", color=green, ms=8, mew=2, label="medoids")
        ax.plot(x[leaders], y[leaders], "*", color=orange, ms=11, label="leaders")
        ax.set(xlabel="coefficient of mode 1", ylabel=f"coefficient of mode {b + 1}")
        ax.xaxis.set_major_locator(MaxNLocator(5))
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, frameon=False)
    caption = (
        "Tokens are snapshots: their coefficients on modes 1 and 2, 1 and 3, in units of U. Stars "
        "lead (A = I, the smallest number of modes), open circles are extreme points that do not, "
        "crosses are as many medoids. See: leaders crowd where the curve is perpendicular to the "
        "radius, at its farthest and nearest points, for a token leads when the plane through it "
        "perpendicular to it has all others on one side; medoids are spread along the curve."
    )
    return cy.Picture("The cycle and its leaders", caption, figure)


def _fields(p: Params, street: Street, leaders: np.ndarray) -> cy.Picture:
    phase = (leaders / street.period) % 1
    apart = np.abs((phase - np.arange(p.show)[:, None] / p.show + 0.5) % 1 - 0.5)
    shown = list(dict.fromkeys(apart.argmin(axis=1).tolist()))  # spread over the cycle
    fields = street.fields[leaders[shown]].astype(np.float64)
    body = np.ma.masked_where(~street.body, np.ones(street.body.shape))
    cell = 2 / p.diameter  # every second one is stored
    high, wide = (x * cell for x in street.body.shape)
    centre = street.body.nonzero()[1].mean() * cell
    right = wide - centre
    top = float(np.quantile(np.abs(fields), 0.99))
    height = 6 * high / (right + 1.5) + 0.5
    figure, axes = cy.plot.sheet(-(-len(fields) // 2), 2, 6, height)
    box = (-centre, right, -high / 2, high / 2)
    view: dict[str, Any] = {"origin": "lower", "extent": box, "aspect": "equal"}
    flow = {"cmap": "RdBu_r", "vmin": -top, "vmax": top, "interpolation": "bilinear"}
    for ax, i, field in zip(axes.flat, shown, fields):
        image = ax.imshow(field, **flow, **view)
        ax.imshow(body, cmap="gray", vmin=0, vmax=2, **view)
        ax.set_title(f"snapshot {leaders[i]}, t/T = {phase[i]:.2f}")
        ax.set(xlim=(-1.5, right), xlabel="x/D", ylabel="y/D")
        ax.grid(False)
    for ax in axes.flat[len(fields) :]:
        ax.set_visible(False)
    figure.colorbar(image, ax=axes, label="vorticity, U/D", shrink=0.7)
    caption = (
        "Vorticity of snapshots that lead (red: anticlockwise), chosen to be spread over the "
        "shedding cycle of period T: leaders are different moments of the same street. Lengths "
        "are measured in diameters D from the centre of the cylinder."
    )
    return cy.Picture("Snapshots that lead", caption, figure)


def _power_curve(choices: list[Choice]) -> cy.Picture:
    line = sorted(choices, key=lambda c: c.power)
    power = [c.power for c in line]
    blue, orange, green, _, amber, *_ = cy.plot.PALETTE
    figure, axes = cy.plot.sheet(1, 2, 5, 3.6)
    left, right = axes[0]
    leaders, extreme = [len(c.li.leaders) for c in line], [len(c.extreme) for c in line]
    left.plot(power, leaders, "*-", color=orange, ms=10, label="leaders")
    left.plot(power, extreme, "o-", color=blue, ms=4, label="extreme points")
    left.set_ylabel("number of snapshots")
    names = {"leaders": orange, "medoids": green, "evenly spaced": amber}
    for k, (name, colour) in enumerate(names.items()):
        right.plot(power, [c.cost[k] for c in line], "o-", color=colour, ms=4, label=name)
    right.set_ylabel("mean distance to the nearest")
    for ax in axes[0]:
        ax.set_xlabel("p in A = diag(energies$^p$)")
        ax.set_ylim(bottom=0)
        ax.legend(frameon=False, fontsize=cy.plot.LABEL)
    caption = (
        "A = diag(energies^p) on the largest number of modes. p = -1 makes all modes count alike, "
        "p > 0 leaves the leading pair alone. Left: leaders and extreme points. Right: mean "
        "distance of a snapshot to the nearest representative, as a share of the mean size of a "
        "snapshot."
    )
    return cy.Picture("Against the weight of the modes", caption, figure)
