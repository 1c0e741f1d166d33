"""A dilated causal convolution forecasts a series, with residual connections."""

import torch
from torch import nn
from torch.nn import functional as F


class Causal(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv = nn.utils.parametrizations.weight_norm(
            nn.Conv1d(width, 2 * width, 2, dilation=dilation)
        )
        self.mix, self.dilation = nn.Conv1d(width, width, 1), dilation

    def forward(self, x):
        y = F.glu(self.conv(F.pad(x, (self.dilation, 0))), 1)
        return x + self.mix(y)


def train(steps=6):
    torch.manual_seed(36)
    model = nn.Sequential(
        nn.Conv1d(1, 8, 1), *(Causal(8, 2**i) for i in range(3)), nn.ReLU(), nn.Conv1d(8, 1, 1)
    )
    optimizer = torch.optim.RAdam(model.parameters(), lr=1e-2)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
    losses = []
    for _ in range(steps):
        time = torch.arange(24) * 0.3 + torch.rand(6, 1) * 6
        series = (torch.sin(time) + 0.5 * torch.sin(2.1 * time)).unsqueeze(1)
        loss = F.l1_loss(model(series[..., :-1]), series[..., 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plateau.step(loss.item())
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
