"""Control characters in names and in the contents of files do not reach the terminal."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

import fedgauge
from fedgauge import fedavg, random_quadratics, simulate
from fedgauge.cli import main
from fedgauge.show import console

EVIL = "\x1b[2J\x1b]0;mine\x07\x9b31m\u202e\x7f"
_RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")


def silent(text: str) -> str:
    """What was printed, which must hold nothing that a terminal obeys."""
    assert not _RAW.search(text), repr(text)
    return text


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose name, settings, experiment and records were written by somebody with bad intentions."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / f"run{EVIL}"
    simulate(random_quadratics(3, 2), fedavg(0.1), local_steps=2, rounds=2, keep=place)
    for name in ("manifest.json", "result.json"):
        (place / name).unlink()
    settings = json.loads((place / "settings.json").read_text())
    settings["algorithm"]["name"] = f"fedavg{EVIL}"
    (place / "settings.json").write_text(json.dumps(settings))
    (place / "experiment.toml").write_text(f"[data]\nname = {json.dumps('digits' + EVIL)}\n".replace("\x7f", ""))
    event = {"round": 0, "worker": 1, "what": "lost", "why": EVIL}
    (place / "events.jsonl").write_text(json.dumps(event) + "\n")
    return place


COMMANDS = ("runs show {}", "runs list .", "runs compare {} {}", "runs export {} --to x.json", "report {}")


@pytest.mark.parametrize("line", COMMANDS)
def test_what_a_run_holds_is_shown_escaped(line: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([word if word != "{}" else str(run) for word in line.split()])
    out, err = capsys.readouterr()
    silent(out)
    silent(err)
    assert "\\x1b[2J" in (out + err).replace("\n", "") or "export" in line


@pytest.mark.parametrize(
    "line", ["theory constants {}", "simulate {} --gamma 0.1", "runs show {}", "{}", "simulate fed.json {}"]
)
def test_errors_too(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word if word != "{}" else f"no{EVIL}\udce9" for word in line.split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "\\x1b" in silent(err)


def test_colours_are_left_to_the_console(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = console.PrintableConsole(force_terminal=True, color_system="standard", width=60, highlight=False)
    with wide.capture() as seen:
        wide.print(f"[red]stop[/red] {EVIL}")
    assert seen.get() == "\x1b[31mstop\x1b[0m \\x1b[2J\\x1b]0;mine\\x9b31m\\u202e\\x7f\n"


def test_commands_print_through_one_function() -> None:
    """``print`` would pass control characters on; ``say`` and the consoles escape them."""
    root = Path(fedgauge.__file__).parent
    for path in [*(root / "cli").rglob("*.py"), *(root / "show").rglob("*.py")]:
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        assert "print" not in {call.id for call in calls if isinstance(call, ast.Name)}, f"{path.name} prints"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_lines_on_a_terminal_end_between_words(stream: str) -> None:
    words = "the quick brown fox-hounds jump over " * 6 + "a/path-that-is/longer-than-the/terminal-of-forty/columns"
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    told = f"from fedgauge.base.terminal import say; say({words!r}, error={stream == 'stderr'})"
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    subprocess.run(
        [sys.executable, "-c", told], stdin=child, stdout=child, stderr=child, env=environment, check=True, timeout=60
    )
    shown = os.read(parent, 65536).decode()
    os.close(parent)
    os.close(child)
    lines = shown.split("\r\n")
    assert " ".join(lines).split() == words.split()
    assert max(len(line) for line in lines[:-2]) <= 40
    # Elsewhere a program reads it, for which it is one line.
    piped = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True, timeout=60)
    assert getattr(piped, stream) == f"{words}\n"
