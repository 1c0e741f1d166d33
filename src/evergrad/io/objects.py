"""Objects a file may have made, each from checked arguments.

Plain objects of Python and NumPy: a constructor with unexpected arguments is dangerous
(``bytearray(10**12)`` allocates), so a file reaches these functions instead. Tensors: PyTorch's
``_rebuild_*`` functions, argument by argument. Sparse tensors: the dense tensors they are made of.
"""

from __future__ import annotations

import datetime
import pathlib
import re
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

import evergrad
from evergrad.core.dtypes import dtype
from evergrad.core.memory_format import layout, sparse_coo
from evergrad.core.shapes import Size
from evergrad.core.tensor import Tensor
from evergrad.core.types import Array
from evergrad.errors import FileFormatError
from evergrad.io.storages import ElementType, Part, element_type
from evergrad.nn.hooks import HookTables
from evergrad.nn.parameter import Buffer, Parameter
from evergrad.sparse.compressed import NAMES, is_by_row
from evergrad.sparse.construct import check_pattern, sparse_compressed_tensor, sparse_coo_tensor
from evergrad.sparse.invariants import check_coalesced, check_range

if TYPE_CHECKING:
    from evergrad.core.types import DtypeLike, Ints

_ENCODINGS = ("latin1", "latin-1", "ascii", "utf-8", "utf8")
_LARGEST_KEY = 1 << 64
_MOST_IN_KEY = 1000
_NUMPY_TYPE = re.compile(r"b1|[iu][1248]|f[248]|c8|c16|[SU]\d{1,4}")
_FACTORIES = (
    None, list, dict, set, tuple, int, float, complex, bool, str, bytes, OrderedDict, Counter,
)  # fmt: skip


def refused(what: str) -> FileFormatError:
    return FileFormatError(f"the pickle makes {what}: the file is corrupted, or hostile.")


def check_key(key: object) -> None:
    """Make sure that a dictionary can take a key, and quickly.

    The hash of a nested tuple visits every part, however often it is repeated, and integers of any
    length can be chosen to have one hash; both would let a small file keep the reader busy.
    """
    pending = [key]
    visited = 0
    while pending:
        item = pending.pop()
        visited += 1
        if isinstance(item, tuple):
            visited += len(item)
            if visited > _MOST_IN_KEY:
                raise refused("a key of very many parts")
            pending.extend(item)
        elif type(item) is int and abs(item) > _LARGEST_KEY:
            raise refused("a key of a very large number")
        elif type(item).__hash__ is None:
            raise refused(f"a key of a {type(item).__name__}")


def insert(target: Any, items: list[object]) -> None:
    """Keys and values, in turns, into a dictionary."""
    if len(items) % 2:
        raise refused("a dictionary with a key that has no value")
    for key, value in zip(items[::2], items[1::2], strict=True):
        check_key(key)
        target[key] = value


def make_set(items: object = ()) -> set[Any]:
    return set(_members(items, "a set"))


def make_frozenset(items: object = ()) -> frozenset[object]:
    return frozenset(_members(items, "a frozenset"))


def _members(items: Any, what: str) -> Any:
    if type(items) not in (list, tuple, set, frozenset):
        raise refused(f"{what} of something else than a list")
    for item in items:
        check_key(item)
    result: list[Tensor | int | str] = items
    return result


def make_ordered_dict(items: object = ()) -> OrderedDict[object, object]:
    made: OrderedDict[object, Any] = OrderedDict()
    _fill(made, items)
    return made


def make_counter(items: object = ()) -> Counter[object]:
    made: Counter[Any] = Counter()
    _fill(made, items)
    return made


def make_defaultdict(factory: Any = None, items: object = ()) -> defaultdict[object, Any]:
    if not any(factory is allowed for allowed in _FACTORIES):
        raise refused("a defaultdict of something else than plain containers and numbers")
    made: defaultdict[object, Any] = defaultdict(factory)
    _fill(made, items)
    return made


def _fill(target: object, items: Any) -> None:
    if type(items) in (dict, OrderedDict):
        items = list(items.items())
    if type(items) not in (list, tuple) or not all(
        type(pair) in (list, tuple) and len(pair) == 2 for pair in items
    ):
        raise refused("a dictionary of something else than pairs")
    insert(target, [part for pair in items for part in pair])


def make_deque(items: Any = (), maxlen: Any = None) -> deque[Any]:
    if type(items) not in (list, tuple) or not (maxlen is None or type(maxlen) is int):
        raise refused("a deque of something else than a list")
    return deque(items, maxlen)


