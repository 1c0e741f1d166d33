"""What becomes one kernel: folds over blocks of rows, updates of parameters."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from tests.compiler.steps import lowered_programs_of, programs_of

import evergrad as eg
from evergrad.compiler.codegen.loop_kernel_cache import EMITTED
from evergrad.compiler.schedule.nodes import Group

SHAPES = [(4, 20, 30), (3, 17, 2, 33), (2, 3, 18, 40), (4, 300, 64), (2, 20, 21, 22), (4, 5, 6)]


def normal(*shape: int, dtype: Any = eg.float32) -> Any:
    return eg.tensor(np.random.default_rng(len(shape)).standard_normal(shape), dtype=dtype)


def assert_near(found: Any, expected: Any) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_folds_over_any_dimensions(shape: tuple[int, ...]) -> None:
    """Several folds of one value, in the same kernel if they fit together."""
    x = normal(*shape)
    for count in range(1, len(shape)):
        for dims in combinations(range(len(shape)), count):

            def folded(x: Any, dims: Any = dims) -> tuple[Any, ...]:
                y = x * eg.tanh(x)
                return y.sum(dims), y.amax(dims, keepdim=True), (y > 1).any(dims[0]), y.sum(-1), y

            for found, expected in zip(eg.compile(folded)(x), folded(x), strict=True):
                assert_near(found, expected)


def test_a_middle_dimension_is_folded_block_by_block() -> None:
    x = normal(4, 256, 128)
    compiled = eg.compile(lambda x: (x * 2).sum(1))
    assert_near(compiled(x), (x * 2).sum(1))
    (program,) = lowered_programs_of(compiled)
    (group,) = [u for u in program.lowering.nodes if isinstance(u, Group)]
    assert (group.blocks, group.inner) == (4, {2})


def test_blocks_do_not_depend_on_the_threads() -> None:
    x = normal(3, 1000, 70)
    compiled = eg.compile(lambda x: ((x * x).sum(1), x.sum((0, 1)), x.sum()))
    results = []
    for threads in (1, 2, 3):
        eg.set_num_threads(threads)
        compiled(x)
        (program,) = programs_of(compiled)
        program.threads = threads
        results.append([t.numpy().tobytes() for t in compiled(x)])
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD"])
def test_the_update_of_a_parameter_is_one_kernel(name: str) -> None:
    options = {"momentum": 0.9} if name == "SGD" else {}
    layers = [eg.nn.Linear(n, n + 1) for n in (17, 18, 19)]
    model = eg.nn.Sequential(*layers)
    optimizer = getattr(eg.optim, name)(model.parameters(), lr=0.1, **options)

    @eg.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step(normal(5, 17))
    program = lowered_programs_of(step)[-1]
    for layer in layers:
        shape = tuple(layer.weight.shape)
        groups = [u for u in program.lowering.nodes if isinstance(u, Group)]
        assert len([g for g in groups if g.shape == shape]) == 1


def test_what_cannot_fail_writes_right_to_its_place() -> None:
    weight = normal(30, 40)

    @eg.compile
    def step(x: Any) -> Any:
        weight.add_(x)
        return weight.sum()

    step(normal(30, 40))
    (program,) = lowered_programs_of(step)
    assert all(instruction.node is not None for instruction in program.instructions)


def groups_over(compiled: Any, *extents: int) -> list[Any]:
    (program,) = lowered_programs_of(compiled)
    units = program.lowering.nodes
    return [u for u in units if isinstance(u, Group) and u.shape == extents]


def test_a_loss_and_its_gradient_pass_over_the_scores_once() -> None:
    scores, labels = normal(20, 70).requires_grad_(), eg.arange(20) % 70
    labels[3] = -100

    def step(labels: Any) -> tuple[Any, Any]:
        loss = eg.nn.functional.cross_entropy(scores * 2, labels)
        return loss.detach(), *eg.autograd.grad(loss, (scores,))

    compiled = eg.compile(step)
    for found, expected in zip(compiled(labels), step(labels), strict=True):
        assert_near(found, expected)
    assert len(groups_over(compiled, 20, 70)) == 1


def test_a_norm_and_all_its_gradients_are_one_kernel() -> None:
    norm, x, slope = eg.nn.LayerNorm(70), normal(20, 70).requires_grad_(), normal(20, 70)

    def step(slope: Any) -> tuple[Any, ...]:
        y = norm(x)
        return y.detach(), *eg.autograd.grad(y, (x, norm.weight, norm.bias), slope)

    compiled = eg.compile(step)
    for found, expected in zip(compiled(slope), step(slope), strict=True):
        assert_near(found, expected)
    assert len(groups_over(compiled, 20, 70)) == 1


def test_groups_that_read_the_same_product_are_one() -> None:
    """Though each began before the other read it."""

    def step(a: Any, b: Any, c: Any) -> tuple[Any, ...]:
        before = a @ b
        curve = before.tanh()
        product = before @ c
        return product.sum(0), (curve * product).sum(0), product.sum(1)

    given = normal(300, 40), normal(40, 256), normal(256, 256) / 16
    compiled = eg.compile(step)
    for found, expected in zip(compiled(*given), step(*given), strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-3)
    assert len(groups_over(compiled, 300, 256)) == 1


def test_what_waits_for_another_product_keeps_nobody_waiting() -> None:
    def step(a: Any, b: Any, c: Any) -> tuple[Any, ...]:
        curve = (a @ b).tanh()
        total = curve.sum(1)
        product = a @ c
        return product.sum(0), (curve * product).sum(0), total

    given = normal(300, 40), normal(40, 256), normal(40, 256) / 16
    compiled = eg.compile(step)
    for found, expected in zip(compiled(*given), step(*given), strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-3)
    assert len(groups_over(compiled, 300, 256)) == 2


def test_sums_of_inputs_that_wait_for_their_users() -> None:
    def step(x: Any, y: Any) -> tuple[Any, ...]:
        total, rows, columns = x.sum(), x.sum(1, keepdim=True), x.amax(0)
        return y * total, (x - rows) * total, columns * 2, y.sum(), y.sum() + total, x.sum((0, 1))

    x, y = normal(33, 20), normal(20)
    for found, expected in zip(eg.compile(step)(x, y), step(x, y), strict=True):
        assert_near(found, expected)


def test_what_is_small_joins_a_wave_before() -> None:
    def step(x: Any, first: Any, second: Any) -> tuple[Any, ...]:
        return eg.tanh(x @ first).sum(0), x @ second

    given = normal(200, 30), normal(30, 20), normal(30, 20) * 2
    compiled = eg.compile(step)
    for found, expected in zip(compiled(*given), step(*given), strict=True):
        assert_near(found, expected)
    (program,) = lowered_programs_of(compiled)
    together = [i.label for i in program.waves[0]]
    assert len([label for label in together if "matmul" in label]) == 2
    assert any("tanh" in i.label for wave in program.waves[1:] for i in wave)


def test_groups_of_equal_structure_share_what_was_written() -> None:
    """Kernels that differ in a number, a type, an order or a dimension are not taken for equal."""
    x = normal(40, 40)
    functions: list[Any] = [
        lambda x: x.clamp(0, 1), lambda x: x.clamp(0, 2), lambda x: x.T + x, lambda x: x + x,
        lambda x: (x + x).sum(0), lambda x: (x + x).sum(1), lambda x: (x + x).amax(1),
        lambda x: (x + x).sum(1, keepdim=True) * x, lambda x: (x + x).double() * 2,
        lambda x: eg.where(x > 0, x, 1), lambda x: eg.where(x > 0, x, 2),
    ]  # fmt: skip

    def step(x: Any) -> tuple[Any, ...]:
        return tuple(function(x * 2) for function in functions)

    for found, expected in zip(eg.compile(step)(x), step(x), strict=True):
        assert_near(found, expected)
    for function in functions:
        assert_near(eg.compile(function)(x), function(x))

    before = set(EMITTED)
    layers, weight = [eg.nn.LayerNorm(50) for _ in range(3)], normal(50, 50)

    @eg.compile
    def deep(x: Any) -> Any:
        for layer in layers:
            x = layer(x @ weight)
        return x @ weight

    with eg.no_grad():
        deep(normal(41, 50))
    assert len(groups_over(deep, 41, 50)) == 3
    # None, if layers of another size were compiled before.
    assert len([structure for structure in EMITTED if structure not in before]) <= 1


LOOKUPS: dict[str, Any] = {
    "rows in another order": lambda x, i: (x * 2 + 1)[i],
    "beside the rows at hand": lambda x, i: 0.3 * (x * 2 + 1) + 0.7 * (x * 2 + 1)[i],
    "lookup of a lookup": lambda x, i: x.exp()[i][i],
    "rows of a turned table": lambda x, i: x.sin().t()[i[:3] % 3],
    "one place again and again": lambda x, i: x.sin()[eg.full((5,), 3)],
    "one number in the table": lambda x, i: eg.full((5, 3), 7.0)[i] + x,
    "embedding": lambda x, i: eg.nn.functional.embedding(i, x.tanh()),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_a_table_is_looked_up_where_the_index_says(name: str) -> None:
    """As many places as the table has rows: what makes the table is not computed at the place of
    the result instead."""
    function, x, index = LOOKUPS[name], normal(5, 3), eg.tensor([4, 0, 0, 3, 1])
    assert_near(eg.compile(function)(x, index), function(x, index))


@pytest.mark.parametrize(
    "use", [lambda x: x.t().exp(), lambda x: x.movedim(-1, 0).square(), lambda x: x.t().norm(dim=0)]
)
def test_the_gradient_of_a_write_comes_through_a_turned_view(use: Any) -> None:
    """The gradient is written to as well, and lies in order though what it is made of does not."""

    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        y = x * 1
        y[:, 0].add_(1)
        return eg.autograd.grad(use(y).sum(), x)[0]

    assert_near(eg.compile(step)(normal(2, 5)), step(normal(2, 5)))


@pytest.mark.parametrize("shape", [(4, 1), (1, 5), (1, 1), (1,)])
@pytest.mark.parametrize("dims", [None, 0, 1])
def test_what_is_repeated_counts_as_often_in_a_sum(shape: tuple[int, ...], dims: Any) -> None:
    def function(x: Any) -> tuple[Any, ...]:
        y = (x * 3).expand(4, 5)
        picked = y.gather(1, eg.tensor([[4], [0], [2], [2]]))
        return y.sum(dims), y.mean(dims), y.amax(() if dims is None else dims), y + 1, picked

    x = normal(*shape)
    for found, expected in zip(eg.compile(function)(x), function(x), strict=True):
        assert_near(found, expected)


def test_a_condition_of_bytes_is_true_where_it_is_not_zero() -> None:
    condition = eg.tensor([1, 0, 2, 0], dtype=eg.uint8)
    a, b = eg.ones(4), eg.zeros(4)
    expected = [1.0, 0.0, 1.0, 0.0]
    assert eg.where(condition, a, b).tolist() == expected
    assert eg.compile(lambda *args: eg.where(*args))(condition, a, b).tolist() == expected
