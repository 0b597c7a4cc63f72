"""A directory that somebody else prepared: nothing outside it is changed, and nothing waits for ever."""

from __future__ import annotations

import os
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import snapshot

from fedgauge import fedavg, random_quadratics, simulate
from fedgauge.base.files import open_file, read_file, regular, write_atomically, write_json
from fedgauge.cli import main
from fedgauge_flower.fleet import write_event
from fedgauge_flower.noise import Noise
from fedgauge_planning.jobs import _files
from fedgauge_wang2024.cells import CellJob, run_cells

FOREIGN = b"somebody else's\n"


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Fail instead of waiting for ever."""

    def late(*_: object) -> None:
        pytest.fail(f"still waiting after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def link(path: Path, foreign: Path) -> None:
    path.symlink_to(foreign)


def hard_link(path: Path, foreign: Path) -> None:
    path.hardlink_to(foreign)


def pipe(path: Path, foreign: Path) -> None:
    os.mkfifo(path)


def listen(path: Path, foreign: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


TRAPS: dict[str, Callable[[Path, Path], None]] = {"link": link, "hard link": hard_link, "pipe": pipe, "socket": listen}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "foreign").write_bytes(FOREIGN)
    return tmp_path


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("mode", ["rb", "ab", "r+b", "wb"])
def test_only_regular_files_are_opened(trap: str, mode: str, place: Path) -> None:
    TRAPS[trap](place / "file", place / "foreign")
    if (trap, mode) == ("hard link", "rb"):  # reading changes neither
        assert read_file(place / "file") == FOREIGN
        return
    words = {"link": "is a symbolic link", "hard link": "has a second name"}.get(trap, "is not a regular file")
    with within(5), pytest.raises(OSError, match=words):
        open_file(place / "file", mode)
    assert (place / "foreign").read_bytes() == FOREIGN


def test_a_directory_is_no_file_and_a_file_is(place: Path) -> None:
    with pytest.raises(IsADirectoryError):
        open_file(place)
    assert regular(place / "foreign") == place / "foreign"
    (place / "through").symlink_to(place)
    assert read_file(place / "through" / "foreign") == FOREIGN, "the directory is what the user named"


def test_what_lies_under_the_temporary_name_is_neither_written_to_nor_left(place: Path) -> None:
    (place / f".new.json.{os.getpid()}.part").symlink_to(place / "foreign")
    write_json(place / "new.json", {"a": 1})
    assert sorted(path.name for path in place.iterdir()) == ["foreign", "new.json"]
    assert (place / "foreign").read_bytes() == FOREIGN
    assert not (place / "new.json").is_symlink()


def test_the_directory_reaches_the_disk_after_the_renamed_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    replace, fsync = os.replace, os.fsync

    def renamed(source: Any, target: Any) -> None:
        events.append("rename")
        replace(source, target)

    def synced(file: int) -> None:
        events.append("directory" if stat.S_ISDIR(os.fstat(file).st_mode) else "file")
        fsync(file)

    monkeypatch.setattr(os, "replace", renamed)
    monkeypatch.setattr(os, "fsync", synced)
    write_atomically(place / "new", b"new")
    assert events == ["file", "rename", "directory"]


def begin(out: Path, resume: bool = True) -> int:
    line = ["simulate", "fed.json", "--gamma", "0.1", "--rounds", "4", "--checkpoint-every", "2", "--out", str(out)]
    return main([*line, "--resume"] if resume else line)


@pytest.fixture
def run(place: Path) -> Path:
    """A run that was stopped, so that resuming it touches all of its files."""
    random_quadratics(3, 2).write(place / "fed.json")
    assert begin(place / "run", resume=False) == 0
    (place / "run" / "result.json").unlink()
    return place / "run"


@pytest.mark.parametrize("trap", ["link", "pipe"])
@pytest.mark.parametrize("name", [".lock", "rounds.jsonl", "timing.jsonl", "checkpoints"])
def test_a_run_is_not_resumed_over_what_is_not_its_own(
    trap: str, name: str, run: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / name).rename(run.parent / "moved")
    if name == "checkpoints":
        # Checkpoints of another run, which would be counted, renamed and deleted.
        (place / "other").mkdir()
        for number in (1, 2, 3):
            (place / "other" / f"{number:09d}.safetensors").write_bytes(FOREIGN)
        (place / "other" / ".x.part").write_bytes(FOREIGN)
    TRAPS[trap](run / name, place / ("other" if name == "checkpoints" else "foreign"))
    before = snapshot(place)
    capsys.readouterr()
    with within(20):
        assert begin(run) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"fedgauge: Cannot keep a run in {run}: ")
    assert name in err
    assert err.count("\n") == 1
    after = snapshot(place)
    assert {key: value for key, value in after.items() if not key.startswith("run/")} == {
        key: value for key, value in before.items() if not key.startswith("run/")
    }


READING = ("settings.json", "rounds.jsonl", "timing.jsonl", "environment.json", "experiment.toml")


# A directory whose settings.json is a pipe holds no run.
@pytest.mark.parametrize(
    ("trap", "name"),
    [(trap, name) for trap in ("link", "pipe") for name in READING if (trap, name) != ("pipe", "settings.json")],
)
def test_a_run_is_shown_without_what_is_not_a_file(
    trap: str, name: str, run: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "copy").write_bytes((run / name).read_bytes())
    (run / name).unlink()
    TRAPS[trap](run / name, place / "copy")
    capsys.readouterr()
    with within(20):
        assert main(["runs", "show", str(run), "--json"]) == 0
        assert f"{name} cannot be read" in capsys.readouterr().out
        assert main(["runs", "list", str(place)]) == 0


def test_a_link_to_a_run_is_as_good_as_the_run(run: Path, place: Path) -> None:
    (place / "latest").symlink_to(run)
    assert begin(place / "latest") == 0
    for command in ("show", "compare", "list"):
        assert main(["runs", command, str(place / "latest")]) == 0
    assert main(["runs", "export", str(place / "latest"), "--to", str(place / "model.safetensors")]) == 0
    (place / "results").mkdir()
    (place / "scratch").symlink_to(place / "results")
    assert begin(place / "scratch" / "new", resume=False) == 0


def test_a_library_that_opens_by_itself_is_given_regular_files_only(run: Path, place: Path) -> None:
    newest = sorted((run / "checkpoints").glob("*.safetensors"))[-1]
    copy = newest.rename(place / newest.name)
    newest.symlink_to(copy)
    with within(20):
        assert begin(run) == 0
    assert copy.is_file()
    assert newest.with_suffix(".damaged").is_symlink()


OTHERS: dict[str, Callable[[Path], object]] = {
    "job": lambda place: _files(place),
    "noise": lambda place: Noise(place),
    "noise that is added": lambda place: Noise(place).add(0, {"0": 1.0}),
    "events": lambda place: write_event(place / "noise.jsonl", {"what": "lost"}),
}


@pytest.mark.parametrize("what", OTHERS)
def test_everything_else_in_a_directory_of_results_too(what: str, place: Path) -> None:
    (place / "results").mkdir()
    (place / "results" / "noise.jsonl").symlink_to(place / "foreign")
    with pytest.raises(OSError, match=r"noise\.jsonl is a symbolic link"):
        OTHERS[what](place / "results")
    assert (place / "foreign").read_bytes() == FOREIGN


def test_a_cell_behind_a_pipe_is_computed_again(place: Path) -> None:
    from fedgauge_planning.jobs import InProcess

    os.mkfifo(place / "cell.json")
    with within(10):
        found = run_cells(pow, {"cell": CellJob({}, (2, 3))}, place, InProcess(), lambda *_: None)
    assert found == {"cell": 8}


def test_a_finished_run_reads_back_after_all(place: Path) -> None:
    federation = random_quadratics(3, 2)
    how: dict[str, Any] = {"local_steps": 2, "rounds": 3}
    made = simulate(federation, fedavg(0.1), keep=place / "kept", **how)
    assert made == simulate(federation, fedavg(0.1), **how)
