"""Rotary positions: in the plane most runs end in a cycle, in high dimension at rest (E23).

    C_i = argmax_j <R_{i-j} z_i, z_j>,   R_i the turns of arXiv 2104.09864, A = I

A token at rest leads: it has a better score with itself than with any token it could follow. But
the sets C_i need not become constant. Some tokens follow two or more leaders in turn indefinitely,
and tokens of such a cycle may meet (docs/mathematics.md A8). The study counts both ends by d and n,
and measures the periods. It also counts leaders at layer 0, where the base matters if tokens are
alike, and tokens that lose a lead, which without positions no token does.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st

TITLE = "Rotary positions: cycles and rest, leaders and sinks"
KINDS = ("independent", "common mean", "walk")
SEQUENCES = (*KINDS, "shuffled walk")
NEAR = 1e-9  # of the longest token: what moves less is at rest, what is nearer has met
SWINGING = ((-1.57, 0.09), (0.15, 0.31), (-1.06, 0.24), (-0.33, 0.51), (0.36, 0.69), (1.49, 0.48))


@dataclass(frozen=True)
class Params:
    """Ends of Gaussian starts for each of `ds` and `ns`, and for each (d, n, base, alpha, spread
    of A's eigenvalues) of `varied`, watched for `watch` layers after `rest`. Leaders at
    layer 0: `starts` sequences of n tokens of R^d of each kind under each of `bases` (0: none).

    "independent": N(0, I). "common mean": half of the second moment is that of the mean. "walk":
    z_i = r z_{i-1} + sqrt(1 - r^2) g_i, neighbours alike, and the same in random order.
    """

    ds: tuple[int, ...] = (2, 3, 4, 6, 8, 16)
    ns: tuple[int, ...] = (6, 12, 48)
    runs: int = 60
    rest: int = 200
    watch: int = 48
    varied: tuple[tuple[int, int, float, float, float], ...] = (
        (2, 12, 0.0, 1.0, 1.0), (4, 48, 10.0, 1.0, 1.0), (4, 48, 1e8, 1.0, 1.0),
        (2, 12, 1e4, 0.3, 1.0), (2, 12, 1e4, 5.0, 1.0), (2, 12, 1e4, 1.0, 4.0),
    )  # fmt: skip
    bases: tuple[float, ...] = (0.0, 1.0, 10.0, 100.0, 1e4, 1e8)
    n: int = 48
    d: int = 8
    alpha: float = 1.0
    r: float = 0.9
    layers: int = 60
    starts: int = 24
    seed: int = 0


QUICK = Params(
    ds=(2, 8), ns=(6,), runs=12, varied=((2, 6, 0.0, 1.0, 1.0),), bases=(0.0, 1e4), n=10, d=4,
    starts=3,
)  # fmt: skip


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Ends by d and n and of the variations, then leaders of every kind under every base."""
    sensible = min(p.n, p.d, *p.ns, *p.ds, p.starts, p.runs, p.watch) >= 2 and p.layers >= 1
    sensible &= 0.0 in p.bases and max(p.bases) > 0
    st.require(sensible, "n, d, starts, runs, watch >= 2, layers >= 1, bases with 0", p)
    part, grid = partial(st.part, progress), st.over_grid
    base = max(b for b in p.bases if b <= 1e4)
    sizes = [(d, n, base, p.alpha, 1.0) for d in p.ds for n in p.ns]
    ends = grid(_ends, p, {"size": sizes}, part(0, 0.5))
    varied = grid(_ends, p, {"size": p.varied}, part(0.5, 0.7))
    axes: dict[str, Any] = {"sequence": SEQUENCES, "base": p.bases}
    leaders = grid(_leaders, p, axes, part(0.7, 1))
    columns = st.columns(
        "sequence = kind, base, lead at layer 0 = mean first, lead at the end = mean last, "
        "lost a lead = mean lost, mass on the first sink = mean mass"
    )
    columns["base"] = lambda c: c.base or "no rotation"
    note = "Means over the starts. The first sink is the token most followed at layer 0."
    hulls = st.at_most(
        "hulls under rotary positions",
        "docs/mathematics.md A8, B1 for any attention",
        "the hull of the tokens shrinks, whatever the sets C_i are",
        max(c.growth for c in (*ends, *varied)),
        1e-13,  # rounding of a layer, in units of the longest token
        cells=len(ends) + len(varied),
    )
    return st.report_of(
        p,
        _summary(p, ends, leaders),
        controls=[*_end_controls(p, ends, varied), *_leader_controls(leaders)],
        tables=[
            _end_table("Ends by dimension and number of tokens", p, ends),
            _end_table("Other bases, steps and matrices", p, varied),
            st.Table.of("Leaders by sequence and base", leaders, columns, note),
        ],
        checks={"V = I": [hulls]},
        figures=[
            st.Picture.of("Runs that end in a cycle", _cycles, p, ends),
        ],
    )


def _rule(base: float | int, A: np.ndarray | None = None) -> Any:
    return cy.attention.Rotary(cy.Hardmax(A), base) if base else cy.Hardmax(A)


def _ends(p: Params, size: tuple[int, int, float, float, float]) -> st.Cell:
    """How the runs of one cell end, one entry per start; `spread`: largest over smallest eigenvalue
    of A, 1 for A = I."""
    d, n, base, alpha, spread = size
    found: list[tuple[Any, ...]] = []
    for seed in range(p.runs):
        rng = np.random.default_rng([p.seed, seed])
        z, A = rng.standard_normal((n, d)), None
        if spread != 1:
            turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
            A = turn @ np.diag(np.geomspace(1, spread, d)) @ turn.T
        found.append(_end(p, _rule(base, A), z, alpha))
    *columns, growth = map(list, zip(*found))
    size_ = {"n": n, "d": d, "base": base, "alpha": alpha, "spread": spread}
    names = ("moving", "period", "met", "leading")
    return st.Cell(**size_, **dict(zip(names, columns, strict=True)), growth=max(growth))


def _starts(c: st.Cell, name: str) -> tuple[int, int]:
    """Starts with such a token, and all starts."""
    return sum(x > 0 for x in getattr(c, name)), len(c.moving)


def _end(p: Params, rule: Any, z: np.ndarray, alpha: float) -> tuple[int, int, int, int, float]:
    """Tokens that still move, the period of the state (1 at rest, 0 none seen), moving tokens that
    are where another one is, away from 0, tokens that lead, growth of the hull in a layer."""
    run = cy.simulate(cy.PureAttention(rule, alpha), z, layers=p.rest + p.watch)
    states = run.values
    longest = float(np.linalg.norm(z, axis=1).max())
    last = states[-p.watch - 1 :]
    moves = np.linalg.norm(np.diff(last, axis=0), axis=2).max(axis=0) > NEAR * longest
    gaps = np.linalg.norm(last[-1] - last[:-1], axis=2).max(axis=1)[::-1]  # after 1, 2, ... layers
    again = np.flatnonzero(gaps <= NEAR * longest)
    apart = np.linalg.norm(last[-1][:, None] - last[-1], axis=2) + np.eye(len(z)) * longest
    away = np.linalg.norm(last[-1], axis=1) > 1e-3 * longest
    met = moves & away & (apart.min(axis=1) <= NEAR * longest)
    c = np.random.default_rng(0).standard_normal((64, z.shape[1]))
    support = (states @ (c / np.linalg.norm(c, axis=1, keepdims=True)).T).max(axis=1)
    return (
        int(moves.sum()),
        int(again[0]) + 1 if len(again) else 0,
        int(met.sum()),
        int(_leads(rule, run)[-1].sum()),
        float(np.diff(support, axis=0).max() / longest),
    )


def _leads(rule: Any, run: cy.Trajectory) -> np.ndarray:
    """Whether a token leads, by layer and token."""
    if isinstance(rule, cy.Hardmax):  # from the certified run, exact where tokens meet
        born = cy.roles(run).born
        return np.arange(len(run.values))[:, None] >= np.where(born < 0, len(run.values), born)
    return np.array([rule.followed(x).leads for x in run.values])


def _leaders(p: Params, kind: str, base: float | int) -> st.Cell:
    """The starts of one kind of sequence: numbers of tokens, one entry per start."""
    rows = []
    for seed in range(p.starts):
        rng = np.random.default_rng([p.seed, seed])
        z = rng.standard_normal((p.n, p.d))
        if kind == "common mean":
            z = z / np.sqrt(2) + np.sqrt(p.d / 2) * np.eye(p.d)[0]
        elif kind != "independent":
            for i in range(1, p.n):
                z[i] = p.r * z[i - 1] + np.sqrt(1 - p.r**2) * z[i]
            z = rng.permutation(z) if kind == "shuffled walk" else z
        rows.append(_counted(_rule(base), z, p.alpha, p.layers))
    columns = dict(zip(("first", "last", "lost", "mass"), map(list, zip(*rows)), strict=True))
    return st.Cell(kind=kind, base=base, **columns)


def _counted(rule: Any, z: np.ndarray, alpha: float, layers: int) -> tuple[int, int, int, float]:
    """Tokens that lead at layer 0, at the end, that lost a lead; mass on the first sink."""
    run = cy.simulate(cy.PureAttention(rule, alpha), z, layers=layers)
    leads = _leads(rule, run)
    P = rule.followed(z).weights()
    np.fill_diagonal(P, 0)
    lost = int((leads[:-1] & ~leads[1:]).any(axis=0).sum())
    return int(leads[0].sum()), int(leads[-1].sum()), lost, float(P.sum(0).max() / (len(z) - 1))


def _end_table(title: str, p: Params, cells: list[st.Cell]) -> st.Table:
    columns = st.columns("d, n, base, alpha, A: largest/least = spread, starts = len moving")
    columns |= {
        "base": lambda c: c.base or "no rotation",
        "a token never rests": lambda c: _starts(c, "moving")[0],
        "of period 2": lambda c: c.period.count(2),
        "longer": lambda c: sum(x > 2 for x in c.period),
        f"none within {p.watch}": lambda c: c.period.count(0),
        "moving tokens met": lambda c: _starts(c, "met")[0],
        "all tokens lead": lambda c: sum(x == c.n for x in c.leading),
    }
    note = (
        f"Starts. A token that never rests moves by more than {NEAR:g} of the longest token in "
        f"some of {p.watch} layers after layer {p.rest}. Met: at one place, not 0, and moving."
    )
    return st.Table.of(title, cells, columns, note)


def _end_controls(p: Params, ends: list[st.Cell], varied: list[st.Cell]) -> list[st.Comparison]:
    low, high = ([c for c in ends if c.d == d] for d in (min(p.ds), max(p.ds)))

    def said(cells: list[st.Cell], *names: str) -> str:
        return "; ".join(
            ", ".join(f"{name} = {getattr(c, name):g}" for name in names)
            + f": {st.counted(*_starts(c, 'moving'))}"
            for c in cells
        )

    plain, turned = [c for c in varied if not c.base], [c for c in varied if c.base]
    formed = [c for c in turned if c.spread != 1]
    still = [
        x == c.n for c in (*ends, *turned) if c not in formed
        for x, moving in zip(c.leading, c.moving) if not moving
    ]  # fmt: skip
    return [
        st.Comparison(
            f"A run whose tokens never all rest is common for d = {min(p.ds)} and rare for "
            f"d = {max(p.ds)}.",
            "the number of tokens",
            said([*low, *high], "d", "n"),
            min(st.wilson(*_starts(c, "moving"))[0] for c in low)
            > max(st.wilson(*_starts(c, "moving"))[1] for c in high),
        ),
        st.Comparison(
            "It is the turns that keep tokens moving.",
            "no rotation; other bases, steps and matrices A",
            f"no rotation: {said(plain, 'd', 'n')}; "
            + said(turned, "d", "n", "base", "alpha", "spread"),
            not any(_starts(c, "moving")[0] for c in plain),
        ),
        st.Comparison(
            "With A = I every token leads in a run that comes to rest.",
            "every d, n, base and alpha",
            st.counted(sum(still), len(still)),
            all(still),
        ),
    ]


def _leader_controls(cells: list[st.Cell]) -> list[st.Comparison]:
    of = {(c.kind, c.base): c for c in cells}
    bases = sorted({c.base for c in cells})
    top, independent = bases[-1], [of["independent", base] for base in bases]
    means = [c.mean("first") for c in independent]
    gap = max(float(np.ptp(c.ends("first"))) for c in independent)
    alike = [(of[kind, top], of[kind, 0.0]) for kind in SEQUENCES[1:]]
    pairs = [(of["walk", base], of["shuffled walk", base]) for base in bases if base]
    walk, mixed = max(pairs, key=lambda two: two[1].mean("first") - two[0].mean("first"))
    lost, kept = ([x > 0 for c in cells if bool(c.base) == k for x in c.lost] for k in (1, 0))
    first = {key: st.told(c.first) for key, c in of.items()}
    return [
        st.Comparison(
            "The base does not matter to leaders at layer 0 of independent tokens.",
            "no rotation, which has the same law: R z_i is Gaussian and independent of z_j",
            "; ".join(f"{base or 'none'}: {first['independent', base]}" for base in bases),
            max(means) - min(means) <= gap,
        ),
        st.Comparison(
            "Where tokens are alike turns make more of them lead at layer 0, in whatever order.",
            "no rotation; the walks in random order",
            "; ".join(
                f"{a.kind}, base {top:g}: {st.told(a.first)}, no rotation: {st.told(b.first)}"
                for a, b in alike
            ),
            all(a.ends("first")[0] > b.ends("first")[1] for a, b in alike),
        ),
        st.Comparison(
            "Whether neighbours are alike matters to the number of leaders at layer 0.",
            "the same tokens in random order, at the base where that changes most",
            f"base {walk.base:g}: {first['walk', walk.base]} in the order of the walk, "
            f"{first['shuffled walk', walk.base]} in random order",
            walk.ends("first")[1] < mixed.ends("first")[0],
        ),
        st.Comparison(
            "Leads are lost under rotary positions.",
            "no rotation, where a leader stays one (B5)",
            f"starts with a lost lead: {st.counted(sum(lost), len(lost))}; without rotation "
            f"{sum(kept)} of {len(kept)}",
            any(lost) and not any(kept),
        ),
    ]


def _summary(p: Params, ends: list[st.Cell], leaders: list[st.Cell]) -> str:
    of = {(c.kind, c.base): c for c in leaders}
    top, by_d = max(p.bases), st.grouped(ends, "d")
    shares = "; ".join(
        f"d = {d}: "
        + ", ".join(f"{_starts(c, 'moving')[0]}/{len(c.moving)} (n = {c.n})" for c in cells)
        for d, cells in by_d.items()
    )
    met, total = (sum(x) for x in zip(*(_starts(c, "met") for c in ends)))
    told = [
        f"{kind}: {of[kind, 0.0].mean('first'):.3g} without positions, "
        f"{of[kind, top].mean('first'):.3g} with base {top:g}"
        for kind in KINDS
    ]
    return (
        f"Gaussian starts in which some token still moves after {p.rest} layers, by dimension: "
        f"{shares}. In {st.counted(met, total)} of all starts tokens that move have met.\n\n"
        f"Tokens that lead at layer 0, {p.n} tokens of R^{p.d}. {'. '.join(told)}."
    )


def _cycles(p: Params, ends: list[st.Cell]) -> Any:
    """Left: share of Gaussian starts in which some token never comes to rest, with 95 % intervals.
    Right: the periods of these runs; 0 stands for no period within the layers watched.
    """
    figure, ((left, right),) = cy.plot.sheet(1, 2, 4.6, 3.6)
    share = lambda c: np.divide(*_starts(c, "moving"))  # noqa: E731
    bars = lambda c: st.wilson(*_starts(c, "moving"))  # noqa: E731
    st.curves(left, ends, "d", share, "n", ends=bars, label="n = {}")
    left.set(xlabel="dimension d", ylabel="share of starts that never rest", ylim=(0, 1))
    left.set_xscale("log", base=2)
    left.set_xticks(p.ds, [str(d) for d in p.ds])
    left.legend(frameon=False)
    periods = [x for c in ends for x in c.period if x != 1]
    right.hist(periods, bins=np.arange(-0.5, p.watch + 1), color=cy.plot.PALETTE[0])
    right.set(xlabel="period (0: none seen)", ylabel="runs that never rest")
    return figure
