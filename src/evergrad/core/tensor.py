"""The tensor: a handle on a storage, with its place in the graph.

Owns the handle's own facts (type, value, view, leaf) and nothing that computes: operators and
methods are attached by the op modules, from the same table that makes the functions.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.dtypes import dtype
from evergrad.core.functionalize import note_grad_access, refuse_outside_read
from evergrad.core.mutation_counter import MUTATIONS
from evergrad.core.node import GraphNode, Leaf
from evergrad.core.shapes import Size, TensorType, contiguous_strides, normalize_dim, tensor_type
from evergrad.core.source_location import user_line
from evergrad.core.state import STATE
from evergrad.core.storage import NO_ARRAY, Storage
from evergrad.core.trace import Var, leaked
from evergrad.errors import TraceError
from evergrad.extension import ExtensionPoint

if TYPE_CHECKING:
    from evergrad.core.op import Op

_refresh: ExtensionPoint[[Tensor], None] = ExtensionPoint("refresh")

Array = np.ndarray[Any, Any]
ViewOp = tuple["Op", dict[str, Any]]


class View:
    """How a tensor looks at its storage: the ops that lead there from the canonical array.

    ``base`` is the tensor whose graph history this one follows (``None`` for a detached view);
    ``seen`` is the storage version for which the tensor's own node holds, ``traced`` the one for
    which its symbolic value does. ``from_no_grad`` is the base of a view made without gradients,
    which must not be written with gradients on.
    """

    __slots__ = ("base", "chain", "from_no_grad", "seen", "traced")

    def __init__(
        self,
        base: Tensor | None,
        chain: tuple[ViewOp, ...],
        seen: int,
        from_no_grad: Tensor | None = None,
    ) -> None:
        self.base = base
        self.chain = chain
        self.seen = seen
        self.traced = seen
        self.from_no_grad = from_no_grad

    def detached(self) -> View:
        """The same look without a history to follow."""
        made = View(None, self.chain, self.seen)
        made.traced = self.traced
        return made


class Device:
    """Where a tensor lives. There is one place: the CPU."""

    __slots__ = ("index", "type")

    def __init__(self, type: Any = "cpu", index: int | None = None) -> None:
        name, _, number = str(type).partition(":")
        if name not in ("cpu", "meta"):
            raise RuntimeError(
                f"evergrad computes on the CPU; there is no device {str(type)!r}. "
                "Use device='cpu', or leave it out."
            )
        self.type = name
        self.index = int(number) if number else index

    def __repr__(self) -> str:
        return f"device(type='{self.type}')"

    def __str__(self) -> str:
        return self.type

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return other.partition(":")[0] == self.type
        return isinstance(other, Device) and other.type == self.type

    def __hash__(self) -> int:
        return hash(self.type)


CPU = Device()


class Tensor:
    """A multi-dimensional array that can be differentiated through."""

    __slots__ = (
        "__dict__", "__weakref__", "_grad", "_index", "_leaf", "_node", "_storage", "_type",
        "_value", "_view",
    )  # fmt: skip

    _type: TensorType
    # An array that looks at the storage, or the symbolic value while tracing.
    _value: Any
    _storage: Storage
    _node: GraphNode | None
    _index: int
    _view: View | None
    # Made when the gradient was first asked for; kept when it no longer is.
    _leaf: Leaf | None
    _grad: Tensor | None

    if TYPE_CHECKING:  # attached by the op modules

        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __floordiv__(self, other: Any) -> Tensor: ...
        def __mod__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __rpow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...
        def __and__(self, other: Any) -> Tensor: ...
        def __or__(self, other: Any) -> Tensor: ...
        def __xor__(self, other: Any) -> Tensor: ...
        def __eq__(self, other: Any) -> Tensor: ...  # type: ignore[override]
        def __ne__(self, other: Any) -> Tensor: ...  # type: ignore[override]
        def __lt__(self, other: Any) -> Tensor: ...
        def __le__(self, other: Any) -> Tensor: ...
        def __gt__(self, other: Any) -> Tensor: ...
        def __ge__(self, other: Any) -> Tensor: ...
        def __getitem__(self, index: Any) -> Tensor: ...
        def __setitem__(self, index: Any, value: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

        data: Tensor

    # -- what it is -------------------------------------------------------------------------

    @property
    def shape(self) -> Size:
        return Size(self._type.shape)

    @property
    def dtype(self) -> dtype:
        return self._type.dtype

    @property
    def ndim(self) -> int:
        return len(self._type.shape)

    @property
    def device(self) -> Device:
        return CPU

    @property
    def nbytes(self) -> int:
        return self._type.nbytes

    @property
    def itemsize(self) -> int:
        return self._type.dtype.itemsize

    def size(self, dim: int | None = None) -> Any:
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
        return self._type.dtype.itemsize

    def is_floating_point(self) -> bool:
        return self._type.dtype.is_floating_point

    def is_complex(self) -> bool:
        return self._type.dtype.is_complex

    def is_signed(self) -> bool:
        return self._type.dtype.is_signed

    def __len__(self) -> int:
        if not self._type.shape:
            raise TypeError("len() of a 0-d tensor")
        return self._type.shape[0]

    __hash__ = object.__hash__

    # -- memory -----------------------------------------------------------------------------

    def layout_array(self) -> Array:
        """An array with this tensor's strides; symbolic tensors give one without memory."""
        value = self._value
        return value.layout if isinstance(value, Var) else value

    def stride(self, dim: int | None = None) -> Any:
        """The step in elements from one index to the next, for each dimension or for one."""
        array = self.layout_array()
        strides = tuple(s // array.itemsize for s in array.strides)
        if array.size <= 1 or 0 in array.shape:
            strides = contiguous_strides(array.shape)
        return strides if dim is None else strides[dim]

    def storage_offset(self) -> int:
        """Where in its storage the first element stands, counted in elements."""
        whole = self._storage.value
        whole = whole.layout if isinstance(whole, Var) else whole
        start = self.layout_array().__array_interface__["data"][0]
        first = whole.__array_interface__["data"][0]
        return int(start - first) // self._type.dtype.itemsize

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self.array().__array_interface__["data"][0])

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return bool(self.layout_array().flags.c_contiguous)

    def array(self) -> Array:
        """The elements as an array, for reading inside the engine."""
        value = self._value
        if isinstance(value, Var) or isinstance(self._storage.value, Var):
            if STATE.get().trace is None:
                raise leaked()
            raise TraceError(
                "the number inside a traced tensor was asked for (.item(), bool(), float(), "
                ".numpy(), .tolist() or an index that depends on data), but while tracing there "
                f"is none yet.\n  where: {user_line()}\n  fix: keep the computation in tensors "
                "(`evergrad.where` instead of `if`), or take the number outside the traced "
                "function."
            )
        refuse_outside_read(self)
        return value  # type: ignore[no-any-return]

    # -- graph ------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        return current_node(self) is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask (or stop asking) for the gradient of this leaf."""
        node = current_node(self)
        if bool(requires_grad) == (node is not None):
            return self
        if node is not None:
            if not isinstance(node, Leaf):
                raise RuntimeError(
                    "you can only change requires_grad flags of leaf variables. If you want to "
                    "use a computed variable in a subgraph that doesn't require differentiation "
                    "use var_no_grad = var.detach()."
                )
            self._node = None
            MUTATIONS.count += 1
            return self
        if self._type.dtype.category < dtypes.FLOATING:
            raise RuntimeError(
                "only Tensors of floating point and complex dtype can require gradients"
            )
        if self._leaf is None:
            self._leaf = Leaf(self)
        self._node = self._leaf
        self._index = 0
        if self._view is not None:  # a leaf follows no other tensor's history
            self._view = self._view.detached()
        return self

    @property
    def is_leaf(self) -> bool:
        node = current_node(self)
        return node is None or isinstance(node, Leaf)

    @property
    def grad_fn(self) -> GraphNode | None:
        """The node that computed this tensor; ``None`` for a leaf."""
        node = current_node(self)
        return None if isinstance(node, Leaf) else node

    @property
    def grad(self) -> Tensor | None:
        """The gradient accumulated by ``backward``."""
        if self._grad is None and not self.is_leaf and not self.retains_grad:
            import warnings

            warnings.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its "
                ".grad attribute won't be populated during autograd.backward(). Use "
                ".retain_grad() on it if you want its gradient.",
                UserWarning,
                stacklevel=2,
            )
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
        note_grad_access(self)
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def retains_grad(self) -> bool:
        node = current_node(self)
        if node is None or node.hooks is None:
            return False
        held = node.hooks.retained.get(self._index)
        return held is not None and held() is self

    def retain_grad(self) -> None:
        """Have ``backward`` keep the gradient of this tensor though it is not a leaf."""
        node = current_node(self)
        if node is None:
            raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
        if not isinstance(node, Leaf):
            node.ensure_hooks().retained[self._index] = weakref.ref(self)

    @property
    def output_nr(self) -> int:
        return self._index

    @property
    def _version(self) -> int:
        return self._storage.version

    @property
    def _base(self) -> Tensor | None:
        return None if self._view is None else self._view.base

    def _is_view(self) -> bool:
        return self._view is not None


