"""Data sets by name: what is found where, and what is said of what is missing or damaged."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import pickle
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integrations.datasets.tests import made

from fedgauge.base.errors import InputError
from fedgauge.base.user_code import DATASETS
from fedgauge.data.loader import PUBLISHED, load_dataset
from fedgauge_datasets import catalogue
from fedgauge_datasets.catalogue import ENTRIES, Status, data_directory, status
from fedgauge_datasets.images import read_idx


@pytest.fixture(autouse=True)
def no_other_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever data the machine has is not seen by these tests."""
    monkeypatch.delenv("FEDGAUGE_DATA", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    fashion = dataclasses.replace(ENTRIES["fashion-mnist"], elsewhere=(tmp_path / "system",))
    monkeypatch.setattr(catalogue, "ENTRIES", {**ENTRIES, "fashion-mnist": fashion})


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("name", "folder"),
    [("mnist", "MNIST/raw"), ("mnist", "."), ("fashion-mnist", "FashionMNIST/raw"), ("fashion-mnist", ".")],
)
def test_idx_files_are_found_plain_or_gzipped(tmp_path: Path, name: str, folder: str, plain: bool) -> None:
    arrays = made.mnist(tmp_path / folder, plain)
    dataset = load_dataset(name, tmp_path)
    np.testing.assert_array_equal(dataset.train_inputs[:, 0], arrays["train-images-idx3-ubyte"])
    np.testing.assert_array_equal(dataset.test_labels, arrays["t10k-labels-idx1-ubyte"])
    assert (dataset.name, dataset.mean, len(dataset.ids)) == (name, ENTRIES[name].mean, 0)
    assert status(name, tmp_path).state == ("ready" if plain else "other")


def test_the_directory_is_the_one_given_or_the_environments_or_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data_directory() == tmp_path / "share" / "fedgauge"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert data_directory() == Path("~/.local/share/fedgauge").expanduser()
    made.mnist(tmp_path / "here" / "MNIST/raw")
    monkeypatch.setenv("FEDGAUGE_DATA", str(tmp_path / "here"))
    assert load_dataset("mnist").num_train == 40
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte.gz is missing"):
        load_dataset("mnist", tmp_path)


def test_debians_fashion_mnist_is_found(tmp_path: Path) -> None:
    assert ENTRIES["fashion-mnist"].elsewhere == (Path("/usr/share/datasets/fashion-mnist"),)
    made.mnist(tmp_path / "system")
    assert load_dataset("fashion-mnist").num_train == 40


def test_mnist_is_not_taken_for_fashion_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made.mnist(tmp_path)
    md5 = hashlib.md5((tmp_path / "train-labels-idx1-ubyte.gz").read_bytes()).hexdigest()
    mnist = dataclasses.replace(ENTRIES["mnist"], files={**ENTRIES["mnist"].files, "train-labels-idx1-ubyte.gz": md5})
    monkeypatch.setattr(catalogue, "ENTRIES", {**catalogue.ENTRIES, "mnist": mnist})
    assert status("mnist", tmp_path).state == "other"
    assert status("fashion-mnist", tmp_path).state == "missing"


@pytest.mark.parametrize("folder", ["MNIST/raw", "QMNIST/raw", "."])
def test_qmnist_adds_the_writers(tmp_path: Path, folder: str) -> None:
    labels = made.mnist(tmp_path / "MNIST/raw")["train-labels-idx1-ubyte"]
    with pytest.raises(InputError, match=r"qmnist-train-labels.* is missing \(MD5 0058f8.*facebookresearch/qmnist"):
        load_dataset("qmnist", tmp_path)
    writers = made.writers(tmp_path / folder, labels)
    np.testing.assert_array_equal(load_dataset("qmnist", tmp_path).ids["writer"], writers)
    made.writers(tmp_path / folder, labels[::-1])
    with pytest.raises(InputError, match="does not belong to these images"):
        load_dataset("qmnist", tmp_path)


def test_cifar_and_cinic_are_found(tmp_path: Path) -> None:
    made.cifar10(tmp_path / "cifar-10-batches-py")
    made.cifar100(tmp_path / "cifar-100-python")
    made.cinic10(tmp_path / "CINIC-10")
    assert load_dataset("cifar10", tmp_path).train_inputs.shape == (100, 3, 32, 32)
    assert load_dataset("cifar100", tmp_path).num_classes == 100
    seen: list[tuple[str, int, int | None]] = []
    cinic = load_dataset("cinic10", tmp_path, progress=lambda what, done, total: seen.append((what, done, total)))
    assert cinic.train_inputs.shape == cinic.test_inputs.shape == (20, 3, 32, 32)
    assert seen == [("pictures", 0, 40), ("pictures", 20, 40)]
    np.testing.assert_array_equal(cinic.train_labels, np.repeat(np.arange(10), 2))
    states = {name: status(name, tmp_path).state for name in ENTRIES}
    assert states == {
        "digits": "ready",
        "text": "ready",
        "shakespeare": "missing",
        "mnist": "missing",
        "qmnist": "missing",
        "fashion-mnist": "missing",
        "cifar10": "other",
        "cifar100": "other",
        "cinic10": "ready",
    }


def test_the_library_knows_what_the_catalogue_has() -> None:
    brought = {
        each.name for each in entry_points(group=DATASETS) if each.dist and each.dist.name == "fedgauge-datasets"
    }
    assert brought == {*PUBLISHED} == {*ENTRIES} - {"digits", "text"}


