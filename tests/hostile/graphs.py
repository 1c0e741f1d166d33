"""Random graphs of hostile values: every pass is verified, broken copies are detected, and compiled
programs agree with eager evaluation.

A graph is a random program over tensors of a few shapes (empty extents, single elements, views,
broadcasts), whose values have infinities, NaN, signed zeros, subnormal and huge numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import evergrad as eg
from evergrad.compiler.passes.pipeline import Target, optimize
from evergrad.compiler.passes.verify import Verifier
from evergrad.core import dtypes
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.state import using
from evergrad.core.trace import Equation, Graph, Var
from evergrad.core.tracing import tracing
from evergrad.errors import VerificationError

SHAPES = [(3, 4), (1, 4), (4,), (), (0, 4), (5, 1), (2, 3, 4), (7, 7)]
HOSTILE = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 80.0, -80.0, 1e-30]
# At the borders of the range: where these are multiplied, added and summed, the order of roundings
# decides what overflows.
EXTREME = [3e38, -3e38, 1e-38, 1e-40, -1e-42, 1e-45]

Function = Callable[..., Any]
UNARY: list[Function] = [
    lambda x: x.exp(), lambda x: x.tanh(), lambda x: x.abs(), lambda x: -x, lambda x: x.relu(),
    lambda x: x.sigmoid(), lambda x: x * 2, lambda x: x + 1, lambda x: x.clamp(-2, 2),
    lambda x: x.square(), lambda x: x.floor(), lambda x: x.isnan().float(),
    lambda x: x.reshape(-1), lambda x: x.flatten().flip(0), lambda x: x.unsqueeze(0),
    lambda x: x.mT if x.dim() > 1 else x, lambda x: x.sum(), lambda x: x.sum(-1) if x.dim() else x,
    lambda x: x.amax(0) if x.dim() and x.shape[0] else x, lambda x: x[..., :2] if x.dim() else x,
    lambda x: x[1:] if x.dim() else x, lambda x: x.expand(2, *x.shape),
    lambda x: x.softmax(-1) if x.dim() else x, lambda x: x.nan_to_num(), lambda x: x.cumsum(0),
    lambda x: x @ x.mT if x.dim() == 2 else x, lambda x: x.to(eg.float64).to(eg.float32),
    lambda x: x.contiguous(), lambda x: eg.cat([x, x]) if x.dim() else x,
    lambda x: x - x, lambda x: x * 0, lambda x: x / x, lambda x: 0 / x, lambda x: x + (-x),
    lambda x: (x - x).sum(-1) if x.dim() else x, lambda x: (x * 2 - x - x).sum(),
    lambda x: x.sum(0) if x.dim() else x, lambda x: x.mean(), lambda x: x**0, lambda x: x**2,
    lambda x: x.amin(-1) if x.dim() and x.shape[-1] else x, lambda x: x * (x > 0),
    lambda x: eg.where(x == x, x, 0.0), lambda x: (x * x).sum().sqrt(), lambda x: x.logsumexp(0),
    lambda x: x.sign() * x.abs(), lambda x: x.clamp(min=0.0), lambda x: x.prod(),
    lambda x: x.isfinite().all().float(), lambda x: eg.logaddexp(x, -x),
]  # fmt: skip
BINARY: list[Function] = [
    lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a - b, lambda a, b: eg.maximum(a, b),
    lambda a, b: eg.where(a > b, a, b), lambda a, b: a / b, lambda a, b: eg.minimum(a, b),
    lambda a, b: a * b - a, lambda a, b: (a - b).sum(), lambda a, b: (a * b).sum(),
    lambda a, b: eg.where(a.isnan(), b, a), lambda a, b: a + b - a, lambda a, b: eg.fmax(a, b),
]  # fmt: skip
# The most elements that a random program makes.
_MOST_ELEMENTS = 4096


def recipe(rng: random.Random) -> list[tuple[int, int, int, bool]]:
    """Random instructions: op, two operands (counted from the end), whether it has two."""
    return [
        (rng.randrange(1 << 20), rng.randrange(6), rng.randrange(6), rng.random() < 0.35)
        for _ in range(rng.randrange(1, 14))
    ]


def run(instructions: list[tuple[int, int, int, bool]], *tensors: Any) -> list[Any]:
    """The last values of a program."""
    made = every_value(instructions, *tensors)
    return made[-4:] or [tensors[-1] + 0]


def every_value(instructions: list[tuple[int, int, int, bool]], *tensors: Any) -> list[Any]:
    """All values that a program computes; operands that do not fit each other are skipped."""
    values = list(tensors)
    for op, left, right, is_binary in instructions:
        a, b = values[-1 - left % len(values)], values[-1 - right % len(values)]
        if is_binary:
            if not _broadcast(a.shape, b.shape):
                continue
            made = BINARY[op % len(BINARY)](a, b)
        else:
            made = UNARY[op % len(UNARY)](a)
        if made.numel() <= _MOST_ELEMENTS:
            values.append(made)
    return values[len(tensors) :]


def _broadcast(a: Any, b: Any) -> bool:
    pairs = zip(reversed(a), reversed(b), strict=False)
    return all(m == n or m == 1 or n == 1 for m, n in pairs)


def tensors(rng: random.Random) -> list[Any]:
    """One to three tensors of hostile values."""
    made = []
    hostile = HOSTILE + EXTREME if rng.random() < 0.3 else HOSTILE
    for _ in range(rng.randrange(1, 4)):
        shape = rng.choice(SHAPES)
        count = int(np.prod(shape))
        values = [rng.choice(hostile) if rng.random() < 0.3 else rng.uniform(-3, 3)
                  for _ in range(count)]  # fmt: skip
        made.append(eg.tensor(np.array(values, np.float32).reshape(shape)))
    return made


def traced(instructions: list[tuple[int, int, int, bool]], given: list[Any]) -> Graph:
    with using(autocast=None, trace=None), tracing() as tracer:
        inputs = [tracer.input(tensor_type(tuple(t.shape), dtypes.float32)) for t in given]
        return tracer.finish(run(instructions, *inputs))


# -- broken graphs --------------------------------------------------------------------------------


def like(var: Var, type: TensorType) -> Var:
    """A new value in the trace of another one."""
    return Var(type, var.trace)


def broken(graph: Graph, rng: random.Random) -> Graph | None:
    """A copy with one fault that a pass could make; ``None`` if the graph has no place for it."""
    equations = list(graph.equations)
    if not equations:
        return None
    at = rng.randrange(len(equations))
    eqn, kind = equations[at], rng.randrange(5)
    if kind == 0:  # an output that nothing defines
        undefined = like(graph.inputs[0], graph.inputs[0].type)
        return Graph(graph.inputs, graph.captures, equations, [undefined, *graph.outputs[1:]])
    if kind == 1:  # a value that is defined twice
        equations.insert(at, eqn)
        return Graph(graph.inputs, graph.captures, equations, graph.outputs)
    if kind == 2:  # an argument that nothing defines
        places = [n for n, arg in enumerate(eqn.args) if isinstance(arg, Var)]
        if not places:
            return None
        args = list(eqn.args)
        args[rng.choice(places)] = like(graph.inputs[0], eqn.args[places[0]].type)
        equations[at] = Equation(eqn.specialization, tuple(args), eqn.outs, eqn.location)
        return Graph(graph.inputs, graph.captures, equations, graph.outputs)
    if kind == 3:  # a result of another type than its row gives
        wrong = tensor_type((11, 13), dtypes.float64)
        outs = tuple(like(out, wrong) for out in eqn.outs)
        equations[at] = Equation(eqn.specialization, eqn.args, outs, eqn.location)
        return Graph(graph.inputs, graph.captures, equations, graph.outputs)
    # A lost output.
    return Graph(graph.inputs, graph.captures, equations, graph.outputs[1:])


# -- one graph ------------------------------------------------------------------------------------


def check_graph(rng: random.Random) -> int:
    """Check a random graph, and broken copies of it; gives the number of graphs."""
    instructions, given = recipe(rng), tensors(rng)
    graph = traced(instructions, given)
    verifier = Verifier(graph)
    optimize(graph, rng.choice((Target.EAGER, Target.STEP)))
    count = 1
    for _ in range(3):
        wrong = broken(graph, rng)
        if wrong is None:
            continue
        count += 1
        try:
            verifier.check("a broken pass", wrong)
        except VerificationError:
            verifier = Verifier(graph)
        else:
            raise AssertionError(f"a broken graph was not detected: {wrong}")
    return count


def compare(instructions: list[tuple[int, int, int, bool]], given: list[Any]) -> bool:
    """Whether compiled and eager evaluation agree, in values, in infinities and in NaN. They may
    differ, and the answer is no, only where the order of roundings decides: by rounding errors of
    the largest intermediate value, or in a program that leaves the range of float32."""
    expected = [value.numpy() for value in run(instructions, *given)]
    results = eg.compile(lambda *given: run(instructions, *given))(*given)
    found = [value.numpy() for value in results]
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
    if all(np.allclose(a, b, rtol=2e-5, atol=0, equal_nan=True)
           for a, b in zip(found, expected, strict=True)):  # fmt: skip
        return True
    largest, leaves = magnitudes(instructions, given)
    for a, b in zip(found, expected, strict=True):
        if not leaves:
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6 * largest)
    return False


def magnitudes(
    instructions: list[tuple[int, int, int, bool]], given: list[Any]
) -> tuple[float, bool]:
    """The largest finite value of a program, evaluated in float64, and whether some value would be
    infinite or subnormal in float32."""
    values = [t.to(eg.float64) for t in given]
    values += every_value(instructions, *values)
    numbers = np.concatenate([np.abs(v.to(eg.float64).numpy().reshape(-1)) for v in values])
    numbers = numbers[np.isfinite(numbers) & (numbers > 0)]
    most = float(numbers.max(initial=1.0))
    least = float(numbers.min(initial=1.0))
    single = np.finfo(np.float32)
    # A sum of squares or of many may leave the range although the values do not.
    return most, most > float(single.max) ** 0.5 / 64 or least < float(single.tiny)


def attack(count: int, seed: int, compile_every: int) -> int:
    """Check at least so many graphs; every ``compile_every``-th is compiled and run. Nearly all
    must agree without an allowance for the order of roundings."""
    rng, checked, number = random.Random(seed), 0, 0
    agreed = []
    while checked < count:
        checked += check_graph(rng)
        if number % compile_every == 0:
            agreed.append(compare(recipe(rng), tensors(rng)))
        number += 1
    assert np.mean(agreed) > 0.9
    return checked
