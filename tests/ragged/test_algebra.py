"""The laws of the algebra, where they hold and where they do not, on random values."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ragged.values import by_definition, entries, shapes, values, widened

import evergrad as eg
from evergrad import ragged
from evergrad.ragged import add, convolve, correlate, equal, inner, kron, mul, neg, scale, shrink

quick = settings(max_examples=60, deadline=None)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "convolve", "correlate"])
@quick
@given(a=values, b=values)
def test_results_are_those_of_the_definition(name: str, a: ragged.Tensor, b: ragged.Tensor) -> None:
    found = getattr(ragged, name)(a, b)
    assert entries(found.numpy()) == by_definition(name, a.numpy(), b.numpy())


def test_the_example_of_the_docs() -> None:
    assert add(ragged.tensor([1, 2, 3]), ragged.tensor([4, 5])).tolist() == [5, 7, 3]
    assert mul(ragged.tensor([1, 2, 3]), ragged.tensor([4, 5])).tolist() == [4, 10, 0]
    assert ragged.sub(ragged.tensor([4]), ragged.tensor([[1, 2], [3, 4]])).tolist() == [
        [3, -2],
        [-3, -4],
    ]


@quick
@given(a=values, b=values)
def test_the_shape_of_a_sum_is_the_elementwise_maximum(a: ragged.Tensor, b: ragged.Tensor) -> None:
    expected = tuple(map(max, itertools.zip_longest(a.shape, b.shape, fillvalue=1)))
    for result in (add(a, b), ragged.sub(a, b), mul(a, b)):
        assert tuple(result.shape) == expected


# -- laws that hold -----------------------------------------------------------------------------


@quick
@given(a=values, b=values, c=values)
def test_addition_is_a_commutative_group(a: Any, b: Any, c: Any) -> None:
    zero = ragged.zero(eg.int64)
    assert add(a, b) == add(b, a)
    assert add(add(a, b), c) == add(a, add(b, c))
    assert add(a, zero) == a
    assert add(a, neg(a)) == zero


@pytest.mark.parametrize("product", [convolve, mul])
@quick
@given(a=values, b=values, c=values)
def test_convolution_and_hadamard_make_commutative_rings(
    product: Any, a: Any, b: Any, c: Any
) -> None:
    assert product(a, b) == product(b, a)
    assert product(product(a, b), c) == product(a, product(b, c))
    assert product(a, add(b, c)) == add(product(a, b), product(a, c))


@quick
@given(a=values, b=values, c=values)
def test_kron_is_associative_and_distributes_from_the_left(a: Any, b: Any, c: Any) -> None:
    assert kron(kron(a, b), c) == kron(a, kron(b, c))
    assert kron(add(a, b), c) == add(kron(a, c), kron(b, c))


@quick
@given(a=values)
def test_neutral_and_absorbing_values(a: Any) -> None:
    one, zero = ragged.one(eg.int64), ragged.zero(eg.int64)
    assert convolve(a, one) == a and convolve(one, a) == a
    assert kron(a, one) == a and kron(one, a) == a
    for product in (convolve, mul, kron):
        assert product(a, zero) == zero and product(zero, a) == zero


@quick
@given(a=values, b=values, extra=shapes, other=shapes)
def test_operations_respect_equivalence(a: Any, b: Any, extra: Any, other: Any) -> None:
    x, y = widened(a, extra), widened(b, other)
    assert x == a and y == b
    for name in ("add", "sub", "mul", "convolve", "correlate"):
        assert equal(getattr(ragged, name)(x, y), getattr(ragged, name)(a, b)), name
    assert inner(x, y).item() == inner(a, b).item()
    assert ragged.sum(x).item() == ragged.sum(a).item()
    assert ragged.norm(x.double()).item() == pytest.approx(ragged.norm(a.double()).item())
    assert shrink(x).shape == shrink(a).shape
    assert kron(x, b) == kron(a, b)  # in the first operand


@quick
@given(a=values, b=values, x=st.floats(-2, 2), y=st.floats(-2, 2), z=st.floats(-2, 2))
def test_evaluation_is_a_homomorphism_of_rings(
    a: Any, b: Any, x: float, y: float, z: float
) -> None:
    def at(value: ragged.Tensor) -> float:
        return float(ragged.evaluate(value.double(), x, y, z).item())

    assert at(add(a, b)) == pytest.approx(at(a) + at(b), rel=1e-6, abs=1e-6)
    assert at(convolve(a, b)) == pytest.approx(at(a) * at(b), rel=1e-6, abs=1e-6)


@quick
@given(a=values, b=values, c=values)
def test_correlation_is_the_transpose_of_convolution(a: Any, b: Any, c: Any) -> None:
    assert inner(convolve(a, b), c).item() == inner(a, correlate(c, b)).item()


@quick
@given(a=values, b=values)
def test_scalar_product_and_norm_agree(a: Any, b: Any) -> None:
    assert inner(a, b).item() == inner(b, a).item()
    left, right = (ragged.norm(x.double()).item() for x in (a, b))
    assert inner(a, a).item() == pytest.approx(left**2)
    assert abs(inner(a, b).item()) <= left * right * (1 + 1e-12)


@quick
@given(a=values, c=st.integers(-3, 3))
def test_scaling_is_convolution_with_a_number(a: Any, c: int) -> None:
    assert scale(a, c) == convolve(a, ragged.tensor([c]))
    assert scale(a, 2) == add(a, a) and 2 * a == a * 2 and a * 2 == add(a, a)
    assert scale(a, eg.tensor(2)) == add(a, a)


@quick
@given(a=values)
def test_the_smallest_representative(a: Any) -> None:
    small = shrink(a)
    assert small == a and shrink(small).shape == small.shape
    assert small.ndim >= 1 and (small.ndim == 1 or small.shape[-1] > 1)
    array = small.numpy()
    for dim in range(small.ndim):
        assert not array.size or array.take(-1, dim).any()


# -- laws that do not hold ----------------------------------------------------------------------


def test_kron_depends_on_the_representative_of_its_second_operand() -> None:
    a, b, c = ragged.tensor([1, 2]), ragged.tensor([3]), ragged.tensor([3, 0])
    assert b == c
    assert kron(a, b).tolist() == [3, 6] and kron(a, c).tolist() == [3, 0, 6, 0]
    assert kron(a, b) != kron(a, c)


def test_kron_neither_commutes_nor_distributes_from_the_right() -> None:
    a, b, c = ragged.tensor([1, 2]), ragged.tensor([1, 0, 1]), ragged.tensor([5])
    assert kron(a, b) != kron(b, a)
    assert kron(a, add(b, c)) != add(kron(a, b), kron(a, c))


def test_hadamard_has_no_neutral_value() -> None:
    """It would be one everywhere, which no array is: every candidate cuts a longer value off."""
    for n in range(5):
        assert mul(ragged.tensor(np.ones(n)), ragged.tensor(np.ones(n + 1))) != ragged.tensor(
            np.ones(n + 1)
        )


def test_convolution_has_no_inverse() -> None:
    with pytest.raises(ValueError, match="no inverse"):
        ragged.power(ragged.tensor([1.0, 1.0]), -1)


# -- other kinds of operands --------------------------------------------------------------------

DENSE = [
    ("+", lambda a, x: a + x), ("-", lambda a, x: x - a), ("*", lambda a, x: a * x),
    ("*", lambda a, x: x * a), ("==", lambda a, x: a == x), ("/", lambda a, x: a / x),
    ("+", lambda a, x: add(a, x)), ("convolve", lambda a, x: convolve(x, a)),
    ("kron", lambda a, x: kron(a, x)), ("inner", lambda a, x: inner(x, a)),
]  # fmt: skip


@pytest.mark.parametrize(
    "other", [eg.ones(2), np.ones(2), [1.0, 2.0], "x"], ids=lambda o: type(o).__name__
)
@pytest.mark.parametrize(("symbol", "call"), DENSE)
def test_dense_operands_are_refused(symbol: str, call: Any, other: Any) -> None:
    with pytest.raises(TypeError, match="not mixed"):
        call(ragged.tensor([1.0, 2.0]), other)


@pytest.mark.parametrize(
    "call",
    [eg.add, eg.mul, eg.matmul, lambda x, a: x.add_(a), lambda x, a: eg.stack([x, a]),
     lambda x, a: eg.where(x > 0, x, a), lambda x, a: x.copy_(a), lambda x, a: x + a],
)  # fmt: skip
def test_functions_of_dense_tensors_refuse_values(call: Any) -> None:
    with pytest.raises(TypeError):
        call(eg.ones(1), ragged.one())


@pytest.mark.parametrize(
    "call",
    [ragged.neg, ragged.sum, ragged.norm, ragged.shrink, ragged.roots, ragged.evaluate,
     lambda x: ragged.scale(x, 2.0), lambda x: ragged.power(x, 2), lambda x: ragged.stack([x])],
)  # fmt: skip
def test_functions_of_one_value_refuse_dense_tensors(call: Any) -> None:
    for other in (eg.ones(2), np.ones(2), 3.0):
        with pytest.raises(TypeError):
            call(other)


def test_a_number_is_no_operand_of_a_sum() -> None:
    with pytest.raises(TypeError, match="not mixed"):
        ragged.one() + 1
    with pytest.raises(TypeError, match="not mixed"):
        1 - ragged.one()


def test_a_value_has_neither_truth_nor_hash() -> None:
    with pytest.raises(TypeError):
        bool(ragged.one())
    with pytest.raises(TypeError):
        hash(ragged.one())


# -- elements and types -------------------------------------------------------------------------


def test_elements_beyond_the_representative_are_zero() -> None:
    a = ragged.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert a[1, 1].item() == 4 and a[1].item() == 3 and a[5, 0].item() == 0
    assert a[0, 1, 0].item() == 2 and a[0, 1, 3].item() == 0
    for index in (-1, (0, -1), 0.5, slice(2)):
        with pytest.raises(IndexError):
            a[index]  # type: ignore[index]


def test_types_promote_as_those_of_dense_tensors() -> None:
    i, f, c = ragged.tensor([1, 2]), ragged.tensor([0.5]), ragged.tensor([1j])
    for product in (add, mul, convolve, kron):
        assert product(i, i).dtype is eg.int64
        assert product(i, f).dtype is eg.float32
        assert product(f, c).dtype is eg.complex64
    assert convolve(c, c).tolist() == [-1]
    assert inner(c, c).item() == 1
    assert correlate(c, c).tolist() == [1]


def test_infinities_stay_where_they_are() -> None:
    """A transform would spread them."""
    a = np.ones(3000)
    a[100] = np.inf
    found = convolve(ragged.tensor(a), ragged.tensor(np.ones(3000))).numpy()
    assert np.isinf(found[100:3100]).all()
    assert np.isfinite(found[:100]).all() and np.isfinite(found[3100:]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.int64])
@pytest.mark.parametrize(("n", "m"), [(5000, 3000), (5000, 3), (3, 5000), (64, 64), (1, 5000)])
def test_large_convolutions(dtype: Any, n: int, m: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, k).astype(dtype) for k in (n, m))
    found = convolve(ragged.tensor(a), ragged.tensor(b)).numpy()
    assert found.dtype == dtype
    expected = np.convolve(a.astype(np.complex128), b.astype(np.complex128))
    np.testing.assert_allclose(
        found, expected, atol=2e-2 if dtype in (np.float32, np.complex64) else 1e-6
    )


@pytest.mark.parametrize("shape", [(40, 30), (2, 100), (12, 9, 8)])
def test_convolutions_in_several_dimensions(shape: tuple[int, ...]) -> None:
    """Against a product of Fourier transforms that are long enough for everything."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(shape), rng.standard_normal(tuple(n // 2 + 1 for n in shape))
    axes = tuple(range(a.ndim))
    full = tuple(n + m - 1 for n, m in zip(a.shape, b.shape, strict=True))
    expected = np.fft.ifftn(np.fft.fftn(a, full, axes) * np.fft.fftn(b, full, axes)).real
    np.testing.assert_allclose(
        convolve(ragged.tensor(a), ragged.tensor(b)).numpy(), expected, atol=1e-9
    )


