"""Reads and writes at indices in compiled functions: the numbers of eager mode and of PyTorch, no
NumPy call, and the same errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.compiler.steps import programs_of

import evergrad as eg

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("made_anew")
RNG = np.random.default_rng(11)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def places(extent: int, *shape: int) -> Any:
    return RNG.integers(0, extent, shape)


def calls_of(compiled: Any) -> list[str]:
    """What the programs leave to NumPy."""
    instructions = [i for program in programs_of(compiled) for i in program.instructions]
    return [i.label for i in instructions if i.kernel is None]


def with_nan(x: Any) -> Any:
    x = x.copy()
    x.reshape(-1)[::5] = np.nan
    return x


def put(t: Any, x: Any, i: Any, j: Any, v: Any) -> Any:
    x = x.clone()
    x[i, j] = v
    return x


def written(t: Any, x: Any, v: Any, part: Any) -> Any:
    x = x.clone()
    x[part] = v
    return x


Case = tuple[Callable[..., Any], tuple[Any, ...]]
CASES: dict[str, Case] = {
    "index of one dimension": (lambda t, x, i: x[i], (floats(9), places(9, 20))),
    "negative index": (lambda t, x, i: x[i], (floats(9), places(9, 20) - 9)),
    "index of a strided table": (lambda t, x, i: x[::2][i], (floats(18), places(9, 4, 5))),
    "strided index": (lambda t, x, i: x[i[:, 1]], (floats(18), places(9, 6, 3))),
    "rows along a middle dimension": (
        lambda t, x, i: x.index_select(1, i), (floats(3, 5, 17), places(5, 9))),
    "rows along a middle dimension, used in a loop": (
        lambda t, x, i: x.index_select(2, i) * 2 + x.index_select(2, i.flip(0)),
        (floats(2, 3, 5, 31), places(5, 7))),
    "rows of a transposed table": (
        lambda t, x, i: x.transpose(0, 2).index_select(1, i), (floats(17, 5, 3), places(5, 9))),
    "short rows along a middle dimension": (
        lambda t, x, i: x.index_select(1, i), (floats(3, 5, 2), places(5, 9))),
    "an index of two dimensions along the middle": (
        lambda t, x, i: x[:, i], (floats(3, 5, 19), places(5, 2, 7) - 5)),
    "elements along the last dimension": (
        lambda t, x, i: x[..., i], (floats(2, 3, 7), places(7, 11) - 7)),
    "a line of more than one block": (
        lambda t, x, i: x[:, i], (floats(2, 97), places(97, 20000))),
    "gather by an index of all planes": (
        lambda t, x, i: x.gather(2, i.expand(-1, 4, -1)), (floats(3, 4, 9), places(9, 3, 1, 13))),
    "gather by a transposed index": (
        lambda t, x, i: x.gather(1, i.t()), (floats(5, 9), places(9, 13, 5))),
    "two indices": (lambda t, x, i, j: x[i, j], (floats(5, 7, 3), places(5, 8), places(7, 8))),
    "two broadcast indices": (
        lambda t, x, i, j: x[i, j], (floats(5, 7), places(5, 4, 1), places(7, 6) - 7),
    ),
    "three indices": (
        lambda t, x, i, j, k: x[i, j, k],
        (floats(3, 4, 5), places(3, 9), places(4, 9), places(5, 9)),
    ),
    "indices in the middle": (
        lambda t, x, i, j: x[:, i, j], (floats(2, 5, 7, 3), places(5, 8), places(7, 8)),
    ),
    "integers": (lambda t, x, i, j: x[i, j], (places(99, 5, 7), places(5, 8), places(7, 8))),
    "gather 0": (lambda t, x, i: x.gather(0, i), (floats(5, 7), places(5, 9, 7))),
    "gather 1": (lambda t, x, i: x.gather(1, i), (floats(5, 7, 3), places(7, 5, 2, 3))),
    "gather of a part": (lambda t, x, i: x.gather(0, i), (floats(5, 7), places(5, 9, 7))),
    "gather by an expanded index": (
        lambda t, x, i: x.gather(0, i.expand(-1, 7)), (floats(5, 7), places(5, 9, 1)),
    ),
    "gather integers": (lambda t, x, i: x.gather(1, i), (places(9, 5, 7), places(7, 5, 1))),
    "scatter_add 0": (
        lambda t, x, i, s: x.scatter_add(0, i, s), (floats(5, 7), places(5, 19, 7), floats(19, 7)),
    ),
    "scatter_add 1": (
        lambda t, x, i, s: x.scatter_add(1, i, s),
        (floats(3, 5, 70), places(5, 3, 19, 70), floats(3, 19, 70)),
    ),
    "scatter_add integers": (
        lambda t, x, i, s: x.scatter_add(0, i, s), (places(9, 5), places(5, 30), places(9, 30)),
    ),
    "scatter": (
        lambda t, x, i, s: x.scatter(1, i, s),
        (floats(4, 6), np.array([[0, 3], [5, 1], [2, 4], [1, 0]]), floats(4, 2)),
    ),
    "scatter a number": (
        lambda t, x, i: x.scatter(1, i, 2.5), (floats(4, 6), np.array([[0], [5], [2], [1]])),
    ),
    **{
        f"scatter_reduce {how} {own}": (
            lambda t, x, i, s, how=how, own=own: x.scatter_reduce(0, i, s, how, include_self=own),
            (floats(5, 3), places(5, 19, 3), floats(19, 3)),
        )
        for how in ("sum", "prod", "amax", "amin", "mean")
        for own in (True, False)
    },
    "scatter_reduce amax NaN": (
        lambda t, x, i, s: x.scatter_reduce(0, i, s, "amax"),
        (with_nan(floats(5, 3)), places(5, 9, 3), with_nan(floats(9, 3))),
    ),
    "index_add integers": (
        lambda t, x, i, s: x.index_add(0, i, s), (places(9, 20), places(20, 90), places(9, 90)),
    ),
    "index_add 1": (
        lambda t, x, i, s: x.index_add(1, i, s), (floats(3, 5, 2), places(5, 9), floats(3, 9, 2)),
    ),
    "index_copy 2": (
        lambda t, x, i, s: x.index_copy(2, i, s),
        (floats(1, 4, 8, 3), np.array([5, 2]), floats(1, 4, 2, 3)),
    ),
    "index_put": (put, (floats(5, 7), np.array([0, 3, 2]), np.array([6, 1, -1]), floats(3))),
    "index_put a number": (
        lambda t, x, i, j: put(t, x, i, j, 1.5), (floats(5, 7), places(5, 3), places(7, 3)),
    ),
    "index_put accumulate": (
        lambda t, x, i, j, v: x.index_put((i, j), v, accumulate=True),
        (floats(5, 7, 2), places(5, 30), places(7, 30), floats(30, 2)),
    ),
    "a row": (lambda t, x, v: written(t, x, v, 2), (floats(5, 7), floats(7))),
    "columns": (lambda t, x, v: written(t, x, v, (slice(None), slice(1, 6, 2))),
                (floats(5, 7), floats(5, 3))),
    "a block": (lambda t, x, v: written(t, x, v, (slice(1, 4), ..., 0)),
                (floats(5, 7, 3), floats(3, 7))),
    "prod": (lambda t, x: x.prod(-1), (floats(30, 4),)),
    "prod 1": (lambda t, x: x.prod(1, keepdim=True), (floats(3, 5, 4),)),
    "diagonal matrix": (lambda t, x: t.diag_embed(x), (floats(3, 6),)),
    "padded embedding": (
        lambda t, w, i: t.nn.functional.embedding(i, w, padding_idx=2),
        (floats(9, 5), places(9, 4, 6)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_pytorch(name: str) -> None:
    function, arrays = CASES[name]
    expected = function(torch, *map(torch.tensor, arrays)).numpy()
    given = [eg.tensor(a) for a in arrays]
    compiled = eg.compile(lambda *args: function(eg, *args))
    found = compiled(*given)
    assert calls_of(compiled) == []
    eager = function(eg, *given)
    if name == "prod":  # eager kernels multiply in another order
        np.testing.assert_allclose(found.numpy(), eager.numpy(), rtol=5e-7)
    else:
        np.testing.assert_array_equal(found.numpy(), eager.numpy())
    np.testing.assert_allclose(found.numpy(), expected, rtol=2e-6, atol=1e-6)
    assert found.numpy().dtype == expected.dtype


DIFFERENTIABLE = [
    name
    for name, (_, arrays) in CASES.items()
    if arrays[0].dtype == np.float32 and "NaN" not in name
]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_those_of_pytorch(name: str) -> None:
    function, arrays = CASES[name]

    def gradients(t: Any, *tensors: Any) -> list[Any]:
        tensors = [x.detach().clone() for x in tensors]
        floating = [x.requires_grad_() for x in tensors if x.is_floating_point()]
        out = function(t, *tensors)
        weight = t.arange(1, out.numel() + 1, dtype=t.float32).reshape(out.shape) / out.numel()
        (out * weight).sum().backward()
        return [x.grad for x in floating]

    expected = gradients(torch, *map(torch.tensor, arrays))
    found = eg.compile(lambda *args: gradients(eg, *args))(*map(eg.tensor, arrays))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-5)


REFUSED: dict[str, Case] = {
    "index": (lambda t, x, i: x[i], (floats(9), np.array([1, 9]))),
    "negative index": (lambda t, x, i: x[i], (floats(9), np.array([1, -10]))),
    "first of two indices": (
        lambda t, x, i, j: x[i, j], (floats(5, 7), np.array([0, 5]), np.array([0, 1])),
    ),
    "second of two indices": (
        lambda t, x, i, j: x[i, j], (floats(5, 7), np.array([0, 1]), np.array([0, 7])),
    ),
    "row along a middle dimension": (
        lambda t, x, i: x.index_select(1, i), (floats(3, 5, 17), np.array([0, 5])),
    ),
    "negative element along the last dimension": (
        lambda t, x, i: x.index_select(1, i), (floats(3, 5), np.array([0, -1])),
    ),
    "gather": (lambda t, x, i: x.gather(0, i), (floats(5, 7), np.full((2, 7), 5))),
    "negative gather": (lambda t, x, i: x.gather(0, i), (floats(5, 7), np.full((2, 7), -1))),
    "scatter_add": (
        lambda t, x, i, s: x.scatter_add(0, i, s), (floats(5), np.array([0, 5]), floats(2)),
    ),
    "scatter": (lambda t, x, i, s: x.scatter(0, i, s), (floats(5), np.array([0, -1]), floats(2))),
    "scatter_reduce": (
        lambda t, x, i, s: x.scatter_reduce(0, i, s, "amax"),
        (floats(5), np.array([0, 9]), floats(2)),
    ),
    "index_put": (put, (floats(5, 7), np.array([0, 5]), np.array([0, 0]), floats(2))),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_indices_out_of_range_raise_as_in_eager_mode(name: str) -> None:
    function, arrays = REFUSED[name]
    valid = [np.zeros_like(a) if a.dtype == np.int64 else a for a in arrays]
    compiled = eg.compile(lambda *args: function(eg, *args))
    compiled(*map(eg.tensor, valid))
    given = [eg.tensor(a) for a in arrays]
    with pytest.raises((IndexError, RuntimeError)) as eager:
        function(eg, *given)
    with pytest.raises(eager.type) as found:
        compiled(*given)
    assert str(eager.value).splitlines()[0] in str(found.value)


def test_a_refused_write_leaves_the_tensor_as_it_was() -> None:
    table, source = eg.zeros(4), eg.ones(3)
    step = eg.compile(lambda i: table.scatter_add_(0, i, source))
    step(eg.tensor([0, 1, 1]))
    step(eg.tensor([0, 1, 1]))
    assert table.tolist() == [2, 4, 0, 0]
    with pytest.raises(RuntimeError):
        step(eg.tensor([3, 4, 0]))
    assert table.tolist() == [2, 4, 0, 0]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_sums_do_not_depend_on_threads(threads: int) -> None:
    x, i, s = (
        eg.tensor(floats(40, 200)),
        eg.tensor(places(40, 900, 200)),
        eg.tensor(floats(900, 200)),
    )
    before = eg.get_num_threads()
    try:
        eg.set_num_threads(threads)
        found = eg.compile(lambda x, i, s: x.scatter_add(0, i, s))(x, i, s)
    finally:
        eg.set_num_threads(before)
    assert found.numpy().tobytes() == x.scatter_add(0, i, s).numpy().tobytes()


def by_slices(lib: Any, x: Any, i: Any, s: Any, dim: int, reduce: str | None) -> Any:
    """Reads and writes by an index that is expanded along all dimensions but one."""
    index = i.reshape([-1 if d == dim else 1 for d in range(3)]).expand(*s.shape)
    outs = [lib.gather(x, dim, index), x.scatter_add(dim, index, s)]
    if reduce is None:
        outs.append(x.scatter(dim, index, s))
    else:
        outs += [x.scatter_reduce(dim, index, s, reduce, include_self=b) for b in (True, False)]
    loss = sum((y * y).sum() for y in outs)
    return *outs, *lib.autograd.grad(loss, [x, s])


@pytest.mark.parametrize("reduce", [None, "sum", "amax", "amin", "prod", "mean"])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_one_index_for_all_of_a_slice(dim: int, reduce: str | None) -> None:
    rng, size = np.random.default_rng(0), [5, 6, 7]
    x = rng.standard_normal(size).astype("f4")
    i = rng.integers(0, size[dim], 11) if reduce else rng.permutation(size[dim])[:4]
    size[dim] = len(i)
    arrays = x, i, rng.standard_normal(size).astype("f4")
    theirs, ours = (
        [lib.tensor(v, requires_grad=v.dtype == "f4") for v in arrays] for lib in (torch, eg)
    )
    compiled = eg.compile(lambda *given: by_slices(eg, *given, dim, reduce))
    found, expected = compiled(*ours), by_slices(torch, *theirs, dim, reduce)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-5)
    assert calls_of(compiled) == []


@pytest.mark.parametrize("bad", [5, -1])
@pytest.mark.parametrize(
    "function",
    [lambda x, i: x.gather(0, i), lambda x, i: x.scatter_add(0, i, x[:2]),
     lambda x, i: x.scatter(0, i, 1.0), lambda x, i: x.scatter_reduce(0, i, x[:2], "amax")],
)  # fmt: skip
def test_one_index_for_all_of_a_slice_that_is_out_of_range(function: Any, bad: int) -> None:
    x, i = eg.ones(5, 3), eg.tensor([1, bad])
    with pytest.raises(RuntimeError, match=f"index {bad} is out of bounds for dimension 0"):
        eg.compile(lambda x, i: function(x, i[:, None].expand(-1, 3)))(x, i)
