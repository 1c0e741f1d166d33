"""Turns a traced program into native code with a planned memory.

:func:`compile` is the door. A program is traced (:mod:`.frontend.capture`), simplified
(:mod:`.passes.decompose`), cut into kernels (:mod:`.schedule.fusion`), placed in one arena
(:mod:`.schedule.memory_plan`), written as LLVM IR (:mod:`.codegen.emit_loops`,
:mod:`.codegen.elementwise`), compiled (:mod:`.native.jit`) and run by a team of threads
(:mod:`.runtime.thread_pool`).
"""

from evergrad.lazy import lazy_names as _lazy_names

__all__ = ["Compiled", "compile"]

__getattr__ = _lazy_names(__name__, {"api": ("Compiled", "compile")})
