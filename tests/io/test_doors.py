"""Hostile folders and files of other tools: each is refused by a documented error, quickly, with
little memory, and without running what it names."""

from __future__ import annotations

import functools
import json
import os
import pickle
import struct
import threading
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import config, ragged
from evergrad.datasets import png
from evergrad.datasets.idx import read_idx
from evergrad.errors import FileFormatError
from evergrad.io import safetensors
from evergrad.models.flux import load_flux
from evergrad.models.gpt import GPT, GPTConfig
from evergrad.models.hugging_face import load_hugging_face, save_hugging_face
from evergrad.models.lora import read_adapter
from evergrad.tokenizers import BPETokenizer, tokenizer_from_dict
from evergrad.tokenizers.hugging_face import HuggingFaceTokenizer, _read
from evergrad.train.config import ConfigError, read_config

MOST_BYTES = 24 << 20
DEEP = b"[" * 200_000

Attempt = Callable[[Path], Any]


def refused(attempt: Attempt, place: Path, errors: Any = (FileFormatError, ValueError)) -> None:
    """The attempt ends within seconds in one of the errors and takes little memory."""
    found: list[BaseException | None] = []

    def run() -> None:
        try:
            attempt(place)
            found.append(None)
        except BaseException as error:
            found.append(error)

    tracemalloc.start()
    try:
        thread = threading.Thread(target=run, daemon=True)  # a reader of a pipe waits forever
        thread.start()
        thread.join(60)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found, "it still waits"
    assert isinstance(found[0], errors), repr(found[0])
    assert peak < MOST_BYTES


# -- safetensors ----------------------------------------------------------------------------------


