"""How many limits: number of tokens, and kind and size of the start, for softmax and hardmax.

Rescaled softmax attention with Q = K = V = I (arXiv 2305.05465), z' = P z - z, beside the hardmax
layers of arXiv 2407.01602 from the same tokens. Two questions of Sugolov and Aubry.

tokens: how many leaders n Gaussian tokens have at layer 0 is known exactly (docs/mathematics.md
B14), and so is how it grows. With r_n the (1 - 1/n)-quantile of N(0, 1), about sqrt(2 log n),

    E|L_0| ~ c_d r_n^(d-1),   c_d = sqrt(2 pi) / (2^(d/2 - 1) Gamma(d/2))

that is sqrt(4 pi log n) in the plane, 4 log n in space, (log n)^((d-1)/2) in general. Softmax ends
with fewer limits than hardmax has leaders: short tokens average each other out before attention is
hard. The rate of convergence is 1 whatever n is, because z' = P z - z says e^{-t} once P stands
still at the leaders.

starts: tokens from a box end near its corners. On the circle and the sphere the models part: under
hardmax every token leads and nothing moves (B13), while softmax gathers the tokens into clusters
first and then holds these. Trap: the number of clusters is no property of a circle or a Gaussian
but of the size of the start. Scores grow with its square.
"""

from dataclasses import dataclass, replace
from math import gamma, log, pi, sqrt
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.theorems import expected_leaders

TITLE = "How many limits: number of tokens, kind and size of the start"
ALIASES = "token_count=tokens initialisation=starts"
_FAR = (10**2, 10**3, 10**6, 10**9, 10**12)  # where the growth of the law is read
_SQUARES = 5 * 13 * 17 * 29  # a sum of two squares in 64 ways, counting signs and order
_VARIED = ("box", "Gaussian", "circle", "sphere in 3-D")
_ROUND = ("circle", "sphere in 3-D")
_CLOSE = 1e-3  # of the longest token: limits closer than this are one


@dataclass(frozen=True)
class Params:
    """`starts` and `rtol` of tokens and of starts; the time to rest; alpha of the layers.

    tokens: numbers `n`, dimensions `d`; `draws` more starts for the leaders at layer 0; `middle`
    tokens from starts of `sizes` (1: standard Gaussian). starts: `each` tokens, every start with
    the root mean square `size` (the lattice circle its own, 1.4), and then with `kind_sizes`.
    """

    questions: tuple[str, ...] = ("tokens", "starts")
    n: tuple[int, ...] = (10, 30, 100, 300, 1000)
    d: tuple[int, ...] = (2, 3)
    starts: tuple[int, int] = (6, 10)
    draws: int = 200
    middle: int = 100
    sizes: tuple[float, ...] = (0.5, 2.0, 4.0, 8.0)
    each: int = 60
    size: float = 2.0
    kind_sizes: tuple[float, ...] = (0.5, 1.0, 4.0, 8.0)
    time: float = 16.0
    rtol: tuple[float, float] = (1e-6, 1e-8)
    alpha: float = 1.0
    seed: int = 0


QUICK = Params(
    n=(10, 40, 100), d=(2,), starts=(2, 2), draws=20, middle=40, sizes=(0.5, 4.0), each=24,
    kind_sizes=(0.5, 8.0),
)  # fmt: skip


class LimitCounts(NamedTuple):
    """The limits of one softmax run, and of hardmax layers from the same tokens, counted."""

    limits: int
    vertices: int
    at_zero: int  # tokens at 0, which softmax allows and hardmax does not
    exponent: float | None  # of the rate; None where nothing moved long enough to be fitted
    leaders: int  # of hardmax
    hardmax_limits: int
    layers: int  # after which every hardmax limit is proved
    moved: float  # the largest way of a token under hardmax, from start to limit


class StartGroup(NamedTuple):
    """Several starts of one kind: what is counted for each, and the softmax run of the first."""

    name: str
    size: float
    counts: list[LimitCounts]
    first: cy.Trajectory

    @property
    def n(self) -> int:
        return self.first.values.shape[1]

    @property
    def d(self) -> int:
        return self.first.values.shape[2]

    @property
    def exponents(self) -> list[float]:
        return [c.exponent for c in self.counts if c.exponent is not None]

    @property
    def limits(self) -> list[int]:
        return [c.limits for c in self.counts]

    @property
    def ratio(self) -> np.ndarray:
        """Softmax limits over hardmax leaders, start by start."""
        return np.array([c.limits / c.leaders for c in self.counts])

    def mean(self, name: str) -> float:
        """The mean of one of the counts over the starts."""
        return float(np.mean([getattr(c, name) for c in self.counts]))


