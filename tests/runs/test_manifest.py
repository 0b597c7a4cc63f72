"""Nothing that a run says about itself can be changed unnoticed."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Capture

from fedgauge import Keep, Recording, Round, fedavg, random_quadratics, read_run, read_trace, simulate
from fedgauge.base.errors import InputError, MachineError
from fedgauge.cli import main
from fedgauge.simulation.runs.manifest import MANIFEST, add_to_manifest, altered, verified

LINE = "simulate digits --gamma 0.1 --percent 50 --local-steps 2 --rounds 4 --seed SEED --checkpoint-every 2"
AGAIN = (
    "rounds.jsonl",
    "model.safetensors",
    "state_dict.safetensors",
    "result.json",
    "settings.json",
    "federation.json",
)
WRITTEN = (*AGAIN, "experiment.toml", "start.safetensors", "timing.jsonl", "environment.json")


def line(seed: int = 0, *more: str) -> list[str]:
    return [*LINE.replace("SEED", str(seed)).split(), *more]


def said(capture: Capture) -> str:
    out, err = capture.readouterr()
    return " ".join(f"{out} {err}".split())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a network that starts from the model of another one, and the other one."""
    place = tmp_path_factory.mktemp("made")
    assert main(line(1, "--out", str(place / "other"))) == 0
    first = str(place / "other" / "model.safetensors")
    assert main(line(0, "--at", first, "--out", str(place / "run"))) == 0
    return place


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "run", tmp_path / "run"))


def resume(run: Path, made: Path) -> int:
    return main(line(0, "--at", str(made / "other" / "model.safetensors"), "--out", str(run), "--resume"))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped": flip,
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "deleted": lambda path: path.unlink(),
}


def test_the_manifest_lists_every_file(run: Path) -> None:
    listed = json.loads((run / MANIFEST).read_text())["sha256"]
    files = {path.name for path in run.iterdir() if path.is_file() and not path.name.startswith(".")}
    assert set(listed) == files - {MANIFEST} == set(WRITTEN)
    assert altered(run) == {}
    assert read_run(run).note == ""


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", WRITTEN)
def test_a_changed_file_is_named(name: str, damage: str, run: Path, capfd: Capture) -> None:
    DAMAGES[damage](run / name)
    assert list(altered(run)) == [name]
    if (name, damage) == ("settings.json", "deleted"):
        return  # the directory holds no run without it
    assert f"{name} is" in read_run(run).note
    capfd.readouterr()
    main(["runs", "show", str(run)])
    assert f"{name} is" in said(capfd)


@pytest.mark.parametrize("name", AGAIN)
def test_resuming_writes_a_changed_file_again(name: str, run: Path, made: Path) -> None:
    flip(run / name)
    assert resume(run, made) == 0
    assert {name: (run / name).read_bytes() for name in AGAIN} == {
        name: (made / "run" / name).read_bytes() for name in AGAIN
    }
    assert altered(run) == {}


@pytest.mark.parametrize("name", ["experiment.toml", "start.safetensors"])
def test_resuming_writes_the_description_again(name: str, run: Path, made: Path) -> None:
    flip(run / name)
    assert resume(run, made) == 0
    assert (run / name).read_bytes() == (made / "run" / name).read_bytes()
    assert altered(run) == {}


def test_what_cannot_be_written_again_stays_named(run: Path, made: Path) -> None:
    flip(run / "environment.json")
    assert resume(run, made) == 0
    assert "environment.json is not what the run wrote" in read_run(run).note


def test_times_are_not_made_up(run: Path, made: Path) -> None:
    before = (run / "rounds.jsonl").read_bytes()
    (run / "timing.jsonl").write_text('{"round": 0, "seconds": 7.0}\n' * 5)
    assert resume(run, made) == 0
    assert (run / "rounds.jsonl").read_bytes() == before
    assert "7.0" not in (run / "timing.jsonl").read_text()


@pytest.mark.parametrize("name", ["settings.json", "experiment.toml"])
def test_edited_rates_are_not_passed_off_as_the_runs(name: str, run: Path, tmp_path: Path, capfd: Capture) -> None:
    path = run / name
    edited = path.read_text().replace("0.1", "0.7")
    assert edited != path.read_text()
    path.write_text(edited)
    for command in (["show"], ["compare"]):
        assert main(["runs", *command, str(run)]) == 0
        assert f"{name} is not what the run wrote" in said(capfd)
    assert main(["runs", "export", str(run), "--to", str(tmp_path / "records.json")]) == 0
    assert f"{name} is not what the run wrote" in said(capfd)
    assert main(["report", str(run), "--out", str(tmp_path / "report.html")]) == 0
    assert f"{name} is not what the run wrote" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("name", ["model.safetensors", "state_dict.safetensors"])
