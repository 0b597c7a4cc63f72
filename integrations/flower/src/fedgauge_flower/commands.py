"""Commands that write a new project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgauge.base.terminal import say
from fedgauge.cli import options

app = typer.Typer(name="new", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Write a new project as a starting point.

    Example: fedgauge new flower federated
    """


@app.command()
def flower(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A new or empty directory.")],
    json: options.Json = False,
) -> None:
    """Write a Flower project that measures while it trains, with TLS and a key for every node.

    'flwr run' runs it unchanged; its README explains how to start a SuperLink and SuperNodes. Existing files are kept.

    Example: fedgauge new flower federated
    """
    from fedgauge_flower.new import write_project

    written = write_project(path)
    if json:
        options.print_json({"path": str(path), "files": [str(file.relative_to(path)) for file in written]})
    else:
        say(f"Written: {path}; next: cd {path} && python federation.py up && python federation.py run")
