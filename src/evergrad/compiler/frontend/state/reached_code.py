"""Functions, libraries and the names that code mentions, as the walk over Python state reaches
them."""

from __future__ import annotations

import builtins
import importlib.util
import sys
import weakref
from abc import ABCMeta
from collections.abc import Collection, Iterable, Mapping
from contextvars import ContextVar
from types import FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

from evergrad.compiler.frontend.guards.identity_guards import MISSING
from evergrad.compiler.frontend.numbers.number_functions import BUILTINS
from evergrad.compiler.frontend.recording import impure
from evergrad.compiler.frontend.state.code_reads import (
    LIBRARIES,
    PURE_MODULES,
    appearing_names_of,
    called_names_of,
    compares_identity,
    global_names_of,
    handles_all_errors,
    handles_named_errors,
    is_users_module,
    matches_patterns,
    names_of,
    stores_attributes,
)
from evergrad.compiler.frontend.state.library_calls import is_installed
from evergrad.compiler.frontend.state.name_uses import GETTERS, OTHER_USE, Chain, uses_of
from evergrad.compiler.frontend.state.places import read_slot
from evergrad.compiler.frontend.state.raw_reads import is_a
from evergrad.compiler.frontend.state.reached_containers import ReachedContainers
from evergrad.compiler.frontend.state.settings_reads import (
    names_setting,
    reads_setting,
    writes_setting,
)

# Built-in functions with effects, or whose result depends on more than their arguments.
_EFFECTS = frozenset({
    "print", "input", "open", "exec", "eval", "compile", "__import__", "breakpoint", "globals",
    "locals",
})  # fmt: skip
# What is harmless in modules that are not pure.
_HARMLESS = {
    "os": frozenset({"path", "environ", "getenv", "sep", "fspath"}),
    "sys": frozenset({"maxsize", "float_info", "version_info", "platform", "byteorder", "argv"}),
    "threading": frozenset({"local"}),
    "logging": frozenset({"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"}),
    "warnings": frozenset({"catch_warnings", "simplefilter", "filterwarnings"}),
}
# Containers in modules of the standard library that are watched.
_WATCHED = {"sys": frozenset({"argv"})}
# Names that reach attributes without mentioning them: nothing is left out of the walk then.
_DYNAMIC = frozenset({"getattr", "vars", "__dict__", "dir", "setattr", "delattr", "hasattr",
                      "attrgetter", "__getattribute__", "__getattr__", "asdict", "fields",
                      "replace", "astuple", "deepcopy", "copy", "AttributeError", "getmembers",
                      "getmembers_static", "getattr_static", "pprint", "pformat",
                      "reduce_ex"})  # fmt: skip
# Methods of which Python checks that they return a number.
_CONVERSIONS = frozenset({
    "__float__", "__int__", "__index__", "__len__", "__length_hint__", "__hash__", "__bool__",
    "__complex__", "__sizeof__",
})  # fmt: skip
_COMPARISONS = ("__eq__", "__lt__", "__le__", "__gt__", "__ge__")
UNINTERESTING = frozenset({"__module__", "__dict__", "__weakref__", "__doc__", "__annotations__",
                            "__qualname__", "__builtins__", "__name__", "__file__", "__spec__",
                            "__loader__", "__package__", "__cached__", "__parameters__",
                            "__dataclass_fields__", "__dataclass_params__", "__match_args__",
                            "__orig_bases__", "__static_attributes__", "__firstlineno__",
                            "__annotate__", "__annotate_func__",
                            "__annotations_cache__"})  # fmt: skip


