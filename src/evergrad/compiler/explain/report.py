"""Explains a compiled program: its nodes, memory plan, guards and time.

:class:`Explanation` gathers everything as plain data; :mod:`.explain.text` and :mod:`.explain.html`
only show it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.explain.html import fragment, page, plan_fragment
from evergrad.compiler.explain.text import text
from evergrad.compiler.explain.timing import bytes_of, flops_of, seconds_of
from evergrad.compiler.native import jit
from evergrad.compiler.passes.dump import dump
from evergrad.compiler.passes.pipeline import Target, Written, optimize
from evergrad.compiler.schedule.buffers import Buffer
from evergrad.compiler.schedule.instructions import Instruction
from evergrad.compiler.schedule.lower import loop_programs
from evergrad.compiler.schedule.memory_plan import Plan
from evergrad.compiler.schedule.nodes import Group, SingleNode
from evergrad.core.source_location import SourceLocation, describe, line_of
from evergrad.core.trace import Equation, Graph
from evergrad.extension import provides

if TYPE_CHECKING:
    from evergrad.compiler.frontend.captured import Captured
    from evergrad.compiler.frontend.variant import Call
    from evergrad.core.types import JsonObject

Data = dict[str, Any]


class Explanation:
    """A report on a program, as data, text, JSON or HTML.

    ``data`` holds the graphs (of every pass, and the loops, if requested), the nodes with their
    kernels and times, the NumPy calls, the guards and the memory plan; ``code`` the LLVM IR and
    assembly of each kernel, generated on first access.
    """

    def __init__(self, call: Call, name: str, passes: bool = False) -> None:
        program = call.variant.program
        seconds = seconds_of(program, call.arrays(), call.variant.numbers())
        self.data: JsonObject = {"function": name, **_described(call, seconds)}
        self.data["passes"], self.data["loops"] = _passes(call) if passes else ([], [])
        kernels = [i.kernel for i in program.instructions if i.kernel is not None]
        kernels += [called for kernel in kernels for called in kernel.calls.values()]
        self._kernels = {kernel.name: kernel for kernel in kernels}

    @cached_property
    def code(self) -> dict[str, dict[str, str]]:
        """For each kernel by name its LLVM IR and its assembly."""
        return {name: _code_of(kernel) for name, kernel in self._kernels.items()}

    def text(self, code: bool = False) -> str:
        """Readable text: times, memory, NumPy calls and guards first, then nodes and graphs; with
        ``code`` also the generated code."""
        return text(self.data, self.code if code else {})

    def json(self) -> Data:
        """Everything, as a dict that ``json.dumps`` takes."""
        return {**self.data, "code": self.code}

    def html(self) -> str:
        """Everything on one self-contained page."""
        return page(self.data, self.code)

    def _repr_html_(self) -> str:
        return fragment(self.data)

    def save(self, path: str | Path) -> None:
        """Write the format of the file's suffix: ``.html``, ``.json`` or ``.txt``."""
        target = Path(path)
        forms: dict[str, Callable[[], str]] = {
            ".html": self.html,
            ".json": lambda: json.dumps(self.json(), indent=1),
            ".txt": lambda: self.text(code=True),
        }
        if target.suffix not in forms:
            raise ValueError(
                f"unknown format of {target.name!r}.\n"
                f"  fix: a name that ends in {', '.join(forms)}."
            )
        target.write_text(forms[target.suffix](), encoding="utf-8")

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        nodes = self.data["nodes"]
        return f"<explanation of {self.data['function']}: {len(nodes)} nodes>"


def _code_of(kernel: Kernel) -> dict[str, str]:
    ir = jit.module_ir([kernel])
    return {"ir": ir, "assembly": jit.assembly(ir)}


def _described(call: Call, seconds: Sequence[float]) -> Data:
    captured, program = call.variant.captured, call.variant.program
    nodes = _nodes(program.instructions, program.waves, seconds)
    return {
        "threads": program.threads,
        "seconds": sum(seconds),
        "captured": _graph(captured.graph),
        "simplified": _graph(program.graph),
        "nodes": nodes,
        "calls": [_call(u) for u in nodes if u["kind"] == "call"],
        "memory": memory_data(program.plan),
        "guards": dict(Counter(name for _, _, name in captured.guards.predicates)),
        "segments": _segments(captured),
    }


def _segments(captured: Captured) -> list[Data]:
    """The programs of a path that decides by the data, with what ends each; empty for one."""
    path = captured.path
    if path is None:
        return []
    found = [
        {"equations": 0 if stage is None else len(stage.captured.graph.equations), "end": str(read)}
        for stage, read in zip(path.stages, path.reads, strict=True)
    ]
    return [*found, {"equations": len(captured.graph.equations), "end": "the end of the function"}]


