"""control and remove_leader against linear programmes, rationals and the certified limit."""

from __future__ import annotations

import json
import sys
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

import oracle
from attack import leading
from cynosure import configurations
from cynosure._types import definite
from cynosure.analysis.control import contradictions
from cynosure.analysis.control.choosing import control_exactly, control_limit
from cynosure.analysis.control.removal import remove_leader
from cynosure.analysis.control.steering import _condition, _shortest, _turning, control
from cynosure.analysis.limits import limit
from cynosure.analysis.polytope import hull
from cynosure.attention import Hardmax
from cynosure.dynamics import PureAttention

INF = float("inf")


def can_lead(z: np.ndarray, i: int) -> bool:
    """The oracle: some c has <c, z_i - z_j> >= 1 for all z_j != z_i and <c, z_i> >= 1."""
    others = z[(z != z[i]).any(axis=1)]
    rows = np.vstack([others - z[i], -z[i : i + 1]])
    d = z.shape[1]
    lp = linprog(np.zeros(d), A_ub=rows, b_ub=-np.ones(len(rows)), bounds=[(None, None)] * d)
    assert lp.status in (0, 2)
    return lp.status == 0


STARTS = [
    *(configurations.gaussian(4 + s % 9, 1 + s % 4, s) for s in range(40)),
    *(configurations.grid(4 + s % 9, 1 + s % 3, s) for s in range(40)),  # ties, copies, zeros
    *(configurations.ball(15, 3, s) for s in range(5)),
    configurations.gaussian(12, 2, 3) + 5.0,  # 0 far outside
    configurations.golden("G2c"),  # tokens on edges
]


@pytest.mark.parametrize("z", STARTS, ids=range(len(STARTS)))
def test_a_token_can_lead_iff_it_is_a_vertex_with_zero(z: np.ndarray) -> None:
    corners = {tuple(v) for v in hull(np.vstack([z, 0 * z[:1]])).vertices.tolist()}
    for i in range(len(z)):
        found = control(z, i, condition=INF)
        assert found.feasible == can_lead(z, i)
        assert found.feasible == (tuple(z[i].tolist()) in corners and bool(z[i].any()))
        if found.feasible:
            assert definite(found.A) and found.margin > 0 and found.witness.reason == "leads"
            assert np.linalg.eigvalsh(found.A)[-1] == pytest.approx(1)
            assert Hardmax(found.A).followed(z).leads[i]
        else:
            w = found.witness
            assert found.A is None and w.reason == "inside" and w.token == i
            assert (w.weights >= 0).all() and w.weights.sum() <= 1 + 1e-12 and w.weights[i] == 0
            assert np.abs(w.weights @ z - z[i]).max() <= 1e-12 * np.abs(z).max()


def test_a_convex_combination_can_be_verified_in_rationals() -> None:
    """The weights, taken as exact numbers, give the token back to 1e-15 in exact arithmetic."""
    z = configurations.grid(14, 2, 5)
    seen = 0
    for i in range(len(z)):
        w = control(z, i).witness
        if w.reason != "inside" or not z[i].any():
            continue
        exact = [Fraction(x) for x in w.weights.tolist()]
        for a in range(2):
            error = sum(e * Fraction(x) for e, x in zip(exact, z[:, a].tolist())) - Fraction(
                z[i, a]
            )
            assert abs(error) <= Fraction(1, 10**14)
        seen += 1
    assert seen > 3


@pytest.mark.parametrize("seed", range(10))
def test_the_limit_confirms_a_single_leader(seed: int) -> None:
    z = configurations.gaussian(20, 3, seed)
    i = int(hull(np.vstack([z, 0 * z[:1]])).index[seed % 4])
    found = control(z, i)
    li = limit(PureAttention(Hardmax(found.A), alpha=0.5), z)
    assert li.certified and li.born[i] == 0 and np.array_equal(li.points[i], z[i])


