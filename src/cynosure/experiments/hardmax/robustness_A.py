"""What is left of leaders and clusters when A is not symmetric positive definite.

The theorem of arXiv 2407.01602 asks for a symmetric positive definite A; the KᵀQ of a trained head
is neither. See: the hull of the tokens shrinks for every A (that part of the proof needs nothing),
but norms fall, leaders vanish and tokens chase each other in circles as A turns; three tokens
under a turn by 75 degrees have no leader at all and collapse to their centre at a known rate
(docs/mathematics.md B16). The A = K^T Q of every head of a trained transformer (MiniLM where it is
installed, or the one that `model` names) are measured on the tokens of a sentence.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple, final

import numpy as np

from ...attention import Hardmax
from ...drawing.report import Picture, Report, Table
from ...drawing.style import sheet
from ...dynamics import PureAttention
from ...pretrained.examples import SENTENCE, example_transformer, weights_note
from ...simulation import configurations
from ...simulation.loop import simulate
from ...theorems import Check, check
from .._frame import Progress, at_most, silent
from .._measurements import kept
from ._forms import Fate, families_of, fate, turn

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Robustness: forms A that the theorem does not allow"
TURN = 75  # degrees: the rotation of docs/mathematics.md B16


@final
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


def run(p: Params, progress: Progress | None = None) -> Report:
    """The turn, the families of forms, the collapse, and the heads of a model if one is named."""
    say = progress or silent
    if p.d < 2 or p.n < 3 or p.starts < 1 or p.layers < 2:
        raise ValueError(f"robustness_A: d >= 2, n >= 3, starts >= 1, layers >= 2; got {p}")
    turned = {}
    for done, angle in enumerate(p.angles):
        say(0.5 * done / len(p.angles), f"A turned by {angle} degrees")
        turned[angle] = kept(_turned, p, angle)
    families = {}
    for done, name in enumerate(families_of(p.d)):
        say(0.5 + 0.2 * done / 7, name)
        families[name] = kept(_drawn, p, name)
    say(0.7, "collapse")
    collapse, table, picture = _collapse(p)
    tables = [_angle_table(turned), _family_table(families), table]
    figures = [
        Picture("Clusters and leaders against the angle", _PHASE, _phase(p, turned)),
        Picture("Three tokens, A turned by 75 degrees", _COLLAPSE, picture),
    ]
    say(0.75, "heads")
    heads = _heads(p)
    if heads:
        tables.append(_head_table(heads))
        figures.append(Picture("Heads of a trained transformer", _HEADS, _heads_picture(heads)))
    say(0.95, "figures")
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(turned, families, heads),
        asdict(p),
        tuple(tables),
        {"any A": (_hull_check(turned, families, heads),), "three tokens": (collapse,)},
        tuple(figures),
        command="cynosure run robustness_A",
    )


_PHASE = (
    "A is a rotation by the angle (its symmetric part is cos(angle) I). Left: share of the starts "
    "by number of clusters at the last layer. Middle: mean number of leaders and of clusters. "
    "Right: share of the starts from which tokens follow each other in a circle at an early layer, "
    "some norm falls, some token still moves at the last layer."
)
_COLLAPSE = (
    "Each token follows the next one for ever; nobody leads. Left: the paths. Right: the distance "
    "to the centre by layer beside the rate |rho + eta e^(2 pi i/3)|^k."
)


_HEADS = (
    "Left: one dot per head, how far its A is from symmetric (0: symmetric, 1: antisymmetric, "
    "0.71: random) against the number of clusters its hardmax layers leave of a sentence; filled "
    "where tokens follow each other in a circle at an early layer. Right: how many heads have so "
    "many leaders, so many clusters; where the two differ some cluster has no leader."
)


def _start(p: Params, s: int) -> np.ndarray:
    return configurations.gaussian(p.n, p.d, p.seed + s)


def _turned(p: Params, angle: int) -> list[Fate]:
    return [fate(turn(p.d, angle), _start(p, s), p.alpha, p.layers) for s in range(p.starts)]


def _drawn(p: Params, family: str) -> list[Fate]:
    draw = families_of(p.d)[family]
    forms = [draw(np.random.default_rng([p.seed, s])) for s in range(p.starts)]
    return [fate(A, _start(p, s), p.alpha, p.layers) for s, A in enumerate(forms)]


def _collapse(p: Params) -> tuple[Check, Table, Any]:
    """Theory B16 on its own three tokens."""
    from matplotlib.figure import Figure

    from ...drawing.plot import GREY, PALETTE

    dynamics = PureAttention(Hardmax(turn(2, TURN)), alpha=p.alpha)
    tr = simulate(dynamics, configurations.polygon(3), layers=20, throw=False)
    z = tr.values
    eta = p.alpha / (1 + p.alpha)
    factor = abs(1 - eta + eta * np.exp(2j * np.pi / 3))
    size = np.linalg.norm(z - z.mean(axis=1, keepdims=True), axis=-1).max(axis=1)
    fitted = float((size[-1] / size[0]) ** (1 / tr.t[-1]))
    (found,) = check(tr, ["B16"])
    leaders = int((tr.history.born >= 0).sum()) if tr.history is not None else 0
    columns = ("layers", "leaders", "factor per layer", "|rho + eta e^(2 pi i/3)|", "status")
    row = (int(tr.t[-1]), leaders, fitted, factor, tr.status.code)
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for colour, i in zip(PALETTE, range(3)):
        left.plot(*z[:, i].T, ".-", color=colour, lw=1, ms=4)
        left.plot(*z[0, i], "o", color=colour, ms=8)
    left.set(aspect="equal", xlabel="$z_1$", ylabel="$z_2$")
    right.plot(tr.t, size, "o", color=PALETTE[0], ms=4, label="measured")
    right.plot(tr.t, size[0] * factor**tr.t, "--", color=GREY, label="known rate")
    right.set(yscale="log", xlabel="layer $k$", ylabel="distance to the centre")
    right.set_xticks(range(0, int(tr.t[-1]) + 1, 5))
    right.legend(frameon=False, fontsize="small")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    return found, Table("The collapse of three tokens", columns, (row,)), figure


def _hull_check(turned: dict, families: dict, heads: list[Learned]) -> Check:
    fates = [f for group in (turned, families) for fs in group.values() for f in fs]
    fates += [h.fate for h in heads]
    statement = "the hull of the tokens shrinks, whatever the matrix A"
    growth = max(f.left_hull for f in fates)  # in some direction
    return at_most("B1", "docs/mathematics.md B1", statement, growth, 1e-12, runs=len(fates))


def _row(fates: list[Fate]) -> tuple[float, ...]:
    return (
        float(np.mean([f.leaders for f in fates])),
        float(np.mean([f.leaders == 0 for f in fates])),
        float(np.mean([f.clusters for f in fates])),
        float(np.mean([f.clusters == 1 for f in fates])),
        float(np.mean([f.cycle for f in fates])),
        float(np.mean([f.moving > 1e-6 for f in fates])),
        float(np.mean([f.norms_fell for f in fates])),
    )


_COLUMNS = (
    "leaders",
    "none leads",
    "clusters",
    "one cluster",
    "circle",
    "still moving",
    "norms fell",
)


def _angle_table(turned: dict[int, list[Fate]]) -> Table:
    rows = tuple((angle, *_row(fates)) for angle, fates in turned.items())
    note = "Numbers of leaders and clusters are means; the other columns are shares of the starts."
    return Table("A turned by an angle", ("degrees", *_COLUMNS), rows, note)


def _family_table(families: dict[str, list[Fate]]) -> Table:
    rows = tuple((name, *_row(fates)) for name, fates in families.items())
    return Table("Families of forms", ("A", *_COLUMNS), rows)


class Learned(NamedTuple):
    """The A of one head, and how the run under it ended."""

    head: str
    tokens: int
    antisymmetric: float  # |A - A^T| / 2|A|, Frobenius
    least: float  # eigenvalue of the symmetric part, divided by the largest size of one
    fate: Fate


def _heads(p: Params) -> list[Learned]:
    """Heads of the first layers of the model named, or of MiniLM where it is installed."""
    if not p.blocks or find_spec("transformers") is None:
        return []
    model = example_transformer(p.model)
    if weights_note(model):  # random weights stand in for a model that is not there
        return []
    heads = [h for k in range(min(p.blocks, model.depth)) for h in model.heads(k)]
    z0 = model.trace(SENTENCE).z[0].astype(np.float64)
    return [kept(_learned, p, h.name, h.A.astype(np.float64), z0) for h in heads]


def _learned(p: Params, name: str, A: np.ndarray, z0: np.ndarray) -> Learned:
    eigenvalues = np.linalg.eigvalsh((A + A.T) / 2)
    share = float(np.linalg.norm(A - A.T) / 2 / np.linalg.norm(A))
    least = float(eigenvalues[0] / np.abs(eigenvalues).max())
    return Learned(name, len(z0), share, least, fate(A, z0, p.alpha, p.layers))


def _head_table(heads: list[Learned]) -> Table:
    rows = tuple(
        (
            h.head,
            h.antisymmetric,
            h.least,
            h.fate.leaders,
            h.fate.clusters,
            h.fate.cycle,
            h.fate.norms_fell,
        )
        for h in heads
    )
    columns = ("head", "antisymmetric share", "least / largest eigenvalue", "leaders", "clusters")
    note = f"{heads[0].tokens} tokens of a sentence; eigenvalues of the symmetric part of A."
    return Table("Heads of a trained transformer", (*columns, "circle", "norms fell"), rows, note)


def _heads_picture(heads: list[Learned]) -> Any:
    from matplotlib.ticker import MaxNLocator

    from ...drawing.plot import PALETTE

    figure, axes = sheet(1, 2, width=5, height=3.6)
    left, right = axes[0]
    for circles, name in ((True, "followers in a circle"), (False, "no circle")):
        of = [h for h in heads if h.fate.cycle == circles]
        x, y = [h.antisymmetric for h in of], [h.fate.clusters for h in of]
        fill = PALETTE[1] if circles else "white"
        left.plot(x, y, "o", color=PALETTE[1], mfc=fill, ms=6, alpha=0.7, label=name)
    left.set(xlabel="antisymmetric share of A", ylabel="clusters", xlim=(0, 1))
    left.set_ylim(bottom=0)
    most = max(h.fate.clusters for h in heads)
    for shift, colour, what in ((-0.2, PALETTE[0], "leaders"), (0.2, PALETTE[1], "clusters")):
        count = np.bincount([getattr(h.fate, what) for h in heads], minlength=most + 1)
        right.bar(np.arange(len(count)) + shift, count, 0.4, color=colour, label=what)
    right.set(xlabel="number of them", ylabel="heads")
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    for ax in (left, right):
        ax.legend(frameon=False, fontsize="small")
    return figure


def _summary(
    turned: dict[int, list[Fate]], families: dict[str, list[Fate]], heads: list[Learned]
) -> str:
    fell = [a for a, fs in turned.items() if any(f.norms_fell for f in fs)]
    circled = [a for a, fs in turned.items() if any(f.cycle for f in fs)]
    single = [a for a, fs in turned.items() if np.mean([f.clusters == 1 for f in fs]) > 0.5]
    definite_part = families["positive definite symmetric part"]
    text = (f"Norms fall from {min(fell)} degrees on, " if fell else "Norms never fall, ") + (
        f"circles of followers appear from {min(circled)} degrees on, "
        if circled
        else "no circle of followers appears, "
    )
    most = (
        f"and at {min(single)} degrees most starts end in a single cluster."
        if single
        else "and no angle makes most starts end in a single cluster."
    )
    arbitrary = families["arbitrary"]
    return (
        f"{text}{most} With a positive definite symmetric part "
        f"{np.mean([f.leaders > 0 for f in definite_part]):.0%} of the runs still have a leader "
        f"and {np.mean([f.clusters == 1 for f in definite_part]):.0%} end in one cluster; for an "
        f"arbitrary matrix {np.mean([f.leaders > 0 for f in arbitrary]):.0%} have a leader and "
        f"{np.mean([f.moving > 1e-6 for f in arbitrary]):.0%} still move at the last layer. The "
        f"hull shrinks in every run, as it must for any A." + _learned_text(heads)
    )


def _learned_text(heads: list[Learned]) -> str:
    if not heads:
        return ""
    of = [h.fate for h in heads]
    return (
        f"\n\nOf {len(heads)} heads of a trained transformer {sum(h.least > 0 for h in heads)} "
        f"have a positive definite symmetric part; the median antisymmetric share is "
        f"{np.median([h.antisymmetric for h in heads]):.2f}. As hardmax layers on the "
        f"{heads[0].tokens} tokens of a sentence {np.mean([f.leaders > 0 for f in of]):.0%} of "
        f"them have a leader, {np.mean([f.clusters > f.leaders for f in of]):.0%} a cluster "
        f"without one, {np.mean([f.clusters == 1 for f in of]):.0%} end in one cluster, "
        f"{np.mean([f.cycle for f in of]):.0%} show followers in a circle, and norms fall in "
        f"{np.mean([f.norms_fell for f in of]):.0%}."
    )


def _phase(p: Params, turned: dict[int, list[Fate]]) -> Any:
    from matplotlib.figure import Figure

    from ...drawing.plot import PALETTE

    angles = np.array(list(turned))
    most = max(f.clusters for fs in turned.values() for f in fs)
    share = np.array(
        [np.bincount([f.clusters for f in fs], minlength=most + 1)[1:] for fs in turned.values()]
    ) / len(turned[p.angles[0]])
    figure = Figure(figsize=(13, 3.8), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    half = (angles[1] - angles[0]) / 2 if len(angles) > 1 else 1
    image = left.imshow(
        np.where(share.T > 0, share.T, np.nan),
        origin="lower",
        aspect="auto",
        cmap="Blues",
        vmin=0,
        extent=(angles[0] - half, angles[-1] + half, 0.5, most + 0.5),
    )
    figure.colorbar(image, ax=left, label="share of the starts")
    left.set_ylabel("clusters")
    rows = np.array([_row(fs) for fs in turned.values()])
    middle.plot(angles, rows[:, 2], "s-", color=PALETTE[1], ms=4, label="clusters")
    middle.plot(angles, rows[:, 0], "o-", color=PALETTE[0], ms=4, label="leaders")
    middle.set_ylabel("mean number")
    middle.set_ylim(bottom=0)
    names = ("followers in a circle", "still moving", "norms fell")
    for colour, column, name in zip(PALETTE[2:], (4, 5, 6), names):
        right.plot(angles, rows[:, column], "o-", color=colour, ms=4, label=name)
    right.set(ylabel="share of the starts", ylim=(-0.03, 1.03))
    for ax in (middle, right):
        ax.legend(frameon=False, fontsize="small")
    for ax in (left, middle, right):
        ax.set(xlabel="angle of A in degrees", xticks=range(0, int(angles[-1]) + 1, 45))
        ax.spines[["top", "right"]].set_visible(False)
    return figure
