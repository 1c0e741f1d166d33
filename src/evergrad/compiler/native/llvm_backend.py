"""LLVM backend: IR to object code.

The only module of the compiler that imports llvmlite, which takes tens of megabytes: it is for
:mod:`.native.compile_worker`, a process that imports nothing else of this package, and for systems
where no such process can be started.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding as llvm

# The level of x86-64 that is compiled for; empty for this processor.
_level = ""


def use_level(name: str) -> None:
    """Compile for a level of x86-64 (``x86-64-v3``), or with '' for this processor. The first call
    decides for the process."""
    global _level
    _level = name


@cache
def _machine() -> Any:
    return _new_machine()


def _new_machine() -> object:
    """The target machine. Code is position-independent, within an image of at most 2 GB."""
    with contextlib.suppress(RuntimeError, AttributeError):
        llvm.initialize()  # needed by older llvmlite only
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # of inline assembly
    cpu, features = _cpu()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=3, reloc="pic", codemodel="small"
    )


def _cpu() -> tuple[str, str]:
    """The name and the features of the processor that is compiled for."""
    if _level:
        return _level, ""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def description() -> str:
    """The target and LLVM's version, as a string."""
    cpu, features = _cpu()
    version = ".".join(map(str, llvm.llvm_version_info))
    return f"{_machine().triple} {cpu} {features} {version}"


def has_feature(name: str) -> bool:
    """Whether this CPU has a feature, by LLVM's name."""
    return bool(llvm.get_host_cpu_features().get(name))


def object_code(ir: str) -> bytes:
    return bytes(_machine().emit_object(_optimized(ir)))


def assembly(ir: str) -> str:
    """The assembly of an IR module."""
    return str(_machine().emit_assembly(_optimized(ir)))


def _optimized(ir: str) -> object:
    """An IR module optimized for the target; the pipeline depends on what the IR leaves to LLVM,
    since optimization takes most of the time."""
    module = llvm.parse_assembly(ir)
    module.verify()
    if "prefer-vector-width" in ir:  # loops over elements, which LLVM has to vectorise
        _run_pipeline(module, level=3, is_scalar=True)
    elif "noinline" in ir and _HAS_PASSES:  # microkernels, written register by register
        _run_passes(module)
    else:
        _run_pipeline(module, level=1, is_scalar=False)
    return module


def _run_pipeline(module: object, level: int, is_scalar: bool) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.loop_unrolling = is_scalar
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(_machine(), options)
    builder.getModulePassManager().run(module, builder)


# What microkernels need: locals in registers, and rotated loops.
_PASSES = (
    "always_inliner", "sroa", "simplify_cfg", "instruction_combine", "loop_simplify",
    "loop_rotate", "instruction_combine", "simplify_cfg",
)  # fmt: skip
_HAS_PASSES = all(hasattr(llvm.ModulePassManager, f"add_{name}_pass") for name in _PASSES)


def _run_passes(module: object) -> None:
    builder = llvm.create_pass_builder(_machine(), llvm.create_pipeline_tuning_options())
    passes = llvm.create_new_module_pass_manager()
    for name in _PASSES:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, builder)


# Code stays loaded for the life of the process: programs hold its addresses.
_engines: list[object] = []


def load(code: bytes) -> Callable[[str], int]:
    """Load an object file with LLVM: returns a function from symbols to addresses.

    For systems that :mod:`.native.loader` does not support, and only for code that was compiled
    here or has its checksum: LLVM aborts the process where it cannot load something.
    """
    llvm.check_jit_execution()
    for name in ("libm.so.6", "libm.dylib"):
        with contextlib.suppress(RuntimeError):
            llvm.load_library_permanently(name)
    file = llvm.ObjectFileRef.from_data(code)
    if not file:  # LLVM would dereference it nevertheless
        file.detach()
        raise RuntimeError("not an object file that LLVM can load")
    # LLVM's default memory manager may allocate sections too far apart; llvmlite's uses one block.
    # The engine owns the target machine from now on.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _new_machine(), use_lmm=True)
    engine.add_object_file(file)
    engine.finalize_object()
    _engines.append(engine)

    def find(name: str) -> int:
        address = int(engine.get_function_address(name))
        if not address:
            raise KeyError(name)
        return address

    return find
