"""Which attention keeps a Gaussian crowd Gaussian: softmax, L2, sigmoid or masked.

A token x moves by x' = T(x), T(x) the pull of infinitely many tokens y with law N(m, s), as in
arXiv 2501.18322. A law stays Gaussian where T is affine at every time:

    softmax   weights e^(beta x y):            T(x) = m + beta s x
    L2        weights e^(-beta (x - y)^2):     T(x) = (m + 2 beta s x) / (1 + 2 beta s)
    sigmoid   1 / (1 + e^(-beta x y)), no sum: T(x) bends where beta |x| s^(1/2) is not small
    masked    softmax over the tokens before:  the same T at the start, later a mixture of laws

See the bend by time: what is left of the tokens' places after the best affine map of their starts,
for the 95 % in the middle and in units of their spread. 0 is Gaussian. The controls are a uniform
start, for which T is not affine under any rule, and fewer tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

import cynosure as cy
from cynosure import study as st

TITLE = "Which attention keeps a Gaussian crowd Gaussian"
RULES = ("softmax", "L2", "sigmoid", "masked")
AFFINE = RULES[:2]  # rules with a T in closed form
NODES = 160  # of the quadrature of Gauss and Hermite
MIDDLE = 0.95  # share of the tokens: the outermost of finitely many feel no tail


@dataclass(frozen=True)
class Params:
    """n tokens on the line at the quantiles of N(mean, variance), `draws` orders of them where the
    rule is masked; `other_n` to compare with. `beta` is small, so that a few tokens do not decide
    (see gaussian_crowd); `steep` is that of the sigmoid, whose weights are bounded."""

    n: int = 1600
    other_n: tuple[int, ...] = (400, 800)
    beta: float = 0.2
    steep: float = 2.0
    mean: float = 0.5
    variance: float = 1.0
    time: float = 1.0
    steps: int = 24
    draws: int = 4
    seed: int = 0


QUICK = Params(n=400, other_n=(200,), steps=12, draws=2)


@dataclass(frozen=True, eq=False)
class Pull(cy.dynamics.Flow):
    """x' = the pull of all tokens on the line under one rule."""

    rule: str
    beta: float

    def velocity(self, z: Any, t: float, *, mask: Any = None) -> Any:
        x = z[..., 0]
        return pulled(self.rule, self.beta, x, x, np.ones(x.shape[-1]))[..., None]


