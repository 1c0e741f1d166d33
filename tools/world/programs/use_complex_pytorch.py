"""Networks of complex numbers."""

import json

import torch
from complexPyTorch.complexFunctions import complex_max_pool2d, complex_relu
from complexPyTorch.complexLayers import ComplexBatchNorm2d, ComplexConv2d, ComplexLinear

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.last = (
            ComplexConv2d(1, 2, 3),
            ComplexBatchNorm2d(2),
            ComplexLinear(18, 3),
        )

    def forward(self, x):
        x = complex_max_pool2d(complex_relu(self.norm(self.conv(x))), 2, 2)
        return self.last(x.flatten(1)).abs()


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x, y, found = torch.randn(4, 1, 8, 8, dtype=torch.complex64), torch.randint(0, 3, (4,)), []
for _ in range(3):
    loss = torch.nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
