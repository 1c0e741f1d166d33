"""Reads of Python objects that run no code of the user's: classes may have an ``__iter__``,
``__getattr__`` or ``__class__`` of their own, which only the function itself may call."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, TypeGuard


def is_a(value: object, kinds: type | tuple[type, ...]) -> TypeGuard[Any]:
    """``isinstance()`` by the class that an object really has."""
    return issubclass(type(value), kinds)


def attributes_of(value: object) -> Any:
    """The ``__dict__`` of an instance; ``None`` if it has none."""
    for base in type(value).__mro__:
        held: Any = vars(base).get("__dict__")
        if type(held) in (GetSetDescriptorType, MemberDescriptorType):
            try:
                return held.__get__(value)
            except AttributeError:  # of an extension that hides it
                return None
    return None


def attribute_of(value: object, name: str, default: object) -> object:
    """An attribute by its descriptor or ``__dict__``, without ``__getattr__``."""
    try:
        if name == "__class__":
            return type(value)
        if is_a(value, type):
            return type.__getattribute__(value, name)
        if is_a(value, threading.local):
            return threading.local.__getattribute__(value, name)
        return object.__getattribute__(value, name)
    except AttributeError:
        return default


def class_member(kind: type, name: str) -> object:
    """What a class or a base of it has under a name; ``None`` if there is nothing."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def members_of_builtin(container: Any) -> Sequence[object]:
    """The members of a list, tuple, dictionary (keys first), set or deque."""
    if is_a(container, list):
        return container if type(container) is list else list.__getitem__(container, slice(None))
    if is_a(container, tuple):
        return container if type(container) is tuple else tuple.__getitem__(container, slice(None))
    if is_a(container, OrderedDict):
        return [*OrderedDict.keys(container), *OrderedDict.values(container)]
    if is_a(container, dict):
        return [*dict.keys(container), *dict.values(container)]
    if is_a(container, deque):
        return list(deque.__iter__(container))
    if is_a(container, set):
        return list(set.__iter__(container))
    if is_a(container, frozenset):
        return list(frozenset.__iter__(container))
    result: Sequence[object] = list(container)
    return result
