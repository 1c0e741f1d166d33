"""Kernels that call others: the argument blocks of these, in LLVM IR.

A fused kernel gets the arguments of several. It assembles a block of arguments for each on its
stack, and calls it by its address, which is an argument too (:attr:`.kernel.Kernel.calls`).
"""

from __future__ import annotations

from evergrad.compiler.codegen.code import Code

_WORD = 8
_MEMCPY = "llvm.memcpy.p0.p0.i64"
ARGUMENTS = "%args"


def new_block(code: Code, words: int) -> str:
    """A block of arguments."""
    return code.op(f"alloca i64, i64 {words}")


def word_of(code: Code, block: str, index: int) -> str:
    """The address of a word of a block."""
    return code.op(f"getelementptr i64, ptr {block}, i64 {index}")


def argument(code: Code, type: str, index: int) -> str:
    """An argument of the kernel itself."""
    return code.op(f"load {type}, ptr {word_of(code, ARGUMENTS, index)}")


def copy_arguments(code: Code, block: str, to: int, source: int, count: int = 1) -> None:
    """Copy arguments of the kernel itself, from ``source`` on, to words of a block."""
    code.helpers[_MEMCPY] = f"declare void @{_MEMCPY}(ptr, ptr, i64, i1)"
    places = f"ptr {word_of(code, block, to)}, ptr {word_of(code, ARGUMENTS, source)}"
    code.do(f"call void @{_MEMCPY}({places}, i64 {count * _WORD}, i1 false)")


def put(code: Code, block: str, index: int, value: str, type: str = "i64") -> None:
    """Store a value to a word of a block."""
    code.do(f"store {type} {value}, ptr {word_of(code, block, index)}")


def call_kernel(code: Code, address: int, block: str) -> None:
    """Call the kernel whose address is this argument, for the same chunk."""
    function = argument(code, "ptr", address)
    code.do(f"call void {function}(ptr {block}, i64 %chunk, ptr %scratch)")
