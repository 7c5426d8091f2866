"""What the experiments on rotary, Sinkhorn, localmax, jumps and random heads count, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import cynosure as cy
from studies.hardmax import localmax_sets, rotary_leaders
from studies.heads import _signed_line, several_heads
from studies.softmax import sinkhorn_balance, trapping

EXPERIMENTS = [localmax_sets, rotary_leaders, several_heads, sinkhorn_balance, trapping]


@pytest.mark.parametrize("module", EXPERIMENTS, ids=lambda m: m.__name__.rpartition(".")[2])
def test_parameters_that_cannot_be_run_are_refused(module) -> None:
    ways = {"runs": 1, "sizes": ((1, 1, 0.1),), "n": 1}
    wrong = next({name: value} for name, value in ways.items() if hasattr(module.QUICK, name))
    with pytest.raises(ValueError, match="expected"):
        module.run(module.Params(**wrong))


def test_quiescent_sets_by_the_definition() -> None:
    rng = np.random.default_rng(0)
    seen = 0
    for _ in range(200):
        B = rng.random((5, 5)) < 0.5
        if rng.random() < 0.5:  # a clique that looks at nobody else
            Q = rng.choice(5, 2, replace=False)
            B[Q] = False
            B[np.ix_(Q, Q)] = True
        sets = [set(np.flatnonzero(row).tolist()) for row in B]
        expected = [i in s and all(sets[j] == s for j in s) for i, s in enumerate(sets)]
        assert localmax_sets._quiescent(B).tolist() == expected
        seen += sum(expected)
    assert seen > 100


def test_a_quiescent_pair_contracts_to_its_mean() -> None:
    p = localmax_sets.QUICK
    z = np.array([[1.0, 0.05], [1.0, -0.05], [-1.0, 0.0]])
    count, quiet, found, grown, split, rested, rate, off = localmax_sets._measured(p, 0.1, 1.0, z)
    assert (count, quiet, found, grown, split, rested) == (2, 1.0, 2, 0, 0, 0)
    assert rate == pytest.approx(0.5) and off < 1e-15
    apart = localmax_sets._measured(p, 0.0, 1.0, z)
    assert apart[0] == 3  # hardmax: each leads


def test_rotary_counts_by_hand() -> None:
    z = np.array([[-2.0, 0], [-2, -1], [-2, 2]])  # see docs/mathematics.md A8
    rotary = cy.attention.Rotary(cy.Hardmax())
    first, last, lost, mass = rotary_leaders._counted(rotary, z, 1.0, 10)
    assert (first, last, lost, mass) == (2, 3, 1, 0.5)
    assert rotary_leaders._counted(cy.Hardmax(), z, 1.0, 40)[:3] == (2, 2, 0)


def test_tokens_that_swing_between_two_leaders_are_counted() -> None:
    """Tokens 1, 2 and 3 follow two leaders in turn, and 2 and 3 meet: docs/mathematics.md A8."""
    z, p = np.array(rotary_leaders.SWINGING), rotary_leaders.QUICK
    for base in (10.0, 1e4, 1e8):
        rule = cy.attention.Rotary(cy.Hardmax(), base)
        moving, period, met, leading, growth = rotary_leaders._end(p, rule, z, 1.0)
        assert (moving, period, met, leading) == (3, 10, 2, 3) and growth <= 1e-14
    moving, period, met, leading, _ = rotary_leaders._end(p, cy.Hardmax(), z, 1.0)
    assert (moving, period, met) == (0, 1, 0) and leading < 6


def test_a_head_that_looks_across_grows_by_minus_its_value() -> None:
    """A = V = -I from both sides: each token follows the opposite one, and -V = I moves it away."""
    x = np.concatenate([np.eye(2)[:1], -np.eye(2)[:1]])
    heads = cy.attention.Heads([cy.Softmax(1.0, -np.eye(2))], [-np.diag([1.0, 0.5])])
    times = np.linspace(0, 16, 81)
    tr = cy.simulate(
        cy.dynamics.UnnormalizedFlow(heads), x, times=times, stepper=cy.simulation.RK4(0.1)
    )
    A, V = -np.eye(2)[None], -np.diag([1.0, 0.5])[None]
    end = _signed_line.line_end(tr, A, V)
    assert end.on_a_line and end.sides == 2 and end.minus == 1 and end.clusters == 2
    assert end.signed == pytest.approx(1.0) and end.plain == pytest.approx(-0.5)
    assert end.growth == pytest.approx(1.0, abs=1e-3) and end.along == pytest.approx(1.0)
    assert end.gap == pytest.approx(0.5)
    assert end.right("signed") and not end.right("plain")


def test_influences_are_those_of_the_product() -> None:
    """W z^0 = z^k; under Sinkhorn each influence is 1/n, under softmax long tokens have more."""
    p = sinkhorn_balance.QUICK
    size = (p.n, p.d, p.alpha, "gaussian")
    soft, balanced = (sinkhorn_balance._cell(p, rule, 1.0, size) for rule in sinkhorn_balance.RULES)
    assert min(balanced.deciding) > 0.9999 and max(balanced.drift) < 1e-6
    assert max(soft.deciding) < 0.99 and min(soft.drift) > 1e-3
    run = sinkhorn_balance._run(p, "softmax", 1.0, size, 1).select(0)
    z, W = run.values, np.eye(p.n)
    for state in z[:-1]:
        W = (2 * W + cy.Softmax(1.0).weights(state) @ W) / 3
    np.testing.assert_allclose(W @ z[0], z[-1], atol=1e-13)
    w = W.mean(axis=0)
    assert soft.deciding[0] == pytest.approx(1 / (p.n * (w**2).sum()))
    width = np.sqrt(((z[0] - z[0].mean(axis=0)) ** 2).sum(axis=1).mean())
    assert soft.drift[0] == pytest.approx(np.linalg.norm((w - 1 / p.n) @ z[0]) / width)


def test_exits_of_one_token_more_follow_the_law() -> None:
    p = trapping.Params(layers=400, runs=300)
    cell = trapping._cell(p, (4, 1, 0.5, 0.0), 5.0)
    assert cell.beta == pytest.approx(5.0) and cell.held == 0
    q = 1 - 1 / (1 + 2 * np.exp(-5.0) + np.exp(-10.0))  # two neighbours and the opposite vertex
    assert cell.chance == pytest.approx(1 - (1 - q) ** (4 * cell.expected))
    assert cell.low <= np.log(2) / -np.log1p(-q) / 4 <= cell.high
    assert trapping._fits(cell)
    wrong = cell.replace(chance=cell.chance - 0.15)
    assert not trapping._fits(wrong)


def test_one_step_and_one_crowd_are_no_control() -> None:
    """Nothing was varied, so nothing has survived; nor is sooner by itself in proportion."""
    p, at = trapping.Params(), trapping._middle(trapping.Params())
    law = cy.study.Cell(
        vertices=4, each=1, g=p.g, off=0.0, barrier=at, beta=at, middle=36, low=30, high=40, held=0,
        runs=100, expected=36, below=51, chance=0.5,
    )  # fmt: skip
    alone = [c.survives for c in trapping._controls(p, [law], [])]
    told = trapping._summary(replace(p, vertices=(4,)), [law])
    assert alone[1:] == [False, False] and "nan" not in told
    step, crowd = law.replace(g=0.3), law.replace(each=3, middle=12, low=10, high=14)
    assert [c.survives for c in trapping._controls(p, [law], [step, crowd])][1:] == [True, True]
    slow = crowd.replace(below=5)  # sooner, but not as the law says
    assert not trapping._controls(p, [law], [step, slow])[2].survives
