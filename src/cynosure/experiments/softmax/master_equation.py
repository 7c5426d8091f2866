"""Master equation: freeze the attention matrix at time t0 and predict the tokens by e^{sM} X(t0).

    softmax flow (V = I)   Z' = (P - I) Z           hardmax layers   Z^{k+1} = ((1-eta) I + eta P) Z

The linear view of Sugolov and Aubry on arXiv 2305.05465. See: predictions from early times fail as
soon as the attention changes, those from late times last for ever, and the frontier between the
two is where P becomes stochastic with as many eigenvalues near 1 as there are clusters. For
hardmax (arXiv 2407.01602) the spectrum of P is its diagonal (B7), and the prediction is exact to
rounding from the layer on at which nobody changes whom they follow (C3).

The start drawn was picked by hand (seed 4: somebody changes their mind as late as in few starts,
which makes the frontier visible in both models). Most starts settle much sooner: the last table
has the first `starts` seeds, none left out.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, final

import numpy as np

from ...analysis.clustering import clusters
from ...analysis.leaders import roles
from ...analysis.limits import limit
from ...analysis.spectra import MasterEquation, freeze
from ...drawing.report import Picture, Report, Table
from ...drawing.style import sheet
from ...dynamics import PureAttention, RescaledFlow
from ...simulation import configurations
from ...simulation.loop import simulate
from ...simulation.steppers import Adaptive
from ...simulation.trajectory import Trajectory
from ...theorems import check
from .._frame import Progress, at_most, silent

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Master equation: how long a frozen attention matrix predicts the tokens"
_FLOOR = 1e-16  # errors below are drawn as this


@final
@dataclass(frozen=True)
class Params:
    """n Gaussian tokens of root mean square length `size` in R^d; times of the flow, layers. The
    start of `seed` is drawn, those of the first `starts` seeds are in a table."""

    n: int = 40
    d: int = 2
    size: float = 2.0
    time: float = 12.0
    saves: int = 61
    layers: int = 30
    alpha: float = 0.1
    seed: int = 4
    starts: int = 20


QUICK = Params(n=16, saves=25, layers=18, starts=4)


class Frozen(NamedTuple):
    """One run with all its predictions."""

    run: Trajectory
    predictions: list[MasterEquation]  # from every saved time but the last
    error: np.ndarray  # (t0, s), NaN beyond the run
    clusters: np.ndarray  # of the tokens at every t0
    ends: int  # clusters in the limit


def run(p: Params, progress: Progress | None = None) -> Report:
    """Both models, frozen at every saved time."""
    say = progress or silent
    if p.n < 2 or p.saves < 4 or p.layers < 3 or p.time <= 0 or p.starts < 1:
        raise ValueError(
            f"master_equation: n >= 2, saves >= 4, layers >= 3, time > 0, starts >= 1; got {p}"
        )
    say(0.0, "the start drawn")
    flow, layers, settled = _models(p, p.seed)
    soft, hard = flow.run, layers.run
    others = []
    for seed in range(p.starts):
        say(0.2 + 0.6 * seed / p.starts, f"start {seed}")
        others.append((seed, *_models(p, seed)))
    say(0.8, "figures")
    figures = (
        Picture("Error of the prediction", _ERRORS, _errors(p, flow, layers, settled)),
        Picture("Eigenvalues of P(t)", _EIGENVALUES, _eigenvalues(flow, layers)),
    )
    exact = _exact(layers, settled)
    late = at_most(
        "C3",
        "docs/mathematics.md C3, E9",
        "hardmax: the prediction is exact once nobody changes whom they follow",
        exact,
        1e-13,  # p.layers products of matrices of norm 1
        settled=settled,
    )
    checks = {
        "softmax flow": tuple(check(soft, only=("B23", "B24"))),
        "hardmax layers": (*check(hard, only=("B7", "B8")), late),
    }
    say(1.0, "done")
    return Report(
        TITLE,
        _summary(p, flow, layers, settled, exact) + "\n\n" + _spread(others),
        asdict(p),
        (_table("Softmax flow", flow), _table("Hardmax layers", layers), _others(others)),
        checks,
        figures,
        command="cynosure run master_equation",
    )


_ERRORS = (
    "Relative error of the tokens predicted a time s ahead by the attention matrix of time t0 "
    "(logarithmic colours, white beyond the end of the run). Left: softmax, V = I. Right: hardmax "
    "layers; above the dashed line everybody follows the same tokens for ever, and the prediction "
    "is exact up to rounding."
)
_EIGENVALUES = (
    "Moduli of the eigenvalues of P(t): they gather at 0 and 1. Lines: how many lie within 1e-6 "
    "of 1, and the number of clusters that the tokens end in. Left: softmax. Right: hardmax, whose "
    "eigenvalues are the diagonal of P."
)


def _models(p: Params, seed: int) -> tuple[Frozen, Frozen, int]:
    """The flow, the layers, and the layer from which nobody changes whom they follow."""
    z0 = p.size / np.sqrt(p.d) * configurations.gaussian(p.n, p.d, seed)
    times = np.linspace(0, p.time, p.saves)
    soft = simulate(RescaledFlow(), z0, times=times, stepper=Adaptive(1e-10, 1e-13))
    hard = simulate(PureAttention(alpha=p.alpha), z0, layers=p.layers)
    ends = limit(PureAttention(alpha=p.alpha), z0).points
    return _frozen(soft, soft.values[-1]), _frozen(hard, ends), _settled(hard)


def _exact(layers: Frozen, settled: int) -> float:
    """The largest error of a prediction made once the sets are settled."""
    late = layers.error[settled:-1]
    return float(np.nanmax(late)) if len(late) else 0.0


Starts = list[tuple[int, Frozen, Frozen, int]]


def _others(others: Starts) -> Table:
    rows = tuple(
        (
            seed,
            float(np.nanmax(flow.error[0])),
            _lasting(flow, 0.1)[0],
            _lasting(flow, 1e-3)[0],
            flow.predictions[-1].near_one,
            flow.ends,
            settled,
            _exact(layers, settled),
            layers.predictions[-1].near_one,
            layers.ends,
        )
        for seed, flow, layers, settled in others
    )
    columns = (
        "seed",
        "error from t = 0",
        "within 10 % from",
        "within 0.1 % from",
        "softmax: at 1",
        "clusters",
        "hardmax: settled at",
        "error from there",
        "at 1",
        "limits",
    )
    note = "Every start of the first seeds; at 1: eigenvalues of the last P within 1e-6 of 1."
    return Table("Other starts", columns, rows, note)


def _spread(others: Starts) -> str:
    def middle(values: list[float]) -> str:
        return f"{np.median(values):.2g} ({min(values):.2g} to {max(values):.2g})"

    ten = middle([_lasting(flow, 0.1)[0] for _, flow, _, _ in others])
    close = middle([_lasting(flow, 1e-3)[0] for _, flow, _, _ in others])
    agree = sum(flow.predictions[-1].near_one == flow.ends for _, flow, _, _ in others)
    layers = middle([float(settled) for *_, settled in others])
    worst = max(_exact(found, settled) for _, _, found, settled in others)
    return (
        f"Over the first {len(others)} seeds, median and range: softmax predictions stay within "
        f"10 % from t0 = {ten} on, within 0.1 % from {close} on; eigenvalues at 1 and clusters "
        f"agree in {agree} of {len(others)}. Hardmax settles at layer {layers}, and is predicted "
        f"from there to {worst:.1g} at worst."
    )


def _frozen(tr: Trajectory, ends: np.ndarray) -> Frozen:
    predictions = [freeze(tr, k) for k in range(len(tr.t) - 1)]
    error = np.full((len(predictions), len(tr.t)), np.nan)
    for k, found in enumerate(predictions):
        error[k, : len(found.error)] = found.error
    longest = float(np.linalg.norm(tr.values[0], axis=1).max())
    counts = np.array([clusters(z, 1e-3 * longest).count for z in tr.values])
    return Frozen(tr, predictions, error, counts, clusters(ends, 1e-3 * longest).count)


def _settled(tr: Trajectory) -> int:
    """The first layer from which on nobody changes whom they follow, within the run."""
    sets = [roles(tr).followed(k).weights() for k in range(len(tr.t))]
    changes = [k + 1 for k in range(len(sets) - 1) if not np.array_equal(sets[k], sets[k + 1])]
    return changes[-1] if changes else 0


def _lasting(found: Frozen, level: float) -> tuple[float, int]:
    """The first t0 from which the prediction stays below `level` to the end, and its index."""
    worst = np.nanmax(found.error, axis=1)
    bad = np.flatnonzero(worst > level)
    k = int(bad[-1]) + 1 if len(bad) else 0
    return float(found.run.t[min(k, len(found.run.t) - 1)]), k


def _table(title: str, found: Frozen) -> Table:
    last = len(found.predictions) - 1
    rows = []
    for k in sorted({round(last * share) for share in np.linspace(0, 1, 9)}):
        one = found.predictions[k]
        moduli = np.abs(one.eigenvalues)
        reach = len(one.t) // 4
        rows.append(
            (
                float(found.run.t[k]),
                float(np.nanmax(found.error[k])),
                float(one.error[reach]),
                one.near_one,
                float(moduli[one.near_one]) if one.near_one < len(moduli) else None,
                int(found.clusters[k]),
            )
        )
    columns = (
        "frozen at",
        "largest error to the end",
        "error a quarter ahead",
        "eigenvalues at 1",
        "next modulus",
        "clusters now",
    )
    return Table(title, columns, tuple(rows))


def _summary(p: Params, flow: Frozen, layers: Frozen, settled: int, exact: float) -> str:
    one, hundredth = _lasting(flow, 0.1)[0], _lasting(flow, 1e-3)[0]
    first = float(np.nanmax(flow.error[0]))
    return (
        f"Softmax flow, {p.n} tokens: predicted from t = 0 they are off by up to {first:.0%}; "
        f"from t0 = {one:g} on the prediction stays within 10 % for ever, from {hundredth:g} on "
        f"within 0.1 %. At the end {flow.predictions[-1].near_one} eigenvalues of P are at 1, "
        f"and the tokens are in {flow.ends} clusters.\n\nHardmax layers "
        f"(alpha = {p.alpha:g}): nobody changes whom they follow from layer {settled} on, and from "
        f"there the prediction is off by {exact:.1g}; before, by up to "
        f"{float(np.nanmax(layers.error[: max(1, settled)])):.0%}. P has "
        f"{layers.predictions[-1].near_one} eigenvalues at 1 at the end, one per leader; "
        f"there are {layers.ends} limits."
    )


def _errors(p: Params, flow: Frozen, layers: Frozen, settled: int) -> Any:
    from matplotlib.colors import LogNorm

    figure, axes = sheet(1, 2, 5.6, 4.4)
    names = (("softmax flow", "time"), ("hardmax layers", "layers"))
    for ax, found, (title, unit) in zip(axes[0], (flow, layers), names, strict=True):
        t = np.asarray(found.run.t, dtype=float)
        shown = np.where(np.isnan(found.error), np.nan, np.maximum(found.error, _FLOOR))
        mesh = ax.pcolormesh(
            t, t[:-1], shown, norm=LogNorm(_FLOOR, 1), cmap="viridis", shading="nearest"
        )
        ax.set(xlabel=f"{unit} ahead, s", ylabel="frozen at $t_0$", title=title)
        figure.colorbar(mesh, ax=ax, label="relative error", extend="max")
    axes[0, 1].axhline(settled - 0.5, color="white", ls="--", lw=1.2)
    return figure


def _eigenvalues(flow: Frozen, layers: Frozen) -> Any:
    from ...drawing.plot import GREY, PALETTE

    figure, axes = sheet(1, 2, 5.6, 3.9)
    for ax, found, unit in zip(axes[0], (flow, layers), ("time t", "layer k"), strict=True):
        t = np.asarray(found.run.t, dtype=float)[:-1]
        moduli = np.array([np.abs(m.eigenvalues) for m in found.predictions])
        ax.plot(t, moduli, ".", color=GREY, ms=3)
        ax.set(xlabel=unit, ylabel="modulus of an eigenvalue", ylim=(-0.03, 1.05))
        right = ax.twinx()
        right.spines["top"].set_visible(False)
        near = [m.near_one for m in found.predictions]
        right.step(t, near, where="mid", color=PALETTE[1], label="eigenvalues at 1")
        right.axhline(found.ends, color=PALETTE[0], ls="--", label="clusters in the limit")
        right.set(ylabel="count", ylim=(0, max(*near, found.ends) + 1.5))
        right.legend(frameon=False, loc="center right")
    axes[0, 0].set_title("softmax flow")
    axes[0, 1].set_title("hardmax layers")
    return figure
