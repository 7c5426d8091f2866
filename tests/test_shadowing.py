"""shadow(): certificates of softmax runs, against 60 digits and against runs that end."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from fractions import Fraction
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest

import cynosure as cy
from cynosure.analysis.shadowing import Plateau, Shadow, Tube, enclosure, rounding, shadow
from cynosure.analysis.shadowing.enclosure import Enclosed, Form, Layer
from cynosure.analysis.shadowing.merging import _common, gathered
from cynosure.analysis.shadowing.record import law_of
from cynosure.analysis.shadowing.trap import Balls, Places, Sight, follow
from cynosure.cli import main

DIGITS = 60

pytestmark = pytest.mark.many


def _exact_layer(z: list, beta: float, A: np.ndarray, alpha: Fraction) -> list:
    """The definition of a softmax layer at 60 digits."""
    n, d = len(z), len(z[0])
    eta = mpmath.mpf(alpha.numerator) / (alpha.numerator + alpha.denominator)
    forms = [[mpmath.mpf(float(A[r, c])) for c in range(d)] for r in range(d)]
    out = []
    for x in z:
        query = [mpmath.fsum(forms[r][c] * x[c] for c in range(d)) for r in range(d)]
        scores = [beta * mpmath.fsum(q * y for q, y in zip(query, w, strict=True)) for w in z]
        top = max(scores)
        weights = [mpmath.exp(s - top) for s in scores]
        total = mpmath.fsum(weights)
        mean = [mpmath.fsum(weights[j] * z[j][c] for j in range(n)) / total for c in range(d)]
        out.append([x[c] + eta * (mean[c] - x[c]) for c in range(d)])
    return out


def _exact(z: np.ndarray) -> list:
    return [[mpmath.mpf(float(x)) for x in row] for row in z]


def _distance(exact: list, z: np.ndarray) -> np.ndarray:
    return np.array(
        [
            float(mpmath.sqrt(mpmath.fsum((x - mpmath.mpf(float(y))) ** 2 for x, y in zip(*two))))
            for two in zip(exact, z, strict=True)
        ]
    )


def _form(rng: np.random.Generator, d: int, kind: str) -> np.ndarray:
    if kind == "identity":
        return np.eye(d)
    M = rng.standard_normal((d, d))
    return M if kind == "any" else M @ M.T / d + 0.5 * np.eye(d)


def test_the_exponential_keeps_its_bound() -> None:
    x = np.random.default_rng(0).uniform(-700, 700, 4_000)
    x[:1_000] /= 700
    with mpmath.workdps(DIGITS):
        exact = [mpmath.exp(mpmath.mpf(float(a))) for a in x]
        pairs = zip(exact, rounding.exponential(x), strict=True)
        wrong = max(abs(mpmath.mpf(float(b)) / a - 1) for a, b in pairs)
    assert wrong < 2.0**-50
    assert rounding.exponential(np.array([-1e9, -np.inf])).max() <= np.exp(-699.0)


@pytest.mark.parametrize("d", [1, 2, 5, 32])
def test_eigenvalues_are_bounded_from_above_and_not_far(d: int) -> None:
    M = np.random.default_rng(d).standard_normal((20, d, d))
    S = M @ M.swapaxes(1, 2) * np.logspace(-12, 3, 20)[:, None, None]
    true = np.linalg.eigvalsh(S)[:, -1]
    found = rounding.largest_eigenvalues(S)
    assert (found >= true).all() and (found <= (1 + 1e-6) * d ** (1 / 16) * true).all()
    assert rounding.largest_eigenvalues(np.zeros((3, 2, 2))).max() == 0


def test_the_factor_covers_as_many_roundings_as_are_allowed() -> None:
    u = Fraction(1, 2**53)
    gamma = rounding.ROUNDINGS * u / (1 - rounding.ROUNDINGS * u)
    assert gamma <= Fraction(rounding.MORE) - 1 < 2 * gamma
    assert rounding.roundings(5_000, 64, 12) < rounding.roundings(60, 1_600, 8)
    assert rounding.roundings(60, 1_600, 8) < rounding.ROUNDINGS < rounding.roundings(2, 1_750, 1)
    with pytest.raises(ValueError, match="n = 2, d = 1750"):
        shadow(_model(1.0), np.eye(2, 1_750))


@pytest.mark.parametrize("kind", ["identity", "positive", "any"])
@pytest.mark.parametrize("beta", [0.5, 4.0, 30.0])
def test_tokens_are_as_near_to_the_exact_run_as_said(beta: float, kind: str) -> None:
    rng = np.random.default_rng(int(10 * beta))
    z, alpha = rng.standard_normal((7, 2)), Fraction(1, 3)
    A = _form(rng, 2, kind)
    now, exact = Enclosed.start(Layer.single(beta, A, alpha), z), _exact(z)
    nearest = np.inf
    with mpmath.workdps(DIGITS):
        for _ in range(25):
            after = now.step()
            if after is None:  # at most a few forms make rounding grow so fast
                break
            now, exact = after, _exact_layer(exact, beta, A, alpha)
            off = _distance(exact, now.z)
            assert (off <= now.error).all()
            nearest = min(nearest, float((now.error / np.maximum(off, 1e-300)).min()))
    assert now.k >= 5 and nearest < 1e6  # a bound, and not an idle one


def test_what_is_not_known_of_the_start_is_carried_along() -> None:
    """Two exact runs from the ends of a ball stay in the ball that is carried along."""
    rng = np.random.default_rng(3)
    z, beta, alpha = rng.standard_normal((6, 2)), 5.0, Fraction(1)
    law = Layer.single(beta, np.eye(2), alpha)
    away = rng.standard_normal((6, 2))
    away *= 1e-6 / np.linalg.norm(away, axis=1, keepdims=True)
    now = Enclosed(law, z, np.full(6, 1e-6))
    with mpmath.workdps(DIGITS):
        ends = [_exact(z + away), _exact(z - away)]
        for _ in range(12):
            after = now.step()
            assert after is not None
            now, ends = after, [_exact_layer(x, beta, law.forms[0].A, alpha) for x in ends]
            assert all((_distance(x, now.z) <= now.error).all() for x in ends)


def _moves(z: np.ndarray) -> Iterator[np.ndarray]:
    """One token at a time in eight directions, then all of them in directions of their own."""
    rng, n = np.random.default_rng(0), len(z)
    angles = np.arange(8) * np.pi / 4
    for x in np.column_stack((np.cos(angles), np.sin(angles))):
        for i in range(n):
            yield x * (np.arange(n) == i)[:, None]
    for _ in range(8):
        x = rng.standard_normal(z.shape)
        yield x / np.linalg.norm(x, axis=1, keepdims=True)


def _beyond(law: Layer, z: np.ndarray) -> bool:
    """Is some token farther from the layer of z than is carried along? Rounding, then moves."""
    form = law.forms[0]
    after = Enclosed.start(law, z).step()
    if after is None:
        return False
    with mpmath.workdps(DIGITS):
        exact = _exact_layer(_exact(z), form.beta, form.A, law.alpha)
        if (_distance(exact, after.z) > after.error).any():
            return True
    for size in (1e-6, 2e-3):
        now = Enclosed(law, z, np.full(len(z), size)).step()
        if now is None:
            continue
        for x in _moves(z):
            off = np.linalg.norm(_step(law, z + size * (1 - 1e-9) * x) - now.z, axis=1)
            if (off > now.error + 1e-13).any():
                return True
    return False


def _enclosures() -> Iterator[tuple[Layer, np.ndarray]]:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        z = rng.standard_normal((4, 2))
        beta, A = (3.0, 10.0)[seed // 2 % 2], np.eye(2)
        if seed % 2:  # token 0 looks at two others alike, at a large beta: rounding decides
            beta, A, turn = 1e8, -A, rng.uniform(0, 6) + np.array([0.0, 0.5, -0.5])
            z = np.column_stack((np.cos(turn), np.sin(turn)))
        yield Layer.single(beta, A, Fraction(9)), z


def _mutated(monkeypatch: pytest.MonkeyPatch, home: object, name: str, old: str, new: str) -> None:
    """The function, written with one term of its bound changed."""
    source = inspect.cleandoc("x\n" + inspect.getsource(getattr(home, name)))[1:].lstrip("\n")
    assert old in source
    module = inspect.getmodule(getattr(home, name))
    space = dict(vars(module))
    exec(source.replace(old, new), space)
    monkeypatch.setattr(home, name, space[name])


def test_one_layer_moves_tokens_no_farther_than_said() -> None:
    assert not any(_beyond(law, z) for law, z in _enclosures())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("own * e", "0 * e"),
        ("form.beta * (a + form.size * e)[:, None] * reach", "0 * reach"),
        ("M @ e", "0 * e"),
        ("2 * form.beta * slip * length * R", "0 * length"),
        ("own * e + rounded", "own * e"),
    ],
)
def test_each_term_of_a_layer_is_needed(
    monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    _mutated(monkeypatch, enclosure, "_mean", old, new)
    assert any(_beyond(law, z) for law, z in _enclosures())


# --- the tube -------------------------------------------------------------------------------------


def _clusters(seed: int, kind: str = "layers", heads: int = 1, *, causal: bool = False) -> tuple:
    """A few tight clusters, of different sizes, that meet after 10 to some 1000 layers."""
    rng = np.random.default_rng(seed)
    c, d = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    forms = []
    for _ in range(heads):
        turn = rng.standard_normal((d, d))
        A = np.eye(d) + (0.0, 0.15, 0.4)[seed % 3] * (turn - turn.T * (seed % 2))
        forms.append(Form(float(rng.uniform(2.0, 9.0)), A, causal))
    centres = rng.standard_normal((c, d))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    if kind != "sphere":
        centres *= rng.uniform(1.0, 1.3, (c, 1))
    label = np.repeat(np.arange(c), rng.integers(1, 5, c))
    label = rng.permutation(label) if causal else label
    spread = 10.0 ** rng.uniform(-9, -3)
    z = centres[label] + spread * rng.uniform(-1, 1, (len(label), d)) / np.sqrt(d)
    tokens = tuple(np.flatnonzero(label == a) for a in range(c))
    if kind == "sphere":
        z /= np.linalg.norm(z, axis=1, keepdims=True)
    middle = np.array([z[i].mean(axis=0) for i in tokens])
    if kind == "sphere":
        middle /= np.linalg.norm(middle, axis=1, keepdims=True)
    radius = np.array(
        [np.linalg.norm(z[i] - m, axis=1).max() for i, m in zip(tokens, middle, strict=True)]
    )
    alpha = Fraction(int(rng.integers(1, 5)), 2) if kind == "layers" else None
    law = Layer(tuple(forms), alpha, kind == "sphere")
    return law, Balls(middle, np.arange(c), radius + 1e-14, tokens), z


def _mean(law: Layer, z: np.ndarray) -> np.ndarray:
    """Softmax means as they are defined, averaged over heads."""
    out = np.zeros_like(z)
    for form in law.forms:
        scores = form.beta * (z @ form.A.T @ z.T)
        if form.causal:
            scores = np.where(np.tri(len(z), dtype=bool), scores, -np.inf)
        P = np.exp(scores - scores.max(axis=1, keepdims=True))
        out += (P @ z) / P.sum(axis=1, keepdims=True)
    return out / len(law.forms)


def _step(law: Layer, z: np.ndarray) -> np.ndarray:
    return z + law.eta * (_mean(law, z) - z)


def _states(law: Layer, z: np.ndarray, times: np.ndarray) -> Iterator[np.ndarray]:
    """The run at whole layers; a flow by an integrator of high order from elsewhere."""
    if not law.flows:
        k = 0
        for t in times:
            while k < round(t):
                z, k = _step(law, z), k + 1
            yield z
        return
    from scipy.integrate import solve_ivp

    def velocity(t: float, y: np.ndarray) -> np.ndarray:
        x = y.reshape(z.shape)
        m = _mean(law, x)
        along = (m * x).sum(axis=1, keepdims=True) if law.sphere else 1.0
        return (m - along * x).ravel()

    if len(times) == 1:
        yield z
        return
    how = {"method": "DOP853", "rtol": 1e-11, "atol": 1e-12}
    found = solve_ivp(velocity, (0.0, times[-1]), z.ravel(), t_eval=times, **how)
    yield from found.y.T.reshape(-1, *z.shape)


def _outside(law: Layer, tube: Tube, z: np.ndarray, most: int = 1_000) -> float:
    """By how much a token is ever outside the tube, as a share of its width; < 0 for never."""
    logs = np.minimum(tube.log_layers, 700.0)
    times = np.where(np.isinf(tube.log_layers), 0.0, np.exp(logs))
    seen = np.flatnonzero(times <= most)
    if law.flows:
        seen = np.unique(np.linspace(0, len(seen) - 1, min(len(seen), 40)).astype(int))
    worst, rounded = -np.inf, 1e-9 if law.flows else 1e-11
    for s, x in zip(seen, _states(law, z, times[seen]), strict=True):
        for a, tokens in enumerate(tube.balls.tokens):
            off = np.linalg.norm(x[tokens] - tube.path[s][tube.balls.first[a]], axis=1).max()
            worst = max(worst, off / (tube.width[s, a] + rounded) - 1)
    return worst


def test_no_token_ever_leaves_the_tube() -> None:
    followed = 0
    for seed in range(80):
        law, balls, z = _clusters(seed)
        tube = follow(law, balls, steps=300)
        assert _outside(law, tube, z) <= 0
        followed += 5 < np.exp(min(tube.lasts, 700.0)) < 1_000
    assert followed > 8  # these were seen to their end


@pytest.mark.parametrize(
    ("kind", "heads", "causal"),
    [
        ("layers", 2, False),
        ("layers", 1, True),
        ("flow", 1, False),
        ("flow", 2, True),
        ("sphere", 1, False),
        ("sphere", 2, False),
        ("sphere", 1, True),
    ],
)
def test_nor_that_of_flows_heads_and_causal_attention(kind: str, heads: int, causal: bool) -> None:
    followed = 0
    for seed in range(40 if kind == "layers" else 5):
        law, balls, z = _clusters(seed, kind, heads, causal=causal)
        tube = follow(law, balls, steps=60)
        assert _outside(law, tube, z, 200) <= 0
        followed += tube.lasts > -3
    assert followed > 2


@pytest.mark.slow
def test_five_thousand_starts_stay_in_their_tubes() -> None:
    _stay_in_their_tubes(range(5_000))


def _stay_in_their_tubes(seeds: range) -> None:
    """Mostly layers; two in ten are flows; heads and causal attention among them."""
    for seed in seeds:
        kind = {8: "flow", 9: "sphere"}.get(seed % 10, "layers")
        law, balls, z = _clusters(seed, kind, 1 + seed // 10 % 2, causal=seed // 20 % 4 == 3)
        assert _outside(law, follow(law, balls, steps=150), z, 400) <= 0, seed


def _gaps_miss(seed: int) -> bool:
    """Places that move and are off their points, drawn at random: is a gap out of its bounds?"""
    law, balls, _ = _clusters(seed)
    rng, points = np.random.default_rng(seed), balls.points
    c, d = points.shape
    A, v = law.forms[0].A, rng.standard_normal((c, d))
    rho, half = np.full(c, 10.0 ** rng.uniform(-6, -1)), 10.0 ** rng.uniform(-6, -1)
    low, high = Places(law, balls, points).sights[0].gaps(rho, v, half)

    def place(a: int, t: float) -> np.ndarray:
        off = rng.standard_normal(d)
        return points[a] + t * v[a] + rho[a] * off / np.linalg.norm(off)

    for _ in range(40):
        for a, b in np.argwhere(~np.eye(c, dtype=bool)):
            t = half * rng.choice([-1, 1])
            x, y, w = place(a, t), place(a, t), place(b, t)
            gap = A @ x @ (y - w)
            if not low[a, b] <= gap <= high[a, b]:
                return True
    return False


def test_gaps_hold_wherever_the_clusters_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(_gaps_miss(seed) for seed in range(60))
    for old in ("half * self.drift(v)", "apart_moving * rho[:, None]", "query_moving * both"):
        with monkeypatch.context() as patch:
            _mutated(patch, Sight, "gaps", old, f"0 * {old}")
            assert any(_gaps_miss(seed) for seed in range(60)), old


def test_joined_clusters_are_one_by_the_time_that_is_said() -> None:
    """Two pairs on a circle, far from each other: each pair is a cluster of two points."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        turn = np.array([0.0, rng.uniform(0.7, 1.0), np.pi, np.pi + rng.uniform(0.7, 1.0)])
        z = np.column_stack((np.cos(turn), np.sin(turn))) * rng.uniform(1.0, 1.02, (4, 1))
        law = Layer.single(float(rng.uniform(9, 14)), np.eye(2), Fraction(1))
        tokens = (np.array([0, 1]), np.array([2, 3]))
        balls = Balls(z, np.array([0, 2]), np.full(2, 1e-9), tokens)
        tube = follow(law, balls, most=float(np.log(1e5)))
        within = 0.2 * float(np.linalg.norm(z[0] - z[1]))
        last, joined = np.exp(tube.lasts), np.exp(gathered(law, tube, 0, within))
        assert joined < last
        k, first = 0, None
        while k <= joined:
            z, k = _step(law, z), k + 1
            if first is None and np.linalg.norm(z[0] - z[1]) <= within:
                first = k
        assert first is not None and first <= joined + 1 < 30 * first


