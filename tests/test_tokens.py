"""What may be passed as tokens and as matrices: taken for what it is, or refused in one line."""

import numpy as np
import pytest

import cynosure as cy
from cynosure._types import as_alpha, as_number, as_tokens, as_whole

Z = [[3.0, 1.0], [1.0, 2.0], [-1.0, 0.5]]


def test_integer_tensors_are_not_truncated():
    import torch

    whole = torch.tensor([[3, 1], [1, 2], [-1, 0]])
    real = whole.to(torch.get_default_dtype())
    for dynamics in (
        cy.PureAttention(alpha=0.5),
        cy.PureAttention(cy.Softmax()),
        cy.dynamics.FeedForward(),
    ):
        run = cy.simulate(dynamics, whole, layers=3)
        assert run.z.dtype == torch.get_default_dtype()
        assert torch.equal(run.z, cy.simulate(dynamics, real, layers=3).z)
    for flow in (cy.dynamics.AttentionFlow(), cy.SphereFlow()):
        run = cy.simulate(flow, whole, time=0.5)
        assert torch.equal(run.z, cy.simulate(flow, real, time=0.5).z)
    for attention in (
        cy.Softmax(),
        cy.attention.Sinkhorn(),
        cy.attention.Localmax(),
        cy.attention.Causal(cy.Softmax()),
    ):
        assert torch.equal(attention.pull(whole), attention.pull(real))


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_half_precision_becomes_single(half):
    import torch

    z = torch.tensor(Z, dtype=getattr(torch, half))
    run = cy.simulate(cy.PureAttention(cy.Softmax()), z, layers=2)
    assert run.z.dtype == torch.float32 and run.values.dtype == np.float32
    assert cy.simulate(cy.SphereFlow(), z, time=0.1).z.dtype == torch.float32
    np.testing.assert_array_equal(as_tokens(z), z.float().numpy())


def test_complex_tensors_are_refused():
    import torch

    with pytest.raises(TypeError, match="complex"):
        cy.simulate(cy.PureAttention(), torch.ones(2, 2, dtype=torch.complex64), layers=1)


def test_a_mask_is_not_lost():
    hidden = np.ma.masked_array(Z, mask=[[False, False], [True, True], [False, False]])
    for refuse in (
        lambda: cy.simulate(cy.PureAttention(), hidden, layers=1),
        lambda: cy.hull(hidden),
        lambda: cy.Softmax().pull(hidden),
        lambda: as_tokens([hidden, hidden]),
    ):
        with pytest.raises(TypeError, match="mask="):
            refuse()
    nothing = np.ma.masked_array(Z)  # nothing is hidden: nothing is lost
    np.testing.assert_array_equal(as_tokens(nothing), Z)


def test_tables_are_taken_by_their_numbers():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    columns = {"x": [3.0, 1.0, -1.0], "y": [1, 2, 0]}
    expected = np.array([[3.0, 1.0], [1.0, 2.0], [-1.0, 0.0]])
    for table in (pandas.DataFrame(columns), polars.DataFrame(columns)):
        np.testing.assert_array_equal(as_tokens(table), expected)
        run = cy.simulate(cy.PureAttention(), table, layers=2)
        np.testing.assert_array_equal(run.z, cy.simulate(cy.PureAttention(), expected, layers=2).z)
    nullable = pandas.DataFrame(columns).astype({"y": "Int64"})
    np.testing.assert_array_equal(as_tokens(nullable), expected)
    named = {**columns, "label": ["a", "b", "c"]}
    for table in (pandas.DataFrame(named), polars.DataFrame(named)):
        with pytest.raises(TypeError, match="'label'"):
            cy.hull(table)
    dated = pandas.DataFrame({"day": pandas.to_datetime(["2020-01-01"])})
    with pytest.raises(TypeError, match="'day'"):
        as_tokens(dated)
    with pytest.raises(ValueError, match="NaN"):
        as_tokens(polars.DataFrame({"x": [1.0, None], "y": [0.0, 1.0]}))


def test_dates_are_no_coordinates():
    with pytest.raises(TypeError, match="dates"):
        as_tokens(np.array([["2020-01-01"]], dtype="datetime64[D]"))


def test_alpha_is_the_number_it_holds():
    import torch

    for alpha in (np.array(0.5), torch.tensor(0.5), np.float32(0.5), torch.tensor(0.5).double()):
        assert as_alpha(alpha) == as_alpha(0.5)
    with pytest.raises(ValueError, match="alpha"):
        as_alpha(np.array([0.5, 1.0]))


@pytest.mark.parametrize("value", ["3", 2.5, [], {}, None, -1, float("nan"), float("inf")])
def test_whole_numbers_are_refused_by_name(value):
    with pytest.raises(ValueError, match="layers: expected a whole number >= 0"):
        as_whole(value, "layers", 0)


@pytest.mark.parametrize("value", ["3", b"1", [], {}, None, -1.0, float("nan"), 10**400])
def test_numbers_are_refused_by_name(value):
    with pytest.raises(ValueError, match="dt: expected a positive step, got"):
        as_number(value, "dt", "a positive step", lambda x: 0 < x < float("inf"))


def test_numbers_that_are_numbers_pass():
    assert as_whole(3.0, "n", 0) == as_whole(np.int32(3), "n", 3) == 3
    assert as_number(np.float32(0.5), "dt", "a positive step", lambda x: x > 0) == 0.5


def test_a_whole_run_in_place_of_tokens_is_told_which_part_to_pass() -> None:
    run = cy.simulate(cy.PureAttention(), np.eye(2), layers=1)
    for reads in (cy.hull, cy.analysis.effective_rank):
        with pytest.raises(TypeError, match=r"got Trajectory; pass one of its layers"):
            reads(run)
