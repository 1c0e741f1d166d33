"""The functions of the array API standard: our namespace against NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
import evergrad.array_api as xp
from evergrad import Tensor

REAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1e-30, 9.0])
COMPLEX = (REAL[:, None] + 1j * REAL[None, 3:]).astype(np.complex128)
FINITE = np.array([[0.5, -2.0, 3.0], [-1.5, 4.0, 0.25]])
WHOLE = np.array([[3, -2, 7], [0, 5, -4]])
STACK = np.linspace(-2, 3, 24).reshape(2, 3, 4) ** 2
MATRIX = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.5, -1.0, 5.0]])
MATRICES = np.stack([MATRIX, MATRIX @ MATRIX + np.eye(3)])
TRUTH = np.array([[True, False, True], [False, False, True]])

Call = Callable[..., Any]


def agree(call: Call, *inputs: Any, same_dtype: bool = True, rtol: float = 1e-12) -> None:
    """The call gives the same with our namespace as with NumPy's."""
    with np.errstate(all="ignore"):
        expected = call(np, *inputs)
        found = call(xp, *(as_tensors(value) for value in inputs))
    compare(found, expected, same_dtype, rtol)


def as_tensors(value: Any) -> Any:
    if isinstance(value, list):
        return [as_tensors(one) for one in value]
    return xp.asarray(value.copy()) if isinstance(value, np.ndarray) else value


