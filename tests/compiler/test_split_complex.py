"""Complex arithmetic in compiled programs: PyTorch's results and gradients, in loops of parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.compiler.test_indexed import calls_of

import evergrad as eg

torch = pytest.importorskip("torch")


def written(lib: Any, a: Any, b: Any, r: Any) -> Any:
    """Parts of a complex tensor are replaced: by complex and real values, through views."""
    y = lib.zeros_like(a)
    y[:, 1:4] = b[:, 1:4] * 2
    y.T[0] = a[:, 2]
    y[2, ::2] = r[2, ::2]
    y = y.index_fill(1, lib.tensor([3]), 1 + 2j) * a
    z = b.clone()
    z[1] = 1j
    z.real[2] = r[1]
    z.imag = r + 1
    z.imag.T[3] = r[:, 0]
    z[3:, :2] += y[3:, :2]
    return y + z


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "mul": lambda lib, a, b, r: a * b,
    "sums": lambda lib, a, b, r: (a + b) * 2 - b * (1 + 2j) + 3,
    "div": lambda lib, a, b, r: a / b + 1 / a + a / 2,
    "div by real": lambda lib, a, b, r: a / (r.abs() + 1),
    "abs": lambda lib, a, b, r: a.abs() + (a * b).abs() * r,
    "conj": lambda lib, a, b, r: a.conj() * b,
    "parts": lambda lib, a, b, r: (a * b).real + (a * b).imag * a.real,
    "matmul": lambda lib, a, b, r: a @ b.mT,
    "linear": lambda lib, a, b, r: lib.nn.functional.linear(a, b),
    "sum": lambda lib, a, b, r: (a * b).sum(0),
    "mean": lambda lib, a, b, r: (a * b).mean(1),
    "views": lambda lib, a, b, r: (a * b).T.reshape(3, 8)[1:] * 2,
    "complex": lambda lib, a, b, r: lib.complex(r, r + 1) * 2j * a,
    "polar": lambda lib, a, b, r: lib.polar(r.abs(), r) * a,
    "fft": lambda lib, a, b, r: lib.fft.irfft(lib.fft.rfft(r) * a[:, :4], n=6) * 2,
    "where": lambda lib, a, b, r: lib.where(r > 0, a * b, b),
    "neg, sgn, exp": lambda lib, a, b, r: -lib.sgn(a) * lib.exp(b),
    "angle": lambda lib, a, b, r: lib.angle(a * b),
    "moves": lambda lib, a, b, r: lib.roll(a * b, 1, 0).flip(1)[:, [2, 1, 2]],
    "cat": lambda lib, a, b, r: lib.cat([a * b, b]),
    "writes": written,
    "diagonal": lambda lib, a, b, r: lib.diagonal_scatter(a * b, b[:, 0]),
    "real view": lambda lib, a, b, r: lib.view_as_real(a * b).sum(-1),
}


def operands(dtype: str) -> list[Any]:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((4, 6)) + 1j * rng.standard_normal((4, 6)) for _ in range(2))
    return [a.astype(dtype), b.astype(dtype), rng.standard_normal((4, 6)).astype(a.real.dtype)]


def step(lib: Any, function: Any, *given: Any) -> Any:
    y = function(lib, *given)
    parts = lib.view_as_real(y) if y.is_complex() else y
    loss = (parts * lib.cos(lib.arange(float(parts.numel())).reshape(parts.shape))).sum()
    loss = loss + sum(x.abs().sum() for x in given)  # on which all depend
    return y, *lib.autograd.grad(loss, given)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_and_gradients(name: str) -> None:
    arrays = [x.astype("complex64" if x.dtype.kind == "c" else "float32") for x in operands("c16")]
    theirs = step(torch, FUNCTIONS[name], *[torch.tensor(x, requires_grad=True) for x in arrays])
    compiled = eg.compile(lambda *given: step(eg, FUNCTIONS[name], *given))
    ours = compiled(*[eg.tensor(x, requires_grad=True) for x in arrays])
    for a, b in zip(ours, theirs, strict=True):
        b = b.detach().resolve_conj().resolve_neg().numpy()
        np.testing.assert_allclose(a.detach().numpy(), b, rtol=1e-4, atol=1e-4)
    assert [call for call in calls_of(compiled) if "fft" not in call] == []


@pytest.mark.parametrize("name", ["mul", "div", "abs", "sgn"])
def test_infinities_zeros_and_nan(name: str) -> None:
    """As eager mode, that is NumPy, has them; of others the last bit may differ."""
    values = [0.0, -0.0, 1.5, np.inf, -np.inf, np.nan]
    grid = np.array([complex(x, y) for x in values for y in values])
    a, b = (eg.tensor(x.reshape(36, 36)) for x in (np.repeat(grid, 36), np.tile(grid, 36)))
    functions: dict[str, Any] = {
        "mul": lambda a, b: a * b, "div": lambda a, b: a / b, "abs": lambda a, b: abs(a),
        "sgn": lambda a, b: eg.sgn(a),
    }  # fmt: skip
    with np.errstate(all="ignore"):
        expected = functions[name](a, b).numpy()
    found = eg.compile(functions[name])(a, b).numpy()
    np.testing.assert_allclose(found.real, expected.real, rtol=1e-15)
    np.testing.assert_allclose(found.imag, expected.imag, rtol=1e-15)


def test_double_precision_and_empty() -> None:
    a, b = (eg.tensor(x) for x in operands("complex128")[:2])
    compiled = eg.compile(lambda a, b: a * b / (b + 3))
    np.testing.assert_allclose(compiled(a, b).numpy(), (a * b / (b + 3)).numpy(), rtol=1e-14)
    assert compiled(a[:0], b[:0]).shape == (0, 6)
