"""Who takes part: each makes the step of a workload in its own way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from bench.breadth.registry import Work, Workload

Array = np.ndarray[Any, Any]
# The one whose results the others must reproduce.
REFERENCE = "torch"
SUBJECTS = ("evergrad", "evergrad compiled")


def _namespace(name: str, threads: int) -> Any:
    if name.startswith("evergrad"):
        import evergrad as lib
    else:
        import torch as lib  # type: ignore[no-redef]
    lib.set_num_threads(threads)
    return lib


def _as_written(lib: Any, work: Work) -> Callable[..., Any]:
    return work.step


def _compiled(lib: Any, work: Work) -> Callable[..., Any]:
    compiled: Callable[..., Any] = lib.compile(work.step)
    return compiled


CONTENDERS: dict[str, Callable[[Any, Work], Callable[..., Any]]] = {
    "torch": _as_written,
    "torch.compile": _compiled,
    "evergrad": _as_written,
    "evergrad compiled": _compiled,
}


@dataclass
class Contender:
    """A workload in the hands of one contender: its calls, one after the other."""

    name: str
    calls: Iterator[Callable[[], Any]]
    period: int
    step: Callable[..., Any]

    @classmethod
    def make(cls, name: str, workload: Workload, threads: int) -> Contender:
        lib = _namespace(name, threads)
        work = workload.make(lib)
        step = CONTENDERS[name](lib, work)
        return cls(name, work.calls(step), len(work.batches), step)

    def run(self, count: int) -> Any:
        """Some calls in a row; the result of the last."""
        result = None
        for _ in range(count):
            result = next(self.calls)()
        return result


def arrays_of(result: Any) -> list[Array]:
    """All numbers of a result, tensor by tensor."""
    if isinstance(result, list | tuple):
        return [array for part in result for array in arrays_of(part)]
    if isinstance(result, int | float):
        return [np.asarray(result)]
    tensor = result.detach()
    floating = tensor.is_floating_point() or tensor.is_complex()
    tensor = tensor if not floating or tensor.is_complex() else tensor.double()
    return [np.array(tensor.cpu().numpy())]


def difference(found: list[Array], wanted: list[Array], tolerance: float) -> str | None:
    """What differs from the reference by more than the tolerance, in words, or None."""
    if len(found) != len(wanted):
        return f"{len(found)} results instead of {len(wanted)}"
    for number, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if a.shape != b.shape:
            return f"result {number} has shape {a.shape} instead of {b.shape}"
        if a.dtype.kind in "biu":
            if not np.array_equal(a, b):
                return f"result {number} differs in {(a != b).sum()} of {a.size} integers"
            continue
        scale = float(np.max(np.abs(b), initial=0.0))
        if not np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            worst = float(np.max(np.abs(a - b)))
            return f"result {number} differs by {worst:.3g} where {scale:.3g} is the largest"
    return None
