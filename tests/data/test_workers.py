"""Worker processes: what reaches the caller, by which way, and what they know of themselves."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from evergrad.utils.data._utils import shared

from .programs import as_it_is, many_workers

pytestmark = many_workers


class Numbers(Dataset[int]):
    """The numbers below ten, given by a function of the index."""

    def __init__(self, function: Any, count: int = 10) -> None:
        self.function = function
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.function(index)


def loaded(function: Any, count: int = 10, **options: Any) -> list[Any]:
    options = {"num_workers": 2, "collate_fn": as_it_is, "batch_size": None, **options}
    return list(DataLoader(Numbers(function, count), **options))


def test_workers_know_themselves() -> None:
    def facts(index: int) -> Any:
        info = get_worker_info()
        assert info is not None and type(info.dataset) is Numbers
        return info.id, info.num_workers, os.getpid(), evergrad.get_num_threads()

    assert get_worker_info() is None
    found = loaded(facts)
    assert [f[:2] for f in found] == [(i % 2, 2) for i in range(10)]
    assert len({f[2] for f in found} | {os.getpid()}) == 3
    assert {f[3] for f in found} == {1}
    assert get_worker_info() is None


def test_worker_info_cannot_be_changed() -> None:
    def change(index: int) -> str:
        info: Any = get_worker_info()
        try:
            info.id = 5
        except AttributeError as error:
            return f"{info.id} {error}"
        return "changed"

    assert loaded(change, 1, num_workers=1) == ["0 cannot assign to field 'id'"]


def test_init_function_runs_once_in_each_worker() -> None:
    seen: list[int] = []
    found = loaded(lambda index: list(seen), worker_init_fn=seen.append)
    assert found == [[i % 2] for i in range(10)]
    assert seen == []


def test_large_products_run_in_workers() -> None:
    a = evergrad.randn(300, 300)
    expected = (a @ a).sum().item()  # the threads of BLAS exist before the fork
    found = loaded(lambda index: (a @ a).sum().item(), 4)
    assert found == pytest.approx([expected] * 4, rel=1e-3)


@pytest.mark.parametrize("size", [200, 300], ids=["on one thread", "on several threads"])
def test_products_in_a_thread_of_the_parent_do_not_hold_up_workers(size: int) -> None:
    a = evergrad.randn(size, size)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            a @ a

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(3):
            assert len(loaded(lambda index: (a @ a).shape[0], 4)) == 4
    finally:
        stop.set()
        thread.join()


def test_out_of_order_batches_come_as_they_are_made() -> None:
    def slow_at_first(index: int) -> int:
        time.sleep(0.4 if index == 0 else 0)
        return index

    found = loaded(slow_at_first, 6, in_order=False)
    assert sorted(found) == list(range(6)) and found[0] != 0
    assert loaded(slow_at_first, 6) == list(range(6))


def test_out_of_order_iterable_data_sets_end() -> None:
    class Halves(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            info: Any = get_worker_info()
            return iter(range(info.id, 9, 4) if info.id else range(0, 9, 2))

    loader = DataLoader(Halves(), None, num_workers=2, in_order=False)
    assert sorted(loader) == [0, 1, 2, 4, 5, 6, 8]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_start_methods(method: str) -> None:
    data = evergrad.utils.data.TensorDataset(evergrad.randn(6, 10_000), evergrad.arange(6))
    loader = DataLoader(data, 2, num_workers=1, multiprocessing_context=method)
    found = list(loader)
    assert [b[1].tolist() for b in found] == [[0, 1], [2, 3], [4, 5]]
    assert all((b[0] == data.tensors[0][b[1]]).all() for b in found)


def test_two_loaders_at_once_and_one_inside_the_other() -> None:
    first = DataLoader(range(6), 2, num_workers=1)  # type: ignore[arg-type]
    second = DataLoader(range(4), 2, num_workers=1)  # type: ignore[arg-type]
    pairs = [(a.tolist(), b.tolist()) for a in first for b in second]
    assert len(pairs) == 6 and pairs[-1] == ([4, 5], [2, 3])


def test_persistent_workers_are_the_same_processes() -> None:
    pids = Numbers(lambda index: os.getpid(), 4)
    loader = DataLoader(pids, None, num_workers=2, persistent_workers=True)
    first = list(loader)
    next(iter(loader))  # an epoch that is broken off
    assert list(loader) == first
    del loader
    gc.collect()


def test_stale_batches_of_a_broken_epoch_are_not_given_out() -> None:
    loader = DataLoader(
        Numbers(lambda index: evergrad.full((5000,), float(index))),
        None, num_workers=2, persistent_workers=True, prefetch_factor=3,
    )  # fmt: skip
    for _ in range(3):
        for expected, batch in zip(range(3), loader, strict=False):
            assert batch[0] == expected
    assert [int(batch[0]) for batch in loader] == list(range(10))


# -- exceptions ---------------------------------------------------------------------------------


class OwnError(Exception):
    pass


class OfTwoError(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(first, second)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("boo"), ValueError),
        (KeyError("boo"), KeyError),
        (OwnError("boo"), OwnError),
        (OfTwoError(1, 2), RuntimeError),
        (UnicodeDecodeError("utf8", b"a", 0, 1, "boo"), RuntimeError),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_exceptions_reach_the_caller_as_in_pytorch(
    error: Exception, kind: type[Exception], torch: ModuleType
) -> None:
    def fail(index: int) -> Any:
        if index == 1:
            raise error
        return index

    def outcome(ns: Any) -> list[str]:
        iterator = iter(ns.utils.data.DataLoader(Numbers(fail, 2), None, num_workers=1))
        assert next(iterator) == 0
        with pytest.raises(kind) as caught:
            next(iterator)
        with pytest.raises(StopIteration):  # PyTorch takes 5 seconds to end what is left halfway
            next(iterator)
        assert type(caught.value) is kind
        lines = str(caught.value).splitlines()
        return [lines[0], lines[1], lines[-1]]

    assert outcome(evergrad) == outcome(torch)
    assert outcome(evergrad)[0] == f"Caught {type(error).__name__} in DataLoader worker process 0."


def test_the_message_shows_the_line_that_failed() -> None:
    with pytest.raises(ZeroDivisionError, match=r"lambda index: 1 // index"):
        loaded(lambda index: 1 // index)


def test_an_iterator_goes_on_behind_an_exception() -> None:
    def fail(index: int) -> int:
        if index == 2:
            raise KeyError("two")
        return index

    iterator = iter(DataLoader(Numbers(fail, 5), None, num_workers=1))
    found: list[Any] = []
    for _ in range(5):
        try:
            found.append(next(iterator))
        except KeyError as error:
            found.append("KeyError")
            assert "\n" in repr(error)  # shown with its line breaks
    assert found == [0, 1, "KeyError", 3, 4]
    with pytest.raises(StopIteration):
        next(iterator)


def test_a_local_exception_class_becomes_a_runtime_error() -> None:
    class LocalError(Exception):
        pass

    def fail(index: int) -> int:
        raise LocalError("here")

    with pytest.raises(RuntimeError, match="Caught LocalError"):
        loaded(fail)


def test_a_batch_that_cannot_be_sent_is_an_error() -> None:
    with pytest.raises(Exception, match=r"Caught .*in DataLoader worker process"):
        loaded(lambda index: threading.Lock())


def test_a_failing_init_function() -> None:
    def init(worker: int) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="Caught ValueError in DataLoader worker process 0"):
        loaded(lambda index: index, worker_init_fn=init)


def test_a_failing_iter_is_told() -> None:
    class Broken(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            raise OSError("no such stream")

    with pytest.raises(OSError, match="no such stream"):
        list(DataLoader(Broken(), num_workers=1))


def test_a_killed_worker_is_named() -> None:
    def die(index: int) -> int:
        if index == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return index

    loader = DataLoader(Numbers(die), None, num_workers=2)
    iterator: Any = iter(loader)
    pids = [process.pid for process in iterator._pool.processes]
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match=rf"pid\(s\) {pids[1]}\) exited unexpectedly") as caught:
        list(iterator)
    assert "SIGKILL" in str(caught.value)
    assert time.monotonic() - begin < 4
    with pytest.raises(RuntimeError, match="have ended"):
        next(iterator)


def test_a_worker_that_exits_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"exited unexpectedly \(exit code 3\)"):
        loaded(lambda index: os._exit(3))


def test_persistent_workers_start_anew_after_a_death(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    def die_once(index: int) -> int:
        if index == 1 and not mark.exists():
            mark.touch()
            os._exit(1)
        return index

    loader = DataLoader(Numbers(die_once, 4), None, num_workers=1, persistent_workers=True)
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        list(loader)
    assert list(loader) == [0, 1, 2, 3]


def test_timeout_is_kept() -> None:
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.3 seconds"):
        loaded(lambda index: time.sleep(60), timeout=0.3)
    assert time.monotonic() - begin < 20


def test_a_loader_with_time_enough_does_not_time_out() -> None:
    assert loaded(lambda index: index, timeout=30) == list(range(10))


# -- memory -------------------------------------------------------------------------------------


def big(index: int) -> evergrad.Tensor:
    return evergrad.full((64, 1024), float(index))


def test_batches_are_shared_memory_that_may_be_written() -> None:
    found = loaded(big, 4)
    for index, batch in enumerate(found):
        assert batch.is_shared() and batch[0, 0] == index
        batch.add_(1)
    assert [int(batch[-1, -1]) for batch in found] == [1, 2, 3, 4]


def test_only_what_is_not_an_array_goes_through_the_pipe() -> None:
    packer = shared.Packer()
    parcel = packer.pack({"a": big(1), "b": [np.ones((40, 40)), "text"]})
    assert len(parcel.body) + len(parcel.inline) < 1500
    assert sum(parcel.lengths) == 64 * 1024 * 4 + 40 * 40 * 8


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "complex64", "bool"])
def test_all_element_types_stay_out_of_the_pipe(kind: str) -> None:
    value = evergrad.ones(64, 1024).to(getattr(evergrad, kind))
    assert len(shared.Packer().pack(value).body) < 1500
    (found,) = loaded(lambda index: value, 1)
    assert found.dtype is value.dtype and found.shape == value.shape
    assert (found == value).all()


def test_values_of_all_kinds_arrive() -> None:
    base = evergrad.arange(10_000.0).reshape(100, 100)
    values = [
        base.t(), base[3:, ::2], base.int(), np.asfortranarray(base.numpy()), np.arange(5),
        evergrad.ones(3, requires_grad=True), evergrad.tensor(3), evergrad.ones(0, 5),
        {"a": (1, "text", None)}, np.array(["a", None], dtype=object), b"x" * 100_000,
    ]  # fmt: skip
    found = loaded(lambda index: values[index], len(values))
    for sent, got in zip(values, found, strict=True):
        assert type(sent) is type(got)
        if isinstance(sent, evergrad.Tensor):
            assert sent.dtype is got.dtype and sent.requires_grad == got.requires_grad
            assert sent.shape == got.shape and (sent == got).all()
        elif isinstance(sent, np.ndarray):
            np.testing.assert_array_equal(sent, got)
        else:
            assert sent == got


def test_tensors_on_one_storage_still_share_it() -> None:
    def halves(index: int) -> Any:
        whole = evergrad.zeros(20_000)
        return whole, whole[10_000:]

    ((whole, half),) = loaded(halves, 1)
    half.fill_(1)
    assert whole.sum() == 10_000


def test_slots_are_used_again() -> None:
    iterator: Any = iter(DataLoader(Numbers(big, 200), None, num_workers=1))
    addresses = {batch.data_ptr() for batch in iterator}
    assert len(addresses) <= 6  # two made ahead, one held, and what has not been told yet


def test_batches_that_are_kept_are_not_overwritten() -> None:
    kept = loaded(big, 150)
    assert [int(batch[5, 5]) for batch in kept] == list(range(150))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc/self/fd to count in")
def test_batches_that_are_kept_do_not_use_up_descriptors() -> None:
    before = len(os.listdir("/proc/self/fd"))
    kept = loaded(big, 150)
    assert len(kept) == 150
    assert len(os.listdir("/proc/self/fd")) < before + 8


def test_a_view_keeps_its_slot() -> None:
    iterator = iter(DataLoader(Numbers(big, 60), None, num_workers=1))
    views = []
    for batch in iterator:
        views.append(batch[1:3, 4:6].numpy())
        del batch
    assert [int(view[0, 0]) for view in views] == list(range(60))


def test_without_descriptors_batches_go_through_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_CAN_SHARE", False)
    found = loaded(big, 6)
    assert [int(batch[5, 5]) for batch in found] == list(range(6))
    assert not found[0].is_shared()
    found[0].add_(1)


def test_tasks_and_batches_too_large_for_a_pipe_do_not_wait_for_each_other() -> None:
    indices = list(range(300_000))
    loader = DataLoader(
        Numbers(lambda index: index, len(indices)),
        batch_sampler=[indices] * 4, collate_fn=lambda batch: bytes(3_000_000), num_workers=1,
    )  # fmt: skip
    assert [len(batch) for batch in loader] == [3_000_000] * 4


def test_a_forked_data_set_is_not_pickled() -> None:
    class Unpicklable(Numbers):
        def __reduce__(self) -> Any:
            raise pickle.PicklingError("must not be copied")

    loader = DataLoader(Unpicklable(lambda index: index, 3), None, num_workers=1)
    assert list(loader) == [0, 1, 2]
