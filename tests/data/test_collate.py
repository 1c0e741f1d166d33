"""Collating and converting against PyTorch's."""

from __future__ import annotations

from collections import OrderedDict, UserDict, UserList, defaultdict, namedtuple
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad.utils.data import default_collate, default_convert
from evergrad.utils.data._utils.collate import collate, default_collate_fn_map
from twins import agree, refuse

Point = namedtuple("Point", "x y")


class OwnDict(dict[str, Any]):
    pass


class OwnList(list[Any]):
    pass


class Opaque:
    pass


def described(value: Any) -> Any:
    """Types beside values: what kind of container, which element type."""
    if hasattr(value, "requires_grad"):
        return str(value.dtype).split(".")[-1], value, value.requires_grad
    if isinstance(value, dict | UserDict):
        return type(value).__name__, [(key, described(v)) for key, v in value.items()]
    if isinstance(value, tuple | list | UserList):
        return type(value).__name__, [described(v) for v in value]
    return type(value).__name__, str(value)


BATCHES = {
    "ints": lambda ns: [1, 2],
    "floats": lambda ns: [1.5, 2],
    "bools": lambda ns: [True, False],
    "texts": lambda ns: ["a", "b"],
    "bytes": lambda ns: [b"a"],
    "float32 numbers": lambda ns: [np.float32(1), np.float32(2)],
    "int8 numbers": lambda ns: [np.int8(1), np.int8(2)],
    "NumPy bools": lambda ns: [np.bool_(True)],
    "arrays": lambda ns: [np.ones(2), np.zeros(2)],
    "arrays without dimensions": lambda ns: [np.array(1), np.array(2)],
    "tensors": lambda ns: [ns.ones(2, 3), ns.zeros(2, 3)],
    "tensors without dimensions": lambda ns: [ns.tensor(1), ns.tensor(2)],
    "empty tensors": lambda ns: [ns.ones(0), ns.ones(0)],
    "views": lambda ns: [ns.arange(6).reshape(2, 3).t(), ns.arange(6).reshape(3, 2)],
    "expanded": lambda ns: [ns.ones(1).expand(4), ns.ones(4)],
    "half": lambda ns: [ns.ones(2, dtype=ns.bfloat16), ns.zeros(2, dtype=ns.bfloat16)],
    "gradient": lambda ns: [ns.ones(2, requires_grad=True), ns.zeros(2)],
    "parameters": lambda ns: [ns.nn.Parameter(ns.ones(2))],
    "other element types": lambda ns: [ns.ones(2), ns.ones(2, dtype=ns.float64)],
    "dicts": lambda ns: [{"a": 1, "b": 2.0}, {"b": 3.0, "a": 4}],
    "own dicts": lambda ns: [OwnDict(a=1), OwnDict(a=2)],
    "ordered dicts": lambda ns: [OrderedDict(a=1)],
    "defaultdicts": lambda ns: [defaultdict(list, a=1)],
    "UserDicts": lambda ns: [UserDict({"a": 1}), UserDict({"a": 2})],
    "tuples": lambda ns: [(1, 2.0, "x"), (3, 4.0, "y")],
    "named tuples": lambda ns: [Point(1, ns.ones(1)), Point(3, ns.zeros(1))],
    "lists": lambda ns: [[1, 2], [3, 4]],
    "own lists": lambda ns: [OwnList([1]), OwnList([2])],
    "UserLists": lambda ns: [UserList([1]), UserList([2])],
    "ranges": lambda ns: [range(2), range(2)],
    "nested": lambda ns: [({"a": [ns.ones(1), 2]}, "x"), ({"a": [ns.ones(1), 3]}, "y")],
    "batch as a tuple": lambda ns: (1, 2),
}


@pytest.mark.parametrize("name", BATCHES)
def test_collates_as_pytorch(name: str, torch: ModuleType) -> None:
    agree(lambda ns: described(ns.utils.data.default_collate(BATCHES[name](ns))), torch)


REFUSED = {
    "other lengths": lambda ns: [(1, 2), (3,)],
    "objects": lambda ns: [Opaque()],
    "None": lambda ns: [None],
    "complex": lambda ns: [1j],
    "sets": lambda ns: [{1}],
    "other shapes": lambda ns: [ns.ones(2), ns.ones(3)],
    "other keys": lambda ns: [{"a": 1}, {"b": 1}],
    "nothing": lambda ns: [],
    "arrays of texts": lambda ns: [np.array(["a"])],
    "arrays of objects": lambda ns: [np.array([Opaque()])],
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_as_pytorch(name: str, torch: ModuleType) -> None:
    refuse(lambda ns: ns.utils.data.default_collate(REFUSED[name](ns)), torch)


CONVERTED = {
    "number": lambda ns: 1,
    "text": lambda ns: "a",
    "array": lambda ns: np.ones(2),
    "NumPy number": lambda ns: np.float32(2),
    "array of texts": lambda ns: np.array(["a"]),
    "list": lambda ns: [np.ones(1), 2],
    "tuple": lambda ns: (np.ones(1), ns.ones(1)),
    "named tuple": lambda ns: Point(np.ones(1), 2),
    "dict": lambda ns: {"a": np.ones(1)},
    "own list": lambda ns: OwnList([np.ones(1)]),
    "own dict": lambda ns: OwnDict(a=np.ones(1)),
}


@pytest.mark.parametrize("name", CONVERTED)
def test_converts_as_pytorch(name: str, torch: ModuleType) -> None:
    agree(lambda ns: described(ns.utils.data.default_convert(CONVERTED[name](ns))), torch)


def test_a_batch_is_a_copy() -> None:
    rows = [evergrad.ones(2), evergrad.zeros(2)]
    batch = default_collate(rows)
    rows[0].fill_(7)
    assert batch.tolist() == [[1, 1], [0, 0]]


def test_examples_are_left_as_they_are() -> None:
    examples = [OwnDict(a=1), OwnDict(a=2)]
    default_collate(examples)
    assert examples == [{"a": 1}, {"a": 2}]
    row = OwnList([np.ones(1)])
    default_convert(row)
    assert isinstance(row[0], np.ndarray)


def test_a_type_can_be_entered_with_its_own_function() -> None:
    def together(batch: Any, *, collate_fn_map: Any = None) -> str:
        return f"{len(batch)} of them"

    functions = {**default_collate_fn_map, Opaque: together}
    assert collate([(Opaque(), 1), (Opaque(), 2)], collate_fn_map=functions)[0] == "2 of them"


def test_gradients_pass_through_a_batch() -> None:
    row = evergrad.ones(2, requires_grad=True)
    (default_collate([row, evergrad.zeros(2)]) * 3).sum().backward()
    assert row.grad is not None and row.grad.tolist() == [3, 3]
