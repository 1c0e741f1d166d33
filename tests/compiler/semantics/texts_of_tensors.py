"""Texts of tensors that are looked at: they depend on the elements and on the print options."""

from __future__ import annotations

import pprint
from collections.abc import Callable
from typing import Any

from .registry import Seen, case, ramp


def written_between(text: Callable[[Any], str]) -> Callable[[Any, Any], Seen]:
    """A case for the length of a text of a tensor that others write to."""

    def run(lib: Any, wrap: Any) -> Seen:
        w = lib.tensor([1.0, 2.0])
        step = wrap(lambda x: x * len(text(w)))
        for n in range(6):
            if n in (2, 4):
                w.mul_(100)
            yield step(ramp(lib, 2, start=float(n)))

    return run


TEXTS: dict[str, Callable[[Any], str]] = {
    "repr": repr,
    "str": str,
    "an_f_string": lambda w: f"w = {w}",
    "the_format_method": lambda w: "{}".format(w),  # noqa: UP032
    "percent": lambda w: "%s" % (w,),  # noqa: UP031
    "in_a_list": lambda w: repr([w]),
    "in_a_dictionary": lambda w: str({"w": w}),
    "of_a_part": lambda w: repr(w[:1]),
    "detached": lambda w: repr(w.detach()),
    "printed_prettily": lambda w: pprint.pformat({"w": w}),
}
for _name, _text in TEXTS.items():
    _case = written_between(_text)
    _case.__name__, _case.__module__ = _name, __name__
    case(_case)


@case
def the_print_options(lib: Any, wrap: Any) -> Seen:
    w = lib.tensor([1.23456])
    step = wrap(lambda x: x * len(str(w)))
    try:
        for n in range(6):
            lib.set_printoptions(precision=2 if n in (2, 5) else 4)
            yield step(ramp(lib, 2))
    finally:
        lib.set_printoptions(profile="default")


@case
def texts_that_are_kept(lib: Any, wrap: Any) -> Seen:
    w, log = lib.tensor([1.0, 2.0]), []

    def step(x):
        log.append(str(w))
        return x * 2

    step = wrap(step)
    for n in range(6):
        if n in (2, 4):
            w.add_(n)
        yield step(ramp(lib, 2)), log
