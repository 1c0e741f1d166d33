"""Eager evaluation with subnormal results flushed to zero, as compiled programs do."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from evergrad.compiler.native import jit


@contextmanager
def flushing() -> Iterator[None]:
    """Flush subnormal results of this thread to zero, as a compiled program does (on x86)."""
    if platform.machine() not in ("x86_64", "AMD64"):
        yield
        return
    read, write = _mode_functions()
    mode = ctypes.c_uint32()
    read(ctypes.byref(mode))
    write(ctypes.byref(ctypes.c_uint32(mode.value | 1 << 15)))
    try:
        yield
    finally:
        write(ctypes.byref(mode))


@cache
def _mode_functions() -> list[Any]:
    """Functions that read and write the control register of floating point (x86)."""
    text = "".join(
        f"declare void @llvm.x86.sse.{word}mxcsr(ptr)\ndefine void @{word}_mode(ptr %to) {{\n"
        f"  call void @llvm.x86.sse.{word}mxcsr(ptr %to)\n  ret void\n}}\n"
        for word in ("st", "ld")
    )
    found = jit.addresses_in(text, ("st_mode", "ld_mode"))
    return [ctypes.CFUNCTYPE(None, ctypes.c_void_p)(found[n]) for n in ("st_mode", "ld_mode")]
