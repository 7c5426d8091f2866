"""Several hardmax heads: who leads when every head has its own form A_h.

    z_i <- rho z_i + eta (1/H) sum_h V_h m_i^(h),   m_i^(h) = mean of C_i under A_h

Open for the theory of arXiv 2407.01602. See: with V_h = I the hull still shrinks, whatever the
heads (each m_i^(h) lies in it), and a token that leads in every head never moves; but such tokens
become rare as heads with different forms are added, tokens that no head agrees on settle at points
that are nobody's place, and with value matrices the hull may grow.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, final

import numpy as np

from ...analysis.clustering import clusters
from ...attention import Attention, Hardmax, Heads, Softmax
from ...drawing.report import Picture, Report, Table
from ...drawing.style import means, sheet
from ...dynamics import PureAttention
from ...simulation import configurations
from ...simulation.loop import simulate
from ...theorems import Check
from .._frame import Progress, at_most, silent
from .._measurements import kept

__all__ = ["QUICK", "TITLE", "Params", "run"]

TITLE = "Several heads: leaders in all of them, and limits that are nobody's place"
KINDS = ("equal heads", "random heads", "random heads and values", "softmax heads")


@final
@dataclass(frozen=True)
class Params:
    """Numbers of heads, Gaussian starts of n tokens, layers; `beta` of the softmax heads."""

    heads: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    n: int = 24
    d: int = 2
    alpha: float = 1.0
    starts: int = 12
    layers: int = 60
    beta: float = 20.0
    spread: float = 0.3  # of the value matrices V_h = I + spread * Gaussian
    seed: int = 0


QUICK = Params(heads=(1, 2, 4), n=16, starts=3, layers=40)


class Fate(NamedTuple):
    """How one run ended."""

    all_heads: int  # tokens that lead in every head at layer 0
    some_head: int
    moved: float  # how far such a token moved
    growth: float  # of the hull in some direction, over all layers, relative
    limits: int
    at_token: int  # limits that are the place of a token that leads in every head
    settled: int | None  # first layer after which no step exceeds 1e-6 of the longest token


def run(p: Params, progress: Progress | None = None) -> Report:
    """Every kind of heads for every number of them."""
    say = progress or silent
    if min(*p.heads, p.n, p.starts) < 1 or p.layers < 2:
        raise ValueError(f"multi_head: heads, n, starts begin at 1, layers at 2; got {p}")
    fates: dict[tuple[str, int], list[Fate]] = {}
    steps = len(KINDS) * len(p.heads)
    for kind in KINDS:
        for h in p.heads:
            say(0.9 * len(fates) / steps, f"{kind}, H = {h}")
            fates[kind, h] = kept(_fates, p, kind, h)
    say(0.9, "figures")
    figures = (
        Picture("One start, one and several heads", _PANELS, _panels(p)),
        Picture("Against the number of heads", _CURVES, _curves(p, fates)),
    )
    checks = {"V_h = I": _checks(fates)}
    command, text, tables = "cynosure run multi_head", _summary(p, fates), (_table(fates),)
    say(1.0, "done")
    return Report(TITLE, text, asdict(p), tables, checks, figures, command=command)


_CURVES = (
    "Means over the starts, with a standard error. Left: tokens that lead in every head at layer "
    "0 (the other two kinds have the forms of the random heads). Middle: limits at the last "
    "layer. Right: layers until no token moves by more than 1e-6 of the longest one; runs that "
    "do not settle count with the layers run."
)
_PANELS = (
    "The same start under one head and under several. Stars lead in every head and never move; "
    "lines are the paths of the other tokens, squares where these end, shaded the hull of the end. "
    "With several heads paths end at points between the tokens."
)


def _forms(p: Params, kind: str, h: int, s: int) -> list[np.ndarray]:
    """Random symmetric positive definite forms; the first ones do not depend on h."""
    rng = np.random.default_rng([p.seed, s, 1])
    forms = []
    for _ in range(1 if kind == "equal heads" else h):
        M = rng.standard_normal((p.d, p.d))
        A = M @ M.T + 0.1 * np.eye(p.d)
        forms.append((A + A.T) / 2)
    return forms * h if kind == "equal heads" else forms


def _attention(p: Params, kind: str, h: int, s: int) -> Heads:
    forms = _forms(p, kind, h, s)
    values = None
    heads: list[Attention] = [Hardmax(A) for A in forms]
    if kind == "softmax heads":
        heads = [Softmax(p.beta, A) for A in forms]
    if kind == "random heads and values":
        rng = np.random.default_rng([p.seed, s, 2])
        values = [np.eye(p.d) + p.spread * rng.standard_normal((p.d, p.d)) for _ in range(h)]
    return Heads(heads, values)


def _fates(p: Params, kind: str, h: int) -> list[Fate]:
    return [_fate(p, kind, h, s) for s in range(p.starts)]


def _fate(p: Params, kind: str, h: int, s: int) -> Fate:
    z0 = configurations.gaussian(p.n, p.d, p.seed + s)
    dynamics = PureAttention(_attention(p, kind, h, s), alpha=p.alpha)
    z = simulate(dynamics, z0, layers=p.layers, throw=False).values
    leads = np.array([Hardmax(A).followed(z0).leads for A in _forms(p, kind, h, s)])
    everywhere = leads.all(axis=0)
    longest = float(np.linalg.norm(z0, axis=1).max())
    directions = np.random.default_rng(0).standard_normal((64, p.d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    support = (z @ directions.T).max(axis=1)
    step = np.linalg.norm(np.diff(z, axis=0), axis=-1).max(axis=1) / longest
    late = np.flatnonzero(step > 1e-6)
    last = int(late[-1]) + 1 if len(late) else 0
    found = clusters(z[-1], tol=1e-4 * float(np.linalg.norm(z[-1], axis=1).max()))
    places = z0[everywhere]
    near = np.linalg.norm(found.centres[:, None] - places, axis=-1) < 1e-3 * longest
    return Fate(
        int(everywhere.sum()),
        int(leads.any(axis=0).sum()),
        float(np.abs(z[:, everywhere] - places).max(initial=0.0)) / longest,
        float(np.diff(support, axis=0).max()) / longest,
        found.count,
        int(near.any(axis=1).sum()),
        last if last < p.layers else None,
    )


def _checks(fates: dict[tuple[str, int], list[Fate]]) -> tuple[Check, ...]:
    """Both statements hold for heads with V_h = I; softmax heads have no fixed leaders."""
    plain = [f for (k, _), fs in fates.items() if k in ("equal heads", "random heads") for f in fs]
    soft = [f for (k, _), fs in fates.items() if k == "softmax heads" for f in fs]
    growth, moved = max(f.growth for f in plain + soft), max(f.moved for f in plain)
    still = "a token that leads in every head never moves"
    shrinks, tol = "the hull shrinks under averaged heads", 1e-12
    return (
        at_most("B1", "docs/mathematics.md B1, E6", shrinks, growth, tol, runs=len(plain + soft)),
        at_most("B5", "docs/mathematics.md B5, E6", still, moved, tol, runs=len(plain)),
    )


def _mean(fates: list[Fate], name: str) -> float:
    return float(np.mean([getattr(f, name) for f in fates]))


def _table(fates: dict[tuple[str, int], list[Fate]]) -> Table:
    rows = []
    for (kind, h), fs in fates.items():
        settled = [f.settled for f in fs if f.settled is not None]
        rows.append(
            (
                kind,
                h,
                _mean(fs, "all_heads"),
                _mean(fs, "some_head"),
                _mean(fs, "limits"),
                _mean(fs, "at_token"),
                float(np.median(settled)) if settled else None,
                len(settled) / len(fs),
                float(max(f.growth for f in fs)),
            )
        )
    columns = (
        "heads",
        "H",
        "lead in all",
        "lead in some",
        "limits",
        "at such a leader",
        "layers to settle",
        "settled runs",
        "hull growth",
    )
    note = "Means over the starts; layers to settle: the median; hull growth: the largest."
    return Table("Several heads", columns, tuple(rows), note)


def _summary(p: Params, fates: dict[tuple[str, int], list[Fate]]) -> str:
    low, high = min(p.heads), max(p.heads)
    one, many = fates["random heads", low], fates["random heads", high]
    equal = fates["equal heads", high]
    value = fates["random heads and values", high]
    grown = np.mean([f.growth > 1e-9 for f in value])
    return (
        f"From {low} to {high} heads with different forms, tokens that lead in every head fall "
        f"from {_mean(one, 'all_heads'):.2g} to {_mean(many, 'all_heads'):.2g} of {p.n}, and "
        f"distinct limits from {_mean(one, 'limits'):.2g} to {_mean(many, 'limits'):.2g}, of which "
        f"{_mean(many, 'at_token'):.2g} are places of such leaders; equal heads keep "
        f"{_mean(equal, 'limits'):.2g} limits. With V_h = I the hull shrinks in every run; with "
        f"random value matrices it grows in {grown:.0%} of the runs of {high} heads. Softmax heads "
        f"(beta = {p.beta:g}) end with {_mean(fates['softmax heads', high], 'limits'):.2g} limits "
        f"after {p.layers} layers."
    )


def _curves(p: Params, fates: dict[tuple[str, int], list[Fate]]) -> Any:
    from matplotlib.ticker import MaxNLocator

    from ...drawing.plot import PALETTE

    figure, grid = sheet(1, 3, height=3.6)
    axes = grid[0]
    for colour, kind in zip(PALETTE, KINDS):
        groups = [fates[kind, h] for h in p.heads]
        if kind in KINDS[:2]:  # the others share the random forms
            means(axes[0], p.heads, [[f.all_heads for f in g] for g in groups], color=colour)
        limits = [[f.limits for f in g] for g in groups]
        means(axes[1], p.heads, limits, color=colour, label=kind)
        time = [[p.layers if f.settled is None else f.settled for f in g] for g in groups]
        means(axes[2], p.heads, time, color=colour)
    labels = ("tokens that lead in every head", "distinct limits", "layers to settle")
    for ax, name in zip(axes, labels):
        ax.set(xlabel="heads H", ylabel=name)
        ax.set_ylim(bottom=0)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    handles = axes[1].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _panels(p: Params) -> Any:
    from ...analysis.polytope import hull
    from ...drawing.plot import GREY, PALETTE, shade

    shown = sorted({min(p.heads), p.heads[len(p.heads) // 2], max(p.heads)})
    figure, grid = sheet(1, len(shown), height=4.2)
    z0 = configurations.gaussian(p.n, p.d, p.seed)
    for ax, h in zip(grid[0], shown):
        dynamics = PureAttention(_attention(p, "random heads", h, 0), alpha=p.alpha)
        z = simulate(dynamics, z0, layers=p.layers, throw=False).values[..., :2]
        forms = _forms(p, "random heads", h, 0)
        leads = np.all([Hardmax(A).followed(z0).leads for A in forms], axis=0)
        shade(ax, hull(z[-1]))
        ax.plot(z[:, ~leads, 0], z[:, ~leads, 1], color=GREY, lw=0.8, zorder=1)
        ax.plot(*z[0, ~leads].T, "o", color=PALETTE[0], ms=4, label="start")
        ax.plot(*z[-1, ~leads].T, "s", color=PALETTE[1], ms=6, label="end")
        ax.plot(*z[0, leads].T, "*", color=PALETTE[2], ms=14, label="leads in every head")
        heads = "1 head" if h == 1 else f"{h} heads"
        ax.set(aspect="equal", title=heads, xlabel="$z_1$", ylabel="$z_2$")
    handles = grid[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, frameon=False)
    return figure
