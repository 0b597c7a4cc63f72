from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fedgauge.base.errors import InputError
from fedgauge.data.dataset import Dataset, from_torch, read_npz
from fedgauge.data.scaling import measure, standardise


def pictures_and_labels() -> tuple[Any, Any]:
    """Twenty pictures and their classes."""
    return np.random.default_rng(0).integers(0, 256, (20, 4, 4), np.uint8), (np.arange(20) % 10).astype(np.uint8)


def dataset(**changes: Any) -> Dataset:
    images, labels = pictures_and_labels()
    given = {
        "name": "made",
        "train_inputs": images[:, None],
        "train_labels": labels,
        "test_inputs": images[:5, None],
        "test_labels": labels[:5],
        "classes": tuple("0123456789"),
    }
    return Dataset(**{**given, **changes})


def test_arrays_are_read_only_and_the_callers_are_not() -> None:
    images = np.zeros((3, 2), np.uint8)
    made_of = Dataset("made", images, np.zeros(3, int), images, np.zeros(3, int), ("a",), {"writer": np.arange(3)})
    for array in (made_of.train_inputs, made_of.train_labels, made_of.test_inputs, made_of.ids["writer"]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    images[0] = 1


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "labels above": (
        {"train_labels": np.full(20, 10)},
        r"train labels of made must lie in 0 to 9.*not 10 \(example 0\)",
    ),
    "labels below": ({"test_labels": np.array([0, 1, -1, 0, 0])}, r"test labels.*not -1 \(example 2\)"),
    "too few labels": (
        {"train_labels": np.zeros(19, int)},
        r"must be 20 numbers, one per example, not an array of shape \(19,\)",
    ),
    "labels are parts": ({"train_labels": np.full(20, 0.5), "values": False}, "must be whole numbers"),
    "values are none": ({"train_labels": np.full(20, np.nan)}, "must be finite numbers"),
    "sequences above": ({"train_labels": np.full((20, 3), 10), "test_labels": np.zeros((5, 3), int)}, "not 10"),
    "other targets": ({"train_labels": np.zeros((20, 3), int)}, r"shape \(3,\) of its training labels, not \(\)"),
    "labels are words": ({"train_labels": np.full(20, "a")}, "must be whole numbers"),
    "inputs are words": ({"train_inputs": np.full((20, 1), "a")}, "bytes, floats or tokens, not <U1"),
    "NaN": ({"train_inputs": np.full((20, 1, 4, 4), np.nan)}, "finite"),
    "one number": ({"train_inputs": np.float64(3)}, "one entry per example"),
    "other shape": (
        {"test_inputs": np.zeros((5, 3), np.uint8)},
        r"shape \(1, 4, 4\) of its training inputs, not \(3,\)",
    ),
    "ids too short": ({"ids": {"writer": np.arange(3)}}, "writer ids of made must be 20"),
    "nothing": (
        {"train_inputs": np.zeros((0, 1, 4, 4)), "train_labels": []},
        "no training examples",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_data_set_is_refused(name: str) -> None:
    changes, sentence = BAD[name]
    with pytest.raises(InputError, match=sentence):
        dataset(**changes)


def test_large_finite_floats_pass_though_their_sum_overflows() -> None:
    with np.errstate(over="ignore"):
        dataset(train_inputs=np.full((20, 1, 4, 4), 1e308), test_inputs=np.zeros((0, 1, 4, 4)), test_labels=[])


def test_published_scaling_is_what_torch_users_know() -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 3, 4, 4), np.uint8)
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    scaled = standardise(dataset(train_inputs=images, test_inputs=images[:5], mean=mean, std=std), "published")
    expected = torch.from_numpy(images).float() / 255
    expected = (expected - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    assert scaled.train_inputs.dtype == np.float32
    np.testing.assert_array_equal(scaled.train_inputs, expected.numpy())
    np.testing.assert_array_equal(scaled.test_inputs, expected.numpy()[:5])
    with pytest.raises(InputError, match="no published mean; choose scale='unit' or scale='measured'"):
        standardise(scaled, "published")


@pytest.mark.parametrize("inputs", [np.uint8, np.float64])
def test_measured_scaling_has_mean_0_and_deviation_1(inputs: Any) -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 3, 4, 4), np.uint8).astype(inputs)
    given = dataset(train_inputs=images, test_inputs=images[:5])
    mean, std = measure(given)
    peak = 255 if inputs is np.uint8 else 1
    np.testing.assert_allclose(mean, (images / peak).mean((0, 2, 3)), rtol=1e-12)  # float64 rounding
    np.testing.assert_allclose(std, (images / peak).std((0, 2, 3)), rtol=1e-12)
    scaled = standardise(given, "measured").train_inputs
    np.testing.assert_allclose(scaled.mean((0, 2, 3)), 0, atol=1e-5)  # float32 rounding of 320 numbers
    np.testing.assert_allclose(scaled.std((0, 2, 3)), 1, rtol=1e-5)


