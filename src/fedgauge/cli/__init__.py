"""The command line: one function per command, and every error in one sentence."""

from __future__ import annotations

import logging
import os
import platform
import re
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from typing import Annotated, Any

import typer

from fedgauge.base.errors import InputError, InterruptedCommandError, MachineError
from fedgauge.base.files import remedy
from fedgauge.base.interrupts import as_interrupts
from fedgauge.base.progress import reported
from fedgauge.base.terminal import flowing, forget_notices, say
from fedgauge.base.threads import keep_freed_memory
from fedgauge.base.user_code import COMMANDS, plugins
from fedgauge.cli import (
    data,
    gauge,
    measure,
    report,
    run,
    runs,
    theory,
)
from fedgauge.cli.help import Command, CommandGroup
from fedgauge.cli.spelling import answer_to, as_options
from fedgauge.cli.unexpected import out_of_memory, save_traceback

# What the parser raises: click's exception up to typer 0.20, which Flower needs; later versions have their own.
_Refusal: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if issubclass(kind, Exception) and kind.__base__ is Exception
)

app = typer.Typer(
    name="fedgauge",
    help="How heterogeneous is my federation, and how many local steps can it afford?",
    epilog="Start with: fedgauge demo",
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command in (run.demo, gauge.gauge, run.simulate, measure.measure, report.report):
    app.command()(command)
runs.app.command()(runs.evaluate)
for command in (
    theory.generate,
    theory.constants,
    theory.expect,
    run.algorithms,
    run.symbols,
):
    theory.app.command()(command)
groups: dict[str, Any] = {"runs": runs.app, "data": data.app, "theory": theory.app}
for name, each in plugins(COMMANDS).items():
    place, _, last = name.rpartition(".")
    if place:  # a command of one of our groups, such as theory.explore
        groups[place].command(last)(each)
    else:
        groups[name] = each
for name, each in groups.items():
    if isinstance(each, typer.Typer):
        app.add_typer(each, name=name, cls=CommandGroup)
    else:
        app.command(name)(each)
for group in (app, *(each for each in groups.values() if isinstance(each, typer.Typer))):
    for one in group.registered_commands:
        one.cls, one.help = Command, flowing(getattr(one.callback, "__doc__", None) or "")


def _show_version(wanted: bool) -> None:
    if wanted:
        # Read from the installed metadata, as importing torch takes seconds.
        say(f"fedgauge {version('fedgauge')} (Python {platform.python_version()}, torch {version('torch')})")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the program as a whole."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status.

    0; 2 for a user's mistake; 1 for the machine's failure; 70 for what nobody expected; 130 for Ctrl-C, and 143 and 129
    for SIGTERM and SIGHUP, which are handled in the same way.
    """
    if arguments is None:  # the process is this command, and no program that calls it
        keep_freed_memory()
    log, notices = logging.getLogger("fedgauge"), _Notices(arguments)
    forget_notices()
    log.addHandler(notices)
    try:
        with as_interrupts(ends=arguments is None) as asked, reported(None):  # the commands have bars of their own
            status = _answered(arguments)
        return status if asked.signal is None else asked.status
    finally:
        log.removeHandler(notices)


class _Notices(logging.Handler):
    """Prints what the library logs as sentences on stderr, spelt for the command line."""

    def __init__(self, arguments: list[str] | None) -> None:
        super().__init__(logging.WARNING)
        self._arguments = arguments

    def emit(self, record: logging.LogRecord) -> None:
        _say(_as_typed(record.getMessage(), self._arguments), 0)


@cache
def _command() -> Any:
    """The commands as the parser wants them, made once: with all their options it takes a quarter of a second."""
    return typer.main.get_command(app)


def _answered(arguments: list[str] | None) -> int:
    """Run the command; every way in which it may end becomes an exit status and at most one sentence."""
    try:
        status = _run(arguments)
        # Flushed here rather than at exit, so that a reader who has left causes no traceback.
        sys.stdout.flush()
    except InputError as error:
        return _say(_as_typed(str(error), arguments), 2)
    except _Refusal as error:
        return _say(_usage(error), 2)
    except MachineError as error:
        return _say(_as_typed(str(error), arguments), 1)
    except BrokenPipeError:
        # The reader of the pipe has left; what is still in the buffer has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return _say(f"{error.strerror or error}{where}; {remedy(error)} and run the command again.", 1)
    except KeyboardInterrupt:
        return 130
    except (Exception, SystemExit) as error:
        reason = out_of_memory(error)
        return _say(reason, 1) if reason else _say(save_traceback(error), 70)
    return status if isinstance(status, int) else 0


def _run(arguments: list[str] | None) -> Any:
    """Run a command; if it is interrupted and gives no message, say that it was."""
    try:
        status = _command()(args=arguments, prog_name="fedgauge", standalone_mode=False)
    except InterruptedCommandError as error:
        return _say(str(error), 130)
    except KeyboardInterrupt:
        status = 130  # as typer makes of most
    except SystemExit as error:
        # This is how typer answers a reader of the pipe who has left; anybody else has no business to exit.
        raise error.__context__ if isinstance(error.__context__, BrokenPipeError) else error from None
    return _say("Interrupted.", 130) if status == 130 else status


def _say(sentence: str, status: int) -> int:
    if sentence:
        # A terminal that was closed has sent SIGHUP, and nobody reads what is said.
        with suppress(OSError):
            say(f"fedgauge: {' '.join(sentence.split())}", error=True)
    return status


def _as_typed(sentence: str, arguments: list[str] | None) -> str:
    """The sentence with arguments spelt as options of the command that was run."""
    typed = sys.argv[1:] if arguments is None else arguments
    command = _command()
    for word in typed:
        command = getattr(command, "commands", {}).get(word, command)
    named = {each.name: each.opts[-1] for each in command.params if each.opts[-1].startswith("--")}
    return as_options(sentence, named, typed)


def _flags(command: Any) -> list[str]:
    """All options of a command, in order; an argument has no dashes, and is none."""
    flags = [flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)]
    return [*(flag for flag in flags if flag.startswith("-")), "--help"]


def _usage(error: Any) -> str:
    """Why the parser refused the command line, what was given, and where to find help."""
    sentence: str = error.format_message()
    context, unknown = getattr(error, "ctx", None), getattr(error, "option_name", None)
    if unknown and context and getattr(error, "possibilities", ...) is not ...:
        answer = answer_to(unknown, _flags(context.command))
        return answer or f"There is no option {unknown}; see '{context.command_path} --help'."
    if not sentence:
        # There were no arguments, and the help has been printed already.
        return ""
    # click adds its suggestions to those of typer.
    sentence, *meant = re.split(r"\.? \(?Did you mean (?:one of: )?", sentence)
    if meant:
        sentence += f"; did you mean {meant[0].rstrip('?)')}?"
    problems = getattr(error.__cause__, "errors", None)
    if problems and getattr(error, "param", None):
        problem = problems()[0]
        kind = {"int_parsing": "whole number", "float_parsing": "number"}.get(problem["type"])
        if kind:
            sentence = f"{error.param.get_error_hint()} must be a {kind}, not {problem['input']!r}."
    # click's wording, up to typer 0.20.
    refused = re.search(r"Invalid value for (.+): ('.*') is not a valid (int|integer|float)\b", sentence)
    if refused:
        kind = "number" if refused[3] == "float" else "whole number"
        sentence = f"{refused[1]} must be a {kind}, not {refused[2]}."
    if context and not sentence.endswith("?"):
        sentence = f"{sentence.rstrip('.')}; see '{context.command_path} --help'."
    return sentence
