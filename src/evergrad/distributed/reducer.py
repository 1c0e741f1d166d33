"""The reducer of DistributedDataParallel: averages gradients while backward still runs.

Each parameter has a hook that runs when its gradient is complete. A bucket whose gradients are all
complete is reduced in the background; buckets are started in the order of their numbers, which is
the same on every rank, so that the collectives match. After the last one has started, all are
waited for. After the first backward pass the buckets are rebuilt in the order in which gradients
became complete.

Gradients of rows of a table (``Embedding(sparse=True)``) have buckets of their own, whose rows are
gathered after the others: what is sent follows the rows.

In a traced function the same hooks emit the reductions as equations of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import evergrad
from evergrad.core.node import GraphNode
from evergrad.core.state import using
from evergrad.core.tensor import Tensor, current_node
from evergrad.distributed.buckets import (
    BUCKET_BYTES,
    FIRST_BYTES,
    Bucket,
    GradBucket,
    assign_buckets,
    joined,
    split,
)
from evergrad.distributed.buffers import is_traced
from evergrad.distributed.collectives import all_reduce, broadcast
from evergrad.distributed.objects import all_gather_object
from evergrad.distributed.process_group import ProcessGroup, ReduceOp
from evergrad.distributed.progress import DistributedError
from evergrad.distributed.row_gradients import RowBucket, average_rows, traced_average_rows
from evergrad.distributed.traced import OverlappedWorks, apply
from evergrad.extension import provides
from evergrad.ops.rows.collective import ALL_REDUCE

if TYPE_CHECKING:
    from evergrad.core.types import Leaves
    from evergrad.distributed.work import Future

Hook = Callable[[Any, GradBucket], Any]


class Reducer:
    """The buckets of a module's parameters and their reductions."""

    capacity: int
    first: int

    def __init__(
        self, names: Sequence[str], parameters: Sequence[Tensor], group: ProcessGroup, *,
        bucket_cap_mb: float | None, as_views: bool, find_unused: bool, static_graph: bool,
        sparse: Collection[int] = (),
    ) -> None:  # fmt: skip
        self.sparse: frozenset[int] = frozenset(sparse)  # parameters whose gradients are rows
        self.names: list[str] = list(names)
        self.parameters: list[Tensor] = list(parameters)
        self.group = group
        if bucket_cap_mb is None:
            self.first, self.capacity = FIRST_BYTES, BUCKET_BYTES
        else:
            self.first = self.capacity = int(bucket_cap_mb * (1 << 20))
        self.as_views = as_views
        self.find_unused: bool = find_unused or static_graph
        self.static_graph = static_graph
        # Whether gradients that become complete are reduced: decided by forward passes.
        self.is_enabled: bool = True
        self.is_awaited: bool = (
            False  # a forward pass has decided, and its backward pass is not complete
        )
        self.hook: Hook | None = None
        self.hook_state: object = None
        # The divisor of sums: another one while ranks have run out of inputs.
        self.divisor: int = group.size()
        self.is_rebuilt: bool = False
        self.passes: int = 0  # backward passes that were reduced, on this rank or on others
        self.ready: list[int] = []  # parameters in the order they became complete
        self.unused: list[int] = []
        self.unused_now: set[int] = set()
        self.static_unused: list[int] | None = None
        self._build(list(reversed(range(len(self.parameters)))))
        for number, parameter in enumerate(self.parameters):
            parameter.register_post_accumulate_grad_hook(self._hook_of(number))

    def _hook_of(self, number: int) -> Callable[[Tensor], None]:
        def when_accumulated(parameter: Tensor) -> None:
            if self.is_enabled:
                self._complete(number)

        return when_accumulated

    # -- buckets ------------------------------------------------------------------------------

    def _build(self, order: list[int]) -> None:
        dense = [n for n in order if n not in self.sparse]
        numbers = assign_buckets(self.parameters, dense, self.capacity, self.first)
        self.buckets: list[Bucket] = [Bucket(i, n, self.parameters) for i, n in enumerate(numbers)]
        self.last_dense: int = len(numbers) - 1
        for number in sorted(self.sparse):
            self.buckets.append(RowBucket(len(self.buckets), [number], self.parameters))
        self.place: dict[int, tuple[Bucket, int]] = {
            n: (b, k) for b in self.buckets for k, n in enumerate(b.numbers)
        }
        self._reset()

    def _reset(self) -> None:
        self.is_awaited = False
        self.started: int = 0
        # In a trace: buckets whose reductions have started, their gradients and futures.
        self.emitted: list[tuple[Bucket, list[Any], Any]] = []
        self.traced_works: OverlappedWorks = OverlappedWorks()
        self.pending: set[int] = set(range(len(self.parameters)))
        for bucket in self.buckets:
            if bucket.future is not None:
                with suppress(Exception):  # of a pass that failed, which has raised it
                    bucket.future.wait()
            bucket.missing = len(bucket.numbers)
            bucket.future = None

    def rebuild(self) -> None:
        """Bucket in the order in which gradients became complete: that of the first rank that has
        one. All ranks call this before the second forward pass."""
        self.is_rebuilt = True
        orders: list[Any] = [None] * self.group.size()
        all_gather_object(orders, self.ready or None, self.group)
        order = next((o for o in orders if o is not None), None)
        if order is not None and not self.find_unused:
            missing = [n for n in range(len(self.parameters)) if n not in set(order)]
            views = {n for n in range(len(self.parameters)) if self._is_view(n)}
            self._build(order + missing)
            self._adopt_views(views)
        self.ready = []

    def _adopt_views(self, numbers: set[int]) -> None:
        """Gradients that were parts of former buckets become parts of the new ones."""
        for number in numbers:
            bucket, k = self.place[number]
            grad = self.parameters[number].grad
            assert grad is not None
            with using(grad=False):
                bucket.parts[k].copy_(grad)
            self.parameters[number].grad = bucket.parts[k]

    def _is_view(self, number: int) -> bool:
        bucket, _ = self.place[number]
        grad = self.parameters[number]._grad
        return "flat" in vars(bucket) and grad is not None and grad._storage is bucket.flat._storage

    # -- a forward pass -------------------------------------------------------------------------

    def before_forward(self) -> None:
        """A forward pass whose gradients will be reduced: check that the last backward pass has
        reduced everything; rebuild once."""
        if is_traced():
            self._reset()
            self.is_enabled = self.is_awaited = True
            return
        if self.pending and len(self.pending) < len(self.parameters):
            names = ", ".join(self.names[n] for n in sorted(self.pending))
            self._reset()
            raise DistributedError(
                "Expected to have finished reduction in the prior iteration before starting a new "
                f"one: these parameters got no gradient: {names}.\n  fix: "
                "DistributedDataParallel(..., find_unused_parameters=True), or make every output "
                "of forward take part in the loss"
            )
        self.before_forward_of_others()
        self.is_enabled = self.is_awaited = True

    def before_local_forward(self) -> None:
        """A forward pass whose gradients stay local, unless they accumulate on those of a former
        one that will be reduced."""
        self.is_enabled = self.is_awaited

    def before_forward_of_others(self) -> None:
        """Rebuild the buckets, as every rank does after the first backward pass."""
        if self.passes and not self.is_rebuilt:
            self.rebuild()

    def after_forward(self, outputs: object) -> None:
        """Find the parameters that do not take part in the outputs."""
        self.unused = []
        if self.find_unused:
            if self.static_unused is not None:
                self.unused = self.static_unused
                return
            reached = _leaves_of(outputs)
            self.unused = [
                n for n, p in enumerate(self.parameters) if id(current_node(p)) not in reached
            ]
            if self.static_graph:
                self.static_unused = self.unused

    # -- a backward pass ------------------------------------------------------------------------

    def _complete(self, number: int) -> None:
        """The gradient of a parameter is complete: start what can be started."""
        unused, self.unused = self.unused, []
        self.unused_now |= set(unused)
        for other in (*unused, number):
            if other not in self.pending:
                raise DistributedError(
                    f"the gradient of {self.names[other]} became complete twice in one iteration: "
                    "use no_sync() for all but the last backward pass"
                )
            self.pending.discard(other)
            bucket, k = self.place[other]
            if not is_traced():
                self.ready.append(other)
                self._fill(bucket, k)
            bucket.missing -= 1
        while self.started < len(self.buckets) and not self.buckets[self.started].missing:
            self._start(self.buckets[self.started])
            self.started += 1
        if self.started == len(self.buckets):
            self._finish()

    def _fill(self, bucket: Bucket, k: int) -> None:
        """Copy a gradient into its bucket, unless it is there; zeros if there is none."""
        if isinstance(bucket, RowBucket):
            return
        parameter, part = bucket.parameters[k], bucket.parts[k]
        grad = parameter._grad
        with using(grad=False):
            if grad is None:
                part.zero_()
            elif grad._storage is not part._storage:
                if getattr(grad, "is_sparse", False):
                    grad = grad.to_dense()
                part.copy_(grad)
                if self.as_views:
                    parameter.grad = part

    def _start(self, bucket: Bucket) -> None:
        if is_traced():
            self._emit(bucket)
        elif isinstance(bucket, RowBucket):
            return  # its rows are gathered after all dense buckets
        elif self.hook is not None:
            given = GradBucket(bucket, bucket.index == self.last_dense)
            bucket.future = self.hook(self.hook_state, given)
        else:
            bucket.future = self._default(bucket)

    def _default(self, bucket: Bucket) -> Future:
        is_mean = self.divisor == self.group.size()
        op = ReduceOp.AVG if is_mean else ReduceOp.SUM
        work = all_reduce(bucket.flat, op, self.group, True, bucket.label(self.names))
        assert work is not None
        if is_mean:
            return work.get_future()
        return work.get_future().then(lambda future: [future.value()[0] / self.divisor])

    def _emit(self, bucket: Bucket) -> None:
        """Emit the start of a bucket's reduction in a trace; rows are gathered at once."""
        if isinstance(bucket, RowBucket):
            (parameter,) = bucket.parameters
            if parameter.grad is not None:
                label = bucket.label(self.names)
                parameter.grad = traced_average_rows(parameter, parameter.grad, self.group, label)
            return
        with using(grad=False):
            grads = [p.grad if p.grad is not None else evergrad.zeros_like(p, requires_grad=False)
                     for p in bucket.parameters]  # fmt: skip
            flat = joined(grads)
            with self.traced_works:
                if self.hook is not None:
                    given = GradBucket(bucket, bucket.index == self.last_dense, flat)
                    future = self.hook(self.hook_state, given)
                else:
                    label = bucket.label(self.names)
                    work = all_reduce(flat, ReduceOp.AVG, self.group, True, label)
                    assert work is not None
                    future = work.get_future()
        self.emitted.append((bucket, grads, future))

    def _emit_waits(self) -> None:
        """Emit the waits, behind the whole of backward; gradients get what was received."""
        with using(grad=False), self.traced_works:
            for bucket, grads, future in self.emitted:
                parts = split(_flat(future.wait()), bucket.parameters)
                for parameter, grad, part in zip(bucket.parameters, grads, parts, strict=True):
                    grad.copy_(part)
                    if parameter.grad is None:
                        parameter.grad = grad
            self.traced_works.wait()
        self.emitted = []

    def _finish(self) -> None:
        """Wait for all buckets and give parameters their gradients."""
        if is_traced():
            self._emit_waits()
        else:
            used = self._used_anywhere()
            for bucket in self.buckets:
                self._deliver(bucket, used)
            self.passes += 1
        self._reset()

    def _deliver(self, bucket: Bucket, used: list[bool] | None) -> None:
        if isinstance(bucket, RowBucket):
            (parameter,), (number,) = bucket.parameters, bucket.numbers
            found = average_rows(
                parameter, parameter.grad, self.group, self.divisor, bucket.label(self.names)
            )
            if used is None or used[number]:
                parameter.grad = found
            return
        value = _flat(bucket.future.wait())
        with using(grad=False):
            if value is not bucket.flat:
                bucket.flat.copy_(value.reshape(bucket.flat.shape))
            for number, parameter, part in zip(
                bucket.numbers, bucket.parameters, bucket.parts, strict=True
            ):
                if used is not None and not used[number]:
                    continue
                if self.as_views:
                    parameter.grad = part
                elif parameter.grad is None or getattr(parameter.grad, "is_sparse", False):
                    parameter.grad = part.clone()
                elif not self._is_view(number):
                    parameter.grad.copy_(part)

    def _used_anywhere(self) -> list[bool] | None:
        """With unused parameters, which of them some rank has used: gradients of the others stay
        as they are."""
        if not self.find_unused:
            return None
        unused, self.unused_now = self.unused_now, set()
        flags = evergrad.tensor([n not in unused for n in range(len(self.parameters))])
        all_reduce(flags, ReduceOp.MAX, self.group, label="used parameters")
        return list(flags.tolist())

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Average tensors of the parameters' types, bucket by bucket, in place."""
        for bucket in self.buckets:
            with using(grad=False):
                chosen = [tensors[n] for n in bucket.numbers]
                reduced = apply(ALL_REDUCE, joined(chosen), self.group, reduction="AVG")
                for tensor, part in zip(chosen, split(reduced, chosen), strict=True):
                    tensor.copy_(part)

    def shadow(self) -> None:
        """Take part in the reductions of the others with gradients of zero."""
        dense = self.buckets[: self.last_dense + 1]
        for bucket in dense:
            with using(grad=False):
                bucket.flat.zero_()
            self._start(bucket)
        self.unused_now = set(range(len(self.parameters)))
        self._used_anywhere()
        for bucket in dense:
            bucket.future.wait()
        for bucket in self.buckets[self.last_dense + 1 :]:
            label = bucket.label(self.names)
            average_rows(bucket.parameters[0], None, self.group, self.divisor, label)
        self.passes += 1
        self._reset()


