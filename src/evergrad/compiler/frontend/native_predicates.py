"""Native functions that are asked by Python and by other native code.

Each is code with a table: ``i64 code(table, given)``. To Python it is a builtin function; native
code finds both in that function's own object (:func:`code_of`) and asks without Python's numbers
and truth values, whose reference counts all threads share.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from evergrad.compiler.native import jit
from evergrad.compiler.native.builtin import builtin

# A function's own object is a tuple that begins with the addresses of its table and its code.
ASK_TEXT = r"""
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyLong_AsVoidPtr(ptr)

; What the code of a function with this own object gives.
define internal i64 @ask(ptr %own, ptr %given) alwaysinline nounwind {
  %table_number = call ptr @PyTuple_GetItem(ptr %own, i64 0)
  %code_number = call ptr @PyTuple_GetItem(ptr %own, i64 1)
  %table = call ptr @PyLong_AsVoidPtr(ptr %table_number)
  %code = call ptr @PyLong_AsVoidPtr(ptr %code_number)
  %found = call i64 %code(ptr %table, ptr %given)
  ret i64 %found
}
"""
TEXT = (
    ASK_TEXT
    + r"""
declare ptr @PyBool_FromLong(i64)
declare ptr @PyLong_FromLongLong(i64)

define ptr @answer(ptr %own, ptr %given) nounwind {
  %found = call i64 @ask(ptr %own, ptr %given)
  %object = call ptr @PyBool_FromLong(i64 %found)
  ret ptr %object
}

define ptr @number(ptr %own, ptr %given) nounwind {
  %found = call i64 @ask(ptr %own, ptr %given)
  %object = call ptr @PyLong_FromLongLong(i64 %found)
  ret ptr %object
}
"""
)


class Own(tuple[Any, ...]):
    """The own object of such a function, with what it keeps alive."""

    __slots__ = ()


@cache
def native() -> dict[str, int]:
    """The addresses of what the text defines."""
    return jit.addresses_in(TEXT, ("answer", "number"))


def answer(name: str, code: int, table: int, kept: Any = None, takes_one: bool = False) -> Any:
    """A function that is true or false: whether its code gives one or zero."""
    own = Own((table, code, kept))
    return builtin(name, native()["answer"], own, takes_one)


def number(name: str, code: int, table: int) -> Any:
    """A function without arguments that gives the number which its code gives."""
    return builtin(name, native()["number"], Own((table, code)))


def code_of(function: Any) -> tuple[int, int]:
    """The addresses of a function's code and of its table; zeros if it is of another kind."""
    own = getattr(function, "__self__", None)
    return (own[1], own[0]) if isinstance(own, Own) else (0, 0)
