"""Classes changed between calls: attributes, methods, code objects, identity of objects."""

from __future__ import annotations

import functools
from types import MethodType
from typing import Any

from .registry import Seen, batch, case, layer, ramp


@case
def a_class_attribute_changed(lib: Any, wrap: Any) -> Seen:
    class Step:
        gain = 1.0

        def run(self, x):
            return x * self.gain

    step = wrap(Step().run)
    for n in range(5):
        Step.gain = 1.0 + n
        yield step(ramp(lib, 3))


@case
def a_base_class_attribute_changed(lib: Any, wrap: Any) -> Seen:
    class Base:
        gain = 1.0

    class Step(Base):
        def run(self, x):
            return x * self.gain

    step = wrap(Step().run)
    for n in range(5):
        Base.gain = 1.0 + n
        if n == 3:
            Step.gain = -1.0
        yield step(ramp(lib, 3))


@case
def an_instance_attribute_hides_the_class(lib: Any, wrap: Any) -> Seen:
    class Step:
        gain = 1.0

        def run(self, x):
            return x * self.gain

    s = Step()
    step = wrap(s.run)
    for n in range(6):
        if n == 2:
            s.gain = 5.0
        if n == 4:
            del s.gain
        Step.gain += 1
        yield step(ramp(lib, 3))


@case
def a_class_level_list(lib: Any, wrap: Any) -> Seen:
    class Step:
        seen = []  # noqa: RUF012

        def run(self, x):
            self.seen.append(len(self.seen))
            return x * len(self.seen)

    step = wrap(Step().run)
    for n in range(5):
        if n == 3:
            Step.seen.clear()
        yield step(ramp(lib, 3)), Step.seen


@case
def a_class_level_list_of_tensors(lib: Any, wrap: Any) -> Seen:
    class Step:
        outputs = []  # noqa: RUF012

        @classmethod
        def run(cls, x):
            cls.outputs.append(x * 2)
            return x

    step = wrap(Step.run)
    for n in range(4):
        step(ramp(lib, 3, start=float(n)))
        yield Step.outputs


@case
def a_method_replaced(lib: Any, wrap: Any) -> Seen:
    class Step:
        def part(self, x):
            return x + 1

        def run(self, x):
            return self.part(x)

    step = wrap(Step().run)
    for n in range(5):
        if n == 2:
            Step.part = lambda self, x: x * 10
        if n == 4:
            Step.part = lambda self, x: -x
        yield step(ramp(lib, 3))


@case
def a_method_replaced_on_the_instance(lib: Any, wrap: Any) -> Seen:
    class Step:
        gain = 2.0

        def part(self, x):
            return x + 1

        def run(self, x):
            return self.part(x)

    s = Step()
    step = wrap(s.run)
    for n in range(5):
        if n == 2:
            s.part = MethodType(lambda self, x: x * self.gain, s)
        if n == 4:
            del s.part
        yield step(ramp(lib, 3))


@case
def the_code_of_a_helper_replaced(lib: Any, wrap: Any) -> Seen:
    def helper(x):
        return x + 1

    step = wrap(lambda x: helper(x))
    for n in range(5):
        if n == 2:
            helper.__code__ = (lambda x: x * 10).__code__
        if n == 4:
            helper.__code__ = (lambda x: x - 1).__code__
        yield step(ramp(lib, 3))


@case
def the_code_of_the_step_replaced(lib: Any, wrap: Any) -> Seen:
    def step(x):
        return x + 1

    compiled = wrap(step)
    for n in range(5):
        if n == 2:
            step.__code__ = (lambda x: x * 10).__code__
        yield compiled(ramp(lib, 3))


@case
def the_code_of_a_bound_method_replaced(lib: Any, wrap: Any) -> Seen:
    class Step:
        def run(self, x):
            return x + 1

    compiled = wrap(Step().run)
    for n in range(5):
        if n == 2:
            Step.run.__code__ = (lambda self, x: x * 10).__code__
        yield compiled(ramp(lib, 3))


