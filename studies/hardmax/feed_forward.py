"""A feed-forward sublayer between hardmax layers: what remains of leaders and clusters.

    z <- attention layer,   then   z_i <- z_i + w W2 relu(W1 z_i)

W1, W2 are random and fixed, without biases, so the layer is positively homogeneous like hardmax
itself and sizes may be divided out. The theory of arXiv 2407.01602 is the case w = 0. See: leaders
do not stand still any more and lose their lead as w and the depth grow, but the sublayer does that
to tokens without any attention as well: who leads at the end is its doing, not that of the two
together. What attention does is to keep the tokens of a cluster together: without it they stay
apart under any w.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st

TITLE = "A feed-forward sublayer: what remains of leaders and clusters"
KINDS = ("with attention", "without")


@dataclass(frozen=True)
class Params:
    """Weights w of the sublayer, its width, Gaussian starts of n tokens, depths in layers."""

    weights: tuple[float, ...] = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
    width: int = 32
    n: int = 40
    d: tuple[int, ...] = (2, 4, 8)
    alpha: float = 1.0
    starts: int = 40
    depths: tuple[int, ...] = (4, 16, 32)
    seed: int = 0


QUICK = Params(weights=(0.0, 0.05, 0.2, 1.0), d=(2, 4), starts=6, depths=(4, 16))


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """All weights on the same starts, with attention and without."""
    sensible = min(*p.depths, p.starts, p.n, p.width, *p.d) >= 1 and 0.0 in p.weights
    expected = "depths and sizes >= 1, and 0 among the weights, to compare with the theory"
    st.require(sensible, expected, p)
    axes = {"kind": KINDS, "d": p.d, "w": p.weights}
    found = st.over_grid(_weight, p, axes, st.part(progress, 0, 0.9))
    cells = [c for of in found for c in of]
    columns = st.columns(
        "attention = kind, d, layers = depth, w, first leaders that lead = mean runs.still_lead, "
        "leaders at the end = mean runs.leaders, clusters = mean runs.clusters, median leader "
        "moved by = median runs.moved, farthest leader moved by = median runs.farthest"
    )
    note = (
        "Means over the starts; moved by: medians over the starts, of the median and of the "
        "farthest leader of layer 0, after division by the longest token. Without attention "
        "clusters are told apart at the same hundredth of the longest token."
    )
    title, controls = "With a feed-forward sublayer of weight w", _controls(p, cells)
    return st.report_of(
        p,
        _summary(p, cells, controls),
        controls=controls,
        tables=[st.Table.of(title, cells, columns, note)],
        checks={"w = 0": [_check(cells)]},
        figures=[st.Picture.of("Against the weight of the sublayer", _curves, p, cells)],
    )


def _sublayer(p: Params, d: int, w: float | int, s: int) -> cy.dynamics.FeedForward:
    rng = np.random.default_rng([p.seed, d, s])
    W1 = rng.standard_normal((p.width, d)) / np.sqrt(d)
    W2 = rng.standard_normal((d, p.width)) / np.sqrt(p.width)
    return cy.dynamics.FeedForward(W1, W2, w)


def _layers(p: Params, kind: str, d: int, w: float | int, s: int) -> np.ndarray:
    """The tokens before each pair of sublayers, (largest depth + 1, n, d), longest token 1."""
    z0, sublayer = cy.configurations.gaussian(p.n, d, p.seed + s), _sublayer(p, d, w, s)
    sublayers = (cy.PureAttention(alpha=p.alpha), sublayer) if kind == KINDS[0] else (sublayer,)
    steps = len(sublayers)
    dynamics = cy.dynamics.Scheduled(sublayers)
    tr = cy.simulate(dynamics, z0, layers=steps * max(p.depths), save_every=steps, throw=False)
    return tr.values / np.linalg.norm(tr.values, axis=-1).max(axis=1)[:, None, None]


def _weight(p: Params, kind: str, d: int, w: float | int) -> list[st.Cell]:
    """The runs from all starts of R^d under a sublayer of weight w, a cell for each depth: a deep
    run passes through the shallow ones."""
    runs = [_layers(p, kind, d, w, s) for s in range(p.starts)]
    left = {depth: [_leaders_left(z[: depth + 1]) for z in runs] for depth in p.depths}
    return [st.Cell(kind=kind, d=d, depth=k, w=float(w), runs=of) for k, of in left.items()]


def _leaders_left(z: np.ndarray) -> st.Cell:
    """One run down to one depth: the share of the leaders of layer 0 that lead at the last one,
    leaders and clusters there, and how far the median and the farthest leader of layer 0 moved, as
    a share of its size."""
    first, last = (cy.Hardmax().followed(z[k]) for k in (0, -1))
    led = first.leads
    moved = np.linalg.norm(z[-1, led] - z[0, led], axis=1) / np.linalg.norm(z[0, led], axis=1)
    return st.Cell(
        still_lead=float(last.leads[led].mean()),
        leaders=int(last.leads.sum()),
        clusters=cy.clusters(z[-1], tol=0.01).count,
        moved=float(np.median(moved)),
        farthest=float(moved.max()),
    )


def _check(cells: list[st.Cell]) -> cy.theorems.Check:
    """Without the sublayer this is the theorem: leaders lead for ever and do not move."""
    plain = [run for c in cells if c.w == 0 and c.kind == KINDS[0] for run in c.runs]
    lost, moved = max(1 - run.still_lead for run in plain), max(run.farthest for run in plain)
    return st.at_most(
        "leaders stay",
        "arXiv 2407.01602; docs/mathematics.md B5",
        "without a sublayer, leaders of layer 0 lead at every layer and never move",
        max(lost, moved),
        1e-12,
        runs=len(plain),
        lost=lost,
        moved=moved,
    )


def _half(cells: list[st.Cell], kind: str, d: int, depth: int) -> float | None:
    """The least weight at which fewer than half of the first leaders lead at the end."""
    of = (c for c in cells if (c.kind, c.d, c.depth) == (kind, d, depth))
    return min((c.w for c in of if c.mean("runs.still_lead") < 0.5), default=None)


def _middle(p: Params) -> int:
    return sorted(p.depths)[len(p.depths) // 2]


def _controls(p: Params, cells: list[st.Cell]) -> list[st.Comparison]:
    of = {(c.kind, c.d, c.depth, c.w): c for c in cells}
    deep, most, small = max(p.depths), max(p.weights), min(w for w in p.weights if w > 0)
    loss, differ, told, fewer = [], [], [], []
    for d in p.d:
        halves = [[_half(cells, kind, d, k) for kind in KINDS] for k in p.depths]
        said = (f"{k} layers: {a} with, {b} without" for k, (a, b) in zip(p.depths, halves))
        loss.append(f"d = {d}: {', '.join(said)}")
        differ += [a is not None and a != b for a, b in halves]
        a, b = ([run.clusters for run in of[kind, d, deep, most].runs] for kind in KINDS)
        told.append(f"d = {d}: {st.told(a, 2)}, without attention {st.told(b, 2)}")
        fewer.append(st.resampled(np.subtract(a, b))[1] < 0)
    apart = [of[KINDS[0], d, _middle(p), small] for d in p.d]
    return [
        st.Comparison(
            "Together with attention a sublayer takes the lead from more than half of the leaders "
            "from some weight on.",
            f"no attention; depths {', '.join(map(str, p.depths))}",
            "least such weight: " + "; ".join(loss),
            all(differ),
        ),
        st.Comparison(
            f"Already w = {small:g} moves the leaders by half of their size.",
            f"the median leader instead of the farthest one, {_middle(p)} layers",
            "median, farthest (medians over the starts): "
            + "; ".join(
                f"d = {c.d}: {c.median('runs.moved'):.1%}, {c.median('runs.farthest'):.1%}"
                for c in apart
            ),
            all(c.median("runs.moved") >= 0.5 for c in apart),
        ),
        st.Comparison(
            f"With attention few clusters are left at w = {most:g}.",
            f"no attention, {deep} layers",
            "; ".join(told),
            all(fewer),
        ),
    ]


def _summary(p: Params, cells: list[st.Cell], controls: list[st.Comparison]) -> str:
    of = {(c.kind, c.d, c.depth, c.w): c for c in cells}
    deep, most, small = max(p.depths), max(p.weights), min(w for w in p.weights if w > 0)
    together, _, grouped = controls
    plain = [f"{of[KINDS[0], d, deep, 0.0].mean('runs.clusters'):.3g} (d = {d})" for d in p.d]
    moved = [f"{of[KINDS[0], d, _middle(p), small].median('runs.moved'):.1%}" for d in p.d]
    grouping = "Attention does that. " if grouped.survives else ""
    losing = "" if together.survives else ", which is the sublayer's doing and not attention's"
    return (
        f"A random ReLU sublayer of width {p.width} after each attention layer, {p.starts} starts. "
        f"Clusters left after {deep} layers: at w = 0 {', '.join(plain)}; at w = {most:g}, "
        f"{grouped.seen}. {grouping}The least weight at which fewer than half of the first leaders "
        f"lead at the end is, with and without attention{losing}, "
        f"{together.seen.removeprefix('least such weight: ')}. The smallest weight tried, "
        f"{small:g}, moves the median leader by "
        f"{', '.join(moved)} of its size in {_middle(p)} layers (d = {', '.join(map(str, p.d))})."
    )


def _curves(p: Params, cells: list[st.Cell]) -> Any:
    """Means over the starts, with a standard error, against w (0 is drawn at the left edge), filled
    with attention and open without it. Left: share of the leaders of layer 0 that lead at the
    largest depth. Middle: clusters there. Right: the same by depth, in the first of the dimensions.
    """
    figure, axes = cy.plot.sheet(1, 3, height=3.6)
    deep, first = max(p.depths), p.d[0]

    def draw(ax: Any, some: list[st.Cell], name: str, by: str, label: str) -> None:
        def ends(c: st.Cell) -> tuple[float, float]:
            error = float(np.std(c.finite(f"runs.{name}")) / np.sqrt(p.starts))
            return c.mean(f"runs.{name}") - error, c.mean(f"runs.{name}") + error

        for kind, style, face in zip(KINDS, ("-", ":"), ({}, {"mfc": "white"})):
            of = [c for c in some if c.kind == kind]
            named = label if kind == KINDS[0] else ""
            mean = partial(st.Cell.mean, name=f"runs.{name}")
            st.curves(ax, of, "w", mean, by, ends=ends, style=style, label=named, **face)

    deepest, by_depth = [c for c in cells if c.depth == deep], [c for c in cells if c.d == first]
    draw(axes[0, 0], deepest, "still_lead", "d", "d = {}")
    draw(axes[0, 1], deepest, "clusters", "d", "")
    draw(axes[0, 2], by_depth, "still_lead", "depth", "{} layers")
    least = min(w for w in p.weights if w > 0)
    labels = (f"first leaders that lead at layer {deep}", f"clusters at layer {deep}")
    for ax, label in zip(axes[0], (*labels, f"first leaders that still lead, d = {first}")):
        ax.set_xscale("symlog", linthresh=least)
        ax.set_xticks([0, *(t for t in (0.01, 0.1, 1.0) if t >= least)])
        ax.set(xlabel="weight w of the sublayer", ylabel=label)
        ax.set_ylim(bottom=0)
    for ax in axes[0, ::2]:
        ax.legend(frameon=False, fontsize=cy.plot.LABEL)
    return figure
