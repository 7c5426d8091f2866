"""Choosing who leads: for which sets of tokens is there a form A under which all of them lead?

A token of a hardmax transformer (arXiv 2407.01602) can be made an initial leader by some symmetric
positive definite A exactly when it is a vertex of conv(Z u {0}); for a set T it is a linear matrix
inequality (docs/mathematics.md B15). See: single tokens agree with the vertices without exception,
forms that make one token lead are mild, and the larger the set and the lower the dimension, the
sooner the wishes of its members contradict each other. Every answer is checked: forms by exact sets
and by the certified limit, contradictions by their multipliers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple, final

import numpy as np

from ...analysis.limits import limit
from ...analysis.polytope import hull
from ...analysis.steering import Control, control, remove_leader
from ...attention import Hardmax
from ...drawing.report import Picture, Report, Table
from ...drawing.style import sheet
from ...dynamics import PureAttention
from ...simulation import configurations
from ...theorems import Check
from .._frame import Progress, silent
from .._measurements import kept

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Choosing who leads"


@final
@dataclass(frozen=True)
class Params:
    """Dimensions, sizes of target sets, sets per cell, Gaussian tokens, and the bound on cond A."""

    d: tuple[int, ...] = (2, 3, 4, 6, 8, 12)
    sizes: tuple[int, ...] = (2, 3, 4, 6, 8, 12, 16)
    sets: int = 25
    n: int = 40
    single: int = 12  # starts per dimension whose tokens are tried one by one
    condition: float = 1e6
    seed: int = 0


QUICK = Params(d=(2, 4), sizes=(2, 4, 8), sets=4, n=20, single=3)


class Single(NamedTuple):
    """All tokens of some starts, one by one."""

    d: int
    tried: int
    feasible: int
    agree: int  # with the vertices of conv(Z u {0})
    confirmed: int  # by the certified limit
    condition: np.ndarray  # of the forms found
    residual: float  # largest of the convex combinations


class Cell(NamedTuple):
    """Random sets of vertices of conv(Z u {0}), of one size."""

    d: int
    size: int
    sets: tuple[Control, ...]
    already: int  # sets that lead under A = I
    confirmed: int  # by the certified limit

    @property
    def rate(self) -> float:
        return float(np.mean([c.feasible for c in self.sets]))

    def reasons(self, reason: str) -> int:
        return sum(c.witness.reason == reason for c in self.sets)


def run(p: Params, progress: Progress | None = None) -> Report:
    """Single tokens, sets, and the smallest changes that take a lead away."""
    say = progress or silent
    if min(p.d) < 2 or min(p.sizes) < 2 or min(p.sets, p.single) < 1 or p.n < 4:
        raise ValueError(
            f"control_leaders: d and sizes start at 2, sets and single at 1, n at 4; got {p}"
        )
    singles = []
    for done, d in enumerate(p.d):
        say(0.2 * done / len(p.d), f"single tokens, d = {d}")
        singles.append(kept(_singles, p, d))
    grid = [(d, m) for d in p.d for m in p.sizes] if find_spec("cvxpy") else []
    cells = []
    for done, (d, m) in enumerate(grid):
        say(0.2 + 0.7 * done / len(grid), f"sets of {m}, d = {d}")
        if (cell := kept(_cell, p, d, m)) is not None:
            cells.append(cell)
    say(0.9, "removals and figures")
    removals = [kept(_taken, p, d) for d in p.d]
    figures = [Picture("One start, two forms", _BEFORE, _before_and_after(p))]
    if cells:
        figures.append(Picture("Sets that can lead together", _RATE, _rates(p, cells)))
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, singles, cells, removals),
        asdict(p),
        (_single_table(singles), _set_table(cells), _removal_table(removals)),
        {"single tokens and sets": (_check(singles, cells),)},
        tuple(figures),
        command="cynosure run control_leaders",
    )


_BEFORE = (
    "Stars lead. Left: A = I. Right: a form under which the circled tokens lead; the dotted curves "
    "are the unit balls |x|_A = 1, scaled. Grey: conv(Z u {0}), whose vertices are the tokens that "
    "can lead at all."
)
_RATE = (
    "Left: share of random sets of vertices of conv(Z u {0}) that some form makes lead; a curve "
    "ends where no start has so many vertices. Right: median condition number of the forms found "
    "(1: they lead under A = I)."
)


def _candidates(z: np.ndarray) -> np.ndarray:
    """Tokens that are vertices of conv(Z u {0})."""
    body = hull(np.vstack([z, np.zeros((1, z.shape[1]))]))
    return body.index[body.index < len(z)]


def _confirmed(z: np.ndarray, found: Control) -> bool:
    """The targets are among the leaders of the certified limit, and lead from layer 0 on."""
    li = limit(PureAttention(Hardmax(found.A)), z)
    return bool(li.certified and (li.born[found.targets] == 0).all())


def _singles(p: Params, d: int) -> Single:
    tried = feasible = agree = confirmed = 0
    conditions, residual = [], 0.0
    for s in range(p.single):
        z = configurations.gaussian(p.n, d, p.seed + s)
        vertices = set(_candidates(z).tolist())
        for i in range(p.n):
            found = control(z, i, condition=float("inf"))
            tried += 1
            agree += found.feasible == (i in vertices)
            if found.feasible:
                feasible += 1
                confirmed += _confirmed(z, found)
                conditions.append(found.condition)
            else:
                residual = max(residual, found.witness.residual)
    return Single(d, tried, feasible, agree, confirmed, np.array(conditions), residual)


def _cell(p: Params, d: int, size: int) -> Cell | None:
    rng = np.random.default_rng([p.seed, d, size])
    found, already, confirmed = [], 0, 0
    for s in range(p.sets):
        z = configurations.gaussian(p.n, d, p.seed + s)
        candidates = _candidates(z)
        if len(candidates) < size:
            continue
        targets = rng.choice(candidates, size, replace=False)
        already += bool(Hardmax().followed(z).leads[targets].all())
        answer = control(z, targets, condition=p.condition)
        confirmed += answer.feasible and _confirmed(z, answer)
        found.append(answer)
    return Cell(d, size, tuple(found), already, confirmed) if found else None


def _check(singles: list[Single], cells: list[Cell]) -> Check:
    tried, agree = sum(s.tried for s in singles), sum(s.agree for s in singles)
    found = sum(s.feasible for s in singles) + sum(c.feasible for x in cells for c in x.sets)
    confirmed = sum(s.confirmed for s in singles) + sum(x.confirmed for x in cells)
    undecided = sum(x.reasons("undecided") for x in cells)
    refuted = [c.witness.residual for x in cells for c in x.sets if c.witness.reason == "together"]
    residual, tol = max([s.residual for s in singles] + refuted), 1e-9
    return Check(
        theorem="B15",
        reference="docs/mathematics.md B15",
        statement="a token can lead iff it is a vertex of conv(Z u {0}); forms and contradictions "
        "found are confirmed",
        applies=True,
        holds=tried == agree and found == confirmed and undecided == 0 and residual <= tol,
        margin=tol - residual if tried == agree and found == confirmed else -1.0,
        tol=tol,
        witness={
            "single tokens": tried,
            "agree with the vertices": agree,
            "forms found": found,
            "confirmed by the limit": confirmed,
            "undecided sets": undecided,
            "largest residual of a contradiction": residual,
        },
        hypotheses=(),
        arithmetic="float64",
    )


def _single_table(singles: list[Single]) -> Table:
    rows = tuple(
        (
            s.d,
            s.tried,
            s.feasible / s.tried,
            f"{s.agree}/{s.tried}",
            f"{s.confirmed}/{s.feasible}",
            float(np.median(s.condition)),
            float(s.condition.max()),
            s.residual,
        )
        for s in singles
    )
    columns = (
        "d",
        "tokens",
        "can lead",
        "agree with vertices",
        "confirmed",
        "median condition",
        "largest",
        "largest residual",
    )
    return Table("Single tokens", columns, rows)


def _set_table(cells: list[Cell]) -> Table:
    rows = []
    for c in cells:
        conditions = [x.condition for x in c.sets if x.feasible]
        rows.append(
            (
                c.d,
                c.size,
                len(c.sets),
                c.already,
                c.rate,
                c.reasons("together"),
                c.reasons("condition"),
                c.reasons("undecided"),
                float(np.median(conditions)) if conditions else None,
                f"{c.confirmed}/{sum(x.feasible for x in c.sets)}",
            )
        )
    columns = (
        "d",
        "size",
        "sets",
        "lead under I",
        "can lead",
        "contradiction",
        "condition too large",
        "undecided",
        "median condition",
        "confirmed",
    )
    note = "" if cells else 'Sets need the extra: pip install "cynosure[control]".'
    return Table("Sets of tokens", columns, tuple(rows), note)


class Taken(NamedTuple):
    d: int
    leaders: int
    distance: float  # median smallest move of one token, share of the longest
    change: float  # median smallest change of A = I in the Frobenius norm
    gone: int  # leads that both changes took away


def _taken(p: Params, d: int) -> Taken:
    z = configurations.gaussian(p.n, d, p.seed)
    longest = float(np.linalg.norm(z, axis=1).max())
    leaders = np.flatnonzero(Hardmax().followed(z).leads)
    found = [remove_leader(z, int(i)) for i in leaders]
    gone = sum(
        r.A is not None
        and not Hardmax().followed(r.z).leads[r.leader]
        and not Hardmax(r.A).followed(z).leads[r.leader]
        for r in found
    )
    return Taken(
        d,
        len(leaders),
        float(np.median([r.distance for r in found])) / longest,
        float(np.median([r.change for r in found])),
        gone,
    )


def _removal_table(removals: list[Taken]) -> Table:
    columns = (
        "d",
        "leaders",
        "smallest move of the leader, median",
        "smallest change of A, median",
        "lead gone",
    )
    note = "Moves are shares of the longest token; changes are Frobenius norms, A = I before."
    return Table("Taking a lead away", columns, tuple(tuple(r) for r in removals), note)


def _summary(p: Params, singles: list[Single], cells: list[Cell], removals: list[Taken]) -> str:
    tried, agree = sum(s.tried for s in singles), sum(s.agree for s in singles)
    share = {s.d: s.feasible / s.tried for s in singles}
    text = (
        f"{agree} of {tried} single tokens agree with the vertices of conv(Z u {{0}}) "
        f"({agree / tried:.0%}); of {p.n} tokens {share[min(p.d)]:.0%} can lead for d = "
        f"{min(p.d)} and {share[max(p.d)]:.0%} for d = {max(p.d)}. "
    )
    if cells:
        worst = min(cells, key=lambda c: c.rate)
        low = [c for c in cells if c.rate < 0.5]
        text += (
            f"Sets of vertices: {np.mean([c.rate for c in cells]):.0%} can lead together on the "
            f"whole, fewest ({worst.rate:.0%}) for d = {worst.d} and size {worst.size}"
            + (
                "; less than half for "
                + ", ".join(f"d = {c.d} size {c.size}" for c in low[:6])
                + (", ..." if len(low) > 6 else "")
                if low
                else ""
            )
            + ". "
        )
    else:
        text += "Sets were not tried: cvxpy is not installed. "
    taken = sum(r.gone for r in removals)
    return (
        f"{text}The smallest changes took away {taken} of {sum(r.leaders for r in removals)} "
        f"leads; the median move is {removals[0].distance:.1%} of the longest token for d = "
        f"{removals[0].d}, {removals[-1].distance:.1%} for d = {removals[-1].d}."
    )


def _rates(p: Params, cells: list[Cell]) -> Any:
    from ...drawing.plot import PALETTE

    figure, grid = sheet(1, 2, width=5, height=3.8)
    left, right = grid[0]
    for k, (colour, d) in enumerate(zip(PALETTE, p.d)):
        line = [c for c in cells if c.d == d]
        look = {"color": colour, "marker": "osD^vP"[k % 6], "ms": 9 - k, "lw": 3.2 - 0.4 * k}
        left.plot([c.size for c in line], [c.rate for c in line], **look)  # thick below thin
        known = [c for c in line if c.rate > 0]
        median = [np.median([x.condition for x in c.sets if x.feasible]) for c in known]
        right.plot([c.size for c in known], median, **look, label=f"d = {d}")
    left.set(xlabel="size of the set", ylabel="share of sets that can lead", ylim=(-0.03, 1.05))
    right.set(xlabel="size of the set", ylabel="median condition number of A", yscale="log")
    figure.legend(loc="outside lower center", ncols=len(p.d), frameon=False)
    return figure


def _before_and_after(p: Params) -> Any:
    from ...drawing.plot import GREY, INK, PALETTE, shade

    z = configurations.gaussian(p.n, 2, p.seed)
    plain = Hardmax().followed(z).leads
    able = [i for i in _candidates(z).tolist() if not plain[i]]
    wish = able[:2] if find_spec("cvxpy") else able[:1]
    found = control(z, wish or np.flatnonzero(plain)[:1], condition=p.condition)
    if not found.feasible:  # two that contradict each other: one of them will do for the picture
        found = control(z, wish[:1], condition=p.condition)
    figure, grid = sheet(1, 2, width=4.7, height=4.8)
    axes = grid[0]
    circle = np.linspace(0, 2 * np.pi, 200)
    size = 0.35 * float(np.linalg.norm(z, axis=1).max())
    assert found.A is not None
    for ax, A, name in zip(axes, (np.eye(2), found.A), ("A = I", "A chosen")):
        leads = Hardmax(A).followed(z).leads
        shade(ax, hull(np.vstack([z, np.zeros((1, 2))])), color=GREY, alpha=0.15)
        values, vectors = np.linalg.eigh(A)
        ball = np.stack([np.cos(circle), np.sin(circle)]) / np.sqrt(values / values[-1])[:, None]
        ax.plot(*(size * vectors @ ball), ":", color=PALETTE[3], lw=1.2, label="$|x|_A$ constant")
        ax.plot(*z[~leads].T, "o", mfc="white", mec=PALETTE[0], ms=5, label="follows")
        ax.plot(*z[leads].T, "*", color=PALETTE[1], ms=14, label="leads")
        wished = {"mfc": "none", "mec": INK, "ms": 18, "mew": 1.2, "label": "shall lead"}
        ax.plot(*z[found.targets].T, "o", **wished)
        ax.plot([0], [0], "+", color=GREY)
        reach = 1.2 * float(np.abs(z).max())
        ax.set(aspect="equal", title=name, xlim=(-reach, reach), ylim=(-reach, reach))
        ax.set(xlabel="$z_1$", ylabel="$z_2$")
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, frameon=False)
    return figure
