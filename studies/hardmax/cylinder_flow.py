"""The leaders of a flow past a cylinder: which snapshots does hardmax attention single out?

A real flow: the two-dimensional wake of a cylinder at Re = 100, computed by the lattice Boltzmann
method from rest until vortices are shed periodically. Its snapshots are expanded in their proper
orthogonal modes (POD), the coefficients are tokens, and the model of arXiv 2407.01602 runs on them.
See: the tokens trace a closed curve; leaders are extreme points of it, but only those where it is
perpendicular to the radius; the more the weak modes count in A = diag(energies^p), the more
snapshots lead. How many lead is a property of the sampling as much as of the flow: it changes with
the number of snapshots, and ellipses sampled alike, without any flow, have fewer or more.
The Strouhal number beside the literature's 0.16 to 0.17 says whether the flow is the right one:
with `--quick` it is not (a coarse grid, neighbours too near).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.analysis.clustering import medoids

from ._street import Pod, Street, street_of

TITLE = "The leaders of a flow past a cylinder"
FLOW = ("diameter", "length", "height", "reynolds", "start", "time", "snapshots")


@dataclass(frozen=True)
class Params:
    """The flow (cells per diameter, domain and times in diameters and D/U), and the tokens.

    `dims`: numbers of modes used; `powers`: p of A = diag(energies^p), on the largest of them.
    `strides`: every so many-th snapshot is taken alone, from each first one; `turns`: how many
    ellipses without a flow are sampled alike.
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
    strides: tuple[int, ...] = (1, 2, 3, 4)
    turns: int = 20


QUICK = Params(
    diameter=10, length=12.0, height=7.0, start=30.0, time=15.0, snapshots=80,
    powers=(-1.0, -0.5, 0.0, 1.0), strides=(1, 2), turns=4,
)  # fmt: skip


class Choice(NamedTuple):
    """Snapshots singled out for one form A."""

    d: int
    power: float
    li: cy.analysis.Limit
    extreme: np.ndarray  # vertices of the hull of the tokens
    medoids: np.ndarray
    cost: tuple[float, ...]  # mean distance to the nearest leader, medoid, even choice

    def leaders_among(self, others: np.ndarray) -> int:
        return len(np.intersect1d(self.li.leaders, others))


