"""The arguments of ``save`` and ``load``, and what they refuse."""

from __future__ import annotations

import gc
import inspect
import io
import pickle
import resource
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from file_tools import FORMATS, archive_of, records, reloaded, written

import evergrad
from evergrad import memory
from evergrad.errors import FileFormatError, UnsafeFileError
from evergrad.serialization import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    get_unsafe_globals_in_checkpoint,
    safe_globals,
)
from twins import refuse


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


class Slotted:
    __slots__ = ("a",)

    def __init__(self, a: Any) -> None:
        self.a = a


class Shelf(list[Any]):
    pass


def double(x: int) -> int:
    return 2 * x


def test_signatures_are_those_of_torch(torch: ModuleType) -> None:
    for name in ("save", "load"):
        ours = inspect.signature(getattr(evergrad, name)).parameters
        theirs = inspect.signature(getattr(torch, name)).parameters
        assert [(p.name, p.kind, p.default) for p in ours.values()] == [
            (p.name, p.kind, p.default) for p in theirs.values()
        ]
    for name in evergrad.serialization.__all__:
        assert hasattr(torch.serialization, name)


def test_names_are_imported_late() -> None:
    from evergrad import io as files

    assert evergrad.save is files.save and evergrad.load is files.load


# -- mmap -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["ours", "theirs"])
def test_mapped_files(library: str, torch: ModuleType, tmp_path: Path) -> None:
    ns = evergrad if library == "ours" else torch
    path = tmp_path / "x.pt"
    ns.save({"a": ns.arange(10), "b": ns.ones(3, 4).t(), "c": ns.zeros(0)}, path)
    before = path.read_bytes()
    live = memory.stats()["live"]
    found = evergrad.load(path, mmap=True)
    assert memory.stats()["live"] == live  # the memory is the file's
    assert found["a"].tolist() == list(range(10)) and found["b"].shape == (4, 3)
    found["a"].add_(1)  # a private copy of the page
    assert found["a"].tolist() == list(range(1, 11)) and path.read_bytes() == before


def test_a_mapped_file_is_not_read_before_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "large.pt"
    evergrad.save([evergrad.ones(1 << 22) for _ in range(4)], path)  # 64 MB
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = before.ru_minflt + before.ru_majflt
    found = evergrad.load(path, mmap=True)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert (after.ru_minflt + after.ru_majflt - start) * resource.getpagesize() < 8 << 20
    assert found[3][-1].item() == 1


