"""Figure 4 of arXiv 2407.01602: tokens enter the delta-neighbourhood of S, layer by layer.

S = {s in K, s != 0 : max over y in K of <As, y> = |s|_A^2} holds the possible limits, finitely many
(docs/mathematics.md B4). The proof that tokens converge has two steps, and this is the first: for
every delta > 0 there is a layer k(delta) from which on all tokens are within delta of S. The second
is Figure 5: if delta is small enough, a token near a vertex of K then follows only tokens near that
vertex, and never leaves.

See K, the points of S with their delta-balls, where delta is the largest that the second step
allows for every vertex (`figure5` derives it), and the tokens, white outside and in the colour of
their ball inside. The sweep then looks for a token that leaves: at that delta, and at smaller and
larger ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .. import study
from ._separation import PossibleLimits, possible_limits

TITLE = "Figure 4: tokens enter the neighbourhood of S"
ALIASES = "2407.01602/figure4"


@dataclass(frozen=True)
class Params:
    """The run drawn (n Gaussian tokens, alpha); the sweep over alpha and shares of the delta."""

    n: int = 20
    seed: int = 7
    alpha: float = 0.25
    show: tuple[int, ...] = (0, 1, 3, 6, 15)
    layers: int = 40
    alphas: tuple[float, ...] = (0.1, 0.5, 2.0)
    shares: tuple[float, ...] = (0.25, 1.0, 2.0, 4.0, 8.0)
    starts: int = 100
    depth: int = 300  # layers of the sweep


QUICK = Params(alphas=(0.5,), starts=8, depth=120)


class Entries(NamedTuple):
    """All starts of one alpha and one share of the largest delta."""

    alpha: float
    share: float  # delta, as a share of the largest that separates
    entered: list[int]  # k(delta) of the runs that have all tokens inside at the end
    runs: int
    stays: int  # (token, layer) pairs from k(delta) on, the token within delta of a vertex
    leaves: int  # of them: not within delta of it one layer later


def run(p: Params, progress: study.Progress | None = None) -> study.Report:
    """The run drawn, and the sweep."""
    sensible = p.n >= 4 and p.starts >= 1 and p.layers >= 1 and min(p.shares) > 0
    study.require(sensible and min(p.show) >= 0, "n >= 4, starts and layers >= 1, shares > 0", p)
    dynamics = cy.PureAttention(alpha=p.alpha)
    z0 = cy.configurations.gaussian(p.n, 2, p.seed)
    places = possible_limits(dynamics, z0)
    tr = cy.simulate(dynamics, z0, layers=max(p.layers, *p.show))
    by_alpha = study.over_grid(_entries, p, {"alpha": p.alphas}, study.part(progress, 0.1, 1))
    cells = [cell for group in by_alpha for cell in group]
    within = [c for c in cells if c.share <= 1]
    check = study.all_of(
        "neighbourhood",
        "arXiv 2407.01602, proof of Theorem 1.1",
        "once all tokens are within delta of S, delta at most the largest one, a token within "
        "delta of a vertex of K stays so",
        sum(c.stays - c.leaves for c in within),
        sum(c.stays for c in within),
    )
    return study.report_of(
        p,
        _summary(p, tr, places, within),
        controls=_controls(cells),
        tables=[_layers_table(p, tr, places), _sweep_table(cells)],
        checks={"sweep": [check]},
        figures=[
            study.Picture.of("Figure 4", _panels, p, tr, places),
            study.Picture.of("Tokens still outside", _curves, p, tr, places),
        ],
    )


def _distances(z: np.ndarray, points: np.ndarray) -> np.ndarray:
    """|z - s| for tokens (..., n, d) and points (m, d): (..., n, m)."""
    return np.linalg.norm(z[..., None, :] - points, axis=-1)


def _entry(inside: np.ndarray) -> int:
    """First layer from which on all tokens are inside, (layers, n); -1 where there is none."""
    outside = np.flatnonzero(~inside.all(axis=1))
    first = int(outside[-1]) + 1 if len(outside) else 0
    return first if first < len(inside) else -1


def _entries(p: Params, alpha: float) -> list[Entries]:
    """Every share of the largest delta, on the same runs."""
    dynamics = cy.PureAttention(alpha=alpha)
    cells = [Entries(alpha, share, [], p.starts, 0, 0) for share in p.shares]
    for seed in range(p.starts):
        z0 = cy.configurations.gaussian(p.n, 2, seed)
        places = possible_limits(dynamics, z0)
        gaps = _distances(cy.simulate(dynamics, z0, layers=p.depth).values, places.points)
        cells = [_with(cell, gaps, cell.share * places.delta, places.vertex) for cell in cells]
    return cells


def _with(cell: Entries, gaps: np.ndarray, delta: float, vertex: np.ndarray) -> Entries:
    """One run more, given the distances of its tokens from the points of S, (layers, n, m).

    A token *at* a vertex leads and cannot move: it does not count.
    """
    near = gaps <= delta
    k = _entry(np.any(near, axis=2))
    if k < 0:
        return cell
    now = (near & (gaps > 0))[k:-1][..., vertex]
    leaves = int((now & ~near[k + 1 :][..., vertex]).sum())
    stays = cell.stays + int(now.sum())
    return cell._replace(entered=[*cell.entered, k], stays=stays, leaves=cell.leaves + leaves)


def _summary(p: Params, tr: cy.Trajectory, places: PossibleLimits, within: list[Entries]) -> str:
    feet = int((~places.vertex).sum())
    gaps = _distances(tr.values, places.points).min(axis=2)
    k = _entry(gaps <= places.delta)
    first = int((gaps[0] <= places.delta).sum())
    reached = f"from layer {k} on all of them are" if k >= 0 else "not all of them are at the end"
    leaves = sum(c.leaves for c in within)
    return (
        f"{p.n} Gaussian tokens, alpha = {p.alpha:g}: K has {int(places.vertex.sum())} vertices, "
        f"S has {feet} more points. The largest delta that separates every vertex from the "
        f"rest of S is {places.delta:.4f}. {first} tokens start within it; {reached}.\n\n"
        f"Gaussian starts, alpha {_range(p.alphas)}, delta at most the largest: {leaves} of "
        f"{sum(c.stays for c in within)} steps leave the ball of a vertex once all tokens are in "
        "the neighbourhood of S, as the proof says."
    )


def _range(values: tuple[float, ...]) -> str:
    return f"{min(values):g} to {max(values):g}" if len(values) > 1 else f"{values[0]:g}"


def _controls(cells: list[Entries]) -> list[study.Comparison]:
    within, beyond = ([c for c in cells if (c.share <= 1) is side] for side in (True, False))

    def told(cells: list[Entries], by: str, words: str) -> str:
        groups = sorted(study.grouped(cells, by).items())
        sums = [(key, sum(c.leaves for c in of), sum(c.stays for c in of)) for key, of in groups]
        return "; ".join(f"{words.format(key)}: {leave} of {stay}" for key, leave, stay in sums)

    never, by_alpha = all(c.leaves == 0 for c in within), told(within, "alpha", "alpha {:g}")
    claim = "Once all tokens are within delta of S, no token leaves the ball of a vertex."
    return [
        study.Comparison(claim, "alpha, which it does not mention", by_alpha, survives=never),
        study.Comparison(
            f"{claim} That is a property of small delta.",
            "larger deltas, of which the lemma says nothing",
            told(beyond, "share", "{:g} times the largest"),
            survives=never and any(c.leaves for c in beyond),
        ),
    ]


def _layers_table(p: Params, tr: cy.Trajectory, places: PossibleLimits) -> study.Table:
    gaps = _distances(tr.values, places.points).min(axis=2)
    rows = tuple(
        (k, int((gaps[k] <= places.delta).sum()), float(gaps[k].max() / places.delta))
        for k in p.show
    )
    columns = ("layer", f"of {p.n} tokens within delta", "farthest from S, in deltas")
    return study.Table("The layers of Figure 4", columns, rows)


def _sweep_table(cells: list[Entries]) -> study.Table:
    columns = study.columns("alpha, delta / largest = share") | {
        "runs inside at the end": lambda c: f"{len(c.entered)}/{c.runs}",
        "median k(delta)": lambda c: float(np.median(c.entered)) if c.entered else None,
        "largest k(delta)": lambda c: max(c.entered, default=None),
    }
    columns |= study.columns("steps near a vertex = stays, leave = leaves")
    note = (
        "A step is a token and a layer, from k(delta) on, at which it is within delta of a vertex "
        "of K and not at it; it leaves if it is not one layer later. `delta / largest` above 1 is "
        "outside the lemma."
    )
    return study.Table.of("Does a token leave?", cells, columns, note)


def _panels(p: Params, tr: cy.Trajectory, places: PossibleLimits) -> Any:
    """Shaded: K. Stars: its vertices, which lead. Diamonds: the other points of S, feet of 0 on its
    edges. Circles around them: radius delta, the largest for which Figure 5 holds at every vertex.
    Dots: tokens, in the colour of the ball they are in, white outside all of them.
    """
    figure, axes = cy.plot.sheet(1, len(p.show), 3.1, 3.3)
    colours = np.array(cy.plot.PALETTE)
    everything = np.concatenate([tr.values[0], places.points])
    low, high = everything.min(axis=0) - 1.3 * places.delta, everything.max(axis=0)
    half = 0.53 * float((high + 1.3 * places.delta - low).max())
    middle = (low + high + 1.3 * places.delta) / 2
    for ax, k in zip(axes[0], p.show):
        z = tr.values[k]
        gaps = _distances(z, places.points)
        inside = gaps.min(axis=1) <= places.delta
        cy.plot.shade(ax, places.limit.polytope)
        neighbourhood(ax, places.points, places.vertex, places.delta)
        ball = colours[gaps.argmin(axis=1) % len(colours)]
        fill = np.where(inside, ball, "white")
        ax.scatter(*z.T, s=26, c=fill, edgecolors=cy.plot.INK, linewidths=0.8, zorder=4)
        ax.set_title(f"k = {k}: {int(inside.sum())} of {len(z)} inside", fontsize=cy.plot.TITLE)
        ax.plot([0], [0], "+", color=cy.plot.GREY)
        ax.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half))
        ax.set(aspect="equal", xlabel="$z_1$")
        ax.grid(False)
    axes[0, 0].set_ylabel("$z_2$")
    return figure


def neighbourhood(ax: Any, points: np.ndarray, vertex: np.ndarray, delta: float) -> None:
    """The points of S in the plane (A = I), vertices as stars, each with its ball."""
    from matplotlib.patches import Circle

    for j, (s, leads) in enumerate(zip(points, vertex)):
        colour = cy.plot.PALETTE[j % len(cy.plot.PALETTE)]
        ball = Circle(tuple(s), delta, fc=(colour, 0.22), ec=colour, lw=1.0, zorder=2)
        ball.set_gid("ball")
        ax.add_patch(ball)
        look = {"ms": 11 if leads else 5, "color": colour, "mec": cy.plot.INK, "mew": 0.5}
        ax.plot(*s, "*" if leads else "D", zorder=5, **look)


def _curves(p: Params, tr: cy.Trajectory, places: PossibleLimits) -> Any:
    """Tokens farther than delta from S, by layer, for the delta of Figure 4 and shares of it: each
    curve ends at 0, where k(delta) is.
    """
    from matplotlib.ticker import MaxNLocator

    figure, axes = cy.plot.sheet(1, 1, 6, 3.6)
    ax = axes[0, 0]
    gaps = _distances(tr.values, places.points).min(axis=2)
    for colour, share in zip(cy.plot.PALETTE, (1.0, 0.25, 0.05, 0.01)):
        outside = (gaps > share * places.delta).sum(axis=1)
        label = rf"$\delta$ = {share * places.delta:.3g}"
        ax.step(tr.t, outside, where="post", color=colour, lw=1.6, label=label)
    ax.set(xlabel="layer k", ylabel="tokens farther than $\\delta$ from S", ylim=(-0.5, p.n))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(frameon=False, fontsize=cy.plot.LABEL)
    return figure
