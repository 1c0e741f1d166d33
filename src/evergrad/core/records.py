"""Records: dataclass instances and namespaces that hold only data, as containers of their fields.

PyTorch's pytrees take them for leaves; the arguments and results of compiled functions are
flattened with their records.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.dtypes import dtype
from evergrad.core.tensor import Tensor
from evergrad.core.tree import Fields, TreeSpec, children_of, flatten

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

_DATA = (int, float, complex, str, bytes, type(None), Tensor, np.generic, np.ndarray, dtype, range)
_CONTAINERS = (list, tuple, dict)
# Records in records, so deep: an object that references itself is none.
_DEPTH = 8


def fields_of(value: Any, depth: int = _DEPTH) -> dict[str, Any] | None:
    """The fields of a record by name, ``None`` for anything else. An object that holds others
    (modules, optimizers) is no record: it has an identity."""
    kind = type(value)
    if kind is not SimpleNamespace and not _is_plain_dataclass(kind):
        return None
    if isinstance(value, (Tensor, *_CONTAINERS)) or depth == 0:
        return None
    own: dict[str, Any] | None = getattr(value, "__dict__", None)
    if own is None:  # of a dataclass with slots
        own = {n: getattr(value, n) for n in kind.__dataclass_fields__ if hasattr(value, n)}
    for held in own.values():
        if not isinstance(held, (*_DATA, *_CONTAINERS)) and fields_of(held, depth - 1) is None:
            return None
    return own


def _is_plain_dataclass(kind: object) -> bool:
    """Whether the instances of a class are their fields and nothing else."""
    return hasattr(kind, "__dataclass_fields__") and kind.__new__ is object.__new__


def flatten_records(tree: object) -> tuple[Leaves, TreeSpec]:
    """As ``tree_flatten``, with the fields of records as leaves."""
    return flatten(tree, children_with_records)


def children_with_records(tree: object) -> tuple[object, list[object]] | None:
    """(context, children) of a container or a record, ``None`` for a leaf."""
    if isinstance(tree, _DATA):
        return None
    found = children_of(tree)
    if found is None:
        fields = fields_of(tree)
        found = None if fields is None else (Fields(fields), list(fields.values()))
    return found
