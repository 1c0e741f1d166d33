"""Values of options: text and TOML values made into what a field's type says, or a clear error."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable
from typing import Any, Literal, Union, get_args, get_origin


class ConfigError(ValueError):
    """An option that does not exist, or a value it cannot have; the message names the nearest.

    >>> try:
    ...     eg.train.RunConfig(steps=-1)
    ... except eg.train.ConfigError:
    ...     print("refused")
    refused
    """


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: what was probably meant, or all there is."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there are {', '.join(names)}"


_BYTES = re.compile(r"([0-9.]+)\s*(|[kmgt]i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_bytes(text: str) -> int:
    """A number of bytes as people write it: ``300000``, ``64MB``, ``1.5GiB`` (powers of 1024)."""
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{text!r} is not a number of bytes; write it like 64MB or 1.5GB")
    try:
        return int(float(match[1]) * 1024 ** _POWERS[match[2].lower().removesuffix("i")])
    except ValueError:
        raise ConfigError(f"{text!r} is not a number of bytes; write it like 64MB") from None


def convert(value: object, hint: Any, key: str) -> Any:
    """A value, as text of a command line or as TOML gives it, for a field with this type."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _convert_optional(value, hint, key)
    if origin is Literal:
        return _convert_choice(value, get_args(hint), key)
    if origin is tuple:
        return _convert_tuple(value, get_args(hint), key)
    converter = {bool: _to_bool, int: _to_int, float: _to_float, str: _to_str}.get(hint)
    if converter is None:
        raise ConfigError(f"{key} has the type {hint}, which cannot be set")
    return converter(value, key)


def _convert_optional(value: object, hint: object, key: str) -> object:
    if value is None or (isinstance(value, str) and value.lower() in ("", "none")):
        return None
    (inner,) = (part for part in get_args(hint) if part is not type(None))
    return convert(value, inner, key)


def _convert_choice(value: object, choices: tuple[object, ...], key: str) -> object:
    for choice in choices:
        if value == choice or value == str(choice):
            return choice
    known = [str(choice) for choice in choices]
    raise ConfigError(f"{key} cannot be {value!r}{nearest(str(value), known)}")


def _convert_tuple(value: Any, parts: tuple[object, ...], key: str) -> object:
    if not isinstance(value, str | list | tuple):
        raise ConfigError(f"{key} takes several values, like 0.9,0.95, not {value!r}")
    items = value.strip("()[]").split(",") if isinstance(value, str) else list(value)
    hints = [parts[0]] * len(items) if len(parts) == 2 and parts[1] is Ellipsis else list(parts)
    if len(items) != len(hints):
        raise ConfigError(f"{key} takes {len(hints)} values, like 0.9,0.95, but got {value!r}")
    return tuple(convert(item, hint, key) for item, hint in zip(items, hints, strict=True))


def _to_bool(value: object, key: str) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "yes", "on", "1"):
        return True
    if str(value).lower() in ("false", "no", "off", "0"):
        return False
    raise ConfigError(f"{key} is true or false, not {value!r}")


def _to_int(value: object, key: str) -> int:
    if isinstance(value, str):
        text = value.strip().replace("_", "").replace(",", "")
        if re.fullmatch(r"[+-]?\d{1,40}", text):
            return int(text)
    elif isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ConfigError(f"{key} is a whole number, not {value!r}")


def _to_float(value: Any, key: str) -> float:
    if isinstance(value, bool):
        raise ConfigError(f"{key} is a number, not {value!r}")
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        raise ConfigError(f"{key} is a number, not {value!r}") from None


def _to_str(value: object, key: str) -> str:
    if isinstance(value, str):
        return value
    raise ConfigError(f"{key} is a text, not {value!r}")
