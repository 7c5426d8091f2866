"""Quantities along a run against their definitions, events against runs that are cut by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import cynosure as cy
from cynosure.analysis.observing import QUANTITIES

pytest.importorskip("xarray", reason="pip install 'cynosure[scale]'")


@pytest.fixture(scope="module")
def run():
    start = cy.configurations.sphere(20, 3, seed=2)
    return cy.simulate(cy.SphereFlow(cy.Softmax(6.0)), start, times=[0, 0.5, 1, 2, 5, 30])


def test_quantities_are_those_of_their_definitions(run):
    names = [name for name in QUANTITIES if name != "leaders"]
    ds = cy.observe(run, *names)
    assert ds.time.values.tolist() == run.t.tolist() and len(ds) == len(names)
    i, j = np.triu_indices(20, 1)
    for k, z in enumerate(run.z):
        here = ds.isel(time=k)
        far = [np.linalg.norm(z[a] - z[b]) for a, b in zip(i, j)]
        assert_allclose(here.diameter, max(far))
        assert_allclose(here.mean_cosine, np.mean([z[a] @ z[b] for a, b in zip(i, j)]), atol=1e-12)
        assert_allclose(here.energy, np.mean([[np.exp(6 * (a @ b - 1)) for a in z] for b in z]))
        share = np.linalg.eigvalsh(z.T @ z) / 20
        share = share[share > 1e-300]
        assert_allclose(here.effective_rank, np.exp(-(share * np.log(share)).sum()))
        assert_allclose(here.order_parameter, np.linalg.norm(z.mean(0)))
        assert_allclose(
            here.spread, np.sqrt(np.mean([(x - z.mean(0)) @ (x - z.mean(0)) for x in z]))
        )
        if k:
            moved = max(np.linalg.norm(a - b) for a, b in zip(z, run.z[k - 1]))
            assert_allclose(here.speed, moved / (run.t[k] - run.t[k - 1]))
    assert (
        np.isnan(ds.speed[0]) and ds.diameter.attrs["long_name"] == "largest distance of two tokens"
    )


def test_functions_batches_and_masks(run):
    def first_two(z):
        return z[:2]

    ds = cy.observe(run, first_two, top=lambda z: z[:, 0].max())
    assert ds.first_two.dims == ("time", "first_two_0", "first_two_1")
    assert_allclose(ds.first_two[3], run.z[3, :2])
    assert_allclose(ds.top, run.z[:, :, 0].max(axis=1))
    z = cy.configurations.gaussian(12, 2, seed=1).reshape(2, 6, 2)
    mask = np.ones((2, 6), bool)
    mask[1, 4:] = False
    batch = cy.simulate(cy.PureAttention(), z, layers=8, mask=mask)
    both = cy.observe(batch, "leaders", "clusters", "longest")
    assert both.leaders.dims == ("layer", "batch_0")
    alone = cy.simulate(cy.PureAttention(), z[1, :4], layers=8)
    for name in ("leaders", "clusters", "longest"):
        assert_allclose(both[name][:, 1], cy.observe(alone, name)[name])
    assert both.leaders[-1, 1] == len(cy.limit(cy.PureAttention(), z[1, :4]).leaders)


def test_what_cannot_be_observed_is_said(run):
    with pytest.raises(ValueError, match=r"no quantity 'rank'.*effective rank"):
        cy.observe(run, "rank")
    with pytest.raises(ValueError, match="leaders are those of hardmax"):
        cy.observe(run, "leaders")
    with pytest.raises(ValueError, match="energy has the beta of a softmax"):
        cy.observe(replace(run, dynamics=None), "energy")
    with pytest.raises(ValueError, match="name a lambda"):
        cy.observe(run, lambda z: 1)
    with pytest.raises(TypeError, match="Trajectory"):
        cy.observe(run.z, "clusters")


def three(z):
    return cy.clusters(z, 0.1).count <= 3


@pytest.mark.parametrize("alpha", [0.05, 1.0])
@pytest.mark.parametrize("attention", [cy.Hardmax(), cy.Softmax(4.0)])
def test_layers_stop_where_the_event_comes(attention, alpha):
    """The run that stops is the beginning of the one that does not, history included."""
    dynamics = cy.PureAttention(attention, alpha)
    z = cy.configurations.box(12, 2, seed=4)
    whole = cy.simulate(dynamics, z, layers=300)
    event = lambda x: cy.clusters(x, 0.1).count <= 5  # noqa: E731
    at = next(k for k in range(301) if event(whole.z[k]))
    part = cy.simulate(dynamics, z, layers=300, stop_when=event)
    assert 0 < at < 300 and part.t[-1] == at and (part.z == whole.z[: at + 1]).all()
    assert part.status.code == "stopped" and f"layer {at}." in part.status.message
    assert part.status.early and not part.status.failed
    if whole.history is not None:
        assert (
            cy.roles(part).born.tolist()
            == np.where(whole.history.born <= at, whole.history.born, -1).tolist()
        )
    never = cy.simulate(dynamics, z, layers=20, stop_when=lambda x: False)
    assert never.status == cy.simulate(dynamics, z, layers=20).status
    assert len(cy.simulate(dynamics, z, layers=20, stop_when=lambda x: True)) == 1


def test_a_flow_stops_at_the_moment_itself():
    """z' = -z: |z| falls to 1/10 at t = log 10, between saved times 2 and 4."""
    flow = cy.dynamics.EuclideanFlow(V=-np.eye(1))
    start = np.ones((3, 1))
    run = cy.simulate(flow, start, times=np.arange(0, 200, 2.0), stop_when=lambda z: z[0, 0] < 0.1)
    assert run.t.tolist()[:2] == [0, 2] and run.status.code == "stopped"
    assert abs(run.t[-1] - np.log(10)) < 2 / 900 and run.z[-1, 0, 0] < 0.1
    assert_allclose(run.z[:, 0, 0], np.exp(-run.t), rtol=1e-5)
    late = cy.simulate(flow, start, time=60.0, stop_when=lambda z: z[0, 0] < 1e-5)
    assert abs(late.t[-1] - np.log(1e5)) < 0.01, "after several pieces of the run"