def pulled(rule: str, beta: float, x: np.ndarray, y: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """T(x) of tokens y with weights `mass`; masked: y_j pulls x_i for j <= i only."""
    x_i, y_j = x[..., :, None], y[..., None, :]
    if rule == "sigmoid":
        return (mass * y_j / (1 + np.exp(-beta * x_i * y_j))).sum(axis=-1) / mass.sum()
    score = -beta * (x_i - y_j) ** 2 if rule == "L2" else beta * x_i * y_j
    if rule == "masked":
        score = np.where(np.tri(len(mass), dtype=bool), score, -np.inf)
    weight = mass * np.exp(score - score.max(axis=-1, keepdims=True))
    return (weight * y_j).sum(axis=-1) / weight.sum(axis=-1)


def closed(rule: str, beta: float, mean: float, variance: float, x: np.ndarray) -> np.ndarray:
    """T(x) of N(mean, variance), for the rules that have one."""
    bent = mean + (1 if rule == "softmax" else 2) * beta * variance * x
    return bent if rule == "softmax" else bent / (1 + 2 * beta * variance)


def run(p: Params, progress: st.Progress | None = None) -> st.Report:
    """Every rule from both starts, and with other numbers of tokens."""
    sensible = min(p.n, *p.other_n) >= 20 and min(p.beta, p.variance, p.time) > 0
    st.require(sensible, "n, other_n >= 20, beta, variance, time > 0", p)
    over = st.measuring(p, progress)
    crowds = over(_crowd, {"rule": RULES, "start": ("normal", "uniform"), "n": [p.n]}, 0.7)
    others = over(_crowd, {"rule": RULES, "start": ["normal"], "n": p.other_n})
    normal = {c.rule: c for c in crowds if c.start == "normal"}
    columns = st.columns("rule, start, n, bend at the end = end")
    told = "; ".join(f"{rule} {c.end:.2g}" for rule, c in normal.items())
    return st.report_of(
        p,
        f"Bend of {p.n} tokens that start as N({p.mean:g}, {p.variance:g}), at time {p.time:g}, in "
        f"units of their spread: {told}.",
        controls=_controls(crowds, others),
        tables=[st.Table.of("How far from affine", [*crowds, *others], columns)],
        checks={"the pull is affine": [_affine(p, rule) for rule in AFFINE]},
        figures=[st.Picture("The bend by time", _CAPTION, _drawn(crowds))],
    )


_CAPTION = (
    "How far the tokens are from an affine map of their starts, by time, from a Gaussian start "
    "(left) and from a uniform one (right, the control). A law that stays Gaussian stays at 0."
)


def _affine(p: Params, rule: str) -> cy.theorems.Check:
    """The closed form of T beside quadrature over the Gaussian."""
    nodes, mass = np.polynomial.hermite_e.hermegauss(NODES)
    y, x = p.mean + np.sqrt(p.variance) * nodes, p.mean + np.linspace(-3, 3, 31)
    off = pulled(rule, p.beta, x, y, mass) - closed(rule, p.beta, p.mean, p.variance, x)
    said = f"under {rule} attention a Gaussian law pulls by an affine map"
    return st.at_most(rule, "arXiv 2501.18322, B35", said, np.abs(off).max(), 1e-9)


def _crowd(p: Params, rule: str, start: str, n: int) -> st.Cell:
    """Runs of one rule, start and n: the bend by time (mean over the draws)."""
    quantiles = (np.arange(n) + 0.5) / n
    x = norm.ppf(quantiles) if start == "normal" else np.sqrt(12) * (quantiles - 0.5)
    draw = np.random.default_rng(p.seed)
    orders = [draw.permutation(x) for _ in range(p.draws if rule == "masked" else 1)]
    z0 = (p.mean + np.sqrt(p.variance) * np.array(orders) / x.std())[..., None]
    stepper = cy.simulation.RK4(p.time / p.steps)
    flow = Pull(rule, p.steep if rule == "sigmoid" else p.beta)
    runs = [cy.simulate(flow, z, time=p.time, stepper=stepper) for z in z0]
    bend = np.mean([_bend(r.values[..., 0]) for r in runs], axis=0)
    return st.Cell(rule=rule, start=start, n=n, t=runs[0].t, bend=bend, end=float(bend[-1]))


def _bend(x: np.ndarray) -> np.ndarray:
    """By time: what an affine map of the start leaves of x (times, n), relative to its spread."""
    low, high = np.quantile(x[0], ((1 - MIDDLE) / 2, (1 + MIDDLE) / 2))
    x = x[:, (x[0] >= low) & (x[0] <= high)]
    x = x - x.mean(axis=1, keepdims=True)
    slope = (x @ x[0]) / (x[0] @ x[0])
    return np.linalg.norm(x - slope[:, None] * x[0], axis=1) / np.linalg.norm(x, axis=1)


def _controls(crowds: list[st.Cell], others: list[st.Cell]) -> list[st.Comparison]:
    normal, uniform = (
        {c.rule: c.end for c in crowds if c.start == start} for start in ("normal", "uniform")
    )
    by = st.grouped([*others, *(c for c in crowds if c.start == "normal")], "rule")
    sizes = {rule: ", ".join(f"{c.end:.2g} (n = {c.n})" for c in of) for rule, of in by.items()}
    affine = max(normal[rule] for rule in AFFINE)
    return [
        st.Comparison(
            "Softmax and L2 attention keep a Gaussian crowd Gaussian.",
            "the same rules from a uniform start; fewer tokens",
            "; ".join(f"{r}: {sizes[r]}; uniform {uniform[r]:.2g}" for r in AFFINE),
            all(normal[r] < uniform[r] / 3 and by[r][0].end >= normal[r] for r in AFFINE),
        ),
        st.Comparison(
            "Sigmoid and masked attention bend it, and more tokens do not mend that.",
            f"softmax and L2, at most {affine:.2g}; fewer tokens",
            "; ".join(f"{r}: {sizes[r]}" for r in RULES[2:]),
            all(normal[r] > 2 * affine for r in RULES[2:]),
        ),
    ]


def _drawn(crowds: list[st.Cell]) -> Any:
    figure, (axes,) = cy.plot.sheet(1, 2, 4.8, 3.6)
    for ax, (start, of) in zip(axes, st.grouped(crowds, "start").items()):
        for colour, c in zip(cy.plot.PALETTE, of):
            ax.plot(c.t, c.bend, color=colour, label=c.rule)
        ax.set(xlabel="time", ylabel="bend", ylim=(0, None))
        ax.set_title(f"{start} start", fontsize=cy.plot.TITLE, loc="left")
    cy.plot.legend_below(axes[0])
    return figure
