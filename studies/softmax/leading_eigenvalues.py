"""What the leading eigenvalues of V decide: vertices of a polytope, hyperplanes, or lines.

    x_i' = sum_j P_ij V x_j,   P = softmax of <Q x_i, K x_j>,   z_i = e^(-tV) x_i

Four questions of arXiv 2305.05465 about the limits of the rescaled tokens z_i.

polytope (Theorem 3.1): with V = I and Q^T K positive definite the hull of the tokens shrinks to a
polytope, and each token tends to a point of the finite set S = {s : max over y of <As, y> =
|s|_A^2}, usually a vertex.

hyperplanes (Theorem 4.1): if the leading eigenvalue l1 of V is real, positive and simple, with
<Qf, Kf> > 0 on its eigenvector f, the coordinate f1*(z_i) tends to one of at most three values
{a, 0, b}: tokens tend to parallel hyperplanes. Trap: "at most three" alone tells little, because
uniform attention ends on one hyperplane. Attention to one's own side adds the second.

product (Theorem 5.1): V = l I on F (dim F > 1) and smaller elsewhere: the components in F tend to
the boundary of a polytope of F, or to 0. The proof bounds a remainder that is not small when Q^T K
couples F with the rest. There the statement is open, and a sweep over the coupling probes it.

codimension (a conjecture): if k eigenvalues of V have positive real part, the points (f_1*(z_i),
..., f_k*(z_i)) have at most three limits. Tokens are followed in the eigenbasis of V. Trap: count
late. Scores along the leading direction overtake the others only like e^(2 (l1 - l2) t).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.analysis.polytope import minimal_points

TITLE = "What the leading eigenvalues of V decide: vertices, hyperplanes, lines"
ALIASES = (
    "2305.05465/theorem3.1=polytope 2305.05465/theorem4.1=hyperplanes "
    "2305.05465/theorem5.1=product 2305.05465/figure3=polytope 2305.05465/figure4=hyperplanes "
    "2305.05465/figure5=product polytope_flow=polytope hyperplanes=hyperplanes "
    "hyperplane_polytope=product codimension=codimension"
)
MATRICES = {
    "2-D": ((0.64709742, 0.81911926), (0.61210449, 0.63263484)),
    "3-D, Re < 0": (
        (0.2362413, 0.0599536, 0.40506019),
        (0.81321448, 0.49948705, 0.33754772),
        (0.2160645, 0.38505272, 0.14588075),
    ),
    "3-D, Re > 0": (
        (0.18608476, 0.34391026, 0.13905949),
        (0.35244288, 0.6694859, 0.39992145),
        (0.46685606, 0.17094454, 0.42092308),
    ),
}
"""V of the paper's figures on hyperplanes (Q = K = I); Re: of the other eigenvalues."""
PAPER_V = (
    (0.92761287, 0.94333073, 0.3827744),
    (0.94333073, 0.59991396, 0.47825472),
    (0.3827744, 0.47825472, 0.46668605),
)
"""V of the paper's figure on codimension 2."""
KINDS = {"softmax": 1.0, "uniform": 0.0, "turned round": -1.0}
"""K as a multiple of I: the alignment <Qf, Kf> has its sign."""
FINE, LATE = cy.simulation.Adaptive(1e-9, 1e-12), (0.0, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class Params:
    """The paper's start: n tokens, uniform in [-side, side]^d. `starts` are those of each case of
    polytope, hyperplanes, product; `time` is that of polytope and product.

    polytope: dimensions `d`, sides `sides`. hyperplanes: sides `plane_sides`, for `plane_time`;
    controls with `ns` tokens and groups at the tolerances `tols`. product: V = diag(1, 1, rest),
    Q^T K = I plus c between F and the third direction for c in `couplings`; `coupling` is drawn.
    codimension: `matrices` random V for each (d, k) of `cells`, eigenvalues in [least, 1] and the
    others in [-1/2, 0]; groups at `tol` and `line_tols`; other starts of half a side `line_sides`;
    one run of d tokens with `high` = (d, k).
    """

    questions: tuple[str, ...] = ("polytope", "hyperplanes", "product", "codimension")
    n: int = 40
    side: float = 5.0
    starts: tuple[int, int, int] = (10, 20, 12)
    time: float = 16.0
    d: tuple[int, ...] = (2, 3)
    sides: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    plane_time: float = 20.0
    plane_sides: tuple[float, ...] = (0.3, 1.0, 5.0)
    ns: tuple[int, ...] = (10, 120)
    tols: tuple[float, ...] = (1e-4, 1e-2, 1e-6)
    rest: float = -0.5
    coupling: float = 0.6
    couplings: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.68)
    cells: tuple[tuple[int, int], ...] = ((2, 1), (3, 1), (3, 2), (4, 2), (4, 3), (5, 3))
    least: float = 0.4
    matrices: int = 12
    tol: float = 1e-3
    line_tols: tuple[float, ...] = (1e-2, 1e-4)
    line_sides: tuple[float, ...] = (1.0,)
    high: tuple[int, int] = (128, 64)
    seed: int = 0


