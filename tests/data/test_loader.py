"""The loader against PyTorch's: batches, order, generators afterwards, options, errors."""

from __future__ import annotations

import pickle
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import evergrad
from evergrad.utils.data import DataLoader, TensorDataset
from twins import agree, refuse

from .programs import as_it_is, drawing, many_workers, rows, sharded
from .test_datasets import counting, squares

pytestmark = many_workers

WORKERS: list[dict[str, Any]] = [
    {},
    {"num_workers": 2},
    {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 1},
]


def epochs(ns: Any, make: Any) -> Any:
    """Some epochs of a loader, one of them broken off, and what the generators give afterwards."""
    ns.manual_seed(5)
    loader = make()
    whole = list(loader)
    partly = [batch for batch, _ in zip(loader, range(2), strict=False)]
    return whole, partly, list(loader), len(loader), ns.rand(3)


LOADERS = {
    "in order": lambda ns, **w: ns.utils.data.DataLoader(rows(ns), batch_size=3, **w),
    "drop_last": lambda ns, **w: ns.utils.data.DataLoader(rows(ns), 3, drop_last=True, **w),
    "shuffled": lambda ns, **w: ns.utils.data.DataLoader(rows(ns), 3, shuffle=True, **w),
    "one by one": lambda ns, **w: ns.utils.data.DataLoader(rows(ns), None, shuffle=True, **w),
    "subset": lambda ns, **w: ns.utils.data.DataLoader(
        ns.utils.data.random_split(rows(ns), [12, 8])[0], 5, shuffle=True, **w
    ),
    "many at a time": lambda ns, **w: ns.utils.data.DataLoader(squares(ns, 11), 4, True, **w),
    "own sampler": lambda ns, **w: ns.utils.data.DataLoader(
        rows(ns), 4, sampler=ns.utils.data.RandomSampler(rows(ns), True, 70), **w
    ),
    "weighted": lambda ns, **w: ns.utils.data.DataLoader(
        rows(ns), 4, sampler=ns.utils.data.WeightedRandomSampler(range(20), 17), **w
    ),
    "own batches": lambda ns, **w: ns.utils.data.DataLoader(
        rows(ns),
        batch_sampler=ns.utils.data.BatchSampler(
            ns.utils.data.SubsetRandomSampler(range(3, 17)), 4, True
        ),
        **w,
    ),
    "list of batches": lambda ns, **w: ns.utils.data.DataLoader(
        rows(ns), batch_sampler=[[1, 2], (3,), [0, 4, 5]], **w
    ),
    "own collating": lambda ns, **w: ns.utils.data.DataLoader(
        range(5), 2, collate_fn=as_it_is, **w
    ),
}  # fmt: skip


# Starting processes takes time: with workers, one loader of each kind is enough.
WITH_WORKERS = ["shuffled", "one by one", "own sampler", "own batches"]
CASES = [(name, WORKERS[0]) for name in LOADERS]
CASES += [(name, workers) for name in WITH_WORKERS for workers in WORKERS[1:]]


@pytest.mark.parametrize(("name", "workers"), CASES, ids=str)
def test_batches_and_the_default_generator_are_those_of_pytorch(
    name: str, workers: dict[str, Any], torch: ModuleType
) -> None:
    agree(lambda ns: epochs(ns, lambda: LOADERS[name](ns, **workers)), torch)


@pytest.mark.parametrize("workers", WORKERS, ids=str)
@pytest.mark.parametrize("replacement", [False, True])
def test_an_own_generator_is_used_as_in_pytorch(
    workers: dict[str, Any], replacement: bool, torch: ModuleType
) -> None:
    def program(ns: Any) -> Any:
        generator = ns.Generator().manual_seed(9)
        data = rows(ns)
        order: dict[str, Any] = {"shuffle": True}
        if replacement:
            sampler = ns.utils.data.RandomSampler(data, True, 90, generator=generator)
            order = {"sampler": sampler}

        def make() -> Any:
            return ns.utils.data.DataLoader(data, 4, generator=generator, **order, **workers)

        return epochs(ns, make), ns.rand(3, generator=generator)

    agree(program, torch)


