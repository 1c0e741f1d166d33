"""State read by functions that are written in C or by libraries, out of sight of bytecode."""

from __future__ import annotations

import array
import bisect
import copy
import ctypes
import dataclasses
import functools
import heapq
import itertools
import json
import operator
import pickle
import queue
import re
import string
import struct
import sys
from collections import ChainMap, UserDict
from types import SimpleNamespace
from typing import Any

from .registry import Seen, case, ramp


@dataclasses.dataclass
class Options:
    gain: float = 1.0
    shift: float = 0.0


@dataclasses.dataclass(frozen=True)
class Frozen:
    kind: int = 0


@case
def an_attribute_through_str_format(lib: Any, wrap: Any) -> Seen:
    o = Options()
    step = wrap(lambda x: x * float("{0.gain}".format(o)))  # noqa: UP030, UP032
    for n in range(5):
        o.gain = 1.0 + n
        yield step(ramp(lib, 3))


@case
def an_entry_through_percent_formatting(lib: Any, wrap: Any) -> Seen:
    d = {"gain": 1}
    step = wrap(lambda x: x * int("%(gain)d" % d))  # noqa: UP031
    for n in range(5):
        d["gain"] = n
        yield step(ramp(lib, 3))


@case
def asdict_of_a_dataclass(lib: Any, wrap: Any) -> Seen:
    o = Options()
    step = wrap(lambda x: sum(x * v for v in dataclasses.asdict(o).values()))
    for n in range(5):
        o.gain, o.shift = 1.0 + n, -n
        yield step(ramp(lib, 3))


@case
def equality_of_dataclasses(lib: Any, wrap: Any) -> Seen:
    a, b = Options(), Options()
    step = wrap(lambda x: x * 2 if a == b else x - 1)
    for n in range(5):
        b.shift = float(n % 2)
        yield step(ramp(lib, 3))


@case
def a_frozen_dataclass_as_a_key(lib: Any, wrap: Any) -> Seen:
    table, o = {Frozen(0): 1.0, Frozen(1): 2.0}, Frozen(0)
    step = wrap(lambda x: x * table[o])
    for n in range(5):
        o = Frozen(n % 2)
        table[o] += 1
        yield step(ramp(lib, 3))


@case
def a_shallow_copy(lib: Any, wrap: Any) -> Seen:
    o = Options()
    step = wrap(lambda x: x * copy.copy(o).gain)
    for n in range(4):
        o.gain = 1.0 + n
        yield step(ramp(lib, 3))


@case
def a_deep_copy(lib: Any, wrap: Any) -> Seen:
    d = {"a": [Options()]}
    step = wrap(lambda x: x * copy.deepcopy(d)["a"][0].gain)
    for n in range(4):
        d["a"][0].gain = 1.0 + n
        yield step(ramp(lib, 3))


@case
def json_and_pickle(lib: Any, wrap: Any) -> Seen:
    d = {"gain": 1.0}

    def step(x):
        return x * json.loads(json.dumps(d))["gain"] + pickle.loads(pickle.dumps(d))["gain"]

    step = wrap(step)
    for n in range(4):
        d["gain"] = 2.0 * n
        yield step(ramp(lib, 3))


@case
def an_item_getter(lib: Any, wrap: Any) -> Seen:
    d = {"gain": 1.0}
    get = operator.itemgetter("gain")
    step = wrap(lambda x: x * get(d))
    for n in range(4):
        d["gain"] = 2.0 * n
        yield step(ramp(lib, 3))


@case
def a_method_caller(lib: Any, wrap: Any) -> Seen:
    class Gain:
        value = 1.0

        def current(self):
            return self.value

    g = Gain()
    call = operator.methodcaller("current")
    step = wrap(lambda x: x * call(g))
    for n in range(4):
        g.value = 1.0 + n
        yield step(ramp(lib, 3))


@case
def the_largest_by_a_dictionary(lib: Any, wrap: Any) -> Seen:
    votes = {"a": 1, "b": 0}
    acts = {"a": lib.tanh, "b": lib.exp}
    step = wrap(lambda x: acts[max(votes, key=votes.get)](x))
    for n in range(5):
        votes["ab"[n % 2]] += 2
        yield step(ramp(lib, 3))


