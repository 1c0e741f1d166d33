"""The tables of a module as containers of ``optree``, which knows plain dictionaries only.

PyTorch's modules keep their parameters in a ``dict``, and packages map over it with ``optree``.
Here it is a subclass that counts changes, which is a leaf to ``optree`` unless it is registered.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from evergrad.nn.tables import Table

_GLOBAL = "__GLOBAL_NAMESPACE"


def register_tables(optree: ModuleType) -> None:
    """Register the tables in the namespace that every user of the package sees."""
    namespace = getattr(optree.registry, _GLOBAL, None)
    if namespace is not None:
        optree.register_pytree_node(Table, _flatten, _unflatten, namespace=namespace)


def _flatten(table: Table) -> tuple[list[object], tuple[str, ...], tuple[str, ...]]:
    keys = tuple(sorted(table))
    return [table[key] for key in keys], keys, keys


def _unflatten(keys: tuple[str, ...], children: Any) -> dict[str, object]:
    return dict(zip(keys, children, strict=True))
