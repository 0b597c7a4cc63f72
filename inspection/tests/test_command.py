"""The command that inspects saved models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.cli.command import Capture, answer, snapshot, words
from torch import nn

import fedgauge as fg
from fedgauge.cli import main
from fedgauge_inspection import Inspection, inspect_models


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    start = {"w": torch.tensor([[1.0, 0.0]]), "steps": torch.tensor(3)}
    torch.save(start, "global.pt")
    torch.save({**start, "w": torch.tensor([[2.0, 0.0]])}, "a.pt")
    save_file({**start, "w": torch.tensor([[1.0, 1.0]])}, "b.safetensors")
    torch.save({**start, "w": torch.tensor([[1.25, 0.25]])}, "next.pt")
    return tmp_path


def test_it_prints_what_python_returns(files: Path, capsys: Capture) -> None:
    line = "runs inspect global.pt a.pt b.safetensors --next next.pt"
    printed = answer(capsys, line)
    found = inspect_models("global.pt", ["a.pt", "b.safetensors"], next="next.pt")
    assert printed == found.to_json()
    assert (printed["alignment"], printed["spread"], printed["server_step"]) == (0.5, 0.5, 0.5)
    assert Inspection.from_json(printed) == found
    text = words(capsys, line)
    assert "Averaging left 50% of the mean squared change of 2 clients" in " ".join(text.split())
    assert "The server's step is 0.5 times the mean change." in text
    assert "not floating-point numbers: steps." in text
    assert "need data" in " ".join(text.split())


def test_sizes_are_weights(files: Path, capsys: Capture) -> None:
    printed = answer(capsys, "runs inspect global.pt a.pt b.safetensors --sizes 30,10")
    assert [client["weight"] for client in printed["clients"]] == [0.75, 0.25]
    assert printed["alignment"] == pytest.approx(0.75**2 + 0.25**2)


def test_it_writes_a_file_and_a_picture(files: Path, capsys: Capture) -> None:
    said = words(capsys, "runs inspect global.pt a.pt b.safetensors --out found.json --plot found.svg")
    assert "Written: found.json" in said
    assert "Written: found.svg" in said
    assert json.loads(Path("found.json").read_text())["kind"] == "inspection"
    assert b"</svg>" in Path("found.svg").read_bytes()
    said = words(capsys, "runs inspect global.pt global.pt --plot none.png")
    assert "no picture" in said
    assert not Path("none.png").exists()


class Own(nn.Module):
    """A model that is not one of ours."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.flat, self.norm, self.drop, self.last = nn.Flatten(), nn.BatchNorm1d(64), nn.Dropout(), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(self.drop(self.norm(self.flat(x))), self.last.weight, self.last.bias)


OWN = "inspection.tests.test_command:own"
DIGITS = f"--experiment digits --workers 3 --scheme iid --model {OWN} --batch-norm averaged"


def own(shape: tuple[int, ...], classes: int) -> nn.Module:
    return Own()


@pytest.fixture
def round_of_digits(files: Path) -> str:
    """The files of a round of a model that is not one of ours, on digits."""
    torch.manual_seed(0)
    module = Own()
    torch.save(module.state_dict(), "start.pt")
    for client in range(3):
        with torch.no_grad():
            for each in module.parameters():
                each.add_(0.1 * torch.randn_like(each))
        module.norm.running_mean = torch.full((64,), 0.1 * client)
        torch.save(module.state_dict(), f"{client}.pt")
    return "runs inspect start.pt 0.pt 1.pt 2.pt"


