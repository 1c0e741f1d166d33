"""Object code that we load ourselves: what it computes, and that what is unknown is refused."""

from __future__ import annotations

import ctypes
import math
import platform
import random
import struct
from pathlib import Path
from typing import Any

import llvmlite.binding as llvmlite
import pytest

from evergrad.compiler import emission, llvm, machine_code
from evergrad.compiler.machine_code import Image, load
from evergrad.compiler.object_file import ObjectFile, UnknownCodeError

pytestmark = pytest.mark.skipif(
    not machine_code.can_load(), reason="LLVM loads code on this system"
)

TEXT = """
declare double @sin(double)
declare float @llvm.cos.f32(float)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
@table = internal constant [4 x i64] [i64 3, i64 5, i64 7, i64 11]
@functions = internal constant [2 x ptr] [ptr @sin, ptr @entry_of]
define i64 @entry_of(i64 %n) {
  %p = getelementptr i64, ptr @table, i64 %n
  %v = load i64, ptr %p
  ret i64 %v
}
define double @sine(double %x) {
  %a = call double @sin(double %x)
  %b = fadd double %a, 0.1
  ret double %b
}
define float @cosine(float %x) {
  %a = call float @llvm.cos.f32(float %x)
  ret float %a
}
define void @fill(ptr %p, i64 %n) {
  call void @llvm.memset.p0.i64(ptr %p, i8 7, i64 %n, i1 false)
  ret void
}
define ptr @where() {
  ret ptr @sin
}
define ptr @kept(i64 %n) {
  %p = getelementptr ptr, ptr @functions, i64 %n
  %v = load ptr, ptr %p
  ret ptr %v
}
define void @add(ptr %p) {
  %v = load <4 x float>, ptr %p, align 4
  %w = fadd <4 x float> %v, <float 1.0, float 2.0, float 3.0, float 4.0>
  store <4 x float> %w, ptr %p, align 4
  ret void
}
define i64 @choose(i64 %n) {
  switch i64 %n, label %other [ i64 0, label %a i64 1, label %b i64 2, label %c i64 3, label %d ]
a:
  %r = call i64 @entry_of(i64 3)
  ret i64 %r
b:
  ret i64 200
c:
  %s = call i64 @entry_of(i64 1)
  ret i64 %s
d:
  ret i64 17
other:
  ret i64 -1
}
"""
WORD, REAL, SINGLE, POINTER = ctypes.c_int64, ctypes.c_double, ctypes.c_float, ctypes.c_void_p


@pytest.fixture(scope="module")
def code() -> bytes:
    return emission.object_code(TEXT)


@pytest.fixture(scope="module")
def functions(code: bytes) -> dict[str, int]:
    return load([code])[0]


def call(address: int, result: Any, *arguments: Any) -> Any:
    kinds = [POINTER if isinstance(a, ctypes.Array) else type(a) for a in arguments]
    given = [ctypes.addressof(a) if isinstance(a, ctypes.Array) else a for a in arguments]
    return llvm.function_of(address, *kinds, result=result)(*given)


def address_of(library: str, name: str) -> int | None:
    return ctypes.cast(getattr(ctypes.CDLL(library), name), POINTER).value


def test_constants_lie_where_code_looks_for_them(functions: dict[str, int]) -> None:
    assert [call(functions["entry_of"], WORD, WORD(n)) for n in range(4)] == [3, 5, 7, 11]
    numbers = (SINGLE * 4)(10, 20, 30, 40)
    call(functions["add"], None, numbers)
    assert list(numbers) == [11, 22, 33, 44]


def test_functions_of_the_c_library_are_called(functions: dict[str, int]) -> None:
    assert call(functions["sine"], REAL, REAL(1.5)) == math.sin(1.5) + 0.1
    assert call(functions["cosine"], SINGLE, SINGLE(0)) == 1
    memory = (ctypes.c_char * 300)()
    call(functions["fill"], None, memory, WORD(299))
    assert memory.raw == b"\7" * 299 + b"\0"


def test_tables_of_places_in_code(functions: dict[str, int]) -> None:
    found = [call(functions["choose"], WORD, WORD(n)) for n in (0, 1, 2, 3, 9)]
    assert found == [11, 200, 5, 17, -1]


def test_addresses_are_those_of_the_functions(functions: dict[str, int]) -> None:
    assert call(functions["where"], POINTER) == address_of("libm.so.6", "sin")
    assert call(functions["kept"], POINTER, WORD(0)) == address_of("libm.so.6", "sin")
    assert call(functions["kept"], POINTER, WORD(1)) == functions["entry_of"]


