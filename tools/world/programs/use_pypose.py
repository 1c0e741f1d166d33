"""Lie groups as tensors: PyPose."""

import json

import pypose as pp
import torch

torch.manual_seed(0)
found = []
x = pp.randn_so3(3, requires_grad=True)
r = x.Exp()
points = torch.randn(3, 3)
loss = (r.Act(points) - points).pow(2).sum()
loss.backward()
found += [r.tensor().flatten().tolist(), loss.item(), x.grad.flatten().tolist()]
pose = pp.randn_SE3(2)
found += [
    (pose @ pose.Inv()).tensor().flatten().tolist(),
    pose.Log().tensor().flatten().tolist(),
    pose.matrix().flatten().tolist(),
]


class Inverse(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.pose = pp.Parameter(pp.identity_SE3(2))

    def forward(self, input):
        return (self.pose @ input).Log().tensor()


model = Inverse()
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for _ in range(4):
    optimizer.zero_grad()
    loss = model(pose).pow(2).sum()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
