"""Train a two-layer character model on the text every Python ships, with nothing but the engine.

    python examples/char_model.py [--steps N] [--resume]

The model sees the last 8 characters and predicts the next: an embedding, a tanh layer, a linear
layer. Progress, samples and memory figures are printed; a checkpoint is written every 500 steps and
``--resume`` goes on from it.
"""

from __future__ import annotations

import argparse
import os
import pickle
import time
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import evergrad as eg
from evergrad import memory
from evergrad.autograd import audit
from evergrad.nn import functional as F

CONTEXT, EMBED, HIDDEN, BATCH = 8, 24, 192, 128


class CharModel:
    def __init__(self, vocabulary: int) -> None:
        def weight(*shape: int, fan_in: int) -> eg.Tensor:
            return (eg.randn(*shape) * fan_in**-0.5).requires_grad_()

        self.parameters: dict[str, eg.Tensor] = {
            "embedding": weight(vocabulary, EMBED, fan_in=1),
            "w1": weight(HIDDEN, CONTEXT * EMBED, fan_in=CONTEXT * EMBED),
            "b1": eg.zeros(HIDDEN, requires_grad=True),
            "w2": weight(vocabulary, HIDDEN, fan_in=HIDDEN),
            "b2": eg.zeros(vocabulary, requires_grad=True),
        }

    def __call__(self, x: eg.Tensor) -> eg.Tensor:  # (B, CONTEXT) characters
        p = self.parameters
        x = F.embedding(x, p["embedding"]).flatten(1)  # (B, CONTEXT * EMBED)
        h = eg.tanh(F.linear(x, p["w1"], p["b1"]))  # (B, HIDDEN)
        return F.linear(h, p["w2"], p["b2"])  # (B, vocabulary)


class Adam:
    """Just enough of an optimizer, written in in-place ops."""

    def __init__(self, parameters: dict[str, eg.Tensor], lr: float) -> None:
        self.parameters, self.lr, self.steps = parameters, lr, 0
        self.m = {name: eg.zeros_like(p) for name, p in parameters.items()}
        self.v = {name: eg.zeros_like(p) for name, p in parameters.items()}

    @eg.no_grad()
    def step(self) -> None:
        self.steps += 1
        scale = self.lr * (1 - 0.999**self.steps) ** 0.5 / (1 - 0.9**self.steps)
        for name, p in self.parameters.items():
            assert p.grad is not None
            self.m[name].mul_(0.9).add_(p.grad * 0.1)
            self.v[name].mul_(0.999).add_(p.grad * p.grad * 0.001)
            p.sub_(self.m[name] / (self.v[name].sqrt() + 1e-8) * scale)
            p.grad = None


def sample(model: CharModel, characters: list[str], length: int = 160) -> str:
    index = {c: i for i, c in enumerate(characters)}
    text = "The value "[-CONTEXT:]
    with eg.no_grad():
        while len(text) < length:
            x = eg.tensor([[index[c] for c in text[-CONTEXT:]]])
            probabilities = F.softmax(model(x), 1)
            text += characters[int(eg.multinomial(probabilities, 1).item())]
    return text.replace("\n", " ")


def save(path: Path, model: CharModel, optimizer: Adam, step: int) -> None:
    """Write a checkpoint beside the old one, then put it in its place."""
    state = {
        "step": step,
        "parameters": {k: p.detach().numpy().copy() for k, p in model.parameters.items()},
        "m": {k: t.numpy().copy() for k, t in optimizer.m.items()},
        "v": {k: t.numpy().copy() for k, t in optimizer.v.items()},
        "random": eg.get_rng_state().numpy().copy(),
    }
    temporary = path.with_suffix(".tmp")
    with open(temporary, "wb") as file:
        pickle.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def load(path: Path, model: CharModel, optimizer: Adam) -> int:
    with open(path, "rb") as file:
        state: dict[str, Any] = pickle.load(file)
    with eg.no_grad():
        for name, p in model.parameters.items():
            p.copy_(eg.tensor(state["parameters"][name]))
            optimizer.m[name].copy_(eg.tensor(state["m"][name]))
            optimizer.v[name].copy_(eg.tensor(state["v"][name]))
    optimizer.steps = state["step"]
    eg.set_rng_state(eg.tensor(state["random"]))
    return int(state["step"])


def progress(step: int, steps: int, loss: float, rate: float) -> None:
    width = 30
    filled = width * step // steps
    live, peak = memory.stats()["live"] / 2**20, memory.stats()["peak"] / 2**20
    bar = "#" * filled + "." * (width - filled)
    print(
        f"\r[{bar}] {step}/{steps} loss {loss:.3f}  {rate:,.0f} chars/s  "
        f"memory {live:.1f} MB (peak {peak:.1f})",
        end="", flush=True,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--checkpoint", type=Path, default=Path("char_model.ckpt"))
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()

    text = "\n".join(topics[name] for name in sorted(topics))
    characters = sorted(set(text))
    index = {c: i for i, c in enumerate(characters)}
    data = eg.tensor([index[c] for c in text])
    windows = data.unfold(0, CONTEXT + 1, 1)  # (positions, CONTEXT + 1), a view
    print(f"{len(text):,} characters, {len(characters)} different")

    eg.manual_seed(0)
    model = CharModel(len(characters))
    optimizer = Adam(model.parameters, lr=2e-3)
    first = load(options.checkpoint, model, optimizer) if options.resume else 0
    start = time.perf_counter()
    for step in range(first + 1, options.steps + 1):
        batch = windows[eg.randint(0, len(windows), (BATCH,))]  # (B, CONTEXT + 1)
        loss = F.cross_entropy(model(batch[:, :-1]), batch[:, -1])
        loss.backward()
        if step == first + 1:
            print(audit(model.parameters).raise_if_wrong())
        optimizer.step()
        if step % 100 == 0 or step == options.steps:
            rate = (step - first) * BATCH / (time.perf_counter() - start)
            progress(step, options.steps, loss.item(), rate)
        if step % 500 == 0 or step == options.steps:
            save(options.checkpoint, model, optimizer, step)
            print(f"\n  sample: {sample(model, characters)}")
    print(f"checkpoint: {options.checkpoint} (go on with --resume --steps {2 * options.steps})")


if __name__ == "__main__":
    main()
