"""Objects of the standard library that hold state: read by the step and changed between calls, and
changed by the step itself."""

from __future__ import annotations

import abc
import argparse
import collections
import concurrent.futures
import configparser
import contextlib
import ctypes
import decimal
import email.message
import enum
import fractions
import functools
import graphlib
import io
import itertools
import logging
import mmap
import operator
import queue
import random
import re
import sqlite3
import statistics
import string
import struct
import threading
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

from .registry import Seen, attempt, batch, case


def case_of(name: str, make: Callable[[], Any], read: Any, change: Any, writes: bool) -> None:
    """A case: ``read(state)`` is a number, which the step multiplies by; ``change(state, n)`` is
    made by the step itself if it ``writes``, else between two calls."""

    def situation(lib: Any, wrap: Any) -> Seen:
        state = make()

        def step(x, n):
            if writes:
                change(state, n)
            return x * read(state)

        step = wrap(step)
        for n in range(8):
            if not writes and n in (2, 3, 5):
                change(state, n)
            yield attempt(step, batch(lib, n), n), attempt(read, state)
        if isinstance(state, sqlite3.Connection):
            state.close()  # CPython 3.13 warns of one that ends open

    situation.__name__ = f"{name}_{'written' if writes else 'read'}"
    situation.__module__ = __name__
    case(situation)


class Record(typing.TypedDict, total=False):
    a: float


class Base(abc.ABC):
    value = 1.0

    @abc.abstractmethod
    def read(self) -> float: ...


class Sub(Base):
    def read(self) -> float:
        return self.value


class Holder:
    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self) -> float:
        return self.value


def parsed(text: str) -> Any:
    found = configparser.ConfigParser()
    found.read_string(text)
    return found


def database() -> Any:
    found = sqlite3.connect(":memory:")
    found.execute("create table t (v real)")
    found.execute("insert into t values (1.0)")
    return found


def filled(kind: Any) -> Any:
    found = kind()
    found.put(1.0)
    return found


def logger() -> Any:
    found = logging.getLogger("evergrad_case_levels")
    found.setLevel(10)
    return found


