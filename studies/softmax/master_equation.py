"""Master equation: freeze the attention matrix at time t0 and predict the tokens by e^{sM} X(t0).

    softmax flow (V = I)   Z' = (P - I) Z           hardmax layers   Z^{k+1} = ((1-eta) I + eta P) Z

The linear view of Sugolov and Aubry on arXiv 2305.05465. See: predictions from early times fail as
soon as the attention changes, those from late times last to the end, and the frontier between the
two is where P becomes stochastic with as many eigenvalues near 1 as there are clusters. For
hardmax (arXiv 2407.01602) the spectrum of P is its diagonal (B7), and the prediction is exact to
rounding from the layer on at which nobody changes whom they follow (C3).

The start drawn was picked by hand (seed 4 settles late, which makes the frontier visible). Most
settle much sooner: a table has the first `starts` seeds, none left out; other n, d,
sizes and alpha are its controls. Beside the prediction by P(t0) stands the one by the uniform
matrix: what a linear equation gives that knows nothing of who looks at whom.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st

TITLE = "Master equation: how long a frozen attention matrix predicts the tokens"
_FLOOR = 1e-16  # errors below are drawn as this


@dataclass(frozen=True)
class Params:
    """n Gaussian tokens of root mean square length `size` in R^d; times of the flow, layers. The
    start of `seed` is drawn, those of the first `starts` seeds are in a table. `varied`: (name,
    value) of parameters changed one at a time, with half the starts."""

    n: int = 40
    d: int = 2
    size: float = 2.0
    time: float = 12.0
    saves: int = 61
    layers: int = 30
    alpha: float = 0.1
    seed: int = 4
    starts: int = 20
    varied: tuple[tuple[str, float | int], ...] = (
        *(("n", 20), ("n", 80), ("d", 3)),
        *(("size", 1.0), ("size", 4.0), ("alpha", 1.0)),
    )


QUICK = Params(n=16, saves=25, layers=18, starts=4, varied=(("n", 24), ("size", 4.0)))


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Both models, frozen at every saved time."""
    over = st.measuring(p, progress)
    sensible = p.n >= 2 and p.saves >= 4 and p.layers >= 3 and p.time > 0 and p.starts >= 1
    st.require(sensible, "n >= 2, saves >= 4, layers >= 3, time > 0, starts >= 1", p)
    starts = over(_start, {"start": range(p.starts)}, 0.4)
    grid = {"varied": p.varied, "start": range((p.starts + 1) // 2)}
    cells = over(_varied, grid, 0.9)
    half = len(grid["start"])
    others = {case: cells[k * half :][:half] for k, case in enumerate(p.varied)}
    drawn = st.kept(_start, p, p.seed)
    flow, layers, settled = drawn.flow, drawn.layers, drawn.settled
    law = "hardmax: the prediction is exact once nobody changes whom they follow"
    reference, tol = "docs/mathematics.md C3, E9", 1e-13  # products of matrices of norm 1
    late = st.at_most("settled", reference, law, drawn.exact, tol, settled=settled)
    checks = {
        "softmax flow": cy.check(flow.run, only=("B23", "B24")),
        "hardmax layers": [*cy.check(layers.run, only=("B7", "B8")), late],
    }
    figures = (st.Picture.of("Error of the prediction", _draw_errors, drawn),)
    tables = [_table("Softmax flow", flow), _table("Hardmax layers", layers), _others(starts)]
    return st.report_of(
        p,
        _summary(p, drawn, starts),
        controls=_comparisons(p, starts, others),
        tables=tables,
        checks=checks,
        figures=figures,
    )


def _start(p: Params, seed: int) -> st.Cell:
    """One start in both models, the layer from which nobody changes whom they follow, and the
    largest error of a prediction of the layers made from there."""
    z0 = p.size / np.sqrt(p.d) * cy.configurations.gaussian(p.n, p.d, seed)
    times = np.linspace(0, p.time, p.saves)
    soft = cy.simulate(
        cy.dynamics.RescaledFlow(), z0, times=times, stepper=cy.simulation.Adaptive(1e-10, 1e-13)
    )
    hard = cy.simulate(cy.PureAttention(alpha=p.alpha), z0, layers=p.layers)
    ends = cy.limit(cy.PureAttention(alpha=p.alpha), z0).points
    flow, layers, settled = _frozen(soft, soft.values[-1]), _frozen(hard, ends), _settled(hard)
    late = layers.error[settled:-1]
    exact = float(np.nanmax(late)) if len(late) else 0.0
    return st.Cell(seed=seed, flow=flow, layers=layers, settled=settled, exact=exact)


def _varied(p: Params, case: tuple[str, float | int], seed: int) -> st.Cell:
    """A start with one parameter changed."""
    name, value = case
    kind = type(getattr(p, name))
    return _start(replace(p, varied=(), **{name: kind(value)}), seed)


def _blind(tr: cy.Trajectory, k: int) -> float:
    """The largest error to the end when P(t_k) is replaced by the uniform matrix.

    Tokens then tend to their mean m: z(t + s) = m + e^{-s} (z - m), or (1 + alpha)^{-s} in layers.
    """
    z, later = tr.values[k], np.asarray(tr.t[k:], dtype=float) - float(tr.t[k])
    alpha = getattr(tr.dynamics, "alpha", None)
    left = np.exp(-later) if alpha is None else (1 + float(alpha)) ** -later
    mean = z.mean(axis=0)
    predicted = mean + left[:, None, None] * (z - mean)
    gap = np.linalg.norm(predicted - tr.values[k:], axis=(1, 2))
    return float((gap / np.linalg.norm(tr.values[k:], axis=(1, 2))).max())


def _frozen(tr: cy.Trajectory, ends: np.ndarray) -> st.Cell:
    """One run and its predictions with P frozen at every saved time t0 but the last."""
    predictions = [cy.spectra.freeze(tr, k) for k in range(len(tr.t) - 1)]
    error = np.full((len(predictions), len(tr.t)), np.nan)
    for k, one in enumerate(predictions):
        error[k, : len(one.error)] = one.error
    tol = 1e-3 * float(np.linalg.norm(tr.values[0], axis=1).max())
    return st.Cell(
        run=tr,
        error=error,  # (t0, s), NaN beyond the run
        moduli=np.array([np.abs(one.eigenvalues) for one in predictions]),  # of P(t0), (t0, n)
        near_one=np.array([one.near_one for one in predictions]),  # of these within 1e-6 of 1
        clusters=np.array([cy.clusters(z, tol).count for z in tr.values]),  # at every saved time
        ends=cy.clusters(ends, tol).count,  # in the limit
        blind=np.array([_blind(tr, k) for k in range(len(predictions))]),
    )


def _lasting(frozen: st.Cell, level: float) -> float:
    """The first t0 from which the prediction stays below `level` to the end."""
    bad = np.flatnonzero(np.nanmax(frozen.error, axis=1) > level)
    return float(frozen.run.t[int(bad[-1]) + 1 if len(bad) else 0])


def _settled(tr: cy.Trajectory) -> int:
    """The first layer from which on nobody changes whom they follow, within the run."""
    roles = cy.roles(tr)
    sets = np.stack([roles.followed(k).weights() for k in range(len(tr.t))])
    changed = (sets[1:] != sets[:-1]).any(axis=(1, 2))
    return max(np.flatnonzero(changed).tolist(), default=-1) + 1


def _table(title: str, frozen: st.Cell) -> st.Table:
    last = len(frozen.error) - 1
    columns: dict[str, Any] = {
        "frozen at": lambda k: float(frozen.run.t[k]),
        "largest error to the end": lambda k: float(np.nanmax(frozen.error[k])),
        "error a quarter ahead": lambda k: float(frozen.error[k, (last + 2 - k) // 4]),
        "eigenvalues at 1": lambda k: int(frozen.near_one[k]),
        "next modulus": lambda k: next(iter(frozen.moduli[k, frozen.near_one[k] :].tolist()), None),
        "clusters now": lambda k: int(frozen.clusters[k]),
    }
    return st.Table.of(title, sorted({round(last * j / 8) for j in range(9)}), columns)


def _others(starts: list[st.Cell]) -> st.Table:
    columns: dict[str, Any] = {
        "seed": "seed",
        "error from t = 0": lambda s: float(np.nanmax(s.flow.error[0])),
        "within 10 % from": lambda s: _lasting(s.flow, 0.1),
        "within 0.1 % from": lambda s: _lasting(s.flow, 1e-3),
        "softmax: at 1": lambda s: int(s.flow.near_one[-1]),
        **st.columns(
            "clusters = flow.ends, hardmax: settled at = settled, error from there = exact"
        ),
        "at 1": lambda s: int(s.layers.near_one[-1]),
        "limits": "layers.ends",
    }
    note = "Every start of the first seeds; at 1: eigenvalues of the last P within 1e-6 of 1."
    return st.Table.of("Other starts", starts, columns, note)


def _agree(starts: list[st.Cell]) -> int:
    """In how many starts the eigenvalues of the last P at 1 are as many as the clusters."""
    return sum(bool(s.flow.near_one[-1] == s.flow.ends) for s in starts)


def _late(start: st.Cell) -> float:
    """The error of the blind prediction at the t0 from which the right one stays within 10 %."""
    at = start.flow.run.nearest(_lasting(start.flow, 0.1))
    return float(start.flow.blind[min(at, len(start.flow.blind) - 1)])


def _comparisons(
    p: Params, starts: list[st.Cell], others: dict[tuple[str, float | int], list[st.Cell]]
) -> list[st.Comparison]:
    """Other n, d, sizes and alpha; the uniform matrix in place of P(t0)."""
    every = [*starts, *(s for group in others.values() for s in group)]
    blind = [_late(s) for s in every]
    late = [_lasting(s.flow, 0.1) for s in every]
    exact = max(s.exact for s in every)
    said = f"{len(every)} starts: n, d, size and alpha varied"
    soft = sum(t < p.time for t in late)
    return [
        st.Comparison(
            "from some time on the attention of that time predicts all later tokens within 10 %",
            f"{said}; the uniform matrix in place of P",
            f"before t = {p.time:g} in {st.counted(soft, len(every))}, median "
            f"{np.median(late):.2g}; "
            f"the uniform matrix is off by {np.median(blind):.0%} from there ({min(blind):.0%} at "
            "least)",
            st.wilson(soft, len(every))[0] > 0.9 and float(np.median(blind)) > 0.2,
        ),
        st.Comparison(
            "at the end P has as many eigenvalues at 1 as there are clusters",
            said,
            st.counted(_agree(every), len(every)),
            st.wilson(_agree(every), len(every))[0] > 0.9,
        ),
        st.Comparison(
            "hardmax is predicted exactly once nobody changes whom they follow",
            said,
            f"off by {exact:.1g} at most",
            exact < 1e-13,
        ),
    ]


def _summary(p: Params, drawn: st.Cell, starts: list[st.Cell]) -> str:
    def middle(values: list[float]) -> str:
        return f"{np.median(values):.2g} ({min(values):.2g} to {max(values):.2g})"

    flow, layers, settled = drawn.flow, drawn.layers, drawn.settled
    return (
        f"Softmax flow, {p.n} tokens: predicted from t = 0 they are off by up to "
        f"{np.nanmax(flow.error[0]):.0%}; from t0 = {_lasting(flow, 0.1):g} on the prediction "
        f"stays within 10 % to the end, from {_lasting(flow, 1e-3):g} on within 0.1 %. At the end "
        f"{flow.near_one[-1]} eigenvalues of P are at 1, and the tokens are in {flow.ends} "
        f"clusters.\n\nHardmax layers (alpha = {p.alpha:g}): nobody changes whom they follow from "
        f"layer {settled} on; before, the prediction is off by up to "
        f"{np.nanmax(layers.error[: max(1, settled)]):.0%}.\n\n"
        f"Over the first {len(starts)} seeds, median and range: softmax predictions stay within "
        f"10 % from t0 = {middle([_lasting(s.flow, 0.1) for s in starts])} on, within 0.1 % from "
        f"{middle([_lasting(s.flow, 1e-3) for s in starts])} on. Hardmax settles at layer "
        f"{middle([float(s.settled) for s in starts])}."
    )


def _draw_errors(drawn: st.Cell) -> Any:
    """Relative error of the tokens predicted a time s ahead by the attention matrix of time t0
    (white: beyond the end of the run). Right, above the dashed line: nobody changes whom they
    follow any more, and the prediction is exact up to rounding.
    """
    from matplotlib.colors import LogNorm

    figure, (axes,) = cy.plot.sheet(1, 2, 5.6, 4.4)
    names = (("softmax flow", "time"), ("hardmax layers", "layers"))
    look: dict[str, Any] = {"norm": LogNorm(_FLOOR, 1), "cmap": "viridis", "shading": "nearest"}
    for ax, frozen, (title, unit) in zip(axes, (drawn.flow, drawn.layers), names):
        t = np.asarray(frozen.run.t, dtype=float)
        mesh = ax.pcolormesh(t, t[:-1], np.maximum(frozen.error, _FLOOR), **look)
        ax.set(xlabel=f"{unit} ahead, s", ylabel="frozen at $t_0$", title=title)
        figure.colorbar(mesh, ax=ax, label="relative error", extend="max")
    axes[1].axhline(drawn.settled - 0.5, color="white", ls="--", lw=1.2)
    return figure
