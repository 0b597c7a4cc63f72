"""Options that several commands share, and functions that turn their text into values."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedgauge.base.codec import json_text

FederationFile = Annotated[Path, typer.Argument(help="The JSON file of a quadratic federation.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a run.")]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", help="Directory that holds the data sets \\[default: $FEDGAUGE_DATA, or your user data directory]."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Seed = Annotated[int, typer.Option(help="Seed of all random numbers.")]
Weights = Annotated[str | None, typer.Option(help="One weight per worker, as in 1,2,1 \\[default: equal].")]
Observer = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="wandb, mlflow, or MODULE:FACTORY of your own: it gets every record; may be repeated."
    ),
]
_WITH_OPTIONS = ("local_steps", "gamma_schedule", "eta_schedule")
_PICTURES = (".png", ".pdf", ".svg")
Plot = Annotated[Path | None, typer.Option(help="Save a picture: a .png, .pdf or .svg file.")]


def at(what: str, default: str) -> Any:
    """The option that names a model; the command does ``what`` at it."""
    where = "a .safetensors or .pt file, or the directory of a run"
    return typer.Option(metavar="MODEL", help=f"{what} at this model: {where} \\[default: {default}].")


def model_file(at: Path) -> Path:
    """The file of a model that --at names."""
    return at / "model.safetensors" if at.is_dir() else at


def over(what: str) -> Any:
    """The option that names several values of keys, which the command does ``what`` with."""
    return typer.Option(metavar="KEY=VALUE,VALUE", help=f"{what}; may be repeated.")


def allow_user_modules() -> None:
    """Let Python find the user's own modules in the current directory, after everything that is installed.

    A file called ``torch.py`` there must not be taken for the package.
    """
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def print_json(data: Any) -> None:
    """Print JSON on the standard output, floats to the last bit."""
    sys.stdout.write(json_text(data) + "\n")


def check_file(path: Path, made: Path | None = None) -> None:
    """Refuse, before any work is done, a file that cannot be written; ``made`` is a directory that will be made."""
    from fedgauge.base.errors import InputError

    if path.is_dir():
        raise InputError(f"{path} is a directory; name a file.")
    if path.parent == made:
        return
    if not path.parent.is_dir():
        raise InputError(f"Cannot write {path}: there is no directory {path.parent}; create it or name another.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"Cannot write {path}: permission denied; name a file that can be written.")


def check_plot(path: Path | None, made: Path | None = None) -> None:
    """Refuse, before any work is done, a picture that cannot be saved."""
    from fedgauge.base.errors import InputError

    if path is None:
        return
    if path.suffix not in _PICTURES:
        raise InputError(f"plot must be a file that ends in .png, .pdf or .svg, not {str(path)!r}.")
    check_file(path, made)


def check_directory(path: Path, name: str = "out") -> None:
    """Refuse, before any work is done, a directory that cannot be made."""
    from fedgauge.base.errors import InputError

    there = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not there.is_dir():
        raise InputError(f"{name} must be a directory, not {str(path)!r}: {there} is a file; name another.")
    if not os.access(there, os.W_OK):
        raise InputError(f"Cannot write to {there}: permission denied; name a directory that can be written.")


def values_over(over: list[str], allowed: Sequence[str] | None = None) -> dict[str, list[Any]]:
    """The values of each key, in the key's type; if ``allowed`` is given, only those keys of an experiment."""
    from fedgauge.base.errors import InputError
    from fedgauge.cli.experiments import parse
    from fedgauge.cli.spelling import meant
    from fedgauge.simulation.experiment.sections import keys

    hints = {key.option: key.hint for key in keys() if allowed is None or key.option in allowed}
    refused = "names no key of an experiment:" if allowed is None else "does not choose"
    chosen: dict[str, list[Any]] = {}
    for text in over:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not values:
            raise InputError(f"--over must be KEY=VALUE,VALUE, as in local_steps=1,5,20, not {text!r}.")
        if name not in hints:
            guess = meant(name, hints)
            remedy = f"did you mean {guess}?" if guess else f"choose one of {', '.join(hints)}."
            raise InputError(f"--over {refused} {name!r}; {remedy}")
        if name in chosen:
            raise InputError(f"--over names {name} twice; give all of its values together, as in {name}=1,2.")
        # A pace and a schedule have options of their own after commas, as in qsr,alpha=0.02,base=4.
        parts = re.split(r",(?![^,]*=)" if name in _WITH_OPTIONS else ",", values)
        chosen[name] = [parse(name, hints[name], value.strip()) for value in parts]
    return chosen


_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(s|m|min|h)?")
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, None: 1}


def seconds(name: str, text: str, other: str = "") -> float:
    """A time in seconds; ``other`` is what else the option accepts.

    >>> seconds("budget", "2m"), seconds("budget", "90")
    (120.0, 90.0)
    """
    from fedgauge.base.errors import InputError

    match = _TIME.fullmatch(text.strip())
    if not match:
        examples = f"60s, 5m, 1h {other}" if other else "60s, 5m or 1h"
        raise InputError(f"--{name} must be a time{' or passes' if other else ''}, as in {examples}, not {text!r}.")
    return float(match[1]) * _UNITS[match[2]]
