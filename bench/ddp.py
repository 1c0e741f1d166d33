"""DistributedDataParallel beside PyTorch's with gloo: same model, same data, same losses.

``python -m bench.ddp [--ranks 2] [--rounds 5]`` starts both libraries in turn, several times, each
rank with one thread, and prints losses and the least and the median time of a step. On a machine
that others use only the least times can be compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

STEPS = 40
WIDTH, DEPTH, ROWS = 512, 6, 32


def model(lib: Any) -> Any:
    """Layers whose weights are functions of their place, the same in both libraries."""
    nn = lib.nn
    layers: list[Any] = []
    for number in range(DEPTH):
        layer = nn.Linear(WIDTH, WIDTH)
        with lib.no_grad():
            values = lib.arange(WIDTH * WIDTH, dtype=lib.float32).reshape(WIDTH, WIDTH)
            layer.weight.copy_((values * (0.37 + number)).sin() / WIDTH**0.5)
            layer.bias.zero_()
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers)


def train(lib: Any, wrap: Any, compile: Any, rank: int, size: int) -> dict[str, Any]:
    """Losses and times of the steps of one rank."""
    lib.set_num_threads(1)
    net = wrap(model(lib))
    optimizer = lib.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    rows = lib.arange(ROWS * WIDTH * size, dtype=lib.float32).reshape(size, ROWS, WIDTH)
    x = (rows * 0.11).sin()[rank].clone()

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (net(x) - x.flip(1)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = compile(step)
    losses, times = [], []
    for _ in range(STEPS):
        start = time.perf_counter()
        losses.append(run(x).item())
        times.append(time.perf_counter() - start)
    return {"losses": losses, "times": times[STEPS // 2 :]}


def one_rank(library: str) -> None:
    """What a started process does: train, and print the results of the first rank."""
    if library == "torch":
        import torch as lib
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        dist.init_process_group("gloo")
    else:
        import evergrad as lib  # type: ignore[no-redef]
        import evergrad.distributed as dist  # type: ignore[no-redef]
        from evergrad.nn.parallel import DistributedDataParallel  # type: ignore[assignment]

        dist.init_process_group()
    compile = lib.compile if library == "compiled" else lambda function: function
    found = train(lib, DistributedDataParallel, compile, dist.get_rank(), dist.get_world_size())
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def start(library: str, ranks: int) -> dict[str, Any]:
    scripts = Path(sysconfig.get_path("scripts"))
    program = ["-m", "bench.ddp", "--as", library]
    if library == "torch":
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(ranks)]
        command += program
    else:
        command = [str(scripts / "mpiexec"), "-n", str(ranks), sys.executable, *program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"{library} failed:\n{done.stdout}\n{done.stderr}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--as", dest="library", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.library:
        one_rank(options.library)
        return
    times: dict[str, list[float]] = {}
    losses: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for library in ("torch", "eager", "compiled"):
            found = start(library, options.ranks)
            times.setdefault(library, []).extend(found["times"])
            losses[library] = found["losses"]
    print(f"{options.ranks} ranks, one thread each; {DEPTH} layers of {WIDTH}, {ROWS} rows a rank")
    for library, found in times.items():
        last = losses[library][-1]
        far = max(
            abs(a - b) / abs(b) for a, b in zip(losses[library], losses["torch"], strict=True)
        )
        print(
            f"{library:<9} least {min(found) * 1e3:7.2f} ms  median "
            f"{statistics.median(found) * 1e3:7.2f} ms  last loss {last:.6f}  "
            f"largest difference of losses {far:.1e}"
        )


if __name__ == "__main__":
    main()
