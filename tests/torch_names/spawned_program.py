"""Processes started by ``spawn`` train one shared model, send tensors, and fail."""

import time

import torch
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(4, 8), nn.Linear(8, 2)
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x):
        return self.out(torch.tanh(self.hidden(x)))


def train(rank, model, queue, done):
    generator = torch.Generator().manual_seed(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(100):
        x = torch.randn(16, 4, generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
        optimizer.step()
        model.count[rank] += 1
    queue.put(torch.full((3,), float(rank)))
    queue.put(model.count)
    done.wait()


def mark(rank, shared, plain, gradient):
    shared[rank] = rank + 1
    plain[rank] = rank + 1
    assert shared.is_shared() and gradient.requires_grad and gradient.tolist() == [1, 1]
    if rank == 2:
        raise ValueError("the third one")


def loss_of(model):
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(9))
    return F.cross_entropy(model(x), (x[:, 0] > 0).long()).item()


def train_together():
    model = Net()
    model.share_memory()
    before = loss_of(model)
    queue, done = mp.Queue(), mp.Event()
    started = [mp.Process(target=train, args=(rank, model, queue, done)) for rank in range(2)]
    for process in started:
        process.start()
    sent = [queue.get(timeout=300) for _ in range(4)]
    counts = [tensor for tensor in sent if tensor.numel() == 2]
    model.count[0] = -1
    print("counts", model.count.tolist(), [tensor[0].item() for tensor in counts])
    print("sent", sorted(tensor.tolist() for tensor in sent if tensor.numel() == 3))
    done.set()
    for process in started:
        process.join()
    print("ended", [process.exitcode for process in started], loss_of(model) < 0.8 * before)


def start_and_fail():
    shared, plain = torch.zeros(3).share_memory_(), torch.zeros(3, dtype=torch.int64)
    try:
        mp.spawn(mark, (shared, plain, torch.ones(2, requires_grad=True)), nprocs=3)
    except mp.ProcessRaisedException as error:
        print("raised", str(error).splitlines()[-1])
    time.sleep(0)
    print("written", shared[2].item(), plain[2].item(), plain.is_shared())


if __name__ == "__main__":
    torch.manual_seed(0)
    mp.set_start_method("spawn")
    train_together()
    start_and_fail()
