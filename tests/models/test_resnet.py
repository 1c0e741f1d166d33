"""ResNets against the same network written in PyTorch, with torchvision's names of weights."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.models import ResNet, ResNetConfig

STAGES = {18: [2, 2, 2, 2], 50: [3, 4, 6, 3]}


def batch_norm(F: Any, state: dict[str, Any], name: str, x: Any) -> Any:
    """In training: by the statistics of the batch, which running ones follow."""
    running = state[f"{name}.running_mean"], state[f"{name}.running_var"]
    affine = state[f"{name}.weight"], state[f"{name}.bias"]
    return F.batch_norm(x, *running, *affine, training=True)


def branch(F: Any, state: dict[str, Any], name: str, x: Any, stride: int) -> Any:
    """The convolutions of a block; the stride is that of its first 3 by 3."""
    last = 3 if f"{name}.conv3.weight" in state else 2
    for number in range(1, last + 1):
        weight = state[f"{name}.conv{number}.weight"]
        size = weight.shape[-1]
        x = F.conv2d(x, weight, stride=stride if size == 3 else 1, padding=size // 2)
        stride = 1 if size == 3 else stride
        x = batch_norm(F, state, f"{name}.bn{number}", x)
        x = x if number == last else F.relu(x)
    return x


def reference(torch: Any, config: ResNetConfig, state: dict[str, Any], x: Any) -> Any:
    F = torch.nn.functional
    weight = state["conv1.weight"]
    x = F.conv2d(x, weight, stride=1 if config.small else 2, padding=weight.shape[-1] // 2)
    x = F.relu(batch_norm(F, state, "bn1", x))
    x = x if config.small else F.max_pool2d(x, 3, 2, 1)
    for stage, count in enumerate(STAGES[config.depth], start=1):
        for number in range(count):
            name = f"layer{stage}.{number}"
            stride = 2 if stage > 1 and number == 0 else 1
            y = branch(F, state, name, x, stride)
            if f"{name}.downsample.0.weight" in state:
                x = F.conv2d(x, state[f"{name}.downsample.0.weight"], stride=stride)
                x = batch_norm(F, state, f"{name}.downsample.1", x)
            x = F.relu(x + y)
    return F.linear(x.mean((2, 3)), state["fc.weight"], state["fc.bias"])


@pytest.mark.parametrize(
    "config",
    [ResNetConfig(18, 5, 3, width=4), ResNetConfig(50, 5, 1, width=4, small=False)],
    ids=lambda config: str(config.depth),
)
def test_training_is_that_of_pytorch(
    config: ResNetConfig, torch: ModuleType, float64: None
) -> None:
    eg.manual_seed(0)
    model = ResNet(config)
    images = np.random.default_rng(1).standard_normal((4, config.channels, 32, 32))
    trained = {name for name, _ in model.named_parameters()}
    state = {
        name: torch.tensor(value.numpy(), requires_grad=name in trained)
        for name, value in model.state_dict().items()
    }
    theirs = reference(torch, config, state, torch.tensor(images))
    ours = model(eg.tensor(images))
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-9)
    theirs.square().sum().backward()
    ours.square().sum().backward()
    for name, parameter in model.named_parameters():
        expected = state[name].grad.numpy()
        scale = np.abs(expected).max()
        np.testing.assert_allclose(parameter.grad.numpy(), expected, rtol=1e-8, atol=1e-8 * scale)
    for name, buffer in model.named_buffers():
        if "running" in name:
            np.testing.assert_allclose(buffer.numpy(), state[name].numpy(), rtol=1e-9)


@pytest.mark.parametrize("depth", [18, 50])
def test_mixed_precision_is_as_exact_as_pytorchs(depth: Any, torch: ModuleType) -> None:
    """Against the result in float64: where a sum is rounded differently, batch norms magnify it, so
    the two results in bfloat16 differ from each other by more than its precision."""
    eg.manual_seed(0)
    model = ResNet(ResNetConfig(depth, 5, 3, width=4))
    images = np.random.default_rng(1).standard_normal((4, 3, 32, 32), np.float32)

    def scores(dtype: Any, mixed: bool) -> Any:
        arrays = {name: value.numpy() for name, value in model.state_dict().items()}
        state = {name: torch.tensor(array).to(dtype) for name, array in arrays.items()}
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
            found = reference(torch, model.config, state, torch.tensor(images).to(dtype))
        return found.double().numpy()

    exact, theirs = scores(torch.float64, False), scores(torch.float32, True)
    with eg.autocast("cpu", dtype=eg.bfloat16):
        ours = model(eg.tensor(images))
    ours.float().square().sum().backward()
    assert all(parameter.grad.dtype is eg.float32 for parameter in model.parameters())
    error = np.linalg.norm(ours.detach().double().numpy() - exact)
    assert 0 < error <= 1.25 * np.linalg.norm(theirs - exact)


def test_names_of_weights_are_torchvisions() -> None:
    names = list(ResNet(ResNetConfig(18, width=2)).state_dict())
    assert names[:2] == ["conv1.weight", "bn1.weight"]
    assert names[-2:] == ["fc.weight", "fc.bias"]
    assert "layer2.0.downsample.0.weight" in names and "layer2.0.downsample.1.running_var" in names
    assert "layer1.0.downsample.0.weight" not in names


@pytest.mark.parametrize("depth", [18, 50])
def test_zero_init_makes_blocks_the_identity(depth: Any) -> None:
    eg.manual_seed(0)
    model = ResNet(ResNetConfig(depth, width=2, zero_init=True))
    block = model.layer1[1]
    x = eg.rand(2, 2 * block.expansion, 4, 4)
    assert eg.equal(block(x), x)
