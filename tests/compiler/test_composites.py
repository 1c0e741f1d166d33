"""Composites keep their names until they are lowered: attention whose result nobody reads still has
its kernels, and a traced model shows one equation for each composite and one for its derivative."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
import evergrad.nn.functional as F
from evergrad import nn
from evergrad.compiler.api import Compiled
from evergrad.compiler.passes.pipeline import Target, optimize
from evergrad.core.eager.fusion import eager_kernels
from evergrad.core.interpret import interpret
from evergrad.core.trace import Graph
from evergrad.core.traced_function import trace
from evergrad.utils.checkpoint import checkpoint

from .steps import assert_alike, programs_of
from .test_attention import labels, leaves, normal

sdpa = F.scaled_dot_product_attention
Form = Callable[..., Any]

SMALL = (2, 4, 70, 16)
LARGE = (8, 8, 512, 64)
# What gradients of the large size may take beside arguments and results: the result of attention,
# which nobody else reads. Scores and weights would take 200 MiB.
ARENA = 10 << 20
# Where gradients that nobody wants, or a cotangent, have to be in memory as well.
MORE = 25 << 20


def assert_close(found: Any, expected: Any) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype is theirs.dtype
        ours, theirs = ours.detach().numpy(), theirs.detach().numpy()
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


# -- gradients of attention without its result --------------------------------------------------
# Each gives gradients for queries, keys, values and a cotangent (or weights), and nothing else.


def all_three(q: Any, k: Any, v: Any, g: Any) -> Any:
    return eg.autograd.grad(sdpa(q, k, v), [q, k, v], g)


def linear_loss(q: Any, k: Any, v: Any, g: Any) -> Any:
    return eg.autograd.grad((sdpa(q, k, v) * g).sum(), [q, k, v])


def only_dq(q: Any, k: Any, v: Any, g: Any) -> Any:
    return eg.autograd.grad(sdpa(q, k, v), [q], g)


def only_dv(q: Any, k: Any, v: Any, g: Any) -> Any:
    return eg.autograd.grad(sdpa(q, k, v), [v], g)


def cotangent_of_ones(q: Any, k: Any, v: Any, g: Any) -> Any:
    y = sdpa(q, k, v)
    return eg.autograd.grad(y, [q, k, v], eg.ones_like(y))


def sum_loss(q: Any, k: Any, v: Any, g: Any) -> Any:
    return eg.autograd.grad(sdpa(q, k, v).sum(), [q, k, v])


def with_mask(q: Any, k: Any, v: Any, g: Any) -> Any:
    mask = eg.arange(k.shape[-2]) % 5 > 0
    return eg.autograd.grad(sdpa(q, k, v, attn_mask=mask), [q, k, v], g)


def with_bias(q: Any, k: Any, v: Any, g: Any) -> Any:
    bias = eg.linspace(-1, 1, k.shape[-2])
    return eg.autograd.grad(sdpa(q, k, v, attn_mask=bias), [q, k, v], g)


def causal(q: Any, k: Any, v: Any, g: Any) -> Any:
    return eg.autograd.grad(sdpa(q, k, v, is_causal=True), [q, k, v], g)


def shared_heads(q: Any, k: Any, v: Any, g: Any) -> Any:
    k, v = k[:, ::2], v[:, ::2]
    y = sdpa(q, k, v, is_causal=True, enable_gqa=True)
    return eg.autograd.grad(y, [q, k, v], g)


def by_vjp(q: Any, k: Any, v: Any, g: Any) -> Any:
    _, pull = eg.func.vjp(sdpa, q, k, v)
    return pull(g)


def by_grad_of_a_loss(q: Any, k: Any, v: Any, g: Any) -> Any:
    return eg.func.grad(lambda q, k, v: (sdpa(q, k, v) * g).sum(), argnums=(0, 1, 2))(q, k, v)


def result_used_twice(q: Any, k: Any, v: Any, g: Any) -> Any:
    y = sdpa(q, k, v)
    return eg.autograd.grad((y * g).sum() + (3 * y).mean(), [q, k, v])


def heads_in_rows(q: Any, k: Any, v: Any, g: Any) -> Any:
    y = sdpa(q, k, v).transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)
    return eg.autograd.grad((y * g.transpose(1, 2).reshape(y.shape)).sum(), [q, k, v])


def checkpointed(q: Any, k: Any, v: Any, g: Any) -> Any:
    y = checkpoint(sdpa, q, k, v, use_reentrant=False)
    return eg.autograd.grad(y, [q, k, v], g)


def dropped(q: Any, k: Any, v: Any, g: Any) -> Any:
    return eg.autograd.grad(sdpa(q, k, v, dropout_p=0.25), [q, k, v], g)


FORMS = [
    all_three, linear_loss, only_dq, only_dv, cotangent_of_ones, sum_loss, with_mask, with_bias,
    causal, shared_heads, by_vjp, by_grad_of_a_loss, result_used_twice, heads_in_rows, checkpointed,
    dropped,
]  # fmt: skip
LEAN = [
    all_three, linear_loss, with_mask, with_bias, causal, by_vjp, by_grad_of_a_loss, checkpointed,
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_gradients_alone_use_the_attention_kernels(form: Form) -> None:
    given = [
        *leaves(*(normal(*SMALL, seed=n) for n in range(3))),
        eg.tensor(normal(*SMALL, seed=3)),
    ]
    compiled = eg.compile(form)
    eg.manual_seed(1)
    found = compiled(*given)
    assert labels(compiled).count("attention") == 1
    assert labels(compiled).count("attention_backward") == 1
    assert not any("matmul" in label for label in labels(compiled))
    eg.manual_seed(1)
    assert_close(found, form(*given))


@pytest.mark.parametrize("form", FORMS)
def test_gradients_alone_need_little_memory(form: Form) -> None:
    given = [*leaves(*(np.zeros(LARGE, np.float32) for _ in range(3))), eg.zeros(LARGE)]
    plan = eg.compile(form).plan(*given)
    assert plan.peak < (ARENA if form in LEAN else MORE)


def test_backward_of_a_module_with_a_linear_loss() -> None:
    """``backward()`` in a step that does not give its loss."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(16, 48)

        def forward(self, x: Any) -> Any:
            b, t, _ = x.shape
            q, k, v = self.qkv(x).view(b, t, 3, 4, 4).permute(2, 0, 3, 1, 4)
            return sdpa(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, 16)

    eg.manual_seed(0)
    block = Block()
    x, g = (eg.tensor(normal(2, 40, 16, seed=n)) for n in range(2))

    def step(x: Any, g: Any) -> None:
        block.zero_grad()
        (block(x) * g).sum().backward()

    step(x, g)
    expected = [p.grad.clone() for p in block.parameters()]
    compiled = eg.compile(step)
    compiled(x, g)
    assert labels(compiled).count("attention_backward") == 1
    assert_close([p.grad for p in block.parameters()], expected)


