"""The Python state that a function can read: found by reachability, watched by identity.

What a call does is decided by its arguments and by the objects that its code can reach: globals,
cells, defaults, attributes, members of containers. :class:`PythonState` walks from the function and
its arguments along all of these before the call, and notes what each place holds. Places are slots
(an entry of a mapping, a cell, an attribute) and containers. Afterwards a place that has changed
was written by the call; before a later call a place that has changed makes the program invalid.

The walk over-approximates: it follows every name that the code mentions, whichever object it is
looked up on, and stops only at what cannot change or is the engine's. State that cannot be compared
(iterators, files, clocks) and functions with other effects (``print``) are reasons why a call has
to be run by Python (``opaque``).
"""

from __future__ import annotations

import decimal
import enum
import fractions
import functools
import gc
import io
import operator
import random
import re
import threading
import types
import weakref
from abc import ABCMeta
from collections import deque, namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextvars import ContextVar
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.frontend.guards.identity_guards import MISSING
from evergrad.compiler.frontend.recording import impure
from evergrad.compiler.frontend.state.code_reads import (
    global_names_of,
    is_effectful_module,
    is_users_module,
    names_of,
)
from evergrad.compiler.frontend.state.library_calls import (
    NOTHING_RAN,
    LibraryFunction,
    code_of,
    function_of,
    is_installed,
)
from evergrad.compiler.frontend.state.library_objects import (
    MEMORY,
    MODULES,
    READS_FILES,
    RECORDS,
    WEAK,
    is_comparable,
)
from evergrad.compiler.frontend.state.places import (
    BUFFERS,
    PLAIN,
    HooksSlot,
    StateGuard,
    ThreadNamesSlot,
    hook_counts,
    members_of,
)
from evergrad.compiler.frontend.state.raw_reads import attributes_of, class_member, is_a
from evergrad.compiler.frontend.state.reached_code import UNINTERESTING, ReachedCode
from evergrad.core.records import fields_of
from evergrad.core.storage import NO_ARRAY
from evergrad.core.tensor import Tensor
from evergrad.extension import ExtensionPoint

if TYPE_CHECKING:
    from evergrad.core.types import Tree

_global_hooks: ExtensionPoint[[], Any] = ExtensionPoint("global_module_hooks")
_registration_hooks: ExtensionPoint[[], Any] = ExtensionPoint("registration_hooks")
_optimizer_hooks: ExtensionPoint[[], Any] = ExtensionPoint("global_optimizer_hooks")

_TABLES = ("_parameters", "_buffers", "_modules")
# The most objects that are visited: a program that reaches more is run by Python.
_MOST_VISITED = 20_000
# Methods of the user's classes that the engine calls.
_ENTRY_POINTS = frozenset({"forward", "backward", "setup_context", "jvp", "vjp", "vmap", "step"})
# Kinds of objects that hold nothing that changes.
_HARMLESS_KINDS = (object, type(NotImplemented), type(iter), re.Pattern, types.GenericAlias,
                   types.UnionType, types.SimpleNamespace, decimal.Decimal,
                   fractions.Fraction, types.MethodWrapperType, types.ClassMethodDescriptorType,
                   types.MethodDescriptorType, type(functools.lru_cache(int)))  # fmt: skip
# Objects of the engine that guard on their own state.
_SELF_GUARDED = ("evergrad.amp", "evergrad.core", "evergrad.compiler", "evergrad.memory",
                 "evergrad.train", "evergrad.models", "evergrad.serve",
                 "evergrad.distributed")  # fmt: skip
