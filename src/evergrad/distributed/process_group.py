"""Who takes part: the world of one process, its rank and its groups."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from evergrad.config import launcher_variable
from evergrad.extension import provides


class ReduceOp(Enum):
    """How values of several processes become one; of a single value each makes the value."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8


class Backend(str):
    """The name of a library that carries messages, in lower case."""

    GLOO = "gloo"
    NCCL = "nccl"
    MPI = "mpi"
    UCC = "ucc"
    XCCL = "xccl"

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish: {name!r}")
        return super().__new__(cls, name.lower())


class ProcessGroup:
    """Processes that act together: here always this one alone."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return 1


class GroupMember:
    """Stands for "not in the group" where a group is asked for."""

    NON_GROUP_MEMBER = object()


class _Groups:
    """``group.WORLD``: the group of all processes, once it is made."""

    @property
    def WORLD(self) -> ProcessGroup | None:
        return _world


group = _Groups()
_world: ProcessGroup | None = None


def is_available() -> bool:
    """Whether this package can be used: yes, by one process."""
    return True


def is_initialized() -> bool:
    """Whether ``init_process_group`` was called."""
    return _world is not None


def is_gloo_available() -> bool:
    """Whether a world can be made under this name: yes, of one process."""
    return True


def is_nccl_available() -> bool:
    return False


def is_mpi_available() -> bool:
    return False


def is_torchelastic_launched() -> bool:
    """Whether a launcher that restarts processes started this one."""
    return launcher_variable("TORCHELASTIC_RUN_ID") is not None


def init_process_group(
    backend: str | None = None, init_method: str | None = None, timeout: Any = None,
    world_size: int = -1, rank: int = -1, store: Any = None, group_name: str = "",
    pg_options: Any = None, device_id: Any = None,
) -> None:  # fmt: skip
    """Make the world: one process, given by ``world_size=1`` or the variable WORLD_SIZE."""
    global _world
    if _world is not None:
        raise ValueError("trying to initialize the default process group twice!")
    size = _from_launcher("WORLD_SIZE", world_size)
    own = _from_launcher("RANK", rank)
    if size != 1:
        raise NotImplementedError(
            f"a world of {size} processes was asked for, but evergrad.distributed runs in one "
            "process so far. Start the program once, with world_size=1 (or WORLD_SIZE=1, RANK=0)."
        )
    if own != 0:
        raise ValueError(f"rank {own} does not exist in a world of one process; its rank is 0")
    _world = ProcessGroup(Backend("gloo" if backend is None else backend))


def _from_launcher(name: str, given: int) -> int:
    if given != -1:
        return given
    text = launcher_variable(name)
    if text is None:
        raise ValueError(
            f"Error initializing distributed using env:// rendezvous: environment variable {name} "
            f"expected, but not set. Give {name.lower()}= instead."
        )
    return int(text)


def destroy_process_group(group: Any = None) -> None:
    """Undo ``init_process_group``; other groups need no undoing."""
    global _world
    world = checked_group(None)
    if group is None or group is world:
        _world = None


@provides("process_group")
def checked_group(group: Any) -> ProcessGroup:
    """The group that is meant; an error if there is no world yet."""
    if _world is None:
        raise ValueError(
            "Default process group has not been initialized, please make sure to call "
            "init_process_group."
        )
    return group if isinstance(group, ProcessGroup) else _world


def get_rank(group: Any = None) -> int:
    """The number of this process: 0."""
    return checked_group(group).rank()


def get_world_size(group: Any = None) -> int:
    """How many processes there are: 1."""
    return checked_group(group).size()


def get_backend(group: Any = None) -> Backend:
    """The name that was given to ``init_process_group``."""
    return checked_group(group).backend


def get_default_backend_for_device(device: Any) -> str:
    """PyTorch's choice of library for a device."""
    kind = str(device).partition(":")[0]
    return {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl", "mps": "gloo"}[kind]


def new_group(
    ranks: Sequence[int] | None = None, timeout: Any = None, backend: str | None = None,
    pg_options: Any = None, use_local_synchronization: bool = False, group_desc: Any = None,
    device_id: Any = None, sort_ranks: bool = True,
) -> Any:  # fmt: skip
    """A group of some processes; of one there is only itself."""
    world = checked_group(None)
    if ranks is not None and any(rank != 0 for rank in ranks):
        raise ValueError(f"the ranks {list(ranks)} are not all in a world of one process")
    if ranks is not None and not ranks:
        return GroupMember.NON_GROUP_MEMBER
    return ProcessGroup(world.backend if backend is None else Backend(backend))


def get_process_group_ranks(group: Any) -> list[int]:
    """The numbers of a group's processes."""
    checked_group(group)
    return [0]


def get_global_rank(group: Any, group_rank: int) -> int:
    """The number in the world of a process of a group."""
    checked_group(group)
    return check_rank(group_rank)


def get_group_rank(group: Any, global_rank: int) -> int:
    """The number in a group of a process of the world."""
    checked_group(group)
    return check_rank(global_rank)


def check_rank(rank: int | None) -> int:
    """The rank itself; an error if no process has it."""
    if rank not in (0, None):
        raise RuntimeError(f"invalid rank {rank}: a world of one process has only rank 0")
    return 0
