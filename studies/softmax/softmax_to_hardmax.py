"""Softmax to hardmax: how long softmax layers at inverse temperature beta follow hardmax layers.

    z_i <- (z_i + alpha (P z)_i)/(1 + alpha),   P = softmax of beta <z_i, z_j>   or hardmax

At fixed beta softmax collapses to one point in the end: its agreement with hardmax (arXiv
2407.01602) is metastable. See: at small beta mostly somebody follows another token than under
hardmax within a few layers, at large beta mostly nobody does within the 64 layers compared; and the
leaders, which hardmax never moves, leave their places after a number of layers that grows like
e^{c beta} (docs/mathematics.md E15; on the sphere arXiv 2410.06833, for the random chain arXiv
2508.09628). The slope c is somewhat below the smallest gap <v, v - w> between two leaders: as v
moves the gap shrinks, so the lifetime is an integral of e^{beta gap}: about e^{beta gap}/beta.

Drawn are a pentagon and the first four Gaussian starts of a seed picked by hand; tables have all.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st

TITLE = "Softmax to hardmax: the lifetime of the agreement against beta"
_DRAWN = 5  # starts in the figure; the tables have all


@dataclass(frozen=True)
class Params:
    """Inverse temperatures; a pentagon with tokens inside and `starts` Gaussian starts, n tokens
    each; leaders are looked at for `most` layers, until one is `far` (relative to the longest
    token) from its place; follow patterns are compared for 64. `varied`: (name, value) of
    parameters changed one at a time, for the pentagon and the `metastable` beta."""

    beta: tuple[float, ...] = (4.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 25.0, 30.0, 40.0, 60.0)
    n: int = 12
    alpha: float = 1.0
    starts: int = 10
    most: int = 20_000
    far: float = 0.1
    metastable: tuple[float, ...] = (18.0, 19.0, 20.0)
    varied: tuple[tuple[str, float | int], ...] = (
        *(("alpha", 0.3), ("alpha", 3.0), ("far", 0.05), ("far", 0.2)),
        *(("n", 24), ("seed", 1), ("seed", 2)),
    )
    seed: int = 0


QUICK = Params(
    beta=(4.0, 8.0, 14.0, 16.0, 18.0), starts=1, most=3000, metastable=(10.0, 12.0),
    varied=(("alpha", 3.0),),
)  # fmt: skip


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Every start at every beta, until the agreement is lost."""
    over = st.measuring(p, progress)
    sensible = min(p.beta) > 0 and p.n >= 6 and p.starts >= 0 and p.most >= 100 and 0 < p.far < 1
    st.require(sensible, "beta > 0, n >= 6, starts >= 0, most >= 100, 0 < far < 1", p)
    names = ["pentagon", *(f"Gaussian {s}" for s in range(p.starts))]
    lives = over(_life, {"start": names, "beta": p.beta}, 0.8)
    starts = [_lifetimes(p, name, [c for c in lives if c.start == name]) for name in names]
    grid = {"varied": p.varied, "beta": p.metastable}
    cells = over(_varied, grid)
    size = len(p.metastable)
    others = [
        _lifetimes(_changed(p, case), "pentagon", cells[k * size :][:size]).replace(
            start=f"pentagon, {case[0]} = {case[1]:g}"
        )
        for k, case in enumerate(p.varied)
    ]
    columns = st.columns(
        "start, beta, leaders leave at = lost, tokens as in hardmax = share, patterns "
        "differ at = differs"
    )
    note = (
        f"Layers; – : not within {p.most} (leaders) or 64 (patterns). Tokens as in hardmax: the "
        "share of tokens near their hardmax limit at layer 64, or just before a leader left."
    )
    slopes = st.columns(
        "start, slope of log lifetime = slope, slope of log(beta lifetime) = corrected, "
        "smallest gap = barrier"
    )
    long = "Slopes over lifetimes of at least 100 layers; gaps are those between two leaders."
    pairs = [pair for s in starts for pair in pairwise(s.lives)]
    broken = sum((b.lost or p.most) < (a.lost or p.most) for a, b in pairs)
    claim = "a larger beta keeps the leaders at least as long (share of neighbours that do not)"
    share, tol = broken / max(1, len(pairs)), 0.1  # a trend: at small beta a lucky mean may hold
    reference = "docs/mathematics.md A2, E15"
    longer = st.at_most("lifetimes", reference, claim, share, tol, pairs=len(pairs))
    tables = (
        st.Table.of("Agreement of softmax with hardmax", lives, columns, note),
        st.Table.of("Slopes", [*starts, *others], slopes, long),
    )
    figures = (st.Picture.of("Lifetime of the agreement", _draw_lives, p, starts),)
    return st.report_of(
        p,
        _summary(p, starts),
        controls=_comparisons(p, starts, others),
        tables=tables,
        checks={"all starts": [longer]},
        figures=figures,
    )


