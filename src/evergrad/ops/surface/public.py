"""How a function becomes part of the public surface: name, method, in-place form, ``out=``.

``FUNCTIONS`` is what ``evergrad.<name>`` offers; methods are set on :class:`Tensor`. A function is
exposed where it is defined, once, and every form of it follows from that.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from evergrad.core import dtypes
from evergrad.core.autocast import under_autocast, without_autocast
from evergrad.core.bind import bind, bind_binary, bind_unary, cast
from evergrad.core.functionalize import SymbolicNumber, materialize_trace
from evergrad.core.inplace import write_in_place, write_result
from evergrad.core.node import next_sequence
from evergrad.core.op import Op
from evergrad.core.overlap import refuse_partial_overlap
from evergrad.core.shapes import tensor_type
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor, from_array
from evergrad.core.types import Kwargs
from evergrad.keywords import explain_keyword
from evergrad.ops.reference import DOCS
from evergrad.ops.surface.signatures import DerivedSignature

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

TensorFunction = Callable[..., Tensor]
F = TypeVar("F", bound=Callable[..., Any])

FUNCTIONS: dict[str, AnyFunction] = {}

NUMBERS = (bool, int, float, complex)

# Names of arguments that PyTorch takes for its own, as far as a function has these.
_NUMPY_NAMES = {
    "axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other",
}  # fmt: skip


def expose(
    *names: str,
    function: bool = True,
    method: bool = True,
    inplace: bool | Callable[..., Tensor] = False,
    out: bool = True,
    numpy_names: bool = False,
    keywords: Mapping[str, str] | None = None,
    into: dict[str, AnyFunction] = FUNCTIONS,
) -> Callable[[F], F]:
    """Make a function public under its own name and any further ``names``.

    ``method`` also gives tensors the method, ``inplace`` the form with an underscore, which writes
    the result of the function or is a function of its own; ``out`` lets the function take ``out=``,
    ``numpy_names`` lets it take ``axis`` and ``keepdims``, and ``keywords`` further names of its
    arguments: PyTorch's overloads call one argument by several.
    ``into`` is the namespace that offers the function, ``evergrad`` itself if not given.
    """
    further = {**(_NUMPY_NAMES if numpy_names else {}), **(keywords or {})}

    def decorate(plain: F) -> F:
        plain.__doc__ = _documentation(plain, names, into)
        guarded = under_autocast(plain)
        form = _accepting_keywords(guarded, further) if further else guarded
        for name in (plain.__name__, *names):
            if name.startswith("_") and not name.startswith("__"):
                continue  # a private name only carries the public ones
            if function:
                _add_function(name, accepting_out(guarded, keywords) if out else form, into)
            if method:
                setattr(Tensor, name, form)
            if inplace:
                writer = None if inplace is True else inplace
                setattr(Tensor, name + "_", _in_place_form(name, form, writer))
        if names and method and plain.__name__.startswith("_"):
            form.__name__ = names[0]  # what __torch_function__ reads
        return plain

    return decorate


def _documentation(
    plain: Callable[..., object], names: tuple[str, ...], into: dict[str, AnyFunction]
) -> str | None:
    """The entry of the reference for a function, or the docstring of its definition."""
    name = names[0] if names and plain.__name__.startswith("_") else plain.__name__
    if into is not FUNCTIONS:
        name = f"{_room(plain)}.{name}"
    return DOCS.get(name, plain.__doc__)


def _room(function: Callable[..., object]) -> str:
    """The namespace of a function that is not at the top: evergrad.ops.rows.linalg.solve: linalg"""
    *_, room = function.__module__.split(".")[:4]
    return room


def _add_function(
    name: str, function: Callable[..., object], into: dict[str, AnyFunction] = FUNCTIONS
) -> None:
    if name in into:
        raise ValueError(f"{name} is exposed twice")
    is_op = function.__module__.startswith("evergrad.ops.")
    if is_op and hasattr(function, "__wrapped__"):
        # Pickled by its public name: in its own module that name means what it wraps.
        function.__module__ = "evergrad" if into is FUNCTIONS else f"evergrad.{_room(function)}"
        function.__qualname__ = function.__name__ = name
    into[name] = function


def expose_op(
    op: Op, names: Sequence[str], *, inplace: bool, params: Sequence[str]
) -> TensorFunction:
    """Make an elementwise row public: its arguments are the function's, nothing in between."""
    function = _UNARY(op) if len(params) == 1 else _BINARY(op)
    function.__name__ = function.__qualname__ = names[0]
    function.__doc__ = DOCS.get(names[0], op.doc)
    function.row = op  # type: ignore[attr-defined]
    for name in names:
        _add_function(name, _direct_with_out(op, function, len(params)))
        setattr(Tensor, name, function)
        if inplace:
            setattr(Tensor, name + "_", _direct_in_place(op, name, function, len(params)))
    return function


