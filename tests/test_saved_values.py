"""Right or an error: a value that backward needs was overwritten after it was saved."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.errors import SavedValueError
from twins import fixed, leaf


def write_data(y: Any, x: Any) -> None:
    y.data.zero_()


def write_in_place(y: Any, x: Any) -> None:
    y.mul_(2)


def write_view(y: Any, x: Any) -> None:
    y[0] = 5.0


def write_detached(y: Any, x: Any) -> None:
    y.detach().add_(1)


def write_without_grad(y: Any, x: Any) -> None:
    with eg.no_grad():
        y.copy_(y * 2)


@pytest.mark.parametrize(
    "write", [write_data, write_in_place, write_view, write_detached, write_without_grad]
)
def test_an_overwritten_value_is_an_error(write: Any) -> None:
    x = leaf(eg, [1.0, 2.0])
    y = x.exp()
    z = y * 1  # saved by exp
    write(y, x)
    with pytest.raises(SavedValueError) as error:
        z.sum().backward()
    message = str(error.value)
    assert "ExpBackward0" in message
    assert "y = x.exp()" in message, "the line that saved it"
    assert any(
        text in message
        for text in ("y.data.zero_()", "y.mul_(2)", "y[0] = 5.0", "y.detach().add_(1)", "y.copy_(")
    ), "the line that overwrote it"
    assert "fix:" in message
    assert x.grad is None


def export_and_write(y: Any) -> None:
    y.detach().numpy()[:] = 0


def export_before(y: Any) -> None:
    np.asarray(y.detach())[0] += 1


def export_by_dlpack(y: Any) -> None:
    array = np.from_dlpack(y.detach())
    if not array.flags.writeable:  # NumPy 2.1 imports nothing writable
        ctypes.c_float.from_address(array.ctypes.data).value = 3.0
    else:
        array[0] = 3.0


@pytest.mark.parametrize("write", [export_and_write, export_before, export_by_dlpack])
def test_writes_from_numpy_are_noticed(write: Any) -> None:
    x = leaf(eg, [1.0, 2.0])
    y = x.exp()
    write(y)
    with pytest.raises(SavedValueError, match="changed from outside") as error:
        y.sum().backward()
    assert "y = x.exp()" in str(error.value)
    assert "fix:" in str(error.value)


def test_an_array_taken_before_the_value_was_saved_is_watched_too() -> None:
    x, w = leaf(eg, [1.0, 2.0]), fixed(eg, [3.0, 4.0])
    array = w.numpy()
    y = x * w
    array[1] = 0.0
    with pytest.raises(SavedValueError, match="changed from outside"):
        y.sum().backward()


def test_writes_behind_from_numpy_are_noticed() -> None:
    array = np.array([1.0, 2.0])
    x, data = leaf(eg, [3.0, 4.0]), eg.from_numpy(array)
    y = (x * data).sum()
    array[0] = 10.0
    with pytest.raises(SavedValueError, match="changed from outside") as error:
        y.backward()
    assert "y = (x * data).sum()" in str(error.value)


def test_writes_behind_a_view_of_from_numpy_are_noticed() -> None:
    array = np.arange(6.0).reshape(2, 3)
    x, data = leaf(eg, [3.0, 4.0, 5.0]), eg.from_numpy(array)
    y = (x * data[1]).sum()
    array[0] = -1.0  # another row: nothing that was saved
    y.backward(retain_graph=True)
    array[1, 2] = -1.0
    with pytest.raises(SavedValueError):
        y.backward()


def test_writes_before_the_forward_are_fine() -> None:
    array = np.array([1.0, 2.0])
    x, data = leaf(eg, [3.0, 4.0]), eg.from_numpy(array)
    for step in range(3):
        array[:] = step
        x.grad = None
        (x * data).sum().backward()
        assert x.grad.tolist() == [step, step]


def test_writes_that_change_nothing_are_fine() -> None:
    x = leaf(eg, [1.0, 2.0])
    y = x.exp()
    array = y.detach().numpy()
    array[:] = array.copy()
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp([1.0, 2.0]))


def test_writes_to_what_nobody_saved_are_fine() -> None:
    x = leaf(eg, [1.0, 2.0])
    y = x + 1
    z = y * 2  # keeps nothing of y
    y.data.zero_()
    y.detach().numpy()[:] = 7
    z.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_a_saved_value_that_is_not_needed_is_not_checked() -> None:
    x, w = leaf(eg, [1.0, 2.0]), fixed(eg, [3.0, 4.0])
    y = x * w  # keeps w, but not x: w asks for no gradient
    with eg.no_grad():
        x.zero_()
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 4.0]


def test_an_overwritten_value_is_an_error_at_second_order() -> None:
    x = leaf(eg, [1.0, 2.0])
    y = x.exp()
    (first,) = eg.autograd.grad(y.sum(), x, create_graph=True)
    y.data.zero_()
    with pytest.raises(SavedValueError):
        first.sum().backward()


def test_gradients_taken_before_the_write_still_hold() -> None:
    x = leaf(eg, [1.0, 2.0])
    y = x.exp()
    y.sum().backward(retain_graph=True)
    y.data.zero_()
    np.testing.assert_allclose(x.grad.numpy(), np.exp([1.0, 2.0]))
    with pytest.raises(SavedValueError):
        y.sum().backward()