# Modules and classes of the standard library from which classes inherit no state in attributes.
_STATELESS_MODULES = frozenset(
    {
        "builtins",
        "abc",
        "typing",
        "typing_extensions",
        "types",
        "enum",
        "_collections",
        "_collections_abc",
        "_thread",
        "numpy",
    }
)
_STATELESS_CLASSES = frozenset(
    {
        "AbstractContextManager",
        "AbstractAsyncContextManager",
        "ContextDecorator",
        "AsyncContextDecorator",
        "Dataset",
        "IterableDataset",
        "Sampler",
        "Function",
    }
)
# Methods that run when an object is made, and the names by which the class of an object is reached.
_CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__"})
_REACHES_CLASS = frozenset({"type", "__class__", *_CONSTRUCTORS})
_METHODS_OF_OPTIMIZERS = ("step", "zero_grad")
_METHODS_OF_MODULES = ("forward", "__call__")
# What code reads of functions and classes only where it mentions it.
_NAMES = frozenset({"__name__", "__qualname__"})
_NAMES_OF_FUNCTIONS = _NAMES | {"__doc__"}
_NAMES_OF_CLASSES = _NAMES_OF_FUNCTIONS | {"__annotations__", "__annotations_cache__",
                                           "__dataclass_fields__", "__match_args__"}  # fmt: skip
_CONTAINERS = (list, dict, tuple, set, frozenset, deque)
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))


