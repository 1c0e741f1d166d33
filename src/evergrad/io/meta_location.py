"""``load(map_location="meta")``: the shapes and types of a file, without its numbers."""

from __future__ import annotations

from typing import Any

from evergrad.core.device import Device
from evergrad.core.tensor import Tensor
from evergrad.nn.module import Module
from evergrad.nn.parameter import Parameter


def is_meta(map_location: object) -> bool:
    """Whether it names the device of tensors without memory."""
    return isinstance(map_location, str | Device) and str(map_location).partition(":")[0] == "meta"


def on_meta(value: Any, made: dict[int, Any] | None = None) -> Any:
    """What was loaded, with tensors on device "meta". Containers and modules stay the same
    objects, and a tensor that occurs twice is one tensor afterwards too."""
    made = {} if made is None else made
    if id(value) in made:
        return made[id(value)]
    if isinstance(value, Tensor):
        result: Any = value.detach().to("meta")
        if isinstance(value, Parameter):
            result = Parameter(result)
        result.requires_grad_(value.requires_grad)
    elif isinstance(value, Module):
        result = value.to("meta")
    elif isinstance(value, dict):
        for key, member in value.items():
            value[key] = on_meta(member, made)
        result = value
    elif isinstance(value, list):
        value[:] = [on_meta(member, made) for member in value]
        result = value
    elif isinstance(value, tuple):
        members = [on_meta(member, made) for member in value]
        result = type(value)(*members) if hasattr(value, "_fields") else type(value)(members)
    else:
        return value
    made[id(value)] = result
    return result
