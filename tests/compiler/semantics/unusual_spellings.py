"""Steps in spellings that are rare, though nothing is wrong with them: closures that rebind,
classes made inside, descriptors, `match`, walrus, weak references, chained mappings, exceptions."""

from __future__ import annotations

import contextlib
import copy
import enum
import functools
import itertools
import operator
import types
import weakref
from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from .registry import Seen, attempt, batch, case, layer, leaf, ramp, weights

Point = namedtuple("Point", "x y")


class Phase(enum.Enum):
    WARM = "warm"
    MAIN = "main"
    LAST = "last"

    @property
    def gain(self):
        return {"warm": 0.5, "main": 1.0, "last": 2.0}[self.value]

    def following(self):
        members = list(type(self))
        return members[min(members.index(self) + 1, len(members) - 1)]


class Mode(enum.IntFlag):
    NONE = 0
    SCALE = 1
    SHIFT = 2


@case
def a_phase_that_the_step_advances(lib: Any, wrap: Any) -> Seen:
    s = types.SimpleNamespace(phase=Phase.WARM, n=0)

    def step(x):
        s.n += 1
        if s.n % 3 == 0:
            s.phase = s.phase.following()
        return x * s.phase.gain

    step = wrap(step)
    for n in range(9):
        if n == 7:
            s.phase = Phase.WARM
        yield step(ramp(lib, 3)), s.phase.name, s.n


@case
def flags_that_are_combined(lib: Any, wrap: Any) -> Seen:
    s = types.SimpleNamespace(mode=Mode.NONE)

    def step(x):
        s.mode ^= Mode.SCALE
        if s.mode & Mode.SCALE:
            x = x * 2
        return x + 1 if Mode.SHIFT in s.mode else x

    step = wrap(step)
    for n in range(7):
        if n == 4:
            s.mode |= Mode.SHIFT
        yield step(ramp(lib, 3)), int(s.mode)


@case
def a_match_on_classes_and_mappings(lib: Any, wrap: Any) -> Seen:
    def step(x, how):
        match how:
            case {"kind": "scale", "by": float(by)}:
                return x * by
            case Point(x=0, y=other):
                return x + other
            case [first, *rest] if len(rest) > 1:
                return x * first + sum(rest)
            case str() as name:
                return getattr(x, name)()
            case None | False:
                return -x
            case _:
                return x * 0

    step = wrap(step)
    hows = ({"kind": "scale", "by": 2.0}, {"kind": "scale", "by": 3.0}, Point(0, 4), Point(1, 4),
            [1, 2, 3], [1, 2], "exp", "sin", None, False, 7,
            {"kind": "scale", "by": 2})  # fmt: skip
    for how in hows:
        yield step(ramp(lib, 3), how)


@case
def a_walrus_in_a_comprehension(lib: Any, wrap: Any) -> Seen:
    gains, last = [0.5, 1.0, 2.0], None

    def step(x):
        nonlocal last
        parts = [y for g in gains if (y := x * g) is not None and g > 0.6]
        last = y
        return sum(parts), (total := len(parts)) * 2 + total

    step = wrap(step)
    for n in range(6):
        if n == 3:
            gains.append(0.7)
        yield step(ramp(lib, 3, start=float(n))), last


@case
def two_closures_that_rebind_one_variable(lib: Any, wrap: Any) -> Seen:
    def made():
        level, history = lib.zeros(3), ()

        def push(x):
            nonlocal level, history
            level = 0.5 * level + x
            history = (*history[-1:], level)

        def pull():
            return level, history

        return push, pull

    push, pull = made()

    def step(x):
        push(x)
        held, past = pull()
        return held * len(past)

    step = wrap(step)
    for n in range(6):
        if n == 4:
            push(lib.ones(3))
        yield step(ramp(lib, 3, start=float(n))), pull()


@case
def a_descriptor_that_validates(lib: Any, wrap: Any) -> Seen:
    class Positive:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, held, owner=None):
            return self if held is None else getattr(held, self.name)

        def __set__(self, held, value):
            if value <= 0:
                raise ValueError("not positive")
            setattr(held, self.name, value)

    class Model:
        gain = Positive()

        def __init__(self):
            self.gain = 4.0

        def step(self, x):
            self.gain = self.gain - 1.5
            return x * self.gain

    model = Model()
    step = wrap(model.step)
    for n in range(7):
        if n == 4:
            model.gain = 10.0
        yield attempt(step, ramp(lib, 3)), model.gain


