"""Text to train on: where it comes from, what is held out, and windows into both parts."""

from __future__ import annotations

import numpy as np

from evergrad.core.tensor import Tensor, from_array
from evergrad.core.types import Array
from evergrad.datasets.text import pydoc_topics, read_text
from evergrad.train.config import ConfigError
from evergrad.train.task import is_function_name
from evergrad.train.tasks.draws import draw
from evergrad.train.tasks.loaders import load_written

BUILT_IN = "pydoc"


def load_text(source: str) -> str:
    """The text of a file, of the ``*.txt`` files in a folder or of a function; by default that of
    ``help()``."""
    if source in ("", BUILT_IN):
        return pydoc_topics()
    if is_function_name(source):
        return load_written(source)
    try:
        text = read_text(source)
    except (FileNotFoundError, ValueError) as error:
        raise ConfigError(
            f"{error}; give --data a text file, a folder with *.txt files, or {BUILT_IN!r} for the "
            "text that comes with Python"
        ) from error
    if not text:
        raise ConfigError(f"{source} is empty: there is nothing to learn from")
    return text


class Corpus:
    """Tokens, cut once: the first part to train with, the last to evaluate.

    An example is a window of ``context`` tokens and the window one token later. Windows lie within
    their part, so that no token of one is ever seen in the other.
    """

    def __init__(self, tokens: Array, context: int, held_out: float) -> None:
        split = round(len(tokens) * (1 - held_out))
        self.context = context
        self.train: Array = self._long_enough(tokens[:split], "the text to train with")
        self.held_out: Array = self._long_enough(tokens[split:], "the held-out text")

    def _long_enough(self, tokens: Array, name: str) -> Array:
        if len(tokens) <= self.context:
            raise ConfigError(
                f"{name} has {len(tokens)} tokens, but a context of {self.context} needs at least "
                f"{self.context + 1}: give more text, a smaller --context or another --held-out"
            )
        return tokens

    def batch(self, seed: int, number: int, size: int) -> tuple[Tensor, Tensor]:
        """Windows drawn at random from the text to train with: two tensors (size, context)."""
        places = len(self.train) - self.context
        starts = draw(seed, "windows", number).randint(0, places, (size,), np.dtype(np.int64))
        return self._windows(self.train, starts)

    def held_out_batch(self, number: int, count: int, size: int) -> tuple[Tensor, Tensor]:
        """Batch ``number`` of ``count``, which together cover the held-out text evenly."""
        last = len(self.held_out) - self.context - 1
        starts = np.linspace(0, last, count * size).astype(np.int64)
        return self._windows(self.held_out, starts[number * size : (number + 1) * size])

    def _windows(self, tokens: Array, starts: Array) -> tuple[Tensor, Tensor]:
        windows = tokens[starts[:, None] + np.arange(self.context + 1)]
        return (
            from_array(np.ascontiguousarray(windows[:, :-1])),
            from_array(np.ascontiguousarray(windows[:, 1:])),
        )
