"""The forward kernel of attention, in LLVM IR: one block of queries goes through all keys."""

from __future__ import annotations

from functools import cache

from evergrad.compiler import attention_text as parts
from evergrad.compiler.attention_kernels import (
    KEPT,
    KEY_VALUE,
    KEYS,
    QUERY,
    KernelWriter,
    Step,
    Text,
    steps_of,
)
from evergrad.compiler.attention_text import QUERIES, ROW, lanes

PLACES = ("at_turned", "at_scores", "at_sums", "at_tops", "at_totals")


@cache
def forward(steps: tuple[Step, ...], empty_is_zero: bool, dropout: str = KEPT) -> Text:
    """A chunk is one block of queries."""
    return _Forward(steps, empty_is_zero, dropout).write()


class _Forward(KernelWriter):
    def __init__(self, steps: tuple[Step, ...], empty_is_zero: bool, dropout: str) -> None:
        super().__init__(
            steps, dropout, ("q", "k", "v"), ("y", "stats"),
            ("blocks", *QUERY, *KEY_VALUE, *steps_of("y", "g"), *PLACES),
        )  # fmt: skip
        self.empty_is_zero = empty_is_zero

    def write(self) -> Text:
        self.align_scratch()
        turned, scores, sums, tops, totals = (self.scratch(name) for name in PLACES)
        rest = self.op("udiv i64 %chunk, %blocks")
        query = self.mul(self.op("urem i64 %chunk, %blocks"), QUERIES)
        group = self.op(f"urem i64 {rest}, %groups")
        self.locate(self.op(f"udiv i64 {rest}, %groups"))
        rows, vectors = self.block_of(query)
        k, v = self.of_item("k"), self.of_item("v")
        q = self.at(self.of_item("q", group), self.mul(query, "%q_row"))
        self.locate_masks(group, query)
        self.locate_drawn(rest, query)
        self.move(parts.turn_in(), q, "%q_row", rows, "%width", turned, ROW)
        self.clear(sums, "%value_width", ROW)
        self.clear(totals, "1", ROW)
        with self.loop(0, QUERIES, lanes()) as lane:
            self.store(self.number(float("-inf")), self.at(tops, self.mul(lane, 4)))
        end = self.keys_of(query, rows, "%keys")
        with self.loop(0, end, KEYS) as first:
            count = self.least(self.sub(end, first), KEYS)
            seen = self.is_seen(first, self.add(first, count), rows, vectors)
            with self.when(seen or "true"):
                start = self.at(k, self.mul(first, "%k_row"))
                self.times(
                    start, "%k_row", "%k_column", count, "%width", turned, ROW, scores, ROW,
                    vectors, more=False,
                )  # fmt: skip
                self.draw_keys(first, count, vectors)
                with self.loop(0, vectors) as vector:
                    self.powers(vector, query, rows, first, count, scores, sums, tops, totals)
                start = self.at(v, self.mul(first, "%v_row"))
                self.times(
                    start, "%v_column", "%v_row", "%value_width", count, scores, ROW, sums, ROW,
                    vectors, more=True,
                )  # fmt: skip
        self.end_block(rest, query, rows, vectors, sums, tops, totals)
        y = self.at(self.of_item("y", group), self.mul(query, "%y_row"))
        self.move(parts.turn_out(), sums, ROW, rows, "%value_width", y, "%y_row")
        return self.finish("attention")

    def powers(
        self, vector: str, query: str, rows: str, first: str, count: str, scores: str, sums: str,
        tops: str, totals: str,
    ) -> None:  # fmt: skip
        """Scores of a block of keys become powers; what was summed so far is brought to the new
        largest score."""
        lane = self.mul(vector, lanes())
        shift = self.mul(lane, 4)
        valid = self.first_lanes(self.sub(rows, lane))
        top_at, total_at = self.at(tops, shift), self.at(totals, shift)
        before = self.load(top_at)
        top = self.slot(self.vector, before)
        with self.loop(0, count) as j:
            place = self.at(scores, self.mul(j, ROW), shift)
            s, _ = self.score(self.load(place), self.add(first, j), lane, query, valid)
            self.store(s, place)
            self.keep(top, self.larger(s, self.kept(top)))
        now = self.kept(top)
        nothing = self.calc("fcmp oeq", now, self.number(float("-inf")))
        level = self.choose(nothing, "zeroinitializer", now)
        change = self.exp(self.calc("fsub", before, level))
        total = self.slot(self.vector, self.calc("fmul", self.load(total_at), change))
        with self.loop(0, count) as j:
            place = self.at(scores, self.mul(j, ROW), shift)
            power = self.exp(self.calc("fsub", self.load(place), level))
            self.store(self.dropped(power, j, lane), place)
            self.keep(total, self.calc("fadd", self.kept(total), power))
        self.store(now, top_at)
        self.store(self.kept(total), total_at)
        with self.when(self.any_of(self.calc("fcmp une", now, before))):
            self.scale_rows(sums, shift, change)

    def scale_rows(self, sums: str, shift: str, factor: str) -> None:
        with self.loop(0, "%value_width") as d:
            place = self.at(sums, self.mul(d, ROW), shift)
            self.store(self.calc("fmul", self.load(place), factor), place)

    def end_block(
        self, head: str, query: str, rows: str, vectors: str, sums: str, tops: str, totals: str
    ) -> None:
        """Divide by the sums of powers; keep the level and the factor of each query."""
        both = self.mul(self.mul(head, "%length"), 8)
        levels = self.at("%stats", both, self.mul(query, 4))
        factors = self.at(levels, self.mul("%length", 4))
        with self.loop(0, vectors) as vector:
            lane = self.mul(vector, lanes())
            shift = self.mul(lane, 4)
            top, total = self.load(self.at(tops, shift)), self.load(self.at(totals, shift))
            if self.empty_is_zero:
                empty = self.calc("fcmp oeq", total, self.number(0.0))
                total = self.choose(empty, self.number(1.0), total)
            factor = self.calc("fdiv", self.number(1.0), total)
            self.scale_rows(sums, shift, factor)
            nothing = self.calc("fcmp oeq", top, self.number(float("-inf")))
            valid = self.first_lanes(self.sub(rows, lane))
            level = self.choose(nothing, "zeroinitializer", top)
            self.masked_store(level, self.at(levels, shift), valid)
            self.masked_store(factor, self.at(factors, shift), valid)