@case
def reduced_by_functools(lib: Any, wrap: Any) -> Seen:
    values = [1.0, 2.0]
    step = wrap(lambda x: x * functools.reduce(operator.mul, values))
    for n in range(4):
        values.append(1.0 + 0.5 * n)
        yield step(ramp(lib, 3))


@case
def accumulated_by_itertools(lib: Any, wrap: Any) -> Seen:
    values = [1.0, 2.0]
    step = wrap(lambda x: x * list(itertools.accumulate(values))[-1])
    for n in range(4):
        values[0] = 1.0 + n
        yield step(ramp(lib, 3))


@case
def a_chain_map(lib: Any, wrap: Any) -> Seen:
    base, own = {"gain": 1.0}, {}
    options = ChainMap(own, base)
    step = wrap(lambda x: x * options["gain"])
    for n in range(5):
        base["gain"] = 2.0 * n
        if n == 3:
            own["gain"] = -1.0
        yield step(ramp(lib, 3))


@case
def a_user_dictionary(lib: Any, wrap: Any) -> Seen:
    options = UserDict(gain=1.0)
    step = wrap(lambda x: x * options["gain"])
    for n in range(4):
        options["gain"] = 2.0 * n
        yield step(ramp(lib, 3))


@case
def a_dictionary_with_missing(lib: Any, wrap: Any) -> Seen:
    class Zero(dict):
        default = 0.0

        def __missing__(self, key):
            return self.default

    table = Zero()
    step = wrap(lambda x: x + table["gain"])
    for n in range(5):
        Zero.default = float(n)
        if n == 3:
            table["gain"] = -10.0
        yield step(ramp(lib, 3))


@case
def a_view_of_a_dictionary(lib: Any, wrap: Any) -> Seen:
    d = {"a": 1.0}
    values, keys = d.values(), d.keys()
    step = wrap(lambda x: x * sum(values) if "b" in keys else x)
    for n in range(5):
        d["a"] = float(n)
        if n == 2:
            d["b"] = 5.0
        yield step(ramp(lib, 3))


@case
def an_array_of_the_standard_library(lib: Any, wrap: Any) -> Seen:
    numbers = array.array("d", [1.0, 2.0])
    step = wrap(lambda x: x * numbers[0] + sum(numbers))
    for n in range(4):
        numbers[0] = float(n)
        numbers.append(0.5)
        yield step(ramp(lib, 3))


@case
def a_byte_array(lib: Any, wrap: Any) -> Seen:
    raw = bytearray(8)
    step = wrap(lambda x: x * struct.unpack_from("d", raw)[0])
    for n in range(4):
        struct.pack_into("d", raw, 0, 1.0 + n)
        yield step(ramp(lib, 3))


@case
def a_ctypes_number(lib: Any, wrap: Any) -> Seen:
    number = ctypes.c_double(1.0)
    step = wrap(lambda x: x * number.value)
    for n in range(4):
        number.value = 1.0 + n
        yield step(ramp(lib, 3))


@case
def a_priority_queue(lib: Any, wrap: Any) -> Seen:
    heap = [3.0, 5.0]
    step = wrap(lambda x: x * heapq.nsmallest(1, heap)[0])
    for n in range(4):
        heapq.heappush(heap, 2.0 - n)
        yield step(ramp(lib, 3))


@case
def a_bisected_list(lib: Any, wrap: Any) -> Seen:
    bounds = [1.0, 2.0, 3.0]
    step = wrap(lambda x, t: x * bisect.bisect(bounds, t))
    for n in range(5):
        bounds[1] = 0.5 * n
        bounds.sort()
        yield step(ramp(lib, 3), 1.6)


@case
def a_queue(lib: Any, wrap: Any) -> Seen:
    waiting = queue.Queue()
    step = wrap(lambda x: x * waiting.get_nowait())
    for n in range(4):
        waiting.put(1.0 + n)
        waiting.put(-1.0)
        yield step(ramp(lib, 3)), waiting.qsize()


