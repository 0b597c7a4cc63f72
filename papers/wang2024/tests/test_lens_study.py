"""The experiment on lenses: how orders are compared, how steps are counted, and a small run of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgauge.base.errors import InputError
from fedgauge.simulation.options import Compute
from fedgauge.values import Round, Trace
from fedgauge_wang2024 import lens_orders, lens_study

SMALL: dict[str, Any] = {"target": 1.2, "measured_at": 20, "record": 20, "hessian_examples": 5, "local_steps": (10,)}


def trace(*losses: float, every: int = 1) -> Trace:
    rounds = tuple(Round(every * number, loss, 0.0) for number, loss in enumerate(losses))
    return Trace({}, "finished", 0, rounds, np.zeros(1))


def test_steps_to_a_loss_are_interpolated() -> None:
    assert lens_study.steps_to(trace(3.0, 2.0, 1.0, every=5), 1.5, local_steps=4) == pytest.approx(4 * 7.5)
    assert lens_study.steps_to(trace(3.0, 2.0, 2.5), 1.0, local_steps=4) == np.inf
    assert lens_study.steps_to(trace(0.5), 1.0, local_steps=4) == 0.0


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=9))
def test_tau_is_scipys(pairs: list[tuple[int, int]]) -> None:
    from scipy.stats import kendalltau

    x, y = np.array(pairs, dtype=float).T
    wanted = np.nan_to_num(kendalltau(x, y).statistic) if np.ptp(x) and np.ptp(y) else 0.0
    endless = np.where(y == 4, np.inf, y)
    assert lens_orders.taus(np.stack([x, x]), np.stack([endless, y])) == pytest.approx(wanted)


def cell(partition: str, seed: int, slowdown: float, **shown: float) -> dict[str, Any]:
    return {"partition": partition, "seed": seed, "slowdown": {"40": slowdown}, "lenses": shown}


def test_a_lens_in_order_has_tau_one_and_one_in_reverse_minus_one() -> None:
    cells = [
        cell(name, seed, harm, right=harm**2 if harm < 9 else 99.0, wrong=-min(harm, 9.0), flat=1.0)
        for name, harm in (("a", 1.0), ("b", 2.0), ("c", 4.0), ("d", np.inf))
        for seed in range(3)
    ]
    found = lens_orders.orders(cells, ["a", "b", "c", "d"])["40"]
    assert list(found) == ["right", "flat", "wrong"]
    assert found["right"]["tau"] == found["right"]["low"] == found["right"]["spearman"] == pytest.approx(1)
    assert found["wrong"]["tau"] == pytest.approx(-1)
    assert found["flat"]["tau"] == 0
    assert found["right"]["without_one"] == pytest.approx([1, 1])


def test_one_seed_has_no_interval_and_one_partition_can_matter() -> None:
    cells = [
        cell(name, 0, harm, bent=shown) for name, harm, shown in (("a", 1.0, 1.0), ("b", 2.0, 2.0), ("c", 3.0, 0.0))
    ]
    found = lens_orders.orders(cells, ["a", "b", "c"])["40"]["bent"]
    assert found["low"] is found["high"] is None
    assert found["tau"] == pytest.approx(-1 / 3)
    assert found["without_one"] == pytest.approx([-1, 1])


def test_seeds_that_disagree_widen_the_interval() -> None:
    generator = np.random.default_rng(0)
    cells = [
        cell(name, seed, place, noisy=place + generator.normal(0, 3))
        for place, name in enumerate("abcdef")
        for seed in range(3)
    ]
    found = lens_orders.orders(cells, list("abcdef"))["40"]["noisy"]
    assert found["low"] < found["tau"] <= found["high"]
    assert found["high"] - found["low"] > 0.2


def test_a_small_run_is_kept_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how: dict[str, Any] = {
        "source": "digits",
        "seeds": 1,
        "partitions": ["iid", "shards 1"],
        "keep": tmp_path,
        "compute": Compute(processes=1),
    }
    told: list[tuple[int, int | None]] = []
    first = lens_study.run(**how, progress=lambda what, done, total: told.append((done, total)), **SMALL)
    assert told == [(0, 2), (1, 2), (2, 2)]
    iid, apart = first["cells"]
    assert apart["slowdown"]["10"] > iid["slowdown"]["10"] > 0.5
    for name in ("zeta_rms", "B", "drift", "L_h", "delta", "label_js"):
        assert apart["lenses"][name] > iid["lenses"][name] > 0, name

    def broken(*_: Any, **__: Any) -> Any:
        raise AssertionError("a finished cell is run again")

    monkeypatch.setattr(lens_study, "measure_cell", broken)
    assert lens_study.run(**how, **SMALL) == first
    with pytest.raises(AssertionError, match="run again"):
        lens_study.run(**how, **{**SMALL, "target": 1.1})
    lens_orders.draw(first, tmp_path / "lenses.png")
    assert (tmp_path / "lenses.png").stat().st_size > 10_000
    text = lens_orders.page(first, "the command")
    assert "\n    the command\n" in text
    assert text.count("\n| iid |") == text.count("\n| shards 1 |") == 1


def test_bad_input_is_one_sentence() -> None:
    with pytest.raises(InputError, match="no partition 'idd'; did you mean iid"):
        lens_study.run(partitions=["idd"])
