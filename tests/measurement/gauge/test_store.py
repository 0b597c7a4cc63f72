"""Parts that a gauge keeps are used only if this gauge wrote them, whatever lies in their place."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from fedgauge import GaugeOptions, GaugeResult, diloco, fedavg, gauge, random_quadratics
from fedgauge.base.errors import InputError
from fedgauge.measurement.gauge.store import PartStore
from fedgauge.simulation.runs.checkpoints import State, read_checkpoint, write_checkpoint

FEDERATION = random_quadratics(4, 3, hessian_spread=0.3, sigma2=0.01)
OPTIONS = GaugeOptions(steps=100, local_steps=[4, 16])


@pytest.fixture(scope="module")
def whole() -> GaugeResult:
    found = taken()
    assert found is not None
    return found


def taken(place: Path | None = None, until: int | None = None) -> GaugeResult | None:
    """The gauge; interrupted after so many steps."""

    def progress(what: str, done: int, total: int | None) -> None:
        if until is not None and done >= until:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        return gauge(FEDERATION, fedavg(gamma=0.02), options=OPTIONS, directory=place, progress=progress)
    return None


def scaled(path: Path) -> None:
    """Multiply the losses by 0.7, as an editor could."""
    kept = json.loads(path.read_text())
    kept["content"]["losses"] = [0.7 * loss for loss in kept["content"]["losses"]]
    path.write_text(json.dumps(kept))


def replaced(content: str) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        path.write_text(content)

    return replace


def linked(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (scaled, "one"),
        *((damage, name) for damage in (replaced("{}"), linked, piped) for name in ("one", "run", "settings")),
        (replaced("[1"), "run"),
        (replaced("7"), "run"),
    ],
)
def test_a_part_that_is_not_what_was_written_is_computed_again(
    damage: Callable[[Path], None],
    name: str,
    whole: GaugeResult,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    taken(tmp_path, until=230)
    path = next(path for path in sorted(tmp_path.iterdir()) if path.name.startswith(name))
    damage(path)
    with caplog.at_level(logging.WARNING, "fedgauge"):
        again = taken(tmp_path)
    assert again == whole
    assert f"{path} cannot be used" in caplog.text


def test_a_state_of_another_gauge_is_not_taken_for_its_own(whole: GaugeResult, tmp_path: Path) -> None:
    for place, seed in ((tmp_path / "one", 0), (tmp_path / "other", 1)):
        with suppress(KeyboardInterrupt):
            gauge(FEDERATION, fedavg(gamma=0.02), options=OPTIONS, directory=place, seed=seed, progress=stop_at(130))
    for path in (tmp_path / "other").glob("state-*"):
        os.replace(path, tmp_path / "one" / path.name)
    for name in ("one.json", "run-4-25-shared.json"):
        if (tmp_path / "other" / name).exists():
            os.replace(tmp_path / "other" / name, tmp_path / "one" / name)
    assert taken(tmp_path / "one") == whole


def stop_at(steps: int) -> Callable[[str, int, int | None], None]:
    def progress(what: str, done: int, total: int | None) -> None:
        if done >= steps:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("until", [60, 230])
def test_what_it_cost_is_the_same_after_a_resume(until: int, whole: GaugeResult, tmp_path: Path) -> None:
    taken(tmp_path, until)
    again = taken(tmp_path)
    assert again is not None
    assert again.spent == whole.spent


def test_two_gauges_do_not_share_a_directory(tmp_path: Path) -> None:
    first = PartStore(tmp_path, {"seed": 0})
    with pytest.raises(InputError, match="Another process is writing the gauge"):
        PartStore(tmp_path, {"seed": 0})
    first.close()
    PartStore(tmp_path, {"seed": 0}).close()
    with pytest.raises(InputError, match="parts of a gauge with another seed"):
        PartStore(tmp_path, {"seed": 1})


def test_ctrl_c_in_the_base_run_returns_what_there_is() -> None:
    found = taken(until=60)
    assert found is not None
    assert not found.complete
    assert found.steps[-1] < 70
    assert len(found.losses) == len(found.steps) > 10
    assert found.sentence == "There is no answer yet: too little was observed to compare local steps."
    assert "interrupted after" in found.notes[0]
    assert GaugeResult.from_json(found.to_json()) == found


def test_a_reference_with_two_moments_is_kept_and_resumed(tmp_path: Path) -> None:
    def taken(place: Path | None) -> GaugeResult:
        return gauge(FEDERATION, diloco(gamma=0.02), options=OPTIONS, directory=place)

    first, second = taken(tmp_path), taken(tmp_path)
    assert first.to_json() == second.to_json() == taken(None).to_json()


def test_tensors_that_share_memory_are_kept_as_two(tmp_path: Path) -> None:
    shared = torch.zeros(4)
    state = State(1, torch.ones(2), {"m": shared, "v": shared}, {"row": shared[None, :2]})
    write_checkpoint(tmp_path / "state.safetensors", state, {})
    found, _ = read_checkpoint(tmp_path / "state.safetensors")
    assert [found.server[name].tolist() for name in ("m", "v")] == [[0.0] * 4] * 2
    assert found.memory["row"].tolist() == [[0.0, 0.0]]
