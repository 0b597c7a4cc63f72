"""The answer on the page on gauging one's own training loop is that of Tiny Shakespeare."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.docs.live_page import free_port, run_program, shown_after

from fedgauge_datasets.catalogue import status


def test_the_page_shows_the_answer_on_the_real_text(tmp_path: Path) -> None:
    data = os.environ["FEDGAUGE_TEST_DATA"]
    if (state := status("shakespeare", data).state) != "ready":
        pytest.skip(f"shakespeare is {state} in {data}")
    printed = run_program("transformer.py", tmp_path, "--data", data, "--port", free_port())
    assert printed.split() == shown_after("python transformer.py --data data").split()
