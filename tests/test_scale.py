"""Powers of two taken out: the same bits on ordinary numbers, the right ones at the ends."""

import numpy as np
import pytest

from cynosure._scale import exponent, lengths, lossless, scaled, shifted, unit

ENDS = [5e-324, 1e-320, 1e-200, 1.0, 1e200, 1.7e308]


@pytest.mark.parametrize("size", ENDS)
def test_directions_and_lengths_at_both_ends_of_the_floats(size):
    x = size * np.array([[1.0, 1.0], [0.0, -1.0], [0.0, 0.0]])
    root = np.sqrt(0.5)
    np.testing.assert_allclose(unit(x), [[root, root], [0, -1], [0, 0]], rtol=4e-16)
    if 1e-300 < size < 1e308:
        np.testing.assert_allclose(lengths(x), [size * np.sqrt(2), size, 0], rtol=4e-16)
    assert lengths(x)[1] == size


def test_ordinary_numbers_keep_their_bits():
    x = np.random.default_rng(0).normal(size=(50, 3))
    np.testing.assert_array_equal(unit(x), x / np.sqrt((x * x).sum(axis=1, keepdims=True)))
    for k in range(-1000, 1001, 125):
        np.testing.assert_array_equal(unit(np.ldexp(x, k)), unit(x))
        np.testing.assert_array_equal(lengths(np.ldexp(x, k)), np.ldexp(lengths(x), k))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tensors_agree_with_arrays(dtype):
    import torch

    x = np.random.default_rng(1).normal(size=(4, 6, 3)).astype(dtype)
    reach = {"float32": 120, "float64": 1000}[dtype]
    for k in (-reach, -3, 0, reach):
        y = np.ldexp(x, k)
        for f in (unit, lengths):
            np.testing.assert_allclose(f(torch.tensor(y)).numpy(), f(y), rtol=1e-6)
        for axis in (-1, (-2, -1)):
            np.testing.assert_array_equal(exponent(torch.tensor(y), axis), exponent(y, axis))
        assert exponent(torch.tensor(y)) == exponent(y)


def test_scaled_and_shifted_are_inverse():
    x = np.array([[1e-310, 3e300], [0.0, 0.0], [-2.0, 0.25]])
    y, e = scaled(x, -1)
    assert e[1] == 0 and (np.abs(y).max(axis=1)[[0, 2]] >= 0.5).all() and (np.abs(y) < 1).all()
    np.testing.assert_array_equal(shifted(y[1:], e[1:]), x[1:])
    assert shifted(np.float64(1.0), 5000) == np.inf and shifted(np.float64(1.0), -5000) == 0


def test_lossless_loses_nothing():
    for x in ([[1e300, 1.0]], [[1e-320, 1e300]], [[1.7e308, 1e-5]], [[0.0, 0.0]], [[5e-324, 3.0]]):
        y, e = lossless(np.array(x))
        np.testing.assert_array_equal(np.ldexp(y, e), x)
    assert lossless(np.array([[1e300, 1e290]]))[1] == exponent(np.array([[1e300]]))
    assert np.isfinite(np.subtract(*lossless(np.array([[1.7e308], [-1.7e308]]))[0])).all()


def test_the_gradient_of_a_direction_is_tangential():
    import torch

    for size in (1e-200, 1.0, 1e200):
        x = torch.tensor([[3.0 * size, 4.0 * size]], dtype=torch.float64, requires_grad=True)
        unit(x)[0, 0].backward()
        expected = np.array([[0.128, -0.096]]) / size  # (I - u u^T) e_1 / |x|
        np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-12)