class ReachedCode(ReachedContainers):
    """The part of the walk that visits code."""

    def visit_function(self, function: Any, name: str) -> None:
        module = str(function.__globals__.get("__name__", ""))
        if not is_users_module(module):
            self.check_library(module, function.__name__)
            self.note_setting(function)
            is_engine = module.partition(".")[0] in LIBRARIES or module == "reprlib"
            for cell in function.__closure__ or ():  # it may wrap a function of the user's
                held = read_slot(cell, None)
                if module == "functools" and is_a(held, weakref.WeakKeyDictionary):
                    continue  # what singledispatch() has looked up in its register
                if not is_engine or is_a(held, (FunctionType, MethodType)):
                    self.push(held, name)
            self.push(function.__dict__.get("__wrapped__"), name)
            return
        if function.__code__ not in self.ran and is_installed(module):
            self.deferred[function.__code__] = function.__qualname__
            return
        title = f"{function.__qualname__}()"
        self.codes.add(function.__code__)
        self.note(f"the code of {title}", function, "__code__")
        for defaults in ("__defaults__", "__kwdefaults__"):
            held = self.note(f"the defaults of {title}", function, defaults)
            self.push(held, f"a default of {title}")
        self.visit_container(function.__dict__, f"an attribute of {title}")
        self._owners.append((MappingProxyType({}), title, function))
        if function.__name__ in _CONVERSIONS and not is_generated(function):
            self.converts_numbers = True
        names = names_of(function.__code__)
        # The setters that frozen dataclasses are given ask for the type of their instance.
        is_setter = is_generated(function) and function.__name__ in ("__setattr__", "__delattr__")
        self.add_names(names - {"type"} if is_setter else names)
        # The comparisons that dataclasses are given tell classes apart, and no instances.
        is_comparison = is_generated(function) and function.__name__ in _COMPARISONS
        if not is_comparison and compares_identity(function.__code__):
            self.compares_identity = True
        self.handles_named_errors |= handles_named_errors(function.__code__)
        self.handles_all_errors |= handles_all_errors(function.__code__)
        self.stores_attributes = self.stores_attributes or stores_attributes(function.__code__)
        self.appearing_names |= appearing_names_of(function.__code__)
        self.matches_patterns = self.matches_patterns or matches_patterns(function.__code__)
        has_own_getters = not GETTERS.isdisjoint(function.__globals__)
        uses = {} if has_own_getters else uses_of(function.__code__)
        for cell, variable in zip(
            function.__closure__ or (), function.__code__.co_freevars, strict=True
        ):
            held = self.note(f"{variable} in {title}", cell, None)
            self.push_used(held, f"{variable} in {title}", uses.get(variable, ()))
        table = function.__globals__
        for variable in global_names_of(function.__code__):
            self.visit_global(variable, table, title, uses.get(variable, ()))
            if variable in BUILTINS and variable not in table:
                known = self._builtins.get((id(table), variable), (table, True))[1]
                is_called = known and variable in called_names_of(function.__code__)
                self._builtins[id(table), variable] = table, is_called
        for variable, chains in uses.items():
            if variable.startswith("."):
                self.visit_relative_import(variable, table, chains)

    def calls_builtin(self, name: str) -> bool:
        return any(found == name for _, found in self.builtin_calls())

    def loads_builtin(self, name: str) -> bool:
        """Whether code uses a built-in function other than by calling it."""
        return any(key == name and not ok for (_, key), (_, ok) in self._builtins.items())

    def builtin_calls(self) -> list[tuple[dict[str, object], str]]:
        """Tables of globals and names of built-in functions that are only called."""
        return [(table, name) for (_, name), (table, ok) in self._builtins.items() if ok]

    def add_names(self, names: Iterable[str]) -> None:
        self.names.update(names)
        if not {"__annotations__", "get_type_hints", "get_annotations"}.isdisjoint(self.names):
            self.names |= {"__annotations__", "__annotations_cache__"}
        self.is_dynamic: bool = self.is_dynamic or not _DYNAMIC.isdisjoint(self.names)
        self.reads_environment: bool = self.reads_environment or bool(
            {"environ", "getenv"} & self.names
        )

    def visit_global(
        self, name: str, table: dict[str, object], title: str, chains: Collection[Chain] = ()
    ) -> None:
        """Visit a name that code looks up, by the chains of attributes that it reads of it."""
        held = table.get(name, MISSING)
        if held is not MISSING:
            held = self.note(f"{name} in {title}", table, name)
            self.push_used(held, f"{name} in {title}", chains)
        elif name in _EFFECTS and name != "print" and hasattr(builtins, name):
            self.give_up(f"{name}() is called in {title}")
        elif hasattr(builtins, name):
            self.note(f"{name} in {title}", table, name)
            self.push(self.note(f"{name} in {title}", vars(builtins), name), name)
        else:  # it may be set later
            self.note(f"{name} in {title}", table, name)
            if name in sys.modules:
                self.push_used(self.note(f"the module {name}", sys.modules, name), name, chains)

    def visit_relative_import(self, name: str, table: dict[str, object], chains: Any) -> None:
        package = str(table.get("__package__") or "")
        module = importlib.util.resolve_name(name, package) if package else ""
        if module in sys.modules:
            self.push_used(self.note(f"the module {module}", sys.modules, module), module, chains)

    def push_used(self, value: Any, name: str, chains: Collection[Chain]) -> None:
        """Visit a value of which code reads chains of attributes. Of a module no others are watched
        then."""
        is_module = type(value) is ModuleType and is_users_module(value.__name__)
        if not is_module or not chains or OTHER_USE in chains:
            self.push(value, name)
            return
        self.seen[id(value)] = value
        mapping = vars(value)
        for key, *rest in chains:
            held = self.note(f"{value.__name__}.{key}", mapping, key)
            if held is MISSING:  # may be loaded when it is read
                held = self.note(f"{value.__name__}.__getattr__", mapping, "__getattr__")
            self.push_used(held, f"{value.__name__}.{key}", (tuple(rest),))

    def visit_method(self, method: Any, name: str) -> None:
        self.push(method.__func__, name)
        self.push(method.__self__, name)

    def visit_partial(self, value: object, name: str) -> None:
        for part in ("func", "args", "keywords"):  # __setstate__ replaces them
            self.push(self.note(f"{name}.{part}", value, part), name)
        self._owners.append((value.__dict__, name, value))

    def visit_wrapped(self, value: Any, name: str) -> None:
        self.push(value.__func__, name)

    def visit_cell(self, value: object, name: str) -> None:
        self.push(self.note(name, value, None), name)

    def visit_property(self, value: Any, name: str) -> None:
        for function in (value.fget, value.fset, value.fdel):
            self.push(function, name)

    def visit_cached_property(self, value: Any, name: str) -> None:
        self.push(value.func, name)

    def visit_builtin(self, function: Any, name: str) -> None:
        owner = function.__self__
        if is_a(owner, ModuleType) or owner is None:
            if function not in self.ran and is_installed(function.__module__):
                self.deferred[function] = function.__name__
                return
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

    def note_setting(self, function: object) -> None:
        """Guard on the setting that a function of a library returns; one that writes a setting is
        not repeated by programs."""
        if not isinstance(function, FunctionType):
            return
        if reads_setting(function):
            self.settings[function.__name__] = function
        elif writes_setting(function):
            self.give_up(f"{function.__name__}() is called")
        elif "autocast" in function.__name__:  # of a device that is given
            for variable in global_names_of(function.__code__):
                held = function.__globals__.get(variable)
                if isinstance(held, ContextVar):
                    self.push(held, variable)

    def visit_module(self, module: ModuleType, name: str) -> None:
        self._owners.append((vars(module), f"module {module.__name__}", module))

    def visit_library(self, mapping: Mapping[str, object], name: str, module: ModuleType) -> None:
        """Watch the names of a library that the code mentions: they may be patched."""
        root = module.__name__.partition(".")[0]
        used = [key for key in self.names if key in mapping and key not in UNINTERESTING]
        others = [key for key in used if not impure.is_function(mapping[key])]
        if others or (used and root == "numpy"):
            self.libraries.add(root)
        for key in others:
            if root in ("random", "numpy") and key in impure.MAKES_SOURCES:
                self.give_up(f"{key}() makes a source of random numbers")
        if root not in LIBRARIES and root not in PURE_MODULES:
            harmless = _HARMLESS.get(root, frozenset())
            if any(key not in harmless for key in others):
                self.give_up(f"the module {module.__name__} is used")
        if root == "evergrad":  # some of its names are loaded when they are first read
            for key in filter(names_setting, self.names.difference(used)):
                self.note_setting(getattr(module, key, None))
        for key in used:
            held = self.note(f"{name}.{key}", mapping, key)
            self.note_setting(held)
            self.reads_registers = self.reads_registers or is_a(held, ABCMeta)
            self.note_exception(held)
            if is_a(held, ModuleType) or key in _WATCHED.get(root, ()):
                self.push(held, f"{name}.{key}")


def is_generated(function: FunctionType) -> bool:
    """Whether a method was generated from text, as those of dataclasses are."""
    return function.__code__.co_filename == "<string>"
