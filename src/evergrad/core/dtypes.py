"""Element types: names, promotion, limits.

Owns everything that depends on an element type alone, and no tensor.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from evergrad.core.package_name import package_name

Scalar = bool | int | float | complex

BOOL, INTEGRAL, FLOATING, COMPLEX = range(4)


class dtype:  # noqa: N801 - PyTorch's spelling
    """One element type. There is a single object for each, so ``is`` compares them."""

    __slots__ = (
        "_rank",
        "category",
        "compute",
        "is_complex",
        "is_floating_point",
        "is_signed",
        "itemsize",
        "name",
        "np",
    )

    def __init__(self, name: str, numpy_type: Any, category: int, rank: int) -> None:
        self.name: str = name
        self.np: np.dtype[Any] = np.dtype(numpy_type)
        self.itemsize: int = self.np.itemsize
        self.category: int = category
        self._rank = rank
        self.is_floating_point: bool = category == FLOATING
        self.is_complex: bool = category == COMPLEX
        self.is_signed: bool = name != "bool" and not name.startswith("uint")
        # The NumPy type to calculate in: 16-bit floats are storage, float32 does the arithmetic.
        low = category == FLOATING and self.itemsize <= 2
        self.compute: np.dtype[Any] = np.dtype(np.float32) if low else self.np

    def __repr__(self) -> str:
        return f"{package_name()}.{self.name}"

    __str__ = __repr__

    def __reduce__(self) -> tuple[Callable[[str], dtype], tuple[str]]:
        return _dtype_named, (self.name,)

    def to_real(self) -> dtype:
        return _TO_REAL.get(self, self)

    def to_complex(self) -> dtype:
        return _TO_COMPLEX.get(self, complex64)


def _dtype_named(name: str) -> dtype:
    return BY_NAME[name]


copyreg.pickle(dtype, dtype.__reduce__)

bool_: dtype = dtype("bool", np.bool_, BOOL, 0)
uint8: dtype = dtype("uint8", np.uint8, INTEGRAL, 1)
int8: dtype = dtype("int8", np.int8, INTEGRAL, 2)
int16: dtype = dtype("int16", np.int16, INTEGRAL, 3)
int32: dtype = dtype("int32", np.int32, INTEGRAL, 4)
int64: dtype = dtype("int64", np.int64, INTEGRAL, 5)
float16: dtype = dtype("float16", np.float16, FLOATING, 6)
bfloat16: dtype = dtype("bfloat16", ml_dtypes.bfloat16, FLOATING, 7)
float32: dtype = dtype("float32", np.float32, FLOATING, 8)
float64: dtype = dtype("float64", np.float64, FLOATING, 9)
complex64: dtype = dtype("complex64", np.complex64, COMPLEX, 10)
complex128: dtype = dtype("complex128", np.complex128, COMPLEX, 11)

ALL = (
    bool_, uint8, int8, int16, int32, int64,
    float16, bfloat16, float32, float64, complex64, complex128,
)  # fmt: skip
# Types that store and convert; as in PyTorch they are promoted with nothing else of their kind.
uint16: dtype = dtype("uint16", np.uint16, INTEGRAL, 2)
uint32: dtype = dtype("uint32", np.uint32, INTEGRAL, 3)
uint64: dtype = dtype("uint64", np.uint64, INTEGRAL, 4)
float8_e4m3fn: dtype = dtype("float8_e4m3fn", ml_dtypes.float8_e4m3fn, FLOATING, 5)
float8_e4m3fnuz: dtype = dtype("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz, FLOATING, 5)
float8_e5m2: dtype = dtype("float8_e5m2", ml_dtypes.float8_e5m2, FLOATING, 5)
float8_e5m2fnuz: dtype = dtype("float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz, FLOATING, 5)
float8_e8m0fnu: dtype = dtype("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu, FLOATING, 5)
# NumPy has no complex number of two halves: the name and the size, and no arithmetic.
complex32: dtype = dtype("complex32", np.dtype("V4"), COMPLEX, 9)

STORED = (
    uint16, uint32, uint64, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz,
    float8_e8m0fnu,
)  # fmt: skip
BY_NAME = {t.name: t for t in (*ALL, *STORED, complex32)}
ALIASES = {
    "half": float16,
    "float": float32,
    "double": float64,
    "short": int16,
    "int": int32,
    "long": int64,
    "chalf": complex32,
    "cfloat": complex64,
    "cdouble": complex128,
}
_BY_NUMPY = {t.np: t for t in (*ALL, *STORED)}
_TO_REAL = {complex64: float32, complex128: float64}
_TO_COMPLEX = {
    float32: complex64, float64: complex128, complex64: complex64, complex128: complex128,
}  # fmt: skip
_OF_PYTHON: dict[object, dtype] = {bool: bool_, int: int64, float: float64, complex: complex128}

_default_float = float32


def conversion_type(target: dtype) -> np.dtype[np.generic]:
    """The signed integers through which floats become integers of a type: those of C on x86."""
    return np.dtype(np.int64 if target in (int64, uint8) else np.int32)


def from_numpy_dtype(numpy_type: Any) -> dtype:
    """The element type of a NumPy array, or a ``TypeError`` that lists the supported ones."""
    found = _BY_NUMPY.get(np.dtype(numpy_type))
    if found is None:
        native = np.dtype(numpy_type).newbyteorder("=")
        found = _BY_NUMPY.get(native)
    if found is None:
        raise TypeError(
            f"can't convert np.ndarray of type {np.dtype(numpy_type)}. The only supported types "
            "are: " + ", ".join(t.name for t in reversed(ALL)) + "."
        )
    return found


def as_dtype(value: object) -> dtype:
    """The argument ``dtype=``: ours, Python's ``float``, ``int``, ``bool``, or NumPy's."""
    if isinstance(value, dtype):
        return value
    if value in _OF_PYTHON:
        return _OF_PYTHON[value]
    try:
        return from_numpy_dtype(value)
    except TypeError:
        raise TypeError(
            f"dtype must be an evergrad dtype such as evergrad.float32, not {value!r}"
        ) from None


def get_default_dtype() -> dtype:
    """The element type of floats made from Python numbers."""
    return _default_float


def set_default_dtype(d: dtype) -> None:
    """Choose the element type of floats made from Python numbers."""
    global _default_float
    if not isinstance(d, dtype) or not d.is_floating_point:
        raise TypeError(
            f"only floating-point types are supported as the default type, not {d!r}; "
            "as in set_default_dtype(evergrad.float64)"
        )
    _default_float = d


def of_scalar(value: object) -> dtype:
    """The type a Python number takes when it becomes a tensor by itself."""
    kind = value.__class__  # that of the number which a symbolic one is
    if kind is bool:
        return bool_
    if kind is int:
        return int64
    if kind is float:
        return _default_float
    if kind is complex:
        return _default_float.to_complex()
    raise TypeError(f"{kind.__name__} is not a number")


def scalar_type(kind: type) -> dtype:
    """The type of a class of Python numbers in promotion."""
    if kind is float:
        return _default_float
    if kind is complex:
        return _default_float.to_complex()
    found = _OF_PYTHON.get(kind)
    if found is None:
        raise TypeError(f"an argument must be a Tensor or a number, not {name_of_type(kind)}")
    return found


def name_of_type(kind: type) -> str:
    """The name of a type in an error, with its module if it is called as the dense one is."""
    return kind.__name__ if kind.__name__ != "Tensor" else f"{kind.__module__}.{kind.__qualname__}"


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """The smallest type that holds both, by PyTorch's table."""
    type1, type2 = as_dtype(type1), as_dtype(type2)
    if type1 is type2:
        return type1
    if type1.category == type2.category and (type1 in STORED or type2 in STORED):
        raise RuntimeError(
            f"Promotion for {type1.name} and {type2.name} is not supported; convert one of them "
            "with .to(dtype) first"
        )
    low, high = (type1, type2) if type1._rank < type2._rank else (type2, type1)
    if high is complex64:
        return complex128 if low is float64 else complex64
    if low is uint8 and high is int8:
        return int16
    if low is float16 and high is bfloat16:
        return float32
    return high


