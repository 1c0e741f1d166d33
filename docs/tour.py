"""A tour of evergrad that runs: each step says what it shows and checks it.

    python docs/tour.py

Read it from top to bottom. It is also a test, so it cannot go stale.
"""

from __future__ import annotations

import numpy as np

import evergrad as eg
from evergrad import memory, nested, ragged
from evergrad.autograd import Function, audit, gradcheck
from evergrad.core.interpret import interpret
from evergrad.core.op import TABLE
from evergrad.core.traced_function import trace
from evergrad.func import grad, hessian, jvp, vmap
from evergrad.nn import functional as F
from evergrad.utils.checkpoint import checkpoint


def tensors_and_views() -> None:
    """A tensor is a view on a storage. Views allocate nothing and see each other's writes."""
    x = eg.arange(12.0).reshape(3, 4)
    before = memory.stats()["live"]
    row, corner, turned = x[1], x[:2, :2], x.t()
    assert memory.stats()["live"] == before
    corner += 100
    assert row[0] == 104 and turned[0, 1] == 104
    assert x.dtype is eg.float32 and (x > 50).dtype is eg.bool


def gradients() -> None:
    """Ask for a gradient, compute, walk back. Any order: a gradient is computed with ops too."""
    x = eg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (x**3).sum().backward()
    assert x.grad.tolist() == [3.0, 12.0, 27.0]

    y = (x**3).sum()
    (first,) = eg.autograd.grad(y, x, create_graph=True)
    (second,) = eg.autograd.grad(first.sum(), x)
    assert second.tolist() == [6.0, 12.0, 18.0]


def right_or_an_error() -> None:
    """Backward never uses a value that was overwritten. The error names both lines and the fix."""
    x = eg.ones(3, requires_grad=True)
    y = x.exp()
    y.data.zero_()
    try:
        y.sum().backward()
    except RuntimeError as error:
        assert "saved by" in str(error) and "overwritten by" in str(error)
    else:
        raise AssertionError("a wrong gradient was given")


def function_transforms() -> None:
    """``grad``, ``jvp`` and ``vmap`` take functions and give functions; they nest in any order."""

    def energy(x: eg.Tensor) -> eg.Tensor:
        return (x.sin() * x).sum()

    points = eg.linspace(0, 1, 6, dtype=eg.float64).reshape(2, 3)
    slopes = vmap(grad(energy))(points)
    assert slopes.shape == (2, 3)
    direction = eg.ones(3, dtype=eg.float64)
    _, along = jvp(grad(energy), (points[0],), (direction,))
    assert eg.allclose(along, hessian(energy)(points[0]) @ direction)


def one_row_per_op() -> None:
    """Everything about an op is in its row; what backward keeps is read off its derivative."""
    exp = TABLE["exp"]
    x = eg.ones(1000, requires_grad=True)
    before = memory.stats()["live"]
    y = x.exp()  # keeps its result, which is there anyway
    assert memory.stats()["live"] - before == y.nbytes
    assert exp.family == "elementwise" and y.grad_fn.name() == "ExpBackward0"


def programs_as_data() -> None:
    """A function traces to a flat list of typed equations; running them gives the same bits."""

    def f(a: eg.Tensor, b: eg.Tensor) -> eg.Tensor:
        c = a * b
        c[0] = 1.0  # an in-place write traces as written
        return c.tanh().sum()

    a, b = eg.randn(3, 2), eg.randn(3, 2)
    traced = trace(f, [a._type, b._type])
    traced.graph.check()
    (again,) = interpret(traced.graph, a, b)
    assert again.item() == f(a, b).item()
    print(traced.graph)


def your_own_function() -> None:
    """A custom function brings its own derivative, and it is used by every transform."""

    class Clip(Function):
        """Clamps forward, passes the gradient straight through."""

        @staticmethod
        def forward(ctx: object, x: eg.Tensor) -> eg.Tensor:
            return x.clamp(-1, 1)

        @staticmethod
        def backward(ctx: object, g: eg.Tensor) -> eg.Tensor:
            return g

    x = eg.tensor([-3.0, 0.5, 3.0])
    assert vmap(grad(lambda v: Clip.apply(v)))(x).tolist() == [1.0, 1.0, 1.0]


def checks() -> None:
    """Derivatives are checked against finite differences; missing gradients are named."""
    a = eg.randn(3, 4, dtype=eg.float64, requires_grad=True)
    b = eg.randn(4, 2, dtype=eg.float64, requires_grad=True)
    assert gradcheck(lambda a, b: (a @ b).tanh(), (a, b), check_forward_ad=True)

    used = eg.ones(2, requires_grad=True)
    forgotten = eg.ones(2, requires_grad=True)
    used.sum().backward()
    report = audit({"used": used, "forgotten": forgotten})
    assert [f.name for f in report.findings] == ["forgotten"]


def accounted_memory() -> None:
    """The ledger knows every byte. A training step ends where it began."""
    w1 = (eg.randn(64, 32) * 0.1).requires_grad_()
    w2 = (eg.randn(10, 64) * 0.1).requires_grad_()
    x, target = eg.randn(16, 32), eg.randint(0, 10, (16,))

    def step() -> None:
        loss = F.cross_entropy(eg.tanh(x @ w1.t()) @ w2.t(), target)
        loss.backward()
        with eg.no_grad():
            for w in (w1, w2):
                w -= 0.1 * w.grad
                w.grad.zero_()

    step()
    with memory.steady() as steady:
        for _ in range(20):
            step()
            steady.step()