def measured(capsys: Capture, line: str) -> Any:
    """The JSON that a command prints; what dropout and BatchNorm mean is said on standard error."""
    assert main([*line.split(), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_with_data_it_measures_what_python_does(round_of_digits: str, capsys: Capture) -> None:
    printed = measured(capsys, f"{round_of_digits} {DIGITS}")
    chosen = {"source": "digits", "workers": 3, "scheme": "iid", "model": OWN, "gamma": 1.0}
    federation = fg.prepare(fg.Experiment.of({**chosen, "batch_norm": "averaged"})).federation
    found = inspect_models("start.pt", ["0.pt", "1.pt", "2.pt"], federation=federation)
    assert printed == found.to_json()
    assert printed["measured"]["record"]["L_tilde_ratio"] > 0
    assert printed["clients"][0]["losses"][0] > 0
    assert main([*round_of_digits.split(), *DIGITS.split()]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Losses and gradients on the clients' own data" in text
    assert "drift changes the mean gradient by" in text
    assert "BatchNorm normalises by each client's own running statistics" in text


def test_an_experiment_names_data_model_and_weights(round_of_digits: str, capsys: Capture) -> None:
    Path("run.toml").write_text(
        'data = {name = "digits", scheme = "quantity", workers = 3}\n'
        'model = {name = "inspection.tests.test_command:own", batch_norm = "averaged"}\n'
        'algorithm = {name = "fedavg", gamma = 0.1}\nrun = {weights = "sizes"}\n'
    )
    printed = measured(capsys, f"{round_of_digits} --experiment run.toml")
    federation: Any = fg.prepare(fg.Experiment.read("run.toml")).federation
    sizes = federation.sizes(np.arange(3))
    assert [each["weight"] for each in printed["clients"]] == pytest.approx((sizes / sizes.sum()).tolist())
    given = measured(capsys, f"{round_of_digits} --experiment run.toml --sizes 1,1,1")
    assert {each["weight"] for each in given["clients"]} == {1 / 3}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--model softmax", "--model softmax belongs to the clients' data; name them too, as in --experiment digits."),
        ("--experiment nowhere", "There is no data set 'nowhere'"),
        ("--experiment nowhere.toml", "nowhere.toml"),
        (DIGITS.replace("--workers 3", "--workers 4"), "those of 4 workers, but 3 client models were given"),
        ("--experiment digits --workers 3 --scheme iid", "The global model has no parameter 1.weight"),
        (f"{DIGITS} --sizes 1,2", "--sizes must have one number for each of 3 clients, not 2."),
        (DIGITS.replace("averaged", "frozen"), "is not trained, and is not the same there"),
        ("--experiment digits --workers 3 --percent 900", "percent"),
    ],
)
def test_a_mistake_with_data_gets_one_sentence(
    options: str, sentence: str, round_of_digits: str, capsys: Capture
) -> None:
    assert main([*round_of_digits.split(), *options.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err.splitlines()[-1]
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("global.pt missing.pt", "Cannot read missing.pt: No such file or directory; name the file of a model."),
        ("global.pt a.pt --sizes 1,2", "--sizes must have one number for each of 1 clients, not 2."),
        ("global.pt a.pt --sizes many", "--sizes must be numbers separated by commas, as in 100,50,80, not 'many'."),
        ("global.pt a.pt --sizes 0", "--sizes must be a finite number above 0, not 0.0."),
        ("global.pt a.pt --next missing.pt", "Cannot read missing.pt"),
        ("global.pt text.pt", "text.pt holds no tensors that can be read"),
        ("global.pt other.pt", "other.pt has v, which global.pt does not have; name models of one architecture."),
        ("global.pt nan.pt", "nan.pt has a number in w that is not finite"),
        ("global.pt a.pt --plot found.txt", "--plot must be a file that ends in .png, .pdf or .svg"),
        ("global.pt a.pt --out nowhere/found.json", "there is no directory nowhere"),
    ],
)
def test_a_mistake_gets_one_sentence(line: str, sentence: str, files: Path, capsys: Capture) -> None:
    Path("text.pt").write_text("no model")
    torch.save({"v": torch.ones(1)}, "other.pt")
    torch.save({"w": torch.tensor([[1.0, torch.nan]]), "steps": torch.tensor(3)}, "nan.pt")
    before = snapshot(files)
    assert main(["runs", "inspect", *line.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1
    assert snapshot(files) == before


def test_it_is_found_where_it_was_expected(capsys: Capture) -> None:
    assert main(["inspect", "global.pt"]) == 2
    assert "runs inspect" in capsys.readouterr().err
