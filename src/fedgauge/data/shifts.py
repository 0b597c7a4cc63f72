"""How workers' data may differ beyond who holds which examples: each kind of shift changes inputs or targets.

A partition decides which examples a worker holds (label, quantity and natural heterogeneity). A shift then changes the
examples themselves, on every worker in another way: **covariate** shifts change the inputs, **concept** shifts the
targets of unchanged inputs. Every kind has a strength from 0, where data keep their bits, to 1.

Where workers differ by one number, such as an angle, they get evenly spread **levels** from -1 to 1, dealt at random:
worker of rank r among N has the level (2r + 1)/N - 1. So levels have mean 0, and a strength means the same for every
seed. What is drawn for a worker or an example does not depend on the strength, so that more strength only moves the
same data further.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from fedgauge.base.errors import InputError, nearest
from fedgauge.base.randomness import Purpose, Streams, check_seed
from fedgauge.base.types import Array
from fedgauge.data.dataset import Dataset, check_dataset
from fedgauge.data.partition import Indices, Partition

_MOST_GAIN = 4.0
"""The factor of gain and contrast at level 1 and strength 1; at level -1 it is one over this."""
_MOST_BLUR = 0.25
"""The width of the blur at strength 1, as a fraction of an image's shorter side."""
_MOST_NOISE = 2.0
"""The deviation of the noise at strength 1, in deviations of the inputs."""
_MOST_OFFSET = 2.0
"""The offset at level 1 and strength 1, in deviations of the target."""

_OWN, _TRAIN, _TEST, _DEALT = range(4)
"""What a draw is for: a worker's own way to differ, its training examples, its test examples, the dealing of levels."""

Needs = Literal["numbers", "images", "classes", "values"]


@dataclass(frozen=True, eq=False)
class ShiftedWorker:
    """One worker's place in a shift.

    Attributes:
        strength: from 0 to 1.
        level: the worker's level, from -1 to 1.
        scale: the standard deviation of the training inputs, or of each column of values.
        classes: the number of classes.
        own: draws that are the worker's own: the same for its training and its test examples.
        each: draws for single examples.
    """

    strength: float
    level: float
    scale: Any
    classes: int
    own: np.random.Generator
    each: np.random.Generator

    @property
    def share(self) -> float:
        """The level as a number from 0 to 1, for shifts that have no direction."""
        return (self.level + 1) / 2


class Changed(NamedTuple):
    """The worker's inputs or targets after a shift, and what was done in a few words."""

    values: Array
    words: str


# -- covariate shifts: functions of inputs -----------------------------------------------------------------------------


def rotation(images: Array, place: ShiftedWorker) -> Changed:
    """Turn images by up to 180 degrees times the strength; edges are continued outwards."""
    from scipy import ndimage

    angle = 180.0 * place.strength * place.level
    turned = ndimage.rotate(images, angle, axes=(3, 2), reshape=False, order=1, mode="nearest")
    return Changed(turned, f"{angle:+.0f}°")


def gain(inputs: Array, place: ShiftedWorker) -> Changed:
    """Multiply inputs by 4^(strength · level): from a quarter to four times at strength 1."""
    factor = _MOST_GAIN ** (place.strength * place.level)
    return Changed(inputs * np.float32(factor), f"×{factor:.2f}")


def contrast(images: Array, place: ShiftedWorker) -> Changed:
    """Multiply an image's distance from its own mean, channel by channel, by 4^(strength · level)."""
    factor = _MOST_GAIN ** (place.strength * place.level)
    means = images.mean(axis=(2, 3), keepdims=True)
    return Changed(means + np.float32(factor) * (images - means), f"×{factor:.2f}")


def noise(inputs: Array, place: ShiftedWorker) -> Changed:
    """Add Gaussian noise of up to two deviations of the inputs times the strength; workers differ in how much."""
    deviation = _MOST_NOISE * place.strength * place.share * float(place.scale)
    drawn = place.each.standard_normal(inputs.shape, dtype=np.float32)
    return Changed(inputs + np.float32(deviation) * drawn, f"±{deviation:.2g}")


