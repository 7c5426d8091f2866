"""Figure 1 of arXiv 2407.01602: the half-space of a token and the set C_i on its boundary.

Token i pushes a hyperplane with normal A z_i outwards until it last touches the tokens; what it
touches is C_i. See three things: with A = I the normal is the token itself; another symmetric
positive definite A turns it and the token follows another one; on a face orthogonal to A z_i the
hyperplane touches two tokens at once and the token is drawn to their mean.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import final

import numpy as np

from ...attention import Hardmax
from ...drawing.report import Picture, Report, Table
from ...simulation import configurations
from .._frame import Progress

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Figure 1: the half-space of a token and the set it follows"


@final
@dataclass(frozen=True)
class Params:
    """n Gaussian tokens in the plane, the token looked at, and A as its rows."""

    n: int = 14
    seed: int = 5
    token: int = 10
    A: tuple[tuple[float, float], tuple[float, float]] = ((2.0, 1.0), (1.0, 1.0))


QUICK = Params()


def run(p: Params, progress: Progress | None = None) -> Report:
    """Draw the three panels and tabulate the sets behind them."""
    from matplotlib.figure import Figure

    from ...drawing import plot

    if not 0 <= p.token < p.n:
        raise ValueError(f"token: expected an index below n = {p.n}, got {p.token}")
    cloud, square = configurations.gaussian(p.n, 2, p.seed), configurations.golden("G2")
    panels = [
        ("A = I", cloud, p.token, None),
        (f"A = {[list(row) for row in p.A]}", cloud, p.token, np.array(p.A)),
        ("A = I, a tie", square, len(square) - 1, None),
    ]
    figure = Figure(figsize=(13.5, 4.6), layout="constrained")
    rows = []
    for column, (name, z, i, A) in enumerate(panels):
        if progress is not None:
            progress(column / len(panels), name)
        ax = figure.add_subplot(1, len(panels), column + 1)
        plot.attention_set(z, i, A, ax=ax)
        ax.set_title(name)
        rows.append(_row(name, z, i, A))
    ((_, _, _, first, *_), (_, _, _, second, *_), (*_, tied, _, _, tie_mean)) = rows
    turned = "turns it to another" if first != second else "leaves it with the same"
    summary = (
        f"Token {p.token} of {p.n} Gaussian tokens follows token {first} when A = I; the second "
        f"matrix {turned} (token {second}). The last panel is the square with two inner tokens: "
        f"token {len(square) - 1} scores the corners {tied} equally, follows both, and is drawn "
        f"to their mean {tuple(tie_mean)}. The sets are decided exactly on the given floats."
    )
    table = Table(
        "The sets behind the panels",
        ("panel", "token z_i", "A z_i", "C_i", "best score", "gap to the next", "mean of C_i"),
        tuple(rows),
        "The gap is the distance, in scores, to the best token outside C_i.",
    )
    caption = (
        "The token, its direction A z_i, the supporting half-plane, and the tokens on its boundary."
    )
    return Report(
        TITLE,
        summary,
        asdict(p),
        (table,),
        figures=(Picture("Figure 1", caption, figure),),
        command="cynosure run figure1",
    )


def _row(name: str, z: np.ndarray, i: int, A: np.ndarray | None) -> tuple:
    followed = Hardmax(A).followed(z)
    query = z[i] if A is None else A @ z[i]
    scores = z @ query
    outside = np.delete(scores, followed[i])
    return (
        name,
        tuple(z[i].tolist()),
        tuple(query.tolist()),
        ", ".join(map(str, followed[i].tolist())),
        float(scores.max()),
        float(scores.max() - outside.max()) if len(outside) else float("inf"),
        tuple(followed.pull(z)[i].tolist()),
    )
