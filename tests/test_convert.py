"""The way in and out of tensors: data, shared memory, numbers, element types."""

from __future__ import annotations

import operator
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import evergrad
from evergrad.core.traced_function import trace
from evergrad.errors import SavedValueError, TraceError
from oracle import Call, assert_same

# -- from data ----------------------------------------------------------------------------------

DATA: list[Call] = [
    lambda ns: ns.tensor(3),
    lambda ns: ns.tensor(3.0),
    lambda ns: ns.tensor(True),
    lambda ns: ns.tensor(1j),
    lambda ns: ns.tensor([True, 2]),
    lambda ns: ns.tensor([True, 1.5]),
    lambda ns: ns.tensor([1.5, 2, 1j]),
    lambda ns: ns.tensor([]),
    lambda ns: ns.tensor([[], []]),
    lambda ns: ns.tensor(()),
    lambda ns: ns.tensor(range(3)),
    lambda ns: ns.tensor(((1, 2), (3, 4))),
    lambda ns: ns.tensor(bytearray(b"abc")),
    lambda ns: ns.tensor([1.0, 2], requires_grad=True),
    lambda ns: ns.tensor([1, 2], requires_grad=True),
    lambda ns: ns.tensor([1.7, -1.7], dtype=ns.int64),
    lambda ns: ns.tensor([0.0, 0.5], dtype=ns.bool),
    lambda ns: ns.tensor([1.0, 2], dtype=float),
    lambda ns: ns.tensor([1.0, 2], dtype=int),
    lambda ns: ns.tensor(70000.0, dtype=ns.float16),
    lambda ns: ns.tensor([1.00390625, 1.005859375], dtype=ns.bfloat16),
    lambda ns: ns.tensor([-1], dtype=ns.uint8),
    lambda ns: ns.tensor([300], dtype=ns.uint8),
    lambda ns: ns.tensor(2**40, dtype=ns.int32),
    lambda ns: ns.tensor(2**63),
    lambda ns: ns.tensor([2**63, 1.0]),
    lambda ns: ns.tensor(float("nan"), dtype=ns.int64),
    lambda ns: ns.tensor(1 + 2j, dtype=ns.float32),
    lambda ns: ns.tensor(1 + 2j, dtype=ns.bool),
    lambda ns: ns.tensor(np.float64(1.5)),
    lambda ns: ns.tensor([np.float64(1.5)]),
    lambda ns: ns.tensor([np.float32(1.5), 2.0]),
    lambda ns: ns.tensor([np.float16(1.5), 2.0]),
    lambda ns: ns.tensor([np.int8(1), np.uint8(4)]),
    lambda ns: ns.tensor(np.arange(6).reshape(2, 3).T),
    lambda ns: ns.tensor([np.array([1.5, 2]), [2.0, 3]]),
    lambda ns: ns.tensor([ns.tensor(1.5, dtype=ns.float64), 2]),
    lambda ns: ns.tensor([ns.tensor([1.5]), ns.tensor([2.0])]),
    lambda ns: ns.tensor([ns.tensor([1.5, 2])]),
    lambda ns: ns.tensor([[1, 2], [3]]),
    lambda ns: ns.tensor([[[1], [2]], [[1], [2, 3]]]),
    lambda ns: ns.tensor([[1, 2], 3]),
    lambda ns: ns.tensor([1, [2, 3]]),
    lambda ns: ns.tensor("abc"),
    lambda ns: ns.tensor(["abc"]),
    lambda ns: ns.tensor(None),
    lambda ns: ns.tensor([None]),
    lambda ns: ns.tensor({1: 2}),
    lambda ns: ns.tensor(np.array(["a"])),
    lambda ns: ns.as_tensor(3),
    lambda ns: ns.as_tensor(np.float32(3)),
    lambda ns: ns.as_tensor([1, 2], dtype=ns.float64),
    lambda ns: ns.as_tensor(np.arange(4)[::-1]),
    lambda ns: ns.from_numpy(np.arange(4)[::-1]),
    lambda ns: ns.from_numpy([1]),
    lambda ns: ns.from_numpy(np.float32(1)),
    lambda ns: ns.from_numpy(np.array([1, 2], dtype=">i4")),
    lambda ns: ns.from_numpy(np.zeros(3, dtype=[("a", "f4"), ("b", "u1")])["a"]),
    lambda ns: ns.asarray(1.5),
    lambda ns: ns.asarray([1, 2], dtype=ns.float32, requires_grad=True),
    lambda ns: ns.asarray([1, 2], copy=False),
    lambda ns: ns.asarray(np.array([1, 2]), copy=False, dtype=ns.float32),
    lambda ns: ns.asarray(bytearray(b"abcd"), dtype=ns.uint8),
    lambda ns: ns.asarray(ns.ones(2, requires_grad=True), requires_grad=False),
    lambda ns: ns.frombuffer(bytearray(b"abcd"), dtype=ns.int16),
    lambda ns: ns.frombuffer(bytearray(b"abcd"), dtype=ns.int16, count=1),
    lambda ns: ns.frombuffer(bytearray(b"abcd"), dtype=ns.int16, count=3),
    lambda ns: ns.frombuffer(bytearray(b"abcd"), dtype=ns.int16, count=0),
    lambda ns: ns.frombuffer(bytearray(b"abcd"), dtype=ns.int16, offset=1),
    lambda ns: ns.frombuffer(bytearray(b"abcd"), dtype=ns.int16, offset=9),
    lambda ns: ns.frombuffer(bytearray(b""), dtype=ns.int16),
    lambda ns: ns.frombuffer(5, dtype=ns.int16),
    lambda ns: ns.Tensor(),
    lambda ns: ns.Tensor(2, 3).shape,
    lambda ns: ns.Tensor([1, 2]),
    lambda ns: ns.Tensor((1, 2)),
    lambda ns: ns.Tensor(ns.Size([2, 3])).shape,
    lambda ns: ns.Tensor(np.array([1, 2])),
    lambda ns: ns.Tensor(3.5),
    lambda ns: ns.Tensor("a"),
    lambda ns: ns.LongTensor([1.7, 2]),
    lambda ns: ns.LongTensor(2).shape,
    lambda ns: ns.LongTensor(ns.tensor([1.0])),
    lambda ns: ns.BoolTensor([0, 1]),
    lambda ns: isinstance(ns.ones(1), ns.FloatTensor),
    lambda ns: isinstance(ns.ones(1), ns.LongTensor),
    lambda ns: ns.ones(2).new([1, 2]),
    lambda ns: ns.tensor([1]).new(2, 3).dtype,
]


