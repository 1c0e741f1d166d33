"""The gradient of a convolution's weight with samples side by side in registers: for many samples
of small images.

All lanes meet the same element of the kernel at the same place. A chunk computes a row of the
kernel for some outputs and all channels, over all samples: it ends with the gradient itself. A tile
is a few outputs times a few channels, for one element of the kernel.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import KernelBuilder, Vector, with_numbers
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.conv.batch_lanes import image_of, outputs_of
from evergrad.compiler.kernels.conv.padded_planes import Axis, Correlation, Steps
from evergrad.compiler.native.target import machine

# The turned samples of a block, x and y, stay in a cache of so many bytes.
_NEAR = machine().l2_bytes
_MOST_VECTORS = 4
# Convolutions whose cut is remembered.
_KNOWN = 256
# Cycles to take up a vector of sums and put it down again, and to add up lanes.
# Fitted by tools/fit_kernel_costs.py.
_KEEPING = 1.0
_ADDING = 8.0
# Outputs times channels of a tile, for machines with 32 and with 16 registers.
_TILES_32 = (
    (4, 6), (6, 4), (5, 5), (8, 3), (3, 8), (12, 2), (2, 12), (12, 1), (8, 1), (6, 1), (6, 3),
    (4, 4), (4, 3), (3, 3), (8, 2), (1, 12), (1, 8),
)  # fmt: skip
_TILES_16 = ((3, 4), (4, 3), (2, 5), (6, 2), (8, 1), (4, 2), (2, 3), (1, 8))


class SampleTile(NamedTuple):
    outputs: int
    channels: int


class GradientCut(NamedTuple):
    """Tiles, and the registers of samples that are side by side."""

    tile: SampleTile
    vectors: int

    @classmethod
    @lru_cache(_KNOWN)
    def choose(cls, vector: Vector, given: Correlation) -> GradientCut:
        """The cheapest cut of those for which the samples stay in cache."""
        shapes = _TILES_32 if vector.has_32_registers else _TILES_16
        tile = SampleTile(*min(shapes, key=lambda tile: _step(given, tile)))
        more = [n for n in range(2, _MOST_VECTORS + 1) if _is_near(vector, given, n)]
        cuts = [cls(tile, n) for n in (1, *more)]
        return min(cuts, key=lambda cut: cut.cycles(vector, given))

    def cycles(self, vector: Vector, given: Correlation) -> float:
        """About how many cycles a pixel of a group of y takes, with turning samples and adding
        sums up."""
        images = image_of(given), outputs_of(given)
        blocks = images[0].blocks(vector, self.vectors)
        met = given.rows.met * given.columns.met
        total = met * _step(given, self.tile) * self.vectors
        kept = given.rows.met * len(given.columns.taps) * given.channels * given.outputs
        total += kept * _KEEPING
        added = given.outputs * given.channels * len(given.taps) * _ADDING
        turned = sum(image.turning_cycles(vector) for image in images) / given.groups
        return ((total * blocks + added) / given.samples + turned) / outputs_of(given).plane


def _step(given: Correlation, tile: tuple[int, int]) -> float:
    """The cycles in which all tiles go one vector further."""
    high, wide = tile
    count = -(-given.outputs // high) * -(-given.channels // wide)
    return count * machine().cycles(high * wide, high + wide)


def _is_near(vector: Vector, given: Correlation, vectors: int) -> bool:
    images = image_of(given), outputs_of(given)
    return sum(i.block_size(vector, vectors) for i in images) * vector.size <= _NEAR


def is_gradient_by_samples(vector: Vector, given: Correlation, x: Steps, y: Steps) -> bool:
    """Whether the gradient can be computed with samples side by side: both images are small
    and lie in order."""
    return (
        image_of(given).lies_in_order(x)
        and outputs_of(given).lies_in_order(y)
        and _is_near(vector, given, 1)
    )


class _Numbers(NamedTuple):
    """The kernel's numbers; tables of the kernel's rows and columns follow."""

    blocks: int
    panels: int
    tap_rows: int
    tap_columns: int
    outputs: int
    channels: int
    count_columns: int
    x_block: int
    x_channel: int
    x_row: int
    x_step: int
    y_block: int
    y_channel: int


def sample_gradient_kernel(vector: Vector, given: Correlation) -> Kernel:
    """The kernel that takes turned y and x and the gradient of the weight."""
    cut = GradientCut.choose(vector, given)
    tile, x, y = cut.tile, image_of(given), outputs_of(given)
    together = cut.vectors * vector.lanes
    panels = -(-given.outputs // tile.outputs)
    rows, columns = given.rows, given.columns
    numbers = _Numbers(
        x.blocks(vector, cut.vectors), panels, len(rows.taps), len(columns.taps), given.outputs,
        given.channels, columns.extent, x.block_size(vector, cut.vectors), x.plane * together,
        x.columns * rows.stride * together, columns.stride * together,
        y.block_size(vector, cut.vectors), y.plane * together,
    )  # fmt: skip
    channels = -(-given.channels // tile.channels) * tile.channels
    sums = len(columns.taps) * channels * tile.outputs * vector.lanes
    return with_numbers(
        _text(vector, tile, cut.vectors), numbers,
        [*_table(rows, x.columns * together), *_table(columns, together)],
        given.groups * panels * len(rows.taps), sums * vector.size,
    )  # fmt: skip


def _table(axis: Axis, step: int) -> list[int]:
    """For each element of the kernel which outputs meet x (from, to), and where the first one
    does, elements being ``step`` apart."""
    table = []
    for _, shift in axis.taps:
        first, last = axis.meeting(shift)
        table += [first, last, (axis.stride * first + shift) * step]
    return table


# -- the kernel ---------------------------------------------------------------------------------


@cache
def _text(vector: Vector, tile: SampleTile, vectors: int) -> Kernel:
    text = KernelBuilder(vector, ("y", "x", "out"), _Numbers._fields)
    place, tap = text.split("%chunk", text["tap_rows"])
    group, panel = text.split(place, text["panels"])
    output = text.mul(panel, tile.outputs)
    _clear(text, tile)
    first, last, begin = (text.number(text.table(text.mul(tap, 3)), n) for n in range(3))
    final = text.sub(text["outputs"], 1)
    y = text.at(text["y"], text.mul(group, text["outputs"], text["y_channel"]))
    ys = [
        text.at(y, text.mul(text.least(text.add(output, n), final), text["y_channel"]))
        for n in range(tile.outputs)
    ]
    x = text.at(text["x"], begin, text.mul(group, text["channels"], text["x_channel"]))
    together = vectors * vector.lanes
    with text.loop(text["blocks"]) as block, text.loop(last, first=first) as row:
        line = text.add(
            text.mul(block, text["y_block"]), text.mul(row, text["count_columns"], together)
        )
        x_row = text.at(
            x,
            text.mul(block, text["x_block"]),
            text.mul(text.sub(row, first), text["x_row"]),
        )
        _add_row(text, tile, vectors, [text.at(start, line) for start in ys], x_row)
    _write(text, tile, group, output, tap)
    return text.kernel("conv_sample_gradient")


def _clear(text: KernelBuilder, tile: SampleTile) -> None:
    count = text.mul(_tiles(text, tile), text["tap_columns"], tile.outputs * tile.channels)
    with text.loop(count) as n:
        text.store_vector("zeroinitializer", text.at(text.scratch, text.mul(n, text.vector.lanes)))


def _tiles(text: KernelBuilder, tile: SampleTile) -> str:
    """How many tiles all channels are."""
    channels = text.add(text["channels"], tile.channels - 1)
    return text.op(f"udiv i64 {channels}, {tile.channels}")


def _add_row(text: KernelBuilder, tile: SampleTile, vectors: int, ys: list[str], x: str) -> None:
    """Add the products of a row of outputs to the sums: [tiles, columns of the kernel, tile]."""
    lanes, together = text.vector.lanes, vectors * text.vector.lanes
    table = text.table(text.mul(text["tap_rows"], 3))
    size = tile.outputs * tile.channels * lanes
    final = text.sub(text["channels"], 1)
    with text.loop(_tiles(text, tile)) as number, text.loop(text["tap_columns"]) as tap:
        top = text.mul(number, tile.channels)
        entry = text.mul(tap, 3)
        first, last, begin = (text.number(table, text.add(entry, n)) for n in range(3))
        xs = [
            text.at(
                x, begin, text.mul(text.least(text.add(top, n), final), text["x_channel"])
            )
            for n in range(tile.channels)
        ]  # fmt: skip
        at = text.mul(text.add(text.mul(number, text["tap_columns"]), tap), size)
        sums = [text.at(text.scratch, at, n * lanes) for n in range(tile.outputs * tile.channels)]
        start = [(text.vector.type, text.load_vector(address)) for address in sums]
        with text.carrying_loop(text.sub(last, first), start) as (column, held):
            y_at = text.mul(text.add(first, column), together)
            x_at = text.mul(column, text["x_step"])
            held.after = held.values
            for v in range(vectors):
                held.after = _products(
                    text,
                    [text.at(y, y_at, v * lanes) for y in ys],
                    [text.at(source, x_at, v * lanes) for source in xs],
                    held.after,
                )
        for address, value in zip(sums, held.values, strict=True):
            text.store_vector(value, address)


def _products(text: KernelBuilder, ys: list[str], xs: list[str], sums: list[str]) -> list[str]:
    """The sums with one more product each."""
    factors = [text.load_vector(address) for address in xs]
    after = []
    for n, address in enumerate(ys):
        value = text.load_vector(address)
        for c, factor in enumerate(factors):
            after.append(text.multiply_add(value, factor, sums[n * len(xs) + c]))
    return after


def _write(text: KernelBuilder, tile: SampleTile, group: str, output: str, tap: str) -> None:
    """Add lanes up and write this row of the kernel."""
    lanes, columns = text.vector.lanes, text["tap_columns"]
    outputs = text.least(str(tile.outputs), text.sub(text["outputs"], output))
    whole = text.mul(text["tap_rows"], columns)
    with (
        text.loop(outputs) as n,
        text.loop(text["channels"]) as channel,
        text.loop(columns) as column,
    ):
        number, inner = text.split(channel, str(tile.channels))
        place = text.add(text.mul(number, columns), column)
        place = text.add(text.mul(text.add(text.mul(place, tile.outputs), n), tile.channels), inner)
        total = text.sum_of_lanes(text.load_vector(text.at(text.scratch, text.mul(place, lanes))))
        row = text.add(text.mul(group, text["outputs"]), output, n)
        element = text.add(text.mul(row, text["channels"]), channel)
        to = text.add(text.mul(element, whole), text.mul(tap, columns), column)
        text.store(total, text.at(text["out"], to))