_new = Tensor.__new__


def fresh(value: Any, type: TensorType) -> Tensor:
    """A tensor that owns a value nobody else holds."""
    tensor = _new(Tensor)
    tensor._value = value
    tensor._type = type
    tensor._storage = Storage(value, type, 0 if value.__class__ is Var else type.nbytes)
    tensor._node = None
    tensor._index = 0
    tensor._view = None
    tensor._leaf = None
    tensor._grad = None
    return tensor


def from_array(array: Array) -> Tensor:
    """A tensor that owns an array nobody else holds, of the array's own type."""
    return fresh(array, tensor_type(array.shape, dtypes.from_numpy_dtype(array.dtype)))


def on_storage(
    value: Any, type: TensorType, storage: Storage, view: View | None, cls: type[Tensor] = Tensor
) -> Tensor:
    """Another handle on a storage."""
    tensor = _new(cls)
    tensor._value = value
    tensor._type = type
    tensor._storage = storage
    tensor._node = None
    tensor._index = 0
    tensor._view = view
    tensor._leaf = None
    tensor._grad = None
    return tensor


def detached(tensor: Tensor) -> Tensor:
    """The same elements without a history."""
    if tensor._value is NO_ARRAY:
        return tensor.detach()  # type: ignore[no-any-return]
    view = None if tensor._view is None else tensor._view.detached()
    return on_storage(tensor._value, tensor._type, tensor._storage, view)


def current_node(tensor: Tensor) -> GraphNode | None:
    """The node of a tensor, brought up to date if its storage was written through another view."""
    view = tensor._view
    if view is None or view.base is None or view.seen == tensor._storage.version:
        return tensor._node
    _refresh(tensor)
    return tensor._node
