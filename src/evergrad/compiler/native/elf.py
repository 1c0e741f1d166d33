"""Object code as LLVM leaves it, read by ourselves: its sections, symbols and relocations.

Knows relocatable ELF files of 64 bits, and how relocations change the code of x86-64 and aarch64.
Does not know where code lies in memory; :mod:`.native.loader` puts it there.
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
# Types and flags of sections; numbers that symbols have in the place of a section's; how symbols
# are bound, and the type of those that name the source.
_SYMBOLS, _ADDENDS, _NO_BITS, _NO_ADDENDS = 2, 4, 8, 9
_WRITE, _ALLOCATED = 1, 2
_UNDEFINED, _FIRST_RESERVED = 0, 0xFF00
_LOCAL, _FILE_NAME = 0, 4
# A page: sections that lie behind each other are aligned to no more than the first of them.
_MOST_ALIGN = 4096


class UnknownCodeError(RuntimeError):
    """Object code that this loader does not know how to load."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"object code that cannot be loaded: {reason}")


class Section(NamedTuple):
    """Bytes that belong into memory, which code may write to or not: what the file has of them,
    then zeros."""

    content: bytes
    size: int
    align: int
    is_written: bool


class Symbol(NamedTuple):
    """A place in a section; outside of the file where ``section`` is ``None``."""

    name: str
    section: int | None
    value: int
    is_local: bool