def test_mmap_needs_a_path_and_the_new_format(torch: ModuleType, tmp_path: Path) -> None:
    refuse(lambda ns: ns.load(written(ns, 1), mmap=True), torch, "path")
    evergrad.save(1, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    refuse(lambda ns: ns.load(tmp_path / "old.pt", mmap=True), torch, "mmap can only be used")


# -- map_location ---------------------------------------------------------------------------------


def on_gpu(new: bool) -> io.BytesIO:
    """A file whose tensor was on an accelerator."""
    file = written(evergrad, {"x": evergrad.arange(3), "on": evergrad.device("cpu")}, new)
    change = (b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:1")
    if not new:
        return io.BytesIO(file.getvalue().replace(*change))
    contents = records(file)
    contents["data.pkl"] = contents["data.pkl"].replace(*change)
    return archive_of(contents)


PLACES: list[Any] = [
    lambda ns: "cpu",
    lambda ns: ns.device("cpu"),
    lambda ns: {"cuda:1": "cpu"},
    lambda ns: lambda storage, location: storage,
    lambda ns: lambda storage, location: storage.cpu(),
]
WRONG_PLACES: list[Any] = [
    lambda ns: None,
    lambda ns: "cuda",
    lambda ns: {"cuda:0": "cpu"},
    lambda ns: lambda storage, location: None,
    lambda ns: "nowhere",
    lambda ns: 3,
]


@pytest.mark.parametrize("new", FORMATS)
@pytest.mark.parametrize("place", PLACES)
def test_places(place: Any, new: bool, torch: ModuleType) -> None:
    assert evergrad.load(written(torch, torch.arange(3), new), place(evergrad)).tolist() == [
        0,
        1,
        2,
    ]
    contents = written(evergrad, {"x": evergrad.arange(3)}, new)
    assert torch.load(contents, place(torch))["x"].tolist() == [0, 1, 2]
    if not callable(place(evergrad)):  # a function is asked about storages only
        found = evergrad.load(on_gpu(new), map_location=place(evergrad))
        assert found["x"].tolist() == [0, 1, 2] and found["on"] == evergrad.device("cpu")


@pytest.mark.parametrize("place", WRONG_PLACES)
def test_wrong_places(place: Any, torch: ModuleType) -> None:
    refuse(lambda ns: ns.load(on_gpu(True), map_location=place(ns)), torch)


def test_functions_are_told_the_place() -> None:
    told: list[Any] = []

    def place(storage: Any, location: str) -> Any:
        told.append((storage.nbytes(), location))
        return storage

    reloaded({"a": evergrad.ones(3), "b": evergrad.ones(2)}, map_location=place)
    assert told == [(12, "cpu"), (8, "cpu")]
    with pytest.raises(TypeError, match="must return the storage"):
        reloaded(evergrad.ones(1), map_location=lambda storage, location: 5)


@pytest.mark.parametrize("place", ["meta", evergrad.device("meta")])
def test_shapes_and_types_are_loaded_alone(torch: ModuleType, place: object) -> None:
    """Containers keep their kinds and attributes, ties and parameters stay what they are."""

    def described(ns: Any) -> Any:
        model = ns.nn.Sequential(ns.nn.Linear(2, 3), ns.nn.BatchNorm1d(3))
        weight = ns.nn.Parameter(ns.ones(2, 1), requires_grad=False)
        data = {"state": model.state_dict(), "rest": [weight, (weight, 1)], "n": 3}
        file = io.BytesIO()
        ns.save(data, file)
        file.seek(0)
        found = ns.load(file, map_location=str(place) if ns is torch else place)
        first, (second, _) = found["rest"]
        return (
            {k: (str(v.device), tuple(v.shape)) for k, v in found["state"].items()},
            type(found["state"]).__name__, sorted(found["state"]._metadata),
            isinstance(first, ns.nn.Parameter), first.requires_grad, str(second.device),
            repr(second), found["n"],
        )  # fmt: skip

    ours, theirs = described(evergrad), described(torch)
    assert ours == theirs


# -- weights_only and grants ----------------------------------------------------------------------


def test_pickle_module(torch: ModuleType) -> None:
    refuse(lambda ns: ns.load(written(ns, 1), None, pickle, weights_only=True), torch)
    assert evergrad.load(written(evergrad, slice(1)), pickle_module=pickle) == slice(1)
    with pytest.raises(ValueError, match="leave pickle_module out"):
        evergrad.load(written(evergrad, 1), pickle_module=io)
    with pytest.raises(ValueError, match="leave pickle_module out"):
        evergrad.save(1, io.BytesIO(), pickle_module=io)


def test_encoding_of_old_strings(torch: ModuleType) -> None:
    data = b"\x80\x02}U\x01\xe9K\x01s."
    for ns in (torch, evergrad):
        file = archive_of({"data.pkl": data, "version": b"3\n"})
        assert ns.load(file, weights_only=False, encoding="latin1") == {"é": 1}
        file = archive_of({"data.pkl": data, "version": b"3\n"})
        assert ns.load(file, weights_only=False, encoding="bytes") == {b"\xe9": 1}
        with pytest.warns(UserWarning, match="pickle_load_args only works"):
            ns.load(written(ns, 1), encoding="latin1")
    with pytest.raises(TypeError, match="unexpected keyword"):
        evergrad.load(written(evergrad, 1), weights_only=False, wrong=1)
    with pytest.raises(FileFormatError, match="encoding='latin1'"):
        evergrad.load(archive_of({"data.pkl": data, "version": b"3\n"}))


@pytest.mark.parametrize("new", FORMATS)
def test_grants(new: bool, torch: ModuleType) -> None:
    for value, grant in ((Point(3), Point), (Slotted(4), Slotted)):
        error = refuse(lambda ns, v=value: ns.load(written(ns, v, new)), torch, "safe_globals")  # type: ignore[misc]
        assert f"{type(value).__module__}.{type(value).__name__}" in str(error)
        assert isinstance(error, (UnsafeFileError, RuntimeError))
        with safe_globals([grant]):
            found = reloaded(value, new)
        assert type(found) is type(value)
    with safe_globals([Point]):
        assert reloaded(Point(7), new).x == 7
    with safe_globals([Slotted]):
        assert reloaded(Slotted(4), new).a == 4
    with safe_globals([Shelf]):
        assert reloaded(Shelf([1, 2]), new) == [1, 2]


def test_granted_functions_are_called() -> None:
    class Call:
        def __reduce__(self) -> Any:
            return double, (21,)

    with pytest.raises(UnsafeFileError, match="double"):
        reloaded(Call())
    with safe_globals([double]):
        assert reloaded(Call()) == 42


def test_grants_by_another_name() -> None:
    with safe_globals([(Point, "elsewhere.Dot")]):
        found = evergrad.load(archive_of({
            "data.pkl": b"\x80\x02celsewhere\nDot\n)\x81}X\x01\x00\x00\x00xK\x05sb.",
        }))  # fmt: skip
    assert type(found) is Point and found.x == 5


def test_lists_of_grants() -> None:
    clear_safe_globals()
    assert get_safe_globals() == []
    add_safe_globals([Point])
    add_safe_globals([Point])
    with safe_globals([double, Point]):
        assert get_safe_globals() == [Point, double]
    assert get_safe_globals() == [Point]
    assert reloaded(Point(1)).x == 1
    clear_safe_globals()
    assert get_safe_globals() == []
    with pytest.raises(UnsafeFileError):
        reloaded(Point(1))
    with pytest.raises(TypeError, match="classes and functions"):
        add_safe_globals([5])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="length 2"):
        safe_globals([(Point, "a", "b")])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="to be str"):
        safe_globals([(Point, 3)])  # type: ignore[list-item]