def _tokens(p: Params, start: str) -> np.ndarray:
    if start == "pentagon":
        return cy.configurations.polygon(5, interior=p.n - 5, seed=p.seed)
    return cy.configurations.gaussian(p.n, 2, p.seed + int(start.split()[1]))


def barrier(li: cy.analysis.Limit) -> float:
    """The smallest <v, v - w> over leaders v and other leaders w: e^{-beta gap} is the leak."""
    v = li.points[li.leaders]
    gaps = (v**2).sum(axis=1)[:, None] - v @ v.T
    return float(gaps[~np.eye(len(v), dtype=bool)].min(initial=np.inf))


def _life(p: Params, start: str, beta: float) -> st.Cell:
    """One start at one beta, simulated in stretches that double until a leader has left.

    `differs`: first layer at which the strongest weights point elsewhere than hardmax; `lost`:
    first layer at which a leader is far, None if not within those looked at; `share` of the tokens
    near their hardmax limit after 64 layers (or before the loss).
    """
    z0 = _tokens(p, start)
    li = cy.limit(cy.PureAttention(alpha=p.alpha), z0)
    soft = cy.PureAttention(cy.Softmax(beta), p.alpha)
    longest = float(np.linalg.norm(z0, axis=1).max())
    z, k, share, lost = z0, 0, 0.0, None
    while k < p.most and lost is None:
        layers = min(k + 64, p.most - k)
        tr = cy.simulate(soft, z, layers=layers, save_every=max(1, layers // 512))
        away = np.linalg.norm(tr.values - li.points, axis=-1) / longest
        bad = np.flatnonzero(away[:, li.leaders].max(axis=1) > p.far)
        if k == 0:
            share = float((away[(bad[0] if len(bad) else 0) - 1] < p.far).mean())
        lost = k + int(tr.t[bad[0]]) if len(bad) else None
        z, k = tr.values[-1], k + layers
    differs = _differs(p, soft, z0)
    return st.Cell(start=start, beta=beta, differs=differs, lost=lost, share=share)


def _changed(p: Params, case: tuple[str, float | int]) -> Params:
    name, value = case
    return replace(p, varied=(), **{name: type(getattr(p, name))(value)})


def _varied(p: Params, case: tuple[str, float | int], beta: float) -> st.Cell:
    """The pentagon with one parameter changed."""
    return _life(_changed(p, case), "pentagon", beta)


def _differs(p: Params, soft: cy.PureAttention, z0: np.ndarray) -> int | None:
    """The first of 64 layers at which somebody's strongest weight is off its set C_i."""
    hard = cy.simulate(cy.PureAttention(alpha=p.alpha), z0, layers=64)
    roles = cy.roles(hard)
    for k, z in enumerate(cy.simulate(soft, z0, layers=64).values):
        strongest = cy.spectra.attention_matrix(soft, z).argmax(axis=1)
        y, sets = hard.values[k], roles.followed(k)
        # followers that sit on their leader up to rounding count as the leader
        off = [np.abs(y[strongest[i]] - y[sets[i]]).max(axis=1).min() for i in range(p.n)]
        if max(off) >= 1e-6:
            return k
    return None


def _lifetimes(p: Params, start: str, lives: list[st.Cell]) -> st.Cell:
    """One start at every beta, the slopes of log(lifetime) and log(beta lifetime), and the barrier
    of the leaders."""
    gap = barrier(cy.limit(cy.PureAttention(alpha=p.alpha), _tokens(p, start)))
    beta, lost = np.array(_long(lives) or np.empty((0, 2))).T
    slope = corrected = None
    if len(beta) >= 2:
        slope, corrected = (float(np.polyfit(beta, np.log(y), 1)[0]) for y in (lost, beta * lost))
    return st.Cell(start=start, lives=lives, slope=slope, barrier=gap, corrected=corrected)


def _long(lives: list[st.Cell]) -> list[tuple[float, int]]:
    """(beta, layers) of the lifetimes long enough to be metastable."""
    return [(c.beta, c.lost) for c in lives if c.lost is not None and c.lost >= 100]


def _summary(p: Params, starts: list[st.Cell]) -> str:
    low, high = min(p.beta), max(p.beta)
    parts = []
    for s in starts[:_DRAWN]:
        name, lives, slope, gap = s.start, s.lives, s.slope, s.barrier
        lost = {c.beta: c.lost for c in lives}
        grown = f"layer {lost[high]}" if lost[high] is not None else f"no layer up to {p.most}"
        fit = f"slope {slope:.3g} against a gap of {gap:.3g}" if slope else "no slope"
        first = f"{name}: a leader leaves at layer {lost[low]} for beta = {low:g}"
        parts.append(f"{first}, at {grown} for {high:g}, {fit}")
    same = [[c.beta for c in s.lives if c.differs is None] for s in starts]
    least = [min(betas) for betas in same if betas]
    agree = (
        f"In {len(least)} of {len(starts)} starts some beta (the least: {min(least):g}) follows "
        "hardmax's pattern through all 64 layers."
        if least
        else "In every start somebody follows another token than under hardmax at every beta."
    )
    return f"{'; '.join(parts)}.\n\n{agree}"


def _over_gap(starts: list[st.Cell]) -> tuple[list[float], list[float]]:
    """The slope over the gap, and the one with the factor beta, of every start that has both."""
    found = [s for s in starts if np.isfinite(s.barrier) and s.slope is not None]
    plain = [s.slope / s.barrier for s in found if s.slope is not None]
    return plain, [s.corrected / s.barrier for s in found if s.corrected is not None]


def _comparisons(p: Params, starts: list[st.Cell], others: list[st.Cell]) -> list[st.Comparison]:
    """alpha, n, the threshold and the seed varied; the slope with the factor beta."""
    plain, corrected = _over_gap([*starts, *others])
    high = max(p.beta)
    same = [s for s in starts if s.lives[-1].differs is None]
    parted = [c.differs is not None for s in starts for c in s.lives if c.beta == min(p.beta)]
    out = [
        st.Comparison(
            f"at beta = {high:g} nobody follows another token than under hardmax within 64 layers",
            "starts",
            f"{st.counted(len(same), len(starts))} starts",
            len(same) == len(starts),
        ),
        st.Comparison(
            f"at beta = {min(p.beta):g} somebody does",
            "starts",
            f"{st.counted(sum(parted), len(parted))} starts",
            all(parted),
        ),
    ]
    if len(plain) < 2:
        return out
    said = f"starts, alpha, n, seed and `far` varied; n = {len(plain)} with a slope"
    for name, ratios in (("log lifetime", plain), ("log(beta lifetime)", corrected)):
        low, top = st.resampled(ratios, np.median)
        out.append(
            st.Comparison(
                f"the slope of {name} is the smallest gap between leaders",
                said,
                f"slope over gap: median {np.median(ratios):.2f} (95 % {low:.2f} to {top:.2f}), "
                f"from {min(ratios):.2f} to {max(ratios):.2f}",
                low <= 1 <= top,
            )
        )
    return out


def _mark(ax: Any, x: np.ndarray, layers: list[Any], most: int, how: str, **look: Any) -> None:
    """Dots at the layers, and a triangle at `most` where there is none."""
    none = np.array([k is None for k in layers])
    y = np.array([most if k is None else k for k in layers])
    ax.plot(x[~none], y[~none], how, **look)
    ax.plot(x[none], y[none], "^", color=look["color"], ms=7)


def _draw_lives(p: Params, starts: list[st.Cell]) -> Any:
    """Left: layers until a leader is `far` from its place (triangles: not yet at the end). Dashed:
    e^(beta gap)/beta, with the smallest gap between leaders. Right: the first layer at which some
    token's strongest softmax weight is off the tokens it follows under hardmax (triangles: none in
    64).
    """
    figure, ((left, right),) = cy.plot.sheet(1, 2, 5.4, 4.2)
    beta = np.array(p.beta)
    drawn = starts[:_DRAWN]
    for s, (colour, c) in enumerate(zip(cy.plot.PALETTE, drawn)):
        name, lives, gap = c.start, c.lives, c.barrier
        lost = [None if x.lost is None else max(x.lost, 1) for x in lives]
        _mark(left, beta, lost, p.most, "o-", color=colour, ms=4, label=name)
        for low, layers in _long(lives)[:1]:  # from the first of them on, if there is one
            line = layers * np.exp(gap * (beta - low)) * low / beta
            shown = (line < 3 * p.most) & (beta >= low)
            left.plot(beta[shown], line[shown], "--", color=colour, lw=0.9)
        beside = beta + 0.25 * (s - (len(drawn) - 1) / 2)
        _mark(right, beside, [x.differs for x in lives], 64, "o", color=colour, ms=5)
    left.set(xlabel="inverse temperature beta", ylabel="layers until a leader leaves", yscale="log")
    right.set(xlabel="inverse temperature beta", ylabel="first different follow pattern (layer)")
    right.set_yscale("symlog", linthresh=1)
    right.set_ylim(-0.2, 100)
    left.legend(frameon=False, loc="best")
    return figure
