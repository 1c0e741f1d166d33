"""Arguments that PyTorch refuses are refused with the same class of error, and their neighbours
are not: values beyond a type, types of ``out``, sections, empty planes, more than 64 dimensions."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import evergrad

Call = Callable[[Any], Any]


def half(ns: Any) -> Any:
    return ns.ones(2, dtype=ns.float16)


def first(ns: Any) -> Any:
    return ns.tensor([0])


CALLS: dict[str, Call] = {
    # numbers beyond a type
    "masked_fill half": lambda ns: half(ns).masked_fill(ns.tensor([True, False]), -1e9),
    "masked_fill inf": lambda ns: half(ns).masked_fill(ns.tensor([True, False]), -float("inf")),
    "masked_fill nan": lambda ns: half(ns).masked_fill(ns.tensor([True, False]), float("nan")),
    "masked_fill most": lambda ns: half(ns).masked_fill(ns.tensor([True, False]), 65504.0),
    "masked_fill float": lambda ns: ns.ones(2).masked_fill(ns.tensor([True, False]), 1e300),
    "masked_fill bfloat16": lambda ns: ns.ones(2).bfloat16().masked_fill(ns.tensor(True), 1e39),
    "masked_fill tensor": lambda ns: half(ns).masked_fill(ns.tensor([True, False]), ns.tensor(1e9)),
    "masked_fill wider": lambda ns: ns.ones(2).masked_fill(
        ns.tensor(True), ns.tensor(1e300, dtype=ns.float64)
    ),
    "masked_fill fits": lambda ns: ns.ones(2).masked_fill(
        ns.tensor(True), ns.tensor(1e3, dtype=ns.float64)
    ),
    "masked_fill complex": lambda ns: ns.ones(2).masked_fill(ns.tensor(True), ns.tensor(1j)),
    "masked_fill complex number": lambda ns: ns.ones(2, dtype=ns.complex64).masked_fill(
        ns.tensor(True), 1e300
    ),
    "masked_fill_ half": lambda ns: half(ns).masked_fill_(ns.tensor([True, False]), 1e9),
    "index_fill half": lambda ns: half(ns).index_fill(0, first(ns), 1e9),
    "index_fill tensor": lambda ns: half(ns).index_fill(0, first(ns), ns.tensor(1e9)),
    "scatter half": lambda ns: half(ns).scatter(0, first(ns), 1e9),
    "index_add alpha": lambda ns: half(ns).index_add(0, first(ns), half(ns)[:1], alpha=1e9),
    # sections
    "hsplit text": lambda ns: ns.hsplit(ns.ones(4), "a"),
    "vsplit text": lambda ns: ns.vsplit(ns.ones(4, 4), "2"),
    "dsplit float": lambda ns: ns.dsplit(ns.ones(2, 2, 2), 2.0),
    "hsplit fractions": lambda ns: ns.hsplit(ns.ones(4), [1.5]),
    "tensor_split text": lambda ns: ns.tensor_split(ns.ones(4), "2"),
    "tensor_split float": lambda ns: ns.tensor_split(ns.ones(4), 2.0),
    "tensor_split fractions": lambda ns: ns.tensor_split(ns.ones(4), (1.5, 2)),
    "tensor_split tensor": lambda ns: ns.tensor_split(ns.ones(4), ns.tensor([1, 3])),
    "split text": lambda ns: ns.split(ns.ones(4), "2"),
    "split float": lambda ns: ns.split(ns.ones(4), 2.0),
    "split fractions": lambda ns: ns.split(ns.ones(4), [1.5, 2.5]),
    "split 0-d": lambda ns: ns.split(ns.ones(4), ns.tensor(2)),
    "split 0-d each": lambda ns: ns.ones(4).split([ns.tensor(1), ns.tensor(3)]),
    "chunk text": lambda ns: ns.chunk(ns.ones(4), "2"),
    "chunk float": lambda ns: ns.ones(4).chunk(2.0),
    "chunk 0-d": lambda ns: ns.chunk(ns.ones(4), ns.tensor(2)),
    "hsplit 0-d": lambda ns: ns.hsplit(ns.ones(4), ns.tensor(2)),
    # starts
    "narrow bool": lambda ns: ns.ones(3).narrow(0, ns.tensor(True), 1),
    "narrow vector": lambda ns: ns.ones(3).narrow(0, ns.tensor([1]), 1),
    "narrow float": lambda ns: ns.ones(3).narrow(0, ns.tensor(1.5), 1),
    "narrow 0-d": lambda ns: ns.ones(3).narrow(0, ns.tensor(1), 1),
    "narrow int32": lambda ns: ns.ones(3).narrow(0, ns.tensor(1, dtype=ns.int32), 1),
    "narrow_copy": lambda ns: ns.narrow_copy(ns.ones(3), 1, 0, 1),
    "narrow beyond": lambda ns: ns.narrow(ns.ones(3), 1, 0, 1),
    # types of out
    "gather out": lambda ns: ns.gather(
        ns.ones(4), 0, first(ns), out=ns.ones(1, dtype=ns.float64)
    ),
    "topk out": lambda ns: ns.topk(
        ns.ones(2), 1, out=(ns.ones(1, dtype=ns.float64), ns.ones(1, dtype=ns.int64))
    ),
    "multinomial out": lambda ns: ns.multinomial(ns.ones(2), 1, out=ns.ones(1)),
    "mm out": lambda ns: ns.mm(ns.ones(2, 2), ns.ones(2, 2), out=ns.ones(2, 2).double()),
    "argmax out": lambda ns: ns.argmax(ns.ones(2), out=ns.ones((), dtype=ns.int32)),
    "add out": lambda ns: ns.add(ns.ones(2), 1, out=ns.ones(2).double()),
    "sum out": lambda ns: ns.sum(ns.ones(2), 0, out=ns.ones(()).double()),
    # a step that is rounded away
    "arange step": lambda ns: ns.arange(0, 64, 0.5, out=ns.empty(0, dtype=ns.int64)),
    "arange zero": lambda ns: ns.arange(0, 64, 0),
    "arange fraction": lambda ns: ns.arange(0, 4, 1.5, dtype=ns.int64),
    # places and dimensions
    "gradient meta": lambda ns: ns.gradient(
        ns.ones(3, 3), spacing=[ns.tensor([1, 2, 4]), ns.tensor([1, 2, 4], device="meta")]
    ),
    "64 dimensions": lambda ns: ns.ones(1).reshape((1,) * 64).amax(),
}  # fmt: skip


def pooled(kind: str, rank: int, size: int, shape: tuple[int, ...]) -> Call:
    return lambda ns: getattr(ns.nn.functional, f"{kind}_pool{rank}d")(ns.ones(*shape), size)


POOLS = {
    f"{kind}{rank} {size} {before}": pooled(kind, rank, size, (*before, *(4,) * rank))
    for kind in ("max", "avg", "adaptive_avg", "adaptive_max")
    for rank in (1, 2, 3)
    for size in (1, 2)
    for before in ((), (0,), (2,), (0, 2), (2, 0))
    # PyTorch's function of shapes raises IndexError; its mean of all takes any tensor.
    if before or not kind.endswith("avg")
}


def outcome(ns: Any, call: Call) -> Any:
    try:
        found = call(ns)
    except Exception as error:
        return error
    found = found if isinstance(found, tuple) else (found,)
    return [(str(t.dtype).rpartition(".")[2], tuple(t.shape), str(t.tolist())) for t in found]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*CALLS, *POOLS])
def test_as_pytorch(torch: ModuleType, name: str) -> None:
    call = CALLS.get(name) or POOLS[name]
    ours, theirs = outcome(evergrad, call), outcome(torch, call)
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)) or isinstance(theirs, type(ours)), (ours, theirs)
        assert isinstance(ours, Exception)
    else:
        assert ours == theirs


def test_more_dimensions_than_numpy_has() -> None:
    with pytest.raises(RuntimeError, match="64 dims"):
        evergrad.ones(1).reshape((1,) * 65)


def test_values_of_a_compiled_mask() -> None:
    fill = evergrad.compile(lambda x, m, v: x.masked_fill(m, v))
    x, mask = evergrad.ones(2), evergrad.tensor([True, False])
    for value in (3.0, 4.0):
        given = evergrad.tensor(value, dtype=evergrad.float64)
        assert fill(x, mask, given).tolist() == [value, 1.0]
        assert fill(x, mask, value).tolist() == [value, 1.0]
