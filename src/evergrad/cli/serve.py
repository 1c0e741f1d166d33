"""``evergrad serve``: a trained model behind OpenAI's API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from evergrad.cli.served import memory_line, service_of, takes_model
from evergrad.train.config import ConfigError
from evergrad.train.packages import package

if TYPE_CHECKING:
    from evergrad.core.types import Kwargs

PORT = click.IntRange(0, 65535)


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path), metavar="CHECKPOINT")
@takes_model
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", default=8000, show_default=True, type=PORT, help="0 for any that is free.")
@click.option("--token", help="What clients must present; made up where others can connect.")
def serve(checkpoint: Path, host: str, port: int, token: str | None, **options: object) -> None:
    """Serve a trained language model with OpenAI's API.

    CHECKPOINT is a run's folder, a checkpoint, or a folder in Hugging Face's layout. Endpoints:
    /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/models, /healthz, /metrics. Ctrl-C
    or SIGTERM accepts no more connections and lets running answers end.

    \b
    Examples:
      evergrad serve runs/chat
      evergrad serve runs/chat --weights int8 --adapter polite=adapters/polite
      evergrad serve runs/chat --host 0.0.0.0 --token "$TOKEN"

    \b
    Exit codes: 0 after Ctrl-C or SIGTERM, 2 for an option or path that cannot be used, 5 for a
    checkpoint that is damaged.
    """
    start(checkpoint, host, port, token, options, page=False)


def start(
    checkpoint: Path, host: str, port: int, token: str | None, options: Kwargs, *,
    page: bool,
) -> None:  # fmt: skip
    """Load the model and serve until a signal."""
    for name in ("starlette", "uvicorn", "prometheus_client"):
        package(name)
    from evergrad.serve.app import make_app  # start-up: starlette
    from evergrad.serve.server import limits_for, listen, run  # start-up: uvicorn

    try:
        limits = limits_for(host, token)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    listening = listen(host, port)
    with listening:
        service = service_of(checkpoint, **options)
        address = f"[{host}]" if ":" in host else host
        url = f"http://{address}:{listening.getsockname()[1]}"
        secret = "" if limits.token is None else f"/#token={quote(limits.token, safe='')}"
        told = f"{url}{secret}" if page else f"{url}/v1"
        if not page and limits.token is not None:
            told += f"  token: {limits.token}"

        def ready() -> None:
            click.echo(memory_line(service))
            click.echo(f"ready: {told}")

        run(make_app(service, limits, page=page), listening, ready)
