"""LLVM IR as ir into machine code in this process, with a cache on disk.

A ir is compiled once per machine: its object code is kept (:mod:`.native.disk_cache`) under a
name made of the ir, the CPU and LLVM's version. Who remembers that name needs no ir to load the
code again. LLVM itself is in other processes (:mod:`.native.compile_pool`); where these cannot be,
this one compiles by :mod:`.native.llvm_backend`. Object code is put into memory by
:mod:`.native.loader`, which refuses with an exception what LLVM would end the process for; LLVM
loads on systems that it does not know.
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
from evergrad.compiler.native.target import has_fma, llvm, target_name, vector_bits
from evergrad.core import fork

if TYPE_CHECKING:  # only those who compile need it
    from concurrent.futures import Future

__all__ = ["has_fma", "target_name", "vector_bits"]

_KIND = b"evergrad object 2\n"
# Metadata in the ir of a kernel, which is numbered anew in a module.
_METADATA = re.compile(r"!M(\d+)")
_lock = threading.Lock()
_addresses: dict[str, int] = {}
# For each kernel the file that holds its code.
_files: dict[str, str] = {}
# Kernels of which the code was asked for, and by the names of files what workers will give.
_requested: set[str] = set()
_in_flight: dict[str, Future[bytes | None]] = {}


def _compile_pool() -> Any:
    from evergrad.compiler.native import compile_pool  # start-up: only for code not on disk yet

    return compile_pool


def uses_compile_pool() -> bool:
    """Whether other processes compile for this one."""
    if config.COMPILE_IN_PROCESS or not loader.can_load():
        return False
    pool = _compile_pool()
    return pool.command() is not None and not pool.COMPILE_POOL.has_failed


@cache
def can_jit() -> bool:
    """Whether a process may make machine code here: some systems forbid it."""
    if loader.can_load():
        try:
            loader.load([])
        except ObjectFileError:
            return False
    return True


def check_compile_pool() -> bool:
    """Whether another process really compiles."""
    return _compile_pool().COMPILE_POOL.compile("").result() is not None


def compile_async(kernel: Any) -> None:
    """Let a kernel, and those it calls, be compiled meanwhile, if they have to be."""
    with _lock:
        for one in (kernel, *kernel.calls.values()):
            if one.name in _addresses or one.name in _requested or not uses_compile_pool():
                continue
            _requested.add(one.name)
            _compile_async(module_ir([one]))


def compile_ir_async(ir: str) -> None:
    """Let a ir that will be wanted be compiled meanwhile, if it has to be."""
    with _lock:
        _compile_async(ir)


def _compile_async(ir: str) -> None:
    file = _file_name(ir)
    if not (disk_cache.folder() / file).exists():
        _request(file, ir)


def addresses(kernels: Iterable[Any]) -> dict[str, int]:
    """The address of each kernel; those not known yet are compiled, each by itself so that programs
    share them. The name of a kernel tells its ir: equal names are taken for equal kernels."""
    with _lock:
        wanted = {kernel.name: kernel for kernel in kernels}
        missing = [kernel for name, kernel in wanted.items() if name not in _addresses]
        found = _object_codes([module_ir([kernel]) for kernel in missing])
        _register([(file, code, [k.name]) for k, (file, code) in zip(missing, found, strict=True)])
        return {name: _addresses[name] for name in wanted}


def files_of(names: Iterable[str]) -> dict[str, str]:
    """For each of these kernels, which have addresses, the file with its object code."""
    with _lock:
        return {name: _files[name] for name in names}


def load_files(files: dict[str, str]) -> bool:
    """Give kernels addresses without their irs, each from the file it is in; says whether all
    have one now. A file that is gone or damaged leaves all kernels as they are."""
    with _lock:
        missing: dict[str, list[str]] = {}
        for name, file in files.items():
            if name not in _addresses:
                missing.setdefault(file, []).append(name)
        found = []
        for file, names in missing.items():
            code = disk_cache.read(disk_cache.folder() / file, _KIND)
            if code is None:
                return False
            found.append((file, code, names))
        _register(found)
        return True


def addresses_in(ir: str, names: Iterable[str]) -> dict[str, int]:
    """The addresses of functions in one ir."""
    with _lock:
        ((_, code),) = _object_codes([ir])
        (find,) = _load([code])
        return {name: find(name) for name in names}


def module_ir(kernels: Iterable[Any]) -> str:
    """Kernels as one module: what they share stands once, their metadata get numbers of their
    own."""
    helpers: dict[str, str] = {}
    irs = []
    first = 0
    for kernel in kernels:
        helpers.update(kernel.helpers)
        irs.append(_renumbered(kernel.ir, first))
        first += 1 + max((int(n) for n in _METADATA.findall(kernel.ir)), default=-1)
    return "\n".join([*helpers.values(), *irs])


def _renumbered(ir: str, first: int) -> str:
    return _METADATA.sub(lambda match: f"!{first + int(match[1])}", ir)


def name_of(ir: str, kind: str) -> str:
    """A name that tells a function's ir (in which it calls itself ``@SELF``)."""
    return f"{kind}_{hashlib.sha256(ir.encode()).hexdigest()[:24]}"


