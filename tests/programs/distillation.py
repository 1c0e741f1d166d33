"""A small network learns from the softened outputs of a larger one."""

import torch
from torch import nn
from torch.nn import functional as F


def train(steps=12, heat=3.0):
    torch.manual_seed(22)
    teacher = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4)).eval()
    student = nn.Sequential(nn.Linear(6, 6), nn.Hardswish(), nn.Linear(6, 4))
    optimizer = torch.optim.Adamax(student.parameters(), lr=2e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.5)
    losses = []
    for _ in range(steps):
        x = torch.randn(24, 6)
        with torch.inference_mode():
            logits = teacher(x)
            label = logits.argmax(-1)
        logits, label = logits.clone(), label.clone()
        found = student(x)
        soft = F.kl_div(
            F.log_softmax(found / heat, -1),
            F.log_softmax(logits / heat, -1),
            reduction="batchmean",
            log_target=True,
        )
        loss = 0.7 * heat**2 * soft + 0.3 * F.cross_entropy(found, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
