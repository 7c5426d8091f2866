"""How many limits: number of tokens, and kind and size of the start, for softmax and hardmax.

Rescaled softmax attention with Q = K = V = I (arXiv 2305.05465), z' = P z - z, beside the hardmax
layers of arXiv 2407.01602 from the same tokens. Two questions of Sugolov and Aubry.

tokens: how many leaders n Gaussian tokens have at layer 0 is known exactly (docs/mathematics.md
B14; `leader_count` checks it), and so is how it grows. With r_n the (1 - 1/n)-quantile of N(0, 1),
about sqrt(2 log n),

    E|L_0| ~ c_d r_n^(d-1),   c_d = sqrt(2 pi) / (2^(d/2 - 1) Gamma(d/2))

that is sqrt(4 pi log n) in the plane, 4 log n in space. Softmax ends with fewer limits: short
tokens average each other out before attention is hard. The rate of convergence is 1 whatever n is,
because z' = P z - z says e^{-t} once P stands still.

starts: tokens from a box end near its corners. On the circle and the sphere nothing moves under
hardmax (B13), while softmax gathers the tokens into clusters. Trap: the number of clusters is no
property of a circle or a Gaussian but of the size of the start. Scores grow with its square.
"""

from dataclasses import dataclass, replace
from math import gamma, log, pi, sqrt
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.theorems import expected_leaders

TITLE = "How many limits: number of tokens, kind and size of the start"
ALIASES = "token_count=tokens initialisation=starts"
_FAR = (10**2, 10**3, 10**6, 10**9, 10**12)  # where the growth of the law is read
_VARIED = ("box", "Gaussian", "circle", "sphere in 3-D")
_ROUND = ("circle", "sphere in 3-D")
_CLOSE = 1e-3  # of the longest token: limits closer than this are one


@dataclass(frozen=True)
class Params:
    """`starts` and `rtol` of tokens and of starts; the time to rest; alpha of the layers.

    tokens: numbers `n`, dimensions `d`. starts: `each` tokens, every start with
    the root mean square `size`, and then with `kind_sizes`.
    """

    questions: tuple[str, ...] = ("tokens", "starts")
    n: tuple[int, ...] = (10, 30, 100, 300, 1000)
    d: tuple[int, ...] = (2, 3)
    starts: tuple[int, int] = (6, 10)
    each: int = 60
    size: float = 2.0
    kind_sizes: tuple[float, ...] = (0.5, 1.0, 4.0, 8.0)
    time: float = 16.0
    rtol: tuple[float, float] = (1e-6, 1e-8)
    alpha: float = 1.0
    seed: int = 0


QUICK = Params(
    n=(10, 40, 100), d=(2,), starts=(2, 2), each=24,
    kind_sizes=(0.5, 8.0),
)  # fmt: skip


_COUNTS = st.columns(
    "softmax limits = mean counts.limits, vertices = mean counts.vertices, tokens at 0 = mean "
    "counts.at_zero, hardmax leaders = mean counts.leaders, hardmax limits = mean "
    "counts.hardmax_limits, layers to proof = mean counts.layers"
)
_RATE = {"rate": lambda g: float(np.mean(_rates([g]))) if _rates([g]) else None}


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """A chapter for each question."""
    sensible = min(p.n) >= 2 and set(p.d) <= {2, 3} and min(p.starts) >= 1
    sensible &= p.each >= 4 and p.time >= 12
    st.require(sensible, "n >= 2, d 2 or 3, starts >= 1, each >= 4, time >= 12", p)
    text = "Limits of rescaled softmax attention, beside hardmax layers from the same tokens."
    return st.by_question(p, text, {"tokens": _tokens, "starts": _starts}, progress)


def _at_rest(p: Params, name: str, size: float, starts: list[np.ndarray], rtol: float) -> st.Cell:
    runs = [_to_rest(z0, p.time, rtol) for z0 in starts]
    counts, (n, d) = [_counted(tr, p.alpha) for tr in runs], starts[0].shape
    return st.Cell(name=name, size=size, counts=counts, first=runs[0], n=n, d=d)


def _rates(groups: list[st.Cell]) -> list[float]:
    """The exponents of all starts that have one."""
    return [c.exponent for g in groups for c in g.counts if c.exponent is not None]


def _to_rest(z0: np.ndarray, time: float, rtol: float) -> cy.Trajectory:
    stepper = cy.simulation.Adaptive(rtol=rtol, atol=1e-3 * rtol)
    times = np.linspace(0, time, 61)
    return cy.simulate(cy.dynamics.RescaledFlow(), z0, times=times, stepper=stepper)


