"""A theorem beside a run of a federation that only Python knows: what is certified, and what steps down."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import fedgauge as fg
from fedgauge.measurement.session import MeasureOptions
from fedgauge.simulation.runs.reader import read_run
from fedgauge.theory.comparison import Comparison, compare
from fedgauge.values import Constants

FEDERATION = fg.random_quadratics(3, 2, hessian_spread=0.0, sigma2=0.1)


def constants(seed: int = 0) -> Constants:
    options = MeasureOptions(("certified",))
    first = FEDERATION.start(0)
    return fg.measure(FEDERATION, fg.fedavg(gamma=0.01), seed=seed, model=first, options=options).constants


def beside(place: Path, found: Constants, seed: int = 0, start: torch.Tensor | None = None) -> Comparison:
    fg.simulate(FEDERATION, fg.fedavg(gamma=0.01), local_steps=2, rounds=5, seed=seed, start=start, keep=place)
    return compare(read_run(place), found, FEDERATION.num_workers)


def test_the_seed_s_own_first_model(tmp_path: Path) -> None:
    found = beside(tmp_path / "run", constants())
    assert (found.answer.standing, found.notes) == ("certified", ())


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_a_first_model_that_was_chosen(tmp_path: Path, scale: float) -> None:
    """It is compared by its digest, so that the same model from another place is the same model."""
    found = beside(tmp_path / "run", constants(), start=scale * FEDERATION.start(0))
    if scale == 1:
        assert (found.answer.standing, found.notes) == ("certified", ())
    else:
        assert found.answer.standing == "plug-in"
        assert found.notes == ("F counts as assumed, because it belongs to another first model.",)


def test_a_run_with_another_seed(tmp_path: Path) -> None:
    """That quadratics have one first model for all seeds is not known to what reads a run."""
    assert beside(tmp_path / "run", constants(), seed=4).answer.standing == "plug-in"
    assert beside(tmp_path / "other", constants(seed=4), seed=4).answer.standing == "certified"


def test_a_run_that_does_not_say_its_federation(tmp_path: Path) -> None:
    found = constants()
    beside(tmp_path / "run", found)
    run = read_run(tmp_path / "run")
    unknown = type(run)(**{**vars(run), "settings": {**run.settings, "federation": None}})
    assert compare(unknown, found, FEDERATION.num_workers).answer.standing == "plug-in"
