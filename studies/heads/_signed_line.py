"""Random heads from the sphere: tokens on a line, and the signed spectrum that decides it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

import cynosure as cy
from cynosure import study as st

from ._softmax_heads import by_heads

if TYPE_CHECKING:
    from .several_heads import Params

SIDE = 0.05  # of the longest token: farther than this from 0 is on a side of it
STILL = 1e-6  # 1 - |cos| between the directions of two saved times: less does not turn
CLOSE = 0.05  # relative error of a growth that is called right
Draw: TypeAlias = tuple[int, int, int, float, str, str]  # H, n, draws, dt, start, form


class LineEnd(NamedTuple):
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

    def right(self, name: str) -> bool:
        """Does the eigenvalue of that name, signed or plain, predict the growth?"""
        return bool(abs(self.growth - getattr(self, name)) <= CLOSE * abs(self.growth))


def line(p: Params, progress: st.Progress) -> st.Report:
    """Every dimension, number of heads and of tokens, then other starts, forms and steps."""

    def grid(d: tuple[int, ...], draws: list[Draw], start: float, stop: float) -> list[st.Cell]:
        return st.over_grid(_draws, p, {"d": d, "heads": draws}, st.part(progress, start, stop))

    def each(*sizes: tuple[int, int, float]) -> list[Draw]:
        return [(h, *size, "sphere", "any") for size in sizes for h in p.line_heads]

    cells = grid(p.line_d, each(*p.sizes), 0, 0.9)
    others = grid(p.line_d, list(p.forms), 0.9, 0.95)
    n, draws, dt = p.sizes[min(1, len(p.sizes) - 1)]
    high = grid(p.beyond, each((n, draws, dt)), 0.95, 0.97)
    coarse = grid(p.line_d, each((n, draws, max(dt for *_, dt in p.sizes))), 0.97, 1)
    dimensions = [_dimension_control([c for c in cells if c.n == n], high)] if high else []
    return st.report_of(
        p,
        _summary(p, cells),
        title="Random heads from the sphere: the signed spectrum",
        controls=[*_controls(cells, others), *_size_controls(cells, coarse), *dimensions],
        tables=[
            _table("Number of heads and tokens", cells),
            _table("Other dimensions, starts and forms", [*high, *others]),
            _table("The longest step", coarse),
        ],
        figures=[st.Picture("Growth beside the spectrum", _GROWTH, _curves(p, cells))],
    )


def _drawn(p: Params, d: int, h: int, form: str, draw: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([p.seed, d, h, draw])
    A, V = rng.standard_normal((2, h, d, d)) / np.sqrt(d)
    return (A @ A.swapaxes(1, 2) if form == "definite" else A), V


def _run(p: Params, d: int, size: Draw, draw: int, A: np.ndarray, V: np.ndarray) -> cy.Trajectory:
    h, n, _, dt, start, _ = size
    x = np.random.default_rng([p.seed, n, draw]).standard_normal((n, d))
    if start == "sphere":
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    heads = cy.attention.Heads([cy.Softmax(1.0, form) for form in A], list(V))
    root = float(np.sqrt(h))  # a mean of h random matrices is so much smaller: as much slower
    times = np.linspace(0, p.line_time * root, 65)
    stepper = cy.simulation.RK4(dt * root)
    return cy.simulate(cy.dynamics.UnnormalizedFlow(heads), x, times=times, stepper=stepper)


def _draws(p: Params, d: int, size: Draw) -> st.Cell:
    """The runs of one cell, and those of them that end on a line."""
    h, n, draws, dt, start, form = size
    heads = [_drawn(p, d, h, form, draw) for draw in range(draws)]
    runs = [line_end(_run(p, d, size, draw, *heads[draw]), *heads[draw]) for draw in range(draws)]
    size_ = {"d": d, "H": h, "n": n, "dt": dt, "start": start, "form": form}
    return st.Cell(**size_, runs=runs, line=[r for r in runs if r.on_a_line])


def line_end(tr: cy.Trajectory, A: np.ndarray, V: np.ndarray) -> LineEnd:
    x, t = tr.values, tr.t
    size = np.linalg.norm(x, axis=2).max(axis=1)
    unit = x / size[:, None, None]
    late = slice(-len(t) // 4, None)
    v, before = _direction(unit[-1]), _direction(unit[-len(t) // 10])
    f = unit[-1] @ v
    sides = 2 if f.max() > SIDE and f.min() < -SIDE else 1
    sign = np.sign(np.einsum("i,hij,j->h", v, A, v))
    signed, plain = np.mean(sign[:, None, None] * V, axis=0), V.mean(axis=0)
    values, vectors = np.linalg.eig(signed if sides == 2 else plain)
    order = np.argsort(-values.real)
    leading, second = values[order[0]], values[order[1]]
    off = np.linalg.norm(unit - (unit @ v)[..., None] * v, axis=2).max(axis=1)
    use = (off > 1e-9) & (off < 1e-2)
    shrinking = -np.polyfit(t[use], np.log(off[use]), 1)[0] if use.sum() >= 5 else np.nan
    return LineEnd(
        growth=float(np.polyfit(t[late], np.log(size[late]), 1)[0]),
        still=bool(1 - abs(v @ before) < STILL),
        sides=sides,
        clusters=cy.clusters(unit[-1], tol=1e-2).count,
        signed=float(leading.real),
        plain=float(np.linalg.eigvals(plain).real.max()),
        real=bool(abs(leading.imag) < 1e-12),
        along=float(abs(vectors[:, order[0]] @ v)),
        minus=int((sign < 0).sum()),
        rate=float(shrinking),
        gap=float(leading.real - second.real),
    )


def _direction(unit: np.ndarray) -> np.ndarray:
    return np.linalg.svd(unit, full_matrices=False)[2][0]


def _table(title: str, cells: list[st.Cell]) -> st.Table:
    columns: dict[str, Any] = st.columns(
        "d, H, n, dt, start, form, runs = len runs, on a line = len line, growth = median "
        "line.growth, |cos| to the eigenvector = median line.along, clusters = median line.clusters"
    )
    columns |= {"of these both sides": lambda c: sum(r.sides == 2 for r in c.line)}
    columns |= {
        f"{name} eigenvalue right": lambda c, name=name: sum(r.right(name) for r in c.line)
        for name in ("signed", "plain")
    }
    columns |= {"rate / expected": lambda c: _ratio(c.line)}
    note = (
        f"On a line: the direction stands still, at most 3 clusters, growing. Right: within "
        f"{CLOSE:.0%} of the fitted growth; medians over the runs on a line. On one side the "
        "signed mean is the mean."
    )
    return st.Table.of(title, cells, columns, note)


def _ratio(runs: list[LineEnd]) -> float | None:
    ratios = [r.rate / r.expected for r in runs if np.isfinite(r.rate)]
    return float(np.median(ratios)) if ratios else None


def _controls(cells: list[st.Cell], others: list[st.Cell]) -> list[st.Comparison]:
    every = _lines([*cells, *others])
    free = _lines([c for c in (*cells, *others) if c.form == "any"])
    both = [r for r in free if r.sides == 2 and r.minus]
    one = [r for r in free if r.sides == 1]
    definite = _lines([c for c in others if c.form == "definite"])
    signed, right, plain = _right(every), _right(both), _right(both, "plain")
    fit = {"one side": _right(one, "plain"), "definite A_h": _right(definite, "plain")}
    rated = [r for r in every if np.isfinite(r.rate)]
    ratios = [r.rate / r.expected for r in rated]
    close, gaps = (
        sum(abs(x - 1) <= 0.1 for x in of) for of in (ratios, [r.rate / r.gap for r in rated])
    )
    ends = sum(r.along > 0.999 for r in every)
    return [
        st.Comparison(
            "Runs on a line grow by the leading eigenvalue of the signed mean of the V_h.",
            "n, d, H, starts and forms; the mean without signs, for runs on both sides with a "
            "head that looks across",
            f"right within {CLOSE:.0%}: {_counted(*signed)}; of runs on both sides "
            f"{_counted(*right)} with signs, {_counted(*plain)} without",
            bool(every) and st.wilson(*signed)[0] > 0.8 and right > plain,
        ),
        st.Comparison(
            "On one side the eigenvalues of the plain sum of the V_h are enough.",
            "runs on both sides; definite A_h, whose signs are all +",
            f"plain eigenvalue right: {st.shares(fit)}",
            all(r.right("plain") for r in (*one, *definite)),
        ),
        st.Comparison(
            "They lie along its leading eigenvector.",
            "the same runs",
            f"|cos| > 0.999 in {_counted(ends, len(every))}",
            bool(every) and st.wilson(ends, len(every))[0] > 0.8,
        ),
        st.Comparison(
            "In most runs distances to the line shrink at the smaller of eigenvalue and gap.",
            "the same runs, where there is a window to fit; the gap alone",
            f"within 10 %: {_counted(close, len(rated))}; the gap alone "
            f"{_counted(gaps, len(rated))}; median of rate over expected "
            f"{float(np.median(ratios)) if ratios else float('nan'):.3f}",
            bool(rated) and st.wilson(close, len(rated))[0] > 0.5,
        ),
    ]


def _lines(cells: list[st.Cell]) -> list[LineEnd]:
    return [r for c in cells for r in c.line]


def _on_a_line(cells: list[st.Cell]) -> tuple[int, int]:
    return len(_lines(cells)), sum(len(c.runs) for c in cells)


def _right(runs: list[LineEnd], name: str = "signed") -> tuple[int, int]:
    """Of so many runs: how many grow by the eigenvalue of that name."""
    return sum(r.right(name) for r in runs), len(runs)


def _pairs(cells: list[st.Cell], others: list[st.Cell]) -> list[tuple[LineEnd, LineEnd]]:
    """The runs of the same heads in both."""
    return [(a, b) for c, o in zip(cells, others) for a, b in zip(c.runs, o.runs)]


def _alike(pairs: list[tuple[LineEnd, LineEnd]]) -> tuple[int, int]:
    return sum(a.on_a_line == b.on_a_line for a, b in pairs), len(pairs)


def _size_controls(cells: list[st.Cell], coarse: list[st.Cell]) -> list[st.Comparison]:
    """The same heads with other numbers of tokens, and with the longest step."""
    by_n = {f"n = {n}": of for n, of in st.grouped(cells, "n").items()}
    first = next(iter(by_n))
    same = {n: _alike(_pairs(of, by_n[first])) for n, of in by_n.items()}
    seen = {n: _on_a_line(of) for n, of in by_n.items()}
    right = {n: _right(_lines(of)) for n, of in by_n.items()}
    fine = [c for c in cells if c.n == coarse[0].n]
    steps = _pairs(coarse, fine)
    off = [abs(a.growth / b.growth - 1) for a, b in steps if a.on_a_line and b.on_a_line]
    return [
        st.Comparison(
            "The number of tokens changes neither how many runs end on a line nor what they grow "
            "by.",
            f"{', '.join(by_n)} tokens under the same heads",
            f"on a line: {st.shares(seen)}; signed eigenvalue right: {st.shares(right)}; the same "
            f"end as with {first}: {st.shares(same)}",
            all(total and st.wilson(some, total)[0] > 0.6 for some, total in right.values()),
        ),
        st.Comparison(
            "The longest step is short enough.",
            f"n = {coarse[0].n} with steps of {coarse[0].dt:g} and {fine[0].dt:g}",
            f"the same end in {_counted(*_alike(steps))}; growth on a line differs by "
            f"{max(off, default=0.0):.1g} at most",
            max(off, default=1.0) < CLOSE / 5,
        ),
    ]


def _dimension_control(low: list[st.Cell], high: list[st.Cell]) -> st.Comparison:
    """How often each dimension ends on a line, and on both sides of 0, under as many tokens."""
    groups = dict(sorted(st.grouped([*low, *high], "d").items()))
    seen = {d: _on_a_line(of) for d, of in groups.items()}
    both = {d: sum(r.sides == 2 for r in _lines(of)) for d, of in groups.items()}
    least, most = min(groups), max(groups)
    return st.Comparison(
        f"What is said of both sides of a line is a finding for d = {least}; fewer runs show it in "
        "higher dimension.",
        f"d = {', '.join(map(str, groups))} with {low[0].n} tokens",
        "; ".join(
            f"d = {d}: on a line {_counted(*seen[d])}, of these {both[d]} on both sides"
            for d in groups
        ),
        both[most] * seen[least][1] < both[least] * seen[most][1],
    )


def _counted(some: int, total: int) -> str:
    return st.counted(some, total) if total else "no runs"


def _summary(p: Params, cells: list[st.Cell]) -> str:
    by_n = st.grouped(cells, "n")
    told = [
        f"{k} of {total} with {n} tokens" for n, of in by_n.items() for k, total in [_on_a_line(of)]
    ]
    line = _lines(cells)
    both = [r for r in line if r.sides == 2]
    crossed = [r for r in both if r.minus]
    return (
        f"Tokens from the unit sphere, d = {' and '.join(map(str, p.line_d))}, "
        f"{min(p.line_heads)} to {max(p.line_heads)} heads with Gaussian A_h and V_h. On a line "
        f"end {', '.join(told)}. Of these {len(line)} runs {len(both)} end on both sides of 0, "
        f"{len(crossed)} of them with a head that looks across. For those the eigenvalues of the "
        f"plain sum of the V_h give the growth in {_right(crossed, 'plain')[0]}, those of the "
        f"signed sum in {_right(crossed)[0]}."
    )


_GROWTH = (
    "Each run on a line: growth against the leading eigenvalue of the mean of the V_h (top left) "
    "and of the mean signed by who looks across (top right); on the diagonal it is right. Circles: "
    "tokens on one side of 0, squares: on both. Bottom left: the rate at which distances to the "
    "line shrink against the smaller of that eigenvalue and the spectral gap. Bottom right: share "
    "of the draws that end on a line, with 95 % intervals; the others keep turning or disagreeing."
)


def _curves(p: Params, cells: list[st.Cell]) -> Any:
    figure, axes = cy.plot.sheet(2, 2, 5, 4.2)
    line = [(c.d, r) for c in cells for r in c.line]
    panels: dict[Any, tuple[str, str, str]] = {
        axes[0, 0]: ("plain", "growth", "leading eigenvalue, plain mean of the V_h"),
        axes[0, 1]: ("signed", "growth", "leading eigenvalue, signed mean of the V_h"),
        axes[1, 0]: ("expected", "rate", "smaller of eigenvalue and gap, signed mean"),
    }
    for ax, (name, found, said) in panels.items():
        for colour, d in zip(cy.plot.PALETTE, p.line_d):
            for sides, mark in ((1, "o"), (2, "s")):
                of = [r for e, r in line if e == d and r.sides == sides]
                x, y = [getattr(r, name) for r in of], [getattr(r, found) for r in of]
                label = f"d = {d}, {'one side' if sides == 1 else 'both sides'}"
                ax.plot(x, y, mark, mfc="none", color=colour, ms=4.5, label=label)
        ax.axline((0, 0), slope=1, color=cy.plot.GREY, lw=0.8, ls="--", zorder=0)
        ax.set(xlabel=said, ylabel="growth of the tokens" if found == "growth" else "fitted rate")
    groups, ax = st.grouped(cells, "n", "H").values(), axes[1, 1]
    share = lambda of: np.divide(*_on_a_line(of))  # noqa: E731
    ends = lambda of: st.wilson(*_on_a_line(of))  # noqa: E731
    h, n = (lambda of: of[0].H), (lambda of: of[0].n)
    st.curves(ax, groups, h, share, n, ends=ends, label="n = {}")
    by_heads(ax, p.line_heads)
    ax.set(ylabel="draws that end on a line", ylim=(0, 1))
    ax.legend(frameon=False, ncols=2, fontsize=8)
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, frameon=False)
    return figure
