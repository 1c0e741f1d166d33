"""Guards: when a traced program may run again.

A guard is a predicate on state outside of the graph, its value while tracing, and a description for
messages. All guards hold before every run. Most need not be evaluated for that: mutations of
modules, hooks and handles are counted (:mod:`evergrad.core.mutation_counter`), and for options,
lists and optimizer state it is enough that they have the same members as at the last check.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from operator import is_, itemgetter
from typing import Any

from evergrad.compiler.frontend.identity_guards import identity_guard
from evergrad.compiler.frontend.places import Slot
from evergrad.compiler.frontend.python_state import PythonState
from evergrad.compiler.frontend.slot_guards import SlotGuards
from evergrad.core import dtypes
from evergrad.core.dtypes import get_default_dtype
from evergrad.core.functionalize import FunctionalizingTrace, Source, read_source
from evergrad.core.mutation_counter import MUTATIONS
from evergrad.core.node import Leaf
from evergrad.core.rng.default_generator import default_generator
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Var
from evergrad.extension import ExtensionPoint

_global_hooks: ExtensionPoint[[], Any] = ExtensionPoint("global_module_hooks")

Guard = tuple[Callable[[], Any], Any, str]

# Attributes of modules that are compared by value; others by identity.
_PLAIN = (int, float, complex, str, tuple)
# Entries of a parameter group that are no options of the update.
_NOT_OPTIONS = ("params", "param_names", "initial_lr")


class OptionGuards:
    """The guards on the options of optimizers. Those that are read at run time have the same values
    while ``numbers_token`` is the same object."""

    def __init__(self, trace: FunctionalizingTrace, skipped: Collection[Slot]) -> None:
        """``skipped`` are options that the program itself writes."""
        groups = list(trace.groups.values())
        rest = {id(group): [k for k in group if (id(group), k) not in skipped] for group in groups}
        is_part = {id(g): 1 < len(rest[id(g)]) < len(g) for g in groups}
        self.groups = [group for group in groups if not is_part[id(group)]]
        # The groups of which the program writes options, and functions that give the others.
        self.parts = [
            (group, len(group), itemgetter(*rest[id(group)])) for group in groups
            if is_part[id(group)]
        ]  # fmt: skip
        self.predicates = list(_options(trace, skipped))
        self.accept(self.new_guard())

    def new_guard(self) -> Callable[[], bool]:
        """A function that returns whether the options are the same objects as now."""
        are_same = identity_guard(self.groups)
        if not self.parts:
            return are_same
        seen = [(group, count, of, of(group)) for group, count, of in self.parts]

        def hold() -> bool:
            try:
                for group, count, of, then in seen:
                    if len(group) != count or not all(map(is_, of(group), then)):
                        return False
            except KeyError:
                return False
            return are_same()

        return hold

    def accept(self, are_same: Callable[[], bool]) -> None:
        """The values that ``are_same`` compares with satisfy the guards."""
        self.are_same = are_same
        self.numbers_token = object()

    def hold(self) -> bool:
        """Whether the options, some of which have changed, satisfy their guards; those that are
        read at run time may have other values."""
        are_same = self.new_guard()  # before the predicates are evaluated
        for predicate, expected, _ in self.predicates:
            if predicate() != expected:
                return False
        self.accept(are_same)
        return True


class Guards:
    """The guards of one program. ``checked`` counts full evaluations of the predicates; while
    ``fast_check`` returns true nothing has changed since the last one. That function refers to
    parts of the guards and never to them, so that reference counts alone free a program."""

    def __init__(
        self,
        trace: FunctionalizingTrace,
        captures: Sequence[tuple[Var, Tensor]],
        grad_inputs: Iterable[Tensor],
        python_state: PythonState,
    ) -> None:
        """Guards on what a trace depends on besides its signature; ``captures`` are those that are
        no arguments, and gradients of ``grad_inputs`` tensors are inputs of the program."""
        self.python_state = python_state
        read = [tensor for _, tensor in captures]
        memory = _memory_of_gradients(trace, {id(tensor) for tensor in grad_inputs})
        unwatched = [*memory, *_rng_algorithm(trace)]
        of_effects = python_state.slots_of_effects
        self.options = OptionGuards(trace, of_effects)
        self.predicates: list[Guard] = [
            *_gradients(trace), *trace.guards, *unwatched, *_modules(trace, of_effects),
            *self.options.predicates,
            _guard(partial(_requires_grad, read), "whether a tensor requires a gradient"),
            _guard(partial(_hooks, read), "the hooks of a tensor"),
            _guard(get_default_dtype, "the default dtype"),
            _guard(partial(_storages, python_state.tensors), "the memory of a tensor"),
            *((found.holds, True, found.name) for found in python_state.guards),
            *((found.holds, True, found.name) for found in python_state.module_guards),
        ]  # fmt: skip
        others = [*_numbers(trace), *python_state.per_call()]
        self.per_call = [*trace.per_call_guards, *unwatched, *others]
        self.predicates += others
        self.watched: list[Collection[Any]] = [
            *_lists_of_modules(trace, of_effects), *trace.watched_collections,
            *python_state.collections(),
        ]  # fmt: skip
        before = list(trace.grads.values())
        self.without_grad = [tensor for tensor, grad in before if grad is None]
        self.with_grad = [(tensor, grad._type) for tensor, grad in before if grad is not None]
        # A leaf loses requires_grad by a counted mutation; other tensors get it uncounted.
        handles = {id(write.handle) for write in trace.written.values()}
        self.without_node = [t for t in read if t._node is None and id(t) not in handles]
        self.checked = 0

    def guard_memory(self, outside: Sequence[Tensor]) -> None:
        """Guard the memory of captured tensors, after the trace has restored it."""
        self.predicates.append(_guard(partial(_memory, outside), "the memory of a tensor"))
        self.use_fast_check(self.new_fast_check(), self.options.new_guard())

    def hold(self) -> bool:
        if self.fast_check():
            return True
        # Made before the predicates are evaluated, so that a concurrent mutation fails it.
        fast_check = self.new_fast_check()
        options_are_same = self.options.new_guard()
        for predicate, expected, _ in self.predicates:
            if predicate() != expected:
                return False
        self.use_fast_check(fast_check, options_are_same)
        return True

    def use_fast_check(
        self, fast_check: Callable[[], bool], options_are_same: Callable[[], bool]
    ) -> None:
        self.fast_check = fast_check
        self.options.accept(options_are_same)
        self.checked += 1

    def absorb_mutation(self, before: int) -> None:
        """The program itself has advanced the counter from ``before`` by one, to store an effect:
        that changes nothing that it is guarded on."""
        if self.mutations[0] == before and MUTATIONS.count == before + 1:
            self.mutations[0] = before + 1

    def new_fast_check(self) -> Callable[[], bool]:
        """A function that returns whether nothing the predicates read has changed since now. Every
        call runs it, so all its operands are local."""
        count, default = [MUTATIONS.count], get_default_dtype()
        self.mutations = count
        members_hold = identity_guard(self.watched)
        slots_hold = SlotGuards(self.python_state.slots()).hold
        without_grad, without_node = self.without_grad, self.without_node
        with_grad, per_call, options = self.with_grad, self.per_call, self.options

        def fast_check() -> bool:
            if MUTATIONS.count != count[0] or dtypes._default_float is not default:
                return False
            for tensor in without_grad:
                if tensor._grad is not None:
                    return False
            for tensor in without_node:
                if tensor._node is not None:
                    return False
            if not (members_hold() and slots_hold()):
                return False
            if not (options.are_same() or options.hold()):
                return False
            for predicate, expected, _ in per_call:
                if predicate() != expected:
                    return False
            for tensor, kind in with_grad:
                grad = tensor._grad
                if grad is None or grad._type is not kind:
                    return False
            return True

        return fast_check

    def first_failed(self) -> str:
        """The description of the first guard that fails, for a message."""
        failed = (name for check, expected, name in self.predicates if check() != expected)
        return next(failed, "a number, or the aliasing of arguments")


def _guard(predicate: Callable[[], Any], name: str) -> Guard:
    return predicate, predicate(), name


# -- tensors ------------------------------------------------------------------------------------


def _memory(tensors: Sequence[Tensor]) -> list[tuple[int, int]]:
    return [(id(tensor._storage), id(tensor._storage.value)) for tensor in tensors]


def _storages(tensors: Sequence[Tensor]) -> list[int]:
    return [id(tensor._storage) for tensor in tensors]


def _gradients(trace: FunctionalizingTrace) -> Iterator[Guard]:
    for tensor, before in trace.grads.values():
        kind = None if before is None else before._type
        yield partial(_kind_of_grad, tensor), kind, "whether a gradient exists"


def _memory_of_gradients(trace: FunctionalizingTrace, grad_inputs: set[int]) -> Iterator[Guard]:
    read = {id(tensor) for _, tensor in trace.captures}
    for tensor, before in trace.grads.values():
        if id(before) in read and id(tensor) not in grad_inputs:
            yield partial(_grad_is, tensor, before), True, "the memory of a gradient"


def _kind_of_grad(tensor: Tensor) -> Any:
    return None if tensor._grad is None else tensor._grad._type


def _grad_is(tensor: Tensor, grad: Tensor | None) -> bool:
    return tensor._grad is grad


def _requires_grad(tensors: list[Tensor]) -> list[bool]:
    return [tensor._node is not None for tensor in tensors]


def _hooks(tensors: list[Tensor]) -> list[Any]:
    """The hooks of leaves, which see their gradients."""
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


# -- numbers ------------------------------------------------------------------------------------


def _numbers(trace: FunctionalizingTrace) -> Iterator[Guard]:
    """Guards on the numbers that Python has read."""
    for source, predicate, expected in trace.number_guards:
        yield partial(_apply_to, predicate, source), expected, f"the option {source[1]!r}"


def _apply_to(predicate: Callable[[float], Any], source: Source) -> Any:
    return predicate(read_source(source))


# -- random numbers -----------------------------------------------------------------------------


def _rng_algorithm(trace: FunctionalizingTrace) -> Iterator[Guard]:
    """A guard on the algorithm of the calling thread's generator, which decides the layout of
    dropout masks."""
    if any(e.op.random and e.attrs.get("generator") is None for e in trace.equations):
        yield _guard(_algorithm, "the algorithm of the default generator")


def _algorithm() -> str:
    return default_generator().algorithm


# -- modules ------------------------------------------------------------------------------------


def _modules(trace: FunctionalizingTrace, skipped: Collection[Slot]) -> Iterator[Guard]:
    """Guards on the modules that are called; slots of effects are skipped."""
    if trace.modules:
        yield _guard(_hooks_everywhere, "the hooks on all modules")
    for module in trace.modules.values():
        kind = type(module).__name__
        yield _guard(partial(_mode, module), f"the mode of a {kind} (train or eval)")
        yield (
            partial(_has_parts, module, skipped, _parts(module, skipped)), True,
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


def _lists_of_modules(trace: FunctionalizingTrace, skipped: Collection[Slot]) -> list[list[Any]]:
    places = {place for place, _ in skipped}
    parts = (part for module in trace.modules.values() for part in module.__dict__.values())
    return [part for part in parts if isinstance(part, list) and id(part) not in places]


def _mode(module: Any) -> bool:
    return bool(module.__dict__["training"])


def _parts(module: Any, skipped: Collection[Slot]) -> list[Any]:
    """What a module's forward reads: attributes, parameters, buffers, submodules and hooks."""
    own = module.__dict__
    parts: list[Any] = []
    for table in (own, own["_parameters"], own["_buffers"], own["_modules"]):
        parts += _entries(table, table.items(), skipped) if skipped else table.values()
    for part in own.values():
        if isinstance(part, list):
            parts += _entries(part, enumerate(part), skipped) if skipped else part
    hooks = own["_hooks"]
    return parts if hooks is None else parts + _hooks_in(hooks)


