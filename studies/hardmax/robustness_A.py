"""What is left of leaders and clusters when A is not symmetric positive definite.

The theorem of arXiv 2407.01602 asks for a symmetric positive definite A; the K^T Q of a trained
head is neither. For every A the hull shrinks (docs/mathematics.md B1), and every vertex of the
limiting polytope K is the limit of some token. See: norms fall and tokens chase each other in
circles as A turns, though not indefinitely. A conjecture, for *any* A and almost every start: every
limit is reached, and a leader stands at every vertex of K. Three tokens under a turn by 75 degrees
do circle indefinitely (docs/mathematics.md B16), but only from a start without an error.

Trap: at alpha = 1 two mutual followers land on one point in a single layer. Counted as two values
they can never lead, and whole families of A seem to be leaderless; at alpha = 0.999 none is. So
alpha = 1 has rows of its own here.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st

from ._forms import FAMILIES, effect_of, form_of, turn

TITLE = "Robustness: forms A that the theorem does not allow"
TURN = 75  # degrees: the rotation of docs/mathematics.md B16
MEETING = 1.0  # the step at which mutual followers meet in one layer
MEANS: dict[str, Callable[[st.Cell], float | int]] = {  # columns of the tables: means
    "proved": lambda f: f.certified,
    "none leads": lambda f: f.leaders == 0,
    "leaders": lambda f: f.leaders,
    "limits": lambda f: f.limits,
    "one limit": lambda f: f.limits == 1,
    "circle": lambda f: f.cycle,
    "norms fell": lambda f: f.norms_fell,
}


@dataclass(frozen=True)
class Params:
    """Gaussian starts of n tokens in R^d for each (n, d) of `sizes`, steps alpha, and forms A.

    `angles` in degrees are those of the rotations; the families of forms are drawn for every size.
    `layers` are run for norms and circles. `nudges`: sizes of the error of the three tokens.
    """

    sizes: tuple[tuple[int, int], ...] = ((20, 2), (20, 8))
    alpha: tuple[float, ...] = (0.5, 0.999, 1.0, 2.0)
    starts: int = 100
    angles: tuple[int, ...] = tuple(range(0, 181, 15))
    layers: int = 30
    nudges: tuple[float, ...] = (1e-1, 1e-2, 1e-4, 1e-6, 1e-8, 1e-10)
    seed: int = 0


QUICK = Params(
    sizes=((12, 2), (10, 4)), alpha=(0.5, 1.0), starts=8, angles=(0, 45, 90, 135, 180),
    nudges=(1e-1, 1e-4),
)  # fmt: skip


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """The turn, the families of forms, and the three tokens."""
    sensible = p.starts >= 1 and p.layers >= 2 and all(n >= 3 and d >= 2 for n, d in p.sizes)
    expected = "n >= 3, d >= 2, starts >= 1, layers >= 2, alpha > 0"
    st.require(sensible and min(p.alpha) > 0, expected, p)
    part, grid = partial(st.part, progress), st.over_grid
    turned = grid(_turned, p, {"degrees": p.angles, "alpha": p.alpha}, part(0, 0.3))
    names = {"A": FAMILIES, "size": p.sizes, "alpha": p.alpha}
    families = grid(_drawn, p, names, part(0.3, 0.8))
    nudged = grid(_nudged, p, {"nudge": p.nudges, "alpha": p.alpha}, part(0.8, 0.85))
    collapse, collapse_table = _collapse(p)
    note = "Numbers of leaders and limits are means; the other columns are shares of the starts."
    born = st.columns("size of the error = nudge, alpha, starts = len born")
    born |= {"with a leader": lambda c: int((c.born >= 0).sum())}
    born |= st.columns("first leader at layer: median = median born, latest = max born")
    tables = [
        _by_alpha(p, [*turned, *families]),
        _table("A turned by an angle", turned, note),
        _table("Families of forms", families),
        collapse_table,
        st.Table.of("Three tokens with an error", nudged, born),
    ]
    effects = [f for c in (*turned, *families) for f in c.runs]
    shrinks = st.at_most(
        "hull shrinks",
        "docs/mathematics.md B1",
        "the hull of the tokens shrinks, whatever the matrix A",
        max(f.left_hull for f in effects),
        1e-12,
        runs=len(effects),
    )
    return st.report_of(
        p,
        _summary(p, turned, families),
        controls=_controls(p, turned, families, nudged),
        tables=tables,
        checks={"any A": [shrinks], "three tokens": [collapse]},
        figures=[st.Picture.of("Limits and leaders against the angle", _phase, p, turned)],
    )


def _starts(p: Params, size: tuple[int, int], group: str) -> list[np.ndarray]:
    """Of their own for every form, the same for every alpha: counts over forms are independent."""
    rng = np.random.default_rng([p.seed, *size, *group.encode()])
    return [rng.standard_normal(size) for _ in range(p.starts)]


def _turned(p: Params, angle: int, alpha: float | int) -> st.Cell:
    """What the turn does to all starts; A is the angle."""
    n, d = size = p.sizes[0]
    starts = _starts(p, size, str(angle))
    runs = [effect_of(turn(d, angle), z, alpha, p.layers) for z in starts]
    return st.Cell(A=str(angle), n=n, d=d, alpha=float(alpha), runs=runs)


def _drawn(p: Params, family: str, size: tuple[int, int], alpha: float | int) -> st.Cell:
    n, d = size
    forms = (form_of(family, d, np.random.default_rng([p.seed, s])) for s in range(p.starts))
    starts = _starts(p, size, family)
    runs = [effect_of(A, z, alpha, p.layers) for A, z in zip(forms, starts)]
    return st.Cell(A=family, n=n, d=d, alpha=float(alpha), runs=runs)


def _collapse(p: Params) -> tuple[cy.theorems.Check, st.Table]:
    """docs/mathematics.md B16 on its own three tokens, at the first alpha."""
    alpha = p.alpha[0]
    dynamics = cy.PureAttention(cy.Hardmax(turn(2, TURN)), alpha=alpha)
    tr = cy.simulate(dynamics, cy.configurations.polygon(3), layers=20, throw=False)
    assert tr.history is not None
    z, layers = tr.values, int(tr.t[-1])
    eta = alpha / (1 + alpha)
    factor = abs(1 - eta + eta * np.exp(2j * np.pi / 3))
    size = np.linalg.norm(z - z.mean(axis=1, keepdims=True), axis=-1).max(axis=1)
    fitted = float((size[-1] / size[0]) ** (1 / layers))
    (check,) = cy.check(tr, ["B16"])
    columns = ("alpha", "layers", "leaders", "factor per layer", "|rho + eta e^(2 pi i/3)|")
    row = (alpha, layers, int((tr.history.born >= 0).sum()), fitted, factor)
    return check, st.Table("The collapse of three tokens", columns, (row,))


def _nudged(p: Params, nudge: float | int, alpha: float | int) -> st.Cell:
    """Layer of the first leader of each start near the three tokens of docs/mathematics.md B16, -1
    where nobody ever leads."""
    dynamics = cy.PureAttention(cy.Hardmax(turn(2, TURN)), alpha=alpha)
    triangle, born = cy.configurations.polygon(3), []
    for s in range(min(p.starts, 30)):
        error = np.random.default_rng([p.seed, s, 3]).standard_normal(triangle.shape)
        li = cy.limit(dynamics, triangle + nudge * error, max_layers=1000)
        born.append(int(li.born[li.leaders].min()) if len(li.leaders) else -1)
    return st.Cell(nudge=float(nudge), alpha=float(alpha), born=np.array(born))


def _mean(c: st.Cell, column: str) -> float:
    return float(np.mean([MEANS[column](f) for f in c.runs]))


# --- what is said --------------------------------------------------------------------------------


def _count(cells: Iterable[st.Cell], holds: Callable[[st.Cell], bool]) -> tuple[int, int]:
    runs = [f for c in cells for f in c.runs]
    return sum(holds(f) for f in runs), len(runs)


def _sound(f: st.Cell) -> bool:
    """Proved, with a leader at every vertex of K."""
    return f.certified and f.leaders > 0 and f.led == f.vertices


def _by_step(
    p: Params, cells: list[st.Cell], holds: Callable[[st.Cell], bool]
) -> dict[float, tuple[int, int]]:
    return {a: _count((c for c in cells if c.alpha == a), holds) for a in p.alpha}


def _told(by_step: Mapping[float, tuple[int, int]]) -> str:
    return st.shares({f"alpha = {a:g}": seen for a, seen in by_step.items()})


def _first(turned: list[st.Cell], alpha: float, column: str, least: float | int = 0) -> int | None:
    """The smallest angle at which the mean of the column is larger than `least`."""
    cells = (c for c in turned if c.alpha == alpha and _mean(c, column) > least)
    return min((int(c.A) for c in cells), default=None)


def _from(angle: int | None) -> str:
    return "at no angle" if angle is None else f"from {angle} degrees on"


def _controls(
    p: Params, turned: list[st.Cell], families: list[st.Cell], nudged: list[st.Cell]
) -> list[st.Comparison]:
    everything = [*turned, *families]
    sound = _by_step(p, everything, _sound)
    leaderless = _by_step(p, everything, lambda f: f.leaders == 0)
    besides = [a for a in p.alpha if a != MEETING]
    varied = f"alpha, {len({c.A for c in families})} families and {len(p.angles)} angles of A, "
    varied += "(n, d) in " + ", ".join(map(str, p.sizes))
    angles = {a: [_first(turned, a, c) for c in ("norms fell", "circle")] for a in p.alpha}
    single = {a: _first(turned, a, "one limit", 0.5) for a in p.alpha}
    born = {x: np.concatenate([c.born for c in nudged if c.nudge == x]) for x in p.nudges}
    circling = {f"error {x:g}": (int((of < 0).sum()), len(of)) for x, of in born.items()}
    return [
        st.Comparison(
            "Conjecture: for any A and almost every start all limits are reached and a leader "
            "stands at every vertex of K.",
            varied,
            _told(sound),
            bool(besides) and all(sound[a][0] == sound[a][1] for a in besides),
        ),
        st.Comparison(
            "Some forms A leave random starts without a leader.",
            f"{varied}; alpha = {MEETING:g}, where mutual followers meet in one layer, by itself",
            _told(leaderless),
            any(leaderless[a][0] for a in besides),
        ),
        st.Comparison(
            "Norms fall and circles of followers appear as A turns.",
            "alpha; the null model is the angle 0, where the theorem forbids both",
            "first angle with falling norms, with circles: "
            + "; ".join(f"alpha = {a:g}: {x[0]}, {x[1]}" for a, x in angles.items()),
            all(x and x > 0 for pair in angles.values() for x in pair),
        ),
        st.Comparison(
            "Beyond some angle most starts end in one place.",
            "alpha; the null model is the angle 0",
            "; ".join(f"alpha = {a:g}: {_from(x)}" for a, x in single.items()),
            all(x is not None and x > 0 for x in single.values()),
        ),
        st.Comparison(
            "Three tokens under a turn by 75 degrees follow each other for ever.",
            "an error of the start",
            f"still without a leader: {st.shares(circling)}",
            all(hit == total for hit, total in circling.values()),
        ),
    ]


def _summary(p: Params, turned: list[st.Cell], families: list[st.Cell]) -> str:
    everything = [*turned, *families]
    other = [c for c in everything if c.alpha != MEETING]
    meeting = [c for c in everything if c.alpha == MEETING]
    vertices, led = (sum(getattr(f, x) for c in other for f in c.runs) for x in ("vertices", "led"))
    sound = {a: seen for a, seen in _by_step(p, other, _sound).items() if seen[1]}
    text = (
        "Starts with every limit proved and a leader at every vertex of K, over all forms A tried: "
        f"{_told(sound) or 'none was run'}; a leader stands at {led} of {vertices} vertices. "
    )
    if sound and led == vertices:
        text += (
            "The conjecture that this is so for any A and almost every start is open; proved, for "
            "any A, is that at every late layer some token is near each vertex of K (B41). "
        )
    if meeting:
        none, of = _count(meeting, lambda f: f.leaders == 0)
        text += f"At alpha = 1 nobody leads in {none} of {of} starts" + (
            ": an artefact of two followers that land on one point in one layer and are counted "
            "apart from then on. "
            if none
            else ", as elsewhere. "
        )
    straight = [c for c in turned if c.alpha == p.alpha[0]]
    ends = [f"{_mean(c, 'limits'):.3g} at {c.A} degrees" for c in (straight[0], straight[-1])]
    return f"{text}As A turns the mean number of limits goes from {' to '.join(ends)}."


def _table(title: str, cells: list[st.Cell], note: str = "") -> st.Table:
    columns: dict[str, Any] = {"A": "A", "n": "n", "d": "d", "alpha": "alpha"}
    for name in MEANS:
        columns[name] = lambda c, name=name: _mean(c, name)
    return st.Table.of(title, cells, columns, note)


def _by_alpha(p: Params, cells: list[st.Cell]) -> st.Table:
    rows = []
    for a, of in st.grouped(cells, "alpha").items():
        proved, runs = _count(of, lambda f: f.certified)
        lead, _ = _count(of, lambda f: f.leaders > 0)
        places = (sum(getattr(f, x) for c in of for f in c.runs) for x in ("vertices", "led"))
        rows.append((a, runs, proved, lead, *st.wilson(lead, runs), *places))
    counts = ("alpha", "starts", "proved", "with a leader", "95 % from", "to")
    names = (*counts, "vertices of K", "where a leader stands")
    return st.Table("All forms together, by alpha", names, tuple(rows))


# --- pictures ------------------------------------------------------------------------------------


def _phase(p: Params, turned: list[st.Cell]) -> Any:
    """A is a rotation by the angle (its symmetric part is cos(angle) I). Limits and leaders are
    those of infinite depth. Right: tokens follow each other in a circle at an early layer (solid),
    some norm falls (dotted).
    """
    figure, axes = cy.plot.sheet(1, 3, 4.3, 3.8)
    left, middle, right = axes[0]

    def draw(ax: Any, name: str, style: str = "-", label: str = "") -> None:
        look = {"style": style, "label": label}
        st.curves(ax, turned, lambda c: int(c.A), partial(_mean, column=name), "alpha", **look)

    draw(left, "limits", label=r"$\alpha$ = {:g}")
    draw(middle, "none leads")
    draw(right, "circle")
    draw(right, "norms fell", ":")
    left.set(ylabel="limits (mean)")
    left.set_ylim(bottom=0)
    middle.set(ylabel="share of the starts without a leader", ylim=(-0.03, 1.03))
    right.set(ylabel="share of the starts", ylim=(-0.03, 1.03))
    right.plot([], [], "-", color=cy.plot.INK, label="followers in a circle")
    right.plot([], [], ":", color=cy.plot.INK, label="norms fell")
    for ax in (left, right):
        ax.legend(frameon=False, fontsize=cy.plot.LABEL)
    for ax in axes[0]:
        ax.set(xlabel="angle of A in degrees", xticks=range(0, int(p.angles[-1]) + 1, 45))
    return figure