class PythonState(ReachedCode):
    """The state that a function can read with some arguments, as it is before a call."""

    def __init__(
        self, function: Any, args: Sequence[object] = (), kwargs: Mapping[str, Any] | None = None,
        ran: Set[LibraryFunction] = NOTHING_RAN, observed: Iterable[FunctionType] = (),
    ) -> None:  # fmt: skip
        """``ran`` are the functions of installed libraries that the function is known to run,
        ``observed`` others that it runs."""
        super().__init__(args, kwargs or {}, ran | code_of(function))
        name = getattr(function, "__qualname__", type(function).__name__)
        self.push_part(function, name)
        self.push_arguments((args, kwargs or {}))
        for observed_function in observed:
            self.push(observed_function, observed_function.__qualname__)
        self.walk()
        self._hooks = [hook_counts(t) for t in (*self.tensors, *self._arguments)]

    def push_arguments(self, tree: Tree) -> None:
        """Watch the containers of a call for writes, and visit the objects in them."""
        for member in tree.values() if isinstance(tree, dict) else tree:
            fields = fields_of(member)
            if fields is not None:
                self.visit_class_of(member)
                self.own.append(StateGuard("an argument", member, "__class__", type(member)))
                for name, held in fields.items():
                    self.own.append(StateGuard(f"the field {name}", member, name, held))
                self.push_arguments(fields)
            elif isinstance(member, (list, dict, tuple)):
                if not isinstance(member, tuple):
                    self.own.append(StateGuard("an argument", member, MISSING,
                                               list(members_of(member))))  # fmt: skip
                self.push_arguments(member)
            elif not isinstance(member, Tensor):
                self.push(member, "an argument")

    @functools.cached_property
    def checks_number_types(self) -> bool:
        """Whether the function, or what it calls, does not take other classes for numbers; read
        after the walk."""
        if self.loads_builtin("type") or self.converts_numbers or not self.libraries <= _TOLERANT:
            return True
        return self.memoizes

    @property
    def memoizes(self) -> bool:
        """Whether a function is reached that caches its results."""
        return any(is_a(held, CACHED) for held in self.seen.values())

    # -- the walk -------------------------------------------------------------------------------

    def walk(self) -> None:
        while self._waiting:
            if len(self.seen) > _MOST_VISITED:
                self.give_up("the function reaches too many Python objects to watch")
                self._waiting.clear()
                return
            value, name = self._waiting.pop()
            self.visit(value, name)
            if not self._waiting:
                self.visit_owners()
                self.visit_bare_tensors()
        if self.reads_files and not READS_FILES.isdisjoint(self.names):
            self.give_up("a file may be read into an object of the standard library")
        if "cache_info" in self.names and self.memoizes:
            self.give_up("the hits of a function that caches its results are read")
        if "numpy" in self.libraries or self.arrays:  # which raises or not where it divides by zero
            self.settings["geterr"] = np.geterr
        if "__subclasses__" in self.names:
            self.give_up("the subclasses of a class are read")

    def visit_owners(self) -> None:
        """Visit the attributes of all owners that were not visited with the names of now."""
        known = len(self.names), len(self._called), self.is_dynamic, len(self.appearing_names)
        for position, (mapping, owner, holder) in enumerate(self._owners):
            if self._visited.get(position) != known:
                self._visited[position] = known
                self.visit_attributes(mapping, owner, holder)

    def visit(self, value: object, name: str) -> None:
        visitor = self.visitor(value)
        if visitor is not None:
            visitor(value, name)

    def visitor(self, value: object) -> Callable[[Any, str], None] | None:
        """How a value is visited; ``None`` if it cannot change what a function does."""
        if is_a(value, _CONTAINERS) and is_users_module(type(value).__module__):
            return self.visit_instance  # a subclass has methods and attributes of its own
        for kind, visitor in (
            (Tensor, self.visit_tensor), (FunctionType, self.visit_function),
            (MethodType, self.visit_method), (BuiltinFunctionType, self.visit_builtin),
            (functools.partial, self.visit_partial), (type, self.visit_class),
            (ModuleType, self.visit_module), (_CONTAINERS, self.visit_container),
            (np.ndarray, self.visit_array), (BUFFERS, self.visit_buffer),
            (MEMORY, self.visit_memory), (WEAK, self.visit_weak), (RECORDS, self.visit_record),
            (_VIEWS, self.visit_view), (MappingProxyType, self.visit_proxy),
            ((staticmethod, classmethod), self.visit_wrapped), (property, self.visit_property),
            (functools.cached_property, self.visit_cached_property),
            (CellType, self.visit_cell),
            (ContextVar, self.visit_context_variable), (weakref.ref, self.visit_reference),
            (CACHED, self.visit_memoized),
            ((random.Random, np.random.Generator, np.random.RandomState), self.visit_random),
        ):  # fmt: skip
            if is_a(value, kind):
                return visitor
        if is_a(value, (operator.attrgetter, operator.methodcaller)):
            self.is_dynamic = True
        if is_a(value, _DESCRIPTORS):
            return None
        return self.visit_instance

    def state_of(self, iterator: object) -> PythonState:
        """What an iterator reaches, which runs code of the user's."""
        return PythonState(iterator)

    def visit_iterator(self, value: Any, name: str) -> None:
        """An iterator as the root of a walk: the generator, or what it iterates over and calls."""
        frame = getattr(value, "gi_frame", None)
        if frame is not None:
            title = f"{value.__qualname__}()"
            self.add_names(names_of(frame.f_code))
            for variable in global_names_of(frame.f_code):
                self.visit_global(variable, frame.f_globals, title)
            for variable, held in frame.f_locals.items():
                self.push_part(held, f"{variable} in {title}")
            self.push_part(value.gi_yieldfrom, title)
            cells = zip(frame.f_code.co_freevars, _cells_of(value), strict=False)
            for variable, cell in cells:
                self.note(f"{variable} in {title}", cell, None)
            return
        own = attributes_of(value)
        for part in gc.get_referents(value) if own is None else own.values():
            self.push_part(part, name)

    def push_part(self, value: object, name: str) -> None:
        """Visit a part of an iterator; another iterator is one too."""
        if impure.is_iterator(value):
            if id(value) not in self.seen:
                self.seen[id(value)] = value
                self.visit_iterator(value, name)
        elif type(value) is tuple:
            for part in value:
                self.push_part(part, name)
        else:
            self.push(value, name)

    # -- objects --------------------------------------------------------------------------------

    def visit_tensor(self, tensor: Tensor, name: str) -> None:
        if tensor.__dict__:
            self.visit_container(tensor.__dict__, f"an attribute of {name}")
        else:
            self._bare_tensors.append((tensor, name))
        if tensor._value is not NO_ARRAY:
            self.tensors.append(tensor)
        leaf = tensor._leaf
        if leaf is not None:
            self.push(leaf.accumulated, f"the hooks of {name}")
            self.visit_hooks(leaf.hooks, name)

    def visit_bare_tensors(self) -> None:
        """Watch whether tensors without attributes are given some, where code could do that."""
        if self.is_dynamic or self.stores_attributes:
            for tensor, name in self._bare_tensors:
                self.visit_container(tensor.__dict__, f"an attribute of {name}")
            self._bare_tensors.clear()

    def visit_hooks(self, hooks: object, name: str) -> None:
        """Visit the functions in tables of hooks."""
        for table in () if hooks is None else slots_of_class(type(hooks)):
            held = getattr(hooks, table)
            if is_a(held, dict):
                self.push(held, f"the hooks of {name}")

    def visit_instance(self, value: object, name: str) -> None:
        kind = type(value)
        own = attributes_of(value)
        next_member = class_member(kind, "__next__")
        module = str(kind.__module__)
        root = module.partition(".")[0]
        if is_a(value, threading.local):
            if kind is not threading.local:
                self.visit_class_of(value)
            self._owners.append((MappingProxyType({}), name, value))
        elif next_member is not None and not isinstance(next_member, FunctionType):
            self.give_up(f"{name} is an iterator")
        elif own is not None and "__wrapped__" in own and not is_users_module(module):
            self.push(own["__wrapped__"], name)  # such as a compiled function
            self._owners.append((own, name, value))
        elif is_a(value, io.IOBase):
            self.give_up(f"{name} is a file")
        elif own is not None and "_parameters" in own:
            self.visit_nn_module(value, own, name)
        elif is_users_module(kind.__module__):
            if id(value) not in self.weakly_held:
                self.note(f"the class of {name}", value, "__class__")
            self.visit_users_instance(value, own, name)
        elif own is not None and "param_groups" in own:
            self._owners.append((own, name, value))
        elif is_effectful_module(root):
            self.libraries.add(root)  # its methods may check the types of numbers
            self.give_up(f"{name} is a {kind.__name__}")
        elif type(own) is dict and not module.startswith(_SELF_GUARDED):
            self.note_schedule(own)
            self.push(own, name)
        elif own is None and root in ("builtins", "_thread") and not is_harmless(kind):
            self.give_up(f"{name} is a {kind.__name__}")

    def visit_users_instance(self, value: object, own: object, name: str) -> None:
        self.visit_class_of(value)
        self.visit_inherited(value, own, name)
        if type(own) is dict:
            self._owners.append((own, name, value))
        for base in type(value).__mro__:
            for slot in slots_of_class(base):
                self.push(self.note(f"{name}.{slot}", value, slot), f"{name}.{slot}")
        if is_a(value, enum.Enum) and own is not None:  # which properties of the library read
            self.visit_container(own, name)
        if is_a(value, _CONTAINERS):
            self.visit_container(value, name)

    def visit_memory(self, value: Any, name: str) -> None:
        """An object of the standard library that is bytes in memory."""
        if not is_comparable(value):
            self.give_up(f"{name} is a {type(value).__name__}")
            return
        self.visit_buffer(value, name)
        self.visit_own(value, name)

    def visit_weak(self, value: Any, name: str) -> None:
        """A container of weak references: which there are, and what they refer to."""
        held = value.data
        if is_a(held, set):
            self.watch_keys(held, name, self.guards)
            for reference in list(held):
                self.push(reference, f"a member of {name}")
        else:
            self.push(held, name)
        self.visit_own(value, name)

    def visit_record(self, value: Any, name: str) -> None:
        """An object of the standard library whose methods depend on its attributes alone."""
        self.reads_files = True
        own = attributes_of(value) or {}
        slots = [slot for base in type(value).__mro__ for slot in slots_of_class(base)]
        for holder, key in [*((own, key) for key in own), *((value, slot) for slot in slots)]:
            held = self.note(f"{name}.{key}", holder, key)
            if is_a(held, (*_CONTAINERS, *RECORDS)):
                self.push(held, f"{name}.{key}")
        self.visit_own(value, name)

    def visit_own(self, value: Any, name: str) -> None:
        """What a class of the user's adds to an object of the standard library."""
        if is_users_module(type(value).__module__):
            self.visit_users_instance(value, attributes_of(value), name)

    def visit_inherited(self, value: Any, own: Any, name: str) -> None:
        """Methods of library classes that an instance inherits are not walked: they may read all of
        its attributes (``UserDict``, a queue, a schedule), or what cannot be watched."""
        bases = [base for base in type(value).__mro__ if is_stateful(base)]
        effectful = [b for b in bases if is_effectful_module(b.__module__.partition(".")[0])]
        if effectful:
            self.give_up(f"{name} is a {effectful[0].__name__}")
        elif bases and type(own) is dict and "param_groups" not in own:
            self.note_schedule(own)
            self.push(own, name)

    def note_schedule(self, own: dict[str, object]) -> None:
        """Note a schedule of learning rates, which writes to the options of an optimizer."""
        if "optimizer" in own:
            self.add_names(("param_groups",))
            self.has_schedule = True

    def visit_nn_module(self, module: object, own: dict[str, Any], name: str) -> None:
        """Attributes, parameters and submodules: their changes are counted by modules themselves,
        so that their places are compared only if the count has changed."""
        self.visit_class_of(module)
        self.watch_methods(type(module), _METHODS_OF_MODULES)
        for table in _TABLES:
            members = list(members_of(own[table]))
            self.module_guards.append(StateGuard(f"{name}.{table}", own[table], MISSING, members))
            for key, held in own[table].items():
                self.push(held, f"{name}.{key}")
        self._owners.append((own, name, module))
        self.visit_module_hooks(lambda: own.get("_hooks"), name)
        self.visit_module_hooks(_global_hooks, "all modules")
        for held in _registration_hooks():
            self.push(held, "the hooks of all modules")
        for function, args in getattr(module, "functions_called", ()):
            self.push(function, f"a function of {name}")
            self.push(args, f"an argument of a function of {name}")

    def visit_module_hooks(self, tables: Callable[[], Any], name: str) -> None:
        """Visit the hooks of a module, and watch whether it gets the first one."""
        held = tables()
        self.visit_hooks(held, name)
        if held is None:
            slot = HooksSlot(tables)
            self.module_guards.append(StateGuard(f"the hooks of {name}", slot, "used", None))

    def watch_methods(self, kind: type, names: Sequence[str]) -> None:
        """Watch methods that a class has of the engine, some and those that code mentions: they may
        be patched."""
        known = len(self.names)
        if self._watched_methods.get(kind) == known:
            return
        self._watched_methods[kind] = known
        sought, seen = {*names, *self.names}, set[str]()
        for base in kind.__mro__:
            found = sought & vars(base).keys() - seen
            seen |= found
            for name in () if is_users_module(base.__module__) else sorted(found):
                if is_a(vars(base)[name], FunctionType):
                    self.push(self.note(f"{kind.__name__}.{name}", kind, name), name)

    def visit_options(self, mapping: Mapping[str, object], name: str, holder: object) -> None:
        """The attributes of an optimizer that the code mentions: options and state are guarded on
        by the optimizer itself, unless the user's code reads them."""
        self.watch_methods(type(holder), _METHODS_OF_OPTIMIZERS)
        if self.is_dynamic and type(mapping) is dict:
            self.watch_keys(mapping, name, self.guards)
        for key in self.names:
            is_watched = key in mapping or key in self.appearing_names
            if is_watched or key in _METHODS_OF_OPTIMIZERS:
                self.push(self.note(f"{name}.{key}", mapping, key), f"{name}.{key}")
        for held in (*map(mapping.get, ("_step_pre", "_step_post")), *_optimizer_hooks()):
            self.push(held, f"the hooks of {name}")

    def visit_class(self, value: Any, name: str) -> None:
        self.note_exception(value)
        self.reads_registers = self.reads_registers or is_a(value, ABCMeta)
        # Whether an object is an instance of a protocol is found by looking at all attributes.
        self.is_dynamic: bool = self.is_dynamic or bool(vars(value).get("_is_protocol"))
        if not is_users_module(value.__module__):
            if not issubclass(value, BaseException):
                self.check_library(str(value.__module__), value.__name__)
            return
        self._called.update(id(base) for base in value.__mro__)
        self.visit_bases(value)

    def visit_class_of(self, value: object) -> None:
        """The class of an object that exists: its methods without its constructor."""
        if is_users_module(type(value).__module__):
            self.visit_bases(type(value))
        else:
            self.push(type(value), type(value).__name__)

    def visit_bases(self, value: type) -> None:
        for base in value.__mro__:
            if id(base) not in self._classes and is_users_module(base.__module__):
                self._classes.add(id(base))
                self.note(f"the bases of {base.__qualname__}", base, "__mro__")
                mapping = vars(base)
                self.class_of[id(mapping)] = base
                self._owners.append((mapping, base.__qualname__, base))
                self.push(mapping.get("_member_map_"), base.__qualname__)  # of an enumeration
        if type(value) is not type:
            self.push(type(value), type(value).__name__)

    def visit_attributes(self, mapping: Mapping[str, object], name: str, holder: Any) -> None:
        """Visit the entries that the code mentions; all if it may reach others."""
        if is_a(holder, ModuleType) and not is_users_module(holder.__name__):
            self.visit_library(mapping, name, holder)
            return
        if is_a(holder, threading.local):
            self.visit_thread_local(holder, name)
            return
        if "param_groups" in mapping and not is_a(holder, type):
            self.visit_options(mapping, name, holder)
            return
        if is_a(holder, FunctionType):
            for key in _NAMES_OF_FUNCTIONS & self.names:
                self.push(self.note(f"{name}.{key}", holder, key), f"{name}.{key}")
            return
        is_module = "_parameters" in mapping
        is_class, is_python_module = is_a(holder, type), is_a(holder, ModuleType)
        if (is_class or is_python_module) and is_installed(
            holder.__module__ if is_class else holder.__name__
        ):
            self.visit_installed(mapping, name)
            return
        if self.is_dynamic and isinstance(mapping, MappingProxyType):
            self.watch_names(mapping, name)
        is_users = type(mapping) is dict and not (is_module or is_a(holder, ModuleType))
        if self.is_dynamic and is_users:
            self.visit_container(mapping, name)
            return
        if type(mapping) is dict and (
            is_module or is_users_module(type(holder).__module__)
            or (self.is_dynamic and is_a(holder, ModuleType))
        ):  # fmt: skip
            self.watch_keys(mapping, name, self.module_guards if is_module else self.guards)
        for key in list(mapping) if self.is_dynamic else self.names:
            if key not in mapping:
                owner = holder if is_a(holder, type) else type(holder)
                is_shadow = not is_a(holder, ModuleType) and class_has(owner, key)
                if is_shadow or key in self.appearing_names:  # may be there later
                    self.note(f"{name}.{key}", mapping, key)
                continue
            is_read = is_class and key in _NAMES_OF_CLASSES and key in self.names
            if (key in UNINTERESTING and not is_read) or (is_module and key in _TABLES):
                continue
            guards = self.module_guards if is_module else None
            self.push(self.note(f"{name}.{key}", mapping, key, guards), f"{name}.{key}")
        if is_module:  # options of layers, which the code of the engine reads
            for key in [key for key, held in mapping.items() if type(held) is float]:
                self.note(f"{name}.{key}", mapping, key, self.module_guards)
        if is_a(holder, type):
            for key in _NAMES & self.names:
                self.note(f"{name}.{key}", holder, key)
            for key, held in mapping.items():
                if self.is_entry_point(key, held, holder):
                    self.note(f"{name}.{key}", mapping, key)
                    self.push(held, f"{name}.{key}")

    def visit_installed(self, mapping: Mapping[str, object], name: str) -> None:
        """The members of a class or module of an installed library that the code mentions, the
        functions that have run, and if the code may reach others those that are data. Most of them
        are only named."""
        for key in list(mapping):
            held = mapping[key]
            function = function_of(held)
            is_used = key in self.names
            if function is not None:
                is_used = is_used or function.__code__ in self.ran
            elif self.is_dynamic and not is_used:
                is_users = is_users_module(type(held).__module__)
                is_used = is_users or is_a(held, (*_CONTAINERS, *PLAIN))
                is_used = is_used and not is_a(held, _NO_DATA)
            if is_used and key not in UNINTERESTING:
                self.push(self.note(f"{name}.{key}", mapping, key), f"{name}.{key}")

    def visit_thread_local(self, holder: object, name: str) -> None:
        """Watch the attributes of the calling thread, whichever that is."""
        if self.is_dynamic and isinstance(vars(holder), dict):
            names = ThreadNamesSlot(holder)
            if (id(holder), MISSING) not in self._noted:
                self._noted.add((id(holder), MISSING))
                self.guards.append(
                    StateGuard(f"the attributes of {name}", names, "names", names.names)
                )
        for key in list(vars(holder)) if self.is_dynamic else list(self.names):
            if key in vars(holder) or (not self.is_dynamic and not class_has(type(holder), key)):
                self.push(self.note(f"{name}.{key}", holder, key), f"{name}.{key}")

    def is_entry_point(self, key: str, held: object, owner: type) -> bool:
        """Whether a method may be called without being mentioned."""
        if key in _CONSTRUCTORS:
            return id(owner) in self._called or not _REACHES_CLASS.isdisjoint(self.names)
        is_special = key.startswith("__") and is_a(held, FunctionType)
        return (is_special and key not in UNINTERESTING) or key in _ENTRY_POINTS


