"""Where the results of the paper's tables and figures lie: in one directory, a directory each, and one for each effort.

wang2024/fig1, wang2024/fig8-workstation, wang2024/table1-cnn-laptop, …
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedgauge.base.codec import parse_json
from fedgauge.base.files import read_file
from fedgauge_wang2024.studies import SCALES, Scale

RESULTS = Path("wang2024")
"""The directory of results, where no other is named."""


def places(name: str) -> tuple[str, ...]:
    """The directories in which a result may lie: one of its own name, and one for each scale.

    >>> places("fig2")[:2]
    ('fig2', 'fig2-smoke')
    """
    return name, *(f"{name}-{scale}" for scale in SCALES)


def scale_of(result: Mapping[str, Any]) -> str:
    """The scale of a result; empty if it has none.

    >>> scale_of({"settings": {"scale": "laptop"}}), scale_of({"panels": []})
    ('laptop', '')
    """
    settings = result.get("settings")
    return str(result.get("scale", settings.get("scale", "") if isinstance(settings, dict) else ""))


def spelling(result: str) -> str:
    """How the command spells the name of a result, without the model.

    >>> spelling("fig8"), spelling("table1-cnn"), spelling("sampling")
    ('figure 8', 'table 1', 'sampling')
    """
    return re.sub(r"^(fig|table)(\d).*", lambda name: f"{'figure' if name[1] == 'fig' else 'table'} {name[2]}", result)


def kept(results: Path, name: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The places of a result that hold one that can be read, and what they hold."""
    for place in places(name):
        try:
            found = parse_json(read_file(results / place / "result.json"))
        except (OSError, ValueError):
            continue
        if isinstance(found, dict):
            yield results / place, found


def place_of(results: Path, name: str, effort: Scale | None) -> Path:
    """The directory of a result: the one that has it at this effort, or else a new one.

    Args:
        results: the directory of all results.
        name: of the table or figure.
        effort: ``None`` for what has one size.
    """
    if effort is None:
        return results / name
    there = (place for place, result in kept(results, name) if scale_of(result) == effort)
    return next(there, results / f"{name}-{effort}")