@pytest.mark.parametrize("call", DATA)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_data_as_in_torch(torch: ModuleType, call: Call) -> None:
    assert_same(torch, call)


def test_a_tensor_copies_its_data() -> None:
    array = np.ones(2)
    for source in (array, evergrad.from_numpy(array), array[::-1]):
        made = evergrad.tensor(source)
        array[:] = 5
        assert made.tolist() == [1, 1]
        array[:] = 1


def test_ragged_lists_say_where() -> None:
    with pytest.raises(ValueError, match=r"expected sequence of length 2 at dim 1 \(got 3\)"):
        evergrad.tensor([[1, 2], [3, 4, 5]])


def test_endless_nesting_is_an_error() -> None:
    nested: list[Any] = []
    nested.append(nested)
    with pytest.raises(ValueError, match="too many dimensions"):
        evergrad.tensor(nested)


def test_a_tensor_of_a_tensor_has_no_history() -> None:
    x = evergrad.ones(2, requires_grad=True)
    assert not evergrad.tensor(x * 2).requires_grad
    assert evergrad.tensor(x, requires_grad=True).is_leaf


# -- shared memory ------------------------------------------------------------------------------


def test_numpy_memory_is_shared_both_ways() -> None:
    array = np.zeros((2, 3), np.float32)
    tensor = evergrad.from_numpy(array.T)
    tensor[0, 1] = 7
    assert array[1, 0] == 7
    back = tensor.numpy()
    back[2, 0] = 9
    assert array[0, 2] == 9 and tensor[2, 0].item() == 9
    assert evergrad.as_tensor(array).data_ptr() == array.ctypes.data
    assert np.asarray(tensor).ctypes.data == array.ctypes.data


def test_a_read_only_array_warns_and_stays_as_it_is() -> None:
    array = np.ones(2)
    array.flags.writeable = False
    with pytest.warns(UserWarning, match="not writable"):
        tensor = evergrad.from_numpy(array)
    with pytest.raises(ValueError, match="read-only"):
        tensor.fill_(3)


def test_a_write_from_outside_is_noticed_by_backward() -> None:
    x = evergrad.ones(3, requires_grad=True)
    weights = np.ones(3, np.float32)
    y = (x * evergrad.from_numpy(weights)).sum()
    weights[0] = 5
    with pytest.raises(SavedValueError, match="changed from outside"):
        y.backward()


