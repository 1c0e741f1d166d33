"""Folders in Hugging Face's layout that are damaged: each is refused with what is wrong."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import evergrad as eg
from evergrad.models import GPT, GPTConfig
from evergrad.models.hugging_face import (
    DamagedModelError,
    load_hugging_face,
    save_hugging_face,
)
from evergrad.train.config import ConfigError
from evergrad.train.pretrained import load_pretrained

CONFIGS = {
    "gpt2": GPTConfig(vocabulary=40, context=24, layers=2, heads=4, width=16),
    "llama": GPTConfig(
        vocabulary=40, context=24, layers=2, heads=4, width=16, kv_heads=2, positions="rotary",
        norm="rms", feed_forward="swiglu", bias=False, tie=False,
    ),
}  # fmt: skip
SIZES = {
    "gpt2": ["vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "n_inner"],
    "llama": [
        "vocab_size", "max_position_embeddings", "hidden_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "intermediate_size", "head_dim",
    ],
}  # fmt: skip
WRONG = [-1, 0, 3, 10**12, 1.5, float("nan"), "x", [], [1], {}, {"rope_type": "x"}, True, "1" * 500]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for name, config in CONFIGS.items():
        eg.manual_seed(0)
        found[name] = tmp_path_factory.mktemp(name)
        save_hugging_face(GPT(config), found[name])
    return found


def changed(source: Path, target: Path, **values: Any) -> Path:
    shutil.copytree(source, target, dirs_exist_ok=True)
    described = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**described, **values}))
    return target


@pytest.mark.parametrize("name", CONFIGS)
def test_sizes_that_are_none(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    for key in SIZES[name]:
        for value in WRONG:
            if key == "max_position_embeddings" and value == 3:
                continue  # no weight has this size
            with pytest.raises(ValueError, match="fix: "):
                load_hugging_face(changed(folders[name], tmp_path, **{key: value}))


@pytest.mark.parametrize("value", [-1, 0, "x", [], {}, float("nan"), float("inf"), True])
def test_numbers_that_are_none(folders: dict[str, Path], tmp_path: Path, value: Any) -> None:
    for name, key in (
        ("gpt2", "layer_norm_epsilon"), ("llama", "rms_norm_eps"), ("llama", "rope_theta"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=key):
            load_hugging_face(changed(folders[name], tmp_path / name, **{key: value}))


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_missing_or_null_is_the_default(
    folders: dict[str, Path], tmp_path: Path, name: str
) -> None:
    null = {"layer_norm_epsilon": None, "n_inner": None, "rope_theta": None, "rope_scaling": None,
            "attention_bias": None, "head_dim": None, "sliding_window": 3}  # fmt: skip
    model = load_hugging_face(changed(folders[name], tmp_path, **null))
    expected = load_hugging_face(folders[name])
    tokens = eg.tensor([[1, 2, 3]])
    assert eg.equal(model(tokens), expected(tokens))


def test_quantized_weights_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="quantized"):
        load_hugging_face(changed(folders["llama"], tmp_path, quantization_config={"bits": 8}))


@pytest.mark.parametrize("name", CONFIGS)
def test_weights_of_another_model_are_refused(
    folders: dict[str, Path], tmp_path: Path, name: str
) -> None:
    """Fewer layers than the file has: the scores would be those of no model."""
    key = "n_layer" if name == "gpt2" else "num_hidden_layers"
    with pytest.raises(ValueError, match="no known layer"):
        load_hugging_face(changed(folders[name], tmp_path, **{key: 1}))


SLIDING = ["full_attention", "sliding_attention"]
NESTED = {"full_attention": {"rope_type": "default", "rope_theta": 3.0}}
OTHER_MODELS: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", {"scale_attn_weights": False}),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    ("gpt2", {"is_causal": False}),
    ("gpt2", {"scale_attn_weights": 3}),
    ("llama", {"is_causal": False}),
    ("llama", {"layer_types": SLIDING, "sliding_window": 4}),
    ("llama", {"rope_parameters": NESTED}),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}),
    ("llama", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
    ("llama", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}),
    ("llama", {"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0]}}),
    ("llama", {"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}),
    ("llama", {"model_type": "mistral", "max_position_embeddings": 8192}),  # its window: 4096
    ("llama", {"model_type": "mistral", "sliding_window": 4}),
    ("llama", {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 4}),
    ("llama", {"model_type": "qwen2", "layer_types": SLIDING}),
]


@pytest.mark.parametrize(("name", "values"), OTHER_MODELS)
def test_descriptions_of_models_that_compute_something_else_are_refused(
    folders: dict[str, Path], tmp_path: Path, name: str, values: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match="fix: "):
        load_hugging_face(changed(folders[name], tmp_path, **values))


def test_a_head_beside_the_embedding_it_is_said_to_share_counts(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    tokens = eg.tensor([[1, 2, 3]])
    expected = load_hugging_face(folders["llama"])(tokens)
    said = load_hugging_face(changed(folders["llama"], tmp_path, tie_word_embeddings=True))
    assert not said.config.tie and eg.equal(said(tokens), expected)


FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


@pytest.fixture
def whole(folders: dict[str, Path], tmp_path: Path) -> Path:
    """A folder with a tokenizer too."""
    library = pytest.importorskip(
        "tokenizers", reason="tokenizers is not installed: pip install 'evergrad[app]'"
    )
    folder = tmp_path / "whole"
    shutil.copytree(folders["llama"], folder)
    letters = {c: i for i, c in enumerate("abcdefghijklmnopqrstuvwxyz")}
    library.Tokenizer(library.models.BPE(letters, [])).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "z", "chat_template": "{{ messages[0].content }}"})
    )
    assert load_pretrained(folder).tokenizer.decode([0, 1])
    return folder


@pytest.mark.parametrize("file", FILES)
def test_files_that_are_cut_changed_or_something_else(whole: Path, file: str) -> None:
    rng = random.Random(0)
    data = (whole / file).read_bytes()
    cut = [data[: rng.randrange(len(data))] for _ in range(5)]
    for content in (*cut, b"", b"{", b"[]", b"3", b"\xff" * 50, rng.randbytes(100), data + data):
        (whole / file).write_bytes(content)
        with pytest.raises((ConfigError, DamagedModelError)):
            load_pretrained(whole)


@pytest.mark.parametrize("file", FILES[:3])
def test_files_that_are_missing_or_folders(whole: Path, file: str) -> None:
    (whole / file).unlink()
    with pytest.raises((ConfigError, RuntimeError)):
        load_pretrained(whole)
    (whole / file).mkdir()
    with pytest.raises((ConfigError, RuntimeError)):
        load_pretrained(whole)


@pytest.mark.parametrize(
    "shard", ["nothing.safetensors", "../x.safetensors", "/etc/passwd", 3, None]
)
def test_shards_that_are_none(whole: Path, shard: Any) -> None:
    (whole / "model.safetensors").unlink()
    index = {"weight_map": {"model.norm.weight": shard}}
    (whole / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises((ConfigError, DamagedModelError)):
        load_pretrained(whole)


@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("tokenizer_config.json", {"chat_template": 3}),
        ("tokenizer_config.json", {"chat_template": [{"name": "default"}]}),
        ("tokenizer_config.json", {"chat_template": ["x"]}),
        ("config.json", {"eos_token_id": {}}),
        ("config.json", {"eos_token_id": [None, "a", 3]}),
        ("tokenizer_config.json", {"eos_token": {"content": 3}}),
        ("tokenizer_config.json", {"eos_token": {}}),
    ],
)
def test_descriptions_of_other_kinds(whole: Path, file: str, values: Any) -> None:
    described = json.loads((whole / file).read_text())
    (whole / file).write_text(json.dumps({**described, **values}))
    try:
        stops = load_pretrained(whole).tokenizer.stops
    except ConfigError:
        return
    assert all(type(stop) is int for stop in stops)
