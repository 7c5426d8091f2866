"""B5 to B11: who leads, who follows whom, and for how long."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..analysis.polytope import CONTAINS_TOL, Polytope
from . import layers
from .checks import Part, exactly, least, need, none, some, statement
from .layers import SPD, THEOREM_1_1, LayerRun, nonzero, positive, proved, several, symmetric

_statement = partial(statement, LayerRun)


@_statement(
    "B5",
    "arXiv 2407.01602, Theorem 1.1 and Definition 1.1",
    "a longest token leads at layer 0; leaders never move and always lead; they are K's vertices",
    THEOREM_1_1,
)
def leaders_are_vertices(run: LayerRun) -> list[Part]:
    """Trap: a leader is recognised by its birth, not by C_i = {i} on late, rounded layers."""
    li, born, K = run.limit, run.born, run.layers
    longest = run.squares[0] >= run.squares[0].max() - 2 * run.score_error()
    leads = (born >= 0) & (born <= np.arange(K + 1)[:, None])
    recorded = np.stack([f.leads for f in run.sets])
    moved = leads[:-1] & (run.z[1:] != run.z[:-1]).any(axis=2)
    proved = np.where(li.born <= K, li.born, -1)
    return [
        exactly("a longest token leads at layer 0", not (longest & (born == 0)).any()),
        exactly("leaders never move", moved, "layer", "token"),
        exactly("L_k grows with k as born says", recorded != leads, "layer", "token"),
        exactly("born as in limit()", born != proved, "token"),
        *_vertices(run),
    ]


def _vertices(run: LayerRun) -> list[Part]:
    """Leaders expose themselves, when born and among the leaders; all limits lie in their hull."""
    index, born, g = run.limit.polytope.index, run.born, 2 * run.score_error()
    looked = run.sample(firsts(run, np.flatnonzero(born >= 0)), run.n * run.d)
    birth = []
    for k in np.unique(born[looked]).tolist():
        now = looked[born[looked] == k]
        birth.append(least("C_i = {i} at birth", run.gaps(k, now), g, "token", token=now))
    v = np.where((born[index] >= 0)[:, None], run.z[-1, index], run.limit.polytope.vertices)
    some = run.sample(np.arange(len(v)), len(v) * run.d)
    score = v[some] @ run.A.T @ v.T
    own = (np.arange(len(some)), some)
    square = score[own]
    score[own] = -np.inf
    exposed = square - (score.max(axis=1) if len(v) > 1 else 0.0)
    outside = run.outside(Polytope.from_vertices(v))
    return [
        *birth,
        least("leaders exposed", exposed, g, "leader", leader=index[some]),
        least("limits in conv(L)", -outside, run.end_error + CONTAINS_TOL, "limit"),
    ]


def firsts(run: LayerRun, tokens: np.ndarray) -> np.ndarray:
    """One token of each value class among `tokens`."""
    return tokens[np.unique(run.label[tokens], return_index=True)[1]]


@_statement(
    "B6",
    "arXiv 2407.01602, no collision; rate: docs/mathematics.md B6",
    "no collision; A symmetric: |z_i' - z_j'|_A² >= rho² |z_i - z_j|_A² + eta² |m_i - m_j|_A²",
    (positive, several),
)
def no_collision(run: LayerRun) -> list[Part]:
    return distances(run)


def _pairs(run: LayerRun) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of tokens, or a seeded sample of them and nearest neighbours at layer 0."""
    pair_cost = 8.0 * run.d * run.layers
    if run.n * (run.n - 1) / 2 * pair_cost <= layers.WORK:
        return np.triu_indices(run.n, 1)
    many = max(64, int(layers.WORK / pair_cost / 4))
    i, j = np.random.default_rng(0).integers(run.n, size=(2, many))
    if run.d <= 16:  # neighbours at layer 0 are the pairs most at risk; trees are slow beyond
        from scipy.spatial import cKDTree

        some = run.sample(np.arange(run.n), 4 * pair_cost)
        near = cKDTree(run.z[0]).query(run.z[0, some], k=2)[1][:, 1]
        i, j = np.append(i, some), np.append(j, near)
    return i[i != j], j[i != j]


