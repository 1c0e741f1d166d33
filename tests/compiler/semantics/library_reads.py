"""State that functions and properties of the standard library, NumPy and the engine read: the code
of the function mentions neither it nor its name."""

from __future__ import annotations

import enum
import gc
import inspect
import typing
from types import SimpleNamespace
from typing import Any

import numpy as np

from .registry import Seen, attempt, case, layer, ramp


@case
def the_value_of_a_member(lib: Any, wrap: Any) -> Seen:
    class Mode(enum.Enum):
        A = (1.0, [2.0])

        @property
        def gain(self):
            return self.value[1][0]

    step = wrap(lambda x: x * Mode.A.value[1][0] + Mode.A.gain)
    for n in range(5):
        if n == 2:
            Mode.A.value[1][0] = 5.0
        if n == 4:
            Mode.A._value_ = (1.0, [7.0])
        yield step(ramp(lib, 3))


@case
def a_member_by_name_and_by_value(lib: Any, wrap: Any) -> Seen:
    class Mode(enum.Enum):
        A = "a"
        B = "b"

    Mode.A.gain, Mode.B.gain = 1.0, 2.0
    step = wrap(lambda x, key: x * Mode[key.upper()].gain + Mode(key).gain)
    for n in range(6):
        if n == 2:
            Mode.B.gain = 4.0
        yield step(ramp(lib, 3), "ab"[n % 2])


@case
def members_in_order(lib: Any, wrap: Any) -> Seen:
    class Mode(enum.Enum):
        A = [1.0]  # noqa: RUF012
        B = [2.0]  # noqa: RUF012

    step = wrap(lambda x: x * sum(member.value[0] for member in Mode) * len(Mode))
    for n in range(5):
        if n == 2:
            Mode.B.value[0] = 30.0
        if n == 4:
            Mode.A.value.insert(0, 7.0)
        yield step(ramp(lib, 3))


@case
def the_name_and_the_text_of_a_function(lib: Any, wrap: Any) -> Seen:
    def helper():
        """One."""

    step = wrap(lambda x: x * len(helper.__name__) + len(helper.__doc__ or ""))
    for n in range(6):
        if n == 2:
            helper.__name__ = "another"
        if n == 4:
            helper.__doc__ = None if n % 3 else "Another one."
        yield step(ramp(lib, 3))


@case
def the_text_of_a_class(lib: Any, wrap: Any) -> Seen:
    class Step:
        """One."""

    step = wrap(lambda x: x * len(Step.__doc__) + len(Step.__name__))
    for n in range(5):
        if n == 2:
            Step.__doc__ = "Another one."
        if n == 4:
            Step.__name__ = "Another"
        yield step(ramp(lib, 3))


@case
def annotations_of_a_class(lib: Any, wrap: Any) -> Seen:
    class Fields:
        a: int

    step = wrap(lambda x: x * len(typing.get_type_hints(Fields)))
    known = Fields.__annotations__
    for n in range(5):
        if n == 2:
            known["b"] = int
        if n == 4:
            del known["a"]
        yield step(ramp(lib, 3)), sorted(known)


@case
def values_in_annotations(lib: Any, wrap: Any) -> Seen:
    class Fields:
        a: int

    known = Fields.__annotations__
    known["a"] = 2.0
    step = wrap(lambda x: x * Fields.__annotations__["a"])
    for n in range(4):
        if n == 2:
            known["a"] = 5.0
        yield step(ramp(lib, 3))


@case
def the_number_of_subclasses(lib: Any, wrap: Any) -> Seen:
    class Base:
        pass

    kept = []
    step = wrap(lambda x: x * (1 + len(Base.__subclasses__())))
    for n in range(5):
        if n in (2, 4):
            kept.append(type("Further", (Base,), {}))
        yield step(ramp(lib, 3))


@case
def members_found_by_inspect(lib: Any, wrap: Any) -> Seen:
    class Config:
        a = 1.0

    config = Config()

    def step(x):
        return x * sum(v for _, v in inspect.getmembers(config) if isinstance(v, float))

    step = wrap(step)
    for n in range(6):
        if n == 2:
            Config.b = 2.0
        if n == 3:
            config.c = 4.0
        if n == 5:
            del Config.a
        yield step(ramp(lib, 3))


@case
def the_class_of_an_array(lib: Any, wrap: Any) -> Seen:
    class Scaled(np.ndarray):
        gain = 2.0

        def scaled(self):
            return float(self[0]) * self.gain * self.extra

    held = np.array([1.0, 2.0]).view(Scaled)
    held.extra = 1.0
    step = wrap(lambda x: x * held.scaled())
    for n in range(6):
        if n == 2:
            Scaled.gain = 5.0
        if n == 3:
            held.extra = 3.0
        if n == 5:
            Scaled.scaled = lambda self: 0.5
        yield step(ramp(lib, 3))


@case
def where_numpy_raises(lib: Any, wrap: Any) -> Seen:
    zeros = np.zeros(1)
    step = wrap(lambda x: x * float(np.divide(1.0, zeros)[0] > 0))
    for n in range(6):
        with np.errstate(divide="raise" if n in (2, 5) else "ignore"):
            yield attempt(step, ramp(lib, 3))


@case
def where_a_number_of_numpy_raises(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(zero=np.float64(0.0))
    step = wrap(lambda x: x + float(1.0 / s.zero > 0))
    for n in range(6):
        with np.errstate(divide="raise" if n in (2, 5) else "ignore"):
            yield attempt(step, ramp(lib, 3))


@case
def the_call_of_all_modules_is_patched(lib: Any, wrap: Any) -> Seen:
    model, called = layer(lib), lib.nn.Module.__call__
    step = wrap(lambda x: model(x))
    try:
        for n in range(7):
            if n == 2:
                lib.nn.Module.__call__ = lambda self, *args: called(self, *args) * 7
            if n == 4:
                lib.nn.Module.__call__ = called
            if n == 5:
                lib.nn.Linear.__call__ = lambda self, *args: called(self, *args) + 1
            yield step(ramp(lib, 2, 3))
    finally:
        lib.nn.Module.__call__ = called
        del lib.nn.Linear.__call__


@case
def a_method_of_all_modules_is_patched(lib: Any, wrap: Any) -> Seen:
    model, parameters = layer(lib), lib.nn.Module.parameters
    step = wrap(lambda x: x * sum(p.sum() for p in model.parameters()))
    try:
        for n in range(6):
            if n == 2:
                lib.nn.Module.parameters = lambda self: [self.bias]
            if n == 4:
                lib.nn.Module.parameters = parameters
            yield step(ramp(lib, 3))
    finally:
        lib.nn.Module.parameters = parameters


@case
def whether_the_collector_runs(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(off=False)

    def step(x):
        before = gc.isenabled()
        if s.off:
            gc.disable()
        return x * (2 if before else 1), gc.isenabled()

    step = wrap(step)
    try:
        for n in range(6):
            s.off = n in (2, 3)
            yield step(ramp(lib, 3)), gc.isenabled()
            if n == 4:
                gc.enable()
    finally:
        gc.enable()
