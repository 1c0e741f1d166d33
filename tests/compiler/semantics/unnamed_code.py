"""Functions that a step runs though nothing which it names leads to them: in objects of C, in
registers, as special methods. What they read is set between calls, and they append."""

from __future__ import annotations

import functools
import itertools
import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from .registry import Seen, case


def scaled(lib: Any, wrap: Any, make: Callable[[dict[str, float], list[Any]], Any]) -> Seen:
    """Calls of a step that multiplies by what a function gives, which reads a scale and logs."""
    options, log = {"scale": 1.0}, []
    factor = make(options, log)
    step = wrap(lambda x: x * float(factor()))
    for n in range(8):
        options["scale"] = float(n // 3)
        yield step(lib.ones(2)), list(log)


@case
def a_ufunc_of_python(lib: Any, wrap: Any) -> Seen:
    def make(options, log):
        def scale(value):
            log.append("scale")
            return value * options["scale"]

        ufunc = np.frompyfunc(scale, 1, 1)
        return lambda: ufunc(2.0)

    yield from scaled(lib, wrap, make)


@case
def a_vectorized_function(lib: Any, wrap: Any) -> Seen:
    def make(options, log):
        def scale(value):
            log.append("scale")
            return value * options["scale"]

        vectorized = np.vectorize(scale, otypes=[float])
        return lambda: vectorized(2.0)

    yield from scaled(lib, wrap, make)


@case
def a_comparison_as_a_key(lib: Any, wrap: Any) -> Seen:
    def make(options, log):
        def compare(a, b):
            log.append((a, b))
            return (a - b) * (1 if options["scale"] < 1 else -1)

        key = functools.cmp_to_key(compare)
        return lambda: sorted([3, 1, 2], key=key)[0]

    yield from scaled(lib, wrap, make)


@case
def an_index_of_a_class(lib: Any, wrap: Any) -> Seen:
    def make(options, log):
        class Table:
            def __class_getitem__(cls, key):
                log.append(key)
                return options["scale"]

        return lambda: Table["scale"]

    yield from scaled(lib, wrap, make)


@case
def a_class_that_notes_its_subclasses(lib: Any, wrap: Any) -> Seen:
    def make(options, log):
        class Base:
            def __init_subclass__(cls, **others):
                log.append(cls.__name__)
                cls.factor = options["scale"]

        def factor():
            class Made(Base):
                pass

            return Made.factor

        return factor

    yield from scaled(lib, wrap, make)


@case
def a_format_of_an_object(lib: Any, wrap: Any) -> Seen:
    def make(options, log):
        class Shown:
            def __format__(self, spec):
                log.append(spec)
                return str(options["scale"])

        shown = Shown()
        return lambda: f"{shown:short}"

    yield from scaled(lib, wrap, make)


@case
def a_replacement_in_a_text(lib: Any, wrap: Any) -> Seen:
    def make(options, log):
        def replacement(match):
            log.append(match.group())
            return str(options["scale"])

        replace = functools.partial(re.compile("q").sub, replacement)
        return lambda: replace("q")

    yield from scaled(lib, wrap, make)


@case
def a_function_by_the_type_of_its_argument(lib: Any, wrap: Any) -> Seen:
    def make(options, log):
        @functools.singledispatch
        def scale(value):
            return 0.0

        @scale.register
        def _(value: float):
            log.append(value)
            return value * options["scale"]

        return lambda: scale(2.0)

    yield from scaled(lib, wrap, make)


@case
def a_method_by_a_caller(lib: Any, wrap: Any) -> Seen:
    def make(options, log):
        class Scale:
            def read(self, factor):
                log.append(factor)
                return options["scale"] * factor

        read, scale = operator.methodcaller("read", 2.0), Scale()
        return lambda: read(scale)

    yield from scaled(lib, wrap, make)


@case
def a_map_of_arguments(lib: Any, wrap: Any) -> Seen:
    def make(options, log):
        def scale(a, b):
            log.append(a)
            return a * b * options["scale"]

        mapped = functools.partial(itertools.starmap, scale)
        return lambda: sum(mapped([(1.0, 2.0), (3.0, 4.0)]))

    yield from scaled(lib, wrap, make)


@case
def a_divergence_that_was_registered(lib: Any, wrap: Any) -> Seen:
    distributions = lib.distributions

    class Own(distributions.Normal):
        pass

    options, log = {"scale": 1.0}, []

    @distributions.register_kl(Own, Own)
    def divergence(p, q):
        log.append("divergence")
        return (p.loc - q.loc).square() * options["scale"]

    def step(x):
        return distributions.kl_divergence(Own(x, 1.0), Own(2 * x, 1.0)).sum()

    step = wrap(step)
    for n in range(8):
        options["scale"] = float(n // 3)
        yield step(lib.ones(2)), list(log)
