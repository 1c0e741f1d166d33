"""``backward`` and ``grad``: roots, targets, orders, accumulation, and what tensors tell."""

from __future__ import annotations

import gc
import itertools
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.errors import GradientError
from evergrad.memory.ledger import LEDGER
from twins import agree, fixed, leaf, refuse

# -- backward -----------------------------------------------------------------------------------


def cube_sum(x: Any) -> Any:
    return (x**3).sum()


BACKWARD = {
    "scalar": lambda ns, x: cube_sum(x).backward(),
    "gradient": lambda ns, x: (x**3).backward(fixed(ns, [1.0, -2.0, 0.5])),
    "gradient of another dtype": lambda ns, x: (x**3).backward(ns.ones(3)),
    "one element keeps its shape": lambda ns, x: (x * x).sum(0, keepdim=True).backward(),
    "leaf itself": lambda ns, x: x.sum().backward(),
    "twice accumulates": lambda ns, x: [cube_sum(x).backward() for _ in range(2)],
    "several roots": lambda ns, x: ns.autograd.backward(
        [cube_sum(x), x * x], [None, fixed(ns, [3.0, 4.0, 5.0])]
    ),
    "the same root twice": lambda ns, x: (lambda y: ns.autograd.backward([y, y]))(cube_sum(x)),
    "root of a root": lambda ns, x: (lambda y: ns.autograd.backward([y, (y * y).sum()]))(
        cube_sum(x)
    ),
    "used often": lambda ns, x: (x * x + x.sin() * x - x / 3 + x).sum().backward(),
    "through a 0-d tensor": lambda ns, x: (x * x.sum()).sum().backward(),
    "of a leaf": lambda ns, x: x.backward(fixed(ns, [1.0, 2.0, 3.0])),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_backward_gives_pytorchs_gradient(name: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, -2.0, 0.5])
        BACKWARD[name](ns, x)
        return x.grad

    agree(program, torch)


