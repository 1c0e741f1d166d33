"""Objects of the standard library that hold state, and instances of subclasses: what of them a
program is guarded on."""

from __future__ import annotations

import configparser
import email.message
import io
import mmap
import weakref
from typing import Any

from evergrad.compiler.frontend.state.raw_reads import is_a

# What is compared by its bytes.
MEMORY = (io.BytesIO, mmap.mmap)
# Containers of weak references, in their attribute ``data``.
WEAK = (weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
# Objects whose methods depend on their attributes, and the containers among these, alone.
RECORDS = (configparser.RawConfigParser, configparser.SectionProxy, email.message.Message)
# Names of methods of these that read files.
READS_FILES = frozenset({"read", "read_file", "readfp"})
# The modules of their bases.
MODULES = frozenset({"io", "_io", "mmap", "weakref", "_weakrefset", "configparser", "email"})
_MOST_BYTES = 1 << 16


def content_of(value: Any) -> tuple[Any, ...]:
    """The bytes of an object in memory, and the position in it; nothing if it is closed."""
    try:
        if is_a(value, io.BytesIO):
            return io.BytesIO.getvalue(value), io.BytesIO.tell(value)
        return mmap.mmap.__getitem__(value, slice(None)), mmap.mmap.tell(value)
    except ValueError:
        return ()


def is_comparable(value: Any) -> bool:
    """Whether an object in memory is small and open."""
    found = content_of(value)
    return bool(found) and len(found[0]) <= _MOST_BYTES
