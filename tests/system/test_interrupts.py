"""SIGTERM and SIGHUP save the state of a run, as Ctrl-C does, and the exit status says which it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.command import start, without_progress

from fedgauge import random_quadratics
from fedgauge.base.interrupts import ENDING, as_interrupts, held_back
from fedgauge.cli import main

LINE = ("simulate", "fed.json", "--gamma", "0.01", "--local-steps", "50", "--rounds", "100000", "--out", "run")


@pytest.fixture(autouse=True)
def not_ignored() -> Iterator[None]:
    """Under nohup SIGHUP is ignored, in the background SIGINT too, here and in processes that are started here."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def wait_for(path: Path, size: int = 1) -> None:
    """Wait until a file has some bytes."""
    for _ in range(600):
        if path.exists() and path.stat().st_size >= size:
            return
        time.sleep(0.05)
    pytest.fail(f"{path} does not grow")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_run_is_saved_and_goes_on(number: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    random_quadratics(3, 2, sigma2=0.1).write("fed.json")
    with start(*LINE, cwd=tmp_path) as process:
        wait_for(tmp_path / "run" / "rounds.jsonl", 2000)
        process.send_signal(number)
        for _ in range(100):  # again and again, while it saves and until it has ended
            time.sleep(0.01)
            process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == status
    said = without_progress(err)
    assert said.startswith("fedgauge: Interrupted in round ")
    assert said.endswith("to resume the run in run, repeat the command with --resume.\n")
    reached = int(said.split("round ")[1].split(";")[0])
    assert [path.stem for path in (tmp_path / "run" / "checkpoints").glob("*.safetensors")][-1:]
    newest = max(int(path.stem) for path in (tmp_path / "run" / "checkpoints").glob("*.safetensors"))
    assert newest == reached, "its state was saved where it stopped"


def test_a_sweep_whose_processes_are_all_told_to_end(tmp_path: Path) -> None:
    random_quadratics(3, 2, sigma2=0.1).write(tmp_path / "fed.json")
    line = "runs sweep fed.json --gamma 0.01 --rounds 100000 --seeds 2 --jobs 2 --out out"
    command = [sys.executable, "-m", "fedgauge", *line.split()]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        for seed in range(2):
            wait_for(tmp_path / "out" / "runs" / f"seed={seed}" / "rounds.jsonl", 1000)
        os.killpg(process.pid, signal.SIGTERM)
        _, err = process.communicate(timeout=90)
    assert process.returncode == 143
    assert without_progress(err) == "fedgauge: Interrupted; repeat the same command to resume the runs in out.\n"
    for seed in range(2):
        assert list((tmp_path / "out" / "runs" / f"seed={seed}" / "checkpoints").glob("*.safetensors"))


def test_processes_of_a_round_leave_the_saving_to_their_parent(tmp_path: Path) -> None:
    line = "simulate digits --model linear --gamma 0.01 --rounds 100000 --processes 2 --checkpoint-every 100000 --out r"
    command = [sys.executable, "-m", "fedgauge", *line.split()]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        wait_for(tmp_path / "r" / "rounds.jsonl", 1000)
        os.killpg(process.pid, signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert without_progress(err).startswith("fedgauge: Interrupted in round ")
    assert list((tmp_path / "r" / "checkpoints").glob("*.safetensors"))


def test_what_is_ignored_stays_ignored_and_handlers_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {number: signal.getsignal(number) for number in ENDING}
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with as_interrupts() as asked:
            signal.raise_signal(signal.SIGHUP)
            assert asked.signal is None
    finally:
        signal.signal(signal.SIGHUP, ignored)
    assert main(["theory", "symbols", "--json"]) == 0
    assert {number: signal.getsignal(number) for number in ENDING} == before


def test_only_the_first_signal_interrupts() -> None:
    with as_interrupts() as asked:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGTERM)
        assert asked.status == 143


@pytest.mark.parametrize("number", ENDING)
def test_signals_are_held_back(number: int) -> None:
    reached: list[int] = []

    def work() -> None:
        with held_back():
            signal.raise_signal(number)
            reached.append(number)

    with as_interrupts(), pytest.raises(KeyboardInterrupt):
        work()
    assert reached == [number]
