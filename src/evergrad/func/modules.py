"""Modules as pure functions of their parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core.tensor import Tensor
from evergrad.core.types import Kwargs
from evergrad.ops.rows.movement.joining import stack

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, StateDict


def _owner(module: object, name: str) -> tuple[Any, str]:
    *path, last = name.split(".")
    for part in path:
        module = getattr(module, part)
    return module, last


def _exchange(module: object, name: str, tensor: object) -> object:
    """Put a tensor in the place of a parameter or buffer; gives what was there."""
    owner, last = _owner(module, name)
    for table in (owner._parameters, owner._buffers):
        if last in table:
            former, table[last] = table[last], tensor
            return former
    raise KeyError(f"the module has no parameter or buffer named {name!r}")


def functionalize(func: Callable[..., object], *, remove: str = "mutations") -> AnyFunction:
    """The function itself: in-place ops and views become pure ops whenever it is traced.

    PyTorch rewrites a function so that its transforms and compilers meet no mutation; here a
    traced write is an equation already, so results and gradients are those of ``func``.

    Args:
        func: the function
        remove: accepted

    >>> eg.func.functionalize(lambda x: x.clone().add_(1))(eg.zeros(2))
    tensor([1., 1.])
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            f"functionalize(f, remove='{remove}'): valid options for argument \"remove\" are: "
            "'mutations', 'mutations_and_views'"
        )

    @functools.wraps(func)
    def wrapped(*args: object, **kwargs: object) -> object:
        return func(*args, **kwargs)

    return wrapped


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Let every batch normalization below use the statistics of its batch only, in place.

    Args:
        root: a module; it is returned

    >>> model = eg.func.replace_all_batch_norm_modules_(nn.Sequential(nn.BatchNorm1d(2)))
    >>> model[0].running_mean is None
    True
    """
    for module in root.modules():
        if hasattr(module, "running_mean") and hasattr(module, "track_running_stats"):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Any,
    args: object = None,
    kwargs: Kwargs | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with other parameters and buffers; the module itself stays as it is.

    Args:
        module: the module
        parameter_and_buffer_dicts: tensors by name, one dictionary or several
        args: arguments of the call, a tuple or one
        kwargs: keyword arguments of the call
        tie_weights: whether tied parameters follow; default ``True``
        strict: whether all names must be there; default ``False``

    >>> layer, given = nn.Linear(1, 1), {"weight": eg.tensor([[2.0]]), "bias": eg.ones(1)}
    >>> eg.func.functional_call(layer, given, eg.ones(1))
    tensor([3.])
    """
    given: dict[str, Tensor] = {}
    dicts = parameter_and_buffer_dicts
    for entry in (dicts,) if isinstance(dicts, dict) else dicts:
        given.update(entry)
    if tie_weights:
        given.update(_tied(module, given))
    own = dict(module.named_parameters()) | dict(module.named_buffers())
    if strict and set(own) != set(given):
        raise RuntimeError(
            f"Missing keys: {sorted(set(own) - set(given))}; unexpected keys: "
            f"{sorted(set(given) - set(own))}"
        )
    former: list[tuple[str, Any]] = []
    call_args = () if args is None else args if isinstance(args, tuple) else (args,)
    try:
        for name, tensor in given.items():
            former.append((name, _exchange(module, name, tensor)))
        return module(*call_args, **(kwargs or {}))
    finally:
        for name, tensor in reversed(former):
            _exchange(module, name, tensor)


def _tied(module: Any, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Other names of a parameter follow the one that was given."""
    every = list(module.named_parameters(remove_duplicate=False))
    every += list(module.named_buffers(remove_duplicate=False))
    by_tensor = {id(tensor): given[name] for name, tensor in every if name in given}
    return {
        name: by_tensor[id(tensor)]
        for name, tensor in every
        if name not in given and id(tensor) in by_tensor
    }


def stack_module_state(models: Sequence[object]) -> tuple[StateDict, StateDict]:
    """The parameters and buffers of equal models, stacked, for ``vmap`` over an ensemble.

    Args:
        models: modules of one structure

    >>> params, buffers = eg.func.stack_module_state([nn.Linear(2, 3) for _ in range(4)])
    >>> params["weight"].shape
    evergrad.Size([4, 3, 2])
    """
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({type(m) for m in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")

    def stacked(kind: str) -> dict[str, Tensor]:
        tables = [dict(getattr(m, kind)()) for m in models]
        found = {}
        for name, first in tables[0].items():
            joined = stack([table[name] for table in tables]).detach()
            found[name] = joined.requires_grad_(first.requires_grad)
        return found

    return stacked("named_parameters"), stacked("named_buffers")
