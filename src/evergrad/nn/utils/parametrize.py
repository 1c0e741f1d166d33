"""Tensors of a module that are computed: ``module.weight`` is a function of what is learned.

The class of a parametrized module is replaced by one of its own, with a property in the place of
each parametrized tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.nn.containers import ModuleDict, ModuleList
from evergrad.nn.module import Module
from evergrad.nn.parameter import Parameter

if TYPE_CHECKING:
    from evergrad.core.types import DtypeLike


class _Cache:
    """Values that parametrized tensors have had since the outermost ``cached`` block began."""

    depth = 0
    values: dict[tuple[int, str], Tensor] = {}  # noqa: RUF012 - one cache for all


@contextmanager
def cached() -> Iterator[None]:
    """Within the block each parametrized tensor is computed once.

    >>> class Symmetric(nn.Module):
    ...     def forward(self, x):
    ...         return (x + x.T) / 2
    >>> layer = nn.Linear(2, 2)
    >>> _ = nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    >>> with nn.utils.parametrize.cached():
    ...     layer.weight is layer.weight
    True
    """
    _Cache.depth += 1
    try:
        yield
    finally:
        _Cache.depth -= 1
        if not _Cache.depth:
            _Cache.values = {}


def _register(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _inverted(module: Module, value: object) -> object:
    """What a parametrization must be given to yield the value; the value if it does not know."""
    if not hasattr(module, "right_inverse"):
        return value
    try:
        return module.right_inverse(value)
    except NotImplementedError:
        return value


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, and the tensor (or tensors) they start from.

    >>> class Symmetric(nn.Module):
    ...     def forward(self, x):
    ...         return (x + x.T) / 2
    >>> layer = nn.Linear(2, 2)
    >>> _ = nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    >>> layer.parametrizations.weight.original.shape
    evergrad.Size([2, 2])
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        with using(grad=False):
            new: object = original
            for module in reversed(list(self)):
                new = _inverted(module, new)
        if not isinstance(new, (Tensor, Sequence)):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(new).__name__}"
            )
        self.is_tensor: bool = isinstance(new, Tensor)
        self.ntensors: int = 1 if isinstance(new, Tensor) else len(new)
        if isinstance(new, Tensor):
            self._keep_one(original, new)
        else:
            self._keep_several(original, new)
        if not unsafe:
            _check_kept(self(), shape, dtype)

    def _keep_one(self, original: Tensor, new: Tensor) -> None:
        if original.dtype is not new.dtype:
            raise ValueError(
                "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                f"original.dtype: {original.dtype}\n"
                f"right_inverse(original).dtype: {new.dtype}"
            )
        if new is not original:
            original.data = new.detach()
        _register(self, "original", original)

    def _keep_several(self, original: Tensor, new: Sequence[object]) -> None:
        for i, tensor in enumerate(new):
            if not isinstance(tensor, Tensor):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, "
                    f"tuple...). Got element {i} of the sequence with type "
                    f"{type(tensor).__name__}."
                )
            if isinstance(original, Parameter):
                tensor = Parameter(tensor, original.requires_grad)
            _register(self, f"original{i}", tensor.requires_grad_(original.requires_grad))

    def _originals(self) -> list[tuple[str, Tensor]]:
        names = ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]
        return [(name, getattr(self, name)) for name in names]

    def right_inverse(self, value: Any) -> None:
        """Set the originals so that the parametrized tensor is the value."""
        with using(grad=False):
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(
                        f"parametrization {type(module).__name__} does not implement right_inverse."
                    )
                value = module.right_inverse(value)
            if self.is_tensor != isinstance(value, Tensor):
                wanted = "a tensor" if self.is_tensor else "a sequence of tensors"
                raise ValueError(
                    f"'right_inverse' must return {wanted}. Got {type(value).__name__}."
                )
            values = [value] if self.is_tensor else list(value)
            if len(values) != self.ntensors:
                raise ValueError(
                    f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. "
                    f"Got a sequence of length {len(values)}."
                )
            for (name, original), tensor in zip(self._originals(), values, strict=True):
                if tensor.dtype is not original.dtype:
                    raise ValueError(
                        f"The tensor returned by `right_inverse` has dtype {tensor.dtype} while "
                        f"`{name}` has dtype {original.dtype}"
                    )
                original.data = tensor.detach()

    def forward(self) -> Any:
        first, *rest = self
        value = first(*[tensor for _, tensor in self._originals()])
        for module in rest:
            value = module(value)
        return value


def _check_kept(value: object, shape: object, dtype: DtypeLike) -> None:
    """A parametrization gives a tensor of the shape and type it had before."""
    if not isinstance(value, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(value).__name__}.")
    for what, former, present in (("dtype", dtype, value.dtype), ("shape", shape, value.shape)):
        if former != present:
            raise ValueError(
                f"Registering a parametrization may not change the {what} of the tensor, unless "
                f"`unsafe` flag is enabled.\nunparametrized {what}: {former}\n"
                f"parametrized {what}: {present}"
            )


# -- classes with properties --------------------------------------------------------------------


def _copied(self: object, memo: dict[int, object]) -> object:
    if id(self) not in memo:
        memo[id(self)] = replica = self.__class__.__new__(self.__class__)
        replica.__dict__.update(deepcopy(self.__dict__, memo))
    return memo[id(self)]


def _refuse_pickling(self: object) -> object:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict()."
    )


def _give_own_class(module: Module) -> None:
    """A subclass for this one module, whose properties do not show elsewhere."""
    own = {"__getstate__": _refuse_pickling, "__deepcopy__": _copied}
    former = module.__class__
    module.__class__ = type(f"Parametrized{former.__name__}", (former,), own)


def _computed(name: str) -> property:
    def get(self: Any) -> Tensor:
        parametrization = self.parametrizations[name]
        if not _Cache.depth:
            return parametrization()  # type: ignore[no-any-return]
        key = (id(self), name)
        if key not in _Cache.values:
            _Cache.values[key] = parametrization()
        return _Cache.values[key]

    def set(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(get, set)


# -- registering --------------------------------------------------------------------------------


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """From now on ``module.<tensor_name>`` is the parametrization of what is learned.

    Args:
        module: the module
        tensor_name: the parameter or buffer
        parametrization: a module whose ``forward`` computes it; its ``right_inverse``, if it has
            one, takes what is assigned
        unsafe: leave out the checks of shape and type; default ``False``

    >>> class Symmetric(nn.Module):
    ...     def forward(self, x):
    ...         return (x + x.T) / 2
    >>> layer = nn.Linear(2, 2)
    >>> _ = nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    >>> eg.equal(layer.weight, layer.weight.T)
    True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        held: ParametrizationList = module.parametrizations[tensor_name]
        if not unsafe:
            _check_further(getattr(module, tensor_name), parametrization)
        held.append(parametrization)
        held.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        held = ParametrizationList([parametrization], original, unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _give_own_class(module)
            module.parametrizations = ModuleDict()
        setattr(module.__class__, tensor_name, _computed(tensor_name))
        module.parametrizations[tensor_name] = held
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    return module


def _check_further(value: Tensor, parametrization: Module) -> None:
    found = parametrization(value)
    _check_kept(found, value.shape, value.dtype)
    inverse = _inverted(parametrization, found)
    if not isinstance(inverse, Tensor):
        raise ValueError(
            f"parametrization.right_inverse must return a tensor. Got: {type(inverse).__name__}"
        )
    if inverse.dtype is not value.dtype or inverse.shape != value.shape:
        raise ValueError(
            "The tensor returned by parametrization.right_inverse must have the same dtype and "
            "shape as the parametrized tensor, unless the `unsafe` flag is enabled."
        )


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module (or a tensor of it) is parametrized.

    Args:
        module: the module
        tensor_name: one tensor of it; default any

    >>> nn.utils.parametrize.is_parametrized(nn.Linear(2, 2))
    False
    """
    held = getattr(module, "parametrizations", None)
    if not isinstance(held, ModuleDict):
        return False
    return len(held) > 0 if tensor_name is None else tensor_name in held


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Make a tensor ordinary again, with its present value or with the original one.

    Args:
        module: the module
        tensor_name: the tensor
        leave_parametrized: keep the present value; default ``True``

    >>> class Symmetric(nn.Module):
    ...     def forward(self, x):
    ...         return (x + x.T) / 2
    >>> layer = nn.Linear(2, 2)
    >>> _ = nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    >>> _ = nn.utils.parametrize.remove_parametrizations(layer, "weight")
    >>> sorted(layer.state_dict())
    ['bias', 'weight']
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    held = module.parametrizations[tensor_name]
    if held.is_tensor:
        original = held.original
        if leave_parametrized:
            with using(grad=False):
                original.data = getattr(module, tensor_name).detach()
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
    delattr(module.__class__, tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = module.__class__.__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class of a module, parametrized or not.

    >>> nn.utils.parametrize.type_before_parametrizations(nn.Linear(2, 2)).__name__
    'Linear'
    """
    return module.__class__.__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Parametrize a module like another one, and give it the other's originals.

    Args:
        from_module: the one
        to_module: the other
        tensor_name: one tensor; default all

    >>> class Symmetric(nn.Module):
    ...     def forward(self, x):
    ...         return (x + x.T) / 2
    >>> layer = nn.Linear(2, 2)
    >>> _ = nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    >>> other = nn.Linear(2, 2)
    >>> _ = nn.utils.parametrize.transfer_parametrizations_and_params(layer, other)
    >>> eg.equal(other.weight, layer.weight)
    True
    """
    if not is_parametrized(from_module):
        return to_module
    names = list(from_module.parametrizations) if tensor_name is None else [tensor_name]
    for name in names:
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name)))
        source = from_module.parametrizations[name]
        for parametrization in source:
            register_parametrization(to_module, name, parametrization)
        target = to_module.parametrizations[name]
        for original, tensor in source._originals():
            setattr(target, original, tensor)
    return to_module


__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization",
    "remove_parametrizations", "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]  # fmt: skip
