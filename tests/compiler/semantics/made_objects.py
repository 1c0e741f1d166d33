"""Objects, closures and shared containers that the step makes, returns and stores."""

from __future__ import annotations

import functools
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from types import SimpleNamespace
from typing import Any

from .registry import Seen, attempt, case, ramp


@case
def a_node_and_its_parent(lib: Any, wrap: Any) -> Seen:
    class Node:
        def __init__(self, value, parent=None):
            self.value, self.parent, self.children = value, parent, []
            if parent is not None:
                parent.children.append(self)

    def step(x):
        root = Node(x * 2)
        Node(x.sum(), root)
        Node(root.value + 1, root)
        return root

    step = wrap(step)
    kept = []
    for n in range(5):
        root = step(ramp(lib, 3) * n)
        kept.append(root)
        yield (
            root.value,
            [c.value for c in root.children],
            [c.parent is root for c in root.children],
        )
        root.children.clear()
    yield len({id(root) for root in kept})


@case
def one_list_in_two_results(lib: Any, wrap: Any) -> Seen:
    def step(x):
        parts = [x * 2]
        return {"a": parts, "b": parts, "c": (parts, x)}

    step = wrap(step)
    for n in range(5):
        found = step(ramp(lib, 3) * n)
        found["a"].append(n)
        yield found, found["a"] is found["b"], found["c"][0] is found["a"]


@case
def two_closures_over_one_variable(lib: Any, wrap: Any) -> Seen:
    def step(x):
        total = x.sum()

        def add(y):
            nonlocal total
            total = total + y

        return add, lambda: total

    step = wrap(step)
    for n in range(5):
        add, get = step(ramp(lib, 3) * n)
        add(1.0)
        add(n)
        other_add, other_get = step(ramp(lib, 3))
        other_add(5.0)
        yield get(), other_get(), add is other_add


@case
def a_closure_over_a_variable_of_the_step_itself(lib: Any, wrap: Any) -> Seen:
    count = 0

    def step(x):
        nonlocal count
        count += 1
        y = x * count
        return lambda: (y, count)

    step = wrap(step)
    held = []
    for n in range(6):
        held.append(step(ramp(lib, 3)))
        if n == 3:
            count = 10
        yield [get() for get in held]


@case
def a_closure_with_defaults_and_attributes(lib: Any, wrap: Any) -> Seen:
    def step(x, gain):
        mean = x.mean()

        def scaled(y, by=mean, *, plus=gain):
            """Scaled."""
            return y * by + plus

        scaled.source = x * 2
        return scaled

    step = wrap(step)
    for n in range(5):
        found = step(ramp(lib, 3) + n, 0.5 * n)
        yield found(ramp(lib, 2)), found.source, found.__name__, found.__doc__


@case
def an_object_with_slots_and_an_own_setter(lib: Any, wrap: Any) -> Seen:
    class Point:
        __slots__ = ("_x", "n")

        def __init__(self, x, n):
            self.x, self.n = x, n

        @property
        def x(self):
            return self._x

        @x.setter
        def x(self, value):
            self._x = value * 2

        def __eq__(self, other):
            return True

        __hash__ = None

    step = wrap(lambda x, n: [Point(x, n), Point(x + 1, n + 1)])
    for n in range(5):
        a, b = step(ramp(lib, 3), n)
        yield a.x, b.x, a.n, b.n, a is b


@case
def an_object_that_enters_itself_into_a_register(lib: Any, wrap: Any) -> Seen:
    class Tracked:
        made = []  # noqa: RUF012

        def __init__(self, value):
            self.value = value
            Tracked.made.append(self)

    step = wrap(lambda x: Tracked(x * 2))
    for n in range(6):
        found = step(ramp(lib, 3) * n)
        yield found.value, len(Tracked.made), Tracked.made[-1] is found
        if n == 3:
            Tracked.made = []


@case
def an_object_that_counts_its_end(lib: Any, wrap: Any) -> Seen:
    ended = Counter()

    class Scope:
        def __init__(self, value):
            self.value = value

        def __del__(self):
            ended["n"] += 1

    step = wrap(lambda x: Scope(x * 2))
    for n in range(5):
        yield step(ramp(lib, 3) * n).value
        yield dict(ended)


