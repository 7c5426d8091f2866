"""What the flow experiments measure beside their pictures: starts, rates, uncoupled tokens."""

from dataclasses import replace

import numpy as np

from cynosure import configurations
from cynosure.analysis.limits import limit
from cynosure.dynamics import PureAttention
from studies.hardmax import neural_collapse
from studies.softmax import boolean_attention, master_equation


def softmax(scores):
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def test_uncoupled_tokens_are_those_of_the_published_script():
    """x(t) = e^{tV} x(0): for V = I in plain loops, and never fewer columns than at the start."""
    found = boolean_attention.compare_ranks(12, 20, 1e-6, 6.0, seed=3)
    assert len(found) == 4
    z0 = np.sqrt(3 / 20) * configurations.box(12, 20, 3)
    pair = found["V = I, tokens of length 1"]
    x = np.exp(6.0) * z0
    np.testing.assert_allclose(pair.last["uncoupled"], softmax(x @ x.T), atol=1e-9)
    assert pair.ranks["uncoupled"] == [12] * 41
    assert pair.ranks["coupled"][-1] < 12  # attention merges what V alone keeps apart
    for one in found.values():
        assert one.ranks["coupled"][0] == one.ranks["uncoupled"][0]
        np.testing.assert_allclose(one.last["coupled"].sum(axis=1), 1)


def test_the_start_drawn_is_one_of_the_starts_counted():
    p = replace(master_equation.QUICK, starts=6)
    report = master_equation.run(p)
    others = next(t for t in report.tables if t.title == "Other starts")
    assert [row[0] for row in others.rows] == list(range(6))
    drawn = next(t for t in report.tables if t.title == "Softmax flow")
    shown = others.rows[p.seed]
    assert drawn.rows[0][1] == shown[1] and drawn.rows[-1][3] == shown[4]
    assert f"first {p.starts} seeds" in report.summary


def test_groups_with_leaders_of_their_own_are_counted_as_the_limit_says():
    p = replace(neural_collapse.QUICK, starts=5)
    report = neural_collapse.run(p)
    others = next(t for t in report.tables if t.title == "Other starts")
    for seed, own, *_ in others.rows:
        z0, labels = neural_collapse._tokens(replace(p, seed=seed))
        points = limit(PureAttention(alpha=p.alpha), z0).points
        groups = {
            tuple(map(tuple, np.unique(points[labels == g], axis=0))) for g in range(p.groups)
        }
        assert own == (all(len(g) == 1 for g in groups) and len(groups) == p.groups)
