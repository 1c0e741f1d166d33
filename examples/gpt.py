"""Train a small GPT on the text every Python ships, with a compiled step and a known memory.

    python examples/gpt.py [--steps N] [--data FILE] [--resume] [--eager]

Before the first step the memory plan and a check of all gradients are printed; then progress,
samples and the loss on held-out text. A checkpoint (weights, optimizer, random stream) is written
every 250 steps, and ``--resume`` goes on from it.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path

import evergrad as eg
from evergrad import memory, nn, optim
from evergrad.autograd import audit
from evergrad.datasets.text import CharVocabulary, pydoc_topics, read_text
from evergrad.nn import functional as F

LAYERS, HEADS, WIDTH, CONTEXT, BATCH = 4, 4, 128, 64, 16
LEARNING_RATE, WARM_UP = 2e-3, 100


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.widen = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: eg.Tensor) -> eg.Tensor:  # (B, T, C)
        B, T, C = x.shape
        q, k, v = (
            part.view(B, T, HEADS, C // HEADS).transpose(1, 2)  # (B, heads, T, C / heads)
            for part in self.qkv(self.norm1(x)).split(C, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(y.transpose(1, 2).reshape(B, T, C))
        return x + self.narrow(F.gelu(self.widen(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, x: eg.Tensor) -> eg.Tensor:  # (B, T) tokens -> (B, T, vocabulary) scores
        x = self.token(x) + self.position(eg.arange(x.shape[1]))
        return F.linear(self.norm(self.blocks(x)), self.token.weight)  # weights tied

    def loss(self, x: eg.Tensor, y: eg.Tensor) -> eg.Tensor:
        return F.cross_entropy(self(x).flatten(0, 1), y.flatten())

    @eg.no_grad()
    def sample(self, start: eg.Tensor, length: int) -> list[int]:
        tokens = start.tolist()
        for _ in range(length):
            scores = self(eg.tensor([tokens[-CONTEXT:]]))[0, -1]
            tokens.append(int(eg.multinomial(F.softmax(scores / 0.8, 0), 1)))
        return tokens


class Batches:
    """Random blocks of a text, drawn from a stream of their own."""

    def __init__(self, tokens: eg.Tensor, seed: int) -> None:
        self.blocks = tokens.unfold(0, CONTEXT + 1, 1)  # (positions, CONTEXT + 1), a view
        self.generator = eg.Generator().manual_seed(seed)

    def draw(self) -> tuple[eg.Tensor, eg.Tensor]:
        starts = eg.randint(0, len(self.blocks), (BATCH,), generator=self.generator)
        block = self.blocks[starts]
        return block[:, :-1].contiguous(), block[:, 1:].contiguous()


def learning_rate(step: int, steps: int) -> float:
    """A linear warm-up, then half a cosine down to a tenth."""
    if step < WARM_UP:
        return LEARNING_RATE * (step + 1) / WARM_UP
    done = (step - WARM_UP) / max(1, steps - WARM_UP)
    return LEARNING_RATE * (0.55 + 0.45 * math.cos(math.pi * min(1.0, done)))


def training_step(model: GPT, optimizer: optim.Optimizer) -> Callable[..., eg.Tensor]:
    def step(x: eg.Tensor, y: eg.Tensor) -> eg.Tensor:
        loss = model.loss(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def progress(step: int, steps: int, loss: float, rate: float) -> None:
    width = 30
    bar = ("#" * (width * step // steps)).ljust(width, ".")
    live, peak = memory.stats()["live"] / 2**20, memory.stats()["peak"] / 2**20
    print(
        f"\r[{bar}] {step}/{steps}  loss {loss:.3f}  {rate:,.0f} tokens/s  "
        f"memory {live:.1f} MB (peak {peak:.1f})",
        end="", flush=True,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--data", type=Path, help="a text file, or a folder of them")
    parser.add_argument("--checkpoint", type=Path, default=Path("gpt.pt"))
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--eager", action="store_true", help="without the compiler, to compare")
    options = parser.parse_args()

    text = read_text(options.data) if options.data else pydoc_topics()
    vocabulary = CharVocabulary(text)
    tokens = vocabulary.encode(text)
    split = len(tokens) * 9 // 10
    eg.manual_seed(0)
    model = GPT(len(vocabulary))
    optimizer = optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.1)
    train, held_out = Batches(tokens[:split], 1), Batches(tokens[split:], 2)
    first = 0
    if options.resume:
        state = eg.load(options.checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        train.generator.set_state(state["batches"])
        eg.set_rng_state(state["random"])
        first = state["step"]
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{len(text):,} characters, {len(vocabulary)} different; {parameters:,} parameters")

    x, y = train.draw() if first == 0 else held_out.draw()
    model.loss(x, y).backward()
    print(audit(model).raise_if_wrong())
    optimizer.zero_grad()
    step = training_step(model, optimizer)
    if not options.eager:
        step = eg.compile(step)
        print(step.plan(x, y))

    start = time.perf_counter()
    for number in range(first, options.steps):
        optimizer.param_groups[0]["lr"] = learning_rate(number, options.steps)
        loss = step(*train.draw())
        done = number + 1
        if done % 10 == 0 or done == options.steps:
            rate = (done - first) * BATCH * CONTEXT / (time.perf_counter() - start)
            progress(done, options.steps, loss.item(), rate)
        if done % 250 == 0 or done == options.steps:
            with eg.no_grad():
                losses = [model.loss(*held_out.draw()).item() for _ in range(8)]
            print(f"\n  held-out loss {sum(losses) / len(losses):.3f}")
            written = vocabulary.decode(model.sample(tokens[:1], 160))
            print("  " + " ".join(written.split()))
            eg.save(
                {
                    "model": model.state_dict(), "optimizer": optimizer.state_dict(),
                    "batches": train.generator.get_state(), "random": eg.get_rng_state(),
                    "step": done,
                },
                options.checkpoint,
            )  # fmt: skip
    print(f"checkpoint: {options.checkpoint} (go on with --resume --steps {2 * options.steps})")


if __name__ == "__main__":
    main()
