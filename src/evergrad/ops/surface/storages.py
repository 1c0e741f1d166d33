"""Storages as PyTorch's programs see them: bytes, or elements of one type."""

from __future__ import annotations

import builtins
import functools
import gc
import mmap
import os
import warnings
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from evergrad.core.device import CPU, Device
from evergrad.core.dtypes import (
    as_dtype,
    bfloat16,
    bool_,
    complex64,
    complex128,
    dtype,
    float16,
    float32,
    float64,
    from_numpy_dtype,
    get_default_dtype,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from evergrad.core.functionalize import note_property_read
from evergrad.core.package_name import package_name
from evergrad.core.shapes import tensor_type
from evergrad.core.source_location import user_stacklevel
from evergrad.core.storage import Storage
from evergrad.core.tensor import Array, Tensor, from_array, on_storage
from evergrad.core.trace import Var
from evergrad.memory.pool import Block
from evergrad.ops.surface.public import FUNCTIONS, expose

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike, Index, LayoutLike, Leaves


class UntypedStorage:
    """The bytes behind a tensor, as PyTorch's programs ask about them."""

    __slots__ = ("_storage",)

    def __init__(self, source: object = 0, *, device: DeviceLike = None) -> None:
        """The storage of a tensor, so many bytes, or bytes."""
        self._storage = self._made(source, np.dtype(np.uint8))

    @staticmethod
    def _made(source: Any, kind: np.dtype[np.generic]) -> Storage:
        if isinstance(source, Storage):
            return source
        if isinstance(source, UntypedStorage):
            return source._storage
        is_size = isinstance(source, int)
        array = np.zeros(source, kind) if is_size else np.array(source, kind).reshape(-1)
        return from_array(array)._storage

    def fill_(self, value: object) -> Self:
        """Write one element everywhere."""
        self[:] = value
        return self

    def copy_(self, source: UntypedStorage, non_blocking: bool | None = None) -> Self:
        """Write the elements of another storage."""
        self[:] = source._elements()
        return self

    def clone(self) -> Self:
        """A storage of its own with the same elements."""
        made = type(self).__new__(type(self))
        made._storage = from_array(self._elements().copy())._storage
        return made

    def resize_(self, size: int) -> Self:
        """So many elements; refused while tensors look at the storage, which would not follow."""
        if any(isinstance(found, Tensor) for found in gc.get_referrers(self._storage)):
            raise RuntimeError(
                "cannot resize a storage that a tensor looks at; resize_() the tensor"
            )
        elements = self._elements()
        grown = np.zeros(size, elements.dtype)
        kept = min(size, elements.size)
        grown[:kept] = elements[:kept]
        self._storage = from_array(grown)._storage
        return self

    def share_memory_(self) -> Self:
        """Where tensors share memory, they move it themselves."""
        self._tensor().share_memory_()
        return self

    def resizable(self) -> bool:
        return True

    def get_device(self) -> int:
        return -1

    def is_pinned(self, device: DeviceLike = "cuda") -> bool:
        return False

    @classmethod
    def from_file(
        cls, filename: str | os.PathLike[str], shared: bool = False, nbytes: int = 0
    ) -> UntypedStorage:
        """The bytes of a file, mapped into memory; writes reach it only if ``shared``."""
        size = nbytes or os.path.getsize(filename)
        if shared and (not os.path.exists(filename) or os.path.getsize(filename) < size):
            with open(filename, "ab") as file:
                file.truncate(size)
        mapped = np.memmap(filename, np.uint8, "r+" if shared else "c", shape=(size,))
        tensor = from_array(mapped.view(np.ndarray))
        return cls(tensor._storage)

    def _tensor(self) -> Tensor:
        """A tensor of all elements."""
        value = self._array().reshape(-1)
        kind = tensor_type(value.shape, from_numpy_dtype(value.dtype))
        return on_storage(value, kind, self._storage, None)

    @property
    def device(self) -> Device:
        return CPU

    @property
    def is_cuda(self) -> bool:
        return False

    def untyped(self) -> UntypedStorage:
        return UntypedStorage(self._storage)

    def _elements(self) -> Array:
        return self._array().reshape(-1).view(np.uint8)

    def __getitem__(self, index: Index) -> Any:
        """One element, or a storage that shares the memory of several."""
        found = self._elements()[index]
        if isinstance(index, slice):
            return type(self)(from_array(found)._storage)
        return found.item()

    def __setitem__(self, index: Index, value: Any) -> None:
        self._elements()[index] = value
        self._storage.version += 1

    def _array(self) -> Array:
        value = self._storage.value
        if isinstance(value, Var):
            value.trace.materialize("the storage of a traced tensor was read")
            return self._storage.value  # type: ignore[return-value]
        return value

    def nbytes(self) -> int:
        return self._storage.type.nbytes

    def size(self) -> int:
        return self._storage.type.nbytes

    def __len__(self) -> int:
        return self._storage.type.nbytes

    def data_ptr(self) -> int:
        return int(self._array().__array_interface__["data"][0])

    def element_size(self) -> int:
        return 1

    def tolist(self) -> list[int]:
        return list(self._array().tobytes())

    def is_shared(self) -> bool:
        return in_shared_memory(self._storage)

    def cpu(self) -> UntypedStorage:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and other._storage is self._storage

    def __hash__(self) -> int:
        return hash(id(self._storage))

    def __repr__(self) -> str:
        return self._printed(f"{package_name()}.storage.UntypedStorage(device=cpu)")

    def _printed(self, kind: str) -> str:
        """An element in each line, as PyTorch prints storages."""
        lines = "".join(f" {element}\n" for element in self.tolist())
        return f"{lines}[{kind} of size {self.size()}]"


class TypedStorage(UntypedStorage):
    """The same counted in elements."""

    __slots__ = ()

    # The element type of a class such as ``FloatStorage``.
    kind: ClassVar[dtype] = float32

    def __init__(
        self, source: object = 0, *, wrap_storage: UntypedStorage | None = None,
        dtype: DtypeLike = None, device: DeviceLike = None,
    ) -> None:  # fmt: skip
        target = self.kind if dtype is None else as_dtype(dtype)
        if wrap_storage is not None:
            source = from_array(wrap_storage._elements().view(target.np))._storage
        self._storage = self._made(source, target.np)

    @classmethod
    def from_file(
        cls, filename: str | os.PathLike[str], shared: bool = False, size: int = 0
    ) -> UntypedStorage:
        """The elements of a file, mapped into memory; writes reach it only if ``shared``."""
        mapped = UntypedStorage.from_file(filename, shared, size * cls.kind.itemsize)
        return cls(wrap_storage=mapped, dtype=cls.kind)

    @classmethod
    def from_buffer(cls, buffer: Any, byte_order: str | None = None, **options: object) -> Self:
        """A copy of a Python buffer as elements of this type."""
        return cls(np.frombuffer(bytes(buffer), cls.kind.np))

    _from_buffer = from_buffer

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the class, or the elements as those of another."""
        if dtype is None:
            return f"{package_name()}.{BY_KIND[self.dtype].__name__}"
        return dtype(self._elements().astype(dtype.kind.np))

    def _as(self, name: str) -> TypedStorage:
        found: TypedStorage = self.type(TYPES[name])
        return found

    def size(self) -> int:
        return self._storage.type.numel

    __len__ = size

    def _elements(self) -> Array:
        return self._array().reshape(-1)

    @property
    def dtype(self) -> Any:
        return self._storage.type.dtype

    def element_size(self) -> int:
        return self._storage.type.dtype.itemsize

    def tolist(self) -> Leaves:
        return list(self._array().reshape(-1).tolist())

    def __repr__(self) -> str:
        return self._printed(
            f"{package_name()}.storage.TypedStorage(dtype={self.dtype}, device=cpu)"
        )


def _typed(name: str, kind: dtype) -> type[TypedStorage]:
    doc = f"Elements of {kind.name}.\n\n>>> eg.{name}(3).size()\n3"
    body = {"__slots__": (), "kind": kind, "__doc__": doc, "__module__": "evergrad"}
    return builtins.type(name, (TypedStorage,), body)


_KINDS = {
    "double": ("Double", float64), "float": ("Float", float32), "half": ("Half", float16),
    "bfloat16": ("BFloat16", bfloat16), "long": ("Long", int64), "int": ("Int", int32),
    "short": ("Short", int16), "char": ("Char", int8), "byte": ("Byte", uint8),
    "bool": ("Bool", bool_), "complex_double": ("ComplexDouble", complex128),
    "complex_float": ("ComplexFloat", complex64),
}  # fmt: skip
TYPES = {name: _typed(f"{word}Storage", kind) for name, (word, kind) in _KINDS.items()}
BY_KIND = {made.kind: made for made in TYPES.values()}
for _name, _made in TYPES.items():
    setattr(TypedStorage, _name, functools.partialmethod(TypedStorage._as, _name))
    FUNCTIONS[_made.__name__] = _made


@expose(method=False, out=False)
def is_storage(obj: object) -> bool:
    """Whether the object is a storage.

    >>> eg.is_storage(eg.ones(2).untyped_storage())
    True
    """
    return isinstance(obj, UntypedStorage)


@expose(method=False, out=False)
def from_file(
    filename: str, shared: bool | None = None, size: int | None = 0, *, dtype: DtypeLike = None,
    layout: LayoutLike = None, device: DeviceLike = None, pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A vector on the memory of a file; writes reach it only if ``shared``.

    Args:
        filename: the file
        shared: whether writes reach it; default ``None``, no
        size: the number of elements
        dtype: their type; by default the default type

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(bytes(8))
    ...     file.flush()
    ...     eg.from_file(file.name, size=2).clone()
    tensor([0., 0.])
    """
    target = get_default_dtype() if dtype is None else as_dtype(dtype)
    mapped = UntypedStorage.from_file(filename, bool(shared), (size or 0) * target.itemsize)
    return from_array(mapped._elements().view(target.np)).requires_grad_(requires_grad)


@expose(function=False)
def untyped_storage(self: Tensor) -> UntypedStorage:
    """The bytes this tensor looks at, whole."""
    note_property_read(self, "the storage")
    return UntypedStorage(self._storage)


@expose(function=False)
def storage(self: Tensor) -> TypedStorage:
    """The elements this tensor looks at, whole."""
    note_property_read(self, "the storage")
    if package_name() == "torch":
        warnings.warn(
            "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will "
            "be the only storage class. This should only matter to you if you are using storages "
            "directly.  To access UntypedStorage directly, use tensor.untyped_storage() instead "
            "of tensor.storage()",
            stacklevel=user_stacklevel(),
        )
    return TypedStorage(self._storage)


def in_shared_memory(storage: Storage) -> bool:
    owner: object = storage.value
    while isinstance(owner, np.ndarray | memoryview):
        if isinstance(owner, Block):
            return False  # pooled memory is mapped, too, but for this process alone
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return isinstance(owner, mmap.mmap)
