"""Constraints made of others: side by side, stacked, and of the components of a mixture."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence

import evergrad
from evergrad.core.tensor import Tensor
from evergrad.distributions.basic_constraints import Constraint


class MixtureSameFamilyConstraint(Constraint):
    """What every component of a mixture must satisfy, for values without a component dimension."""

    def __init__(self, base_constraint: Constraint) -> None:
        if not isinstance(base_constraint, Constraint):
            raise AssertionError(
                f"base_constraint must be a Constraint, got {type(base_constraint).__name__}"
            )
        self.base_constraint = base_constraint
        super().__init__()

    @property
    def is_discrete(self) -> bool:
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:
        return self.base_constraint.event_dim

    def check(self, value: Tensor) -> Tensor:
        components = value.unsqueeze(-1 - self.event_dim)
        held = self.base_constraint.check(components)
        if value.ndim < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.ndim}")
        batch_ndims = value.ndim - self.event_dim
        return held.reshape((*held.shape[:batch_ndims], -1)).all(-1)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.base_constraint!r})"


class _Joined(Constraint):
    """Constraints that each take a part of a dimension."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        if not all(isinstance(constraint, Constraint) for constraint in cseq):
            raise AssertionError("All elements of cseq must be Constraint instances")
        self.cseq: list[Constraint] = list(cseq)
        self.dim = dim
        super().__init__()

    @property
    def is_discrete(self) -> bool:
        return any(constraint.is_discrete for constraint in self.cseq)

    def _check_dim(self, value: Tensor) -> None:
        if not -value.ndim <= self.dim < value.ndim:
            raise AssertionError(
                f"dim {self.dim} out of range for tensor with {value.ndim} dimensions"
            )


class _Cat(_Joined):
    """Constraints of parts that stand side by side in a dimension, as ``cat`` puts them."""

    def __init__(
        self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None
    ) -> None:
        super().__init__(cseq, dim)
        self.lengths: list[int] = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(
                f"lengths ({len(self.lengths)}) must match constraints ({len(self.cseq)})"
            )

    @property
    def event_dim(self) -> int:
        return max(constraint.event_dim for constraint in self.cseq)

    def check(self, value: Tensor) -> Tensor:
        self._check_dim(value)
        parts: tuple[Tensor, ...] = evergrad.split(value, self.lengths, self.dim)
        held = [constraint.check(part) for constraint, part in zip(self.cseq, parts, strict=True)]
        return evergrad.cat(held, self.dim)


class _Stack(_Joined):
    """Constraints of the slices of a dimension, as ``stack`` puts them."""

    @property
    def event_dim(self) -> int:
        depth: int = max(constraint.event_dim for constraint in self.cseq)
        return depth + 1 if self.dim + depth < 0 else depth

    def check(self, value: Tensor) -> Tensor:
        self._check_dim(value)
        slices = value.unbind(self.dim)
        held = [constraint.check(part) for constraint, part in zip(self.cseq, slices, strict=True)]
        return evergrad.stack(held, self.dim)
