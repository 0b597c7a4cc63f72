"""What a section of a report is: a file in ``sections/`` registers one, for the kinds of results that it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from markupsafe import Markup

from fedgauge.show.page.chart import Chart
from fedgauge.show.results.background import Background
from fedgauge.show.results.reading import FoundResults
from fedgauge.show.web.elements import CellValue, page_environment


@dataclass(frozen=True)
class Heading:
    """What a report on one kind of result says at its beginning and its end.

    Attributes:
        noun: what the page calls such a result.
        verdict: the result in one short sentence, the headline of the page.
        settings: the settings that matter, by name.
        commands: comments and the commands that make the result again.
        summary: what a reader wants to know next, below the headline; nothing by default.
        is_answer: whether its verdict answers the reader's first question, and so begins every report that has it.
    """

    noun: str
    verdict: Callable[[ReportInput], str]
    settings: Callable[[ReportInput], Mapping[str, CellValue]]
    commands: Callable[[ReportInput], Sequence[str]] = lambda _: ()
    summary: Callable[[ReportInput], str] = lambda _: ""
    is_answer: bool = False


@dataclass(frozen=True)
class ReportInput:
    """All that a report may show.

    Attributes:
        found: the results that were read from files.
        background: what was worked out about them.
        command: that asked for the report.
        headings: of the kinds that are there, the one that the report is mainly about first.
    """

    found: FoundResults
    background: Background = field(default_factory=Background)
    command: str = ""
    headings: tuple[Heading, ...] = ()


@dataclass(frozen=True)
class Section:
    """A section of the page.

    Attributes:
        name: its address on the page.
        title: its heading.
        kinds: it is shown where the report has a result of one of these kinds; always, if there are none.
        show: what the template is given, or None where there is nothing to show; charts are under ``charts``.
        template: jinja2, which may call the elements of :mod:`fedgauge.show.web.elements`.
        heading: what a report that is mainly about the first of the kinds says at its beginning and its end.
        is_last_beside_run: whether it comes after all others where the report is about a run.
    """

    name: str
    title: str
    kinds: tuple[str, ...]
    show: Callable[[ReportInput], Mapping[str, Any] | None]
    template: str
    heading: Heading | None = None
    is_last_beside_run: bool = False

    def render(self, given: ReportInput) -> RenderedSection | None:
        """The section as HTML; None where there is nothing to show."""
        if self.kinds and not set(self.kinds) & set(given.found.kinds):
            return None
        context = self.show(given)
        if context is None:
            return None
        charts: Sequence[Chart] = context.get("charts", ())
        html = page_environment("fedgauge.show.page").from_string(self.template).render(**{"charts": (), **context})
        return RenderedSection(self.name, self.title, Markup(html), tuple(charts))


class RenderedSection(NamedTuple):
    """A section as HTML, with the data of its charts."""

    name: str
    title: str
    html: Markup
    charts: tuple[Chart, ...]
