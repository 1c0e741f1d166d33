"""JIT: compiles LLVM IR to machine code in this process, with a disk cache.

An IR module is compiled once per machine: its object file is kept (:mod:`.native.disk_cache`) under
a hash of the IR, the target and LLVM's version, so code can be loaded by that name without its IR.
LLVM runs in other processes (:mod:`.native.compile_pool`); where these are not available, this one
compiles by :mod:`.native.llvm_backend`. Object files are loaded by :mod:`.native.loader`, which
raises where LLVM would abort the process; on systems that it does not support LLVM loads.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from evergrad import config
from evergrad.compiler.native import disk_cache, loader
from evergrad.compiler.native.elf import ObjectFileError
from evergrad.compiler.native.target import (
    has_fma,
    llvm,
    llvmlite_file,
    require_llvm,
    target_name,
    vector_bits,
)
from evergrad.core import fork

if TYPE_CHECKING:
    from types import ModuleType

    from evergrad.compiler.codegen.kernel import Kernel

if TYPE_CHECKING:  # start-up: only compilation needs it
    from concurrent.futures import Future

__all__ = ["has_fma", "require_llvm", "target_name", "vector_bits"]

_KIND = b"evergrad object 3\n"
# Metadata in the IR of a kernel, renumbered in a module.
_METADATA = re.compile(r"!M(\d+)")
_lock = threading.Lock()
_addresses: dict[str, int] = {}
# Object file by kernel.
_files: dict[str, str] = {}
# Kernels whose compilation was requested, and in-flight compilations by file name.
_requested: set[str] = set()
_in_flight: dict[str, Future[bytes | None]] = {}


def _compile_pool() -> ModuleType:
    from evergrad.compiler.native import compile_pool  # start-up: only for code not on disk yet

    return compile_pool


def uses_compile_pool() -> bool:
    """Whether worker processes compile for this one."""
    if config.COMPILE_IN_PROCESS or not loader.can_load():
        return False
    pool = _compile_pool()
    return pool.command() is not None and not pool.COMPILE_POOL.has_failed


@cache
def can_jit() -> bool:
    """Whether there is a compiler, and the system lets a process make executable pages."""
    if llvmlite_file() is None:
        return False
    if loader.can_load():
        try:
            loader.load([])
        except ObjectFileError:
            return False
    return True


def check_compile_pool() -> bool:
    """Whether a worker process compiles (an empty module)."""
    return _compile_pool().COMPILE_POOL.compile("").result() is not None


def compile_async(kernel: Kernel) -> None:
    """Start compiling a kernel, and those it calls, in the background if they are not cached."""
    with _lock:
        for one in (kernel, *kernel.calls.values()):
            if one.name in _addresses or one.name in _requested or not uses_compile_pool():
                continue
            _requested.add(one.name)
            _compile_async(module_ir([one]))


def compile_ir_async(ir: str) -> None:
    """Start compiling an IR module in the background if it is not cached."""
    with _lock:
        _compile_async(ir)


def _compile_async(ir: str) -> None:
    file = _file_name(ir)
    if not disk_cache.exists(disk_cache.path_of(file)):
        _request(file, ir)


def addresses(kernels: Iterable[Kernel]) -> dict[str, int]:
    """The address of each kernel; those not loaded yet are compiled, each as a module of its own so
    that programs share them. A kernel's name is a hash of its IR: equal names are equal kernels."""
    with _lock:
        wanted = {kernel.name: kernel for kernel in kernels}
        missing = [kernel for name, kernel in wanted.items() if name not in _addresses]
        found = _object_codes([module_ir([kernel]) for kernel in missing])
        _register([(file, code, [k.name]) for k, (file, code) in zip(missing, found, strict=True)])
        return {name: _addresses[name] for name in wanted}


def files_of(names: Iterable[str]) -> dict[str, str]:
    """The object files of these kernels, which have addresses."""
    with _lock:
        return {name: _files[name] for name in names}


def load_files(files: dict[str, str]) -> bool:
    """Load kernels from their object files, without their IR; returns whether all are loaded. A
    missing or damaged file leaves all kernels as they are."""
    with _lock:
        missing: dict[str, list[str]] = {}
        for name, file in files.items():
            if name not in _addresses:
                missing.setdefault(file, []).append(name)
        found = []
        for file, names in missing.items():
            code = disk_cache.read(disk_cache.path_of(file), _KIND)
            if code is None:
                return False
            found.append((file, code, names))
        _register(found)
        return True


