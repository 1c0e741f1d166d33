"""The text of tensors: PyTorch's, number for number and line for line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from evergrad.core.printing import (
    format_tensor,
    get_printoptions,
    printoptions,
    set_printoptions,
)

torch_missing = "PyTorch 2.13.0 is not installed: pip install torch==2.13.0"


def text(values: Any, dtype: str = "float32", **words: Any) -> str:
    return format_tensor(np.asarray(values, dtype=dtype), dtype_name=dtype, **words)


@pytest.fixture(autouse=True)
def default_options() -> Iterator[None]:
    yield
    set_printoptions(profile="default")


# Fixed expectations ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([1.0, 2.0], "float32", "tensor([1., 2.])"),
        ([1.5, -2.25], "float32", "tensor([ 1.5000, -2.2500])"),
        (3.0, "float32", "tensor(3.)"),
        (7, "int64", "tensor(7)"),
        ([1.5], "float64", "tensor([1.5000], dtype=evergrad.float64)"),
        ([1, -20], "int32", "tensor([  1, -20], dtype=evergrad.int32)"),
        ([True, False], "bool", "tensor([ True, False])"),
        ([1e-5, 1.0], "float32", "tensor([1.0000e-05, 1.0000e+00])"),
        ([1e9], "float32", "tensor([1.0000e+09])"),
        ([0.0, -0.0], "float32", "tensor([0., -0.])"),
        ([np.nan, np.inf, 1.0], "float32", "tensor([nan, inf, 1.])"),
        ([np.nan, -np.inf, 1.5], "float32", "tensor([   nan,   -inf, 1.5000])"),
        ([1 + 2j, 1.5 - 1j], "complex64", "tensor([1.0000+2.j, 1.5000-1.j])"),
        (1 - 2j, "complex128", "tensor(1.-2.j, dtype=evergrad.complex128)"),
        (np.zeros(0), "float32", "tensor([])"),
        (np.zeros((0, 3)), "float32", "tensor([], size=(0, 3))"),
        (np.zeros(0), "int64", "tensor([], dtype=evergrad.int64)"),
        ([[1, 2], [3, 4]], "int64", "tensor([[1, 2],\n        [3, 4]])"),
        ([[[1]], [[2]]], "int64", "tensor([[[1]],\n\n        [[2]]])"),
    ],
)
def test_known_texts(values: Any, dtype: str, expected: str) -> None:
    assert text(values, dtype) == expected


def test_narrow_floats_print_as_floats() -> None:
    array = np.array([0.1, 2.0], ml_dtypes.bfloat16)
    expected = "tensor([0.1001, 2.0000], dtype=evergrad.bfloat16)"
    assert format_tensor(array, dtype_name="bfloat16") == expected


def test_history_follows_the_numbers() -> None:
    assert text([1.0], grad_fn="MulBackward0") == "tensor([1.], grad_fn=<MulBackward0>)"
    assert text([1.0], requires_grad=True) == "tensor([1.], requires_grad=True)"
    assert text([1.0], requires_grad=True, grad_fn="X") == "tensor([1.], grad_fn=<X>)"


def test_suffixes_wrap_at_the_line_width() -> None:
    with printoptions(linewidth=40):
        assert text([1.0, 2.0], "float64", grad_fn="MulBackward0") == (
            "tensor([1., 2.], dtype=evergrad.float64,\n       grad_fn=<MulBackward0>)"
        )


def test_the_default_dtype_is_not_shown() -> None:
    assert text([1.0], "float64", default_dtype="float64") == "tensor([1.])"
    assert text([1.0], "float32", default_dtype="float64") == (
        "tensor([1.], dtype=evergrad.float32)"
    )
    assert text([1j], "complex128", default_dtype="float64") == "tensor([0.+1.j])"


def test_large_tensors_are_summarized() -> None:
    assert text(np.arange(2000), "int64") == "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"
    lines = text(np.zeros((50, 50))).split("\n")
    assert len(lines) == 7
    assert lines[0] == "tensor([[0., 0., 0.,  ..., 0., 0., 0.],"
    assert lines[3] == "        ...,"


def test_the_prefix_sets_the_indent() -> None:
    assert text([[1], [2]], "int64", prefix="(") == "([[1],\n  [2]])"


# Options ---------------------------------------------------------------------------------------


def test_options_keep_what_is_not_given() -> None:
    set_printoptions(precision=2, linewidth=100)
    set_printoptions(edgeitems=1)
    assert get_printoptions() == {
        "precision": 2,
        "threshold": 1000,
        "edgeitems": 1,
        "linewidth": 100,
        "sci_mode": None,
    }
    set_printoptions(profile="short", precision=3)
    assert (get_printoptions()["precision"], get_printoptions()["edgeitems"]) == (3, 2)
    assert get_printoptions()["linewidth"] == 80


def test_sci_mode_lasts_until_the_next_call() -> None:
    set_printoptions(sci_mode=True)
    assert text([1.5]) == "tensor([1.5000e+00])"
    set_printoptions(precision=4)
    assert text([1.5]) == "tensor([1.5000])"


def test_the_full_profile_leaves_nothing_out() -> None:
    set_printoptions(profile="full")
    assert "..." not in text(np.arange(5000), "int64")


def test_options_of_a_block_end_with_it() -> None:
    before = get_printoptions()
    with pytest.raises(KeyError), printoptions(precision=1):
        assert text([1.25]) == "tensor([1.2])"
        raise KeyError
    assert get_printoptions() == before


def test_unknown_profiles_are_refused() -> None:
    with pytest.raises(ValueError, match="default, short, full"):
        set_printoptions(profile="long")


# Against PyTorch -------------------------------------------------------------------------------

SHAPES = (
    *((), (1,), (2,), (17,), (100,), (1001,), (0,), (2, 3), (1, 1), (3, 50), (50, 30), (0, 3)),
    *((2, 600), (2, 0, 3), (2, 3, 4), (1, 1, 1, 1), (3, 20, 30), (2, 1, 3, 2), (10, 10, 11)),
)
OPTIONS: tuple[dict[str, Any], ...] = (
    {"profile": "default"},
    {"profile": "short"},
    {"profile": "default", "precision": 8, "linewidth": 40},
    {"profile": "default", "edgeitems": 1, "threshold": 5},
    {"profile": "default", "edgeitems": 0, "threshold": 10},
    {"profile": "default", "threshold": 0},
    {"profile": "default", "linewidth": 5},
    {"profile": "default", "sci_mode": True},
    {"profile": "default", "sci_mode": False, "linewidth": 120},
)


def float_arrays(random: np.random.RandomState, shape: tuple[int, ...]) -> Iterator[Any]:
    normal = np.asarray(random.standard_normal(shape))
    rare = np.asarray(random.uniform(size=shape) < 0.2)
    yield normal
    yield from (normal * scale for scale in (1e-5, 1e5, 1e10))
    yield from (np.round(normal * scale) for scale in (10, 1e5))
    yield np.exp(normal * 5)
    yield np.where(rare, np.nan, normal)
    yield np.where(rare, -np.inf, np.round(normal))
    yield from (np.full(shape, value) for value in (0.0, -0.0, np.nan, np.inf))


def arrays(random: np.random.RandomState) -> Iterator[tuple[Any, str]]:
    """Arrays with the dtype to convert them to."""
    for shape in SHAPES:
        for dtype in ("float32", "float64", "float16", "bfloat16"):
            for array in float_arrays(random, shape):
                yield array, dtype
        for dtype in ("int64", "int32", "int16", "int8", "uint8", "bool"):
            for scale in (1, 100):
                yield np.asarray(random.randint(0, scale + 1, shape)), dtype
        for dtype in ("complex64", "complex128"):
            parts = zip(float_arrays(random, shape), float_arrays(random, shape), strict=True)
            for real, imag in parts:
                value = np.empty(shape, np.complex128)
                value.real, value.imag = real, -imag
                yield value, dtype


def ours(tensor: Any, torch: Any) -> str:
    values = tensor.detach()
    if values.dtype == torch.bfloat16:
        array = values.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    else:
        array = values.numpy()
    return format_tensor(
        array,
        dtype_name=str(tensor.dtype).removeprefix("torch."),
        default_dtype=str(torch.get_default_dtype()).removeprefix("torch."),
        requires_grad=tensor.requires_grad,
        grad_fn=None if tensor.grad_fn is None else tensor.grad_fn.name(),
    )


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_texts_equal_pytorch(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch", reason=torch_missing)
    torch.set_printoptions(**options)
    set_printoptions(**options)
    try:
        for count, (array, dtype) in enumerate(arrays(np.random.RandomState(0))):
            tensor = torch.tensor(array).to(getattr(torch, dtype))
            if tensor.is_floating_point() and count % 3:
                tensor.requires_grad_()
                tensor = tensor * 1 if count % 3 == 1 else tensor
            assert ours(tensor, torch) == repr(tensor).replace("torch.", "evergrad.")
    finally:
        torch.set_printoptions(profile="default")


@pytest.mark.parametrize("default", ["float64", "float16", "bfloat16"])
def test_texts_equal_pytorch_for_other_default_dtypes(default: str) -> None:
    torch = pytest.importorskip("torch", reason=torch_missing)
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, default))
    try:
        for dtype in ("float32", "float64", "float16", "bfloat16", "complex64", "complex128"):
            for shape in ((), (3,), (0,), (0, 2)):
                tensor = torch.ones(shape, dtype=getattr(torch, dtype))
                assert ours(tensor, torch) == repr(tensor).replace("torch.", "evergrad.")
    finally:
        torch.set_default_dtype(before)
