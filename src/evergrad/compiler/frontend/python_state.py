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

import builtins
import decimal
import fractions
import functools
import io
import operator
import random
import re
import sys
import types
import weakref
from collections import deque, namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

from evergrad.compiler.frontend import impure
from evergrad.compiler.frontend.code_reads import (
    LIBRARIES,
    PURE_MODULES,
    called_names_of,
    compares_identity,
    global_names_of,
    is_effectful_module,
    is_users_module,
    matches_patterns,
    names_of,
)
from evergrad.compiler.frontend.identity_guards import MISSING
from evergrad.compiler.frontend.number_functions import BUILTINS, is_number_function
from evergrad.compiler.frontend.places import (
    BUFFERS,
    PLAIN,
    ContextSlot,
    NamesSlot,
    ReferenceSlot,
    StateGuard,
    hook_counts,
    members_of,
    random_state,
    read_slot,
)
from evergrad.compiler.frontend.reached_state import ReachedState
from evergrad.core.dtypes import dtype
from evergrad.core.records import fields_of
from evergrad.core.storage import NO_ARRAY
from evergrad.core.tensor import Tensor

_IMMUTABLE = (*PLAIN, dtype, np.generic, np.dtype, np.ufunc, CodeType)
_TABLES = ("_parameters", "_buffers", "_modules")
# Arrays up to this size are compared by their elements; larger ones are opaque.
_ARRAY_BYTES = 1 << 16
# Longer containers are watched by their length alone.
_LONGEST = 10_000
# The most objects that are visited: a program that reaches more is run by Python.
_MOST_VISITED = 20_000
# Built-in functions with effects, or whose result depends on more than their arguments.
_EFFECTS = frozenset({
    "print", "input", "open", "exec", "eval", "compile", "__import__", "breakpoint", "globals",
    "locals", "id",
})  # fmt: skip
# Functions that read the file system.
_FILES = frozenset({"exists", "isfile", "isdir", "getsize", "getmtime", "abspath", "realpath",
                    "expanduser", "listdir", "getcwd"})  # fmt: skip
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
# What is harmless in modules that are not pure.
_HARMLESS = {
    "os": frozenset({"path", "environ", "getenv", "sep", "fspath"}),
    "sys": frozenset({"maxsize", "float_info", "version_info", "platform", "byteorder", "modules"}),
    "warnings": frozenset({"catch_warnings", "simplefilter", "filterwarnings"}),
}
# Names that reach attributes without mentioning them: nothing is left out of the walk then.
_DYNAMIC = frozenset({"getattr", "vars", "__dict__", "dir", "setattr", "delattr", "hasattr",
                      "attrgetter", "__getattribute__", "__getattr__", "asdict", "fields",
                      "replace", "astuple", "deepcopy", "copy", "AttributeError"})  # fmt: skip
# Methods that run when an object is made, and the names by which the class of an object is reached.
_CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__"})
_REACHES_CLASS = frozenset({"type", "__class__", *_CONSTRUCTORS})
_CONTAINERS = (list, dict, tuple, set, frozenset, deque)
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))


