"""``assert_close``: PyTorch's comparison of tensors, numbers and containers of them.

Messages read as PyTorch's do. Containers are first walked completely, so that a difference in
structure is reported before any difference in numbers.
"""

from __future__ import annotations

import cmath
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import cast
from evergrad.core.dtypes import dtype
from evergrad.core.tensor import Tensor, detached
from evergrad.core.types import Array
from evergrad.ops.surface.convert import as_tensor, tensor

if TYPE_CHECKING:
    from evergrad.core.types import Tree

Path = tuple[Any, ...]

# The default (relative, absolute) tolerance of each element type; for the others both are zero.
_PRECISIONS: dict[dtype, tuple[float, float]] = {
    dtypes.float16: (0.001, 1e-5),
    dtypes.bfloat16: (0.016, 1e-5),
    dtypes.float32: (1.3e-6, 1e-5),
    dtypes.float64: (1e-7, 1e-7),
    dtypes.complex64: (1.3e-6, 1e-5),
    dtypes.complex128: (1e-7, 1e-7),
}
_FORMER_TOLERANCES = {"float16": (1e-3, 1e-3), "float32": (1e-4, 1e-5), "float64": (1e-5, 1e-8)}
_OF_NUMBERS = {int: dtypes.int64, float: dtypes.float64, complex: dtypes.complex128}


class _DifferenceError(Exception):
    """What is different and where, before the user's own message is put in."""

    def __init__(self, kind: type[Exception], message: str, path: Path) -> None:
        self.kind = kind
        self.message = message
        self.path = path

    def to_error(self, msg: str | Callable[[str], str] | None = None) -> Exception:
        if isinstance(msg, str):
            return self.kind(msg)
        message = self.message
        if self.path:
            place = "".join(str([item]) for item in self.path)
            message += f"\n\nThe failure occurred for item {place}"
        return self.kind(msg(message) if callable(msg) else message)


@dataclass(frozen=True)
class _Options:
    allow_subclasses: bool
    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_stride: bool

    def tolerances(self, path: Path, *types: dtype) -> tuple[float, float]:
        if self.rtol is None and self.atol is None:
            found = [_PRECISIONS.get(t, (0.0, 0.0)) for t in types]
            return max(r for r, _ in found), max(a for _, a in found)
        if self.rtol is None or self.atol is None:
            missing = "rtol" if self.rtol is None else "atol"
            raise _DifferenceError(
                ValueError,
                "Both 'rtol' and 'atol' must be either specified or omitted, but got no "
                f"{missing}.",
                path,
            )
        return self.rtol, self.atol


def assert_allclose(
    actual: object, expected: object, rtol: float | None = None, atol: float | None = None,
    equal_nan: bool = True, msg: str = "",
) -> None:  # fmt: skip
    """The former :func:`assert_close`, with wider tolerances and any element types."""
    warnings.warn(
        "`testing.assert_allclose()` is deprecated. Please use `testing.assert_close()` instead.",
        FutureWarning,
        stacklevel=2,
    )
    actual = actual if isinstance(actual, Tensor) else tensor(actual)
    if not isinstance(expected, Tensor):
        expected = tensor(expected, dtype=actual.dtype)
    if rtol is None and atol is None:
        both = [_FORMER_TOLERANCES.get(x.dtype.name, (0.0, 0.0)) for x in (actual, expected)]
        rtol, atol = (max(values) for values in zip(*both, strict=True))
    assert_close(
        actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False,
        msg=msg or None,
    )  # fmt: skip


