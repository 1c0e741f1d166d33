"""The benchmark against peers: what it takes for equal, for quiet, and how it survives failures."""

from __future__ import annotations

import json
import math
import signal
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmark is a package of the repository, not of the wheel

from bench.peers import (  # noqa: E402
    cells,
    limits,
    machine,
    processes,
    report,
    run,
    scaling,
    shared_machine,
    summary,
    two_threads,
    worker,
    workloads,
)
from bench.peers.cells import Cell, Result, Settings, disagreement  # noqa: E402
from bench.peers.machine import Turn  # noqa: E402
from bench.peers.processes import PeerError, PeerProcess, run_python  # noqa: E402

import evergrad  # noqa: E402

REFERENCE = {1: [2.0, 10.0], 5: [1.0, 8.0]}


# -- what counts ---------------------------------------------------------------------------------


def test_equal_losses_agree_within_the_tolerance() -> None:
    assert disagreement(REFERENCE, REFERENCE) is None
    assert disagreement({1: [2.0001, 10.0], 5: [1.0005, 8.0]}, REFERENCE) is None


@pytest.mark.parametrize(
    ("step", "place", "value", "words"),
    [
        (1, 0, 2.001, "loss after 1"),
        (5, 0, 1.01, "loss after 5"),
        (1, 1, 10.1, "norm of gradient 1 after 1"),
        (5, 0, math.nan, "loss after 5: nan"),
    ],
)
def test_another_result_is_named(step: int, place: int, value: float, words: str) -> None:
    checks = {s: list(values) for s, values in REFERENCE.items()}
    checks[step][place] = value
    found = disagreement(checks, REFERENCE)
    assert found is not None and words in found


def test_a_peer_that_forgot_a_result_is_not_taken_for_equal() -> None:
    with pytest.raises(ValueError):
        disagreement({1: [2.0], 5: [1.0]}, REFERENCE)


@pytest.mark.parametrize(
    ("turn", "disturbed"),
    [
        (Turn(10, wall=1.0, cpu=0.99, foreign=0.01), False),
        (Turn(10, wall=1.0, cpu=1.9, foreign=None), False),
        (Turn(10, wall=1.0, cpu=0.99, foreign=0.2), True),  # somebody else computed
        (Turn(10, wall=1.0, cpu=0.5, foreign=0.0), True),  # we waited for a processor
        (Turn(10, wall=0.1, cpu=0.1, foreign=0.01), False),  # one tick of the kernel's clock
    ],
)
def test_turns_in_which_others_computed_are_seen(turn: Turn, disturbed: bool) -> None:
    assert turn.disturbed() is disturbed


def test_a_watch_sees_its_own_work() -> None:
    watch = machine.Watch()
    while (turn := watch.turn(1)).cpu < 0.02:
        pass
    assert 0.02 <= turn.cpu < 0.2
    assert turn.wall > 0


def timed(**seconds: float | None) -> Cell:
    results = {}
    for key, value in seconds.items():
        name = key.replace("_", " ")
        results[name] = Result(name, seconds=value, quiet_rounds=1)
    return Cell("chain", 1, results)


def test_the_ratio_is_that_to_the_best_of_the_others() -> None:
    cell = timed(evergrad_compiled=0.5, evergrad_eager=0.1, torch_eager=2.0, jax_jit=1.0)
    best = cell.best_peer()
    assert best is not None and best.peer == "jax jit"
    assert cell.ratio() == 2.0
    assert timed(evergrad_compiled=None, jax_jit=1.0).ratio() is None
    assert timed(evergrad_compiled=1.0, jax_jit=None).ratio() is None


def rounds_of(*turns: Turn) -> list[dict[str, Turn]]:
    return [{"jax jit": turn} for turn in turns]


