"""A Gaussian crowd: infinitely many tokens reduced to a mean and a covariance (arXiv 2501.18322).

Softmax attention tilts a Gaussian into a Gaussian, so in the limit of many tokens a Gaussian law
stays one, and its moments solve m' = V(m + SAm), S' = VSAS + SA^T SV^T (`GaussianFlow`,
docs/mathematics.md B35). See n tokens against it: errors fall at least like n^(-1/2) as long as
the tilt |S^(1/2) A S^(1/2)| is small. The weights have a variance up to the tilt 2^(-1/2); past it,
errors fall ever more slowly. The equation becomes infinite at a finite time, n tokens never do.

Trap: the start's own mean and covariance are the start of the equation. With those of the law
instead, the error of the sample, n^(-1/2) again, would hide everything else. With them the first
term that is left of one layer's error is the square of the skewness, of order 1/n: at small tilts
errors seem to fall faster than n^(-1/2), until n is large.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import cynosure as cy
from cynosure import study as st
from cynosure.theorems.mean_field import moments_of

TITLE = "A Gaussian crowd: mean and covariance against n tokens"
LAWS = ("gaussian", "uniform", "four crowds")


@dataclass(frozen=True)
class Params:
    """On the line, A = V = 1, from N(mean, variance): n tokens, `starts` samples each, saved at
    `times`. In the plane: matrices A, V of `matrices` seeds, up to `short`. One layer: `samples` of
    `sizes` tokens at each tilt."""

    n: tuple[int, ...] = (60, 240, 960)
    mean: float = 0.5
    variance: float = 0.25
    times: tuple[float, ...] = (0.5, 1.0, 1.3, 1.5, 1.7, 1.9)
    starts: int = 10
    dt: float = 0.05
    matrices: int = 3
    short: float = 0.5
    sizes: tuple[int, ...] = (100, 400, 1600)
    tilts: tuple[float, ...] = (0.125, 0.25, 0.5, 0.7, 1.0, 1.5, 2.0)
    samples: int = 60
    seed: int = 0


QUICK = Params(
    n=(40, 160), starts=3, times=(0.5, 1.0, 1.7), dt=0.1, matrices=1, sizes=(50, 200),
    tilts=(0.25, 2.0), samples=8,
)  # fmt: skip


def blow_up(p: Params) -> float:
    end = cy.analysis.GaussianFlow([p.mean], [[p.variance]]).blow_up
    assert end is not None
    return end


def _line(p: Params, n: int) -> st.Cell:
    """Tokens on the line beside the equation from their own moments: their variance, and its
    relative error (starts, times)."""
    law, t = cy.analysis.GaussianFlow([p.mean], [[p.variance]]), np.array([0.0, *p.times])
    variances, errors = [], []
    for s in range(p.starts):
        z = law.sample(n, p.seed + s)
        run = cy.simulate(cy.dynamics.EuclideanFlow(), z, times=t, stepper=cy.simulation.RK4(p.dt))
        own = cy.analysis.GaussianFlow.of(z)
        end = own.blow_up or np.inf  # of this sample: later there is nothing to compare with
        S = moments_of(run.values)[1][1:, 0, 0]
        expected = np.full(len(p.times), np.inf)
        inside = t[1:] < 0.999 * end
        expected[inside] = own.solve(t[1:][inside]).covariance[:, 0, 0]
        variances.append(S)
        errors.append(np.abs(S / expected - 1))
    return st.Cell(n=n, variance=np.array(variances), error=np.array(errors))


def _start(law: str, n: int, seed: int) -> np.ndarray:
    """n tokens of the plane with mean (0.3, -0.2) and covariance 0.3 I, of three laws."""
    rng = np.random.default_rng([seed, n])
    if law == "uniform":
        x = rng.uniform(-(3**0.5), 3**0.5, (n, 2))
    elif law == "four crowds":
        x = rng.choice([-0.95, 0.95], (n, 2)) + rng.normal(0, (1 - 0.95**2) ** 0.5, (n, 2))
    else:
        x = rng.standard_normal((n, 2))
    return np.array([0.3, -0.2]) + 0.3**0.5 * x


def _plane(p: Params, law: str, matrices: int, n: int) -> st.Cell:
    """Errors |m - equation| + |S - equation| of tokens in the plane, per start.

    matrices = 0: A = V = I; else Gaussian ones of that seed, of norm 1.
    """
    A = V = None
    if matrices:
        A, V = np.random.default_rng([p.seed, matrices]).standard_normal((2, 2, 2))
        A, V = A / np.linalg.norm(A, 2), V / np.linalg.norm(V, 2)
    errors = []
    for s in range(p.starts):
        z = _start(law, n, p.seed + s)
        flow, stepper = cy.dynamics.EuclideanFlow(A, None, V), cy.simulation.RK4(2 * p.dt)
        run = cy.simulate(flow, z, times=[p.short], stepper=stepper)
        mean, S = moments_of(run.values[-1])
        end = cy.analysis.GaussianFlow.of(z, A, V).solve([p.short])
        off = np.linalg.norm(mean - end.mean[0]) + np.linalg.norm(S - end.covariance[0])
        errors.append(float(off))
    return st.Cell(law=law, matrices=matrices, n=n, errors=errors)


def _layer(p: Params, tilt: float, n: int) -> st.Cell:
    """(1/n) sum x_i (P x)_i against its value for a Gaussian of the same moments, over S."""
    errors = []
    for s in range(p.samples):
        x = np.random.default_rng([p.seed, s, n]).standard_normal((n, 1))
        m, S = x.mean(), x.var()
        pull = cy.Softmax(tilt / float(S)).pull(x)
        errors.append(float((x * (pull - (m + tilt * x))).mean() / S))
    return st.Cell(tilt=tilt, n=n, errors=np.array(errors))


def exponent(n: tuple[int, ...], errors: list[np.ndarray]) -> tuple[float, float, float]:
    """-d log(error)/d log n of the mean |error|, with its 95 % bootstrap interval."""
    rng = np.random.default_rng(0)

    def slope(samples: list[np.ndarray]) -> float:
        middle = [float(np.abs(e).mean()) for e in samples]
        return float(-np.polyfit(np.log(n), np.log(np.maximum(middle, 1e-300)), 1)[0])

    drawn = [slope([rng.choice(e, len(e)) for e in errors]) for _ in range(400)]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return slope(errors), float(low), float(high)


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Tokens on the line up to the blow-up, other matrices and laws, one layer at many tilts."""
    over = st.measuring(p, progress)
    sensible = max(p.times) < blow_up(p) and min(p.n) >= 20 and min(p.starts, p.samples) >= 2
    st.require(sensible, f"times below {blow_up(p):g}, n >= 20, starts, samples >= 2", p)
    line = over(_line, {"n": p.n}, 0.4)
    ends = p.n[:: len(p.n) - 1]
    axes = {"law": ("gaussian",), "matrices": tuple(range(p.matrices + 1)), "n": ends}
    plane = over(_plane, axes, 0.55)
    plane += over(_plane, {"law": LAWS[1:], "matrices": (0,), "n": ends}, 0.65)
    layers = over(_layer, {"tilt": p.tilts, "n": p.sizes})
    powers = {
        tilt: exponent(p.sizes, [c.errors for c in layers if c.tilt == tilt]) for tilt in p.tilts
    }
    z = cy.analysis.GaussianFlow([p.mean], [[p.variance]]).sample(max(p.n[0], 100), p.seed)
    crowd = cy.simulate(cy.dynamics.EuclideanFlow(), z, times=np.linspace(0, 0.6 * blow_up(p), 9))
    return st.report_of(
        p,
        _summary(p, line, powers),
        controls=_comparisons(p, line, plane, powers),
        tables=_tables(p, line, plane, powers),
        checks={"a crowd of tokens": [st.judged("B35", [crowd])]},
        figures=[st.Picture.of("Variance and its error", _draw, p, line, powers)],
    )


