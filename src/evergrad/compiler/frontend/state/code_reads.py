"""What code can read and do, from its names and instructions; whose modules are whose."""

from __future__ import annotations

import dis
import functools
import itertools
import sys
from types import (
    CodeType,
)

from evergrad.core.package_name import package_name

# Modules of the standard library whose functions have no effects and read no state.
PURE_MODULES = frozenset({
    "_abc", "_collections", "_collections_abc", "_functools", "_operator", "_struct", "abc",
    "bisect", "cmath", "collections", "contextlib", "copy", "copyreg", "dataclasses", "decimal",
    "enum", "fractions", "functools", "heapq", "itertools", "json", "keyword", "math", "numbers",
    "operator", "re", "reprlib", "statistics", "string", "struct", "textwrap", "types", "typing",
    "typing_extensions", "argparse", "inspect", "array", "posixpath", "genericpath", "__future__",
    "hashlib", "zlib", "base64", "pprint", "difflib", "graphlib", "colorsys", "binascii",
    "unicodedata", "fnmatch", "html", "random", "numpy",
})  # fmt: skip
# Instructions whose name is that of a global or of a module.
_GLOBAL_OPS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME",
                         "LOAD_FROM_DICT_OR_GLOBALS", "IMPORT_NAME", "IMPORT_FROM"})  # fmt: skip
_ATTRIBUTE_STORES = frozenset({"STORE_ATTR", "DELETE_ATTR"})
_ATTRIBUTE_OPS = _ATTRIBUTE_STORES | {"LOAD_ATTR", "LOAD_METHOD"}
LIBRARIES = frozenset({"evergrad", "numpy", "ml_dtypes", "llvmlite"})


@functools.lru_cache(maxsize=4096)
def names_of(code: CodeType) -> frozenset[str]:
    """The names that code mentions, nested code included: of globals, attributes and imports, and
    strings that may be names."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= names_of(constant)
        elif isinstance(constant, str) and constant.isidentifier():
            names.add(constant)
        elif isinstance(constant, tuple):
            names.update(c for c in constant if isinstance(c, str) and c.isidentifier())
    return frozenset(names)


def compares_identity(code: CodeType) -> bool:
    """Whether code has ``is`` or ``in``, other than in a test for ``None``."""
    return not instructions_of(code).isdisjoint(("IS_OP", "CONTAINS_OP"))


def stores_attributes(code: CodeType) -> bool:
    return "STORE_ATTR" in instructions_of(code)


@functools.lru_cache(maxsize=4096)
def appearing_names_of(code: CodeType) -> frozenset[str]:
    """The names of attributes that code, nested code included, sets or deletes, and those that it
    may find missing without an error."""
    sought = _ATTRIBUTE_OPS if code.co_exceptiontable else _ATTRIBUTE_STORES
    names = {i.argval for i in dis.get_instructions(code) if i.opname in sought}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= appearing_names_of(constant)
    return frozenset(names)


def handles_named_errors(code: CodeType) -> bool:
    """Whether code has an ``except`` clause with exceptions, or names what is one."""
    has_clause = not instructions_of(code).isdisjoint(("CHECK_EXC_MATCH", "CHECK_EG_MATCH"))
    return has_clause or "suppress" in names_of(code)


def handles_all_errors(code: CodeType) -> bool:
    """Whether code may handle any exception: by ``except:``, or by functions that are called at the
    end of a context."""
    names = names_of(code)
    return code.co_name == "__exit__" or "ExitStack" in names or has_bare_except(code)


@functools.lru_cache(maxsize=4096)
def has_bare_except(code: CodeType) -> bool:
    """Whether code, nested code included, has an ``except:``, which drops the exception."""
    listed = [i.opname for i in dis.get_instructions(code)] if code.co_exceptiontable else []
    pairs = itertools.pairwise(listed)
    nested = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return ("PUSH_EXC_INFO", "POP_TOP") in pairs or any(map(has_bare_except, nested))


def matches_patterns(code: CodeType) -> bool:
    return any(name.startswith("MATCH_") for name in instructions_of(code))


@functools.lru_cache(maxsize=4096)
def instructions_of(code: CodeType) -> frozenset[str]:
    """The names of the instructions of code, nested code included."""
    names = {i.opname for i in dis.get_instructions(code)}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= instructions_of(constant)
    return frozenset(names)


@functools.lru_cache(maxsize=4096)
def global_names_of(code: CodeType) -> frozenset[str]:
    """The names that code looks up as globals or imports, nested code included; those of attributes
    are none of them: ``optimizer.step`` does not reach a global ``step``."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname in _GLOBAL_OPS}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= global_names_of(constant)
    return frozenset(names)


@functools.lru_cache(maxsize=4096)
def called_names_of(code: CodeType) -> frozenset[str]:
    """The names of globals that code, nested code included, loads only to call them."""
    loads, calls = _loads_of(code)
    return frozenset(calls - loads)


@functools.lru_cache(maxsize=4096)
def _loads_of(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The names of globals that are loaded for other uses, and those that are loaded for calls."""
    loads: set[str] = set()
    calls: set[str] = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in _GLOBAL_OPS:
            is_call = instruction.opname == "LOAD_GLOBAL" and "NULL" in instruction.argrepr
            (calls if is_call else loads).add(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner_loads, inner_calls = _loads_of(constant)
            loads |= inner_loads
            calls |= inner_calls
    return frozenset(loads), frozenset(calls)


def is_effectful_module(root: str) -> bool:
    """Whether objects of a module of the standard library may change by themselves."""
    return root in sys.stdlib_module_names and root not in (*PURE_MODULES, "builtins")


@functools.lru_cache(maxsize=4096)
def is_users_module(name: object) -> bool:
    """Whether a module is neither the engine's nor of the standard library or NumPy. The module of
    a class of an extension may be a descriptor instead of a name."""
    root = str(name).partition(".")[0]
    return root == "__main__" or root not in (
        *LIBRARIES, package_name(), *sys.stdlib_module_names
    )  # fmt: skip
