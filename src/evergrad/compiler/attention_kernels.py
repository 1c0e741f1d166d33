"""What the two kernels of attention share, in LLVM IR.

A block of queries lies in the lanes of vectors, keys run along the rows: scores are held as
``S[key, query]``, so that keys and values are read as they lie, element by element, and maxima and
sums over keys need nothing across lanes. The forward kernel takes one block of queries through all
keys and keeps, for each query, the largest score and one over the sum of its powers; the backward
kernel computes the probabilities again from these, takes all blocks of queries through a span of
keys and adds up the gradients of its keys and values on the way. For dropout a word holds, for one
key, a bit for each query of a block; it was drawn before, or is computed here from a position.
"""

from __future__ import annotations

from typing import NamedTuple

from evergrad.compiler import attention_text as parts
from evergrad.compiler.attention_text import QUERIES, Writer, lanes
from evergrad.compiler.draw_text import counted_bits
from evergrad.compiler.llvm import name_of


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


_SIZES = ("items_1", "items_2", "groups", "length", "keys", "width", "value_width")


def steps_of(name: str, *more: str) -> tuple[str, ...]:
    """The names of the bytes between items, between rows, and along what else is told."""
    return tuple(f"{name}_{step}" for step in ("0", "1", "2", "row", *more))


QUERY = steps_of("q", "g")
KEY_VALUE = (*steps_of("k", "column"), *steps_of("v", "column"))


KEYS = 64  # of a block
# How weights are dropped: not at all, by bits that lie in memory, or by counting.
KEPT, BITS, COUNTED = "kept", "bits", "counted"
_DRAWN = {KEPT: (), BITS: ("bits",), COUNTED: ("seed", "offset")}
_DRAWN_NUMBERS = {KEPT: (), BITS: ("drop",), COUNTED: ("drop", "limit", "at_bits")}


class KernelWriter(Writer):
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
        self.base = self.at("%scratch", self.op(f"and i64 {self.sub(0, raw)}, 63"))

    def scratch(self, name: str) -> str:
        return self.at(self.base, f"%{name}")

    def locate(self, item: str) -> None:
        """The place of an item in the batch."""
        rest = self.op(f"udiv i64 {item}, %items_2")
        self.place = [
            self.op(f"udiv i64 {rest}, %items_1"),
            self.op(f"urem i64 {rest}, %items_1"),
            self.op(f"urem i64 {item}, %items_2"),
        ]

    def of_item(self, name: str, group: str | None = None) -> str:
        """Where a value's part for the item (and the group of heads that share keys) begins."""
        terms = [self.mul(place, f"%{name}_{d}") for d, place in enumerate(self.place)]
        if group is not None:
            terms.append(self.mul(group, f"%{name}_g"))
        return self.at(f"%{name}", *terms)

    def locate_masks(self, group: str, query: str) -> None:
        self.mask_at = {}
        for n in self.masks:
            start = self.of_item(f"m{n}", group)
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
                # Lane x holds query `query + lane + x`: it sees the key if x >= key - query - lane.
                ahead = self.sub(self.sub(key, query), lane)
                unseen = self.first_lanes(ahead)
                bits = self.op(f"xor {self.bits} {unseen}, {parts.splat_text('true', 'i1')}")
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
            blocks = self.op(f"udiv i64 {self.add('%length', QUERIES - 1)}, {QUERIES}")
            block = self.add(self.mul(head, blocks), self.op(f"udiv i64 {query}, {QUERIES}"))
            self.drawn = self.at("%bits", self.mul(self.mul(block, "%keys"), 4))
        elif self.dropout == COUNTED:
            row = self.add(self.mul(head, "%length"), query)
            self.drawn = self.mul(row, "%keys")

    def draw_keys(self, first: str, count: str, vectors: str) -> None:
        """Have the bits of a block of keys."""
        if self.dropout == BITS:
            self.drawn_keys = self.at(self.drawn, self.mul(first, 4))
        elif self.dropout == COUNTED:
            self.drawn_keys = self.scratch("at_bits")
            seed, offset = (self.op(f"load i64, ptr %{name}") for name in _DRAWN[COUNTED])
            with self.loop(0, vectors) as vector:
                lane = self.mul(vector, lanes())
                index = self.add(self.drawn, first, self.mul(lane, "%keys"))
                self.call(
                    counted_bits(), f"i64 {seed}", f"i64 {offset}", f"i64 {index}", "i64 %keys",
                    f"i64 {count}", "i64 %limit", f"i64 {lane}", f"ptr {self.drawn_keys}",
                )  # fmt: skip

    def dropped(self, value: str, key: str, lane: str) -> str:
        """Weights of a vector of queries, or their cotangents, after dropout."""
        if self.dropout == KEPT:
            return value
        word = self.op(f"load i32, ptr {self.at(self.drawn_keys, self.mul(key, 4))}, align 4")
        moved = self.op(f"lshr i32 {word}, {self.op(f'trunc i64 {lane} to i32')}")
        kept = self.op(
            f"bitcast i{lanes()} {self.op(f'trunc i32 {moved} to i{lanes()}')} to {self.bits}"
        )
        return self.calc("fmul", value, self.choose(kept, self.drop, "zeroinitializer"))

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
        self, a: str, across: str | int, along: str | int, rows: str, depth: str, b: str,
        b_row: str | int, c: str, c_row: str | int, vectors: str, more: bool,
    ) -> None:  # fmt: skip
        self.call(
            parts.product(), f"ptr {a}", f"i64 {across}", f"i64 {along}", f"i64 {rows}",
            f"i64 {depth}", f"ptr {b}", f"i64 {b_row}", f"ptr {c}", f"i64 {c_row}",
            f"i64 {vectors}", f"i1 {str(more).lower()}",
        )  # fmt: skip

    def move(
        self, helper: parts.Helper, start: str, start_row: str | int, rows: str, columns: str,
        to: str, to_row: str | int,
    ) -> None:  # fmt: skip
        self.call(
            helper, f"ptr {start}", f"i64 {start_row}", f"i64 {rows}", f"i64 {columns}",
            f"ptr {to}", f"i64 {to_row}",
        )  # fmt: skip

    def clear(self, to: str, rows: str, row: str | int) -> None:
        self.call(parts.clear(), f"ptr {to}", f"i64 {self.mul(rows, row)}")

    def block_of(self, query: str) -> tuple[str, str]:
        """How many queries, and vectors of them, are in a block."""
        rows = self.least(self.sub("%length", query), QUERIES)
        vectors = self.op(f"udiv i64 {self.add(rows, lanes() - 1)}, {lanes()}")
        return rows, vectors

    def keys_of(self, query: str, rows: str, end: str) -> str:
        """Where the keys end that a block of queries looks at, in whole tiles."""
        if not self.causal:
            return end
        seen = self.op(f"and i64 {self.add(query, rows, parts.EIGHT - 1)}, -{parts.EIGHT}")
        return self.least(seen, end)

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
