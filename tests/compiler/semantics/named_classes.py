"""Classes and modules that a step names: tests of types, registers, patterns, lazy modules, class
attributes and metaclasses, changed between calls."""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import sys
import typing
from types import ModuleType
from typing import Any

from .registry import Seen, batch, case, layer, ramp


@case
def a_class_registered_with_an_abstract_base(lib: Any, wrap: Any) -> Seen:
    class Scaled(abc.ABC):  # noqa: B024
        pass

    class Plain:
        gain = 3.0

    given = Plain()

    def step(x):
        return x * given.gain if isinstance(given, Scaled) else x

    step = wrap(step)
    for n in range(6):
        if n == 3:
            Scaled.register(Plain)
        yield step(ramp(lib, 3, start=float(n)))


@case
def a_subclass_hook(lib: Any, wrap: Any) -> Seen:
    class Sized(abc.ABC):  # noqa: B024
        @classmethod
        def __subclasshook__(cls, other):
            return any("size" in vars(base) for base in other.__mro__)

    class With:
        size = 2

    class Without:
        pass

    held = [With()]

    def step(x):
        return x + 1 if isinstance(held[0], Sized) else x - 1

    step = wrap(step)
    for n in range(6):
        held[0] = Without() if n % 3 == 2 else With()
        yield step(ramp(lib, 3, start=float(n)))


@case
def an_abstract_base_of_the_library(lib: Any, wrap: Any) -> Seen:
    class Rows:
        def __len__(self):
            return 4

    rows = Rows()

    def step(x):
        return x * 2 if isinstance(rows, collections.abc.Sequence) else x

    step = wrap(step)
    for n in range(6):
        if n == 3:
            collections.abc.Sequence.register(Rows)
        yield step(ramp(lib, 3, start=float(n)))


@case
def an_enumeration_of_modes(lib: Any, wrap: Any) -> Seen:
    class Mode(enum.Enum):
        MEAN = "mean"
        SUM = "sum"

    held = {"mode": Mode.MEAN}

    def step(x):
        if held["mode"] is Mode.SUM:
            return x.sum()
        return x.mean() if isinstance(held["mode"], Mode) else x

    step = wrap(step)
    for n in range(7):
        held["mode"] = (Mode.MEAN, Mode.MEAN, Mode.SUM, "none", Mode.SUM)[n % 5]
        yield step(batch(lib, n))


@case
def a_dataclass_by_its_class(lib: Any, wrap: Any) -> Seen:
    @dataclasses.dataclass
    class Options:
        gain: float = 1.0

    @dataclasses.dataclass
    class Shifted(Options):
        shift: float = 0.5

    held = [Options()]

    def step(x):
        options = held[0]
        if type(options) is Shifted:
            return x * options.gain + options.shift
        return x * options.gain if dataclasses.is_dataclass(options) else x

    step = wrap(step)
    for n in range(6):
        if n == 2:
            held[0] = Shifted(2.0)
        if n == 4:
            held[0].gain = 5.0
        yield step(ramp(lib, 3, start=float(n)))


@case
def a_class_pattern(lib: Any, wrap: Any) -> Seen:
    class Scale:
        __match_args__ = ("by",)

        def __init__(self, by):
            self.by = by

    class Shift(Scale):
        pass

    held = [Scale(2.0)]

    def step(x):
        match held[0]:
            case Shift(by):
                return x + by
            case Scale(by=by) if by > 0:
                return x * by
            case float():
                return x - held[0]
            case _:
                return x

    step = wrap(step)
    for n in range(8):
        held[0] = (Scale(2.0), Scale(3.0), Shift(1.0), Scale(-1.0), 4.0)[n % 5]
        yield step(ramp(lib, 3, start=float(n)))


@case
def a_typing_generic(lib: Any, wrap: Any) -> Seen:
    T = typing.TypeVar("T")

    class Box(typing.Generic[T]):
        gain = 1.0

        def __init__(self, held: T) -> None:
            self.held = held

    box = Box[float](2.0)

    def step(x):
        return x * box.held * Box.gain if isinstance(box, Box) else x

    step = wrap(step)
    for n in range(6):
        if n == 2:
            Box.gain = 3.0
        if n == 4:
            box.held = 5.0
        yield step(ramp(lib, 3, start=float(n)))


