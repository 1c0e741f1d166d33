"""Compiled and eager steps on shapes that keep changing, and what their programs share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import nn
from evergrad.compiler.passes import outline_updates, pipeline
from evergrad.compiler.passes.pipeline import Target, Written
from evergrad.compiler.schedule import group_kernels
from evergrad.nn import functional as F

Model = Callable[..., Any]
Given = tuple[Any, ...]


class UNet(nn.Module):
    """Down, up by a transposed convolution, and a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(4, 4, 2, stride=2)
        self.head = nn.Conv2d(6, 2, 1)

    def forward(self, x: Any) -> Any:
        return self.head(eg.cat([self.up(F.relu(self.down(x))), x], 1))


class Boxes(nn.Module):
    """Scores and boxes of as many candidates as an image has."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.score, self.box = nn.Linear(8, 8), nn.Linear(8, 3), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        hidden = F.gelu(self.body(x))
        return eg.cat([F.softmax(self.score(hidden), -1), self.box(hidden).sigmoid()], -1)


class Masked(nn.Module):
    """Attention over sequences of several lengths with a padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.norm = nn.Linear(8, 24), nn.LayerNorm(8)

    def forward(self, x: Any, keep: Any) -> Any:
        b, n, c = x.shape
        q, k, v = (p.view(b, n, 2, 4).transpose(1, 2) for p in self.mix(self.norm(x)).split(8, 2))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])
        return x + y.transpose(1, 2).reshape(b, n, c)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.GRU(4, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        return self.head(self.layer(x)[0])


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(16, 8, mode="mean"), nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        return self.head(self.bag(x))


class Resized(nn.Module):
    """A convolution at a size that depends on the image."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)

    def forward(self, x: Any) -> Any:
        size = (x.shape[2] + 3, 2 * x.shape[3])
        return F.interpolate(self.conv(x), size=size, mode="bilinear")


class AnyRank(nn.Module):
    """A linear layer on vectors, matrices and batches of matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x).tanh()


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2))


def images(*sizes: tuple[int, int, int]) -> list[Given]:
    return [(eg.randn(n, 2, h, w),) for n, h, w in sizes]


def normal(*shapes: tuple[int, ...]) -> list[Given]:
    return [(eg.randn(*shape),) for shape in shapes]


def tokens(*shapes: tuple[int, ...]) -> list[Given]:
    return [(eg.randint(0, 16, shape),) for shape in shapes]


def masked(*sizes: tuple[int, int]) -> list[Given]:
    return [(eg.randn(b, n, 8), (eg.arange(n) < n - eg.arange(b)[:, None] % n)) for b, n in sizes]


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Sequence[Given]]]] = {
    "ragged_batch": (mlp, lambda: [(eg.randn(n, 6),) for n in (8, 8, 3, 1, 8, 5, 1)]),
    "unet": (UNet, lambda: images((2, 8, 8), (1, 8, 8), (3, 12, 6), (1, 4, 10), (2, 8, 8))),
    "boxes": (Boxes, lambda: [(eg.randn(n, 8),) for n in (7, 1, 30, 2, 7, 64)]),
    "masks": (Masked, lambda: masked((2, 5), (1, 5), (3, 9), (2, 1), (4, 17), (2, 5))),
    "gru": (Recurrent, lambda: [(eg.randn(2, n, 4),) for n in (5, 1, 9, 2, 5, 12)]),
    "bags": (Bags, lambda: tokens((3, 4), (1, 4), (3, 1), (5, 7))),
    "resized": (Resized, lambda: normal((1, 1, 4, 4), (1, 1, 5, 3), (1, 1, 1, 6), (2, 1, 8, 2))),
    "rank": (AnyRank, lambda: normal((5, 4), (2, 3, 4), (4,), (1, 4), (2, 1, 3, 4), (7, 4))),
    "empty": (AnyRank, lambda: normal((3, 4), (0, 4), (1, 4), (2, 0, 4), (0, 5, 4), (3, 4))),
}  # fmt: skip


def trained(make: Callable[[], nn.Module], batches: Sequence[Given], is_compiled: bool) -> Any:
    """The losses of steps on these batches, and the parameters and state after them."""
    eg.manual_seed(1)
    model = make()
    # Not Adam: gradients that are zero but for rounding would become steps of full length.
    optimizer = eg.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-2)

    def step(*given: Any) -> Any:
        optimizer.zero_grad()
        loss = model(*given).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = eg.compile(step) if is_compiled else step
    losses = [run(*given).item() for given in batches]
    kept = [t for state in optimizer.state.values() for t in state.values() if eg.is_tensor(t)]
    return losses, [t.detach().numpy().copy() for t in (*model.parameters(), *kept)]


@pytest.mark.parametrize("name", CASES)
def test_compiled_steps_are_eager_ones(name: str) -> None:
    make, batches_of = CASES[name]
    eg.manual_seed(0)
    batches = batches_of()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a handful of shapes is no reason for a warning
        (losses, compiled), (expected, eager) = (trained(make, batches, c) for c in (True, False))
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-5)
    for a, b in zip(compiled, eager, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5)


# -- updates are set aside ----------------------------------------------------------------------


def captured_step(optimizer: str, rows: int) -> Any:
    eg.manual_seed(0)
    model = mlp()
    update = getattr(eg.optim, optimizer)(model.parameters(), lr=1e-2)

    def step(x: Any) -> Any:
        update.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        update.step()
        return loss.detach()

    return eg.compile(step).compiled_for((eg.randn(rows, 6),), {})[0].captured


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW", "RMSprop", "Adagrad", "SGD"])
def test_updates_are_one_equation_while_passes_run(optimizer: str) -> None:
    captured = captured_step(optimizer, 5)
    written = Written(captured.result_count, len(captured.written))
    graphs: dict[str, Any] = {}
    made = pipeline.optimize(captured.graph, Target.STEP, graphs.__setitem__, written)
    outlined = graphs["outline_updates"]
    (updates,) = [e for e in outlined.equations if e.op is outline_updates.UPDATES]
    size = len(updates.attrs["tail"].graph.equations)
    assert len(outlined.equations) == len(captured.graph.equations) - size + 1
    assert not any(e.op is outline_updates.UPDATES for e in made.equations)
    whole = pipeline.optimize(captured.graph, Target.STEP)
    names = [sorted(e.op.name for e in graph.equations) for graph in (made, whole)]
    assert names[0] == names[1]


def test_shapes_share_their_updates_and_their_kernels() -> None:
    eg.manual_seed(0)
    model = mlp()
    update = eg.optim.Adam(model.parameters(), lr=1e-2)

    def step(x: Any) -> Any:
        update.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        update.step()
        return loss.detach()

    compiled = eg.compile(step)
    for rows in (4, 5):
        compiled(eg.randn(rows, 6))
    tails, kernels = len(outline_updates._kept), len(group_kernels._known)
    for rows in (6, 7, 9):
        compiled(eg.randn(rows, 6))
    assert len(outline_updates._kept) == tails
    assert len(group_kernels._known) <= kernels + 3 * 4  # loops over the batch, for each size


def test_a_kept_update_holds_no_tensor() -> None:
    outline_updates._kept.clear()
    captured = captured_step("Adam", 5)
    written = Written(captured.result_count, len(captured.written))
    pipeline.optimize(captured.graph, Target.STEP, written=written)
    (kept,) = outline_updates._kept.values()
    for var in kept.attrs["tail"].graph.inputs:
        base = var.layout
        while base.base is not None and isinstance(base.base, np.ndarray):
            base = base.base
        assert not base.flags.owndata
