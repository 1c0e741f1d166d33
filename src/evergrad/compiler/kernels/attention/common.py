"""Streaming-softmax attention: what the forward and the backward kernel share, in LLVM IR.

A block of queries occupies the lanes of vectors, keys are rows: scores are stored as
``S[key, query]``, so that keys and values are read in place, element by element, and maxima and
sums over keys need no operation across lanes. The forward kernel takes each query block through all
key blocks and keeps, for each query, the maximum of its scores and the reciprocal of the sum of
their exponentials; the backward kernel recomputes the probabilities from these, takes all query
blocks through a span of keys and accumulates the gradients of its keys and values. Products
prefetch what is read and written next. For dropout a word holds, for one key, bits of some queries
of a block; it was sampled before, or is computed here from a position in a random stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from evergrad.compiler.codegen.function_builder import (
    FunctionBuilder,
    Helper,
    lanes,
)
from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.rng import counted_bits
from evergrad.compiler.kernels.attention import primitives as parts
from evergrad.compiler.kernels.attention import tiles
from evergrad.compiler.kernels.attention.extents import Extents, Items
from evergrad.compiler.kernels.attention.primitives import QUERIES, ROW
from evergrad.compiler.kernels.random_rows import ROWS_OF_A_WORD
from evergrad.compiler.native.jit import name_of


class ScoreStep(NamedTuple):
    """A transformation of scores: ``scale`` by a number, ``causal`` (only keys up to the query),
    ``keep`` or ``drop`` by a mask, or ``add`` one. ``spread``: the mask varies along queries;
    ``finite``: masked scores become a finite number, not an infinity."""

    kind: str
    spread: bool = False
    finite: bool = False


class AttentionKernel(NamedTuple):
    """A kernel, and the names of its pointers and numbers."""

    name: str
    ir: str
    helpers: dict[str, str]
    pointers: tuple[str, ...]
    numbers: tuple[str, ...]


class Matrix(NamedTuple):
    """A matrix in memory: its address, and the stride of its rows in bytes."""

    start: str
    step: str | int


class Sums(NamedTuple):
    """The sums of a product: those to accumulate to, if there are ``more``, and the result."""

    before: Matrix
    to: Matrix
    more: str

    @classmethod
    def none(cls, to: Matrix) -> Sums:
        return cls(to, to, "false")


class Prefetch(NamedTuple):
    """Matrices that are read or written soon, and how many bytes of each row are prefetched (0:
    nothing)."""

    soon: Matrix
    later: Matrix
    bytes: str


class Head(NamedTuple):
    """The index of an item in the batch, a group of queries that share its keys, and the extents of
    the item."""

    place: tuple[str, ...]
    group: str
    extents: Extents


_EXTENTS = (
    "items_1", "items_2", "groups", "width", "value_width", "row_bytes", "run", "pack_k", "pack_v",
)  # fmt: skip


def stride_names(name: str, *more: str) -> tuple[str, ...]:
    """The names of the strides of items and rows of a value, and of further ones."""
    return tuple(f"{name}_{step}" for step in ("0", "1", "2", "row", *more))


QUERY = stride_names("q", "g")
# Strides of keys and values, and of their rows and those of queries in scratch memory.
KEY_VALUE = (*stride_names("k"), *stride_names("v"), "width_row", "value_row")


KEYS = QUERIES  # of a block
# The stride of the words of a key block, which hold bits of some of its queries.
_BITS_ROW = (KEYS + 1) * 4
BITS_BYTES = QUERIES // ROWS_OF_A_WORD * _BITS_ROW
# Dropout of weights: none, by bits in memory, or by a counter-based generator.
KEPT, BITS, COUNTED = "kept", "bits", "counted"
_DROPOUT_POINTERS = {KEPT: (), BITS: ("bits",), COUNTED: ("seed", "offset")}
_DROPOUT_NUMBERS = {KEPT: (), BITS: ("drop",), COUNTED: ("drop", "limit", "at_bits")}


def diagonal_keys() -> int:
    """The keys of a causal triangle that are attributed to the same vectors of queries: as few as
    make whole vectors of queries and whole tiles of keys."""
    return max(lanes(), parts.EIGHT)


class KernelWriter(FunctionBuilder):
    """The builder of both kernels: arguments, indices in the batch, score steps, and dropout."""

    drawn_row: str
    keys_count: str
    length: str

    def __init__(
        self, steps: tuple[ScoreStep, ...], dropout: str, reads: tuple[str, ...],
        writes: tuple[str, ...], numbers: tuple[str, ...], items: Items,
    ) -> None:  # fmt: skip
        super().__init__()
        self.tags: list[str] = []
        self.items = items
        self.steps = steps
        self.masks: list[int] = [
            n for n, step in enumerate(steps) if step.kind in ("keep", "drop", "add")
        ]
        mask_numbers = [f"m{n}_{w}" for n in self.masks for w in ("0", "1", "2", "g", "key")]
        scales = [f"scale{n}" for n, step in enumerate(steps) if step.kind == "scale"]
        fills = [f"fill{n}" for n, step in enumerate(steps) if step.finite]
        self.dropout = dropout
        self.pointers: tuple[str, ...] = (
            *reads,
            *items.reads,
            *(f"m{n}" for n in self.masks),
            *_DROPOUT_POINTERS[dropout],
            *writes,
            *items.writes,
        )
        self.numbers: tuple[str, ...] = (
            *_EXTENTS,
            *items.numbers,
            *numbers,
            *mask_numbers,
            *scales,
            *fills,
            *_DROPOUT_NUMBERS[dropout],
        )
        self.load_arguments(self.pointers, self.numbers)
        self.scale: dict[str, str] = {n: self.as_vector(f"%{n}") for n in scales}
        self.fill: dict[str, str] = {n: self.as_vector(f"%{n}") for n in fills}
        self.drop: str = "" if dropout == KEPT else self.as_vector("%drop")
        self.causal: bool = any(step.kind == "causal" for step in steps)
        self.on_diagonal: bool = False

    def loop_metadata(self) -> str:
        """Metadata that disables unrolling: it gains nothing, and takes long to compile."""
        number = len(self.tags) + 1
        self.tags.append(f"!M{number} = distinct !{{!M{number}, !M0}}")
        return f", !llvm.loop !M{number}"

    def as_vector(self, bits: str) -> str:
        """A float, given by its bits, in every lane."""
        low = self.op(f"trunc i64 {bits} to i32")
        return self.splat(self.op(f"bitcast i32 {low} to float"), "float")

    def align_scratch(self) -> None:
        self.base: str = self.aligned("%scratch")

    def scratch(self, name: str) -> str:
        return self.at_byte(self.base, f"%{name}")

    def head(self, item: str, group: str) -> Head:
        rest = self.op(f"udiv i64 {item}, %items_2")
        place = (
            self.op(f"udiv i64 {rest}, %items_1"),
            self.op(f"urem i64 {rest}, %items_1"),
            self.op(f"urem i64 {item}, %items_2"),
        )
        return Head(place, group, self.items.extents(self, place))

    def enter(self, head: Head) -> None:
        """Emit what follows for the extents of an item."""
        self.length, self.keys_count = head.extents.length, head.extents.keys

    def shared(self, name: str, head: Head) -> str:
        """The address of an item of a value."""
        terms = [self.mul(place, f"%{name}_{d}") for d, place in enumerate(head.place)]
        first = head.extents.first_row(name)
        if first is not None:
            terms.append(self.mul(first, f"%{name}_row"))
        return self.at_byte(f"%{name}", *terms)

    def own(self, name: str, head: Head) -> str:
        """The address of one head of queries of a value."""
        return self.at_byte(self.shared(name, head), self.mul(head.group, f"%{name}_g"))

    def locate_masks(self, head: Head, query: str) -> None:
        self.mask_at: dict[int, str] = {}
        for n in self.masks:
            start = self.own(f"m{n}", head)
            if self.steps[n].spread:
                size = 4 if self.steps[n].kind == "add" else 1
                start = self.at_byte(start, self.mul(query, size))
            self.mask_at[n] = start

    def mask(self, n: int, key: str, lane: str, valid: str) -> str:
        """A mask for a vector of queries: bits, or floats to add."""
        step = self.steps[n]
        floats = step.kind == "add"
        vector = self.vector if floats else Vector("i8", lanes(), 1)
        place = self.at_byte(self.mask_at[n], self.mul(key, f"%m{n}_key"))
        if step.spread:
            place = self.at_byte(place, self.mul(lane, 4) if floats else lane)
            found = self.load_masked(place, valid, vector=vector)
        else:
            element = vector.element
            found = self.splat(self.op(f"load {element}, ptr {place}, align 1"), element)
        if floats:
            return found
        test = "ne" if step.kind == "keep" else "eq"
        return self.op(f"icmp {test} <{lanes()} x i8> {found}, zeroinitializer")

    def score(self, s: str, key: str, lane: str, query: str, valid: str) -> tuple[str, list[str]]:
        """A vector of products after all score steps, and the masks that were applied."""
        chosen = []
        for n, step in enumerate(self.steps):
            if step.kind == "scale":
                s = self.lanewise("fmul", s, self.scale[f"scale{n}"])
                continue
            if step.kind == "causal":
                if not self.on_diagonal:
                    continue
                # Lane x holds query `query + lane + x`: it sees the key if x >= key - query - lane.
                prefetch = self.sub(self.sub(key, query), lane)
                unseen = self.first_lanes(prefetch)
                bits = self.op(
                    f"xor {self.mask_type} {unseen}, {self.splat_constant('true', 'i1')}"
                )
            else:
                bits = self.mask(n, key, lane, valid)
            if step.kind == "add":
                s = self.lanewise("fadd", s, bits)
            else:
                fill = self.fill[f"fill{n}"] if step.finite else self.constant(float("-inf"))
                s = self.choose(bits, s, fill)
                chosen.append(bits)
        return s, chosen

    # -- dropout --------------------------------------------------------------------------------

    def locate_dropout(self, number: str, head: Head, query: str) -> None:
        """The address of the bits of a query block, or the number of its first element in the
        random stream."""
        if self.dropout == BITS:
            words = self.op(
                f"udiv i64 {self.add(self.length, ROWS_OF_A_WORD - 1)}, {ROWS_OF_A_WORD}"
            )
            word = self.add(self.mul(number, words), self.op(f"udiv i64 {query}, {ROWS_OF_A_WORD}"))
            self.drawn: str = self.at_byte("%bits", self.mul(self.mul(word, self.keys_count), 4))
        elif self.dropout == COUNTED:
            first, self.drawn_row = self.items.stream(self, number, head.extents)
            self.drawn = self.add(first, self.mul(query, self.drawn_row))

    def dropout_of_keys(self, first: str, count: str, vectors: str) -> None:
        """Locate the bits of a key block, or compute them."""
        if self.dropout == BITS:
            self.key_bits: str = self.at_byte(self.drawn, self.mul(first, 4))
            self.key_bits_row: str = self.mul(self.keys_count, 4)
        elif self.dropout == COUNTED:
            self.key_bits = self.scratch("at_bits")
            self.key_bits_row = str(_BITS_ROW)
            seed, offset = (
                self.op(f"load i64, ptr %{name}") for name in _DROPOUT_POINTERS[COUNTED]
            )
            with self.loop(vectors) as vector:
                lane = self.mul(vector, lanes())
                index = self.add(self.drawn, first, self.mul(lane, self.drawn_row))
                row, bit = self.word_of(lane)
                drawn = self.seen_by(lane, count, ROWS_OF_A_WORD)
                self.call_helper(
                    counted_bits(), f"i64 {seed}", f"i64 {offset}", f"i64 {index}",
                    f"i64 {self.drawn_row}", f"i64 {drawn}", "i64 %limit",
                    f"i64 {bit}", f"ptr {row}",
                )  # fmt: skip

    def word_of(self, lane: str) -> tuple[str, str]:
        """The address of the words of a vector of queries, and its first bit in each."""
        number = self.op(f"udiv i64 {lane}, {ROWS_OF_A_WORD}")
        bit = self.op(f"urem i64 {lane}, {ROWS_OF_A_WORD}")
        return self.at_byte(self.key_bits, self.mul(number, self.key_bits_row)), bit

    def dropped(self, value: str, key: str, lane: str) -> str:
        """Weights of a vector of queries, or their cotangents, after dropout."""
        if self.dropout == KEPT:
            return value
        row, bit = self.word_of(lane)
        word = self.op(f"load i32, ptr {self.at_byte(row, self.mul(key, 4))}, align 4")
        moved = self.op(f"lshr i32 {word}, {self.op(f'trunc i64 {bit} to i32')}")
        kept = self.op(
            f"bitcast i{lanes()} {self.op(f'trunc i32 {moved} to i{lanes()}')} to {self.mask_type}"
        )
        return self.lanewise("fmul", value, self.choose(kept, self.drop, "zeroinitializer"))

    # -- prefetching ----------------------------------------------------------------------------

    def rows_of(self, name: str, start: str, first: str) -> Matrix:
        """Rows of a part of a value, from the first one on."""
        return Matrix(self.at_byte(start, self.mul(first, f"%{name}_row")), f"%{name}_row")

    def next_rows(self, name: str, head: Head, after: Head, query: str, first: str) -> Matrix:
        """Rows of the next query block, which may be another head's."""
        begin = self.add(query, QUERIES)
        here = self.at_byte(self.own(name, head), self.mul(begin, f"%{name}_row"))
        there = self.own(name, after)
        start = self.op(f"select i1 {self.is_last(query)}, ptr {there}, ptr {here}")
        return self.rows_of(name, start, first)

    def is_last(self, query: str) -> str:
        return self.op(f"icmp sge i64 {self.add(query, QUERIES)}, {self.length}")

    def prefetch(self, soon: Matrix, later: Matrix, condition: str) -> Prefetch:
        return Prefetch(soon, later, self.op(f"select i1 {condition}, i64 %row_bytes, i64 0"))

    # -- blocks ---------------------------------------------------------------------------------

    def is_seen(self, first: str, end: str, rows: str, vectors: str) -> str | None:
        """Whether masks keep any score of a key block; ``None`` if they always do."""
        result = None
        for n in self.masks:
            if self.steps[n].kind == "add" or any(step.finite for step in self.steps[n:]):
                continue
            seen = self.slot("i1", "false")
            with self.loop(vectors) as vector, self.loop(end, first=first) as key:
                lane = self.mul(vector, lanes())
                valid = self.first_lanes(self.sub(rows, lane))
                bits = self.mask(n, key, lane, valid)
                found = self.any_lane(self.op(f"and {self.mask_type} {bits}, {valid}"))
                before = self.op(f"load i1, ptr {seen}")
                self.do(f"store i1 {self.op(f'or i1 {before}, {found}')}, ptr {seen}")
            now = self.op(f"load i1, ptr {seen}")
            result = now if result is None else self.op(f"and i1 {result}, {now}")
        return result

    def multiply(
        self, layout: tiles.Layout, a: Matrix, rows: str | int, depth: str, b: Matrix, sums: Sums,
        vectors: str, prefetch: Prefetch, triangle: bool = False,
    ) -> None:  # fmt: skip
        """``to = A B (+ before)``; see :func:`.kernels.attention.tiles.microkernel`."""
        before, to, more = sums
        soon, later = prefetch.soon, prefetch.later
        self.call_helper(
            tiles.product(layout), f"ptr {a.start}", f"i64 {a.step}", f"i64 {vectors}",
            f"i64 {rows}", f"i64 {depth}", f"ptr {b.start}", f"i64 {b.step}",
            f"ptr {before.start}", f"i64 {before.step}", f"ptr {to.start}", f"i64 {to.step}",
            f"i1 {more}", f"i1 {str(triangle).lower()}", f"ptr {soon.start}", f"i64 {soon.step}",
            f"ptr {later.start}", f"i64 {later.step}", f"i64 {prefetch.bytes}",
        )  # fmt: skip

    def multiply_queries(
        self,
        a: Matrix,
        count: str,
        depth: str,
        transposed: str,
        scores: str,
        vectors: str,
        prefetch: Prefetch,
    ) -> None:
        """Keys or values times the queries that attend to them; of a triangle some at a time."""
        if not self.on_diagonal:
            sums = Sums.none(Matrix(scores, ROW))
            self.multiply(
                tiles.GIVEN, a, count, depth, Matrix(transposed, ROW), sums, vectors, prefetch
            )
            return
        with self.loop(count, diagonal_keys()) as first:
            shift = self.mul(first, 4)
            keys, soon, later = (
                Matrix(self.at_byte(x.start, self.mul(first, x.step)), x.step)
                for x in (a, prefetch.soon, prefetch.later)
            )
            seen = self.least(self.sub(count, first), diagonal_keys())
            seeing = self.sub(vectors, self.op(f"udiv i64 {first}, {lanes()}"))
            queries = Matrix(self.at_byte(transposed, shift), ROW)
            sums = Sums.none(Matrix(self.at_byte(scores, self.mul(first, ROW), shift), ROW))
            self.multiply(
                tiles.GIVEN, keys, seen, depth, queries, sums, seeing,
                Prefetch(soon, later, prefetch.bytes),
            )  # fmt: skip

    def seen_by(self, lane: str, count: str, step: int) -> str:
        """The keys of a block that a vector of queries attends to: of a triangle, a multiple of
        ``step``."""
        if not self.on_diagonal:
            return count
        return self.least(self.add(self.op(f"and i64 {lane}, -{step}"), step), count)

    def move(
        self, helper: Helper, start: str, start_row: str | int, rows: str, columns: str,
        to: str, to_row: str | int,
    ) -> None:  # fmt: skip
        self.call_helper(
            helper, f"ptr {start}", f"i64 {start_row}", f"i64 {rows}", f"i64 {columns}",
            f"ptr {to}", f"i64 {to_row}",
        )  # fmt: skip

    def pack(self, head: Head, start: str, count: str) -> None:
        """Pack keys and values in scratch memory, if their rows are so far apart that they evict
        each other."""
        self.packed: dict[str, Matrix] = {}
        for name, width, row in (
            ("k", "%width", "%width_row"),
            ("v", "%value_width", "%value_row"),
        ):
            there = self.at_byte(self.shared(name, head), self.mul(start, f"%{name}_row"))
            here = self.scratch(f"at_{name}")
            packs = self.op(f"icmp ne i64 %pack_{name}, 0")
            with self.when(packs):
                self.move(parts.rows_in(), there, f"%{name}_row", count, width, here, row)
            self.packed[name] = Matrix(
                self.op(f"select i1 {packs}, ptr {here}, ptr {there}"),
                self.op(f"select i1 {packs}, i64 {row}, i64 %{name}_row"),
            )

    def flag(self, slot: str) -> str:
        return self.op(f"load i1, ptr {slot}")

    def clear(self, to: str, rows: str, row: str | int) -> None:
        self.call_helper(parts.clear(), f"ptr {to}", f"i64 {self.mul(rows, row)}")

    def block_of(self, query: str) -> tuple[str, str]:
        """The number of queries, and of vectors of them, in a block."""
        rows = self.least(self.sub(self.length, query), QUERIES)
        vectors = self.op(f"udiv i64 {self.add(rows, lanes() - 1)}, {lanes()}")
        return rows, vectors

    def for_key_blocks(
        self, query: str, rows: str, start: str, end: str, body: Callable[[str, str], None]
    ) -> None:
        """Emit ``body`` for each key block, given its first key and their number.

        With a causal mask, all queries of a block attend to the keys before it, the later ones to
        those beside it, and none to those after it. Key blocks have the size and the bounds of
        query blocks.
        """
        if not self.causal:
            self.for_blocks(start, end, body)
            return
        before = self.least(self.most(query, start), end)
        seen = self.seen_before(self.add(query, rows), end)
        self.for_blocks(start, before, body)
        self.on_diagonal = True
        self.for_blocks(before, seen, body)
        self.on_diagonal = False

    def seen_before(self, query: str, end: str) -> str:
        """The end of the keys that queries before some query attend to under a causal mask: tiles
        are whole, or end where the keys do."""
        return self.least(self.in_tiles(query), end)

    def in_tiles(self, count: str) -> str:
        return self.op(f"and i64 {self.add(count, parts.EIGHT - 1)}, -{parts.EIGHT}")

    def for_blocks(self, start: str, end: str, body: Callable[[str, str], None]) -> None:
        with self.loop(end, KEYS, first=start) as first:
            body(first, self.least(self.sub(end, first), KEYS))

    def finish(self, kind: str) -> AttentionKernel:
        head = (
            "define void @SELF(ptr %args, i64 %chunk, ptr %scratch) nounwind "
            f'"prefer-vector-width"="{lanes() * 32}"'
        )
        tags = ['!M0 = !{!"llvm.loop.unroll.disable"}', *self.tags]
        text = self.function(head) + "\n".join([*tags, ""])
        name = name_of(text, kind)
        named = text.replace("@SELF", f"@{name}")
        return AttentionKernel(name, named, self.helpers, self.pointers, self.numbers)
