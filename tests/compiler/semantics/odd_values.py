"""Values of rare types, or rare values of common types, as arguments and as state."""

from __future__ import annotations

import cmath
import datetime
import enum
import pathlib
import re
import uuid
from array import array
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from .registry import Seen, attempt, batch, case, layer, leaf, ramp


@case
def not_a_number_as_an_argument(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, f: x * f if f == f else x)
    for n, f in enumerate([1.0, float("nan"), float("nan"), float("inf"), -float("inf"), 2.0]):
        yield step(batch(lib, n), f)


@case
def not_a_number_as_state(lib: Any, wrap: Any) -> Seen:
    state = {"best": float("nan"), "calls": 0}

    def step(x):
        state["calls"] += 1
        if state["best"] != state["best"]:
            return x * 0
        return x + state["best"]

    step = wrap(step)
    for n in range(8):
        if n == 3:
            state["best"] = 1.5
        if n == 5:
            state["best"] = float("nan")
        yield step(batch(lib, n)), dict(state)


@case
def zeros_of_both_signs_in_a_division(lib: Any, wrap: Any) -> Seen:
    options = {"zero": 0.0}
    step = wrap(lambda x, z: (x / (x * 0 + z), x * options["zero"], lib.full((2,), z) / 1))
    for n, z in enumerate([0.0, -0.0, 0, -0.0, 0.0, 1.0]):
        options["zero"] = -options["zero"]
        found = step(batch(lib, n).abs() + 1, z)
        yield [1.0 / lib.where(t == 0, t, lib.ones_like(t)) for t in found]


@case
def an_int_a_float_and_a_bool_that_are_equal(lib: Any, wrap: Any) -> Seen:
    state = {"v": 1}
    step = wrap(lambda x, v: (x * v, lib.tensor([v]) + 0, lib.tensor(state["v"])))
    whole = lib.arange(3)
    for v in [1, 1.0, True, 1, np.float32(1), np.int64(1), True, 1.0]:
        state["v"] = v if not isinstance(v, np.generic) else v.item()
        yield step(whole, v)


@case
def complex_numbers(lib: Any, wrap: Any) -> Seen:
    state = {"c": 1 + 2j}
    step = wrap(lambda x, c: (x * c, x + state["c"], abs(c) * x))
    for n in range(6):
        if n == 3:
            state["c"] = complex(0.5, -0.0)
        yield step(batch(lib, n), cmath.rect(1.0, 0.3 * n))


@case
def fractions_and_decimals(lib: Any, wrap: Any) -> Seen:
    state = {"f": Fraction(1, 3), "d": Decimal("0.1")}

    def step(x):
        state["f"] += Fraction(1, 6)
        state["d"] *= 2
        return x * float(state["f"]) + float(state["d"])

    step = wrap(step)
    for n in range(6):
        yield step(batch(lib, n)), state["f"] == Fraction(n + 3, 6), str(state["d"])


@case
def dates_and_durations(lib: Any, wrap: Any) -> Seen:
    start = datetime.datetime(2020, 1, 1)
    state = {"now": start, "step": datetime.timedelta(hours=6)}

    def step(x):
        state["now"] += state["step"]
        return x * (state["now"] - start).total_seconds()

    step = wrap(step)
    for n in range(6):
        if n == 3:
            state["step"] = datetime.timedelta(days=1)
        yield step(batch(lib, n)), state["now"].isoformat()


@case
def paths_and_patterns(lib: Any, wrap: Any) -> Seen:
    state = {"path": pathlib.PurePosixPath("/a/b"), "pattern": re.compile("a+")}

    def step(x, text):
        state["path"] = state["path"] / "c"
        found = state["pattern"].match(text)
        return x * len(state["path"].parts) + (found.end() if found else -1)

    step = wrap(step)
    for n in range(7):
        if n == 3:
            state["pattern"] = re.compile("b")
        if n == 5:
            state["path"] = pathlib.PurePosixPath("/")
        yield step(batch(lib, n), "aab" if n % 2 else "b"), str(state["path"])


