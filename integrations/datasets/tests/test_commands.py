"""The commands list and get, and published data sets in the commands of the library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from integrations.datasets.tests import made

from fedgauge.cli import main


@pytest.fixture(autouse=True)
def no_other_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDGAUGE_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def test_list_says_what_is_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.cifar100(tmp_path / "data/cifar-100-python")
    assert main(["data", "list"]) == 0
    said = capsys.readouterr().out
    assert "not as published" in said
    assert "mnist: run: fedgauge data get mnist" in said
    assert main(["data", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["data"] == str(tmp_path / "data")
    assert {each["name"]: each["state"] for each in found["datasets"]}["cifar100"] == "other"


@pytest.mark.parametrize("suffix", ["pdf", "svg"])
def test_partitions_of_many_workers_and_labels_are_shown_shortly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    made.cifar100(tmp_path / "data/cifar-100-python")
    plot = f"p.{suffix}"
    assert main(["data", "partition", "cifar100", "--scheme", "dirichlet", "--workers", "50", "--plot", plot]) == 0
    said = capsys.readouterr().out
    assert "and 30 more workers" in said
    assert "labels held" in said
    assert (tmp_path / plot).stat().st_size > 1000


def test_writers_become_workers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = made.mnist(tmp_path / "data/MNIST/raw")["train-labels-idx1-ubyte"]
    made.writers(tmp_path / "data/MNIST/raw", labels)
    assert main(["data", "partition", "qmnist", "--scheme", "id", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["sizes"] == [7] * 5 + [5]
    assert summary["labels"] == list("0123456789")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("data partition mnist", "mnist is not complete in {data}: train-images-idx3-ubyte.gz is missing"),
        ("data get nothing", "There is no data set 'nothing'"),
        ("data get digits", "digits is not downloaded as files"),
        ("data get mnist --url ftp://x", "--url must begin with http:// or https://"),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, sentence: str
) -> None:
    assert main(arguments.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("fedgauge: " + sentence.format(data=tmp_path / "data"))
    assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_librarys_own_data_sets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list"]) == 0
    assert "20 documents, generated" in " ".join(capsys.readouterr().out.split())
