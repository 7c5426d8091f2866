"""The search and the walk on a device, tested for meaning without one: same halves, same tiles."""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import cynosure as cy
from cynosure.attention import scores
from cynosure.attention.scores import sides, softmax_pull
from cynosure.engine import kernels
from cynosure.engine.gpu import batch, search
from cynosure.engine.gpu.passes import Plain, Task
from cynosure.engine.gpu.tokens import DeviceTokens
from cynosure.engine.kernels import classes
from cynosure.engine.kernels.plain import all_distinct
from cynosure.engine.layers import certified_layers
from cynosure.engine.walk import Walk
from device_cases import SEARCHES, search_faults, split_faults, walk_faults

torch = pytest.importorskip("torch")
HERE = Path(__file__).parent


@pytest.mark.parametrize("name", sorted(SEARCHES))
def test_searches_find_the_sets_of_the_oracle(name):
    assert search_faults(SEARCHES[name], torch.tensor) == []


def test_many_pairs_are_listed_for_fewer_rows_at_a_time(monkeypatch):
    monkeypatch.setattr(search, "MOST_PAIRS", 300)
    monkeypatch.setattr(search, "MOST_NUMBERS", 64)
    for name in ("crowded circle", "lattice", "mixed magnitudes"):
        assert search_faults(SEARCHES[name], torch.tensor) == []


def test_a_device_without_memory_searches_fewer_rows_at_a_time(monkeypatch):
    decided, sizes = search._decided, []

    def cramped(pairs, order, q, *rest):
        if len(q) > 100:
            raise torch.cuda.OutOfMemoryError
        sizes.append(len(q))
        return decided(pairs, order, q, *rest)

    monkeypatch.setattr(search, "_decided", cramped)
    assert search_faults(SEARCHES["crowded circle"], torch.tensor) == []
    assert max(sizes) <= 100
    monkeypatch.setattr(search, "_decided", lambda *a: cramped(*a[:2], range(101), *a[3:]))
    with pytest.raises(MemoryError, match="move the tokens to the CPU"):
        search_faults(SEARCHES["two tokens"], torch.tensor)


def test_a_device_without_memory_for_a_batch_says_so(monkeypatch):
    def full(*args):
        raise torch.cuda.OutOfMemoryError

    monkeypatch.setattr(batch, "_carried", full)
    z = torch.zeros(7, 5, 2, dtype=torch.float64)
    with pytest.raises(MemoryError, match="7 configurations of 5 tokens, d = 2, at 1 saved"):
        batch.device_run_batch(z, np.ones((7, 5), bool), None, 0.5, 0.5, np.array([3]))


class Forgetful(Plain):
    """Plain passes that believe every row after its best tile."""

    def inspect(self, task, tiles, ceiling, known, wide, room):
        none = torch.full_like(known, -torch.inf)
        return super().inspect(task, tiles, ceiling, none, wide, room)


def test_the_judge_notices_a_pass_that_forgets_a_tile():
    assert search_faults(SEARCHES["crowded circle"], torch.tensor, Forgetful()) != []


@pytest.mark.parametrize("name", ["gaussian", "mixed magnitudes 3", "many", "deep", "a zero token"])
def test_halves_are_near_the_tokens_and_their_lengths_upwards(name):
    assert split_faults(SEARCHES[name], torch.tensor, Plain()) == []


def test_the_judge_notices_lengths_that_are_not_upwards():
    class Short(Plain):
        def split(self, x, *, together):
            parts = super().split(x, together=together)
            return parts._replace(rest=parts.rest * (1 - 1e-7))

    assert split_faults(SEARCHES["gaussian"], torch.tensor, Short()) != []


