"""Nodes and graphs: a program as a list of calls."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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


class Node:
    """One step: a placeholder, a parameter, a call of a function, method or module, the output."""

    target: Target
    op: str
    name: str
    graph: Graph

    def __init__(
        self, graph: Graph, name: str, op: str, target: Target, args: tuple[object, ...],
        kwargs: dict[str, object], type_expr: object = None,
    ) -> None:  # fmt: skip
        self.graph, self.name, self.op, self.target = graph, name, op, target
        self.type = type_expr
        self.meta: dict[str, Any] = {}
        self.users: dict[Node, None] = {}
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
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
    def next(self) -> Node:
        return self.graph._nodes[self.graph._nodes.index(self) + 1]

    @property
    def prev(self) -> Node:
        return self.graph._nodes[self.graph._nodes.index(self) - 1]

    def prepend(self, x: Node) -> None:
        """Move ``x`` before this node."""
        self.graph._nodes.remove(x)
        self.graph._nodes.insert(self.graph._nodes.index(self), x)

    def append(self, x: Node) -> None:
        """Move ``x`` behind this node."""
        self.graph._nodes.remove(x)
        self.graph._nodes.insert(self.graph._nodes.index(self) + 1, x)

    def replace_all_uses_with(
        self, replace_with: Node, *args: object, **kwargs: object
    ) -> list[Node]:
        """Let every user take another node in place of this one."""
        users = list(self.users)
        for user in users:
            user.replace_input_with(self, replace_with)
        return users

    def replace_input_with(self, old_input: Node, new_input: object) -> None:
        def exchange(node: Node) -> Any:
            return new_input if node is old_input else node

        self._set(map_arg(self._args, exchange), map_arg(self._kwargs, exchange))

    def update_arg(self, idx: int, arg: object) -> None:
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def update_kwarg(self, key: str, arg: object) -> None:
        self.kwargs = {**self._kwargs, key: arg}

    def is_impure(self, impure_random: bool = True) -> bool:
        return self.op in ("placeholder", "output")

    def format_node(self) -> str:
        """The step as one line."""
        if self.op == "placeholder":
            return (
                f"%{self.name} : [num_users={len(self.users)}] = placeholder[target={self.target}]"
            )
        if self.op == "output":
            return f"return {self.args[0]}"
        target = getattr(self.target, "__name__", self.target)
        return (
            f"%{self.name} : [num_users={len(self.users)}] = {self.op}[target={target}]"
            f"(args = {self.args}, kwargs = {self.kwargs})"
        )

    def __repr__(self) -> str:
        return self.name


class Graph:
    """A list of nodes that ends with an output."""

    def __init__(
        self, owning_module: object = None, tracer_cls: object = None, **options: object
    ) -> None:
        self._nodes: list[Node] = []
        self._names: set[str] = set()
        self._place: Node | None = None
        self.owning_module = owning_module
        self._tracer_cls = tracer_cls

    @property
    def nodes(self) -> NodeList:
        return NodeList(self._nodes)

    def find_nodes(self, *, op: str, target: object = None, sort: bool = True) -> list[Node]:
        return [n for n in self._nodes if n.op == op and target in (None, n.target)]

    def _free_name(self, candidate: str) -> str:
        name = "".join(c if c.isalnum() or c == "_" else "_" for c in candidate).strip() or "_"
        name = f"_{name}" if name[0].isdigit() else name
        taken = self._names
        if keyword.iskeyword(name) or hasattr(builtins, name) or name in taken:
            number = 1
            while f"{name}_{number}" in taken:
                number += 1
            name = f"{name}_{number}"
        taken.add(name)
        return name

    def create_node(
        self, op: str, target: Target, args: tuple[object, ...] | None = None,
        kwargs: dict[str, object] | None = None, name: str | None = None, type_expr: object = None,
    ) -> Node:  # fmt: skip
        """Add a step behind the last one, or where ``inserting_before`` says."""
        stem = name or (target if isinstance(target, str) else getattr(target, "__name__", op))
        made = Node(
            self, self._free_name(str(stem)), op, target, args or (), kwargs or {}, type_expr
        )
        place = len(self._nodes) if self._place is None else self._nodes.index(self._place)
        self._nodes.insert(place, made)
        return made

    def placeholder(self, name: str, type_expr: object = None, default_value: object = ...) -> Node:
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: object = None) -> Node:
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_function(
        self, the_function: Callable[..., Any], args: Any = None, kwargs: Any = None,
        type_expr: Any = None, name: str | None = None,
    ) -> Node:  # fmt: skip
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def call_method(
        self, method_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None
    ) -> Node:
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_module(
        self, module_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None
    ) -> Node:
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def output(self, result: object, type_expr: object = None) -> Node:
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def output_node(self) -> Node:
        return next(n for n in reversed(self._nodes) if n.op == "output")

    def erase_node(self, to_erase: Node) -> None:
        """Take a step out that no other one uses."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in "
                f"the graph: {list(to_erase.users)}!"
            )
        to_erase._set((), {})
        self._nodes.remove(to_erase)

    @contextmanager
    def _inserting(self, place: Node | None) -> Iterator[None]:
        former, self._place = self._place, place
        try:
            yield
        finally:
            self._place = former

    def inserting_before(self, n: Node | None = None) -> Any:
        return self._inserting(n if n is not None else (self._nodes[0] if self._nodes else None))

    def inserting_after(self, n: Node | None = None) -> Any:
        place = -1 if n is None else self._nodes.index(n)
        following = self._nodes[place + 1] if place + 1 < len(self._nodes) else None
        return self._inserting(following)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], object] = lambda x: x) -> Node:
        """A copy of a step of another graph."""
        args = map_arg(node.args, arg_transform)
        kwargs = map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(
        self, g: Graph, val_map: dict[Node, object], return_output_node: bool = False
    ) -> Any:
        """Copy the steps of another graph here; gives what its output becomes."""
        for node in g._nodes:
            if node in val_map:
                continue
            if node.op == "output":
                found = map_arg(node.args[0], lambda n: val_map[n])
                return (found, node) if return_output_node else found
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def eliminate_dead_code(self, is_impure_node: object = None) -> bool:
        """Take steps out whose results are not used."""
        before = len(self._nodes)
        for node in reversed(list(self._nodes)):
            if not node.users and not node.is_impure():
                self.erase_node(node)
        return len(self._nodes) != before

    def lint(self) -> None:
        """Raise if a step uses one that does not come before it."""
        seen: set[Node] = set()
        for node in self._nodes:
            for source in node.all_input_nodes:
                if source not in seen:
                    raise RuntimeError(
                        f"Argument '{source}' of Node '{node}' was used before it has been defined!"
                    )
            seen.add(node)

    def python_code(self, root_module: str = "self", **options: object) -> Any:
        raise NotImplementedError("evergrad interprets graphs and writes no source code for them")

    def __deepcopy__(self, memo: dict[int, object]) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls)
        found, node = made.graph_copy(self, {}, True) or (None, None)
        if node is not None:
            made.output(found, node.type)
        memo[id(self)] = made
        return made

    def __str__(self) -> str:
        return "graph():\n    " + "\n    ".join(node.format_node() for node in self._nodes)

    def print_tabular(self) -> None:
        print(self)


class NodeList:
    """The steps in order; a view that stays valid while steps are added and removed."""

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes

    def __iter__(self) -> Iterator[Node]:
        return iter(list(self._nodes))

    def __reversed__(self) -> Iterator[Node]:
        return iter(list(reversed(self._nodes)))

    def __len__(self) -> int:
        return len(self._nodes)