@case
def a_class_made_in_the_step(lib: Any, wrap: Any) -> Seen:
    rate = 2.0

    def step(x):
        class Local:
            gain = rate

            def __init__(self, y):
                self.y = y

            def out(self):
                return self.y * self.gain

        return Local(x).out(), Local.__name__

    step = wrap(step)
    for n in range(5):
        rate = 1.0 + n
        yield step(ramp(lib, 3))


@case
def attributes_found_by_getattr(lib: Any, wrap: Any) -> Seen:
    class Lazy:
        def __init__(self):
            self.made = []

        def __getattr__(self, name):
            if not name.startswith("w_"):
                raise AttributeError(name)
            value = float(name[2:])
            self.made.append(name)
            setattr(self, name, value)
            return value

    lazy = Lazy()

    def step(x, n):
        return x * getattr(lazy, f"w_{n % 3}") + hasattr(lazy, "missing")

    step = wrap(step)
    for n in range(8):
        yield step(ramp(lib, 3), n), list(lazy.made)


@case
def a_module_with_its_own_getattr(lib: Any, wrap: Any) -> Seen:
    class Wrapper(lib.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module
            self.calls = 0

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.module, name)

        def forward(self, x):
            self.calls += 1
            return self.module(x) * self.in_features

    model = Wrapper(layer(lib))
    step = wrap(lambda x: model(x).sum() + model.weight.sum())
    for n in range(5):
        yield step(batch(lib, n)), model.calls


@case
def an_exception_caught_and_counted(lib: Any, wrap: Any) -> Seen:
    class SkipError(Exception):
        pass

    s = types.SimpleNamespace(skipped=0, done=0)

    def inner(x, n):
        if n % 3 == 2:
            raise SkipError(n)
        s.done += 1
        return x * 2

    def step(x, n):
        try:
            y = inner(x, n)
        except SkipError as error:
            s.skipped += error.args[0]
            return None
        else:
            return y + 1
        finally:
            s.done += 10

    step = wrap(step)
    for n in range(8):
        yield step(ramp(lib, 3), n), s.skipped, s.done


@case
def an_exception_group_of_cleanups(lib: Any, wrap: Any) -> Seen:
    events = []

    @contextlib.contextmanager
    def scope(name):
        events.append(f"enter {name}")
        try:
            yield name
        finally:
            events.append(f"exit {name}")

    def step(x, n):
        with contextlib.ExitStack() as stack:
            names = [stack.enter_context(scope(k)) for k in ("a", "b")[: 1 + n % 2]]
            stack.callback(events.append, "callback")
            return x * len(names)

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3), n), list(events)
        events.clear()


@case
def weak_references_in_a_registry(lib: Any, wrap: Any) -> Seen:
    class Node:
        def __init__(self, gain):
            self.gain = gain

    nodes = [Node(1.0), Node(2.0)]
    registry = weakref.WeakSet(nodes)
    by_name = weakref.WeakValueDictionary({"first": nodes[0]})

    def step(x):
        first = by_name.get("first")
        return x * sum(sorted(node.gain for node in registry)) + (0 if first is None else 1)

    step = wrap(step)
    for n in range(6):
        if n == 2:
            nodes[1].gain = 5.0
        if n == 4:
            del nodes[0]
        yield step(ramp(lib, 3))


@case
def a_cache_on_a_method(lib: Any, wrap: Any) -> Seen:
    class Table:
        def __init__(self):
            self.computed = 0

        @functools.cache  # noqa: B019
        def row(self, n):
            self.computed += 1
            return 0.5 * n

        @functools.cached_property
        def scale(self):
            self.computed += 100
            return 3.0

    table = Table()
    step = wrap(lambda x: x * table.row(x.shape[0]) + table.scale)
    for n in range(6):
        yield step(ramp(lib, 3 + n % 2)), table.computed


