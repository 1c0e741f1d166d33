"""A small BERT learns to fill in masked words."""

import torch
from torch import nn

WORDS, MASK = 20, 1


class Bert(nn.Module):
    def __init__(self, width=16, heads=2, length=10):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 32, dropout=0.1, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.zeros(WORDS))

    def forward(self, ids, outside):
        x = self.norm(self.words(ids) + self.places.weight[: ids.shape[1]])
        x = self.encoder(x, src_key_padding_mask=outside)
        return self.head(x) @ self.words.weight.T + self.bias


def train(steps=5):
    torch.manual_seed(10)
    model = Bert()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 3))
    losses = []
    for _ in range(steps):
        start = torch.randint(2, 8, (6, 1))
        ids = start + torch.arange(10)
        outside = torch.arange(10) >= torch.randint(6, 11, (6, 1))
        chosen = (torch.rand(6, 10) < 0.3) & ~outside
        labels = ids.masked_fill(~chosen, -100)
        logits = model(ids.masked_fill(chosen, MASK), outside)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
