"""The options of a configuration as rows of a help text."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any

from evergrad.train.config import PARTS, RunConfig, settable

_TITLES = {
    "": "Options of a run (--key value; short keys such as --lr stand for --optimizer.lr)",
    "model": "Options of the model (here of gpt)",
    "data": "Options of the data",
    "optimizer": "Options of the optimizer",
}

# Options of the models by name: one name means the same in every model.
_MODEL_OPTIONS = {
    "alpha": "the adapter's product is scaled by alpha / rank",
    "beta": "how strongly preferences may move the model away from where it began",
    "bias": "whether linear layers have biases",
    "channels": "channels of the autoencoder's first stage",
    "context": "tokens that the model can attend to at once",
    "depth": "layers: 18 or 50",
    "double": "blocks with separate weights for text and picture",
    "dropout": "share of activations that are set to zero in training",
    "eps": "added to the variance in norms",
    "feed_forward": "activation of the wide layer: gelu, gelu_tanh or swiglu",
    "guidance": "how strongly samples follow their class or caption; 1 for not at all",
    "head_width": "numbers of a head; none for width / heads",
    "heads": "attention heads of a layer",
    "init_from": "a run, a checkpoint or a folder in Hugging Face's layout to begin with",
    "inner": "width of the feed-forward layer; none for four times the width",
    "kv_heads": "heads of keys and values; none for as many as heads",
    "latents": "channels of the autoencoder's latent picture",
    "layers": "layers of the model",
    "length": "tokens of a caption",
    "method": "full for all weights, lora for adapters beside frozen ones",
    "norm": "layer or rms",
    "patch": "pixels of a patch's side",
    "positions": "learned or rotary",
    "process": "diffusion process: flow or ddpm",
    "qkv_bias": "biases of queries, keys and values; none for as bias",
    "rank": "rank of the adapters",
    "rotary_base": "base of the rotary frequencies",
    "rotary_scaling": "Llama 3.1's factors of the frequencies: four numbers",
    "sampling_steps": "steps of the sampler",
    "single": "blocks with common weights for text and picture",
    "size": "pixels of a picture's side",
    "small": "full resolution in the first stage, for small pictures",
    "targets": "layers that get adapters",
    "tie": "score tokens with the weights that embed them",
    "width": "numbers per token or channels of the first stage",
    "zero_init": "residual blocks begin as the identity",
}


def options_help(config: RunConfig) -> dict[str, list[tuple[str, str]]]:
    """For each part of a configuration its title, and its options with default and meaning."""
    return {_TITLES[part]: _rows(config, part) for part in ("", *PARTS)}


def _rows(config: RunConfig, part: str) -> list[tuple[str, str]]:
    owner: Any = getattr(config, part) if part else config
    keys = settable(config)
    prefix = f"{part}." if part else ""
    shown = [f for f in fields(owner) if prefix + f.name in keys]
    return [
        (f"--{prefix}{f.name}".replace("_", "-"), _meaning(f, getattr(owner, f.name)))
        for f in shown
    ]


def _meaning(option: Field[object], value: object) -> str:
    text = option.metadata.get("help") or _MODEL_OPTIONS.get(option.name, "")
    default = "none" if value is None else value if value != "" else '""'
    return f"{text}  [{default}]" if text else f"[{default}]"
