"""Laws that every partition obeys, and those of each scheme."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from fedgauge.base.errors import InputError
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.base.terminal import forget_notices
from fedgauge.data.dataset import Dataset
from fedgauge.data.mixture import paper
from fedgauge.data.partition import Partition
from fedgauge.data.scaling import standardise
from fedgauge.data.schemes import (
    SCHEMES,
    _dirichlet,
    by_id,
    dirichlet,
    iid,
    make_partition,
    parameters_of,
    quantity,
    shards,
)

labels_lists = st.lists(st.integers(0, 6), min_size=1, max_size=80).map(lambda items: np.array(items, np.int64))
seeds = st.integers(0, 2**64 - 1)
MNIST = np.array([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])

PARAMETERS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "paper": st.fixed_dictionaries({"percent": st.floats(0, 100), "fill": st.just(True)}),
    "iid": st.just({}),
    "dirichlet": st.fixed_dictionaries({"alpha": st.floats(0, exclude_min=True, allow_infinity=False)}),
    "shards": st.just({"shards": 1}),
    "quantity": st.fixed_dictionaries({"alpha": st.floats(0, exclude_min=True, allow_infinity=False)}),
    "id": st.just({}),
}


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=80)
@given(labels=labels_lists, data=st.data(), seed=seeds)
def test_every_scheme_gives_disjoint_sets_that_the_seed_determines(
    scheme: str, labels: Any, data: st.DataObject, seed: int
) -> None:
    most = len(np.unique(labels)) if scheme == "id" else len(labels)
    num_workers = data.draw(st.integers(1, most))
    parameters = data.draw(PARAMETERS[scheme])
    made = SCHEMES[scheme](labels, num_workers, seed=seed, **parameters)
    assert made.num_workers == num_workers
    assert len(np.unique(made.indices)) == len(made.indices)  # disjoint
    assert made.sizes.min() >= 1  # nobody without data
    assert made.dropped == 0 or (scheme == "paper" and made.dropped < num_workers)  # complete
    assert made.label_counts(labels).sum(axis=1).tolist() == made.sizes.tolist()
    assert made == SCHEMES[scheme](labels, num_workers, seed=seed, **parameters)
    assert Partition.from_json(json.loads(json.dumps(made.to_json()))) == made
    assert sum(made.weights) == pytest.approx(1.0)
    for worker in range(num_workers):
        assert (np.diff(made.worker(worker)) > 0).all()


@pytest.mark.parametrize("scheme", sorted(set(SCHEMES) - {"id"}))
def test_another_seed_gives_another_partition(scheme: str) -> None:
    labels = np.arange(1000) % 10
    assert SCHEMES[scheme](labels, 10, seed=0).indices.tolist() != SCHEMES[scheme](labels, 10, seed=1).indices.tolist()


# -- the paper's ----------------------------------------------------------------------------------------------------


def wanted(n: int, percent: float) -> int:
    return int(np.floor(n * percent / 100 + 0.5))


@settings(max_examples=200)
@given(labels=labels_lists, num_workers=st.integers(1, 20), percent=st.floats(0, 100), k=st.integers(1, 7), seed=seeds)
def test_workers_are_equal_and_have_their_percentage_or_it_is_refused(
    labels: Any, num_workers: int, percent: float, k: int, seed: int
) -> None:
    present, supply = np.unique(labels, return_counts=True)
    assume(num_workers <= len(labels) and k <= len(present))
    n = len(labels) // num_workers
    own = [[(i * k + j) % len(present) for j in range(k)] for i in range(num_workers)]
    total = wanted(n, percent)
    draws = [total // k + (j < total % k) for j in range(k)]
    demand = np.zeros(len(present), int)
    for row in own:
        for label, number in zip(row, draws, strict=True):
            demand[label] += number
    if (demand > supply).any():
        with pytest.raises(InputError, match=r"percent=.* which has"):
            paper(labels, num_workers, percent=percent, labels_per_worker=k, seed=seed)
        made = paper(labels, num_workers, percent=percent, labels_per_worker=k, seed=seed, fill=True)
    else:
        made = paper(labels, num_workers, percent=percent, labels_per_worker=k, seed=seed)
        counts = made.label_counts(labels)[:, present]
        for worker, row in enumerate(own):
            for label, number in zip(row, draws, strict=True):
                assert counts[worker, label] >= number
    assert (made.sizes == n).all()
    assert made.dropped == len(labels) - n * num_workers


@pytest.mark.parametrize("num_workers", [10, 100])
@pytest.mark.parametrize("percent", [25.0, 50.0, 75.0])
def test_the_papers_settings_on_mnists_label_counts(num_workers: int, percent: float) -> None:
    labels = np.repeat(np.arange(10), MNIST)
    made = paper(labels, num_workers, percent=percent)
    counts = made.label_counts(labels)
    n = 60_000 // num_workers
    own = counts[np.arange(num_workers), np.arange(num_workers) % 10]
    assert made.dropped == 0
    assert (made.sizes == n).all()
    assert (own >= n * percent / 100).all()
    # The rest is spread uniformly: each worker's part of a label that is not its own is hypergeometric.
    rest = MNIST - n * percent / 100 * num_workers / 10
    expected = rest / num_workers
    others = np.arange(num_workers)[:, None] % 10 != np.arange(10)
    assert (np.abs(counts - expected)[others] < 6 * np.sqrt(np.broadcast_to(expected, counts.shape)[others])).all()


def test_all_of_one_label_is_refused_where_labels_are_unequal_and_the_ways_out_work() -> None:
    labels = np.repeat(np.arange(10), MNIST)
    with pytest.raises(InputError, match=r"6000 examples of label 5, which has 5421; use fewer .*=5421\).*fill=True"):
        paper(labels, 10, percent=100.0)
    fewer = paper(labels, 10, percent=100.0, per_worker=5421)
    np.testing.assert_array_equal(fewer.label_counts(labels), 5421 * np.eye(10, dtype=int))
    assert fewer.dropped == 60_000 - 54_210
    filled = paper(labels, 10, percent=100.0, fill=True)
    np.testing.assert_array_equal(filled.label_counts(labels).diagonal(), np.minimum(MNIST, 6000))
    assert filled.dropped == 0


def test_cifar100_at_50_percent_is_refused_and_the_ways_out_work() -> None:
    fine, coarse = np.repeat(np.arange(100), 500), np.repeat(np.arange(100) // 5, 500)
    with pytest.raises(InputError, match="needs 2500 examples of label 0, which has 500") as refused:
        paper(fine, 10, percent=50.0)
    for way in ("per_worker=1000", "labels_per_worker=5", "divide_by='coarse'", "fill=True"):
        assert way in str(refused.value)
    assert paper(fine, 10, percent=50.0, per_worker=1000).sizes.tolist() == [1000] * 10
    with pytest.raises(InputError, match="per_worker=1000"):
        paper(fine, 10, percent=50.0, per_worker=1001)
    five = paper(fine, 10, percent=50.0, labels_per_worker=5).label_counts(fine)
    assert (five[3, 15:20] == 500).all()
    with pytest.raises(InputError, match="labels_per_worker=5"):
        paper(fine, 10, percent=50.0, labels_per_worker=4)
    dataset = Dataset(
        "c", np.zeros((50_000, 1)), fine, np.zeros((0, 1)), fine[:0], tuple(map(str, range(100))), {"coarse": coarse}
    )
    made = make_partition(dataset, "paper", 10, percent=50.0, divide_by="coarse")
    assert made.label_counts(coarse).diagonal().tolist() == [2500] * 10
    assert made.parameters["divide_by"] == "coarse"


def test_the_default_percentage_fills_up_where_labels_run_out_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody chose 50%, so it is no reason to refuse; where it fits, and where it was chosen, nothing is different."""
    labels = np.repeat(np.arange(10), 20)
    forget_notices()
    assert paper(labels, 4) == paper(labels, 4, percent=50.0, fill=True)
    assert [record.getMessage().count("fill=True") for record in caplog.records] == [1]
    with pytest.raises(InputError, match="fill=True"):
        paper(labels, 4, percent=50.0)
    with pytest.raises(InputError, match="fill=True"):
        paper(labels, 4, fill=False)
    caplog.clear()
    assert paper(labels, 10) == paper(labels, 10, percent=50.0)
    assert "fill" not in paper(labels, 10).parameters
    assert not caplog.records


