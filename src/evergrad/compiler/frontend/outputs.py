"""What a traced function gives: which of its results the program computes, and which are tensors
from elsewhere (an argument, an outside tensor, a gradient) or looks at such tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

from evergrad.core.bind import bind
from evergrad.core.functionalize import FunctionalizingTrace, SymbolicNumber
from evergrad.core.op import Op
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor, detached, on_storage
from evergrad.core.trace import Var
from evergrad.core.tree import TreeSpec, tree_flatten, tree_unflatten
from evergrad.core.views import ViewOp, viewable
from evergrad.ops.rows.movement.strided import AS_STRIDED
from evergrad.ops.rows.movement.views import RESHAPE, permute, put_back
from evergrad.ops.rows.random.draws import memory_order

# Given the arguments and the computed results of a call, one of them or another tensor.
_Source = Callable[[Sequence[Tensor], Sequence[Tensor]], Tensor]


class Output:
    """Where a result of the function is found among the outputs of the graph, and whether it is a
    tensor or a Python number."""

    __slots__ = ("is_number", "place")

    def __init__(self, place: int, is_number: bool = False) -> None:
        self.place = place
        self.is_number = is_number

    def find(self, arguments: Sequence[Tensor], computed: Sequence[Tensor]) -> Any:
        found = computed[self.place]
        return found.item() if self.is_number else found


class Alias:
    """A result that shares the memory of a tensor that is there: the tensor itself, or a view."""

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
            if not _can_look(tensor._value, op, attrs):
                tensor = tensor.contiguous()
            tensor = bind(op, tensor, **attrs)
        return tensor


def _can_look(array: Any, op: Op, attrs: dict[str, Any]) -> bool:
    """Whether a view that was taken of elements in order can be taken of these."""
    if op is RESHAPE:
        return viewable(array, attrs["shape"])
    return op is not AS_STRIDED or bool(array.flags.c_contiguous)


class Form(Enum):
    """The common forms of results: one computed tensor, a tuple of them, or something else."""

    ONE = auto()
    TUPLE = auto()
    OTHER = auto()


class Results:
    """The results of a traced function; ``tensors`` are those that the program computes."""

    def __init__(self, trace: FunctionalizingTrace, inputs: Sequence[Tensor], result: Any) -> None:
        self.leaves, self.spec = tree_flatten(result)
        self.tensors: list[Tensor] = []
        sources = _Sources(trace, inputs)
        given = [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]
        made = {id(t): sources.alias_of(t) for t in given}
        computed = [t for t in given if made[id(t)] is None]
        whole = {id(t._storage): t for t in computed if t._view is None}
        found: dict[int, Any] = {key: alias for key, alias in made.items() if alias is not None}
        for tensor in computed:
            for part in (whole.get(id(tensor._storage), tensor), tensor):  # a view after its whole
                if id(part) not in found:
                    found[id(part)] = self._output(part, whole.get(id(part._storage)), found)
        for place, leaf in enumerate(self.leaves):
            if isinstance(leaf, Tensor):
                self.leaves[place] = found[id(leaf)]
            elif isinstance(leaf, SymbolicNumber):
                self.leaves[place] = Output(len(self.tensors), is_number=True)
                self.tensors.append(leaf.tensor)
        self.form = _form_of(self.leaves, self.spec)

    def _output(self, tensor: Tensor, whole: Tensor | None, found: dict[int, Any]) -> Any:
        if whole is not None and whole is not tensor:
            place = found[id(whole)].place
            return _look(lambda arguments, computed: computed[place], tensor)
        place, order = len(self.tensors), memory_order(tensor)
        if order == sorted(order):
            self.tensors.append(tensor)
            return Output(place)
        # A look at a whole that is no result itself: computed as it lies, and turned afterwards.
        self.tensors.append(permute(tensor, order))
        return Alias(lambda arguments, computed: put_back(computed[place], order))

    def forget_tensors(self) -> list[Tensor]:
        """Gives the symbolic tensors and lets go of them: their trace ends."""
        tensors, self.tensors = self.tensors, []
        return tensors

    def put_together(self, computed: list[Any], arguments: Sequence[Tensor]) -> Any:
        """What the function gives, made of the arguments and of what the program has computed."""
        if self.form is Form.ONE:
            return computed[0]
        if self.form is Form.TUPLE:
            return tuple(computed)
        made: dict[int, Any] = {}
        for leaf in self.leaves:
            if isinstance(leaf, (Output, Alias)) and id(leaf) not in made:
                made[id(leaf)] = leaf.find(arguments, computed)
        return tree_unflatten([made.get(id(leaf), leaf) for leaf in self.leaves], self.spec)


def _form_of(leaves: Sequence[Any], spec: TreeSpec) -> Form:
    """Whether results are just what the program computes, in its order."""
    for place, leaf in enumerate(leaves):
        if not isinstance(leaf, Output) or leaf.is_number or leaf.place != place:
            return Form.OTHER
    if spec.is_leaf():
        return Form.ONE
    is_flat = spec.kind is tuple and all(child.is_leaf() for child in spec.children)
    return Form.TUPLE if is_flat else Form.OTHER


class _Sources:
    """The tensors whose memory results may share."""

    def __init__(self, trace: FunctionalizingTrace, inputs: Sequence[Tensor]) -> None:
        self.trace = trace
        self.inputs = inputs
        self.places = {id(t._storage): place for place, t in enumerate(inputs)}
        grads = [(owner, after) for owner, _, after in trace.final_grads() if after is not None]
        self.grads = {id(grad._storage): pair for pair in grads if (grad := pair[1])._view is None}

    def alias_of(self, tensor: Tensor) -> Alias | None:
        """How a result is found among what is there; ``None`` if it is to be computed."""
        storage = tensor._storage
        owner, grad = self.grads.get(id(storage), (None, None))
        if owner is not None:
            return _alias(lambda arguments, computed: owner._grad, tensor, grad)  # type: ignore[arg-type,return-value]
        if tensor.requires_grad and self.is_written(storage):
            return None  # what was written has a history, which the tensor outside does not get
        place = self.places.get(id(storage))
        if place is not None:
            return _alias(lambda arguments, computed: arguments[place], tensor, self.inputs[place])
        if id(storage) in self.trace.local or self.is_symbolic(storage):
            return None
        return self.alias_of_outside(tensor)

    def alias_of_outside(self, tensor: Tensor) -> Alias | None:
        if not isinstance(tensor._value, Var):
            return Alias(lambda arguments, computed: tensor)
        view = tensor._view
        if view is None:
            return None
        base, storage = view.base, tensor._storage
        if base is None:
            return _look(lambda arguments, computed: _whole(storage), tensor)
        if base._view is not None or isinstance(base._value, Var):
            return None
        return _look(lambda arguments, computed: base, tensor)

    def is_written(self, storage: Storage) -> bool:
        place = self.places.get(id(storage))
        if place is not None:
            return storage.value is not self.trace.inputs[place]
        return id(storage) in self.trace.written

    def is_symbolic(self, storage: Storage) -> bool:
        """Whether a storage was made by the trace, and so has no memory of its own."""
        return isinstance(storage.value, Var) and id(storage) not in self.trace.written


def _alias(source: _Source, tensor: Tensor, whole: Tensor) -> Alias:
    """A symbolic tensor as what it is to another on its storage: the same, or a look at it."""
    return Alias(source) if tensor is whole else _look(source, tensor)


def _look(source: _Source, tensor: Tensor) -> Alias:
    """A source seen as a symbolic tensor sees its storage."""
    view = tensor._view
    if view is None:
        return Alias(source, (), is_detached=True)
    return Alias(source, view.chain, is_detached=view.base is None)


def _whole(storage: Storage) -> Tensor:
    return on_storage(storage.value, storage.type, storage, None)