def compare(found: Any, expected: Any, same_dtype: bool, rtol: float) -> None:
    if isinstance(expected, tuple | list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            compare(one, other, same_dtype, rtol)
        return
    if not isinstance(expected, np.ndarray | np.generic):
        assert found == expected
        return
    assert isinstance(found, Tensor) and found.shape == expected.shape
    if same_dtype:
        assert found.dtype.name == expected.dtype.name
    if expected.dtype == np.float32 or expected.dtype == np.complex64:
        rtol = max(rtol, 2e-6)
    array = found.detach().numpy()
    np.testing.assert_allclose(array, expected, rtol=rtol, atol=rtol)
    if expected.dtype.kind == "f":
        zero = expected == 0
        np.testing.assert_array_equal(np.signbit(array[zero]), np.signbit(expected[zero]))


# -- elementwise --------------------------------------------------------------------------------

REAL_UNARY = """
    abs acos acosh asin asinh atan atanh ceil conj cos cosh exp expm1 floor isfinite isinf isnan log
    log1p log2 log10 logical_not negative positive real reciprocal round sign signbit sin sinh sqrt
    square tan tanh trunc
"""
COMPLEX_UNARY = """
    abs acos acosh asin asinh atan atanh conj cos cosh exp expm1 imag isfinite isinf isnan log log1p
    log2 log10 negative positive real reciprocal round sin sinh sqrt square tan tanh
"""
INTEGER_UNARY = """
    abs bitwise_invert ceil floor isfinite isinf isnan negative positive round sign square trunc
"""
REAL_BINARY = """
    add atan2 copysign divide equal floor_divide greater greater_equal hypot less less_equal
    logaddexp maximum minimum multiply nextafter not_equal pow remainder subtract
"""
INTEGER_BINARY = """
    add bitwise_and bitwise_or bitwise_xor equal floor_divide greater greater_equal less less_equal
    maximum minimum multiply not_equal remainder subtract
"""


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("name", REAL_UNARY.split())
def test_real_numbers(name: str, kind: str) -> None:
    agree(lambda ns, x: getattr(ns, name)(x), REAL.astype(kind))


@pytest.mark.parametrize("name", COMPLEX_UNARY.split())
def test_complex_numbers(name: str) -> None:
    agree(lambda ns, x: getattr(ns, name)(x), COMPLEX)


def test_sign_of_complex_numbers() -> None:
    """The standard leaves open what it is at infinity."""
    agree(lambda ns, x: ns.sign(x), COMPLEX[[0, *range(3, 13)]])


@pytest.mark.parametrize("kind", ["int8", "int32", "int64", "uint8"])
@pytest.mark.parametrize("name", INTEGER_UNARY.split())
def test_integers(name: str, kind: str) -> None:
    agree(lambda ns, x: getattr(ns, name)(x), abs(WHOLE).astype(kind))


@pytest.mark.parametrize("name", REAL_BINARY.split())
def test_pairs_of_real_numbers(name: str) -> None:
    agree(lambda ns, a, b: getattr(ns, name)(a, b), REAL[:, None], REAL[None])


@pytest.mark.parametrize("name", INTEGER_BINARY.split())
def test_pairs_of_integers(name: str) -> None:
    divisors = np.array([[2, -3, 5]], np.int32)
    agree(lambda ns, a, b: getattr(ns, name)(a, b), WHOLE.astype(np.int16), divisors)


@pytest.mark.parametrize("name", ["add", "divide", "equal", "multiply", "not_equal", "subtract"])
def test_pairs_of_complex_numbers(name: str) -> None:
    values = COMPLEX[3:, ::2]
    agree(lambda ns, a, b: getattr(ns, name)(a, b), values, values[:1] + 1)


@pytest.mark.parametrize("name", ["bitwise_left_shift", "bitwise_right_shift"])
def test_shifts(name: str) -> None:
    agree(lambda ns, a, b: getattr(ns, name)(a, b), WHOLE, np.array([0, 2, 5]))


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_logic(name: str) -> None:
    agree(lambda ns, a, b: getattr(ns, name)(a, b), TRUTH, TRUTH[::-1])
    agree(lambda ns, a: getattr(ns, name)(a, True), TRUTH)


@pytest.mark.parametrize("name", REAL_BINARY.split())
def test_python_numbers_count_by_their_kind(name: str) -> None:
    x = np.array([0.5, 2.0], np.float32)
    for shaped in (x, x[0, ...]):
        agree(lambda ns, a: getattr(ns, name)(a, 3), shaped)
        agree(lambda ns, a: getattr(ns, name)(1.5, a), shaped)


def test_arrays_without_dimensions_count_in_promotion() -> None:
    """Unlike in PyTorch, where operators keep the type of what has dimensions."""
    low, high = np.ones(3, np.float32), np.array(2.0, np.float64)
    for name in ("add", "maximum", "pow", "less"):
        agree(lambda ns, a, b, name=name: getattr(ns, name)(a, b), low, high)
    agree(lambda ns, c, a, b: ns.where(c, a, b), TRUTH[0], low, high)
    assert (eg.ones(3) + eg.tensor(2.0, dtype=eg.float64)).dtype is eg.float32


@pytest.mark.parametrize("bounds", [(-1, 2), (None, 1.5), (0.0, None), (None, None)])
def test_clip(bounds: tuple[Any, Any]) -> None:
    agree(lambda ns, x: ns.clip(x, *bounds), FINITE)
    agree(lambda ns, x: ns.clip(x, *bounds), REAL.astype(np.float32))


def test_clip_keeps_the_element_type() -> None:
    bounds = np.array([-1.0, 0.0, 1.0])
    agree(lambda ns, x, low: ns.clip(x, low, 2), FINITE, bounds)
    narrow = xp.clip(xp.asarray([1.0, 5.0]), xp.asarray(2.0, dtype=xp.float64))
    assert narrow.dtype is xp.float32 and narrow.tolist() == [2.0, 5.0]
    small = xp.clip(xp.asarray([-100, 100], dtype=xp.int8), -1000, 50)
    assert small.dtype is xp.int8 and small.tolist() == [-100, 50]


# -- making -------------------------------------------------------------------------------------

CREATION: dict[str, Call] = {
    "arange": lambda ns: ns.arange(5),
    "arange step": lambda ns: ns.arange(5, -4, -2),
    "arange leading away": lambda ns: ns.arange(5, 0),
    "arange float": lambda ns: ns.arange(0, 1, 0.25, dtype=ns.float64),
    "empty": lambda ns: ns.empty((0, 3)),
    "eye": lambda ns: ns.eye(3, dtype=ns.int32),
    "eye wide": lambda ns: ns.eye(2, 4, k=1),
    "eye below": lambda ns: ns.eye(4, 3, k=-2),
    "full": lambda ns: ns.full((2, 2), 7),
    "full bool": lambda ns: ns.full(3, True),
    "linspace": lambda ns: ns.linspace(-1, 2, 7, dtype=ns.float64),
    "linspace open": lambda ns: ns.linspace(0.0, 1.0, 4, endpoint=False),
    "linspace none": lambda ns: ns.linspace(0.0, 1.0, 0),
    "linspace complex": lambda ns: ns.linspace(0.0, 1 + 2j, 5),
    "ones": lambda ns: ns.ones(()),
    "zeros": lambda ns: ns.zeros(4, dtype=ns.bool),
    "asarray list": lambda ns: ns.asarray([[1, 2], [3, 4]]),
    "asarray complex": lambda ns: ns.asarray([1j, 2]),
    "asarray dtype": lambda ns: ns.asarray([0, 1], dtype=ns.float64, copy=True),
}


@pytest.mark.parametrize("name", CREATION)
def test_creation(name: str) -> None:
    agree(CREATION[name], same_dtype=False, rtol=1e-6)


def test_creation_like() -> None:
    agree(lambda ns, x: ns.zeros_like(x), WHOLE)
    agree(lambda ns, x: ns.ones_like(x, dtype=ns.float32), WHOLE)
    agree(lambda ns, x: ns.full_like(x, 3), FINITE)
    assert xp.empty_like(xp.ones((2, 3))).shape == (2, 3)
    agree(lambda ns, x: [ns.tril(x, k=-1), ns.triu(x, k=1)], STACK)
    agree(lambda ns, a, b: ns.meshgrid(a, b), np.arange(3), np.arange(2))
    agree(lambda ns, a, b: ns.meshgrid(a, b, indexing="ij"), np.arange(3), np.arange(2))


def test_defaults_are_those_of_the_inspection() -> None:
    kinds = xp.__array_namespace_info__().default_dtypes()
    assert xp.ones(2).dtype is xp.linspace(0, 1, 2).dtype is kinds["real floating"]
    assert xp.asarray(1j).dtype is kinds["complex floating"]
    assert xp.arange(2).dtype is kinds["integral"]
    assert xp.argmax(xp.ones(2)).dtype is kinds["indexing"]


def test_memory_is_shared_or_copied_as_asked() -> None:
    x = xp.ones(3)
    assert xp.asarray(x) is x and xp.asarray(x, copy=False) is x
    copied = xp.asarray(x, copy=True)
    copied[0] = 5
    assert x.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="alias"):
        xp.asarray([1, 2], copy=False)
    array = np.arange(3.0)
    shared, own = xp.from_dlpack(array), xp.from_dlpack(array, copy=True)
    array[0] = 9
    assert shared[0] == 9 and own[0] == 0
    assert np.from_dlpack(x).tolist() == [1, 1, 1]


