"""ELF object files: sections, symbols and relocations.

Reads 64-bit relocatable files, and encodes the relocations of x86-64 and aarch64;
:mod:`.native.loader` places the sections in memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")
_MAGIC = b"\x7fELF\x02\x01\x01"
# Section types and flags; reserved section indices; symbol bindings and types.
_SYMBOLS, _ADDENDS, _NO_BITS, _NO_ADDENDS = 2, 4, 8, 9
_WRITE, _ALLOCATED = 1, 2
_UNDEFINED, _FIRST_RESERVED = 0, 0xFF00
_LOCAL, _FILE_NAME = 0, 4
# A page: sections of an image are aligned to no more than its base.
_MAX_ALIGN = 4096


class ObjectFileError(RuntimeError):
    """An object file that the loader does not support."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"cannot load an object file: {reason}")


class Section(NamedTuple):
    """An allocated section: its content in the file, zero-filled to its size."""

    content: bytes
    size: int
    align: int
    is_writable: bool


class Symbol(NamedTuple):
    """A symbol: an offset in a section, or undefined (external) where ``section`` is ``None``."""

    name: str
    section: int | None
    value: int
    is_local: bool


class Relocation(NamedTuple):
    """A relocation entry: a field in a section, to be encoded when addresses are known."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


class ObjectFile:
    """A relocatable object file; ``sections`` are the allocated ones, by index."""

    def __init__(self, data: bytes, machine: str) -> None:
        if machine not in MACHINES:
            raise ObjectFileError(f"unsupported machine {machine}")
        try:
            self._read(data, MACHINES[machine])
        except (struct.error, IndexError, OverflowError, ValueError) as error:
            raise ObjectFileError(f"a damaged object file: {error}") from None

    def _read(self, data: bytes, machine: Machine) -> None:
        if len(data) < _HEADER.size or not data.startswith(_MAGIC):
            raise ObjectFileError("not a 64-bit little-endian ELF file")
        header = _HEADER.unpack_from(data)
        kind, number, start, size, count = header[1], header[2], header[6], header[11], header[12]
        if kind != 1 or number != machine.number or size != _SECTION.size:
            raise ObjectFileError("not a relocatable file for this machine")
        heads = [_SECTION.unpack_from(data, start + size * n) for n in range(count)]
        self.sections: dict[int, Section] = {}
        self.symbols: list[Symbol] = []
        self.relocations: list[Relocation] = []
        for number, head in enumerate(heads):
            if head[2] & _ALLOCATED and head[5]:
                self._enter_section(number, head, data, _name(heads[header[13]], head[0], data))
        for head in heads:
            if head[1] == _SYMBOLS:
                self._enter_symbols(head, heads[head[6]], data)
        for head in heads:
            if head[1] == _NO_ADDENDS:
                raise ObjectFileError("relocations without addends")
            if head[1] == _ADDENDS and head[7] in self.sections:
                self._enter_relocations(head, data, machine)

    def _enter_section(self, number: int, head: tuple[int, ...], data: bytes, name: str) -> None:
        if name == ".eh_frame":  # no exception unwinds through kernels
            return
        align = max(head[8], 1)
        if align & (align - 1) or align > _MAX_ALIGN:
            raise ObjectFileError(f"an alignment of {align} bytes")
        if head[1] == _NO_BITS:
            self.sections[number] = Section(b"", head[5], align, is_writable=True)
            return
        # Constants that hold addresses are writable only until relocated.
        is_writable = bool(head[2] & _WRITE) and not name.startswith(".data.rel.ro")
        self.sections[number] = Section(_content(head, data), head[5], align, is_writable)

    def _enter_symbols(self, head: tuple[int, ...], names: tuple[int, ...], data: bytes) -> None:
        for name, info, _, section, value, _ in _SYMBOL.iter_unpack(_content(head, data)):
            if info & 15 == _FILE_NAME:
                section = _UNDEFINED
            if section >= _FIRST_RESERVED:
                raise ObjectFileError(f"a symbol in the reserved section {section:#x}")
            inside = section if section != _UNDEFINED else None
            if inside in self.sections and value > self.sections[inside].size:
                raise ObjectFileError("a symbol outside of its section")
            self.symbols.append(
                Symbol(_name(names, name, data), inside, value, info >> 4 == _LOCAL)
            )

    def _enter_relocations(self, head: tuple[int, ...], data: bytes, machine: Machine) -> None:
        room = len(self.sections[head[7]].content)
        for offset, kind, symbol, addend in _RELOCATION.iter_unpack(_content(head, data)):
            if kind not in machine.relocation_types:
                raise ObjectFileError(f"unsupported relocation type {kind}")
            if offset + machine.relocation_types[kind].width > room or symbol >= len(self.symbols):
                raise ObjectFileError("a relocation outside of its section")
            target = self.symbols[symbol].section
            if target is not None and target not in self.sections:
                raise ObjectFileError("a relocation to a section that is not allocated")
            self.relocations.append(Relocation(head[7], offset, kind, symbol, addend))


def _content(head: tuple[int, ...], data: bytes) -> bytes:
    start, size = head[4], head[5]
    if start + size > len(data):
        raise ObjectFileError("a section outside of the file")
    return data[start : start + size]


def _name(names: tuple[int, ...], offset: int, data: bytes) -> str:
    """A zero-terminated string in a string table."""
    content = _content(names, data)
    return content[offset : content.index(0, offset)].decode()


# -- relocation types ---------------------------------------------------------------------------


class RelocationType(NamedTuple):
    """A relocation type: ``value(target, pc)`` of ``width`` bytes is inserted into the word at
    ``pc`` by ``encode(word, value)``. Where it goes ``through`` a stub, the target is the GOT entry
    with the symbol's address (``got``), or for an external symbol the PLT code that jumps there
    (``plt``)."""

    width: int
    value: Callable[[int, int], int]
    encode: Callable[[int, int], int]
    through: str = ""


class Machine(NamedTuple):
    """A CPU architecture: its number in ELF, its relocation types, and 8 bytes of PLT code that
    jump to the address in the 8 bytes behind them."""

    number: int
    relocation_types: dict[int, RelocationType]
    jump: bytes


def _absolute(target: int, pc: int) -> int:
    return target


def _relative(target: int, pc: int) -> int:
    return target - pc


def _pages(target: int, pc: int) -> int:
    return (target >> 12) - (pc >> 12)


def _in_page(shift: int) -> Callable[[int, int], int]:
    """The offset in its page, scaled by the access size of the instruction."""

    def value(target: int, pc: int) -> int:
        if target & ((1 << shift) - 1):
            raise ObjectFileError("an unaligned address")
        return (target & 0xFFF) >> shift

    return value


def _branch(target: int, pc: int) -> int:
    return (target - pc) >> 2


def _signed(value: int, bits: int) -> int:
    """A number as a signed field of so many bits."""
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ObjectFileError(f"an address out of range for {bits} bits")
    return value & ((1 << bits) - 1)


def _whole(bits: int) -> Callable[[int, int], int]:
    return lambda word, value: _signed(value, bits)


def _address(word: int, value: int) -> int:
    return value & (1 << 64) - 1


def _unsigned(word: int, value: int) -> int:
    if not 0 <= value < 1 << 32:
        raise ObjectFileError("an address of more than 32 bits")
    return value


def _field(bits: int, at: int, is_signed: bool = False) -> Callable[[int, int], int]:
    """Encodes a bit field of an instruction."""
    mask = ((1 << bits) - 1) << at

    def encode(word: int, value: int) -> int:
        return word & ~mask | (_signed(value, bits) if is_signed else value) << at

    return encode


def _adr(word: int, value: int) -> int:
    """The split 21-bit immediate of ADR and ADRP."""
    field = _signed(value, 21)
    return word & ~(3 << 29 | 0x7FFFF << 5) | (field & 3) << 29 | (field >> 2) << 5


_X86_64 = Machine(
    62,
    {
        1: RelocationType(8, _absolute, _address),  # 64
        2: RelocationType(4, _relative, _whole(32)),  # PC32
        4: RelocationType(4, _relative, _whole(32), "plt"),  # PLT32
        9: RelocationType(4, _relative, _whole(32), "got"),  # GOTPCREL
        10: RelocationType(4, _absolute, _unsigned),  # 32
        11: RelocationType(4, _absolute, _whole(32)),  # 32S
        24: RelocationType(8, _relative, _whole(64)),  # PC64
        41: RelocationType(4, _relative, _whole(32), "got"),  # GOTPCRELX
        42: RelocationType(4, _relative, _whole(32), "got"),  # REX_GOTPCRELX
        43: RelocationType(4, _relative, _whole(32), "got"),  # CODE_4_GOTPCRELX
    },
    b"\xff\x25\x02\x00\x00\x00\x0f\x0b",  # jmp [rip + 2]; ud2
)
_AARCH64 = Machine(
    183,
    {
        257: RelocationType(8, _absolute, _address),  # ABS64
        260: RelocationType(8, _relative, _whole(64)),  # PREL64
        261: RelocationType(4, _relative, _whole(32)),  # PREL32
        274: RelocationType(4, _relative, _adr),  # ADR_PREL_LO21
        275: RelocationType(4, _pages, _adr),  # ADR_PREL_PG_HI21
        277: RelocationType(4, _in_page(0), _field(12, 10)),  # ADD_ABS_LO12_NC
        278: RelocationType(4, _in_page(0), _field(12, 10)),  # LDST8_ABS_LO12_NC
        282: RelocationType(4, _branch, _field(26, 0, is_signed=True), "plt"),  # JUMP26
        283: RelocationType(4, _branch, _field(26, 0, is_signed=True), "plt"),  # CALL26
        284: RelocationType(4, _in_page(1), _field(12, 10)),  # LDST16_ABS_LO12_NC
        285: RelocationType(4, _in_page(2), _field(12, 10)),  # LDST32_ABS_LO12_NC
        286: RelocationType(4, _in_page(3), _field(12, 10)),  # LDST64_ABS_LO12_NC
        299: RelocationType(4, _in_page(4), _field(12, 10)),  # LDST128_ABS_LO12_NC
        311: RelocationType(4, _pages, _adr, "got"),  # ADR_GOT_PAGE
        312: RelocationType(4, _in_page(3), _field(12, 10), "got"),  # LD64_GOT_LO12_NC
    },
    struct.pack("<II", 0x58000050, 0xD61F0200),  # ldr x16, 8; br x16
)
MACHINES = {"x86_64": _X86_64, "aarch64": _AARCH64}
