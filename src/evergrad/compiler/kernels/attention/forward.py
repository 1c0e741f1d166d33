"""The forward kernel of attention, in LLVM IR: streaming softmax over the key blocks of a query
block."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

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
    "at_k", "at_v", "at_transposed", "at_scores", "at_sums", "at_maxima", "at_totals", "at_factors",
    "at_run_sums", "at_run_totals",
)  # fmt: skip
# Key blocks whose sums are added one after the other; the sums of such runs are added then, so that
# the error grows little with the number of keys.
_RUN = 16


@cache
def forward(
    steps: tuple[ScoreStep, ...], empty_is_zero: bool, dropout: str = KEPT, items: Items = UNIFORM
) -> AttentionKernel:
    """A chunk is some heads, or some blocks of the queries of one."""
    return _Forward(steps, empty_is_zero, dropout, items).write()


class _Runs(NamedTuple):
    """The sums and totals of the finished runs of key blocks of a query block, if there are any."""

    sums: str
    totals: str
    exist: str


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
        with self.loop(self.add(last, 1), first=first) as number:
            head = self.numbered(number)
            after = self.numbered(self.least(self.add(number, 1), last))
            self.enter(head)
            part = self.items.part(self, head.extents)
            start = self.mul(self.op("urem i64 %chunk, %parts"), part)
            end = self.least(self.add(start, part), self.length)
            with self.when(self.op(f"icmp slt i64 {start}, {end}")):
                keys = self.keys_count
                self.pack(head, "0", self.seen_before(end, keys) if self.causal else keys)
                with self.loop(end, QUERIES, first=start) as query:
                    self.queries(number, head, after, query)
        results = (("y", "%value_width"), ("stats", ""))
        self.items.rest(self, results, self.op(f"icmp sge i64 {first}, %heads"))
        return self.finish("attention")

    def numbered(self, number: str) -> Head:
        item = self.op(f"udiv i64 {number}, %groups")
        return self.head(item, self.op(f"urem i64 {number}, %groups"))

    def queries(self, number: str, head: Head, after: Head, query: str) -> None:
        """One query block."""
        transposed, scores, sums, maxima, totals, factors, run_sums, run_totals = (
            self.scratch(name) for name in SCRATCH[2:]
        )
        rows, vectors = self.block_of(query)
        q = self.at_byte(self.own("q", head), self.mul(query, "%q_row"))
        self.locate_masks(head, query)
        self.locate_dropout(number, head, query)
        self.move(parts.transpose_in(), q, "%q_row", rows, "%width", transposed, ROW)
        begun, results = self.slot("i1", "false"), Matrix(sums, "%value_row")
        runs = _Runs(run_sums, run_totals, self.slot("i1", "false"))
        self.clear(totals, "1", ROW)
        with self.loop(QUERIES, lanes()) as lane:
            self.store_vector(self.constant(float("-inf")), self.at_byte(maxima, self.mul(lane, 4)))

        def block(first: str, count: str) -> None:
            seen = self.is_seen(first, self.add(first, count), rows, vectors)
            with self.when(seen or "true"):
                keys, row = self.packed["k"]
                self.multiply_queries(
                    Matrix(self.at_byte(keys, self.mul(first, row)), row), count, "%width",
                    transposed, scores, vectors, self.next_keys(after, query, first),
                )  # fmt: skip
                self.dropout_of_keys(first, count, vectors)
                with self.loop(vectors) as vector:
                    lane = self.mul(vector, lanes())
                    seen = self.seen_by(lane, count, diagonal_keys())
                    self.exponentials(
                        lane, query, rows, first, seen, scores, sums, maxima, totals, factors, runs
                    )
                values, row = self.packed["v"]
                self.multiply(
                    tiles.TRANSPOSED_SCORES, Matrix(scores, 0), rows, count,
                    Matrix(self.at_byte(values, self.mul(first, row)), row),
                    Sums(results, results, self.flag(begun)),
                    self.op(f"udiv i64 %value_row, {lanes() * 4}"),
                    self.next_queries(head, after, query, first), self.on_diagonal,
                )  # fmt: skip
                self.do(f"store i1 true, ptr {begun}")
            self.end_run(first, rows, sums, totals, begun, runs)

        self.for_key_blocks(query, rows, "0", self.keys_count, block)
        with self.when(self.op(f"xor i1 {self.flag(begun)}, true")):
            self.clear(sums, rows, "%value_row")
        with self.when(self.flag(runs.exist)):
            self.add_rows(sums, runs.sums, rows, "%value_row")
            self.add_rows(totals, runs.totals, "1", ROW)
        self.end_block(number, head, query, rows, vectors, maxima, totals, factors)
        y = self.at_byte(self.own("y", head), self.mul(query, "%y_row"))
        self.call_helper(
            parts.scaled_rows_out(), f"ptr {sums}", "i64 %value_row", f"i64 {rows}",
            "i64 %value_width", f"ptr {y}", "i64 %y_row", f"ptr {factors}",
        )  # fmt: skip

    def end_run(
        self, first: str, rows: str, sums: str, totals: str, begun: str, runs: _Runs
    ) -> None:
        """After the last key block of a run, what it summed goes to the sums of runs."""
        number = self.op(f"and i64 {self.op(f'udiv i64 {first}, {KEYS}')}, {_RUN - 1}")
        is_last = self.op(f"icmp eq i64 {number}, {_RUN - 1}")
        with self.when(self.op(f"and i1 {is_last}, {self.flag(begun)}")):
            with self.when(self.op(f"xor i1 {self.flag(runs.exist)}, true")):
                self.clear(runs.sums, rows, "%value_row")
                self.clear(runs.totals, "1", ROW)
            self.add_rows(runs.sums, sums, rows, "%value_row")
            self.add_rows(runs.totals, totals, "1", ROW)
            self.clear(totals, "1", ROW)
            self.do(f"store i1 false, ptr {begun}")
            self.do(f"store i1 true, ptr {runs.exist}")

    def add_rows(self, to: str, more: str, rows: str, row: str | int) -> None:
        self.call_helper(parts.add_rows(), f"ptr {to}", f"ptr {more}", f"i64 {self.mul(rows, row)}")

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
        maxima: str, totals: str, factors: str, runs: _Runs,
    ) -> None:  # fmt: skip
        """Scores of a block of keys become exponentials; what was summed so far is brought to the
        new largest score."""
        shift = self.mul(lane, 4)
        valid = self.first_lanes(self.sub(rows, lane))
        maximum_at, total_at = self.at_byte(maxima, shift), self.at_byte(totals, shift)
        before = self.load_vector(maximum_at)
        maximum = self.slot(self.vector.type, before)
        with self.loop(count) as j:
            place = self.at_byte(scores, self.mul(j, ROW), shift)
            s, _ = self.score(self.load_vector(place), self.add(first, j), lane, query, valid)
            self.store_vector(s, place)
            self.keep(maximum, self.larger(s, self.kept(maximum)))
        now = self.kept(maximum)
        nothing = self.lanewise("fcmp oeq", now, self.constant(float("-inf")))
        level = self.choose(nothing, "zeroinitializer", now)
        change = exp(self, self.lanewise("fsub", before, level))
        total = self.slot(self.vector.type, "zeroinitializer")
        with self.loop(count) as j:
            place = self.at_byte(scores, self.mul(j, ROW), shift)
            exponential = exp(self, self.lanewise("fsub", self.load_vector(place), level))
            self.store_vector(self.dropped(exponential, j, lane), place)
            self.keep(total, self.lanewise("fadd", self.kept(total), exponential))
        self.store_vector(now, maximum_at)
        earlier = self.lanewise("fmul", self.load_vector(total_at), change)
        self.store_vector(self.lanewise("fadd", earlier, self.kept(total)), total_at)
        is_summed = self.lanewise("fcmp ogt", before, self.constant(float("-inf")))
        differs = self.op(
            f"and {self.mask_type} {is_summed}, {self.lanewise('fcmp une', now, before)}"
        )
        with self.when(self.any_lane(differs)):
            self.store_vector(change, self.at_byte(factors, shift))
            self.rescale(sums, lane, factors)
            with self.when(self.flag(runs.exist)):
                self.rescale(runs.sums, lane, factors)
                total_at = self.at_byte(runs.totals, shift)
                total = self.lanewise("fmul", self.load_vector(total_at), change)
                self.store_vector(total, total_at)

    def rescale(self, sums: str, lane: str, factors: str) -> None:
        """Multiply the sums of a vector of queries by their factors."""
        self.call_helper(
            parts.scale_rows(), f"ptr {self.at_byte(sums, self.mul(lane, '%value_row'))}",
            "i64 %value_row", f"i64 {lanes()}", f"ptr {self.at_byte(factors, self.mul(lane, 4))}",
        )  # fmt: skip

    def end_block(
        self, number: str, head: Head, query: str, rows: str, vectors: str, maxima: str,
        totals: str, factors: str,
    ) -> None:  # fmt: skip
        """Keep the level and the factor of each query: one over its sum of exponentials."""
        both = self.items.statistics(self, number, head.extents)
        levels = self.at_byte("%stats", both, self.mul(query, 4))
        kept = self.at_byte(levels, self.mul(self.length, 4))
        with self.loop(vectors) as vector:
            lane = self.mul(vector, lanes())
            shift = self.mul(lane, 4)
            maximum, total = (
                self.load_vector(self.at_byte(maxima, shift)),
                self.load_vector(self.at_byte(totals, shift)),
            )
            if self.empty_is_zero:
                empty = self.lanewise("fcmp oeq", total, self.constant(0.0))
                total = self.choose(empty, self.constant(1.0), total)
            factor = self.lanewise("fdiv", self.constant(1.0), total)
            self.store_vector(factor, self.at_byte(factors, shift))
            nothing = self.lanewise("fcmp oeq", maximum, self.constant(float("-inf")))
            valid = self.first_lanes(self.sub(rows, lane))
            level = self.choose(nothing, "zeroinitializer", maximum)
            self.store_masked(level, self.at_byte(levels, shift), valid)
            self.store_masked(factor, self.at_byte(kept, shift), valid)
