"""Pruning: parameters as the product of their original values and a mask."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from evergrad.core.tensor import Tensor
from evergrad.nn.module import Module
from evergrad.nn.utils.vector import parameters_to_vector
from evergrad.ops.surface.public import FUNCTIONS


class BasePruningMethod(ABC):
    """A rule that says which elements become zero; a hook applies it before each ``forward``."""

    _tensor_name: str
    PRUNING_TYPE: str

    def __call__(self, module: Module, inputs: object) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask for the importance of each element."""

    def apply_mask(self, module: Module) -> Tensor:
        """The pruned parameter."""
        mask = getattr(module, self._tensor_name + "_mask")
        original = getattr(module, self._tensor_name + "_orig")
        return mask.to(dtype=original.dtype) * original  # type: ignore[no-any-return]

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Prune a parameter of a module, on top of what was pruned before."""
        former = _hook_of(module, name)
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        original = getattr(module, name + "_orig") if former else getattr(module, name)
        scores = getattr(module, name) if importance_scores is None else importance_scores
        if scores.shape != original.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}"
            )
        if former is None:
            delattr(module, name)
            module.register_parameter(name + "_orig", original)
            default = FUNCTIONS["ones_like"](original)
        else:
            default = getattr(module, name + "_mask").clone()
            method = _joined(former, method, name)
            _remove_hook(module, name)
        mask = method.compute_mask(scores, default_mask=default)
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(
        self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Any = None
    ) -> Tensor:
        """The pruned tensor, without a module."""
        scores = t if importance_scores is None else importance_scores
        mask = FUNCTIONS["ones_like"](t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=mask)

    def remove(self, module: Module) -> None:
        """Make the pruning permanent: the parameter keeps its zeros."""
        name = self._tensor_name
        value = self.apply_mask(module)
        original = getattr(module, name + "_orig")
        if name in module.__dict__:
            delattr(module, name)
        original.data = value.data
        del module._parameters[name + "_orig"]
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


def _hook_of(module: Module, name: str) -> BasePruningMethod | None:
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return hook
    return None


def _remove_hook(module: Module, name: str) -> None:
    table = module._tables().forward_pre
    for key, (hook, _) in list(table.items()):
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            del table[key]


def _joined(former: object, method: BasePruningMethod, name: str) -> PruningContainer:
    container = former if isinstance(former, PruningContainer) else PruningContainer(former)
    container.add_pruning_method(method)
    container._tensor_name = name
    return container


class PruningContainer(BasePruningMethod):
    """Several rules, one after the other."""

    def __init__(self, *args: object) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        methods = args[0] if len(args) == 1 and isinstance(args[0], Iterable) else args
        for method in methods:
            self.add_pruning_method(method)
        for method in self._pruning_methods[:1]:
            self._tensor_name = method._tensor_name

    def add_pruning_method(self, method: object) -> None:
        if method is not None and not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Any:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: int) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The last rule, for what the former ones have left."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype).clone()
        if method.PRUNING_TYPE == "unstructured":
            places: Any = mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = method.dim % t.ndim
            others = [d for d in range(t.ndim) if d != dim]
            keep = mask.sum(dim=others) != 0
            places = (slice(None),) * dim + (keep,)
        else:
            places = (slice(None),) * t.ndim
        mask[places] = method.compute_mask(t[places], default_mask=mask[places])
        return mask


class Identity(BasePruningMethod):
    """Prunes nothing."""

    PRUNING_TYPE: str = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


def _count(amount: object, size: int) -> int:
    """How many of ``size`` units an amount means: itself, or a fraction of them."""
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    is_count = isinstance(amount, numbers.Integral)
    if (is_count and amount < 0) or (not is_count and not 0.0 <= float(amount) <= 1.0):
        raise ValueError(
            f"amount={amount} should either be a float in the range [0.0, 1.0] or a non-negative "
            "integer"
        )
    count = int(float(amount)) if is_count else round(float(amount) * size)
    if count > size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters {size}")
    return count


class RandomUnstructured(BasePruningMethod):
    """Prunes random elements."""

    PRUNING_TYPE: str = "unstructured"

    def __init__(self, amount: object) -> None:
        _count(amount, 1 << 62)
        self.amount = amount

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _count(self.amount, t.nelement())
        mask = default_mask.clone()
        if count:
            chosen = FUNCTIONS["topk"](FUNCTIONS["rand_like"](t).view(-1), k=count)
            mask.view(-1)[chosen.indices] = 0
        return mask


class L1Unstructured(BasePruningMethod):
    """Prunes the elements of least magnitude."""

    PRUNING_TYPE: str = "unstructured"

    def __init__(self, amount: object) -> None:
        _count(amount, 1 << 62)
        self.amount = amount

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _count(self.amount, t.nelement())
        mask = default_mask.clone()
        if count:
            chosen = FUNCTIONS["topk"](t.abs().view(-1), k=count, largest=False)
            mask.view(-1)[chosen.indices] = 0
        return mask


class RandomStructured(BasePruningMethod):
    """Prunes random channels."""

    dim: int
    amount: Any

    PRUNING_TYPE: str = "structured"

    def __init__(self, amount: object, dim: int = -1) -> None:
        _count(amount, 1 << 62)
        self.amount, self.dim = amount, dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        size = t.shape[self.dim]
        count = _count(self.amount, size)
        if not count:
            return default_mask
        scores = FUNCTIONS["rand"](size)
        keep = scores > FUNCTIONS["kthvalue"](scores, k=count).values
        return _channels(t, self.dim, keep) * default_mask


class LnStructured(BasePruningMethod):
    """Prunes the channels of least norm."""

    dim: int
    n: Any
    amount: Any

    PRUNING_TYPE: str = "structured"

    def __init__(self, amount: object, n: object, dim: int = -1) -> None:
        _count(amount, 1 << 62)
        self.amount, self.n, self.dim = amount, n, dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        size = t.shape[self.dim]
        count = _count(self.amount, size)
        if not count:
            return default_mask
        dims = [d for d in range(t.ndim) if d != self.dim % t.ndim]
        norms = FUNCTIONS["norm"](t, p=self.n, dim=dims)
        chosen = FUNCTIONS["topk"](norms, k=size - count, largest=True)
        return _channels(t, self.dim, chosen.indices) * default_mask


def _channels(t: Tensor, dim: int, indices: Tensor) -> Tensor:
    mask = FUNCTIONS["zeros_like"](t)
    mask[(slice(None),) * (dim % t.ndim) + (indices,)] = 1
    return mask  # type: ignore[no-any-return]


class CustomFromMask(BasePruningMethod):
    """Prunes by a mask that is given."""

    PRUNING_TYPE: str = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def identity(module: Module, name: str) -> Module:
    """Let a parameter be pruned by nothing yet."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: object) -> Module:
    """Prune random elements of a parameter."""
    RandomUnstructured.apply(module, name, amount=amount)
    return module


