"""Guards: when a traced program may run again.

A guard is a predicate on state outside of the graph, its value while tracing, and a description for
messages. All guards hold before every run. Most need not be evaluated for that: mutations of
modules, hooks and handles are counted (:mod:`evergrad.core.mutation_counter`), and for options,
lists and optimizer state it is enough that they have the same members as at the last check.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend.guards.identity_guards import MISSING
from evergrad.compiler.frontend.guards.native_guards import same_objects
from evergrad.compiler.frontend.guards.option_guards import Guard, OptionGuards, Snapshot
from evergrad.compiler.frontend.state.places import Slot, is_watchable
from evergrad.compiler.frontend.state.python_state import PythonState
from evergrad.core import dtypes
from evergrad.core.compound import Compound
from evergrad.core.dtypes import get_default_dtype
from evergrad.core.functionalize import FunctionalizingTrace, Source, read_source
from evergrad.core.mutation_counter import MUTATIONS
from evergrad.core.node import Leaf
from evergrad.core.rng.default_generator import default_generator
from evergrad.core.tensor import Tensor, current_node
from evergrad.core.trace import Var
from evergrad.extension import ExtensionPoint

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

_global_hooks: ExtensionPoint[[], object] = ExtensionPoint("global_module_hooks")

# Whether nothing has changed: of all, of modules, of tensors; and the options.
_Checks = tuple[Callable[..., bool], Callable[[], bool], Callable[[], bool], Snapshot]

# Attributes of modules that are compared by value; others by identity.
_PLAIN = (int, float, complex, str, tuple)


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
        others: Sequence[Tensor] = (),
    ) -> None:
        """Guards on what a trace depends on besides its signature; ``captures`` are those that are
        no arguments, ``others`` further tensors that are read, on the memory of arguments, and
        gradients of ``grad_inputs`` tensors are inputs of the program."""
        self.python_state = python_state
        read = [*(tensor for _, tensor in captures), *others]
        memory = _memory_of_gradients(trace, {id(tensor) for tensor in grad_inputs})
        unwatched = [*memory, *_rng_algorithm(trace)]
        of_effects = python_state.slots_of_effects
        self.options = OptionGuards(trace, of_effects)
        self.modules = list(trace.modules.values())
        # Guards on what counts its mutations: of modules, and of others.
        self.read, self.outside = read, list[Tensor]()
        self.of_modules: list[Guard] = [
            *_modules(trace, of_effects),
            *((found.holds, True, found.name) for found in python_state.module_guards),
        ]
        self.counted: list[Guard] = [
            *trace.guards,
            _guard(partial(_requires_grad, read), "whether a tensor requires a gradient"),
            _guard(partial(_hooks, read), "the hooks of a tensor"),
            _guard(partial(_storages, python_state.tensors), "the memory of a tensor"),
        ]
        own = [*_numbers(trace), *python_state.per_call()]
        # The guards that are neither counted nor identity guards.
        self.rest: list[Guard] = [
            *_gradients(trace), *unwatched, *self.options.predicates,
            _guard(get_default_dtype, "the default dtype"),
            *((found.holds, True, found.name) for found in python_state.guards), *own,
        ]  # fmt: skip
        # The storages of which numbers were read, with their versions.
        self.read_versions = trace.read_versions
        before = list(trace.grads.values())
        compound = [pair[0] for pair in before if isinstance(pair[1], Compound)]
        self.per_call = [
            *trace.per_call_guards, *unwatched, *own, *_gradients(trace, compound)
        ]  # fmt: skip
        self.watched: list[Collection[object]] = [
            *_lists_of_modules(trace, of_effects), *trace.watched_collections,
            *python_state.collections(),
        ]  # fmt: skip
        self.without_grad = [tensor for tensor, grad in before if grad is None]
        self.with_grad = [
            (tensor, grad._type) for tensor, grad in before
            if grad is not None and not isinstance(grad, Compound)
        ]  # fmt: skip
        # A leaf loses requires_grad by a counted mutation; other tensors get it uncounted.
        handles = {id(write.handle) for write in trace.written.values()}
        self.without_node = [t for t in read if t._node is None and id(t) not in handles]
        # Views get a history by writes to what they are views of, noticed where it is read.
        self.views = [
            t for t in self.without_node if t._view is not None and t._view.base is not None
        ]
        self.checked = 0
        self.modules_are_same: Callable[[], bool]
        self.tensors_are_same: Callable[[], bool]
        # The guard that failed last.
        self.failed: Guard | None = None

    @property
    def predicates(self) -> list[Guard]:
        """All guards."""
        return [*self.of_modules, *self.counted, *self.rest]

    def guard_memory(self, outside: Sequence[Tensor]) -> None:
        """Guard the memory of captured tensors, after the trace has restored it."""
        self.outside = list(outside)
        self.counted.append(_guard(partial(_memory, outside), "the memory of a tensor"))
        self.use(self.new_checks())

    def hold(self) -> bool:
        if self.fast_check():
            return True
        if not self.gradients_hold():
            return False
        before = MUTATIONS.count
        if before != self.mutations[0] and self.fast_check(True):
            return self.hold_after_mutation(before)
        # Nothing is made for a program that is not valid.
        if not self.all_hold(self.predicates):
            return False
        # Made before the predicates are evaluated, so that a concurrent mutation fails it.
        checks = self.new_checks()
        if not self.all_hold(self.predicates):
            return False
        self.use(checks)
        return True

    def hold_after_mutation(self, count: int) -> bool:
        """Whether the guards hold after something that counts its mutations has changed, up to
        ``count``, and nothing else."""
        if not self.modules_are_same():
            if not self.all_hold(self.of_modules):
                return False
            check = self.new_module_check()
            if not self.all_hold(self.of_modules):
                return False
            self.modules_are_same = check
        if not self.tensors_are_same():
            check = self.new_tensor_check()
            if not self.all_hold(self.counted):
                return False
            self.tensors_are_same = check
        self.mutations[0] = count
        return True

    def all_hold(self, guards: Sequence[Guard]) -> bool:
        """Whether guards hold. The one that failed last is evaluated first: where calls alternate
        between two programs it fails again."""
        if self.failed is not None and self.failed[0]() != self.failed[1]:
            return False
        for guard in guards:
            if guard[0]() != guard[1]:
                self.failed = guard
                return False
        return True

    def gradients_hold(self) -> bool:
        """Whether the gradients that exist are those that did."""
        for tensor in self.without_grad:
            if tensor._grad is not None:
                return False
        for tensor, kind in self.with_grad:
            grad = tensor._grad
            if grad is None or grad._type is not kind:
                return False
        return True

    def new_checks(self) -> _Checks:
        """Functions that return whether what the guards read is the same as now."""
        fast_check, module_check = self.new_fast_check(), self.new_module_check()
        return fast_check, module_check, self.new_tensor_check(), self.options.snapshot()

    def use(self, checks: _Checks) -> None:
        self.fast_check, self.modules_are_same, self.tensors_are_same, options = checks
        self.options.accept(options)
        self.checked += 1

    def absorb_mutation(self, before: int) -> None:
        """The program itself has advanced the counter from ``before`` by one, to store an effect:
        that changes nothing that it is guarded on."""
        if self.mutations[0] == before and MUTATIONS.count == before + 1:
            self.mutations[0] = before + 1

    def new_module_check(self) -> Callable[[], bool]:
        """A function that returns whether all that the guards on modules read is the same as now,
        so that these hold; they may hold where it is not."""
        skipped = self.python_state.slots_of_effects
        tables = [table for module in self.modules for table in _tables(module)]
        whole = [t for t in tables if not any((id(t), key) in skipped for key in _keys(t))]
        slots = [
            (table, key) for table in tables if not any(table is other for other in whole)
            for key in _keys(table) if (id(table), key) not in skipped
        ]  # fmt: skip
        parts = [t for t in tables if isinstance(t, dict) and not any(t is w for w in whole)]
        found = self.python_state.module_guards
        if any(g.key is MISSING and not is_watchable(g.place) for g in found):
            return lambda: False
        whole += [g.place for g in found if g.key is MISSING]
        slots += [(g.place, g.key) for g in found if g.key is not MISSING]
        slots += [(module, "__class__") for module in self.modules]
        everywhere = _global_hooks()
        if everywhere is not None:
            whole += _tables_of_hooks(everywhere)
        are_same = same_objects(whole, slots, parts)
        if everywhere is not None:
            return are_same
        return lambda: _global_hooks() is None and are_same()

    def new_tensor_check(self) -> Callable[[], bool]:
        """A function that returns whether all that the guards on tensors read that counts its
        mutations is the same as now; what else ``counted`` has is watched at each call."""
        slots: list[Slot] = [(tensor, "_node") for tensor in self.read]
        tables: list[Collection[object]] = []
        for leaf in [tensor._node for tensor in self.read]:
            if isinstance(leaf, Leaf):
                slots += (leaf, "accumulated"), (leaf, "hooks")
                tables += [] if leaf.accumulated is None else [leaf.accumulated]
                tables += _tables_of_leaf(leaf)
        tensors = {id(t): t for t in (*self.python_state.tensors, *self.outside)}
        slots += [(tensor, "_storage") for tensor in tensors.values()]
        slots += [(tensor._storage, "value") for tensor in self.outside]
        return same_objects(tables, slots)

    def new_fast_check(self) -> Callable[..., bool]:
        """A function that returns whether nothing the predicates read has changed since now; with
        true, nothing that does not count its mutations. Every call runs it, so all its operands
        are local. Modules count their mutations except those of their ``__dict__``, of which what
        the user's code names is looked at."""
        count, default = [MUTATIONS.count], get_default_dtype()
        attributes = [
            (found.place, found.key) for found in self.python_state.module_guards
            if found.key is not MISSING and type(found.place) is dict
        ]  # fmt: skip
        attributes_are_same = same_objects((), attributes)
        self.mutations = count
        are_same = same_objects(self.watched, self.python_state.slots())
        without_grad, without_node, views = self.without_grad, self.without_node, self.views
        with_grad, per_call, options = self.with_grad, self.per_call, self.options

        def fast_check(is_mutated: bool = False) -> bool:
            if not is_mutated and (MUTATIONS.count != count[0] or not attributes_are_same()):
                return False
            if dtypes._default_float is not default:
                return False
            for tensor in without_grad:
                if tensor._grad is not None:
                    return False
            for tensor in without_node:
                if tensor._node is not None:
                    return False
            for tensor in views:
                if current_node(tensor) is not None:
                    return False
            for tensor, kind in with_grad:
                grad = tensor._grad
                if grad is None or grad._type is not kind:
                    return False
            for predicate, expected, _ in per_call:
                if predicate() != expected:
                    return False
            return are_same() and (options.hold_fast() or options.hold())

        return fast_check

    def first_failed(self) -> str:
        """The description of the first guard that fails, for a message."""
        failed = (name for check, expected, name in self.predicates if check() != expected)
        return next(failed, "a number, or the aliasing of arguments")


