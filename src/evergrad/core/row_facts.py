"""The columns of a row that the compiler, autocast and eager mode read.

:class:`Emit` is how one element is computed, with its cost class, or the statement why no element
is computed by itself; :class:`AutocastPolicy` the precision under autocast; :class:`EagerKernel`
the size from which eager mode evaluates by a kernel; :class:`Combine` how a reduction joins two
partial results; :class:`Indexing` at which positions a row reads or writes; :data:`AtenName` the
operator of PyTorch that it is.

A formula for one element is written against :class:`Builder`, which the compiler implements: the
rows do not import it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypedDict, Unpack

from evergrad.core.shapes import TensorType
from evergrad.core.types import Attrs

# -- one element --------------------------------------------------------------------------------

# An element while code is emitted: a formula only hands it on.
Value = str


class Builder(Protocol):
    """Emits the operations of one element, in the element type of the arguments."""

    is_float: bool
    is_signed: bool
    width: int
    attrs: Attrs

    def number(self, value: object) -> Value: ...
    def cast(self, x: Value) -> Value: ...
    def cast_bool(self, x: Value) -> Value: ...

    def add(self, a: Value, b: Value) -> Value: ...
    def sub(self, a: Value, b: Value) -> Value: ...
    def mul(self, a: Value, b: Value) -> Value: ...
    def div(self, a: Value, b: Value) -> Value: ...
    def int_div(self, a: Value, b: Value) -> Value: ...
    def neg(self, x: Value) -> Value: ...
    def abs(self, x: Value) -> Value: ...
    def maximum(self, a: Value, b: Value) -> Value: ...
    def minimum(self, a: Value, b: Value) -> Value: ...

    def eq(self, a: Value, b: Value) -> Value: ...
    def ne(self, a: Value, b: Value) -> Value: ...
    def lt(self, a: Value, b: Value) -> Value: ...
    def le(self, a: Value, b: Value) -> Value: ...
    def gt(self, a: Value, b: Value) -> Value: ...
    def ge(self, a: Value, b: Value) -> Value: ...
    def is_nan(self, x: Value) -> Value: ...
    def is_inf(self, x: Value) -> Value: ...
    def is_finite(self, x: Value) -> Value: ...
    def choose(self, condition: Value, a: Value, b: Value) -> Value: ...

    def truth(self, x: Value) -> Value: ...
    def logical_and(self, a: Value, b: Value) -> Value: ...
    def logical_or(self, a: Value, b: Value) -> Value: ...
    def logical_xor(self, a: Value, b: Value) -> Value: ...
    def logical_not(self, x: Value) -> Value: ...
    def bit_and(self, a: Value, b: Value) -> Value: ...
    def bit_or(self, a: Value, b: Value) -> Value: ...
    def bit_xor(self, a: Value, b: Value) -> Value: ...
    def bit_not(self, x: Value) -> Value: ...
    def shift_left(self, a: Value, b: Value) -> Value: ...
    def shift_right(self, a: Value, b: Value) -> Value: ...

    # Floats only.
    def sqrt(self, x: Value) -> Value: ...
    def floor(self, x: Value) -> Value: ...
    def ceil(self, x: Value) -> Value: ...
    def trunc(self, x: Value) -> Value: ...
    def round(self, x: Value) -> Value: ...
    def math(self, name: str, *args: Value) -> Value: ...
    def copysign(self, size: Value, sign: Value) -> Value: ...
    def sign_bit(self, x: Value) -> Value: ...
    def pow(self, a: Value, b: Value) -> Value: ...

    def random_bit(self, seed: Value, offset: Value, number: Value, keep: float) -> Value: ...


class Cost(Enum):
    """What computing one element again costs, beside storing it."""

    FREE = "a view: nothing is computed"
    CHEAP = "a few instructions: computed again rather than stored"
    EXPENSIVE = "tens of instructions: stored rather than computed again"
    KERNEL = "no element by itself: never computed again inside a loop"


class Emit:
    """How one element is computed, ``function(builder, *elements)``; or ``None``, and the reason.

    The formula has no branches, so that it holds for registers of elements as well as for one.
    ``floats``: integer arguments are left to NumPy. ``single``: so is float64. ``numbered``: the
    elements depend on their position in the result, which the function is given last. ``exact``:
    the result is one of the arguments, so there is nothing to round. ``integers``: eager mode
    evaluates integers by its native loop, too, for which NumPy has no single fast call.
    """

    __slots__ = (
        "cost", "exact", "floats", "function", "integers", "is_lowered", "numbered", "reason",
        "single", "strided",
    )  # fmt: skip

    def __init__(
        self,
        function: Callable[..., Value] | None,
        cost: Cost,
        *,
        reason: str = "",
        floats: bool = False,
        single: bool = False,
        numbered: bool = False,
        exact: bool = False,
        integers: bool = False,
        is_lowered: bool = False,
        strided: bool = False,
    ) -> None:
        self.function: Callable[..., Value] | None = function
        self.cost: Cost = cost
        self.reason: str = reason
        self.floats: bool = floats
        self.single: bool = single
        self.numbered: bool = numbered
        self.exact: bool = exact
        self.integers: bool = integers
        # Whether the compiler has a kernel or a decomposition for the row as a whole.
        self.is_lowered: bool = is_lowered
        # Whether its kernels write results of any strides, if the last dimension is contiguous.
        self.strided: bool = strided


class _Options(TypedDict, total=False):
    floats: bool
    single: bool
    numbered: bool
    exact: bool
    integers: bool


def cheap(function: Callable[..., Value], **options: Unpack[_Options]) -> Emit:
    """An element takes a few instructions; ``options`` are those of :class:`Emit`."""
    return Emit(function, Cost.CHEAP, **options)


def expensive(function: Callable[..., Value], **options: Unpack[_Options]) -> Emit:
    """An element takes tens of instructions; ``options`` are those of :class:`Emit`."""
    return Emit(function, Cost.EXPENSIVE, **options)


def elementary(name: str, **options: Unpack[_Options]) -> Emit:
    """An element is one elementary function of the compiler, ``builder.math(name, *elements)``."""
    return expensive(lambda b, *args: b.math(name, *args), **options)


def numpy_evaluates(reason: str, cost: Cost = Cost.KERNEL) -> Emit:
    """No native code: compiled programs call the row's NumPy evaluation."""
    return Emit(None, cost, reason=reason)


