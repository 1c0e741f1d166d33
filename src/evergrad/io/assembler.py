"""What the instructions of a pickle may make: decides about names, calls and state.

Every object a file can have made is made by a function of :mod:`evergrad.io.names`, by a class of
this package that is created empty and given its state, or by what the user has granted by name.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from evergrad.errors import FileFormatError, UnsafeFileError
from evergrad.io import containers
from evergrad.io.grants import granted
from evergrad.io.names import HARMLESS, WEIGHTS, Named, full_path, own, trusted

# Not even a grant opens these.
_BLOCKED_MODULES = ("sys", "os", "posix", "nt")

_SIZED = (str, bytes, bytearray, list, tuple, dict, set, OrderedDict)
_DICTIONARIES = (dict, OrderedDict, Counter, defaultdict)

# A file may have as much copied as it has bytes, times this, and a little more.
_COPIES_PER_BYTE = 8
_FREE_COPIES = 1 << 16

_FAILURES = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)


class Assembler:
    """The :class:`~evergrad.io.interpreter.Maker` of one file.

    ``fetch`` gives the storage behind an identity; ``extra`` are names that depend on the call of
    ``load``.
    """

    def __init__(
        self,
        fetch: Callable[[Any], Any],
        *,
        size: int,
        weights_only: bool,
        extra: dict[str, Named] | None = None,
    ) -> None:
        self.fetch = fetch
        self._weights_only = weights_only
        self._extra = extra or {}
        self._granted = granted()
        self._named: dict[int, Named] = {}
        self._budget = size * _COPIES_PER_BYTE + _FREE_COPIES

    # -- names ------------------------------------------------------------------------------

    def find(self, module: str, name: str) -> Any:
        path = full_path(module, name)
        if module.partition(".")[0] in _BLOCKED_MODULES:
            raise UnsafeFileError(
                f"Weights only load failed. Trying to load unsupported GLOBAL {path} whose module "
                f"{module} is blocked: no file needs it. Do not trust this file."
            )
        named = self._extra.get(path) or WEIGHTS.get(path) or self._on_request(path)
        if named is None:
            raise UnsafeFileError(_refusal(path, self._weights_only))
        self._named[id(named.value)] = named
        return named.value

    def _on_request(self, path: str) -> Named | None:
        """What a name stands for if it is granted, or if more than weights is asked for."""
        is_granted = path in self._granted
        if path in HARMLESS and (is_granted or not self._weights_only):
            return HARMLESS[path]
        if is_granted:
            return trusted(self._granted[path])
        return None if self._weights_only else own(path)

    # -- objects ----------------------------------------------------------------------------

    def call(self, function: Any, args: Any) -> Any:
        named = self._named.get(id(function))
        if named is None or named.make is None or type(args) is not tuple:
            raise UnsafeFileError(
                f"the pickle calls {_described(function)}, which is nothing a file may call."
            )
        return self._made(named, args)

    def new(self, cls: Any, args: Any, kwargs: Any) -> Any:
        named = self._named.get(id(cls))
        is_callable = named is not None and named.make is not None and isinstance(cls, type)
        if named is None or not is_callable or type(args) is not tuple or type(kwargs) is not dict:
            raise UnsafeFileError(
                f"the pickle makes an object of {_described(cls)}, which is no class it may use."
            )
        if named.trusted:
            return cls.__new__(cls, *args, **kwargs)
        if kwargs:
            raise FileFormatError(
                f"{cls.__name__} is made without keywords, but the file has some."
            )
        return self._made(named, args)

    def _made(self, named: Named, args: tuple[Any, ...]) -> Any:
        assert named.make is not None
        self._charge(*args)
        if named.trusted:
            return named.make(*args)
        try:
            return named.make(*args)
        except FileFormatError:
            raise
        except _FAILURES as error:
            name = getattr(named.value, "__name__", named.value)
            raise FileFormatError(f"{name} refuses what the file gives it: {error}") from None

    def build(self, instance: Any, state: Any) -> None:
        # Each element type of NumPy has a class of its own, which pickles do not name.
        cls = np.dtype if isinstance(instance, np.dtype) else type(instance)
        named = self._named.get(id(cls))
        if named is None or named.set_state is None:
            raise UnsafeFileError(
                f"the pickle sets the state of {_described(cls)}, which is no class it may use."
            )
        self._charge(state)
        if named.trusted:
            named.set_state(instance, state)
            return
        try:
            named.set_state(instance, state)
        except FileFormatError:
            raise
        except _FAILURES as error:
            raise FileFormatError(
                f"{cls.__name__} refuses the state the file gives it: {error}"
            ) from None

    def _is_trusted(self, cls: type) -> bool:
        named = self._named.get(id(cls))
        return named is not None and named.trusted

    # -- containers -------------------------------------------------------------------------

    def append(self, target: Any, items: list[Any]) -> None:
        if type(target) in (list, deque):
            target.extend(items)
        elif self._is_trusted(type(target)):
            for item in items:
                target.append(item)
        else:
            raise FileFormatError(f"Can only append to lists, but got {type(target)}")

    def insert(self, target: Any, items: list[Any]) -> None:
        if type(target) not in _DICTIONARIES and not self._is_trusted(type(target)):
            raise FileFormatError(f"Can only set items of dictionaries, but got {type(target)}")
        containers.insert(target, items)

    def add(self, target: Any, items: list[Any]) -> None:
        if type(target) is not set:
            raise FileFormatError(f"Can only add to sets, but got {type(target)}")
        target.update(containers.make_set(items))

    def frozen(self, items: list[Any]) -> Any:
        return containers.make_frozenset(items)

    def _charge(self, *copied: Any) -> None:
        """Note that the parts of these are copied; a small file must not have much copied."""
        self._budget -= sum(len(value) for value in copied if type(value) in _SIZED)
        if self._budget < 0:
            raise FileFormatError(
                "the pickle has one thing copied over and over: the file is corrupted, or hostile."
            )


def _described(value: Any) -> str:
    return value.__qualname__ if isinstance(value, type) else f"a {type(value).__name__}"


def _refusal(path: str, weights_only: bool) -> str:
    name = path.removeprefix("builtins.")
    advice = (
        f"Please use `evergrad.serialization.add_safe_globals([{name}])` or the "
        f"`evergrad.serialization.safe_globals([{name}])` context manager to allowlist this global "
        "if you trust this class/function."
    )
    if not weights_only:
        return (
            f"Unsupported global: GLOBAL {name} is neither data nor a class of evergrad. A file is "
            f"never allowed to choose what code runs, with weights_only=False neither. {advice}"
        )
    return (
        f"Weights only load failed. Unsupported global: GLOBAL {name} was not an allowed global by "
        f"default. {advice} With weights_only=False, classes of evergrad and common plain objects "
        "are loaded too."
    )
