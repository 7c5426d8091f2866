"""The same tokens on a GPU: every dynamics agrees with the CPU, results stay on the device.

Skipped without CUDA. Nothing here is timed.
"""

from __future__ import annotations

import numpy as np
import pytest

import cynosure as cy
from conformance import tokens
from cynosure.dynamics import Flow
from cynosure.engine.gpu import search as device
from cynosure.engine.gpu.passes import passes_for
from cynosure.engine.kernels import run_batch
from cynosure.simulation.steppers import RK4, Adaptive
from device_cases import SEARCHES, batch_faults, search_faults, split_faults, walk_faults

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SOFT = {
    "softmax": lambda: cy.Softmax(2.0),
    "localmax": lambda: cy.attention.Localmax(),
    "sinkhorn": lambda: cy.attention.Sinkhorn(),
    "causal": lambda: cy.attention.Causal(cy.Softmax(2.0)),
    "heads": lambda: cy.attention.Heads((cy.Softmax(1.0), cy.Softmax(3.0))),
}


def there(z):
    return torch.tensor(z, device="cuda")


def end(dynamics, z, **options):
    if isinstance(dynamics, Flow):
        return cy.simulate(dynamics, z, time=0.5, **options)
    return cy.simulate(dynamics, z, layers=4)


@pytest.mark.parametrize("name", sorted(cy.dynamics.DYNAMICS))
def test_every_dynamics_agrees_with_the_cpu(name):
    dynamics, z = cy.dynamics.DYNAMICS[name](), tokens()
    found = end(dynamics, there(z))
    assert found.z.device.type == "cuda"
    np.testing.assert_allclose(found.z.cpu().numpy(), end(dynamics, z).z, atol=1e-11)


@pytest.mark.parametrize("name", sorted(SOFT))
def test_every_attention_agrees_with_the_cpu(name):
    dynamics, z = cy.PureAttention(SOFT[name](), alpha=0.5), tokens(batch=(3,))
    found = end(dynamics, there(z))
    assert found.z.device.type == "cuda"
    np.testing.assert_allclose(found.z.cpu().numpy(), end(dynamics, z).z, atol=1e-12)


@pytest.mark.parametrize("stepper", [RK4(0.05), Adaptive(1e-10, 1e-12)], ids=["rk4", "adaptive"])
def test_flows_follow_the_cpu(stepper):
    V = np.array([[0.6, 0.8, 0.1], [0.6, 0.6, 0.0], [0.0, 0.2, 0.3]])
    for flow in (
        cy.dynamics.RescaledFlow(V=V),
        cy.SphereFlow(cy.Softmax(4.0)),
        cy.dynamics.AttentionFlow(),
    ):
        z = 0.7 * tokens()
        here, far = end(flow, z, stepper=stepper), end(flow, there(z), stepper=stepper)
        np.testing.assert_allclose(far.z.cpu().numpy(), here.z, atol=1e-8)


def test_gradients_flow_on_the_device():
    z = there(tokens()).requires_grad_()
    run = end(cy.SphereFlow(cy.Softmax(2.0)), z, stepper=RK4(0.1))
    (run.z[-1] ** 3).sum().backward()
    assert z.grad.device.type == "cuda" and bool(torch.isfinite(z.grad).all())