@pytest.mark.parametrize("lengths", [(3, 7), (4, 0)], ids=str)
@pytest.mark.parametrize("options", [
    {"batch_size": 2}, {"batch_size": 2, "drop_last": True}, {"batch_size": None},
    {"batch_size": 3, "persistent_workers": True},
], ids=str)  # fmt: skip
def test_iterable_data_sets_shared_out_among_workers(
    lengths: Any, options: Any, torch: ModuleType
) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(5)
        loader = ns.utils.data.DataLoader(sharded(ns, lengths), num_workers=2, **options)
        return [list(loader) for _ in range(2)], ns.rand(2)

    agree(program, torch)


@pytest.mark.parametrize("options", [{"batch_size": 2}, {"batch_size": None}], ids=str)
def test_iterable_data_sets_in_one_process(options: Any, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(5)
        loader = ns.utils.data.DataLoader(sharded(ns, (5,)), **options)
        return [list(loader) for _ in range(2)], ns.rand(2)

    agree(program, torch)


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_are_seeded_as_in_pytorch(persistent: bool, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(3)
        loader = ns.utils.data.DataLoader(
            drawing(ns), 2, num_workers=2, collate_fn=as_it_is, persistent_workers=persistent
        )
        return [list(loader) for _ in range(2)]

    agree(program, torch)


def test_the_quick_way_through_tensor_data_sets_gives_the_same() -> None:
    data = TensorDataset(evergrad.randn(9, 2), evergrad.arange(9))
    quick = list(DataLoader(data, 4))
    slow = list(DataLoader(data, 4, collate_fn=lambda b: evergrad.utils.data.default_collate(b)))
    for a, b in zip(quick, slow, strict=True):
        assert type(a) is type(b) and len(a) == len(b)
        assert all((x == y).all() and x.dtype is y.dtype for x, y in zip(a, b, strict=True))


def test_tensor_data_sets_of_other_indices_go_the_usual_way(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        batches = [[slice(0, 2), slice(2, 4)], [ns.tensor(3), ns.tensor(1)], [-1, 0]]
        return list(ns.utils.data.DataLoader(rows(ns), batch_sampler=batches))

    agree(program, torch)


# -- options ------------------------------------------------------------------------------------

REFUSED: dict[str, Any] = {
    "num_workers=-1": {"num_workers": -1},
    "timeout=-1": {"timeout": -1},
    "prefetch_factor without workers": {"prefetch_factor": 2},
    "prefetch_factor=-1": {"num_workers": 1, "prefetch_factor": -1},
    "persistent without workers": {"persistent_workers": True},
    "sampler and shuffle": {"sampler": [1], "shuffle": True},
    "batch_sampler and batch_size": {"batch_sampler": [[1]], "batch_size": 2},
    "batch_sampler and shuffle": {"batch_sampler": [[1]], "shuffle": True},
    "batch_sampler and sampler": {"batch_sampler": [[1]], "sampler": [1]},
    "batch_sampler and drop_last": {"batch_sampler": [[1]], "drop_last": True},
    "drop_last without batches": {"batch_size": None, "drop_last": True},
    "batch_size=0": {"batch_size": 0},
    "batch_size=True": {"batch_size": True},
    "drop_last=3": {"drop_last": 3},
    "context without workers": {"multiprocessing_context": "fork"},
    "unknown context": {"num_workers": 1, "multiprocessing_context": "foo"},
    "context=3": {"num_workers": 1, "multiprocessing_context": 3},
}


def same_message(program: Any, torch: ModuleType) -> None:
    """Both refuse, in the same words."""
    error = refuse(program, torch)
    with pytest.raises(type(error)) as theirs:
        program(torch)
    assert str(error) == str(theirs.value)


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_in_the_words_of_pytorch(name: str, torch: ModuleType) -> None:
    same_message(lambda ns: ns.utils.data.DataLoader(range(9), **REFUSED[name]), torch)


@pytest.mark.parametrize("option", ["shuffle", "sampler", "batch_sampler"])
def test_iterable_data_sets_have_their_own_order(option: str, torch: ModuleType) -> None:
    given = {"shuffle": True, "sampler": [1], "batch_sampler": [[1]]}[option]
    same_message(
        lambda ns: ns.utils.data.DataLoader(counting(ns, 3), **{option: given}), torch
    )  # fmt: skip


def test_shuffle_false_is_allowed_for_iterable_data_sets() -> None:
    assert len(list(DataLoader(counting(evergrad, 3), shuffle=False))) == 3


def test_shuffling_nothing_is_refused(torch: ModuleType) -> None:
    same_message(lambda ns: ns.utils.data.DataLoader([], shuffle=True), torch)
    agree(lambda ns: list(ns.utils.data.DataLoader([])), torch)


@pytest.mark.parametrize("name", [
    "batch_size", "sampler", "batch_sampler", "drop_last", "dataset", "persistent_workers",
])  # fmt: skip
def test_attributes_that_are_fixed(name: str, torch: ModuleType) -> None:
    same_message(lambda ns: setattr(ns.utils.data.DataLoader(range(3)), name, 3), torch)


def test_attributes_have_pytorchs_names(torch: ModuleType) -> None:
    theirs = vars(torch.utils.data.DataLoader(range(3), num_workers=1, batch_size=2))
    public = {name: value for name, value in theirs.items() if not name.startswith("_")}
    ours = DataLoader(range(3), num_workers=1, batch_size=2)  # type: ignore[arg-type]
    for name, value in public.items():
        mine = getattr(ours, name)
        assert type(mine).__name__ == type(value).__name__, name
        if not hasattr(value, "__dict__"):
            assert mine == value, name


def test_timeout_needs_workers(torch: ModuleType) -> None:
    refuse(lambda ns: list(ns.utils.data.DataLoader(range(3), timeout=1)), torch)


def test_an_iterator_cannot_be_pickled(torch: ModuleType) -> None:
    refuse(lambda ns: pickle.dumps(iter(ns.utils.data.DataLoader(range(3)))), torch)


def test_a_loader_can_be_pickled() -> None:
    loader = pickle.loads(pickle.dumps(DataLoader(range(5), 2)))  # type: ignore[arg-type]
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4]]


# -- warnings -----------------------------------------------------------------------------------


def warnings_of(program: Any, ns: Any) -> list[str]:
    with pytest.warns(UserWarning) as caught:
        program(ns)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("device", ["", "cuda"])
def test_pinning_warns_as_in_pytorch(device: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        loader = ns.utils.data.DataLoader(range(3), pin_memory=True, pin_memory_device=device)
        return list(loader)

    assert warnings_of(program, evergrad) == warnings_of(program, torch)


def test_more_workers_than_processors_warn_as_in_pytorch(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.utils.data.DataLoader(range(3), num_workers=1000)

    assert warnings_of(program, evergrad) == warnings_of(program, torch)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterable_data_set_that_gives_more_than_it_told(workers: int, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        loader = ns.utils.data.DataLoader(counting(ns, 4, told=3), num_workers=workers)
        assert len(loader) == 3
        assert len(list(loader)) == 4 * max(1, workers)

    ours, theirs = warnings_of(program, evergrad), warnings_of(program, torch)
    assert len(ours) == len(theirs) > 0
    assert all("was reported to be 3(when" in text for text in ours)


@pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"batch_size": None}], ids=str)
def test_lengths_of_iterable_data_sets(options: Any, torch: ModuleType) -> None:
    sized = {"batch_size": 2, **options}
    agree(lambda ns: len(ns.utils.data.DataLoader(counting(ns, 5, told=5), **sized)), torch)
    refuse(lambda ns: len(ns.utils.data.DataLoader(counting(ns, 5), **sized)), torch)


def test_the_package_is_not_imported_with_evergrad() -> None:
    code = (
        "import sys, evergrad\n"
        "assert not any(n.startswith('evergrad.utils.data') for n in sys.modules)\n"
        "assert 'multiprocessing' not in sys.modules\n"
        "assert evergrad.utils.data.DataLoader\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
