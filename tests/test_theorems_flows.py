"""The statements about flows and about the finite-beta chain, in the three cases of
test_theorems.py; and the closed forms behind them against slow, plain references."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import log

import numpy as np
import pytest

import cynosure as cy
from cynosure import configurations
from cynosure.attention import Causal, Hardmax, Heads, Sinkhorn, Softmax
from cynosure.dynamics import (
    AttentionFlow,
    EuclideanFlow,
    JumpChain,
    LeadingFlow,
    MixedNormFlow,
    NGPTFlow,
    NoisySphere,
    PeriNormFlow,
    PreNormFlow,
    RescaledFlow,
    SphereFlow,
    UnnormalizedSphereFlow,
)
from cynosure.simulation.steppers import RK4, Adaptive, Euler
from cynosure.simulation.trajectory import Trajectory
from cynosure.theorems import THEOREMS, check
from cynosure.theorems.long_context import critical_cosine, output_cosine
from cynosure.theorems.rescaled import pair_limit
from cynosure.theorems.sphere import equiangular, hemisphere_probability
from cynosure.theorems.trapping import exit_probability
from test_theorems import CASES as LAYER_CASES
from test_theorems import demand_alarm, demand_silence, demand_verdict, spd
from test_theorems_motion import CASES as MOTION_CASES

V = np.array([[0.647, 0.819], [0.612, 0.633]])  # the example of arXiv 2305.05465
COUPLED = np.array([[1.0, 0, 0.5], [0, 1, 0], [0.5, 0, 1]])
QUERY, KEY = np.random.default_rng(5).standard_normal((2, 2, 2))
HEAD = np.array([[1.0, 0.2, 0.1]])  # Q = K, one row
TIGHT = Adaptive(1e-12, 1e-14)


def uniform(n: int, d: int = 1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (n, d))


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def at_angle(n: int, r: float) -> np.ndarray:
    """n unit tokens of R^n with common cosine r: the Cholesky factor of their Gram matrix."""
    return np.linalg.cholesky((1 - r) * np.eye(n) + r)


def gaussian(n: int, d: int, seed: int = 0) -> np.ndarray:
    return configurations.gaussian(n, d, seed=seed)


SPHERE = unit(gaussian(24, 3))
CAP = unit(gaussian(12, 3) + [2.0, 0, 0])
CAPS = unit(np.repeat(np.eye(3), 3, axis=0) + 0.05 * gaussian(9, 3))
PAIR = np.array([[1.0, 0.5], [1, -0.5]])
LONG = at_angle(60, 0.5)

RUNS: dict[str, Callable[[], Trajectory]] = {
    # the chain on a pentagon, one or two tokens at each vertex
    "chain": lambda: chain(configurations.polygon(5), 3.0, 60),
    "long chain": lambda: chain(configurations.polygon(4), 20.0, 60),
    "doubled chain": lambda: chain(np.repeat(configurations.polygon(5), 2, axis=0), 4.0, 60),
    "irregular chain": lambda: chain(gaussian(5, 2), 3.0, 5),
    # flows in R^d
    "line": lambda: cy.simulate(RescaledFlow(), uniform(10), time=8.0),
    "line in x": lambda: cy.simulate(EuclideanFlow(), uniform(10), time=8.0),
    "exceptional row": lambda: cy.simulate(RescaledFlow(), [[-1.0], [0.0], [1.0]], time=6.0),
    "short line": lambda: cy.simulate(RescaledFlow(), uniform(10), time=1.0),
    "twice the same": lambda: cy.simulate(RescaledFlow(), [[1.0], [1.0], [-1.0]], time=6.0),
    "polytope": lambda: cy.simulate(RescaledFlow(), gaussian(20, 2), time=16.0),
    "polytope in x": lambda: cy.simulate(EuclideanFlow(), gaussian(12, 2), time=5.0),
    "polytope d=3": lambda: cy.simulate(LeadingFlow(), gaussian(15, 3), time=16.0),
    "polytope, A": lambda: cy.simulate(RescaledFlow(Q=spd(2)), gaussian(15, 2), time=16.0),
    "polytope, V = 2 I": lambda: cy.simulate(
        RescaledFlow(V=2 * np.eye(2)), gaussian(15, 2), time=8.0
    ),
    "any Q, K": lambda: cy.simulate(RescaledFlow(QUERY, KEY), gaussian(15, 2), time=6.0),
    "pair": lambda: cy.simulate(RescaledFlow(), PAIR, time=15.0),
    "pair in x": lambda: cy.simulate(EuclideanFlow(), PAIR, time=6.0),
    "close pair": lambda: cy.simulate(RescaledFlow(), PAIR * [1, 0.6], time=15.0, stepper=TIGHT),
    "pair on a line": lambda: cy.simulate(RescaledFlow(), [[0.7], [-0.7]], time=6.0),
    "hyperplanes": lambda: cy.simulate(LeadingFlow(V=V), gaussian(20, 2), time=12.0),
    "hyperplanes in z": lambda: cy.simulate(RescaledFlow(V=V), gaussian(20, 2), time=12.0),
    "hyperplanes in x": lambda: cy.simulate(EuclideanFlow(V=V), gaussian(8, 2), time=12.0),
    "rotation": lambda: cy.simulate(EuclideanFlow(V=[[1.0, -1], [1, 1]]), gaussian(8, 2), time=2.0),
    "multiplicity": lambda: cy.simulate(
        LeadingFlow(V=np.diag([1.0, 1, 0.3])), gaussian(20, 3), time=18.0
    ),
    "multiplicity, coupled": lambda: cy.simulate(
        LeadingFlow(Q=COUPLED, V=np.diag([1.0, 1, 0.3])), gaussian(20, 3), time=18.0
    ),
    "minus identity": lambda: cy.simulate(EuclideanFlow(V=-np.eye(2)), gaussian(15, 2), time=20.0),
    "minus identity, small": lambda: cy.simulate(
        EuclideanFlow(V=-np.eye(4)), 0.3 * gaussian(6, 4), time=100.0
    ),
    "minus identity in y": lambda: cy.simulate(LeadingFlow(V=-np.eye(2)), gaussian(5, 2), time=1.0),
    "head": lambda: cy.simulate(
        LeadingFlow(HEAD, HEAD, np.diag([2.0, 1, 0.5])), gaussian(8, 3), time=9.0
    ),
    "other head": lambda: cy.simulate(
        LeadingFlow(HEAD, -HEAD, np.diag([2.0, 1, 0.5])), gaussian(8, 3), time=1.0
    ),
    # flows on the sphere
    "cap": lambda: cy.simulate(SphereFlow(Softmax(1.0)), CAP, time=10.0),
    "sphere": lambda: cy.simulate(SphereFlow(Softmax(1.0)), SPHERE, time=40.0),
    "sphere, A": lambda: cy.simulate(SphereFlow(Softmax(1.0, spd(3))), SPHERE, time=30.0),
    "sphere, hard": lambda: cy.simulate(SphereFlow(Hardmax()), CAP, time=0.5),
    "sphere, heads": lambda: cy.simulate(
        SphereFlow(Heads([Softmax(1.0), Softmax(3.0)])), CAP, time=10.0
    ),
    "sphere, V": lambda: cy.simulate(
        SphereFlow(Softmax(1.0), np.diag([1.0, 1, -1])), CAP, time=5.0
    ),
    "short sphere": lambda: cy.simulate(SphereFlow(Softmax(1.0)), SPHERE, time=0.5),
    "USA": lambda: cy.simulate(UnnormalizedSphereFlow(1.0), SPHERE, time=20.0),
    "equal angles": lambda: cy.simulate(SphereFlow(Softmax(4.0)), at_angle(6, 0.2), time=10.0),
    "equal angles, USA": lambda: cy.simulate(
        UnnormalizedSphereFlow(2.0), at_angle(6, -0.1), time=3.0
    ),
    "right angle": lambda: cy.simulate(SphereFlow(Softmax(0.0)), np.eye(2), time=5.0),
    "caps": lambda: cy.simulate(SphereFlow(Softmax(40.0)), CAPS, time=1500.0),
    "caps, USA": lambda: cy.simulate(UnnormalizedSphereFlow(20.0), CAPS, time=1500 * np.exp(-20.0)),
    "caps, beta 4": lambda: cy.simulate(SphereFlow(Softmax(4.0)), CAPS, time=5.0),
    "causal": lambda: cy.simulate(SphereFlow(Causal(Softmax(1.0))), SPHERE, time=50.0),
    "causal, A": lambda: cy.simulate(
        SphereFlow(Causal(Softmax(1.0, gaussian(3, 3, 4)))), SPHERE[:8], time=50.0
    ),
    "short causal": lambda: cy.simulate(SphereFlow(Causal(Softmax(1.0))), SPHERE, time=0.5),
    "causal circle d=1": lambda: cy.simulate(
        SphereFlow(Causal(Softmax(1.0))), [[1.0], [1.0]], time=2.0
    ),
    # a Gaussian crowd
    "crowd": lambda: cy.simulate(EuclideanFlow(), crowd(), time=0.4),
    "crowd, V": lambda: cy.simulate(EuclideanFlow(QUERY / 2, KEY / 2, V), crowd(), time=0.4),
    "crowd, minus": lambda: cy.simulate(EuclideanFlow(V=-np.eye(2)), crowd(), time=0.4),
    "crowd, late": lambda: cy.simulate(EuclideanFlow(), crowd(), time=0.8),
    "two crowds": lambda: cy.simulate(EuclideanFlow(), crowd() / 3 + np.sign(crowd()), time=0.1),
    # common noise
    "noisy pair": lambda: noisy(1.0, 1.0, np.eye(3)[:2]),
    "noisy groups": lambda: noisy(2.0, 0.7, np.eye(2)[[0, 1, 1, 1]], seed=5),
    "quiet pair": lambda: noisy(1.0, 0.05, np.eye(2)),
    "noisy three": lambda: noisy(1.0, 1.0, np.eye(3)),
    "coarse pair": lambda: cy.simulate(NoisySphere(sigma=2.5), np.eye(2), layers=50),
    # places of the normalisation
    "pre-norm": lambda: cy.simulate(PreNormFlow(Softmax(2.0)), 3 * at_angle(5, 0.1), time=20.0),
    "peri-norm": lambda: cy.simulate(PeriNormFlow(Softmax(2.0)), at_angle(5, 0.1), time=20.0),
    "nGPT": lambda: cy.simulate(NGPTFlow(Softmax(2.0), gamma=0.5), at_angle(5, 0.1), time=12.0),
    "mixed": lambda: cy.simulate(MixedNormFlow(Softmax(2.0), tau=1.55), at_angle(2, 0), time=9.0),
    "pre-norm, any": lambda: cy.simulate(PreNormFlow(), SPHERE, time=2.0),
    "pre-norm, lengths": lambda: cy.simulate(PreNormFlow(), [[1.0, 0], [0, 2]], time=2.0),
    "nGPT, V": lambda: cy.simulate(NGPTFlow(V=2 * np.eye(5)), at_angle(5, 0.1), time=1.0),
    # one softmax layer
    "long context": lambda: layer(LONG, 0.5),
    "long context, critical": lambda: layer(LONG, 2.0),
    "long context, beyond": lambda: layer(LONG, 4.0),
    "soft layers": lambda: cy.simulate(cy.PureAttention(Softmax(2.0)), gaussian(9, 2), layers=4),
    # doubly stochastic attention
    "sinkhorn": lambda: balanced(Sinkhorn(1.0), gaussian(12, 3)),
    "sinkhorn, any A": lambda: balanced(Sinkhorn(1.0, gaussian(3, 3, 4)), gaussian(12, 3)),
    "sinkhorn, few iterations": lambda: balanced(Sinkhorn(2.0, iterations=20), gaussian(12, 2)),
    "sinkhorn, unfinished": lambda: balanced(Sinkhorn(9.0, iterations=2), gaussian(12, 2)),
    "sinkhorn, float32": lambda: balanced(Sinkhorn(1.0), gaussian(12, 3).astype(np.float32)),
    "sinkhorn, padding": lambda: balanced(Sinkhorn(1.0), gaussian(12, 3), np.arange(12) % 4 > 0),
    "sinkhorn flow": lambda: cy.simulate(
        AttentionFlow(Sinkhorn(1.0)), gaussian(9, 2), times=np.linspace(0, 3, 13)
    ),
    "sinkhorn flow, any A": lambda: cy.simulate(
        AttentionFlow(Sinkhorn(1.0, gaussian(2, 2, 4))), gaussian(9, 2), time=1.0, stepper=RK4(0.05)
    ),
}


def balanced(rule: Sinkhorn, z: np.ndarray, mask: np.ndarray | None = None) -> Trajectory:
    return cy.simulate(cy.PureAttention(rule, "2/3"), z, layers=15, mask=mask)


def chain(z: np.ndarray, beta: float, layers: int, seed: int = 0) -> Trajectory:
    return cy.simulate(JumpChain(Softmax(beta), 0.5, seed), z, layers=layers)


@cache
def crowd() -> np.ndarray:
    return cy.analysis.GaussianFlow([0.3, -0.2], [[0.3, 0.1], [0.1, 0.2]]).sample(150, 50)


def noisy(beta: float, sigma: float, x: np.ndarray, seed: int = 0) -> Trajectory:
    return cy.simulate(NoisySphere(Softmax(beta), sigma=sigma, seed=seed), x, layers=600)


def layer(z: np.ndarray, gamma: float) -> Trajectory:
    rule = Softmax(gamma * log(len(z)))
    return cy.simulate(cy.PureAttention(rule, "1/2"), z, layers=1)


@cache
def run(name: str) -> Trajectory:
    return RUNS[name]()


def edited(name: str, edit: Callable[[np.ndarray], None]) -> Callable[[], Trajectory]:
    def build() -> Trajectory:
        z = run(name).values.copy()
        edit(z)
        return replace(run(name), z=z)

    return build


def frozen(name: str, since: int) -> Callable[[], Trajectory]:
    """The run in which nothing moves any more from one saved time on."""
    return edited(name, lambda z: z.__setitem__(slice(since, None), z[since]))


def placed(
    name: str, tokens: int | list[int], where: object, since: int
) -> Callable[..., Trajectory]:
    """The run with some tokens put elsewhere for good."""
    return edited(name, lambda z: z.__setitem__((slice(since, None), tokens), where))


def moved(name: str, token: int, at: int, by: float) -> Callable[[], Trajectory]:
    """The run with one token scaled by 1 + by at one saved time."""
    return edited(name, lambda z: z[at, token].__imul__(1 + by))


def turned(name: str, token: int, at: int, by: np.ndarray) -> Callable[[], Trajectory]:
    def turn(z: np.ndarray) -> None:
        x = z[at, token] + by
        z[at, token] = x / np.linalg.norm(x)

    return edited(name, turn)


def claimed(name: str, dynamics: cy.dynamics.Dynamics) -> Callable[[], Trajectory]:
    """The run said to be of another dynamics."""
    return lambda: replace(run(name), dynamics=dynamics)


def closer(z: np.ndarray) -> None:
    z[40, 0] = (z[40, 0] + z[40, 1]) / 2


def spread(z: np.ndarray) -> None:
    """One state about its own mean, twice as wide in one direction: the mean stays."""
    z[2, :, 0] += z[2, :, 0] - z[2, :, 0].mean()


def opposite(z: np.ndarray) -> None:
    z[-1, 1] = -z[-1, 0]


def merged(z: np.ndarray) -> None:
    z[-1] = z[-1].mean(axis=0)


def halfway(z: np.ndarray) -> None:
    """One token between the middle and the first vertex, for good."""
    z[60:, 4] = z[-1, np.linalg.norm(z[-1], axis=1).argmax()] / 2


@dataclass(frozen=True)
class Cases:
    """Names in RUNS where the statement holds and where it does not apply; tampered runs."""

    holds: tuple[str, ...]
    not_applicable: tuple[str, ...]
    sabotaged: tuple[Callable[[], Trajectory], ...]


CASES = {
    "B21": Cases(
        ("chain", "long chain", "doubled chain"),
        ("irregular chain", "soft layers"),
        (
            moved("long chain", 0, 1, 0.5),  # leaves at once, with probability 2e-8
            frozen("chain", 0),  # does not leave, with probability e^-60
        ),
    ),
    "B22": Cases(
        ("line", "line in x", "exceptional row", "pair on a line"),
        ("polytope", "short line", "twice the same"),
        (placed("line", [2, 5], 0.0, 98),),
    ),
    "B23": Cases(
        ("line", "polytope", "polytope in x", "polytope d=3", "polytope, A", "pair"),
        ("hyperplanes", "any Q, K", "minus identity"),
        (edited("polytope", closer), edited("polytope, A", closer), edited("line in x", closer)),
    ),
    "B24": Cases(
        ("line", "polytope", "polytope d=3", "polytope, A", "polytope, V = 2 I", "any Q, K"),
        ("hyperplanes", "minus identity", "sphere"),
        (
            moved("polytope", int(np.linalg.norm(gaussian(20, 2), axis=1).argmax()), 50, 1e-4),
            edited("polytope", halfway),
            edited("polytope d=3", halfway),
        ),
    ),
    "B25": Cases(
        ("pair", "pair in x", "close pair", "pair on a line"),
        ("polytope", "twice the same", "minus identity"),
        (
            edited("pair", lambda z: z[60:, :, 1].__imul__(1.001)),
            edited("close pair", merged),
            edited("pair", lambda z: z[60:, :, 0].__iadd__(1e-3)),
        ),
    ),
    "B26": Cases(
        ("hyperplanes", "hyperplanes in z", "hyperplanes in x", "head"),
        ("polytope", "rotation", "minus identity", "line"),
        (edited("hyperplanes", halfway), moved("hyperplanes", 3, 20, 9.0)),
    ),
    "B27": Cases(
        ("multiplicity", "polytope", "polytope d=3"),
        ("multiplicity, coupled", "hyperplanes", "minus identity", "line"),
        (edited("multiplicity", halfway), moved("multiplicity", 3, 40, 9.0)),
    ),
    "B28": Cases(
        ("minus identity", "minus identity, small"),
        ("minus identity in y", "polytope", "hyperplanes in x"),
        (
            frozen("minus identity, small", 30),
            moved("minus identity", 2, 50, 0.5),
            moved("minus identity", 2, 50, 1e3),
        ),
    ),
    "B29": Cases(
        ("head",),
        ("polytope", "hyperplanes", "polytope, A"),
        (
            lambda: run("other head"),
            claimed("head", LeadingFlow(HEAD, HEAD, -np.diag([2.0, 1, 0.5]))),
            claimed("head", LeadingFlow(HEAD, HEAD, np.diag([2.0, 2, 0.5]))),
            claimed("head", LeadingFlow(HEAD, HEAD, [[1.0, -1, 0], [1, 1, 0], [0, 0, 0.5]])),
        ),
    ),
    "B30": Cases(
        ("cap", "sphere", "sphere, A", "sphere, hard", "sphere, heads", "USA", "causal"),
        ("short sphere", "sphere, V", "polytope"),
        (
            frozen("cap", 10),
            frozen("USA", 10),
            turned("cap", 3, 50, np.array([0.0, 0, 1e-2])),
        ),
    ),
    "B31": Cases(
        ("equal angles", "equal angles, USA", "right angle"),
        ("cap", "causal", "sphere, V"),
        (
            turned("equal angles", 2, 20, 1e-3 * np.eye(6)[0]),
            claimed("equal angles", SphereFlow(Softmax(4.01))),
            claimed("equal angles", UnnormalizedSphereFlow(4.0)),
        ),
    ),
    "B32": Cases(
        ("long context", "long context, critical", "long context, beyond"),
        ("soft layers", "equal angles"),
        (
            moved("long context", 4, 1, 1e-9),
            claimed("long context", cy.PureAttention(Softmax(2.0), "1/2")),
            claimed("long context", cy.PureAttention(Softmax(0.5 * log(60)), "2/3")),
        ),
    ),
    "B33": Cases(
        ("caps", "caps, USA"),
        ("caps, beta 4", "sphere", "causal"),
        (
            placed("caps", 0, CAPS[8], 50),
            frozen("caps", 0),
            turned("caps", 4, 80, np.array([0.0, 0.1, 0.1])),
        ),
    ),
    "B34": Cases(
        ("causal", "causal, A"),
        ("short causal", "causal circle d=1", "cap", "sphere"),
        (
            frozen("causal", 8),
            turned("causal", 0, 50, np.array([0.0, 1e-3, 1e-3])),
            turned("causal", 9, 50, 0.1 * np.ones(3)),
        ),
    ),
    "B35": Cases(
        ("crowd", "crowd, V", "crowd, minus"),
        ("crowd, late", "two crowds", "line in x", "cap"),
        (
            frozen("crowd", 0),
            claimed("crowd", EuclideanFlow(V=-np.eye(2))),
            edited("crowd, minus", lambda z: z[60:].__iadd__(0.3)),
        ),
    ),
    "B36": Cases(
        ("noisy pair", "noisy groups", "quiet pair"),
        ("noisy three", "coarse pair", "cap"),
        (
            edited("quiet pair", opposite),
            claimed("noisy pair", NoisySphere(Softmax(1.0), sigma=0.7)),
            claimed("noisy pair", NoisySphere(Softmax(1.0), sigma=1.3)),
            claimed("quiet pair", NoisySphere(Softmax(5.0), sigma=0.05)),
            frozen("noisy pair", 100),
        ),
    ),
    "B37": Cases(
        ("pre-norm", "peri-norm", "nGPT", "mixed", "equal angles", "right angle"),
        ("pre-norm, any", "pre-norm, lengths", "nGPT, V", "cap", "causal"),
        (
            claimed("pre-norm", PeriNormFlow(Softmax(2.0))),
            claimed("nGPT", NGPTFlow(Softmax(2.0), gamma=0.501)),
            claimed("mixed", MixedNormFlow(Softmax(2.0), tau=1.6)),
            claimed("equal angles", SphereFlow(Softmax(4.01))),
            moved("peri-norm", 2, 50, 1e-3),
        ),
    ),
    "B38": Cases(
        (
            "sinkhorn",
            "sinkhorn, any A",
            "sinkhorn, few iterations",
            "sinkhorn, float32",
            "sinkhorn, padding",
            "sinkhorn flow",
            "sinkhorn flow, any A",
        ),
        ("sinkhorn, unfinished", "soft layers", "sphere"),
        (
            moved("sinkhorn", 3, 5, 1e-6),
            edited("sinkhorn, any A", spread),
            edited("sinkhorn flow", spread),
            moved("sinkhorn flow", 3, 5, 1e-3),
            claimed("soft layers", cy.PureAttention(Sinkhorn(2.0, iterations=10_000))),
        ),
    ),
}


def test_every_statement_has_its_cases() -> None:
    every = {**LAYER_CASES, **CASES, **MOTION_CASES}
    assert list(every) == list(THEOREMS) == [f"B{i}" for i in range(1, 43)]
    for name, cases in every.items():
        assert cases.holds and cases.sabotaged, name
        assert cases.not_applicable or not THEOREMS[name].needs, name


@pytest.mark.parametrize("name", CASES)
def test_a_case_where_it_holds(name: str) -> None:
    demand_verdict(name, {case: run(case) for case in CASES[name].holds})


@pytest.mark.parametrize("name", CASES)
def test_a_case_whose_hypotheses_fail(name: str) -> None:
    layers = cy.simulate(cy.PureAttention(), PAIR, layers=3)
    foreign = replace(run("polytope"), dynamics=None)
    cases = {case: run(case) for case in CASES[name].not_applicable}
    demand_silence(name, {"layers": layers, "foreign": foreign, **cases})


@pytest.mark.parametrize("name", CASES)
def test_a_tampered_trajectory_is_caught(name: str) -> None:
    demand_alarm(name, [build() for build in CASES[name].sabotaged])


@pytest.mark.many
@pytest.mark.parametrize("name", sorted(set(RUNS) - {"other head"}))
def test_what_applies_holds(name: str) -> None:
    found = check(run(name))
    for c in found:
        assert c.applies == all(h.holds for h in c.hypotheses)
        assert c.holds in (True, None), (str(c), c.witness)
        if c.applies:
            assert 0 < c.margin < np.inf, str(c)
            json.dumps(c.witness, allow_nan=False)


@pytest.mark.many
@pytest.mark.parametrize("seed", range(4))
def test_what_applies_holds_for_other_starts(seed: int) -> None:
    n, d = [(6, 1), (12, 2), (9, 3), (5, 4)][seed]
    z = gaussian(n, d, seed=seed + 10)
    flows = [
        (RescaledFlow(), z, 9.0),
        (EuclideanFlow(V=-np.eye(d)), 0.5 * z, 10.0),
        (SphereFlow(Softmax(2.0)), z, 20.0),
        (UnnormalizedSphereFlow(0.5), z, 10.0),
        (SphereFlow(Causal(Softmax(2.0))), z, 30.0),
    ]
    for flow, start, time in flows:
        tr = cy.simulate(flow, start, time=time)
        for c in check(tr):
            assert c.holds in (True, None), (seed, str(c), c.witness)


# --- what cannot be judged ------------------------------------------------------------------------


FINE = {
    "B24": (RescaledFlow(), 3.0, 0.1),
    "B26": (LeadingFlow(V=V), 12.0, 0.1),
    "B23": (EuclideanFlow(), 3.0, 0.1),  # x grows like e^t: errors are read in e^{-t} x
    "B30": (SphereFlow(Softmax(1.0)), 6.0, 0.2),
}


@pytest.mark.parametrize("name", FINE)
def test_fixed_steps_are_judged_by_halving_them(name: str) -> None:
    """The estimate covers the true error, applies to fine steps only, and excuses nothing."""
    flow, time, dt = FINE[name]
    z0 = CAP if name == "B30" else gaussian(10, 2)
    fine = cy.simulate(flow, z0, time=time, stepper=RK4(dt), save_every=5)
    found = THEOREMS[name](fine)
    assert found.applies and found.holds, (found, found.hypotheses)
    reading = THEOREMS[name].reads(fine)
    best = cy.simulate(flow, z0, times=fine.t, stepper=TIGHT)
    true = np.linalg.norm(best.values - fine.values, axis=(1, 2)) * reading.unit
    assert true.max() <= reading.error < 1e4 * true.max() + 1e-9
    z = fine.values.copy()
    z[-4] = z[0]
    assert THEOREMS[name](replace(fine, z=z)).holds is False
    coarse = cy.simulate(flow, z0, time=time, stepper=RK4(1.5))
    refused = THEOREMS[name](coarse)
    assert not refused.applies and "integration error" in str(refused)


def test_saved_times_denser_than_the_step_are_halved_too() -> None:
    """The steps in between end at the saved times, so half of dt alone would change nothing."""
    run = cy.simulate(RescaledFlow(), gaussian(6, 2), times=np.arange(41) / 10, stepper=Euler(0.5))
    reading = THEOREMS["B24"].reads(run)
    best = cy.simulate(RescaledFlow(), gaussian(6, 2), times=run.t, stepper=TIGHT)
    true = np.linalg.norm(best.values - run.values, axis=(1, 2)).max()
    assert 1e-3 < true <= reading.error


def test_a_run_without_a_known_stepper_is_not_judged() -> None:
    unknown = replace(run("polytope"), stepper=None)
    assert not THEOREMS["B24"](unknown).applies
    many = replace(run("polytope"), stepper=RK4(1e-9))  # too long to be made again
    assert not THEOREMS["B24"](many).applies


@pytest.mark.many
def test_padding_is_left_out() -> None:
    z = gaussian(6, 3)
    padded = np.concatenate([z[:2], 9 * np.ones((1, 3)), z[2:], np.ones((1, 3))])
    mask = np.array([True, True, False, True, True, True, True, False])
    for flow in (RescaledFlow(), SphereFlow(Softmax(1.0))):
        with_padding = cy.simulate(flow, padded, time=9.0, mask=mask)
        bare = cy.simulate(flow, z, time=9.0)
        for a, b in zip(check(with_padding), check(bare), strict=True):
            assert (a.applies, a.holds) == (b.applies, b.holds) and a.holds in (True, None)
            assert a.margin == pytest.approx(b.margin, nan_ok=True, rel=1e-3, abs=1e-9)


# --- the closed forms ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("e", "limit"),
    [
        (1.0, 0.9483019578715), (0.5, 0.1873767679086), (0.3, 5.21195036056e-3),
        (0.2, 4.98251158e-6), (0.1, 2.56586542e-22),
    ],
)  # fmt: skip
def test_pair_limit(e: float, limit: float) -> None:
    assert pair_limit(e) == pytest.approx(limit, rel=2e-9)
    with pytest.raises(ValueError, match="e:"):
        pair_limit(0.0)


def test_equiangular_solves_its_equation() -> None:
    t = np.linspace(0, 3, 13)
    np.testing.assert_allclose(equiangular(0.0, t, 2, 0.0), np.tanh(t), atol=1e-11)
    late = 1 - equiangular(0.3, np.array([0.0, 8.0, 9.0]), 5, 1.0)
    assert log(late[1] / late[2]) == pytest.approx(2.0, rel=1e-4)
    late = 1 - equiangular(0.3, np.array([0.0, 4.0, 4.5]), 5, 1.0, unnormalized=True)
    assert log(late[1] / late[2]) / 0.5 == pytest.approx(2 * np.e, rel=1e-4)


@pytest.mark.parametrize(("n", "r", "beta"), [(5, 0.3, 1.0), (40, 0.7, 9.0), (7, -0.1, 0.0)])
def test_output_cosine_against_the_layer(n: int, r: float, beta: float) -> None:
    x = at_angle(n, r)
    y = Softmax(beta).pull(x)
    expected = y[0] @ y[1] / np.linalg.norm(y[0]) / np.linalg.norm(y[1])
    assert output_cosine(n, r, beta) == pytest.approx(expected, rel=1e-12)


def test_long_context_has_three_regimes() -> None:
    r = 0.4
    for gamma in (1.0, 1 / (1 - r), 2.5):
        limit = critical_cosine(r, gamma)
        off = [abs(output_cosine(10**k, r, gamma * log(10**k)) - limit) for k in (3, 6, 9, 12)]
        assert off[3] < 1e-3 and off[0] > off[1] > off[2] > off[3]
    assert critical_cosine(r, 1 / (1 - r)) == pytest.approx(4 * r / (1 + 3 * r))
    with pytest.raises(ValueError, match="output_cosine"):
        output_cosine(3, -0.9, 1.0)


def test_wendel_against_simulation() -> None:
    x = np.random.default_rng(0).standard_normal((600, 6, 3))
    # the hull of 6 tokens misses 0 iff some pair of them spans a plane with all others on one side
    pairs = [(i, j) for i in range(6) for j in range(i)]
    normals = np.stack([np.cross(x[:, i], x[:, j]) for i, j in pairs], axis=1)
    side = np.einsum("bpd,bnd->bpn", normals, x)
    rest = np.array([[k not in p for k in range(6)] for p in pairs])
    one = ((side > 0) | ~rest).all(axis=2) | ((side < 0) | ~rest).all(axis=2)
    share = one.any(axis=1).mean()
    p = hemisphere_probability(6, 3)
    assert p == 0.5 and abs(share - p) < 5 * np.sqrt(p * (1 - p) / 600)


@pytest.mark.many
def test_exit_times_are_geometric() -> None:
    """Exits of a square over seeds: mean and spread of a geometric law, and its growth in beta."""
    q, n = exit_probability(4, 2.0), 4
    leave = 1 - (1 - q) ** n
    times = []
    for seed in range(150):
        tr = chain(configurations.polygon(4), 2.0, 40, seed)
        gone = np.flatnonzero(np.abs(tr.values - tr.values[0]).max(axis=(1, 2)) > 1e-9)
        times.append(gone[0] if len(gone) else 41)
    mean, spread = 1 / leave, np.sqrt(1 - leave) / leave
    assert abs(np.mean(times) - mean) < 5 * spread / np.sqrt(len(times))
    for k in (3, 4, 5, 8):
        # log 2 / q is the median, up to q itself
        slope = (log(exit_probability(k, 200.0)) - log(exit_probability(k, 300.0))) / 100
        assert slope == pytest.approx(1 - np.cos(2 * np.pi / k), rel=1e-9)
    assert exit_probability(3, 100.0) == pytest.approx(2 * np.exp(-150.0), rel=1e-12)
    with pytest.raises(ValueError, match="k:"):
        exit_probability(1, 1.0)
    with pytest.raises(ValueError, match="g:"):
        JumpChain(g=1.0)


@pytest.mark.parametrize(("g", "seed"), [(1.0, 0), (float("nan"), 0), (0.5, -1)])
def test_a_chain_of_no_step_or_seed_is_refused(g, seed) -> None:
    with pytest.raises(ValueError, match=r"(g: expected a step|seed: expected a whole)"):
        cy.dynamics.JumpChain(g=g, seed=seed)


def test_the_chain_jumps_towards_tokens_with_the_weights_of_softmax() -> None:
    z = gaussian(4, 2)
    count = np.zeros((4, 4))
    for seed in range(400):
        after = JumpChain(Softmax(1.0), 0.5, seed).step(z, 0)
        target = 2 * after - z
        near = np.abs(target[:, None] - z).max(axis=2)
        assert (near.min(axis=1) < 1e-12).all()
        count[np.arange(4), near.argmin(axis=1)] += 1
    P = Softmax(1.0).weights(z)
    assert (np.abs(count / 400 - P) < 5 * np.sqrt(P * (1 - P) / 400) + 1e-9).all()


def test_the_bound_of_b38_holds_for_any_number_of_iterations_and_softmax_breaks_it() -> None:
    """Columns that are not finished move the mean by what they allow, and no more."""
    b38 = replace(THEOREMS["B38"], needs=())
    unfinished = run("sinkhorn, unfinished")
    refused, found = THEOREMS["B38"](unfinished), b38(unfinished)
    assert not refused.applies and refused.hypotheses[-1].value > 0.1
    assert found.holds
    drift = np.linalg.norm(np.diff(unfinished.values.mean(axis=1), axis=0), axis=1)
    assert drift.max() > 1e-3  # the bound had something to allow
    half = b38.reads(unfinished)
    moved = 0.4 * np.linalg.norm(
        np.einsum("kj,kjd->kd", half.excess[:-1], unfinished.values[:-1]) / 12, axis=1
    )
    np.testing.assert_allclose(drift, moved, rtol=1e-9, atol=1e-15)  # eta = 2/5, an identity
    soft = run("soft layers").values.mean(axis=1)
    assert np.linalg.norm(soft[-1] - soft[0]) > 0.1
