"""LoRA: begins as the model was, trains adapters alone, merges, is saved and exchanged."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.models import LoRAConfig, add_lora, merge_lora
from evergrad.models.lora import (
    Adapter,
    AdapterSwitch,
    LoRALinear,
    adapted_layers,
    load_adapter,
    read_adapter,
    save_adapter,
)

from .test_gpt import made
from .tiny import GPTS

TOKENS = [[3, 1, 4, 1, 5]]
ALL = ("qkv", "out", "widen", "gate")


def scores(model: Any) -> Any:
    with eg.no_grad():
        return model(eg.tensor(TOKENS)).numpy()


def adapted(name: str = "modern", targets: tuple[str, ...] = ALL, seed: int = 1) -> Any:
    """A model with an adapter that changes what it computes."""
    model = made(GPTS[name])
    add_lora(model, LoRAConfig(2, 3.0, targets))
    eg.manual_seed(seed)
    with eg.no_grad():
        for _, layer in adapted_layers(model):
            layer.lora_B.normal_(0.0, 0.5)
    return model


@pytest.mark.parametrize("name", GPTS)
def test_a_new_adapter_changes_nothing_and_alone_gets_gradients(name: str) -> None:
    model = made(GPTS[name])
    before = scores(model)
    names = add_lora(model, LoRAConfig(targets=ALL))
    np.testing.assert_array_equal(scores(model), before)
    assert len(names) == (10 if name == "modern" else 8)
    with eg.no_grad():
        for _, layer in adapted_layers(model):
            layer.lora_B.fill_(0.1)
    model.loss(eg.tensor(TOKENS), eg.tensor(TOKENS)).backward()
    with_gradient = {n for n, p in model.named_parameters() if p.grad is not None}
    assert with_gradient == {f"{n}.lora_{x}" for n in names for x in "AB"}
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    assert trained == with_gradient


@pytest.mark.parametrize("name", GPTS)
def test_merged_layers_compute_the_same(name: str) -> None:
    model = adapted(name)
    before = scores(model)
    assert np.abs(before - scores(made(GPTS[name]))).max() > 0.1
    merge_lora(model)
    assert not any(adapted_layers(model))
    assert not any("lora" in key for key in model.state_dict())
    assert all(p.requires_grad for p in model.parameters())
    np.testing.assert_allclose(scores(model), before, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("targets", "count"),
    [(("qkv",), 2), (("blocks.0.*",), 5), (("out",), 4), (("*.attention.out", "gate"), 4)],
)
def test_targets_choose_layers(targets: tuple[str, ...], count: int) -> None:
    assert len(add_lora(made(GPTS["modern"]), LoRAConfig(targets=targets))) == count


def test_an_adapter_is_saved_alone_and_loaded_in_place_of_another(tmp_path: Path) -> None:
    model = adapted()
    config = LoRAConfig(2, 3.0, ALL)
    expected = scores(model)
    save_adapter(model, tmp_path / "one", config)
    described = json.loads((tmp_path / "one" / "adapter_config.json").read_text())
    assert described["r"] == 2 and described["peft_type"] == "LORA"
    found = read_adapter(tmp_path / "one")
    assert found.config == config
    assert "base_model.model.blocks.0.attention.qkv.lora_A.weight" in found.tensors
    for other in (made(GPTS["modern"]), adapted(seed=9)):
        load_adapter(other, found)
        np.testing.assert_array_equal(scores(other), expected)


def test_a_switch_merges_exchanges_and_gives_back_the_very_bits() -> None:
    model = made(GPTS["modern"])
    plain = scores(model)
    config = LoRAConfig(2, 3.0, ALL)
    wanted, adapters = {}, {}
    for seed in (1, 2):
        other = adapted(seed=seed)
        wanted[str(seed)] = scores(other)
        adapters[str(seed)] = Adapter.of(other, config)
    step = eg.compile(lambda tokens: model(tokens))
    switch = AdapterSwitch(model, adapters)
    for name in ("1", "2", "1", None, "2", None):
        switch.use(name)
        with eg.no_grad():
            found = step(eg.tensor(TOKENS)).numpy()
        expected = plain if name is None else wanted[name]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)
    switch.use(None)
    np.testing.assert_array_equal(scores(model), plain)


def test_what_does_not_fit_is_refused_before_anything_is_changed() -> None:
    with pytest.raises(
        ValueError, match=r"no linear layer is called keys[\s\S]*gate, head, out, qkv"
    ):
        add_lora(made(GPTS["modern"]), LoRAConfig(targets=("keys",)))
    with pytest.raises(ValueError, match="has an adapter already"):
        add_lora(adapted(), LoRAConfig(targets=ALL))
    for wrong in ({"rank": 0}, {"alpha": 0.0}, {"targets": ()}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            LoRAConfig(**wrong)
    given = Adapter.of(adapted(), LoRAConfig(2, 3.0, ALL))
    other = made(GPTS["gpt2"])
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(ValueError, match=r"shapes|does not have"):
        AdapterSwitch(other, {"a": given})
    assert all(eg.equal(other.state_dict()[k], v) for k, v in before.items())
    with pytest.raises(ValueError, match="no adapter"):
        Adapter.of(other, LoRAConfig())


def test_a_folder_without_an_adapter_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"adapter_config\.json"):
        read_adapter(tmp_path)


def test_an_adapted_layer_is_a_linear_layer() -> None:
    """So that whatever treats linear layers (another adapter, a quantizer) finds it."""
    layer = eg.nn.Linear(3, 2)
    assert isinstance(LoRALinear(layer, LoRAConfig(1, 1.0, ("x",))), eg.nn.Linear)
