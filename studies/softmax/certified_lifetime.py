"""Certified lifetime: how long softmax clusters last, as proved and as seen.

    z_i <- (z_i + alpha (P z)_i)/(1 + alpha),   P = softmax of beta <A z_i, z_j>

`cy.shadow` proves a number of layers for which clusters last (docs/mathematics.md B42). Here the
run itself goes on from the same state until they are lost: until a token has moved by `lost` times
the distance from its place to the nearest other cluster. See: the certificate is close to what is
seen, whatever beta, n, d, alpha, A, in the plane and on the sphere. The bound with one radius for
the whole time, from which the proof began, is far shorter. Exponents of arXiv 2410.06833 (the
sphere) and B21 are asymptotic; these numbers hold for one run.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

import cynosure as cy
from cynosure import study as st

TITLE = "Certified lifetime: how long softmax clusters last, proved and seen"
_BASE = ("base", "")


@dataclass(frozen=True)
class Params:
    """n Gaussian tokens in R^d, `starts` of them at each beta; each of `varied` (name, value)
    changes one thing. Runs are followed for `layers` token by token, then seen for `most` layers.
    `lost`: when a cluster counts as lost. A: a rotation by so many degrees. On the sphere tokens
    gather for `gather` first, and the proof begins with that state."""

    n: int = 24
    d: int = 2
    alpha: float = 0.5
    beta: tuple[float, ...] = (4.0, 6.0, 8.0, 12.0)
    starts: int = 3
    varied: tuple[tuple[str, Any], ...] = (
        ("n", 48),
        ("d", 3),
        ("alpha", 2.0),
        ("A", 20.0),
        ("sphere", True),
        ("lost", 0.25),
        ("lost", 0.1),
    )
    A: float = 0.0
    sphere: bool = False
    lost: float = 0.5
    layers: int = 150
    most: int = 200_000
    gather: float = 12.0
    seed: int = 0


QUICK = Params(n=12, beta=(4.0, 6.0), starts=2, varied=(("lost", 0.25),), layers=60, most=20_000)


class Life(NamedTuple):
    """One run; times are layers, or the time of the flow. `seen` is None where it outlived it."""

    case: str
    beta: float
    clusters: int
    gap: float
    proved: float
    seen: float | None
    ratio: float | None
    ball: float


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Every start at every beta, then each variation."""
    sensible = p.n >= 3 and p.d >= 2 and min(p.beta) > 0 and p.starts > 0 and 0 < p.lost <= 1
    st.require(sensible, "n >= 3, d >= 2, beta > 0, starts > 0, 0 < lost <= 1", p)
    grid = {"case": (_BASE, *p.varied), "beta": p.beta, "start": tuple(range(p.starts))}
    cells = [c for c in st.over_grid(_life, p, grid, st.part(progress, 0, 1)) if c]
    seen = [c for c in cells if c.ratio is not None]
    broken = [c for c in seen if c.ratio is not None and c.ratio < 1]
    claim = "no clusters are lost before the certificate ends (runs that lost them)"
    check = st.at_most("certificates", "docs/mathematics.md B42", claim, len(broken), 0)
    columns = st.columns(
        "case, beta, clusters, smallest gap = gap, proved, seen, seen / proved = ratio, "
        "one radius = ball"
    )
    note = (
        f"Layers (time on the sphere). – : not lost within {p.most:g}. One radius: the old bound."
    )
    return st.report_of(
        p,
        _summary(cells, seen),
        controls=_controls(p, seen),
        tables=[st.Table.of("Lifetimes", cells, columns, note)],
        checks={"all runs": [check]},
        figures=[st.Picture.of("Proved and seen", _draw, p, seen)],
    )


