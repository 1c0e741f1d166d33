"""A small GPT with attention written by hand, tied weights, and text drawn from it."""

import math
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F

TEXT = "to be or not to be, that is the question: whether it is nobler in the mind to suffer. " * 4


@dataclass
class Config:
    context: int = 16
    letters: int = 32
    layers: int = 2
    heads: int = 2
    width: int = 16
    dropout: float = 0.1


class CausalAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        past = torch.tril(torch.ones(config.context, config.context, dtype=torch.bool))
        self.register_buffer("past", past, persistent=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (
            part.view(B, T, self.heads, C // self.heads).transpose(1, 2)  # (B, nh, T, hs)
            for part in self.qkv(x).split(C, dim=2)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))  # (B, nh, T, T)
        scores = scores.masked_fill(~self.past[:T, :T], float("-inf"))
        x = self.dropout(F.softmax(scores, dim=-1)) @ v
        return self.out(x.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm_attention = nn.LayerNorm(config.width, bias=False)
        self.attention = CausalAttention(config)
        self.norm_mlp = nn.LayerNorm(config.width, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * config.width, config.width),
            nn.Dropout(config.dropout),
        )

    def forward(self, x):
        x = x + self.attention(self.norm_attention(x))
        return x + self.mlp(self.norm_mlp(x))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.letters, config.width)
        self.places = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.letters, bias=False)
        self.head.weight = self.tokens.weight
        self.apply(self.initialise)
        for name, p in self.named_parameters():
            if name.endswith("out.weight"):
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * config.layers))

    @staticmethod
    def initialise(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.size(1), device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    @torch.no_grad()
    def write(self, tokens, count, temperature=0.8, likeliest=5):
        for _ in range(count):
            logits = self(tokens[:, -self.config.context :])[:, -1, :] / temperature
            least = torch.topk(logits, likeliest).values[:, [-1]]
            logits[logits < least] = -float("inf")
            drawn = torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)
            tokens = torch.cat((tokens, drawn), dim=1)
        return tokens


def make_optimizer(model):
    """AdamW that decays matrices only."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))


def make_batch(data, context, size):
    starts = torch.randint(len(data) - context, (size,))
    inputs = torch.stack([data[i : i + context] for i in starts])
    targets = torch.stack([data[i + 1 : i + 1 + context] for i in starts])
    return inputs, targets


def train(steps=12, warmup=4):
    torch.manual_seed(1337)
    letters = sorted(set(TEXT))
    data = torch.tensor([letters.index(c) for c in TEXT], dtype=torch.long)
    model = GPT(Config(letters=len(letters)))
    optimizer = make_optimizer(model)

    def cosine_with_warmup(step):
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return 0.1 + 0.45 * (1.0 + math.cos(math.pi * (step - warmup) / (steps - warmup)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=cosine_with_warmup)
    losses = []
    for _ in range(steps):
        inputs, targets = make_batch(data, model.config.context, 8)
        logits = model(inputs)
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        scheduler.step()
        losses += [loss.item(), norm.item()]
    model.eval()
    drawn = model.write(torch.zeros((2, 1), dtype=torch.long), 20)
    return losses + [float(total) for total in drawn.sum(1)]


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
