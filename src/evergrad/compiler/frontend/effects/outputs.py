"""Outputs of a traced function: which ones the program computes, and which alias an argument, a
captured tensor or a gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend.effects.result_objects import ObjectGraph
from evergrad.compiler.frontend.recording.append_recorder import AppendRecorder
from evergrad.compiler.frontend.session import NotWholeError, Session
from evergrad.core.bind import bind
from evergrad.core.deferred_arrays import DeferredArray
from evergrad.core.functionalize import SymbolicNumber
from evergrad.core.node import GraphNode, Leaf
from evergrad.core.op import Op
from evergrad.core.python_numbers import DeferredNumber, PythonNumber
from evergrad.core.records import children_with_records, flatten_records
from evergrad.core.state import STATE, using
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor, detached, on_storage
from evergrad.core.trace import Var
from evergrad.core.tree import TreeSpec, tree_unflatten
from evergrad.core.views import ViewOp, base_of, viewable
from evergrad.ops.rows.movement.strided import AS_STRIDED
from evergrad.ops.rows.movement.views import RESHAPE, permute, put_back
from evergrad.ops.rows.random.draws import memory_order

if TYPE_CHECKING:
    from evergrad.core.python_numbers import Expressions
    from evergrad.core.types import Array, Attrs, Tree

# Maps the arguments and the computed results of a call to a tensor.
_Source = Callable[[Sequence[Tensor], Sequence[Tensor]], Tensor]


class Output:
    """A result that is an output of the graph, by index, as a tensor or a Python number."""

    __slots__ = ("index", "is_number")

    def __init__(self, index: int, is_number: bool = False) -> None:
        self.index: int = index
        self.is_number: bool = is_number

    def find(self, arguments: Sequence[Tensor], computed: Sequence[Tensor]) -> Tensor:
        found = computed[self.index]
        return found.item() if self.is_number else found


class Evaluated:
    """A result that is a number of Python state, or computed from such."""

    __slots__ = ("index", "table")

    def __init__(self, number: PythonNumber) -> None:
        self.table: Expressions = number.table
        self.index: int = self.table.add(number)

    def find(self, arguments: Sequence[Tensor], computed: Sequence[Tensor]) -> object:
        self.table.computed = computed
        return self.table[self.index]


class MadeLeaf:
    """A result that is a leaf which the call has made: it requires grad, without a history."""

    __slots__ = ("held",)

    def __init__(self, held: Output | Alias) -> None:
        self.held: Output | Alias = held

    @property
    def index(self) -> int:
        return self.held.index  # type: ignore[union-attr]

    def find(self, arguments: Sequence[Tensor], computed: Sequence[Tensor]) -> object:
        return self.held.find(arguments, computed).requires_grad_()


class ArrayOf:
    """A result that is the NumPy array on the memory of another one."""

    __slots__ = ("held",)

    def __init__(self, held: Output | Alias) -> None:
        self.held: Output | Alias = held

    def find(self, arguments: Sequence[Tensor], computed: Sequence[Tensor]) -> object:
        return self.held.find(arguments, computed).numpy()


class Alias:
    """A result that shares the storage of an existing tensor: the tensor itself, or a view, which
    may be one that was made without recording."""

    __slots__ = ("chain", "is_detached", "is_unrecorded", "source")

    def __init__(
        self, source: _Source, chain: tuple[ViewOp, ...] = (), is_detached: bool = False,
        is_unrecorded: bool = False,
    ) -> None:  # fmt: skip
        self.source: _Source = source
        self.chain: tuple[ViewOp, ...] = chain
        self.is_detached: bool = is_detached
        self.is_unrecorded: bool = is_unrecorded

    def find(self, arguments: Sequence[Tensor], computed: Sequence[Tensor]) -> Tensor:
        tensor = self.source(arguments, computed)
        if self.is_unrecorded and STATE.get().grad:
            with using(grad=False):
                return self.viewed(tensor)
        return self.viewed(detached(tensor) if self.is_detached else tensor)

    def viewed(self, tensor: Tensor) -> Tensor:
        for op, attrs in self.chain:
            if not _is_viewable(tensor._value, op, attrs):
                tensor = tensor.contiguous()
            tensor = bind(op, tensor, **attrs)
        return tensor


def _is_viewable(array: Array, op: Op, attrs: Attrs) -> bool:
    """Whether a view traced on a contiguous tensor can be taken of this array."""
    if op is RESHAPE:
        return viewable(array, attrs["shape"])
    return op is not AS_STRIDED or bool(array.flags.c_contiguous)


# What stands among the leaves of results for what a run computes.
COMPUTED = (Output, Alias, Evaluated, MadeLeaf, ArrayOf)


def is_made_leaf(node: GraphNode | None, trace: Session) -> bool:
    """Whether a node is that of a leaf which the traced call has made."""
    if not isinstance(node, Leaf) or node.seq < trace.first_node:
        return False
    owner = node.owner()
    return owner is not None and (trace.flags is None or not trace.flags.has(owner))


class Form(Enum):
    """Common structures of results: one computed tensor, a tuple of them, or anything else."""

    ONE = auto()
    TUPLE = auto()
    OTHER = auto()


class Results:
    """The results of a traced function; ``tensors`` are those that the program computes."""

    def __init__(self, trace: Session, inputs: Sequence[Tensor], result: object) -> None:
        self.leaves, self.spec = flatten_records(result)
        for leaf in self.leaves:
            _refuse_tracers_in(leaf)
        self.tensors: list[Tensor] = []
        # What makes the objects of a run of its leaves, if they are no tree of new containers; and
        # the arguments of the call that runs, where these are among them.
        self.objects: ObjectGraph | None = None
        self.given: Tree = None
        sources = _Sources(trace, inputs)
        given = [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]
        given += [leaf.tensor for leaf in self.leaves if type(leaf) is DeferredArray]
        made = {id(t): sources.alias_of(t) for t in given}
        computed = [t for t in given if made[id(t)] is None]
        whole = {id(t._storage): t for t in computed if t._view is None}
        found: dict[int, Any] = {key: alias for key, alias in made.items() if alias is not None}
        for tensor in computed:
            for part in (whole.get(id(tensor._storage), tensor), tensor):  # a view after its base
                if id(part) not in found:
                    found[id(part)] = self._output(part, whole.get(id(part._storage)), found)
        leaves = {id(t) for t in given if is_made_leaf(t._node, trace)}
        found.update((key, MadeLeaf(found[key])) for key in leaves)
        for index, leaf in enumerate(self.leaves):
            if isinstance(leaf, Tensor):
                self.leaves[index] = found[id(leaf)]
            elif type(leaf) is PythonNumber:
                self.leaves[index] = Evaluated(leaf)
            elif type(leaf) is DeferredArray:
                self.leaves[index] = ArrayOf(found[id(leaf.tensor)])
            elif type(leaf) in (SymbolicNumber, DeferredNumber):
                self.leaves[index] = Output(len(self.tensors), is_number=True)
                self.tensors.append(leaf.tensor)
        self.form: Form = _form_of(self.leaves, self.spec)

    def _output(
        self, tensor: Tensor, whole: Tensor | None, found: dict[int, Any]
    ) -> Alias | Output:
        if whole is not None and whole is not tensor:
            index = found[id(whole)].index
            return _view_of(lambda arguments, computed: computed[index], tensor)
        index, order = len(self.tensors), memory_order(tensor)
        if order == sorted(order):
            self.tensors.append(tensor)
            return Output(index)
        # A transposed view of a base that is no result itself: computed contiguous, then permuted.
        self.tensors.append(permute(tensor, order))
        return Alias(lambda arguments, computed: put_back(computed[index], order))

    def release_tensors(self) -> list[Tensor]:
        """Return the symbolic tensors and drop the references to them: their trace ends."""
        tensors, self.tensors = self.tensors, []
        return tensors

    def assemble(self, computed: list[Tensor], arguments: Sequence[Tensor]) -> object:
        """The results of a call in the function's structure, from arguments and computed
        tensors."""
        if self.form is Form.ONE:
            return computed[0]
        if self.form is Form.TUPLE:
            return tuple(computed)
        made: dict[int, Any] = {}
        for leaf in self.leaves:
            if isinstance(leaf, COMPUTED) and id(leaf) not in made:
                made[id(leaf)] = leaf.find(arguments, computed)
        leaves = [made.get(id(leaf), leaf) for leaf in self.leaves]
        if self.objects is not None:
            return self.objects.build(leaves, self.given)
        return tree_unflatten(leaves, self.spec)

    @property
    def needs_arguments(self) -> bool:
        """Whether an object among the arguments is a result."""
        return self.objects is not None and self.objects.needs_arguments


def _refuse_tracers_in(leaf: object) -> None:
    """Raise for an object that holds traced tensors: the program could not make another one."""
    if isinstance(leaf, Tensor) or type(leaf) in (PythonNumber, DeferredNumber):
        return
    held = getattr(leaf, "__dict__", None)
    if isinstance(held, dict) and any(
        isinstance(v, Tensor) and isinstance(v._value, Var) for v in held.values()
    ):
        raise NotWholeError(f"a {type(leaf).__name__} that holds computed tensors is returned")


def _form_of(leaves: Sequence[object], spec: TreeSpec) -> Form:
    """Whether the results are exactly the computed tensors, in order."""
    for index, leaf in enumerate(leaves):
        if not isinstance(leaf, Output) or leaf.is_number or leaf.index != index:
            return Form.OTHER
    if spec.is_leaf():
        return Form.ONE
    is_flat = spec.kind is tuple and all(child.is_leaf() for child in spec.children)
    return Form.TUPLE if is_flat else Form.OTHER


class _Sources:
    """The tensors whose storage results may share."""

    def __init__(self, trace: Session, inputs: Sequence[Tensor]) -> None:
        self.trace = trace
        self.inputs = inputs
        self.indices: dict[int, list[int]] = {}
        for index, tensor in enumerate(inputs):
            self.indices.setdefault(id(tensor._storage), []).append(index)
        grads = [(owner, after) for owner, _, after in trace.final_grads() if after is not None]
        self.grads = {id(grad._storage): pair for pair in grads if (grad := pair[1])._view is None}

    def alias_of(self, tensor: Tensor) -> Alias | None:
        """The alias that a result is; ``None`` if it has to be computed."""
        storage = tensor._storage
        owner, grad = self.grads.get(id(storage), (None, None))
        if owner is not None and grad is not None:
            return _alias(self.gradient_of(owner), tensor, grad)
        has_history = tensor.requires_grad and not isinstance(tensor._node, Leaf)
        if has_history and self.is_written(storage):
            return None  # the write has a history, which the captured tensor does not get
        index = self.index_of(tensor)
        if index is not None:
            argument = self.inputs[index]
            source = lambda arguments, computed: arguments[index]
            if tensor is argument:
                return Alias(source)
            base = self.base_followed(tensor)
            is_detached = base is None or self.is_made_by_the_call(base)
            return _view_of(source, tensor, len(_chain_of(argument)), is_detached)
        if id(storage) in self.trace.local or self.is_symbolic(storage):
            return None
        if id(storage) in self.indices and not self.is_of_state(tensor):
            raise NotWholeError("a result is another view of an argument's memory")
        return self.alias_of_outside(tensor)

    def gradient_of(self, owner: Tensor) -> _Source:
        """The gradient that a run leaves at a tensor, or at the argument that it is."""
        for index, argument in enumerate(self.inputs):
            if argument is owner:
                return lambda arguments, computed: arguments[index]._grad  # type: ignore[return-value]
        return lambda arguments, computed: owner._grad  # type: ignore[return-value]

    def index_of(self, tensor: Tensor) -> int | None:
        """The argument that a result is, or is a view of. Handles on one memory may differ in
        whether they require grad; a view follows the one that it was made of."""
        for index, argument in enumerate(self.inputs):
            if argument is tensor:
                return index
        indices = self.indices.get(id(tensor._storage), ())
        if not indices or self.is_of_state(tensor):
            return None
        return next((i for i in indices if self.is_view_of(tensor, self.inputs[i])), None)

    def is_view_of(self, tensor: Tensor, argument: Tensor) -> bool:
        """Whether the view ops of a result give it from an argument, with its history."""
        prefix, view = _chain_of(argument), tensor._view
        if _chain_of(tensor)[: len(prefix)] != prefix:
            return False
        base = self.base_followed(tensor)
        if view is None or base is None:
            return True
        if self.is_made_by_the_call(base):  # of x.detach()
            return not tensor.requires_grad
        if view.from_no_grad is None and tensor.requires_grad is not argument.requires_grad:
            return False  # it was set in between
        of_argument = argument._view
        return base is argument or (of_argument is not None and base_of(of_argument) is base)

    def base_followed(self, tensor: Tensor) -> Tensor | None:
        """The argument, or else the first tensor, that views in a row were made of; ``None`` for
        what is no view, and for what was detached."""
        base = tensor
        while base._view is not None:
            view = base._view
            before = base_of(view) if view.from_no_grad is None else view.from_no_grad
            if before is None:
                break
            base = before
            if any(base is argument for argument in self.inputs):
                break
        return None if base is tensor else base

    def is_made_by_the_call(self, base: Tensor) -> bool:
        """Whether what a view was made of is a handle that the call has detached, and not an
        argument or what one is a view of."""
        views = [argument._view for argument in self.inputs]
        bases = [base_of(view) for view in views if view is not None]
        return not any(base is known for known in (*self.inputs, *bases))

    def is_of_state(self, tensor: Tensor) -> bool:
        """Whether a result is, or is a view of, a tensor that the function reaches otherwise than
        by its arguments, the same at each call."""
        base, flags = self.base_followed(tensor), self.trace.flags
        known = tensor if base is None else base
        if flags is None or any(known is argument for argument in self.inputs):
            return False
        return any(known is held for held, _ in flags.reached)

    def alias_of_outside(self, tensor: Tensor) -> Alias | None:
        if not isinstance(tensor._value, Var):
            return Alias(lambda arguments, computed: tensor)
        view, storage = tensor._view, tensor._storage
        base = tensor if view is None else view.base
        if base is None or self.is_set_as_data(base, storage):
            return _view_of(lambda arguments, computed: _whole(storage), tensor)
        if base._view is not None or isinstance(base._value, Var):
            return None
        return _view_of(lambda arguments, computed: base, tensor)

    def is_set_as_data(self, tensor: Tensor, storage: Storage) -> bool:
        """Whether ``.data`` was set to a tensor that the call has made, which has been on that
        memory since."""
        is_whole = tensor._view is None and tensor._storage is storage
        return is_whole and tensor._node is None and self.is_written(storage)

    def is_written(self, storage: Storage) -> bool:
        return id(storage) in self.trace.written

    def is_symbolic(self, storage: Storage) -> bool:
        """Whether a storage was made by the trace, and so has no memory."""
        return isinstance(storage.value, Var) and id(storage) not in self.trace.written


def _alias(source: _Source, tensor: Tensor, whole: Tensor) -> Alias:
    """A symbolic tensor relative to another on its storage: the same tensor, or a view."""
    return Alias(source) if tensor is whole else _view_of(source, tensor, len(_chain_of(whole)))


def _chain_of(tensor: Tensor) -> tuple[ViewOp, ...]:
    return () if tensor._view is None else tensor._view.chain


def _view_of(
    source: _Source, tensor: Tensor, skipped: int = 0, is_detached: bool = False
) -> Alias:  # fmt: skip
    """The view of a source that a symbolic tensor is of its storage; the source itself is a view by
    the first ``skipped`` ops."""
    view = tensor._view
    if view is None:
        return Alias(source, (), is_detached=True)
    is_unrecorded = view.from_no_grad is not None
    return Alias(source, view.chain[skipped:], is_detached or view.base is None, is_unrecorded)


def _whole(storage: Storage) -> Tensor:
    return on_storage(storage.value, storage.type, storage, None)


def has_shared_container(result: object) -> bool:
    """Whether a list, a dictionary or a record is reached twice in a tree."""
    seen: set[int] = set()
    waiting = [result]
    while waiting:
        tree = waiting.pop()
        found = children_with_records(tree)
        if found is None:
            continue
        if not isinstance(tree, tuple):
            if id(tree) in seen:
                return True
            seen.add(id(tree))
        waiting += found[1]
    return False


def has_recorder(result: object) -> bool:
    """Whether a container that was stood in for is in a tree."""
    if type(result) is AppendRecorder:
        return True
    found = children_with_records(result)
    return found is not None and any(map(has_recorder, found[1]))
