"""What is said to be there is there, and what is missing is said with its hours and where these come from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from integrations.datasets.tests import made
from tests.cli.command import Capture, answer, words

from fedgauge.simulation.options import Compute
from fedgauge_wang2024 import exhibits
from fedgauge_wang2024.exhibits import Request
from fedgauge_wang2024.places import place_of
from fedgauge_wang2024.status import status
from fedgauge_wang2024.studies import STUDIES
from fedgauge_wang2024.training_curves import CurvePart
from fedgauge_wang2024.workload import StepTime, measure_pace, workloads

RESULTS = Path(__file__).parents[1] / "results"


def lines(found: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(line["exhibit"], line["about"]): line for line in found["lines"]}


def test_the_hours_of_what_is_missing_follow_from_what_is_there(tmp_path: Path) -> None:
    shutil.copytree(RESULTS / "fig8-workstation", tmp_path / "fig8-workstation")
    result = tmp_path / "fig8-workstation" / "result.json"
    whole = json.loads(result.read_text())
    runs = [run for each in whole["studies"]["vgg16"]["combinations"] for run in each["runs"]]
    found = lines(status(tmp_path, "workstation", ("vgg16",)))
    eight, nine = found["Figure 8", "VGG-16, CIFAR-100, 50%"], found["Figure 9", "VGG-16, CIFAR-100, 75%"]
    assert (eight["there"], eight["wanted"]) == (3, 6)
    assert (nine["there"], nine["wanted"]) == (0, 6)
    # The second seed takes what the first one did, and the other percentage as much as both.
    assert eight["hours"] == pytest.approx(sum(run["seconds"] for run in runs) / 3600)
    assert nine["hours"] == pytest.approx(2 * eight["hours"])
    assert eight["basis"] == nine["basis"] == "3 kept runs"
    assert eight["command"] == "paper figure 8 --percent 50 --effort workstation"


def test_table_1_is_counted_by_its_cells() -> None:
    line = lines(status(RESULTS, "workstation", ("vgg16",)))["Table 1", "VGG-16, CIFAR-100"]
    held = json.loads((RESULTS / "table1-vgg16-workstation" / "result.json").read_text())["cells"]
    assert (line["there"], line["wanted"], line["basis"]) == (4, 8, "4 kept cells")
    assert line["hours"] == pytest.approx(sum(cell["measured"]["seconds"] for cell in held) / 3600)


def test_a_network_of_one_size_is_there_at_every_effort(tmp_path: Path) -> None:
    """All of MNIST is for a laptop: a workstation has the same runs."""
    result = json.loads((RESULTS / "linear" / "result.json").read_text())
    result["studies"]["linear"]["experiment"] = STUDIES["linear"].experiment("laptop").to_json()
    for each in result["studies"]["linear"]["combinations"]:  # whose runs were not kept
        name = f"local_steps={each['values']['local_steps']},percent={each['values']['percent']:g}"
        each["runs"] = [{"run": f"{name},seed={seed}", "seed": seed, "seconds": 1.0} for seed in range(3)]
    (tmp_path / "linear").mkdir()
    (tmp_path / "linear" / "result.json").write_text(json.dumps(result))
    found = (status(tmp_path, effort, ("linear",), seconds=0.05)["lines"] for effort in ("laptop", "workstation"))
    assert [[line["there"] for line in each] for each in found] == [[15, 15]] * 2


def test_what_was_made_with_other_settings_is_not_taken_for_what_is_asked_for() -> None:
    """The pictures of the MLP are kept without their runs, and its Table 1 has more records than now."""
    found = lines(status(RESULTS, "laptop", ("mlp",), seconds=0.05))
    figure = found["Figures 2, 3", "MLP, MNIST, 50%"]
    assert (figure["there"], figure["older"], figure["wanted"]) == (0, 25, 25)
    table = lines(status(RESULTS, "paper", ("mlp",), seconds=0.05))["Table 1", "MLP, MNIST"]
    assert (table["there"], table["older"], table["wanted"]) == (0, 20, 20)


def test_what_nothing_has_timed_is_timed_here(tmp_path: Path, one_thread: None) -> None:
    found = status(tmp_path, "smoke", ("cnn",), seconds=0.05)
    pace = measure_pace(STUDIES["cnn"], "smoke", 0.05)
    work = {each.part: each for each in workloads(STUDIES["cnn"], "smoke")}
    line = lines(found)["Figures 2, 3", "CNN, CIFAR-10, 50%"]
    assert line["basis"] == "timed here"
    # Two timings of a few hundredths of a second, on a machine that may be busy.
    assert 0.02 < line["hours"] / pace.hours(work["50%"]) < 50


def test_a_pace_by_hand() -> None:
    (work, *_) = workloads(STUDIES["vgg11"], "workstation", seeds=1)
    assert StepTime(0.1, 0.0).hours(work) == pytest.approx(65_000 * 0.1 / 3600)


def test_runs_count_before_their_figure_is_made_and_figures_share_them(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    made.cifar10(data / "cifar-10-batches-py")
    one = CurvePart(("cnn",), (50,))

    def asked(**other: Any) -> Request:
        return Request(out, "smoke", str(data), Compute(processes=1), part=one, **other)

    figure = exhibits.find("fig2")
    result = figure.run(asked(), figure.place(asked()))
    assert result is not None
    line = lines(status(out, "smoke", ("cnn",)))["Figures 2, 3", "CNN, CIFAR-10, 50%"]
    assert line["there"] == line["wanted"] == 2
    # Without the runs, Figure 3 is made from the result of Figure 2.
    place = figure.place(asked())
    place.mkdir()
    (place / "result.json").write_text(json.dumps(result))
    shutil.rmtree(out / "runs")
    third = exhibits.find("fig3").run(asked(), place_of(out, "fig3", "smoke"))
    assert third is not None
    assert third["studies"]["cnn"]["combinations"] == result["studies"]["cnn"]["combinations"]
    assert not (out / "runs").exists()


def test_the_command_says_what_comes_next(capsys: Capture, one_thread: None) -> None:
    line = f"paper status {RESULTS} --effort workstation --model vgg11"
    found = answer(capsys, line)
    assert found["kind"] == "paper-status"
    said = words(capsys, line)
    assert "6 of 6 runs" in said
    assert "2 of 3 parts are whole" in " ".join(said.split())
    assert "The next: fedgauge paper table 1 --model vgg11 --effort workstation" in said


def test_the_place_of_a_result_is_that_of_its_effort(tmp_path: Path) -> None:
    (tmp_path / "fig2").mkdir()
    (tmp_path / "fig2" / "result.json").write_text('{"scale": "laptop"}')
    assert place_of(tmp_path, "fig2", "laptop") == tmp_path / "fig2"
    assert place_of(tmp_path, "fig2", "workstation") == tmp_path / "fig2-workstation"
    assert place_of(tmp_path, "fig1", None) == tmp_path / "fig1"