@case
def identity_of_objects_decides(lib: Any, wrap: Any) -> Seen:
    a, b = object(), object()
    box = [a]
    step = wrap(lambda x: x * 2 if box[0] is a else x - 1)
    for n in range(5):
        box[0] = (a, b)[n % 2]
        yield step(ramp(lib, 3))


@case
def identity_of_tensors_decides(lib: Any, wrap: Any) -> Seen:
    w = lib.ones(3)
    step = wrap(lambda x: x * 2 if x is w else x + 1)
    for n in range(5):
        yield step(w if n % 2 else lib.ones(3))


@case
def identity_of_two_arguments(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda a, b: a * 2 if a is b else a + b)
    for n in range(5):
        x = ramp(lib, 3, start=float(n))
        yield step(x, x if n % 2 else x.clone())


@case
def the_class_of_an_object_changed(lib: Any, wrap: Any) -> Seen:
    class A:
        def f(self, x):
            return x + 1

    class B:
        def f(self, x):
            return x * 2

    s = A()
    step = wrap(lambda x: s.f(x))
    for n in range(5):
        s.__class__ = (A, B)[n % 2]
        yield step(ramp(lib, 3))


@case
def isinstance_of_an_argument(lib: Any, wrap: Any) -> Seen:
    class A:
        gain = 2.0

    class B(A):
        gain = 3.0

    step = wrap(lambda x, o: x * o.gain if isinstance(o, B) else x - o.gain)
    for n in range(4):
        yield step(ramp(lib, 3), (A(), B())[n % 2])


@case
def a_class_as_argument(lib: Any, wrap: Any) -> Seen:
    class A:
        gain = 2.0

    class B:
        gain = 3.0

    step = wrap(lambda x, kind: x * kind.gain)
    for n in range(5):
        A.gain += 1
        yield step(ramp(lib, 3), (A, B)[n % 2])


@case
def a_registry_of_classes(lib: Any, wrap: Any) -> Seen:
    registry = {}

    def register(name):
        def add(cls):
            registry[name] = cls
            return cls

        return add

    @register("add")
    class Add:
        def __call__(self, x):
            return x + 1

    @register("mul")
    class Mul:
        def __call__(self, x):
            return x * 2

    step = wrap(lambda x, name: registry[name]()(x))
    for n in range(5):
        if n == 3:
            registry["add"] = Mul
        yield step(ramp(lib, 3), ["add", "mul"][n % 2])


@case
def a_metaclass_attribute(lib: Any, wrap: Any) -> Seen:
    class Meta(type):
        gain = 1.0

    class Step(metaclass=Meta):
        pass

    step = wrap(lambda x: x * Step.gain)
    for n in range(4):
        Meta.gain = 1.0 + n
        yield step(ramp(lib, 3))


@case
def operators_of_a_class(lib: Any, wrap: Any) -> Seen:
    class Vec:
        def __init__(self, t, tag=0):
            self.t, self.tag = t, tag

        def __add__(self, other):
            return Vec(self.t + other.t, self.tag + other.tag)

        def __eq__(self, other):
            return self.tag == other.tag

        def __hash__(self):
            return self.tag

    bias = Vec(lib.ones(3), 1)

    def step(x, tag):
        v = Vec(x, tag) + bias
        return v.t * 2 if v == Vec(x, 2) else v.t

    step = wrap(step)
    for n in range(5):
        bias.tag = n % 3
        yield step(ramp(lib, 3), 1)


@case
def an_object_created_in_the_step(lib: Any, wrap: Any) -> Seen:
    class Node:
        count = 0

        def __init__(self, value):
            type(self).count += 1
            self.value, self.children = value, []

    def step(x):
        root = Node(x)
        root.children.append(Node(x * 2))
        return root.children[0].value + Node.count

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3, start=float(n))), Node.count


