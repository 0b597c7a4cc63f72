"""What is kept of a table is what was asked, and all of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fedgauge import Cost, Experiment, QuadraticFederation, random_quadratics
from fedgauge.federation.protocols import Indices
from fedgauge.simulation.options import Compute
from fedgauge_planning import Goal
from fedgauge_planning.jobs import make_pool
from fedgauge_planning.planner import PlanOptions, plan
from fedgauge_wang2024 import table2
from fedgauge_wang2024.cells import CellJob, run_cells


class CtrlC:
    """Comes after so many calls for gradients, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        whole = QuadraticFederation.stochastic_gradients

        def gradients(of: QuadraticFederation, models: torch.Tensor, workers: Indices, draws: Any) -> torch.Tensor:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            return whole(of, models, workers, draws)

        monkeypatch.setattr(QuadraticFederation, "stochastic_gradients", gradients)


def double(number: int) -> int:
    return 2 * number


def made(keep: Path, numbers: dict[str, int], version: int = 1) -> tuple[dict[str, int], list[str]]:
    """The cells, and which of them were made now."""
    said: list[str] = []
    jobs = {name: CellJob([number, version], (number,)) for name, number in numbers.items()}
    found = run_cells(double, jobs, keep, make_pool(Compute(processes=1)), lambda name, done, total: said.append(name))
    return found, said[1:]


def test_cells_are_made_once_and_anew_where_something_else_is_asked(tmp_path: Path) -> None:
    assert made(tmp_path, {"a": 1, "b": 2}) == ({"a": 2, "b": 4}, ["a", "b"])
    assert made(tmp_path, {"b": 2, "a": 1}) == ({"b": 4, "a": 2}, [])
    assert made(tmp_path, {"a": 1, "b": 3}) == ({"a": 2, "b": 6}, ["b"])
    assert made(tmp_path, {"a": 1, "b": 3}, version=2) == ({"a": 2, "b": 6}, ["a", "b"])


@pytest.mark.parametrize("left", ["", "{", "[]", "null", '{"cell": 1}', '{"asked": [1, 1]}'])
def test_what_is_no_cell_is_made_anew(left: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(left)
    assert made(tmp_path, {"a": 1}) == ({"a": 2}, ["a"])
    assert json.loads((tmp_path / "a.json").read_text())["cell"] == 2


def test_an_interrupted_cell_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table2, "SETTINGS", table2.SETTINGS[:1])
    monkeypatch.setattr(table2, "WORKERS", (2,))

    def rounds(**how: Any) -> Any:
        return [cell["rounds"] for cell in table2.run(seeds=1, compute=Compute(processes=1), **how)["cells"]]

    expected = rounds()
    CtrlC(monkeypatch).left = 1000
    with pytest.raises(KeyboardInterrupt):
        rounds(keep=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert rounds(keep=tmp_path) == expected


def test_an_interrupted_plan_goes_on_to_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random_quadratics(4, 3, sigma2=0.1).write(tmp_path / "fed.json")
    experiment = Experiment.of({"source": str(tmp_path / "fed.json"), "gamma": 0.1})

    def planned(out: Path) -> Any:
        over, cost = {"local_steps": [1, 4, 16]}, Cost("given", fixed=1.0, step=0.01)
        goal, effort = Goal("grad2", 0.05), PlanOptions(jobs=1)
        found = plan(experiment, goal=goal, cost=cost, over=over, options=effort, directory=out).to_json()
        return {**found, "wall": 0.0, "digest": None}  # the digest is of the wall time, too

    expected = planned(tmp_path / "whole")
    CtrlC(monkeypatch).left = 200
    with pytest.raises(KeyboardInterrupt):
        planned(tmp_path / "interrupted")
    assert planned(tmp_path / "interrupted") == expected
