"""Object code in the memory of this process, without LLVM.

Objects that are loaded together share pages: those are written first and become executable then,
never both at once. Code stays for the life of the process, since programs and threads hold its
addresses; so its pages are not Python's to free.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

from evergrad.compiler.native.elf import MACHINES, ObjectFile, Symbol, UnknownCodeError

# How far apart places in an image may lie: code finds them by 32 bits with a sign.
_MOST_BYTES = 1 << 31
# What stands for a symbol that is far away: code that jumps to the address in the word behind it.
_SLOT, _WORD = 16, 8


def can_load() -> bool:
    """Whether this system's object code is known here."""
    return sys.platform == "linux" and platform.machine() in MACHINES


def load(objects: Sequence[bytes]) -> list[dict[str, int]]:
    """Put object code into memory; gives, for each object, the addresses of what it defines."""
    image = Image(objects, platform.machine())
    base = _new_pages(image.size)
    try:
        content = image.content_at(base)
        ctypes.memmove(base, bytes(content), len(content))
        _make_executable(base, image.code_size)
    except BaseException:
        _library().munmap(ctypes.c_void_p(base), ctypes.c_size_t(image.size))
        raise
    return image.defined_at(base)


class Image:
    """Sections of objects one behind the other, then slots; on other pages what code may write,
    and behind it zeros, which are not part of the content."""

    def __init__(self, objects: Sequence[bytes], machine: str) -> None:
        self.objects = [ObjectFile(data, machine) for data in objects]
        self.machine = MACHINES[machine]
        self.starts: dict[tuple[int, int], int] = {}
        end = self._put_sections(0, is_written=False)
        end += -end % _SLOT
        self.slots: dict[tuple[int, Symbol], int] = {}
        for number, file in enumerate(self.objects):
            for relocation in file.relocations:
                symbol = file.symbols[relocation.symbol]
                key = self._slot_key(number, symbol, self.machine.changes[relocation.kind].through)
                if key is not None and key not in self.slots:
                    self.slots[key] = end
                    end += _SLOT
        self.code_size = max(end, 1)
        pages = self.code_size + -self.code_size % mmap.PAGESIZE
        self.stored = self._put_sections(pages, is_written=True)
        self.size = self._put_sections(self.stored, is_written=True, is_zeros=True)
        if self.size > _MOST_BYTES:
            raise UnknownCodeError(f"{self.size} bytes, more than code can reach")

    def _put_sections(self, end: int, is_written: bool, is_zeros: bool = False) -> int:
        """Give sections of a kind their places behind another one; gives where they end."""
        for number, file in enumerate(self.objects):
            for section, found in file.sections.items():
                if found.is_written is is_written and (not found.content) is is_zeros:
                    start = self.starts[number, section] = end + -end % found.align
                    end = start + found.size
        return end

    def _slot_key(self, number: int, symbol: Symbol, through: str) -> tuple[int, Symbol] | None:
        """Which slot a relocation goes through: objects share those of what is outside."""
        if symbol.section is None:
            return (-1, symbol) if through else None
        return (number, symbol) if through == "word" else None

    def content_at(self, base: int) -> bytearray:
        """The bytes of the image if it lies there, without the zeros behind."""
        made = bytearray(self.stored)
        for (number, section), start in self.starts.items():
            content = self.objects[number].sections[section].content
            made[start : start + len(content)] = content
        for (number, symbol), start in self.slots.items():
            address = self._address(number, symbol, base)
            made[start : start + _SLOT] = self.machine.jump + address.to_bytes(_WORD, "little")
        for number in range(len(self.objects)):
            self._relocate(number, base, made)
        return made

    def _relocate(self, number: int, base: int, made: bytearray) -> None:
        file = self.objects[number]
        for section, offset, kind, which, addend in file.relocations:
            width, value, put, through = self.machine.changes[kind]
            symbol = file.symbols[which]
            key = self._slot_key(number, symbol, through)
            if key is None:
                target = self._address(number, symbol, base)
            else:
                target = base + self.slots[key] + (_WORD if through == "word" else 0)
            at = self.starts[number, section] + offset
            word = int.from_bytes(made[at : at + width], "little")
            changed = put(word, value(target + addend, base + at))
            made[at : at + width] = changed.to_bytes(width, "little")

    def _address(self, number: int, symbol: Symbol, base: int) -> int:
        if symbol.section is None:
            return _outside(symbol.name)
        return base + self.starts[number, symbol.section] + symbol.value

    def defined_at(self, base: int) -> list[dict[str, int]]:
        return [
            {
                symbol.name: self._address(number, symbol, base)
                for symbol in file.symbols
                if symbol.section in file.sections and not symbol.is_local
            }
            for number, file in enumerate(self.objects)
        ]


@cache
def _library(name: str | None = None) -> Any:
    """A library; without a name all that this process has loaded, the C library among them."""
    return ctypes.CDLL(name)


@cache
def _outside(name: str) -> int:
    """The address of a function of the C library."""
    for library in (None, "libm.so.6"):
        try:
            found = _library(library)[name]
        except (OSError, AttributeError):
            continue
        return int(ctypes.cast(found, ctypes.c_void_p).value or 0)
    raise UnknownCodeError(f"a function of another library: {name}")


def _new_pages(size: int) -> int:
    """Memory to write to."""
    map_pages = _library().mmap
    map_pages.restype = ctypes.c_void_p
    map_pages.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
    writable, private = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    found = map_pages(None, size, writable, private, -1, 0)
    if found is None or found == ctypes.c_void_p(-1).value:
        raise MemoryError(f"no memory for {size} bytes of machine code")
    return int(found)


def _make_executable(base: int, size: int) -> None:
    """Let code that was written there be run, and not be written any more."""
    if platform.machine() == "aarch64":  # processors may have read what was there before
        try:
            clear = _library("libgcc_s.so.1").__clear_cache
        except (OSError, AttributeError):
            reason = "libgcc_s.so.1, by which the processor sees new code, is missing"
            raise UnknownCodeError(reason) from None
        clear(ctypes.c_void_p(base), ctypes.c_void_p(base + size))
    protect = _library().mprotect
    executable = mmap.PROT_READ | mmap.PROT_EXEC
    if protect(ctypes.c_void_p(base), ctypes.c_size_t(size), ctypes.c_int(executable)):
        raise UnknownCodeError(
            "this system does not let a process make code (SELinux and systemd's "
            "MemoryDenyWriteExecute may forbid it), so evergrad.compile cannot be used"
        )