# -- element types ------------------------------------------------------------------------------


def test_astype() -> None:
    agree(lambda ns, x: ns.astype(x, ns.int32), FINITE)
    agree(lambda ns, x: ns.astype(x, ns.complex64), WHOLE)
    x = xp.ones(2)
    assert xp.astype(x, xp.float32, copy=False) is x
    assert xp.astype(x, xp.float32) is not x
    assert xp.astype(xp.asarray([0j, 1j]), xp.bool).tolist() == [False, True]
    with pytest.raises(TypeError, match="which part"):
        xp.astype(xp.asarray([1j]), xp.float32)


STANDARD = ["bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64", "complex64",
            "complex128"]  # fmt: skip
# Which kinds may meet is stated by the standard within these groups only.
GROUPS = [STANDARD[:1], STANDARD[1:6], STANDARD[6:]]


@pytest.mark.parametrize("group", GROUPS, ids=["bool", "integers", "floats"])
def test_promotion(group: list[str]) -> None:
    for a in group:
        for b in group:
            agree(lambda ns, a=a, b=b: str(ns.result_type(getattr(ns, a), getattr(ns, b)))
                  .removeprefix("evergrad."))  # fmt: skip
            agree(lambda ns, a=a, b=b: ns.can_cast(getattr(ns, a), getattr(ns, b)))


def test_result_type_of_arrays_and_numbers() -> None:
    assert xp.result_type(xp.ones(2), xp.asarray(1.0, dtype=xp.float64)) is xp.float64
    assert xp.result_type(xp.int8, 5) is xp.int8
    assert xp.result_type(xp.float32, 1.5, xp.float32) is xp.float32
    assert xp.result_type(xp.float64, 1j) is xp.complex128
    with pytest.raises(ValueError, match="at least one"):
        xp.result_type(1, 2.0)


