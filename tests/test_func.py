"""Function transforms, alone and in every pair, against PyTorch's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.core.tree import tree_leaves
from evergrad.utils.checkpoint import checkpoint
from twins import agree, assert_same, fixed, leaf, plain, refuse

V = [0.3, -0.8, 1.2]
M = [[0.5, -1.0, 0.2], [1.5, 0.3, -0.7], [0.1, 0.9, 0.4]]


def vector(ns: Any) -> Any:
    return fixed(ns, V)


def matrix(ns: Any) -> Any:
    return fixed(ns, M)


# -- pairs --------------------------------------------------------------------------------------
# Each transform makes a function of one vector, giving one vector, of another such function.

Function = Callable[[Any], Any]
TRANSFORMS: dict[str, Callable[[Any, Function], Function]] = {
    "grad": lambda ns, f: ns.func.grad(lambda x: (f(x) * ns.arange(1.0, 4.0).to(x)).sum()),
    "value_and_grad": lambda ns, f: (
        lambda x: (lambda gv: gv[0] * gv[1])(ns.func.grad_and_value(lambda x: f(x).sum())(x))
    ),
    "vjp": lambda ns, f: lambda x: ns.func.vjp(f, x)[1](x.cos())[0],
    "jvp": lambda ns, f: lambda x: ns.func.jvp(f, (x,), (x.cos(),))[1],
    "linearize": lambda ns, f: lambda x: linearized(ns, f, x, x.sin()),
    "vmap": lambda ns, f: lambda x: ns.func.vmap(lambda s: f(x * s).sum())(x),
    "jacrev": lambda ns, f: lambda x: ns.func.jacrev(f)(x) @ x,
    "jacfwd": lambda ns, f: lambda x: x @ ns.func.jacfwd(f)(x),
    "hessian": lambda ns, f: lambda x: ns.func.hessian(lambda x: f(x).sum())(x).sum(0),
}


def linearized(ns: Any, f: Function, x: Any, direction: Any) -> Any:
    """PyTorch's ``linearize`` composes with nothing, and its ``jvp`` says what it would give."""
    if ns is eg:
        return ns.func.linearize(f, x)[1](direction)
    return ns.func.jvp(f, (x,), (direction,))[1]


def base(x: Any) -> Any:
    """Smooth, and no derivative of it vanishes."""
    return (x * x.flip(0)).sin() + x.exp() * x[1]


