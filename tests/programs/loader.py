"""Loads a program so that the ``torch`` it imports is either library.

Each copy of a program gets an ``__import__`` of its own. Nothing global changes, so PyTorch and
evergrad can both serve the same program in one process, also where it imports while it runs.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

PLACE = Path(__file__).parent


def load(program: str, library: str) -> ModuleType:
    """The program's module, in which ``torch`` is the named library."""

    def import_from_library(
        name: str,
        globals: Any = None,
        locals: Any = None,
        wanted: tuple[str, ...] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if name.partition(".")[0] != "torch":
            return builtins.__import__(name, globals, locals, wanted or (), level)
        found = importlib.import_module(library + name.removeprefix("torch"))
        for part in wanted or ():
            if not hasattr(found, part):
                importlib.import_module(f"{found.__name__}.{part}")
        return found if wanted else importlib.import_module(library)

    path = PLACE / f"{program}.py"
    module = ModuleType(f"{program}_in_{library}")
    module.__file__ = str(path)
    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": import_from_library}
    sys.modules[module.__name__] = module  # dataclasses and pickle look a class's module up
    exec(compile(path.read_text(), path, "exec"), module.__dict__)
    return module
