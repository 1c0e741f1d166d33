"""Views, writes in place and the rules of autograd between them, program by program as PyTorch."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from .outcomes import Program, same

# -- views ----------------------------------------------------------------------------------------

VIEWS = {
    "select": lambda x: x.select(0, 1),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "slice": lambda x: x[::2, 1:],
    "transpose": lambda x: x.t(),
    "permute": lambda x: x.permute(1, 0),
    "view": lambda x: x.view(-1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "diagonal": lambda x: x.diagonal(),
    "expand": lambda x: x.expand(2, 4, 3),
    "unfold": lambda x: x.unfold(0, 2, 2),
    "as_strided": lambda x: x.as_strided((2, 2), (3, 1), 1),
    "chunk": lambda x: x.chunk(2)[1],
    "split": lambda x: x.split([1, 3])[1],
    "unbind": lambda x: x.unbind(1)[2],
    "movedim": lambda x: x.movedim(0, 1),
    "detach": lambda x: x.detach(),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "flatten": lambda x: x.flatten(),
    "ravel": lambda x: x.ravel(),
    "squeeze": lambda x: x.squeeze(),
    "T": lambda x: x.T,
    "view_as": lambda x: x.view_as(x.new_empty(2, 6)),
    "tensor_split": lambda x: x.tensor_split(3)[0],
    "real": lambda x: x.real,
}
WRITES = {
    "fill_": lambda ns, v: v.fill_(2.0),
    "mul_": lambda ns, v: v.mul_(3.0),
    "copy_": lambda ns, v: v.copy_(ns.ones_like(v)),
    "zero_": lambda ns, v: v.zero_(),
    "setitem": lambda ns, v: v.__setitem__(0, 5.0),
    "add_self": lambda ns, v: v.add_(v),
    "exp_": lambda ns, v: v.exp_(),
    "masked_fill_": lambda ns, v: v.masked_fill_(v > 4, -1.0),
}


# PyTorch goes on with a warning that this is deprecated, or with memory written several times.
LOOSE = {("expand", "masked_fill_"), ("expand", "fill_"), ("expand", "zero_")}


def _matrix(ns: Any) -> Any:
    return ns.arange(12.0).reshape(4, 3).clone()


@pytest.mark.parametrize("view", VIEWS)
def test_writes_through_views(view: str, torch: ModuleType) -> None:
    for write in WRITES:
        if (view, write) not in LOOSE:
            _compare_write(view, write, torch)


def _compare_write(view: str, write: str, torch: ModuleType) -> None:
    """The base after a write through a view, and its gradient; or the same refusal."""

    def plain(ns: Any) -> Any:
        base = _matrix(ns)
        v = VIEWS[view](base)
        WRITES[write](ns, v)
        return base, v, v._is_view(), base._version > 0

    def recorded(ns: Any) -> Any:
        leaf = _matrix(ns).requires_grad_()
        base = leaf * 1
        v = VIEWS[view](base)
        WRITES[write](ns, v)
        base.pow(2).sum().backward()
        return base.detach(), leaf.grad, v.requires_grad

    def of_a_leaf(ns: Any) -> Any:
        leaf = _matrix(ns).requires_grad_()
        WRITES[write](ns, VIEWS[view](leaf))
        return leaf.detach()

    def without_gradients(ns: Any) -> Any:
        leaf = _matrix(ns).requires_grad_()
        with ns.no_grad():
            v = VIEWS[view](leaf)
            WRITES[write](ns, v)
        return leaf.detach()

    for program in (plain, recorded, of_a_leaf, without_gradients):
        same(program, torch, with_warnings=False)


# -- rules ----------------------------------------------------------------------------------------


def saved_then_written(ns: Any) -> Any:
    x = ns.ones(3, requires_grad=True)
    y = x.exp()
    y.add_(1)
    y.sum().backward()


def written_before_saved(ns: Any) -> Any:
    x = ns.ones(3, requires_grad=True)
    y = x * 2
    y.add_(1)
    (y * y).sum().backward()
    return x.grad


def unbind_then_write(ns: Any) -> Any:
    x = ns.ones(2, 3, requires_grad=True) * 1
    a, _ = x.unbind(0)
    a.mul_(2)


def split_then_write(ns: Any) -> Any:
    x = ns.ones(4, requires_grad=True) * 1
    a, _ = x.split(2)
    a.mul_(2)


def view_made_without_gradients(ns: Any) -> Any:
    x = ns.ones(4, requires_grad=True) * 1
    with ns.no_grad():
        v = x[:2]
    v.mul_(2)


def view_made_in_inference(ns: Any) -> Any:
    with ns.inference_mode():
        x = ns.ones(3)
    x.add_(1)


def inference_saved(ns: Any) -> Any:
    with ns.inference_mode():
        x = ns.ones(3)
    return x * ns.ones(3, requires_grad=True)


def twice_backward(ns: Any) -> Any:
    y = ns.ones(2, requires_grad=True).exp().sum()
    y.backward()
    y.backward()


def twice_backward_of_a_sum(ns: Any) -> Any:
    x = ns.ones(2, requires_grad=True)
    y = x.sum()
    y.backward()
    y.backward()
    return x.grad


def backward_of_a_vector(ns: Any) -> Any:
    ns.ones(2, requires_grad=True).mul(2).backward()


def backward_of_a_constant(ns: Any) -> Any:
    ns.ones(()).backward()


def gradient_of_another_shape(ns: Any) -> Any:
    x = ns.ones(2, requires_grad=True)
    (x * 2).backward(ns.ones(3))


def gradient_of_another_type(ns: Any) -> Any:
    x = ns.ones(2, requires_grad=True)
    (x * 2).backward(ns.ones(2, dtype=ns.float64))
    return x.grad


def unused_input(ns: Any) -> Any:
    x, y = ns.ones(2, requires_grad=True), ns.ones(2, requires_grad=True)
    return ns.autograd.grad((x * 2).sum(), [x, y])


def unused_allowed(ns: Any) -> Any:
    x, y = ns.ones(2, requires_grad=True), ns.ones(2, requires_grad=True)
    return ns.autograd.grad((x * 2).sum(), [x, y], allow_unused=True)


def unused_as_zeros(ns: Any) -> Any:
    x, y = ns.ones(2, requires_grad=True), ns.ones(2, requires_grad=True)
    return ns.autograd.grad((x * 2).sum(), [x, y], materialize_grads=True)


def integers_require_grad(ns: Any) -> Any:
    return ns.ones(2, dtype=ns.int64, requires_grad=True)


def non_leaf_requires_grad_off(ns: Any) -> Any:
    y = ns.ones(2, requires_grad=True) * 2
    y.requires_grad_(False)


def grad_of_a_non_leaf(ns: Any) -> Any:
    y = ns.ones(2, requires_grad=True) * 2
    y.sum().backward()
    return y.grad


def retained_grad(ns: Any) -> Any:
    y = ns.ones(2, requires_grad=True) * 2
    y.retain_grad()
    y.pow(2).sum().backward()
    return y.grad, y.retains_grad


def retain_before_write(ns: Any) -> Any:
    x = ns.ones(2, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    y.sum().backward()
    return y.grad, x.grad


def grad_set_to_another_shape(ns: Any) -> Any:
    x = ns.ones(2, requires_grad=True)
    x.grad = ns.ones(3)


def grad_set_to_another_type(ns: Any) -> Any:
    x = ns.ones(2, requires_grad=True)
    x.grad = ns.ones(2, dtype=ns.float64)


def grad_set_to_a_number(ns: Any) -> Any:
    x = ns.ones(2, requires_grad=True)
    x.grad = 3.0


def data_is_replaced(ns: Any) -> Any:
    x = ns.ones(2, requires_grad=True)
    x.data = ns.zeros(3)
    return x, x.shape


def detach_in_place(ns: Any) -> Any:
    y = ns.ones(2, requires_grad=True) * 2
    y.detach_()
    return y


def detach_in_place_of_a_view(ns: Any) -> Any:
    y = (ns.ones(2, requires_grad=True) * 2)[:1]
    y.detach_()


def accumulates_in_place(ns: Any) -> Any:
    x = ns.ones(2, requires_grad=True)
    x.sum().backward()
    first = x.grad
    x.sum().backward()
    return x.grad is first, first


def inputs_of_backward(ns: Any) -> Any:
    x, y = ns.ones(2, requires_grad=True), ns.ones(2, requires_grad=True)
    (x * y).sum().backward(inputs=[x])
    return x.grad, y.grad


def no_inputs_of_backward(ns: Any) -> Any:
    ns.ones(2, requires_grad=True).sum().backward(inputs=[])


def version_counts(ns: Any) -> Any:
    x = ns.ones(3)
    before = x._version
    x.add_(1)
    x[0] = 2
    x.detach().mul_(2)
    return before, x._version, x.clone()._version


def set_grad_enabled_nests(ns: Any) -> Any:
    found = []
    with ns.no_grad():
        with ns.enable_grad():
            found.append(ns.is_grad_enabled())
            with ns.set_grad_enabled(False):
                found.append(ns.is_grad_enabled())
        found.append(ns.is_grad_enabled())
    return [*found, ns.is_grad_enabled()]


def bool_of_many(ns: Any) -> Any:
    return bool(ns.ones(2))


def bool_of_none(ns: Any) -> Any:
    return bool(ns.ones(0))


def item_of_many(ns: Any) -> Any:
    return ns.ones(2).item()


def expanded_written(ns: Any) -> Any:
    ns.ones(1).expand(3).add_(1)


def result_does_not_fit(ns: Any) -> Any:
    ns.ones(1).add_(ns.ones(3))


def float_into_integers(ns: Any) -> Any:
    ns.ones(2, dtype=ns.int64).add_(0.5)


def divide_integers_in_place(ns: Any) -> Any:
    ns.ones(2, dtype=ns.int64).div_(2)


def out_requires_grad(ns: Any) -> Any:
    x = ns.ones(2, requires_grad=True)
    ns.add(x, 1, out=ns.empty(2))


def out_of_another_shape(ns: Any) -> Any:
    out = ns.empty(0)
    ns.add(ns.ones(2), 1, out=out)
    return out


def out_resized_with_warning(ns: Any) -> Any:
    out = ns.ones(5)
    ns.add(ns.ones(2), 1, out=out)
    return out


def where_gradient(ns: Any) -> Any:
    x = ns.tensor([0.0, 1.0], requires_grad=True)
    ns.where(x > 0, x.log(), 0).sum().backward()
    return x.grad[1]


def hook_replaces(ns: Any) -> Any:
    x = ns.ones(2, requires_grad=True)
    x.register_hook(lambda g: g * 2)
    x.register_hook(lambda g: g + 1)
    handle = x.register_hook(lambda g: g * 100)
    handle.remove()
    x.sum().backward()
    return x.grad


def hook_gives_another_shape(ns: Any) -> Any:
    x = ns.ones(2, requires_grad=True)
    x.register_hook(lambda g: g[:1])
    x.sum().backward()


def hook_on_a_constant(ns: Any) -> Any:
    ns.ones(2).register_hook(lambda g: g)


def hook_after_accumulation(ns: Any) -> Any:
    x, seen = ns.ones(2, requires_grad=True), []
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    x.sum().backward()
    x.sum().backward()
    return seen


def order_of_hooks(ns: Any) -> Any:
    seen = []
    x = ns.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: seen.append("tensor"))
    y.grad_fn.register_prehook(lambda gs: seen.append("pre"))
    y.grad_fn.register_hook(lambda gi, go: seen.append("post"))
    y.retain_grad()
    y.sum().backward()
    return seen


def names_of_nodes(ns: Any) -> Any:
    x = ns.ones(2, 2, requires_grad=True)
    results = (x + 1, x * x, x @ x, x.sum(), x.exp(), x.relu(), x.view(-1), x.mean())
    return [type(r.grad_fn).__name__ for r in results]


def custom_function_forgets(ns: Any) -> Any:
    class Wrong(ns.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            return a * b

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    a, b = ns.ones(2, requires_grad=True), ns.ones(2, requires_grad=True)
    Wrong.apply(a, b).sum().backward()


def custom_function_saves_for_later(ns: Any) -> Any:
    class Square(ns.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            ctx.save_for_backward(a)
            ctx.mark_non_differentiable()
            return a * a

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (a,) = ctx.saved_tensors
            return g * 2 * a, None

    x = ns.tensor([3.0], requires_grad=True)
    Square.apply(x).backward()
    return x.grad


def once_differentiable(ns: Any) -> Any:
    class Square(ns.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            ctx.save_for_backward(a)
            return a * a

        @staticmethod
        @ns.autograd.function.once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2 * ctx.saved_tensors[0]

    x = ns.tensor([3.0], requires_grad=True)
    (g,) = ns.autograd.grad(Square.apply(x), x, create_graph=True)
    g.backward()


RULES = [value for name, value in list(globals().items()) if callable(value)
         and getattr(value, "__module__", "") == __name__
         and not name.startswith(("_", "test"))]  # fmt: skip


@pytest.mark.parametrize("program", RULES, ids=lambda p: p.__name__)
def test_rules(program: Program, torch: ModuleType) -> None:
    same(program, torch)
