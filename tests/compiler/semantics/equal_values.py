"""Values that compare equal and are not the same: of other types, other signs, other digits; and
attributes of arguments, which no comparison sees."""

from __future__ import annotations

import datetime
from collections import Counter, OrderedDict, deque, namedtuple
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np

from .registry import Seen, case, ramp

PAIRS = (
    1, 1.0, True, 0.0, -0.0, (1,), (1.0,), (True,), (0.0,), (-0.0,), ((1, 2), "a"), ((1.0, 2), "a"),
    frozenset({1}), frozenset({True}), frozenset({1.0}), frozenset({(1,)}), frozenset({(1.0,)}),
    range(0), range(1, 1), Decimal("1.0"), Decimal("1.00"), (Decimal(1),), (Decimal("1.0"),),
    slice(1), slice(1.0), slice(True), complex(0.0, 0.0), complex(-0.0, 0.0), (complex(-0.0),),
    (np.float32(1),), (np.float64(1),), (np.int64(1),), np.float32(0.0), np.float32(-0.0),
    datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC),
    datetime.datetime(2024, 1, 1, 13, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
)  # fmt: skip


@case
def in_an_attribute(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(value=None)
    step = wrap(lambda x: (x * 2, repr(s.value)))
    for value in PAIRS:
        s.value = value
        yield step(ramp(lib, 2))


@case
def as_an_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, value: (x * 2, repr(value)))
    for value in PAIRS:
        yield step(ramp(lib, 2), value)


@case
def in_a_list_among_the_arguments(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, values: (x * 2, repr(values)))
    for value in PAIRS:
        yield step(ramp(lib, 2), [value, "end"])


@case
def as_keys_of_an_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, table: (x * 2, repr(list(table)), sum(table.values())))
    keys = (1, 1.0, True, (1,), (1.0,), frozenset({1}), frozenset({True}), "a", Decimal("1.0"))
    for kind in (dict, OrderedDict, Counter):
        for key in keys:
            yield step(ramp(lib, 2), kind({key: 2}))


@case
def as_keys_of_a_captured_table(lib: Any, wrap: Any) -> Seen:
    table: dict[Any, float] = {}
    step = wrap(lambda x: (x * 2, repr(list(table)), sum(table.values())))
    for key in (1, 1.0, True, (1,), (1.0,), frozenset({1}), frozenset({True}), Decimal("1.0")):
        table.clear()
        table[key] = 2.0
        yield step(ramp(lib, 2))


@case
def as_members_of_sets(lib: Any, wrap: Any) -> Seen:
    held: set[Any] = set()
    step = wrap(lambda x: (x * 2, repr(held)))
    for member in (1, 1.0, True, (1,), (1.0,), 0.0, -0.0, "a", "b"):
        held.clear()
        held.add(member)
        yield step(ramp(lib, 2))


@case
def as_members_of_lists_and_deques(lib: Any, wrap: Any) -> Seen:
    held, ends, counts = [None], deque([None]), OrderedDict(a=None)
    step = wrap(lambda x: (x * 2, repr(held), repr(ends), repr(counts)))
    for value in PAIRS:
        held[0] = ends[0] = counts["a"] = value
        yield step(ramp(lib, 2))


@case
def as_defaults_and_cells(lib: Any, wrap: Any) -> Seen:
    gain = 1

    def step(x, scale=(1, 2)):
        return x * gain, type(gain).__name__, type(scale[0]).__name__

    run = wrap(step)
    for n, value in enumerate((1, 1.0, True, 1, 1.0)):
        gain = value
        if n >= 2:
            step.__defaults__ = ((float(n), 2) if n % 2 else (n, 2),)
        yield run(lib.arange(3))


@case
def options_of_an_optimizer(lib: Any, wrap: Any) -> Seen:
    w = ramp(lib, 3).requires_grad_()
    optimizer = lib.optim.Adam([w], lr=1e-2, betas=(0.5, 0.75))
    step = wrap(lambda x: (x * 2, repr(optimizer.param_groups[0]["betas"])))
    for betas in ((0.5, 0.75), (0, 0.75), (0.0, 0.75), (0, 0.75)):
        optimizer.param_groups[0]["betas"] = betas
        yield step(ramp(lib, 2))


@case
def attributes_of_an_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * x.gain)
    for n in range(5):
        x = ramp(lib, 3)
        x.gain = 1.0 + n
        yield step(x)


@case
def attributes_that_an_argument_may_have(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * getattr(x, "gain", 1.0) + (3 if hasattr(x, "flag") else 0))
    for n in range(8):
        x = ramp(lib, 3)
        if n in (2, 3, 6):
            x.gain = 1.0 + n
        if n in (3, 4):
            x.flag = None
        yield step(x)


@case
def attributes_that_an_argument_is_given(lib: Any, wrap: Any) -> Seen:
    def step(x):
        x.note, x.half = "seen", x * 0.5
        return x * 2

    step = wrap(step)
    for n in range(5):
        x = ramp(lib, 3, start=float(n))
        yield step(x), x.note, x.half


@case
def a_count_on_an_argument(lib: Any, wrap: Any) -> Seen:
    def step(x):
        x.count = getattr(x, "count", 0) + 1
        return x * x.count

    step = wrap(step)
    x = ramp(lib, 3)
    for n in range(6):
        if n == 3:
            x = ramp(lib, 3)
            x.count = 10
        yield step(x), x.count


@case
def attributes_in_a_container_of_arguments(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda batch: batch["x"] * batch["x"].scale)
    for n in range(5):
        x = ramp(lib, 3)
        x.scale = 0.5 * n
        yield step({"x": x})


@case
def attributes_of_named_tuples(lib: Any, wrap: Any) -> Seen:
    class Pair(namedtuple("Base", "a b")):
        pass

    step = wrap(lambda p: p.a * getattr(p, "gain", 1.0) + p.b)
    for n in range(6):
        p = Pair(ramp(lib, 3), n)
        if n % 3:
            p.gain = 1.0 + n
        yield step(p)


@case
def attributes_of_lists_and_dictionaries(lib: Any, wrap: Any) -> Seen:
    class Rows(list):
        gain = 1.0

    class Table(dict):
        gain = 1.0

    step = wrap(lambda x, rows, table: x * rows.gain + table["a"] * table.gain)
    for n in range(6):
        rows, table = Rows([1, 2]), Table(a=3)
        if n % 2:
            rows.gain = 1.0 + n
        if n % 3:
            table.gain = 2.0 + n
        yield step(ramp(lib, 3), rows, table)