def header(entries: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(shape: Any, begin: Any, end: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


HEADERS: dict[str, bytes] = {
    "a header of 2^63 bytes": header({}, length=1 << 63),
    "a header of 2^64 - 1 bytes": header({}, length=(1 << 64) - 1),
    "a header longer than the file": header({"a": entry([1], 0, 4)}, b"\0" * 4, length=1 << 20),
    "a header that is a list": header([1, 2]),
    "a header that is a number": header(b"7"),
    "a deep header": header(b'{"a":' + DEEP),
    "a header of bytes": header(b"\xff\xfe{}"),
    "a hole": header({"a": entry([1], 4, 8)}, b"\0" * 8),
    "an overlap": header({"a": entry([2], 0, 8), "b": entry([1], 4, 8)}, b"\0" * 8),
    "an end before the beginning": header({"a": entry([1], 4, 0)}, b"\0" * 4),
    "a negative offset": header({"a": entry([1], -4, 0)}, b"\0" * 4),
    "an offset beyond 64 bits": header({"a": entry([1], 0, 1 << 70)}, b"\0" * 4),
    "an offset that is no integer": header({"a": entry([1], 0, 4.5)}, b"\0" * 4),
    "a negative extent": header({"a": entry([-1], 0, 4)}, b"\0" * 4),
    "extents whose product overflows": header({"a": entry([1 << 33, 1 << 31], 0, 0)}),
    "more elements than bytes": header({"a": entry([1 << 40], 0, 4)}, b"\0" * 4),
    "more dimensions than arrays have": header({"a": entry([1] * 65, 0, 4)}, b"\0" * 4),
    "5,000 dimensions": header({"a": entry([1] * 5000, 0, 4)}, b"\0" * 4),
    "nothing of 2^63 - 1": header({"a": entry([0, (1 << 63) - 1], 0, 0)}),
    "nothing of 2^64 - 1": header({"a": entry([(1 << 64) - 1, 0], 0, 0)}),
    "nothing between 2^62 and 8": header({"a": entry([1 << 62, 0, 8], 0, 0)}),
    "no element type": header({"a": {"shape": [1], "data_offsets": [0, 4]}}, b"\0" * 4),
    "an unknown element type": header({"a": entry([1], 0, 4, "F128")}, b"\0" * 4),
    "an element type that is a list": header({"a": entry([1], 0, 4, ["F32"])}, b"\0" * 4),
    "metadata of numbers": header({"__metadata__": {"a": 7}}),
    "metadata that is a list": header({"__metadata__": ["a"]}),
    "bytes behind the tensors": header({"a": entry([1], 0, 4)}, b"\0" * 9),
    "a pickle": pickle.dumps({"a": 1}),
    "nothing": b"",
    "seven bytes": b"\1" + bytes(6),
}


@pytest.mark.parametrize("name", HEADERS)
def test_safetensors_headers(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(HEADERS[name])
    refused(lambda path: safetensors.load_file(path)["a"].sum(), path)
    refused(lambda path: safetensors.load(path.read_bytes()), path)
    refused(ragged.load, path)


def test_a_safetensors_file_that_is_replaced_between_check_and_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header was read from the file that was opened, the check made of the one that had taken
    its name: offsets reached beyond the memory."""
    path, other = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    path.write_bytes(header({"a": entry([1 << 20], 0, 1 << 22)}, b"\0" * 4))
    safetensors.save_file({"a": eg.ones(3)}, other)
    check = safetensors._validate

    def replaced(filename: Any) -> None:
        os.replace(other, path)
        check(filename)

    monkeypatch.setattr(safetensors, "_validate", replaced)
    refused(safetensors.load_file, path, FileFormatError)


# -- what is no regular file ----------------------------------------------------------------------


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_folder(path: Path) -> None:
    path.mkdir()


def make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


SPECIAL = [make_fifo, make_endless, make_folder, make_sparse]
READERS: dict[str, tuple[str, Attempt]] = {
    "safetensors": ("a.safetensors", safetensors.load_file),
    "shards": ("model.safetensors.index.json", lambda path: load_hugging_face(path.parent)),
    "config": ("config.json", lambda path: load_hugging_face(path.parent)),
    "flux": ("config.json", lambda path: load_flux(path.parent)),
    "adapter": ("adapter_config.json", lambda path: read_adapter(path.parent)),
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX files")
@pytest.mark.parametrize("make", SPECIAL, ids=lambda m: m.__name__)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file(reader: str, make: Callable[[Path], None], tmp_path: Path) -> None:
    name, attempt = READERS[reader]
    if reader == "shards":
        (tmp_path / "config.json").write_bytes(gpt2())
    path = tmp_path / name
    make(path)
    refused(attempt, path, (FileFormatError, ValueError, OSError))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX files")
@pytest.mark.parametrize("make", [make_endless, make_sparse], ids=lambda m: m.__name__)
@pytest.mark.parametrize("read", [ragged.read_csv, ragged.read_vsla, read_config])
def test_endless_files(
    read: Attempt, make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "UNPACKED_BYTES", 1 << 20)
    make(tmp_path / "a")
    refused(read, tmp_path / "a", (FileFormatError, ConfigError))


# -- folders of models and tokenizers -------------------------------------------------------------

GPT2 = {
    "model_type": "gpt2", "vocab_size": 5, "n_positions": 4, "n_embd": 4, "n_layer": 1, "n_head": 1,
}  # fmt: skip


def gpt2(**changes: Any) -> bytes:
    return json.dumps(GPT2 | changes).encode()


CONFIGS: dict[str, bytes] = {
    "deep": DEEP,
    "a deep object": b'{"model_type": "gpt2", "a": ' + DEEP,
    "a list": b"[]",
    "a number": b"1e999",
    "text": b'"gpt2"',
    "null": b"null",
    "not UTF-8": b'{"model_type": "\xff"}',
    "half of a pair": b'{"model_type": "\\ud800"}',
    "a huge number": b'{"model_type": "gpt2", "n_embd": ' + b"9" * 10_000 + b"}",
    "an array of keys": b'{"model_type": ["gpt2"]}',
    "a dictionary of layers": gpt2(n_layer={"a": 1}),
    "a billion layers": gpt2(n_layer=10**9),
    "a wide model": gpt2(n_embd=10**6),
    "many positions": gpt2(n_positions=10**12),
    "many tokens": gpt2(vocab_size=10**12),
    "a wide feed-forward": gpt2(n_inner=10**12),
    "a negative width": gpt2(n_embd=-4),
    "no heads": gpt2(n_head=0),
    "a width that is text": gpt2(n_embd="4"),
    "nothing": b"",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_descriptions_of_models(name: str, tmp_path: Path) -> None:
    for file in ("config.json", "adapter_config.json"):
        (tmp_path / file).write_bytes(CONFIGS[name])
    safetensors.save_file({"a": eg.ones(1)}, tmp_path / "model.safetensors")
    refused(load_hugging_face, tmp_path)
    refused(load_flux, tmp_path)
    refused(read_adapter, tmp_path)


def test_positions_are_no_more_than_a_model_has_use_for(tmp_path: Path) -> None:
    """The angles of 2^31 positions, 17 GB of arange, were made before weights were compared."""
    options = GPTConfig(
        vocabulary=5, context=4, layers=1, heads=1, width=4, positions="rotary", norm="rms",
        feed_forward="swiglu", bias=False,
    )  # fmt: skip
    save_hugging_face(GPT(options), tmp_path)
    described = json.loads((tmp_path / "config.json").read_bytes())
    for positions in (1 << 31, 1 << 25):
        (tmp_path / "config.json").write_text(
            json.dumps(described | {"max_position_embeddings": positions})
        )
        refused(load_hugging_face, tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(described | {"max_position_embeddings": 9}))
    assert load_hugging_face(tmp_path).config.context == 9


@pytest.mark.parametrize("name", ["deep", "a list", "a number", "text", "null", "not UTF-8"])
def test_descriptions_of_tokenizers(name: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer_config.json"
    path.write_bytes(CONFIGS[name])
    refused(_read, path)


def test_descriptions_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"eos_token_id": [0] * 10_000}))
    assert len(_read(path)["eos_token_id"]) == 10_000
    monkeypatch.setattr(config, "TOKENIZER_BYTES", 1 << 10)
    with pytest.raises(FileFormatError, match="EVERGRAD_TOKENIZER_BYTES"):
        _read(path)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", DEEP, b'{"model": {"type": "BPE"}}'])
def test_tokenizer_files(content: bytes, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_bytes(content)
    refused(HuggingFaceTokenizer.from_folder, tmp_path, Exception)


def test_panics_of_the_package_are_errors(tmp_path: Path) -> None:
    """A merge of which one half is longer than its place: a panic, which is no ``Exception``."""
    pytest.importorskip("tokenizers")
    state = json.loads(str(BPETokenizer.train("the quick brown fox " * 9, 270).to_dict()["json"]))
    state["model"]["continuing_subword_prefix"] = "x" * 5000
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    refused(HuggingFaceTokenizer.from_folder, tmp_path)
    stored = {"kind": "hugging face", "json": json.dumps(state), "template": None}
    with pytest.raises(ValueError):
        tokenizer_from_dict(stored | {"specials": {}, "stops": []})


def test_tokenizer_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package would read all of it, and wait for the writer of a pipe."""
    pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    with open(path, "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FileFormatError, match="EVERGRAD_TOKENIZER_BYTES"):
        HuggingFaceTokenizer.from_folder(tmp_path)
    path.unlink()
    os.mkfifo(path)
    refused(HuggingFaceTokenizer.from_folder, tmp_path)


def test_halves_of_surrogate_pairs_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    state = BPETokenizer.train("the quick brown fox " * 9, 270).to_dict()
    (tmp_path / "tokenizer.json").write_text(str(state["json"]))
    message = [{"role": "user", "content": "Hi"}]
    for template in ("\ud800", "{{ messages[0].content }}"):
        about = json.dumps({"chat_template": template})
        (tmp_path / "tokenizer_config.json").write_text(about)
        tokenizer = HuggingFaceTokenizer.from_folder(tmp_path)
        with pytest.raises(ValueError, match="surrogate"):
            tokenizer.prompt([*message, {"role": "assistant", "content": "\ud800"}])
    with pytest.raises(ValueError, match="surrogate"):
        tokenizer.encode("a\udfff")
    assert tokenizer.prompt(message)


SHARDS = ["../other.safetensors", "/etc/passwd", "a/b.safetensors", "", "..", 7, None, ["a"]]


@pytest.mark.parametrize("shard", SHARDS, ids=repr)
def test_shards_are_files_of_their_folder(shard: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    safetensors.save_file({"a": eg.ones(1)}, tmp_path / "other.safetensors")
    (folder / "config.json").write_bytes(gpt2())
    index = folder / "model.safetensors.index.json"
    for weight_map in ({"a": shard}, [shard], shard):
        index.write_text(json.dumps({"weight_map": weight_map}))
        refused(load_hugging_face, folder, (FileFormatError, ValueError, OSError))


# -- arrays, pictures, numbers --------------------------------------------------------------------


class Harm:
    def __reduce__(self) -> Any:
        return os.system, ("touch harmed",)


def test_arrays_with_pickles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of NumPy are none of ours: they are refused, and what they pickle is not run."""
    monkeypatch.chdir(tmp_path)
    array = np.empty(1, object)
    array[0] = Harm()
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    np.savez(tmp_path / "a.npz", a=array)
    with zipfile.ZipFile(tmp_path / "b.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("data.pkl", pickle.dumps(Harm()))
        file.writestr("a.npy", bytes(1 << 20))
    for name in ("a.npy", "a.npz", "b.npz"):
        for weights_only in (True, False):
            refused(functools.partial(eg.load, weights_only=weights_only), tmp_path / name)
        refused(safetensors.load_file, tmp_path / name)
        refused(read_idx, tmp_path / name, (RuntimeError, ValueError))
        refused(lambda p: png.decode(p.read_bytes()), tmp_path / name)
    assert not (tmp_path / "harmed").exists()


METADATA = [DEEP.decode(), "{", "7", '{"version": 1}', '{"version": 1, "values": 7}',
            '{"version": 1, "values": {"a": {"shape": [1e300]}}}',
            '{"version": 1, "values": {"a": {"shapes": [[1, 99]], "batch_shape": [1]}}}',
            '{"version": 1, "values": {"b": {"shape": [3]}}}']  # fmt: skip


@pytest.mark.parametrize("text", METADATA, ids=lambda t: t[:50])
def test_metadata_of_ragged_values(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    safetensors.save_file({"a": eg.ones(3)}, path, {"evergrad.ragged": text})
    refused(ragged.load, path)


@pytest.mark.parametrize(
    "content", [b"\0", b"1," + b"9" * 200_000, b'"1', b"1,=cmd()", b"1,__import__('os')", b"\xff",
                b"1\0,2", b"1e400,0x10", b"1_000"]
)  # fmt: skip
def test_numbers_of_csv(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    refused(ragged.read_csv, path)


def vsla(rank: int, *numbers: int, body: bytes = b"") -> bytes:
    return b"VSLAv01\0" + bytes([0, rank, 1, 0, 0, 0, 0, 0]) + b"".join(
        n.to_bytes(8, "little") for n in numbers
    ) + body  # fmt: skip


@pytest.mark.parametrize(
    "content",
    [vsla(255), vsla(1, 2, 1 << 62, 8), vsla(2, 1, 1, 1 << 63, 1 << 63, 8, 8), vsla(1, 1, 1, 8),
     vsla(1, 3, 2, 8, body=bytes(16)), vsla(70, *[1] * 140, *[8] * 70, body=bytes(8)),
     vsla(1, 0, 0, (1 << 64) - 8)],
)  # fmt: skip
def test_headers_of_vsla(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.vsla"
    path.write_bytes(content)
    refused(ragged.read_vsla, path)
