"""A run on disk outlives whatever happens to its process and its files."""

from __future__ import annotations

import json
import logging
import shlex
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.cli.command import Capture, fork, snapshot, words
from tests.grouped import grouped

from fedgauge import (
    Experiment,
    QuadraticFederation,
    Trace,
    execute,
    fedadam,
    fedavg,
    random_quadratics,
    scaffold,
    simulate,
)
from fedgauge.algorithms import ALGORITHMS, Algorithm
from fedgauge.algorithms.adaptive_pace import Pace
from fedgauge.base.errors import InputError
from fedgauge.cli import main
from fedgauge.federation.participation import Participation
from fedgauge.federation.protocols import Indices
from fedgauge.simulation.loop import InterruptedRunError
from fedgauge.simulation.options import Recording
from fedgauge.simulation.runs.checkpoints import State, read_model
from fedgauge.simulation.runs.directory import RunDirectory
from fedgauge.simulation.runs.export import write_model
from fedgauge.simulation.runs.reader import read_run, read_trace

# What must be the same to the last bit, however often a run was killed.
RESULTS = ("rounds.jsonl", "model.safetensors", "result.json", "settings.json")


def results(directory: Path) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in RESULTS}


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


# -- kill -9 -------------------------------------------------------------------------------------------------------

KILLS = 10
# One with a state of the server, one with a memory of each worker too; both with noise and sampling.
KILLED = {
    "fedadam": "--algorithm fedadam --gamma 0.05 --participants 3 --sampling with-replacement",
    "scaffold": "--algorithm scaffold --gamma 0.05 --participants 3 --sampling without-replacement",
}


