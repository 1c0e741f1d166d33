"""Under which conditions a traced program may run again.

A condition is a question about the outside, the answer it had while tracing, and what it is about
(for a message). They hold before every run. Most of them need not be asked for that: changes of
modules, hooks and handles are counted (:mod:`evergrad.core.mutation_counter`), and of options,
lists and the state of optimizers it is enough to see that they have the same members as at the last
asking.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from evergrad.compiler.frontend.identity_guards import unchanged
from evergrad.compiler.frontend.python_guards import Places, Surroundings
from evergrad.core import dtypes
from evergrad.core.dtypes import get_default_dtype
from evergrad.core.functionalize import FunctionalizingTrace
from evergrad.core.mutation_counter import MUTATIONS
from evergrad.core.node import Leaf
from evergrad.core.rng.default_generator import default_generator
from evergrad.core.tensor import Tensor
from evergrad.extension import ExtensionPoint

_global_hooks: ExtensionPoint[[], Any] = ExtensionPoint("global_module_hooks")

Condition = tuple[Callable[[], Any], Any, str]

# Attributes of modules that are compared by value; others are the same object or not.
_PLAIN = (int, float, complex, str, tuple)
# Entries of an optimizer's group that are no options of its update.
_NO_OPTIONS = ("params", "param_names", "initial_lr")


class Conditions:
    """The conditions of one program. ``asked`` counts how often they had to be asked; as long as
    ``are_untouched`` says so, the options that are read at run time stay as they were then."""

    def __init__(
        self, trace: FunctionalizingTrace, fetched: Iterable[Tensor], surroundings: Surroundings
    ) -> None:
        """What a trace depends on besides the types of its arguments; gradients of ``fetched``
        tensors are taken anew at each run."""
        self.surroundings = surroundings
        read = [tensor for _, tensor in trace.captures]
        memory = _memory_of_gradients(trace, {id(tensor) for tensor in fetched})
        loose = [*memory, *_streams(trace)]
        self.questions: list[Condition] = [
            *_gradients(trace), *trace.guards, *loose, *_modules(trace), *_options(trace),
            _condition(partial(_moving, read), "whether a tensor requires a gradient"),
            _condition(partial(_hooks, read), "the hooks of a tensor"),
            _condition(get_default_dtype, "the default dtype"),
            *((found.is_same, True, found.name) for found in surroundings.found),
        ]  # fmt: skip
        self.always = [*trace.per_call_guards, *loose]
        self.watched: list[Collection[Any]] = [
            *trace.groups.values(), *_lists_of_modules(trace), *trace.watched_collections,
            *surroundings.collections(),
        ]  # fmt: skip
        before = list(trace.grads.values())
        self.without_grad = [tensor for tensor, grad in before if grad is None]
        self.with_grad = [(tensor, grad._type) for tensor, grad in before if grad is not None]
        # A leaf stops asking for its gradient by a change that is counted; others begin unseen.
        handles = {id(write.handle) for write in trace.written.values()}
        self.silent = [t for t in read if t._node is None and id(t) not in handles]
        self.asked = 0

    def begin(self, outside: Sequence[Tensor]) -> None:
        """Note the memory of the outside tensors, after the trace has given it back."""
        question = partial(_memory, outside)
        self.questions.append(_condition(question, "the memory of a tensor"))
        self.remember(self.look())

    def hold(self) -> bool:
        if self.are_untouched():
            return True
        # Looked at before anything is asked: what changes meanwhile is seen the next time.
        are_untouched = self.look()
        for ask, answer, _ in self.questions:
            if ask() != answer:
                return False
        self.remember(are_untouched)
        return True

    def remember(self, are_untouched: Callable[[], bool]) -> None:
        self.are_untouched = are_untouched
        self.asked += 1

    def look(self) -> Callable[[], bool]:
        """A function that tells whether nothing that the questions are about has changed since
        now. Every call checks it, so it has everything at hand."""
        count, default = MUTATIONS.count, get_default_dtype()
        are_unchanged, places = unchanged(self.watched), Places(self.surroundings.places())
        without_grad, silent = self.without_grad, self.silent
        with_grad, always = self.with_grad, self.always

        def are_untouched() -> bool:
            if MUTATIONS.count != count or dtypes._default_float is not default:
                return False
            for tensor in without_grad:
                if tensor._grad is not None:
                    return False
            for tensor in silent:
                if tensor._node is not None:
                    return False
            if not (are_unchanged() and places.are_same()):
                return False
            for ask, answer, _ in always:
                if ask() != answer:
                    return False
            for tensor, kind in with_grad:
                grad = tensor._grad
                if grad is None or grad._type is not kind:
                    return False
            return True

        return are_untouched

    def changed(self) -> str:
        """What does not hold any more, for a message."""
        return next(name for ask, answer, name in self.questions if ask() != answer)


def _condition(question: Callable[[], Any], name: str) -> Condition:
    return question, question(), name


# -- tensors ------------------------------------------------------------------------------------


def _memory(tensors: Sequence[Tensor]) -> list[tuple[int, int]]:
    return [(id(tensor._storage), id(tensor._storage.value)) for tensor in tensors]


def _gradients(trace: FunctionalizingTrace) -> Iterator[Condition]:
    for tensor, before in trace.grads.values():
        kind = None if before is None else before._type
        yield partial(_kind_of_grad, tensor), kind, "whether a gradient exists"


def _memory_of_gradients(trace: FunctionalizingTrace, fetched: set[int]) -> Iterator[Condition]:
    read = {id(tensor) for _, tensor in trace.captures}
    for tensor, before in trace.grads.values():
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


# -- random numbers -----------------------------------------------------------------------------


def _streams(trace: FunctionalizingTrace) -> Iterator[Condition]:
    """How numbers are drawn from the calling thread's generator: masks are kept accordingly."""
    if any(e.op.random and e.attrs.get("generator") is None for e in trace.equations):
        yield _condition(_algorithm, "the algorithm of the default generator")


def _algorithm() -> str:
    return default_generator().algorithm


# -- modules ------------------------------------------------------------------------------------


def _modules(trace: FunctionalizingTrace) -> Iterator[Condition]:
    if trace.modules:
        yield _condition(_hooks_everywhere, "the hooks on all modules")
    for module in trace.modules.values():
        kind = type(module).__name__
        yield _condition(partial(_mode, module), f"the mode of a {kind} (train or eval)")
        yield (
            partial(_has_still, module, _parts(module)), True,
            f"the attributes, parameters, submodules or hooks of a {kind}",
        )  # fmt: skip


def _hooks_everywhere() -> list[Any]:
    tables = _global_hooks()
    return [] if tables is None else _hooks_in(tables)


def _hooks_in(tables: Any) -> list[Any]:
    """The hooks that run with a module."""
    found: list[Any] = []
    for table in (tables.forward_pre, tables.forward, tables.backward_pre, tables.backward):
        found += table.values()
    return found


def _lists_of_modules(trace: FunctionalizingTrace) -> list[list[Any]]:
    parts = (part for module in trace.modules.values() for part in module.__dict__.values())
    return [part for part in parts if isinstance(part, list)]


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
    return parts if hooks is None else parts + _hooks_in(hooks)


def _has_still(module: Any, parts: list[Any]) -> bool:
    now = _parts(module)
    return len(now) == len(parts) and all(map(_is_same, now, parts))


def _is_same(now: Any, then: Any) -> bool:
    return now is then or (type(now) is type(then) and isinstance(now, _PLAIN) and now == then)


# -- optimizers ---------------------------------------------------------------------------------


def _options(trace: FunctionalizingTrace) -> Iterator[Condition]:
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
