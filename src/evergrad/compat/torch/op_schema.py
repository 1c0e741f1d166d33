"""Schemas of registered operators: parsed from text, inferred from annotations, and bound."""

from __future__ import annotations

import collections.abc
import inspect
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import GenericAlias
from typing import Any, NoReturn

from evergrad.core.device import Device
from evergrad.core.dtypes import dtype
from evergrad.core.package_name import package_name
from evergrad.core.tensor import Tensor

_MISSING: object = inspect.Parameter.empty
_NUMBER = int | float | bool
# Python type, schema type, and whether T[], T?[] and T[]? exist.
_TYPES: tuple[tuple[object, str, bool, bool, bool], ...] = (
    (Tensor, "Tensor", True, True, False), (int, "SymInt", True, False, True),
    (float, "float", True, False, True), (bool, "bool", True, False, True),
    (str, "str", False, False, False), (_NUMBER, "Scalar", True, False, False),
    (dtype, "ScalarType", False, False, False), (Device, "Device", False, False, False),
)  # fmt: skip


def _sequences_of(kind: Any) -> tuple[Any, ...]:
    return (
        typing.Sequence[kind], typing.List[kind],  # noqa: UP006  as annotations spell them
        GenericAlias(collections.abc.Sequence, (kind,)), GenericAlias(list, (kind,)),
    )  # fmt: skip


def _parameter_types() -> Iterator[tuple[object, str]]:
    for kind, name, of_list, of_optionals, optional_list in _TYPES:
        yield kind, name
        yield typing.Optional[kind], f"{name}?"  # noqa: UP045
        if of_list:
            yield from ((s, f"{name}[]") for s in _sequences_of(kind))
        if of_optionals:
            yield from ((s, f"{name}?[]") for s in _sequences_of(typing.Optional[kind]))  # noqa: UP045
        if optional_list:
            yield from ((typing.Optional[s], f"{name}[]?") for s in _sequences_of(kind))  # noqa: UP045


_PARAMETERS: dict[object, str] = dict(_parameter_types())
_RETURNS: dict[object, str] = {
    Tensor: "Tensor", typing.List[Tensor]: "Tensor[]", list[Tensor]: "Tensor[]",  # noqa: UP006
    int: "SymInt", float: "float", bool: "bool", _NUMBER: "Scalar",
}  # fmt: skip


@dataclass(frozen=True)
class Argument:
    """A parameter of an operator."""

    name: str
    type: str
    default_value: object = None
    has_default: bool = False
    kwarg_only: bool = False

    @property
    def is_write(self) -> bool:
        """Whether the operator writes into it: ``Tensor(a0!)``."""
        return "!" in self.type

    def has_default_value(self) -> bool:
        return self.has_default

    def __str__(self) -> str:
        return f"{self.type} {self.name}" + (
            f"={_as_text(self.default_value)}" if self.has_default else ""
        )


@dataclass(frozen=True)
class FunctionSchema:
    """Name, parameters and results of an operator."""

    name: str
    arguments: tuple[Argument, ...]
    returns: tuple[str, ...]
    overload_name: str = ""

    @property
    def is_mutable(self) -> bool:
        return any(a.is_write for a in self.arguments)

    def bind(
        self, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """Arguments in the order of the schema, defaults filled in, and keyword-only ones."""
        positional = [a for a in self.arguments if not a.kwarg_only]
        if len(args) > len(positional):
            raise RuntimeError(
                f"{self.name}() takes {len(positional)} positional argument(s) but {len(args)} "
                f"was/were given.  Declaration: {self}"
            )
        given = {a.name: value for a, value in zip(positional, args, strict=False)}
        for name, value in kwargs.items():
            if name in given or all(a.name != name for a in self.arguments):
                raise RuntimeError(
                    f"Unknown keyword argument '{name}' for operator '{self.name}'. Schema: {self}"
                )
            given[name] = value
        for argument in self.arguments:
            if argument.name not in given and not argument.has_default:
                raise RuntimeError(
                    f"{self.name}() is missing value for argument '{argument.name}'. "
                    f"Declaration: {self}"
                )
            given.setdefault(argument.name, argument.default_value)
        named = {a.name: given[a.name] for a in self.arguments if a.kwarg_only}
        return tuple(given[a.name] for a in positional), named

    def __str__(self) -> str:
        parts = []
        for i, argument in enumerate(self.arguments):
            if argument.kwarg_only and not (i and self.arguments[i - 1].kwarg_only):
                parts.append("*")
            parts.append(str(argument))
        results = self.returns[0] if len(self.returns) == 1 else f"({', '.join(self.returns)})"
        name = f"{self.name}.{self.overload_name}" if self.overload_name else self.name
        return f"{name}({', '.join(parts)}) -> {results}"

    __repr__ = __str__


def _as_text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}."
    return f'"{value}"' if isinstance(value, str | Device) else str(value)


def parse_schema(text: str) -> FunctionSchema:
    """The schema that a text such as ``"lib::f(Tensor x, *, int n=2) -> Tensor"`` spells."""
    found = re.fullmatch(r"\s*([\w:]+)(?:\.(\w+))?\s*\((.*)\)\s*->\s*(.+?)\s*", text, re.DOTALL)
    if found is None:
        raise RuntimeError(f"expected a schema such as 'f(Tensor x) -> Tensor', got: {text}")
    name, overload, parameters, results = found.groups()
    arguments, kwarg_only = [], False
    for part in _split(parameters):
        if part == "*":
            kwarg_only = True
        else:
            arguments.append(_parse_argument(part, kwarg_only))
    if results.startswith("(") and results.endswith(")"):
        returns = tuple(_split(results[1:-1]))
    else:
        returns = (results,)
    returns = tuple(re.sub(r"(?<=[\])\w?])\s+\w+$", "", r) for r in returns)  # names of results
    return FunctionSchema(name, tuple(arguments), returns, overload or "")


