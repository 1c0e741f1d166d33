"""FLUX: the numbers of ``diffusers``, its layout, rotations, and what the painter learns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.models import Flux, FluxConfig, LoRAConfig, Painter, PainterConfig, add_lora
from evergrad.models.flux import load_flux, picture_places, rotated, rotation, save_flux, waves
from evergrad.train.tasks.scenes import VOCABULARY, WORDS, encode_caption, scenes

SIZES: dict[str, Any] = {
    "in_channels": 8, "num_layers": 2, "num_single_layers": 2, "attention_head_dim": 16,
    "num_attention_heads": 2, "joint_attention_dim": 12, "pooled_projection_dim": 10,
    "axes_dims_rope": (4, 6, 6),
}  # fmt: skip
VARIANTS = {
    "guidance": {**SIZES, "guidance_embeds": True},
    "no guidance": SIZES,
    "double alone": {**SIZES, "num_single_layers": 0},
    "single alone": {**SIZES, "num_layers": 0, "guidance_embeds": True},
    "one wide axis": {**SIZES, "axes_dims_rope": (2, 2, 12)},
}
PAINTER = PainterConfig(
    size=8, channels=8, words=VOCABULARY, double=1, single=1, heads=2, width=32
)  # fmt: skip


def inputs(options: dict[str, Any], batch: int = 2) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    text = 5
    return {
        "x": rng.standard_normal((batch, 6, 8)).astype(np.float32),
        "text": rng.standard_normal((batch, text, 12)).astype(np.float32),
        "pooled": rng.standard_normal((batch, 10)).astype(np.float32),
        "time": np.array([0.0625, 0.3125], np.float32)[:batch],
        "picture_ids": picture_places(2, 3).numpy(),
        "text_ids": np.zeros((text, 3), np.float32),
        # Angles are 1000 times as large: beyond a few hundred the last bit of a rate, which
        # PyTorch's exponential does not always round correctly, would be compared.
        "guidance": np.array([0.0625, 0.25], np.float32)[:batch]
        if options.get("guidance_embeds")
        else None,
    }


def random_model(options: dict[str, Any]) -> Flux:
    eg.manual_seed(0)
    model = Flux(FluxConfig(**options))
    with eg.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.2)
    return model.eval()


def output(model: Flux, given: dict[str, Any]) -> Any:
    with eg.no_grad():
        return model(**{k: None if v is None else eg.tensor(v) for k, v in given.items()}).numpy()


@pytest.mark.parametrize("name", VARIANTS)
def test_numbers_and_layout_are_those_of_diffusers(tmp_path: Path, name: str) -> None:
    diffusers = pytest.importorskip(
        "diffusers", reason="diffusers is not installed: pip install diffusers"
    )
    import torch

    options = VARIANTS[name]
    model = random_model(options)
    given = inputs(options)
    found = output(model, given)
    save_flux(model, tmp_path / "ours")
    theirs = diffusers.FluxTransformer2DModel.from_pretrained(tmp_path / "ours").eval()
    tensors = {k: None if v is None else torch.tensor(v) for k, v in given.items()}
    with torch.no_grad():
        expected = theirs(
            hidden_states=tensors["x"], encoder_hidden_states=tensors["text"],
            pooled_projections=tensors["pooled"], timestep=tensors["time"],
            img_ids=tensors["picture_ids"], txt_ids=tensors["text_ids"],
            guidance=tensors["guidance"], return_dict=False,
        )[0].numpy()  # fmt: skip
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
    theirs.save_pretrained(tmp_path / "theirs")
    np.testing.assert_array_equal(output(load_flux(tmp_path / "theirs"), given), found)


def test_waves_have_the_rates_of_diffusers() -> None:
    """Exponents are rounded to float32 before their exponential: 300 radians later the phase of
    rates from exact exponents differs by more than a hundred units in the last place."""
    exponents = np.float32(-np.log(10_000)) * np.arange(128, dtype=np.float32) / np.float32(128)
    rates = np.exp(exponents.astype(np.float64)).astype(np.float32)
    times = np.array([312.5, 999.0], np.float32)
    angles = (times[:, None] * rates).astype(np.float64)
    expected = np.concatenate([np.cos(angles), np.sin(angles)], 1)
    np.testing.assert_allclose(waves(eg.tensor(times)).numpy(), expected, rtol=0, atol=2e-7)


@pytest.mark.parametrize("name", VARIANTS)
def test_there_and_back_compiled_and_not(tmp_path: Path, name: str) -> None:
    model = random_model(VARIANTS[name])
    given = inputs(VARIANTS[name])
    save_flux(model, tmp_path)
    expected = output(model, given)
    np.testing.assert_array_equal(output(load_flux(tmp_path), given), expected)
    found = output(eg.compile(model), given)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"_class_name": "UNet2DModel"}))
    with pytest.raises(ValueError, match="UNet2DModel"):
        load_flux(tmp_path)
    with pytest.raises(ValueError, match="add up to attention_head_dim"):
        FluxConfig(**{**SIZES, "axes_dims_rope": (4, 4, 4)})


def test_rotations_keep_lengths_and_depend_on_distances_alone() -> None:
    eg.manual_seed(0)
    q, k = eg.randn(1, 1, 1, 16), eg.randn(1, 1, 1, 16)

    def product(at: list[float], other: list[float]) -> float:
        by = [rotation(eg.tensor([place]), (4, 6, 6)) for place in (at, other)]
        return float((rotated(q, by[0]) * rotated(k, by[1])).sum())

    assert product([0.0, 2, 5], [0.0, 1, 3]) == pytest.approx(
        product([0.0, 7, 9], [0.0, 6, 7]), abs=1e-4
    )
    assert product([0.0, 2, 5], [0.0, 1, 3]) != pytest.approx(product([0.0, 2, 5], [0.0, 2, 3]))
    turned = rotated(q, rotation(eg.tensor([[3.0, 4, 5]]), (4, 6, 6)))
    assert float(turned.norm()) == pytest.approx(float(q.norm()), rel=1e-5)


def test_a_new_transformer_predicts_nothing_and_gates_are_closed() -> None:
    eg.manual_seed(0)
    assert not output(Flux(FluxConfig(**SIZES)).eval(), inputs(SIZES)).any()


def test_packing_is_undone() -> None:
    model = Painter(PAINTER)
    z = eg.randn(2, 4, 4, 4)
    packed = model.pack(z)
    assert packed.shape == (2, 4, 16)
    assert eg.equal(model.unpack(packed), z)


def test_gradients_reach_every_parameter_once_gates_are_open() -> None:
    eg.manual_seed(0)
    model = Painter(PAINTER)
    with eg.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.normal_(0.0, 0.05)
    made = scenes(4, 8, "test")
    pictures = eg.tensor(made.pictures * np.float32(2 / 255) - np.float32(1))
    words = eg.tensor([encode_caption(caption, 12) for caption in made.captions])
    rebuilt, flow = model.losses(pictures, words, unlabelled=0.0)
    (rebuilt + flow).backward()
    missing = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not missing


def test_drawing_follows_the_seed_and_the_prompt() -> None:
    eg.manual_seed(0)
    model = Painter(PAINTER)
    with eg.no_grad():
        for parameter in model.transformer.parameters():
            parameter.normal_(0.0, 0.2)

    def drawn(prompt: str, seed: int) -> Any:
        words = eg.tensor([encode_caption(prompt, 12)])
        return model.paint(words, 3, generator=eg.Generator().manual_seed(seed)).numpy()

    first = drawn("a red circle", 0)
    assert first.shape == (1, 3, 8, 8) and np.abs(first).max() <= 1
    np.testing.assert_array_equal(first, drawn("a red circle", 0))
    assert np.abs(first - drawn("a red circle", 1)).max() > 1e-3
    assert np.abs(first - drawn("a blue square", 0)).max() > 1e-6


def test_lora_adapts_the_transformer() -> None:
    model = Painter(PAINTER)
    names = add_lora(model, LoRAConfig(2, 2.0, ("to_q", "add_*_proj", "proj_out")))
    assert "transformer.single_transformer_blocks.0.proj_out" in names
    assert all(name.startswith("transformer.") for name in names)


def test_scenes_show_what_their_captions_say() -> None:
    made = scenes(60, 16, "test")
    assert made.pictures.shape == (60, 3, 16, 16)
    again = scenes(60, 16, "test")
    np.testing.assert_array_equal(made.pictures, again.pictures)
    colours = {"red": 0, "green": 1, "blue": 2}
    seen = 0
    for picture, caption in zip(made.pictures.astype(float), made.captions, strict=True):
        words = caption.split()
        if "left" not in words or words[1] == words[-2] or {words[1], words[-2]} - colours.keys():
            continue
        first, second = colours[words[1]], colours[words[-2]]
        mass = [picture[c] - picture[o] for c, o in ((first, second), (second, first))]
        centres = [
            (np.clip(m, 0, None).sum(0) * np.arange(16)).sum() / m.clip(0).sum() for m in mass
        ]
        assert centres[0] < centres[1], caption
        seen += 1
    assert seen


def test_captions_become_words() -> None:
    assert encode_caption("a red circle", 4) == [WORDS.index(w) for w in ("a", "red", "circle", "")]
    assert encode_caption("A RED, circle", 3) == encode_caption("a red circle", 3)
    (new,) = encode_caption("purple", 1)
    assert len(WORDS) <= new < VOCABULARY
    with pytest.raises(ValueError, match="at most 2 words"):
        encode_caption("a red circle", 2)
