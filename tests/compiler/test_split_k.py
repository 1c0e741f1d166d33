"""Gradients of small weights that are summed over halves of the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.compiler.steps import programs_of

import evergrad as eg
import evergrad.nn.functional as F

pytestmark = pytest.mark.usefixtures("made_anew")


def normal(*shape: int, seed: int, dtype: Any = eg.float32) -> Any:
    numbers = np.random.default_rng([31, seed]).standard_normal(shape)
    return eg.tensor(numbers.astype(np.float32), dtype=dtype)


def products(compiled: Any) -> list[str]:
    """The extents of the products that compute something."""
    labels = [i.label for program in programs_of(compiled) for i in program.instructions]
    return [label.split()[1] for label in labels if label.startswith(("matmul", "linear"))]


def product(a: Any, b: Any) -> Any:
    return a.T @ b


@pytest.mark.parametrize("dtype", [eg.float32, eg.float64])
@pytest.mark.parametrize(
    "rows, narrow, wide", [(768, 64, 256), (512, 65, 48), (640, 16, 16), (768, 128, 192)]
)
def test_two_halves(rows: int, narrow: int, wide: int, dtype: Any) -> None:
    for shapes in ((narrow, wide), (wide, narrow)):
        a, b = (normal(rows, n, seed=n, dtype=dtype) for n in shapes)
        compiled = eg.compile(product)
        found = compiled(a, b)
        assert products(compiled) == [f"{shapes[0]}x{shapes[1]}x{rows // 2}"]
        assert found.dtype is dtype
        expected = a.numpy().astype(np.float64).T @ b.numpy().astype(np.float64)
        tolerance = 1e-11 if dtype is eg.float64 else 2e-4
        np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)


WHOLE: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "few rows": (product, ((448, 64), (448, 64))),
    "halves that are no whole steps": (product, ((1056, 64), (1056, 64))),
    "wide factors": (product, ((1024, 192), (1024, 192))),
    "a wide factor": (product, ((1024, 64), (1024, 272))),
    "more than stays in cache": (product, ((4096, 64), (4096, 128))),
    "few columns": (product, ((1024, 64), (1024, 8))),
    "the depth in columns": (lambda a, b: a @ b, ((64, 1024), (1024, 64))),
    "rows that do not lie in order": (lambda a, b: a[::2].T @ b, ((2048, 64), (1024, 64))),
    "a batch": (lambda a, b: a.transpose(1, 2) @ b, ((3, 1024, 64), (3, 1024, 64))),
}


@pytest.mark.parametrize("form", WHOLE)
def test_what_stays_whole(form: str) -> None:
    function, shapes = WHOLE[form]
    a, b = (normal(*shape, seed=n) for n, shape in enumerate(shapes))
    compiled = eg.compile(function)
    found = compiled(a, b)
    (extents,) = products(compiled)
    assert int(extents.split("x")[2]) == b.shape[-2]
    np.testing.assert_allclose(found.numpy(), function(a, b).numpy(), rtol=2e-4, atol=2e-4)


def trained(threads: int) -> tuple[Any, list[bytes]]:
    """A compiled step and the parameters after some of them."""
    eg.set_num_threads(threads)
    eg.manual_seed(3)
    model = eg.nn.Sequential(eg.nn.Linear(64, 128), eg.nn.GELU(), eg.nn.Linear(128, 48))
    optimizer = eg.optim.AdamW(model.parameters(), lr=1e-2)

    @eg.compile
    def step(x: Any, y: Any) -> Any:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    data = normal(1024, 64, seed=1), normal(1024, 48, seed=2)
    for _ in range(3):
        step(*data)
        for program in programs_of(step):
            program.threads = threads
    return step, [p.detach().numpy().tobytes() for p in model.parameters()]


def test_the_update_adds_halves_up() -> None:
    step, _ = trained(1)
    instructions = programs_of(step)[-1].instructions
    halved = [i for i in instructions if i.label.startswith("matmul") and i.label.endswith("x512")]
    assert len(halved) == 2
    for instruction in halved:
        (both,) = instruction.writes
        (update,) = [i for i in instructions if both in i.reads]
        assert {buffer.kind for buffer in update.writes} == {"outside"}


def test_the_same_bits_for_any_number_of_threads() -> None:
    found = [trained(threads)[1] for threads in (1, 2, 3)]
    assert found[0] == found[1] == found[2]
