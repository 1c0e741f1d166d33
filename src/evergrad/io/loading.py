"""``load``: reads the files PyTorch writes, old and new, and never runs code they choose.

:class:`Assembler` decides about the names, calls and state in the instructions of a pickle: every
object is made by a function of :mod:`evergrad.io.allowed_names`, by a class of this package that is
created empty and given its state, or by what the user has granted by name.
"""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import sys
import warnings
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np

from evergrad.core.device import Device
from evergrad.core.tensor import Array
from evergrad.errors import FileFormatError, UnsafeFileError
from evergrad.io import objects
from evergrad.io.allowed_names import HARMLESS, WEIGHTS, Named, full_path, granted, own, trusted
from evergrad.io.archive import LOCAL_SIGNATURE, Archive, Source, is_path, opened
from evergrad.io.legacy import read_legacy
from evergrad.io.nested_parts import NestedMaker, rebuild_jagged
from evergrad.io.objects import SparseMaker
from evergrad.io.storages import (
    FileStorage,
    Part,
    Restore,
    device_maker,
    is_meta,
    on_meta,
    restorer,
    storage_identity,
)
from evergrad.io.unpickler import Interpreter, Stream

if TYPE_CHECKING:
    from evergrad.core.tensor import Tensor

# Not even a grant opens these.
_BLOCKED_MODULES = ("sys", "os", "posix", "nt")

_SIZED = (str, bytes, bytearray, list, tuple, dict, set, OrderedDict)
_DICTIONARIES = (dict, OrderedDict, Counter, defaultdict)

# A file may have as much copied as it has bytes, times this, and a little more.
_COPIES_PER_BYTE = 8
_FREE_COPIES = 1 << 16

_FAILURES = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)


