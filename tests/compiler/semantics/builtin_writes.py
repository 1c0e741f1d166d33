"""State written by functions in C, through dictionaries of objects, buffers and operators."""

from __future__ import annotations

import array
import bisect
import csv
import ctypes
import functools
import heapq
import io
import operator
import queue
import struct
import threading
from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

import numpy as np

from .registry import Seen, case, ramp


@case
def the_dictionary_of_an_object(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0)

    def step(x):
        s.__dict__["n"] += 1
        vars(s).update(last=s.n * 2)
        return x * s.n

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3)), s


@case
def object_setattr(lib: Any, wrap: Any) -> Seen:
    class Frozen:
        n = 0

        def __setattr__(self, name, value):
            raise AttributeError("frozen")

    f = Frozen()

    def step(x):
        object.__setattr__(f, "n", f.n + 1)
        return x * f.n

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3)), f.n


@case
def a_setattr_of_its_own(lib: Any, wrap: Any) -> Seen:
    class Logged:
        def __init__(self):
            self.__dict__.update(log=[], n=0)

        def __setattr__(self, name, value):
            self.log.append((name, value))
            self.__dict__[name] = value

    o = Logged()

    def step(x):
        o.n = o.n + 1
        return x * o.n

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3)), o.log


@case
def a_property_with_a_setter(lib: Any, wrap: Any) -> Seen:
    class Clamped:
        _v = 0.0

        @property
        def v(self):
            return self._v

        @v.setter
        def v(self, value):
            self._v = min(value, 2.0)

    c = Clamped()

    def step(x):
        c.v = c.v + 0.75
        return x * c.v

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3)), c.v


@case
def a_heap(lib: Any, wrap: Any) -> Seen:
    heap = [5, 7]

    def step(x, n):
        heapq.heappush(heap, n)
        return x * heapq.heapreplace(heap, 6 - n)

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3), n), heap


@case
def an_insorted_list(lib: Any, wrap: Any) -> Seen:
    values = [1.0, 3.0]

    def step(x, t):
        bisect.insort(values, t)
        return x * values[1]

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3), 2.0 - 0.5 * n), values


@case
def operators_that_write(lib: Any, wrap: Any) -> Seen:
    log, d = [1], {"n": 0}

    def step(x):
        operator.iadd(log, [len(log)])
        operator.setitem(d, "n", d["n"] + len(log))
        return x * d["n"]

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3)), log, d


@case
def appended_by_map(lib: Any, wrap: Any) -> Seen:
    log = []

    def step(x, n):
        list(map(log.append, range(n)))
        return x + len(log)

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3), n), log


@case
def a_bound_append_kept(lib: Any, wrap: Any) -> Seen:
    log = []
    add = log.append

    def step(x):
        add(x.sum())
        return x * 2

    step = wrap(step)
    for n in range(4):
        step(ramp(lib, 3, start=float(n)))
        yield log


@case
def a_partial_of_an_append(lib: Any, wrap: Any) -> Seen:
    log = []
    add = functools.partial(log.insert, 0)

    def step(x, n):
        add(n)
        return x * log[0]

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3), n), log


@case
def a_queue_filled(lib: Any, wrap: Any) -> Seen:
    out = queue.SimpleQueue()

    def step(x):
        out.put(x * 2)
        return x

    step = wrap(step)
    for n in range(4):
        step(ramp(lib, 3, start=float(n)))
        yield out.qsize(), out.get_nowait()


@case
def an_array_of_the_standard_library(lib: Any, wrap: Any) -> Seen:
    numbers = array.array("d")

    def step(x, n):
        numbers.append(n * 1.5)
        return x * sum(numbers)

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3), n), list(numbers)


@case
def a_byte_array(lib: Any, wrap: Any) -> Seen:
    raw = bytearray(8)

    def step(x):
        (n,) = struct.unpack_from("q", raw)
        struct.pack_into("q", raw, 0, n + 1)
        return x * n

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3)), bytes(raw)


@case
def a_ctypes_number(lib: Any, wrap: Any) -> Seen:
    number = ctypes.c_int(0)

    def step(x):
        number.value += 2
        return x * number.value

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3)), number.value