def _flat(result: Any) -> Tensor:
    """The flat gradient that a future of a bucket gives, alone or in a list."""
    found: Tensor = result[0] if isinstance(result, list | tuple) else result
    return found


def _leaves_of(outputs: object) -> set[int]:
    """The ids of the nodes from which outputs were computed."""
    stack: list[GraphNode] = []
    _collect(outputs, stack)
    seen = {id(node) for node in stack}
    while stack:
        for parent in stack.pop().parents:
            if parent is not None and id(parent) not in seen:
                seen.add(id(parent))
                stack.append(parent)
    return seen


def _collect(value: object, found: list[GraphNode]) -> None:
    if isinstance(value, Tensor):
        node = current_node(value)
        if node is not None:
            found.append(node)
    elif isinstance(value, dict):
        _collect(list(value.values()), found)
    elif isinstance(value, list | tuple):
        for item in value:
            _collect(item, found)
    elif hasattr(value, "__dict__"):
        _collect(list(vars(value).values()), found)


@provides("gradient_reducer")
def make_reducer(
    names: Sequence[str], parameters: Sequence[Tensor], group: ProcessGroup, **options: Any
) -> Reducer:
    """A reducer, after all ranks agree on the parameters."""
    check_parameters(names, parameters, group)
    return Reducer(names, parameters, group, **options)