def test_the_form_has_the_condition_number_that_was_promised() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        d = int(rng.integers(2, 6))
        own, q = (v / np.linalg.norm(v) for v in rng.standard_normal((2, d)))
        if own @ q < 0:
            q = -q
        A = _turning(own, q)
        image = A @ own
        assert image / np.linalg.norm(image) == pytest.approx(q, abs=1e-12)
        eigenvalues = np.linalg.eigvalsh(A)
        assert eigenvalues[-1] / eigenvalues[0] == pytest.approx(_condition(own, q), rel=1e-9)


def test_no_form_turns_a_vector_further_for_its_condition() -> None:
    """(1 + sin t)/(1 - sin t) is least: random forms of that condition never turn beyond t."""
    rng = np.random.default_rng(1)
    for _ in range(300):
        values = np.array([1.0, rng.uniform(1, 9)])
        q = np.linalg.qr(rng.standard_normal((2, 2)))[0]
        x = rng.standard_normal(2)
        image = (q * values) @ q.T @ x
        least = _condition(x / np.linalg.norm(x), image / np.linalg.norm(image))
        assert least <= values[1] * (1 + 1e-9)


def test_a_tight_bound_on_the_condition_is_a_reason() -> None:
    z = np.array([[2.0, 0.0], [0.2, 1.0], [1.5, 0.9]])
    free = control(z, 1)
    assert free.feasible
    bound = control(z, 1, condition=1.0001)
    assert not bound.feasible and bound.witness.reason == "condition"
    least = bound.witness.condition
    assert 1.0001 < least < free.condition
    just = control(z, 1, condition=1.001 * least)
    assert just.feasible and just.condition <= 1.001 * least * (1 + 1e-9)
    assert not control(z, 1, condition=0.999 * least).feasible


def test_the_shortest_vector_of_a_hull() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        rows = rng.standard_normal((6, 3)) + 0.5
        w = _shortest(rows)
        assert (w >= 0).all() and w.sum() == pytest.approx(1)
        p = w @ rows
        if np.linalg.norm(p) > 1e-9:  # optimality: a hyperplane through p supports the hull
            assert (rows @ p).min() == pytest.approx(p @ p, abs=1e-9)


@pytest.mark.parametrize("targets", [9, [0, 9], [], [[0]], [0.5], "a"])
def test_targets_that_are_no_tokens(targets) -> None:
    with pytest.raises(ValueError, match="targets"):
        control(np.eye(3), targets)


def test_a_condition_below_one_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="condition"):
        control(np.eye(3), 0, condition=1)


def test_equal_tokens_and_negative_indices_are_one_target() -> None:
    z = np.array([[2.0, 0.0], [0.0, 1.0], [0.0, 1.0], [-1.0, -1.0]])
    found = control(z, [1, -2])
    assert found.feasible and found.targets.tolist() == [1, 2]
    assert Hardmax(found.A).followed(z).leads[[1, 2]].all()


# --- where floats do not decide ------------------------------------------------------------------


def by_ulps(rng: np.random.Generator) -> np.ndarray:
    """Small whole numbers, moved by units of the last place, repeated, or on one line."""
    n, d = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    z = rng.integers(-2, 3, (n, d)).astype(float)
    way = int(rng.integers(5))
    if way == 0:
        z = 1 + z * 2.0**-52
    elif way == 1:
        z = z + rng.integers(-2, 3, (n, d)) * 2.0**-50
    elif way == 2:
        z = np.concatenate([z, z[:1], 0 * z[:1]])
    elif way == 3:
        z = z[:1] + rng.integers(-2, 3, n)[:, None] * z[-1:]
    return z


