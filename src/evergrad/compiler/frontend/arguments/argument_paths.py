"""The ways to the containers and records among the arguments of a call."""

from __future__ import annotations

import operator
from typing import Any

from evergrad.core.records import fields_of


def paths_to(given: object) -> list[tuple[int, tuple[tuple[object, object], ...]]]:
    """The containers and records among arguments, by id, with the way to them."""
    return _paths_below(given, ())


def _paths_below(
    tree: object, path: tuple[tuple[Any, Any], ...]
) -> list[tuple[int, tuple[tuple[object, object], ...]]]:
    found: list[tuple[int, tuple[tuple[Any, Any], ...]]] = []
    fields = fields_of(tree)
    parts: list[tuple[tuple[Any, Any], Any]]
    if fields is not None:
        parts = [((getattr, name), held) for name, held in fields.items()]
    elif isinstance(tree, dict):
        parts = [((operator.getitem, key), held) for key, held in tree.items()]
    elif isinstance(tree, (list, tuple)):
        parts = [((operator.getitem, index), held) for index, held in enumerate(tree)]
    else:
        return found
    if len(path) > 1 and not isinstance(tree, tuple):
        found.append((id(tree), path))
    for step, held in parts:
        found += _paths_below(held, (*path, step))
    return found
