"""The verifier catches passes that are broken on purpose, and names them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import config
from evergrad.compiler.passes import pipeline, rematerialize
from evergrad.compiler.passes.pipeline import Pass, Target, optimize
from evergrad.compiler.passes.rewriter import rewrite, specialize, with_equations
from evergrad.core.bind import bind
from evergrad.core.op import TABLE
from evergrad.core.shapes import tensor_type
from evergrad.core.trace import Equation, Graph, Var
from evergrad.core.tracing import tracing
from evergrad.errors import VerificationError
from evergrad.nn import functional as F

from .test_memory_plan import make_step

Broken = Callable[[Graph], Graph]


def traced(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Graph:
    with tracing() as tracer:
        inputs = [tracer.input(tensor_type(shape, eg.float32)) for shape in shapes]
        found = function(*inputs)
        return tracer.finish(found if isinstance(found, tuple) else (found,))


def model(x: Any, w: Any) -> Any:
    """Random numbers, views, an update of a part and a product."""
    noise = F.dropout(x, 0.5)
    other = F.dropout(x, 0.25)
    state = w.clone()
    state[0] = x.sum(0)
    state[1] = 0.0
    return (noise @ w.t()).exp() * 2.0, other, state


@pytest.fixture
def graph() -> Graph:
    return traced(model, (3, 4), (5, 4))


def run(graph: Graph, broken: Broken, monkeypatch: pytest.MonkeyPatch) -> Graph:
    before, after = (Pass(name, lambda graph: with_equations(graph, graph.equations))
                     for name in ("before", "after"))  # fmt: skip
    monkeypatch.setattr(pipeline, "PASSES", (before, Pass("broken_on_purpose", broken), after))
    return optimize(graph, Target.STEP)


def edited(graph: Graph, edit: Callable[[list[Equation]], list[Equation]]) -> Graph:
    return with_equations(graph, edit(list(graph.equations)))


def place_of(equations: list[Equation], name: str, last: bool = False) -> int:
    found = [n for n, eqn in enumerate(equations) if eqn.op.name == name]
    return found[-1 if last else 0]


def with_args(eqn: Equation, *args: Any) -> Equation:
    return Equation(eqn.specialization, args, eqn.outs, eqn.location)


def with_outs(eqn: Equation, *outs: Var) -> Equation:
    return Equation(eqn.specialization, eqn.args, outs, eqn.location)


def replaced(graph: Graph, name: str, change: Callable[[Equation], Equation]) -> Graph:
    def edit(equations: list[Equation]) -> list[Equation]:
        place = place_of(equations, name)
        return [*equations[:place], change(equations[place]), *equations[place + 1 :]]

    return edited(graph, edit)


# -- of one graph -------------------------------------------------------------------------------


def drops_a_definition(graph: Graph) -> Graph:
    return edited(graph, lambda es: [e for e in es if e.op.name != "matmul"])


def uses_before_definition(graph: Graph) -> Graph:
    return edited(graph, lambda es: sorted(es, key=lambda e: e.op.name == "clone"))


def defines_twice(graph: Graph) -> Graph:
    def edit(es: list[Equation]) -> list[Equation]:
        exp = es[place_of(es, "exp")]
        return [*es, Equation(exp.specialization, exp.args, exp.outs, exp.location)]

    return edited(graph, edit)


def takes_an_input_twice(graph: Graph) -> Graph:
    first = graph.inputs[0]
    return Graph([first, first], (), graph.equations, graph.outputs)


def loses_an_output(graph: Graph) -> Graph:
    out = graph.outputs[0]
    stray = Var(out.type, out.trace)
    return Graph(graph.inputs, (), graph.equations, [stray, *graph.outputs[1:]])


def swaps_operand_types(graph: Graph) -> Graph:
    return replaced(graph, "matmul", lambda e: with_args(e, *reversed(e.args)))


def changes_a_result_type(graph: Graph) -> Graph:
    double = eg.ones(3, 5, dtype=eg.float64)._type

    return replaced(graph, "exp", lambda e: with_outs(e, Var(double, e.outs[0].trace)))


def forges_a_specialization(graph: Graph) -> Graph:
    """An equation and its specialization agree, but the row's type rule does not."""
    made = specialize(TABLE["exp"], Var(eg.ones(7)._type, graph.inputs[0].trace))
    original = made.out_types
    wrong = eg.ones(8)._type
    made.out_types = (wrong,)
    given, out = Var(eg.ones(7)._type, graph.inputs[0].trace), Var(wrong, graph.inputs[0].trace)
    full = specialize(TABLE["full"], 1.0, size=(7,), dtype=eg.float32)
    forged = [Equation(full, (1.0,), (given,), None), Equation(made, (given,), (out,), None)]
    FORGED.append((made, original))
    return with_equations(graph, [*graph.equations, *forged])


