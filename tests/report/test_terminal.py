"""What a terminal shows is complete, or says what is left out."""

from __future__ import annotations

import pytest

from fedgauge.show import console
from fedgauge.show.views.runs import check_view
from fedgauge.simulation.runs.reader import FoundRun


@pytest.mark.parametrize(("number", "words"), [(23, "more are left out"), (3, "3 ratios exceed the constant")])
def test_a_check_says_how_many_more_ratios_there_are(
    number: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = FoundRun("run", "finished", number, {})
    console.show(check_view(run, {"L_h": 1.0}, [(at, "L_h", 2.0) for at in range(number)], number))
    text = " ".join(capsys.readouterr().out.split())
    assert words in text
    rows = sum(f" {at} L_h 2 1" in text for at in range(number))
    assert f"{number} ratios exceed" in text
    assert rows == number or f"{number - rows} more are left out" in text


def test_a_number_stays_in_one_line_with_its_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "out", console.PrintableConsole(highlight=False, width=40))
    console.table("", ("round", "loss f", "spread of the workers"), [("1", "0.9671 ± 0.024", "0.04117")])
    assert "0.9671 ± 0.024" in capsys.readouterr().out
