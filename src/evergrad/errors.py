"""The exceptions evergrad raises, beside Python's own.

PyTorch programs catch ``RuntimeError``, ``TypeError``, ``ValueError`` and ``IndexError``; every
class here derives from the one a PyTorch program would expect in its place.
"""

from __future__ import annotations

import pickle


class ShapeError(RuntimeError):
    """Shapes that do not fit an op."""


class DTypeError(RuntimeError):
    """An element type that an op does not take, or that cannot hold its result."""


class GradientError(RuntimeError):
    """A gradient that was asked for cannot be given rightly, so none is given."""


class SavedValueError(GradientError):
    """A value that backward needs was overwritten or released after it was saved."""


class TraceError(RuntimeError):
    """Python asked for the number inside a value that exists only symbolically."""


class IndexOutOfRangeError(IndexError, RuntimeError):
    """An index out of range in a compiled program, where some lookups raise one class and some the
    other: ``gather`` is a function of its own, and a part of losses."""


class NonFiniteError(RuntimeError, FloatingPointError):
    """A checked computation gave an infinity or a NaN."""


class MemoryLimitError(RuntimeError):
    """A program that cannot be planned within the memory it was given."""


class VerificationError(RuntimeError):
    """A compiler pass or the memory planner broke an invariant: a bug of this package."""


class SteadyStateError(RuntimeError):
    """A step ended with other live bytes than the step before it."""


class LinAlgError(RuntimeError):
    """A matrix that a factorization cannot take: singular, or not positive-definite."""


class FileFormatError(pickle.UnpicklingError, RuntimeError):
    """A file that is truncated, corrupted, or not of a format that is read here."""


class UnsafeFileError(FileFormatError):
    """A file that asks for a class or function nobody has granted it."""
