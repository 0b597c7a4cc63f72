"""An experiment on a network gives what its parts give, and says what does not fit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.cli.command import Capture, answer, words
from torch import nn
from torch.nn import functional

from fedgauge.base.errors import InputError
from fedgauge.base.terminal import forget_notices
from fedgauge.cli import main
from fedgauge.federation.models import Model, make_model
from fedgauge.federation.random_quadratics import random_quadratics
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import execute, prepare
from fedgauge.simulation.options import Keep
from fedgauge.simulation.runs.reader import read_trace

BASE: dict[str, Any] = {"source": "digits", "gamma": 0.1, "local_steps": 3, "rounds": 4, "processes": 1}


def made(**changes: Any) -> Experiment:
    return Experiment.of({**BASE, **changes})


def test_the_model_is_kept_by_name_and_has_the_accuracy_that_was_recorded(tmp_path: Path) -> None:
    experiment = made()
    trace = execute(experiment, keep=tmp_path / "run")
    module = make_model("mlp", (1, 8, 8), 10).make()
    module.load_state_dict(load_file(tmp_path / "run" / "state_dict.safetensors"))
    dataset = prepare(experiment).dataset
    assert dataset is not None
    with torch.no_grad():
        outputs = module(torch.tensor(dataset.test_inputs))
    accuracy = float((outputs.argmax(dim=1).numpy() == dataset.test_labels).mean())
    assert trace.rounds[-1].accuracy == accuracy
    assert read_trace(tmp_path / "run") == trace
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])
    assert np.array_equal(flat.numpy(), trace.model)


def test_an_experiment_that_is_kept_runs_again_to_the_same_bits(tmp_path: Path) -> None:
    trace = execute(made(percent=75, seed=3, model="softmax", model_option={"l2": 0.01}), keep=tmp_path / "run")
    again = Experiment.read(tmp_path / "run" / "experiment.toml")
    assert execute(again) == trace


def test_labels_that_run_out_are_filled_up_by_default_and_the_run_says_so(tmp_path: Path) -> None:
    experiment = made(workers=4)
    trace = execute(experiment, keep=tmp_path / "run")
    kept = Experiment.read(tmp_path / "run" / "experiment.toml")
    assert (experiment.data.fill, kept.data.fill, kept.data.percent) == (None, True, None)
    assert execute(kept) == trace
    assert execute(experiment, keep=Keep(tmp_path / "run", resume=True)) == trace


def test_inputs_far_above_one_are_noticed_unless_a_scale_was_chosen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(60) % 3
    inputs = generator.normal(size=(60, 4)).astype(np.float32)
    for name, factor in {"small": 1.0, "large": 300.0}.items():
        inputs[:, 2] *= factor
        np.savez(tmp_path / f"{name}.npz", x=inputs, y=labels)

    def sentences(name: str, **changes: Any) -> list[str]:
        caplog.clear()
        forget_notices()
        prepare(made(source=str(tmp_path / f"{name}.npz"), workers=3, **changes))
        return [record.getMessage() for record in caplog.records]

    (sentence,) = sentences("large")
    assert "large" in sentence
    assert "scale='measured'" in sentence
    assert not sentences("small")
    assert not sentences("large", scale="measured")
    assert not sentences("large", scale="unit")


def test_more_participants_than_workers_need_a_sampling_with_replacement() -> None:
    with pytest.raises(InputError, match="participants must be at most 10, the number of workers, not 20"):
        prepare(made(participants=20))
    assert prepare(made(participants=20, sampling="with-replacement")).participation.participants == 20
    assert prepare(made(participants=10)).participation.sampling == "with-replacement"


def test_a_value_that_is_no_text_or_number_is_named_by_its_type() -> None:
    with pytest.raises(InputError, match=r"data\.name must be text, not an object of type ndarray"):
        made(source=np.zeros(1000))


@pytest.mark.parametrize("processes", [2, 3])
def test_the_number_of_processes_changes_no_bit(processes: int) -> None:
    assert execute(made(processes=processes)) == execute(made())


def test_targets_end_a_run_and_watching_can_be_left_out() -> None:
    whole = execute(made(rounds=12, local_steps=10))
    target = float(whole.accuracies[6])
    first = int(np.flatnonzero(whole.accuracies >= target)[0])
    stopped = execute(made(rounds=12, local_steps=10, goal=f"accuracy={target!r}"))
    assert (stopped.status, stopped.stopped_at) == ("target", first)
    blind = execute(made(rounds=12, local_steps=10, watch=False))
    assert blind.losses.tolist() == whole.losses.tolist()
    assert all(record.spread is None and record.L_h_ratio is None for record in blind.rounds)


def test_weights_by_size_and_a_partition_of_its_own_seed() -> None:
    prepared = prepare(made(scheme="quantity", weights="sizes", workers=5))
    assert prepared.partition is not None
    assert prepared.participation.weights == prepared.partition.weights
    assert len(set(prepared.partition.weights)) > 1
    one, other = prepare(made(seed=1, partition_seed=0)), prepare(made(seed=2, partition_seed=0))
    assert one.partition == other.partition
    assert prepare(made(seed=1)).partition != prepare(made(seed=2)).partition


def test_another_test_set_is_another_run(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for name, tests in (("a", 5), ("b", 6)):
        x, y = np.random.default_rng(1).random((40, 6)), np.arange(40) % 2
        np.savez(
            tmp_path / f"{name}.npz", x_train=x, y_train=y, x_test=generator.random((tests, 6)), y_test=[0] * tests
        )
    execute(made(source=str(tmp_path / "a.npz"), workers=2), keep=tmp_path / "run")
    with pytest.raises(InputError, match="evaluator"):
        execute(made(source=str(tmp_path / "b.npz"), workers=2), keep=Keep(tmp_path / "run", resume=True))


# -- models of one's own -------------------------------------------------------------------------------------------


def sound(shape: Any, classes: int, width: int = 4) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Tanh(), nn.Linear(width, classes))


def text(shape: Any, classes: int) -> str:
    return "no module"


def failing(shape: Any, classes: int) -> nn.Module:
    raise RuntimeError("of my own.\nMore about it.")


def empty(shape: Any, classes: int) -> nn.Module:
    return nn.Flatten()


def misfit(shape: Any, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3, classes))


def too_few(shape: Any, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))


def vector_loss(shape: Any, classes: int) -> Model:
    return Model("own", lambda: sound(shape, classes), lambda o, y: functional.cross_entropy(o, y, reduction="none"))


def normed(shape: Any, classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.Linear(8, classes)
    )


HERE = "tests.experiment.test_prepare"


def test_a_model_of_ones_own_is_trained() -> None:
    trace = execute(made(model=f"{HERE}:sound", model_option={"width": 5}))
    assert len(trace.model) == 64 * 5 + 5 + 5 * 10 + 10


WRONG: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "no such module": ({"model": "no_such.module:make"}, ("no_such", "import")),
    "no such factory": ({"model": f"{HERE}:sund"}, ("has no sund",)),
    "text": ({"model": f"{HERE}:text"}, ("Model or a torch module", "str")),
    "failing": ({"model": f"{HERE}:failing"}, ("failing", "RuntimeError: of my own", "(1, 8, 8)")),
    "no such option": ({"model": f"{HERE}:sound", "model_option": {"depth": 3}}, ("sound", "depth")),
    "empty name": ({"model": ":"}, ("':'", "does not name a function", "package.module:function")),
    "no parameters": ({"model": f"{HERE}:empty"}, ("no parameters",)),
    "misfit": ({"model": f"{HERE}:misfit"}, ("misfit", "misfit on digits", "(1, 8, 8)")),
    "too few outputs": ({"model": f"{HERE}:too_few"}, ("(3,) outputs", "labels 0 to 9")),
    "vector loss": ({"model": f"{HERE}:vector_loss"}, ("loss", "one number")),
    "batch norm": ({"model": f"{HERE}:normed"}, ("BatchNorm (2)", "no running statistics", "GroupNorm")),
    "vgg on digits": ({"model": "vgg11"}, ("divisible by 32", "(1, 8, 8)", "choose mlp")),
    "no such model": ({"model": "mpl"}, ("mpl", "did you mean mlp?")),
    "option of another model": ({"model_option": {"filters": 3}}, ("mlp", "filters", "width")),
    "option of another type": ({"model_option": {"width": "wide"}}, ("width", "whole number", "'wide'")),
    "no such device": ({"device": "gpu"}, ("device", "'gpu'")),
    "more workers than data": ({"workers": 2000}, ("workers", "1438", "2000")),
    "percent": ({"percent": 101}, ("percent", "100", "101")),
    "negative percent": ({"percent": -1}, ("percent", "-1")),
    "no such scheme": ({"scheme": "papr"}, ("papr", "did you mean paper?")),
    "parameter of another scheme": ({"scheme": "iid", "percent": 50}, ("iid", "percent")),
    "weights of another number": ({"weights": [1, 2]}, ("weights", "10", "2")),
    "too many participants": ({"participants": 11, "sampling": "without-replacement"}, ("participants", "10", "11")),
    "no such data": ({"source": "digts"}, ("digts", "did you mean digits?")),
    "no published mean": ({"scale": "published"}, ("digits", "published mean", "scale='measured'")),
    "batch": ({"batch_size": 0}, ("batch_size", "at least 1")),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_said_before_anything_is_written(name: str, tmp_path: Path) -> None:
    changes, words = WRONG[name]
    with pytest.raises(InputError) as caught:
        execute(made(**changes), keep=tmp_path / "run")
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_target_accuracy_needs_something_to_test_on(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 3)), y=[0, 1, 0, 1])
    with pytest.raises(InputError, match="but a has none"):
        prepare(made(source=str(tmp_path / "a.npz"), workers=2, goal="accuracy=0.5"))
    assert prepare(made(source=str(tmp_path / "a.npz"), workers=2)).evaluator is None


OWN = """
from dataclasses import replace
from fedgauge import fedavg