@pytest.mark.parametrize(
    "shapes",
    [
        [(2, 3, 20, 8), (2, 1, 30, 8), (2, 1, 30, 8)],
        [(2, 3, 20, 8), (30, 8), (30, 8)],
        [(3, 1, 20, 8), (2, 30, 8), (3, 2, 30, 6)],
        [(20, 8), (2, 3, 30, 8), (3, 30, 8)],
    ],
    ids=str,
)
def test_batches_that_are_expanded(shapes: list[tuple[int, ...]]) -> None:
    """Gradients are summed up over them."""

    def form(q: Any, k: Any, v: Any) -> Any:
        y = sdpa(q, k, v, is_causal=True)
        return eg.autograd.grad((y * eg.linspace(-1, 1, y.numel()).view(y.shape)).sum(), [q, k, v])

    given = leaves(*(normal(*shape, seed=n) for n, shape in enumerate(shapes)))
    compiled = eg.compile(form)
    found = compiled(*given)
    assert labels(compiled).count("attention_backward") == 1
    assert_close(found, form(*given))


def test_one_attention_serves_several_cotangents() -> None:
    def form(q: Any, k: Any, v: Any, g: Any) -> Any:
        y = sdpa(q, k, v)
        first = eg.autograd.grad(y, [q, v], g, retain_graph=True)
        return *first, *eg.autograd.grad(y, [k], g * g)

    given = [
        *leaves(*(normal(*SMALL, seed=n) for n in range(3))),
        eg.tensor(normal(*SMALL, seed=3)),
    ]
    compiled = eg.compile(form)
    assert_close(compiled(*given), form(*given))
    assert labels(compiled).count("attention") == 1
    assert labels(compiled).count("attention_backward") == 2