@case
def a_partial_of_a_method(lib: Any, wrap: Any) -> Seen:
    class Model:
        def __init__(self):
            self.gain, self.n = 2.0, 0

        def apply(self, x, power, *, shift=0.0):
            self.n += 1
            return x * self.gain**power + shift

        squared = functools.partialmethod(apply, power=2)

    model = Model()
    cubed = functools.partial(model.apply, power=3, shift=1.0)
    step = wrap(lambda x: model.squared(x) + cubed(x))
    for n in range(6):
        if n == 3:
            model.gain = 0.5
        if n == 5:
            cubed.keywords["shift"] = -1.0
        yield step(ramp(lib, 3)), model.n


@case
def a_function_by_singledispatch(lib: Any, wrap: Any) -> Seen:
    @functools.singledispatch
    def scaled(how, x):
        return x

    @scaled.register
    def _(how: float, x):
        return x * how

    @scaled.register
    def _(how: list, x):
        return x + len(how)

    step = wrap(lambda x, how: scaled(how, x))
    for n, how in enumerate((2.0, 3.0, [1], [1, 2], "text", 2.0)):
        if n == 4:
            scaled.register(str, lambda how, x: -x)
        yield step(ramp(lib, 3), how)


@case
def dictionaries_updated_in_place(lib: Any, wrap: Any) -> Seen:
    stats = {"n": 0, "sum": lib.zeros(()), "by": {"a": 0.0, "b": 1.0}}

    def step(x):
        stats["by"] |= {"a": stats["by"]["a"] + 1}
        stats.update(n=stats["n"] + 1, sum=stats["sum"] + x.sum())
        return x * stats["by"]["a"]

    step = wrap(step)
    for n in range(6):
        if n == 4:
            stats["by"]["a"] = -3.0
        yield step(ramp(lib, 3)), stats


@case
def a_chain_of_mappings(lib: Any, wrap: Any) -> Seen:
    defaults, given = {"gain": 1.0, "shift": 0.5}, {}
    options = ChainMap(given, defaults)
    step = wrap(lambda x: x * options["gain"] + options.get("shift", 0.0))
    for n in range(6):
        if n == 2:
            given["gain"] = 3.0
        if n == 4:
            defaults["shift"] = -1.0
        yield step(ramp(lib, 3))


@case
def a_dictionary_of_the_users(lib: Any, wrap: Any) -> Seen:
    class Registry(UserDict):
        def __missing__(self, key):
            self.data[key] = value = len(self.data) + 1.0
            return value

    registry = Registry(a=0.5)
    step = wrap(lambda x, k: x * registry["a"] + registry[k])
    for n in range(7):
        yield step(ramp(lib, 3), "bcbdc"[n % 5]), dict(registry)


@case
def sets_of_tensors(lib: Any, wrap: Any) -> Seen:
    a, b, c = leaf(lib, 1.0, 2.0), leaf(lib, 3.0, 4.0), leaf(lib, 5.0, 6.0)
    frozen = {a}

    def step(x):
        held = [p for p in (a, b, c) if p not in frozen]
        loss = sum((p * x).sum() for p in held)
        grads = lib.autograd.grad(loss, held)
        return len(set(held)), grads

    step = wrap(step)
    for n in range(6):
        if n == 2:
            frozen.add(b)
        if n == 4:
            frozen.discard(a)
        yield step(ramp(lib, 2))


