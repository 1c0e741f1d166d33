"""The pool: memory is recycled, never while anything can reach it, and given back on request."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import evergrad as eg
from evergrad import config, memory
from evergrad.memory import pool
from evergrad.memory.ledger import LEDGER
from fresh_process import resident

FLOAT32 = np.dtype(np.float32)
LARGE = (256, 1024)  # 1 MiB of float32
MIB = 1 << 20


@pytest.fixture(autouse=True)
def empty_pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    gc.collect()
    monkeypatch.setattr(config, "POISON", False)
    memory.trim()
    yield
    memory.trim()


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def stands_on_a_block(array: Any) -> bool:
    while isinstance(array, np.ndarray) and not isinstance(array, pool.Block):
        array = array.base
    return isinstance(array, pool.Block)


linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


# -- recycling ----------------------------------------------------------------------------------


@linux
def test_what_a_size_is_rounded_up_by_takes_no_memory() -> None:
    """Huge pages end where the array does."""
    nbytes = 41 * MIB + 8192  # comes from the size of 44 MiB
    before = resident()
    array = pool.empty((nbytes,), np.dtype(np.uint8))
    array[:] = 1
    assert resident() - before < nbytes + MIB // 4


def test_memory_is_used_again() -> None:
    first = pool.empty(LARGE, FLOAT32)
    place = address(first)
    del first
    assert LEDGER.pooled == MIB
    second = pool.empty((1024, 256), FLOAT32)
    assert address(second) == place
    assert LEDGER.pooled == 0


def test_an_allocator_gives_what_empty_gives() -> None:
    for shape in [LARGE, (3, 4), (), (0, 5)]:
        array = pool.allocator(shape, FLOAT32)()
        assert array.shape == shape and array.dtype == FLOAT32 and array.flags.writeable
    del array
    allocate = pool.allocator(LARGE, FLOAT32)
    place = address(allocate())
    assert address(allocate()) == place


@pytest.mark.parametrize(
    "type", [np.float32, np.float64, np.int64, np.bool_, np.complex64, ml_dtypes.bfloat16]
)
def test_all_element_types(type: Any) -> None:
    array = pool.empty((400, 500), np.dtype(type))
    array[...] = 1
    assert array.dtype == type and array.flags.c_contiguous and bool((array == 1).all())


def test_blocks_are_aligned() -> None:
    held = [pool.empty((n,), FLOAT32) for n in range(40_000, 90_000, 3_333)]
    assert all(address(array) % 64 == 0 for array in held)


def test_small_and_empty_arrays_are_left_to_numpy() -> None:
    for shape in [(), (0,), (3, 0, 5), (100, 100)]:
        assert pool.empty(shape, FLOAT32).base is None


def test_size_classes_lose_at_most_an_eighth_and_are_few() -> None:
    sizes = range(config.POOL_MIN_BYTES, 4 * MIB, 997)
    classes = [pool._size_class(n) for n in sizes]
    assert all(n <= c <= 1.125 * n + 1 for n, c in zip(sizes, classes, strict=True))
    assert all(c % 4096 == 0 for c in classes)
    assert classes == sorted(classes) and len(set(classes)) <= 8 * 6
    assert all(pool._size_class(c) == c for c in set(classes))


# -- what can be reached is not handed out --------------------------------------------------------


VIEWS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda a: a[3:5, ::2],
    "transpose": lambda a: a.T,
    "reshape": lambda a: a.reshape(-1),
    "view of a view": lambda a: a[1:].reshape(-1)[5:],
    "other type": lambda a: a.view(np.uint8),
    "subclass": lambda a: a.view(np.matrix),
    "memory view": lambda a: memoryview(a),
    "broadcast": lambda a: np.broadcast_to(a, (2, *a.shape)),
    "strided": lambda a: np.lib.stride_tricks.as_strided(a, (5,), (8,)),
    "flat": lambda a: a.flat,
    "base": lambda a: a.base,
    "slice of the base": lambda a: a.base[10:20],
}


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_keeps_its_block(name: str) -> None:
    array = pool.empty(LARGE, FLOAT32)
    place = address(array)
    view = VIEWS[name](array)
    del array
    assert LEDGER.pooled == 0
    other = pool.empty(LARGE, FLOAT32)
    assert address(other) != place
    del view
    assert LEDGER.pooled == MIB
    assert address(pool.empty(LARGE, FLOAT32)) == place


def test_what_numpy_derives_from_a_block_returns_nothing() -> None:
    array = pool.empty(LARGE, FLOAT32)
    for derive in [np.copy, np.negative, lambda b: b[5:], lambda b: b.reshape(2, -1), np.sort]:
        derived = derive(array.base)
        del derived
        assert LEDGER.pooled == 0


def test_exported_arrays_outlive_their_tensors() -> None:
    tensor = eg.ones(LARGE) + 1
    exported = tensor.numpy()
    part = exported[10:20]
    del tensor, exported
    others = [eg.ones(LARGE) * 7 for _ in range(4)]
    assert (part == 2).all()
    del others


def test_a_view_tensor_keeps_its_base() -> None:
    row = (eg.ones(LARGE) + 1)[3]
    others = [eg.ones(LARGE) * 7 for _ in range(4)]
    assert (row == 2).all()
    del others


# -- the cap ------------------------------------------------------------------------------------


def test_the_cap_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "POOL_CAP_BYTES", 3 * MIB)
    held = [pool.empty(LARGE, FLOAT32) for _ in range(8)]
    del held
    assert LEDGER.pooled == 3 * MIB


def test_a_cap_of_zero_turns_the_pool_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "POOL_CAP_BYTES", 0)
    held = [pool.empty(LARGE, FLOAT32) for _ in range(3)]
    del held
    assert LEDGER.pooled == 0


def test_idle_sizes_make_room_for_those_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of batch size must not leave the pool full of what nobody wants any more."""
    monkeypatch.setattr(config, "POOL_CAP_BYTES", 4 * MIB)
    held = [pool.empty(LARGE, FLOAT32) for _ in range(4)]
    del held
    assert LEDGER.pooled == 4 * MIB
    other = pool.empty((2 * 256, 1024), FLOAT32)
    assert LEDGER.pooled == 2 * MIB
    place = address(other)
    del other
    assert LEDGER.pooled == 4 * MIB
    assert address(pool.empty((2 * 256, 1024), FLOAT32)) == place


