"""State dicts, whole modules and optimizers: what is loaded goes on where it was saved."""

from __future__ import annotations

import argparse
import datetime
import io
import re
import zipfile
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from file_tools import reloaded, written

import evergrad
from evergrad import nn
from evergrad.errors import UnsafeFileError
from evergrad.serialization import safe_globals
from oracle import assert_equal


def network(ns: Any) -> Any:
    ns.manual_seed(0)
    return ns.nn.Sequential(
        ns.nn.Conv1d(2, 3, 2, bias=False), ns.nn.BatchNorm1d(3), ns.nn.Tanh(), ns.nn.Flatten(),
        ns.nn.LayerNorm(9), ns.nn.Linear(9, 2),
    ).double()  # fmt: skip


def trained(ns: Any, optimizer: Any, steps: int = 2) -> tuple[Any, Any]:
    net = network(ns)
    opt = optimizer(ns, net.parameters())
    continued(ns, net, opt, steps)
    return net, opt


def continued(ns: Any, net: Any, opt: Any, steps: int = 2) -> None:
    ns.manual_seed(1)
    for _ in range(steps):
        opt.zero_grad()
        net(ns.randn(4, 2, 4).double()).square().sum().backward()
        opt.step()


OPTIMIZERS = {
    "sgd": lambda ns, p: ns.optim.SGD(p, lr=0.01, momentum=0.9),
    "adam": lambda ns, p: ns.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda ns, p: ns.optim.AdamW(p, lr=0.01),
    "rmsprop": lambda ns, p: ns.optim.RMSprop(p, lr=0.01, momentum=0.1, centered=True),
    "adagrad": lambda ns, p: ns.optim.Adagrad(p, lr=0.01),
}


def assert_same_state(found: Any, expected: Any, tolerance: float) -> None:
    assert list(found) == list(expected)
    for name in expected:
        assert_equal(found[name], expected[name], tolerance)


@pytest.fixture(autouse=True, scope="module")
def one_thread(torch: ModuleType) -> Iterator[None]:
    """No contest for the cores between the two libraries."""
    former = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(former)


@pytest.mark.parametrize(
    "kind, new", [(kind, i % 2 == 0) for i, kind in enumerate(OPTIMIZERS)], ids=OPTIMIZERS
)
def test_training_moves_between_the_libraries(kind: str, new: bool, torch: ModuleType) -> None:
    """Two steps there, two steps here: the same as four steps there."""
    make = OPTIMIZERS[kind]
    expected, opt = trained(torch, make)
    state = {"net": expected.state_dict(), "opt": opt.state_dict(), "epoch": 3}
    file = written(torch, state, new)
    continued(torch, expected, opt)

    net = network(evergrad)
    own = make(evergrad, net.parameters())
    found = evergrad.load(file)
    net.load_state_dict(found["net"])
    own.load_state_dict(found["opt"])
    back = written(evergrad, {"net": net.state_dict(), "opt": own.state_dict()}, new)
    continued(evergrad, net, own)
    assert_same_state(net.state_dict(), expected.state_dict(), 1e-8)

    again = network(torch)
    theirs = make(torch, again.parameters())
    found = torch.load(back, weights_only=True)
    again.load_state_dict(found["net"])
    theirs.load_state_dict(found["opt"])
    continued(torch, again, theirs)
    assert_same_state(net.state_dict(), again.state_dict(), 1e-8)


def test_state_dicts_keep_their_metadata(torch: ModuleType) -> None:
    state = network(evergrad).state_dict()
    found = reloaded(state)
    assert type(found) is type(state) and found._metadata == state._metadata
    theirs = torch.load(written(evergrad, state), weights_only=True)
    assert theirs._metadata == network(torch).state_dict()._metadata


def test_random_state_is_saved(torch: ModuleType) -> None:
    evergrad.manual_seed(5)
    evergrad.randn(3)
    file = written(evergrad, evergrad.get_rng_state())
    expected = evergrad.randn(3).tolist()
    evergrad.set_rng_state(evergrad.load(file))
    assert evergrad.randn(3).tolist() == expected


# -- whole modules --------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 3)
        self.register_buffer("scale", evergrad.ones(3))
        self.names = ["a", "b"]

    def forward(self, x: Any) -> Any:
        return self.linear(x) * self.scale


