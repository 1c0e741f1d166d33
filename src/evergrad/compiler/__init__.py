"""Compiles a traced program to native code with statically planned memory.

:func:`compile` is the entry point. A program is traced (:mod:`.frontend.capture`), simplified
(:mod:`.passes.pipeline`), fused into kernels (:mod:`.schedule.fusion`), planned into one arena
(:mod:`.schedule.memory_plan`), lowered to LLVM IR (:mod:`.codegen.emit_loops`,
:mod:`.codegen.elementwise`), compiled (:mod:`.native.jit`) and run by a thread pool
(:mod:`.runtime.thread_pool`).
"""

from evergrad.lazy import lazy_names as _lazy_names

__all__ = ["Compiled", "compile"]

__getattr__ = _lazy_names(__name__, {"api": ("Compiled", "compile")})
