"""A checksum of memory at the speed of memory, for arrays that code outside may write to.

Memory is read as blocks of 32-bit words, and each position of a block has a hash of its own:
``h = (h ^ h >> 15) * multiplier + word`` with an odd multiplier. A step maps different words to
different hashes, and different hashes too: a single changed word always changes the result. Any
other change does with a probability of all but 2**-32 for each position it touches. Without the
shift the highest bits of words would only be added up, and a change of all signs would be missed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.native import jit
from evergrad.extension import provides

BLOCK_BYTES = 512
_CHAINS = 8
_LANES = 16
_MULTIPLIER = 0x9E3779B1
_SHIFT = 15

_VECTOR = f"<{_LANES} x i32>"


@provides("memory_hash")
@cache
def memory_hash() -> Callable[[int, int, int], None] | None:
    """A function of three words: where to put the hashes (:data:`BLOCK_BYTES` bytes), where the
    memory is, and how many blocks it has. ``None`` where there is no machine code."""
    if not jit.can_jit():
        return None
    kernel = _kernel()
    address = jit.addresses([kernel])[kernel.name]
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return signature(address)


def _kernel() -> Kernel:
    multiplier, shift = (
        f"<{', '.join([f'i32 {n}'] * _LANES)}>" for n in (_MULTIPLIER - (1 << 32), _SHIFT)
    )
    size = BLOCK_BYTES // _CHAINS
    lines = [
        "entry:", "  %any = icmp sgt i64 %count, 0", "  br i1 %any, label %body, label %end",
        "body:", "  %i = phi i64 [ 0, %entry ], [ %next, %body ]",
    ]  # fmt: skip
    for k in range(_CHAINS):
        lines.append(f"  %h{k} = phi {_VECTOR} [ zeroinitializer, %entry ], [ %n{k}, %body ]")
    lines.append(f"  %offset = mul i64 %i, {BLOCK_BYTES}")
    lines.append("  %block = getelementptr i8, ptr %memory, i64 %offset")
    for k in range(_CHAINS):
        lines += [
            f"  %p{k} = getelementptr i8, ptr %block, i64 {k * size}",
            f"  %w{k} = load {_VECTOR}, ptr %p{k}, align 1",
            f"  %s{k} = lshr {_VECTOR} %h{k}, {shift}",
            f"  %x{k} = xor {_VECTOR} %h{k}, %s{k}",
            f"  %m{k} = mul {_VECTOR} %x{k}, {multiplier}",
            f"  %n{k} = add {_VECTOR} %m{k}, %w{k}",
        ]
    lines += [
        "  %next = add nuw nsw i64 %i, 1", "  %more = icmp slt i64 %next, %count",
        "  br i1 %more, label %body, label %end", "end:",
    ]  # fmt: skip
    for k in range(_CHAINS):
        lines += [
            f"  %r{k} = phi {_VECTOR} [ zeroinitializer, %entry ], [ %n{k}, %body ]",
        ]
    for k in range(_CHAINS):
        lines += [
            f"  %o{k} = getelementptr i8, ptr %hashes, i64 {k * size}",
            f"  store {_VECTOR} %r{k}, ptr %o{k}, align 1",
        ]
    text = "\n".join([*lines, "  ret void"])
    ir = (
        "define void @SELF(ptr noalias %hashes, ptr noalias readonly %memory, i64 %count) "
        f'nounwind "prefer-vector-width"="{jit.vector_bits()}" {{\n{text}\n}}\n'
    )
    name = jit.name_of(ir, "memory_hash")
    return Kernel(name, ir.replace("@SELF", f"@{name}"))
