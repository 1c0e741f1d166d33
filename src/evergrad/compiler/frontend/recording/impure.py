"""Impure functions and objects of Python whose calls a program can repeat: draws of random numbers,
clocks, iterators of the standard library, ``print`` and ``warnings.warn``.

What they return or do depends on nothing that a traced function can see, and they change nothing
that it reads, so that a program calls them before or after its run as eager code does in between.
"""

from __future__ import annotations

import gc
import io
import itertools
import logging
import os
import platform
import random
import sys
import threading
import time
import warnings
import weakref
from types import BuiltinFunctionType, FunctionType, GeneratorType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.frontend.state.raw_reads import class_member, is_a
from evergrad.core.tensor import Tensor

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

# The functions themselves: while a call is traced, their names may refer to stand-ins.
PRINT, WARN = print, warnings.warn
_SEED_OF_NUMPY = np.random.seed
RANDOM_SOURCES = (random.Random, np.random.RandomState, np.random.Generator)
# Methods of sources of random numbers that change nothing but the source.
_DRAWS = frozenset({
    "random", "uniform", "triangular", "randint", "choice", "randrange", "sample", "choices",
    "normalvariate", "lognormvariate", "expovariate", "vonmisesvariate", "gammavariate", "gauss",
    "betavariate", "paretovariate", "weibullvariate", "binomialvariate", "getrandbits", "seed",
    # of NumPy
    "rand", "randn", "random_sample", "ranf", "standard_normal", "normal", "integers", "beta",
    "binomial", "chisquare", "exponential", "f", "gamma", "geometric", "gumbel", "hypergeometric",
    "laplace", "logistic", "lognormal", "logseries", "negative_binomial", "pareto", "poisson",
    "power", "rayleigh", "standard_cauchy", "standard_exponential", "standard_gamma", "standard_t",
    "vonmises", "wald", "weibull", "zipf", "random_integers", "tomaxint",
})  # fmt: skip
# What makes sources of random numbers, which are seeded by the system unless a seed is given.
MAKES_SOURCES = frozenset({"Random", "SystemRandom", "default_rng", "RandomState", "SeedSequence",
                           "Generator", "MT19937", "PCG64", "PCG64DXSM", "Philox",
                           "SFC64"})  # fmt: skip
# Draws that return a list made anew.
RETURNS_NEW_LIST = frozenset({"sample", "choices", "listdir"})
_CLOCKS = tuple(
    getattr(time, name)
    for name in ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns",
                 "process_time", "process_time_ns")
)  # fmt: skip
# Functions that read the state of the process or of the file system.
_READERS: tuple[object, ...] = (
    os.getcwd, os.getpid, os.getppid, os.cpu_count, os.listdir, os.path.exists, os.path.isfile,
    os.path.isdir, os.path.islink, os.path.getsize, os.path.getmtime, os.path.abspath,
    os.path.realpath, os.path.expanduser, threading.get_ident, threading.active_count,
    time.ctime, time.strftime, platform.node,
)  # fmt: skip
# Iterators whose next member depends on their own state and on the containers they iterate over.
_ITERATORS: tuple[type, ...] = (
    itertools.count, itertools.cycle, itertools.repeat, itertools.chain, itertools.islice,
    itertools.pairwise, itertools.zip_longest, type(itertools.tee(())[0]), enumerate, zip,
    reversed, type(iter([])), type(iter(())), type(iter(range(1))), type(iter(range(1 << 65))),
    type(iter("")), type(iter(b"")), type(iter({})), type(iter({}.values())),
    type(iter({}.items())), type(iter(set())), type(reversed([])),
)  # fmt: skip
_CONTAINERS = (list, tuple, dict, set, frozenset, range)
_HELD_PLAIN = (int, float, complex, str, bytes, type(None), type)
# Classes of streams whose write() has no effects but output.
_STREAM_LIBRARIES = ("ipykernel",)


def is_draw(value: object) -> bool:
    """Whether a function draws from a source of random numbers, or seeds one."""
    if value is _SEED_OF_NUMPY:
        return True
    if not is_a(value, (BuiltinFunctionType, MethodType)):
        return False
    return type(value.__self__) in RANDOM_SOURCES and value.__name__ in _DRAWS


def is_clock(value: object) -> bool:
    return any(value is clock for clock in _CLOCKS)


def is_reader(value: object) -> bool:
    return any(value is reader for reader in _READERS)


def is_output(value: object) -> bool:
    return value is PRINT or value is WARN


def is_function(value: object) -> bool:
    """Whether calls of a function can be repeated."""
    return is_draw(value) or is_clock(value) or is_output(value) or is_reader(value)