@pytest.mark.parametrize("value", [np.zeros((4, 2)), [(np.zeros(2), 0)], "digits"])
def test_what_is_no_data_set_gets_a_sentence(value: Any) -> None:
    with pytest.raises(InputError, match=f"Dataset, not {type(value).__name__}; make one with from_torch"):
        make_partition(value, "iid", 2)
    with pytest.raises(InputError, match=f"Dataset, not {type(value).__name__}"):
        standardise(value)


def test_an_array_is_no_name_of_ids() -> None:
    dataset = Dataset("d", np.zeros((4, 1)), np.arange(4) % 2, np.zeros((0, 1)), np.zeros(0, int), ("a", "b"))
    with pytest.raises(InputError, match=r"divide_by must be the name .* not ndarray"):
        make_partition(dataset, "paper", 2, divide_by=np.arange(4))  # type: ignore[arg-type]


# -- Dirichlet ------------------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(
    alpha=st.floats(0, exclude_min=True, allow_infinity=False, allow_subnormal=True),
    num_workers=st.integers(1, 60),
    least=st.integers(0, 3),
    seed=seeds,
)
@example(alpha=5e-324, num_workers=60, least=1, seed=0)
@example(alpha=1.7e308, num_workers=60, least=3, seed=0)
def test_dirichlet_ends_for_every_alpha_with_nobody_below_the_least(
    alpha: float, num_workers: int, least: int, seed: int
) -> None:
    labels = np.arange(180) % 7
    for scheme in (dirichlet, quantity):
        made = scheme(labels, num_workers, alpha=alpha, least=least, seed=seed)
        assert made.sizes.min() >= least
        assert made.dropped == 0


