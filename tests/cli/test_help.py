"""The help of every command: one screen, an example, everything on request, and one meaning for every option."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from tests.cli.command import Capture

from fedgauge.cli import app, main


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and every group, by the words that name it."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


ROOT = typer.main.get_command(app)
ALL = dict(commands(ROOT))
LEAVES = {path: command for path, command in ALL.items() if not hasattr(command, "commands")}


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")


def shown(capsys: Capture, *line: str) -> str:
    assert main([*line]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return str(out)


def options_in(text: str) -> set[str]:
    """The options that help has a row for."""
    return set(re.findall(r"^│ (?:\*  )?\s*(--[a-z][a-z0-9-]*)", text, re.MULTILINE))


def test_at_most_twelve_names_at_the_top() -> None:
    assert len(getattr(ROOT, "commands", {})) <= 12


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_is_one_screen_and_has_an_example(path: tuple[str, ...], capsys: Capture) -> None:
    text = shown(capsys, *path, "--help")
    lines = text.rstrip("\n").splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert f"fedgauge {' '.join(path)}".strip() in re.split("Example:|Start with:", text, maxsplit=1)[1]
    assert shown(capsys, *path, "-h") == text


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_all_lists_every_option(path: tuple[str, ...], capsys: Capture) -> None:
    flags = {each.opts[-1] for each in ALL[path].params if each.param_type_name == "option"}
    assert options_in(shown(capsys, *path, "--help-all")) == {*flags, "--help"}
    short = options_in(shown(capsys, *path, "--help"))
    assert short <= {*flags, "--help"}
    # Whoever sees fewer is told where the others are.
    assert ("--help-all" in short) == (short == {*flags, "--help"})
    assert f"{' '.join(path)} --help-all" in shown(capsys, *path, "--help") or "--help-all" in short


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_prints_json(path: tuple[str, ...]) -> None:
    assert "--json" in {flag for each in LEAVES[path].params for flag in each.opts}


@pytest.mark.parametrize("name", ["simulate", "gauge", "measure", "plan"])
def test_the_one_option_that_is_needed_is_on_the_first_screen(name: str, capsys: Capture) -> None:
    assert "--gamma" in options_in(shown(capsys, name, "--help"))


def test_help_leaves_the_command_as_it_was(capsys: Capture) -> None:
    whole = shown(capsys, "simulate", "--help-all")
    short = shown(capsys, "simulate", "--help")
    assert shown(capsys, "simulate", "--help-all") == whole
    assert shown(capsys, "simulate", "--help") == short


@pytest.mark.parametrize(
    ("line", "places"),
    [
        ("bound nonconvex", ["theory bound"]),
        ("sweep digits --gamma 0.1", ["runs sweep"]),
        ("partition digits", ["data partition"]),
        ("evaluate runs/first", ["runs evaluate"]),
        ("list", ["runs list", "data list"]),
    ],
)
def test_a_command_that_is_elsewhere_is_named_in_one_sentence(line: str, places: list[str], capsys: Capture) -> None:
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    where = " or ".join(f"'fedgauge {place}'" for place in places)
    assert (out, err) == ("", f"fedgauge: There is no command 'fedgauge {line.split()[0]}'; use {where}.\n")


# -- one meaning for every option -----------------------------------------------------------------------------------

# What the help of an option says wherever it occurs, if several commands describe it in words of their own. An option
# with another meaning needs another name.
MEANINGS = {
    "--address": "cluster",
    "--at": "at this model",
    "--conditioning": "Condition number",
    "--dim": "Dimension",
    "--force": "Overwrite|Replace",
    "--gamma": "Local learning rate",
    "--goal": "loss=",
    "--jobs": "Number of (processes|(pilot )?runs at the same time)",
    "--kind": "kind of heterogeneity",
    "--local-steps": "Local steps I",
    "--model": "model|vgg11",
    "--out": "Directory|[Ww]rite|Save",
    "--over": "several|values",
    "--percent": "[Pp]ercentage",
    "--plot": "picture",
    "--rounds": "Number of rounds R",
    "--seed": "[Ss]eed",
    "--seeds": "umber of seeds",
    "--source": "digits",
    "--spend": "[Tt]ime",
    "--steps": "Steps of",
    "--tensorboard": "TensorBoard",
    "--theorem": "theorem",
    "--theorem-version": "printed, corrected",
    "--tolerance": "Relative",
    "--values": "constants|numbers",
    "--weights": "weight per worker",
    "--workers": "Number of workers N",
}


def uses() -> dict[str, list[tuple[str, Any]]]:
    found = defaultdict(list)
    for path, command in LEAVES.items():
        for each in command.params:
            if each.param_type_name == "option":
                found[each.opts[-1]].append((" ".join(path), each))
    return found


@pytest.mark.parametrize("flag", sorted(uses()))
def test_an_option_means_the_same_wherever_it_occurs(flag: str) -> None:
    where = uses()[flag]
    texts = {each.help for _, each in where}
    if len(texts) > 1:
        assert flag in MEANINGS, f"{flag} is described in {len(texts)} ways"
        assert all(re.search(MEANINGS[flag], text) for text in texts), texts
    # A path is a path, and a number a number, everywhere; text stands for what a key of an experiment parses itself.
    kinds = {re.sub("Int|Float", "Number", type(each.type).__name__) for _, each in where} - {"StringParamType"}
    assert len(kinds) <= 1, (flag, kinds)


def test_words_with_several_meanings_are_gone() -> None:
    gone = {"--version", "--start", "--labels", "--target", "--target-loss", "--target-accuracy", "--target-grad2"}
    assert not gone & set(uses())
    assert {flag: [path for path, _ in uses()[flag]] for flag in ("--budget", "--measure", "--candidates")} == {
        "--budget": ["plan"],
        "--measure": ["report"],
        "--candidates": ["gauge"],
    }
