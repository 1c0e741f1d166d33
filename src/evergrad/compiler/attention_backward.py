"""The backward kernel of attention, in LLVM IR: all queries that look at a span of keys.

Probabilities are computed again from the level and the factor that the forward kernel kept for each
query. The gradients of the span's keys and values are added up in scratch memory; a query's own
gradient is complete if there is one span, else its parts are added up afterwards.
"""

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
    Rows,
    Step,
    Text,
    steps_of,
)
from evergrad.compiler.attention_text import QUERIES, ROW, lanes

PLACES = (
    "at_k", "at_v", "at_turned_q", "at_rows_q", "at_turned_g", "at_rows_g", "at_powers",
    "at_slopes", "at_turned_dq", "at_deltas", "at_dk", "at_dv",
)  # fmt: skip
_RESULTS = (
    *steps_of("g", "g"), *steps_of("y", "g"), *steps_of("dq", "g", "part"), *steps_of("dk"),
    *steps_of("dv"),
)  # fmt: skip
_NUMBERS = ("items", "spans", "span")


@cache
def backward(steps: tuple[Step, ...], dropout: str = KEPT) -> Text:
    """A chunk is one span of the keys of an item, or some whole items."""
    return _Backward(steps, dropout).write()


class _Backward(KernelWriter):
    def __init__(self, steps: tuple[Step, ...], dropout: str) -> None:
        super().__init__(
            steps, dropout, ("q", "k", "v", "g", "y", "stats"), ("dq", "dk", "dv"),
            (*_NUMBERS, *QUERY, *KEY_VALUE, *_RESULTS, *PLACES),
        )  # fmt: skip

    def write(self) -> Text:
        self.align_scratch()
        self.area = {name.removeprefix("at_"): self.scratch(name) for name in PLACES}
        self.part = self.op("urem i64 %chunk, %spans")
        self.start = self.mul(self.part, "%span")
        self.end = self.least(self.add(self.start, "%span"), "%keys")
        first = self.mul(self.op("udiv i64 %chunk, %spans"), "%run")
        last = self.sub(self.least(self.add(first, "%run"), "%items"), 1)
        with self.loop(first, self.add(last, 1)) as item:
            self.one_item(item, self.head(self.least(self.add(item, 1), last), "0"))
        return self.finish("attention_backward")

    def one_item(self, item: str, after: Head) -> None:
        head = self.head(item, "0")
        count = self.sub(self.end, self.start)
        self.pack(head, self.start, count)
        whole = self.in_tiles(count)
        self.clear(self.area["dk"], whole, "%width_row")
        self.clear(self.area["dv"], whole, "%value_row")
        with self.loop(0, "%groups") as group, self.loop(0, "%length", QUERIES) as query:
            number = self.add(self.mul(item, "%groups"), group)
            self.queries(number, head._replace(group=group), after, query)
        for name, width in (("dk", "%width"), ("dv", "%value_width")):
            from_row = "%width_row" if name == "dk" else "%value_row"
            to = self.at(self.shared(name, head), self.mul(self.start, f"%{name}_row"))
            self.move(parts.rows_out(), self.area[name], from_row, count, width, to, f"%{name}_row")

    def queries(self, number: str, head: Head, after: Head, query: str) -> None:
        """One block of queries."""
        area = self.area
        rows, vectors = self.block_of(query)
        self.locate_masks(head, query)
        self.locate_drawn(number, query)
        for name, width, own_row in (("q", "%width", "width"), ("g", "%value_width", "value")):
            start = self.at(self.own(name, head), self.mul(query, f"%{name}_row"))
            self.call(
                parts.turn_and_copy(), f"ptr {start}", f"i64 %{name}_row", f"i64 {rows}",
                f"i64 {width}", f"ptr {area[f'turned_{name}']}", f"i64 {ROW}",
                f"ptr {area[f'rows_{name}']}", f"i64 %{own_row}_row",
            )  # fmt: skip
        self.deltas(head, query, rows)
        self.clear(area["turned_dq"], "%width", ROW)
        stats = self.at("%stats", self.mul(self.mul(number, "%length"), 8), self.mul(query, 4))
        broken = self.is_broken(stats, rows, vectors)

        def block(first: str, count: str) -> None:
            seen = self.is_seen(first, self.add(first, count), rows, vectors)
            with self.when("true" if seen is None else self.op(f"or i1 {seen}, {broken}")):
                self.keys(head, after, query, rows, vectors, stats, first, count)

        self.through_keys(query, rows, self.start, self.end, block)
        place = self.add(self.mul(self.part, "%dq_part"), self.mul(query, "%dq_row"))
        to = self.at(self.own("dq", head), place)
        self.move(parts.turn_out(), area["turned_dq"], ROW, rows, "%width", to, "%dq_row")

    def deltas(self, head: Head, query: str, rows: str) -> None:
        """For each query the sum of its result times the result's cotangent."""
        area = self.area
        start = self.at(self.own("y", head), self.mul(query, "%y_row"))
        self.call(
            parts.row_products(), f"ptr {start}", "i64 %y_row", f"ptr {area['rows_g']}",
            "i64 %value_row", f"i64 {rows}", "i64 %value_width", f"ptr {area['deltas']}",
        )  # fmt: skip

    def is_broken(self, stats: str, rows: str, vectors: str) -> str:
        """Whether a query of the block has no finite factor: its probabilities are NaN even where
        masks leave nothing, and no key may be passed over."""
        found = self.slot("i1", "false")
        with self.loop(0, vectors) as vector:
            lane = self.mul(vector, lanes())
            _, factor, valid = self.row_numbers(stats, lane, rows)
            bits = self.calc("fcmp uge", factor, self.number(float("inf")))
            bad = self.any_of(self.op(f"and {self.bits} {bits}, {valid}"))
            before = self.op(f"load i1, ptr {found}")
            self.do(f"store i1 {self.op(f'or i1 {before}, {bad}')}, ptr {found}")
        return self.op(f"load i1, ptr {found}")

    def row_numbers(self, stats: str, lane: str, rows: str) -> tuple[str, str, str]:
        """The level and the factor of a vector of queries, and which of them are there."""
        valid = self.first_lanes(self.sub(rows, lane))
        shift = self.mul(lane, 4)
        level = self.masked_load(self.at(stats, shift), valid)
        factor = self.masked_load(self.at(stats, self.mul("%length", 4), shift), valid)
        return level, factor, valid

    def keys(
        self, head: Head, after: Head, query: str, rows: str, vectors: str, stats: str, first: str,
        count: str,
    ) -> None:  # fmt: skip
        """One block of keys for a block of queries."""
        area = self.area
        own = self.sub(first, self.start)
        (k, k_row), (v, v_row) = (self.packed[name] for name in ("k", "v"))
        k, v = self.at(k, self.mul(own, k_row)), self.at(v, self.mul(own, v_row))
        self.times_queries(
            Matrix(k, k_row, 4), count, "%width", area["turned_q"], area["powers"], vectors,
            more=False, ahead=self.edges("dk", "k", head, after, query, first),
        )  # fmt: skip
        self.times_queries(
            Matrix(v, v_row, 4), count, "%value_width", area["turned_g"], area["slopes"],
            vectors, more=False, ahead=self.edges("dv", "v", head, after, query, first),
        )  # fmt: skip
        self.draw_keys(first, count, vectors)
        with self.loop(self.from_vector, vectors) as vector:
            self.slopes(query, rows, stats, first, count, self.mul(vector, lanes()))
        is_near = self.op(f"icmp slt i64 {own}, {QUERIES}")
        gradients = self.rows_of("dq", self.own("dq", head), self.add(query, own))
        q, g, y = (self.next_rows(name, head, after, query, own) for name in ("q", "g", "y"))
        # The key of a row is not seen by the first queries.
        unseen = {"zeros": self.sub(first, query)} if self.on_diagonal else {}
        for weights, factors, row, target, ahead in (
            ("powers", "rows_g", "%value_row", "dv", self.ahead(g, y, is_near)),
            ("slopes", "rows_q", "%width_row", "dk", self.ahead(q, gradients, is_near)),
        ):
            sums = self.at(area[target], self.mul(own, row))
            self.times(
                Matrix(area[weights], ROW, 4), count, rows, Rows(area[factors], row),
                Rows(sums, row), self.op(f"udiv i64 {row}, {lanes() * 4}"), more=True, ahead=ahead,
                **unseen,
            )  # fmt: skip
        self.times_queries(
            Matrix(k, 4, k_row), "%width", count, area["slopes"], area["turned_dq"],
            vectors, more=True, ahead=self.ahead(q, gradients, "false"),
        )  # fmt: skip

    def edges(
        self, gradient: str, name: str, head: Head, after: Head, query: str, first: str
    ) -> Ahead:
        """Where gradients of keys will go, and the keys of the next item: at the first block of
        queries and at the last."""
        is_first = self.op(f"icmp eq i64 {query}, 0")
        return self.ahead(
            self.rows_of(gradient, self.shared(gradient, head), first),
            self.rows_of(name, self.shared(name, after), first),
            self.op(f"or i1 {is_first}, {self.is_last(query)}"),
        )

    def slopes(self, query: str, rows: str, stats: str, first: str, count: str, lane: str) -> None:
        """Scores become probabilities; cotangents of these become cotangents of products."""
        shift = self.mul(lane, 4)
        level, factor, valid = self.row_numbers(stats, lane, rows)
        delta = self.load(self.at(self.area["deltas"], shift))
        with self.loop(0, count) as j:
            place = self.add(self.mul(j, ROW), shift)
            power_at, slope_at = (self.at(self.area[n], place) for n in ("powers", "slopes"))
            key = self.add(first, j)
            s, chosen = self.score(self.load(power_at), key, lane, query, valid)
            power = self.calc("fmul", self.exp(self.calc("fsub", s, level)), factor)
            self.store(self.dropped(power, j, lane), power_at)
            slope = self.dropped(self.load(slope_at), j, lane)
            slope = self.calc("fmul", power, self.calc("fsub", slope, delta))
            for bits in chosen:
                slope = self.choose(bits, slope, "zeroinitializer")
            for scale in self.scale.values():
                slope = self.calc("fmul", slope, scale)
            self.store(slope, slope_at)
