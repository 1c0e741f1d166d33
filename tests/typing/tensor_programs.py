"""Small programs on tensors without mistakes: type checkers say nothing, and they run."""

# Calls of modules and of transformed functions give Any, as in PyTorch.
# mypy: warn-return-any=False

from __future__ import annotations

import math

import numpy as np

import evergrad as eg
import evergrad.nn.functional as F
from evergrad import Tensor, autograd, distributions, func, memory, nn
from evergrad.autograd import Function
from evergrad.autograd.function import FunctionCtx


class Cube(Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        result: Tensor = grad * 3 * x**2
        return result


class Scaled(Function):
    @staticmethod
    def forward(x: Tensor, factor: float) -> Tensor:
        return x * factor

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.factor, None

    @staticmethod
    def jvp(ctx: FunctionCtx, tangent: Tensor, _: None) -> Tensor:
        return tangent * ctx.factor


def custom_function() -> Tensor:
    x = eg.randn(3, requires_grad=True)
    y: Tensor = Cube.apply(x)
    y.sum().backward()
    assert x.grad is not None
    grad: Tensor = x.grad
    (again,) = autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
    return grad - again


def transforms_of_functions() -> Tensor:
    def f(x: Tensor) -> Tensor:
        return (x**2).sum()

    x = eg.randn(3)
    gradient: Tensor = func.grad(f)(x)
    value_gradient, value = func.grad_and_value(f)(x)
    hessian: Tensor = func.hessian(f)(x)
    jacobian = func.jacrev(lambda t: t.sin())(x)
    _, tangent = func.jvp(f, (x,), (eg.ones(3),))
    _, pull = func.vjp(f, x)
    (pulled,) = pull(eg.tensor(1.0))
    batched: Tensor = func.vmap(f)(eg.randn(4, 3))
    rows = func.vmap(func.grad(f), in_dims=0)(eg.randn(4, 3))
    total = gradient + value + value_gradient + hessian.diagonal() + jacobian.diagonal() + tangent
    return total + pulled + batched.mean() + rows.mean(0)


def functional_models() -> Tensor:
    model = nn.Linear(3, 1)
    params = dict(model.named_parameters())

    def loss(params: dict[str, Tensor], x: Tensor) -> Tensor:
        return func.functional_call(model, params, (x,)).square().mean()

    grads = func.grad(loss)(params, eg.randn(2, 3))
    return grads["weight"].sum()


def random_variables() -> Tensor:
    normal = distributions.Normal(eg.zeros(3), eg.ones(3))
    draw = normal.rsample((2,))
    logits = eg.randn(4, requires_grad=True)
    policy = distributions.Categorical(logits=logits)
    action = policy.sample()
    loss = -policy.log_prob(action) - 0.01 * policy.entropy()
    loss.backward()
    posterior = distributions.Normal(0.5, 2.0)
    kl = distributions.kl_divergence(normal, posterior).sum()
    mixture = distributions.MixtureSameFamily(
        distributions.Categorical(probs=eg.ones(2) / 2),
        distributions.Normal(eg.tensor([0.0, 1.0]), eg.ones(2)),
    )
    beta = distributions.Beta(2.0, 3.0).sample((3,))
    return normal.log_prob(draw).sum() + kl + mixture.log_prob(eg.tensor(0.3)) + beta.sum()


def views_and_indexing() -> Tensor:
    x = eg.arange(24.0).view(2, 3, 4)
    a = x[0], x[-1, 1:], x[..., 0], x[:, None, ::2], x[x > 3], x[eg.tensor([0, 1])]
    b = x.permute(2, 0, 1).contiguous().view(4, -1).t()
    c = x.flatten(1).unflatten(1, (3, 4)).unsqueeze(-1).squeeze(-1).transpose(0, 1)
    rows, columns = b.shape
    first, *others = x.unbind(0)
    left, right = x.chunk(2, dim=-1)
    parts: tuple[Tensor, ...] = x.split([1, 2], dim=1)
    x[0, 1] = 5
    x[:, :, 0] += 1
    x[x < 2] = eg.tensor(0.0)
    y = x.movedim(0, -1).expand(3, 4, 2).clone()
    y[1:, [0, 2]] = y.new_zeros(2, 2, 2)
    z = x.as_strided((2, 2), (12, 1)).diagonal()
    grid = eg.meshgrid(eg.arange(2), eg.arange(3), indexing="ij")[0].float()
    taken = eg.take_along_dim(left, right.argsort(-1), -1).gather(
        -1, eg.zeros(2, 3, 1, dtype=eg.long)
    )
    shape: eg.Size = x.shape
    sizes: list[int] = list(shape[1:]) + [shape.numel(), rows, columns, len(others), len(a)]
    return z.sum() + grid.sum() + taken.sum() + sum(sizes) + first.sum() + parts[0].sum() + c.sum()


def in_place() -> Tensor:
    x = eg.zeros(4)
    x.add_(1).mul_(eg.tensor(2.0)).sub_(0.5, alpha=2).div_(3).neg_().abs_().clamp_(max=1.0)
    x.fill_(2).copy_(eg.arange(4)).masked_fill_(x > 2, 0.0).index_add_(
        0, eg.tensor([0]), eg.ones(1)
    )
    x += 1
    x *= eg.ones(4)
    x -= x.mean()
    x /= 2
    x **= 2
    x.uniform_(-1, 1).normal_(0.0, 1.0).zero_()
    nn.init.kaiming_uniform_(eg.empty(2, 3), a=math.sqrt(5))
    nn.init.normal_(x, std=0.02)
    return x


def dtypes() -> dict[str, eg.dtype]:
    x = eg.tensor([1, 2, 3])
    found = {
        "float": x.float().dtype, "half": x.half().dtype, "to": x.to(eg.float64).dtype,
        "double": x.double().dtype, "bool": x.bool().dtype, "type": x.type(eg.int16).dtype,
        "like": x.to(eg.zeros(1)).dtype, "complex": eg.complex(x.float(), x.float()).dtype,
        "result": eg.result_type(x, 1.0), "default": eg.get_default_dtype(),
    }  # fmt: skip
    largest = eg.finfo(eg.float32).max + eg.iinfo(eg.int32).max
    assert largest > 0 and x.dtype.is_floating_point is False and eg.can_cast(eg.int32, eg.float32)
    y = x.to(device="cpu", dtype=eg.bfloat16, non_blocking=True, copy=True)
    return found | {"y": y.dtype}


def numbers() -> float:
    x = eg.tensor(3.0)
    n = int(x) + float(x) + x.item() + bool(x) + math.sqrt(x) + round(float(x), 2)
    values: list[list[float]] = eg.ones(2, 2).tolist()
    return n + values[0][0] + len(eg.ones(2)) + sum(float(v) for v in eg.ones(3))


def numpy_exchange() -> np.ndarray:
    x = eg.from_numpy(np.ones((2, 3), dtype=np.float32))
    y = eg.as_tensor(np.arange(3)) + eg.asarray([1, 2, 3])
    z = np.asarray(x) + x.detach().cpu().numpy()
    return z + np.sin(y.numpy())


def reductions() -> Tensor:
    x = eg.randn(3, 4)
    values, places = x.max(dim=1)
    result = x.min(dim=0, keepdim=True)
    total = x.sum() + x.sum(0).mean() + x.sum((0, 1)) + x.mean(dim=-1, keepdim=True).sum() + x.std()
    total = (
        total + x.var(dim=0, correction=0).sum() + x.norm() + x.norm(p=1, dim=-1).sum() + x.prod()
    )
    total = (
        total + x.median() + x.median(dim=0).values.sum() + x.logsumexp(-1).sum() + x.amax((0, 1))
    )
    top_values, top_places = x.topk(2)
    ordered, order = x.sort(dim=-1, descending=True)
    found, inverse, counts = eg.unique(places, return_inverse=True, return_counts=True)
    low, high = eg.aminmax(x)
    q = (
        x.quantile(0.5)
        + eg.histc(x, bins=4).sum()
        + eg.bincount(places).sum()
        + x.cumsum(-1)[0, -1]
    )
    return (
        total
        + q
        + values.sum()
        + result.values.sum()
        + result.indices.sum()
        + top_values.sum()
        + (
            top_places.sum()
            + ordered[0, 0]
            + order[0, 0]
            + found[0]
            + inverse[0]
            + counts[0]
            + low
            + high
        )
    )


def linear_algebra() -> Tensor:
    a = eg.randn(3, 3)
    spd = a @ a.mT + 3 * eg.eye(3)
    factor = eg.linalg.cholesky(spd)
    q, r = eg.linalg.qr(a)
    eigenvalues, vectors = eg.linalg.eigh(spd)
    solution = eg.linalg.solve(spd, eg.ones(3))
    sign, logdet = eg.linalg.slogdet(spd)
    u, s, vh = eg.linalg.svd(a, full_matrices=False)
    least = eg.linalg.lstsq(a, eg.ones(3, 1)).solution
    product = eg.einsum("ij,jk,kl->il", a, q, r) + eg.bmm(a[None], a[None])[0] + eg.addmm(a, q, r)
    return (
        product.trace()
        + factor.sum()
        + eigenvalues.sum()
        + vectors.sum()
        + solution.sum()
        + sign
        + (
            logdet
            + (u * s @ vh).sum()
            + least.sum()
            + eg.linalg.norm(a, ord="fro")
            + eg.linalg.det(a)
        )
    )


def modes() -> tuple[bool, bool]:
    @eg.no_grad()
    def evaluate(x: Tensor) -> Tensor:
        return x * 2

    @eg.inference_mode()
    def infer(x: Tensor) -> Tensor:
        return x + 1

    x = eg.ones(2, requires_grad=True)
    with eg.enable_grad(), eg.set_grad_enabled(True):
        y = x * 2
    with autograd.detect_anomaly():
        y.sum().backward()
    return evaluate(x).requires_grad, infer(x.detach()).requires_grad


def ledger() -> int:
    with memory.steady() as steady:
        for _ in range(3):
            _ = eg.ones(3) + 1
            steady.step()
    found: int = memory.stats()["live"]
    return found


def streams() -> Tensor:
    generator = eg.Generator().manual_seed(3)
    a = eg.randn(2, generator=generator) + eg.rand(2) + eg.randperm(2) + eg.normal(0.0, 1.0, (2,))
    state = eg.get_rng_state()
    eg.set_rng_state(state)
    eg.manual_seed(1)
    return a + eg.bernoulli(eg.full((2,), 0.5)) + eg.multinomial(eg.ones(3), 2, replacement=True)


def creation() -> list[Tensor]:
    like = eg.empty(2, 3)
    return [
        eg.zeros(2, 3), eg.ones((2, 3)), eg.full((2,), 7), eg.arange(3), eg.arange(0, 1, 0.25),
        eg.linspace(0, 1, 5), eg.logspace(0, 2, 3), eg.eye(3), eg.zeros_like(like),
        eg.rand_like(like),
        eg.full_like(like, 2), eg.full_like(like, 1j, dtype=eg.complex64), eg.empty_like(like),
        eg.tensor([[1.0, 2], [3, 4]], dtype=eg.float64, requires_grad=True), eg.tensor(True),
        eg.stack([like, like]), eg.cat((like, like), 1), eg.hstack([like, like]),
        like.new_full((2,), 1),
        eg.tril(like), eg.block_diag(like, like), eg.cartesian_prod(eg.arange(2), eg.arange(2)),
    ]  # fmt: skip


def comparisons(x: Tensor, y: Tensor) -> bool:
    close = eg.allclose(x, y, rtol=1e-4) or eg.equal(x, y)
    mask = (x == y) | (x != 0) & (x < y) | ~(x >= 1) ^ eg.isfinite(x)
    eg.testing.assert_close(x, x, rtol=0, atol=0)
    return close and bool(mask.any()) and x.isclose(y).all().item() is True


def arithmetic(x: Tensor) -> Tensor:
    y = (
        2 * x
        + x / 3
        - (1 - x) ** 2
        + 2**x
        + x % 2
        + x // 2
        + (-x).abs()
        + x.pow(2)
        + divmod(5, 2)[0]
    )
    y = (
        y
        + eg.exp(x).log()
        + eg.sin(x) * eg.cos(x)
        + eg.maximum(x, y)
        + eg.clamp(x, 0, 1)
        + eg.lerp(x, y, 0.5)
    )
    y = y + eg.sigmoid(x) + x.tanh() + F.softplus(x) + eg.erf(x) + eg.special.gammaln(x.abs() + 1)
    y = (
        y
        + eg.where(x > 0, x, -x)
        + eg.nan_to_num(x)
        + x.round(decimals=2)
        + eg.addcmul(x, x, y, value=0.1)
    )
    return (
        y
        + (x.int() & 1)
        + (x.int() << 1)
        + eg.atan2(x, y)
        + x.real
        + eg.heaviside(x, eg.tensor(0.5))
    )


def higher_order() -> Tensor:
    x = eg.linspace(0, 1, 5).requires_grad_()
    u = eg.sin(x)
    (du,) = autograd.grad(u.sum(), x, create_graph=True)
    (ddu,) = autograd.grad(du, x, grad_outputs=eg.ones_like(du), retain_graph=True)
    jacobian = autograd.functional.jacobian(lambda t: t**2, x.detach())
    return (ddu + u).abs().max() + jacobian.diagonal().sum()


def sparse_and_nested() -> Tensor:
    table = nn.Embedding(10, 3, sparse=True)
    table(eg.tensor([1, 2])).sum().backward()
    s = eg.sparse_coo_tensor(eg.tensor([[0, 1], [1, 0]]), eg.tensor([1.0, 2.0]), (2, 2))
    dense = (s @ eg.eye(2)) + s.to_dense()
    nested = eg.nested.nested_tensor([eg.ones(2, 3), eg.ones(4, 3)], layout=eg.jagged)
    return dense.sum() + nested.values().sum() + s.coalesce().values().sum()


def signals() -> Tensor:
    x = eg.randn(64)
    spectrum = eg.fft.rfft(x)
    back = eg.fft.irfft(spectrum, n=64)
    frames = eg.stft(x, n_fft=16, return_complex=True, window=eg.hann_window(16))
    y = eg.istft(frames, n_fft=16, window=eg.hann_window(16))
    return back.sum() + spectrum.abs().sum() + spectrum.real.sum() + y.sum() + frames.imag.sum()


def learned_rates() -> Tensor:
    def run(rate: Tensor) -> Tensor:
        w = eg.ones(2, requires_grad=True)
        for _ in range(2):
            (g,) = autograd.grad((w * w).sum(), w, create_graph=True)
            w = w - rate * g
        return w.sum()

    rate = eg.tensor(0.1, requires_grad=True)
    run(rate).backward()
    assert rate.grad is not None
    return rate.grad


def main() -> None:
    eg.manual_seed(0)
    for program in (
        custom_function,
        transforms_of_functions,
        functional_models,
        random_variables,
        views_and_indexing,
        in_place,
        dtypes,
        numbers,
        numpy_exchange,
        reductions,
        linear_algebra,
        modes,
        ledger,
        streams,
        creation,
        higher_order,
        sparse_and_nested,
        signals,
        learned_rates,
    ):
        program()
    comparisons(eg.ones(2), eg.ones(2))
    arithmetic(eg.rand(3) + 0.1)


if __name__ == "__main__":
    main()