def test_the_environment_sets_the_cap() -> None:
    code = "from evergrad import config; print(config.POOL_CAP_BYTES)"
    assert run(code, EVERGRAD_POOL_BYTES="12345").strip() == "12345"


# -- giving back --------------------------------------------------------------------------------


def test_trim_tells_what_it_released() -> None:
    held = [pool.empty(LARGE, FLOAT32) for _ in range(3)]
    del held
    assert memory.trim() == 3 * MIB
    assert LEDGER.pooled == 0
    assert memory.trim() == 0


@linux
def test_trim_gives_pages_back() -> None:
    gc.collect()
    start = resident()
    held = [eg.ones(LARGE) + 1 for _ in range(64)]
    full = resident()
    assert full - start > 60 * MIB
    del held
    assert resident() > full - 4 * MIB  # kept for reuse
    memory.trim()
    assert resident() < start + 4 * MIB


@linux
def test_a_warm_step_takes_no_new_pages() -> None:
    import resource

    a, b = eg.ones(LARGE), eg.ones(LARGE)

    def step() -> Any:
        return ((a + b) * a).tanh() - b

    def faults() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    for _ in range(3):
        step()
    before = faults()
    for _ in range(20):
        step()
    pages_of_results = 20 * 4 * MIB // 4096
    assert faults() - before < pages_of_results // 50


def test_memory_the_system_refuses_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        pool.empty((1 << 55,), FLOAT32)


def test_the_pool_is_emptied_before_giving_up(monkeypatch: pytest.MonkeyPatch) -> None:
    held = pool.empty(LARGE, FLOAT32)
    del held
    real, calls = pool._map, []

    def refusing(size: int, nbytes: int) -> Any:
        calls.append(LEDGER.pooled)
        if LEDGER.pooled:
            raise MemoryError
        return real(size, nbytes)

    monkeypatch.setattr(pool, "_map", refusing)
    assert pool.empty((2 * 256, 1024), FLOAT32).shape == (512, 1024)
    assert calls == [MIB, 0]


