"""Sums are as exact as PyTorch's, along every dimension, eager and compiled, for any threads."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.ops.rows.reduce.pairwise import pairwise_sum

# An error of so many units in the last place of the exact result is that of any good order of
# additions; beyond it PyTorch's own error, a few times, is the measure.
_ULPS = 24
_TIMES_TORCH = 4


def spread(shape: tuple[int, ...], kind: str, dtype: Any = np.float32) -> Any:
    rng = np.random.default_rng(len(shape) + shape[0])
    if kind == "constant":
        return np.full(shape, 0.1, dtype)
    if kind == "growing":
        return np.linspace(1, 2, math.prod(shape)).reshape(shape).astype(dtype)
    return rng.random(shape).astype(dtype)


def error(found: Any, exact: Any) -> float:
    scale = np.abs(exact).max()
    return float(np.abs(np.asarray(found, np.float64) - exact).max() / scale)


def agrees(name: str, program: Callable[[Any, Any], Any], x: Any, torch: ModuleType) -> None:
    exact = program(torch, torch.from_numpy(x.astype(np.float64))).numpy()
    theirs = error(program(torch, torch.from_numpy(x)).numpy(), exact)
    bound = max(_ULPS * np.finfo(x.dtype).eps / 2, _TIMES_TORCH * theirs)
    given = eg.from_numpy(x)
    compiled = eg.compile(lambda x: program(eg, x))
    # A program that Python runs is compiled when it is seen the second time.
    ways = (("eager", lambda x: program(eg, x)), ("compiled", compiled), ("again", compiled))
    for way, run in ways:
        ours = error(run(given).numpy(), exact)
        assert ours <= bound, f"{name} {way}: {ours:.2e}, PyTorch {theirs:.2e}"


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda ns, x: x.sum(),
    "sum of squares": lambda ns, x: (x * x).sum(),
    "sum(0)": lambda ns, x: x.sum(0),
    "sum(-1)": lambda ns, x: x.sum(-1),
    "mean(0)": lambda ns, x: x.mean(0),
    "mean(0) of exp": lambda ns, x: x.exp().mean(0),
    "sum of row norms": lambda ns, x: (x * x).sum(-1).sqrt().sum(),
    "norm(0)": lambda ns, x: ns.linalg.vector_norm(x, dim=0),
    "norm": lambda ns, x: x.norm(),
    "3-norm": lambda ns, x: ns.linalg.vector_norm(x, 3, dim=0),
    "logsumexp(0)": lambda ns, x: ns.logsumexp(x, 0),
    "softmax(0)": lambda ns, x: ns.softmax(x, 0).sum(0) + ns.softmax(x, 0)[0] * len(x),
    "cumsum(0)": lambda ns, x: x.cumsum(0),
    "cumsum(-1)": lambda ns, x: x.cumsum(-1),
    "mse": lambda ns, x: ns.nn.functional.mse_loss(x, x * 0.5),
}


@pytest.mark.parametrize("kind", ["random", "constant", "growing"])
@pytest.mark.parametrize("shape", [(1 << 16, 4), (1 << 14, 3, 2), (3, 1 << 16), (600, 300)])
def test_reductions_of_many_elements(shape: tuple[int, ...], kind: str, torch: ModuleType) -> None:
    for name, program in PROGRAMS.items():
        agrees(name, program, spread(shape, kind), torch)


@pytest.mark.parametrize("shape", [(1 << 16, 4), (5000, 70)])
def test_variances_of_many_elements(shape: tuple[int, ...], torch: ModuleType) -> None:
    for moved in (0.0, 10.0, 1000.0):
        x = spread(shape, "random") + np.float32(moved)
        for name in ("var", "std"):
            for dim in (0, -1, None):
                program = lambda ns, x, name=name, dim=dim: getattr(x, name)(dim)
                agrees(f"{name}({dim}) at {moved}", program, x, torch)


def spread_of(name: str, dim: Any, correction: int, ns: Any, x: Any) -> Any:
    found = getattr(ns, name)(x, dim, correction=correction)
    return found[0] if isinstance(found, tuple) else found


@pytest.mark.parametrize("shape", [(7, 300), (9, 1), (1, 17), (2, 3, 5), (300, 16)])
@pytest.mark.parametrize("moved", [1e3, 1e5, 1e6])
def test_variances_far_from_zero(shape: tuple[int, ...], moved: float, torch: ModuleType) -> None:
    """A compiled variance at 1e6 was off by 3e-3: the mean is rounded by 0.03 there."""
    x = spread(shape, "random") * np.float32(4) + np.float32(moved)
    dims: list[tuple[Any, int]] = [(0, shape[0]), (-1, shape[-1])]
    for dim, freedom in [*dims, (tuple(range(len(shape))), math.prod(shape))]:
        for correction, name in itertools.product(range(3), ("var", "std", "var_mean", "std_mean")):
            if freedom > max(correction, 1):
                program = functools.partial(spread_of, name, dim, correction)
                agrees(f"{name}({dim}, correction={correction})", program, x, torch)


@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e-25, 1e-20, 1e18, 1e20, 1e30, 1e36])
def test_deviations_whose_squares_leave_the_range(scale: float, torch: ModuleType) -> None:
    """Squares overflowed (or vanished) where PyTorch's, in float64, do not: inf and 0."""
    x = (np.random.default_rng(0).standard_normal((6, 17)) * scale).astype(np.float32)
    for dim in (0, -1, (0, 1)):
        program = lambda ns, x, dim=dim: ns.std(x, dim)
        agrees(f"std({dim})", program, x, torch)
        exact = torch.from_numpy(x.astype(np.float64)).requires_grad_()
        (slope,) = torch.autograd.grad(exact.std(dim).sum(), exact)

        def gradient(x: Any, dim: Any = dim) -> Any:
            return eg.autograd.grad(x.std(dim).sum(), x)[0]

        if scale < 1e-37:  # subnormal distances
            continue
        ways: tuple[Any, ...] = (gradient, eg.compile(gradient))
        for run in ways:
            found = run(eg.from_numpy(x).requires_grad_()).numpy()
            np.testing.assert_allclose(found, slope.numpy(), rtol=2e-5, atol=2e-6)


