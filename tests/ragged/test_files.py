"""Values in files: what is written is read again, and damaged files are refused."""

from __future__ import annotations

import json
import math
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import ragged
from evergrad.errors import FileFormatError
from evergrad.io.safetensors import safe_open, save_file


def test_values_by_name(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "vector": ragged.tensor([1.0, 2.0, 0.0]),
        "number": ragged.tensor(3),
        "zero": ragged.zero(),
        "cube": ragged.tensor(np.arange(8.0).reshape(2, 2, 2), eg.float64),
        "transposed": ragged.Tensor(eg.arange(6.0).reshape(2, 3).t()),
        "streams": ragged.batch([[1.0], [], [2.0, 3.0]]),
        "matrix": ragged.batch([[[1.0, 2.0]], [3.0]]).reshape(2, 1),
    }
    ragged.save(values, tmp_path / "values.safetensors")
    found = ragged.load(tmp_path / "values.safetensors")
    assert found.keys() == values.keys()
    for name, value in values.items():
        assert found[name].layout == value.layout and found[name].dtype is value.dtype
        assert found[name] == value
    assert found["matrix"].batch_shape == (2, 1)  # type: ignore[union-attr]


def test_elements_are_stored_without_padding(tmp_path: Path) -> None:
    path = tmp_path / "values.safetensors"
    ragged.save({"streams": ragged.batch([np.ones(n) for n in (2, 3, 1000)])}, path)
    with safe_open(path) as file:
        assert file.get_tensor("streams").shape == (1005,)
        assert "shapes" in (file.metadata() or {})["evergrad.ragged"]


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"x": eg.ones(3)}, path)
    with pytest.raises(FileFormatError, match="no ragged values"):
        ragged.load(path)
    for entry in [
        '{"version": 1, "values": {"x": {"shape": [4]}}}',
        '{"version": 1, "values": {"y": {"shape": [3]}}}',
        '{"version": 1, "values": {"x": {"shapes": [[1]], "batch_shape": [1]}}}',
        '{"version": 1, "values": {"x": {}}}',
        '{"version": 1, "values": {"x": {"shape": [-1]}}}',
        '{"version": 1, "values": {"x": {"shape": [3.0]}}}',
        '{"version": 1, "values": {"x": {"shapes": [[3], []], "batch_shape": [2]}}}',
        '{"version": 1, "values": {"x": {"shapes": [[3]], "batch_shape": [1.0]}}}',
        '{"version": 1, "values": {"x": {"shapes": [[3], [0, 1e30]], "batch_shape": [2]}}}',
        '{"version": 1, "values": {"x": {"shapes": [[3], [0, 1N]], "batch_shape": [2]}}}',
        '{"version": 1, "values": {"x": {"shapes": [[3M]], "batch_shape": [1]}}}',
    ]:
        entry = entry.replace("1N", str(10**30)).replace("3M", "3" + 70 * ", 1")
        save_file({"x": eg.ones(3)}, path, {"evergrad.ragged": entry})
        with pytest.raises(FileFormatError, match="do not go with"):
            ragged.load(path)
    save_file({"x": eg.ones(3)}, path, {"evergrad.ragged": '{"version": 2}'})
    with pytest.raises(FileFormatError, match="version 1"):
        ragged.load(path)
    with pytest.raises(TypeError, match="not a ragged value"):
        ragged.save({"x": eg.ones(3)}, path)  # type: ignore[dict-item]


# -- CSV ----------------------------------------------------------------------------------------


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "values.csv"
    streams = ragged.batch([[0.1, 1e-300], [], [2.5]], eg.float64)
    ragged.write_csv(streams, path)
    assert path.read_text() == "0.1,1e-300\n\n2.5\n"
    assert ragged.read_csv(path) == streams
    ragged.write_csv(ragged.tensor([[1.0, 2.0], [3.0, 4.0]]), path)
    assert ragged.read_csv(path).tolist() == [[1, 2], [3, 4]]
    ragged.write_csv(ragged.tensor([1.0, 2.0]), path)
    assert ragged.read_csv(path, eg.float32).dtype is eg.float32
    path.write_text("1,2\n3,x\n")
    with pytest.raises(FileFormatError, match="line 2"):
        ragged.read_csv(path)
    with pytest.raises(ValueError, match="only vectors"):
        ragged.write_csv(ragged.tensor(np.ones((1, 1, 1))), path)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([2**60 + 1, -(2**63), 3], "int64"),
        ([1 + 2j, -0.5j, 0j], "complex128"),
        ([True, False], "bool"),
        ([math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308], "float64"),
        ([0.1, 1e-45], "float32"),
    ],
)
def test_csv_keeps_every_number(tmp_path: Path, values: Any, dtype: str) -> None:
    kind = getattr(eg, dtype)
    ragged.write_csv(ragged.tensor(eg.tensor(values, dtype=kind)), tmp_path / "x.csv")
    (found,) = ragged.read_csv(tmp_path / "x.csv", kind)
    assert found.dtype is kind
    assert found.dense.numpy().tobytes() == eg.tensor(values, dtype=kind).numpy().tobytes()


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (b"1,\xff\n", None), (b"1,2,\n", None), (b"1_000\n", None), (b"1.5\n", "int64"),
        (b"9223372036854775808\n", "int64"), (b"300\n", "uint8"), (b"yes\n", "bool"),
        (b'"1\n', None), (b"1;2\n", None), (b"0x10\n", None),
    ],
)  # fmt: skip
def test_csv_of_something_else_is_refused(tmp_path: Path, data: bytes, dtype: Any) -> None:
    (tmp_path / "x.csv").write_bytes(data)
    with pytest.raises(FileFormatError):
        ragged.read_csv(tmp_path / "x.csv", None if dtype is None else getattr(eg, dtype))