def test_numpy_of_a_tensor_with_gradient(torch: ModuleType) -> None:
    for call in (
        lambda ns: ns.ones(2, requires_grad=True).numpy(),
        lambda ns: np.asarray(ns.ones(2, requires_grad=True)),
    ):
        assert_same(torch, call)
    assert evergrad.ones(2, requires_grad=True).numpy(force=True).tolist() == [1, 1]


def test_array_protocol_with_types_and_copies() -> None:
    x = evergrad.tensor([1.5, 2.5])
    assert np.array(x, dtype=np.int64).tolist() == [1, 2]
    assert np.asarray(x).ctypes.data == x.data_ptr()
    assert np.array(x, copy=True).ctypes.data != x.data_ptr()
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(x, dtype=np.float64, copy=False)
    assert isinstance(np.exp(x), evergrad.Tensor)
    assert isinstance(np.ones(2) + x, evergrad.Tensor)
    assert evergrad.ones(2, dtype=evergrad.bfloat16).numpy().dtype == ml_dtypes.bfloat16


DLPACK_TYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16",
                "float32", "float64", "complex64", "complex128")  # fmt: skip


@pytest.mark.parametrize("name", DLPACK_TYPES)
def test_dlpack_with_torch(torch: ModuleType, name: str) -> None:
    theirs = torch.arange(6).reshape(2, 3).to(getattr(torch, name)).T
    ours = evergrad.from_dlpack(theirs)
    assert ours.dtype.name == name and ours.stride() == theirs.stride()
    assert ours.data_ptr() == theirs.data_ptr()
    back = torch.from_dlpack(ours)
    assert back.dtype is theirs.dtype and back.data_ptr() == theirs.data_ptr()
    assert torch.equal(back, theirs)


def test_dlpack_with_numpy_and_capsules() -> None:
    array = np.arange(4.0)
    ours = evergrad.from_dlpack(array)
    assert ours.data_ptr() == array.ctypes.data
    assert np.from_dlpack(ours).ctypes.data == array.ctypes.data
    assert evergrad.from_dlpack(ours.__dlpack__()).data_ptr() == array.ctypes.data
    assert ours.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="detach"):
        evergrad.ones(1, requires_grad=True).__dlpack__()
    with pytest.raises(TypeError, match="__dlpack__"):
        evergrad.from_dlpack(3)


def test_a_capsule_is_good_for_once() -> None:
    capsule = evergrad.ones(2).__dlpack__()
    evergrad.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="only once"):
        evergrad.from_dlpack(capsule)


# -- numbers out --------------------------------------------------------------------------------

NUMBERS: list[Call] = [
    lambda ns: ns.tensor(3.0).item(),
    lambda ns: ns.tensor([1.0, 2]).item(),
    lambda ns: ns.tensor([]).item(),
    lambda ns: ns.tensor(1.5, dtype=ns.bfloat16).item(),
    lambda ns: ns.ones(2, 0).tolist(),
    lambda ns: ns.tensor([[1, 2]]).tolist(),
    lambda ns: ns.tensor([1.5], dtype=ns.bfloat16).tolist(),
    lambda ns: ns.tensor(1 + 2j).tolist(),
    lambda ns: float(ns.tensor([1.0, 2])),
    lambda ns: float(ns.tensor([4])),
    lambda ns: float(ns.tensor(1 + 2j)),
    lambda ns: float(ns.tensor(1 + 0j)),
    lambda ns: int(ns.tensor(3.7)),
    lambda ns: int(ns.tensor(float("nan"))),
    lambda ns: complex(ns.tensor(3.0)),
    lambda ns: bool(ns.tensor([1.0, 2])),
    lambda ns: bool(ns.tensor([])),
    lambda ns: bool(ns.tensor(float("nan"))),
    lambda ns: ns.is_nonzero(ns.tensor(0)),
    lambda ns: operator.index(ns.tensor([4])),
    lambda ns: operator.index(ns.tensor(True)),
    lambda ns: operator.index(ns.tensor(4.0)),
    lambda ns: operator.index(ns.tensor([1, 2])),
    lambda ns: 1.0 in ns.tensor([1.0, 2]),
    lambda ns: 3 in ns.tensor([1.0, 2]),
    lambda ns: "a" in ns.tensor([1.0, 2]),
    lambda ns: f"{ns.tensor(3.0):.2f}",
    lambda ns: f"{ns.tensor([1.0, 2])}",
    lambda ns: f"{ns.tensor([1.0, 2]):.2f}",
    lambda ns: repr(ns.tensor([1.0, 2], requires_grad=True)),
    lambda ns: repr(ns.tensor([1.0, 2], requires_grad=True).exp()),
    lambda ns: repr(ns.tensor([1], dtype=ns.int8)).replace("evergrad", "torch"),
    lambda ns: [10, 20, 30][ns.tensor(1)],
    lambda ns: len(ns.tensor(1.0)),
    lambda ns: list(ns.tensor([[1], [2]])),
    lambda ns: reversed(ns.tensor([[1], [2]])),
    lambda ns: reversed(ns.tensor(1.0)),
]


