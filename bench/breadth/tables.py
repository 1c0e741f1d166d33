"""Lookups and irregular data: graphs, recommenders, contrastive pairs, ranking."""

from __future__ import annotations

from typing import Any

from bench.breadth import spellings
from bench.breadth.registry import Data, Work, workload


@workload()
def graph_convolution(torch: Any) -> Work:
    """Messages along edges, summed with ``index_add``."""
    nn, F = torch.nn, torch.nn.functional
    nodes, edges = 500, 3000
    first, second = nn.Linear(32, 64), nn.Linear(64, 7)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=1e-2)
    data = Data(torch)
    source, target = data.integers(nodes, edges), data.integers(nodes, edges)

    def spread(h: Any) -> Any:
        degree = torch.zeros(nodes).index_add_(0, target, torch.ones(edges)).clamp(min=1)
        return torch.zeros_like(h).index_add_(0, target, h[source]) / degree.unsqueeze(1)

    def loss(x: Any, y: Any) -> Any:
        h = F.relu(spread(first(x)))
        return F.nll_loss(F.log_softmax(spread(second(h)), 1), y)

    batch = data.normal(nodes, 32), data.integers(7, nodes)
    return Work(spellings.zero_first(optimizer, loss), (batch,))


@workload()
def graph_attention(torch: Any) -> Work:
    """Softmax over the edges of each node: scatter_reduce and scatter_add."""
    nn, F = torch.nn, torch.nn.functional
    nodes, edges, heads, size = 300, 2000, 4, 16
    project = nn.Linear(32, heads * size, bias=False)
    left = nn.Parameter(torch.randn(heads, size) / 4)
    right = nn.Parameter(torch.randn(heads, size) / 4)
    parameters = [project.weight, left, right]
    data = Data(torch)
    source, target = data.integers(nodes, edges), data.integers(nodes, edges)

    def loss(x: Any) -> Any:
        h = project(x).view(nodes, heads, size)
        scores = F.leaky_relu((h * left).sum(-1)[source] + (h * right).sum(-1)[target], 0.2)
        index = target[:, None].expand(-1, heads)
        top = torch.full((nodes, heads), -1e9).scatter_reduce(0, index, scores.detach(), "amax")
        weights = torch.exp(scores - top[target])
        total = torch.zeros(nodes, heads).scatter_add(0, index, weights)
        weights = weights / total[target]
        out = torch.zeros(nodes, heads, size).index_add(0, target, h[source] * weights[..., None])
        return F.elu(out).pow(2).mean()

    return Work(spellings.by_hand(torch, parameters, loss), ((data.normal(nodes, 32),),))


@workload()
def recommender_bags(torch: Any) -> Work:
    """Bags of ids beside dense features (DLRM)."""
    nn, F = torch.nn, torch.nn.functional
    bags = nn.ModuleList([nn.EmbeddingBag(10_000, 16, mode="sum") for _ in range(4)])
    bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 16))
    top = nn.Sequential(nn.Linear(16 + 10, 64), nn.ReLU(), nn.Linear(64, 1))
    modules = nn.ModuleList([bags, bottom, top])
    optimizer = torch.optim.SGD(modules.parameters(), lr=0.1)
    data = Data(torch)
    rows, columns = torch.tril_indices(5, 5, offset=-1)

    def loss(dense: Any, ids: Any, clicked: Any) -> Any:
        x = bottom(dense)
        parts = [x] + [bag(ids[:, i]) for i, bag in enumerate(bags)]
        stacked = torch.stack(parts, 1)  # (B, 5, 16)
        crossed = torch.bmm(stacked, stacked.transpose(1, 2))[:, rows, columns]
        scores = top(torch.cat([x, crossed], 1)).squeeze(-1)
        return F.binary_cross_entropy_with_logits(scores, clicked)

    batch = (
        data.normal(128, 13),
        data.integers(10_000, 128, 4, 5),
        (data.uniform(128) > 0.5).float(),
    )
    return Work(spellings.zero_last(optimizer, loss), (batch,))


@workload()
def sparse_table(torch: Any) -> Work:
    """Sparse gradients of a large table, with its own optimizer beside a dense one."""
    nn, F = torch.nn, torch.nn.functional
    table = nn.Embedding(50_000, 32, sparse=True)
    head = nn.Linear(32, 1)
    first = torch.optim.SparseAdam(table.parameters(), lr=1e-2)
    second = torch.optim.Adam(head.parameters(), lr=1e-2)
    data = Data(torch)

    def step(ids: Any, y: Any) -> Any:
        loss = F.mse_loss(head(table(ids).mean(1)).squeeze(1), y)
        first.zero_grad()
        second.zero_grad()
        loss.backward()
        first.step()
        second.step()
        return loss.detach()

    return Work(step, ((data.integers(50_000, 64, 8), data.normal(64)),))


