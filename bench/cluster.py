"""A step on 8 to 4,096 ranks, on paper: DDP and the three stages of ZeRO.

``python -m bench.cluster [--measure] [--output cluster.png]``. From the time of one step on one
rank, the sizes of its buckets and a model of the network it computes the time of a step and the
bytes of a rank. ``--measure`` times a step of a GPT on this machine; otherwise the numbers below
are used.

Assumptions, also printed:

- A collective over N ranks takes ``2 ceil(log2 N) latency`` (a tree) or the ring's ``2 (N-1)
  latency``, whichever is less, plus its bytes over the bandwidth: all-reduce ``2 (N-1)/N`` of the
  buffer, reduce-scatter and all-gather ``(N-1)/N``.
- Every rank has the bandwidth for itself; the network does not congest.
- The batch of a rank is fixed (weak scaling). Backward takes two thirds of a step, gradients become
  complete evenly over it, and buckets are reduced one after another while it runs.
- Agreement on each collective costs one tree of latencies.
- Ranks are not equal: the slowest of N is later by ``jitter * sqrt(2 ln N)`` standard deviations.
- Stage 3 gathers each unit before forward and before backward, one unit ahead of its use.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

RANKS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
KINDS = ("DDP", "ZeRO 1", "ZeRO 2", "ZeRO 3")


@dataclass(frozen=True)
class Network:
    """Latency of a message in seconds and bytes per second of a rank."""

    name: str
    latency: float
    bandwidth: float


NETWORKS = (
    Network("10 Gbit Ethernet", 30e-6, 1.1e9),
    Network("100 Gbit InfiniBand", 2e-6, 11e9),
)


@dataclass(frozen=True)
class Workload:
    """One rank's step: seconds, bytes of parameters, bytes of a bucket, relative jitter."""

    seconds: float = 0.5
    parameter_bytes: float = 4 * 124e6
    bucket_bytes: float = 25 * 2**20
    units: int = 12
    jitter: float = 0.02

    @property
    def buckets(self) -> int:
        return max(1, math.ceil(self.parameter_bytes / self.bucket_bytes))


def rounds(ranks: int) -> int:
    return math.ceil(math.log2(ranks))


def collective(nbytes: float, factor: float, ranks: int, network: Network) -> float:
    """Seconds of a collective that moves ``factor (N-1)/N`` of a buffer."""
    messages = min(2 * rounds(ranks), factor * (ranks - 1))
    moved = factor * nbytes * (ranks - 1) / ranks
    agreement = 2 * rounds(ranks) * network.latency
    return agreement + messages * network.latency + moved / network.bandwidth


def overlapped(compute: float, parts: Sequence[float], start: float) -> float:
    """The end of communication whose parts become ready evenly from ``start`` to ``compute``."""
    end = 0.0
    for number, seconds in enumerate(parts):
        ready = start + (compute - start) * (number + 1) / len(parts)
        end = max(end, ready) + seconds
    return max(end, compute)


def step_seconds(kind: str, work: Workload, ranks: int, network: Network) -> float:
    """The time of a step."""
    slowest = work.seconds * (1 + work.jitter * math.sqrt(2 * math.log(ranks)))
    forward = slowest / 3
    bucket = work.parameter_bytes / work.buckets
    if kind == "ZeRO 3":
        unit = work.parameter_bytes / work.units
        gather = collective(unit, 1, ranks, network)
        scatter = collective(unit, 1, ranks, network)
        ahead = max(0.0, gather - forward / work.units) * work.units + gather
        behind = [gather + scatter] * work.units
        return overlapped(slowest + ahead, behind, forward + ahead)
    factor = 1 if kind == "ZeRO 2" else 2
    parts = [collective(bucket, factor, ranks, network)] * work.buckets
    end = overlapped(slowest, parts, forward)
    if kind == "DDP":
        return end
    return end + collective(work.parameter_bytes, 1, ranks, network)  # updated parameters


def rank_bytes(kind: str, work: Workload, ranks: int) -> float:
    """Bytes of parameters, gradients and the two moments of Adam on a rank."""
    p = work.parameter_bytes
    parameters = p / ranks + p / work.units if kind == "ZeRO 3" else p
    gradients = p / ranks if kind in ("ZeRO 2", "ZeRO 3") else p
    moments = 2 * p if kind == "DDP" else 2 * p / ranks
    return parameters + gradients + moments


def measured() -> Workload:
    """The step of a small GPT on this machine."""
    import evergrad as eg  # only where something is measured
    from evergrad import optim
    from evergrad.models.gpt import GPT, GPTConfig

    eg.manual_seed(0)
    model = GPT(GPTConfig(layers=4, width=256, heads=4, context=128))
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)

    @eg.compile
    def step(tokens: Any) -> Any:
        loss = model.loss(tokens, tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    tokens = eg.randint(0, 256, (8, 128))
    times = []
    for _ in range(12):
        start = time.perf_counter()
        step(tokens)
        times.append(time.perf_counter() - start)
    size = sum(p.nbytes for p in model.parameters())
    return Workload(seconds=min(times), parameter_bytes=size, units=4)


def table(work: Workload, network: Network) -> dict[str, list[float]]:
    """The part of the time that a rank computes, for each kind and number of ranks."""
    return {
        kind: [work.seconds / step_seconds(kind, work, n, network) for n in RANKS] for kind in KINDS
    }


def draw(work: Workload, path: str) -> None:
    """The efficiencies over the number of ranks, and the bytes of a rank."""
    import matplotlib.pyplot as plt  # only where something is drawn

    figure, axes = plt.subplots(1, len(NETWORKS) + 1, figsize=(14, 4))
    for axis, network in zip(axes, NETWORKS, strict=False):
        for kind, values in table(work, network).items():
            axis.semilogx(RANKS, values, "o-", base=2, label=kind)
        axis.set(title=network.name, xlabel="ranks", ylabel="efficiency", ylim=(0, 1.05))
        axis.legend()
    for kind in KINDS:
        axes[-1].loglog(RANKS, [rank_bytes(kind, work, n) / 2**20 for n in RANKS], "o-", label=kind)
    axes[-1].set(title="parameters, gradients, Adam", xlabel="ranks", ylabel="MiB on a rank")
    axes[-1].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--measure", action="store_true", help="time a step on this machine")
    parser.add_argument("--output", default="", help="draw a plot to this file")
    options = parser.parse_args(words)
    work = measured() if options.measure else Workload()
    print((__doc__ or "").partition("Assumptions, also printed:\n\n")[2])
    print(f"{work}: {work.buckets} buckets\n")
    for network in NETWORKS:
        print(f"{network.name}: efficiency (computing time of one rank / time of a step)")
        print("ranks  " + "".join(f"{n:>7}" for n in RANKS))
        for kind, values in table(work, network).items():
            print(f"{kind:<7}" + "".join(f"{value:7.2f}" for value in values))
        print()
    print("MiB of parameters, gradients and moments on a rank")
    for kind in KINDS:
        values = [rank_bytes(kind, work, n) / 2**20 for n in RANKS]
        print(f"{kind:<7}" + "".join(f"{value:7.0f}" for value in values))
    if options.output:
        draw(work, options.output)


if __name__ == "__main__":
    main()
