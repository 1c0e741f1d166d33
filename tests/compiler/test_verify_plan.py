"""The memory-plan verifier catches plans that are broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import evergrad as eg
from evergrad import config
from evergrad.compiler.cache import executable
from evergrad.compiler.schedule import memory_plan, verify_plan
from evergrad.compiler.schedule.buffers import Buffer, BufferView
from evergrad.compiler.schedule.instructions import Instruction
from evergrad.core import dtypes
from evergrad.errors import VerificationError

from .plans import check_plan

ARENA = 256


def buffer(label: str, offset: int, nbytes: int = 64, home: str = "arena") -> Buffer:
    made = Buffer(0, nbytes, home, label)
    made.offset = offset
    return made


def instruction(reads: list[Buffer], writes: list[Buffer], *pointers: BufferView) -> Instruction:
    made = Instruction("add")
    made.reads, made.writes = reads, writes
    made.pointers = list(pointers)
    return made


def columns(whole: Buffer, first: int) -> BufferView:
    """Every second float of a buffer of 4 by 4."""
    return BufferView(whole, first * 4, (4, 2), (16, 8), dtypes.float32)


def test_a_chain_may_reuse_memory() -> None:
    a, b, c = buffer("a", 0), buffer("b", 64), buffer("c", 0)
    waves = [[instruction([], [a])], [instruction([a], [b])], [instruction([b], [c])]]
    verify_plan.verify_plan(waves, ARENA, [c])


def test_two_instructions_may_write_parts_of_a_buffer() -> None:
    whole = buffer("whole", 0)
    wave = [instruction([], [whole], columns(whole, n)) for n in (0, 1)]
    verify_plan.verify_plan([wave], ARENA, [whole])


def out_of_the_arena() -> tuple[list[Any], list[Any]]:
    a = buffer("a", ARENA)
    return [[instruction([], [a])]], []


def not_aligned() -> tuple[list[Any], list[Any]]:
    a = buffer("a", 32)
    return [[instruction([], [a])]], []


def overwritten_while_live() -> tuple[list[Any], list[Any]]:
    a, b = buffer("a", 0), buffer("b", 0)
    waves = [[instruction([], [a])], [instruction([], [b])], [instruction([a, b], [])]]
    return waves, []


def overwritten_in_part() -> tuple[list[Any], list[Any]]:
    a, b = buffer("a", 0, 128), buffer("b", 64)
    waves = [[instruction([], [a])], [instruction([], [b])], [instruction([a], [])]]
    return waves, []


def overwritten_before_the_end() -> tuple[list[Any], list[Any]]:
    """What is copied out when all waves have run."""
    a, b = buffer("a", 0), buffer("b", 0)
    return [[instruction([], [a])], [instruction([], [b])]], [a]


def read_before_it_is_written() -> tuple[list[Any], list[Any]]:
    a, b = buffer("a", 0), buffer("b", 64)
    return [[instruction([a], [b])], [instruction([], [a])]], []


def read_in_the_wave_that_writes() -> tuple[list[Any], list[Any]]:
    a, b = buffer("a", 0), buffer("b", 64)
    return [[instruction([], [a]), instruction([a], [b])]], []


def written_twice_in_a_wave() -> tuple[list[Any], list[Any]]:
    whole = buffer("whole", 0)
    wave = [instruction([], [whole], columns(whole, 0)) for _ in range(2)]
    return [wave], []


def two_results_in_one_place() -> tuple[list[Any], list[Any]]:
    return [[instruction([], [buffer("a", 0)]), instruction([], [buffer("b", 0)])]], []


def result_over_an_operand_of_a_neighbour() -> tuple[list[Any], list[Any]]:
    a, b = buffer("a", 0), buffer("b", 0)
    c = buffer("c", 64)
    return [[instruction([], [a])], [instruction([], [b]), instruction([a], [c])]], []


BROKEN: dict[Callable[[], tuple[list[Any], list[Any]]], str] = {
    out_of_the_arena: "does not fit the arena of 256 bytes",
    not_aligned: "is not aligned",
    overwritten_while_live: "overwrites .*a: .*, which is read later",
    overwritten_in_part: "overwrites",
    overwritten_before_the_end: "overwrites",
    read_before_it_is_written: "was not written",
    read_in_the_wave_that_writes: "is written by add, read by add",
    written_twice_in_a_wave: "is written twice",
    two_results_in_one_place: "overlaps",
    result_over_an_operand_of_a_neighbour: "read by add",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: str(broken.__name__))
def test_a_broken_plan_is_caught(broken: Callable[[], tuple[list[Any], list[Any]]]) -> None:
    waves, ends = broken()
    with pytest.raises(VerificationError, match=BROKEN[broken]) as caught:
        verify_plan.verify_plan(waves, ARENA, ends)
    assert "the memory plan is broken" in str(caught.value)


def chain(x: Any) -> Any:
    for _ in range(4):
        x = (x @ x).exp().sum(0, keepdim=True) + x
    return x


def test_a_planner_that_gives_all_buffers_one_offset_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def together(buffers: Any) -> int:
        for made in buffers:
            made.offset = 0
        return max((b.nbytes for b in buffers), default=0)

    monkeypatch.setattr(memory_plan, "_assign_offsets", together)
    with pytest.raises(VerificationError, match=r"traced at: .*test_verify_plan"):
        eg.compile(lambda x: chain(x) * 3.5).plan(eg.ones(16, 16))


def test_live_ranges_that_end_too_early_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verifier takes nothing that the planner believes."""

    def first_use_alone(self: Buffer, wave: int) -> None:
        self.first = self.last = wave if self.first < 0 else self.first

    monkeypatch.setattr(Buffer, "used_in", first_use_alone)
    with pytest.raises(VerificationError):
        eg.compile(lambda x: chain(x) * 4.5).plan(eg.ones(16, 16))


def test_instructions_that_run_too_early_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        executable, "partition_into_waves", lambda instructions: [list(instructions)]
    )
    with pytest.raises(VerificationError, match="is written by"):
        eg.compile(lambda x: chain(x) * 5.5).plan(eg.ones(16, 16))


def test_programs_above_the_bound_are_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "VERIFY_EQUATIONS", 0)
    monkeypatch.setattr(
        executable, "partition_into_waves", lambda instructions: [list(instructions)]
    )
    compiled = eg.compile(lambda x: chain(x) * 6.5)
    compiled.plan(eg.ones(16, 16))
    ((variant,),) = compiled.variants.values()
    with pytest.raises(VerificationError):
        check_plan(variant.program)


def test_the_verifier_imports_nothing_of_the_planner() -> None:
    assert not set(vars(memory_plan)) & set(vars(verify_plan)) - {
        "annotations", "np", "Any", "Sequence",
    } - {name for name in vars(verify_plan) if name.startswith("__")}  # fmt: skip