def _entries(table: Any, items: Iterable[Any], skipped: Collection[Slot]) -> list[Any]:
    return [held for key, held in items if (id(table), key) not in skipped]


def _has_parts(module: Any, skipped: Collection[Slot], parts: list[Any]) -> bool:
    now = _parts(module, skipped)
    return len(now) == len(parts) and all(map(_is_same, now, parts))


def _is_same(now: Any, then: Any) -> bool:
    return now is then or (type(now) is type(then) and isinstance(now, _PLAIN) and now == then)


# -- optimizers ---------------------------------------------------------------------------------


def _options(trace: FunctionalizingTrace, skipped: Collection[Slot]) -> Iterator[Guard]:
    """Guards on options: of those read at run time, whether they are zero; of others, their
    value."""
    dynamic = {(id(container), key) for container, key, *_ in trace.numbers.values()}
    for group in trace.groups.values():
        yield (
            partial(_entry_is, group, "params", group["params"]),
            True,
            "the parameters of a group",
        )
        for key in group:
            if key not in _NOT_OPTIONS and (id(group), key) not in skipped:
                predicate = _zeros if (id(group), key) in dynamic else _comparable
                yield _guard(partial(predicate, group, key), f"the option {key}")


def _entry_is(group: dict[str, Any], key: str, held: Any) -> bool:
    return group.get(key) is held


def _comparable(group: dict[str, Any], key: str) -> Any:
    """An option as a comparable value: tensors compare by identity."""
    value = group.get(key)
    return id(value) if isinstance(value, Tensor) else value


def _zeros(group: dict[str, Any], key: str) -> Any:
    value = group[key]
    return tuple([v == 0 for v in value]) if isinstance(value, tuple) else value == 0