@case
def a_runtime_protocol(lib: Any, wrap: Any) -> Seen:
    @typing.runtime_checkable
    class Scales(typing.Protocol):
        gain: float

    class Holder:
        pass

    holder = Holder()

    def step(x):
        return x * holder.gain if isinstance(holder, Scales) else x

    step = wrap(step)
    for n in range(6):
        if n == 2:
            holder.gain = 3.0
        if n == 4:
            del holder.gain
        yield step(ramp(lib, 3, start=float(n)))


@case
def a_metaclass_with_its_own_test(lib: Any, wrap: Any) -> Seen:
    class Meta(type):
        accepted = ()

        def __instancecheck__(cls, held):
            return type(held).__name__ in cls.accepted

    class Wanted(metaclass=Meta):
        pass

    class Given:
        pass

    given = Given()

    def step(x):
        return x * 2 if isinstance(given, Wanted) else x

    step = wrap(step)
    for n in range(6):
        if n == 2:
            Meta.accepted = ("Given",)
        if n == 4:
            Wanted.accepted = ()
        yield step(ramp(lib, 3, start=float(n)))


@case
def an_attribute_of_a_metaclass(lib: Any, wrap: Any) -> Seen:
    class Meta(type):
        gain = 1.0

        @property
        def doubled(cls):
            return cls.gain * 2

    class Scale(metaclass=Meta):
        pass

    def step(x):
        return x * Scale.doubled

    step = wrap(step)
    for n in range(6):
        if n == 2:
            Meta.gain = 3.0
        if n == 4:
            Scale.gain = -1.0
        yield step(ramp(lib, 3, start=float(n)))


@case
def a_counter_on_a_class(lib: Any, wrap: Any) -> Seen:
    class Count:
        calls = 0

    def step(x):
        Count.calls += 1
        return x * Count.calls if issubclass(Count, object) else x

    step = wrap(step)
    for n in range(6):
        if n == 4:
            Count.calls = 100
        yield step(ramp(lib, 3, start=float(n))), Count.calls


@case
def a_base_that_is_replaced(lib: Any, wrap: Any) -> Seen:
    class A:
        pass

    class B:
        pass

    class Given(A):
        pass

    given = Given()

    def step(x):
        return x * 2 if isinstance(given, A) else x

    step = wrap(step)
    for n in range(6):
        if n == 3:
            Given.__bases__ = (B,)
        yield step(ramp(lib, 3, start=float(n)))


@case
def the_class_of_an_object_changed(lib: Any, wrap: Any) -> Seen:
    class A:
        gain = 2.0

    class B:
        gain = 3.0

    given = A()

    def step(x):
        return x * given.gain if type(given) is A else x - given.gain

    step = wrap(step)
    for n in range(6):
        given.__class__ = B if n in (2, 3) else A
        yield step(ramp(lib, 3, start=float(n)))


@case
def the_global_class_rebound(lib: Any, wrap: Any) -> Seen:
    class A:
        pass

    class B:
        pass

    given, wanted = A(), A

    def step(x):
        return x * 2 if isinstance(given, wanted) else x

    step = wrap(step)
    for n in range(6):
        wanted = B if n in (2, 3) else A
        yield step(ramp(lib, 3, start=float(n)))


@case
def a_module_by_a_chain_of_names(lib: Any, wrap: Any) -> Seen:
    outer, inner = ModuleType("outer"), ModuleType("outer.inner")
    outer.inner, inner.gain, outer.gain = inner, 2.0, -1.0

    def step(x):
        return x * outer.inner.gain

    step = wrap(step)
    for n in range(8):
        if n == 2:
            inner.gain = 3.0
        if n == 4:
            outer.gain = 7.0
        if n == 6:
            outer.inner = ModuleType("other")
            outer.inner.gain = 5.0
        yield step(ramp(lib, 3, start=float(n)))


@case
def a_module_that_is_written_to(lib: Any, wrap: Any) -> Seen:
    state = ModuleType("state")
    state.last, state.count = 1.0, 0

    def step(x):
        state.count += 1
        state.last = state.count * 0.5
        return x * state.last

    step = wrap(step)
    for n in range(6):
        if n == 4:
            state.count = 10
        yield step(ramp(lib, 3, start=float(n))), state.count, state.last


