"""Skip-gram with negative sampling and sparse gradients of the tables."""

from collections import Counter

import torch
from torch import nn
from torch.nn import functional as F

TEXT = "the cat sat on the mat the dog sat on the log the cat saw the dog on the mat"


def train(epochs=4):
    torch.manual_seed(15)
    text = TEXT.split()
    words = sorted(set(text))
    number = {word: i for i, word in enumerate(words)}
    ids = [number[word] for word in text]
    pairs = torch.tensor(
        [
            (ids[i], ids[j])
            for i in range(len(ids))
            for j in range(max(0, i - 2), min(len(ids), i + 3))
            if i != j
        ]
    )
    counts = Counter(ids)
    share = torch.tensor([counts[i] ** 0.75 for i in range(len(words))])
    inner = nn.Embedding(len(words), 6, sparse=True)
    outer = nn.Embedding(len(words), 6, sparse=True)
    optimizer = torch.optim.SparseAdam([*inner.parameters(), *outer.parameters()], lr=0.05)
    losses = []
    for _ in range(epochs):
        for batch in pairs[torch.randperm(len(pairs))].split(32):
            center, context = batch.unbind(1)
            others = torch.multinomial(share, len(batch) * 3, replacement=True).view(-1, 3)
            vector = inner(center)
            near = (vector * outer(context)).sum(-1)
            far = torch.bmm(outer(others), vector.unsqueeze(-1)).squeeze(-1)
            loss = -(F.logsigmoid(near) + F.logsigmoid(-far).sum(-1)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    nearest = F.cosine_similarity(inner.weight[:1], inner.weight, dim=-1).topk(3).values
    return [*losses, *nearest.tolist()]


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
