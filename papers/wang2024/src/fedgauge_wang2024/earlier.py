"""What an earlier result in the same directory has, so that a study of many hours is added to and not begun again.

The runs and cells behind it may be gone, as where only results were passed on: their numbers are in ``result.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedgauge.base.codec import parse_json
from fedgauge.base.errors import InputError
from fedgauge.base.files import read_file
from fedgauge.values import Result

_PLACE = {"data": ("dir",), "run": ("engine", "address", "processes")}
"""Keys of an experiment that say where it is computed, and change no number."""


def read_earlier(out: Path | None, kind: type[Result]) -> dict[str, Any] | None:
    """The result in a directory; None where there is none of this kind that can be read."""
    if out is None:
        return None
    try:
        return kind.from_json(parse_json(read_file(out / "result.json"))).to_json()
    except (OSError, ValueError, KeyError, TypeError, InputError):
        return None


def without_place(experiment: Mapping[str, Any], *but: tuple[str, str]) -> dict[str, Any]:
    """An experiment as JSON without where it is computed, and without some other keys, each with its section.

    >>> without_place({"data": {"name": "mnist", "dir": "here", "percent": 50.0}, "run": {}}, ("data", "percent"))
    {'data': {'name': 'mnist'}, 'run': {}}
    """
    return {
        section: {
            key: value
            for key, value in keys.items()
            if key not in _PLACE.get(section, ()) and (section, key) not in but
        }
        for section, keys in experiment.items()
    }


def known_runs(earlier: Mapping[str, Any] | None, study: str, experiment: Mapping[str, Any]) -> dict[str, Any]:
    """The runs of a study in an earlier figure, by name, if they are of the same experiment."""
    held = (earlier or {}).get("studies", {}).get(study)
    percent = ("data", "percent")  # of the first panel only; the names of runs have their own
    if held is None or without_place(held["experiment"], percent) != without_place(experiment, percent):
        return {}
    return {run["run"]: run for each in held["combinations"] for run in each["runs"]}


def known_cell(
    earlier: Mapping[str, Any] | None, percent: int, seed: int, experiment: Mapping[str, Any], **settings: Any
) -> Any:
    """A cell of an earlier Table 1, if it is of the same experiment and settings; None otherwise.

    Args:
        earlier: the table.
        percent: X.
        seed: of the cell.
        experiment: of the cell, as JSON.
        settings: of the table, that the cell depends on too.
    """
    if earlier is None or any(earlier["settings"].get(name) != value for name, value in settings.items()):
        return None
    for cell in earlier["cells"]:
        if (cell["percent"], cell["seed"]) == (percent, seed):
            same = without_place(cell["measured"]["settings"]["experiment"]) == without_place(experiment)
            return cell["measured"] if same else None
    return None
