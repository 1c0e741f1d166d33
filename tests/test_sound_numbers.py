"""Elementary functions, conversions and 16-bit products where their naive formulas fail."""

from __future__ import annotations

import cmath
import math
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg

INF, NAN = math.inf, math.nan


def ways(function: Any) -> list[Any]:
    """A function as it is, and compiled."""
    return [function, eg.compile(function)]


def test_expm1_far_below_zero(torch: ModuleType) -> None:
    """From -88 on the exponential is denormal: -1.0065 was given."""
    values = np.concatenate([-np.linspace(0, 130, 2001), [-1e3, -1e30, -INF, 0.0, 1e-8, 80.0, NAN]])
    x = eg.tensor(values.astype(np.float32))
    exact = np.expm1(x.numpy().astype(np.float64))
    for run in ways(lambda x: eg.expm1(x)):
        np.testing.assert_allclose(run(x).numpy(), exact, rtol=4e-7)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["elu", "celu", "selu"])
def test_slopes_of_exponential_curves_do_not_cancel(
    name: str, dtype: str, torch: ModuleType
) -> None:
    """From the result, y + alpha is 0 where exp(x) is not: bfloat16 at -8."""
    values = [-20.0, -12.0, -8.0, -5.0, -1.0, -1e-3, 0.0, 0.5, 3.0]
    tolerance = {"bfloat16": 8e-3, "float16": 1e-3, "float32": 4e-7, "float64": 1e-15}[dtype]

    def gradient(ns: Any, x: Any, **options: Any) -> Any:
        f = getattr(ns.nn.functional, name)
        return ns.autograd.grad(f(x, **options).sum(), x)[0]

    for options in ({}, {"alpha": 0.5}) if name != "selu" else ({},):
        theirs = torch.tensor(values, dtype=getattr(torch, dtype)).requires_grad_()
        expected = gradient(torch, theirs, **options).double().numpy()
        x = eg.tensor(values, dtype=getattr(eg, dtype)).requires_grad_()
        for run in ways(lambda x, options=options: gradient(eg, x, **options)):
            found = run(x).double().numpy()
            np.testing.assert_allclose(
                found, expected, rtol=tolerance, atol=1e-7 * (dtype == "float16")
            )


def test_second_derivative_of_elu() -> None:
    x = eg.tensor([-3.0, -0.5, 0.5], dtype=eg.float64).requires_grad_()
    (first,) = eg.autograd.grad(eg.nn.functional.elu(x).sum(), x, create_graph=True)
    (second,) = eg.autograd.grad(first.sum(), x)
    np.testing.assert_allclose(second.numpy(), [math.exp(-3), math.exp(-0.5), 0.0], rtol=1e-14)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_log1p(dtype: str) -> None:
    points = [1e-8 + 1e-8j, 1e-5 + 1e-10j, -1e-6 + 1e-3j, 3 + 4j, -0.5 + 0.2j, 1e-30 + 0j, 0j,
              -1e-3 - 1e-5j, 1e10 + 1j, -2 + 0.1j, 0.1j, -5e-7 + 1e-3j, -2e-16 + 2e-8j]  # fmt: skip
    z = eg.tensor(points, dtype=getattr(eg, dtype))
    eps = float(np.finfo(z.numpy().real.dtype).eps)
    for found, point in zip(eg.log1p(z).tolist(), z.tolist(), strict=True):
        x, y = point.real, point.imag
        # |1 + z|**2 - 1 without rounding
        excess = 2 * Fraction(x) + Fraction(x) ** 2 + Fraction(y) ** 2
        real = math.log1p(float(excess)) / 2 if abs(excess) < 1 else cmath.log(1 + point).real
        assert found.real == pytest.approx(real, rel=8 * eps, abs=1e-300)
        assert found.imag == pytest.approx(math.atan2(y, 1 + x), rel=8 * eps, abs=1e-300)


def test_ldexp_overflows_only_where_its_result_does(torch: ModuleType) -> None:
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        for value, power in ((0.5, 16), (1.5, 10), (3.0, -3), (1e-5, 20), (1.0, -24), (1e-3, 130),
                             (2.0**-100, 200), (1.0, 2000), (3.0, -2000), (-1.0, 5)):  # fmt: skip
            found = [
                ns.ldexp(ns.tensor([value], dtype=getattr(ns, dtype)), ns.tensor([power])).tolist()
                for ns in (eg, torch)
            ]
            assert found[0] == found[1], (dtype, value, power)
    assert eg.ldexp(eg.tensor([2.0**-600], dtype=eg.float64), eg.tensor([1100])).tolist() == [
        2.0**500
    ]