def is_source(value: object) -> bool:
    """Whether an object is a source of random numbers, none of a class of the user's."""
    return type(value) in RANDOM_SOURCES


def is_method(name: str) -> bool:
    return name in _DRAWS


def is_iterator(value: object) -> bool:
    """Whether an object is an iterator of Python's, a generator or that of a loader of data."""
    return type(value) in _ITERATORS or runs_code(value)


def runs_code(value: object) -> bool:
    """Whether an iterator may run code of the user's."""
    kind = type(value)
    if kind in (GeneratorType, map, filter):
        return not getattr(value, "gi_running", False)
    if str(kind.__module__).startswith("evergrad.utils.data"):
        return class_member(kind, "__next__") is not None
    return kind in _ITERATORS and containers_of(value) is None


def is_stream(value: object) -> bool:
    """Whether an object is a stream of Python's that texts are written to."""
    return type(value) in (io.StringIO, io.TextIOWrapper)


def is_logger(value: object) -> bool:
    return type(value) in (logging.Logger, logging.RootLogger)


def is_replayable(value: object) -> bool:
    if is_function(value) or is_source(value) or is_iterator(value):
        return True
    return is_stream(value) or is_logger(value)


def is_writable_stream(stream: Any) -> bool:
    """Whether writing to a stream cannot fail."""
    return not stream.closed and stream.writable()


def logs_plainly(logger: Any) -> bool:
    """Whether a logger and all that handle its records run no code of the user's."""
    held = logger
    while held is not None:
        if held.filters or not all(map(_handles_plainly, held.handlers)):
            return False
        held = held.parent if held.propagate else None
    factory = logging.getLogRecordFactory() is logging.LogRecord
    return factory and logging.getLoggerClass() is logging.Logger


def _handles_plainly(handler: Any) -> bool:
    if type(handler) is logging.NullHandler:
        return True
    if type(handler) not in (logging.StreamHandler, logging.FileHandler) or handler.filters:
        return False
    is_plain = handler.formatter is None or type(handler.formatter) is logging.Formatter
    return is_plain and (handler.stream is None or stream_is_plain(handler.stream))


def containers_of(iterator: object) -> list[object] | None:
    """The containers that an iterator iterates over; ``None`` if it may run other code."""
    found: Leaves = []
    waiting, seen = [iterator], set()
    while waiting:
        held = waiting.pop()
        if id(held) in seen:
            continue
        seen.add(id(held))
        if type(held) in _ITERATORS:
            waiting += gc.get_referents(held)
        elif type(held) in _CONTAINERS:
            found.append(held)
        elif type(held).__name__ == "_tee_dataobject":
            waiting += gc.get_referents(held)
        elif not is_a(held, (*_HELD_PLAIN, Tensor, np.generic)):
            return None
    return found


def stream_is_plain(stream: object) -> bool:
    """Whether writing to a stream runs no code of the user's, and cannot fail."""
    if not isinstance(stream, io.TextIOBase) or stream.closed:
        return False
    if type(stream).__module__.partition(".")[0] in _STREAM_LIBRARIES:
        return True
    write = next(vars(base)["write"] for base in type(stream).__mro__ if "write" in vars(base))
    return not isinstance(write, FunctionType)


def action_of(category: type, filters: Any) -> str:
    """What the filters do with warnings of a category whatever their text and place; "error" if
    they may be raised."""
    for action, message, kind, module, line in filters:
        if issubclass(category, kind):
            if action == "error":
                return "error"
            if message is None and module is None and line == 0:
                return str(action)
    return "error" if warnings.defaultaction == "error" else "default"  # type: ignore[attr-defined]


def frame_of_warning(stacklevel: int, root: object) -> Any:
    """The frame that a warning is attributed to, three calls up from here; ``None`` if it is not of
    the function whose caller has the code ``root``."""
    frame = sys._getframe(3)
    for _ in range(stacklevel - 1):
        if frame.f_code is root or frame.f_back is None:
            return None
        frame = frame.f_back
    held = frame
    while held is not None and held.f_code is not root:
        held = held.f_back  # type: ignore[assignment]
    return None if held is None or held is frame else frame


class StandIn:
    """Replaces an impure function or object, which it holds, while a session runs."""

    __slots__ = ("__weakref__", "held", "recorder")

    def __init__(self, held: Any, recorder: Any) -> None:
        self.held = held
        self.recorder = recorder
        recorder.stand_ins.append(weakref.ref(self))


def is_stand_in(value: object) -> bool:
    return issubclass(type(value), StandIn)
