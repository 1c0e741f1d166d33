"""``torch.fx``: the same programs print the same text with PyTorch and with evergrad."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("fx_program.py")


def lines(*command: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *command, str(PROGRAM)], capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


def test_graphs_are_the_same(torch: object) -> None:
    ours, theirs = lines("-m", "evergrad.as_torch"), lines()
    assert len(ours) > 40
    assert ours == theirs


@pytest.mark.parametrize("name", ["code", "graph", "nodes"])
def test_names_without_as_torch(name: str) -> None:
    import evergrad
    from evergrad import fx, nn

    traced = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    found = {"code": traced.code, "graph": str(traced.graph), "nodes": list(traced.graph.nodes)}
    assert found[name]
    assert traced(evergrad.ones(1, 2)).shape == (1, 2)
