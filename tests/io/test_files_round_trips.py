"""What evergrad writes PyTorch reads with ``weights_only=True``, and the other way round."""

from __future__ import annotations

import io
import sys
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from file_tools import FORMATS, archive_of, records, reloaded, written

import evergrad
from evergrad.core import dtypes
from oracle import array_of, assert_equal

NAMES = [t.name for t in dtypes.ALL]


def sample(ns: Any, name: str) -> Any:
    values = ns.arange(12).reshape(3, 4) % 7
    return values.to(getattr(ns, name))


def assert_same_tensor(found: Any, expected: Any) -> None:
    """A tensor of evergrad is one of PyTorch, in its strides as well."""
    assert_equal(found, expected)
    if expected.numel() > 1:
        assert found.stride() == expected.stride()


LOOKS: list[Any] = [
    lambda x: x,
    lambda x: x.t(),
    lambda x: x[1],
    lambda x: x[:, 1],
    lambda x: x[::2, 1:3],
    lambda x: x[0, 0],
    lambda x: x[:0],
    lambda x: x[:, :0],
    lambda x: x[1:2],
    lambda x: x[0:1].expand(5, 4),
    lambda x: x.unfold(1, 2, 1),
    lambda x: x.reshape(3, 1, 4).permute(2, 1, 0),
    lambda x: x.flip(0),
]


@pytest.mark.parametrize("new", FORMATS)
@pytest.mark.parametrize("name", NAMES)
def test_every_type_is_read_by_torch(name: str, new: bool, torch: ModuleType) -> None:
    for look in LOOKS[:4]:
        file = written(evergrad, look(sample(evergrad, name)), new)
        theirs = torch.load(file, weights_only=True)
        assert_equal(look(sample(evergrad, name)), theirs)


@pytest.mark.parametrize("new", FORMATS)
@pytest.mark.parametrize("name", NAMES)
def test_every_type_is_read_from_torch(name: str, new: bool, torch: ModuleType) -> None:
    for look in LOOKS[:4]:
        theirs = look(sample(torch, name))
        assert_same_tensor(evergrad.load(written(torch, theirs, new)), theirs)


@pytest.mark.parametrize("new", FORMATS)
@pytest.mark.parametrize("look", LOOKS)
def test_every_layout(look: Any, new: bool, torch: ModuleType) -> None:
    ours, theirs = look(sample(evergrad, "float32")), look(sample(torch, "float32"))
    assert_same_tensor(evergrad.load(written(torch, theirs, new)), theirs)
    assert_equal(ours, torch.load(written(evergrad, ours, new), weights_only=True))
    assert_equal(reloaded(ours, new), theirs)


def test_dense_layouts_keep_their_strides() -> None:
    x = sample(evergrad, "float32")
    for look in (lambda x: x.t(), lambda x: x.reshape(3, 1, 4).permute(2, 1, 0), lambda x: x):
        assert reloaded(look(x)).stride() == look(x).stride()


@pytest.mark.parametrize("name", ["uint16", "uint32", "float8_e4m3fn", "float8_e5m2"])
def test_types_evergrad_lacks_are_widened(name: str, torch: ModuleType) -> None:
    theirs = torch.tensor([[0, 1, 2], [3, 4, 120]]).to(getattr(torch, name)).t()
    found = evergrad.load(written(torch, {"x": theirs, "y": theirs[1:]}))
    assert found["x"].dtype in (evergrad.int32, evergrad.int64, evergrad.float32)
    assert found["x"].tolist() == theirs.tolist() and found["y"].tolist() == theirs[1:].tolist()
    assert found["x"].stride() == theirs.stride()


def test_a_type_without_a_wider_one_is_refused(torch: ModuleType) -> None:
    with pytest.raises(RuntimeError, match=r"torch\.uint64"):
        evergrad.load(written(torch, torch.tensor([1]).to(torch.uint64)))