@case
def a_regular_expression_with_a_callback(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(gain=1)

    def step(x):
        text = re.sub("n", lambda match: str(s.gain), "n")
        return x * int(text)

    step = wrap(step)
    for n in range(4):
        s.gain = n
        yield step(ramp(lib, 3))


@case
def a_template(lib: Any, wrap: Any) -> Seen:
    s = {"gain": 1}
    template = string.Template("$gain")
    step = wrap(lambda x: x * int(template.substitute(s)))
    for n in range(4):
        s["gain"] = n
        yield step(ramp(lib, 3))


@case
def eval_and_locals(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(gain=1.0)

    def step(x):
        gain = s.gain
        return x * eval("gain") + locals()["gain"]

    step = wrap(step)
    for n in range(4):
        s.gain = 1.0 + n
        yield step(ramp(lib, 3))


@case
def a_frame_of_the_caller(lib: Any, wrap: Any) -> Seen:
    def current(name):
        frame = sys._getframe(1)
        while frame is not None and name not in frame.f_locals:
            frame = frame.f_back
        return frame.f_locals[name]

    step = wrap(lambda x: x * current("semantics_gain"))

    def call(x, semantics_gain):
        return step(x)

    for n in range(4):
        yield call(ramp(lib, 3), 1.0 + n)


@case
def object_getattribute(lib: Any, wrap: Any) -> Seen:
    o = Options()
    step = wrap(lambda x: x * object.__getattribute__(o, "gain"))
    for n in range(4):
        o.gain = 1.0 + n
        yield step(ramp(lib, 3))


@case
def a_getattribute_of_its_own(lib: Any, wrap: Any) -> Seen:
    class Traced:
        def __init__(self):
            self.reads, self.gain = 0, 1.0

        def __getattribute__(self, name):
            if name == "gain":
                self.reads += 1
            return object.__getattribute__(self, name)

    t = Traced()
    step = wrap(lambda x: x * t.gain)
    for n in range(4):
        t.__dict__["gain"] = 1.0 + n
        yield step(ramp(lib, 3)), t.reads


@case
def index_and_float_protocols(lib: Any, wrap: Any) -> Seen:
    class Number:
        value = 1

        def __index__(self):
            return self.value

        def __float__(self):
            return self.value * 0.5

    number = Number()
    step = wrap(lambda x: x[number] * float(number) + len(range(number)))
    for n in range(4):
        Number.value = n
        yield step(ramp(lib, 4))


@case
def a_partial_method(lib: Any, wrap: Any) -> Seen:
    class Step:
        gain = 1.0

        def scaled(self, x, power):
            return x * self.gain**power

        squared = functools.partialmethod(scaled, power=2)

    s = Step()
    step = wrap(lambda x: s.squared(x))
    for n in range(4):
        s.gain = 1.0 + n
        yield step(ramp(lib, 3))


@case
def star_arguments_from_state(lib: Any, wrap: Any) -> Seen:
    args, kwargs = [2.0], {"shift": 1.0}

    def affine(x, gain, bias=0.0, shift=0.0):
        return x * gain + bias + shift

    step = wrap(lambda x: affine(x, *args, **kwargs))
    for n in range(4):
        args[0] = 1.0 + n
        kwargs["shift"] = -n
        if n == 3:
            args.append(7.0)
        yield step(ramp(lib, 3))


@case
def unpacking_from_state(lib: Any, wrap: Any) -> Seen:
    pair, more = [1.0, 2.0], [3.0]

    def step(x):
        first, *rest = [*pair, *more]
        return x * first + sum(rest)

    step = wrap(step)
    for n in range(4):
        pair[0] = float(n)
        more.append(0.5)
        yield step(ramp(lib, 3))


@case
def a_match_on_an_object(lib: Any, wrap: Any) -> Seen:
    o = Options()

    def step(x):
        match o:
            case Options(gain=1.0):
                return x
            case Options(gain=g, shift=0.0):
                return x * g
            case _:
                return -x

    step = wrap(step)
    for n in range(5):
        o.gain, o.shift = 1.0 + n % 3, float(n == 4)
        yield step(ramp(lib, 3))


@case
def a_chained_comparison_of_strings(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(stage="warmup")
    step = wrap(lambda x: x * 2 if s.stage.startswith("warm") else x.tanh())
    for n in range(5):
        s.stage = ("warmup", "train", "warmer")[n % 3]
        yield step(ramp(lib, 3))
