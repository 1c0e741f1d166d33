"""Train LeNet-5 on MNIST.

    python examples/lenet.py --root DATA [--epochs 5] [--download]

``DATA`` is a folder with the four MNIST files (``train-images-idx3-ubyte.gz`` and so on) or one
into which ``--download`` may put them. Five epochs reach 99 % on the test images, in about two
minutes on one core.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import evergrad as eg
from evergrad import datasets, nn, optim
from evergrad.nn import functional as F
from evergrad.utils.data import DataLoader, TensorDataset

MEAN, STD = 0.1307, 0.3081  # of the pixels of the training images


class LeNet(nn.Module):
    """LeCun's network of 1998, with today's rectifiers and maxima for its tanh and means."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: eg.Tensor) -> eg.Tensor:  # (B, 1, 28, 28)
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)  # (B, 6, 14, 14)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)  # (B, 16, 5, 5)
        x = F.relu(self.fc1(x.flatten(1)))  # (B, 120)
        x = F.relu(self.fc2(x))  # (B, 84)
        return self.fc3(x)  # (B, 10)


def load(root: Path, train: bool, download: bool, limit: int | None) -> TensorDataset:
    """MNIST as normalised tensors, all at once: 47 million pixels fit into memory."""
    mnist = datasets.MNIST(root, train=train, download=download)
    images = (mnist.data[:limit].float() / 255 - MEAN) / STD
    return TensorDataset(images.unsqueeze(1), mnist.targets[:limit])


def train(
    model: LeNet,
    batches: DataLoader,
    optimizer: optim.Optimizer,
    schedule: optim.lr_scheduler.LRScheduler,
) -> float:
    """One epoch; gives the mean loss."""
    model.train()
    total = 0.0
    for images, labels in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.item()
    return total / len(batches)


@eg.no_grad()
def evaluate(model: LeNet, batches: DataLoader) -> float:
    """The share of images that are recognised."""
    model.eval()
    right = sum((model(images).argmax(1) == labels).sum().item() for images, labels in batches)
    return right / len(batches.dataset)


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description="Train LeNet-5 on MNIST.")
    parser.add_argument("--root", type=Path, default=Path("data"), help="where MNIST is")
    parser.add_argument("--download", action="store_true", help="fetch MNIST if it is not there")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3, help="the highest learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="more do not help small products")
    parser.add_argument("--limit", type=int, help="train with the first LIMIT images only")
    options = parser.parse_args(arguments)

    eg.set_num_threads(options.threads)
    eg.manual_seed(options.seed)
    training = load(options.root, True, options.download, options.limit)
    testing = load(options.root, False, options.download, None)
    batches = DataLoader(training, batch_size=options.batch_size, shuffle=True)
    test_batches = DataLoader(testing, batch_size=1000)

    model = LeNet()
    optimizer = optim.AdamW(model.parameters(), lr=options.lr)
    steps = options.epochs * len(batches)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, options.lr, steps, pct_start=0.2)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(training):,} images")

    accuracy = 0.0
    for epoch in range(1, options.epochs + 1):
        start = time.perf_counter()
        loss = train(model, batches, optimizer, schedule)
        seconds = time.perf_counter() - start
        accuracy = evaluate(model, test_batches)
        print(f"epoch {epoch}: loss {loss:.4f}, test accuracy {accuracy:.2%}, {seconds:.1f} s")
    return accuracy


if __name__ == "__main__":
    main()
