"""All parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from evergrad.core.tensor import Tensor
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.views import reshape


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters, one after the other.

    Args:
        parameters: the parameters

    >>> nn.utils.parameters_to_vector([eg.zeros(2), eg.ones(1, 1)])
    tensor([0., 0., 1.])
    """
    return cat([reshape(p, -1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Make each parameter look at its part of the vector.

    Args:
        vec: a vector with as many elements as all of them
        parameters: the parameters; their memory is the vector's afterwards

    >>> layer = nn.Linear(1, 1)
    >>> nn.utils.vector_to_parameters(eg.tensor([2.0, 3.0]), layer.parameters())
    >>> layer(eg.ones(1)).detach()
    tensor([5.])
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected Tensor, but got: {type(vec)}")
    start = 0
    for parameter in parameters:
        stop = start + parameter.numel()
        parameter.data = vec[start:stop].view_as(parameter).data
        start = stop
