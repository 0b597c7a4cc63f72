"""Build the report page: the verdict first, then every section that has something to show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fedgauge.base.errors import InputError
from fedgauge.show.page.section import Heading, RenderedSection, ReportInput, Section
from fedgauge.show.page.sections import SECTIONS
from fedgauge.show.results.background import Background
from fedgauge.show.results.reading import RESULTS, FoundResults
from fedgauge.show.web.elements import finite, page_environment, render_page
from fedgauge.show.web.writing import math_font, resource

_PACKAGE = "fedgauge.show.page"


class Report(NamedTuple):
    """A report: the page, and everything that it shows, as JSON."""

    html: str
    data: dict[str, Any]


def build(
    found: FoundResults,
    background: Background | None = None,
    command: str = "",
    sections: Sequence[Section] = SECTIONS,
) -> Report:
    """Write the report on some results.

    Args:
        found: the results that were read from files.
        background: what was computed about them by :func:`fedgauge.show.results.background.background_of`.
        command: the command that makes this report, to be shown on the page.
        sections: the sections of the page.
    """
    background = background or Background()
    headings = _headings(found, sections)
    given = ReportInput(found, background, command, tuple(headings.values()))
    main = given.headings[0]
    answer = next((heading for heading in given.headings if heading.is_answer), main)
    others = [main.verdict(given)] if answer is not main else []
    verdict, summary = answer.verdict(given), " ".join(filter(None, [*others, main.summary(given)]))
    shown = _rendered(replace(given, beginning=f"{verdict} {summary}"), sections)
    # JSON has no infinity; the page's data has text instead of an infinite number.
    data: dict[str, Any] = finite(
        {
            "path": found.path,
            "verdict": verdict,
            "summary": summary,
            "sections": [section.name for section in shown],
            "bound": background.comparison.to_json() if background.comparison else None,
            "charts": {chart.name: chart.data for section in shown for chart in section.charts},
        }
    )
    html = render_page(
        page_environment(_PACKAGE),
        "report.html",
        style=math_font() + resource("palette.css") + resource("page.css", _PACKAGE),
        script=f'(()=>{{"use strict";\n{resource("writing.js")}\n{resource("page.js", _PACKAGE)}}})();',
        data=data,
        heading=_title(found),
        noun=" and ".join(heading.noun for heading in given.headings),
        verdict=verdict,
        summary=summary,
        warnings=_warnings(given),
        sections=shown,
    )
    return Report(html, data)


def _headings(found: FoundResults, sections: Sequence[Section]) -> dict[str, Heading]:
    """The headings of the kinds of result that were found; a kind without a section is an error."""
    known = {section.kinds[0]: section.heading for section in sections if section.heading}
    for kind in found.kinds:
        if kind not in known:
            raise InputError(
                f"{found.path} is the result of '{RESULTS[kind].written_by}', for which there is no report page; that"
                " command prints and draws its result itself."
            )
    return {kind: known[kind] for kind in found.kinds}


def _rendered(given: ReportInput, sections: Sequence[Section]) -> list[RenderedSection]:
    """The sections that have something to show; a plan beside a run is the next step, so it comes last."""
    *before, last = sections
    if given.found.run:
        before.sort(key=lambda section: section.is_last_beside_run)
    rendered = (section.render(given) for section in (*before, last))
    return [section for section in rendered if section]


def _title(found: FoundResults) -> str:
    path = Path(found.path)
    return path.name or str(path.absolute().name)


def _warnings(given: ReportInput) -> list[str]:
    """What a reader must know first: that a run is incomplete, or that something could not be shown."""
    run, comparison = given.found.run, given.background.comparison
    warnings = [*(comparison.answer.contradictions if comparison else ()), *given.background.notes]
    if run is None:
        return warnings
    warnings += run.incidents
    if run.status in ("unfinished", "stopped"):
        warnings.insert(0, f"The run is not finished; this is what it had recorded up to round {run.stopped_at}.")
    if run.note:
        warnings.append(f"About the run’s files: {run.note}.")
    return warnings