def _matrix(p: Params) -> np.ndarray:
    A, turn = np.eye(p.d), np.deg2rad(p.A)
    A[:2, :2] = [[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]
    return A


def _life(p: Params, case: tuple[str, Any], beta: float, start: int) -> Life | None:
    """The last plateau of several clusters; None where there is none."""
    name, value = case
    if name != _BASE[0]:
        p = replace(p, varied=(), **{name: value})
    rule = cy.Softmax(beta, _matrix(p))
    z = cy.configurations.gaussian(p.n, p.d, seed=p.seed + start)
    model: Any = cy.PureAttention(rule, p.alpha)
    if p.sphere:
        model = cy.dynamics.SphereFlow(rule)
        z /= np.linalg.norm(z, axis=1, keepdims=True)
        z = cy.simulate(model, z, time=p.gather).values[-1]
    found = [q for q in cy.shadow(model, z, layers=p.layers).plateaus if len(q.clusters) > 1]
    if not found:
        return None
    last = found[-1]
    proved = last.lasts - (last.checked - last.since)
    counts = np.array([len(c) for c in last.clusters], dtype=float)
    seen = None if proved > p.most else _seen(p, rule, last.centres, counts)
    where = "" if name == _BASE[0] else f"{name} = {value:g}"
    ratio = None if seen is None else seen / max(proved, 1e-300)
    ball = _one_radius(p, rule, last.centres, counts)
    return Life(where or "base", beta, len(counts), last.gap, proved, seen, ratio, ball)


def _means(rule: cy.Softmax, z: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Softmax means of one token a cluster that stands for all: equal tokens move alike."""
    scores = rule.beta * (z @ np.asarray(rule.A).T @ z.T)
    P = counts * np.exp(scores - scores.max(axis=1, keepdims=True))
    return (P @ z) / P.sum(axis=1, keepdims=True)


def _seen(p: Params, rule: cy.Softmax, z: np.ndarray, counts: np.ndarray) -> float | None:
    """When a cluster has left its place, in the run itself."""
    apart = np.linalg.norm(z[None] - z[:, None], axis=2) + np.diag(np.full(len(z), np.inf))
    far, first = p.lost * apart.min(axis=1), z
    if p.sphere:
        return _seen_in_time(p, rule, z, counts, far)
    eta = p.alpha / (1 + p.alpha)
    for k in range(1, p.most + 1):
        z = z + eta * (_means(rule, z, counts) - z)
        if (np.linalg.norm(z - first, axis=1) > far).any():
            return float(k)
    return None


def _seen_in_time(
    p: Params, rule: cy.Softmax, z: np.ndarray, counts: np.ndarray, far: np.ndarray
) -> float | None:
    from scipy.integrate import solve_ivp

    def velocity(t: float, y: np.ndarray) -> np.ndarray:
        x = y.reshape(z.shape)
        m = _means(rule, x, counts)
        return (m - (m * x).sum(axis=1, keepdims=True) * x).ravel()

    def left(t: float, y: np.ndarray) -> float:
        return float((np.linalg.norm(y.reshape(z.shape) - z, axis=1) - far).max())

    left.terminal = True  # type: ignore[attr-defined]
    how: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-11, "events": left, "method": "LSODA"}
    found = solve_ivp(velocity, (0.0, float(p.most)), z.ravel(), **how)
    return float(found.t_events[0][0]) if len(found.t_events[0]) else None


def _one_radius(p: Params, rule: cy.Softmax, z: np.ndarray, counts: np.ndarray) -> float:
    """max over delta of delta / (eta D p(delta)): one radius and one speed for the whole time."""
    A = np.asarray(rule.A)
    scores, R = z @ A.T @ z.T, float(np.linalg.norm(z, axis=1).max())
    gaps = np.diag(scores)[:, None] - scores
    D = float(np.linalg.norm(z[None] - z[:, None], axis=2).max())
    eta, size = 1.0 if p.sphere else p.alpha / (1 + p.alpha), float(np.linalg.norm(A, 2))
    best = 0.0
    for delta in np.geomspace(1e-6, 1, 200) * R:
        lost = gaps - 2 * size * (2 * R * delta + delta**2)
        share = counts[None] / counts[:, None] * np.exp(np.minimum(-rule.beta * lost, 700.0))
        np.fill_diagonal(share, 0.0)
        best = max(best, delta / (eta * (D + 2 * delta) * float(share.sum(axis=1).max())))
    return best


def _spread(cells: list[Life]) -> str:
    ratios = [c.ratio for c in cells if c.ratio is not None]
    if not ratios:
        return "none was lost"
    return f"median {np.median(ratios):.2f}, up to {max(ratios):.3g} (n = {len(ratios)})"


def _summary(cells: list[Life], seen: list[Life]) -> str:
    near = sum(c.ratio <= 5 for c in seen if c.ratio is not None)
    old = [c.seen / c.ball for c in seen if c.seen is not None and c.ball > 0]
    longest = max((c.proved for c in cells), default=0.0)
    return (
        f"{len(cells)} runs have clusters that are proved to last, for up to {longest:.2g} layers. "
        f"{len(seen)} of them were seen to their end. Seen over proved: {_spread(seen)}; within a "
        f"factor of 5 in {near} of {len(seen)}. "
        + (f"One radius for the whole time: a factor of {np.median(old):.3g}." if old else "")
    )


def _controls(p: Params, seen: list[Life]) -> list[st.Comparison]:
    """The same factor with one thing changed, for each change."""
    out = []
    for case in dict.fromkeys(c.case for c in seen):
        cells = [c for c in seen if c.case == case]
        near = all(c.ratio is not None and 1 <= c.ratio <= 5 for c in cells)
        claim = "clusters last 1 to 5 times as long as proved"
        out.append(st.Comparison(claim, case, _spread(cells), near))
    return out


def _draw(p: Params, seen: list[Life]) -> Any:
    """Each dot is one run whose clusters were lost: proved lifetime against the one seen. On the
    line both are equal; above the dotted line the factor is more than 5.
    """
    figure, ((axes,),) = cy.plot.sheet(1, 1, 7, 4.4)
    for colour, case in zip(cy.plot.PALETTE, dict.fromkeys(c.case for c in seen)):
        cells = [c for c in seen if c.case == case]
        where = [c.proved for c in cells], [c.seen for c in cells]
        axes.loglog(*where, "o", ms=5, color=colour, label=case)
    ends = np.array([min((c.proved for c in seen), default=1.0), float(p.most)])
    axes.loglog(ends, ends, color=cy.plot.INK, lw=1)
    axes.loglog(ends, 5 * ends, color=cy.plot.INK, lw=1, ls=":")
    axes.set(xlabel="proved (layers; time on the sphere)", ylabel="seen")
    axes.legend(frameon=False, fontsize=8)
    return figure
