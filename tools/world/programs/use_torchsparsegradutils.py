"""Products and solves with sparse matrices whose gradients are sparse."""

import json

import torch
from torchsparsegradutils import sparse_logsumexp, sparse_mm, sparse_triangular_solve

torch.manual_seed(0)
places = torch.tensor([[0, 1, 1, 2, 3, 3], [0, 0, 1, 2, 1, 3]])
results = []
for layout in ("coo", "csr"):
    values = torch.rand(6) + 0.5
    a = torch.sparse_coo_tensor(places, values, (4, 4)).coalesce()
    a = a.to_sparse_csr() if layout == "csr" else a
    a = a.detach().requires_grad_()
    b = torch.randn(4, 3, requires_grad=True)
    out = sparse_mm(a, b)
    out.square().sum().backward()
    results.append([out.flatten().tolist(), a.grad.to_dense().flatten().tolist(),
                    b.grad.flatten().tolist()])  # fmt: skip
    b.grad = None
    x = sparse_triangular_solve(a, b, upper=False)
    x.sum().backward()
    results.append([x.flatten().tolist(), b.grad.flatten().tolist()])
results.append(sparse_logsumexp(torch.randn(3, 4).relu().to_sparse_coo(), dim=1).tolist())
print(json.dumps(results))