@pytest.mark.parametrize("alpha", [0.01, 0.3, 1.0, 20.0])
def test_the_parts_have_the_mean_and_variance_of_the_dirichlet_distribution(alpha: float) -> None:
    size, draws = 5, 20_000
    generator = Streams(0, Purpose.PARTITION).at()
    parts = np.array([_dirichlet(alpha, size, generator) for _ in range(draws)])
    variance = (size - 1) / (size**2 * (size * alpha + 1))
    np.testing.assert_allclose(parts.sum(axis=1), 1, rtol=1e-12)
    # Five standard errors of a mean; for the variance, of numbers in [0, 1].
    assert (np.abs(parts.mean(axis=0) - 1 / size) < 5 * np.sqrt(variance / draws)).all()
    assert (np.abs(parts.var(axis=0) - variance) < 5 * parts.var(axis=0) * 4 / np.sqrt(draws)).all()


def test_small_alpha_gives_a_label_to_one_worker_and_large_alpha_to_all_equally() -> None:
    labels = np.arange(1000) % 10
    small = dirichlet(labels, 10, alpha=1e-6, least=0).label_counts(labels)
    assert (small.max(axis=0) == 100).all()
    large = dirichlet(labels, 10, alpha=1e12).label_counts(labels)
    assert (large == 10).all()


def test_empty_workers_only_when_asked() -> None:
    labels = np.zeros(50, np.int64)
    assert dirichlet(labels, 10, alpha=1e-9).sizes.tolist().count(1) == 9
    assert (dirichlet(labels, 10, alpha=1e-9, least=0).sizes == 0).sum() == 9
    assert dirichlet(labels, 80, alpha=1.0, least=0).num_workers == 80


