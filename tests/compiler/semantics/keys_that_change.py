"""Steps that make and delete entries, attributes and variables, move keys, and give places values
of another kind than they held."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from types import SimpleNamespace
from typing import Any

from .registry import Seen, attempt, batch, case, layer, ramp, weights


@case
def an_entry_taken_out_and_put_back(lib: Any, wrap: Any) -> Seen:
    table = {"a": 1.0, "b": 2.0, "c": 3.0}

    def step(x):
        gain = table.pop("a")
        table["a"] = gain
        return x * gain + next(iter(table.values()))

    step = wrap(step)
    for n in range(8):
        yield step(batch(lib, n)), list(table.items())


@case
def the_middle_of_a_dictionary_comes_and_goes(lib: Any, wrap: Any) -> Seen:
    table = {"a": 1.0, "b": 2.0, "c": 3.0}

    def step(x, n):
        if n:
            table.pop("b", None)
        else:
            table["b"] = 5.0
        return x * sum(table.values()) + len(table)

    step = wrap(step)
    for n in range(12):
        yield step(batch(lib, n), n % 2), list(table.items())


@case
def the_least_recently_used_of_three(lib: Any, wrap: Any) -> Seen:
    cache: OrderedDict[str, Any] = OrderedDict()

    def step(x, key):
        if key in cache:
            cache.move_to_end(key)
        else:
            cache[key] = 2.0 if key == "a" else 3.0
            if len(cache) > 2:
                cache.popitem(last=False)
        return x * cache[key]

    step = wrap(step)
    for n in range(14):
        yield step(batch(lib, n), "abc"[n % 3]), list(cache.items())


@case
def results_kept_for_two_calls(lib: Any, wrap: Any) -> Seen:
    kept: dict[str, Any] = {}

    def step(x, n):
        if "last" in kept:
            found = kept.pop("last")
            return x + found
        kept["last"] = x * 2
        return x

    step = wrap(step)
    for n in range(10):
        yield step(batch(lib, n), n), dict(kept)


@case
def two_entries_made_in_another_order(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace()

    def step(x):
        s.second, s.first = x * 2, x + 1
        return s.first.sum()

    step = wrap(step)
    for n in range(8):
        yield step(batch(lib, n)), list(vars(s)), s.second
        if n % 2:
            del s.first, s.second


@case
def a_hidden_state_that_is_reset_inside(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(h=None)

    def step(x, last):
        s.h = x if s.h is None else s.h * 0.5 + x
        out = s.h.sum()
        if last:
            s.h = None
        return out

    step = wrap(step)
    for n in range(14):
        yield step(batch(lib, n), n % 4 == 3), s.h


@case
def a_state_whose_shape_alternates(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(h=ramp(lib, 3))

    def step(x):
        s.h = s.h.sum(0) * 0.5 if s.h.dim() == 2 else x + s.h
        return s.h * 2

    step = wrap(step)
    for n in range(12):
        yield step(batch(lib, n)), s.h


@case
def a_tensor_then_a_list_then_none(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(kept=None)

    def step(x):
        if s.kept is None:
            s.kept = x * 2
        elif isinstance(s.kept, list):
            s.kept = None
        else:
            s.kept = [s.kept, x]
        return x + 1

    step = wrap(step)
    for n in range(14):
        yield step(batch(lib, n)), s.kept


@case
def an_attribute_of_a_module_is_deleted(lib: Any, wrap: Any) -> Seen:
    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = layer(lib)

        def forward(self, x):
            if hasattr(self, "cached"):
                y = self.cached + self.inner(x)
                del self.cached
                return y
            self.cached = self.inner(x).detach()
            return self.cached * 2

    net = Net()
    step = wrap(net)
    for n in range(12):
        yield step(batch(lib, n)).detach(), hasattr(net, "cached")
        if n == 8:
            net.inner.weight.data.mul_(2.0)


@case
def a_variable_that_is_deleted(lib: Any, wrap: Any) -> Seen:
    held: Any = 2.0

    def step(x, n):
        nonlocal held
        if n:
            out = x * held
            del held
            return out
        held = 3.0
        return x

    step = wrap(step)
    for n in range(10):
        yield attempt(step, batch(lib, n), n % 3)


@case
def keys_that_are_equal_but_others(lib: Any, wrap: Any) -> Seen:
    table: dict[Any, float] = {}

    def step(x, n):
        table.clear()
        table[(1, 1.0, True)[n]] = 2.0
        return x * table[1]

    step = wrap(step)
    for n in range(12):
        yield step(batch(lib, n), n % 3), repr(table)


@case
def missing_entries_of_a_default_dictionary(lib: Any, wrap: Any) -> Seen:
    table: defaultdict[str, float] = defaultdict(float)

    def step(x, name):
        gain = table[name] + 1.0
        return x * gain

    step = wrap(step)
    for n in range(9):
        yield step(batch(lib, n), "ab"[n % 2]), dict(table)
        if n % 3 == 2:
            table.clear()


@case
def a_counter_that_forgets(lib: Any, wrap: Any) -> Seen:
    seen: Counter[str] = Counter()

    def step(x, name):
        seen[name] += 1
        if seen[name] == 2:
            del seen[name]
        return x * (1 + seen[name])

    step = wrap(step)
    for n in range(14):
        yield step(batch(lib, n), "ab"[n % 2]), dict(seen)


@case
def the_caller_changes_the_keys_too(lib: Any, wrap: Any) -> Seen:
    table = {"a": 1.0}

    def step(x):
        if "b" in table:
            del table["b"]
        else:
            table["b"] = 2.0
        return x * sum(table.values())

    step = wrap(step)
    for n in range(14):
        if n == 6:
            table["c"] = 4.0
        if n == 10:
            table["a"] = 0.5
        if n == 12:
            del table["c"]
        yield step(batch(lib, n)), list(table.items())


@case
def an_attribute_of_a_class_comes_and_goes(lib: Any, wrap: Any) -> Seen:
    class Config:
        rate = 1.0

    def step(x):
        if hasattr(Config, "extra"):
            out = x * Config.extra
            del Config.extra
        else:
            Config.extra = 2.0
            out = x * Config.rate
        return out

    step = wrap(step)
    for n in range(12):
        if n == 7:
            Config.rate = 3.0
        if n == 9 and hasattr(Config, "extra"):
            Config.extra = 5.0
        yield step(batch(lib, n)), hasattr(Config, "extra")


@case
def an_exception_between_two_deletions(lib: Any, wrap: Any) -> Seen:
    table = {"a": 1.0, "b": 2.0, "c": 3.0}

    def step(x, n):
        out = x * table.pop("b", 4.0)
        if n == 5:
            raise ValueError("five")
        table["b"] = 2.0
        return out

    step = wrap(step)
    for n in range(10):
        yield attempt(step, batch(lib, n), n), list(table)


@case
def a_parameter_kept_at_times(lib: Any, wrap: Any) -> Seen:
    model, kept = layer(lib), {}
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x, keep):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        if keep:
            kept["best"] = [p.detach().clone() for p in model.parameters()]
        else:
            kept.pop("best", None)
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(12):
        yield step(batch(lib, n), n % 3 == 0), dict(kept), weights(model)


@case
def what_is_deleted_is_kept_by_the_caller(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace()
    outside: list[Any] = []

    def step(x):
        if hasattr(s, "h"):
            out = s.h + x
            del s.h
        else:
            s.h = x * 2
            out = x
        return out

    step = wrap(step)
    for n in range(12):
        yield step(batch(lib, n)), len(outside)
        if hasattr(s, "h"):
            outside.append(s.h)
    yield outside


# -- containers among the arguments -------------------------------------------------------------


@case
def entries_added_to_a_batch(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def step(batch):
        batch["out"] = model(batch["x"])
        batch["loss"] = batch["out"].square().mean()
        return batch

    step = wrap(step)
    for n in range(6):
        given = {"x": batch(lib, n), "tag": "a"}
        found = step(given)
        found["loss"].backward()
        yield found is given, list(given), given["loss"].detach(), weights(model)


@case
def entries_taken_out_of_a_batch(lib: Any, wrap: Any) -> Seen:
    def step(batch):
        mask = batch.pop("mask", None)
        x = batch["x"] if mask is None else batch["x"] * mask
        del batch["x"]
        batch["y"] = x
        return x.sum()

    step = wrap(step)
    for n in range(8):
        given = {"x": batch(lib, n), "tag": 1, "mask": batch(lib, n + 1)}
        if n % 3 == 2:
            del given["mask"]
        yield step(given), list(given.items())


@case
def a_list_of_outputs_is_filled(lib: Any, wrap: Any) -> Seen:
    def step(x, out):
        out.append(x * 2)
        out.extend([x + 1, "end"])
        return out[0].sum()

    step = wrap(step)
    shared: list[Any] = []
    for n in range(9):
        out: list[Any] = [] if n % 3 else shared
        yield step(batch(lib, n), out), out
        if n == 6:
            shared.clear()


@case
def a_list_of_inputs_is_emptied(lib: Any, wrap: Any) -> Seen:
    def step(parts):
        total = parts.pop()
        while parts:
            total = total + parts.pop(0)
        return total

    step = wrap(step)
    for n in range(8):
        parts = [batch(lib, n + k) for k in range(2 + n % 2)]
        first = parts[0]
        yield step(parts), parts, first


@case
def one_list_given_twice_grows(lib: Any, wrap: Any) -> Seen:
    def step(x, a, b):
        a.append(x)
        return x * len(b)

    step = wrap(step)
    for n in range(8):
        one: list[Any] = []
        yield step(batch(lib, n), one, one if n % 2 else []), len(one)


@case
def nested_lists_grow(lib: Any, wrap: Any) -> Seen:
    def step(x, state):
        state["log"].append(x.sum())
        state["rows"][0].append(1.0)
        state["count"] = len(state["log"])
        return x

    step = wrap(step)
    for n in range(6):
        state = {"log": [batch(lib, n).sum()], "rows": [[]]}
        rows = state["rows"][0]
        yield step(batch(lib, n), state), state, rows is state["rows"][0]


@case
def a_list_argument_the_function_keeps(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(kept=None)

    def step(x, out):
        out.append(x * 2)
        s.kept = out
        return x

    step = wrap(step)
    for n in range(6):
        out: list[Any] = []
        yield step(batch(lib, n), out), out, s.kept is out


@case
def a_gradient_of_what_was_put_into_the_batch(lib: Any, wrap: Any) -> Seen:
    def step(batch):
        batch["scaled"] = batch["x"] * 3

    step = wrap(step)
    for n in range(5):
        given = {"x": batch(lib, n).requires_grad_()}
        step(given)
        given["scaled"].sum().backward()
        yield given["x"].grad, given["scaled"].requires_grad


@case
def an_entry_moved_to_the_end_of_an_argument(lib: Any, wrap: Any) -> Seen:
    def step(d):
        d["x"] = d.pop("x") * 2
        return next(iter(d))

    step = wrap(step)
    for n in range(5):
        given = {"x": batch(lib, n), "y": 1}
        yield step(given), list(given.items())


@case
def a_slot_and_the_last_of_its_log(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(h=lib.zeros(3), log=[])

    def step(x):
        s.h = s.h * 0.5 + x
        if s.log:
            s.h = s.h + s.log[-1]
        s.log.append(s.h)
        return s.h.sum()

    step = wrap(step)
    for n in range(10):
        yield step(ramp(lib, 3, start=float(n))), s.log[-1] is s.h, list(s.log)
        if n == 5:
            s.log[-1].add_(1.0)
        if n == 7:
            s.h = s.log[0]


@case
def a_slot_written_in_place_and_its_log(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(h=lib.zeros(3), log=[])

    def step(x, n):
        s.h.add_(x)
        if n % 3 == 2:
            s.h = s.h * 0.5
        s.log.append(s.h)
        return s.h.sum()

    step = wrap(step)
    for n in range(12):
        yield step(ramp(lib, 3, start=float(n)), n), list(s.log), len({id(t) for t in s.log})


@case
def what_is_put_into_an_argument_was_elsewhere(lib: Any, wrap: Any) -> Seen:
    """It is found where it was before the call."""
    shared = {"n": 1}

    def step(given):
        given["meta"] = shared
        given["x"] = given["x"] * shared["n"]
        given["moved"] = given.pop("log")
        given["moved"].append(given["x"].sum())
        return given

    step = wrap(step)
    for n in range(8):
        if n == 5:
            shared["n"] = 3
        given = {"x": batch(lib, n), "log": [1.0]} | ({"meta": {"n": 7}} if n % 2 else {})
        log = given["log"]
        found = step(given)
        yield found is given, list(given), given["x"], given["meta"] is shared
        yield given["moved"] is log, log
