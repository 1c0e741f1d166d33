"""Products with epilogues on tiles, and products whose rows loops read: the same numbers as
without, in less memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.compiler.steps import programs_of

import evergrad as eg
import evergrad.nn.functional as F
from evergrad.compiler.kernels.gemm import select, tiling
from evergrad.compiler.native import jit
from evergrad.models.gpt import GPT, GPTConfig

pytestmark = [
    pytest.mark.usefixtures("made_anew"),
    pytest.mark.skipif(not jit.has_fma(), reason="no fused multiply-add on this processor"),
]


@pytest.fixture(autouse=True)
def any_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products are cut into rows also where that takes longer: most are small here."""
    monkeypatch.setattr(tiling, "_AS_GOOD", 9.0)


def normal(*shape: int, seed: int = 0, dtype: Any = eg.float32) -> Any:
    numbers = np.random.default_rng([5, seed]).standard_normal(shape)
    return eg.tensor(numbers.astype(np.float32), dtype=dtype)


def labels(compiled: Any) -> list[str]:
    return [i.label for program in programs_of(compiled) for i in program.instructions]


def joined(compiled: Any) -> int:
    """How many products have an epilogue, or a loop that reads their rows."""
    return sum(" then " in label for label in labels(compiled))


def bytes_of(results: Any) -> list[bytes]:
    return [r.detach().numpy().tobytes() for r in results]


def both(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], given: list[Any], expected: int
) -> tuple[Any, Any]:
    """The results with products that have epilogues, of which there are so many, and without."""
    compiled = eg.compile(function)
    found = compiled(*given)
    assert joined(compiled) == expected, labels(compiled)
    with monkeypatch.context() as patch:
        patch.setattr(select, "_first_reader", lambda *given: None)
        apart = eg.compile(function)
        alone = apart(*given)
        assert joined(apart) == 0
    return found, alone


def softmax_and_more(a: Any, b: Any) -> Any:
    y = a @ b
    return (F.softmax(y, 1) + y.exp() * 2,)


FORMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "bias and activation": (
        lambda x, w, b: (F.linear(x, w, b).relu(),), ((1000, 70), (130, 70), (130,)),
    ),
    "in several dimensions": (
        lambda x, w, b: (F.gelu(F.linear(x, w, b)),), ((20, 50, 40), (96, 40), (96,)),
    ),
    "flat": (lambda a, b, c: ((a @ b) * c + 1,), ((600, 40), (40, 130), (600, 130))),
    "long rows": (lambda a, b: ((a @ b).exp(),), ((140, 20), (20, 5000))),
    "folds along rows": (softmax_and_more, ((1030, 20), (20, 90))),
    "transposed factors": (lambda a, b: ((a.T @ b.T).tanh(),), ((300, 700), (110, 300))),
    "read in two shapes": (
        lambda a, b: (((a @ b).reshape(64, 10, 150) + (a @ b).view(64, 10, 150)).exp(),),
        ((640, 30), (30, 150)),
    ),
    "a result": (lambda a, b: (a @ b, (a @ b).exp()), ((700, 40), (40, 130))),
    "read by another product": (
        lambda a, b: ((a @ b).exp(), (a @ b) @ b.T), ((700, 40), (40, 130)),
    ),
    "rows that do not stay in cache": (lambda a, b: ((a @ b).exp(),), ((70, 9), (9, 34000))),
    "few rows": (lambda a, b: ((a @ b).exp(),), ((100, 40), (40, 1300))),
    "small": (lambda a, b: ((a @ b).exp(),), ((30, 40), (40, 50))),
    "a batch": (lambda a, b: ((a @ b).exp(),), ((4, 600, 40), (4, 40, 130))),
    "a batch of small ones": (lambda a, b: ((a @ b).exp(),), ((9, 6, 40), (9, 40, 13))),
    "numbers for each row of a batch": (
        lambda a, b, c: ((a @ b) * c[:, :, None] + c.sum(),),
        ((9, 6, 40), (9, 40, 13), (9, 6)),
    ),
    "a matrix for all of a batch": (
        lambda a, b, c: ((a @ b) * c - 3,), ((9, 6, 40), (9, 40, 13), (6, 13)),
    ),
    "an update that reads what it is written to": (
        lambda x, w, b: ((x @ w) + b, ((x @ w) + b).relu()), ((20, 40), (40, 50), (50,)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [eg.float32, eg.float64])
@pytest.mark.parametrize("form", FORMS)
def test_the_same_to_the_bit(form: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    function, shapes = FORMS[form]
    given = [normal(*shape, seed=n, dtype=dtype) for n, shape in enumerate(shapes)]
    found, alone = both(monkeypatch, function, given, 1)
    assert bytes_of(found) == bytes_of(alone)
    tolerance = 1e-11 if dtype is eg.float64 else 1e-4
    for ours, expected in zip(found, function(*given), strict=True):
        np.testing.assert_allclose(ours.numpy(), expected.numpy(), rtol=tolerance, atol=tolerance)


APART: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "read transposed": (
        lambda a, b, c: ((a @ b).T + c,), ((700, 40), (40, 130), (130, 700)),
    ),
    "part of it is read": (lambda a, b: ((a @ b)[:, ::2].exp(),), ((1400, 40), (40, 130))),
    "beside its transpose": (lambda a, b: ((a @ b) + (a @ b).T,), ((70, 40), (40, 70))),
    "columns of an operand that are apart": (
        lambda a, b, c: ((a @ b) + c[:, ::2],), ((70, 40), (40, 60), (70, 120)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", APART)
def test_products_that_stay_by_themselves(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, shapes = APART[form]
    given = [normal(*shape, seed=n) for n, shape in enumerate(shapes)]
    found, alone = both(monkeypatch, function, given, 0)
    assert bytes_of(found) == bytes_of(alone)


def test_a_factor_that_the_loop_overwrites() -> None:
    def step(a: Any, b: Any) -> None:
        a.add_(a @ b)

    a, b = normal(600, 600), normal(600, 600, seed=1) / 30
    expected = (a + a @ b).numpy()
    held = {"a": a}
    compiled = eg.compile(lambda: step(held["a"], b))
    compiled()
    assert joined(compiled) == 0
    np.testing.assert_allclose(a.numpy(), expected, rtol=1e-4, atol=1e-4)


def layer(optimizer: str, **options: Any) -> tuple[Any, Any]:
    """A step that trains a layer, and its parameters."""
    eg.manual_seed(0)
    model = eg.nn.Sequential(eg.nn.Linear(130, 600), eg.nn.GELU(), eg.nn.Linear(600, 140))
    trained = getattr(eg.optim, optimizer)(model.parameters(), **options)
    x = normal(530, 130)

    def step() -> Any:
        loss = model(x).square().mean()
        loss.backward()
        trained.step()
        trained.zero_grad()
        return loss.detach()

    return step, list(model.parameters())


@pytest.mark.parametrize(("optimizer", "options"), [
    ("SGD", {"lr": 0.1, "momentum": 0.9}), ("AdamW", {"lr": 0.01}),
])  # fmt: skip
def test_updates_and_sums_of_columns(
    optimizer: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for way in ("joined", "apart", "eager"):
        if way == "apart":
            monkeypatch.setattr(select, "_first_reader", lambda *given: None)
        step, parameters = layer(optimizer, **options)
        run = step if way == "eager" else eg.compile(step)
        losses = [run() for _ in range(3)]
        found[way] = [t.detach().numpy() for t in (*losses, *parameters)]
        if way == "joined":
            text = " ".join(labels(run))
            assert "matmul 600x130x530 then" in text  # the update of a weight
            assert "matmul 530x600x140 then" in text  # an activation, and the gradient of a bias
    for way in ("apart", "eager"):
        for ours, theirs in zip(found["joined"], found[way], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5)


def test_the_whole_product_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for is_apart in (False, True):
        if is_apart:
            monkeypatch.setattr(select, "_first_reader", lambda *given: None)
        step, _ = layer("SGD", lr=0.1)
        buffers = eg.compile(step).plan().buffers
        found.append("matmul float32[600,130]" in {buffer.label for buffer in buffers})
    assert found == [False, True]


def test_threads() -> None:
    found = []
    for threads in (1, 2, 3):
        eg.set_num_threads(threads)
        step, parameters = layer("AdamW", lr=0.01)
        compiled = eg.compile(step)
        compiled()
        for program in programs_of(compiled):
            program.threads = threads
        compiled()
        assert joined(compiled)
        found.append(bytes_of(parameters))
    assert found[0] == found[1] == found[2]


def test_told_with_both_parts() -> None:
    step, _ = layer("SGD", lr=0.1)
    compiled = eg.compile(step)
    compiled()
    explanation = compiled.explain()
    (unit,) = [u for u in explanation.data["nodes"] if "600x130x530" in str(u["instructions"])]
    assert unit["kind"] == "native" and unit["flops"] == 2 * 600 * 130 * 530
    assert {"matmul", "mul"} <= {eqn["op"] for eqn in unit["equations"]}
    kernels = {i["kernel"] for u in explanation.data["nodes"] for i in u["instructions"]}
    assert kernels < set(explanation.code)  # and those that are called


def test_an_inserted_product_leaves_other_instructions_their_nodes() -> None:
    """A product that waited for its loop is inserted before instructions of other nodes. The
    gradient of a tied embedding, whose indices were checked by the lookup, then still cannot fail,
    so that parameters are updated in place and not in copies."""
    eg.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=512, context=128, layers=1, heads=4, width=256))
    optimizer = eg.optim.AdamW(model.parameters())

    def step(tokens: eg.Tensor) -> eg.Tensor:
        loss = model.loss(tokens, tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    compiled = eg.compile(step)
    compiled((eg.arange(1024) % 512).reshape(8, 128))
    (program,) = programs_of(compiled)
    assert not [i.label for i in program.instructions if i.label == "clone"]
