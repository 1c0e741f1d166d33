"""The microkernel of convolutions: a register tile of accumulators.

A tile is ``rows`` broadcast factors times ``vectors`` registers of neighbouring elements. It
accumulates the products at a table of tap offsets, for each of some planes. :func:`best_tile`
chooses the shape of tiles.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel_builder import KernelBuilder
from evergrad.compiler.native.target import machine

# Shapes of register tiles, for machines with 32 and with 16 registers.
_TILES_32 = (
    (8, 3), (6, 4), (12, 2), (4, 5), (5, 4), (3, 6), (2, 8), (1, 8), (14, 1), (8, 2), (8, 1),
    (6, 1), (4, 1), (2, 4), (1, 4), (1, 1),
)  # fmt: skip
_TILES_16 = ((6, 2), (4, 3), (4, 2), (3, 3), (2, 4), (1, 6), (8, 1), (6, 1), (4, 1), (1, 1))


class Tile(NamedTuple):
    """A register tile: broadcast factors times vectors."""

    rows: int
    vectors: int


def tile_cycles(vector: Vector, tile: tuple[int, int], rows: int, length: int) -> float:
    """The cycles of one step of the reduction for all tiles of ``rows`` times ``length`` elements,
    with two FMAs and two loads issued per cycle; loads that cross cache lines count twice."""
    high, wide = tile
    count = -(-rows // high) * -(-length // (wide * vector.lanes))
    return count * machine().cycles(high * wide, high + 2 * wide + 1)


def best_tile(vector: Vector, rows: int, length: int) -> Tile:
    """The shape of tiles that covers ``rows`` times ``length`` elements in the fewest cycles."""
    shapes = _TILES_32 if vector.has_32_registers else _TILES_16
    return Tile(*min(shapes, key=lambda tile: tile_cycles(vector, tile, rows, length)))


@cache
def tile_function(vector: Vector, tile: Tile) -> tuple[str, str]:
    """The name and the IR of the function that computes a tile.

    ``C = [C +] sum over planes p and taps t of A[p, t, :] B[p * stride + table[t] + :]`` with
    ``rows`` rows of C and leading dimension ``leading``; C is added if ``more``, after all products
    (so that the error of a long reduction is that of its blocks, not of one chain of additions).
    """
    builder = _TileBuilder(vector, tile)
    return builder.name, builder.build()


class _TileBuilder:
    """A tile of neighbouring elements of the planes at ``%b``, times weights at ``%a``."""

    kind = "conv_tile"
    extra_arguments = ""

    def __init__(self, vector: Vector, tile: Tile) -> None:
        self.vector = vector
        self.tile = tile
        self.name = f"{self.kind}_{vector.mangled}_{tile.rows}x{tile.vectors}"
        self.lines: list[str] = []

    def sums(self, word: str) -> list[str]:
        rows, vectors = self.tile
        return [f"%{word}{r}_{v}" for r in range(rows) for v in range(vectors)]

    def address(self, name: str, base: str, offset: str | int) -> str:
        self.lines.append(
            f"  {name} = getelementptr {self.vector.element}, ptr {base}, i64 {offset}"
        )
        return name

    def build(self) -> str:
        self.lines.append(
            f"define internal void @{self.name}(ptr noalias %a, ptr noalias %b, ptr noalias %c, "
            "i64 %leading, i64 %planes, i64 %stride, i64 %taps, ptr noalias %table, i1 %more"
            f"{self.extra_arguments}) noinline nounwind {{"
        )
        self.lines.append("entry:")
        self.emit_invariants()
        self.lines.append("  br label %plane")
        self.planes()
        self.lines += ["end:", "  br i1 %more, label %add, label %first", "add:"]
        self.add_sums()
        self.lines += ["  ret void", "first:"]
        self.store_sums("u", self.row_addresses("ec"))
        self.lines += ["  ret void", "}"]
        return "\n".join(self.lines) + "\n"

    def emit_invariants(self) -> None:
        """Emit the loop invariants of the tile."""

    def emit_plane_invariants(self) -> None:
        """Emit the loop invariants of a plane, which starts at ``%b0``."""

    def phis(self, word: str, sources: list[tuple[str, str]]) -> None:
        """A phi node for each accumulator, with these (values, block) sources."""
        for n, name in enumerate(self.sums(word)):
            incoming = ", ".join(
                f"[{s if len(s) > 1 else self.sums(s)[n]}, %{label}]" for s, label in sources
            )
            self.lines.append(f"  {name} = phi {self.vector.type} {incoming}")

    def planes(self) -> None:
        self.lines += [
            "plane:",
            "  %p = phi i64 [0, %entry], [%p1, %plane_end]",
            "  %a0 = phi ptr [%a, %entry], [%a1, %plane_end]",
            "  %b0 = phi ptr [%b, %entry], [%b1, %plane_end]",
        ]
        self.phis("u", [("zeroinitializer", "entry"), ("w", "plane_end")])
        self.emit_plane_invariants()
        self.lines += [
            "  %some = icmp slt i64 %p, %planes",
            "  br i1 %some, label %tap, label %end",
            "tap:",
            "  %t = phi i64 [0, %plane], [%t1, %body]",
            "  %a1 = phi ptr [%a0, %plane], [%a2, %body]",
        ]
        self.phis("w", [("u", "plane"), ("x", "body")])
        self.lines += [
            "  %left = icmp slt i64 %t, %taps",
            "  br i1 %left, label %body, label %plane_end",
            "body:",
        ]
        self.products()
        self.lines += ["  %t1 = add i64 %t, 1", "  br label %tap", "plane_end:"]
        self.address("%b1", "%b0", "%stride")
        self.lines += ["  %p1 = add i64 %p, 1", "  br label %plane"]

    def products(self) -> None:
        self.lines += [
            "  %op = getelementptr i64, ptr %table, i64 %t",
            "  %o = load i64, ptr %op",
        ]
        self.address("%from", "%b0", "%o")
        self.load_vectors("%from")
        for r in range(self.tile.rows):
            self.multiply_row(r, self.address(f"%ap{r}", "%a1", r))
        self.address("%a2", "%a1", self.tile.rows)

    def load_vectors(self, start: str) -> None:
        for v in range(self.tile.vectors):
            self.address(f"%bp{v}", start, v * self.vector.lanes)
            self.lines.append(
                f"  %bv{v} = load {self.vector.type}, ptr %bp{v}, align {self.vector.size}"
            )

    def multiply_row(self, r: int, address: str) -> None:
        """Accumulate the products of the broadcast element at an address and all vectors."""
        vector, vectors, many = self.vector, self.tile.vectors, self.vector.type
        self.lines += [
            f"  %as{r} = load {vector.element}, ptr {address}",
            f"  %ai{r} = insertelement {many} poison, {vector.element} %as{r}, i64 0",
            f"  %av{r} = shufflevector {many} %ai{r}, {many} poison, "
            f"{vector.of('i32')} zeroinitializer",
        ]
        held, after = self.sums("w"), self.sums("x")
        for v in range(vectors):
            n = r * vectors + v
            self.lines.append(
                f"  {after[n]} = call {many} @llvm.fma.{vector.mangled}({many} %av{r}, "
                f"{many} %bv{v}, {many} {held[n]})"
            )

    def row_addresses(self, word: str) -> list[str]:
        rows, vectors = self.tile
        found = []
        for r in range(rows):
            self.lines.append(f"  %{word}m{r} = mul i64 %leading, {r}")
            self.address(f"%{word}r{r}", "%c", f"%{word}m{r}")
            found += [
                self.address(f"%{word}p{r}_{v}", f"%{word}r{r}", v * self.vector.lanes)
                for v in range(vectors)
            ]
        return found

    def add_sums(self) -> None:
        """Add what C holds to the accumulators, and store them."""
        many, addresses = self.vector.type, self.row_addresses("hc")
        for held, total, added, address in zip(
            self.sums("h"), self.sums("u"), self.sums("s"), addresses, strict=True
        ):
            self.lines += [
                f"  {held} = load {many}, ptr {address}, align {self.vector.size}",
                f"  {added} = fadd {many} {held}, {total}",
            ]
        self.store_sums("s", addresses)

    def store_sums(self, word: str, addresses: list[str]) -> None:
        for name, address in zip(self.sums(word), addresses, strict=True):
            self.lines.append(
                f"  store {self.vector.type} {name}, ptr {address}, align {self.vector.size}"
            )


class _PixelTileBuilder(_TileBuilder):
    """A tile of pixels, at any offsets in the planes at ``%b``, times vectors of output channels,
    whose weights are contiguous at ``%a``."""

    kind = "conv_pixel_tile"
    extra_arguments = ", ptr noalias %pixels"

    def emit_invariants(self) -> None:
        for r in range(self.tile.rows):
            self.lines += [
                f"  %xp{r} = getelementptr i64, ptr %pixels, i64 {r}",
                f"  %xo{r} = load i64, ptr %xp{r}",
            ]

    def emit_plane_invariants(self) -> None:
        for r in range(self.tile.rows):
            self.address(f"%xb{r}", "%b0", f"%xo{r}")

    def products(self) -> None:
        self.lines += [
            "  %op = getelementptr i64, ptr %table, i64 %t",
            "  %o = load i64, ptr %op",
        ]
        self.load_vectors("%a1")
        for r in range(self.tile.rows):
            self.multiply_row(r, self.address(f"%ap{r}", f"%xb{r}", "%o"))
        self.address("%a2", "%a1", self.tile.vectors * self.vector.lanes)


@cache
def pixel_tile_function(vector: Vector, tile: Tile) -> tuple[str, str]:
    """The name and the IR of the function that computes a tile of pixels.

    ``C = [C +] sum over planes p and taps t of B[pixels[r] + p * stride + table[t]] A[p, t, :]``
    with a row of C for each of ``rows`` pixels.
    """
    builder = _PixelTileBuilder(vector, tile)
    return builder.name, builder.build()


def call_tile(
    ir: KernelBuilder, tile: Tile, a: str, b: str, c: str, leading: str,
    planes: str, stride: str, taps: str, table: str, more: str, pixels: str | None = None,
) -> None:  # fmt: skip
    """Call the function of a tile in a kernel; of a tile of pixels if there are ``pixels``."""
    many, fma = ir.vector.type, f"llvm.fma.{ir.vector.mangled}"
    ir.helpers[fma] = f"declare {many} @{fma}({many}, {many}, {many})"
    name, function = (tile_function if pixels is None else pixel_tile_function)(ir.vector, tile)
    ir.helpers[name] = function
    last = "" if pixels is None else f", ptr {pixels}"
    ir.do(
        f"call void @{name}(ptr {a}, ptr {b}, ptr {c}, i64 {leading}, i64 {planes}, i64 {stride}, "
        f"i64 {taps}, ptr {table}, i1 {more}{last})"
    )
