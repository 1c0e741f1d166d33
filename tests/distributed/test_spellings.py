"""Programs for PyTorch's launcher, compared with what PyTorch 2.13 finds on gloo.

``expected/`` has PyTorch's results; ``tests/soak/test_distributed_soak.py`` makes them again.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from .launching import ROOT, mpiexec, once
from .test_faults import launched

PROGRAMS = ROOT / "tests/distributed/programs"
EXPECTED = {
    path.stem: json.loads(path.read_text())
    for path in (Path(__file__).parent / "expected").iterdir()
}
CASES = [(program, case) for program in sorted(EXPECTED) for case in EXPECTED[program][0]]
# Parameters after three steps on both ranks, and one with gradients of zero on the first: the
# results of one process. PyTorch's first rank updates its share by the gradients before.
JOINED = [
    [[-0.000669, 0.0636, 0.09767], [0.08678, 0.03404, -0.03455], [-0.08582, -0.09664, -0.0615],
     [0.003264, 0.06758, 0.1007]],
    [-0.0009808, 0.06482, 0.1001, 0.0883],
    [[-0.001117, 0.0634, 0.09895, 0.08428], [0.02906, -0.0388, -0.08399, -0.1053]],
    [-0.01082, 0.03342],
]  # fmt: skip


def differences(found: Any, expected: Any, place: str = "") -> list[str]:
    """Where two results differ by more than the digits that are printed."""
    if isinstance(expected, dict | list) and type(found) is type(expected):
        if len(found) != len(expected):
            return [f"{place}: {found} has another length than {expected}"]
        keys = expected if isinstance(expected, dict) else range(len(expected))
        return [d for k in keys for d in differences(found[k], expected[k], f"{place}/{k}")]
    if type(found) is float and type(expected) is float:
        same = found == pytest.approx(expected, rel=2e-3, abs=1e-6)
    else:
        same = found == expected
    return [] if same else [f"{place}: {found} instead of {expected}"]


@cache
def results(program: str) -> Any:
    """What a program finds on evergrad, for each rank."""
    mpiexec()
    return once(program, lambda: _results(program))


def _results(program: str) -> Any:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        ranks = str(len(EXPECTED[program]))
        done = launched("-n", ranks, "--as-torch", str(PROGRAMS / f"{program}.py"), str(path))
        assert done.returncode == 0, done.stderr
        return json.loads(path.read_text())


@pytest.mark.parametrize(("program", "case"), CASES)
def test_results_are_those_of_pytorch(program: str, case: str) -> None:
    for rank, expected in enumerate(EXPECTED[program]):
        assert not differences(results(program)[rank][case], expected[case], f"rank {rank}")


def test_a_model_and_its_optimizer_join() -> None:
    for result in results("spellings"):
        losses, parameters = result["case_join_of_model_and_optimizer"]
        assert not differences(parameters, JOINED) and losses[2] < losses[0]
