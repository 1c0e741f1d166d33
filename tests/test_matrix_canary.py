"""Rows that are wrong on purpose: each check of the op matrix notices the fault it is there for."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import evergrad
import evergrad.core.bind as bind_module
from evergrad.core.bind import bind
from evergrad.core.families import elementwise, linear, opaque
from evergrad.core.op import NONDIFFERENTIABLE, TABLE, Op
from evergrad.core.row_facts import numpy_evaluates
from evergrad.testing import checks
from evergrad.testing.samples import FLOATS, SAMPLES, Sample
from evergrad.testing.subject import CheckError
from matrix.checks import ensure_same_types

NAME = "canary"
X = np.linspace(0.5, 2.0, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def _clean_table() -> Iterator[None]:
    """Take the wrong row out of the table again."""
    yield
    TABLE.pop(NAME, None)
    SAMPLES.pop(NAME, None)


def sample(
    call: Callable[..., Any], *inputs: Any, row: str = NAME, reference: Any = None
) -> Sample:
    return Sample(row, call, inputs or (X,), reference, False, True, FLOATS, 1e-10, "wrong")


def sample_of(row: Op) -> Sample:
    return sample(lambda ns, *tensors: bind(row, *tensors))


def must_fail(check: str, wrong: Sample, message: str) -> None:
    with pytest.raises(CheckError, match=message):
        checks.CHECKS[check].run(wrong)


def same_type(x: Any) -> Any:
    return x


# -- a right row, to begin with -----------------------------------------------------------------


@pytest.mark.parametrize("check", checks.CHECKS)
def test_right_row_passes_all(check: str) -> None:
    row = elementwise(NAME, np.exp, lambda t, y, x: t * y, doc="e to the power of x.")
    right = sample(lambda ns, x: bind(row, x), reference=np.exp)
    assert checks.CHECKS[check].applies(right)
    checks.CHECKS[check].run(right)


# -- values -------------------------------------------------------------------------------------


def test_wrong_value() -> None:
    def call(ns: Any, x: Any) -> Any:
        return ns.exp(x) * (1 + 1e-9)

    must_fail("value", sample(call, row="exp", reference=np.exp), "elements differ")


def test_wrong_shape() -> None:
    must_fail("value", sample(lambda ns, x: ns.exp(x)[None], row="exp", reference=np.exp), "shape")


def test_wrong_result_type(torch: ModuleType) -> None:
    ours = evergrad.ones(3, dtype=evergrad.float32)
    with pytest.raises(CheckError, match="float64"):
        ensure_same_types("wrong", [ours], [torch.ones(3, dtype=torch.float64)])


def test_wrong_in_low_precision() -> None:
    def coarse_exp(x: Any) -> Any:
        return np.exp(x).astype(np.float16).astype(x.dtype) if x.itemsize < 8 else np.exp(x)

    row = elementwise(NAME, coarse_exp, lambda t, y, x: t * y, takes_out=False, doc="Coarse.")
    must_fail("low_precision", sample_of(row), "in float32")


# -- derivatives --------------------------------------------------------------------------------


def test_wrong_gradient() -> None:
    row = elementwise(NAME, np.exp, lambda t, y, x: t * y * 1.0001, doc="A slope too steep.")
    must_fail("gradient", sample_of(row), "the gradient by input 0")


def test_wrong_gradient_of_one_element() -> None:
    def slope(t: Any, y: Any, x: Any) -> Any:
        return evergrad.where(x == 2.0, t, t * y)

    row = elementwise(NAME, np.exp, slope, doc="Wrong in one place.")
    must_fail("gradient", sample_of(row), "the gradient by input 0")


def test_wrong_gradient_of_a_complex_row() -> None:
    row = elementwise(
        NAME, np.exp, lambda t, y, x: t * y, holomorphic=False, doc="Forgets to conjugate."
    )
    wrong = sample(lambda ns, z: bind(row, z), X + 1j * X)
    must_fail("gradient", wrong, "the gradient by input 0")


def test_wrong_second_gradient() -> None:
    row = elementwise(NAME, np.exp, lambda t, y, x: t * y.detach(), doc="Constant slope.")
    checks.check_gradient(sample_of(row))
    must_fail("second_gradient", sample_of(row), "second order")


def test_wrong_transpose() -> None:
    row = linear(
        NAME, lambda x: x[::-1].copy(), same_type, lambda g, x: g, doc="Is not its own transpose."
    )
    must_fail("transpose", sample_of(row), "<J v, u>")


def _exp_with_wrong_forward_mode() -> Op:
    return opaque(
        NAME, np.exp, same_type, lambda g, y, x: g * y,
        jvp=lambda tangents, y, x: tangents[0] * y * 1.0001, doc="Wrong forwards.",
    )  # fmt: skip


@pytest.mark.parametrize("check", ["gradient", "transpose", "mixed_orders"])
def test_wrong_forward_mode(check: str) -> None:
    must_fail(check, sample_of(_exp_with_wrong_forward_mode()), "forward derivative|<J v, u>")


# -- transforms ---------------------------------------------------------------------------------


def test_wrong_vmap_rule() -> None:
    def batch(op: Op, args: Any, dims: Any) -> Any:
        return bind(op, args[0]), 0  # wherever the examples run

    row = opaque(NAME, np.exp, same_type, NONDIFFERENTIABLE, batch=batch, doc="Batched wrongly.")
    must_fail("vmap", sample_of(row), r"in_dims=\(-1,\)")


def test_wrong_program() -> None:
    calls: list[None] = []

    def call(ns: Any, x: Any) -> Any:
        calls.append(None)
        return ns.exp(x) * len(calls)

    must_fail("trace", sample(call, row="exp"), "the traced program gives")


def test_sample_of_another_row() -> None:
    must_fail("trace", sample(lambda ns, x: ns.sin(x), row="exp"), "never comes to the row")


# -- memory -------------------------------------------------------------------------------------


def test_strides_ignored() -> None:
    def in_memory_order(x: Any) -> Any:
        return np.exp(x).ravel(order="K").reshape(x.shape)

    row = opaque(NAME, in_memory_order, same_type, NONDIFFERENTIABLE, doc="Reads as it lies.")
    must_fail("strides", sample_of(row), "transposed")


def test_results_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bind_module, "pool", SimpleNamespace(copy=lambda array: array))
    row = elementwise(NAME, np.exp, lambda t, y, x: t * y, doc="e to the power of x.")
    must_fail("strides", sample_of(row), "is not contiguous")


def test_input_changed() -> None:
    def in_place(x: Any) -> Any:
        x *= 2
        return x.copy()

    row = opaque(NAME, in_place, same_type, NONDIFFERENTIABLE, doc="Doubles its input.")
    must_fail("purity", sample_of(row), "an input was changed")


def test_memory_shared_unsaid() -> None:
    row = opaque(NAME, lambda x: x, same_type, NONDIFFERENTIABLE, doc="Gives its input back.")
    must_fail("purity", sample_of(row), "shares the memory of an input")


def test_view_that_copies() -> None:
    gc.collect()  # what earlier tests left would be freed during the check
    row = linear(NAME, lambda x: x.copy(), same_type, lambda g, x: g, alias="view", doc="A copy.")
    must_fail("purity", sample_of(row), "shares no memory")


def test_leak() -> None:
    def call(ns: Any, x: Any) -> Any:
        y = ns.exp(x)
        y.me = y
        return y

    must_fail("leaks", sample(call, row="exp"), f"{X.nbytes} bytes in 1 storages are left")


# -- rows ---------------------------------------------------------------------------------------


def test_row_without_samples() -> None:
    row = elementwise(NAME, np.exp, lambda t, y, x: t * y, doc="Unsampled.")
    with pytest.raises(CheckError, match="no sample"):
        checks.check_row(row)


def test_row_without_doc() -> None:
    row = elementwise(NAME, np.exp, lambda t, y, x: t * y)
    SAMPLES[NAME] = [sample_of(row)]
    with pytest.raises(CheckError, match="no doc"):
        checks.check_row(row)


def test_row_without_derivative() -> None:
    row = opaque(NAME, np.exp, same_type, "", doc="Says nothing.")
    SAMPLES[NAME] = [sample_of(row)]
    with pytest.raises(CheckError, match="NONDIFFERENTIABLE"):
        checks.check_row(row)


def test_row_whose_derivative_is_not_sampled() -> None:
    row = elementwise(
        NAME, np.exp, lambda t, y, x: t * y, emit=numpy_evaluates("a canary"),
        doc="Sampled on integers.",
    )  # fmt: skip
    SAMPLES[NAME] = [sample(lambda ns, x: bind(row, x), X.astype(np.int64))]
    with pytest.raises(CheckError, match="no sample at which it is checked"):
        checks.check_row(row)
