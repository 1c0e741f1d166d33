"""Rotary embeddings of queries and keys, and attention with them."""

import json

import torch
from rotary_embedding_torch import RotaryEmbedding

torch.manual_seed(0)
rotary = RotaryEmbedding(dim=8)
queries, keys, values = (torch.randn(2, 4, 6, 16, requires_grad=True) for _ in range(3))
q, k = rotary.rotate_queries_or_keys(queries), rotary.rotate_queries_or_keys(keys)
out = torch.nn.functional.scaled_dot_product_attention(q, k, values)
out.pow(2).sum().backward()
print(json.dumps([out.sum().item(), q[0, 0].tolist(), queries.grad[0, 0].tolist()]))