def test_data_sets_are_read_without_torch() -> None:
    code = "import sys, fedgauge_datasets.reading; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_directory_that_is_none_and_a_name_that_is_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"data must be a directory, not .*none'"):
        load_dataset("mnist", tmp_path / "none")
    with pytest.raises(InputError, match="There is no data set 'cifar'; did you mean cifar10"):
        load_dataset("cifar")


def test_status_goes_to_json_and_back(tmp_path: Path) -> None:
    made.mnist(tmp_path / "MNIST/raw")
    (tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte.gz").unlink()
    found = status("mnist", tmp_path)
    assert found.state == "incomplete"
    assert [file.state for file in found.files] == ["differs"] * 3 + ["missing"]
    assert Status.from_json(found.to_json()) == found


IMAGES, LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"


def _flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "gzip cut": (IMAGES, lambda c: c[: len(c) // 2], "its gzip compression is damaged"),
    "gzip flipped": (IMAGES, _flipped, "its gzip compression is damaged"),
    "gzip empty": (IMAGES, lambda c: c[:5], "its gzip compression is damaged"),
    "empty": (IMAGES, lambda c: b"", "begins with nothing, which is not the magic of idx"),
    "text": (IMAGES, lambda c: b"<html>404", "begins with 3c68746d, which is not the magic"),
    "type": (IMAGES, lambda c: b"\0\0\7\1\0\0\0\1a", "begins with 00000701"),
    "axes cut": (IMAGES, lambda c: b"\0\0\x08\3\0\0\0\1", "ends within the lengths of its 3 axes"),
    "truncated": (IMAGES, lambda c: gzip.decompress(c)[:-1], r"\(40, 4, 4\) numbers need 656 bytes, and it has 655"),
    "too long": (IMAGES, lambda c: gzip.decompress(c) + b"\0", "656 bytes, and it has 657"),
    "huge": (IMAGES, lambda c: b"\0\0\x08\3" + b"\xff" * 12, "need .* bytes, and it has 16"),
    "labels for images": (IMAGES, lambda c: made.idx(np.zeros(40, np.uint8)), r"hold images.*shape \(40,\)"),
    "images for labels": (LABELS, lambda c: made.idx(np.zeros((40, 2), np.uint8)), r"hold labels.*shape \(40, 2\)"),
    "too few labels": (LABELS, lambda c: made.idx(np.zeros(39, np.uint8)), "39 labels, and train-images.* 40 images"),
    "label 10": (LABELS, lambda c: made.idx(np.full(40, 10, np.uint8)), "label 10 is outside its classes 0 to 9"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_named_with_its_checksums_and_the_command_that_mends_it(tmp_path: Path, name: str) -> None:
    made.mnist(tmp_path / "MNIST/raw")
    file, damage, reason = DAMAGE[name]
    path = tmp_path / "MNIST/raw" / file
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=reason) as refused:
        load_dataset("mnist", tmp_path)
    sentence = str(refused.value)
    found = hashlib.md5(path.read_bytes()).hexdigest()
    assert sentence.startswith(f"{path} cannot be read: ")
    assert sentence.endswith(
        f" (MD5 {found}; published: {ENTRIES['mnist'].files[file]});"
        f" run: fedgauge data get mnist --data {tmp_path} --force."
    )
    assert "\n" not in sentence


def test_a_damaged_cifar_file_is_named_in_the_same_way(tmp_path: Path) -> None:
    made.cifar10(tmp_path / "cifar-10-batches-py")
    path = made.write(tmp_path / "cifar-10-batches-py/test_batch", pickle.dumps([1], 2))
    with pytest.raises(InputError, match=r"published: 40351d.*run: fedgauge data get cifar10 --data .* --force\.$"):
        load_dataset("cifar10", tmp_path)
    path.unlink()
    with pytest.raises(InputError, match=r"test_batch is missing \(MD5 40351d.*run: fedgauge data get cifar10 --data"):
        load_dataset("cifar10", tmp_path)


def test_damaged_pictures_are_named(tmp_path: Path) -> None:
    made.cinic10(tmp_path)
    picture = tmp_path / "train/cat/0.png"
    content = picture.read_bytes()
    picture.write_bytes(content[:60])
    with pytest.raises(InputError, match=r"train/cat/0.png cannot be read: it is not a picture"):
        load_dataset("cinic10", tmp_path)
    from PIL import Image

    Image.new("RGB", (16, 32)).save(picture)
    with pytest.raises(InputError, match="must be of 32 by 32 pixels like the first picture, not 16 by 32"):
        load_dataset("cinic10", tmp_path)
    Image.new("L", (32, 32)).save(picture)
    assert load_dataset("cinic10", tmp_path).train_inputs.shape[1] == 3
    for path in (tmp_path / "test/dog").iterdir():
        path.unlink()
    with pytest.raises(InputError, match="test/dog holds no pictures"):
        load_dataset("cinic10", tmp_path)
    (tmp_path / "train/unicorn").mkdir()
    with pytest.raises(InputError, match="train/unicorn is not one of the classes"):
        load_dataset("cinic10", tmp_path)


@pytest.mark.parametrize("array", [np.arange(6, dtype=np.int32).reshape(2, 3), np.zeros((0, 4), np.uint8)])
def test_idx_of_other_types_and_sizes(tmp_path: Path, array: Any) -> None:
    read = read_idx(made.write(tmp_path / "any", made.idx(array)))
    np.testing.assert_array_equal(read, array)
    assert read.dtype == array.dtype
