"""Files made to do harm: they get an error, run nothing and allocate nothing large."""

from __future__ import annotations

import io
import os
import pickle
import struct
import time
import tracemalloc
import zipfile
from typing import Any

import numpy as np
import pytest
from file_tools import archive_of, records, with_pickle, written

import evergrad
from evergrad.errors import FileFormatError, UnsafeFileError
from evergrad.io.legacy import write_legacy
from evergrad.io.saving import Region
from evergrad.serialization import safe_globals

PROTO = b"\x80\x02"
MEGABYTE = 1 << 20


def load_pickle(data: bytes, **options: Any) -> Any:
    return evergrad.load(with_pickle(data), **options)


def refused(data: bytes, match: str | None = None, limit: int = 4 * MEGABYTE) -> None:
    """The pickle is refused, quickly and with little memory, in both modes."""
    for weights_only in (True, False):
        file = with_pickle(data)
        tracemalloc.start()
        begin = time.perf_counter()
        try:
            with pytest.raises(FileFormatError, match=match):
                evergrad.load(file, weights_only=weights_only)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < limit and time.perf_counter() - begin < 20


class Harm:
    """An object whose pickle calls any function."""

    def __init__(self, function: Any, *args: Any) -> None:
        self._call = function, args

    def __reduce__(self) -> Any:
        return self._call


FUNCTIONS: list[Any] = [
    (os.system, "touch harmed"),
    (eval, "open('harmed', 'w')"),
    (exec, "open('harmed', 'w')"),
    (open, "harmed", "w"),
    (getattr, "x", "upper"),
    (__import__, "os"),
    (pickle.loads, b""),
    (evergrad.zeros, 10**12),
    (evergrad.nn.Linear, 10**6, 10**6),
    (evergrad.load, "harmed"),
    (type, "T", (), {}),
    (print, "harmed"),
    (bytearray, 10**12),
    (bytes, 10**12),
    (range, "a"),
    (set, range(10)),
]


@pytest.mark.parametrize("call", FUNCTIONS, ids=lambda c: c[0].__name__)
@pytest.mark.parametrize("protocol", [2, 5])
def test_no_function_is_called(
    call: Any, protocol: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(pickle.dumps(Harm(*call), protocol))
    assert list(tmp_path.iterdir()) == []


def test_some_modules_cannot_even_be_granted() -> None:
    data = pickle.dumps(Harm(os.getcwd), 2)
    with safe_globals([os.getcwd, os.system]), pytest.raises(UnsafeFileError, match="is blocked"):
        load_pickle(data)


@pytest.mark.parametrize(
    "data",
    [
        b"(cos\nsystem\nX\x02\x00\x00\x00lsoR.",  # OBJ
        b"(X\x02\x00\x00\x00lsios\nsystem\n.",  # INST
        b"\x82\x01.",  # EXT1
        b"cbuiltins\nset\n)\x81}X\x04\x00\x00\x00__class__Nsb.",
        b"ctorch\nTensor\n)R.",
        b"ctorch\nTensor\n)\x81.",
        b"ctorch\nTensor\nNb.",
        b"ctorch\nfloat32\n)R.",
        b"ctorch\nFloatStorage\n)R.",
        b"ctorch.nn.parameter\nParameter\n)R.",
        b"ctorch.nn.parameter\nParameter\nK\x05\x85R.",
        b"ctorch._tensor\n_rebuild_from_type_v2\n(cbuiltins\neval\nNNNtR.",
        b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch\nSize\nctorch\nTensor\n)NtR.",
        b"ctorch.serialization\n_get_layout\nX\x04\x00\x00\x00load\x85R.",
        b"cevergrad.io.loading\nload\nX\x01\x00\x00\x00x\x85R.",
        b"cevergrad\nload\nX\x01\x00\x00\x00x\x85R.",
        b"cevergrad.nn\nos\n.",
        b"cevergrad.nn.linear\nnp\n.",
        b"cevergrad.nn.linear\nLinear\nJ\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86R.",
        b"cevergrad.nn.functional\nrelu\nK\x01\x85R.",
        b"ccollections\nOrderedDict\n)RX\x05\x00\x00\x00itemsK\x01s}X\x05\x00\x00\x00itemsK\x01sb.",
        b"ccollections\nOrderedDict\n)R}X\x05\x00\x00\x00itemsK\x01sb.",
        b"X\x01\x00\x00\x00xQ.",
        b"(X\x06\x00\x00\x00modulecbuiltins\neval\nNNtQ.",
    ],
)
def test_pickles_that_reach_for_more(data: bytes) -> None:
    refused(PROTO + data)


