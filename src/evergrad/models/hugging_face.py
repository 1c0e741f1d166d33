"""GPT-2 and Llama checkpoints in Hugging Face's layout, read and written.

A folder has ``config.json`` and ``model.safetensors`` (or shards and their index). GPT-2 keeps its
matrices transposed; Llama keeps queries, keys and values apart, which are one matrix here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import evergrad as eg
from evergrad import config as limits
from evergrad.errors import FileFormatError
from evergrad.io.safetensors import load_file, save_file
from evergrad.models.gpt import GPT, GPTConfig
from evergrad.models.model import require
from evergrad.utils.atomic_file import replacing
from evergrad.utils.bounded_read import read_json

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


class DamagedModelError(FileFormatError, ValueError):
    """Files of a model of which one is missing or truncated, or that do not belong together."""


def is_hugging_face(path: Path) -> bool:
    """Whether a path is a folder in this layout, or a file of weights in one."""
    folder = path.parent if path.suffix == ".safetensors" else path
    return (folder / CONFIG).is_file()


def load_hugging_face(folder: str | Path) -> GPT:
    """The GPT whose configuration and weights are in a folder, in evaluation mode."""
    place = Path(folder)
    place = place.parent if place.suffix == ".safetensors" else place
    described = _read_json(place / CONFIG)
    try:
        options, convert = _options_of(described, place)
    except (AttributeError, KeyError, OverflowError, TypeError) as error:
        raise DamagedModelError(
            f"{place / CONFIG} is damaged: {error!r}.\n  fix: get the file again."
        ) from error
    try:
        weights = _read_weights(place)
    except (OSError, FileFormatError) as error:
        raise DamagedModelError(f"{error}.\n  fix: get the files again.") from error
    _require_weights(options, weights, place)
    if options.tie and _has_own_head(weights):
        options = replace(options, tie=False)
    model = GPT(options)
    try:
        model.load_state_dict(convert(weights, options))
    except (KeyError, RuntimeError) as error:
        raise DamagedModelError(
            f"the weights in {place} are not those {CONFIG} describes: {error}.\n"
            "  fix: get the files again."
        ) from error
    return model.eval()


def _options_of(
    described: Mapping[str, object], place: Path
) -> tuple[GPTConfig, Callable[[Tensors, GPTConfig], Tensors]]:
    """The options of a described model, and the function that converts its weights."""
    kind = described.get("model_type")
    require(
        described.get("quantization_config") is None,
        f"the weights in {place} are quantized",
        "load the model they were made from",
    )
    if kind == "gpt2":
        return gpt2_config(described), _from_gpt2
    if kind in LLAMAS:
        return llama_config(described), _from_llama
    raise ValueError(
        f"{place / CONFIG} describes a model of the type {kind!r}.\n"
        f"  fix: models of the types gpt2, {', '.join(LLAMAS)} can be loaded."
    )


def _has_own_head(weights: Tensors) -> bool:
    """Whether there is a head besides the embedding that it is said to share: then it counts, as
    with ``transformers``."""
    head = weights.get("lm_head.weight")
    shared = [
        v for name, v in weights.items() if name.endswith(("embed_tokens.weight", "wte.weight"))
    ]
    return head is not None and not any(eg.equal(head, other) for other in shared)


def _require_weights(options: GPTConfig, weights: Tensors, place: Path) -> None:
    """Whether the weights are as many as the description needs at least: a model is made before
    weights are assigned, of any size that the description has."""
    heads = options.heads * (options.head_width or options.width // options.heads)
    inner = options.inner or 4 * options.width
    rows = options.vocabulary + options.layers * (heads + inner)
    rows += options.context if options.positions == "learned" else 0
    found = sum(tensor.numel() for tensor in weights.values())
    require(
        rows * options.width <= found,
        f"{place / CONFIG} describes at least {rows * options.width:,} weights, the files have "
        f"{found:,}",
        "get the files again",
    )
    table = options.context * options.head_size if options.positions == "rotary" else 0
    require(
        table <= max(found, _LARGEST_TABLE),
        f"{place / CONFIG} describes {options.context:,} positions, whose angles are larger than "
        "the weights",
        "set max_position_embeddings to the longest text there will be",
    )


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

_LARGEST = 1 << 31
# Numbers of a table of rotary angles that any model may have: 256 MB.
_LARGEST_TABLE = 1 << 26


def _whole(given: Mapping[str, Any], name: str, default: int | None = None) -> Any:
    """A size; what is missing or null is the default, or damage if there is none."""
    found = given.get(name)
    found = default if found is None else found
    if found is None:
        raise KeyError(name)
    return found if _is_number(found, int) and 1 <= found <= _LARGEST else _wrong(name, found)


def _positive(given: Mapping[str, Any], name: str, default: float | None = None) -> float:
    found = given.get(name)
    found = default if found is None else found
    if found is None:
        raise KeyError(name)
    return float(
        found if _is_number(found, int, float) and 0 < found < 1e30 else _wrong(name, found)
    )


def _flag(given: Mapping[str, object], name: str, default: bool) -> bool:
    found = given.get(name)
    found = default if found is None else found
    return found if isinstance(found, bool) else _wrong(name, found)


def _is_number(value: object, *kinds: type) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def _wrong(name: str, value: object) -> NoReturn:
    raise TypeError(f"{name} is {str(value)[:80]!r}")


def gpt2_config(given: Mapping[str, Any]) -> GPTConfig:
    activation = given.get("activation_function", "gelu_new")
    require(activation in _ACTIVATIONS, f"the activation is {activation!r}", "use GELU")
    for name, usual in (
        ("scale_attn_weights", True), ("scale_attn_by_inverse_layer_idx", False),
        ("reorder_and_upcast_attn", False), ("is_causal", True),
    ):  # fmt: skip
        require(
            _flag(given, name, usual) == usual, f"{name} is {not usual}", f"it has to be {usual}"
        )
    width = _whole(given, "n_embd")
    return GPTConfig(
        vocabulary=_whole(given, "vocab_size"), context=_whole(given, "n_positions"),
        layers=_whole(given, "n_layer"), heads=_whole(given, "n_head"), width=width,
        inner=_whole(given, "n_inner", 4 * width), feed_forward=_ACTIVATIONS[activation],
        eps=_positive(given, "layer_norm_epsilon", 1e-5),
        tie=_flag(given, "tie_word_embeddings", True),
    )  # fmt: skip


def llama_config(given: Mapping[str, object]) -> GPTConfig:
    kind = given["model_type"]
    context = _whole(given, "max_position_embeddings")
    window = _window(given, context)
    require(window >= context, f"sliding_window is {window}", "use no window")
    require(_flag(given, "is_causal", True), "is_causal is False", "it has to be True")
    act = given.get("hidden_act", "silu")
    require(act == "silu", f"the activation is {act!r}", "load a model with SiLU")
    attention, inner = _flag(given, "attention_bias", False), _flag(given, "mlp_bias", False)
    require(attention == inner, "attention_bias and mlp_bias differ", "both or none have biases")
    heads, width = _whole(given, "num_attention_heads"), _whole(given, "hidden_size")
    return GPTConfig(
        vocabulary=_whole(given, "vocab_size"), context=context,
        layers=_whole(given, "num_hidden_layers"), heads=heads,
        kv_heads=_whole(given, "num_key_value_heads", heads), width=width,
        head_width=_whole(given, "head_dim") if given.get("head_dim") is not None else None,
        inner=_whole(given, "intermediate_size"), positions="rotary", norm="rms",
        feed_forward="swiglu", bias=attention, qkv_bias=True if kind == "qwen2" else None,
        tie=_flag(given, "tie_word_embeddings", False), eps=_positive(given, "rms_norm_eps", 1e-6),
        **_rotary_options(given),
    )  # fmt: skip


_WINDOW = 4096  # of configurations that do not name theirs


def _window(given: Mapping[str, Any], context: int) -> int:
    """How many tokens before it a token sees; null is no window, as is a missing one elsewhere."""
    kind = given["model_type"]
    is_windowed = kind != "llama" and _flag(given, "use_sliding_window", kind == "mistral")
    if not is_windowed:
        others = set(given.get("layer_types") or ()) - {"full_attention"}
        require(not others, f"layer_types has {sorted(map(str, others))}", "use no window")
        return context
    found: int = _whole({"sliding_window": _WINDOW, **given}, "sliding_window", context)
    return found


def _rotary_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Base and scaling, which newer files keep in one dictionary."""
    scaling = given.get("rope_parameters") or given.get("rope_scaling") or {}
    nested = [name for name, value in scaling.items() if isinstance(value, dict)]
    require(not nested, f"rotary positions differ by {nested}", "use the same in all layers")
    base = _positive(scaling, "rope_theta", _positive(given, "rope_theta", 10_000.0))
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return {"rotary_base": base}
    require(kind == "llama3", f"rotary positions are scaled by {kind!r}", "use llama3's or none")
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    return {
        "rotary_base": base,
        "rotary_scaling": tuple(_positive(scaling, name) for name in names),
    }


