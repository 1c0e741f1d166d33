"""Threads train one shared model, each with an optimizer and a stream of data of its own.

The threads take turns, so that every run ends alike.
"""

import copy
import threading

import torch
import torch.nn as nn
import torch.nn.functional as F

WORKERS = 3


class Turns:
    """Lets workers in one after the other, round and round."""

    def __init__(self, workers):
        self.workers = workers
        self.next = 0
        self.changed = threading.Condition()

    def wait_for(self, worker):
        with self.changed:
            self.changed.wait_for(lambda: self.next == worker)

    def pass_on(self):
        with self.changed:
            self.next = (self.next + 1) % self.workers
            self.changed.notify_all()


def make_model():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))


def make_batch(generator, size=20):
    x = torch.randn(size, 6, generator=generator)
    return x, (x[:, :3].sum(1) > x[:, 3:].prod(1)).long()


def work(worker, shared, turns, steps, losses):
    """Computes on a copy of the model, then applies the gradients to what all workers share."""
    generator = torch.Generator().manual_seed(100 + worker)
    optimizer = torch.optim.SGD(shared.parameters(), lr=0.1, momentum=0.5)
    mine = copy.deepcopy(shared)
    for _ in range(steps):
        turns.wait_for(worker)
        mine.load_state_dict(shared.state_dict())
        x, y = make_batch(generator)
        loss = F.cross_entropy(mine(x), y)
        mine.zero_grad()
        loss.backward()
        for theirs, p in zip(shared.parameters(), mine.parameters(), strict=True):
            theirs.grad = p.grad.clone()
        optimizer.step()
        losses.append(loss.item())
        turns.pass_on()


def train(steps=8):
    torch.manual_seed(15)
    shared = make_model()
    shared.share_memory()
    turns, losses = Turns(WORKERS), []
    threads = [
        threading.Thread(target=work, args=(worker, shared, turns, steps, losses))
        for worker in range(WORKERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    x, y = make_batch(torch.Generator().manual_seed(99), 100)
    shared.eval()
    losses.append(F.cross_entropy(shared(x), y).item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
