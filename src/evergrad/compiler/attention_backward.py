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
    KEYS,
    QUERY,
    KernelWriter,
    Step,
    Text,
    steps_of,
)
from evergrad.compiler.attention_text import QUERIES, ROW, lanes

PLACES = (
    "at_turned_q", "at_rows_q", "at_turned_g", "at_rows_g", "at_powers", "at_slopes",
    "at_turned_dq", "at_deltas", "at_dk", "at_dv",
)  # fmt: skip
_RESULTS = (
    *steps_of("g", "g"), *steps_of("y", "g"), *steps_of("dq", "g", "part"), *steps_of("dk"),
    *steps_of("dv"),
)  # fmt: skip
_NUMBERS = ("spans", "span", "width_row", "value_row")


@cache
def backward(steps: tuple[Step, ...], dropout: str = KEPT) -> Text:
    """A chunk is one span of the keys of an item."""
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
        self.item = self.op("udiv i64 %chunk, %spans")
        self.locate(self.item)
        self.start = self.mul(self.part, "%span")
        self.end = self.least(self.add(self.start, "%span"), "%keys")
        self.k, self.v = self.of_item("k"), self.of_item("v")
        count = self.sub(self.end, self.start)
        whole = self.op(f"and i64 {self.add(count, parts.EIGHT - 1)}, -{parts.EIGHT}")
        self.clear(self.area["dk"], whole, "%width_row")
        self.clear(self.area["dv"], whole, "%value_row")
        with self.loop(0, "%groups") as group, self.loop(0, "%length", QUERIES) as query:
            self.queries(group, query)
        for name, width in (("dk", "%width"), ("dv", "%value_width")):
            from_row = "%width_row" if name == "dk" else "%value_row"
            to = self.at(self.of_item(name), self.mul(self.start, f"%{name}_row"))
            self.move(parts.rows_out(), self.area[name], from_row, count, width, to, f"%{name}_row")
        return self.finish("attention_backward")

    def queries(self, group: str, query: str) -> None:
        """One block of queries."""
        area = self.area
        rows, vectors = self.block_of(query)
        head = self.add(self.mul(self.item, "%groups"), group)
        self.locate_masks(group, query)
        self.locate_drawn(head, query)
        for name, width, own_row in (("q", "%width", "width"), ("g", "%value_width", "value")):
            start = self.at(self.of_item(name, group), self.mul(query, f"%{name}_row"))
            self.move(
                parts.turn_in(), start, f"%{name}_row", rows, width, area[f"turned_{name}"], ROW
            )
            self.move(
                parts.rows_in(), start, f"%{name}_row", rows, width, area[f"rows_{name}"],
                f"%{own_row}_row",
            )  # fmt: skip
        self.deltas(group, query, rows, vectors)
        self.clear(area["turned_dq"], "%width", ROW)
        stats = self.at("%stats", self.mul(self.mul(head, "%length"), 8), self.mul(query, 4))
        broken = self.is_broken(stats, rows, vectors)
        end = self.keys_of(query, rows, self.end)
        with self.loop(self.start, end, KEYS) as first:
            count = self.least(self.sub(end, first), KEYS)
            seen = self.is_seen(first, self.add(first, count), rows, vectors)
            with self.when("true" if seen is None else self.op(f"or i1 {seen}, {broken}")):
                self.keys(query, rows, vectors, stats, first, count)
        place = self.add(self.mul(self.part, "%dq_part"), self.mul(query, "%dq_row"))
        to = self.at(self.of_item("dq", group), place)
        self.move(parts.turn_out(), area["turned_dq"], ROW, rows, "%width", to, "%dq_row")

    def deltas(self, group: str, query: str, rows: str, vectors: str) -> None:
        """For each query the sum of its result times the result's cotangent."""
        area = self.area
        start = self.at(self.of_item("y", group), self.mul(query, "%y_row"))
        # The results lie where the block's gradient will be.
        self.move(parts.turn_in(), start, "%y_row", rows, "%value_width", area["slopes"], ROW)
        with self.loop(0, vectors) as vector:
            shift = self.mul(vector, lanes() * 4)
            total = self.slot(self.vector, "zeroinitializer")
            with self.loop(0, "%value_width") as d:
                place = self.mul(d, ROW)
                y = self.load(self.at(area["slopes"], place, shift))
                g = self.load(self.at(area["turned_g"], place, shift))
                self.keep(total, self.fma(y, g, self.kept(total)))
            self.store(self.kept(total), self.at(area["deltas"], shift))

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

    def keys(self, query: str, rows: str, vectors: str, stats: str, first: str, count: str) -> None:
        """One block of keys for a block of queries."""
        area = self.area
        k = self.at(self.k, self.mul(first, "%k_row"))
        v = self.at(self.v, self.mul(first, "%v_row"))
        own = self.sub(first, self.start)
        for start, across, along, depth, turned, to in (
            (k, "%k_row", "%k_column", "%width", "turned_q", "powers"),
            (v, "%v_row", "%v_column", "%value_width", "turned_g", "slopes"),
        ):
            self.times(
                start, across, along, count, depth, area[turned], ROW, area[to], ROW, vectors,
                more=False,
            )  # fmt: skip
        self.draw_keys(first, count, vectors)
        with self.loop(0, vectors) as vector:
            self.slopes(query, rows, stats, first, count, self.mul(vector, lanes()))
        for weights, factors, row, target in (
            ("powers", "rows_g", "%value_row", "dv"), ("slopes", "rows_q", "%width_row", "dk"),
        ):  # fmt: skip
            self.times(
                area[weights], ROW, 4, count, rows, area[factors], row,
                self.at(area[target], self.mul(own, row)), row,
                self.op(f"udiv i64 {row}, {lanes() * 4}"), more=True,
            )  # fmt: skip
        self.times(
            k, "%k_column", "%k_row", "%width", count, area["slopes"], ROW, area["turned_dq"], ROW,
            vectors, more=True,
        )  # fmt: skip

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
