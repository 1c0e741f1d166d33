"""Modules that hold modules or parameters: sequences, lists and dictionaries."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, overload

from evergrad.core.mutation_counter import MUTATIONS
from evergrad.core.tensor import Tensor
from evergrad.nn.module import Module, TensorModule
from evergrad.nn.parameter import Parameter
from evergrad.nn.tables import Table

if TYPE_CHECKING:
    from evergrad.core.types import Index


def _place(length: int, index: Index) -> int:
    """A position counted from the front."""
    place: int = operator.index(index)
    if not -length <= place < length:
        raise IndexError(f"index {place} is out of range")
    return place % length


def _renumber(container: Module, modules: Iterable[Module]) -> None:
    """Make these the submodules, named by their places."""
    container.__dict__["_modules"] = Table((str(i), m) for i, m in enumerate(modules))
    MUTATIONS.advance()


def _required_sequential(other: object) -> Sequential:
    if not isinstance(other, Sequential):
        raise ValueError(
            f"add operator supports only objects of Sequential class, but {type(other)} is given."
        )
    return other


def _required_count(module: Module, count: object) -> int:
    if not isinstance(count, int):
        raise TypeError(f"unsupported operand type(s) for *: {type(module)} and {type(count)}")
    if count <= 0:
        raise ValueError(f"Non-positive multiplication factor {count} for {type(module)}")
    return count


class Sequential(TensorModule):
    """Modules called one after the other."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], (OrderedDict, dict)):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def _key(self, index: object) -> str:
        return list(self._modules)[_place(len(self), index)]

    def __getitem__(self, index: object) -> Any:
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._key(index)]

    def __setitem__(self, index: object, module: Module) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: object) -> None:
        keys = list(self._modules)[index] if isinstance(index, slice) else [self._key(index)]
        for key in keys:
            delattr(self, key)
        self._renumber(list(self._modules.values()))

    def _renumber(self, modules: Iterable[Module]) -> None:
        _renumber(self, modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __add__(self, other: Sequential) -> Sequential:
        return Sequential(*self, *_required_sequential(other))

    def __iadd__(self, other: Sequential) -> Sequential:
        return self.extend(_required_sequential(other))

    def __mul__(self, count: int) -> Sequential:
        return Sequential(*list(self) * _required_count(self, count))

    __rmul__ = __mul__

    def __imul__(self, count: int) -> Sequential:
        return self.extend(list(self) * (_required_count(self, count) - 1))

    def append(self, module: Module) -> Sequential:
        """Add an entry at the end."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> Sequential:
        """Put an entry before an index."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        if not -len(self) <= index <= len(self):
            raise IndexError(f"Index out of range: {index}")
        modules = list(self)
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def extend(self, sequential: Iterable[Module]) -> Sequential:
        """Add several entries at the end."""
        for module in list(sequential):
            self.append(module)
        return self

    def pop(self, key: object) -> Module:
        """Remove an entry and give it."""
        module: Module = self[key]
        del self[key]
        return module

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(Module):
    """A list whose modules are submodules."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _set_all(self, modules: Iterable[Module]) -> None:
        _renumber(self, modules)

    def __getitem__(self, index: object) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self._modules[str(_place(len(self), index))]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, str(_place(len(self), index)), module)

    def __delitem__(self, index: Index) -> None:
        modules = list(self)
        del modules[index]
        self._set_all(modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return type(self)(chain(self, other))

    def insert(self, index: int, module: Module) -> None:
        """Put an entry before an index."""
        modules = list(self)
        modules.insert(index, module)
        self._set_all(modules)

    def append(self, module: Module) -> ModuleList:
        """Add an entry at the end."""
        self.add_module(str(len(self)), module)
        return self

    def pop(self, key: int) -> Module:
        """Remove an entry and give it."""
        module: Module = self[key]
        del self[key]
        return module

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Add several entries at the end."""
        for module in list(modules):
            self.append(module)
        return self

    def __repr__(self) -> str:
        """Equal neighbours are shown once, with how many there are."""
        if not len(self):
            return f"{self._get_name()}()"
        groups: list[tuple[int, int, str]] = []
        for i, module in enumerate(self):
            text = repr(module)
            if groups and groups[-1][2] == text:
                groups[-1] = (groups[-1][0], i, text)
            else:
                groups.append((i, i, text))
        lines = []
        for first, last, text in groups:
            where = f"({first}): " if first == last else f"({first}-{last}): {last - first + 1} x "
            lines.append(where + text.replace("\n", "\n  "))
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


class ModuleDict(Module):
    """A dictionary whose modules are submodules."""

    def __init__(self, modules: object = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]  # type: ignore[no-any-return]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Remove all entries."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Remove an entry and give it."""
        return self._modules.pop(key)  # type: ignore[no-any-return]

    def keys(self) -> Any:
        """The names."""
        return self._modules.keys()

    def items(self) -> Any:
        """Pairs of name and entry."""
        return self._modules.items()

    def values(self) -> Any:
        """The entries."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Add or replace entries."""
        pairs = modules.items() if isinstance(modules, (Mapping, ModuleDict)) else modules
        for key, module in pairs:
            self[key] = module


def _as_parameter(value: object) -> object:
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        return Parameter(value, value.is_floating_point() or value.is_complex())
    return value


class ParameterList(Module):
    """A list whose tensors are parameters."""

    def __init__(self, values: Iterable[object] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> ParameterList: ...
    def __getitem__(self, index: object) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return getattr(self, str(_place(self._size, index)))

    def __setitem__(self, index: int, value: object) -> None:
        setattr(self, str(_place(self._size, index)), _as_parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter(self[i] for i in range(self._size))

    def __iadd__(self, values: Iterable[object]) -> ParameterList:
        return self.extend(values)

    def append(self, value: object) -> ParameterList:
        """Add an entry at the end."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[object]) -> ParameterList:
        """Add several entries at the end."""
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(f"  ({i}): {_description(value, 'dtype')}" for i, value in enumerate(self))

    def __call__(self, *args: object, **kwargs: object) -> Any:
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dictionary whose tensors are parameters."""

    def __init__(self, parameters: object = None) -> None:
        super().__init__()
        self._names: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)

    def __setitem__(self, key: str, value: object) -> None:
        self._names[key] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._names[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, key: str) -> bool:
        return key in self._names

    def keys(self) -> Any:
        """The names."""
        return self._names.keys()

    def values(self) -> Any:
        """The entries."""
        return [self[key] for key in self._names]

    def items(self) -> Any:
        """Pairs of name and entry."""
        return [(key, self[key]) for key in self._names]

    def get(self, key: str, default: object = None) -> Any:
        """The entry of a name, or a default."""
        return getattr(self, key) if key in self._names else default

    def setdefault(self, key: str, default: object = None) -> Any:
        """The entry of a name; if there is none, the default is added."""
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: str) -> Any:
        """Remove an entry and give it."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove the last entry; gives name and entry."""
        key = next(reversed(self._names))
        return key, self.pop(key)

    def clear(self) -> None:
        """Remove all entries."""
        for key in list(self._names):
            del self[key]

    def copy(self) -> ParameterDict:
        """A copy with the same entries."""
        return ParameterDict(dict(self.items()))

    def fromkeys(self, keys: Iterable[str], default: object = None) -> ParameterDict:
        """A dictionary of these names with one default."""
        return ParameterDict((key, default) for key in keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._names)

    def __or__(self, other: object) -> ParameterDict:
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: object) -> ParameterDict:
        made = ParameterDict(other)
        made.update(self)
        return made

    def __ior__(self, other: object) -> ParameterDict:
        self.update(other)
        return self

    def update(self, parameters: Any) -> None:
        """Add or replace entries."""
        pairs = (
            parameters.items() if isinstance(parameters, (Mapping, ParameterDict)) else parameters
        )
        for key, value in pairs:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(f"  ({key}): {_description(value, 'type')}" for key, value in self.items())

    def __call__(self, *args: object, **kwargs: object) -> Any:
        raise RuntimeError("ParameterDict should not be called.")


def _description(value: object, elements: str) -> str:
    """What a list or dictionary shows of an entry; PyTorch's name the element type differently."""
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(map(str, value.shape))
    shown = value.dtype if elements == "dtype" else value.type()
    return f"{kind} containing: [{shown} of size {size}]"
