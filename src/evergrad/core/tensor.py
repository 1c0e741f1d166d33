"""The tensor: a handle on a storage, with its node in the autograd graph.

Owns the handle's fields (type, value, view, leaf) and nothing that computes: operators and methods
are attached by the op modules, from the same table that makes the functions.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, overload

from evergrad.core import dtypes
from evergrad.core.device import CPU, Device
from evergrad.core.dtypes import dtype
from evergrad.core.functionalize import (
    note_flag_read,
    note_grad_read,
    note_grad_set,
    note_outside_read,
    note_property_read,
)
from evergrad.core.mutation_counter import MUTATIONS
from evergrad.core.node import GraphNode, Leaf, named
from evergrad.core.shapes import Size, TensorType, contiguous_strides, normalize_dim, tensor_type
from evergrad.core.state import STATE
from evergrad.core.storage import NO_ARRAY, InferenceStorage, Storage
from evergrad.core.tensor_methods import TensorMethods
from evergrad.core.trace import Var, leaked
from evergrad.core.types import Array as Array
from evergrad.extension import ExtensionPoint
from evergrad.memory.ledger import LEDGER, exclusive

if TYPE_CHECKING:
    from evergrad.core.types import MemoryFormatLike
    from evergrad.core.views import View

_fragment: ExtensionPoint[[Tensor], str | None] = ExtensionPoint("tensor_fragment")
_refresh: ExtensionPoint[[Tensor], None] = ExtensionPoint("refresh")
_wrap_subclass: ExtensionPoint[[type[Tensor]], None] = ExtensionPoint("wrap_subclass")
_default_torch_function: ExtensionPoint[[type[Tensor], object, object, object], object] = (
    ExtensionPoint("default_torch_function")
)


class TensorMeta(type):
    """The class of :class:`Tensor`: counts how often one of its methods was added, replaced or
    deleted, on which compiled programs depend."""

    patches: int = 0

    def __setattr__(cls, name: str, value: object) -> None:
        super().__setattr__(name, value)
        cls._note_patch()

    def __delattr__(cls, name: str) -> None:
        super().__delattr__(name)
        cls._note_patch()

    def _note_patch(cls) -> None:
        TensorMeta.patches += 1
        MUTATIONS.advance()


class Tensor(TensorMethods, metaclass=TensorMeta):
    """A multi-dimensional array that can be differentiated through.

    Args:
        args: extents, for elements to be filled, or data: numbers, lists, an array, a tensor; of
            the default element type. :func:`evergrad.tensor` keeps the type of the data
        device: only the CPU

    >>> x = eg.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    >>> eg.Tensor([1, 2])
    tensor([1., 2.])
    """

    __slots__ = (
        "__dict__", "__weakref__", "_grad", "_index", "_leaf", "_node", "_storage", "_type",
        "_value", "_view",
    )  # fmt: skip

    _type: TensorType
    # An array that aliases the storage, or the symbolic value while tracing.
    _value: Any
    _storage: Storage
    _node: GraphNode | None
    _index: int
    _view: View | None
    # Made by the first requires_grad_(); kept when it is switched off.
    _leaf: Leaf | None
    _grad: Tensor | None

    # -- subclasses -------------------------------------------------------------------------

    def __init_subclass__(cls, **options: object) -> None:
        """A subclass of a user stays what it is through ops, as ``__torch_function__`` says."""
        super().__init_subclass__(**options)
        if not cls.__module__.startswith("evergrad."):
            _wrap_subclass(cls)

    @classmethod
    def __torch_function__(
        cls, func: object, types: object, args: tuple[object, ...] = (), kwargs: object = None
    ) -> Any:
        """Call a function on plain tensors; tensors among its results become this class."""
        return _default_torch_function(cls, func, args, kwargs)

    def _repr_html_(self) -> str | None:
        """What the cell of a notebook shows; ``None`` for the text."""
        return _fragment(self)

    # -- type -------------------------------------------------------------------------------

    @property
    def shape(self) -> Size:
        """The extents."""
        return Size(self._type.shape)

    @property
    def dtype(self) -> dtype:
        """The element type."""
        return self._type.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._type.shape)

    @property
    def device(self) -> Device:
        """Where the elements are: the CPU."""
        return CPU

    @property
    def nbytes(self) -> int:
        """The bytes of the elements."""
        return self._type.nbytes

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return self._type.dtype.itemsize

    @overload
    def size(self, dim: None = None) -> Size: ...
    @overload
    def size(self, dim: int) -> int: ...
    def size(self, dim: int | None = None) -> Size | int:
        """The shape, or the extent of one dimension."""
        if dim is None:
            return Size(self._type.shape)
        return self._type.shape[normalize_dim(dim, self.ndim)] if self.ndim else 1

    def dim(self) -> int:
        """The number of dimensions."""
        return len(self._type.shape)

    def numel(self) -> int:
        """The number of elements."""
        return self._type.numel

    nelement = numel

    def element_size(self) -> int:
        """The bytes of an element."""
        return self._type.dtype.itemsize

    def is_floating_point(self) -> bool:
        """Whether the elements are floats."""
        return self._type.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Whether the elements are complex."""
        return self._type.dtype.is_complex

    def is_signed(self) -> bool:
        """Whether the element type has negative numbers."""
        return self._type.dtype.is_signed

    def __len__(self) -> int:
        if not self._type.shape:
            raise TypeError("len() of a 0-d tensor")
        return self._type.shape[0]

    __hash__ = object.__hash__

    # -- memory -----------------------------------------------------------------------------

    def layout_array(self) -> Array:
        """An array with this tensor's strides; of a symbolic tensor one without memory."""
        value = self._value
        return value.layout if isinstance(value, Var) else value

    @overload
    def stride(self, dim: None = None) -> tuple[int, ...]: ...
    @overload
    def stride(self, dim: int) -> int: ...
    def stride(self, dim: int | None = None) -> tuple[int, ...] | int:
        """The strides in elements, of each dimension or of one."""
        array = self.layout_array()
        strides = tuple(s // array.itemsize for s in array.strides)
        if array.size <= 1 or 0 in array.shape:
            strides = contiguous_strides(array.shape)
        return strides if dim is None else strides[dim]

    def storage_offset(self) -> int:
        """The offset of the first element in its storage, in elements."""
        note_property_read(self, "the offset")
        return offset_of(self)

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self.array().__array_interface__["data"][0])

    def is_contiguous(self, memory_format: MemoryFormatLike = None) -> bool:
        """Whether the elements are contiguous in the order of a memory format, rows by default."""
        array = self.layout_array()
        if memory_format is None or memory_format.order is None:
            return bool(array.flags.c_contiguous)
        return bool(memory_format.fits(array))

    def is_inference(self) -> bool:
        """Whether the tensor was made in inference mode."""
        note_property_read(self, "is_inference()")
        return self._storage.__class__ is InferenceStorage

    def array(self) -> Array:
        """The elements as an array, for reading inside the engine."""
        materialize(
            self,
            "the value of a traced tensor was read (.item(), bool(), float(), .numpy(), "
            ".tolist() or an index that depends on data)",
        )
        note_outside_read(self)
        return self._value  # type: ignore[no-any-return]

    # -- graph ------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether operations on it are recorded."""
        note_flag_read(self)
        return current_node(self) is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set whether backward accumulates the gradient of this leaf."""
        note_flag_read(self)
        node = current_node(self)
        if bool(requires_grad) == (node is not None):
            return self
        if self._storage.__class__ is InferenceStorage and not STATE.get().inference:
            raise RuntimeError(
                "Setting requires_grad=True on inference tensor outside InferenceMode is not "
                "allowed. Make a clone() of it to get a normal tensor."
            )
        if node is not None:
            if not isinstance(node, Leaf):
                raise RuntimeError(
                    "you can only change requires_grad flags of leaf variables. If you want to "
                    "use a computed variable in a subgraph that doesn't require differentiation "
                    "use var_no_grad = var.detach()."
                )
            self._node = None
            MUTATIONS.advance()
            return self
        if self._type.dtype.category < dtypes.FLOATING:
            raise RuntimeError(
                "only Tensors of floating point and complex dtype can require gradients, but this "
                f"one has dtype {self.dtype.name}; convert it with .float()"
            )
        if self._leaf is None:
            self._leaf = Leaf(self)
        self._node = self._leaf
        self._index = 0
        if self._view is not None:  # a leaf follows no base
            self._view = self._view.detached()
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether it is no result of a recorded operation."""
        note_flag_read(self)
        node = current_node(self)
        return node is None or isinstance(node, Leaf)

    @property
    def grad_fn(self) -> GraphNode | None:
        """The node that computed this tensor; ``None`` for a leaf."""
        node = current_node(self)
        if node is not None and not isinstance(node, Leaf):
            note_property_read(self, "grad_fn")
        return None if isinstance(node, Leaf) else named(node)

    @property
    def grad(self) -> Tensor | None:
        """The gradient accumulated by ``backward``."""
        if self._grad is None and not self.is_leaf and not keeps_grad(self):
            import warnings

            warnings.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its "
                ".grad attribute won't be populated during autograd.backward(). Use "
                ".retain_grad() on it if you want its gradient.",
                UserWarning,
                stacklevel=2,
            )
        note_grad_read(self)
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(f"assigned grad has type {type(value).__name__}, not Tensor")
            if value is self:
                raise RuntimeError("can't assign Variable as its own grad")
            if value._type.shape != self._type.shape:
                raise RuntimeError(
                    f"assigned grad has data of a different size: {list(value._type.shape)} for "
                    f"a tensor of {list(self._type.shape)}"
                )
            if value.dtype is not self.dtype:
                raise RuntimeError(
                    f"assigned grad has data of a different type: {value.dtype} for a tensor of "
                    f"{self.dtype}"
                )
        note_grad_set(self)
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def retains_grad(self) -> bool:
        """Whether ``backward`` keeps the gradient of this result."""
        note_property_read(self, "retains_grad")
        return keeps_grad(self)

    def retain_grad(self) -> None:
        """Store the gradient of this tensor in ``backward`` though it is not a leaf."""
        node = current_node(self)
        if node is None:
            raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
        if not isinstance(node, Leaf):
            node.ensure_hooks().retained[self._index] = weakref.ref(self)

    @property
    def output_nr(self) -> int:
        """Which result of its operation it is."""
        note_property_read(self, "output_nr")
        return self._index

    @property
    def _version(self) -> int:
        note_property_read(self, "the version")
        if self._storage.__class__ is InferenceStorage:
            raise RuntimeError("Inference tensors do not track version counter.")
        return self._storage.version

    @property
    def _base(self) -> Tensor | None:
        return None if self._view is None else self._view.base

    def _is_view(self) -> bool:
        view = self._view  # that of a detached tensor has no base
        return view is not None and not (view.base is None and view.from_no_grad is None)


