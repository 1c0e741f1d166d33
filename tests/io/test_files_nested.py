"""Nested tensors in files, in every direction, and what is wrong with hostile ones."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import pytest
from file_tools import FORMATS, archive_of, records, reloaded, written

import evergrad
from evergrad.errors import FileFormatError

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


def samples(ns: Any) -> dict[str, Any]:
    parts = [ns.ones(2, 3), ns.zeros(0, 3), 2 * ns.ones(1, 3)]
    values, offsets = ns.arange(12.0).reshape(6, 2), ns.tensor([0, 2, 5])
    jagged = ns.nested.nested_tensor_from_jagged
    return {
        "jagged": ns.nested.nested_tensor(parts, layout=ns.jagged, requires_grad=True),
        "integers": ns.nested.nested_tensor([ns.tensor([1, 2]), ns.tensor([3])], layout=ns.jagged),
        "lengths": jagged(values, offsets, lengths=ns.tensor([1, 3])),
        "last": ns.nested.nested_tensor([ns.ones(2, 3), ns.ones(2, 1)], layout=ns.jagged),
        "strided": ns.nested.nested_tensor([ns.ones(2, 3), ns.ones(1, 4)]),
    }


def parts_of(x: Any) -> Any:
    return [part.tolist() for part in x.unbind()]


@pytest.mark.parametrize("new", FORMATS)
@pytest.mark.parametrize("name", samples(evergrad))
def test_nested_tensors(name: str, new: bool, torch: ModuleType) -> None:
    theirs, ours = samples(torch)[name], samples(evergrad)[name]
    found = [reloaded([ours], new)[0]]
    if name != "strided":
        found.append(torch.load(written(evergrad, [ours], new), weights_only=True)[0])
    if name != "strided" or new:
        found.append(evergrad.load(written(torch, [theirs], new))[0])
    for each in found:
        assert each.is_nested and each.requires_grad == theirs.requires_grad
        assert str(each.layout).split(".")[1] == str(theirs.layout).split(".")[1]
        assert str(each.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
        assert parts_of(each) == parts_of(theirs)


def test_values_and_offsets_stay_those_of_other_tensors() -> None:
    x = samples(evergrad)["jagged"]
    values, again = reloaded([x.values().detach(), x])
    values.fill_(5.0)
    assert parts_of(again)[2] == [[5.0] * 3]
    (again * 2).values().sum().backward()
    assert again.grad.values().tolist() == [[2.0] * 3] * 3


@pytest.mark.parametrize("change", [
    lambda x: x.offsets().fill_(1000), lambda x: x.offsets().fill_(-1),
    lambda x: x.offsets().copy_(evergrad.tensor([3, 2, 1, 0])),
])  # fmt: skip
@pytest.mark.parametrize("new", FORMATS)
def test_offsets_outside_the_values_are_refused(change: Any, new: bool) -> None:
    wrong = samples(evergrad)["jagged"]
    change(wrong)
    with pytest.raises(FileFormatError, match="a nested tensor is wrong"):
        reloaded(wrong, new)


def test_wrong_lengths_are_refused() -> None:
    for lengths in (-1, 100):
        wrong = samples(evergrad)["lengths"]
        wrong.lengths().fill_(lengths)
        with pytest.raises(FileFormatError, match="a nested tensor is wrong"):
            reloaded(wrong)


@pytest.mark.parametrize(("before", "after"), [
    (rb"offsets", rb"offsetz"), (rb"values", rb"valuez"),
    (rb"(_ragged_idxq.K)\x01", b"\\g<1>\x09"), (rb"(_ragged_idxq.K)\x01", b"\\g<1>\x00"),
])  # fmt: skip
def test_parts_that_are_none_are_refused(before: bytes, after: bytes) -> None:
    contents = records(written(evergrad, samples(evergrad)["jagged"]))
    changed = re.sub(before, after, contents["data.pkl"], flags=re.DOTALL)
    assert changed != contents["data.pkl"]
    with pytest.raises(FileFormatError):
        evergrad.load(archive_of({**contents, "data.pkl": changed}))
