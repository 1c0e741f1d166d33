"""Trains on ranks in different network namespaces, and prints what the first rank finds.

``python -m tests.distributed.programs.machines``: losses of a small model, where the ranks are, and
the bytes on the wire of a larger one.
"""

from __future__ import annotations

import json
import os
from typing import Any

from bench.namespaces import bytes_sent

import evergrad as eg
import evergrad.distributed as dist
from evergrad import nn
from evergrad.nn.parallel import DistributedDataParallel

from .ddp import batches, model, train

WIDTH, LAYERS, STEPS = 512, 4, 5


def payload() -> tuple[int, int]:
    """Bytes that this rank has sent in some steps, and those that the formula gives."""
    layers = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
    net = DistributedDataParallel(nn.Sequential(*layers))
    x = eg.ones(2, WIDTH)
    for _ in range(2):  # the buckets are rebuilt before the second
        net(x).sum().backward()
    dist.barrier()
    before = bytes_sent()
    for _ in range(STEPS):
        net(x).sum().backward()
    dist.barrier()
    size = dist.get_world_size()
    formula = 2 * 4 * WIDTH * WIDTH * LAYERS * (size - 1) // size
    return bytes_sent() - before, STEPS * formula


def main() -> None:
    dist.init_process_group()
    losses = train(DistributedDataParallel(model(seed=dist.get_rank())), batches(6), True)
    places: list[Any] = [None] * dist.get_world_size()
    own = os.uname().nodename, os.readlink("/proc/self/ns/net"), *payload()
    dist.all_gather_object(places, own)
    if dist.get_rank() == 0:
        print(json.dumps({"losses": losses, "places": places}), flush=True)


if __name__ == "__main__":
    main()