@case
def tensors_as_keys(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    state = {p: {"step": 0, "avg": lib.zeros_like(p)} for p in model.parameters()}

    def step(x):
        model.zero_grad()
        model(x).square().mean().backward()
        with lib.no_grad():
            for p in model.parameters():
                held = state[p]
                held["step"] += 1
                held["avg"].mul_(0.9).add_(p.grad, alpha=0.1)
                p -= 0.1 * held["avg"] / (1 - 0.9 ** held["step"])
        return x.sum()

    step = wrap(step)
    for n in range(6):
        step(batch(lib, n))
        yield weights(model), [(v["step"], v["avg"]) for v in state.values()]


@case
def records_that_are_replaced(lib: Any, wrap: Any) -> Seen:
    @dataclass(frozen=True)
    class State:
        h: Any
        n: int = 0
        rates: tuple = (0.1, 0.2)

    state = State(lib.zeros(3))

    def step(x):
        nonlocal state
        rate = state.rates[state.n % 2]
        state = replace(state, h=state.h + rate * x, n=state.n + 1)
        return state.h.sum()

    step = wrap(step)
    for n in range(7):
        if n == 5:
            state = replace(state, rates=(0.5, 0.6))
        yield step(ramp(lib, 3)), state.h, state.n


@case
def named_tuples_in_and_out(lib: Any, wrap: Any) -> Seen:
    last = Point(lib.zeros(3), 0)

    def step(p):
        nonlocal last
        made = p._replace(x=p.x + last.x, y=p.y * 2)
        last = Point(made.x.detach(), last.y + 1)
        return made

    step = wrap(step)
    for n in range(6):
        yield step(Point(ramp(lib, 3), 0.5 * n)), last


@case
def decimals_and_fractions(lib: Any, wrap: Any) -> Seen:
    s = types.SimpleNamespace(rate=Decimal("0.10"), share=Fraction(1, 3))

    def step(x):
        s.rate = s.rate * Decimal("0.5")
        s.share = s.share + Fraction(1, 6)
        return x * float(s.rate) + float(s.share)

    step = wrap(step)
    for n in range(6):
        if n == 4:
            s.rate = Decimal(2)
        yield step(ramp(lib, 3)), str(s.rate), str(s.share)


@case
def a_generator_made_and_used_up(lib: Any, wrap: Any) -> Seen:
    s = types.SimpleNamespace(taken=0)

    def parts(x, count):
        for k in range(count):
            s.taken += 1
            received = yield x * k
            if received:
                x = x + received

    def step(x, n):
        source = parts(x, 3 + n % 2)
        first = next(source)
        second = source.send(1.0)
        source.close()
        return first, second, [*parts(x, 2)]

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3), n), s.taken


@case
def a_coroutine_of_averages(lib: Any, wrap: Any) -> Seen:
    def averager():
        total, count, average = 0.0, 0, None
        while True:
            term = yield average
            total += term
            count += 1
            average = total / count

    source = averager()
    next(source)
    step = wrap(lambda x, n: x * source.send(n))
    for n in range(6):
        yield step(ramp(lib, 3), 0.5 * n)


@case
def operators_by_name(lib: Any, wrap: Any) -> Seen:
    table = {"+": operator.add, "*": operator.mul, "-": lambda a, b: a - b}
    program = ["+", "*"]

    def step(x, y):
        for name in program:
            x = table[name](x, y)
        return functools.reduce(table["+"], [x, y, x])

    step = wrap(step)
    for n in range(6):
        if n == 2:
            program.append("-")
        if n == 4:
            table["-"] = operator.truediv
        yield step(ramp(lib, 3), ramp(lib, 3, start=1.0))


@case
def arguments_that_are_unpacked(lib: Any, wrap: Any) -> Seen:
    def inner(x, *rest, scale=1.0, **others):
        return x * scale + sum(rest) + sum(others.values())

    def step(*args, **kwargs):
        first, *middle, last = args
        return inner(first, *middle, last, **{"scale": 2.0, **kwargs})

    step = wrap(step)
    for n in range(6):
        extra = {"a": 0.5 * n} if n % 2 else {"scale": 3.0 + n}
        yield step(ramp(lib, 3), *range(1 + n % 3), 2.0, **extra)


@case
def a_default_that_is_a_tensor(lib: Any, wrap: Any) -> Seen:
    def step(x, acc=lib.zeros(3), seen={}):  # noqa: B006, B008
        acc += x
        seen["n"] = seen.get("n", 0) + 1
        return acc * seen["n"]

    run = wrap(step)
    for n in range(6):
        if n == 3:
            step.__defaults__ = (lib.ones(3), {"n": 10})
        yield run(ramp(lib, 3)), step.__defaults__


@case
def slots_with_a_base(lib: Any, wrap: Any) -> Seen:
    class Base:
        __slots__ = ("h",)

    class Cell(Base):
        __slots__ = ("gain", "n")

        def __init__(self):
            self.h, self.gain, self.n = lib.zeros(3), 0.5, 0

        def __call__(self, x):
            self.h = self.h * self.gain + x
            self.n += 1
            return self.h

    cell = Cell()
    step = wrap(lambda x: cell(x).sum() / cell.n)
    for n in range(6):
        if n == 4:
            cell.gain = 2.0
        yield step(ramp(lib, 3)), cell.h, cell.n


