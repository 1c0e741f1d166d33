"""What samples of rows do not reach: errors, forms of calls, results whose size depends on data."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import evergrad
from evergrad import tensor


def test_number_comparisons_wrap_as_in_pytorch() -> None:
    x = tensor([44, 255, 0], dtype=evergrad.uint8)
    assert (x == 300).tolist() == [True, False, False]
    assert (x < -1).tolist() == [True, False, True]
    assert (tensor([0.1], dtype=evergrad.bfloat16) == 0.1).item()


def test_comparison_with_what_is_no_number() -> None:
    x = tensor([1, 2])
    assert (x == None) is False  # noqa: E711
    assert (x != "a") is True
    with pytest.raises(TypeError, match="not supported between"):
        _ = x < "a"
    assert hash(x) == hash(x)


def test_complex_numbers_have_no_order() -> None:
    z = tensor([1j])
    with pytest.raises(NotImplementedError, match="lt"):
        _ = z < 1
    with pytest.raises(NotImplementedError, match="amax"):
        z.max()
    with pytest.raises(NotImplementedError, match="argsort"):
        z.sort()


def test_invert_of_floats() -> None:
    with pytest.raises(TypeError, match="only implemented on integer and Boolean"):
        ~tensor([1.0])


def test_close_and_equal() -> None:
    x = tensor([1.0, float("nan")])
    assert evergrad.allclose(x, x, equal_nan=True)
    assert not evergrad.allclose(x, x)
    assert evergrad.equal(tensor([1, 2]), tensor([1.0, 2.0]))
    assert not evergrad.equal(tensor([1, 2]), tensor([[1, 2]]))
    with pytest.raises(RuntimeError, match="did not match"):
        evergrad.isclose(tensor([1.0]), tensor([1]))
    with pytest.raises(RuntimeError, match="rtol must be"):
        evergrad.isclose(x, x, rtol=-1)


def test_nothing_to_choose_from() -> None:
    x = evergrad.zeros(0, 3)
    with pytest.raises(RuntimeError, match="Expected reduction dim to be specified"):
        x.max()
    with pytest.raises(IndexError, match="Expected reduction dim 0 to have non-zero size"):
        x.max(0)
    with pytest.raises(IndexError, match="Expected reduction dim to be specified"):
        x.argmax()
    assert x.max(1).values.shape == (0,)


def test_integers_have_no_mean() -> None:
    with pytest.raises(RuntimeError, match="Got: int64"):
        tensor([1, 2]).mean()
    with pytest.raises(RuntimeError, match="std and var only support"):
        tensor([1, 2]).var()


def test_named_results() -> None:
    found = tensor([3.0, 1.0]).max(0)
    assert found.values.item() == 3 and found.indices.item() == 0
    assert repr(found) == "evergrad.return_types.max(\nvalues=tensor(3.),\nindices=tensor(0))"
    assert type(pickle.loads(pickle.dumps(evergrad.return_types.sort(1, 2)))).__name__ == "sort"


def test_out_takes_several_results() -> None:
    x = tensor([[3.0, 1.0], [2.0, 5.0]])
    values, places = evergrad.empty(2), evergrad.empty(2, dtype=evergrad.int64)
    found = evergrad.max(x, 1, out=(values, places))
    assert found.values is values and values.tolist() == [3, 5] and places.tolist() == [0, 1]


def test_maximum_of_two_by_the_name_of_max() -> None:
    x, y = tensor([1.0, 4.0]), tensor([2.0, 3.0])
    assert evergrad.max(x, y).tolist() == [2, 4]
    assert evergrad.min(x, other=y).tolist() == [1, 3]


def test_numpy_names() -> None:
    x = tensor([[1.0, 2.0], [3.0, 4.0]])
    assert x.sum(axis=0, keepdims=True).tolist() == [[4, 6]]
    assert x.argmax(axis=1).tolist() == [1, 1]
    assert evergrad.sort(x, axis=0, descending=True).indices.tolist() == [[1, 1], [0, 0]]


def test_variance_counts_freedom_once() -> None:
    with pytest.raises(TypeError, match="either unbiased or correction"):
        evergrad.var(tensor([1.0, 2.0]), 0, unbiased=False, correction=1)


@pytest.mark.parametrize("name", ["int64", "int32", "int8", "uint8", "uint64", "bool", "float32"])
def test_unique_of_ranges(name: str) -> None:
    """Integers of a small range are counted, others sorted."""
    limits = np.iinfo(name) if np.dtype(name).kind in "iu" else np.iinfo("int8")
    for x in (
        np.random.default_rng(0).integers(0, 2, 50),
        np.array([limits.max, limits.max - 2, limits.max], object),
        np.array([limits.min, limits.min + 1, limits.min], object),
        np.array([limits.max, limits.min, 0], object),
    ):
        given = x.astype(name)
        expected = np.unique(given, return_inverse=True, return_counts=True)
        found = tensor(given).unique(return_inverse=True, return_counts=True)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a.numpy(), b)
        assert found[0].numpy().dtype == given.dtype
        np.testing.assert_array_equal(tensor(given).unique().numpy(), expected[0])


def test_unique() -> None:
    x = tensor([[3, 1, 2], [1, 3, 3]])
    values, inverse, counts = x.unique(return_inverse=True, return_counts=True)
    assert values.tolist() == [1, 2, 3] and counts.tolist() == [2, 1, 3]
    assert inverse.tolist() == [[2, 0, 1], [0, 2, 2]]
    assert x.unique(dim=0).tolist() == [[1, 3, 3], [3, 1, 2]]
    assert tensor(2.0).unique(return_inverse=True)[1].shape == ()
    with pytest.raises(RuntimeError, match="0 sized dimensions"):
        evergrad.zeros(3, 0).unique(dim=0)


def test_unique_consecutive() -> None:
    x = tensor([1, 1, 2, 1, 1, 1])
    values, inverse, counts = x.unique_consecutive(True, True)
    assert values.tolist() == [1, 2, 1] and counts.tolist() == [2, 1, 3]
    assert inverse.tolist() == [0, 0, 1, 2, 2, 2]
    assert tensor([[1, 1], [2, 2]]).unique_consecutive(dim=1).tolist() == [[1], [2]]
    assert evergrad.zeros(0).unique_consecutive().shape == (0,)


def test_bincount() -> None:
    x = tensor([1, 3, 1])
    assert x.bincount().tolist() == [0, 2, 0, 1]
    assert x.bincount(minlength=6).tolist() == [0, 2, 0, 1, 0, 0]
    weighted = evergrad.bincount(x, tensor([0.5, 1.0, 2.0]))
    assert weighted.dtype is evergrad.float32 and weighted.tolist() == [0, 2.5, 0, 1]
    with pytest.raises(RuntimeError, match="1-d non-negative"):
        evergrad.bincount(tensor([-1]))
    with pytest.raises(NotImplementedError, match="float32"):
        evergrad.bincount(tensor([1.0]))


def test_quantile_takes_fractions() -> None:
    x = tensor([1.0, 2.0])
    with pytest.raises(RuntimeError, match="range"):
        x.quantile(1.5)
    with pytest.raises(RuntimeError, match="range"):
        x.quantile(tensor([1.5]))
    with pytest.raises(RuntimeError, match="interpolation"):
        x.quantile(0.5, interpolation="cubic")


def test_lerp_needs_one_type() -> None:
    x = tensor([1.0, 2.0])
    with pytest.raises(RuntimeError, match="expected dtype float32 for `end`"):
        evergrad.lerp(x, x.double(), 0.5)
    assert x.clone().lerp_(x + 1, tensor(0.5, dtype=evergrad.float64)).tolist() == [1.5, 2.5]


def test_integer_division_is_refused_by_addcdiv() -> None:
    x = tensor([1, 2])
    with pytest.raises(RuntimeError, match="Integer division"):
        evergrad.addcdiv(x, x, x)
