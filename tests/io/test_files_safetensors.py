"""safetensors files: exchanged with the package, mapped, never half-written."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import evergrad
from evergrad import memory, nn
from evergrad.core import dtypes
from evergrad.errors import FileFormatError
from evergrad.io import safetensors as st

TYPES = [t for t in dtypes.ALL if t is not evergrad.complex128]
FLOAT8 = [
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2fnuz,
]


def tensors() -> dict[str, Any]:
    made = {t.name: (evergrad.arange(6).reshape(2, 3) % 5).to(t) for t in TYPES}
    return {**made, "zero": evergrad.tensor(2.5), "empty": evergrad.zeros(0, 3)}


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype is tensor.dtype and found[name].shape == tensor.shape
        assert found[name].array().tobytes() == tensor.array().tobytes()


def test_round_trips(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    st.save_file(tensors(), path, metadata={"made by": "a test"})
    same(st.load_file(path), tensors())
    same(evergrad.load(path), tensors())
    same(evergrad.load(str(path), map_location="cpu"), tensors())
    same(st.load(st.save(tensors())), tensors())
    with st.safe_open(path) as file:
        assert file.metadata() == {"made by": "a test"}
        assert file.keys() == sorted(tensors()) and set(file.offset_keys()) == set(tensors())
    assert os.listdir(tmp_path) == [path.name]


def test_the_package_reads_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    st.save_file(tensors(), path)
    plain = {k: v for k, v in tensors().items() if v.dtype is not evergrad.bfloat16}
    found = safetensors.numpy.load_file(path)
    for name, tensor in plain.items():
        np.testing.assert_array_equal(found[name], tensor.array())
    assert st.save(plain) == safetensors.numpy.save({k: v.array() for k, v in plain.items()})


def test_what_the_package_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    arrays = {k: v.array() for k, v in tensors().items()}
    safetensors.numpy.save_file(arrays, path, metadata={"a": "b"})
    same(st.load_file(path), tensors())


def test_exchange_with_torch(torch: ModuleType, tmp_path: Path) -> None:
    theirs = pytest.importorskip("safetensors.torch", reason="safetensors.torch needs PyTorch")
    path = tmp_path / "x.safetensors"
    st.save_file(tensors(), path)
    found = theirs.load_file(path)
    assert found["bfloat16"].dtype is torch.bfloat16
    assert {k: v.tolist() for k, v in found.items()} == {
        k: v.tolist() for k, v in tensors().items()
    }
    theirs.save_file(found, path)
    same(st.load_file(path), tensors())


@pytest.mark.parametrize("kind", FLOAT8, ids=lambda kind: np.dtype(kind).name)
def test_float8(kind: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    array = np.arange(256, dtype=np.uint8).view(kind).reshape(16, 16)
    st.save_file({"x": array}, path)
    found = st.load_file(path)["x"]
    assert found.dtype is evergrad.float32  # which holds every float8
    np.testing.assert_array_equal(found.array(), array.astype(np.float32))
    with st.safe_open(path) as file:
        exact = file.get_array("x")
        assert exact.dtype == kind and exact.tobytes() == array.tobytes()
        assert file.get_slice("x").get_dtype().startswith("F8_")


def test_unsigned_integers(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    st.save_file({"a": np.array([65535], np.uint16), "b": np.array([2**32 - 1], np.uint32)}, path)
    found = st.load_file(path)
    assert found["a"].dtype is evergrad.int32 and found["a"].item() == 65535
    assert found["b"].dtype is evergrad.int64 and found["b"].item() == 2**32 - 1
    st.save_file({"c": np.array([2**64 - 1], np.uint64)}, path)
    with pytest.raises(TypeError, match=r"U64.*get_array"):
        st.load_file(path)
    with st.safe_open(path) as file:
        assert file.get_array("c").tolist() == [2**64 - 1]


def test_slices(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    st.save_file({"x": evergrad.arange(20).reshape(4, 5)}, path)
    with st.safe_open(path) as file:
        part = file.get_slice("x")
        assert part.get_shape() == [4, 5] and part.get_dtype() == "I64"
        assert part[1:3, ::2].tolist() == [[5, 7, 9], [10, 12, 14]]
        with pytest.raises(FileFormatError, match="does not contain tensor y"):
            file.get_tensor("y")


def test_files_are_mapped(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    st.save_file({str(i): evergrad.ones(1 << 22) for i in range(4)}, path)  # 64 MB
    live = memory.stats()["live"]
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    found = st.load_file(path)
    touched = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    assert touched * resource.getpagesize() < 8 << 20 and memory.stats()["live"] == live
    found["2"].zero_()
    assert found["2"].sum().item() == 0 and st.load_file(path)["2"].sum().item() == 1 << 22


def test_models(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    net, other = nn.Linear(3, 4), nn.Linear(3, 4)
    st.save_file(net.state_dict(), path)
    other.load_state_dict(st.load_file(path))
    assert other.weight.tolist() == net.weight.tolist()
    other.weight.data.add_(1)
    assert st.load_file(path)["weight"].tolist() == net.weight.tolist()


def test_tensors_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    x = evergrad.arange(6).reshape(2, 3)
    for value, error, match in (
        ({"a": x, "b": x[0]}, RuntimeError, "share memory"),
        ({"a": x.t()}, ValueError, "non contiguous"),
        ({"a": evergrad.ones(1, dtype=evergrad.complex128)}, ValueError, "complex128"),
        ({"a": [1, 2]}, ValueError, "expected Tensor"),
        ([x], ValueError, "Expected a dict"),
        ({"a": np.ones(2, ">f4")}, ValueError, "f4"),
    ):
        with pytest.raises(error, match=match):
            st.save_file(value, path)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_broken_files(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    whole = st.save({"x": evergrad.arange(5), "y": evergrad.ones(2)})
    header = int.from_bytes(whole[:8], "little")
    table = json.loads(whole[8 : 8 + header])
    table["x"]["shape"] = [1 << 40]
    lying = json.dumps(table).encode()
    cases = [whole[:n] for n in range(1, len(whole))]
    cases += [
        (1 << 60).to_bytes(8, "little") + whole[8:],
        len(lying).to_bytes(8, "little") + lying + whole[8 + header :],
        whole[:8] + b"{" * header + whole[8 + header :],
        whole + b"more",
    ]
    for data in cases:
        path.write_bytes(data)
        with pytest.raises(FileFormatError):
            st.load_file(path)
        with pytest.raises(FileFormatError):
            st.load(data)
    with pytest.raises(FileNotFoundError):
        st.load_file(tmp_path / "none.safetensors")


def test_places(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    st.save_file({"x": evergrad.ones(1)}, path)
    assert st.load_file(path, device=evergrad.device("cpu"))["x"].item() == 1
    with pytest.raises(RuntimeError, match="CUDA"):
        st.load_file(path, device="cuda")
    with pytest.raises(RuntimeError, match="not supported"):
        evergrad.load(path, map_location={"cuda": "cpu"})
