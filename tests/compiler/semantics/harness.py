"""Run a case and compare two runs of it: observations, random streams, output, warnings."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import io
import math
import os
import random
import traceback
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from .registry import Case, Raised

# Fusion rounds in other places than eager evaluation.
RTOL, ATOL = 1e-5, 1e-6
_COARSE = {"float16": 2e-3, "bfloat16": 2e-2}


@dataclasses.dataclass(frozen=True)
class Array:
    """A tensor or array at the moment it was observed."""

    kind: str
    dtype: str
    requires_grad: bool
    values: np.ndarray


@dataclasses.dataclass
class Run:
    """What one run of a case left to be seen."""

    observations: list[Any]
    streams: dict[str, Any]
    printed: str
    warned: list[str]
    escaped: str | None
    served: list[tuple[str, str]]

    @property
    def kind(self) -> str:
        """How the calls were served, as seen at each observation.

        Eager if any call was; segments if any call was, unless the last one took a path that was
        compiled; else paths if any call took such a path, whole if any ran as one program; else
        traced, where state changed before every call or too few calls were alike.
        """
        seen = {kind for kind, _ in self.served}
        if "segments" in seen and "paths" in seen and self.served[-1][0] in ("paths", "whole"):
            seen.remove("segments")
        order = ("eager", "segments", "paths", "whole", "traced")
        return next((kind for kind in order if kind in seen), "unknown")

    @property
    def reasons(self) -> list[str]:
        return [*dict.fromkeys(why for kind, why in self.served if why)]


def plain(value: Any) -> Any:
    """A copy of an observation that later calls cannot change."""
    if value is None or isinstance(value, (str, int, float, complex, bytes, Raised)):
        return (
            value if not isinstance(value, np.generic) else ("np", str(value.dtype), float(value))
        )
    if isinstance(value, np.generic):
        return ("np", str(value.dtype), value.item())
    if isinstance(value, np.ndarray):
        return Array("ndarray", str(value.dtype), False, value.copy())
    if hasattr(value, "detach") and hasattr(value, "requires_grad"):
        return _tensor(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return (type(value).__name__, [(n, plain(getattr(value, n))) for n in names])
    if isinstance(value, dict):
        return ("dict", [(plain(k), plain(v)) for k, v in value.items()])
    if isinstance(value, (set, frozenset)):
        return ("set", sorted(value, key=repr))
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [plain(v) for v in value])
    if isinstance(value, SimpleNamespace) or type(value).__name__ == "Namespace":
        return ("namespace", [(k, plain(v)) for k, v in sorted(vars(value).items())])
    if isinstance(value, type):
        return ("type", value.__name__)
    return str(value)


def _tensor(tensor: Any) -> Array:
    dtype = str(tensor.dtype).rpartition(".")[2]
    # A copy first: observing must not export the memory of the user's tensor to NumPy.
    found = tensor.detach().clone()
    if str(getattr(found, "layout", "strided")).rpartition(".")[2] != "strided":
        found = found.to_dense()
    if dtype in _COARSE:
        found = found.float()
    kind = "parameter" if type(tensor).__name__ == "Parameter" else "tensor"
    return Array(kind, dtype, bool(tensor.requires_grad), np.array(found.numpy()))


def difference(a: Any, b: Any, where: str = "") -> str | None:
    """Where and how two observations differ, or ``None``."""
    if type(a) is not type(b):
        types = f"{type(a).__name__} {_short(a)} became {type(b).__name__} {_short(b)}"
        return f"{where}: {types}"
    if isinstance(a, Array):
        return _array_difference(a, b, where)
    if isinstance(a, float):
        same = a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(
            a, b, rel_tol=RTOL, abs_tol=ATOL
        )  # fmt: skip
        return None if same else f"{where}: {a} became {b}"
    if isinstance(a, (list, tuple)):
        if len(a) != len(b):
            return f"{where}: length {len(a)} became {len(b)}"
        pairs = enumerate(zip(a, b, strict=True))
        return next((d for n, (x, y) in pairs if (d := difference(x, y, f"{where}[{n}]"))), None)
    return None if a == b else f"{where}: {_short(a)} became {_short(b)}"


def _array_difference(a: Array, b: Array, where: str) -> str | None:
    ours = (a.kind, a.dtype, a.values.shape, a.requires_grad)
    theirs = (b.kind, b.dtype, b.values.shape, b.requires_grad)
    if ours != theirs:
        return f"{where}: {ours} became {theirs}"
    if a.values.dtype.kind not in "fc":
        same = np.array_equal(a.values, b.values)
    else:
        coarse = _COARSE.get(a.dtype, RTOL)
        same = np.allclose(
            a.values, b.values, rtol=coarse, atol=max(ATOL, coarse / 8), equal_nan=True
        )
    return None if same else f"{where}: {_short(a)} became {_short(b)}"


def _short(value: Any) -> str:
    if isinstance(value, Array):
        values = np.array2string(value.values, precision=5, threshold=12).replace("\n", "")
        return f"{value.dtype}{list(value.values.shape)} {values}"
    return repr(value)[:200]


def differences(eager: Run, compiled: Run, messages: bool = True) -> list[str]:
    """All that two runs differ in, messages and exact types of exceptions only if wanted."""
    found = []
    if eager.escaped != compiled.escaped:
        found.append(f"raised: {compiled.escaped or 'nothing'} instead of {eager.escaped}")
    ours, theirs = eager.observations, compiled.observations
    if not messages:
        ours, theirs = _without_heads(ours), _without_heads(theirs)
    if not compiled.escaped and len(ours) != len(theirs):
        found.append(f"{len(ours)} observations became {len(theirs)}")
    for n, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        text = difference(a, b, f"observation {n}")
        if text:
            found.append(text)
    for name, state in eager.streams.items():
        if name in compiled.streams and state != compiled.streams[name]:
            found.append(f"the state of {name} differs")
    if eager.printed != compiled.printed:
        found.append(f"printed {compiled.printed!r} instead of {eager.printed!r}")
    if eager.warned != compiled.warned:
        found.append(f"warned {compiled.warned} instead of {eager.warned}")
    return found


def _without_heads(value: Any) -> Any:
    if isinstance(value, Raised):
        return Raised("", value.base, "")
    if isinstance(value, (list, tuple)):
        return type(value)(_without_heads(v) for v in value)
    return value


def streams_of(lib: Any) -> dict[str, Any]:
    """The states of all random streams, in a form that compares."""
    _, keys, position, has_gauss, _ = np.random.get_state()  # type: ignore[misc]
    own = np.array(lib.get_rng_state().numpy()).tobytes()
    return {
        "random": random.getstate(),
        "numpy.random": (keys.tobytes(), position, has_gauss),
        f"{lib.__name__}'s generator": own,
    }


@contextlib.contextmanager
def set_back(lib: Any) -> Iterator[None]:
    """Seeds at the start; what a case may have changed in the process is set back."""
    random.seed(1234)
    np.random.seed(1234)
    lib.manual_seed(1234)
    environ, dtype, threads = dict(os.environ), lib.get_default_dtype(), lib.get_num_threads()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environ)
        lib.set_default_dtype(dtype)
        lib.set_grad_enabled(True)
        if lib.get_num_threads() != threads:
            lib.set_num_threads(threads)


def run(case: Case, lib: Any, compile: Callable[..., Any] | None = None) -> Run:
    """Run a case eagerly, or with its steps compiled by ``compile``."""
    made: list[Any] = []

    def wrap(function: Any, **options: Any) -> Any:
        if compile is None:
            return function
        made.append(compile(function, **options))
        return made[-1]

    result = Run([], {}, "", [], None, [])
    printed = io.StringIO()
    with (
        set_back(lib),
        warnings.catch_warnings(record=True) as caught,
        contextlib.redirect_stdout(printed),
    ):
        warnings.simplefilter("always")
        try:
            for observation in case.function(lib, wrap):
                result.observations.append(plain(observation))
                result.served += [_served(compiled) for compiled in made]
        except Exception as error:
            result.escaped = f"{type(error).__name__}: {str(error)[:400]}\n{_last_frames(error)}"
        result.streams = streams_of(lib)
    result.printed = printed.getvalue()
    result.warned = [str(w.message) for w in caught if str(w.message).startswith("user:")]
    made.clear()
    gc.collect(0)
    return result


def _last_frames(error: Exception) -> str:
    return "".join(traceback.format_tb(error.__traceback__)[-3:])


def _served(compiled: Any) -> tuple[str, str]:
    """The kind of the last call and its reason; paths, if it was programs around reads of data."""
    call = getattr(compiled, "last_call", None)
    kind = getattr(call, "kind", "unknown")
    if kind == "whole" and call.breaks:
        kind = "paths"
    return kind, str(getattr(call, "reason", "") or "")