def test_finding_what_a_file_names(torch: ModuleType) -> None:
    value = {"p": Point(1), "t": evergrad.ones(1), "f": double}
    for protocol in (2, 4):
        file = written(evergrad, value, pickle_protocol=protocol)
        names = get_unsafe_globals_in_checkpoint(file)
        assert names == [f"{__name__}.Point", f"{__name__}.double"]
    assert get_unsafe_globals_in_checkpoint(written(torch, torch.nn.Parameter(torch.ones(1)))) == []
    with pytest.raises(ValueError, match="checkpoint"):
        get_unsafe_globals_in_checkpoint(written(evergrad, 1, new=False))


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda ns: ns.save(1, 3),
        lambda ns: ns.save(1, "no/such/directory/x.pt"),
        lambda ns: ns.save(1, "."),
        lambda ns: ns.save(lambda: 1, io.BytesIO()),
        lambda ns: ns.load("no-such-file.pt"),
        lambda ns: ns.load(3),
        lambda ns: ns.load(io.BytesIO(b"")),
        lambda ns: ns.load(io.BytesIO(b"PK\x03\x04")),
        lambda ns: ns.load(io.BytesIO(written(ns, ns.ones(3)).getvalue()[:-30])),
        lambda ns: ns.load(io.BytesIO(written(ns, ns.ones(3)).getvalue()[:300])),
        lambda ns: ns.load(written(ns, Point)),
    ],
)
def test_what_torch_refuses_is_refused_alike(
    call: Any, torch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refuse(call, torch)
    assert list(tmp_path.iterdir()) == []


def test_files_of_other_kinds(tmp_path: Path, torch: ModuleType) -> None:
    path = tmp_path / "old.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(__file__, "storages")
    with pytest.raises(FileFormatError, match="tar format"):
        evergrad.load(path)
    with pytest.raises(FileFormatError, match="not one that save"):
        evergrad.load(archive_of({"something": b"else"}))
    with pytest.raises(FileFormatError, match="TorchScript"):
        evergrad.load(archive_of({"constants.pkl": b"", "data.pkl": b""}))
    with pytest.raises(FileFormatError, match="magic number"):
        evergrad.load(io.BytesIO(pickle.dumps({"a": 1}, 2)))
    for text in (b"hello", b"<html>", b"\x80\x02", b"\x93NUMPY"):
        with pytest.raises(FileFormatError):
            evergrad.load(io.BytesIO(text))


def test_compressed_archives_are_refused() -> None:
    import zipfile

    contents = records(written(evergrad, evergrad.zeros(1000)))
    with pytest.raises(FileFormatError, match="compressed"):
        evergrad.load(archive_of(contents, zipfile.ZIP_DEFLATED))
