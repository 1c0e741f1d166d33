"""Files of pretrained weights, downloaded once into a folder of the user."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable
from typing import Any, NoReturn
from urllib.parse import urlparse
from urllib.request import urlopen

from evergrad.io import load as _load

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_CHUNK = 1 << 20
_folder: str | None = None


def get_dir() -> str:
    """The folder that downloads go to."""
    return _folder or os.path.join(os.path.expanduser("~"), ".cache", "torch", "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Choose the folder that downloads go to."""
    global _folder
    _folder = os.path.expanduser(d)


def _get_torch_home() -> str:
    return os.path.dirname(get_dir())


def download_url_to_file(
    url: str, dst: str, hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Download a file; its SHA-256 must begin with ``hash_prefix`` if one is given."""
    digest = hashlib.sha256()
    target = os.path.expanduser(dst)
    with (
        urlopen(url) as source,
        tempfile.NamedTemporaryFile(dir=os.path.dirname(target) or ".", delete=False) as file,
    ):
        while chunk := source.read(_CHUNK):
            file.write(chunk)
            digest.update(chunk)
    if hash_prefix and not digest.hexdigest().startswith(hash_prefix):
        os.unlink(file.name)
        raise RuntimeError(f"invalid hash value (expected {hash_prefix!r}) of {url}")
    os.replace(file.name, target)


def load_state_dict_from_url(
    url: str, model_dir: str | None = None, map_location: object = None, progress: bool = True,
    check_hash: bool = False, file_name: str | None = None, weights_only: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Load the weights behind an address, downloading them if they are not there yet."""
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, found.group(1) if found else None, progress)
    loaded: dict[str, Any] = _load(path, map_location=map_location, weights_only=weights_only)
    return loaded


def _refuse(*args: object, **kwargs: object) -> NoReturn:
    raise NotImplementedError(
        "evergrad runs no programs from repositories; clone the repository and import its model"
    )


load: Callable[..., NoReturn] = _refuse
list: Callable[..., NoReturn] = _refuse
help: Callable[..., NoReturn] = _refuse

__all__ = [
    "download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url",
    "set_dir",
]  # fmt: skip
