"""A program that uses most of the package; run from a zip file and as a frozen application."""

import tempfile
from pathlib import Path

import evergrad
from evergrad import nn


def main() -> None:
    evergrad.manual_seed(0)
    x, y = evergrad.randn(16, 8), evergrad.randn(16, 1)
    weight = evergrad.randn(8, 1, requires_grad=True)
    ((x @ weight - y) ** 2).mean().backward()
    assert weight.grad is not None and weight.grad.shape == (8, 1)

    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = evergrad.optim.Adam(model.parameters(), lr=0.01)

    def step(x: evergrad.Tensor, y: evergrad.Tensor) -> evergrad.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = evergrad.compile(step)
    losses = [float(compiled(x, y)) for _ in range(20)]
    assert losses[-1] < losses[0] / 2, losses

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.pt")
        evergrad.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        found = evergrad.load(path)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])

    assert evergrad.quasirandom.SobolEngine(3).draw(2).shape == (2, 3)
    evergrad.testing.assert_close(x, x.clone())
    assert not evergrad.cuda.is_available()
    assert x.to_sparse().to_dense().equal(x)
    assert x.__array_namespace__().sum(x).shape == ()
    assert nn.modules.container.Sequential is nn.Sequential
    outside = evergrad.compiler.native.jit.uses_compile_pool()
    named = evergrad.compiler.cache.fingerprint._versions() is not None
    print(f"{evergrad.__file__}|{outside}|{named}|{losses[-1]:.6f}")


if __name__ == "__main__":
    main()
