"""The data sets on this machine, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from fedgauge.data.catalogue import Status
from fedgauge.report.terminal import console


def show_data(found: Sequence[Status], place: Path) -> None:
    """Print which data sets were found, and where, and how to get those that are missing."""
    states = {"ready": "ready", "other": "not as published", "incomplete": "incomplete", "missing": "missing"}
    rows = [(s.name, states[s.state], _shortly(s.place, place), s.title) for s in found]
    console.table(f"Data sets in {place}", ("name", "state", "where", "what"), rows)
    for status in found:
        wrong = [file for file in status.files if file.state == "differs"]
        for file in wrong:
            console.out.print(
                escape(f"  {status.name}: {file.path} has MD5 {file.md5_found}, but the published file has {file.md5}"),
                soft_wrap=True,
            )
        if status.remedy:
            what = "to get the published files, " if status.state == "other" else ""
            console.out.print(escape(f"  {status.name}: {what}{status.remedy}"), soft_wrap=True)


def _shortly(path: str | None, place: Path) -> str:
    """A path relative to the data directory, if it lies in there."""
    if path is None:
        return "–"
    return str(Path(path).relative_to(place)) if Path(path).is_relative_to(place) else path
