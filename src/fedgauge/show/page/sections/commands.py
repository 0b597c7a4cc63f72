"""The end of every report: the commands, files, versions and machine that it takes to make all of it again."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from fedgauge.show.page.section import ReportInput, Section
from fedgauge.show.web.elements import CellValue

_TEMPLATE = """\
<h3>Commands</h3>{{ code(commands) }}
{% for name, text in files %}<details open><summary>{{ name }}</summary>{{ code(text) }}</details>{% endfor %}
<h3>Versions and environment</h3>{{ table(("", ""), environment, "environment") }}
"""


def _show(given: ReportInput) -> Mapping[str, Any]:
    found, experiment = given.found, given.background.experiment
    lines = [line for heading in given.headings for line in heading.commands(given)]
    files = []
    if found.plan and found.plan.toml:
        files.append(("plan.toml", found.plan.toml))
    if experiment and (found.run or not found.plan):
        files.append(("experiment.toml", experiment.to_toml()))
    environment = dict(found.run.environment) if found.run else {}
    held = environment.pop("versions", {})
    versions = held if isinstance(held, Mapping) else {"versions": held}
    rows: list[tuple[CellValue, ...]] = [(str(name), str(value)) for name, value in {**environment, **versions}.items()]
    rows.append(("this report", f"fedgauge {version('fedgauge')}, Python {platform.python_version()}"))
    lines += ["# this report", given.command] if given.command else []
    return {"commands": "\n".join(lines), "files": files, "environment": rows}


SECTION = Section("commands", "How to make this again", (), _show, _TEMPLATE)
