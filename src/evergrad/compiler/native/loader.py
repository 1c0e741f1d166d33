"""Loads object files into the memory of this process, without LLVM.

Object files that are loaded together share an image: its pages are written first, then made
executable, never both at once. Code is never unloaded, since programs and threads hold its
addresses; its pages are not managed by Python.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from evergrad.compiler.native.elf import MACHINES, ObjectFile, ObjectFileError, Symbol

if TYPE_CHECKING:
    from ctypes import CDLL

    from evergrad.compiler.native.elf import Machine

# The size limit of an image: relocations are signed 32-bit.
_MAX_IMAGE_BYTES = 1 << 31
# A stub: PLT code that jumps to the address in the GOT word behind it.
_STUB, _WORD = 16, 8


def can_load() -> bool:
    """Whether this system's object files are supported."""
    return sys.platform == "linux" and platform.machine() in MACHINES


def load(objects: Sequence[bytes]) -> list[dict[str, int]]:
    """Load object files; returns, for each, the addresses of its global symbols."""
    image = Image(objects, platform.machine())
    base = _new_pages(image.size)
    try:
        content = image.content_at(base)
        ctypes.memmove(base, bytes(content), len(content))
        _make_executable(base, image.code_size)
    except BaseException:
        _library().munmap(ctypes.c_void_p(base), ctypes.c_size_t(image.size))
        raise
    return image.symbols_at(base)


class Image:
    """The memory image of object files: read-only sections, then stubs; on other pages writable
    sections, then zero-initialized (.bss) ones, which are not part of the content."""

    def __init__(self, objects: Sequence[bytes], machine: str) -> None:
        self.objects: list[ObjectFile] = [ObjectFile(data, machine) for data in objects]
        self.machine: Machine = MACHINES[machine]
        self.starts: dict[tuple[int, int], int] = {}
        end = self._lay_out(0, is_writable=False)
        end += -end % _STUB
        self.stubs: dict[tuple[int, Symbol], int] = {}
        for number, file in enumerate(self.objects):
            for relocation in file.relocations:
                symbol = file.symbols[relocation.symbol]
                key = self._stub_key(
                    number, symbol, self.machine.relocation_types[relocation.kind].through
                )
                if key is not None and key not in self.stubs:
                    self.stubs[key] = end
                    end += _STUB
        self.code_size: int = max(end, 1)
        pages = self.code_size + -self.code_size % mmap.PAGESIZE
        self.stored: int = self._lay_out(pages, is_writable=True)
        self.size: int = self._lay_out(self.stored, is_writable=True, is_zeros=True)
        if self.size > _MAX_IMAGE_BYTES:
            raise ObjectFileError(f"an image of {self.size} bytes is out of range for relocations")

    def _lay_out(self, end: int, is_writable: bool, is_zeros: bool = False) -> int:
        """Assign addresses to the sections of a kind behind others; returns their end."""
        for number, file in enumerate(self.objects):
            for section, found in file.sections.items():
                if found.is_writable is is_writable and (not found.content) is is_zeros:
                    start = self.starts[number, section] = end + -end % found.align
                    end = start + found.size
        return end

    def _stub_key(self, number: int, symbol: Symbol, through: str) -> tuple[int, Symbol] | None:
        """The stub that a relocation goes through: those of external symbols are shared."""
        if symbol.section is None:
            return (-1, symbol) if through else None
        return (number, symbol) if through == "got" else None

    def content_at(self, base: int) -> bytearray:
        """The relocated bytes of the image for a base address, without .bss."""
        made = bytearray(self.stored)
        for (number, section), start in self.starts.items():
            content = self.objects[number].sections[section].content
            made[start : start + len(content)] = content
        for (number, symbol), start in self.stubs.items():
            address = self._address(number, symbol, base)
            made[start : start + _STUB] = self.machine.jump + address.to_bytes(_WORD, "little")
        for number in range(len(self.objects)):
            self._relocate(number, base, made)
        return made

    def _relocate(self, number: int, base: int, made: bytearray) -> None:
        file = self.objects[number]
        for section, offset, kind, which, addend in file.relocations:
            width, value, encode, through = self.machine.relocation_types[kind]
            symbol = file.symbols[which]
            key = self._stub_key(number, symbol, through)
            if key is None:
                target = self._address(number, symbol, base)
            else:
                target = base + self.stubs[key] + (_WORD if through == "got" else 0)
            at = self.starts[number, section] + offset
            word = int.from_bytes(made[at : at + width], "little")
            changed = encode(word, value(target + addend, base + at))
            made[at : at + width] = changed.to_bytes(width, "little")

    def _address(self, number: int, symbol: Symbol, base: int) -> int:
        if symbol.section is None:
            return _external_address(symbol.name)
        return base + self.starts[number, symbol.section] + symbol.value

    def symbols_at(self, base: int) -> list[dict[str, int]]:
        return [
            {
                symbol.name: self._address(number, symbol, base)
                for symbol in file.symbols
                if symbol.section in file.sections and not symbol.is_local
            }
            for number, file in enumerate(self.objects)
        ]


@cache
def _library(name: str | None = None) -> CDLL:
    """A shared library; without a name all symbols of this process, the C library included."""
    return ctypes.CDLL(name)


@cache
def _external_address(name: str) -> int:
    """The address of a function of the C library, or of the compiler's runtime, which converts
    half-precision numbers on processors that cannot."""
    for library in (None, "libm.so.6", "libgcc_s.so.1"):
        try:
            found = _library(library)[name]
        except (OSError, AttributeError):
            continue
        return int(ctypes.cast(found, ctypes.c_void_p).value or 0)
    raise ObjectFileError(f"undefined symbol {name}")


def _new_pages(size: int) -> int:
    """Writable anonymous pages."""
    map_pages = _library().mmap
    map_pages.restype = ctypes.c_void_p
    map_pages.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
    writable, private = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    found = map_pages(None, size, writable, private, -1, 0)
    if found is None or found == ctypes.c_void_p(-1).value:
        raise MemoryError(f"no memory for {size} bytes of machine code")
    return int(found)


def _make_executable(base: int, size: int) -> None:
    """Make written pages executable and read-only."""
    if platform.machine() == "aarch64":  # the instruction cache is not coherent
        try:
            clear = _library("libgcc_s.so.1").__clear_cache
        except (OSError, AttributeError):
            reason = "libgcc_s.so.1, which flushes the instruction cache, is missing"
            raise ObjectFileError(reason) from None
        clear(ctypes.c_void_p(base), ctypes.c_void_p(base + size))
    protect = _library().mprotect
    executable = mmap.PROT_READ | mmap.PROT_EXEC
    if protect(ctypes.c_void_p(base), ctypes.c_size_t(size), ctypes.c_int(executable)):
        raise ObjectFileError(
            "this system does not let a process make pages executable (SELinux and systemd's "
            "MemoryDenyWriteExecute may forbid it), so evergrad.compile cannot be used"
        )
