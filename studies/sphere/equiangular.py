"""Equal angles stay equal: n tokens on the sphere reduced to one number, arXiv 2312.10794.

If all pairs of tokens start with the same cosine r(0), they keep a common cosine r(t), and

    r' = 2 e^(beta r) (1 - r) ((n-1) r + 1) / (e^beta + (n-1) e^(beta r))     (SA)
    r' = (2/n) e^(beta r) (1 - r) ((n-1) r + 1)                               (USA)

(docs/mathematics.md B31). See the full dynamics of n tokens in R^n, every pair of them, against
this equation of one variable; the long wait at small r that large beta brings, and the rate 2 (SA)
or 2 e^beta (USA) at the end. For n = 2 and beta = 0 the solution is tanh t.

Trap: the symmetry is not stable. A pair that is a little closer attracts more, and at large beta
small differences of the start grow by large factors before all tokens meet: the last table.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.theorems.sphere import equiangular

TITLE = "Equiangular tokens: n tokens, one equation"
MODELS = ("SA", "USA")


@dataclass(frozen=True)
class Params:
    """n tokens of common cosine r0 at inverse temperature beta, until 1 - r falls to `reach`; the
    controls start from the other cosines `r` and with angles off by about `noise`."""

    n: tuple[int, ...] = (2, 8, 32, 64)
    beta: tuple[float, ...] = (0.0, 1.0, 4.0, 9.0)
    r0: float = 0.0
    reach: float = 1e-4
    r: tuple[float, ...] = (-0.01, 0.3, 0.8)
    noise: tuple[float, ...] = (1e-4, 1e-2)
    starts: int = 10
    seed: int = 0


QUICK = Params(n=(2, 8), beta=(0.0, 4.0), r=(0.3,), noise=(1e-2,), starts=2)


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Both models over the grid of n and beta."""
    over = st.measuring(p, progress)
    sensible = min(p.n) >= 2 and -1 / (max(p.n) - 1) < p.r0 < 1 and 0 < p.reach < 1 - p.r0
    st.require(sensible, "n >= 2, -1/(n-1) < r0 < 1, 0 < reach < 1 - r0", p)
    axes = {"model": MODELS, "n": p.n, "beta": p.beta}
    curves = over(_curve, axes, 0.9)
    columns = st.columns("model, n, beta") | {"arrival": lambda c: float(c.t[-1])}
    columns |= st.columns("largest error = error, rate at the end = rate")
    columns |= {"theory": lambda c: 2.0 if c.model == "SA" else float(2 * np.exp(c.beta))}
    note = "Error over all pairs and times; the rate is that of 1 - r between the last two times."
    near = {"n": p.n[1:2] or p.n, "beta": p.beta}
    other = over(_other_r, {"r": p.r, **near}, 0.95)
    noisy = over(_noisy, {"noise": p.noise, **near})
    grown = st.columns("noise, n, beta, median error = median errors, most = max errors")
    grown |= {"error / noise": lambda c: float(np.median(c.errors)) / c.noise}
    said = (
        f"SA, {p.starts} starts whose angles are off by about `noise`; error over pairs and times."
    )
    tables = [
        st.Table.of("Full dynamics against the equation", curves, columns, note),
        st.Table.of("Angles that are only nearly equal", noisy, grown, said),
    ]
    checks = {c.name: [c.check] for c in curves}
    figures = [st.Picture.of("Cosine over time", _draw, p, curves)]
    controls = _comparisons(p, curves, other, noisy)
    text = _summary(curves)
    return st.report_of(p, text, controls=controls, tables=tables, checks=checks, figures=figures)


def _other_r(p: Params, r: float, n: int, beta: float) -> float:
    """The largest error from another common cosine."""
    return _curve(replace(p, r0=max(r, -0.9 / (n - 1))), "SA", n, beta).error


def _noisy(p: Params, noise: float, n: int, beta: float) -> st.Cell:
    """Starts whose angles are off by about `noise`: the errors of the cosines, over all pairs and
    times, for every start."""
    times = np.linspace(0, _arrival(p, n, beta, False), 101)
    r, (i, j) = equiangular(p.r0, times, n, beta, False), np.triu_indices(n, 1)
    errors = []
    for s in range(p.starts):
        x = _start(n, p.r0) + noise * np.random.default_rng([p.seed, s]).standard_normal((n, n))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        flow, stepper = cy.SphereFlow(cy.Softmax(beta)), cy.simulation.Adaptive(1e-9, 1e-11)
        values = cy.simulate(flow, x, times=times, stepper=stepper).values
        cosines = (values @ values.swapaxes(1, 2))[:, i, j]
        errors.append(float(np.abs(cosines - r[:, None]).max()))
    return st.Cell(noise=noise, n=n, beta=beta, errors=errors)


