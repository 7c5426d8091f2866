"""Every fast kernel against the oracle, on sets."""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cynosure.engine.kernels import (
    Candidates,
    candidates,
    classes,
    place,
    planar,
    run_batch,
)
from cynosure.engine.kernels.planar import planar_candidates
from cynosure.engine.kernels.pruned import WIDTH, by_norm, pruned_candidates, reaches
from cynosure.engine.layers import certified_layers
from oracle import reference_candidates

U = 2.0**-53
RNG = np.random.default_rng(20240701)


def scale_of(q: np.ndarray, z: np.ndarray) -> np.ndarray:
    """What rounding can do to a score, several times over."""
    radius = np.linalg.norm(z, axis=1).max()
    return 16 * (z.shape[1] + 2) * U * np.linalg.norm(q, axis=1) * radius + 1e-300


def rows_of(found: Candidates) -> list[set[int]]:
    return [set(r.tolist()) for r in np.split(found.indices, found.indptr[1:-1])]


def complaints(found: Candidates, q: np.ndarray, z: np.ndarray, slack: np.ndarray) -> list[str]:
    """How `found` differs from the oracle by more than rounding allows; empty when it is right."""
    scores = q @ z.T
    best, err = scores.max(axis=1), scale_of(q, z)
    out = []
    if len(found.indptr) != len(q) + 1 or found.indptr[-1] != len(found.indices):
        return ["malformed indptr"]
    for i, row in enumerate(np.split(found.indices, found.indptr[1:-1])):
        if (np.diff(row) <= 0).any():
            out.append(f"row {i} is not ascending")
        must = np.flatnonzero(scores[i] >= best[i] - slack[i] + err[i])
        if lost := set(must.tolist()) - set(row.tolist()):
            out.append(f"row {i} lacks {sorted(lost)[:5]}")
        if (scores[i, row] < best[i] - slack[i] - err[i]).any():
            out.append(f"row {i} holds keys that are too low")
        if found.best[i] not in row or scores[i, found.best[i]] < best[i] - err[i]:
            out.append(f"row {i}: {found.best[i]} is not best")
        if len(found.gap):
            outside = np.delete(scores[i], row).max(initial=-np.inf)
            if outside == -np.inf:
                right = found.gap[i] == np.inf
            else:
                right = abs(found.gap[i] - (best[i] - outside)) <= err[i] + 1e-12 * abs(best[i])
            if not right:
                out.append(f"row {i}: gap {found.gap[i]} is not {best[i] - outside}")
    return out


def polygon(n: int, turn: float = 0.3) -> np.ndarray:
    t = turn + 2 * np.pi * np.arange(n) / n
    return np.column_stack((np.cos(t), np.sin(t)))


def disc(n: int) -> np.ndarray:
    t, r = RNG.uniform(0, 2 * np.pi, n), np.sqrt(RNG.uniform(size=n))
    return np.column_stack((r * np.cos(t), r * np.sin(t)))


