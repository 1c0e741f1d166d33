"""The format of PyTorch before 1.6: pickles one after the other, then the bytes of the storages."""

from __future__ import annotations

import pickle
import struct
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.errors import FileFormatError
from evergrad.io.archive import Source
from evergrad.io.storages import FileStorage, Part, Restore, is_count, storage_identity
from evergrad.io.unpickler import Stream

if TYPE_CHECKING:
    from evergrad.io.saving import Region

_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
_PROTOCOL_VERSION = 1001
_TAR_SIGNATURE, _TAR_PLACE = b"ustar", 257
_COUNT = struct.Struct("<q")

# Reads one pickle from a stream, with the function that finds what it refers to.
ReadPickle = Callable[[Stream, Callable[[Any], Any]], Any]


# -- writing ------------------------------------------------------------------------------------


def write_legacy(file: Any, pickled: bytes, regions: Iterable[Region]) -> None:
    """Write one pickle and the storages it refers to."""
    by_key = {region.key: region for region in regions}
    sizes = {"short": 2, "int": 4, "long": 4}
    about = {
        "protocol_version": _PROTOCOL_VERSION,
        "little_endian": sys.byteorder == "little",
        "type_sizes": sizes,
    }
    for header in (_MAGIC_NUMBER, _PROTOCOL_VERSION, about):
        file.write(pickle.dumps(header, 2))
    file.write(pickled)
    file.write(pickle.dumps(sorted(by_key), 2))
    for key in sorted(by_key):
        file.write(_COUNT.pack(by_key[key].numel))
        file.write(by_key[key].little_endian().data)


# -- reading ------------------------------------------------------------------------------------


def read_legacy(source: Source, read_pickle: ReadPickle, restore: Restore) -> Any:
    """The object in a file that is no archive."""
    start = source.read(0, min(source.size, _TAR_PLACE + len(_TAR_SIGNATURE)))
    if start[_TAR_PLACE:] == _TAR_SIGNATURE:
        raise FileFormatError(
            f"{source.name} is in the tar format of PyTorch before 0.1.10, which is not read here. "
            "Load it with PyTorch and save it again."
        )
    source.file.seek(source.start)
    return _LegacyLoad(source, read_pickle, restore).run()


class _LegacyLoad:
    """One reading: storages are made when a pickle names them, and filled after it."""

    def __init__(self, source: Source, read_pickle: ReadPickle, restore: Restore) -> None:
        self._source = source
        self._read_pickle = read_pickle
        self._restore = restore
        self._storages: dict[str, tuple[FileStorage, int]] = {}
        self._promised = 0

    def run(self) -> Any:
        magic = self._next(_nothing)
        if type(magic) is not int or magic != _MAGIC_NUMBER:
            raise FileFormatError(
                f"{self._source.name}: Invalid magic number; corrupt file? It was not written by "
                "save() of evergrad or PyTorch."
            )
        version = self._next(_nothing)
        if type(version) is not int or version != _PROTOCOL_VERSION:
            raise FileFormatError(f"Invalid protocol version: {version!r:.40}")
        self._next(_nothing)
        result = self._next(self._fetch)
        self._fill(self._next(_nothing))
        return result

    def _next(self, fetch: Callable[[object], object]) -> object:
        return self._read_pickle(Stream(self._source.file, self._source.left()), fetch)

    def _fetch(self, identity: object) -> object:
        if type(identity) is tuple and len(identity) == 4 and type(identity[0]) is str:
            return identity[1]  # ("module", class, file, source): the class is what matters
        kind, key, location, numel, view = storage_identity(identity, 6)
        if key not in self._storages:
            size = numel * kind.element.stored.itemsize
            self._promised += size
            if self._promised > self._source.left():
                raise self._source.truncated()
            made = FileStorage(np.empty(size, np.uint8), kind, filled=False)
            self._restore(made.storage, location)
            self._storages[key] = made, numel
        found, whole = self._storages[key]
        part = Part(found, kind.element, whole)
        return part if view is None else _view(part, view)

    def _fill(self, keys: object) -> None:
        """Read the bytes of all storages, which stand in the order of the keys."""
        if type(keys) is not list or any(type(key) is not str for key in keys):
            raise FileFormatError("the list of storages is broken: the file is corrupted.")
        if len(keys) != len(set(keys)) or set(keys) != set(self._storages):
            raise FileFormatError("the list of storages is not complete: the file is corrupted.")
        offset = self._source.size - self._source.left()
        for key in keys:
            storage, numel = self._storages[key]
            (count,) = _COUNT.unpack(self._source.read(offset, _COUNT.size))
            if count != numel:
                raise FileFormatError(
                    f"a storage of {numel} elements has {count} in the file: it is corrupted."
                )
            offset += _COUNT.size
            storage.fill(self._source, offset)
            offset += storage.raw.nbytes


def _nothing(identity: object) -> object:
    raise FileFormatError("the pickle refers to storages before there are any.")


def _view(whole: Part, view: object) -> Part:
    """A part of a storage, as PyTorch had it before 0.4."""
    if type(view) is not tuple or len(view) != 3 or not all(map(is_count, view[1:])):
        raise FileFormatError("a part of a storage has no place: the file is corrupted.")
    _, first, numel = view
    if first + numel > whole.numel:
        raise FileFormatError(
            "a part of a storage is larger than the whole: the file is corrupted."
        )
    return whole.part(first, numel)