def _summary(
    p: Params, line: list[st.Cell], powers: dict[float, tuple[float, float, float]]
) -> str:
    largest = line[-1]
    errors = ", ".join(f"{np.median(e):.2g} at t = {t:g}" for t, e in zip(p.times, largest.error.T))
    early, late = min(powers), max(powers)
    return (
        f"The equation becomes infinite at t = {blow_up(p):g}. The variance of {largest.n} tokens "
        f"has the median relative error {errors}; at the last time it is "
        f"{np.median(largest.variance[:, -1]):.2f} where the equation has "
        f"{p.variance / (1 - p.times[-1] / blow_up(p)):.2f}.\n\nIn one layer the error falls like "
        f"n^(-{powers[early][0]:.2f}) at tilt {early:g} and like n^(-{powers[late][0]:.2f}) at "
        f"tilt {late:g}."
    )


def _comparisons(
    p: Params,
    line: list[st.Cell],
    plane: list[st.Cell],
    powers: dict[float, tuple[float, float, float]],
) -> list[st.Comparison]:
    low = {tilt: found for tilt, found in powers.items() if tilt <= 0.5}
    high = {tilt: found for tilt, found in powers.items() if tilt >= 1.5}

    def said(found: dict[float, tuple[float, float, float]]) -> str:
        return "; ".join(f"{k:g}: {x:.2f} ({a:.2f} to {b:.2f})" for k, (x, a, b) in found.items())

    def ratio(law: str, matrices: int) -> float:
        """How much smaller the error of more tokens is."""
        few, many = (
            np.median(c.errors)
            for n in (p.n[0], p.n[-1])
            for c in plane
            if (c.law, c.matrices, c.n) == (law, matrices, n)
        )
        return float(few / many)

    alike = [ratio("gaussian", k) for k in range(p.matrices + 1)]
    others = {law: ratio(law, 0) for law in LAWS[1:]}
    growth = p.n[-1] / p.n[0]
    return [
        st.Comparison(
            "errors fall at least like n^(-1/2) at tilts up to 1/2, and more slowly from 3/2 on",
            f"one layer, {p.samples} samples of {', '.join(map(str, p.sizes))} tokens, tilts",
            f"power of 1/n with 95 % interval: {said(low)}; at tilts of at least 3/2 {said(high)}",
            all(b >= 0.5 for _, _, b in low.values()) and all(b < 0.45 for *_, b in high.values()),
        ),
        st.Comparison(
            "the closure holds for any A and V",
            f"{p.matrices} pairs of random matrices in the plane, {growth:g} times as many tokens",
            f"the median error falls by {', '.join(f'{x:.1f}' for x in alike)} "
            f"(n^(-1/2): {growth**0.5:.1f})",
            min(alike) > 1.2,
        ),
        st.Comparison(
            "it is a statement about Gaussians",
            "starts of the same mean and covariance that are uniform, or four crowds",
            f"the median error falls by {alike[0]:.1f} for a Gaussian, "
            + ", ".join(f"{x:.1f} ({law})" for law, x in others.items()),
            others["four crowds"] < 0.7 * alike[0],
        ),
    ]