@case
def containers_of_every_kind_made_anew(lib: Any, wrap: Any) -> Seen:
    def step(x):
        shared = [x.sum()]
        table = defaultdict(list, a=shared)
        order = OrderedDict(b=shared, a=x)
        recent = deque([x, shared], maxlen=3)
        return table, order, recent, Counter(a=2, b=1), {"x", "y"}, frozenset({1}), ()

    step = wrap(step)
    for n in range(5):
        table, order, recent, counts, names, fixed, empty = step(ramp(lib, 3) * n)
        table["new"].append(1)
        recent.extend([1, 2])
        counts["b"] += 5
        yield dict(table), list(order.items()), list(recent), counts.most_common(1), names
        yield order["b"] is table["a"], sorted(fixed), empty, type(table).__name__


@case
def a_subclass_of_a_dictionary(lib: Any, wrap: Any) -> Seen:
    class Output(OrderedDict):
        def __getattr__(self, name):
            try:
                return self[name]
            except KeyError:
                raise AttributeError(name) from None

    step = wrap(lambda x: Output(loss=x.sum(), logits=x * 2))
    for n in range(5):
        found = step(ramp(lib, 3) * n)
        found["n"] = n
        yield found.loss, found.logits, list(found), attempt(lambda: found.missing)  # noqa: B023


@case
def a_state_list_in_a_new_dictionary(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(log=[], best=None)

    def step(x):
        s.log.append(x.sum())
        return {"log": s.log, "x": x * 2}

    step = wrap(step)
    for n in range(7):
        if n == 4:
            s.log = [lib.ones(())]
        found = step(ramp(lib, 3) * n)
        yield found, found["log"] is s.log


@case
def a_replaced_list_is_returned(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(recent=[ramp(lib, 2)])

    def step(x):
        old, s.recent = s.recent, [x * 2]
        return old

    step = wrap(step)
    for n in range(5):
        before = s.recent
        found = step(ramp(lib, 2) * n)
        yield found, found is before, s.recent


@case
def an_argument_in_a_new_container(lib: Any, wrap: Any) -> Seen:
    def step(batch, options):
        return {"batch": batch, "loss": batch["x"].sum() * options.gain, "options": options}

    step = wrap(step)
    for n in range(5):
        batch, options = {"x": ramp(lib, 3) * n, "ids": [n]}, SimpleNamespace(gain=0.5 * n)
        found = step(batch, options)
        found["batch"]["more"] = n
        yield found["loss"], found["batch"] is batch, found["options"] is options, batch


@case
def the_same_argument_twice(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda a, b: (a, b, a is b))
    for n in range(6):
        first = [ramp(lib, 2) * n]
        second = first if n % 3 == 2 else [ramp(lib, 2)]
        a, b, same = step(first, second)
        yield a is first, b is second, same


@case
def a_partial_of_a_method(lib: Any, wrap: Any) -> Seen:
    class Scale:
        gain = 2.0

        def __call__(self, y, by):
            return y * by * self.gain

        apply = __call__

    scale = Scale()

    def step(x):
        return functools.partial(scale.apply, by=x.sum()), scale.apply

    step = wrap(step)
    for n in range(5):
        scale.gain = 1.0 + n // 2
        call, method = step(ramp(lib, 3) + n)
        yield call(ramp(lib, 2)), method(ramp(lib, 2), 2.0), call.func.__self__ is scale


@case
def a_record_of_a_subclass(lib: Any, wrap: Any) -> Seen:
    class Metrics(namedtuple("Metrics", "loss parts")):
        @property
        def total(self):
            return self.loss + sum(self.parts)

    def step(x):
        parts = [x.mean(), x.max()]
        return Metrics(x.sum(), parts), parts

    step = wrap(step)
    for n in range(5):
        found, parts = step(ramp(lib, 3) + n)
        yield found.total, type(found).__name__, found.parts is parts


@case
def an_exception_after_an_object_was_made(lib: Any, wrap: Any) -> Seen:
    class Record:
        def __init__(self, value):
            self.value = value

    kept = []

    def step(x, n):
        kept.append(Record(x * 2))
        if n % 3 == 2:
            raise ValueError("user: no")
        return kept[-1]

    step = wrap(step)
    for n in range(7):
        found = attempt(step, ramp(lib, 3) * n, n)
        yield found.value if isinstance(found, Record) else found
        yield [record.value for record in kept]


@case
def a_replaced_list_of_numbers_is_returned(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(rates=[0.5, 1.0], last=None)

    def step(x):
        old, s.rates = s.rates, [rate * 0.5 for rate in s.rates]
        return x * old[0], old

    step = wrap(step)
    for n in range(6):
        before = s.rates
        found, old = step(ramp(lib, 2) * n)
        old.append(n)
        yield found, old is before, s.rates