_new: Any = object.__new__


def keeps_grad(tensor: Tensor) -> bool:
    """Whether ``backward`` keeps the gradient of a result."""
    node = current_node(tensor)
    if node is None or node.hooks is None:
        return False
    held = node.hooks.retained.get(tensor._index)
    return held is not None and held() is tensor


def offset_of(tensor: Tensor) -> int:
    """The offset of the first element of a tensor in its storage, in elements."""
    whole = tensor._storage.value
    whole = whole.layout if isinstance(whole, Var) else whole
    start = tensor.layout_array().__array_interface__["data"][0]
    first = whole.__array_interface__["data"][0]
    return int(start - first) // tensor._type.dtype.itemsize


def materialize(tensor: Tensor, what: str) -> None:
    """Have the trace of a symbolic tensor compute its value, because Python reads it."""
    value = tensor._value
    if not isinstance(value, Var):
        value = tensor._storage.value
    if isinstance(value, Var):
        if STATE.get().trace is None:
            raise leaked()
        value.trace.materialize(what)


def note_handle(tensor: Tensor) -> None:
    """Note in its trace that a handle was given a symbolic value."""
    if tensor._value.__class__ is Var:
        tensor._value.trace.note_handle(tensor)


@exclusive
def new_result(value: Array, type: TensorType, inference: bool) -> Tensor:
    """A tensor on a new storage for an array that nothing else references: what ``Storage`` and
    ``fresh`` do, in one call for every result of an op."""
    storage = _new(InferenceStorage if inference else Storage)
    storage.value = value
    storage.type = type
    storage.nbytes = nbytes = type.nbytes
    storage.version = 0
    storage.category = 0
    storage.saved = False
    storage.shared = False
    ledger = LEDGER
    ledger.live = live = ledger.live + nbytes
    ledger.count += 1
    if ledger.observer is not None:
        ledger.observer.allocated(storage)
    if live > ledger.peak:
        ledger.peak = ledger.live
    tensor: Tensor = _new(Tensor)
    tensor._value = value
    tensor._type = type
    tensor._storage = storage
    tensor._node = None
    tensor._index = 0
    tensor._view = None
    tensor._leaf = None
    tensor._grad = None
    return tensor


