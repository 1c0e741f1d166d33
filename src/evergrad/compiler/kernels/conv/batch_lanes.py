"""Convolution with samples side by side in registers: for many samples of small images.

All lanes meet the same element of the kernel at the same place: nothing is padded, and elements of
the kernel that would meet padding are passed over. A chunk goes over some rows of outputs of a
block of samples; a tile is a few outputs of one pixel. The sums are turned when they are written.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import (
    ENOUGH_CHUNKS,
    KernelBuilder,
    Vector,
    with_numbers,
)
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.conv.microkernel import Tile
from evergrad.compiler.kernels.conv.pack_batch_lanes import Image
from evergrad.compiler.kernels.conv.padded_planes import Axis, Correlation, Steps
from evergrad.compiler.kernels.gemm.microkernel import transposed
from evergrad.compiler.native.target import machine
from evergrad.compiler.passes.conv_epilogue import Epilogue, emit_epilogue, pointers

# A block of turned samples and the sums of a chunk stay in caches of so many bytes.
_NEAR = machine().l2_bytes
_SUMS = machine().l2_bytes // 4
# What a tile reads of a few channels stays in the first cache.
_NEAREST = machine().l1_bytes
# Cycles to take up a vector of sums and put it down again.
# Fitted by tools/fit_kernel_costs.py.
_KEEPING = 2.0
# Convolutions whose cut is remembered.
_KNOWN = 256
# Shapes of tiles, for machines with 32 and with 16 registers.
_TILES_32 = (
    (6, 4), (8, 3), (12, 2), (24, 1), (5, 4), (4, 4), (3, 4), (2, 4), (1, 4), (7, 3), (4, 3),
    (10, 2), (8, 2), (6, 2), (20, 1), (16, 1), (12, 1), (8, 1),
)  # fmt: skip
_TILES_16 = ((3, 4), (4, 3), (6, 2), (12, 1), (2, 4), (1, 4), (3, 3), (4, 2), (8, 1))


class SampleCut(NamedTuple):
    """Tiles (outputs times registers of samples), the rows of a chunk, and how many channels a
    tile goes through at once."""

    tile: Tile
    block: int
    channels: int

    @classmethod
    @lru_cache(_KNOWN)
    def choose(cls, vector: Vector, given: Correlation) -> SampleCut:
        """The cheapest cut of those for which the samples stay in cache."""
        shapes = _TILES_32 if vector.has_32_registers else _TILES_16
        near = [Tile(*t) for t in shapes if t[1] == 1 or _is_near(vector, given, t[1])]
        cuts = [cls.of(vector, given, tile) for tile in near]
        return min(cuts, key=lambda cut: cut.cycles(vector, given))

    @classmethod
    def of(cls, vector: Vector, given: Correlation, tile: Tile) -> SampleCut:
        """Rows are cut until there are enough chunks, and sums stay in cache."""
        rows, columns = given.rows.extent, given.columns.extent
        pixel = tile.vectors * vector.lanes * vector.size
        outputs = -(-given.outputs // tile.rows) * tile.rows
        blocks = image_of(given).blocks(vector, tile.vectors) * given.groups
        sharing = rows // -(-ENOUGH_CHUNKS // blocks)
        block = max(1, min(sharing, _SUMS // (outputs * columns * pixel)))
        parts = -(-given.channels // max(1, _NEAREST // (len(given.taps) * pixel)))
        return cls(tile, -(-rows // -(-rows // block)), -(-given.channels // parts))

    def cycles(self, vector: Vector, given: Correlation) -> float:
        """About how many cycles a group of a sample takes, with turning it and its outputs."""
        high, wide = self.tile
        image = image_of(given)
        panels = -(-given.outputs // high)
        step = machine().cycles(high * wide, high + wide + 1)
        pixels = given.rows.extent * given.columns.extent
        met = given.rows.met * given.columns.met
        parts = -(-given.channels // self.channels)
        total = panels * (given.channels * met * step + parts * pixels * high * wide * _KEEPING)
        turned = sum(i.turning_cycles(vector) for i in (image, outputs_of(given)))
        return total * image.blocks(vector, wide) / given.samples + turned / given.groups


def image_of(given: Correlation) -> Image:
    return Image(given.samples, given.groups * given.channels, given.rows.size, given.columns.size)


def outputs_of(given: Correlation) -> Image:
    rows, columns = given.rows.extent, given.columns.extent
    return Image(given.samples, given.groups * given.outputs, rows, columns)


def _is_near(vector: Vector, given: Correlation, vectors: int) -> bool:
    return image_of(given).block_size(vector, vectors) * vector.size <= _NEAR


def is_by_samples(vector: Vector, given: Correlation, x: Steps) -> bool:
    """Whether a convolution can be computed with samples side by side: images are small, they and
    the rows of outputs lie in order, and elements of the kernel are always as far apart."""
    return (
        image_of(given).lies_in_order(x)
        and all(axis.step == 1 and axis.taps for axis in (given.rows, given.columns))
        and _is_near(vector, given, 1)
    )


def _inside(axis: Axis, place: int) -> tuple[int, int]:
    """The elements of the kernel that meet x at an output: the first, and how many."""
    met = [
        n for n, (_, shift) in enumerate(axis.taps)
        if 0 <= axis.stride * place + shift < axis.size
    ]  # fmt: skip
    return (met[0], len(met)) if met else (0, 0)


def _between(axis: Axis) -> int:
    """How far the elements of x that two neighbours in the kernel meet are apart."""
    shifts = [shift for _, shift in axis.taps[:2]]
    return shifts[-1] - shifts[0]


def _table(axis: Axis, step: int) -> list[int]:
    """For each output the first element of the kernel that meets x, how many do, and where the
    first one does, elements being ``step`` apart."""
    table = []
    for place in range(axis.extent):
        first, count = _inside(axis, place)
        at = (axis.stride * place + axis.taps[first][1]) * step if count else 0
        table += [first, count, at]
    return table


class _Numbers(NamedTuple):
    """The kernel's numbers; tables of rows and of columns follow."""

    groups: int
    samples: int
    row_blocks: int
    block: int
    count_rows: int
    count_columns: int
    outputs: int
    panels: int
    channels: int
    channel_block: int
    taps: int
    tap_columns: int
    x_block: int
    x_channel: int
    x_row: int
    x_column: int
    y_sample: int
    y_channel: int