def row_of(function: TensorFunction) -> Op:
    """The row that :func:`expose_op` made public as this function."""
    row: Op = function.row  # type: ignore[attr-defined]
    return row


def _UNARY(op: Op) -> TensorFunction:
    def function(input: Tensor) -> Tensor:
        if not isinstance(input, Tensor):
            raise TypeError(
                f"{op.name}(): argument 'input' must be Tensor, not {type(input).__name__}"
            )
        return bind_unary(op, input)  # type: ignore[no-any-return]

    return function


def _BINARY(op: Op) -> TensorFunction:
    def function(input: Any, other: Any) -> Tensor:
        return bind_binary(op, input, other)  # type: ignore[no-any-return]

    return function


def _direct_with_out(op: Op, function: TensorFunction, count: int) -> Callable[..., object]:
    """As :func:`accepting_out`, in one call for a row of one or two arguments."""
    general = accepting_out(function)

    def unary(*args: object, **kwargs: object) -> object:
        if not kwargs and len(args) == 1 and isinstance(args[0], Tensor):
            return bind_unary(op, args[0])
        return general(*args, **kwargs)

    def binary(*args: object, **kwargs: object) -> object:
        if not kwargs and len(args) == 2:
            return bind_binary(op, *args)
        return general(*args, **kwargs)

    with_out: Callable[..., object] = unary if count == 1 else binary
    functools.update_wrapper(with_out, general)
    with_out.__signature__ = general.__signature__  # type: ignore[attr-defined]
    return with_out


def _direct_in_place(
    op: Op, name: str, function: TensorFunction, arity: int
) -> Callable[..., Tensor]:
    def unary(input: Tensor) -> Tensor:
        return write_in_place(op, input)

    def binary(input: Tensor, other: object) -> Tensor:
        return write_in_place(op, input, other)

    return named_in_place(unary if arity == 1 else binary, name, function)