@pytest.mark.parametrize("call", NUMBERS)
def test_numbers_as_in_torch(torch: ModuleType, call: Call) -> None:
    assert_same(torch, call)


def test_a_traced_tensor_has_no_number() -> None:
    for call in (bool, float, int, operator.index, evergrad.Tensor.item, evergrad.Tensor.numpy):
        with pytest.raises(TraceError, match="while tracing"):
            trace(call, [evergrad.tensor(1)._type])


def test_a_traced_tensor_shows_its_type() -> None:
    shown: list[str] = []
    trace(lambda x: shown.append(repr(x)), [evergrad.ones(2)._type])
    assert shown == ["tensor(<traced>, type=float32[2])"]


def test_a_subclass_prints_its_name() -> None:
    class Weight(evergrad.Tensor):
        pass

    assert repr(Weight([1.0])) == "Weight([1.])"


# -- element types ------------------------------------------------------------------------------

CASTS: list[Call] = [
    lambda ns: ns.ones(2).to(ns.float64),
    lambda ns: ns.ones(2).to("cpu", ns.float64),
    lambda ns: ns.ones(2).to(ns.tensor([1])),
    lambda ns: ns.ones(2).to(ns.device("cpu"), dtype=ns.int64, non_blocking=True),
    lambda ns: ns.ones(2).to(dtype=ns.float64, copy=True),
    lambda ns: ns.ones(2).to(float),
    lambda ns: ns.ones(2).to(),
    lambda ns: ns.ones(2).to("foo"),
    lambda ns: ns.ones(2).to(ns.float64, False, True, 1, 2),
    lambda ns: ns.ones(2).to(wrong=1),
    lambda ns: ns.ones(2).type(),
    lambda ns: ns.tensor(True).type(),
    lambda ns: ns.ones(2).type("torch.DoubleTensor"),
    lambda ns: ns.ones(2).type(ns.int32),
    lambda ns: ns.ones(2).type(ns.LongTensor),
    lambda ns: ns.ones(2).type("torch.FooTensor"),
    lambda ns: ns.ones(2).type(float),
    lambda ns: ns.ones(2).type_as(ns.tensor([1])),
    lambda ns: ns.tensor([1.7, -1.7, 300.0]).byte(),
    lambda ns: ns.tensor([1.7, -1.7]).char(),
    lambda ns: ns.tensor([1.7, -1.7]).short(),
    lambda ns: ns.tensor([1.7, -1.7]).int(),
    lambda ns: ns.tensor([1.7, -1.7]).long(),
    lambda ns: ns.tensor([1.7, 0.0]).bool(),
    lambda ns: ns.tensor([1, 2]).half(),
    lambda ns: ns.tensor([1, 2]).bfloat16(),
    lambda ns: ns.tensor([1, 2]).double(),
    lambda ns: ns.tensor([1, 2]).float(),
    lambda ns: ns.tensor([1, 2]).cfloat(),
    lambda ns: ns.tensor([1, 2]).cdouble(),
    lambda ns: ns.ones(2, requires_grad=True).double(),
    lambda ns: ns.typename(ns.ones(1)),
    lambda ns: ns.typename(3),
    lambda ns: ns.ones(1).get_device(),
    lambda ns: (ns.ones(1).is_cuda, ns.ones(1).is_sparse, ns.ones(1).layout),
]


@pytest.mark.parametrize("call", CASTS)
def test_casts_as_in_torch(torch: ModuleType, call: Call) -> None:
    assert_same(torch, call)


def test_a_cast_that_changes_nothing_is_the_tensor_itself() -> None:
    x = evergrad.ones(2)
    assert x.float() is x and x.to("cpu") is x and x.cpu() is x and x.to(x) is x
    assert x.to(x, copy=True) is not x


def test_other_devices_are_refused_by_name() -> None:
    for call in (evergrad.Tensor.cuda, lambda x: x.to("cuda:0")):
        with pytest.raises(RuntimeError, match="computes on the CPU"):
            call(evergrad.ones(1))
