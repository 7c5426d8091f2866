"""Figure 3 of arXiv 2407.01602: from a transformer layer to pure attention with hardmax.

The three architectures of docs/mathematics.md A, side by side. What a step leaves out is dashed and
grey in the column before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from ..drawing import plot
from ..study import Picture, Progress, Report, report_of

TITLE = "Figure 3: from a transformer layer to pure attention with hardmax"
ALIASES = "2407.01602/figure3"


@dataclass(frozen=True)
class Params:
    """A drawing: nothing is computed."""


QUICK = Params()


def run(p: Params, progress: Progress | None = None) -> Report:
    """The drawing."""
    picture = Picture("Figure 3", CAPTION, architectures())
    return report_of(p, CAPTION, controls=(), figures=[picture])


CAPTION = (
    "From a transformer layer to pure attention with hardmax, read from below. Dashed and grey: "
    "what the next column leaves out. First the feed-forward sublayer goes, and one head and one "
    "layer stand for all; then beta grows without bound."
)


class Block(NamedTuple):
    """One box of a column: its words, its formula, and whether the next column leaves it out."""

    name: str
    formula: str = ""
    colour: int = 0
    dropped: bool = False
    skips: bool = False  # a residual connection goes round it


_HEADS = r"$\sum_h \sum_j \mathrm{softmax}_j(\langle Q_h z_i, K_h z_j\rangle)\, V_h z_j$"
_SOFT = r"$m_i = \sum_j \mathrm{softmax}_j(\beta\langle A z_i, z_j\rangle)\, z_j$"
TRANSFORMER = (
    Block("multi-head attention", _HEADS, skips=True),
    Block("add and normalise", "LayerNorm", 2),
    Block("feed-forward", r"$W_2\,\sigma(W_1 z_i)$", 1, dropped=True, skips=True),
    Block("add and normalise", "LayerNorm", 2, dropped=True),
)
SOFTMAX = (
    Block("attention, one head", _SOFT, skips=True),
    Block("add and normalise", r"$(z_i + \alpha\, m_i)/(1+\alpha)$, or onto the sphere", 2),
)
HARDMAX = (
    Block("attention, hardmax", r"$m_i = \frac{1}{|C_i|}\sum_{j \in C_i} z_j$", skips=True),
    Block("add and normalise", r"$z_i \leftarrow (z_i + \alpha\, m_i)/(1+\alpha)$", 2),
)
COLUMNS = (
    ("(a)  a transformer layer", "", "every layer has its own weights", TRANSFORMER),
    (
        "(b)  pure attention, softmax",
        "no feed-forward, one head with V = I,\nthe same layer again and again",
        r"weights of all layers: A, $\alpha$, $\beta$",
        SOFTMAX,
    ),
    (
        "(c)  pure attention, hardmax",
        "$\\beta \\to \\infty$: all attention on the largest scores,\n"
        "$C_i$: those $j$ with the largest $\\langle A z_i, z_j\\rangle$",
        r"weights of all layers: A, $\alpha$",
        HARDMAX,
    ),
)
WIDTH, HEIGHT, GAP, STEP = 3.1, 0.86, 0.42, 3.9


def architectures() -> Figure:
    """The three columns, read from below."""
    figure = Figure(figsize=(11.4, 6.4), layout="constrained")
    ax = figure.add_subplot()
    for column, (title, step, weights, blocks) in enumerate(COLUMNS):
        _column(ax, column * STEP, title, weights, blocks)
        middle = column * STEP + WIDTH / 2
        ax.text(middle, 5.2, step, ha="center", va="center", fontsize=9.5, linespacing=1.5)
    ax.set(xlim=(-0.35, 2 * STEP + WIDTH + 0.5), ylim=(-1.1, 6.35), aspect="equal")
    ax.axis("off")
    return figure


def _column(ax: Any, x: float, title: str, weights: str, blocks: tuple[Block, ...]) -> None:
    """One architecture from its tokens, below, to the tokens of the next layer."""
    middle, y = x + WIDTH / 2, 0.35
    ax.text(middle, 6.1, title, ha="center", va="center", fontsize=12)
    ax.text(middle, -0.55, r"tokens $z_1, \ldots, z_n$", ha="center", va="center", fontsize=10)
    below = -0.32
    for block in blocks:
        colour = plot.GREY if block.dropped else plot.PALETTE[block.colour]
        _arrow(ax, (middle, below), (middle, y), colour)
        style = "--" if block.dropped else "-"
        look: dict[str, Any] = {"fc": (colour, 0.14), "ec": colour, "lw": 1.4, "ls": style}
        ax.add_patch(FancyBboxPatch((x, y), WIDTH, HEIGHT, boxstyle="round,pad=0.03", **look))
        ax.text(middle, y + 0.62 * HEIGHT + 0.05, block.name, ha="center", va="center", fontsize=10)
        ax.text(middle, y + 0.24 * HEIGHT, block.formula, ha="center", va="center", fontsize=8.5)
        if block.skips:
            _skip(ax, x, y, colour)
        below, y = y + HEIGHT + 0.03, y + HEIGHT + GAP
    _arrow(ax, (middle, below), (middle, below + 0.4), plot.INK)
    ax.text(middle, below + 0.62, "tokens of the next layer", ha="center", va="center", fontsize=10)
    ax.text(middle, -0.92, weights, ha="center", va="center", fontsize=9, color=plot.GREY)


def _arrow(ax: Any, start: tuple[float, float], end: tuple[float, float], colour: Any) -> None:
    look = {"arrowstyle": "-|>", "mutation_scale": 11, "color": colour, "lw": 1.2}
    ax.add_patch(FancyArrowPatch(start, end, shrinkA=0, shrinkB=1, **look))


def _skip(ax: Any, x: float, y: float, colour: Any) -> None:
    """The residual connection: round the box at the height y, into the one above it."""
    left, start, end = x - 0.24, y - 0.2, y + HEIGHT + GAP + 0.5 * HEIGHT
    middle = x + WIDTH / 2
    ax.plot([middle, left, left, x - 0.06], [start, start, end, end], color=colour, lw=1.0)
    ax.plot([x - 0.1], [end], ">", color=colour, ms=5)
