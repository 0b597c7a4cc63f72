"""Data sets by name: the library's own, and those that other distributions bring."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedgauge as fg
from fedgauge.base.errors import InputError
from fedgauge.base.progress import silent
from fedgauge.cli import main
from fedgauge.data import loader
from fedgauge.data.dataset import Dataset
from fedgauge.data.loader import PUBLISHED, load_dataset


def coins(*given: Any) -> Dataset:
    """What a distribution would read; it says in its name what it was called with."""
    inputs, labels = np.arange(40, dtype=np.float32).reshape(20, 2), np.arange(20) % 2
    return Dataset(" ".join(map(str, given)), inputs, labels, inputs[:4], labels[:4])


@pytest.fixture
def brought(monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution that brings the data set coins, and no other."""
    monkeypatch.setattr(loader, "plugins", lambda group: {"coins": coins} if group == "fedgauge.datasets" else {})


@pytest.mark.usefixtures("brought")
def test_a_distribution_brings_a_data_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert load_dataset("coins", "here").name == f"coins here {silent} None"
    experiment = fg.Experiment.of({"source": "coins", "gamma": 0.1, "model": "softmax", "rounds": 1, "scheme": "iid"})
    assert fg.execute(experiment, keep=tmp_path / "run").status == "finished"
    assert main(["data", "partition", "coins", "--workers", "2", "--scheme", "iid"]) == 0
    assert "coins" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"^There is no data set 'coin'; did you mean coins\?$"):
        load_dataset("coin")


@pytest.mark.usefixtures("brought")
@pytest.mark.parametrize("name", PUBLISHED)
def test_without_fedgauge_datasets_one_sentence_says_what_to_install(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = f"The data set {name} comes with another package; install it: pip install fedgauge-datasets."
    for command in ("gauge", "simulate"):
        assert main([command, name, "--gamma", "0.1"]) == 2
        assert capsys.readouterr().err == f"fedgauge: {said}\n"


@pytest.mark.usefixtures("brought")
def test_names_that_are_not_installed_are_suggested_too() -> None:
    with pytest.raises(InputError, match=r"^There is no data set 'cifar'; did you mean cifar10\?$"):
        load_dataset("cifar")
    with pytest.raises(InputError, match=r"choose one of digits, text, shakespeare, mnist, .*, cinic10, coins\.$"):
        load_dataset("nothing")


def test_a_context_is_for_plays_alone() -> None:
    with pytest.raises(InputError, match="context is for the data set shakespeare, not for digits"):
        load_dataset("digits", context=8)


def test_digits_are_split_once_and_for_all() -> None:
    digits = load_dataset("digits")
    assert (digits.num_train, digits.num_test, digits.peak) == (1438, 359, 16.0)
    assert np.bincount(np.concatenate([digits.train_labels, digits.test_labels])).sum() == 1797
    assert digits.train_inputs.max() == 16


@pytest.mark.parametrize("known", [True, False], ids=["its file", "its loader"])
def test_digits_are_scikit_learns_wherever_it_keeps_them(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.datasets import load_digits

    theirs = load_digits()
    if not known:
        monkeypatch.setattr(loader, "find_spec", lambda name: None)
    else:
        monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    ours, test = load_dataset("digits"), np.arange(len(theirs.target)) % 5 == 4
    assert np.array_equal(ours.train_inputs[:, 0], theirs.images[~test])
    assert np.array_equal(ours.test_inputs[:, 0], theirs.images[test])
    assert np.array_equal(ours.train_labels, theirs.target[~test])
    assert np.array_equal(ours.test_labels, theirs.target[test])


def test_without_scikit_learn_the_way_to_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sklearn", "sklearn.datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"run: pip install 'fedgauge\[data\]'\.$"):
        load_dataset("digits")
