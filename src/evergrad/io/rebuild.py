"""The functions a file calls to have its tensors made.

They carry PyTorch's meaning argument by argument; which of PyTorch's names stands for which is in
:mod:`evergrad.io.names`. A file chooses the arguments, so each is checked.
"""

from __future__ import annotations

from typing import Any

from evergrad.core.dtypes import dtype
from evergrad.core.memory_format import layout
from evergrad.core.tensor import Tensor
from evergrad.errors import FileFormatError
from evergrad.io.element_types import ElementType, element_type
from evergrad.io.storages import Part
from evergrad.nn.hooks import HookTables
from evergrad.nn.parameter import Buffer, Parameter

_LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


def tensor(part: Any, offset: Any, size: Any, stride: Any) -> Tensor:
    """A tensor on a part of a storage."""
    if not isinstance(part, Part):
        raise FileFormatError("a tensor has no storage: the file is corrupted.")
    return part.typed_tensor(offset, size, stride)


def tensor_v2(
    part: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any,
    metadata: Any = None,
) -> Tensor:  # fmt: skip
    """The same with what else there is to say of it."""
    return _finished(tensor(part, offset, size, stride), requires_grad, metadata)


def tensor_v3(
    part: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, type: Any,
    metadata: Any = None,
) -> Tensor:  # fmt: skip
    """The same on a storage that does not know the type of its elements."""
    if not isinstance(part, Part):
        raise FileFormatError("a tensor has no storage: the file is corrupted.")
    if isinstance(type, dtype):
        type = element_type(type)
    if not isinstance(type, ElementType):
        raise FileFormatError("a tensor has no element type: the file is corrupted.")
    return _finished(part.tensor(type, offset, size, stride), requires_grad, metadata)


def _finished(made: Tensor, requires_grad: Any, metadata: Any) -> Tensor:
    if isinstance(metadata, dict) and metadata:
        if metadata.get("conj"):
            made = made.conj()
        if metadata.get("neg"):
            made = -made
    return _asking(made, requires_grad)


def _asking(made: Tensor, requires_grad: Any) -> Tensor:
    if type(requires_grad) is not bool:
        raise FileFormatError("a tensor may or may not ask for a gradient: the file is corrupted.")
    if requires_grad and not (made.is_floating_point() or made.is_complex()):
        raise FileFormatError(
            f"a tensor of {made.dtype} asks for a gradient: the file is corrupted."
        )
    return made.requires_grad_(requires_grad)


def parameter(data: Any = None, requires_grad: Any = True, hooks: Any = None) -> Parameter:
    """A parameter of a module."""
    if not isinstance(data, Tensor):
        raise FileFormatError("a parameter has no tensor: the file is corrupted.")
    return _asking(Parameter(data, requires_grad=False), requires_grad)  # type: ignore[return-value]


def parameter_with_state(data: Any, requires_grad: Any, hooks: Any, state: Any) -> Parameter:
    """A parameter that carries attributes."""
    made = parameter(data, requires_grad)
    set_attributes(made, state)
    return made


def from_type(function: Any, cls: Any, args: Any, state: Any) -> Tensor:
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


def _buffer(data: Tensor, state: dict[Any, Any]) -> Buffer:
    """A buffer, which PyTorch tells from other tensors by its attributes."""
    made = Buffer(data, persistent=state.get("persistent") is True)
    own = {key: value for key, value in state.items() if key not in ("_is_buffer", "persistent")}
    set_attributes(made, own)
    return made


def set_attributes(instance: Any, state: Any) -> None:
    """Give an object the attributes a file tells of, none of which may hide what its class has."""
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


def set_own_state(instance: Any, state: Any) -> None:
    """Give a layer or an optimizer its state, without PyTorch's tables of hooks."""
    if type(state) is not dict or not all(type(key) is str for key in state):
        raise FileFormatError("the state of a layer is no dictionary: the file is corrupted.")
    own = {key: value for key, value in state.items() if key == "_hooks" or "_hook" not in key}
    set_state(instance, own)


def set_hook_tables(instance: HookTables, state: Any) -> None:
    """Give a layer's tables of hooks their entries, which are functions the file may name."""
    tables = state[1] if type(state) is tuple and len(state) == 2 else None
    if type(tables) is not dict or not all(type(table) is dict for table in tables.values()):
        raise FileFormatError("the hooks of a layer are no tables: the file is corrupted.")
    for name in tables.keys() & set(HookTables.__slots__):
        setattr(instance, name, tables[name])


def layout_named(name: Any) -> layout:
    """One of PyTorch's words for how elements are stored."""
    import evergrad

    word = name.rpartition(".")[2] if type(name) is str else ""
    found = getattr(evergrad, word, None) if word in _LAYOUTS else None
    if not isinstance(found, layout):
        raise FileFormatError(f"evergrad has no layout {name!r:.60}.")
    return found
