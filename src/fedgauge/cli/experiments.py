"""The options of an experiment, made from its keys: every key of the file is an option of the command."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fedgauge.base.codec import alternatives, parse_toml
from fedgauge.base.errors import InputError
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.sections import Key, keys

SOURCE = "An experiment (.toml), quadratics (.json), the name of a data set, or an .npz file."
RUN_SOURCE = f"A run, an{SOURCE[2:]}"
_METAVARS = {
    "data": "DIRECTORY",
    "shift": "KIND=STRENGTH",
    "goal": "QUANTITY=VALUE",
    **dict.fromkeys(("model_option", "algorithm_option"), "NAME=VALUE"),
}


def _annotation(key: Key, source: str, rate: str) -> Any:
    """How the command line reads a key: plain types as they are, all others as text."""
    kinds = alternatives(key.hint)
    kind = kinds[0] if len(kinds) == 1 and kinds[0] in (int, float, bool) else str
    default = "" if key.default in (None, dataclasses.MISSING) else f" [default: {key.default}]"
    # An unescaped bracket would begin markup.
    needed = f" ({rate} without a file)" if key.option == "gamma" else ""
    said = f"{key.help.rstrip('.')}{needed}{default}.".replace("[", r"\[")
    flag = f"--{key.option.replace('_', '-')}"
    if key.option == "source":
        return Annotated[str, typer.Argument(help=source)]
    flags = (f"{flag}/--no-{flag[2:]}",) if kind is bool else (flag,)
    metavar, panel = _METAVARS.get(key.option), key.section.capitalize()
    option = typer.Option(*flags, help=said, metavar=metavar, rich_help_panel=panel)
    repeated = key.name in ("options", "shift")
    return Annotated[list[str] | None, option] if repeated else Annotated[kind | None, option]


def takes_experiment(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of an experiment, and pass it the experiment as its first argument.

    The keys of the experiment replace the command's first parameter; the command's own options follow. Where both have
    an option of the same name, the command's own comes first, such as --cost of plan.
    """
    return _takes(command, lambda values: (experiment_from(values),), 1)


def takes_run_or_experiment(command: Callable[..., None]) -> Callable[..., None]:
    """As :func:`takes_experiment`, for a command whose second argument is the directory of a run, or None.

    The experiment is then the run's own, which has its data, its model and its algorithm already.
    """
    return _takes(command, _run_or_experiment, 2, RUN_SOURCE)


def takes_run_or_any_experiment(command: Callable[..., None]) -> Callable[..., None]:
    """As :func:`takes_run_or_experiment`, for a command that searches for a rate where there is none."""
    return _takes(command, _run_or_experiment, 2, RUN_SOURCE, rate="searched for")


def takes_keys(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of these keys, and pass it the values that were given as its first argument."""
    return lambda command: _takes(command, lambda values: (changes_from(values),), 1, names=names)


def _takes(
    command: Callable[..., None],
    first: Callable[[dict[str, Any]], tuple[Any, ...]],
    count: int,
    source: str = SOURCE,
    names: Collection[str] | None = None,
    rate: str = "required",
) -> Callable[..., None]:
    """The command with options for keys, from whose values ``first`` makes its first ``count`` arguments."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())[count:]
    shadowed = {parameter.name for parameter in own}
    known = [key for key in keys() if key.option not in shadowed and (names is None or key.option in names)]

    def with_options(**values: Any) -> None:
        command(*first({key.option: values.pop(key.option) for key in known}), **values)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = []
    for key in known:
        default = inspect.Parameter.empty if key.option == "source" else None
        parameters.append(
            inspect.Parameter(key.option, keyword, default=default, annotation=_annotation(key, source, rate))
        )
    parameters += [parameter.replace(kind=keyword) for parameter in own]
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    with_options.__name__, with_options.__doc__ = command.__name__, command.__doc__
    return with_options


def _run_or_experiment(values: dict[str, Any]) -> tuple[Experiment, Path | None]:
    run = Path(values["source"])
    if not (run / "settings.json").is_file():
        if run.parent != Path() and not run.suffix and not run.exists():
            raise InputError(f"There is no directory {run}; name a run that was saved with --out, or an experiment.")
        return experiment_from(values), None
    file = experiment_of(run)
    for key in keys():
        # The data may lie elsewhere on this machine.
        if key.section != "run" and key.option not in ("source", "data") and values.get(key.option) not in (None, []):
            raise InputError(
                f"--{key.option.replace('_', '-')} cannot change the {key.section} of the run in {run}; leave it out,"
                f" or name {file} to change the experiment."
            )
    return experiment_from({**values, "source": file}), run


def experiment_of(run: Path) -> str:
    """The experiment file of a run."""
    if not (run / "experiment.toml").is_file():
        raise InputError(
            f"The run in {run} has no experiment.toml, because it was started from Python; name the experiment instead."
        )
    return str(run / "experiment.toml")


def changes_from(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, in the types of their keys."""
    hints, changes = {key.option: key.hint for key in keys()}, {}
    for option, value in options.items():
        if option != "source" and value is not None and value != []:
            pairs = option.endswith("_option")
            changes[option] = _options(option, value) if pairs else parse(option, hints[option], value)
    return changes


def experiment_from(options: Mapping[str, Any]) -> Experiment:
    """The experiment that a file and options, or options alone, describe."""
    source, changes = str(options["source"]), changes_from(options)
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
    numbers = [kind for kind in kinds if typing.get_origin(kind) is tuple]
    if value in names or (str in kinds and not (numbers and _NUMERIC.match(value))):
        return value
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
        kinds = "whole numbers" if kind is int else "numbers"
        what = "a whole number, or one per worker" if single else kinds
        raise InputError(
            f"--{option.replace('_', '-')} must be {what} separated by commas, as in 1,2,1, not {value!r}."
        ) from None
    return numbers[0] if single and len(numbers) == 1 else numbers


_NUMERIC = re.compile(r"\s*[+-]?\.?\d")
_SHORT = re.compile(r"[+-]?(\d+\.|\.\d+)([eE][+-]?\d+)?")


def _options(option: str, pairs: list[str]) -> dict[str, Any]:
    """Options of a model or an algorithm: numbers, true and false as in TOML; anything else is text."""
    options = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise InputError(f"--{option.replace('_', '-')} must be NAME=VALUE, as in width=200, not {pair!r}.")
        try:
            options[name] = parse_toml(f"value = {text}")["value"]
        except ValueError:
            # TOML has no .1 and no 1., which everybody writes.
            options[name] = float(text) if _SHORT.fullmatch(text) else text
    return options
