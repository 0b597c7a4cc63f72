"""A network's run outlives kills, interrupts and a full disk."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.cli.command import fork, start, without_progress

from fedgauge.base.errors import MachineError
from fedgauge.cli import main
from fedgauge.simulation.runs.directory import RunDirectory
from fedgauge.simulation.runs.reader import read_run
from fedgauge.values import Round

RESULTS = ("rounds.jsonl", "model.safetensors", "state_dict.safetensors", "result.json", "settings.json")
LINE = (
    *("simulate", "digits", "--algorithm", "scaffold", "--gamma", "0.1", "--local-steps", "3", "--rounds", "60"),
    *("--participants", "6", "--sampling", "without-replacement", "--record-every", "2", "--chunk", "2"),
    *("--checkpoint-every", "5"),
)


def results(directory: Path) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in RESULTS}


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a run that nothing happened to leaves."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert main([*LINE, "--processes", "1", "--out", str(run)]) == 0
    return results(run)


@pytest.mark.parametrize(("processes", "kills"), [(1, 2), (2, 3)])
def test_kill_9(processes: int, kills: int, whole: dict[str, bytes], tmp_path: Path) -> None:
    run, moments = tmp_path / "run", np.random.default_rng(processes)
    for kill in range(kills):
        before = size(run / "rounds.jsonl")
        process = fork(*LINE, "--processes", processes, "--out", "run", "--resume", cwd=tmp_path)
        while size(run / "rounds.jsonl") <= before and process.is_alive():
            time.sleep(0.005)
        time.sleep(moments.uniform(0.0, 0.3))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL or kill > 0
        found = read_run(run)
        assert found.rounds
    # How many processes share a round may change when it goes on.
    # What a killed process leaves behind ends within moments, and keeps the run until then.
    end = time.monotonic() + 30
    while (status := main([*LINE, "--processes", "1", "--out", str(run), "--resume"])) and time.monotonic() < end:
        time.sleep(0.1)
    assert status == 0
    assert results(run) == whole


def test_interrupt_with_two_processes(whole: dict[str, bytes], tmp_path: Path) -> None:
    run = tmp_path / "run"
    with start(*LINE, "--processes", 2, "--out", "run", cwd=tmp_path) as process:
        while size(run / "rounds.jsonl") < 1000 and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "to resume the run in run, repeat the command with --resume" in err
    assert "Traceback" not in err
    assert main([*LINE, "--processes", "1", "--out", str(run), "--resume"]) == 0
    assert results(run) == whole


# -- a full disk ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [3_000, 100_000])
def test_a_full_disk_stops_the_run_and_leaves_it_readable(
    limit: int, whole: dict[str, bytes], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """No file may grow beyond a limit, which stands for a full disk: first for the rounds, then for the checkpoints."""
    code = (
        "import resource, signal, sys;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY));"
        "from fedgauge.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    line = [*LINE, "--processes", "1", "--out", str(tmp_path / "run")]
    if limit == 3_000:  # no checkpoint comes before the limit is reached
        line[line.index("--checkpoint-every") + 1] = "1000"
    done = subprocess.run([sys.executable, "-c", code, *line], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    err = without_progress(done.stderr)
    assert err.startswith(f"fedgauge: The run in {tmp_path / 'run'} stopped: File too large;")
    assert (err.count("\n"), done.stdout) == (1, "")
    found = read_run(tmp_path / "run")
    assert found.status == "unfinished"
    assert len(found.rounds) > 2
    assert main(["runs", "show", str(tmp_path / "run")]) == 0
    assert "To resume it: fedgauge simulate" in " ".join(capfd.readouterr().out.split())
    assert not list((tmp_path / "run").rglob("*.part"))
    assert main([*line, "--resume"]) == 0
    assert results(tmp_path / "run") == whole
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != limit


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_line_that_does_not_fit(tmp_path: Path) -> None:
    with RunDirectory.open(tmp_path / "run", {}) as directory:
        directory.append(Round(0, 1.0, 1.0), 0.0)
        directory._rounds.close()
        directory._rounds._file = open("/dev/full", "ab", buffering=0)  # noqa: SIM115
        with pytest.raises(MachineError, match="No space left on device"):
            directory.append(Round(1, 1.0, 1.0), 0.0)
    assert [record.round for record in read_run(tmp_path / "run").rounds] == [0]
    assert json.loads((tmp_path / "run" / "settings.json").read_text()) == {}
