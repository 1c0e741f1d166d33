"""A tour of evergrad that runs: each step says what it shows and checks it.

    python docs/tour.py

Read it from top to bottom. It is also a test, so it cannot go stale.
"""

from __future__ import annotations

import numpy as np

import evergrad as eg
from evergrad import memory
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


STOPS = (
    tensors_and_views, gradients, right_or_an_error, function_transforms, one_row_per_op,
    programs_as_data, your_own_function, checks, accounted_memory, recompute, compiled_steps,
    with_numpy,
)  # fmt: skip


def main() -> None:
    for stop in STOPS:
        print(f"\n{stop.__name__.replace('_', ' ')}: {' '.join((stop.__doc__ or '').split())}")
        stop()
    print("\nEvery stop of the tour holds.")


if __name__ == "__main__":
    main()
