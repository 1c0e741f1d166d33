"""Transposes of products, also behind casts, are flags of the products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import evergrad as eg
from evergrad import nn

Step = Callable[..., Any]
BF16 = eg.bfloat16


def copies(function: Step, *given: Any) -> list[str]:
    """The loops of the program that read a matrix by its columns: copies of transposes."""
    nodes = eg.compile(function).explain(*given).json()["nodes"]
    return [node["label"] for node in nodes if node["label"].startswith("clone")]


def gradient(a: Any, w: Any) -> Any:
    """The gradient of a weight that is used transposed, in the layout of the weight."""
    with eg.autocast("cpu", BF16):
        loss = (a @ w.t()).float().square().sum()
    return eg.autograd.grad(loss, w)[0].clone()


CASES: dict[str, Step] = {
    "the result": lambda a, w: (a.t() @ a).t().contiguous(),
    "the result of two casts": lambda a, w: (a.t() @ a).to(BF16).float().t().contiguous(),
    "the result of factors that are transposed": lambda a, w: (w @ a.t()).t().contiguous() * 2,
    "a factor behind a cast": lambda a, w: a.to(BF16) @ w.t().to(BF16),
    "both factors": lambda a, w: a.t().to(BF16) @ w[:, :1].expand(-1, 96).to(BF16),
    "a gradient": gradient,
    "a cast that others read": lambda a, w: (a @ w.t().to(BF16).float(), w.t().to(BF16)),
    "a result that others read": lambda a, w: (lambda p: (p, p.t().contiguous()))(a @ w.t()),
    "a cast that is returned": lambda a, w: (lambda p: (p, p.t().contiguous()))(
        (a @ w.t()).to(BF16)
    ),
    "a square of one value": lambda a, w: (a @ a.t()).t().contiguous().t().contiguous(),
    "a transpose of a transpose": lambda a, w: a @ w.t().to(BF16).t().float().t(),
    "three dimensions": lambda a, w: (a[None] @ w.t()[None]).transpose(1, 2).contiguous(),
    "no columns": lambda a, w: (a @ w[:0].t()).t().contiguous(),
    "no depth": lambda a, w: (a[:, :0] @ w[:, :0].t()).t().contiguous(),
    "a vector": lambda a, w: (a @ w[0]).contiguous(),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_eager_mode(name: str) -> None:
    eg.manual_seed(0)
    case = CASES[name]
    a, w = eg.randn(96, 64), eg.randn(96, 64).requires_grad_("gradient" in name)
    compiled = eg.compile(case)
    for _ in range(3):
        found, expected = compiled(a, w), case(a, w)
        pairs = zip(
            found if isinstance(found, tuple) else (found,),
            expected if isinstance(expected, tuple) else (expected,),
            strict=True,
        )
        for one, other in pairs:
            assert one.shape == other.shape and one.stride() == other.stride()
            eg.testing.assert_close(one, other, rtol=2e-2 if one.dtype is BF16 else 1e-2, atol=0.3)


@pytest.mark.parametrize(
    "name", ["the result", "the result of two casts", "a factor behind a cast", "a gradient"]
)
def test_nothing_is_copied(name: str) -> None:
    a, w = eg.randn(96, 64), eg.randn(96, 64).requires_grad_("gradient" in name)
    assert not copies(CASES[name], a, w)


@pytest.mark.parametrize("rows", [1, 3, 64])
@pytest.mark.parametrize("columns", [1, 5, 200])
@pytest.mark.parametrize("depth", [1, 7, 64])
def test_transposed_products_of_bfloat16(rows: int, columns: int, depth: int) -> None:
    """Also where the transposed factors are no pairs, or too few for a blocked product."""
    eg.manual_seed(rows)
    a, b = eg.randn(rows, depth).to(BF16), eg.randn(depth, columns).to(BF16)
    steps: list[Step] = [
        lambda a, b: (a @ b).t().contiguous(),
        lambda a, b: (a @ b).float().t().contiguous() * 2,
        lambda a, b: (a.t().contiguous().t() @ b.t().contiguous().t()).float().t().contiguous(),
    ]
    for step in steps:
        explained = eg.compile(step).explain(a, b).json()
        assert not [node for node in explained["nodes"] if node["kind"] == "call"]
        exact = (a.double() @ b.double()).t()
        found = eg.compile(step)(a, b).double()
        scale = 2 if step is steps[1] else 1
        eg.testing.assert_close(found, exact * scale, rtol=2**-7, atol=1e-5)


@pytest.mark.parametrize("kind", [eg.bfloat16, eg.float16])
def test_updates_join_the_products_of_mixed_precision(kind: Any) -> None:
    """As in float32: the weight's gradient is computed in the weight's layout."""
    eg.manual_seed(0)
    layer = nn.Linear(64, 128)
    twin = nn.Linear(64, 128)
    twin.load_state_dict(layer.state_dict())
    optimizers = [eg.optim.AdamW(m.parameters(), lr=1e-2) for m in (layer, twin)]

    def step_of(m: Any, optimizer: Any) -> Step:
        def step(x: Any) -> Any:
            with eg.autocast("cpu", kind):
                loss = m(x).float().square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step

    x = eg.randn(256, 64)
    compiled, eager = eg.compile(step_of(layer, optimizers[0])), step_of(twin, optimizers[1])
    for _ in range(4):
        eg.testing.assert_close(compiled(x), eager(x), rtol=1e-2, atol=1e-3)
    eg.testing.assert_close(layer.weight, twin.weight, rtol=0, atol=5e-3)
    assert not copies(step_of(layer, optimizers[0]), x)
