"""What the two kernels of attention share, in LLVM IR.

A block of queries lies in the lanes of vectors, keys run along the rows: scores are held as
``S[key, query]``, so that keys and values are read as they lie, element by element, and maxima and
sums over keys need nothing across lanes. The forward kernel takes each block of queries through all
keys and keeps, for each query, the largest score and one over the sum of its powers; the backward
kernel computes the probabilities again from these, takes all blocks of queries through a span of
keys and adds up the gradients of its keys and values on the way. While products are computed, what
is read and written next is fetched from memory. For dropout a word holds, for one key, bits of some
queries of a block; it was drawn before, or is computed here from a position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from evergrad.compiler.codegen.function_builder import (
    FunctionBuilder,
    Helper,
    lanes,
    splat_constant,
)
from evergrad.compiler.codegen.rng import counted_bits
from evergrad.compiler.kernels.attention import primitives as parts
from evergrad.compiler.kernels.attention import tiles
from evergrad.compiler.kernels.attention.primitives import LINE, QUERIES, ROW
from evergrad.compiler.kernels.random_rows import ROWS_OF_A_WORD
from evergrad.compiler.native.jit import name_of


class Step(NamedTuple):
    """What happens to a score: ``scale`` by a number, ``causal`` (only keys up to the query),
    ``keep`` or ``drop`` by a mask, or ``add`` one. ``spread``: the mask varies along queries;
    ``finite``: what is left out becomes a number, not an infinity."""

    kind: str
    spread: bool = False
    finite: bool = False


class Text(NamedTuple):
    """A kernel, and the names of the pointers and numbers it is called with."""

    name: str
    text: str
    helpers: dict[str, str]
    pointers: tuple[str, ...]
    numbers: tuple[str, ...]


class Rows(NamedTuple):
    """A matrix in memory: where it begins, and the bytes from one row to the next."""

    start: str
    step: str | int


class Sums(NamedTuple):
    """Where the sums of a product were before, if there are ``more``, and where they go."""

    before: Rows
    to: Rows
    more: str

    @classmethod
    def none(cls, to: Rows) -> Sums:
        return cls(to, to, "false")


class Ahead(NamedTuple):
    """Rows that will be read or written soon, and how many bytes of each are fetched: none if this
    is not the time."""

    soon: Rows
    later: Rows
    bytes: str


class Head(NamedTuple):
    """The place of an item in the batch, and a group of queries that share its keys."""

    place: tuple[str, ...]
    group: str


_SIZES = (
    "items_1", "items_2", "groups", "length", "keys", "width", "value_width", "row_bytes", "run",
    "pack_k", "pack_v",
)  # fmt: skip


def steps_of(name: str, *more: str) -> tuple[str, ...]:
    """The names of the bytes between items, between rows, and along what else is told."""
    return tuple(f"{name}_{step}" for step in ("0", "1", "2", "row", *more))


QUERY = steps_of("q", "g")
# Keys and values; and the bytes of their rows, and of those of queries, in scratch memory.
KEY_VALUE = (*steps_of("k"), *steps_of("v"), "width_row", "value_row")


KEYS = QUERIES  # of a block
# Bytes between the words of a block of keys, which hold bits of some of its queries, and the next.
_BITS_ROW = (KEYS + 1) * 4
BITS_BYTES = QUERIES // ROWS_OF_A_WORD * _BITS_ROW
# How weights are dropped: not at all, by bits that lie in memory, or by counting.
KEPT, BITS, COUNTED = "kept", "bits", "counted"
_DRAWN = {KEPT: (), BITS: ("bits",), COUNTED: ("seed", "offset")}
_DRAWN_NUMBERS = {KEPT: (), BITS: ("drop",), COUNTED: ("drop", "limit", "at_bits")}


def diagonal_keys() -> int:
    """How many keys of a triangle are taken to be seen by the same vectors of queries: as few as
    make whole vectors of queries and whole tiles of keys."""
    return max(lanes(), parts.EIGHT)


class KernelWriter(FunctionBuilder):
    """What both kernels share: arguments, the place in the batch, the steps of a score, and
    dropout."""

    def __init__(
        self, steps: tuple[Step, ...], dropout: str, reads: tuple[str, ...],
        writes: tuple[str, ...], numbers: tuple[str, ...],
    ) -> None:  # fmt: skip
        super().__init__()
        self.tags: list[str] = []
        self.steps = steps
        self.masks = [n for n, step in enumerate(steps) if step.kind in ("keep", "drop", "add")]
        mask_numbers = [f"m{n}_{w}" for n in self.masks for w in ("0", "1", "2", "g", "key")]
        scales = [f"scale{n}" for n, step in enumerate(steps) if step.kind == "scale"]
        fills = [f"fill{n}" for n, step in enumerate(steps) if step.finite]
        self.dropout = dropout
        self.pointers = (*reads, *(f"m{n}" for n in self.masks), *_DRAWN[dropout], *writes)
        self.numbers = (*_SIZES, *numbers, *mask_numbers, *scales, *fills, *_DRAWN_NUMBERS[dropout])
        for place, name in enumerate((*self.pointers, *self.numbers)):
            kind = "ptr" if place < len(self.pointers) else "i64"
            address = self.op(f"getelementptr i64, ptr %args, i64 {place}")
            self.do(f"%{name} = load {kind}, ptr {address}")
        self.scale = {n: self.as_vector(f"%{n}") for n in scales}
        self.fill = {n: self.as_vector(f"%{n}") for n in fills}
        self.drop = "" if dropout == KEPT else self.as_vector("%drop")
        self.causal = any(step.kind == "causal" for step in steps)
        self.on_diagonal = False

    def loop_tag(self) -> str:
        """Loops stay as they are: unrolled they are no faster, and take long to compile."""
        number = len(self.tags) + 1
        self.tags.append(f"!M{number} = distinct !{{!M{number}, !M0}}")
        return f", !llvm.loop !M{number}"

    def as_vector(self, bits: str) -> str:
        """The float whose bits a number has, in every lane."""
        low = self.op(f"trunc i64 {bits} to i32")
        return self.splat(self.op(f"bitcast i32 {low} to float"))

    def align_scratch(self) -> None:
        raw = self.op("ptrtoint ptr %scratch to i64")
        self.base = self.at("%scratch", self.op(f"and i64 {self.sub(0, raw)}, {LINE - 1}"))

    def scratch(self, name: str) -> str:
        return self.at(self.base, f"%{name}")

    def head(self, item: str, group: str) -> Head:
        rest = self.op(f"udiv i64 {item}, %items_2")
        place = (
            self.op(f"udiv i64 {rest}, %items_1"),
            self.op(f"urem i64 {rest}, %items_1"),
            self.op(f"urem i64 {item}, %items_2"),
        )
        return Head(place, group)

    def shared(self, name: str, head: Head) -> str:
        """Where a value's part for an item begins."""
        terms = [self.mul(place, f"%{name}_{d}") for d, place in enumerate(head.place)]
        return self.at(f"%{name}", *terms)

    def own(self, name: str, head: Head) -> str:
        """Where a value's part for one head of queries begins."""
        return self.at(self.shared(name, head), self.mul(head.group, f"%{name}_g"))

    def locate_masks(self, head: Head, query: str) -> None:
        self.mask_at = {}
        for n in self.masks:
            start = self.own(f"m{n}", head)
            if self.steps[n].spread:
                size = 4 if self.steps[n].kind == "add" else 1
                start = self.at(start, self.mul(query, size))
            self.mask_at[n] = start

    def mask(self, n: int, key: str, lane: str, valid: str) -> str:
        """A mask for a vector of queries: bits, or floats to add."""
        step = self.steps[n]
        floats = step.kind == "add"
        type = "float" if floats else "i8"
        place = self.at(self.mask_at[n], self.mul(key, f"%m{n}_key"))
        if step.spread:
            place = self.at(place, self.mul(lane, 4) if floats else lane)
            found = self.masked_load(place, valid, type)
        else:
            found = self.splat(self.op(f"load {type}, ptr {place}, align 1"), type)
        if floats:
            return found
        test = "ne" if step.kind == "keep" else "eq"
        return self.op(f"icmp {test} <{lanes()} x i8> {found}, zeroinitializer")

    def score(self, s: str, key: str, lane: str, query: str, valid: str) -> tuple[str, list[str]]:
        """A vector of products after all steps, and the masks that chose among them."""
        chosen = []
        for n, step in enumerate(self.steps):
            if step.kind == "scale":
                s = self.calc("fmul", s, self.scale[f"scale{n}"])
                continue
            if step.kind == "causal":
                if not self.on_diagonal:
                    continue
                # Lane x holds query `query + lane + x`: it sees the key if x >= key - query - lane.
                ahead = self.sub(self.sub(key, query), lane)
                unseen = self.first_lanes(ahead)
                bits = self.op(f"xor {self.bits} {unseen}, {splat_constant('true', 'i1')}")
            else:
                bits = self.mask(n, key, lane, valid)
            if step.kind == "add":
                s = self.calc("fadd", s, bits)
            else:
                fill = self.fill[f"fill{n}"] if step.finite else self.number(float("-inf"))
                s = self.choose(bits, s, fill)
                chosen.append(bits)
        return s, chosen

    # -- dropout --------------------------------------------------------------------------------

    def locate_drawn(self, head: str, query: str) -> None:
        """Where the bits of a block of queries begin, or what the number of its first element is
        in the draw."""
        if self.dropout == BITS:
            words = self.op(f"udiv i64 {self.add('%length', ROWS_OF_A_WORD - 1)}, {ROWS_OF_A_WORD}")
            word = self.add(self.mul(head, words), self.op(f"udiv i64 {query}, {ROWS_OF_A_WORD}"))
            self.drawn = self.at("%bits", self.mul(self.mul(word, "%keys"), 4))
        elif self.dropout == COUNTED:
            row = self.add(self.mul(head, "%length"), query)
            self.drawn = self.mul(row, "%keys")

    def draw_keys(self, first: str, count: str, vectors: str) -> None:
        """Have the bits of a block of keys."""
        if self.dropout == BITS:
            self.drawn_keys = self.at(self.drawn, self.mul(first, 4))
            self.drawn_row = self.mul("%keys", 4)
        elif self.dropout == COUNTED:
            self.drawn_keys = self.scratch("at_bits")
            self.drawn_row = str(_BITS_ROW)
            seed, offset = (self.op(f"load i64, ptr %{name}") for name in _DRAWN[COUNTED])
            with self.loop(0, vectors) as vector:
                lane = self.mul(vector, lanes())
                index = self.add(self.drawn, first, self.mul(lane, "%keys"))
                row, bit = self.word_of(lane)
                drawn = self.seen_by(lane, count, ROWS_OF_A_WORD)
                self.call(
                    counted_bits(), f"i64 {seed}", f"i64 {offset}", f"i64 {index}", "i64 %keys",
                    f"i64 {drawn}", "i64 %limit", f"i64 {bit}", f"ptr {row}",
                )  # fmt: skip

    def word_of(self, lane: str) -> tuple[str, str]:
        """Where the words of a vector of queries begin, and its first bit in each."""
        number = self.op(f"udiv i64 {lane}, {ROWS_OF_A_WORD}")
        bit = self.op(f"urem i64 {lane}, {ROWS_OF_A_WORD}")
        return self.at(self.drawn_keys, self.mul(number, self.drawn_row)), bit

    def dropped(self, value: str, key: str, lane: str) -> str:
        """Weights of a vector of queries, or their cotangents, after dropout."""
        if self.dropout == KEPT:
            return value
        row, bit = self.word_of(lane)
        word = self.op(f"load i32, ptr {self.at(row, self.mul(key, 4))}, align 4")
        moved = self.op(f"lshr i32 {word}, {self.op(f'trunc i64 {bit} to i32')}")
        kept = self.op(
            f"bitcast i{lanes()} {self.op(f'trunc i32 {moved} to i{lanes()}')} to {self.bits}"
        )
        return self.calc("fmul", value, self.choose(kept, self.drop, "zeroinitializer"))

    # -- what is fetched while products are computed --------------------------------------------

    def rows_of(self, name: str, start: str, first: str) -> Rows:
        """Rows of a value of which a part begins somewhere."""
        return Rows(self.at(start, self.mul(first, f"%{name}_row")), f"%{name}_row")

    def next_rows(self, name: str, head: Head, after: Head, query: str, first: str) -> Rows:
        """Rows of the next block of queries, which may be another head's."""
        begin = self.add(query, QUERIES)
        here = self.at(self.own(name, head), self.mul(begin, f"%{name}_row"))
        there = self.own(name, after)
        start = self.op(f"select i1 {self.is_last(query)}, ptr {there}, ptr {here}")
        return self.rows_of(name, start, first)

    def is_last(self, query: str) -> str:
        return self.op(f"icmp sge i64 {self.add(query, QUERIES)}, %length")

    def ahead(self, soon: Rows, later: Rows, condition: str) -> Ahead:
        return Ahead(soon, later, self.op(f"select i1 {condition}, i64 %row_bytes, i64 0"))

    # -- blocks ---------------------------------------------------------------------------------

    def is_seen(self, first: str, end: str, rows: str, vectors: str) -> str | None:
        """Whether the masks leave anything of a block of keys; ``None`` if that is known."""
        result = None
        for n in self.masks:
            if self.steps[n].kind == "add" or any(step.finite for step in self.steps[n:]):
                continue
            seen = self.slot("i1", "false")
            with self.loop(0, vectors) as vector, self.loop(first, end) as key:
                lane = self.mul(vector, lanes())
                valid = self.first_lanes(self.sub(rows, lane))
                bits = self.mask(n, key, lane, valid)
                found = self.any_of(self.op(f"and {self.bits} {bits}, {valid}"))
                before = self.op(f"load i1, ptr {seen}")
                self.do(f"store i1 {self.op(f'or i1 {before}, {found}')}, ptr {seen}")
            now = self.op(f"load i1, ptr {seen}")
            result = now if result is None else self.op(f"and i1 {result}, {now}")
        return result

    def times(
        self, lying: tiles.Lying, a: Rows, rows: str | int, depth: str, b: Rows, sums: Sums,
        vectors: str, ahead: Ahead, triangle: bool = False,
    ) -> None:  # fmt: skip
        """``to = A B (+ before)``; :func:`.kernels.attention.tiles.strip` tells more."""
        before, to, more = sums
        soon, later = ahead.soon, ahead.later
        self.call(
            tiles.product(lying), f"ptr {a.start}", f"i64 {a.step}", f"i64 {vectors}",
            f"i64 {rows}", f"i64 {depth}", f"ptr {b.start}", f"i64 {b.step}",
            f"ptr {before.start}", f"i64 {before.step}", f"ptr {to.start}", f"i64 {to.step}",
            f"i1 {more}", f"i1 {str(triangle).lower()}", f"ptr {soon.start}", f"i64 {soon.step}",
            f"ptr {later.start}", f"i64 {later.step}", f"i64 {ahead.bytes}",
        )  # fmt: skip

    def times_queries(
        self, a: Rows, count: str, depth: str, turned: str, scores: str, vectors: str, ahead: Ahead
    ) -> None:
        """Keys or values times the queries that see them; of a triangle some keys at a time."""
        if not self.on_diagonal:
            sums = Sums.none(Rows(scores, ROW))
            self.times(tiles.GIVEN, a, count, depth, Rows(turned, ROW), sums, vectors, ahead)
            return
        with self.loop(0, count, diagonal_keys()) as first:
            shift = self.mul(first, 4)
            keys, soon, later = (
                Rows(self.at(x.start, self.mul(first, x.step)), x.step)
                for x in (a, ahead.soon, ahead.later)
            )
            seen = self.least(self.sub(count, first), diagonal_keys())
            seeing = self.sub(vectors, self.op(f"udiv i64 {first}, {lanes()}"))
            queries = Rows(self.at(turned, shift), ROW)
            sums = Sums.none(Rows(self.at(scores, self.mul(first, ROW), shift), ROW))
            self.times(
                tiles.GIVEN, keys, seen, depth, queries, sums, seeing,
                Ahead(soon, later, ahead.bytes),
            )  # fmt: skip

    def seen_by(self, lane: str, count: str, step: int) -> str:
        """How many keys of a block are looked at for a vector of queries: of a triangle, whole
        steps."""
        if not self.on_diagonal:
            return count
        return self.least(self.add(self.op(f"and i64 {lane}, -{step}"), step), count)

    def move(
        self, helper: Helper, start: str, start_row: str | int, rows: str, columns: str,
        to: str, to_row: str | int,
    ) -> None:  # fmt: skip
        self.call(
            helper, f"ptr {start}", f"i64 {start_row}", f"i64 {rows}", f"i64 {columns}",
            f"ptr {to}", f"i64 {to_row}",
        )  # fmt: skip

    def pack(self, head: Head, start: str, count: str) -> None:
        """Have keys and values at hand: in scratch memory, if their rows lie so far apart that they
        drive each other out of the caches."""
        self.packed: dict[str, Rows] = {}
        for name, width, row in (
            ("k", "%width", "%width_row"),
            ("v", "%value_width", "%value_row"),
        ):
            there = self.at(self.shared(name, head), self.mul(start, f"%{name}_row"))
            here = self.scratch(f"at_{name}")
            packs = self.op(f"icmp ne i64 %pack_{name}, 0")
            with self.when(packs):
                self.move(parts.rows_in(), there, f"%{name}_row", count, width, here, row)
            self.packed[name] = Rows(
                self.op(f"select i1 {packs}, ptr {here}, ptr {there}"),
                self.op(f"select i1 {packs}, i64 {row}, i64 %{name}_row"),
            )

    def flag(self, slot: str) -> str:
        return self.op(f"load i1, ptr {slot}")

    def clear(self, to: str, rows: str, row: str | int) -> None:
        self.call(parts.clear(), f"ptr {to}", f"i64 {self.mul(rows, row)}")

    def block_of(self, query: str) -> tuple[str, str]:
        """How many queries, and vectors of them, are in a block."""
        rows = self.least(self.sub("%length", query), QUERIES)
        vectors = self.op(f"udiv i64 {self.add(rows, lanes() - 1)}, {lanes()}")
        return rows, vectors

    def through_keys(
        self, query: str, rows: str, start: str, end: str, body: Callable[[str, str], None]
    ) -> None:
        """Write what happens to each block of keys, given where it begins and how many there are.

        In a triangle the keys before a block of queries are seen by all of these, those beside it
        by the later ones, and what follows by none. Blocks of keys are as long as those of queries
        and begin where these do.
        """
        if not self.causal:
            self.each_block(start, end, body)
            return
        before = self.least(self.most(query, start), end)
        seen = self.seen_before(self.add(query, rows), end)
        self.each_block(start, before, body)
        self.on_diagonal = True
        self.each_block(before, seen, body)
        self.on_diagonal = False

    def seen_before(self, query: str, end: str) -> str:
        """Where the keys end that queries before some query look at in a triangle: tiles are whole,
        or end where the keys do."""
        return self.least(self.in_tiles(query), end)

    def in_tiles(self, count: str) -> str:
        return self.op(f"and i64 {self.add(count, parts.EIGHT - 1)}, -{parts.EIGHT}")

    def each_block(self, start: str, end: str, body: Callable[[str, str], None]) -> None:
        with self.loop(start, end, KEYS) as first:
            body(first, self.least(self.sub(end, first), KEYS))

    def finish(self, kind: str) -> Text:
        head = (
            "define void @SELF(ptr %args, i64 %chunk, ptr %scratch) nounwind "
            f'"prefer-vector-width"="{lanes() * 32}"'
        )
        tags = ['!M0 = !{!"llvm.loop.unroll.disable"}', *self.tags]
        text = self.function(head) + "\n".join([*tags, ""])
        name = name_of(text, kind)
        named = text.replace("@SELF", f"@{name}")
        return Text(name, named, self.helpers, self.pointers, self.numbers)