def fresh(value: Any, type: TensorType) -> Tensor:
    """A tensor with a new storage of its own for a value that nothing else references."""
    if value.__class__ is not Var:
        return new_result(value, type, STATE.get().inference)
    tensor: Tensor = _new(Tensor)
    tensor._value = value
    tensor._type = type
    tensor._storage = (InferenceStorage if STATE.get().inference else Storage)(value, type, 0)
    tensor._node = None
    tensor._index = 0
    tensor._view = None
    tensor._leaf = None
    tensor._grad = None
    value.trace.note_handle(tensor)
    return tensor


def from_array(array: Array) -> Tensor:
    """A tensor with a new storage for an array that nothing else references."""
    return fresh(array, tensor_type(array.shape, dtypes.from_numpy_dtype(array.dtype)))


# The attribute of offsets in which nested tensors keep their extent.
RAGGED_SIZE = "ragged_size"


def user_attributes(tensor: Tensor) -> dict[str, Any]:
    """The attributes that a program has given a tensor."""
    held = tensor.__dict__
    return {name: held[name] for name in held if name != RAGGED_SIZE} if held else {}


def on_storage(
    value: object, type: TensorType, storage: Storage, view: View | None, cls: type[Tensor] = Tensor
) -> Tensor:
    """A new handle on an existing storage."""
    tensor: Tensor = _new(cls)
    tensor._value = value
    tensor._type = type
    tensor._storage = storage
    tensor._node = None
    tensor._index = 0
    tensor._view = view
    tensor._leaf = None
    tensor._grad = None
    if value.__class__ is Var:
        value.trace.note_handle(tensor)
    return tensor


def detached(tensor: Tensor) -> Tensor:
    """The same elements, detached from the graph."""
    if tensor._value is NO_ARRAY:
        return tensor.detach()
    view = None if tensor._view is None else tensor._view.detached()
    storage = tensor._storage
    if storage.__class__ is InferenceStorage and not STATE.get().inference:
        storage = Storage(storage.value, storage.type, 0)  # the same memory, which may be written
    return on_storage(tensor._value, tensor._type, storage, view)


def current_node(tensor: Tensor) -> GraphNode | None:
    """The node of a tensor, rebuilt if its storage was written through an alias."""
    view = tensor._view
    if view is None or view.base is None or view.seen == tensor._storage.version:
        return tensor._node
    _refresh(tensor)
    return tensor._node
