"""Selective checkpointing: a policy decides op by op what a checkpoint keeps.

The two contexts intercept the ops of the two runs of a checkpointed function. In the first, a
result that the policy wants is kept. In the second run such an op is not evaluated: the kept
result stands in its place, also if backward runs again. The arguments that its node has saved are
residuals of the checkpoint like others. The graph of the second run is never differentiated, so
that a stand-in needs a node only to say that it requires gradients.

Ops that draw random numbers are always evaluated again, or later draws would be others.
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from evergrad.core.op import TABLE
from evergrad.core.recording import record
from evergrad.core.row_facts import Operator, aten_name
from evergrad.core.state import STATE, Hooks, using
from evergrad.core.tensor import Tensor, current_node, detached
from evergrad.core.tree import tree_leaves, tree_map_only
from evergrad.extension import ExtensionPoint

if TYPE_CHECKING:
    from evergrad.core.types import Args

_aten_operator: ExtensionPoint[[str], object] = ExtensionPoint("aten_operator")


class CheckpointPolicy(enum.Enum):
    """What a policy may say about an operation inside of a checkpoint."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3


class SelectiveCheckpointContext:
    """What a policy gets to know beside the operation: which of the two runs it is."""

    def __init__(self, *, is_recompute: bool, op_output: object = None) -> None:
        self.is_recompute = is_recompute
        self.op_output = op_output


Policy = Callable[..., "CheckpointPolicy | bool"]


def operator_of(op: Operator, args: tuple[object, ...]) -> Any:
    """The member of ``torch.ops.aten`` that PyTorch evaluates for a row or composite."""
    return _aten_operator(aten_name(op, [a.ndim for a in args if isinstance(a, Tensor)]))


class _Kept:
    """The result of an op, with the versions of its storages, and which of the arguments its node
    has saved, in order."""

    def __init__(self, result: object, saved: list[int]) -> None:
        self.result = tree_map_only(Tensor, detached, result)
        self.saved = saved
        tensors = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
        self.versions = [(t._storage, t._storage.version) for t in tensors]
        self.has_node = [current_node(t) is not None for t in tensors]

    def stand_in(self, operator: object, args: Args, may_change: bool) -> object:
        """The result again without its computation; its node's residuals are packed again."""
        if not may_change and any(s.version != version for s, version in self.versions):
            raise RuntimeError(
                f"Tensor cached during selective activation checkpoint has been mutated: the "
                f"result of {operator} was written in place after it was kept.\n"
                "  fix: use the out-of-place form, or do not keep this operation."
            )
        hooks = STATE.get().saved_hooks
        if hooks is not None:
            for number in self.saved:
                hooks[0](detached(args[number]))
        with_node = [a for a in args if isinstance(a, Tensor) and current_node(a) is not None]
        flags = iter(self.has_node)

        def attach(tensor: Tensor) -> Tensor:
            made = detached(tensor)
            if next(flags) and with_node:
                _give_node(made, with_node[0])
            return made

        return tree_map_only(Tensor, attach, self.result)


def _sorting(args: tuple[object, ...], hooks: Hooks) -> tuple[Hooks, list[int]]:
    """Hooks that give residuals which are arguments to the checkpoint's hooks, and keep others
    (the result, which is kept anyway, and what a kernel has left for its derivative); and the list
    of the former."""
    pack, unpack = hooks
    saved: list[int] = []

    def pack_arguments(tensor: Tensor) -> object:
        for number, arg in enumerate(args):
            if isinstance(arg, Tensor) and arg._value is tensor._value:
                saved.append(number)
                return unpack, pack(tensor)
        return None, tensor

    def unpack_all(entry: Any) -> object:
        own, value = entry
        return value if own is None else own(value)

    return (pack_arguments, unpack_all), saved


def _give_node(tensor: Tensor, parent: Tensor) -> None:
    """Let a tensor require gradients without being a leaf, by a node that saves nothing."""
    op, types = TABLE["neg"], (parent._type,)
    specialization = op.specializations.get(types) or op.resolve(types, types, {})
    record(STATE.get(), specialization, (parent,), (tensor,))


class _Selection:
    """The policy and what it has kept, shared by the two contexts of one call."""

    def __init__(self, policy: Policy, may_change: bool) -> None:
        self.policy = policy
        self.may_change = may_change
        self.kept: dict[object, list[_Kept]] = defaultdict(list)
        # How many results of each operator the running second run has used.
        self.used: Counter[Any] = Counter()

    def keeps(self, operator: object, args: tuple[object, ...], is_recompute: bool) -> bool:
        context = SelectiveCheckpointContext(is_recompute=is_recompute)
        found = self.policy(context, operator, *args)
        if isinstance(found, bool):
            return found
        return found in (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)

    def first(self, op: Operator, args: Args, evaluate: Callable[[], Any]) -> Any:
        operator = operator_of(op, args)
        if op.random or not self.keeps(operator, args, False):
            return evaluate()
        hooks = STATE.get().saved_hooks
        saved: list[int] = []
        if hooks is not None:
            hooks, saved = _sorting(args, hooks)
        with using(interceptor=None, saved_hooks=hooks):
            result = evaluate()
        self.kept[operator].append(_Kept(result, saved))
        return result

    def second(self, op: Operator, args: Args, evaluate: Callable[[], object]) -> object:
        operator = operator_of(op, args)
        if op.random or not self.keeps(operator, args, True):
            return evaluate()
        number = self.used[operator]
        if number >= len(self.kept[operator]):
            raise RuntimeError(f"{operator} encountered during backward, but not found in storage")
        self.used[operator] += 1
        return self.kept[operator][number].stand_in(operator, args, self.may_change)


class _Intercepting(AbstractContextManager[None]):
    """Has the ops of one run go through a selection."""

    def __init__(self, selection: _Selection, is_recompute: bool) -> None:
        self.selection, self.is_recompute = selection, is_recompute

    def __enter__(self) -> None:
        selection = self.selection
        if self.is_recompute:
            selection.used.clear()
        run = selection.second if self.is_recompute else selection.first
        self.mode = using(interceptor=run)
        self.mode.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.mode.__exit__(kind, error, traceback)


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Policy | Sequence[object], allow_cache_entry_mutation: bool = False
) -> tuple[_Intercepting, _Intercepting]:
    """Contexts for ``checkpoint(context_fn=)`` with a policy of what to keep.

    Args:
        policy_fn_or_list: a function ``(context, op, *args) -> CheckpointPolicy`` that is called
            for every op (views apart) with a member of ``torch.ops.aten``, or a list of the ops
            whose results are kept
        allow_cache_entry_mutation: use a kept result even if it was written in place since;
            default ``False``

    A compiled function decides by itself what is computed again, whatever the policy says: results
    are the same.

    >>> from evergrad.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
    >>> aten, called = eg._operators.aten, []
    >>> x, w = eg.ones(2, 3, requires_grad=True), eg.ones(3, 3, requires_grad=True)
    >>> contexts = lambda: create_selective_checkpoint_contexts([aten.mm.default])
    >>> y = checkpoint(lambda x: (x @ w).sin().sum(), x, context_fn=contexts)
    >>> y.backward()  # the product is kept, the sine computed again
    >>> x.grad.shape
    evergrad.Size([2, 3])
    """
    if isinstance(policy_fn_or_list, (list, tuple)):
        wanted = list(policy_fn_or_list)

        def policy(context: SelectiveCheckpointContext, op: object, *args: object) -> bool:
            return op in wanted
    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list  # type: ignore[assignment]
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    selection = _Selection(policy, allow_cache_entry_mutation)
    return _Intercepting(selection, False), _Intercepting(selection, True)