# -- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"X\xff\xff\xff\xffabc.",
        b"\x8d" + struct.pack("<Q", 1 << 60) + b"abc.",
        b"\x8e" + struct.pack("<Q", (1 << 64) - 1) + b".",
        b"\x96" + struct.pack("<Q", 1 << 40) + b".",
        b"B\xff\xff\xff\xff.",
        b"\x8b\xff\xff\xff\x7f\x01.",
        b"T\xff\xff\xff\x7f.",
        b"U\xffab.",
        b"J\x01.",
        b"G\x00\x00.",
        b"c" + b"a" * 5000 + b"\nb\n.",
        b"cabc",
        b"",
        b".",
        b"0.",
        b"1.",
        b"t.",
        b"e.",
        b"\x86.",
        b"K\x01K\x02s.",
        b"(K\x01u.",
        b"}(K\x01u.",
        b"](K\x01K\x02u.",
        b"}K\x01a.",
        b"h\x05.",
        b"j\xff\xff\xff\xff.",
        b"}]K\x01s.",
        b"}}K\x01s.",
        b"\x8f(]\x90.",
    ],
)
def test_broken_pickles(data: bytes) -> None:
    refused(PROTO + data)


def tensor_pickle(numel: int, offset: int, size: Any, stride: Any, key: str = "0") -> bytes:
    """A pickle of one float32 tensor with any numbers in it."""
    key_text, count, *place = (
        pickle.dumps(value, 2).removeprefix(PROTO).removesuffix(b".")
        for value in (key, numel, offset, size, stride)
    )
    kind = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
    identity = kind + key_text + b"X\x03\x00\x00\x00cpu" + count + b"tQ"
    function = b"ctorch._utils\n_rebuild_tensor_v2\n("
    return PROTO + function + identity + b"".join(place) + b"\x89}tR."


def test_the_pickle_of_a_tensor_is_as_expected() -> None:
    found = evergrad.load(with_pickle(tensor_pickle(4, 1, (3,), (1,)), s0=bytes(16)))
    assert found.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "numbers",
    [
        (4, 0, (5,), (1,)),
        (4, 2, (3,), (1,)),
        (4, 0, (2, 2), (3, 1)),
        (4, 5, (0,), (1,)),
        (4, -1, (2,), (1,)),
        (4, 0, (-1,), (1,)),
        (4, 0, (2,), (-1,)),
        (4, 0, (2,), (1, 1)),
        (4, 0, (1 << 62,), (0,)),
        (4, 0, (1 << 40, 1 << 40), (0, 0)),
        (4, 0, (2,), (1 << 61,)),
        (4, 0, (2, 1), (1, 1 << 61)),
        (4, 0, (1,) * 65, (1,) * 65),
        (4, 0, (2.0,), (1,)),
        (4, 0, (True,), (1,)),
        (4, 0, [2], (1,)),
        (4, 0.0, (2,), (1,)),
        (1 << 40, 0, (2,), (1,)),
        (-4, 0, (2,), (1,)),
        (3, 0, (2,), (1,)),
        (5, 0, (2,), (1,)),
    ],
)
def test_tensors_outside_their_storage(numbers: Any) -> None:
    file = with_pickle(tensor_pickle(*numbers), s0=bytes(16))
    with pytest.raises(FileFormatError, match="corrupted"):
        evergrad.load(file)


def test_a_tensor_that_only_repeats_takes_no_memory() -> None:
    found = evergrad.load(with_pickle(tensor_pickle(4, 0, (1 << 40,), (0,)), s0=bytes(16)))
    assert found.shape == (1 << 40,) and found[1 << 39].item() == 0


@pytest.mark.parametrize("key", ["1", "../0", "0/", "\x00"])
def test_storages_that_are_not_there(key: str) -> None:
    with pytest.raises(FileFormatError, match="has no record"):
        evergrad.load(with_pickle(tensor_pickle(4, 0, (4,), (1,), key), s0=bytes(16)))


def test_one_storage_as_two_types() -> None:
    data = tensor_pickle(4, 0, (4,), (1,))[:-1] + b"0" + tensor_pickle(2, 0, (2,), (1,))[2:]
    data = data.replace(b"FloatStorage", b"DoubleStorage", 2).replace(b"Double", b"Float", 1)
    with pytest.raises(FileFormatError):
        evergrad.load(with_pickle(data, s0=bytes(16)))


# -- bombs ----------------------------------------------------------------------------------------

DEEP = 50_000


@pytest.mark.parametrize(
    "data",
    [
        b"(" * DEEP,
        b")" + b"\x85" * DEEP + b"}0}" + b"(" * DEEP,
        b"})" + b"\x85" * DEEP + b"K\x01s.",  # a key nested deeper than the stack of C
        b"})" + b"q\x00h\x00\x86" * 60 + b"K\x01s.",  # a key of 2**60 parts
        b"}(" + b"".join(b"\x8a\x20" + (i * (2**61 - 1) << 128).to_bytes(32, "little") + b"N"
                         for i in range(1, 200)) + b"u.",  # keys of one hash
    ],
    ids=["marks", "tuples", "deep key", "wide key", "equal hashes"],
)  # fmt: skip
def test_bombs(data: bytes) -> None:
    refused(PROTO + data, limit=64 * MEGABYTE)


