"""Laws that every shift obeys, and the closed form of each kind."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedgauge as fg
from fedgauge.base.errors import InputError
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.data.dataset import Dataset
from fedgauge.data.partition import Partition
from fedgauge.data.schemes import iid
from fedgauge.data.shifts import SHIFTS, ShiftedWorker, _levels, parse_shifts, shift_data, spell_shifts
from fedgauge.simulation.experiment.sections import DataSection, keys
from fedgauge.simulation.experiment.user_data import PerWorker

strengths = st.floats(0, 1)
kinds = st.sampled_from(sorted(SHIFTS))


def images(number: int = 60, classes: int = 5, side: int = 6, seed: int = 0) -> Dataset:
    generator = np.random.default_rng(seed)
    x = generator.random((number, 2, side, side + 1), np.float32)
    return Dataset("images", x, np.arange(number) % classes, x[:9], np.arange(9) % classes)


def values(number: int = 60) -> Dataset:
    generator = np.random.default_rng(1)
    x = generator.normal(size=(number, 4)).astype(np.float32)
    targets: Any = generator.normal(size=(number, 2)) * [1, 5]
    return Dataset("values", x, targets, x[:5], targets[:5], values=True)


def data_for(kind: str) -> Dataset:
    return values() if SHIFTS[kind].needs == "values" else images()


def workers(dataset: Dataset, number: int = 4) -> Partition:
    return iid(np.zeros(dataset.num_train, np.int64), number)


def place(strength: float, level: float = 1.0, scale: Any = 1.0, classes: int = 5) -> ShiftedWorker:
    streams = [Streams(0, Purpose.SHIFT) for _ in range(2)]
    return ShiftedWorker(strength, level, scale, classes, streams[0].at(copy=0), streams[1].at(copy=1))


def same(one: Dataset, other: Dataset) -> bool:
    names = ("train_inputs", "train_labels", "test_inputs", "test_labels")
    pairs = [(getattr(one, name), getattr(other, name)) for name in names]
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)


# -- laws of all kinds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SHIFTS)
def test_strength_0_keeps_every_bit_and_1_does_not(kind: str) -> None:
    data = data_for(kind)
    assert same(shift_data(data, workers(data), {kind: 0.0}).dataset, data)
    moved = shift_data(data, workers(data), {kind: 1.0}).dataset
    assert not same(moved, data)
    part = "inputs" if SHIFTS[kind].family == "covariate" else "labels"
    other = {"inputs": "labels", "labels": "inputs"}[part]
    assert getattr(moved, f"train_{other}").tobytes() == getattr(data, f"train_{other}").tobytes()
    assert getattr(moved, f"train_{part}").dtype == getattr(data, f"train_{part}").dtype


@settings(max_examples=40, deadline=None)
@given(kind=kinds, strength=strengths, seed=st.integers(0, 2**64 - 1), number=st.integers(1, 7), test=st.booleans())
def test_a_worker_is_shifted_the_same_way_whatever_the_others_hold(
    kind: str, strength: float, seed: int, number: int, test: bool
) -> None:
    """The draws are addressed, so that a worker alone in the data gets the same bits."""
    data = data_for(kind)
    whole = workers(data, number)
    moved = shift_data(data, whole, {kind: strength}, seed=seed, test=test)
    assert same(moved.dataset, shift_data(data, whole, {kind: strength}, seed=seed, test=test).dataset)
    assert len(moved.words[kind]) == number
    worker = number - 1
    mine = whole.worker(worker)
    sizes = np.zeros(number, np.int64)
    sizes[worker] = len(mine)
    alone = shift_data(data, Partition("iid", {}, 0, data.num_train, sizes, mine), {kind: strength}, seed=seed)
    assert alone.dataset.train_inputs[mine].tobytes() == moved.dataset.train_inputs[mine].tobytes()
    assert alone.dataset.train_labels[mine].tobytes() == moved.dataset.train_labels[mine].tobytes()
    rest = np.setdiff1d(np.arange(data.num_train), mine)
    assert alone.dataset.train_inputs[rest].tobytes() == data.train_inputs[rest].tobytes()
    if not test:
        assert moved.dataset.test_inputs is not None
        assert moved.dataset.test_inputs.tobytes() == data.test_inputs.tobytes()


@given(number=st.integers(1, 40), seed=st.integers(0, 2**64 - 1), kind=kinds)
def test_levels_are_evenly_spread_around_0(number: int, seed: int, kind: str) -> None:
    levels = np.sort(_levels(SHIFTS[kind], number, seed))
    assert levels.mean() == pytest.approx(0, abs=1e-12)
    assert np.allclose(np.diff(levels), 2 / number)
    assert levels[-1] == pytest.approx(1 - 1 / number)


def test_several_shifts_have_one_order() -> None:
    data = images()
    chosen = {"swap": 0.5, "noise": 0.2, "gain": 0.4}
    made = [shift_data(data, workers(data), dict(each)).dataset for each in itertools.permutations(chosen.items())]
    assert all(same(made[0], other) for other in made[1:])
    one_by_one = data
    for name in ("gain", "swap"):
        one_by_one = shift_data(one_by_one, workers(data), {name: chosen[name]}).dataset
    assert same(one_by_one, shift_data(data, workers(data), "gain=0.4,swap=0.5").dataset)


def test_test_examples_are_shifted_as_a_workers_are() -> None:
    """A gain multiplies, so that each test example shows whose it became."""
    data = images()
    made = shift_data(data, workers(data), {"gain": 1.0}, test=True)
    factors = made.dataset.test_inputs.reshape(9, -1).mean(axis=1) / data.test_inputs.reshape(9, -1).mean(axis=1)
    each = 4.0 ** _levels(SHIFTS["gain"], 4, 0)
    nearest = np.abs(np.log(factors[:, None] / each)).argmin(axis=1)
    # A gain in float32 is exact to one part in 2^24.
    assert np.allclose(factors, each[nearest], rtol=1e-6)
    assert sorted(np.bincount(nearest, minlength=4)) == [2, 2, 2, 3]


# -- closed forms ------------------------------------------------------------------------------------------------------


def test_a_quarter_turn_is_that_of_numpy() -> None:
    square = np.random.default_rng(0).random((3, 2, 7, 7), np.float32)
    turned = SHIFTS["rotation"].change(square, place(0.5)).values
    # Interpolation at whole pixels rounds.
    assert np.allclose(turned, np.rot90(square, axes=(2, 3)), atol=1e-5)
    back = SHIFTS["rotation"].change(square, place(0.5, level=-1.0)).values
    assert np.allclose(back, np.rot90(square, -1, axes=(2, 3)), atol=1e-5)


@given(strength=strengths, level=st.floats(-1, 1))
def test_gain_and_contrast_multiply(strength: float, level: float) -> None:
    x, factor = images().train_inputs, 4.0 ** (strength * level)
    assert np.allclose(SHIFTS["gain"].change(x, place(strength, level)).values, factor * x, rtol=1e-5)
    shown = SHIFTS["contrast"].change(x, place(strength, level)).values
    # Sums of 42 float32 numbers of about 1 round in the sixth digit.
    assert np.allclose(shown.mean(axis=(2, 3)), x.mean(axis=(2, 3)), atol=1e-5)
    assert np.allclose(shown.std(axis=(2, 3)), factor * x.std(axis=(2, 3)), rtol=1e-4)


def test_blur_is_a_gaussian_sum_over_pixels() -> None:
    """Against a naive sum over all pixels, in the middle of an image so wide that its edges do not matter."""
    image = np.zeros((1, 1, 41, 41), np.float32)
    image[0, 0, 20, 18:23] = [1, 0, 2, 0, 3]
    width = 0.25 * 0.2 * 0.75 * 41
    blurred = SHIFTS["blur"].change(image, place(0.2, level=0.5)).values[0, 0]
    row, column = np.mgrid[0:41, 0:41]
    expected = np.zeros((41, 41))
    for where, weight in zip(range(18, 23), [1, 0, 2, 0, 3], strict=True):
        bump = np.exp(-((row - 20) ** 2 + (column - where) ** 2) / (2 * width**2))
        expected += weight * bump / bump.sum()
    # scipy leaves out the tails beyond four deviations, which hold less than one part in 10^4.
    assert np.allclose(blurred, expected, atol=1e-4)


def test_noise_has_the_deviation_that_it_says() -> None:
    x = np.zeros((200, 50), np.float32)
    noisy = SHIFTS["noise"].change(x, place(0.5, level=0.0, scale=3.0)).values
    # 10,000 draws: the deviation of their deviation is 1/sqrt(20,000) of it, of which this is five.
    assert noisy.std() == pytest.approx(2.0 * 0.5 * 0.5 * 3.0, rel=5 / math.sqrt(20000))


@given(strength=strengths, features=st.integers(2, 9))
def test_mixing_is_a_rotation_by_one_angle(strength: float, features: int) -> None:
    x = np.random.default_rng(3).normal(size=(5, features)).astype(np.float32)
    mixed = SHIFTS["mixing"].change(x, place(strength)).values
    assert np.allclose(np.linalg.norm(mixed, axis=1), np.linalg.norm(x, axis=1), rtol=1e-5)
    assert np.allclose(mixed @ mixed.T, x @ x.T, atol=1e-4)
    moved = np.linalg.norm(mixed - x, axis=1)
    allowed = 2 * math.sin(math.pi / 4 * strength) * np.linalg.norm(x, axis=1)
    if features % 2 == 0:
        assert np.allclose(moved, allowed, rtol=1e-4, atol=1e-5)
    else:  # one feature stays
        assert (moved <= allowed * (1 + 1e-4) + 1e-5).all()


@given(less=strengths, more=strengths, classes=st.integers(2, 7))
def test_swapping_is_an_involution_and_grows_with_the_strength(less: float, more: float, classes: int) -> None:
    labels = np.arange(200) % classes
    less, more = sorted((less, more))
    whole = SHIFTS["swap"].change(labels, place(1.0, classes=classes)).values
    again = SHIFTS["swap"].change(whole, place(1.0, classes=classes)).values
    assert (again == labels).all()
    assert len(set(labels[whole == labels].tolist())) == classes % 2
    few, many = (SHIFTS["swap"].change(labels, place(each, classes=classes)).values for each in (less, more))
    assert ((few != labels) <= (many != labels)).all()
    assert ((many == labels) | (many == whole)).all()


@given(strength=strengths, level=st.floats(-1, 1))
def test_label_noise_replaces_the_share_that_it_says(strength: float, level: float) -> None:
    labels = np.zeros(4000, np.int64)
    noised = SHIFTS["label-noise"].change(labels, place(strength, level)).values
    assert set(noised.tolist()) <= set(range(5))
    share = strength * (level + 1) / 2 * 4 / 5  # a drawn label is the old one with probability 1/5
    # Five deviations of a mean of 4,000 draws, and one draw.
    assert abs((noised != 0).mean() - share) <= 5 * math.sqrt(share * (1 - share) / 4000) + 1 / 4000


def test_offsets_are_in_deviations_of_each_column_and_cancel() -> None:
    data = values()
    whole = workers(data)
    made = shift_data(data, whole, {"offset": 0.5}).dataset
    added = made.train_labels - data.train_labels
    levels = _levels(SHIFTS["offset"], 4, 0)
    for number in range(4):
        expected = 2 * 0.5 * levels[number] * data.train_labels.std(axis=0)
        assert np.allclose(added[whole.worker(number)], expected, atol=1e-5)


# -- choosing ----------------------------------------------------------------------------------------------------------


@given(st.dictionaries(kinds, strengths))
def test_texts_keep_every_bit_of_a_strength(chosen: Mapping[str, float]) -> None:
    assert parse_shifts(spell_shifts(chosen)) == chosen
    assert parse_shifts("+".join(spell_shifts(chosen)) if chosen else ()) == chosen


WRONG = {
    "rotatoin=0.5": "did you mean rotation",
    "rotation": "must be KIND=STRENGTH",
    "rotation=": "must be KIND=STRENGTH",
    "rotation=1.5": "from 0 to 1",
    "rotation=nan": "from 0 to 1",
    "rotation=much": "from 0 to 1",
    "gain=0.1+gain=0.2": "names gain twice",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_shift_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=WRONG[text]):
        DataSection(shift=text)


def test_the_help_names_every_kind() -> None:
    said = next(key.help for key in keys() if key.option == "shift")
    assert all(name in said for name in SHIFTS)
    assert all((shift.change.__doc__ or "").splitlines()[0].endswith((".", ";")) for shift in SHIFTS.values())
    assert len({shift.code for shift in SHIFTS.values()}) == len(SHIFTS)


def _flat(dtype: Any, width: int = 3) -> Dataset:
    none = np.zeros(0, np.int64)
    return Dataset("flat", np.ones((8, width), dtype), np.arange(8) % 2, np.ones((0, width), dtype), none)


REFUSED = [
    (_flat(np.float32), "rotation", "needs images"),
    (_flat(np.float32, 1), "mixing", "two features"),
    (_flat(np.int64), "gain", "are tokens"),
    (_flat(np.uint8), "noise", "scaled inputs"),
    (_flat(np.float32), "offset", "needs values"),
    (values(), "swap", "one class per example"),
]


@pytest.mark.parametrize(("data", "kind", "why"), REFUSED, ids=[f"{kind}: {why}" for _, kind, why in REFUSED])
def test_a_shift_that_such_data_cannot_have_is_refused(data: Dataset, kind: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        shift_data(data, workers(data), {kind: 0.5})


# -- in experiments ----------------------------------------------------------------------------------------------------

EXPERIMENT = {"source": "digits", "gamma": 0.1, "workers": 3, "scheme": "dirichlet"}


def test_an_experiment_records_its_shifts() -> None:
    made = fg.Experiment.of({**EXPERIMENT, "shift": {"swap": 0.25, "rotation": 0.5}})
    assert made.data.shift == ("rotation=0.5", "swap=0.25")
    assert fg.Experiment.from_toml(made.to_toml()) == made
    assert fg.Experiment.from_json(made.to_json()) == made
    assert fg.Experiment.from_toml("[data]\nshift = {gain = 1}\n[algorithm]\ngamma = 0.1").data.shift == ("gain=1",)
    with pytest.raises(InputError, match="give a shift"):
        fg.Experiment.of({**EXPERIMENT, "shift_test": True})


def test_a_prepared_experiment_has_shifted_training_data_only() -> None:
    plain = fg.prepare(fg.Experiment.of(EXPERIMENT))
    still = fg.prepare(fg.Experiment.of({**EXPERIMENT, "shift": "rotation=0"}))
    moved = fg.prepare(fg.Experiment.of({**EXPERIMENT, "shift": "rotation=0.5+swap=0.5"}))
    both = fg.prepare(fg.Experiment.of({**EXPERIMENT, "shift": "rotation=0.5+swap=0.5", "shift_test": True}))
    for one in (plain, still, moved, both):
        assert one.dataset is not None
        assert one.partition == plain.partition
    assert (still.federation.inputs == plain.federation.inputs).all()  # type: ignore[attr-defined]
    assert not (moved.federation.inputs == plain.federation.inputs).all()  # type: ignore[attr-defined]
    assert moved.evaluator.digest == plain.evaluator.digest != both.evaluator.digest  # type: ignore[union-attr]
    # A worker's own shift depends on the seed of the partition, not on that of the run.
    seeded = {**EXPERIMENT, "shift": "rotation=0.5+swap=0.5", "partition_seed": 0, "seed": 5}
    other = fg.prepare(fg.Experiment.of(seeded))
    assert (other.federation.inputs == moved.federation.inputs).all()  # type: ignore[attr-defined]
    # The cached data set keeps its bits.
    assert (fg.prepare(fg.Experiment.of(EXPERIMENT)).federation.inputs == plain.federation.inputs).all()  # type: ignore[attr-defined]


def test_data_of_ones_own_is_shifted_or_refused() -> None:
    made = fg.Experiment.of({"gamma": 0.1, "workers": 2, "shift": "gain=1", "scheme": "iid", "model": "softmax"})
    setup = fg.prepare(made, images())
    assert not (setup.federation.inputs.numpy() == images().train_inputs).all()  # type: ignore[attr-defined]
    import torch

    shards = [(torch.zeros(3, 4), torch.zeros(3, dtype=torch.int64))]
    with pytest.raises(InputError, match="shift"):
        fg.prepare(fg.Experiment.of({"gamma": 0.1, "shift": "gain=1"}), PerWorker(shards, classes=2))
    with pytest.raises(InputError, match="quadratics"):
        fg.Experiment.of({"source": "fed.json", "gamma": 0.1, "shift": "gain=1"})


def test_a_flower_node_has_its_shifted_shard() -> None:
    from fedgauge_flower.shard import experiment_of, shard_of

    config = {"source": "digits", "gamma": 0.1, "workers": 3, "shift": "rotation=0.5+swap=0.5"}
    made = fg.prepare(experiment_of(config))
    assert made.dataset is not None
    assert made.partition is not None
    shard = shard_of(experiment_of(config), 1)
    mine = made.partition.worker(1)
    assert (np.asarray(shard.inputs) == made.dataset.train_inputs[mine]).all()
    assert (np.asarray(shard.targets) == made.dataset.train_labels[mine]).all()
