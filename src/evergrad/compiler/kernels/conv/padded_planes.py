"""Padded planes: the packed layout of images that direct convolution kernels read.

A strided convolution has one plane for each phase of rows and columns. Windows then have stride
one, and a tap is at a constant offset from the start of its window. The halo between two rows
belongs to no window; where both sides are padded, neighbouring rows share it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from evergrad.compiler.codegen.kernel_builder import KernelBuilder


class Strides(NamedTuple):
    """The strides of an image in elements."""

    sample: int
    channel: int
    row: int
    column: int


class Axis(NamedTuple):
    """One dimension of a correlation: ``y[start + out_stride * i] = sum of w[tap] x[stride * i +
    shift]`` over (tap, shift) pairs, for ``i`` below ``extent``; ``x`` has ``size`` elements."""

    size: int
    extent: int
    stride: int
    start: int
    out_stride: int
    taps: tuple[tuple[int, int], ...]

    @property
    def low(self) -> int:
        return _of_taps(self.taps, self.stride)[0]

    @property
    def phases(self) -> tuple[int, ...]:
        return _of_taps(self.taps, self.stride)[1]

    @property
    def halo(self) -> int:
        """The elements of a plane beyond its outputs."""
        return _of_taps(self.taps, self.stride)[2]

    def valid_range(self, phase: int) -> tuple[int, int]:
        """The range of a phase's plane that is inside x; the rest is padding."""
        begin = self.low + phase
        first = max(0, -(begin // self.stride))
        last = min(self.extent + self.halo, (self.size - 1 - begin) // self.stride + 1)
        return first, max(first, last)

    @property
    def shared_padding(self) -> int:
        """The padding after a row that is also the padding before the next one."""
        return _shared_padding(self)

    def valid_outputs(self, shift: int) -> tuple[int, int]:
        """The range of outputs for which a tap reads inside x."""
        first = max(0, -(shift // self.stride))
        return first, max(first, min(self.extent, (self.size - 1 - shift) // self.stride + 1))

    @property
    def valid_pairs(self) -> int:
        """The (output, tap) pairs that read inside x."""
        ranges = [self.valid_outputs(shift) for _, shift in self.taps]
        return sum(last - first for first, last in ranges)

    def plane_offset(self, shift: int) -> tuple[int, int]:
        """The index of a shift's phase, and its offset in that plane."""
        distance = shift - self.low
        return self.phases.index(distance % self.stride), distance // self.stride


# Choosing a tiling reads these for each candidate.
@lru_cache(256)
def _of_taps(taps: tuple[tuple[int, int], ...], stride: int) -> tuple[int, tuple[int, ...], int]:
    """The lowest shift, the phases and the halo of an axis."""
    low = min([shift for _, shift in taps], default=0)
    phases = sorted({(shift - low) % stride for _, shift in taps}) or [0]
    return low, tuple(phases), max([(shift - low) // stride for _, shift in taps], default=0)


@lru_cache(256)
def _shared_padding(axis: Axis) -> int:
    ends = [axis.valid_range(phase) for phase in axis.phases]
    length = axis.extent + axis.halo
    return min(axis.halo, *(min(first, length - last) for first, last in ends))


class Correlation(NamedTuple):
    """A cross-correlation of x with a weight to y, in groups of channels."""

    samples: int
    groups: int
    channels: int  # of a group of x
    outputs: int  # of a group of y
    rows: Axis
    columns: Axis

    @property
    def taps(self) -> list[tuple[int, int]]:
        """The (row, column) pairs of the kernel."""
        return [(r, c) for r, _ in self.rows.taps for c, _ in self.columns.taps]

    @property
    def planes(self) -> int:
        return len(self.rows.phases) * len(self.columns.phases)

    @property
    def width(self) -> int:
        """The elements of a row of a plane."""
        return self.columns.extent + self.columns.halo - self.columns.shared_padding

    def rows_fitting(self, size: int, outputs: int) -> int:
        """How many rows of all planes and of ``outputs`` fit into ``size`` elements; at least 1."""
        row = (self.channels * self.planes + outputs) * self.width
        return max(1, min(self.rows.extent, size // row - self.rows.halo))


class Planes(NamedTuple):
    """Integer arguments of kernels that pack planes; the table of planes is their first table."""

    channels: int
    planes: int
    plane_rows: int
    width: int
    channel_size: int
    size_rows: int
    stride_rows: int
    x_sample: int
    x_channel: int
    x_row: int
    x_stride: int

    @classmethod
    def of(cls, problem: Correlation, x: Strides, block: int) -> Planes:
        """The planes for ``block`` rows of outputs."""
        rows = block + problem.rows.halo
        return cls(
            problem.channels, problem.planes, rows, problem.width,
            problem.planes * rows * problem.width, problem.rows.size, problem.rows.stride, x.sample,
            x.channel, x.row, x.column * problem.columns.stride,
        )  # fmt: skip

    def size(self, wide: int) -> int:
        """The elements of all planes and of the zeros after them, a multiple of ``wide``."""
        return (self.channels * self.channel_size // wide + 3) * wide

    def tables(self, problem: Correlation, x: Strides) -> list[int]:
        """For each plane the row of x and the offset in it where the plane starts, and the range of
        its columns that is inside x."""
        rows, columns = problem.rows, problem.columns
        table = []
        for row_phase in rows.phases:
            for phase in columns.phases:
                begin = (columns.low + phase) * x.column
                table += [rows.low + row_phase, begin, *columns.valid_range(phase)]
        return table

    def tap_offsets(self, problem: Correlation) -> list[int]:
        """The offset of each tap from the start of its window."""
        rows, columns = problem.rows, problem.columns
        table = []
        for _, row_shift in rows.taps:
            row_phase, row = rows.plane_offset(row_shift)
            for _, shift in columns.taps:
                phase, column = columns.plane_offset(shift)
                number = row_phase * len(columns.phases) + phase
                table.append((number * self.plane_rows + row) * self.width + column)
        return table


def pack_planes(ir: KernelBuilder, wide: int, x: str, row: str, to: str) -> None:
    """Pack the padded planes of all channels into scratch memory, followed by zeros: twice as
    many as are read at once. ``row`` is the first row of outputs."""
    for kind in ir.by_stride(ir["x_stride"]):
        _pack(ir, kind, x, row, to)
    end = ir.at(to, ir.mul(ir["channels"], ir["channel_size"]))
    with ir.loop(2 * wide, ir.vector.lanes) as n:
        ir.store_vector("zeroinitializer", ir.at(end, n))


def _pack(ir: KernelBuilder, kind: int, x: str, row: str, to: str) -> None:
    """Pack the planes of all channels; for ``kind`` see :meth:`.KernelBuilder.by_stride`."""
    size = ir.mul(ir["plane_rows"], ir["width"])
    top = ir.mul(row, ir["stride_rows"])
    with ir.loop(ir["channels"]) as channel, ir.loop(ir["planes"]) as plane:
        source = ir.at(x, ir.mul(channel, ir["x_channel"]))
        entry = ir.table(ir.mul(plane, 4))
        begin, column, low, high = (ir.number(entry, n) for n in range(4))
        start = ir.add(ir.mul(channel, ir["channel_size"]), ir.mul(plane, size))
        with ir.loop(ir["plane_rows"]) as r:
            at = ir.add(top, begin, ir.mul(r, ir["stride_rows"]))
            inside = ir.op(f"icmp ult i64 {at}, {ir['size_rows']}")
            upto = ir.op(f"select i1 {inside}, i64 {high}, i64 0")
            from_row = ir.at(source, ir.mul(at, ir["x_row"]), column)
            target = ir.at(to, start, ir.mul(r, ir["width"]))
            copy_row(ir, kind, from_row, target, low, upto, ir["x_stride"])


def copy_row(
    ir: KernelBuilder, kind: int, source: str, target: str, low: str, high: str, stride: str
) -> None:
    """Copy a row of a plane: strided elements in a range, zeros elsewhere. The last vector may
    extend past the row: rows are written in ascending order. For ``kind`` see
    :meth:`.KernelBuilder.by_stride`."""
    first = ir.mul(low, stride)
    last = ir.add(ir.mul(ir.sub(high, 1), stride), 1)
    with ir.loop(ir["width"], ir.vector.lanes) as j:
        start = ir.mul(j, stride)
        value = ir.load_strided(kind, source, start, stride, first, last, "zeroinitializer")
        ir.store_vector(value, ir.at(target, j))
