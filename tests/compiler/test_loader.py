"""Object code that we load ourselves: what it computes, and that what is unknown is refused."""

from __future__ import annotations

import ctypes
import math
import platform
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import llvmlite.binding as llvmlite
import pytest

from evergrad.compiler.native import jit, llvm_backend, loader
from evergrad.compiler.native.elf import ObjectFile, ObjectFileError
from evergrad.compiler.native.loader import Image, load

pytestmark = pytest.mark.skipif(not loader.can_load(), reason="LLVM loads code on this system")

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
    return llvm_backend.object_code(TEXT)


@pytest.fixture(scope="module")
def functions(code: bytes) -> dict[str, int]:
    return load([code])[0]


def call(address: int, result: Any, *arguments: Any) -> Any:
    kinds = [POINTER if isinstance(a, ctypes.Array) else type(a) for a in arguments]
    given = [ctypes.addressof(a) if isinstance(a, ctypes.Array) else a for a in arguments]
    return jit.function_of(address, *kinds, result=result)(*given)


def address_of(name: str) -> int | None:
    """The address of a function in this process. An interpreter that is not position independent
    has one of its own for the functions that it calls, which hides that of the library."""
    process, library = ctypes.CDLL(None), ctypes.CDLL("libm.so.6")
    found = getattr(process if hasattr(process, name) else library, name)
    return ctypes.cast(found, POINTER).value


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
    assert call(functions["where"], POINTER) == address_of("sin")
    assert call(functions["kept"], POINTER, WORD(0)) == address_of("sin")
    assert call(functions["kept"], POINTER, WORD(1)) == functions["entry_of"]


def test_objects_that_share_pages(code: bytes) -> None:
    other = llvm_backend.object_code(TEXT.replace("i64 11]", "i64 13]"))
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
    with pytest.raises(ObjectFileError):
        load([code[:size]])


def flip(code: bytearray, choose: random.Random) -> None:
    code[choose.randrange(len(code))] ^= 1 << choose.randrange(8)


def overwrite(code: bytearray, choose: random.Random) -> None:
    """A word of the header, or of the table of sections, is another one."""
    (table,) = struct.unpack_from("<Q", code, 40)
    words = range(0, 64, 8), range(table, len(code), 8)
    word = choose.choice([0, 8, 1 << 31, 1 << 32, 1 << 62, (1 << 64) - 1])
    struct.pack_into("<Q", code, choose.choice(choose.choice(words)), word)


@pytest.mark.parametrize("damage", [flip, overwrite])
def test_damage_is_refused_or_harmless(code: bytes, damage: Any) -> None:
    """None makes the loader fail in another way, or look outside of the file."""
    choose, refused = random.Random(1), 0
    for _ in range(1500):
        damaged = bytearray(code)
        damage(damaged, choose)
        try:
            image = Image([bytes(damaged)], platform.machine())
            assert len(image.content_at(1 << 40)) == image.stored
        except ObjectFileError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("first", [0, 5])
def test_words_that_code_writes_to(first: int) -> None:
    text = (
        f"@count = internal global i64 {first}\ndefine i64 @f() {{\n"
        " %v = load volatile i64, ptr @count\n %w = add i64 %v, 1\n"
        " store volatile i64 %w, ptr @count\n ret i64 %w\n}\n"
    )
    address = load([llvm_backend.object_code(text)])[0]["f"]
    assert [call(address, WORD) for _ in range(3)] == [first + 1, first + 2, first + 3]


def room(size: int) -> str:
    """A function that adds five to a byte among so many zeros, and gives it."""
    return (
        f"@room = internal global [{size} x i8] zeroinitializer\ndefine i64 @f(i64 %at) {{\n"
        " %p = getelementptr i8, ptr @room, i64 %at\n %v = load volatile i8, ptr %p\n"
        " %w = add i8 %v, 5\n store volatile i8 %w, ptr %p\n"
        " %x = zext i8 %w to i64\n ret i64 %x\n}\n"
    )


@pytest.mark.parametrize("size", [1, 4096, 2 << 20, 1 << 30])
def test_zeros_of_any_size(size: int) -> None:
    first, other = load([llvm_backend.object_code(room(size)), llvm_backend.object_code(room(3))])
    assert [call(first["f"], WORD, WORD(at)) for at in (0, size - 1)] == [5, 5 if size > 1 else 10]
    assert [call(other["f"], WORD, WORD(at)) for at in (0, 2, 2)] == [5, 5, 10]


def test_zeros_take_no_memory_before_they_are_written() -> None:
    image = Image([llvm_backend.object_code(room(1 << 30))], platform.machine())
    assert image.size > 1 << 30
    assert len(image.content_at(BASE)) == image.stored < 1 << 14


def test_zeros_that_code_cannot_reach() -> None:
    with pytest.raises(ObjectFileError, match="out of range for relocations"):
        load([llvm_backend.object_code(room(1 << 31))])


def test_what_is_unknown_is_not_left_to_llvm() -> None:
    """LLVM would end the process for it."""
    text = "declare void @no_such_function()\ndefine void @f() {\n"
    text += " call void @no_such_function()\n ret void\n}\n"
    with pytest.raises(ObjectFileError, match="no_such_function"):
        load([llvm_backend.object_code(text)])
    with pytest.raises(RuntimeError, match=r"cannot load an object file.*no_such_function"):
        jit.addresses_in(text, ["f"])


