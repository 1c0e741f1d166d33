"""The algebra of tensors whose shapes differ: operands are continued with zeros, not broadcast.

A value is a function from multi-indices to numbers that is zero almost everywhere. An array with an
element at each index of a box around the others represents it: ``[1, 2]`` and ``[1, 2, 0]`` are one
value, and so are ``[1, 2]`` and ``[[1], [2]]``. A :class:`Tensor` holds a representative, a
:class:`Batch` many of any shapes without padding. See ``docs/design/ragged.md``.
"""

from evergrad.ragged.algebra import (
    add,
    allclose,
    convolve,
    correlate,
    equal,
    inner,
    kron,
    mul,
    neg,
    norm,
    power,
    scale,
    shrink,
    stack,
    sub,
    sum,
)
from evergrad.ragged.batch import Batch, batch
from evergrad.ragged.files import load, read_csv, read_vsla, save, write_csv
from evergrad.ragged.matrix import matmul
from evergrad.ragged.polynomial import evaluate, from_polynomial, roots, to_polynomial
from evergrad.ragged.value import Tensor, one, tensor, zero
from evergrad.ragged.window import Pyramid, Window, windows

__all__ = [
    "Batch", "Pyramid", "Tensor", "Window", "add", "allclose", "batch", "convolve", "correlate",
    "equal", "evaluate", "from_polynomial", "inner", "kron", "load", "matmul", "mul", "neg", "norm",
    "one", "power", "read_csv", "read_vsla", "roots", "save", "scale", "shrink", "stack", "sub",
    "sum", "tensor", "to_polynomial", "windows", "write_csv", "zero",
]  # fmt: skip