class Relocation(NamedTuple):
    """A place in a section that is to be changed when addresses are known."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


class ObjectFile:
    """A relocatable file; sections are those that belong into memory, by their numbers."""

    def __init__(self, data: bytes, machine: str) -> None:
        if machine not in MACHINES:
            raise UnknownCodeError(f"a machine of the kind {machine}")
        try:
            self._read(data, MACHINES[machine])
        except (struct.error, IndexError, OverflowError, ValueError) as error:
            raise UnknownCodeError(f"a damaged object file: {error}") from None

    def _read(self, data: bytes, machine: Machine) -> None:
        if len(data) < _HEADER.size or not data.startswith(_MAGIC):
            raise UnknownCodeError("not a little-endian ELF file of 64 bits")
        header = _HEADER.unpack_from(data)
        kind, number, start, size, count = header[1], header[2], header[6], header[11], header[12]
        if kind != 1 or number != machine.number or size != _SECTION.size:
            raise UnknownCodeError("not a relocatable file for this machine")
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
                raise UnknownCodeError("relocations without addends")
            if head[1] == _ADDENDS and head[7] in self.sections:
                self._enter_relocations(head, data, machine)

    def _enter_section(self, number: int, head: tuple[int, ...], data: bytes, name: str) -> None:
        if name == ".eh_frame":  # nothing is thrown through kernels
            return
        align = max(head[8], 1)
        if align & (align - 1) or align > _MOST_ALIGN:
            raise UnknownCodeError(f"an alignment of {align} bytes")
        if head[1] == _NO_BITS:
            self.sections[number] = Section(b"", head[5], align, is_written=True)
            return
        # Constants that hold addresses count as writable until these are known.
        is_written = bool(head[2] & _WRITE) and not name.startswith(".data.rel.ro")
        self.sections[number] = Section(_content(head, data), head[5], align, is_written)

    def _enter_symbols(self, head: tuple[int, ...], names: tuple[int, ...], data: bytes) -> None:
        for name, info, _, section, value, _ in _SYMBOL.iter_unpack(_content(head, data)):
            if info & 15 == _FILE_NAME:
                section = _UNDEFINED
            if section >= _FIRST_RESERVED:
                raise UnknownCodeError(f"a symbol of the section {section:#x}")
            inside = section if section != _UNDEFINED else None
            if inside in self.sections and value > self.sections[inside].size:
                raise UnknownCodeError("a symbol outside of its section")
            self.symbols.append(
                Symbol(_name(names, name, data), inside, value, info >> 4 == _LOCAL)
            )

    def _enter_relocations(self, head: tuple[int, ...], data: bytes, machine: Machine) -> None:
        room = len(self.sections[head[7]].content)
        for offset, kind, symbol, addend in _RELOCATION.iter_unpack(_content(head, data)):
            if kind not in machine.changes:
                raise UnknownCodeError(f"a relocation of the kind {kind}")
            if offset + machine.changes[kind].width > room or symbol >= len(self.symbols):
                raise UnknownCodeError("a relocation outside of its section")
            target = self.symbols[symbol].section
            if target is not None and target not in self.sections:
                raise UnknownCodeError("a relocation to what is not in memory")
            self.relocations.append(Relocation(head[7], offset, kind, symbol, addend))


def _content(head: tuple[int, ...], data: bytes) -> bytes:
    start, size = head[4], head[5]
    if start + size > len(data):
        raise UnknownCodeError("a section outside of the file")
    return data[start : start + size]


def _name(names: tuple[int, ...], offset: int, data: bytes) -> str:
    """A text that ends with zero, in a section of such texts."""
    content = _content(names, data)
    return content[offset : content.index(0, offset)].decode()


# -- how relocations change code ----------------------------------------------------------------


class Change(NamedTuple):
    """What a kind of relocation does: ``value(target, place)`` of ``width`` bytes is put into the
    word that stands there by ``put(word, value)``. Where it goes ``through`` a slot, the target is
    not the symbol but a word that holds its address (``word``), or code that jumps there
    (``code``) if the symbol is outside."""

    width: int
    value: Callable[[int, int], int]
    put: Callable[[int, int], int]
    through: str = ""


class Machine(NamedTuple):
    """A kind of processor: its number in ELF, its relocations, and 8 bytes of code that jump to
    the address in the 8 bytes behind them."""

    number: int
    changes: dict[int, Change]
    jump: bytes


def _absolute(target: int, place: int) -> int:
    return target


def _relative(target: int, place: int) -> int:
    return target - place


def _pages(target: int, place: int) -> int:
    return (target >> 12) - (place >> 12)


def _in_page(shift: int) -> Callable[[int, int], int]:
    """The place in its page, in units that instructions of that width count in."""

    def value(target: int, place: int) -> int:
        if target & ((1 << shift) - 1):
            raise UnknownCodeError("an address that is not aligned")
        return (target & 0xFFF) >> shift

    return value


def _branch(target: int, place: int) -> int:
    return (target - place) >> 2


def _signed(value: int, bits: int) -> int:
    """A number as a field of so many bits."""
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise UnknownCodeError(f"an address too far away for {bits} bits")
    return value & ((1 << bits) - 1)


def _whole(bits: int) -> Callable[[int, int], int]:
    return lambda word, value: _signed(value, bits)


def _address(word: int, value: int) -> int:
    return value & (1 << 64) - 1


def _unsigned(word: int, value: int) -> int:
    if not 0 <= value < 1 << 32:
        raise UnknownCodeError("an address of more than 32 bits")
    return value


def _field(bits: int, at: int, is_signed: bool = False) -> Callable[[int, int], int]:
    """Bits within an instruction."""
    mask = ((1 << bits) - 1) << at

    def put(word: int, value: int) -> int:
        return word & ~mask | (_signed(value, bits) if is_signed else value) << at

    return put


def _adr(word: int, value: int) -> int:
    """The 21 bits of ADR and ADRP, the lowest two of which stand apart."""
    field = _signed(value, 21)
    return word & ~(3 << 29 | 0x7FFFF << 5) | (field & 3) << 29 | (field >> 2) << 5


_X86_64 = Machine(
    62,
    {
        1: Change(8, _absolute, _address),  # 64
        2: Change(4, _relative, _whole(32)),  # PC32
        4: Change(4, _relative, _whole(32), "code"),  # PLT32
        9: Change(4, _relative, _whole(32), "word"),  # GOTPCREL
        10: Change(4, _absolute, _unsigned),  # 32
        11: Change(4, _absolute, _whole(32)),  # 32S
        24: Change(8, _relative, _whole(64)),  # PC64
        41: Change(4, _relative, _whole(32), "word"),  # GOTPCRELX
        42: Change(4, _relative, _whole(32), "word"),  # REX_GOTPCRELX
        43: Change(4, _relative, _whole(32), "word"),  # CODE_4_GOTPCRELX
    },
    b"\xff\x25\x02\x00\x00\x00\x0f\x0b",  # jmp [rip + 2]; ud2
)
_AARCH64 = Machine(
    183,
    {
        257: Change(8, _absolute, _address),  # ABS64
        260: Change(8, _relative, _whole(64)),  # PREL64
        261: Change(4, _relative, _whole(32)),  # PREL32
        274: Change(4, _relative, _adr),  # ADR_PREL_LO21
        275: Change(4, _pages, _adr),  # ADR_PREL_PG_HI21
        277: Change(4, _in_page(0), _field(12, 10)),  # ADD_ABS_LO12_NC
        278: Change(4, _in_page(0), _field(12, 10)),  # LDST8_ABS_LO12_NC
        282: Change(4, _branch, _field(26, 0, is_signed=True), "code"),  # JUMP26
        283: Change(4, _branch, _field(26, 0, is_signed=True), "code"),  # CALL26
        284: Change(4, _in_page(1), _field(12, 10)),  # LDST16_ABS_LO12_NC
        285: Change(4, _in_page(2), _field(12, 10)),  # LDST32_ABS_LO12_NC
        286: Change(4, _in_page(3), _field(12, 10)),  # LDST64_ABS_LO12_NC
        299: Change(4, _in_page(4), _field(12, 10)),  # LDST128_ABS_LO12_NC
        311: Change(4, _pages, _adr, "word"),  # ADR_GOT_PAGE
        312: Change(4, _in_page(3), _field(12, 10), "word"),  # LD64_GOT_LO12_NC
    },
    struct.pack("<II", 0x58000050, 0xD61F0200),  # ldr x16, 8; br x16
)
MACHINES = {"x86_64": _X86_64, "aarch64": _AARCH64}