def _guard(predicate: Callable[[], object], name: str) -> Guard:
    return predicate, predicate(), name


# -- tensors ------------------------------------------------------------------------------------


def _memory(tensors: Sequence[Tensor]) -> list[tuple[int, int]]:
    return [(id(tensor._storage), id(tensor._storage.value)) for tensor in tensors]


def _storages(tensors: Sequence[Tensor]) -> list[int]:
    return [id(tensor._storage) for tensor in tensors]


def _gradients(
    trace: FunctionalizingTrace, tensors: Sequence[Tensor] | None = None
) -> Iterator[Guard]:
    """Guards on whether gradients exist, or on those of some tensors."""
    for tensor, before in trace.grads.values():
        if tensors is None or any(tensor is held for held in tensors):
            kind = _kind_of(before)
            yield partial(_kind_of_grad, tensor), kind, "whether a gradient exists"


def _memory_of_gradients(trace: FunctionalizingTrace, grad_inputs: set[int]) -> Iterator[Guard]:
    """Guards on gradients whose memory is captured, by themselves or by a tensor that shares it."""
    read = {id(tensor._storage) for _, tensor in trace.captures}
    for tensor, before in trace.grads.values():
        if before is None or id(tensor) in grad_inputs:
            continue
        if id(before._storage) in read:
            yield partial(_grad_is, tensor, before), True, "the memory of a gradient"


