"""Ranks in separate network namespaces, which have TCP alone: the losses of one process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from .launching import ROOT, environment, mpiexec
from .programs.ddp import batches, model, train

sys.path.insert(0, str(ROOT))

from bench.namespaces import Pair, missing, pair


@pytest.fixture(scope="module")
def machines() -> Iterator[Pair]:
    """Two namespaces; the test is skipped where they cannot be made."""
    mpiexec()
    if reason := missing():
        pytest.skip(reason)
    with pair() as found:
        yield found


def run(machines: Pair, command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False,
        env=environment(**machines.environment()),
    )  # fmt: skip


def test_losses_and_bytes_on_the_wire(machines: Pair) -> None:
    program = [sys.executable, "-m", "tests.distributed.programs.machines"]
    done = run(machines, machines.mpiexec(mpiexec(), 2, *program))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    expected = train(model(), batches(6), False)
    np.testing.assert_allclose(found["losses"], expected, rtol=1e-5)
    hosts, namespaces, sent, formula = zip(*found["places"], strict=True)
    assert hosts == tuple(machines.names) and len(set(namespaces)) == 2
    for measured, payload in zip(sent, formula, strict=True):
        # Headers of packets, acknowledgements and the comparisons of fingerprints.
        assert payload <= measured <= 1.1 * payload, (measured, payload)


def test_a_rank_that_dies_on_another_machine(machines: Pair) -> None:
    code = (
        "import os, evergrad as eg, evergrad.distributed as dist\ndist.init_process_group()\n"
        "if dist.get_rank() == 1: os.kill(os.getpid(), 9)\nwhile True: dist.all_reduce(eg.ones(2))"
    )
    done = run(machines, machines.mpiexec(mpiexec(), 2, sys.executable, "-c", code))
    assert done.returncode != 0