QUICK = Params(
    starts=(2, 2, 2), sides=(0.1, 10.0), plane_sides=(5.0,), ns=(10,),
    couplings=(0.0, 0.6), cells=((3, 2),), matrices=2, high=(16, 8),
)  # fmt: skip


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """A chapter for each question."""
    sensible = set(p.d) <= {2, 3} and p.n >= 4 and min(p.starts) >= 1 and p.plane_time > 1
    sensible &= 0 <= max(*p.couplings, p.coupling) < 0.7071 and p.rest < 1 and 0 < p.least < 1
    sensible &= all(1 <= k < d for d, k in (*p.cells, p.high))
    expected = "d 2 or 3, n >= 4, starts >= 1, plane_time > 1, couplings in [0, 0.707), where Q^T K"
    expected += " is definite, rest < 1, cells (d, k) with 1 <= k < d, 0 < least < 1"
    st.require(sensible, expected, p)
    asked = {"polytope": _polytope, "hyperplanes": _hyperplanes, "product": _product}
    summary = "The limits of rescaled tokens, by the leading eigenvalues of V."
    return st.by_question(p, summary, asked | {"codimension": _codimension}, progress)


def _box(p: Params, d: int, seed: int) -> np.ndarray:
    return p.side * cy.configurations.box(p.n, d, p.seed + seed)


def _census(d: int, case: float, ends: list[st.Cell], chance: list[float], **more: Any) -> st.Cell:
    """All starts of one case, a side or a coupling: the number of limits of each, limits that are
    no vertex, how far one is off, and the share of draws that would pass for limits."""
    limits, off = [len(e.centres) for e in ends], max(e.off for e in ends)
    inner = sum(len(e.centres) - len(e.body.index) for e in ends)
    return st.Cell(d=d, case=case, limits=limits, inner=inner, off=off, chance=chance, **more)


def _ends(
    z: np.ndarray, off: Callable[[np.ndarray, cy.analysis.Polytope], float], tol: float = 1e-4
) -> st.Cell:
    """Where the tokens z (times, n, d) end: the limits, that of each token, their hull, and the
    largest distance of a limit from where it should be, judged by `off`, over the longest token."""
    longest = float(np.linalg.norm(z[0], axis=1).max())
    groups = cy.clusters(z[-1], tol * longest)
    body = cy.hull(groups.centres)
    away = off(groups.centres, body) / longest
    return st.Cell(centres=groups.centres, labels=groups.labels, body=body, off=away)


def _from_S(points: np.ndarray, body: cy.analysis.Polytope) -> float:
    """The largest distance of a point from S of the body and from 0."""
    targets = np.concatenate([minimal_points(body), np.zeros((1, points.shape[1]))])
    return float(np.linalg.norm(points[:, None] - targets, axis=2).min(axis=1).max())


def _from_boundary(points: np.ndarray, body: cy.analysis.Polytope) -> float:
    """The largest distance of a point from the boundary of the body and from 0."""
    if body.dim < 2:  # a segment or a point is all boundary
        return 0.0
    depth = -(points @ body.equations[:, :-1].T + body.equations[:, -1]).max(axis=1)
    return float(np.minimum(depth.clip(0), np.linalg.norm(points, axis=1)).max())


def _in_S(some: np.ndarray) -> bool:
    """Are all tokens in the S of their hull? v is in S iff <v, y> <= |v|^2 for all y of it."""
    scores = some @ some.T
    return bool((scores <= np.diag(scores)[:, None]).all())


def _chance(
    rng: np.random.Generator, z: np.ndarray, count: int, passes: Callable[[np.ndarray], bool]
) -> float:
    """How often `count` random tokens of z would pass for limits."""
    draws = 40
    return sum(passes(z[rng.choice(len(z), count, replace=False)]) for _ in range(draws)) / draws


# --- polytope: V = I -----------------------------------------------------------------------------