class Assembler:
    """The :class:`~evergrad.io.unpickler.Maker` of one file.

    ``fetch`` gives the storage behind an identity; ``extra`` are names that depend on the call of
    ``load``.
    """

    def __init__(
        self,
        fetch: Callable[[Any], object],
        *,
        size: int,
        weights_only: bool,
        extra: dict[str, Named] | None = None,
    ) -> None:
        self.fetch = fetch
        self._weights_only = weights_only
        self._extra = extra or {}
        self._granted = granted()
        self._named: dict[int, Named] = {}
        self._budget = size * _COPIES_PER_BYTE + _FREE_COPIES

    # -- names ------------------------------------------------------------------------------

    def find(self, module: str, name: str) -> Any:
        path = full_path(module, name)
        if module.partition(".")[0] in _BLOCKED_MODULES:
            raise UnsafeFileError(
                f"Weights only load failed. Trying to load unsupported GLOBAL {path} whose module "
                f"{module} is blocked: no file needs it. Do not trust this file."
            )
        named = self._extra.get(path) or WEIGHTS.get(path) or self._on_request(path)
        if named is None:
            raise UnsafeFileError(_refusal(path, self._weights_only))
        self._named[id(named.value)] = named
        return named.value

    def _on_request(self, path: str) -> Named | None:
        """What a name refers to if it is granted, or if more than weights is requested."""
        is_granted = path in self._granted
        if path in HARMLESS and (is_granted or not self._weights_only):
            return HARMLESS[path]
        if is_granted:
            return trusted(self._granted[path])
        return None if self._weights_only else own(path)

    # -- objects ----------------------------------------------------------------------------

    def call(self, function: object, args: object) -> Any:
        named = self._named.get(id(function))
        if named is None or named.make is None or type(args) is not tuple:
            raise UnsafeFileError(
                f"the pickle calls {_described(function)}, which is nothing a file may call."
            )
        return self._made(named, args)

    def new(self, cls: Any, args: object, kwargs: object) -> Any:
        named = self._named.get(id(cls))
        is_callable = named is not None and named.make is not None and isinstance(cls, type)
        if named is None or not is_callable or type(args) is not tuple or type(kwargs) is not dict:
            raise UnsafeFileError(
                f"the pickle makes an object of {_described(cls)}, which is no class it may use."
            )
        if named.trusted:
            return cls.__new__(cls, *args, **kwargs)
        if kwargs:
            raise FileFormatError(
                f"{cls.__name__} is made without keywords, but the file has some."
            )
        return self._made(named, args)

    def _made(self, named: Named, args: tuple[object, ...]) -> object:
        assert named.make is not None
        self._charge(*args)
        if named.trusted:
            return named.make(*args)
        try:
            return named.make(*args)
        except FileFormatError:
            raise
        except _FAILURES as error:
            name = getattr(named.value, "__name__", named.value)
            raise FileFormatError(f"{name} refuses what the file gives it: {error}") from None

    def build(self, instance: object, state: object) -> None:
        # Each element type of NumPy has a class of its own, which pickles do not name.
        cls = np.dtype if isinstance(instance, np.dtype) else type(instance)
        named = self._named.get(id(cls))
        if named is None or named.set_state is None:
            raise UnsafeFileError(
                f"the pickle sets the state of {_described(cls)}, which is no class it may use."
            )
        self._charge(state)
        if named.trusted:
            named.set_state(instance, state)
            return
        try:
            named.set_state(instance, state)
        except FileFormatError:
            raise
        except _FAILURES as error:
            raise FileFormatError(
                f"{cls.__name__} refuses the state the file gives it: {error}"
            ) from None

    def _is_trusted(self, cls: type) -> bool:
        named = self._named.get(id(cls))
        return named is not None and named.trusted

    # -- containers -------------------------------------------------------------------------

    def append(self, target: Any, items: list[Any]) -> None:
        if type(target) in (list, deque):
            target.extend(items)
        elif self._is_trusted(type(target)):
            for item in items:
                target.append(item)
        else:
            raise FileFormatError(f"Can only append to lists, but got {type(target)}")

    def insert(self, target: object, items: list[object]) -> None:
        if type(target) not in _DICTIONARIES and not self._is_trusted(type(target)):
            raise FileFormatError(f"Can only set items of dictionaries, but got {type(target)}")
        objects.insert(target, items)

    def add(self, target: object, items: list[object]) -> None:
        if type(target) is not set:
            raise FileFormatError(f"Can only add to sets, but got {type(target)}")
        target.update(objects.make_set(items))

    def frozen(self, items: list[object]) -> Any:
        return objects.make_frozenset(items)

    def _charge(self, *copied: Any) -> None:
        """Note that the parts of these are copied; a small file must not have much copied."""
        self._budget -= sum(len(value) for value in copied if type(value) in _SIZED)
        if self._budget < 0:
            raise FileFormatError(
                "the pickle has one thing copied over and over: the file is corrupted, or hostile."
            )


def _described(value: object) -> str:
    return value.__qualname__ if isinstance(value, type) else f"a {type(value).__name__}"


def _refusal(path: str, weights_only: bool) -> str:
    name = path.removeprefix("builtins.")
    advice = (
        f"Please use `evergrad.serialization.add_safe_globals([{name}])` or the "
        f"`evergrad.serialization.safe_globals([{name}])` context manager to allowlist this global "
        "if you trust this class/function."
    )
    if not weights_only:
        return (
            f"Unsupported global: GLOBAL {name} is neither data nor a class of evergrad. A file is "
            f"never allowed to choose what code runs, with weights_only=False neither. {advice}"
        )
    return (
        f"Weights only load failed. Unsupported global: GLOBAL {name} was not an allowed global by "
        f"default. {advice} With weights_only=False, classes of evergrad and common plain objects "
        "are loaded too."
    )


def find_root(archive: Archive, name: str) -> str:
    """The folder inside an archive that holds its records."""
    if any(entry.endswith("/constants.pkl") for entry in archive.entries):
        raise FileFormatError(
            f"{name} is a TorchScript archive, which holds a program. Load it with PyTorch and "
            "save its state_dict()."
        )
    for entry in archive.entries:
        if entry.endswith("/data.pkl") and entry.count("/") == 1:
            return entry.removesuffix("data.pkl")
    raise FileFormatError(f"{name} is an archive, but not one that save() wrote.")


