"""LLVM IR as text into machine code in this process, with a cache on disk.

Owns the target machine and the cache of object code. A text is compiled once per machine: its
object code is kept under a name made of the text, the CPU and LLVM's version, with a checksum, so
that a damaged file is noticed and made again. Files appear by renaming, so that several processes
may share the cache.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import re
import tempfile
import threading
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from evergrad import config

_MAGIC = b"evergrad object 1\n"
# Metadata in the text of a kernel, which is numbered anew in a module.
_METADATA = re.compile(r"!M(\d+)")
_lock = threading.Lock()
# Code stays for the life of the process: programs hold its addresses.
_engines: list[Any] = []
_addresses: dict[str, int] = {}


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
            engine = _load(_object_code(module_text(module)))
            for kernel in module:
                _addresses[kernel.name] = engine.get_function_address(kernel.name)
        return {name: _addresses[name] for name in wanted}


def addresses_in(text: str, names: Iterable[str]) -> dict[str, int]:
    """The addresses of functions in one text."""
    with _lock:
        engine = _load(_object_code(text))
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


def function_of(address: int, *arguments: Any, result: Any = None) -> Any:
    """Native code as a Python function that releases the GIL."""
    return ctypes.CFUNCTYPE(result, *arguments)(address)


def _load(code: bytes) -> Any:
    machine, _ = _target()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    return engine


def _object_code(text: str) -> bytes:
    """From the disk, or compiled and kept there."""
    _, target = _target()
    path = cache_folder() / f"{hashlib.sha256(f'{target}|{text}'.encode()).hexdigest()}.o"
    code = _read(path)
    if code is None:
        code = _compile(text)
        _write(path, code)
    return code


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


# -- the cache on disk --------------------------------------------------------------------------


def cache_folder() -> Path:
    """Where object code is kept between processes."""
    return Path(config.KERNEL_CACHE)


def _read(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    head = len(_MAGIC) + 32
    if (
        data[: len(_MAGIC)] != _MAGIC
        or hashlib.sha256(data[head:]).digest() != data[len(_MAGIC) : head]
    ):
        with contextlib.suppress(OSError):
            path.unlink()  # damaged: made again
        return None
    return data[head:]


def _write(path: Path, code: bytes) -> None:
    """Keep object code; a cache that cannot be written is done without."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(code).digest() + code)
            os.replace(name, path)
        except OSError:
            os.unlink(name)
            raise
