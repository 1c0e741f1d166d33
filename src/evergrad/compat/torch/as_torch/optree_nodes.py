"""The tables of a module as containers of ``optree``, which knows plain dictionaries only.

PyTorch's modules keep their parameters in a ``dict``, and packages map over it with ``optree``.
Here it is a subclass that counts changes, which is a leaf to ``optree`` unless it is registered.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from evergrad.nn.tables import Table

_GLOBAL = "__GLOBAL_NAMESPACE"


def find_spec(fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """The package as it is installed, with a loader that registers the tables afterwards."""
    spec = PathFinder.find_spec(fullname, path)
    if spec is not None and spec.loader is not None:
        spec.loader = _Registering(spec.loader)
    return spec


class _Registering(Loader):
    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self.loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        namespace = getattr(module.registry, _GLOBAL, None)
        if namespace is not None:
            module.register_pytree_node(Table, _flatten, _unflatten, namespace=namespace)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


def _flatten(table: Table) -> tuple[list[Any], tuple[str, ...], tuple[str, ...]]:
    keys = tuple(sorted(table))
    return [table[key] for key in keys], keys, keys


def _unflatten(keys: tuple[str, ...], children: Any) -> dict[str, Any]:
    return dict(zip(keys, children, strict=True))
