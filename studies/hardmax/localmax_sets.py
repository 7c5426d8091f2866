"""Localmax: tokens that look at all nearly best ones, and the sets that come to rest.

    C_i = { j : <z_i, z_j> >= max_l <z_i, z_l> - delta },   z_i <- rho z_i + eta (mean over C_i)

Between hardmax (delta = 0) and uniform attention (arXiv 2509.15958). A set Q of tokens is called
quiescent here when every token of Q looks at Q exactly: then its mean stays and its tokens approach
it by the factor rho a layer, since z_i' - m = rho (z_i - m). See: in the end (nearly) all tokens
are in quiescent sets, whose number falls from that of the leaders of hardmax to 1 as delta grows.
Under hardmax a set at rest is a single leader, which nobody joins; under localmax sets take up
followers that come near and move their mean. Where no set changes any more, the end is approached
by the factor rho a layer; where some tokens only follow, more slowly.
"""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st

TITLE = "Localmax: quiescent sets between hardmax and uniform attention"
NEAR = 1e-6  # of the longest token: tokens nearer than this are one cluster


@dataclass(frozen=True)
class Params:
    """`starts` starts of n Gaussian tokens of R^d under each of `deltas`, in units of the longest
    squared length (0: hardmax); `varied` are (n, d, alpha, equal lengths?) besides, at `some`."""

    deltas: tuple[float, ...] = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    n: int = 40
    d: int = 2
    alpha: float = 1.0
    layers: int = 120
    starts: int = 30
    some: tuple[float, ...] = (0.0, 0.03, 0.3)
    varied: tuple[tuple[int, int, float, bool], ...] = (
        (12, 2, 1.0, False), (100, 2, 1.0, False), (40, 5, 1.0, False), (40, 2, 0.3, False),
        (40, 2, 1.0, True),
    )  # fmt: skip
    seed: int = 0


