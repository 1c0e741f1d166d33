"""Names that few programs use, beside PyTorch."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import evergrad
import evergrad.testing
from evergrad.utils import benchmark


@pytest.mark.parametrize("further", [(), (2,)])
@pytest.mark.parametrize("bias", [False, True])
def test_linear_cross_entropy_loss(further: Any, bias: bool, torch: ModuleType) -> None:
    found, names = [], []
    state: Any = None
    for library in (torch, evergrad):
        layer = library.nn.LinearCrossEntropyLoss(
            4, 3, out_features=further, bias=bias, label_smoothing=0.1
        )
        if state is None:
            state = {name: value.tolist() for name, value in layer.state_dict().items()}
        layer.load_state_dict({name: library.tensor(value) for name, value in state.items()})
        x = library.arange(20.0).reshape(5, 4).sin().requires_grad_()
        target = library.arange(5 * (2 if further else 1)).remainder(3)
        loss = layer(x, target.reshape(5, *further))
        loss.backward()
        assert x.grad is not None
        found.append([loss.item(), *x.grad.flatten().tolist()])
        names.append(str(layer).splitlines()[0])
    assert found[0] == pytest.approx(found[1], rel=1e-5, abs=1e-6)
    assert names[0] == names[1]


@pytest.mark.parametrize(
    ("actual", "expected", "options"),
    [
        ([1.0, 2.0], [1.0, 2.00001], {}),
        ([1.0, 2.0], [1.0, 2.1], {}),
        ([1.0, 2.0], [1.0, 2.1], {"rtol": 0.1, "atol": 0.0}),
        ([1.0, float("nan")], [1.0, float("nan")], {}),
        ([1, 2], [1.0, 2.0], {}),
        ([1, 2], [1, 3], {"msg": "not these"}),
    ],
)
def test_assert_allclose(actual: Any, expected: Any, options: Any, torch: ModuleType) -> None:
    found = []
    for library in (torch, evergrad):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                library.testing.assert_allclose(library.tensor(actual), expected, **options)
                outcome = "equal"
            except AssertionError as error:
                outcome = str(error).splitlines()[0]
        found.append((outcome, [entry.category for entry in caught]))
    assert found[0] == found[1]


@pytest.mark.parametrize("rank", [2, 3])
def test_weights_of_convolutions_change_their_format(rank: int, torch: ModuleType) -> None:
    found = []
    for library in (torch, evergrad):
        layer = getattr(library.nn, f"Conv{rank}d")(3, 4, 3)
        last = library.channels_last if rank == 2 else library.channels_last_3d
        model = library.nn.Sequential(layer, library.nn.ReLU())
        convert = getattr(library.nn.utils, f"convert_conv{rank}d_weight_memory_format")
        assert convert(model, last) is model
        found.append((layer.weight.stride(), layer.weight.is_contiguous(memory_format=last)))
    assert found[0] == found[1]


def test_timers_measure_and_compare() -> None:
    x = evergrad.ones(4)
    options: Any = {"globals": {"x": x}, "label": "sums", "num_threads": 1}
    one = benchmark.Timer("x + x", sub_label="add", description="a", **options).timeit(50)
    assert one.number_per_run == 50 and len(one.times) == 1 and one.median == one.mean > 0
    assert one.times[0] * 50 == pytest.approx(one.raw_times[0]) and one.iqr == 0
    assert one.label == "sums" and one.title == "sums: add" and "Measurement" in repr(one)
    seen: list[tuple[int, float]] = []
    timer = benchmark.Timer("x * x", sub_label="mul", description="b", **options)
    several = timer.blocked_autorange(lambda n, s: seen.append((n, s)), min_run_time=0.01)
    assert sum(several.raw_times) >= 0.01
    assert seen == [(several.number_per_run, seconds) for seconds in several.raw_times]
    assert timer.adaptive_autorange(max_run_time=0.05).median > 0
    table = benchmark.Compare([one, several])
    table.trim_significant_figures()
    lines = str(table).splitlines()
    assert "sums" in lines[0] and "a" in lines[1] and "b" in lines[1]
    assert any(line.startswith("add") for line in lines) and "seconds" in lines[-1]
    merged = benchmark.Measurement.merge([one, one])
    assert len(merged) == 1 and len(merged[0].raw_times) == 2
    before = evergrad.get_num_threads()
    with pytest.raises(ZeroDivisionError):
        benchmark.Timer("1 / 0", num_threads=2).timeit(3)
    assert evergrad.get_num_threads() == before
    with pytest.raises(ValueError, match="Python"):
        benchmark.Timer("x", language="c++")


# One line each, run under PyTorch and under as_torch.
LINES = """\
torch.nn.functional.conv_tbc(x.reshape(3, 2, 2), y.reshape(2, 2, 3), torch.ones(3), 1)
torch.nn.functional.native_channel_shuffle(x.reshape(1, 4, 3), 2).tolist()
torch.nn.functional.has_torch_function((x,))
sorted(torch.nn.functional.GRID_SAMPLE_PADDING_MODES)
torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 15)
torch.fake_quantize_per_channel_affine(x, torch.rand(3) + 1, torch.arange(3).int(), 1, -8, 7).shape
torch.autograd.grad(torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 15).sum(), x)[0]
torch.set_anomaly_enabled(False)
torch.is_distributed(x)
[x.is_xla, x.is_ipu, x.is_maia, x.is_mtia, x.is_vulkan]
[torch.cuda._is_in_bad_fork(), torch.cuda._is_compiled(), torch.xpu._is_in_bad_fork()]
torch.cuda._lazy_call(lambda: 1 / 0)
torch.cuda._lazy_init()
torch.autograd.is_multithreading_enabled()
torch.autograd.is_view_replay_enabled()
torch.distributions.utils.euler_constant
[type(torch.cpu.current_stream()).__name__, torch.cpu.Stream().wait_stream(None)]
[str(getattr(packed, name)().data.dtype) for name in "half long int short char byte".split()]
packed.is_pinned()
torch._dynamo.mark_static_address(x)
torch._dynamo.mark_static_address(x, guard=True)
torch._dynamo.mark_static(x.detach())
torch._dynamo.mark_static(x.detach(), 0)
torch._dynamo.maybe_mark_dynamic(x.detach(), 0)
torch._dynamo.mark_dynamic(x.detach(), [0, 1])
torch._dynamo.mark_dynamic(x.detach(), 0, min=2, max=8)
"""
PROGRAM = f"""
import torch
x = torch.linspace(-2, 2, 12).reshape(4, 3).requires_grad_()
y = torch.linspace(-1, 1, 12)
packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2)])
for line in {LINES.splitlines()!r}:
    torch.manual_seed(0)
    try:
        found = eval(line)
    except Exception as error:
        found = type(error).__name__
    if isinstance(found, torch.Tensor):
        found = [round(value, 4) for value in found.detach().flatten().tolist()]
    print(line, found)
