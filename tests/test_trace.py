"""Programs as data: what a trace writes down, and what it refuses."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.core.interpret import interpret
from evergrad.core.trace import Equation, Graph, Var
from evergrad.core.traced_function import trace
from evergrad.errors import TraceError
from evergrad.memory.ledger import LEDGER
from twins import assert_same, fixed, leaf, plain


def traced(function: Callable[..., Any], *tensors: Any) -> Graph:
    graph = trace(function, [t._type for t in tensors]).graph
    graph.check()
    return graph


def ops(graph: Graph) -> list[str]:
    return [eqn.op.name for eqn in graph.equations]


def same_as_eager(function: Callable[..., Any], *tensors: Any) -> Graph:
    """Trace, check, run, and compare with running the function itself."""
    form = trace(function, [t._type for t in tensors])
    form.graph.check()
    found = interpret(form.graph, *[t.clone() for t in tensors])
    given = [t.clone() for t in tensors]
    assert_same(plain(form.rebuild(found)), plain(function(*given)))
    for number, value in form.writes(found):
        assert_same(plain(value), plain(given[number]))
    return form.graph


A: Any = None
B: Any = None


@pytest.fixture(autouse=True)
def _two_matrices() -> Iterator[None]:
    """A and B, which live no longer than a test."""
    global A, B
    A, B = fixed(eg, [[1.0, 2.0], [3.0, 4.0]]), fixed(eg, [[0.5, -1.0], [2.0, 0.0]])
    yield
    A = B = None


# -- text ---------------------------------------------------------------------------------------


def test_a_graph_reads_like_a_program() -> None:
    kept = fixed(eg, [1.0, 2.0])
    graph = traced(lambda x: (x.exp() * kept).sum() + 2.0, A)
    assert str(graph) == (
        "graph(v0: float64[2,2]) {\n"
        "  v1: float64[2] = captured\n"
        "  v2: float64[2,2] = exp(v0)\n"
        "  v3: float64[2,2] = mul(v2, v1)\n"
        "  v4: float64[] = sum(v3, dims=(0, 1), keepdim=False)\n"
        "  v5: float64[] = add(v4, 2.0)\n"
        "  return v5\n"
        "}"
    )


def test_writes_are_part_of_the_text() -> None:
    state = fixed(eg, [1.0, 2.0])

    def function(x: Any) -> Any:
        state.add_(x)
        return state * 2

    text = str(traced(function, fixed(eg, [1.0, 1.0])))
    assert "  write v" in text
    assert text.splitlines()[-2].startswith("  return v")


# -- what is written down -----------------------------------------------------------------------


def test_equal_equations_are_written_once() -> None:
    graph = traced(lambda x: (x.exp() + 1) * (x.exp() + 1) + x.exp(), A)
    assert ops(graph) == ["exp", "add", "mul", "add"]


def test_equal_numbers_of_other_types_are_different() -> None:
    graph = traced(lambda x: (x + 1, x + 1.0, x + True, x * 0.0, x * -0.0), A)
    assert len(graph.equations) == 5


def test_equations_with_other_attributes_are_different() -> None:
    graph = traced(lambda x: (x.sum(0), x.sum(1), x.sum(0)), A)
    assert ops(graph) == ["sum", "sum"]


def test_random_equations_are_never_merged_nor_dropped() -> None:
    graph = traced(lambda x: (x + eg.rand(2, 2), eg.rand(2, 2))[0], A)
    assert ops(graph).count("uniform") == 2
    assert ops(graph.without_dead_code()).count("uniform") == 2


def test_under_no_grad_and_outside_are_different() -> None:
    def function(x: Any) -> Any:
        with eg.no_grad():
            fixed_part = x.exp()
        return x.exp() * fixed_part

    graph = traced(function, A)
    assert ops(graph) == ["exp", "exp", "mul"]
    assert [eqn.no_grad for eqn in graph.equations] == [True, False, False]
    x = leaf(eg, [[1.0, 2.0], [3.0, 4.0]])
    (out,) = interpret(graph, x)
    out.sum().backward()
    assert_same(plain(x.grad), plain(A.exp() * A.exp()))


def test_dead_code_goes() -> None:
    kept, unused = fixed(eg, [1.0, 2.0]), fixed(eg, [3.0, 4.0])

    def function(x: Any) -> Any:
        (x * unused).sin()
        return x * kept

    graph = traced(function, A)
    assert ops(graph) == ["mul", "sin", "mul"]
    live = graph.without_dead_code()
    live.check()
    assert ops(live) == ["mul"]
    assert [tensor for _, tensor in live.captures] == [kept]
    assert len(live.inputs) == 1


def test_writes_are_not_dead() -> None:
    state = fixed(eg, [1.0, 2.0])

    def function(x: Any) -> Any:
        state.mul_(x)
        return x + 1

    live = traced(function, fixed(eg, [2.0, 3.0])).without_dead_code()
    live.check()
    assert ops(live) == ["mul", "add"]


def test_nothing_is_computed_while_tracing() -> None:
    before = LEDGER.live
    graph = traced(lambda x: (x @ x).exp().sum(), eg.zeros(300, 300))
    assert LEDGER.live - before < 1000
    assert len(graph.equations) == 3


# -- checking -----------------------------------------------------------------------------------


def broken(change: Callable[[list[Equation]], list[Equation]]) -> Graph:
    graph = traced(lambda x: (x.exp() * 2).sum(), A)
    return Graph(graph.inputs, graph.captures, change(list(graph.equations)), graph.outputs)


BROKEN = {
    "undefined value": (lambda eqns: eqns[1:], "uses an undefined value"),
    "wrong order": (lambda eqns: [eqns[1], eqns[0], eqns[2]], "uses an undefined value"),
    "defined twice": (lambda eqns: [*eqns, eqns[0]], "a second time"),
    "missing result": (lambda eqns: eqns[:2], "is undefined"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_graphs_are_caught(name: str) -> None:
    change, message = BROKEN[name]
    with pytest.raises(AssertionError, match=message):
        broken(change).check()


def test_wrong_types_are_caught() -> None:
    graph = traced(lambda x: x.exp(), A)
    (eqn,) = graph.equations
    wrong = Var(traced(lambda x: x.sum(), A).equations[0].outs[0].type, eqn.outs[0].trace)
    lying = Equation(eqn.specialization, eqn.args, (wrong,), eqn.location)
    with pytest.raises(AssertionError, match="its value has"):
        Graph(graph.inputs, (), [lying], [wrong]).check()


def test_undefined_writes_are_caught() -> None:
    graph = traced(lambda x: x.exp(), A)
    stray = traced(lambda x: x.sin(), A).outputs[0]
    with pytest.raises(AssertionError, match="is undefined"):
        Graph(graph.inputs, (), graph.equations, graph.outputs, [(A, stray)]).check()


# -- views and writes ---------------------------------------------------------------------------


def writes_to_views(x: Any, w: Any) -> Any:
    y = x * 2
    row = y[0]
    row.mul_(w[1])
    y[:, 1] += 1
    column = y.t()[1]
    y.neg_()
    return y, row, column * 2


def chained_views(x: Any, w: Any) -> Any:
    y = x.clone()
    y.t().reshape(-1)  # a copy
    y.view(4).view(2, 2).t()[0].copy_(w[0])
    y.diagonal().zero_()
    return y


def aliases_of_arguments(x: Any, w: Any) -> Any:
    before = x * 1
    x.add_(w)
    return before, x, x.view(4)


def fresh_buffers(x: Any, w: Any) -> Any:
    a, b = eg.zeros(2, 2, dtype=eg.float64), eg.zeros(2, 2, dtype=eg.float64)
    a += x
    b -= w
    return a, b, a * b


def writes_under_no_grad(x: Any, w: Any) -> Any:
    y = x * 2
    with eg.no_grad():
        y[0] = w[0]
        y.mul_(3)
    return y


def masked_writes(x: Any, w: Any) -> Any:
    y = x * 2
    y[w > 0] = -1.0
    y.masked_fill_(x > 3, 7.0)
    return y


PROGRAMS = [
    writes_to_views, chained_views, aliases_of_arguments, fresh_buffers, writes_under_no_grad,
    masked_writes,
]  # fmt: skip


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_imperative_programs_trace_as_written(function: Any) -> None:
    same_as_eager(function, A, B)


@pytest.mark.parametrize("function", PROGRAMS[:4], ids=lambda f: f.__name__)
def test_their_derivatives_too(function: Any) -> None:
    """Forward mode runs the traced program, reverse mode the recorded one."""

    def value(x: Any, w: Any) -> Any:
        results = function(x * 1, w)
        results = results if isinstance(results, tuple) else (results,)
        return sum((r * r * (k + 1)).sum() for k, r in enumerate(results))

    tangents = (B + 1, A - 1)
    _, moved = eg.func.jvp(value, (A, B), tangents)
    grads = eg.func.grad(value, argnums=(0, 1))(A, B)
    expected = sum((g * t).sum() for g, t in zip(grads, tangents, strict=True))
    assert_same(plain(moved), plain(expected))


def test_captured_tensors_are_read_when_the_graph_runs() -> None:
    kept = fixed(eg, [1.0, 2.0])
    graph = traced(lambda x: x * kept, fixed(eg, [1.0, 1.0]))
    kept.mul_(10)
    (out,) = interpret(graph, fixed(eg, [1.0, 1.0]))
    assert out.tolist() == [10.0, 20.0]


def test_writes_to_captured_tensors_happen_when_the_graph_runs() -> None:
    state = fixed(eg, [1.0, 2.0])
    row = fixed(eg, [[1.0, 2.0], [3.0, 4.0]])

    def step(x: Any) -> Any:
        state.mul_(x * 2)
        state.add_(x)
        row[0] = state
        return state + row.sum()

    x = fixed(eg, [1.0, 1.0])
    version = state._version
    graph = traced(step, x)
    assert state.tolist() == [1.0, 2.0], "tracing leaves the outside alone"
    assert row.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    (out,) = interpret(graph, x)
    assert state.tolist() == [3.0, 5.0]
    assert row.tolist() == [[3.0, 5.0], [3.0, 4.0]]
    assert out.tolist() == [18.0, 20.0]
    assert state._version > version
    interpret(graph, x)
    assert state.tolist() == [7.0, 11.0]


def test_an_error_while_tracing_leaves_the_outside_alone() -> None:
    state = fixed(eg, [1.0, 2.0])

    def fails(x: Any) -> Any:
        state.add_(x)
        raise KeyError

    with pytest.raises(KeyError):
        traced(fails, fixed(eg, [1.0, 1.0]))
    assert state.tolist() == [1.0, 2.0]
    assert (state * 2).tolist() == [2.0, 4.0]


def test_views_of_written_captures() -> None:
    base = fixed(eg, [[1.0, 2.0], [3.0, 4.0]])
    view = base[1]

    def step(x: Any) -> Any:
        base.mul_(x)
        return view + 1

    (out,) = interpret(traced(step, fixed(eg, 10.0)), fixed(eg, 10.0))
    assert out.tolist() == [31.0, 41.0]
    assert view.tolist() == [30.0, 40.0]


# -- backward inside ----------------------------------------------------------------------------


def test_a_training_step_traces_as_written() -> None:
    w = leaf(eg, [[1.0, 2.0], [3.0, 4.0]])

    def step(x: Any) -> Any:
        loss = (x @ w).tanh().sum()
        loss.backward()
        with eg.no_grad():
            w.sub_(0.1 * w.grad)
        w.grad = None
        return loss

    graph = traced(step, B)
    assert w.grad is None
    before = plain(w)
    (loss,) = interpret(graph, B)
    after = plain(w)
    w.data.copy_(eg.tensor(before))
    assert_same(plain(step(B)), plain(loss))
    assert_same(plain(w), after)


def test_higher_derivatives_inside() -> None:
    def function(x: Any) -> Any:
        x = x.detach().requires_grad_()
        (first,) = eg.autograd.grad((x**4).sum(), x, create_graph=True)
        (second,) = eg.autograd.grad(first.sum(), x)
        return second

    graph = traced(function, A)
    (found,) = interpret(graph, A)
    np.testing.assert_allclose(found.detach().numpy(), 12 * A.numpy() ** 2)


# -- nested -------------------------------------------------------------------------------------


def test_inner_traces_capture_values_of_the_outer_one() -> None:
    graphs: list[Graph] = []

    def outer(x: Any) -> Any:
        y = x * 2
        inner = trace(lambda z: z * y + x, [x._type]).graph
        inner.check()
        graphs.append(inner)
        (out,) = interpret(inner, x + 1)
        return out

    same_as_eager(outer, A)
    assert [len(g.captures) for g in graphs] == [2, 2]
    assert ops(graphs[0]) == ["mul", "add"]


def test_inner_writes_to_outer_tensors() -> None:
    def outer(x: Any) -> Any:
        y = x * 2
        inner = trace(lambda z: y.add_(z), [x._type]).graph
        before = y * 1
        interpret(inner, x)
        return before, y

    same_as_eager(outer, A)


# -- numbers ------------------------------------------------------------------------------------

ASKING = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x.sum()),
    "int": lambda x: int(x.sum()),
    "bool": lambda x: bool(x.sum() > 0),
    "if": lambda x: x if x.sum() > 0 else -x,
    "numpy": lambda x: x.numpy(),
    "asarray": lambda x: np.asarray(x),
    "tolist": lambda x: x.tolist(),
    "a mask as an index": lambda x: x[x > 0],
    "nonzero": lambda x: (x > 0).nonzero(),
    "data_ptr": lambda x: x.data_ptr(),
    "dlpack": lambda x: np.from_dlpack(x),
}


@pytest.mark.parametrize("name", ASKING)
def test_numbers_are_not_known_yet(name: str) -> None:
    with pytest.raises(TraceError, match="fix:") as error:
        trace(lambda x: ASKING[name](x * 2), [A._type])
    assert "trac" in str(error.value)
    assert isinstance(error.value, RuntimeError)


def test_what_is_known_can_be_asked_for() -> None:
    seen: list[str] = []

    def function(x: Any) -> Any:
        assert x.shape == (2, 2) and x.ndim == 2 and len(x) == 2 and x.numel() == 4
        assert x.stride() == (2, 1) and x.t().stride() == (1, 2) and x[1].storage_offset() == 2
        assert x.is_contiguous() and not x.t().is_contiguous()
        assert x.dtype is eg.float64 and not x.requires_grad
        seen.append(repr(x))
        scale = A.sum().item()  # of the outside
        return x * scale

    same_as_eager(function, B)
    assert seen[0] == "tensor(<traced>, type=float64[2,2])"


USES = {
    "computing": lambda t: t + 1,
    "with a tensor": lambda t: A * t,
    "a view": lambda t: t[0],
    "comparing": lambda t: t == 1,
    "choosing": lambda t: eg.where(A > 0, A, t),
    "interpolating": lambda t: eg.lerp(A, t, 0.5),
    "three operands": lambda t: eg.addcmul(A, t, A),
    "holding": lambda t: t.clamp(0, 1),
    "norm": lambda t: eg.nn.functional.layer_norm(t, t.shape[-1:]),
    "reducing": lambda t: t.var(),
    "in half precision": lambda t: t.half(),
    "writing": lambda t: t.add_(1),
    "copying from it": lambda t: A.clone().copy_(t),
    "in another trace": lambda t: trace(lambda x: x + t, [A._type]),
    "item": lambda t: t.sum().item(),
    "numpy": lambda t: t.numpy(),
}


@pytest.mark.parametrize("name", USES)
def test_a_tensor_that_leaks_out_of_a_trace_is_an_error(name: str) -> None:
    leaks: list[Any] = []
    trace(lambda x: leaks.append(x * 2), [A._type])
    with pytest.raises(TraceError) as error:
        USES[name](leaks[0])
    assert "trace" in str(error.value)


def test_a_gradient_that_leaks_out_of_a_trace_is_an_error() -> None:
    w = leaf(eg, [[1.0, 2.0], [3.0, 4.0]])
    trace(lambda x: (x * w).sum().backward(), [A._type])
    with pytest.raises(TraceError):
        w.grad + 1
    with pytest.raises((TraceError, RuntimeError)):
        (w * 2).sum().backward()


def test_writes_to_captured_tensors_enter_their_history() -> None:
    """As if the function had run without a transform around it."""
    state = fixed(eg, [[1.0, 2.0], [3.0, 4.0]])
    row = state[0]

    def function(x: Any) -> Any:
        state.mul_(x)
        return x

    x = leaf(eg, [[1.0, 2.0], [3.0, 4.0]])
    eg.func.jvp(function, (x,), (A,))
    assert state.requires_grad and row.requires_grad
    (grad,) = eg.autograd.grad((state * 2).sum() + row.sum(), x)
    assert_same(plain(grad), plain(2 * A + fixed(eg, [[1.0, 2.0], [0.0, 0.0]])))


def test_histories_do_not_leak_out_of_a_trace() -> None:
    state, w = fixed(eg, [1.0, 2.0]), leaf(eg, [3.0, 4.0])
    view = state[:1]
    trace(lambda x: state.copy_(x * w), [state._type])  # never run
    assert not state.requires_grad and not view.requires_grad
    assert state.tolist() == [1.0, 2.0]


def test_a_trace_leaves_nothing_behind() -> None:
    gc.collect()
    gc.disable()
    try:
        before = LEDGER.live, LEDGER.count
        w = leaf(eg, [[1.0, 2.0], [3.0, 4.0]])
        graph = traced(lambda x, w=w: (x @ w).tanh().sum(), A)
        interpret(graph, A)
        del graph, w
        assert (LEDGER.live, LEDGER.count) == before
    finally:
        gc.enable()
