"""A graph convolutional network over a sparse adjacency matrix finds communities."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

NODES, COMMUNITIES, FEATURES = 60, 3, 12


class GraphConvolution(nn.Module):
    """Every node becomes a mixture of its neighbours, then a linear map."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.empty(out_features))
        bound = 1.0 / math.sqrt(out_features)
        self.weight.data.uniform_(-bound, bound)
        self.bias.data.uniform_(-bound, bound)

    def forward(self, x, adjacency):
        return torch.spmm(adjacency, torch.mm(x, self.weight)) + self.bias

    def extra_repr(self):
        return f"{self.weight.size(0)} -> {self.weight.size(1)}"


class GCN(nn.Module):
    def __init__(self, hidden=16, dropout=0.3):
        super().__init__()
        self.first = GraphConvolution(FEATURES, hidden)
        self.second = GraphConvolution(hidden, COMMUNITIES)
        self.dropout = dropout

    def forward(self, x, adjacency):
        x = F.relu(self.first(x, adjacency))
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.second(x, adjacency), dim=1)


def normalised(edges):
    """The adjacency with loops, each row divided by its sum, as a sparse matrix."""
    loops = torch.arange(NODES).repeat(2, 1)
    indices = torch.cat([edges, edges.flip(0), loops], dim=1)
    counts = torch.sparse_coo_tensor(indices, torch.ones(indices.size(1)), (NODES, NODES))
    counts = counts.coalesce()
    degree = torch.zeros(NODES).index_add_(0, counts.indices()[0], counts.values())
    values = counts.values() / degree[counts.indices()[0]]
    return torch.sparse_coo_tensor(counts.indices(), values, counts.size())


def make_graph():
    """Nodes are mostly linked inside their community; features hint at it."""
    community = torch.arange(NODES) % COMMUNITIES
    inside = community[:, None] == community[None, :]
    linked = torch.rand(NODES, NODES) < torch.where(inside, 0.3, 0.03)
    edges = linked.triu(diagonal=1).nonzero().t()
    features = torch.randn(NODES, FEATURES)
    features[torch.arange(NODES), community] += 1.0
    return features, community, normalised(edges)


def train(steps=25):
    torch.manual_seed(10)
    features, community, adjacency = make_graph()
    labelled, others = torch.randperm(NODES).split([20, NODES - 20])
    model = GCN()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=5e-4)
    losses = []
    for _ in range(steps):
        model.train()
        optimizer.zero_grad()
        output = model(features, adjacency)
        loss = F.nll_loss(output[labelled], community[labelled])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    output = model(features, adjacency)
    losses.append(F.nll_loss(output[others], community[others]).item())
    correct = output.max(1)[1].type_as(community).eq(community)[others].double()
    losses.append(correct.sum().item() / len(others))
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