def grid(k: int, d: int) -> np.ndarray:
    axes = np.meshgrid(*[np.arange(-(k // 2), k - k // 2, dtype=float)] * d)
    return np.column_stack([x.ravel() for x in axes])


def crowded(z: np.ndarray) -> np.ndarray:
    """Several tokens within a few units in the last place of each of z."""
    return np.unique(np.repeat(z, 7, axis=0) + 2e-16 * RNG.integers(-4, 5, (7 * len(z), 2)), axis=0)


NEXT = np.arange(60) - 1
LINE = np.linspace(-1, 2, 200)
PLANE = {
    "gaussian": RNG.normal(size=(500, 2)),
    "square": RNG.uniform(-1, 1, (500, 2)),
    "disc": disc(500),
    "shifted": disc(400) + [3.0, 1.0],
    "circle": polygon(300),
    "polygon with midpoints": np.vstack((polygon(60), (polygon(60) + polygon(60)[NEXT]) / 2)),
    "grid": grid(16, 2),
    "rotated grid": grid(14, 2) @ np.array([[0.6, -0.8], [0.8, 0.6]]),
    "axis": np.column_stack((LINE, np.zeros(200))),
    "upright": np.column_stack((np.full(200, 0.5), LINE)),
    "slanted line": np.column_stack((LINE, LINE / 3 + 0.1)),
    "crowded polygon": crowded(polygon(40)),
    "crowded square": crowded(grid(3, 2)),
    "two tokens": np.array([[1.0, 2.0], [-1.0, 0.5]]),
    "huge": 1e139 * RNG.normal(size=(200, 2)),
    "tiny": 1e-139 * RNG.normal(size=(200, 2)),
    "mixed magnitudes": RNG.normal(size=(300, 2)) * 10.0 ** RNG.integers(-160, 1, (300, 1)),
}  # fmt: skip


def sphere(n: int) -> np.ndarray:
    x = RNG.normal(size=(n, 3))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


BALL = sphere(300) * RNG.uniform(size=(300, 1)) ** (1 / 3)
CUBE = grid(3, 3)
SPACE = {
    **{f"gaussian {d}": RNG.normal(size=(400, d)) for d in (1, 3, 5, 8, 16, 40)},
    **{f"cube {d}": RNG.uniform(-1, 1, (300, d)) for d in (3, 8)},
    "grid 1": grid(150, 1),
    "grid 3": grid(6, 3),
    "grid 5": grid(3, 5),
    "flat in 3": np.column_stack((PLANE["square"], np.zeros(500))),
    "rotated grid 3": grid(6, 3) @ np.linalg.qr(RNG.normal(size=(3, 3)))[0],
    "flat and slanted": PLANE["disc"][:250] @ RNG.normal(size=(2, 3)) + [0.1, 0.2, 0.3],
    "line in 3": LINE[:, None] * [1.0, -0.5, 0.25],
    "sphere": sphere(250),
    "shell": sphere(250) * RNG.uniform(0.9, 1, (250, 1)),
    "thin shell": sphere(250) * RNG.uniform(1 - 1e-9, 1, (250, 1)),
    "ball": BALL,
    "shifted ball": BALL + [2.0, 1.0, 0.0],
    "pancake": BALL * [1.0, 0.6, 1e-9],
    "needle": BALL * [1.0, 1e-7, 1e-12],
    "ball in a cube": np.vstack((0.99 * BALL, CUBE)),
    "crowded cube": np.unique(
        np.repeat(CUBE, 9, axis=0) + 2e-16 * RNG.integers(-4, 5, (243, 3)), axis=0
    ),
    "crowded sphere": np.unique(
        np.repeat(sphere(40), 6, axis=0) + 1e-10 * RNG.integers(-4, 5, (240, 3)), axis=0
    ),
    "huge ball": 1e139 * BALL[:150],
    "tiny ball": 1e-139 * BALL[:150],
    "mixed magnitudes 3": RNG.normal(size=(200, 3)) * 10.0 ** RNG.integers(-160, 1, (200, 1)),
    "one token": np.array([[1.0, -2.0, 0.5]]),
}
SLACKS = [0.0, 1e-15, 1e-12, 0.1]
SPECIAL = {2: planar_candidates}  # the kernel of a dimension, if any


@pytest.mark.parametrize("runner_up", [False, True])
@pytest.mark.parametrize("slack", SLACKS)
@pytest.mark.parametrize("name", [*PLANE, *SPACE])
def test_candidates_are_those_of_the_oracle(name: str, slack: float, runner_up: bool) -> None:
    z = {**PLANE, **SPACE}[name]
    radius = np.linalg.norm(z, axis=1).max()
    d = z.shape[1]
    kernels = [candidates, pruned_candidates, *([SPECIAL[d]] if d in SPECIAL else [])]
    turned = z @ np.linalg.qr(RNG.normal(size=(z.shape[1],) * 2))[0].T
    for q in (z, turned, z[:5], np.vstack((z[:70], 0 * z[:1]))):
        allowed = slack * radius * np.linalg.norm(q, axis=1)
        for kernel in kernels:
            found = kernel(q, z, allowed, runner_up=runner_up)
            assert complaints(found, q, z, allowed) == []
            assert len(found.gap) == (len(q) if runner_up else 0)


def test_the_comparison_notices_a_missing_and_a_foreign_key() -> None:
    z = grid(6, 2)
    slack = np.full(len(z), 1e-9)
    right = reference_candidates(z, z, slack, runner_up=True)
    assert complaints(right, z, z, slack) == []
    row = int(np.argmax(np.diff(right.indptr) == 6))
    start = right.indptr[row]
    drop = start + (right.indices[start] == right.best[row])
    indptr = right.indptr - (np.arange(len(right.indptr)) > row)
    dropped = right._replace(indices=np.delete(right.indices, drop), indptr=indptr)
    assert any("lacks" in c for c in complaints(dropped, z, z, slack))
    foreign = right.indices.copy()
    foreign[start] = next(j for j in range(len(z)) if j not in rows_of(right)[row])
    assert complaints(right._replace(indices=foreign), z, z, slack)
    assert any("gap" in c for c in complaints(right._replace(gap=right.gap + 1), z, z, slack))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_integer_configurations_have_exactly_the_rational_ties(data: st.DataObject) -> None:
    """Scores of small integers are exact, so that the sets must be equal, not nearly equal."""
    d = data.draw(st.integers(1, 4))
    token = st.lists(st.integers(-3, 3), min_size=d, max_size=d).map(tuple)
    keys = data.draw(st.lists(token, min_size=1, max_size=40, unique=True))
    z = np.array(keys, dtype=float)
    A = np.array(data.draw(st.lists(token, min_size=d, max_size=d)), dtype=float)
    for q in (z, z @ A.T):
        exact = [[sum(int(x) * y for x, y in zip(r, k, strict=True)) for k in keys] for r in q]
        sets = [{j for j, s in enumerate(row) if s == max(row)} for row in exact]
        rest = [max((s for s in row if s < max(row)), default=-np.inf) for row in exact]
        for kernel in [candidates, pruned_candidates, *([SPECIAL[d]] if d in SPECIAL else [])]:
            found = kernel(q, z, np.zeros(len(q)), runner_up=True)
            assert rows_of(found) == sets
            assert found.gap.tolist() == [max(r) - s for r, s in zip(exact, rest, strict=True)]


def test_planar_sets_on_rotated_ties_are_exact_maximisers() -> None:
    """With a slack that covers rounding, the rational maximisers on the floats are never lost."""
    for turn in RNG.uniform(0, 6, 10):
        c, s = np.cos(turn), np.sin(turn)
        z = grid(9, 2) @ np.array([[c, -s], [s, c]])
        slack = 16 * U * np.linalg.norm(z, axis=1) * np.linalg.norm(z, axis=1).max()
        rows = rows_of(planar_candidates(z, z, slack))
        exact = [[Fraction(x) for x in row] for row in z.tolist()]
        for i in range(0, len(z), 7):
            scores = [sum(a * b for a, b in zip(exact[i], k, strict=True)) for k in exact]
            assert {j for j, v in enumerate(scores) if v == max(scores)} <= rows[i]


def test_lists_and_ties_that_need_more_room_are_searched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The room of a compiled search is fixed: where it is too small the search asks for more."""
    runs: list[str] = []

    def counted(module: ModuleType, name: str) -> None:
        search = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given: runs.append(name) or search(*given))

    counted(planar, "_walked")
    q, z, slack = np.tile([1.0, 0.0], (600, 1)), grid(20, 2), np.zeros(600)
    assert complaints(planar_candidates(q, z, slack), q, z, slack) == []
    assert len(runs) > 1


@pytest.mark.parametrize("width", [1e-2, 1e-6])
@pytest.mark.parametrize("name", ["sphere", "grid 3", "ball in a cube", "crowded cube"])
def test_a_narrow_beam_of_queries_finds_every_candidate(name: str, width: float) -> None:
    """Hundreds of queries in one direction, some of them exactly."""
    z = SPACE[name]
    for axis in ([1.0, 0.0, 0.0], [0.0, -1.0, 1.0], [-0.3, 0.2, -0.8]):
        q = np.array(axis) + width * RNG.normal(size=(600, 3))
        q[::4] = axis
        for slack in (np.zeros(600), np.full(600, 1e-12)):
            found = pruned_candidates(q, z, slack, runner_up=width < 1e-3)
            assert complaints(found, q, z, slack) == []


def test_large_grids_do_not_need_the_gram_matrix() -> None:
    """300 x 300 tokens: a gram matrix would take 65 GB."""
    z = grid(300, 2)
    found = candidates(z, z, np.zeros(len(z)))
    size = np.diff(found.indptr)
    zero = int(np.flatnonzero((z == 0).all(axis=1))[0])
    axes = (z == 0).any(axis=1)
    assert size[zero] == len(z)
    assert (size[axes & (np.arange(len(z)) != zero)] == 300).all() and (size[~axes] == 1).all()


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(ValueError, match="slack"):
        candidates(np.zeros((3, 2)), np.zeros((4, 2)), np.zeros(2))
    with pytest.raises(ValueError, match="at least one key"):
        candidates(np.zeros((3, 2)), np.zeros((0, 2)), np.zeros(3))
    with pytest.raises(ValueError, match="saves"):
        run_batch(np.zeros((1, 2, 2)), np.ones((1, 2), bool), None, 0.5, 0.5, np.array([3, 1]))


# -- value classes -----------------------------------------------------------------------------


@given(st.lists(st.tuples(*[st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.0])] * 2), max_size=60))
def test_classes_are_those_of_a_dictionary(rows: list[tuple[float, float]]) -> None:
    z = np.array(rows, dtype=float).reshape(-1, 2)
    seen: dict[tuple[float, float], int] = {}
    label = [seen.setdefault(row, len(seen)) for row in rows]  # -0.0 == 0.0 with equal hash
    found = classes(z)
    assert found.label.tolist() == label
    assert found.first.tolist() == [label.index(c) for c in range(len(seen))]
    assert found.count.tolist() == [label.count(c) for c in range(len(seen))]


def test_classes_of_many_tokens() -> None:
    z = RNG.integers(0, 50, (20_000, 3)).astype(float)
    z[::3] *= np.where(z[::3] == 0, -1.0, 1.0)
    rows, count = np.unique(z, axis=0, return_counts=True)
    found = classes(z)
    assert len(found.first) == len(rows) and (z[found.first][found.label] == z).all()
    assert sorted(found.count.tolist()) == sorted(count.tolist())


# -- batches -----------------------------------------------------------------------------------


def plain(z: np.ndarray, eta: float, layers: int, A: np.ndarray | None) -> tuple[np.ndarray, ...]:
    """All layers of one configuration by the definition, with floating argmax; tokens distinct."""
    n = len(z)
    born, settled, leader = (np.full(n, -1) for _ in range(3))
    out = [z]
    for k in range(layers + 1):
        z = out[-1]
        to = ((z if A is None else z @ A.T) @ z.T).argmax(axis=1)
        to = np.where(leader >= 0, leader, to)  # the last bits of a follower may beat its leader
        lead = to == np.arange(n)
        born[lead & (born < 0)] = k
        done = lead[to] & (settled < 0)
        settled[done], leader[done] = k, to[done]
        out.append(z + eta * (z[to] - z))
    return np.array(out[:-1]), born, settled, leader


@pytest.mark.parametrize("d", [1, 2, 3, 4, 9, 16])
@pytest.mark.parametrize("alpha", [0.1, 1.0, 2.35])
@pytest.mark.parametrize("matrix", [False, True])
def test_run_batch_is_the_definition(d: int, alpha: float, matrix: bool) -> None:
    z = RNG.normal(size=(12, 70, d)).astype(np.float32).astype(float)
    A = np.eye(d) + 0.2 * RNG.normal(size=(d, d)) if matrix else None
    mask = RNG.uniform(size=z.shape[:2]) < 0.9
    mask[0], mask[1], mask[2] = True, False, False
    mask[2, 7] = True
    saves = np.array([0, 3, 12, 40])
    found = run_batch(z, mask, A, alpha / (1 + alpha), 1 / (1 + alpha), saves)
    assert not found.unsure.any()
    for b, real in enumerate(mask):
        assert (found.z[:, b, ~real] == z[b, ~real]).all()
        for values in (found.born, found.settled_at, found.leader):
            assert (values[b, ~real] == -1).all()
        if not real.any():
            continue
        states, born, settled, leader = plain(z[b, real], alpha / (1 + alpha), 40, A)
        np.testing.assert_allclose(found.z[:, b, real], states[saves], rtol=0, atol=1e-12)
        assert found.born[b, real].tolist() == born.tolist()
        assert found.settled_at[b, real].tolist() == settled.tolist()
        names = np.append(np.flatnonzero(real), -1)
        assert found.leader[b, real].tolist() == names[leader].tolist()


def test_run_batch_takes_equal_tokens_as_one_class() -> None:
    base = RNG.normal(size=(60, 2))
    pick = RNG.integers(0, 60, 100)
    z, mask = base[pick][None], np.ones((1, 100), bool)
    z[0, 3, 0] = z[0, 4, 0] = 0.0
    z[0, 3, 1] = z[0, 4, 1] = 0.5
    z[0, 4, 0] = -0.0
    found = run_batch(z, mask, None, 0.5, 0.5, np.array([9]))
    label, first, _ = classes(z[0])
    alone = run_batch(z[:, first], mask[:, first], None, 0.5, 0.5, np.array([9]))
    assert not found.unsure.any() and len(first) < 100
    assert (found.z[:, 0] == alone.z[:, 0][:, label]).all()
    assert (found.born[0] == alone.born[0][label]).all()
    assert (found.leader[0] == first[alone.leader[0][label]]).all()
    assert (z[0, found.leader[0]] == z[0, found.leader[0][first]][label]).all()


@pytest.mark.parametrize("name", ["gaussian", "square", "disc", "shifted", "circle"])
@pytest.mark.parametrize("turned", [False, True])
def test_keys_forgotten_in_the_plane_are_never_followed(name: str, turned: bool) -> None:
    """Sixteen parts of a set of tokens through 30 layers, beside the walk that forgets nobody."""
    z = np.stack([RNG.permutation(PLANE[name])[:100] for _ in range(16)])
    A = np.array([[1.2, 0.4], [-0.3, 0.9]]) if turned else None
    mask, saves = np.ones((16, 100), bool), np.array([1, 7, 30])
    found = run_batch(z, mask, A, 0.2, 0.8, saves)
    assert found.unsure.mean() < 0.5
    for b in np.flatnonzero(~found.unsure):
        states, _, history = certified_layers(z[b], A, Fraction(1, 4), None, saves)
        assert np.abs(found.z[:, b] - states).max() < 1e-12
        for name_ in ("born", "settled_at", "leader"):
            assert (getattr(found, name_)[b] == getattr(history, name_)).all()


def test_run_batch_admits_what_it_cannot_decide() -> None:
    """A tie, a zero token, a near-tie below rounding and an absurd scale; and none of them."""
    square = [[1.0, 1], [1, -1], [-1, 1], [-1, -1], [0.5, 0]]
    near = [[1.0, 1], [1, -1], [-1, 1], [-1, -1], [0.5, 1e-17]]
    zero = [[1.0, 1], [1, -1], [-1, 1], [-1, -1], [0, 0]]
    clear = [[1.0, 1], [1, -1], [-1, 1], [-1, -1], [0.5, 0.1]]
    z = np.array([square, near, zero, clear, np.multiply(clear, 1e200)])
    found = run_batch(z, np.ones((5, 5), bool), None, 0.5, 0.5, np.array([4]))
    assert found.unsure.tolist() == [True, True, True, False, True]
    assert found.leader[3].tolist() == [0, 1, 2, 3, 0]


@pytest.mark.parametrize("n", [1, 64, 65, 5000])
@pytest.mark.parametrize("law", ["uniform", "heavy", "equal", "zero"])
def test_keys_come_by_decreasing_norm(n: int, law: str) -> None:
    norm = {
        "uniform": RNG.uniform(size=n),
        "heavy": np.exp(20 * RNG.normal(size=n)),
        "equal": np.ones(n),
        "zero": np.zeros(n),
    }[law]
    order = by_norm(norm)
    assert np.sort(order).tolist() == list(range(n))
    later = np.maximum.accumulate(norm[order][::-1])[::-1]  # the largest from here on
    assert (later <= norm[order] * (1 + 2.0**-10)).all()
    assert reaches(norm, order).tolist() == later[::WIDTH].tolist()


def test_place_is_an_assignment_of_rows() -> None:
    z, ids = RNG.normal(size=(50, 3)), RNG.permutation(50)[:20]
    limits, offsets = RNG.normal(size=(2, 20, 3))
    expected = z.copy()
    expected[ids] = limits + 0.3 * offsets
    place(z, ids, limits, offsets, 0.3)
    np.testing.assert_array_equal(z, expected)


def test_importing_the_package_compiles_nothing() -> None:
    code = "import sys, cynosure.engine.kernels; sys.exit('numba' in sys.modules)"
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=path, check=False).returncode == 0
