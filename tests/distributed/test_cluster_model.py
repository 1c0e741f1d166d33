"""The simulation of large jobs: limits in which its numbers are known."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from .launching import ROOT

sys.path.insert(0, str(ROOT))

from bench.cluster import (
    KINDS,
    NETWORKS,
    RANKS,
    Network,
    Workload,
    collective,
    main,
    overlapped,
    rank_bytes,
    step_seconds,
)


def test_a_free_network_costs_nothing_but_jitter() -> None:
    free = Network("free", 0.0, math.inf)
    work = Workload(jitter=0.0)
    for kind in KINDS:
        for ranks in RANKS:
            assert step_seconds(kind, work, ranks, free) == pytest.approx(work.seconds)


def test_a_collective_moves_the_bytes_of_the_formula() -> None:
    network = Network("", 0.0, 1.0)
    assert collective(80, 2, 8, network) == pytest.approx(140)
    assert collective(80, 1, 8, network) == pytest.approx(70)
    assert collective(0, 2, 8, Network("", 1.0, 1.0)) == 6 + 6


def test_overlap() -> None:
    assert overlapped(3.0, [0.5, 0.5], 1.0) == 3.5  # the last bucket is behind the end
    assert overlapped(3.0, [4.0, 4.0], 1.0) == 10.0  # the network is busy from 2 on


def test_more_ranks_are_not_more_efficient_and_need_no_more_memory() -> None:
    for kind in KINDS:
        for network in NETWORKS:
            times = [step_seconds(kind, Workload(), n, network) for n in RANKS]
            assert times == sorted(times)
        sizes = [rank_bytes(kind, Workload(), n) for n in RANKS]
        assert sizes == sorted(sizes, reverse=True)
    for n in RANKS:
        held = [rank_bytes(kind, Workload(), n) for kind in KINDS]
        assert held == sorted(held, reverse=True)


def test_the_program_prints_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    main(["--output", str(tmp_path / "cluster.png")])
    printed = capsys.readouterr().out
    assert "network does not congest" in printed and printed.count("ZeRO 3") == 3
    assert (tmp_path / "cluster.png").stat().st_size > 10_000
