"""Trained language models from wherever they are: runs, checkpoints, Hugging Face's layout."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import NamedTuple

import evergrad as eg
from evergrad.models.gpt import GPT
from evergrad.models.hugging_face import DamagedModelError, is_hugging_face, load_hugging_face
from evergrad.models.lora import merge_lora
from evergrad.tokenizers import Tokenizer
from evergrad.tokenizers.hugging_face import TOKENIZER, HuggingFaceTokenizer
from evergrad.train.checkpoint import read_checkpoint
from evergrad.train.config import ConfigError


class Pretrained(NamedTuple):
    """A language model in evaluation mode, and how text becomes its tokens."""

    model: GPT
    tokenizer: Tokenizer
    name: str


def load_pretrained(place: str | Path) -> Pretrained:
    """The GPT of a run's folder, of a checkpoint, or of a folder in Hugging Face's layout (or a
    ``*.safetensors`` file in one). Adapters are merged."""
    path = Path(place)
    if is_hugging_face(path):
        return _from_hugging_face(path)
    task = (checkpoint := read_checkpoint(path)).task()
    tokenizer = getattr(task, "tokenizer", None)
    model = checkpoint.model(task)
    if tokenizer is None or not isinstance(model, GPT):
        raise ConfigError(
            f"{path} is a {checkpoint.config.task}, but a GPT is needed: train one with "
            "evergrad train gpt"
        )
    merge_lora(model)
    name = path.name if path.is_dir() else path.stem
    return Pretrained(model.eval(), tokenizer, name)


def _from_hugging_face(path: Path) -> Pretrained:
    folder = path.parent if path.suffix == ".safetensors" else path
    try:
        model = load_hugging_face(folder)
    except DamagedModelError:
        raise
    except ValueError as error:
        raise ConfigError(f"{folder} cannot be loaded: {error}") from error
    if not (folder / TOKENIZER).is_file():
        raise ConfigError(f"{folder} has no {TOKENIZER}: text cannot become tokens without it")
    try:
        tokenizer = HuggingFaceTokenizer.from_folder(folder)
    except ValueError as error:
        raise ConfigError(f"{folder} cannot be loaded: {error}") from error
    return Pretrained(model, tokenizer, folder.name)


def extended(model: GPT, vocabulary: int, context: int) -> GPT:
    """A copy with more tokens and a longer context, new rows drawn from the default generator.

    New positions begin as those before them, from the first on: a model that has seen 64 places
    then learns 256 sooner.
    """
    options = dataclasses.replace(
        model.config, vocabulary=vocabulary, context=max(context, model.config.context)
    )
    found = GPT(options)
    given = model.state_dict()
    with eg.no_grad():
        for name, own in found.state_dict().items():
            value = given[name]
            if own.shape == value.shape:
                own.copy_(value)
            elif name == "positions.weight":
                repeated = value.repeat(-(-own.shape[0] // value.shape[0]), 1)
                own.copy_(repeated[: own.shape[0]])
            else:
                own[: value.shape[0]] = value
    return found
