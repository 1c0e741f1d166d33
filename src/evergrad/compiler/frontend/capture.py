"""Capture: the session of one call as a pure graph that can run again.

:func:`capture` turns what a session has recorded into a :class:`Captured`: a functionalized graph
(arguments, runtime numbers and captured tensors in; results, writes and gradients out) and its
guards.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any, Protocol

from evergrad.autograd.engine import grad_up_to
from evergrad.compiler.frontend.arguments import address_of
from evergrad.compiler.frontend.base_arguments import (
    BaseArgument,
    base_arguments,
    is_same_memory,
)
from evergrad.compiler.frontend.effects import Effects
from evergrad.compiler.frontend.find_effects import effects_of, unwatch
from evergrad.compiler.frontend.guards import Guards
from evergrad.compiler.frontend.number_slots import Installed, NumberSlots
from evergrad.compiler.frontend.outputs import Output, Results, has_shared_container
from evergrad.compiler.frontend.partition import Derivative, partition
from evergrad.compiler.frontend.python_state import PythonState
from evergrad.compiler.frontend.recorded_calls import CallRecorder
from evergrad.compiler.frontend.session import NotWholeError, Session
from evergrad.core.functionalize import read_source
from evergrad.core.node import FreedNode, GraphNode, Leaf
from evergrad.core.python_numbers import Expressions
from evergrad.core.records import flatten_records
from evergrad.core.saved_values import Packed
from evergrad.core.shapes import TensorType
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Graph, Var
from evergrad.core.tracing import Tracer, trace_value
from evergrad.core.tree import tree_leaves
from evergrad.errors import GradientError


class Captured:
    """One traced call.

    ``inputs`` of the graph are the tensor arguments and the current gradients of ``grad_inputs``
    tensors, then ``numbers`` (container, key, part), then ``outside`` (captured) tensors. Its
    outputs are the results, then the final value of each of the ``written`` storages, then
    overwritten arguments, then new gradients, then the residuals.
    """

    def __init__(self) -> None:
        self.graph: Graph
        self.arguments = 0
        self.grad_inputs: list[Tensor] = []
        self.numbers: list[tuple[Any, Any, int | None]] = []
        self.outside: list[Tensor] = []
        self.written: list[Storage] = []
        self.overwritten: list[int] = []
        # Arguments on memory that the function also reaches otherwise, and that they have to be
        # on at each call: (index, storage, address).
        self.fixed: list[tuple[int, Storage, int]] = []
        # The tensors that the function reaches otherwise, by id, if it compares identities, and
        # which of them each argument has to be.
        self.handles: dict[int, Tensor] = {}
        self.same_handles: list[int | None] = []
        # The whole storages of arguments, which follow all other arguments.
        self.bases: list[BaseArgument] = []
        self.results: Results
        self.result_count = 0
        # Final gradients: (tensor or index of an argument; an Output, another tensor, or None).
        self.grads: list[tuple[Any, Any]] = []
        # The backward graph, the indices of differentiable results, and the arguments (by index)
        # and captured leaves they are differentiated by.
        self.derivative: Derivative | None = None
        self.differentiable: list[int] = []
        self.targets: tuple[list[int], list[Tensor]] = ([], [])
        # The results that require grad but whose graph was freed: (index, node's name, type,
        # location).
        self.freed: list[tuple[int, str, Any, Any]] = []
        self.guards: Guards
        # The places that the call gives other values. Their former tensors follow the arguments of
        # the call; their values are the second part of the results.
        self.effects: Effects | None = None

    @property
    def output_count(self) -> int:
        """The number of outputs without the residuals."""
        new_grads = sum(isinstance(grad, Output) for _, grad in self.grads)
        return self.result_count + len(self.written) + len(self.overwritten) + new_grads


class Arguments(Protocol):
    """The tensors among the arguments of a call, and their types when it began."""

    tensors: list[Tensor]
    types: list[TensorType]
    key: Any


def capture(
    trace: Session, call: Arguments, result: Any, state: PythonState, numbers: NumberSlots,
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
    if state.drew_random_numbers():
        raise NotWholeError("random numbers of Python or NumPy are drawn")
    if state.changed_hooks():
        raise NotWholeError("a hook is registered or removed")
    if state.changed_filters():
        raise NotWholeError("the filters of warnings are changed")
    if state.changed_environment():
        raise NotWholeError("an environment variable is set")
    if calls is not None:
        refuse_calls(calls, trace)
    effects = effects_of(trace, state, numbers, installed)
    if effects is None:
        return _captured(trace, call, call.tensors, result, state, numbers)
    returned = result
    if effects.stores:
        result = result, effects.values()
    try:
        effects.restore()
        effects.refuse_kept_recorders(returned, installed)
        refuse_kept_numbers(trace, result, installed)
        unwatch(effects, state)
        tensors = [*call.tensors, *effects.tensors, *effects.drawn]
        found = _captured(trace, call, tensors, result, state, numbers)
    except NotWholeError:
        effects.repeat()
        raise
    effects.release(call.tensors, installed)
    found.effects = effects
    if len(trace.expressions.guards) > len(effects.calls):
        numbers.count_program(call.key)
    return found


def refuse_calls(calls: CallRecorder, trace: Session) -> None:
    """Raise if the impure calls of a session cannot be parts of a program."""
    calls.check()
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


def refuse_kept_numbers(trace: Session, result: Any, installed: Installed) -> None:
    """Raise if Python keeps a number of the trace that is no result of it."""
    known = {id(leaf) for leaf in flatten_records(result)[0]}
    known |= {id(number) for number in installed.all_numbers()}

    def leaks() -> bool:
        return any(id(number) not in known for number in trace.live_numbers())

    if leaks():
        gc.collect()
        if leaks():
            raise NotWholeError("Python keeps a number that the function computes")


def _captured(
    trace: Session, call: Arguments, arguments: Sequence[Tensor], result: Any, state: PythonState,
    numbers: NumberSlots,
) -> Captured:  # fmt: skip
    """The program with these tensors as arguments, and this result."""
    if state.shares_container(result):
        raise NotWholeError("a list or a dictionary that existed before the call is returned")
    if has_shared_container(result):
        raise NotWholeError("a list or a dictionary is returned or stored twice")
    made = state.made_by_the_call(result)
    if made is not None:
        raise NotWholeError(f"a {type(made).__name__} that the function makes is returned")
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
    found.guards.guard_memory(found.outside)
    state.release()
    return found


class _Capture:
    """Builds a :class:`Captured` from a session whose function has returned."""

    def __init__(
        self, trace: Session, arguments: Sequence[Tensor], result: Any, state: PythonState,
        whole_count: int,
    ) -> None:  # fmt: skip
        """The last ``whole_count`` arguments are whole storages of others."""
        self.trace = trace
        self.arguments = list(arguments)
        self.first_whole = len(self.arguments) - whole_count
        self.result = result
        self.state = state
        self.found = Captured()
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
        found.result_count = len(tensors)
        reached = {id(t._storage) for t in self.state.tensors}
        found.fixed = [
            (i, t._storage, address_of(t._value)) for i, t in enumerate(inputs)
            if id(t._storage) in reached
        ]  # fmt: skip
        if self.state.compares_identity:
            found.handles = {id(t): t for t in self.state.tensors}
            found.same_handles = [id(t) if id(t) in found.handles else None for t in inputs]
        grad_inputs = self.grad_inputs()
        found.arguments = len(inputs) + len(grad_inputs)
        outputs: list[Any] = [trace_value(trace, t) for t in tensors]
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
        forward = len(outputs)
        cotangents: list[Var] = []
        if all(after is before for _, before, after in trace.final_grads()):
            cotangents = self.trace_vjp(tensors, outputs)
        elif any(t.requires_grad and not is_freed(t._node) for t in tensors):
            raise NotWholeError("a result can be differentiated, and the function sets gradients")
        found.freed = [
            (i, t._node.name(), t._type, getattr(t._node, "location", None))
            for i, t in enumerate(tensors)
            if t.requires_grad and t._node is not None and i not in found.differentiable
        ]  # fmt: skip
        found.numbers = [(c, k, p) for c, k, p, _ in trace.numbers.values()]
        captures = [
            (var, tensor) for var, tensor in trace.captures
            if var not in self.renamed and var not in self.argument_vars
        ]  # fmt: skip
        for argument in inputs:
            trace.grads.pop(id(argument), None)
        found.guards = Guards(trace, captures, found.grad_inputs, self.state)
        number_vars = [n.tensor._value for *_, n in trace.numbers.values()]
        graph = trace.finish(outputs)
        of_grads = [var for var, _ in grad_inputs]
        outside = [(var, tensor) for var, tensor in captures if var not in of_grads]
        found.outside = [tensor for _, tensor in outside]
        pure = Graph(
            [*self.argument_vars, *of_grads, *number_vars, *(var for var, _ in outside),
             *cotangents], (), graph.equations, graph.outputs,
        )  # fmt: skip
        pure = pure.with_plain_inputs(len(self.argument_vars), self.renamed)
        # Dead equations of a gradient that could not be computed read no input of the graph.
        pure = pure.without_dead_code()
        if cotangents:
            pure, found.derivative = partition(pure, forward, cotangents, found.differentiable)
        found.graph = pure.without_dead_code()
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
        known |= {id(after._storage) for _, _, after in trace.final_grads() if after is not None}
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
        call has another tensor there; those that share memory with other captures stay captured."""
        trace, found = self.trace, self.found
        captures: dict[int, list[tuple[Var, Tensor]]] = {}
        for var, tensor in trace.captures:
            captures.setdefault(id(tensor._storage), []).append((var, tensor))
        own = {id(argument) for argument in self.arguments}
        grad_inputs: list[tuple[Var, Tensor]] = []
        if trace.differentiates_outside:
            raise NotWholeError("what was computed before the call is differentiated by it")
        for owner, grad in trace.grads.values():
            if grad is None:
                continue
            is_read = id(grad._storage) in captures
            if (id(owner) in own and is_read) or id(grad._storage) in self.of_arguments:
                raise NotWholeError("a gradient is an argument, or that of an argument")
            sharing = captures.pop(id(grad._storage), [])
            if all(
                _is_whole(var, tensor) and tensor._type is grad._type for var, tensor in sharing
            ):
                grad_inputs += [(var, grad) for var, _ in sharing]
                found.grad_inputs += [owner] * len(sharing)
        return grad_inputs

    def note_grads(self, outputs: list[Any]) -> None:
        """Gradients that the call leaves in ``.grad`` become outputs."""
        found, trace = self.found, self.trace
        numbers = {id(argument): index for index, argument in enumerate(self.arguments)}
        for tensor, before, after in trace.final_grads():
            if after is before:
                continue
            owner: Any = numbers.get(id(tensor), tensor)
            if after is not None and isinstance(after._storage.value, Var):
                found.grads.append((owner, Output(len(outputs))))
                outputs.append(trace_value(trace, after))
            else:
                found.grads.append((owner, after))

    def trace_vjp(self, tensors: list[Tensor], outputs: list[Any]) -> list[Var]:
        """Extend the trace to the joint graph with the gradients of the results, if any is
        differentiable; returns the cotangents."""
        found, trace, inputs = self.found, self.trace, self.arguments

        def vjp(chosen: list[int]) -> Any:
            results, directions = [tensors[i] for i in chosen], [given[i] for i in chosen]
            return grad_up_to(results, targets, directions)

        differentiable = [i for i, t in enumerate(tensors) if t.requires_grad]
        own = [i for i, t in enumerate(inputs) if t.requires_grad]
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
        try:
            grads = vjp(differentiable)
        except GradientError:  # the function has differentiated some of its results itself
            differentiable = [i for i in differentiable if _can(lambda i=i: vjp([i]))]  # type: ignore[misc]
            if not differentiable:
                return []
            grads = vjp(differentiable)
        found.differentiable = differentiable
        found.targets = (own, leaves)
        outputs += [None if g is None else trace_value(trace, g) for g in grads]
        return [given[i]._value for i in differentiable]


