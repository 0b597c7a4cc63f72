"""Results say their kind and version; files that are older than that are recognised by their shape."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.report.made import measurement, write_measurement

import fedgauge as fg
from fedgauge.errors import InputError
from fedgauge.federation.participation import Participation
from fedgauge.measurement.reading import Measurement
from fedgauge.reproduce import sampling, sketch
from fedgauge.results.kinds import RESULTS, kind_of
from fedgauge.results.reading import read_results
from fedgauge.values.results import sealed

RESULTS_PAGES = Path(__file__).parents[2] / "docs" / "results"
# What is stored was written before results named their kind.
STORED = {
    "certified/digits.json": "certified-bounds",
    "falsify.json": "falsification",
    "fig1/result.json": "sketch",
    "fig2/result.json": "figure",
    "ledger.json": "ledger",
    "lenses.json": "lens-study",
    "mnist/result.json": "sweep",
    "sampling/result.json": "sampling",
    "table1/result.json": "table1",
    "table2/result.json": "table2",
}


@pytest.mark.parametrize(("name", "kind"), STORED.items())
def test_an_older_file_is_recognised_and_read_as_one_that_says_its_kind(name: str, kind: str) -> None:
    data = json.loads((RESULTS_PAGES / name).read_text())
    data = {key: value for key, value in data.items() if key not in ("kind", "version")}
    found = kind_of(data)
    assert found is RESULTS[kind]
    stamped = {**found.heading(), **data}
    assert kind_of(stamped) is found
    assert found.from_json(stamped) == found.from_json(data)


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


def test_an_older_measurement_is_read(tmp_path: Path) -> None:
    data = measurement().to_json()
    del data["kind"], data["version"]
    (tmp_path / "measure.json").write_text(json.dumps(sealed(data)))
    found = read_results(tmp_path).measurement
    assert isinstance(found, Measurement)
    assert found.to_json() == measurement().to_json()


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
