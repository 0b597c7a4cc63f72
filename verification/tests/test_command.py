"""The command: what it prints, writes and refuses."""

from __future__ import annotations

import json
import shlex
import signal
import time
from pathlib import Path

import pytest
from tests.cli.command import start

from fedgauge.base.terminal import command_line
from fedgauge.cli import main

SMALL = ["--samples", "3", "--searches", "1", "--jobs", "1"]


def test_it_prints_a_table_and_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "broken"
    assert (
        main(["falsify", "strongly-convex", "--theorem-version", "printed", *SMALL, "--keep", "1", "--out", str(out)])
        == 0
    )
    said = capsys.readouterr().out
    assert "False: strongly-convex (printed)." in said
    result = json.loads((out / "result.json").read_text())
    assert [row["form"] for row in result["rows"]] == ["stated", "weighted"]
    (case,) = result["cases"]
    assert case == json.loads((out / "strongly-convex-printed-1" / "case.json").read_text())
    for command in case["commands"]:
        assert command in said
    words = shlex.split(case["commands"][0])
    assert main(words[1:]) == 0
    assert json.loads(capsys.readouterr().out)["loss"][-1] == pytest.approx(case["exact"])


def test_json_is_all_that_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["falsify", "minibatch", "--theorem-version", "corrected", *SMALL, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["command"] == command_line()
    assert result["complete"]
    assert {row["violations"] for row in result["rows"]} == {0}


def test_a_true_theorem_gets_its_all_clear(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["falsify", "fedadam", "--theorem-version", "corrected", *SMALL]) == 0
    assert "No violation was found." in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [["nonconvx"], ["--theorem-version", "final"], ["--samples", "0"], ["--seed", "-1"], ["--samples", "many"]],
)
def test_mistakes_get_one_sentence_and_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["falsify", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("fedgauge: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_an_earlier_result_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "result.json").write_text("mine")
    assert main(["falsify", "minibatch", *SMALL, "--out", str(tmp_path)]) == 2
    assert "earlier search" in capsys.readouterr().err
    assert (tmp_path / "result.json").read_text() == "mine"


def test_ctrl_c_ends_the_processes_and_keeps_what_was_found(tmp_path: Path) -> None:
    words = ("falsify", "minibatch", "--samples", "200000", "--searches", "0", "--jobs", "2", "--json")
    with start(*words, cwd=tmp_path) as process:
        time.sleep(6)  # both processes are at work, and the whole search would take minutes
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    result = json.loads(out)
    assert not result["complete"]
    assert "Traceback" not in err
    assert result["rows"]


def test_a_search_of_one_version_is_taken_into_an_earlier_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = tmp_path / "whole"
    assert main(["falsify", "strongly-convex", *SMALL, "--keep", "0", "--out", str(whole)]) == 0
    path = whole / "result.json"
    before = json.loads(path.read_text())
    spoiled = {**before, "rows": [{**row, "checks": 0} for row in before["rows"]]}
    path.write_text(json.dumps(spoiled))
    line = ["falsify", "strongly-convex", "--theorem-version", "printed", *SMALL, "--into", str(path)]
    assert main(line) == 0
    after = json.loads(path.read_text())
    for row, old in zip(after["rows"], before["rows"], strict=True):
        assert row == (old if row["version"] == "printed" else {**old, "checks": 0})
    assert after["parts"] == [command_line()]
    capsys.readouterr()
    assert main([*line, "--seed", "1"]) == 2
    assert "would not be about the same federations" in capsys.readouterr().err
    assert main([*line[:-1], str(tmp_path / "none.json")]) == 2
    assert json.loads(path.read_text()) == after
