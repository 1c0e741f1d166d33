"""Derivatives against finite differences.

For each real direction of each input (and each imaginary one) the function is evaluated on both
sides; reverse mode, forward mode and batched reverse mode must agree with the slope.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.autograd.engine import grad
from evergrad.core import dtypes
from evergrad.core.holder import TensorHolder, held, on_tensors
from evergrad.core.state import using
from evergrad.core.tensor import Tensor, detached, from_array
from evergrad.core.types import Array
from evergrad.func.derivatives import jvp
from evergrad.ops.rows.movement.complex_parts import view_as_real
from evergrad.ops.rows.movement.joining import stack

if TYPE_CHECKING:
    from evergrad.core.types import Args, Tree


class GradcheckError(RuntimeError):
    """A derivative does not agree with the slope.

    >>> class Wrong(eg.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * x
    ...
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         return grad
    >>> x = eg.ones(2, dtype=eg.float64, requires_grad=True)
    >>> try:
    ...     eg.autograd.gradcheck(Wrong.apply, (x,))
    ... except RuntimeError as error:
    ...     print(type(error).__name__)
    GradcheckError
    """


def _as_inputs(inputs: Tree) -> tuple[object, ...]:
    return (inputs,) if isinstance(inputs, (Tensor, TensorHolder)) else tuple(inputs)


def _call(func: Callable[..., object], inputs: Sequence[object]) -> list[Tensor]:
    result = func(*inputs)
    results = map(held, result if isinstance(result, (tuple, list)) else (result,))
    return [r for r in results if isinstance(r, Tensor) and r.dtype.category >= dtypes.FLOATING]


def _slopes(
    func: Callable[..., object], inputs: tuple[Tensor, ...], which: int, eps: float
) -> list[tuple[int, complex, list[Array]]]:
    """For each element of one input and each direction: the central difference of every output.
    The input itself is changed and restored, for functions that read it without taking it."""
    target = inputs[which]
    center = target.detach().array().copy()
    directions: tuple[complex, ...] = (1.0, 1j) if target.dtype.is_complex else (1.0,)
    rows = []
    for element in range(center.size):
        for direction in directions:
            sides = []
            for step in (eps, -eps):
                moved = center.copy(order="C")
                moved.reshape(-1)[element] += step * direction
                with using(grad=False):
                    target.copy_(from_array(moved))
                sides.append([o.detach().array().copy() for o in _call(func, inputs)])
            slope = [(a - b) / (2 * eps) for a, b in zip(*sides, strict=True)]
            rows.append((element, direction, slope))
            with using(grad=False):
                target.copy_(from_array(center.copy()))
    return rows


def _cotangents(output: Tensor) -> list[tuple[int, complex, Tensor]]:
    units: tuple[complex, ...] = (1.0, 1j) if output.dtype.is_complex else (1.0,)
    found = []
    for element in range(output.numel()):
        for unit in units:
            array = np.zeros(output._type.shape, output.dtype.np)
            array.reshape(-1)[element] = unit
            found.append((element, unit, from_array(array)))
    return found


def _compare(what: str, got: Array, expected: Array, atol: float, rtol: float) -> None:
    if not np.allclose(got, expected, rtol=rtol, atol=atol, equal_nan=True):
        worst = float(np.max(np.abs(np.asarray(got) - np.asarray(expected))))
        raise GradcheckError(
            f"{what} does not agree with finite differences (largest difference {worst:.3g}):\n"
            f"analytical: {got}\nnumerical: {expected}"
        )


def _check_reverse(
    func: Callable[..., object], inputs: tuple[Tensor, ...], which: int,
    rows: list[tuple[int, complex, list[Array]]], atol: float, rtol: float, batched: bool,
) -> None:  # fmt: skip
    outputs = _call(func, inputs)
    target = inputs[which]
    for o, output in enumerate(outputs):
        entries = _cotangents(output)
        if not entries:
            continue
        if output.requires_grad:
            columns = _pull(output, target, [c for _, _, c in entries], batched)
        else:
            columns = [np.zeros(target._type.shape, target.dtype.np)] * len(entries)
        for (element, unit, _), column in zip(entries, columns, strict=True):
            expected = np.zeros(target._type.shape, target.dtype.np).reshape(-1)
            for place, direction, slope in rows:
                change = np.real(np.conj(unit) * slope[o].reshape(-1)[element])
                expected[place] += change * direction
            _compare(
                f"the gradient of output {o} (element {element}) by input {which}",
                column.reshape(-1), expected, atol, rtol,
            )  # fmt: skip


def _pull(output: Tensor, target: Tensor, cotangents: list[Tensor], batched: bool) -> list[Array]:
    if batched:
        (found,) = grad(output, (target,), (stack(cotangents),), retain_graph=True,
                        is_grads_batched=True, materialize_grads=True)  # fmt: skip
        return list(found.array())
    return [
        grad(output, (target,), (c,), retain_graph=True, materialize_grads=True)[0].array()
        for c in cotangents
    ]


def _check_forward(
    func: Callable[..., object], inputs: Args, which: int,
    rows: list[tuple[int, complex, list[Array]]], atol: float, rtol: float,
) -> None:  # fmt: skip
    target = detached(inputs[which])

    def of_one(value: Tensor) -> object:
        given = [detached(i) if isinstance(i, Tensor) else i for i in inputs]
        given[which] = value
        return tuple(_call(func, given))

    for place, direction, slope in rows:
        tangent = np.zeros(target._type.shape, target.dtype.np)
        tangent.reshape(-1)[place] = direction
        _, moved = jvp(of_one, (target,), (from_array(tangent),))
        for o, (got, expected) in enumerate(zip(moved, slope, strict=True)):
            _compare(
                f"the forward derivative of output {o} by input {which} (element {place})",
                got.array(), expected, atol, rtol,
            )  # fmt: skip


def _check_repeatable(
    func: Callable[..., object], inputs: tuple[object, ...], tolerance: float
) -> None:
    first, second = _call(func, inputs), _call(func, inputs)
    for a, b in zip(first, second, strict=True):
        if not np.allclose(a.detach().array(), b.detach().array(), atol=tolerance, equal_nan=True):
            raise GradcheckError("the function gives another value each time it is called")


def gradcheck(
    func: Callable[..., object],
    inputs: object,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Whether the derivatives of ``func`` at ``inputs`` agree with finite differences.

    The inputs that require grad are checked; they should be float64 or complex128.

    >>> x = eg.ones(3, dtype=eg.float64, requires_grad=True)
    >>> eg.autograd.gradcheck(eg.sin, (x,))
    True
    """
    func, given = on_tensors(func, _as_inputs(inputs))
    checked = [
        i for i, value in enumerate(given) if isinstance(value, Tensor) and value.requires_grad
    ]
    if not checked:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the "
            "them have requires_grad=True."
        )
    try:
        _check_repeatable(func, given, nondet_tol)
        for which in checked:
            if given[which].dtype not in (dtypes.float64, dtypes.complex128):
                raise GradcheckError(
                    f"input {which} is {given[which].dtype}: finite differences need float64 or "
                    "complex128"
                )
            rows = _slopes(func, given, which, eps)
            if check_backward_ad:
                _check_reverse(func, given, which, rows, atol, rtol, batched=False)
            if check_batched_grad:
                _check_reverse(func, given, which, rows, atol, rtol, batched=True)
            if check_forward_ad or check_batched_forward_grad:
                _check_forward(func, given, which, rows, atol, rtol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., object],
    inputs: object,
    grad_outputs: object = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Whether the second derivatives of ``func`` agree with finite differences of the first.

    >>> x = eg.ones(3, dtype=eg.float64, requires_grad=True)
    >>> eg.autograd.gradgradcheck(eg.sin, (x,))
    True
    """
    func, given = on_tensors(func, _as_inputs(inputs))
    outputs = _call(func, given)
    if grad_outputs is None:
        cotangents = [_random_like(output).requires_grad_() for output in outputs]
    else:
        cotangents = [held(c) for c in _as_inputs(grad_outputs)]
    count = len(given)
    checked = [
        i for i, value in enumerate(given) if isinstance(value, Tensor) and value.requires_grad
    ]

    def first(*values: Any) -> Any:
        args = list(values[:count])
        for i in checked:
            if not args[i].requires_grad:
                args[i] = detached(args[i]).requires_grad_()
        outs = _call(func, args)
        live = [(o, c) for o, c in zip(outs, values[count:], strict=True) if o.requires_grad]
        if not live:
            return tuple(args[i] * 0 for i in checked)
        return grad([o for o, _ in live], [args[i] for i in checked], [c for _, c in live],
                    create_graph=True, materialize_grads=True)  # fmt: skip

    return gradcheck(
        first, (*given, *cotangents), eps=eps, atol=atol, rtol=rtol,
        raise_exception=raise_exception, nondet_tol=nondet_tol,
        check_batched_grad=check_batched_grad, check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
    )  # fmt: skip


def _random_like(tensor: Tensor) -> Tensor:
    """Uniform between -1 and 1, drawn from the default generator as PyTorch draws it."""
    drawn = from_array(np.empty(tensor._type.shape, tensor.dtype.np))
    (view_as_real(drawn) if tensor.dtype.is_complex else drawn).uniform_(-1, 1)
    return drawn