class Sampled(NamedTuple):
    """Leaders among so many points of a curve, for several ways to take them."""

    curve: str
    stride: int
    points: int
    leaders: np.ndarray  # one number per way
    cost: np.ndarray  # mean distance to the nearest leader over that to as many medoids

    @property
    def told(self) -> str:
        low, high = self.leaders.min(), self.leaders.max()
        return f"{low} to {high}" if low < high else f"{low}"


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Flow, POD, leaders."""
    st.require(min(p.dims) >= 2 and max(p.dims) + 2 <= p.snapshots, "2 <= dims <= snapshots - 2", p)
    flow = {name: getattr(p, name) for name in FLOW}  # all that the flow depends on
    street = st.kept(street_of, flow, progress=st.part(progress, 0, 0.85))
    (progress or st.silent)(0.85, "leaders")
    pod, d = street.pod, max(p.dims)
    cases = [*((modes, 0.0) for modes in p.dims), *((d, power) for power in p.powers if power)]
    choices = st.kept_each(_choice, [(p.alpha, pod, *case) for case in cases])
    tokens, law = pod.tokens[:, : p.dims[0]], (pod.energy, p.snapshots, street.period, p.turns)
    samples = st.kept_each(_sampled, [(p.alpha, tokens, stride) for stride in p.strides])
    samples += st.kept_each(_ellipses, [(p.alpha, *law, stride) for stride in p.strides])
    tr = cy.simulate(cy.PureAttention(alpha=p.alpha), tokens, layers=12)
    swept = sorted((c for c in choices if c.d == d), key=lambda c: c.power)
    return st.report_of(
        p,
        _summary(p, pod, choices, samples),
        controls=_controls(p, choices, samples, swept),
        tables=_tables(p, street, choices, samples),
        checks={f"{p.dims[0]} modes": cy.check(tr)},
        figures=[_fields(p, street, choices[0].li.leaders), _cycle(pod, choices[0])],
    )


def _choice(alpha: float, pod: Pod, d: int, power: float) -> Choice:
    z = pod.tokens[:, :d]
    weight = (pod.energy[:d] / pod.energy[0]) ** power
    A = np.diag(weight / weight.max())
    li = cy.limit(cy.PureAttention(cy.Hardmax(A), alpha=alpha), z)
    x = z * np.sqrt(np.diag(A))  # the A-norm is the plain one here
    distance = np.linalg.norm(x[:, None] - x, axis=-1)
    chosen = medoids(distance, len(li.leaders))
    even = np.unique(np.linspace(0, len(z) - 1, len(li.leaders)).round().astype(int))
    size = np.linalg.norm(x, axis=1).mean()
    cost = (float(distance[:, s].min(axis=1).mean() / size) for s in (li.leaders, chosen, even))
    return Choice(d, power, li, cy.hull(z).index, chosen, tuple(cost))


def _lead_and_cost(
    alpha: float | int, starts: list[np.ndarray]
) -> tuple[int, np.ndarray, np.ndarray]:
    """Points of the last start; of each, its leaders (A = I), and their cost beside medoids'."""
    counts, ratios = [], []
    for z in starts:
        leaders = cy.limit(cy.PureAttention(alpha=alpha), z).leaders
        distance = np.linalg.norm(z[:, None] - z, axis=-1)
        sets = leaders, medoids(distance, len(leaders))
        cost, least = (distance[:, s].min(axis=1).mean() for s in sets)
        counts.append(len(leaders))
        ratios.append(float(cost / least) if least > 0 else 1.0)
    return len(z), np.array(counts), np.array(ratios)


def _sampled(alpha: float | int, tokens: np.ndarray, stride: int) -> Sampled:
    """Every stride-th snapshot alone, from each of the first ones."""
    _, *found = _lead_and_cost(alpha, [tokens[first::stride] for first in range(stride)])
    return Sampled("the flow", stride, len(tokens[::stride]), *found)


def _ellipses(
    alpha: float | int, energy: np.ndarray, points: int, period: float, turns: int, stride: int
) -> Sampled:
    """The null model: no flow, ellipses with about the axes of the first two modes, sampled alike.

    z(t) = (a cos t, b sin t), as many points per period, a/b within 5 % of sqrt(energy 1 / energy
    2): how many points of an ellipse lead depends on that ratio and on the first phase.
    """
    starts = []
    for off in np.linspace(-0.05, 0.05, turns):
        ratio = (1 + off) * np.sqrt(energy[1] / energy[0])
        phase = 2 * np.pi * (np.arange(0, points, stride) + 10 * off) / period
        starts.append(np.stack([np.cos(phase), ratio * np.sin(phase)], axis=1))
    return Sampled("an ellipse", stride, *_lead_and_cost(alpha, starts))


def _told(samples: list[Sampled], curve: str) -> str:
    return ", ".join(f"{c.told} of {c.points}" for c in samples if c.curve == curve)


