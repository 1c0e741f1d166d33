"""Builder of functions with float32 vectors: the IR builder with stack variables.

For the kernels of attention and of random numbers, whose loops are nested too deeply to carry
values from one to the next, and for the functions that they call.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import IRBuilder, vector_for
from evergrad.compiler.native.jit import vector_bits
from evergrad.core import dtypes


def lanes() -> int:
    """The float32 lanes of a vector."""
    return vector_bits() // 32


def float_constant(value: float) -> str:
    """A float32 constant in IR."""
    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    (bits,) = struct.unpack("<Q", struct.pack("<d", rounded))
    return f"0x{bits:016X}"


class Helper(NamedTuple):
    """A function that kernels call: its name, its IR and the functions it calls."""

    name: str
    ir: str
    helpers: dict[str, str]


class FunctionBuilder(IRBuilder):
    """IR of one function of float32 vectors, with stack variables, which LLVM promotes to
    registers."""

    def __init__(self) -> None:
        super().__init__(vector_for(dtypes.float32))
        self.slots: list[str] = []
        self.mask_type: str = self.vector.of("i1")

    def load_arguments(self, pointers: tuple[str, ...], numbers: tuple[str, ...]) -> None:
        """Load the arguments of a kernel into values of these names."""
        for index, name in enumerate((*pointers, *numbers)):
            kind = "ptr" if index < len(pointers) else "i64"
            address = self.op(f"getelementptr i64, ptr %args, i64 {index}")
            self.do(f"%{name} = load {kind}, ptr {address}")

    def constant(self, value: float) -> str:
        """A number in every lane."""
        return self.splat_constant(float_constant(value), "float")

    def spaced(self, base: str, stride: str, count: int) -> list[str]:
        """Addresses a stride in bytes apart."""
        found = [base]
        while len(found) < count:
            found.append(self.at_byte(found[-1], stride))
        return found

    def prefetch_line(self, address: str) -> None:
        """Prefetch a cache line."""
        name = "llvm.prefetch.p0"
        self.helpers[name] = f"declare void @{name}(ptr, i32, i32, i32)"
        self.do(f"call void @{name}(ptr {address}, i32 0, i32 2, i32 1)")

    # -- stack variables ------------------------------------------------------------------------

    def slot(self, type: str, value: str) -> str:
        """A stack variable, set here to a value."""
        name = f"%{self.fresh('slot')}"
        self.slots.append(f"  {name} = alloca {type}")
        self.do(f"store {type} {value}, ptr {name}")
        return name

    def keep(self, slot: str, value: str) -> None:
        self.do(f"store {self.vector.type} {value}, ptr {slot}")

    def kept(self, slot: str) -> str:
        return self.op(f"load {self.vector.type}, ptr {slot}")

    # -- functions ------------------------------------------------------------------------------

    def call_helper(self, helper: Helper, *args: str) -> None:
        """Call a function with typed arguments."""
        self.helpers.update(helper.helpers)
        self.helpers[helper.name] = helper.ir
        self.do(f"call void @{helper.name}({', '.join(args)})")

    def function(self, head: str) -> str:
        """The finished function."""
        body = "\n".join(["entry:", *self.slots, *self.lines, "  ret void", "}", ""])
        return f"{head} {{\n{body}"


def helper(b: FunctionBuilder, word: str, parameters: str) -> Helper:
    """A finished function that kernels call. Its loops are not unrolled: that is no faster, and
    takes long to compile."""
    name = f"{word}_{lanes()}"
    head = f"define internal void @{name}({parameters}) noinline nounwind optsize"
    return Helper(name, b.function(head), b.helpers)
