"""The command line: one function a command, errors in one sentence."""

from __future__ import annotations

import logging
import sys

import typer
from typer.exceptions import TyperException

from fedgauge.cli import quadratic, reproduce, run
from fedgauge.errors import InputError

app = typer.Typer(
    name="fedgauge",
    help="How heterogeneous is my federation, and how many local steps can it afford?",
    epilog="Start with: fedgauge demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command in (run.demo, quadratic.generate, quadratic.constants, quadratic.expect, run.simulate, run.algorithms):
    app.command()(command)
app.add_typer(reproduce.app)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return its exit status: 0, 2 for a user's mistake, 1 for the machine's, 130 for Ctrl-C."""
    logging.basicConfig(format="fedgauge: %(message)s")
    try:
        status = app(args=arguments, standalone_mode=False)
    except (InputError, TyperException) as error:
        sentence = error.format_message() if isinstance(error, TyperException) else str(error)
        if sentence:
            print(f"fedgauge: {' '.join(sentence.split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of a pipe has seen enough; what is still in the buffer has nowhere to go.
        sys.stderr.close()
        return 1
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        print(f"fedgauge: {error.strerror or error}{where}; free the resource and run again.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status if isinstance(status, int) else 0
