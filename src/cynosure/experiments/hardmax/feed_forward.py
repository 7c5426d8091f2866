"""A feed-forward sublayer between hardmax layers: what remains of leaders and clusters.

    z <- attention layer,   then   z_i <- z_i + w W2 relu(W1 z_i)

W1, W2 are random and fixed, without biases, so the layer is positively homogeneous like hardmax
itself and sizes may be divided out. The theory of arXiv 2407.01602 is the case w = 0. See: for
small w clusters survive (all tokens of a cluster move together) while leaders do not stand still
any more; as w grows the leaders of layer 0 lose their lead, and in the end the sublayer decides
where tokens go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._frame import Progress, at_most, over_grid, part, report_of

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "A feed-forward sublayer: what remains of leaders and clusters"


@dataclass(frozen=True)
class Params:
    """Weights w of the sublayer, its width, Gaussian starts of n tokens, attention layers."""

    weights: tuple[float, ...] = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0)
    shown: tuple[float, ...] = (0.0, 0.1, 0.5, 2.0)
    width: int = 32
    n: int = 40
    d: tuple[int, ...] = (2, 4, 8)
    alpha: float = 1.0
    starts: int = 30
    layers: int = 16
    seed: int = 0


QUICK = Params(weights=(0.0, 0.05, 0.2, 0.5, 1.0), d=(2, 4), starts=5, shown=(0.0, 0.2, 1.0))


class LeadersLeft(NamedTuple):
    """One run, read off its attention layers."""

    still_lead: float  # share of the leaders of layer 0 that lead at the last layer
    leaders: int  # at the last layer
    clusters: int  # at the last layer, in units of the longest token there
    moved: float  # how far a leader of layer 0 turned or grew, share of its size
    unchanged: float  # share of the tokens with the same C_i in the last two layers


class Weight(NamedTuple):
    """The runs from all starts of R^d under a sublayer of weight w."""

    d: int
    w: float
    runs: list[LeadersLeft]

    def values(self, name: str) -> list[float | int]:
        return [getattr(run, name) for run in self.runs]

    def mean(self, name: str) -> float:
        return float(np.mean(self.values(name)))


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """All weights on the same starts."""
    if p.layers < 2 or min(p.starts, p.n, p.width, *p.d) < 1 or 0.0 not in p.weights:
        raise ValueError(
            "feed_forward: layers >= 2, sizes >= 1, and 0 among the weights, to compare with the "
            f"theory; got {p}"
        )
    cells = over_grid(_weight, p, {"d": p.d, "w": p.weights}, part(progress, 0, 0.9))
    columns: dict[str, Any] = {
        "d": "d",
        "w": "w",
        "leaders kept": lambda c: c.mean("still_lead"),
        "leaders at the end": lambda c: c.mean("leaders"),
        "clusters": lambda c: c.mean("clusters"),
        "leaders moved by": lambda c: c.mean("moved"),
        "unchanged sets": lambda c: c.mean("unchanged"),
    }
    note = "Means; moved by: the farthest leader of layer 0, after division by the longest token."
    title = "With a feed-forward sublayer of weight w"
    return report_of(
        __name__,
        p,
        _summary(p, cells),
        tables=[cy.Table.of(title, cells, columns, note)],
        checks={"w = 0": [_check(cells)]},
        figures=[
            cy.Picture("Against the weight of the sublayer", _CURVES, _curves(p, cells)),
            cy.Picture("One start under several weights", _PANELS, _panels(p)),
        ],
    )


_CURVES = (
    "Means over the starts, with a standard error, against w (0 is drawn at the left edge). "
    "Left: share of the leaders of layer 0 that lead at the last layer. Middle: clusters at the "
    "last layer. Right: share of the tokens whose sets C_i did not change in the last layer."
)
_PANELS = (
    "Tokens at the last layer, divided by the longest; stars lead there, open circles are the "
    "start. Lines are the paths, also divided by the longest token of each layer."
)


def _dynamics(p: Params, d: int, w: float, s: int) -> cy.Scheduled:
    rng = np.random.default_rng([p.seed, d, s])
    W1 = rng.standard_normal((p.width, d)) / np.sqrt(d)
    W2 = rng.standard_normal((d, p.width)) / np.sqrt(p.width)
    return cy.Scheduled((cy.PureAttention(alpha=p.alpha), cy.FeedForward(W1, W2, w)))


def _layers(p: Params, d: int, w: float, s: int) -> np.ndarray:
    """The tokens that each attention layer sees, (layers + 1, n, d), longest token 1."""
    z0 = cy.configurations.gaussian(p.n, d, p.seed + s)
    dynamics = _dynamics(p, d, w, s)
    z = cy.simulate(dynamics, z0, layers=2 * p.layers, save_every=2, throw=False).values
    return z / np.linalg.norm(z, axis=-1).max(axis=1)[:, None, None]


def _weight(p: Params, d: int, w: float) -> Weight:
    return Weight(d, w, [_leaders_left(_layers(p, d, w, s)) for s in range(p.starts)])


def _leaders_left(z: np.ndarray) -> LeadersLeft:
    first, before, last = (cy.Hardmax().followed(z[k]) for k in (0, -2, -1))
    same = [np.array_equal(before[i], last[i]) for i in range(len(z[0]))]
    led = first.leads
    moved = np.linalg.norm(z[-1, led] - z[0, led], axis=1) / np.linalg.norm(z[0, led], axis=1)
    return LeadersLeft(
        float(last.leads[led].mean()),
        int(last.leads.sum()),
        cy.clusters(z[-1], tol=0.01).count,
        float(moved.max()),
        float(np.mean(same)),
    )


def _check(cells: list[Weight]) -> cy.Check:
    """Without the sublayer this is the theorem: leaders lead for ever and do not move."""
    plain = [run for c in cells if c.w == 0 for run in c.runs]
    lost, moved = max(1 - run.still_lead for run in plain), max(run.moved for run in plain)
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


def _summary(p: Params, cells: list[Weight]) -> str:
    parts = []
    for d in p.d:
        of = {c.w: c for c in cells if c.d == d}
        half = [w for w, c in of.items() if c.mean("still_lead") < 0.5]
        parts.append(
            f"for d = {d} fewer than half of the first leaders lead at the end "
            + (f"from w = {min(half):g} on" if half else "at no weight tried")
            + f", and clusters go from {of[0.0].mean('clusters'):.3g} to "
            f"{of[max(p.weights)].mean('clusters'):.3g} (w = {max(p.weights):g})"
        )
    small = min(w for w in p.weights if w > 0)
    lead = np.mean([c.mean("still_lead") for c in cells if c.w == small])
    moved = np.mean([c.mean("moved") for c in cells if c.w == small])
    return (
        f"{p.layers} attention layers with a random ReLU sublayer of width {p.width}: "
        + "; ".join(parts)
        + f". Already w = {small:g} moves the leaders, by {moved:.1%} of their size, while "
        f"{lead:.0%} of them keep the lead."
    )


def _curves(p: Params, cells: list[Weight]) -> Any:
    figure, axes = cy.plot.sheet(1, 3, height=3.6)
    least = min(w for w in p.weights if w > 0)
    names = {
        "still_lead": "first leaders that still lead",
        "clusters": "clusters",
        "unchanged": "tokens with an unchanged set $C_i$",
    }
    for ax, (name, label) in zip(axes[0], names.items()):
        for colour, d in zip(cy.plot.PALETTE, p.d):
            samples = [c.values(name) for c in cells if c.d == d]
            cy.plot.means(ax, p.weights, samples, color=colour, label=f"d = {d}")
        ax.set_xscale("symlog", linthresh=least)
        ax.set_xticks([0, *(t for t in (0.01, 0.1, 1.0) if t >= least)])
        ax.set(xlabel="weight w of the sublayer", ylabel=label)
        if name != "unchanged":  # nearly all of them: its own range
            ax.set_ylim(bottom=0)
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=len(p.d), frameon=False)
    return figure


def _panels(p: Params) -> Any:
    figure, axes = cy.plot.sheet(1, len(p.shown), width=3.4, height=3.9)
    start, end = cy.plot.PALETTE[:2]
    for ax, w in zip(axes[0], p.shown):
        z = _layers(p, 2, w, 0)
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
