"""Stochastic weight averaging and an exponential average beside training."""

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn


def train(steps=12):
    torch.manual_seed(24)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    average = AveragedModel(model)
    smooth = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    schedule = SWALR(optimizer, swa_lr=0.01, anneal_epochs=4)
    losses, data = [], []
    for step in range(steps):
        x = torch.randn(16, 3)
        data.append(x)
        loss = (model(x).squeeze(-1) - x.prod(-1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        smooth.update_parameters(model)
        if step >= steps // 2:
            average.update_parameters(model)
            schedule.step()
        losses.append(loss.item())
    update_bn(data, average)
    with torch.no_grad():
        # Of squares: outputs of both signs cancel, down to the roundings.
        ends = [m.eval()(data[0]).square().mean().item() for m in (model, average, smooth)]
    return losses + ends


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
