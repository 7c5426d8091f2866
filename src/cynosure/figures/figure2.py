"""Figure 2 of arXiv 2407.01602: four small configurations over thirty layers, and their limits.

See in each row: stars (leaders) never move; every other token tends to a leader, or, in the last
row, to the middle of an edge that two leaders span, because it always ties between them; in the
second row a token that follows at first becomes a leader at layer 1. Beside the picture: each
token's limit with the rule that proves it, and every theorem check on the trajectories drawn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from ..engine.certificates import RULE_WORDS
from ..study import Comparison, Picture, Progress, Report, Table, report_of, require, silent

TITLE = "Figure 2: leaders, followers and the limiting polytope"
ALIASES = "2407.01602/figure2"
CASES = {
    1: "1 · triangular polytope",
    2: "2 · emerging leader",
    3: "3 · square polytope",
    4: "4 · clusters without a leader",
}

ALPHAS = (0.1, 0.5, 1.0, 2.0, 10.0)  # set beside the paper's 1/2


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


class Row(NamedTuple):
    """One row of the figure: its run and its certified limit."""

    case: int
    run: cy.Trajectory
    limit: cy.analysis.Limit

    @property
    def name(self) -> str:
        return CASES[self.case]

    @property
    def late(self) -> np.ndarray:
        """Leaders that emerge after layer 0."""
        return np.flatnonzero(self.limit.born > 0)

    @property
    def leaderless(self) -> np.ndarray:
        """Tokens that tend to no leader."""
        return np.flatnonzero(self.limit.follows < 0)


def run(p: Params, progress: Progress | None = None) -> Report:
    """Simulate, prove, check, draw and animate the four cases."""
    require(p.movie_case in CASES, f"movie_case among {list(CASES)}", p)
    say = progress or silent
    dynamics = cy.PureAttention(alpha=p.alpha)
    rows = []
    for case in CASES:
        say(0.1 * (case - 1), f"case {case}")
        z0 = cy.configurations.figure2(case, p.seed)
        tr = cy.simulate(dynamics, z0, layers=p.layers)
        rows.append(Row(case, tr, cy.limit(dynamics, z0)))
    say(0.4, "figures and movie")
    return report_of(
        p,
        _summary(p, rows),
        controls=_controls(p, rows),
        tables=[_overview(rows), *map(_tokens, rows), _rationals(dynamics)],
        checks={row.name: cy.check(row.run) for row in rows},
        figures=[
            Picture.of("Figure 2", _panels, p, rows),
            Picture.of("Distance to the proved limit", _distances, rows),
        ],
        movies=[_movie(p, dynamics)],
    )


def _summary(p: Params, rows: list[Row]) -> str:
    settled = np.concatenate([row.limit.settled_at for row in rows])
    last = max(row.limit.layers for row in rows)
    emerging = "; ".join(
        f"in case {row.case} token {i} starts to lead at layer {row.limit.born[i]}"
        for row in rows
        for i in row.late
    )
    without = "; ".join(
        f"in case {row.case} the tokens {_listed(row.leaderless)} tend to no leader"
        for row in rows
        if len(row.leaderless)
    )
    away = max(float(np.abs(row.run.values[-1] - row.limit.points).max()) for row in rows)
    return (
        f"Four configurations, alpha = {p.alpha}, A = I. The limit of {(settled >= 0).sum()} of "
        f"{len(settled)} tokens is proved, from layer {last} on at the latest; after {p.layers} "
        f"layers the tokens are still up to {away:.2g} away from it.\n\n"
        f"Leaders that emerge: {emerging or 'none'}. Clusters without a leader: "
        f"{without or 'none'}."
    )


def _controls(p: Params, rows: list[Row]) -> list[Comparison]:
    """Which of the two findings is there at other steps too."""
    out = []
    for row in rows:
        ends = {a: cy.limit(cy.PureAttention(alpha=a), row.run.values[0]) for a in ALPHAS}
        late = {a: int((li.born > 0).sum()) for a, li in ends.items()}
        stray = {a: int((li.follows < 0).sum()) for a, li in ends.items()}
        varied = f"other alphas than {p.alpha}"
        if len(row.late):
            claim = f"Whether a leader emerges in case {row.case} is a matter of alpha."
            depends = 0 in late.values() and max(late.values()) > 0
            out.append(Comparison(claim, varied, f"leaders that emerge: {_by(late)}", depends))
        if len(row.leaderless):
            claim = f"Case {row.case} has clusters without a leader."
            seen = f"tokens that tend to no leader: {_by(stray)}"
            out.append(Comparison(claim, varied, seen, min(stray.values()) > 0))
    return out


def _by(count: dict[float, int]) -> str:
    return ", ".join(f"alpha {a:g}: {n}" for a, n in count.items())


def _listed(items: Iterable[Any]) -> str:
    return ", ".join(map(str, items))


def _panels(p: Params, rows: list[Row]) -> Any:
    """Rows are the four cases, columns are layers, and colours speak of that layer. A star is a
    leader. The fill is the colour of the token that is followed, two halves where two are; the edge
    is the colour of those who follow the token, grey where nobody does. The hull of the leaders is
    shaded in the last column.
    """
    show = tuple(k for k in p.show if k <= p.layers)
    return cy.plot.figure2([row.run for row in rows], show=show)


def _distances(rows: list[Row]) -> Any:
    """Each token against its certified limit, beside the line (1 + alpha)^-k."""
    figure, axes = cy.plot.sheet(1, len(rows), 3.25, 3.4, sharey=True)
    for ax, row in zip(axes[0], rows):
        cy.plot.convergence(row.run, row.limit, ax=ax)
        ax.set_title(row.name)
        ax.label_outer()
    return figure


def _movie(p: Params, dynamics: cy.PureAttention) -> Picture:
    z0 = cy.configurations.figure2(p.movie_case, p.seed)
    short = cy.simulate(dynamics, z0, layers=min(p.movie_layers, p.layers))
    born = cy.roles(short).born
    caption = (
        f"Case {p.movie_case}, layers 0 to {short.t[-1]}, interpolated between layers; "
        f"{int((born == 0).sum())} tokens lead from the start, {int((born > 0).sum())} later."
    )
    return Picture("The layers as a movie", caption, cy.movie.gif(short))


def _overview(rows: list[Row]) -> Table:
    return Table.of(
        "Certified limits",
        rows,
        {
            "case": "name",
            "tokens": lambda r: len(r.limit.points),
            "leaders from the start": lambda r: _listed(np.flatnonzero(r.limit.born == 0)),
            "emerging": lambda r: _listed(f"{i} (layer {r.limit.born[i]})" for i in r.late),
            "distinct limits": lambda r: len(np.unique(r.limit.points, axis=0)),
            "not at a leader": lambda r: len(r.leaderless),
            "certified": lambda r: (
                "yes" if r.limit.certified else f"no: {len(r.limit.undecided)} undecided"
            ),
            "at layer": "limit.layers",
            "exact decisions": "limit.exact_decisions",
        },
        "Exact decisions: near-ties in floating point that were settled in integers.",
    )


def _tokens(row: Row) -> Table:
    li = row.limit
    return Table.of(
        f"Case {row.name}",
        range(len(li.points)),
        {
            "token": int,
            "limit": lambda i: tuple(li.points[i].tolist()),
            "rule": lambda i: RULE_WORDS[str(li.rule[i])],
            "settled at": lambda i: int(li.settled_at[i]),
            "tends to": lambda i: _or_none(li.follows[i]),
            "leads since": lambda i: _or_none(li.born[i]),
            "smallest gap": lambda i: float(li.margin[i]),
        },
    )


def _or_none(x: np.integer) -> int | None:
    return int(x) if x >= 0 else None


def _rationals(dynamics: cy.PureAttention) -> Table:
    """Case 2 from the rationals of the paper instead of the floats next to them."""
    z0 = cy.configurations.golden_exact("G1")
    li = cy.limit(dynamics, z0, exact=True)
    assert li.exact_points is not None
    rows = zip(range(len(z0)), z0, li.exact_points, map(_or_none, li.born))
    note = f"Every decision in {li.arithmetic} arithmetic, alpha = {dynamics.exact_alpha}."
    columns = ("token", "start", "limit", "leads since")
    return Table("Case 2 in rational numbers", columns, tuple(rows), note)
