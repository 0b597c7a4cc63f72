"""The transformer on generated text, from the front door."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import Capture, answer

SMALL = (
    "--scheme id --workers 4 --model transformer --model-option width=8 --model-option heads=2 --model-option layers=1"
    " --batch-size 8 --processes 1"
)


def test_a_transformer_trains_on_text_by_document(tmp_path: Path, capsys: Capture) -> None:
    how = f"simulate text {SMALL} --gamma 0.01 --optimiser adamw --local-steps 3 --rounds 2"
    how += " --record-sample 4 --test-examples 40 --json"
    found = answer(capsys, f"{how} --out {tmp_path / 'run'}")
    losses = [each["loss"] for each in found["rounds"]]
    assert losses[-1] < losses[0] - 0.05
    assert 0.0 < found["rounds"][-1]["accuracy"] < 1.0
    # The run that is there is read, and nothing is computed again.
    assert answer(capsys, f"{how} --out {tmp_path / 'run'} --resume")["model"] == found["model"]


def test_the_gauge_reads_it(capsys: Capture) -> None:
    found = answer(capsys, f"gauge text {SMALL} --gamma 0.3 --steps 8 --candidates 2 --json")
    assert [each["local_steps"] for each in found["answer"]["efficiency"]] == [1, 2]
    assert found["losses"][-1] < found["losses"][0]
