"""Build the report page: the answer first, then every section that has something to show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fedgauge.base.errors import InputError
from fedgauge.show.page.section import Heading, RenderedSection, ReportInput, Section, rendered_card
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
    results: FoundResults,
    background: Background | None = None,
    command: str = "",
    sections: Sequence[Section] = SECTIONS,
) -> Report:
    """Write the report on some results.

    Args:
        results: the results that were read from files.
        background: what was computed about them by :func:`fedgauge.show.results.background.background_of`.
        command: the command that makes this report, to be shown on the page.
        sections: the sections of the page.
    """
    background = background or Background()
    headings = _headings(results, sections)
    given = ReportInput(results, background, command, tuple(headings.values()))
    main = given.headings[0]
    card = next(filter(None, (heading.card(given) for heading in sorted(given.headings, key=_is_later))), None)
    verdict = card.sentences[0] if card else main.verdict(given)
    summary = " ".join(filter(None, (said for said in (main.verdict(given), main.summary(given)) if said != verdict)))
    said = card.sentences[1:] if card else ()
    given = replace(given, card=card, beginning=" ".join((verdict, summary, *said)))
    head = rendered_card(card) if card else None
    shown = _rendered(given, sections)
    parts = [*([head] if head else []), *shown]
    # JSON has no infinity; the page's data has text instead of an infinite number.
    data: dict[str, Any] = finite(
        {
            "path": results.path,
            "verdict": verdict,
            "summary": summary,
            "sections": [section.name for section in parts],
            "bound": background.comparison.to_json() if background.comparison else None,
            "charts": {chart.name: chart.data for section in parts for chart in section.charts},
        }
    )
    html = render_page(
        page_environment(_PACKAGE),
        "report.html",
        style=math_font() + resource("palette.css") + resource("page.css", _PACKAGE),
        script=f'(()=>{{"use strict";\n{resource("writing.js")}\n{resource("page.js", _PACKAGE)}}})();',
        data=data,
        heading=_title(given),
        path=results.path,
        verdict=verdict,
        card=head,
        summary=summary,
        warnings=_warnings(given),
        sections=shown,
    )
    return Report(html, data)


def _headings(results: FoundResults, sections: Sequence[Section]) -> dict[str, Heading]:
    """The headings of the kinds of result that were found; a kind without a section is an error."""
    known = {section.kinds[0]: section.heading for section in sections if section.heading}
    for kind in results.kinds:
        if kind not in known:
            raise InputError(
                f"{results.path} is the result of '{RESULTS[kind].written_by}', for which there is no report page; that"
                " command prints and draws its result itself."
            )
    return {kind: known[kind] for kind in results.kinds}


def _rendered(given: ReportInput, sections: Sequence[Section]) -> list[RenderedSection]:
    """The sections that have something to show; a plan beside a run is the next step, so it comes last."""
    *before, last = sections
    if given.results.run:
        before.sort(key=lambda section: section.is_last_beside_run)
    rendered = (section.render(given) for section in (*before, last))
    return [section for section in rendered if section]


def _is_later(heading: Heading) -> bool:
    return not heading.goes_first


def _title(given: ReportInput) -> str:
    """The name of the experiment: its data, its model and its algorithm; else what the result is."""
    experiment, run = given.background.experiment, given.results.run
    algorithm = run.settings.get("algorithm", {}).get("name") if run else None
    if experiment is None:
        return f"{algorithm}, your own federation" if algorithm else _capital(given.headings[0].noun)
    name = experiment.data.name
    data = Path(name).name if "/" in name else name
    model = [] if experiment.data.is_quadratic else [experiment.model.name or "mlp"]
    return ", ".join([data, *model, algorithm or experiment.algorithm.name])


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _warnings(given: ReportInput) -> list[str]:
    """What a reader must know first: that a run is incomplete, or that something could not be shown."""
    run, comparison = given.results.run, given.background.comparison
    warnings = [*(comparison.answer.contradictions if comparison else ()), *given.background.notes]
    if run is None:
        return warnings
    warnings += run.incidents
    if run.status in ("unfinished", "stopped"):
        warnings.insert(0, f"The run is not finished; this is what it had recorded up to round {run.stopped_at}.")
    if run.note:
        warnings.append(f"About the run’s files: {run.note}.")
    return warnings
