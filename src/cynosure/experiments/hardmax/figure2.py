"""Figure 2 of arXiv 2407.01602: four small configurations over thirty layers, and their limits.

See in each row: stars (leaders) never move; every other token walks to a leader, or, in the last
row, to the middle of an edge that two leaders span, because it ties between them for ever; in the
second row a token that follows at first becomes a leader at layer 1. The last panel's polytope has
the leaders as its vertices. Beside the picture: each token's limit with the rule that proves it,
and every theorem check on the very trajectories drawn.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

import numpy as np

from ...analysis.leaders import roles
from ...analysis.limits import Limit, limit
from ...drawing.report import Picture, Report, Table
from ...dynamics import PureAttention
from ...simulation import configurations
from ...simulation.loop import simulate
from ...simulation.trajectory import Trajectory
from ...theorems import check
from .._frame import Progress

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Figure 2: leaders, followers and the limiting polytope"
CASES = {
    1: "1 · triangular polytope",
    2: "2 · emerging leader",
    3: "3 · square polytope",
    4: "4 · clusters without a leader",
}


@final
@dataclass(frozen=True)
class Params:
    """The paper's values; rows 1, 3 and 4 hold seeded random tokens, row 2 none."""

    alpha: float | str = 0.5
    layers: int = 30
    show: tuple[int, ...] = (0, 1, 2, 5, 30)
    seed: int = 0
    movie_case: int = 2
    movie_layers: int = 12


QUICK = Params(movie_layers=4)


def run(p: Params, progress: Progress | None = None) -> Report:
    """Simulate, prove, check, draw and animate the four cases."""

    def say(share: float, what: str) -> None:
        if progress is not None:
            progress(share, what)

    if p.movie_case not in CASES:
        raise ValueError(f"movie_case: expected one of {list(CASES)}, got {p.movie_case}")
    dynamics = PureAttention(alpha=p.alpha)
    runs, limits, checks = {}, {}, {}
    for case, name in CASES.items():
        say(0.1 * (case - 1), f"case {case}")
        z0 = configurations.figure2(case, p.seed)
        runs[case] = simulate(dynamics, z0, layers=p.layers)
        limits[case] = limit(dynamics, z0)
        checks[name] = tuple(check(runs[case]))
    say(0.4, "figures")
    figures = _figures(p, runs, limits)
    say(0.7, "movie")
    movie = _movie(p, dynamics)
    tables = (
        _overview(limits),
        *(_tokens(CASES[case], li) for case, li in limits.items()),
        _rationals(dynamics),
    )
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, runs, limits),
        asdict(p),
        tables,
        checks,
        figures,
        (movie,),
        command="cynosure run figure2",
    )


def _summary(p: Params, runs: dict[int, Trajectory], limits: dict[int, Limit]) -> str:
    proved = sum(int((li.settled_at >= 0).sum()) for li in limits.values())
    tokens = sum(len(li.points) for li in limits.values())
    last = max(li.layers for li in limits.values())
    later = {c: li.leaders[li.born[li.leaders] > 0].tolist() for c, li in limits.items()}
    emerging = "; ".join(
        f"in case {c} token {i} starts to lead at layer {limits[c].born[i]}"
        for c, found in later.items()
        for i in found
    )
    strays = {c: np.flatnonzero(li.follows < 0).tolist() for c, li in limits.items()}
    without = "; ".join(
        f"in case {c} the tokens {', '.join(map(str, s))} tend to no leader"
        for c, s in strays.items()
        if s
    )
    left = max(float(np.abs(runs[c].values[-1] - li.points).max()) for c, li in limits.items())
    return (
        f"Four configurations, alpha = {p.alpha}, A = I. The limit of {proved} of {tokens} tokens "
        f"is proved, from layer {last} on at the latest; after {p.layers} layers the tokens are "
        f"still up to {left:.2g} away from it.\n\n"
        f"Leaders that emerge: {emerging or 'none'}. Clusters without a leader: "
        f"{without or 'none'}."
    )


