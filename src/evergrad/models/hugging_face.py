"""GPT-2 and Llama checkpoints in Hugging Face's layout, read and written.

A folder has ``config.json`` and ``model.safetensors`` (or shards and their index). GPT-2 keeps its
matrices transposed; Llama keeps queries, keys and values apart, which are one matrix here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import evergrad as eg
from evergrad.io.safetensors import load_file, save_file
from evergrad.models.gpt import GPT, GPTConfig
from evergrad.models.model import require
from evergrad.utils.atomic_file import replacing

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
LLAMAS = ("llama", "mistral", "qwen2")
_ACTIVATIONS: dict[str, Any] = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
}

Tensors = dict[str, eg.Tensor]


def is_hugging_face(path: Path) -> bool:
    """Whether a path is a folder in this layout, or a file of weights in one."""
    folder = path.parent if path.suffix == ".safetensors" else path
    return (folder / CONFIG).is_file()


def load_hugging_face(folder: str | Path) -> GPT:
    """The GPT whose configuration and weights are in a folder, in evaluation mode."""
    place = Path(folder)
    place = place.parent if place.suffix == ".safetensors" else place
    described = _read_json(place / CONFIG)
    kind = described.get("model_type")
    if kind == "gpt2":
        options, convert = gpt2_config(described), _from_gpt2
    elif kind in LLAMAS:
        options, convert = llama_config(described), _from_llama
    else:
        raise ValueError(
            f"{place / CONFIG} describes a model of the type {kind!r}.\n"
            f"  fix: models of the types gpt2, {', '.join(LLAMAS)} can be loaded."
        )
    model = GPT(options)
    model.load_state_dict(convert(_read_weights(place), options))
    return model.eval()


def save_hugging_face(
    model: GPT, folder: str | Path, *, shard_bytes: int | None = None
) -> None:  # fmt: skip
    """Write a GPT as the family it belongs to, in shards of at most so many bytes if wanted."""
    place = Path(folder)
    is_llama = model.config.positions == "rotary"
    described = _llama_description(model.config) if is_llama else _gpt2_description(model.config)
    tensors = _to_llama(model) if is_llama else _to_gpt2(model)
    place.mkdir(parents=True, exist_ok=True)
    _write_weights(place, tensors, shard_bytes)
    _write_json(place / CONFIG, described)


# -- configurations ---------------------------------------------------------------------------


def gpt2_config(given: Mapping[str, Any]) -> GPTConfig:
    activation = given.get("activation_function", "gelu_new")
    require(activation in _ACTIVATIONS, f"the activation is {activation!r}", "use GELU")
    for name in ("scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"):
        require(not given.get(name), f"{name} is set", "load a model without it")
    return GPTConfig(
        vocabulary=given["vocab_size"], context=given["n_positions"], layers=given["n_layer"],
        heads=given["n_head"], width=given["n_embd"], inner=given.get("n_inner"),
        feed_forward=_ACTIVATIONS[activation], eps=given.get("layer_norm_epsilon", 1e-5),
        tie=given.get("tie_word_embeddings", True),
    )  # fmt: skip


def llama_config(given: Mapping[str, Any]) -> GPTConfig:
    kind = given["model_type"]
    window, context = given.get("sliding_window"), given["max_position_embeddings"]
    is_windowed = window is not None and given.get("use_sliding_window", kind == "mistral")
    require(not is_windowed or window >= context, f"sliding_window is {window}", "use no window")
    act = given.get("hidden_act", "silu")
    require(act == "silu", f"the activation is {act!r}", "load a model with SiLU")
    attention, inner = bool(given.get("attention_bias")), bool(given.get("mlp_bias"))
    require(attention == inner, "attention_bias and mlp_bias differ", "both or none have biases")
    heads = given["num_attention_heads"]
    return GPTConfig(
        vocabulary=given["vocab_size"], context=context, layers=given["num_hidden_layers"],
        heads=heads, kv_heads=given.get("num_key_value_heads") or heads,
        width=given["hidden_size"], head_width=given.get("head_dim"),
        inner=given["intermediate_size"], positions="rotary", norm="rms", feed_forward="swiglu",
        bias=attention, qkv_bias=True if kind == "qwen2" else None,
        tie=given.get("tie_word_embeddings", False), eps=given.get("rms_norm_eps", 1e-6),
        **_rotary_options(given),
    )  # fmt: skip


def _rotary_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Base and scaling, which newer files keep in one dictionary."""
    scaling = given.get("rope_parameters") or given.get("rope_scaling") or {}
    base = float(scaling.get("rope_theta") or given.get("rope_theta") or 10_000.0)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return {"rotary_base": base}
    require(kind == "llama3", f"rotary positions are scaled by {kind!r}", "use llama3's or none")
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    return {"rotary_base": base, "rotary_scaling": tuple(float(scaling[name]) for name in names)}