def _polytope(p: Params, progress: st.Progress) -> st.Report:
    """The paper's two runs, then the sweep over the size of the start."""
    over = st.measuring(p, progress)
    flows = over(_flow, {"d": p.d, "side": (p.side,), "seed": (0,)}, 0.1)
    runs = {f"d = {d}": (tr, _ends(tr.values, _from_S)) for d, tr in zip(p.d, flows)}
    sizes = over(_size_census, {"d": p.d, "side": p.sides})
    drawn = cy.plot.paths(
        {name: (tr, end.labels) for name, (tr, end) in runs.items()},
        LATE,
        lambda ax, name, z, t: cy.plot.shade(ax, cy.hull(z)),
    )
    census = st.columns(
        "d, side = case, runs = len limits, mean limits = mean limits, fewest = min limits, "
        "most = max limits, at tolerance 1e-6 = mean finer, no vertex = inner, "
        "away from S = off, random tokens in S = mean chance"
    )
    away = "`away from S`: largest distance of a limit from S and 0, relative to the longest token."
    return st.report_of(
        p,
        _polytope_text(p, runs, sizes),
        title="V = I: tokens gather at the vertices of a polytope",
        controls=_polytope_controls(p, sizes),
        tables=[st.Table.of("Size of the start", sizes, census, away)],
        checks={name: cy.check(tr, only=("B23", "B24")) for name, (tr, _) in runs.items()},
        figures=[st.Picture("Tokens and their hull", _HULLS, drawn)],
    )


_HULLS = (
    "Rescaled tokens e^(-t) x_i(t), in the colour of the vertex they end at; grey: where they "
    "started; shaded: their hull, which only shrinks. At the end it is the limiting polytope."
)


def _flow(p: Params, d: int, side: float, seed: int) -> cy.Trajectory:
    flow, stepper = cy.dynamics.RescaledFlow(), cy.simulation.Adaptive(1e-10, 1e-12)
    z0, times = _box(replace(p, side=side), d, seed), np.linspace(0, p.time, int(20 * p.time) + 1)
    return cy.simulate(flow, z0, times=times, stepper=stepper)


def _size_census(p: Params, d: int, side: float) -> st.Cell:
    flows = [_flow(p, d, side, s).values for s in range(p.starts[0])]
    ends = [_ends(z, _from_S) for z in flows]
    rng = np.random.default_rng([p.seed, d])
    return _census(
        *(d, side, ends),
        [_chance(rng, z[0], len(e.centres), _in_S) for z, e in zip(flows, ends)],
        finer=tuple(len(_ends(z, _from_S, 1e-6).centres) for z in flows),
    )


def _polytope_controls(p: Params, sizes: list[st.Cell]) -> list[st.Comparison]:
    """What random tokens, other tolerances and hardmax layers would show."""
    large = [c for c in sizes if c.mean("limits") > 2]
    runs, expected = (sum(f(c.chance) for c in large) for f in (len, sum))
    in_s = sum(len(c.limits) for c in large if c.off < 1e-4)
    small, big = min(p.sides), max(p.sides)
    ends = {side: [c for c in sizes if c.case == side] for side in (small, big)}

    def means(name: str, side: float) -> str:
        return "/".join(f"{c.mean(name):.1f}" for c in ends[side])

    seen = "; ".join(
        f"{what}: {means(name, small)} at side {small:g}, {means(name, big)} at {big:g}"
        for what, name in (("1e-4", "limits"), ("1e-6", "finer"))
    )
    pairs = list(zip(ends[small], ends[big]))
    grows = all(a.mean(name) < b.mean(name) for name in ("limits", "finer") for a, b in pairs)
    return [
        st.Comparison(
            "Every limit lies in S.",
            "as many random tokens of the same start, and the S of their hull",
            f"all limits of {in_s} of {runs} runs with more than two limits lie in S; random "
            f"tokens would do so in {float(expected):.1f}",
            survives=in_s == runs and bool(expected < 0.5 * runs),
        ),
        st.Comparison(
            "Smaller starts end at fewer limits.",
            "the tolerance at which limits count as one",
            f"mean number of limits, d = {'/'.join(map(str, p.d))}, tolerance {seen}",
            survives=grows,
        ),
    ]


def _polytope_text(p: Params, runs: dict[str, Any], sizes: list[st.Cell]) -> str:
    text = [
        f"{name}: {p.n} tokens end at {len(r.centres)} limits, of which "
        f"{len(r.body.index)} are vertices of the limiting polytope (the first hull has "
        f"{len(cy.hull(tr.values[0]).index)}), and every limit is within {r.off:.1g} of S."
        for name, (tr, r) in runs.items()
    ]
    inner, count = sum(c.inner for c in sizes), sum(len(c.limits) for c in sizes)
    ends = f"{inner} limits are no vertex" if inner else "limits are vertices"
    text.append(f"In {count} runs of side {min(p.sides):g} to {max(p.sides):g}, {ends}.")
    return "\n\n".join(text)


