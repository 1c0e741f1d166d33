"""A stochastic differential equation, solved and differentiated."""

import json

import torch
import torchsde


class Equation(torch.nn.Module):
    noise_type, sde_type = "diagonal", "ito"

    def __init__(self):
        super().__init__()
        self.rate = torch.nn.Parameter(torch.tensor(0.5))

    def f(self, t, y):
        return -self.rate * y

    def g(self, t, y):
        return 0.1 * torch.ones_like(y)


torch.manual_seed(0)
equation, start, times = Equation(), torch.ones(4, 2), torch.linspace(0, 1, 5)
motion = torchsde.BrownianInterval(t0=0.0, t1=1.0, size=(4, 2), entropy=3)
path = torchsde.sdeint(equation, start, times, bm=motion, method="euler", dt=0.05)
path[-1].pow(2).sum().backward()
print(json.dumps([path.tolist(), equation.rate.grad.item()]))
