"""Decompositions of tensors on the PyTorch backend."""

import json

import tensorly as tl
import torch
from tensorly.decomposition import parafac, tensor_train, tucker

tl.set_backend("pytorch")
torch.manual_seed(0)
x = torch.randn(4, 5, 6, dtype=torch.float64)
found = []
cp = parafac(x, rank=3, init="svd", n_iter_max=5)
found.append(tl.norm(tl.cp_to_tensor(cp) - x).item())
core, factors = tucker(x, rank=[2, 3, 3], init="svd", n_iter_max=5)
found.append(tl.norm(tl.tucker_to_tensor((core, factors)) - x).item())
tt = tensor_train(x, rank=[1, 2, 2, 1])
found.append(tl.norm(tl.tt_to_tensor(tt) - x).item())
w = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
tl.tenalg.multi_mode_dot(x, [w.T], modes=[0]).pow(2).sum().backward()
found.append(w.grad.sum().item())
print(json.dumps(found))
