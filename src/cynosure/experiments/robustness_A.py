"""What is left of leaders and clusters when A is not symmetric positive definite.

The theorem of arXiv 2407.01602 asks for a symmetric positive definite A; the KᵀQ of a trained head
is neither. See: the hull of the tokens shrinks for every A (that part of the proof needs nothing),
but norms fall, leaders vanish and tokens chase each other in circles as A turns; three tokens
under a turn by 75 degrees have no leader at all and collapse to their centre at a known rate
(theory B16). `model` may name a folder with a transformer: its heads' A are measured too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, final

import numpy as np

from .. import configurations
from ..attention import Hardmax
from ..clustering import clusters
from ..dynamics import PureAttention
from ..report import Picture, Report, Table
from ..simulation import definite, simulate
from ..theorems import Check, check
from ..trajectory import Trajectory
from . import Progress

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Robustness: forms A that the theorem does not allow"
TURN = 75  # degrees: the rotation of theory B16
_WATCHED = 6  # layers searched for circles; later ones are often rounded onto one token


@final
@dataclass(frozen=True)
class Params:
    """Gaussian starts of n tokens, steps of the angle in degrees, and the layers run.

    `model`: a folder with a pre-trained transformer whose heads are to be measured, or "".
    """

    n: int = 20
    d: int = 2
    alpha: float = 1.0
    starts: int = 100
    angles: tuple[int, ...] = tuple(range(0, 181, 5))
    layers: int = 80
    seed: int = 0
    model: str = ""


QUICK = Params(starts=15, angles=tuple(range(0, 181, 20)), layers=50)


class Fate(NamedTuple):
    """How one run ended."""

    leaders: int
    clusters: int
    cycle: bool  # at one of the first layers tokens follow each other in a circle
    moving: float  # largest step of the last layer / longest token of the start
    norms_fell: bool  # |z_i| (or |z_i|_A where that is a norm) fell at some layer
    left_hull: float  # how far a token left the first hull, by supporting directions


def run(p: Params, progress: Progress | None = None) -> Report:
    """The turn, the families of forms, the collapse, and the heads of a model if one is named."""

    def say(share: float, what: str) -> None:
        if progress is not None:
            progress(share, what)

    if p.d < 2 or p.n < 3 or p.starts < 1 or p.layers < 2:
        raise ValueError(f"robustness_A: d >= 2, n >= 3, starts >= 1, layers >= 2; got {p}")
    turned = {}
    for done, angle in enumerate(p.angles):
        say(0.5 * done / len(p.angles), f"A turned by {angle} degrees")
        turned[angle] = [
            _fate(p, _turn(p.d, angle), configurations.gaussian(p.n, p.d, p.seed + s))
            for s in range(p.starts)
        ]
    families = {}
    for done, (name, draw) in enumerate(_families(p.d).items()):
        say(0.5 + 0.3 * done / 8, name)
        families[name] = [
            _fate(p, draw(np.random.default_rng([p.seed, s])), _start(p, s))
            for s in range(p.starts)
        ]
    say(0.8, "collapse")
    collapse, table, picture = _collapse(p)
    tables = [_angle_table(turned), _family_table(families), table]
    if p.model:
        say(0.85, "heads")
        tables.append(_heads(p))
    say(0.9, "figures")
    figures = (
        Picture("Clusters and leaders against the angle", _PHASE, _phase(p, turned)),
        Picture("Three tokens, A turned by 75 degrees", _COLLAPSE, picture),
    )
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(turned, families),
        asdict(p),
        tuple(tables),
        {"any A": (_hull_check(turned, families),), "three tokens": (collapse,)},
        figures,
        command="cynosure run robustness_A",
    )


_PHASE = (
    "A is a rotation by the angle (its symmetric part is cos(angle) I). Left: share of the starts "
    "by number of clusters at the last layer. Right: mean number of leaders and clusters, share of "
    "the runs in which tokens follow each other in a circle at an early layer, that still move at "
    "the last, and whose norms fell."
)
_COLLAPSE = (
    "Each token follows the next one for ever; nobody leads. Left: the paths. Right: the distance "
    "to the centre by layer beside the rate |rho + eta e^(2 pi i/3)|^k."
)


def _start(p: Params, s: int) -> np.ndarray:
    return configurations.gaussian(p.n, p.d, p.seed + s)


def _turn(d: int, degrees: int) -> np.ndarray:
    """A rotation by the angle in every plane (0,1), (2,3), ...; a left-over axis stays."""
    A, t = np.eye(d), np.deg2rad(degrees)
    for i in range(0, d - 1, 2):
        A[i : i + 2, i : i + 2] = [[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]]
    return A


def _families(d: int) -> dict[str, Any]:
    """Random forms by name."""

    def square(rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((d, d))

    def spd(rng: np.random.Generator) -> np.ndarray:
        M = square(rng)
        A = M @ M.T + 0.1 * np.eye(d)
        return (A + A.T) / 2

    def positive_part(rng: np.random.Generator) -> np.ndarray:
        M = square(rng)
        return spd(rng) + (M - M.T)

    def indefinite(rng: np.random.Generator) -> np.ndarray:
        signs = np.where(np.arange(d) % 2 == 0, 1.0, -1.0)
        q = np.linalg.qr(square(rng))[0]
        A = (q * (signs * rng.uniform(0.5, 2, d))) @ q.T
        return (A + A.T) / 2

    def low_rank(rng: np.random.Generator) -> np.ndarray:
        u = rng.standard_normal((d, max(1, d // 2)))
        A = u @ u.T
        return (A + A.T) / 2

    return {
        "symmetric positive definite": spd,
        "positive definite symmetric part": positive_part,
        "arbitrary": square,
        "symmetric, indefinite": indefinite,
        "symmetric, low rank": low_rank,
        "minus the identity": lambda rng: -np.eye(d),
        "antisymmetric": lambda rng: (lambda M: M - M.T)(square(rng)),
    }


def _fate(p: Params, A: np.ndarray, z0: np.ndarray) -> Fate:
    dynamics = PureAttention(Hardmax(A), alpha=p.alpha)
    return _read(simulate(dynamics, z0, layers=p.layers, throw=False), A)


def _read(tr: Trajectory, A: np.ndarray) -> Fate:
    """How a run ended, from its layers."""
    z = tr.values
    longest = float(np.linalg.norm(z[0], axis=1).max())
    assert tr.history is not None
    norms = np.einsum("kia,ab,kib->ki", z, A if definite(A) else np.eye(len(A)), z)
    fell = bool((norms[1:] < norms[:-1] * (1 - 1e-9) - 1e-12 * longest**2).any())
    directions = np.random.default_rng(0).standard_normal((64, z.shape[-1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    width = (z @ directions.T).max(axis=1)  # support function of the hull by layer
    return Fate(
        int((tr.history.born >= 0).sum()),
        clusters(z[-1], tol=1e-4 * longest).count,
        any(_circle(Hardmax(A).followed(zk).target) for zk in z[:_WATCHED]),
        float(np.abs(z[-1] - z[-2]).max()) / longest,
        fell,
        float(np.diff(width, axis=0).max()) / longest,
    )


def _circle(target: np.ndarray) -> bool:
    """True when the map i -> target[i] has a cycle of length two or more."""
    image = np.arange(len(target))
    for _ in range(len(target)):  # after n steps everybody is on a cycle
        image = target[image]
    ends = np.unique(image)
    return bool((target[ends] != ends).any())


def _collapse(p: Params) -> tuple[Check, Table, Any]:
    """Theory B16 on its own three tokens."""
    from matplotlib.figure import Figure

    from ..plot import GREY, PALETTE

    dynamics = PureAttention(Hardmax(_turn(2, TURN)), alpha=p.alpha)
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
    right.plot(tr.t, size, "o", color=PALETTE[0], ms=4, label="distance to the centre")
    right.plot(tr.t, size[0] * factor**tr.t, "--", color=GREY, label="known rate")
    right.set(yscale="log", xlabel="layer $k$")
    right.legend(frameon=False, fontsize="small")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    return found, Table("The collapse of three tokens", columns, (row,)), figure


def _hull_check(turned: dict, families: dict) -> Check:
    fates = [f for group in (turned, families) for fs in group.values() for f in fs]
    worst, tol = max(f.left_hull for f in fates), 1e-12
    return Check(
        theorem="B1",
        reference="theory B1",
        statement="the hull of the tokens shrinks, whatever the matrix A",
        applies=True,
        holds=worst <= tol,
        margin=tol - worst,
        tol=tol,
        witness={"runs": len(fates), "largest growth in a direction": worst},
        hypotheses=(),
        arithmetic="float64",
    )


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


def _heads(p: Params) -> Table:
    """The A of each head of layer 0 on Gaussian tokens, and how far it is from symmetric."""
    from ..pretrained import load_transformer

    model = load_transformer(p.model)
    rows = []
    for head in model.heads(0):
        A = head.A
        low = float(np.linalg.eigvalsh((A + A.T) / 2)[0])
        share = float(np.linalg.norm(A - A.T) / 2 / np.linalg.norm(A))
        z0 = configurations.gaussian(p.n, len(A), p.seed)
        dynamics = PureAttention(Hardmax(A), alpha=p.alpha)
        fate = _read(simulate(dynamics, z0, layers=p.layers, throw=False), A)
        rows.append(
            (head.name, share, low, fate.leaders, fate.clusters, fate.cycle, fate.norms_fell)
        )
    columns = (
        "head",
        "antisymmetric share",
        "least eigenvalue of the symmetric part",
        "leaders",
        "clusters",
        "circle",
        "norms fell",
    )
    note = f"{model.name}: {p.n} Gaussian tokens in R^{len(A)}, one start."
    return Table("Heads of a trained model", columns, tuple(rows), note)


def _summary(turned: dict[int, list[Fate]], families: dict[str, list[Fate]]) -> str:
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
        f"hull shrinks in every run, as it must for any A."
    )


def _phase(p: Params, turned: dict[int, list[Fate]]) -> Any:
    from matplotlib.figure import Figure

    from ..plot import PALETTE

    angles = np.array(list(turned))
    most = max(f.clusters for fs in turned.values() for f in fs)
    share = np.array(
        [np.bincount([f.clusters for f in fs], minlength=most + 1)[1:] for fs in turned.values()]
    ) / len(turned[p.angles[0]])
    figure = Figure(figsize=(12, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    half = (angles[1] - angles[0]) / 2 if len(angles) > 1 else 1
    image = left.imshow(
        share.T,
        origin="lower",
        aspect="auto",
        cmap="Blues",
        vmin=0,
        extent=(angles[0] - half, angles[-1] + half, 0.5, most + 0.5),
    )
    figure.colorbar(image, ax=left, label="share of the starts")
    left.set(xlabel="angle of A in degrees", ylabel="clusters")
    rows = np.array([_row(fs) for fs in turned.values()])
    right.plot(angles, rows[:, 0], "o-", color=PALETTE[0], ms=3, label="leaders")
    right.plot(angles, rows[:, 2], "s-", color=PALETTE[1], ms=3, label="clusters")
    right.set(xlabel="angle of A in degrees", ylabel="mean number")
    other = right.twinx()
    for colour, column, name in zip(PALETTE[2:], (4, 5, 6), ("circle", "moving", "norms fell")):
        other.plot(angles, rows[:, column], "--", color=colour, lw=1.2, label=name)
    other.set(ylabel="share of the starts", ylim=(-0.03, 1.03))
    lines = [*right.get_lines(), *other.get_lines()]
    figure.legend(lines, [x.get_label() for x in lines], loc="outside lower right", ncols=5,
                  frameon=False, fontsize="small")  # fmt: skip
    left.spines[["top", "right"]].set_visible(False)
    right.spines["top"].set_visible(False)
    other.spines["top"].set_visible(False)
    return figure