@pytest.mark.parametrize("part", range(4))
def test_an_answer_is_a_form_a_proof_or_undecided(part: int) -> None:
    """Judged in rationals: forms by the definition, proofs by minors, one token by simplices."""
    seen = {"leads": 0, "inside": 0}
    for seed in range(75):
        z = by_ulps(np.random.default_rng([part, seed]))
        exact = [tuple(map(Fraction, row)) for row in z.tolist()]
        for i in range(len(z)):
            found = control(z, i, condition=INF)
            assert list(leading.answer_faults(exact, [i], found)) == []
            if found.witness.reason != "undecided":
                assert found.feasible == leading.can_lead(exact, i), (z.tolist(), i)
            seen[found.witness.reason] = seen.get(found.witness.reason, 0) + 1
    assert min(seen["leads"], seen["inside"]) > 50 > 5 * seen.get("undecided", 0)


def test_a_token_beside_a_line_can_lead() -> None:
    """By 1e-12, and by one unit of the last place: a tolerance called both impossible."""
    for step in (1e-12, 2.0**-52):
        z = np.array([[1 + step, 0], [1, 1], [1, -1], [0, 0.5]])
        assert control(z, 0).feasible
        choice = control_exactly(z, [0, 1, 2])
        assert choice.found and naive_leaders(z, choice.A) == [0, 1, 2]
        assert control_limit(z, 0, tries=1).reason != "impossible"
    for z in ([[1, 0], [1, 1], [1, -1], [0, 0.5]], [[1 - 2.0**-53, 0], [1, 1], [1, -1]]):
        found = control(z, 0)
        assert found.witness.reason == "inside" and len(found.witness.proofs) == 1


@pytest.mark.parametrize("n", [1, 2, 5])
def test_zero_leads_where_there_is_nothing_else(n: int) -> None:
    z = np.zeros((n, 2))
    assert np.array_equal(control(z, 0).A, np.eye(2))
    for call in (control_exactly, control_limit):
        choice = call(z, 0)
        assert choice.found and choice.targets.tolist() == list(range(n))
    beside = control([[0.0, 0.0], [1.0, 0.0]], 0)
    assert not beside.feasible and beside.witness.reason == "inside"


def test_impossible_has_a_proof_that_minors_confirm() -> None:
    pytest.importorskip("cvxpy")
    kinds: dict[str, int] = {}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        z = rng.integers(-2, 3, (5, 1 + seed % 2)).astype(float)
        exact = [tuple(map(Fraction, row)) for row in z.tolist()]
        choice = control_exactly(z, rng.choice(5, 2, replace=False), tries=1)
        if choice.reason == "impossible":
            kinds[choice.witness.reason] = kinds.get(choice.witness.reason, 0) + 1
            assert list(leading.proof_faults(exact, choice.witness.proofs)) == [], z.tolist()
    assert min(kinds.get("inside", 0), kinds.get("together", 0)) > 3


def test_the_judges_of_proofs_refuse_wrong_ones() -> None:
    """Both of them: a proof for other tokens, with a weight too many, or of nothing."""
    z = np.array([[1.0, 0], [1, 1], [1, -1], [0, 0.5]])
    proof = control(z, 0).witness.proofs[0]
    exact = [tuple(map(Fraction, row)) for row in z.tolist()]
    away = [tuple(map(Fraction, row)) for row in (z + [[2.0**-52, 0], [0, 0], [0, 0], [0, 0]])]
    more = (*proof, (0, 3, Fraction(1, 10**9)))
    for tokens, claim, right in (
        (exact, proof, True),
        (away, proof, False),
        (exact, more, False),
        (exact, (), False),
        (exact, tuple((i, j, -w) for i, j, w in proof), False),
    ):
        rows = contradictions.whole(np.array(tokens, dtype=float))
        assert leading.refutes(tokens, claim) == right
        assert contradictions.refutes(rows, claim) == right


# --- several tokens ------------------------------------------------------------------------------


