"""The page on gauging one's own training loop is followed from its start to its answers, on text that ships."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.live_page import ROOT, free_port, program, run_program, shown_after


def words(text: str) -> str:
    return " ".join(text.split())


def test_three_lines_in_a_loop_have_an_answer_and_a_picture(tmp_path: Path) -> None:
    printed = words(run_program("loop.py", tmp_path))
    assert re.match(r"Use \d+ local steps if a round costs as much as 10 of them", printed)
    assert "without a step that does not train" in printed
    assert (tmp_path / "answer.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_a_job_of_four_processes_has_the_answer_that_the_page_shows_for_another_text(tmp_path: Path) -> None:
    printed = run_program("transformer.py", tmp_path, "--port", free_port())
    # The same sentences with other numbers, as this text is another one.
    for text in (printed, shown_after("python transformer.py --data data")):
        said = words(text)
        assert re.match(r"Use \d+ local steps if a round costs as much as 30 of them", said)
        assert "compared with 8 local steps per round" in said
        assert "for 640 of its 2,048 steps (31%), without a step that does not train" in said


def test_the_job_is_an_example_of_the_repository() -> None:
    assert program("transformer.py") == (ROOT / "examples" / "transformer.py").read_text("utf-8")