def distances(run: LayerRun) -> list[Part]:
    """The rate for symmetric A; for any A with positive definite symmetric part, x = z_i - z_j:

    |x'| >= <Ax, x'>/|Ax| >= rho <Ax, x>/|Ax|   since <Ax, m_i - m_j> >= 0.
    """
    i, j = _pairs(run)
    same = run.label[i] == run.label[j]
    apart = (run.z[:, i[same]] != run.z[:, j[same]]).any(axis=2)
    i, j = i[~same], j[~same]
    worst = [exactly("equal tokens stay equal", apart, "layer", "pair")]
    even, error = symmetric(run).holds, run.error
    if even:
        tol = 4 * error * float(np.sqrt(run.size_A))
    else:
        tol = 2 * error * (1 + run.rho * (1 + 2 * float(np.linalg.cond(run.A))))
    for k in range(run.layers):
        x, after = run.z[k, i] - run.z[k, j], run.z[k + 1, i] - run.z[k + 1, j]
        if even:
            m = run.sets[k].pull(run.z[k])
            apart = m[i] - m[j]
            bound = np.hypot(run.rho * run.norm(x), run.eta * run.norm(apart))
            room = run.rho * run.norm_error(x) + run.eta * run.norm_error(apart)
            slack = run.norm(after) - bound + run.norm_error(after) + room
        else:
            Ax = x @ run.A.T
            bound = run.rho * (Ax * x).sum(axis=1) / np.linalg.norm(Ax, axis=1).clip(1e-300)
            slack = np.linalg.norm(after, axis=1) - bound
        pair = np.stack([i, j], axis=1)
        worst.append(least("pair distance", slack, tol, "pair", pair=pair, layer=k, pairs=len(i)))
    return worst


_has_edge = need(
    "some token follows another (number, all layers)",
    lambda run: sum((i != j).sum() for i, j in map(run.edges, range(run.layers + 1))),
    some,
)


@_statement(
    "B7",
    "docs/mathematics.md B7",
    "j in C_i, j != i implies |z_j|_A > |z_i|_A: no cycles, and the spectrum of P is {P_ii}",
    (*SPD, _has_edge),
)
def followers_are_shorter(run: LayerRun) -> list[Part]:
    """Edges go up in norm at every layer: P is triangular in some order, whence its spectrum."""
    parts, seen = [], None
    for k, f in enumerate(run.sets):
        i, j = run.edges(k)
        i, j = i[i != j], j[i != j]
        gain, g = run.squares[k, j] - run.squares[k, i], 2 * run.score_error()
        parts.append(least("|z_j|_A > |z_i|_A", gain, g, "token", token=i, layer=k))
        if f is not seen:
            each = np.arange(len(f.count))
            seen, i, j = f, np.repeat(each, np.diff(f.indptr)), f.indices
            onward = i != j
            while not onward.all():  # who follows nobody else is in no cycle
                i, j = i[onward], j[onward]
                onward = np.isin(j, i)
            parts.append(exactly("no cycle", np.isin(each, i), "class", layer=k))
    return parts


def _led(run: LayerRun) -> tuple[np.ndarray, np.ndarray]:
    """For each follower the first layer with C_i = {l}, C_l = {l}, and l; -1 for other tokens."""
    since, leader = np.full(run.n, -1), np.full(run.n, -1)
    for k, f in enumerate(run.sets):
        target = run.single(k)
        new = (since < 0) & (target >= 0) & f.leads[target] & ~f.leads
        since[new], leader[new] = k, target[new]
    return since, leader


_has_follower = need(
    "some token follows one leader only (number)",
    lambda run: ((since := _led(run)[0]) >= 0) @ (since < run.layers).astype(int),
    some,
)


@_statement(
    "B8",
    "docs/mathematics.md B8",
    "C_i = {l} and C_l = {l} at layer k: then always, and z_i^{k+s} = z_l + rho^s (z_i^k - z_l)",
    (_has_follower,),
)
def freezing(run: LayerRun) -> list[Part]:
    since, leader = _led(run)
    tokens = np.flatnonzero(since >= 0)
    start, goal = run.z[since[tokens], tokens], run.z[since[tokens], leader[tokens]]
    off, lost, beaten = [], [], []
    looked = np.flatnonzero(since[run.rows] >= 0)
    rows = run.rows[looked]
    for k in range(run.layers + 1):
        age = k - since[tokens]
        expected = goal + (run.rho ** np.maximum(age, 0))[:, None] * (start - goal)
        late = age >= 0
        off.append(np.where(late, -np.linalg.norm(run.z[k, tokens] - expected, axis=1), 0.0))
        lost.append(late & (run.single(k)[tokens] != leader[tokens]))
        score = run.form(run.z[k, rows], run.z[k, leader[rows]])
        beaten.append(np.where(k >= since[rows], score - run.tops[k, looked], 0.0))
    return [
        least("closed form", off, 4 * run.error, "layer", "token", token=tokens),
        exactly("C_i stays {l}", lost, "layer", "token", token=tokens),
        least("l stays a maximiser", beaten, 2 * run.score_error(), "layer", "token", token=rows),
    ]


