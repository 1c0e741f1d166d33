"""Programs whose processes are started afresh: they run as under PyTorch, and end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import evergrad
from evergrad.memory.shared import ARENAS, place_of

PROGRAM = Path(__file__).with_name("spawned_program.py")
EXPECTED = """\
counts [-1.0, 100.0] [-1.0, -1.0]
sent [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
ended [0, 0] True
raised ValueError: the third one
written 3.0 3 True
"""


def run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_spawned_processes_share_a_model_and_are_under_as_torch() -> None:
    assert run("-m", "evergrad.as_torch", str(PROGRAM)) == EXPECTED


@pytest.mark.usefixtures("torch")
def test_pytorch_prints_the_same() -> None:
    assert run(str(PROGRAM)) == EXPECTED


def test_small_tensors_share_an_arena_and_large_ones_do_not() -> None:
    small = [evergrad.ones(5).share_memory_() for _ in range(3)]
    large = evergrad.ones(1 << 19).share_memory_()
    places = [place_of(tensor.numpy()) for tensor in (*small, large)]
    assert all(places)
    arenas = [place.arena for place in places if place is not None]
    assert arenas[0] is arenas[1] is arenas[2] and arenas[3] is not arenas[0]
    starts = [place.start for place in places[:3] if place is not None]
    assert starts[0] < starts[1] < starts[2] and all(start % 128 == 0 for start in starts)
    assert [tensor.sum().item() for tensor in (*small, large)] == [5, 5, 5, 1 << 19]


def test_empty_and_scalar_tensors_can_be_shared() -> None:
    for tensor in (evergrad.zeros(0, 3), evergrad.tensor(3.0), evergrad.ones(2).bfloat16()):
        before = tensor.tolist()
        assert tensor.share_memory_().is_shared()
        assert tensor.tolist() == before


def test_a_received_arena_is_mapped_once() -> None:
    place = place_of(evergrad.ones(4).share_memory_().numpy())
    assert place is not None
    first, second = (
        ARENAS.receive(os.dup(place.arena.descriptor), len(place.arena)) for _ in range(2)
    )
    assert first is second and first.identity == place.arena.identity
    first[place.start : place.start + 4] = b"\0\0\0\0"
    assert place.arena[place.start : place.start + 4] == b"\0\0\0\0"


def test_what_other_processes_write_is_no_error_of_backward() -> None:
    weight = evergrad.ones(3).share_memory_().requires_grad_()
    y = (weight * weight).sum()
    place = place_of(weight.detach().numpy())
    assert place is not None
    place.arena[place.start + 3] = 0x40  # 1.0 becomes 4.0 or so, as another process would do it
    y.backward()
    assert weight.grad is not None and weight.grad[0] != 2
