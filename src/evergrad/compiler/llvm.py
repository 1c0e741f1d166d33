"""LLVM IR as text into machine code in this process, with a cache on disk.

Owns the target machine and the cache of object code. A text is compiled once per machine: its
object code is kept (:mod:`.disk`) under a name made of the text, the CPU and LLVM's version. Who
remembers that name needs no text to load the code again.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import platform
import re
import threading
from collections.abc import Iterable
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from evergrad.compiler import disk

_KIND = b"evergrad object 1\n"
# Metadata in the text of a kernel, which is numbered anew in a module.
_METADATA = re.compile(r"!M(\d+)")
_lock = threading.Lock()
# Code stays for the life of the process: programs hold its addresses.
_engines: list[Any] = []
_addresses: dict[str, int] = {}
# For each kernel the file that holds its code.
_files: dict[str, str] = {}


@cache
def _target() -> tuple[Any, str]:
    """The machine to compile for, and a text that names it."""
    with contextlib.suppress(RuntimeError, AttributeError):
        llvm.initialize()  # needed by older llvmlite only
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for name in ("libm.so.6", "libm.dylib"):
        with contextlib.suppress(RuntimeError):
            llvm.load_library_permanently(name)
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=3
    )
    version = ".".join(map(str, llvm.llvm_version_info))
    return machine, f"{machine.triple} {cpu} {features} {version}"


@cache
def vector_bits() -> int:
    """The widest vectors that loops are given on this machine."""
    features = llvm.get_host_cpu_features()
    return 512 if features.get("avx512f") else 256


@cache
def has_fma() -> bool:
    """Whether this machine multiplies and adds with one instruction and one rounding."""
    is_arm = platform.machine() in ("aarch64", "arm64")
    return is_arm or bool(llvm.get_host_cpu_features().get("fma"))


def addresses(kernels: Iterable[Any]) -> dict[str, int]:
    """The address of each kernel; those not known yet are compiled together, but for those that
    want to be alone. The name of a kernel tells its text: equal names are taken for equal
    kernels."""
    with _lock:
        wanted = {kernel.name: kernel for kernel in kernels}
        missing = [k for name, k in wanted.items() if name not in _addresses]
        together = [k for k in missing if not k.alone]
        for module in ([together] if together else []) + [[k] for k in missing if k.alone]:
            file, code = _object_code(module_text(module))
            _enter(code, file, [kernel.name for kernel in module])
        return {name: _addresses[name] for name in wanted}


def files_of(names: Iterable[str]) -> dict[str, str]:
    """For each of these kernels, which have addresses, the file with its object code."""
    with _lock:
        return {name: _files[name] for name in names}


def load_files(files: dict[str, str]) -> bool:
    """Give kernels addresses without their texts, each from the file it is in; says whether all
    have one now. A file that is gone or damaged leaves its kernels without."""
    with _lock:
        missing: dict[str, list[str]] = {}
        for name, file in files.items():
            if name not in _addresses:
                missing.setdefault(file, []).append(name)
        for file, names in missing.items():
            code = disk.read(disk.folder() / file, _KIND)
            if code is None:
                return False
            _enter(code, file, names)
        return True


def target_name() -> str:
    """The machine that is compiled for, as a text."""
    return _target()[1]


def addresses_in(text: str, names: Iterable[str]) -> dict[str, int]:
    """The addresses of functions in one text."""
    with _lock:
        engine = _load(_object_code(text)[1])
        return {name: engine.get_function_address(name) for name in names}


def module_text(kernels: Iterable[Any]) -> str:
    """Kernels as one module: what they share stands once, their metadata get numbers of their
    own."""
    helpers: dict[str, str] = {}
    texts = []
    first = 0
    for kernel in kernels:
        helpers.update(kernel.helpers)
        texts.append(_renumbered(kernel.text, first))
        first += 1 + max((int(n) for n in _METADATA.findall(kernel.text)), default=-1)
    return "\n".join([*helpers.values(), *texts])


def _renumbered(text: str, first: int) -> str:
    return _METADATA.sub(lambda match: f"!{first + int(match[1])}", text)


def name_of(text: str, kind: str) -> str:
    """A name that tells a function's text (in which it calls itself ``@SELF``)."""
    return f"{kind}_{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def function_of(address: int, *arguments: Any, result: Any = None, brief: bool = False) -> Any:
    """Native code as a Python function that releases the GIL, unless it is so brief that handing
    the GIL over would take longer."""
    kind = ctypes.PYFUNCTYPE if brief else ctypes.CFUNCTYPE
    return kind(result, *arguments)(address)


def _enter(code: bytes, file: str, names: Iterable[str]) -> None:
    """Load the code of kernels, and remember where it came from."""
    engine = _load(code)
    for name in names:
        _addresses[name] = engine.get_function_address(name)
        _files[name] = file


def _load(code: bytes) -> Any:
    machine, _ = _target()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    return engine


def _object_code(text: str) -> tuple[str, bytes]:
    """The name of a file, and what it holds: from the disk, or compiled and kept there."""
    file = f"{hashlib.sha256(f'{target_name()}|{text}'.encode()).hexdigest()}.o"
    path = disk.folder() / file
    code = disk.read(path, _KIND)
    if code is None:
        code = _compile(text)
        disk.write(path, _KIND, code)
    return file, code


def _compile(text: str) -> bytes:
    machine, _ = _target()
    module = _optimized(text)
    return bytes(machine.emit_object(module))


def _optimized(text: str) -> Any:
    machine, _ = _target()
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    options.slp_vectorization = False
    options.loop_unrolling = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def assembly(text: str) -> str:
    """The machine code of a text, for reading."""
    machine, _ = _target()
    return str(machine.emit_assembly(_optimized(text)))