def get_unsafe_globals_in_checkpoint(f: object) -> list[str]:
    """The classes and functions that a file names and would have to be granted."""
    with opened(f) as source:
        if source.read(0, min(source.size, len(LOCAL_SIGNATURE))) != LOCAL_SIGNATURE:
            raise ValueError("Expected input to be a checkpoint returned by save")
        archive = Archive(source)
        names = _names_in(archive.read(find_root(archive, source.name) + "data.pkl"))
    return sorted(names - WEIGHTS.keys() - granted().keys())


def _names_in(data: bytes) -> set[str]:
    """The paths of all names that the instructions of a pickle push."""
    found = set()
    texts: list[str | None] = []  # what was pushed, as far as it is text
    memo: dict[int, str | None] = {}
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "GLOBAL":
                found.add(full_path(*str(argument).split(" ", 1)))
            elif opcode.name == "STACK_GLOBAL":
                found.add(full_path(*map(str, texts[-2:])))
            elif opcode.name in ("MEMOIZE", "BINPUT", "LONG_BINPUT"):
                memo[len(memo) if argument is None else int(argument)] = (
                    texts[-1] if texts else None
                )
                continue
            elif opcode.name in ("BINGET", "LONG_BINGET"):
                texts.append(memo.get(int(argument or 0)))
                continue
            texts.append(argument if isinstance(argument, str) else None)
    except (ValueError, TypeError) as error:
        raise FileFormatError(f"the pickle cannot be read: {error}") from None
    return found


class Options:
    """What a call of ``load`` asked for, and what it means for a file of some size."""

    def __init__(
        self, map_location: object, weights_only: bool, encoding: str, file_size: int
    ) -> None:
        self.restore: Restore = restorer(map_location)
        self.weights_only = weights_only
        self.encoding = encoding
        self.sparse: SparseMaker = SparseMaker(file_size)
        self.nested: NestedMaker = NestedMaker()
        makers = {
            "device": Named(Device, device_maker(self.restore)),
            "_utils._rebuild_sparse_tensor": Named(SparseMaker.make, self.sparse.make),
            "_tensor._rebuild_from_type_v2": Named(objects.from_type, self.nested.from_type),
            "nested._internal.nested_tensor._rebuild_njt": Named(
                rebuild_jagged, self.nested.jagged
            ),
        }
        self._extra = {f"torch.{name}": named for name, named in makers.items()}
        self._extra |= {f"evergrad.{name}": named for name, named in makers.items()}

    def read_pickle(self, stream: Stream, fetch: Any) -> Any:
        """The object of one pickle, whose storages ``fetch`` finds."""
        assembler = Assembler(
            fetch, size=stream.left, weights_only=self.weights_only, extra=self._extra
        )
        return Interpreter(stream, assembler, self.encoding).run()


class PickleArguments(TypedDict, total=False):
    """What ``load`` passes to the reader of pickles, where ``weights_only`` is false."""

    encoding: str
    errors: str
    fix_imports: bool


def load(
    f: Any,
    map_location: object = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Unpack[PickleArguments],
) -> Any:
    """Load what ``save`` of evergrad or PyTorch wrote to a path or a seekable file object.

    A file can have tensors and plain containers made, nothing else. ``weights_only=False`` adds
    classes of evergrad and common plain objects; ``evergrad.serialization.safe_globals([...])``
    adds classes and functions of yours. With ``mmap`` tensors are read when they are used.

    >>> import io
    >>> file = io.BytesIO()
    >>> eg.save({"x": eg.ones(2)}, file)
    >>> _ = file.seek(0)
    >>> eg.load(file)
    {'x': tensor([1., 1.])}
    """
    if is_meta(map_location):
        found = load(
            f, None if is_path(f) and os.fspath(f).endswith(".safetensors") else "cpu",
            pickle_module, weights_only=weights_only, mmap=mmap, **pickle_load_args,
        )  # fmt: skip
        return on_meta(found)
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
    options.nested.verify()
    return result


def _weights_only(weights_only: bool | None, pickle_module: object) -> bool:
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


def _load_safetensors(f: Any, map_location: Any) -> dict[str, Tensor]:
    from evergrad.io.safetensors import load_file  # start-up: the package safetensors

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

    def _fetch(self, identity: object) -> Part:
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