def _counted(tr: cy.Trajectory, alpha: float) -> st.Cell:
    """The limits of a softmax run, whose tokens are at rest at its end, and of hardmax layers."""
    z = tr.values
    close = _CLOSE * float(np.linalg.norm(z[0], axis=1).max())
    groups = cy.clusters(z[-1], tol=close)
    try:  # e^{-t} at the fitted times is 1e4 times what is left at the last one
        exponent = cy.spectra.rate(tr, z[-1], floor=1e4 * float(np.exp(-tr.t[-1]))).exponent
    except ValueError:
        exponent = None
    li = cy.limit(cy.PureAttention(alpha=alpha), z[0])
    return st.Cell(
        limits=groups.count,
        vertices=len(cy.hull(groups.centres).index),
        at_zero=int((np.linalg.norm(z[-1], axis=1) < close).sum()),  # not so under hardmax
        exponent=exponent,  # None where nothing moved long enough to be fitted
        leaders=len(li.leaders),
        hardmax_limits=len(np.unique(li.points, axis=0)),
        layers=li.layers,
        moved=float(np.abs(li.points - z[0]).max()),  # from start to limit under hardmax
    )


# --- tokens: how many of them --------------------------------------------------------------------


def growth(n: int, d: int) -> float:
    """c_d r_n^(d-1): what the expected number of leaders tends to for many tokens."""
    from scipy.stats import norm

    return float(sqrt(2 * pi) / (2 ** (d / 2 - 1) * gamma(d / 2)) * norm.isf(1 / n) ** (d - 1))


def _tokens(p: Params, progress: st.Progress) -> st.Report:
    """Every (d, n), all starts."""
    groups = st.over_grid(_gaussian_starts, p, {"d": p.d, "n": p.n}, progress)
    checks = {group.name: cy.check(group.first, only=("B23", "B24")) for group in groups}
    far = tuple((d, n, expected_leaders(n, d), growth(n, d)) for d in p.d for n in _FAR)
    columns, many = {"d": "d", "n": "n", **_COUNTS, **_RATE}, f"Means over {p.starts[0]} starts."
    return st.report_of(
        p,
        _tokens_text(p, groups),
        title="Number of tokens: limits, vertices and rate for n = 10 to 1000",
        controls=_token_controls(p, groups),
        tables=[
            st.Table.of("Number of tokens", groups, columns, many),
            st.Table("How the law grows", ("d", "n", "exact mean", "c_d r_n^(d-1)"), far),
        ],
        checks=checks,
        figures=[st.Picture.of("Against the number of tokens", _curves, p, groups)],
    )


def _gaussian_starts(p: Params, d: int, n: int) -> st.Cell:
    starts = [cy.configurations.gaussian(n, d, p.seed + s) for s in range(p.starts[0])]
    return _at_rest(p, f"d = {d}, n = {n}", 1.0, starts, p.rtol[0])


def _tokens_text(p: Params, groups: list[st.Cell]) -> str:
    ends = [group for group in groups if group.n in (min(p.n), max(p.n))]
    told = [
        f"d = {g.d}, n = {g.n}: {g.mean('counts.limits'):.2g} limits of the softmax flow, "
        f"{g.mean('counts.leaders'):.2g} hardmax leaders (exact mean at layer 0 "
        f"{expected_leaders(g.n, g.d):.3g}, leading order {growth(g.n, g.d):.3g})"
        for g in ends
    ]
    every = [c for group in groups for c in group.counts]
    return (
        f"{'; '.join(told)}.\n\nOf {len(every)} runs {sum(c.limits > c.vertices for c in every)} "
        f"have a limit that is no vertex, and {sum(c.at_zero for c in every)} tokens end at 0."
    )


def _token_controls(p: Params, groups: list[st.Cell]) -> list[st.Comparison]:
    """The growth of the law, and the rate the equation forces."""
    at = {(group.d, group.n): group for group in groups}
    out = []
    for d in p.d:
        few, many = (at[d, n] for n in (min(p.n), max(p.n)))
        grown = many.mean("counts.limits") / few.mean("counts.limits")
        spans = (group.ends("counts.limits") for group in (few, many))
        exact = [expected_leaders(n, d) for n in _FAR]
        off = [x / growth(n, d) for x, n in zip(exact, _FAR)]
        plain = [x / log(n) for x, n in zip(exact, _FAR)]
        out += [
            st.Comparison(
                f"the number of softmax limits hardly grows with n, d = {d}",
                f"{few.n} and {many.n} tokens, {p.starts[0]} starts each",
                f"times {grown:.2g}: 95 % intervals "
                + " and ".join(f"{a:.2g} to {b:.2g}" for a, b in spans),
                grown < 1.5,
            ),
            st.Comparison(
                f"hardmax leaders grow like r_n^(d-1), that is (log n)^{(d - 1) / 2:g}, d = {d}",
                f"the exact law at n = {_FAR[0]:.0e} to {_FAR[-1]:.0e}; a plain logarithm",
                f"exact over c_d r_n^(d-1): {off[0]:.3f} to {off[-1]:.3f}; exact over log n: "
                f"{plain[0]:.3f} to {plain[-1]:.3f}",
                abs(off[-1] - 1) < 0.05 and abs(off[-1] - 1) < abs(off[0] - 1),
            ),
        ]
    off = [float(abs(x - 1)) for x in _rates(groups)]
    out.append(
        st.Comparison(
            "every token arrives like e^{-t}",
            "n, d; and z' = Pz - z itself, which forces it once P stands still",
            f"fitted rates within {max(off):.1g} of 1 in all {len(off)} fitted runs",
            max(off) < 0.02,
        )
    )
    return out