def _split(text: str) -> list[str]:
    """The parts between commas that are in no brackets."""
    parts, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            parts.append(text[start:i])
            start = i + 1
    return [p.strip() for p in (*parts, text[start:]) if p.strip()]


def _parse_argument(text: str, kwarg_only: bool) -> Argument:
    declared, equals, default = text.partition("=")
    kind, _, name = declared.strip().rpartition(" ")
    value = _default_of(default.strip(), kind) if equals else None
    return Argument(name, kind.strip(), value, bool(equals), kwarg_only)


def _default_of(text: str, kind: str) -> object:
    if text == "None":
        return None
    if text in ("True", "False"):
        return text == "True"
    if text[:1] in "\"'":
        return Device(text[1:-1]) if kind.startswith("Device") else text[1:-1]
    if text[:1] == "[":
        return [_default_of(part, kind) for part in _split(text[1:-1])]
    try:
        return float(text) if kind.startswith("float") else int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def infer_schema(
    prototype_function: Callable[..., object],
    /,
    *,
    mutates_args: str | Iterable[str],
    op_name: str | None = None,
) -> str:
    """The schema of a function, read from its annotations; ``mutates_args`` are those it writes.

    >>> def scale(x: eg.Tensor, factor: float = 2.0) -> eg.Tensor: ...
    >>> infer_schema(scale, mutates_args=())
    '(Tensor x, float factor=2.0) -> Tensor'
    """
    signature = inspect.signature(prototype_function)
    names = prototype_function.__globals__

    def fail(what: str) -> NoReturn:
        raise ValueError(f"infer_schema(func): {what} Got func with signature {signature})")

    if isinstance(mutates_args, str) and mutates_args != "unknown":
        raise ValueError(
            "mutates_args must either be a sequence of the names of the arguments that are "
            "mutated or the string 'unknown'. "
        )
    written = mutates_args if isinstance(mutates_args, str) else tuple(mutates_args)
    parts: list[str] = []
    for i, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind == parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        parts.append(_describe(i, name, parameter, written, names, fail))
    if not isinstance(written, str):
        unseen = set(written) - set(signature.parameters)
        if unseen:
            fail(
                f"{unseen} in mutates_args were not found in the custom op's signature. "
                "mutates_args should contain the names of all args that the custom op mutates, "
                "or just the string 'unknown' if you don't know."
            )
    result = _result_type(_evaluated(signature.return_annotation, names, fail), fail)
    return f"{op_name or ''}({', '.join(parts)}) -> {result}"


def _describe(
    place: int, name: str, parameter: inspect.Parameter, written: str | tuple[str, ...],
    names: dict[str, object], fail: Callable[[str], NoReturn],
) -> str:  # fmt: skip
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        fail("We do not support positional-only args, varargs, or varkwargs.")
    if parameter.annotation is _MISSING:
        fail(f"Parameter {name} must have a type annotation.")
    kind = _PARAMETERS.get(_evaluated(parameter.annotation, names, fail))
    if kind is None:
        fail(
            f"Parameter {name} has unsupported type {parameter.annotation}. "
            f"The valid types are: {_PARAMETERS.keys()}."
        )
    is_tensor = kind.startswith("Tensor")
    if written == "unknown" if isinstance(written, str) else name in written:
        if is_tensor:
            kind = f"Tensor(a{place}!){kind.removeprefix('Tensor')}"
        elif not isinstance(written, str):
            fail(
                f"Parameter {name} is in mutable_args but only Tensors or collections of "
                "Tensors can be mutated"
            )
    return f"{kind} {name}{_default_text(name, parameter.default, fail)}"


def _default_text(name: str, default: object, fail: Callable[[str], NoReturn]) -> str:
    if default is _MISSING:
        return ""
    if default is None or isinstance(default, int | float):
        return f"={default}"
    if isinstance(default, str | Device):
        return f'="{default}"'
    if isinstance(default, dtype):
        return f"={str(default).removeprefix(package_name() + '.')}"
    fail(f"Parameter {name} has an unsupported default value type {type(default)}.")


def _evaluated(
    annotation: object, names: dict[str, object], fail: Callable[[str], NoReturn]
) -> object:
    """An annotation, or the object that its text names in the function's module."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, names)  # as typing.get_type_hints does
    except Exception as error:
        fail(f"Unsupported type annotation {annotation}. It is not a type. ({error})")


def _result_type(annotation: object, fail: Callable[[str], NoReturn]) -> str:
    if annotation is None:
        return "()"
    if annotation is _MISSING:
        fail("No return type annotation was provided. Please add one.")
    is_tuple = typing.get_origin(annotation) is tuple
    members = typing.get_args(annotation) if is_tuple else (annotation,)
    if any(member not in _RETURNS for member in members):
        fail(f"Return has unsupported type {annotation}. The valid types are: {_RETURNS}.")
    found = [_RETURNS[member] for member in members]
    return f"({', '.join(found)})" if is_tuple else found[0]