def test_a_module_needs_its_classes_granted() -> None:
    net = Net()
    with pytest.raises(UnsafeFileError, match=r"GLOBAL .*Net was not an allowed global"):
        reloaded(net)
    with safe_globals([Net]), pytest.raises(UnsafeFileError, match=r"nn\.linear\.Linear"):
        reloaded(net)
    with safe_globals([Net, nn.Linear]):
        found = reloaded(net)
    x = evergrad.randn(4, 2)
    assert type(found) is Net and found.names == ["a", "b"]
    assert found(x).tolist() == net(x).tolist()
    assert [p.requires_grad for p in found.parameters()] == [True, True]


def test_classes_of_evergrad_need_no_grant_without_weights_only() -> None:
    net = network(evergrad)
    found = evergrad.load(written(evergrad, net), weights_only=False)
    assert str(found) == str(net)
    x = evergrad.randn(4, 2, 4).double()
    assert found(x).tolist() == net(x).tolist()
    with pytest.raises(UnsafeFileError, match=r"Net is neither data nor a class of evergrad"):
        evergrad.load(written(evergrad, Net()), weights_only=False)
    with safe_globals([Net]):
        assert isinstance(evergrad.load(written(evergrad, Net()), weights_only=False), Net)


LAYERS: list[Any] = [
    lambda ns: ns.nn.Conv2d(2, 3, 2, padding="same"),
    lambda ns: ns.nn.ConvTranspose1d(2, 3, 2),
    lambda ns: ns.nn.Embedding(5, 3, padding_idx=0),
    lambda ns: ns.nn.BatchNorm2d(3),
    lambda ns: ns.nn.GroupNorm(3, 6),
    lambda ns: ns.nn.MaxPool2d(2),
    lambda ns: ns.nn.Dropout(0.2),
    lambda ns: ns.nn.PReLU(),
    lambda ns: ns.nn.CrossEntropyLoss(weight=ns.ones(3)),
    lambda ns: ns.nn.ModuleDict({"a": ns.nn.Linear(1, 2)}),
    lambda ns: ns.nn.ModuleList([ns.nn.Linear(1, 2), ns.nn.Tanh()]),
]
OWN_LAYERS: list[Any] = [
    lambda ns: ns.nn.LSTM(2, 3, num_layers=2, bidirectional=True),
    lambda ns: ns.nn.GRU(2, 3),
    lambda ns: ns.nn.MultiheadAttention(4, 2),
    lambda ns: ns.nn.TransformerEncoderLayer(4, 2),
    lambda ns: ns.nn.ParameterList([ns.ones(2)]),
    lambda ns: ns.nn.ParameterDict({"a": ns.ones(2)}),
    lambda ns: ns.nn.LazyLinear(3),
    lambda ns: ns.nn.Upsample(scale_factor=2),
]


@pytest.mark.parametrize("make", LAYERS + OWN_LAYERS)
def test_layers_are_loaded_whole(make: Any) -> None:
    layer = make(evergrad)
    found = evergrad.load(written(evergrad, layer), weights_only=False)
    assert str(found) == str(layer) and type(found) is type(layer)
    assert list(found.state_dict()) == list(layer.state_dict())


@pytest.mark.parametrize("make", LAYERS)
def test_layers_of_torch_are_loaded_whole(make: Any, torch: ModuleType) -> None:
    theirs = make(torch)
    found = evergrad.load(written(torch, theirs), weights_only=False)
    assert str(found) == str(theirs)
    assert type(found).__module__.startswith("evergrad.nn")
    assert_same_state(found.state_dict(), theirs.state_dict(), 0.0)
    assert found._hooks is None and not [key for key in vars(found) if "_hook" in key[1:-1]][1:]


def test_a_module_whose_hooks_are_gone() -> None:
    layer = nn.Linear(1, 1)
    layer.register_forward_hook(lambda *args: None).remove()
    found = evergrad.load(written(evergrad, layer), weights_only=False)
    assert found(evergrad.ones(1)).tolist() == layer(evergrad.ones(1)).tolist()


def test_legacy_modules(torch: ModuleType) -> None:
    layer = torch.nn.Linear(2, 3)
    found = evergrad.load(written(torch, layer, new=False), weights_only=False)
    assert_same_state(found.state_dict(), layer.state_dict(), 0.0)