# --- hyperplanes: a simple leading eigenvalue ----------------------------------------------------


def _hyperplanes(p: Params, progress: st.Progress) -> st.Report:
    """The paper's three matrices, then many starts of each."""
    names = {"matrix": tuple(MATRICES)}
    runs = st.over_grid(_plane_flow, p, names, st.part(progress, 0, 0.3))
    examples = {
        name: st.Cell(
            triple=cy.spectra.good_triple(V=V),
            run=tr,
            planes=cy.spectra.hyperplane_values(tr, tol=1e-4),
        )
        for (name, V), tr in zip(MATRICES.items(), runs)
    }
    cases = [
        *((side, p.n, "softmax") for side in p.plane_sides),
        *((p.side, n, "softmax") for n in p.ns),
        *((p.side, p.n, kind) for kind in KINDS if kind != "softmax"),
    ]
    grid = {**names, "start (side, n, attention)": cases}
    every = st.over_grid(_plane_census, p, grid, st.part(progress, 0.3, 1))
    counts = [c for c in every if c.n == p.n and c.attention == "softmax"]
    columns: dict[str, Any] = st.columns("matrix, attention, side, n, starts = len counts")
    columns |= {str(k): lambda c, k=k: c.counts.count(k) for k in (1, 2, 3)}
    columns["all of the form {a, 0, b}"] = "right"
    note = f"Groups of f1* at t = {p.plane_time:g}, gaps above 1e-4 of the largest value."
    return st.report_of(
        p,
        _planes_text(examples, counts),
        title="Three hyperplanes: V with a simple leading eigenvalue",
        controls=_plane_controls(p, every),
        tables=[
            st.Table.of("Number of hyperplanes over random starts", every, columns, note),
        ],
        checks={name: cy.check(e.run, only=("B26",)) for name, e in examples.items()},
        figures=[st.Picture.of("Tokens and hyperplanes", _draw_planes, examples)],
    )


def _plane_flow(p: Params, matrix: str) -> cy.Trajectory:
    V, times = np.array(MATRICES[matrix]), np.linspace(0, p.plane_time, int(20 * p.plane_time) + 1)
    return cy.simulate(cy.dynamics.RescaledFlow(V=V), _box(p, len(V), 0), times=times, stepper=FINE)


def _plane_census(p: Params, matrix: str, case: tuple[float, int, str]) -> st.Cell:
    """The number of hyperplanes of each start, at every tolerance; whether all values are a, 0 or
    b."""
    side, n, kind = case
    V, q = np.array(MATRICES[matrix]), replace(p, side=side, n=n)
    # y = e^{-l1 t} x has the same f1*, and nothing in it grows
    flow = cy.dynamics.LeadingFlow(K=KINDS[kind] * np.eye(len(V)), V=V)
    # error control would follow every change of mind of tokens near the border of two sides
    how: dict[str, Any] = {"times": [0.0, p.plane_time], "stepper": cy.simulation.RK4(0.05)}
    runs = [cy.simulate(flow, _box(q, len(V), s), **how) for s in range(p.starts[1])]
    ends = [[cy.spectra.hyperplane_values(tr, tol=tol) for tr in runs] for tol in p.tols]
    counts = [[len(h.values) for h in group] for group in ends]
    right, size = all(h.holds for h in ends[0]), {"side": side, "n": n, "attention": kind}
    found = {"by_tol": counts, "counts": counts[0], "right": right}
    return st.Cell(matrix=matrix, **size, **found)


def _plane_controls(p: Params, every: list[st.Cell]) -> list[st.Comparison]:
    """n and tolerances varied; uniform attention and attention turned round as null models."""

    def of(kind: str, tol: int = 0) -> list[int]:
        return [k for c in every if c.attention == kind for k in c.by_tol[tol]]

    soft = of("softmax")
    two = {kind: (sum(k >= 2 for k in of(kind)), len(of(kind))) for kind in KINDS}
    alike = {tol: sum(k <= 3 for k in of("softmax", j)) for j, tol in enumerate(p.tols)}
    least = min(p.plane_sides)
    short = [k for c in every if c.attention == "softmax" and c.side == least for k in c.counts]
    null = max(st.wilson(*k)[1] for kind, k in two.items() if kind != "softmax")
    return [
        st.Comparison(
            "f1* takes at most three values",
            f"n = {', '.join(map(str, (p.n, *p.ns)))}; tolerances; tokens that do not attend keep "
            "all n; uniform attention, which meets the bound too",
            st.shares({f"tol {tol:g}": (k, len(soft)) for tol, k in alike.items()})
            + f"; uniform: {sum(k <= 3 for k in of('uniform'))} of {two['uniform'][1]}",
            min(alike.values()) == len(soft),
        ),
        st.Comparison(
            "attention can part the tokens onto two hyperplanes",
            "uniform attention and attention turned round",
            f"two or more: {st.shares(two)}",
            st.wilson(*two["softmax"])[0] > null,
        ),
        st.Comparison(
            "there are always two hyperplanes",
            f"starts of half a side {least:g}",
            f"two: {st.counted(short.count(2), len(short))}; one: {short.count(1)}",
            all(k == 2 for k in short),
        ),
    ]


