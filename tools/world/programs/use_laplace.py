"""A Laplace approximation of a trained network, and its predictions."""

import json

import torch
from laplace import Laplace

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
x = torch.randn(30, 2)
y = x.sum(1, keepdim=True).sin()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=10)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for _ in range(4):
    for a, b in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(a), b)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
assert losses[-1] < losses[0]
results = [losses]
for subset, structure in (("all", "full"), ("last_layer", "kron"), ("all", "diag")):
    found = Laplace(model, "regression", subset_of_weights=subset, hessian_structure=structure)
    found.fit(loader)
    found.optimize_prior_precision(n_steps=5)
    mean, variance = found(x[:3])
    results.append([found.log_marginal_likelihood().item(), *mean.flatten().tolist(),
                    *variance.flatten().tolist()])  # fmt: skip
print(json.dumps(results))