OBJECTS: list[Any] = [
    None,
    True,
    0,
    -1,
    2**31,
    -(2**70),
    0.1,
    float("inf"),
    1 + 2j,
    "text é \U0001f600",
    b"bytes \x00\xff",
    b"",
    bytearray(b"\x01\x02"),
    (),
    (1,),
    (1, 2),
    (1, 2, 3),
    (1, 2, 3, 4),
    [],
    [1, [2, [3]]],
    {},
    {"a": 1, 2: "b", (1, "c"): None},
    {1, 2, 3},
    OrderedDict(a=1, b=[2]),
    Counter("abca"),
    list(range(3000)),
    {i: str(i) for i in range(3000)},
]


@pytest.mark.parametrize("new", FORMATS)
@pytest.mark.parametrize("value", OBJECTS, ids=lambda v: f"{type(v).__name__}-{str(v)[:12]}")
def test_plain_objects(value: Any, new: bool, torch: ModuleType) -> None:
    for found in (
        reloaded(value, new),
        torch.load(written(evergrad, value, new), weights_only=True),
        evergrad.load(written(torch, value, new), weights_only=value != b""),
    ):
        assert found == value and type(found) is type(value)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol(protocol: int) -> None:
    x = evergrad.arange(3.0)
    value = {"x": x, "y": [x, b"123", {1}, "é", frozenset([4])], "long": 2**3000}
    file = written(evergrad, value, pickle_protocol=protocol)
    found = evergrad.load(file, weights_only=False)
    assert found["x"] is found["y"][0] and found["x"].tolist() == [0, 1, 2]
    assert found["y"][1:] == value["y"][1:] and found["long"] == 2**3000


@pytest.mark.parametrize("protocol", [0, 1, 6, -1])
def test_other_protocols_are_refused(protocol: int) -> None:
    with pytest.raises(ValueError, match="protocol"):
        evergrad.save(1, io.BytesIO(), pickle_protocol=protocol)


@pytest.mark.parametrize("new", FORMATS)
def test_types_sizes_and_devices(new: bool, torch: ModuleType) -> None:
    def value(ns: Any) -> Any:
        return {
            "dtypes": [getattr(ns, name) for name in NAMES],
            "size": ns.zeros(2, 3).size(),
            "device": ns.device("cpu"),
            "layout": ns.strided,
        }

    ours, theirs = value(evergrad), value(torch)
    assert reloaded(ours, new) == ours and evergrad.load(written(torch, theirs, new)) == ours
    assert torch.load(written(evergrad, ours, new), weights_only=True) == theirs
    assert type(reloaded(ours["size"], new)) is evergrad.Size


@pytest.mark.parametrize("new", FORMATS)
def test_parameters_buffers_and_attributes(new: bool, torch: ModuleType) -> None:
    def value(ns: Any) -> Any:
        weight = ns.nn.Parameter(ns.ones(2))
        frozen = ns.nn.Parameter(ns.ones(2, dtype=ns.int64), requires_grad=False)
        marked = ns.nn.Parameter(ns.ones(2))
        marked.note = "kept"
        plain = ns.ones(3, requires_grad=True)
        plain.note = [1]
        computed = plain * 2
        return [weight, frozen, marked, plain, computed, ns.nn.Buffer(ns.ones(1), persistent=False)]

    for found in (reloaded(value(evergrad), new), evergrad.load(written(torch, value(torch), new))):
        for mine, expected in zip(found, value(torch), strict=True):
            assert_equal(mine, expected)
            assert mine.is_leaf and getattr(mine, "note", None) == getattr(expected, "note", None)
        assert [type(x).__name__ for x in found] == [*["Parameter"] * 3, *["Tensor"] * 2, "Buffer"]
        assert found[5].persistent is False
    theirs = torch.load(written(evergrad, value(evergrad), new), weights_only=True)
    for mine, expected in zip(theirs, value(torch), strict=True):
        assert type(mine) is type(expected) and vars(mine) == vars(expected)


def test_identity_and_cycles() -> None:
    x = evergrad.ones(2)
    value: list[Any] = [x, x, {"again": x}]
    value.append(value)
    found = reloaded(value)
    assert found[0] is found[1] is found[2]["again"] and found[3] is found


def test_saved_gradients_are_not(torch: ModuleType) -> None:
    x = evergrad.ones(2, requires_grad=True)
    x.sum().backward()
    assert reloaded(x).grad is None and reloaded(x).requires_grad


