"""Figure 1 of arXiv 2407.01602: the half-space of a token and the set C_i on its boundary.

Token i pushes a hyperplane with normal A z_i outwards until it last touches the tokens; what it
touches is C_i. See three things: with A = I the normal is the token itself; another symmetric
positive definite A turns it and the token follows another one; on a face orthogonal to A z_i the
hyperplane touches two tokens at once and the token is drawn to their mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import cynosure as cy

from .._frame import Progress, report_of, require, silent

TITLE = "Figure 1: the half-space of a token and the set it follows"


@dataclass(frozen=True)
class Params:
    """n Gaussian tokens in the plane, the token looked at, and A as its rows."""

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
    followed: str
    best: float  # score
    gap: float  # to the best score outside C_i
    mean: tuple[float, ...]


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Draw the three panels and tabulate the sets behind them."""
    require(0 <= p.token < p.n, "a token in 0..n-1", p)
    say = progress or silent
    cloud, square = cy.configurations.gaussian(p.n, 2, p.seed), cy.configurations.golden("G2")
    panels = [
        ("A = I", cloud, p.token, None),
        (f"A = {[list(row) for row in p.A]}", cloud, p.token, np.array(p.A)),
        ("A = I, a tie", square, len(square) - 1, None),
    ]
    figure, axes = cy.plot.sheet(1, len(panels), 4.5, 4.6)
    sets: list[FollowedSet] = []
    for ax, (name, z, i, A) in zip(axes[0], panels):
        say(len(sets) / len(panels), name)
        cy.plot.attention_set(z, i, A, ax=ax).set_title(name)
        ax.grid(False)
        sets.append(_followed(name, z, i, A))
    columns = ("panel", "token z_i", "A z_i", "C_i", "best score", "gap to the next", "mean of C_i")
    note = "The gap is the distance, in scores, to the best token outside C_i."
    first, second, tied = sets
    same = first.followed == second.followed
    turns = "leaves it with the same" if same else "turns it to another"
    summary = (
        f"Token {p.token} of {p.n} Gaussian tokens follows token {first.followed} when A = I; the "
        f"second matrix {turns} (token {second.followed}). The last panel is the square with two "
        f"inner tokens: token {len(square) - 1} scores the corners {tied.followed} equally, "
        f"follows both, and is drawn to their mean {tied.mean}. The sets are decided exactly on "
        "the given floats."
    )
    table = cy.Table("The sets behind the panels", columns, tuple(sets), note)
    caption = (
        "The token, its direction A z_i, the supporting half-plane, the tokens on its boundary."
    )
    picture = cy.Picture("Figure 1", caption, figure)
    return report_of(__name__, p, summary, tables=[table], figures=[picture])


def _followed(name: str, z: np.ndarray, i: int, A: np.ndarray | None) -> FollowedSet:
    followed = cy.Hardmax(A).followed(z)
    query = z[i] if A is None else A @ z[i]
    scores = z @ query
    best, rest = scores.max(), np.delete(scores, followed[i])
    return FollowedSet(
        panel=name,
        token=tuple(z[i].tolist()),
        query=tuple(query.tolist()),
        followed=", ".join(map(str, followed[i])),
        best=float(best),
        gap=float(best - rest.max(initial=-np.inf)),
        mean=tuple(followed.pull(z)[i].tolist()),
    )