def _kind_of_grad(tensor: Tensor) -> object:
    return _kind_of(tensor._grad)


def _kind_of(grad: Tensor | None) -> object:
    """What a program depends on of a gradient that is not read; types of compound ones are not
    interned."""
    if isinstance(grad, Compound):
        return type(grad), grad._type.shape, grad._type.dtype
    return None if grad is None else grad._type


def _grad_is(tensor: Tensor, grad: Tensor | None) -> bool:
    return tensor._grad is grad


def _requires_grad(tensors: list[Tensor]) -> list[bool]:
    return [current_node(tensor) is not None for tensor in tensors]


def _hooks(tensors: list[Tensor]) -> list[object]:
    """The hooks of leaves, which see their gradients."""
    found: Leaves = []
    for tensor in tensors:
        leaf = tensor._node
        if not isinstance(leaf, Leaf):
            continue
        if leaf.accumulated:
            found += leaf.accumulated.values()
        found += [hook for table in _tables_of_leaf(leaf)[1:] for hook in table.values()]
    return found


def _tables_of_leaf(leaf: Leaf) -> list[dict[Any, Any]]:
    """The dictionary of tables by result, and the tables of hooks."""
    hooks = leaf.hooks
    if hooks is None:
        return []
    return [hooks.on_result, *hooks.on_result.values(), hooks.before, hooks.after]