def addresses_in(ir: str, names: Iterable[str]) -> dict[str, int]:
    """The addresses of functions in one IR module."""
    with _lock:
        ((_, code),) = _object_codes([ir])
        (find,) = _load([code])
        return {name: find(name) for name in names}


def module_ir(kernels: Iterable[Kernel]) -> str:
    """Kernels as one module: shared helpers are deduplicated and metadata renumbered."""
    helpers: dict[str, str] = {}
    modules = []
    first = 0
    for kernel in kernels:
        helpers.update(kernel.helpers)
        modules.append(_renumbered(kernel.ir, first))
        first += 1 + max((int(n) for n in _METADATA.findall(kernel.ir)), default=-1)
    return "\n".join([*helpers.values(), *modules])


def _renumbered(ir: str, first: int) -> str:
    return _METADATA.sub(lambda match: f"!{first + int(match[1])}", ir)


def name_of(ir: str, kind: str) -> str:
    """A symbol name that is a hash of the function's IR (in which it calls itself ``@SELF``)."""
    return f"{kind}_{hashlib.sha256(ir.encode()).hexdigest()[:24]}"


def function_of(address: int, *arguments: Any, result: Any = None) -> Any:
    """Native code as a Python function that releases the GIL."""
    return ctypes.CFUNCTYPE(result, *arguments)(address)


def assembly(ir: str) -> str:
    """The assembly of an IR module."""
    return llvm().assembly(ir)  # type: ignore[no-any-return]


def _register(found: Sequence[tuple[str, bytes, Sequence[str]]]) -> None:
    """Load object files, and register the addresses and files of their kernels."""
    if not found:
        return
    for find, (file, _, names) in zip(_load([code for _, code, _ in found]), found, strict=True):
        for name in names:
            _addresses[name] = find(name)
            _files[name] = file


def _load(codes: Sequence[bytes]) -> list[Callable[[str], int]]:
    """Load object files; returns a symbol lookup for each."""
    if loader.can_load():
        return [found.__getitem__ for found in loader.load(codes)]
    return [llvm().load(code) for code in codes]


def _file_name(ir: str) -> str:
    """The name of the file with the object code of an IR module."""
    return f"{hashlib.sha256(f'{target_name()}|{ir}'.encode()).hexdigest()}.o"


def _object_codes(modules: Sequence[str]) -> list[tuple[str, bytes]]:
    """File names and object files of IR modules: from the disk cache, or compiled and cached."""
    files = [_file_name(ir) for ir in modules]
    codes = [disk_cache.read(disk_cache.path_of(file), _KIND) for file in files]
    for file, ir, code in zip(files, modules, codes, strict=True):
        if code is None:
            _request(file, ir)
        else:
            _in_flight.pop(file, None)  # compiled meanwhile
    made = []
    for file, ir, code in zip(files, modules, codes, strict=True):
        made.append((file, _compiled(file, ir) if code is None else code))
    return made


def _request(file: str, ir: str) -> None:
    """Send an IR module to the compile pool, if there is one."""
    if file not in _in_flight and uses_compile_pool():
        write = partial(disk_cache.write, disk_cache.path_of(file), _KIND)
        _in_flight[file] = _compile_pool().COMPILE_POOL.compile(ir, write)


def _compiled(file: str, ir: str) -> bytes:
    """The object file of an IR module, from its in-flight compilation if there is one."""
    in_flight, path = _in_flight.pop(file, None), disk_cache.path_of(file)
    code = None if in_flight is None else in_flight.result()
    if code is None:
        code = llvm().object_code(ir)
    if not disk_cache.exists(path):  # not written yet, or evicted again
        disk_cache.write(path, _KIND, code)
    return code


def _reset_in_child() -> None:
    """Drop in-flight compilations in a forked child: the pool's threads are gone."""
    global _lock
    _lock = threading.Lock()
    _requested.clear()
    _in_flight.clear()


fork.register("compiled objects", after_in_child=_reset_in_child)