# The libraries that convert numbers of a session to their values: others check types in C.
_TOLERANT = frozenset({
    "", "builtins", "math", "operator", "functools", "itertools", "collections", "contextlib",
    "typing", "dataclasses", "abc", "types", "enum", "evergrad", "numpy", "_collections", "_abc",
    "_operator", "_functools", "_collections_abc", "warnings", "weakref", "__future__", "os",
    "posixpath", "genericpath", "sys", "_contextvars", "logging",
})  # fmt: skip
# Functions that remember their results, by the types of arguments as well.
CACHED = type(functools.lru_cache(int))


def _cells_of(generator: object) -> list[object]:
    """The cells of a generator in the order of its free variables, where they can be found."""
    return [held for held in gc.get_referents(generator) if is_a(held, CellType)]


def is_harmless(kind: type) -> bool:
    """Whether objects of a built-in class hold nothing that changes."""
    return kind in _HARMLESS_KINDS or kind.__name__ == "PyCapsule"


def is_stateful(base: type) -> bool:
    """Whether a base is a class of a library whose methods may read attributes of the instance, and
    that does not guard on these itself."""
    module = str(base.__module__)
    root = module.partition(".")[0]
    if is_users_module(module) or module.startswith(_SELF_GUARDED) or root in MODULES:
        return False
    return root not in _STATELESS_MODULES and base.__name__ not in _STATELESS_CLASSES