FORGED: list[Any] = []


def passes_a_number_of_another_kind(graph: Graph) -> Graph:
    return edited(
        graph,
        lambda es: [with_args(e, e.args[0], 2) if e.op.name == "mul" and e.args[1] == 2.0 else e
                    for e in es],
    )  # fmt: skip


def forgets_an_argument(graph: Graph) -> Graph:
    return replaced(graph, "matmul", lambda e: with_args(e, e.args[0]))


def lays_a_view_out_anew(graph: Graph) -> Graph:
    """A transposed view that claims to be contiguous."""

    def change(eqn: Equation) -> Equation:
        return with_outs(eqn, Var(eqn.outs[0].type, eqn.outs[0].trace))

    def edit(es: list[Equation]) -> list[Equation]:
        place = place_of(es, "permute")
        new = change(es[place])
        later = [with_args(e, *(new.outs[0] if a is es[place].outs[0] else a for a in e.args))
                 for e in es[place + 1 :]]  # fmt: skip
        return [*es[:place], new, *later]

    return edited(graph, edit)


def begins_a_view_elsewhere(graph: Graph) -> Graph:
    """A view of another row with the same strides."""

    def change(eqn: Equation) -> Equation:
        whole = eqn.args[0].layout
        return with_outs(eqn, Var(eqn.outs[0].type, eqn.outs[0].trace, whole[2]))

    return replaced(graph, "slice", change)


def gives_a_new_value_strides(graph: Graph) -> Graph:
    def change(eqn: Equation) -> Equation:
        out = eqn.outs[0]
        layout = np.zeros(out.type.shape[::-1], out.type.dtype.np).T
        return with_outs(eqn, Var(out.type, out.trace, layout))

    return replaced(graph, "exp", change)


# -- from graph to graph ------------------------------------------------------------------------


def drops_an_update(graph: Graph) -> Graph:
    """The base takes the place of what was written: all types fit."""

    def replace(trace: Any, eqn: Equation, args: tuple[Any, ...], env: Any) -> Any:
        is_first = eqn.op.name == "update" and eqn is graph.equations[place_of(es, "update")]
        return (args[0],) if is_first else None

    es = list(graph.equations)
    return rewrite(graph, replace)


def drops_the_update_by_a_constant(graph: Graph) -> Graph:
    es = list(graph.equations)
    last = es[place_of(es, "update", last=True)]

    def replace(trace: Any, eqn: Equation, args: tuple[Any, ...], env: Any) -> Any:
        return (args[0],) if eqn is last else None

    return rewrite(graph, replace)


def returns_an_input(graph: Graph) -> Graph:
    """The storage of `state` would keep what it held."""
    return Graph(graph.inputs, (), graph.equations, [*graph.outputs[:2], graph.inputs[1]])


def drops_an_output(graph: Graph) -> Graph:
    return Graph(graph.inputs, (), graph.equations, graph.outputs[:-1])


def drops_an_input(graph: Graph) -> Graph:
    found = traced(lambda x: (x, x, x), (3, 4))
    return Graph(found.inputs, (), found.equations, found.outputs)


def makes_an_output_a_number(graph: Graph) -> Graph:
    return Graph(graph.inputs, (), graph.equations, [1.0, *graph.outputs[1:]])


def duplicates_a_draw(graph: Graph) -> Graph:
    def edit(es: list[Equation]) -> list[Equation]:
        place = place_of(es, "chance")
        out = es[place].outs[0]
        return [*es[: place + 1], with_outs(es[place], Var(out.type, out.trace)), *es[place + 1 :]]

    return edited(graph, edit)


