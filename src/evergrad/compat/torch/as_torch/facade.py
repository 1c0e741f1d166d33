"""Modules named ``torch...`` that pass every question on to evergrad's."""

from __future__ import annotations

import dis
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from evergrad.core.dtypes import dtype

_IMPORT_FROM = dis.opmap["IMPORT_FROM"]


class Facade(ModuleType):
    """A module under another name. Reading and writing go to the module it stands for."""

    def __init__(self, name: str, target: ModuleType, **own: Any) -> None:
        super().__init__(name, target.__doc__)
        self.__dict__["_target"] = target
        self.__dict__["__path__"] = []
        self.__dict__.update(own)
        if hasattr(target, "__all__"):
            self.__dict__["__all__"] = [n for n in target.__all__ if not n.startswith("__")]

    def __getattr__(self, name: str) -> Any:
        try:
            value = getattr(self.__dict__["_target"], name)
        except AttributeError:
            raise self._missing(name, sys._getframe(1)) from None
        if isinstance(value, ModuleType) and value.__name__.startswith("evergrad."):
            return import_module(f"{self.__name__}.{name}")
        if callable(value) or isinstance(value, dtype):  # does not change, so is found at once
            self.__dict__[name] = value
        return value

    def _missing(self, name: str, asker: Any) -> Exception:
        """An AttributeError; an ImportError where ``from torch import name`` asked."""
        message = f"evergrad has no {self.__name__}.{name}"
        if asker.f_code.co_code[asker.f_lasti] == _IMPORT_FROM:
            return ImportError(message, name=self.__name__)
        return AttributeError(message, name=name, obj=self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__") or isinstance(value, Facade):
            super().__setattr__(name, value)
        else:
            self.__dict__.pop(name, None)
            setattr(self.__dict__["_target"], name, value)

    def __dir__(self) -> list[str]:
        return dir(self.__dict__["_target"])