_COUNTS: dict[str, Any] = {
    header: lambda group, name=name: group.mean(name)
    for header, name in {
        **{"softmax limits": "limits", "vertices": "vertices", "tokens at 0": "at_zero"},
        **{"hardmax leaders": "leaders", "hardmax limits": "hardmax_limits"},
        "layers to proof": "layers",
    }.items()
}
_RATE = {"rate": lambda g: float(np.mean(g.exponents)) if g.exponents else None}


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """A chapter for each question."""
    sensible = min(*p.n, p.middle) >= 2 and set(p.d) <= {2, 3} and min(p.starts) >= 1
    sensible &= p.draws >= 2 and p.each >= 4 and p.time >= 12
    expected = "n >= 2, d 2 or 3, starts >= 1, draws >= 2, each >= 4, time >= 12"
    st.require(sensible, expected, p)
    text = "Limits of rescaled softmax attention, beside hardmax layers from the same tokens."
    return st.by_question(p, text, {"tokens": _tokens, "starts": _starts}, progress)


def _at_rest(
    p: Params, name: str, size: float, starts: list[np.ndarray], rtol: float
) -> StartGroup:
    runs = [_to_rest(z0, p.time, rtol) for z0 in starts]
    return StartGroup(name, size, [_counted(tr, p.alpha) for tr in runs], runs[0])


def _to_rest(z0: np.ndarray, time: float, rtol: float) -> cy.Trajectory:
    stepper = cy.simulation.Adaptive(rtol=rtol, atol=1e-3 * rtol)
    times = np.linspace(0, time, 61)
    return cy.simulate(cy.dynamics.RescaledFlow(), z0, times=times, stepper=stepper)


def _counted(tr: cy.Trajectory, alpha: float) -> LimitCounts:
    """Tokens are at rest, so the last state is the limit."""
    z = tr.values
    close = _CLOSE * float(np.linalg.norm(z[0], axis=1).max())
    groups = cy.clusters(z[-1], tol=close)
    try:  # e^{-t} at the fitted times is 1e4 times what is left at the last one
        exponent = cy.spectra.rate(tr, z[-1], floor=1e4 * float(np.exp(-tr.t[-1]))).exponent
    except ValueError:
        exponent = None
    li = cy.limit(cy.PureAttention(alpha=alpha), z[0])
    return LimitCounts(
        limits=groups.count,
        vertices=len(cy.hull(groups.centres).index),
        at_zero=int((np.linalg.norm(z[-1], axis=1) < close).sum()),
        exponent=exponent,
        leaders=len(li.leaders),
        hardmax_limits=len(np.unique(li.points, axis=0)),
        layers=li.layers,
        moved=float(np.abs(li.points - z[0]).max()),
    )


# --- tokens: how many of them --------------------------------------------------------------------


class Leaders(NamedTuple):
    """Hardmax leaders at layer 0 of many Gaussian starts, beside the exact law."""

    d: int
    n: int
    seen: np.ndarray  # (draws,)

    @property
    def expected(self) -> float:
        return expected_leaders(self.n, self.d)

    @property
    def off(self) -> float:
        """Distance of the mean from the law in standard errors."""
        error = max(float(self.seen.std(ddof=1)), 1e-9) / sqrt(len(self.seen))
        return float(abs(self.seen.mean() - self.expected) / error)


def growth(n: int, d: int) -> float:
    """c_d r_n^(d-1): what the expected number of leaders tends to for many tokens."""
    from scipy.stats import norm

    return float(sqrt(2 * pi) / (2 ** (d / 2 - 1) * gamma(d / 2)) * norm.isf(1 / n) ** (d - 1))


