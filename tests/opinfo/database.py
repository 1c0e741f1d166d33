"""PyTorch's op database (OpInfo) and how its functions and samples become evergrad's.

A function of the database is PyTorch's own (found by its path) or a Python function of PyTorch's
test package, which is rebuilt with evergrad in the place of ``torch`` in its globals and closure.
Tensors keep their strides and storage offset.
"""

from __future__ import annotations

import functools
import sys
import types
import unittest
from importlib import import_module
from types import ModuleType
from typing import Any

import evergrad
from evergrad import _operators

_TESTING = "torch.testing"
_NAMESPACES = (
    "", "nn.functional", "linalg", "fft", "special", "masked", "signal.windows", "sparse",
    "_C._nn", "Tensor",
)  # fmt: skip
# What PyTorch's public functions are called inside of nn.functional.
_INNER = {"nn.functional._threshold": "nn.functional.threshold"}


@functools.cache
def op_db() -> list[Any]:
    """The database. Its module imports ``expecttest`` for a class that is not used here."""
    if "expecttest" not in sys.modules:
        stand_in = ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    found = import_module(f"{_TESTING}._internal.common_methods_invocations").op_db
    return [op for op in found if not op.name.startswith("jiterator")]


class _Module:
    """A module of PyTorch whose attributes are translated when they are read."""

    def __init__(self, module: ModuleType, translate: Translator) -> None:
        self._module, self._translate = module, translate

    def __getattr__(self, name: str) -> Any:
        return self._translate(getattr(self._module, name))


class _Torch(_Module):
    """``torch`` in the globals of rebuilt functions."""

    def __getattr__(self, name: str) -> Any:
        return _operators if name == "ops" else getattr(evergrad, name)


class Translator:
    """From PyTorch's functions, tensors, types and containers of them to evergrad's."""

    def __init__(self, torch: ModuleType) -> None:
        self.torch = torch
        self.root = _Torch(torch, self)
        self.paths: dict[Any, str] = {}
        self.globals: dict[int, dict[str, Any]] = {}
        for space in _NAMESPACES:
            owner = functools.reduce(getattr, filter(None, space.split(".")), torch)
            for name in dir(owner):
                value = getattr(owner, name, None)
                if callable(value) and getattr(type(value), "__hash__", None):
                    self.paths.setdefault(value, f"{space}.{name}".lstrip("."))

    def __call__(self, value: Any) -> Any:
        torch = self.torch
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return getattr(evergrad, str(value).removeprefix("torch."))
        if isinstance(value, torch.device):
            return evergrad.device(str(value))
        if isinstance(value, torch.Generator):
            return evergrad.Generator().manual_seed(value.initial_seed())
        if isinstance(value, torch.Size) or (
            isinstance(value, tuple) and hasattr(value, "_fields")
        ):
            return tuple(map(self, value))
        if isinstance(value, (list, tuple)):
            return type(value)(map(self, value))
        if isinstance(value, dict):
            return {key: self(member) for key, member in value.items()}
        if isinstance(value, ModuleType):
            return self.module(value)
        if hasattr(value, "full_name"):  # an entry of the database itself
            return value
        if isinstance(value, torch.nn.Module):
            return getattr(evergrad.nn, type(value).__name__)()
        return self.function(value) if callable(value) else value

    def module(self, module: ModuleType) -> Any:
        if module is self.torch:
            return self.root
        return _Module(module, self) if module.__name__.startswith("torch.") else module

    # -- functions ------------------------------------------------------------------------------

    def function(self, value: Any) -> Any:
        if isinstance(value, functools.partial):
            return functools.partial(self(value.func), *self(value.args), **self(value.keywords))
        if type(value).__module__ == "torch._ops":
            return functools.reduce(getattr, str(value).split("."), _operators)
        if isinstance(value, types.FunctionType) and value.__module__.startswith(_TESTING):
            return self.rebuilt(value)
        path = self.paths.get(value)
        if path is None:
            return value
        return functools.reduce(getattr, _INNER.get(path, path).split("."), evergrad)

    def rebuilt(self, function: types.FunctionType) -> Any:
        cells = tuple(
            types.CellType(self(cell.cell_contents)) for cell in function.__closure__ or ()
        )
        made = types.FunctionType(
            function.__code__, self.translated_globals(function.__globals__), function.__name__,
            self(function.__defaults__), cells or None,
        )  # fmt: skip
        made.__kwdefaults__ = self(function.__kwdefaults__)
        return made

    def translated_globals(self, names: dict[str, Any]) -> dict[str, Any]:
        if id(names) not in self.globals:
            made = self.globals[id(names)] = dict(names)
            for name, value in names.items():
                if isinstance(value, ModuleType):
                    made[name] = self.module(value)
                elif name in _HELPERS:
                    made[name] = _HELPERS[name]
                elif isinstance(value, types.FunctionType):
                    made[name] = functools.partial(self.call, value)
        return self.globals[id(names)]

    def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        return self.function(function)(*args, **kwargs)

    # -- tensors --------------------------------------------------------------------------------

    def tensor(self, value: Any) -> Any:
        torch = self.torch
        kind = self(value.dtype)
        if value.layout is not torch.strided:
            return self.sparse(value)
        if value.is_meta:
            return evergrad.empty(tuple(value.shape), dtype=kind, device="meta")
        plain = value.detach()
        if plain.is_conj() or plain.is_neg() or plain._is_zerotensor():
            plain = plain.resolve_conj().resolve_neg().clone()
        whole = torch.empty(0, dtype=value.dtype).set_(plain.untyped_storage())
        raw = bytearray(whole.view(torch.uint8).numpy().tobytes() if whole.numel() else b"")
        made = evergrad.empty(0, dtype=kind)
        if raw:
            made = evergrad.frombuffer(raw, dtype=kind).clone()
        is_whole = plain.is_contiguous() and plain.numel() == whole.numel()
        if is_whole and plain.numel():
            made = evergrad.frombuffer(raw, dtype=kind).reshape(tuple(plain.shape)).clone()
        elif plain.numel() or raw:
            made = made.as_strided(tuple(plain.shape), plain.stride(), plain.storage_offset())
        else:
            made = evergrad.empty_strided(tuple(plain.shape), plain.stride(), dtype=kind)
        return made.detach().requires_grad_() if value.requires_grad else made

    def sparse(self, value: Any) -> Any:
        shape = tuple(value.shape)
        if value.layout is self.torch.sparse_coo:
            made = evergrad.sparse_coo_tensor(self(value._indices()), self(value._values()), shape)
        elif value.layout in (self.torch.sparse_csr, self.torch.sparse_bsr):
            parts = value.crow_indices(), value.col_indices(), value.values()
            made = evergrad.sparse_compressed_tensor(*self(parts), shape, layout=self(value.layout))
        else:
            parts = value.ccol_indices(), value.row_indices(), value.values()
            made = evergrad.sparse_compressed_tensor(*self(parts), shape, layout=self(value.layout))
        return made.requires_grad_() if value.requires_grad else made


# Functions of PyTorch's test package that reach into PyTorch's internals.
_HELPERS = {"freeze_rng_state": evergrad.random.fork_rng}