def blur(images: Array, place: ShiftedWorker) -> Changed:
    """Blur images by a Gaussian of up to a quarter of their side times the strength; workers differ in how much."""
    from scipy import ndimage

    width = _MOST_BLUR * place.strength * place.share * min(images.shape[2:])
    blurred = ndimage.gaussian_filter(images, (0.0, 0.0, width, width), mode="nearest")
    return Changed(blurred, f"{width:.2g} px")


def mixing(inputs: Array, place: ShiftedWorker) -> Changed:
    """Turn pairs of features into each other by 90 degrees times the strength; every worker has its own random pairs.

    This is a random rotation of the features: it moves every input x by 2 sin(angle/2) |x|, except that one feature
    of an odd number stays as it is. At strength 1 it is a permutation with signs.
    """
    flat = inputs.reshape(len(inputs), math.prod(inputs.shape[1:]))
    angle = math.pi / 2 * place.strength
    one, other = place.own.permutation(flat.shape[1])[: flat.shape[1] // 2 * 2].reshape(2, -1)
    cosine, sine = np.float32(math.cos(angle)), np.float32(math.sin(angle))
    mixed = flat.copy()
    mixed[:, one] = cosine * flat[:, one] - sine * flat[:, other]
    mixed[:, other] = sine * flat[:, one] + cosine * flat[:, other]
    return Changed(mixed.reshape(inputs.shape), f"pairs by {math.degrees(angle):.0f}°")


# -- concept shifts: functions of targets ------------------------------------------------------------------------------


def swap(labels: Array, place: ShiftedWorker) -> Changed:
    """Swap labels within pairs of classes, for a fraction of the examples that is the strength.

    Every worker has its own random pairs. One class of an odd number stays as it is.
    """
    drawn = place.own.permutation(place.classes)
    pairs = drawn[: place.classes // 2 * 2].reshape(-1, 2)
    partner = np.arange(place.classes)
    partner[pairs[:, 0]], partner[pairs[:, 1]] = pairs[:, 1], pairs[:, 0]
    chosen = place.each.random(len(labels)) < place.strength
    words = " ".join(f"{min(pair)}↔{max(pair)}" for pair in pairs[:2].tolist())
    return Changed(np.where(chosen, partner[labels], labels), words + (" …" if len(pairs) > 2 else ""))


def label_noise(labels: Array, place: ShiftedWorker) -> Changed:
    """Replace labels by uniformly drawn ones, for a fraction of up to the strength; workers differ in how many."""
    share = place.strength * place.share
    chosen = place.each.random(len(labels)) < share
    drawn = place.each.integers(place.classes, size=len(labels))
    return Changed(np.where(chosen, drawn, labels), f"{share:.0%}")


def offset(values: Array, place: ShiftedWorker) -> Changed:
    """Add up to two deviations of the target times the strength, in the direction of the worker's level."""
    added = _MOST_OFFSET * place.strength * place.level * place.scale
    return Changed((values + added).astype(np.float32), " ".join(f"{each:+.2g}" for each in np.ravel(added)[:3]))


class Shift(NamedTuple):
    """One kind of shift.

    Attributes:
        name: its name.
        code: the number by which its draws are addressed; it never changes.
        family: whether it changes inputs (covariate) or targets (concept).
        needs: the data that it can change.
        change: the function that changes a worker's inputs or targets.
    """

    name: str
    code: int
    family: Literal["covariate", "concept"]
    needs: Needs
    change: Callable[[Array, ShiftedWorker], Changed]


_ROWS = (
    Shift("rotation", 1, "covariate", "images", rotation),
    Shift("gain", 2, "covariate", "numbers", gain),
    Shift("contrast", 3, "covariate", "images", contrast),
    Shift("blur", 4, "covariate", "images", blur),
    Shift("mixing", 5, "covariate", "numbers", mixing),
    Shift("noise", 6, "covariate", "numbers", noise),
    Shift("swap", 7, "concept", "classes", swap),
    Shift("label-noise", 8, "concept", "classes", label_noise),
    Shift("offset", 9, "concept", "values", offset),
)
SHIFTS: Mapping[str, Shift] = {shift.name: shift for shift in _ROWS}
"""All kinds, in the order in which several of them are applied."""


# -- choosing and applying ---------------------------------------------------------------------------------------------


def parse_shifts(given: str | Sequence[str] | Mapping[str, float]) -> dict[str, float]:
    """The strength of each kind, from texts such as ``rotation=0.5``; one text may join several by ``+``.

    >>> parse_shifts(["swap=0.2", "rotation=0.5"]), parse_shifts("gain=1+noise=0.5")
    ({'rotation': 0.5, 'swap': 0.2}, {'gain': 1.0, 'noise': 0.5})
    """
    pairs: list[tuple[str, Any]]
    if isinstance(given, Mapping):
        pairs = list(given.items())
    else:
        texts = [given] if isinstance(given, str) else list(given)
        pairs = [_pair(part) for text in texts for part in re.split(r"[+,](?!\d)", text)]
    strengths: dict[str, float] = {}
    for name, value in pairs:
        if name not in SHIFTS:
            raise InputError(f"There is no shift {name!r}; {nearest(name, SHIFTS)}")
        if name in strengths:
            raise InputError(f"shift names {name} twice; give it one strength.")
        try:
            strength = float(value)
        except (TypeError, ValueError):
            strength = math.nan
        if not 0 <= strength <= 1:
            raise InputError(f"The strength of shift {name} must be a number from 0 to 1, as in 0.5, not {value!r}.")
        strengths[name] = strength
    return {name: strengths[name] for name in SHIFTS if name in strengths}


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals and value):
        raise InputError(f"shift must be KIND=STRENGTH, as in rotation=0.5, not {text.strip()!r}.")
    return name, value


def spell_shifts(shifts: Mapping[str, float]) -> tuple[str, ...]:
    """The texts that :func:`parse_shifts` reads, to the last bit.

    >>> spell_shifts({"rotation": 0.5, "gain": 1.0})
    ('rotation=0.5', 'gain=1')
    """
    return tuple(f"{name}={float(strength)!r}".removesuffix(".0") for name, strength in shifts.items())


def changes_inputs(shifts: str | Sequence[str] | Mapping[str, float]) -> bool:
    """Whether any of the shifts changes inputs.

    >>> changes_inputs("rotation=0.5"), changes_inputs("rotation=0+swap=1")
    (True, False)
    """
    return any(SHIFTS[name].family == "covariate" and strength > 0 for name, strength in parse_shifts(shifts).items())


class Shifted(NamedTuple):
    """A data set after its shifts, and for every kind what each worker got, in a few words."""

    dataset: Dataset
    words: Mapping[str, Sequence[str]]


def shift_data(
    dataset: Dataset,
    partition: Partition,
    shifts: str | Sequence[str] | Mapping[str, float],
    *,
    seed: int = 0,
    test: bool = False,
) -> Shifted:
    """Change the training examples of every worker in its own way.

    Test examples stay as they are, so that the global model is tested on plain data. With ``test``, they are dealt to
    the workers at random and shifted as theirs are: a sample of what the workers see. Examples that no worker has stay
    as they are too.

    Args:
        dataset: the data, with scaled inputs (see :func:`~fedgauge.standardise`).
        partition: who holds which training examples.
        shifts: the strength of each kind, from 0 to 1: ``{"rotation": 0.5}`` or ``"rotation=0.5"``. Several kinds are
            applied in the order of :data:`SHIFTS`, whatever the order in which they are given.
        seed: of the levels and draws.
        test: whether test examples are shifted too.

    Returns:
        The data set, which is the same object if every strength is 0, and what each worker got.

    >>> from fedgauge import load_dataset, make_partition, standardise
    >>> digits = standardise(load_dataset("digits"))
    >>> workers = make_partition(digits, "iid", 4)
    >>> made = shift_data(digits, workers, {"rotation": 0.5})
    >>> sorted(made.words["rotation"], key=lambda angle: int(angle[:-1]))
    ['-68°', '-22°', '+22°', '+68°']
    >>> shift_data(digits, workers, {"rotation": 0.0}).dataset is digits
    True
    """
    check_dataset(dataset)
    check_seed(seed)
    chosen = parse_shifts(shifts)
    if partition.num_examples != dataset.num_train:
        raise InputError(
            f"The partition is for {partition.num_examples} examples, and {dataset.name} has {dataset.num_train}; make"
            " it from this data set."
        )
    for name in chosen:
        _check(dataset, SHIFTS[name])
    words: dict[str, list[str]] = {name: [] for name in chosen}
    active = [SHIFTS[name] for name, strength in chosen.items() if strength > 0]
    workers = [partition.worker(number) for number in range(partition.num_workers)]
    made = _applied(dataset, "train", active, chosen, workers, seed, words)
    if test and dataset.num_test:
        made = _applied(made, "test", active, chosen, _dealt(dataset.num_test, len(workers), seed), seed, {})
    for phrase in words.values():
        phrase.extend(["–"] * (partition.num_workers - len(phrase)))
    return Shifted(made, words)


def _check(dataset: Dataset, shift: Shift) -> None:
    """Refuse a shift that cannot change such data."""
    inputs, name = dataset.train_inputs, dataset.name
    if shift.family == "covariate" and np.issubdtype(inputs.dtype, np.integer):
        if inputs.dtype == np.uint8:
            raise InputError(f"The shift {shift.name} needs scaled inputs; call standardise on {name} first.")
        raise InputError(
            f"The shift {shift.name} changes numbers, and the inputs of {name} are tokens; choose another shift, or"
            " convert them to floats if they are features."
        )
    if shift.needs == "images" and inputs.ndim != 4:
        raise InputError(
            f"The shift {shift.name} needs images, of shape (channels, height, width), and the inputs of {name} have"
            f" the shape {inputs.shape[1:]}; choose gain, mixing or noise."
        )
    if shift is SHIFTS["mixing"] and math.prod(inputs.shape[1:]) < 2:
        raise InputError(f"The shift mixing needs at least two features, and {name} has one; choose gain or noise.")
    if shift.needs == "classes" and not dataset.has_labels:
        raise InputError(
            f"The shift {shift.name} needs one class per example, which {name} does not have; choose"
            f" {'offset' if dataset.values else 'another shift'}."
        )
    if shift.needs == "values" and not dataset.values:
        raise InputError(
            f"The shift {shift.name} needs values as targets, and those of {name} are classes; choose swap or"
            " label-noise."
        )


def _applied(
    dataset: Dataset,
    part: Literal["train", "test"],
    active: Sequence[Shift],
    strengths: Mapping[str, float],
    workers: Sequence[Indices],
    seed: int,
    words: dict[str, list[str]],
) -> Dataset:
    """Apply shifts to the training or the test examples; only one worker's examples are copied at a time."""
    for family, what in (("covariate", "inputs"), ("concept", "labels")):
        kinds = [shift for shift in active if shift.family == family]
        if not kinds:
            continue
        before, values = getattr(dataset, f"train_{what}"), np.array(getattr(dataset, f"{part}_{what}"))
        scales = {shift.needs: _scale(before, shift) for shift in kinds}
        for shift in kinds:
            levels, addressed = _levels(shift, len(workers), seed), _TRAIN if part == "train" else _TEST
            for number, mine in enumerate(workers):
                own, each = (Streams(seed, Purpose.SHIFT).at(shift.code, number, use) for use in (_OWN, addressed))
                place = ShiftedWorker(
                    strengths[shift.name],
                    float(levels[number]),
                    scales[shift.needs],
                    dataset.num_classes,
                    own,
                    each,
                )
                changed = shift.change(values[mine], place)
                values[mine] = changed.values
                words.setdefault(shift.name, []).append(changed.words)
        changed_part: dict[str, Any] = {f"{part}_{what}": values}
        dataset = replace(dataset, **changed_part)
    return dataset


def _levels(shift: Shift, num_workers: int, seed: int) -> Array:
    """Evenly spread levels, dealt at random."""
    ranks = Streams(seed, Purpose.SHIFT).at(shift.code, copy=_DEALT).permutation(num_workers)
    return (2 * ranks + 1) / num_workers - 1


def _dealt(number: int, num_workers: int, seed: int) -> list[Indices]:
    """Test examples, dealt to the workers at random."""
    order = Streams(seed, Purpose.SHIFT).at(copy=_DEALT).permutation(number)
    return [np.sort(part) for part in np.array_split(order, num_workers)]


def _scale(values: Array, shift: Shift) -> Any:
    """The deviation of all inputs, or of each column of values; the sums are those of float64."""
    if shift.needs == "classes":
        return 1.0
    return values.std(axis=0 if shift.needs == "values" else None, dtype=np.float64)