def test_a_large_layer_is_never_n_by_n():
    n, d = 65_536, 64
    z = torch.randn(n, d, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = cy.PureAttention(cy.Softmax(0.1)).step(z, 0)
    assert torch.cuda.max_memory_allocated() - before < 4 * n * n / 4  # a quarter of P in float32
    rows = torch.arange(0, n, n // 64, device="cuda")
    P = torch.softmax(0.1 * z[rows].double() @ z.double().T, dim=-1)
    expected = z[rows].double() + 0.5 * (P @ z.double() - z[rows].double())
    np.testing.assert_allclose(out[rows].cpu().numpy(), expected.cpu().numpy(), atol=2e-4)


def test_the_learned_classifier_fits_on_the_device():
    data = cy.datasets.synthetic(300)
    clf = cy.HardmaxClassifier(method=cy.classifier.Learned(epochs=20, device="cuda"), leaders=6)
    clf.fit(data.texts, data.labels)
    assert clf.score(data.texts, data.labels) > 0.6
    ex = clf.explain(data.texts[0])
    assert abs(sum(x.contribution for x in ex.leaders) + ex.intercept - ex.decision) < 1e-9


@pytest.mark.parametrize("name", sorted(SEARCHES))
def test_searches_find_the_sets_of_the_oracle(name):
    assert search_faults(SEARCHES[name], there) == []


@pytest.mark.parametrize("block", range(10))
def test_200_walks_are_those_of_the_cpu(block):
    faults = {seed: walk_faults(seed, there) for seed in range(20 * block, 20 * block + 20)}
    assert {seed: found for seed, found in faults.items() if found} == {}


@pytest.mark.parametrize("name", SEARCHES)
def test_the_halves_made_there_are_near_the_tokens(name):
    z = SEARCHES[name]
    assert split_faults(z, there, passes_for(there(z))) == []


def test_batches_carried_there_are_those_of_the_processor():
    faults = {seed: batch_faults(seed, there, run_batch) for seed in range(200)}
    assert {seed: found for seed, found in faults.items() if found} == {}


def test_a_batch_comes_back_on_its_device_with_the_sets_of_the_processor():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2, 40, 33, 5))
    z[0, 3] = np.round(z[0, 3])  # ties, decided in integers
    z[1, 7, 4] = z[1, 7, 9]  # copies
    here = cy.simulate(cy.PureAttention(), z, layers=9)
    far = cy.simulate(cy.PureAttention(), there(z), layers=9)
    assert far.z.device.type == "cuda" and (far.z.cpu().numpy() == here.z).all()
    for name in ("born", "settled_at", "leader"):
        assert (getattr(far.history, name) == getattr(here.history, name)).all()


@pytest.mark.parametrize("d", [2, 16, 21, 22, 64, 200])
def test_the_sums_of_the_tensor_cores_keep_the_bound(d):
    """The one thing about the device that the proof takes for granted: error per addend."""
    rng = np.random.default_rng(d)
    shared = 0.0
    for spread in (0.0, 2.0, 6.0):  # cancellation over many orders of magnitude
        z = rng.normal(size=(4096, d)) * 10.0 ** rng.uniform(-spread, 0, (4096, d))
        z[1::2] = z[::2] * np.where(rng.random(d) < 0.5, 1, -1)
        keys, queries = (passes_for(there(z)).split(there(z), together=t) for t in (True, False))
        task = device._task(queries, keys, torch.arange(len(z), device="cuda"))
        width = torch.full((len(z),), torch.inf, device="cuda")  # nothing is skipped
        found = passes_for(task.q).maxima(task, width, None, 1)[0][0].double()
        halves = task.q.double() @ task.z.double().T
        head, low = float(keys.head.max()), float(keys.low.max())
        magnitudes = queries.head * (head + low) + queries.low * head
        terms = 3 * d if d <= device.SPLIT else d
        share = (found - halves.amax(dim=1)).abs() / (terms * device.ADDEND * magnitudes)
        shared = max(shared, float(share.max()))
    assert shared <= 1.0


@pytest.mark.parametrize(("n", "d"), [(20_000, 2), (20_000, 3), (12_000, 8), (8_000, 64)])
def test_large_runs_and_limits_are_those_of_the_cpu(n, d):
    rng = np.random.default_rng(n + d)
    mask = rng.random(n) < 0.95
    for z in (rng.normal(size=(n, d)), rng.uniform(-1, 1, (n, d)).astype(np.float32)):
        z[7::50] = z[5::50][: len(z[7::50])]  # copies
        dynamics = cy.PureAttention(alpha=0.5)
        here = cy.simulate(dynamics, z, layers=5, mask=mask)
        far = cy.simulate(dynamics, there(z), layers=5, mask=mask)
        assert far.z.device.type == "cuda" and far.z.dtype == there(z).dtype
        assert np.array_equal(far.z.cpu().numpy(), here.z)
        for k in range(6):
            one, two = here.history.followed(k), far.history.followed(k)
            assert all(
                np.array_equal(getattr(one, x), getattr(two, x)) for x in ("label", "indptr")
            )
            assert np.array_equal(one.indices, two.indices)
        proved, told = cy.limit(dynamics, there(z), mask=mask), cy.limit(dynamics, z, mask=mask)
        for name in ("points", "leaders", "born", "settled_at", "rule", "follows"):
            assert np.array_equal(getattr(proved, name), getattr(told, name)), name