def test_a_changed_model_is_neither_exported_nor_measured(name: str, run: Path, tmp_path: Path, capfd: Capture) -> None:
    flip(run / name)
    commands = {
        "state_dict.safetensors": ["runs", "export", str(run), "--to", str(tmp_path / "model.pt")],
        "model.safetensors": ["measure", str(run), "--readings", "trajectory", "--trajectory-rounds", "1"],
    }
    assert main(commands[name]) == 2
    assert f"{name} is not what the run wrote" in said(capfd)
    assert not (tmp_path / "model.pt").exists()
    assert main(line(0, "--at", str(run / name), "--out", str(tmp_path / "next"))) == 2


def test_a_changed_experiment_is_not_run_in_the_runs_name(run: Path, tmp_path: Path, capfd: Capture) -> None:
    edited = (run / "experiment.toml").read_text().replace("0.1", "0.7")
    (run / "experiment.toml").write_text(edited)
    assert main(["simulate", str(run / "experiment.toml"), "--rounds", "1"]) == 2
    assert "copy the file to another directory" in said(capfd)
    (tmp_path / "mine.toml").write_text(edited)
    assert main(["simulate", str(tmp_path / "mine.toml"), "--rounds", "1"]) == 0


@pytest.mark.parametrize("what", ["rounds", "checkpoints", "both"])
def test_the_records_of_another_seed_are_not_accepted(what: str, made: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        assert main(line(seed, "--out", str(tmp_path / f"{seed}"))) == 0
    run, other = tmp_path / "0", tmp_path / "1"
    expected = {name: (run / name).read_bytes() for name in AGAIN}
    (run / "result.json").unlink()
    if what != "checkpoints":
        shutil.copy(other / "rounds.jsonl", run / "rounds.jsonl")
        shutil.copy(other / "timing.jsonl", run / "timing.jsonl")
    if what != "rounds":
        shutil.rmtree(run / "checkpoints")
        shutil.copytree(other / "checkpoints", run / "checkpoints")
    note = read_run(run).note
    assert ("rounds.jsonl is not what the run wrote" if what != "checkpoints" else "belongs to another run") in note
    assert main(line(0, "--out", str(run), "--resume")) == 0
    assert {name: (run / name).read_bytes() for name in AGAIN} == expected


# -- while the run goes on -----------------------------------------------------------------------------------------


def disturbed(place: Path, disturb: Callable[[], object], name: str = "run") -> Path:
    """A run during whose tenth round something happens to its files."""

    def observer(done: int, record: object) -> None:
        if done == 10:
            disturb()

    recording = Recording(observer=observer)
    federation = random_quadratics(3, 2, sigma2=0.1)
    simulate(federation, fedavg(gamma=0.1), local_steps=2, rounds=20, record=recording, keep=Keep(place / name))
    return place / name


@pytest.mark.parametrize("name", ["rounds.jsonl", "timing.jsonl"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_deleted_during_the_run_is_written_again(
    name: str, replaced: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = (disturbed(tmp_path, lambda: None, "whole") / "rounds.jsonl").read_bytes()

    def disturb() -> None:
        (tmp_path / "run" / name).unlink()
        if replaced:
            (tmp_path / "run" / name).write_text("")

    with caplog.at_level(logging.WARNING):
        run = disturbed(tmp_path, disturb)
    assert f"{name} was deleted or replaced while the run was writing it" in caplog.text
    assert (run / "rounds.jsonl").read_bytes() == expected
    assert len(read_trace(run).rounds) == len(read_trace(run).seconds) == 21


@pytest.mark.parametrize("disturb", [lambda path: os.truncate(path, 10), flip])
def test_a_file_that_is_changed_during_the_run_ends_it(disturb: Callable[[Path], None], tmp_path: Path) -> None:
    whole = disturbed(tmp_path, lambda: None, "whole")
    with pytest.raises(MachineError, match=r"rounds\.jsonl was changed by another program"):
        disturbed(tmp_path, lambda: disturb(tmp_path / "run" / "rounds.jsonl"))
    assert read_run(tmp_path / "run").status == "unfinished"
    federation = random_quadratics(3, 2, sigma2=0.1)
    simulate(federation, fedavg(gamma=0.1), local_steps=2, rounds=20, keep=Keep(tmp_path / "run", resume=True))
    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == (whole / "rounds.jsonl").read_bytes()


# -- the manifest itself -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[" * 100_000, b'{"sha256": {"rounds.jsonl": 3}}'])
def test_a_manifest_that_is_gone_or_damaged(content: bytes | None, run: Path, made: Path) -> None:
    before = {name: (run / name).read_bytes() for name in AGAIN}
    (run / MANIFEST).unlink()
    if content is not None:
        (run / MANIFEST).write_bytes(content)
    assert f"{MANIFEST} is {'missing' if content is None else 'damaged'}" in read_run(run).note
    with pytest.raises(InputError, match=MANIFEST):
        read_trace(run)
    # What it said about the model is lost with it, so the model is computed again.
    flip(run / "state_dict.safetensors")
    assert resume(run, made) == 0
    assert {name: (run / name).read_bytes() for name in AGAIN} == before
    assert altered(run) == {}


def make_older(run: Path) -> None:
    """As versions before the manifest wrote a run."""
    digests = json.loads((run / MANIFEST).read_text())["sha256"]
    result = json.loads((run / "result.json").read_text())
    kept = {name: digests[name] for name in ("rounds.jsonl", "model.safetensors")}
    (run / MANIFEST).unlink()
    (run / "result.json").write_text(json.dumps({**result, "sha256": kept}))


def test_a_run_of_an_older_version_is_read_and_resumed(run: Path, made: Path) -> None:
    make_older(run)
    found = read_run(run)
    assert found.status == "finished"
    assert "an older version wrote it" in found.note
    assert len(read_trace(run).rounds) == 5
    assert resume(run, made) == 0
    assert read_run(run).note == ""
    flip(run / "rounds.jsonl")
    assert "rounds.jsonl is not what the run wrote" in read_run(run).note
    assert resume(run, made) == 0
    assert (run / "rounds.jsonl").read_bytes() == (made / "run" / "rounds.jsonl").read_bytes()


def test_a_file_that_belongs_to_no_run_is_not_checked(tmp_path: Path) -> None:
    assert verified(tmp_path / "experiment.toml", b"anything") == b"anything"


def test_a_file_that_is_added_later(run: Path) -> None:
    (run / "measure.json").write_text("{}")
    add_to_manifest(run, "measure.json")
    assert altered(run) == {}
    (run / "measure.json").write_text("{ }")
    assert list(altered(run)) == ["measure.json"]


# -- many records --------------------------------------------------------------------------------------------------


def test_only_the_records_that_are_shown_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Speed is measured in benchmarks/runs.py; here, that it does not grow with the number of records."""
    random_quadratics(2, 2).write(tmp_path / "fed.json")
    command = f"simulate {tmp_path / 'fed.json'} --gamma 0.1 --local-steps 1 --rounds 400 --out {tmp_path / 'run'}"
    assert main(command.split()) == 0
    decoded = 0
    original = Round.from_json

    def counting(data: Any) -> Round:
        nonlocal decoded
        decoded += 1
        return original(data)

    monkeypatch.setattr(Round, "from_json", counting)
    for line in (
        ["runs", "show", str(tmp_path / "run")],
        ["runs", "list", str(tmp_path)],
        [*command.split(), "--resume"],
    ):
        decoded = 0
        assert main(line) == 0
        assert 0 < decoded < 40
    assert len(list(read_run(tmp_path / "run").rounds)) == 401


def test_a_finished_run_is_not_taken_for_that_of_another_federation(tmp_path: Path, capfd: Capture) -> None:
    random_quadratics(2, 2).write(tmp_path / "fed.json")
    command = f"simulate {tmp_path / 'fed.json'} --gamma 0.1 --local-steps 1 --rounds 4 --out {tmp_path / 'run'}"
    assert main(command.split()) == 0
    random_quadratics(2, 2, seed=5).write(tmp_path / "fed.json")
    assert main([*command.split(), "--resume"]) == 2
    assert "federation" in said(capfd)