# -- shards and ids -------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(num_workers=st.integers(1, 20), pieces=st.integers(1, 5), seed=seeds)
def test_shards_are_runs_of_the_sorted_labels(num_workers: int, pieces: int, seed: int) -> None:
    labels = np.random.default_rng(0).integers(0, 10, 200)
    made = shards(labels, num_workers, shards=pieces, seed=seed)
    # Cut sorted labels in P runs: a run holds at most 1 + (cuts between labels inside it), so all together P + 9.
    held = (made.label_counts(labels, 10) > 0).sum()
    assert held <= num_workers * pieces + 9
    assert made.sizes.max() - made.sizes.min() <= pieces


def test_ids_become_workers_in_order_and_may_be_dealt_to_fewer() -> None:
    ids = np.array([30, 10, 30, 20, 10, 30])
    made = by_id(ids)
    assert [ids[made.worker(i)].tolist() for i in range(3)] == [[10, 10], [20], [30, 30, 30]]
    fewer = by_id(ids, 2)
    held = [set(ids[fewer.worker(i)].tolist()) for i in range(2)]
    assert not held[0] & held[1]
    assert sorted(map(len, held)) == [1, 2]


# -- what is refused ------------------------------------------------------------------------------------------------

LABELS = np.arange(100) % 10
REFUSED: dict[str, tuple[str, Any, dict[str, Any], str]] = {
    "N above the data": ("iid", 101, {}, "workers must be at most 100, the number of examples, not 101"),
    "no workers": ("iid", 0, {}, "workers must be a whole number of at least 1, not 0"),
    "half a worker": ("paper", 2.5, {}, "workers must be a whole number"),
    "N missing": ("paper", None, {}, "The scheme paper needs the number of workers"),
    "X above": ("paper", 10, {"percent": 100.5}, "percent must be a number from 0 to 100, not 100.5"),
    "X below": ("paper", 10, {"percent": -1}, "percent must be a number from 0 to 100, not -1"),
    "X is NaN": ("paper", 10, {"percent": float("nan")}, "percent must be a number from 0 to 100, not nan"),
    "X is a word": ("paper", 10, {"percent": "half"}, "percent must be a number from 0 to 100, not 'half'"),
    "too many labels": ("paper", 10, {"labels_per_worker": 11}, "at most 10, the number of labels, not 11"),
    "no labels": ("paper", 10, {"labels_per_worker": 0}, "labels_per_worker must be a whole number of at least 1"),
    "too many each": ("paper", 10, {"per_worker": 11}, "per_worker must be at most 10, so that 10 workers"),
    "alpha 0": ("dirichlet", 10, {"alpha": 0.0}, "alpha must be a finite number above 0, not 0.0"),
    "alpha inf": ("quantity", 10, {"alpha": float("inf")}, "alpha must be a finite number above 0"),
    "least": ("dirichlet", 60, {"least": 2}, "60 workers with at least 2 examples each need 120, and there are 100"),
    "least below 0": ("dirichlet", 6, {"least": -1}, "least must be a whole number of at least 0"),
    "too many shards": ("shards", 60, {"shards": 2}, "60 workers with 2 shards each need 120 examples, not 100"),
    "too many ids": ("id", 4, {"divide_by": "writer"}, "at most 3, the number of different ids, not 4"),
    "no such ids": ("iid", 4, {"divide_by": "coarse"}, r"has no ids called 'coarse' \(it has: writer\)"),
    "no such scheme": ("papers", 4, {}, "There is no scheme 'papers'; did you mean paper"),
    "not its own": ("iid", 4, {"alpha": 1.0}, r"The scheme iid has no parameter alpha \(it takes: none\)"),
    "seed": ("iid", 4, {"seed": -1}, "seed must be a whole number from 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_refused_with_the_reason(name: str) -> None:
    scheme, num_workers, parameters, sentence = REFUSED[name]
    dataset = Dataset(
        "made", np.zeros((100, 1)), LABELS, np.zeros((0, 1)), LABELS[:0], tuple("0123456789"), {"writer": LABELS % 3}
    )
    with pytest.raises(InputError, match=sentence):
        make_partition(dataset, scheme, num_workers, **parameters)


def test_the_id_scheme_needs_ids() -> None:
    dataset = Dataset("made", np.zeros((100, 1)), LABELS, np.zeros((0, 1)), LABELS[:0], tuple("0123456789"))
    with pytest.raises(InputError, match="needs divide_by, the name of the ids to divide by; made has: none"):
        make_partition(dataset, "id")


@pytest.mark.parametrize("labels", [[], [0.5, 1.0], [-1, 0], [[0, 1]]], ids=str)
def test_labels_that_are_none_are_refused(labels: Any) -> None:
    with pytest.raises(InputError, match="labels must be whole numbers of at least 0"):
        iid(labels, 1)


def test_parameters_are_known_for_every_scheme() -> None:
    assert {scheme: parameters_of(scheme) for scheme in SCHEMES} == {
        "paper": ["percent", "labels_per_worker", "per_worker", "fill"],
        "iid": [],
        "dirichlet": ["alpha", "least"],
        "shards": ["shards"],
        "quantity": ["alpha", "least"],
        "id": ["grouping"],
    }


# -- the value ------------------------------------------------------------------------------------------------------

GOOD = {"scheme": "iid", "parameters": {}, "seed": 0, "num_examples": 4, "sizes": [2, 1], "indices": [0, 3, 1]}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "twice": ({"indices": [0, 3, 3]}, "indices must differ, and 3 occurs 2 times"),
    "outside": ({"indices": [0, 3, 4]}, "indices must lie in 0 to 3, not in 0 to 4"),
    "negative": ({"indices": [0, 3, -1]}, "indices must lie in 0 to 3"),
    "sum": ({"sizes": [2, 2]}, "sizes must be .* add up to the 3 indices, not to 4"),
    "negative size": ({"sizes": [4, -1]}, "sizes must be numbers of at least 0"),
    "parts": ({"indices": [0, 3, 1.5]}, "indices must be whole numbers, not .*1.5"),
    "words": ({"indices": ["a", "b", "c"]}, "list of whole numbers"),
    "ragged": ({"indices": [[0], [1, 2]]}, "list of whole numbers"),
    "no examples": ({"num_examples": 0}, "num_examples must be a whole number of at least 1"),
    "unknown": ({"sises": [1]}, "Partition has no entry 'sises'; did you mean sizes"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_partition_is_refused(name: str, tmp_path: Path) -> None:
    changes, sentence = BAD[name]
    path = tmp_path / "p.json"
    path.write_text(json.dumps({**GOOD, **changes}))
    with pytest.raises(InputError, match=sentence):
        Partition.read(path)


def test_partitions_go_through_files(tmp_path: Path) -> None:
    made = dirichlet(LABELS, 7, seed=3)
    made.write(tmp_path / "p.json")
    assert Partition.read(tmp_path / "p.json") == made
    assert hash(Partition.read(tmp_path / "p.json")) == hash(made)
    with pytest.raises(InputError, match=r"Cannot read .*No such file"):
        Partition.read(tmp_path / "none.json")
    (tmp_path / "p.json").write_text("{")
    with pytest.raises(InputError, match="is not valid JSON"):
        Partition.read(tmp_path / "p.json")
    with pytest.raises(InputError, match="worker must lie in 0 to 6, not 7"):
        made.worker(7)
    with pytest.raises(InputError, match="one entry for each of the 100 examples, not 99"):
        made.label_counts(LABELS[:99])
    with pytest.raises(ValueError, match="read-only"):
        made.indices[0] = 1
