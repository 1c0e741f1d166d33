"""Files of pretrained weights, downloaded once into a folder of the user."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from types import ModuleType
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
) -> dict[str, object]:  # fmt: skip
    """Load the weights behind an address, downloading them if they are not there yet."""
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, found.group(1) if found else None, progress)
    loaded: dict[str, object] = _load(path, map_location=map_location, weights_only=weights_only)
    return loaded


# -- models of a folder ---------------------------------------------------------------------------


def load(
    repo_or_dir: str, model: str, *args: object, source: str = "github",
    trust_repo: bool | str | None = "check", force_reload: bool = False, verbose: bool = True,
    skip_validation: bool = False, **kwargs: object,
) -> Any:  # fmt: skip
    """Call a function of the ``hubconf.py`` in a local folder (``source="local"``); repositories
    are not downloaded."""
    if source != "local":
        _refuse_repositories()
    with _folder_on_path(repo_or_dir):
        return _entry(_hubconf(repo_or_dir), model)(*args, **kwargs)


def list(
    github: str, force_reload: bool = False, skip_validation: bool = False,
    trust_repo: bool | str | None = "check", verbose: bool = True,
) -> NoReturn:  # fmt: skip
    """Not available: repositories are not downloaded."""
    _refuse_repositories()


def help(
    github: str, model: str, force_reload: bool = False, skip_validation: bool = False,
    trust_repo: bool | str | None = "check",
) -> NoReturn:  # fmt: skip
    """Not available: repositories are not downloaded."""
    _refuse_repositories()


def _refuse_repositories() -> NoReturn:
    raise NotImplementedError(
        "evergrad runs no programs from repositories; clone the repository and load its folder "
        'with source="local"'
    )


@contextmanager
def _folder_on_path(folder: str) -> Iterator[None]:
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _hubconf(folder: str) -> ModuleType:
    spec = spec_from_file_location("hubconf.py", os.path.join(folder, "hubconf.py"))
    assert spec is not None and spec.loader is not None  # the name ends in .py
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _entry(module: ModuleType, name: str) -> Callable[..., object]:
    needed = getattr(module, "dependencies", None) or ()
    missing = [package for package in needed if not _is_importable(package)]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    function = getattr(module, name, None)
    if not callable(function):
        raise RuntimeError(f"Cannot find callable {name} in hubconf")
    found: Callable[..., object] = function
    return found


def _is_importable(package: str) -> bool:
    return package in sys.modules or find_spec(package) is not None


__all__ = [
    "download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url",
    "set_dir",
]  # fmt: skip