def test_a_constant_channel_and_an_unknown_scaling_are_refused() -> None:
    with pytest.raises(InputError, match="constant"):
        standardise(dataset(train_inputs=np.zeros((20, 1, 4, 4), np.uint8)), "measured")
    with pytest.raises(InputError, match="did you mean unit"):
        standardise(dataset(), "units")  # type: ignore[arg-type]


def test_npz_with_and_without_a_test_set(tmp_path: Path) -> None:
    images, labels = pictures_and_labels()
    np.savez(tmp_path / "four.npz", x_train=images, y_train=labels, x_test=images[:3], y_test=labels[:3], writer=labels)
    four = read_npz(tmp_path / "four.npz")
    assert (four.name, four.num_train, four.num_test, four.num_classes, list(four.ids)) == (
        "four",
        20,
        3,
        10,
        ["writer"],
    )
    np.savez(tmp_path / "two.npz", x=images / 255, y=labels.astype(float))
    two = read_npz(tmp_path / "two.npz")
    assert (two.num_train, two.num_test, str(two.train_labels.dtype)) == (20, 0, "int64")


def test_bad_npz_files_are_refused_in_a_sentence(tmp_path: Path) -> None:
    np.savez(tmp_path / "names.npz", a=np.zeros(3))
    np.savez(tmp_path / "object.npz", x=np.array([{}], object), y=np.zeros(1))
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "names.npz").read_bytes()[:-30])
    np.savez(tmp_path / "negative.npz", x=np.zeros((2, 2)), y=np.array([-1, 0]))
    (tmp_path / "dir.npz").mkdir()
    for name, sentence in {
        "names": "must hold x_train, y_train, x_test and y_test, or x and y, not a",
        "object": "not an .npz file of plain arrays",
        "text": "not an .npz file of plain arrays",
        "cut": "not an .npz file of plain arrays",
        "negative": "must lie in 0 to 0",
        "dir": "is a directory",
        "none": "There is no file",
    }.items():
        with pytest.raises(InputError, match=sentence):
            read_npz(tmp_path / f"{name}.npz")


class Pictures(torch.utils.data.Dataset[tuple[Any, int]]):
    """What torchvision gives without a transform."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return Image.fromarray(np.full(self.shape, index, np.uint8)), index


def test_torch_datasets_become_arrays() -> None:
    x, y = torch.rand(6, 1, 4, 4), torch.arange(6) % 3
    whole = torch.utils.data.TensorDataset(x, y)
    subset = torch.utils.data.Subset(whole, [1, 2])
    given = from_torch(whole, subset, name="mine", classes=("a", "b", "c"))
    np.testing.assert_array_equal(given.train_inputs, x.numpy())
    np.testing.assert_array_equal(given.test_inputs, x.numpy()[[1, 2]])
    np.testing.assert_array_equal(given.test_labels, [1, 2])
    assert (given.name, given.classes, given.peak) == ("mine", ("a", "b", "c"), 1.0)
    assert from_torch(Pictures(8, 6, 3)).train_inputs.shape == (3, 3, 8, 6)
    assert from_torch(Pictures(8, 6)).train_inputs.shape == (3, 1, 8, 6)


def test_torch_datasets_that_are_no_pairs_of_one_shape_are_refused() -> None:
    for items, sentence in (
        ([np.zeros(3)], "Item 0 of train must be a pair"),
        ([(np.zeros(3), 0), (np.zeros(4), 0)], r"Item 1 of train must have the shape \(3,\) of the first, not \(4,\)"),
        ([], "at least one item"),
    ):
        with pytest.raises(InputError, match=sentence):
            from_torch(items)
    with pytest.raises(InputError, match="must lie in 0 to 0"):
        from_torch([(np.zeros(3), 1)], classes=("a",))