def _planes_text(examples: dict[str, st.Cell], counts: list[st.Cell]) -> str:
    text = []
    for name, e in examples.items():
        sizes = zip(e.planes.values, np.bincount(e.planes.labels), strict=True)
        values = ", ".join(f"{v:.4f} ({c} tokens)" for v, c in sizes)
        text.append(f"{name}: l1 = {e.triple.leading.real:.4f}; f1* ends at {values}.")
    return (
        " ".join(text) + f"\n\nIn {sum(c.right for c in counts)} of {len(counts)} groups of "
        "random starts all values are of the form a < 0 < b or 0. One hyperplane alone means that "
        "softness brought all tokens to one side."
    )


def _draw_planes(examples: dict[str, st.Cell]) -> Any:
    """Rescaled tokens e^(-tV) x_i(t), in the colour of the hyperplane they end on, drawn at the
    later times; grey: where they started. Within a hyperplane they need not meet.
    """
    show = (0.0, 1.0, 2.0, 4.0, 8.0)

    def draw(ax: Any, name: str, z: np.ndarray, t: float) -> None:
        """{f1* = value}: a line across the frame in the plane, a patch under tokens in space."""
        e = examples[name]
        w = e.triple.dual
        basis = np.linalg.svd(w[None])[2][1:]  # spans the hyperplane f1* = 0
        for group, value in enumerate(e.planes.values if t >= max(show) / 2 else ()):
            foot = value * w / (w @ w)
            if len(w) == 2:
                ax.axline(foot, foot + basis[0], color=cy.plot.GREY, lw=1, ls="--", zorder=1.5)
            else:
                seen = (z[e.planes.labels == group] - foot) @ basis.T
                corners = list(product(*zip(seen.min(axis=0) - 2, seen.max(axis=0) + 2)))
                cy.plot.shade(ax, cy.hull(foot + np.array(corners) @ basis), cy.plot.GREY, 0.25)

    return cy.plot.paths({k: (e.run, e.planes.labels) for k, e in examples.items()}, show, draw)


# --- product: a multiple leading eigenvalue ------------------------------------------------------


def _product(p: Params, progress: st.Progress) -> st.Report:
    """The paper's run, a coupled one, and many starts of each coupling."""
    shown = {c: f"coupled, c = {c:g}" if c else "Q^T K = I" for c in (0.0, p.coupling)}
    flows = st.over_grid(_coupled_flow, p, {"coupling": tuple(shown)}, st.part(progress, 0, 0.1))
    runs = dict(zip(shown.values(), flows))
    ends = {name: _ends(tr.values[..., :2], _from_boundary) for name, tr in runs.items()}
    sweep = st.over_grid(_coupling_census, p, {"coupling": p.couplings}, st.part(progress, 0.1, 1))
    # z = e^{-tV} x = e^{t(I - V)} y
    growth = {k: np.exp(np.outer(tr.t, [0.0, 0.0, 1 - p.rest]))[:, None] for k, tr in runs.items()}
    rescaled = {
        name: (replace(tr, z=tr.values * growth[name]), ends[name].labels)
        for name, tr in runs.items()
    }
    columns = st.columns("coupling = case, runs = len limits, mean limits = mean limits")
    columns |= {"least eigenvalue of Q^T K": lambda cell: float(1 - np.sqrt(2) * cell.case)}
    columns |= st.columns(
        "no vertex = inner, inside = off, random tokens on the boundary = mean chance"
    )
    note = "Inside: largest distance of a limit from the boundary and 0, relative to the longest."
    return st.report_of(
        p,
        _product_text(ends, sweep),
        title="V with multiplicity: polytope x hyperplane",
        controls=_product_controls(sweep),
        tables=[st.Table.of("Coupling F with the rest", sweep, columns, note)],
        checks={name: cy.check(tr, only=("B27",)) for name, tr in runs.items()},
        figures=[st.Picture("Tokens", _TOKENS, cy.plot.paths(rescaled, LATE, equal=False))],
    )