@pytest.mark.parametrize(
    "outer,inner",
    [p for p in itertools.product(TRANSFORMS, TRANSFORMS) if p != ("hessian", "hessian")],
)
def test_every_pair(outer: str, inner: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        return TRANSFORMS[outer](ns, TRANSFORMS[inner](ns, base))(vector(ns))

    out = agree(program, torch, tolerance=1e-7)
    assert not out.requires_grad, "the graph inside stays inside"


TRIPLES = [
    ("grad", "vmap", "jvp"), ("vmap", "jvp", "grad"), ("jvp", "grad", "vmap"),
    ("jacfwd", "vmap", "grad"), ("jacrev", "jacfwd", "jacrev"), ("vmap", "vmap", "grad"),
    ("grad", "grad", "grad"), ("jvp", "jvp", "jvp"), ("vjp", "jvp", "vmap"),
]  # fmt: skip


@pytest.mark.parametrize("names", TRIPLES, ids="-".join)
def test_some_triples(names: tuple[str, ...], torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        function = base
        for name in reversed(names):
            function = TRANSFORMS[name](ns, function)
        return function(vector(ns))

    agree(program, torch, tolerance=1e-7)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_backward_through_a_transform(name: str, torch: ModuleType) -> None:
    """The result depends on a leaf of the outside, through its argument and a closure."""

    def program(ns: Any) -> Any:
        x, w = leaf(ns, V), leaf(ns, [1.5, 0.5, -1.0])
        out = TRANSFORMS[name](ns, lambda x: base(x) * w)(x)
        return out, ns.autograd.grad((out * out).sum(), [x, w])

    agree(program, torch, tolerance=1e-8)


def test_forward_over_reverse_is_reverse_over_reverse() -> None:
    def value(x: Any) -> Any:
        return (base(x) ** 2).sum()

    x, direction = vector(eg), fixed(eg, [1.0, -2.0, 0.5])
    _, forward = eg.func.jvp(eg.func.grad(value), (x,), (direction,))
    reverse = eg.func.grad(lambda x: (eg.func.grad(value)(x) * direction).sum())(x)
    backward = eg.func.grad(lambda x: eg.func.jvp(value, (x,), (direction,))[1])(x)
    (whole,) = eg.func.vjp(eg.func.grad(value), x)[1](direction)
    for found in (reverse, backward, whole, eg.func.hessian(value)(x) @ direction):
        assert_same(plain(found), plain(forward))


def test_jacobians_agree_with_finite_differences() -> None:
    x = np.array(V)
    step = 1e-6
    columns = [
        (base(fixed(eg, x + d)) - base(fixed(eg, x - d))).numpy() / (2 * step)
        for d in np.eye(3) * step
    ]
    expected = np.stack(columns, axis=1)
    for transform in (eg.func.jacrev, eg.func.jacfwd):
        np.testing.assert_allclose(transform(base)(vector(eg)).numpy(), expected, atol=1e-7)


# -- grad, vjp ----------------------------------------------------------------------------------

GRAD = {
    "one argument": lambda ns: ns.func.grad(lambda x, y: (x * y).sum())(vector(ns), vector(ns) * 2),
    "another": lambda ns: ns.func.grad(lambda x, y: (x * y).sum(), 1)(vector(ns), vector(ns) * 2),
    "from the back": lambda ns: ns.func.grad(lambda x, y: (x * y).sum(), -1)(
        vector(ns), vector(ns) * 2
    ),
    "several": lambda ns: ns.func.grad(lambda x, y: (x * y).sum(), (1, 0))(
        vector(ns), vector(ns) * 2
    ),
    "a tuple of one": lambda ns: ns.func.grad(lambda x: (x * x).sum(), (0,))(vector(ns)),
    "a dict": lambda ns: ns.func.grad(lambda p: (p["w"] * p["b"][0]).sum())(
        {"w": vector(ns), "b": [matrix(ns), vector(ns)]}
    ),
    "with aux": lambda ns: ns.func.grad(lambda x: ((x * x).sum(), {"out": x * 3}), has_aux=True)(
        vector(ns)
    ),
    "value too": lambda ns: ns.func.grad_and_value(lambda x: (x * x).sum())(vector(ns)),
    "value and aux": lambda ns: ns.func.grad_and_value(
        lambda x: ((x * x).sum(), x.exp()), has_aux=True
    )(vector(ns)),
    "keywords": lambda ns: ns.func.grad(lambda x, *, scale: (x * scale).sum())(
        vector(ns), scale=4.0
    ),
    "unused argument": lambda ns: ns.func.grad(lambda x, y: (x * x).sum(), (0, 1))(
        vector(ns), matrix(ns)
    ),
    "constant function": lambda ns: ns.func.grad(lambda x: vector(ns).sum())(vector(ns)),
    "identity": lambda ns: ns.func.grad(lambda x: x)(fixed(ns, 3.0)),
    "vjp": lambda ns: (lambda out, pull: (out, pull(out)))(*ns.func.vjp(base, vector(ns))),
    "vjp of several": lambda ns: (lambda out, pull: (out, pull((vector(ns), fixed(ns, 2.0)))))(
        *ns.func.vjp(lambda x, y: (x * y, (x + y).sum()), vector(ns), vector(ns) * 2)
    ),
    "vjp of a dict": lambda ns: (lambda out, pull: (out, pull({"a": vector(ns), "b": vector(ns)})))(
        *ns.func.vjp(lambda x: {"a": x * x, "b": x.sin()}, vector(ns))
    ),
    "vjp with aux": lambda ns: (lambda out, pull, aux: (out, pull(out), aux))(
        *ns.func.vjp(lambda x: (x * x, x.exp()), vector(ns), has_aux=True)
    ),
    "vjp twice": lambda ns: (lambda out, pull: (pull(out), pull(out * 2)))(
        *ns.func.vjp(base, vector(ns))
    ),
}


@pytest.mark.parametrize("name", GRAD)
def test_reverse_mode(name: str, torch: ModuleType) -> None:
    agree(GRAD[name], torch)


def test_value_and_grad() -> None:
    x = vector(eg)
    value, grads = eg.func.value_and_grad(lambda x, y: (x * y).sum(), argnums=(0, 1))(x, x * 2)
    assert_same(plain((value, grads)), plain(((x * x * 2).sum(), (x * 2, x))))
    (value, aux), grad = eg.func.value_and_grad(lambda x: ((x * x).sum(), "aux"), has_aux=True)(x)
    assert aux == "aux"
    assert_same(plain(grad), plain(x * 2))


WRONG = {
    "several numbers": lambda ns: ns.func.grad(lambda x: x * 2)(vector(ns)),
    "no tensor": lambda ns: ns.func.grad(lambda x: 3.0)(vector(ns)),
    "no such argument": lambda ns: ns.func.grad(lambda x: x.sum(), 1)(vector(ns)),
    "integers": lambda ns: ns.func.grad(lambda x: x.sum() * 1.0)(ns.tensor([1, 2])),
    "aux missing": lambda ns: ns.func.grad(lambda x: x.sum(), has_aux=True)(vector(ns)),
    "cotangents of another form": lambda ns: ns.func.vjp(lambda x: (x, x), vector(ns))[1](
        vector(ns)
    ),
    "a leaf written in place": lambda ns: ns.func.grad(lambda x: x.mul_(2).sum())(vector(ns)),
    "tangents of another shape": lambda ns: ns.func.jvp(base, (vector(ns),), (matrix(ns),)),
    "tangents of another form": lambda ns: ns.func.jvp(base, (vector(ns),), ()),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_pytorch_refuses_is_refused(name: str, torch: ModuleType) -> None:
    if name == "a leaf written in place":  # PyTorch lets it write past the transform
        with pytest.raises(RuntimeError, match="leaf"):
            WRONG[name](eg)
    else:
        refuse(WRONG[name], torch)


def test_gradients_do_not_accumulate_anywhere() -> None:
    x = leaf(eg, V)
    eg.func.grad(lambda x: (x * x).sum())(x)
    eg.func.jacrev(base)(x)
    assert x.grad is None


# -- forward mode -------------------------------------------------------------------------------

FORWARD = {
    "one": lambda ns: ns.func.jvp(base, (vector(ns),), (vector(ns) * 2,)),
    "several": lambda ns: ns.func.jvp(
        lambda x, y: (x * y, x.sum() + y.sum()), (vector(ns), vector(ns) * 2),
        (vector(ns), vector(ns) * 3),
    ),
    "trees": lambda ns: ns.func.jvp(
        lambda p: {"out": p[0] * p[1]["w"]}, ([vector(ns), {"w": vector(ns) * 2}],),
        ([vector(ns), {"w": vector(ns)}],),
    ),
    "with aux": lambda ns: ns.func.jvp(
        lambda x: (x * x, x.exp()), (vector(ns),), (vector(ns),), has_aux=True
    ),
    "constant": lambda ns: ns.func.jvp(lambda x: vector(ns) * 2, (vector(ns),), (vector(ns),)),
    "identity": lambda ns: ns.func.jvp(lambda x: x, (vector(ns),), (vector(ns) * 2,)),
    "detached part": lambda ns: ns.func.jvp(
        lambda x: x * x.detach(), (vector(ns),), (vector(ns) * 2,)
    ),
    "integer part": lambda ns: ns.func.jvp(
        lambda x: x * x.argmax(), (vector(ns),), (vector(ns) * 2,)
    ),
    "a write to the argument": lambda ns: (
        lambda x: (ns.func.jvp(lambda x: x.mul_(2).sin(), (x,), (vector(ns),)), x)
    )(vector(ns)),
    "views and writes": lambda ns: ns.func.jvp(
        lambda x: (lambda y: (y[1:].mul_(x[0]), y * y)[1])(x * 3), (vector(ns),), (vector(ns),)
    ),
    "linearize": lambda ns: (lambda out, push: (out, push(vector(ns) * 2), push(vector(ns) * 3)))(
        *ns.func.linearize(base, vector(ns))
    ),
    "linearize several": lambda ns: (
        lambda out, push: (out, push(vector(ns) * 2, vector(ns) * 3))
    )(*ns.func.linearize(lambda x, y: (x * y, x.sin()), vector(ns), vector(ns) * 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", FORWARD)
def test_forward_mode(name: str, torch: ModuleType) -> None:
    agree(FORWARD[name], torch)


def test_linearize_computes_what_it_can_once() -> None:
    calls: list[int] = []

    def function(x: Any) -> Any:
        calls.append(1)
        return x.exp() * x

    _, push = eg.func.linearize(function, vector(eg))
    push(vector(eg))
    push(vector(eg))
    assert len(calls) == 1


# -- jacobians ----------------------------------------------------------------------------------


def several(x: Any, y: Any) -> Any:
    return {"a": x.reshape(-1, 1) * y[:2], "b": (x.sum() * y).sin()}


@pytest.mark.parametrize("transform", ["jacrev", "jacfwd"])
@pytest.mark.parametrize("argnums", [0, 1, (0,), (1, 0)])
def test_jacobians_of_trees(transform: str, argnums: Any, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        return getattr(ns.func, transform)(several, argnums)(vector(ns), matrix(ns)[0])

    agree(program, torch)


JACOBIANS = {
    "of a number": lambda ns, jac: jac(lambda x: (x * x).sum())(vector(ns)),
    "by a number": lambda ns, jac: jac(lambda x: x * vector(ns))(fixed(ns, 2.0)),
    "of a matrix": lambda ns, jac: jac(lambda x: x @ x)(matrix(ns)),
    "by a dict": lambda ns, jac: jac(lambda p: p["x"] * p["y"])(
        {"x": vector(ns), "y": vector(ns) * 2}
    ),
    "with aux": lambda ns, jac: jac(lambda x: (x * x, x.exp()), has_aux=True)(vector(ns)),
    "constant": lambda ns, jac: jac(lambda x: vector(ns))(vector(ns)),
    "tuple results": lambda ns, jac: jac(lambda x: (x, (x.sin(), x[0])))(vector(ns)),
}


@pytest.mark.parametrize("transform", ["jacrev", "jacfwd"])
@pytest.mark.parametrize("name", JACOBIANS)
def test_jacobians(transform: str, name: str, torch: ModuleType) -> None:
    agree(lambda ns: JACOBIANS[name](ns, getattr(ns.func, transform)), torch)


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 100])
def test_jacrev_in_chunks(chunk_size: int, torch: ModuleType) -> None:
    agree(lambda ns: ns.func.jacrev(base, chunk_size=chunk_size)(vector(ns)), torch)


def test_hessian_of_several_arguments(torch: ModuleType) -> None:
    agree(
        lambda ns: ns.func.hessian(lambda x, y: (x * y).sin().sum() * x[0], argnums=(0, 1))(
            vector(ns), vector(ns) * 2
        ),
        torch,
    )


# -- with the rest of the engine ----------------------------------------------------------------

INSIDE: dict[str, Callable[[Any, Any], Any]] = {}


def inside(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    INSIDE[function.__name__] = function
    return function


@inside
def part_without_gradients(ns: Any, x: Any) -> Any:
    with ns.no_grad():
        scale = x.exp()
    return x * scale


@inside
def detached_part(ns: Any, x: Any) -> Any:
    return x * x.detach().exp()


@inside
def gradients_on_again(ns: Any, x: Any) -> Any:
    with ns.no_grad(), ns.enable_grad():
        return x.exp() * x


@inside
def gradient_of_a_closure(ns: Any, x: Any) -> Any:
    return x * ns.func.grad(lambda y: (y**3 * x).sum())(x)


REVERSE = ["grad", "vjp", "vmap", "jacrev"]


@pytest.mark.parametrize("name", REVERSE)
@pytest.mark.parametrize("function", INSIDE)
def test_modes_inside(function: str, name: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, V)
        out = TRANSFORMS[name](ns, lambda x: INSIDE[function](ns, x))(x)
        told = out.requires_grad
        return out, told, ns.autograd.grad(out.sum(), x) if told else None

    agree(program, torch)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_modes_outside(name: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        with ns.no_grad():
            out = TRANSFORMS[name](ns, base)(leaf(ns, V))
        return out, out.requires_grad

    agree(program, torch)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_hooks_inside(name: str) -> None:
    seen: list[Any] = []

    def hooked(x: Any) -> Any:
        y = x * x
        if y.requires_grad:
            y.register_hook(lambda g: seen.append(tuple(g.shape)) or g * 1)
        return y.sin()

    expected = TRANSFORMS[name](eg, lambda x: (x * x).sin())(vector(eg))
    assert_same(plain(TRANSFORMS[name](eg, hooked)(vector(eg))), plain(expected))
    if name in ("grad", "vjp", "jacrev"):
        assert seen


@pytest.mark.parametrize("name", TRANSFORMS)
def test_checkpoints_inside(name: str) -> None:
    def parts(x: Any) -> Any:
        return checkpoint(base, checkpoint(base, x))

    expected = TRANSFORMS[name](eg, lambda x: base(base(x)))(vector(eg))
    assert_same(plain(TRANSFORMS[name](eg, parts)(vector(eg))), plain(expected), 1e-8)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_backward_inside(name: str) -> None:
    """``.backward()`` of a private leaf, in a function that is transformed."""

    def penalised(x: Any) -> Any:
        y = x.detach().requires_grad_()
        (y**3).sum().backward()
        return x * y.grad

    expected = TRANSFORMS[name](eg, lambda x: x * 3 * x.detach() ** 2)(vector(eg))
    assert_same(plain(TRANSFORMS[name](eg, penalised)(vector(eg))), plain(expected))


def test_private_leaves_stay_private() -> None:
    c = vector(eg)
    out = eg.vmap(lambda t: eg.func.grad(lambda c: (c * c * t).sum())(c))(eg.ones(2, 3))
    assert not out.requires_grad
    assert_same(plain(out[0]), plain(2 * c))


# -- modules ------------------------------------------------------------------------------------


class Affine:
    """The least a module needs to be called with other parameters."""

    def __init__(self, w: Any, b: Any) -> None:
        self._parameters = {"w": w, "b": b}
        self._buffers: dict[str, Any] = {}

    def named_parameters(self, remove_duplicate: bool = True) -> Any:
        return list(self._parameters.items())

    def named_buffers(self, remove_duplicate: bool = True) -> Any:
        return list(self._buffers.items())

    def __call__(self, x: Any, scale: float = 1.0) -> Any:
        return (x @ self._parameters["w"] + self._parameters["b"]) * scale


def test_functional_call_leaves_the_module_alone() -> None:
    w, b = leaf(eg, M), leaf(eg, V)
    module = Affine(w, b)
    x = vector(eg)
    out = eg.func.functional_call(module, {"w": w.detach() * 2}, (x,), {"scale": 3.0})
    assert_same(plain(out), plain((x @ (w * 2) + b) * 3))
    assert module._parameters == {"w": w, "b": b}
    with pytest.raises(KeyError, match="nothing"):
        eg.func.functional_call(module, {"w": w * 2, "nothing": w}, (x,))
    assert module._parameters == {"w": w, "b": b}
    with pytest.raises(RuntimeError, match="Missing keys"):
        eg.func.functional_call(module, {"w": w}, (x,), strict=True)


def test_functional_call_of_layers(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(0)
        model = ns.nn.Sequential(ns.nn.Linear(3, 3), ns.nn.Tanh(), ns.nn.Linear(3, 3)).double()
        model[2].weight = model[0].weight  # tied: one name stands for both
        before = [p.detach().clone() for p in model.parameters()]
        given = {"0.weight": matrix(ns), "2.bias": vector(ns)}

        def loss(given: Any) -> Any:
            return ns.func.functional_call(model, given, (vector(ns),)).sum()

        grads = ns.func.grad(loss)(given)
        unchanged = [bool((p == b).all()) for p, b in zip(model.parameters(), before, strict=True)]
        return loss(given), grads, unchanged, [p.grad for p in model.parameters()]

    agree(program, torch)


def test_gradients_and_ensembles_of_modules() -> None:
    models = [Affine(leaf(eg, M) * k, leaf(eg, V) * k) for k in (1, 2)]
    params, buffers = eg.func.stack_module_state(models)
    assert buffers == {}
    x = vector(eg)

    def call(params: Any, x: Any) -> Any:
        return eg.func.functional_call(models[0], params, (x,))

    out = eg.vmap(call, in_dims=(0, None))(params, x)
    assert_same(plain(out), plain(eg.stack([m(x) for m in models])))
    grads = eg.vmap(eg.func.grad(lambda p, x: call(p, x).sum()), in_dims=(0, None))(params, x)
    assert {name: tuple(g.shape) for name, g in grads.items()} == {"w": (2, 3, 3), "b": (2, 3)}
    assert all(isinstance(g, eg.Tensor) for g in tree_leaves(grads))


def test_per_example_gradients(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        w, xs, ys = matrix(ns), matrix(ns)[:2], matrix(ns)[1:] * 2

        def loss(w: Any, x: Any, y: Any) -> Any:
            return (((x @ w).tanh() - y) ** 2).sum()

        return ns.vmap(ns.func.grad(loss), in_dims=(None, 0, 0))(w, xs, ys)

    agree(program, torch)


def test_equal_results_of_jvp_have_memory_of_their_own() -> None:
    x = eg.ones(3)
    for _ in range(3):
        (first, second), (moved, other) = eg.func.jvp(lambda a: (a.exp(), a.exp()), (x,), (x,))
        first.zero_()
        moved.zero_()
        assert (second != 0).all()
        assert (other != 0).all()
