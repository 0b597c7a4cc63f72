from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedgauge.cli import main
from fedgauge.data.partition import Partition


@pytest.fixture(autouse=True)
def no_other_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDGAUGE_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def test_partition_prints_draws_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "data",
        "partition",
        "digits",
        "--scheme",
        "paper",
        "--percent",
        "50",
        "--workers",
        "10",
        "--seed",
        "3",
    ]
    assert main([*arguments, "--plot", "p.png", "--out", "p.json"]) == 0
    said = capsys.readouterr()
    assert "8 of 1438 examples dropped" in said.out
    assert said.err == ""
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    written = Partition.read(tmp_path / "p.json")
    assert main([*arguments, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["sizes"] == written.sizes.tolist() == [143] * 10
    assert summary["parameters"] == {"percent": 50.0, "labels_per_worker": 1, "per_worker": 143}
    assert (summary["dataset"], summary["seed"], summary["dropped"], summary["num_workers"]) == ("digits", 3, 8, 10)
    assert np.sum(summary["label_counts"], axis=1).tolist() == [143] * 10


def test_an_npz_file_is_partitioned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "mine.npz", x=np.zeros((30, 2)), y=np.arange(30) % 3)
    assert (
        main(["data", "partition", "mine.npz", "--scheme", "shards", "--shards", "1", "--workers", "3", "--json"]) == 0
    )
    assert np.array(json.loads(capsys.readouterr().out)["label_counts"]).max() == 10


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("data partition digits --percent 101", "--percent must be a number from 0 to 100, not 101.0."),
        (
            "data partition digits --workers 1439",
            "--workers must be at most 1438, the number of examples, not 1439.",
        ),
        ("data partition digits --alpha 1", "The scheme paper has no parameter alpha"),
        ("data partition digits --plot p.gif", "--plot must be a file that ends in .png"),
        ("data partition digits --out none/p.json", "Cannot write none/p.json: there is no directory none"),
        ("data partition nothing", "There is no data set 'nothing'"),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, sentence: str
) -> None:
    assert main(arguments.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("fedgauge: " + sentence)
    assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_partition_shows_shifts_with_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["data", "partition", "digits", "--scheme", "iid", "--workers", "4"]
    assert main([*arguments, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    shifted = [*arguments, "--shift", "rotation=0.5", "--shift", "swap=1"]
    assert main([*shifted, "--plot", "p.png"]) == 0
    said = capsys.readouterr().out
    assert all(words in said for words in ("rotation 0.5", "swap 1", "-68°", "↔"))
    assert main([*arguments, "--plot", "q.png"]) == 0
    assert (tmp_path / "p.png").stat().st_size > 1.5 * (tmp_path / "q.png").stat().st_size
    capsys.readouterr()
    assert main([*shifted, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["shift"] == {"rotation": 0.5, "swap": 1.0}
    assert len(found["changes"]["rotation"]) == 4
    # Swapping whole pairs of classes permutes each worker's counts.
    for one, other in zip(plain["label_counts"], found["label_counts"], strict=True):
        assert sorted(one) == sorted(other)
        assert one != other
