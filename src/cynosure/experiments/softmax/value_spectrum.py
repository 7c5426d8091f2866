"""Eigenvalues of V against the structure of the limit, for given and random V in 2-D and 3-D.

    x_i' = sum_j P_ij V x_j,   seen as y = e^{-l1 t} x, l1 the largest real part of V's eigenvalues

See, for V as in arXiv 2305.05465 and for random V (Sugolov and Aubry): a multiple of I gives a
polytope; a simple leading eigenvalue that is real, positive and dominant gives at most three
hyperplanes; a leading eigenspace of dimension two a polytope times a line; a leading complex pair
turns the tokens round and round in few clusters; V = -I brings everything to 0.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, final

import numpy as np

from ...analysis.clustering import clusters
from ...analysis.spectra import good_triple, recognise
from ...drawing.report import Picture, Report, Table
from ...drawing.style import sheet
from ...dynamics import EuclideanFlow, LeadingFlow
from ...simulation import configurations
from ...simulation.loop import simulate
from ...simulation.steppers import RK4, Adaptive, Stepper
from ...simulation.trajectory import Trajectory
from ...theorems import check
from .._frame import Progress, at_most, silent
from .._measurements import kept

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Eigenvalues of V and the limit: polytopes, hyperplanes, rotation, collapse"
GIVEN: dict[str, Any] = {
    "V = I": np.eye(2),
    "hyperplanes": np.array([[0.647, 0.819], [0.612, 0.633]]),  # the paper's V
    "saddle": np.diag([1.0, -0.5]),
    "complex pair": np.array([[0.6, -0.8], [0.8, 0.6]]),
    "Jordan block": np.array([[1.0, 0.5], [0.0, 1.0]]),
    "V = -I": -np.eye(2),
    "3-D, simple": np.array([[1.0, 0.3, 0.0], [0.0, 0.5, 0.2], [0.0, 0.0, -0.3]]),
    "3-D, plane x line": np.diag([1.0, 1.0, -0.5]),
    "3-D, complex": np.array([[0.8, -0.6, 0.0], [0.6, 0.8, 0.0], [0.0, 0.0, 0.3]]),
}
CLASSES = ("good triple", "not dominant", "complex pair", "negative")


@final
@dataclass(frozen=True)
class Params:
    """n tokens in a box; `random` matrices V of independent N(0, 1/d) entries for every d."""

    n: int = 30
    size: float = 3.0
    random: int = 120
    d: tuple[int, ...] = (2, 3)
    time: float = 18.0
    rtol: float = 1e-8
    tol: float = 0.02
    seed: int = 0


QUICK = Params(n=10, random=4, time=17.0)


class Seen(NamedTuple):
    """What a run looked like at the end, beside the spectrum of its V."""

    eigenvalues: np.ndarray
    spectrum: str  # one of CLASSES
    kind: str
    clusters: int  # of y
    values: int  # of the leading dual vector, where it is real
    speed: float  # of y at the end, relative to its size


def run(p: Params, progress: Progress | None = None) -> Report:
    """The given matrices one by one, then the random ones."""
    say = progress or silent
    if p.n < 3 or p.random < 1 or not set(p.d) <= {2, 3} or p.time <= 0:
        raise ValueError(f"value_spectrum: n >= 3, random >= 1, d 2 or 3, time > 0; got {p}")
    runs, checks = {}, {}
    for done, (name, V) in enumerate(GIVEN.items()):
        say(0.3 * done / len(GIVEN), name)
        # turning tokens change their minds for ever, and no theorem asks for error control there
        turning = _spectrum_class(V) == "complex pair"
        stepper = None if turning else Adaptive(p.rtol, 1e-3 * p.rtol)
        runs[name] = _simulated(p, V, p.seed, stepper)
        checks[name] = tuple(check(runs[name], only=("B24", "B26", "B27", "B28")))
    seen: dict[int, list[Seen]] = {}
    for k, d in enumerate(p.d):
        rng = np.random.default_rng([p.seed, d])
        seen[d] = []
        for r in range(p.random):
            say(0.3 + 0.6 * (k + r / p.random) / len(p.d), f"random V, d = {d}")
            V = rng.standard_normal((d, d)) / np.sqrt(d)
            seen[d].append(kept(_seen_under, p, V, p.seed + r))
    good = [s for found in seen.values() for s in found if s.spectrum == "good triple"]
    wrong = sum(s.values > 3 for s in good)
    checks["random V"] = (
        at_most(
            "B26",
            "arXiv 2305.05465, lemma on three hyperplanes",
            "good triples among random V: the leading dual vector takes at most three values",
            wrong,
            0,
            matrices=len(good),
        ),
    )
    say(0.9, "figures")
    figures = (
        Picture("Given V", _PANELS, _panels(p, runs)),
        Picture("Random V", _SCATTER, _scatter(p, seen)),
    )
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, seen),
        asdict(p),
        (_given(p, runs), _random(seen)),
        checks,
        figures,
        command="cynosure run value_spectrum",
    )


_PANELS = (
    "Top: eigenvalues of V in the complex plane; the dotted line is the largest real part. Below: "
    "the tokens y = e^{-l1 t} x (x itself for V = -I; the first two coordinates in 3-D) from grey "
    "circles along thin paths to squares. Dashed lines are the level sets of the leading dual "
    "vector through the clusters: every token ends on one of them."
)
_SCATTER = (
    "Each mark is the second eigenvalue of a random V over its first (by modulus, in the upper "
    "half plane); where these two are a complex pair it lies on the unit circle. The colour says "
    "what the tokens did: every good triple (circle) gives hyperplanes, a pair that leads in real "
    "part turns the tokens round."
)


def _simulated(p: Params, V: np.ndarray, seed: int, stepper: Stepper | None = None) -> Trajectory:
    """To rest, or until everything is small; fixed steps unless a stepper is given."""
    z0 = p.size * configurations.box(p.n, len(V), seed)
    values = np.linalg.eigvals(V)
    leading, fastest = float(values.real.max()), float(np.abs(values).max())
    if stepper is None:
        stepper = RK4((0.1 if leading > 0 else 0.5) / fastest)
    if leading <= 0:  # tokens shrink, if slowly: x itself is bounded
        times = np.append(0, np.geomspace(0.1, 30 * p.time, 60)) / fastest
        return simulate(EuclideanFlow(V=V), z0, times=times, stepper=stepper)
    times = np.linspace(0, p.time / max(leading, 0.05 * fastest), 61)
    return simulate(LeadingFlow(V=V), z0, times=times, stepper=stepper)


def _seen_under(p: Params, V: np.ndarray, seed: int) -> Seen:
    return _seen(p, _simulated(p, V, seed))


def _spectrum_class(V: np.ndarray) -> str:
    values = np.linalg.eigvals(V)
    if values.real.max() <= 0:
        return "negative"
    first = values[np.argmax(values.real)]
    if abs(first.imag) > 1e-9:
        return "complex pair"
    return "good triple" if good_triple(V=V).holds else "not dominant"


def _seen(p: Params, tr: Trajectory) -> Seen:
    V, y = tr.dynamics.V, tr.values[-1]  # type: ignore[union-attr]
    values, vectors = np.linalg.eig(V.T)
    size = float(np.abs(y).max())
    count = 0
    first = int(np.argmax(values.real))
    if abs(values[first].imag) < 1e-9:
        f = y @ vectors[:, first].real
        count = clusters(f[:, None], p.tol * max(float(np.abs(f).max()), 1e-300)).count
    move = float(np.abs(y - tr.values[-2]).max()) / float(tr.t[-1] - tr.t[-2])
    return Seen(
        values[np.argsort(-np.abs(values), kind="stable")],
        _spectrum_class(V),
        recognise(tr, p.tol).kind,
        clusters(y, p.tol * size).count,
        count,
        move / size,
    )


def _text(values: np.ndarray) -> str:
    def one(v: Any) -> str:  # a NumPy float or complex
        return f"{v.real:.3g}" if abs(v.imag) < 1e-9 else f"{v.real:.3g}{v.imag:+.3g}i"

    return ", ".join(map(one, values.astype(complex).tolist()))


def _given(p: Params, runs: dict[str, Trajectory]) -> Table:
    rows = []
    for name, tr in runs.items():
        s, triple = _seen(p, tr), good_triple(V=GIVEN[name])
        row = (name, _text(s.eigenvalues), triple.holds, triple.multiplicity, s.kind, s.clusters)
        rows.append((*row, s.values or None, s.speed))
    columns = (
        "V",
        "eigenvalues",
        "good triple",
        "multiplicity",
        "limit",
        "clusters of y",
        "values of f1*",
        "speed at the end",
    )
    note = "Speed of y relative to its size; a complex pair never comes to rest."
    return Table("Given V", columns, tuple(rows), note)


def _random(seen: dict[int, list[Seen]]) -> Table:
    rows = []
    for d, found in seen.items():
        for name in CLASSES:
            group = [s for s in found if s.spectrum == name]
            if not group:
                continue
            kinds = sorted({s.kind for s in group})
            text = ", ".join(f"{k} {sum(s.kind == k for s in group)}" for k in kinds)
            row = (d, name, len(group), text, float(np.mean([s.clusters for s in group])))
            rows.append((*row, max(s.values for s in group) or None))
    columns = ("d", "spectrum", "matrices", "limits found", "mean clusters", "most values of f1*")
    note = (
        "Not dominant: the eigenvalue of largest real part is real and positive, but another is "
        "larger in modulus. Negative: no eigenvalue has a positive real part."
    )
    return Table("Random V", columns, tuple(rows), note)


def _summary(p: Params, seen: dict[int, list[Seen]]) -> str:
    parts = []
    for d, found in seen.items():
        share = {c: sum(s.spectrum == c for s in found) / len(found) for c in CLASSES}
        text = ", ".join(f"{name} {value:.0%}" for name, value in share.items())
        parts.append(f"d = {d}: {text}")
    every = [s for found in seen.values() for s in found]
    good = [s for s in every if s.spectrum == "good triple"]
    three = sum(s.values <= 3 for s in good)
    turning = [s for s in every if s.spectrum == "complex pair"]
    weak = [s for s in every if s.spectrum == "not dominant"]
    held = sum(s.values <= 3 for s in weak)
    down = [s for s in every if s.spectrum == "negative"]
    gone = sum(s.kind == "zero" for s in down)
    return (
        f"Random V with entries N(0, 1/d). {'; '.join(parts)}. Of {len(good)} good triples {three} "
        f"end with at most three values of the leading dual vector, as the theory says; without "
        f"dominance it is still so for {held} of {len(weak)}. The {len(turning)} complex leading "
        f"pairs end in {np.mean([s.clusters for s in turning] or [0]):.2g} clusters on average, "
        f"turning at relative speed {np.mean([s.speed for s in turning] or [0]):.2g}. Of "
        f"{len(down)} V without an eigenvalue of positive real part {gone} have brought all tokens "
        "to 0 when we stop."
    )


def _panels(p: Params, runs: dict[str, Trajectory]) -> Any:
    from ...drawing.plot import GREY, PALETTE

    figure, axes = sheet(4, (len(runs) + 1) // 2, 3.0, 2.7)
    width = axes.shape[1]
    for k, (name, tr) in enumerate(runs.items()):
        top, below = axes[2 * (k // width), k % width], axes[2 * (k // width) + 1, k % width]
        values = np.linalg.eigvals(GIVEN[name])
        top.plot(values.real, values.imag, "o", color=PALETTE[0])
        top.axvline(values.real.max(), color="black", lw=0.8, ls=":")
        top.axhline(0, color=GREY, lw=0.6, zorder=0)
        top.set(title=name, xlim=(-1.3, 1.8), ylim=(-1.1, 1.1), xlabel="Re", ylabel="Im")
        y = tr.values[..., :2]
        below.plot(y[..., 0], y[..., 1], color=GREY, lw=0.5, zorder=1)
        below.plot(*y[0].T, "o", color=GREY, ms=2.5)
        below.plot(*y[-1].T, "s", color=PALETTE[1], ms=5)
        below.margins(0.15)
        if len(GIVEN[name]) == 2 and _spectrum_class(GIVEN[name]) == "good triple":
            _levels(p, below, tr)
        below.set(xlabel="$y_1$", ylabel="$y_2$")
    for ax in axes[2 * ((len(runs) - 1) // width) :, (len(runs) - 1) % width + 1 :].flat:
        ax.set_axis_off()
    return figure


def _levels(p: Params, ax: Any, tr: Trajectory) -> None:
    """The lines f1* = const through the clusters of the end, inside the present frame."""
    V = tr.dynamics.V  # type: ignore[union-attr]
    dual = good_triple(V=V).dual
    f = tr.values[-1] @ dual
    groups = clusters(f[:, None], p.tol * float(np.abs(f).max()))
    frame = ax.get_xlim(), ax.get_ylim()
    for value in groups.centres[:, 0]:
        foot = value * dual / (dual @ dual)
        ax.axline(foot, foot + np.array([-dual[1], dual[0]]), ls="--", lw=0.8, color="black")
    ax.set(xlim=frame[0], ylim=frame[1])


def _scatter(p: Params, seen: dict[int, list[Seen]]) -> Any:
    from ...drawing.plot import PALETTE

    figure, axes = sheet(1, len(seen), 5.4, 3.8)
    kinds = sorted({s.kind for found in seen.values() for s in found})
    angle = np.linspace(0, np.pi, 200)
    for ax, (d, found) in zip(axes[0], seen.items(), strict=True):
        ax.plot(np.cos(angle), np.sin(angle), color="black", lw=0.6)
        for colour, kind in zip(PALETTE, kinds, strict=False):
            group = [s for s in found if s.kind == kind]
            for name, marker in (("good triple", "o"), ("", "^")):
                some = [s for s in group if (s.spectrum == "good triple") == bool(name)]
                ratio = np.array([s.eigenvalues[1] / s.eigenvalues[0] for s in some], complex)
                ax.plot(ratio.real, np.abs(ratio.imag), marker, color=colour, ms=5, alpha=0.7)
            ax.plot([], [], "s", color=colour, label=kind)
        ax.set(aspect="equal", title=f"d = {d}", xlabel="Re $l_2 / l_1$", ylabel="|Im $l_2 / l_1$|")
        ax.set(xlim=(-1.15, 1.15), ylim=(-0.05, 1.15))
    axes[0, 0].plot([], [], "o", color="grey", label="good triple")
    axes[0, 0].plot([], [], "^", color="grey", label="no good triple")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure
