"""Graph attention over an edge list: softmax per node by scattered maxima and sums."""

import torch
from torch import nn
from torch.nn import functional as F

NODES = 12


class Attention(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.change = nn.Linear(inputs, outputs, bias=False)
        self.score = nn.Parameter(torch.empty(2 * outputs))
        nn.init.xavier_normal_(self.score.unsqueeze(0))

    def forward(self, x, edges):
        source, goal = edges
        h = self.change(x)
        raw = F.leaky_relu(torch.cat([h[source], h[goal]], -1) @ self.score, 0.2)
        top = torch.full((NODES,), -torch.inf).scatter_reduce(0, goal, raw, "amax")
        share = (raw - top[goal].detach()).exp()
        total = torch.zeros(NODES).scatter_add(0, goal, share)
        share = share / total[goal]
        return torch.zeros_like(h).index_add(0, goal, share.unsqueeze(-1) * h[source])


def train(steps=8):
    torch.manual_seed(33)
    near = (torch.rand(NODES, NODES) < 0.3) | torch.eye(NODES, dtype=torch.bool)
    edges = near.nonzero().T
    x, y = torch.randn(NODES, 5), torch.randint(0, 3, (NODES,))
    layers = nn.ModuleList([Attention(5, 8), Attention(8, 3)])
    optimizer = torch.optim.Adam(layers.parameters(), lr=2e-2)
    losses = []
    for _ in range(steps):
        logits = layers[1](F.elu(layers[0](x, edges)), edges)
        loss = F.nll_loss(logits.log_softmax(-1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