@case
def a_class_attribute_that_counts(lib: Any, wrap: Any) -> Seen:
    class Model:
        built, registry = 0, {}

        def __init_subclass__(cls, **kwargs):
            Model.registry[cls.__name__] = cls

        @classmethod
        def bump(cls):
            cls.built += 1
            return cls.built

        @staticmethod
        def scale(x, by):
            return x * by

    class Child(Model):
        pass

    step = wrap(lambda x: Model.registry["Child"].scale(x, Child.bump()) + Model.bump())
    for n in range(7):
        if n == 5:
            Child.built = 50
        yield step(ramp(lib, 3)), Model.built, Child.built


@case
def properties_that_write(lib: Any, wrap: Any) -> Seen:
    class Ring:
        def __init__(self):
            self._items, self.reads = deque([1.0, 2.0, 3.0]), 0

        @property
        def head(self):
            self.reads += 1
            return self._items[0]

        @head.setter
        def head(self, value):
            self._items.appendleft(value)
            self._items.pop()

        @head.deleter
        def head(self):
            self._items.rotate(-1)

    ring = Ring()

    def step(x, n):
        if n % 3 == 2:
            del ring.head
        else:
            ring.head = 0.5 * n
        return x * ring.head

    step = wrap(step)
    for n in range(8):
        yield step(ramp(lib, 3), n), list(ring._items), ring.reads


@case
def hooks_by_a_handle(lib: Any, wrap: Any) -> Seen:
    model, kept = layer(lib), {}

    def keep(name):
        def hook(module, given, out):
            kept[name] = out.detach()
            return out * 2

        return hook

    handle = model.register_forward_hook(keep("a"))
    step = wrap(lambda x: model(x).sum())
    for n in range(7):
        if n == 3:
            handle.remove()
        if n == 5:
            handle = model.register_forward_hook(keep("b"))
        yield step(batch(lib, n)), dict(kept)


@case
def a_table_of_bound_methods(lib: Any, wrap: Any) -> Seen:
    class Player:
        def __init__(self, gain):
            self.gain = gain

        def up(self, x):
            self.gain *= 2
            return x * self.gain

        def down(self, x):
            self.gain -= 1
            return x + self.gain

    one, two = Player(1.0), Player(3.0)
    moves = OrderedDict(a=one.up, b=two.down, c=two.up)

    def step(x, keys):
        for key in keys:
            x = moves[key](x)
        return x

    step = wrap(step)
    for n in range(7):
        if n == 4:
            moves["a"] = two.up
        yield step(ramp(lib, 3), "ab" if n % 2 else "ca"), one.gain, two.gain


@case
def copies_of_the_state(lib: Any, wrap: Any) -> Seen:
    @dataclass
    class State:
        h: Any
        log: list = field(default_factory=list)
        n: int = 0

    state = State(lib.zeros(3))

    def step(x):
        before = copy.copy(state)
        state.h = state.h + x
        state.n += 1
        return before.h, before.n, state.h

    step = wrap(step)
    for _n in range(6):
        yield step(ramp(lib, 3)), state.n, state.h


@case
def a_deep_copy_of_a_dictionary(lib: Any, wrap: Any) -> Seen:
    best = {"w": None, "loss": 9.0}
    w = leaf(lib, 1.0, 2.0)

    def step(x):
        with lib.no_grad():
            w.mul_(0.5)
        state = {"w": w.detach(), "tags": ["a", 1]}
        best["w"] = copy.deepcopy(state)["w"]
        return (w * x).sum()

    step = wrap(step)
    for _n in range(5):
        yield step(ramp(lib, 2)), best["w"], w