@_statement(
    "B9",
    "docs/mathematics.md B9",
    "v leads, |z_i - v|_A < c_v = min over z_j != v of <Av, v - z_j>/|v - z_j|_A: then C_i = {v}",
    (*SPD, several),
)
def capture(run: LayerRun) -> list[Part]:
    """Read the other way: a token that does not follow v alone stays outside the ball.

    c_v is non-decreasing in k, so the largest bound so far counts: late layers cannot spoil it.
    """
    cost = 4 * run.n * run.d * (run.layers + 1)
    leaders = run.sample(firsts(run, np.flatnonzero(run.born >= 0)), cost)
    g, e = 2 * run.score_error(), 2 * run.error * np.sqrt(run.size_A)
    radius = np.full(len(leaders), -np.inf)
    slack = np.full((run.layers + 1, len(leaders)), np.inf)
    for k, z in enumerate(run.z):
        single = run.single(k)
        for at, v in enumerate(leaders.tolist()):
            if not 0 <= run.born[v] <= k:
                continue
            away, other = z[v] - z, run.label != run.label[v]
            distance = run.norm(away)
            toward = (away @ (run.A @ z[v]) - g) / (distance + e)
            radius[at] = max(radius[at], toward[other].min())
            outside = distance[other & (single != v)]
            slack[k, at] = outside.min(initial=np.inf) - radius[at]
    # tokens that all follow v are in no danger of violating anything: the radius is the slack
    free = np.isinf(slack) & (radius > 0)
    slack = np.where(free, np.broadcast_to(radius, slack.shape), slack)
    return [least("outside the ball", slack, float(e), "layer", "leader", leader=leaders)]


_no_tie = need(
    "no score tie between distinct tokens (number)",
    lambda run: sum((np.diff(f.indptr) > 1).sum() for f in {id(f): f for f in run.sets}.values()),
    none,
)
_long_enough = need(
    "all tokens settled before the last layer (left over)", lambda run: (~run.straight).sum(), none
)


@_statement(
    "B10",
    "docs/mathematics.md B10",
    "A definite, no ties: every limit is a leader, and the sets are constant after some layer",
    (*SPD, nonzero, _no_tie, _long_enough),
)
def generic(run: LayerRun) -> list[Part]:
    """Without definiteness this half is false: tokens -1, 3 with A = -1, alpha = 1 meet at 1."""
    leaders = np.flatnonzero(run.born >= 0)
    if len(leaders) == 0:
        return [exactly("some token leads", True)]
    distance = layers.nearest(run.ends[run.rows], run.z[-1, leaders])
    where: Any = {"token": run.rows, "frozen_from_layer": int(run.history.records[-1].layer)}
    return [least("limit is a leader", -distance, 2 * run.end_error, "token", **where)]


def _tied_limits(run: LayerRun) -> np.ndarray:
    """Tokens whose limit is no leader and which settled within the run."""
    return run.leaderless[run.limit.settled_at[run.leaderless] <= run.layers]


_has_tied_limit = need(
    "some limit is not a leader (number of tokens)",
    lambda run: len(_tied_limits(run)) if proved(run).holds else 0,
    some,
)


@_statement(
    "B11",
    "docs/mathematics.md B11; arXiv 2407.01602, Figure 2",
    "a limit that is no leader needs ties that persist at every later layer",
    (*THEOREM_1_1, _has_tied_limit),
)
def ties_persist(run: LayerRun) -> list[Part]:
    """From its settling layer on such a token is tied, or follows one that is; its scores tie."""
    li, tokens = run.limit, _tied_limits(run)
    first, g = int(li.settled_at[tokens].min()), 4 * run.score_error()
    layers = np.arange(first, run.layers + 1)
    spread, loose = [], []
    for k in layers.tolist():
        now = li.settled_at[tokens] <= k
        loose.append(now & (run.single(k)[_chain_end(run, k, tokens)] >= 0))
        i, j = run.edges(k)
        tied = np.isin(i, firsts(run, tokens[now])) & (run.single(k)[i] < 0)
        i, j = i[tied], j[tied]
        mean = run.sets[k].pull(run.z[k])[i]
        off = np.abs(run.form(run.z[k, i], run.z[k, j] - mean))
        spread.append(least("tied scores agree", -off, g, "token", token=i, layer=k))
    points, e = li.points[tokens], run.end_error
    gap = [_gap(li.polytope.vertices, s, 4 * run.n * e) for s in points]
    end = np.where(run.straight[tokens, None], run.ends[tokens], points)
    off = np.linalg.norm(end - points, axis=1)
    return [
        *spread,
        exactly("chains end at ties", loose, "layer", "token", layer=layers, token=tokens),
        least("distance from every leader", gap, -e, "token", token=tokens),
        least("limit read off the layers", -off, 2 * e, "token", token=tokens),
    ]


def _gap(leaders: np.ndarray, s: np.ndarray, near: float) -> float:
    """How far s is from the nearest leader; inf where a mean of leaders may round to that one."""
    away = np.linalg.norm(leaders - s, axis=1)
    apart = np.linalg.norm(leaders - leaders[away.argmin()], axis=1)
    return float("inf") if (apart <= near).sum() > 1 else float(away.min())


def _chain_end(run: LayerRun, k: int, tokens: np.ndarray) -> np.ndarray:
    """Where following one token after another ends: at a tie or at a leader (no cycles: B7)."""
    target, reached = run.single(k), tokens
    for _ in range(run.n):
        onward = np.where(target[reached] >= 0, target[reached], reached)
        if (onward == reached).all():
            break
        reached = onward
    return reached
