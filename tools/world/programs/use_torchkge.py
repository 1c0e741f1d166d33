"""Translational embeddings of a knowledge graph."""

import json

import pandas as pd
import torch
from torchkge.data_structures import KnowledgeGraph
from torchkge.models import DistMultModel, TransEModel
from torchkge.sampling import UniformNegativeSampler
from torchkge.utils import MarginLoss

torch.manual_seed(0)
frame = pd.DataFrame(
    [[f"e{i % 7}", f"e{(i * 5 + 1) % 7}", f"r{i % 2}"] for i in range(20)],
    columns=["from", "to", "rel"],
)
graph = KnowledgeGraph(df=frame)
found = []
for model in (TransEModel(8, graph.n_ent, graph.n_rel), DistMultModel(8, graph.n_ent, graph.n_rel)):
    criterion, sampler = MarginLoss(0.5), UniformNegativeSampler(graph)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    h, t, r = graph.head_idx, graph.tail_idx, graph.relations
    for _ in range(3):
        nh, nt = sampler.corrupt_batch(h, t, r)
        optimizer.zero_grad()
        loss = criterion(*model(h, t, r, nh, nt))
        loss.backward()
        optimizer.step()
        model.normalize_parameters()
        found.append(loss.item())
print(json.dumps(found))