class PythonState(ReachedState):
    """The state that a function can read with some arguments, as it is before a call."""

    def __init__(
        self, function: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(args, kwargs or {})
        self.push(function, getattr(function, "__qualname__", type(function).__name__))
        self.push_arguments((args, kwargs or {}))
        self.walk()
        self._hooks = [hook_counts(t) for t in (*self.tensors, *self._arguments)]

    def push_arguments(self, tree: Any) -> None:
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
        if "type" in self.names or self.converts_numbers or not self.libraries <= _TOLERANT:
            return True
        return any(isinstance(held, CACHED) for held in self.seen.values())

    # -- the walk -------------------------------------------------------------------------------

    def push(self, value: Any, name: str) -> None:
        if (
            value is not MISSING
            and not isinstance(value, _IMMUTABLE)
            and id(value) not in self.seen
        ):
            self.seen[id(value)] = value
            self._waiting.append((value, name))

    def walk(self) -> None:
        while self._waiting:
            if len(self.seen) > _MOST_VISITED:
                self.give_up("the function reaches too many Python objects to watch")
                self._waiting.clear()
                return
            value, name = self._waiting.pop()
            self.visit(value, name)
            if not self._waiting:
                for mapping, owner, holder in self._owners:
                    self.visit_attributes(mapping, owner, holder)

    def give_up(self, reason: str) -> None:
        if self.opaque is None:
            self.opaque = reason

    def visit(self, value: Any, name: str) -> None:
        visitor = self.visitor(value)
        if visitor is not None:
            visitor(value, name)

    def visitor(self, value: Any) -> Callable[[Any, str], None] | None:
        """How a value is visited; ``None`` if it cannot change what a function does."""
        if isinstance(value, _CONTAINERS) and is_users_module(type(value).__module__):
            return self.visit_instance  # a subclass has methods and attributes of its own
        for kind, visitor in (
            (Tensor, self.visit_tensor), (FunctionType, self.visit_function),
            (MethodType, self.visit_method), (BuiltinFunctionType, self.visit_builtin),
            (functools.partial, self.visit_partial), (type, self.visit_class),
            (ModuleType, self.visit_module), (_CONTAINERS, self.visit_container),
            (np.ndarray, self.visit_array), (BUFFERS, self.visit_buffer),
            (_VIEWS, self.visit_view), (MappingProxyType, self.visit_proxy),
            ((staticmethod, classmethod), self.visit_wrapped), (property, self.visit_property),
            (functools.cached_property, self.visit_cached_property),
            (ContextVar, self.visit_context_variable), (weakref.ref, self.visit_reference),
            ((random.Random, np.random.Generator, np.random.RandomState), self.visit_random),
        ):  # fmt: skip
            if isinstance(value, kind):
                return visitor
        if isinstance(value, (operator.attrgetter, operator.methodcaller)):
            self.is_dynamic = True
        if isinstance(value, _DESCRIPTORS):
            return None
        return self.visit_instance

    def note(self, name: str, holder: Any, key: Any, guards: list[StateGuard] | None = None) -> Any:
        """Watch a slot; returns what it holds, if that is to be visited."""
        value = read_slot(holder, key)
        if (id(holder), key) not in self._noted:
            self._noted.add((id(holder), key))
            guard = StateGuard(name, holder, key, value)
            (self.guards if guards is None else guards).append(guard)
            if impure.is_replayable(value):
                self.note_replayable(guard)
            elif is_number_function(value):
                self.number_functions.append(guard)
        if impure.is_stand_in(value):
            self.give_up(f"{name} is called, and another thread is tracing it")
            return MISSING
        return MISSING if impure.is_replayable(value) else value

    def note_replayable(self, guard: StateGuard) -> None:
        self.replayable.append(guard)
        if impure.is_source(guard.value):
            self.visit_random(guard.value, guard.name)
        elif impure.is_draw(guard.value):
            self.visit_random(getattr(guard.value, "__self__", np.random), guard.name)

    # -- code -----------------------------------------------------------------------------------

    def visit_function(self, function: Any, name: str) -> None:
        module = str(function.__globals__.get("__name__", ""))
        if not is_users_module(module):
            self.check_library(module, function.__name__)
            is_engine = module.partition(".")[0] in LIBRARIES or module == "reprlib"
            for cell in function.__closure__ or ():  # it may wrap a function of the user's
                held = read_slot(cell, None)
                if not is_engine or isinstance(held, (FunctionType, MethodType)):
                    self.push(held, name)
            self.push(function.__dict__.get("__wrapped__"), name)
            return
        title = f"{function.__qualname__}()"
        self.note(f"the code of {title}", function, "__code__")
        for defaults in ("__defaults__", "__kwdefaults__"):
            held = self.note(f"the defaults of {title}", function, defaults)
            self.push(held, f"a default of {title}")
        if function.__dict__:
            self.visit_container(function.__dict__, f"an attribute of {title}")
        if function.__name__ in _CONVERSIONS and not is_generated(function):
            self.converts_numbers = True
        names = names_of(function.__code__)
        # The setters that frozen dataclasses are given ask for the type of their instance.
        is_setter = is_generated(function) and function.__name__ in ("__setattr__", "__delattr__")
        self.add_names(names - {"type"} if is_setter else names)
        self.compares_identity = self.compares_identity or compares_identity(function.__code__)
        self.matches_patterns = self.matches_patterns or matches_patterns(function.__code__)
        for cell, variable in zip(
            function.__closure__ or (), function.__code__.co_freevars, strict=True
        ):
            held = self.note(f"{variable} in {title}", cell, None)
            self.push(held, f"{variable} in {title}")
        table = function.__globals__
        for variable in global_names_of(function.__code__):
            self.visit_global(variable, table, title)
            if variable in BUILTINS and variable not in table:
                known = self._builtins.get((id(table), variable), (table, True))[1]
                is_called = known and variable in called_names_of(function.__code__)
                self._builtins[id(table), variable] = table, is_called

    def calls_builtin(self, name: str) -> bool:
        return any(found == name for _, found in self.builtin_calls())

    def builtin_calls(self) -> list[tuple[dict[str, Any], str]]:
        """Tables of globals and names of built-in functions that are only called."""
        return [(table, name) for (_, name), (table, ok) in self._builtins.items() if ok]

    def add_names(self, names: Iterable[str]) -> None:
        self.names.update(names)
        self.is_dynamic = self.is_dynamic or not _DYNAMIC.isdisjoint(self.names)
        self.reads_environment = self.reads_environment or bool({"environ", "getenv"} & self.names)

    def visit_global(self, name: str, table: dict[str, Any], title: str) -> None:
        held = table.get(name, MISSING)
        if held is not MISSING:
            self.push(self.note(f"{name} in {title}", table, name), f"{name} in {title}")
        elif name in _EFFECTS and name != "print" and hasattr(builtins, name):
            self.give_up(f"{name}() is called in {title}")
        elif hasattr(builtins, name):
            self.note(f"{name} in {title}", table, name)
            self.push(self.note(f"{name} in {title}", vars(builtins), name), name)
        elif name in sys.modules:
            self.push(self.note(f"the module {name}", sys.modules, name), name)

    def visit_method(self, method: Any, name: str) -> None:
        self.push(method.__func__, name)
        self.push(method.__self__, name)

    def visit_partial(self, value: Any, name: str) -> None:
        for part in (value.func, value.args, value.keywords):
            self.push(part, name)

    def visit_wrapped(self, value: Any, name: str) -> None:
        self.push(value.__func__, name)

    def visit_property(self, value: Any, name: str) -> None:
        for function in (value.fget, value.fset, value.fdel):
            self.push(function, name)

    def visit_cached_property(self, value: Any, name: str) -> None:
        self.push(value.func, name)

    def visit_builtin(self, function: Any, name: str) -> None:
        owner = function.__self__
        if isinstance(owner, ModuleType) or owner is None:
            self.check_library(str(function.__module__ or ""), function.__name__)
        else:
            self.push(owner, name)

    def check_library(self, module: str, name: str) -> None:
        """Functions of the standard library and of extension modules may have effects."""
        root = module.partition(".")[0]
        self.libraries.add(root)
        if root in ("random", "numpy") and name in impure.MAKES_SOURCES:
            self.give_up(f"{name}() makes a source of random numbers")
        if root in LIBRARIES or root in PURE_MODULES:
            return
        if root == "builtins":
            if name in _EFFECTS:
                self.give_up(f"{name}() is called")
            return
        if name not in _HARMLESS.get(root, ()):
            self.give_up(f"{name}() of the module {module or 'of an extension'} is called")

    def visit_module(self, module: Any, name: str) -> None:
        self._owners.append((vars(module), f"module {module.__name__}", module))

    def visit_library(self, mapping: Mapping[str, Any], name: str, module: ModuleType) -> None:
        """Watch the names of a library that the code mentions: they may be patched."""
        root = module.__name__.partition(".")[0]
        used = [key for key in self.names if key in mapping and key not in _UNINTERESTING]
        others = [key for key in used if not impure.is_function(mapping[key])]
        if others:
            self.libraries.add(root)
        for key in others:
            if root in ("random", "numpy") and key in impure.MAKES_SOURCES:
                self.give_up(f"{key}() makes a source of random numbers")
        if root not in LIBRARIES and root not in PURE_MODULES:
            harmless = _HARMLESS.get(root, frozenset())
            if any(key not in harmless for key in others) or not _FILES.isdisjoint(self.names):
                self.give_up(f"the module {module.__name__} is used")
        for key in used:
            held = self.note(f"{name}.{key}", mapping, key)
            if isinstance(held, ModuleType):
                self.push(held, held.__name__)

    # -- objects --------------------------------------------------------------------------------

    def visit_tensor(self, tensor: Any, name: str) -> None:
        if tensor.__dict__:
            self.visit_container(tensor.__dict__, f"an attribute of {name}")
        if tensor._value is not NO_ARRAY:
            self.tensors.append(tensor)
        leaf = tensor._leaf
        if leaf is not None:
            self.push(leaf.accumulated, f"the hooks of {name}")
            self.visit_hooks(leaf.hooks, name)

    def visit_hooks(self, hooks: Any, name: str) -> None:
        """Visit the functions in tables of hooks."""
        for table in () if hooks is None else _slots_of(type(hooks)):
            held = getattr(hooks, table)
            if isinstance(held, dict):
                self.push(held, f"the hooks of {name}")

    def visit_instance(self, value: Any, name: str) -> None:
        kind = type(value)
        own = getattr(value, "__dict__", None)
        root = kind.__module__.partition(".")[0]
        if hasattr(kind, "__next__") and not isinstance(kind.__next__, FunctionType):
            self.give_up(f"{name} is an iterator")
        elif own is not None and "__wrapped__" in own:  # such as a compiled function
            self.push(own["__wrapped__"], name)
        elif isinstance(value, io.IOBase):
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
            self.give_up(f"{name} is a {kind.__name__}")
        elif type(own) is dict and not kind.__module__.startswith(_SELF_GUARDED):
            if "optimizer" in own:  # a schedule, which writes to the options
                self.add_names(("param_groups",))
                self.has_schedule = True
            self.push(own, name)
        elif own is None and root in ("builtins", "_thread") and kind not in _HARMLESS_KINDS:
            self.give_up(f"{name} is a {kind.__name__}")

    def visit_users_instance(self, value: Any, own: Any, name: str) -> None:
        self.visit_class_of(value)
        if type(own) is dict:
            self._owners.append((own, name, value))
        for base in type(value).__mro__:
            for slot in _slots_of(base):
                self.push(self.note(f"{name}.{slot}", value, slot), f"{name}.{slot}")
        if isinstance(value, (list, dict, set, deque)):
            self.visit_container(value, name)

    def visit_nn_module(self, module: Any, own: dict[str, Any], name: str) -> None:
        """Attributes, parameters and submodules: their changes are counted by modules themselves,
        so that their places are compared only if the count has changed."""
        self.visit_class_of(module)
        for table in _TABLES:
            members = list(members_of(own[table]))
            self.module_guards.append(StateGuard(f"{name}.{table}", own[table], MISSING, members))
            for key, held in own[table].items():
                self.push(held, f"{name}.{key}")
        self._owners.append((own, name, module))
        self.visit_hooks(own.get("_hooks"), name)
        for function, args in getattr(module, "functions_called", ()):
            self.push(function, f"a function of {name}")
            self.push(args, f"an argument of a function of {name}")

    def visit_options(self, mapping: Mapping[str, Any], name: str) -> None:
        """The attributes of an optimizer that the code mentions: options and state are guarded on
        by the optimizer itself, unless the user's code reads them."""
        for key in self.names:
            if key in mapping:
                self.push(self.note(f"{name}.{key}", mapping, key), f"{name}.{key}")
        for table in ("_step_pre", "_step_post"):
            self.push(mapping.get(table), f"the hooks of {name}")

    def visit_class(self, value: Any, name: str) -> None:
        if not is_users_module(value.__module__):
            if not issubclass(value, BaseException):
                self.check_library(value.__module__, value.__name__)
            return
        self._called.update(id(base) for base in value.__mro__)
        self.visit_bases(value)

    def visit_class_of(self, value: Any) -> None:
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
        if type(value) is not type:
            self.push(type(value), type(value).__name__)

    def visit_attributes(self, mapping: Mapping[str, Any], name: str, holder: Any) -> None:
        """Visit the entries that the code mentions; all if it may reach others."""
        if isinstance(holder, ModuleType) and not is_users_module(holder.__name__):
            self.visit_library(mapping, name, holder)
            return
        if "param_groups" in mapping and not isinstance(holder, type):
            self.visit_options(mapping, name)
            return
        is_module = "_parameters" in mapping
        if self.is_dynamic and isinstance(mapping, MappingProxyType):
            self.watch_names(mapping, name)
        is_users = type(mapping) is dict and not (is_module or isinstance(holder, ModuleType))
        if self.is_dynamic and is_users:
            self.visit_container(mapping, name)
            return
        for key in list(mapping) if self.is_dynamic else self.names:
            if key not in mapping:
                owner = holder if isinstance(holder, type) else type(holder)
                if not isinstance(holder, ModuleType) and hasattr(owner, key):
                    self.note(f"{name}.{key}", mapping, key)  # may be shadowed later
                continue
            if key in _UNINTERESTING or (is_module and key in _TABLES):
                continue
            guards = self.module_guards if is_module else None
            self.push(self.note(f"{name}.{key}", mapping, key, guards), f"{name}.{key}")
        if isinstance(holder, type):
            for key, held in mapping.items():
                if self.is_entry_point(key, held, holder):
                    self.note(f"{name}.{key}", mapping, key)
                    self.push(held, f"{name}.{key}")

    def is_entry_point(self, key: str, held: Any, owner: type) -> bool:
        """Whether a method may be called without being mentioned."""
        if key in _CONSTRUCTORS:
            return id(owner) in self._called or not _REACHES_CLASS.isdisjoint(self.names)
        is_special = key.startswith("__") and isinstance(held, FunctionType)
        return is_special or key in _ENTRY_POINTS

    def visit_container(self, value: Any, name: str) -> None:
        if isinstance(value, _FROZEN):
            for member in value:
                self.push(member, f"a member of {name}")
            return
        members = members_of(value) if len(value) <= _LONGEST else ()
        key = (id(value), MISSING)
        if key not in self._noted and len(value) <= _LONGEST:
            self._noted.add(key)
            self.guards.append(StateGuard(f"{name}", value, MISSING, list(members)))
        if type(value) in (list, dict) and any(map(impure.is_replayable, members)):
            self.visit_replayable(value, name)
            return
        for member in value if isinstance(value, (set, deque)) else members:
            self.push(member, f"a member of {name}")

    def visit_replayable(self, value: Any, name: str) -> None:
        """Visit a container that holds impure functions or objects."""
        for key, member in value.items() if type(value) is dict else enumerate(value):
            self.push(key, f"a key of {name}")
            if impure.is_replayable(member):
                if (id(value), key) not in self._noted:
                    self._noted.add((id(value), key))
                    self.note_replayable(StateGuard(f"a member of {name}", value, key, member))
            else:
                self.push(member, f"a member of {name}")

    def visit_array(self, value: Any, name: str) -> None:
        self.arrays.append(value)
        if value.nbytes > _ARRAY_BYTES:
            self.give_up(f"{name} is a NumPy array of {value.nbytes:,} bytes")
        else:
            self.guards.append(StateGuard(f"the elements of {name}", value, MISSING,
                                          list(members_of(value))))  # fmt: skip

    def visit_buffer(self, value: Any, name: str) -> None:
        members = list(members_of(value))
        self.guards.append(StateGuard(f"the elements of {name}", value, MISSING, members))

    def visit_view(self, value: Any, name: str) -> None:
        self.push(value.mapping, name)

    def visit_proxy(self, value: Any, name: str) -> None:
        members = [*value.keys(), *value.values()]
        self.guards.append(StateGuard(name, value, MISSING, members))
        for member in members:
            self.push(member, f"a member of {name}")

    def watch_names(self, mapping: Mapping[str, Any], name: str) -> None:
        """Watch which attributes a class has."""
        holder = NamesSlot(mapping)
        if (id(mapping), MISSING) not in self._noted:
            self._noted.add((id(mapping), MISSING))
            self.guards.append(
                StateGuard(f"the attributes of {name}", holder, "names", holder.names)
            )

    def visit_random(self, value: Any, name: str) -> None:
        self._random.append((value, random_state(value)))

    def visit_context_variable(self, value: Any, name: str) -> None:
        holder = ContextSlot(value)
        self.push(self.note(f"the context variable {value.name}", holder, "value"), value.name)

    def visit_reference(self, value: Any, name: str) -> None:
        """The referent is visited, but not kept alive."""
        self.note(f"whether the referent of {name} is alive", ReferenceSlot(value), "is_alive")
        referent = value()
        self.weakly_held.add(id(referent))
        self.push(referent, name)


# The libraries that convert numbers of a session to their values: others check types in C.
_TOLERANT = frozenset({
    "", "builtins", "math", "operator", "functools", "itertools", "collections", "contextlib",
    "typing", "dataclasses", "abc", "types", "enum", "evergrad", "numpy", "_collections", "_abc",
    "_operator", "_functools", "_collections_abc", "warnings", "weakref", "__future__",
})  # fmt: skip
# Methods of which Python checks that they return a number.
_CONVERSIONS = frozenset({
    "__float__", "__int__", "__index__", "__len__", "__length_hint__", "__hash__", "__bool__",
    "__complex__", "__sizeof__",
})  # fmt: skip
# Functions that remember their results, by the types of arguments as well.
CACHED = type(functools.lru_cache(int))


def is_generated(function: FunctionType) -> bool:
    """Whether a method was generated from text, as those of dataclasses are."""
    return function.__code__.co_filename == "<string>"


_TUPLE_FIELD = type(vars(namedtuple("_Fields", "field"))["field"])
_DESCRIPTORS = (_TUPLE_FIELD, GetSetDescriptorType,
                MemberDescriptorType, WrapperDescriptorType, CellType,
                operator.itemgetter, operator.attrgetter, operator.methodcaller)  # fmt: skip
_FROZEN = (tuple, frozenset)
_UNINTERESTING = frozenset({"__module__", "__dict__", "__weakref__", "__doc__", "__annotations__",
                            "__qualname__", "__builtins__", "__name__", "__file__", "__spec__",
                            "__loader__", "__package__", "__cached__", "__parameters__",
                            "__dataclass_fields__", "__dataclass_params__", "__match_args__",
                            "__orig_bases__", "__static_attributes__",
                            "__firstlineno__"})  # fmt: skip


def _slots_of(kind: type) -> tuple[str, ...]:
    held = vars(kind).get("__slots__", ())
    slots = (held,) if isinstance(held, str) else tuple(held)
    private = f"_{kind.__name__.lstrip('_')}"
    named = [f"{private}{s}" if s.startswith("__") and not s.endswith("__") else s for s in slots]
    return tuple(s for s in named if s not in ("__dict__", "__weakref__"))
