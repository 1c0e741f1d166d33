"""A multilayer perceptron with dropout learns to tell two spirals apart."""

import math

import torch
import torch.nn as nn
import torch.optim as optim


def make_spirals(points):
    angle = torch.linspace(0.5, 3.0, points) * math.pi
    arm = torch.stack([angle * torch.cos(angle), angle * torch.sin(angle)], dim=1)
    x = torch.cat([arm, -arm]) / 5 + 0.05 * torch.randn(2 * points, 2)
    y = torch.arange(2).repeat_interleave(points)
    return x, y


def make_model(width=32):
    return nn.Sequential(
        nn.Linear(2, width),
        nn.ReLU(inplace=True),
        nn.Dropout(p=0.1),
        nn.Linear(width, width),
        nn.Tanh(),
        nn.Linear(width, 2),
    )


@torch.no_grad()
def evaluate(model, criterion, x, y):
    model.eval()
    logits = model(x)
    accuracy = (logits.argmax(dim=1) == y).float().mean().item()
    model.train()
    return criterion(logits, y).item(), accuracy


def train(steps=40):
    torch.manual_seed(0)
    x, y = make_spirals(100)
    model = make_model()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    optimizer = optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4
    )
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.5)

    losses = []
    for _ in range(steps):
        batch = torch.randperm(len(x))[:64]
        optimizer.zero_grad()
        loss = criterion(model(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())

    reloaded = make_model()
    reloaded.load_state_dict(model.state_dict())
    losses.extend(evaluate(reloaded, criterion, x, y))
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