KINDS = ["bool", "signed integer", "unsigned integer", "integral", "real floating",
         "complex floating", "numeric", ("integral", "bool")]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind: Any) -> None:
    for name in STANDARD:
        agree(lambda ns, name=name: ns.isdtype(getattr(ns, name), kind))
    listed = xp.__array_namespace_info__().dtypes(kind=kind)
    theirs = np.__array_namespace_info__().dtypes(kind=kind)
    assert set(listed) == set(theirs) - {"uint16", "uint32", "uint64"}


def test_kinds_of_others() -> None:
    assert xp.isdtype(xp.float32, xp.float32) and not xp.isdtype(xp.float32, xp.float64)
    assert xp.isdtype(xp.bfloat16, "real floating")
    with pytest.raises(ValueError, match="no kind"):
        xp.isdtype(xp.float32, "wrong")


def test_limits() -> None:
    for name in ("float32", "float64", "complex64"):
        ours, theirs = xp.finfo(getattr(xp, name)), np.finfo(name)
        assert (ours.bits, ours.eps, ours.max, ours.min, ours.smallest_normal) == (
            theirs.bits, theirs.eps, theirs.max, theirs.min, theirs.smallest_normal,
        )  # fmt: skip
        assert ours.dtype.name == theirs.dtype.name
    ours, theirs = xp.iinfo(xp.ones(2, dtype=xp.int16)), np.iinfo(np.int16)
    assert (ours.bits, ours.max, ours.min, ours.dtype) == (16, theirs.max, theirs.min, xp.int16)


# -- folding ------------------------------------------------------------------------------------

AXES = [None, 0, -1, (0, 2), ()]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("name", ["max", "mean", "min", "prod", "std", "sum", "var", "all", "any",
                                  "count_nonzero"])  # fmt: skip
def test_folds(name: str, axis: Any, keepdims: bool) -> None:
    def call(ns: Any, x: Any) -> Any:
        return getattr(ns, name)(x, axis=axis, keepdims=keepdims)

    agree(call, STACK)
    if name not in ("mean", "std", "var"):
        agree(call, STACK.astype(np.int32))
    if axis != ():
        agree(lambda ns, x: getattr(ns, name)(x), STACK[0, 0, 0, ...])


def test_folds_with_options() -> None:
    agree(lambda ns, x: ns.var(x, axis=0, correction=1), STACK)
    agree(lambda ns, x: ns.std(x, correction=1.5), STACK)
    agree(lambda ns, x: ns.sum(x, dtype=ns.float64), WHOLE)
    agree(lambda ns, x: ns.prod(x, axis=(0, 1), dtype=ns.float32), STACK)
    agree(lambda ns, x: ns.any(x, axis=1), abs(WHOLE).astype(np.uint8))
    agree(lambda ns, x: [ns.sum(x), ns.prod(x, axis=0), ns.all(x)], np.zeros((0, 3)))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_of_extremes(name: str) -> None:
    for axis in (None, 0, -1):
        for keepdims in (False, True):
            agree(lambda ns, x, a=axis, k=keepdims: getattr(ns, name)(x, axis=a, keepdims=k), STACK)


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_running_results(name: str) -> None:
    agree(lambda ns, x: getattr(ns, name)(x), FINITE[0])
    agree(lambda ns, x: getattr(ns, name)(x, axis=1), WHOLE.astype(np.int32))
    agree(lambda ns, x: getattr(ns, name)(x, axis=-1, include_initial=True), STACK)
    agree(lambda ns, x: getattr(ns, name)(x, axis=0, dtype=ns.float64), WHOLE)
    with pytest.raises(ValueError, match="axis"):
        getattr(xp, name)(xp.ones((2, 2)))


def test_diff() -> None:
    agree(lambda ns, x: ns.diff(x), STACK)
    agree(lambda ns, x: ns.diff(x, axis=0, n=2), STACK.reshape(6, 4))
    agree(lambda ns, x: ns.diff(x, prepend=x[..., :1], append=x[..., -1:]), STACK)


# -- moving, picking, ordering ------------------------------------------------------------------

