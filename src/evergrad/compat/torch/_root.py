"""Names of ``torch`` itself that only answer: checks, symbolic numbers, debug modes."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from evergrad.core.settings import are_deterministic_algorithms_enabled
from evergrad.core.tensor import Tensor
from evergrad.ops.surface.public import FUNCTIONS

from .jit import ScriptFunction, ScriptModule

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike

# -- symbolic numbers: shapes are plain integers -------------------------------------------------


class SymInt:
    """A symbolic integer of PyTorch's compiler: none exists here."""


class SymFloat:
    """A symbolic float of PyTorch's compiler: none exists here."""


class SymBool:
    """A symbolic truth value of PyTorch's compiler: none exists here."""


def sym_int(a: Any) -> int:
    """The number as an int: sizes are plain numbers here."""
    return int(a)


def sym_float(a: Any) -> float:
    """The number as a float."""
    return float(a)


def sym_not(a: object) -> bool:
    """Whether a value is false."""
    return not a


def sym_max(a: Any, b: Any) -> Any:
    """The larger of two sizes."""
    return max(a, b)


def sym_min(a: Any, b: Any) -> Any:
    """The smaller of two sizes."""
    return min(a, b)


def sym_sqrt(a: Any) -> float:
    """The square root of a size."""
    return math.sqrt(a)


def sym_sum(args: Any) -> int:
    """The sum of sizes."""
    return sum(args)


def sym_ite(b: object, t: object, f: object) -> Any:
    """One of two values by a condition."""
    return t if b else f


def sym_fresh_size(expr: object) -> Any:
    """The size itself."""
    return expr


# -- checks --------------------------------------------------------------------------------------


def _check_with(
    error_type: type[Exception], cond: object, message: Callable[[], str] | None = None
) -> None:
    """Raise an error of the given type unless the condition holds."""
    if not cond:
        text = "Expected cond to be True, but got False" if message is None else str(message())
        raise error_type(text)


def _check(cond: object, message: Callable[[], str] | None = None) -> None:
    _check_with(RuntimeError, cond, message)


def _check_index(cond: object, message: Callable[[], str] | None = None) -> None:
    _check_with(IndexError, cond, message)


def _check_value(cond: object, message: Callable[[], str] | None = None) -> None:
    _check_with(ValueError, cond, message)


def _check_type(cond: object, message: Callable[[], str] | None = None) -> None:
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: object, message: Callable[[], str] | None = None) -> None:
    _check_with(NotImplementedError, cond, message)


def _check_tensor_all_with(
    error_type: type[Exception], cond: Tensor, message: Callable[[], str] | None = None
) -> None:
    _check_with(error_type, bool(cond.all()), message)


def _check_tensor_all(cond: Tensor, message: Callable[[], str] | None = None) -> None:
    _check_tensor_all_with(RuntimeError, cond, message)


def _check_is_size(i: int, message: Callable[[], str] | None = None, *, max: Any = None) -> None:
    _check(i >= 0 and (max is None or i <= max), message)


def _assert(condition: object, message: str) -> None:
    """An assertion that packages write so that tracers keep it."""
    assert condition, message


def _assert_async(input: Tensor, assert_msg: str = "") -> None:
    if not bool(input.all()):
        raise RuntimeError(assert_msg or "Expected Tensor with all elements nonzero")


# -- functions -----------------------------------------------------------------------------------


def _shape_as_tensor(input: Tensor) -> Tensor:
    made: Tensor = FUNCTIONS["tensor"](list(input.shape))
    return made


def _softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any
) -> Tensor:
    """The derivative of softmax from its result."""
    product = grad_output * output
    made: Tensor = (product - output * product.sum(dim, keepdim=True)).to(input_dtype)
    return made


def _convert_indices_from_coo_to_csr(
    input: Tensor, size: int, *, out_int32: bool = False
) -> Tensor:
    """Where each row begins, from the sorted rows of the elements."""
    counts = FUNCTIONS["bincount"](input, minlength=size).cumsum(0)
    made: Tensor = FUNCTIONS["cat"]([counts.new_zeros(1), counts])
    return made.int() if out_int32 else made


def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """Rows and columns of the elements, from where each row begins."""
    counts = crow_indices[1:] - crow_indices[:-1]
    rows = FUNCTIONS["repeat_interleave"](FUNCTIONS["arange"](len(counts)), counts)
    pair = [col_indices, rows] if transpose else [rows, col_indices]
    made: Tensor = FUNCTIONS["stack"](pair)
    return made.int() if out_int32 else made


def _is_functional_tensor(t: object) -> bool:
    return False


def get_device_module(device: DeviceLike = None) -> ModuleType:
    """The module of a device: ``cpu``, or the one that is named."""
    name = "cpu" if device is None else str(getattr(device, "type", device)).partition(":")[0]
    return import_module(f"evergrad.{name}")


# -- modes ---------------------------------------------------------------------------------------

_warn_always = False


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """False: evaluation is always deterministic."""
    return False


def get_deterministic_debug_mode() -> int:
    """The debug mode of determinism, which has no effect."""
    return 2 if are_deterministic_algorithms_enabled() else 0


def set_deterministic_debug_mode(debug_mode: object) -> None:
    """Stored by ``use_deterministic_algorithms``: all algorithms here are deterministic."""
    import_module("evergrad").use_deterministic_algorithms(debug_mode not in (0, "default"))


def set_warn_always(b: bool, /) -> None:
    """Accepted: warnings follow Python's filters."""
    global _warn_always
    _warn_always = b


def is_warn_always_enabled() -> bool:
    """False: warnings follow Python's filters."""
    return _warn_always


# -- classes that exist for isinstance -----------------------------------------------------------


class _Refused:
    def __init__(self, *args: object, **kwargs: object) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise NotImplementedError(f"evergrad has no {type(self).__name__} of PyTorch's runtime")


class PyTorchFileReader(_Refused):
    """PyTorch's native reader of archives; ``evergrad.load`` reads them."""


class PyTorchFileWriter(_Refused):
    """PyTorch's native writer of archives; ``evergrad.save`` writes them."""


class AliasDb(_Refused):
    """Aliases in a graph of PyTorch's former compiler."""


class DispatchKey(_Refused):
    """Keys of PyTorch's dispatcher."""


__all__ = ["ScriptFunction", "ScriptModule"]