def assert_close(
    actual: object,
    expected: object,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise unless ``|actual - expected| <= atol + rtol * |expected|`` everywhere.

    Without ``rtol`` and ``atol`` the element type decides. Sequences and mappings are compared
    element by element; shapes, and unless told otherwise element types, have to be equal.
    """
    __tracebackhide__ = True
    options = _Options(
        allow_subclasses, rtol, atol, equal_nan, check_device, check_dtype, check_stride
    )
    try:
        comparisons = _comparisons(actual, expected, (), options)
    except _DifferenceError as difference:
        raise difference.to_error() from None
    for compare in comparisons:
        try:
            compare()
        except _DifferenceError as difference:
            raise difference.to_error(msg) from None


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _comparisons(
    actual: Tree, expected: Tree, path: Path, options: _Options
) -> list[Callable[[], None]]:
    """What there is to compare, from left to right."""
    if _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            raise _DifferenceError(
                AssertionError,
                f"The length of the sequences mismatch: {len(actual)} != {len(expected)}",
                path,
            )
        keys: Any = range(len(actual))
    elif isinstance(actual, Mapping) and isinstance(expected, Mapping):
        keys = _common_keys(actual, expected, path)
    else:
        return [_comparison_of_leaves(actual, expected, path, options)]
    found: list[Callable[[], None]] = []
    for key in keys:
        found += _comparisons(actual[key], expected[key], (*path, key), options)
    return found


def _common_keys(actual: Tree, expected: Tree, path: Path) -> list[object]:
    missing, additional = set(expected) - set(actual), set(actual) - set(expected)
    if missing or additional:
        raise _DifferenceError(
            AssertionError,
            "The keys of the mappings do not match:\n"
            f"Missing keys in the actual mapping: {sorted(missing)}\n"
            f"Additional keys in the actual mapping: {sorted(additional)}",
            path,
        )
    try:
        return sorted(actual)
    except TypeError:  # keys of several kinds have no order
        return list(actual)


def _comparison_of_leaves(
    actual: Tree, expected: Tree, path: Path, options: _Options
) -> Callable[[], None]:
    if actual is None or expected is None:
        return lambda: _compare_objects("None mismatch", actual, expected, actual is expected, path)
    actual, expected = (v.item() if isinstance(v, np.generic) else v for v in (actual, expected))
    if isinstance(actual, bool) and isinstance(expected, bool):
        return lambda: _compare_objects(
            "Booleans mismatch", actual, expected, actual is expected, path
        )
    if isinstance(actual, int | float | complex) and isinstance(expected, int | float | complex):
        return _comparison_of_numbers(actual, expected, path, options)
    return _comparison_of_tensors(actual, expected, path, options)


def _compare_objects(what: str, actual: object, expected: object, same: bool, path: Path) -> None:
    if not same:
        raise _DifferenceError(AssertionError, f"{what}: {actual} is not {expected}", path)


# -- numbers ------------------------------------------------------------------------------------


def _comparison_of_numbers(
    actual: Tree, expected: Tree, path: Path, options: _Options
) -> Callable[[], None]:
    types = [_OF_NUMBERS.get(type(v), dtypes.bool_) for v in (actual, expected)]
    rtol, atol = options.tolerances(path, *types)

    def compare() -> None:
        if options.check_dtype and type(actual) is not type(expected):
            raise _DifferenceError(
                AssertionError,
                f"The (d)types do not match: {type(actual)} != {type(expected)}.",
                path,
            )
        if actual == expected:
            return
        if options.equal_nan and cmath.isnan(actual) and cmath.isnan(expected):
            return
        difference = abs(actual - expected)
        if cmath.isfinite(difference) and difference <= atol + rtol * abs(expected):
            return
        message = _number_message(actual, expected, rtol, atol)
        raise _DifferenceError(AssertionError, message, path)

    return compare


def _number_message(actual: Tree, expected: Tree, rtol: float, atol: float) -> str:
    difference = abs(actual - expected)
    relative = float("inf") if expected == 0 else difference / abs(expected)
    equality = rtol == 0 and atol == 0
    lines = [
        f"Scalars are not {'equal' if equality else 'close'}!",
        "",
        f"Expected {expected} but got {actual}.",
        f"Absolute difference: {difference}" + _allowance(atol, equality),
        f"Relative difference: {relative}" + _allowance(rtol, equality),
    ]
    return "\n".join(lines)


def _allowance(tolerance: float, equality: bool) -> str:
    return "" if equality else f" (up to {tolerance} allowed)"


# -- tensors ------------------------------------------------------------------------------------


def _comparison_of_tensors(
    actual: Tensor, expected: Tensor, path: Path, options: _Options
) -> Callable[[], None]:
    related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
    if not options.allow_subclasses:
        related = type(actual) is type(expected)
    a, b = _as_tensor(actual), _as_tensor(expected)
    if not related or a is None or b is None:
        raise _DifferenceError(
            TypeError,
            f"No comparison pair was able to handle inputs of type {type(actual)} and "
            f"{type(expected)}.",
            path,
        )
    rtol, atol = options.tolerances(path, a.dtype, b.dtype)
    return lambda: _compare_tensors(a, b, rtol, atol, path, options)


def _as_tensor(value: object) -> Tensor | None:
    if isinstance(value, Tensor):
        return detached(value)
    try:
        return as_tensor(value)
    except Exception:  # whatever cannot become a tensor has nothing to compare
        return None


def _compare_tensors(
    actual: Tensor, expected: Tensor, rtol: float, atol: float, path: Path, options: _Options
) -> None:
    attributes: list[tuple[str, object, object]] = [("shape", actual.shape, expected.shape)]
    if options.check_stride:
        attributes.append(("stride()", actual.stride(), expected.stride()))
    if options.check_device:
        attributes.append(("device", actual.device, expected.device))
    if options.check_dtype:
        attributes.append(("dtype", actual.dtype, expected.dtype))
    for name, ours, theirs in attributes:
        if ours != theirs:
            raise _DifferenceError(
                AssertionError,
                f"The values for attribute '{name}' do not match: {ours} != {theirs}.",
                path,
            )
    common = dtypes.promote_types(actual.dtype, expected.dtype)
    a, b = cast(actual, common).array(), cast(expected, common).array()
    matches = _close(a, b, rtol, atol, options.equal_nan)
    if matches.all():
        return
    if not matches.shape:
        message = _number_message(a.item(), b.item(), rtol, atol)
    else:
        message = _tensor_message(a, b, matches, rtol, atol)
    raise _DifferenceError(AssertionError, message, path)


def _close(actual: Array, expected: Array, rtol: float, atol: float, equal_nan: bool) -> Array:
    matches = np.asarray(actual == expected)
    if equal_nan:
        matches = matches | ((actual != actual) & (expected != expected))
    if rtol == 0 and atol == 0:
        return matches
    wide = np.complex128 if actual.dtype.kind == "c" else np.float64
    a, b = actual.astype(wide), expected.astype(wide)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(a - b)
        near = np.isfinite(error) & (error <= atol + np.abs(rtol * b))
    return np.asarray(matches | near)


def _tensor_message(
    actual: Array, expected: Array, matches: Array, rtol: float, atol: float
) -> str:
    if actual.dtype.kind in "biu":
        actual, expected = actual.astype(np.int64), expected.astype(np.int64)
    with np.errstate(all="ignore"):
        absolute = np.where(matches, 0, np.abs(actual - expected))
        relative = np.where(matches, 0, absolute / np.abs(expected))
    if absolute.dtype.kind == "i":  # integers are divided in the default type
        relative = relative.astype(dtypes.get_default_dtype().np)
    equality = rtol == 0 and atol == 0
    wrong = int(matches.size - matches.sum())
    lines = [
        f"Tensor-likes are not {'equal' if equality else 'close'}!",
        "",
        f"Mismatched elements: {wrong} / {matches.size} ({wrong / matches.size:.1%})",
        f"Greatest absolute difference: {_greatest(absolute)}" + _allowance(atol, equality),
        f"Greatest relative difference: {_greatest(relative)}" + _allowance(rtol, equality),
    ]
    return "\n".join(lines)


def _greatest(values: Array) -> str:
    flat = int(np.argmax(values.astype(np.float64)))
    place = tuple(int(i) for i in np.unravel_index(flat, values.shape))
    return f"{values[place].item()} at index {place}"
