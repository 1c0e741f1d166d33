"""Weights of others: scores and tokens equal to those of ``transformers``, there and back."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.models import GPT, GPTConfig
from evergrad.models.generate import generate
from evergrad.models.hugging_face import load_hugging_face, save_hugging_face
from evergrad.serve.beam import beam_search
from evergrad.serve.paged import PagedGPT
from evergrad.serve.pages import PageTable

TOKENS = [[3, 1, 4, 1, 5, 9, 2, 6]]
GPT2 = {
    "vocab_size": 31, "n_positions": 24, "n_embd": 16, "n_layer": 2, "n_head": 4,
    "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
LLAMA = {
    "vocab_size": 31, "max_position_embeddings": 24, "hidden_size": 16, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40,
}  # fmt: skip
SCALED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", GPT2),
    "gpt2, exact gelu": ("GPT2", {**GPT2, "activation_function": "gelu", "n_inner": 20}),
    "gpt2, other epsilon": ("GPT2", {**GPT2, "layer_norm_epsilon": 1e-2}),
    "llama": ("Llama", LLAMA),
    "llama, tied": ("Llama", {**LLAMA, "tie_word_embeddings": True, "rms_norm_eps": 1e-2}),
    "llama, wide heads": ("Llama", {**LLAMA, "head_dim": 12}),
    "llama, other base": ("Llama", {**LLAMA, "rope_theta": 100.0}),
    "llama, scaled": ("Llama", {**LLAMA, "rope_theta": 500.0, "rope_scaling": SCALED}),
    "llama, biases": ("Llama", {**LLAMA, "attention_bias": True, "mlp_bias": True}),
    "mistral": ("Mistral", {**LLAMA, "sliding_window": None}),
    "qwen2": ("Qwen2", LLAMA),
}


@pytest.fixture(scope="module")
def transformers() -> Any:
    return pytest.importorskip(
        "transformers", reason="transformers is not installed: pip install transformers"
    )


def theirs(transformers: Any, name: str) -> Any:
    import torch

    kind, options = FAMILIES[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**options)
    class_name = f"{kind}LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM"
    model = getattr(transformers, class_name)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3)
    return model.eval()


def scores(model: GPT) -> Any:
    with eg.no_grad():
        return model(eg.tensor(TOKENS)).numpy()


@pytest.mark.parametrize("stops", [{7}, {1, 5, 9}, {0, 2, 4, 6, 8, 10, 12, 14}], ids=len)
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_beams_are_those_of_transformers(
    transformers: Any, tmp_path: Path, name: str, stops: set[int]
) -> None:
    import torch

    other = theirs(transformers, name)
    other.save_pretrained(tmp_path)
    paged, table = PagedGPT(load_hugging_face(tmp_path), 40), PageTable(40)
    for beams, penalty, prompt in product((2, 5), (0.0, 0.7, 2.0), ([3, 1, 4], [8, 8])):
        expected = other.generate(
            torch.tensor([prompt]), max_new_tokens=10, do_sample=False, num_beams=beams,
            num_return_sequences=beams, length_penalty=penalty, eos_token_id=sorted(stops),
            pad_token_id=30,
        )[:, len(prompt) :].tolist()  # fmt: skip
        found = beam_search(
            paged, table, prompt, 10, beams=beams, stops=frozenset(stops), length_penalty=penalty
        )
        longest = len(expected[0])
        padded = [[*beam.tokens, *[30] * (longest - len(beam.tokens))] for beam in found]
        assert padded == expected, (beams, penalty, prompt)


@pytest.mark.parametrize("shards", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_scores_and_greedy_tokens_are_those_of_transformers(
    transformers: Any, tmp_path: Path, name: str, shards: bool
) -> None:
    import torch

    other = theirs(transformers, name)
    other.save_pretrained(tmp_path, **({"max_shard_size": "4KB"} if shards else {}))
    assert (tmp_path / "model.safetensors.index.json").exists() == shards
    model = load_hugging_face(tmp_path)
    with torch.no_grad():
        expected = other(torch.tensor(TOKENS)).logits.numpy()
        long = other.generate(
            torch.tensor(TOKENS), max_new_tokens=12, do_sample=False, eos_token_id=None,
            pad_token_id=0,
        )[0, len(TOKENS[0]) :].tolist()  # fmt: skip
    np.testing.assert_allclose(scores(model), expected, rtol=2e-4, atol=2e-5)
    assert list(generate(model, TOKENS[0], 12, temperature=0)) == long


DESCRIPTIONS: list[dict[str, Any]] = [
    {"rope_parameters": {"rope_type": "default", "rope_theta": 55.0}, "rope_theta": 77.0},
    {"rope_parameters": {}, "rope_theta": 77.0},
    {"rope_parameters": None, "rope_theta": 77.0},
    {"rope_parameters": None, "rope_scaling": SCALED},
    {"rope_parameters": {**SCALED, "rope_theta": 10_000.0, "factor": 1.0}},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    {"tie_word_embeddings": True},
    {"rms_norm_eps": None, "head_dim": None},
    {"torch_dtype": "bfloat16", "pretraining_tp": 2},
    {"logit_scale": 2.0, "attn_logit_softcapping": 5.0},
]


def test_other_descriptions_of_the_same_weights_are_read_alike(
    transformers: Any, tmp_path: Path
) -> None:
    import torch

    theirs(transformers, "llama").save_pretrained(tmp_path)
    whole = json.loads((tmp_path / "config.json").read_text())
    for values in DESCRIPTIONS:
        given = {k: v for k, v in {**whole, **values}.items() if v is not None}
        (tmp_path / "config.json").write_text(json.dumps(given))
        other = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval().float()
        with torch.no_grad():
            expected = other(torch.tensor(TOKENS)).logits.numpy()
        found = scores(load_hugging_face(tmp_path))
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5, err_msg=str(values))


@pytest.mark.parametrize("name", FAMILIES)
def test_an_export_is_read_by_transformers(transformers: Any, tmp_path: Path, name: str) -> None:
    import torch

    other = theirs(transformers, name)
    other.save_pretrained(tmp_path / "in")
    model = load_hugging_face(tmp_path / "in")
    save_hugging_face(model, tmp_path / "out", shard_bytes=4000)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        expected = other(torch.tensor(TOKENS)).logits.numpy()
        found = again(torch.tensor(TOKENS)).logits.numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


OWN = {
    "gpt2": GPTConfig(vocabulary=31, context=24, layers=2, heads=2, width=16),
    "llama": GPTConfig(
        vocabulary=31, context=24, layers=2, heads=4, kv_heads=2, width=16, positions="rotary",
        norm="rms", feed_forward="swiglu", bias=False, tie=False, rotary_base=500.0,
        rotary_scaling=(8.0, 1.0, 4.0, 16.0), head_width=6,
    ),
}  # fmt: skip


@pytest.mark.parametrize("shard", [None, 3000])
@pytest.mark.parametrize("name", OWN)
def test_there_and_back_are_the_same_bits(tmp_path: Path, name: str, shard: int | None) -> None:
    eg.manual_seed(0)
    model = GPT(OWN[name]).eval()
    save_hugging_face(model, tmp_path, shard_bytes=shard)
    again = load_hugging_face(tmp_path)
    for key, value in model.state_dict().items():
        np.testing.assert_array_equal(again.state_dict()[key].numpy(), value.numpy())
    np.testing.assert_array_equal(scores(again), scores(model))


def test_what_cannot_be_loaded_or_saved_is_told(tmp_path: Path) -> None:
    def described(**values: Any) -> Path:
        (tmp_path / "config.json").write_text(json.dumps(values))
        return tmp_path

    with pytest.raises(ValueError, match=r"'bert'[\s\S]*gpt2, llama"):
        load_hugging_face(described(model_type="bert"))
    with pytest.raises(ValueError, match="neither"):
        load_hugging_face(described(model_type="llama", **LLAMA))
    with pytest.raises(ValueError, match="sliding_window"):
        load_hugging_face(described(model_type="mistral", **LLAMA, sliding_window=8))
    with pytest.raises(ValueError, match="yarn"):
        load_hugging_face(described(model_type="llama", **LLAMA, rope_scaling={"type": "yarn"}))
    index = {"weight_map": {"a": "../../etc/passwd"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="a shard is called"):
        load_hugging_face(described(model_type="llama", **LLAMA))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="cannot be read"):
        load_hugging_face(tmp_path)
    mixed = GPT(GPTConfig(context=8, layers=1, heads=1, width=8, norm="rms"))
    with pytest.raises(ValueError, match="no GPT-2"):
        save_hugging_face(mixed, tmp_path / "out")
    assert not (tmp_path / "out").exists()
