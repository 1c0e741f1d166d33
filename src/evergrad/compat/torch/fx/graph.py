"""Graphs: programs as lists of nodes that can be edited and printed."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .codegen import CodeGen, PythonCode, python_code
from .node import Node, Target, map_arg

_NUMBERED = re.compile(r"^([a-zA-Z_][0-9a-zA-Z_]*?)(?:_(\d+))?$")


class Namespace:
    """Names of steps, each given once; none hides a builtin."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._counts: dict[str, int] = {}

    def create_name(self, candidate: str, obj: object = None) -> str:
        name = candidate
        if _NUMBERED.match(name) is None:
            name = re.sub("[^0-9a-zA-Z_]+", "_", name) or "_unnamed"
            name = f"_{name}" if name[0].isdigit() else name
        match = _NUMBERED.match(name)
        assert match is not None
        base, suffix = match.group(1, 2)
        if suffix is None or name in self._used:
            number = self._counts.get(base, 0)
            if keyword.iskeyword(name) or hasattr(builtins, name) or name in ("inf", "nan"):
                number += 1
                name = f"{base}_{number}"
        else:
            number = int(suffix)
        while name in self._used:
            number += 1
            name = f"{base}_{number}"
        self._used.add(name)
        self._counts[base] = number
        return name


class Graph:
    """A list of nodes that ends with an output."""

    def __init__(
        self, owning_module: object = None, tracer_cls: object = None, **options: object
    ) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._before = self._root  # new steps are linked before this one
        self._names = Namespace()
        self._codegen = CodeGen()
        self._len = 0
        self.owning_module = owning_module
        self._tracer_cls = tracer_cls

    @property
    def nodes(self) -> NodeList:
        return NodeList(self)

    def find_nodes(self, *, op: str, target: object = None, sort: bool = True) -> list[Node]:
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    def create_node(
        self, op: str, target: Target, args: tuple[object, ...] | None = None,
        kwargs: dict[str, object] | None = None, name: str | None = None, type_expr: object = None,
    ) -> Node:  # fmt: skip
        """Add a step behind the last one, or where ``inserting_before`` says."""
        stem = self._names.create_name(name or _stem(op, target))
        made = Node(self, stem, op, target, args or (), kwargs or {}, type_expr)
        self._before.prepend(made)
        self._len += 1
        return made

    def placeholder(self, name: str, type_expr: object = None, default_value: object = ...) -> Node:
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: object = None) -> Node:
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_function(
        self, the_function: Callable[..., object], args: Any = None, kwargs: Any = None,
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
        return next(n for n in reversed(self.nodes) if n.op == "output")

    def erase_node(self, to_erase: Node) -> None:
        """Take a step out that no other one uses."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in "
                f"the graph: {to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            return
        to_erase._set((), {})
        to_erase._unlink()
        to_erase._erased = True
        self._len -= 1

    @contextmanager
    def _inserting(self, place: Node) -> Iterator[None]:
        if place.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        former, self._before = self._before, place
        try:
            yield
        finally:
            self._before = former

    def inserting_before(self, n: Node | None = None) -> Any:
        return self._inserting(self._root._next if n is None else n)

    def inserting_after(self, n: Node | None = None) -> Any:
        """Within the context, steps are added behind a node, the later ones behind the former."""
        return self._inserting((self._root if n is None else n)._next)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], object] = lambda x: x) -> Node:
        """A copy of a step of another graph."""
        args = map_arg(node.args, arg_transform)
        kwargs = map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False
    ) -> Any:
        """Copy the steps of another graph here; gives what its output becomes."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                found = map_arg(node.args[0], lambda n: val_map[n])
                return (found, node) if return_output_node else found
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Take steps out whose results are not used."""
        keeps = is_impure_node or Node.is_impure
        before = self._len
        for node in reversed(self.nodes):
            if not node.users and not keeps(node):
                self.erase_node(node)
        return self._len != before

    def lint(self) -> None:
        """Raise if a step uses one that does not come before it, or a module is missing."""
        seen: set[Node] = set()
        names: set[str] = set()
        for node in self.nodes:
            for source in node.all_input_nodes:
                if source.graph is not self:
                    raise RuntimeError(
                        f"Argument '{source}' of Node '{node}' does not belong to this Graph, but "
                        "was used as an argument! If you are copying nodes from another graph, "
                        "make sure to use ``arg_transform`` on node_copy() to remap values"
                    )
                if source not in seen:
                    raise RuntimeError(
                        f"Argument '{source}' of Node '{node}' was used before it has been "
                        f"defined! Please check that Nodes in the graph are topologically "
                        f"ordered\n{self}"
                    )
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            seen.add(node)
            names.add(node.name)
            if node.op in ("call_module", "get_attr") and self.owning_module is not None:
                self._find_target(node)

    def _find_target(self, node: Node) -> None:
        place: Any = self.owning_module
        for name in str(node.target).split("."):
            if not hasattr(place, name):
                raise RuntimeError(
                    f"Node {node} target {node.target} references nonexistent attribute {name}"
                )
            place = getattr(place, name)

    def python_code(self, root_module: str = "self", **options: object) -> PythonCode:
        """Python source text with the meaning of the graph."""
        return python_code(self.nodes, root_module, self._codegen)

    def set_codegen(self, codegen: CodeGen) -> None:
        self._codegen = codegen

    def on_generate_code(self, make_transformer: Callable[[Any], object]) -> None:
        """Accepted: graphs are interpreted, so that no source is transformed."""

    def __deepcopy__(self, memo: dict[int, object]) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls)
        copies: dict[Node, Node] = {}
        found = made.graph_copy(self, copies, True)
        if found is not None:
            result, node = found
            made.output(result, node.type).meta = dict(node.meta)
        memo[id(self)] = made
        return made

    def __getstate__(self) -> Any:
        return [
            (n.name, n.op, n.target, map_arg((n.args, n.kwargs), _Reference), n.type)
            for n in self.nodes
        ]

    def __setstate__(self, steps: Any) -> None:
        Graph.__init__(self)
        made: dict[str, Node] = {}
        for name, op, target, arguments, kind in steps:
            args, kwargs = _restored(arguments, made)
            made[name] = self.create_node(op, target, args, kwargs, name, kind)

    def __str__(self) -> str:
        lines = "".join(f"\n    {node.format_node()}" for node in self.nodes)
        return f"graph():{lines}"

    def print_tabular(self) -> None:
        """Print the steps in columns."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [(n.op, n.name, str(n.target), str(n.args), str(n.kwargs)) for n in self.nodes]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rows.insert(1, tuple("-" * width for width in widths))  # type: ignore[arg-type]
        for row in rows:
            print("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())


class _Reference:
    """A node in a pickle, by its name."""

    def __init__(self, node: Node) -> None:
        self.name = node.name


def _restored(value: object, made: dict[str, Node]) -> Any:
    if isinstance(value, _Reference):
        return made[value.name]
    if isinstance(value, (tuple, list)):
        members = [_restored(v, made) for v in value]
        return type(value)(*members) if hasattr(value, "_fields") else type(value)(members)
    if isinstance(value, dict):
        return {k: _restored(v, made) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*(_restored(v, made) for v in (value.start, value.stop, value.step)))
    return value


def _stem(op: str, target: object) -> str:
    """The name that a step is given for its target."""
    name = target if isinstance(target, str) else getattr(target, "__name__", op)
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


class NodeList:
    """The steps in order; it may be edited while it is iterated over."""

    def __init__(self, graph: Graph, is_reversed: bool = False) -> None:
        self._graph, self._is_reversed = graph, is_reversed

    def __iter__(self) -> Iterator[Node]:
        root = self._graph._root
        node = root._prev if self._is_reversed else root._next
        while node is not root:
            if not node._erased:
                yield node
            node = node._prev if self._is_reversed else node._next

    def __reversed__(self) -> NodeList:
        return NodeList(self._graph, not self._is_reversed)

    def __len__(self) -> int:
        return self._graph._len
