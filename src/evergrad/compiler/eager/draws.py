"""Random numbers of eager mode by the kernels of programs, which give the same bits as NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from evergrad.compiler.codegen import normals
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.random_numbers import permuted_ir
from evergrad.compiler.native import jit
from evergrad.core.eager.lanes import address_of
from evergrad.core.types import Array
from evergrad.extension import provides


@cache
def _function(kernel: Callable[[], Kernel]) -> Any:
    """A kernel as a function of its argument block, a chunk and scratch memory."""
    if not jit.can_jit():
        return None
    made = kernel()
    address = jit.addresses([made])[made.name]
    return jit.function_of(address, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)


def _run(function: Any, words: Array, out: Array, *numbers: int) -> Array:
    arguments = np.array([address_of(words), address_of(out), *numbers], np.int64)
    function(address_of(arguments), 0, None)
    return out


def _standard_blocks() -> Kernel:
    return normals.blocks32(True)


@provides("normal_blocks")
def normal_blocks(words: Array, count: int) -> Array | None:
    """Standard float32 normals from words of 32 bits, in blocks of 16; ``None`` where there is no
    machine code."""
    function = _function(_standard_blocks)
    if function is None:
        return None
    blocks = count // normals.BLOCK
    tail = len(words) - normals.BLOCK if count % normals.BLOCK else 0
    return _run(function, words, np.empty(count, np.float32), blocks, blocks, count, tail, 0, 0)


@provides("permuted")
def permuted(words: Array) -> Array | None:
    """The permutation of one number more than there are words of 32 bits."""
    function = _function(permuted_ir)
    if function is None:
        return None
    return _run(function, words, np.empty(len(words) + 1, np.int64), len(words) + 1)
