"""Each statement about hardmax layers: it holds where it should, does not apply where a hypothesis
fails, and sees through a tampered trajectory. A statement without its three cases is red: those
about flows are in test_theorems_flows.py, which also counts them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cynosure as cy
from cynosure import configurations, theorems
from cynosure.dynamics import Scheduled
from cynosure.engine.followed import Record
from cynosure.simulation.trajectory import Trajectory
from cynosure.theorems import THEOREMS, Check, check, expected_leaders
from cynosure.theorems.frank_wolfe import DescentRun

SQUARE = configurations.golden("G2")
OPPOSITE = np.concatenate([configurations.gaussian(10, 2), -configurations.gaussian(10, 2)])
BODY = configurations.gaussian(8, 3)
EQUAL = np.array([[3.0, 4], [5, 0], [-4, 3], [0, -5], [-3, -4]])


def rotation(degrees: float) -> np.ndarray:
    c, s = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    return np.array([[c, -s], [s, c]])


def spd(d: int, seed: int = 0) -> np.ndarray:
    b = np.random.default_rng(seed).standard_normal((d, d))
    return b @ b.T / 2 + (b @ b.T).T / 2 + 0.1 * np.eye(d)


def run(
    z: np.ndarray, alpha: object = 0.5, A: np.ndarray | None = None, layers: int = 20
) -> Trajectory:
    return cy.simulate(cy.PureAttention(cy.Hardmax(A), alpha), z, layers=layers)


def harmonic(layers: int) -> Scheduled:
    """A = -I with the steps g = 2/(t + 2), t = 1, 2, ...: alpha = 2/t."""
    rule = cy.Hardmax(-np.eye(2))
    return Scheduled([cy.PureAttention(rule, Fraction(2, t)) for t in range(1, layers + 1)])


def gaussian(n: int, d: int, **options: object) -> Trajectory:
    return run(configurations.gaussian(n, d), **options)


# Every statement that applies must hold on each of these.
RUNS: dict[str, Callable[[], Trajectory]] = {
    **{f"figure2 {i}": lambda i=i: run(configurations.figure2(i)) for i in (1, 2, 3, 4)},
    **{name: lambda name=name: run(configurations.golden(name)) for name in configurations.GOLDEN},
    "G1 alpha 1/10": lambda: run(configurations.golden("G1"), "1/10"),
    "G4 alpha 10": lambda: run(configurations.golden("G4"), 10),
    "gaussian d=1": lambda: gaussian(40, 1),
    "gaussian d=2": lambda: gaussian(100, 2, alpha=1),
    "gaussian d=3": lambda: gaussian(80, 3, alpha="1/3"),
    "gaussian d=8": lambda: gaussian(128, 8, alpha=2),
    "gaussian d=16": lambda: gaussian(60, 16),
    "spd d=2": lambda: gaussian(100, 2, A=spd(2)),
    "spd d=3": lambda: gaussian(100, 3, A=spd(3), alpha=2),
    "spd d=8": lambda: gaussian(64, 8, A=1e6 * spd(8)),
    "not symmetric": lambda: gaussian(30, 2, A=rotation(40)),
    "minus identity": lambda: gaussian(30, 2, A=-np.eye(2)),
    "indefinite": lambda: gaussian(30, 2, A=np.diag([1.0, -1.0])),
    "singular": lambda: gaussian(30, 2, A=np.diag([1.0, 0.0])),
    "float32": lambda: run(configurations.gaussian(60, 2).astype(np.float32)),
    "many ties": lambda: run(configurations.grid(20, 2, seed=1), "1/3"),
    "many ties d=3": lambda: run(configurations.grid(25, 3, seed=2, size=2), 2),
    "equal norms": lambda: run(EQUAL),
    "duplicates": lambda: run(configurations.gaussian(20, 3)[np.arange(50) % 20]),
    "a zero token": lambda: run(np.concatenate([SQUARE, [[0.0, 0.0]]])),
    "one token": lambda: run(np.array([[1.0, 2.0]])),
    "rotated square": lambda: run(configurations.rotated_square(0.3)),
    "large numbers": lambda: run(1e200 * configurations.gaussian(30, 2)),
    "small numbers": lambda: run(1e-200 * configurations.gaussian(30, 2)),
    "subnormal numbers": lambda: run(
        (2e-45 * np.round(configurations.gaussian(12, 2))).astype(np.float32)
    ),
    "one layer": lambda: gaussian(30, 2, layers=1),
    "many layers": lambda: gaussian(30, 2, layers=200, alpha=10),
    "opposite pairs": lambda: run(OPPOSITE, A=-np.eye(2)),
    "opposite pairs d=3": lambda: run(np.concatenate([BODY, -BODY]), 2, A=-spd(3)),
    "harmonic steps": lambda: cy.simulate(harmonic(40), OPPOSITE, layers=40),
    "polygon and inside": lambda: run(
        np.concatenate([configurations.polygon(7), 0.6 * configurations.ball(30, 2)])
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_what_applies_holds(name: str) -> None:
    for found in check(RUNS[name]()):
        assert found.applies == all(h.holds for h in found.hypotheses)
        assert (found.holds is None) == (not found.applies)
        assert found.holds in (True, None), (str(found), found.witness)
        if found.applies:
            assert 0 < found.margin < np.inf, str(found)
            json.dumps(found.witness, allow_nan=False)


# --- three cases for each statement --------------------------------------------------------------


@dataclass(frozen=True)
class Cases:
    """Names in RUNS where the statement holds and where it does not apply; tampered runs."""

    holds: tuple[str, ...]
    not_applicable: tuple[str, ...]
    sabotaged: tuple[Callable[[], Trajectory], ...]


def moved(name: str, token: int, layer: int, by: float = 1e-6) -> Callable[[], Trajectory]:
    """The run with one token shifted at one layer (-1 the last), outward when `by` > 0."""

    def build() -> Trajectory:
        tr = RUNS[name]()
        z = tr.values.copy()
        z[layer, token] *= 1 + by
        return replace(tr, z=z)

    return build


def born(name: str, token: int | slice, layer: int) -> Callable[[], Trajectory]:
    """The run with a wrong birth layer in its history."""

    def build() -> Trajectory:
        tr = RUNS[name]()
        assert tr.history is not None
        wrong = tr.history.born.copy()
        wrong[token] = layer
        return replace(tr, history=replace(tr.history, born=wrong))

    return build


def follows(name: str, token: int, other: int) -> Callable[[], Trajectory]:
    """The run whose record says C_token = {other} at layer 0 (distinct tokens: class = token)."""

    def build() -> Trajectory:
        tr = RUNS[name]()
        assert tr.history is not None
        first = tr.history.records[0]
        sets = np.split(first.indices, first.indptr[1:-1])
        sets[token] = np.array([other])
        indptr = np.concatenate(([0], np.cumsum([len(s) for s in sets])))
        record = Record(first.layer, first.ids, indptr, np.concatenate(sets))
        return replace(tr, history=replace(tr.history, records=(record, *tr.history.records[1:])))

    return build


def edited(name: str, edit: Callable[[np.ndarray], None]) -> Callable[[], Trajectory]:
    def build() -> Trajectory:
        tr = RUNS[name]()
        z = tr.values.copy()
        edit(z)
        return replace(tr, z=z)

    return build


def merge(z: np.ndarray) -> None:
    z[3:, 4] = z[3:, 3]


def stand_still(z: np.ndarray) -> None:
    z[1:] = z[0]


def shrink_a_corner(z: np.ndarray) -> None:
    z[:, 0] *= 0.1


CASES = {
    "B1": Cases(
        ("figure2 1", "gaussian d=8", "minus identity", "singular", "many ties"),
        (),
        (moved("figure2 1", 0, 3), moved("gaussian d=8", 5, -1, 1.0), moved("G3", 0, -1, 1e-13)),
    ),
    "B2": Cases(
        ("figure2 4", "gaussian d=3", "spd d=8", "minus identity", "a zero token"),
        ("not symmetric",),
        (moved("figure2 4", 7, 3, 1e-9), moved("G2", 5, 1), moved("spd d=3", 0, 5, -1e-3)),
    ),
    "B3": Cases(
        ("figure2 2", "G2b", "gaussian d=2", "spd d=3", "duplicates"),
        ("not symmetric", "minus identity", "a zero token"),
        (moved("figure2 2", 3, -1), moved("G2", 5, -1), moved("spd d=3", 0, -1, -1e-3)),
    ),
    "B4": Cases(
        ("figure2 4", "G2", "G4", "gaussian d=8", "spd d=2"),
        ("not symmetric", "singular", "a zero token"),
        (moved("G2", 5, -1, -0.1), moved("gaussian d=8", 0, -1, 0.1), moved("G1", 3, -2)),
    ),
    "B5": Cases(
        ("figure2 1", "figure2 2", "G4 alpha 10", "gaussian d=16", "spd d=3", "duplicates"),
        ("minus identity", "a zero token"),
        (
            moved("figure2 1", 0, -1, -1e-15),
            born("G1", 1, 0),
            born("G1", 3, 2),
            born("gaussian d=2", slice(None), -1),
            follows("G1", 3, 3),
        ),
    ),
    "B6": Cases(
        ("figure2 3", "gaussian d=3", "spd d=2", "not symmetric", "duplicates", "many ties"),
        ("minus identity", "singular", "one token"),
        (edited("figure2 3", merge), edited("not symmetric", merge), moved("duplicates", 0, 2)),
    ),
    "B7": Cases(
        ("figure2 1", "gaussian d=2", "spd d=8", "many ties d=3", "G2c"),
        ("not symmetric", "indefinite", "equal norms"),
        (edited("G2", shrink_a_corner), follows("G1", 2, 4), follows("figure2 3", 0, 5)),
    ),
    "B8": Cases(
        ("figure2 1", "gaussian d=2", "spd d=3", "not symmetric", "float32"),
        ("equal norms", "one token", "G2"),
        (moved("figure2 1", 8, 5, 1e-9), moved("not symmetric", 2, -1), follows("G1", 3, 2)),
    ),
    "B9": Cases(
        ("figure2 3", "gaussian d=2", "gaussian d=16", "spd d=3", "duplicates"),
        ("not symmetric", "one token"),
        (
            edited("figure2 3", lambda z: z[4:6].__setitem__((slice(None), 4), z[4, 0] * 0.999)),
            follows("figure2 1", 8, 0),
        ),
    ),
    "B10": Cases(
        ("figure2 1", "gaussian d=3", "spd d=8", "rotated square"),
        ("G2", "not symmetric", "a zero token"),
        (moved("figure2 1", 8, -1, 1e-3), born("G3", 1, -1), born("G3", slice(None), -1)),
    ),
    "B11": Cases(
        ("figure2 4", "G2", "G2a", "G2b", "G2c"),
        ("gaussian d=2", "rotated square", "not symmetric", "a zero token"),
        (
            edited("G2", lambda z: z[5:, 5].__iadd__([0.0, 1e-6])),
            follows("G2", 5, 0),
            moved("figure2 4", 4, -1),
        ),
    ),
    "B12": Cases(
        ("gaussian d=1",),
        ("gaussian d=2",),
        (moved("gaussian d=1", 3, 4, 1e-9), born("gaussian d=1", 0, 0)),
    ),
    "B13": Cases(
        ("equal norms", "one token"),
        ("gaussian d=2", "G2", "not symmetric"),
        (moved("equal norms", 2, -1, 3e-16), born("equal norms", 1, 1)),
    ),
    "B14": Cases(
        ("gaussian d=2", "gaussian d=8", "spd d=2", "spd d=3"),
        ("figure2 3", "not symmetric", "large numbers", "duplicates"),
        (born("gaussian d=2", slice(None), 0), born("gaussian d=8", slice(None), -1)),
    ),
    "B15": Cases(
        ("figure2 1", "gaussian d=3", "spd d=8", "many ties", "a zero token"),
        ("not symmetric", "indefinite"),
        (born("G1", 3, 0), moved("figure2 1", 0, 0, -0.9)),
    ),
    "B16": Cases(
        ("not symmetric",),
        ("gaussian d=2", "minus identity", "spd d=2"),
        (moved("not symmetric", 0, -1, 10.0), edited("not symmetric", merge)),
    ),
    "B17": Cases(
        ("G3", "equal norms", "polygon and inside"),
        ("G2", "G1", "gaussian d=2", "a zero token"),
        (moved("G3", 4, 3, 1e-9), follows("G3", 4, 0), moved("polygon and inside", 9, -1)),
    ),
    "B18": Cases(
        ("figure2 1", "gaussian d=8", "spd d=3", "minus identity", "duplicates", "many ties"),
        ("not symmetric",),
        (follows("G1", 3, 2), moved("figure2 1", 8, 0, -1.5), follows("polygon and inside", 9, 1)),
    ),
    "B19": Cases(
        ("figure2 2", "gaussian d=2", "spd d=8", "many ties"),
        ("not symmetric", "one layer", "minus identity"),
        (
            edited("gaussian d=2", stand_still),
            edited("spd d=3", stand_still),
        ),
    ),
    "B20": Cases(
        ("opposite pairs", "opposite pairs d=3", "harmonic steps"),
        ("minus identity", "gaussian d=2", "not symmetric"),
        (
            edited("opposite pairs", lambda z: z.__setitem__((9, 2), 20 * z[0, 0])),
            edited("harmonic steps", lambda z: z.__setitem__((30, 0), 20 * z[0, 0])),
        ),
    ),
}


def demand_verdict(name: str, trajectories: dict[str, Trajectory]) -> None:
    for case, tr in trajectories.items():
        found = THEOREMS[name](tr)
        assert found.applies and found.holds, (case, str(found), found.witness)
        assert found.margin > 0


def demand_silence(name: str, trajectories: dict[str, Trajectory]) -> None:
    for case, tr in trajectories.items():
        found = THEOREMS[name](tr)
        assert not found.applies and found.holds is None, (case, str(found))
        assert np.isnan(found.margin)
        assert "does not apply" in str(found)


def demand_alarm(name: str, trajectories: list[Trajectory]) -> None:
    for number, tr in enumerate(trajectories):
        found = THEOREMS[name](tr)
        assert found.applies, (number, str(found))
        assert found.holds is False and found.margin < 0, (number, str(found), found.witness)
        assert "FAILS" in str(found)
        json.dumps(found.witness, allow_nan=False)


@pytest.mark.parametrize("name", CASES)
def test_a_case_where_it_holds(name: str) -> None:
    demand_verdict(name, {case: RUNS[case]() for case in CASES[name].holds})


@pytest.mark.parametrize("name", CASES)
def test_a_case_whose_hypotheses_fail(name: str) -> None:
    unnormalised = cy.simulate(cy.dynamics.UnnormalizedAttention(), SQUARE, layers=3)
    runs = {case: RUNS[case]() for case in CASES[name].not_applicable}
    demand_silence(name, {"unnormalised": unnormalised, **runs})


@pytest.mark.parametrize("name", CASES)
def test_a_tampered_trajectory_is_caught(name: str) -> None:
    demand_alarm(name, [build() for build in CASES[name].sabotaged])


SOFT = {
    "softmax": cy.Softmax(4.0),
    "another A": cy.Softmax(3.0, [[1.0, -2.0], [0.5, 1e200]]),
    "causal": cy.attention.Causal(cy.Softmax(2.0)),
    "rotary": cy.attention.Rotary(cy.Softmax(2.0)),
    "local": cy.attention.Localmax(0.5),
    "heads": cy.attention.Heads([cy.Softmax(1.0), cy.Softmax(9.0, -np.eye(2))]),
}


@pytest.mark.parametrize("name", SOFT)
def test_hulls_shrink_in_any_layer_that_averages(name: str) -> None:
    """B1 is not about hardmax; a token outside of the hull of the layer before is seen."""
    for scale in (1.0, 1e-200, 1e100):
        z = scale * configurations.gaussian(30, 2, seed=1)
        tr = cy.simulate(cy.PureAttention(SOFT[name], alpha=0.7), z, layers=12)
        [found] = check(tr, only=["B1"])
        assert found.holds, found
        for layer in (1, 6, -1):
            moved = tr.values.copy()
            far = np.linalg.norm(moved[layer - 1] / scale, axis=1).argmax()
            moved[layer, 3] = moved[layer - 1, far] * 2
            assert check(replace(tr, z=moved), only=["B1"])[0].holds is False


@pytest.mark.parametrize(
    "rule",
    [
        cy.attention.Heads([cy.Softmax(1.0)], [2 * np.eye(2)]),
        cy.attention.Heads([cy.Softmax(1.0), cy.Softmax(2.0)], average=False),
        cy.attention.Sinkhorn(1.0),
    ],
)
def test_hulls_are_not_judged_where_layers_do_not_average(rule: cy.attention.Attention) -> None:
    tr = cy.simulate(cy.PureAttention(rule), configurations.gaussian(9, 2, seed=1), layers=3)
    assert "or of any mean" in why(tr)


# --- trajectories that cannot be judged -----------------------------------------------------------


def why(tr: Trajectory, name: str = "B1") -> str:
    found = THEOREMS[name](tr)
    assert found.holds is None
    return str(found)


def test_what_is_missing_is_named() -> None:
    whole = RUNS["figure2 1"]()
    sparse = cy.simulate(cy.PureAttention(), SQUARE, layers=6, save_every=2)
    batch = cy.simulate(cy.PureAttention(), np.stack([SQUARE, SQUARE / 2]), layers=6)
    assert "every layer saved" in why(sparse)
    assert "normalised layers of hardmax" in why(replace(whole, dynamics=None))
    assert "one configuration" in why(batch)
    assert "at least one layer" in why(run(SQUARE, layers=0))
    with pytest.raises(ValueError, match="select"):
        check(batch)
    assert all(c.holds for c in check(batch.select(1)) if c.applies)
    with pytest.raises(ValueError, match="unknown B99"):
        check(whole, only=["B99"])
    assert [c.theorem for c in check(whole, only=["B7", "B2"])] == ["B7", "B2"]


def test_padding_is_left_out() -> None:
    z = configurations.gaussian(25, 2)
    padded = np.concatenate([z, [[9.0, 9.0], [0.0, 0.0]]])[np.random.default_rng(0).permutation(27)]
    mask = (padded[:, 0] != 9) & (padded[:, 0] != 0)
    tr = cy.simulate(cy.PureAttention(), padded, layers=15, mask=mask)
    bare = cy.simulate(cy.PureAttention(), padded[mask], layers=15)
    for a, b in zip(check(tr), check(bare), strict=True):
        assert (a.applies, a.holds) == (b.applies, b.holds) and (a.holds in (True, None))
        assert a.margin == pytest.approx(b.margin, nan_ok=True)


def test_a_foreign_trajectory_without_history_is_judged() -> None:
    """States of a plain NumPy loop; then the same loop with first-index argmax on a tie."""
    dynamics = cy.PureAttention(alpha=0.5)

    def loop(z: np.ndarray, mean: bool) -> np.ndarray:
        out = [z]
        for _ in range(12):
            score = z @ z.T
            tie = score == score.max(axis=1, keepdims=True)
            p = (
                tie / tie.sum(axis=1, keepdims=True)
                if mean
                else np.eye(len(z))[score.argmax(axis=1)]
            )
            z = z + (p @ z - z) / 3
            out.append(z)
        return np.stack(out)

    model = run(SQUARE, layers=12)
    right = replace(model, z=loop(SQUARE, True), dynamics=dynamics, history=None)
    wrong = replace(model, z=loop(SQUARE, False), dynamics=dynamics, history=None)
    assert all(c.holds for c in check(right) if c.applies)
    # the wrong runs converge too, to corners: B2 and B4 hold for any choice among tied tokens
    verdict = {c.theorem: c.holds for c in check(wrong)}
    assert not verdict["B3"] and not verdict["B11"] and verdict["B2"] and verdict["B4"]


def test_torch_states_are_read() -> None:
    torch = pytest.importorskip("torch")
    tr = cy.simulate(cy.PureAttention(), torch.tensor(configurations.gaussian(20, 2)), layers=8)
    assert all(c.holds for c in check(tr) if c.applies)


def test_large_runs_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theorems.layers, "WORK", 1e5)
    for name in ("gaussian d=2", "spd d=8", "many ties d=3", "duplicates", "not symmetric"):
        for found in check(RUNS[name]()):
            assert found.holds in (True, None), (name, str(found), found.witness)


# --- negative facts, and the numbers behind the statements ----------------------------------------


def test_b2_really_needs_symmetry() -> None:
    forced = replace(THEOREMS["B2"], needs=())(gaussian(30, 2, A=rotation(60)))
    assert forced.applies and forced.holds is False and forced.witness["part"] == "identity"


def test_b16_three_tokens_collapse() -> None:
    """A turned by 75 degrees: each token chases the next, by |1 + e^{2 pi i/3}|/2 = 1/2 a layer."""
    tr = run(configurations.polygon(3), 1, A=rotation(75), layers=10)
    found = THEOREMS["B16"](tr)
    assert found.holds and found.witness["leaders"] == 0 and found.witness["norms_decreased"]
    assert found.witness["width_last_over_first"] < 2 * 0.5**10
    np.testing.assert_allclose(
        np.linalg.norm(tr.z, axis=2), 0.5 ** np.arange(11)[:, None] * np.ones(3)
    )
    assert cy.roles(tr).followed(7).target.tolist() == [1, 2, 0]


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(2, 9), st.integers(1, 3), st.sampled_from(["1/3", 1, 2]))
def test_identity_and_distances_in_rationals(seed: int, n: int, d: int, alpha: object) -> None:
    """The oracle: B2, B6 and B7 of one layer on integer tokens, with no rounding at all."""
    z = configurations.grid(n, d, seed=seed)
    a = Fraction(str(alpha))
    eta, rho = a / (1 + a), 1 / (1 + a)
    x = [[Fraction(int(v)) for v in row] for row in z]

    def dot(p: list[Fraction], q: list[Fraction]) -> Fraction:
        return sum((s * t for s, t in zip(p, q, strict=True)), Fraction(0))

    top = [max(dot(p, q) for q in x) for p in x]
    sets = [[q for q in x if dot(p, q) == m] for p, m in zip(x, top, strict=True)]
    mean = [[sum(c) / len(s) for c in zip(*s, strict=True)] for s in sets]
    after = [
        [rho * s + eta * t for s, t in zip(p, m, strict=True)] for p, m in zip(x, mean, strict=True)
    ]

    def minus(p: list[Fraction], q: list[Fraction]) -> list[Fraction]:
        return [s - t for s, t in zip(p, q, strict=True)]

    for p, q, m, s in zip(x, after, top, sets, strict=True):
        step = minus(q, p)
        assert dot(q, q) == dot(p, p) + 2 * eta * (m - dot(p, p)) + dot(step, step)
        assert all(dot(r, r) > dot(p, p) for r in s if r != p)
    for i in range(n):
        for j in range(i):
            u, v, w = minus(after[i], after[j]), minus(x[i], x[j]), minus(mean[i], mean[j])
            assert dot(u, u) >= rho**2 * dot(v, v) + eta**2 * dot(w, w)
    assert all(c.holds for c in check(run(z, alpha, layers=6)) if c.applies)


def test_b7_spectrum_is_the_diagonal() -> None:
    """Characteristic polynomials, since P may be defective and its eigenvalues ill conditioned."""
    for name in ("G2c", "many ties", "gaussian d=1"):
        for k in (0, 2):
            p = cy.roles(RUNS[name]()).followed(k).weights()
            classes = np.unique(RUNS[name]().values[0], axis=0, return_index=True)[1]
            same = (RUNS[name]().values[0][:, None] == RUNS[name]().values[0]).all(axis=2)
            q = (p @ same[:, classes])[classes]
            x = 1.5
            expected = np.prod(x - np.diag(q))
            assert np.linalg.det(x * np.eye(len(q)) - q) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("d", "n", "value"),
    [
        (1, 100, 2.0000), (2, 10, 3.8574), (2, 100, 6.2856), (2, 1000, 8.1251), (3, 100, 12.9449),
        (4, 128, 23.6627), (8, 128, 72.6945), (16, 128, 121.7880),
    ],
)  # fmt: skip
def test_expected_leaders(d: int, n: int, value: float) -> None:
    assert expected_leaders(n, d) == pytest.approx(value, abs=6e-5)
    assert expected_leaders(n, d, 3 * np.eye(d)) == pytest.approx(value, abs=6e-5)


def test_expected_leaders_against_simulation() -> None:
    A = np.diag([4.0, 1.0, 0.1])
    rng = np.random.default_rng(0)
    z = rng.standard_normal((400, 60, 3))
    score = z @ A @ z.transpose(0, 2, 1)
    counts = (score.argmax(axis=2) == np.arange(60)).sum(axis=1)
    error = counts.std() / np.sqrt(len(counts))
    assert abs(counts.mean() - expected_leaders(60, 3, A)) < 5 * error + 0.01 * counts.mean()
    assert expected_leaders(1, 5) == pytest.approx(1)
    with pytest.raises(ValueError, match="at least 1"):
        expected_leaders(0, 2)
    with pytest.raises(ValueError, match="shape"):
        expected_leaders(5, 2, np.eye(3))


def test_b14_yardstick_against_simulation() -> None:
    """The variance of |L_0| stays within twice the binomial one that the tolerance is built on."""
    rng = np.random.default_rng(1)
    for n, d in [(100, 2), (100, 3), (128, 8), (128, 16)]:
        z = rng.standard_normal((200, n, d))
        counts = ((z @ z.transpose(0, 2, 1)).argmax(axis=2) == np.arange(n)).sum(axis=1)
        mean = expected_leaders(n, d)
        assert counts.var() < 2 * mean * (1 - mean / n)


def test_b15_builds_a_form_for_vertices_only() -> None:
    """Oracle: vertices of conv(Z and 0) in the plane, from the exact hull."""
    z = np.round(configurations.gaussian(25, 2, seed=3) * 8) + 5
    vertices = {tuple(v) for v in cy.hull(np.concatenate([z, np.zeros((1, 2))])).vertices}
    label = np.unique(z, axis=0, return_inverse=True)[1].ravel()
    turns = np.linspace(0, 2 * np.pi, 1000)
    around = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    for i in range(len(z)):
        forms = [theorems.matrices._form_for(z / 64, label, i, c) for c in around]
        built = [A for A in forms if A is not None]
        assert bool(built) == (tuple(z[i]) in vertices)
        for A in built:
            assert (A == A.T).all() and np.linalg.eigvalsh(A)[0] > 0
            assert cy.Hardmax(A).followed(z).leads[i]


def test_b20_is_false_as_printed() -> None:
    """0 in K_0 is not enough: tokens -1, 3 become 5/3, 1/3, and J = 1/18 outlives any bound."""
    rule = cy.Hardmax(-np.eye(1))
    steps = Scheduled([cy.PureAttention(rule, Fraction(2, t)) for t in range(1, 581)])
    tr = cy.simulate(steps, [[-1.0], [3.0]], layers=580)
    np.testing.assert_allclose(tr.values[1:, :, 0].min(axis=1), 1 / 3, rtol=1e-12)
    found = THEOREMS["B20"](tr)
    assert not found.applies and "0 in every K_k" in str(found)
    printed = replace(THEOREMS["B20"], needs=())
    assert printed(tr).holds is False
    # the bound at time t = layer + 1 is 32/(t + 1): tests of a few hundred layers see nothing
    for layers, sign in [(400, 1), (580, -1)]:
        part = replace(tr, z=tr.values[: layers + 1], t=tr.t[: layers + 1])
        bounds = THEOREMS["B20"].evidence(DescentRun(part))
        assert np.sign([p.margin for p in bounds if "2c" in p.what]).tolist() == [sign]


def test_a_check_reads_as_a_sentence() -> None:
    found = THEOREMS["B1"](RUNS["G3"]())
    assert isinstance(found, Check) and found.arithmetic == "float64"
    assert str(found).startswith("B1 holds, margin ")
    assert THEOREMS["B13"](born("equal norms", 1, 1)()).arithmetic == "exact"


def test_the_list_of_checks_shows_how_many_hold() -> None:
    z = np.array([[1.0, 0.0], [0.0, 1.0], [0.3, 0.2]])
    checks = cy.check(cy.simulate(cy.PureAttention(), z, layers=4))
    held = sum(bool(c.holds) for c in checks)
    assert len(repr(checks)) < 100 and f"{held} hold" in repr(checks)
    assert "0 fail" in repr(checks) and checks[:1] == list(checks)[:1]
    page = checks._repr_html_()
    assert page.count(">holds<") == min(10, held) and f"... {len(checks) - 10} more" in page
