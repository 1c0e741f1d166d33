"""Arguments that are an object which the step reaches otherwise, or only equal to it."""

from __future__ import annotations

import dataclasses
from typing import Any

from .registry import Seen, case, ramp


@dataclasses.dataclass
class Config:
    n: int = 1


class Holder:
    def __init__(self) -> None:
        self.options = {"a": 1}


DICT, LIST, EMPTY, CONFIG, HOLDER = {"a": 1}, [1, 2], {}, Config(), Holder()


def _alternating(lib: Any, step: Any, *arguments: Any) -> Seen:
    """Results of a step on each of some arguments, in turns."""
    x = ramp(lib, 3)
    for _ in range(3):
        for given in arguments:
            yield step(x, *given())


@case
def a_global_dictionary(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: x * 2 if o is DICT else x)
    yield from _alternating(lib, step, lambda: (DICT,), lambda: (dict(DICT),))


@case
def a_global_list(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: x * 2 if o is LIST else x)
    yield from _alternating(lib, step, lambda: (LIST,), lambda: (list(LIST),))


@case
def an_empty_default(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o=EMPTY: x * 2 if o is EMPTY else x)
    yield from _alternating(lib, step, lambda: ({},), lambda: (EMPTY,), lambda: ())


@case
def a_record(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: x * 2 if o is CONFIG else x)
    yield from _alternating(lib, step, lambda: (CONFIG,), lambda: (Config(),))


@case
def an_attribute_of_an_object(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: x * 2 if o is HOLDER.options else x)
    yield from _alternating(lib, step, lambda: (HOLDER.options,), lambda: ({"a": 1},))


@case
def a_member_of_an_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: x * 2 if o["k"] is DICT else x)
    yield from _alternating(lib, step, lambda: ({"k": DICT},), lambda: ({"k": dict(DICT)},))


@case
def one_of_several(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: x * 2 if any(o is known for known in (DICT, EMPTY)) else x)
    yield from _alternating(lib, step, lambda: (DICT,), lambda: (dict(DICT),), lambda: (EMPTY,))


@case
def is_not(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: x if o is not LIST else x * 2)
    yield from _alternating(lib, step, lambda: ([1, 2],), lambda: (LIST,))


@case
def equal_and_the_same(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: x * 2 if o == DICT and o is DICT else x)
    yield from _alternating(lib, step, lambda: (DICT,), lambda: (dict(DICT),))


@case
def by_id(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, o: x * 2 if id(o) == id(DICT) else x)
    yield from _alternating(lib, step, lambda: (DICT,), lambda: (dict(DICT),))


@case
def a_keyword(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, *, o=None: x * 2 if o is CONFIG else x * 3)
    x = ramp(lib, 3)
    for given in (CONFIG, Config(), None, CONFIG, Config()):
        yield step(x, o=given)


@case
def in_a_helper(lib: Any, wrap: Any) -> Seen:
    def scale(o):
        return 2 if o is LIST else 1

    step = wrap(lambda x, o: x * scale(o))
    yield from _alternating(lib, step, lambda: (LIST,), lambda: (list(LIST),))


@case
def a_captured_variable(lib: Any, wrap: Any) -> Seen:
    own = {"n": 2}
    step = wrap(lambda x, o: x * o["n"] if o is own else -x * o["n"])
    yield from _alternating(lib, step, lambda: (own,), lambda: (dict(own),))
