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
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.analysis.clustering import medoids

from ._street import Pod, street_of

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
        _summary(p, pod, choices),
        controls=_controls(p, choices, samples, swept),
        tables=_tables(p, street, choices, samples),
        checks={f"{p.dims[0]} modes": cy.check(tr)},
        figures=[_fields(p, street, choices[0].li.leaders), _cycle(pod, choices[0])],
    )


def _choice(alpha: float, pod: Pod, d: int, power: float) -> st.Cell:
    """Snapshots singled out for one form A: the limit, the vertices of the hull, as many medoids,
    and the mean distance to the nearest leader, medoid, and of an even choice."""
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
    found = {"li": li, "extreme": cy.hull(z).index, "medoids": chosen, "cost": tuple(cost)}
    return st.Cell(d=d, power=power, **found)


def _among(c: st.Cell, others: np.ndarray) -> int:
    """How many of the leaders are among these."""
    return len(np.intersect1d(c.li.leaders, others))


def _lead_and_cost(
    alpha: float | int, starts: list[np.ndarray], curve: str, stride: int
) -> st.Cell:
    """Leaders (A = I) among so many points of a curve, one number for each way to take them, and
    the mean distance to the nearest leader over that to as many medoids."""
    counts, ratios = [], []
    for z in starts:
        leaders = cy.limit(cy.PureAttention(alpha=alpha), z).leaders
        distance = np.linalg.norm(z[:, None] - z, axis=-1)
        sets = leaders, medoids(distance, len(leaders))
        cost, least = (distance[:, s].min(axis=1).mean() for s in sets)
        counts.append(len(leaders))
        ratios.append(float(cost / least) if least > 0 else 1.0)
    low, high = min(counts), max(counts)
    told = f"{low} to {high}" if low < high else f"{low}"
    found = {"leaders": np.array(counts), "cost": np.array(ratios)}
    return st.Cell(curve=curve, stride=stride, points=len(starts[0]), **found, told=told)


def _sampled(alpha: float | int, tokens: np.ndarray, stride: int) -> st.Cell:
    """Every stride-th snapshot alone, from each of the first ones."""
    ways = [tokens[first::stride] for first in range(stride)]
    return _lead_and_cost(alpha, ways, "the flow", stride)


def _ellipses(
    alpha: float | int, energy: np.ndarray, points: int, period: float, turns: int, stride: int
) -> st.Cell:
    """The null model: no flow, ellipses with about the axes of the first two modes, sampled alike.

    z(t) = (a cos t, b sin t), as many points per period, a/b within 5 % of sqrt(energy 1 / energy
    2): how many points of an ellipse lead depends on that ratio and on the first phase.
    """
    starts = []
    for off in np.linspace(-0.05, 0.05, turns):
        ratio = (1 + off) * np.sqrt(energy[1] / energy[0])
        phase = 2 * np.pi * (np.arange(0, points, stride) + 10 * off) / period
        starts.append(np.stack([np.cos(phase), ratio * np.sin(phase)], axis=1))
    return _lead_and_cost(alpha, starts, "an ellipse", stride)


def _told(samples: list[st.Cell], curve: str) -> str:
    return ", ".join(f"{c.told} of {c.points}" for c in samples if c.curve == curve)


def _controls(
    p: Params, choices: list[st.Cell], samples: list[st.Cell], swept: list[st.Cell]
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
    p: Params, street: st.Cell, choices: list[st.Cell], samples: list[st.Cell]
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
    chosen = st.columns("modes = d, p = power, leaders = len li.leaders, certified = li.certified")
    chosen |= {"leaders that are extreme": lambda c: _among(c, c.extreme)}
    chosen |= {"leaders that are medoids": lambda c: _among(c, c.medoids)}
    chosen |= {"distance to leaders": lambda c: c.cost[0], "to medoids": lambda c: c.cost[1]}
    chosen |= {"to evenly spaced": lambda c: c.cost[2]}
    chosen |= st.columns("extreme points = len extreme, at layer = li.layers")
    norm = "Distances in the A-norm, as shares of the mean size of a snapshot."
    sampled = st.columns(
        "curve, every = stride, points, ways = len leaders, fewest leaders = min leaders, "
        "mean = mean leaders, most = max leaders, mean cost beside medoids = mean cost"
    )
    ways = "A = I on the smallest number of modes; a way is another first snapshot or phase."
    return [
        st.Table("The flow", ("quantity", "value"), tuple(flow.items()), near),
        st.Table.of("Which snapshots lead", choices, chosen, norm),
        st.Table.of("Leaders by sampling, and without a flow", samples, sampled, ways),
    ]


def _summary(p: Params, pod: Pod, choices: list[st.Cell]) -> str:
    first = choices[0]
    extreme = all(_among(c, c.extreme) == len(c.li.leaders) for c in choices)
    plain = [f"{len(c.li.leaders)} on {c.d} modes" for c in choices if c.power == 0]
    return (
        f"Vortices are shed at a Strouhal number of {pod.frequency:.3f} (literature 0.16 to 0.17). "
        f"{_caution(p, pod)}"
        f"The first two modes carry {pod.energy[:2].sum():.1%} of the fluctuating energy. "
        f"Leaders among {p.snapshots} snapshots over {p.time * pod.frequency:.1f} periods, A = I: "
        f"{', '.join(plain)}; {'all' if extreme else 'not all'} leaders are extreme points of the "
        f"curve, but only {len(first.li.leaders)} of {len(first.extreme)} extreme points lead on "
        f"{first.d} modes. As a summary of the cycle leaders cost "
        f"{first.cost[0] / first.cost[1]:.2f} times the distance of as many medoids."
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


def _cycle(pod: Pod, c: st.Cell) -> st.Picture:
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


def _fields(p: Params, street: st.Cell, leaders: np.ndarray) -> st.Picture:
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
