"""DistributedDataParallel: one module on several processes, with gradients averaged over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor
from evergrad.extension import ExtensionPoint
from evergrad.nn.embedding import Embedding, EmbeddingBag
from evergrad.nn.module import Module

if TYPE_CHECKING:
    from evergrad.core.device import Device

_checked_group: ExtensionPoint[[Any], Any] = ExtensionPoint("process_group")
_make_reducer: ExtensionPoint[..., object] = ExtensionPoint("gradient_reducer")
_broadcast: ExtensionPoint[[Sequence[Tensor], int, object, str], None] = ExtensionPoint(
    "broadcast_coalesced"
)
_join_context: ExtensionPoint[..., Any] = ExtensionPoint("join_context")
_ranks_with_input: ExtensionPoint[[bool, bool, object], list[tuple[bool, bool]]] = ExtensionPoint(
    "ranks_with_input"
)


class DistributedDataParallel(Module):
    """A module under the name ``module`` whose gradients are averaged over the processes.

    Needs ``init_process_group`` first. All processes get the parameters of the first one. Each
    computes on its own inputs; ``backward`` averages gradients, in buckets, while it still runs.

    >>> dist.init_process_group()
    >>> model = DistributedDataParallel(nn.Linear(4, 2))
    >>> model(x).sum().backward()  # gradients are means over the processes
    """

    def __init__(
        self, module: Module, device_ids: object = None, output_device: object = None, dim: int = 0,
        broadcast_buffers: bool | None = None, init_sync: bool = True, process_group: Any = None,
        bucket_cap_mb: float | None = None, find_unused_parameters: bool = False,
        check_reduction: bool = False, gradient_as_bucket_view: bool = False,
        static_graph: bool = False, delay_all_reduce_named_params: object = None,
        param_to_hook_all_reduce: object = None, mixed_precision: object = None,
        device_mesh: Any = None, skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: object = None, batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if device_mesh is not None:
            process_group = device_mesh.get_group()
        self.process_group: Any = _checked_group(process_group)
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = [(n, p) for n, p in module.named_parameters() if n not in ignored]
        trained = [(n, p) for n, p in named if p.requires_grad]
        if not trained:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameters "
                "that require a gradient."
            )
        self.module = module
        self.device_ids = None
        self.dim = dim
        self.require_backward_grad_sync: bool = True
        self.find_unused_parameters = find_unused_parameters
        self.static_graph = static_graph
        self.gradient_as_bucket_view = gradient_as_bucket_view
        chosen = forward_sync_buffers if broadcast_buffers is None else broadcast_buffers
        self.broadcast_buffers: bool = chosen is not False
        self._buffers_to_sync = [b for n, b in module.named_buffers() if n not in ignored]
        # Set within a join context.
        self._join_context: Any = None
        self._join_hook: _JoinHook | None = None
        self.reducer: Any = None  # of a layer above
        if self.process_group.size() > 1:
            self.reducer = _make_reducer(
                [n for n, _ in trained], [p for _, p in trained], self.process_group,
                bucket_cap_mb=bucket_cap_mb, as_views=gradient_as_bucket_view,
                find_unused=find_unused_parameters, static_graph=static_graph,
                sparse=_row_sparse(module, [p for _, p in trained]),
            )  # fmt: skip
            if init_sync:
                self._sync_parameters([p for _, p in named])
                if self.broadcast_buffers:
                    self._sync_buffers()

    def _sync_parameters(self, tensors: Sequence[Tensor], src: int = 0) -> None:
        """Give all processes the parameters of one."""
        _broadcast(tensors, src, self.process_group, "parameters")

    def _sync_buffers(self, src: int = 0) -> None:
        """Give all processes the buffers of one."""
        if self._buffers_to_sync:
            _broadcast(self._buffers_to_sync, src, self.process_group, "buffers")

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if self.reducer is None:
            return self.module(*inputs, **kwargs)
        if self._join_context is not None:
            self._join_context.notify_join_context(self)
            if self._join_hook is not None:
                self._join_hook.agree(True)
        is_reduced = STATE.get().grad and self.require_backward_grad_sync
        if is_reduced:
            self.reducer.before_forward()
        elif STATE.get().grad:
            self.reducer.before_local_forward()
        if self.broadcast_buffers and self.require_backward_grad_sync:
            self._sync_buffers(self._source_of_buffers())
        outputs = self.module(*inputs, **kwargs)
        if is_reduced:
            self.reducer.after_forward(outputs)
        return outputs

    def _source_of_buffers(self) -> int:
        """The process whose buffers all others get: the first with an input."""
        if self._join_context is None or self._join_hook is None:
            return 0
        return self._join_hook.source

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: Module, names: Iterable[str]) -> None:
        """Leave parameters and buffers of a module that will be wrapped to each process."""
        module._ddp_params_and_buffers_to_ignore = list(names)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients of this process alone; the next backward pass outside averages what
        has accumulated."""
        former, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = former

    def register_comm_hook(self, state: object, hook: Callable[[Any, Any], object]) -> None:
        """Reduce buckets by ``hook(state, bucket)``, which gives a future of the flat gradient."""
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self.reducer is not None:
            if self.reducer.hook is not None:
                raise RuntimeError("register_comm_hook can only be called once")
            self.reducer.hook, self.reducer.hook_state = hook, state

    @property
    def functions_called(self) -> list[tuple[object, tuple[object, ...]]]:
        """The communication hook and what it wraps, with the first argument: a compiled step is
        guarded by what they read."""
        found: list[tuple[Any, tuple[Any, ...]]] = []
        if self.reducer is not None:
            hook = self.reducer.hook
            while hook is not None:
                found.append((hook, (self.reducer.hook_state,)))
                hook = getattr(hook, "__wrapped__", None)
        return found

    def join(
        self, divide_by_initial_world_size: bool = True, enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Any:  # fmt: skip
        """A context in which processes may have different numbers of inputs: one that has no more
        takes part in the reductions of the others with gradients of zero. In the end all get the
        parameters of the process that had inputs longest.

        >>> with model.join():
        ...     for x in inputs:
        ...         model(x).sum().backward()
        """
        return _join_context(
            [self], enable and self.reducer is not None, throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )  # fmt: skip

    def join_hook(self, divide_by_initial_world_size: bool = True, **kwargs: object) -> _JoinHook:
        """What a process without inputs does in :class:`~evergrad.distributed.algorithms.Join`."""
        return _JoinHook(self, divide_by_initial_world_size)

    @property
    def join_device(self) -> Device:
        return next(self.module.parameters()).device

    @property
    def join_process_group(self) -> Any:
        return self.process_group


def _row_sparse(module: Module, parameters: Sequence[Tensor]) -> list[int]:
    """The numbers of the parameters that are tables of layers with row-sparse gradients."""
    layers = [m for m in module.modules() if isinstance(m, Embedding | EmbeddingBag) and m.sparse]
    tables = {id(layer.weight) for layer in layers}
    return [n for n, parameter in enumerate(parameters) if id(parameter) in tables]


class _JoinHook:
    """The processes that still have inputs, agreed on in every iteration."""

    def __init__(self, model: DistributedDataParallel, keeps_divisor: bool) -> None:
        self.model = model
        self.keeps_divisor = keeps_divisor
        self.source = 0  # the process whose buffers are sent
        self.last_active = list(range(model.process_group.size()))
        model._join_hook = self

    def agree(self, has_input: bool) -> list[tuple[bool, bool]]:
        """For each process whether it has an input, and whether it will reduce gradients."""
        model = self.model
        syncs = has_input and model.require_backward_grad_sync
        flags = _ranks_with_input(has_input, syncs, model.process_group)
        active = [rank for rank, (has, _) in enumerate(flags) if has]
        if active:
            self.last_active, self.source = active, active[0]
            if not self.keeps_divisor and model.reducer is not None:
                model.reducer.divisor = len(active)
        return flags

    def main_hook(self) -> None:
        """Take part in the reductions of the others."""
        model, reducer = self.model, self.model.reducer
        flags = self.agree(False)
        if reducer is not None and any(syncs for _, syncs in flags):
            reducer.before_forward_of_others()
            if model.broadcast_buffers:
                model._sync_buffers(self.source)
            reducer.shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        """Get the parameters of a process that had an input in the last iteration."""
        model = self.model
        if model.reducer is not None:
            model._sync_parameters(list(model.module.parameters()), self.last_active[-1])
            model._sync_buffers(self.last_active[-1])
            model.reducer.divisor = model.process_group.size()
        model._join_hook = None