def recompute() -> None:
    """A checkpoint keeps the inputs only and computes the rest again when backward comes."""

    def block(x: eg.Tensor) -> eg.Tensor:
        for _ in range(8):
            x = (x * 1.01).tanh()
        return x

    def kept(run: object) -> int:
        x = eg.ones(10_000, requires_grad=True)
        before = memory.stats()["live"]
        y = run(x)  # type: ignore[operator]
        held = memory.stats()["live"] - before
        y.sum().backward()
        return held

    assert kept(lambda x: checkpoint(block, x)) < kept(block) / 4


def compiled_steps() -> None:
    """A whole training step becomes one native program with a known memory; many are one call."""
    eg.manual_seed(0)
    model = eg.nn.Linear(3, 1)
    optimizer = eg.optim.SGD(model.parameters(), lr=0.1)

    @eg.compile
    def step(x: eg.Tensor, y: eg.Tensor) -> eg.Tensor:
        loss = eg.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    xs = eg.randn(200, 8, 3)  # 200 batches
    ys = xs.sum(-1, keepdim=True)
    print(step.plan(xs[0], ys[0]))  # nothing has run yet
    first = step(xs[0], ys[0])
    losses = step.loop(xs, ys)  # a step for each batch, without Python in between
    assert losses.shape == (200,) and losses[-1] < first / 100


def with_numpy() -> None:
    """NumPy arrays and tensors share memory; writes from outside are noticed."""
    array = np.ones(4, dtype=np.float32)
    x = eg.from_numpy(array)
    array[0] = 7
    assert x[0] == 7
    assert np.from_dlpack(x) is not None


def values_of_every_shape() -> None:
    """Ragged values are continued with zeros, not broadcast; a gradient has its operand's shape."""
    signal = ragged.tensor([1.0, 2.0, 3.0], requires_grad=True)
    echo = ragged.tensor([0.5, 0.25], requires_grad=True)
    heard = ragged.convolve(signal, echo) + signal
    ragged.sum(heard).backward()
    assert heard.shape == (4,) and signal.grad.shape == (3,) and echo.grad.tolist() == [6.0, 6.0]

    streams = ragged.batch([eg.ones(2), eg.ones(1000)])  # 1002 elements, nothing is padded
    assert ragged.convolve(streams, echo).numel() == 1004
    try:
        signal + eg.ones(3)
    except TypeError as error:
        assert "not mixed" in str(error)
    else:
        raise AssertionError("a dense tensor was taken for a ragged value")


def sequences_without_padding() -> None:
    """Sequences of different lengths are one tensor; attention stays within each of them."""
    examples = [(eg.randn(n, 4), eg.randint(0, 3, (n,))) for n in (2, 5, 1)]
    x, classes = nested.collate(examples)
    heads = x.unflatten(-1, (2, 2)).transpose(1, 2)  # (B, heads, ragged, width)
    y = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    y = y.transpose(1, 2).flatten(2)
    assert y.values().shape == (8, 4)  # tokens, not 3 x 5 places
    alone = heads[1]
    seen = F.scaled_dot_product_attention(alone, alone, alone, is_causal=True)
    assert eg.allclose(y[1], seen.transpose(0, 1).flatten(1), atol=1e-6)
    assert F.cross_entropy(y, classes).isfinite()


def gradients_of_rows() -> None:
    """A large table whose gradient names only the rows that were looked up, clipped and applied."""
    table = eg.nn.Embedding(100_000, 16, sparse=True)
    optimizer = eg.optim.SparseAdam(list(table.parameters()), lr=0.1)
    table(eg.tensor([3, 7, 3])).sum().backward()
    eg.nn.utils.clip_grad_norm_(table.parameters(), 1.0)
    assert table.weight.grad.is_sparse and table.weight.grad.coalesce().values().shape == (2, 16)
    before = memory.stats()["live"]
    optimizer.zero_grad()
    table(eg.tensor([3])).sum().backward()
    assert memory.stats()["live"] - before < 10_000  # bytes; the table has 6.4 million


def sparse_blocks() -> None:
    """A batch of sparse matrices of dense blocks, multiplied and differentiated by its blocks."""
    rows, columns = eg.tensor([[0, 1, 2]] * 2), eg.tensor([[1, 0], [0, 2]])
    blocks = eg.randn(2, 2, 4, 4, requires_grad=True)  # 2 matrices of 2 blocks of 4 x 4
    matrices = eg.sparse_bsr_tensor(rows, columns, blocks, (2, 8, 12))
    x = eg.randn(12, 3)
    y = matrices @ x
    y.square().sum().backward()
    assert eg.allclose(y, matrices.to_dense() @ x, atol=1e-5)
    assert blocks.grad.shape == blocks.shape


def fewer_bits() -> None:
    """Products in 16 bits under autocast, with float32 weights; weights in 8 bits for inference."""
    layer = eg.nn.Linear(64, 32)
    x = eg.randn(4, 64)
    with eg.autocast("cpu", dtype=eg.bfloat16):
        y = layer(x)
    y.float().sum().backward()
    assert y.dtype is eg.bfloat16 and layer.weight.grad.dtype is eg.float32
    exact = layer(x)
    small = eg.nn.utils.store_float8_(layer)
    assert small.codes.nbytes == 64 * 32
    assert (small(x) - exact).norm() < 0.1 * exact.norm()


STOPS = (
    tensors_and_views, gradients, right_or_an_error, function_transforms, one_row_per_op,
    programs_as_data, your_own_function, checks, accounted_memory, recompute, compiled_steps,
    with_numpy, values_of_every_shape, sequences_without_padding, gradients_of_rows,
    sparse_blocks, fewer_bits,
)  # fmt: skip


def main() -> None:
    for stop in STOPS:
        print(f"\n{stop.__name__.replace('_', ' ')}: {' '.join((stop.__doc__ or '').split())}")
        stop()
    print("\nEvery stop of the tour holds.")


if __name__ == "__main__":
    main()