def signed(gamma, power=1.0, eta=1.0):
    made = fedavg(gamma, eta)
    return replace(
        made, step=lambda local, gradient: {"x": local["x"] - gamma * gradient.sign() * gradient.abs() ** power}
    )
"""


def test_an_algorithm_of_ones_own_runs_from_toml_and_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_algorithms.py").write_text(OWN)
    random_quadratics(4, 3, sigma2=0.1).write("fed.json")
    name = '[data]\nname = "fed.json"\n[algorithm]\nname = "own_algorithms:signed"\n'
    (tmp_path / "own.toml").write_text(f"{name}gamma = 0.1\npower = 0.5\n[run]\nrounds = 5\n")
    found = answer(capsys, "simulate own.toml --out runs/toml")
    line = "simulate fed.json --algorithm own_algorithms:signed --gamma 0.1 --algorithm-option power=0.5 --rounds 5"
    again = answer(capsys, f"{line} --processes 2 --out runs/line")
    plain = answer(capsys, "simulate fed.json --gamma 0.1 --rounds 5")
    assert found["rounds"] == again["rounds"] != plain["rounds"]
    assert set(found["settings"]["algorithm"]) == {"name", "gamma", "power", "eta", "code"}
    # It can be shown and reported, and no theorem is said to cover it.
    assert "your own" in words(capsys, "runs show runs/toml")
    assert main(["report", "runs/toml", "--out", "report.html"]) == 0
    capsys.readouterr()
    # The run is what its code was: one with other code under the same name is not resumed.
    (tmp_path / "own_algorithms.py").write_text(OWN.replace("** power", "** (2 * power)"))
    monkeypatch.delitem(sys.modules, "own_algorithms")
    assert main(["simulate", "own.toml", "--out", "runs/toml", "--resume"]) == 2
    assert "algorithm code" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--algorithm no_such_module:f --gamma 0.1", "Cannot import no_such_module for the algorithm"),
        ("--algorithm math:hypot --gamma 0.1", "math:hypot"),
        ("--gamma 0.1 --algorithm-option power=2", "no key 'power'"),
    ],
)
def test_what_is_no_algorithm_is_refused(
    line: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    random_quadratics(3, 2).write("fed.json")
    assert main(["simulate", "fed.json", *line.split()]) == 2
    assert says in capsys.readouterr().err


def test_epochs_are_steps_by_the_size_of_a_shard() -> None:
    experiment = Experiment.of(
        {"source": "digits", "scheme": "dirichlet", "gamma": 0.1, "rounds": 4, "local_epochs": 2, "batch_size": 32}
    ).changed({"gamma_schedule": "cosine,by=step"})
    setup = prepare(experiment)
    assert setup.partition is not None
    expected = tuple(2 * int(np.ceil(size / 32)) for size in setup.partition.sizes)
    assert setup.local_steps == expected
    over = round(4 * np.mean(expected))
    assert setup.algorithm.parameters["gamma_schedule"] == f"cosine,by=step,over={over}"
    equal = prepare(experiment.changed({"scheme": "paper"}))
    assert isinstance(equal.local_steps, int)
