"""Batches of values of any shapes: the same as the values one by one, and what they cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ragged.values import random, values

import evergrad as eg
from evergrad import memory, ragged
from evergrad.autograd import gradcheck

quick = settings(max_examples=40, deadline=None)
lists = st.lists(st.tuples(values, values), min_size=0, max_size=5)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "convolve", "correlate", "kron"])
@quick
@given(pairs=lists)
def test_a_batch_is_its_values_one_by_one(name: str, pairs: Any) -> None:
    operation = getattr(ragged, name)
    a = ragged.batch([x for x, _ in pairs], eg.int64)
    b = ragged.batch([y for _, y in pairs], eg.int64)
    found = operation(a, b)
    assert len(found) == len(pairs)
    for one, (x, y) in zip(found, pairs, strict=True):
        expected = operation(x, y)
        assert tuple(one.shape) == tuple(expected.shape) and one == expected


@quick
@given(pairs=lists)
def test_numbers_of_a_batch(pairs: Any) -> None:
    a = ragged.batch([x for x, _ in pairs], eg.int64)
    b = ragged.batch([y for _, y in pairs], eg.int64)
    assert ragged.sum(a).tolist() == [ragged.sum(x).item() for x, _ in pairs]
    assert ragged.inner(a, b).tolist() == [ragged.inner(x, y).item() for x, y in pairs]
    for p in (1, 2, 3):
        expected = [ragged.norm(x.double(), p).item() for x, _ in pairs]
        assert ragged.norm(a.double(), p).tolist() == pytest.approx(expected)


@quick
@given(pairs=lists)
def test_representatives_of_a_batch(pairs: Any) -> None:
    a = ragged.batch([x for x, _ in pairs], eg.int64)
    small = ragged.shrink(a)
    assert small == a
    assert list(small.shapes) == [tuple(ragged.shrink(x).shape) for x, _ in pairs]


def test_one_value_beside_a_batch() -> None:
    a, b = ragged.batch([[1.0], [1.0, 2.0]]), ragged.tensor([1.0, 1.0])
    assert ragged.add(a, b).tolist() == [[2, 1], [2, 3]]
    assert (a + b).tolist() == [[2, 1], [2, 3]]
    assert ragged.convolve(b, a).tolist() == [[1, 1], [1, 3, 2]]
    assert ragged.scale(a, eg.tensor([2.0, 3.0])).tolist() == [[2], [3, 6]]
    assert ragged.power(a, 2).tolist() == [[1], [1, 4, 4]]


def test_wrong_batches_are_refused() -> None:
    a, b = ragged.batch([[1.0], [2.0]]), ragged.batch([[1.0]])
    with pytest.raises(ValueError, match="one by one"):
        ragged.add(a, b)
    with pytest.raises(ValueError, match="need a tensor of"):
        ragged.Batch(eg.ones(3), [(2,)])
    with pytest.raises(ValueError, match="values are no"):
        a.reshape(3)
    with pytest.raises(TypeError, match="not mixed"):
        a + eg.ones(2)


SHAPES = [[(2,), (0,), (3,)], [(3,), (2,), (1,)]], [[(2, 2), (1,)], [(3,), (2, 1, 2)]]


@pytest.mark.parametrize("name", ["add", "mul", "convolve", "correlate", "kron", "inner"])
@pytest.mark.parametrize("shapes", SHAPES)
def test_gradients(name: str, shapes: Any) -> None:
    def call(a: eg.Tensor, b: eg.Tensor) -> eg.Tensor:
        found = getattr(ragged, name)(ragged.Batch(a, shapes[0]), ragged.Batch(b, shapes[1]))
        return found.elements if isinstance(found, ragged.Batch) else found

    counts = [sum(int(np.prod(s)) for s in group) for group in shapes]
    inputs = [random((n,), seed).requires_grad_() for seed, n in enumerate(counts)]
    assert gradcheck(call, inputs, check_forward_ad=True, check_batched_grad=True)
    compiled = eg.compile(call)
    eg.testing.assert_close(compiled(*inputs), call(*inputs))


def test_gradients_of_a_norm_of_zero() -> None:
    a = ragged.batch([[0.0, 0.0], [], [3.0, 4.0]], eg.float64, requires_grad=True)
    ragged.norm(a).sum().backward()
    assert a.grad is not None
    assert a.grad.tolist() == [[0, 0], [], [pytest.approx(0.6), pytest.approx(0.8)]]


def test_batches_are_arguments_of_compiled_functions() -> None:
    step = eg.compile(lambda a, b: ragged.convolve(a, b))
    for lengths in [(2, 3), (2, 3), (1, 5)]:
        a = ragged.batch([np.ones(n) for n in lengths])
        assert step(a, a) == ragged.convolve(a, a)


LAYOUTS = {
    "few long runs": [2, 3, 1000, 5, 2000],
    "many short ones": [n % 7 for n in range(200)],
    "equal neighbours": [40, 40, 0, 40, 7, 7],
    "nothing": [0, 0],
}


@pytest.mark.parametrize("name", ["add", "mul"])
@pytest.mark.parametrize("lengths", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_layouts_of_every_kind(name: str, lengths: list[int]) -> None:
    """Copied by runs or by an index, eager and compiled, and both gradients."""
    shapes = [[(n,) for n in order] for order in (lengths, lengths[::-1])]
    given = [random((sum(lengths),), seed).requires_grad_() for seed in (0, 1)]

    def step(a: eg.Tensor, b: eg.Tensor) -> tuple[eg.Tensor, ...]:
        pair = ragged.Batch(a, shapes[0]), ragged.Batch(b, shapes[1])
        found = getattr(ragged, name)(*pair).elements
        return found, *eg.autograd.grad((found * found).sum(), (a, b))

    a, b = (np.split(x.detach().numpy(), np.cumsum(n)[:-1])
            for x, n in zip(given, (lengths, lengths[::-1]), strict=True))  # fmt: skip
    expected = [
        getattr(np, {"add": "add", "mul": "multiply"}[name])(
            np.pad(x, (0, max(len(y) - len(x), 0))), np.pad(y, (0, max(len(x) - len(y), 0)))
        )
        for x, y in zip(a, b, strict=True)
    ]
    for results in (step(*given), eg.compile(step)(*given)):
        assert np.array_equal(results[0].detach().numpy(), np.concatenate(expected))
        assert [tuple(g.shape) for g in results[1:]] == [tuple(x.shape) for x in given]
    eg.testing.assert_close(eg.compile(step)(*given), step(*given))


@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_transforms_of_one_length_are_computed_together(name: str) -> None:
    """Each item is what it is alone, to the bit, and float32 is rounded from double precision."""
    rng = np.random.default_rng(0)
    lengths = [700, 3, 900, 1000, 0, 5, 1000, 600]
    pairs = [[rng.random(n).astype(np.float32) + 1 for n in lengths] for _ in range(2)]
    pairs[1] = [x[: max(len(x) - 7, 0)] for x in pairs[1]]
    operation = getattr(ragged, name)
    found = operation(*map(ragged.batch, pairs))
    for one, x, y in zip(found, *pairs, strict=True):
        alone = operation(ragged.tensor(x), ragged.tensor(y))
        assert one.tolist() == alone.tolist()
        wide = operation(ragged.tensor(x, eg.float64), ragged.tensor(y, eg.float64))
        if len(y) > 500:
            np.testing.assert_allclose(one.dense.numpy(), wide.dense.numpy(), rtol=2**-23)


def test_an_infinity_stays_in_its_item() -> None:
    values = [np.ones(1000, np.float32) for _ in range(3)]
    values[1][0] = np.inf
    found = ragged.convolve(ragged.batch(values), ragged.batch([np.ones(900, np.float32)] * 3))
    first, second, third = (one.dense.numpy() for one in found)
    assert np.array_equal(first, third) and np.isfinite(first).all()
    assert np.isinf(second[:900]).all() and np.isfinite(second[900:]).all()


# -- matrices -----------------------------------------------------------------------------------


@pytest.mark.parametrize("product", ["convolve", "kron"])
def test_products_of_matrices_of_values(product: str) -> None:
    rng = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> list[ragged.Tensor]:
        lengths = rng.integers(0, 4, rows * columns)
        return [ragged.tensor(rng.integers(-5, 5, n).astype(float)) for n in lengths]

    a, b = matrix(2, 3), matrix(3, 4)
    times = getattr(ragged, product)
    found = ragged.matmul(ragged.batch(a).reshape(2, 3), ragged.batch(b).reshape(3, 4), product)
    assert found.batch_shape == (2, 4)
    for i in range(2):
        for k in range(4):
            expected = ragged.zero(eg.float64)
            for j in range(3):
                expected = expected + times(a[3 * i + j], b[4 * j + k])
            assert found[i, k] == expected


@pytest.mark.parametrize("product", ["convolve", "kron"])
def test_gradients_of_products_of_matrices(product: str) -> None:
    shapes = [(2,), (0,), (1,), (3,)], [(1,), (2,)]

    def call(a: eg.Tensor, b: eg.Tensor) -> eg.Tensor:
        left = ragged.Batch(a, shapes[0], (2, 2))
        return ragged.matmul(left, ragged.Batch(b, shapes[1], (2, 1)), product).elements

    assert gradcheck(call, (random((6,)).requires_grad_(), random((3,), 1).requires_grad_()))


def test_matrices_that_do_not_fit() -> None:
    a = ragged.batch([[1.0], [2.0]])
    with pytest.raises(ValueError, match="do not fit"):
        ragged.matmul(a.reshape(1, 2), a.reshape(1, 2))
    with pytest.raises(ValueError, match="product is one of"):
        ragged.matmul(a.reshape(1, 2), a.reshape(2, 1), "outer")
    empty = ragged.matmul(
        ragged.Batch(eg.ones(0), [], (2, 0)), ragged.Batch(eg.ones(0), [], (0, 1))
    )
    assert empty == ragged.batch([[0.0], [0.0]]).reshape(2, 1)


# -- cost ---------------------------------------------------------------------------------------


def test_memory_follows_the_elements() -> None:
    """Streams of 2, 3, 1000, 5 and 2000 elements do not cost as five of 2000."""
    lengths = [2, 3, 1000, 5, 2000]
    a = ragged.batch([np.ones(n) for n in lengths], requires_grad=True)
    b = ragged.batch([np.ones(n) for n in reversed(lengths)])

    def bytes_of(result: Any) -> int:
        return int(result.elements.nbytes)

    union = sum(max(n, m) for n, m in zip(lengths, reversed(lengths), strict=True)) * 8
    assert bytes_of(a + b) == union < 5 * 2000 * 8 * 0.8
    product = ragged.convolve(a, ragged.tensor([1.0, 1.0], eg.float64))
    assert bytes_of(product) == sum(n + 1 for n in lengths) * 8
    with memory.track() as tracked:
        ragged.sum(a + b).sum().backward()
    assert tracked.peak - tracked.live_at_start < 8 * union
    assert a.grad is not None and bytes_of(a.grad) == sum(lengths) * 8


@pytest.mark.parametrize("dtype", [eg.float32, eg.float64, eg.int64, eg.bool, eg.complex64])
@pytest.mark.parametrize("lengths", [
    ([2, 3, 9], [4, 3, 1]), ([0, 0], [2, 0]), ([], []),
    ([20_000, 3, 9, 5], [4, 30_000, 1, 6]), ([20_000, 0], [4, 0]), ([3, 20_000], [0, 20_001]),
])  # fmt: skip
def test_sums_are_those_of_the_extensions_to_the_bit(lengths: Any, dtype: Any) -> None:
    """A negative zero beside nothing is a zero, eager and compiled."""
    a, b = (
        ragged.batch([eg.full((n,), -0.0).to(dtype) for n in own], dtype) for own in lengths
    )  # fmt: skip
    shapes = tuple((max(pair),) for pair in zip(*lengths, strict=True))
    expected = (a.extended(shapes) + b.extended(shapes)).numpy()
    for call in (ragged.add, eg.compile(ragged.add)):
        found = call(a, b)
        assert found.shapes == shapes and found.elements.numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("types", [(eg.float32, eg.float64), (eg.int64, eg.float32)])
def test_sums_promote(types: Any) -> None:
    a, b = (
        ragged.batch([[1, 2], [3]], types[0]),
        ragged.batch([[1], [2, 3]], types[1]),
    )
    assert (a + b).tolist() == [[2, 2], [5, 3]]
    assert (a + b).dtype == eg.promote_types(*types)


def test_an_eager_addition_is_one_op() -> None:
    """Also where the lengths differ: extensions are no nodes of their own."""
    a, b = (ragged.batch([eg.ones(n) for n in own]) for own in ([2, 3, 1000], [1000, 3, 2]))
    a.requires_grad_()
    node = ragged.add(a, b).elements.grad_fn
    assert node is not None and "AddItems" in node.name()
    assert [type(parent).__name__ for parent, _ in node.next_functions if parent] == [
        "AccumulateGrad"
    ]


def test_sums_under_vmap_and_forward_mode() -> None:
    inner, outer = (((2,), (1,)), ((1,), (3,))), ((2,), (3,))
    shapes_a, shapes_b = inner
    x, y = random((4, 3)), random((4,), 1)

    def added(a: eg.Tensor, b: eg.Tensor) -> eg.Tensor:
        return (ragged.Batch(a, shapes_a) + ragged.Batch(b, shapes_b)).elements

    found = eg.func.vmap(added, (0, None))(x, y)
    assert eg.allclose(found, eg.stack([added(row, y) for row in x]))
    assert tuple(found.shape) == (4, sum(n for (n,) in outer))
    inputs = x[0].clone().requires_grad_(), y.clone().requires_grad_()
    assert gradcheck(added, inputs, check_forward_ad=True)


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, float("inf")])
def test_norms_are_those_of_the_values(p: float) -> None:
    values = [[3.0, -4.0], [], [0.0, 0.0], [[1.0, -7.0], [2.0, 3.0]], [-5.0], 2.0]
    many = ragged.batch(values, eg.float64, requires_grad=True)
    found = ragged.norm(many, p)
    single = [ragged.tensor(v, eg.float64, requires_grad=True) for v in values]
    expected = [ragged.norm(v, p) for v in single]
    assert found.tolist() == pytest.approx([x.item() for x in expected])
    found.sum().backward()
    for value, grad, norm in zip(single, many.grad, expected, strict=True):  # type: ignore[call-overload]
        norm.backward() if value.numel() else None
        assert value.grad is None or np.allclose(value.grad.numpy(), grad.numpy())


@pytest.mark.parametrize("p", [1, 2, float("inf")])
def test_a_norm_of_nan_is_nan(p: float) -> None:
    found = ragged.norm(ragged.batch([[float("nan"), 1.0], [3.0], [float("inf")]]), p)
    assert np.isnan(found[0].item()) and found[1].item() == 3 and found[2].item() == float("inf")


NARROW = ["int8", "uint8", "bool", "int64", "float16", "bfloat16"]


@pytest.mark.parametrize("kind", NARROW)
def test_numbers_of_narrow_types_do_not_overflow_on_the_way(kind: str) -> None:
    """Of a batch as of its values: integers are added up in 64 bits, halves in float32."""
    dtype = getattr(eg, kind)
    size = {"bool": 1, "float16": 200, "bfloat16": 200}.get(kind, 100)
    dense = [eg.full((n,), size).to(dtype) for n in (3, 0, 2)]
    values = [ragged.tensor(x) for x in dense]
    many = ragged.batch(values)
    ones = ragged.batch([ragged.tensor(eg.ones(4).to(dtype))] * 3)
    for found, expected in [
        (ragged.sum(many), [3 * size, 0, 2 * size]),
        (ragged.inner(many, ones), [3 * size, 0, 2 * size]),
        (ragged.norm(many), [3**0.5 * size, 0, 2**0.5 * size]),
        (ragged.norm(many, 3), [3 ** (1 / 3) * size, 0, 2 ** (1 / 3) * size]),
        (ragged.norm(many, float("inf")), [size, 0, size]),
    ]:
        assert found.tolist() == pytest.approx(expected, rel=2**-8)
    for function in (ragged.sum, ragged.norm, lambda x: ragged.inner(x, x)):
        alone = [function(x) for x in values]
        assert [x.item() for x in alone] == pytest.approx(function(many).tolist(), rel=2**-8)
        assert {x.dtype for x in alone} == {function(many).dtype}


def test_vmap_does_not_map_over_batches() -> None:
    many = ragged.batch([[1.0, 2.0], [3.0]])
    factors = eg.arange(2.0)
    with pytest.raises(TypeError, match="has its elements in one dimension"):
        eg.vmap(ragged.sum)(many)
    with pytest.raises(TypeError, match="has its elements in one dimension"):
        eg.vmap(lambda s: ragged.scale(many, s))(factors)
    found = eg.vmap(lambda s: ragged.scale(many, s).elements)(factors)
    assert found.tolist() == [[0, 0, 0], [1, 2, 3]]


def test_errors_of_dense_functions_name_the_kind_of_value() -> None:
    dense, value = eg.ones(2), ragged.tensor([1.0])
    for call in (eg.add, lambda a, b: eg.cat([a, b]), lambda a, b: a.mul_(b)):
        with pytest.raises(TypeError, match=r"evergrad\.ragged\.value\.Tensor"):
            call(dense, value)


def test_other_arrangements() -> None:
    many = ragged.batch([[1.0], [], [2.0, 3.0], [4.0]])
    assert many.reshape(-1, 2).batch_shape == many.reshape((2, -1)).batch_shape == (2, 2)
    assert many.reshape(2, 2)[1, 0].tolist() == [2, 3] and many.reshape([4]).batch_shape == (4,)
    for wrong in ((3,), (-1, -1), (-1, 3)):
        with pytest.raises(ValueError):
            many.reshape(*wrong)
