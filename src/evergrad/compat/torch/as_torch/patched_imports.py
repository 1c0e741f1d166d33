"""Installed packages that are imported as they are and then told about evergrad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from . import children, optree_nodes

_AFTERWARDS: dict[str, Callable[[ModuleType], None]] = {
    "optree": optree_nodes.register_tables,
    **dict.fromkeys(children.LOKY, children.patch),
}


def find_spec(fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """The module as it is installed, with a loader that patches it afterwards."""
    afterwards = _AFTERWARDS.get(fullname)
    if afterwards is None:
        return None
    spec = PathFinder.find_spec(fullname, path)
    if spec is not None and spec.loader is not None:
        spec.loader = _Patching(spec.loader, afterwards)
    return spec


class _Patching(Loader):
    def __init__(self, loader: Any, afterwards: Callable[[ModuleType], None]) -> None:
        self.loader = loader
        self.afterwards = afterwards

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self.loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        self.afterwards(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)
