"""Numbers as arguments and attributes: in conditions, loops, shapes and arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from .registry import Seen, batch, case, layer, ramp


@case
def a_float_in_a_condition(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, beta: x * beta if beta > 0.5 else x - beta)
    for n in range(6):
        yield step(ramp(lib, 3), 0.2 * n)


@case
def a_float_in_min_and_max(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, rate: x * min(rate, 0.3) + max(rate, 0.7))
    for n in range(5):
        yield step(ramp(lib, 3), 0.2 * n)


@case
def a_float_as_a_bool(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, gain: x * gain if gain else x + 100)
    for gain in (1.0, 0.0, 2.0, 0.0, -1.0):
        yield step(ramp(lib, 3), gain)


@case
def a_float_in_python_arithmetic(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, t: x * math.exp(-t) + t**2 + round(t, 1))
    for n in range(5):
        yield step(ramp(lib, 3), 0.17 * n)


@case
def a_float_returned(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, t: (x * t, t, t * 2, [t + 1], {"t": -t}))
    for n in range(5):
        yield step(ramp(lib, 3), 0.5 * n)


@case
def a_float_formatted(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, t: (x * t, f"{t:.3f}", str(t)))
    for n in range(4):
        yield step(ramp(lib, 3), 0.5 * n)


@case
def a_float_that_sets_a_loop(lib: Any, wrap: Any) -> Seen:
    def step(x, t):
        while t > 1:
            x, t = x * 2, t / 2
        return x * t

    step = wrap(step)
    for t in (1.0, 5.0, 3.0, 0.5, 9.0):
        yield step(ramp(lib, 3), t)


@case
def a_float_that_becomes_an_int(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, t: x[: int(t)] * math.floor(t))
    for t in (1.5, 2.7, 3.1, 1.5):
        yield step(ramp(lib, 3), t)


@case
def infinities_and_nan(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, t: lib.clamp(x, max=t) if not math.isnan(t) else x)
    for t in (0.0, math.inf, math.nan, -math.inf, 0.1):
        yield step(ramp(lib, 4), t)


@case
def signed_zero(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, t: (math.copysign(1.0, t), x * math.copysign(1.0, t)))
    for t in (0.0, -0.0, 0.0, 1.0, -0.0):
        yield step(ramp(lib, 3), t)


@case
def an_int_as_an_index(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, k: x[k])
    for k in (0, 1, 2, -1, 0):
        yield step(ramp(lib, 3), k)


@case
def an_int_as_a_shape(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, k: lib.zeros(k) + x)
    for k in (1, 2, 3, 2):
        yield step(lib.ones(1), k)


@case
def an_int_as_a_loop_count(lib: Any, wrap: Any) -> Seen:
    def step(x, k):
        for _ in range(k):
            x = lib.tanh(x) + 1
        return x

    step = wrap(step)
    for k in (1, 3, 0, 2, 3):
        yield step(ramp(lib, 3), k)


@case
def an_int_as_a_factor(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, k: x * k + k % 2 + k // 3)
    for k in range(6):
        yield step(ramp(lib, 3), k)


@case
def an_int_as_an_axis(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, axis: x.sum(axis))
    for axis in (0, 1, -1, 0):
        yield step(ramp(lib, 2, 3), axis)


@case
def an_int_as_an_exponent(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, k: x**k)
    for k in (0, 1, 2, 3, -1):
        yield step(ramp(lib, 3, start=1.0), k)


@case
def an_int_against_an_int_tensor(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, k: (x * k, x + k, x // (k + 1), x == k))
    for k in range(4):
        yield step(lib.arange(4), k)


@case
def a_float_against_an_int_tensor(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, t: (x * t, x > t))
    for n in range(4):
        yield step(lib.arange(4), 0.75 * n)


@case
def int_and_float_of_the_same_value(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, v: x * v)
    for v in (1, 1.0, True, 2, 2.0):
        yield step(lib.arange(3), v)


@case
def a_bool_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, flag: x * 2 if flag else x.tanh())
    for n in range(5):
        yield step(ramp(lib, 3), n % 2 == 0)


@case
def a_bool_as_a_number(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, flag: x * flag + flag)
    for n in range(4):
        yield step(ramp(lib, 3), n % 2 == 0)


@case
def a_numpy_float(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, t: x * t if t > 0.3 else x - 1)
    for n in range(5):
        yield step(ramp(lib, 3), np.float64(0.2 * n))


@case
def a_numpy_float32(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, t: x * float(t))
    for n in range(4):
        yield step(ramp(lib, 3), np.float32(0.2 * n))


@case
def a_numpy_int(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, k: x[int(k)] * int(k))
    for n in range(4):
        yield step(ramp(lib, 4), np.int64(n))


@case
def a_numpy_bool(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, flag: x * 2 if flag else -x)
    for n in range(4):
        yield step(ramp(lib, 3), np.bool_(n % 2))


@case
def a_complex_number(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, z: x * z.real + z.imag)
    for n in range(4):
        yield step(ramp(lib, 3), complex(n, -n))


@case
def a_string_argument(lib: Any, wrap: Any) -> Seen:
    def step(x, reduction):
        return getattr(x, reduction)() if reduction != "none" else x

    step = wrap(step)
    for name in ("sum", "mean", "none", "sum", "max"):
        yield step(ramp(lib, 3), name)


@case
def none_or_a_number(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, scale=None: x if scale is None else x * scale)
    for scale in (None, 2.0, None, 3.0, 0.0):
        yield step(ramp(lib, 3), scale), step(ramp(lib, 3))


@case
def a_fraction(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, f: x * float(f) + f.numerator)
    for n in range(4):
        yield step(ramp(lib, 3), Fraction(n, 3))


@case
def a_dtype_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, dtype: x.to(dtype) * 2)
    for dtype in (lib.float32, lib.float64, lib.int64, lib.float32):
        yield step(ramp(lib, 3, scale=1.0), dtype)


@case
def a_slice_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, s: x[s])
    for s in (slice(0, 2), slice(1, None), slice(None, None, 2), slice(0, 2)):
        yield step(ramp(lib, 5), s)


@case
def a_temperature_schedule(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)

    def step(x, progress):
        temperature = 1.0 if progress < 0.5 else 2.0 - progress
        weight = min(1.0, progress * 4)
        return (model(x) / temperature).logsumexp(-1).mean() * weight

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n), n / 5)


@case
def many_different_numbers(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, a, b: x * a + b)
    for n in range(14):
        yield step(ramp(lib, 3), 0.1 * n, n)


@case
def numbers_as_keywords(lib: Any, wrap: Any) -> Seen:
    def step(x, *, alpha=1.0, power=1, flip=False):
        y = x.abs() ** power * alpha
        return -y if flip else y

    step = wrap(step)
    x = ramp(lib, 3, start=1.0)
    yield step(x), step(x, alpha=0.5), step(x, power=2), step(x, flip=True, alpha=3.0)
    yield step(x, alpha=0.25, power=3), step(x), step(x, power=2, alpha=0.5)


@case
def an_integer_tensor_of_one_element(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, k: x.narrow(0, k, 2) + k)
    for k in range(4):
        yield step(ramp(lib, 6), k)


@case
def numbers_in_a_condition_on_both_sides(lib: Any, wrap: Any) -> Seen:
    s = {"limit": 0.3}
    step = wrap(lambda x, t: x if 0.1 < t <= s["limit"] else x * 0)
    for n in range(6):
        s["limit"] = 0.3 + 0.1 * (n % 2)
        yield step(ramp(lib, 3), 0.1 * n)
