"""Devices: the CPU, ``meta`` (types without memory), and the names of accelerators."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike

# The names that PyTorch knows. Only ``cpu`` and ``meta`` hold tensors here.
KNOWN = (
    "cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga",
    "maia", "xla", "lazy", "vulkan", "mps", "meta", "hpu", "mtia", "privateuseone",
)  # fmt: skip
# The default devices of the ``with`` blocks that are open, innermost last.
_contexts: list[Device] = []


class Device:
    """A device by name. Tensors are on the CPU; an accelerator can be named, and not used."""

    __slots__ = ("index", "type")

    type: str
    index: int | None

    def __init__(self, type: Any = "cpu", index: int | None = None) -> None:
        if isinstance(type, Device):
            self.type, self.index = type.type, type.index
            return
        if isinstance(type, int):
            type, index = "cuda", type
        name, _, number = str(type).partition(":")
        if name not in KNOWN or (number and not number.isdigit()):
            raise RuntimeError(
                f"evergrad computes on the CPU; there is no device {str(type)!r}. "
                f"Expected one of {', '.join(KNOWN)} device type at start of device string: "
                f"{name}"
            )
        self.type = name
        self.index = int(number) if number else index

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str(self) == other
        if not isinstance(other, Device):
            return NotImplemented
        return bool(other.type == self.type and other.index == self.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> Any:
        return Device, (self.type, self.index)

    def __enter__(self) -> Device:
        """Make it the default device of the functions that make tensors."""
        check_device(self)
        _contexts.append(self)
        return self

    def __exit__(
        self,
        kind: object,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _contexts.pop()


CPU = Device()
META = Device("meta")


def check_device(device: DeviceLike) -> Device:
    """The device that holds a tensor; accelerators are refused by name."""
    found = device if isinstance(device, Device) else Device(device)
    if found.type not in ("cpu", "meta"):
        raise RuntimeError(
            f"evergrad computes on the CPU; there is no device {str(found)!r}. "
            "Use device='cpu', or leave it out."
        )
    return found


def context_device() -> Device | None:
    """The device of the innermost ``with`` block, if one is open."""
    return _contexts[-1] if _contexts else None
