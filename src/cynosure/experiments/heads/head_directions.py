"""Random heads from the sphere: which eigenvalues the tokens end with (E18).

    x_i' = (1/H) sum_h V_h (P_h x)_i,   P_h = softmax of <A_h x_i, x_j>,   A_h, V_h Gaussian/sqrt(d)

the multi-head question about the flow of arXiv 2305.05465, with tokens that start on the unit
circle or sphere. Once attention is sharp the tokens of a growing run lie along one direction v, on
one side of 0 or on both. See: on one side every head looks the same way, and x grows by the leading
eigenvalue of the mean of the V_h, along its eigenvector. On both sides it need not: a head with
<A_h v, v> < 0 looks at the other side, where tokens are -x, so what counts is the *signed* mean

    (1/H) sum_h s_h V_h,   s_h = sign <A_h v, v>

and v is the leading eigenvector of the mean that it itself signs. Distances to the line shrink at
the smaller of its leading eigenvalue (tokens of one side are pulled alike, so their distances stay
while all grow) and its spectral gap. Many runs settle on no line within the time: their leading
eigenvalues are complex, or no sign pattern is its own, and heads go on to disagree.

Beside it: heads with definite A_h, where all signs are +; starts that are not on a sphere; from 10
to 1,000 tokens under the same heads; and the unsigned mean, the null model for every number here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy

from .._frame import Progress, counted, over_grid, part, report_of, require, wilson

TITLE = "Random heads from the sphere: the signed spectrum"
SIDE = 0.05  # of the longest token: farther than this from 0 is on a side of it
STILL = 1e-6  # 1 - |cos| between the directions of two saved times: less does not turn
NEAR = 0.05  # relative error of a growth that is called right


@dataclass(frozen=True)
class Params:
    """`draws` draws of H heads and n tokens on the sphere of R^d, for time `time` sqrt(H) in steps
    of dt sqrt(H); `sizes` are (n, draws, dt), the first draws of heads being the same for all n.

    `varied` besides, for each d: (H, n, draws, dt, start, form), start "sphere" or "gaussian", form
    "any" or "definite" (A_h = B B^T, B Gaussian/sqrt(d)). A long step is also taken by the tokens
    of the second size, to see what it costs.
    """

    d: tuple[int, ...] = (2, 3)
    heads: tuple[int, ...] = (1, 2, 4, 8, 16)
    sizes: tuple[tuple[int, int, float], ...] = (
        (10, 16, 0.1),
        (30, 16, 0.1),
        (100, 8, 0.1),
        (1000, 2, 0.25),
    )
    time: float = 16.0
    varied: tuple[tuple[int, int, int, float, str, str], ...] = (
        (4, 30, 16, 0.1, "gaussian", "any"),
        (4, 30, 16, 0.1, "sphere", "definite"),
    )
    seed: int = 0


QUICK = Params(
    heads=(1, 4),
    sizes=((8, 5, 0.1), (12, 3, 0.2)),
    varied=((2, 8, 5, 0.1, "sphere", "definite"),),
)
Size = tuple[int, int, int, float, str, str]  # H, n, draws, dt, start, form


class Settled(NamedTuple):
    """The end of one run."""

    growth: float  # fitted, of the longest token
    still: bool  # does the direction stand still?
    sides: int  # 1 or 2
    clusters: int
    signed: float  # leading eigenvalue of the signed mean, real part
    plain: float  # of the mean
    real: bool  # is the leading eigenvalue of the signed mean real?
    along: float  # |cos| between the direction and the leading eigenvector of the signed mean
    minus: int  # heads with <A_h v, v> < 0
    rate: float  # fitted, at which distances to the line shrink; NaN where there is no window
    gap: float  # of the signed mean

    @property
    def on_a_line(self) -> bool:
        return self.still and self.clusters <= 3 and self.real and self.growth > 0

    @property
    def expected(self) -> float:
        """The rate at which the line is approached: tokens on one side keep their distances while
        all grow, and their mean turns to the line by the spectral gap."""
        return min(self.signed, self.gap)

    def right(self, predicted: float) -> bool:
        return abs(self.growth - predicted) <= NEAR * abs(self.growth)


class Draws(NamedTuple):
    """The runs of one cell."""

    d: int
    H: int
    n: int
    dt: float
    start: str
    form: str
    runs: list[Settled]

    @property
    def line(self) -> list[Settled]:
        return [r for r in self.runs if r.on_a_line]


def run(p: Params, progress: Progress | None = None) -> cy.Report:
    """Every dimension, number of heads and of tokens, then other starts, forms and steps."""
    least = min(min(n, draws + 1) for n, draws, _ in p.sizes)
    sensible = min(*p.d, least) >= 2 and min(p.heads) >= 1 and p.time >= 8
    require(sensible, "d, n >= 2, heads, draws >= 1, time >= 8", p)
    sizes = [(h, *size, "sphere", "any") for size in p.sizes for h in p.heads]
    cells = over_grid(_cell, p, {"d": p.d, "heads": sizes}, part(progress, 0, 0.9))
    others = over_grid(_cell, p, {"d": p.d, "heads": p.varied}, part(progress, 0.9, 0.95))
    n, draws, longest = *p.sizes[min(1, len(p.sizes) - 1)][:2], max(dt for *_, dt in p.sizes)
    steps = [(h, n, draws, longest, "sphere", "any") for h in p.heads]
    coarse = over_grid(_cell, p, {"d": p.d, "heads": steps}, part(progress, 0.95, 1))
    return report_of(
        __name__,
        p,
        _summary(p, cells),
        controls=[*_controls(cells, others), *_sizes(p, cells, coarse)],
        tables=[
            _table("Number of heads and tokens", cells),
            _table("Other starts and forms", others),
            _table("The longest step", coarse),
        ],
        figures=[
            cy.Picture("Growth beside the spectrum", _CURVES, _curves(p, cells)),
            cy.Picture("Three runs from the circle", _PANELS, _panels(p)),
        ],
    )


def _heads(p: Params, d: int, h: int, form: str, draw: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([p.seed, d, h, draw])
    A, V = rng.standard_normal((2, h, d, d)) / np.sqrt(d)
    return (A @ A.swapaxes(1, 2) if form == "definite" else A), V


def _run(p: Params, d: int, size: Size, draw: int) -> cy.Trajectory:
    h, n, _, dt, start, form = size
    A, V = _heads(p, d, h, form, draw)
    x = np.random.default_rng([p.seed, n, draw]).standard_normal((n, d))
    if start == "sphere":
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    heads = cy.Heads([cy.Softmax(1.0, form_h) for form_h in A], list(V))
    root = float(np.sqrt(h))  # a mean of h random matrices is so much smaller: as much slower
    times = np.linspace(0, p.time * root, 65)
    stepper = cy.RK4(dt * root)
    return cy.simulate(cy.UnnormalizedFlow(heads), x, times=times, stepper=stepper)


def _cell(p: Params, d: int, size: Size) -> Draws:
    h, n, draws, dt, start, form = size
    runs = []
    for draw in range(draws):
        A, V = _heads(p, d, h, form, draw)
        runs.append(_settled(_run(p, d, size, draw), A, V))
    return Draws(d, h, n, dt, start, form, runs)


def _settled(tr: cy.Trajectory, A: np.ndarray, V: np.ndarray) -> Settled:
    x, t = tr.values, tr.t
    size = np.linalg.norm(x, axis=2).max(axis=1)
    unit = x / size[:, None, None]
    late = slice(-len(t) // 4, None)
    growth = float(np.polyfit(t[late], np.log(size[late]), 1)[0])
    v, before = _direction(unit[-1]), _direction(unit[-len(t) // 10])
    f = unit[-1] @ v
    sides = 2 if f.max() > SIDE and f.min() < -SIDE else 1
    sign = np.sign(np.einsum("i,hij,j->h", v, A, v))
    signed, plain = np.mean(sign[:, None, None] * V, axis=0), V.mean(axis=0)
    values, vectors = np.linalg.eig(signed if sides == 2 else plain)
    order = np.argsort(-values.real)
    leading, second = values[order[0]], values[order[1]]
    off = np.linalg.norm(unit - (unit @ v)[..., None] * v, axis=2).max(axis=1)
    window = (off > 1e-9) & (off < 1e-2)
    rate = float("nan")
    if window.sum() >= 5:
        rate = -float(np.polyfit(t[window], np.log(off[window]), 1)[0])
    return Settled(
        growth=growth,
        still=bool(1 - abs(v @ before) < STILL),
        sides=sides,
        clusters=cy.clusters(unit[-1], tol=1e-2).count,
        signed=float(leading.real),
        plain=float(np.linalg.eigvals(plain).real.max()),
        real=bool(abs(leading.imag) < 1e-12),
        along=float(abs(vectors[:, order[0]] @ v)),
        minus=int((sign < 0).sum()),
        rate=rate,
        gap=float(leading.real - second.real),
    )


def _direction(unit: np.ndarray) -> np.ndarray:
    return np.linalg.svd(unit, full_matrices=False)[2][0]


def _table(title: str, cells: list[Draws]) -> cy.Table:
    def median(c: Draws, of: Any) -> float | None:
        return float(np.median([of(r) for r in c.line])) if c.line else None

    columns: dict[str, Any] = {
        **{name: name for name in ("d", "H", "n", "dt", "start", "form")},
        "runs": lambda c: len(c.runs),
        "on a line": lambda c: len(c.line),
        "of these both sides": lambda c: sum(r.sides == 2 for r in c.line),
        "growth": lambda c: median(c, lambda r: r.growth),
        "signed eigenvalue right": lambda c: sum(r.right(r.signed) for r in c.line),
        "plain eigenvalue right": lambda c: sum(r.right(r.plain) for r in c.line),
        "|cos| to its eigenvector": lambda c: median(c, lambda r: r.along),
        "rate / expected": lambda c: _ratio(c.line),
        "clusters": lambda c: median(c, lambda r: r.clusters),
    }
    note = (
        f"On a line: the direction stands still, at most 3 clusters, growing. Right: within "
        f"{NEAR:.0%} of the fitted growth; medians over the runs on a line. On one side the "
        "signed mean is the mean."
    )
    return cy.Table.of(title, cells, columns, note)


def _ratio(runs: list[Settled]) -> float | None:
    ratios = [r.rate / r.expected for r in runs if np.isfinite(r.rate)]
    return float(np.median(ratios)) if ratios else None


def _controls(cells: list[Draws], others: list[Draws]) -> list[cy.Comparison]:
    every = [r for c in (*cells, *others) for r in c.line]
    free = [r for c in (*cells, *others) if c.form == "any" for r in c.line]
    both = [r for r in free if r.sides == 2 and r.minus]
    one = [r for r in free if r.sides == 1]
    definite = [r for c in others if c.form == "definite" for r in c.line]
    signed = sum(r.right(r.signed) for r in every)
    right, plain = sum(r.right(r.signed) for r in both), sum(r.right(r.plain) for r in both)
    rated = [r.rate / r.expected for r in every if np.isfinite(r.rate)]
    gaps = [r.rate / r.gap for r in every if np.isfinite(r.rate)]
    close = sum(abs(x - 1) <= 0.1 for x in rated)
    ends = sum(r.along > 0.999 for r in every)
    return [
        cy.Comparison(
            "Runs on a line grow by the leading eigenvalue of the signed mean of the V_h.",
            "n, d, H, starts and forms; the mean without signs, for runs on both sides with a "
            "head that looks across",
            f"right within {NEAR:.0%}: {_counted(signed, len(every))}; of runs on both sides "
            f"{_counted(right, len(both))} with signs, {_counted(plain, len(both))} without",
            bool(every) and wilson(signed, len(every))[0] > 0.8 and right > plain,
        ),
        cy.Comparison(
            "On one side the eigenvalues of the plain sum of the V_h are enough.",
            "runs on both sides; definite A_h, whose signs are all +",
            "plain eigenvalue right: "
            + ", ".join(
                f"{name} {_counted(sum(r.right(r.plain) for r in of), len(of))}"
                for name, of in {"one side": one, "definite A_h": definite}.items()
            ),
            all(r.right(r.plain) for r in (*one, *definite)),
        ),
        cy.Comparison(
            "They lie along its leading eigenvector.",
            "the same runs",
            f"|cos| > 0.999 in {_counted(ends, len(every))}",
            bool(every) and wilson(ends, len(every))[0] > 0.8,
        ),
        cy.Comparison(
            "In most runs distances to the line shrink at the smaller of eigenvalue and gap.",
            "the same runs, where there is a window to fit; the gap alone",
            f"within 10 %: {_counted(close, len(rated))}; the gap alone "
            f"{_counted(sum(abs(x - 1) <= 0.1 for x in gaps), len(gaps))}; median of rate over "
            f"expected {float(np.median(rated)) if rated else float('nan'):.3f}",
            bool(rated) and wilson(close, len(rated))[0] > 0.5,
        ),
    ]


def _sizes(p: Params, cells: list[Draws], coarse: list[Draws]) -> list[cy.Comparison]:
    """The same heads with other numbers of tokens, and with the longest step."""
    by_n = {n: [c for c in cells if c.n == n] for n, *_ in p.sizes}
    shares, right, same = [], [], []
    first = next(iter(by_n.values()))
    for n, group in by_n.items():
        line = [r for c in group for r in c.line]
        runs = sum(len(c.runs) for c in group)
        shares.append(f"n = {n}: {_counted(len(line), runs)}")
        right.append((sum(r.right(r.signed) for r in line), len(line)))
        pairs = [(a, b) for c, o in zip(group, first) for a, b in zip(c.runs, o.runs)]
        agree = sum(a.on_a_line == b.on_a_line for a, b in pairs)
        same.append(f"n = {n}: {_counted(agree, len(pairs))}")
    told = "; ".join(f"n = {n}: {_counted(*pair)}" for n, pair in zip(by_n, right))
    fine = [c for c in cells if c.n == coarse[0].n]
    steps = [(a, b) for c, o in zip(coarse, fine) for a, b in zip(c.runs, o.runs)]
    lines = [(a, b) for a, b in steps if a.on_a_line and b.on_a_line]
    off = [abs(a.growth / b.growth - 1) for a, b in lines]
    alike = sum(a.on_a_line == b.on_a_line for a, b in steps)
    return [
        cy.Comparison(
            "The number of tokens changes neither how many runs end on a line nor what they grow "
            "by.",
            f"{', '.join(str(n) for n in by_n)} tokens under the same heads",
            f"on a line: {'; '.join(shares)}; signed eigenvalue right: {told}; the same end as "
            f"with n = {next(iter(by_n))}: {'; '.join(same)}",
            all(total and wilson(some, total)[0] > 0.6 for some, total in right),
        ),
        cy.Comparison(
            "The longest step is short enough.",
            f"n = {coarse[0].n} with steps of {coarse[0].dt:g} and {fine[0].dt:g}",
            f"the same end in {_counted(alike, len(steps))}; growth on a line differs by "
            f"{max(off, default=0.0):.1g} at most",
            max(off, default=1.0) < NEAR / 5,
        ),
    ]


def _counted(some: int, total: int) -> str:
    return counted(some, total) if total else "no runs"


def _summary(p: Params, cells: list[Draws]) -> str:
    told = []
    for n, *_ in p.sizes:
        ours = [c for c in cells if c.n == n]
        runs = sum(len(c.runs) for c in ours)
        told.append(f"{sum(len(c.line) for c in ours)} of {runs} with {n} tokens")
    line = [r for c in cells for r in c.line]
    both = [r for r in line if r.sides == 2]
    crossed = [r for r in both if r.minus]
    return (
        f"Tokens from the unit sphere, d = {' and '.join(map(str, p.d))}, {min(p.heads)} to "
        f"{max(p.heads)} heads with Gaussian A_h and V_h. On a line end {', '.join(told)}. Of "
        f"these {len(line)} runs {len(both)} end on both sides of 0, "
        f"{len(crossed)} of them with a head that looks across; for those the eigenvalues of the "
        f"plain sum of the V_h give the growth in {sum(r.right(r.plain) for r in crossed)}, those "
        f"of the signed sum in {sum(r.right(r.signed) for r in crossed)}. Tokens end in "
        f"{float(np.median([r.clusters for r in line])) if line else 0:g} clusters (median)."
    )


_CURVES = (
    "Each run on a line: growth against the leading eigenvalue of the mean of the V_h (top left) "
    "and of the mean signed by who looks across (top right); on the diagonal it is right. Circles: "
    "tokens on one side of 0, squares: on both. Bottom left: the rate at which distances to the "
    "line shrink against the smaller of that eigenvalue and the spectral gap. Bottom right: share "
    "of the draws that end on a line, with 95 % intervals; the others turn or disagree for ever."
)
_PANELS = (
    "Tokens over the length of the longest, in the plane: the first draw that ends on one side of "
    "a line, on both sides, and on no line; circles: start, squares: end. Dashed: leading "
    "eigenvector of the signed mean, dotted: of the plain mean (where they are real)."
)


def _curves(p: Params, cells: list[Draws]) -> Any:
    figure, axes = cy.plot.sheet(2, 2, 5, 4.2)
    line = [(c.d, r) for c in cells for r in c.line]
    panels: dict[Any, tuple[str, str, str]] = {
        axes[0, 0]: ("plain", "growth", "leading eigenvalue, plain mean of the V_h"),
        axes[0, 1]: ("signed", "growth", "leading eigenvalue, signed mean of the V_h"),
        axes[1, 0]: ("expected", "rate", "smaller of eigenvalue and gap, signed mean"),
    }
    for ax, (name, found, said) in panels.items():
        for colour, d in zip(cy.plot.PALETTE, p.d):
            for sides, mark in ((1, "o"), (2, "s")):
                of = [r for e, r in line if e == d and r.sides == sides]
                x, y = [getattr(r, name) for r in of], [getattr(r, found) for r in of]
                label = f"d = {d}, {'one side' if sides == 1 else 'both sides'}"
                ax.plot(x, y, mark, mfc="none", color=colour, ms=4.5, label=label)
        ax.axline((0, 0), slope=1, color=cy.plot.GREY, lw=0.8, ls="--", zorder=0)
        ax.set(xlabel=said, ylabel="growth of the tokens" if found == "growth" else "fitted rate")
    ax = axes[1, 1]
    for k, (colour, (n, *_)) in enumerate(zip(cy.plot.PALETTE, p.sizes)):
        ours = [[c for c in cells if c.n == n and h == c.H] for h in p.heads]
        pairs = [(sum(len(c.line) for c in g), sum(len(c.runs) for c in g)) for g in ours]
        share = np.array([some / total for some, total in pairs])
        ends = np.array([wilson(*pair) for pair in pairs]).T
        place = np.array(p.heads) * 1.07 ** (k - (len(p.sizes) - 1) / 2)
        look: dict[str, Any] = {"ms": 4, "capsize": 2, "color": colour, "lw": 1}
        ax.errorbar(place, share, np.abs(ends - share), fmt="o-", label=f"n = {n}", **look)
    ax.set_xscale("log", base=2)
    ax.set(xlabel="heads H", ylabel="draws that end on a line", ylim=(0, 1))
    ax.set(xticks=p.heads, xticklabels=map(str, p.heads))
    ax.minorticks_off()
    ax.legend(frameon=False, ncols=2, fontsize=8)
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _panels(p: Params) -> Any:
    figure, axes = cy.plot.sheet(1, 3, 3.8, 3.7)
    wanted = {"one side": 1, "both sides": 2, "no line": 0}
    h = p.heads[min(1, len(p.heads) - 1)]
    size: Size = (h, *p.sizes[min(1, len(p.sizes) - 1)], "sphere", "any")
    for draw in range(size[2]):
        A, V = _heads(p, 2, h, "any", draw)
        tr = _run(p, 2, size, draw)
        end = _settled(tr, A, V)
        kind = end.sides if end.on_a_line else 0
        name = next((name for name, k in wanted.items() if k == kind), None)
        if name is None:
            continue
        ax = axes[0, 3 - len(wanted)]
        del wanted[name]
        x = tr.values / np.linalg.norm(tr.values, axis=2).max(axis=1)[:, None, None]
        ax.plot(x[..., 0], x[..., 1], color=cy.plot.GREY, lw=0.5, zorder=1)
        ax.plot(*x[0].T, "o", mfc="white", color=cy.plot.PALETTE[0], ms=4, label="start")
        ax.plot(*x[-1].T, "s", color=cy.plot.PALETTE[1], ms=6, label="end")
        v = _direction(x[-1])
        sign = np.sign(np.einsum("i,hij,j->h", v, A, v)) if end.sides == 2 else np.ones(h)
        for M, style in ((np.mean(sign[:, None, None] * V, axis=0), "--"), (V.mean(axis=0), ":")):
            values, vectors = np.linalg.eig(M)
            if abs(values[values.real.argmax()].imag) < 1e-12:
                line = vectors[:, values.real.argmax()].real
                ax.axline((0, 0), line, ls=style, lw=1, color=cy.plot.INK, zorder=0)
        ax.set(aspect="equal", title=f"{name}, H = {h}", xlim=(-1.1, 1.1), ylim=(-1.1, 1.1))
        if not wanted:
            break
    for ax in axes[0, 3 - len(wanted) :]:
        ax.remove()
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=2, frameon=False)
    return figure
