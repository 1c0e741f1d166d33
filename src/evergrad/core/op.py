"""Ops and their specializations.

:class:`Op` is one row of the op table. :class:`Specialization` is a row resolved for one
combination of input types and attributes (result types, casts, evaluator); it is cached in the row.
The reverse derivative of a specialization is a :class:`evergrad.core.vjp_program.VjpProgram`.

:mod:`evergrad.core.families` has the functions that build rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evergrad.core import dtypes
from evergrad.core.dtypes import dtype
from evergrad.core.eager.fusion import clear_composite_kernels
from evergrad.core.eager.kernels import clear_row_kernels
from evergrad.core.evaluate import evaluator
from evergrad.core.row_facts import (
    UNSTATED,
    VIEW,
    AtenName,
    AutocastPolicy,
    Combine,
    EagerKernel,
    EagerReduction,
    Emit,
    Indexing,
)
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.vjp_program import VjpProgram
from evergrad.core.vjp_template import clear_templates, vjp_program
from evergrad.extension import ExtensionPoint, provides
from evergrad.memory.pool import on_trim

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

_bind: ExtensionPoint[..., object] = ExtensionPoint("bind")

ArgType = TensorType | type
Attrs = dict[str, Any]

TABLE: dict[str, Op] = {}

# Specializations cached over all ops. Shapes that never repeat would otherwise fill memory; at the
# limit all are cleared, and those in use are resolved again.
_SPECIALIZATION_LIMIT = 1 << 14
_specializations_kept = 0

# By public function: the specializations of its row by what it was called with. A call that was
# made before needs neither its arguments normalized nor its attributes hashed.
_prepared_calls: list[dict[object, Specialization]] = []


def prepared_calls() -> dict[object, Specialization]:
    """A new table of prepared calls, cleared with the specializations."""
    made: dict[object, Specialization] = {}
    _prepared_calls.append(made)
    return made


# The vjp of a row whose derivative is zero or undefined everywhere.
NONDIFFERENTIABLE: Final = "NONDIFFERENTIABLE"


class Op:
    """One row of the op table.

    ``type(*types, **attrs)`` gives the result type(s) or raises in the user's terms;
    ``eval(*arrays, **attrs)`` computes with NumPy; ``vjp(g, out, *args, **attrs)`` gives one
    cotangent per argument, written in ops; ``jvp(tangents, out, *args, **attrs)`` the tangent of
    the result; ``batch`` is the batching rule of :func:`~evergrad.func.vmap`. ``promote`` gives the
    element type to which arguments are promoted, one for all or one for each (``None``: the row
    takes them as they are).

    ``emit`` is how the compiler computes one element, with its cost, or why there is no such code;
    ``combine`` how a reduction joins partial results; ``indexing`` at which positions an argument
    lets it read or write; ``commutative`` whether two arguments may change places; ``communicates``
    whether it exchanges data with other processes, which must evaluate it as often and in the same
    order; ``autocast`` the precision under autocast; ``eager`` the size from which eager mode uses
    a kernel, and ``eager_derivative`` the same for the vjp of a row in which this one occurs
    (``None``: no such kernel); ``eager_loop`` whether a native loop is faster than the NumPy calls
    of its evaluation (``None``: if it is expensive, and not one ufunc); ``eager_reduction`` the
    native loop that evaluates a reduction of contiguous floats; ``shape_generic`` whether the vjp
    depends on extents only through which are equal, one or zero
    (:mod:`evergrad.core.vjp_template`). Their types are in
    :mod:`evergrad.core.row_facts`. ``checks`` marks a row that raises unless its argument holds: an
    effect, so that it is never dead code. ``aten`` is PyTorch's operator, if its name is another.
    """

    __slots__ = (
        "alias", "aten", "autocast", "batch", "checks", "combine", "communicates", "commutative",
        "doc", "eager", "eager_derivative", "eager_loop", "eager_reduction", "emit", "eval",
        "family", "indexing", "jvp", "name", "nan_safe_vjp", "outputs", "prepare", "prepare_for",
        "promote", "random", "scatter_index", "selects", "shape_generic", "specializations",
        "takes_out", "type", "upcast", "vjp",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        *,
        family: str,
        type: Callable[..., object],
        eval: Callable[..., object],
        vjp: Callable[..., object] | str,
        jvp: Callable[..., object] | None,
        batch: Callable[..., object] | None,
        promote: Callable[[tuple[ArgType, ...]], dtype | tuple[dtype, ...]] | None = None,
        outputs: int = 1,
        alias: str = "",
        random: bool = False,
        takes_out: bool = False,
        upcast: bool = True,
        emit: Emit = UNSTATED,
        combine: Combine | None = None,
        indexing: Indexing | None = None,
        commutative: bool = False,
        communicates: bool = False,
        autocast: AutocastPolicy | None = None,
        eager: EagerKernel | None = None,
        eager_derivative: int | None = None,
        eager_loop: bool | None = None,
        eager_reduction: EagerReduction | None = None,
        shape_generic: bool = False,
        checks: bool = False,
        aten: AtenName = "",
        doc: str = "",
        in_table: bool = True,
    ) -> None:
        if in_table:
            if name in TABLE:
                raise ValueError(f"the table already has a row named {name!r}")
            TABLE[name] = self
        self.name: str = name
        self.family: str = family
        self.type: AnyFunction = type
        self.eval: AnyFunction = eval
        self.vjp: Callable[..., object] | str = vjp
        self.jvp: Callable[..., object] | None = jvp
        self.batch: AnyFunction | None = batch
        self.promote: Callable[[tuple[ArgType, ...]], dtype | tuple[dtype, ...]] | None = promote
        self.outputs: int = outputs
        # "view": the result aliases the first argument; "reshape": where its strides allow;
        # "expand": with strides of zero.
        self.alias: str = alias
        self.random: bool = random
        self.takes_out: bool = takes_out
        # Whether 16-bit floats are evaluated in float32 (rows that only move data need not be).
        self.upcast: bool = upcast
        self.emit: Emit = VIEW if alias else emit
        self.combine: Combine | None = combine
        self.indexing: Indexing | None = indexing
        self.commutative: bool = commutative
        self.communicates: bool = communicates
        self.autocast: AutocastPolicy | None = AutocastPolicy.KEEP if alias else autocast
        self.eager: EagerKernel | None = eager
        self.eager_derivative: int | None = eager_derivative
        self.eager_loop: bool | None = eager_loop
        self.eager_reduction: EagerReduction | None = eager_reduction
        self.shape_generic: bool = shape_generic
        self.checks: bool = checks
        self.aten: AtenName = aten
        self.doc: str = doc
        # For a row that scatters its argument into zeros (the transpose of a slice): the NumPy
        # index of the part, from the attributes.
        self.scatter_index: Callable[..., object] | None = None
        # For a row that selects among the elements of its arguments (where, indexing): values that
        # were computed only for elements not selected have a gradient of zero, even where a
        # derivative is infinite or undefined. In nan_safe_vjp a zero cotangent gives a zero.
        self.selects: bool = False
        self.nan_safe_vjp: Callable[..., object] | None = None
        # For a row that is one call given its attributes: makes that call, once per specialization.
        self.prepare: Callable[..., Callable[..., object]] | None = None
        # For a row whose evaluation is faster with extents known beforehand: given the evaluator of
        # any extents, the argument types and the attributes, makes the one of a specialization.
        self.prepare_for: Callable[..., Callable[..., object]] | None = None
        self.specializations: dict[object, Specialization] = {}

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    @property
    def differentiable(self) -> bool:
        return self.vjp is not NONDIFFERENTIABLE

    @property
    def has_effect(self) -> bool:
        """Whether it does more than compute its results: it draws random numbers, may raise, or
        takes part in what other processes compute."""
        return self.random or self.checks or self.communicates

    @property
    def is_pointwise(self) -> bool:
        """Whether an element of the result depends on the elements at its own position alone."""
        return self.family == "elementwise" or self.emit.function is not None

    @property
    def looks_up(self) -> bool:
        """Whether it reads elements at positions that an argument gives."""
        return self.indexing is not None and self.indexing.reads

    def apply(self, *args: object, **attrs: object) -> Any:
        """Apply the op: what an equation of a graph runs."""
        return _bind(self, *args, **attrs)

    def resolve(self, key: object, types: tuple[ArgType, ...], attrs: Attrs) -> Specialization:
        """Resolve and cache the specialization; type and attribute errors are raised here."""
        global _specializations_kept
        specialization = self._specialize(types, attrs)
        _specializations_kept += 1
        if _specializations_kept > _SPECIALIZATION_LIMIT:
            clear_specializations()
        self.specializations[key] = specialization
        return specialization

    def _specialize(self, types: tuple[ArgType, ...], attrs: Attrs) -> Specialization:
        casts: tuple[dtype | None, ...] | None = None
        operands: tuple[TensorType, ...]
        found = None if self.promote is None else self.promote(types)
        if found is None or _are_all(types, found):
            operands = types  # type: ignore[assignment]
        else:
            common = found if isinstance(found, tuple) else (found,) * len(types)
            wanted = tuple(
                c if isinstance(t, TensorType) and t.dtype is not c else None
                for t, c in zip(types, common, strict=True)
            )
            if any(wanted):
                casts = wanted
            types = tuple(
                tensor_type(t.shape, c) if isinstance(t, TensorType) else t
                for t, c in zip(types, common, strict=True)
            )
            operands = tuple(
                t if isinstance(t, TensorType) else tensor_type((), c)
                for t, c in zip(types, common, strict=True)
            )
        result = self.type(*operands, **attrs)
        out_types = result if isinstance(result, tuple) else (result,)
        return Specialization(self, attrs, types, operands, out_types, casts)


def _are_all(types: tuple[ArgType, ...], found: dtype | tuple[dtype, ...]) -> bool:
    """Whether all arguments are tensors of one element type."""
    return False not in [isinstance(t, TensorType) and t.dtype is found for t in types]


@on_trim
@provides("clear_specializations")
def clear_specializations() -> None:
    """Clear the caches of all ops; specializations in use are resolved again.

    A specialization and its vjp programs reference each other: the cycle is broken here.
    """
    global _specializations_kept
    _specializations_kept = 0
    clear_composite_kernels()
    clear_row_kernels()
    clear_templates()
    for calls in _prepared_calls:
        calls.clear()
    for op in TABLE.values():
        forgotten, op.specializations = op.specializations, {}
        for specialization in forgotten.values():
            specialization.vjp_programs = {}


class Specialization:
    """An op resolved for argument types and attributes: result types, casts and evaluator."""

    __slots__ = (
        "always_contiguous",
        "attrs",
        "casts",
        "differentiable",
        "is_direct",
        "op",
        "operands",
        "out_types",
        "overwrite",
        "run",
        "selects",
        "single",
        "types",
        "vjp_programs",
    )  # fmt: skip

    def __init__(
        self,
        op: Op,
        attrs: Attrs,
        types: tuple[ArgType, ...],
        operands: tuple[TensorType, ...],
        out_types: tuple[TensorType, ...],
        casts: tuple[dtype | None, ...] | None,
    ) -> None:
        self.op: Op = op
        self.attrs: Attrs = attrs
        self.types: tuple[ArgType, ...] = types
        self.operands: tuple[TensorType, ...] = operands
        self.out_types: tuple[TensorType, ...] = out_types
        self.casts: tuple[dtype | None, ...] | None = casts
        self.single: bool = op.outputs == 1
        # Whether it takes its arguments as they are and has one result.
        self.is_direct: bool = self.single and casts is None
        self.selects: bool = op.selects
        self.differentiable: bool = op.differentiable and (
            max([t.dtype.category for t in out_types], default=0) >= dtypes.FLOATING
        )
        # Whether the result is contiguous whatever the strides of the arguments: a ufunc allocates
        # results of less than two dimensions so.
        self.always_contiguous: bool = isinstance(op.eval, np.ufunc) and len(out_types[0].shape) < 2
        self.vjp_programs: dict[int, VjpProgram] = {}
        self.run: AnyFunction = evaluator(op, attrs, types, operands, out_types)
        # The loop of the in-place form, made by its first call; false if there is none.
        self.overwrite: Any = None

    def vjp_program(self, needs: int) -> VjpProgram:
        """The vjp with respect to the arguments in the bit set ``needs``."""
        program = self.vjp_programs.get(needs)
        if program is None:
            program = self.vjp_programs[needs] = vjp_program(self, needs)
        return program

    def evaluator(self) -> Callable[..., object]:
        """A function of arrays that gives the one result."""
        return self.run

    def formula(self, needs: int, nan_safe: bool) -> object:
        """The vjp with respect to the arguments in the bit set ``needs``."""
        return self.op.nan_safe_vjp if nan_safe else self.op.vjp

    def selected_parents(self, parents: Sequence[object]) -> Sequence[Any]:
        """Of the nodes of its arguments those that it selects from, where ``selects`` is set."""
        return parents

    def nan_safe_parents(self, parents: Sequence[object]) -> Sequence[Any]:
        """Of the nodes of its arguments those that may not have been selected if it has not."""
        return parents

    def nan_safe_program(self, program: VjpProgram) -> VjpProgram:
        """The same vjp for a node behind a selection: zero cotangents give zeros."""
        found = self.vjp_programs.get(~program.needs)
        if found is None:
            if self.op.nan_safe_vjp is None or not program.saves:
                found = copy(program)
                found.is_nan_safe = True
            else:
                found = vjp_program(self, program.needs, nan_safe=True)
            self.vjp_programs[~program.needs] = found
        return found
