"""Lists, dictionaries, sets and deques that the step reads, grows, shrinks and rebinds."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

from .registry import Seen, batch, case, layer, ramp


@case
def losses_appended(lib: Any, wrap: Any) -> Seen:
    losses = []

    def step(x):
        loss = x.square().sum()
        losses.append(loss)
        return loss * 2

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3, start=float(n)))
        yield losses


@case
def detached_losses_in_a_history(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    history = {"loss": [], "count": 0}

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        history["loss"].append(loss.detach())
        history["count"] += 1

    step = wrap(step)
    for n in range(5):
        step(batch(lib, n))
        yield history
    history["loss"].clear()
    step(batch(lib, 9))
    yield history


@case
def numbers_appended(lib: Any, wrap: Any) -> Seen:
    seen = []

    def step(x, n):
        seen.append(n * 2)
        return x + len(seen)

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3), n), seen


@case
def a_list_read_as_it_grows(lib: Any, wrap: Any) -> Seen:
    parts = []
    step = wrap(lambda x: x + sum(parts) if parts else x)
    for n in range(5):
        yield step(ramp(lib, 3))
        parts.append(ramp(lib, 3, start=float(n)))


@case
def a_list_popped_by_the_step(lib: Any, wrap: Any) -> Seen:
    queue = [ramp(lib, 3, start=float(n)) for n in range(6)]
    step = wrap(lambda x: x * queue.pop(0))
    for _ in range(5):
        yield step(lib.ones(3)), len(queue)


@case
def a_list_of_numbers_popped(lib: Any, wrap: Any) -> Seen:
    queue = [5.0, 4.0, 3.0, 2.0, 1.0]
    step = wrap(lambda x: x * queue.pop())
    for _ in range(5):
        yield step(ramp(lib, 3)), queue


@case
def a_deque_of_tensors(lib: Any, wrap: Any) -> Seen:
    window = deque(maxlen=3)

    def step(x):
        window.append(x * 2)
        return lib.stack(list(window)).mean(0)

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3, start=float(n))), list(window)


@case
def a_deque_of_numbers(lib: Any, wrap: Any) -> Seen:
    window = deque([1.0, 2.0, 3.0])

    def step(x):
        window.rotate(1)
        return x * window[0]

    step = wrap(step)
    for n in range(5):
        if n == 3:
            window.append(9.0)
        yield step(ramp(lib, 3)), list(window)


@case
def a_dictionary_of_averages(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    average = {name: p.detach().clone() for name, p in model.named_parameters()}

    def step(x):
        model(x).sum().backward()
        with lib.no_grad():
            for name, p in model.named_parameters():
                p -= 0.1 * p.grad
                average[name] = 0.5 * average[name] + 0.5 * p.detach()

    step = wrap(step)
    for n in range(5):
        step(batch(lib, n))
        yield average


@case
def a_key_added_at_the_second_call(lib: Any, wrap: Any) -> Seen:
    options = {}
    step = wrap(lambda x: x * options.get("gain", 1.0))
    for n in range(5):
        if n:
            options["gain"] = float(n)
        yield step(ramp(lib, 3))


@case
def membership_decides(lib: Any, wrap: Any) -> Seen:
    frozen = set()
    step = wrap(lambda x: x * 0 if "head" in frozen else x * 2)
    for n in range(5):
        (frozen.add if n % 2 else frozen.discard)("head")
        yield step(ramp(lib, 3))


@case
def items_of_a_dictionary_in_order(lib: Any, wrap: Any) -> Seen:
    parts = {"a": 1.0, "b": 2.0}

    def step(x):
        for value in parts.values():
            x = x * 2 + value
        return x, list(parts)

    step = wrap(step)
    for n in range(5):
        parts["a"] = parts.pop("a") + n
        yield step(ramp(lib, 3))


@case
def setdefault_as_a_memo(lib: Any, wrap: Any) -> Seen:
    memo = {}

    def step(x, n):
        return x + memo.setdefault(n, lib.full((3,), float(n)))

    step = wrap(step)
    for n in (1, 2, 1, 2, 3):
        yield step(ramp(lib, 3), n)
        yield memo
    memo[1] = lib.zeros(3)
    yield step(ramp(lib, 3), 1)


@case
def a_memo_table_by_shape(lib: Any, wrap: Any) -> Seen:
    memo = {}

    def positions(size):
        if size not in memo:
            memo[size] = lib.arange(size, dtype=lib.float32) / size
        return memo[size]

    step = wrap(lambda x: x + positions(x.shape[0]))
    for n in (3, 4, 3, 4, 3):
        yield step(lib.ones(n)), sorted(memo)
    memo[3] = lib.ones(3)
    yield step(lib.ones(3)), memo


@case
def a_default_dictionary(lib: Any, wrap: Any) -> Seen:
    sums = defaultdict(float)

    def step(x, key):
        sums[key] += 1.5
        return x * sums[key]

    step = wrap(step)
    for key in "abaca":
        yield step(ramp(lib, 3), key), dict(sums)


@case
def a_counter_of_branches(lib: Any, wrap: Any) -> Seen:
    counts = Counter()

    def step(x, flag):
        counts["on" if flag else "off"] += 1
        return x if flag else -x

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3), n % 2 == 0), dict(counts)


@case
def an_ordered_dictionary_moved(lib: Any, wrap: Any) -> Seen:
    order = OrderedDict(a=1.0, b=2.0, c=3.0)

    def step(x):
        order.move_to_end(next(iter(order)))
        return x * next(iter(order.values()))

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3)), list(order)


@case
def a_slice_assigned(lib: Any, wrap: Any) -> Seen:
    rates = [1.0, 2.0, 3.0]

    def step(x):
        rates[:2] = [r + 1 for r in rates[1:]]
        return x * rates[0]

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3)), rates


@case
def a_tensor_stored_at_an_index(lib: Any, wrap: Any) -> Seen:
    slots = [None] * 3

    def step(x, n):
        slots[n % 3] = x * n
        return x

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3), n), slots


@case
def a_list_extended_and_sorted(lib: Any, wrap: Any) -> Seen:
    values = [3.0, 1.0]

    def step(x, n):
        values.extend([n, -n])
        values.sort()
        return x + values[0]

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3), float(n)), values


@case
def a_list_emptied_by_the_caller(lib: Any, wrap: Any) -> Seen:
    buffer = []

    def step(x):
        buffer.append(x)
        if len(buffer) == 3:
            out = lib.stack(buffer).sum(0)
            buffer.clear()
            return out
        return x

    step = wrap(step)
    for n in range(7):
        yield step(ramp(lib, 3, start=float(n))), len(buffer)


@case
def a_list_given_as_argument_is_filled(lib: Any, wrap: Any) -> Seen:
    def step(x, out):
        out.append(x * 2)
        return len(out)

    step = wrap(step)
    out = []
    for n in range(4):
        yield step(ramp(lib, 3, start=float(n)), out), out


@case
def a_dictionary_given_as_argument_is_filled(lib: Any, wrap: Any) -> Seen:
    def step(x, out):
        out["sum"] = out.get("sum", 0) + x.sum()
        out["calls"] = out.get("calls", 0) + 1

    step = wrap(step)
    out = {}
    for n in range(4):
        step(ramp(lib, 3, start=float(n)), out)
        yield out


@case
def a_dictionary_merged(lib: Any, wrap: Any) -> Seen:
    metrics = {}

    def step(x):
        metrics.update(mean=x.mean(), count=metrics.get("count", 0) + 1)
        metrics.update({"max": x.max()})

    step = wrap(step)
    for n in range(4):
        step(ramp(lib, 3, start=float(n)))
        yield metrics


@case
def a_key_deleted_by_the_step(lib: Any, wrap: Any) -> Seen:
    pending = {n: float(n) for n in range(6)}

    def step(x, n):
        gain = pending[n]
        del pending[n]
        return x * gain

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3), n), pending


@case
def a_replay_buffer(lib: Any, wrap: Any) -> Seen:
    buffer = []

    def step(x):
        buffer.append((x, x.sum()))
        old, total = buffer[0]
        if len(buffer) > 2:
            buffer.pop(0)
        return old * total

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3, start=float(n))), buffer


@case
def a_custom_container(lib: Any, wrap: Any) -> Seen:
    class Meter(list):
        def mean(self):
            return sum(self) / len(self)

    meter = Meter()

    def step(x, n):
        meter.append(float(n))
        return x * meter.mean()

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3), n), list(meter)


@case
def a_tuple_rebuilt_in_a_box(lib: Any, wrap: Any) -> Seen:
    box = [(lib.zeros(3), 0)]

    def step(x):
        h, n = box[0]
        box[0] = (lib.tanh(h + x), n + 1)
        return box[0][0].sum()

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3, start=0.1 * n)), box


@case
def a_set_of_seen_shapes(lib: Any, wrap: Any) -> Seen:
    seen = set()

    def step(x):
        new = tuple(x.shape) not in seen
        seen.add(tuple(x.shape))
        return x * (10 if new else 1)

    step = wrap(step)
    for n in (3, 3, 4, 3, 4):
        yield step(lib.ones(n)), seen
