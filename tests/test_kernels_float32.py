"""float32 in front of float64: its bound against rationals, its sets against the oracle."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from cynosure.engine.kernels import candidates, narrow, tile
from cynosure.engine.kernels.narrow import below_one, narrow_candidates, narrowed, score_error
from cynosure.engine.kernels.pruned import blocks, upper_norms
from cynosure.engine.kernels.tile import ROWS, WIDTH, scores
from oracle import reference_candidates
from test_kernels import complaints, rows_of, scale_of

RNG = np.random.default_rng(16)
HALF = 2.0**-24  # of a unit in the last place: what rounding to float32 moves most


def scattered(n: int, d: int, low: float) -> np.ndarray:
    """Every entry of another order of magnitude: float32 keeps some of them as subnormals."""
    return RNG.normal(size=(n, d)) * 10.0 ** RNG.uniform(low, 0, (n, d))


def hostile(d: int) -> dict[str, np.ndarray]:
    """Tokens whose float32 scores are as wrong as we know how to make them."""
    ones = np.ones((8, d))
    signs = np.where(RNG.uniform(size=(8, d)) < 0.5, -1.0, 1.0)
    return {
        "gaussian": RNG.normal(size=(8, d)),
        "rounded down": ones * (1 + HALF - 2.0**-40),
        "rounded up": ones * (1 + 3 * HALF + 2.0**-40),
        "cancelling": signs * (1 + HALF - 2.0**-40),
        "long first": np.column_stack((ones[:, :1], HALF * 0.99 * ones[:, 1:])),
        "subnormal": scattered(8, d, -50),
        "vanishing": np.column_stack((ones[:, :1] * 1e-30, 1e-60 * RNG.normal(size=(8, d - 1)))),
        "rows apart": RNG.normal(size=(8, d)) * 10.0 ** RNG.integers(-300, 1, (8, 1)),
        "huge": 1e139 * RNG.normal(size=(8, d)),
        "tiny": 1e-139 * RNG.normal(size=(8, d)),
        "a zero token": np.vstack((np.zeros((1, d)), RNG.normal(size=(7, d)))),
    }


def excess(z: np.ndarray) -> tuple[list[Fraction], np.ndarray]:
    """For each row the largest |float32 score - exact score| in scaled units, and its bound."""
    d = z.shape[1]
    power = below_one(np.abs(z).max())
    keys = blocks(z, np.arange(len(z)), power, np.float32)
    rows, norms, powers = narrowed(z)
    exact = [[Fraction(x) for x in row] for row in z.tolist()]
    worst = []
    for start in range(0, len(z), ROWS):
        few = np.zeros((ROWS, d), np.float32)
        few[: len(rows) - start] = rows[start : start + ROWS]
        s, low = np.empty((ROWS, WIDTH), np.float32), np.full(ROWS, -np.inf, np.float32)
        assert scores(few.reshape(-1), 0, keys.reshape(-1), 0, s, d, low, d, low, low) == 63
        for k, row in enumerate(s[: len(rows) - start, : len(z)].tolist()):
            unit = Fraction(powers[start + k]) * Fraction(power)
            right = [
                unit * sum((a * b for a, b in zip(exact[start + k], y, strict=True)), Fraction(0))
                for y in exact
            ]
            worst.append(max(abs(Fraction(a) - b) for a, b in zip(row, right, strict=True)))
    return worst, score_error(norms, upper_norms(z).max() * power, d)


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("d", [8, 9, 64, 130])
def test_the_bound_on_float32_scores_bounds_the_actual_error(d: int, flush: bool) -> None:
    """Also where a library has told this thread to flush subnormals to zero."""
    torch = pytest.importorskip("torch")
    tokens = hostile(d)
    if flush and not torch.set_flush_denormal(True):
        pytest.skip("this processor keeps subnormals")
    try:
        seen = {name: excess(z) for name, z in tokens.items()}
    finally:
        torch.set_flush_denormal(False)
    for name, (worst, bound) in seen.items():
        assert all(w <= Fraction(b) for w, b in zip(worst, bound.tolist(), strict=True)), name
    worst, bound = seen["rounded down"]  # the part for rounded entries is needed, and nearly used
    assert all(w > Fraction(1.9 * HALF) * d / 4 for w in worst)
    assert all(w > Fraction(b) / (2 * d) for w, b in zip(worst, bound.tolist(), strict=True))


def test_rows_are_scaled_below_one_by_powers_of_two() -> None:
    z = RNG.normal(size=(40, 9)) * 10.0 ** RNG.integers(-320, 300, (40, 1))
    z[3] = 0.0
    rows, norms, powers = narrowed(z)
    assert (np.frexp(powers)[0] == 0.5).all() and (np.abs(rows) <= 1).all()
    fair = np.abs(z).max(axis=1) > 1e-300
    assert (np.abs(rows).max(axis=1)[fair] >= 0.5).all()
    assert (norms >= np.linalg.norm(z * powers[:, None], axis=1)).all()


def near(z: np.ndarray, step: float) -> np.ndarray:
    """Each token with two others beside it, at a distance that float32 does not see, or hardly."""
    return np.vstack((z, z * (1 + step), z + step * RNG.normal(size=z.shape)))


LATTICE = np.unique(RNG.integers(-2, 3, (900, 8)).astype(float), axis=0)
KINDS = {
    **{f"gaussian {d}": RNG.normal(size=(600, d)) for d in (8, 11, 16, 64)},
    "late": RNG.normal(size=(400, 40)) * np.repeat([1e-3, 1.0], [30, 10]),
    "uniform": RNG.uniform(-1, 1, (700, 16)),
    "sphere": (lambda x: x / np.linalg.norm(x, axis=1, keepdims=True))(RNG.normal(size=(600, 8))),
    **{f"near {e}": near(RNG.normal(size=(200, 12)), 10.0**-e) for e in (6, 7, 8, 12, 15)},
    "a few near": np.vstack((near(RNG.normal(size=(9, 8)), 1e-9), RNG.normal(size=(600, 8)))),
    "lattice": LATTICE,
    "lattice among others": np.vstack((0.3 * LATTICE[:300], RNG.normal(size=(600, 8)))),
    "rows apart": RNG.normal(size=(500, 8)) * 10.0 ** RNG.integers(-160, 1, (500, 1)),
    "entries apart": scattered(500, 8, -60),
    "huge": 1e139 * RNG.normal(size=(300, 9)),
    "tiny": 1e-139 * RNG.normal(size=(300, 9)),
    "a zero token": np.vstack((np.zeros((1, 8)), RNG.normal(size=(400, 8)))),
}


@pytest.mark.parametrize("name", KINDS)
def test_sets_are_those_of_the_oracle(name: str) -> None:
    z = KINDS[name]
    turned = z @ np.linalg.qr(RNG.normal(size=(z.shape[1],) * 2))[0].T
    for q in (z, turned, np.vstack((z[-300:], 0 * z[:1]))):
        for slack in (0 * scale_of(q, z), scale_of(q, z), 1e-3 * scale_of(q, z) / 2.0**-53):
            for kernel in (narrow_candidates, candidates):
                found = kernel(q, z, slack)
                assert complaints(found, q, z, slack) == []


def test_integers_have_exactly_their_ties() -> None:
    """Scores of small integers are exact in both precisions: the sets must be equal."""
    z = LATTICE
    right = reference_candidates(z, z, np.zeros(len(z)))
    found = narrow_candidates(z, z, np.zeros(len(z)))
    assert rows_of(found) == rows_of(right) and np.diff(right.indptr).max() > 3


def test_only_what_float32_leaves_is_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[int] = []
    slow = narrow.pruned_candidates
    monkeypatch.setattr(
        narrow, "pruned_candidates", lambda q, *rest: again.append(len(q)) or slow(q, *rest)
    )
    for name, most in (("gaussian 64", 0), ("a few near", 600), ("gaussian 8", 30)):
        again.clear()
        z = KINDS[name]
        narrow_candidates(z, z, np.zeros(len(z)))
        assert sum(again) <= most and (again or name != "a few near")
    again.clear()
    z = KINDS["near 12"]  # the first rows say it all
    narrow_candidates(z, z, scale_of(z, z))
    assert again == [len(z)]


def test_the_judge_notices_a_bound_that_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow, "score_error", lambda norm, radius, d: 0.0 * norm)
    z = KINDS["near 7"]
    assert complaints(narrow_candidates(z, z, 0 * z[:, 0]), z, z, 0 * z[:, 0])


def test_the_judge_notices_scores_given_up_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound on the coordinates to come is needed: `late` has nearly all its length there."""
    monkeypatch.setattr(narrow, "above", lambda x: np.zeros(len(x), np.float32))
    z = KINDS["late"]
    q = z[:300]
    assert complaints(narrow_candidates(q, z, 0 * q[:, 0]), q, z, 0 * q[:, 0])


