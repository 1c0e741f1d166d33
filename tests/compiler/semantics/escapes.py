"""Where tensors made in the step may go: each must be a real tensor afterwards."""

from __future__ import annotations

import functools
import weakref
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

from .registry import Seen, attempt, batch, case, layer, leaf, mlp, ramp, weights

Pair = namedtuple("Pair", "a b")


@case
def into_a_returned_closure(lib: Any, wrap: Any) -> Seen:
    def step(x):
        y = x * 2
        return lambda z: y + z

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3, start=float(n)))(lib.ones(3))


@case
def into_a_returned_partial(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: functools.partial(lib.add, x * 2))
    for n in range(4):
        yield step(ramp(lib, 3, start=float(n)))(lib.ones(3))


@case
def into_a_stored_callback(lib: Any, wrap: Any) -> Seen:
    later = []

    def step(x):
        y = x.square()
        later.append(lambda: y.sum())
        return x

    step = wrap(step)
    for n in range(4):
        step(ramp(lib, 3, start=float(n)))
        yield [f() for f in later]


@case
def into_a_returned_generator(lib: Any, wrap: Any) -> Seen:
    def step(x):
        y = x * 2
        return (y + k for k in range(2))

    step = wrap(step)
    for n in range(4):
        yield list(step(ramp(lib, 3, start=float(n))))


@case
def into_a_generator_resumed_later(lib: Any, wrap: Any) -> Seen:
    held = []

    def parts(x):
        y = x * 2
        yield y
        yield y + 1

    def step(x):
        source = parts(x)
        first = next(source)
        held.append(source)
        return first

    step = wrap(step)
    for n in range(3):
        yield step(ramp(lib, 3, start=float(n))), next(held.pop())


@case
def into_an_exception(lib: Any, wrap: Any) -> Seen:
    class LossError(Exception):
        def __init__(self, loss):
            super().__init__("bad loss")
            self.loss = loss

    def step(x):
        raise LossError(x.square().sum())

    step = wrap(step)
    for n in range(4):
        try:
            step(ramp(lib, 3, start=float(n)))
        except LossError as error:
            yield error.loss


@case
def into_a_function_attribute(lib: Any, wrap: Any) -> Seen:
    def step(x):
        helper.last = x * 2
        return x

    def helper():
        return None

    step = wrap(step)
    for n in range(4):
        step(ramp(lib, 3, start=float(n)))
        yield helper.last


@case
def into_a_class_attribute(lib: Any, wrap: Any) -> Seen:
    class Store:
        last = None

    def step(x):
        Store.last = x + 1 if Store.last is None else Store.last + x
        return x * 2

    step = wrap(step)
    for n in range(4):
        step(ramp(lib, 3, start=float(n)))
        yield Store.last


@case
def into_slots(lib: Any, wrap: Any) -> Seen:
    class Store:
        __slots__ = ("last",)

    store = Store()

    def step(x):
        store.last = x * 2
        return x

    step = wrap(step)
    for n in range(4):
        step(ramp(lib, 3, start=float(n)))
        yield store.last


