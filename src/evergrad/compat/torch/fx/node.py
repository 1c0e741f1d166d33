"""Nodes: the steps of a graph, linked in execution order."""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_origin

from evergrad.core.tensor import Tensor

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, Args

    from .graph import Graph

Argument = Any
Target = Any


def map_aggregate(a: object, fn: Callable[[Any], object]) -> Any:
    """The same tuples, lists, dictionaries and slices around ``fn`` of each other value."""
    if isinstance(a, tuple):
        made = [map_aggregate(x, fn) for x in a]
        return type(a)(*made) if hasattr(a, "_fields") else tuple(made)
    if isinstance(a, list):
        return [map_aggregate(x, fn) for x in a]
    if isinstance(a, dict):
        return {key: map_aggregate(value, fn) for key, value in a.items()}
    if isinstance(a, slice):
        return slice(*(map_aggregate(x, fn) for x in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a: object, fn: Callable[[Node], object]) -> Any:
    """:func:`map_aggregate` of the nodes only."""
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


def type_text(value: object) -> str:
    """A type as an annotation spells it."""
    if isinstance(value, type) and get_origin(value) is None:
        module = public_module(value)
        return value.__qualname__ if module == "builtins" else f"{module}.{value.__qualname__}"
    if value is ...:
        return "..."
    return value.__name__ if isinstance(value, types.FunctionType) else repr(value)


def public_module(value: object) -> str:
    """The module that programs import a function or class from."""
    module = getattr(value, "__module__", None) or ""
    if not module.startswith("evergrad"):
        return module
    if isinstance(value, type):
        return "torch" if issubclass(value, Tensor) else module.replace("evergrad", "torch", 1)
    return "torch.nn.functional" if module.startswith("evergrad.nn") else "torch"


def qualified_name(function: object) -> str:
    """The dotted name of a function that is called."""
    name = getattr(function, "__name__", None) or type(function).__name__
    if getattr(builtins, name, None) is function:
        return str(name)
    if isinstance(function, types.FunctionType) and vars(Tensor).get(name) is function:
        return f"torch.Tensor.{name}"
    return f"{public_module(function)}.{name}"


def _target_text(target: object) -> str:
    if isinstance(target, str):
        return target
    homes = {"builtins": "builtins", "_operator": "operator"}
    home = homes.get(getattr(target, "__module__", "") or "")
    return qualified_name(target) if home is None else f"{home}.{target.__name__}"  # type: ignore[attr-defined]


def _argument_text(value: object) -> str:
    """Arguments as graphs print them: nodes with a percent sign."""
    if isinstance(value, Node):
        return f"%{value.name}"
    if isinstance(value, tuple):
        members = ", ".join(map(_argument_text, value))
        return f"({members},)" if len(value) == 1 else f"({members})"
    if isinstance(value, list):
        return f"[{', '.join(map(_argument_text, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_argument_text(v)}" for k, v in value.items()) + "}"
    return str(value)


class Node:
    """One step: a placeholder, a parameter, a call of a function, method or module, the output."""

    target: Target
    op: str
    name: str
    graph: Graph

    def __init__(
        self, graph: Graph, name: str, op: str, target: Target, args: tuple[object, ...],
        kwargs: dict[str, object], return_type: object = None,
    ) -> None:  # fmt: skip
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self.type = return_type
        self.meta: dict[str, Any] = {}
        self.users: dict[Node, None] = {}
        self._prev = self._next = self
        self._erased = False
        self._args: Args = ()
        self._kwargs: dict[str, object] = {}
        self._set(args, kwargs)

    @property
    def args(self) -> tuple[Any, ...]:
        return self._args

    @args.setter
    def args(self, value: tuple[object, ...]) -> None:
        self._set(value, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value: dict[str, object]) -> None:
        self._set(self._args, value)

    def _set(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        for former in self.all_input_nodes:
            former.users.pop(self, None)
        self._args, self._kwargs = tuple(args), dict(kwargs)
        for source in self.all_input_nodes:
            source.users[self] = None

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once."""
        found: dict[Node, None] = {}
        map_arg((self._args, self._kwargs), lambda node: found.setdefault(node))
        return list(found)

    @property
    def stack_trace(self) -> str | None:
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    @property
    def next(self) -> Node:
        """The step behind this one; behind the last one, the root of the list."""
        return self._next

    @property
    def prev(self) -> Node:
        return self._prev

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    def prepend(self, x: Node) -> None:
        """Move ``x`` before this node."""
        if x is self:
            return
        x._unlink()
        former = self._prev
        former._next, x._prev, x._next, self._prev = x, former, self, x

    def append(self, x: Node) -> None:
        """Move ``x`` behind this node."""
        self._next.prepend(x)

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] = lambda user: True,
        *, propagate_meta: bool = False,
    ) -> list[Node]:  # fmt: skip
        """Let the users take another node in place of this one; all, or those selected."""
        if propagate_meta:
            replace_with.meta.update(self.meta)
        users = [user for user in self.users if delete_user_cb(user)]
        for user in users:
            user.replace_input_with(self, replace_with)
        return users

    def replace_input_with(self, old_input: Node, new_input: object) -> None:
        def exchange(node: Node) -> object:
            return new_input if node is old_input else node

        self._set(map_arg(self._args, exchange), map_arg(self._kwargs, exchange))

    def update_arg(self, idx: int, arg: object) -> None:
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: object) -> None:
        """Insert a positional argument at an index."""
        if not 0 <= idx <= len(self._args):
            raise AssertionError("insert_args index must be between 0 and len(self.args)")
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: object) -> None:
        self.kwargs = {**self._kwargs, key: arg}

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether a step is kept although nothing uses its result."""
        if self.op in ("placeholder", "output"):
            return True
        name = getattr(self.target, "__name__", "")
        if self.op == "call_function":
            return name in ("_assert", "setitem") or self.target in _side_effects
        if self.op == "call_method":
            return str(self.target).endswith("_") and not str(self.target).endswith("__")
        return False

    def format_node(self, *args: object, **options: object) -> str:
        """The step as one line."""
        kind = "" if self.type is None else f"{type_text(self.type)} "
        start = f"%{self.name} : {kind}[num_users={len(self.users)}] = {self.op}"
        if self.op == "placeholder":
            return f"{start}[target={self.target}]" + (
                f"(default={self.args[0]})" if self.args else ""
            )
        if self.op == "get_attr":
            return f"{start}[target={self.target}]"
        if self.op == "output":
            return f"return {self.args[0]}"
        return (
            f"{start}[target={_target_text(self.target)}](args = {_argument_text(self.args)}, "
            f"kwargs = {_argument_text(self.kwargs)})"
        )

    def __repr__(self) -> str:
        return self.name

    def __lt__(self, other: Node) -> bool:
        """Whether this step comes before another one."""
        node = self._next
        while node is not self.graph._root:
            if node is other:
                return True
            node = node._next
        return False


_side_effects: set[object] = set()


def has_side_effect(fn: Callable[..., object]) -> AnyFunction:
    """Keep the calls of a function although nothing uses their results."""
    _side_effects.add(fn)
    return fn