def _tables(
    p: Params,
    line: list[st.Cell],
    plane: list[st.Cell],
    powers: dict[float, tuple[float, float, float]],
) -> list[st.Table]:
    fitted = tuple((tilt, *found) for tilt, found in powers.items())
    varied = st.columns("law, matrices, n, median error = median errors, most = max errors")
    return [
        st.Table("Power of 1/n in one layer", ("tilt", "power", "95 % from", "to"), fitted),
        st.Table.of("In the plane", plane, varied, "matrices = 0: A = V = I; else random ones."),
    ]


def _draw(p: Params, line: list[st.Cell], powers: dict[float, tuple[float, float, float]]) -> Any:
    """Left: variance of tokens on the line (median over samples; band: quartiles) and the equation,
    infinite at the solid grey line; dotted: the tilt passes 2^(-1/2), where the weights lose their
    variance. Middle: median relative error of the variance against n at several times, beside
    n^(-1/2). Right: fitted power of 1/n in one layer, against the tilt (dashed: 1/2; dotted: the
    tilt 2^(-1/2)): the law n^(-1/2) ends where few tokens decide.
    """
    figure, ((left, middle, right),) = cy.plot.sheet(1, 3, 4.3, 3.6)
    end = blow_up(p)
    t = np.linspace(0, 0.985 * end, 300)
    left.plot(t, p.variance / (1 - t / end), color=cy.plot.INK, lw=1.2, label="equation")
    for colour, c in zip(cy.plot.PALETTE, line):
        at = [0.0, *p.times]
        low, mid, high = np.quantile(c.variance, (0.25, 0.5, 0.75), axis=0)
        left.plot(at, [p.variance, *mid], "o-", ms=3.5, color=colour, label=f"n = {c.n}")
        left.fill_between(p.times, low, high, color=colour, alpha=0.2, lw=0)
    left.axvline(end, color=cy.plot.GREY)
    left.axvline(end - 0.5**0.5, color=cy.plot.GREY, ls=":")
    left.set(yscale="log", xlabel="time t", ylabel="variance", ylim=(0.8 * p.variance, 40))
    left.legend(frameon=False, fontsize=cy.plot.LABEL, loc="upper left")
    for colour, (k, time) in zip(cy.plot.PALETTE, enumerate(p.times)):
        errors = [float(np.median(c.error[:, k])) for c in line]
        middle.plot(p.n, errors, "o-", ms=4, color=colour, label=f"t = {time:g}")
    n = np.array(p.n, dtype=float)
    law = {"ls": "--", "color": cy.plot.INK, "lw": 1}
    middle.plot(n, 0.015 * (n / n[0]) ** -0.5, label="$n^{-1/2}$", **law)
    middle.set(xscale="log", yscale="log", xlabel="tokens n", ylabel="relative error")
    middle.set_ylim(top=30)
    middle.legend(frameon=False, fontsize=cy.plot.LABEL, ncols=2, loc="upper center")
    mean, low, high = np.array(list(powers.values())).T
    how = {"fmt": "o-", "ms": 4, "capsize": 2, "color": cy.plot.PALETTE[0]}
    right.errorbar(list(powers), mean, [mean - low, high - mean], **how)
    right.axhline(0.5, label="1/2", **law)
    right.axvline(0.5**0.5, color=cy.plot.GREY, ls=":")
    right.set(xlabel="tilt", ylabel="power of 1/n", ylim=(-0.05, 1.05))
    return figure