def _tokens(p: Params, progress: st.Progress) -> st.Report:
    """Every (d, n), all starts; then the sizes."""
    over, many = st.measuring(p, progress), f"Means over {p.starts[0]} starts."
    groups = over(_gaussian_starts, {"d": p.d, "n": p.n}, 0.7)
    first = over(_leaders, {"leaders, d": p.d, "n": p.n}, 0.8)
    sized = over(_gaussian_starts, {"d": p.d, "n": (p.middle,), "size": sorted({1.0, *p.sizes})})
    checks = {group.name: cy.check(group.first, only=("B23", "B24")) for group in groups}
    worst, law = max(c.off for c in first), "mean hardmax leaders at layer 0 is the expected one"
    checks["leaders"] = [st.at_most("mean leaders", "docs/mathematics.md B14", law, worst, 5)]
    by_law = st.columns("d, n, mean leaders = mean seen, exact mean = expected")
    by_law |= {"off, in standard errors": "off", "c_d r_n^(d-1)": lambda c: growth(c.n, c.d)}
    far = tuple((d, n, expected_leaders(n, d), growth(n, d)) for d in p.d for n in _FAR)
    shown = ("softmax limits", "hardmax leaders")
    ratio = {"start": "name"} | {name: _COUNTS[name] for name in shown}
    ratio |= st.columns("softmax over hardmax = mean ratio")
    same = f"{p.middle} tokens, means over {2 * p.starts[0]} starts, the same at every size."
    drawn = f"Means over {p.draws} starts."
    return st.report_of(
        p,
        _tokens_text(p, groups),
        title="Number of tokens: limits, vertices and rate for n = 10 to 1000",
        controls=_token_controls(p, groups, first, sized),
        tables=[
            st.Table.of("Number of tokens", groups, {"d": "d", "n": "n", **_COUNTS, **_RATE}, many),
            st.Table.of("Hardmax leaders at layer 0", first, by_law, drawn),
            st.Table("How the law grows", ("d", "n", "exact mean", "c_d r_n^(d-1)"), far),
            st.Table.of("Size of the start", sized, ratio, same),
        ],
        checks=checks,
        figures=[st.Picture.of("Against the number of tokens", _curves, p, groups, sized)],
    )


def _gaussian(p: Params, n: int, d: int, count: int) -> list[np.ndarray]:
    return [cy.configurations.gaussian(n, d, p.seed + s) for s in range(count)]


def _gaussian_starts(p: Params, d: int, n: int, size: float = 0.0) -> StartGroup:
    """Starts of size 1; twice as many if a size is asked for."""
    starts = [(size or 1.0) * z for z in _gaussian(p, n, d, (1 + bool(size)) * p.starts[0])]
    name = f"d = {d}, size {size:g}" if size else f"d = {d}, n = {n}"
    return _at_rest(p, name, size or 1.0, starts, p.rtol[0])


def _leaders(p: Params, d: int, n: int) -> Leaders:
    seen = [int(cy.Hardmax().followed(z).leads.sum()) for z in _gaussian(p, n, d, p.draws)]
    return Leaders(d, n, np.array(seen))


def _tokens_text(p: Params, groups: list[StartGroup]) -> str:
    low, high = min(p.n), max(p.n)
    at = {(group.d, group.n): group for group in groups}
    laws = {2: f"sqrt(4 pi log n) = {sqrt(4 * pi * log(high)):.3g}"}
    laws[3] = f"4 log n = {4 * log(high):.3g}"
    parts = [
        f"d = {d}: from {low} to {high} tokens the softmax flow goes from "
        f"{at[d, low].mean('limits'):.2g} to {at[d, high].mean('limits'):.2g} limits, hardmax from "
        f"{at[d, low].mean('leaders'):.2g} to {at[d, high].mean('leaders'):.2g} leaders (exact "
        f"mean {expected_leaders(low, d):.3g} to {expected_leaders(high, d):.3g}; {laws[d]} at the "
        f"end is the leading order, {growth(high, d):.3g} with the quantile r_n)"
        for d in p.d
    ]
    every = [c for group in groups for c in group.counts]
    inner = sum(c.limits > c.vertices for c in every)
    return (
        "; ".join(parts) + f".\n\nOf {len(every)} runs {inner} have a limit that is no vertex, and "
        f"{sum(c.at_zero for c in every)} tokens end at 0."
    )