def test_derivatives_of_ldexp() -> None:
    x, p = (eg.tensor([v], dtype=eg.float64).requires_grad_() for v in (3.0, 2.5))
    gx, gp = eg.autograd.grad(eg.ldexp(x, p).sum(), (x, p))
    assert gx.item() == pytest.approx(2**2.5)
    assert gp.item() == pytest.approx(3 * 2**2.5 * math.log(2))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_products_with_an_addend_are_rounded_once(dtype: str) -> None:
    """The sum of products and the addend is rounded, not the product before."""
    kind = getattr(eg, dtype)
    rng = np.random.default_rng(0)

    def narrow(*shape: int, scale: float = 1.0) -> Any:
        return eg.tensor((rng.standard_normal(shape) * scale).astype(np.float32)).to(kind)

    x, w, b = narrow(33, 40), narrow(24, 40), narrow(24, scale=10)
    stack, other, addend = narrow(3, 5, 7), narrow(3, 7, 6), narrow(3, 5, 6, scale=4)
    exact = lambda c, a, b, beta=1.0, alpha=1.0: (
        (a.double() @ b.double()) * alpha + c.double() * beta
    )
    cases: list[tuple[Any, tuple[Any, ...], Any]] = [
        (lambda x, w, b: eg.nn.functional.linear(x, w, b), (x, w, b), exact(b, x, w.T)),
        (lambda x, w, b: eg.nn.functional.linear(x[0], w, b), (x, w, b), exact(b, x[0], w.T)),
        (lambda x, w, b: eg.nn.functional.linear(x[None], w, b), (x, w, b), exact(b, x, w.T)[None]),
        (lambda x, w, b: eg.addmm(b, x, w.T), (x, w, b), exact(b, x, w.T)),
        (lambda x, w, b: eg.addmv(b, w, x[0], beta=0.5, alpha=3), (x, w, b),
         exact(b, w, x[0], 0.5, 3.0)),
        (lambda c, a, b: eg.baddbmm(c, a, b), (addend, stack, other), exact(addend, stack, other)),
        (lambda c, a, b: eg.baddbmm(c, a, b, beta=0.5, alpha=2), (addend, stack, other),
         exact(addend, stack, other, 0.5, 2.0)),
        (lambda c, a, b: eg.addbmm(c[0], a, b), (addend, stack, other),
         (stack.double() @ other.double()).sum(0) + addend[0].double()),
    ]  # fmt: skip
    for function, args, expected in cases:
        for run in ways(function):
            wrong = (run(*args) != expected.to(kind)).sum().item()
            assert wrong <= expected.numel() // 200, f"{wrong} of {expected.numel()}"


def test_derivatives_and_batches_of_narrow_linear(torch: ModuleType) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((6, 4), (5, 4), (5,), (6, 5))]
    results = []
    for ns in (eg, torch):
        x, w, b, g = (ns.tensor(a).to(ns.bfloat16) for a in arrays)
        for t in (x, w, b):
            t.requires_grad_()
        y = ns.nn.functional.linear(x, w, b)
        grads = ns.autograd.grad((y * g).sum(), (x, w, b))
        each = [ns.nn.functional.linear(x, v, b) for v in (w, -w)]
        many = ns.stack(each)
        if ns is eg:
            many = eg.func.vmap(lambda w, x=x, b=b: eg.nn.functional.linear(x, w, b))(
                eg.stack([w, -w])
            )
        results.append([t.detach().float().numpy() for t in (y, *grads, many)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-2, atol=2e-2)


def test_linear_under_autocast_rounds_once(torch: ModuleType) -> None:
    rng = np.random.default_rng(3)
    x, w, b = (rng.standard_normal(s).astype(np.float32) * 4 for s in ((20, 16), (8, 16), (8,)))
    results = []
    for ns in (eg, torch):
        with ns.autocast("cpu", dtype=ns.bfloat16):
            results.append(ns.nn.functional.linear(*(ns.tensor(v) for v in (x, w, b))))
    assert results[0].dtype is eg.bfloat16
    np.testing.assert_array_equal(results[0].float().numpy(), results[1].float().numpy())


VALUES = [1e10, -1e10, NAN, INF, -INF, 300.7, -300.7, 1e20, -1e20, 3e9, 2147483648.0, 2147483647.0,
          -2147483648.0, -2147483649.0, 9.3e18, -9.3e18, -1.5, 255.9, 256.0, -1.0, 70001.0,
          -70001.0, 5000000001.0, -0.9, 4.2e9, 4294967296.0, 1.2e19, 1.9e19]  # fmt: skip


@pytest.mark.parametrize(
    "target", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"]
)
@pytest.mark.parametrize("source", ["float32", "float64", "float16", "bfloat16"])
def test_floats_out_of_the_range_of_integers(source: str, target: str, torch: ModuleType) -> None:
    """As C converts on x86, and not as LLVM may."""
    values = VALUES * 3  # long enough for vectors, with a rest
    if target == "uint32" and source == "float16":
        # Here PyTorch converts single elements in another way than those of vectors.
        values = [v for v in values if abs(v) < 65504]
    expected = torch.tensor(values, dtype=getattr(torch, source)).to(getattr(torch, target))
    x = eg.tensor(values, dtype=getattr(eg, source))
    for run in ways(lambda x: (x * 1).to(getattr(eg, target))):
        assert run(x).tolist() == expected.tolist()


@pytest.mark.parametrize("source", ["float32", "float64", "float16", "bfloat16"])
def test_single_and_no_floats_as_unsigned_integers(source: str) -> None:
    for target, number in ((eg.uint32, 3e9), (eg.uint64, 1.2e19), (eg.uint64, 1e10)):
        x = eg.tensor(min(number, 65504.0) if source == "float16" else number,
                      dtype=getattr(eg, source))  # fmt: skip
        assert x.to(target).item() == int(x.item())
        assert x[None].expand(5)[::2].to(target).tolist() == [int(x.item())] * 3
        assert x[None][:0].to(target).shape == (0,)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["mish", "gelu tanh"])
