"""Instances of the user's classes that inherit state from classes of libraries, whose methods read
attributes that no code of the user's names."""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import configparser
import ctypes
import email.message
import mmap
import queue
import string
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

from .registry import Seen, batch, case, leaf, ramp


class Config(configparser.ConfigParser):
    pass


class Registry(collections.UserDict):
    pass


class Losses(collections.UserList):
    def last(self) -> Any:
        return self[-1]


class Scopes(collections.ChainMap):
    pass


class Waiting(queue.Queue):
    pass


class Flag(threading.Event):
    pass


class Members(weakref.WeakSet):
    pass


class Weights(weakref.WeakKeyDictionary):
    pass


class Mail(email.message.Message):
    pass


class Text(string.Template):
    pass


class Options(argparse.Namespace):
    pass


class Space(types.SimpleNamespace):
    pass


class Number(ctypes.c_double):
    pass


class Fields(ctypes.Structure):
    _fields_ = (("a", ctypes.c_double),)


class Memory(mmap.mmap):
    pass


class Result(concurrent.futures.Future):
    pass


class Holder:
    value = 1.0


HOLDERS = [Holder() for _ in range(8)]


def config() -> Config:
    found = Config()
    found.read_string("[o]\na = 1.5\n")
    return found


def change_of(name: str) -> Callable[[Any, int], None]:
    return lambda s, n: setattr(s, name, n * 1.0)


# What is made, how a number of it is read, and how it is changed between two calls.
SITUATIONS: dict[str, tuple[Any, Any, Any]] = {
    "config_parser": (
        config, lambda s: s.getfloat("o", "a"), lambda s, n: s.set("o", "a", str(n))),
    "user_dictionary": (
        lambda: Registry(a=1.0), lambda s: s["a"], lambda s, n: s.update(a=n * 1.0)),
    "user_list": (
        lambda: Losses([1.0, 2.0]), lambda s: s.last(), lambda s, n: s.append(n * 1.0)),
    "chain_map": (
        lambda: Scopes({"a": 1.0}, {"b": 2.0}), lambda s: s["b"],
        lambda s, n: s.maps[1].update(b=n * 1.0)),
    "queue": (Waiting, lambda s: float(s.qsize()), lambda s, n: s.put(n)),
    "event": (
        Flag, lambda s: 2.0 if s.is_set() else 1.0,
        lambda s, n: s.clear() if s.is_set() else s.set()),
    "weak_set": (
        lambda: Members(HOLDERS[:2]), lambda s: float(len(s)), lambda s, n: s.add(HOLDERS[n])),
    "weak_keys": (
        lambda: Weights({HOLDERS[0]: 1.0}), lambda s: s[HOLDERS[0]],
        lambda s, n: s.__setitem__(HOLDERS[0], n * 1.0)),
    "message": (
        Mail, lambda s: float(len(s)) + 1, lambda s, n: s.add_header(f"a{n}", "b")),
    "template": (
        lambda: Text("1${a}"), lambda s: float(s.substitute(a=2)),
        lambda s, n: setattr(s, "template", "1${a}" + "0" * n)),
    "argparse_namespace": (lambda: Options(a=1.0), lambda s: s.a, change_of("a")),
    "simple_namespace": (lambda: Space(a=1.0), lambda s: s.a, change_of("a")),
    "ctypes_number": (lambda: Number(1.0), lambda s: s.value, change_of("value")),
    "ctypes_structure": (lambda: Fields(1.0), lambda s: s.a, change_of("a")),
    "memory_map": (
        lambda: Memory(-1, 8), lambda s: float(s[0]) + 1, lambda s, n: s.__setitem__(0, n)),
    "future": (
        Result, lambda s: float(s.done()) + 1, lambda s, n: s.done() or s.set_result(n)),
}  # fmt: skip


def case_of(name: str, make: Any, read: Any, change: Any) -> None:
    def situation(lib: Any, wrap: Any) -> Seen:
        state = make()
        step = wrap(lambda x: x * read(state))
        for n in range(8):
            if n in (2, 3, 5):
                change(state, n)
            yield step(batch(lib, n)), read(state)

    situation.__name__ = name
    situation.__module__ = __name__
    case(situation)


for _name, _situation in SITUATIONS.items():
    case_of(_name, *_situation)


@case
def a_schedule(lib: Any, wrap: Any) -> Seen:
    class Halving(lib.optim.lr_scheduler.StepLR):
        pass

    w = leaf(lib, 1.0, 2.0, 3.0)
    optimizer = lib.optim.SGD([w], lr=0.1)
    schedule = Halving(optimizer, 2, gamma=0.5)

    def step(x):
        optimizer.zero_grad()
        (w * x).square().sum().backward()
        optimizer.step()
        return w.detach() * schedule.get_last_lr()[0]

    step = wrap(step)
    for n in range(8):
        yield step(ramp(lib, 3)), w
        schedule.step()
        if n == 5:
            schedule.base_lrs = [0.3]


@case
def a_distribution(lib: Any, wrap: Any) -> Seen:
    class Prior(lib.distributions.Normal):
        pass

    prior = Prior(lib.zeros(3), lib.ones(3))
    step = wrap(lambda x: prior.log_prob(x).sum())
    for n in range(6):
        if n in (2, 4):
            prior.loc = lib.full((3,), float(n))
        yield step(ramp(lib, 3))


@case
def an_optimizer(lib: Any, wrap: Any) -> Seen:
    class Own(lib.optim.SGD):
        pass

    w = leaf(lib, 1.0, 2.0, 3.0)
    optimizer = Own([w], lr=0.1, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        (w * x).square().sum().backward()
        optimizer.step()

    step = wrap(step)
    for n in range(6):
        if n == 3:
            optimizer.param_groups[0]["lr"] = 0.01
        step(ramp(lib, 3))
        yield w
