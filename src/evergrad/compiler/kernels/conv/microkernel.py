"""The inner kernel of convolutions: a tile of sums held in registers.

A tile is ``rows`` factors that are broadcast times ``vectors`` registers of neighbouring elements.
It goes through a table of places, for each of some planes, and adds the products of what lies
there. :func:`best_tile` is the one place where the shape of tiles is chosen.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import LATENCY, KernelBuilder, Vector

# Shapes of tiles, for machines with 32 and with 16 registers.
_TILES_32 = (
    (8, 3), (6, 4), (12, 2), (4, 5), (5, 4), (3, 6), (2, 8), (1, 8), (14, 1), (8, 2), (8, 1),
    (6, 1), (4, 1), (2, 4), (1, 4), (1, 1),
)  # fmt: skip
_TILES_16 = ((6, 2), (4, 3), (4, 2), (3, 3), (2, 4), (1, 6), (8, 1), (6, 1), (4, 1), (1, 1))


class Tile(NamedTuple):
    rows: int
    vectors: int


def tile_cycles(vector: Vector, tile: tuple[int, int], rows: int, length: int) -> float:
    """The cycles in which all tiles of ``rows`` times ``length`` elements go one place further, if
    two products and two loads start in each; loads that cross cache lines count twice."""
    high, wide = tile
    count = -(-rows // high) * -(-length // (wide * vector.lanes))
    return count * max(high * wide / 2, (high + 2 * wide + 1) / 2, LATENCY)


def best_tile(vector: Vector, rows: int, length: int) -> Tile:
    """The shape of tiles that covers ``rows`` times ``length`` elements in the fewest cycles."""
    shapes = _TILES_32 if vector.has_many else _TILES_16
    return Tile(*min(shapes, key=lambda tile: tile_cycles(vector, tile, rows, length)))


@cache
def tile_function(vector: Vector, tile: Tile) -> tuple[str, str]:
    """The name and the ir of the function that computes a tile.

    ``C = [C +] sum over planes p and places t of A[p, t, :] B[p * step + table[t] + :]`` with
    ``rows`` rows of C that are ``leading`` elements apart; it starts from C if ``more``.
    """
    writer = _TileBuilder(vector, tile)
    return writer.name, writer.write()


class _TileBuilder:
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

    def write(self) -> str:
        self.lines.append(
            f"define internal void @{self.name}(ptr noalias %a, ptr noalias %b, ptr noalias %c, "
            "i64 %leading, i64 %planes, i64 %step, i64 %places, ptr noalias %table, i1 %more"
            f"{self.extra_arguments}) noinline nounwind {{"
        )
        self.lines.append("entry:")
        self.enter()
        self.lines.append("  br i1 %more, label %held, label %start")
        self.lines.append("held:")
        self.load_sums()
        self.lines += ["  br label %start", "start:"]
        self.phis("s", [("zeroinitializer", "entry"), ("h", "held")])
        self.lines.append("  br label %plane")
        self.planes()
        self.lines.append("end:")
        self.store_sums()
        self.lines += ["  ret void", "}"]
        return "\n".join(self.lines) + "\n"

    def enter(self) -> None:
        """What is the same for the whole tile."""

    def enter_plane(self) -> None:
        """What is the same for a plane, which begins at ``%b0``."""

    def phis(self, word: str, sources: list[tuple[str, str]]) -> None:
        """A value for each sum that comes from where the function came from."""
        for place, name in enumerate(self.sums(word)):
            given = ", ".join(
                f"[{s if len(s) > 1 else self.sums(s)[place]}, %{label}]" for s, label in sources
            )
            self.lines.append(f"  {name} = phi {self.vector.type} {given}")

    def planes(self) -> None:
        self.lines += [
            "plane:",
            "  %p = phi i64 [0, %start], [%p1, %plane_end]",
            "  %a0 = phi ptr [%a, %start], [%a1, %plane_end]",
            "  %b0 = phi ptr [%b, %start], [%b1, %plane_end]",
        ]
        self.phis("u", [("s", "start"), ("w", "plane_end")])
        self.enter_plane()
        self.lines += [
            "  %some = icmp slt i64 %p, %planes",
            "  br i1 %some, label %place, label %end",
            "place:",
            "  %t = phi i64 [0, %plane], [%t1, %body]",
            "  %a1 = phi ptr [%a0, %plane], [%a2, %body]",
        ]
        self.phis("w", [("u", "plane"), ("x", "body")])
        self.lines += [
            "  %left = icmp slt i64 %t, %places",
            "  br i1 %left, label %body, label %plane_end",
            "body:",
        ]
        self.products()
        self.lines += ["  %t1 = add i64 %t, 1", "  br label %place", "plane_end:"]
        self.address("%b1", "%b0", "%step")
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
        """Add the products of the element at an address and all vectors."""
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

    def load_sums(self) -> None:
        for name, address in zip(self.sums("h"), self.row_addresses("hc"), strict=True):
            self.lines.append(
                f"  {name} = load {self.vector.type}, ptr {address}, align {self.vector.size}"
            )

    def store_sums(self) -> None:
        for name, address in zip(self.sums("u"), self.row_addresses("ec"), strict=True):
            self.lines.append(
                f"  store {self.vector.type} {name}, ptr {address}, align {self.vector.size}"
            )


class _PixelTileBuilder(_TileBuilder):
    """A tile of pixels, anywhere in the planes at ``%b``, times vectors of outputs, whose weights
    lie in order at ``%a``."""

    kind = "conv_pixels"
    extra_arguments = ", ptr noalias %pixels"

    def enter(self) -> None:
        for r in range(self.tile.rows):
            self.lines += [
                f"  %xp{r} = getelementptr i64, ptr %pixels, i64 {r}",
                f"  %xo{r} = load i64, ptr %xp{r}",
            ]

    def enter_plane(self) -> None:
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
    """The name and the ir of the function that computes a tile of pixels.

    ``C = [C +] sum over planes p and places t of B[pixels[r] + p * step + table[t]] A[p, t, :]``
    with a row of C for each of ``rows`` pixels.
    """
    writer = _PixelTileBuilder(vector, tile)
    return writer.name, writer.write()


def call_tile(
    ir: KernelBuilder, tile: Tile, a: str, b: str, c: str, leading: str,
    planes: str, step: str, places: str, table: str, more: str, pixels: str | None = None,
) -> None:  # fmt: skip
    """Compute a tile inside of another kernel: one of pixels, if they are given."""
    many, fma = ir.vector.type, f"llvm.fma.{ir.vector.mangled}"
    ir.helpers[fma] = f"declare {many} @{fma}({many}, {many}, {many})"
    name, function = (tile_function if pixels is None else pixel_tile_function)(ir.vector, tile)
    ir.helpers[name] = function
    last = "" if pixels is None else f", ptr {pixels}"
    ir.do(
        f"call void @{name}(ptr {a}, ptr {b}, ptr {c}, i64 {leading}, i64 {planes}, i64 {step}, "
        f"i64 {places}, ptr {table}, i1 {more}{last})"
    )