# -- numbers ------------------------------------------------------------------------------------


def _numbers(trace: FunctionalizingTrace) -> Iterator[Guard]:
    """Guards on the numbers that Python has read."""
    for source, predicate, expected in trace.number_guards:
        yield partial(_apply_to, predicate, source), expected, f"the option {source[1]!r}"


def _apply_to(predicate: Callable[[float], object], source: Source) -> object:
    return predicate(read_source(source))


# -- random numbers -----------------------------------------------------------------------------


def _rng_algorithm(trace: FunctionalizingTrace) -> Iterator[Guard]:
    """A guard on the algorithm of the calling thread's generator, which decides the layout of
    dropout masks."""
    drawn = {id(g): g for e in trace.equations if e.op.random for g in [e.attrs.get("generator")]}
    if id(None) in drawn:
        yield _guard(_algorithm, "the algorithm of the default generator")
        for generator in drawn.values():
            if generator is not None:
                yield partial(_is_default, generator), False, "the default generator"
    for generator in getattr(trace, "named_default", ()):
        yield partial(_is_default, generator), True, "the default generator"


def _is_default(generator: object) -> bool:
    return default_generator() is generator


def _algorithm() -> str:
    return default_generator().algorithm


# -- modules ------------------------------------------------------------------------------------


def _modules(trace: FunctionalizingTrace, skipped: Collection[Slot]) -> Iterator[Guard]:
    """Guards on the modules that are called; slots of effects are skipped."""
    if trace.modules:
        yield _guard(_hooks_everywhere, "the hooks on all modules")
    for module in trace.modules.values():
        kind = type(module).__name__
        yield _guard(partial(type, module), f"the class of a {kind}")
        yield _guard(partial(_mode, module), f"the mode of a {kind} (train or eval)")
        yield (
            partial(_has_parts, module, skipped, _parts(module, skipped)), True,
            f"the attributes, parameters, submodules or hooks of a {kind}",
        )  # fmt: skip


def _hooks_everywhere() -> list[object]:
    tables = _global_hooks()
    return [] if tables is None else _hooks_in(tables)


def _hooks_in(tables: object) -> list[object]:
    """The hooks that run with a module."""
    return [hook for table in _tables_of_hooks(tables) for hook in table.values()]


def _tables_of_hooks(tables: Any) -> list[dict[Any, Any]]:
    return [tables.forward_pre, tables.forward, tables.backward_pre, tables.backward]


def _lists_of_modules(trace: FunctionalizingTrace, skipped: Collection[Slot]) -> list[list[object]]:
    places = {place for place, _ in skipped}
    parts = (part for module in trace.modules.values() for part in module.__dict__.values())
    return [part for part in parts if isinstance(part, list) and id(part) not in places]


def _mode(module: object) -> bool:
    return bool(module.__dict__["training"])


def _tables(module: object) -> Leaves:
    """The dictionaries and lists in which a module keeps what its forward reads."""
    own = module.__dict__
    tables = [own, own["_parameters"], own["_buffers"], own["_modules"]]
    tables += [part for part in own.values() if isinstance(part, list)]
    hooks = own["_hooks"]
    if hooks is not None:
        tables += _tables_of_hooks(hooks)
    return tables


def _keys(table: Any) -> Iterable[Any]:
    return table if isinstance(table, dict) else range(len(table))


def _parts(module: object, skipped: Collection[Slot]) -> Leaves:
    """What a module's forward reads: attributes, parameters, buffers, submodules and hooks."""
    own = module.__dict__
    parts: Leaves = []
    for table in (own, own["_parameters"], own["_buffers"], own["_modules"]):
        parts += _entries(table, table.items(), skipped) if skipped else table.values()
    for part in own.values():
        if isinstance(part, list):
            parts += _entries(part, enumerate(part), skipped) if skipped else part
    hooks = own["_hooks"]
    return parts if hooks is None else parts + _hooks_in(hooks)


def _entries(table: Any, items: Iterable[Any], skipped: Collection[Slot]) -> Leaves:
    return [held for key, held in items if (id(table), key) not in skipped]


def _has_parts(module: object, skipped: Collection[Slot], parts: list[object]) -> bool:
    now = _parts(module, skipped)
    return len(now) == len(parts) and all(map(_is_same, now, parts))


def _is_same(now: object, then: object) -> bool:
    return now is then or (type(now) is type(then) and isinstance(now, _PLAIN) and now == then)
