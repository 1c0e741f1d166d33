"""Tensors that a module owns: parameters, buffers, and those whose shape is not known yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.core.compound import Compound
from evergrad.core.functionalize import note_new_handle
from evergrad.core.meta import MetaTensor, meta_tensor
from evergrad.core.tensor import Tensor, detached, note_handle, on_storage
from evergrad.memory.ledger import PARAMETER
from evergrad.ops.rows.creation.constants import zeros

if TYPE_CHECKING:
    from evergrad.core.dtypes import dtype
    from evergrad.core.types import DeviceLike, DtypeLike


class Parameter(Tensor):
    """A tensor that is a parameter of the module it is assigned to."""

    __slots__ = ()

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = zeros(0)
        if not isinstance(data, Tensor):
            raise TypeError(
                f"Parameter() takes a Tensor, not {type(data).__name__}; as in "
                "Parameter(evergrad.tensor([1.0, 2.0]))"
            )
        if isinstance(data, MetaTensor):
            empty = meta_tensor(data._type.shape, data._type.dtype, MetaParameter)
            return empty.requires_grad_(requires_grad)  # type: ignore[return-value]
        if isinstance(data, Compound):
            raise TypeError(
                f"Parameter() takes a dense tensor, not one of layout {data.layout}: make its "
                "values the parameter, and the tensor of them in forward()"
            )
        if cls is MetaParameter:
            cls = Parameter
        source = detached(data)
        made = on_storage(source._value, source._type, source._storage, source._view, cls)
        note_new_handle(made)
        made._storage.tag(PARAMETER)
        if requires_grad:
            made.requires_grad_()
        return made  # type: ignore[return-value]

    def __init__(  # what the __new__ of a subclass takes is not known here
        self,
        data: Tensor | None = None,
        requires_grad: bool = True,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        pass

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) not in memo:
            copied = type(self)(detached(self).clone(), self.requires_grad)
            copied.__dict__.update(self.__dict__)
            memo[id(self)] = copied
        return memo[id(self)]  # type: ignore[no-any-return]

    def __reduce_ex__(self, protocol: object) -> Any:
        return _rebuild, (type(self), detached(self), self.requires_grad, dict(self.__dict__))


class MetaParameter(MetaTensor, Parameter):
    """A parameter of the device ``meta``: a shape and an element type."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Parameter containing:\n" + MetaTensor.__repr__(self)


def _rebuild(
    cls: type[Parameter], data: Tensor, requires_grad: bool, attributes: dict[str, object]
) -> Parameter:
    made = cls(data, requires_grad)
    made.__dict__.update(attributes)
    return made


class Buffer(Tensor):
    """A tensor that is a buffer of the module it is assigned to: state without a gradient.

    Args:
        data: its values; default an empty tensor
        persistent: whether ``state_dict()`` has it; default ``True``

    >>> model = nn.Module()
    >>> model.seen = nn.Buffer(eg.zeros(2))
    >>> list(model.state_dict()), list(model.parameters())
    (['seen'], [])
    """

    __slots__ = ()

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        if data is None:
            data = zeros(0)
        source = detached(data)
        made = on_storage(source._value, source._type, source._storage, source._view, cls)
        made.__dict__["persistent"] = persistent
        return made  # type: ignore[return-value]

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        pass


class UninitializedParameter(Parameter):
    """A parameter of a lazy module before its first input has told the shape.

    Args:
        requires_grad: of the parameter; default ``True``
        device: only the CPU
        dtype: element type; default the default type of floats

    >>> parameter = nn.UninitializedParameter()
    >>> parameter.materialize((2, 3))
    >>> parameter.shape
    evergrad.Size([2, 3])
    """

    __slots__ = ()

    def __new__(
        cls, requires_grad: bool = True, device: DeviceLike = None, dtype: DtypeLike = None
    ) -> Any:
        return super().__new__(cls, zeros(0, dtype=dtype), requires_grad)

    def __init__(
        self, requires_grad: bool = True, device: DeviceLike = None, dtype: DtypeLike = None
    ) -> None:
        pass

    def materialize(
        self, shape: object, device: DeviceLike = None, dtype: DtypeLike = None
    ) -> None:
        """Become an ordinary parameter of this shape."""
        _materialize(self, shape, dtype)
        self.__class__ = Parameter  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "<UninitializedParameter>"

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, dtype=self.dtype)
        return memo[id(self)]

    def __reduce_ex__(
        self, protocol: object
    ) -> tuple[type[UninitializedParameter], tuple[bool, None, dtype]]:
        return type(self), (self.requires_grad, None, self.dtype)


class UninitializedBuffer(Tensor):
    """A buffer of a lazy module before its first input has told the shape.

    Args:
        requires_grad: of the buffer; default ``False``
        device: only the CPU
        dtype: element type; default the default type of floats

    >>> buffer = nn.UninitializedBuffer()
    >>> buffer.materialize((2,))
    >>> buffer.shape
    evergrad.Size([2])
    """

    __slots__ = ()

    def __new__(
        cls, requires_grad: bool = False, device: DeviceLike = None, dtype: DtypeLike = None,
        persistent: bool = True,
    ) -> Any:  # fmt: skip
        source = zeros(0, dtype=dtype)
        made = on_storage(source._value, source._type, source._storage, None, cls)
        made.__dict__["persistent"] = persistent
        return made

    def __init__(
        self, requires_grad: bool = False, device: DeviceLike = None, dtype: DtypeLike = None,
        persistent: bool = True,
    ) -> None:  # fmt: skip
        pass

    def materialize(
        self, shape: object, device: DeviceLike = None, dtype: DtypeLike = None
    ) -> None:
        """Become an ordinary buffer of this shape."""
        _materialize(self, shape, dtype)
        self.__class__ = Tensor  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "<UninitializedBuffer>"

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(dtype=self.dtype)
        return memo[id(self)]

    def __reduce_ex__(
        self, protocol: object
    ) -> tuple[type[UninitializedBuffer], tuple[bool, None, dtype]]:
        return type(self), (False, None, self.dtype)


def _materialize(tensor: Tensor, shape: object, dtype: DtypeLike) -> None:
    source = zeros(shape, dtype=tensor.dtype if dtype is None else dtype)
    tensor._value, tensor._type, tensor._storage = source._value, source._type, source._storage
    note_handle(tensor)
    if isinstance(tensor, Parameter):
        tensor._storage.tag(PARAMETER)


def is_lazy(tensor: Tensor) -> bool:
    """Whether a parameter or buffer still waits for its shape."""
    return isinstance(tensor, (UninitializedParameter, UninitializedBuffer))
