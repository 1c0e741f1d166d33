"""Two generators translate between two kinds of points and back again."""

import itertools

import torch
from torch import nn


def network(out):
    return nn.Sequential(nn.Linear(2, 12), nn.LeakyReLU(0.2), nn.Linear(12, out))


def train(steps=6):
    torch.manual_seed(18)
    there, back = network(2), network(2)
    judge_a, judge_b = network(1), network(1)
    makers = torch.optim.Adam(
        itertools.chain(there.parameters(), back.parameters()), lr=5e-3, betas=(0.5, 0.999)
    )
    judges = torch.optim.Adam([*judge_a.parameters(), *judge_b.parameters()], lr=5e-3)
    squares, cycle = nn.MSELoss(), nn.L1Loss()
    losses = []
    for _ in range(steps):
        a, b = torch.randn(16, 2), torch.randn(16, 2) * 0.5 + 2
        fake_b, fake_a = there(a), back(b)
        fooled = [judge_b(fake_b), judge_a(fake_a)]
        made = sum(squares(v, torch.ones_like(v)) for v in fooled)
        made = made + 5 * (cycle(back(fake_b), a) + cycle(there(fake_a), b))
        made = made + cycle(there(b), b) + cycle(back(a), a)
        makers.zero_grad()
        made.backward()
        makers.step()
        cost = 0.0
        for judge, real, fake in ((judge_a, a, fake_a), (judge_b, b, fake_b)):
            true, false = judge(real), judge(fake.detach())
            cost = (
                cost
                + squares(true, torch.ones_like(true))
                + squares(false, torch.zeros_like(false))
            )
        judges.zero_grad()
        cost.backward()
        judges.step()
        losses += [made.item(), cost.item()]
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
