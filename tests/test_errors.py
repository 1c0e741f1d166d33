"""Errors say what was wrong, where, and what to do; and leave nothing behind."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import evergrad as eg
from evergrad.errors import (
    DTypeError,
    GradientError,
    SavedValueError,
    ShapeError,
    SteadyStateError,
    TraceError,
)
from evergrad.memory.ledger import LEDGER
from twins import fixed, leaf, refuse

# -- classes ------------------------------------------------------------------------------------


def test_pytorch_programs_can_catch_every_error() -> None:
    for kind in (ShapeError, DTypeError, GradientError, TraceError, SteadyStateError):
        assert issubclass(kind, RuntimeError)
    assert issubclass(SavedValueError, GradientError)


# -- what is refused, with PyTorch's class and words that name the numbers ----------------------

A = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def a(ns: Any) -> Any:
    return fixed(ns, A)


def truths(ns: Any) -> Any:
    return ns.tensor([True, True])


def small(ns: Any) -> Any:
    return ns.tensor([3, 4], dtype=ns.uint8)


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    # shapes
    "add": (lambda ns: a(ns) + fixed(ns, [1.0, 2.0]), r"3.*2"),
    "where": (lambda ns: ns.where(a(ns) > 0, a(ns), fixed(ns, [1.0, 2.0])), r"3.*2|2.*3"),
    "matmul": (lambda ns: a(ns) @ a(ns), r"2x3|\[2, 3\]|3 and 2"),
    "mm of vectors": (lambda ns: ns.mm(a(ns)[0], a(ns)), "matri|2-D|2D"),
    "dot": (lambda ns: ns.dot(a(ns)[0], a(ns)[0][:2]), "size|element"),
    "view": (lambda ns: a(ns).view(4), "4.*6|invalid for input of size 6"),
    "view of what is not contiguous": (lambda ns: a(ns).t().view(6), "reshape"),
    "reshape with two unknowns": (lambda ns: a(ns).reshape(-1, -1), "one dimension"),
    "reshape of nothing": (lambda ns: a(ns)[:0].reshape(0, -1), "ambiguous"),
    "expand": (lambda ns: a(ns).expand(2, 4), "4.*3"),
    "cat": (lambda ns: ns.cat([a(ns), a(ns)[:, :2]]), "3.*2|2.*3"),
    "cat of nothing": (lambda ns: ns.cat([]), "non-empty"),
    "stack of nothing": (lambda ns: ns.stack([]), "non-empty"),
    "resize below nothing": (lambda ns: a(ns).resize_(-1), "negative"),
    "windows below nothing": (lambda ns: a(ns).unfold(0, -1, 1), "-1"),
    "stack": (lambda ns: ns.stack([a(ns), a(ns)[0]]), "size"),
    "permute": (lambda ns: a(ns).permute(0, 0), "dims|repeat"),
    "squeeze out of range": (lambda ns: a(ns).squeeze(3), r"\[-2, 1\]"),
    "sum out of range": (lambda ns: a(ns).sum(2), r"\[-2, 1\].*2"),
    "sum of a dimension twice": (lambda ns: a(ns).sum((0, 0)), "multiple times"),
    "sum with keepdim as dim": (lambda ns: a(ns).sum(True), "must be int, not bool|bool"),
    "softmax over a fraction": (lambda ns: a(ns).softmax(1.0), "must be int, not float"),
    "squeeze of a dimension twice": (lambda ns: a(ns)[:1].squeeze((0, 0)), "multiple times"),
    "flatten of a number": (lambda ns: a(ns)[0, 0].flatten(1), r"\[-1, 0\].*1"),
    "largest of nothing": (lambda ns: ns.amax(a(ns)[:0], None), "specified"),
    "max of nothing": (lambda ns: a(ns)[:0].max(), "numel|specify|empty|element"),
    "index out of range": (lambda ns: a(ns)[5], "5.*2|out of bounds"),
    "gather out of range": (lambda ns: a(ns).gather(1, ns.tensor([[7]])), "7|out of bounds"),
    "too many indices": (lambda ns: a(ns)[0, 0, 0], "too many indices"),
    "einsum": (lambda ns: ns.einsum("ij,jk->ik", a(ns), a(ns)), "j|2|3"),
    "copy": (lambda ns: a(ns).copy_(fixed(ns, [1.0, 2.0])), r"3.*2"),
    "set item": (lambda ns: a(ns).__setitem__(0, fixed(ns, [1.0, 2.0])), r"2.*3|3.*2"),
    # element types
    "subtract booleans": (lambda ns: ns.tensor([True]) - ns.tensor([True]), "bool|Bool|~|\\^"),
    "remainder of booleans": (lambda ns: truths(ns) % truths(ns), "not implemented"),
    "quotient of booleans": (lambda ns: truths(ns) // True, "not implemented"),
    "cut quotient of booleans": (
        lambda ns: ns.div(truths(ns), True, rounding_mode="trunc"), "not implemented",
    ),
    "fmod of booleans": (lambda ns: ns.fmod(truths(ns), True), "not implemented"),
    "power of booleans": (lambda ns: truths(ns) ** truths(ns), "not implemented"),
    "negative power of booleans": (lambda ns: truths(ns) ** -1, "negative integer powers"),
    "relu of booleans": (lambda ns: ns.relu(truths(ns)), "not implemented|not supported"),
    "rounded booleans": (lambda ns: ns.floor(truths(ns)), "not implemented"),
    "fraction of integers": (lambda ns: ns.frac(ns.tensor([2])), "not implemented"),
    "mean of integers": (lambda ns: ns.tensor([1, 2]).mean(), "dtype"),
    "in place to a lower type": (lambda ns: ns.tensor([1, 2]).add_(0.5), "can't be cast"),
    "out of a lower type": (
        lambda ns: ns.add(a(ns), 1, out=ns.empty(2, 3, dtype=ns.int64)), "can't be cast",
    ),
    "float as an index": (lambda ns: a(ns)[a(ns)], "index|long|int"),
    "matmul of two types": (lambda ns: a(ns) @ a(ns).t().float(), "dtype|type"),
    "condition": (lambda ns: ns.where(a(ns), a(ns), a(ns)), "bool"),
    "bitwise of floats": (lambda ns: a(ns) & a(ns), "not implemented|not supported"),
    "complex comparison": (lambda ns: ns.tensor([1j]) < ns.tensor([2j]), "complex|not implemented"),
    "negative integer power": (lambda ns: ns.tensor([2]) ** -1, "negative integer powers"),
    "overflow": (lambda ns: ns.tensor(300, dtype=ns.uint8), "overflow"),
    "bound that does not fit": (lambda ns: small(ns).clamp(0, 300), "overflow"),
    "bound in place that does not fit": (lambda ns: small(ns).clamp_max_(300), "overflow"),
    "choice that does not fit": (lambda ns: ns.where(small(ns) > 3, small(ns), 300), "overflow"),
    "exponent that does not fit": (lambda ns: small(ns) ** 300, "overflow"),
    "fraction as alpha": (lambda ns: ns.add(small(ns), 1, alpha=0.5), "alpha"),
    # arguments
    "weights of bincount": (lambda ns: ns.bincount(small(ns), [1.0]), "must be Tensor"),
    "no tensor": (lambda ns: ns.exp(3.0), "must be Tensor"),
    "a string": (lambda ns: ns.tensor("abc"), "str"),
    "a list": (lambda ns: ns.add(a(ns), [1.0]), "must be Tensor|list"),
    "ragged": (lambda ns: ns.tensor([[1.0], [1.0, 2.0]]), "length 1.*2"),
    "device": (lambda ns: ns.ones(2, device="nowhere"), "nowhere"),
    "dtype": (lambda ns: ns.ones(2, dtype="float33"), "dtype|float33"),
    "clamp of nothing": (lambda ns: a(ns).clamp(), "min.*max"),
    "step of zero": (lambda ns: ns.arange(0, 5, 0), "step must be nonzero"),
    "inconsistent range": (lambda ns: ns.arange(5, 0, 1), "bound"),
    "item of many": (lambda ns: a(ns).item(), "6 elements"),
    "truth of many": (lambda ns: bool(a(ns)), "ambiguous"),
    "len of a number": (lambda ns: len(fixed(ns, 1.0)), "0-d"),
    "unknown argument": (lambda ns: a(ns).sum(dimension=0), "dimension"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_refuses_is_refused(name: str, torch: ModuleType) -> None:
    program, match = REFUSED[name]
    refuse(program, torch, match=f"(?s){match}")


# -- nothing is left behind ---------------------------------------------------------------------


def snapshot(tensors: list[Any]) -> Any:
    gc.collect()
    state = [(t.tolist(), t._version, t.requires_grad, t._grad) for t in tensors]
    return LEDGER.live, LEDGER.count, eg.get_rng_state().tolist(), eg.is_grad_enabled(), state


def untouched(tensors: list[Any], call: Callable[[], Any]) -> None:
    before = snapshot(tensors)
    with pytest.raises(Exception) as error:
        call()
    del error
    assert snapshot(tensors) == before


def fails(value: Any) -> Any:
    raise KeyError


FAILING: dict[str, Callable[[Any, Any], Any]] = {
    "op": lambda x, y: x + y[:, :2],
    "op with a cast": lambda x, y: x.float() @ y.float(),
    "op with history": lambda x, y: leaf(eg, A) * y[:, :2],
    "in place, shape": lambda x, y: x.add_(y.unsqueeze(0).expand(2, 2, 3)),
    "in place, type": lambda x, y: x.long().add_(0.5),
    "in place on an expanded tensor": lambda x, y: x[:, :1].expand(2, 3).add_(1),
    "in place on a leaf": lambda x, y: x.requires_grad_().mul_(2),
    "random in place on a leaf": lambda x, y: leaf(eg, A).normal_(),
    "random in place on a view of a leaf": lambda x, y: leaf(eg, A)[0].uniform_(),
    "dropout-like draw of a wrong size": lambda x, y: eg.rand(2, -1),
    "bernoulli out of range": lambda x, y: eg.bernoulli(x * 100),
    "copy": lambda x, y: x.copy_(y[:, :2]),
    "set item": lambda x, y: x.__setitem__(0, y[:, :2]),
    "set item out of range": lambda x, y: x.__setitem__(9, 0.0),
    "index": lambda x, y: x[eg.tensor([0, 9])],
    "index_add": lambda x, y: x.index_add_(0, eg.tensor([9, 9]), y),
    "scatter": lambda x, y: x.scatter_(0, eg.tensor([[9, 0, 0]]), y),
    "out": lambda x, y: eg.add(x, y, out=eg.zeros(2, 3, dtype=eg.int64)),
    "view": lambda x, y: x.t().view(6),
    "backward without a graph": lambda x, y: x.sum().backward(),
    "backward of many": lambda x, y: (leaf(eg, A) * y).backward(),
    "backward with a wrong gradient": lambda x, y: (leaf(eg, A) * y).backward(y[:, :2]),
    "grad of an unused input": lambda x, y: eg.autograd.grad(leaf(eg, A).sum(), leaf(eg, A)),
    "vmap": lambda x, y: eg.vmap(lambda x: x.add_(1) + y)(x.t()),
    "jvp": lambda x, y: eg.func.jvp(fails, (x,), (y,)),
    "grad": lambda x, y: eg.func.grad(lambda x: x * 2)(x),
    "saved hooks": lambda x, y: (
        lambda hooks: hooks.__enter__()
    )(eg.autograd.graph.saved_tensors_hooks(None)),  # type: ignore[call-arg]
    "custom function": lambda x, y: type(
        "Fails", (eg.autograd.Function,), {"forward": staticmethod(lambda ctx, x: fails(x))}
    ).apply(leaf(eg, A)),  # type: ignore[attr-defined]
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
def test_a_failed_call_leaves_nothing_behind(name: str) -> None:
    x, y = fixed(eg, A), fixed(eg, A)
    if name == "in place on a leaf":
        x.requires_grad_()
    eg.rand(1)
    untouched([x, y], lambda: FAILING[name](x, y))


def test_a_failed_backward_leaves_no_gradient_and_no_memory() -> None:
    x = leaf(eg, A)
    y = x.exp()
    z = y.sin() * 2
    y.data.zero_()
    live = LEDGER.live
    with pytest.raises(SavedValueError):
        z.sum().backward()
    assert x.grad is None
    assert LEDGER.live <= live


def test_a_failed_backward_can_be_repeated() -> None:
    x = leaf(eg, A)
    calls: list[int] = []
    y = x * 2

    def once(g: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise KeyError

    y.register_hook(once)
    loss = y.sum()
    with pytest.raises(KeyError):
        loss.backward(retain_graph=True)
    loss.backward()
    assert x.grad.tolist() == [[2.0] * 3] * 2


# -- places -------------------------------------------------------------------------------------


def test_sites_are_lines_of_the_users_program() -> None:
    x = leaf(eg, A)
    product = x * x  # this line
    x.data.zero_()  # and this one
    with pytest.raises(SavedValueError) as error:
        product.sum().backward()
    message = str(error.value)
    assert "test_errors.py" in message
    assert "product = x * x  # this line" in message
    assert "x.data.zero_()  # and this one" in message
    assert "src/evergrad" not in message and "core/bind.py" not in message


def test_every_graph_error_gives_a_fix() -> None:
    def second() -> None:
        loss = leaf(eg, A).exp().sum()
        loss.backward()
        loss.backward()

    def overwritten() -> None:
        y = leaf(eg, A).exp()
        y.zero_()
        y.detach_()
        z = leaf(eg, A).exp()
        w = z * 2
        z.add_(1)
        w.sum().backward()

    def traced() -> None:
        eg.func.jvp(lambda x: x * x.sum().item(), (fixed(eg, A),), (fixed(eg, A),))

    for call in (second, overwritten, traced):
        with pytest.raises(RuntimeError, match="fix:"):
            call()