def can_cast(from_: dtype, to: dtype) -> bool:
    """Whether a value of one type may be stored in another: the category may not fall."""
    from_, to = as_dtype(from_), as_dtype(to)
    if from_.category > to.category:
        return False
    return not (to is bool_ and from_ is not bool_)


class finfo:  # noqa: N801 - PyTorch's spelling
    """The numeric limits of a floating-point type."""

    def __init__(self, type: dtype | type[float] | type[complex] | None = None) -> None:
        dtype_ = _OF_PYTHON.get(type, type) or _default_float
        if not isinstance(dtype_, dtype) or dtype_.category < FLOATING:
            raise TypeError(
                f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle "
                f"'{dtype_}'".replace("torch.", "evergrad.")
            )
        real = dtype_.to_real()
        info = ml_dtypes.finfo(real.np)  # type: ignore[no-untyped-call]
        self.dtype: str = real.name
        self.bits: int = int(info.bits)
        self.eps: float = float(info.eps)
        self.max: float = float(info.max)
        self.min: float = float(info.min)
        self.tiny: float = float(info.tiny)
        self.smallest_normal: float = float(info.tiny)
        self.resolution: float = 10.0 ** -int(info.precision)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, finfo) and self.dtype == other.dtype

    __hash__ = None  # type: ignore[assignment] # as PyTorch's

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
            f"eps={self.eps:g}, smallest_normal={self.smallest_normal:g}, "
            f"tiny={self.tiny:g}, dtype={self.dtype})"
        )


class iinfo:  # noqa: N801 - PyTorch's spelling
    """The numeric limits of an integer type."""

    def __init__(self, type: dtype | type[int]) -> None:
        type = _OF_PYTHON.get(type, type)
        if type is bool_:
            raise TypeError("evergrad.bool is not supported by evergrad.iinfo")
        if not isinstance(type, dtype) or type.category != INTEGRAL:
            raise TypeError(
                f"evergrad.iinfo() requires an integer input type. Use evergrad.finfo to handle "
                f"'{type}'"
            )
        info = np.iinfo(type.np)
        self.dtype: str = type.name
        self.bits: int = int(info.bits)
        self.max: int = int(info.max)
        self.min: int = int(info.min)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, iinfo) and self.dtype == other.dtype

    __hash__ = None  # type: ignore[assignment] # as PyTorch's

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"
