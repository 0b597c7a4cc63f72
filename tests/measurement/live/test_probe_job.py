"""A job of several processes over torch.distributed measures what one process with all models measures."""

from __future__ import annotations

import copy
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.measurement.live.jobs import average, descend, mean_loss
from tests.measurement.live.rank import batches_of, make_data, make_model

import fedgauge as fg
from fedgauge.simulation.runs.reader import read_run

ROOT = Path(__file__).parents[3]


def start_ranks(number: int, place: Path, outer: float) -> list[dict[str, Any]]:
    """Run a job to its end, as torchrun does; what each rank wrote."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    paths = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    usual = {**os.environ, "PYTHONPATH": paths, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    usual |= {"WORLD_SIZE": str(number), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "tests.measurement.live.rank", str(place), str(outer)]
    ranks = [
        subprocess.Popen(command, cwd=place, env={**usual, "RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in range(number)
    ]
    try:
        for rank in ranks:
            _, said = rank.communicate(timeout=120)
            assert rank.returncode == 0, said
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return [json.loads((place / f"rank{rank}.json").read_text()) for rank in range(number)]


def alone(number: int, outer: float) -> tuple[fg.ProbedRound, ...]:
    """The same job in one process."""
    model = make_model()
    probe = fg.Probe(mean_loss, [batches_of(rank) for rank in range(number)], share=1.0, start=model)
    for _ in range(4):
        models = [copy.deepcopy(model) for _ in range(number)]
        for rank, local in enumerate(models):
            descend(local, mean_loss, make_data(rank), steps=3, rate=0.2)
        probe.before(models)
        before = copy.deepcopy(model)
        average(model, models)
        with torch.no_grad():
            for now, then in zip(model.parameters(), before.parameters(), strict=True):
                now.copy_(then + outer * (now - then))
        probe.after(model)
    return probe.records


def close(one: Any, other: Any) -> bool:
    """Whether two results are equal up to the order of sums."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(close, one, other))
    return one == pytest.approx(other, rel=1e-6, abs=1e-15) if isinstance(one, float) else one == other


@pytest.mark.parametrize(("number", "outer"), [(2, 1.0), (4, 0.7)])
def test_ranks_measure_what_one_process_does(number: int, outer: float, tmp_path: Path) -> None:
    ranks = start_ranks(number, tmp_path, outer)
    expected = [each.to_json() for each in alone(number, outer)]
    assert len(expected) == 4
    for rank in ranks:
        # The same bits on every rank; the same numbers as in one process.
        assert rank["records"] == ranks[0]["records"]
        assert close(rank["records"], expected)
        assert rank["rounds"] == ranks[0]["rounds"]
    assert 1 <= len(ranks[0]["rounds"]) < 60
    found = read_run(tmp_path / "run")
    assert (found.status, found.stopped_at, found.note, len(found.rounds)) == ("finished", 4, "", 4)
    assert [record.to_json() for record in found.rounds] == [each["record"] for each in ranks[0]["records"]]