def _token_controls(
    p: Params, groups: list[StartGroup], first: list[Leaders], sized: list[StartGroup]
) -> list[st.Comparison]:
    """The exact law, its growth, the size of the start, and the rate the equation forces."""
    worst = max(c.off for c in first)
    at = {(group.d, group.n): group for group in groups}
    out = [
        st.Comparison(
            "hardmax leaders at layer 0 follow the law of B14",
            f"the exact mean, {p.draws} starts for every d and n",
            f"the mean is off by at most {worst:.2g} standard errors",
            worst < 5,
        )
    ]
    for d in p.d:
        few, many = (at[d, n] for n in (min(p.n), max(p.n)))
        grown = many.mean("limits") / few.mean("limits")
        spans = (st.resampled(group.limits) for group in (few, many))
        exact = [expected_leaders(n, d) for n in _FAR]
        off = [x / growth(n, d) for x, n in zip(exact, _FAR)]
        plain = [x / log(n) for x, n in zip(exact, _FAR)]
        ratios = {group.size: group.ratio for group in sized if group.d == d}
        low, high = st.resampled(ratios[1.0])
        seen = ", ".join(f"{r.mean():.2f} at size {size:g}" for size, r in ratios.items())
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
            st.Comparison(
                f"softmax ends with fewer limits than hardmax has leaders, d = {d}",
                f"size of the start, {p.middle} tokens, {2 * p.starts[0]} starts",
                f"softmax over hardmax: {seen} (95 % at size 1: {low:.2f} to {high:.2f}); how many "
                "fewer is the size's",
                high < 1 and bool(ratios[min(ratios)].mean() < ratios[max(ratios)].mean()),
            ),
        ]
    off = [float(abs(x - 1)) for group in (*groups, *sized) for x in group.exponents]
    out.append(
        st.Comparison(
            "every token arrives like e^{-t}",
            "n, d, size; and z' = Pz - z itself, which forces it once P stands still",
            f"fitted rates within {max(off):.1g} of 1 in all {len(off)} fitted runs",
            max(off) < 0.02,
        )
    )
    return out


def _curves(p: Params, groups: list[StartGroup], sized: list[StartGroup]) -> Any:
    """By dimension: limits of the softmax flow (circles), hardmax leaders in the limit (crosses),
    means over the starts with 95 % bootstrap intervals. Line: the exact mean of the leaders at
    layer 0 (B14); dashed: what it grows like. Right: softmax limits over hardmax leaders of the
    same starts, against the size of the start.
    """
    figure, (axes,) = cy.plot.sheet(1, len(p.d) + 1, 4.2, 3.7)
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
    ax = axes[-1]
    for colour, d in zip(cy.plot.PALETTE[2:], p.d):
        line = [group for group in sized if group.d == d]
        how: dict[str, Any] = {"color": colour, "label": f"d = {d}"}
        st.bars(ax, [g.size for g in line], [g.ratio for g in line], **how)
    ax.axhline(1, color=cy.plot.INK, lw=0.8, ls=":")
    ax.set(xscale="log", xlabel="size of the start", ylabel="softmax limits / hardmax leaders")
    ax.set(title=f"n = {p.middle}", ylim=(0, 1.1))
    cy.plot.plain_log(ax.xaxis)
    ax.legend(frameon=False, loc="lower right")
    return figure


# --- starts: which kind, and how large -----------------------------------------------------------


def _starts(p: Params, progress: st.Progress) -> st.Report:
    """Every kind of start under both models."""
    kinds = st.over_grid(_kind, p, {"start": tuple(_drawn(p, 0))}, st.part(progress, 0, 0.3))
    by_size = {"start": _VARIED, "size": sorted({p.size, *p.kind_sizes})}
    sized = st.over_grid(_kind, p, by_size, st.part(progress, 0.3, 0.9))
    last = {"hardmax moved": lambda g: g.mean("moved"), "softmax rate": _RATE["rate"]}
    note = "Means over the starts. Hardmax moved: the longest way of a token to its limit."
    shown = st.columns("start = name, size")
    shown |= {
        "softmax limits": _COUNTS["softmax limits"],
        "95 % from": lambda g: st.resampled(g.limits)[0],
        "to": lambda g: st.resampled(g.limits)[1],
        "hardmax limits": _COUNTS["hardmax limits"],
    }
    spread = "Means with 95 % bootstrap intervals. Hardmax layers do not see the size."
    return st.report_of(
        p,
        _starts_text(p, kinds, sized),
        title="Initialisation: box, Gaussian, circle and sphere",
        controls=_start_controls(p, kinds, sized),
        tables=[
            st.Table.of("Initialisation", kinds, {"start": "name"} | _COUNTS | last, note),
            st.Table.of("Size of the start", sized, shown, spread),
        ],
        checks={kind.name: _checks(p, kind) for kind in kinds},
        figures=[
            st.Picture.of("Four starts in the plane", _panels, kinds),
            st.Picture.of("Size of the start", _draw_sizes, p, sized),
        ],
    )


