"""Export to ONNX: not offered, and said so."""

from __future__ import annotations

from typing import NoReturn


def export(
    model: object, args: tuple[object, ...] = (), f: object = None, *, kwargs: object = None,
    verbose: bool | None = None, input_names: object = None, output_names: object = None,
    opset_version: int | None = None, dynamo: bool = True, **options: object,
) -> NoReturn:  # fmt: skip
    """Refused before anything is written."""
    raise NotImplementedError(
        "evergrad does not write ONNX files. Save the parameters with "
        "evergrad.save(model.state_dict(), path), load them into the same model in PyTorch and "
        "export there."
    )


def is_in_onnx_export() -> bool:
    """Whether an export is running: never."""
    return False
