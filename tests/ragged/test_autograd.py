"""Values where autograd, optimizers, pickle and compile take tensors: gradients are values too."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import evergrad as eg
from evergrad import func, ragged
from evergrad.autograd import grad, gradcheck, gradgradcheck
from evergrad.errors import FileFormatError

Make = Callable[..., Any]


def a_tensor(requires_grad: bool = True) -> ragged.Tensor:
    return ragged.tensor([1.0, 2.0, 3.0], eg.float64, requires_grad)


def a_batch(requires_grad: bool = True) -> ragged.Batch:
    return ragged.batch([[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]], eg.float64, requires_grad)


kinds = pytest.mark.parametrize("make", [a_tensor, a_batch])


def loss(x: Any) -> eg.Tensor:
    return ragged.sum(ragged.mul(x, x)).sum()


@kinds
def test_grad_gives_values(make: Make) -> None:
    x, other = make(), make()
    (found,) = grad(loss(x), x)
    assert type(found) is type(x) and found.layout == x.layout and found == x.detach() * 2
    assert grad(loss(x), (x, other), allow_unused=True)[1] is None
    zeros = grad(loss(x), [x, other], materialize_grads=True)[1]
    assert type(zeros) is type(x) and zeros.numel() == x.numel() and not zeros.elements.any()
    with pytest.raises(RuntimeError, match="not have been used"):
        grad(loss(x), (x, other))
    # A value and dense tensors together, and the gradient of a value given as one.
    weight = eg.tensor(2.0, dtype=eg.float64, requires_grad=True)
    out = ragged.scale(x, weight)
    of_x, of_weight = grad(out, (x, weight), x.detach())
    assert of_x == x.detach() * 2 and of_weight.item() == loss(x).item()
    with pytest.raises(TypeError, match=r"x\.elements"):
        grad(out, x, eg.eye(3), is_grads_batched=True)


@kinds
def test_backward_of_values(make: Make) -> None:
    x = make()
    (x * x).backward(x.detach())
    eg.autograd.backward(x * x, x.detach(), inputs=x)
    assert x.grad is not None and x.grad.layout == x.layout
    assert x.grad.elements.tolist() == (4 * x.detach().elements ** 2).tolist()
    x.grad = None
    assert x.grad is None and x.is_leaf and x.grad_fn is None


@kinds
def test_derivatives_of_higher_order_and_transforms(make: Make) -> None:
    x = make()
    (first,) = grad(loss(x), x, create_graph=True)
    assert grad(loss(first), x)[0] == x.detach() * 8
    plain = make(False)
    assert func.grad(loss)(plain) == plain * 2
    _, pull = func.vjp(lambda v: v * v, plain)
    assert pull(plain)[0] == plain * plain * 2
    assert func.jvp(lambda v: v * v, (plain,), (plain,))[1] == plain * plain * 2
    assert func.jacrev(loss)(plain) == plain * 2
    with pytest.raises(TypeError, match=r"no layout of its own|has its elements in one dimension"):
        func.hessian(loss)(plain)


@kinds
def test_gradcheck_takes_values(make: Make) -> None:
    x = make()
    assert gradcheck(lambda v: ragged.convolve(v, v), x, check_forward_ad=True)
    assert gradcheck(lambda v, w: (v * w, ragged.norm(v)), (x, make()))
    assert gradgradcheck(lambda v: v * v * v, (x,))

    class Wrong(eg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, given: eg.Tensor) -> eg.Tensor:
            return given * given

        @staticmethod
        def backward(ctx: Any, g: eg.Tensor) -> eg.Tensor:
            return g

    with pytest.raises(RuntimeError, match="does not agree"):
        gradcheck(lambda v: v.rebuilt(Wrong.apply(v.elements)), x)


@kinds
def test_hooks_see_values(make: Make) -> None:
    x, seen = make(), []
    handle = x.register_hook(lambda g: seen.append(g) or g * 2)
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad))
    middle = x * x
    middle.retain_grad()
    assert middle.retains_grad and not middle.is_leaf and middle.grad_fn is not None
    ragged.sum(middle).sum().backward()
    assert seen == [x.detach() * 2, x.detach() * 4] and x.grad == x.detach() * 4
    assert all(type(g) is type(x) and g.layout == x.layout for g in seen)
    assert middle.grad is not None and middle.grad.elements.tolist() == [1.0] * x.numel()
    handle.remove()
    x.grad = None
    loss(x).backward()
    assert x.grad == x.detach() * 2


@kinds
def test_hooks_close_no_cycle(make: Make) -> None:
    x = make()
    x.register_hook(lambda g: None)
    x.register_post_accumulate_grad_hook(lambda v: None)
    storage = weakref.ref(x.elements)
    gc.collect()
    gc.disable()
    try:
        del x
        assert storage() is None
    finally:
        gc.enable()


@kinds
def test_copies_and_files(make: Make) -> None:
    x = make()
    loss(x).backward()
    for made in (copy.deepcopy(x), copy.copy(x), pickle.loads(pickle.dumps(x)), saved(x)):
        assert type(made) is type(x) and made == x.detach() and made.layout == x.layout
        assert made.requires_grad and made.dtype is eg.float64
    assert copy.deepcopy(x).elements is not x.elements
    twice = saved([x, x])
    assert twice[0].elements is twice[1].elements
    state = saved({"weights": {"filter": x.detach()}, "step": 3})
    assert state["weights"]["filter"] == x.detach()
    arranged = a_batch(False).reshape(3, 1)
    assert saved(arranged).batch_shape == (3, 1)


def saved(value: Any) -> Any:
    file = io.BytesIO()
    eg.save(value, file)
    file.seek(0)
    return eg.load(file)


class Forged:
    """Writes what a batch of these parts would write."""

    def __init__(self, *parts: object) -> None:
        self.parts = parts

    def __reduce__(self) -> Any:
        return ragged.Batch, self.parts


@pytest.mark.parametrize(
    "parts",
    [
        (eg.ones(2), ((3,),), (1,)),
        (eg.ones(2), ((2,),), (2,)),
        (eg.ones(2), ((-2,), (4,)), (2,)),
        (eg.ones(2), ((2.0,),), (1,)),
        (eg.ones(2), [(2,)], (1,)),
        (eg.ones(2), ((1 << 62, 8), (2,)), (2,)),
        (eg.ones(1, 2), ((2,),), (1,)),
        ([1.0, 2.0], ((2,),), (1,)),
        (eg.ones(2),),
        (eg.ones(2), ((2,),), (1,), 4),
    ],
)
def test_forged_files_are_refused(parts: Any) -> None:
    file = io.BytesIO()
    eg.save(Forged(*parts), file)
    file.seek(0)
    with pytest.raises((FileFormatError, pickle.UnpicklingError)):
        eg.load(file)


@kinds
def test_optimizers_take_values(make: Make) -> None:
    x = make()
    optimizer = eg.optim.SGD([x], lr=0.25)
    for step in (eg.compile(lambda: loss(x).backward()), lambda: loss(x).backward()):
        optimizer.zero_grad()
        step()
        optimizer.step()
    assert x.detach() == make(False) * 0.25
    with pytest.raises(TypeError, match="should be an iterable"):
        eg.optim.SGD(x, lr=0.1)


@kinds
def test_compiled_functions_take_and_give_values(make: Make) -> None:
    x = make()

    @eg.compile
    def gradients(v: Any) -> Any:
        return grad(loss(v), v)

    @eg.compile
    def squares(v: Any) -> Any:
        return {"square": v * v, "size": ragged.norm(v)}

    for _ in range(3):
        assert gradients(x)[0] == x.detach() * 2
        found = squares(x)
        assert type(found["square"]) is type(x) and found["square"].layout == x.layout
        (of_x,) = grad(loss(found["square"]), x)
        cubes = 4 * x.detach().elements ** 3
        eg.testing.assert_close(of_x.elements, cubes)


@kinds
@pytest.mark.parametrize(
    "call",
    [
        lambda v: eg.sum(v), lambda v: eg.exp(v), lambda v: eg.add(eg.ones(3), v),
        lambda v: eg.ones(3) + v, lambda v: v - eg.ones(3), lambda v: eg.cat([v, v]),
        lambda v: eg.where(eg.ones(3) > 0, v, 0.0), lambda v: eg.nn.functional.linear(v, v),
        lambda v: eg.nn.functional.mse_loss(v, v), lambda v: eg.ones(3).copy_(v),
        lambda v: eg.tensor(v), lambda v: v @ v, lambda v: 1 + v, lambda v: 2 / v, lambda v: v**2,
        lambda v: eg.ones(3) == v, lambda v: eg.ones(3).mul_(v), lambda v: eg.nn.Parameter(v),
    ],
)  # fmt: skip
def test_dense_functions_refuse_values(make: Make, call: Any) -> None:
    with pytest.raises(TypeError):
        call(make(False))