def _figures(
    p: Params, runs: dict[int, Trajectory], limits: dict[int, Limit]
) -> tuple[Picture, ...]:
    from matplotlib.figure import Figure

    from ...drawing import plot

    show = tuple(k for k in p.show if k <= p.layers)
    panels = plot.figure2(list(runs.values()), show=show)
    caption = (
        "Rows are the four cases, columns are layers. A star is a leader; the fill is the colour "
        "of the token followed, the edge the token's own; two halves: it follows two tokens. The "
        "hull of the leaders is shaded in the last column."
    )
    curves = Figure(figsize=(13, 3.4), layout="constrained")
    for column, (case, name) in enumerate(CASES.items()):
        ax = curves.add_subplot(1, 4, column + 1)
        plot.convergence(runs[case], limits[case], ax=ax)
        ax.set_title(name)
    return (
        Picture("Figure 2", caption, panels),
        Picture(
            "Distance to the proved limit",
            "Each token against its certified limit, beside the line (1 + alpha)^-k.",
            curves,
        ),
    )


def _movie(p: Params, dynamics: PureAttention) -> Picture:
    from ...drawing.movie import movie

    z0 = configurations.figure2(p.movie_case, p.seed)
    short = simulate(dynamics, z0, layers=min(p.movie_layers, p.layers))
    born = roles(short).born
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "movie.gif"
        movie(short, path)
        data = path.read_bytes()
    caption = (
        f"Case {p.movie_case}, layers 0 to {short.t[-1]}, interpolated between layers; "
        f"{int((born == 0).sum())} tokens lead from the start, {int((born > 0).sum())} later."
    )
    return Picture("The layers as a movie", caption, data)


def _overview(limits: dict[int, Limit]) -> Table:
    rows = tuple(
        (
            CASES[case],
            len(li.points),
            ", ".join(map(str, li.leaders[li.born[li.leaders] == 0])),
            ", ".join(f"{i} (layer {li.born[i]})" for i in li.leaders[li.born[li.leaders] > 0]),
            len(np.unique(li.points, axis=0)),
            int((li.follows < 0).sum()),
            "yes" if li.certified else f"no: {len(li.undecided)} undecided",
            li.layers,
            li.exact_decisions,
        )
        for case, li in limits.items()
    )
    columns = (
        "case",
        "tokens",
        "leaders from the start",
        "emerging",
        "distinct limits",
        "not at a leader",
        "certified",
        "at layer",
        "exact decisions",
    )
    note = "Exact decisions: near-ties in floating point that were settled in integers."
    return Table("Certified limits", columns, rows, note)


def _tokens(name: str, li: Limit) -> Table:
    rows = tuple(
        (
            i,
            tuple(li.points[i].tolist()),
            str(li.rule[i]),
            int(li.settled_at[i]),
            int(li.follows[i]) if li.follows[i] >= 0 else None,
            int(li.born[i]) if li.born[i] >= 0 else None,
            float(li.margin[i]),
        )
        for i in range(len(li.points))
    )
    columns = ("token", "limit", "rule", "settled at", "tends to", "leads since", "smallest gap")
    return Table(f"Case {name}", columns, rows)


def _rationals(dynamics: PureAttention) -> Table:
    """Case 2 from the rationals of the paper instead of the floats next to them."""
    z0 = configurations.golden_exact("G1")
    li = limit(dynamics, z0, exact=True)
    assert li.exact_points is not None
    rows = tuple(
        (i, start, end, int(li.born[i]) if li.born[i] >= 0 else None)
        for i, (start, end) in enumerate(zip(z0, li.exact_points, strict=True))
    )
    note = f"Every decision in {li.arithmetic} arithmetic, alpha = {dynamics.exact_alpha}."
    columns = ("token", "start", "limit", "leads since")
    return Table("Case 2 in rational numbers", columns, rows, note)
