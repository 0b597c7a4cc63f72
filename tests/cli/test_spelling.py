"""Messages of the library, as the command line spells them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import Capture, run

from fedgauge.cli import main
from fedgauge.cli.spelling import as_options

FLAGS = ("--gamma", "--divide-by", "--labels", "--local-steps", "--percent", "--resume", "--watch", "--rounds")
OPTIONS = {flag[2:].replace("-", "_"): flag for flag in FLAGS}


@pytest.mark.parametrize(
    ("sentence", "spelt"),
    [
        ("set resume=True.", "set --resume."),
        ("set watch=False.", "set --no-watch."),
        ("percent = 50 of it; use divide_by='coarse'.", "--percent 50 of it; use --divide-by coarse."),
        ("give local_steps, as in local_steps=1,5.", "give --local-steps, as in --local-steps 1,5."),
        ("run.local_steps must be a number.", "--local-steps must be a number."),
        # Words that are no arguments stay: a plain word, another name, a path, what is quoted, and a file's own keys.
        ("10 labels and 5 rounds.", "10 labels and 5 rounds."),
        ("local_steps_2 and most_local_steps=3.", "local_steps_2 and most_local_steps=3."),
        (
            "there is no local_steps.json or runs/gamma=3,percent=5.",
            "there is no local_steps.json or runs/gamma=3,percent=5.",
        ),
        ("no key 'local_steps'.", "no key 'local_steps'."),
        ("a.toml: [run] has local_steps=0.", "a.toml: [run] has local_steps=0."),
        ("--over must be as in local_steps=1,2.", "--over must be as in local_steps=1,2."),
        # The first word is the argument only where it was typed.
        ("labels must be numbers.", "labels must be numbers."),
        ("rounds must be 1.", "--rounds must be 1."),
        ("a.toml: rounds must be 1.", "a.toml: --rounds must be 1."),
    ],
)
def test_arguments_become_options_and_nothing_else_does(sentence: str, spelt: str) -> None:
    assert as_options(sentence, OPTIONS, ["simulate", "a.toml", "--rounds", "0"]) == spelt


def test_a_file_keeps_its_spelling_and_what_was_typed_has_that_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.toml").write_text("[algorithm]\ngamma = 0.1\n[run]\nrecord_every = 0\n")
    Path("sound.toml").write_text("[algorithm]\ngamma = 0.1\n")
    assert main(["simulate", "wrong.toml"]) == 2
    assert " record_every must be" in capsys.readouterr().err
    assert main(["simulate", "sound.toml", "--record-every", "0"]) == 2
    assert " --record-every must be" in capsys.readouterr().err


def test_a_notice_is_one_sentence_on_stderr_and_the_command_goes_on(tmp_path: Path) -> None:
    answer = run("simulate", "digits", "--workers", "4", "--gamma", "0.1", "--rounds", "1", "--json", cwd=tmp_path)
    assert answer.returncode == 0
    assert answer.stderr.startswith("fedgauge: Some labels")
    assert "(--fill)" in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert answer.stdout.startswith("{")
