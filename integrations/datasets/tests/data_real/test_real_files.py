"""The loaders on real files: ``make test-data DATA=DIR``. What is not in DIR is skipped and named."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fedgauge.base.errors import InputError
from fedgauge.data.dataset import Dataset
from fedgauge.data.loader import load_dataset
from fedgauge.data.scaling import measure, standardise
from fedgauge.data.schemes import make_partition
from fedgauge_datasets.catalogue import status

DATA = Path(os.environ["FEDGAUGE_TEST_DATA"])


def found(name: str) -> str:
    state = status(name, DATA).state
    if state in ("missing", "incomplete"):
        pytest.skip(f"{name} is {state} in {DATA}")
    return state


def load(name: str) -> Dataset:
    found(name)
    return load_dataset(name, DATA)


@pytest.mark.parametrize("name", ["mnist", "qmnist", "fashion-mnist", "cifar10", "shakespeare"])
def test_the_files_are_the_published_ones(name: str) -> None:
    assert found(name) == "ready"
    assert {file.md5_found for file in status(name, DATA).files} == {file.md5 for file in status(name, DATA).files}


def test_mnist() -> None:
    mnist = load("mnist")
    assert mnist.train_inputs.shape == (60_000, 1, 28, 28)
    assert mnist.test_inputs.shape == (10_000, 1, 28, 28)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(mnist.train_labels).tolist() == counts
    mean, std = measure(mnist)
    assert (round(mean[0], 4), round(std[0], 4)) == (0.1307, 0.3081)
    scaled = standardise(mnist, "published").train_inputs
    # The published numbers have four digits, so what is left over is below their rounding, divided by 0.3081.
    assert abs(scaled.mean(dtype=np.float64)) < 5e-5 / 0.3081
    assert abs(scaled.std(dtype=np.float64) - 1) < 5e-5 / 0.3081


def test_fashion_mnist() -> None:
    fashion = load("fashion-mnist")
    assert np.bincount(fashion.train_labels).tolist() == [6000] * 10
    mean, std = measure(fashion)
    assert (round(mean[0], 4), round(std[0], 4)) == (0.2860, 0.3530)


def test_the_writers_of_mnist() -> None:
    qmnist = load("qmnist")
    made = make_partition(qmnist, "id", divide_by="writer")
    assert made.num_workers == 539
    assert np.quantile(made.sizes, (0, 0.5, 1)).tolist() == [19, 116, 131]
    assert made.dropped == 0


def test_cifar10() -> None:
    cifar = load("cifar10")
    assert cifar.train_inputs.shape == (50_000, 3, 32, 32)
    assert np.bincount(cifar.train_labels).tolist() == [5000] * 10
    assert np.bincount(cifar.test_labels).tolist() == [1000] * 10
    mean, std = measure(cifar)
    np.testing.assert_allclose(mean, cifar.mean, atol=5e-9)  # eight published digits
    np.testing.assert_allclose(std, cifar.std, atol=5e-9)


def test_cifar100_whole_or_a_balanced_subset() -> None:
    cifar = load("cifar100")
    counts, coarse = np.bincount(cifar.train_labels), np.bincount(cifar.ids["coarse"])
    assert len(counts) == 100
    assert len(coarse) == 20
    assert counts.min() == counts.max()
    assert coarse.tolist() == [5 * counts[0]] * 20
    # Every fine label belongs to one coarse label.
    assert len(np.unique(np.stack([cifar.train_labels, cifar.ids["coarse"]]), axis=1).T) == 100
    assert cifar.classes[0] == "apple"
    mean, std = measure(cifar)
    if found("cifar100") == "ready":
        np.testing.assert_allclose(mean, cifar.mean, atol=5e-9)
        np.testing.assert_allclose(std, cifar.std, atol=5e-9)
    elif len(cifar.train_labels) == 12_500:
        np.testing.assert_allclose(mean, (0.5081, 0.4860, 0.4402), atol=5e-5)
        np.testing.assert_allclose(std, (0.2675, 0.2569, 0.2763), atol=5e-5)


@pytest.mark.parametrize("num_workers", [10, 100])
@pytest.mark.parametrize("percent", [25.0, 50.0, 75.0])
@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_the_papers_partitions(name: str, percent: float, num_workers: int) -> None:
    dataset = load(name)
    made = make_partition(dataset, "paper", num_workers, percent=percent)
    n = dataset.num_train // num_workers
    own = made.label_counts(dataset.train_labels)[np.arange(num_workers), np.arange(num_workers) % 10]
    assert made.dropped == 0
    assert (made.sizes == n).all()
    assert (own >= n * percent / 100).all()


def test_100_percent_of_cifar10_but_not_of_mnist() -> None:
    cifar = load("cifar10")
    counts = make_partition(cifar, "paper", 10, percent=100.0).label_counts(cifar.train_labels)
    assert (counts == 5000 * np.eye(10)).all()
    with pytest.raises(InputError, match="6000 examples of label 5, which has 5421"):
        make_partition(load("mnist"), "paper", 10, percent=100.0)


def test_cifar100_by_coarse_labels() -> None:
    cifar = load("cifar100")
    with pytest.raises(InputError, match="divide_by='coarse'"):
        make_partition(cifar, "paper", 10, percent=50.0)
    made = make_partition(cifar, "paper", 10, percent=50.0, divide_by="coarse")
    assert (made.label_counts(cifar.ids["coarse"]).diagonal() >= cifar.num_train // 20).all()


def test_the_roles_of_shakespeare() -> None:
    text = load("shakespeare")
    assert text.train_inputs.shape[1:] == (64,)
    assert text.num_classes == 65
    made = make_partition(text, "id")
    assert (made.num_workers, made.dropped) == (299, 0)
    assert make_partition(text, "id", divide_by="play").num_workers == 9
    # Every character of a role but its first is a target once, in training or in testing.
    targets = sum(int((part >= 0).sum()) for part in (text.train_labels, text.test_labels))
    said = [part.partition(":\n") for part in _text().strip().split("\n\n")]
    words = [(role.strip(), words) for role, _, words in said if words.strip()]
    assert len({role for role, _ in words}) == 299
    assert len(words) == 7097
    assert targets == sum(len(each.strip()) + 1 for _, each in words) - 299


def test_similar_roles_are_mostly_of_the_same_plays() -> None:
    text = load("shakespeare")
    shares = []
    for grouping in ("random", "similar"):
        counts = make_partition(text, "id", 9, grouping=grouping).label_counts(text.ids["play"])
        shares.append(counts.max(axis=1).sum() / counts.sum())
    assert shares[1] > shares[0] + 0.15


def _text() -> str:
    return (DATA / "tinyshakespeare" / "input.txt").read_text()
