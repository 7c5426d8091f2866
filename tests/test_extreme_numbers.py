"""Finite tokens and finite parameters: a finite run or a clear refusal, never a NaN, never a hang.

Every dynamics with every attention and every stepper it takes, from tokens of 1e-300 to 1e300,
zeros, copies, one token, one dimension, and parameters as extreme. `judge` is judged itself.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cynosure as cy
from cynosure._types import definite
from cynosure.dynamics import DYNAMICS, Flow, ScheduledFlow
from cynosure.simulation.steppers import STEPPERS

SECONDS = 10  # for one run of a handful of tokens, which takes milliseconds


class Hang(Exception):
    """A run that did not come back."""


@contextmanager
def alarm(seconds: float = SECONDS) -> Iterator[None]:
    """Hang after so many seconds of computing: other programs on the machine do not count."""

    def ring(*_: Any) -> None:
        raise Hang

    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def judge(run: Callable[[], cy.Trajectory], seconds: float = SECONDS) -> str:
    """How a run ended: "refused" (an error that says what to do), or the code of its status."""
    with alarm(seconds), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what counts is what comes out
        try:
            tr = run()
        except (ValueError, TypeError, OverflowError) as error:
            assert ":" in str(error) and len(str(error)) > 30, f"no clear refusal: {error!r}"
            return "refused"
    assert np.isfinite(tr.values).all(), f"silently not finite: {tr!r}"
    assert len(tr.t) == len(tr.values)
    return tr.status.code


def starts() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    plain, line = rng.normal(size=(5, 2)), rng.normal(size=(4, 1))
    mixed = plain * 10.0 ** np.array([300, -300, 150, -150, 0])[:, None]
    return {
        "1e300": 1e300 * plain,
        "1e160": 1e160 * plain,
        "1e-160": 1e-160 * plain,
        "1e-300": 1e-300 * plain,
        "subnormal": 1e-320 * plain,
        "largest": np.finfo(float).max * np.sign(plain),
        "mixed": mixed,
        "columns": plain * [1e300, 1e-300],
        "zeros": np.zeros((3, 2)),
        "one zero": np.vstack([np.zeros(2), plain]),
        "copies": np.vstack([plain, plain]),
        "one": plain[:1],
        "one far": 1e300 * plain[:1],
        "line": 1e200 * line,
        "single": (1e38 * np.sign(plain)).astype(np.float32),
    }


def attentions() -> dict[str, Any]:
    big, small = np.diag([1e300, -1e300]), 1e-300 * np.array([[0.0, 1.0], [-1.0, 0.0]])
    return {
        "softmax": cy.Softmax(1.0),
        "hottest": cy.Softmax(1e-308),
        "coldest": cy.Softmax(1e308),
        "repelling": cy.Softmax(-1e308),
        "big A": cy.Softmax(1.0, big),
        "small A": cy.Softmax(1e300, small),
        "localmax": cy.attention.Localmax(0.1),
        "localmax of all": cy.attention.Localmax(1e308),
        "sinkhorn": cy.attention.Sinkhorn(1.0),
        "cold sinkhorn": cy.attention.Sinkhorn(1e308),
        "sinkhorn big A": cy.attention.Sinkhorn(-1e308, big, iterations=20),
        "causal": cy.attention.Causal(cy.Softmax(1e308)),
        "causal localmax": cy.attention.Causal(cy.attention.Localmax(0.0)),
        "heads": cy.attention.Heads(
            [cy.Softmax(1e308), cy.attention.Sinkhorn(2.0)], [None, 1e300 * np.eye(2)]
        ),
    }


def with_attention(name: str, attention: Any) -> Any:
    """A dynamics with this attention, None where it takes none or not this one."""
    kind = DYNAMICS[name]
    if kind is ScheduledFlow:
        return ScheduledFlow((cy.dynamics.AttentionFlow(attention), cy.dynamics.AttentionFlow()))
    try:
        return kind(attention=attention)
    except TypeError:
        return None


WITH = [n for n in DYNAMICS if n != "scheduled" and with_attention(n, cy.Softmax()) is not None]


def runs(dynamics: Any, z: np.ndarray) -> Iterator[Callable[[], cy.Trajectory]]:
    if not isinstance(dynamics, Flow):
        yield lambda: cy.simulate(dynamics, z, layers=3, throw=False)
        return
    for kind in STEPPERS.values():
        yield lambda kind=kind: cy.simulate(
            dynamics, z, time=0.5, stepper=kind(), throw=False, save_every=5
        )


def cases() -> list[tuple[str, str, str]]:
    """(start, dynamics, attention): all that fit together, in a fixed order."""
    found = []
    for start, z in starts().items():
        for label, attention in attentions().items():
            fits = z.shape[1] == 2 or (attention.A is None and label != "heads")
            found += [(start, name, label) for name in WITH if fits]
    return found


def check(chosen: list[tuple[str, str, str]]) -> dict[str, int]:
    seen: dict[str, int] = {}
    for start, name, label in chosen:
        dynamics = with_attention(name, attentions()[label])
        if dynamics is None:
            continue  # HeadsFlow takes softmax only
        for run in runs(dynamics, starts()[start]):
            try:
                code = judge(run)
            except (AssertionError, Hang) as error:
                raise AssertionError(f"{start}, {name}, {label}: {error!r}") from None
            seen[code] = seen.get(code, 0) + 1
    return seen


@pytest.mark.many
def test_a_slice_of_all_combinations() -> None:
    everything = cases()
    chosen = np.random.default_rng(0).choice(len(everything), 60, replace=False)
    seen = check([everything[i] for i in chosen])
    assert {"done", "moving", "overflow"} <= set(seen)  # the extremes were reached


@pytest.mark.many
@pytest.mark.slow
def test_all_combinations() -> None:
    check(cases())


@pytest.mark.parametrize("start", starts())
def test_every_dynamics_as_it_comes(start: str) -> None:
    for name in DYNAMICS:
        for run in runs(DYNAMICS[name](), starts()[start]):
            try:
                judge(run)
            except (AssertionError, Hang) as error:
                raise AssertionError(f"{start}, {name}: {error!r}") from None


@pytest.mark.parametrize("start", starts())
def test_every_attention_has_finite_weights_and_pulls_into_the_box(start: str) -> None:
    z = starts()[start]
    for name, attention in attentions().items():
        if name == "heads" or (attention.A is not None and z.shape[1] != 2):
            continue  # no single P; no matrix for one dimension
        with alarm(), np.errstate(all="ignore"):
            P, pulled = attention.weights(z), attention.pull(z)
        assert np.isfinite(P).all() and (P >= 0).all(), (name, start)
        rounding = 8 * len(z) * np.finfo(z.dtype).eps
        np.testing.assert_allclose(P.sum(axis=-1), 1, rtol=rounding)
        low, high = z.min(axis=0) / 2, z.max(axis=0) / 2  # halves: differences are floats
        room = rounding * np.abs(z).max(axis=0) / 2 + 1e-323
        assert (pulled / 2 >= low - room).all() and (pulled / 2 <= high + room).all(), (name, start)


# --- the judge is judged -------------------------------------------------------------------------


class Broken(cy.dynamics.LayerMap):
    """Wrong in the way it is told to be."""

    def __init__(self, how: str) -> None:
        self.how = how

    def step(self, z: Any, k: int, *, mask: Any = None) -> Any:
        while self.how == "hangs":
            pass
        raise ValueError("bad")


class Silent(Flow):
    """Says that all is well and gives NaN: no stepper lets it through."""

    def velocity(self, z: Any, t: float, *, mask: Any = None) -> Any:
        return np.full_like(z, np.nan)


def test_the_judge_notices_a_hang_a_bare_error_and_a_nan() -> None:
    z = np.ones((2, 2))
    with pytest.raises(AssertionError, match="no clear refusal"):
        judge(lambda: cy.simulate(Broken("errs"), z, layers=1))
    if hasattr(signal, "setitimer"):
        with pytest.raises(Hang):
            judge(lambda: cy.simulate(Broken("hangs"), z, layers=1), seconds=0.2)
    tr = cy.simulate(cy.dynamics.AttentionFlow(), z, time=1.0)
    tr.z[-1] = np.nan
    with pytest.raises(AssertionError, match="silently"):
        judge(lambda: tr)
    for run in runs(Silent(), z):
        assert judge(run) == "overflow"


def test_a_factor_beyond_the_floats_times_subnormal_tokens() -> None:
    """(1 + alpha)^k is infinite at layer 2, its product with the tokens is not."""
    z = np.array([[3e-310, -3e-310], [1e-310, 2e-310], [-2e-310, 1e-310]])
    grown = cy.simulate(cy.dynamics.UnnormalizedAttention(alpha=1e200), z, layers=4, throw=False)
    plain = cy.simulate(cy.PureAttention(alpha=1e200), z, layers=len(grown.t) - 1)
    assert grown.status.code == "overflow" and grown.t.tolist() == [0, 1, 2, 3]
    for k, layer in enumerate(grown.z):
        want = [[Fraction(x) * Fraction(1e200) ** k for x in row] for row in plain.z[k].tolist()]
        np.testing.assert_allclose(layer, np.array(want, dtype=float), rtol=1e-14)
    zero = cy.simulate(cy.dynamics.UnnormalizedAttention(alpha=1e300), np.zeros((2, 1)), layers=4)
    assert (zero.z == 0).all() and len(zero.t) == 5


@pytest.mark.parametrize("size", [1e-200, 1e-320, 1e200])
def test_a_batch_keeps_the_ties_of_a_form_whose_squares_are_no_floats(size: float) -> None:
    """(1, 2) scores 20 with (2, 9) and with (6, 7): the norm of 1e-200 I is not 0."""
    z = np.array([[1, 2], [2, 9], [6, 7], [-6, 7], [9, -2], [-9, 2], [-1, 2]], dtype=float)
    many = np.concatenate([z, -z, 0.5 * z])  # more than one group of keys
    layers = cy.PureAttention(cy.Hardmax(size * np.eye(2)), 4.0)
    got = cy.simulate(layers, np.stack([many, many]), layers=1).values[1]
    np.testing.assert_allclose(got[:, 0], [[17 / 5, 34 / 5]] * 2, rtol=1e-15)


def test_a_mean_of_tokens_is_a_float_where_their_sum_is_none() -> None:
    """Forty tokens of 1.7e308 tie for the last one, alone and in a batch."""
    z = np.column_stack([np.full(40, 1.7e308), np.linspace(-1e300, 1e300, 40)])
    z = np.concatenate([z, [[1.0, 0.0]]])
    layers = cy.PureAttention(alpha=1.0)
    one = cy.simulate(layers, z, layers=1).values[1]
    two = cy.simulate(layers, np.stack([z, z]), layers=1).values[1]
    for got in (one, *two):
        assert got[-1, 0] == pytest.approx(0.85e308, rel=1e-14)
        assert abs(got[-1, 1]) < 1e288
    assert not cy.limit(layers, z).undecided.size


@pytest.mark.parametrize("alpha", [0.3, 1.0, 1e16, 1e300])
def test_a_step_towards_the_largest_float_does_not_round_past_it(alpha: float) -> None:
    """z + half + half of a step of nearly 1 rounded to infinity."""
    top = np.finfo(float).max
    z = np.array([[1e200], [5e307], [-top], [top], [1.5e308]])
    dynamics = cy.PureAttention(cy.attention.Rotary(cy.Hardmax(np.array([[5.0]]))), alpha)
    got = cy.simulate(dynamics, z, layers=3).values
    for k in range(3):
        low, high = np.minimum(got[k], top), np.maximum(got[k], top)
        low[2] = high[2] = -top
        assert ((low <= got[k + 1]) & (got[k + 1] <= high)).all()


@pytest.mark.parametrize(("alpha", "layers"), [(1e-17, 10**17), (1e-12, 10**12), (2.0, 10**15)])
def test_many_layers_of_small_steps_arrive(alpha: float, layers: int) -> None:
    """The rounding of 1 / (1 + alpha) counts once, not once per layer: 1 + 1e-17 is not 1."""
    z, left = [[2.0, 0.0], [1.0, 0.5]], np.exp(-layers * np.log1p(alpha))
    run = cy.simulate(cy.PureAttention(alpha=alpha), z, layers=layers, save_every=layers)
    np.testing.assert_allclose(run.z[-1, 1], [2 - left, 0.5 * left], rtol=1e-14)
    if alpha < 1:
        free = cy.dynamics.UnnormalizedAttention(alpha=alpha)
        grown = cy.simulate(free, z, layers=layers, save_every=layers).z[-1]
        np.testing.assert_allclose(grown * left, run.z[-1], rtol=1e-14)


@pytest.mark.parametrize(
    "z",
    [
        [[1e-13, 1.0], [1e-13, -1.0], [5e-14, 0.0]],  # the limit (1e-13, 0) is nearly 0
        [[1e-308, 2.2e-308], [5e-324, -5e-324]],
        [[0.0, 5e-324], [1.0, 1.7e308], [2e-162, -1.0]],
        [[-1e308, -5e-324, -1e308], [1e-308, 2.2e-308, -1e308], [2e-308, 5e-324, 1e154]],
    ],
)
def test_no_statement_fails_on_tokens_of_very_different_sizes(z: list[list[float]]) -> None:
    """What is compared are the limits of the tokens given, not of what scaling leaves of them."""
    run = cy.simulate(cy.PureAttention(alpha=1.0), z, layers=6)
    assert [c for c in cy.check(run) if c.holds is False] == []


def test_a_small_column_beside_a_large_one_is_looked_at() -> None:
    """Rounding in one column excuses nothing in another."""
    run = cy.simulate(cy.PureAttention(cy.Hardmax(np.diag([1.0, 0.0]))), [[1e20, 1.0]], layers=3)
    run.values[2, 0, 1] += 1e-6
    assert [c.theorem for c in cy.check(run) if c.holds is False] == ["B39"]


def test_statements_of_a_run_that_grows_beyond_the_floats() -> None:
    """(1 + alpha)^1100 is no float, the tokens are."""
    free = cy.dynamics.UnnormalizedAttention(alpha=1.0)
    run = cy.simulate(free, [[2e-200, 0.0], [1e-200, 5e-201]], layers=1100)
    assert all(c.holds for c in cy.check(run) if c.applies)
    run.values[1099, 1, 0] *= 1.0001
    assert any(c.holds is False for c in cy.check(run))


def test_a_singular_form_is_not_definite() -> None:
    """Floats give [[1, 3], [3, 9]] a least eigenvalue above 0; one limit of two was no vertex."""
    z = [[1, 3], [0, 0], [-3, 0], [-1, 0], [3, -2]]
    layers = cy.PureAttention(cy.Hardmax([[1.0, 3.0], [3.0, 9.0]]))
    found = cy.limit(layers, z)
    assert found.certified and sorted(found.polytope.vertices.tolist()) == [[0, -1], [1, 3]]
    assert not any(c.holds is False for c in cy.check(cy.simulate(layers, z, layers=5)))
    rng = np.random.default_rng(0)
    for d in range(1, 8):
        root = rng.integers(-3, 4, (d, d - 1)).astype(float)
        assert not definite(root @ root.T)
        assert definite(root @ root.T + np.ldexp(np.eye(d), -46))  # exact in floats
        assert not definite(root @ root.T - np.ldexp(np.eye(d), -46))
    wide = rng.standard_normal((70, 69))
    assert not definite(wide @ wide.T) and definite(np.eye(70))
    assert definite(np.diag([1e300, 1e-300])) and not definite(np.diag([1.7e308, -5e-324]))


def test_a_limit_between_two_leaders_that_floats_cannot_tell_apart() -> None:
    z = [[-1, 2, 47], [-1, 2, -47], [3, 3, 0], [-8.25, 14.25, 5e-324], [-8.25, 14.25, -5e-324]]
    run = cy.simulate(cy.PureAttention(alpha="1/3"), z, layers=6)
    verdicts = {c.theorem: c for c in cy.check(run)}
    assert verdicts["B11"].applies and verdicts["B11"].holds


@pytest.mark.parametrize(
    ("z", "A"),
    [
        ([[1e308], [1e-160]], [[1.0]]),
        ([[1e154], [-1e308], [5e-324]], [[1.0]]),
        ([[16, 0], [16, -16], [0, -8], [-16, 0], [16, 16]], [[1e-19, 0.0], [0.0, 9.0]]),
    ],
)
def test_no_statement_fails_beyond_the_reach_of_scaling(z: Any, A: list[list[float]]) -> None:
    """Signs are those of the tokens given; distances those of the form, however flat it is."""
    run = cy.simulate(cy.PureAttention(cy.Hardmax(A)), z, layers=6)
    assert [c for c in cy.check(run) if c.holds is False] == []


def test_a_run_that_grows_too_large_at_once_has_its_start() -> None:
    free = cy.dynamics.UnnormalizedAttention(alpha=1.0)
    run = cy.simulate(free, [[1e308, 1.0], [3.0, 2.0]], layers=4, throw=False)
    assert run.status.code == "overflow" and run.t.tolist() == [0]
    assert not any(c.applies for c in cy.check(run))


def test_a_run_cut_short_knows_nothing_of_later_layers(tmp_path: Path) -> None:
    """It could not be loaded again: its roles were those of layers that it does not have."""
    z = [[7.5, 4.0], [4.0, -7.5], [4.0, 7.5], [-7.5, -4.0], [-4.0, -7.5]]
    free = cy.dynamics.UnnormalizedAttention(cy.Hardmax([[5.0, -12.0], [12.0, 5.0]]), 1e300)
    run = cy.simulate(free, z, layers=11, throw=False)
    assert run.t.tolist() == [0, 1] and run.history is not None
    assert run.history.settled_at.max() <= 1
    assert all(c.holds for c in cy.check(run) if c.applies)
    assert cy.load(run.save(tmp_path / "run.npz")).t.tolist() == [0, 1]


FLAT = [[4.00000000000001, 4.0, 0.0], [4.0, 4.00000000000001, 0.0], [0.0, 0.0, 1e-14]]
WIDE = [
    [2.2e-308, -1.0, -1.0, 1.7e308],
    [2.2e-308, -1e308, -1e154, 1e-154],
    [1.0, 0.0, 6.703903964971299e153, -1.0],
    [-1e154, 1e-154, 1e-154, -1e308],
    [2.2e-308, -5e-324, 2.2e-308, -1.0],
    [1e-154, 1e-308, 0.0, 0.0],
]
CROSSED = [[0, -2, 4], [2, -2, 0], [4, -6, -2], [-2, 2, 0], [0, 2, -4], [-4, 6, 2], [-4, -6, 2]]
CROSSED += [[2, -6, 4], [2, -4, -4], [-1, 2, 0], [4, 6, -2], [-2, 4, 4], [-2, 6, -4]]


@pytest.mark.parametrize(("z", "A", "layers"), [(CROSSED, FLAT, 3), (WIDE, None, 5)])
def test_flat_forms_and_vertices_that_floats_do_not_see(z: Any, A: Any, layers: int) -> None:
    """B6 saw a collision in the rounding of a norm; B17 applied though a vertex does not lead."""
    run = cy.simulate(cy.PureAttention(cy.Hardmax(A), 0.5), z, layers=layers)
    assert [c for c in cy.check(run) if c.holds is False] == []


def test_a_growth_beyond_the_floats_is_refused_where_tokens_grow() -> None:
    """It was a bare OverflowError of a division; normalised layers take any step."""
    with pytest.raises(ValueError, match=r"1 \+ alpha.*at most 1\.8e\+308.*PureAttention"):
        cy.dynamics.UnnormalizedAttention(alpha=Fraction(10**400))
    assert cy.limit(cy.PureAttention(alpha=Fraction(10**400)), np.eye(2)).certified


def test_forms_of_many_rows_and_scales_are_decided_soon() -> None:
    """Their minors have a hundred thousand digits: 20 s of integers before."""
    rng = np.random.default_rng(0)
    A = np.diag(10.0 ** rng.integers(-150, 150, 64)) + 1e-160
    with alarm():
        assert not cy.limit(cy.PureAttention(cy.Hardmax(A)), np.eye(64)).undecided.size
