"""B12 to B14: tokens on a line, tokens of equal norm, Gaussian tokens."""

from __future__ import annotations

from functools import cache, partial

import numpy as np

from .._types import as_rationals
from .checks import Hypothesis, Part, U, exactly, least, need, statement
from .layers import SPD, LayerRun, nonzero, positive

_statement = partial(statement, LayerRun)


_on_a_line = need("d = 1", lambda run: run.d, lambda d: d == 1)


@_statement(
    "B12",
    "docs/mathematics.md B12",
    "d = 1: tokens > 0 follow the largest, tokens < 0 the smallest, at every layer from 0 on",
    (_on_a_line, positive, nonzero),
)
def line(run: LayerRun) -> list[Part]:
    x, given = run.z[:, :, 0], run.states[0, :, 0]  # scaling may lose a sign
    top = np.where(given > 0, given.argmax(), given.argmin())
    goal = x[0, top]
    age = np.arange(run.layers + 1)[:, None]
    expected = goal + run.rho**age * (x[0] - goal)
    born = np.where(given == given[top], 0, -1)
    return [
        least("closed form", -np.abs(x - expected), 4 * run.error, "layer", "token"),
        exactly("the ends lead", run.born != born, "token"),
    ]


def _equal_norms(run: LayerRun) -> Hypothesis:
    """Floats first; what they cannot tell apart is compared in rationals."""
    q = run.squares[0]
    spread, name = float(q.max() - q.min()), "equal A-norms (spread of the squares)"
    if spread > 2 * run.size_A * (2 * run.d + 4) * U * run.R**2:
        return Hypothesis(name, False, spread)
    A = as_rationals(run.A_given)
    norms = {
        sum(x * a * y for x, row in zip(z, A, strict=True) for a, y in zip(row, z, strict=True))
        for z in as_rationals(np.unique(run.states[0], axis=0))
    }
    return Hypothesis(name, len(norms) == 1, spread)


@_statement(
    "B13",
    "docs/mathematics.md B13",
    "equal A-norms: every token leads and nothing ever moves",
    (*SPD, nonzero, _equal_norms),
)
def equal_norms(run: LayerRun) -> list[Part]:
    """Two tokens of equal norm have |z_i|_A^2 - <A z_i, z_j> = |z_i - z_j|_A^2 / 2 > 0."""
    gaps, z = run.gaps(0, run.rows), run.states
    return [
        exactly("bitwise constant", (z[1:] != z[0]).any(axis=2), "layer", "token"),
        exactly("every token leads at layer 0", run.born != 0, "token"),
        least("C_i = {i}", gaps, 2 * run.score_error(), "token", token=run.rows),
    ]


@cache
def _nodes() -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights on [-1, 1]; an eigenvalue problem, so solved once."""
    return np.polynomial.legendre.leggauss(400)


def expected_leaders(n: int, d: int, S: np.ndarray | None = None) -> float:
    """E|L_0| for n independent Gaussian tokens: n E[Phi(|y|^2 / sqrt(y^T S y))^(n-1)], y ~ N(0, S).

    S = A^(1/2) Cov A^(1/2), None for the identity (docs/mathematics.md B14). With y = r S^(1/2) w
    the radius r ~ chi_d is integrated by quadrature; the direction w matters only for S != c I and
    is averaged over 2^13 seeded draws (relative error below 1 %).

    >>> round(expected_leaders(100, 2), 4)
    6.2856
    """
    if n < 1 or d < 1:
        raise ValueError(f"expected_leaders: n and d are at least 1, got n = {n}, d = {d}")
    S = np.eye(d) if S is None else np.asarray(S, dtype=np.float64)
    if S.shape != (d, d):
        raise ValueError(f"expected_leaders: S of shape ({d}, {d}) expected, got {S.shape}")
    from scipy.special import gammaln, log_ndtr

    scale = np.linalg.eigvalsh(S).clip(0)
    ratio = np.ones(1)  # |y|^2 / (r sqrt(y^T S y))
    if np.ptp(scale) > 0:
        w = np.random.default_rng(0).standard_normal((2**13, d)) ** 2
        w /= w.sum(axis=1, keepdims=True)
        ratio = (w @ scale) / np.sqrt(w @ scale**2)
    node, weight = _nodes()
    r = (np.sqrt(d) + 12) * (node + 1) / 2
    density = np.exp((d - 1) * np.log(r) - r**2 / 2 - (d / 2 - 1) * np.log(2.0) - gammaln(d / 2))
    weight = weight * (np.sqrt(d) + 12) / 2 * density  # of chi_d
    leads = np.exp((n - 1) * log_ndtr(ratio[:, None] * r))
    return float(n * (leads @ weight).mean())


_many = need("n >= 30", lambda run: run.n, lambda n: n >= 30)


def _gaussian(run: LayerRun) -> Hypothesis:
    """Kolmogorov-Smirnov: coordinates against N(0, 1), squared lengths against chi^2_d."""
    from scipy.special import gammainc, ndtr

    z = run.states[0].clip(
        -1e100, 1e100
    )  # far outside any Gaussian sample, and squares do not overflow
    p = min(
        _kolmogorov_smirnov(ndtr(z.ravel())),
        _kolmogorov_smirnov(gammainc(run.d / 2, (z**2).sum(axis=1) / 2)),
        float(run.label.max() + 1 == run.n),  # Gaussian tokens never coincide
    )
    return Hypothesis("start passes as N(0, I), Kolmogorov-Smirnov p >= 1e-3", p >= 1e-3, p)


def _kolmogorov_smirnov(u: np.ndarray) -> float:
    """p-value of the test that the numbers u are uniform on [0, 1]; by M. A. Stephens (1970).

    Off by less than a tenth from n = 30 on; importing the exact one of `scipy.stats` takes long.
    """
    from scipy.special import kolmogorov

    n, u = len(u), np.sort(u)
    at = np.arange(n) / n
    D = float(max((u - at).max(), (at + 1 / n - u).max()))
    return float(kolmogorov(D * (np.sqrt(n) + 0.12 + 0.11 / np.sqrt(n))))


@_statement(
    "B14",
    "docs/mathematics.md B14",
    "Gaussian start: E|L_0| = n E[Phi(|y|²/sqrt(y^T A y))^(n-1)], y ~ N(0, A)",
    (*SPD, _many, _gaussian),
)
def random_count(run: LayerRun) -> list[Part]:
    """|L_0| within five standard deviations of its mean E, as if tokens led independently.

    Simulated variances are 0.2 to 1.3 of the binomial one; 1 is added for rounding, 1 % for the
    quadrature.
    """
    identity = bool((run.A_given == np.eye(run.d)).all())
    mean = expected_leaders(run.n, run.d, None if identity else run.A_given)
    count = int((run.born == 0).sum())
    tol = 5 * np.sqrt(mean * max(1 - mean / run.n, 0.0)) + 1 + 0.01 * mean
    where = {"leaders": count, "expected": mean}
    return [Part("number of leaders at layer 0", -abs(count - mean), float(tol), where)]