# -- poison -------------------------------------------------------------------------------------


def test_released_memory_is_poisoned() -> None:
    with memory.poison(True):
        for shape in [LARGE, (7,)]:
            array = pool.empty(shape, np.dtype(np.uint8))
            array.fill(1)
            raw = array.base.base  # the memory itself, which no tensor ever hands out
            del array
            assert set(bytes(raw)) == {0xA5}


def test_poison_is_a_switch_and_a_context() -> None:
    assert not config.POISON
    with memory.poison():
        assert config.POISON
        with memory.poison(False):
            assert not config.POISON
        assert config.POISON
    assert not config.POISON
    memory.poison(True)
    assert config.POISON
    memory.poison(False)
    assert not config.POISON


def train(steps: int = 3) -> list[Any]:
    """A bit of everything: products, views, in-place writes, reductions, two derivatives."""
    eg.manual_seed(7)
    w = eg.randn(6, 5).requires_grad_()
    v = eg.randn(5, 4).requires_grad_()
    found: list[Any] = []
    for _ in range(steps):
        x = eg.randn(8, 6)
        h = (x @ w).tanh() * 1.5
        h[1:3] = h[3:5] * 2
        h = h.t().reshape(5, 8).t()
        scores = (h @ v).log_softmax(1)
        loss = -(scores[:, 1:3] * scores.softmax(0)[:, :2]).mean() + (h * h).sum().sqrt()
        (g,) = eg.autograd.grad(loss, w, create_graph=True)
        (loss + (g * g).sum()).backward()
        with eg.no_grad():
            for p in (w, v):
                p -= 0.1 * p.grad
                p.grad = None
        found += [loss.item(), w.detach().clone().numpy(), v.detach().clone().numpy()]
    return found


def test_poison_changes_no_result() -> None:
    plain = train()
    with memory.poison():
        poisoned = train()
        assert stands_on_a_block((eg.ones(3) + 1).numpy())
    for a, b in zip(plain, poisoned, strict=True):
        np.testing.assert_array_equal(a, b)


def test_poison_from_the_environment() -> None:
    code = (
        "import evergrad as eg; from evergrad.memory.ledger import LEDGER\n"
        "x = eg.ones(3).requires_grad_(); (x * 2).exp().sum().backward()\n"
        "print(LEDGER.pooled > 0, x.grad.isfinite().all().item())"
    )
    assert run(code, EVERGRAD_POISON="1").strip() == "True True"


# -- threads, processes, the end ------------------------------------------------------------------


def test_threads_share_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "POOL_CAP_BYTES", 6 * MIB)
    faults: list[str] = []
    switch = sys.getswitchinterval()

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        held: list[Any] = []
        for _ in range(400):
            array = pool.empty((int(rng.integers(1, 4)) * 128, 512), FLOAT32)
            array.fill(number)
            held.append(array)
            if len(held) > 3:
                gone = held.pop(int(rng.integers(3)))
                if not (gone == number).all():
                    faults.append(f"thread {number} found what another one wrote")
            if LEDGER.pooled > 6 * MIB:
                faults.append("the cap was broken")

    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert not faults
    assert LEDGER.pooled == sum(s * len(free) for s, free in pool._free.items())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_child_process_writes_to_its_own_memory() -> None:
    array = pool.empty(LARGE, FLOAT32)
    array.fill(1)
    child = os.fork()
    if child == 0:
        array.fill(2)
        os._exit(0)
    os.waitpid(child, 0)
    assert (array == 1).all()


def test_the_interpreter_ends_quietly() -> None:
    code = (
        "import evergrad as eg\n"
        "x = eg.ones(400, 400).requires_grad_()\n"
        "y = (x @ x).tanh(); y.sum().backward()\n"
        "import evergrad; evergrad.kept = [x, y, x.grad, y.detach().numpy()]\n"
        "class Cycle: pass\n"
        "c = Cycle(); c.c = c; c.kept = [x * 2, y]\n"
        "print('end')"
    )
    assert run(code) == "end\n"


def run(code: str, **environment: str) -> str:
    """The output of a program of its own; anything on its error stream is a failure."""
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout
