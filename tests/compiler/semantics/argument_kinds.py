"""Arguments of classes that compare in their own way, and other unusual ones."""

from __future__ import annotations

import enum
import functools
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from .registry import Seen, case, ramp


class Equal:
    """Equal to every other one."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    def __hash__(self) -> int:
        return 1


class Text(str):
    """A text with attributes."""


@dataclass(frozen=True)
class Options:
    name: str
    scale: float = field(default=1.0, compare=False)


@functools.total_ordering
class Version:
    def __init__(self, major: int, scale: float) -> None:
        self.major, self.scale = major, scale

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.major == other.major

    def __lt__(self, other: Version) -> bool:
        return self.major < other.major

    def __hash__(self) -> int:
        return hash(self.major)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


def called(lib, step, values):
    """Calls with each of some values, twice."""
    for _ in range(2):
        for value in values:
            yield step(ramp(lib, 3), value)


@case
def objects_that_are_equal(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: x * o.value)
    yield from called(lib, step, [Equal(1.0), Equal(2.0), Equal(3.0)])


@case
def equal_objects_in_a_list(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: x * o[0].value + o[1].value)
    yield from called(lib, step, [[Equal(1.0), Equal(2.0)], [Equal(3.0), Equal(2.0)]])


@case
def equal_objects_as_keys(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: x * next(iter(o)).value)
    yield from called(lib, step, [{Equal(1.0): 1}, {Equal(2.0): 1}, {Equal(3.0): 2}])


@case
def equal_objects_as_keys_of_a_defaultdict(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: x * next(iter(o)).value)
    yield from called(lib, step, [defaultdict(int, {Equal(n): 1}) for n in (1.0, 2.0, 3.0)])


@case
def equal_objects_by_keyword(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o=None: x if o is None else x * o.value)
    for value in (Equal(1.0), None, Equal(2.0), Equal(1.5), None):
        yield step(ramp(lib, 3), o=value)


@case
def texts_with_attributes(lib: Any, wrap: Any) -> Seen:
    texts = [Text("a"), Text("a"), Text("a"), Text("b")]
    texts[1].scale, texts[2].scale = 2.0, 3.0
    step = wrap(lambda x, o: x * getattr(o, "scale", 1.0) + len(o))
    yield from called(lib, step, texts)


@case
def fields_that_do_not_compare(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: x * o.scale)
    yield from called(lib, step, [Options("a", 1.0), Options("a", 2.0), Options("b", 3.0)])


@case
def an_order_by_one_attribute(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: x * o.scale if o < Version(2, 0.0) else x)
    yield from called(lib, step, [Version(1, 1.0), Version(1, 2.0), Version(2, 3.0)])


@case
def an_equal_object_that_changes(lib: Any, wrap: Any) -> Seen:
    held = Equal(1.0)
    step = wrap(lambda x, o: x * o.value)
    for n in range(5):
        held.value = n + 1.0
        yield step(ramp(lib, 3), held if n != 2 else Equal(9.0))


@case
def enumerated_numbers_and_numbers(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: (x * o, isinstance(o, Level), type(o).__name__))
    yield from called(lib, step, [Level.LOW, 1, Level.HIGH, 2, True, 1.0])


@case
def fractions_and_floats(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: x * float(o))
    yield from called(lib, step, [Fraction(1, 2), 0.5, Fraction(1, 3), Fraction(2, 4), 1])


@case
def zeros_of_both_signs(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: lib.ones(3) / (x * 0 + o))
    yield from called(lib, step, [0.0, -0.0, 0, 0.0, -0.0])


@case
def booleans_of_all_kinds(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: x * 2 if o else x)
    yield from called(lib, step, [True, False, 1, 0, np.bool_(True), np.bool_(False), "", None])


@case
def dictionaries_in_another_order(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: x * next(iter(o.values())))
    yield from called(lib, step, [{"a": 1.0, "b": 2.0}, {"b": 2.0, "a": 1.0}, {"a": 3.0}])


@case
def comparisons_of_numbers_of_numpy(lib: Any, wrap: Any) -> Seen:
    def step(x, o):
        found = o > 1, o != 2, o <= 3, o == o, not o, bool(o)
        return x * found[0], [(type(f).__name__, bool(f)) for f in found]

    step = wrap(step)
    numbers = [np.float64(1.5), 2.0, np.float32(0.5), np.int64(2), 3, True, np.int64(0)]
    yield from called(lib, step, numbers)