"""


def test_rare_names_answer_as_under_pytorch(torch: ModuleType) -> None:
    ours, theirs = (
        subprocess.run(
            [sys.executable, *options, "-c", PROGRAM],
            capture_output=True, text=True, check=True, timeout=600,
        ).stdout.splitlines()
        for options in (("-m", "evergrad.as_torch"), ())
    )  # fmt: skip
    assert [line for line in theirs if line.endswith("Error")] == [
        "torch.cuda._lazy_init() AssertionError"
    ]
    assert ours == theirs


HUB = """
import sys, torch
before = list(sys.path)
net = torch.hub.load(sys.argv[1], "small", 3, source="local", bias=False)
assert net.weight.shape == (1, 3) and net.bias is None and sys.path == before
for name, wanted in (("absent", "Cannot find callable absent"), ("dependencies", "Cannot find")):
    try:
        torch.hub.load(sys.argv[1], name, source="local")
    except RuntimeError as error:
        assert wanted in str(error)
    else:
        raise AssertionError("loaded")
try:
    torch.hub.load("someone/something", "small")
except NotImplementedError as error:
    assert "local" in str(error)
"""


def test_models_of_a_local_folder(tmp_path: Path) -> None:
    text = """dependencies = ['torch']
from helper import Linear
def small(n, **kw): return Linear(n, 1, **kw)
"""
    (tmp_path / "hubconf.py").write_text(text)
    (tmp_path / "helper.py").write_text("from torch.nn import Linear")
    command = [sys.executable, "-W", "error", "-m", "evergrad.as_torch", "-c", HUB, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (tmp_path / "hubconf.py").write_text("dependencies = ['no_such_package']")
    with pytest.raises(RuntimeError, match="Missing dependencies: no_such_package"):
        evergrad.hub.load(str(tmp_path), "small", source="local")