def _on_a_line(kind: str = "layers") -> tuple[Layer, Balls]:
    """Tokens at 1 and -1, where every term of a bound points the same way."""
    law = Layer(
        (Form(0.5, np.eye(1)),), Fraction(1) if kind == "layers" else None, kind == "sphere"
    )
    points = np.array([[1.0], [-1.0]])
    return law, Balls(points, np.arange(2), np.zeros(2), (np.array([0]), np.array([1, 2])))


_RHO, _HALF, _V = np.array([0.1, 0.1]), 0.2, np.array([[1.0], [-1.0]])


def _largest_gap() -> float:
    law, balls = _on_a_line()
    return float(Places(law, balls, balls.points).sights[0].gaps(_RHO, _V, _HALF)[1][0, 1])


def test_the_bound_of_gaps_is_attained_on_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = 1.3 * 2.6  # <Ax, y - w> at x = y = 1 + 0.2 + 0.1 = -w
    assert exact <= _largest_gap() <= exact * (1 + 1e-6)
    terms = {
        "size * rho[:, None] * both": "0 * both",
        "half * half * size": "0 * size",
        "half * self.drift(v)": "0 * half",
        "query + half * size * speed[:, None]": "query",
        "apart + half * size * relative": "apart",
    }
    for old, new in terms.items():
        with monkeypatch.context() as patch:
            _mutated(patch, Sight, "gaps", old, new)
            assert _largest_gap() < exact, old


