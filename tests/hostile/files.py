"""Broken files of every format that is read, each attempted with its reader.

A reader gives a value or raises one of its documented errors; anything else, such as a crash, an
``IndexError`` or much memory, is a fault. Checkpoints of tensors have a suite of their own
(``tests/io/test_files_fuzz.py``).
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import tarfile
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import evergrad as eg
from evergrad import ragged
from evergrad.compiler.native import disk_cache
from evergrad.datasets import files, png
from evergrad.datasets.conversations import read_conversations, read_preferences
from evergrad.datasets.idx import read_idx
from evergrad.errors import FileFormatError
from evergrad.io.safetensors import load_file, save_file
from evergrad.models.gpt import GPT, GPTConfig
from evergrad.models.hugging_face import load_hugging_face, save_hugging_face
from evergrad.tokenizers import BPETokenizer, CharTokenizer, tokenizer_from_dict
from evergrad.tokenizers.hugging_face import HuggingFaceTokenizer
from evergrad.train.checkpoint import CheckpointError, read_checkpoint
from evergrad.train.config import ConfigError, preset, read_config, to_toml
from evergrad.train.records import read_run
from evergrad.train.tasks.flux import _from_folder

from .structures import STRUCTURES

MOST_BYTES = 24 << 20


class Format(NamedTuple):
    """Whole examples, how the bytes of a broken one are read, and the errors that may be raised."""

    examples: list[bytes]
    read: Callable[[bytes, Path], Any]
    errors: tuple[type[Exception], ...]


# -- mutations ----------------------------------------------------------------------------------

# Numbers at the borders of their types, as bytes of both orders.
BORDERS = [
    number.to_bytes(width, order)
    for width in (1, 2, 4, 8)
    for number in (0, 1, (1 << 8 * width) - 1, 1 << (8 * width - 1), (1 << (8 * width - 1)) - 1)
    for order in ("little", "big")
]


def mutated(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """The data with one to three changes."""
    for _ in range(rng.randrange(1, 4)):
        data = _changed(data or b"\0", other or b"\0", rng)
    return data


def _changed(data: bytes, other: bytes, rng: random.Random) -> bytes:
    at, kind = rng.randrange(len(data)), rng.randrange(9)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + other[rng.randrange(len(other)) :]
    if kind == 2:
        return data[:at] + data[at + rng.randrange(1, 17) :]
    if kind == 3:
        return data[:at] + rng.randbytes(rng.randrange(1, 17)) + data[at:]
    if kind == 4:
        border = rng.choice(BORDERS)
        return data[:at] + border + data[at + len(border) :]
    if kind == 5:
        part = data[at : at + rng.randrange(1, 33)]
        return data[:at] + part * rng.choice((2, 3, 50)) + data[at:]
    if kind == 6:
        return data[:at] + bytes(len(data) - at)
    if kind == 7:
        return data[at:] + data[:at]
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 9)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


# -- formats ------------------------------------------------------------------------------------


def through_file(name: str, read: Callable[[Path], Any]) -> Callable[[bytes, Path], Any]:
    """Reads bytes as a file of this name."""

    def attempt(data: bytes, folder: Path) -> Any:
        path = folder / name
        path.write_bytes(data)
        return read(path)

    return attempt


def png_format() -> Format:
    rng = np.random.default_rng(0)
    shapes = [(5, 7), (5, 7, 2), (4, 4, 3), (3, 9, 4)]
    examples = [png.encode(rng.integers(0, 255, s, np.uint8)) for s in shapes]
    examples.append(png.encode(rng.integers(0, 60000, (4, 5), np.uint16)))
    return Format(examples, lambda data, folder: png.decode(data), (ValueError,))


def idx_example(*shape: int) -> bytes:
    count = int(np.prod(shape))
    return bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes() + bytes(count)


def idx_format() -> Format:
    examples = [idx_example(5), idx_example(3, 4), idx_example(2, 3, 4)]
    return Format(examples, through_file("a-idx", read_idx), (RuntimeError, ValueError))


def idx_gz_format() -> Format:
    examples = [gzip.compress(idx_example(*s), mtime=0) for s in ((40,), (9, 9), (2000,))]
    return Format(examples, through_file("a-idx.gz", read_idx), (RuntimeError, ValueError))


def toml_format() -> Format:
    examples = [to_toml(preset(name, "tiny")).encode() for name in ("gpt", "lenet", "dit")]
    return Format(examples, through_file("a.toml", read_config), (ConfigError,))


def tar_examples() -> list[bytes]:
    made = []
    for mode in ("w", "w:gz"):
        memory = io.BytesIO()
        with tarfile.open(fileobj=memory, mode=mode) as tar:  # type: ignore[call-overload]
            for number in range(3):
                info = tarfile.TarInfo(f"folder/f{number}")
                info.size = 40
                tar.addfile(info, io.BytesIO(bytes(40)))
        made.append(memory.getvalue())
    return made


def unpack(path: Path) -> None:
    target = path.parent / "unpacked"
    target.mkdir(exist_ok=True)
    files.unpack(path, target, most=1 << 20)


def tar_format() -> Format:
    return Format(tar_examples(), through_file("a.tar", unpack), (RuntimeError, OSError))


def tokenizer(data: bytes, folder: Path) -> Any:
    state = json.loads(data)
    made = tokenizer_from_dict(state)
    return made.decode(made.encode("the")) if len(made) > 300 else len(made)


def tokenizer_format() -> Format:
    states = [CharTokenizer("abcdef").to_dict()]
    with contextlib.suppress(ImportError):  # the package tokenizers is an extra
        states.append(BPETokenizer.train("the quick brown fox " * 20, 270).to_dict())
    examples = [json.dumps(state).encode() for state in states]
    return Format(examples, tokenizer, (ValueError, RecursionError))


def safetensors_format() -> Format:
    x = eg.arange(12.0).reshape(3, 4)
    examples = []
    for tensors in ({"a": x}, {"a": x, "b": x.to(eg.int64), "c": eg.ones(0)}):
        path = Path("example.safetensors")
        save_file(tensors, path)
        examples.append(path.read_bytes())
    return Format(examples, through_file("a.safetensors", load_file), (FileFormatError,))


def metrics_format() -> Format:
    lines = [
        {"step": 1, "loss": 2.5, "time": 0.1}, {"step": 2, "evaluation": {"loss": 2.0}},
        {"step": 2, "sample": {"text": "abc"}},
    ]  # fmt: skip
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()

    def read(path: Path) -> Any:
        run = read_run(path.parent)
        return run.last_step, run.best, run.unit

    return Format([text], through_file("metrics.jsonl", read), ())


def checkpoint_format() -> Format:
    keys = ("step", "batches", "best", "stale", "seconds", "optimizer", "average", "random")
    content = dict.fromkeys(keys, 0) | {
        "format": 1, "metrics_offset": 0, "model": {"w": eg.ones(3)}, "extras": {"a": [1, "b"]},
        "config": to_toml(preset("mlp", "tiny")),
    }  # fmt: skip
    memory = io.BytesIO()
    eg.save(content, memory)

    def read(path: Path) -> Any:
        found = read_checkpoint(path)
        return found.step, found.config

    errors = (CheckpointError, ConfigError)
    return Format([memory.getvalue()], through_file("a.ckpt", read), errors)


def vsla_format() -> Format:
    examples = []
    for shape, order in (((3,), "<"), ((2, 4), ">"), ((2, 1, 3), "<")):
        capacity = np.array([n + 1 for n in shape])
        strides = [8 * int(np.prod(capacity[i + 1 :])) for i in range(len(shape))]
        numbers = np.array([*shape, *capacity, *strides]).astype(f"{order}u8").tobytes()
        head = b"VSLAv01\0" + bytes([order == ">", len(shape), 0, 0, 0, 0, 0, 0])
        examples.append(head + numbers + bytes(8 * int(np.prod(capacity))))
    return Format(examples, through_file("a.vsla", ragged.read_vsla), (FileFormatError,))


def csv_format() -> Format:
    examples = [b"1,2,3\n4\n\n5,6\n", b'"1",-2.5e3\r\n0x1,inf\r\n', b"nan\n1e-320,7\n"]
    errors = (FileFormatError, ValueError)
    return Format(examples, through_file("a.csv", ragged.read_csv), errors)


def lines_of(*values: object) -> bytes:
    return "".join(json.dumps(value) + "\n" for value in values).encode()


def conversations_format() -> Format:
    said = {"role": "user", "content": "Hi \u2028 there"}, {"role": "assistant", "content": "Hello"}
    examples = [lines_of({"messages": said}), lines_of({"messages": said[::-1]}) * 3]
    examples.append(lines_of({"messages": said}) + b"[" * 100_000)
    return Format(examples, through_file("a.jsonl", read_conversations), (ValueError,))


def preferences_format() -> Format:
    prompt = [{"role": "user", "content": "Hi"}]
    examples = [lines_of({"prompt": p, "chosen": "a", "rejected": "b"}) for p in (prompt, "Hi")]
    return Format(examples, through_file("a.jsonl", read_preferences), (ValueError,))


SMALL = GPTConfig(vocabulary=11, context=6, layers=1, heads=2, width=8, feed_forward="gelu_tanh")
ROTARY = GPTConfig(
    vocabulary=11, context=6, layers=2, heads=2, kv_heads=1, width=8, inner=12, positions="rotary",
    norm="rms", feed_forward="swiglu", bias=False, tie=False,
    rotary_scaling=(8.0, 1.0, 4.0, 4.0),
)  # fmt: skip


def model_format() -> Format:
    """Descriptions of a Llama with some that ask for other weights, beside its weights."""
    others = []
    for kind in (SMALL, ROTARY):
        save_hugging_face(GPT(kind), Path())
        others.append(json.loads(Path("config.json").read_bytes()))
    llama = others[1]
    plain = {k: v for k, v in llama.items() if k != "rope_scaling"}
    examples = [json.dumps(d).encode() for d in (llama, plain, llama | {"model_type": "mistral"})]
    examples.append(json.dumps(others[0]).encode())

    def read(path: Path) -> Any:
        model = load_hugging_face(path.parent)
        return model(eg.tensor([[1, 2, 3]]))[0]

    return Format(examples, through_file("config.json", read), (ValueError,))


def shards_format() -> Format:
    """Indexes of shards, of which one may be missing or of another folder."""
    save_hugging_face(GPT(ROTARY), Path(), shard_bytes=1000)
    place = Path("model.safetensors.index.json")
    read = through_file(place.name, lambda path: load_hugging_face(path.parent))
    return Format([place.read_bytes()], read, (ValueError,))


def tokenizer_folder() -> None:
    """A tokenizer in the current folder, as Hugging Face's models have it."""
    pytest.importorskip("tokenizers")
    made = BPETokenizer.train("the quick brown fox " * 20, 270)
    state = json.loads(str(made.to_dict()["json"]))
    markup = ("<|begin|>", "<|end|>")
    state["added_tokens"] += [
        {"id": 270 + n, "content": text, "special": True, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}
        for n, text in enumerate(markup)
    ]  # fmt: skip
    Path("tokenizer.json").write_text(json.dumps(state))
    template = "{% for m in messages %}<|begin|>{{ m.role }}: {{ m.content }}<|end|>{% endfor %}"
    about = {
        "chat_template": [{"name": "default", "template": template}], "eos_token": "<|end|>",
        "bos_token": {"content": "<|begin|>"}, "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    Path("tokenizer_config.json").write_text(json.dumps(about))


def talk(path: Path) -> Any:
    made = HuggingFaceTokenizer.from_folder(path.parent)
    messages = [{"role": "user", "content": "Hi <|end|>"}]
    return made.decode(made.encode("the fox")), made.prompt(messages), made.token_bytes(271)


def tokenizer_file_format(name: str) -> Format:
    tokenizer_folder()
    return Format([Path(name).read_bytes()], through_file(name, talk), (ValueError,))


def captions_format() -> Format:
    Path("a.png").write_bytes(png.encode(np.zeros((8, 8, 3), np.uint8)))
    examples = [lines_of({"file": "a.png", "caption": "a red circle"}) * n for n in (1, 3)]
    examples.append(lines_of({"file": "../a.png", "caption": "a"}, {"file": "/", "caption": 1}))
    errors = (ConfigError, OSError, ValueError)
    return Format(examples, through_file("captions.jsonl", lambda p: scenes_of(p.parent)), errors)


def scenes_of(folder: Path) -> Any:
    return _from_folder(folder, 8)


def cache_format() -> Format:
    path = Path("kernels").resolve() / "entry.o"
    disk_cache.write(path, b"kind\n", b"machine code " * 9)
    whole = path.read_bytes()

    def attempt(data: bytes, folder: Path) -> Any:
        path.write_bytes(data)
        path.chmod(0o600)
        found = disk_cache.read(path, b"kind\n")
        assert found is None or data == whole, "a broken entry was accepted"

    return Format([whole], attempt, ())


FORMATS: dict[str, Callable[[], Format]] = {
    "png": png_format, "idx": idx_format, "idx.gz": idx_gz_format, "toml": toml_format,
    "tar": tar_format, "tokenizer": tokenizer_format, "safetensors": safetensors_format,
    "metrics": metrics_format, "checkpoint": checkpoint_format, "kernel cache": cache_format,
    "vsla": vsla_format, "csv": csv_format, "conversations": conversations_format,
    "preferences": preferences_format, "config.json": model_format, "captions": captions_format,
    "shards": shards_format, "tokenizer.json": partial(tokenizer_file_format, "tokenizer.json"),
    "tokenizer_config.json": partial(tokenizer_file_format, "tokenizer_config.json"),
}  # fmt: skip


def attack(name: str, count: int, seed: int, folder: Path) -> tuple[int, int]:
    """Attempt so many broken files of a format; gives how many were read and how many refused."""
    found, rng = FORMATS[name](), random.Random(seed)
    accepted = refused = 0
    tracemalloc.start()
    try:
        for _ in range(count):
            data = rng.choice(found.examples)
            if name in STRUCTURES and rng.random() < 0.5:
                data = STRUCTURES[name](data, rng)
            else:
                data = mutated(data, rng.choice(found.examples), rng)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                found.read(data, folder)
                accepted += 1
            except found.errors:
                refused += 1
            except BaseException as error:
                raise AssertionError(f"{name}: {data[:200]!r}") from error
            assert tracemalloc.get_traced_memory()[1] - before < MOST_BYTES, data[:200]
    finally:
        tracemalloc.stop()
    return accepted, refused
