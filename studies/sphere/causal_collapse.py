"""Causal attention: every token tends to the first one, arXiv 2411.04990.

On the sphere with V = I token k looks only at tokens 1..k. The first one never moves, and from
almost every start all others tend to it (docs/mathematics.md B34). For how long they wait the
theorem says nothing: large beta holds them up in clusters of their own, which move to x_1 as one.
See the tokens on S^2 for several beta. At small beta later tokens come later; at large beta tokens
come with their cluster, and the order in the sequence says little. Beside it, full attention, which
knows no order. In dimension 1 the statement is false: a token opposite to the first never moves.

Trap: a token near x_1 may leave again, drawn to a heavier cluster that is still on its way. Arrived
means for good, as far as the run goes; a shorter run counts tokens that will leave.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st

TITLE = "Causal attention: collapse to the first token"


@dataclass(frozen=True)
class Params:
    """n tokens uniform on the sphere of R^d; `starts` such starts for the arrival times, which are
    counted at each of the times `by` and at the end."""

    n: int = 24
    d: int = 3
    beta: tuple[float, ...] = (0.0, 2.0, 4.0, 6.0)
    time: float = 3000.0
    by: tuple[float, ...] = (30.0, 300.0)
    saved: int = 300
    show: tuple[float, ...] = (0.0, 2.0, 5.0, 30.0, 300.0)
    met: float = 1e-2
    dt: float = 0.25
    starts: int = 20
    seed: int = 0


QUICK = Params(
    beta=(0.0, 2.0), time=100.0, by=(20.0,), saved=120, show=(0.0, 2.0, 10.0, 100.0), starts=3
)


def order(arrivals: np.ndarray) -> np.ndarray:
    """Spearman's rank correlation of place k >= 2 and arrival, per start (starts, n) -> (starts,).

    A token that has not arrived counts as last; a start in which all come at once counts 0.
    """
    from scipy.stats import rankdata

    ranks = rankdata(arrivals[:, 1:], axis=1)
    places = np.arange(ranks.shape[1], dtype=float)
    away, here = ranks - ranks.mean(axis=1, keepdims=True), places - places.mean()
    length = np.linalg.norm(away, axis=1) * np.linalg.norm(here)
    return np.divide(away @ here, length, out=np.zeros(len(ranks)), where=length > 0)


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """One start per beta in detail, many for the arrival times, and the line."""
    over = st.measuring(p, progress)
    sensible = min(p.d, p.n) >= 2 and p.starts >= 1 and p.time > 1
    st.require(sensible, "d, n >= 2, starts >= 1, time > 1", p)
    collapses = over(_collapse, {"beta": p.beta}, 0.7)
    figures = []
    if p.d == 3:
        figures.append(st.Picture("Tokens on the sphere", _SPHERES, _spheres(p, collapses)))
    checks = {c.name: cy.check(c.run, only=("B34",)) for c in collapses}
    by = (*p.by, p.time)
    shares = tuple(
        (c.name, *(_share(c, t) for t in by), *_spread(c.arrivals), *_spread(c.full))
        for c in collapses
    )
    ranks = ("rank correlation", "95 % from", "to", "full attention", "95 % from ", "to ")
    told = "Share of tokens, the first not counted; rank correlation of place and arrival."
    names = ("run", *(f"by t = {t:g}" for t in by), *ranks)
    return st.report_of(
        p,
        _summary(p, collapses),
        controls=_comparisons(p, collapses),
        tables=[st.Table("Arrivals over all starts", names, shares, told)],
        checks=checks,
        figures=figures,
    )


_SPHERES = (
    "Uniform tokens on S^2, one start, seen from above the first token (cross): dark ones come "
    "early in the sequence, light ones late; the far side is small."
)


def _flow(beta: float) -> cy.SphereFlow:
    return cy.SphereFlow(cy.attention.Causal(cy.Softmax(beta)))


def _gap(x: np.ndarray) -> np.ndarray:
    """1 - <x_k, x_1> from distances, which do not cancel; (..., n)."""
    return np.sum((x - x[..., :1, :]) ** 2, axis=-1) / 2


def _collapse(p: Params, beta: float) -> st.Cell:
    """One start in detail, the arrival times of many, and those under full attention."""
    times = np.concatenate([[0.0], np.geomspace(1e-2, p.time, p.saved)])
    z0 = cy.configurations.sphere(p.n, p.d, p.seed)
    tr = cy.simulate(
        _flow(beta), z0, times=times, stepper=cy.simulation.Adaptive(1e-9, 1e-11, "LSODA")
    )
    full = cy.SphereFlow(cy.Softmax(beta))
    arrivals = {"arrivals": _arrivals(p, _flow(beta), times), "full": _arrivals(p, full, times)}
    return st.Cell(name=f"beta = {beta:g}", run=tr, **arrivals)


def _share(c: st.Cell, by: float) -> float:
    """Of the tokens of all starts that have arrived by then, the first ones not counted."""
    return float((c.arrivals[:, 1:] <= by).mean())


def _arrivals(p: Params, flow: cy.SphereFlow, times: np.ndarray) -> np.ndarray:
    """(starts, n): the first saved time from which a token stays near x_1; inf if it does not."""
    z0 = np.stack([cy.configurations.sphere(p.n, p.d, p.seed + s) for s in range(p.starts)])
    tr = cy.simulate(flow, z0, times=times, stepper=cy.simulation.RK4(p.dt))
    far = _gap(tr.values) > p.met  # (times, starts, n)
    last = len(times) - np.argmax(far[::-1], axis=0)  # one past the last time it was far
    last[~far.any(axis=0)] = 0
    return np.append(times, np.inf)[last]


def _summary(p: Params, collapses: list[st.Cell]) -> str:
    parts = []
    for c in collapses:
        by = ", ".join(f"{_share(c, t):.1%} by t = {t:g}" for t in (*p.by, p.time))
        parts.append(
            f"{c.name}: over {len(c.arrivals)} starts have arrived for good (1 - cos <= "
            f"{p.met:g}) {by}; the rank correlation of place and arrival is in the mean "
            f"{order(c.arrivals).mean():.2f} ({order(c.full).mean():.2f} under full attention)."
        )
    moved = max(np.abs(c.run.values[:, 0] - c.run.values[0, 0]).max() for c in collapses)
    return " ".join(parts) + f" The first token moved by {moved:.1g}."


def _comparisons(p: Params, collapses: list[st.Cell]) -> list[st.Comparison]:
    """Who has arrived, by time and beta; the order of arrival against full attention."""
    last = {c.name: _share(c, p.time) for c in collapses}
    # tokens of one start come together: whole starts are what is independent
    whole = {c.name: np.isfinite(c.arrivals).all(axis=1) for c in collapses}
    spans = {c.name: (_spread(c.arrivals)[1:], _spread(c.full)[1:]) for c in collapses}
    least = collapses[0]
    said = "; ".join(
        f"{c.name}: {order(c.arrivals).mean():.2f} ({spans[c.name][0][0]:.2f} to "
        f"{spans[c.name][0][1]:.2f}), full attention {order(c.full).mean():.2f} "
        f"({spans[c.name][1][0]:.2f} to {spans[c.name][1][1]:.2f})"
        for c in collapses
    )
    return [
        st.Comparison(
            f"every token is at the first one by t = {p.time:g}",
            f"beta; whole starts of {p.n} tokens",
            "; ".join(
                f"{name}: {share:.1%} of the tokens, starts complete "
                f"{st.counted(int(whole[name].sum()), len(whole[name]))}"
                for name, share in last.items()
            ),
            all(share == 1 for share in last.values()),
        ),
        st.Comparison(
            f"later tokens arrive later, {least.name}",
            f"full attention, which knows no order; {p.starts} starts, 95 % bootstrap",
            f"rank correlation {order(least.arrivals).mean():.2f}, full attention "
            f"{order(least.full).mean():.2f}",
            spans[least.name][0][0] > max(0.5, spans[least.name][1][1]),
        ),
        st.Comparison(
            "later tokens arrive later, at every beta",
            "beta; full attention",
            f"rank correlation, {said}",
            all(causal[0] > max(0.5, full[1]) for causal, full in spans.values()),
        ),
    ]


def _spread(arrivals: np.ndarray) -> tuple[float, float, float]:
    """Mean rank correlation and its 95 % bootstrap interval."""
    return (float(order(arrivals).mean()), *st.resampled(order(arrivals)))


def _colours(n: int) -> np.ndarray:
    """Dark for tokens early in the sequence, light for late ones."""
    from matplotlib import colormaps

    return colormaps["viridis"](np.linspace(0, 0.92, n))


def _spheres(p: Params, collapses: list[st.Cell]) -> Any:
    def draw(ax: Any, name: str, z: np.ndarray) -> None:
        # a basis whose third vector is x_1, which never moves: we look down on it
        basis = np.linalg.qr(np.column_stack([z[0], np.eye(3)[:, :2]]))[0]
        x = z @ np.column_stack([basis[:, 1], basis[:, 2], z[0]])
        size = np.where(x[:, 2] >= 0, 24, 7)
        ax.scatter(*x[:, :2].T, s=size, c=_colours(p.n), linewidths=0, zorder=2)
        ax.plot([0], [0], "+", color=cy.plot.INK, ms=9, zorder=3)

    return cy.plot.globes({c.name: c.run for c in collapses}, p.show, draw)
