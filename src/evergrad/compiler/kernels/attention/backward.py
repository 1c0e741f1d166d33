"""The backward kernel of attention, in LLVM IR: all queries that attend to a span of keys.

Probabilities are recomputed from the level and the factor that the forward kernel kept for each
query. The gradients of the span's keys and values are accumulated in scratch memory; the gradient
of a query is complete if there is one span, otherwise its parts are summed afterwards.
"""

from __future__ import annotations

from functools import cache

from evergrad.compiler.codegen.function_builder import lanes
from evergrad.compiler.kernels.attention import primitives as parts
from evergrad.compiler.kernels.attention import tiles
from evergrad.compiler.kernels.attention.common import (
    KEPT,
    KEY_VALUE,
    KEYS,
    QUERY,
    AttentionKernel,
    Head,
    KernelWriter,
    Matrix,
    Prefetch,
    ScoreStep,
    Sums,
    diagonal_keys,
    stride_names,
)
from evergrad.compiler.kernels.attention.exponential import exp
from evergrad.compiler.kernels.attention.extents import UNIFORM, Items
from evergrad.compiler.kernels.attention.primitives import QUERIES, ROW

SCRATCH = (
    "at_k", "at_v", "at_transposed_q", "at_rows_q", "at_transposed_g", "at_rows_g",
    "at_exponentials", "at_score_gradients", "at_dq", "at_deltas", "at_dk", "at_dv",
)  # fmt: skip
_RESULTS = (
    *stride_names("g", "g"), *stride_names("y", "g"), *stride_names("dq", "g", "part"),
    *stride_names("dk"), *stride_names("dv"),
)  # fmt: skip
_NUMBERS = ("items", "spans", "span", "direct")


@cache
def backward(
    steps: tuple[ScoreStep, ...], dropout: str = KEPT, items: Items = UNIFORM
) -> AttentionKernel:
    """A chunk is one span of the keys of an item, or some whole items."""
    return _Backward(steps, dropout, items).write()


