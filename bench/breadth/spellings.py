"""The ways users write one training step around a loss.

Each takes the namespace, the parameters (or the optimizer) and ``loss(*batch)`` and gives a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Loss = Callable[..., Any]
Step = Callable[..., Any]


def zero_first(optimizer: Any, loss_of: Loss) -> Step:
    """``zero_grad``, ``backward``, ``step``: the order of PyTorch's tutorials."""

    def step(*batch: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def zero_last(optimizer: Any, loss_of: Loss) -> Step:
    """Gradients are cleared when they were used."""

    def step(*batch: Any) -> Any:
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def clipped(torch: Any, parameters: list[Any], optimizer: Any, loss_of: Loss) -> Step:
    """With the norm of all gradients limited, and returned."""

    def step(*batch: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss.detach(), norm

    return step


def scheduled(optimizer: Any, scheduler: Any, loss_of: Loss) -> Step:
    """The learning rate changes after every step, outside of what is compiled by most."""

    def step(*batch: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss.detach()

    return step


def by_hand(torch: Any, parameters: list[Any], loss_of: Loss, rate: float = 0.01) -> Step:
    """``autograd.grad`` and an update written out."""

    def step(*batch: Any) -> Any:
        loss = loss_of(*batch)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= rate * gradient
        return loss.detach()

    return step


def gradients_only(torch: Any, parameters: list[Any], loss_of: Loss) -> Step:
    """The value and its gradients; no parameter changes."""

    def step(*batch: Any) -> Any:
        loss = loss_of(*batch)
        return (loss.detach(), *torch.autograd.grad(loss, parameters))

    return step


def accumulated(optimizer: Any, loss_of: Loss, parts: int) -> Step:
    """One update from the gradients of several parts of the batch."""

    def step(*batch: Any) -> Any:
        optimizer.zero_grad()
        total = 0.0
        for part in zip(*(tensor.chunk(parts) for tensor in batch), strict=True):
            loss = loss_of(*part) / parts
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        return total

    return step
