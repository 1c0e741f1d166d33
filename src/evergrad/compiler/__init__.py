"""Compiles a traced program to native code with statically planned memory.

:func:`compile` is the entry point. A program is traced (:mod:`.frontend.capture`), simplified
(:mod:`.passes.pipeline`), fused into kernels (:mod:`.schedule.fusion`), planned into one arena
(:mod:`.schedule.memory_plan`), lowered to LLVM IR (:mod:`.codegen.emit_loops`,
:mod:`.codegen.elementwise`), compiled (:mod:`.native.jit`) and run by a thread pool
(:mod:`.runtime.thread_pool`).
"""

from evergrad.lazy import lazy_names as _lazy_names

__all__ = ["Compiled", "compile"]

__getattr__ = _lazy_names(
    __name__,
    {
        "api": ("Compiled", "compile"),
        "stand_ins": (
            "allow_in_graph", "assume_constant_result", "cudagraph_mark_step_begin", "disable",
            "is_compiling", "is_dynamo_compiling", "is_exporting", "list_backends",
            "nested_compile_region", "reset", "set_stance", "substitute_in_graph",
        ),
    },
)  # fmt: skip
