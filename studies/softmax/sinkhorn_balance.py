"""Doubly stochastic attention beside softmax: who decides where the tokens go (E22).

    z_i <- rho z_i + eta (P z)_i,   P = softmax rows, or Sinkhorn's (rows and columns sum to 1)

Sinkhorn attention (Sinkformers, arXiv 2110.11773) keeps the mean of the tokens and lets no variance
grow, for every A (docs/mathematics.md B38). See: under softmax the long tokens decide. After k
layers z^k = W z^0 with a product W of stochastic matrices, and the influence of token j is the mean
of column j of W: it gathers on few tokens. Under Sinkhorn every influence is 1/n. At large beta the
best balanced matching is that of each token with itself: P tends to I, and tokens move ever less.

Beside it: uniform attention, for which both are one; tokens of equal length, where nobody is long;
A not symmetric; other n, d and steps.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st

TITLE = "Sinkhorn beside softmax: who decides"
RULES = ("softmax", "sinkhorn")
NEAR = 1e-2  # of the longest token: tokens nearer than this are one cluster


@dataclass(frozen=True)
class Params:
    """`starts` starts of n Gaussian tokens of R^d, `layers` layers of step alpha, at each beta.

    `varied`: (n, d, alpha, kind) besides at the betas `some`; the kinds are "gaussian", "equal
    lengths" (tokens on a sphere) and "A not symmetric" (a Gaussian matrix over sqrt(d)).
    """

    betas: tuple[float, ...] = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    n: int = 32
    d: int = 2
    alpha: float = 0.5
    layers: int = 40
    starts: int = 16
    iterations: int = 400
    some: tuple[float, ...] = (1.0, 4.0)
    varied: tuple[tuple[int, int, float, str], ...] = (
        (12, 2, 0.5, "gaussian"), (64, 2, 0.5, "gaussian"), (32, 5, 0.5, "gaussian"),
        (32, 2, 2.0, "gaussian"), (32, 2, 0.5, "equal lengths"), (32, 2, 0.5, "A not symmetric"),
    )  # fmt: skip
    seed: int = 0


QUICK = Params(
    betas=(0.0, 1.0), n=8, layers=8, starts=3, some=(1.0,),
    varied=((8, 2, 0.5, "equal lengths"), (8, 2, 0.5, "A not symmetric")),
)  # fmt: skip


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Both rules at every temperature, then other sizes, steps, starts and forms."""
    over = st.measuring(p, progress)
    sensible = min(p.n, p.starts) >= 2 and p.layers >= 1 and 0.0 in p.betas
    st.require(sensible, "n, starts >= 2, layers >= 1, betas with 0", p)
    plain = [(p.n, p.d, p.alpha, "gaussian")]
    axes: dict[str, Any] = {"rule": RULES, "beta": p.betas, "start": plain}
    cells = over(_cell, axes, 0.6)
    axes = {"rule": RULES, "beta": p.some, "start": p.varied}
    others = over(_cell, axes, 0.95)
    sizes = [*plain, *(size for size in p.varied if size[3] == "A not symmetric")]
    runs = [_run(p, "sinkhorn", beta, size, 1).select(0) for beta in p.some for size in sizes]
    return st.report_of(
        p,
        _summary(p, cells),
        controls=_controls(p, cells, others),
        tables=[_table("Temperatures", cells), _table("Other sizes, starts and forms", others)],
        checks={"Sinkhorn": [st.judged("B38", runs)]},
        figures=[st.Picture.of("Softmax and Sinkhorn against beta", _curves, p, cells)],
    )


def _start(p: Params, size: tuple[int, int, float, str]) -> tuple[np.ndarray, np.ndarray | None]:
    n, d, _, kind = size
    rng = np.random.default_rng([p.seed, n, d])
    z = rng.standard_normal((p.starts, n, d))
    if kind == "equal lengths":
        z *= np.sqrt(d) / np.linalg.norm(z, axis=-1, keepdims=True)
    A = rng.standard_normal((d, d)) / np.sqrt(d) if kind == "A not symmetric" else None
    return z, A


