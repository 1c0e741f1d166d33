"""The extents of attention's items, in LLVM IR: queries and keys, statistics, random numbers.

An item is a head of keys of one batch element. All items of a dense batch have the same extents;
the sequences of a jagged batch have those that offsets give at run time.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from evergrad.compiler.codegen.function_builder import FunctionBuilder
from evergrad.compiler.kernels.attention.primitives import QUERIES, clear_rows

# The values whose rows are keys; those of all others are queries.
_BY_KEY = frozenset({"k", "v", "dk", "dv"})


# Names of results, and of the numbers of their columns.
Results = tuple[tuple[str, str], ...]


class Extents(NamedTuple):
    """The numbers of queries and keys of an item, and its first rows if the items of a batch follow
    each other in one dimension."""

    length: str
    keys: str
    first_query: str | None = None
    first_key: str | None = None

    def first_row(self, name: str) -> str | None:
        return self.first_key if name in _BY_KEY else self.first_query


class Items(Protocol):
    """The items of a batch: the pointers and numbers of a kernel that give their extents."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    numbers: tuple[str, ...]

    def extents(self, w: FunctionBuilder, place: tuple[str, ...]) -> Extents:
        """The extents of the item at a place of the batch."""
        ...

    def part(self, w: FunctionBuilder, extents: Extents) -> str:
        """The queries of one of the ``parts`` of a head."""
        ...

    def direct(self, w: FunctionBuilder, extents: Extents, causal: bool) -> str:
        """Whether gradients may be written to the result in whole tiles."""
        ...

    def statistics(self, w: FunctionBuilder, head: str, extents: Extents) -> str:
        """The first byte of the statistics of a head of queries."""
        ...

    def stream(self, w: FunctionBuilder, head: str, extents: Extents) -> tuple[str, str]:
        """The number of the first weight of a head in the random stream, and that of one query."""
        ...

    def rest(self, w: FunctionBuilder, results: Results, is_rest: str) -> None:
        """Write what belongs to no item, in the chunk behind those of all items."""
        ...