def _curves(p: Params, groups: list[st.Cell]) -> Any:
    """By dimension: limits of the softmax flow (circles), hardmax leaders in the limit (crosses),
    means over the starts with 95 % bootstrap intervals. Line: the exact mean of the leaders at
    layer 0 (B14); dashed: what it grows like.
    """
    figure, (axes,) = cy.plot.sheet(1, len(p.d), 4.2, 3.7)
    smooth = np.unique(np.geomspace(min(p.n), max(p.n), 30).round().astype(int)).tolist()
    blue, orange = cy.plot.PALETTE[:2]
    kinds = (("limits", "o", blue, "softmax limits"), ("leaders", "x", orange, "hardmax leaders"))
    for ax, d in zip(axes, p.d):
        line = [group for group in groups if group.d == d]
        for name, mark, colour, label in kinds:
            samples = [[getattr(c, name) for c in g.counts] for g in line]
            st.bars(ax, p.n, samples, fmt=mark, color=colour, label=label)
        law, grows = ([f(n, d) for n in smooth] for f in (expected_leaders, growth))
        ax.plot(smooth, law, color=orange, lw=1, label="leaders at layer 0, exact")
        ax.plot(smooth, grows, "--", color=cy.plot.INK, lw=1, label="$c_d\\, r_n^{d-1}$")
        ax.set(xscale="log", xlabel="tokens n", ylabel="mean number", title=f"d = {d}")
        ax.set_ylim(bottom=0)
    axes[0].legend(frameon=False, loc="upper left", fontsize=cy.plot.LABEL)
    return figure


# --- starts: which kind, and how large -----------------------------------------------------------


def _starts(p: Params, progress: st.Progress) -> st.Report:
    """Every kind of start under both models."""
    kinds = st.over_grid(_kind, p, {"start": tuple(_drawn(p, 0))}, st.part(progress, 0, 0.3))
    by_size = {"start": _VARIED, "size": sorted({p.size, *p.kind_sizes})}
    sized = st.over_grid(_kind, p, by_size, st.part(progress, 0.3, 0.9))
    last = {"hardmax moved": lambda g: g.mean("counts.moved"), "softmax rate": _RATE["rate"]}
    note = "Means over the starts. Hardmax moved: the longest way of a token to its limit."
    shown = st.columns(
        "start = name, size, softmax limits = mean counts.limits, 95 % from = low counts.limits, "
        "to = high counts.limits, hardmax limits = mean counts.hardmax_limits"
    )
    spread = "Means with 95 % bootstrap intervals. Hardmax layers do not see the size."
    return st.report_of(
        p,
        _starts_text(p, kinds),
        title="Initialisation: box, Gaussian, circle and sphere",
        controls=_start_controls(p, kinds, sized),
        tables=[
            st.Table.of("Initialisation", kinds, {"start": "name"} | _COUNTS | last, note),
            st.Table.of("Size of the start", sized, shown, spread),
        ],
        checks={kind.name: _checks(p, kind) for kind in kinds},
        figures=[st.Picture.of("Starts in the plane", _panels, kinds)],
    )


def _drawn(p: Params, s: int) -> dict[str, np.ndarray]:
    """One start of each kind, with root mean square length p.size."""
    seed, n = p.seed + s, p.each
    box, gaussian = cy.configurations.box, cy.configurations.gaussian
    drawn = {
        "box": box(n, 2, seed) * np.sqrt(1.5),
        "Gaussian": gaussian(n, 2, seed) / np.sqrt(2),
        "circle": cy.configurations.sphere(n, 2, seed),
        "box in 3-D": box(n, 3, seed),
        "Gaussian in 3-D": gaussian(n, 3, seed) / np.sqrt(3),
        "sphere in 3-D": cy.configurations.sphere(n, 3, seed),
    }
    return {kind: p.size * z for kind, z in drawn.items()}


def _kind(p: Params, kind: str, size: float | None = None) -> st.Cell:
    sized = p if size is None else replace(p, size=size)
    starts = [_drawn(sized, s)[kind] for s in range(p.starts[1])]
    return _at_rest(p, kind, sized.size, starts, p.rtol[1])


