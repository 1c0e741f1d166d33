"""Which transform leads from all reals to a constraint.

``biject_to(constraint)`` is one to one, as densities need; ``transform_to(constraint)`` may be
simpler and is meant for optimizing parameters. Both can be extended with ``register``.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from evergrad.core.tensor import Tensor
from evergrad.distributions import constraints, transforms
from evergrad.distributions.constraints import Constraint
from evergrad.distributions.transforms import Transform

if TYPE_CHECKING:
    from evergrad.distributions.basic_constraints import (
        _GreaterThan,
        _GreaterThanEq,
        _HalfOpenInterval,
        _IndependentConstraint,
        _Interval,
        _LessThan,
    )
    from evergrad.distributions.joined_constraints import _Cat, _Stack


__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

Factory = Callable[[Any], Transform]
Made = TypeVar("Made", bound=Factory)


class ConstraintRegistry:
    """Finds the transform for a constraint by the constraint's class.

    >>> positive = eg.distributions.transform_to(eg.distributions.constraints.positive)
    >>> positive(eg.tensor(0.0))
    tensor(1.)
    >>> eg.distributions.biject_to(eg.distributions.constraints.unit_interval)
    SigmoidTransform()
    """

    def __init__(self) -> None:
        self._registry: dict[type[Constraint], Factory] = {}
        super().__init__()

    @overload
    def register(self, constraint: object, factory: None = None) -> Callable[[Made], Made]: ...

    @overload
    def register(self, constraint: object, factory: Made) -> Made: ...

    def register(self, constraint: object, factory: Any = None) -> Any:
        """Say how the transform for a class of constraints is made; also as a decorator.

        Args:
            constraint: a class of constraints, or one of its instances.
            factory: gives a transform for an instance of the class.
        """
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not (isinstance(kind, type) and issubclass(kind, Constraint)):
            raise TypeError(
                "Expected constraint to be either a Constraint subclass or instance, but got "
                f"{kind}"
            )
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        """The transform from all reals to a constraint."""
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(
                f"Cannot transform {type(constraint).__name__} constraints"
            ) from None
        return factory(constraint)


biject_to: ConstraintRegistry = ConstraintRegistry()
transform_to: ConstraintRegistry = ConstraintRegistry()


# -- the same for both --------------------------------------------------------------------------


@biject_to.register(constraints.real)
@transform_to.register(constraints.real)
def _to_real(constraint: object) -> Transform:
    return transforms.identity_transform


@biject_to.register(constraints.positive)
@biject_to.register(constraints.nonnegative)
@transform_to.register(constraints.positive)
@transform_to.register(constraints.nonnegative)
def _to_greater_than(constraint: _GreaterThan | _GreaterThanEq) -> Transform:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.lower_bound, 1)]
    )


@biject_to.register(constraints.less_than)
@transform_to.register(constraints.less_than)
def _to_less_than(constraint: _LessThan) -> Transform:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.upper_bound, -1)]
    )


@biject_to.register(constraints.interval)
@biject_to.register(constraints.half_open_interval)
@transform_to.register(constraints.interval)
@transform_to.register(constraints.half_open_interval)
def _to_interval(constraint: _HalfOpenInterval | _Interval) -> Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    sigmoid = transforms.SigmoidTransform()
    if not (isinstance(low, Tensor) or isinstance(high, Tensor)) and (low, high) == (0, 1):
        return sigmoid
    return transforms.ComposeTransform([sigmoid, transforms.AffineTransform(low, high - low)])


@biject_to.register(constraints.corr_cholesky)
@transform_to.register(constraints.corr_cholesky)
def _to_corr_cholesky(constraint: object) -> Transform:
    return transforms.CorrCholeskyTransform()


def _register_composites(registry: ConstraintRegistry) -> None:
    """Constraints made of others, whose transforms are made of those of the others."""

    @registry.register(constraints.independent)
    def _to_independent(constraint: _IndependentConstraint) -> Transform:
        return transforms.IndependentTransform(
            registry(constraint.base_constraint), constraint.reinterpreted_batch_ndims
        )

    @registry.register(constraints.cat)
    def _to_cat(constraint: _Cat) -> Transform:
        parts = [registry(part) for part in constraint.cseq]
        return transforms.CatTransform(parts, constraint.dim, constraint.lengths)

    @registry.register(constraints.stack)
    def _to_stack(constraint: _Stack) -> Transform:
        return transforms.StackTransform(
            [registry(part) for part in constraint.cseq], constraint.dim
        )


_register_composites(biject_to)
_register_composites(transform_to)


# -- where one-to-one costs more ----------------------------------------------------------------


@biject_to.register(constraints.simplex)
def _biject_to_simplex(constraint: object) -> Transform:
    return transforms.StickBreakingTransform()


@transform_to.register(constraints.simplex)
def _transform_to_simplex(constraint: object) -> Transform:
    return transforms.SoftmaxTransform()


@transform_to.register(constraints.lower_cholesky)
def _transform_to_lower_cholesky(constraint: object) -> Transform:
    return transforms.LowerCholeskyTransform()


@transform_to.register(constraints.positive_definite)
@transform_to.register(constraints.positive_semidefinite)
def _transform_to_positive_definite(constraint: object) -> Transform:
    return transforms.PositiveDefiniteTransform()