def test_loaded_tensors_are_writable_leaves_that_train() -> None:
    x = evergrad.arange(6.0).reshape(2, 3).requires_grad_()
    for found in (reloaded(x), reloaded({"all": x, "row": x.detach()[0]})["all"]):
        (found * found).sum().backward()
        assert found.grad.tolist() == (2 * x).tolist()
        with evergrad.no_grad():
            found.add_(1)
        assert found.tolist() == (x + 1).tolist()


def test_archives_are_as_torch_writes_them(torch: ModuleType) -> None:
    file = written(evergrad, {"a": evergrad.ones(3), "b": evergrad.zeros(2, dtype=evergrad.int8)})
    own = records(file)
    assert own.keys() >= {"data.pkl", "byteorder", "version", "data/0", "data/1"}
    assert own["byteorder"] == sys.byteorder.encode() and own["version"] == b"3\n"
    assert "byteorder" not in records(written(evergrad, 1, _disable_byteorder_record=True))
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        raw = file.getvalue()
        for info in archive.infolist():
            names = len(info.filename) + int.from_bytes(
                raw[info.header_offset + 28 :][:2], "little"
            )
            assert (info.header_offset + 30 + names) % 64 == 0


def test_large_records_have_64_bit_sizes(
    torch: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    path = tmp_path / "large.pt"
    evergrad.save([evergrad.arange(1000), evergrad.arange(3)], path)
    monkeypatch.undo()
    for mmap in (False, True):
        assert evergrad.load(path, mmap=mmap)[0].tolist() == list(range(1000))
        assert torch.load(path, mmap=mmap)[1].tolist() == [0, 1, 2]


def test_the_other_byte_order() -> None:
    contents = records(written(evergrad, [evergrad.arange(5, dtype=evergrad.int32) * 1000]))
    contents["byteorder"] = b"big"
    contents["data/0"] = np.frombuffer(contents["data/0"], "<i4").astype(">i4").tobytes()
    (found,) = evergrad.load(archive_of(contents))
    assert found.tolist() == [0, 1000, 2000, 3000, 4000]


def test_files_of_torch_without_checksums(torch: ModuleType) -> None:
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        file = written(torch, torch.arange(4))
    finally:
        torch.serialization.set_crc32_options(before)
    assert evergrad.load(file).tolist() == [0, 1, 2, 3]


def test_two_legacy_objects_in_one_file(torch: ModuleType) -> None:
    file = io.BytesIO()
    for value in (evergrad.arange(3), {"second": evergrad.ones(2)}):
        evergrad.save(value, file, _use_new_zipfile_serialization=False)
    file.seek(0)
    assert evergrad.load(file).tolist() == [0, 1, 2]
    assert evergrad.load(file)["second"].tolist() == [1, 1]


def test_an_archive_inside_another_file(torch: ModuleType) -> None:
    inner = written(torch, torch.arange(3)).getvalue()
    file = io.BytesIO(b"before" + inner)
    file.seek(6)
    assert evergrad.load(file).tolist() == [0, 1, 2]


def test_paths_and_objects_that_only_write(tmp_path: Path) -> None:
    class Sink:
        def __init__(self) -> None:
            self.data = b""

        def write(self, data: Any) -> int:
            self.data += bytes(data)
            return len(data)

        def flush(self) -> None:
            pass

    sink = Sink()
    evergrad.save(evergrad.arange(3), sink)
    assert evergrad.load(io.BytesIO(sink.data)).tolist() == [0, 1, 2]
    evergrad.save(evergrad.arange(3), str(tmp_path / "x.pt"))
    with open(tmp_path / "x.pt", "rb", buffering=0) as raw:
        assert evergrad.load(raw).tolist() == [0, 1, 2]


def test_array_of_is_exact(torch: ModuleType) -> None:
    """Every bit arrives, those of NaNs and infinities as well."""
    bits = np.arange(65536, dtype=np.uint16)
    ours = evergrad.from_numpy(bits.view(np.float16).copy())
    theirs = torch.load(written(evergrad, ours))
    assert array_of(theirs).tobytes() == bits.tobytes()
    assert array_of(evergrad.load(written(torch, theirs))).tobytes() == bits.tobytes()