_TOKENS = (
    "Rescaled tokens in the colour of the vertex of the polytope in F that they end at. Along the "
    "vertical, third direction V is smaller, and tokens spread (axes not to one scale)."
)


def _coupled(p: Params, c: float) -> cy.dynamics.LeadingFlow:
    """Q = K with Q^T K = I + c (e1 e3^T + e3 e1^T + e2 e3^T + e3 e2^T), definite: c < 1/2^.5.

    y = e^{-t} x: its components in F are those of the rescaled tokens, and none of it grows.
    """
    A = np.eye(3)
    A[:2, 2] = A[2, :2] = c
    Q = np.linalg.cholesky(A).T if c else None
    return cy.dynamics.LeadingFlow(Q=Q, K=Q, V=np.diag([1.0, 1.0, p.rest]))


def _coupled_flow(p: Params, c: float) -> cy.Trajectory:
    times = np.linspace(0, p.time, int(20 * p.time) + 1)
    return cy.simulate(_coupled(p, c), _box(p, 3, 0), times=times, stepper=FINE)


def _coupling_census(p: Params, c: float) -> st.Cell:
    stepper, times = cy.simulation.Adaptive(1e-8), [0.0, p.time]
    starts = [_box(p, 3, s) for s in range(p.starts[2])]
    runs = [cy.simulate(_coupled(p, c), z0, times=times, stepper=stepper) for z0 in starts]
    ends = [_ends(tr.values[..., :2], _from_boundary) for tr in runs]
    rng, flat = np.random.default_rng(p.seed), [z0[:, :2] for z0 in starts]
    chance = [
        _chance(rng, z, len(e.centres), _on_boundary(z)) for z, e in zip(flat, ends, strict=True)
    ]
    return _census(3, c, ends, chance)


def _on_boundary(z: np.ndarray) -> Callable[[np.ndarray], bool]:
    near = 1e-3 * float(np.linalg.norm(z, axis=1).max())
    return lambda some: _from_boundary(some, cy.hull(some)) <= near


def _product_controls(sweep: list[st.Cell]) -> list[st.Comparison]:
    runs = sum(len(cell.limits) for cell in sweep)
    on = sum(len(cell.limits) for cell in sweep if cell.off < 1e-3)
    expected = sum(sum(cell.chance) for cell in sweep)
    # a share that no draw had is taken as one draw in 40
    none = float(np.prod([max(share, 1 / 40) for cell in sweep for share in cell.chance]))
    return [
        st.Comparison(
            "The components in F end on the boundary of their hull, or at 0.",
            "as many random tokens of the same start, and the boundary of their hull",
            f"all components of {on} of {runs} runs do; random tokens would in {expected:.1f} of "
            f"{runs}, in all of them with a probability below {none:.1g}",
            survives=on == runs and none < 0.05,
        ),
        st.Comparison(
            "Coupling F with the rest makes no counterexample.",
            "the coupling itself",
            "; ".join(f"c = {cell.case:g}: {cell.off:.1g} inside" for cell in sweep),
            survives=max(cell.off for cell in sweep) < 1e-3,
        ),
    ]


def _product_text(ends: dict[str, st.Cell], sweep: list[st.Cell]) -> str:
    text = [
        f"{name}: the components in F have {len(e.centres)} limits, {len(e.body.index)} of them "
        f"vertices of their hull; none is further than {e.off:.1g} from its boundary and from 0."
        for name, e in ends.items()
    ]
    coupled = [cell for cell in sweep if cell.case > 0]
    runs, worst = sum(len(c.limits) for c in coupled), max(c.off for c in coupled)
    text.append(
        f"Where Q^T K couples F with the rest, which the proof does not cover, {runs} random runs "
        f"end at most {worst:.1g} inside."
    )
    return "\n\n".join(text)


# --- codimension: k growing directions -----------------------------------------------------------


class Bands(NamedTuple):
    """The growing coordinates of one run, by the limit that the tokens end at."""

    t: np.ndarray
    mean: np.ndarray  # (limit, coordinate, time)
    std: np.ndarray
    sizes: list[int]  # tokens of each limit

    @property
    def width(self) -> float:
        """The widest band at the end, over the largest mean."""
        return float(self.std[..., -1].max() / np.abs(self.mean[..., -1]).max())


