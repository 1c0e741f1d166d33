"""The exceptions evergrad raises, beside Python's own.

PyTorch programs catch ``RuntimeError``, ``TypeError``, ``ValueError`` and ``IndexError``; every
class here derives from the one a PyTorch program would expect in its place.
"""

from __future__ import annotations

import difflib
import pickle
from collections.abc import Callable, Iterable


class ShapeError(RuntimeError):
    """Shapes that an op does not accept."""


class DTypeError(RuntimeError):
    """An element type that an op does not accept, or that cannot represent its result."""


class GradientError(RuntimeError):
    """A gradient that cannot be computed correctly: none is returned."""


class SavedValueError(GradientError):
    """A residual that was overwritten or released after it was saved for backward."""


class TraceError(RuntimeError):
    """Python code read the value of a tensor that is symbolic while tracing."""


class IndexOutOfRangeError(IndexError, RuntimeError):
    """An index out of range in a compiled program, where some lookups raise one class and some the
    other: ``gather`` is a function of its own, and a part of losses."""


class AssumptionError(RuntimeError):
    """What a compiled program takes for granted does not hold for these values, for which Python
    would have gone on: a result whose length depends on data has another length."""


class NonFiniteError(RuntimeError, FloatingPointError):
    """An infinity or a NaN in a checked computation."""


class MemoryLimitError(RuntimeError):
    """A program with no memory plan within its limit."""


class VerificationError(RuntimeError):
    """A compiler pass or the memory planner broke an invariant: a bug of this package."""


class SteadyStateError(RuntimeError):
    """A training step after which other bytes are live than after the step before it."""


class LinAlgError(RuntimeError):
    """A matrix without the factorization: singular, or not positive-definite.

    >>> try:
    ...     eg.linalg.inv(eg.zeros(2, 2))
    ... except eg.linalg.LinAlgError:
    ...     print("singular")
    singular
    """


class FileFormatError(pickle.UnpicklingError, RuntimeError):
    """A file that is truncated, corrupted, or not of a format that is read here."""


class UnsafeFileError(FileFormatError):
    """A file that references a class or function that is not allowed."""


class FileTooLargeError(FileFormatError, ValueError):
    """A file, or what it unpacks to, beyond the limit of its reader."""


class UnknownNameError(AttributeError):
    """An attribute that does not exist, with the nearest one that does.

    The search is left to the moment the message is read: ``hasattr`` never reads it.
    """

    def __init__(self, owner: str, name: str, names: Callable[[], Iterable[str]]) -> None:
        super().__init__(owner, name)
        self.owner = owner
        self.unknown = name
        self._names = names

    def __reduce__(self) -> tuple[type[AttributeError], tuple[str]]:
        return AttributeError, (str(self),)

    def __str__(self) -> str:
        said = f"{self.owner} has no attribute {self.unknown!r}"
        near = nearest(self.unknown, self._names())
        return said if near is None else f"{said}; did you mean {near!r}?"


def nearest(name: str, names: Iterable[str], cutoff: float = 0.7) -> str | None:
    """The public name that is spelled most like this one, capitals aside."""
    known = {n.lower(): n for n in sorted(names, reverse=True) if not n.startswith("_")}
    found = difflib.get_close_matches(name.lower(), known, n=1, cutoff=cutoff)
    return known[found[0]] if found else None
