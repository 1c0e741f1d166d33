"""Under which conditions a traced program may run again.

A condition is a question about the outside, the answer it had while tracing, and what it is about
(for a message). They are asked before every run, so the questions are few and cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from evergrad.core.lifting import LiftingTrace
from evergrad.core.node import Leaf
from evergrad.core.tensor import Tensor

Condition = tuple[Callable[[], Any], Any, str]

# Attributes of modules that are compared by value; others are the same object or not.
_PLAIN = (int, float, complex, str, tuple)
# Entries of an optimizer's group that are no options of its update.
_NO_OPTIONS = ("params", "param_names", "initial_lr")


def conditions_of(trace: LiftingTrace, fetched: Iterable[Tensor]) -> list[Condition]:
    """What a trace depends on besides the types of its arguments; gradients of ``fetched`` tensors
    are taken anew at each run."""
    read = [tensor for _, tensor in trace.captures]
    return [
        *trace.conditions,
        *_gradients(trace, {id(tensor) for tensor in fetched}),
        *_modules(trace),
        *_options(trace),
        _condition(partial(_moving, read), "whether a tensor requires a gradient"),
        _condition(partial(_hooks, read), "the hooks of a tensor"),
    ]


def _condition(question: Callable[[], Any], name: str) -> Condition:
    return question, question(), name


# -- tensors ------------------------------------------------------------------------------------


def _gradients(trace: LiftingTrace, fetched: set[int]) -> Iterator[Condition]:
    read = {id(tensor) for _, tensor in trace.captures}
    for tensor, before in trace.grads.values():
        kind = None if before is None else before._type
        yield partial(_kind_of_grad, tensor), kind, "whether a gradient exists"
        if id(before) in read and id(tensor) not in fetched:
            yield partial(_grad_is, tensor, before), True, "the memory of a gradient"


def _kind_of_grad(tensor: Tensor) -> Any:
    return None if tensor._grad is None else tensor._grad._type


def _grad_is(tensor: Tensor, grad: Tensor | None) -> bool:
    return tensor._grad is grad


def _moving(tensors: list[Tensor]) -> list[bool]:
    return [tensor._node is not None for tensor in tensors]


def _hooks(tensors: list[Tensor]) -> list[Any]:
    """What is called with the gradients of leaves."""
    found: list[Any] = []
    for tensor in tensors:
        leaf = tensor._node
        if not isinstance(leaf, Leaf):
            continue
        if leaf.accumulated:
            found += leaf.accumulated.values()
        if leaf.hooks is not None:
            tables = (*leaf.hooks.on_result.values(), leaf.hooks.before, leaf.hooks.after)
            found += [hook for table in tables for hook in table.values()]
    return found


# -- modules ------------------------------------------------------------------------------------


def _modules(trace: LiftingTrace) -> Iterator[Condition]:
    for module in trace.modules.values():
        kind = type(module).__name__
        yield _condition(partial(_mode, module), f"the mode of a {kind} (train or eval)")
        yield (
            partial(_has_still, module, _parts(module)), True,
            f"the attributes, parameters, submodules or hooks of a {kind}",
        )  # fmt: skip


def _mode(module: Any) -> bool:
    return bool(module.__dict__["training"])


def _parts(module: Any) -> list[Any]:
    """What a module calls and reads."""
    own = module.__dict__
    parts = [*own.values(), *own["_parameters"].values()]
    parts += own["_buffers"].values()
    parts += own["_modules"].values()
    for part in own.values():
        if isinstance(part, list):
            parts += part
    hooks = own["_hooks"]
    if hooks is not None:
        for table in (hooks.forward_pre, hooks.forward, hooks.backward_pre, hooks.backward):
            parts += table.values()
    return parts


def _has_still(module: Any, parts: list[Any]) -> bool:
    now = _parts(module)
    return len(now) == len(parts) and all(map(_is_same, now, parts))


def _is_same(now: Any, then: Any) -> bool:
    return now is then or (type(now) is type(then) and isinstance(now, _PLAIN) and now == then)


# -- optimizers ---------------------------------------------------------------------------------


def _options(trace: LiftingTrace) -> Iterator[Condition]:
    """Of options read at run time, whether they are zero; all others stay as they are."""
    dynamic = {(id(container), key) for container, key, *_ in trace.numbers.values()}
    for group in trace.groups.values():
        for key in group:
            if key not in _NO_OPTIONS:
                ask = _zeros if (id(group), key) in dynamic else _told_apart
                yield _condition(partial(ask, group, key), f"the option {key}")


def _told_apart(group: dict[str, Any], key: str) -> Any:
    """An option as something that can be compared: a tensor is only equal to itself."""
    value = group.get(key)
    return id(value) if isinstance(value, Tensor) else value


def _zeros(group: dict[str, Any], key: str) -> Any:
    value = group[key]
    return tuple([v == 0 for v in value]) if isinstance(value, tuple) else value == 0