@case
def slices_and_ellipses(lib: Any, wrap: Any) -> Seen:
    where = {"rows": slice(0, 2)}
    step = wrap(lambda x, key: (x[where["rows"]], x[key]))
    keys = [slice(1, None), Ellipsis, slice(1, None), (0, slice(None, 2)), None, 1, -1]
    for n, key in enumerate(keys):
        if n == 3:
            where["rows"] = slice(None, None, 2)
        yield step(batch(lib, n), key)


@case
def ranges_and_bytes(lib: Any, wrap: Any) -> Seen:
    state = {"order": range(3), "bytes": b"\x01\x02", "mutable": bytearray(b"\x01")}

    def step(x):
        for i in state["order"]:
            x = x + i
        return x * state["bytes"][0] + state["mutable"][0]

    step = wrap(step)
    for n in range(7):
        if n == 2:
            state["order"] = range(0, 6, 2)
        if n == 4:
            state["bytes"] = b"\x05"
        if n == 5:
            state["mutable"][0] = 200
        yield step(batch(lib, n))


@case
def flags_and_members_with_attributes(lib: Any, wrap: Any) -> Seen:
    class Mode(enum.Flag):
        PLAIN = 0
        SQUARE = enum.auto()
        SHIFT = enum.auto()

    class Layer(enum.Enum):
        A = (2.0, "mul")
        B = (3.0, "add")

        def __init__(self, value, kind):
            self.number, self.kind = value, kind

    def step(x, mode, which):
        if Mode.SQUARE in mode:
            x = x * x
        if mode & Mode.SHIFT:
            x = x + 1
        return x * which.number if which.kind == "mul" else x + which.number

    step = wrap(step)
    modes = [Mode.PLAIN, Mode.SQUARE, Mode.SQUARE | Mode.SHIFT, Mode.SHIFT, ~Mode.SHIFT]
    for n in range(8):
        if n == 6:
            Layer.A.number = 7.0
        yield step(batch(lib, n), modes[n % 5], Layer.A if n % 3 else Layer.B)


@case
def texts_and_numbers_of_own_classes(lib: Any, wrap: Any) -> Seen:
    class Name(str):
        scale = 2.0

    class Rate(float):
        unit = 1.0

    class Count(int):
        def __mul__(self, other):
            return other * 10

        __rmul__ = __mul__

    step = wrap(lambda x, name, rate, count: x * name.scale + rate * rate.unit + count * x)
    for n in range(7):
        name = Name("a")
        name.scale = float(n)
        if n == 4:
            Rate.unit = 5.0
        yield step(batch(lib, n), name, Rate(n % 2), Count(n % 3))


@case
def optional_arguments_that_come_and_go(lib: Any, wrap: Any) -> Seen:
    def step(x, mask=None, bias=None, *, scale=None):
        out = x if mask is None else x * mask
        out = out if bias is None else out + bias
        return out if scale is None else out * scale

    step = wrap(step)
    ones = ramp(lib, 4, 3)
    calls = [{}, {"mask": ones}, {"bias": 1.0}, {"mask": ones, "scale": 2}, {"bias": None}, {}]
    for n, options in enumerate([*calls, {"bias": ones}, {"bias": 2}, {"scale": None}]):
        yield step(batch(lib, n), **options)


@case
def element_types_as_arguments_and_state(lib: Any, wrap: Any) -> Seen:
    state = {"dtype": lib.float32}
    step = wrap(lambda x, dtype: (x.to(dtype), lib.zeros(2, dtype=state["dtype"]) + 1))
    for n, dtype in enumerate([lib.float64, lib.float32, lib.int64, lib.float64, lib.bool]):
        if n == 2:
            state["dtype"] = lib.float64
        if n == 4:
            state["dtype"] = lib.int32
        yield step(batch(lib, n), dtype)


