"""Memory of a compiled function over many shapes: one arena, a bounded number of programs."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from tests.compiler.plans import POISON

import evergrad as eg
from evergrad import memory, nn, optim
from evergrad.compiler.runtime import arena as arena_module
from evergrad.compiler.runtime.arena import SharedArena
from evergrad.memory.ledger import LEDGER
from evergrad.nn import functional as F
from fresh_process import resident


def rolled(x: Any) -> Any:
    """A function with intermediate values in the arena."""
    return eg.cumsum(eg.cumsum(x * 2.0, 0) + 1.0, 0)


def expected(x: Any) -> Any:
    return np.cumsum(np.cumsum(x.numpy() * 2.0, 0) + 1.0, 0)


def rows(count: int) -> Any:
    return eg.arange(count * 64, dtype=eg.float64).reshape(count, 64) / 64


def peak(compiled: Any, count: int) -> int:
    return int(compiled.plan(rows(count)).peak)


# -- one arena ----------------------------------------------------------------------------------


def test_programs_of_a_function_share_an_arena_of_the_largest_need() -> None:
    compiled = eg.compile(rolled)
    compiled(rows(1))
    gc.collect()
    start = LEDGER.live - peak(compiled, 1)
    needs = []
    for count in (5, 300, 20, 301, 7):
        np.testing.assert_allclose(compiled(rows(count)).numpy(), expected(rows(count)))
        needs.append(peak(compiled, count))
        gc.collect()
        assert compiled.arena.nbytes == max(needs)
        assert LEDGER.live == start + max(needs)
    (address,) = {v.program.arena_address for known in compiled.variants.values() for v in known}
    assert address == compiled.arena.memory.ctypes.data


def test_no_program_relies_on_what_the_arena_held() -> None:
    compiled = eg.compile(rolled)
    for count in (3, 40, 3, 41, 40, 3):
        for known in compiled.variants.values():
            for variant in known:
                variant.program.arena_bytes[:] = POISON
        np.testing.assert_allclose(compiled(rows(count)).numpy(), expected(rows(count)))


def test_a_function_returns_its_memory_when_it_dies() -> None:
    gc.collect()
    start = LEDGER.live
    compiled = eg.compile(rolled)
    for count in (3, 500, 40):
        compiled(rows(count))
    assert LEDGER.live > start
    del compiled
    gc.collect()
    assert LEDGER.live == start


def test_an_arena_shrinks_when_its_largest_program_is_evicted() -> None:
    compiled = eg.compile(rolled)
    compiled.programs.max_programs = 2
    large = rows(20_000)
    compiled(large)
    before, most = resident(), peak(compiled, 20_000)
    assert compiled.arena.nbytes == most > 8 << 20
    for count in (3, 4, 5):
        compiled(rows(count))
    assert compiled.arena.nbytes == peak(compiled, 5)
    assert resident() < before - most // 2
    np.testing.assert_allclose(compiled(large).numpy(), expected(large))


def test_an_arena_beyond_the_memory_limit_leaves_the_smaller_one() -> None:
    compiled = eg.compile(rolled)
    compiled(rows(3))
    large, small = rows(50_000), rows(3)
    gc.collect()
    live = LEDGER.live
    with memory.limit(live + (4 << 20)), pytest.raises(MemoryError):
        compiled(large)
    gc.collect()
    assert LEDGER.live == live and compiled.arena.nbytes == peak(compiled, 3)
    np.testing.assert_allclose(compiled(small).numpy(), expected(small))
    np.testing.assert_allclose(compiled(large).numpy(), expected(large))


def test_without_reserved_addresses_each_program_has_an_arena(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arena_module, "_reserved", lambda: None)
    compiled = eg.compile(rolled)
    for count in (3, 400, 3, 20):
        np.testing.assert_allclose(compiled(rows(count)).numpy(), expected(rows(count)))
    assert compiled.arena.nbytes == 0
    assert compiled.programs.nbytes > peak(compiled, 400)


def test_a_need_beyond_the_reserved_addresses_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena_module, "_MOST_RESERVED", 1 << 16)
    compiled = eg.compile(rolled)
    for count in (3, 4000, 3, 20, 4000):
        np.testing.assert_allclose(compiled(rows(count)).numpy(), expected(rows(count)))
    assert compiled.arena.nbytes == peak(compiled, 20) < 1 << 16


def test_threads_call_one_function_with_several_shapes() -> None:
    compiled, wrong = eg.compile(rolled), []

    def work(counts: list[int]) -> None:
        for _ in range(20):
            for count in counts:
                if not np.allclose(compiled(rows(count)).numpy(), expected(rows(count))):
                    wrong.append(count)

    threads = [threading.Thread(target=work, args=([n, n + 100],)) for n in (2, 30, 400)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_gradients_of_two_shapes_at_once() -> None:
    """The backward programs of a function run outside of its lock."""
    weight = eg.ones(64, dtype=eg.float64, requires_grad=True)
    compiled, wrong = eg.compile(lambda x: rolled(x * weight).sum()), []

    def work(count: int) -> None:
        x = rows(count)
        (right,) = eg.autograd.grad(rolled(x * weight).sum(), weight)
        for _ in range(20):
            (found,) = eg.autograd.grad(compiled(x), weight)
            if not np.allclose(found.numpy(), right.numpy()):
                wrong.append(count)

    threads = [threading.Thread(target=work, args=(n,)) for n in (2, 150)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_derivatives_of_all_shapes_share_an_arena() -> None:
    weight = eg.ones(64, dtype=eg.float64, requires_grad=True)
    compiled = eg.compile(lambda x: rolled(x.tanh() * weight).square().sum())
    sizes, needs = [], []
    for count in (400, 50, 300, 3, 200):
        x = rows(count)
        (right,) = eg.autograd.grad(rolled(x.tanh() * weight).square().sum(), weight)
        (found,) = eg.autograd.grad(compiled(x), weight)
        np.testing.assert_allclose(found.numpy(), right.numpy())
        sizes.append(compiled.arena.for_derivatives.nbytes)
        vjp = next(reversed(list(compiled.programs))).captured.derivative.vjp
        needs.append(next(reversed(list(vjp.programs))).program.plan.peak)
        assert vjp.step_lock is compiled.arena.for_derivatives.lock is not compiled.step_lock
    assert sizes == [max(needs)] * 5 and needs[0] > needs[1] > 0


def test_an_arena_counts_programs_of_equal_need() -> None:
    shared = SharedArena()
    first, second, third = shared.arena_for(4096), shared.arena_for(4096), shared.arena_for(64)
    assert first.address == second.address == third.address and shared.nbytes == 4096
    del first
    shared.settle()
    assert shared.nbytes == 4096
    del second
    shared.settle()
    assert shared.nbytes == 64
    third.bytes[:] = 1
    del third
    shared.settle()
    assert shared.nbytes == 0 and not shared.needs
    assert shared.arena_for(64).bytes.sum() == 0  # pages were returned


def test_scratch_memory_is_shared() -> None:
    model = nn.Linear(256, 256)
    compiled = eg.compile(lambda x: model(x))
    for count in (100, 200, 300):
        compiled(eg.randn(count, 256))
    programs = [v.program for known in compiled.variants.values() for v in known]
    assert len({run.scratch.ctypes.data for p in programs for run in p.segments}) == 1
    assert all(p.nbytes < 100_000 for p in programs)


# -- a bounded number of programs ---------------------------------------------------------------


def test_the_least_recently_used_program_is_evicted() -> None:
    compiled = eg.compile(rolled)
    compiled.programs.max_programs = 3
    for count in (1, 2, 3):
        compiled(rows(count))
    first = compiled.compiled_for((rows(1),), {})[0]
    for count in (4, 5):
        compiled(rows(count))
    kept = [v for known in compiled.variants.values() for v in known]
    assert first in kept and len(kept) == len(compiled.programs) == 3
    assert set(compiled.fast_paths) <= set(kept)
    for count in (1, 2, 3, 4, 5, 6):
        np.testing.assert_allclose(compiled(rows(count)).numpy(), expected(rows(count)))
    assert len(compiled.variants) == 3


def test_programs_are_evicted_by_their_bytes() -> None:
    compiled = eg.compile(rolled)
    compiled(rows(1))
    compiled.programs.max_bytes = 3 * compiled.programs.nbytes
    for count in range(2, 12):
        compiled(rows(count))
    assert 1 <= len(compiled.programs) <= 4


def test_trim_drops_all_programs() -> None:
    memory.trim()  # what other tests have left in caches of eager mode
    gc.collect()
    start = LEDGER.live
    compiled = eg.compile(rolled)
    for count in (1, 20, 300):
        compiled(rows(count))
    memory.trim()
    gc.collect()
    assert LEDGER.live == start and not compiled.variants and not compiled.fast_paths
    assert len(compiled.programs) == 0
    np.testing.assert_allclose(compiled(rows(20)).numpy(), expected(rows(20)))


def test_trim_drops_programs_of_derivatives() -> None:
    weight = eg.ones(64, dtype=eg.float64, requires_grad=True)
    memory.trim()
    gc.collect()
    start = LEDGER.live
    compiled = eg.compile(lambda x: rolled(x.tanh() * weight).square().sum())
    for count in (40, 3, 200):
        eg.autograd.grad(compiled(rows(count)), weight)
    gc.collect()
    assert LEDGER.live > start
    memory.trim()
    gc.collect()
    assert LEDGER.live == start
    eg.autograd.grad(compiled(rows(5)), weight)


def test_trim_leaves_a_function_alone_that_runs_in_another_thread() -> None:
    compiled = eg.compile(rolled)
    compiled(rows(3))
    with compiled.step_lock:
        trimmer = threading.Thread(target=memory.trim)
        trimmer.start()
        trimmer.join(30)
        assert not trimmer.is_alive() and len(compiled.programs) == 1


def test_trim_within_a_step() -> None:
    def step(x: Any) -> Any:
        memory.trim()
        return rolled(x)

    compiled = eg.compile(step)
    for count in (3, 4, 3):
        np.testing.assert_allclose(compiled(rows(count)).numpy(), expected(rows(count)))


def test_older_programs_keep_no_lowering_and_are_explained_all_the_same() -> None:
    compiled = eg.compile(rolled)
    for count in range(1, 12):
        compiled(rows(count))
    lowered = [v for known in compiled.variants.values() for v in known
               if v.program.executable.lowering is not None]  # fmt: skip
    assert len(lowered) <= 5
    assert "cumsum" in str(compiled.explain(rows(1)))
    np.testing.assert_allclose(compiled(rows(1)).numpy(), expected(rows(1)))


@pytest.mark.filterwarnings("ignore:.*shapes of x")
def test_sixty_batch_sizes_of_a_training_step() -> None:
    """Results as in eager mode; memory that of the largest program and small change."""
    eg.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1))
    twin = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1))
    twin.load_state_dict(model.state_dict())

    def stepper(model: Any) -> Any:
        optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    compiled, eager = eg.compile(stepper(model)), stepper(twin)
    compiled.programs.max_programs = 16
    live = 0
    for count in [60, *range(1, 60)]:
        x, y = eg.randn(count, 32), eg.randn(count, 1)
        np.testing.assert_allclose(compiled(x, y).item(), eager(x, y).item(), rtol=1e-4)
        del x, y
        if count == 60:
            gc.collect()
            live = LEDGER.live
    gc.collect()
    assert LEDGER.live <= live + (1 << 16)
    assert len(compiled.programs) == 16


@pytest.mark.filterwarnings("ignore:.*shapes of")
def test_small_shapes_that_do_not_recur_are_run_by_python() -> None:
    """As of a cache of keys that grows; programs are planned for those that recur after all."""
    compiled = eg.compile(lambda held, x: eg.cat([held, x.sin()]))
    kinds, held = [], eg.zeros(1)
    for n in range(40):
        x = eg.full((1,), float(n))
        expected = [*held.tolist(), x.sin().item()]
        held = compiled(held, x)
        np.testing.assert_allclose(held.tolist(), expected, rtol=1e-6)
        kinds.append(compiled.last_call.kind)
    assert kinds == ["whole"] * 32 + ["eager"] * 8
    assert "new at nearly every call" in compiled.last_call.reason
    kinds = []
    for _ in range(4):
        compiled(eg.zeros(40), eg.zeros(1))
        kinds.append(compiled.last_call.kind)
    assert kinds == ["eager", "eager", "whole", "whole"]
    compiled(eg.zeros(3), eg.zeros(1))
    assert compiled.last_call.kind == "whole"


@pytest.mark.filterwarnings("ignore:.*shapes of")
@pytest.mark.parametrize("options", [{"fullgraph": True}, {"check_finite": True}])
def test_functions_with_checks_have_programs_for_all_shapes(options: dict[str, bool]) -> None:
    compiled = eg.compile(lambda x: x * 2, **options)
    for n in range(1, 36):
        compiled(eg.ones(n))
        assert compiled.last_call.kind == "whole"