def _comparisons(
    p: Params, curves: list[st.Cell], other: list[float], noisy: list[st.Cell]
) -> list[st.Comparison]:
    """Other cosines at the start; angles that are only nearly equal."""
    worst = max(max(c.error for c in curves), *other)
    laws = [2.0 if c.model == "SA" else float(2 * np.exp(c.beta)) for c in curves]
    off = [abs(c.rate / law - 1) for c, law in zip(curves, laws)]
    smallest, largest = (
        [c for c in noisy if c.beta == beta] for beta in (min(p.beta), max(p.beta))
    )

    def factor(group: list[st.Cell]) -> float:
        return max(float(np.median(c.errors)) / c.noise for c in group)

    def amount(c: st.Cell) -> str:
        return f"{np.median(c.errors):.1g} from {c.noise:g}"

    low, high = factor(smallest), max(float(np.median(c.errors)) for c in largest)
    return [
        st.Comparison(
            "equal angles stay equal and follow the equation",
            f"common cosines {', '.join(f'{r:g}' for r in (p.r0, *p.r))} at the start",
            f"off by {worst:.1g} at most, in {len(curves) + len(other)} runs",
            worst < 1e-5,
        ),
        st.Comparison(
            "1 - r falls at the rate 2 (SA) or 2 e^beta (USA) at the end",
            "n, beta",
            f"relative distance {max(off):.1g} at most, where 1 - r = {p.reach:g}",
            max(off) < 0.02,
        ),
        st.Comparison(
            f"nearly equal angles follow it too, beta = {min(p.beta):g}",
            f"noise in the start, {p.starts} starts",
            f"error over noise {low:.2g} at most",
            low < 10,
        ),
        st.Comparison(
            f"nearly equal angles follow it too, beta = {max(p.beta):g}",
            f"noise in the start, {p.starts} starts",
            "median error " + ", ".join(amount(c) for c in largest),
            high < 0.1,
        ),
    ]


def _start(n: int, r: float) -> np.ndarray:
    """n unit tokens of R^n with common cosine r: the rows of a root of their Gram matrix."""
    return np.linalg.cholesky((1 - r) * np.eye(n) + r * np.ones((n, n)))


def _curve(p: Params, model: str, n: int, beta: float) -> st.Cell:
    """One run of the full dynamics beside the solution r of the equation."""
    free = model == "USA"
    end = _arrival(p, n, beta, free)
    last = end - 0.1 * (np.exp(-beta) if free else 1)  # a tenth of 1/rate: for the rate at the end
    times = np.union1d(np.linspace(0, end, 101), [last])
    flow = cy.dynamics.UnnormalizedSphereFlow(beta) if free else cy.SphereFlow(cy.Softmax(beta))
    tr = cy.simulate(
        flow, _start(n, p.r0), times=times, stepper=cy.simulation.Adaptive(1e-10, 1e-12)
    )
    i, j = np.triu_indices(n, 1)
    cosines = (tr.values @ tr.values.swapaxes(1, 2))[:, i, j]
    r = equiangular(p.r0, times, n, beta, free)
    # 1 - <x, y> from the distance, which does not cancel
    gap = np.sum((tr.values[-2:, i[0]] - tr.values[-2:, j[0]]) ** 2, axis=1) / 2
    return st.Cell(
        **{"model": model, "n": n, "beta": beta, "t": times, "r": r},
        name=f"{model}, n = {n}, beta = {beta:g}",
        cosine=(cosines.min(axis=1) + cosines.max(axis=1)) / 2,
        error=float(np.abs(cosines - r[:, None]).max()),  # of r, over all pairs and times
        rate=float(np.log(gap[0] / gap[1]) / (times[-1] - times[-2])),
        check=cy.check(tr, only=("B31",))[0],
    )


def _arrival(p: Params, n: int, beta: float, free: bool) -> float:
    """The time at which 1 - r = reach: an integral of 1/r', by quadrature in r."""
    from scipy.integrate import quad

    def slowness(r: float) -> float:
        weight = np.exp(beta * r) / n if free else 1 / (np.exp(beta * (1 - r)) + n - 1)
        return float(1 / (2 * weight * (1 - r) * ((n - 1) * r + 1)))

    return float(quad(slowness, p.r0, 1 - p.reach, limit=200)[0])


def _summary(curves: list[st.Cell]) -> str:
    worst = max(curves, key=lambda c: c.error)
    text = (
        f"In {len(curves)} runs every pair of tokens stays within {worst.error:.2g} of the "
        f"equation at every time (worst: {worst.name})."
    )
    for c in curves:
        if (c.model, c.n, c.beta, c.r[0]) == ("SA", 2, 0.0, 0.0):
            gap = float(np.abs(c.cosine - np.tanh(c.t)).max())
            text += f" For n = 2, beta = 0 the full run is within {gap:.2g} of tanh t."
    return text


def _draw(p: Params, curves: list[st.Cell]) -> Any:
    """Common cosine r(t): lines are the equation, dots the full dynamics of n tokens (midway
    between the extreme pairs), up to the time at which 1 - r falls to `reach`.
    """
    figure, axes = cy.plot.sheet(2, len(p.n), 3.1, 2.8, sharey=True)
    panels = {(m, n): ax for m, row in zip(MODELS, axes) for n, ax in zip(p.n, row)}
    colours = dict(zip(p.beta, cy.plot.PALETTE))
    for c in curves:
        ax, colour = panels[c.model, c.n], colours[c.beta]
        share = c.t / c.t[-1]
        ax.plot(share, c.r, color=colour, lw=1.2, label=rf"$\beta$ = {c.beta:g}")
        ax.plot(share[::8], c.cosine[::8], "o", ms=3.5, color=colour)
        ax.set_title(f"{c.model}, n = {c.n}", fontsize=cy.plot.LABEL)
    for ax in axes[:, 0]:
        ax.set_ylabel("cosine r")
    for ax in axes[-1]:
        ax.set_xlabel("t / arrival")
    cy.plot.legend_below(axes[0, 0], len(p.beta))
    return figure
