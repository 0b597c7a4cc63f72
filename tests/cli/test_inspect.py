"""The command that inspects saved models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.cli.command import Capture, answer, snapshot, words

import fedgauge as fg
from fedgauge.cli import main


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
    found = fg.inspect_models("global.pt", ["a.pt", "b.safetensors"], next="next.pt")
    assert printed == found.to_json()
    assert (printed["alignment"], printed["spread"], printed["server_step"]) == (0.5, 0.5, 0.5)
    assert fg.Inspection.from_json(printed) == found
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
