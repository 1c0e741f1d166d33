"""Streams of values in windows: the last few stacked, and stacks of stacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from evergrad.ragged.algebra import stack
from evergrad.ragged.value import Tensor


class Window:
    """The last ``size`` values of a stream, stacked, each time ``stride`` more have come.

    ``stride`` is ``size`` if not given: every value is in one stack. A stack has the common shape
    of its values, and gradients reach each of them in its own shape.

    Args:
        size: how many values a stack has
        stride: how many more come until the next; default ``size``

    >>> window = ragged.Window(2)
    >>> window.push(ragged.tensor([1.0])) is None
    True
    >>> window.push(ragged.tensor([2.0, 3.0]))
    ragged.tensor([[1., 0.],
            [2., 3.]])
    """

    def __init__(self, size: int, stride: int | None = None) -> None:
        if size < 1 or (stride is not None and not 1 <= stride <= size):
            raise ValueError(f"Window(): 1 <= stride <= size, got size {size} and stride {stride}")
        self.size = size
        self.stride: int = size if stride is None else stride
        self._held: list[Tensor] = []
        self._new = 0  # values that are in no stack yet

    def push(self, value: Tensor) -> Tensor | None:
        """Add a value; the stack that it completes, if it does."""
        if not isinstance(value, Tensor):
            raise TypeError(f"Window.push(): expected a ragged.Tensor, got {type(value).__name__}")
        self._held.append(value)
        self._new += 1
        if len(self._held) < self.size:
            return None
        made = stack(self._held)
        self._held = self._held[self.stride :]
        self._new = 0
        return made

    def flush(self) -> Tensor | None:
        """End the stream: the stack of what is left, if a value of it was in no stack yet."""
        held, new = self._held, self._new
        self._held, self._new = [], 0
        return stack(held) if new else None


class Pyramid:
    """Windows on windows: each level stacks ``size`` stacks of the level below.

    Args:
        size: values, or stacks, to a stack
        levels: how many

    >>> pyramid = ragged.Pyramid(2, 2)
    >>> [pyramid.push(ragged.tensor([1.0])) for _ in range(4)][-1]
    ragged.tensor([[[1.],
             [1.]],
    <BLANKLINE>
            [[1.],
             [1.]]])
    """

    def __init__(self, size: int, levels: int) -> None:
        if levels < 1:
            raise ValueError(f"Pyramid(): at least one level, got {levels}")
        self._levels = [Window(size) for _ in range(levels)]

    def push(self, value: Tensor) -> Tensor | None:
        """Add a value; the stack of the highest level that it completes, if it does."""
        return self._push(value, 0)

    def _push(self, value: Tensor, level: int) -> Tensor | None:
        for window in self._levels[level:]:
            made = window.push(value)
            if made is None:
                return None
            value = made
        return value

    def flush(self) -> list[Tensor]:
        """End the stream: what is left, from the lowest level up, in stacks of the highest."""
        found: list[Tensor] = []
        for level, window in enumerate(self._levels):
            left = window.flush()
            if left is not None:
                done = self._push(left, level + 1)
                found += [] if done is None else [done]
        return found


def windows(values: Iterable[Tensor], size: int, stride: int | None = None) -> Iterator[Tensor]:
    """The stacks of a whole stream, the incomplete one at its end included.

    >>> values = [ragged.tensor([float(n)]) for n in range(3)]
    >>> [stack.shape for stack in ragged.windows(values, 2)]
    [evergrad.Size([2, 1]), evergrad.Size([1, 1])]
    """
    window = Window(size, stride)
    for value in values:
        made = window.push(value)
        if made is not None:
            yield made
    rest = window.flush()
    if rest is not None:
        yield rest