def _gpt2_description(c: GPTConfig) -> dict[str, object]:
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


def _llama_description(c: GPTConfig) -> dict[str, float | int | list[str] | str]:
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
# Masks and frequencies that older files keep, and the tied matrix once more.
_WITHOUT_EFFECT = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq", "lm_head.weight")


def _from_gpt2(given: Tensors, c: GPTConfig) -> Tensors:
    given = {name.removeprefix("transformer."): value for name, value in given.items()}
    found = {"tokens.weight": given.pop("wte.weight"), "positions.weight": given.pop("wpe.weight")}
    for part in ("weight", "bias"):
        found[f"norm.{part}"] = given.pop(f"ln_f.{part}")
        for n in range(c.layers):
            for theirs, ours in _GPT2_LAYER.items():
                value = given.pop(f"h.{n}.{theirs}.{part}")
                is_matrix = value.ndim == 2
                found[f"blocks.{n}.{ours}.{part}"] = value.t().contiguous() if is_matrix else value
    if not c.tie:
        found["head.weight"] = given.pop("lm_head.weight")
    _require_all_used(given)
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
    found = {
        "tokens.weight": given.pop("embed_tokens.weight"),
        "norm.weight": given.pop("norm.weight"),
    }
    if not c.tie:
        found["head.weight"] = given.pop("lm_head.weight")
    for n in range(c.layers):
        for part in ("weight", "bias"):
            names = [f"layers.{n}.self_attn.{x}_proj.{part}" for x in _QKV]
            if names[0] in given:
                found[f"blocks.{n}.attention.qkv.{part}"] = eg.cat([given.pop(x) for x in names])
            for theirs, ours in _LLAMA_LAYER.items():
                if f"layers.{n}.{theirs}.{part}" in given:
                    found[f"blocks.{n}.{ours}.{part}"] = given.pop(f"layers.{n}.{theirs}.{part}")
    _require_all_used(given)
    return _widened(found)


def _require_all_used(left: Tensors) -> None:
    """A weight that is not known belongs to another model, which would compute something else."""
    unknown = sorted(name for name in left if not name.endswith(_WITHOUT_EFFECT))
    require(
        not unknown, f"there are weights of no known layer: {unknown[:3]}", "get the files again"
    )


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
        raise DamagedModelError(
            f"{place} has neither {WEIGHTS} nor {INDEX}.\n"
            "  fix: save the model with safe serialization."
        )
    index = _read_json(place / INDEX)
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict):
        raise DamagedModelError(f"{place / INDEX} has no weight_map.\n  fix: get the files again.")
    for name in places.values():
        # Names come from a file: a shard has to be a file of this folder.
        is_file = isinstance(name, str) and name and Path(name).name == name
        require(bool(is_file), f"a shard is called {name!r}", "get the files again")
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
        return read_json(path, limits.TOKENIZER_BYTES, "set EVERGRAD_TOKENIZER_BYTES")
    except (OSError, ValueError) as error:
        raise DamagedModelError(
            f"{path} cannot be read: {error}.\n  fix: get the file again."
        ) from error


def _write_json(path: Path, value: object) -> None:
    with replacing(path) as file:
        file.write(json.dumps(value, indent=2).encode())
