"""Modules named ``torch...`` whose attributes are evergrad's."""

from __future__ import annotations

import dis
import sys
from importlib import import_module
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from evergrad.core.dtypes import dtype
from evergrad.ops.surface.public import FUNCTIONS

from ..overrides import overridable
from . import deprecations, refusals
from .private_names import HOMES

if TYPE_CHECKING:
    from types import FrameType

_IMPORT_FROM = dis.opmap["IMPORT_FROM"]
# ``from m import x`` and ``m.x`` as code writes them; ``hasattr(m, "x")`` is a call.
_READS = {dis.opmap[n] for n in ("IMPORT_FROM", "LOAD_ATTR", "LOAD_METHOD") if n in dis.opmap}
# Modules whose functions check their arguments for ``__torch_function__``.
_OVERRIDABLE = ("torch.nn.functional", "torch.linalg", "torch.fft", "torch.special")


# Modules whose ``__dict__`` packages walk through.
_FILLED = ("torch.distributions", "torch.optim", "torch.optim.lr_scheduler")
# Functions that nothing takes over.
_PLAIN = frozenset(
    (
        "is_tensor",
        "is_storage",
        "typename",
        "tensor",
        "as_tensor",
        "asarray",
        "from_numpy",
        "result_type",
        "compile",
    )
)


class Facade(ModuleType):
    """A module under another name: attributes are read from and written to its target."""

    def __init__(self, name: str, target: ModuleType, **own: object) -> None:
        super().__init__(name, target.__doc__)
        self.__dict__["_target"] = target
        self.__dict__["__path__"] = []
        self.__dict__["__file__"] = getattr(target, "__file__", None)
        self.__dict__.update(own)
        if hasattr(target, "__all__"):
            self.__dict__["__all__"] = [n for n in target.__all__ if not n.startswith("__")]
        if name in _FILLED:
            self.__dict__.update({n: getattr(target, n) for n in self.__dict__["__all__"]})

    def __getattr__(self, name: str) -> Any:
        try:
            value = getattr(self.__dict__["_target"], name)
        except AttributeError:
            return self._stand_in(name, sys._getframe(1))
        if isinstance(value, ModuleType) and value.__name__.startswith("evergrad."):
            return import_module(f"{self.__name__}.{name}")
        is_overridable = _is_overridable(self.__name__, name, value)
        value = deprecations.with_warning(f"{self.__name__}.{name}", value)
        if is_overridable:
            value = overridable(value, self.__name__)
        if callable(value) or isinstance(value, dtype):  # does not change, so is found at once
            self.__dict__[name] = value
        return value

    def _stand_in(self, name: str, reader: FrameType) -> object:
        """A name that refuses when used, or a submodule of such names; raises if there is none."""
        try:
            value = self.__dict__[name] = refusals.find(self.__name__, name)
            return value
        except KeyError:
            pass
        if refusals.is_module(f"{self.__name__}.{name}"):
            return import_module(f"{self.__name__}.{name}")
        if reader.f_code.co_code[reader.f_lasti] in _READS:
            try:
                return refusals.find_in_index(self.__name__, name)
            except KeyError:
                pass
        raise self._missing(name, reader)

    def _missing(self, name: str, reader: FrameType) -> Exception:
        """An AttributeError; an ImportError for ``from torch import name``."""
        message = f"evergrad has no {self.__name__}.{name}"
        if reader.f_code.co_code[reader.f_lasti] == _IMPORT_FROM:
            return ImportError(message, name=self.__name__)
        return AttributeError(message, name=name, obj=self)

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, Facade) and f"{self.__name__}.{name}" in HOMES:
            return  # an import of the submodule, whose name the package gives to something else
        if name.startswith("__") or isinstance(value, Facade):
            super().__setattr__(name, value)
        else:
            self.__dict__.pop(name, None)
            setattr(self.__dict__["_target"], name, value)

    def __dir__(self) -> list[str]:
        return dir(self.__dict__["_target"])


def _is_overridable(module: str, name: str, value: object) -> bool:
    if module == "torch":
        return name in FUNCTIONS and name not in _PLAIN and isinstance(value, FunctionType)
    return module in _OVERRIDABLE and isinstance(value, FunctionType)