def _controls(
    p: Params, choices: list[Choice], samples: list[Sampled], swept: list[Choice]
) -> list[st.Comparison]:
    flow, ellipse = st.grouped(samples, "curve").values()
    counts = [len(c.li.leaders) for c in swept]
    means = [float(c.leaders.mean()) for c in flow]
    cost = "; ".join(
        f"{c.curve}, {c.points} points: {c.cost.min():.2f} to {c.cost.max():.2f}" for c in samples
    )
    return [
        st.Comparison(
            f"{len(choices[0].li.leaders)} snapshots lead ({choices[0].d} modes).",
            "fewer snapshots of the same flow",
            _told(samples, "the flow"),
            max(means) <= 1.1 * min(means),
        ),
        st.Comparison(
            "The number of leaders is the mark of a vortex street.",
            f"{p.turns} ellipses without a flow, with the axes of the first two modes within 5 %",
            f"the flow {_told(samples, 'the flow')}; ellipses {_told(samples, 'an ellipse')}",
            all(
                a.leaders.max() < b.leaders.min() or a.leaders.min() > b.leaders.max()
                for a, b in zip(flow, ellipse)
            ),
        ),
        st.Comparison(
            "Leaders summarise the cycle worse than as many medoids.",
            "fewer snapshots; an ellipse without a flow",
            f"distance to leaders over that to medoids: {cost}",
            all(c.cost.min() > 1 for c in flow),
        ),
        st.Comparison(
            f"The more the weak modes count, the more snapshots lead ({max(p.dims)} modes).",
            "every p",
            "; ".join(f"p = {c.power:g}: {len(c.li.leaders)}" for c in swept),
            counts == sorted(counts, reverse=True) and counts[0] > counts[-1],
        ),
    ]


def _tables(
    p: Params, street: Street, choices: list[Choice], samples: list[Sampled]
) -> list[st.Table]:
    pod = street.pod
    flow = {
        "Reynolds number": p.reynolds,
        "cells per diameter": p.diameter,
        "height of the domain in diameters": p.height,
        "steps": street.steps,
        "Strouhal number, leading POD pair": pod.frequency,
        "Strouhal number, velocity behind the cylinder": street.probed,
        "Strouhal number, literature": "0.16 to 0.17",
        "shedding periods recorded": p.time * pod.frequency,
    }
    near = "The domain repeats above and below: neighbours, the nearer the more, raise the number."
    chosen: dict[str, Any] = {
        **{"modes": "d", "p": "power"},
        "leaders": lambda c: len(c.li.leaders),
        "extreme points": lambda c: len(c.extreme),
        "leaders that are extreme": lambda c: c.leaders_among(c.extreme),
        "leaders that are medoids": lambda c: c.leaders_among(c.medoids),
        "distance to leaders": lambda c: c.cost[0],
        "to medoids": lambda c: c.cost[1],
        "to evenly spaced": lambda c: c.cost[2],
        **{"certified": "li.certified", "at layer": "li.layers"},
    }
    norm = "Distances in the A-norm, as shares of the mean size of a snapshot."
    sampled: dict[str, Any] = {
        **{"curve": "curve", "every": "stride", "points": "points"},
        "ways": lambda c: len(c.leaders),
        "fewest leaders": lambda c: int(c.leaders.min()),
        "mean": lambda c: float(c.leaders.mean()),
        "most": lambda c: int(c.leaders.max()),
        "cost beside medoids, mean": lambda c: float(c.cost.mean()),
    }
    ways = "A = I on the smallest number of modes; a way is another first snapshot or phase."
    modes = tuple(zip(range(1, max(p.dims) + 1), pod.energy, np.cumsum(pod.energy)))
    return [
        st.Table("The flow", ("quantity", "value"), tuple(flow.items()), near),
        st.Table.of("Which snapshots lead", choices, chosen, norm),
        st.Table.of("Leaders by sampling, and without a flow", samples, sampled, ways),
        st.Table("Energy of the modes", ("mode", "share", "together"), modes),
    ]


