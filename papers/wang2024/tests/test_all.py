"""Every table and figure at the smallest scale, on small made files in the published layouts."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integrations.datasets.tests import made
from typer.testing import CliRunner

from fedgauge.base.errors import InputError
from fedgauge.cli import app
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.loop import simulate
from fedgauge.simulation.options import Compute, Recording
from fedgauge_wang2024 import exhibits, sampling, sketch, studies, table1, training_curves


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("data")
    made.mnist(place / "MNIST/raw", number=300)
    made.cifar10(place / "cifar-10-batches-py")
    made.cifar100(place / "cifar-100-python")
    made.cinic10(place / "CINIC-10", number=8)
    return place


@pytest.mark.parametrize("name", studies.STUDIES)
@pytest.mark.parametrize("scale", studies.SCALES)
def test_settings_are_the_papers(name: str, scale: studies.Scale) -> None:
    experiment = studies.STUDIES[name].experiment(scale, percent=50.0)
    rates = {"mlp": 0.1, "linear": 0.01, "cnn": 0.05, "vgg11": 0.01, "cinic10": 0.01, "vgg16": 0.02}
    assert experiment.algorithm.gamma == rates[name]
    assert experiment.algorithm.parameters["eta"] == (
        1.0 if name == "linear" else 2.0
    )  # the paper has no rates for linear
    assert experiment.run.batch_size == (4 if scale == "smoke" else 32 if name == "vgg16" else 20)
    if scale == "paper":
        assert experiment.data.workers == (100 if name == "cnn" else 10)
        assert experiment.run.participants == (10 if name == "cnn" else None)
        assert experiment.model.options == {}
        assert studies.STUDIES[name].sizes[scale].seeds == 5
    if scale == "workstation":
        # As printed, on all data; only VGG is narrower.
        assert (experiment.data.workers, experiment.run.participants) == ((100, 10) if name == "cnn" else (10, None))
        assert experiment.data.per_worker is None
        assert experiment.model.options == {"vgg11": {"narrow": 2}, "vgg16": {"narrow": 8}}.get(
            experiment.model.name or "", {}
        )
    assert experiment.data.scale == ("unit" if name in ("mlp", "linear") else "published")
    assert Experiment.from_toml(experiment.to_toml()) == experiment


def test_figures_are_the_papers() -> None:
    assert list(studies.FIGURES) == [f"fig{number}" for number in range(2, 10)]
    assert {part.name for part in exhibits.EXHIBITS} >= {"fig1", "table1", "table2", *studies.FIGURES}
    assert list(studies.UNSHOWN) == ["linear"]
    shown = {(panel.study, panel.percent) for panels in studies.CURVES.values() for panel in panels}
    assert shown == {(name, percent) for name in studies.STUDIES for percent in (50, 75)}


@pytest.mark.parametrize("name", ["fig2", "fig7", "linear"])
def test_a_figure_is_run_kept_and_drawn(name: str, data: Path, tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    result = training_curves.run(
        name, "smoke", tmp_path, data=str(data), compute=Compute(processes=1), progress=lambda *what: told.append(what)
    )
    assert result is not None
    for panel in studies.CURVES[name]:
        found = training_curves.of(result, panel)
        assert list(found) == list(studies.STUDIES[panel.study].sizes["smoke"].local_steps)
        assert all(np.isfinite(each[panel.quantity]["mean"]).all() for each in found.values())
    assert "dir" not in json.dumps(result)
    assert told[-1][1] == told[-1][2]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    assert before
    # What is finished is not run again, and gives the same numbers.
    again = training_curves.run(name, "smoke", tmp_path, data=str(data), compute=Compute(processes=1))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")} == before
    assert again is not None
    for study in result["studies"]:
        first, second = (
            [(e["loss"], e["accuracy"]) for e in r["studies"][study]["combinations"]] for r in (result, again)
        )
        assert first == second
    training_curves.draw(result, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5000


def test_panels_are_run_one_by_one_and_make_the_figure_together(data: Path, tmp_path: Path) -> None:
    """What has finished can be shown before the rest has run, and is not run again."""

    def run(**part: Any) -> Any:
        asked = training_curves.CurvePart(**part)
        return training_curves.run("fig2", "smoke", tmp_path, asked, data=str(data), compute=Compute(processes=1))

    with pytest.raises(InputError, match=r"No run of figure 2 in .* has finished at the scale smoke"):
        run(finished=True)
    first = run(models=("cnn",), percents=(75,))
    assert list(first["studies"]) == ["cnn"]
    assert {each["values"]["percent"] for each in first["studies"]["cnn"]["combinations"]} == {75.0}
    assert run(finished=True)["studies"]["cnn"]["combinations"] == first["studies"]["cnn"]["combinations"]
    training_curves.draw(first, tmp_path / "one.png")
    training_curves.show(first)
    runs = {path.parent: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}
    assert len(runs) == 2
    # A curve is shown with the seeds that have finished, if any has, and wherever its data was.
    shutil.rmtree(next(path for path in runs if "local_steps=2" in path.name))
    part = training_curves.CurvePart(finished=True, seeds=2)
    elsewhere = training_curves.run("fig2", "smoke", tmp_path, part)
    assert elsewhere is not None
    for shown in (run(finished=True, seeds=2), elsewhere):
        (curve,) = shown["studies"]["cnn"]["combinations"]
        assert (curve["values"]["local_steps"], len(curve["runs"])) == (1, 1)
    with pytest.raises(InputError, match="has finished"):
        training_curves.run("fig2", "smoke", tmp_path, part, data=str(tmp_path))
    whole = run()
    assert len(whole["studies"]["cnn"]["combinations"]) == 4
    (kept,) = (place for place in runs if "local_steps=1," in place.name)
    assert (kept / "result.json").stat().st_mtime_ns == runs[kept]
    again = {
        (e["values"]["local_steps"], e["values"]["percent"]): e["loss"] for e in whole["studies"]["cnn"]["combinations"]
    }
    assert all(again[e["values"]["local_steps"], 75.0] == e["loss"] for e in first["studies"]["cnn"]["combinations"])


def test_a_figure_is_added_to_where_only_its_result_is_left(data: Path, tmp_path: Path) -> None:
    """Panel by panel and seed by seed, each time without the runs of before."""

    def run(place: str, earlier: Any, **part: Any) -> Any:
        asked, here = training_curves.CurvePart(models=("cnn",), **part), Compute(processes=1)
        return training_curves.run(
            "fig2", "smoke", tmp_path / place, asked, data=str(data), compute=here, earlier=earlier
        )

    def numbers(result: Any) -> dict[float, set[int]]:
        """How many seeds the curves of each panel have."""
        found: dict[float, set[int]] = {}
        for each in result["studies"]["cnn"]["combinations"]:
            found.setdefault(each["values"]["percent"], set()).add(len(each["runs"]))
        return found

    def panels(result: Any) -> set[float]:
        return set(numbers(result))

    one = json.loads(json.dumps(run("one", None, percents=(75,))))
    both = run("both", one, percents=(50,))
    assert panels(both) == {50.0, 75.0}
    assert not list((tmp_path / "both").rglob("*percent=75*"))
    kept = [each for each in both["studies"]["cnn"]["combinations"] if each["values"]["percent"] == 75]
    assert kept == one["studies"]["cnn"]["combinations"]
    seeds = run("seeds", both, percents=(75,), seeds=2)
    assert {path.name[-6:] for path in (tmp_path / "seeds").rglob("*seed=*")} == {"seed=1"}
    assert numbers(seeds) == {50.0: {1}, 75.0: {2}}
    # Fewer seeds than there are take none away.
    assert numbers(run("fewer", seeds, percents=(50,), seeds=1)) == {50.0: {1}, 75.0: {2}}
    assert not (tmp_path / "fewer").exists()
    # What is of another experiment is not taken.
    one["studies"]["cnn"]["experiment"]["algorithm"]["gamma"] = 0.07
    assert panels(run("other", one, percents=(50,))) == {50.0}
    with pytest.raises(InputError, match="has finished"):
        run("scale", {**both, "scale": "laptop"}, finished=True)


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ({"models": ("cn",)}, "Figure 2 has no model 'cn'; did you mean cnn"),
        ({"percents": (25,)}, "Figure 2 has no panel at 25%; it has 50% and 75%"),
    ],
)
def test_panels_that_a_figure_does_not_have_are_refused(part: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        training_curves.CurvePart(**part).panels("fig2")


def test_table1_of_a_network_goes_on_where_it_was(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(table1, "PERCENTS", (25, 100))
    told: list[tuple[str, int, int]] = []
    result = table1.run(
        studies.study("cnn"), "smoke", data=str(data), keep=tmp_path, progress=lambda *what: told.append(what)
    )
    assert [row["percent"] for row in result["rows"]] == [25, 100]
    # While a cell takes its minutes, it says that it moves: its training has two rounds, its measurement some passes.
    within = [(int(what.split()[0]), cells) for what, cells, _ in told if "rounds and passes" in what]
    assert within == sorted(within)
    assert {(1, 0), (2, 0)} <= set(within)
    assert {cells for steps, cells in within if steps > 2} == {0, 1}
    # The tight constants are ordered; so are secants at one and the same model, of which both are made.
    for cell in result["cells"]:
        found = {e["symbol"]: e["value"] for e in cell["measured"]["readings"][0]["estimates"]}
        assert 0 < found["L_h"] <= found["L_tilde"]
    assert str(data) not in json.dumps(result)
    kept = sorted(tmp_path.iterdir())
    assert len(kept) == 2
    kept[0].unlink()
    again = table1.run(studies.study("cnn"), "smoke", data=str(data), keep=tmp_path)
    assert again["rows"] == result["rows"]
    # A row alone, from the cells that are there; it says from where to where the training went.
    row = table1.run(studies.study("cnn"), "smoke", data=str(data), keep=tmp_path, percents=(100,))
    assert row["rows"] == again["rows"][1:]
    point = row["cells"][0]["measured"]["point"]
    assert point["round"] == 2
    assert point["first_training_loss"] == pytest.approx(np.log(10), rel=0.2)
    assert point["last_training_loss"] == pytest.approx(point["loss"], rel=1e-6)  # of all examples, at this scale
    table1.draw(row, tmp_path / "row.png")
    # Where only a result is left, its row is not measured again and stays in the table.
    place = tmp_path / "later"
    table = table1.run(studies.study("cnn"), "smoke", data=str(data), keep=place, percents=(25,), earlier=row)
    assert table["rows"] == result["rows"]
    assert [path.name for path in place.iterdir()] == ["cell-cnn-smoke-25-0.json"]
    # A second seed of one row leaves the others as they are, and so do fewer seeds.
    for seeds in (2, 1):
        table = table1.run(studies.study("cnn"), "smoke", seeds, str(data), place, percents=(100,), earlier=table)
        assert [len(each["rounds"]) for each in table["rows"]] == [1, 2]
        assert table["rows"][0] == result["rows"][0]
        assert table["settings"]["seeds"] == 2
    table1.show(table)
    assert "over 1 or 2 seeds" in " ".join(capsys.readouterr().out.split())
    row["cells"][0]["measured"]["settings"]["experiment"]["algorithm"]["gamma"] = 0.07
    alone = table1.run(studies.study("cnn"), "smoke", data=str(data), keep=place, percents=(25,), earlier=row)
    assert [each["percent"] for each in alone["rows"]] == [25]
    with pytest.raises(InputError, match="Table 1 has no row at 30%"):
        table1.run(studies.study("cnn"), "smoke", percents=(30,))
    with pytest.raises(InputError, match="Table 1 has no VGG-16, CINIC-10"):
        table1.run(studies.study("cinic10"), "smoke")


def test_a_part_of_the_examples_is_measured_at_the_same_model(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = studies.study("vgg11")
    size = replace(whole.sizes["smoke"], part=2)
    half = replace(whole, sizes={**whole.sizes, "smoke": size})
    (one, other) = (table1.run(each, "smoke", data=str(data), keep=tmp_path, percents=(50,)) for each in (whole, half))
    points = [table["cells"][0]["measured"]["point"] for table in (one, other)]
    assert [point["part"] for point in points] == [None, 2]
    assert points[0]["last_training_loss"] == points[1]["last_training_loss"]
    # At this scale the training loss is of all examples, which half of them do not share.
    assert points[0]["loss"] == pytest.approx(points[0]["last_training_loss"], rel=1e-6)
    assert points[1]["loss"] != pytest.approx(points[1]["last_training_loss"], rel=1e-6)
    # A result of one is not taken for one of the other.
    again = table1.run(whole, "smoke", data=str(data), percents=(50,), earlier=other)
    assert again["rows"] == one["rows"] != other["rows"]
    table1.show(other)
    assert "one in 2 of each worker's examples" in " ".join(capsys.readouterr().out.split())


def test_where_training_may_not_settle_every_row_has_all_rounds(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table1, "BEFORE", 0.0)
    monkeypatch.setattr(table1, "FALL", 0.99)  # nearly any fall will do
    mlp = studies.study("mlp")
    size = replace(mlp.sizes["smoke"], near=20)
    early, late = (
        replace(mlp, sizes={**mlp.sizes, "smoke": replace(size, settles=settles)}) for settles in (True, False)
    )
    settled = table1.run(early, "smoke", data=str(data), percents=(50,))
    assert settled["rows"][0]["rounds"] == [10]
    assert settled["cells"][0]["measured"]["point"]["reached"]
    # The row that ended early is not taken for one of all rounds; one of all rounds is.
    whole = table1.run(late, "smoke", data=str(data), percents=(50,), earlier=settled)
    assert whole["rows"][0]["rounds"] == [20]
    assert whole["cells"][0]["measured"]["point"]["origin"] == "after 20 rounds"
    assert table1.run(late, "smoke", percents=(50,), earlier=whole) == whole


def test_the_sketch_is_what_workers_do() -> None:
    """The paths are FedAvg's and gradient descent's, as the simulation takes them."""
    from fedgauge import fedavg

    for panel, part in zip(sketch.run()["panels"], sketch.PANELS.values(), strict=True):
        trace = simulate(sketch.federation(part), fedavg(sketch.GAMMA), local_steps=sketch.STEPS, rounds=1)
        np.testing.assert_allclose(trace.model, panel["average"][-1], rtol=1e-12)
        central = simulate(sketch.federation(part), fedavg(sketch.GAMMA), local_steps=1, rounds=sketch.STEPS)
        np.testing.assert_allclose(central.model, panel["central"][-1], rtol=1e-12)


def test_what_sampling_leaves_is_what_simulations_leave() -> None:
    """Mean of ‖∇f‖² over late rounds of a run, which forgets its beginning, against the exact expectation."""
    from fedgauge import fedavg, random_quadratics
    from fedgauge.federation.participation import Participation

    line = next(line for line in sampling.run()["lines"] if line["L_h"] == 0 and line["M"] == 5)
    federation = random_quadratics(sampling.WORKERS, sampling.DIM, hessian_spread=0.0, linear_spread=2.0, seed=1)
    trace = simulate(
        federation,
        fedavg(sampling.GAMMA),
        local_steps=sampling.LOCAL_STEPS,
        rounds=3000,
        participation=Participation("without-replacement", 5),
        record=Recording(watch=False),
    )
    # Some 2,000 rounds that forget each other within tens: a few per cent of chance.
    assert np.mean([record.grad2 for record in trace.rounds[1000:]]) == pytest.approx(line["left"], rel=0.15)


def _invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["paper", *arguments])


def test_all_runs_what_it_can_and_names_what_it_cannot(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Some of the parts, for time; the others are the same functions with other names.
    some = [part for part in exhibits.EXHIBITS if part.name in ("fig1", "sampling", "table1", "fig6", "fig8")]
    monkeypatch.setattr(exhibits, "EXHIBITS", some)
    own, out = tmp_path / "data", tmp_path / "out"
    shutil.copytree(data, own)
    shutil.rmtree(own / "CINIC-10")
    done = _invoke("all", "--effort", "smoke", "--data", str(own), "--out", str(out), "--jobs", "1", "--json")
    assert done.exit_code == 1, done.output
    rows = json.loads(done.stdout)["claims"]
    # A smoke run has no verdict; the two that are exact have no scale.
    told = {row["command"].removeprefix("fedgauge paper ") for row in rows if row["verdict"] != "not run"}
    assert told == {"figure 1", "sampling"}
    assert "fig6 was not run: cinic10 is not in" in done.stderr
    for part in some:
        place = out / (f"{part.name}-smoke" if part.efforts else part.name)
        assert (place / f"{part.picture}.png").exists() == (part.name != "fig6")
    assert (out / "ledger.md").read_text().startswith("# Ledger")
    assert _invoke("ledger", str(out)).exit_code == 0
