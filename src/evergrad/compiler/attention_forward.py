"""The forward kernel of attention, in LLVM IR: each block of queries goes through all keys."""

from __future__ import annotations

from functools import cache

from evergrad.compiler import attention_text as parts
from evergrad.compiler.attention_kernels import (
    KEPT,
    KEY_VALUE,
    QUERY,
    Ahead,
    Head,
    KernelWriter,
    Matrix,
    Step,
    Text,
    steps_of,
)
from evergrad.compiler.attention_text import QUERIES, ROW, lanes

PLACES = ("at_k", "at_v", "at_turned", "at_scores", "at_sums", "at_tops", "at_totals")


@cache
def forward(steps: tuple[Step, ...], empty_is_zero: bool, dropout: str = KEPT) -> Text:
    """A chunk is some heads, or some blocks of the queries of one."""
    return _Forward(steps, empty_is_zero, dropout).write()


class _Forward(KernelWriter):
    def __init__(self, steps: tuple[Step, ...], empty_is_zero: bool, dropout: str) -> None:
        super().__init__(
            steps, dropout, ("q", "k", "v"), ("y", "stats"),
            ("heads", "parts", "part", *QUERY, *KEY_VALUE, *steps_of("y", "g"), *PLACES),
        )  # fmt: skip
        self.empty_is_zero = empty_is_zero

    def write(self) -> Text:
        self.align_scratch()
        first = self.mul(self.op("udiv i64 %chunk, %parts"), "%run")
        last = self.sub(self.least(self.add(first, "%run"), "%heads"), 1)
        start = self.mul(self.op("urem i64 %chunk, %parts"), "%part")
        end = self.least(self.add(start, "%part"), "%length")
        with self.loop(first, self.add(last, 1)) as number:
            head = self.numbered(number)
            after = self.numbered(self.least(self.add(number, 1), last))
            self.pack(head, "0", self.seen_before(end, "%keys") if self.causal else "%keys")
            with self.loop(start, end, QUERIES) as query:
                self.queries(number, head, after, query)
        return self.finish("attention")

    def numbered(self, number: str) -> Head:
        item = self.op(f"udiv i64 {number}, %groups")
        return self.head(item, self.op(f"urem i64 {number}, %groups"))

    def queries(self, number: str, head: Head, after: Head, query: str) -> None:
        """One block of queries."""
        turned, scores, sums, tops, totals = (self.scratch(name) for name in PLACES[2:])
        rows, vectors = self.block_of(query)
        q = self.at(self.own("q", head), self.mul(query, "%q_row"))
        self.locate_masks(head, query)
        self.locate_drawn(number, query)
        self.move(parts.turn_in(), q, "%q_row", rows, "%width", turned, ROW)
        self.clear(sums, "%value_width", ROW)
        self.clear(totals, "1", ROW)
        with self.loop(0, QUERIES, lanes()) as lane:
            self.store(self.number(float("-inf")), self.at(tops, self.mul(lane, 4)))

        def block(first: str, count: str) -> None:
            seen = self.is_seen(first, self.add(first, count), rows, vectors)
            with self.when(seen or "true"):
                keys, row = self.packed["k"]
                keys = self.at(keys, self.mul(first, row))
                self.times_queries(
                    Matrix(keys, row, 4), count, "%width", turned, scores, vectors,
                    more=False, ahead=self.next_keys(after, query, first),
                )  # fmt: skip
                self.draw_keys(first, count, vectors)
                with self.loop(self.from_vector, vectors) as vector:
                    self.powers(vector, query, rows, first, count, scores, sums, tops, totals)
                values, row = self.packed["v"]
                values = self.at(values, self.mul(first, row))
                self.times_queries(
                    Matrix(values, 4, row), "%value_width", count, scores, sums, vectors,
                    more=True, ahead=self.next_queries(head, after, query, first),
                )  # fmt: skip

        self.through_keys(query, rows, "0", "%keys", block)
        self.end_block(number, query, rows, vectors, sums, tops, totals)
        y = self.at(self.own("y", head), self.mul(query, "%y_row"))
        self.move(parts.turn_out(), sums, ROW, rows, "%value_width", y, "%y_row")

    def next_keys(self, after: Head, query: str, first: str) -> Ahead:
        """Keys and values of the next head, once it is next."""
        k, v = (self.rows_of(name, self.shared(name, after), first) for name in ("k", "v"))
        return self.ahead(k, v, self.is_last(query))

    def next_queries(self, head: Head, after: Head, query: str, first: str) -> Ahead:
        """Where the block's results go, and the next block. A product whose rows are the columns of
        values fetches fewer rows than there are keys, as a rule: it takes two to fetch all."""
        near = self.op(f"udiv i64 {first}, 2")
        results = self.rows_of("y", self.own("y", head), self.add(query, near))
        following = self.next_rows("q", head, after, query, near)
        return self.ahead(results, following, self.op(f"icmp slt i64 {near}, {QUERIES}"))

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
