"""A simple leading eigenvalue: tokens tend to at most three hyperplanes, arXiv 2305.05465, Th. 4.1.

If the leading eigenvalue l1 of V is real, positive and simple, with <Qf, Kf> > 0 on its eigenvector
f, the coordinate f1*(z_i) of each rescaled token z_i = e^(-tV) x_i tends to one of at most three
values {a, 0, b}: the tokens tend to parallel hyperplanes, and may go on moving inside them. See the
paper's pictures with its own three matrices (in the plane; in space with the other eigenvalues of
negative, then of positive real part), and the values of f1* over time. Many starts say how often
each number of hyperplanes occurs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, final

import numpy as np

from ...analysis.spectra import GoodTriple, Hyperplanes, good_triple, hyperplane_values
from ...drawing.report import Picture, Report, Table
from ...drawing.style import tidy
from ...dynamics import LeadingFlow, RescaledFlow
from ...simulation import configurations
from ...simulation.loop import simulate
from ...simulation.steppers import Adaptive
from ...simulation.trajectory import Trajectory
from ...theorems import check
from .._frame import Progress
from ._flow_panels import panels

__all__ = ["MATRICES", "QUICK", "TITLE", "Params", "run"]

TITLE = "Three hyperplanes: V with a simple leading eigenvalue"

MATRICES = {
    "2-D": ((0.64709742, 0.81911926), (0.61210449, 0.63263484)),
    "3-D, Re < 0": (
        (0.2362413, 0.0599536, 0.40506019),
        (0.81321448, 0.49948705, 0.33754772),
        (0.2160645, 0.38505272, 0.14588075),
    ),
    "3-D, Re > 0": (
        (0.18608476, 0.34391026, 0.13905949),
        (0.35244288, 0.6694859, 0.39992145),
        (0.46685606, 0.17094454, 0.42092308),
    ),
}
"""V of the paper's figures, as published with it (Q = K = I); Re: of the other eigenvalues."""


@final
@dataclass(frozen=True)
class Params:
    """The paper's start, uniform in [-side, side]^d, and `starts` more of each of `sides`."""

    n: int = 40
    side: float = 5.0
    time: float = 20.0
    show: tuple[float, ...] = (0.0, 1.0, 2.0, 4.0, 8.0)
    sides: tuple[float, ...] = (1.0, 5.0)
    starts: int = 20
    seed: int = 0


QUICK = Params(starts=2)


class Example(NamedTuple):
    V: np.ndarray
    triple: GoodTriple
    run: Trajectory
    planes: Hyperplanes


def run(p: Params, progress: Progress | None = None) -> Report:
    """The paper's three matrices, then many starts of each."""

    def say(share: float, what: str) -> None:
        if progress is not None:
            progress(share, what)

    if p.n < 2 or p.starts < 1 or not p.time > 1:
        raise ValueError(f"hyperplanes: n >= 2, starts >= 1 and time > 1; got {p}")
    examples, checks = {}, {}
    for done, (name, rows) in enumerate(MATRICES.items()):
        say(0.1 * done, name)
        examples[name] = found = _example(p, np.array(rows))
        checks[name] = tuple(check(found.run, only=("B26",)))
    counts = _counts(p, lambda share: say(0.3 + 0.4 * share, "many starts"))
    say(0.7, "figures")
    runs = {name: e.run for name, e in examples.items()}
    groups = {name: e.planes.labels for name, e in examples.items()}

    def planes(ax: Any, name: str, z: np.ndarray, t: float) -> None:
        if t >= max(p.show) / 2:
            _draw_planes(ax, examples[name], z)

    figures = (
        Picture("Tokens and hyperplanes", _PANELS, panels(runs, p.show, groups, planes)),
        Picture("Values of f1*", _VALUES, _values(examples)),
    )
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, examples, counts),
        asdict(p),
        (_table(examples), _triples(examples), _count_table(p, counts)),
        checks,
        figures,
        command="cynosure run hyperplanes",
    )


_PANELS = (
    "Rescaled tokens e^(-tV) x_i(t), in the colour of the hyperplane they end on, drawn at the "
    "later times; grey: where they started. Within a hyperplane they need not meet."
)
_VALUES = (
    "The coordinate f1* of every token along the leading eigenvector: it tends to a, b, or, "
    "never seen from random starts, 0. The range only shrinks."
)


def _times(p: Params) -> np.ndarray:
    return np.linspace(0, p.time, int(20 * p.time) + 1)


def _example(p: Params, V: np.ndarray) -> Example:
    z0 = p.side * configurations.box(p.n, len(V), p.seed)
    tr = simulate(RescaledFlow(V=V), z0, times=_times(p), stepper=Adaptive(1e-9, 1e-12))
    return Example(V, good_triple(V=V), tr, hyperplane_values(tr, tol=1e-4))


def _counts(p: Params, say: Any) -> list[tuple[str, float, list[int], bool]]:
    """(matrix, side, number of hyperplanes of each start, all of them a, 0 or b)."""
    out = []
    todo = [(name, side) for name in MATRICES for side in p.sides]
    for done, (name, side) in enumerate(todo):
        V = np.array(MATRICES[name])
        found = []
        for s in range(p.starts):
            z0 = side * configurations.box(p.n, len(V), p.seed + s)
            # y = e^{-l1 t} x has the same f1*, and nothing in it grows
            tr = simulate(
                LeadingFlow(V=V), z0, times=[0.0, p.time], stepper=Adaptive(1e-8, 1e-10, "LSODA")
            )
            found.append(hyperplane_values(tr, tol=1e-4))
        out.append((name, side, [len(h.values) for h in found], all(h.holds for h in found)))
        say((done + 1) / len(todo))
    return out


