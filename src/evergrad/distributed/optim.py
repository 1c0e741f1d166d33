"""An optimizer whose state is divided among the processes (ZeRO stages 1 and 2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.core.types import ParamGroup, StateDict
from evergrad.distributed.buckets import listed
from evergrad.distributed.collectives import reduce
from evergrad.distributed.objects import gather_object
from evergrad.distributed.process_group import ReduceOp, checked_group
from evergrad.distributed.reducer import broadcast_coalesced
from evergrad.distributed.work import Work
from evergrad.optim.optimizer import Optimizer

if TYPE_CHECKING:
    from evergrad.distributed.process_group import ProcessGroup


class _Group(dict[str, Any]):
    """A parameter group whose options are written to that of the wrapped optimizer as well: a
    compiled step reads them there at every call."""

    def __init__(self, group: dict[str, object], local: dict[str, object]) -> None:
        super().__init__(group)
        self.local = local
        self.update({k: v for k, v in local.items() if k != "params"})

    def __setitem__(self, key: str, value: object) -> None:
        super().__setitem__(key, value)
        if key != "params":
            self.local[key] = value

    def update(self, *args: object, **kwargs: object) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def setdefault(self, key: str, default: object = None) -> object:
        if key not in self:
            self[key] = default
        return self[key]

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


class ZeroRedundancyOptimizer(Optimizer):
    """Wraps an optimizer class; each process updates its share of the parameters and has the state
    of these alone, then sends them to the others.

    ``stage=1`` expects gradients that are equal on all processes, as DistributedDataParallel gives
    them. ``stage=2`` is used without it: a gradient is averaged on the process that updates its
    parameter as soon as it is complete, and freed on the others. (``stage`` is not PyTorch's.)
    """

    param_groups: list[ParamGroup]

    def __init__(
        self, params: Any, optimizer_class: type[Optimizer], process_group: object = None,
        parameters_as_bucket_view: bool = False, overlap_with_ddp: bool = False, stage: int = 1,
        **defaults: Any,
    ) -> None:  # fmt: skip
        self.group: ProcessGroup = checked_group(process_group)
        if stage not in (1, 2):
            raise ValueError(f"stage must be 1 or 2, not {stage}; stage 3 is fsdp.fully_shard")
        self.stage = stage
        self.optimizer_class = optimizer_class
        self.options = defaults
        self._consolidated: dict[str, object] | None = None
        self._held = [0] * self.group.size()  # bytes that each process updates
        self.owner: dict[int, int] = {}  # the process of a parameter, by its id
        self._works: list[tuple[Tensor, Work]] = []
        given = list(params)
        groups = given if given and isinstance(given[0], dict) else [{"params": given}]
        self._is_made = False
        super().__init__([{**g, "params": _listed(g["params"])} for g in groups], dict(defaults))
        self._is_made = True
        for group in self.param_groups:
            self._assign(group["params"])
        self.optim: Optimizer = optimizer_class(
            [self._local(g) for g in self.param_groups], **defaults
        )
        if self.group.size() == 1:
            self.param_groups, self.state = self.optim.param_groups, self.optim.state
        else:
            pairs = zip(self.param_groups, self.optim.param_groups, strict=True)
            self.param_groups = [_Group(group, local) for group, local in pairs]

    def _assign(self, parameters: Sequence[Tensor]) -> None:
        """Give each parameter to the process that has least so far, the largest first."""
        for parameter in sorted(parameters, key=lambda p: -p.numel()):
            rank = self._held.index(min(self._held))
            self._held[rank] += parameter.nbytes
            self.owner[id(parameter)] = rank
            if self.stage == 2 and self.group.size() > 1 and parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._reduce)

    def _is_own(self, parameter: Tensor) -> bool:
        return self.owner[id(parameter)] == self.group.rank()

    def _local(self, group: ParamGroup) -> dict[str, object]:
        return {**group, "params": [p for p in group["params"] if self._is_own(p)]}

    # -- gradients (stage 2) ----------------------------------------------------------------------

    def _reduce(self, parameter: Tensor) -> None:
        """Average a gradient on its owner, in the background."""
        self._release(only_complete=True)
        grad = parameter.grad
        assert grad is not None
        work = reduce(grad, op=ReduceOp.AVG, group=self.group, async_op=True,
                      group_dst=self.owner[id(parameter)],
                      label=f"parameter {self._numbers[id(parameter)]}")  # fmt: skip
        assert work is not None
        self._works.append((parameter, work))

    def _release(self, only_complete: bool) -> None:
        """Free the gradients that were sent to other processes."""
        waiting = []
        for parameter, work in self._works:
            if only_complete and not work.is_completed():
                waiting.append((parameter, work))
                continue
            work.wait()
            if not self._is_own(parameter):
                parameter.grad = None
        self._works = waiting

    # -- steps --------------------------------------------------------------------------------

    def step(self, closure: Any = None, **kwargs: Any) -> Any:
        """Update this process's share, then give all processes all parameters."""
        if self._join_context is not None:
            self._join_context.notify_join_context(self)
        self._release(only_complete=False)
        loss = self.optim.step(**kwargs) if closure is None else self.optim.step(closure, **kwargs)
        if self.group.size() > 1:
            with using(grad=False):
                for rank in range(self.group.size()):
                    everything = [p for g in self.param_groups for p in g["params"]]
                    owned = [p for p in everything if self.owner[id(p)] == rank]
                    if owned:
                        numbers = [str(self._numbers[id(p)]) for p in owned]
                        label = f"updated parameters {listed(numbers)}"
                        broadcast_coalesced(owned, rank, self.group, label)
        return loss

    # -- uneven inputs --------------------------------------------------------------------------

    _join_context: Any = None

    def join_hook(self, **kwargs: object) -> _StepOfOthers:
        """What a process without inputs does in :class:`~evergrad.distributed.algorithms.Join`:
        it updates its share by the gradients that DistributedDataParallel has reduced."""
        return _StepOfOthers(self)

    @property
    def join_device(self) -> Any:
        return self.param_groups[0]["params"][0].device

    @property
    def join_process_group(self) -> ProcessGroup:
        return self.group

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._release(only_complete=False)
        super().zero_grad(set_to_none)

    def add_param_group(self, param_group: ParamGroup) -> None:
        """Give the wrapped optimizer further parameters."""
        if not self._is_made:
            super().add_param_group(param_group)
            return
        group = {**param_group, "params": _listed(param_group["params"])}
        self._assign(group["params"])
        self.optim.add_param_group(self._local(group))
        if self.group.size() > 1:
            local = self.optim.param_groups[-1]
            super().add_param_group({**local, **group})
            self.param_groups[-1] = _Group(self.param_groups[-1], local)

    # -- state --------------------------------------------------------------------------------

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Collect the state of all processes in one, for ``state_dict`` to give."""
        self._consolidated = None
        if self.group.size() == 1:
            self._consolidated = self.optim.state_dict()
            return
        is_target = self.group.ranks[self.group.rank()] == to
        found: list[Any] | None = [None] * self.group.size() if is_target else None
        gather_object(self._numbered_state(), found, to, self.group)
        if found is not None:
            state = {number: entry for part in found for number, entry in part.items()}
            groups = []
            for group in self.param_groups:
                numbers = [self._numbers[id(p)] for p in group["params"]]
                groups.append({**{k: v for k, v in group.items() if k != "params"},
                               "params": numbers})  # fmt: skip
            self._consolidated = {"state": dict(sorted(state.items())), "param_groups": groups}

    @property
    def _numbers(self) -> dict[int, int]:
        """The number of each parameter over all groups, by its id."""
        everything = [p for g in self.param_groups for p in g["params"]]
        return {id(p): number for number, p in enumerate(everything)}

    def _numbered_state(self) -> dict[int, object]:
        numbers = self._numbers
        return {numbers[id(p)]: dict(entry) for p, entry in self.optim.state.items()}

    def state_dict(self) -> StateDict:
        """The state that was last consolidated."""
        if self._consolidated is None:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                "`consolidate_state_dict(to=0)` on all ranks beforehand if you meant to save the "
                "global state"
            )
        return self._consolidated

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Give each process its share of a consolidated state."""
        if self.group.size() == 1:
            self.optim.load_state_dict(state_dict)
            self.param_groups, self.state = self.optim.param_groups, self.optim.state
            return
        numbers = self._numbers
        own = [p for g in self.optim.param_groups for p in g["params"]]
        state = {i: state_dict["state"][numbers[id(p)]] for i, p in enumerate(own)
                 if numbers[id(p)] in state_dict["state"]}  # fmt: skip
        local = self.optim.state_dict()
        groups = [
            {**saved, "params": mine["params"]}
            for saved, mine in zip(state_dict["param_groups"], local["param_groups"], strict=True)
        ]
        self.optim.load_state_dict({"state": state, "param_groups": groups})
        pairs = zip(self.param_groups, self.optim.param_groups, strict=True)
        self.param_groups = [_Group(group, mine) for group, mine in pairs]


class _StepOfOthers:
    """The join hook of the optimizer."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer) -> None:
        self.optimizer = optimizer

    def main_hook(self) -> None:
        self.optimizer.step()

    def post_hook(self, is_last_joiner: bool) -> None:
        """Parameters are equal on all processes after every step."""


def _listed(params: Iterable[Tensor]) -> list[object]:
    return [params] if isinstance(params, Tensor) else list(params)


__all__ = ["ZeroRedundancyOptimizer"]