def lowered(by: str, cost: Cost = Cost.KERNEL, *, strided: bool = False) -> Emit:
    """The compiler lowers the row as a whole, by a kernel or a decomposition."""
    return Emit(None, cost, reason=by, is_lowered=True, strided=strided)


UNWRITTEN = numpy_evaluates("a special function rare in models: no formula", Cost.EXPENSIVE)
ITERATED = numpy_evaluates("a series or recurrence as long as the values need", Cost.EXPENSIVE)
VIEW = Emit(None, Cost.FREE, reason="a view: only shape and strides change")
# The column of a row that states nothing, which the table's test refuses.
UNSTATED = Emit(None, Cost.KERNEL)


# -- reductions ---------------------------------------------------------------------------------


class Combine(Enum):
    """How a reduction joins two partial results."""

    SUM = "sum"
    MAX = "amax"
    MIN = "amin"
    ANY = "any"
    ALL = "all"
    PRODUCT = "prod"


# -- indexing -----------------------------------------------------------------------------------


class Indexing(Enum):
    """How a row of the table reads or writes at positions that an argument gives."""

    LOOKUP = "rows of a table, by index"
    PICK = "one element of each row of a matrix"
    SPREAD = "one element of each row of a matrix, in zeros"

    @property
    def reads(self) -> bool:
        """Whether elements other than those at the own position are read."""
        return self is not Indexing.SPREAD


# -- autocast -----------------------------------------------------------------------------------


class AutocastPolicy(Enum):
    """The precision in which a row or a function computes while autocast is on."""

    KEEP = "as given"
    LOWER = "in the lower precision"
    FLOAT32 = "in float32"
    WIDEST = "in float32 if one argument has it, else in the lower precision"
    # For functions alone: their rows are not converted either.
    OFF = "as given, autocast off inside"


# -- PyTorch's operator ---------------------------------------------------------------------------

# Its name in ``torch.ops.aten``, or a function that gives it for the ranks of the arguments.
AtenName = str | Callable[[Sequence[int]], str]


class Operator(Protocol):
    """A row or a composite, as the names of nodes and checkpoint policies see it; ``aten`` is empty
    where PyTorch's operator has the same name."""

    name: str
    aten: AtenName
    random: bool


def aten_name(op: Operator, ranks: Sequence[int]) -> str:
    """The operator of PyTorch for arguments of these ranks."""
    return op.aten(ranks) if callable(op.aten) else op.aten or op.name


# -- eager mode ---------------------------------------------------------------------------------


def elements(*types: TensorType) -> int:
    """The elements of the largest argument."""
    return max(t.numel for t in types)


class EagerKernel(NamedTuple):
    """From which size on eager mode evaluates a row by a kernel, and how size is counted."""

    least: int
    size: Callable[..., int] = elements
    integers: bool = False  # whether the kernel takes int64, too
    least_narrow: int | None = None  # the same size for 16-bit floats, if the kernel takes these
    # Whether strided arrays are copied first: a kernel that reads all elements several times.
    copies: bool = False


class EagerReduction(NamedTuple):
    """What a native loop in eager mode reduces: elements or their squares; and what it stores: the
    reduced value, divided by the count (``mean``), and of that the square root (``root``)."""

    combine: Combine
    squares: bool = False
    mean: bool = False
    root: bool = False


# From how many elements on one kernel for the derivative of a row is faster than its NumPy calls,
# unless a row in it states another number.
LEAST_DERIVATIVE = 1 << 15


class Facts(TypedDict, total=False):
    """These columns, as the families of :mod:`evergrad.core.families` hand them on to a row."""

    emit: Emit
    combine: Combine
    indexing: Indexing
    commutative: bool
    communicates: bool
    autocast: AutocastPolicy
    eager: EagerKernel
    eager_derivative: int
    eager_loop: bool
    eager_reduction: EagerReduction
    shape_generic: bool
    checks: bool
    aten: AtenName
