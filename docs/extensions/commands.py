"""The reference of the command line, written from the help of the commands themselves while the pages are built.

It takes the place of ``<!-- commands -->`` on a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer
from sphinx.application import Sphinx

from fedgauge.cli import app as fedgauge

_MARK = "<!-- commands -->"
_SPECIAL = re.compile(r"([\\`*_\[\]<>$|{}])")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_EXAMPLE = "Example: "


def markdown() -> str:
    """All commands with their usage, examples, arguments and options."""
    root = typer.main.get_command(fedgauge)
    shown: dict[str, tuple[str, list[str]]] = {}
    sections = []
    for context in _contexts(typer.Context(root, info_name="fedgauge")):
        sections.append("\n\n".join(_section(context, shown)))
    return "\n\n".join(sections)


def _contexts(parent: typer.Context) -> Iterator[typer.Context]:
    """Every command that does something, in the order of ``fedgauge --help``."""
    for name, command in getattr(parent.command, "commands", {}).items():
        context = typer.Context(command, info_name=name, parent=parent)
        if hasattr(command, "commands"):
            yield from _contexts(context)
        else:
            yield context


def _section(context: typer.Context, shown: dict[str, tuple[str, list[str]]]) -> Iterator[str]:
    command, path = context.command, context.command_path
    yield f"## {path}"
    examples = []
    for paragraph in (command.help or "").replace("\b", "").split("\n\n"):
        lines = [line.strip() for line in paragraph.splitlines()]
        examples += [line.removeprefix(_EXAMPLE) for line in lines if line.startswith(_EXAMPLE)]
        if words := " ".join(line for line in lines if not line.startswith(_EXAMPLE)):
            yield _text(words)
    yield _block("text", [" ".join([path, *command.collect_usage_pieces(context)])])
    if examples:
        yield _block("console", [f"$ {example}" for example in examples])
    repeated: dict[str, list[str]] = {}
    for panel, rows in _panels(context).items():
        # An experiment's keys are options of several commands and are said once.
        where, before = shown.setdefault(panel, (path, rows))
        if panel != "" and where != path and set(rows) <= set(before):
            repeated.setdefault(where, []).append(panel)
        else:
            yield "\n".join([f"| {panel or 'argument or option'} | what it is |", "| --- | --- |", *rows])
    for where, panels in repeated.items():
        yield f"{', '.join(panels)}: the same options as for [{where}](#{where.replace(' ', '-')})."


def _panels(context: typer.Context) -> dict[str, list[str]]:
    panels: dict[str, list[str]] = {}
    for parameter in context.command.get_params(context):
        record = parameter.get_help_record(context)
        if record and parameter.name not in ("help", "help_all"):
            name, words = record
            panel = getattr(parameter, "rich_help_panel", None) or ""
            panels.setdefault(panel, []).append(f"| `{name.replace('|', chr(92) + '|')}` | {_text(words)} |")
    return dict(sorted(panels.items(), key=lambda item: item[0] != ""))


def _block(language: str, lines: list[str]) -> str:
    return "\n".join([f"```{language}", *lines, "```"])


def _text(words: str) -> str:
    """Help is written for rich, where a bracket that is no markup is escaped; Markdown has signs of its own."""
    escaped = _SPECIAL.sub(r"\\\1", " ".join(words.replace("\\[", "[").split()))
    return _OPTION.sub(r"`\g<0>`", escaped)


def _insert(app: Sphinx, name: str, source: list[str]) -> None:
    if _MARK in source[0]:
        source[0] = source[0].replace(_MARK, markdown())


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the reference when the page that asks for it is read."""
    app.connect("source-read", _insert)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