def _gpt2_description(c: GPTConfig) -> dict[str, Any]:
    fits = c.norm == "layer" and c.feed_forward != "swiglu" and c.bias and c.tie
    fits = fits and c.shared_heads == c.heads and c.head_width is None and c.qkv_bias is None
    require(
        fits,
        "with learned positions this is no GPT-2: it needs norm 'layer', GELU, biases, tied "
        "weights and as many heads of keys as of queries",
        "export such a model, or one with rotary positions",
    )
    activation = {"gelu": "gelu", "gelu_tanh": "gelu_new"}[c.feed_forward]
    return {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": c.vocabulary,
        "n_positions": c.context, "n_ctx": c.context, "n_layer": c.layers, "n_head": c.heads,
        "n_embd": c.width, "n_inner": c.inner, "activation_function": activation,
        "layer_norm_epsilon": c.eps, "tie_word_embeddings": True,
        "resid_pdrop": c.dropout, "embd_pdrop": c.dropout, "attn_pdrop": c.dropout,
    }  # fmt: skip


def _llama_description(c: GPTConfig) -> dict[str, Any]:
    fits = c.norm == "rms" and c.feed_forward == "swiglu" and c.qkv_bias in (None, True)
    require(
        fits and not (c.qkv_bias and c.bias),
        "with rotary positions this is no Llama: it needs norm 'rms' and feed_forward 'swiglu'",
        "export such a model, or one with learned positions",
    )
    is_qwen = bool(c.qkv_bias)
    name = "Qwen2ForCausalLM" if is_qwen else "LlamaForCausalLM"
    found: dict[str, Any] = {
        "model_type": "qwen2" if is_qwen else "llama", "architectures": [name],
        "vocab_size": c.vocabulary, "max_position_embeddings": c.context,
        "num_hidden_layers": c.layers, "num_attention_heads": c.heads,
        "num_key_value_heads": c.shared_heads, "hidden_size": c.width, "head_dim": c.head_size,
        "intermediate_size": c.hidden, "hidden_act": "silu", "rms_norm_eps": c.eps,
        "rope_theta": c.rotary_base, "tie_word_embeddings": c.tie,
    }  # fmt: skip
    if not is_qwen:
        found |= {"attention_bias": c.bias, "mlp_bias": c.bias}
    if c.rotary_scaling is not None:
        factor, low, high, context = c.rotary_scaling
        found["rope_scaling"] = {
            "rope_type": "llama3", "factor": factor, "low_freq_factor": low,
            "high_freq_factor": high, "original_max_position_embeddings": int(context),
        }  # fmt: skip
    return found


# -- weights ----------------------------------------------------------------------------------

_GPT2_LAYER = {
    "ln_1": "norm1", "attn.c_attn": "attention.qkv", "attn.c_proj": "attention.out",
    "ln_2": "norm2", "mlp.c_fc": "feed_forward.widen", "mlp.c_proj": "feed_forward.out",
}  # fmt: skip
_LLAMA_LAYER = {
    "input_layernorm": "norm1", "self_attn.o_proj": "attention.out",
    "post_attention_layernorm": "norm2", "mlp.up_proj": "feed_forward.widen",
    "mlp.gate_proj": "feed_forward.gate", "mlp.down_proj": "feed_forward.out",
}  # fmt: skip
_QKV = ("q", "k", "v")


def _from_gpt2(given: Tensors, c: GPTConfig) -> Tensors:
    given = {name.removeprefix("transformer."): value for name, value in given.items()}
    found = {"tokens.weight": given["wte.weight"], "positions.weight": given["wpe.weight"]}
    for part in ("weight", "bias"):
        found[f"norm.{part}"] = given[f"ln_f.{part}"]
        for n in range(c.layers):
            for theirs, ours in _GPT2_LAYER.items():
                value = given[f"h.{n}.{theirs}.{part}"]
                is_matrix = value.ndim == 2
                found[f"blocks.{n}.{ours}.{part}"] = value.t().contiguous() if is_matrix else value
    if not c.tie:
        found["head.weight"] = given["lm_head.weight"]
    return _widened(found)