# --- going on ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dynamics", "length"),
    [
        (cy.PureAttention(alpha=0.1), {"layers": 4}),
        (cy.PureAttention(cy.Softmax(4.0), 0.3), {"layers": 4}),
        (cy.dynamics.UnnormalizedAttention(), {"layers": 4}),
        (
            cy.dynamics.Scheduled([cy.PureAttention(cy.Softmax(b)) for b in (1.0, 9.0)]),
            {"layers": 3},
        ),
    ],
)
def test_a_run_that_goes_on_is_the_longer_run(dynamics, length, tmp_path):
    """Bit for bit, after it was saved; layers that take turns go on with the next one."""
    z = cy.configurations.gaussian(12, 2, seed=7)
    run = cy.load(cy.simulate(dynamics, z, **length).save(tmp_path / "run.npz"))
    longer, whole = run.continued(layers=20), cy.simulate(dynamics, z, layers=length["layers"] + 20)
    assert (longer.z == whole.z).all() and (longer.t == whole.t).all()
    if whole.history is not None:
        assert cy.roles(longer).born.tolist() == cy.roles(whole).born.tolist()
        assert longer.status == whole.status
    rough = run.continued(layers=20, save_every=10)
    assert rough.t.tolist() == [*run.t, run.t[-1] + 10, run.t[-1] + 20]


def test_a_flow_goes_on_in_time():
    def turn(V):
        return cy.dynamics.EuclideanFlow(V=V)

    for flow in (
        turn(-np.eye(2)),
        cy.dynamics.ScheduledFlow([turn(-np.eye(2)), turn(np.eye(2))], 1.5),
    ):
        z = cy.configurations.gaussian(5, 2, seed=1)
        run = cy.simulate(flow, z, time=2.0).continued(time=2.5)
        whole = cy.simulate(flow, z, times=run.t)
        assert run.t[-1] == 4.5 and len(run) == 201
        assert_allclose(run.z, whole.z, rtol=1e-6, atol=1e-9)
    with pytest.raises(ValueError, match="does not say what made it"):
        replace(run, dynamics=None).continued(time=1.0)


def test_a_run_at_rest_says_its_clusters_and_since_when():
    z = cy.configurations.sphere(20, 2, seed=0)
    run = cy.simulate(cy.PureAttention(cy.Softmax(4.0)), z, layers=200)
    since = next(k for k in range(201) if cy.clusters(run.z[k], 1e-3).count == 1)
    assert run.status.code == "clusters"
    assert run.status.message.startswith(f"one cluster since layer {since};")
    assert cy.simulate(cy.PureAttention(cy.Softmax(4.0)), z, layers=5).status.code == "moving"
    halves = cy.simulate(cy.PureAttention(cy.Softmax(4.0)), z, layers=40).continued(layers=160)
    assert halves.status.message.partition(";")[0] == run.status.message.partition(";")[0]


def test_a_wrong_signature_gets_the_line_to_write():
    class Bad(cy.dynamics.LayerMap):
        def step(self, z, k):
            return z

    with pytest.raises(TypeError, match=r"def step\(self, z, k, \*, mask=None\):"):
        cy.simulate(Bad(), np.ones((2, 2)), layers=1)
    with pytest.raises(TypeError, match=r"attention=Hardmax\(A=A\)"):
        cy.PureAttention(A=np.eye(2))
    with pytest.raises(TypeError, match=r"attention=Softmax\(beta=9\)"):
        cy.SphereFlow(beta=9)
    with pytest.raises(TypeError, match="no parameter 'alfa'; it has attention, alpha"):
        cy.PureAttention(alfa=1)


def test_the_command_line_goes_on_and_says_why_nothing_applies(tmp_path, capfd, monkeypatch):
    from cynosure.cli import main

    monkeypatch.chdir(tmp_path)
    assert (
        main(["simulate", "gaussian:n=9,d=2,norms=pareto:2", "--layers", "3", "--out", "run.npz"])
        == 0
    )
    assert main(["simulate", "run.npz", "--layers", "20", "--out", "longer.npz"]) == 0
    assert cy.load("longer.npz").t[-1] == 23
    assert main(["simulate", "run.npz", "--alpha", "1"]) != 0
    assert "has its own model" in capfd.readouterr().err
    replace(cy.load("run.npz"), dynamics=None, history=None).save("own.npz")
    assert main(["check", "own.npz"]) == 0
    assert "none applies: the run does not say what made it" in capfd.readouterr().err
