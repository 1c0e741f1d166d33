"""Constraints against PyTorch's, and the transforms that lead to them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import evergrad
from evergrad.distributions import biject_to, constraints, transforms
from evergrad.distributions.constraint_registry import ConstraintRegistry
from evergrad.distributions.utils import (
    broadcast_all,
    lazy_property,
    tril_matrix_to_vec,
    vec_to_tril_matrix,
)
from twins import agree, fixed

from .test_families import attempt

NUMBERS = [[0.0, 1.0, -1.0, 0.5], [2.0, 3.0, float("nan"), float("inf")]]
SHARES = [[0.2, 0.3, 0.5], [0.5, 0.6, -0.1], [1.0, 0.0, 0.0], [1.0, 2.0, 0.0], [1.0, 1.0, 0.0]]
MATRICES = [
    [[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.6, 0.8]], [[2.0, 0.5], [0.5, 1.0]],
    [[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.5], [0.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]],
    [[-1.0, 0.0], [0.0, 1.0]],
]  # fmt: skip

Make = Callable[[Any], Any]
CONSTRAINTS: dict[str, tuple[Make, Any]] = {
    "boolean": (lambda c: c.boolean, NUMBERS),
    "real": (lambda c: c.real, NUMBERS),
    "positive": (lambda c: c.positive, NUMBERS),
    "nonnegative": (lambda c: c.nonnegative, NUMBERS),
    "greater_than": (lambda c: c.greater_than(0.5), NUMBERS),
    "greater_than_eq": (lambda c: c.greater_than_eq(0.5), NUMBERS),
    "less_than": (lambda c: c.less_than(0.5), NUMBERS),
    "interval": (lambda c: c.interval(-1.0, 2.0), NUMBERS),
    "unit_interval": (lambda c: c.unit_interval, NUMBERS),
    "half_open_interval": (lambda c: c.half_open_interval(-1.0, 2.0), NUMBERS),
    "integer_interval": (lambda c: c.integer_interval(0, 2), NUMBERS),
    "nonnegative_integer": (lambda c: c.nonnegative_integer, NUMBERS),
    "positive_integer": (lambda c: c.positive_integer, NUMBERS),
    "real_vector": (lambda c: c.real_vector, NUMBERS),
    "independent": (lambda c: c.independent(c.positive, 2), NUMBERS),
    "cat": (lambda c: c.cat([c.positive, c.boolean], dim=1, lengths=[3, 1]), NUMBERS),
    "stack": (lambda c: c.stack([c.positive, c.boolean], dim=0), NUMBERS),
    "mixture": (lambda c: c.MixtureSameFamilyConstraint(c.positive), NUMBERS),
    "simplex": (lambda c: c.simplex, SHARES),
    "one_hot": (lambda c: c.one_hot, SHARES),
    "multinomial": (lambda c: c.multinomial(2), SHARES),
    "lower_triangular": (lambda c: c.lower_triangular, MATRICES),
    "lower_cholesky": (lambda c: c.lower_cholesky, MATRICES),
    "corr_cholesky": (lambda c: c.corr_cholesky, MATRICES),
    "square": (lambda c: c.square, MATRICES),
    "symmetric": (lambda c: c.symmetric, MATRICES),
    "positive_semidefinite": (lambda c: c.positive_semidefinite, MATRICES),
    "positive_definite": (lambda c: c.positive_definite, MATRICES),
}
every_constraint = pytest.mark.parametrize("name", CONSTRAINTS)


@every_constraint
def test_checks(torch: ModuleType, name: str) -> None:
    make, values = CONSTRAINTS[name]

    def program(ns: Any) -> Any:
        constraint = make(ns.distributions.constraints)
        each = [constraint.check(fixed(ns, [value] if values is MATRICES else value))
                for value in (values if values is MATRICES else [values])]  # fmt: skip
        return each, repr(constraint), constraint.is_discrete, constraint.event_dim

    agree(program, torch)


@every_constraint
def test_transforms_to_constraints(torch: ModuleType, name: str) -> None:
    make, _ = CONSTRAINTS[name]

    def program(ns: Any) -> Any:
        d = ns.distributions
        constraint = make(d.constraints)
        results = []
        for registry in (d.biject_to, d.transform_to):
            transform = attempt(lambda registry=registry: registry(constraint))
            if isinstance(transform, str):
                results.append(transform)
                continue
            shape = (2, 2) if constraint.event_dim == 2 and name != "independent" else (2, 4)
            x = ns.arange(8.0, dtype=ns.float64).reshape(2, 4).sin()[:, : shape[1]]
            if name == "corr_cholesky":
                x = x[:, :1]
            y = transform(x)
            results.append((repr(transform), y, constraint.check(y), transform.inv(y)))
        return results

    agree(program, torch)


def test_names_are_those_of_torch(torch: ModuleType) -> None:
    import torch.distributions as theirs

    ours = evergrad.distributions
    assert sorted(ours.__all__) == sorted(theirs.__all__)
    for module in ("constraints", "transforms", "kl", "constraint_registry", "utils"):
        assert sorted(getattr(ours, module).__all__) == sorted(getattr(theirs, module).__all__)


def test_modules_are_those_of_torch(torch: ModuleType) -> None:
    import importlib
    import pkgutil

    import torch.distributions as theirs

    for found in pkgutil.iter_modules(theirs.__path__):
        module = importlib.import_module(f"torch.distributions.{found.name}")
        ours = importlib.import_module(f"evergrad.distributions.{found.name}")
        for name in getattr(module, "__all__", ()):
            assert hasattr(ours, name), f"{found.name}.{name}"


def test_dependent_constraints() -> None:
    known = constraints.dependent(is_discrete=True)(event_dim=2)
    assert known.is_discrete and known.event_dim == 2
    assert constraints.is_dependent(known) and not constraints.is_dependent(constraints.real)

    class Holder:
        @constraints.dependent_property(event_dim=1)
        def support(self) -> constraints.Constraint:
            return constraints.simplex

    assert constraints.is_dependent(Holder.support) and Holder.support.event_dim == 1
    assert Holder().support is constraints.simplex


def test_registries_can_be_extended() -> None:
    registry = ConstraintRegistry()

    class Even(constraints.Constraint):
        """A constraint of its own."""

    @registry.register(Even)
    def _to_even(constraint: Even) -> transforms.Transform:
        return transforms.ExpTransform()

    assert isinstance(registry(Even()), transforms.ExpTransform)
    with pytest.raises(NotImplementedError, match="Cannot transform Even constraints"):
        biject_to(Even())


@pytest.mark.parametrize("diag", [-2, -1, 0, 1])
def test_triangles(torch: ModuleType, diag: int) -> None:
    def program(ns: Any) -> Any:
        from importlib import import_module

        utils = import_module(f"{ns.__name__}.distributions.utils")
        matrix = ns.arange(32.0).reshape(2, 4, 4)
        vector = utils.tril_matrix_to_vec(matrix, diag)
        back = utils.vec_to_tril_matrix(vector, diag)
        return vector, back

    agree(program, torch)


def test_triangles_of_no_matrix_are_refused() -> None:
    with pytest.raises(ValueError, match="last dimension is 4 which cannot"):
        vec_to_tril_matrix(evergrad.ones(4))
    with pytest.raises(ValueError, match=r"diag \(3\) provided is outside"):
        tril_matrix_to_vec(evergrad.ones(2, 2), 3)


def test_probabilities_and_logits(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        utils = ns.distributions.utils
        probs = fixed(ns, [0.0, 0.3, 1.0])
        both = [
            (utils.probs_to_logits(probs, b), utils.logits_to_probs(probs, b))
            for b in (True, False)
        ]
        return utils.clamp_probs(probs), both, utils.broadcast_all(1, probs, 2.5)

    agree(program, torch)


def test_parameters_that_fit_are_kept() -> None:
    loc = evergrad.zeros(3)
    kept, scale = broadcast_all(loc, 2)
    assert kept is loc and scale.dtype is loc.dtype and tuple(scale.shape) == (3,)
    with pytest.raises(ValueError, match=r"Number or evergrad\.Tensor"):
        broadcast_all([1.0], loc)


def test_lazy_properties_are_computed_once() -> None:
    class Holder:
        calls = 0

        @lazy_property
        def value(self) -> int:
            """Documented."""
            Holder.calls += 1
            return 5

    holder = Holder()
    assert holder.value == holder.value == 5 and Holder.calls == 1
    assert Holder.value.__doc__ == "Documented."