def test_drift_is_the_largest_change_of_a_gap_over_all_points() -> None:
    """Clusters of two, three and one points: up and down differ, and so do x and y."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        points, first = rng.standard_normal((6, 3)) + rng.standard_normal(3), np.array([0, 2, 5])
        A, v = rng.standard_normal((3, 3)), rng.standard_normal((3, 3))
        balls = Balls(points, first, np.zeros(3), tuple(np.split(np.arange(6), first[1:])))
        law = Layer.single(1.0, A, Fraction(1))
        found = Places(law, balls, points).sights[0].drift(v)
        for a, b in np.argwhere(~np.eye(3, dtype=bool)):
            own, other = np.split(points, first[1:])[a], np.split(points, first[1:])[b]
            changes = [
                A @ v[a] @ (y - w) + A @ x @ (v[a] - v[b]) for x in own for y in own for w in other
            ]
            assert found[a, b] == pytest.approx(np.abs(changes).max(), rel=1e-6)


def test_the_rounding_of_scores_is_covered_at_any_size() -> None:
    """Exact gaps of tokens that stand still, at lengths where sixteen digits are few or many."""
    first = np.array([0, 2, 5])
    clusters = np.split(np.arange(6), first[1:])
    for seed, size in enumerate((1e-3, 1.0, 1e4) * 7):
        rng = np.random.default_rng(seed)
        points, A = size * rng.standard_normal((6, 3)), rng.standard_normal((3, 3))
        balls = Balls(points, first, np.zeros(3), tuple(clusters))
        here = Places(Layer.single(1.0, A, Fraction(1)), balls, points).sights[0]
        low, high = here.gaps(np.zeros(3), np.zeros((3, 3)), 0.0)
        z, B = ([[Fraction(float(x)) for x in row] for row in M] for M in (points, A))
        query = [[sum(p * q for p, q in zip(row, x, strict=True)) for row in B] for x in z]
        score = [[sum(p * q for p, q in zip(x, y, strict=True)) for y in z] for x in query]
        for a, b in np.argwhere(~np.eye(3, dtype=bool)):
            own, other = clusters[a], clusters[b]
            gaps = [score[x][y] - score[x][w] for x in own for y in own for w in other]
            for said, exact in ((low[a, b], min(gaps)), (-high[a, b], -max(gaps))):
                assert Fraction(float(said)) <= exact <= said + 1e-12 * size**2


def _farthest_velocity(kind: str) -> tuple[float, float]:
    """|centre| + radius as said, and the largest velocity that weights and places allow."""
    law, balls = _on_a_line(kind)
    here = Places(law, balls, balls.points)
    _, more, scale, _ = here.weights(_RHO, _V, _HALF)
    centre, radius, other, _ = here.velocities(_RHO, _V, _HALF)
    assert scale == other
    far = 1.3 if kind == "sphere" else 2.6
    return abs(float(centre[0, 0])) + float(radius[0]), law.eta * float(more[0, 1]) * far


@pytest.mark.parametrize("kind", ["layers", "sphere"])
def test_the_bound_of_velocities_is_attained_on_a_line(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    said, exact = _farthest_velocity(kind)
    assert exact <= said <= exact * (1 + 1e-6)
    sphere = {"(room + half * norms(v))": "room", "room + half": "half"}
    plane = {" + half * norms(v[:, None] - v[None])": "", "room[:, None] + room[None]": "0"}
    for old, new in {"off * between": "0 * off", **(sphere if kind == "sphere" else plane)}.items():
        with monkeypatch.context() as patch:
            _mutated(patch, Places, "velocities", old, new)
            said, exact = _farthest_velocity(kind)
            assert said < exact, old


def test_weights_are_between_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    def miss() -> bool:
        law, balls = _on_a_line()
        here = Places(law, balls, balls.points)
        less, more, scale, _ = here.weights(np.zeros(2), np.zeros((2, 1)), 0.0)
        P = np.exp(0.5 * np.array([-1.0, 1.0, 1.0]))  # of the tokens -1, -1 and 1, seen from 1
        exact = 2 * P[0] / (2 * P[0] + P[1]) * np.exp(-scale)
        return not less[0, 1] <= exact <= more[0, 1]

    assert not miss()
    for old in ("/ (1 + whole * every * MORE)", "sight.log_most - beta * low"):
        with monkeypatch.context() as patch:
            _mutated(patch, Places, "weights", old, "" if old[0] == "/" else "-beta * low")
            assert miss(), old


def test_when_a_token_has_left_its_place() -> None:
    """The way there less the width, the radius at the start and what the hull is wide."""
    path = np.array([[[0.0], [0.1]], [[1.0], [1.1]], [[2.0], [2.1]]])
    width = np.array([[0.1], [0.2], [0.3]])
    balls = Balls(path[0], np.array([0]), np.array([0.1]), (np.arange(2),))
    tube = Tube(balls, np.array([-np.inf, 1.0, 2.0]), path, width, (0, 0), 1.0, "")
    assert tube.leaves(0.49) == (-np.inf, 1.0)  # 1 - 0.2 - 0.1 - 2 * 0.1 = 0.5
    assert tube.leaves(0.51) == (-np.inf, 2.0)
    assert tube.leaves(1.21) == (1.0, 2.0) and tube.leaves(1.19)[0] == -np.inf
    assert tube.leaves(9.0) == (2.0, np.inf) and tube.radius == pytest.approx(2.3)
    assert tube.leaves(0.05)[0] == -np.inf
    still = np.concatenate([path, np.full((3, 1, 1), 9.0)], axis=1)  # and a cluster that stays
    pair = Balls(still[0], np.array([0, 2]), np.array([0.1, 0.0]), (np.arange(2), np.array([2])))
    both = Tube(pair, tube.log_layers, still, width * [[1.0, 0.0]], (0, 1), 1.0, "")
    assert all(both.leaves(x) == tube.leaves(x) for x in (0.05, 0.49, 0.51, 1.19, 1.21, 9.0))


def test_a_cluster_gathers_no_faster_than_its_slowest_part() -> None:
    """What other clusters do is added; a smaller step and causal attention take longer."""
    points = np.array([[0.0, 1.0], [0.5, 1.0], [0.0, -1.0]])
    balls = Balls(points, np.array([0, 2]), np.full(2, 1e-9), (np.arange(3), np.array([3])))
    far = np.array([-np.inf, 30.0])
    still = Tube(balls, far, np.stack([points] * 2), np.full((2, 2), 1e-9), (0, 1), 1.0, "")
    plain = Layer((Form(2.0, np.eye(2)),), Fraction(1, 99))
    found = gathered(plain, still, 0, 0.05)
    assert 0 < found < 10
    late = gathered(Layer(plain.forms, Fraction(1, 999)), still, 0, 0.05) - found
    assert late == pytest.approx(np.log(10), abs=0.1)
    causal = gathered(Layer((Form(2.0, np.eye(2), True),), plain.alpha), still, 0, 0.05) - found
    assert causal == pytest.approx(np.log(3), abs=0.1)
    pushed = Tube(balls, far, still.path, np.array([[0, 0], [0.1, 0.1]]), (0, 1), 1.0, "")
    assert gathered(plain, pushed, 0, 0.05) == np.inf


def test_two_tokens_share_at_least_what_their_scores_allow() -> None:
    """<Ax, y - w> for x at most 0.3 off two points, and y, w at most 0.1 off them."""
    line = _common(Form(2.0, 3.0 * np.eye(1)), np.array([[1.0], [1.5]]), 0.1, 0.2, 4)
    points = np.array([[0.2, 1.0], [0.7, 1.0]])  # y - w is along the first axis
    flat = _common(Form(1.0, np.eye(2), True), points, 0.1, 0.2, 4)
    longest = np.hypot(0.7, 1.0) + 0.3
    for said, score, count in (
        (line(0.05), 2 * 3 * 1.8 * 0.05, 1),  # y and w are near each other
        (line(0.4), 2 * 3 * 1.8 * 0.4, 1),
        (line(9.0), 2 * 3 * 1.8 * (0.5 + 2 * 0.1), 1),
        (flat(0.1), longest * 0.1, 4),
        (flat(9.0), (0.7 + 0.3) * 0.5 + longest * 2 * 0.1, 4),
    ):
        assert 0.999 <= said / np.exp(-score) * count <= 1


def test_a_wide_ball_gathers_layer_by_layer_and_step_by_step() -> None:
    """Its width falls by 0.9 in so many whole layers, at the rate of tokens that far apart."""
    points = np.array([[0.0, 1.0], [0.0, -1.0]])
    balls = Balls(points, np.arange(2), np.array([0.3, 0.0]), (np.arange(3), np.array([3])))
    law = Layer.single(1.0, np.eye(2), Fraction(1, 9))
    width = np.array([[0.3, 0.0]] * 3)

    def tube(*layers: float) -> Tube:
        logs = np.log([1e-300, *layers])
        return Tube(balls, logs, np.stack([points] * 3), width, (0, 1), 1.0, "")

    spent = sum(
        np.ceil(-np.log(0.9) / (0.1 * np.exp(-1.3 * min(0.6 * 0.9**k, 2 * 0.3)))) for k in range(2)
    )
    assert 0.6 * 0.9**2 < 0.5 < 0.6 * 0.9
    assert gathered(law, tube(1e6, 1e9), 0, 0.5) == pytest.approx(np.log(spent))
    assert gathered(law, tube(1.0, 1e9), 0, 0.5) == pytest.approx(np.log(1 + spent))
    assert gathered(law, tube(1.0, spent), 0, 0.5) == np.inf  # the last layer is missing


def test_one_cluster_lasts_only_within_half_of_a_sphere() -> None:
    law = Layer((Form(1.0, np.eye(2)),), None, True)
    for radius, lasts in ((1.39, np.inf), (1.42, -np.inf)):
        balls = Balls(np.array([[1.0, 0.0]]), np.array([0]), np.array([radius]), (np.arange(4),))
        assert follow(law, balls).lasts == lasts


_TUBE = [
    (Sight, "gaps", "return low - off, high + off", "return low, high"),
    (Sight, "gaps", "return low - off, high + off", "return low - off + 0.1, high + off + 0.1"),
    (Places, "weights", "- beta * low", "- beta * high"),
    (Places, "velocities", "(off * between + more * wide)", "(0 * off)"),
    (Places, "velocities", "mid[:, :, None]", "0.5 * mid[:, :, None]"),
    (Sight, "__init__", "np.log(size[None] / size[:, None])", "np.log(size[None] / size[None])"),
    (Sight, "__init__", "np.maximum.reduceat(ratio[order], begin)", "self.log_least"),
    (Places, "_curved", "side + slip + length * turn + rho * (speed + apart)", "0 * side"),
    (Places, "advance", "norms(found * factor - v) + slip", "0 * slip"),
]


@pytest.mark.parametrize(("home", "name", "old", "new"), _TUBE, ids=[str(i) for i in range(9)])
def test_each_inequality_is_needed(
    monkeypatch: pytest.MonkeyPatch, home: type, name: str, old: str, new: str
) -> None:
    if old.startswith("np.maximum"):  # the order of the two lines is the other way round
        old, new = (
            f"self.log_most = {old}",
            "self.log_most = np.minimum.reduceat(ratio[order], begin)",
        )
    _mutated(monkeypatch, home, name, old, new)
    kind = "sphere" if name == "_curved" else "layers"
    for seed in range(150):
        law, balls, z = _clusters(seed, kind, causal="reduceat" in old)
        with np.errstate(all="ignore"):  # what is wrong may also overflow
            tube = follow(law, balls, most=float(np.log(500)), steps=300)
        if _outside(law, tube, z, 500) > 0:
            return
    raise AssertionError("no token was seen outside")


# --- the record -----------------------------------------------------------------------------------


def _model(beta: float, alpha: object = 0.5, A: np.ndarray | None = None) -> cy.PureAttention:
    return cy.PureAttention(cy.Softmax(beta, A), alpha)


def _broken(found: Shadow, z0: np.ndarray, law: Layer, most: int = 3_000) -> list[str]:
    """What a plain run in floats says against the record, up to `most` layers."""
    wrong: list[str] = []
    last = int(min(most, max([p.until for p in found.plateaus], default=0) + 1))
    runs = [z0]
    for _ in range(last):
        runs.append(_step(law, runs[-1]))
    run = np.array(runs)
    for p in found.plateaus:
        place = [run[p.checked][tokens] for tokens in p.clusters]
        middle = [x.mean(axis=0) for x in place]
        for k in range(p.since, int(min(p.until, last)) + 1):
            for tokens, c in zip(p.clusters, middle, strict=True):
                if (
                    k >= p.checked
                    and np.linalg.norm(run[k][tokens] - c, axis=1).max() > p.radius + 1e-9
                ):
                    wrong.append(f"layer {k}: a token is out of the radius")
            means = np.array([run[k][tokens].mean(axis=0) for tokens in p.clusters])
            near = np.linalg.norm(run[k][:, None] - means[None], axis=2).argmin(axis=1)
            own = np.empty(len(z0), dtype=int)
            for a, tokens in enumerate(p.clusters):
                own[tokens] = a
            if not np.array_equal(near, own):
                wrong.append(f"layer {k}: a token is nearer to another cluster")
        off = [
            np.linalg.norm(run[p.checked :, t] - c, axis=2).max(axis=1)
            for t, c in zip(p.clusters, middle, strict=True)
        ]
        seen = np.array(off).max(axis=0)
        for share in (0.2, 0.5):
            until, gone = p.leaves(share * p.radius)
            far = np.flatnonzero(seen > share * p.radius)
            first = p.checked + (int(far[0]) if len(far) else len(seen))
            if until < last and first <= until:
                wrong.append(f"left at layer {first}, which is not after {until}")
            if gone < last and first > gone + 1e-6 * gone:
                wrong.append(f"left at layer {first}, which is after {gone}")
    return wrong


@pytest.mark.many
def test_runs_obey_their_record() -> None:
    seen = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        n, d, beta = int(rng.integers(2, 20)), int(rng.integers(1, 4)), float(rng.uniform(1, 8))
        z = rng.standard_normal((n, d))
        found = shadow(_model(beta), z, layers=150)
        law = Layer.single(beta, np.eye(d), Fraction(1, 2))
        assert _broken(found, z, law) == []
        seen += any(len(p.clusters) > 1 and p.until < 3_000 for p in found.plateaus)
    assert seen >= 2


def test_a_plateau_at_sixty_digits() -> None:
    z = np.random.default_rng(5).standard_normal((6, 2))
    found = shadow(_model(3.0), z, layers=60)
    plateau = found.plateaus[0]
    assert len(plateau.clusters) > 1
    with mpmath.workdps(DIGITS):
        exact = _exact(z)
        for k in range(1, 61):
            exact = _exact_layer(exact, 3.0, np.eye(2), Fraction(1, 2))
            if k <= found.layers:
                assert (_distance(exact, found.z[k]) <= found.error[k]).all()
            if plateau.checked <= k <= plateau.until:
                for tokens, c in zip(plateau.clusters, plateau.centres, strict=True):
                    off = _distance([exact[i] for i in tokens], np.array([c] * len(tokens)))
                    assert (off <= plateau.radius).all()


def test_hardmax_is_followed_for_as_long_as_said() -> None:
    z = cy.configurations.polygon(5)[:5] * 2.0
    z = np.vstack([z, 0.8 * z[:2]])
    found = shadow(_model(6.0), z, tolerance=0.2)
    assert found.follows_hardmax_until > found.layers  # the tube and the limits take over
    assert [x.tolist() for x in found.plateaus[-1].leaders] == [[a] for a in range(5)]
    hard = cy.simulate(cy.PureAttention(cy.Hardmax(), 0.5), z, layers=found.layers).z
    off = np.linalg.norm(np.asarray(hard) - found.z, axis=2)
    assert (off <= found.distance).all() and off.max() <= 0.2
    few = shadow(_model(1.0), z, tolerance=0.2)
    first = int(few.follows_hardmax_until)
    law, soft = Layer.single(1.0, np.eye(2), Fraction(1, 2)), [z]
    for _ in range(first + 2):
        soft.append(_step(law, soft[-1]))
    hard = cy.simulate(cy.PureAttention(cy.Hardmax(), 0.5), z, layers=first + 2).z
    off = np.linalg.norm(np.asarray(hard) - np.array(soft), axis=2).max(axis=1)
    assert off[first] <= 0.2 < off[first + 2]


def test_tokens_agree_with_hardmax_for_as_long_as_is_said() -> None:
    """Beyond the layers followed, by what the tube allows and the limits of hardmax."""
    beyond = 0
    for seed in range(3):
        z = cy.configurations.polygon(3)[:3] * 2.0
        inner = np.random.default_rng(seed).standard_normal((3, 2))
        z = np.vstack([z, inner / np.linalg.norm(inner, axis=1, keepdims=True)])
        found = shadow(_model(1.5), z, layers=26)
        soft, law = [z], Layer.single(1.5, np.eye(2), Fraction(1, 2))
        for _ in range(120):
            soft.append(_step(law, soft[-1]))
        hard = cy.simulate(cy.PureAttention(cy.Hardmax(), 0.5), z, layers=120).z
        off = np.linalg.norm(np.asarray(hard) - np.array(soft), axis=2)
        for within in np.geomspace(0.03, 1.0, 12):
            for i, until in enumerate(found.agrees_until(float(within))):
                assert (off[: int(min(until, 120)) + 1, i] <= within + 1e-9).all()
                beyond += bool(found.layers < until < 120)
    assert beyond > 10


def test_beyond_the_layers_followed_three_distances_count() -> None:
    """What the tube allows, from its cluster to the limit, and from hardmax to its limit."""
    path = np.array([[[0.0], [9.0]], [[0.5], [9.0]], [[1.5], [9.0]]])
    balls = Balls(path[0], np.arange(2), np.zeros(2), (np.array([0, 1, 2]), np.array([3])))
    width = np.array([[0.0, 0.0], [0.1, 0.0], [0.1, 0.0]])
    tube = Tube(balls, np.log([1e-300, 10.0, 20.0]), path, width, (0, 1), 1.0, "")
    plateau = Plateau(0, 2, balls.tokens, path[0], (), tube, Layer.single(1.0, np.eye(1), None))
    end = SimpleNamespace(
        rule=np.array(["S", "S", "", "leader"]),
        settled_at=np.array([2, 3, 0, 0]),  # token 1: later than the plateau
        points=np.array([[0.2], [0.2], [0.2], [9.0]]),
    )
    left = np.full((3, 4), np.inf)
    left[2] = 0.4, 0.4, 0.4, 0.0
    apart = np.zeros((3, 4))
    found = Shadow((plateau,), (), np.zeros((3, 4, 1)), apart, apart, end, 1.0, "", left)
    for within, last in ((0.59, 2), (0.61, 2), (1.19, 2), (1.21, 12), (2.19, 12), (2.21, 22)):
        until = found.agrees_until(within)
        assert until[0] == pytest.approx(last) and until[1] == until[2] == 2
        assert until[3] == pytest.approx(22)


def test_more_layers_need_a_larger_beta() -> None:
    plateau = shadow(_model(12.0), cy.configurations.gaussian(40, 2, seed=0)).plateaus[-1]
    found = plateau.beta_for(1e6)
    assert 12.0 < found < 24.0
    again = follow(plateau.layer.scaled(found / 12.0), plateau.tube.balls, most=14.0)
    assert again.lasts >= np.log(1e6)


def test_unions_of_clusters_last_longer() -> None:
    found = shadow(_model(12.0), cy.configurations.gaussian(40, 2, seed=0))
    lasts = [found.plateaus[-1].log10_lasts, *(p.log10_lasts for p in found.coarser)]
    assert len(lasts) == 3 and lasts == sorted(lasts)
    z = found.z[found.plateaus[-1].checked]
    law = Layer.single(12.0, np.eye(2), Fraction(1, 2))
    union = found.coarser[0]
    hulls = [z[tokens] for tokens in union.clusters]
    for _ in range(20_000):  # beyond the finer clusters, within the coarser
        z = _step(law, z)
    for tokens, points in zip(union.clusters, hulls, strict=True):
        off = cy.hull(points).distance(z[tokens])
        assert off.max() <= union.radius


@pytest.mark.parametrize(
    "z",
    [[[1.0, 2.0]], [[1.0, 0.0]] * 3, np.zeros((4, 2)), [[1.0], [1.0], [-1.0]], [[1, 0], [-1, 0]]],
)
def test_small_and_repeated_tokens(z: object) -> None:
    found = shadow(_model(2.0), z, layers=50)
    assert found.plateaus and len(repr(found)) < 250
    assert found.plateaus[-1].leaders


def test_a_negative_beta_is_that_of_the_other_form() -> None:
    z = cy.configurations.gaussian(12, 2, seed=1)
    one = shadow(_model(-5.0, A=-np.eye(2)), z, layers=50)
    other = shadow(_model(5.0), z, layers=50)
    np.testing.assert_array_equal(one.z, other.z)
    assert [p.until for p in one.plateaus] == [p.until for p in other.plateaus]


def test_the_command_says_what_the_record_says(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["shadow", "gaussian:n=12,d=2,seed=1", "--beta", "5", "--layers", "50"]
    found = shadow(_model(5.0), cy.configurations.gaussian(12, 2, seed=1), layers=50)
    last = found.plateaus[-1]
    assert main([*asked, "--wanted", "1e6"]) == 0
    said = capsys.readouterr().out
    assert f"{len(last.clusters)} clusters" in said and f"to {last.until:.6g} at" in said
    assert f"beta {last.beta_for(1e6):.4g}" in said
    assert main([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["result"]
    assert told["follows_hardmax_until"] == found.follows_hardmax_until
    assert told["plateaus"][-1]["log10_lasts"] == last.log10_lasts


@pytest.mark.parametrize("flow", [cy.dynamics.SphereFlow, cy.dynamics.AttentionFlow])
def test_a_flow_is_proved_from_a_state_that_has_gathered(flow: type) -> None:
    z = cy.configurations.gaussian(12, 2, seed=2)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    model = flow(cy.Softmax(9.0))
    z = cy.simulate(model, z, time=15).values[-1]
    found = shadow(model, z)
    plateau = found.plateaus[-1]
    assert 1 < len(plateau.clusters) < 6 and plateau.lasts > 10
    assert found.hardmax is None and found.agrees_until(1.0).max() == -1.0
    times = np.linspace(0, min(plateau.lasts, 60.0), 5)
    for x in _states(law_of(model, 2), z, times):
        for tokens, centre in zip(plateau.clusters, plateau.centres, strict=True):
            off = np.linalg.norm(x[tokens] - centre, axis=1)
            assert off.max() <= plateau.radius + 1e-9
    with pytest.raises(ValueError, match="at 0"):
        shadow(cy.dynamics.SphereFlow(), [[1.0, 0.0], [0.0, 0.0]])
    assert law_of(cy.dynamics.SphereFlow(V=2 * np.eye(2)), 2) is None
    assert law_of(cy.PureAttention(cy.attention.Heads([cy.Hardmax()])), 2) is None


@pytest.mark.parametrize("size", [1e-170, 1e160])
def test_lengths_whose_squares_are_lost_are_refused(size: float) -> None:
    """Squares of 1e-170 are 0 in floats: without the refusal the rounding was said to be 0."""
    with pytest.raises(ValueError, match="1e-30"):
        shadow(_model(1.0), size * cy.configurations.gaussian(5, 2, seed=0))


def test_every_head_keeps_to_the_range() -> None:
    """The bounds square beta |A| of every head, not of the first one alone."""
    heads = cy.attention.Heads([cy.Softmax(1.0), cy.Softmax(1e200)], average=True)
    with pytest.raises(ValueError, match="1e\\+200"):
        shadow(cy.PureAttention(heads), cy.configurations.gaussian(5, 2, seed=0))


def test_only_softmax_layers_have_a_shadow() -> None:
    with pytest.raises(TypeError, match="PureAttention with Hardmax"):
        shadow(cy.PureAttention(), np.eye(2))
    with pytest.raises(ValueError, match="layers"):
        shadow(_model(1.0), np.eye(2), layers=-1)
