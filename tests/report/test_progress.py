"""Progress: live bars that say what their times are, and plain lines where there is no terminal."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from fedgauge.base import bars
from fedgauge.base.bars import Clock, Count, PlainLines
from fedgauge.cli import main
from fedgauge.show import console
from fedgauge.show.views.runs import title_of


def test_plain_lines_come_first_after_a_while_and_then_now_and_then() -> None:
    written = io.StringIO()
    stream = Console(file=written)
    with Progress(console=stream, disable=True) as bar, PlainLines(bar, stream, first=0.05, every=0.1):
        task = bar.add_task(escape("table 1, [mlp]"), total=40)
        bar.update(task, completed=3)
        time.sleep(0.5)
    lines = written.getvalue().splitlines()
    assert 2 <= len(lines) <= 6
    assert lines[0].startswith("fedgauge: table 1, [mlp], 3 of 40 (0:00:00 so far)")


def test_a_quick_command_writes_no_line() -> None:
    written = io.StringIO()
    stream = Console(file=written)
    with Progress(console=stream, disable=True) as bar, PlainLines(bar, stream):
        bar.add_task("quick", total=None)
    assert written.getvalue() == ""


def test_a_long_command_whose_errors_are_piped_is_not_silent(tmp_path: Path) -> None:
    code = (
        "import sys; from fedgauge.base import bars; bars.FIRST, bars.EVERY = 0.2, 0.2\n"
        "from fedgauge.cli import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    line = "simulate digits --gamma 0.1 --rounds 60 --local-steps 20 --processes 1 --json"
    ran = subprocess.run([sys.executable, "-c", code, *line.split()], capture_output=True, text=True, check=True)
    lines = ran.stderr.splitlines()
    assert lines
    assert all(each.startswith("fedgauge: ") and each.endswith(" so far)") for each in lines)
    assert any("fedavg" in each and " of 60" in each and "loss" in each for each in lines)


def test_the_time_that_has_passed_is_called_so() -> None:
    with Progress(disable=True) as bar:
        known, unknown = bar.add_task("a", total=10), bar.add_task("b", total=None)
        bar.update(known, completed=5)
        (first, second) = bar.tasks
        assert (str(Count().render(first)), str(Count().render(second))) == ("5/10", "")
        assert str(Clock().render(second)) == "0:00:00 elapsed"
        assert unknown != known
        time.sleep(0.01)
        bar.update(known, completed=6)
        assert "elapsed" in str(Clock().render(bar.tasks[0]))


def test_a_bar_never_goes_beyond_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int, int | None]] = []

    @contextmanager
    def steps() -> Iterator[console.Steps]:
        yield lambda what, done, total: seen.append((what, done, total))

    monkeypatch.setattr(console, "steps", steps)
    monkeypatch.chdir(tmp_path)
    assert main(["theory", "generate", "fed.json", "--workers", "3", "--dim", "2"]) == 0
    line = "measure fed.json --gamma 0.1 --local-steps 2 --readings trajectory --trajectory-rounds 4 --seeds 2"
    assert main(line.split()) == 0
    walked = [(done, total) for what, done, total in seen if what == "trajectory"]
    assert max(done for done, _ in walked) == 8
    assert all(total == 8 and done <= total for done, total in walked)


@pytest.mark.parametrize(
    ("steps", "words"), [(1, "1 local step,"), (2, "2 local steps,"), ([1, 3], "1 to 3 local steps")]
)
def test_one_local_step_is_one(steps: int | list[int], words: str) -> None:
    settings = {"algorithm": {"name": "fedavg", "gamma": 0.1}, "local_steps": steps, "seed": 0}
    assert words in title_of(settings)


def test_waiting_times_are_short_enough_for_a_person() -> None:
    assert bars.FIRST <= 10
    assert bars.EVERY <= 30