def check_parameters(names: Sequence[str], tensors: Sequence[Tensor], group: ProcessGroup) -> None:
    """Refuse models that differ between ranks, naming the first parameter that does."""
    found: Leaves = [None] * group.size()
    own = [(name, str(t._type)) for name, t in zip(names, tensors, strict=True)]
    all_gather_object(found, own, group)
    for rank, other in zip(group.ranks, found, strict=True):
        if other != found[0]:
            pairs = zip(found[0], other, strict=False)
            number = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
            if number is None:
                number = min(len(found[0]), len(other))
            shown = [c[number] if number < len(c) else "nothing" for c in (found[0], other)]
            raise DistributedError(
                f"DistributedDataParallel: parameter {number} is {shown[0]} on rank "
                f"{group.ranks[0]} and {shown[1]} on rank {rank}; build the same model on every "
                "rank"
            )


@provides("broadcast_coalesced")
def broadcast_coalesced(
    tensors: Sequence[Tensor], src: int, group: ProcessGroup, label: str
) -> None:
    """Give all ranks the tensors of one rank of the group, those of one dtype in one message."""
    kinds: dict[object, list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault(tensor.dtype, []).append(tensor)
    with using(grad=False):
        for same in kinds.values():
            flat = joined(same)
            broadcast(flat, group=group, group_src=src, label=label)
            for tensor, part in zip(same, split(flat, same), strict=True):
                tensor.copy_(part)


@provides("ranks_with_input")
def ranks_with_input(has_input: bool, syncs: bool, group: ProcessGroup) -> list[tuple[bool, bool]]:
    """For each rank whether it has another input, and whether it will reduce gradients."""
    flags = evergrad.zeros(group.size(), 2, dtype=evergrad.int32)
    flags[group.rank()] = evergrad.tensor([has_input, syncs], dtype=evergrad.int32)
    all_reduce(flags, group=group)
    return [(bool(a), bool(b)) for a, b in flags.tolist()]
