"""Compiles a traced program to native code with statically planned memory.

:func:`compile` is the entry point. A program is traced (:mod:`.frontend.capture`), simplified
(:mod:`.passes.pipeline`), fused into kernels (:mod:`.schedule.fusion`), planned into one arena
(:mod:`.schedule.memory_plan`), lowered to LLVM IR (:mod:`.codegen.emit_loops`,
:mod:`.codegen.elementwise`), compiled (:mod:`.native.jit`) and run by a thread pool
(:mod:`.runtime.thread_pool`).
"""

from typing import TYPE_CHECKING

from evergrad.lazy import lazy_names as _lazy_names

__all__ = ["Compiled", "compile"]

if TYPE_CHECKING:
    from evergrad.compiler.api import Compiled as Compiled
    from evergrad.compiler.api import compile as compile
    from evergrad.compiler.stand_ins import allow_in_graph as allow_in_graph
    from evergrad.compiler.stand_ins import assume_constant_result as assume_constant_result
    from evergrad.compiler.stand_ins import cudagraph_mark_step_begin as cudagraph_mark_step_begin
    from evergrad.compiler.stand_ins import disable as disable
    from evergrad.compiler.stand_ins import is_compiling as is_compiling
    from evergrad.compiler.stand_ins import is_dynamo_compiling as is_dynamo_compiling
    from evergrad.compiler.stand_ins import is_exporting as is_exporting
    from evergrad.compiler.stand_ins import list_backends as list_backends
    from evergrad.compiler.stand_ins import nested_compile_region as nested_compile_region
    from evergrad.compiler.stand_ins import reset as reset
    from evergrad.compiler.stand_ins import set_stance as set_stance
    from evergrad.compiler.stand_ins import substitute_in_graph as substitute_in_graph
else:
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