def make_size(sizes: Any = ()) -> Size:
    if type(sizes) not in (list, tuple, Size) or not all(type(n) is int for n in sizes):
        raise refused("a size of something else than whole numbers")
    return Size(sizes)


def make_bytes(text: object = "", encoding: object = "latin1") -> bytes:
    """Bytes as protocol 2 writes them: text, and how it is encoded."""
    if type(text) is not str or type(encoding) is not str or encoding not in _ENCODINGS:
        raise refused("bytes of something else than text")
    return text.encode(encoding)


def make_bytearray(data: Any = b"", encoding: object = "latin1") -> bytearray:
    if type(data) in (bytes, bytearray):
        return bytearray(data)
    return bytearray(make_bytes(data, encoding))


def make_complex(real: Any = 0.0, imag: Any = 0.0) -> complex:
    if type(real) not in (int, float) or type(imag) not in (int, float):
        raise refused("a complex number of something else than numbers")
    return complex(real, imag)


def make_slice(*args: object) -> slice:
    return slice(*args)


def make_range(*args: Any) -> range:
    return range(*args)


def make_namespace(*args: object) -> Namespace:
    _refuse_arguments(args, "a Namespace")
    return Namespace()


def make_simple_namespace(*args: object) -> SimpleNamespace:
    _refuse_arguments(args, "a SimpleNamespace")
    return SimpleNamespace()


def _refuse_arguments(args: tuple[object, ...], what: str) -> None:
    if args:
        raise refused(f"{what} with arguments")


def make_path(*parts: Any) -> pathlib.PurePath:
    if not all(type(part) is str for part in parts):
        raise refused("a path of something else than text")
    return pathlib.Path(*parts)


def time_maker(kind: Any) -> Callable[..., object]:
    """A function that makes dates, times or time spans."""

    def make_time(*args: object) -> object:
        if not all(
            type(arg) in (int, bytes, datetime.timezone, datetime.timedelta) for arg in args
        ):
            raise refused(f"a {kind.__name__} of something else than numbers")
        return kind(*args)

    return make_time


# -- NumPy --------------------------------------------------------------------------------------


def make_numpy_dtype(
    name: object, align: object = False, copy: object = False
) -> np.dtype[np.generic]:
    if type(name) is not str or not _NUMPY_TYPE.fullmatch(name):
        raise refused("an element type of NumPy that has no simple name")
    return np.dtype(name)


def set_numpy_dtype(made: np.dtype[np.generic], state: Any) -> None:
    """What a pickle states of an element type besides its name must be nothing new."""
    is_plain = type(state) is tuple and len(state) >= 5 and state[2:5] == (None, None, None)
    if not is_plain or state[1] not in ("<", "|", "="):
        raise refused("an element type of NumPy with fields, or in the other byte order")


def make_numpy_scalar(dtype: DtypeLike, data: object = b"") -> Any:
    if type(data) is str:  # bytes that Python 2 wrote
        data = make_bytes(data)
    if not isinstance(dtype, np.dtype) or type(data) is not bytes or len(data) != dtype.itemsize:
        raise refused("a number of NumPy of other bytes than its own")
    return np.frombuffer(data, _plain(dtype))[0]


def make_numpy_array(cls: object, shape: object, kind: object) -> Array:
    """An array without elements, as ``BUILD`` expects it."""
    if cls is not np.ndarray or type(shape) is not tuple or shape != (0,):
        raise refused("an array of NumPy with elements that are not there")
    return np.empty(0, np.int8)


def set_numpy_array(made: Array, state: object) -> None:
    """The shape, type and elements of an array."""
    if type(state) is not tuple or len(state) != 5:
        raise refused("an array of NumPy without its shape")
    _, shape, dtype, _, data = state
    shape = make_size(shape)
    if not isinstance(dtype, np.dtype) or type(data) is not bytes or len(shape) > 64:
        raise refused("an array of NumPy of other elements than numbers")
    if min(shape, default=1) < 0 or shape.numel() * _plain(dtype).itemsize != len(data):
        raise refused("an array of NumPy of other bytes than its own")
    made.__setstate__(state)


def make_array_from_buffer(data: Any, dtype: object, shape: object, order: object) -> Array:
    """An array as protocol 5 writes it."""
    if type(data) not in (bytes, bytearray):
        raise refused("an array of NumPy of something else than bytes")
    made = np.empty(0, np.int8)
    set_numpy_array(made, (1, shape, dtype, order == "F", bytes(data)))
    return made