def test_the_judge_notices_a_start_that_is_too_high(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the largest score less the slack: members in other blocks of keys are lost."""
    z = KINDS["gaussian 8"]
    slack = 0.1 * (z * z).sum(axis=1)
    monkeypatch.setattr(
        narrow, "start_of", lambda rows, z, power, _: (rows @ z.T).max(axis=1) * power * 0.999
    )
    assert complaints(narrow_candidates(z, z, slack), z, z, slack)


def test_a_processor_unknown_to_llvm_has_small_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> None:
        raise RuntimeError("failed to get host cpu features.")

    monkeypatch.setattr(tile.llvm, "get_host_cpu_features", unknown)
    size, many = tile._registers()
    assert (size, many) == (16, 2) and WIDTH % (many * size // 4) == 0


def test_scores_are_given_up_only_below_the_bound() -> None:
    """A few coordinates, and what is missing by Cauchy-Schwarz: hits are those of whole scores."""
    d, first = 40, 12
    q, z = RNG.normal(size=(ROWS, d)), RNG.normal(size=(WIDTH, d))
    for dtype in (np.float32, np.float64):
        rows, keys = q.astype(dtype), z.astype(dtype)
        rest = [np.linalg.norm(x[:, first:], axis=1).astype(dtype) * (1 + 1e-5) for x in (q, z)]
        whole = rows @ keys.T
        for low in np.quantile(whole, (0.0, 0.5, 0.9, 0.99, 1.0)) - 1e-4:
            s, lows = np.zeros((ROWS, WIDTH), dtype), np.full(ROWS, low, dtype)
            args = rows.reshape(-1), 0, keys.T.reshape(-1).copy(), 0, s, d, lows, first
            hits = scores(*args, *(x.astype(dtype) for x in rest))
            assert [(hits >> k) & 1 for k in range(ROWS)] == (whole > low).any(axis=1).tolist()
            seen = whole > low
            assert np.allclose(s[seen], whole[seen], rtol=0, atol=1e-4)
            assert (np.isneginf(s) | np.isclose(s, whole, rtol=0, atol=1e-4)).all()
        assert scores(*args[:6], 2 * np.abs(lows) + d * d, *args[7:], *rest) == 0
