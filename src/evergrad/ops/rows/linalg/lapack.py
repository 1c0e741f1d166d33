"""LAPACK and the BLAS under it, called on stacks of matrices.

:func:`call` runs a routine once for each matrix of a stack. An array argument has the stack as its
first dimension (contiguous matrices, or blocks of them given by a leading dimension); all matrices
are column-major, so that a row-major one is read as its transpose. Flags and sizes are the same for
the whole stack. Scratch memory is sized by LAPACK's own workspace query.
"""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache
from typing import Any

import numpy as np

from evergrad.core import openblas
from evergrad.core.types import Array

# The arguments of each routine in LAPACK's names.
_BOTH = {
    "gemm": "transa transb m n k alpha a lda b ldb beta c ldc",
    "trsm": "side uplo trans diag m n alpha a lda b ldb",
    "trsv": "uplo trans diag n a lda x incx",
    "trmm": "side uplo transa diag m n alpha a lda b ldb",
    "trtri": "uplo diag n a lda info",
    "lauum": "uplo n a lda info",
    "laswp": "n a lda k1 k2 ipiv incx",
    "omatcopy": "order trans rows cols alpha a lda b ldb",
    "laset": "uplo m n alpha beta a lda",
    "lacpy": "uplo m n a lda b ldb",
    "getrf": "m n a lda ipiv info",
    "getri": "n a lda ipiv work lwork info",
    "potrf": "uplo n a lda info",
    "sytrf": "uplo n a lda ipiv work lwork info",
    "sytrs": "uplo n nrhs a lda ipiv b ldb info",
    "geqrf": "m n a lda tau work lwork info",
    "gels": "trans m n nrhs a lda b ldb work lwork info",
}
_REAL = _BOTH | {
    "orgqr": "m n k a lda tau work lwork info",
    "ormqr": "side trans m n k a lda tau c ldc work lwork info",
    "syevd": "jobz uplo n a lda w work lwork iwork liwork info",
    "geev": "jobvl jobvr n a lda wr wi vl ldvl vr ldvr work lwork info",
    "gesdd": "jobz m n a lda s u ldu vt ldvt work lwork iwork info",
    "gelsy": "m n nrhs a lda b ldb jpvt rcond rank work lwork info",
    "gelsd": "m n nrhs a lda b ldb s rcond rank work lwork iwork info",
    "gelss": "m n nrhs a lda b ldb s rcond rank work lwork info",
}
_COMPLEX = _BOTH | {
    "hetrf": _BOTH["sytrf"],
    "hetrs": _BOTH["sytrs"],
    "ungqr": _REAL["orgqr"],
    "unmqr": _REAL["ormqr"],
    "heevd": "jobz uplo n a lda w work lwork rwork lrwork iwork liwork info",
    "geev": "jobvl jobvr n a lda w vl ldvl vr ldvr work lwork rwork info",
    "gesdd": "jobz m n a lda s u ldu vt ldvt work lwork rwork iwork info",
    "gelsy": "m n nrhs a lda b ldb jpvt rcond rank work lwork rwork info",
    "gelsd": "m n nrhs a lda b ldb s rcond rank work lwork rwork iwork info",
    "gelss": "m n nrhs a lda b ldb s rcond rank work lwork rwork info",
}
_TABLES = {"f": ("s", _REAL), "d": ("d", _REAL), "F": ("c", _COMPLEX), "D": ("z", _COMPLEX)}

_SCRATCH = ("work", "rwork", "iwork")
# Of these one serves the whole stack.
_SHARED = frozenset((*_SCRATCH, "alpha", "beta", "rcond"))


@cache
def _routine(name: str, char: str) -> tuple[Any, tuple[str, ...]]:
    """A routine for an element type, and the names of its arguments."""
    letter, table = _TABLES[char]
    names = tuple(table[name].split())
    found = openblas.function(f"{letter}{name}_")
    found.argtypes = [ctypes.c_void_p] * len(names)
    found.restype = None
    return found, names


def call(name: str, dtype: np.dtype[np.generic], count: int, **given: object) -> Array:
    """Run a routine on ``count`` matrices; gives its ``info`` for each of them.

    An array with one element in the stack serves all. A number for ``rwork`` or ``iwork`` is the
    size of that scratch where LAPACK has no query for it.
    """
    routine, names = _routine(name, dtype.char)
    info = np.zeros(count, np.int32)
    held: dict[str, Any] = {**given, "info": info}
    if "lwork" in names:
        plain = tuple([item for item in given.items() if item[1].__class__ in (int, bytes)])
        for word, size in _scratch_sizes(name, dtype, plain).items():
            held[word], held["l" + word] = np.empty(size, _scratch_type(word, dtype)), size
    arguments, integers = _pointers(names, held)
    moving = [
        (place, held[word].strides[0])
        for place, word in enumerate(names)
        if word not in _SHARED and isinstance(held[word], np.ndarray) and len(held[word]) > 1
    ] if count > 1 else []  # fmt: skip
    for _ in range(count):
        routine(*arguments)
        for place, step in moving:
            arguments[place] += step
    del integers  # what the arguments point to
    return info


def _pointers(names: tuple[str, ...], held: dict[str, Any]) -> tuple[list[object], object]:
    """The arguments as addresses, and the memory of those that are integers."""
    integers = (ctypes.c_int * len(names))()
    base = ctypes.addressof(integers)
    arguments: list[Any] = []
    for place, word in enumerate(names):
        value = held[word]
        if value.__class__ is int:
            integers[place] = value
            arguments.append(base + 4 * place)
        elif value.__class__ is bytes:
            arguments.append(value)
        else:
            arguments.append(value.__array_interface__["data"][0])
    return arguments, integers


@lru_cache(maxsize=256)
def _scratch_sizes(
    name: str, dtype: np.dtype[np.generic], plain: tuple[tuple[str, Any], ...]
) -> dict[str, int]:
    """The elements of each scratch array: by LAPACK's query, or else as the caller gave them."""
    routine, names = _routine(name, dtype.char)
    queried = {word: np.zeros(1, _scratch_type(word, dtype)) for word in _SCRATCH if word in names}
    unread = np.zeros(1, dtype)
    held = dict.fromkeys(names, unread) | dict(plain) | queried
    held |= dict.fromkeys(("lwork", "lrwork", "liwork"), -1) | {"info": np.zeros(1, np.int32)}
    arguments, integers = _pointers(names, held)
    routine(*arguments)
    del integers
    wanted = {word: _rounded_up(found[0].real) for word, found in queried.items()}
    return {word: max(1, size, dict(plain).get(word, 0)) for word, size in wanted.items()}


def _rounded_up(size: Any) -> int:
    """A size that LAPACK gave as a floating-point number, which may be the next below it."""
    return (
        int(np.nextafter(size, np.inf, dtype=size.dtype)) if size.dtype.kind == "f" else int(size)
    )


def _scratch_type(word: str, dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    if word == "iwork":
        return np.dtype(np.int32)
    return dtype if word == "work" else np.dtype(dtype.char.lower())
