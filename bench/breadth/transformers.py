"""Transformers of other kinds than GPT, and GPT with other sizes and types."""

from __future__ import annotations

import math
from typing import Any

from bench.breadth import spellings
from bench.breadth.registry import Data, Work, workload


def rotated(x: Any, cos: Any, sin: Any, torch: Any) -> Any:
    """Rotary positions, the two halves of a head as one complex number."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def angles(torch: Any, length: int, size: int) -> tuple[Any, Any]:
    """Cosines and sines of rotary positions, each (length, size)."""
    inverse = 1.0 / (10000 ** (torch.arange(0, size, 2).float() / size))
    freqs = torch.outer(torch.arange(length).float(), inverse)
    both = torch.cat([freqs, freqs], -1)
    return both.cos(), both.sin()


def llama_model(torch: Any, vocabulary: int, width: int, heads: int, groups: int, layers: int,
                context: int) -> Any:  # fmt: skip
    """RMSNorm, rotary positions, grouped queries, SwiGLU."""
    nn, F = torch.nn, torch.nn.functional
    size = width // heads
    cos, sin = angles(torch, context, size)

    class RMSNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x: Any) -> Any:
            return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = RMSNorm(), RMSNorm()
            self.q = nn.Linear(width, width, bias=False)
            self.k = nn.Linear(width, groups * size, bias=False)
            self.v = nn.Linear(width, groups * size, bias=False)
            self.o = nn.Linear(width, width, bias=False)
            self.gate = nn.Linear(width, 2 * width, bias=False)
            self.up = nn.Linear(width, 2 * width, bias=False)
            self.down = nn.Linear(2 * width, width, bias=False)

        def attend(self, x: Any) -> Any:
            B, T, _ = x.shape
            q = self.q(x).view(B, T, heads, size).transpose(1, 2)  # (B, nh, T, hs)
            k = self.k(x).view(B, T, groups, size).transpose(1, 2)
            v = self.v(x).view(B, T, groups, size).transpose(1, 2)
            q = rotated(q, cos[:T], sin[:T], torch)
            k = rotated(k, cos[:T], sin[:T], torch)
            k = k.repeat_interleave(heads // groups, dim=1)
            v = v.repeat_interleave(heads // groups, dim=1)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.o(y.transpose(1, 2).reshape(B, T, width))

        def forward(self, x: Any) -> Any:
            x = x + self.attend(self.norm1(x))
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    return nn.Sequential(
        nn.Embedding(vocabulary, width), *[Block() for _ in range(layers)], RMSNorm(),
        nn.Linear(width, vocabulary, bias=False),
    )  # fmt: skip


def _language(torch: Any, model: Any, tokens: Any) -> Any:
    logits = model(tokens[:, :-1])
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


@workload()
def llama(torch: Any) -> Work:
    model = llama_model(torch, 256, 128, 8, 2, 2, 128)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    step = spellings.clipped(
        torch, parameters, optimizer, lambda tokens: _language(torch, model, tokens)
    )
    return Work(step, ((Data(torch).integers(256, 8, 129),),))


@workload()
def bert_padded(torch: Any) -> Work:
    """Padding masks of different lengths, a loss on masked tokens only."""
    nn, F = torch.nn, torch.nn.functional
    width, vocabulary, length, batch = 96, 500, 64, 8

    class Bert(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = (
                nn.Embedding(vocabulary, width, padding_idx=0),
                nn.Embedding(length, width),
            )
            self.norm = nn.LayerNorm(width)
            self.attention = nn.ModuleList(
                [nn.MultiheadAttention(width, 4, batch_first=True) for _ in range(2)]
            )
            self.feed = nn.ModuleList(
                [
                    nn.Sequential(
                        nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
                    )
                    for _ in range(2)
                ]
            )
            self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(4)])

        def forward(self, tokens: Any, mask: Any) -> Any:
            x = self.norm(self.tokens(tokens) + self.places(torch.arange(length)))
            for i in range(2):
                y, _ = self.attention[i](x, x, x, key_padding_mask=mask, need_weights=False)
                x = self.norms[2 * i](x + y)
                x = self.norms[2 * i + 1](x + self.feed[i](x))
            return x @ self.tokens.weight.T

    model = Bert()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = Data(torch)
    tokens = data.integers(vocabulary, batch, length, low=1)
    lengths = data.integers(length, batch, low=16)
    mask = torch.arange(length)[None, :] >= lengths[:, None]
    targets = torch.where(
        (data.uniform(batch, length) < 0.15) & ~mask, tokens, torch.full_like(tokens, -100)
    )

    def loss(tokens: Any, mask: Any, targets: Any) -> Any:
        return F.cross_entropy(model(tokens, mask).view(-1, vocabulary), targets.view(-1))

    return Work(spellings.zero_first(optimizer, loss), ((tokens, mask, targets),))


@workload()
def encoder_decoder(torch: Any) -> Work:
    nn = torch.nn
    model = nn.Transformer(64, 4, 2, 2, 128, dropout=0.0, batch_first=True)
    source, target = nn.Embedding(300, 64), nn.Embedding(300, 64)
    head = nn.Linear(64, 300)
    modules = nn.ModuleList([model, source, target, head])
    optimizer = torch.optim.Adam(modules.parameters(), lr=1e-3, betas=(0.9, 0.98))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min((i + 1) / 10, 1.0))
    data = Data(torch)

    def loss(x: Any, y: Any) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(y.shape[1] - 1)
        out = model(source(x), target(y[:, :-1]), tgt_mask=mask, tgt_is_causal=True)
        return nn.functional.cross_entropy(head(out).transpose(1, 2), y[:, 1:], label_smoothing=0.1)

    batch = data.integers(300, 16, 32), data.integers(300, 16, 25)
    return Work(spellings.scheduled(optimizer, scheduler, loss), (batch,))


@workload()
def windowed_attention(torch: Any) -> Work:
    """Swin's shifted windows: roll, a bias table read by index, a mask per window."""
    nn = torch.nn
    width, heads, window, side = 64, 4, 4, 16
    qkv, out = nn.Linear(width, 3 * width), nn.Linear(width, width)
    table = nn.Parameter(0.02 * torch.randn((2 * window - 1) ** 2, heads))
    parameters = [*qkv.parameters(), *out.parameters(), table]
    place = torch.stack(
        torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")
    ).flatten(1)
    offset = (place[:, :, None] - place[:, None, :]).permute(1, 2, 0) + window - 1
    index = offset[..., 0] * (2 * window - 1) + offset[..., 1]

    def attend(x: Any, shift: int) -> Any:
        B = x.shape[0]
        x = torch.roll(x, shifts=(-shift, -shift), dims=(1, 2)) if shift else x
        x = x.view(B, side // window, window, side // window, window, width)
        x = x.permute(0, 1, 3, 2, 4, 5).reshape(-1, window * window, width)
        q, k, v = qkv(x).reshape(-1, window**2, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        scores = (q * (width // heads) ** -0.5) @ k.transpose(-2, -1)
        bias = table[index.view(-1)].view(window**2, window**2, heads).permute(2, 0, 1)
        y = (torch.softmax(scores + bias.unsqueeze(0), dim=-1) @ v).transpose(1, 2)
        y = out(y.reshape(-1, window**2, width))
        y = y.view(B, side // window, side // window, window, window, width)
        y = y.permute(0, 1, 3, 2, 4, 5).reshape(B, side, side, width)
        return torch.roll(y, shifts=(shift, shift), dims=(1, 2)) if shift else y

    def loss(x: Any) -> Any:
        x = x + attend(x, 0)
        return (x + attend(x, window // 2)).square().mean()

    return Work(
        spellings.by_hand(torch, parameters, loss), ((Data(torch).normal(8, side, side, width),),)
    )


@workload()
def mixture_of_experts(torch: Any) -> Work:
    """Two of eight experts for each token, each expert applied to all with its weight."""
    nn, F = torch.nn, torch.nn.functional
    width, experts = 64, 8
    router = nn.Linear(width, experts)
    up = nn.Parameter(0.1 * torch.randn(experts, width, 2 * width))
    down = nn.Parameter(0.1 * torch.randn(experts, 2 * width, width))
    parameters = [*router.parameters(), up, down]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    data = Data(torch)

    def loss(x: Any, y: Any) -> Any:
        weights, chosen = torch.topk(router(x).softmax(-1), 2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        gates = torch.zeros(x.shape[0], experts).scatter(1, chosen, weights)
        hidden = F.gelu(torch.einsum("nd,edh->neh", x, up))
        out = torch.einsum("neh,ehd,ne->nd", hidden, down, gates)
        balance = (gates > 0).float().mean(0) * gates.mean(0)
        return F.mse_loss(out, y) + 0.01 * experts * balance.sum()

    batch = data.normal(256, width), data.normal(256, width)
    return Work(spellings.zero_first(optimizer, loss), (batch,))


@workload()
def routed_experts(torch: Any) -> Work:
    """The other spelling: each expert takes its own tokens by a mask and adds them back."""
    nn, F = torch.nn, torch.nn.functional
    width, experts = 64, 4
    router = nn.Linear(width, experts)
    layers = nn.ModuleList(
        [nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, width))
         for _ in range(experts)]
    )  # fmt: skip
    optimizer = torch.optim.Adam([*router.parameters(), *layers.parameters()], lr=1e-3)
    data = Data(torch)

    def loss(x: Any, y: Any) -> Any:
        weight, chosen = router(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for number, layer in enumerate(layers):
            rows = torch.where(chosen == number)[0]
            out = out.index_add(0, rows, layer(x[rows]) * weight[rows, None])
        return F.mse_loss(out, y)

    batch = data.normal(128, width), data.normal(128, width)
    return Work(spellings.zero_first(optimizer, loss), (batch,))


@workload()
def lora(torch: Any) -> Work:
    """Frozen weights with low-rank updates; only these are trained."""
    nn, F = torch.nn, torch.nn.functional

    class LoRA(nn.Module):
        def __init__(self, inner: int, outer: int) -> None:
            super().__init__()
            self.base = nn.Linear(inner, outer).requires_grad_(False)
            self.a = nn.Parameter(torch.randn(8, inner) / math.sqrt(inner))
            self.b = nn.Parameter(torch.zeros(outer, 8))

        def forward(self, x: Any) -> Any:
            return self.base(x) + 2.0 * (x @ self.a.T) @ self.b.T

    model = nn.Sequential(LoRA(256, 512), nn.GELU(), LoRA(512, 256), nn.LayerNorm(256))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    data = Data(torch)
    batch = data.normal(128, 256), data.normal(128, 256)
    return Work(spellings.zero_first(optimizer, lambda x, y: F.mse_loss(model(x), y)), (batch,))


@workload()
def vocabulary_32k(torch: Any) -> Work:
    nn, F = torch.nn, torch.nn.functional
    embed, head = nn.Embedding(32_000, 64), nn.Linear(64, 32_000, bias=False)
    head.weight = embed.weight
    mix = nn.Linear(64, 64)
    parameters = [embed.weight, *mix.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    data = Data(torch)

    def loss(tokens: Any, targets: Any) -> Any:
        return F.cross_entropy(head(torch.tanh(mix(embed(tokens)))), targets)

    batch = data.integers(32_000, 64), data.integers(32_000, 64)
    return Work(spellings.zero_last(optimizer, loss), (batch,))


@workload()
def context_2048(torch: Any) -> Work:
    model = llama_model(torch, 128, 64, 4, 4, 1, 2048)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = spellings.zero_first(optimizer, lambda tokens: _language(torch, model, tokens))
    return Work(step, ((Data(torch).integers(128, 1, 2049),),))


@workload(tolerance=2e-2)
def gpt_autocast(torch: Any) -> Work:
    model = llama_model(torch, 128, 128, 4, 4, 2, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss(tokens: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return _language(torch, model, tokens)

    return Work(spellings.zero_first(optimizer, loss), ((Data(torch).integers(128, 8, 65),),))


@workload(tolerance=5e-2)
def mlp_bfloat16(torch: Any) -> Work:
    """All of it in bfloat16, as weights of large models are kept."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(256, 512), nn.SiLU(), nn.Linear(512, 64)).bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Data(torch)
    batch = data.normal(64, 256).bfloat16(), data.integers(64, 64)
    step = spellings.zero_first(
        optimizer, lambda x, y: nn.functional.cross_entropy(model(x).float(), y)
    )
    return Work(step, (batch,))


@workload()
def linear_attention(torch: Any) -> Work:
    """Causal linear attention as running sums of outer products."""
    nn = torch.nn
    width, length = 32, 64
    qkv = nn.Linear(width, 3 * width)

    def loss(x: Any) -> Any:
        q, k, v = qkv(x).chunk(3, -1)
        q, k = nn.functional.elu(q) + 1, nn.functional.elu(k) + 1
        state = torch.cumsum(k.unsqueeze(-1) * v.unsqueeze(-2), dim=1)  # (B, T, C, C)
        total = torch.einsum("btc,btcd->btd", q, state)
        return (total / (q * k.cumsum(1)).sum(-1, keepdim=True)).pow(2).mean()

    step = spellings.by_hand(torch, list(qkv.parameters()), loss)
    return Work(step, ((Data(torch).normal(4, length, width),),))