@pytest.mark.parametrize(("name", "seed"), [("fedadam", 1), ("scaffold", 2)])
def test_kill_9_at_random_moments(name: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten kills each; the processes are real, and so are the files that they leave."""
    monkeypatch.chdir(tmp_path)
    random_quadratics(5, 4, sigma2=0.1).write("fed.json")
    line = f"simulate fed.json {KILLED[name]} --local-steps 2 --rounds 600 --checkpoint-every 7".split()
    assert main([*line, "--out", "whole"]) == 0
    expected = results(tmp_path / "whole")

    moments = np.random.default_rng(seed)
    kills = within = finished = 0
    while kills < KILLS:
        run = tmp_path / f"run{finished}"
        before = size(run / "rounds.jsonl")
        process = fork(*line, "--out", run.name, "--resume", cwd=tmp_path)
        # Every fourth dies while it starts, when files are made, opened and cut; the others within the rounds.
        starting = kills % 4 == 3
        while not starting and size(run / "rounds.jsonl") == before and process.is_alive():
            time.sleep(0.002)
        time.sleep(moments.uniform(0.0, 0.25))
        process.kill()
        process.join()
        if process.exitcode == -signal.SIGKILL:
            kills += 1
            within += size(run / "rounds.jsonl") != before
        else:
            # It was faster than the kills: it must be right, and the next ones fall on a new run.
            assert process.exitcode == 0
            assert results(run) == expected
            finished += 1
    assert within >= KILLS / 2
    run = tmp_path / f"run{finished}"
    assert main([*line, "--out", run.name, "--resume"]) == 0
    assert results(run) == expected
    assert not [path for path in snapshot(run) if path.endswith((".part", ".damaged"))]


# -- damage --------------------------------------------------------------------------------------------------------


NEWEST, OLDER = "000000020.safetensors", "000000010.safetensors"


class CrashError(Exception):
    """Ends a run between two rounds and writes nothing, as a kill does."""


def crash_at(round: int) -> Callable[[int, object], None]:
    def observer(done: int, record: object) -> None:
        if done == round:
            raise CrashError

    return observer


FEDERATION = random_quadratics(4, 3, sigma2=0.1)
SETTINGS: dict[str, Any] = {
    "local_steps": 2,
    "rounds": 40,
    "participation": Participation("without-replacement", 2),
    "checkpoint_every": 10,
}


def go(run: Path, **changed: Any) -> Trace:
    return simulate(FEDERATION, scaffold(0.1), **grouped(run=run, **{**SETTINGS, **changed}))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happened to."""
    run = tmp_path_factory.mktemp("whole") / "run"
    go(run)
    return run


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A run that ended at round 25, with checkpoints at 10 and 20."""
    run = tmp_path / "run"
    with pytest.raises(CrashError):
        go(run, observer=crash_at(25))
    assert [path.name for path in sorted((run / "checkpoints").iterdir())] == [OLDER, NEWEST]
    assert len((run / "rounds.jsonl").read_bytes().splitlines()) == 25
    return run


Damage = Callable[[Path], None]


def on(name: str, change: Callable[[bytes], bytes]) -> Damage:
    """Damage one file of a run."""

    def damage(run: Path) -> None:
        (run / name).write_bytes(change((run / name).read_bytes()))

    return damage


def both(*damages: Damage) -> Damage:
    def damage(run: Path) -> None:
        for one in damages:
            one(run)

    return damage


def flipped(at: float) -> Callable[[bytes], bytes]:
    """One bit, at a fraction of the content."""

    def flip(content: bytes) -> bytes:
        index = int(at * len(content))
        return content[:index] + bytes([content[index] ^ 1]) + content[index + 1 :]

    return flip


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def nothing(content: bytes) -> bytes:
    return b""


def lines(count: int) -> Callable[[bytes], bytes]:
    return lambda content: b"".join(content.splitlines(keepends=True)[:count])


def other_digit(content: bytes) -> bytes:
    """The loss of round 3 is another number, in sound JSON."""
    kept = content.splitlines(keepends=True)
    record = json.loads(kept[3])
    kept[3] = json.dumps({**record, "loss": record["loss"] + 1}).encode() + b"\n"
    return b"".join(kept)


def on_newest(change: Callable[[bytes], bytes]) -> Damage:
    return on(f"checkpoints/{NEWEST}", change)


def on_older(change: Callable[[bytes], bytes]) -> Damage:
    return on(f"checkpoints/{OLDER}", change)


def left_over(run: Path) -> None:
    (run / "checkpoints" / f".{NEWEST}.123.part").write_bytes(b"half")


# What happened to the files -> the round from which the run goes on, and the checkpoints named in the log.
DAMAGES: dict[str, tuple[Damage, int, tuple[str, ...]]] = {
    "nothing": (both(), 20, ()),
    "checkpoint cut short": (on_newest(half), 10, (NEWEST,)),
    "checkpoint without its last byte": (on_newest(lambda content: content[:-1]), 10, (NEWEST,)),
    "checkpoint empty": (on_newest(nothing), 10, (NEWEST,)),
    "checkpoint of zeros": (on_newest(lambda content: bytes(len(content))), 10, (NEWEST,)),
    "checkpoint of text": (on_newest(lambda content: b"not a checkpoint"), 10, (NEWEST,)),
    "bit flipped in the first byte": (on_newest(flipped(0.0)), 10, (NEWEST,)),
    "bit flipped in the header": (on_newest(flipped(0.3)), 10, (NEWEST,)),
    "bit flipped in the numbers": (on_newest(flipped(0.99)), 10, (NEWEST,)),
    "checkpoint gone": (lambda run: (run / "checkpoints" / NEWEST).unlink(), 10, ()),
    "older checkpoint": (on_older(half), 20, ()),
    "both checkpoints": (both(on_newest(half), on_older(flipped(0.99))), 0, (NEWEST, OLDER)),
    "no checkpoints": (lambda run: shutil.rmtree(run / "checkpoints"), 0, ()),
    "last line cut short": (on("rounds.jsonl", lambda content: content[:-5]), 20, ()),
    "last line without its end": (on("rounds.jsonl", lambda content: content[:-1]), 20, ()),
    "garbage at the end": (on("rounds.jsonl", lambda content: content + b"\x00\xff{"), 20, ()),
    "just the rounds needed": (on("rounds.jsonl", lines(20)), 20, ()),
    "one round too few": (on("rounds.jsonl", lines(19)), 10, (NEWEST,)),
    "rounds too few for both": (on("rounds.jsonl", lines(9)), 0, (NEWEST, OLDER)),
    "no rounds": (on("rounds.jsonl", nothing), 0, (NEWEST, OLDER)),
    "rounds.jsonl gone": (lambda run: (run / "rounds.jsonl").unlink(), 0, (NEWEST, OLDER)),
    "line of another kind": (on("rounds.jsonl", lambda content: b"1\n" + content), 0, (NEWEST, OLDER)),
    "number changed in a line": (on("rounds.jsonl", other_digit), 0, (NEWEST, OLDER)),
    "times cut short": (on("timing.jsonl", lines(15)), 10, (NEWEST,)),
    "environment.json gone": (lambda run: (run / "environment.json").unlink(), 20, ()),
    "left-over of a killed write": (left_over, 20, ()),
}


@pytest.mark.parametrize(("damage", "begins", "named"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_named_and_repaired(
    damage: Damage,
    begins: int,
    named: tuple[str, ...],
    killed: Path,
    whole: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    damage(killed)
    rounds_run: list[int] = []
    with caplog.at_level(logging.WARNING):
        trace = go(killed, resume=True, observer=lambda done, record: rounds_run.append(done))
    assert rounds_run == [*range(begins + 1, 41), 40]
    assert results(killed) == results(whole)
    assert trace == read_trace(whole)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == len(named)
    for message, name in zip(messages, named, strict=True):
        assert str(killed / "checkpoints" / name) in message
        assert "is damaged" in message
    if named:
        assert messages[-1].endswith(
            "beginning the run again." if begins == 0 else f"using {OLDER}, the one before it."
        )
    # What is left is sound: two checkpoints, a time for each record, and nothing half written.
    assert [path.name for path in sorted((killed / "checkpoints").glob("*.safetensors"))] == [
        "000000030.safetensors",
        "000000040.safetensors",
    ]
    assert len((killed / "timing.jsonl").read_bytes().splitlines()) == 41
    assert not list(killed.rglob("*.part"))


def test_damaged_checkpoints_do_not_push_out_sound_ones(killed: Path, whole: Path) -> None:
    """A run that has to begin again is killed again, before it reaches the damaged checkpoints' rounds."""
    both(on_newest(half), on_older(half))(killed)
    with pytest.raises(CrashError):
        go(killed, resume=True, checkpoint_every=3, observer=crash_at(8))
    rounds_run: list[int] = []
    go(killed, resume=True, observer=lambda done, record: rounds_run.append(done))
    assert rounds_run[0] == 7
    assert results(killed) == results(whole)


def test_no_flipped_byte_of_a_checkpoint_goes_unnoticed(killed: Path) -> None:
    sound = {name: content for name, content in snapshot(killed).items() if content is not None}
    settings = json.loads(sound["settings.json"])
    generator = np.random.default_rng(0)
    # What a resume may cut, rename or replace.
    changed = [name for name in sound if name.startswith("checkpoints/") or name.endswith(".jsonl")]
    for index in range(len(sound[f"checkpoints/{NEWEST}"])):
        for name in changed:
            (killed / name).write_bytes(sound[name])
        damaged = bytearray(sound[f"checkpoints/{NEWEST}"])
        damaged[index] ^= 1 << int(generator.integers(8))
        (killed / "checkpoints" / NEWEST).write_bytes(damaged)
        with RunDirectory.open(killed, settings, resume=True) as directory:
            state, records, seconds = directory.restore(record_every=1)
        assert state is not None
        assert (state.round, len(records), len(seconds)) == (10, 10, 10), f"byte {index}"


FINISHED: dict[str, tuple[Damage, str]] = {
    "result cut short": (on("result.json", half), "result.json"),
    "result of another kind": (on("result.json", lambda content: b"[]"), "result.json"),
    "result without digests": (on("result.json", lambda content: b'{"status": "finished"}'), "result.json"),
    "model cut short": (on("model.safetensors", half), "model.safetensors"),
    "bit flipped in the model": (on("model.safetensors", flipped(0.99)), "model.safetensors"),
    "model gone": (lambda run: (run / "model.safetensors").unlink(), "model.safetensors"),
    "rounds cut short": (on("rounds.jsonl", lines(30)), "rounds.jsonl"),
    "number changed in a round": (on("rounds.jsonl", other_digit), "rounds.jsonl"),
}


@pytest.mark.parametrize(("damage", "name"), FINISHED.values(), ids=FINISHED)
def test_damage_to_a_finished_run_is_named_and_repaired(
    damage: Damage, name: str, whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    damage(run)
    with pytest.raises(InputError, match=name):
        read_trace(run)
    with caplog.at_level(logging.WARNING):
        trace = go(run, resume=True)
    assert str(run / name) in caplog.text
    assert results(run) == results(whole)
    assert trace == read_trace(run) == read_trace(whole)


# -- Ctrl-C within a round -----------------------------------------------------------------------------------------


class Interrupting(QuadraticFederation):
    """Ctrl-C comes at the given call for gradients, and then never again."""

    countdown = 0

    def stochastic_gradients(self, models: torch.Tensor, workers: Indices, draws: Any) -> torch.Tensor:
        self.countdown -= 1
        if self.countdown == 0:
            raise KeyboardInterrupt
        return super().stochastic_gradients(models, workers, draws)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_interrupt_within_a_round_is_resumed_to_the_same_bits(name: str, tmp_path: Path) -> None:
    federation = Interrupting.from_json(FEDERATION.to_json())
    algorithm: Algorithm = ALGORITHMS[name](gamma=0.1)
    # One worker a chunk and two steps a worker: eight calls a round. The interrupt comes in round 5 with two of the
    # four workers done.
    settings: dict[str, Any] = {"local_steps": 2, "rounds": 12, "chunk": 1, "checkpoint_every": 4}
    federation.countdown = 8 * 5 + 6
    with pytest.raises(KeyboardInterrupt) as interrupt:
        simulate(federation, algorithm, **grouped(run=tmp_path / "run", **settings))
    assert isinstance(interrupt.value, InterruptedRunError)
    stopped = interrupt.value.trace
    assert (stopped.status, stopped.stopped_at, len(stopped.rounds)) == ("stopped", 5, 5)
    assert not (tmp_path / "run" / "result.json").exists()
    resumed = simulate(federation, algorithm, **grouped(run=tmp_path / "run", resume=True, **settings))
    assert resumed == simulate(FEDERATION, algorithm, **grouped(run=tmp_path / "whole", **settings))
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_interrupt_while_a_round_is_written(tmp_path: Path) -> None:
    """The line of the interrupted round is there, and its checkpoint must not count it."""
    state = State(1, torch.ones(2), {}, {})
    trace = go(tmp_path / "other", rounds=2)
    with RunDirectory.open(tmp_path / "run", {}) as directory:
        for record in trace.rounds[:2]:
            directory.append(record, 0.5)
        directory.checkpoint(state)
    with RunDirectory.open(tmp_path / "run", {}, resume=True) as directory:
        found, records, seconds = directory.restore(record_every=1)
    assert found is not None
    assert (found.round, records, seconds) == (1, [trace.rounds[0]], [0.5])


# -- writers and readers -------------------------------------------------------------------------------------------


def test_two_writers_at_once_are_refused(killed: Path) -> None:
    settings = json.loads((killed / "settings.json").read_text())
    with RunDirectory.open(killed, settings, resume=True):
        before = snapshot(killed)
        with pytest.raises(InputError, match="Another process is writing"):
            go(killed, resume=True)
        assert snapshot(killed) == before
    go(killed, resume=True)


def test_a_run_begun_by_another_at_the_last_moment_is_not_overwritten(killed: Path) -> None:
    """Between a look at the directory and its lock another process may begin and end a run there."""
    before = snapshot(killed)
    for resume, message in ((False, "already holds a run"), (True, "has seed = 0, not 1")):
        with pytest.raises(InputError, match=message):
            RunDirectory(killed, {**json.loads((killed / "settings.json").read_text()), "seed": 1}, resume)
        assert snapshot(killed) == before
    # Nor does the refusal keep the directory locked.
    go(killed, resume=True)


def test_resume_begins_a_run_where_there_is_none(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "deep" / "er" / "run"
    go(run, resume=True)
    assert results(run) == results(whole)


def test_resume_of_a_finished_run_reads_it(whole: Path) -> None:
    before = snapshot(whole)
    assert go(whole, resume=True, observer=crash_at(1)) == read_trace(whole)
    assert snapshot(whole) == before


def test_how_often_a_state_is_saved_may_change(killed: Path, whole: Path) -> None:
    go(killed, resume=True, checkpoint_every=3)
    assert results(killed) == results(whole)


@pytest.mark.parametrize("record_every", [1, 3, 40, 100])
def test_sparse_records_are_resumed_too(record_every: int, tmp_path: Path) -> None:
    for crash in (5, 10, 39):
        run = tmp_path / f"crash{crash}"
        with pytest.raises(CrashError):
            go(run, record_every=record_every, observer=crash_at(crash))
        go(run, record_every=record_every, resume=True)
    go(tmp_path / "whole", record_every=record_every)
    for crash in (5, 10, 39):
        assert results(tmp_path / f"crash{crash}") == results(tmp_path / "whole")


def test_a_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    trace = simulate(FEDERATION, fedadam(0.1), local_steps=3, rounds=20, keep=tmp_path / "run")
    read = read_trace(tmp_path / "run")
    assert read == trace
    assert read.seconds == trace.seconds
    assert read.model.dtype == np.float64
    again = Trace.from_json(json.loads(json.dumps(trace.to_json())))
    assert again == trace
    assert again.seconds == trace.seconds


def test_reading_what_is_no_finished_run(killed: Path, tmp_path: Path) -> None:
    for path in (killed, tmp_path / "none"):
        with pytest.raises(InputError, match=r"Cannot read .*result\.json: No such file"):
            read_trace(path)


# -- runs that are repaired, that diverge or that start from a chosen model ----------------------------------------


def test_an_interrupted_repair_has_not_ended(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    on("rounds.jsonl", lines(32))(run)
    with pytest.raises(CrashError):
        go(run, resume=True, observer=crash_at(35))
    found = read_run(run)
    assert (found.status, found.stopped_at) == ("unfinished", 34)
    with pytest.raises(InputError, match="has not ended"):
        write_model(tmp_path / "model.pt", run)
    go(run, resume=True)
    assert results(run) == results(whole)


@pytest.mark.parametrize("record_every", [1, 7, 10, 50])
def test_a_diverged_run_leaves_the_model_of_its_last_record_however_it_was_resumed(
    record_every: int, tmp_path: Path
) -> None:
    """The loss overflows long before the model does."""
    settings: dict[str, Any] = {"local_steps": 2, "rounds": 500, "record_every": record_every, "checkpoint_every": 3}
    whole = simulate(FEDERATION, fedavg(1e3), **grouped(run=tmp_path / "whole", **settings))
    assert whole.status == "diverged"
    last, model = whole.rounds[-1], torch.from_numpy(whole.model)
    assert float(FEDERATION.losses(model.expand(4, -1), np.arange(4)).mean()) == pytest.approx(last.loss)
    for crash in range(whole.stopped_at - 4, whole.stopped_at):
        run = tmp_path / f"crash{crash}"
        with pytest.raises(CrashError):
            simulate(FEDERATION, fedavg(1e3), **grouped(run=run, observer=crash_at(crash), **settings))
        simulate(FEDERATION, fedavg(1e3), **grouped(run=run, resume=True, **settings))
        assert results(run) == results(tmp_path / "whole")


def test_the_first_model_is_kept_and_the_command_that_is_shown_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    FEDERATION.write("fed.json")
    torch.save({"model": torch.full((3,), 2.0)}, "own.pt")
    line = "simulate fed.json --gamma 0.1 --rounds 30 --at own.pt --out"
    words(capsys, f"{line} whole")
    experiment = Experiment.read("whole/experiment.toml")
    start = read_model("own.pt", FEDERATION)
    with pytest.raises(CrashError):
        execute(experiment, start=start, observer=crash_at(5), keep="a run")
    Path("own.pt").unlink()
    assert main(["runs", "show", "a run"]) == 0
    shown = capsys.readouterr().out
    command = next(line for line in shown.splitlines() if line.startswith("To resume it: "))
    program, *arguments = shlex.split(command.removeprefix("To resume it: "))
    assert (program, main(arguments)) == ("fedgauge", 0)
    assert results(tmp_path / "a run") == results(tmp_path / "whole")
    capsys.readouterr()
    assert main(["runs", "show", "a run"]) == 0
    again = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("To run it again: "))
    assert main([*shlex.split(again.removeprefix("To run it again: "))[1:], "--out", "again"]) == 0
    assert results(tmp_path / "again") == results(tmp_path / "whole")


@pytest.mark.parametrize("rounds", [8, 12, 14])
def test_adapted_steps_are_counted_up_to_the_last_record(rounds: int, tmp_path: Path) -> None:
    """They change where the last stretch begins, of which no record tells; the cost model's time does."""
    federation = random_quadratics(4, 3, hessian_spread=0.5, linear_spread=3.0, sigma2=0.1)
    pace, run = Pace(communication=1.0, step_seconds=0.01), tmp_path / "run"
    trace = simulate(federation, fedavg(0.3), local_steps=pace, rounds=rounds, record=Recording(every=5), keep=run)
    seconds = [(record.elapsed or 0.0) - record.round * pace.communication for record in trace.rounds]
    assert read_run(run).steps == pytest.approx([each / pace.step_seconds for each in seconds])
