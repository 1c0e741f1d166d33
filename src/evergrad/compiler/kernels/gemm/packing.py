"""How the operands of a blocked product are packed."""

from __future__ import annotations

# Packing of an operand: none, rows (copied), rows of the transpose, register tiles, or all of it by
# a kernel of its own before the product.
UNPACKED, PACKED_ROWS, PACKED_TRANSPOSED, PACKED_TILES, PREPACKED = range(5)
# The operands, as register tiles take them.
LEFT, RIGHT = range(2)
# The depth of K blocks if a chunk packs.
PACKED_DEPTH = 512


def packs(packing: object) -> bool:
    """Whether chunks pack the operand."""
    return (packing != UNPACKED) & (packing != PREPACKED)
