"""Detects signatures that keep changing, and says which argument is the reason."""

from __future__ import annotations

import inspect
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Sequence

from evergrad import config
from evergrad.core.tensor import Tensor
from evergrad.core.tree import TreeSpec

# A warning names an argument after programs for so many of its shapes, or of its values.
MANY_SHAPES = 32
MANY_VALUES = 8
# Of calls with further values so many are remembered. Programs are made for those that recur, as
# many as are kept.
_MOST_PASSING = 1024
# As many of them are shown.
_SHOWN = 3


class SignatureChurn:
    """The shapes and values of each argument for which a function was compiled.

    :meth:`record` is called with the arguments of each call that compiles a program. It returns a
    warning once for shapes and once for the values of each argument. Kept are only hashes and the
    first few shapes or values.
    """

    def __init__(
        self, name: str, many_shapes: int = MANY_SHAPES, many_values: int = MANY_VALUES
    ) -> None:
        self.name = name
        self.limits: dict[bool, int] = {True: many_shapes, False: many_values}
        self.seen: dict[tuple[str, bool], set[int]] = {}
        self.shown: dict[tuple[str, bool], list[str]] = {}
        self.warned: set[str | None] = set()  # arguments, and None for shapes
        # The signatures, by hash, of calls that were run by Python since values keep changing, and
        # how many programs were made for those that recurred.
        self.passing: dict[int, None] = {}
        self.recurred: int = 0

    def passes(self, key: object) -> str | None:
        """Why no program is made for a signature that there is none for, if it is so: the values of
        an argument keep changing, and these have not recurred."""
        changing = sorted(path for path in self.warned if path is not None)
        if not changing:
            return None
        known = hash(key)
        if known in self.passing and self.recurred < config.MAX_PROGRAMS - MANY_VALUES:
            del self.passing[known]
            self.recurred += 1
            return None
        if len(self.passing) >= _MOST_PASSING:
            self.passing.pop(next(iter(self.passing)))
        self.passing[known] = None
        return f"the value of {changing[0]} changes from call to call"

    def record(
        self, paths: Sequence[str], leaves: Sequence[object], inputs: Collection[int] | None = None
    ) -> str | None:
        """Enter the leaves of a call's arguments with their paths; a warning if one of them has
        changed often enough. The leaves at the positions ``inputs`` never count: they are inputs of
        programs. Without these no float does."""
        found = None
        for position, (path, leaf) in enumerate(zip(paths, leaves, strict=True)):
            if leaf.__class__ is float if inputs is None else position in inputs:
                continue
            is_shape = isinstance(leaf, Tensor)
            argument = path, is_shape
            subject = None if is_shape else path
            seen = self.seen.setdefault(argument, set())
            key = hash(leaf._type) if isinstance(leaf, Tensor) else _hash_of(leaf)
            if key in seen or subject in self.warned:
                continue
            seen.add(key)
            shown = self.shown.setdefault(argument, [])
            if len(shown) < _SHOWN:
                shown.append(str(leaf._type) if isinstance(leaf, Tensor) else _shortened(leaf))
            if len(seen) >= self.limits[is_shape] and found is None:
                found = self.warning(path, leaf)
                self.warned.add(subject)
                seen.clear()
        return found

    def warning(self, path: str, leaf: object) -> str:
        """The warning that an argument keeps changing."""
        is_shape = isinstance(leaf, Tensor)
        shown = ", ".join(self.shown[path, is_shape])
        if is_shape:
            return (
                f"{self.name} was compiled for {self.limits[True]} shapes of {path} ({shown}, "
                "...); each new one is traced and planned, and the least recently used program is "
                "dropped at a limit (evergrad.config.MAX_PROGRAMS).\n"
                "  fix: pad to a few sizes, or leave out the last, incomplete batch."
            )
        kind = type(leaf).__name__
        return (
            f"{self.name} was compiled for {self.limits[False]} values of {path} (a {kind}: "
            f"{shown}, ...), which is part of its signature. Calls with further values are run by "
            "Python, unless a value recurs.\n"
            f"  fix: pass {_instead_of(leaf)}, which is read at each call."
        )


def _hash_of(leaf: object) -> int:
    try:
        return hash((leaf.__class__, leaf))
    except TypeError:  # not hashable: it was compared in another way
        return hash((leaf.__class__, repr(leaf)))


def _shortened(leaf: object) -> str:
    text = repr(leaf)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _instead_of(leaf: object) -> str:
    """What to pass instead of a value that is part of the signature."""
    if isinstance(leaf, (bool, str, bytes, type(None))):
        return "a tensor, or compile one function for each value"
    if isinstance(leaf, (int, float)):
        return "float(...) of it or a tensor"
    return "its numbers as floats or tensors"


def leaf_paths(function: Callable[..., object], spec: TreeSpec) -> list[str]:
    """The paths of the leaves of ``(args, kwargs)`` as the function names them: ``x``,
    ``batch['image']``, ``sizes[0]``."""
    args, kwargs = spec.children
    names = _parameter_names(function, len(args.children))
    found: list[str] = []
    children = *args.children, *kwargs.children
    for name, child in zip((*names, *kwargs.context), children, strict=True):
        _collect(name, child, found)
    return found


def _parameter_names(function: Callable[..., object], count: int) -> list[str]:
    """The names of so many positional arguments."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}[{n}]" for n in range(count - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    names += [f"argument {n}" for n in range(len(names), count)]
    return names[:count]


def _collect(path: str, spec: TreeSpec, found: list[str]) -> None:
    if spec.is_leaf():
        found.append(path)
        return
    if spec.kind in (dict, OrderedDict):
        steps = [f"[{key!r}]" for key in spec.context]
    elif spec.kind is defaultdict:
        steps = [f"[{key!r}]" for key in spec.context[1]]
    elif hasattr(spec.kind, "_fields"):
        steps = [f".{field}" for field in spec.kind._fields]
    else:
        steps = [f"[{n}]" for n in range(len(spec.children))]
    for step, child in zip(steps, spec.children, strict=True):
        _collect(path + step, child, found)