def _can(act: Callable[[], Any]) -> bool:
    try:
        act()
    except GradientError:
        return False
    return True


def _is_whole(var: Var, tensor: Tensor) -> bool:
    return tensor._view is None and var.layout.flags.c_contiguous


def reachable_tensors(roots: Sequence[Any]) -> set[int]:
    """The ids of tensors that the histories of some tensors reference."""
    found: set[int] = set()
    seen: set[int] = set()
    stack: list[Any] = list(roots)
    while stack:
        held = stack.pop()
        if held is None or id(held) in seen:
            continue
        seen.add(id(held))
        if isinstance(held, Tensor):
            found.add(id(held))
            stack += (held._node, held._grad, *held.__dict__.values())
            if held._view is not None:
                stack += (held._view.base, held._view.from_no_grad)
        elif isinstance(held, GraphNode):
            stack += held.parents
            stack += _held_by_node(held)
        elif isinstance(held, FunctionType):
            stack += (cell.cell_contents for cell in held.__closure__ or ())
        elif isinstance(held, (list, tuple, set)):
            stack += held
        elif isinstance(held, dict):
            stack += held.values()
    return found


def nodes_behind(root: GraphNode | None) -> Iterator[GraphNode]:
    """A node and those that a backward pass from it may run, leaves excluded."""
    stack, seen = [root], set()
    while stack:
        node = stack.pop()
        if node is None or node.seq in seen or isinstance(node, Leaf):
            continue
        seen.add(node.seq)
        yield node
        stack += getattr(node, "parents", ())


