"""The attack in small: a slice of its cases, its oracle on cases worked by hand, and its judges.

The whole of it is `make attack`. A failure here prints what replays it.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import cynosure as cy
import oracle as other_oracle
from attack import compare
from attack.__main__ import FAILURES, line, report, run, table
from attack.cases import KINDS, MODES, Case, case, made
from attack.oracle import Run, if_constant, integers, surely
from attack.starts import KNOWN
from attack.workers import Result, attack

ROOT = Path(__file__).resolve().parent.parent
SQUARE = [(1, 1), (1, -1), (-1, -1), (-1, 1), (Fraction(1, 2), 0)]
FIRST, MORE = 300, 1200  # of the cases: now, and in `make test-all`; `make attack` has no end


# -- the slice ------------------------------------------------------------------------------------


def _failures(cases, most: int = 8) -> list[str]:
    """The first failures, as lines that say how to replay them."""
    out = []
    for result in attack(cases, workers=1):
        if result.outcome in FAILURES:
            out.append(f"{line(result)}\n{result.case.code()}")
            if len(out) == most:
                break
    return out


@pytest.mark.parametrize(
    "cases", [range(FIRST), pytest.param(range(FIRST, MORE), marks=pytest.mark.slow)], ids=str
)
def test_a_slice_of_the_attack(cases: range) -> None:
    failures = _failures(case(11, i) for i in cases)
    assert not failures, "\n".join(failures)


def test_what_was_once_wrong() -> None:
    rng = np.random.default_rng(0)
    modes = ("single", "masked batch", "limit", "transformed")
    cases = [made(s, mode, rng, -1, i, "known") for i, s in enumerate(KNOWN) for mode in modes]
    failures = _failures(cases)
    assert not failures, "\n".join(failures)


# -- the oracle -----------------------------------------------------------------------------------


def test_the_oracle_imports_nothing_of_the_package() -> None:
    tree = ast.parse((ROOT / "tests" / "attack" / "oracle.py").read_text("utf-8"))
    names = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    names |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    assert {name.split(".")[0] for name in names} <= set(sys.stdlib_module_names)


def test_a_tie_between_two_corners() -> None:
    run = Run(SQUARE, None, 1)
    assert run[0].sets == ((0,), (1,), (2,), (3,), (0, 1))
    assert [run[k].point(4)[0] for k in range(4)] == [
        Fraction(1, 2),
        Fraction(3, 4),
        Fraction(7, 8),
        Fraction(15, 16),
    ]
    assert run.born() == [0, 0, 0, 0, -1]
    assert surely(run[0], 4) is None and if_constant(run[0], 4) == (1, 0)


def test_a_follower_of_a_leader() -> None:
    run = Run([(2,), (1,)], None, "1/2")  # 1 <- 1 + (2 - 1)/3
    assert run[0].sets == ((0,), (0,))
    assert run[1].point(1) == (Fraction(4, 3),)
    assert surely(run[0], 1) == 0 and if_constant(run[0], 1) == (2,)


def test_tokens_that_meet_are_one_from_then_on() -> None:
    run = Run([(1,), (-1,)], [(-1,)], 1)  # each follows the other, halfway is 0 for both
    assert run[0].sets == ((1,), (0,))
    assert run[1].sets == ((0, 1), (0, 1)) and run[1].point(0) == run[1].point(1) == (0,)
    assert run.born(until=3) == [1, 1]
    slower = Run([(1,), (-1,)], [(-1,)], "1/2")
    assert slower.born(until=20) == [-1, -1]
    assert if_constant(slower[0], 0) == if_constant(slower[0], 1) == (0,)


def test_a_loop_in_a_tie() -> None:
    """y <- y/3 + 2/3 (y - 5)/3 ends where y = (y - 5)/3."""
    run = Run([(-2, -3), (0, 3), (2, -2)], [(1, 0), (0, 0)], 2)
    assert run[0].sets == ((0,), (0, 1, 2), (2,))
    assert if_constant(run[0], 1) == (0, Fraction(-5, 2))
    far = run[40].point(1)
    assert far[0] == 0 and abs(far[1] + Fraction(5, 2)) < Fraction(1, 10**9)


def test_a_cycle_of_two() -> None:
    run = Run([(1, 0), (0, 2)], [(-2, 1), (6, -3)], "1/2")
    assert run[0].sets == ((1,), (0,))
    assert if_constant(run[0], 0) == (Fraction(1, 2), 1)


def test_weights_of_a_closed_class_are_stationary() -> None:
    """0 follows 1; 1 follows 0 and itself: pi = (1/3, 2/3). Token 2 goes to either by halves."""
    layer = replace(Run([(0,), (3,), (9,), (7,)])[0], sets=((1,), (0, 1), (0, 3), (3,)))
    assert if_constant(layer, 0) == if_constant(layer, 1) == (2,)
    assert if_constant(layer, 2) == (Fraction(9, 2),)


def test_duplicates_count_in_a_tie_and_signed_zeros_are_equal() -> None:
    run = Run([(1.0, 1.0), (1.0, -1.0), (1.0, 1.0), (0.5, 0.0), (0.5, -0.0)], None, 1)
    assert run[0].sets[3] == run[0].sets[4] == (0, 1, 2)
    assert run[1].point(3) == (Fraction(3, 4), Fraction(1, 6))
    assert run.born()[:3] == [0, 0, 0]


def test_causal_tokens_look_back_only() -> None:
    run = Run([(1,), (2,), (1,), (-1,)], None, 1, causal=True)
    assert run[0].sets == ((0,), (1,), (1,), (3,))


def test_a_float_is_the_number_it_stores() -> None:
    rows, unit = integers([[0.1, 5e-324], [1e308, 1]])
    assert Fraction(rows[0][0], unit) == Fraction(0.1) != Fraction(1, 10)
    assert Fraction(rows[0][1], unit) == Fraction(1, 2**1074)
    assert Run([(5e-324,), (-5e-324,), (1e308,)])[0].sets == ((2,), (1,), (2,))


@pytest.mark.parametrize(("alpha", "born"), [("1/10", 61), ("1/2", 13), (2, 4), (10, 1)])
def test_the_late_leader_of_g4(alpha: str | int, born: int) -> None:
    """The layers of docs/mathematics.md C9."""
    z = [*SQUARE, ("11/10", "7/10"), ("11/10", "-7/10")]
    assert Run(z, None, alpha).born(until=born)[4] == born


def test_two_oracles_agree() -> None:
    rng = np.random.default_rng(3)
    for _ in range(40):
        z, A = rng.integers(-3, 4, (6, 2)).tolist(), rng.integers(-2, 3, (2, 2)).tolist()
        alpha = [1, Fraction(1, 2), 0.3][rng.integers(3)]
        states, sets = other_oracle.run(z, alpha, 6, A)
        run = Run(z, A, alpha)
        for k in range(6):
            assert [run[k].point(i) for i in range(6)] == states[k]
            assert [list(c) for c in run[k].sets] == sets[k]
        assert run.born(until=5) == other_oracle.born(states, sets)


# -- the judges -----------------------------------------------------------------------------------


def _square_limit(**changes):
    """What is said of the limit of the square when the answer is changed."""
    run = Run(SQUARE, None, 1)
    run.extend(20, lambda run: False)
    li = replace(cy.limit(cy.PureAttention(), SQUARE, exact=True), **changes)
    return list(compare.limit_faults(run, li, range(5), compare.Room.of(SQUARE)))


def test_a_right_limit_passes() -> None:
    assert _square_limit() == []


def test_a_wrong_limit_is_seen() -> None:
    li = cy.limit(cy.PureAttention(), SQUARE, exact=True)
    assert li.exact_points is not None

    def moved(i: int, to: tuple[Fraction | int, int]) -> dict[str, object]:
        points = li.points.copy()
        points[i] = [float(x) for x in to]
        exact = tuple(
            tuple(map(Fraction, to)) if j == i else p for j, p in enumerate(li.exact_points)
        )
        return {"points": points, "exact_points": exact}

    def seen(what: str, **changes: object) -> bool:
        return any(what in fault for fault in _square_limit(**changes))

    assert seen("tends to (1, 0), not (1, -1)", **moved(4, (1, -1)))
    assert seen("outside the hull", **moved(4, (2, 0)))
    # an exact limit that rounds to the right float is still wrong
    assert seen("tends to (1, 0), not", **moved(4, (1 - Fraction(1, 2**60), 0)))
    assert seen("token 0 tends to (1, 1), not (1, 0)", **moved(0, (1, 0)))
    assert seen("exact limit", points=moved(4, (1, -1))["points"])


def test_a_polytope_that_is_too_small_or_elsewhere_is_seen() -> None:
    li = cy.limit(cy.PureAttention(), SQUARE)
    room = compare.Room.of(SQUARE)
    assert list(compare.hull_faults(li, range(5), room)) == []
    for vertices, what in ((li.points[:2], "reaches"), (2 * li.points[:4], "the limit of no")):
        wrong = SimpleNamespace(
            points=li.points, certified=True, polytope=SimpleNamespace(vertices=vertices)
        )
        assert any(what in fault for fault in compare.hull_faults(wrong, range(5), room))


def test_a_wrong_birth_is_seen() -> None:
    born = cy.limit(cy.PureAttention(), SQUARE).born
    never = np.where(np.arange(5) == 0, -1, born)
    faults = _square_limit(born=never, leaders=np.flatnonzero(never >= 0))
    assert any("token 0 leads from layer 0, not -1" in f for f in faults)
    later = np.where(born == 0, 1, born)
    assert "token 0 leads from layer 0, not 1" in _square_limit(born=later)[0]
    assert "not those born" in _square_limit(leaders=np.array([0, 1]))[0]


def test_a_leader_that_does_not_lead_is_seen() -> None:
    assert "does not lead" in _square_limit(follows=np.array([0, 1, 2, 3, 4]))[0]
    assert "tends to leader 0" in _square_limit(follows=np.array([-1, 1, 2, 3, -1]))[0]
    assert "ends elsewhere" in _square_limit(follows=np.array([0, 1, 2, 3, 0]))[0]


def test_sets_that_change_after_a_token_settled_are_seen() -> None:
    """G4 with alpha = 1/2: nothing is constant before layer 13, whatever a proof says."""
    z = [*SQUARE, ("11/10", "7/10"), ("11/10", "-7/10")]
    z = [tuple(map(Fraction, row)) for row in z]
    run = Run(z, None, "1/2")
    run.extend(20, lambda run: False)
    li = cy.limit(cy.PureAttention(alpha="1/2"), z, exact=True)
    assert list(compare.limit_faults(run, li, range(7), compare.Room.of(z))) == []
    claim = np.where(np.arange(7) == 4, 2, li.settled_at)
    never = np.where(np.arange(7) == 4, -1, li.born)
    points = tuple(
        (Fraction(1), Fraction(0)) if i == 4 else p for i, p in enumerate(li.exact_points)
    )
    wrong = replace(
        li,
        settled_at=claim,
        born=never,
        leaders=np.flatnonzero(never >= 0),
        points=np.array([[float(x) for x in p] for p in points]),
        exact_points=points,
        follows=np.where(np.arange(7) == 4, -1, li.follows),
    )
    room = compare.Room.of(z)
    assert any("leads from layer 13" in f for f in compare.limit_faults(run, wrong, range(7), room))
    assert "changes at layer" in next(compare._constancy_faults(run, 4, 4, 2))


def test_wrong_sets_states_and_histories_are_seen() -> None:
    run = Run(SQUARE, None, 1)
    run.extend(3, lambda run: False)
    tr = cy.simulate(cy.PureAttention(), np.array(SQUARE, float), layers=3)
    real, room = range(5), compare.Room.of(SQUARE)
    assert tr.history is not None
    history = [a.tolist() for a in (tr.history.born, tr.history.settled_at, tr.history.leader)]
    sets = [c.tolist() for c in cy.roles(tr).followed(0)]
    assert not list(compare.set_faults(run[0], 0, sets, real))
    assert not list(compare.state_faults(run, tr.values, real, room))
    assert not list(compare.history_faults(run, *history, real))
    sets[4] = [0]
    assert "C_4 = [0, 1], not [0]" in next(compare.set_faults(run[0], 0, sets, real))
    moved = tr.values.copy()
    moved[2, 4, 0] += 1e-12
    assert "layer 2: token 4" in next(compare.state_faults(run, moved, real, room))
    moved[2, 4, 0] = np.nan
    assert "layer 2: token 4" in next(compare.state_faults(run, moved, real, room))
    born, settled_at, leader = history
    assert "leads from layer" in next(
        compare.history_faults(run, [1, *born[1:]], settled_at, leader, real)
    )
    follows = [*leader[:4], 0]
    assert "does not follow" in next(compare.history_faults(run, born, settled_at, follows, real))


def test_two_answers_that_differ_are_seen() -> None:
    one = cy.limit(cy.PureAttention(), SQUARE)
    room = compare.Room.of(SQUARE)
    assert not list(compare.pair_faults(one, one, range(5), room))
    two = replace(one, points=one.points + np.array([0, 1e-9]))
    assert "tends to" in next(compare.pair_faults(one, two, range(5), room))
    two = replace(one, born=one.born + 1)
    assert "is born" in next(compare.pair_faults(one, two, range(5), room))


# -- cases and workers ----------------------------------------------------------------------------


def test_a_case_is_made_again_by_its_number() -> None:
    for i in (0, 7, 1234):
        assert case(5, i) == case(5, i)
    assert case(5, 7) != case(6, 7)


def test_every_kind_and_every_mode_has_its_share() -> None:
    cases = [case(1, i) for i in range(600)]
    assert {c.kind for c in cases} == set(KINDS)
    assert {c.mode for c in cases} == set(MODES)
    assert {type(c.alpha) for c in cases} == {float, str}


def test_the_code_of_a_case_makes_its_tokens() -> None:
    for i in range(60):
        made_, space = case(2, i), {}
        exec(made_.code().split("\nlayers =")[0], space)  # without the calls
        z = made_.z if np.ndim(space["z"]) == 3 else made_.z[0]
        assert np.array_equal(space["z"], np.array(z))


def _misbehave(case: Case, longest: float) -> Result:
    """What a broken package could do to a worker, by the number of the case."""
    if case.index == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    while case.index == 2:
        pass
    return Result(case, "right")


def test_a_crash_and_a_loop_are_outcomes() -> None:
    cases = [replace(case(0, 0), index=i) for i in range(4)]
    results = {r.case.index: r for r in attack(cases, workers=1, longest=0.1, examiner=_misbehave)}
    assert [results[i].outcome for i in range(4)] == ["right", "crashed", "slow", "right"]
    assert "SIGSEGV" in results[1].faults[0]
    assert "0:1" in line(results[1])
    found = report(list(results.values()), 0.5, 1.0)
    assert found["outcomes"] == {"right": 2, "undecided": 0, "wrong": 0, "crashed": 1, "slow": 1}
    assert "crashed" in table(list(results.values()))


def test_a_run_that_is_stopped_has_written_what_it_did(tmp_path, monkeypatch, capsys) -> None:
    def stopped(cases, workers, longest):
        for made_ in cases:
            if made_.index == 7:
                raise KeyboardInterrupt
            yield Result(made_, "right")

    monkeypatch.setattr("attack.__main__.attack", stopped)
    monkeypatch.setattr("attack.__main__.SAVE_EVERY", 3)
    out = tmp_path / "attack.json"
    with pytest.raises(KeyboardInterrupt):
        run((case(11, i) for i in range(10)), 1, out, 1.0)
    kept = json.loads(out.read_text("utf-8"))
    assert (kept["cases"], kept["next"], kept["outcomes"]["right"]) == (6, 6, 6)
    assert [path.name for path in tmp_path.iterdir()] == ["attack.json"]


def test_a_replay_prints_the_case() -> None:
    command = [sys.executable, "-m", "tests.attack", "--replay", "0:1"]
    env = os.environ | {"PYTHONPATH": "src"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(case(0, 1).code()) and "# right" in done.stdout