def test_directions_of_vectors_whose_length_overflows() -> None:
    """Of an infinite length, the cosine and its slopes were NaN; PyTorch's are 0."""
    step = lambda x: eg.nn.functional.cosine_similarity(x, x.flip(0), 0)
    both = lambda x: (step(x), eg.autograd.grad(step(x), x)[0])
    ways: tuple[Any, ...] = (both, eg.compile(both))
    for run in ways:
        value, slope = run(eg.tensor([1e20, 3e20, -2e20]).requires_grad_())
        assert value.item() == 0
        assert slope.tolist() == [0.0] * 3
        value, slope = run(eg.tensor([1.0, math.nan, 2.0]).requires_grad_())
        assert math.isnan(value.item())


def test_the_examples() -> None:
    """Rows were added one after the other: 0.5, 1 % off, four digits lost."""
    assert eg.ones(1 << 21, 2).mean(0).tolist() == [1.0, 1.0]
    total = eg.full((1 << 20, 8), 0.1).sum(0)
    np.testing.assert_allclose(total.numpy(), np.float32(0.1) * float(1 << 20), rtol=2e-6)
    x = eg.full((1 << 22,), 0.1)
    assert abs(float(eg.compile(lambda x: (x * 1.0).sum())(x)) / (0.1 * (1 << 22)) - 1) < 2e-6


def test_gradients_of_biases_and_broadcasts(torch: ModuleType) -> None:
    rows = 1 << 17

    def program(ns: Any, g: Any) -> Any:
        x = ns.ones(rows, 2, dtype=g.dtype)
        w = ns.ones(4, 2, dtype=g.dtype).requires_grad_()
        b = ns.zeros(4, dtype=g.dtype).requires_grad_()
        s = ns.ones(1, 4, dtype=g.dtype).requires_grad_()
        y = ns.nn.functional.linear(x, w, b) * s
        found = ns.autograd.grad((y * g).sum(), (w, b, s))
        return ns.cat([f.reshape(-1) for f in found])

    for kind in ("random", "constant"):
        agrees("gradients", program, spread((rows, 4), kind), torch)