def lattice_circle() -> np.ndarray:
    """The 64 integer points with x^2 + y^2 = 32045, over 128: exactly equal norms near 1.4."""
    side = int(np.sqrt(_SQUARES))
    x = np.arange(-side, side + 1)
    i, j = np.nonzero(x[:, None] ** 2 + x**2 == _SQUARES)
    return np.stack([x[i], x[j]], axis=1) / 128


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
    chosen = np.random.default_rng(seed).permutation(64)[:n]
    lattice = {"lattice circle": lattice_circle()[np.sort(chosen)]}
    return {kind: p.size * z for kind, z in drawn.items()} | lattice


def _kind(p: Params, kind: str, size: float | None = None) -> StartGroup:
    sized = p if size is None else replace(p, size=size)
    starts = [_drawn(sized, s)[kind] for s in range(p.starts[1])]
    return _at_rest(p, kind, sized.size, starts, p.rtol[1])


def _checks(p: Params, kind: StartGroup) -> list[cy.theorems.Check]:
    layers = cy.simulate(cy.PureAttention(alpha=p.alpha), kind.first.values[0], layers=20)
    checks = cy.check(layers, only=("B5", "B13")) + cy.check(kind.first, only=("B23", "B24"))
    if kind.name in _ROUND:  # B13 asks for norms that are equal exactly
        moved = float(np.abs(layers.values - layers.values[0]).max())
        law = "norms equal up to rounding, tokens further apart than that: nothing moves"
        checks.append(st.at_most("nothing moves", "docs/mathematics.md B13", law, moved, 0.0))
    return checks


def _starts_text(p: Params, kinds: list[StartGroup], sized: list[StartGroup]) -> str:
    still = [kind.name for kind in kinds if max(c.moved for c in kind.counts) == 0]
    text = "; ".join(
        f"{kind.name}: {kind.mean('limits'):.2g} under softmax, {kind.mean('hardmax_limits'):.2g} "
        "under hardmax"
        for kind in kinds
    )
    ends = "; ".join(
        f"{kind}: {groups[0].mean('limits'):.2g} to {groups[-1].mean('limits'):.2g}"
        for kind, groups in st.grouped(sized, "name").items()
    )
    fitted = [x for kind in kinds for x in kind.exponents]
    return (
        f"Mean numbers of limits, n = {p.each}, starts per kind: {p.starts[1]}, size {p.size:g}. "
        f"{text}.\n\nUnder softmax these are numbers of this size. From size {sized[0].size:g} to "
        f"{sized[-1].size:g}: {ends}.\n\nUnder hardmax no token moves at all from: "
        f"{', '.join(still) or 'none of them'}. The softmax rate, where tokens move, is between "
        f"{min(fitted):.4f} and {max(fitted):.4f}."
    )


def _corners(p: Params, z: np.ndarray) -> float:
    """Median distance of tokens in the plane from the nearest corner of the box, by half a side."""
    half = p.size * np.sqrt(1.5)
    return float(np.median(np.linalg.norm(half - np.abs(z), axis=1)) / half)


def _start_controls(
    p: Params, kinds: list[StartGroup], sized: list[StartGroup]
) -> list[st.Comparison]:
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
        first, last = (st.resampled(groups[k].limits) for k in (0, -1))
        seen = ", ".join(f"{st.told(group.limits)} at size {group.size:g}" for group in groups)
        out.append(
            st.Comparison(
                f"{kind}: {here.mean('limits'):.2g} limits under softmax",
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


def _draw_sizes(p: Params, sized: list[StartGroup]) -> Any:
    """Mean number of softmax limits against the root mean square length of the start, with 95 %
    bootstrap intervals; dashed: all tokens. Under hardmax no limit depends on the size.
    """
    figure, ((ax,),) = cy.plot.sheet(1, 1, 6.5, 4)
    for colour, (kind, of) in zip(cy.plot.PALETTE, st.grouped(sized, "name").items()):
        sizes, samples = [g.size for g in of], [g.limits for g in of]
        st.bars(ax, sizes, samples, color=colour, label=kind)
    ax.axhline(p.each, color=cy.plot.INK, lw=0.8, ls="--")
    ax.set(xscale="log", yscale="log", xlabel="size of the start", ylabel="softmax limits")
    for axis in (ax.xaxis, ax.yaxis):
        cy.plot.plain_log(axis)
    ax.legend(frameon=False)
    return figure


def _panels(kinds: list[StartGroup]) -> Any:
    """Rescaled tokens under softmax, V = I, from circles to squares, the hull of the limits shaded.
    Crosses: limits of hardmax layers, which on both circles move no token at all.
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