@case
def iterators_that_are_zipped(lib: Any, wrap: Any) -> Seen:
    gains, shifts = [1.0, 2.0, 3.0], (0.1, 0.2, 0.3)

    def step(x):
        total = 0.0
        for k, (g, s) in enumerate(zip(gains, shifts, strict=True)):
            total = total + x * g + s * k
        pairs = list(itertools.pairwise(gains))
        best = max(pairs, key=lambda pair: pair[0] * pair[1])
        return total, best, dict(itertools.islice(Counter(gains).items(), 2))

    step = wrap(step)
    for n in range(5):
        if n == 3:
            gains[0] = 9.0
        yield step(ramp(lib, 3))


@case
def a_state_machine_of_functions(lib: Any, wrap: Any) -> Seen:
    def warm(x):
        s.n += 1
        return (main if s.n >= 2 else warm), x * 0.1

    def main(x):
        s.n += 1
        return (done if s.n >= 5 else main), x * 1.0

    def done(x):
        return done, x * 0.0

    s = types.SimpleNamespace(state=warm, n=0)

    def step(x):
        s.state, y = s.state(x)
        return y

    step = wrap(step)
    for n in range(9):
        if n == 7:
            s.state, s.n = warm, 0
        yield step(ramp(lib, 3)), s.state.__name__, s.n


@case
def a_recursion_over_a_tree(lib: Any, wrap: Any) -> Seen:
    tree = {"value": 1.0, "children": [{"value": 2.0, "children": []}]}

    def visit(node, x, depth=0):
        node["visits"] = node.get("visits", 0) + 1
        return x * node["value"] + sum(visit(c, x, depth + 1) for c in node["children"]) + depth

    step = wrap(lambda x: visit(tree, x))
    for n in range(7):
        if n == 4:
            tree["children"].append({"value": -1.0, "children": []})
        yield step(ramp(lib, 3)), copy.deepcopy(tree)


@case
def deletions_of_all_kinds(lib: Any, wrap: Any) -> Seen:
    s = types.SimpleNamespace(tmp=1.0, d={"a": 1.0}, log=[1.0, 2.0, 3.0])

    def step(x, n):
        held = s.d.pop("a")
        s.d["a"] = held + 1
        s.tmp2 = n
        del s.tmp2
        s.log[:] = [*s.log[1:], s.log[0]]
        return x * held + s.log[0]

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3), n), vars(s).keys(), s.d, s.log


@case
def a_swap_of_buffers(lib: Any, wrap: Any) -> Seen:
    class Double:
        def __init__(self):
            self.front, self.back = lib.zeros(3), lib.ones(3)

        def flip(self):
            self.front, self.back = self.back, self.front

    double = Double()

    def step(x):
        double.back.copy_(double.front + x)
        double.flip()
        return double.front.sum()

    step = wrap(step)
    for n in range(6):
        if n == 4:
            double.flip()
        yield step(ramp(lib, 3)), double.front, double.back


@case
def a_text_of_the_state(lib: Any, wrap: Any) -> Seen:
    s = types.SimpleNamespace(n=0, status="")

    def step(x):
        s.n += 1
        s.status = f"step {s.n}: {x.sum().item():+.2e}"
        return x * 2

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3, start=float(n))), s.status


@case
def texts_in_a_list_of_records(lib: Any, wrap: Any) -> Seen:
    rows = []

    def step(x, n):
        loss = x.square().mean()
        rows.append({"n": n, "loss": f"{loss.item():.3f}", "tag": f"{n:03d}"})
        return {"text": f"loss={loss.item():.2f}", "loss": loss}

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3, start=float(n)), n), rows


@case
def a_text_that_decides(lib: Any, wrap: Any) -> Seen:
    s = types.SimpleNamespace(last="")

    def step(x):
        text = f"{x.sum().item():.1f}"
        same, s.last = text == s.last, text
        return x * 2 if same else -x

    step = wrap(step)
    for n in (0, 0, 1, 1, 2, 0):
        yield step(lib.full((3,), float(n))), s.last


@case
def a_default_dictionary_of_lists(lib: Any, wrap: Any) -> Seen:
    history = defaultdict(list)

    def step(x, split):
        loss = x.square().mean()
        history[f"{split}/loss"].append(loss.item())
        history["n"].append(len(history["n"]))
        return loss

    step = wrap(step)
    for n in range(8):
        yield step(ramp(lib, 3, start=float(n)), "train" if n % 3 else "test"), dict(history)
