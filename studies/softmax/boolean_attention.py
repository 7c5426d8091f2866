"""The attention matrix becomes Boolean: tokens on a line, arXiv 2305.05465, Theorem 2.1.

With d = 1 and Q = K = V = 1 every token looks, in the end, at the largest or at the smallest one:
P(t) tends to a matrix whose rows are e_a or e_b, of rank 1 or 2, but for one row at most. See how
two columns take over (the paper's figure, n = 40, tokens sorted); that each row is within
exp(-c e^t) of its unit vector; and the exceptional row, that of a token in the exact middle of a
symmetric start.

That P becomes Boolean needs no attention: P of tokens moved by V alone does too, and faster, like
exp(-c e^(2t)), since nobody comes near the largest token: the slope of log(-log) is 1 with
attention and 2 without. Short tokens average each other out first and are late.

Then d = 80, where the published script moves the tokens by V alone and never uses its attention.
See what that hides: short tokens that do attend average each other out, and P falls to a rank of a
few; long tokens look at themselves from the start, and there the two nearly agree.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st

TITLE = "Boolean attention: d = 1, two columns take over"
ALIASES = "2305.05465/theorem2.1 2305.05465/figure1"
_LEAST = 5e-324  # the least positive float, whose -log is 744.4


@dataclass(frozen=True)
class Params:
    """The paper's n; `times` states on [0, time], P drawn at `show`, rank up to `eps`; dimension
    `d` and time `long` (in 1/l1) of the comparison with tokens that do not attend; the controls
    have `starts` starts of each of the `sizes`."""

    n: int = 40
    time: float = 8.0
    times: int = 161
    show: tuple[float, ...] = (0.0, 1.0, 2.0, 3.0, 5.0)
    eps: float = 1e-6
    d: int = 80
    long: float = 10.0
    starts: int = 10
    sizes: tuple[float, ...] = (0.3, 1.0, 3.0)
    seed: int = 0


QUICK = Params(times=81, d=40, starts=2, sizes=(1.0,))


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """The paper's random start, and a symmetric one with a token at 0."""
    sensible = p.n >= 2 and p.d >= 2 and p.times >= 3 and p.time > 0 and p.long > 0
    st.require(sensible, "n, d >= 2, times >= 3, time and long > 0", p)
    say = st.part(progress, 0, 1)
    say(0.0, "d = 1")
    half = np.abs(cy.configurations.box(p.n // 2, 1, p.seed + 1))
    # -a next to a, so that sums cancel to the last bit: a token off 0 by rounding leaves by t = 4
    pairs = np.concatenate([np.stack([-half, half], axis=1).reshape(-1, 1), [[0.0]]])
    examples = {
        f"uniform, n = {p.n}": _example(p, cy.configurations.box(p.n, 1, p.seed)),
        f"symmetric, n = {len(pairs)}": _example(p, pairs),
    }
    say(0.4, f"d = {p.d}")
    ranks = compare_ranks(p.n, p.d, p.eps, p.long, p.seed)
    grid = {"size": p.sizes, "start": range(p.starts)}
    ends = st.over_grid(_end, p, grid, st.part(progress, 0.4, 0.8))
    more = range(p.seed + 1, p.seed + 1 + max(1, p.starts // 3))
    again = st.kept_each(compare_ranks, [(p.n, p.d, p.eps, p.long, seed) for seed in more])
    say(0.8, "figures")
    figures = (st.Picture.of("P(t)", _heat_maps, p, examples),)
    checks = {name: cy.check(e.run, only=("B22", "B23", "B24")) for name, e in examples.items()}
    columns = st.columns(
        "size, start, rank, excepted, columns, slope with attention = slope, "
        "slope of V alone = alone"
    )
    note = "Tokens on a line; slopes of log(-log of the weight outside), median over the rows."
    return st.report_of(
        p,
        _summary(p, examples) + "\n\n" + _rank_text(ranks, p.n, p.d),
        controls=_comparisons(p, ends, [ranks, *again]),
        tables=[st.Table.of("Other starts on the line", ends, columns, note)],
        checks=checks,
        figures=figures,
    )


def _end(p: Params, size: float, start: int) -> st.Cell:
    """One start on the line: P at the end, with attention and for tokens moved by V alone.

    Followed for longer than what is drawn: short tokens are late, all their scores are small.
    """
    z0 = size * cy.configurations.box(p.n, 1, p.seed + start)
    e, flow = _example(replace(p, time=p.time + 4), z0), cy.dynamics.RescaledFlow()
    times = np.asarray(e.run.t, dtype=float)
    still = np.sort(z0, axis=0)  # e^(-t) x does not move when x' = x
    alone = np.stack([cy.spectra.attention_matrix(flow, still, t) for t in times.tolist()])
    settled = np.setdiff1d(np.arange(p.n), e.rows.excepted)
    return st.Cell(
        **{"size": size, "start": start},
        rank=cy.spectra.epsilon_rank(e.P[-1], p.eps),
        excepted=len(e.rows.excepted),
        columns=len(set(e.P[-1].argmax(axis=1)[settled].tolist())),  # that hold a row
        slope=_middle(e.rows.slope),  # median over the rows of d/dt log(-log outside)
        alone=_middle(_rows(times, alone).slope),  # the same for tokens that do not attend
    )


def _middle(slope: np.ndarray) -> float:
    """The median of the slopes that could be fitted; NaN if none."""
    fitted = slope[np.isfinite(slope)]
    return float(np.median(fitted)) if len(fitted) else float("nan")


def _comparisons(
    p: Params, ends: list[st.Cell], found: list[dict[str, st.Cell]]
) -> list[st.Comparison]:
    """Starts and sizes on the line; tokens that do not attend; starts in many dimensions."""
    right = {
        size: [e.rank <= 2 and e.excepted <= 1 for e in ends if e.size == size] for size in p.sizes
    }
    slopes, alone = ([getattr(e, k) for e in ends] for k in ("slope", "alone"))
    slopes, alone = ([x for x in found if np.isfinite(x)] for found in (slopes, alone))
    kinds = ("coupled", "uncoupled")
    ranks = [{name: tuple(r.ranks[k][-1] for k in kinds) for name, r in x.items()} for x in found]
    short = [r[name] for r in ranks for name in r if name.endswith("length 1")]
    long = [r[name] for r in ranks for name in r if name.endswith("length 5") and "V = I" in name]
    fewer = sum(coupled < uncoupled for coupled, uncoupled in short)
    same = [coupled / uncoupled for coupled, uncoupled in long]
    said = f"{p.starts} starts of sizes {', '.join(f'{x:g}' for x in p.sizes)}"
    return [
        st.Comparison(
            f"on the line P has rank 1 or 2 and one exceptional row at most by t = {p.time + 4:g}",
            said,
            "; ".join(f"size {size:g}: {st.counted(sum(x), len(x))}" for size, x in right.items())
            + f"; rank one in {sum(e.rank == 1 for e in ends)}",
            all(all(x) for x in right.values()),
        ),
        st.Comparison(
            "rows approach their unit vector like exp(-c e^t)",
            f"{said}; tokens moved by V alone",
            f"median slope of log(-log): {min(slopes):.2f} to {max(slopes):.2f} with attention, "
            f"{min(alone):.2f} to {max(alone):.2f} without ({len(slopes)} of {len(ends)} fitted)",
            max(abs(x - 1) for x in slopes) < 0.15 and min(alone) > 1.5,
        ),
        st.Comparison(
            f"d = {p.d}: short tokens that attend end with fewer ranks than V alone leaves",
            f"{len(ranks)} starts, V = I and random V",
            f"{st.counted(fewer, len(short))}; ranks {', '.join(f'{a}/{b}' for a, b in short)}",
            fewer == len(short),
        ),
        st.Comparison(
            f"d = {p.d}, V = I: for long tokens the two nearly agree",
            f"{len(ranks)} starts",
            f"ranks {', '.join(f'{a}/{b}' for a, b in long)}",
            min(same) > 0.9,
        ),
    ]


def _example(p: Params, z0: np.ndarray) -> st.Cell:
    """A run with its tokens sorted, its attention matrices (times, n, n), and their rows."""
    flow, times = cy.dynamics.RescaledFlow(), np.linspace(0, p.time, p.times)
    tr = cy.simulate(flow, z0, times=times, stepper=cy.simulation.Adaptive(1e-12, 1e-14))
    tr = replace(tr, z=tr.values[:, np.argsort(z0[:, 0])])
    states = zip(tr.values, times.tolist(), strict=True)
    P = np.stack([cy.spectra.attention_matrix(flow, z, t) for z, t in states])
    return st.Cell(run=tr, P=P, rows=_rows(times, P))


def _rows(times: np.ndarray, P: np.ndarray) -> st.Cell:
    """How far the rows of P are from the limit: `outside` (times, n), the weight outside the column
    it ends in; rows that end in none; fitted d/dt log(-log outside), NaN where nothing can be.

    The outside weight is summed, not taken as 1 - P_ij, which stops at the rounding of 1.
    """
    n = P.shape[1]
    outside = (P * (np.arange(n) != P[-1].argmax(axis=1)[:, None])).sum(axis=2)
    slope = np.full(n, np.nan)
    for i, size in enumerate(-np.log(np.maximum(outside, _LEAST)).T):
        # from e^-10 on the largest of the n - 1 terms rules; past e^-700 floats end
        fitted = (size > 10) & (size < 700)
        if fitted.sum() >= 5:
            slope[i] = np.polyfit(times[fitted], np.log(size[fitted]), 1)[0]
    excepted = tuple(np.flatnonzero(outside[-1] > 1e-8).tolist())
    return st.Cell(outside=outside, excepted=excepted, slope=slope)


def _summary(p: Params, examples: dict[str, st.Cell]) -> str:
    parts = []
    for name, e in examples.items():
        tr, P, rows = e.run, e.P, e.rows
        settled = np.setdiff1d(np.arange(P.shape[1]), rows.excepted)
        slope = rows.slope[np.isfinite(rows.slope)]
        columns = sorted(set(P[-1].argmax(axis=1)[settled].tolist()))
        parts.append(
            f"{name}: at t = {tr.t[-1]:g} {len(settled)} rows are within "
            f"{rows.outside[-1, settled].max():.1g} of a unit vector, in the columns "
            f"{', '.join(map(str, columns))}; {len(rows.excepted)} exceptional; rank "
            f"{cy.spectra.epsilon_rank(P[-1], p.eps)}. "
            f"The slope of log(-log distance) is {np.median(slope):.3f} in the median, "
            f"{slope.min():.3f} to {slope.max():.3f} over {len(slope)} rows (theory: 1)."
        )
    return "\n\n".join(parts)


def _heat_maps(p: Params, examples: dict[str, st.Cell]) -> Any:
    """Weights P_ij(t), row i looks at column j, tokens sorted. Tokens that end positive look at the
    last column, the others at the first. The token at 0 of the symmetric start looks evenly at all,
    unless a rounding error sends it away.
    """
    figure, axes = cy.plot.sheet(len(examples), len(p.show), 2.5, 2.5)
    for line, (name, e) in zip(axes, examples.items()):
        for ax, k in zip(line, [e.run.nearest(t) for t in p.show]):
            image = ax.imshow(e.P[k], cmap="magma_r", vmin=0, vmax=1)
            ax.set_title(f"t = {e.run.t[k]:g}", fontsize=cy.plot.LABEL)
            ax.grid(False)
        line[0].set_ylabel(f"{name}\nrow $i$")
    for ax in axes[-1]:
        ax.set_xlabel("column $j$")
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.01)
    bar.set_label("$P_{ij}$", fontsize=cy.plot.LABEL)
    return figure


# --- many dimensions -----------------------------------------------------------------------------
#
# coupled  x_i' = sum_j P_ij V x_j      uncoupled  x_i' = V x_i,   P of the same formula


def compare_ranks(n: int, d: int, eps: float, time: float, seed: int) -> dict[str, st.Cell]:
    """V = I and a random V (entries N(0, 1/d)), from tokens of length about 1 and 5."""
    random = np.random.default_rng([seed, d]).standard_normal((d, d)) / np.sqrt(d)
    return {
        f"{name}, tokens of length {length:g}": _ranks(
            V, length * np.sqrt(3 / d) * cy.configurations.box(n, d, seed), eps, time
        )
        for length in (1.0, 5.0)
        for name, V in (("V = I", np.eye(d)), ("random V", random))
    }


def _ranks(V: np.ndarray, z0: np.ndarray, eps: float, time: float) -> st.Cell:
    """Ranks of P at the times t (in 1/l1), and P at the last of them, for both kinds of tokens."""
    flow = cy.dynamics.LeadingFlow(V=V)
    times = np.linspace(0, time, 41) / flow.leading
    # fixed steps: a random V may lead with a complex pair, and turning tokens change their minds
    # for ever, which error control would follow
    run = cy.simulate(flow, z0, times=times, stepper=cy.simulation.RK4(0.02 / flow.leading))
    alone = cy.spectra.propagate(np.eye(len(z0)), V - flow.leading * np.eye(len(V)), z0, times)
    P = {
        name: [flow.weights(y, t) for y, t in zip(states, times.tolist(), strict=True)]
        for name, states in (("coupled", run.values), ("uncoupled", alone))
    }
    ranks = {name: [cy.spectra.epsilon_rank(M, eps) for M in P[name]] for name in P}
    last = {name: P[name][-1] for name in P}
    return st.Cell(t=times * flow.leading, ranks=ranks, last=last)


def _rank_text(runs: dict[str, st.Cell], n: int, d: int) -> str:
    ends = "; ".join(
        f"{name}: {r.ranks['coupled'][-1]} against {r.ranks['uncoupled'][-1]}"
        for name, r in runs.items()
    )
    return (
        f"d = {d}, n = {n}, rank of P at the end for tokens that attend against tokens moved by V "
        f"alone, as in the published script: {ends}."
    )