class _Backward(KernelWriter):
    def __init__(self, steps: tuple[ScoreStep, ...], dropout: str, items: Items) -> None:
        super().__init__(
            steps, dropout, ("q", "k", "v", "g", "y", "stats"), ("dq", "dk", "dv"),
            (*_NUMBERS, *QUERY, *KEY_VALUE, *_RESULTS, *SCRATCH), items,
        )  # fmt: skip

    def write(self) -> AttentionKernel:
        self.align_scratch()
        self.area = {name.removeprefix("at_"): self.scratch(name) for name in SCRATCH}
        self.part = self.op("urem i64 %chunk, %spans")
        self.start = self.mul(self.part, "%span")
        first = self.mul(self.op("udiv i64 %chunk, %spans"), "%run")
        last = self.sub(self.least(self.add(first, "%run"), "%items"), 1)
        with self.loop(self.add(last, 1), first=first) as item:
            self.item_gradients(item, self.head(self.least(self.add(item, 1), last), "0"))
        results = (("dq", "%width"), ("dk", "%width"), ("dv", "%value_width"))
        self.items.rest(self, results, self.op(f"icmp sge i64 {first}, %items"))
        return self.finish("attention_backward")

    def item_gradients(self, item: str, after: Head) -> None:
        head = self.head(item, "0")
        self.enter(head)
        self.direct = self.items.direct(self, head.extents, self.causal)
        self.indirect = self.op(f"xor i1 {self.direct}, true")
        self.end = self.least(self.add(self.start, "%span"), self.keys_count)
        count = self.sub(self.end, self.start)
        self.pack(head, self.start, count)
        whole = self.in_tiles(count)
        with self.when(self.indirect):
            self.clear(self.area["dk"], whole, "%width_row")
            self.clear(self.area["dv"], whole, "%value_row")
        with self.loop("%groups") as group, self.loop(self.length, QUERIES) as query:
            number = self.add(self.mul(item, "%groups"), group)
            self.queries(number, head._replace(group=group), after, query)
        with self.when(self.indirect):
            for name, width in (("dk", "%width"), ("dv", "%value_width")):
                row = "%width_row" if name == "dk" else "%value_row"
                to = self.rows_of(name, self.shared(name, head), self.start)
                self.move(parts.rows_out(), self.area[name], row, count, width, *to)

    def queries(self, number: str, head: Head, after: Head, query: str) -> None:
        """One query block."""
        area = self.area
        rows, vectors = self.block_of(query)
        self.locate_masks(head, query)
        self.locate_dropout(number, head, query)
        for name, width, own_row in (("q", "%width", "width"), ("g", "%value_width", "value")):
            start = self.at_byte(self.own(name, head), self.mul(query, f"%{name}_row"))
            self.call_helper(
                parts.transpose_and_copy(), f"ptr {start}", f"i64 %{name}_row", f"i64 {rows}",
                f"i64 {width}", f"ptr {area[f'transposed_{name}']}", f"i64 {ROW}",
                f"ptr {area[f'rows_{name}']}", f"i64 %{own_row}_row",
            )  # fmt: skip
        self.deltas(head, query, rows)
        with self.when(self.indirect):
            self.clear(area["dq"], self.in_tiles(rows), "%width_row")
        both = self.items.statistics(self, number, head.extents)
        stats = self.at_byte("%stats", both, self.mul(query, 4))
        invalid = self.has_invalid_statistics(stats, rows, vectors)

        def block(first: str, count: str) -> None:
            seen = self.is_seen(first, self.add(first, count), rows, vectors)
            with self.when("true" if seen is None else self.op(f"or i1 {seen}, {invalid}")):
                self.keys(head, after, query, rows, vectors, stats, first, count)

        self.for_key_blocks(query, rows, self.start, self.end, block)
        with self.when(self.indirect):
            part = self.at_byte(self.own("dq", head), self.mul(self.part, "%dq_part"))
            to = self.rows_of("dq", part, query)
            self.move(parts.rows_out(), area["dq"], "%width_row", rows, "%width", *to)

    def deltas(self, head: Head, query: str, rows: str) -> None:
        """For each query the dot product of its result and the result's cotangent."""
        area = self.area
        start = self.at_byte(self.own("y", head), self.mul(query, "%y_row"))
        self.call_helper(
            parts.row_products(), f"ptr {start}", "i64 %y_row", f"ptr {area['rows_g']}",
            "i64 %value_row", f"i64 {rows}", "i64 %value_width", f"ptr {area['deltas']}",
        )  # fmt: skip

    def has_invalid_statistics(self, stats: str, rows: str, vectors: str) -> str:
        """Whether a query of the block has no finite factor: its probabilities are NaN even where
        masks keep nothing, and no key block may be skipped."""
        found = self.slot("i1", "false")
        with self.loop(vectors) as vector:
            lane = self.mul(vector, lanes())
            _, factor, valid = self.row_numbers(stats, lane, rows)
            bits = self.lanewise("fcmp uge", factor, self.constant(float("inf")))
            bad = self.any_lane(self.op(f"and {self.mask_type} {bits}, {valid}"))
            before = self.op(f"load i1, ptr {found}")
            self.do(f"store i1 {self.op(f'or i1 {before}, {bad}')}, ptr {found}")
        return self.op(f"load i1, ptr {found}")

    def row_numbers(self, stats: str, lane: str, rows: str) -> tuple[str, str, str]:
        """The level and the factor of a vector of queries, and the mask of valid lanes."""
        valid = self.first_lanes(self.sub(rows, lane))
        shift = self.mul(lane, 4)
        level = self.load_masked(self.at_byte(stats, shift), valid)
        factor = self.load_masked(self.at_byte(stats, self.mul(self.length, 4), shift), valid)
        return level, factor, valid

    def keys(
        self, head: Head, after: Head, query: str, rows: str, vectors: str, stats: str, first: str,
        count: str,
    ) -> None:  # fmt: skip
        """One key block for a query block."""
        area = self.area
        own = self.sub(first, self.start)
        (k, k_row), (v, v_row) = (self.packed[name] for name in ("k", "v"))
        k, v = self.at_byte(k, self.mul(own, k_row)), self.at_byte(v, self.mul(own, v_row))
        self.multiply_queries(
            Matrix(k, k_row), count, "%width", area["transposed_q"], area["exponentials"], vectors,
            self.edges("dk", "k", head, after, query, first),
        )  # fmt: skip
        self.multiply_queries(
            Matrix(v, v_row), count, "%value_width", area["transposed_g"], area["score_gradients"],
            vectors, self.edges("dv", "v", head, after, query, first),
        )  # fmt: skip
        self.dropout_of_keys(first, count, vectors)
        with self.loop(vectors) as vector:
            lane = self.mul(vector, lanes())
            seen = self.seen_by(lane, count, diagonal_keys())
            self.score_gradients(query, rows, stats, first, seen, lane)
        is_near = self.op(f"icmp slt i64 {own}, {QUERIES}")
        gradients = self.rows_of("dq", self.own("dq", head), self.add(query, own))
        q, g, y = (self.next_rows(name, head, after, query, own) for name in ("q", "g", "y"))
        for layout, weights, sizes, factors, result, prefetch in (
            (tiles.SCORES, "exponentials", (count, rows), Matrix(area["rows_g"], "%value_row"),
             "dv", self.prefetch(g, y, is_near)),
            (tiles.SCORES, "score_gradients", (count, rows), Matrix(area["rows_q"], "%width_row"),
             "dk", self.prefetch(q, gradients, is_near)),
            (tiles.TRANSPOSED_SCORES, "score_gradients", (rows, count), Matrix(k, k_row), "dq",
             self.prefetch(q, gradients, "false")),
        ):  # fmt: skip
            row = "%value_row" if result == "dv" else "%width_row"
            if result == "dq":
                sums = self.sums_of_queries(head, query, rows, first)
            else:
                sums = self.sums_of_keys(result, row, head, query, first)
            self.multiply(
                layout, Matrix(area[weights], 0), *sizes, factors, sums,
                self.op(f"udiv i64 {row}, {lanes() * 4}"), prefetch, self.on_diagonal,
            )  # fmt: skip

    def sums_of_queries(self, head: Head, query: str, rows: str, first: str) -> Sums:
        """Gradients of queries, after a key block."""
        end = self.seen_before(self.add(query, rows), self.end) if self.causal else self.end
        return self.sums(
            Matrix(self.area["dq"], "%width_row"), self.rows_of("dq", self.own("dq", head), query),
            self.op(f"icmp eq i64 {first}, {self.start}"),
            self.op(f"icmp sge i64 {self.add(first, KEYS)}, {end}"),
        )  # fmt: skip

    def sums_of_keys(self, name: str, row: str, head: Head, query: str, first: str) -> Sums:
        """Gradients of keys or values, after a query block."""
        own = self.mul(self.sub(first, self.start), row)
        begin = self.op(f"icmp eq i64 {query}, {first if self.causal else 0}")
        is_first = self.op(f"icmp eq i64 {head.group}, 0")
        is_last = self.op(f"icmp eq i64 {self.add(head.group, 1)}, %groups")
        return self.sums(
            Matrix(self.at_byte(self.area[name], own), row),
            self.rows_of(name, self.shared(name, head), first),
            self.op(f"and i1 {is_first}, {begin}"),
            self.op(f"and i1 {is_last}, {self.is_last(query)}"),
        )  # fmt: skip

    def sums(self, here: Matrix, there: Matrix, is_first: str, is_last: str) -> Sums:
        """Sums in scratch memory, which the last addition writes to the result if it can."""
        leaves = self.op(f"and i1 {self.direct}, {is_last}")
        to = Matrix(
            self.op(f"select i1 {leaves}, ptr {there.start}, ptr {here.start}"),
            self.op(f"select i1 {leaves}, i64 {there.step}, i64 {here.step}"),
        )
        begins = self.op(f"and i1 {self.direct}, {is_first}")
        return Sums(here, to, self.op(f"xor i1 {begins}, true"))

    def edges(
        self, gradient: str, name: str, head: Head, after: Head, query: str, first: str
    ) -> Prefetch:
        """Prefetch the gradients of keys and the keys of the next item, at the first and at the
        last query block."""
        is_first = self.op(f"icmp eq i64 {query}, 0")
        return self.prefetch(
            self.rows_of(gradient, self.shared(gradient, head), first),
            self.rows_of(name, self.shared(name, after), first),
            self.op(f"or i1 {is_first}, {self.is_last(query)}"),
        )

    def score_gradients(
        self, query: str, rows: str, stats: str, first: str, count: str, lane: str
    ) -> None:
        """Scores become probabilities; cotangents of these become cotangents of products."""
        shift = self.mul(lane, 4)
        level, factor, valid = self.row_numbers(stats, lane, rows)
        delta = self.load_vector(self.at_byte(self.area["deltas"], shift))
        with self.loop(count) as j:
            place = self.add(self.mul(j, ROW), shift)
            exponential_at, gradient_at = (
                self.at_byte(self.area[n], place) for n in ("exponentials", "score_gradients")
            )
            key = self.add(first, j)
            s, chosen = self.score(self.load_vector(exponential_at), key, lane, query, valid)
            exponential = self.lanewise("fmul", exp(self, self.lanewise("fsub", s, level)), factor)
            self.store_vector(self.dropped(exponential, j, lane), exponential_at)
            gradient = self.dropped(self.load_vector(gradient_at), j, lane)
            gradient = self.lanewise("fmul", exponential, self.lanewise("fsub", gradient, delta))
            for bits in chosen:
                gradient = self.choose(bits, gradient, "zeroinitializer")
            for scale in self.scale.values():
                gradient = self.lanewise("fmul", gradient, scale)
            self.store_vector(gradient, gradient_at)
