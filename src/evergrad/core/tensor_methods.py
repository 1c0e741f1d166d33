"""The base of tensors, which declares what the op modules attach to them.

The declarations are for type checkers and stand in the stub beside this file, which
``tools/generate_stubs.py`` writes.
"""

from functools import partial
from typing import NoReturn

from evergrad.errors import UnknownNameError


class TensorMethods:
    """Operators, methods and attributes of tensors, as the stub declares them."""

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        """Only called for what is missing, or for a property that raised ``AttributeError``."""
        if name.startswith("_") or hasattr(type(self), name):
            object.__getattribute__(self, name)  # raises
        raise UnknownNameError(f"{type(self).__name__!r} object", name, partial(dir, type(self)))
