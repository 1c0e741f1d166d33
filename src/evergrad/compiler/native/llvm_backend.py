"""LLVM: texts into object code.

The only module of the compiler that imports llvmlite, which takes tens of megabytes: it is for
:mod:`.native.compile_worker`, a process of its own that knows nothing else of this package, and for
those who have to do without such a process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding as llvm


@cache
def _machine() -> Any:
    return _new_machine()


def _new_machine() -> Any:
    """The machine to compile for. Code may lie anywhere, but no further than 2 GB apart."""
    with contextlib.suppress(RuntimeError, AttributeError):
        llvm.initialize()  # needed by older llvmlite only
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3,
        reloc="pic", codemodel="small",
    )  # fmt: skip


def description() -> str:
    """The machine and LLVM's version, as a text."""
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    version = ".".join(map(str, llvm.llvm_version_info))
    return f"{_machine().triple} {cpu} {features} {version}"


def has_feature(name: str) -> bool:
    """Whether this processor has what LLVM calls so."""
    return bool(llvm.get_host_cpu_features().get(name))


def object_code(text: str) -> bytes:
    return bytes(_machine().emit_object(_optimized(text)))


def assembly(text: str) -> str:
    """The machine code of a text, for reading."""
    return str(_machine().emit_assembly(_optimized(text)))


def _optimized(text: str) -> Any:
    """A module that is ready for the machine; how much LLVM looks for depends on what its text
    leaves to it, since looking takes most of the time."""
    module = llvm.parse_assembly(text)
    module.verify()
    if "prefer-vector-width" in text:  # loops over elements, which LLVM has to vectorise
        _run_pipeline(module, level=3, is_scalar=True)
    elif "noinline" in text and _KNOWS_PASSES:  # tiles, written register by register
        _run_passes(module)
    else:
        _run_pipeline(module, level=1, is_scalar=False)
    return module


def _run_pipeline(module: Any, level: int, is_scalar: bool) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.loop_unrolling = is_scalar
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(_machine(), options)
    builder.getModulePassManager().run(module, builder)


# What tiles need: no memory for their local values, and loops that are tested at their ends.
_PASSES = (
    "always_inliner", "sroa", "simplify_cfg", "instruction_combine", "loop_simplify",
    "loop_rotate", "instruction_combine", "simplify_cfg",
)  # fmt: skip
_KNOWS_PASSES = all(hasattr(llvm.ModulePassManager, f"add_{name}_pass") for name in _PASSES)


def _run_passes(module: Any) -> None:
    builder = llvm.create_pass_builder(_machine(), llvm.create_pipeline_tuning_options())
    passes = llvm.create_new_module_pass_manager()
    for name in _PASSES:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, builder)


# Code stays for the life of the process: programs hold its addresses.
_engines: list[Any] = []


def load(code: bytes) -> Callable[[str], int]:
    """Object code in memory, by LLVM: a function from names to addresses.

    For systems that :mod:`.native.loader` does not know, and only for code that was made here or
    has its checksum: LLVM ends the process where it cannot load something.
    """
    llvm.check_jit_execution()
    for name in ("libm.so.6", "libm.dylib"):
        with contextlib.suppress(RuntimeError):
            llvm.load_library_permanently(name)
    file = llvm.ObjectFileRef.from_data(code)
    if not file:  # it would be read nevertheless
        file.detach()
        raise RuntimeError("not object code that LLVM knows")
    # LLVM's own choice of memory puts sections wherever there is room, perhaps too far apart;
    # llvmlite's puts them into one block. The machine is the engine's from now on.
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
