"""The ``evergrad`` command: the list of its commands, each imported on first use."""

from __future__ import annotations

import sys
from importlib import import_module

try:
    import click
except ModuleNotFoundError:
    sys.exit("the evergrad command needs packages that are missing: pip install 'evergrad[app]'")

from evergrad.train.values import nearest

# What each command does, in the order in which one meets them. The command NAME is the function
# NAME in the module evergrad.cli.NAME.
COMMANDS = {
    "demo": "Half a minute: train, kill, resume to the bit, memory as planned.",
    "train": "Train a model: gpt, lstm, lenet, resnet, vit, mlp, dit, flux, or a TOML file.",
    "finetune": "Teach a trained language model to answer: full, LoRA, DPO.",
    "launch": "Start a command or a program on several ranks, with mpiexec.",
    "sample": "Let a trained language model go on with a text.",
    "chat": "Talk to a trained model, in the terminal or in a browser.",
    "serve": "Serve a trained model with OpenAI's API.",
    "report": "Draw the curves of a run and write its report.",
    "memory": "Show the memory plan of a training, without training.",
    "explain": "Show what the compiler made of a training step.",
    "check": "Test this machine: gradients of all ops, threads, leaks.",
    "bench": "Time training steps, against other libraries if they are there.",
    "doctor": "Show versions, processor, libraries and the kernel cache.",
}


class CommandList(click.Group):
    """Commands whose modules are imported only when they run or print their help."""

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except (click.exceptions.Exit, click.ClickException, click.Abort):
            raise  # click reports them
        except BaseException as error:
            from evergrad.cli.failures import exit_code_of, report_failure  # start-up: layers

            code = exit_code_of(error)
            if code is None:
                raise
            sys.exit(report_failure(error, code))

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = import_module(f"evergrad.cli.{name}")
        found: click.Command = getattr(module, name)
        return found

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS:
            context.fail(f"there is no command {args[0]!r}{nearest(args[0], COMMANDS)}")
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=CommandList, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="evergrad")
def main() -> None:
    """Deep learning in Python alone: train, look inside, measure.

    \b
    Start here:
      evergrad demo               half a minute that shows what it is for
      evergrad train              a small GPT on the text every Python ships: two minutes
      evergrad train lenet        digits; also resnet, vit, mlp, lstm, dit
      evergrad sample runs/gpt    let the trained model write
      evergrad chat               train a small chat model, and talk to it
      evergrad train --help       everything that can be set

    \b
    Exit codes of all commands:
      0    done                          4    newest state not saved (disk full?)
      1    an error, a check that fails  5    no checkpoint that is whole
      2    wrong option, path or data    6    not enough memory
      3    loss not finite               130  Ctrl-C             143  SIGTERM
    """