def errors_of(z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Largest |score of the passes - exact score| of each row, the bound, and its rounded part."""
    keys, queries = (Plain().split(torch.tensor(z), together=t) for t in (True, False))
    order = torch.arange(len(z))
    task = search._task(queries, keys, order)
    scores = (task.q.float() @ task.z.float().T)[:, : len(z)].double().numpy()
    scale = (queries.power * keys.power).numpy()
    exact = [[Fraction(x) for x in row] for row in z.tolist()]
    worst = []
    for i, x in enumerate(exact):
        products = (sum((a * b for a, b in zip(x, y, strict=True)), Fraction(0)) for y in exact)
        power = Fraction(scale[i])
        worst.append(max(abs(Fraction(s) - p * power) for s, p in zip(scores[i], products)))
    d = z.shape[1]
    largest = search.Largest.of(keys)
    bound = search.score_error(queries, largest, d).numpy()
    free = queries._replace(rest=0 * queries.rest), largest._replace(rest=0.0)
    return np.array(worst, dtype=float), bound, search.score_error(*free, d).numpy()


@pytest.mark.parametrize("d", [1, 2, 5, 21, 22, 40])
def test_the_bound_on_scores_in_halves_bounds_the_actual_error(d):
    rng = np.random.default_rng(d)
    for z in (
        rng.normal(size=(12, d)),
        rng.normal(size=(12, d)) * 10.0 ** rng.uniform(-9, 0, (12, 1)),
        rng.normal(size=(12, d)) * 10.0 ** rng.uniform(-9, 0, (1, d)),
        1e-7 * np.exp2(-11.0 + rng.integers(0, 2, (12, d))) + 1 + 2.0**-12,
    ):
        worst, bound, _ = errors_of(z)
        assert (worst <= bound).all()
    worst, bound, without = errors_of(np.full((2, d), 1 + 2.0**-11 - 2.0**-30))
    assert (worst <= bound).all()
    if d > search.SPLIT:  # the part of the bound for what halves leave out is needed
        assert (worst > without).all()


def test_integers_of_halves_have_no_rounding():
    z = np.random.default_rng(0).integers(-9, 10, (30, 40)).astype(float)
    worst, bound, without = errors_of(z)
    assert (worst == 0).all() and np.allclose(bound, without, rtol=1e-6)


@pytest.mark.parametrize("block", range(7))
def test_the_walk_of_a_tensor_is_the_walk_of_the_cpu(block):
    faults = {seed: walk_faults(seed, torch.tensor) for seed in range(14 * block, 14 * block + 14)}
    assert {seed: found for seed, found in faults.items() if found} == {}


def test_the_judge_notices_another_walk():
    seen = [walk_faults(seed, lambda z: torch.tensor(z[::-1].copy())) for seed in range(4)]
    assert any(seen)


def test_copies_padding_and_saved_layers_on_a_tensor(monkeypatch):
    """The whole way of `certified_layers`, with the CPU in the place of a GPU."""
    from cynosure.engine import layers

    rng = np.random.default_rng(2)
    z = rng.normal(size=(80, 3))
    z[40:50] = z[:10]
    mask = rng.random(80) < 0.8
    saves = np.array([0, 2, 5])
    plain = certified_layers(z, None, Fraction(1, 2), mask, saves)

    def here(x, real):
        return torch.tensor(x[real])

    monkeypatch.setattr(layers, "there", here)
    states, at, history = certified_layers(z, None, Fraction(1, 2), mask, saves, given=z)
    assert torch.is_tensor(states) and np.array_equal(states.numpy(), plain[0])
    assert np.array_equal(at, saves)
    for name in ("born", "settled_at", "leader", "label"):
        assert np.array_equal(getattr(history, name), getattr(plain[2], name))


def test_tokens_that_need_scaling_stay_on_the_cpu():
    z = 1e200 * np.random.default_rng(0).normal(size=(20, 2))
    walk = Walk(z, None, Fraction(1), there=torch.tensor(z))
    assert not isinstance(walk._floats, DeviceTokens)
    assert isinstance(
        Walk(z / 1e200, None, Fraction(1), there=torch.tensor(z))._floats, DeviceTokens
    )


def test_small_tensors_and_those_of_the_cpu_are_searched_there():
    z = cy.configurations.gaussian(50, 2, seed=1)
    run = cy.simulate(cy.PureAttention(), torch.tensor(z), layers=3)
    assert np.array_equal(run.z.numpy(), cy.simulate(cy.PureAttention(), z, layers=3).z)


def test_distinct_rows_are_proved_distinct_and_equal_ones_are_not():
    rng = np.random.default_rng(0)
    for z in (rng.normal(size=(5000, 3)), rng.integers(-40, 40, (3000, 5)).astype(float)):
        z = np.unique(z, axis=0)
        assert all_distinct(torch.tensor(z))
        assert not all_distinct(torch.tensor(np.vstack((z, z[7]))))
        assert not all_distinct(torch.tensor(np.vstack((z, z[7]))).float())
        assert all_distinct(torch.tensor(z).float())
    signed = np.array([[0.0, 1.0], [-0.0, 1.0]])
    assert not all_distinct(torch.tensor(signed))
    label = classes(signed, torch.tensor(signed)).label
    assert label.tolist() == [0, 0]


INTERPRETED = """
import numpy as np, torch
from cynosure.engine.gpu.launch import Fused
from cynosure.engine.gpu.batch import device_run_batch
from device_cases import SEARCHES, batch_faults, search_faults, split_faults
rng = np.random.default_rng(0)
for name in ("gaussian", "circle", "grid 5", "lattice", "mixed magnitudes 3", "many", "deep"):
    z = np.unique(SEARCHES[name], axis=0)
    q = z[rng.permutation(len(z))[:9]]
    assert search_faults(z, torch.tensor, Fused(), q) == [], name
    assert split_faults(z, torch.tensor, Fused()) == [], name
for seed in range(6):
    assert batch_faults(seed, torch.tensor, device_run_batch, 3) == [], seed
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
def test_the_fused_passes_under_the_interpreter():
    """In a process of its own: Triton decides at import whether it compiles or interprets."""
    path = os.pathsep.join((str(HERE.parent / "src"), str(HERE), os.environ.get("PYTHONPATH", "")))
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.run(
        [sys.executable, "-c", INTERPRETED], env=env, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-2000:]


def test_nothing_of_this_is_imported_before_a_tensor_comes():
    code = "import sys, cynosure as cy; cy.limit(cy.PureAttention(), [[1.0, 2.0], [0.5, 0.0]]); "
    code += "assert not {'torch', 'triton', 'cynosure.engine.gpu.fused'} & set(sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(HERE.parent / "src")}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)


def test_a_task_of_some_rows_keeps_all_keys():
    keys = Plain().split(torch.tensor(SEARCHES["lattice"]), together=True)
    task = search._task(keys, keys, torch.arange(len(keys.norm)))
    some = task.of(torch.tensor([3, 1]))
    assert isinstance(some, Task) and len(some.q) == 2 and len(some.z) == len(task.z)


# -- what is copied ------------------------------------------------------------------------------


@pytest.fixture
def copied(monkeypatch):
    """How many numbers tensors gave to NumPy, call by call."""
    sizes, plain = [], torch.Tensor.numpy

    def counting(tensor, *args, **kwargs):
        sizes.append(tensor.numel())
        return plain(tensor, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "numpy", counting)
    return sizes


def carried_here(monkeypatch):
    """Pretend that this processor is a device which carries batches of small configurations."""
    compiled = kernels.run_batch

    def run_batch(z, *args):
        if not torch.is_tensor(z):
            return compiled(z, *args)
        run = compiled(np.array(z.tolist()), *args)
        return run._replace(z=torch.from_numpy(run.z))

    monkeypatch.setattr(kernels, "runs_there", lambda z: True)
    monkeypatch.setattr(kernels, "run_batch", run_batch)


def test_a_batch_on_a_device_is_not_copied_to_the_host(monkeypatch, copied):
    z = torch.from_numpy(np.random.default_rng(5).normal(size=(2, 6, 40, 3)))
    z[0, 1, :4, :] = torch.tensor([[9.0, 9, 0], [9, -9, 0], [-9, 9, 0], [5, 0, 0]])  # a tie
    dynamics = cy.PureAttention(alpha=1.0)
    right = cy.simulate(dynamics, z.numpy().copy(), layers=5)
    copied.clear()
    carried_here(monkeypatch)
    found = cy.simulate(dynamics, z, layers=5)
    assert sum(copied) <= 3 * 40 * 3 * 6, "only the configuration with the tie is looked at here"
    assert torch.is_tensor(found.z) and (found.z.numpy() == right.z).all()
    assert found.status == right.status
    for name in ("born", "settled_at", "leader"):
        assert (getattr(found.history, name) == getattr(right.history, name)).all()


@pytest.mark.parametrize("dynamics", [cy.PureAttention(cy.Softmax()), cy.dynamics.RescaledFlow()])
def test_tensors_that_torch_steps_are_validated_where_they_are(dynamics, copied):
    z = torch.randn(30, 2, dtype=torch.float64)
    clock = (
        {"times": [0.0, 0.1], "stepper": cy.simulation.RK4(0.1)}
        if dynamics.in_time
        else {"layers": 2}
    )
    cy.simulate(dynamics, z, **clock)
    assert not [size for size in copied if size >= z.numel()]


def test_tensors_are_refused_in_the_words_of_arrays():
    bad = np.ones((2, 3, 2))
    bad[1, 2, 0] = np.nan
    for z in (bad, np.ones(3), np.ones((0, 2)), np.ones((2, 0)), 1j * np.ones((2, 2))):
        said = []
        for given in (z, torch.from_numpy(z)):
            with pytest.raises((ValueError, TypeError)) as error:
                cy.simulate(cy.PureAttention(), given, layers=1)
            said.append((type(error.value), str(error.value)))
        assert said[0] == said[1]


@pytest.mark.parametrize("beta", [0.0, 3.0, -2.0, 1e4, 1e200])
@pytest.mark.parametrize("size", [1e-200, 1.0, 1e3, 1e307])
def test_the_softmax_of_tensors_is_that_of_arrays(monkeypatch, beta, size):
    """Torch's own where scores are moderate, in one piece or in several, ours where they are not.

    A weight may be off by the rounding of its score, which beta multiplies; a row of ties or of one
    winner is the same in both."""
    z = np.random.default_rng(7).normal(size=(2, 50, 3))
    z *= size / np.abs(z).max()
    right = softmax_pull(sides(None, z), z, beta)
    for most in (10**9, 700):
        monkeypatch.setattr(scores, "_most_scores", lambda queries, most=most: most)
        x = torch.from_numpy(z)
        found = softmax_pull(sides(None, x), x, beta).numpy()
        noise = min(1.0, 64 * 2.0**-53 * max(1.0, abs(beta) * size * size if size < 1e100 else 1.0))
        assert (np.abs(found - right) <= 8 * noise * size).all()
    assert (np.abs(found) <= size * (1 + 1e-12)).all()