MANIPULATION: dict[str, tuple[Any, ...]] = {
    "broadcast_arrays": (lambda ns, a, b: ns.broadcast_arrays(a, b), FINITE, FINITE[:, :1]),
    "broadcast_to": (lambda ns, x: ns.broadcast_to(x, (4, 2, 3)), FINITE),
    "concat": (lambda ns, x: ns.concat([x, x * 2], axis=-1), FINITE),
    "concat promotes": (lambda ns, *xs: ns.concat(xs), FINITE, FINITE.astype(np.float32)),
    "concat flat": (lambda ns, x: ns.concat([x, x[0]], axis=None), FINITE),
    "expand_dims": (lambda ns, x: ns.expand_dims(x, axis=-2), FINITE),
    "flip": (lambda ns, x: ns.flip(x), STACK),
    "flip axes": (lambda ns, x: ns.flip(x, axis=(0, -1)), STACK),
    "flip axis": (lambda ns, x: ns.flip(x, axis=1), STACK),
    "moveaxis": (lambda ns, x: ns.moveaxis(x, 0, -1), STACK),
    "moveaxis two": (lambda ns, x: ns.moveaxis(x, (0, 1), (2, 0)), STACK),
    "permute_dims": (lambda ns, x: ns.permute_dims(x, (2, 0, 1)), STACK),
    "repeat": (lambda ns, x: ns.repeat(x, 2), FINITE),
    "repeat axis": (lambda ns, x: ns.repeat(x, 3, axis=1), FINITE),
    "repeat each": (lambda ns, x, n: ns.repeat(x, n, axis=1), FINITE, np.array([1, 0, 2])),
    "reshape": (lambda ns, x: ns.reshape(x, (4, -1)), STACK),
    "reshape copy": (lambda ns, x: ns.reshape(x, (6, 4), copy=True), STACK),
    "roll": (lambda ns, x: ns.roll(x, 2), STACK),
    "roll axes": (lambda ns, x: ns.roll(x, (1, -2), axis=(0, 2)), STACK),
    "roll one shift": (lambda ns, x: ns.roll(x, 1, axis=(0, 2)), STACK),
    "squeeze": (lambda ns, x: ns.squeeze(x, axis=(0, 2)), FINITE[None, :, None]),
    "squeeze none": (lambda ns, x: ns.squeeze(x, axis=()), FINITE),
    "stack": (lambda ns, x: ns.stack([x, -x], axis=1), FINITE),
    "stack promotes": (
        lambda ns, *xs: ns.stack(xs), np.array(1.5, np.float32), np.array(2.5),
    ),
    "tile": (lambda ns, x: ns.tile(x, (2, 1, 2)), FINITE),
    "tile short": (lambda ns, x: ns.tile(x, (2,)), FINITE),
    "unstack": (lambda ns, x: ns.unstack(x, axis=1), STACK),
    "take": (lambda ns, x, i: ns.take(x, i, axis=1), STACK, np.array([2, 0, -1])),
    "take vector": (lambda ns, x, i: ns.take(x, i), FINITE[0], np.array([2, 2])),
    **{
        f"take {kind}": (lambda ns, x, i: ns.take(x, i, axis=-1), FINITE, np.array([1, 0, 2], kind))
        for kind in ("int8", "int16", "int32", "uint8")
    },
    "take_along_axis": (
        lambda ns, x, i: ns.take_along_axis(x, i, axis=0), FINITE, np.array([[0, 1, -1]]),
    ),
    "where": (lambda ns, c, x: ns.where(c, x, 0.0), TRUTH, FINITE),
    "where numbers first": (lambda ns, c, x: ns.where(c, 2, x), TRUTH, FINITE),
    "nonzero": (lambda ns, x: ns.nonzero(x), WHOLE),
    "searchsorted": (
        lambda ns, a, b: ns.searchsorted(a, b), np.array([1.0, 2.0, 4.0]), FINITE,
    ),
    "searchsorted right": (
        lambda ns, a, b: ns.searchsorted(a, b, side="right"), np.array([1, 2, 2]), WHOLE,
    ),
    "searchsorted sorter": (
        lambda ns, a, b: ns.searchsorted(a, b, sorter=ns.argsort(a)), FINITE[0], FINITE,
    ),
    "sort": (lambda ns, x: ns.sort(x, axis=0), STACK),
    "argsort": (lambda ns, x: ns.argsort(x, stable=True), np.array([3, 1, 3, 0, 1])),
    "unique_all": (lambda ns, x: tuple(ns.unique_all(x)), np.array([[3, 1, 3], [0, 1, 3]])),
    "unique_counts": (lambda ns, x: tuple(ns.unique_counts(x)), np.array([2.0, np.nan, np.nan])),
    "unique_inverse": (lambda ns, x: tuple(ns.unique_inverse(x)), WHOLE % 3),
    "unique_values": (lambda ns, x: ns.sort(ns.unique_values(x)), np.array([2.0, 1.0, 2.0])),
}  # fmt: skip