@case
def an_object_returned(lib: Any, wrap: Any) -> Seen:
    class Result:
        def __init__(self, loss, n):
            self.loss, self.n = loss, n

    step = wrap(lambda x, n: Result(x.sum(), n))
    for n in range(4):
        found = step(ramp(lib, 3), n)
        yield found.loss, found.n, isinstance(found, Result)


@case
def singledispatch(lib: Any, wrap: Any) -> Seen:
    @functools.singledispatch
    def scaled(v, x):
        return x

    @scaled.register
    def _(v: int, x):
        return x * v

    step = wrap(lambda x, v: scaled(v, x))
    for n in range(5):
        if n == 3:
            scaled.register(float, lambda v, x: x - v)
        yield step(ramp(lib, 3), n if n % 2 == 0 else float(n))


@case
def an_abstract_strategy_swapped(lib: Any, wrap: Any) -> Seen:
    import abc

    class Loss(abc.ABC):
        @abc.abstractmethod
        def __call__(self, x): ...

    class Square(Loss):
        def __call__(self, x):
            return x.square().mean()

    class Absolute(Loss):
        def __init__(self):
            self.scale = 1.0

        def __call__(self, x):
            self.scale *= 2
            return x.abs().mean() * self.scale

    class Trainer:
        def __init__(self):
            self.model, self.loss = layer(lib), Square()

        def run(self, x):
            return self.loss(self.model(x))

    t = Trainer()
    absolute = Absolute()
    run = wrap(t.run)
    for n in range(5):
        t.loss = absolute if n in (1, 2, 4) else Square()
        yield run(batch(lib, n)), absolute.scale


@case
def a_mixin_added_to_the_bases(lib: Any, wrap: Any) -> Seen:
    class Plain:
        def f(self, x):
            return x

    class Doubled:
        def f(self, x):
            return x * 2

    class Step(Plain):
        pass

    s = Step()
    step = wrap(lambda x: s.f(x))
    for n in range(4):
        Step.__bases__ = (Doubled,) if n % 2 else (Plain,)
        yield step(ramp(lib, 3))


@case
def a_weak_reference(lib: Any, wrap: Any) -> Seen:
    import weakref

    class Owner:
        gain = 2.0

    owner = Owner()
    ref = weakref.ref(owner)
    step = wrap(lambda x: x * ref().gain if ref() is not None else x)
    for n in range(5):
        if n == 2:
            owner.gain = 5.0
        if n == 3:
            del owner
        yield step(ramp(lib, 3))


def _class_number_kept(keep: Any, write: Any) -> Any:
    """A number of a class that the step changes, and keeps elsewhere while it is no program."""

    def kept(lib: Any, wrap: Any) -> Seen:
        class Base:
            level = 0.5

        class Own(Base):
            pass

        own, memo, seen = Own(), {}, []

        def step(x, n):
            keep(own, memo, seen)
            write(Base, Own, own, 0.2 + 0.1 * n)
            return x * 0.5

        step = wrap(step)
        for n in range(6):
            yield step(ramp(lib, 3), n)
            yield dict(memo), list(seen), Base.level, Own.level
            yield [type(v).__name__ for v in (*memo.values(), *seen, Base.level, own.level)]

    return kept


_KEEPS = {
    "in_a_memo": lambda own, memo, seen: memo.__setitem__(len(memo) % 3, own.level),
    "in_a_list": lambda own, memo, seen: seen.append(own.level),
    "read_from_the_list": lambda own, memo, seen: seen.append(sum(seen[-2:]) + own.level),
    "in_a_text_key": lambda own, memo, seen: memo.setdefault(f"{len(memo)}", type(own).level),
}
_WRITES = {
    "of_the_base": lambda base, sub, own, value: setattr(base, "level", value),
    "of_the_class": lambda base, sub, own, value: setattr(sub, "level", value),
    "of_its_type": lambda base, sub, own, value: setattr(type(own), "level", value),
}
for _where, _keep in _KEEPS.items():
    for _whose, _write in _WRITES.items():
        _made = _class_number_kept(_keep, _write)
        _made.__name__ = f"a_class_number_{_whose}_kept_{_where}"
        case(_made)
