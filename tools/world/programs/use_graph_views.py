"""What torchview, torchviz and torchextractor find in a model."""

import json

import torch
import torchextractor
from torchview import draw_graph
from torchviz import make_dot


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.rest = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 3))

    def forward(self, x):
        y = self.first(x)
        return self.rest(torch.cat([y[:, :2] + 1, y[:, 2:].tanh()], 1))


torch.manual_seed(0)
model = Model()
x = torch.randn(2, 1, 4, 4)
graph = draw_graph(model, input_data=x, device="cpu", expand_nested=True, depth=3)
lines = [line for line in graph.visual_graph.body if "->" in line]
dot = make_dot(model(x).mean(), params=dict(model.named_parameters()))
names = torchextractor.list_module_names(model)
extractor = torchextractor.Extractor(model, ["first", "rest.0"])
out, features = extractor(x)
out.sum().backward()
print(
    json.dumps(
        [
            len(lines), len(names), dot.source.count("weight"), dot.source.count("bias"),
            [f.sum().item() for f in features.values()], out.flatten().tolist(),
        ]
    )
)  # fmt: skip
