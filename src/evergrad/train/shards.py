"""Checkpoints of several ranks: a folder with a file for each, complete or absent.

The tensors of a checkpoint are divided among the ranks by size, so that all write at once. The
folder is written under another name and renamed when every file is on disk. It can be read by any
number of ranks.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evergrad.core.tensor import Tensor
from evergrad.io import load, save
from evergrad.train.ranks import Ranks

if TYPE_CHECKING:
    from evergrad.core.types import JsonObject

_FIRST = "shard-0.pt"
# The value of a tensor's key in the structure, which the first file has.
_ELSEWHERE = "__tensor__"


def is_sharded(path: Path) -> bool:
    return (path / _FIRST).is_file()


def write_shards(path: Path, content: dict[str, object], ranks: Ranks) -> None:
    """Write a checkpoint on all ranks; an ``OSError`` of one is raised on all, and the former
    checkpoint of that name is kept."""
    building = path.with_name(f".{path.name}.shards")
    ranks.on_first(lambda: _begin(building))
    problem = None
    try:
        save(shard_of(content, ranks.rank, ranks.size), building / f"shard-{ranks.rank}.pt")
    except OSError as error:
        problem = str(error)
    problems = {r: text for r, text in enumerate(ranks.gathered(problem)) if text is not None}
    if problems:
        raise OSError("; ".join(f"rank {rank}: {text}" for rank, text in problems.items()))
    ranks.on_first(lambda: replace_folder(building, path))


def _begin(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def replace_folder(source: Path, target: Path) -> None:
    """Give a folder its name at once, in the place of a former one."""
    former = target.with_name(f".{target.name}.former")
    shutil.rmtree(former, ignore_errors=True)
    if target.is_dir():
        os.replace(target, former)
    elif target.exists():
        target.unlink()
    os.replace(source, target)
    shutil.rmtree(former, ignore_errors=True)
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link_folder(source: Path, target: Path) -> None:
    """A second folder with the same files."""
    building = target.with_name(f".{target.name}.shards")
    _begin(building)
    for file in source.iterdir():
        try:
            os.link(file, building / file.name)
        except OSError:  # no links on this file system
            shutil.copy(file, building / file.name)
    replace_folder(building, target)


# -- what is in a shard -------------------------------------------------------------------------


def shard_of(content: Mapping[str, object], rank: int, size: int) -> dict[str, object]:
    """A rank's part: the tensors that fall to it, and for the first the structure."""
    found: dict[tuple[Any, ...], Tensor] = {}
    structure = _without_tensors(content, (), found)
    owner = _owners({path: tensor.nbytes for path, tensor in found.items()}, size)
    own = [path for path in found if owner[path] == rank]
    return {
        "shard": rank,
        "of": size,
        "structure": structure if rank == 0 else None,
        "paths": [list(path) for path in own],
        "tensors": [found[path] for path in own],
    }


def _owners(sizes: dict[tuple[object, ...], int], ranks: int) -> dict[tuple[object, ...], int]:
    """Each tensor for the rank that has least so far, the largest first."""
    held = [0] * ranks
    owner: dict[tuple[object, ...], int] = {}
    for path, nbytes in sorted(sizes.items(), key=lambda item: -item[1]):
        owner[path] = held.index(min(held))
        held[owner[path]] += nbytes
    return owner


def _without_tensors(value: object, path: tuple[object, ...], found: dict[Any, Tensor]) -> object:
    if isinstance(value, Tensor):
        found[path] = value
        return _ELSEWHERE
    if isinstance(value, dict):
        return {k: _without_tensors(v, (*path, k), found) for k, v in value.items()}
    return value


def read_shards(path: Path) -> dict[str, object]:
    """The content of a checkpoint that ranks wrote together."""
    first = load(path / _FIRST)
    shards = [first, *(load(path / f"shard-{rank}.pt") for rank in range(1, first["of"]))]
    content: JsonObject = first["structure"]
    for number, shard in enumerate(shards):
        if (shard["shard"], shard["of"]) != (number, first["of"]):
            raise ValueError(f"shard-{number}.pt belongs to another checkpoint")
        for keys, tensor in zip(shard["paths"], shard["tensors"], strict=True):
            holder = content
            for key in keys[:-1]:
                holder = holder[key]
            holder[keys[-1]] = tensor
    return content
