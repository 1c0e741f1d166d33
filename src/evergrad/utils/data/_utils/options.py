"""The arguments of a loader: what goes together, and what does not."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from multiprocessing.context import BaseContext


def check_worker_options(
    num_workers: int,
    timeout: float,
    prefetch_factor: int | None,
    persistent_workers: bool,
) -> None:
    """Refuse options that only make sense with workers, and numbers that never do."""
    if num_workers < 0:
        raise ValueError(
            "num_workers option should be non-negative; use num_workers=0 to disable "
            "multiprocessing."
        )
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing."
            "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def check_iterable_options(shuffle: object, sampler: object, batch_sampler: object) -> None:
    """An iterable data set gives its examples in the order it wants."""
    given = {"shuffle": shuffle or None, "sampler": sampler, "batch_sampler": batch_sampler}
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"DataLoader with IterableDataset: expected unspecified {name} option, but got "
                f"{name}={value}"
            )


def check_batch_options(
    batch_size: int | None, shuffle: object, sampler: object, batch_sampler: object, drop_last: bool
) -> None:
    """Order and batches may each be told in one way only."""
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None:
        if batch_size != 1 or shuffle or sampler is not None or drop_last:
            raise ValueError(
                "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, "
                "and drop_last"
            )
    elif batch_size is None and drop_last:
        raise ValueError(
            "batch_size=None option disables auto-batching and is mutually exclusive with drop_last"
        )


def checked_context(given: object, num_workers: int) -> BaseContext | None:
    """The context that starts processes, from itself or the name of its start method."""
    if given is None:
        return None
    if num_workers == 0:
        raise ValueError(
            "multiprocessing_context can only be used with multi-process loading "
            f"(num_workers > 0), but got num_workers={num_workers}"
        )
    if isinstance(given, str):
        known = multiprocessing.get_all_start_methods()
        if given not in known:
            raise ValueError(
                f"multiprocessing_context option should specify a valid start method in {known!r}, "
                f"but got multiprocessing_context={given!r}"
            )
        return multiprocessing.get_context(given)
    if not isinstance(given, BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string "
            f"specifying the start method, but got multiprocessing_context={given}"
        )
    return given


def warn_of_many_workers(num_workers: int) -> None:
    """Warn if there are more workers than processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        room: int | None = len(os.sched_getaffinity(0))
    else:
        room = os.cpu_count()
    if room is None or num_workers <= room:
        return
    warnings.warn(
        f"This DataLoader will create {num_workers} worker processes in total. Our suggested max "
        f"number of worker in current system is {room}, which is smaller than what this DataLoader "
        "is going to create. Please be aware that excessive worker creation might get DataLoader "
        "running slow or even freeze, lower the worker number to avoid potential slowness/freeze "
        "if necessary.",
        UserWarning,
        stacklevel=5,
    )