def test_whole_optimizers_and_schedulers() -> None:
    net, opt = trained(evergrad, OPTIMIZERS["adam"])
    schedule = evergrad.optim.lr_scheduler.StepLR(opt, 1)
    found, optimizer, scheduler = evergrad.load(
        written(evergrad, [net, opt, schedule]), weights_only=False
    )
    for model, own, rate in ((net, opt, schedule), (found, optimizer, scheduler)):
        continued(evergrad, model, own, 1)
        rate.step()
        continued(evergrad, model, own, 1)
    assert optimizer.param_groups[0]["lr"] == opt.param_groups[0]["lr"]
    assert_same_values(found.state_dict(), net.state_dict())


def assert_same_values(found: Any, expected: Any) -> None:
    assert {k: v.tolist() for k, v in found.items()} == {k: v.tolist() for k, v in expected.items()}


def test_subclasses_of_tensors() -> None:
    x = evergrad.ones(3).as_subclass(Marked)
    x.label = "kept"
    with pytest.raises(UnsafeFileError, match="Marked"):
        reloaded(x)
    with safe_globals([Marked]):
        found = reloaded(x)
    assert type(found) is Marked and found.label == "kept" and found.tolist() == [1, 1, 1]


class Marked(evergrad.Tensor):
    __slots__ = ()


# -- plain objects beyond weights -----------------------------------------------------------------

HARMLESS: list[Any] = [
    defaultdict(list, {"a": [1]}),
    deque([1, 2], maxlen=3),
    frozenset([1, "a"]),
    slice(1, None, 2),
    range(2, 9, 3),
    argparse.Namespace(lr=0.1, device="cpu"),
    SimpleNamespace(a=[1]),
    Path("a") / "b",
    datetime.datetime(2024, 5, 6, 7, 8, 9, 10, datetime.UTC),
    datetime.timedelta(3, 4, 5),
    np.float32(1.5),
    np.int64(-3),
    np.bool_(True),
    [list, dict, int],
]


@pytest.mark.parametrize("value", HARMLESS, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_harmless_objects_need_weights_only_false(
    value: Any, protocol: int, torch: ModuleType
) -> None:
    for ns in (evergrad, torch):
        file = written(ns, {"value": value}, pickle_protocol=protocol)
        found = evergrad.load(file, weights_only=False)["value"]
        assert found == value and type(found) is type(value)
        file.seek(0)
        if not (protocol > 3 and isinstance(value, frozenset)):  # has an instruction of its own
            with pytest.raises(UnsafeFileError):
                evergrad.load(file)


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.arange(6, dtype=np.int16).reshape(2, 3).T,
        np.zeros((0, 3), np.complex64),
        np.array(5),
        np.array(["a", "bc"]),
    ],
    ids=lambda a: str(a.dtype),
)
def test_arrays_of_numpy(array: Any, protocol: int, torch: ModuleType) -> None:
    file = written(torch, array, pickle_protocol=protocol)
    found = evergrad.load(file, weights_only=False)
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype and found.flags.writeable


def test_granting_numpy_is_as_in_torch(torch: ModuleType) -> None:
    array = np.arange(3.0)
    file = written(torch, array)
    names = [np._core.multiarray._reconstruct, np.ndarray, np.dtype, type(array.dtype)]
    with torch.serialization.safe_globals(names):
        expected = torch.load(file)
    file.seek(0)
    with safe_globals(names):
        np.testing.assert_array_equal(evergrad.load(file), expected)


def test_arrays_of_objects_are_refused(torch: ModuleType) -> None:
    array = np.array([1, "a"], dtype=object)
    with pytest.raises(RuntimeError, match="NumPy"):
        evergrad.load(written(torch, array), weights_only=False)


@pytest.mark.parametrize("module", [b"pathlib", b"pathlib._local"])
def test_paths_written_by_any_interpreter(module: bytes) -> None:
    """CPython 3.13 names the private module ``pathlib._local``."""
    file, renamed = written(evergrad, {"value": Path("a/b")}, pickle_protocol=2), io.BytesIO()
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(renamed, "w") as target:
        for entry in source.infolist():
            data = source.read(entry)
            if entry.filename.endswith("data.pkl"):
                data = re.sub(rb"cpathlib[.\w]*\n", b"c" + module + b"\n", data)
            target.writestr(entry, data)
    renamed.seek(0)
    assert evergrad.load(renamed, weights_only=False) == {"value": Path("a/b")}
