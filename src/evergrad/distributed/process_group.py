"""Process groups: the world, its ranks, and groups of some of them.

Without an MPI launcher the world is one process. Under ``mpiexec`` (or ``evergrad launch``) it is
all ranks of the job, whatever name the program gives the backend: MPI carries the messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from evergrad.config import DISTRIBUTED_TIMEOUT, launcher_variable
from evergrad.distributed import mpi
from evergrad.distributed.agreement import Call
from evergrad.distributed.job import Job
from evergrad.distributed.local import LocalTransport
from evergrad.distributed.progress import Engine, Steps
from evergrad.distributed.work import Work, seconds
from evergrad.extension import provides

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike
    from evergrad.distributed.mpi import MpiTransport


class ReduceOp(Enum):
    """How values of several processes become one; of a single value each makes the value.

    >>> eg.distributed.ReduceOp.SUM.name
    'SUM'
    """

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8


# PyTorch's native enumeration has its members in a class of this name; here they are one.
ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]


class Backend(str):
    """The name of a library that carries messages, in lower case.

    >>> eg.distributed.Backend("GLOO")
    'gloo'
    """

    GLOO = "gloo"
    NCCL = "nccl"
    MPI = "mpi"
    UCC = "ucc"
    XCCL = "xccl"
    default_device_backend_map: ClassVar[dict[str, str]] = {"cpu": "mpi"}
    backend_list: ClassVar[list[str]] = ["mpi"]

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish: {name!r}")
        return super().__new__(cls, name.lower())


class ProcessGroup:
    """Processes that act together.

    ``ranks`` are the numbers of its processes in the world; ``name`` is the same on all of them.
    A group of one process has a local transport and no engine.

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> eg.distributed.group.WORLD.size()
    1
    >>> eg.distributed.destroy_process_group()
    """

    def __init__(
        self, backend: Backend, name: str = "world", ranks: Sequence[int] = (0,),
        transport: mpi.MpiTransport | LocalTransport | None = None, engine: Engine | None = None,
        timeout: float = DISTRIBUTED_TIMEOUT,
    ) -> None:  # fmt: skip
        self.backend = backend
        self.name = name
        self.group_desc = name
        self.ranks: list[int] = list(ranks)
        self.transport: LocalTransport | MpiTransport = (
            LocalTransport() if transport is None else transport
        )
        self.engine = engine
        self.timeout = timeout
        # Bytes of payload this process has handed to collectives, by kind.
        self.traffic: dict[str, int] = {}

    def __deepcopy__(self, memo: dict[int, object]) -> ProcessGroup:
        """A copy of a module communicates in the same group."""
        return self

    def rank(self) -> int:
        """The number of this process in the group."""
        return self.transport.rank

    def size(self) -> int:
        """How many processes."""
        return self.transport.size

    def launch(
        self, call: Call, steps: Steps, *, async_op: bool = False, value: object = None,
        timeout: object = None,
    ) -> Work | None:  # fmt: skip
        """Do a collective after all ranks agree on it; a handle of it if ``async_op`` is set."""
        if self.engine is None:
            _run(steps)
            return Work(value=value) if async_op else None
        task = self.engine.submit(
            self.name, self._checked(call, steps), call, seconds(timeout, self.timeout)
        )
        if async_op:
            return Work(self.engine, task, value)
        self.engine.wait(task)
        return None

    def result(self, call: Call, steps: Steps) -> Any:
        """Do a collective and give what its generator returns."""
        if self.engine is None:
            return _run(steps)
        task = self.engine.submit(self.name, self._checked(call, steps), call, self.timeout)
        return self.engine.wait(task)

    def _checked(self, call: Call, steps: Steps) -> Steps:
        yield from self.transport.check(call.fingerprint, call)
        return (yield from steps)

    def count(self, kind: str, nbytes: int) -> None:
        """Enter payload in the traffic of this process."""
        self.traffic[kind] = self.traffic.get(kind, 0) + nbytes


def _run(steps: Steps) -> object:
    """The result of a generator that waits for nothing."""
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        return stop.value


class GroupMember:
    """What :func:`new_group` gives processes that are not in the group.

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> eg.distributed.GroupMember.NON_GROUP_MEMBER is not None
    True
    >>> eg.distributed.destroy_process_group()
    """

    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER = object()


class _Groups:
    """``group.WORLD``: the group of all processes, once it is made."""

    @property
    def WORLD(self) -> ProcessGroup | None:
        return _world


group: _Groups = _Groups()
_world: ProcessGroup | None = None
_job: Job | None = None
_named: dict[str, ProcessGroup] = {}
_numbers = 0


def is_available() -> bool:
    """Whether this package can be used: always, at least by one process.

    >>> eg.distributed.is_available()
    True
    """
    return True


def is_initialized() -> bool:
    """Whether ``init_process_group`` was called.

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> eg.distributed.is_initialized()
    True
    >>> eg.distributed.destroy_process_group()
    """
    return _world is not None


def is_gloo_available() -> bool:
    """Whether a world can be made under this name: yes, MPI carries its messages.

    >>> eg.distributed.is_gloo_available()
    True
    """
    return True


def is_nccl_available() -> bool:
    """Whether a world can be made under this name: no, NCCL is for GPUs.

    >>> eg.distributed.is_nccl_available()
    False
    """
    return False


def is_mpi_available() -> bool:
    """Whether ``mpi4py`` is installed.

    >>> eg.distributed.is_mpi_available() in (True, False)
    True
    """
    return mpi.is_installed()


def is_torchelastic_launched() -> bool:
    """Whether a launcher that restarts processes started this one.

    >>> eg.distributed.is_torchelastic_launched()
    False
    """
    return launcher_variable("TORCHELASTIC_RUN_ID") is not None


def init_process_group(
    backend: str | None = None, init_method: str | None = None, timeout: object = None,
    world_size: int = -1, rank: int = -1, store: object = None, group_name: str = "",
    pg_options: object = None, device_id: object = None,
) -> None:  # fmt: skip
    """Make the world: all ranks of the MPI job, or this process alone.

    ``timeout`` (a ``timedelta`` or seconds) limits every collective. Without a launcher the world
    has one process, given by ``world_size=1`` or the variable WORLD_SIZE.

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> eg.distributed.get_world_size()
    1
    >>> eg.distributed.destroy_process_group()
    """
    global _world
    if _world is not None:
        raise ValueError("trying to initialize the default process group twice!")
    limit = seconds(timeout, DISTRIBUTED_TIMEOUT)
    launched = mpi.launched_size()
    if launched is not None or (backend is not None and backend.lower() == "mpi"):
        made = _mpi_world(backend, limit, world_size, rank)
    else:
        made = _world_of_one(backend, limit, world_size, rank)
    _world = _named[made.name] = made


def _mpi_world(backend: str | None, limit: float, world_size: int, rank: int) -> ProcessGroup:
    global _job
    if _job is None:
        _job = Job()
    for what, given, found in (("world_size", world_size, _job.size), ("rank", rank, _job.rank)):
        if given not in (-1, found):
            raise ValueError(f"{what}={given} was given, but the launcher gives {found}")
    chosen = Backend("mpi" if backend is None else backend)
    if _job.size == 1:
        return ProcessGroup(chosen, timeout=limit)
    transport = _job.transports["world"] = _job.connect(limit)
    ranks = range(_job.size)
    return ProcessGroup(chosen, "world", ranks, transport, _job.engine, limit)


def _world_of_one(backend: str | None, limit: float, world_size: int, rank: int) -> ProcessGroup:
    size = _from_launcher("WORLD_SIZE", world_size)
    own = _from_launcher("RANK", rank)
    if size != 1:
        raise NotImplementedError(
            f"a world of {size} processes needs a launcher that starts them: "
            f"`evergrad launch -n {size} program.py` or `mpiexec -n {size} python program.py` "
            "(pip install 'evergrad[mpi]'); this process was started alone"
        )
    if own != 0:
        raise ValueError(f"rank {own} does not exist in a world of one process; its rank is 0")
    return ProcessGroup(Backend("gloo" if backend is None else backend), timeout=limit)


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


def destroy_process_group(group: object = None) -> None:
    """Undo ``init_process_group``, or ``new_group`` for the group given.

    Args:
        group: default the world

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> eg.distributed.is_initialized()
    True
    >>> eg.distributed.destroy_process_group()
    """
    global _world
    world = checked_group(None)
    ended = list(_named.values()) if group in (None, world) else [checked_group(group)]
    for each in reversed(ended):
        _named.pop(each.name, None)
        if _job is not None and (transport := _job.transports.pop(each.name, None)) is not None:
            _job.farewell(transport, each.timeout)
    if group in (None, world):
        _world = None


@provides("process_group")
def checked_group(group: object) -> ProcessGroup:
    """The group that is meant; an error if there is no world yet."""
    if _world is None:
        raise ValueError(
            "Default process group has not been initialized, please make sure to call "
            "init_process_group."
        )
    if group is GroupMember.NON_GROUP_MEMBER:
        raise ValueError("this process is not in the group that the collective is for")
    return group if isinstance(group, ProcessGroup) else _world


def group_of_name(name: str) -> ProcessGroup:
    """The group with that name: how a compiled program refers to it."""
    found = _named.get(name)
    if found is None:
        raise RuntimeError(f"the process group {name!r} does not exist (any more)")
    return found


def get_rank(group: object = None) -> int:
    """The number of this process in the group; -1 if it is not in it.

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> eg.distributed.get_rank()
    0
    >>> eg.distributed.destroy_process_group()
    """
    if group is GroupMember.NON_GROUP_MEMBER:
        return -1
    return checked_group(group).rank()


def get_world_size(group: object = None) -> int:
    """How many processes the group has; -1 for processes that are not in it.

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> eg.distributed.get_world_size()
    1
    >>> eg.distributed.destroy_process_group()
    """
    if group is GroupMember.NON_GROUP_MEMBER:
        return -1
    return checked_group(group).size()


def get_backend(group: object = None) -> Backend:
    """The name that was given to ``init_process_group``.

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> eg.distributed.get_backend()
    'gloo'
    >>> eg.distributed.destroy_process_group()
    """
    return checked_group(group).backend


def get_default_backend_for_device(device: DeviceLike) -> str:
    """PyTorch's choice of library for a device.

    >>> eg.distributed.get_default_backend_for_device("cpu")
    'gloo'
    """
    kind = str(device).partition(":")[0]
    return {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl", "mps": "gloo"}[kind]


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The number of this process among those of its machine.

    Args:
        fallback_rank: what to give if no launcher has set it

    >>> eg.distributed.get_node_local_rank(fallback_rank=0)
    0
    """
    for name in ("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"):
        text = launcher_variable(name)
        if text is not None:
            return int(text)
    if fallback_rank is not None:
        return fallback_rank
    raise RuntimeError("LOCAL_RANK is not in the environment; give fallback_rank=")


