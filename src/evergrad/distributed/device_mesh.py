"""Device meshes: the ranks of the world as an array, with a process group along each dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.tensor import Tensor, from_array
from evergrad.distributed.process_group import (
    GroupMember,
    ProcessGroup,
    checked_group,
    init_process_group,
    is_initialized,
    new_group,
)

if TYPE_CHECKING:
    from evergrad.core.types import Array


class DeviceMesh:
    """Ranks in the order of an array. ``mesh["dp"]`` is the part along a named dimension that this
    process is in; :meth:`get_group` its process group.

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> mesh = eg.distributed.init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    >>> eg.distributed.all_reduce(eg.ones(2), group=mesh["tp"].get_group())
    >>> eg.distributed.destroy_process_group()
    """

    def __init__(
        self, device_type: str, mesh: object, *, mesh_dim_names: Sequence[str] | None = None,
        groups: dict[int, Any] | None = None,
    ) -> None:  # fmt: skip
        self.device_type = device_type
        self._ranks = np.asarray(mesh.tolist() if hasattr(mesh, "tolist") else mesh, np.int64)
        if len(np.unique(self._ranks)) != self._ranks.size:
            raise RuntimeError(f"each rank is in a mesh once, not {self._ranks.tolist()}")
        if mesh_dim_names is not None and len(mesh_dim_names) != self._ranks.ndim:
            raise ValueError(
                f"{self._ranks.ndim} dimensions have {len(mesh_dim_names)} names: give one for each"
            )
        self.mesh_dim_names: tuple[str, ...] | None = (
            None if mesh_dim_names is None else tuple(mesh_dim_names)
        )
        self._groups = _groups_along(self._ranks) if groups is None else groups

    @property
    def mesh(self) -> Tensor:
        """The ranks as a tensor of integers."""
        return from_array(self._ranks.astype(np.int32))

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._ranks.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """How many ranks in each dimension."""
        return self._ranks.shape

    def size(self, mesh_dim: int | None = None) -> int:
        """The number of ranks, in all or along one dimension."""
        return int(self._ranks.size if mesh_dim is None else self._ranks.shape[mesh_dim])

    def _number(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim != 1:
                raise RuntimeError(f"the mesh has {self.ndim} dimensions: say which one is meant")
            return 0
        if isinstance(mesh_dim, int):
            return mesh_dim
        if self.mesh_dim_names is None or mesh_dim not in self.mesh_dim_names:
            raise KeyError(f"the mesh has no dimension {mesh_dim!r}, but {self.mesh_dim_names}")
        return self.mesh_dim_names.index(mesh_dim)

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The process group along a dimension that this process is in."""
        found = self._groups[self._number(mesh_dim)]
        if found is None:
            raise RuntimeError("this process is not in the mesh")
        assert isinstance(found, ProcessGroup)
        return found

    def get_all_groups(self) -> list[ProcessGroup]:
        """The process group of each dimension."""
        return [self.get_group(dim) for dim in range(self.ndim)]

    def get_coordinate(self) -> list[int] | None:
        """The position of this process; ``None`` if it is not in the mesh."""
        own = np.argwhere(self._ranks == checked_group(None).rank())
        return [int(i) for i in own[0]] if len(own) else None

    def get_rank(self) -> int:
        """The number of this process in the world."""
        return checked_group(None).rank()

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """The number of this process along a dimension."""
        return self.get_group(mesh_dim).rank()

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        chosen = [self._number(name) for name in ((names,) if isinstance(names, str) else names)]
        coordinate = self.get_coordinate()
        if coordinate is None:
            raise RuntimeError("this process is not in the mesh")
        index = tuple(slice(None) if d in chosen else c for d, c in enumerate(coordinate))
        part = self._ranks[index].transpose(np.argsort(np.argsort(chosen)))
        assert self.mesh_dim_names is not None
        groups = {new: self._groups[old] for new, old in enumerate(chosen)}
        named = [self.mesh_dim_names[d] for d in chosen]
        return DeviceMesh(self.device_type, part, mesh_dim_names=named, groups=groups)

    def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:
        """The same ranks in one dimension; all processes of the world call it."""
        name = (
            "_".join(self.mesh_dim_names or ("mesh",)) if mesh_dim_name is None else mesh_dim_name
        )
        return DeviceMesh(self.device_type, self._ranks.reshape(-1), mesh_dim_names=(name,))

    @staticmethod
    def from_group(
        group: ProcessGroup | Sequence[ProcessGroup], device_type: str, mesh: object = None, *,
        mesh_dim_names: Sequence[str] | None = None,
    ) -> DeviceMesh:  # fmt: skip
        """A mesh of groups that exist: of one group its ranks, of several the ranks of ``mesh``."""
        given = [group] if isinstance(group, ProcessGroup) else list(group)
        ranks = given[0].ranks if mesh is None else mesh
        groups = dict(enumerate(given))
        return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names, groups=groups)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, tuple[int, ...], bytes, tuple[str, ...] | None]:
        return self.device_type, self.shape, self._ranks.tobytes(), self.mesh_dim_names

    def __repr__(self) -> str:
        names = "" if self.mesh_dim_names is None else f", {self.mesh_dim_names}"
        return f"DeviceMesh({self.device_type!r}, {self._ranks.tolist()}{names})"


def _groups_along(ranks: Array) -> dict[int, object]:
    """The group of this process along each dimension; all processes make all groups."""
    world = checked_group(None)
    if sorted(ranks.reshape(-1).tolist()) == list(range(world.size())) and ranks.ndim == 1:
        return {0: world if ranks.tolist() == world.ranks else new_group(ranks.tolist())}
    found: dict[int, Any] = {}
    for dim in range(ranks.ndim):
        found[dim] = None
        for line in np.moveaxis(ranks, dim, -1).reshape(-1, ranks.shape[dim]):
            made = new_group([int(rank) for rank in line], sort_ranks=False)
            if made is not GroupMember.NON_GROUP_MEMBER:
                found[dim] = made
    return found


def init_device_mesh(
    device_type: str, mesh_shape: Sequence[int], *, mesh_dim_names: Sequence[str] | None = None
) -> DeviceMesh:
    """A mesh of all ranks, in row-major order; makes the world if there is none yet.

    Args:
        device_type: ``"cpu"``
        mesh_shape: how many ranks in each dimension
        mesh_dim_names: names of the dimensions

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> mesh = eg.distributed.init_device_mesh("cpu", (1,), mesh_dim_names=("data",))
    >>> mesh.size()
    1
    >>> eg.distributed.destroy_process_group()
    """
    if not is_initialized():
        init_process_group()
    size = checked_group(None).size()
    if int(np.prod(mesh_shape)) != size:
        raise RuntimeError(f"a mesh of shape {tuple(mesh_shape)} needs as many ranks, not {size}")
    ranks = np.arange(size).reshape(tuple(mesh_shape))
    return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names)


__all__ = ["DeviceMesh", "init_device_mesh"]
