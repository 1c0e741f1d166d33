"""The forward kernel of attention, in LLVM IR: streaming softmax over the key blocks of a query
block."""

from __future__ import annotations

from functools import cache

from evergrad.compiler.codegen.function_builder import lanes
from evergrad.compiler.kernels.attention import primitives as parts
from evergrad.compiler.kernels.attention import tiles
from evergrad.compiler.kernels.attention.common import (
    KEPT,
    KEY_VALUE,
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
from evergrad.compiler.kernels.attention.extents import UNIFORM, Items
from evergrad.compiler.kernels.attention.primitives import QUERIES, ROW

SCRATCH = (
    "at_k", "at_v", "at_transposed", "at_scores", "at_sums", "at_maxima", "at_totals", "at_factors",
)  # fmt: skip


@cache
def forward(
    steps: tuple[ScoreStep, ...], empty_is_zero: bool, dropout: str = KEPT, items: Items = UNIFORM
) -> AttentionKernel:
    """A chunk is some heads, or some blocks of the queries of one."""
    return _Forward(steps, empty_is_zero, dropout, items).write()


class _Forward(KernelWriter):
    def __init__(
        self, steps: tuple[ScoreStep, ...], empty_is_zero: bool, dropout: str, items: Items
    ) -> None:
        super().__init__(
            steps, dropout, ("q", "k", "v"), ("y", "stats"),
            ("heads", "parts", "part", *QUERY, *KEY_VALUE, *stride_names("y", "g"), *SCRATCH),
            items,
        )  # fmt: skip
        self.empty_is_zero = empty_is_zero

    def write(self) -> AttentionKernel:
        self.align_scratch()
        first = self.mul(self.op("udiv i64 %chunk, %parts"), "%run")
        last = self.sub(self.least(self.add(first, "%run"), "%heads"), 1)
        with self.loop(first, self.add(last, 1)) as number:
            head = self.numbered(number)
            after = self.numbered(self.least(self.add(number, 1), last))
            self.enter(head)
            part = self.items.part(self, head.extents)
            start = self.mul(self.op("urem i64 %chunk, %parts"), part)
            end = self.least(self.add(start, part), self.length)
            with self.when(self.op(f"icmp slt i64 {start}, {end}")):
                keys = self.keys_count
                self.pack(head, "0", self.seen_before(end, keys) if self.causal else keys)
                with self.loop(start, end, QUERIES) as query:
                    self.queries(number, head, after, query)
        results = (("y", "%value_width"), ("stats", ""))
        self.items.rest(self, results, self.op(f"icmp sge i64 {first}, %heads"))
        return self.finish("attention")

    def numbered(self, number: str) -> Head:
        item = self.op(f"udiv i64 {number}, %groups")
        return self.head(item, self.op(f"urem i64 {number}, %groups"))

    def queries(self, number: str, head: Head, after: Head, query: str) -> None:
        """One query block."""
        transposed, scores, sums, maxima, totals, factors = (
            self.scratch(name) for name in SCRATCH[2:]
        )
        rows, vectors = self.block_of(query)
        q = self.at(self.own("q", head), self.mul(query, "%q_row"))
        self.locate_masks(head, query)
        self.locate_dropout(number, head, query)
        self.move(parts.transpose_in(), q, "%q_row", rows, "%width", transposed, ROW)
        begun, results = self.slot("i1", "false"), Matrix(sums, "%value_row")
        self.clear(totals, "1", ROW)
        with self.loop(0, QUERIES, lanes()) as lane:
            self.store(self.number(float("-inf")), self.at(maxima, self.mul(lane, 4)))

        def block(first: str, count: str) -> None:
            seen = self.is_seen(first, self.add(first, count), rows, vectors)
            with self.when(seen or "true"):
                keys, row = self.packed["k"]
                self.multiply_queries(
                    Matrix(self.at(keys, self.mul(first, row)), row), count, "%width", transposed,
                    scores, vectors, self.next_keys(after, query, first),
                )  # fmt: skip
                self.dropout_of_keys(first, count, vectors)
                with self.loop(0, vectors) as vector:
                    lane = self.mul(vector, lanes())
                    seen = self.seen_by(lane, count, diagonal_keys())
                    self.exponentials(
                        lane, query, rows, first, seen, scores, sums, maxima, totals, factors
                    )
                values, row = self.packed["v"]
                self.multiply(
                    tiles.TRANSPOSED_SCORES, Matrix(scores, 0), rows, count,
                    Matrix(self.at(values, self.mul(first, row)), row),
                    Sums(results, results, self.flag(begun)),
                    self.op(f"udiv i64 %value_row, {lanes() * 4}"),
                    self.next_queries(head, after, query, first), self.on_diagonal,
                )  # fmt: skip
                self.do(f"store i1 true, ptr {begun}")

        self.for_key_blocks(query, rows, "0", self.keys_count, block)
        with self.when(self.op(f"xor i1 {self.flag(begun)}, true")):
            self.clear(sums, rows, "%value_row")
        self.end_block(number, head, query, rows, vectors, maxima, totals, factors)
        y = self.at(self.own("y", head), self.mul(query, "%y_row"))
        self.call(
            parts.scaled_rows_out(), f"ptr {sums}", "i64 %value_row", f"i64 {rows}",
            "i64 %value_width", f"ptr {y}", "i64 %y_row", f"ptr {factors}",
        )  # fmt: skip

    def next_keys(self, after: Head, query: str, first: str) -> Prefetch:
        """Prefetch keys and values of the next head, during the last query block."""
        k, v = (self.rows_of(name, self.shared(name, after), first) for name in ("k", "v"))
        return self.prefetch(k, v, self.is_last(query))

    def next_queries(self, head: Head, after: Head, query: str, first: str) -> Prefetch:
        """Prefetch the results of the block, and the next block."""
        results = self.rows_of("y", self.own("y", head), self.add(query, first))
        following = self.next_rows("q", head, after, query, first)
        return self.prefetch(results, following, self.op(f"icmp slt i64 {first}, {QUERIES}"))

    def exponentials(
        self, lane: str, query: str, rows: str, first: str, count: str, scores: str, sums: str,
        maxima: str, totals: str, factors: str,
    ) -> None:  # fmt: skip
        """Scores of a block of keys become exponentials; what was summed so far is brought to the
        new largest score."""
        shift = self.mul(lane, 4)
        valid = self.first_lanes(self.sub(rows, lane))
        maximum_at, total_at = self.at(maxima, shift), self.at(totals, shift)
        before = self.load(maximum_at)
        maximum = self.slot(self.vector, before)
        with self.loop(0, count) as j:
            place = self.at(scores, self.mul(j, ROW), shift)
            s, _ = self.score(self.load(place), self.add(first, j), lane, query, valid)
            self.store(s, place)
            self.keep(maximum, self.larger(s, self.kept(maximum)))
        now = self.kept(maximum)
        nothing = self.calc("fcmp oeq", now, self.number(float("-inf")))
        level = self.choose(nothing, "zeroinitializer", now)
        change = self.exp(self.calc("fsub", before, level))
        total = self.slot(self.vector, self.calc("fmul", self.load(total_at), change))
        with self.loop(0, count) as j:
            place = self.at(scores, self.mul(j, ROW), shift)
            exponential = self.exp(self.calc("fsub", self.load(place), level))
            self.store(self.dropped(exponential, j, lane), place)
            self.keep(total, self.calc("fadd", self.kept(total), exponential))
        self.store(now, maximum_at)
        self.store(self.kept(total), total_at)
        is_summed = self.calc("fcmp ogt", before, self.number(float("-inf")))
        differs = self.op(f"and {self.bits} {is_summed}, {self.calc('fcmp une', now, before)}")
        with self.when(self.any_of(differs)):
            self.store(change, self.at(factors, shift))
            self.call(
                parts.scale_rows(), f"ptr {self.at(sums, self.mul(lane, '%value_row'))}",
                "i64 %value_row", f"i64 {lanes()}", f"ptr {self.at(factors, shift)}",
            )  # fmt: skip

    def end_block(
        self, number: str, head: Head, query: str, rows: str, vectors: str, maxima: str,
        totals: str, factors: str,
    ) -> None:  # fmt: skip
        """Keep the level and the factor of each query: one over its sum of exponentials."""
        both = self.items.statistics(self, number, head.extents)
        levels = self.at("%stats", both, self.mul(query, 4))
        kept = self.at(levels, self.mul(self.length, 4))
        with self.loop(0, vectors) as vector:
            lane = self.mul(vector, lanes())
            shift = self.mul(lane, 4)
            maximum, total = self.load(self.at(maxima, shift)), self.load(self.at(totals, shift))
            if self.empty_is_zero:
                empty = self.calc("fcmp oeq", total, self.number(0.0))
                total = self.choose(empty, self.number(1.0), total)
            factor = self.calc("fdiv", self.number(1.0), total)
            self.store(factor, self.at(factors, shift))
            nothing = self.calc("fcmp oeq", maximum, self.number(float("-inf")))
            valid = self.first_lanes(self.sub(rows, lane))
            level = self.choose(nothing, "zeroinitializer", maximum)
            self.masked_store(level, self.at(levels, shift), valid)
            self.masked_store(factor, self.at(kept, shift), valid)
