"""What a section of a report is: a file in ``sections/`` registers one, for the kinds of results that it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from markupsafe import Markup

from fedgauge.show.charts import Chart, FieldMap, HeatMap, LineChart, RowChart, StackedChart, Tiles, is_finite
from fedgauge.show.page.chart import Drawing
from fedgauge.show.page.grids import draw
from fedgauge.show.results.background import Background
from fedgauge.show.results.reading import FoundResults
from fedgauge.show.views.view import Cell, Table, View, view
from fedgauge.show.web.elements import STANDINGS, CellValue, html_facts, html_table, page_environment
from fedgauge.values import Result

Kind = TypeVar("Kind", bound=Result)
ANY = "any"
"""Stands for every kind of result."""
_BESIDE = 5  # the most columns of a table that stands beside charts, if its cells are not brief
_VIEW = """\
{% if standing %}{{ standing_line(standing) }}{% endif %}
{{ facts }}{{ notes(sentences, "said") }}
{% if charts or beside %}<div class="charts">{% for chart in charts %}{{ chart.html }}{% endfor %}
{% for title, table in beside %}<div class="beside"><h3>{{ title }}</h3>{{ table }}</div>{% endfor %}</div>{% endif %}
{% for title, table in below %}<h3>{{ title }}</h3>{{ table }}{% endfor %}
{{ notes(remarks) }}
{% for title, table in details %}<details><summary>{{ title }}</summary>{{ table }}</details>{% endfor %}
"""
_CARD = """\
<div class="words">{{ notes(sentences, "follows") }}
{% for title, table in beside %}<h3>{{ title }}</h3>{{ table }}{% endfor %}{{ notes(limits) }}{{ facts }}</div>
{% for chart in charts %}{{ chart.html }}{% endfor %}
"""


@dataclass(frozen=True)
class Heading:
    """What a report on one kind of result says at its beginning and its end.

    Attributes:
        noun: what the page calls such a result, where it belongs to no experiment that has a name.
        verdict: the result in one short sentence, the headline of the page.
        settings: the settings that matter, by name.
        commands: comments and the commands that make the result again.
        summary: what a reader wants to know next, below the headline; nothing by default.
        card: the answer to how many local steps, with which a report begins that has one; None by default.
        goes_first: whether its card goes before those of other results.
        files: what to run next, by the names of files; by default, the experiment behind the result.
    """

    noun: str
    verdict: Callable[[ReportInput], str]
    settings: Callable[[ReportInput], Mapping[str, CellValue]]
    commands: Callable[[ReportInput], Sequence[str]] = lambda _: ()
    summary: Callable[[ReportInput], str] = lambda _: ""
    card: Callable[[ReportInput], View | None] = lambda _: None
    goes_first: bool = False
    files: Callable[[ReportInput], Mapping[str, str]] | None = None


@dataclass(frozen=True)
class ReportInput:
    """All that a report may show.

    Attributes:
        results: the results that were read from files.
        background: what was worked out about them.
        command: that asked for the report.
        headings: of the kinds that are there, the one that the report is mainly about first.
        beginning: what the page says at its beginning, which sections do not repeat.
        card: the answer with which it begins, if it has one.
    """

    results: FoundResults
    background: Background = field(default_factory=Background)
    command: str = ""
    headings: tuple[Heading, ...] = ()
    beginning: str = ""
    card: View | None = None

    def result(self, kind: type[Kind]) -> Kind:
        """The result of a kind that is there."""
        result: Kind = self.results.by_kind[kind.kind]
        return result


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
        kinds: it is shown where the report has a result of one of these kinds, which may be :data:`ANY`; always, if
            there are none.
        show: the view of what it shows, or what its template is given; None where there is nothing to show.
        template: jinja2, which may call the elements of :mod:`fedgauge.show.web.elements`; that of a view by default.
        heading: what a report that is mainly about the first of the kinds says at its beginning and its end.
        is_last_beside_run: whether it comes after all others where the report is about a run.
        after: for a section of another distribution, the name of the library's section that it follows.
    """

    name: str
    title: str
    kinds: tuple[str, ...]
    show: Callable[[ReportInput], View | Mapping[str, Any] | None]
    template: str = _VIEW
    heading: Heading | None = None
    is_last_beside_run: bool = False
    after: str = "rounds"

    def render(self, given: ReportInput) -> RenderedSection | None:
        """The section as HTML; None where there is nothing to show."""
        if self.kinds and not set(self.kinds) & {ANY, *given.results.kinds}:
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
    charts = [chart for chart in content.charts if not isinstance(chart, FieldMap | Tiles)]
    entries: dict[str, Cell] = dict(content.facts)
    for chart in charts:
        entries |= single_values(chart)
    return {
        "standing": content.standing if content.standing in STANDINGS else "",
        "facts": html_facts(entries) if entries else "",
        "sentences": [sentence for sentence in content.sentences if sentence not in beginning],
        "charts": [draw(chart) for chart in charts if not is_single(chart)],
        "beside": [html for table, html in main if _is_beside(table)],
        "below": [html for table, html in main if not _is_beside(table)],
        "remarks": content.notes,
        "details": [html for table, html in tables if table.detail],
    }


def _is_beside(table: Table) -> bool:
    return table.brief or len(table.heads) <= _BESIDE


def single_values(chart: Chart) -> dict[str, float]:
    """The values of lines that have one height or one place, which are written and not drawn; none of other charts.

    >>> from fedgauge.show.charts import Series
    >>> single_values(LineChart("I", [Series("used", [0, 1, 2], [8.0, 8.0, 8.0])], "Local steps", "round", "I"))
    {'Local steps': 8.0}
    """
    if not isinstance(chart, LineChart):
        return {}
    points = [(one.name, at, up) for one in chart.drawn for at, up in zip(one.x, one.y, strict=True) if is_finite(up)]
    edges = [edge for one in chart.drawn for edge in (*one.low, *one.high) if is_finite(edge)]
    if len({*edges, *(up for _, _, up in points)}) == 1 or len(points) == 1:
        return {chart.title: points[0][2]}
    return {name: up for name, _, up in points} if len({at for _, at, _ in points}) == 1 else {}


def is_single(chart: Chart) -> bool:
    """Whether a picture says nothing, because it has one place or one value.

    >>> is_single(StackedChart("terms", [8.0], [], "Terms", "local steps", "bound"))
    True
    """
    match chart:
        case LineChart():
            return bool(single_values(chart))
        case StackedChart():
            return len(chart.x) == 1
        case HeatMap():
            return len({value for row in chart.values for value in row}) == 1
        case RowChart():
            return len(chart.drawn) == 1


def rendered_card(content: View) -> RenderedSection:
    """The card with which a report begins: what to use for several costs of a round, and the curve behind it."""
    tables, charts = content.tables[:1], content.charts[:1]
    brief = replace(content, sentences=content.sentences[1:], tables=tables, charts=charts, notes=())
    context = _context(brief, "")
    html = page_environment("fedgauge.show.page").from_string(_CARD).render(**context, limits=content.limits)
    return RenderedSection("answer", "The answer", Markup(html), tuple(context["charts"]))


class RenderedSection(NamedTuple):
    """A section as HTML, with the data of its charts."""

    name: str
    title: str
    html: Markup
    charts: tuple[Drawing, ...]
