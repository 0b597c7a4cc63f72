"""Every symbol can be set as a formula, so that no report fails on one."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from fedgauge.base.symbols import SYMBOLS
from fedgauge.show.web.mathml import symbol_math


@pytest.mark.parametrize("name", SYMBOLS)
def test_every_symbol_is_well_formed_and_shows_no_command(name: str) -> None:
    formula = ElementTree.fromstring(f"<math>{symbol_math(name)}</math>")
    shown = "".join(formula.itertext())
    assert shown
    assert "\\" not in shown
    assert "math" not in shown
