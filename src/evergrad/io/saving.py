"""``save``: writes files that PyTorch reads too, whole or not at all."""

from __future__ import annotations

import os
import pickle
from contextlib import nullcontext
from typing import Any

from evergrad.io.atomic import replacing
from evergrad.io.legacy import write_legacy
from evergrad.io.pickler import pickled
from evergrad.io.sources import is_path
from evergrad.io.zip_writer import write_archive

DEFAULT_PROTOCOL = 2


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = pickle,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Save an object to a path or a file object, in PyTorch's format.

    A path either has the former file or the whole new one, whatever happens. Tensors that share
    memory still do when they are loaded; of a storage only what they see is written.
    """
    if not is_path(f) and not hasattr(f, "write"):
        raise AttributeError(
            "expected 'f' to be string, path, or a file-like object with a 'write' attribute"
        )
    if pickle_module is not pickle:
        raise ValueError("files are written by evergrad's own pickler; leave pickle_module out")
    if not 2 <= pickle_protocol <= pickle.HIGHEST_PROTOCOL:
        raise ValueError(
            f"pickle protocol must be from 2 to {pickle.HIGHEST_PROTOCOL}, not {pickle_protocol}"
        )
    data, regions = pickled(obj, pickle_protocol, legacy=not _use_new_zipfile_serialization)
    with replacing(os.fspath(f)) if is_path(f) else nullcontext(f) as file:
        if _use_new_zipfile_serialization:
            write_archive(file, data, regions, with_byte_order=not _disable_byteorder_record)
        else:
            write_legacy(file, data, regions)
