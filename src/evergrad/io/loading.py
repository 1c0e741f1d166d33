"""``load``: reads the files PyTorch writes, old and new, and never runs code they choose."""

from __future__ import annotations

import io
import os
import pickle
import sys
import warnings
from typing import Any

from evergrad.core.tensor import Array, Device
from evergrad.errors import FileFormatError
from evergrad.io.assembler import Assembler
from evergrad.io.inspecting import find_root
from evergrad.io.interpreter import Interpreter, Stream
from evergrad.io.legacy import read_legacy
from evergrad.io.locations import Restore, device_maker, restorer
from evergrad.io.names import Named
from evergrad.io.sources import Source, is_path, opened
from evergrad.io.sparse_parts import SparseMaker
from evergrad.io.storages import FileStorage, Part, storage_identity
from evergrad.io.zip_reader import LOCAL_SIGNATURE, Archive


class Options:
    """What a call of ``load`` asked for, and what it means for a file of some size."""

    def __init__(
        self, map_location: Any, weights_only: bool, encoding: str, file_size: int
    ) -> None:
        self.restore: Restore = restorer(map_location)
        self.weights_only = weights_only
        self.encoding = encoding
        self.sparse = SparseMaker(file_size)
        makers = {
            "device": Named(Device, device_maker(self.restore)),
            "_utils._rebuild_sparse_tensor": Named(SparseMaker.make, self.sparse.make),
        }
        self._extra = {f"torch.{name}": named for name, named in makers.items()}
        self._extra |= {f"evergrad.{name}": named for name, named in makers.items()}

    def read_pickle(self, stream: Stream, fetch: Any) -> Any:
        """The object of one pickle, whose storages ``fetch`` finds."""
        assembler = Assembler(
            fetch, size=stream.left, weights_only=self.weights_only, extra=self._extra
        )
        return Interpreter(stream, assembler, self.encoding).run()


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Load what ``save`` of evergrad or PyTorch wrote to a path or a seekable file object.

    A file can have tensors and plain containers made, nothing else. ``weights_only=False`` adds
    classes of evergrad and common plain objects; ``evergrad.serialization.safe_globals([...])``
    adds classes and functions of yours. With ``mmap`` tensors are read when they are used.
    """
    weights_only = _weights_only(weights_only, pickle_module)
    if pickle_load_args and weights_only:
        warnings.warn("pickle_load_args only works if `weights_only=False`.", stacklevel=2)
    encoding = "utf-8" if weights_only else pickle_load_args.pop("encoding", "utf-8")
    if pickle_load_args and not weights_only:
        raise TypeError(
            f"load() got an unexpected keyword argument {next(iter(pickle_load_args))!r}"
        )
    if is_path(f) and os.fspath(f).endswith(".safetensors"):
        return _load_safetensors(f, map_location)
    with opened(f) as source:
        options = Options(map_location, weights_only, encoding, source.size)
        if source.size == 0:
            raise EOFError(f"Ran out of input: {source.name} is empty.")
        if source.read(0, min(source.size, len(LOCAL_SIGNATURE))) == LOCAL_SIGNATURE:
            if mmap and not is_path(f):
                raise ValueError("f must be a file path in order to use the mmap argument")
            result = _ArchiveLoad(source, options, bool(mmap)).run()
        elif mmap:
            raise RuntimeError(
                "mmap can only be used with files saved with `_use_new_zipfile_serialization=True`"
                ", please save your checkpoint with this option in order to use mmap."
            )
        else:
            result = read_legacy(source, options.read_pickle, options.restore)
    options.sparse.verify()
    return result


def _weights_only(weights_only: bool | None, pickle_module: Any) -> bool:
    if weights_only is None:
        weights_only = pickle_module is None
    if pickle_module is None:
        return bool(weights_only)
    if weights_only:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    if pickle_module is not pickle:
        raise ValueError(
            f"files are read by evergrad's own interpreter, which runs no code of theirs, and not "
            f"by {getattr(pickle_module, '__name__', pickle_module)}; leave pickle_module out"
        )
    return False


def _load_safetensors(f: Any, map_location: Any) -> Any:
    from evergrad.io.safetensors import load_file

    if isinstance(map_location, dict) or callable(map_location):
        raise RuntimeError(
            "Loading safetensors file with dict or callable map_location is not supported. Use a "
            "device string or evergrad.device instead."
        )
    return load_file(f, device="cpu" if map_location is None else map_location)


class _ArchiveLoad:
    """One reading of an archive: a pickle, and the storages it refers to."""

    def __init__(self, source: Source, options: Options, mapped: bool) -> None:
        self._archive = Archive(source)
        self._options = options
        self._root = find_root(self._archive, source.name)
        self._swapped = self._byte_order() != sys.byteorder
        self._map: Array | None = source.mapped() if mapped else None
        self._storages: dict[str, FileStorage] = {}

    def run(self) -> Any:
        data = self._archive.read(self._root + "data.pkl")
        return self._options.read_pickle(Stream(io.BytesIO(data), len(data)), self._fetch)

    def _byte_order(self) -> str:
        if self._root + "byteorder" not in self._archive.entries:
            return "little"
        found = self._archive.read(self._root + "byteorder")
        if found not in (b"little", b"big"):
            raise FileFormatError(f"Unknown endianness type: {found[:20]!r}")
        return found.decode()

    def _fetch(self, identity: Any) -> Part:
        """The storage that a pickle refers to, which is read when it is first met."""
        kind, key, location, numel = storage_identity(identity, 5)[:4]
        name = f"{self._root}data/{key}"
        size = self._archive.size(name)
        if numel * kind.element.stored.itemsize != size - size % kind.element.stored.itemsize:
            raise FileFormatError(
                f"a storage of {numel} elements has {size} bytes in the file: it is corrupted."
            )
        found = self._storages.get(key)
        if found is None:
            raw = self._bytes(name, numel * kind.element.stored.itemsize)
            found = FileStorage(raw, kind, mapped=self._map is not None, swapped=self._swapped)
            self._options.restore(found.storage, location)
            self._storages[key] = found
        return Part(found, kind.element, numel)

    def _bytes(self, name: str, count: int) -> Array:
        if self._map is None:
            return self._archive.array(name)[:count]
        offset = self._archive.offset(name)
        return self._map[offset : offset + count]