def _codimension(p: Params, progress: st.Progress) -> st.Report:
    """The paper's matrix, then the random ones."""
    values, S = np.linalg.eigh(np.array(PAPER_V))  # symmetric, so S is orthogonal
    values, S = values[::-1], S[:, ::-1]
    times = np.linspace(0, 60, 601)
    w = st.kept(_in_eigenbasis, p, np.diag(values), S, 0, times, FINE)
    last = w.values[-1, :, :2]
    end = cy.clusters(last, p.tol * float(np.abs(last).max()))
    kinds = [(d, k, kind) for d, k in p.cells for kind in ("real", "complex pair")[: 1 + (k > 2)]]
    grid = {"half a side": (p.side, *p.line_sides), "random V (d, k, kind)": kinds}
    every = st.over_grid(_line_census, p, grid, st.part(progress, 0.1, 1))
    tried, bands = every[: len(kinds)], st.kept(_bands, p)
    # tolerances are relative to the longest token: judge before the growing component is huge
    early = replace(w, z=w.z[:201], t=w.t[:201])
    tokens = {"the paper's V": (replace(w, z=w.values @ S.T), end.labels)}
    columns: dict[str, Any] = st.columns(
        "half a side = side, d, k, leading block = kind, matrices = len limits, "
        "most = max limits, most before = max early"
    )
    columns |= {str(k): lambda c, k=k: c.limits.count(k) for k in (1, 2, 3)}
    columns |= {
        f"most, tol {tol:g}": lambda case, j=j: max(counts[j] for counts in case.others)
        for j, tol in enumerate(p.line_tols)
    }
    columns |= st.columns("spread, gap")
    note = (
        f"At t = {20 / p.least:g}; groups parted by gaps above {p.tol:g} of the largest component. "
        f"Most before: largest count at t = {12 / p.least:g}. Spread: widest group; gap: nearest "
        "two groups; both relative, the worst of the cell."
    )
    return st.report_of(
        p,
        _lines_text(p, values, end, tried, bands),
        title="Codimension k: a conjecture tried",
        controls=_line_controls(p, tried, every),
        tables=[st.Table.of("Limits of the leading k components", every, columns, note)],
        checks={"the paper's V, t <= 20": cy.check(early, only=("B26",))},
        figures=[
            st.Picture("Tokens", _LINES, cy.plot.paths(tokens, (0.0, 0.5, 1.0, 3.0, 6.0))),
            st.Picture.of("Many coordinates", _draw_bands, bands),
        ],
    )


_LINES = (
    "Rescaled tokens for the paper's V, in the colour of the line they end on; along the direction "
    "of the negative eigenvalue they spread without bound."
)


def _in_eigenbasis(
    p: Params, D: np.ndarray, S: np.ndarray, seed: int, times: np.ndarray, stepper: Any
) -> cy.Trajectory:
    """z = S w for V = S D S^-1, Q = K = I: then w is the same flow with V = D, Q = K = S."""
    w0 = np.linalg.solve(S, _box(p, len(D), seed).T).T
    return cy.simulate(cy.dynamics.RescaledFlow(Q=S, K=S, V=D), w0, times=times, stepper=stepper)


def _bands(p: Params) -> Bands:
    d, k = p.high
    rng = np.random.default_rng([p.seed, d, k])
    D, _ = _random_modes(rng, d, k, "real", p.least)
    S = np.linalg.qr(rng.standard_normal((d, d)))[0]
    times = np.linspace(0, 20 / p.least, 101)
    many, stepper = replace(p, n=d), cy.simulation.RK4(0.1)
    w = _in_eigenbasis(many, D, S, 0, times, stepper).values[..., :k]
    end = cy.clusters(w[-1], p.tol * float(np.abs(w[-1]).max()))
    groups = [w[:, end.labels == g] for g in range(end.count)]
    mean, std = (np.stack([of(group, axis=1).T for group in groups]) for of in (np.mean, np.std))
    return Bands(times, mean, std, end.sizes.tolist())


def _random_modes(
    rng: np.random.Generator, d: int, k: int, kind: str, least: float
) -> tuple[np.ndarray, np.ndarray]:
    """D with l1 = 1 and k - 1 more eigenvalues in [least, 1) by real part, S a random basis."""
    positive = np.sort(rng.uniform(least, 0.95, k - 1))[::-1]
    D = np.diag(np.concatenate([[1.0], positive, rng.uniform(-0.5, 0, d - k)]))
    if kind == "complex pair":  # the last two of the leading block turn while they shrink
        turn = rng.uniform(0.2, 1)
        D[k - 1, k - 1] = D[k - 2, k - 2]
        D[k - 2, k - 1], D[k - 1, k - 2] = -turn, turn
    S = np.linalg.qr(rng.standard_normal((d, d)))[0] + 0.3 * rng.standard_normal((d, d))
    return D, S


