"""Errors for keyword arguments that a function does not take: they name the nearest that it does.

Python reports such a keyword when it binds the arguments, before the function runs. Functions that
are called by a wrapper anyhow get the suggestion there; :func:`suggest_keywords` wraps the
constructors of public classes.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from types import TracebackType

from evergrad.errors import nearest

_UNKNOWN = re.compile(r"(?:_(?!_))?(.*got an unexpected keyword argument '(\w+)')$")
# Modules whose wrappers hand arguments on as they are.
_WRAPPERS = frozenset(("evergrad.core.prepared",))


def explain_keyword(
    error: TypeError, function: Callable[..., object], others: Iterable[str] = ()
) -> None:
    """Add the nearest keyword to the error of a call of ``function`` by the present frame.

    ``others`` are keywords that the caller takes itself. Errors from within the function stay.
    """
    found = _UNKNOWN.match(str(error))
    if found is None or not _is_of_call(error.__traceback__):
        return
    said, keyword = found.groups()
    near = nearest(keyword, [*inspect.signature(function).parameters, *others], cutoff=0.6)
    error.args = (said if near is None else f"{said}; did you mean {near!r}?",)


def unknown_keyword(name: str, keyword: str, known: Iterable[str]) -> TypeError:
    """The error of a function that takes keywords of any name, and does not know this one."""
    near = nearest(keyword, known, cutoff=0.6)
    said = f"{name}() got an unexpected keyword argument {keyword!r}"
    return TypeError(said if near is None else f"{said}; did you mean {near!r}?")


def _is_of_call(traceback: TracebackType | None) -> bool:
    """Whether a function that the first frame has called, or its wrappers, raised an error."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
        if traceback.tb_frame.f_globals.get("__name__") not in _WRAPPERS:
            return False
    return True


def suggest_keywords(*classes: type) -> None:
    """Have the constructors that these classes define suggest keywords."""
    for cls in classes:
        if "__init__" in vars(cls):
            cls.__init__ = _suggesting(vars(cls)["__init__"])  # type: ignore[misc]


def _suggesting(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def constructor(self: object, *args: object, **kwargs: object) -> None:
        try:
            init(self, *args, **kwargs)
        except TypeError as error:
            explain_keyword(error, init)
            raise

    return constructor