def test_an_empty_csv_file_is_an_empty_batch(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"")
    assert ragged.read_csv(path).dtype is eg.float64
    assert ragged.read_csv(path, eg.int8).dtype is eg.int8 and len(ragged.read_csv(path)) == 0


def test_csv_of_other_programs(tmp_path: Path) -> None:
    """A byte order mark, the line ends of Windows, spaces, quotes, an empty line, no last end."""
    (tmp_path / "x.csv").write_bytes(b'\xef\xbb\xbf1, 2\r\n\r\n"3",-4e1')
    assert ragged.read_csv(tmp_path / "x.csv").tolist() == [[1, 2], [], [3, -40]]
    (tmp_path / "x.csv").write_bytes(b"")
    assert len(ragged.read_csv(tmp_path / "x.csv")) == 0


# -- .vsla --------------------------------------------------------------------------------------


def vsla(
    array: np.ndarray[Any, Any], order: str = "<", capacity: Any = None, **changed: Any
) -> bytes:
    """The bytes of a file of version 1, with junk outside the shape."""
    code = {"float64": 0, "float32": 1}[array.dtype.name]
    capacity = capacity or tuple(1 << (n - 1).bit_length() for n in array.shape)
    whole = np.full(capacity, 7.0, array.dtype)
    whole[tuple(slice(0, n) for n in array.shape)] = array
    strides = whole.strides
    head = {"order": int(order == ">"), "rank": array.ndim, "model": 0, "dtype": code} | changed
    return (
        b"VSLAv01\0" + bytes(head.values()) + bytes(4)
        + struct.pack(f"{order}{3 * array.ndim}Q", *array.shape, *capacity, *strides)
        + whole.astype(whole.dtype.newbyteorder(order)).tobytes()
    )  # fmt: skip


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1,), (3,), (5, 3), (2, 3, 5)])
def test_vsla_files_are_read(tmp_path: Path, shape: Any, dtype: Any, order: str) -> None:
    array = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    (tmp_path / "x.vsla").write_bytes(vsla(array, order))
    found = ragged.read_vsla(tmp_path / "x.vsla")
    assert found.numpy().dtype == dtype
    np.testing.assert_array_equal(found.numpy(), array)
    assert (found + found).shape == shape  # in memory of its own, in native order


def test_damaged_vsla_files_are_refused(tmp_path: Path) -> None:
    good = vsla(np.ones((3, 2)))
    path = tmp_path / "x.vsla"
    bad = [
        b"", good[:7], good[:15], good[:40], good[:-1], good + b"\0", b"VSLAv02\0" + good[8:],
        vsla(np.ones(3), order="<", dtype=9), vsla(np.ones(3), model=5), vsla(np.ones(3), rank=0),
        good[:16] + struct.pack("<Q", 9) + good[24:],  # a shape beyond the capacity
        good[:48] + struct.pack("<Q", 8) + good[56:],  # strides of another order
        good[:32] + struct.pack("<Q", 1 << 60) + good[40:],  # an absurd capacity
    ]  # fmt: skip
    for data in bad:
        path.write_bytes(data)
        with pytest.raises(FileFormatError, match=r"no valid \.vsla"):
            ragged.read_vsla(path)


def test_hostile_vsla_headers_are_refused_or_read(tmp_path: Path) -> None:
    """Each byte of the header changed to some others: a value or an error that names the file, and
    never more memory than the file has."""
    good, path = vsla(np.ones((3, 2), np.float32), capacity=(4, 2)), tmp_path / "x.vsla"
    for place in range(16 + 48):
        for byte in (0, 1, 2, 127, 255):
            path.write_bytes(good[:place] + bytes([byte]) + good[place + 1 :])
            try:
                assert ragged.read_vsla(path).numel() <= 8
            except FileFormatError as error:
                assert "x.vsla" in str(error)


def test_empty_dimensions_of_vsla_files_cannot_be_absurd(tmp_path: Path) -> None:
    head = b"VSLAv01\0" + bytes([0, 2, 0, 0]) + bytes(4)
    numbers = struct.pack("<6Q", 0, 1 << 60, 0, 1 << 60, 1 << 63, 8)
    (tmp_path / "x.vsla").write_bytes(head + numbers)
    try:
        assert ragged.read_vsla(tmp_path / "x.vsla").numel() == 0
    except FileFormatError as error:
        assert "x.vsla" in str(error)


def test_names_and_layouts_that_no_file_can_have(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="metadata"):
        ragged.save({"__metadata__": ragged.one()}, tmp_path / "x")
    assert not (tmp_path / "x").exists()
    entry = {"version": 1, "values": {"a": {"shapes": [[1.5], [1]], "batch_shape": [2]}}}
    save_file({"a": eg.ones(2)}, tmp_path / "y", {"evergrad.ragged": json.dumps(entry)})
    with pytest.raises(FileFormatError, match="shapes"):
        ragged.load(tmp_path / "y")


def test_numbers_of_csv_beyond_the_type_are_infinite(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("70000,1\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ragged.read_csv(tmp_path / "x", eg.float16).tolist() == [[float("inf"), 1]]
