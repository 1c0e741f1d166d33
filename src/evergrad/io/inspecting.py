"""What can be said of a file without making its objects."""

from __future__ import annotations

import pickletools
from typing import Any

from evergrad.errors import FileFormatError
from evergrad.io.grants import granted
from evergrad.io.names import WEIGHTS, full_path
from evergrad.io.sources import opened
from evergrad.io.zip_reader import LOCAL_SIGNATURE, Archive


def find_root(archive: Archive, name: str) -> str:
    """The folder inside an archive that holds its records."""
    if any(entry.endswith("/constants.pkl") for entry in archive.entries):
        raise FileFormatError(
            f"{name} is a TorchScript archive, which holds a program. Load it with PyTorch and "
            "save its state_dict()."
        )
    for entry in archive.entries:
        if entry.endswith("/data.pkl") and entry.count("/") == 1:
            return entry.removesuffix("data.pkl")
    raise FileFormatError(f"{name} is an archive, but not one that save() wrote.")


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The classes and functions that a file names and would have to be granted."""
    with opened(f) as source:
        if source.read(0, min(source.size, len(LOCAL_SIGNATURE))) != LOCAL_SIGNATURE:
            raise ValueError("Expected input to be a checkpoint returned by save")
        archive = Archive(source)
        names = _names_in(archive.read(find_root(archive, source.name) + "data.pkl"))
    return sorted(names - WEIGHTS.keys() - granted().keys())


def _names_in(data: bytes) -> set[str]:
    """The paths of all names that the instructions of a pickle push."""
    found = set()
    texts: list[str | None] = []  # what was pushed, as far as it is text
    memo: dict[int, str | None] = {}
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "GLOBAL":
                found.add(full_path(*str(argument).split(" ", 1)))
            elif opcode.name == "STACK_GLOBAL":
                found.add(full_path(*map(str, texts[-2:])))
            elif opcode.name in ("MEMOIZE", "BINPUT", "LONG_BINPUT"):
                memo[len(memo) if argument is None else int(argument)] = (
                    texts[-1] if texts else None
                )
                continue
            elif opcode.name in ("BINGET", "LONG_BINGET"):
                texts.append(memo.get(int(argument or 0)))
                continue
            texts.append(argument if isinstance(argument, str) else None)
    except (ValueError, TypeError) as error:
        raise FileFormatError(f"the pickle cannot be read: {error}") from None
    return found