def drops_a_draw(graph: Graph) -> Graph:
    """Both masks are the first one."""
    es = list(graph.equations)
    first, second = es[place_of(es, "chance")], es[place_of(es, "chance", last=True)]
    kept = [e for e in es if e is not second]
    swap = {second.outs[0]: first.outs[0]}
    return with_equations(
        graph, [with_args(e, *(swap.get(a, a) if isinstance(a, Var) else a for a in e.args))
                for e in kept],
    )  # fmt: skip


def reorders_draws(graph: Graph) -> Graph:
    es = list(graph.equations)
    first, second = place_of(es, "chance"), place_of(es, "chance", last=True)
    es[first], es[second] = es[second], es[first]
    order = sorted(es, key=lambda e: e.op.name != "chance")
    return with_equations(graph, order)


def uses_the_other_mask(graph: Graph) -> Graph:
    """The draws stay in order, but each result is given the other mask."""
    es = list(graph.equations)
    masks = [e.outs[0] for e in es if e.op.name == "chance"]
    swap = dict(zip(masks, reversed(masks), strict=True))
    draws = [e for e in es if e.op.name == "chance"]
    others = [with_args(e, *(swap.get(a, a) if isinstance(a, Var) else a for a in e.args))
              for e in es if e.op.name != "chance"]  # fmt: skip
    return with_equations(graph, [*draws, *others])


def writes_a_part_of_another_type(graph: Graph) -> Graph:
    return replaced(graph, "update", lambda e: with_args(e, e.args[0], e.args[0]))


BROKEN: dict[Broken, str] = {
    drops_a_definition: "used before it is set",
    uses_before_definition: "used before it is set",
    defines_twice: "defined twice",
    takes_an_input_twice: "defined twice",
    loses_an_output: "an output of type .* is not defined",
    swaps_operand_types: "specialized for",
    changes_a_result_type: "its specialization says",
    forges_a_specialization: "the type rule of exp",
    passes_a_number_of_another_kind: "specialized for",
    forgets_an_argument: "wrong number of arguments",
    lays_a_view_out_anew: "a view has strides",
    begins_a_view_elsewhere: "a view begins at another element",
    gives_a_new_value_strides: "a new value has strides",
    writes_a_part_of_another_type: "an update writes",
    drops_an_update: "does not depend on",
    drops_the_update_by_a_constant: "does not depend on the update of a part",
    returns_an_input: "does not depend on",
    drops_an_output: "3 outputs became 2",
    drops_an_input: "2 inputs became 1",
    makes_an_output_a_number: "output 0 was .* and is 1.0",
    duplicates_a_draw: "duplicated",
    drops_a_draw: "dropped",
    reorders_draws: "in another order",
    uses_the_other_mask: "does not depend on random draw",
}


@pytest.mark.parametrize("each", [True, False], ids=["after each pass", "after the last"])
@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: str(broken.__name__))
def test_a_broken_pass_is_caught(
    broken: Broken, each: bool, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "VERIFY_EACH_PASS", each)
    run(graph, lambda graph: graph, monkeypatch)
    try:
        with pytest.raises(VerificationError, match=BROKEN[broken]) as caught:
            run(graph, broken, monkeypatch)
    finally:
        for made, out_types in reversed(FORGED):  # a pass may have run twice
            made.out_types = out_types
        FORGED.clear()
    assert "the pass 'broken_on_purpose' broke the graph" in str(caught.value)


