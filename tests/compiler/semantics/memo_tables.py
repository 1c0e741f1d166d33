"""Functions that remember their results, and containers with many members."""

from __future__ import annotations

import functools
from collections import deque
from typing import Any

from .registry import Seen, case, ramp

MANY = 12_000


@case
def a_cached_tensor(lib: Any, wrap: Any) -> Seen:
    made = []

    @functools.lru_cache
    def mask(size):
        made.append(size)
        return lib.ones(size) * len(made)

    step = wrap(lambda x: x * mask(3))
    for n in range(7):
        if n in (3, 5):
            mask.cache_clear()
        yield step(ramp(lib, 3)), list(made)


@case
def a_cached_draw(lib: Any, wrap: Any) -> Seen:
    noise = functools.cache(lambda size: lib.randn(size))
    step = wrap(lambda x: x * noise(3))
    for n in range(7):
        if n % 3 == 2:
            noise.cache_clear()
        yield step(ramp(lib, 3))
    yield lib.rand(2)


@case
def a_cached_number_of_state_that_changes(lib: Any, wrap: Any) -> Seen:
    scale = [1.0]
    factor = functools.cache(lambda size: size * scale[0])
    step = wrap(lambda x: x * factor(2))
    for n in range(7):
        scale[0] = n + 1.0  # seen when nothing is remembered
        if n == 4:
            factor.cache_clear()
        yield step(ramp(lib, 3)), factor(2)


@case
def a_cache_that_others_fill(lib: Any, wrap: Any) -> Seen:
    made = []

    @functools.lru_cache(maxsize=1)
    def double(number):
        made.append(number)
        return number * 2.0

    step = wrap(lambda x: x * double(4))
    for n in range(7):
        if n % 3 == 2:
            double(7)
        yield step(ramp(lib, 3)), list(made)


@case
def a_cache_too_small_for_the_step(lib: Any, wrap: Any) -> Seen:
    made = []

    @functools.lru_cache(maxsize=1)
    def double(number):
        made.append(number)
        return number * 2.0

    step = wrap(lambda x: x * double(4) + double(5))
    for _ in range(5):
        yield step(ramp(lib, 3)), list(made)


@case
def a_cached_method(lib: Any, wrap: Any) -> Seen:
    class Table:
        start = 2.0

        @functools.lru_cache(maxsize=4)  # noqa: B019
        def row(self, size):
            return lib.full((size,), self.start)

    table = Table()
    step = wrap(lambda x: x * table.row(3))
    for n in range(7):
        Table.start = n + 1.0
        if n == 3:
            Table.row.cache_clear()
        if n == 5:
            table.row(3).mul_(2)
        yield step(ramp(lib, 3))


@case
def a_cached_list_that_is_changed(lib: Any, wrap: Any) -> Seen:
    weights = functools.cache(lambda: [1.0, 2.0])
    step = wrap(lambda x: x * sum(weights()))
    for n in range(6):
        if n >= 2:
            weights()[0] = float(n)
        if n == 4:
            weights().append(10.0)
        yield step(ramp(lib, 3))


@case
def the_statistics_of_a_cache(lib: Any, wrap: Any) -> Seen:
    double = functools.lru_cache(maxsize=3)(lambda number: number * 2.0)

    def step(x):
        value = double(3)
        return x * value, double.cache_info().hits, double.cache_info().misses

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3))


@case
def a_cache_cleared_by_the_step(lib: Any, wrap: Any) -> Seen:
    made = []

    @functools.cache
    def double(number):
        made.append(number)
        return number * 2.0

    def step(x):
        double.cache_clear()
        return x * double(3)

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3)), list(made)


@case
def a_cache_by_the_size_of_the_argument(lib: Any, wrap: Any) -> Seen:
    mask = functools.cache(lambda size: lib.tril(lib.ones(size, size)))
    step = wrap(lambda x: mask(x.shape[0]) @ x)
    for n in range(9):
        yield step(ramp(lib, 2 + n % 3))


@case
def a_dictionary_as_memo_table(lib: Any, wrap: Any) -> Seen:
    memo = {}

    def step(x):
        size = x.shape[0]
        if size not in memo:
            memo[size] = lib.ones(size) * len(memo)
        return x * memo[size]

    step = wrap(step)
    for n in range(9):
        if n == 6:
            memo.clear()
        yield step(ramp(lib, 2 + n % 3)), sorted(memo)


@case
def an_entry_of_a_long_list(lib: Any, wrap: Any) -> Seen:
    table = [1.0] * MANY
    step = wrap(lambda x: x * table[5] + len(table))
    for n in range(6):
        if n >= 2:
            table[5] = float(n)
        if n == 4:
            table.append(0.0)
        yield step(ramp(lib, 3))


@case
def an_entry_of_a_long_dictionary(lib: Any, wrap: Any) -> Seen:
    vocabulary = {f"word {n}": n % 10 for n in range(MANY)}
    text = ["word 3", "word 15"]
    step = wrap(lambda x: x[lib.tensor([vocabulary[word] for word in text])])
    for n in range(6):
        if n == 2:
            vocabulary["word 3"] = 9
        if n == 4:
            vocabulary["new"] = 1
            text[0] = "new"
        yield step(ramp(lib, 10))


@case
def a_member_of_a_long_set(lib: Any, wrap: Any) -> Seen:
    members = set(range(MANY))
    step = wrap(lambda x: x * (2.0 if 7 in members else 1.0))
    for n in range(5):
        if n == 2:
            members.discard(7)
            members.add(-1)
        yield step(ramp(lib, 3))


@case
def an_entry_of_a_long_deque(lib: Any, wrap: Any) -> Seen:
    history = deque([1.0] * MANY, maxlen=MANY)
    step = wrap(lambda x: x * history[-1] + history[0])
    for n in range(5):
        if n >= 2:
            history.append(float(n))
        yield step(ramp(lib, 3))


@case
def an_object_in_a_long_list(lib: Any, wrap: Any) -> Seen:
    table = [{"weight": 1.0} for _ in range(MANY)]
    step = wrap(lambda x: x * table[3]["weight"])
    for n in range(6):
        if n == 2:
            table[3]["weight"] = 5.0
        if n == 4:
            table[3] = {"weight": 7.0}
        yield step(ramp(lib, 3))


@case
def a_list_too_long_to_be_watched(lib: Any, wrap: Any) -> Seen:
    table = [1.0] * 100_000
    step = wrap(lambda x: x * table[5])
    for n in range(4):
        if n >= 2:
            table[5] = float(n)
        yield step(ramp(lib, 3))


@case
def a_long_list_that_the_step_appends_to(lib: Any, wrap: Any) -> Seen:
    table = [0.0] * MANY

    def step(x):
        table.append(1.0)
        return x * len(table), table[-1]

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3)), len(table)
