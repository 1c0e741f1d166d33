"""Shapes and dtypes that change between calls; scalars and empty tensors."""

from __future__ import annotations

from typing import Any

from .registry import Seen, attempt, batch, case, layer, mlp, ramp, weights


@case
def batch_sizes(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for rows in (4, 2, 4, 1, 3):
        yield step(batch(lib, 1, rows)), weights(model)


@case
def a_last_smaller_batch(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    data = batch(lib, 1, 7)
    step = wrap(lambda x: model(x).sum(0))
    for n in (0, 3, 6, 0):
        yield step(data[n : n + 3])


@case
def an_empty_batch(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: model(x).sum())
    for rows in (2, 0, 2, 0):
        yield step(batch(lib, 1, rows))


@case
def empty_tensors(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x * 2, x.sum(), x.numel()))
    for shape in ((0,), (2, 0), (3,), (0,)):
        yield step(lib.zeros(shape))


@case
def scalars_and_vectors(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * 2 + x.sum())
    yield step(lib.tensor(1.5)), step(lib.ones(2)), step(lib.tensor(2.5)), step(lib.ones(1))


@case
def ranks(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x.sum(tuple(range(1, x.ndim))) if x.ndim > 1 else x)
    for shape in ((3,), (3, 2), (3, 2, 2), (3,)):
        yield step(ramp(lib, *shape))


@case
def dtypes(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x * 2, x + 1.5, x.sum()))
    for dtype in (lib.float32, lib.float64, lib.int64, lib.bool, lib.int32, lib.float32):
        yield step(lib.ones(3, dtype=dtype))


@case
def a_dtype_decides(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x.mean() if x.is_floating_point() else x.float().mean() * 10)
    for n in range(4):
        yield step(lib.arange(3) if n % 2 else ramp(lib, 3))


@case
def broadcasting_changes(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, y: x * y + y)
    x = ramp(lib, 2, 3)
    for shape in ((3,), (2, 1), (1,), (2, 3), ()):
        yield step(x, ramp(lib, *shape))


@case
def a_shape_read_in_python(lib: Any, wrap: Any) -> Seen:
    def step(x):
        rows, columns = x.shape
        return x.reshape(rows * columns) / rows if rows > 2 else x * columns

    step = wrap(step)
    for rows in (2, 3, 4, 2):
        yield step(batch(lib, 0, rows))


@case
def a_shape_returned(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (tuple(x.shape), x.size(0), len(x), x.numel(), x.dim()))
    for rows in (2, 3, 2):
        yield step(batch(lib, 0, rows))


@case
def a_shape_kept_by_the_step(lib: Any, wrap: Any) -> Seen:
    seen = []

    def step(x):
        seen.append(tuple(x.shape))
        return x * len(set(seen))

    step = wrap(step)
    for rows in (2, 3, 2, 4):
        yield step(lib.ones(rows)), seen


@case
def padding_by_the_shape(lib: Any, wrap: Any) -> Seen:
    def step(x):
        short = (-x.shape[0]) % 4
        if short:
            x = lib.nn.functional.pad(x, (0, short))
        return x.reshape(-1, 4).sum(0)

    step = wrap(step)
    for n in (4, 5, 8, 3):
        yield step(lib.ones(n))


@case
def a_causal_mask_by_length(lib: Any, wrap: Any) -> Seen:
    def step(x):
        size = x.shape[0]
        mask = lib.triu(lib.ones(size, size, dtype=lib.bool), 1)
        return lib.softmax((x @ x.t()).masked_fill(mask, -1e9), -1) @ x

    step = wrap(step)
    for rows in (2, 3, 2, 4):
        yield step(batch(lib, 0, rows))


@case
def a_resized_state(lib: Any, wrap: Any) -> Seen:
    state = {"h": lib.zeros(2, 3)}

    def step(x):
        if state["h"].shape != x.shape:
            state["h"] = lib.zeros_like(x)
        state["h"] = state["h"] + x
        return state["h"].sum()

    step = wrap(step)
    for rows in (2, 2, 3, 3, 2):
        yield step(batch(lib, 0, rows)), state["h"]


@case
def images_of_different_sizes(lib: Any, wrap: Any) -> Seen:
    conv = lib.nn.Conv2d(1, 2, 3)
    step = wrap(lambda x: conv(x).mean((2, 3)))
    for size in (4, 5, 4, 6):
        yield step(ramp(lib, 1, 1, size, size, scale=0.01))


@case
def sequences_of_different_lengths(lib: Any, wrap: Any) -> Seen:
    gru = lib.nn.GRU(3, 4)
    step = wrap(lambda x: gru(x)[1].sum(0))
    for rows in (2, 4, 2, 1):
        yield step(batch(lib, 0, rows))


@case
def a_list_of_ragged_rows(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda rows: lib.cat([r * len(r) for r in rows]))
    for n in range(4):
        yield step([ramp(lib, k + 1) for k in range(n + 1)])


@case
def concatenated_until_too_long(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: lib.cat([x, x[-1:] + 1])[-4:])
    x = lib.zeros(1)
    for _ in range(6):
        x = step(x)
        yield x


@case
def wrong_then_right(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(model)
    for columns in (4, 3, 5, 3):
        yield attempt(step, batch(lib, 0, 2, columns))


@case
def float64_parameters_with_float32_inputs(lib: Any, wrap: Any) -> Seen:
    w = lib.ones(3, dtype=lib.float64, requires_grad=True)
    step = wrap(lambda x: (w * x).sum())
    for n in range(4):
        w.grad = None
        y = step(ramp(lib, 3) if n % 2 else ramp(lib, 3).double())
        y.backward()
        yield y, w.grad


@case
def complex_and_real(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x * x, x.abs() if x.is_complex() else x))
    for n in range(4):
        yield step(lib.complex(ramp(lib, 2), ramp(lib, 2)) if n % 2 else ramp(lib, 2))


@case
def the_same_size_in_another_shape(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x.sum(0))
    for shape in ((2, 6), (3, 4), (12,), (2, 6), (1, 12)):
        yield step(ramp(lib, *shape))


@case
def many_batch_sizes(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: model(x).sum())
    for rows in (1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 5, 9):
        yield step(batch(lib, rows, rows))
