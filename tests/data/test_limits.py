"""Files that would take far more memory, or time, than they have bytes are refused before they do."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgauge.base.errors import InputError
from fedgauge.cli import main
from fedgauge.data import dataset
from fedgauge.data.dataset import from_torch, read_npz
from fedgauge.data.partition import Partition

MEGABYTE = 2**20


@pytest.fixture
def frugal() -> Iterator[None]:
    """A test that takes little memory."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * MEGABYTE


X, Y = np.zeros((4, 3)), np.array([0, 1, 0, 1])
NPZ: dict[str, tuple[dict[str, Any], str]] = {
    "one large label": ({"x": X, "y": [0, 1, 0, 10**9]}, "The label 1000000000 would need 1,000,000,001 classes, and"),
    "one large label in floats": ({"x": X, "y": [0, 1, 0, 1e300]}, "classes, and at most 100,000 are made"),
    "NaN": ({"x": X, "y": [0, 1, np.nan, 1]}, "The train labels of bad must be finite numbers"),
    "infinite": ({"x": X, "y": [0, 1, np.inf, 1]}, "The train labels of bad must be finite numbers"),
    "NaN in the test labels": (
        {"x_train": X, "y_train": Y, "x_test": X, "y_test": [0, 1, np.nan, 1]},
        "The test labels of bad must be whole numbers",
    ),
    "a single input": ({"x": 3.0, "y": Y}, "must have one entry per example, not be a single number"),
    "a single label": ({"x": X, "y": 3}, "must be 4 numbers, one per example, not an array of shape ()"),
    "width 0": ({"x": np.zeros((4, 0)), "y": Y}, "must have at least one number each, not the shape (0,)"),
    "height 0": ({"x": np.zeros((4, 1, 0, 3)), "y": Y}, "must have at least one number each, not the shape (1, 0, 3)"),
}


@pytest.mark.parametrize("case", NPZ)
@pytest.mark.usefixtures("frugal")
def test_npz_files(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arrays, words = NPZ[case]
    np.savez("bad.npz", **arrays)
    assert main(["data", "partition", "bad.npz", "--workers", "2"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err


@pytest.mark.usefixtures("frugal")
def test_torch_data_has_the_same_limit() -> None:
    with pytest.raises(InputError, match="at most 100,000 are made"):
        from_torch([(np.zeros(3, np.float32), 0), (np.ones(3, np.float32), 10**9)])


@pytest.mark.usefixtures("frugal")
def test_ids_that_would_fill_the_memory_are_not_counted() -> None:
    with pytest.raises(InputError, match="labels must be below 100,000 to be counted, not 1000000000"):
        Partition("iid", {}, 0, 4, np.array([2, 2]), np.arange(4)).label_counts(np.array([0, 0, 0, 10**9]))


def test_an_npz_file_is_not_unpacked_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "_FREELY", MEGABYTE)
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, x=np.zeros((1000, 4000), np.uint8), y=np.zeros(1000, np.int64))
    with pytest.raises(InputError, match=r"would take 4,\d+,\d+ bytes of memory, \d+ times its size; more than 1 GiB"):
        read_npz(path)
    np.savez(path, x=np.zeros((1000, 4000), np.uint8), y=np.zeros(1000, np.int64))
    assert read_npz(path).num_train == 1000, "a file that is that large itself is no trap"