def test_disturbed_rounds_are_thrown_away() -> None:
    result = Result("jax jit")
    quiet = rounds_of(Turn(2, 1.0, 1.0, 0.0), Turn(2, 3.0, 3.0, 0.0), Turn(2, 2.0, 2.0, 0.0))
    cells._set_median(result, quiet, rounds_of(Turn(2, 99.0, 50.0, 9.0)), Settings())
    assert (result.seconds, result.quiet_rounds, result.disturbed_rounds) == (1.0, 3, 1)


def test_without_a_quiet_round_there_is_no_time_unless_asked_for() -> None:
    disturbed = rounds_of(Turn(1, 3.0, 1.0, 9.0))
    result = Result("jax jit")
    cells._set_median(result, [], disturbed, Settings())
    assert result.seconds is None and result.status == "disturbed"
    result = Result("jax jit")
    cells._set_median(result, [], disturbed, Settings(keep_disturbed=True, clock="cpu"))
    assert result.seconds == 1.0 and result.status == "ok"


# -- peers that fail -----------------------------------------------------------------------------


def start_worker(timeout: float, **changes: Any) -> PeerProcess:
    request = {"peer": "evergrad eager", "workload": "tiny_mlp", "threads": 1, "arrays": ""}
    env = processes.environment(1, ROOT / "build")
    return PeerProcess(request | changes, env, timeout)


def test_a_peer_that_hangs_is_ended() -> None:
    process = start_worker(timeout=0.01)
    with pytest.raises(PeerError, match="no answer within") as caught:
        process.answer()
    assert caught.value.status == "timeout"
    assert process._process.poll() is not None


def test_a_peer_that_raises_tells_why() -> None:
    process = start_worker(timeout=60, workload="no such workload")
    process.answer()
    with pytest.raises(PeerError, match="KeyError: 'no such workload'") as caught:
        process.answer()
    assert caught.value.status == "failed" and "Traceback" in caught.value.trace


def test_a_peer_that_dies_tells_how() -> None:
    process = start_worker(timeout=60)
    process._process.kill()
    with pytest.raises(PeerError, match="ended with code -9") as caught:
        process.answer()
    assert caught.value.status == "died"


def test_a_framework_that_is_not_installed_is_missing() -> None:
    with pytest.raises(PeerError, match="no_such_framework") as caught:
        run_python("import no_such_framework", 60)
    assert caught.value.status == "missing"


# -- reports -------------------------------------------------------------------------------------


def test_tables_say_why_an_entry_has_no_time(tmp_path: Path) -> None:
    cell = timed(evergrad_compiled=2e-3, jax_jit=None)
    cell.results["jax jit"].refuse(PeerError("missing", "No module named 'jax'"))
    text = report.text([cell], list(cell.results), [], Settings())
    assert "2.00 ms" in text and "chain (1), jax jit: missing: No module named 'jax'" in text
    path = tmp_path / "new" / "peers.json"
    report.write_json(path, report.data([cell], [], Settings(), {}))
    (kept,) = json.loads(path.read_text())["cells"]
    assert [r["status"] for r in kept["results"]] == ["ok", "missing"]
    assert list(path.parent.iterdir()) == [path]
    assert report.read_cells(path) == [cell]


def test_ratios_of_disturbed_rounds_are_marked() -> None:
    cell = timed(evergrad_compiled=1.0, jax_jit=3.0)
    text = report.text([cell], list(cell.results), [], Settings())
    assert " 3.00 " in text and " 1.00 s " in text
    for result in cell.results.values():
        result.quiet_rounds = 0
    text = report.text([cell], list(cell.results), [], Settings())
    assert "~3.00 " in text and "~1.00 s " in text
    assert not report.data([cell], [], Settings(), {})["cells"][0]["quiet"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12.345, "12.3 s"), (1.0, "1.00 s"), (0.1234, "123 ms"), (2.5e-6, "2.50 us"), (None, "-")],
)
def test_times_have_three_digits(seconds: float | None, text: str) -> None:
    assert report.time_text(seconds) == text


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib draws the plot")
    said = report.draw(tmp_path / "peers.png", [timed(evergrad_compiled=None, jax_jit=1.0)])
    assert said.startswith("No plot") and not list(tmp_path.iterdir())