def class_has(kind: type, name: str) -> bool:
    """Whether a class has an attribute; no descriptor of the user's is run to find that."""
    metaclass: type = type(kind)
    return any(name in vars(base) for held in (kind, metaclass) for base in held.__mro__)


_TUPLE_FIELD = type(vars(namedtuple("_Fields", "field"))["field"])
_DESCRIPTORS = (_TUPLE_FIELD, GetSetDescriptorType,
                MemberDescriptorType, WrapperDescriptorType, CellType,
                operator.itemgetter, operator.attrgetter, operator.methodcaller)  # fmt: skip
# Members of classes and modules that are no data.
_NO_DATA = (*_DESCRIPTORS, types.MethodDescriptorType, types.ClassMethodDescriptorType,
            BuiltinFunctionType, FunctionType, staticmethod, classmethod, property, type,
            ModuleType)  # fmt: skip


def slots_of_class(kind: type) -> tuple[str, ...]:
    """The attributes of instances that a class has slots for."""
    held = vars(kind).get("__slots__", ())
    slots = (held,) if is_a(held, str) else tuple(held)
    private = f"_{kind.__name__.lstrip('_')}"
    named = [f"{private}{s}" if s.startswith("__") and not s.endswith("__") else s for s in slots]
    return tuple(s for s in named if s not in ("__dict__", "__weakref__"))