def is_freed(root: GraphNode | None) -> bool:
    """Whether a backward pass from a node would need what another one has freed."""
    for node in nodes_behind(root):
        context = getattr(node, "ctx", None)  # of a custom function
        saved = getattr(node, "saved", ()) if context is None else getattr(context, "_saved", ())
        if saved is None or isinstance(node, FreedNode):
            return True
    return False


def runs_hooks(root: GraphNode | None) -> bool:
    """Whether a backward pass from a node calls hooks of the user's on the way to the leaves: they
    may have effects, which only the pass itself may have."""
    for node in nodes_behind(root):
        hooks = node.hooks
        tables = () if hooks is None else (*hooks.on_result.values(), hooks.before, hooks.after)
        if any(not _is_ours(hook) for table in tables for hook in table.values()):
            return True
        if getattr(getattr(node, "cls", None), "calls_hooks", False):
            return True
    return False


def _is_ours(hook: Any) -> bool:
    return str(getattr(hook, "__module__", "")).startswith("evergrad.")


def _held_by_node(node: GraphNode) -> list[Any]:
    held: list[Any] = []
    if node.hooks is not None:
        held += (node.hooks.on_result, node.hooks.before, node.hooks.after)
    held += (
        entry.packed for entry in getattr(node, "saved", None) or () if entry.__class__ is Packed
    )
    ctx = getattr(node, "ctx", None)
    if ctx is not None:
        held.append(vars(ctx))
    return held


def read_number(container: Any, key: Any, part: int | None) -> float:
    return read_source((container, key, part))
