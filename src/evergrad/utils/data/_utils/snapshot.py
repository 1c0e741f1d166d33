"""The position of a loader, in plain values that can be saved, and how to get there again.

An epoch is described by the states of its random generators when it began and by how many batches
have been given out since. Batches that workers have made ahead do not count: they are made again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evergrad.core.rng.default_generator import Generator, get_rng_state

if TYPE_CHECKING:
    from evergrad.core.types import Leaves
    from evergrad.utils.data.dataloader import DataLoader

VERSION = 1

State = dict[str, Any]


def new_worker(random: object = None) -> State:
    """The record of a worker that begins an epoch, with its generators perhaps at some point."""
    return {
        "batches": 0,
        "ended": False,
        "dataset": None,
        "random": random,
        "random_at_start": random,
    }


@dataclass
class Progress:
    """How far an epoch has come: how it began, and what has been given out since."""

    base_seed: int
    generators: Leaves
    default_generator: object
    sampler_epoch: int | None
    workers: list[State]
    batches: int = 0
    last_worker: int = -1
    sampler: Any = None
    finished: bool = field(default=False)

    @classmethod
    def begin(cls, loader: DataLoader[object], base_seed: int) -> Progress:
        """At the beginning of an epoch, before the sampler has drawn anything."""
        return cls(
            base_seed=base_seed,
            generators=[generator.get_state() for generator in generators_of(loader)],
            default_generator=get_rng_state(),
            sampler_epoch=_sampler_epoch(loader),
            workers=[new_worker() for _ in range(max(1, loader.num_workers))],
        )

    @classmethod
    def resumed(cls, state: State, loader: DataLoader[object]) -> Progress:
        """Where a snapshot was taken."""
        state = copy.deepcopy(state)
        workers = state["workers"]
        if len(workers) != max(1, loader.num_workers):  # allowed where order is all that counts
            workers = [new_worker() for _ in range(max(1, loader.num_workers))]
        return cls(
            base_seed=state["base_seed"],
            generators=state["generators"],
            default_generator=state["default_generator"],
            sampler_epoch=state["sampler_epoch"],
            workers=workers,
            batches=state["batches"],
            last_worker=state["last_worker"],
            sampler=state["sampler"],
        )

    def advance(self, worker: int, sampler: object, ended: bool, dataset: object = None) -> None:
        """A batch of a worker has been given out, or the error that came in its place."""
        self.batches += 1
        self.last_worker = worker
        self.sampler = sampler
        record = self.workers[worker]
        record["batches"] += 1
        record["ended"] = ended
        record["dataset"] = dataset


# -- taking a snapshot --------------------------------------------------------------------------


def take(loader: DataLoader[object], progress: Progress | None, keeps_workers: bool) -> State:
    """The state of a loader: in the middle of an epoch, or between two of them.

    ``keeps_workers`` says that the workers of the last epoch are those of the next.
    """
    if progress is None or progress.finished:
        state = _between_epochs(loader, progress if keeps_workers else None)
    else:
        state = _within_epoch(loader, progress)
    return {"version": VERSION, "num_workers": loader.num_workers, **copy.deepcopy(state)}


def _within_epoch(loader: DataLoader[object], progress: Progress) -> State:
    state = {name: value for name, value in vars(progress).items() if name != "finished"}
    if loader.num_workers == 0:
        state["workers"] = [{**progress.workers[0], "dataset": dataset_state(loader)}]
    return {"within_epoch": True, **state}


def _between_epochs(loader: DataLoader[object], kept: Progress | None) -> State:
    sampler = stateful_sampler(loader)
    workers = [] if kept is None else kept.workers
    return {
        "within_epoch": False,
        "base_seed": None if kept is None else kept.base_seed,
        "generators": [generator.get_state() for generator in generators_of(loader)],
        "sampler_epoch": _sampler_epoch(loader),
        "sampler": None if sampler is None else sampler.state_dict(),
        "workers": [new_worker(worker["random"]) for worker in workers],
    }


def dataset_state(loader: DataLoader[object]) -> Any:
    """The state of an iterable data set, if it has one."""
    tell = getattr(loader.dataset, "state_dict", None)
    return tell() if loader._is_iterable and callable(tell) else None


# -- going back to one --------------------------------------------------------------------------


def check(state: object, loader: DataLoader[object]) -> None:
    """Refuse a state that is none, or that this loader cannot continue from."""
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise ValueError(
            "load_state_dict expects what DataLoader.state_dict() returned "
            f"(version {VERSION}), but got {_short(state)}"
        )
    count = len(generators_of(loader))
    if len(state["generators"]) != count:
        raise ValueError(
            f"the state is of a loader with {len(state['generators'])} generators, but this one "
            f"has {count}; give the same generator= arguments to the loader and its sampler"
        )
    if state["within_epoch"] and loader._is_iterable and state["num_workers"] != loader.num_workers:
        raise ValueError(
            f"the state is of a loader with num_workers={state['num_workers']}, but this one has "
            f"num_workers={loader.num_workers}; an IterableDataset is shared out among its "
            "workers and can only be continued with as many"
        )


def _short(state: object) -> str:
    return f"a dict with {sorted(map(str, state))[:5]}" if isinstance(state, dict) else repr(state)


def restore(state: State, loader: DataLoader[object]) -> None:
    """Set generators and sampler to where they stood when the epoch began."""
    for generator, former in zip(generators_of(loader), state["generators"], strict=True):
        generator.set_state(former)
    for sampler in _samplers(loader):
        if state["sampler_epoch"] is not None and hasattr(sampler, "set_epoch"):
            sampler.set_epoch(state["sampler_epoch"])
    sampler = stateful_sampler(loader)
    if sampler is not None and state["sampler"] is not None:
        sampler.load_state_dict(copy.deepcopy(state["sampler"]))


# -- the parts of a loader that have a state ----------------------------------------------------


def _samplers(loader: DataLoader[object]) -> Iterator[object]:
    """The sampler the loader asks, the one that asks in turn, and so on."""
    sampler = loader._index_sampler
    while sampler is not None:
        yield sampler
        sampler = getattr(sampler, "sampler", None)


def generators_of(loader: DataLoader[object]) -> list[Generator]:
    """The generators given to a loader and its samplers, each once."""
    given = [loader.generator, *(getattr(s, "generator", None) for s in _samplers(loader))]
    found = {id(g): g for g in given if isinstance(g, Generator)}
    return list(found.values())


def stateful_sampler(loader: DataLoader[object]) -> Any:
    """The sampler that can tell and take its own position, if there is one."""
    for sampler in _samplers(loader):
        if hasattr(sampler, "state_dict") and hasattr(sampler, "load_state_dict"):
            return sampler
    return None


def _sampler_epoch(loader: DataLoader[object]) -> int | None:
    epochs = [s.epoch for s in _samplers(loader) if hasattr(s, "set_epoch") and hasattr(s, "epoch")]
    return epochs[0] if epochs else None
