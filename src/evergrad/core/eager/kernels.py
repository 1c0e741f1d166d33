"""Native kernels for the evaluation or the vjp of single rows on large arrays.

Graphs, traces and derivatives of a row are unchanged; only its evaluation is replaced. Whether a
kernel is used depends on the types alone, so that the same op on the same numbers gives the same
bits, however often it was called before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from evergrad import config
from evergrad.core import dtypes
from evergrad.core.eager.copies import contiguous_copy
from evergrad.core.eager.fusion import Uses, is_large
from evergrad.core.row_facts import LEAST_DERIVATIVE
from evergrad.core.shapes import TensorType
from evergrad.core.trace import Graph
from evergrad.extension import ExtensionPoint
from evergrad.memory.ledger import LEDGER, LEDGER_MIN_BYTES

if TYPE_CHECKING:
    from evergrad.core.op import Attrs, Op
    from evergrad.core.types import AnyFunction

_native_graph: ExtensionPoint[..., Any] = ExtensionPoint("native_graph")
_graph_of_row: ExtensionPoint[..., Graph] = ExtensionPoint("graph_of_row")

_FLOATS = (dtypes.float32, dtypes.float64)
_NARROW = (dtypes.bfloat16, dtypes.float16)


def may_use_kernel(op: Op, operands: Sequence[TensorType | type]) -> bool:
    """Whether a row on these types may have a kernel."""
    if op.eager is None:
        return False
    numbers = (*_FLOATS, dtypes.int64) if op.eager.integers else _FLOATS
    numbers = numbers if op.eager.least_narrow is None else (*numbers, *_NARROW)
    return all(isinstance(t, TensorType) and t.dtype in numbers and t.numel for t in operands)


# The kernels of rows; None where there is none for these types. Not stored in specializations: a
# kernel references its equation, and so its specialization.
_kernels: dict[object, AnyFunction | None] = {}
_KERNEL_LIMIT = 1024

# Planning a kernel for another shape takes milliseconds: on arrays of fewer elements than these a
# row gets a limited number of them.
_WORTH_PLANNING = 1 << 16
# The uses of kernels by row, and by row, element types and all extents but the first.
_uses: dict[object, Uses] = {}
# A row that has so many kernels gets none for another shape.
_MANY_OF_A_ROW = 16


def row_evaluator(
    op: Op, attrs: Attrs, operands: tuple[TensorType, ...], plain: Callable[..., object]
) -> Callable[..., object]:
    """An evaluator that uses a kernel from the row's threshold on, else the plain one."""
    assert op.eager is not None
    least, size = op.eager.least, op.eager.size(*operands)
    if op.eager.least_narrow is not None and operands[0].dtype in _NARROW:
        least = op.eager.least_narrow
    key = op.name, tuple(attrs.items()), operands
    kind = op.name, tuple([(t.dtype, t.shape[1:]) for t in operands])
    of_kind = _uses.setdefault(kind, Uses())
    of_row = _uses.setdefault(op.name, Uses())
    copies = op.eager.copies

    def run(*arrays: Any) -> Any:
        forced = config.EAGER_KERNEL_ELEMENTS  # as is_large(), without a call
        if size < (least if forced is None else max(forced, 1)) or not config.EAGER_KERNELS:
            return plain(*arrays)
        try:
            kernel = _kernels[key]
        except KeyError:
            if size < _WORTH_PLANNING and (of_kind.are_many() or of_row.are_many(_MANY_OF_A_ROW)):
                return plain(*arrays)
            of_kind.kernels += 1
            of_row.kernels += 1
            kernel = _new_kernel(key, op, attrs)
        if kernel is None:
            return plain(*arrays)
        if copies:
            arrays = tuple([a if a.flags.c_contiguous else contiguous_copy(a) for a in arrays])
        return kernel(*arrays)

    return run


def _new_kernel(key: Any, op: Op, attrs: Attrs) -> Callable[..., object] | None:
    native = _native_graph(_graph_of_row(op, attrs, key[-1]))
    kernel: AnyFunction | None = None
    if native.is_native():
        kernel = native.result if op.outputs == 1 else native.results
    if len(_kernels) >= _KERNEL_LIMIT:
        _kernels.clear()
    _kernels[key] = kernel
    return kernel


def clear_row_kernels() -> None:
    """Clear the kernels of rows; those in use are made again."""
    _kernels.clear()
    _uses.clear()


class FusedVjp:
    """The vjp of a row as one native program, from a size on."""

    __slots__ = ("graph", "least", "native", "nbytes", "size", "slots", "top")

    def __init__(self, graph: Graph, slots: Sequence[int | None], top: int) -> None:
        self.graph: Graph = graph
        self.slots: list[int] = [slot for slot in slots if slot is not None]
        self.top: int = top
        self.size: int = max(var.type.numel for var in graph.inputs)
        # NumPy takes long to choose between elements, and to find where the largest are.
        self.least: int = min(
            eqn.op.eager_derivative or LEAST_DERIVATIVE for eqn in graph.equations
        )
        self.nbytes: int = sum(out.type.nbytes for out in graph.outputs if out is not None)
        # Compiled by the first large call; false where kernels do not support all of it.
        self.native: Any = None

    def is_profitable(self) -> bool:
        if not config.EAGER_KERNELS or not is_large(self.size, self.least):
            return False
        if self.native is None:
            self.native = self.compiled()
        return self.native is not False

    def compiled(self) -> object:
        outputs = [out for out in self.graph.outputs if out is not None]
        native = _native_graph(Graph(self.graph.inputs, (), self.graph.equations, outputs))
        return native.is_native() and native

    def run(self, values: list[object]) -> None:
        """Run, with the results in the slots of the vjp program."""
        found = self.native.run(values)
        if self.nbytes >= LEDGER_MIN_BYTES:
            LEDGER.transient(self.nbytes)
        values += [None] * (self.top - len(values))
        for slot, result in zip(self.slots, found, strict=True):
            values[slot] = result


def is_fusable(graph: Graph) -> bool:
    """Whether a vjp consists of several loops over floats that one kernel can fuse."""
    rows = [eqn.op for eqn in graph.equations if not eqn.op.alias]
    return (
        len(rows) > 1
        and all(op.eager_derivative is not None for op in rows)
        and all(var.type.numel and var.type.dtype in _FLOATS for var in graph.inputs)
    )