def new_group(
    ranks: Sequence[int] | None = None, timeout: object = None, backend: str | None = None,
    pg_options: object = None, use_local_synchronization: bool = False, group_desc: object = None,
    device_id: object = None, sort_ranks: bool = True,
) -> Any:  # fmt: skip
    """A group of some processes. Every process of the world calls it, in the same order; those
    that are not in the group get ``GroupMember.NON_GROUP_MEMBER``.

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> group = eg.distributed.new_group([0])
    >>> eg.distributed.get_world_size(group)
    1
    >>> eg.distributed.destroy_process_group()
    """
    global _numbers
    world = checked_group(None)
    chosen = list(range(world.size()) if ranks is None else ranks)
    chosen = sorted(chosen) if sort_ranks else chosen
    if len(set(chosen)) != len(chosen) or not set(chosen) <= set(range(world.size())):
        of = "one process" if world.size() == 1 else f"{world.size()} processes"
        raise ValueError(f"the ranks {chosen} are not all in a world of {of}, each once")
    world.launch(Call(f"new_group({chosen})"), world.transport.barrier())
    _numbers += 1
    if world.rank() not in chosen:
        return GroupMember.NON_GROUP_MEMBER
    name = f"group {_numbers} {chosen}"
    limit = seconds(timeout, world.timeout)
    transport, engine = None, None
    if len(chosen) > 1 and isinstance(world.transport, mpi.MpiTransport):
        assert _job is not None
        transport = _job.subgroup(world.transport, chosen, _numbers)
        _job.transports[name], engine = transport, _job.engine
    made = _named[name] = ProcessGroup(
        world.backend if backend is None else Backend(backend), name, chosen, transport, engine,
        limit,
    )  # fmt: skip
    if group_desc is not None:
        made.group_desc = str(group_desc)
    return made


