"""Without gradients: batches of 1 and 16, token by token, streams."""

from __future__ import annotations

from typing import Any

from bench.breadth.registry import Data, Work, workload
from bench.breadth.transformers import llama_model
from bench.breadth.vision import inverted_residuals, residual_network


def _applied(torch: Any, model: Any, *inputs: Any) -> Work:
    """The spelling of most: ``eval`` and ``no_grad`` inside of the function."""
    model.eval()

    def step(x: Any) -> Any:
        with torch.no_grad():
            return model(x)

    return Work(step, tuple((x,) for x in inputs))


@workload()
def resnet_batch_1(torch: Any) -> Work:
    return _applied(torch, residual_network(torch), Data(torch).normal(1, 3, 32, 32))


@workload()
def resnet_batch_16(torch: Any) -> Work:
    return _applied(torch, residual_network(torch), Data(torch).normal(16, 3, 32, 32))


@workload()
def mobilenet_batch_1(torch: Any) -> Work:
    return _applied(torch, inverted_residuals(torch), Data(torch).normal(1, 3, 96, 96))


@workload()
def encoder_batch_1(torch: Any) -> Work:
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    return _applied(torch, model, Data(torch).normal(1, 64, 128))


@workload()
def encoder_batch_16(torch: Any) -> Work:
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    return _applied(torch, model, Data(torch).normal(16, 64, 128))


@workload()
def mlp_batch_1(torch: Any) -> Work:
    nn = torch.nn
    model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                          nn.Linear(512, 10), nn.Softmax(-1))  # fmt: skip
    data = Data(torch)
    return _applied(torch, model, *(data.normal(1, 128) for _ in range(4)))


@workload()
def prefill(torch: Any) -> Work:
    model = llama_model(torch, 256, 128, 8, 2, 2, 256)
    return _applied(torch, model, Data(torch).integers(256, 1, 256))


@workload()
def decoding(torch: Any) -> Work:
    """One token with cached keys and values of all before: the cache grows in place."""
    nn, F = torch.nn, torch.nn.functional
    width, heads, layers, context = 128, 4, 2, 128
    size = width // heads
    embed, head = nn.Embedding(256, width), nn.Linear(width, 256)
    qkv = nn.ModuleList([nn.Linear(width, 3 * width) for _ in range(layers)])
    feed = nn.ModuleList(
        [nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(),
                       nn.Linear(4 * width, width)) for _ in range(layers)]
    )  # fmt: skip
    keys, values = (torch.zeros(layers, 1, heads, context, size) for _ in range(2))
    places = torch.arange(context)

    def step(token: Any, place: Any) -> Any:
        with torch.no_grad():
            x = embed(token)
            mask = (places <= place).view(1, 1, 1, context)
            for i in range(layers):
                q, k, v = qkv[i](x).view(1, 3, heads, 1, size).unbind(1)  # (1, nh, 1, hs)
                keys[i].index_copy_(2, place, k)
                values[i].index_copy_(2, place, v)
                y = F.scaled_dot_product_attention(q, keys[i], values[i], attn_mask=mask)
                x = x + y.reshape(1, width)
                x = x + feed[i](x)
            return head(x).argmax(-1), head(x)

    data = Data(torch)
    tokens = data.integers(256, 64)
    return Work(step, tuple((tokens[i : i + 1], torch.tensor([i])) for i in range(64)))


@workload()
def lstm_stream(torch: Any) -> Work:
    """One frame at a time; the state is kept by the caller's object."""
    nn = torch.nn
    layer, head = nn.LSTM(40, 96, num_layers=2), nn.Linear(96, 12)
    hidden, cell = torch.zeros(2, 1, 96), torch.zeros(2, 1, 96)

    def step(frame: Any) -> Any:
        with torch.no_grad():
            out, (h, c) = layer(frame, (hidden, cell))
            hidden.copy_(h)
            cell.copy_(c)
            return head(out[-1]).softmax(-1)

    data = Data(torch)
    return Work(step, tuple((data.normal(1, 1, 40),) for _ in range(8)))


@workload()
def sampling_top_p(torch: Any) -> Work:
    """Logits to one token: temperature, nucleus by sort and cumsum, a draw."""
    data = Data(torch)

    def step(scores: Any) -> Any:
        ordered, index = torch.sort(scores / 0.8, dim=-1, descending=True)
        chances = ordered.softmax(-1)
        beyond = chances.cumsum(-1) - chances > 0.9
        chances = chances.masked_fill(beyond, 0.0)
        drawn = torch.multinomial(chances / chances.sum(-1, keepdim=True), 1)
        return index.gather(-1, drawn)

    return Work(step, tuple((3 * data.normal(4, 8000),) for _ in range(4)))


@workload()
def detection_boxes(torch: Any) -> Work:
    """Overlaps of boxes and the best of each: comparisons, clamps, masks, topk."""
    data = Data(torch)
    corner, extent = data.uniform(300, 2), data.uniform(300, 2, low=0.05, high=0.3)

    def step(boxes: Any, scores: Any) -> Any:
        top, order = scores.topk(100)
        boxes = boxes[order]
        area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        low = torch.max(boxes[:, None, :2], boxes[None, :, :2])
        high = torch.min(boxes[:, None, 2:], boxes[None, :, 2:])
        shared = (high - low).clamp(min=0).prod(-1)
        overlap = shared / (area[:, None] + area[None, :] - shared)
        hidden = (overlap.triu(1) > 0.5).any(0)
        return torch.where(hidden, torch.zeros_like(top), top), overlap

    return Work(step, ((torch.cat([corner, corner + extent], 1), data.uniform(300)),))