def test_deep_nesting_is_no_danger() -> None:
    found = load_pickle(PROTO + b"]" * DEEP + b"a" * (DEEP - 1) + b".")
    depth = 1
    while found:
        (found,) = found
        depth += 1
    assert depth == DEEP


@pytest.mark.parametrize("maker", [b"ccollections\nOrderedDict\n", b"cbuiltins\nset\n"])
def test_copies_of_copies_are_bounded(maker: bytes) -> None:
    """One long list, copied by a few bytes a thousand times."""
    item = b"N)\x86" if b"Ordered" in maker else b"K\x01"
    many = b"](" + item * 2000 + b"eq\x00"
    data = PROTO + maker + b"q\x01" + many + b"(" + b"h\x01h\x00\x85R" * 1000 + b"t."
    refused(data, match="copied over and over", limit=64 * MEGABYTE)


def test_text_is_not_copied_over_and_over() -> None:
    text = b"X" + struct.pack("<I", 50_000) + b"a" * 50_000 + b"q\x00"
    data = PROTO + b"c_codecs\nencode\nq\x01(" + text + b"h\x01h\x00\x85R" * 1000 + b"t."
    refused(data, match="copied over and over", limit=16 * MEGABYTE)


# -- archives -------------------------------------------------------------------------------------


def test_zip_bombs_are_refused() -> None:
    contents = records(written(evergrad, evergrad.zeros(5 * MEGABYTE)))
    file = archive_of(contents, zipfile.ZIP_DEFLATED)
    del contents
    assert len(file.getvalue()) < MEGABYTE
    tracemalloc.start()
    with pytest.raises(FileFormatError, match="compressed"):
        evergrad.load(file)
    assert tracemalloc.get_traced_memory()[1] < MEGABYTE
    tracemalloc.stop()


def patched(file: io.BytesIO, name: bytes, field: int, value: bytes) -> io.BytesIO:
    """An archive with another value in a field of the central directory's entry of a record."""
    data = bytearray(file.getvalue())
    at = data.rindex(b"archive/" + name) - 46 + field
    data[at : at + len(value)] = value
    return io.BytesIO(bytes(data))


@pytest.mark.parametrize(
    "field, value",
    [
        (20, struct.pack("<2L", 1 << 31, 1 << 31)),  # a larger size
        (20, struct.pack("<2L", 500, 500)),  # reaches into the next record
        (20, b"\xff" * 8),  # a size elsewhere, which is not there
        (42, b"\xff" * 4),
        (42, struct.pack("<L", 3)),
        (42, struct.pack("<L", 0)),  # where another record stands
        (28, b"\xff\xff"),
        (30, b"\xff\xff"),
        (8, b"\x01"),  # encrypted
        (16, b"\x00\x00\x00\x01"),  # another checksum
        (0, b"XX"),
    ],
)
def test_directories_that_lie(field: int, value: bytes) -> None:
    file = patched(written(evergrad, evergrad.arange(100)), b"data/0", field, value)
    with pytest.raises(FileFormatError):
        evergrad.load(file)


def test_records_that_stand_twice_or_in_one_place() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", b"N.")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("archive/data.pkl", b"K\x01.")
    with pytest.raises(FileFormatError, match="two records"):
        evergrad.load(io.BytesIO(buffer.getvalue()))


def test_no_storage_is_promised_that_a_legacy_file_lacks() -> None:
    whole = written(evergrad, evergrad.arange(100), new=False).getvalue()
    lying = whole.replace(b"cpuq\x04Kd", b"cpuq\x04Jd\x00\x00\x40", 1)
    assert lying != whole
    tracemalloc.start()
    with pytest.raises(FileFormatError):
        evergrad.load(io.BytesIO(lying))
    assert tracemalloc.get_traced_memory()[1] < MEGABYTE
    tracemalloc.stop()


def test_a_legacy_storage_is_no_larger_under_another_type() -> None:
    def identity(kind: bytes) -> bytes:
        key = b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x10N"
        return b"(X\x07\x00\x00\x00storagec" + kind + key + b"tQ"

    call = b"ctorch._utils\n_rebuild_tensor_v2\n("
    first = identity(b"torch.storage\nUntypedStorage\n") + b"0"
    for numel in (2, 3, 16):
        place = b"K\x00K%c\x85K\x01\x85\x89}tR." % numel
        data = PROTO + first + call + identity(b"torch\nDoubleStorage\n") + place
        file = io.BytesIO()
        write_legacy(file, data, [Region("0", evergrad.uint8, np.zeros(16, np.uint8), 0)])
        file.seek(0)
        if numel == 2:
            assert evergrad.load(file).tolist() == [0, 0]
        else:
            with pytest.raises(FileFormatError, match="does not fit"):
                evergrad.load(file)


@pytest.mark.parametrize("new", [True, False])
def test_every_truncation_is_noticed(new: bool) -> None:
    whole = written(evergrad, {"x": evergrad.arange(5), "y": "text"}, new).getvalue()
    for length in range(1, len(whole)):
        with pytest.raises(FileFormatError):
            evergrad.load(io.BytesIO(whole[:length]))