# -- names in a traced graph --------------------------------------------------------------------


class Model(nn.Module):
    """One of each composite."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.pool = nn.MaxPool2d(2)
        self.batch = nn.BatchNorm2d(4)
        self.group = nn.GroupNorm(2, 4)
        self.layer = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.rms = nn.RMSNorm(16)
        self.lstm = nn.LSTM(16, 16, batch_first=True)
        self.out = nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        x = self.group(self.batch(self.pool(self.conv(x))))
        x = x.reshape(x.shape[0], -1, 16)
        x = x + sdpa(*self.qkv(self.layer(x)).chunk(3, -1))
        x, _ = self.lstm(self.rms(x))
        return self.out(F.softmax(x, -1)[:, -1])


NAMES = [
    "scaled_dot_product_attention", "layer_norm", "group_norm", "batch_norm", "rms_norm",
    "cross_entropy", "softmax", "max_pool", "lstm_layer",
]  # fmt: skip
# What they are made of.
PARTS = ["mean", "rsqrt", "exp", "log", "amax", "gather", "scatter_sum", "max_pool_places", "tanh"]


def test_a_traced_model_shows_each_composite_and_its_derivative() -> None:
    model = Model()
    parameters = list(model.parameters())
    x, y = eg.tensor(normal(2, 1, 10, 10)), eg.tensor([1, 2])

    def step(x: Any, y: Any) -> Any:
        return eg.autograd.grad(F.cross_entropy(model(x), y), parameters)

    graph = trace(step, [x._type, y._type]).graph
    names = Counter(eqn.op.name for eqn in graph.equations)
    for name in NAMES:
        assert names[name] == names[f"{name}_backward"] == 1, name
    assert not any(names[name] for name in PARTS)
    lowered = Counter(eqn.op.name for eqn in graph.inlined().equations)
    assert all(eqn.inner is None for eqn in graph.inlined().equations)
    assert lowered["mean"] and lowered["rsqrt"] and lowered["amax"] and lowered["scatter_sum"]
    assert_close(eg.compile(step)(x, y), step(x, y))


def test_a_captured_step_has_its_names_until_it_is_lowered() -> None:
    model = Model()
    optimizer = eg.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    seen: dict[str, Counter[str]] = {}

    def observe(name: str, graph: Graph) -> None:
        seen[name] = Counter(eqn.op.name for eqn in graph.equations)

    batch = [eg.tensor(normal(2, 1, 10, 10)), eg.tensor([1, 2])]
    captured = Compiled(step).compiled_for(tuple(batch), {})[0].captured
    optimize(captured.graph, Target.STEP, observe)
    before, after = seen["traced"], seen["lower_composites"]
    for name in NAMES:
        assert before[name] == before[f"{name}_backward"] == 1, name
    kept = {"scaled_dot_product_attention", "softmax", "max_pool", "lstm_layer"}
    for name in set(NAMES) - kept:
        assert not after[name] and not after[f"{name}_backward"], name
    assert after["scaled_dot_product_attention_backward"] == 1


def test_equal_layers_share_their_inner_graph() -> None:
    layers = [nn.LayerNorm(8) for _ in range(3)]

    def stack(x: Any) -> Any:
        for layer in layers:
            x = layer(x)
        return x

    graph = trace(stack, [eg.zeros(4, 8)._type]).graph
    bodies = [eqn.attrs["body"] for eqn in graph.equations if eqn.op.name == "layer_norm"]
    assert len(bodies) == 3 and len(set(map(id, bodies))) == 1


# -- values and derivatives ---------------------------------------------------------------------


def layer(x: Any) -> Any:
    return F.layer_norm(x, (6,), eg.linspace(1, 2, 6, dtype=x.dtype))


def group(x: Any) -> Any:
    return F.group_norm(x[..., None], 2, eg.linspace(1, 2, 6, dtype=x.dtype))


def batch(x: Any) -> Any:
    return F.batch_norm(x, None, None, eg.linspace(1, 2, 6, dtype=x.dtype), training=True)


def rms(x: Any) -> Any:
    return F.rms_norm(x, (6,))


def entropy(x: Any) -> Any:
    return F.cross_entropy(x, eg.tensor([0, 3, 5, -100, 1]))


def softmaxed(x: Any) -> Any:
    return F.softmax(x, -1) * F.log_softmax(x, 0)


def pooled(x: Any) -> Any:
    return F.max_pool1d(x, 2)


def attended(x: Any) -> Any:
    return sdpa(x, x.sin(), x.cos(), is_causal=True)


FUNCTIONS = [layer, group, batch, rms, entropy, softmaxed, pooled, attended]


def point() -> Any:
    return eg.tensor(np.random.default_rng(3).standard_normal((5, 6)), requires_grad=True)


def curved(function: Form) -> Form:
    return lambda x: (function(x) * 3).sin().sum()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_of_any_order(function: Form) -> None:
    def orders(x: Any) -> Any:
        (first,) = eg.autograd.grad(curved(function)(x), [x], create_graph=True)
        (second,) = eg.autograd.grad((first * first.cos()).sum(), [x], create_graph=True)
        (third,) = eg.autograd.grad((second * second).sum(), [x])
        return first.detach(), second.detach(), third

    found, expected = eg.compile(orders)(point()), orders(point())
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_transforms_inside_and_around(function: Form) -> None:
    loss, x = curved(function), point().detach()
    tangent = x.flip(0)
    many = eg.stack([x, tangent])

    def all_of_them(x: Any, tangent: Any, many: Any) -> Any:
        return (
            eg.func.jvp(loss, (x,), (tangent,)),
            eg.func.vmap(eg.func.grad(loss))(many),
            eg.func.grad(lambda x: eg.func.vmap(loss)(eg.stack([x, x * 2])).sum())(x),
            eg.func.hessian(loss)(x),
            checkpoint(loss, x),
        )

    assert_alike(eg.compile(all_of_them)(x, tangent, many), all_of_them(x, tangent, many), 1e-9)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_asked_for_from_outside(function: Form) -> None:
    """The function is cut from its derivative; gradients of gradients follow."""
    compiled = eg.compile(curved(function))
    results = []
    for loss in (compiled, curved(function)):
        x = point()
        (first,) = eg.autograd.grad(loss(x), [x], create_graph=True)
        results.append([first.detach(), *eg.autograd.grad(first.square().sum(), [x])])
    assert_alike(*results, 1e-9)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_interpreted_graphs(function: Form) -> None:
    def gradients(x: Any) -> Any:
        return eg.func.grad(curved(function))(x)

    x = point().detach()
    graph = trace(gradients, [x._type]).graph
    (found,) = interpret(graph, x)
    assert_alike(found, gradients(x), 1e-12)
    (inlined,) = interpret(graph.inlined(), x)
    assert_alike(inlined, gradients(x), 1e-12)
    composites = [eqn for eqn in graph.equations if eqn.inner is not None]
    for eqn in composites:  # what a row's NumPy evaluation gives
        given = [eg.tensor(normal(*a.type.shape)).to(a.type.dtype) for a in eqn.args]
        expected = interpret(eqn.inner, *given)
        run = eqn.specialization.run(*[t.numpy() for t in given])
        for ours, theirs in zip(run if isinstance(run, tuple) else (run,), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs.numpy())


# -- what composites must leave as it is --------------------------------------------------------


def test_autocast_rounds_what_it_rounds_without_composites() -> None:
    weight = eg.tensor(normal(8, 8))

    def step(x: Any) -> Any:
        with eg.autocast("cpu", dtype=eg.bfloat16):
            y = F.layer_norm(x @ weight, (8,))
            y = sdpa(y, y, y)
            loss = F.cross_entropy(y, eg.arange(8))
        return loss.detach(), *eg.autograd.grad(loss, [x])

    (x,) = leaves(normal(8, 8, seed=1))
    found, expected = eg.compile(step)(x), step(x)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype is theirs.dtype
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-2, atol=2e-3)


def test_attributes_known_at_run_time() -> None:
    @eg.compile
    def run(x: Any, eps: float, scale: float) -> Any:
        y = F.layer_norm(x, (4,), eps=eps)
        return sdpa(y, y, y, scale=scale)

    x = eg.tensor(normal(3, 4))
    for eps, scale in ((1e-5, 0.5), (1.0, 0.125)):
        y = F.layer_norm(x, (4,), eps=eps)
        assert_close([run(x, eps, scale)], [sdpa(y, y, y, scale=scale)])
    assert len(programs_of(run)) == 1


def test_arguments_overwritten_after_the_call() -> None:
    """A value of a trace is immutable: what a composite read is still there for its derivative."""

    def step(x: Any, weight: Any) -> Any:
        h = x * 1
        y = F.layer_norm(h, (6,), weight)
        h += 1
        return eg.autograd.grad((y * y * h).sum(), [x, weight])

    given = leaves(normal(3, 6), normal(6, seed=1))
    found = eg.compile(step)(*given)
    with eg.no_grad():
        x, weight = (g.double() for g in given)
    x.requires_grad_(), weight.requires_grad_()
    y = F.layer_norm(x, (6,), weight)
    expected = eg.autograd.grad((y * y * (x + 1)).sum(), [x, weight])
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-5, atol=2e-5)


def test_what_is_not_chosen_has_no_gradient_behind_a_composite() -> None:
    """An infinite slope before a norm, and one inside of it, whose elements are left out."""

    def step(x: Any) -> Any:
        y = eg.where(eg.tensor([[True], [False]]), F.rms_norm(x.sqrt(), (3,), eps=0.0), 0)
        return eg.autograd.grad(y.sum(), [x])

    (x,) = leaves(np.array([[1, 2, 3], [0, 0, 0]], np.float32))
    (found,) = eg.compile(step)(x)
    (expected,) = step(x)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    assert not found.numpy()[1].any()


def test_a_gradient_of_a_mask() -> None:
    """The kernels do not give it: all of attention is written out, and computed once."""

    def step(q: Any, k: Any, v: Any, bias: Any) -> Any:
        y = sdpa(q, k, v, attn_mask=bias)
        return y.detach(), *eg.autograd.grad(y.square().sum(), [q, k, v, bias])

    given = leaves(*(normal(2, 20, 8, seed=n) for n in range(3)), normal(20, 20, seed=4))
    compiled = eg.compile(step)
    assert_close(compiled(*given), step(*given))
    assert not any("attention" in label for label in labels(compiled))


def test_not_finite_numbers_are_told_with_the_composite() -> None:
    compiled = eg.compile(lambda x: F.layer_norm(x, (4,), eps=-1.0).sum(), check_finite=True)
    with pytest.raises(FloatingPointError, match="layer_norm"):
        compiled(eg.zeros(2, 4))


def test_rows_that_autocast_lowers_inside_a_composite() -> None:
    """A function that autocast does not guard as a whole is traced op by op while it is on."""
    from evergrad.ops.composite.attention import scaled_dot_product_attention

    def step(x: Any) -> Any:
        with eg.autocast("cpu", dtype=eg.bfloat16):
            return scaled_dot_product_attention(x, x, x)

    x = eg.tensor(normal(40, 8))
    found = eg.compile(step)(x)
    assert found.dtype is eg.float32
    assert (found == found.bfloat16().float()).all()  # the last product has been rounded
    np.testing.assert_allclose(found.numpy(), step(x).numpy(), rtol=2e-2, atol=2e-2)


def test_a_kernel_of_eager_mode_saves_what_its_derivative_reads() -> None:
    """A bias may be overwritten between the forward and the backward pass."""
    x, weight, bias = leaves(normal(8, 64), normal(64, seed=1), normal(64, seed=2))
    results = []
    for enabled in (True, False):
        with eager_kernels(enabled, least=1):
            y = F.layer_norm(x, (64,), weight, bias)
            with eg.no_grad():
                bias += 1
            results.append(eg.autograd.grad(y.square().sum(), [x, weight]))
            with eg.no_grad():
                bias -= 1
    assert_close(*results)