def test_norm_layers_over_many_elements(torch: ModuleType) -> None:
    F = "functional"
    programs: dict[str, Callable[[Any, Any], Any]] = {
        "layer": lambda ns, x: getattr(ns.nn, F).layer_norm(x, (x.shape[1],)),
        "group": lambda ns, x: getattr(ns.nn, F).group_norm(x, 2),
        "batch": lambda ns, x: getattr(ns.nn, F).batch_norm(
            x.reshape(-1, 4), None, None, None, None, True
        ),
    }
    for name, program in programs.items():
        agrees(name, program, spread((4, 1 << 16), "random"), torch)


@pytest.mark.filterwarnings("ignore:.*is not one compiled program")  # it reads an array
@pytest.mark.parametrize(
    ("m", "k", "n"), [(64, 1 << 15, 48), (8, 1 << 16, 3), (300, 3000, 200), (1, 1 << 17, 1)]
)
def test_products_over_a_long_dimension(m: int, k: int, n: int, torch: ModuleType) -> None:
    """One chain of additions over K had fifteen times PyTorch's error."""
    rng = np.random.default_rng(0)
    for kind in ("random", "constant"):
        b = spread((k, n), kind)
        a = rng.random((m, k)).astype(np.float32)

        def program(ns: Any, b: Any, a: Any = a) -> Any:
            left = (torch.from_numpy(a) if ns is torch else eg.from_numpy(a)).to(b.dtype)
            return left @ b

        agrees("matmul", program, b, torch)


@pytest.mark.parametrize("depth", [127, 129, 5000, (1 << 14) + 3, (1 << 18) + 1])
@pytest.mark.parametrize(("rows", "columns"), [(3, 2), (1, 5), (1, 300), (2, 40)])
def test_skinny_products_over_a_long_dimension(
    rows: int, columns: int, depth: int, torch: ModuleType
) -> None:
    """Rows were added one after the other: 60 times PyTorch's error at a depth of 2^20."""
    if depth * columns > 1 << 21:
        depth = (1 << 16) + 1
    rng = np.random.default_rng(1)
    a = rng.standard_normal((rows, depth)).astype(np.float32) + np.float32(0.5)
    b = rng.standard_normal((depth, columns)).astype(np.float32) + np.float32(0.5)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    theirs = error((torch.from_numpy(a) @ torch.from_numpy(b)).numpy(), exact)
    product = eg.compile(lambda a, b: a @ b)
    weight_gradient = eg.compile(
        lambda x, w, g: eg.autograd.grad(eg.nn.functional.linear(x, w), w, g)[0]
    )
    x, g = (eg.from_numpy(np.ascontiguousarray(v)) for v in (b, a.T))
    w = eg.zeros(rows, columns).requires_grad_()
    for found in (product(eg.from_numpy(a), x), weight_gradient(x, w, g)):
        assert error(found.numpy(), exact) <= max(_ULPS * 2.0**-24, _TIMES_TORCH * theirs)
    before = eg.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            eg.set_num_threads(threads)
            results.append(product(eg.from_numpy(a), x).numpy().tobytes())
    finally:
        eg.set_num_threads(before)
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("queries", [4, 70])
@pytest.mark.parametrize("keys", [500, 5000, 20_000])
def test_attention_over_many_keys(keys: int, queries: int, torch: ModuleType) -> None:
    """Weights and weighted values were one chain of additions over all keys: 20 times PyTorch's
    error from 10,000 keys on."""
    rng = np.random.default_rng(0)
    q, k, v, g = (
        rng.standard_normal((1, 1, n, 16)).astype(np.float32)
        for n in (queries, keys, keys, queries)
    )
    v += np.float32(0.5)

    def both(ns: Any, q: Any, k: Any, v: Any, g: Any) -> Any:
        y = ns.nn.functional.scaled_dot_product_attention(q, k, v)
        return y, *ns.autograd.grad(y, (q, k, v), g)

    def of(ns: Any, dtype: Any, run: Any) -> list[Any]:
        given = [ns.from_numpy(x).to(dtype).requires_grad_() for x in (q, k, v)]
        found = run(ns, *given, ns.from_numpy(g).to(dtype))
        return [t.detach().numpy() for t in found]

    exact, theirs = (of(torch, t, both) for t in (torch.float64, torch.float32))
    compiled = eg.compile(both)
    for run in (both, compiled):
        for n, ours in enumerate(of(eg, eg.float32, run)):
            bound = max(_ULPS * 2.0**-24, _TIMES_TORCH * error(theirs[n], exact[n]))
            assert error(ours, exact[n]) <= bound, ("result", "query", "key", "value")[n]