QUICK = Params(
    deltas=(0.0, 0.03, 0.3), n=12, layers=60, starts=4, some=(0.0, 0.3),
    varied=((12, 2, 1.0, True),),
)  # fmt: skip


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Every delta, then other sizes, steps and starts."""
    sensible = min(p.n, p.starts) >= 2 and p.layers >= 40 and 0.0 in p.deltas
    st.require(sensible, "n, starts >= 2, layers >= 40, deltas with 0", p)
    part, grid = partial(st.part, progress), st.over_grid
    axes = {"delta": p.deltas, "start": [(p.n, p.d, p.alpha, False)]}
    cells = grid(_cell, p, axes, part(0, 0.6))
    others = grid(_cell, p, {"delta": p.some, "start": p.varied}, part(0.6, 1))
    every = [*cells, *others]
    law = st.at_most(
        "quiescent sets",
        "arXiv 2509.15958; one line: all tokens of Q move towards the mean of Q",
        "in a quiescent set the mean stays and distances to it shrink by rho a layer",
        max(c.off for c in every),
        1e-14 * (16 + max(c.n for c in every)),  # rounding of a mean of n tokens
        cells=len(every),
    )
    title = "Clusters and quiescent sets against delta"
    return st.report_of(
        p,
        _summary(p, cells),
        controls=_controls(p, cells, others),
        tables=[_table("Sensitivities", cells), _table("Other sizes, steps, starts", others)],
        checks={"sets": [law]},
        figures=[st.Picture.of(title, _curves, cells)],
    )


def _cell(p: Params, delta: float | int, size: tuple[int, int, float, bool]) -> st.Cell:
    """The starts of one cell, one entry each of what `_measured` says."""
    n, d, alpha, equal = size
    found = []
    for s in range(p.starts):
        z = np.random.default_rng([p.seed, s]).standard_normal((n, d))
        z = z / np.linalg.norm(z, axis=1, keepdims=True) if equal else z
        found.append(_measured(p, delta, alpha, z))
    *columns, off = map(list, zip(*found))
    names = ("clusters", "quiet", "found", "grown", "split", "rested", "rate")
    start = {"delta": delta, "n": n, "d": d, "alpha": alpha, "equal": equal}
    return st.Cell(**start, **dict(zip(names, columns, strict=True)), off=max(off))


def _measured(
    p: Params, delta: float | int, alpha: float | int, z0: np.ndarray
) -> tuple[int, float, int, int, int, int, float, float]:
    """Clusters; share of the tokens in a quiescent set at the end; quiescent sets seen, of these no
    longer one at the layer after, and with tokens that look at different sets at the end; the layer
    from which all sets stay; the factor a layer of the steps from there, NaN if too few to fit; the
    largest |z_i' - m - rho (z_i - m)| in a quiescent set, over the longest token."""
    longest = float(np.linalg.norm(z0, axis=1).max())
    rule = (
        cy.attention.Localmax(delta * float((z0**2).sum(axis=1).max())) if delta else cy.Hardmax()
    )
    tr = cy.simulate(cy.PureAttention(rule, alpha), z0, layers=p.layers)
    z, followed = tr.values, None if delta else cy.roles(tr).followed  # the certified walk's
    P = [
        tr.made_by.weights(x) if followed is None else followed(k).weights()
        for k, x in enumerate(z)
    ]
    sees = np.array(P) > 0  # who looks at whom, (layers + 1, n, n)
    quiet = np.array([_quiescent(B) for B in sees])
    groups = [{tuple(np.flatnonzero(B[i])) for i in np.flatnonzero(q)} for B, q in zip(sees, quiet)]
    grown = sum(len(a - b) for a, b in pairwise(groups))
    every = set().union(*groups)
    split = sum(not (sees[-1][list(Q)] == sees[-1][Q[0]]).all() for Q in every)
    off, rho = 0.0, 1 / (1 + alpha)
    for k, sets in enumerate(groups[:-1]):
        for Q in map(list, sets):
            m = z[k, Q].mean(axis=0)
            off = max(off, float(np.abs(z[k + 1, Q] - m - rho * (z[k, Q] - m)).max()))
    same = (sees == sees[-1]).all(axis=(1, 2))
    rested = int(p.layers + 1 - np.argmin(same[::-1])) if not same.all() else 0
    steps = np.linalg.norm(np.diff(z, axis=0), axis=2).max(axis=1)
    late = np.flatnonzero(steps > 1e-10 * longest)
    late, rate = late[late >= rested], float("nan")
    if len(late) > 3:
        rate = float(np.exp(np.polyfit(late, np.log(steps[late]), 1)[0]))
    count, share = cy.clusters(z[-1], tol=NEAR * longest).count, float(quiet[-1].mean())
    return count, share, len(every), grown, split, rested, rate, off / longest


def _quiescent(B: np.ndarray) -> np.ndarray:
    """True for tokens i whose set C_i contains i and is the set of each of its members."""
    same = (B[:, None, :] == B[None, :, :]).all(axis=-1)
    return np.diag(B) & (~B | same).all(axis=1)


def _table(title: str, cells: list[st.Cell]) -> st.Table:
    columns = st.columns(
        "delta, n, d, alpha, equal lengths = equal, clusters = mean clusters, tokens in a "
        "quiescent set = mean quiet, quiescent sets seen = mean found, grown later = mean grown, "
        "split at the end = mean split, sets at rest from layer = mean rested"
    )
    columns["delta"] = lambda c: c.delta or "0 (hardmax)"
    columns["factor a layer"] = lambda c: c.mean("rate")
    note = "Means over the starts; delta in units of the longest squared length at the start."
    return st.Table.of(title, cells, columns, note)


