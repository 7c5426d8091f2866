"""What is left of leaders and clusters when A is not symmetric positive definite.

The theorem of arXiv 2407.01602 asks for a symmetric positive definite A; the KᵀQ of a trained head
is neither. See: the hull of the tokens shrinks for every A (that part of the proof needs nothing),
but norms fall, leaders vanish and tokens chase each other in circles as A turns; three tokens
under a turn by 75 degrees have no leader at all and collapse to their centre at a known rate
(docs/mathematics.md B16). The heads of a trained transformer are measured on a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from ...pretrained.examples import SENTENCE, example_transformer, weights_note
from .._frame import Progress, at_most, over_grid, part, report_of, require
from .._measurements import kept
from ._forms import FormEffect, effect_of, families_of, turn

TITLE = "Robustness: forms A that the theorem does not allow"
TURN = 75  # degrees: the rotation of docs/mathematics.md B16
MEANS: dict[str, Callable[[FormEffect], float]] = {  # columns of the tables: means over the starts
    "leaders": lambda f: f.leaders,
    "none leads": lambda f: f.leaders == 0,
    "clusters": lambda f: f.clusters,
    "one cluster": lambda f: f.clusters == 1,
    "circle": lambda f: f.cycle,
    "still moving": lambda f: f.moving > 1e-6,
    "norms fell": lambda f: f.norms_fell,
}


@dataclass(frozen=True)
class Params:
    """Gaussian starts of n tokens, steps of the angle in degrees, and the layers run.

    `model`: a folder or hub id of a trained transformer whose heads are measured, those of the
    first `blocks` layers; empty: MiniLM if it is installed, else none.
    """

    n: int = 20
    d: int = 2
    alpha: float = 1.0
    starts: int = 100
    angles: tuple[int, ...] = tuple(range(0, 181, 5))
    layers: int = 80
    seed: int = 0
    model: str = ""
    blocks: int = 6


QUICK = Params(starts=15, angles=tuple(range(0, 181, 20)), layers=50, blocks=0)


class LearnedForm(NamedTuple):
    """The A of one head, and what it does to the tokens of a sentence."""

    head: str
    tokens: int
    antisymmetric: float  # |A - A^T| / 2|A|, Frobenius
    least: float  # eigenvalue of the symmetric part, divided by the largest size of one
    effect: FormEffect


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """The turn, the families of forms, the collapse, and the heads of a model if one is named."""
    sensible = p.d >= 2 and p.n >= 3 and p.starts >= 1 and p.layers >= 2
    require(sensible, "d >= 2, n >= 3, starts >= 1, layers >= 2", p)
    names = list(families_of(p.d))
    angles = over_grid(_turned, p, {"degrees": p.angles}, part(progress, 0, 0.5))
    drawn = over_grid(_drawn, p, {"A": names}, part(progress, 0.5, 0.7))
    turned, families = dict(zip(p.angles, angles)), dict(zip(names, drawn))
    collapse, collapse_table, collapse_picture = _collapse(p)
    part(progress, 0.7, 1)(0.2, "heads")
    heads = _heads(p)
    note = "Numbers of leaders and clusters are means; the other columns are shares of the starts."
    tables = [
        _table("A turned by an angle", "degrees", turned, note),
        _table("Families of forms", "A", families),
        collapse_table,
    ]
    pictures = [_phase(p, turned), collapse_picture]
    if heads:
        tables.append(_head_table(heads))
        pictures.append(_heads_picture(heads))
    effects = [f for runs in (*angles, *drawn) for f in runs] + [h.effect for h in heads]
    worst = max(f.left_hull for f in effects)
    statement = "the hull of the tokens shrinks, whatever the matrix A"
    source = "docs/mathematics.md B1"
    shrinks = at_most("hull shrinks", source, statement, worst, 1e-12, runs=len(effects))
    checks = {"any A": [shrinks], "three tokens": [collapse]}
    summary = _summary(turned, families) + _learned_text(heads)
    return report_of(__name__, p, summary, tables=tables, checks=checks, figures=pictures)


def _start(p: Params, s: int) -> np.ndarray:
    return cy.configurations.gaussian(p.n, p.d, p.seed + s)


def _turned(p: Params, angle: int) -> list[FormEffect]:
    return [effect_of(turn(p.d, angle), _start(p, s), p.alpha, p.layers) for s in range(p.starts)]


def _drawn(p: Params, family: str) -> list[FormEffect]:
    draw = families_of(p.d)[family]
    forms = [draw(np.random.default_rng([p.seed, s])) for s in range(p.starts)]
    return [effect_of(A, _start(p, s), p.alpha, p.layers) for s, A in enumerate(forms)]


def _collapse(p: Params) -> tuple[cy.Check, cy.Table, cy.Picture]:
    """docs/mathematics.md B16 on its own three tokens."""
    dynamics = cy.PureAttention(cy.Hardmax(turn(2, TURN)), alpha=p.alpha)
    tr = cy.simulate(dynamics, cy.configurations.polygon(3), layers=20, throw=False)
    assert tr.history is not None
    z, layers = tr.values, int(tr.t[-1])
    eta = p.alpha / (1 + p.alpha)
    factor = abs(1 - eta + eta * np.exp(2j * np.pi / 3))
    size = np.linalg.norm(z - z.mean(axis=1, keepdims=True), axis=-1).max(axis=1)
    fitted = float((size[-1] / size[0]) ** (1 / layers))
    (check,) = cy.check(tr, ["B16"])
    columns = ("layers", "leaders", "factor per layer", "|rho + eta e^(2 pi i/3)|", "status")
    row = (layers, int((tr.history.born >= 0).sum()), fitted, factor, tr.status.code)
    figure, axes = cy.plot.sheet(1, 2, 4.5, 3.6)
    left, right = axes[0]
    for i, colour in enumerate(cy.plot.PALETTE[:3]):
        left.plot(*z[:, i].T, ".-", color=colour, lw=1, ms=4)
        left.plot(*z[0, i], "o", color=colour, ms=8)
    left.set(aspect="equal", xlabel="$z_1$", ylabel="$z_2$")
    right.plot(tr.t, size, "o", color=cy.plot.PALETTE[0], ms=4, label="this run")
    right.plot(tr.t, size[0] * factor**tr.t, "--", color=cy.plot.GREY, label="known rate")
    right.set(yscale="log", xlabel="layer $k$", ylabel="distance to the centre")
    right.set_xticks(range(0, layers + 1, 5))
    right.legend(frameon=False, fontsize=cy.plot.LABEL)
    caption = (
        "Each token follows the next one for ever; nobody leads. Right: the distance to the centre "
        "by layer beside the rate |rho + eta e^(2 pi i/3)|^k."
    )
    table = cy.Table("The collapse of three tokens", columns, (row,))
    return check, table, cy.Picture("Three tokens, A turned by 75 degrees", caption, figure)


def _mean(runs: list[FormEffect], column: str) -> float:
    return float(np.mean([MEANS[column](f) for f in runs]))


def _table(
    title: str, name: str, groups: Mapping[Any, list[FormEffect]], note: str = ""
) -> cy.Table:
    rows = ((form, *(_mean(runs, column) for column in MEANS)) for form, runs in groups.items())
    return cy.Table(title, (name, *MEANS), tuple(rows), note)


def _heads(p: Params) -> list[LearnedForm]:
    """Heads of the first layers of the model named, or of MiniLM where it is installed."""
    if not p.blocks or find_spec("transformers") is None:
        return []
    model = example_transformer(p.model)
    if weights_note(model):  # random weights stand in for a model that is not there
        return []
    heads = [h for k in range(min(p.blocks, model.depth)) for h in model.heads(k)]
    z0 = model.trace(SENTENCE).z[0].astype(np.float64)
    return [kept(_learned, p, h.name, h.A.astype(np.float64), z0) for h in heads]


def _learned(p: Params, name: str, A: np.ndarray, z0: np.ndarray) -> LearnedForm:
    eigenvalues = np.linalg.eigvalsh((A + A.T) / 2)
    share = float(np.linalg.norm(A - A.T) / 2 / np.linalg.norm(A))
    least = float(eigenvalues[0] / np.abs(eigenvalues).max())
    return LearnedForm(name, len(z0), share, least, effect_of(A, z0, p.alpha, p.layers))


def _head_table(heads: list[LearnedForm]) -> cy.Table:
    columns = {
        **{"head": "head", "antisymmetric share": "antisymmetric"},
        **{"least / largest eigenvalue": "least", "leaders": "effect.leaders"},
        **{"clusters": "effect.clusters", "circle": "effect.cycle"},
        "norms fell": "effect.norms_fell",
    }
    note = f"{heads[0].tokens} tokens of a sentence; eigenvalues of the symmetric part of A."
    return cy.Table.of("Heads of a trained transformer", heads, columns, note)


def _heads_picture(heads: list[LearnedForm]) -> cy.Picture:
    blue, orange, *_ = cy.plot.PALETTE
    figure, axes = cy.plot.sheet(1, 2, 5, 3.6)
    left, right = axes[0]
    for circles, name in ((True, "followers in a circle"), (False, "no circle")):
        of = [h for h in heads if h.effect.cycle == circles]
        x, y = [h.antisymmetric for h in of], [h.effect.clusters for h in of]
        fill = orange if circles else "white"
        left.plot(x, y, "o", color=orange, mfc=fill, ms=6, alpha=0.7, label=name)
    left.set(xlabel="antisymmetric share of A", ylabel="clusters", xlim=(0, 1))
    left.set_ylim(bottom=0)
    most = max(h.effect.clusters for h in heads)
    for shift, colour, what in ((-0.2, blue, "leaders"), (0.2, orange, "clusters")):
        count = np.bincount([getattr(h.effect, what) for h in heads], minlength=most + 1)
        right.bar(np.arange(len(count)) + shift, count, 0.4, color=colour, label=what)
    right.set(xlabel="number of them", ylabel="heads")
    right.locator_params(axis="x", integer=True)
    for ax in axes[0]:
        ax.legend(frameon=False, fontsize=cy.plot.LABEL)
    caption = (
        "Left: one dot per head, how far its A is from symmetric (0: symmetric, 1: antisymmetric, "
        "0.71: random) against the clusters its hardmax layers leave of a sentence; filled where "
        "tokens follow each other in a circle at an early layer. Right: heads by number of leaders "
        "and of clusters; where the two differ some cluster has no leader."
    )
    return cy.Picture("Heads of a trained transformer", caption, figure)


def _summary(turned: dict[int, list[FormEffect]], families: dict[str, list[FormEffect]]) -> str:
    def first(column: str, least: float | int = 0) -> int | None:
        """The smallest angle at which the mean of the column is larger than `least`."""
        angles = (angle for angle, runs in turned.items() if _mean(runs, column) > least)
        return min(angles, default=None)

    fell, circled, single = first("norms fell"), first("circle"), first("one cluster", 0.5)
    norms = "Norms never fall" if fell is None else f"Norms fall from {fell} degrees on"
    circles = "no circle of followers appears"
    if circled is not None:
        circles = f"circles of followers appear from {circled} degrees on"
    most = f"{'no angle makes' if single is None else f'at {single} degrees'} most starts end"
    definite, arbitrary = families["positive definite symmetric part"], families["arbitrary"]
    return (
        f"{norms}, {circles}, and {most} in a single cluster. With a positive definite symmetric "
        f"part {1 - _mean(definite, 'none leads'):.0%} of the runs still have a leader and "
        f"{_mean(definite, 'one cluster'):.0%} end in one cluster; for an arbitrary matrix "
        f"{1 - _mean(arbitrary, 'none leads'):.0%} have a leader and "
        f"{_mean(arbitrary, 'still moving'):.0%} still move at the last layer. The hull shrinks in "
        "every run, as it must for any A."
    )


def _learned_text(heads: list[LearnedForm]) -> str:
    if not heads:
        return ""
    of = [h.effect for h in heads]
    return (
        f"\n\nOf {len(heads)} heads of a trained transformer {sum(h.least > 0 for h in heads)} "
        f"have a positive definite symmetric part; the median antisymmetric share is "
        f"{np.median([h.antisymmetric for h in heads]):.2f}. As hardmax layers on the "
        f"{heads[0].tokens} tokens of a sentence {1 - _mean(of, 'none leads'):.0%} of them have a "
        f"leader, {np.mean([f.clusters > f.leaders for f in of]):.0%} a cluster without one, "
        f"{_mean(of, 'one cluster'):.0%} end in one cluster, {_mean(of, 'circle'):.0%} show "
        f"followers in a circle, and norms fall in {_mean(of, 'norms fell'):.0%}."
    )


def _phase(p: Params, turned: dict[int, list[FormEffect]]) -> cy.Picture:
    angles = np.array(list(turned))
    most = max(f.clusters for runs in turned.values() for f in runs)
    counts = [np.bincount([f.clusters for f in r], minlength=most + 1)[1:] for r in turned.values()]
    share = np.array(counts).T / p.starts
    figure, axes = cy.plot.sheet(1, 3, 4.3, 3.8)
    left, middle, right = axes[0]
    half = (angles[1] - angles[0]) / 2 if len(angles) > 1 else 1
    extent = (angles[0] - half, angles[-1] + half, 0.5, most + 0.5)
    grid: dict[str, Any] = {"origin": "lower", "aspect": "auto", "extent": extent}
    image = left.imshow(np.where(share > 0, share, np.nan), cmap="Blues", vmin=0, **grid)
    figure.colorbar(image, ax=left, label="share of the starts")
    left.set_ylabel("clusters")
    left.grid(False)
    lines = (
        (middle, "s-", 1, "clusters", "clusters"),
        (middle, "o-", 0, "leaders", "leaders"),
        (right, "o-", 2, "circle", "followers in a circle"),
        (right, "o-", 3, "still moving", "still moving"),
        (right, "o-", 4, "norms fell", "norms fell"),
    )
    for ax, style, colour, column, label in lines:
        y = [_mean(runs, column) for runs in turned.values()]
        ax.plot(angles, y, style, color=cy.plot.PALETTE[colour], ms=4, label=label)
    middle.set_ylabel("mean number")
    middle.set_ylim(bottom=0)
    right.set(ylabel="share of the starts", ylim=(-0.03, 1.03))
    for ax in (middle, right):
        ax.legend(frameon=False, fontsize=cy.plot.LABEL)
    for ax in axes[0]:
        ax.set(xlabel="angle of A in degrees", xticks=range(0, int(angles[-1]) + 1, 45))
    caption = (
        "A is a rotation by the angle (its symmetric part is cos(angle) I). Clusters are those of "
        "the last layer; right: tokens follow each other in a circle at an early layer, some norm "
        "falls, some token still moves at the last layer."
    )
    return cy.Picture("Clusters and leaders against the angle", caption, figure)