def function_of(address: int, *arguments: Any, result: Any = None) -> Any:
    """Native code as a Python function that releases the GIL."""
    return ctypes.CFUNCTYPE(result, *arguments)(address)


def assembly(ir: str) -> str:
    """The machine code of a ir, for reading."""
    return llvm().assembly(ir)  # type: ignore[no-any-return]


def _register(found: Sequence[tuple[str, bytes, Sequence[str]]]) -> None:
    """Load files with the code of kernels, and remember where each came from."""
    if not found:
        return
    for find, (file, _, names) in zip(_load([code for _, code, _ in found]), found, strict=True):
        for name in names:
            _addresses[name] = find(name)
            _files[name] = file


def _load(codes: Sequence[bytes]) -> list[Callable[[str], int]]:
    """Put object code into memory; gives, for each, who knows the addresses in it."""
    if loader.can_load():
        return [found.__getitem__ for found in loader.load(codes)]
    return [llvm().load(code) for code in codes]


def _file_name(ir: str) -> str:
    """The name of the file that holds the object code of a ir."""
    return f"{hashlib.sha256(f'{target_name()}|{ir}'.encode()).hexdigest()}.o"


def _object_codes(irs: Sequence[str]) -> list[tuple[str, bytes]]:
    """Names of files, and what they hold: from the disk, or compiled and kept there."""
    files = [_file_name(ir) for ir in irs]
    codes = [disk_cache.read(disk_cache.folder() / file, _KIND) for file in files]
    for file, ir, code in zip(files, irs, codes, strict=True):
        if code is None:
            _request(file, ir)
        else:
            _in_flight.pop(file, None)  # it has come
    made = []
    for file, ir, code in zip(files, irs, codes, strict=True):
        made.append((file, _compiled(file, ir) if code is None else code))
    return made


def _request(file: str, ir: str) -> None:
    """Let workers compile a ir that will be wanted, if there are any."""
    if file not in _in_flight and uses_compile_pool():
        write = partial(disk_cache.write, disk_cache.folder() / file, _KIND)
        _in_flight[file] = _compile_pool().COMPILE_POOL.compile(ir, write)


def _compiled(file: str, ir: str) -> bytes:
    """The object code of a ir, of which a worker may know already."""
    in_flight, path = _in_flight.pop(file, None), disk_cache.folder() / file
    code = None if in_flight is None else in_flight.result()
    if code is None:
        code = llvm().object_code(ir)
    if not path.exists():  # nobody has kept it, or it is gone again
        disk_cache.write(path, _KIND, code)
    return code


def _reset_in_child() -> None:
    """In a forked child nobody brings what was asked for."""
    global _lock
    _lock = threading.Lock()
    _requested.clear()
    _in_flight.clear()


fork.register("compiled objects", after_in_child=_reset_in_child)