@workload()
def matrix_factorization(torch: Any) -> Work:
    nn = torch.nn
    users, items = nn.Embedding(2000, 32), nn.Embedding(3000, 32)
    bias = nn.Parameter(torch.zeros(3000))
    parameters = [users.weight, items.weight, bias]
    optimizer = torch.optim.Adagrad(parameters, lr=0.05)
    data = Data(torch)

    def loss(u: Any, good: Any, bad: Any) -> Any:
        """Bayesian personalised ranking."""
        a, b, c = users(u), items(good), items(bad)
        margin = (a * (b - c)).sum(1) + bias[good] - bias[bad]
        return -nn.functional.logsigmoid(margin).mean() + 1e-4 * (a.norm() + b.norm())

    batch = data.integers(2000, 256), data.integers(3000, 256), data.integers(3000, 256)
    return Work(spellings.zero_first(optimizer, loss), (batch,))


@workload()
def contrastive(torch: Any) -> Work:
    """SimCLR: all pairs, the diagonal masked out."""
    nn, F = torch.nn, torch.nn.functional
    model = nn.Sequential(nn.Linear(128, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = Data(torch)

    def loss(a: Any, b: Any) -> Any:
        z = F.normalize(model(torch.cat([a, b])), dim=1)
        scores = z @ z.T / 0.5
        scores.masked_fill_(torch.eye(len(z), dtype=torch.bool), float("-inf"))
        count = len(a)
        targets = torch.cat([torch.arange(count, 2 * count), torch.arange(count)])
        return F.cross_entropy(scores, targets)

    batch = data.normal(64, 128), data.normal(64, 128)
    return Work(spellings.zero_first(optimizer, loss), (batch,))


@workload()
def clip_pairs(torch: Any) -> Work:
    nn, F = torch.nn, torch.nn.functional
    images, texts = nn.Linear(256, 64), nn.Linear(128, 64)
    scale = nn.Parameter(torch.tensor(2.0))
    parameters = [*images.parameters(), *texts.parameters(), scale]
    optimizer = torch.optim.NAdam(parameters, lr=1e-3)
    data = Data(torch)

    def loss(x: Any, y: Any) -> Any:
        a, b = images(x), texts(y)
        a, b = a / a.norm(dim=-1, keepdim=True), b / b.norm(dim=-1, keepdim=True)
        scores = scale.exp() * a @ b.t()
        labels = torch.arange(scores.shape[0])
        return (F.cross_entropy(scores, labels) + F.cross_entropy(scores.t(), labels)) / 2

    batch = data.normal(64, 256), data.normal(64, 128)
    return Work(spellings.zero_first(optimizer, loss), (batch,))


@workload()
def triplet_hard(torch: Any) -> Work:
    """Hardest positives and negatives of a batch by distance."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 16))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = Data(torch)

    def loss(x: Any, y: Any) -> Any:
        z = model(x)
        distance = torch.cdist(z, z)
        same = y[:, None] == y[None, :]
        far = distance.masked_fill(~same, 0.0).amax(1)
        near = distance.masked_fill(same, 1e9).amin(1)
        return torch.relu(far - near + 0.2).mean()

    batch = data.normal(96, 64), data.integers(8, 96)
    return Work(spellings.zero_first(optimizer, loss), (batch,))


@workload()
def listwise_ranking(torch: Any) -> Work:
    """ListMLE: scores sorted by relevance, sums from the right; recall among the first ten."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = Data(torch)

    def step(x: Any, relevance: Any) -> Any:
        optimizer.zero_grad()
        scores = model(x).squeeze(-1)
        order = relevance.argsort(dim=1, descending=True, stable=True)
        ranked = scores.gather(1, order)
        tails = torch.logcumsumexp(ranked.flip(1), dim=1).flip(1)
        loss = (tails - ranked).sum(1).mean()
        loss.backward()
        optimizer.step()
        top = scores.detach().topk(10, dim=1).indices
        recall = relevance.gather(1, top).mean()
        return loss.detach(), recall

    return Work(step, ((data.normal(32, 50, 20), data.uniform(32, 50)),))