def test_relocations_of_instructions_with_longer_prefixes(code: bytes) -> None:
    """They differ from others in nothing but what linkers may rewrite."""
    if platform.machine() != "x86_64":
        pytest.skip("such code is that of x86-64")
    usual, longer = (struct.pack("<I", kind) for kind in (42, 43))
    (file,) = Image([code], "x86_64").objects
    places = [r for r in file.relocations if r.kind == 42]
    assert places
    for _, offset, kind, symbol, addend in places:
        before = struct.pack("<QIIq", offset, kind, symbol, addend)
        assert code.count(before) == 1
        code = code.replace(before, before.replace(usual, longer, 1))
    (functions,) = load([code])
    assert call(functions["where"], POINTER) == address_of("sin")


# -- processes in which memory is scarce or guarded ------------------------------------------------

PIECES = """
import ctypes, mmap
from evergrad.compiler.native import jit, llvm_backend, loader

library = ctypes.CDLL(None)
library.mmap.restype = ctypes.c_void_p
library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

def reserve(size):
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # none of it is ever written
    return library.mmap(None, size, 0, flags, -1, 0)

code = llvm_backend.object_code(TEXT)
for load in llvm_backend.load, lambda code: loader.load([code])[0].__getitem__:
    load(code)  # whatever else comes with the first
    high = reserve(3 << 30)
    for _ in range(4096):
        if reserve(1 << 20) < high:  # all larger holes above are filled
            break
    library.munmap(high + (3 << 30) - (1 << 20), 256 << 10)  # one is left that has room for code
    function = jit.function_of(load(code)("f"), ctypes.c_int64, result=ctypes.c_int64)
    print(function(9), function(9))
"""


def in_a_process(program: str) -> list[str]:
    ended = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_memory_with_small_holes_only() -> None:
    """The parts of an object lie together, though code alone would find room gigabytes away from
    its zeros: LLVM ends the process where they do not."""
    found = in_a_process(f"TEXT = {room(2 << 20)!r}\n{PIECES}")
    assert found == ["5 10"] * 2


FORBIDDEN = """
import ctypes
import evergrad as eg
from evergrad.cli.diagnosis import _compiled_program

if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE: no page becomes executable any more
    raise SystemExit("unknown here")
x = eg.linspace(-3, 3, 1 << 16).requires_grad_()
y = eg.nn.functional.gelu(x).sum()
y.backward()
optimizer = eg.optim.Adam([x])
optimizer.step()
with eg.core.eager.fusion.eager_kernels(False):
    z = x.detach().requires_grad_()
    eg.nn.functional.gelu(z).sum().backward()
x.grad = None
eg.nn.functional.gelu(x).sum().backward()
print(eg.equal(x.grad, z.grad))
try:
    eg.compile(lambda x: x.tanh().sum())(x)
except RuntimeError as error:
    print(error)
print(*[(found.state, found.fix) for found in _compiled_program()])
"""


def test_a_system_without_executable_pages() -> None:
    """Eager mode runs without kernels; compile raises."""
    if ctypes.CDLL(None).prctl(66, 0, 0, 0, 0) < 0:
        pytest.skip("this kernel does not know of it")
    is_equal, error, advice = in_a_process(FORBIDDEN)
    assert is_equal == "True"
    assert "does not let a process make pages executable" in error
    assert "broken" in advice
    assert "MemoryDenyWriteExecute" in advice


def test_llvm_refuses_what_is_no_object() -> None:
    """And what it compiles with is not lost then."""
    for wrong in (b"", b"damaged", b"\x7fELF"):
        with pytest.raises(RuntimeError, match="not an object file"):
            llvm_backend.load(wrong)
        assert llvm_backend.object_code(room(5))
    with pytest.raises(KeyError, match="g"):
        llvm_backend.load(llvm_backend.object_code(room(5)))("g")


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


def test_aarch64_pages_and_offsets_in_them(other_image: Image) -> None:
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
            assert target - 8 in other_image.stubs.values()
        else:
            assert symbol.section is not None
            assert target == other_image.starts[0, symbol.section] + symbol.value
        found.add(low.kind)
    assert len(found) >= 3


def test_aarch64_calls_jump_by_plt_stubs(other_image: Image) -> None:
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
    with pytest.raises(ObjectFileError, match="this machine"):
        ObjectFile(code, other)
    with pytest.raises(ObjectFileError, match="riscv64"):
        ObjectFile(code, "riscv64")


def test_relocations_that_do_not_fit_are_refused() -> None:
    """Code with absolute 32-bit addresses is not position-independent."""
    if platform.machine() != "x86_64":
        pytest.skip("such code is that of x86-64")
    llvm_backend.object_code(TEXT)  # LLVM knows its target then
    machine = llvmlite.Target.from_default_triple().create_target_machine(
        reloc="static", codemodel="small"
    )
    code = bytes(machine.emit_object(llvmlite.parse_assembly(TEXT)))
    assert {10, 11} & {r.kind for r in ObjectFile(code, "x86_64").relocations}
    with pytest.raises(ObjectFileError, match="32 bits"):
        load([code])
