"""A LeNet-like convolutional network classifies pictures of bars by their direction."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR


class LeNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, kernel_size=5, padding=2)
        self.conv2 = nn.Conv2d(6, 12, 3, 1)
        self.dropout1 = nn.Dropout2d(0.1)
        self.dropout2 = nn.Dropout(0.25)
        self.fc1 = nn.Linear(12 * 3 * 3, 32)
        self.fc2 = nn.Linear(32, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)  # (B, 6, 8, 8)
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2)  # (B, 12, 3, 3)
        x = self.dropout1(x)
        x = torch.flatten(x, 1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def make_batch(size, side=16):
    """Noise with a bright bar: a row, a column or the diagonal."""
    kind = torch.randint(0, 3, (size,))
    place = torch.randint(0, side, (size,))
    images = 0.3 * torch.rand(size, 1, side, side)
    for i in range(size):
        if kind[i] == 0:
            images[i, 0, place[i]] += 1.0
        elif kind[i] == 1:
            images[i, 0, :, place[i]] += 1.0
        else:
            images[i, 0] += torch.eye(side).roll(int(place[i]), dims=1)
    return (images - images.mean()) / images.std(), kind


def test(model, images, targets):
    model.eval()
    with torch.no_grad():
        output = model(images)
        loss = F.nll_loss(output, targets, reduction="sum").item() / len(targets)
        correct = output.argmax(dim=1, keepdim=True).eq(targets.view(-1, 1)).sum().item()
    return loss, correct / len(targets)


def train(steps=12):
    torch.manual_seed(1)
    model = LeNet()
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=5, gamma=0.7)
    losses = []
    for _ in range(steps):
        model.train()
        images, targets = make_batch(24)
        optimizer.zero_grad()
        loss = F.nll_loss(model(images), targets)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    losses.extend(test(model, *make_batch(48)))
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