def _to_gpt2(model: GPT) -> Tensors:
    own = model.state_dict()
    found = {"wte.weight": own["tokens.weight"], "wpe.weight": own["positions.weight"]}
    for part in ("weight", "bias"):
        found[f"ln_f.{part}"] = own[f"norm.{part}"]
        for n in range(model.config.layers):
            for theirs, ours in _GPT2_LAYER.items():
                value = own[f"blocks.{n}.{ours}.{part}"]
                is_matrix = value.ndim == 2
                found[f"h.{n}.{theirs}.{part}"] = value.t().contiguous() if is_matrix else value
    return {f"transformer.{name}": value for name, value in found.items()}


def _from_llama(given: Tensors, c: GPTConfig) -> Tensors:
    given = {name.removeprefix("model."): value for name, value in given.items()}
    found = {"tokens.weight": given["embed_tokens.weight"], "norm.weight": given["norm.weight"]}
    if not c.tie:
        found["head.weight"] = given["lm_head.weight"]
    for n in range(c.layers):
        for part in ("weight", "bias"):
            names = [f"layers.{n}.self_attn.{x}_proj.{part}" for x in _QKV]
            if names[0] in given:
                found[f"blocks.{n}.attention.qkv.{part}"] = eg.cat([given[x] for x in names])
            for theirs, ours in _LLAMA_LAYER.items():
                if f"layers.{n}.{theirs}.{part}" in given:
                    found[f"blocks.{n}.{ours}.{part}"] = given[f"layers.{n}.{theirs}.{part}"]
    return _widened(found)


def _to_llama(model: GPT) -> Tensors:
    c, own = model.config, model.state_dict()
    found = {
        "model.embed_tokens.weight": own["tokens.weight"],
        "model.norm.weight": own["norm.weight"],
    }
    if not c.tie:
        found["lm_head.weight"] = own["head.weight"]
    sizes = [heads * c.head_size for heads in (c.heads, c.shared_heads, c.shared_heads)]
    for n in range(c.layers):
        for part in ("weight", "bias"):
            joint = own.get(f"blocks.{n}.attention.qkv.{part}")
            if joint is not None:
                for x, value in zip(_QKV, joint.split(sizes), strict=True):
                    found[f"model.layers.{n}.self_attn.{x}_proj.{part}"] = value.clone()
            for theirs, ours in _LLAMA_LAYER.items():
                if f"blocks.{n}.{ours}.{part}" in own:
                    found[f"model.layers.{n}.{theirs}.{part}"] = own[f"blocks.{n}.{ours}.{part}"]
    return found


def _widened(tensors: Tensors) -> Tensors:
    """float32: what the model computes with, whatever a file keeps."""
    return {name: value.float() for name, value in tensors.items()}


# -- files ------------------------------------------------------------------------------------


def _read_weights(place: Path) -> Tensors:
    if (place / WEIGHTS).is_file():
        return load_file(place / WEIGHTS)
    if not (place / INDEX).is_file():
        raise ValueError(
            f"{place} has neither {WEIGHTS} nor {INDEX}.\n"
            "  fix: save the model with safe serialization."
        )
    places = _read_json(place / INDEX)["weight_map"]
    for name in set(places.values()):
        # Names come from a file: a shard has to be a file of this folder.
        require(Path(name).name == name, f"a shard is called {name!r}", "get the files again")
    found: Tensors = {}
    for name in sorted(set(places.values())):
        found |= load_file(place / name)
    missing = sorted(places.keys() - found.keys())
    require(not missing, f"the shards have no {missing[:3]}", "get the files again")
    return found


def _write_weights(place: Path, tensors: Tensors, shard_bytes: int | None) -> None:
    shards: list[Tensors] = [{}]
    size = 0
    for name, value in tensors.items():
        own = value.numel() * value.element_size()
        if shard_bytes is not None and shards[-1] and size + own > shard_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = value.detach()
        size += own
    about = {"format": "pt"}
    if len(shards) == 1:
        save_file(shards[0], place / WEIGHTS, about)
        return
    places: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, place / file, about)
        places |= dict.fromkeys(shard, file)
    total = sum(value.numel() * value.element_size() for value in tensors.values())
    _write_json(place / INDEX, {"metadata": {"total_size": total}, "weight_map": places})


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}.\n  fix: get the file again.") from error


def _write_json(path: Path, value: object) -> None:
    with replacing(path) as file:
        file.write(json.dumps(value, indent=2).encode())
