"""What functions carry: attributes, defaults, cells, wrappers; and the compiled function itself."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import weakref
from typing import Any

from .registry import Seen, attempt, batch, case, layer, leaf, ramp, weights


@case
def an_attribute_of_the_step_that_is_counted(lib: Any, wrap: Any) -> Seen:
    def step(x):
        step.calls += 1
        return x * step.calls

    step.calls = 0
    inner = step
    step = wrap(step)
    step.calls = 10
    for n in range(7):
        if n == 4:
            step.calls = 0
        yield step(batch(lib, n)), step.calls, inner is step or inner.calls == 0


@case
def attributes_of_the_step_under_many_names(lib: Any, wrap: Any) -> Seen:
    names = ("name", "lock", "rounds", "paths", "state", "history", "config", "scale", "count")

    def step(x):
        step.history.append(x.shape[0])
        step.count += 1
        return x * (step.name + step.lock + step.rounds + step.paths) + step.config["shift"]

    for value, name in enumerate(names):
        setattr(step, name, float(value))
    step.history, step.config = [], {"shift": 1.0}
    step = wrap(step)
    for n in range(8):
        if n in (2, 4):
            step.lock = 0.5 * n
        if n == 5:
            step.config["shift"] = 7.0
        if n == 6:
            step.config = {"shift": 2.0}
        yield step(batch(lib, n)), step.history, step.count, step.scale


@case
def an_attribute_of_a_helper_that_is_a_tensor(lib: Any, wrap: Any) -> Seen:
    def smooth(x):
        smooth.mean = x.mean() if smooth.mean is None else 0.5 * (smooth.mean + x.mean())
        return smooth.mean

    smooth.mean = None
    step = wrap(lambda x: x - smooth(x))
    for n in range(8):
        if n == 5:
            smooth.mean = lib.tensor(3.0)
        yield step(batch(lib, n)), smooth.mean


@case
def defaults_replaced_as_a_tuple(lib: Any, wrap: Any) -> Seen:
    def helper(x, a=1.0, *, b=2.0):
        return x * a + b

    step = wrap(lambda x: helper(x))
    for n in range(8):
        if n == 2:
            helper.__defaults__ = (3.0,)
        if n == 4:
            helper.__kwdefaults__["b"] = -1.0
        if n == 6:
            helper.__kwdefaults__ = {"b": 9.0}
        yield step(batch(lib, n))


@case
def a_function_made_from_a_code_object(lib: Any, wrap: Any) -> Seen:
    def helper(x):
        return x * scale

    scale = 2.0
    cell = types.CellType(5.0)
    other = types.FunctionType(helper.__code__, {}, "other", (), (cell,))
    step = wrap(lambda x: helper(x) + other(x))
    for n in range(6):
        if n == 2:
            cell.cell_contents = 7.0
        if n == 4:
            scale = 0.5
        yield step(batch(lib, n))


@case
def a_stack_of_decorators_with_state(lib: Any, wrap: Any) -> Seen:
    log: list[str] = []

    def counted(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            inner.count += 1
            log.append(function.__name__)
            return function(*args, **kwargs) * (1 if inner.count % 2 else 2)

        inner.count = 0
        return inner

    @counted
    @counted
    def helper(x):
        return x + 1

    step = wrap(lambda x: helper(x))
    for n in range(7):
        if n == 4:
            helper.__wrapped__.count = 10
        yield step(batch(lib, n)), helper.count, helper.__wrapped__.count, list(log)


@case
def a_decorator_that_is_a_class(lib: Any, wrap: Any) -> Seen:
    class Counted:
        step_size = 1

        def __init__(self, function):
            functools.update_wrapper(self, function)
            self.count, self.scale = 0, 1.0

        def __call__(self, *args):
            self.count += self.step_size
            return self.__wrapped__(*args) * self.scale + self.count

    @Counted
    def helper(x):
        return x + 1

    step, whole = wrap(lambda x: helper(x)), wrap(Counted(lambda x: x - 1))
    for n in range(8):
        if n == 3:
            helper.scale = 3.0
        if n == 5:
            Counted.step_size = 10
        if n == 6:
            helper.__wrapped__ = lambda x: x * 2
        yield step(batch(lib, n)), whole(batch(lib, n)), helper.count


@case
def a_compiled_method_that_counts_on_itself(lib: Any, wrap: Any) -> Seen:
    class Trainer:
        scale = 2.0

        def step(self, x):
            Trainer.step.seen = getattr(Trainer.step, "seen", 0) + 1
            return x * self.scale * Trainer.step.seen

    Trainer.step = wrap(Trainer.step)
    one = Trainer()
    for n in range(7):
        if n == 4:
            Trainer.step.seen = 0
        if n == 5:
            del Trainer.step.seen
        yield one.step(batch(lib, n)), Trainer.step.seen


@case
def an_attribute_of_a_compiled_model(lib: Any, wrap: Any) -> Seen:
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.scale, self.calls = layer(lib), 1.0, 0

        def forward(self, x):
            self.calls += 1
            return self.layer(x) * self.scale

    net = Net()
    model = wrap(net)
    for n in range(9):
        if n == 2:
            model.scale = 3.0
        if n == 4:
            model.layer = layer(lib, 3, 3)
        if n == 5:
            model.calls = 100
        if n == 7:
            model.layer.weight = lib.nn.Parameter(ramp(lib, 3, 3))
        yield model(batch(lib, n)), net.scale, net.calls, weights(net)


@case
def nested_partials_edited(lib: Any, wrap: Any) -> Seen:
    def helper(x, a, b, c=0.0):
        return x * a + b - c

    inner = functools.partial(helper, b=1.0)
    outer = functools.partial(inner, a=2.0)
    step = wrap(lambda x: outer(x))
    for n in range(8):
        if n == 2:
            outer.keywords["a"] = 3.0
        if n == 4:
            outer.keywords["c"] = 5.0
        if n == 6:
            outer.__setstate__((helper, (), {"a": 1.0, "b": 0.0}, None))
        yield step(batch(lib, n))


@case
def a_cached_function_of_the_shape(lib: Any, wrap: Any) -> Seen:
    state = {"scale": 2.0}

    @functools.lru_cache(maxsize=2)
    def mask(size):
        return lib.ones(size, size).tril() * state["scale"]

    step = wrap(lambda x: mask(x.shape[1]) @ x.T)
    for n in range(9):
        if n == 3:
            state["scale"] = 3.0  # not seen: remembered
        if n == 5:
            mask.cache_clear()
        if n == 7:
            mask(7), mask(8)
        yield step(batch(lib, n, 4, 3 + (n == 6)))


@case
def a_registry_filled_by_a_decorator(lib: Any, wrap: Any) -> Seen:
    table: dict[str, Any] = {}

    def register(name):
        return lambda function: table.setdefault(name, function)

    register("a")(lambda x: x * 2)
    step = wrap(lambda x, name: table.get(name, lambda t: -t)(x))
    for n in range(8):
        if n == 3:
            register("b")(lambda x: x + 3)
        if n == 6:
            table["a"] = table["b"]
        yield step(batch(lib, n), "ab"[n % 2])


@case
def overloads_by_type_registered_later(lib: Any, wrap: Any) -> Seen:
    @functools.singledispatch
    def scale(value, x):
        return x

    @scale.register
    def _(value: int, x):
        return x * value

    step = wrap(lambda x, value: scale(value, x))
    for n in range(8):
        if n == 4:
            scale.register(str, lambda value, x: x - len(value))
        yield step(batch(lib, n), [2, "abc", 1.5, True][n % 4])


@case
def weak_references_that_die(lib: Any, wrap: Any) -> Seen:
    class Scale:
        value = 2.0

    strong = [Scale(), Scale()]
    references = [weakref.ref(s) for s in strong]
    table = weakref.WeakValueDictionary({"a": strong[0], "b": strong[1]})

    def step(x):
        for reference in references:
            thing = reference()
            x = x - 1 if thing is None else x * thing.value
        return x + len(table)

    step = wrap(step)
    for n in range(7):
        if n == 2:
            strong[1].value = 5.0
        if n == 4:
            strong.pop()
        if n == 6:
            strong.clear()
        yield step(batch(lib, n))


@case
def a_finalizer_that_writes(lib: Any, wrap: Any) -> Seen:
    log: list[int] = []

    class Temporary:
        def __init__(self, value):
            self.value = value

        def __del__(self):
            log.append(self.value)

    def step(x):
        thing = Temporary(len(log))
        return x * (thing.value + 1)

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n)), list(log)


@case
def the_name_of_the_caller(lib: Any, wrap: Any) -> Seen:
    def who():
        return sys._getframe(1).f_code.co_name

    def first(x):
        return x * len(who())

    def second_helper(x):
        return x + len(who())

    table = [first, second_helper]
    step = wrap(lambda x, n: table[n](x))
    for n in range(6):
        if n == 4:
            table.reverse()
        yield step(batch(lib, n), n % 2)


@case
def a_signature_that_is_inspected(lib: Any, wrap: Any) -> Seen:
    holder = {"f": lambda x, scale=2.0: x * scale}

    def step(x):
        parameters = inspect.signature(holder["f"]).parameters
        return holder["f"](x, **({"shift": 1.0} if "shift" in parameters else {}))

    step = wrap(step)
    for n in range(7):
        if n == 2:
            holder["f"] = lambda x, shift=0.0: x + shift
        if n == 5:
            holder["f"] = lambda x: -x
        yield step(batch(lib, n))


@case
def one_method_of_two_instances(lib: Any, wrap: Any) -> Seen:
    class Trainer:
        def __init__(self, scale):
            self.scale, self.seen = scale, []

        def step(self, x):
            self.seen.append(x.shape[0])
            return x * self.scale

    a, b = Trainer(1.0), Trainer(2.0)
    Trainer.step = wrap(Trainer.step)
    for n in range(8):
        if n == 4:
            a.scale, b.scale = b.scale, a.scale
        found = (a if n % 3 else b).step(batch(lib, n))
        yield found, a.seen, b.seen


@case
def a_compiled_function_in_a_structure(lib: Any, wrap: Any) -> Seen:
    weight = leaf(lib, 1.0, 2.0, 3.0)
    table = {"f": wrap(lambda x: (x * weight).sum()), "g": wrap(lambda x: x.exp().sum())}
    outer = wrap(lambda x, name: table[name](x) * 2)
    for n in range(8):
        if n == 3:
            table["f"] = wrap(lambda x: (x - weight).sum())
        if n == 5:
            with lib.no_grad():
                weight.mul_(2)
        found = outer(batch(lib, n), "fg"[n % 2])
        if found.requires_grad:
            found.backward()
        yield found, weight.grad


@case
def recursion_by_the_depth_that_changes(lib: Any, wrap: Any) -> Seen:
    options = {"depth": 2}
    scales = [leaf(lib, 1.0, 0.5, 2.0), leaf(lib, 2.0, 2.0, 2.0)]

    def nest(x, depth):
        return x if not depth else nest(x * scales[depth % 2], depth - 1)

    def step(x):
        loss = nest(x, options["depth"]).sum()
        loss.backward()
        return loss.detach()

    step = wrap(step)
    for n in range(8):
        options["depth"] = [2, 3, 1][n // 3]
        if n == 5:
            scales.reverse()
        yield step(batch(lib, n)), [s.grad for s in scales]


@case
def an_exception_with_state_in_a_context(lib: Any, wrap: Any) -> Seen:
    class Guarded:
        depth = 0

        def __enter__(self):
            Guarded.depth += 1
            return self

        def __exit__(self, kind, error, trace):
            Guarded.depth -= 1
            return kind is KeyError

    options = {"name": "scale", "scale": 2.0}

    def step(x):
        with Guarded():
            x = x * options[options["name"]]
        return x + Guarded.depth

    step = wrap(step)
    for n in range(8):
        options["name"] = "gone" if n in (2, 5, 6) else "scale"
        if n == 4:
            Guarded.depth = 3
        yield step(batch(lib, n)), Guarded.depth


@case
def a_module_as_the_step_with_changing_methods(lib: Any, wrap: Any) -> Seen:
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.mode = layer(lib), "train"

        def forward(self, x):
            return getattr(self, f"forward_{self.mode}")(x)

        def forward_train(self, x):
            return self.layer(x)

        def forward_export(self, x):
            return self.layer(x).softmax(-1)

    net = Net()
    step = wrap(net)
    for n in range(8):
        if n == 2:
            net.mode = "export"
        if n == 4:
            Net.forward_export = lambda self, x: self.layer(x).argmax(-1)
        if n == 6:
            net.forward_train = lambda x: x
            net.mode = "train"
        yield step(batch(lib, n))


@case
def errors_of_calls_with_wrong_arguments(lib: Any, wrap: Any) -> Seen:
    def step(x, scale, *, shift=0.0):
        return x * scale + shift

    step = wrap(step)
    for n in range(5):
        x = batch(lib, n)
        yield attempt(step, x), attempt(step, x, 1.0, 2.0), attempt(step, x, 2.0, shift=n)
        yield attempt(step, x, scale=2.0, other=1), attempt(step, "text", 2, shift="more")


@case
def a_step_that_replaces_its_helper(lib: Any, wrap: Any) -> Seen:
    holder = {}

    def first(x):
        holder["f"] = second
        return x * 2

    def second(x):
        holder["f"] = first
        return x + 1

    holder["f"] = first
    step = wrap(lambda x: holder["f"](x))
    for n in range(8):
        yield step(batch(lib, n)), holder["f"] is first
        if n == 4:
            holder["f"] = first


@case
def weights_in_the_closure_of_a_returned_function(lib: Any, wrap: Any) -> Seen:
    def make(scale):
        weight = ramp(lib, 3, scale=scale)
        return lambda x: x * weight, weight

    function, weight = make(0.1)
    holder = {"f": function}
    step = wrap(lambda x: holder["f"](x))
    for n in range(7):
        if n == 2:
            weight.fill_(3.0)
        if n == 4:
            holder["f"], other = make(1.0)
        if n == 6:
            other.zero_()
        yield step(batch(lib, n))


@case
def a_model_with_a_table_of_steps(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)
    stages = [("f", lambda s: model(s)), ("l", lambda s: s.square().mean())]

    def step(x):
        optimizer.zero_grad()
        for name, stage in stages:
            x = stage(x)
            if name == "l":
                x.backward()
                optimizer.step()
        return x.detach()

    step = wrap(step)
    for n in range(7):
        if n == 3:
            stages.insert(1, ("t", lib.tanh))
        if n == 5:
            stages[2] = ("l", lambda s: s.abs().sum())
        yield step(batch(lib, n)), weights(model)
