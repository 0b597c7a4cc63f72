"""A log knows its own lines, whenever it is interrupted."""

from __future__ import annotations

import hashlib
import signal
from pathlib import Path
from typing import IO

import pytest

from fedgauge.base.errors import MachineError
from fedgauge.simulation.runs import manifest
from fedgauge.simulation.runs.manifest import Log


@pytest.fixture
def lines(tmp_path: Path) -> Log:
    made = Log(tmp_path / "rounds.jsonl")
    made.append(0, {"round": 0})
    return made


def test_ctrl_c_while_a_line_is_written_is_not_taken_for_another_program(
    lines: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a line and its size it took effect in one of a hundred runs, which then ended with status 1."""
    write = manifest._write

    def interrupted(file: IO[bytes], content: bytes) -> None:
        write(file, content)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(manifest, "_write", interrupted)
    # What runs in the background of a shell ignores Ctrl-C.
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            lines.append(1, {"round": 1})
    finally:
        signal.signal(signal.SIGINT, usual)
    lines.sync()
    assert lines.content() == b'{"round": 0}\n{"round": 1}\n'
    assert lines.digest == hashlib.sha256(lines.content()).hexdigest()
    assert lines.digest_before(1) == hashlib.sha256(b'{"round": 0}\n').hexdigest()
    lines.close()


def test_a_line_of_another_program_is_refused(lines: Log) -> None:
    with lines.path.open("ab") as other:
        other.write(b"{}\n")
    with pytest.raises(MachineError, match="was changed by another program"):
        lines.sync()
    lines.close()