def _checks(p: Params, kind: st.Cell) -> list[cy.theorems.Check]:
    layers = cy.simulate(cy.PureAttention(alpha=p.alpha), kind.first.values[0], layers=20)
    checks = cy.check(layers, only=("B5", "B13")) + cy.check(kind.first, only=("B23", "B24"))
    if kind.name in _ROUND:  # B13 asks for norms that are equal exactly
        moved = float(np.abs(layers.values - layers.values[0]).max())
        law = "norms equal up to rounding, tokens further apart than that: nothing moves"
        checks.append(st.at_most("nothing moves", "docs/mathematics.md B13", law, moved, 0.0))
    return checks


def _starts_text(p: Params, kinds: list[st.Cell]) -> str:
    still = [kind.name for kind in kinds if max(c.moved for c in kind.counts) == 0]
    text = "; ".join(
        f"{kind.name}: {kind.mean('counts.limits'):.2g} under softmax, "
        f"{kind.mean('counts.hardmax_limits'):.2g} under hardmax"
        for kind in kinds
    )
    fitted = _rates(kinds)
    return (
        f"Mean numbers of limits, n = {p.each}, starts per kind: {p.starts[1]}, size {p.size:g}. "
        f"{text}.\n\nUnder hardmax no token moves at all from: "
        f"{', '.join(still) or 'none of them'}. The softmax rate, where tokens move, is between "
        f"{min(fitted):.4f} and {max(fitted):.4f}."
    )


def _corners(p: Params, z: np.ndarray) -> float:
    """Median distance of tokens in the plane from the nearest corner of the box, by half a side."""
    half = p.size * np.sqrt(1.5)
    return float(np.median(np.linalg.norm(half - np.abs(z), axis=1)) / half)


def _start_controls(p: Params, kinds: list[st.Cell], sized: list[st.Cell]) -> list[st.Comparison]:
    """Sizes of the start, and where a uniform token would be."""
    ends = cy.clusters(kinds[0].first.values[-1], 1e-3 * p.size).centres
    near, before = _corners(p, ends), _corners(p, kinds[0].first.values[0])
    out = [
        st.Comparison(
            f"tokens from a box end near its corners (size {p.size:g}, the start drawn)",
            "the same tokens at the start, uniform in the box",
            f"median distance from the nearest corner, half a side being 1: limits {near:.2f}, "
            f"start {before:.2f}",
            near < before / 2,
        )
    ]
    for kind, groups in st.grouped(sized, "name").items():
        (here,) = (group for group in groups if group.size == p.size)
        first, last = (groups[k].ends("counts.limits") for k in (0, -1))
        seen = ", ".join(f"{g.told('counts.limits')} at size {g.size:g}" for g in groups)
        out.append(
            st.Comparison(
                f"{kind}: {here.mean('counts.limits'):.2g} limits under softmax",
                f"the size of the start, {p.starts[1]} starts each",
                f"limits: {seen}",
                first[1] >= last[0],
            )
        )
    still = st.grouped((group for group in sized if group.name in _ROUND), "size")
    moved = {size: max(c.moved for g in of for c in g.counts) for size, of in still.items()}
    out.append(
        st.Comparison(
            "on a circle or sphere hardmax moves nothing",
            "the size of the start",
            "longest way: "
            + ", ".join(f"{far:.1g} at size {size:g}" for size, far in moved.items()),
            max(moved.values()) == 0,
        )
    )
    return out


def _panels(kinds: list[st.Cell]) -> Any:
    """Rescaled tokens under softmax, V = I, from circles to squares, the hull of the limits shaded.
    Crosses: limits of hardmax layers, which on the circle move no token at all.
    """
    planar = [kind for kind in kinds if kind.d == 2]
    figure, (axes,) = cy.plot.sheet(1, len(planar), 3.6, 3.9)
    for ax, kind in zip(axes, planar):
        z = kind.first.values
        cy.plot.shade(ax, cy.hull(z[-1]))
        ax.plot(z[..., 0], z[..., 1], color=cy.plot.GREY, lw=0.5, zorder=1)
        ax.plot(*z[0].T, "o", color=cy.plot.GREY, ms=2.5, label="start")
        ax.plot(*z[-1].T, "s", color=cy.plot.PALETTE[1], ms=6.5, label="limit, softmax")
        hard = cy.limit(cy.PureAttention(), z[0]).points
        ax.plot(*hard.T, "x", color=cy.plot.PALETTE[0], ms=6, label="limit, hardmax")
        ax.set(aspect="equal", xlabel="$z_1$", ylabel="$z_2$", title=kind.name)
    cy.plot.legend_below(axes[0])
    return figure
