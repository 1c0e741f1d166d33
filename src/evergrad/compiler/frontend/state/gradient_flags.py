"""``requires_grad`` as an effect: the arguments for which a call sets or clears it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from evergrad.compiler.frontend.session import NotWholeError, Session
from evergrad.core.tensor import Tensor, keeps_grad

# Whether a tensor requires grad, is a leaf, and retains its gradient.
Flags = tuple[bool, bool, bool]


def flags_of(tensor: Tensor) -> Flags:
    return tensor.requires_grad, tensor.is_leaf, keeps_grad(tensor)


class GradientFlags:
    """The flags of tensors before a call."""

    def __init__(self, tensors: Sequence[Tensor], arguments: Sequence[Tensor]) -> None:
        """``tensors`` are those that the function reaches otherwise than by ``arguments``."""
        self.reached: list[tuple[Tensor, Flags]] = [
            (tensor, flags_of(tensor)) for tensor in tensors
        ]
        self.arguments: list[tuple[Tensor, Flags]] = [
            (tensor, flags_of(tensor)) for tensor in arguments
        ]

    def changed_arguments(self, trace: Session) -> list[tuple[int, bool]]:
        """The arguments, by index, for which the call has set or cleared ``requires_grad``. Raises
        ``NotWholeError`` if the flags of other tensors were changed."""
        if any(_is_changed(tensor, before) for tensor, before in self.reached):
            trace.once = "requires_grad of a tensor is changed by the function"
            raise NotWholeError(trace.once)
        changed = [
            (index, tensor, before) for index, (tensor, before) in enumerate(self.arguments)
            if _is_changed(tensor, before)
        ]  # fmt: skip
        if any(not before[1] for _, _, before in changed):
            raise NotWholeError("an argument is detached or retains its gradient")
        handles = [id(tensor) for tensor, _ in self.arguments]
        if any(handles.count(id(tensor)) > 1 for _, tensor, _ in changed):
            raise NotWholeError("requires_grad of an argument that is given twice is changed")
        return [(index, tensor.requires_grad) for index, tensor, _ in changed]

    def has(self, tensor: Tensor) -> bool:
        """Whether a tensor existed before the call."""
        return any(held is tensor for held in self.tensors())

    def tensors(self) -> Iterator[Tensor]:
        return (tensor for tensor, _ in (*self.reached, *self.arguments))

    def restore(self) -> None:
        """Let leaves have the flags from before the call."""
        for tensor, before in (*self.reached, *self.arguments):
            if before[1] and tensor.is_leaf:
                tensor.requires_grad_(before[0])


def _is_changed(tensor: Tensor, before: Flags) -> bool:
    """Whether a flag was changed in place, other than by a write that has given a history."""
    now = flags_of(tensor)
    return now != before and (now[1] or now[:2] == before[:2])


@contextmanager
def set_flags(tensors: Sequence[Tensor], flags: Sequence[tuple[int, bool]]) -> Iterator[None]:
    """Set flags of arguments for a run; back again if it fails."""
    before = [(tensors[index], tensors[index].requires_grad) for index, _ in flags]
    for index, value in flags:
        tensors[index].requires_grad_(value)
    try:
        yield
    except BaseException:
        for tensor, value in before:
            tensor.requires_grad_(value)
        raise
