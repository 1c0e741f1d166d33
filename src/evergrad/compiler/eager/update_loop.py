"""An elementwise in-place update of arrays of any length as one loop, for eager optimizers.

The kernel depends on the formula and the element types alone: the number of elements is an
argument, and so are the numbers. The arrays may be the same memory, but not overlap otherwise: all
elements at a position are read before the new ones are written.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from evergrad.compiler.codegen import elementwise
from evergrad.compiler.codegen.code import Code
from evergrad.compiler.codegen.elementwise import Element
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.native import jit
from evergrad.compiler.native.prototypes import functions_at
from evergrad.core import dtypes
from evergrad.core.dtypes import dtype
from evergrad.core.shapes import TensorType
from evergrad.core.trace import Equation, Graph, Var
from evergrad.extension import provides

_FLOATS = (dtypes.float32, dtypes.float64)


@provides("update_loop")
def update_loop(
    graph: Graph, tensors: int, numbers: tuple[Var, ...]
) -> tuple[Callable[..., None], Callable[..., None]] | None:
    """The loop of an update as a function of the addresses of the first ``tensors`` inputs of the
    graph, of ``numbers``, its values without dimensions, and of the number of elements: one that
    keeps the GIL and one that releases it. The outputs overwrite the first arrays. ``None`` if no
    code is emitted for the formula."""
    rows = [eqn for eqn in graph.equations if eqn.outs[0].type.shape]
    if not jit.can_jit() or not all(_is_emitted(eqn) for eqn in rows):
        return None
    if any(var.type.dtype not in _FLOATS for var in (*graph.inputs[:tensors], *numbers)):
        return None
    kernel = _kernel(rows, graph.inputs[:tensors], numbers, graph.outputs)
    address = jit.addresses([kernel])[kernel.name]
    words = [ctypes.c_void_p] * tensors + [ctypes.c_double] * len(numbers)
    signature = (None, *words, ctypes.c_int64)
    return functions_at(address, signature)


def _is_emitted(eqn: Equation) -> bool:
    specialization = eqn.specialization
    operands = specialization.operands
    return (
        len(eqn.outs) == 1
        and not eqn.op.emit.numbered
        and all(isinstance(t, TensorType) for t in operands)
        and elementwise.supports(eqn.op, operands, specialization.out_types)
    )


def _kernel(
    rows: list[Equation], arrays: tuple[Var, ...], numbers: tuple[Var, ...], outputs: Any
) -> Kernel:
    code = Code()
    values: dict[Var, str] = {var: f"%n{k}" for k, var in enumerate(numbers)}
    code.label("body")
    code.do("%i = phi i64 [ 0, %entry ], [ %next, %body ]")
    places = [_place(code, var.type.dtype, k) for k, var in enumerate(arrays)]
    for var, place in zip(arrays, places, strict=True):
        values[var] = elementwise.load(code, var.type.dtype, place)
    for eqn in rows:
        operands = eqn.specialization.operands
        given = [
            values[a] if isinstance(a, Var) else elementwise.literal(a, t.dtype)
            for a, t in zip(eqn.args, operands, strict=True)
        ]
        out = eqn.outs[0]
        element = Element(code, operands[-1].dtype, out.type.dtype, eqn.attrs)
        assert eqn.op.emit.function is not None
        values[out] = eqn.op.emit.function(element, *given)
    for k, found in enumerate(outputs):
        elementwise.store(code, arrays[k].type.dtype, values[found], places[k])
    code.do("%next = add nuw nsw i64 %i, 1")
    code.do(f"br i1 {code.op('icmp slt i64 %next, %count')}, label %body, label %end")
    parameters = [f"ptr %a{k}" for k in range(len(arrays))]
    parameters += [f"double %x{k}" for k in range(len(numbers))]
    lines = ["entry:", *(_converted(k, var.type.dtype) for k, var in enumerate(numbers))]
    lines += ["  %any = icmp sgt i64 %count, 0", "  br i1 %any, label %body, label %end"]
    # Each operation is rounded by itself, as single ops are.
    own = [line.replace(f" {elementwise.FUSED} ", " ") for line in code.lines]
    text = "\n".join([*lines, *own, "end:", "  ret void"])
    ir = (
        f"define void @SELF({', '.join(parameters)}, i64 %count) "
        f'nounwind "prefer-vector-width"="{jit.vector_bits()}" {{\n{text}\n}}\n'
    )
    name = jit.name_of(ir, "update_loop")
    return Kernel(name, ir.replace("@SELF", f"@{name}"), code.helpers)


def _place(code: Code, found: dtype, number: int) -> str:
    storage = elementwise.KINDS[found].storage
    return code.op(f"getelementptr {storage}, ptr %a{number}, i64 %i")


def _converted(number: int, found: dtype) -> str:
    """A number in the type of its value in the graph."""
    is_double = found is dtypes.float64
    word = f"fadd double %x{number}, -0.0" if is_double else f"fptrunc double %x{number} to float"
    return f"  %n{number} = {word}"
