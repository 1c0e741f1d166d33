"""PyTorch's names of layouts and memory formats.

A dense tensor is contiguous in C order unless it is a view, so memory formats are accepted and
compared, and change nothing. Layouts other than ``strided`` are those of :mod:`evergrad.sparse` and
:mod:`evergrad.nested`.
"""

from __future__ import annotations


class _Named:
    """A named constant that prints and pickles by its name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"evergrad.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class layout(_Named):  # noqa: N801 - PyTorch's spelling
    """How a tensor is stored: dense (``strided``), sparse or ragged."""

    __slots__ = ()


class memory_format(_Named):  # noqa: N801 - PyTorch's spelling
    """The order of the dimensions in memory."""

    __slots__ = ()


strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
sparse_csc = layout("sparse_csc")
sparse_bsr = layout("sparse_bsr")
sparse_bsc = layout("sparse_bsc")
jagged = layout("jagged")
contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
