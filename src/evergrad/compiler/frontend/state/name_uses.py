"""Which attributes code reads of what it names: ``torch.nn.functional.relu`` reads ``nn`` of the
module ``torch``, and no other attribute of it."""

from __future__ import annotations

import dis
import functools
import inspect
from types import CodeType

# The attributes that are read one of the other; the empty chain is any other use of the name.
Chain = tuple[str, ...]
Uses = dict[str, frozenset[Chain]]
OTHER_USE: Chain = ()
_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF",
                    "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_FROM_DICT_OR_DEREF"})  # fmt: skip
# Functions that read the attribute of their first argument that the second one names.
GETTERS = frozenset({"getattr", "hasattr"})
_READS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_WRITES = frozenset({"STORE_ATTR", "DELETE_ATTR"})
_NO_OPERATION = frozenset({"EXTENDED_ARG", "NOP", "CACHE"})
_LOCAL_LOADS = ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_FAST_AND_CLEAR")


@functools.lru_cache(maxsize=4096)
def uses_of(code: CodeType) -> Uses:
    """The chains of attributes that code, nested code included, reads of globals, cells and modules
    that it imports."""
    found: dict[str, set[Chain]] = {}
    listed = [i for i in dis.get_instructions(code) if i.opname not in _NO_OPERATION]
    imported = _imported_variables(code, listed)
    for position, instruction in enumerate(listed):
        name = None
        if instruction.opname in _LOADS:
            name = str(instruction.argval)
        elif instruction.opname.startswith("LOAD_FAST"):
            names = instruction.argval
            name = imported.get(names) if isinstance(names, str) else None
        elif instruction.opname == "IMPORT_NAME":
            _note_import(str(instruction.argval), position, listed, imported, found)
        if name is not None:
            found.setdefault(name, set()).add(_chain(position, listed))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            for name, chains in uses_of(constant).items():
                found.setdefault(name, set()).update(chains)
    return {name: frozenset(chains) for name, chains in found.items()}


def _chain(position: int, listed: list[dis.Instruction]) -> Chain:
    """The attributes that are read of the value that the instruction at a position loads."""
    chain: list[str] = []
    for instruction in listed[position + 1 :]:
        if instruction.opname in _WRITES:
            return (*chain, str(instruction.argval))
        if instruction.opname not in _READS:
            break
        chain.append(str(instruction.argval))
    before = listed[position - 1]
    if before.opname == "LOAD_GLOBAL" and before.argval in GETTERS:
        constant = listed[position + len(chain) + 1]
        if constant.opname == "LOAD_CONST" and isinstance(constant.argval, str):
            chain.append(constant.argval)
    return tuple(chain)


def _imported_variables(code: CodeType, listed: list[dis.Instruction]) -> dict[str, str]:
    """The local variables that only an import assigns to, and only simple loads read: the names of
    the modules."""
    found: dict[str, str] = {}
    other: set[str] = set(_arguments_of(code))
    for position, instruction in enumerate(listed):
        named = instruction.argval
        names = named if isinstance(named, tuple) else (named,)
        if instruction.opname in _LOCAL_LOADS or "FAST" not in instruction.opname:
            continue
        before = listed[position - 1]
        is_import = instruction.opname == "STORE_FAST" and before.opname == "IMPORT_NAME"
        if is_import and named not in found:
            found[named] = str(before.argval).partition(".")[0]
        else:
            other.update(map(str, names))
    return {name: module for name, module in found.items() if name not in other}


def _arguments_of(code: CodeType) -> tuple[str, ...]:
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count]


def _note_import(
    module: str, position: int, listed: list[dis.Instruction], imported: dict[str, str],
    found: dict[str, set[Chain]],
) -> None:  # fmt: skip
    """Note what an import statement reads of the module, or of the root of its name. The name of
    a relative import begins with its dots."""
    level, names, after = listed[position - 2].argval, listed[position - 1], listed[position + 1]
    module = "." * level + module if isinstance(level, int) else module
    if after.opname == "STORE_FAST" and after.argval in imported:
        found.setdefault(imported[after.argval], set())
        return
    chains = found.setdefault(module, set())
    if after.opname != "IMPORT_FROM" or names.argval is None:
        chains.add(OTHER_USE)
        return
    position += 1
    while position + 1 < len(listed) and listed[position].opname == "IMPORT_FROM":
        if not listed[position + 1].opname.startswith("STORE_"):
            chains.add(OTHER_USE)
            return
        chains.add((str(listed[position].argval),))
        position += 2