def test_truncated_products() -> None:
    """Power series: 1 / (1 - x) times itself counts up."""
    ones = ragged.tensor(np.ones(6))
    assert convolve(ones, ones, size=(4,)).tolist() == [1, 2, 3, 4]
    assert convolve(ragged.tensor([1.0, 1.0]), ragged.tensor([1.0]), size=(4,)).tolist() == [
        1,
        1,
        0,
        0,
    ]
    assert ragged.power(ragged.tensor([1, 1]), 4).tolist() == [1, 4, 6, 4, 1]
    assert ragged.power(ragged.tensor([1, 1]), 0) == ragged.one(eg.int64)


def test_stacks() -> None:
    made = ragged.stack([ragged.tensor([1.0]), ragged.tensor([[1.0, 2.0], [3.0, 4.0]])])
    assert made.tolist() == [[[1, 0], [0, 0]], [[1, 2], [3, 4]]]
    with pytest.raises(TypeError):
        ragged.stack([eg.ones(2)])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="no values"):
        ragged.stack([])


@pytest.mark.parametrize("p", [1, 2, 3.5, float("inf")])
def test_norms(p: float) -> None:
    a = ragged.tensor([[3.0, -4.0], [0.0, 1.0]])
    assert ragged.norm(a, p).item() == pytest.approx(np.linalg.norm([3, -4, 0, 1], p))
    assert ragged.norm(ragged.zero(), p).item() == 0
    with pytest.raises(ValueError, match="at least 1"):
        ragged.norm(a, 0.5)