def _plain(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    if dtype.hasobject or dtype.kind not in "?biufcSU" or dtype.names is not None:
        raise refused(f"elements of NumPy's type {dtype}")
    return dtype


_LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


def tensor(part: object, offset: object, size: object, stride: Ints) -> Tensor:
    """A tensor on a part of a storage."""
    if not isinstance(part, Part):
        raise FileFormatError("a tensor has no storage: the file is corrupted.")
    return part.typed_tensor(offset, size, stride)


def tensor_v2(
    part: object, offset: object, size: object, stride: Ints, requires_grad: object, hooks: object,
    metadata: object = None,
) -> Tensor:  # fmt: skip
    """The same with what else there is to say of it."""
    return _finished(tensor(part, offset, size, stride), requires_grad, metadata)


def tensor_v3(
    part: object, offset: object, size: object, stride: Ints, requires_grad: object, hooks: object,
    type: object, metadata: object = None,
) -> Tensor:  # fmt: skip
    """The same on a storage that does not know the type of its elements."""
    if not isinstance(part, Part):
        raise FileFormatError("a tensor has no storage: the file is corrupted.")
    if isinstance(type, dtype):
        type = element_type(type)
    if not isinstance(type, ElementType):
        raise FileFormatError("a tensor has no element type: the file is corrupted.")
    return _finished(part.tensor(type, offset, size, stride), requires_grad, metadata)


def _finished(made: Tensor, requires_grad: object, metadata: object) -> Tensor:
    if isinstance(metadata, dict) and metadata:
        if metadata.get("conj"):
            made = made.conj()
        if metadata.get("neg"):
            made = -made
    return _asking(made, requires_grad)


def _asking(made: Tensor, requires_grad: object) -> Tensor:
    if type(requires_grad) is not bool:
        raise FileFormatError("a tensor may or may not ask for a gradient: the file is corrupted.")
    if requires_grad and not (made.is_floating_point() or made.is_complex()):
        raise FileFormatError(
            f"a tensor of {made.dtype} asks for a gradient: the file is corrupted."
        )
    return made.requires_grad_(requires_grad)


def parameter(data: object = None, requires_grad: object = True, hooks: object = None) -> Parameter:
    """A parameter of a module."""
    if not isinstance(data, Tensor):
        raise FileFormatError("a parameter has no tensor: the file is corrupted.")
    return _asking(Parameter(data, requires_grad=False), requires_grad)  # type: ignore[return-value]


def parameter_with_state(
    data: object, requires_grad: object, hooks: object, state: object
) -> Parameter:
    """A parameter that carries attributes."""
    made = parameter(data, requires_grad)
    set_attributes(made, state)
    return made


def from_type(function: Any, cls: object, args: Any, state: object) -> Tensor:
    """A tensor of a subclass, or one that carries attributes."""
    if not any(function is own for own in (tensor, tensor_v2, tensor_v3, parameter)):
        raise FileFormatError("a tensor is made by something else: the file is corrupted.")
    if not isinstance(cls, type) or not issubclass(cls, Tensor):
        raise FileFormatError("a tensor is to be of a class that is none: the file is corrupted.")
    made: Tensor = function(*args)
    if cls is Tensor and isinstance(state, dict) and state.get("_is_buffer") is True:
        return _buffer(made, state)
    if type(made) is not cls:
        made = made.as_subclass(cls)
    set_attributes(made, state)
    return made


def _buffer(data: Tensor, state: dict[object, object]) -> Buffer:
    """A buffer, which PyTorch distinguishes from other tensors by its attributes."""
    made = Buffer(data, persistent=state.get("persistent") is True)
    own = {key: value for key, value in state.items() if key not in ("_is_buffer", "persistent")}
    set_attributes(made, own)
    return made


def set_attributes(instance: object, state: object) -> None:
    """Set the attributes of an object from a file; none may hide what its class has."""
    if isinstance(state, tuple) and len(state) == 2 and not state[1]:
        state = state[0]
    if state is None:
        return
    if not isinstance(state, dict) or not all(type(key) is str for key in state):
        raise FileFormatError(
            f"the attributes of a {type(instance).__name__} have no names: the file is corrupted."
        )
    hidden = [key for key in state if hasattr(type(instance), key)]
    if hidden:
        raise FileFormatError(
            f"the file gives a {type(instance).__name__} an attribute {hidden[0]!r}, which would "
            "hide the method of that name."
        )
    instance.__dict__.update(state)


def set_state(instance: Any, state: Any) -> None:
    """Give an object of a class the user trusts its state, as ``pickle`` does."""
    if hasattr(instance, "__setstate__"):
        instance.__setstate__(state)
        return
    slots: Any = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    for key, value in (slots or {}).items():
        setattr(instance, key, value)
    if state:
        instance.__dict__.update(state)


def set_own_state(instance: object, state: object) -> None:
    """Give a layer or an optimizer its state, without PyTorch's tables of hooks."""
    if type(state) is not dict or not all(type(key) is str for key in state):
        raise FileFormatError("the state of a layer is no dictionary: the file is corrupted.")
    own = {key: value for key, value in state.items() if key == "_hooks" or "_hook" not in key}
    set_state(instance, own)


def set_hook_tables(instance: HookTables, state: object) -> None:
    """Give a layer's tables of hooks their entries, which are functions the file may name."""
    tables = state[1] if type(state) is tuple and len(state) == 2 else None
    if type(tables) is not dict or not all(type(table) is dict for table in tables.values()):
        raise FileFormatError("the hooks of a layer are no tables: the file is corrupted.")
    for name in tables.keys() & set(HookTables.__slots__):
        setattr(instance, name, tables[name])


def layout_named(name: object) -> layout:
    """One of PyTorch's words for how elements are stored."""
    word = name.rpartition(".")[2] if type(name) is str else ""
    found = getattr(evergrad, word, None) if word in _LAYOUTS else None
    if not isinstance(found, layout):
        raise FileFormatError(f"evergrad has no layout {name!r:.60}.")
    return found


LAYOUTS = (sparse_coo, *NAMES)

_CHECKS_PER_BYTE = 8
_FREE_CHECKS = 1 << 16


def parts_of(tensor: Any) -> tuple[Any, ...]:
    """What a sparse tensor is made of, as PyTorch lists it."""
    if tensor.layout is sparse_coo:
        indices, values = tensor._indices().detach(), tensor._values().detach()
        return indices, values, tensor.shape, tensor.is_coalesced()
    if is_by_row(tensor.layout):
        indices = tensor.crow_indices(), tensor.col_indices()
    else:
        indices = tensor.ccol_indices(), tensor.row_indices()
    return (*indices, tensor.values().detach(), tensor.shape)


class SparseMaker:
    """Makes the sparse tensors of one file.

    Their indices can be checked only when all bytes have been read, which in old files comes last.
    Checking takes time, so all of them together may not be much larger than the file.
    """

    def __init__(self, file_size: int) -> None:
        self._made: list[Any] = []
        self._budget = file_size * _CHECKS_PER_BYTE + _FREE_CHECKS

    def make(self, kind: Any, data: object) -> Tensor:
        """A sparse tensor of its parts."""
        if not any(kind is known for known in LAYOUTS) or type(data) is not tuple:
            raise FileFormatError("a sparse tensor has no layout that is read here.")
        self._charge(data)
        try:
            made = _coo(*data) if kind is sparse_coo else _compressed(kind, *data)
        except RuntimeError as error:
            raise _refused(error) from None
        self._made.append(made)
        return made

    def _charge(self, data: tuple[object, ...]) -> None:
        self._budget -= sum(part.nbytes for part in data if isinstance(part, Tensor))
        if self._budget < 0:
            raise FileFormatError("sparse tensors are larger than the file: it is corrupted.")

    def verify(self) -> None:
        """Make sure that all indices are within the shapes."""
        for tensor in self._made:
            first = parts_of(tensor)[0].array()
            try:
                if tensor.layout is sparse_coo:
                    check_range(first, tuple(tensor.shape))
                    if tensor.is_coalesced():
                        check_coalesced(first, tuple(tensor.shape))
                else:
                    check_pattern(tensor)
            except (RuntimeError, LookupError) as error:
                raise _refused(error) from None


def _coo(indices: object, values: object, size: object, coalesced: object = None) -> Tensor:
    require_tensors(indices, values)
    return sparse_coo_tensor(
        indices, values, make_size(size), is_coalesced=coalesced is True, check_invariants=False
    )


def _compressed(
    kind: layout, pointers: Tensor, plain: Tensor, values: Tensor, size: object
) -> Tensor:
    require_tensors(pointers, plain, values)
    return sparse_compressed_tensor(
        pointers, plain, values, make_size(size), layout=kind, check_invariants=False
    )


def require_tensors(*parts: object) -> None:
    """Raise unless all parts of a sparse or nested tensor are tensors."""
    if not all(type(part) is Tensor for part in parts):
        raise FileFormatError("a tensor has parts that are none: the file is corrupted.")


def _refused(error: Exception) -> FileFormatError:
    return FileFormatError(f"a sparse tensor is wrong: {error}. The file is corrupted.")
