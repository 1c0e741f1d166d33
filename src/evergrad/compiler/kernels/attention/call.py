"""What the lowerings of attention share: numbers and scratch memory of its kernels."""

from __future__ import annotations

import struct

from evergrad.compiler.codegen.function_builder import lanes
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.rng import threshold_of
from evergrad.compiler.kernels.attention.backward import SCRATCH as BACKWARD_SCRATCH
from evergrad.compiler.kernels.attention.common import (
    BITS,
    BITS_BYTES,
    COUNTED,
    KEPT,
    KEYS,
    AttentionKernel,
)
from evergrad.compiler.kernels.attention.forward import SCRATCH as FORWARD_SCRATCH
from evergrad.compiler.kernels.attention.primitives import EIGHT, LINE, QUERIES, ROW, up
from evergrad.compiler.kernels.attention.rows import Dropout
from evergrad.compiler.schedule.buffers import BufferView, full_view
from evergrad.compiler.schedule.lower import Lowering
from evergrad.core.trace import Var

# With fewer heads of queries than this, the queries of each are cut into parts.
FEW_HEADS = 16
_FEW_BLOCKS = 2  # of queries, that share keys


def bits_of(number: float) -> int:
    """The bits of a float32."""
    (bits,) = struct.unpack("<i", struct.pack("<f", number))
    return int(bits)


def contiguous_rows(lowering: Lowering, var: Var) -> BufferView:
    """A value of float32 with contiguous rows: the given one, or a copy."""
    place = lowering.buffer_view(var)
    if place.strides[-1] != 4 and place.shape[-1] > 1:
        buffer = lowering.new_buffer(var.type.nbytes, "arena", f"rows of {var.type}")
        place = full_view(buffer, var)
        lowering.copy(var, place)
    return place


class Call:
    """The widths of an equation, and the numbers and the scratch memory of its kernel."""

    value_transposed: int
    transposed: int
    value_row: int
    row: int
    value_width: int
    width: int

    def __init__(self, lowering: Lowering, width: int, value_width: int) -> None:
        self.lowering = lowering
        self.width, self.value_width = width, value_width
        # Bytes of rows in scratch memory, and of the transposed matrices.
        self.row, self.value_row = (up(n, lanes()) * 4 for n in (width, value_width))
        height = max(lanes(), EIGHT)
        self.transposed, self.value_transposed = (up(n, height) * ROW for n in (width, value_width))
        self.numbers: dict[str, int] = {
            "width": width, "value_width": value_width, "width_row": self.row,
            "value_row": self.value_row, "row_bytes": 4 * min(width, value_width),
        }  # fmt: skip

    def set_packing(self, blocks: int) -> None:
        """Decide whether keys and values are packed: not if they are contiguous, or read by so few
        query blocks that it does not pay. Rows must be whole vectors."""
        for name, width, row in (
            ("k", self.width, self.row),
            ("v", self.value_width, self.value_row),
        ):
            is_apart = self.numbers[f"{name}_row"] != row
            pays = is_apart and blocks > _FEW_BLOCKS
            self.numbers[f"pack_{name}"] = int(pays or row != width * 4)

    def has_whole_vectors(self) -> bool:
        """Whether rows are whole vectors."""
        return self.row == self.width * 4 and self.value_row == self.value_width * 4

    def forward_scratch(self, keys: int) -> int:
        return self.scratch(FORWARD_SCRATCH, [
            keys * self.row, keys * self.value_row, self.transposed, KEYS * ROW,
            QUERIES * self.value_row, ROW, ROW, ROW, QUERIES * self.value_row, ROW,
        ])  # fmt: skip

    def backward_scratch(self, span: int) -> int:
        packed = [span * self.row, span * self.value_row]
        return self.scratch(BACKWARD_SCRATCH, [
            *packed, self.transposed, QUERIES * self.row, self.value_transposed, QUERIES *
            self.value_row, KEYS * ROW, KEYS * ROW, QUERIES * self.row, ROW, *packed,
        ])  # fmt: skip

    def scratch(self, names: tuple[str, ...], sizes: list[int]) -> int:
        """Assign scratch memory, with the bits of a block; its bytes, with room for alignment."""
        offset = 0
        for name, size in zip((*names, "at_bits"), (*sizes, BITS_BYTES), strict=True):
            self.numbers[name] = offset
            offset += up(size, LINE)
        return offset + LINE

    def set_dropout(self, dropout: Dropout | None) -> str:
        """Enter the numbers of dropout; its kind."""
        if dropout is None:
            return KEPT
        self.numbers["drop"] = bits_of(dropout.scale)
        self.numbers["limit"] = threshold_of(dropout.keep)
        return COUNTED if dropout.counted else BITS

    def kernel(self, made: AttentionKernel, chunks: int, scratch: int) -> Kernel:
        kernel = Kernel(made.name, made.ir, made.helpers)
        kernel.numbers = [self.numbers[name] for name in made.numbers]
        kernel.chunks = chunks
        kernel.scratch = scratch
        return kernel
