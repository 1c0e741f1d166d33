"""PyTorch's names of layouts and memory formats.

A result is contiguous in C order unless it is a view; ``contiguous`` and ``to`` give the order of
another memory format, as a view of a permuted copy. Other functions accept a memory format, and it
changes nothing. Layouts other than ``strided`` are those of :mod:`evergrad.sparse` and
:mod:`evergrad.nested`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.core.package_name import package_name

if TYPE_CHECKING:
    from evergrad.core.types import Array


class _Named:
    """A named constant that prints and pickles by its name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name: str = name

    def __repr__(self) -> str:
        return f"{package_name()}.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class layout(_Named):  # noqa: N801 - PyTorch's spelling
    """How a tensor is stored: dense (``strided``), sparse or ragged."""

    __slots__ = ()


class memory_format(_Named):  # noqa: N801 - PyTorch's spelling
    """The order of the dimensions in memory, from the outermost one; ``None`` for their own."""

    __slots__ = ("order",)

    def __init__(self, name: str, order: tuple[int, ...] | None = None) -> None:
        super().__init__(name)
        self.order: tuple[int, ...] | None = order

    def fits(self, array: Array) -> bool:
        """Whether an array has this order without gaps."""
        order = self.order or tuple(range(array.ndim))
        if array.ndim != len(order):
            return False
        expected = array.itemsize
        for dim in reversed(order):
            if array.shape[dim] != 1:
                if array.strides[dim] != expected:
                    return False
                expected *= array.shape[dim]
        return True


strided: layout = layout("strided")
sparse_coo: layout = layout("sparse_coo")
sparse_csr: layout = layout("sparse_csr")
sparse_csc: layout = layout("sparse_csc")
sparse_bsr: layout = layout("sparse_bsr")
sparse_bsc: layout = layout("sparse_bsc")
jagged: layout = layout("jagged")
contiguous_format: memory_format = memory_format("contiguous_format")
preserve_format: memory_format = memory_format("preserve_format")
channels_last: memory_format = memory_format("channels_last", (0, 2, 3, 1))
channels_last_3d: memory_format = memory_format("channels_last_3d", (0, 2, 3, 4, 1))
