"""The table itself: every row is documented, sampled, and states its facts; the compiler agrees."""

from __future__ import annotations

import inspect
from copy import copy
from pathlib import Path
from types import ModuleType
from typing import Any

import llvmlite.binding as llvm
import pytest

from evergrad.compiler.codegen.code import Code
from evergrad.compiler.codegen.elementwise import KINDS, Element, supports
from evergrad.compiler.kernels.registry import LOWERINGS
from evergrad.compiler.passes import decompose_indexing, decompose_movement
from evergrad.compiler.passes.lower_random import WORD_DRAWS
from evergrad.compiler.passes.simplify import RULES
from evergrad.compiler.passes.split_complex import RULES as COMPLEX
from evergrad.core.dtypes import dtype
from evergrad.core.op import TABLE, Op
from evergrad.core.row_facts import UNSTATED, Emit, cheap
from evergrad.core.shapes import tensor_type
from evergrad.ops.rows.creation.constants import FULL
from evergrad.ops.rows.movement.joining import CAT
from evergrad.testing import samples
from evergrad.testing.checks import check_row
from evergrad.testing.samples import table
from evergrad.testing.samples.table import all_samples
from evergrad.testing.subject import CheckError

from .checks import SAMPLES

# Rows that users define at run time are not the table's.
ROWS = [op for _, op in sorted(TABLE.items()) if op.family != "custom"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(row: Op) -> None:
    check_row(row)


def test_samples_name_rows_of_the_table() -> None:
    assert sorted(set(all_samples()) - set(TABLE)) == []


def test_labels_are_unique() -> None:
    assert len({str(sample) for sample in SAMPLES}) == len(SAMPLES)


def test_every_module_of_samples_is_listed() -> None:
    names = {path.stem for path in Path(samples.__file__).parent.glob("*.py")}
    listed = {name for name, value in vars(table).items() if isinstance(value, ModuleType)}
    assert names - {"__init__", "table"} == listed


# -- a row that states too little ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "nothing", "message"),
    [
        ("emit", UNSTATED, "states neither how an element is emitted"),
        ("emit", Emit(None, TABLE["exp"].emit.cost, reason=" "), "states neither"),
        ("emit", Emit(lambda b, x: x, None), "no cost class"),  # type: ignore[arg-type]
        ("autocast", None, "no autocast policy"),
        ("doc", " ", "no doc"),
        ("vjp", None, "no derivative"),
    ],
)
def test_a_row_that_lacks_a_fact_fails(column: str, nothing: Any, message: str) -> None:
    row = copy(TABLE["exp"])
    check_row(row)
    setattr(row, column, nothing)
    with pytest.raises(CheckError, match=message):
        check_row(row)


# -- what rows state is what the compiler does --------------------------------------------------


# Rows of complex numbers alone, which are split into their parts.
_COMPLEX = ("abs_complex", "complex", "conj")


def is_lowered(row: Op) -> bool:
    """Whether the compiler has something of its own for a row as a whole."""
    in_loops = row.combine is not None or row.indexing is not None or row in (FULL, CAT)
    decompositions = RULES, decompose_movement.RULES, decompose_indexing.RULES, WORD_DRAWS
    tables = LOWERINGS, *decompositions, *((COMPLEX,) if row.name in _COMPLEX else ())
    return in_loops or any(row in table for table in tables)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_rows_that_are_lowered_say_so(row: Op) -> None:
    if row.emit.function is None and not row.alias:
        assert row.emit.is_lowered == is_lowered(row)


def emitted(row: Op, found: dtype) -> str | None:
    """A function in LLVM IR that computes one element, if the row takes this element type."""
    assert row.emit.function is not None
    count = len(inspect.signature(row.emit.function).parameters) - 1
    given = (tensor_type((), found),) * count
    attrs = {"dtype": found} if row.name == "cast" else {}
    try:
        operands = row.resolve((given, found), given, attrs).operands
        out = row.type(*operands, **attrs)
    except (NotImplementedError, RuntimeError):
        return None
    if not supports(row, operands, (out,)):
        return None
    code = Code()
    names = [f"%arg{k}" for k in range(count)]
    element = Element(code, operands[-1].dtype, out.dtype, attrs)
    result = row.emit.function(element, *names)
    types = [KINDS[t.dtype].compute for t in operands]
    head = ", ".join(f"{type} {name}" for type, name in zip(types, names, strict=True))
    body = "\n".join(code.lines)
    kind = KINDS[out.dtype].compute
    helpers = "\n".join(code.helpers.values())
    return f"{helpers}\ndefine {kind} @f({head}) {{\n{body}\n  ret {kind} {result}\n}}\n"


@pytest.mark.parametrize("found", KINDS, ids=lambda found: found.name)
def test_elements_are_valid_ir_in_every_type_that_rows_take(found: dtype) -> None:
    texts = {row.name: emitted(row, found) for row in ROWS if row.emit.function is not None}
    assert any(texts.values())
    for name, text in texts.items():
        if text is not None:
            try:
                llvm.parse_assembly(text).verify()
            except RuntimeError as error:
                pytest.fail(f"{name} in {found.name}: {error}\n{text}")


def test_ir_of_the_wrong_type_is_noticed() -> None:
    row = copy(TABLE["floor"])
    row.emit = cheap(lambda b, x: b.floor(x))  # without floats=True
    row.specializations = {}
    with pytest.raises(TypeError, match="floats"):
        emitted(row, next(t for t in KINDS if t.name == "int32"))