def test_the_sum_of_float64_is_pairwise_too(torch: ModuleType) -> None:
    x = np.full((1 << 18, 3), 0.1)
    exact = math.fsum(x[:, 0].tolist())
    compiled = eg.compile(lambda x: (x * 1.0).sum(0))
    for found in (eg.from_numpy(x).sum(0), compiled(eg.from_numpy(x))):
        assert abs(float(found[0]) / exact - 1) < 24 * 2.0**-53


@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_pairwise_sums_of_any_strides(dims: tuple[int, ...]) -> None:
    base = np.random.default_rng(0).random((70, 3, 300))
    layouts = [base, base.transpose(2, 0, 1), base[::-1, :, ::2], base[:, :1], base[:0],
               np.broadcast_to(base[:, :1], (70, 50, 300))]  # fmt: skip
    for x in layouts:
        for keepdim in (False, True):
            expected = np.sum(x, axis=dims, keepdims=keepdim)
            found = pairwise_sum(x, dims, keepdim)
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-12)
            out = np.empty(expected.shape)
            pairwise_sum(x, dims, keepdim, out=out)
            np.testing.assert_allclose(out, expected, rtol=1e-12)


EXPANDED: dict[str, Callable[[Any, Any], Any]] = {
    "rows": lambda ns, x: x[:1].expand(70_000, 5).sum(0),
    "columns": lambda ns, x: x[:, :1].expand(-1, 70_000).sum(1),
    "a scalar": lambda ns, x: x[0, 0].expand(1 << 20).mean(),
    "two of three": lambda ns, x: x[:1, None].expand(300, 300, 5).sum((0, 1)),
    "first of three": lambda ns, x: x.expand(3000, -1, -1).sum((0, 1), keepdim=True),
    "last kept": lambda ns, x: x[:1, :, None].expand(70_000, 5, 3).sum(0),
    "a slice": lambda ns, x: x[:1].expand(70_000, 5)[::2, ::2].mean(0),
    "transposed": lambda ns, x: x[:1].expand(70_000, 5).T.sum(-1),
    "variance": lambda ns, x: x.expand(9000, -1, -1).var((0, 1)),
    "norm": lambda ns, x: ns.linalg.vector_norm(x[:1].expand(70_000, 5), dim=0),
}


@pytest.mark.parametrize("name", EXPANDED)
def test_sums_of_expanded_dimensions(name: str, torch: ModuleType) -> None:
    """NumPy adds along a stride of 0 one after the other: an error of 1e-3 for 70,000 copies."""
    agrees(name, EXPANDED[name], spread((8, 5), "random"), torch)


def test_expanded_sums_of_complex_infinite_and_no_numbers() -> None:
    z = eg.tensor([0.1 + 0.3j])
    found = z.expand(70_000, 1).sum(0)[0].item()
    assert found == pytest.approx(7000 + 21000j, rel=1e-6)
    for value in (math.inf, -math.inf, math.nan):
        np.testing.assert_equal(eg.tensor(value).expand(100, 100).sum().item(), value)
        np.testing.assert_equal(eg.tensor(value).expand(0, 100).sum(0).tolist(), [0.0] * 100)
        both = eg.tensor([complex(value, 2.0)]).expand(100, 1).sum().item()
        np.testing.assert_equal([both.real, both.imag], [value, 200.0])


