"""Sparse tensors in files, in every direction, and what is wrong with hostile ones."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from file_tools import FORMATS, archive_of, records, reloaded, written

import evergrad
from evergrad.errors import FileFormatError


def samples(ns: Any) -> dict[str, Any]:
    dense = ns.tensor([[0.0, 1.0, 0.0], [2.0, 0.0, 3.0]])
    return {
        "coo": dense.to_sparse(),
        "loose": ns.sparse_coo_tensor([[0, 0, 1], [2, 2, 0]], [1.0, 2.0, 3.0], (2, 3)),
        "hybrid": ns.sparse_coo_tensor([[1, 0]], [[1.0, 2.0], [3.0, 4.0]], (3, 2)),
        "empty": ns.sparse_coo_tensor(ns.zeros(2, 0, dtype=ns.int64), ns.zeros(0), (2, 2)),
        "csr": dense.to_sparse_csr(),
        "csc": dense.to_sparse_csc(),
    }


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("new", FORMATS)
@pytest.mark.parametrize("name", ["coo", "loose", "hybrid", "empty", "csr", "csc"])
def test_sparse_tensors(name: str, new: bool, torch: ModuleType) -> None:
    theirs, ours = samples(torch)[name], samples(evergrad)[name]
    for found in (
        reloaded([ours], new)[0],
        evergrad.load(written(torch, [theirs], new))[0],
        torch.load(written(evergrad, [ours], new), weights_only=True)[0],
    ):
        assert str(found.layout).split(".")[1] == str(theirs.layout).split(".")[1]
        assert found.to_dense().tolist() == theirs.to_dense().tolist()
        if "cs" not in name:
            assert found._indices().tolist() == theirs._indices().tolist()
            assert found.is_coalesced() == theirs.is_coalesced()


@pytest.mark.parametrize("new", FORMATS)
@pytest.mark.parametrize("name", ["coo", "csr"])
def test_indices_outside_the_shape_are_refused(name: str, new: bool) -> None:
    wrong = samples(evergrad)[name]
    (wrong._indices() if name == "coo" else wrong.col_indices()).fill_(1000)
    with pytest.raises(FileFormatError, match="a sparse tensor is wrong"):
        reloaded(wrong, new)


def test_a_sparse_tensor_larger_than_the_file_is_refused() -> None:
    contents = records(written(evergrad, samples(evergrad)["hybrid"]))
    huge = contents["data.pkl"].replace(b"K\x01K\x02\x86", b"K\x01J\x00\x00\x00\x40\x86")
    huge = huge.replace(b"K\x02K\x01\x86", b"K\x00K\x00\x86")
    assert huge != contents["data.pkl"]
    with pytest.raises(FileFormatError, match="larger than the file"):
        evergrad.load(archive_of({**contents, "data.pkl": huge}))