def _line_census(p: Params, side: float, case: tuple[int, int, str]) -> st.Cell:
    """Random V of one kind: how many limits the leading k components have, at 3/5 of the time, at
    the end and at the other tolerances; the widest group and the smallest distance of two (None
    where all have one), relative to the largest component."""
    from scipy.spatial.distance import pdist

    d, k, kind = case
    rng = np.random.default_rng([p.seed, d, k, len(kind)])
    times = np.array([0.0, 12 / p.least, 20 / p.least])
    # fixed steps: error control would follow every change of mind of tokens equal up to rounding
    stepper = cy.simulation.RK4(0.1)
    early, limits, others, spreads, gaps = [], [], [], [], []
    p = replace(p, side=side)
    for m in range(p.matrices):
        D, S = _random_modes(rng, d, k, kind, p.least)
        before, w = _in_eigenbasis(p, D, S, m, times, stepper).values[1:, :, :k]
        size = float(np.abs(w).max())
        end = cy.clusters(w, p.tol * size)
        early.append(cy.clusters(before, p.tol * float(np.abs(before).max())).count)
        limits.append(end.count)
        others.append(tuple(cy.clusters(w, tol * size).count for tol in p.line_tols))
        spreads.append(float(np.abs(w - end.centres[end.labels]).max() / size))
        gaps += (pdist(end.centres) / size).tolist()
    spread, gap = max(spreads), min(gaps, default=None)
    found = {"early": early, "limits": limits, "others": others, "spread": spread, "gap": gap}
    return st.Cell(d=d, k=k, kind=kind, side=side, **found)


def _lines_text(
    p: Params, values: np.ndarray, end: cy.analysis.Clusters, tried: list[st.Cell], bands: Bands
) -> str:
    limits, early = ([k for case in tried for k in getattr(case, x)] for x in ("limits", "early"))
    over, changed = sum(count > 3 for count in limits), sum(a != b for a, b in zip(early, limits))
    return (
        f"The paper's V has the eigenvalues {', '.join(f'{v:.3f}' for v in values)}; at t = 60 the "
        f"tokens are on {end.count} parallel lines.\n\nRandom V at t = {20 / p.least:g}: {over} of "
        f"{len(limits)} have more than three limits. In {changed} of them the count at t = "
        f"{12 / p.least:g} was another, up to {max(early)}: a count at a finite time is evidence, "
        f"no proof.\n\nd = {p.high[0]} with {p.high[1]} growing coordinates, {p.high[0]} tokens: "
        f"{len(bands.sizes)} limits at t = {bands.t[-1]:g}; the widest band of a coordinate "
        f"is {bands.width:.1g} of its largest mean."
    )


def _line_controls(p: Params, tried: list[st.Cell], every: list[st.Cell]) -> list[st.Comparison]:
    """Tolerances, the size of the start, and how much room the conjecture leaves."""
    limits = [count for case in every for count in case.limits]
    others = [counts for case in every for counts in case.others]
    few = {p.tol: limits} | {tol: [c[j] for c in others] for j, tol in enumerate(p.line_tols)}
    over = {f"{tol:g}": (sum(c > 3 for c in of), len(of)) for tol, of in few.items()}
    three = sum(count == 3 for case in tried for count in case.limits)
    sides = ", ".join(f"{x:g}" for x in (p.side, *p.line_sides))
    return [
        st.Comparison(
            "the leading k components have at most three limits",
            f"tolerances, starts of half a side {sides}; tokens that do not attend keep {p.n} "
            "places",
            f"more than three at tolerance {st.shares(over)}",
            all(count <= 3 for count in limits),
        ),
        st.Comparison(
            "the bound of three is reached",
            f"random V and starts, half a side {p.side:g}",
            f"exactly three limits: {st.counted(three, sum(len(case.limits) for case in tried))}",
            three > 0,
        ),
    ]


def _draw_bands(bands: Bands) -> Any:
    """One random symmetric V with many growing coordinates: mean and one standard deviation of each
    growing coordinate f_j*(z_i), over the tokens of each limit. Where a band closes they agree.
    """
    count = min(len(bands.sizes), 3)
    figure, (axes,) = cy.plot.sheet(1, count, 9 / count, 3.6)
    for ax, size, means, stds in zip(axes, bands.sizes, bands.mean, bands.std):
        for k, (mean, std) in enumerate(zip(means, stds)):
            colour = cy.plot.PALETTE[k % len(cy.plot.PALETTE)]
            ax.plot(bands.t, mean, color=colour, lw=0.6)
            ax.fill_between(bands.t, mean - std, mean + std, color=colour, alpha=0.15, lw=0)
        ax.set(xlabel="time t", ylabel="$f_j^*(z_i)$", title=f"{size} tokens of one limit")
    return figure
