"""Names the parameters whose gradient is missing, exactly zero or not finite.

A parameter that silently stays where it was is the most expensive bug of all; run this after the
first ``backward``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from evergrad.core.tensor import Tensor
from evergrad.errors import GradientError

_SHOWN = 8  # names of parameters without gradient: LoRA freezes hundreds


class Finding(NamedTuple):
    """One parameter and what its gradient is: ``missing``, ``zero`` or ``non-finite``."""

    name: str
    problem: str
    shape: tuple[int, ...]
    detail: str


class Audit(NamedTuple):
    """What :func:`audit` found; true if all gradients are there and sound.

    ``findings`` are the troubles, ``checked`` the number of tensors, ``frozen`` the names of those
    that need no gradient. PyTorch has no such check.

    >>> layer = nn.Linear(2, 1)
    >>> layer(eg.ones(1, 2)).sum().backward()
    >>> found = eg.autograd.audit(layer)
    >>> bool(found), found.checked
    (True, 2)
    """

    findings: tuple[Finding, ...]
    checked: int
    frozen: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        lines = [
            f"gradient audit: {self.checked} parameters checked, {len(self.findings)} at fault"
        ]
        lines += [f"  {f.name} {list(f.shape)}: {f.problem} ({f.detail})" for f in self.findings]
        if self.frozen:
            shown = ", ".join(self.frozen[:_SHOWN])
            rest = len(self.frozen) - _SHOWN
            more = f" and {rest} more" if rest > 0 else ""
            lines.append(f"  not asked for (requires_grad=False): {shown}{more}")
        return "\n".join(lines)

    def raise_if_wrong(self) -> Audit:
        """Raise an error that lists the findings, if there are any."""
        if self.findings:
            raise GradientError(str(self))
        return self


def _named(target: object) -> list[tuple[str, Tensor]]:
    if hasattr(target, "named_parameters"):
        return list(target.named_parameters())
    if isinstance(target, Tensor):
        return [("parameter", target)]
    if isinstance(target, dict):
        return list(target.items())
    if isinstance(target, Iterable):
        found = []
        for i, entry in enumerate(target):
            found.append(entry if isinstance(entry, tuple) else (f"parameter {i}", entry))
        return found
    raise TypeError(
        f"audit() takes a module, a tensor, a dict or an iterable of parameters, not "
        f"{type(target).__name__}"
    )


def _problem(grad: Tensor | None) -> tuple[str, str] | None:
    if grad is None:
        return "missing", "backward did not reach it"
    array = grad.array()
    if array.size == 0:
        return None
    finite = np.isfinite(array)
    if not finite.all():
        return "non-finite", f"{int(array.size - finite.sum())} of {array.size} elements"
    if not array.any():
        return "zero", "every element is exactly 0"
    return None


def audit(target: object) -> Audit:
    """Check the gradients of a module's parameters (or of given tensors) after ``backward``.

    Args:
        target: a module, or tensors

    >>> layer = nn.Linear(2, 1)
    >>> bool(eg.autograd.audit(layer))  # no gradient yet
    False
    >>> layer(eg.ones(1, 2)).sum().backward()
    >>> bool(eg.autograd.audit(layer))
    True
    """
    findings, frozen, checked = [], [], 0
    for name, parameter in _named(target):
        if not parameter.requires_grad:
            frozen.append(name)
            continue
        checked += 1
        problem = _problem(parameter._grad)
        if problem is not None:
            findings.append(Finding(name, problem[0], tuple(parameter._type.shape), problem[1]))
    return Audit(tuple(findings), checked, tuple(frozen))
