"""What the trainer asks of a task: a model, numbered batches, a loss, an evaluation, samples.

The trainer knows nothing of text or images, and a task nothing of steps, checkpoints or screens.
Everything a task draws depends on the seed and a number alone, so a run that is resumed sees the
very batches it would have seen.
"""

from __future__ import annotations

import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from evergrad import nn
from evergrad.core.tensor import Tensor
from evergrad.train.values import ConfigError, nearest

if TYPE_CHECKING:
    from evergrad.core.types import Array, JsonObject
    from evergrad.train.config import RunConfig

# Where tasks live; code and the command line may name any other "module:Class" in their place, a
# file only one that the user trusts.
TASKS: dict[str, str] = {
    "gpt": "evergrad.train.tasks.text:GPTTask",
    "lstm": "evergrad.train.tasks.text:LSTMTask",
    "lenet": "evergrad.train.tasks.images:LeNetTask",
    "resnet": "evergrad.train.tasks.images:ResNetTask",
    "vit": "evergrad.train.tasks.images:ViTTask",
    "mlp": "evergrad.train.tasks.images:MLPTask",
    "dit": "evergrad.train.tasks.diffusion:DiTTask",
    "flux": "evergrad.train.tasks.flux:FluxTask",
    "chat": "evergrad.train.tasks.chat:ChatTask",
    "dpo": "evergrad.train.tasks.preference:PreferenceTask",
}


@dataclass(frozen=True)
class Sample:
    """What a model makes up: a text, or a picture (height, width, 3) of uint8.

    >>> eg.train.Sample(text="to be").image is None
    True
    """

    text: str | None = None
    image: Array | None = None


class Task(ABC):
    """One kind of training, prepared for one configuration.

    ``extras`` is what :meth:`extras` gave when a checkpoint was written, so that a resumed run
    does not train its tokenizer again; a new run has none.

    >>> from evergrad.train.tasks.text import GPTTask
    >>> issubclass(GPTTask, eg.train.Task), sorted(GPTTask.presets())
    (True, ['large', 'medium', 'small', 'tiny'])
    """

    name: ClassVar[str]
    unit: ClassVar[str]  # what is counted per second: "tokens" or "images"
    # Model options that follow from the data and are not for the user to set.
    set_by_data: ClassVar[frozenset[str]] = frozenset()
    # How many rows of a batch, equally far apart, belong together and to one rank.
    rows_per_example: ClassVar[int] = 1

    def __init__(self, config: RunConfig, extras: dict[str, object] | None = None) -> None:
        self.config = config

    @classmethod
    @abstractmethod
    def presets(cls) -> dict[str, RunConfig]:
        """Whole configurations under ``tiny``, ``small``, ``medium`` and ``large``.

        ``small`` is what runs when none is named. Options in ``set_by_data`` may hold anything.
        """

    @property
    @abstractmethod
    def units_per_batch(self) -> int:
        """How many units one micro-batch has."""

    @abstractmethod
    def model(self) -> nn.Module:
        """A fresh model, its weights drawn from the default generator."""

    @abstractmethod
    def batch(self, number: int) -> tuple[Tensor, ...]:
        """The micro-batch of that number: a function of the seed and the number alone."""

    @abstractmethod
    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """The mean loss of a micro-batch; traced, so without branching on values."""

    def terms(self, *batch: Tensor) -> Tensor | None:
        """The number of terms that :meth:`loss` is the mean of, if it depends on values; ``None``
        if equal parts of a batch have equally many."""
        return None

    def loss_sum(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """The sum of the terms of the loss; for tasks with :meth:`terms`. Several ranks divide it
        by the terms of all, some of which may have none."""
        raise NotImplementedError

    @abstractmethod
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """``loss`` and other measures of quality, on held-out batches that stay the same.

        The trainer has put the model into evaluation mode and switched gradients off.
        """

    def sample(self, model: nn.Module, seed: int) -> Sample | None:
        """Something the model makes up, the same for the same seed; None if it makes nothing."""
        return None

    def sampler_bytes(self, model: nn.Module) -> int:
        """Bytes that :meth:`sample` keeps alive for the next one: caches, arenas of programs."""
        return 0

    def extras(self) -> JsonObject:
        """What a checkpoint keeps for the next start: plain values and tensors."""
        return {}


class UntrustedTaskError(ConfigError):
    """A file that names a task which is not in the table, and which the user has not trusted."""


def check_named_in_file(name: str, trusted: Collection[str]) -> str:
    """The name of a task that a file gives, if it is in the table or among ``trusted``: importing
    any other would run code that the file chooses."""
    if ":" in name and name not in TASKS and name not in trusted:
        raise UntrustedTaskError(
            f"the file names the task {name!r}, which is none of evergrad's own; to use it would "
            f"import and run that module.\n  fix: if you trust it, --trust-task {name} (in Python "
            f"trusted=[{name!r}])."
        )
    return name


_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_function_name(source: str) -> bool:
    """Whether a data source is ``module:function``; a file of such a name is ``./module:name``."""
    return _FUNCTION.fullmatch(source) is not None


def check_data_in_file(source: str, trusted: Collection[str]) -> None:
    """Refuse a function that a file names as its data, unless it is among ``trusted``."""
    if is_function_name(source) and source not in trusted:
        raise UntrustedTaskError(
            f"the file names the function {source!r} as its data; to use it would import and run "
            f"that module.\n  fix: if you trust it, --trust-task {source}, or --data {source} with "
            "evergrad train."
        )


def named_object(place: str) -> Any:
    """What ``module:name`` names; its module is imported, also from the current folder."""
    module, _, attribute = place.partition(":")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return getattr(import_module(module), attribute)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ConfigError(f"{place!r} cannot be imported: {error}") from error


def task_class(name: str) -> type[Task]:
    """The class of a task in the table, or of one given as ``module:Class``, which is imported:
    names from files pass :func:`check_named_in_file` first."""
    place = TASKS.get(name, name)
    if ":" not in place:
        raise ConfigError(f"there is no task {name!r}{nearest(name, TASKS)}")
    found = named_object(place)
    if not (isinstance(found, type) and issubclass(found, Task)):
        raise ConfigError(f"{place!r} is not a class derived from evergrad.train.Task")
    return found
