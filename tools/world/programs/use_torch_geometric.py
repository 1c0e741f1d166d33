"""Graph convolutions of torch-geometric on a small graph; a batch of graphs."""

import json

import torch
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, GCNConv, SAGEConv, global_mean_pool

torch.manual_seed(0)
edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0, 4, 2], [1, 0, 2, 1, 3, 2, 0, 3, 2, 4]])
data = Data(x=torch.randn(5, 6), edge_index=edges, y=torch.tensor([0, 1, 0, 1, 1]))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = GCNConv(6, 8)
        self.second = GATConv(8, 4, heads=2)
        self.third = SAGEConv(8, 2)

    def forward(self, data):
        x = torch.relu(self.first(data.x, data.edge_index))
        x = torch.nn.functional.elu(self.second(x, data.edge_index))
        return self.third(x, data.edge_index)


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
losses = []
for _ in range(5):
    loss = torch.nn.functional.cross_entropy(net(data), data.y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
batch = Batch.from_data_list([data, data])
pooled = global_mean_pool(net(batch), batch.batch)
assert losses[-1] < losses[0]
print(json.dumps([losses, pooled.tolist()]))