def new_subgroups(
    group_size: int | None = None, group: object = None, timeout: object = None,
    backend: str | None = None, pg_options: object = None, group_desc: object = None,
) -> tuple[ProcessGroup, list[ProcessGroup]]:  # fmt: skip
    """Divide the world into groups of equal size, of neighbouring ranks; gives the group of this
    process, and all of them.

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> mine, groups = eg.distributed.new_subgroups(1)
    >>> len(groups)
    1
    >>> eg.distributed.destroy_process_group()
    """
    size = checked_group(None).size()
    count = group_size if group_size is not None else size
    if not 0 < count <= size or size % count:
        raise ValueError(f"The world size ({size}) must be divisible by group_size={count}")
    lists = [list(range(first, first + count)) for first in range(0, size, count)]
    return new_subgroups_by_enumeration(lists, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]], timeout: object = None,
    backend: str | None = None, pg_options: object = None, group_desc: object = None,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """Groups of the given ranks, each in at most one; gives the group of this process (``None`` if
    it is in none), and all of them.

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> mine, groups = eg.distributed.new_subgroups_by_enumeration([[0]])
    >>> len(groups)
    1
    >>> eg.distributed.destroy_process_group()
    """
    chosen = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    if len(set(chosen)) != len(chosen):
        raise ValueError("Rank has appeared in both subgroups: each rank is in at most one")
    made = [
        new_group(list(ranks), timeout, backend, pg_options, group_desc=group_desc)
        for ranks in ranks_per_subgroup_list
    ]
    own = next((g for g in made if g is not GroupMember.NON_GROUP_MEMBER), None)
    return own, made


