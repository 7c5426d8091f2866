"""Leaders under random symmetric positive definite A and V.

Hardmax layers (arXiv 2407.01602) with random A of condition number kappa, against the law of B14;
and the softmax flow of arXiv 2305.05465 with random definite A = K^T Q and V, in the variables
y = e^{-l1 t} x. See: the flatter A, the fewer leaders, down to the two ends of its long axis, as
the law says for Gaussian tokens. For softmax a random A alone keeps a polytope; a random V, whose
leading eigenvalue is simple, leaves two leaders at most, whatever A is.

Trap: one leader or two is a question of the size of the start, not of V. Short tokens average each
other out before attention is hard: then one is left. The last table has several sizes.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.theorems import expected_leaders

TITLE = "Leaders under random definite A and V"
ALIASES = "2305.05465/leaders 2305.05465/figure2"
KINDS = {  # whether A is random, whether V is
    "A = I, V = I": (False, False),
    "random A, V = I": (True, False),
    "A = I, random V": (False, True),
    "random A and V": (True, True),
}


@dataclass(frozen=True)
class Params:
    """Hardmax: n Gaussian tokens, `draws` of (tokens, A) per kappa and d. Softmax: `flows` runs of
    `few` tokens of root mean square length `size`, kappa = `kappa_flow`, to `time` / l1.

    Controls: the law for each of `other_n` tokens and for heavy tails, the flows at `sizes`."""

    kappa: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0)
    d: tuple[int, ...] = (2, 3, 4)
    n: int = 100
    draws: int = 200
    alpha: float = 1.0
    flows: int = 20
    few: int = 30
    size: float = 2.0
    kappa_flow: float = 5.0
    time: float = 20.0
    other_n: tuple[int, ...] = (30, 300)
    sizes: tuple[float, ...] = (0.5, 1.0, 4.0, 8.0)
    seed: int = 0


QUICK = Params(
    kappa=(1.0, 10.0, 100.0), d=(2, 3), n=40, draws=20, flows=3, few=16, other_n=(20,), sizes=(0.5,)
)


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """The law of leaders, then the flows."""
    over = st.measuring(p, progress)
    sensible = min(p.kappa) >= 1 and min(*p.d, p.n, p.few, p.draws, p.flows) >= 2
    st.require(sensible, "kappa >= 1, d, n, few, draws, flows >= 2", p)
    counts = over(_count, {"d": p.d, "kappa": p.kappa}, 0.4)
    others = {"tokens": ("Gaussian", "heavy tails"), "n": p.other_n, "kappa": p.kappa}
    varied = over(_varied, others, 0.5)
    laws = dict(zip(product(("Gaussian", "heavy tails"), p.other_n, p.kappa), varied))
    sizes = (p.size, *p.sizes)
    every = over(_flows, {"size": sizes, "matrices": tuple(KINDS)})
    flows = [f for f in every if f.size == p.size]
    worst = max(c.off for c in counts)
    reference = "docs/mathematics.md B14, general A"
    claim = "the mean number of leaders at layer 0 is the expected one (in five standard errors)"
    law = st.at_most("mean leaders", reference, claim, worst, 1, cells=len(counts))
    checks = {"hardmax": [law]}
    checks |= {f.kind: cy.check(f.first, only=("B24", "B26")) for f in flows}
    figures = (
        st.Picture.of("Hardmax leaders against kappa", _draw_law, p, counts),
        st.Picture.of("Who looks at whom", _draw_lines, flows[-1].first),
    )
    text, tables = _summary(p, counts, flows, every), _tables(counts, every)
    controls = _comparisons(p, laws, every)
    return st.report_of(p, text, controls=controls, tables=tables, checks=checks, figures=figures)


def _definite(d: int, kappa: float, rng: np.random.Generator) -> np.ndarray:
    """Eigenvalues from 1 to 1/kappa, evenly spaced in the logarithm, in random directions."""
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    A = (turn * np.geomspace(1, 1 / kappa, d)) @ turn.T
    return (A + A.T) / 2


def _counted(d: int, kappa: float, first: list[int], last: list[int], law: float) -> st.Cell:
    """Leaders at layer 0 and in the limit, per draw, and what the law of B14 expects; the standard
    error of the mean, and how far it is from the law over what chance allows (1 is the edge)."""
    x = np.array(first)
    # counts of leaders spread less than Poisson ones; 1 % is the law's own quadrature
    chance = 5 * np.sqrt(law / len(x)) + 0.01 * law
    error, off = float(x.std(ddof=1) / np.sqrt(len(x))), float(abs(x.mean() - law) / chance)
    seen = {"first": x, "last": np.array(last), "expected": law}
    return st.Cell(d=d, kappa=kappa, **seen, error=error, off=off)


def _count(p: Params, d: int, kappa: float) -> st.Cell:
    first, last = [], []
    for s in range(p.draws):
        rng = np.random.default_rng([p.seed, d, s])
        hardmax, z0 = cy.Hardmax(_definite(d, kappa, rng)), rng.standard_normal((p.n, d))
        first.append(int(hardmax.followed(z0).leads.sum()))
        last.append(len(cy.limit(cy.PureAttention(hardmax, alpha=p.alpha), z0).leaders))
    form = np.diag(np.geomspace(1, 1 / kappa, d))  # its directions do not matter
    return _counted(d, kappa, first, last, expected_leaders(p.n, d, form))


def _varied(p: Params, tokens: str, n: int, kappa: float) -> st.Cell:
    """Leaders at layer 0 of n tokens in the plane, Gaussian or with heavy tails (Student t, 2)."""
    first = []
    for s in range(p.draws):
        rng = np.random.default_rng([p.seed, 7, n, s])
        hardmax, z0 = cy.Hardmax(_definite(2, kappa, rng)), rng.standard_normal((n, 2))
        if tokens == "heavy tails":
            z0 /= np.sqrt(rng.chisquare(2, size=(n, 1)) / 2)
        first.append(int(hardmax.followed(z0).leads.sum()))
    form = np.diag([1, 1 / kappa])
    return _counted(2, kappa, first, first, expected_leaders(n, 2, form))


def _flows(p: Params, size: float, kind: str) -> st.Cell:
    """The softmax runs under one kind of matrices, from starts of one size."""
    random_A, random_V = KINDS[kind]
    values, leads, limits, both, runs = [], [], [], [], []
    for s in range(p.flows):
        rng = np.random.default_rng([p.seed, 9, s])
        A, V = _definite(2, p.kappa_flow, rng), _definite(2, p.kappa_flow, rng)
        values.append(V if random_V else np.eye(2))
        flow = cy.dynamics.LeadingFlow(Q=A if random_A else np.eye(2), V=values[-1])
        z0 = size / np.sqrt(2) * cy.configurations.gaussian(p.few, 2, p.seed + s)
        along = z0 @ np.linalg.eigh(values[-1])[1][:, -1]
        both.append(bool(along.min() < 0 < along.max()))
        times = np.linspace(0, p.time, 61)
        runs.append(cy.simulate(flow, z0, times=times, stepper=cy.simulation.Adaptive(1e-8, 1e-11)))
        end = runs[-1].values[-1]
        leads.append(flow.weights(end, p.time).max(axis=0) > 0.5)
        limits.append(cy.clusters(end, 1e-3 * float(np.abs(end).max())).count)
    return st.Cell(
        **{"size": size, "kind": kind, "V": np.array(values), "limits": limits, "first": runs[0]},
        leaders=np.array(leads).sum(axis=1),  # tokens with more than half of somebody's attention
        both=both,  # do the tokens start on both sides of V's leading direction?
    )


def _tables(counts: list[st.Cell], flows: list[st.Cell]) -> list[st.Table]:
    law = st.columns("d, kappa, leaders at layer 0 = mean first")
    law |= {"two standard errors": lambda c: 2 * c.error}
    law |= st.columns("expected, leaders in the limit = mean last")
    law |= {"runs with an emerging leader": lambda c: float((c.last > c.first).mean())}
    flow = st.columns("size of the start = size, matrices = kind, mean leaders = mean leaders")
    flow |= {
        "one": lambda f: int((f.leaders == 1).sum()),
        "two": lambda f: int((f.leaders == 2).sum()),
        "more": lambda f: int((f.leaders > 2).sum()),
        "l1 - |l2| of V": lambda f: float(np.mean([cy.spectra.good_triple(V=V).gap for V in f.V])),
    } | st.columns("mean limits of y = mean limits")
    note = "A leader holds more than half of somebody's attention at the end."
    softmax = st.Table.of("Softmax flows", flows, flow, note)
    return [st.Table.of("Hardmax leaders", counts, law), softmax]


def _with_V(flows: list[st.Cell], size: float) -> np.ndarray:
    """Leaders of every run from this size under a random V."""
    return np.concatenate([f.leaders for f in flows if KINDS[f.kind][1] and f.size == size])


def _summary(p: Params, counts: list[st.Cell], flows: list[st.Cell], every: list[st.Cell]) -> str:
    ends = [c for c in counts if c.kappa in (min(p.kappa), max(p.kappa))]
    parts = "; ".join(
        f"d = {c.d}, kappa = {c.kappa:g}: {c.mean('first'):.3g} ({c.expected:.3g})" for c in ends
    )
    means = ", ".join(f"{f.kind}: {f.mean('leaders'):.2g}" for f in flows)
    one = ", ".join(
        f"{(_with_V(every, size) == 1).mean():.0%} at {size:g}"
        for size in sorted({f.size for f in every})
    )
    return (
        f"Hardmax, {p.n} Gaussian tokens: mean leaders (expected). {parts}.\n\nSoftmax flows, mean "
        f"leaders over {p.flows} starts of {p.few} tokens of root mean square length {p.size:g}: "
        f"{means}. Under a random V the size of the start decides: one leader in {one}."
    )


def _comparisons(
    p: Params, laws: dict[tuple[str, int, float], st.Cell], every: list[st.Cell]
) -> list[st.Comparison]:
    """The law at other n and with heavy tails; the leaders under random V at other sizes."""
    off = {
        tokens: max(c.off for (kind, *_), c in laws.items() if kind == tokens)
        for tokens in ("Gaussian", "heavy tails")
    }
    sizes = sorted({f.size for f in every})
    shares = {size: (_with_V(every, size), _with_V(every, size) == 2) for size in sizes}
    two = {size: st.counted(int(two.sum()), len(two)) for size, (_, two) in shares.items()}
    pooled = np.concatenate([leaders for leaders, _ in shares.values()])
    sides = sum(sum(f.both) for f in every if KINDS[f.kind][1])
    plain = np.concatenate([f.leaders for f in every if not KINDS[f.kind][1]])
    return [
        st.Comparison(
            "hardmax leaders of Gaussian tokens follow the law of B14 at layer 0, for any A",
            f"n = {', '.join(map(str, p.other_n))} in the plane; tokens with heavy tails",
            f"distance from the law over what chance allows: {off['Gaussian']:.2g} at worst for "
            f"Gaussian tokens, {off['heavy tails']:.2g} with heavy tails, {p.draws} draws each",
            off["Gaussian"] <= 1 < off["heavy tails"],
        ),
        st.Comparison(
            "a random V leaves two leaders at most",
            f"the size of the start from {min(sizes):g} to {max(sizes):g}; V = I",
            f"{st.counted(int((pooled <= 2).sum()), len(pooled))}; with V = I "
            f"{st.counted(int((plain <= 2).sum()), len(plain))}",
            bool((pooled <= 2).all()) and st.wilson(int((plain <= 2).sum()), len(plain))[1] < 1,
        ),
        st.Comparison(
            "a random V leaves exactly two where tokens start on both sides",
            f"the size of the start; tokens are on both sides in {sides} of {len(pooled)} runs",
            "two leaders: " + "; ".join(f"size {size:g}: {said}" for size, said in two.items()),
            all(st.wilson(int(two.sum()), len(two))[0] > 0.5 for _, two in shares.values()),
        ),
    ]


def _draw_law(p: Params, counts: list[st.Cell]) -> Any:
    """Mean number of hardmax leaders under a random A of condition number kappa: at layer 0 (dots,
    bars are two standard errors), in the limit (crosses), expected at layer 0 (lines, B14).
    """
    figure, ((ax,),) = cy.plot.sheet(1, 1, 6.5, 4.2)
    for colour, d in zip(cy.plot.PALETTE, p.d):
        row = [c for c in counts if c.d == d]
        ax.plot(p.kappa, [c.expected for c in row], color=colour, lw=1)
        means, bars = [c.first.mean() for c in row], [2 * c.error for c in row]
        ax.errorbar(p.kappa, means, bars, fmt="o", color=colour, ms=5, label=f"d = {d}")
        ax.plot(p.kappa, [c.last.mean() for c in row], "x", color=colour, ms=7)
    ax.plot([], [], "x", color=cy.plot.GREY, label="in the limit")
    ax.plot([], [], color=cy.plot.GREY, lw=1, label="expected (B14)")
    ax.axhline(2, color=cy.plot.INK, lw=0.8, ls=":")
    ax.set(xscale="log", yscale="log", xlabel="condition number of A", ylabel="leaders")
    cy.plot.plain_log(ax.yaxis)
    ax.legend(frameon=False)
    return figure


def _draw_lines(run: cy.Trajectory) -> Any:
    """Queries A y_i (circles) and keys y_j (dots) of one run under random A and V, joined by lines
    as wide as the weight P_ij. At the end all lines lead to the leaders.
    """
    figure, axes = cy.plot.sheet(1, 4, 3.3, 3.4)
    flow: Any = run.made_by
    for ax, k in zip(axes[0], (0, len(run.t) // 20, len(run.t) // 8, len(run.t) - 1)):
        keys = run.values[k]
        queries, P = keys @ flow.Q.T, flow.weights(keys, float(run.t[k]))
        for i, j in np.argwhere(P > 0.02):
            ends = np.stack([queries[i], keys[j]])
            ax.plot(*ends.T, color=cy.plot.GREY, lw=2.5 * P[i, j], zorder=1)
        ax.plot(*queries.T, "o", mfc="white", color=cy.plot.PALETTE[0], ms=5, label="queries A y")
        ax.plot(*keys.T, "o", color=cy.plot.PALETTE[1], ms=5, label="keys y")
        ax.set(aspect="equal", title=f"t = {run.t[k]:.2g}", xlabel="$y_1$")
    axes[0, 0].set_ylabel("$y_2$")
    cy.plot.legend_below(axes[0, 0])
    return figure
