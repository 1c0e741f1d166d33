"""LLVM IR as text into machine code in this process, with a cache on disk.

A text is compiled once per machine: its object code is kept (:mod:`.native.disk_cache`) under a
name made of the text, the CPU and LLVM's version. Who remembers that name needs no text to load the
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
from evergrad.compiler.native.elf import UnknownCodeError
from evergrad.compiler.native.target import has_fma, llvm, target_name, vector_bits
from evergrad.core import fork

if TYPE_CHECKING:  # only those who compile need it
    from concurrent.futures import Future

__all__ = ["has_fma", "target_name", "vector_bits"]

_KIND = b"evergrad object 2\n"
# Metadata in the text of a kernel, which is numbered anew in a module.
_METADATA = re.compile(r"!M(\d+)")
_lock = threading.Lock()
_addresses: dict[str, int] = {}
# For each kernel the file that holds its code.
_files: dict[str, str] = {}
# Kernels of which the code was asked for, and by the names of files what workers will give.
_begun: set[str] = set()
_coming: dict[str, Future[bytes | None]] = {}


def _compile_pool() -> Any:
    from evergrad.compiler.native import compile_pool  # start-up: only for code not on disk yet

    return compile_pool


def compiles_outside() -> bool:
    """Whether other processes compile for this one."""
    if config.COMPILE_IN_PROCESS or not loader.can_load():
        return False
    pool = _compile_pool()
    return pool.command() is not None and not pool.WORKERS.has_failed


@cache
def makes_code() -> bool:
    """Whether a process may make machine code here: some systems forbid it."""
    if loader.can_load():
        try:
            loader.load([])
        except UnknownCodeError:
            return False
    return True


def try_workers() -> bool:
    """Whether another process really compiles."""
    return _compile_pool().WORKERS.compile("").result() is not None


def begin(kernel: Any) -> None:
    """Let a kernel, and those it calls, be compiled meanwhile, if they have to be."""
    with _lock:
        for one in (kernel, *kernel.calls.values()):
            if one.name in _addresses or one.name in _begun or not compiles_outside():
                continue
            _begun.add(one.name)
            _begin(module_text([one]))


def begin_text(text: str) -> None:
    """Let a text that will be wanted be compiled meanwhile, if it has to be."""
    with _lock:
        _begin(text)


def _begin(text: str) -> None:
    file = _file_of(text)
    if not (disk_cache.folder() / file).exists():
        _request(file, text)


def addresses(kernels: Iterable[Any]) -> dict[str, int]:
    """The address of each kernel; those not known yet are compiled, each by itself so that programs
    share them. The name of a kernel tells its text: equal names are taken for equal kernels."""
    with _lock:
        wanted = {kernel.name: kernel for kernel in kernels}
        missing = [kernel for name, kernel in wanted.items() if name not in _addresses]
        found = _object_codes([module_text([kernel]) for kernel in missing])
        _enter([(file, code, [k.name]) for k, (file, code) in zip(missing, found, strict=True)])
        return {name: _addresses[name] for name in wanted}


def files_of(names: Iterable[str]) -> dict[str, str]:
    """For each of these kernels, which have addresses, the file with its object code."""
    with _lock:
        return {name: _files[name] for name in names}


def load_files(files: dict[str, str]) -> bool:
    """Give kernels addresses without their texts, each from the file it is in; says whether all
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
        _enter(found)
        return True


def addresses_in(text: str, names: Iterable[str]) -> dict[str, int]:
    """The addresses of functions in one text."""
    with _lock:
        ((_, code),) = _object_codes([text])
        (find,) = _load([code])
        return {name: find(name) for name in names}


def module_text(kernels: Iterable[Any]) -> str:
    """Kernels as one module: what they share stands once, their metadata get numbers of their
    own."""
    helpers: dict[str, str] = {}
    texts = []
    first = 0
    for kernel in kernels:
        helpers.update(kernel.helpers)
        texts.append(_renumbered(kernel.ir, first))
        first += 1 + max((int(n) for n in _METADATA.findall(kernel.ir)), default=-1)
    return "\n".join([*helpers.values(), *texts])


def _renumbered(text: str, first: int) -> str:
    return _METADATA.sub(lambda match: f"!{first + int(match[1])}", text)


def name_of(text: str, kind: str) -> str:
    """A name that tells a function's text (in which it calls itself ``@SELF``)."""
    return f"{kind}_{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def function_of(address: int, *arguments: Any, result: Any = None) -> Any:
    """Native code as a Python function that releases the GIL."""
    return ctypes.CFUNCTYPE(result, *arguments)(address)


def assembly(text: str) -> str:
    """The machine code of a text, for reading."""
    return llvm().assembly(text)  # type: ignore[no-any-return]


def _enter(found: Sequence[tuple[str, bytes, Sequence[str]]]) -> None:
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


def _file_of(text: str) -> str:
    """The name of the file that holds the object code of a text."""
    return f"{hashlib.sha256(f'{target_name()}|{text}'.encode()).hexdigest()}.o"


def _object_codes(texts: Sequence[str]) -> list[tuple[str, bytes]]:
    """Names of files, and what they hold: from the disk, or compiled and kept there."""
    files = [_file_of(text) for text in texts]
    codes = [disk_cache.read(disk_cache.folder() / file, _KIND) for file in files]
    for file, text, code in zip(files, texts, codes, strict=True):
        if code is None:
            _request(file, text)
        else:
            _coming.pop(file, None)  # it has come
    made = []
    for file, text, code in zip(files, texts, codes, strict=True):
        made.append((file, _compiled(file, text) if code is None else code))
    return made


def _request(file: str, text: str) -> None:
    """Let workers compile a text that will be wanted, if there are any."""
    if file not in _coming and compiles_outside():
        write = partial(disk_cache.write, disk_cache.folder() / file, _KIND)
        _coming[file] = _compile_pool().WORKERS.compile(text, write)


def _compiled(file: str, text: str) -> bytes:
    """The object code of a text, of which a worker may know already."""
    coming, path = _coming.pop(file, None), disk_cache.folder() / file
    code = None if coming is None else coming.result()
    if code is None:
        code = llvm().object_code(text)
    if not path.exists():  # nobody has kept it, or it is gone again
        disk_cache.write(path, _KIND, code)
    return code


def _forget_begun() -> None:
    """In a forked child nobody brings what was asked for."""
    global _lock
    _lock = threading.Lock()
    _begun.clear()
    _coming.clear()


fork.register("compiled objects", after_in_child=_forget_begun)
