"""Tensors that share memory still do after loading, and a view saves only what it sees."""

from __future__ import annotations

import gc
from collections import deque
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from file_tools import FORMATS, records, reloaded, written

import evergrad
from evergrad import memory


def stored_bytes(obj: Any) -> list[int]:
    """The sizes of the storages that are written for an object."""
    contents = records(written(evergrad, obj))
    return [len(data) for name, data in contents.items() if name.startswith("data/")]


def sharing(ns: Any) -> Any:
    x = ns.arange(20.0)
    m = x.reshape(4, 5)
    return [x[2:5], m[1:3], m.t()[1], x[3], x[:0]]


@pytest.mark.parametrize("new", FORMATS)
def test_sharing_is_kept_in_every_direction(new: bool, torch: ModuleType) -> None:
    for load, file in (
        (evergrad.load, written(evergrad, sharing(evergrad), new)),
        (evergrad.load, written(torch, sharing(torch), new)),
        (torch.load, written(evergrad, sharing(evergrad), new)),
    ):
        found = load(file)
        assert [x.tolist() for x in found] == [x.tolist() for x in sharing(torch)]
        found[0].fill_(-1)  # elements 2, 3, 4 of the storage
        assert found[3].item() == -1 and found[1][0].tolist() == [5, 6, 7, 8, 9]
        found[1][0, 1] = 60
        assert found[2].tolist() == [1, 60, 11, 16]


def test_several_views_store_the_span_they_cover() -> None:
    x = evergrad.arange(1000.0)
    assert stored_bytes([x[100:110], x[105:120]]) == [20 * 4]
    assert stored_bytes([x[100], x[109]]) == [10 * 4]
    found = reloaded({"a": x[100:110], "b": x[105:120]})
    assert found["a"]._storage is found["b"]._storage
    found["a"][5] = 0
    assert found["b"][0].item() == 0


@pytest.mark.parametrize(
    "look, elements",
    [
        (lambda x: x[3:5], 200),
        (lambda x: x[:, 0], 100),
        (lambda x: x[::3, ::7], 34 * 15),
        (lambda x: x.t()[2:4], 200),
        (lambda x: x[0, 0], 1),
        (lambda x: x[4, :0], 0),
        (lambda x: x[0:1].expand(50, 100), 100),
        (lambda x: x[0:2, 0:1].expand(2, 70), 2),
        (lambda x: x[0].unfold(0, 10, 1), 100),
        (lambda x: x, 10_000),
        (lambda x: x.t(), 10_000),
    ],
)
def test_a_view_alone_stores_only_what_it_sees(look: Any, elements: int, torch: ModuleType) -> None:
    view = look(evergrad.arange(10_000).reshape(100, 100))
    for obj in (view, [view, view], [view, view.detach()]):
        assert stored_bytes(obj) == [elements * 8]
    assert reloaded(view).tolist() == view.tolist()
    assert torch.load(written(evergrad, view)).tolist() == view.tolist()


def test_a_storage_is_written_once() -> None:
    x = evergrad.ones(100)
    assert stored_bytes({"a": x, "b": x, "c": x.reshape(10, 10), "d": x.detach()}) == [400]
    net = evergrad.nn.Linear(4, 4, bias=False)
    other = evergrad.nn.Linear(4, 4, bias=False)
    other.weight = net.weight
    state = {"net": net.state_dict(), "other": other.state_dict()}
    assert stored_bytes(state) == [64]
    found = reloaded(state)
    found["net"]["weight"].zero_()
    assert found["other"]["weight"].tolist() == [[0.0] * 4] * 4


def test_memory_of_arrays_with_gaps() -> None:
    base = np.arange(24.0).reshape(4, 6)
    for array in (base[:, ::2], base.T, base[1:3, 2:4], base[:, 1]):
        tensor = evergrad.from_numpy(array)
        assert stored_bytes(tensor) == [array.size * 8]
        assert reloaded(tensor).tolist() == array.tolist()
        assert reloaded([tensor, tensor[1:]])[1].tolist() == array[1:].tolist()


@pytest.mark.parametrize("new", FORMATS)
def test_storages_by_themselves(new: bool, torch: ModuleType) -> None:
    x = torch.arange(3, dtype=torch.uint8)
    found = evergrad.load(written(torch, [x.untyped_storage(), x], new))
    assert found[0] == found[1].untyped_storage() and found[0].tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="save a tensor on them"):
        written(evergrad, [evergrad.ones(3).untyped_storage()], new)


def test_one_storage_as_two_types_is_refused(torch: ModuleType) -> None:
    for ns in (torch, evergrad):
        x = ns.zeros(4, dtype=ns.complex64)
        with pytest.raises(RuntimeError, match="view the same data as different types"):
            written(ns, [x, ns.view_as_real(x)])


def test_tensors_made_anew_by_each_pickling() -> None:
    class Fresh:
        def __reduce__(self) -> Any:
            return (deque, ([evergrad.ones(3), evergrad.zeros(2)],))

    found = reloaded([Fresh(), evergrad.ones(1)], weights_only=False)
    assert [x.tolist() for x in found[0]] == [[1, 1, 1], [0, 0]] and found[1].tolist() == [1]


def test_a_tensor_that_looks_elsewhere_at_each_pickling_is_refused() -> None:
    base = evergrad.arange(10)
    starts = iter(range(10))

    class Moving:
        def __reduce__(self) -> Any:
            return (deque, ([base[next(starts) :][:3]],))

    with pytest.raises(RuntimeError, match="while it was saved"):
        written(evergrad, Moving())


def test_the_ledger_counts_what_is_loaded() -> None:
    file = written(evergrad, [evergrad.ones(1000), evergrad.ones(500)[:10]])
    gc.collect()  # what errors of other tests still hold
    before = memory.stats()["live"]
    found = evergrad.load(file)
    assert memory.stats()["live"] - before == 4000 + 40
    del found
    assert memory.stats()["live"] == before