def test_retained_graph_can_be_walked_again(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        loss = (x.exp() * x).sum()
        loss.backward(retain_graph=True)
        loss.backward(retain_graph=True)
        loss.backward()
        return x.grad

    agree(program, torch)


def test_a_second_walk_over_a_released_graph_names_the_line() -> None:
    x = leaf(eg, [1.0, 2.0])
    loss = x.exp().sum()
    loss.backward()
    with pytest.raises(GradientError, match="second time") as error:
        loss.backward()
    assert "loss = x.exp().sum()" in str(error.value)
    assert "retain_graph=True" in str(error.value)


def test_a_graph_that_keeps_nothing_can_be_walked_again(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        loss = (x + 1).sum()
        loss.backward()
        loss.backward()
        return x.grad

    agree(program, torch)


def test_inputs_limit_where_gradients_go(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x, w = leaf(ns, [1.0, 2.0]), leaf(ns, [3.0, 4.0])
        y = x * w
        y.retain_grad()
        (y * x).sum().backward(inputs=[w])
        first = [x.grad, w.grad, y.grad]
        (x * w * w).sum().backward(inputs=[x])
        return first, x.grad, w.grad

    agree(program, torch)


def test_inputs_may_be_no_leaves(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        y = x * 3
        y.retain_grad()
        (y * y).sum().backward(inputs=[y], retain_graph=True)
        return y.grad, x.grad

    agree(program, torch)


def test_single_tensor_as_inputs(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x, w = leaf(ns, [1.0, 2.0]), leaf(ns, [3.0, 4.0])
        (x * w).sum().backward(inputs=w)
        return x.grad, w.grad

    agree(program, torch)


def test_create_graph_makes_the_gradient_differentiable(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, -2.0])
        y = cube_sum(x)
        y.backward(create_graph=True)
        first = x.grad
        x.grad = None
        (first * first).sum().backward()
        return first, first.requires_grad, x.grad

    agree(program, torch)


# -- grad ---------------------------------------------------------------------------------------


def test_grad_returns_and_does_not_accumulate(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x, w = leaf(ns, [1.0, 2.0]), leaf(ns, [3.0, 4.0])
        found = ns.autograd.grad((x * w * w).sum(), [x, w])
        return found, x.grad, w.grad

    agree(program, torch)


def test_grad_by_something_between(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        y = x * x
        z = y.sin()
        loss = (z * y).sum()
        return ns.autograd.grad(loss, [y, z, x], retain_graph=True), ns.autograd.grad(loss, loss)

    agree(program, torch)


def test_grad_of_several_outputs(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        return ns.autograd.grad([x * x, x.sum()], [x], grad_outputs=[fixed(ns, [1.0, 5.0]), None])

    agree(program, torch)


def test_grad_of_repeated_inputs(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        return ns.autograd.grad(cube_sum(x), [x, x])

    first, second = agree(program, torch)
    first.zero_()
    assert second.tolist() == [3.0, 12.0]


def test_unused_inputs(torch: ModuleType) -> None:
    def unused(ns: Any, **options: Any) -> Any:
        x, w = leaf(ns, [1.0, 2.0]), leaf(ns, [3.0, 4.0])
        return ns.autograd.grad(cube_sum(x), [w, x], **options)

    agree(lambda ns: unused(ns, allow_unused=True), torch)
    agree(lambda ns: unused(ns, materialize_grads=True), torch)
    refuse(unused, torch, match="allow_unused=True")
    refuse(lambda ns: unused(ns, materialize_grads=True, allow_unused=False), torch)


def test_an_input_reached_by_no_derivative_is_unused(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        return ns.autograd.grad((x.detach() * 2 + leaf(ns, [1.0, 1.0])).sum(), x)

    refuse(program, torch, match="allow_unused")


def test_batched_cotangents(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x, w = leaf(ns, [1.0, 2.0, 3.0]), leaf(ns, [0.5, -1.0, 2.0])
        y = (x * w).sin() * x
        rows = ns.eye(3, dtype=ns.float64)
        return ns.autograd.grad(y, [x, w], rows, is_grads_batched=True)

    agree(program, torch)


def test_batched_cotangents_with_unused_inputs(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x, w = leaf(ns, [1.0, 2.0]), leaf(ns, [3.0, 4.0])
        rows = ns.eye(2, dtype=ns.float64)
        return ns.autograd.grad(x * x, [x, w], rows, is_grads_batched=True, allow_unused=True)

    agree(program, torch)


# -- orders -------------------------------------------------------------------------------------


def deep(x: Any, w: Any) -> Any:
    """Every derivative up to the fourth is of full rank."""
    return ((x * w).sin() * x.exp() + (w * w * x).cos() / (x * x + 1)).sum()


@pytest.mark.parametrize("path", ["".join(p) for p in itertools.product("xw", repeat=4)])
def test_fourth_order_in_every_mixture(path: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        leaves = {"x": leaf(ns, [0.3, -0.7]), "w": leaf(ns, [1.1, 0.4])}
        value = deep(**leaves)
        found = []
        for name in path:
            (slope,) = ns.autograd.grad(value.sum(), leaves[name], create_graph=True)
            value = (slope * slope).sum() if len(found) == 1 else slope
            found.append(slope)
        return found

    agree(program, torch, tolerance=1e-8)


def test_orders_of_one_variable_against_the_closed_form() -> None:
    x = leaf(eg, [0.5, 2.0])
    value = (x**5).sum()
    factor, power = 1.0, 5
    for _ in range(4):
        (slope,) = eg.autograd.grad(value, x, create_graph=True)
        factor, power = factor * power, power - 1
        expected = factor * np.array([0.5, 2.0]) ** power
        np.testing.assert_allclose(slope.detach().numpy(), expected, rtol=1e-12)
        value = slope.sum()


def test_gradient_penalty(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x, w = leaf(ns, [[0.1, 0.2], [0.3, 0.5]]), leaf(ns, [[1.0, -1.0], [0.5, 2.0]])
        out = (x @ w).tanh().sum()
        (slope,) = ns.autograd.grad(out, x, create_graph=True)
        penalty = ((slope * slope).sum(1).sqrt() - 1) ** 2
        (out + penalty.sum()).backward()
        return x.grad, w.grad

    agree(program, torch)


# -- accumulation -------------------------------------------------------------------------------


def test_gradients_add_up_in_one_buffer(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        cube_sum(x).backward()
        buffer = x.grad
        cube_sum(x).backward()
        return x.grad is buffer, buffer

    agree(program, torch)


def test_accumulation_with_create_graph_leaves_the_old_gradient_alone(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        cube_sum(x).backward()
        first = x.grad
        cube_sum(x).backward(create_graph=True)
        return x.grad is first, first, x.grad

    agree(program, torch)


def test_gradients_never_share_memory() -> None:
    x, w, b = (leaf(eg, [1.0, 2.0]) for _ in range(3))
    (x + w + b).sum().backward()
    cotangent = fixed(eg, [1.0, 1.0])
    (x + w).backward(cotangent)
    x.grad.mul_(100)
    assert w.grad.tolist() == [2.0, 2.0]
    assert b.grad.tolist() == [1.0, 1.0]
    assert cotangent.tolist() == [1.0, 1.0]


def test_a_gradient_set_by_hand_is_added_to(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        x.grad = fixed(ns, [10.0, 20.0])
        cube_sum(x).backward()
        return x.grad

    agree(program, torch)


def test_an_expanded_gradient_is_not_added_to_wrongly() -> None:
    x = leaf(eg, [1.0, 2.0])
    x.grad = fixed(eg, [10.0]).expand(2)
    with pytest.raises(RuntimeError, match="single memory location"):
        cube_sum(x).backward()


REJECTED_GRADIENTS = {
    "shape": lambda ns: ns.zeros(3, dtype=ns.float64),
    "dtype": lambda ns: ns.zeros(2),
    "type": lambda ns: 3,
}


@pytest.mark.parametrize("name", REJECTED_GRADIENTS)
def test_a_gradient_that_does_not_fit_is_refused(name: str, torch: ModuleType) -> None:
    def program(ns: Any) -> None:
        leaf(ns, [1.0, 2.0]).grad = REJECTED_GRADIENTS[name](ns)

    refuse(program, torch)


def test_deleting_the_gradient(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        cube_sum(x).backward()
        del x.grad
        return x.grad

    agree(program, torch)


# -- retain_grad --------------------------------------------------------------------------------


def test_retain_grad(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        y = x * 3
        y.retain_grad()
        told = y.retains_grad
        for _ in range(2):
            (y * y).sum().backward(retain_graph=True)
        return told, x.retains_grad, y.grad, x.grad

    agree(program, torch)


def test_retain_grad_follows_an_in_place_write(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        y = x * 3
        y.retain_grad()
        y.mul_(5)
        told = y.retains_grad
        y.sum().backward()
        return told, y.grad, x.grad

    agree(program, torch)


def test_retained_gradients_of_views_and_their_base(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [[1.0, 2.0], [3.0, 4.0]])
        y = x * 2
        row = y[0]
        y.retain_grad()
        row.retain_grad()
        (row * row).sum().backward()
        return y.grad, row.grad

    agree(program, torch)


def test_reading_the_gradient_of_what_is_no_leaf_warns() -> None:
    y = leaf(eg, [1.0, 2.0]) * 2
    with pytest.warns(UserWarning, match="not a leaf"):
        assert y.grad is None


def test_a_retained_gradient_does_not_keep_the_tensor_alive() -> None:
    gc.collect()
    gc.disable()
    try:
        before = LEDGER.live, LEDGER.count
        x = leaf(eg, [1.0, 2.0])
        y = x * 3
        y.retain_grad()
        loss = (y * y).sum()
        loss.backward(create_graph=True)
        del x, y, loss
        assert (LEDGER.live, LEDGER.count) == before
    finally:
        gc.enable()


# -- what a tensor tells ------------------------------------------------------------------------


def test_leaves_and_their_opposite(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        plain = fixed(ns, [1.0])
        tensors = [x, plain, x * 2, plain * 2, x.detach(), x[0], plain[0], (x > 1), x.clone()]
        return [(t.is_leaf, t.requires_grad, t.grad_fn is None, t.output_nr) for t in tensors]

    agree(program, torch)


def test_nodes_name_their_op_and_what_came_before(torch: ModuleType) -> None:
    def names(node: Any) -> Any:
        if node is None:
            return None
        return node.name().rpartition("::")[2], [
            (names(n), index) for n, index in node.next_functions
        ]

    def program(ns: Any) -> Any:
        x, w = leaf(ns, [1.0, 2.0]), leaf(ns, [3.0, 4.0])
        return names(((x * w).exp() + x / w - 2.0).sin().grad_fn)

    agree(program, torch)


def test_nodes_have_the_names_of_pytorchs_operators(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        nn = ns.nn.functional
        x, image = ns.ones(64, 64, requires_grad=True), ns.ones(2, 3, 8, 8, requires_grad=True)
        heads, classes = ns.ones(2, 2, 16, 16, requires_grad=True), ns.zeros(64, dtype=ns.int64)
        results = [
            nn.cross_entropy(x, classes), nn.layer_norm(x, (64,)), nn.linear(x, x), x @ x,
            ns.bmm(heads[0], heads[0]), x.softmax(-1), x.log_softmax(-1), x.double(),
            nn.conv2d(image, ns.ones(3, 3, 3, 3)), nn.max_pool2d(image, 2), x.view(32, 128),
            nn.gelu(x, approximate="tanh"), nn.scaled_dot_product_attention(heads, heads, heads),
            x.log1p(), x.expm1(),
        ]  # fmt: skip
        return [result.grad_fn.name() for result in results]

    agree(program, torch)


def test_the_end_of_a_graph_knows_its_leaf() -> None:
    x = leaf(eg, [1.0])
    node = (x * 2).grad_fn.next_functions[0][0]
    assert node.variable is x
    assert node.next_functions == ()
    assert "AccumulateGrad" in repr(node)


def test_several_results_are_numbered(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        values, places = leaf(ns, [[1.0, 5.0], [7.0, 3.0]]).max(1)
        return values.output_nr, values.requires_grad, places.requires_grad

    agree(program, torch)


# -- asking for gradients -----------------------------------------------------------------------


def test_requires_grad_can_be_turned_off_and_on(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = fixed(ns, [1.0, 2.0])
        told = [x.requires_grad]
        told.append(x.requires_grad_() is x)
        cube_sum(x).backward()
        x.requires_grad = False
        told += [x.requires_grad, (x * 2).requires_grad]
        x.requires_grad_(True)
        cube_sum(x).backward()
        return told, x.grad

    agree(program, torch)


REFUSED = {
    "integers cannot": lambda ns: ns.tensor([1, 2]).requires_grad_(),
    "integers cannot from the start": lambda ns: ns.tensor([1, 2], requires_grad=True),
    "booleans cannot": lambda ns: ns.tensor([True]).requires_grad_(),
    "a result cannot stop": lambda ns: (leaf(ns, [1.0]) * 2).requires_grad_(False),
    "nor by assignment": lambda ns: setattr(leaf(ns, [1.0]) * 2, "requires_grad", False),
    "backward of what asks for none": lambda ns: fixed(ns, [1.0]).sum().backward(),
    "backward of many numbers": lambda ns: (leaf(ns, [1.0, 2.0]) * 2).backward(),
    "backward of a complex number": lambda ns: (
        ns.tensor(1j, requires_grad=True, dtype=ns.complex128) * 2
    ).backward(),
    "gradient of another shape": lambda ns: (leaf(ns, [1.0, 2.0]) * 2).backward(ns.ones(3)),
    "complex gradient of a real result": lambda ns: (leaf(ns, [1.0]) * 2).backward(ns.tensor([1j])),
    "grad by what asks for none": lambda ns: ns.autograd.grad(
        leaf(ns, [1.0]).sum(), fixed(ns, [1.0])
    ),
    "no inputs at all": lambda ns: leaf(ns, [1.0]).sum().backward(inputs=[]),
    "retain_grad without history": lambda ns: fixed(ns, [1.0]).retain_grad(),
    "numpy of a leaf": lambda ns: leaf(ns, [1.0]).numpy(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_refuses_is_refused(name: str, torch: ModuleType) -> None:
    refuse(REFUSED[name], torch)


def test_under_no_grad_nothing_is_recorded(torch: ModuleType) -> None:
    def program(ns: Any) -> None:
        with ns.no_grad():
            y = leaf(ns, [1.0]) * 2
        y.sum().backward()

    refuse(program, torch, match="does not require grad")


# -- detach -------------------------------------------------------------------------------------


def test_detach_shares_memory_and_cuts_history(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        y = x * 2
        cut = y.detach()
        cut[0] = 10.0
        return cut.requires_grad, y, cut.data_ptr() == y.data_ptr()

    agree(program, torch)


def test_detach_in_place(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        y = x * 2
        z = y.exp()
        y.detach_()
        told = [y.requires_grad, y.is_leaf]
        (z + y).sum().backward()
        x_before = x.grad.clone()
        y.requires_grad_()
        (y * y).sum().backward()
        return told, x_before, x.grad, y.grad

    agree(program, torch)


def test_views_are_not_detached_in_place(torch: ModuleType) -> None:
    refuse(lambda ns: (leaf(ns, [1.0]) * 2).view(1, 1).detach_(), torch, match="views")


# -- threads ------------------------------------------------------------------------------------


def test_threads_differentiate_at_once() -> None:
    """Graphs share leaves and values, and nothing that changes."""
    w = leaf(eg, np.linspace(-1, 1, 64).reshape(8, 8))
    shared = (w @ w).tanh()

    def run(seed: int) -> Any:
        x = fixed(eg, np.full((8, 8), 0.1 * seed))
        out = x
        for _ in range(20):
            out = (out @ shared).sin() + x
        return eg.autograd.grad(out.sum(), w, retain_graph=True)[0].numpy()

    expected = [run(seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for found, wanted in zip(pool.map(run, range(8)), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-12)


# -- size ---------------------------------------------------------------------------------------


def test_a_chain_of_100_000_needs_no_stack() -> None:
    x = leaf(eg, [1.0])
    y = x
    for _ in range(100_000):
        y = y + x
    y.sum().backward()
    assert x.grad.tolist() == [100_001.0]
    del y


def test_graphs_are_freed_without_the_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        before = LEDGER.live, LEDGER.count
        x, w = leaf(eg, np.ones((20, 20))), leaf(eg, np.ones((20, 20)))
        y = (x @ w).tanh()
        (first,) = eg.autograd.grad((y * y).sum(), x, create_graph=True)
        (first * first).sum().backward()
        del x, w, y, first
        assert (LEDGER.live, LEDGER.count) == before
    finally:
        gc.enable()


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("function", [
    lambda a, b: a * b, lambda a, b: a @ b, lambda a, b: a / b, eg.maximum,
    lambda a, b: eg.where(a > b, (a - b).sqrt(), b * a), eg.addcmul,
    lambda a, b: eg.nn.functional.linear(a, b), lambda a, b: eg.cat([a, b]) ** 2,
    lambda a, b: eg.nn.functional.layer_norm(a, (16,), b[0]),
    lambda a, b: eg.nn.functional.conv1d(a[None], b[:, :, None]), eg.cdist,
])  # fmt: skip
def test_gradients_of_some_inputs_are_those_of_all(function: Any, create_graph: bool) -> None:
    numbers = np.random.default_rng(0).standard_normal((2, 16, 16)).astype("f4")
    a, b = (eg.tensor(n).requires_grad_() for n in numbers)
    x, y = a * 1, b * 1
    inputs = (x, y, x) if function is eg.addcmul else (x, y)
    loss = function(*inputs).square().sum()
    both = eg.autograd.grad(loss, (a, b), retain_graph=True)
    for given, wanted in zip((a, b), both, strict=True):
        (found,) = eg.autograd.grad(loss, given, retain_graph=True, create_graph=create_graph)
        np.testing.assert_allclose(found.detach(), wanted, rtol=1e-5, atol=1e-5)
        assert found.requires_grad is create_graph
    (middle,) = eg.autograd.grad(loss, x)
    np.testing.assert_allclose(middle, both[0], rtol=1e-5, atol=1e-5)