def _in_place_form(
    name: str, function: AnyFunction, writer: Callable[..., Tensor] | None = None
) -> Callable[..., Tensor]:
    def in_place(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if writer is not None and not kwargs:
            return writer(input, *args)
        since = next_sequence()
        result = without_autocast(function)(input, *args, **kwargs)
        return write_result(name, input, result, since)

    return named_in_place(in_place, name, function)


def named_in_place(
    in_place: Callable[..., Tensor], name: str, function: Callable[..., object]
) -> Callable[..., Tensor]:
    """Give an in-place method the name and the signature of its function."""
    in_place.__name__ = in_place.__qualname__ = name + "_"
    in_place.__doc__ = (
        f"In-place form of :func:`evergrad.{name}`: writes the result to this tensor, returns it."
    )
    in_place.__wrapped__ = function  # type: ignore[attr-defined]
    if hasattr(function, "keywords"):
        in_place.keywords = function.keywords  # type: ignore[attr-defined]
    return in_place


def _accepting_keywords(
    function: Callable[..., object], names: Mapping[str, str]
) -> Callable[..., object]:
    @functools.wraps(function)
    def renamed(*args: object, **kwargs: object) -> object:
        if kwargs and not names.keys().isdisjoint(kwargs):
            _rename(function, kwargs, names)
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            explain_keyword(error, function, names)
            raise

    # Reports of memory name the function that has allocated it by its code.
    code: object = renamed.__code__  # type: ignore[attr-defined]
    renamed.__code__ = code.replace(co_name=function.__name__)  # type: ignore[attr-defined]
    renamed.keywords = names  # type: ignore[attr-defined]
    return renamed


@functools.cache
def _parameters(function: Callable[..., object]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def _rename(function: Callable[..., object], kwargs: Kwargs, names: Mapping[str, str]) -> None:
    """Replace further names of arguments by those of the definition."""
    own = _parameters(function)
    for given in [name for name in kwargs if name in names and name not in own]:
        if names[given] in own:
            kwargs[names[given]] = kwargs.pop(given)


def warn_of_older_form(name: str, factors: Iterable[str], stacklevel: int = 3) -> None:
    """PyTorch has deprecated calls with factors by position, before the tensors they scale."""
    warnings.warn(
        f"This overload of {name} is deprecated: give {', '.join(factors)} by name, after the "
        "tensors.",
        UserWarning,
        stacklevel=stacklevel,
    )


def accepting_out(function: AnyFunction, keywords: Mapping[str, str] | None = None) -> AnyFunction:
    """The function with a keyword ``out``: the tensor, or tensors, that get the result. It also
    takes NumPy's names of arguments and further ``keywords``."""
    names = {**_NUMPY_NAMES, **keywords} if keywords else _NUMPY_NAMES

    @functools.wraps(function)
    def with_out(*args: object, out: Any = None, **kwargs: object) -> object:
        if kwargs and not names.keys().isdisjoint(kwargs):
            _rename(function, kwargs, names)
        if out is None:
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                explain_keyword(error, function, ("out", *names))
                raise
        _refuse_overlaps(function.__name__, out, (*args, *kwargs.values()))
        result = without_autocast(function)(*args, **kwargs)
        if isinstance(result, tuple):
            written = [write_out(function.__name__, o, r) for o, r in zip(out, result, strict=True)]
            return type(result)(*written) if hasattr(result, "_fields") else tuple(written)
        return write_out(function.__name__, out, result)

    with_out.__signature__ = DerivedSignature(function, out=True)  # type: ignore[attr-defined]
    with_out.keywords = names  # type: ignore[attr-defined]
    return with_out


# Functions whose result may not share memory with an argument even if it is the same memory.
_GATHERING = frozenset({"cat", "concat", "concatenate", "gather", "index_select", "stack", "take"})


def _refuse_overlaps(name: str, out: object, args: tuple[object, ...]) -> None:
    """Refuse an ``out`` that shares some of its memory with an argument. A reduction is computed
    before it is written, whatever it reads."""
    given = [t for a in args for t in (a if isinstance(a, (tuple, list)) else (a,))]
    for target in out if isinstance(out, tuple) else (out,):
        if isinstance(target, Tensor):
            read = [
                t for t in given
                if isinstance(t, Tensor)
                and (t._type.numel <= target._type.numel or name in _GATHERING)
            ]  # fmt: skip
            refuse_partial_overlap(target, read, name in _GATHERING)


# Functions whose ``out`` has to have the type of the result; others cast to a wider one.
_EXACT = frozenset(
    {
        "aminmax", "argmax", "argmin", "bmm", "complex", "cummax", "cummin", "gather", "isin",
        "kthvalue", "masked_select", "mm", "mode", "multinomial", "sort", "topk",
    }
)  # fmt: skip


def write_out(name: str, out: Tensor, result: Tensor) -> Tensor:
    """Put a result into the tensor given as ``out=``, resizing it as PyTorch does."""
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if STATE.get().grad and (out.requires_grad or result.requires_grad):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad."
        )
    if name in _EXACT and out.dtype is not result.dtype:
        raise RuntimeError(
            f"{name}(): expected the out tensor to have dtype {result.dtype.name}, but got "
            f"{out.dtype.name} instead"
        )
    if not dtypes.can_cast(result.dtype, out.dtype):
        raise RuntimeError(
            f"result type {result.dtype.name} can't be cast to the desired output type "
            f"{out.dtype.name}"
        )
    if out._type.shape != result._type.shape:
        if out._type.numel:
            warnings.warn(
                f"An output with one or more elements was resized since it had shape "
                f"{list(out._type.shape)}, which does not match the required output shape "
                f"{list(result._type.shape)}.",
                UserWarning,
                stacklevel=3,
            )
        resize(out, result._type.shape)
    return write_result(name, out, result)


def resize(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Give a tensor another shape and, if it needs more room, a larger buffer."""
    storage = tensor._storage
    if min(shape, default=0) < 0:
        raise RuntimeError(f"cannot resize to the negative dimension {min(shape)}: {list(shape)}")
    count = int(np.prod(shape, dtype=np.int64))
    materialize_trace("a tensor was resized")
    whole = storage.value
    if tensor._view is not None or tensor._node is not None:
        raise RuntimeError("cannot resize a view or a tensor that requires grad; resize a clone()")
    if not isinstance(whole, np.ndarray) or storage.shared:
        raise RuntimeError("cannot resize a tensor whose memory is traced or shared with NumPy")
    flat = whole.reshape(-1)
    if count > flat.size:
        grown = np.zeros(count, flat.dtype)
        grown[: flat.size] = flat
        flat = grown
    tensor._type = tensor_type(shape, tensor.dtype)
    tensor._value = flat[:count].reshape(shape)
    storage.value = tensor._value
    storage.type = tensor._type
    storage.resize(tensor._type.nbytes)
    storage.version += 1
    return tensor


def as_operand(value: object) -> object:
    """What may stand beside a tensor in an operator, or ``NotImplemented``."""
    if isinstance(value, (Tensor, np.generic, SymbolicNumber, *NUMBERS)):
        return value
    if isinstance(value, np.ndarray):
        return from_array(value.copy())
    return NotImplemented


def operator(
    name: str,
    function: Callable[..., object] | Op,
    *,
    reflected: str = "",
    inplace: str = "",
) -> None:
    """Let tensors use an operator: ``a + b``, ``2 + a`` and ``a += b``.

    A row given in place of a function is bound at once, which saves a call.
    """
    if isinstance(function, Op):
        op = function

        def forward(self: Tensor, other: object) -> Any:
            if isinstance(other, Tensor) or type(other) in NUMBERS:
                return bind_binary(op, self, other)
            other = as_operand(other)
            return other if other is NotImplemented else bind_binary(op, self, other)

        compute: AnyFunction = functools.partial(bind_binary, op)
    else:
        compute = function

        def forward(self: Tensor, other: object) -> Any:
            other = as_operand(other)
            return other if other is NotImplemented else compute(self, other)

    def backward(self: Tensor, other: object) -> Tensor:
        other = as_operand(other)
        return other if other is NotImplemented else compute(other, self)

    forward.__name__ = name
    setattr(Tensor, name, forward)
    if reflected:
        backward.__name__ = reflected
        setattr(Tensor, reflected, backward)
    if inplace:
        in_place = getattr(Tensor, inplace)

        def update(self: Tensor, other: object) -> Tensor:
            other = as_operand(other)
            return other if other is NotImplemented else in_place(self, other)

        update.__name__ = f"__i{name[2:]}"
        setattr(Tensor, update.__name__, update)


__all__ = [
    "FUNCTIONS", "NUMBERS", "accepting_out", "as_operand", "bind", "cast", "expose", "expose_op",
    "named_in_place",
    "operator", "resize", "row_of", "warn_of_older_form", "write_out",
]  # fmt: skip