def get_pg_count() -> int:
    """The number of process groups that this process is in.

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> eg.distributed.get_pg_count()
    1
    >>> eg.distributed.destroy_process_group()
    """
    return len(_named)


def supports_complex(reduceOp: ReduceOp) -> bool:
    """Whether a reduction is defined for complex numbers.

    >>> eg.distributed.supports_complex(eg.distributed.ReduceOp.SUM)
    True
    """
    return reduceOp not in (
        ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PRODUCT, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR,
    )  # fmt: skip


def is_backend_available(backend: str) -> bool:
    """Whether a world can be made under this name.

    >>> eg.distributed.is_backend_available("gloo")
    True
    """
    return backend.lower() in ("gloo", "mpi")


def get_process_group_ranks(group: object) -> list[int]:
    """The numbers in the world of a group's processes.

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> eg.distributed.get_process_group_ranks(eg.distributed.group.WORLD)
    [0]
    >>> eg.distributed.destroy_process_group()
    """
    return list(checked_group(group).ranks)


def get_global_rank(group: object, group_rank: int) -> int:
    """The number in the world of a process of a group.

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> eg.distributed.get_global_rank(eg.distributed.group.WORLD, 0)
    0
    >>> eg.distributed.destroy_process_group()
    """
    found = checked_group(group)
    return found.ranks[check_rank(group_rank, found)]


def get_group_rank(group: object, global_rank: int) -> int:
    """The number in a group of a process of the world.

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> eg.distributed.get_group_rank(eg.distributed.group.WORLD, 0)
    0
    >>> eg.distributed.destroy_process_group()
    """
    found = checked_group(group)
    if global_rank not in found.ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {found.name}")
    return found.ranks.index(global_rank)


def check_rank(rank: int, group: ProcessGroup) -> int:
    """The rank itself; an error if no process of the group has it."""
    if not 0 <= rank < group.size():
        of = "has only rank 0" if group.size() == 1 else f"has ranks 0 to {group.size() - 1}"
        world = "a world of one process" if group.size() == 1 else f"group {group.name}"
        raise RuntimeError(f"invalid rank {rank}: {world} {of}")
    return rank


def root_rank(group: ProcessGroup, rank: int | None, group_rank: int | None) -> int:
    """The number in the group of a source or destination, given in the world or in the group."""
    if rank is not None and group_rank is not None:
        raise ValueError("give the rank in the world or the rank in the group, not both")
    if group_rank is not None:
        return check_rank(group_rank, group)
    if rank is None:
        return 0
    if rank not in group.ranks:
        return check_rank(rank if rank not in range(group.size()) else -1, group)
    return group.ranks.index(rank)
