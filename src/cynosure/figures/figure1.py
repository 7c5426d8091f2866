"""Figure 1 of arXiv 2407.01602: the half-space of a token, and whom it follows there.

The hyperplane through z_i with normal A z_i bounds H = {y : <A z_i, y - z_i> >= 0}. Token i follows
the tokens of H that lie farthest along A z_i:

    C_i = { j : <A z_i, z_j> = max_l <A z_i, z_l> }.

See on one configuration of whole numbers, with the same token 1 as in the paper: (a) A = I, where
the normal is the token itself and two tokens are equally far, C_1 = {2, 3}; (b) another symmetric
positive definite A, which turns the normal so that one token wins, C_1 = {4}. (c) is the same rule
seen from the other side, on Gaussian tokens: of the lines with that normal the last to touch the
tokens carries C_i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import cynosure as cy

from ..study import Picture, Progress, Report, Table, report_of, require, silent

TITLE = "Figure 1: the half-space of a token and the set it follows"
ALIASES = "2407.01602/figure1"

# Whole numbers, so that every score is exact. Token 1, (-1, 3), scores -x + 3y under A = I and
# x + 2y under A = [[2, 1], [1, 1]]. Tokens are numbered from 1, as in the paper.
TOKENS = (
    (-1, 3), (-5, 4), (1, 6), (7, 4), (-4, 3), (3, 5), (3, 2), (6, -3), (-6, -1), (3, -4), (-3, -5),
)  # fmt: skip


@dataclass(frozen=True)
class Params:
    """A of panels (b) and (c) as its rows; n Gaussian tokens of panel (c) and the one looked at."""

    n: int = 14
    seed: int = 5
    token: int = 10
    A: tuple[tuple[float, float], tuple[float, float]] = ((2.0, 1.0), (1.0, 1.0))


QUICK = Params()


class FollowedSet(NamedTuple):
    """The set C_i of a token, and what decides it."""

    panel: str
    token: tuple[float, ...]
    query: tuple[float, ...]  # A z_i
    inside: int  # tokens of H besides i
    followed: str
    best: float  # score
    gap: float  # to the best score outside C_i
    mean: tuple[float, ...]


def run(p: Params, progress: Progress | None = None) -> Report:
    """Draw the three panels and tabulate the sets behind them."""
    require(0 <= p.token < p.n, "a token in 0..n-1", p)
    say = progress or silent
    A, z = np.array(p.A), np.array(TOKENS, dtype=float)
    cloud = cy.configurations.gaussian(p.n, 2, p.seed)
    name = f"A = {[[round(x) if x == round(x) else x for x in row] for row in p.A]}"
    figure, axes = cy.plot.sheet(1, 3, 4.5, 4.9)
    say(0.0, "half-spaces")
    left, middle, right = axes[0]
    cy.plot.half_space(z, 0, ax=left, first=1).set_title("(a)  A = I")
    cy.plot.half_space(z, 0, A, ax=middle, first=1).set_title(f"(b)  {name}")
    say(0.7, "supporting line")
    cy.plot.attention_set(cloud, p.token, A, ax=right).set_title(f"(c)  {name}")
    for ax in axes[0]:
        ax.grid(False)
    plain, turned = _followed("(a) A = I", z, 0, None, 1), _followed(f"(b) {name}", z, 0, A, 1)
    sets = (plain, turned, _followed(f"(c) {name}, Gaussian tokens", cloud, p.token, A, 0))
    columns = (
        *("panel", "token z_i", "A z_i", "others in H", "C_i", "best score"),
        *("gap to the next", "mean of C_i"),
    )
    note = (
        "The gap is the distance, in scores, to the best token outside C_i. Tokens are numbered "
        "from 1 in (a) and (b), as in the paper, and from 0 in (c)."
    )
    table = Table("The sets behind the panels", columns, sets, note)
    picture = Picture("Figure 1", CAPTION, figure)
    return report_of(p, _summary(plain, turned), controls=(), tables=[table], figures=[picture])


CAPTION = (
    "(a), (b): the half-space H of token 1 (diamond), bounded by the line through it with normal "
    "A z_1; the dotted line is as far along A z_1 as a token gets, and those on it are C_1. (c): "
    "for another token the last line with its normal to touch the hull of the tokens; all of them "
    "lie behind it."
)


def _summary(plain: FollowedSet, turned: FollowedSet) -> str:
    return (
        f"One configuration of whole numbers, one token, two matrices. With A = I token 1 follows "
        f"C_1 = {{{plain.followed}}}: {_why(plain)}. With the second matrix it follows C_1 = "
        f"{{{turned.followed}}}: {_why(turned)}. The sets are decided exactly."
    )


def _why(one: FollowedSet) -> str:
    count = one.followed.count(",") + 1
    tie = f"{count} tokens tie at the score" if count > 1 else "one token has the largest score,"
    return f"{tie} {one.best:g}, {one.gap:g} above the next, and it is drawn to {one.mean}"


def _followed(name: str, z: np.ndarray, i: int, A: np.ndarray | None, first: int) -> FollowedSet:
    """C_i with its tokens numbered from `first`."""
    followed = cy.Hardmax(A).followed(z)
    query = z[i] if A is None else A @ z[i]
    scores = z @ query
    best, rest = scores.max(), np.delete(scores, followed[i])
    return FollowedSet(
        panel=name,
        token=tuple(z[i].tolist()),
        query=tuple(query.tolist()),
        inside=int((np.delete(scores, i) >= scores[i]).sum()),
        followed=", ".join(str(first + j) for j in followed[i]),
        best=float(best),
        gap=float(best - rest.max(initial=-np.inf)),
        mean=tuple(followed.pull(z)[i].tolist()),
    )