def _summary(
    p: Params, examples: dict[str, Example], counts: list[tuple[str, float, list[int], bool]]
) -> str:
    text = []
    for name, e in examples.items():
        values = ", ".join(
            f"{v:.4f} ({c} tokens)"
            for v, c in zip(e.planes.values, np.bincount(e.planes.labels), strict=True)
        )
        text.append(f"{name}: l1 = {e.triple.leading.real:.4f}; f1* ends at {values}.")
    every = [c for *_, found, _ in counts for c in found]
    share = ", ".join(f"{k}: {every.count(k)}" for k in sorted(set(every)))
    right = sum(ok for *_, ok in counts)
    return (
        " ".join(text) + f"\n\nNumber of hyperplanes over {len(every)} random starts ({share}). In "
        f"{right} of {len(counts)} groups of starts all values are of the form a < 0 < b or 0. One "
        "hyperplane alone means that softness brought all tokens to one side."
    )


def _table(examples: dict[str, Example]) -> Table:
    rows = tuple(
        (
            name,
            float(value),
            int((e.planes.labels == g).sum()),
            float(np.ptp(e.planes.f[e.planes.labels == g])),
        )
        for name, e in examples.items()
        for g, value in enumerate(e.planes.values)
    )
    columns = ("matrix", "value of f1*", "tokens", "spread at the end")
    return Table("Hyperplanes found", columns, rows)


def _triples(examples: dict[str, Example]) -> Table:
    rows = tuple(
        (
            name,
            ", ".join(f"{v.real:.3f}{v.imag:+.3f}i" if v.imag else f"{v.real:.3f}" for v in values),
            e.triple.gap,
            e.triple.alignment,
            e.triple.holds,
        )
        for name, e in examples.items()
        for values in [np.linalg.eigvals(e.V)]
    )
    columns = ("matrix", "eigenvalues of V", "l1 - |l2|", "<Qf, Kf>", "good triple")
    return Table("Hypotheses", columns, rows)


def _count_table(p: Params, counts: list[tuple[str, float, list[int], bool]]) -> Table:
    rows = tuple(
        (name, side, len(found), found.count(1), found.count(2), found.count(3), right)
        for name, side, found, right in counts
    )
    columns = ("matrix", "side", "starts", "one", "two", "three", "all of the form {a, 0, b}")
    note = f"Groups of f1* at t = {p.time:g}, gaps above 1e-4 of the largest value."
    return Table("Number of hyperplanes over random starts", columns, rows, note)


def _draw_planes(ax: Any, e: Example, z: np.ndarray) -> None:
    """{f1* = value}: a line across the frame in the plane, a patch under its tokens in space."""
    from ...drawing.plot import GREY

    w = e.triple.dual
    reach = 1.2 * float(np.abs(e.run.values).max())
    basis = np.linalg.svd(w[None])[2][1:]  # spans the hyperplane f1* = 0
    for group, value in enumerate(e.planes.values):
        foot = value * w / (w @ w)
        if len(w) == 2:
            ends = np.stack([foot - reach * basis[0], foot + reach * basis[0]])
            ax.plot(*ends.T, color=GREY, lw=1, ls="--", zorder=1.5)
        else:
            from mpl_toolkits.mplot3d.art3d import Poly3DCollection  # type: ignore[import-untyped]

            seen = (z[e.planes.labels == group] - foot) @ basis.T
            (u0, v0), (u1, v1) = seen.min(axis=0) - 2, seen.max(axis=0) + 2
            corners = [foot + q @ basis for q in np.array([(u0, v0), (u0, v1), (u1, v1), (u1, v0)])]
            patch = Poly3DCollection([corners], facecolors=(GREY, 0.15), edgecolors=GREY, lw=0.6)
            patch.set_zorder(1.5)
            ax.add_collection3d(patch)


def _values(examples: dict[str, Example]) -> Any:
    from matplotlib.figure import Figure

    from ...drawing.plot import INK, LABEL, PALETTE

    figure = Figure(figsize=(12, 3.3), layout="constrained")
    for ax, (name, e) in zip(figure.subplots(1, len(examples)), examples.items()):
        f = e.run.values @ e.triple.dual
        for i in range(f.shape[1]):
            ax.plot(e.run.t, f[:, i], color=PALETTE[e.planes.labels[i]], lw=0.8)
        for value in e.planes.values:
            ax.axhline(value, color=INK, lw=0.8, ls="--")
            ax.annotate(
                f"{value:.3f}", (1, value), (-2, 3), xycoords=("axes fraction", "data"),
                textcoords="offset points", ha="right", fontsize=LABEL,
            )  # fmt: skip
        low, high = float(f.min()), float(f.max())
        ax.set(xlabel="time t", xlim=(0, 10), ylim=(low - 0.05 * (high - low), 1.12 * high))
        ax.set_ylabel("$f_1^*(z_i)$")
        ax.set_title(name, loc="left", fontsize=LABEL)
        tidy(ax)
    return figure