# What is made, how a number of it is read, and how it is changed.
SITUATIONS: dict[str, tuple[Any, Any, Any]] = {
    "argparse_namespace": (
        lambda: argparse.Namespace(a=1.0), lambda s: s.a, lambda s, n: setattr(s, "a", s.a + n)),
    "simple_namespace": (
        lambda: types.SimpleNamespace(d=types.SimpleNamespace(a=1.0)), lambda s: s.d.a,
        lambda s, n: setattr(s.d, "a", s.d.a + n)),
    "config_parser": (
        lambda: parsed("[o]\na = 1.5\n"), lambda s: s.getfloat("o", "a"),
        lambda s, n: s.set("o", "a", str(n))),
    "user_dictionary": (
        lambda: collections.UserDict(a=1.0), lambda s: s["a"],
        lambda s, n: s.update(a=s["a"] + n)),
    "user_list": (
        lambda: collections.UserList([1.0, 2.0]), lambda s: s[-1] + len(s),
        lambda s, n: s.append(n * 1.0)),
    "chain_map": (
        lambda: collections.ChainMap({"a": 1.0}, {"b": 2.0}), lambda s: s["a"] * s["b"],
        lambda s, n: s.update(b=float(n))),
    "counter": (
        lambda: collections.Counter("aab"), lambda s: s["a"] + s.total(),
        lambda s, n: s.update("ab")),
    "deque_rotated": (
        lambda: collections.deque([1.0, 2.0, 3.0]), lambda s: s[0], lambda s, n: s.rotate(1)),
    "ordered_dictionary": (
        lambda: collections.OrderedDict(a=1.0, b=2.0), lambda s: next(iter(s.values())),
        lambda s, n: s.move_to_end(next(iter(s)))),
    "default_dictionary": (
        lambda: collections.defaultdict(float), lambda s: s["a"] + 1,
        lambda s, n: s.__setitem__("a", s["a"] + n)),
    "string_stream": (
        lambda: io.StringIO("abc"), lambda s: float(len(s.getvalue())),
        lambda s, n: s.write("x" * n * 3)),
    "bytes_stream": (
        lambda: io.BytesIO(b"abc"), lambda s: float(len(s.getvalue())),
        lambda s, n: s.write(b"x" * (n + 4))),
    "queue": (
        lambda: filled(queue.Queue), lambda s: float(s.qsize()), lambda s, n: s.put(n)),
    "priority_queue": (
        lambda: filled(queue.PriorityQueue), lambda s: s.queue[0], lambda s, n: s.put(-n * 1.0)),
    "event": (
        threading.Event, lambda s: 2.0 if s.is_set() else 1.0,
        lambda s, n: s.clear() if s.is_set() else s.set()),
    "semaphore": (
        lambda: threading.Semaphore(50), lambda s: float(s._value), lambda s, n: s.acquire()),
    "condition_variable": (
        lambda: types.SimpleNamespace(c=threading.Condition(), v=1.0), lambda s: s.v,
        lambda s, n: setattr(s, "v", n * 2.0)),
    "thread_local": (
        lambda: (lambda t: t.__dict__.update(a=1.0) or t)(threading.local()), lambda s: s.a,
        lambda s, n: setattr(s, "a", s.a + n)),
    "weak_reference": (
        lambda: (lambda h: [h, weakref.ref(h)])(Holder(1.0)), lambda s: s[1]().value,
        lambda s, n: setattr(s[0], "value", n * 1.0)),
    "weak_proxy": (
        lambda: (lambda h: [h, weakref.proxy(h)])(Holder(1.0)), lambda s: s[1].value,
        lambda s, n: setattr(s[0], "value", n * 1.0)),
    "weak_keys": (
        lambda: (lambda h: [h, weakref.WeakKeyDictionary({h: 1.0})])(Holder(1.0)),
        lambda s: s[1][s[0]], lambda s, n: s[1].__setitem__(s[0], n * 1.0)),
    "weak_set": (
        lambda: (lambda h: [h, weakref.WeakSet(h)])([Holder(1.0), Holder(2.0)]),
        lambda s: float(len(s[1])), lambda s, n: s[0].append(Holder(1.0)) or s[1].add(s[0][-1])),
    "decimal_context": (
        lambda: decimal.Context(prec=5), lambda s: float(s.divide(decimal.Decimal(1), 3)),
        lambda s, n: setattr(s, "prec", n + 1)),
    "decimal_number": (
        lambda: {"d": decimal.Decimal("1.5")}, lambda s: float(s["d"]),
        lambda s, n: s.update(d=s["d"] + n)),
    "fraction": (
        lambda: {"f": fractions.Fraction(1, 3)}, lambda s: float(s["f"]),
        lambda s, n: s.update(f=s["f"] + n)),
    "normal_distribution": (
        lambda: {"d": statistics.NormalDist(1.0, 2.0)}, lambda s: s["d"].mean,
        lambda s, n: s.update(d=statistics.NormalDist(n, 1.0))),
    "template": (
        lambda: string.Template("$a"), lambda s: float(s.substitute(a=2)) + len(s.template),
        lambda s, n: setattr(s, "template", "1$a" * (n % 2 + 1))),
    "pattern": (
        lambda: {"p": re.compile("a")}, lambda s: float(len(s["p"].findall("aabb"))) + 1,
        lambda s, n: s.update(p=re.compile("b" if n % 2 else "[ab]"))),
    "struct_format": (
        lambda: {"s": struct.Struct("f")}, lambda s: float(s["s"].size),
        lambda s, n: s.update(s=struct.Struct("d" * n))),
    "random_source": (
        lambda: random.Random(3), lambda s: s.random(), lambda s, n: s.seed(n)),
    "item_getter": (
        lambda: {"g": operator.itemgetter(0), "v": [1.0, 2.0]}, lambda s: s["g"](s["v"]),
        lambda s, n: s.update(g=operator.itemgetter(n % 2))),
    "attribute_getter": (
        lambda: [operator.attrgetter("value"), Holder(1.0)], lambda s: s[0](s[1]),
        lambda s, n: setattr(s[1], "value", n * 1.0)),
    "method_caller": (
        lambda: [operator.methodcaller("__call__"), Holder(1.0)], lambda s: s[0](s[1]),
        lambda s, n: setattr(s[1], "value", n * 1.0)),
    "partial_of_a_holder": (
        lambda: (lambda h: [h, functools.partial(h)])(Holder(1.0)), lambda s: s[1](),
        lambda s, n: setattr(s[0], "value", n * 1.0)),
    "element_of_a_tree": (
        lambda: ElementTree.fromstring("<a v='1.5'><b/></a>"), lambda s: float(s.get("v")) + len(s),
        lambda s, n: s.set("v", str(n))),
    "message": (
        email.message.Message, lambda s: float(len(s)) + 1,
        lambda s, n: s.add_header(f"a{n}", "b")),
    "future": (
        concurrent.futures.Future, lambda s: float(s.done()) + 1,
        lambda s, n: s.done() or s.set_result(n)),
    "exit_stack": (
        contextlib.ExitStack, lambda s: float(len(s._exit_callbacks)) + 1,
        lambda s, n: s.callback(len, "")),
    "logger_level": (logger, lambda s: float(s.level), lambda s, n: s.setLevel(10 * n)),
    "database": (
        database, lambda s: s.execute("select sum(v) from t").fetchone()[0],
        lambda s, n: s.execute("insert into t values (?)", (n,))),
    "memory_map": (
        lambda: mmap.mmap(-1, 8), lambda s: float(s[0]) + 1,
        lambda s, n: s.__setitem__(0, n)),
    "ctypes_structure": (
        lambda: (ctypes.c_double * 2)(1.0, 2.0), lambda s: s[0] + s[1],
        lambda s, n: s.__setitem__(0, n * 1.0)),
    "typed_dictionary": (
        lambda: Record(a=1.0), lambda s: s.get("a", 0.5), lambda s, n: s.pop("a", None)),
    "abstract_class": (
        lambda: [Sub()], lambda s: s[0].read(), lambda s, n: setattr(s[0], "value", n * 1.0)),
    "enumeration": (
        lambda: {"m": enum.Enum("Mode", {"A": 1, "B": 2}).A}, lambda s: float(s["m"].value),
        lambda s, n: s.update(m=type(s["m"])(n % 2 + 1))),
    "mapping_proxy": (
        lambda: (lambda d: [d, types.MappingProxyType(d)])({"a": 1.0}), lambda s: s[1]["a"],
        lambda s, n: s[0].update(a=n * 1.0)),
    "dictionary_views": (
        lambda: (lambda d: [d, d.values()])({"a": 1.0}), lambda s: sum(s[1]),
        lambda s, n: s[0].__setitem__(n, n * 1.0)),
    "array_view": (
        lambda: (lambda b: [b, memoryview(b)])(bytearray(b"\x01\x02")), lambda s: float(s[1][0]),
        lambda s, n: s[0].__setitem__(0, n)),
    "topological_sorter": (
        lambda: {"g": {1: [2], 2: []}},
        lambda s: float(next(iter(graphlib.TopologicalSorter(s["g"]).static_order()))),
        lambda s, n: s["g"].update({2: [n + 2]})),
    "cell": (
        lambda: types.CellType(1.0), lambda s: s.cell_contents,
        lambda s, n: setattr(s, "cell_contents", s.cell_contents + n)),
    "generator_frame": (
        lambda: {"g": (k for k in range(9)), "v": 1.0}, lambda s: s["v"],
        lambda s, n: s.update(v=next(s["g"]) + 1.0)),
    "an_iterator_of_products": (
        lambda: {"i": itertools.product([1.0, 2.0], repeat=3), "v": (1.0,)}, lambda s: sum(s["v"]),
        lambda s, n: s.update(v=next(s["i"]))),
}  # fmt: skip

for _name, _situation in SITUATIONS.items():
    for _writes in (False, True):
        case_of(_name, *_situation, _writes)