def _summary(p: Params, pod: Pod, choices: list[Choice], samples: list[Sampled]) -> str:
    first = choices[0]
    extreme = all(c.leaders_among(c.extreme) == len(c.li.leaders) for c in choices)
    plain = [f"{len(c.li.leaders)} on {c.d} modes" for c in choices if c.power == 0]
    return (
        f"Vortices are shed at a Strouhal number of {pod.frequency:.3f} (literature 0.16 to 0.17). "
        f"{_caution(p, pod)}"
        f"The first two modes carry {pod.energy[:2].sum():.1%} of the fluctuating energy. "
        f"Leaders among {p.snapshots} snapshots over {p.time * pod.frequency:.1f} periods, A = I: "
        f"{', '.join(plain)}; {'all' if extreme else 'not all'} leaders are extreme points of the "
        f"curve, but only {len(first.li.leaders)} of {len(first.extreme)} extreme points lead on "
        f"{first.d} modes. As a summary of the cycle leaders cost "
        f"{first.cost[0] / first.cost[1]:.2f} times the distance of as many medoids. Of fewer "
        f"snapshots of the same flow {_told(samples, 'the flow')} lead; points of an ellipse "
        f"sampled alike, without a flow: {_told(samples, 'an ellipse')}. "
        f"{sum(c.li.certified for c in choices)} of {len(choices)} limits are proved."
    )


def _caution(p: Params, pod: Pod) -> str:
    """What a reader of a rehearsal must know before quoting it."""
    if round(pod.frequency, 2) in (0.16, 0.17):
        return ""
    return (
        f"This is not the flow of the literature but a rehearsal on one of the same kind: "
        f"{p.diameter} cells per diameter are coarse, and neighbours {p.height:g} diameters away "
        "hasten the shedding. "
    )


def _cycle(pod: Pod, c: Choice) -> st.Picture:
    z, leaders, rest = pod.tokens, c.li.leaders, np.setdiff1d(c.extreme, c.li.leaders)
    blue, orange, green, *_ = cy.plot.PALETTE
    figure, axes = cy.plot.sheet(1, 2, 5, 5)
    for ax, mode in zip(axes[0], (1, 2)):
        x, y = z[:, 0], z[:, mode]
        ax.plot(x, y, ".", color=cy.plot.GREY, ms=4, label="snapshots")
        ax.plot(x[rest], y[rest], "o", mfc="none", mec=blue, ms=5, label="extreme only")
        ax.plot(x[c.medoids], y[c.medoids], "x", color=green, ms=8, mew=2, label="medoids")
        ax.plot(x[leaders], y[leaders], "*", color=orange, ms=11, label="leaders")
        ax.set(xlabel="coefficient of mode 1", ylabel=f"coefficient of mode {mode + 1}")
        ax.locator_params(axis="x", nbins=5)
    cy.plot.legend_below(axes[0, 0])
    caption = (
        "Tokens are snapshots: their coefficients on modes 1 and 2, 1 and 3, in units of U. See: "
        "leaders (A = I, the smallest number of modes) crowd where the curve is perpendicular to "
        "the radius, for a token leads when the plane through it perpendicular to it has all "
        "others on one side; as many medoids are spread along the curve."
    )
    return st.Picture("The cycle and its leaders", caption, figure)


def _fields(p: Params, street: Street, leaders: np.ndarray) -> st.Picture:
    phase = (leaders / street.period) % 1
    apart = np.abs((phase - np.arange(p.show)[:, None] / p.show + 0.5) % 1 - 0.5)
    shown = list(dict.fromkeys(apart.argmin(axis=1).tolist()))  # spread over the cycle
    fields = street.fields[leaders[shown]].astype(np.float64)
    body = np.ma.masked_where(~street.body, np.ones(street.body.shape))
    cell = 2 / p.diameter  # every second one is stored
    high, wide = (x * cell for x in street.body.shape)
    centre = street.body.nonzero()[1].mean() * cell
    right, top = wide - centre, float(np.quantile(np.abs(fields), 0.99))
    figure, axes = cy.plot.sheet(-(-len(fields) // 2), 2, 6, 6 * high / (right + 1.5) + 0.5)
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
        "shedding cycle of period T. Lengths in diameters D from the centre of the cylinder."
    )
    return st.Picture("Snapshots that lead", caption, figure)
