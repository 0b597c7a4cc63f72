"""The options of an experiment, made from its keys: every key of the file is an option of the command."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fedgauge.codec import alternatives, parse_toml
from fedgauge.errors import InputError
from fedgauge.experiment.config import Experiment
from fedgauge.experiment.sections import Key, keys

SOURCE = "An experiment (.toml), a quadratic federation (.json), a data set (see 'fedgauge data list') or an .npz file."


def _annotation(key: Key) -> Any:
    """How the command line reads a key: plain types as they are, all others as text."""
    kinds = alternatives(key.hint)
    kind = kinds[0] if len(kinds) == 1 and kinds[0] in (int, float, bool) else str
    default = "" if key.default in (None, dataclasses.MISSING) else f" [default: {key.default}]"
    # An unescaped bracket would begin markup.
    said = f"{key.help.rstrip('.')}{default}.".replace("[", r"\[")
    flag = f"--{key.option.replace('_', '-')}"
    if key.option == "source":
        return Annotated[str, typer.Argument(help=SOURCE, show_default=False)]
    if key.name == "options":
        return Annotated[list[str] | None, typer.Option(flag, metavar="NAME=VALUE", help=said, show_default=False)]
    flags = (f"{flag}/--no-{flag[2:]}",) if kind is bool else (flag,)
    metavar = {"data": "DIRECTORY", "shift": "KIND=STRENGTH"}.get(key.option)
    panel = {"data": "Data", "model": "Model", "algorithm": "Algorithm", "run": "Run"}[key.section]
    option = typer.Option(*flags, help=said, show_default=False, metavar=metavar, rich_help_panel=panel)
    return Annotated[list[str] | None, option] if key.option == "shift" else Annotated[kind | None, option]


RUN_SOURCE = f"The directory of a run, or {SOURCE[0].lower()}{SOURCE[1:]}"


def takes_run_or_experiment(command: Callable[..., None]) -> Callable[..., None]:
    """As :func:`takes_experiment`, for a command whose second argument is the directory of a run, or None.

    The experiment is then the run's own, changed by the options that were given.
    """
    return _takes(command, runs=True)


def takes_experiment(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of an experiment, and pass it the experiment as its first argument.

    The keys of the experiment replace the command's first parameter; the command's own options follow.
    """
    return _takes(command, runs=False)


def _takes(command: Callable[..., None], runs: bool) -> Callable[..., None]:
    own = list(inspect.signature(command, eval_str=True).parameters.values())[2 if runs else 1 :]
    # Where both have an option of the same name, the command's own comes first, such as --cost of plan.
    known = [key for key in keys() if key.option not in {parameter.name for parameter in own}]

    def with_options(**values: Any) -> None:
        options = {key.option: values.pop(key.option) for key in known}
        run = Path(options["source"])
        if not runs:
            command(experiment_from(options), **values)
        elif (run / "settings.json").is_file():
            options["source"] = _kept(run)
            command(experiment_from(options), run, **values)
        elif run.parent != Path() and not run.suffix and not run.exists():
            raise InputError(f"There is no directory {run}; name a run that was saved with --out, or an experiment.")
        else:
            command(experiment_from(options), None, **values)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = []
    for key in known:
        default = inspect.Parameter.empty if key.option == "source" else None
        annotation = _annotation(key)
        if runs and key.option == "source":
            annotation = Annotated[str, typer.Argument(help=RUN_SOURCE, show_default=False)]
        parameters.append(inspect.Parameter(key.option, keyword, default=default, annotation=annotation))
    parameters += [parameter.replace(kind=keyword) for parameter in own]
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    with_options.__name__, with_options.__doc__ = command.__name__, command.__doc__
    return with_options


def _kept(run: Path) -> str:
    """The experiment file of a run."""
    if not (run / "experiment.toml").is_file():
        raise InputError(
            f"The run in {run} has no experiment.toml, because it was started from Python; name the experiment instead."
        )
    return str(run / "experiment.toml")


def experiment_from(options: Mapping[str, Any]) -> Experiment:
    """The experiment that a file and options, or options alone, describe."""
    source = str(options["source"])
    hints = {key.option: key.hint for key in keys()}
    changes = {}
    for option, value in options.items():
        if option == "source" or value is None or value == []:
            continue
        changes[option] = _options(option, value) if option.endswith("_option") else parse(option, hints[option], value)
    if source.endswith(".toml"):
        return Experiment.read(source, changes)
    if (Path(source) / "experiment.toml").is_file():
        raise InputError(
            f"{source} is the directory of a run; name its experiment, {Path(source) / 'experiment.toml'}."
        )
    if Path(source).is_dir():
        raise InputError(f"{source} is a directory; name an experiment, a federation or a data set.")
    return Experiment.of({"source": source, **changes})


def parse(option: str, hint: Any, value: Any) -> Any:
    """A value from the command line, converted to a type that the key allows."""
    if not isinstance(value, str):
        return value
    kinds = alternatives(hint)
    names = [name for kind in kinds if typing.get_origin(kind) is Literal for name in typing.get_args(kind)]
    if value in names or str in kinds:
        return value
    numbers = [kind for kind in kinds if typing.get_origin(kind) is tuple]
    if numbers:
        return _numbers(option, value, typing.get_args(numbers[0])[0], single=int in kinds)
    for kind in kinds:
        if kind in (int, float):
            return _number(option, value, kind)
        if kind is bool and value in ("true", "false"):
            return value == "true"
    return value  # the experiment refuses it


def _number(option: str, value: str, kind: type) -> Any:
    try:
        return kind(value)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise InputError(f"--{option.replace('_', '-')} must be {what}, not {value!r}.") from None


def _numbers(option: str, value: str, kind: type, single: bool) -> Any:
    parts = value.split(",")
    try:
        numbers = [kind(part) for part in parts]
    except ValueError:
        what = (
            "a whole number, or one per worker separated by commas," if kind is int else "numbers separated by commas,"
        )
        raise InputError(f"--{option.replace('_', '-')} must be {what} as in 1,2,1, not {value!r}.") from None
    return numbers[0] if single and len(numbers) == 1 else numbers


_SHORT = re.compile(r"[+-]?(\d+\.|\.\d+)([eE][+-]?\d+)?")


def _options(option: str, pairs: list[str]) -> dict[str, Any]:
    """Options of a model or an algorithm: numbers, true and false as in TOML; anything else is text."""
    found = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise InputError(f"--{option.replace('_', '-')} must be NAME=VALUE, as in width=200, not {pair!r}.")
        try:
            found[name] = parse_toml(f"value = {text}")["value"]
        except ValueError:
            # TOML has no .1 and no 1., which everybody writes.
            found[name] = float(text) if _SHORT.fullmatch(text) else text
    return found
