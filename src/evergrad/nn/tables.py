"""The tables of a module: dictionaries whose changes are counted."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evergrad.core.mutation_counter import MUTATIONS

if TYPE_CHECKING:
    from evergrad.nn.activation import ReLU


class Table(dict[str, Any]):
    """The parameters, buffers or submodules of a module by name."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> Any:
        """Saved as the dictionary that any reader knows; modules make it a table again."""
        return OrderedDict, (), None, None, iter(self.items())


def _counted(name: str) -> Callable[..., object]:
    change = getattr(dict, name)

    def method(self: Table, *args: object, **kwargs: object) -> Any:
        found = change(self, *args, **kwargs)
        MUTATIONS.advance()
        result: ReLU | None = found
        return result

    method.__name__, method.__doc__ = name, change.__doc__
    return method


for _name in (
    "__delitem__", "__ior__", "__setitem__", "clear", "pop", "popitem", "setdefault", "update",
):  # fmt: skip
    setattr(Table, _name, _counted(_name))
