"""``evergrad finetune``: a trained model learns to answer, or which of two answers is better."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from evergrad.cli.configured import METAVAR, PASS_OPTIONS_ON, takes_size
from evergrad.cli.train import run
from evergrad.models.lora import save_adapter
from evergrad.train.checkpoint import read_checkpoint
from evergrad.train.config import ConfigError


@click.command(context_settings=PASS_OPTIONS_ON, options_metavar=METAVAR.removeprefix("[WHAT] "))
@takes_size({
    "tiny": "Seconds: to see that it works.",
    "small": "A minute or two; the default.",
    "medium": "Many minutes.",
    "large": "Hours.",
})  # fmt: skip
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint, bit for bit.")
@click.option("--lora", is_flag=True, help="Learn adapters beside frozen weights (--rank 8).")
@click.option("--dpo", is_flag=True, help="Learn from pairs of a better and a worse answer.")
@click.option(
    "--save-adapter", "adapter", type=click.Path(path_type=Path), metavar="FOLDER",
    help="Afterwards write the adapter of --lora alone.",
)  # fmt: skip
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="")
def finetune(
    size: str | None, resume: bool, lora: bool, dpo: bool, adapter: Path | None,
    words: tuple[str, ...],
) -> None:  # fmt: skip
    """Fine-tune a language model on conversations.

    --init-from names a run, a checkpoint, or a folder in Hugging Face's layout. --data is a file
    with one conversation in a line, {"messages": [{"role": "user", "content": "Hi"}, {"role":
    "assistant", "content": "Hello!"}]}; the built-in small-talk is the default. The loss is that of
    the answers; conversations are packed into rows and do not see each other. With --dpo lines are
    {"prompt": "Hi", "chosen": "Hello!", "rejected": "What?"}.

    \b
    Examples:
      evergrad finetune --init-from runs/gpt
      evergrad finetune --init-from runs/gpt --data talks.jsonl --steps 500 --lr 1e-3
      evergrad finetune --init-from runs/chat --lora --rank 4 --targets qkv \\
        --save-adapter adapters/polite
      evergrad finetune --init-from runs/chat --dpo --data pairs.jsonl --beta 0.2
      evergrad chat runs/chat

    Everything else is as with evergrad train: the run's files, --resume, exit codes.
    """
    given = list(words)
    if adapter is not None and not lora:
        raise ConfigError("--save-adapter is for --lora: full fine-tuning has no adapter")
    named = [] if given and not given[0].startswith("--") else ["dpo" if dpo else "chat"]
    if lora:
        given += ["--method", "lora"]
    then = None if adapter is None else partial(_save, adapter)
    code = run(size, resume, [*named, *given], then=then)
    sys.exit(code)


def _save(adapter: Path, folder: Path) -> None:
    """Write the adapter of the run's best checkpoint."""
    checkpoint = read_checkpoint(folder)
    task = checkpoint.task()
    model = checkpoint.model(task)
    save_adapter(model, adapter, task.config.model.lora())
    click.echo(adapter)
