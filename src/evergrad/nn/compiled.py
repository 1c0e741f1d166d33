"""A module whose calls run as compiled programs."""

from __future__ import annotations

from typing import Any

from evergrad.compiler.api import Compiled
from evergrad.extension import provides
from evergrad.nn.module import Module


@provides("optimized_module")
class OptimizedModule(Module):
    """Wraps a module: same parameters, modes and attributes; calls are compiled."""

    def __init__(
        self, module: Module, check_finite: bool = False, memory_limit: int | None = None,
        fullgraph: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self._orig_mod = module
        compiled = Compiled(module.__call__, check_finite, memory_limit, fullgraph)
        self.__dict__["_compiled_call"] = compiled

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled_call(*args, **kwargs)

    @property
    def last_call(self) -> Any:
        """How the last call ran; see ``evergrad.compiler.Compiled``."""
        return self._compiled_call.last_call

    def explain(self, *args: object, **kwargs: object) -> Any:
        """What the program for these arguments is; see ``evergrad.compiler.Compiled.explain``."""
        return self._compiled_call.explain(*args, **kwargs)

    def train(self, mode: bool = True) -> OptimizedModule:
        self._orig_mod.train(mode)
        return super().train(mode)

    # Attributes are those of the module, but for what Module itself keeps in each instance.

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.__dict__ or name == "_orig_mod":
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._modules["_orig_mod"], name)