@case
def a_module_that_loads_names_lazily(lib: Any, wrap: Any) -> Seen:
    lazy = ModuleType("lazy")

    def load(name):
        if name != "gain":
            raise AttributeError(name)
        lazy.gain = 3.0
        return lazy.gain

    lazy.__getattr__ = load

    def step(x):
        return x * lazy.gain

    step = wrap(step)
    for n in range(7):
        if n == 3:
            lazy.gain = 4.0
        if n == 5:
            del lazy.gain
        yield step(ramp(lib, 3, start=float(n))), "gain" in vars(lazy)


@case
def a_module_whose_names_are_computed(lib: Any, wrap: Any) -> Seen:
    lazy, scale = ModuleType("computed"), [1.0]
    lazy.__getattr__ = lambda name: scale[0] * len(name)

    def step(x):
        return x * lazy.abc

    step = wrap(step)
    for n in range(6):
        if n == 2:
            scale[0] = 2.0
        if n == 4:
            lazy.abc = 0.5
        yield step(ramp(lib, 3, start=float(n)))


@case
def a_module_imported_in_the_step(lib: Any, wrap: Any) -> Seen:
    held = ModuleType("evergrad_test_options")
    held.gain, held.shift = 2.0, 1.0
    sys.modules["evergrad_test_options"] = held

    def step(x):
        import evergrad_test_options as options
        from evergrad_test_options import shift

        return x * options.gain + shift

    step = wrap(step)
    for n in range(6):
        if n == 2:
            held.gain = 3.0
        if n == 4:
            held.shift = -1.0
        yield step(ramp(lib, 3, start=float(n)))
    del sys.modules["evergrad_test_options"]


@case
def a_module_read_by_getattr(lib: Any, wrap: Any) -> Seen:
    options = ModuleType("options")
    options.gain = 2.0

    def step(x):
        gain = getattr(options, "gain") * 2  # noqa: B009
        return x * gain + (1.0 if hasattr(options, "shift") else 0.0)

    step = wrap(step)
    for n in range(6):
        if n == 2:
            options.gain = 3.0
        if n == 4:
            options.shift = True
        yield step(ramp(lib, 3, start=float(n)))


@case
def a_module_handed_to_a_helper(lib: Any, wrap: Any) -> Seen:
    options = ModuleType("options")
    options.gain, options.unused = 2.0, 1.0

    def read(held):
        return held.gain

    def step(x):
        return x * read(options)

    step = wrap(step)
    for n in range(6):
        if n == 2:
            options.gain = 3.0
        yield step(ramp(lib, 3, start=float(n)))


@case
def a_class_of_an_extension(lib: Any, wrap: Any) -> Seen:
    held = [collections.Counter("aab")]

    def step(x):
        if isinstance(held[0], collections.Counter):
            return x * held[0]["a"]
        return x + len(held[0]) if isinstance(held[0], collections.deque) else x

    step = wrap(step)
    for n in range(6):
        if n == 2:
            held[0]["a"] += 5
        if n == 4:
            held[0] = collections.deque([1, 2, 3])
        yield step(ramp(lib, 3, start=float(n)))


@case
def layers_by_their_class(lib: Any, wrap: Any) -> Seen:
    layers = [layer(lib), lib.nn.Tanh(), lib.nn.Identity()]

    def step(x):
        for module in layers:
            if isinstance(module, (lib.nn.Linear, lib.nn.Tanh)):
                x = module(x)
        return x

    step = wrap(step)
    for n in range(6):
        if n == 3:
            layers[1] = lib.nn.ReLU()
        yield step(batch(lib, n))


@case
def objects_that_answer_for_themselves(lib: Any, wrap: Any) -> Seen:
    reads = []

    class Loud:
        def __init__(self):
            self.gain = 2.0

        def __getattribute__(self, name):
            reads.append(name)
            return object.__getattribute__(self, name)

    loud = Loud()

    def step(x):
        return x * 2 if x is loud else x

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3, start=float(n))), list(reads)