@pytest.mark.parametrize(
    ("call", "error", "told"), [
        (lambda a: ragged.convolve(a, a, size=(-1,)), ValueError, "extents from 0"),
        (lambda a: ragged.correlate(a, a, size=(2, -3)), ValueError, "extents from 0"),
        (lambda a: ragged.power(a, 1.5), TypeError, "must be an integer"),
        (lambda a: ragged.Batch(eg.ones(2), [(-1,), (3,)]), ValueError, "extents from 0"),
        (lambda a: ragged.Batch(eg.ones(2), [(-1, -2)]), ValueError, "extents from 0"),
        (lambda a: ragged.Batch(eg.ones(2), [(1,), (1,)], (-1, -2)), ValueError, "extents from 0"),
        (lambda a: ragged.batch([a, a])[0:1], IndexError, "integers"),
        (lambda a: ragged.batch([a, a])[0, 0], IndexError, "integers"),
        (lambda a: ragged.batch([a, a])["a"], IndexError, "integers"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(call: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        call(ragged.tensor([1.0, 2.0]))


@pytest.mark.parametrize("call", [list, set, lambda a: 3.0 in a, lambda a: [*a], np.asarray,
                                  np.array, sum, ragged.batch])  # fmt: skip
def test_a_value_has_no_end_and_is_no_array(call: Any) -> None:
    with pytest.raises(TypeError, match=r"fix: |not iterable"):
        call(ragged.tensor([1.0, 2.0]))


def test_integers_of_numpy_are_indices_and_exponents() -> None:
    a = ragged.tensor([1.0, 2.0])
    assert a[np.int64(1)].item() == 2 and ragged.batch([a, a])[np.int32(1)] == a
    assert ragged.power(a, np.int64(2)) == ragged.convolve(a, a)  # type: ignore[arg-type]
    assert ragged.convolve(a, a, size=2).tolist() == [1, 4]
    for index in (True, np.bool_(True)):
        with pytest.raises(IndexError):
            a[index]
