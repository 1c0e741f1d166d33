"""NumPy arrays as state, as arguments and as windows onto the memory of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import Seen, attempt, batch, case, layer, leaf, ramp, weights


@case
def two_windows_that_are_only_read(lib: Any, wrap: Any) -> Seen:
    array = np.arange(6, dtype=np.float32)
    a, b = lib.from_numpy(array[:4]), lib.from_numpy(array[2:])
    step = wrap(lambda x: x * a[:3] + b[1:])
    for n in range(6):
        if n in (2, 4):
            array += 1
        yield step(batch(lib, n))


@case
def the_same_memory_in_two_tensors_that_are_only_read(lib: Any, wrap: Any) -> Seen:
    array = np.ones(3, np.float32)
    held = [lib.from_numpy(array), lib.from_numpy(array)]
    step = wrap(lambda x: x * held[0] + held[1])
    for n in range(6):
        if n == 2:
            held[0].mul_(3)
        if n == 4:
            array[0] = -1
        yield step(batch(lib, n))


@case
def windows_of_a_batch_as_arguments(lib: Any, wrap: Any) -> Seen:
    array = np.sin(np.arange(24, dtype=np.float32)).reshape(8, 3)
    model = layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x, following):
        optimizer.zero_grad()
        loss = (model(x) - model(following)).square().mean() + model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        rows = (
            lib.from_numpy(array[n % 3 : n % 3 + 4]),
            lib.from_numpy(array[n % 3 + 1 : n % 3 + 5]),
        )
        yield step(*rows), weights(model)


@case
def a_window_that_is_written_and_one_that_is_read(lib: Any, wrap: Any) -> Seen:
    array = np.arange(8, dtype=np.float32)
    a, b = lib.from_numpy(array[:5]), lib.from_numpy(array[3:])

    def step(x):
        a.add_(x.sum())
        y = b * 2
        b.mul_(0.5)
        return y, a + 0

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n)), array.copy()


@case
def a_target_and_its_array(lib: Any, wrap: Any) -> Seen:
    targets = np.array([0, 1, 1, 0])
    model = layer(lib)
    step = wrap(lambda x: lib.nn.functional.cross_entropy(model(x), lib.from_numpy(targets)))
    for n in range(7):
        if n in (2, 5):
            targets[n - 2] = 1 - targets[n - 2]
        yield step(batch(lib, n))


@case
def statistics_in_numpy_of_an_array_argument(lib: Any, wrap: Any) -> Seen:
    def step(rows):
        rows = (rows - rows.mean(0)) / (rows.std(0) + 1e-6)
        return lib.from_numpy(rows.astype(np.float32)).square().sum()

    step = wrap(step)
    for n in range(6):
        yield step(np.cos(np.arange(12, dtype=np.float64).reshape(4, 3) * (n + 1)))


@case
def an_array_that_counts(lib: Any, wrap: Any) -> Seen:
    counts = np.zeros(3, np.int64)

    def step(x, which):
        counts[which] += 1
        return x * float(counts[which])

    step = wrap(step)
    for n in range(8):
        if n == 5:
            counts[:] = 0
        yield step(batch(lib, n), n % 3), counts.copy()


@case
def a_float_read_from_an_array(lib: Any, wrap: Any) -> Seen:
    options = np.array([1.0, 2.0, 3.0])
    step = wrap(lambda x, k: x * float(options[k]) + options.max() - options.sum().item())
    for n in range(8):
        if n in (3, 6):
            options[n // 3] = -1.5
        yield step(batch(lib, n), n % 3)


@case
def a_schedule_in_an_array_read_by_a_counter(lib: Any, wrap: Any) -> Seen:
    rates, state = np.linspace(1.0, 0.1, 5), {"n": 0}

    def step(x):
        rate = rates[min(state["n"], len(rates) - 1)]
        state["n"] += 1
        return x * float(rate)

    step = wrap(step)
    for n in range(9):
        if n == 7:
            state["n"] = 0
        yield step(batch(lib, n)), state["n"]


@case
def results_as_arrays(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def predict(x):
        with lib.no_grad():
            return model(x).numpy()

    predict = wrap(predict)
    kept: list[Any] = []
    for n in range(6):
        kept.append(predict(batch(lib, n)))
        if n == 3:
            kept[0][:] = 7
        yield [k.copy() for k in kept], kept[-1].dtype == np.float32


@case
def predictions_collected_in_numpy(lib: Any, wrap: Any) -> Seen:
    model, found = layer(lib), np.zeros((8, 2), np.float32)

    def step(x, at):
        with lib.no_grad():
            found[at : at + 2] = model(x).numpy()

    step = wrap(step)
    for n in range(5):
        step(batch(lib, n, 2), 2 * n % 8)
        yield found.copy()


@case
def accuracy_counted_with_numpy(lib: Any, wrap: Any) -> Seen:
    model, totals = layer(lib), {"right": 0, "seen": 0}

    def step(x, y):
        with lib.no_grad():
            right = (model(x).argmax(1) == y).sum().item()
        totals["right"] += right
        totals["seen"] += len(y)
        return totals["right"] / totals["seen"]

    step = wrap(step)
    for n in range(7):
        yield step(batch(lib, n), lib.tensor([0, 1, 0, 1])), dict(totals)


@case
def structured_and_boolean_arrays(lib: Any, wrap: Any) -> Seen:
    records = np.zeros(2, dtype=[("scale", np.float32), ("on", np.bool_)])
    records["scale"], mask = [2.0, 3.0], np.array([True, False, True])

    def step(x):
        for record in records:
            if record["on"]:
                x = x * float(record["scale"])
        return x * lib.from_numpy(mask)

    step = wrap(step)
    for n in range(7):
        if n in (2, 4):
            records["on"][n // 2 - 1] = True
        if n == 5:
            mask[:] = False
        yield step(batch(lib, n))


@case
def scalars_and_arrays_without_dimensions(lib: Any, wrap: Any) -> Seen:
    state = {"s": np.float32(2), "z": np.array(3.0, np.float32)}
    step = wrap(lambda x: x * state["s"] + lib.from_numpy(state["z"]) * state["z"].item())
    for n in range(7):
        if n == 2:
            state["s"] = np.float32(5)
        if n == 4:
            state["z"][...] = 7
        if n == 5:
            state["z"] = np.array(1.0, np.float32)
        yield step(batch(lib, n))


@case
def a_read_only_array(lib: Any, wrap: Any) -> Seen:
    base = np.ones(3, np.float32)
    frozen = base[:]
    frozen.flags.writeable = False
    step = wrap(lambda x: x * lib.tensor(frozen) + float(frozen[0]))
    for n in range(6):
        if n in (2, 4):
            base *= 2
        yield step(batch(lib, n))


@case
def an_array_of_the_gradient(lib: Any, wrap: Any) -> Seen:
    weight = leaf(lib, 1.0, 2.0, 3.0)

    def step(x):
        weight.grad = None
        (x * weight).square().sum().backward()
        return weight.grad.numpy().copy()

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n)), weight.grad


@case
def an_exported_parameter_in_a_larger_step(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    arrays = [p.detach().numpy() for p in model.parameters()]
    optimizer = lib.optim.Adam(model.parameters(), lr=0.05)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(7):
        if n == 3:
            arrays[0][:] = 0.1
        if n == 5:
            arrays[1] += 1
        yield step(batch(lib, n)), [a.copy() for a in arrays]


@case
def numpy_functions_of_tensors(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (np.float32(2) * x, lib.tensor(np.sqrt(x.numpy())).sum()))
    for n in range(5):
        yield attempt(step, batch(lib, n).abs())


@case
def rows_shuffled_in_place(lib: Any, wrap: Any) -> Seen:
    order, table = np.arange(4), ramp(lib, 4, 3)

    def step(x):
        np.random.shuffle(order)
        return x + table[lib.from_numpy(order)]

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n)), order.copy()