def _controls(p: Params, cells: list[st.Cell], others: list[st.Cell]) -> list[st.Comparison]:
    every = [*cells, *others]
    soft, hard = ([c for c in every if bool(c.delta) is which] for which in (True, False))
    means = [c.mean("clusters") for c in cells]
    seen, grown, split = (_total(soft, name) for name in ("found", "grown", "split"))
    zero, one = (st.resampled(c.clusters) for c in (cells[0], cells[-1]))
    even = [c for c in others if c.equal]
    fitted = [(q == 1, (1 + c.alpha) * r) for c in soft for q, r in zip(c.quiet, c.rate)]
    quiet, slow = (
        [x for q, x in fitted if q is which and np.isfinite(x)] for which in (True, False)
    )
    following = "none where some only follow"
    if slow:
        following = f"where some only follow from {min(slow):.3f} to {max(slow):.3f} in {len(slow)}"
    alike = st.Comparison(
        "Tokens of equal length move under localmax.",
        "hardmax, which does not move them (B13)",
        "; ".join(f"delta {c.delta:g}: {st.told(c.clusters)} clusters" for c in even),
        all((c.mean("clusters") == c.n) == (c.delta == 0) for c in even),
    )
    return [
        st.Comparison(
            "The number of clusters falls from that of hardmax as delta grows.",
            "hardmax, exact; other n, d and alpha in the table",
            "; ".join(f"{c.delta:g}: {st.told(c.clusters)}" for c in cells),
            all(a >= b for a, b in pairwise(means)) and zero[0] > one[1],
        ),
        st.Comparison(
            "Quiescent sets of localmax grow; their tokens stay together.",
            "hardmax, whose leaders stay alone (B5); every delta, n, d and alpha",
            f"grown: {st.counted(grown, seen)}, split at the end: "
            f"{st.counted(split, seen)}; hardmax "
            f"{_total(hard, 'grown')} and {_total(hard, 'split')} of {_total(hard, 'found')}",
            st.wilson(split, seen)[1] < 0.05 and grown > seen / 2 and not _total(hard, "grown"),
        ),
        st.Comparison(
            "In quiescent sets at rest the end is approached by the factor rho a layer.",
            "alpha, n, d and delta; starts where some token is in no quiescent set",
            f"factor over rho from {min(quiet):.4f} to {max(quiet):.4f} in {len(quiet)} starts; "
            + following,
            all(abs(x - 1) < 0.001 for x in quiet),
        ),
        *([alike] if even else []),
    ]


def _total(cells: list[st.Cell], name: str) -> int:
    return sum(sum(getattr(c, name)) for c in cells)


def _summary(p: Params, cells: list[st.Cell]) -> str:
    told = [
        f"delta = {c.delta:g}: {c.mean('clusters'):.3g} clusters, {c.mean('quiet'):.0%} of the "
        f"tokens in a quiescent set, sets at rest from layer {c.mean('rested'):.3g}"
        for c in cells
    ]
    soft = [c for c in cells if c.delta]
    grown, split, seen = (_total(soft, name) for name in ("grown", "split", "found"))
    return (
        f"{p.n} Gaussian tokens of R^{p.d}, alpha = {p.alpha:g}, {p.starts} starts. "
        f"{'; '.join(told)}. Of the quiescent sets seen under localmax "
        f"{st.counted(grown, seen)} grew later, and {st.counted(split, seen)} had been "
        "split at the end."
    )


def _curves(cells: list[st.Cell]) -> Any:
    """Means over the starts with 95 % intervals; the first point is hardmax. Left: clusters at the
    end. Middle: share of the tokens that are in a quiescent set at the end; the others follow one.
    Right: the layer from which no set changes any more.
    """
    figure, axes = cy.plot.sheet(1, 3, 4, 3.5)
    labels = ("clusters", "tokens in a quiescent set", "sets at rest from layer")
    for ax, name, label in zip(axes[0], ("clusters", "quiet", "rested"), labels):
        ends = lambda c, name=name: st.resampled(getattr(c, name))  # noqa: E731
        st.curves(ax, cells, "delta", partial(st.Cell.mean, name=name), ends=ends)
        ax.set_xscale("symlog", linthresh=min(c.delta for c in cells if c.delta))
        ax.set(xlabel="delta / longest squared length", ylabel=label)
        ax.set_ylim(bottom=0)
    return figure
