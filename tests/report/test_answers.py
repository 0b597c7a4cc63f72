"""The answer is the same, in the same words and numbers, wherever it is shown, and before everything else."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from tests.report.made import write_run
from tests.report.test_notebook import made

from fedgauge.show import console
from fedgauge.show.charts import HeatMap, LineChart, Row, RowChart, Series, StackedChart, StackLayer
from fedgauge.show.displays import text
from fedgauge.show.page.build import build
from fedgauge.show.page.section import is_single, rendered_card, single_values
from fedgauge.show.results.background import background_of
from fedgauge.show.results.reading import read_results
from fedgauge.show.views import view
from fedgauge.values.answer import Answer, StepEfficiency

FIRST = StepEfficiency(1, 1.0, 1.0, 1.0, measured=False)
SHARES = {8: 0.97, 16: 0.9, 32: 0.8, 64: 0.7, 128: 0.55, 256: 0.4, 512: 0.2, 1024: 0.02}
MANY = (
    FIRST,
    StepEfficiency(4, 1.3, 1.2, 1.4),
    *(StepEfficiency(steps, share, 0.8 * share, 1.25 * share) for steps, share in SHARES.items()),
    StepEfficiency.at_most(4096, 0.1),
    StepEfficiency.at_most(16384, 0.004),
)
ANSWERS = {
    "ordinary": Answer((FIRST, StepEfficiency(16, 0.8, 0.7, 0.9)), "synchronous training", cost=100.0, using=4),
    "extreme": Answer(
        MANY, "synchronous training", cost=1e6, using=4, phases=tuple((when, MANY[1:]) for when in ("early", "late"))
    ),
    "no cost": Answer(MANY, "16 local steps per round"),
    "free": Answer((FIRST, StepEfficiency(64, 1.0, 1.0, 1.0)), "synchronous training", cost=1e-3),
}


def plain(html: str) -> str:
    return " ".join(unescape(re.sub("<[^>]*>", " ", html)).split())


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "out", console.PrintableConsole(highlight=False, width=80))


@pytest.mark.parametrize("name", ANSWERS)
def test_all_say_the_same(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = ANSWERS[name]
    shown = view(answer)
    console.show(shown)
    printed = capsys.readouterr().out
    card = rendered_card(shown)
    assert printed.startswith(answer.sentence)
    assert text(answer).replace("\n", " ").startswith(answer.sentence)
    rows = [[str(cell) for cell in row] for row in shown.tables[0].rows]
    for place in (plain(answer._repr_html_()), plain(str(card.html))):
        for row in rows:
            assert " ".join(row) in place
        assert all(sentence in place for sentence in (*shown.sentences[1:], *shown.limits))
    for row in rows:
        assert all(cell in printed for cell in row[1:])
    assert Answer.from_json(json.loads(json.dumps(answer.to_json()))).sentence == answer.sentence


@pytest.mark.parametrize("name", ANSWERS)
def test_a_terminal_of_80_columns_draws_the_curve(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = ANSWERS[name]
    console.show(view(answer))
    lines = capsys.readouterr().out.splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith("How much of the work counts"))
    curve = lines[begin + 4 : begin + 4 + len(answer.efficiency)]
    assert max(map(len, curve)) <= 80
    bars = [re.search("[█▏]+", line) for line in curve]
    assert len({bar.start() for bar in bars if bar}) == 1
    for line, bar, each in zip(curve, bars, answer.efficiency, strict=True):
        assert line.split()[0] == str(each.local_steps)
        assert each.share in line
        assert bar is not None
    lengths = [len(bar.group()) for bar in bars if bar]
    # The reference is a whole; what is above 1 is longer, and what is less is not.
    assert lengths[0] == 12
    assert all((length > 12) == each.is_above_one for length, each in zip(lengths, answer.efficiency, strict=True))


def test_large_numbers_are_written_out() -> None:
    shown = view(ANSWERS["extreme"])
    assert "as much as 1,000,000 of them" in shown.sentences[0]
    cells = [str(cell) for table in shown.tables for row in table.rows for cell in row]
    assert not [cell for cell in (*shown.sentences, *cells) if re.search(r"\de[+-]?\d", cell)]
    assert "at most 0.4%" in cells


@pytest.mark.parametrize("kind", ["answer", "gauge", "plan"])
def test_the_first_line_is_the_answer(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    result: Any = made(kind)
    answer = result if kind == "answer" else result.answer
    console.show(view(result))
    assert capsys.readouterr().out.startswith(answer.sentence)
    assert text(result).replace("\n", " ").startswith(answer.sentence)
    assert plain(result._repr_html_()).startswith(answer.sentence)


SERIES = Series("f", [0.0, 1.0, 2.0], [1.0, 0.5, 0.25])
FLAT = Series("f", [0.0, 1.0], [0.5, 0.5])
BANDED = Series("f", [0.0, 1.0], [0.5, 0.5], 0, "line", [0.4, 0.3], [0.6, 0.7])
POINTS = [Series("a", [3.0], [1.0]), Series("b", [3.0], [2.0])]


def lines(*series: Series) -> LineChart:
    return LineChart("c", series, "Loss", "round", "f")


@pytest.mark.parametrize(
    ("chart", "single"),
    [
        (lines(SERIES), False),
        (lines(FLAT), True),
        (lines(FLAT, SERIES), False),
        (lines(BANDED), False),
        (lines(*POINTS), True),
        (lines(Series("f", [0.0, 1.0], [1.0, float("inf")])), True),
        (lines(), False),  # a sentence says that there is nothing finite to draw
        (StackedChart("c", [1.0], [StackLayer("a", 0, [1.0])], "T", "I", "f"), True),
        (StackedChart("c", [1.0, 2.0], [StackLayer("a", 0, [1.0, 1.0])], "T", "I", "f"), False),
        (HeatMap("c", [[600.0, 600.0]], ["a"], ["0", "1"], "T", "label", "worker"), True),
        (HeatMap("c", [[600.0, 500.0]], ["a"], ["0", "1"], "T", "label", "worker"), False),
        (RowChart("c", [Row("a", "b", 1.0, 0.5, 2.0)], "T", "value"), True),
    ],
)
def test_a_picture_that_says_nothing_is_known(chart: Any, single: bool) -> None:
    assert is_single(chart) == single


def test_what_is_not_drawn_is_written(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rounds=5)
    records = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    (run / "rounds.jsonl").write_text("".join(f"{json.dumps({**one, 'accuracy': 0.25})}\n" for one in records))
    found = read_results(run)
    report = build(found, background_of(found))
    assert "accuracy" not in report.data["charts"]
    assert "loss" in report.data["charts"]
    assert '<dt>Test accuracy</dt><dd><data value="0.25">' in report.html
    assert single_values(lines(*POINTS)) == {"a": 1.0, "b": 2.0}
