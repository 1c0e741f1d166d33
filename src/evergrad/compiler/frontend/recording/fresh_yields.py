"""Whether the list or dictionary that an iterator has returned is referenced by nothing else: its
code shows that it was made to be given away."""

from __future__ import annotations

import dis
import functools
from types import CodeType, GeneratorType

# Instructions that leave a new list or dictionary on the stack.
_MAKES = frozenset({
    "BUILD_LIST", "LIST_EXTEND", "BUILD_MAP", "BUILD_CONST_KEY_MAP", "DICT_UPDATE", "DICT_MERGE",

})  # fmt: skip
_NO_OPERATION = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "PRECALL"})


def is_fresh(iterator: object, value: object) -> bool:
    """Whether a value that ``next()`` of an iterator has just returned is its alone: a container
    that the expression of a ``yield`` makes, or that a loader of data has collated."""
    if type(value) not in (list, dict):
        return False
    while type(iterator) is GeneratorType and type(iterator.gi_yieldfrom) is GeneratorType:
        iterator = iterator.gi_yieldfrom
    if type(iterator) is GeneratorType:
        frame = iterator.gi_frame
        if frame is None or iterator.gi_yieldfrom is not None:
            return False
        return frame.f_lasti in _fresh_yields(iterator.gi_code)
    is_loader = type(iterator).__module__.startswith("evergrad.utils.data")
    return is_loader and bool(getattr(iterator, "makes_batches", False))


@functools.lru_cache(maxsize=512)
def _fresh_yields(code: CodeType) -> frozenset[int]:
    """The offsets of the instructions that yield a container which was made just before."""
    listed = [i for i in dis.get_instructions(code) if i.opname not in _NO_OPERATION]
    found: set[int] = set()
    for position, instruction in enumerate(listed):
        if instruction.opname != "YIELD_VALUE" or position < 2:
            continue
        last, former = listed[position - 1], listed[position - 2]
        is_comprehension = last.opname == "CALL" and former.opname == "GET_ITER"
        if last.opname in _MAKES or is_comprehension:
            found.add(instruction.offset)
    return frozenset(found)