@case
def identifiers_that_are_compared(lib: Any, wrap: Any) -> Seen:
    names = [uuid.UUID(int=n) for n in range(3)]
    state = {"current": names[0]}

    def step(x, name):
        return x + 1 if name == state["current"] else x - names.index(name)

    step = wrap(step)
    for n in range(8):
        if n in (3, 6):
            state["current"] = names[n // 3]
        yield step(batch(lib, n), uuid.UUID(int=n % 3))


@case
def arrays_of_the_standard_library_as_arguments(lib: Any, wrap: Any) -> Seen:
    kept = array("d", [1.0, 2.0, 3.0])
    step = wrap(lambda x, values: x * values[0] + sum(kept))
    for n in range(7):
        if n in (2, 4):
            kept[1] = 5.0 * n
        if n == 5:
            kept.append(1.0)
        yield step(batch(lib, n), array("f", [n % 3, 1]))


@case
def a_tuple_that_holds_a_changing_list(lib: Any, wrap: Any) -> Seen:
    pair = ([1.0, 2.0], {"a": [3.0]})
    step = wrap(lambda x, t: x * pair[0][1] + pair[1]["a"][0] + t[0][0])
    given = ([1.0], 2.0)
    for n in range(8):
        if n == 2:
            pair[0][1] = 5.0
        if n == 4:
            pair[1]["a"][0] = -1.0
        if n == 6:
            given[0][0] = 9.0
        yield step(batch(lib, n), given)


@case
def a_record_of_optional_tensors(lib: Any, wrap: Any) -> Seen:
    class State(NamedTuple):
        h: Any = None
        steps: int = 0
        tag: str = "new"

    def step(x, state):
        h = x if state.h is None else 0.5 * state.h + x
        return State(h, state.steps + 1, "old" if state.steps else state.tag)

    step = wrap(step)
    state = State()
    for n in range(7):
        if n == 5:
            state = State(steps=3)
        state = step(batch(lib, n), state)
        yield state


@case
def numbers_too_large_for_a_float(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x, n: (x * (n % 7), x + (n & 3), str(n)))
    for n in range(6):
        yield step(batch(lib, n), 10**40 + n), attempt(step, batch(lib, n), 2**63 - n)


@case
def a_hash_that_is_constant_and_an_equality_that_lies(lib: Any, wrap: Any) -> Seen:
    class Same:
        def __init__(self, scale):
            self.scale = scale

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 1

    state = {"one": Same(2.0)}
    step = wrap(lambda x, same: x * same.scale + state["one"].scale)
    for n in range(7):
        if n in (2, 5):
            state["one"] = Same(float(n))
        yield step(batch(lib, n), Same(n * 1.0))


@case
def an_array_whose_equality_is_an_array(lib: Any, wrap: Any) -> Seen:
    state = {"mean": np.zeros(3, np.float32), "pair": (np.float32(1), np.ones(1, np.float32))}
    step = wrap(lambda x: x - lib.from_numpy(state["mean"]) * float(state["pair"][1][0]))
    for n in range(7):
        if n in (2, 4):
            state["mean"] = np.full(3, n, np.float32)
        if n == 5:
            state["pair"][1][0] = 3
        yield step(batch(lib, n))


@case
def a_parameter_among_keyword_arguments_of_a_class(lib: Any, wrap: Any) -> Seen:
    class Step:
        def __init__(self, **options):
            self.__dict__.update(options)

        def __call__(self, x, **more):
            return x * (more.get("scale") or self.scale) + self.bias

    thing = Step(scale=leaf(lib, 1.0, 2.0, 3.0), bias=0.5, model=layer(lib))
    step = wrap(thing)
    for n in range(7):
        if n == 2:
            thing.scale = leaf(lib, 4.0, 5.0, 6.0)
        if n == 4:
            thing.bias = lib.ones(3)
        yield step(batch(lib, n), **({"scale": 2.0} if n == 5 else {}))