def test_curves_of_several_ops_round_once(name: str, dtype: str, torch: ModuleType) -> None:
    """In 16 bits ``1 + tanh`` of GELU cancelled to 0 from -3.5 on, and slopes of ``mish`` lost half
    of their digits: errors of 256 and 97 units in the last place, PyTorch's have at most 22."""
    values = np.linspace(-8, 8, 161).astype(np.float32)

    def both(ns: Any, x: Any) -> Any:
        options = {"approximate": "tanh"} if name == "gelu tanh" else {}
        y = getattr(ns.nn.functional, name.split()[0])(x, **options)
        return y, ns.autograd.grad(y.sum(), x)[0]

    low = torch.from_numpy(values).to(getattr(torch, dtype))
    exact = both(torch, low.double().requires_grad_())
    theirs = both(torch, low.requires_grad_())
    x = eg.from_numpy(values).to(getattr(eg, dtype)).requires_grad_()
    for run in ways(lambda x: both(eg, x)):
        for found, peer, real in zip(run(x), theirs, exact, strict=True):
            scale = np.maximum(np.abs(real.detach().numpy()), 1e-4)
            error, other = (
                (np.abs(v.detach().double().numpy() - real.detach().numpy()) / scale).max()
                for v in (found, peer)
            )
            assert error <= 2 * other + 2e-3 * (dtype == "bfloat16")


@pytest.mark.parametrize("name", ["abs", "l1_loss", "norm 1", "norm inf", "hardsigmoid", "sgn"])
def test_slopes_at_nan_and_infinities(name: str, torch: ModuleType) -> None:
    """Compiled ``sgn(nan)`` was NaN, and with it the gradients of magnitudes; eager mode's is 0."""
    values = [NAN, 1.0, -1.0, 0.0, -0.0, INF, -INF, 2.9, 3.0, -3.0] * 7

    def gradient(ns: Any, x: Any) -> Any:
        if name == "sgn":
            return ns.sgn(x)
        norm = lambda p: ns.linalg.vector_norm(x, p)
        y = {"abs": lambda: x.abs(), "norm 1": lambda: norm(1), "norm inf": lambda: norm(INF),
             "l1_loss": lambda: ns.nn.functional.l1_loss(x, x * 0, reduction="none"),
             "hardsigmoid": lambda: ns.nn.functional.hardsigmoid(x)}[name]()  # fmt: skip
        return ns.autograd.grad(y.sum(), x)[0]

    expected = gradient(torch, torch.tensor(values).requires_grad_()).tolist()
    for run in ways(lambda x: gradient(eg, x)):
        np.testing.assert_equal(run(eg.tensor(values).requires_grad_()).tolist(), expected)


@pytest.mark.parametrize("p", [2.0, 3.0, 0.5, -1.0])
@pytest.mark.parametrize("shape", [(), (1,), (3, 1)])
def test_norms_of_one_element_are_its_magnitude(p: float, shape: tuple[int, ...]) -> None:
    """A square of 1e-30 vanishes in float32, one of 1e30 overflows: 0 and inf."""
    for value in (1e-30, -3e-25, 1e30, -2e37):

        def step(x: Any) -> Any:
            y = eg.linalg.vector_norm(x, p, dim=-1 if shape else None)
            return y.detach(), eg.autograd.grad(y.sum(), x)[0]

        for run in ways(step):
            size, slope = run(eg.full(shape, value).requires_grad_())
            np.testing.assert_allclose(size.numpy(), abs(np.float32(value)), rtol=1e-7)
            np.testing.assert_array_equal(slope.numpy(), np.full(shape, np.sign(value)))
    x = eg.full(shape, math.nan).requires_grad_()
    assert np.isnan(eg.autograd.grad(eg.linalg.vector_norm(x, p).sum(), x)[0].numpy()).all()


def test_slopes_of_running_log_sums_beyond_an_infinite_one() -> None:
    x = eg.tensor([0.5, math.inf, 1.0, -2.0]).requires_grad_()
    step = lambda x: eg.autograd.grad(eg.logcumsumexp(x, 0).sum(), x)[0]
    for run in ways(step):
        assert run(x).tolist()[2:] == [0.0, 0.0]