@pytest.mark.parametrize("name", MANIPULATION)
def test_manipulation(name: str) -> None:
    call, *inputs = MANIPULATION[name]
    agree(call, *inputs)


def test_sorting_downwards() -> None:
    x = xp.asarray([2, 3, 1, 3, 2])
    assert xp.sort(x, descending=True).tolist() == [3, 3, 2, 2, 1]
    assert xp.argsort(x, descending=True).tolist() == [1, 3, 0, 4, 2]


def test_results_have_names() -> None:
    x = xp.asarray([1.0, 0.0, 1.0])
    found = xp.unique_all(x)
    assert found._fields == ("values", "indices", "inverse_indices", "counts")
    assert xp.unique_counts(x)._fields == ("values", "counts")
    assert xp.unique_inverse(x)._fields == ("values", "inverse_indices")
    matrix = xp.asarray(MATRIX)
    assert xp.linalg.eigh(matrix).eigenvectors.shape == (3, 3)
    assert xp.linalg.svd(matrix).Vh.shape == (3, 3) and xp.linalg.qr(matrix).R.shape == (3, 3)
    assert xp.linalg.slogdet(matrix).logabsdet.shape == ()


def test_what_the_standard_refuses() -> None:
    with pytest.raises(ValueError, match="one element"):
        xp.squeeze(xp.ones((2, 1)), axis=0)
    with pytest.raises(ValueError, match="without a copy"):
        xp.reshape(xp.ones((2, 3)).T, (6,), copy=False)
    with pytest.raises(ValueError, match="0-d"):
        xp.nonzero(xp.asarray(1))
    with pytest.raises(ValueError, match="0-d"):
        xp.unstack(xp.asarray(1))
    with pytest.raises(ValueError, match="needs an axis"):
        xp.take(xp.ones((2, 2)), xp.asarray([0]))
    with pytest.raises(ValueError, match="does not broadcast"):
        xp.vecdot(xp.ones(3), xp.ones(1))
    with pytest.raises(TypeError, match="positional"):
        xp.sum(x=xp.ones(2))


# -- linear algebra and transforms --------------------------------------------------------------

