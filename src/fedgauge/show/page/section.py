"""What a section of a report is: a file in ``sections/`` registers one, for the kinds of results that it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from markupsafe import Markup

from fedgauge.show.charts import FieldMap, Tiles
from fedgauge.show.page.chart import Drawing
from fedgauge.show.page.grids import draw
from fedgauge.show.results.background import Background
from fedgauge.show.results.reading import FoundResults
from fedgauge.show.views.view import View, view
from fedgauge.show.web.elements import STANDINGS, CellValue, page_environment
from fedgauge.show.web.views import html_facts, html_table
from fedgauge.values import Result

Kind = TypeVar("Kind", bound=Result)
_BESIDE = 7  # the most columns of a table that stands beside charts
_VIEW = """\
{% if standing %}{{ standing_line(standing) }}{% endif %}
{{ facts }}{{ notes(sentences, "said") }}
{% if charts or beside %}<div class="charts">{% for chart in charts %}{{ chart.html }}{% endfor %}
{% for title, table in beside %}<div class="beside"><h3>{{ title }}</h3>{{ table }}</div>{% endfor %}</div>{% endif %}
{% for title, table in below %}<h3>{{ title }}</h3>{{ table }}{% endfor %}
{{ notes(remarks) }}
{% for title, table in details %}<details><summary>{{ title }}</summary>{{ table }}</details>{% endfor %}
"""


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
        beginning: what the page says at its beginning, which sections do not repeat.
    """

    found: FoundResults
    background: Background = field(default_factory=Background)
    command: str = ""
    headings: tuple[Heading, ...] = ()
    beginning: str = ""

    def result(self, kind: type[Kind]) -> Kind:
        """The result of a kind that is there."""
        found: Kind = self.found.by_kind[kind.kind]
        return found


def shown(kind: type[Result]) -> Callable[[ReportInput], View]:
    """What a section shows: the view of the result of a kind."""
    return lambda given: view(given.result(kind))


def answer(kind: type[Result]) -> Callable[[ReportInput], str]:
    """What a report says first: the first sentence of the view of a result."""
    return lambda given: shown(kind)(given).sentences[0]


@dataclass(frozen=True)
class Section:
    """A section of the page.

    Attributes:
        name: its address on the page.
        title: its heading.
        kinds: it is shown where the report has a result of one of these kinds; always, if there are none.
        show: the view of what it shows, or what its template is given; None where there is nothing to show.
        template: jinja2, which may call the elements of :mod:`fedgauge.show.web.elements`; that of a view by default.
        heading: what a report that is mainly about the first of the kinds says at its beginning and its end.
        is_last_beside_run: whether it comes after all others where the report is about a run.
    """

    name: str
    title: str
    kinds: tuple[str, ...]
    show: Callable[[ReportInput], View | Mapping[str, Any] | None]
    template: str = _VIEW
    heading: Heading | None = None
    is_last_beside_run: bool = False

    def render(self, given: ReportInput) -> RenderedSection | None:
        """The section as HTML; None where there is nothing to show."""
        if self.kinds and not set(self.kinds) & set(given.found.kinds):
            return None
        content = self.show(given)
        if content is None:
            return None
        context = _context(content, given.beginning) if isinstance(content, View) else content
        charts: Sequence[Drawing] = context.get("charts", ())
        html = page_environment("fedgauge.show.page").from_string(self.template).render(**context)
        return RenderedSection(self.name, self.title, Markup(html), tuple(charts))


def _context(content: View, beginning: str) -> dict[str, Any]:
    """A view as HTML: small tables stand beside the charts, and details are folded."""
    tables = [(table, (table.title, html_table(table))) for table in content.tables]
    main = [(table, html) for table, html in tables if not table.detail]
    return {
        "standing": content.standing if content.standing in STANDINGS else "",
        "facts": html_facts(content.facts) if content.facts else "",
        "sentences": [sentence for sentence in content.sentences if sentence not in beginning],
        "charts": [draw(chart) for chart in content.charts if not isinstance(chart, FieldMap | Tiles)],
        "beside": [html for table, html in main if len(table.heads) <= _BESIDE],
        "below": [html for table, html in main if len(table.heads) > _BESIDE],
        "remarks": content.notes,
        "details": [html for table, html in tables if table.detail],
    }


class RenderedSection(NamedTuple):
    """A section as HTML, with the data of its charts."""

    name: str
    title: str
    html: Markup
    charts: tuple[Drawing, ...]
