"""One perceptron in the spellings users choose."""

from __future__ import annotations

from typing import Any

from bench.breadth import spellings
from bench.breadth.registry import Data, Work, workload


def _model(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                         nn.Linear(64, 10))  # fmt: skip


def _loss(torch: Any, model: Any) -> Any:
    return lambda x, y: torch.nn.functional.cross_entropy(model(x), y)


def _batch(torch: Any) -> tuple[Any, Any]:
    data = Data(torch)
    return data.normal(128, 32), data.integers(10, 128)


@workload()
def mlp_closure(torch: Any) -> Work:
    """Data of the enclosing function; the step has no arguments."""
    model = _model(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = _batch(torch)
    loss = _loss(torch, model)
    return Work(spellings.zero_first(optimizer, lambda: loss(x, y)))


@workload()
def mlp_from_numpy(torch: Any) -> Work:
    model = _model(torch)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = (torch.from_numpy(t.numpy().copy()) for t in _batch(torch))
    return Work(spellings.zero_last(optimizer, _loss(torch, model)), ((x, y),))


@workload()
def mlp_by_hand(torch: Any) -> Work:
    model = _model(torch)
    step = spellings.by_hand(torch, list(model.parameters()), _loss(torch, model))
    return Work(step, (_batch(torch),))


@workload()
def mlp_gradients(torch: Any) -> Work:
    model = _model(torch)
    step = spellings.gradients_only(torch, list(model.parameters()), _loss(torch, model))
    return Work(step, (_batch(torch),))


@workload()
def mlp_accumulated(torch: Any) -> Work:
    model = _model(torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return Work(spellings.accumulated(optimizer, _loss(torch, model), 4), (_batch(torch),))


@workload()
def mlp_scheduled(torch: Any) -> Work:
    model = _model(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    step = spellings.scheduled(optimizer, scheduler, _loss(torch, model))
    return Work(step, (_batch(torch),))


@workload()
def mlp_weights_by_name(torch: Any) -> Work:
    """No modules: weights in a dict, formulas written out."""
    shapes = {"w1": (32, 64), "b1": (64,), "w2": (64, 10), "b2": (10,)}
    weights = {name: (0.1 * torch.randn(*s)).requires_grad_() for name, s in shapes.items()}

    def loss(x: Any, y: Any) -> Any:
        h = torch.maximum(x @ weights["w1"] + weights["b1"], torch.tensor(0.0))
        scores = h @ weights["w2"] + weights["b2"]
        chosen = scores[torch.arange(len(y)), y]
        return (scores.logsumexp(1) - chosen).mean()

    return Work(spellings.by_hand(torch, list(weights.values()), loss, 0.1), (_batch(torch),))


@workload()
def mlp_reported_loss(torch: Any) -> Work:
    """Returns a Python number, as most training loops do."""
    model = _model(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train = spellings.zero_first(optimizer, _loss(torch, model))
    return Work(lambda x, y: train(x, y).item(), (_batch(torch),))


@workload()
def tabular_regularised(torch: Any) -> Work:
    """Embeddings of categories beside numbers, dropout, an L1 penalty over all weights."""
    nn, F = torch.nn, torch.nn.functional
    tables = nn.ModuleList([nn.Embedding(n, 4) for n in (12, 30, 7)])
    body = nn.Sequential(nn.Linear(10 + 12, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1),
                         nn.Linear(64, 1))  # fmt: skip
    modules = nn.ModuleList([tables, body])
    optimizer = torch.optim.Adam(modules.parameters(), lr=1e-3, weight_decay=1e-4)
    data = Data(torch)

    def loss(numbers: Any, kinds: Any, y: Any) -> Any:
        looked = [table(kinds[:, i]) for i, table in enumerate(tables)]
        out = body(torch.cat([numbers, *looked], dim=1)).squeeze(1)
        return F.huber_loss(out, y) + 1e-5 * sum(p.abs().sum() for p in modules.parameters())

    batch = data.normal(256, 10), data.integers(7, 256, 3), data.normal(256)
    return Work(spellings.zero_first(optimizer, loss), (batch,))