def test_installed_size_counts_requirements() -> None:
    numpy, both = machine.installed_bytes("numpy"), machine.installed_bytes("ml_dtypes")
    assert numpy is not None and both is not None and both > numpy > 1 << 20
    assert machine.installed_bytes("no-such-distribution") is None


# -- the whole -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workloads", "gpt_huge"], "no workload 'gpt_huge'; there are: lenet64"),
        (["--peers", "abacus"], "no peer 'abacus'"),
        (["--threads", "0"], "processor(s) to run threads on"),
        (["--threads", "two"], "is no list of numbers"),
        (["--rounds", "0"], "is no number of rounds"),
        (["--timeout", "-1"], "is no number of seconds"),
    ],
)
def test_wrong_options_are_explained(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run.parse(arguments)
    assert words in capsys.readouterr().err


def test_parts_stand_for_four_workloads() -> None:
    assert len(run.parse(["--workloads", "tiny_mlp,parts,part_norm"]).workloads) == 5


def test_evergrad_against_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    earlier = timed(evergrad_compiled=2e-3, jax_jit=4e-3)
    report.write_json(tmp_path / "peers.json", report.data([earlier], [], Settings(), {}))
    peers = "evergrad compiled,evergrad eager"
    code = run.main(
        ["--workloads", "tiny_mlp", "--peers", peers, "--threads", "1", "--rounds", "1",
         "--quick", "--add", "--output", str(tmp_path)]
    )  # fmt: skip
    printed = capsys.readouterr().out
    content = json.loads((tmp_path / "peers.json").read_text())
    assert report.read_cells(tmp_path / "peers.json")[1] == earlier
    assert (tmp_path / "peers.txt").read_text() in printed
    results = content["cells"][0]["results"]
    assert code == 0, printed
    assert [r["status"] for r in results] == ["ok", "ok"]
    assert all(r["seconds"] > 0 and r["first_cold"] > 0 for r in results)
    assert content["frameworks"][0]["import_seconds"] > 0
    assert "tiny_mlp (1)" in printed


def test_the_limit_of_a_step_counts_products_and_bytes() -> None:
    sizes = "gpt:layers=1,heads=1,width=16,context=8,batch=2"
    found = limits.limit_of(sizes, 1, ROOT / "build", 120)
    assert found is not None
    # Forward and backward are three products each: qkv, out, up, down and the scores of tokens.
    linear = 3 * 2 * 16 * 16 * (48 + 16 + 64 + 64 + workloads.VOCABULARY)
    assert linear < found.flops < 1.2 * linear
    assert found.nbytes > 0 and 0 < found.seconds < 1e-3


@pytest.mark.parametrize(
    ("flops", "nbytes", "seconds", "bound"), [(100, 10, 10, "products"), (10, 100, 5, "memory")]
)
def test_the_limit_is_the_longer_of_computing_and_moving(
    flops: int, nbytes: int, seconds: float, bound: str
) -> None:
    limit = limits.Limit(flops, nbytes, flops_per_second=10, bytes_per_second=20)
    assert (limit.seconds, limit.bound) == (seconds, bound)


def test_a_machine_is_as_fast_as_in_its_best_moment() -> None:
    disturbed = limits.Limit(100, 10, flops_per_second=5, bytes_per_second=20)
    other = limits.Limit(1, 1, flops_per_second=10, bytes_per_second=10)
    best = limits.at_best_rates([None, disturbed, other])(disturbed)
    assert (best.seconds, best.bytes_per_second) == (10, 20)


def test_the_means_of_a_table() -> None:
    fast = timed(evergrad_compiled=1.0, evergrad_eager=2.0, torch_eager=4.0, jax_jit=8.0)
    slow = timed(evergrad_compiled=1.0, evergrad_eager=2.0, torch_eager=1.0, jax_jit=8.0)
    slow.workload = "tiny_mlp"
    said = summary.text([fast, slow])
    assert "best peer / evergrad compiled 2.00" in said and "the least of these 1.00" in said
    assert "on the tiny ones 1.00" in said and "torch eager / evergrad eager 1.00" in said
    assert summary.geometric_mean([None]) is None


def test_two_threads_do_two_things() -> None:
    done: set[int] = set()

    def step() -> tuple[Any, ...]:
        done.add(threading.get_ident())
        time.sleep(0.01)
        return ()

    assert two_threads.rate([step, step], 0.1) > 0
    assert len(done) == 2


def test_what_two_do_is_compared_turn_by_turn() -> None:
    """Also where the machine gets slower meanwhile."""
    turns = [[4.0, 8.0, 8.0, 100.0], [2.0, 3.0, 4.0, 600.0], [1.0, 1.5, 2.0, 90.0]]
    found = two_threads.figures(turns, 10)
    near = {"turns with near cores": 2, "times with near cores": 1.75}
    assert found == {
        "one": 20.0, "two": 30.0, "times": 1.5, "least": 1.5, "times by processes": 2.0,
        "nanoseconds between cores": 100.0, **near,
    }  # fmt: skip


def test_how_far_apart_cores_are_is_measured() -> None:
    assert 1 < two_threads.latency() < 1e6


def test_a_competitor_is_busy_until_it_is_ended() -> None:
    with shared_machine.competitor() as process:
        own = shared_machine.nice_of(0)
        while process.poll() is None and shared_machine.nice_of(process.pid) == own:
            time.sleep(0.01)
        assert process.poll() is None
    assert process.poll() == -signal.SIGKILL


def test_sizes_of_a_gpt_are_told_by_its_name() -> None:
    name = scaling.workload("batch", 2)
    assert name == "gpt:layers=4,heads=4,width=128,context=64,batch=2"
    tokens, _ = workloads.build(name, evergrad).data
    assert tokens.shape == (2, 64)


@pytest.mark.parametrize("name", ["lenet1", "tiny_mlp", "gpt_tiny", "lstm", "dit"])
def test_workloads_start_as_in_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is the reference")
    own, theirs = workloads.build(name, evergrad), workloads.build(name, torch)
    assert list(own.parameters) == list(theirs.parameters)
    for mine, reference in zip(own.parameters.values(), theirs.parameters.values(), strict=True):
        np.testing.assert_allclose(mine.detach().numpy(), reference.detach().numpy(), rtol=1e-6)
    assert own.optimizer == theirs.optimizer


@pytest.mark.skipif(find_spec("jax") is None, reason="JAX, a peer, is not installed")
def test_jax_has_every_workload() -> None:
    # In another process: once imported, JAX warns of every later fork.
    code = "from bench.peers.jax_workloads import FUNCTIONS; print(*FUNCTIONS)"
    assert run_python(code, 60).split() == list(workloads.WORKLOADS)


def test_fingerprints_are_scalars_and_norms() -> None:
    values = np.random.default_rng(0).standard_normal((300, 500)).astype(np.float32)
    assert worker.fingerprint(np.float32(-2.5).reshape(())) == -2.5
    expected = np.linalg.norm(values.astype(np.float64))
    assert worker.fingerprint(values.T) == pytest.approx(expected, rel=1e-12)
    assert math.isnan(worker.fingerprint(np.array([1.0, np.nan])))


def test_an_interrupted_run_leaves_no_process_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[PeerProcess] = []

    class Interrupted(PeerProcess):
        def answer(self) -> dict[str, Any]:
            launched.append(self)
            raise KeyboardInterrupt

    monkeypatch.setattr(cells, "PeerProcess", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        cells.measure("tiny_mlp", 1, ["evergrad eager"], Settings())
    assert [process._process.poll() for process in launched] == [-signal.SIGKILL]