@case
def numpy_out(lib: Any, wrap: Any) -> Seen:
    total = np.zeros(3)

    def step(x):
        np.add(total, 1.5, out=total)
        np.multiply.at(total, [0], 2.0)
        return x * float(total[0])

    step = wrap(step)
    for _ in range(4):
        yield step(ramp(lib, 3)), total


@case
def a_numpy_array_sorted_in_place(lib: Any, wrap: Any) -> Seen:
    order = np.array([3.0, 1.0, 2.0])

    def step(x, n):
        order[0] += n
        order.sort()
        return x * float(order[-1])

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3), n), order


@case
def an_array_of_objects(lib: Any, wrap: Any) -> Seen:
    slots = np.empty(3, dtype=object)

    def step(x, n):
        slots[n % 3] = x * n
        return x

    step = wrap(step)
    for n in range(4):
        step(ramp(lib, 3), n)
        yield list(slots)


@case
def a_csv_writer(lib: Any, wrap: Any) -> Seen:
    text = io.StringIO()
    writer = csv.writer(text)

    def step(x, n):
        writer.writerow([n, x.shape[0]])
        return x * 2

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3), n), text.getvalue()


@case
def bytes_written(lib: Any, wrap: Any) -> Seen:
    raw = io.BytesIO()

    def step(x):
        raw.write(x.sum().numpy().tobytes())
        return x + raw.tell()

    step = wrap(step)
    for n in range(4):
        yield step(lib.full((2,), float(n))), raw.getvalue()


@case
def a_lock_and_an_event(lib: Any, wrap: Any) -> Seen:
    lock, event = threading.Lock(), threading.Event()

    def step(x, n):
        with lock:
            if n == 2:
                event.set()
            return x * 2 if event.is_set() else x

    step = wrap(step)
    for n in range(5):
        if n == 4:
            event.clear()
        yield step(ramp(lib, 3), n), lock.locked(), event.is_set()


@case
def sets_combined(lib: Any, wrap: Any) -> Seen:
    seen = {0}

    def step(x, n):
        nonlocal seen
        seen ^= {n, n + 1}
        return x * len(seen)

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3), n), seen


@case
def a_counter_updated(lib: Any, wrap: Any) -> Seen:
    counts = Counter()

    def step(x, text):
        counts.update(text)
        return x * counts.most_common(1)[0][1]

    step = wrap(step)
    for text in ("ab", "aab", "bbb", "c"):
        yield step(ramp(lib, 3), text), dict(counts)


@case
def both_ends_of_a_deque(lib: Any, wrap: Any) -> Seen:
    d = deque([1.0, 2.0], maxlen=3)

    def step(x, n):
        d.appendleft(d.pop() + n)
        d.extend([0.5])
        return x * d[0]

    step = wrap(step)
    for n in range(5):
        yield step(ramp(lib, 3), n), list(d)


@case
def a_walrus_and_a_comprehension(lib: Any, wrap: Any) -> Seen:
    kept = []

    def step(x, n):
        total = 0
        values = [total := total + k for k in range(n)]
        [kept.append(v) for v in values]
        return x * total

    step = wrap(step)
    for n in range(4):
        yield step(ramp(lib, 3), n), kept


@case
def globals_updated(lib: Any, wrap: Any) -> Seen:
    def step(x):
        names = globals()
        names["SEMANTICS_COUNT"] = names.get("SEMANTICS_COUNT", 0) + 1
        return x * names["SEMANTICS_COUNT"]

    step = wrap(step)
    for n in range(4):
        if n == 3:
            globals()["SEMANTICS_COUNT"] = 10
        yield step(ramp(lib, 3)), globals()["SEMANTICS_COUNT"]
    del globals()["SEMANTICS_COUNT"]


@case
def a_del_method(lib: Any, wrap: Any) -> Seen:
    log = []

    class Temporary:
        def __del__(self):
            log.append("gone")

    def step(x):
        t = Temporary()
        log.append("made")
        del t
        return x * len(log)

    step = wrap(step)
    for _ in range(3):
        yield step(ramp(lib, 3)), log
