"""What a value has in common with a dense tensor: element type, gradient, graph, hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from evergrad.core.dtypes import bfloat16, dtype, float16, float32, float64
from evergrad.core.holder import TensorHolder, held
from evergrad.core.node import GraphNode, RemovableHandle
from evergrad.core.tensor import Tensor

if TYPE_CHECKING:
    from evergrad.core.device import Device


class Differentiable(TensorHolder):
    """A value around elements, whose gradients and hooks take values too."""

    __slots__ = ()

    # -- elements ---------------------------------------------------------------------------

    @property
    def dtype(self) -> dtype:
        """The element type."""
        return self.elements.dtype

    @property
    def device(self) -> Device:
        """Where the elements are: the CPU."""
        return self.elements.device

    def numel(self) -> int:
        """The number of elements of the representative."""
        return int(self.elements.numel())

    def is_floating_point(self) -> bool:
        """Whether elements are real floating-point numbers."""
        return self.elements.is_floating_point()

    def is_complex(self) -> bool:
        """Whether elements are complex."""
        return self.elements.is_complex()

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """With the elements converted, as :meth:`evergrad.Tensor.to`."""
        return self.rebuilt(self.elements.to(*args, **kwargs))

    def float(self) -> Self:
        """With elements of single precision."""
        return self.to(float32)

    def double(self) -> Self:
        """With elements of double precision."""
        return self.to(float64)

    def half(self) -> Self:
        """With elements of 16 bits, 5 of them the exponent."""
        return self.to(float16)

    def bfloat16(self) -> Self:
        """With elements of 16 bits, 8 of them the exponent."""
        return self.to(bfloat16)

    def detach(self) -> Self:
        """The same elements, detached from the graph."""
        return self.rebuilt(self.elements.detach())

    def clone(self) -> Self:
        """A copy in memory of its own, connected to the graph."""
        return self.rebuilt(self.elements.clone())

    # -- the graph --------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether operations on it are recorded."""
        return self.elements.requires_grad

    @requires_grad.setter
    def requires_grad(self, requires_grad: bool) -> None:
        self.elements.requires_grad = requires_grad

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Record what is computed with it from now on, or stop to do so."""
        self.elements.requires_grad_(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded operation computed it."""
        return self.elements.is_leaf

    @property
    def grad_fn(self) -> GraphNode | None:
        """The node of the operation that computed it."""
        return self.elements.grad_fn

    @property
    def grad(self) -> Self | None:
        """The gradient that ``backward()`` left, in exactly this layout."""
        found = self.elements.grad
        return None if found is None else self.rebuilt(found)

    @grad.setter
    def grad(self, value: Self | None) -> None:
        self.elements.grad = held(value)

    @property
    def retains_grad(self) -> bool:
        """Whether ``backward()`` leaves a gradient although it is no leaf."""
        return self.elements.retains_grad

    def retain_grad(self) -> None:
        """Have ``backward()`` leave a gradient although it is no leaf."""
        self.elements.retain_grad()

    def backward(
        self, gradient: Self | None = None, retain_graph: bool | None = None,
        create_graph: bool = False,
    ) -> None:  # fmt: skip
        """Accumulate gradients into the leaves it came from, given its own gradient.

        >>> a = ragged.tensor([1.0, 2.0], requires_grad=True)
        >>> (a * a).backward(ragged.tensor([1.0, 1.0]))
        >>> a.grad
        ragged.tensor([2., 4.])
        """
        self.elements.backward(held(gradient), retain_graph, create_graph)

    def register_hook(self, hook: Callable[[Any], object]) -> RemovableHandle:
        """Call ``hook(grad)`` when the gradient is known; it may return another."""
        make = self.maker()
        return self.elements.register_hook(lambda grad: held(hook(make(grad))))

    def register_post_accumulate_grad_hook(self, hook: Callable[[Any], object]) -> RemovableHandle:
        """Call ``hook(value)`` after a gradient has been accumulated into this leaf."""
        make = self.maker()

        def call(leaf: Tensor) -> None:
            hook(make(leaf))

        return self.elements.register_post_accumulate_grad_hook(call)

    def maker(self) -> Callable[..., Self]:
        """A function that makes values of this kind of elements, without a reference to this one's
        elements."""
        raise NotImplementedError
