"""A feed-forward sublayer between hardmax layers: what remains of leaders and clusters.

    z <- attention layer,   then   z_i <- z_i + w W2 relu(W1 z_i)

W1, W2 are random and fixed, without biases, so the layer is positively homogeneous like hardmax
itself and sizes may be divided out. The theory of arXiv 2407.01602 is the case w = 0. See: leaders
do not stand still any more and lose their lead as w and the depth grow, but the sublayer does that
to tokens without any attention as well: who leads at the end is its doing, not that of the two
together. What attention does is to keep the tokens of a cluster together: without it they stay
apart under any w.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._frame import Progress, at_most, over_grid, part, report_of, resampled

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "A feed-forward sublayer: what remains of leaders and clusters"
KINDS = ("with attention", "without")


@dataclass(frozen=True)
class Params:
    """Weights w of the sublayer, its width, Gaussian starts of n tokens, depths in layers."""

    weights: tuple[float, ...] = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
    shown: tuple[float, ...] = (0.0, 0.1, 0.5, 2.0)
    width: int = 32
    n: int = 40
    d: tuple[int, ...] = (2, 4, 8)
    alpha: float = 1.0
    starts: int = 40
    depths: tuple[int, ...] = (4, 16, 32)
    seed: int = 0


QUICK = Params(
    weights=(0.0, 0.05, 0.2, 1.0), d=(2, 4), starts=6, depths=(4, 16), shown=(0.0, 0.2, 1.0)
)


class LeadersLeft(NamedTuple):
    """One run down to one depth."""

    still_lead: float  # share of the leaders of layer 0 that lead at the last layer
    leaders: int  # at the last layer
    clusters: int  # at the last layer, in units of the longest token there
    moved: float  # how far the median leader of layer 0 turned or grew, share of its size
    farthest: float  # the same of the one that moved most


class Weight(NamedTuple):
    """The runs from all starts of R^d under a sublayer of weight w."""

    kind: str  # of KINDS
    d: int
    depth: int
    w: float
    runs: list[LeadersLeft]

    def values(self, name: str) -> list[float | int]:
        return [getattr(run, name) for run in self.runs]

    def mean(self, name: str) -> float:
        return float(np.mean(self.values(name)))

    def told(self, name: str) -> str:
        low, high = resampled(self.values(name))
        return f"{self.mean(name):.2g} (95 %: {low:.2g} to {high:.2g})"


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """All weights on the same starts, with attention and without."""
    if min(*p.depths, p.starts, p.n, p.width, *p.d) < 1 or 0.0 not in p.weights:
        raise ValueError(
            "feed_forward: depths and sizes >= 1, and 0 among the weights, to compare with the "
            f"theory; got {p}"
        )
    axes = {"kind": KINDS, "d": p.d, "w": p.weights}
    cells = [c for of in over_grid(_weight, p, axes, part(progress, 0, 0.9)) for c in of]
    columns: dict[str, Any] = {
        **{"attention": "kind", "d": "d", "layers": "depth", "w": "w"},
        "first leaders that lead": lambda c: c.mean("still_lead"),
        "leaders at the end": lambda c: c.mean("leaders"),
        "clusters": lambda c: c.mean("clusters"),
        "median leader moved by": lambda c: float(np.median(c.values("moved"))),
        "farthest leader moved by": lambda c: float(np.median(c.values("farthest"))),
    }
    note = (
        "Means over the starts; moved by: medians over the starts, of the median and of the "
        "farthest leader of layer 0, after division by the longest token. Without attention "
        "clusters are told apart at the same hundredth of the longest token."
    )
    title, controls = "With a feed-forward sublayer of weight w", _controls(p, cells)
    return report_of(
        __name__,
        p,
        _summary(p, cells, controls),
        controls=controls,
        tables=[cy.Table.of(title, cells, columns, note)],
        checks={"w = 0": [_check(cells)]},
        figures=[
            cy.Picture("Against the weight of the sublayer", _CURVES, _curves(p, cells)),
            cy.Picture("One start under several weights", _PANELS, _panels(p)),
        ],
    )


_CURVES = (
    "Means over the starts, with a standard error, against w (0 is drawn at the left edge), "
    "filled with attention and open without it. Left: share of the leaders of layer 0 that lead "
    "at the largest depth. Middle: clusters there. Right: the same by depth, in the first of the "
    "dimensions."
)
_PANELS = (
    "Tokens at the middle depth, divided by the longest; stars lead there, open circles are the "
    "start. Lines are the paths, also divided by the longest token of each layer."
)


def _sublayer(p: Params, d: int, w: float | int, s: int) -> cy.FeedForward:
    rng = np.random.default_rng([p.seed, d, s])
    W1 = rng.standard_normal((p.width, d)) / np.sqrt(d)
    W2 = rng.standard_normal((d, p.width)) / np.sqrt(p.width)
    return cy.FeedForward(W1, W2, w)


def _layers(p: Params, kind: str, d: int, w: float | int, s: int) -> np.ndarray:
    """The tokens before each pair of sublayers, (largest depth + 1, n, d), longest token 1."""
    z0, sublayer = cy.configurations.gaussian(p.n, d, p.seed + s), _sublayer(p, d, w, s)
    sublayers = (cy.PureAttention(alpha=p.alpha), sublayer) if kind == KINDS[0] else (sublayer,)
    steps = len(sublayers)
    dynamics = cy.Scheduled(sublayers)
    tr = cy.simulate(dynamics, z0, layers=steps * max(p.depths), save_every=steps, throw=False)
    return tr.values / np.linalg.norm(tr.values, axis=-1).max(axis=1)[:, None, None]


def _weight(p: Params, kind: str, d: int, w: float | int) -> list[Weight]:
    """One cell per depth: a deep run passes through the shallow ones."""
    runs = [_layers(p, kind, d, w, s) for s in range(p.starts)]
    return [
        Weight(kind, d, depth, float(w), [_leaders_left(z[: depth + 1]) for z in runs])
        for depth in p.depths
    ]


def _leaders_left(z: np.ndarray) -> LeadersLeft:
    first, last = (cy.Hardmax().followed(z[k]) for k in (0, -1))
    led = first.leads
    moved = np.linalg.norm(z[-1, led] - z[0, led], axis=1) / np.linalg.norm(z[0, led], axis=1)
    return LeadersLeft(
        still_lead=float(last.leads[led].mean()),
        leaders=int(last.leads.sum()),
        clusters=cy.clusters(z[-1], tol=0.01).count,
        moved=float(np.median(moved)),
        farthest=float(moved.max()),
    )


def _check(cells: list[Weight]) -> cy.Check:
    """Without the sublayer this is the theorem: leaders lead for ever and do not move."""
    plain = [run for c in cells if c.w == 0 and c.kind == KINDS[0] for run in c.runs]
    lost, moved = max(1 - run.still_lead for run in plain), max(run.farthest for run in plain)
    return at_most(
        "leaders stay",
        "arXiv 2407.01602; docs/mathematics.md B5",
        "without a sublayer, leaders of layer 0 lead at every layer and never move",
        max(lost, moved),
        1e-12,
        runs=len(plain),
        lost=lost,
        moved=moved,
    )


def _half(cells: list[Weight], kind: str, d: int, depth: int) -> float | None:
    """The least weight at which fewer than half of the first leaders lead at the end."""
    of = (c for c in cells if (c.kind, c.d, c.depth) == (kind, d, depth))
    return min((c.w for c in of if c.mean("still_lead") < 0.5), default=None)


def _difference(a: Weight, b: Weight, name: str) -> tuple[float, float]:
    """95 % interval of the mean difference of two cells on the same starts."""
    return resampled(np.subtract(a.values(name), b.values(name)))


def _middle(p: Params) -> int:
    return sorted(p.depths)[len(p.depths) // 2]


def _moved(c: Weight, name: str = "moved") -> str:
    return f"{np.median(c.values(name)):.1%}"


def _controls(p: Params, cells: list[Weight]) -> list[cy.Comparison]:
    of = {(c.kind, c.d, c.depth, c.w): c for c in cells}
    deep, most = max(p.depths), max(p.weights)
    loss, differ, group, apart = [], [], [], []
    for d in p.d:
        thresholds = [[_half(cells, kind, d, k) for kind in KINDS] for k in p.depths]
        said = ", ".join(
            f"{k} layers: {a} with, {b} without" for k, (a, b) in zip(p.depths, thresholds)
        )
        loss.append(f"d = {d}: {said}")
        differ += [a is not None and a != b for a, b in thresholds]
        w = min(x for x in p.weights if x > 0)
        apart.append((d, of[KINDS[0], d, _middle(p), w]))
        a, b = (of[kind, d, deep, most] for kind in KINDS)
        group.append((d, a, b, _difference(a, b, "clusters")))
    return [
        cy.Comparison(
            "Together with attention a sublayer takes the lead from more than half of the leaders "
            "from some weight on.",
            f"no attention; depths {', '.join(map(str, p.depths))}",
            "least such weight: " + "; ".join(loss),
            all(differ),
        ),
        cy.Comparison(
            f"Already w = {apart[0][1].w:g} moves the leaders by half of their size.",
            f"the median leader instead of the farthest one, {_middle(p)} layers",
            "median, farthest (medians over the starts): "
            + "; ".join(f"d = {d}: {_moved(c)}, {_moved(c, 'farthest')}" for d, c in apart),
            all(float(np.median(c.values("moved"))) >= 0.5 for _, c in apart),
        ),
        cy.Comparison(
            f"With attention few clusters are left at w = {most:g}.",
            f"no attention, {deep} layers",
            "; ".join(
                f"d = {d}: {a.told('clusters')}, without {b.told('clusters')}"
                for d, a, b, _ in group
            ),
            all(high < 0 for *_, (_, high) in group),
        ),
    ]


def _summary(p: Params, cells: list[Weight], controls: list[cy.Comparison]) -> str:
    of = {(c.kind, c.d, c.depth, c.w): c for c in cells}
    deep, most, small = max(p.depths), max(p.weights), min(w for w in p.weights if w > 0)
    together, _, grouped = controls
    parts = []
    for d in p.d:
        a, b = (of[kind, d, deep, most].told("clusters") for kind in KINDS)
        plain = of[KINDS[0], d, deep, 0.0].mean("clusters")
        parts.append(f"d = {d}: {plain:.3g} at w = 0, {a} at w = {most:g}, {b} without attention")
    lost = []
    for k in p.depths:
        with_it, without = (_half(cells, kind, p.d[0], k) for kind in KINDS)
        lost.append(f"{with_it} ({without} without attention) after {k} layers")
    moved = [_moved(of[KINDS[0], d, _middle(p), small]) for d in p.d]
    grouping = "Attention does that. " if grouped.survives else ""
    losing = "" if together.survives else ", which is the sublayer's doing and not attention's"
    return (
        f"A random ReLU sublayer of width {p.width} after each attention layer, {p.starts} starts. "
        f"Clusters left after {deep} layers: {'; '.join(parts)}. {grouping}The least weight at "
        f"which fewer than half of the first leaders lead at the end is {', '.join(lost)} (d = "
        f"{p.d[0]}){losing}. The smallest weight tried, {small:g}, moves the median leader by "
        f"{', '.join(moved)} of its size in {_middle(p)} layers (d = {', '.join(map(str, p.d))})."
    )


def _curves(p: Params, cells: list[Weight]) -> Any:
    from matplotlib.lines import Line2D

    figure, axes = cy.plot.sheet(1, 3, height=3.6)
    left, middle, right = axes[0]
    deep = max(p.depths)

    def draw(ax: Any, name: str, d: int, depth: int, colour: str, label: str) -> None:
        for kind in KINDS:
            of = [c for c in cells if (c.kind, c.d, c.depth) == (kind, d, depth)]
            filled = kind == KINDS[0]
            mean = [c.mean(name) for c in of]
            error = [np.std(c.values(name)) / np.sqrt(p.starts) for c in of]
            look = {"color": colour, "ms": 4, "capsize": 2, "lw": 1}
            fmt, face = ("o-", colour) if filled else ("o:", "white")
            ax.errorbar(
                p.weights, mean, error, fmt=fmt, mfc=face, label=label if filled else None, **look
            )

    for colour, d in zip(cy.plot.PALETTE, p.d):
        draw(left, "still_lead", d, deep, colour, f"d = {d}")
        draw(middle, "clusters", d, deep, colour, f"d = {d}")
    for colour, depth in zip(cy.plot.PALETTE[len(p.d) :], p.depths):
        draw(right, "still_lead", p.d[0], depth, colour, f"{depth} layers")
    least = min(w for w in p.weights if w > 0)
    labels = (f"first leaders that lead at layer {deep}", f"clusters at layer {deep}")
    for ax, label in zip(axes[0], (*labels, f"first leaders that still lead, d = {p.d[0]}")):
        ax.set_xscale("symlog", linthresh=least)
        ax.set_xticks([0, *(t for t in (0.01, 0.1, 1.0) if t >= least)])
        ax.set(xlabel="weight w of the sublayer", ylabel=label)
        ax.set_ylim(bottom=0)
    for ax in (left, right):
        ax.legend(frameon=False, fontsize=cy.plot.LABEL)
    ink = cy.plot.INK
    look: dict[str, Any] = {"marker": "o", "ms": 4, "lw": 1}
    key = [
        Line2D([], [], color=ink, ls="-", label=KINDS[0], **look),
        Line2D([], [], color=ink, ls=":", mfc="white", label=KINDS[1], **look),
    ]
    figure.legend(handles=key, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _panels(p: Params) -> Any:
    figure, axes = cy.plot.sheet(1, len(p.shown), width=3.4, height=3.9)
    start, end = cy.plot.PALETTE[:2]
    depth = _middle(p)
    for ax, w in zip(axes[0], p.shown):
        z = _layers(p, KINDS[0], 2, w, 0)[: depth + 1]
        leads = cy.Hardmax().followed(z[-1]).leads
        ax.plot(z[..., 0], z[..., 1], color=cy.plot.GREY, lw=0.5, zorder=1)
        ax.plot(*z[0].T, "o", mfc="none", mec=start, ms=4, label="start")
        ax.plot(*z[-1, ~leads].T, "o", color=end, ms=4, label="end, follows")
        ax.plot(*z[-1, leads].T, "*", color=end, ms=13, label="end, leads")
        ax.set(aspect="equal", title=f"w = {w:g}", xlabel="$z_1$", xlim=(-1.1, 1.1))
        ax.set_ylim(-1.1, 1.1)
    axes[0, 0].set_ylabel("$z_2$")
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, frameon=False)
    return figure