def _passes(call: Call) -> tuple[list[Data], list[Data]]:
    """The graph after each pass, from the captured one on, no text where a pass changed nothing;
    and the loops of its fusion groups."""
    found: list[Data] = []
    graphs: list[Graph] = []

    def observe(name: str, graph: Graph) -> None:
        is_new = not graphs or graph is not graphs[-1]
        text = dump(graph, locations=True) if is_new else None
        found.append({"name": name, "equations": len(graph.equations), "text": text})
        graphs.append(graph)

    program = call.variant.program
    target = program.executable.target
    assert target is not None, "a program from the disk has no passes"
    captured = call.variant.captured
    written = Written(captured.result_count, len(captured.written))
    graph = optimize(captured.graph, target, observe, written)
    loops = [{"name": made.name, "text": str(made)} for made in loop_programs(graph)]
    if target is Target.LIMITED:
        observe("rematerialize", program.graph)
    return found, loops


def _graph(graph: Graph) -> Data:
    by_op = Counter(eqn.op.name for eqn in graph.equations)
    return {
        "equations": len(graph.equations),
        "by_op": dict(sorted(by_op.items(), key=lambda item: (-item[1], item[0]))),
        "text": str(graph),
    }


# -- nodes --------------------------------------------------------------------------------------


def _nodes(
    instructions: Sequence[Instruction], waves: list[list[Instruction]], seconds: Sequence[float]
) -> list[Data]:
    """Nodes in execution order, each with its instructions. A copy at the end is a node by
    itself."""
    wave_of = {id(i): n for n, wave in enumerate(waves) for i in wave}
    parts: dict[int, list[tuple[Instruction, float]]] = {}
    for instruction, taken in zip(instructions, seconds, strict=True):
        key = id(instruction if instruction.node is None else instruction.node)
        parts.setdefault(key, []).append((instruction, taken))
    return [_node(found, wave_of) for found in parts.values()]


def _node(parts: Sequence[tuple[Instruction, float]], wave_of: dict[int, int]) -> Data:
    first = parts[0][0]
    equations = _equations(first.node)
    taken = sum(seconds for _, seconds in parts)
    flops = sum(map(flops_of, equations))
    moved = sum(bytes_of(instruction, equations) for instruction, _ in parts)
    return {
        "label": _label([instruction for instruction, _ in parts]),
        "kind": _kind(first),
        "equations": [_equation(eqn) for eqn in equations],
        "space": list(first.node.shape) if isinstance(first.node, Group) else None,
        "instructions": [
            {"wave": wave_of[id(i)], "seconds": s, **_kernel(i)} for i, s in parts
        ],
        "seconds": taken,
        "flops": flops,
        "bytes": moved,
        "gflops_per_second": _rate(flops, taken),
        "gigabytes_per_second": _rate(moved, taken),
        "lines": list(dict.fromkeys(_line(eqn.location) for eqn in equations)),
    }  # fmt: skip


def _label(instructions: Sequence[Instruction]) -> str:
    """The name of the instruction with most work, the first of these: others copy or check what it
    reads, or combine partial results."""
    return max(instructions, key=lambda instruction: instruction.work).label


def _kind(instruction: Instruction) -> str:
    if instruction.kernel is None:
        return "call"
    if instruction.node is None:
        return "copy"
    is_loop = isinstance(instruction.node, Group) and instruction.node.product is None
    return "loop" if is_loop else "native"


def _equations(node: object) -> list[Equation]:
    if isinstance(node, Group):
        return node.members if node.product is None else [node.product, *node.members]
    return [node.eqn] if isinstance(node, SingleNode) else []


def _equation(eqn: Equation) -> Data:
    types = ", ".join(str(out.type) for out in eqn.outs)
    return {"op": eqn.op.name, "type": types, "location": describe(eqn.location)}


def _kernel(instruction: Instruction) -> Data:
    kernel = instruction.kernel
    if kernel is None:
        return {"label": instruction.label, "kernel": None}
    return {
        "label": instruction.label,
        "kernel": kernel.name,
        "chunks": kernel.chunks,
        "passes": kernel.passes,
        "scratch": kernel.scratch,
    }


def _rate(amount: int, seconds: float) -> float | None:
    """In billions per second."""
    return amount / seconds / 1e9 if amount and seconds else None


def _call(node: Data) -> Data:
    (equation,) = node["equations"]
    return {**equation, "seconds": node["seconds"]}


def _line(location: SourceLocation | None) -> str:
    """``file.py:12``"""
    if location is None:
        return "unknown"
    return f"{Path(location[0].co_filename).name}:{line_of(location)}"


# -- memory -------------------------------------------------------------------------------------


@provides("plan_fragment")
def _plan_cell(plan: Plan) -> str:
    return plan_fragment(memory_data(plan))


def memory_data(plan: Plan) -> Data:
    """A memory plan as plain data."""
    number = {id(b): n for n, b in enumerate(plan.buffers)}
    return {
        "peak": plan.peak,
        "lower_bound": plan.lower_bound,
        "waves": plan.waves,
        "timeline": plan.timeline(),
        "buffers": [_buffer(b) for b in plan.buffers],
        "at_peak": [number[id(b)] for b in plan.at_peak()],
        "outside_bytes": sum(b.nbytes for b in plan.outside),
    }


def _buffer(buffer: Buffer) -> Data:
    return {
        "label": buffer.label,
        "bytes": buffer.nbytes,
        "offset": buffer.offset,
        "first_wave": buffer.first,
        "last_wave": buffer.last,
        "location": describe(buffer.location) if buffer.location is not None else "",
    }