LINEAR: dict[str, tuple[Any, ...]] = {
    "matmul": (lambda ns, a, b: ns.matmul(a, b), MATRICES, MATRIX[:, :2]),
    "matmul integers": (lambda ns, a, b: ns.matmul(a, b), WHOLE, WHOLE.T.astype(np.int16)),
    "matrix_transpose": (lambda ns, x: ns.matrix_transpose(x), STACK),
    "tensordot": (lambda ns, a, b: ns.tensordot(a, b, axes=1), STACK, FINITE[0, [0, 1, 2, 0]]),
    "tensordot axes": (lambda ns, a: ns.tensordot(a, a, axes=((0, 2), (0, 2))), STACK),
    "vecdot": (lambda ns, a, b: ns.vecdot(a, b), STACK, STACK[0]),
    "vecdot axis": (lambda ns, a: ns.vecdot(a, a, axis=-2), STACK + 1j * STACK[::-1]),
    "vecdot integers": (lambda ns, a: ns.vecdot(a, a), WHOLE.astype(np.int32)),
    "cholesky": (lambda ns, x: ns.linalg.cholesky(x), MATRICES),
    "cholesky upper": (lambda ns, x: ns.linalg.cholesky(x, upper=True), MATRIX),
    "cross": (lambda ns, x: ns.linalg.cross(x, ns.flip(x, axis=0)), MATRIX),
    "cross of one": (lambda ns, x, y: ns.linalg.cross(x, y), MATRICES, MATRIX[0]),
    "cross with many": (lambda ns, x, y: ns.linalg.cross(x, y), MATRIX[0], MATRICES),
    "det": (lambda ns, x: ns.linalg.det(x), MATRICES),
    "diagonal": (lambda ns, x: ns.linalg.diagonal(x, offset=1), STACK),
    "eigvalsh": (lambda ns, x: ns.linalg.eigvalsh(x), MATRICES),
    "inv": (lambda ns, x: ns.linalg.inv(x), MATRICES),
    "matrix_norm": (lambda ns, x: ns.linalg.matrix_norm(x, keepdims=True), STACK),
    "matrix_norm nuclear": (lambda ns, x: ns.linalg.matrix_norm(x, ord="nuc"), MATRICES),
    "matrix_norm 2": (lambda ns, x: ns.linalg.matrix_norm(x, ord=-2), MATRICES),
    "matrix_power": (lambda ns, x: ns.linalg.matrix_power(x, -2), MATRIX),
    "matrix_rank": (lambda ns, x: ns.linalg.matrix_rank(x, rtol=1e-8), MATRICES),
    "outer": (lambda ns, a, b: ns.linalg.outer(a, b), FINITE[0], WHOLE[1].astype(np.float32)),
    "pinv": (lambda ns, x: ns.linalg.pinv(x), STACK),
    "slogdet": (lambda ns, x: tuple(ns.linalg.slogdet(x)), MATRICES),
    "solve vector": (lambda ns, a, b: ns.linalg.solve(a, b), MATRICES, FINITE[0]),
    "solve": (lambda ns, a, b: ns.linalg.solve(a, b), MATRICES, STACK[:, :, :3]),
    "svdvals": (lambda ns, x: ns.linalg.svdvals(x), STACK),
    "trace": (lambda ns, x: ns.linalg.trace(x, offset=-1), STACK),
    "trace dtype": (lambda ns, x: ns.linalg.trace(x, dtype=ns.float64), WHOLE),
    "vector_norm": (lambda ns, x: ns.linalg.vector_norm(x), STACK),
    "vector_norm axes": (
        lambda ns, x: ns.linalg.vector_norm(x, axis=(0, 2), keepdims=True, ord=3), STACK,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LINEAR)
def test_linear_algebra(name: str) -> None:
    call, *inputs = LINEAR[name]
    agree(call, *inputs, rtol=1e-10)


def test_stacks_are_solved_as_matrices() -> None:
    """PyTorch would read the right side as a stack of vectors."""
    left, right = np.stack([MATRIX, MATRIX * 2, MATRIX + np.eye(3)]), MATRIX
    agree(lambda ns, a, b: ns.linalg.solve(a, b), left, right)


def test_factors_multiply_to_the_matrix() -> None:
    x = xp.asarray(STACK)
    for full in (False, True):
        u, s, vh = xp.linalg.svd(x, full_matrices=full)
        np.testing.assert_allclose(u[..., :3] * s[..., None, :] @ vh[..., :3, :], STACK, atol=1e-12)
    q, r = xp.linalg.qr(x, mode="complete")
    assert q.shape == (2, 3, 3)
    np.testing.assert_allclose(q @ r, STACK, atol=1e-12)
    values, vectors = xp.linalg.eigh(xp.asarray(MATRIX))
    np.testing.assert_allclose(vectors * values @ vectors.mT, MATRIX, atol=1e-12)


WAVE = STACK + 1j * STACK[::-1]
TRANSFORMS: dict[str, tuple[Any, ...]] = {
    **{name: (lambda ns, x, f=name: getattr(ns.fft, f)(x), WAVE)
       for name in ("fft", "ifft", "irfft", "hfft", "fftn", "ifftn", "irfftn")},
    **{name: (lambda ns, x, f=name: getattr(ns.fft, f)(x), STACK)
       for name in ("rfft", "ihfft", "rfftn", "fftshift", "ifftshift")},
    "fft options": (lambda ns, x: ns.fft.fft(x, n=5, axis=0, norm="ortho"), WAVE),
    "rfftn options": (
        lambda ns, x: ns.fft.rfftn(x, s=(4, 2), axes=(1, 2), norm="forward"), STACK,
    ),
    "fftshift axes": (lambda ns, x: ns.fft.fftshift(x, axes=1), STACK),
    "fftfreq": (lambda ns: ns.fft.fftfreq(5, d=0.5),),
    "rfftfreq": (lambda ns: ns.fft.rfftfreq(6, d=2.0),),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str) -> None:
    call, *inputs = TRANSFORMS[name]
    agree(call, *inputs, same_dtype="freq" not in name, rtol=1e-7 if "freq" in name else 1e-12)