class Uniform:
    """All items have the same extents."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ("length", "keys")

    def extents(self, w: FunctionBuilder, place: tuple[str, ...]) -> Extents:
        return Extents("%length", "%keys")

    def part(self, w: FunctionBuilder, extents: Extents) -> str:
        return "%part"

    def direct(self, w: FunctionBuilder, extents: Extents, causal: bool) -> str:
        return w.op("icmp ne i64 %direct, 0")

    def statistics(self, w: FunctionBuilder, head: str, extents: Extents) -> str:
        return w.mul(w.mul(head, "%length"), 8)

    def stream(self, w: FunctionBuilder, head: str, extents: Extents) -> tuple[str, str]:
        return w.mul(w.mul(head, "%length"), "%keys"), "%keys"

    def rest(self, w: FunctionBuilder, results: Results, is_rest: str) -> None:
        pass


class Sequences:
    """Offsets give the rows of each item. Offsets that do not grow, or exceed the tokens, set the
    status word, and their items are empty.

    Statistics of a sequence follow those of the one before, by head. Weights have the numbers that
    they would have in a matrix of all tokens by all tokens for each head.
    """

    reads: tuple[str, ...] = ("q_offsets", "k_offsets")
    writes: tuple[str, ...] = ("status",)
    numbers: tuple[str, ...] = ("queries", "all_keys")

    def extents(self, w: FunctionBuilder, place: tuple[str, ...]) -> Extents:
        queries = self._range(w, "q_offsets", place[1], "%queries")
        keys = self._range(w, "k_offsets", place[1], "%all_keys")
        return Extents(w.sub(queries[1], queries[0]), w.sub(keys[1], keys[0]), queries[0], keys[0])

    def _range(self, w: FunctionBuilder, offsets: str, number: str, most: str) -> tuple[str, str]:
        """Begin and end of a sequence; an empty one if they are wrong."""
        shift = w.mul(number, 8)
        begin, end = (
            w.op(f"load i64, ptr {w.at_byte(f'%{offsets}', shift, more)}, align 8")
            for more in (0, 8)
        )
        # Unsigned: a negative begin is beyond every end.
        fits = w.op(f"icmp ule i64 {end}, {most}")
        grows = w.op(f"icmp ule i64 {begin}, {end}")
        valid = w.op(f"and i1 {fits}, {grows}")
        with w.when(w.op(f"xor i1 {valid}, true")):
            w.do("store i64 1, ptr %status, align 8")
        return tuple(w.op(f"select i1 {valid}, i64 {x}, i64 0") for x in (begin, end))  # type: ignore[return-value]

    def part(self, w: FunctionBuilder, extents: Extents) -> str:
        blocks = w.op(f"udiv i64 {w.add(extents.length, QUERIES - 1)}, {QUERIES}")
        share = w.op(f"udiv i64 {w.sub(w.add(blocks, '%parts'), 1)}, %parts")
        return w.mul(share, QUERIES)

    def direct(self, w: FunctionBuilder, extents: Extents, causal: bool) -> str:
        """Nothing is written directly where there are no queries or no keys: no product is, that
        would write zeros."""
        length, keys = extents.length, extents.keys
        partial = w.op(f"and i64 {w.op(f'or i64 {length}, {keys}')}, 7")
        unseen = w.op(f"icmp sgt i64 {keys}, {length if causal else keys}")
        tests = [
            w.op("icmp ne i64 %direct, 0"), w.op(f"icmp eq i64 {partial}, 0"),
            w.op(f"icmp sgt i64 {w.least(length, keys)}, 0"), w.op(f"xor i1 {unseen}, true"),
        ]  # fmt: skip
        found = tests[0]
        for test in tests[1:]:
            found = w.op(f"and i1 {found}, {test}")
        return found

    def _local(self, w: FunctionBuilder, head: str) -> tuple[str, str]:
        """The number of a head of queries in its sequence, and how many there are."""
        heads = w.mul("%items_2", "%groups")
        return w.op(f"urem i64 {head}, {heads}"), heads

    def statistics(self, w: FunctionBuilder, head: str, extents: Extents) -> str:
        number, heads = self._local(w, head)
        before = w.mul(f"{extents.first_query}", heads)
        return w.mul(w.add(before, w.mul(number, extents.length)), 8)

    def stream(self, w: FunctionBuilder, head: str, extents: Extents) -> tuple[str, str]:
        number, _ = self._local(w, head)
        row = w.add(w.mul(number, "%queries"), f"{extents.first_query}")
        return w.add(w.mul(row, "%all_keys"), f"{extents.first_key}"), "%all_keys"

    def rest(self, w: FunctionBuilder, results: Results, is_rest: str) -> None:
        """Zeros in the rows before the first and behind the last sequence."""
        with w.when(is_rest):
            for name, width in results:
                is_key = name in _BY_KEY
                offsets, most = ("k_offsets", "%all_keys") if is_key else ("q_offsets", "%queries")
                begin, end = self._ends(w, offsets, most)
                for rows in (("0", begin), (end, most)):
                    self._clear(w, name, width, *rows)

    def _clear(self, w: FunctionBuilder, name: str, width: str, begin: str, end: str) -> None:
        """Zeros in some rows of all heads of a value, or in the statistics of these rows."""
        count = w.sub(end, begin)
        if name == "stats":
            numbers = w.mul(w.mul("%items_2", "%groups"), 2)
            start = w.at_byte("%stats", w.mul(w.mul(begin, numbers), 4))
            self._clear_rows(w, start, "0", "1", w.mul(count, numbers))
            return
        is_key, row = name in _BY_KEY, f"%{name}_row"
        with w.loop("%items_2") as head, w.loop("1" if is_key else "%groups") as group:
            own = "0" if is_key else w.mul(group, f"%{name}_g")
            start = w.at_byte(f"%{name}", w.mul(head, f"%{name}_2"), own, w.mul(begin, row))
            self._clear_rows(w, start, row, count, width)

    def _clear_rows(
        self, w: FunctionBuilder, start: str, row: str, rows: str, columns: str
    ) -> None:
        w.call_helper(clear_rows(), f"ptr {start}", f"i64 {row}", f"i64 {rows}", f"i64 {columns}")

    def _ends(self, w: FunctionBuilder, offsets: str, most: str) -> tuple[str, str]:
        """The first row of the first sequence, and the row behind the last."""
        begin, _ = self._range(w, offsets, "0", most)
        _, end = self._range(w, offsets, w.sub("%items_1", 1), most)
        return begin, end


UNIFORM, SEQUENCES = Uniform(), Sequences()