def _run(
    p: Params, rule: str, beta: float | int, size: tuple[int, int, float, str], starts: int
) -> cy.Trajectory:
    z, A = _start(p, size)
    attention = (
        cy.Softmax(beta, A) if rule == "softmax" else cy.attention.Sinkhorn(beta, A, p.iterations)
    )
    return cy.simulate(cy.PureAttention(attention, size[2]), z[:starts], layers=p.layers)


def _cell(p: Params, rule: str, beta: float | int, size: tuple[int, int, float, str]) -> st.Cell:
    """The starts of one cell, one entry each."""
    n, d, alpha, kind = size
    tr = _run(p, rule, beta, size, p.starts)
    z, eta = tr.values, alpha / (1 + alpha)
    W, columns = np.broadcast_to(np.eye(n), (p.starts, n, n)), 0.0
    for state in z[:-1]:
        P = tr.made_by.weights(state)
        columns = max(columns, float(np.abs(P.sum(axis=-2) - 1).max()))
        W = (1 - eta) * W + eta * P @ W
    influence = W.mean(axis=1)
    longer = np.argsort(np.linalg.norm(z[0], axis=-1), axis=-1)[:, n // 2 :]
    width = np.sqrt(z.var(axis=2).sum(axis=-1))  # (layers, starts)
    longest = np.linalg.norm(z[0], axis=-1).max(axis=-1)
    drift = np.linalg.norm(z[-1].mean(axis=1) - z[0].mean(axis=1), axis=-1)
    return st.Cell(
        **{"rule": rule, "beta": beta, "n": n, "d": d, "alpha": alpha, "kind": kind},
        drift=(drift / width[0]).tolist(),  # of the mean, over the standard deviation of the start
        deciding=(1 / (influence**2).sum(axis=1) / n).tolist(),  # 1 if all decide alike
        long=np.take_along_axis(influence, longer, axis=1).sum(axis=1).tolist(),
        clusters=[cy.clusters(x, tol=NEAR * r).count for x, r in zip(z[-1], longest)],
        spread=((width[-1] / width[0]) ** 2).tolist(),  # variance left
        columns=columns if rule == "sinkhorn" else 0.0,  # largest |column sum - 1|
    )


def _table(title: str, cells: list[st.Cell]) -> st.Table:
    columns = st.columns(
        "rule, beta, n, d, alpha, kind, drift of the mean = mean drift, share that decides = mean "
        "deciding, influence of the longer half = mean long, clusters = mean clusters, "
        "variance left = mean spread"
    )
    columns |= {"largest |column sum - 1|": lambda c: c.columns if c.rule == "sinkhorn" else None}
    note = (
        "Means over the starts. The share that decides is 1/(n sum_j w_j^2), w_j the influence of "
        "token j on the mean at the end; n w_j = 1 for all tokens gives 1."
    )
    return st.Table.of(title, cells, columns, note)


def _controls(p: Params, cells: list[st.Cell], others: list[st.Cell]) -> list[st.Comparison]:
    every = [*cells, *others]
    sinkhorn = [c for c in every if c.rule == "sinkhorn"]
    soft = [c for c in every if c.rule == "softmax" and c.beta > 0]
    even = [c for c in soft if c.kind == "equal lengths"]
    uneven = [c for c in soft if c.kind == "gaussian"]
    uniform = [c for c in cells if c.beta == 0]
    top = max(p.betas)
    last = {c.rule: c for c in cells if c.beta == top}
    drifts = [x for c in sinkhorn for x in c.drift]
    worst = max(c.columns for c in sinkhorn)
    least = min(min(c.deciding) for c in sinkhorn)
    same = st.grouped([*soft, *sinkhorn], "beta", "n", "d", "alpha", "kind").values()
    pairs = [pair for pair in same if len(pair) == 2]  # of the same starts
    balanced, soft_end = last["sinkhorn"], last["softmax"]
    return [
        st.Comparison(
            "Under Sinkhorn the mean stays and all tokens decide alike.",
            "softmax; every n, d, alpha, start and A; uniform attention, for which both are one",
            f"largest drift {max(drifts):.1g} of the width of the start (columns sum to 1 within "
            f"{worst:.1g}), share that decides at least {least:.4f}; "
            f"softmax: drift from {min(c.mean('drift') for c in soft):.2g} to "
            f"{max(c.mean('drift') for c in soft):.2g}, share from "
            f"{min(c.mean('deciding') for c in soft):.2f}",
            least > 0.99 and all(10 * b.mean("drift") < a.mean("drift") for a, b in pairs),
        ),
        st.Comparison(
            "Under softmax the longer half of the tokens decides.",
            "uniform attention, where half is 0.5; tokens of equal length, where no half is longer",
            f"influence of the longer half, Gaussian starts: "
            f"{min(c.mean('long') for c in uneven):.2f} to "
            f"{max(c.mean('long') for c in uneven):.2f}; equal lengths: "
            + (", ".join(c.told("long") for c in even) or "not run")
            + f"; uniform {uniform[0].mean('long'):.2f}",
            min(st.resampled(c.long)[0] for c in uneven) > 0.5
            and all(st.resampled(c.long)[0] <= 0.55 for c in even),
        ),
        st.Comparison(
            f"At beta = {top:g} Sinkhorn leaves more clusters; softmax raises the variance.",
            "the same starts under softmax; uniform attention",
            f"clusters {balanced.told('clusters')} and {soft_end.told('clusters')}; "
            f"variance left {balanced.told('spread')} and {soft_end.told('spread')}; "
            f"uniform {uniform[0].mean('spread'):.1g}",
            st.resampled(balanced.clusters)[0] > st.resampled(soft_end.clusters)[1]
            and st.resampled(soft_end.spread)[0] > 1,
        ),
    ]


def _summary(p: Params, cells: list[st.Cell]) -> str:
    told = []
    for beta in p.betas[1:]:
        soft, even = (c for rule in RULES for c in cells if (c.rule, c.beta) == (rule, beta))
        said = {"share that decides": "deciding", "clusters": "clusters", "variance left": "spread"}
        pairs = (f"{k} {soft.mean(v):.2g} and {even.mean(v):.2g}" for k, v in said.items())
        told.append(f"beta = {beta:g}: {', '.join(pairs)}")
    return (
        f"{p.n} Gaussian tokens of R^{p.d} after {p.layers} layers, softmax and Sinkhorn. "
        f"{'. '.join(told)}."
    )


def _curves(p: Params, cells: list[st.Cell]) -> Any:
    """Means over the starts with 95 % intervals. Left: drift of the mean, over the width of the
    start (Sinkhorn: 0). Second: 1/(n sum w^2) of the influences w; 1 if all tokens decide alike.
    Third: clusters at the end. Right: variance left. At large beta softmax gathers the tokens at
    few places, Sinkhorn keeps more of them apart, though far from all.
    """
    figure, axes = cy.plot.sheet(1, 4, 3.3, 3.3)
    names = {
        "drift": "drift of the mean",
        "deciding": "share that decides",
        "clusters": "clusters",
        "spread": "variance left",
    }
    for colour, rule in zip(cy.plot.PALETTE, RULES):
        of = [c for c in cells if c.rule == rule]
        for ax, name in zip(axes[0], names):
            samples = [getattr(c, name) for c in of]
            st.bars(ax, [c.beta for c in of], samples, color=colour, label=rule)
    for ax, name in zip(axes[0], names.values()):
        ax.set_xscale("symlog", linthresh=0.25)
        ax.set(xlabel="beta", ylabel=name, xticks=p.betas)
        ax.set_xticklabels([f"{beta:g}" for beta in p.betas], fontsize=cy.plot.LABEL - 1)
        ax.minorticks_off()
        ax.set_ylim(bottom=0)
    cy.plot.legend_below(axes[0, 0])
    return figure
