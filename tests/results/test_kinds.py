"""Results say their kind and version, and are read by what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.report.made import measurement, write_measurement

import fedgauge as fg
from fedgauge.base.errors import InputError
from fedgauge.federation.participation import Participation
from fedgauge.show.results.reading import RESULTS, kind_of, read_results
from fedgauge.values.results import sealed
from fedgauge_wang2024 import sampling, sketch

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "papers" / "wang2024" / "results"
STORED = sorted(
    [*PAPER.rglob("*.json"), ROOT / "verification/results/falsify.json", ROOT / "docs/results/plan/plan.json"]
)
STORED.remove(PAPER / "notes.json")  # which people write


@pytest.mark.parametrize("path", STORED, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_stored_result_says_its_kind_and_is_read(path: Path) -> None:
    data = json.loads(path.read_text())
    kind = kind_of(data)
    assert kind is not None
    assert kind.from_json(data).to_json()["kind"] == data["kind"]


def test_a_file_that_says_no_kind_is_not_guessed_at() -> None:
    data = json.loads((PAPER / "fig2" / "result.json").read_text())
    assert kind_of({name: entry for name, entry in data.items() if name != "kind"}) is None


@pytest.mark.parametrize("kind", RESULTS)
def test_every_kind_is_named_once_and_has_the_command_that_writes_it(kind: str) -> None:
    assert RESULTS[kind].heading() == {"kind": kind, "version": 1}
    assert RESULTS[kind].written_by


def test_what_is_written_now_says_its_kind() -> None:
    for made, kind in (
        (sketch.run(), "sketch"),
        (sampling.run(), "sampling"),
        (measurement().to_json(), "measurement"),
    ):
        assert list(made.items())[:2] == [("kind", kind), ("version", 1)]


def test_a_kind_wins_over_the_shape(tmp_path: Path) -> None:
    data = {**measurement().to_json(), "kind": "table2"}
    (tmp_path / "a.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match="Table2 has no entry"):
        read_results(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"version": 2}, "newer fedgauge"),
        ({"version": "1"}, "newer fedgauge"),
        ({"kind": "measurment"}, "did you mean measurement"),
        ({"kind": []}, "no result of kind"),
    ],
)
def test_another_version_or_kind_is_refused_in_one_sentence(
    entries: dict[str, object], words: str, tmp_path: Path
) -> None:
    path = write_measurement(tmp_path / "measure.json", measurement())
    path.write_text(json.dumps(sealed({**json.loads(path.read_text()), **entries})))
    with pytest.raises(InputError, match=words) as caught:
        read_results(path)
    assert "\n" not in str(caught.value)


def test_a_report_knows_every_setting_that_a_run_writes(tmp_path: Path) -> None:
    federation = fg.federate(
        lambda: torch.nn.Linear(2, 2),
        torch.nn.functional.cross_entropy,
        [(torch.randn(30, 2), torch.randint(0, 2, (30,))) for _ in range(3)],
        batch_size=5,
    )
    fg.simulate(
        federation,
        fg.fedavg(0.1),
        local_steps=2,
        rounds=2,
        participation=Participation("with-replacement", 2),
        start=federation.start(0) + 1,
        record=fg.Recording(watch=False, sample=10),
        stop=fg.StopAt(loss=-1e9, grad2=0.0),
        keep=tmp_path / "run",
    )
    written = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert {"target_grad2", "watch", "start", "record_sample"} <= set(written)
    run = read_results(tmp_path / "run").run
    assert run is not None
    assert run.settings == written
