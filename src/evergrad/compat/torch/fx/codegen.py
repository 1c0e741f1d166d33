"""The Python source text of a graph: to read and to print; graphs run in an interpreter."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from evergrad.core.tensor import Tensor

from .node import Node, public_module, qualified_name, type_text

_OPERATORS = {
    "eq": "{} == {}", "ne": "{} != {}", "lt": "{} < {}", "gt": "{} > {}", "le": "{} <= {}",
    "ge": "{} >= {}", "pos": "+{}", "neg": "-{}", "invert": "~{}", "add": "{} + {}",
    "sub": "{} - {}", "mul": "{} * {}", "floordiv": "{} // {}", "truediv": "{} / {}",
    "mod": "{} % {}", "pow": "{} ** {}", "lshift": "{} << {}", "rshift": "{} >> {}",
    "and_": "{} & {}", "or_": "{} | {}", "xor": "{} ^ {}", "getitem": "{}[{}]",
    "matmul": "{} @ {}",
}  # fmt: skip
_IN_PLACE = {
    "iadd": "{} += {}", "iand": "{} &= {}", "ifloordiv": "{} //= {}", "ilshift": "{} <<= {}",
    "imod": "{} %= {}", "imul": "{} *= {}", "imatmul": "{} @= {}", "ior": "{} |= {}",
    "ipow": "{} **= {}", "irshift": "{} >>= {}", "isub": "{} -= {}", "itruediv": "{} /= {}",
    "ixor": "{} ^= {}", "setitem": "{}[{}] = {}",
}  # fmt: skip


@dataclass
class PythonCode:
    """Source text, and the objects that its global names refer to."""

    src: str
    globals: dict[str, object] = field(default_factory=dict)


class CodeGen:
    """How the definition of ``forward`` begins; subclasses change it."""

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The first line."""
        named = free_vars if free_vars and free_vars[0] == "self" else ["self", *free_vars]
        return f"def forward({', '.join(named)}){maybe_return_annotation}:"

    def generate_output(self, output_args: object) -> str:
        return f"return {output_args}"


class _Writer:
    """Writes the steps of a graph one after the other."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.parameters: list[str] = []
        self.body: list[str] = []
        self.wrapped: dict[str, None] = {}
        self.globals: dict[str, object] = {}
        self.annotation = ""

    def global_name(self, function: object) -> str:
        name = qualified_name(function)
        module = public_module(function)
        if module == "torch" or module.startswith("torch."):
            return name
        made = name.replace(".", "_").replace("<", "_").replace(">", "_")
        self.globals[made] = function
        return made

    def text(self, value: object) -> str:
        if isinstance(value, Node):
            return value.name
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return f"{self.global_name(type(value))}{tuple(value)!r}"
        if isinstance(value, enum.Enum):
            return f"{type(value).__name__}.{value.name}"
        if isinstance(value, Tensor):
            kind = str(value.dtype).partition(".")[2]
            return f"torch.Tensor(size={list(value.shape)}, dtype={kind})"
        if isinstance(value, tuple):
            members = ", ".join(map(self.text, value))
            return f"({members},)" if len(value) == 1 else f"({members})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.text, value))}]"
        if isinstance(value, slice):
            return f"slice({', '.join(map(self.text, (value.start, value.stop, value.step)))})"
        return repr(value)

    def arguments(self, args: Iterable[object], kwargs: dict[str, object]) -> str:
        named = [f"{name} = {self.text(value)}" for name, value in kwargs.items()]
        return ", ".join([*map(self.text, args), *named])

    def placeholder(self, node: Node, kind: str) -> None:
        default = f" = {self.text(node.args[0])}" if node.args else ""
        self.parameters.append(f"{node.target}{kind}{default}")
        if node.target.replace("*", "") != node.name:
            self.body.append(f"{node.name} = {node.target.replace('*', '')}\n")

    def call(self, node: Node) -> str:
        """The right-hand side of a step."""
        if node.op == "get_attr":
            return _path(self.root, node.target)
        if node.op == "call_module":
            return f"{_path(self.root, node.target)}({self.arguments(node.args, node.kwargs)})"
        if node.op == "call_method":
            owner, *rest = node.args
            return f"{_path(self.text(owner), node.target)}({self.arguments(rest, node.kwargs)})"
        if node.target is getattr and len(node.args) == 2 and node.args[1].isidentifier():
            return _path(self.text(node.args[0]), node.args[1])
        name = self.global_name(node.target)
        if node.meta.get("is_wrapped"):
            self.wrapped[name] = None
        return f"{name}({self.arguments(node.args, node.kwargs)})"

    def statement(self, node: Node, kind: str) -> None:
        operator = getattr(node.target, "__module__", "") == "_operator"
        name = getattr(node.target, "__name__", "")
        operands = map(self.text, node.args)
        if operator and name in _OPERATORS:
            self.body.append(f"{node.name}{kind} = {_OPERATORS[name].format(*operands)}")
        elif operator and name in _IN_PLACE:
            written = _IN_PLACE[name].format(*operands)
            self.body.append(f"{written};  {node.name}{kind} = {self.text(node.args[0])}")
        else:
            self.body.append(f"{node.name}{kind} = {self.call(node)}")


def _path(base: str, target: str) -> str:
    for name in target.split("."):
        base = f"{base}.{name}" if name.isidentifier() else f'getattr({base}, "{name}")'
    return base


def _last_uses(nodes: list[Node]) -> dict[Node, list[Node]]:
    """For each step the values that it uses last."""
    seen: set[Node] = set()
    found: dict[Node, list[Node]] = {}
    for node in reversed(nodes):
        for source in node.all_input_nodes:
            if source not in seen:
                seen.add(source)
                found.setdefault(node, []).append(source)
    return found


def python_code(
    steps: Iterable[Node], root: str, codegen: CodeGen, verbose: bool = False
) -> PythonCode:
    """The text of ``forward``."""
    nodes = list(steps)
    writer, last = _Writer(root), _last_uses(nodes)
    if verbose:
        writer.body.append("# No stacktrace found for following nodes\n")
    for node in nodes:
        kind = "" if node.type is None else f" : {type_text(node.type)}"
        if node.op == "placeholder":
            writer.placeholder(node, kind)
            continue
        if node.op == "output":
            writer.annotation = "" if node.type is None else f" -> {type_text(node.type)}"
            writer.body.append(codegen.generate_output(writer.text(node.args[0])) + "\n")
            continue
        writer.statement(node, kind)
        dead = last.get(node, []) + ([] if node.users else [node])
        writer.body.append(
            f";  {' = '.join([*(n.name for n in dead), 'None'])}\n" if dead else "\n"
        )
    lines = "".join(writer.body or ["pass\n"]).split("\n")
    wraps = "\n".join(f'torch.fx._symbolic_trace.wrap("{name}")' for name in writer.wrapped)
    first = codegen.gen_fn_def(writer.parameters, writer.annotation)
    code = "\n".join(f"    {line}" for line in lines)
    return PythonCode(f"\n{wraps}\n\n{first}\n{code}", writer.globals)