def test_infinities_pass_through_blocked_sums() -> None:
    """What a block loses to an infinite total is not added to it."""
    for value in (math.inf, -math.inf, math.nan):
        x = eg.ones(1 << 14, 3)
        x[5000, 1] = value
        for run in (lambda x: x.sum(0), eg.compile(lambda x: (x * 1.0).sum(0)),
                    eg.compile(lambda x: (x.T * 1.0).contiguous().sum(1))):  # fmt: skip
            found = run(x).tolist()
            np.testing.assert_equal(found, [float(1 << 14), value, float(1 << 14)])


def test_sums_do_not_depend_on_the_threads() -> None:
    x = eg.rand(1 << 17, 5)
    functions = [lambda x: (x * x).sum(0), lambda x: (x * x).sum(), lambda x: x.T.sum(1)]
    compiled = [eg.compile(f) for f in functions]
    before = eg.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            eg.set_num_threads(threads)
            results.append([f(x).numpy().tobytes() for f in (*compiled, *functions)])
    finally:
        eg.set_num_threads(before)
    assert results[0] == results[1] == results[2]


def test_a_sum_keeps_the_type_it_is_given(torch: ModuleType) -> None:
    """uint8 sums in uint8 were uint64 inside."""
    for source in ("uint8", "int8", "int32", "bool"):
        for target in ("uint8", "int8", "int16", "int32", "int64", "float32"):
            for name in ("sum", "prod"):
                results = []
                for ns in (eg, torch):
                    x = ns.tensor([1, 1, 100, 100, 60, 3], dtype=getattr(ns, source))
                    found = getattr(ns, name)(x, dtype=getattr(ns, target))
                    results.append((str(found.dtype).split(".")[-1], found.tolist()))
                assert results[0] == results[1], (source, target, name)


SEEN: dict[str, Callable[[Any, Any, Any], Any]] = {
    "all": lambda ns, q, k: None,
    "none of the first": lambda ns, q, k: ns.arange(k) >= k - 120,
    "none of the last": lambda ns, q, k: ns.arange(k) < 900,
    "some blocks": lambda ns, q, k: (ns.arange(k) // 64) % 3 == 1,
    "of each its own": lambda ns, q, k: (ns.arange(k)[None] + ns.arange(q)[:, None]) % 5 != 0,
}


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("name", SEEN)
@pytest.mark.parametrize("keys", [1023, 1024, 1089, 3000])
def test_attention_over_runs_of_key_blocks(
    keys: int, name: str, grows: bool, torch: ModuleType
) -> None:
    """Sums of 16 key blocks at a time; with scores that grow their level changes after each."""
    rng = np.random.default_rng(keys)
    q, k, v = (rng.standard_normal((1, 2, n, 24)).astype(np.float32) for n in (70, keys, keys))
    if grows:
        q[..., 0], k[..., 0] = 3, np.linspace(0, 40, keys)

    def attended(ns: Any, dtype: Any, *, is_causal: bool) -> list[Any]:
        given = [ns.from_numpy(x).to(dtype).requires_grad_() for x in (q, k, v)]
        mask = None if is_causal else SEEN[name](ns, 70, keys)
        if mask is not None and mask.ndim == 1:
            mask = mask.expand(70, keys)
        queries = given[0] if not is_causal else given[1]
        f = ns.nn.functional.scaled_dot_product_attention
        y = f(queries, *given[1:], attn_mask=mask, is_causal=is_causal)
        leaves = given[1:] if is_causal else given
        found = [y, *ns.autograd.grad(y, leaves, ns.ones_like(y) * 0.5 + y.detach())]
        return [t.detach().numpy() for t in found]

    for is_causal in (False, True) if name == "all" else (False,):
        exact = attended(torch, torch.float64, is_causal=is_causal)
        theirs = attended(torch, torch.float32, is_causal=is_causal)
        for n, ours in enumerate(attended(eg, eg.float32, is_causal=is_causal)):
            bound = max(_ULPS * 2.0**-24, _TIMES_TORCH * error(theirs[n], exact[n]))
            assert error(ours, exact[n]) <= bound, (n, is_causal)