@case
def into_a_tuple_in_an_attribute(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(pair=None)

    def step(x):
        s.pair = Pair(x * 2, (x.sum(), s.pair.b[0] if s.pair else None))
        return x

    step = wrap(step)
    for n in range(4):
        step(ramp(lib, 3, start=float(n)))
        yield s.pair


@case
def into_a_set(lib: Any, wrap: Any) -> Seen:
    kept = set()

    def step(x):
        kept.add(x.sum())
        return len(kept)

    step = wrap(step)
    for n in range(3):
        yield step(ramp(lib, 3, start=float(n))), sorted(float(t) for t in kept)


@case
def into_a_dictionary_as_a_key(lib: Any, wrap: Any) -> Seen:
    kept = {}

    def step(x):
        y = x * 2
        kept[y] = y.sum()
        return len(kept)

    step = wrap(step)
    for n in range(3):
        yield step(ramp(lib, 3, start=float(n)))
        yield [k for k in kept]  # noqa: C416


@case
def into_an_argument_object(lib: Any, wrap: Any) -> Seen:
    def step(x, out):
        out.y = x * 2
        out.parts = [x, {"z": out.y + 1}]

    step = wrap(step)
    out = SimpleNamespace()
    for n in range(4):
        step(ramp(lib, 3, start=float(n)), out)
        yield out


@case
def onto_an_argument_tensor(lib: Any, wrap: Any) -> Seen:
    def step(x):
        x.extra = x * 2
        x.count = getattr(x, "count", 0) + 1
        return x.count

    step = wrap(step)
    x = ramp(lib, 3)
    for n in range(4):
        yield step(x), x.extra, x.count
        x.add_(n)


@case
def an_attribute_of_a_parameter_is_read(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    for p in model.parameters():
        p.rate = 0.1

    def step(x):
        model.zero_grad()
        model(x).square().mean().backward()
        with lib.no_grad():
            for p in model.parameters():
                p.sub_(p.grad, alpha=p.rate)

    step = wrap(step)
    for n in range(4):
        model.bias.rate = 0.1 * n
        step(batch(lib, n))
        yield weights(model)


@case
def a_state_dictionary_returned(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def step(x):
        with lib.no_grad():
            model.weight.add_(x)
        return model.state_dict()

    step = wrap(step)
    for _n in range(3):
        found = step(ramp(lib, 2, 3))
        yield dict(found)
        found["bias"].add_(1)
        yield model.bias


@case
def a_state_list_returned(lib: Any, wrap: Any) -> Seen:
    log = []

    def step(x):
        log.append(x.sum())
        return log

    step = wrap(step)
    for n in range(4):
        found = step(ramp(lib, 3, start=float(n)))
        yield found is log, found
        if n == 2:
            found.clear()


@case
def an_argument_list_returned(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda parts: parts)
    for n in range(3):
        parts = [ramp(lib, 3), n]
        found = step(parts)
        found.append("more")
        yield found is parts, parts


@case
def a_copied_model(lib: Any, wrap: Any) -> Seen:
    import copy

    model = layer(lib)
    best = []

    def step(x):
        with lib.no_grad():
            model.weight.mul_(1.5)
        best[:] = [copy.deepcopy(model)]
        return model(x).sum()

    step = wrap(step)
    for n in range(3):
        yield step(batch(lib, n)), best[0].weight, best[0].weight is model.weight


@case
def a_snapshot_of_weights(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    s = SimpleNamespace(best=None, loss=None)

    def step(x):
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        with lib.no_grad():
            for p in model.parameters():
                p.sub_(p.grad, alpha=0.1)
        if s.loss is None or loss < s.loss:
            s.loss = loss.detach()
            s.best = {k: v.clone() for k, v in model.state_dict().items()}

    step = wrap(step)
    for n in range(4):
        step(batch(lib, n))
        yield s.best, s.loss


@case
def a_model_built_in_the_step(lib: Any, wrap: Any) -> Seen:
    def step(x):
        model = lib.nn.Linear(3, 2)
        return model(x), model

    step = wrap(step)
    for n in range(3):
        out, model = step(batch(lib, n))
        yield out, weights(model), model(batch(lib, n)).detach()


@case
def an_optimizer_built_in_the_step(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def step(x, lr):
        optimizer = lib.optim.SGD(model.parameters(), lr=lr)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        return optimizer

    step = wrap(step)
    for n in range(3):
        optimizer = step(batch(lib, n), 0.1 * (n + 1))
        yield weights(model), optimizer.param_groups[0]["lr"]


@case
def a_parameter_made_in_the_step(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def step(x):
        model.weight = lib.nn.Parameter(model.weight.detach() * 0.5)
        return model(x)

    step = wrap(step)
    for n in range(3):
        yield step(batch(lib, n)), model.weight, list(dict(model.named_parameters()))


@case
def a_buffer_registered_in_the_step(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def step(x, name):
        model.register_buffer(name, x.mean(0))
        return model(x)

    step = wrap(step)
    for name in ("a", "b", "a"):
        yield step(batch(lib, len(name)), name), dict(model.named_buffers())


@case
def a_hook_registered_in_the_step(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    log = []

    def step(x):
        w.register_hook(lambda g: log.append(g * x))
        return (w * x).sum()

    step = wrap(step)
    for n in range(3):
        w.grad = None
        step(ramp(lib, 3, start=float(n))).backward()
        yield log, w.grad


@case
def a_weak_reference_to_a_result(lib: Any, wrap: Any) -> Seen:
    refs = []

    def step(x):
        y = x * 2
        refs.append(weakref.ref(y))
        return y

    step = wrap(step)
    for n in range(3):
        y = step(ramp(lib, 3, start=float(n)))
        yield refs[-1]() is y, y
        del y
        yield refs[-1]() is None


@case
def a_graph_kept_over_calls(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0)
    s = SimpleNamespace(total=0.0)

    def step(x):
        s.total = s.total + (w * x).sum()

    step = wrap(step)
    for n in range(3):
        step(ramp(lib, 3, start=float(n)))
    s.total.backward()
    yield w.grad, s.total.detach()


@case
def truncated_backpropagation(lib: Any, wrap: Any) -> Seen:
    cell = layer(lib, 3, 3)
    s = SimpleNamespace(h=lib.zeros(3))

    def step(x):
        cell.zero_grad()
        h = s.h.detach()
        for row in x:
            h = lib.tanh(cell(h) + row)
        h.sum().backward()
        s.h = h

    step = wrap(step)
    for n in range(4):
        step(batch(lib, n, 2))
        yield s.h, weights(cell)


@case
def the_pickled_state(lib: Any, wrap: Any) -> Seen:
    import pickle

    state = lib.zeros(3)

    def step(x):
        state.add_(x)
        return len(pickle.dumps(state)) > 0, pickle.loads(pickle.dumps(state))

    step = wrap(step)
    for n in range(3):
        yield attempt(step, ramp(lib, 3, start=float(n))), state


@case
def an_intermediate_of_the_model(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    kept = {}

    def step(x):
        h = model[1](model[0](x))
        kept["h"] = h
        kept.setdefault("first", h.detach())
        return model[2](h).mean()

    step = wrap(step)
    for n in range(3):
        loss = step(batch(lib, n))
        (kept["h"].sum() + loss).backward()
        yield kept["h"].detach(), kept["first"], weights(model)