def test_the_error_names_the_equation_and_its_line(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(VerificationError) as caught:
        run(graph, changes_a_result_type, monkeypatch)
    text = str(caught.value)
    assert "equation: %exp.0: float64[3,5] = exp(" in text
    assert "test_verify.py" in text and "(noise @ w.t()).exp() * 2.0" in text


def test_what_passes_may_do(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies, dead code, and a result that depends on more than before."""
    run(graph, lambda graph: rewrite(graph, lambda *given: None), monkeypatch)
    run(graph, lambda graph: graph.without_dead_code(), monkeypatch)

    def depends_on_more(graph: Graph) -> Graph:
        def replace(trace: Any, eqn: Equation, args: tuple[Any, ...], env: Any) -> Any:
            if eqn.op.name != "exp":
                return None
            (zero,) = trace.emit(specialize(TABLE["mul"], args[0], 0.0), (args[0], 0.0), None)
            (more,) = trace.emit(specialize(TABLE["add"], args[0], zero), (args[0], zero), None)
            return trace.emit(specialize(TABLE["exp"], more), (more,), None)

        return rewrite(graph, replace)

    run(graph, depends_on_more, monkeypatch)


def test_an_identity_may_drop_a_dependence_if_the_pass_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = traced(lambda x: x * 0.0 + 1.0, (3,))
    ones = traced(lambda x: eg.ones_like(x), (3,))
    for drops, each in product((True, False), (True, False)):
        monkeypatch.setattr(config, "VERIFY_EACH_PASS", each)
        made = Pass("identity", lambda graph: ones, drops_dependence=drops)
        monkeypatch.setattr(pipeline, "PASSES", (made,))
        if drops:
            optimize(graph, Target.STEP)
        else:
            with pytest.raises(VerificationError, match=r"output 0 .* does not depend on input 0"):
                optimize(graph, Target.STEP)


def test_graphs_above_the_bound_are_not_verified(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "VERIFY_EQUATIONS", len(graph.equations) - 1)
    run(graph, drops_an_output, monkeypatch)
    monkeypatch.setattr(config, "VERIFY_EQUATIONS", len(graph.equations))
    with pytest.raises(VerificationError):
        run(graph, drops_an_output, monkeypatch)


def test_all_tests_verify() -> None:
    assert config.VERIFY_EQUATIONS > 1 << 40 and config.VERIFY_EACH_PASS


def test_a_compiled_step_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the programs of eager mode and of gradients from outside."""
    wrong = Pass("broken_on_purpose", drops_an_output, ~Target(0))
    monkeypatch.setattr(pipeline, "PASSES", (wrong, *pipeline.PASSES))
    x = eg.ones(3, requires_grad=True)
    with pytest.raises(VerificationError, match="outputs became"):
        eg.compile(lambda x: x.sin() * 2)(eg.ones(3))
    with pytest.raises(VerificationError, match="outputs became"):
        eg.compile(lambda x: x.sin() * 2)(x)


@pytest.mark.usefixtures("made_anew")
def test_rematerialization_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    recomputed = rematerialize.with_recomputed

    def broken(graph: Graph, *given: Any, **named: Any) -> Any:
        made, added = recomputed(graph, *given, **named)
        return drops_an_output(made), added

    free, x, y = make_step(depth=10)
    limit = free.plan(x, y).peak // 2
    monkeypatch.setattr(rematerialize, "with_recomputed", broken)
    step, x, y = make_step(depth=10, memory_limit=limit)
    with pytest.raises(VerificationError, match="'rematerialize' broke the graph"):
        step.plan(x, y)


@pytest.mark.parametrize("problem", ["dropped", "duplicated", "in another order"])
def test_collectives_keep_number_and_order(problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those without a use: another rank waits for them."""

    def model(x: eg.Tensor, y: eg.Tensor) -> eg.Tensor:
        total = bind(TABLE["all_reduce"], x, group="", size=1, reduction="SUM")
        bind(TABLE["all_gather"], y, group="", size=1)
        return total * 2

    def broken(graph: Graph) -> Graph:
        es = list(graph.equations)
        gather = es.pop(place_of(es, "all_gather"))
        if problem == "in another order":
            es.insert(0, gather)
        elif problem == "duplicated":
            types = [out.type for out in gather.outs]
            copies = tuple([Var(type, gather.outs[0].trace) for type in types])
            es += [gather, Equation(gather.specialization, gather.args, copies, gather.location)]
        return with_equations(graph, es)

    graph = traced(model, (2, 3), (4,))
    assert [e.op.name for e in graph.without_dead_code().equations][:2] == [
        "all_reduce", "all_gather",
    ]  # fmt: skip
    run(graph, lambda graph: graph, monkeypatch)
    with pytest.raises(VerificationError, match=f"collectives? .*{problem}"):
        run(graph, broken, monkeypatch)
