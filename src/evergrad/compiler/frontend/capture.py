"""Capture: the session of one call as a pure graph that can run again.

:func:`capture` turns what a session has recorded into a :class:`Captured`: a functionalized graph
(arguments, runtime numbers and captured tensors in; results, writes and gradients out) and its
guards.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from evergrad.autograd.custom_op import CustomOp
from evergrad.autograd.engine import grad_up_to
from evergrad.autograd.function import FunctionNode
from evergrad.compiler.frontend.arguments.argument_identities import (
    identities_of,
)
from evergrad.compiler.frontend.arguments.base_arguments import (
    base_arguments,
    is_same_memory,
)
from evergrad.compiler.frontend.arguments.signature import address_of
from evergrad.compiler.frontend.backward_graphs import (
    is_freed,
    leads_to_made_leaf,
    nodes_behind,
    reachable_tensors,
    runs_hooks,
    written_to,
)
from evergrad.compiler.frontend.captured import Captured
from evergrad.compiler.frontend.effects.find_effects import (
    containers_in,
    effects_of,
    undo_changes,
    unwatch,
)
from evergrad.compiler.frontend.effects.outputs import (
    Output,
    Results,
    has_recorder,
    has_shared_container,
    is_made_leaf,
)
from evergrad.compiler.frontend.effects.result_objects import ObjectGraph
from evergrad.compiler.frontend.effects.sparse_gradients import PartsOutput
from evergrad.compiler.frontend.guards.guard import Guards
from evergrad.compiler.frontend.numbers.number_slots import Installed, NumberSlots
from evergrad.compiler.frontend.partition import partition
from evergrad.compiler.frontend.paths.split_path import outputs_of, split_path
from evergrad.compiler.frontend.recording.recorded_calls import CallRecorder
from evergrad.compiler.frontend.session import NotWholeError, Session
from evergrad.compiler.frontend.state.python_state import PythonState
from evergrad.core.compound import Compound
from evergrad.core.functionalize import read_source
from evergrad.core.node import Leaf
from evergrad.core.op import TABLE
from evergrad.core.python_numbers import Expressions, PythonNumber
from evergrad.core.records import flatten_records
from evergrad.core.shapes import TensorType
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Graph, Var
from evergrad.core.tracing import Tracer, trace_value
from evergrad.core.tree import tree_leaves
from evergrad.errors import GradientError

if TYPE_CHECKING:
    from evergrad.core.types import Leaves


class Arguments(Protocol):
    """The tensors among the arguments of a call, and their types when it began."""

    args: Any
    kwargs: Any
    tensors: list[Tensor]
    types: list[TensorType]
    key: Any


def capture(
    trace: Session, call: Arguments, result: object, state: PythonState, numbers: NumberSlots,
    installed: Installed,
) -> Captured:  # fmt: skip
    """The program of a call whose session has just ended in one segment. Raises ``NotWholeError``
    and leaves the session as it is if there is none."""
    calls = installed.recorder
    installed.remove_stand_ins()
    if trace.breaks:
        raise NotWholeError(str(trace.breaks[0]))
    if trace.data_read is not None:
        raise NotWholeError(str(trace.data_read))
    if trace.keeps_sparse_gradients():
        raise NotWholeError("a sparse gradient is left behind")
    if trace.once is not None:
        raise NotWholeError(trace.once)
    if state.opaque is not None:
        raise NotWholeError(state.opaque)
    if any(is_of_subclass(leaf) for leaf in tree_leaves(result)):
        raise NotWholeError("a result is of a subclass of Tensor")
    if state.drew_random_numbers():
        raise NotWholeError("random numbers of Python or NumPy are drawn")
    if state.changed_hooks():
        raise NotWholeError("a hook is registered or removed")
    if state.uses_attributes():
        raise NotWholeError("a tensor among the arguments has attributes")
    flags = changed_flags(trace)
    if state.changed_filters():
        raise NotWholeError("the filters of warnings are changed")
    if state.changed_decimals():
        raise NotWholeError("the context of decimals is changed")
    if state.changed_environment():
        raise NotWholeError("an environment variable is set")
    if calls is not None:
        refuse_calls(calls, trace)
    effects = effects_of(trace, state, numbers, installed)
    if effects is None:
        result, objects = with_objects(result, state)
        found = _captured(trace, call, call.tensors, result, objects, state, numbers)
        found.flags = flags
        return found
    if effects.stores:
        result = result, effects.values()
    replaced = {id(held) for slot in effects.slots for held in containers_in(slot.before)}
    copies = [tree.copy for tree in installed.trees.values()]
    replaced |= {id(held) for copy in copies for held in containers_in(copy)}
    result, objects = with_objects(result, state, replaced)
    try:
        effects.restore()
        effects.refuse_kept_recorders(installed, () if objects is None else objects.made)
        refuse_kept_numbers(trace, result, installed)
        unwatch(effects, state)
        tensors = [*call.tensors, *effects.tensors, *effects.drawn]
        found = _captured(trace, call, tensors, result, objects, state, numbers)
    except NotWholeError:
        effects.repeat()
        raise
    effects.release(call.tensors, installed)
    found.effects, found.flags = effects, flags
    effects.path = found.path
    if found.path is None and len(trace.expressions.guards) > len(effects.calls):
        numbers.count_program(call.key)
    return found


def changed_flags(trace: Session) -> list[tuple[int, bool]]:
    """The arguments for which the call has set or cleared ``requires_grad``."""
    return [] if trace.flags is None else trace.flags.changed_arguments(trace)


def is_of_subclass(value: object) -> bool:
    """Whether a value is a tensor that the call has computed, of a class of its own."""
    if not isinstance(value, Tensor) or type(value) is Tensor:
        return False
    return isinstance(value._value, Var)


def refuse_calls(calls: CallRecorder, trace: Session) -> None:
    """Raise if the impure calls of a session cannot be parts of a program."""
    calls.check()
    if trace.expressions.reads_late:
        raise NotWholeError("a clock is read after operations, and Python reads what it returns")
    if calls.refusal is not None:
        raise NotWholeError(calls.refusal)
    if calls.keeps_stand_ins():
        gc.collect()
        if calls.keeps_stand_ins():
            raise NotWholeError("Python keeps an impure function that the function uses")
    if calls.calls and any(
        isinstance(container, Expressions) for (container, *_), _, _ in trace.number_guards
    ):
        raise NotWholeError("what an impure function returns is compared with a float argument")


def refuse_kept_numbers(trace: Session, result: object, installed: Installed) -> None:
    """Raise if Python keeps a number of the trace that is no result of it."""
    known = {id(leaf) for leaf in flatten_records(result)[0]}
    known |= {id(number) for number in installed.all_numbers()}

    def leaks() -> bool:
        return any(id(number) not in known for number in trace.live_numbers())

    if leaks():
        gc.collect()
        kept = [number for number in trace.live_numbers() if id(number) not in known]
        if kept and not are_of_custom_functions(trace, result, kept):
            raise NotWholeError("Python keeps a number that the function computes")


def are_of_custom_functions(trace: Session, result: object, numbers: list[PythonNumber]) -> bool:
    """Whether only custom functions refer to numbers: their equations, and the contexts of nodes
    that no backward pass can run any more."""
    owners: Leaves = [
        numbers, *(eqn.op.fixed for eqn in trace.equations if isinstance(eqn.op, CustomOp))
    ]  # fmt: skip
    tensors = [leaf for leaf in flatten_records(result)[0] if isinstance(leaf, Tensor)]
    for node in [t._node for t in tensors if t.requires_grad]:
        if not is_freed(node):
            return False
        contexts = [n.ctx for n in nodes_behind(node) if isinstance(n, FunctionNode)]
        owners += (part for ctx in contexts if ctx is not None for part in (ctx, vars(ctx)))
    known = set(map(id, owners))
    return all(id(owner) in known for number in numbers for owner in gc.get_referrers(number))


def with_objects(
    result: object, state: PythonState, replaced: Collection[int] = ()
) -> tuple[object, ObjectGraph | None]:
    """What a call returns and stores, as a tree of new containers; or the leaves of it, and what
    makes its objects of them. ``replaced`` are containers (by id) that stood in places."""
    is_tree = not (
        has_recorder(result) or state.shares_container(result) or has_shared_container(result)
        or any(id(held) in replaced for held in containers_in(result))
    )  # fmt: skip
    if is_tree and state.made_by_the_call(result) is None:
        return result, None
    objects = ObjectGraph(result, state, replaced)
    return list(objects.leaves), objects


def _captured(
    trace: Session, call: Arguments, arguments: Sequence[Tensor], result: object,
    objects: ObjectGraph | None, state: PythonState, numbers: NumberSlots,
) -> Captured:  # fmt: skip
    """The program with these tensors as arguments, and this result."""
    for var, tensor in trace.captures:
        for argument, former in zip(call.tensors, call.types, strict=True):
            if tensor is argument and not var.type.same(former):
                raise NotWholeError("an argument was given another type during the call")
    if any(isinstance(argument._value, Var) for argument in arguments):
        raise NotWholeError("an argument was made another view during the call")
    trace.made.clear()  # handles of the call would be kept by it
    bases, wholes = base_arguments(trace, call.tensors)
    if bases and not numbers.allows_offsets(bases):
        raise NotWholeError("the offset of an argument in its memory keeps changing")
    found = _Capture(trace, [*arguments, *wholes], result, state, len(wholes)).build()
    found.bases = bases
    found.handled = state.handled_errors()
    for stage in () if found.path is None else filter(None, found.path.stages):
        stage.captured.handled = found.handled
    found.bare_arguments = len(call.tensors) if state.is_dynamic else 0
    found.identities = identities_of(call.args, call.kwargs, state)
    found.results.objects = objects
    if objects is not None:
        objects.leaves, objects.made = [], {}
    found.guards.guard_memory(found.outside)
    state.release()
    return found


class _Capture:
    """Builds a :class:`Captured` from a session whose function has returned."""

    def __init__(
        self, trace: Session, arguments: Sequence[Tensor], result: object, state: PythonState,
        whole_count: int,
    ) -> None:  # fmt: skip
        """The last ``whole_count`` arguments are whole storages of others."""
        self.trace = trace
        self.arguments = list(arguments)
        self.first_whole = len(self.arguments) - whole_count
        self.result = result
        self.state = state
        self.found = Captured()
        # The tensors that the function reaches otherwise than by its arguments.
        self.reached = [*state.tensors, *_tensors_of_optimizers(trace)]
        # The value of each argument, and of captured handles on the same memory.
        self.argument_vars: list[Var] = []
        for argument in arguments:
            var = trace.capture(argument)
            is_new = var not in self.argument_vars
            self.argument_vars.append(var if is_new else Var(argument._type, trace))
        self.renamed: dict[Var, Var] = {}
        self.of_arguments: dict[int, list[int]] = {}
        for index, argument in enumerate(arguments):
            self.of_arguments.setdefault(id(argument._storage), []).append(index)

    def build(self) -> Captured:
        found, trace, inputs = self.found, self.trace, self.arguments
        self.rename_captures_of_arguments()
        found.results = Results(trace, inputs, self.result)
        tensors = found.results.release_tensors()
        self.refuse_leaks(tensors, [t for t in tree_leaves(self.result) if isinstance(t, Tensor)])
        reached = {id(t._storage) for t in self.reached}
        found.fixed = [
            (i, t._storage, address_of(t._value)) for i, t in enumerate(inputs)
            if id(t._storage) in reached
        ]  # fmt: skip
        if self.state.compares_identity:
            found.handles = {id(t): t for t in self.state.tensors}
            found.same_handles = [id(t) if id(t) in found.handles else None for t in inputs]
        grad_inputs = self.grad_inputs()
        found.arguments = len(inputs) + len(grad_inputs)
        outputs: Leaves = [trace_value(trace, t) for t in tensors]
        found.result_count = len(tensors) + trace.data.add_outputs(trace.expressions, outputs)
        own = {id(grad._storage): index for index, (_, grad) in enumerate(grad_inputs)}
        found.overwritten = self.overwritten(grad_inputs, own)
        found.written = [
            w.storage for n, w in trace.written.items()
            if n not in trace.local and n not in own and n not in self.of_arguments
        ]  # fmt: skip
        if any(trace.written[id(storage)].has_recorded() for storage in found.written):
            raise NotWholeError("a captured tensor gets a history by a write to it")
        outputs += [storage.value for storage in found.written]
        given = [*inputs, *(grad for _, grad in grad_inputs)]
        outputs += [given[i]._storage.value for i in found.overwritten]
        self.note_grads(outputs)
        first_read = len(outputs)
        outputs += outputs_of(trace.data.reads)
        forward = len(outputs)
        cotangents: list[Var] = []
        finals = [after for _, before, after in trace.final_grads() if after is not before]
        if not any(after is not None and after.requires_grad for after in finals):
            cotangents = self.trace_vjp(tensors, outputs, bool(finals))
        elif any(t.requires_grad and not is_freed(t._node) for t in tensors):
            raise NotWholeError("a result can be differentiated, and so can a gradient that is set")
        found.freed = [
            (i, t._node.name(), t._type, getattr(t._node, "location", None), written_to(t._node))
            for i, t in enumerate(tensors)
            if t.requires_grad and t._node is not None and i not in found.differentiable
            and not is_made_leaf(t._node, trace)
        ]  # fmt: skip
        found.numbers = [(c, k, p) for c, k, p, _ in trace.numbers.values()]
        captures = [
            (var, tensor) for var, tensor in trace.captures
            if var not in self.renamed and var not in self.argument_vars
        ]  # fmt: skip
        for argument in inputs:
            trace.grads.pop(id(argument), None)
        others = [*self.reached_twice(), *self.flags_read(captures)]
        found.guards = Guards(trace, captures, found.grad_inputs, self.state, others)
        number_vars = [n.tensor._value for *_, n in trace.numbers.values()]
        graph = trace.finish(outputs)
        of_grads = [var for var, _ in grad_inputs]
        outside = [(var, tensor) for var, tensor in captures if var not in of_grads]
        found.outside = [tensor for _, tensor in outside]
        pure = Graph(
            [*self.argument_vars, *of_grads, *number_vars, *(var for var, _ in outside),
             *cotangents], (), graph.equations, graph.outputs,
        )  # fmt: skip
        pure = pure.with_plain_inputs(len(self.argument_vars), TABLE["clone"], self.renamed)
        # Dead equations of a gradient that could not be computed read no input of the graph.
        pure = pure.without_dead_code()
        if cotangents:
            pure, found.derivative = partition(pure, forward, cotangents, found.differentiable)
        found.graph = pure.without_dead_code()
        if trace.data.reads:
            split_path(found, trace.data.reads, first_read, Captured)
            found.has_sizes = trace.data.has_sizes
        return found

    # -- arguments --------------------------------------------------------------------------------

    def rename_captures_of_arguments(self) -> None:
        """Captured handles on the memory of an argument are that argument."""
        for var, tensor in self.trace.captures:
            indices = self.of_arguments.get(id(tensor._storage))
            if indices is None or var in self.argument_vars:
                continue
            for index in indices:
                if is_same_memory(tensor._value, self.arguments[index]._value):
                    self.renamed[var] = self.argument_vars[index]
                    break
            else:
                raise NotWholeError("an argument is also read or written through another view")

    def reached_twice(self) -> list[Tensor]:
        """The tensors that the function reaches otherwise on the memory of an argument."""
        reached = {id(tensor) for tensor in self.reached}
        own = {id(argument) for argument in self.arguments}
        found = [tensor for var, tensor in self.trace.captures if var in self.renamed]
        return [tensor for tensor in found if id(tensor) in reached and id(tensor) not in own]

    def flags_read(self, captures: Sequence[tuple[Var, Tensor]]) -> list[Tensor]:
        """The other tensors of before the call of which Python has read whether they require
        grad."""
        read = self.trace.flags_read
        known = {id(tensor) for _, tensor in captures} | {id(tensor) for tensor in self.arguments}
        return [t for t in self.state.tensors if id(t) in read and id(t) not in known]

    def overwritten(
        self, grad_inputs: Sequence[tuple[Var, Tensor]], own: dict[int, int]
    ) -> list[int]:
        """The arguments, and gradients that are arguments, that the call writes to."""
        found: list[int] = []
        for storage, indices in self.of_arguments.items():
            write = self.trace.written.get(storage)
            if write is None:
                continue
            index = indices[-1]  # the whole storage, if that is an argument too
            array = self.arguments[index]._value
            is_shared = len(indices) > 1 and index < self.first_whole
            if is_shared or not is_same_memory(write.value, array):
                raise NotWholeError("an argument that is written to shares its memory")
            if not array.flags.c_contiguous:
                raise NotWholeError("an argument that is written to is not contiguous")
            if not all(self.arguments[i].is_leaf for i in indices):
                raise NotWholeError("an argument gets a history by a write to it")
            found.append(index)
        count = len(self.arguments)
        found += [
            count + index for index, (_, grad) in enumerate(grad_inputs)
            if id(grad._storage) in self.trace.written and own[id(grad._storage)] == index
        ]  # fmt: skip
        return found

    # -- what is left behind ----------------------------------------------------------------------

    def refuse_leaks(self, tensors: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        """Raise if Python keeps a tensor of the call that is no result of it."""
        trace = self.trace
        known = {id(t._storage) for t in (*tensors, *results, *self.arguments)}
        known |= {id(n.tensor._storage) for *_, n in trace.numbers.values()}
        finals = [after for _, _, after in trace.final_grads() if after is not None]
        parts = [part for grad in finals if isinstance(grad, Compound) for part in grad.parts()]
        known |= {id(tensor._storage) for tensor in (*finals, *parts)}
        known |= {n for n in trace.written if n not in trace.local}
        # Those of handles that the call has made, which nothing else references.
        known |= {id(t._grad._storage) for _, t in trace.captures if t._grad is not None}
        reached = reachable_tensors((*tensors, *results))

        def leaks() -> bool:
            kept = (t for t in trace.live_handles() if id(t._storage) not in known)
            return any(id(tensor) not in reached for tensor in kept)

        if leaks():
            gc.collect()  # a tensor may only be left in a reference cycle
            if leaks():
                raise NotWholeError("Python keeps a tensor that the function computes")

    # -- gradients --------------------------------------------------------------------------------

    def grad_inputs(self) -> list[tuple[Var, Tensor]]:
        """Gradients that existed before the call and were read by it become arguments, since each
        call has another tensor there; those that share memory with anything else that the function
        reaches stay captured."""
        trace, found = self.trace, self.found
        captures: dict[int, list[tuple[Var, Tensor]]] = {}
        for var, tensor in trace.captures:
            captures.setdefault(id(tensor._storage), []).append((var, tensor))
        own = {id(argument) for argument in self.arguments}
        grads = {id(grad) for _, grad in trace.grads.values()}
        others = {id(t._storage) for t in self.reached if id(t) not in grads}
        grad_inputs: list[tuple[Var, Tensor]] = []
        if trace.differentiates_outside:
            raise NotWholeError("what was computed before the call is differentiated by it")
        for owner, grad in trace.grads.values():
            if grad is None:
                continue
            is_read = id(grad._storage) in captures
            if (id(owner) in own and is_read) or id(grad._storage) in self.of_arguments:
                raise NotWholeError("a gradient is an argument, or that of an argument")
            if id(grad._storage) in others:  # the memory of a parameter, or of other state
                continue
            sharing = captures.pop(id(grad._storage), [])
            if all(
                _is_whole(var, tensor) and tensor._type is grad._type for var, tensor in sharing
            ):
                grad_inputs += [(var, grad) for var, _ in sharing]
                found.grad_inputs += [owner] * len(sharing)
        return grad_inputs

    def note_grads(self, outputs: list[object]) -> None:
        """Gradients that the call leaves in ``.grad`` become outputs."""
        found, trace = self.found, self.trace
        numbers = {id(argument): index for index, argument in enumerate(self.arguments)}
        for tensor, before, after in trace.final_grads():
            owner: Any = numbers.get(id(tensor), tensor)
            if after is before:
                if after is not None and id(tensor) in trace.grads_set:
                    self.guard_gradient(owner, after)
                continue
            if isinstance(after, Compound):
                if not all(self.is_made(part._storage) for part in after.parts()):
                    raise NotWholeError("a sparse tensor becomes a gradient")
                found.grads.append((owner, PartsOutput(after, len(outputs))))
                outputs += [trace_value(trace, part) for part in after.parts()]
                continue
            self.refuse_gradient(tensor, after)
            if after is not None and isinstance(after._storage.value, Var):
                found.grads.append((owner, Output(len(outputs))))
                outputs.append(trace_value(trace, after))
            else:
                found.grads.append((owner, after))

    def differentiable_arguments(self) -> list[int]:
        """The arguments that require grad: one that is given twice has one gradient."""
        found = {id(t): i for i, t in reversed([*enumerate(self.arguments)]) if t.requires_grad}
        return sorted(found.values())

    def guard_gradient(self, owner: Any, grad: Tensor) -> None:
        """Guard on a gradient that was set to what it was."""
        if isinstance(owner, int):
            raise NotWholeError("the gradient of an argument is set to what it was")
        self.trace.add_guard(lambda: owner._grad is grad, "the gradient of a tensor")

    def refuse_gradient(self, tensor: Tensor, grad: Tensor | None) -> None:
        """Raise if a gradient that was set is a tensor which the function also has otherwise."""
        if grad is None or id(tensor) not in self.trace.grads_set:
            return
        storage = grad._storage
        if id(storage) in self.of_arguments:
            raise NotWholeError("an argument becomes a gradient")
        if id(storage) in self.trace.local or self.is_made(storage):
            finals = [after for _, _, after in self.trace.final_grads() if after is not None]
            if grad._view is not None or sum(g._storage is storage for g in finals) > 1:
                raise NotWholeError("a part of a tensor becomes a gradient")
        elif id(storage) in self.trace.written or all(t is not grad for t in self.state.tensors):
            raise NotWholeError("a tensor from before the call becomes a gradient")

    def is_made(self, storage: Storage) -> bool:
        """Whether a storage was made by the call."""
        return isinstance(storage.value, Var) and id(storage) not in self.trace.written

    def trace_vjp(
        self, tensors: list[Tensor], outputs: list[object], sets_grads: bool
    ) -> list[Var]:
        """Extend the trace to the joint graph with the gradients of the results, if any is
        differentiable; returns the cotangents."""
        found, trace, inputs = self.found, self.trace, self.arguments

        def vjp(chosen: list[int]) -> Any:
            results, directions = [tensors[i] for i in chosen], [given[i] for i in chosen]
            return grad_up_to(results, targets, directions)

        differentiable = [
            i for i, t in enumerate(tensors)
            if t.requires_grad and not is_made_leaf(t._node, trace)
            and written_to(t._node) is None
            and not (sets_grads and is_freed(t._node))
        ]  # fmt: skip
        if any(leads_to_made_leaf(tensors[i]._node, trace) for i in differentiable):
            raise NotWholeError("a result depends on a leaf that the function makes")
        own = self.differentiable_arguments()
        with_node = [
            t for _, t in trace.captures
            if t._node is not None and id(t._storage) not in self.of_arguments
        ]  # fmt: skip
        leaves = [t for t in with_node if isinstance(t._node, Leaf)]
        if differentiable and len(leaves) != len(with_node):
            raise NotWholeError("a tensor from outside that the function reads has a history")
        if not differentiable or not (own or leaves):
            return []
        if any(runs_hooks(tensors[i]._node) for i in differentiable):
            raise NotWholeError("a hook is called where a result is differentiated")
        given = {i: Tracer(trace).input(tensors[i]._type) for i in differentiable}
        targets = [*(inputs[i] for i in own), *leaves]
        changed, count = {id(guard) for guard in self.state.changed()}, len(trace.equations)
        try:
            grads = vjp(differentiable)
        except GradientError:  # the function has differentiated some of its results itself
            differentiable = [i for i in differentiable if _can(lambda i=i: vjp([i]))]  # type: ignore[misc]
            if not differentiable:
                return []
            grads = vjp(differentiable)
        if any(id(guard) not in changed for guard in self.state.changed()):
            undo_changes(self.state, changed)  # only the pass itself may have effects
            del trace.equations[count:]
            grads = []
            given.clear()
            raise NotWholeError("the backward function of a custom function has effects")
        found.differentiable = differentiable
        found.targets = (own, leaves)
        outputs += [None if g is None else trace_value(trace, g) for g in grads]
        return [given[i]._value for i in differentiable]


def _can(act: Callable[[], object]) -> bool:
    try:
        act()
    except GradientError:
        return False
    return True


def _tensors_of_optimizers(trace: Session) -> Iterator[Tensor]:
    """The tensors in the states of the optimizers that were stepped, as these were before."""
    for _, entries in trace.states.values():
        for _, kept, _ in entries:
            if isinstance(kept, dict):
                yield from (held for held in kept.values() if isinstance(held, Tensor))


def _is_whole(var: Var, tensor: Tensor) -> bool:
    return tensor._view is None and var.layout.flags.c_contiguous


def read_number(container: object, key: int | str, part: int | None) -> float:
    return read_source((container, key, part))