def l1_unstructured(
    module: Module, name: str, amount: object, importance_scores: Tensor | None = None
) -> Module:
    """Prune the elements of least magnitude."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: object, dim: int) -> Module:
    """Prune random channels of a parameter."""
    RandomStructured.apply(module, name, amount=amount, dim=dim)
    return module


def ln_structured(
    module: Module, name: str, amount: object, n: object, dim: int,
    importance_scores: Tensor | None = None,
) -> Module:  # fmt: skip
    """Prune the channels of least norm."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(
    parameters: Any, pruning_method: type[BasePruningMethod], importance_scores: Any = None,
    **kwargs: object,
) -> None:  # fmt: skip
    """Prune several parameters as if they were one."""
    pairs = list(parameters)
    scores = importance_scores or {}
    relevant = [scores.get((m, n), getattr(m, n)) for m, n in pairs]
    t = parameters_to_vector(relevant)
    ones_like: Callable[[Tensor], Tensor] = FUNCTIONS["ones_like"]
    masks = [getattr(m, n + "_mask", ones_like(getattr(m, n))) for m, n in pairs]
    container = PruningContainer()
    container._tensor_name = "temp"
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError('Only "unstructured" PRUNING_TYPE supported for the `pruning_method`')
    container.add_pruning_method(method)
    final = container.compute_mask(t, parameters_to_vector(masks))
    start = 0
    for module, name in pairs:
        parameter = getattr(module, name)
        count = parameter.numel()
        custom_from_mask(module, name, mask=final[start : start + count].view_as(parameter))
        start += count


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune a parameter by a mask."""
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: Module, name: str) -> Module:
    """Make the pruning of a parameter permanent."""
    hook = _hook_of(module, name)
    if hook is None:
        raise ValueError(
            f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
        )
    hook._tensor_name = name
    hook.remove(module)
    _remove_hook(module, name)
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter in the tree of a module is pruned."""
    return any(
        isinstance(hook, BasePruningMethod)
        for child in module.modules()
        for hook in child._forward_pre_hooks.values()
    )
