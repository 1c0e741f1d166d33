"""The loop IR of fusion groups: as text, and what its verifier refuses."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import evergrad as eg
from evergrad.compiler.codegen.loop_ir import (
    IndexMap,
    LoopProgram,
    Operand,
    Reduce,
    Store,
    verify,
)
from evergrad.compiler.passes.pipeline import Target, optimize
from evergrad.compiler.schedule.lower import loop_programs
from evergrad.errors import VerificationError
from evergrad.nn import functional as F


def programs(function: Callable[..., Any], *given: Any) -> list[LoopProgram]:
    variant, _ = eg.compile(function).compiled_for(given, {})
    return loop_programs(optimize(variant.captured.graph, Target.STEP))


KEPT: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], str]] = {
    "softmax": (
        lambda x: F.softmax(x, 1),
        ((32, 100),),
        """
domain [32, 100]: outer [32], inner [100], passes 3
  0: read float32, outer (400,) inner (4,)
  1: write float32, outer (400,) inner (4,)
  pass 0: %0 = amax(load 0, dims=(1,), keepdim=True) -> float32 outer over inner
  pass 1: %1 = sub(load 0, %0) -> float32
  pass 1: %2 = exp(%1) -> float32, kept
  pass 1: %3 = sum(%2, dims=(1,), keepdim=True) -> float32 outer over inner
  pass 2: %4 = div(%2, %3) -> float32, store 1
""",
    ),
    "tiles": (
        lambda x, y: x.T + y,
        ((64, 48), (48, 64)),
        """
domain [48, 64]: outer [3, 1], inner [16, 64], tiles of (48, 64)
  0: read float32, outer (64, 12288) inner (256, 4) through a copy
  1: read float32, outer (4096, 256) inner (256, 4)
  2: write float32, outer (4096, 256) inner (256, 4)
  pass 0: %0 = add(load 0, load 1) -> float32, store 2
""",
    ),
    "sums of columns": (
        lambda x: (x * 3).sum(0),
        ((300, 40),),
        """
domain [300, 40]: outer [300], inner [40]
  0: read float32, outer (160,) inner (4,)
  pass 0: %0 = mul(load 0, factor 0) -> float32
  pass 0: %1 = sum(%0, dims=(0,), keepdim=False) -> float32 over outer for each inner index
""",
    ),
    "collapsed": (
        lambda x, y: (x + y).relu(),
        ((6, 7, 8), (7, 8)),
        """
domain [6, 7, 8]: outer [6], inner [56]
  0: read float32, outer (224,) inner (4,)
  1: read float32, outer (0,) inner (4,)
  2: write float32, outer (224,) inner (4,)
  pass 0: %0 = add(load 0, load 1) -> float32
  pass 0: %1 = relu(%0) -> float32, store 2
""",
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_loops_are_those_that_are_kept(name: str) -> None:
    function, shapes, text = KEPT[name]
    (found,) = programs(function, *(eg.zeros(shape) for shape in shapes))
    assert str(found) == text.strip()
    verify(found)


def test_a_lookup_is_by_indices_that_are_loaded() -> None:
    index = eg.tensor([3, 4, 5])
    (found,) = programs(lambda x, i: x[i] * 2, eg.zeros(30, 40), index)
    assert "read float32, outer (0,) inner (4,) at load 0" in str(found)
    verify(found)


def test_explain_shows_loops_with_the_passes() -> None:
    compiled = eg.compile(lambda x: F.softmax(x, 1))
    explanation = compiled.explain(eg.ones(32, 100), passes=True)
    (found,) = explanation.data["loops"]
    assert found["name"] == "amax+sub+exp+sum+div"
    assert found["text"] == KEPT["softmax"][2].strip()
    assert "loops of amax+sub+exp+sum+div\ndomain [32, 100]" in explanation.text()
    assert not compiled.explain(eg.ones(32, 100)).data["loops"]


def test_the_structure_is_that_of_other_extents() -> None:
    """But not of other strides that are 0 or contiguous, or of other ops."""

    def structure(function: Callable[..., Any], *shapes: tuple[int, ...]) -> object:
        (found,) = programs(function, *(eg.zeros(shape) for shape in shapes))
        return found.structure()

    def add(x: Any, y: Any) -> Any:
        return x + y

    known = structure(add, (6, 7), (7,))
    assert structure(add, (50, 9), (9,)) == known
    others = (
        structure(add, (6, 7), (6, 7)), structure(add, (6, 7), (6, 1)),
        structure(lambda x, y: x - y, (6, 7), (7,)), structure(add, (2, 3, 5), (3, 1)),
    )  # fmt: skip
    assert known not in others


# -- the verifier -------------------------------------------------------------------------------


@cache
def softmax() -> LoopProgram:
    (found,) = programs(KEPT["softmax"][0], eg.zeros(32, 100))
    return found


@cache
def tiles() -> LoopProgram:
    (found,) = programs(KEPT["tiles"][0], eg.zeros(64, 48), eg.zeros(48, 64))
    return found


def with_statement(program: LoopProgram, number: int, **changes: Any) -> LoopProgram:
    statements = list(program.statements)
    found = statements[number]
    if isinstance(found, Reduce):
        own = {name: changes.pop(name) for name in list(changes) if name in found._fields}
        found = found._replace(compute=found.compute._replace(**changes), **own)
    else:
        found = found._replace(**changes)
    statements[number] = found
    return program._replace(statements=tuple(statements))


def with_memory(program: LoopProgram, number: int, **changes: Any) -> LoopProgram:
    memory = list(program.memory)
    memory[number] = memory[number]._replace(**changes)
    return program._replace(memory=tuple(memory))


def with_domain(program: LoopProgram, **changes: Any) -> LoopProgram:
    return program._replace(domain=program.domain._replace(**changes))


BROKEN: dict[str, tuple[Callable[[], LoopProgram], str]] = {
    "a value used before it is computed": (
        lambda: with_statement(softmax(), 1, operands=(Operand("load", 0), Operand("value", 3))),
        "before it is computed",
    ),
    "a sum used in the pass that computes it": (
        lambda: with_statement(softmax(), 4, stage=1), "which a later pass knows",
    ),
    "a partial result used in its kernel": (
        lambda: with_statement(softmax(), 3, partial=True), "complete after all chunks",
    ),
    "fewer passes than statements have": (
        lambda: with_domain(softmax(), passes=2), "statements of 3 passes",
    ),
    "loops longer than the domain": (
        lambda: with_domain(softmax(), outer=(33,)), "another size than the domain",
    ),
    "a stride that leads outside of a value": (
        lambda: with_memory(softmax(), 0, map=IndexMap((404,), (4,))), "reaches over",
    ),
    "rows that overlap": (
        lambda: with_memory(softmax(), 1, map=IndexMap((396,), (4,))), "more than once",
    ),
    "a result that is written in part": (
        lambda: with_memory(softmax(), 1, elements=3300), "is written 3200 times",
    ),
    "a result that is read": (
        lambda: softmax()._replace(stores=(Store(4, 0),)), "stored to read memory",
    ),
    "tiles that leave rows out": (
        lambda: with_domain(tiles(), outer=(2, 1)), "do not cover",
    ),
    "tiles of other loops": (
        lambda: with_domain(tiles(), shape=(48, 65)), "do not cover",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_program_is_refused(name: str) -> None:
    broken, reason = BROKEN[name]
    with pytest.raises(VerificationError, match=reason):
        verify(broken())
