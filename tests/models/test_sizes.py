"""Numbers of parameters that are known, and options that make no sense."""

from __future__ import annotations

from typing import Any

import pytest

from evergrad import nn
from evergrad.models import (
    GPT,
    MLP,
    DiT,
    DiTConfig,
    GPTConfig,
    LeNet5,
    LeNetConfig,
    LSTMConfig,
    LSTMLanguageModel,
    MLPConfig,
    ResNet,
    ResNetConfig,
    ViT,
    ViTConfig,
)


@pytest.fixture
def without_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large models are made at once: their weights are never looked at."""
    for name in ("kaiming_normal_", "kaiming_uniform_", "uniform_", "normal_", "trunc_normal_"):
        monkeypatch.setattr(nn.init, name, lambda tensor, *_, **__: tensor)


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("depth", "parameters"), [(18, 11_689_512), (50, 25_557_032)])
def test_resnets_have_the_parameters_of_torchvision(
    depth: Any, parameters: int, without_drawing: None
) -> None:
    assert count(ResNet(ResNetConfig(depth, classes=1000, small=False))) == parameters


def test_resnet18_for_small_pictures(without_drawing: None) -> None:
    assert count(ResNet(ResNetConfig(18))) == 11_173_962


def test_lenet5() -> None:
    assert count(LeNet5(LeNetConfig())) == 61_706


def gpt2_formula(vocabulary: int, context: int, layers: int, width: int) -> int:
    embedded = (vocabulary + context) * width
    attention, feed_forward = 4 * width**2 + 4 * width, 8 * width**2 + 5 * width
    return embedded + layers * (attention + feed_forward + 4 * width) + 2 * width


def test_gpt_has_the_parameters_of_gpt2(without_drawing: None) -> None:
    assert gpt2_formula(50_257, 1024, 12, 768) == 124_439_808
    for sizes in ((65, 64, 4, 128), (1000, 32, 2, 768)):
        vocabulary, context, layers, width = sizes
        model = GPT(GPTConfig(vocabulary, context, layers, heads=4, width=width))
        assert count(model) == gpt2_formula(*sizes)


def test_variants_of_gpt_save_or_add_parameters() -> None:
    sizes: dict[str, Any] = {"vocabulary": 50, "context": 8, "layers": 2, "heads": 4, "width": 48}
    whole = count(GPT(GPTConfig(**sizes)))
    assert count(GPT(GPTConfig(**sizes, tie=False))) - whole == 50 * 48
    assert whole - count(GPT(GPTConfig(**sizes, positions="rotary"))) == 8 * 48
    # Half of the heads of keys and values: half of their rows.
    assert whole - count(GPT(GPTConfig(**sizes, kv_heads=2))) == 2 * (48 * 48 + 48)
    # Three matrices with two thirds of the width: only their biases differ.
    gated = GPTConfig(**sizes, feed_forward="swiglu")
    assert (gated.hidden, count(GPT(gated)) - whole) == (128, 2 * (2 * 128 - 4 * 48))


def test_other_models(without_drawing: None) -> None:
    assert count(MLP(MLPConfig())) == 785 * 256 + 257 * 256 + 257 * 10
    lstm = LSTMLanguageModel(LSTMConfig(vocabulary=50, layers=2, width=32))
    assert count(lstm) == 50 * 32 + 2 * 4 * (2 * 32 * 32 + 2 * 32)
    # Patches, places, blocks of 12 width² and 13 width, and what is scored.
    C = 32
    vit = ViT(ViTConfig(classes=10, size=16, patch=4, layers=3, heads=2, width=C))
    assert count(vit) == 49 * C + C + 17 * C + 3 * (12 * C**2 + 13 * C) + 2 * C + (C + 1) * 10
    # In place of the norms' weights, what sets them: six times width² and width in a block.
    dit = DiT(DiTConfig(size=8, patch=2, layers=3, heads=2, width=C, classes=10))
    condition = 2 * (C**2 + C) + 11 * C
    last = 2 * (C**2 + C) + (C + 1) * 12
    assert count(dit) == 13 * C + condition + 3 * (18 * C**2 + 15 * C) + last


WRONG: list[tuple[type, dict[str, Any], str]] = [
    (GPTConfig, {"width": 130}, r"heads \(4\) does not divide width \(130\)[\s\S]*128 or 132"),
    (GPTConfig, {"kv_heads": 3}, r"kv_heads \(3\) does not divide heads \(4\)"),
    (GPTConfig, {"kv_heads": 0}, r"kv_heads \(0\) does not divide heads \(4\)[\s\S]*divisors of 4"),
    (GPTConfig, {"width": 20, "positions": "rotary"}, "a head has 5 numbers[\\s\\S]*even"),
    (GPTConfig, {"dropout": 1.0}, r"dropout is 1\.0"),
    (GPTConfig, {"layers": 0}, r"layers is 0[\s\S]*at least 1"),
    (GPTConfig, {"positions": "rotory"}, "may be 'learned' or 'rotary'"),
    (GPTConfig, {"norm": "batch"}, "may be 'layer' or 'rms'"),
    (GPTConfig, {"feed_forward": "relu"}, "may be 'gelu' or 'gelu_tanh' or 'swiglu'"),
    (LSTMConfig, {"width": -1}, r"width is -1"),
    (LSTMConfig, {"dropout": -0.1}, r"dropout is -0\.1"),
    (MLPConfig, {"layers": 0}, "layers is 0"),
    (LeNetConfig, {"size": 11}, "at least 12 by 12"),
    (ResNetConfig, {"depth": 34}, "depth may be 18 or 50"),
    (ViTConfig, {"patch": 5}, r"patch \(5\) does not divide size \(32\)[\s\S]*30 or 35"),
    (DiTConfig, {"patch": 3}, r"patch \(3\) does not divide size \(16\)"),
    (DiTConfig, {"width": 130, "heads": 5}, "a multiple of 4"),
]


@pytest.mark.parametrize(("config", "options", "message"), WRONG)
def test_options_that_make_no_sense(config: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**options)


def test_models_are_made_from_options_by_name() -> None:
    model = GPT.from_config({"vocabulary": 7, "layers": 1, "width": 8})
    assert model.config == GPTConfig(7, layers=1, width=8)
    with pytest.raises(ValueError, match="GPT has no option 'layer'; did you mean 'layers'"):
        GPT.from_config({"layer": 1})
    with pytest.raises(ValueError, match="LeNet5 has no option 'xyz'; there are channels, classes"):
        LeNet5.from_config({"xyz": 1})
