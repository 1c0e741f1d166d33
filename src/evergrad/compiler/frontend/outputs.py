"""Outputs of a traced function: which ones the program computes, and which alias an argument, a
captured tensor or a gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

from evergrad.compiler.frontend.session import NotWholeError
from evergrad.core.bind import bind
from evergrad.core.functionalize import FunctionalizingTrace, SymbolicNumber
from evergrad.core.node import Leaf
from evergrad.core.op import Op
from evergrad.core.python_numbers import DeferredNumber, PythonNumber
from evergrad.core.records import children_with_records, flatten_records
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor, detached, on_storage
from evergrad.core.trace import Var
from evergrad.core.tree import TreeSpec, tree_unflatten
from evergrad.core.views import ViewOp, viewable
from evergrad.ops.rows.movement.strided import AS_STRIDED
from evergrad.ops.rows.movement.views import RESHAPE, permute, put_back
from evergrad.ops.rows.random.draws import memory_order

# Maps the arguments and the computed results of a call to a tensor.
_Source = Callable[[Sequence[Tensor], Sequence[Tensor]], Tensor]


class Output:
    """A result that is an output of the graph, by index, as a tensor or a Python number."""

    __slots__ = ("index", "is_number")

    def __init__(self, index: int, is_number: bool = False) -> None:
        self.index = index
        self.is_number = is_number

    def find(self, arguments: Sequence[Tensor], computed: Sequence[Tensor]) -> Any:
        found = computed[self.index]
        return found.item() if self.is_number else found


class Evaluated:
    """A result that is a number of Python state, or computed from such."""

    __slots__ = ("index", "table")

    def __init__(self, number: PythonNumber) -> None:
        self.table = number.table
        self.index = self.table.add(number)

    def find(self, arguments: Sequence[Tensor], computed: Sequence[Tensor]) -> Any:
        return self.table[self.index]


class Alias:
    """A result that shares the storage of an existing tensor: the tensor itself, or a view."""

    __slots__ = ("chain", "is_detached", "source")

    def __init__(
        self, source: _Source, chain: tuple[ViewOp, ...] = (), is_detached: bool = False
    ) -> None:
        self.source = source
        self.chain = chain
        self.is_detached = is_detached

    def find(self, arguments: Sequence[Tensor], computed: Sequence[Tensor]) -> Tensor:
        tensor = self.source(arguments, computed)
        if self.is_detached:
            tensor = detached(tensor)
        for op, attrs in self.chain:
            if not _is_viewable(tensor._value, op, attrs):
                tensor = tensor.contiguous()
            tensor = bind(op, tensor, **attrs)
        return tensor


def _is_viewable(array: Any, op: Op, attrs: dict[str, Any]) -> bool:
    """Whether a view traced on a contiguous tensor can be taken of this array."""
    if op is RESHAPE:
        return viewable(array, attrs["shape"])
    return op is not AS_STRIDED or bool(array.flags.c_contiguous)


class Form(Enum):
    """Common structures of results: one computed tensor, a tuple of them, or anything else."""

    ONE = auto()
    TUPLE = auto()
    OTHER = auto()


class Results:
    """The results of a traced function; ``tensors`` are those that the program computes."""

    def __init__(self, trace: FunctionalizingTrace, inputs: Sequence[Tensor], result: Any) -> None:
        self.leaves, self.spec = flatten_records(result)
        for leaf in self.leaves:
            _refuse_tracers_in(leaf)
        self.tensors: list[Tensor] = []
        sources = _Sources(trace, inputs)
        given = [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]
        made = {id(t): sources.alias_of(t) for t in given}
        computed = [t for t in given if made[id(t)] is None]
        whole = {id(t._storage): t for t in computed if t._view is None}
        found: dict[int, Any] = {key: alias for key, alias in made.items() if alias is not None}
        for tensor in computed:
            for part in (whole.get(id(tensor._storage), tensor), tensor):  # a view after its base
                if id(part) not in found:
                    found[id(part)] = self._output(part, whole.get(id(part._storage)), found)
        for index, leaf in enumerate(self.leaves):
            if isinstance(leaf, Tensor):
                self.leaves[index] = found[id(leaf)]
            elif type(leaf) is PythonNumber:
                self.leaves[index] = Evaluated(leaf)
            elif type(leaf) in (SymbolicNumber, DeferredNumber):
                self.leaves[index] = Output(len(self.tensors), is_number=True)
                self.tensors.append(leaf.tensor)
        self.form = _form_of(self.leaves, self.spec)

    def _output(self, tensor: Tensor, whole: Tensor | None, found: dict[int, Any]) -> Any:
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

    def assemble(self, computed: list[Any], arguments: Sequence[Tensor]) -> Any:
        """The results of a call in the function's structure, from arguments and computed
        tensors."""
        if self.form is Form.ONE:
            return computed[0]
        if self.form is Form.TUPLE:
            return tuple(computed)
        made: dict[int, Any] = {}
        for leaf in self.leaves:
            if isinstance(leaf, (Output, Alias, Evaluated)) and id(leaf) not in made:
                made[id(leaf)] = leaf.find(arguments, computed)
        return tree_unflatten([made.get(id(leaf), leaf) for leaf in self.leaves], self.spec)


def _refuse_tracers_in(leaf: Any) -> None:
    """Raise for an object that holds traced tensors: the program could not make another one."""
    if isinstance(leaf, Tensor) or type(leaf) in (PythonNumber, DeferredNumber):
        return
    held = getattr(leaf, "__dict__", None)
    if isinstance(held, dict) and any(
        isinstance(v, Tensor) and isinstance(v._value, Var) for v in held.values()
    ):
        raise NotWholeError(f"a {type(leaf).__name__} that holds computed tensors is returned")


def _form_of(leaves: Sequence[Any], spec: TreeSpec) -> Form:
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

    def __init__(self, trace: FunctionalizingTrace, inputs: Sequence[Tensor]) -> None:
        self.trace = trace
        self.inputs = inputs
        self.indices = {id(t._storage): index for index, t in enumerate(inputs)}
        grads = [(owner, after) for owner, _, after in trace.final_grads() if after is not None]
        self.grads = {id(grad._storage): pair for pair in grads if (grad := pair[1])._view is None}

    def alias_of(self, tensor: Tensor) -> Alias | None:
        """The alias that a result is; ``None`` if it has to be computed."""
        storage = tensor._storage
        owner, grad = self.grads.get(id(storage), (None, None))
        if owner is not None:
            return _alias(lambda arguments, computed: owner._grad, tensor, grad)  # type: ignore[arg-type,return-value]
        has_history = tensor.requires_grad and not isinstance(tensor._node, Leaf)
        if has_history and self.is_written(storage):
            return None  # the write has a history, which the captured tensor does not get
        index = self.index_of(tensor)
        if index is not None:
            argument = self.inputs[index]
            view = argument._view
            prefix = () if view is None else view.chain
            if tensor is not argument and _chain_of(tensor)[: len(prefix)] != prefix:
                raise NotWholeError("a result is another view of an argument's memory")
            return _alias(lambda arguments, computed: arguments[index], tensor, argument)
        if id(storage) in self.trace.local or self.is_symbolic(storage):
            return None
        return self.alias_of_outside(tensor)

    def index_of(self, tensor: Tensor) -> int | None:
        """The argument that a result is, or is a view of."""
        for index, argument in enumerate(self.inputs):
            if argument is tensor:
                return index
        return self.indices.get(id(tensor._storage))

    def alias_of_outside(self, tensor: Tensor) -> Alias | None:
        if not isinstance(tensor._value, Var):
            return Alias(lambda arguments, computed: tensor)
        view = tensor._view
        if view is None:
            return None
        base, storage = view.base, tensor._storage
        if base is None:
            return _view_of(lambda arguments, computed: _whole(storage), tensor)
        if base._view is not None or isinstance(base._value, Var):
            return None
        return _view_of(lambda arguments, computed: base, tensor)

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


def _view_of(source: _Source, tensor: Tensor, skipped: int = 0) -> Alias:
    """The view of a source that a symbolic tensor is of its storage; the source itself is a view by
    the first ``skipped`` ops."""
    view = tensor._view
    if view is None:
        return Alias(source, (), is_detached=True)
    return Alias(source, view.chain[skipped:], is_detached=view.base is None)


def _whole(storage: Storage) -> Tensor:
    return on_storage(storage.value, storage.type, storage, None)


def has_shared_container(result: Any) -> bool:
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
