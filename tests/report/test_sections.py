"""Laws that every section of a report obeys, and what it takes to add one."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from tests.report.made import measurement, write_measurement

from fedgauge.base.user_code import SECTIONS as ADDED
from fedgauge.base.user_code import plugins
from fedgauge.show.page import sections
from fedgauge.show.page.build import build
from fedgauge.show.page.section import ANY, ReportInput, Section
from fedgauge.show.page.sections import SECTIONS
from fedgauge.show.results.reading import RESULTS, RUN, read_results

FILES = sorted(path for path in Path(sections.__file__).parent.glob("*.py") if path.stem != "__init__")
WITHOUT_PAGE = {
    "sketch",
    "sampling",
    "lens-study",
    "decisive-study",
    "design",
    "falsification",
    "demo",
    "probe",
    "inspection",
}


def test_every_section_is_listed_once() -> None:
    modules = [import_module(f"{sections.__name__}.{path.stem}") for path in FILES]
    own = [held.name for module in modules for held in vars(module).values() if isinstance(held, Section)]
    added = {section.name for some in plugins(ADDED).values() for section in some}
    assert sorted([*own, *added]) == sorted(section.name for section in SECTIONS)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_a_section_registers_for_kinds_that_there_are(section: Section) -> None:
    assert section.title
    assert set(section.kinds) <= {RUN, ANY, *RESULTS}
    assert section.kinds or section.heading is None


def test_every_kind_has_one_heading_or_no_page() -> None:
    headed = [section.kinds[0] for section in SECTIONS if section.heading]
    assert sorted(headed) == sorted({RUN, *RESULTS} - WITHOUT_PAGE)


def test_a_section_of_ones_own_is_one_object(tmp_path: Path) -> None:
    """One file with this and one line in the list; nothing else knows of a section."""

    def show(given: ReportInput) -> dict[str, object] | None:
        found = given.results.measurement
        return {"symbols": list(found.constants), "said": "<b>"} if found else None

    mine = Section(
        "mine", "My own", ("measurement",), show, "{{ said }}{% for each in symbols %}{{ each | symbol }}{% endfor %}"
    )
    write_measurement(tmp_path / "measure.json", measurement())
    made = build(read_results(tmp_path), sections=(*SECTIONS[:-1], mine, SECTIONS[-1]))
    assert made.data["sections"][-2:] == ["mine", "commands"]
    assert '<a href="#mine">My own</a>' in made.html
    assert "&lt;b&gt;<math><msub><mi>L</mi><mi>h</mi></msub></math>" in made.html
    # It is not there where the report has nothing of its kind.
    ledger = Path(__file__).parents[2] / "papers" / "wang2024" / "results" / "ledger.json"
    assert "mine" not in build(read_results(ledger), sections=(*SECTIONS[:-1], mine, SECTIONS[-1])).data["sections"]