def sets_of_vertices(seed: int, d: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    z = configurations.gaussian(18, d, seed)
    vertices = hull(np.vstack([z, 0 * z[:1]])).index
    rng = np.random.default_rng(seed)
    vertices = vertices[vertices < len(z)]
    return z, rng.choice(vertices, min(size, len(vertices)), replace=False)


@pytest.mark.parametrize(("d", "size"), [(2, 2), (2, 4), (3, 5), (4, 8), (6, 4)])
def test_sets_lead_or_contradict_each_other(d: int, size: int) -> None:
    pytest.importorskip("cvxpy")
    for seed in range(4):
        z, targets = sets_of_vertices(seed, d, size)
        found = control(z, targets)
        if found.feasible:
            assert definite(found.A) and found.condition <= 1e6 * (1 + 1e-6)
            assert Hardmax(found.A).followed(z).leads[targets].all()
            li = limit(PureAttention(Hardmax(found.A)), z)
            assert li.certified and (li.born[targets] == 0).all()
            continue
        w = found.witness
        assert w.reason == "together" and (w.weights >= 0).all()
        S = np.zeros((d, d))  # sum of the inequalities, one by one
        for row, i in enumerate(found.targets):
            for j in np.flatnonzero(w.weights[row]):
                u, v = z[i] / np.linalg.norm(z[i]), z[i] - z[j]
                S += w.weights[row, j] * np.outer(u, v / np.linalg.norm(v))
        top = np.linalg.eigvalsh((S + S.T) / 2)[-1]
        assert top == pytest.approx(w.residual, abs=1e-12) and top <= 1e-9
        assert np.linalg.norm(S) > 1e-6  # 0 <= 0 would prove nothing


def test_both_answers_occur() -> None:
    pytest.importorskip("cvxpy")
    answers = {control(*sets_of_vertices(seed, 4, 9)).feasible for seed in range(6)}
    assert answers == {True, False}


def test_a_set_with_an_inner_token_names_it() -> None:
    z = np.array([[1.0, 0.0], [0.0, 1.0], [0.3, 0.3]])
    found = control(z, [0, 2])
    assert not found.feasible and found.witness.reason == "inside" and found.witness.token == 2
    assert "token 2" in str(found.witness) and "infeasible" in repr(found)


def test_what_already_leads_needs_no_solver() -> None:
    z = configurations.golden("G2")
    found = control(z, [0, 1, 2, 3])
    assert np.array_equal(found.A, np.eye(2)) and found.condition == 1


def test_the_missing_solver_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    z = np.array([[2.0, 0.0], [0.2, 1.0], [1.5, 0.9], [-2.0, 1.0]])
    assert control(z, 1).feasible  # one token needs nothing
    with pytest.raises(ImportError, match=r'pip install "cynosure\[control\]"'):
        control(z, [1, 2])


# --- they and nobody else ------------------------------------------------------------------------


def naive_leaders(z: np.ndarray, A: np.ndarray) -> list[int]:
    """Tokens that follow only tokens equal to themselves, in Fractions and by the definition."""
    rows, form = oracle.exact(z.tolist()), oracle.exact(A.tolist())
    sets = oracle.followed(rows, form)
    return [i for i, c in enumerate(sets) if all(rows[j] == rows[i] for j in c)]


def spread_form(rng: np.random.Generator, d: int) -> np.ndarray:
    """Eigenvalues over four decades."""
    q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    A = (q * 10.0 ** (-4 * rng.random(d))) @ q.T
    return (A + A.T) / 2


@pytest.mark.parametrize(("n", "d"), [(8, 1), (12, 2), (20, 2), (16, 3), (16, 6)])
def test_a_set_that_some_form_chooses_is_found(n: int, d: int) -> None:
    """The sets are taken from random forms, so each of them can be had: none may be missed."""
    rng = np.random.default_rng(d)
    z = configurations.gaussian(n, d, n + d)
    known = {tuple(naive_leaders(z, spread_form(rng, d))) for _ in range(12)}
    for targets in sorted(known)[:5]:
        choice = control_exactly(z, list(targets))
        assert choice.found and choice.tried >= 1 and len(choice.amiss) == 0, (targets, choice)
        assert definite(choice.A) and naive_leaders(z, choice.A) == list(targets)
        assert "exact sets" in repr(choice)


def test_equal_tokens_are_chosen_together() -> None:
    z = np.array([[2.0, 0.0], [0.2, 1.0], [1.5, 0.9], [0.2, 1.0], [0.1, 0.1], [0.0, 0.0]])
    choice = control_exactly(z, 1)
    assert choice.found and choice.targets.tolist() == [1, 3]
    assert naive_leaders(z, choice.A) == [1, 3]


def test_a_token_that_leads_whenever_the_targets_do() -> None:
    """Opposite ends of a line lead under every form; the proof names one, and forms agree."""
    z = np.array([[1.0, 0.0], [-2.0, 0.0], [0.5, 0.0]])
    choice = control_exactly(z, 0)
    assert choice.reason == "impossible" and not choice.found and choice.A is None
    assert choice.why == "token 1 leads whenever the targets do"
    assert choice.witness.token == 1 and choice.witness.residual <= 1e-9
    rng = np.random.default_rng(0)
    for _ in range(50):
        assert {0, 1} <= set(naive_leaders(z, spread_form(rng, 2)))


def test_forced_leaders_are_never_contradicted_by_random_forms() -> None:
    proofs = 0
    for seed in range(12):
        z = configurations.gaussian(10, 2, seed)
        rng = np.random.default_rng(seed)
        corners = hull(np.vstack([z, 0 * z[:1]])).index
        targets = rng.choice(corners[corners < 10], 2, replace=False).tolist()
        choice = control_exactly(z, targets, tries=2)
        if choice.reason != "impossible" or "whenever" not in choice.why:
            continue
        proofs += 1
        for _ in range(60):
            leads = Hardmax(spread_form(rng, 2)).followed(z).leads
            assert not leads[targets].all() or leads[choice.witness.token]
    assert proofs >= 1


def test_targets_that_cannot_lead_at_all_are_impossible() -> None:
    z = np.array([[2.0, 0.0], [0.2, 1.0], [1.5, 0.9], [0.1, 0.1]])
    choice = control_exactly(z, 3)
    assert choice.reason == "impossible" and "convex combination" in choice.why
    tight = control_exactly(z, 1, condition=1.0001)
    assert tight.reason == "not found" and "condition number" in tight.why


def test_what_is_not_found_says_what_is_amiss() -> None:
    z = configurations.gaussian(20, 3, 0)
    i = int(hull(np.vstack([z, 0 * z[:1]])).index[0])
    choice = control_exactly(z, i, tries=2)
    assert choice.reason == "not found" and choice.tried > 1
    assert 0 < len(choice.amiss) < 20 and f"wrong for {len(choice.amiss)} tokens" in choice.why


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_the_certified_limit_is_the_referee(alpha: float) -> None:
    z = configurations.gaussian(12, 2, 0)
    choice = control_limit(z, [3, 4], alpha=alpha)
    end = limit(PureAttention(Hardmax(choice.A), alpha=alpha), z)
    assert choice.found and end.certified and end.leaders.tolist() == [3, 4]


def test_leaders_that_join_later_count() -> None:
    """Under A = I one of these leads only later; a form is found under which all are leaders."""
    z = configurations.gaussian(9, 2, 63)
    end = limit(PureAttention(), z)
    assert (end.born > 0).any()
    choice = control_limit(z, end.leaders)
    again = limit(PureAttention(Hardmax(choice.A)), z)
    assert choice.found and again.certified and np.array_equal(again.leaders, end.leaders)
    early = control_limit(z, np.flatnonzero(end.born == 0))  # without those who joined
    assert not early.found or len(limit(PureAttention(Hardmax(early.A)), z).leaders) < len(
        end.leaders
    )


def test_nobody_of_the_targets_can_begin() -> None:
    z = np.array([[2.0, 0.0], [0.2, 1.0], [1.5, 0.9], [0.1, 0.1], [0.2, 0.1]])
    choice = control_limit(z, [3, 4])
    assert choice.reason == "impossible" and "where some token must" in choice.why
    assert choice.witness.reason == "inside" and choice.tried == 0


@pytest.mark.parametrize("call", [control_exactly, control_limit])
def test_searches_refuse_what_they_cannot_read(call) -> None:
    with pytest.raises(ValueError, match="targets"):
        call(np.eye(3), 5)
    with pytest.raises(ValueError, match="targets"):
        call(np.eye(3), [0, [1]])
    with pytest.raises(ValueError, match="tries"):
        call(np.eye(3), 0, tries=0)


def test_equal_tokens_are_chosen_together_for_the_limit() -> None:
    """A part of them cannot lead alone: that search had nobody to block the others by."""
    z = np.array([[-0.4, -1.1], [0.7, -1.1], [2.0, 0.9], [-0.4, 0.6], [1.6, 2.8]] * 2)
    choice = control_limit(z, 5, tries=1)
    assert choice.targets.tolist() == [0, 5]
    assert choice.reason in ("found", "not found", "impossible")
    with pytest.raises(ValueError, match="alpha"):
        control_limit(z, 5, alpha=float("nan"))


# --- taking the lead away ------------------------------------------------------------------------


def random_form(rng: np.random.Generator, d: int, floor: float = 0.05) -> np.ndarray:
    M = rng.standard_normal((d, d))
    A = M @ M.T + floor * np.eye(d)
    return (A + A.T) / 2


@pytest.mark.parametrize("seed", range(12))
def test_a_lead_is_taken_away_and_not_for_less(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, n = 2 + seed % 3, 4 + seed % 5
    z, A = rng.standard_normal((n, d)), random_form(rng, d)
    i = int(np.flatnonzero(Hardmax(A).followed(z).leads)[0])
    found = remove_leader(z, i, A)
    assert not Hardmax(A).followed(found.z).leads[i]
    assert found.follows in Hardmax(A).followed(found.z)[i]
    assert np.array_equal(np.delete(found.z, i, axis=0), np.delete(z, i, axis=0))
    step = found.z[i] - z[i]
    assert np.sqrt(step @ A @ step) == pytest.approx(found.distance)
    root = np.linalg.cholesky(A)
    for _ in range(200):  # any token, in any direction, by a little less: the lead stays
        way = np.linalg.solve(root.T, rng.standard_normal(d))
        moved = z.copy()
        moved[rng.integers(n)] += way * (0.999 * found.distance / np.sqrt(way @ A @ way))
        assert Hardmax(A).followed(moved).leads[i]


@pytest.mark.parametrize("seed", range(8))
def test_the_nearest_form_that_takes_the_lead_away(seed: int) -> None:
    """The oracle minimises over Cholesky factors, from many starts."""
    rng = np.random.default_rng(seed)
    z, A = rng.standard_normal((5, 2)), random_form(rng, 2, floor=1e-2 if seed % 2 else 0.5)
    i = int(np.flatnonzero(Hardmax(A).followed(z).leads)[0])
    found = remove_leader(z, i, A)
    assert found.A is not None and definite(found.A)
    assert not Hardmax(found.A).followed(z).leads[i]
    assert np.linalg.norm(found.A - A) == pytest.approx(found.change)

    def form(x: np.ndarray) -> np.ndarray:
        L = np.array([[x[0], 0.0], [x[1], x[2]]])
        return L @ L.T

    best = INF
    for j in range(len(z)):
        if j == i:
            continue
        over = {"type": "ineq", "fun": lambda x, j=j: -float(z[i] @ form(x) @ (z[i] - z[j]))}
        for _ in range(4):
            end = minimize(
                lambda x: float(((form(x) - A) ** 2).sum()),
                rng.standard_normal(3),
                constraints=[over],
                method="SLSQP",
            )
            if end.success and over["fun"](end.x) > -1e-9:
                best = min(best, float(np.sqrt(end.fun)))
    assert found.change <= best * (1 + 1e-3) + 1e-6


def test_no_form_prefers_a_shorter_token_of_the_same_direction() -> None:
    found = remove_leader([[2.0, 0.0], [1.0, 0.0]], 0)
    assert found.A is None and found.change == INF
    assert not Hardmax().followed(found.z).leads[0]


@pytest.mark.parametrize(
    ("z", "i", "A", "complaint"),
    [
        ([[2.0, 0.0], [1.0, 0.0]], 1, None, "does not lead"),
        ([[2.0, 0.0], [2.0, 0.0]], 0, None, "duplicates"),
        ([[2.0, 0.0]], 0, None, "only token"),
        ([[2.0, 0.0], [0.0, 1.0]], 0, [[1.0, 1.0], [0.0, 1.0]], "positive definite"),
        ([[2.0, 0.0], [0.0, 1.0]], 7, None, "indices of tokens"),
    ],
)
def test_there_must_be_a_lead_to_take(z, i, A, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        remove_leader(z, i, A)


def test_examples_run() -> None:
    import doctest

    # By name: the attribute `control` of the package may be the function.
    for name in ("steering", "removal", "choosing"):
        done = doctest.testmod(sys.modules[f"cynosure.analysis.control.{name}"])
        assert done.failed == 0 and done.attempted > 1


def test_the_command(tmp_path, monkeypatch, capsys):
    from cynosure.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("2,0\n0.2,1\n1.5,0.9\n0.1,0.1\n")
    assert main(["control", "t.csv", "--leaders", "1", "--out", "A.csv"]) == 0
    assert main(["limit", "t.csv", "--A", "A.csv", "--json"]) == 0
    assert 1 in json.loads(capsys.readouterr().out)["result"]["leaders"]
    assert main(["control", "t.csv", "--leaders", "3", "--json"]) == 1
    shown = capsys.readouterr()
    assert (
        json.loads(shown.out)["result"]["feasible"] is False and "convex combination" in shown.err
    )
    for bad in ("x", "9", "-1", ""):
        assert main(["control", "t.csv", f"--leaders={bad}"]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_the_command_confirms_by_the_limit_and_takes_a_lead_away(tmp_path, monkeypatch, capsys):
    from cynosure.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("2,0\n0.2,1\n1.5,0.9\n0.1,0.1\n")
    z = np.loadtxt("t.csv", delimiter=",")
    assert main(["control", "t.csv", "--leaders", "1", "--json"]) == 0
    limited = json.loads(capsys.readouterr().out)["result"]["limit"]
    assert limited["certified"] and 1 in limited["leaders"]
    assert limited["born"][limited["leaders"].index(1)] == 0
    assert main(["control", "t.csv", "--remove", "2", "--json", "--out", "A.csv"]) == 0
    found = json.loads(capsys.readouterr().out)["result"]
    A = np.loadtxt("A.csv", delimiter=",")
    assert np.array_equal(A, found["A"])
    assert Hardmax().followed(z).leads[2] and not Hardmax(A).followed(z).leads[2]
    moved = z.copy()
    moved[2] = found["moved"]["to"]
    assert not Hardmax().followed(moved).leads[2]
    for args in ([], ["--leaders", "1", "--remove", "2"], ["--leaders", "1", "--A", "A.csv"]):
        assert main(["control", "t.csv", *args]) == 2
        assert "--" in capsys.readouterr().err
    assert main(["control", "t.csv", "--remove", "3"]) == 2
    assert "does not lead" in capsys.readouterr().err


# --- any unit of length --------------------------------------------------------------------------

SIX = np.array([[2.0, 0.0], [0.2, 1.0], [1.5, 0.9], [0.1, 0.1], [-1.0, -0.7], [-0.4, 0.9]])


@pytest.mark.parametrize("k", [-1000, -664, -50, 50, 664, 1020])
def test_control_and_removal_do_not_see_a_power_of_two(k: int) -> None:
    z = np.ldexp(SIX, k)
    for i in range(len(SIX)):
        plain, far = control(SIX, i), control(z, i)
        assert far.feasible == plain.feasible and far.witness.reason == plain.witness.reason
        assert far.margin == plain.margin
        if plain.A is not None:
            np.testing.assert_array_equal(far.A, plain.A)
        elif plain.witness.weights is not None:
            np.testing.assert_array_equal(far.witness.weights, plain.witness.weights)
    leader = int(np.flatnonzero(Hardmax().followed(SIX).leads)[0])
    plain, far = remove_leader(SIX, leader), remove_leader(z, leader)
    np.testing.assert_array_equal(far.z, np.ldexp(plain.z, k))
    assert far.distance == np.ldexp(plain.distance, k) and far.follows == plain.follows
    np.testing.assert_array_equal(far.A, plain.A)
    assert far.change == plain.change
    h = k // 4
    form = np.ldexp(np.eye(2), 2 * h)
    other = remove_leader(SIX, leader, form)
    assert other.distance == np.ldexp(plain.distance, h)
    np.testing.assert_array_equal(other.A, np.ldexp(plain.A, 2 * h))


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_tokens_at_both_ends_are_steered(size: float) -> None:
    z = size * SIX
    assert control(z, 1).feasible and control(z, 3).witness.reason == "inside"
    removal = remove_leader(z, 0)
    assert not Hardmax().followed(removal.z).leads[0] and 0 < removal.distance < 2 * size


def test_tokens_of_very_different_size_are_steered() -> None:
    z = np.array([[1e200, 0.0], [0.0, 1e-200], [-1e-150, 0.0]])
    assert control(z, 0).feasible and not control(np.vstack([z, 0 * z[:1]]), 3).feasible
    removal = remove_leader(z, 0)
    assert not Hardmax().followed(removal.z).leads[0]


@pytest.mark.parametrize(
    ("z", "leader"),
    [([[0.0], [2.0]], 1), ([[0.0], [0.0], [2.0]], 2), ([[3.0, 4.0], [0.0, 0.0]], 0)],
)
def test_where_all_others_are_zero_one_of_them_has_to_move(z, leader: int) -> None:
    """The leader itself can only come to 0, where it is one of them and leads with them."""
    removal = remove_leader(z, leader)
    j = removal.follows
    assert j != leader and not Hardmax().followed(removal.z).leads[leader]
    assert Hardmax().followed(removal.z)[leader].tolist() == [j]
    still = np.delete(np.arange(len(z)), j)
    np.testing.assert_array_equal(removal.z[still], np.array(z)[still])
    np.testing.assert_allclose(removal.distance, np.linalg.norm(z[leader]), rtol=1e-11)
    assert removal.A is None  # no form prefers 0


def test_a_token_on_the_other_side_of_zero_is_followed_not_zero() -> None:
    removal = remove_leader([[2.0], [-1.0], [0.0]], 0)
    assert removal.follows == 1 and Hardmax().followed(removal.z)[0].tolist() == [1]


def test_tokens_that_are_all_equal_lead_whatever_the_form() -> None:
    found = control(-np.ones((5, 2)), 1)
    assert found.feasible


def test_a_lead_too_small_for_floats_is_taken_away_by_a_form() -> None:
    """Token 0 leads by 1 in 1e300; the form was given back as it is, and it led on."""
    z = np.array([[-1e-200, 1e150], [1e200, 1e150]])
    removal = remove_leader(z, 0)
    assert Hardmax().followed(z).leads[0]
    assert removal.A is not None and not Hardmax(removal.A).followed(z).leads[0]
    assert not Hardmax().followed(removal.z).leads[0]


def test_a_limit_for_which_no_form_could_be_tried_says_so() -> None:
    """It told of the best of 0 forms."""
    choice = control_limit(configurations.gaussian(9, 2, 1), [0], tries=1)
    assert choice.reason == "not found" and choice.tried == 0
    assert "no form is known under which only targets lead at layer 0" in choice.why