def test_objects_that_share_pages(code: bytes) -> None:
    other = emission.object_code(TEXT.replace("i64 11]", "i64 13]"))
    found = load([code, other, code])
    last = [call(each["entry_of"], WORD, WORD(3)) for each in found]
    assert last == [11, 13, 11]
    pages = {each["entry_of"] // 4096 for each in found}
    assert len(pages) == 1


def test_code_cannot_be_written(functions: dict[str, int]) -> None:
    address = functions["sine"]
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= address < last:
            assert line.split()[1] == "r-xp"
            return
    raise AssertionError("not in memory")


@pytest.mark.parametrize("size", [0, 4, 63, 64, 200, 500])
def test_a_file_that_ends_early_is_refused(code: bytes, size: int) -> None:
    with pytest.raises(UnknownCodeError):
        load([code[:size]])


def test_damage_is_refused_or_harmless(code: bytes) -> None:
    """No flipped byte makes the loader fail in another way, or look outside of the file."""
    choose, refused = random.Random(1), 0
    for _ in range(1500):
        damaged = bytearray(code)
        damaged[choose.randrange(len(code))] ^= 1 << choose.randrange(8)
        try:
            image = Image([bytes(damaged)], platform.machine())
            assert len(image.content_at(1 << 40)) == image.size
        except UnknownCodeError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("first", [0, 5])
def test_words_that_code_writes_to(first: int) -> None:
    text = (
        f"@count = internal global i64 {first}\ndefine i64 @f() {{\n"
        " %v = load volatile i64, ptr @count\n %w = add i64 %v, 1\n"
        " store volatile i64 %w, ptr @count\n ret i64 %w\n}\n"
    )
    address = load([emission.object_code(text)])[0]["f"]
    assert [call(address, WORD) for _ in range(3)] == [first + 1, first + 2, first + 3]


def test_what_is_unknown_is_left_to_llvm() -> None:
    text = (
        "@room = internal global [2097152 x i8] zeroinitializer\ndefine i64 @f(i64 %at) {\n"
        " %p = getelementptr i8, ptr @room, i64 %at\n store volatile i8 5, ptr %p\n"
        " %v = load volatile i8, ptr %p\n %w = zext i8 %v to i64\n ret i64 %w\n}\n"
    )
    with pytest.raises(UnknownCodeError, match="bytes of zeros"):
        load([emission.object_code(text)])
    assert call(llvm.addresses_in(text, ["f"])["f"], WORD, WORD(9)) == 5


def test_a_function_that_nobody_has() -> None:
    text = "declare void @no_such_function()\ndefine void @f() {\n"
    code = emission.object_code(text + " call void @no_such_function()\n ret void\n}\n")
    with pytest.raises(UnknownCodeError, match="no_such_function"):
        load([code])


# -- the other machine, whose code is looked at but not run ----------------------------------------

BASE = 0x7F12_3456_7000


@pytest.fixture(scope="module")
def other_image() -> Image:
    llvmlite.initialize_all_targets()
    llvmlite.initialize_all_asmprinters()
    machine = llvmlite.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(
        opt=2, reloc="pic", codemodel="small"
    )
    return Image([bytes(machine.emit_object(llvmlite.parse_assembly(TEXT)))], "aarch64")


def words_of(image: Image) -> list[int]:
    content = image.content_at(BASE)
    return [word for (word,) in struct.iter_unpack("<I", content[: len(content) // 4 * 4])]


def test_aarch64_pages_and_places_in_them(other_image: Image) -> None:
    """Every ADRP, with the instruction that adds the place in the page, names something of ours: a
    constant, or a slot with the address of a function."""
    (file,) = other_image.objects
    words, found = words_of(other_image), set()
    scales = {277: 0, 286: 3, 299: 4, 312: 3}
    for number, high in enumerate(file.relocations):
        if high.kind not in (275, 311):
            continue
        low = next(
            r for r in file.relocations[number:] if r.symbol == high.symbol and r.kind in scales
        )
        start = other_image.starts[0, high.section]
        word, adding = (words[(start + r.offset) // 4] for r in (high, low))
        pages = (word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3
        pages -= pages >> 20 << 21
        page = ((BASE + start + high.offset) // 4096 + pages) * 4096
        target = page + ((adding >> 10 & 0xFFF) << scales[low.kind]) - BASE
        symbol = file.symbols[high.symbol]
        if high.kind == 311:
            assert target - 8 in other_image.slots.values()
        else:
            assert symbol.section is not None
            assert target == other_image.starts[0, symbol.section] + symbol.value
        found.add(low.kind)
    assert len(found) >= 3


def test_aarch64_calls_jump_by_slots(other_image: Image) -> None:
    (file,) = other_image.objects
    words = words_of(other_image)
    called = [r for r in file.relocations if r.kind in (282, 283)]
    names = set()
    for relocation in called:
        place = other_image.starts[0, relocation.section] + relocation.offset
        distance = words[place // 4] & 0x3FFFFFF
        target = place + 4 * (distance - (distance >> 25 << 26))
        symbol = file.symbols[relocation.symbol]
        if symbol.section is None:
            assert words[target // 4 : target // 4 + 2] == [0x58000050, 0xD61F0200]
            names.add(symbol.name)
    assert names == {"sin", "cosf", "memset"}


def test_code_of_another_machine_is_refused(code: bytes) -> None:
    other = "aarch64" if platform.machine() == "x86_64" else "x86_64"
    with pytest.raises(UnknownCodeError, match="this machine"):
        ObjectFile(code, other)
    with pytest.raises(UnknownCodeError, match="riscv64"):
        ObjectFile(code, "riscv64")


def test_relocations_that_do_not_fit_are_refused() -> None:
    """Code that takes addresses to have 32 bits cannot lie anywhere."""
    if platform.machine() != "x86_64":
        pytest.skip("such code is that of x86-64")
    emission.object_code(TEXT)  # LLVM knows its target then
    machine = llvmlite.Target.from_default_triple().create_target_machine(
        reloc="static", codemodel="small"
    )
    code = bytes(machine.emit_object(llvmlite.parse_assembly(TEXT)))
    assert {10, 11} & {r.kind for r in ObjectFile(code, "x86_64").relocations}
    with pytest.raises(UnknownCodeError, match="32 bits"):
        load([code])