def sample_kernel(
    vector: Vector, given: Correlation, x: Steps, y: Steps, steps: Epilogue
) -> Kernel:
    """The kernel that takes turned images, the packed weight, what later steps take, and y."""
    cut = SampleCut.choose(vector, given)
    tile, rows, columns, image = cut.tile, given.rows, given.columns, image_of(given)
    together = tile.vectors * vector.lanes
    panels = -(-given.outputs // tile.rows)
    row_blocks = -(-rows.extent // cut.block)
    row_step = image.columns * together
    numbers = _Numbers(
        given.groups, given.samples, row_blocks, cut.block, rows.extent, columns.extent,
        given.outputs, panels, given.channels, cut.channels, len(given.taps), len(columns.taps),
        image.block_size(vector, tile.vectors), image.plane * together, _between(rows) * row_step,
        _between(columns) * together, y.sample, y.channel,
    )  # fmt: skip
    pixels = -(-cut.block * columns.extent // vector.lanes) * vector.lanes
    return with_numbers(
        _text(vector, tile, steps), numbers,
        [*_table(rows, row_step), *_table(columns, together)],
        image.blocks(vector, tile.vectors) * given.groups * row_blocks,
        (panels * tile.rows * cut.block * columns.extent + pixels) * together * vector.size,
    )  # fmt: skip


# -- the kernel ---------------------------------------------------------------------------------


@cache
def _text(vector: Vector, tile: Tile, steps: Epilogue) -> Kernel:
    text = KernelBuilder(vector, pointers(steps), _Numbers._fields)
    together = tile.vectors * vector.lanes
    place, part = text.split("%chunk", text["row_blocks"])
    block, group = text.split(place, text["groups"])
    row = text.mul(part, text["block"])
    rows = text.least(text["block"], text.sub(text["count_rows"], row))
    x = text.at(
        text["x"],
        text.mul(block, text["x_block"]),
        text.mul(group, text["channels"], text["x_channel"]),
    )
    leading = text.mul(text["block"], text["count_columns"], together)
    _multiply(text, tile, x, group, row, rows, leading)
    output = text.mul(group, text["outputs"])
    y = text.at(
        text["y"],
        text.mul(output, text["y_channel"]),
        text.mul(row, text["count_columns"]),
    )
    pixels = text.mul(rows, text["count_columns"])
    _write(text, steps, together, y, text.mul(block, together), output, pixels, leading)
    return text.kernel("conv_samples")


def _multiply(
    text: KernelBuilder, tile: Tile, x: str, group: str, row: str, rows: str, leading: str
) -> None:
    """All tiles of these rows, some channels after the other."""
    depth = text.mul(text["channels"], text["taps"], tile.rows)
    weight = text.at(text["weight"], text.mul(group, text["panels"], depth))
    columns_at = text.mul(text["count_rows"], 3)
    together = tile.vectors * text.vector.lanes
    with (
        text.loop(text["channels"], text["channel_block"]) as channel,
        text.loop(rows) as r,
        text.loop(text["count_columns"]) as column,
    ):
        count = text.least(text["channel_block"], text.sub(text["channels"], channel))
        more = text.op(f"icmp ne i64 {channel}, 0")
        entries = [
            text.table(text.mul(text.add(row, r), 3)),
            text.table(text.add(columns_at, text.mul(column, 3))),
        ]
        (top, high, x_row), (left, wide, x_column) = (
            [text.number(entry, n) for n in range(3)] for entry in entries
        )
        b = text.at(x, text.mul(channel, text["x_channel"]), x_row, x_column)
        tap = text.add(text.mul(top, text["tap_columns"]), left)
        start = text.mul(text.add(text.mul(channel, text["taps"]), tap), tile.rows)
        pixel = text.add(text.mul(r, text["count_columns"]), column)
        with text.loop(text["panels"]) as panel:
            a = text.at(weight, text.mul(panel, depth), start)
            c = text.at(
                text.scratch, text.mul(panel, tile.rows, leading), text.mul(pixel, together)
            )
            _tile(text, tile, a, b, _addresses(text, tile, c, leading), (count, high, wide), more)


def _addresses(text: KernelBuilder, tile: Tile, c: str, leading: str) -> list[str]:
    """Where the sums of a tile lie."""
    rows = [text.at(c, text.mul(leading, r)) for r in range(tile.rows)]
    return [text.at(row, v * text.vector.lanes) for row in rows for v in range(tile.vectors)]


def _tile(
    text: KernelBuilder,
    tile: Tile,
    a: str,
    b: str,
    sums: list[str],
    counts: tuple[str, str, str],
    more: str,
) -> None:
    """Add the products of so many channels, rows and columns of the kernel to sums, which start
    from what they were if there were channels before."""

    def typed(values: list[str]) -> list[tuple[str, str]]:
        return [(text.vector.type, value) for value in values]

    masks = text.splat(more, "i1")
    start = [text.load_masked(at, masks, "zeroinitializer") for at in sums]
    channels, rows, columns = counts
    with text.carrying_loop(channels, typed(start)) as (channel, outer):
        a = text.at(a, text.mul(channel, text["taps"], tile.rows))
        b = text.at(b, text.mul(channel, text["x_channel"]))
        with text.carrying_loop(rows, typed(outer.values)) as (row, middle):
            a = text.at(a, text.mul(row, text["tap_columns"], tile.rows))
            b = text.at(b, text.mul(row, text["x_row"]))
            with text.carrying_loop(columns, typed(middle.values)) as (column, inner):
                factors = text.at(a, text.mul(column, tile.rows))
                values = text.at(b, text.mul(column, text["x_column"]))
                inner.after = _products(text, tile, factors, values, inner.values)
            middle.after = inner.values
        outer.after = middle.values
    for address, value in zip(sums, outer.values, strict=True):
        text.store_vector(value, address)


def _products(text: KernelBuilder, tile: Tile, a: str, b: str, sums: list[str]) -> list[str]:
    """The sums with one more product each."""
    values = [text.load_vector(text.at(b, v * text.vector.lanes)) for v in range(tile.vectors)]
    after = []
    for r in range(tile.rows):
        factor = text.splat(text.load(text.at(a, r)), text.vector.element)
        for v, value in enumerate(values):
            after.append(text.multiply_add(factor, value, sums[r * tile.vectors + v]))
    return after


def _write(
    text: KernelBuilder,
    steps: Epilogue,
    together: int,
    y: str,
    first: str,
    output: str,
    pixels: str,
    leading: str,
) -> None:
    """Turn the sums: pixels in their order, for one sample after the other from ``first`` on. The
    last go first: what is written of samples that there are not, to the place of the last one, it
    overwrites."""
    lanes = text.vector.lanes
    final = text.sub(text["samples"], 1)
    count = text.least(str(together), text.sub(text["samples"], first))
    with text.loop(count, lanes) as some:
        samples = [text.least(text.add(first, some, n), final) for n in range(lanes)]
        starts = [text.at(y, text.mul(sample, text["y_sample"])) for sample in samples]
        with text.loop(text["outputs"]) as o, text.loop(pixels, lanes) as pixel:
            corner = text.at(text.scratch, some, text.mul(o, leading), text.mul(pixel, together))
            block = [text.load_vector(text.at(corner, n * together)) for n in range(lanes)]
            mask = text.range_mask(text.lane_indices("0"), "0", text.sub(pixels, pixel))
            to = text.add(text.mul(o, text["y_channel"]), pixel)
            turned = zip(starts, transposed(text, block), strict=True)
            for start, values in reversed(list(turned)):
                values = emit_epilogue(text, steps, values, text.add(output, o))
                text.store_masked(values, text.at(start, to), mask)
