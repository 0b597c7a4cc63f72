"""Reading a finished run, all of whose files must be what the run wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load

from fedgauge.codec import parse_json
from fedgauge.errors import InputError
from fedgauge.runs.manifest import MANIFEST, altered, read_manifest, verified
from fedgauge.system.files import read_file, read_lines
from fedgauge.values import Round, Trace


def seconds_of(data: Mapping[str, Any]) -> float:
    """The wall time in a line of ``timing.jsonl``."""
    return float(data["seconds"])


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """Read one of a run's JSON files, which must be what the run wrote."""
    return parse_object(path, _read(path), remedy)


def parse_object(path: Path, content: bytes, remedy: str) -> dict[str, Any]:
    """The JSON object in one of a run's files."""
    try:
        data = parse_json(content)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise InputError(f"{path} is damaged; {remedy}.")
    return data


def _read(path: Path) -> bytes:
    try:
        return verified(path, read_file(path))
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}; name a directory that holds a finished run.") from None


def read_trace(path: str | Path) -> Trace:
    """Read a finished run, all of whose files must be what the run wrote."""
    path = Path(path)
    remedy = "resume the run to repair it"
    result = read_json(path / "result.json", remedy)
    settings = read_json(path / "settings.json", remedy)
    content = {name: _read(path / name) for name in ("rounds.jsonl", "model.safetensors", "timing.jsonl")}
    for name, what in altered(path, ["state_dict.safetensors"]).items():
        raise InputError(f"{path / name} {what}.")
    known = read_manifest(path)
    if not {"rounds.jsonl", "model.safetensors"} <= known.keys():
        raise InputError(f"{path / MANIFEST} does not list the files of a finished run; {remedy}.")
    rounds, timing = content["rounds.jsonl"], content["timing.jsonl"]
    # Lines that have the right digest need not be decoded before they are used.
    timed = timing.count(b"\n") if "timing.jsonl" in known else 0
    try:
        return Trace(
            settings=settings,
            status=result["status"],
            stopped_at=result["stopped_at"],
            rounds=read_lines(rounds, Round.from_json, str(path / "rounds.jsonl"), rounds.count(b"\n")),
            model=load(content["model.safetensors"])["model"],
            seconds=read_lines(timing, seconds_of, str(path / "timing.jsonl"), timed),
        )
    except (KeyError, SafetensorError):
        raise InputError(f"{path / 'result.json'} is damaged; {remedy}.") from None
