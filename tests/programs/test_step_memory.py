"""A training step of the programs' models makes its gradients once and leaves nothing behind.

The garbage collector is off: what a step made is gone because nothing refers to it any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import evergrad as eg
import evergrad.nn.functional as F
from evergrad import memory
from evergrad.memory.ledger import LEDGER

from .loader import load

STEPS = 4

# A model, and a function that draws a batch and gives the loss.
Task = tuple[Any, Callable[[], Any]]


pytestmark = pytest.mark.usefixtures("collector_off")


def program(name: str) -> Any:
    return load(name, "evergrad")


def perceptron() -> Task:
    made = program("mlp")
    model, (x, y) = made.make_model(), made.make_spirals(20)
    return model, lambda: F.cross_entropy(model(x), y)


def convolutions() -> Task:
    made = program("cnn")
    model = made.LeNet()

    def loss() -> Any:
        images, kind = made.make_batch(6)
        return F.nll_loss(model(images), kind)

    return model, loss


def residual_blocks() -> Task:
    made = program("resnet")
    model = made.ResNet(made.BasicBlock, [1, 1])

    def loss() -> Any:
        x, y = made.make_textures(4)
        return F.cross_entropy(model(x), y)

    return model, loss


def recurrence() -> Task:
    """The state goes from step to step, cut off from its history."""
    made = program("lstm_lm")
    data, words = made.in_lanes(made.TEXT)
    model = made.WordModel(words)
    state = [model.start(made.LANES)]

    def loss() -> Any:
        output, state[0] = model(data[:8], tuple(part.detach() for part in state[0]))
        return F.nll_loss(output.flatten(0, 1), data[1:9].reshape(-1))

    return model, loss


def encoder_and_decoder() -> Task:
    made = program("transformer_translation")
    model = made.Reverser()
    source, target = made.make_batch(4)

    def loss() -> Any:
        logits = model(source, target[:-1])
        return F.cross_entropy(logits.reshape(-1, made.VOCABULARY), target[1:].reshape(-1))

    return model, loss


def tied_weights() -> Task:
    made = program("gpt")
    model = made.GPT(made.Config())
    tokens = eg.randint(0, 32, (4, 16))
    return model, lambda: F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


def conditioned() -> Task:
    made = program("dit")
    model = made.DiT()

    def loss() -> Any:
        x, label = made.make_rings(4)
        return F.mse_loss(model(x, eg.randint(0, made.STEPS, (4,)), label), x)

    return model, loss


def recomputed() -> Task:
    made = program("checkpointing")
    model = made.MixerNet()

    def loss() -> Any:
        x, y = made.make_batch()
        return F.mse_loss(model(x), y)

    return model, loss


def second_order() -> Task:
    made = program("maml")
    model = made.make_model()
    return model, lambda: made.loss_after(model, made.SineTask())


def own_derivatives() -> Task:
    made = program("custom_function")
    model = made.Quantised()

    def loss() -> Any:
        x, domain = made.make_batch()
        decoded, _, _, guess = model(x)
        return F.mse_loss(decoded, x) + F.cross_entropy(guess, domain)

    return model, loss


TASKS: list[Callable[[], Task]] = [
    perceptron, convolutions, residual_blocks, recurrence, encoder_and_decoder, tied_weights,
    conditioned, recomputed, second_order, own_derivatives,
]  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_gradients_are_made_once(task: Callable[[], Task]) -> None:
    eg.manual_seed(0)
    model, loss = task()
    parameters = list(model.parameters())
    others = LEDGER.categories()["gradient"]
    loss().backward()
    assert LEDGER.categories()["gradient"] - others == sum(p.nbytes for p in parameters)
    places = [p.grad.data_ptr() for p in parameters]
    before = (LEDGER.live, LEDGER.count)
    for _ in range(STEPS):
        model.zero_grad(set_to_none=False)
        loss().backward()
        assert (LEDGER.live, LEDGER.count) == before
    assert [p.grad.data_ptr() for p in parameters] == places


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("task", TASKS)
def test_every_step_ends_at_the_same_byte(task: Callable[[], Task], set_to_none: bool) -> None:
    """The first step makes gradients and the optimizer's state; the others make nothing."""
    eg.manual_seed(0)
    model, loss = task()
    optimizer = eg.optim.AdamW(model.parameters(), lr=1e-3)
    with memory.steady(warmup=1) as steady:
        for _ in range(STEPS):
            optimizer.zero_grad(set_to_none=set_to_none)
            loss().backward()
            eg.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            steady.step()


def test_a_loss_that_is_kept_is_found() -> None:
    """The check itself can fail: a program that keeps its losses keeps their graphs."""
    model, loss = perceptron()
    kept = []
    with pytest.raises(eg.errors.SteadyStateError, match="stayed"), memory.steady() as steady:
        for _ in range(STEPS):
            kept.append(loss())
            kept[-1].backward(retain_graph=True)
            model.zero_grad()
            steady.step()
    assert len(kept) == 2
