"""What other distributions of ours bring: without them, one sentence says how to get it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

from fedgauge.base.user_code import COMMANDS, ELSEWHERE, READINGS, RESULTS

BROUGHT = {
    **{each.name.replace(".", " "): each.dist.name for each in entry_points(group=COMMANDS) if each.dist},
    **{kind.kind: each.dist.name for each in entry_points(group=RESULTS) if each.dist for kind in each.load()},
    **{f"reading {each.name}": each.dist.name for each in entry_points(group=READINGS) if each.dist},
}
"""The commands, the kinds of results and the readings of all installed distributions."""

# As where nothing else is installed: each line is a command, and what becomes of it is printed.
ALONE = """
import contextlib, importlib.metadata, io, json, sys
importlib.metadata.entry_points = lambda group: ()
from fedgauge.cli import main
found = []
for line in sys.argv[1:]:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        found.append([main(line.split()), said.getvalue()])
print(json.dumps(found))
"""


def alone(place: Path, *lines: str) -> list[tuple[int, str]]:
    """The exit status and the output of commands where the library alone is installed."""
    run = subprocess.run([sys.executable, "-c", ALONE, *lines], cwd=place, capture_output=True, text=True, check=True)
    return [(status, " ".join(said.split())) for status, said in json.loads(run.stdout)]


def test_the_list_has_all_that_is_brought() -> None:
    listed = {name: each for each, names in ELSEWHERE.items() for name in names}
    assert BROUGHT.items() <= listed.items()


def test_without_them_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    commands = [each.name.replace(".", " ") for each in entry_points(group=COMMANDS)]
    assert {"plan", "runs sweep", "paper", "theory explore"} <= {*commands}
    for name, (status, said) in zip(commands, alone(tmp_path, *commands), strict=True):
        assert status == 2
        assert said == (
            f"fedgauge: The command 'fedgauge {name}' comes with another package; install it: pip install"
            f" {BROUGHT[name]}."
        )


def test_the_library_alone_certifies_quadratics_and_says_what_other_readings_need(tmp_path: Path) -> None:
    first, second, third, fourth, fifth = alone(
        tmp_path,
        "theory generate fed.json --workers 3 --dim 2",
        "measure fed.json --gamma 0.1 --readings certified",
        "measure digits --model softmax --gamma 0.1 --most 1 --readings certified",
        "measure digits --model softmax --gamma 0.1 --most 1 --readings divergence --json",
        "measure fed.json --gamma 0.1 --readings lenses",
    )
    assert (first[0], second[0], third[0], fourth[0], fifth[0]) == (0, 0, 2, 0, 2)
    assert "Exact to rounding" in second[1]
    needed = "are proved by another package; install it: pip install fedgauge-verification."
    assert f"fedgauge: The constants of a model {needed}" in third[1]
    assert fifth[1] == (
        "fedgauge: The reading 'lenses' comes with another package; install it: pip install fedgauge-wang2024."
    )


def test_the_library_alone_reports_a_run_and_says_what_a_plan_needs(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"kind": "plan", "version": 1}')
    first, second, third = alone(
        tmp_path,
        "theory generate fed.json --workers 3 --dim 2",
        "simulate fed.json --gamma 0.1 --rounds 3 --out run",
        "report plan.json",
    )
    assert (first[0], second[0], third[0]) == (0, 0, 2), (first, second, third)
    assert "plan.json is read by another package; install it: pip install fedgauge-planning." in third[1]
    ((status, said),) = alone(tmp_path, "report run --out page.html")
    assert status == 0, said
    assert "Written: page.html" in said
