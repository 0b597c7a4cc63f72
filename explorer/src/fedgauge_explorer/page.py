"""The page: one HTML file that holds everything it needs and makes no requests.

The tables are written here with the numbers at the starting values, so that they can be read without JavaScript; the
script then only replaces numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from html import escape
from string import Template
from typing import Any

import numpy as np

from fedgauge.show.web.elements import STANDINGS
from fedgauge.show.web.mathml import math as math_of
from fedgauge.show.web.mathml import quantity_html, symbol_math
from fedgauge.show.web.writing import distance, math_font, percent, policy, resource, shown, written
from fedgauge.theory import THEOREMS, Theorem, find
from fedgauge.theory.answer import TheoremAnswer, bound
from fedgauge.values import Condition, Version
from fedgauge_explorer.controls import CONTROLS, GROUPS, SQUARED, Control, Start, meaning
from fedgauge_explorer.recording import record
from fedgauge_explorer.region import RANGES, TIE, contestants

VERSIONS: dict[Version, str] = {
    "printed": "the paper’s constants and conditions",
    "corrected": "derived again; the same if the printed one is right",
    "sharp": "the same proof with more care",
    "star": "a proof of our own, in norms instead of squares",
    "prior": "the older kind of bound, with L̃ in place of L_g and L_h",
}
_PACKAGE = "fedgauge_explorer"
_SHARED_SCRIPTS = ("numbers.js", "writing.js")
_SCRIPTS = ("state.js", "view.js", "steps.js", "map.js")


def _number(value: float, part: str) -> str:
    return f'<data data-part="{part}" value="{written(value)}">{shown(value)}</data>'


def _formula(text: str) -> str:
    """A formula, and what its letters stand for on lines of their own."""
    return "".join(f'<div class="line">{math_of(part)}</div>' for part in text.split(", "))


def _term_key(theorem: str, name: str) -> str:
    """A term's name after a patch of its colour, with its meaning where a pointer rests on it."""
    facts = find(theorem).term_facts(name)
    return (
        f'<i class="key t{facts.colour}" aria-hidden="true"></i>'
        f'<span title="{escape(facts.meaning, quote=True)}">{escape(name)}</span>'
    )


def _term_rows(found: TheoremAnswer) -> Iterable[str]:
    for term, share in zip(found.bound.terms, found.shares, strict=True):
        yield (
            f'<tr><th scope="row">{_term_key(found.theorem, term.name)}</th>'
            f"<td>{_number(float(term.value), 'term')}</td>"
            f'<td class="share" data-part="share">{percent(share)}</td></tr>'
            f'<tr class="formula"><td colspan="3">{_formula(term.formula)}</td></tr>'
        )


def _condition_item(condition: Condition) -> str:
    limit, value = float(condition.limit), float(condition.value)
    holds = bool(condition.holds)
    text = f"{condition.name} <= {condition.formula}"
    numbers = f"{_number(value, 'value')}, limit {_number(limit, 'limit')}"
    return (
        f'<li class="{"holds" if holds else "fails"}"><span class="mark" aria-hidden="true">{"✓" if holds else "✗"}'
        f'</span><div><div class="what">{_formula(text)}</div><div class="how"><b data-part="distance">'
        f"{distance(limit, value)}</b><span>{numbers}</span></div></div></li>"
    )


def _card(found: TheoremAnswer, version: Version) -> str:
    bound = found.bound
    mark, title, why = STANDINGS[found.standing]
    deviations = "".join(f"<li>{escape(text)}</li>" for text in bound.source.deviations)
    notes = f"<details><summary>How it differs</summary><ul>{deviations}</ul></details>" if deviations else ""
    terms, conditions = "".join(_term_rows(found)), "".join(map(_condition_item, bound.conditions))
    times = float(bound.gamma_max) / found.values["gamma"]
    gamma = f"<math>{symbol_math('gamma')}</math>"
    return (
        f'<article class="version" data-theorem="{found.theorem}" data-version="{version}">'
        f"<header><h3>{version}</h3><p>{escape(VERSIONS[version])}</p></header>"
        f'<p class="total">{_number(float(bound.total), "total")}<span class="ratio" data-part="ratio"></span></p>'
        f'<p class="standing" data-standing="{found.standing}"><b>'
        f'<span aria-hidden="true" data-part="mark">{mark}</span> <span data-part="title">{title}</span></b>: '
        f'<span data-part="why">{why}</span></p>'
        f'<table class="terms"><caption>Terms</caption><tbody>{terms}</tbody></table>'
        f'<h4>Conditions</h4><ul class="conditions">{conditions}</ul>'
        f'<p class="room"{" hidden" if times == 0 else ""}>Largest {gamma}: '
        f"{_number(float(bound.gamma_max), 'gammaMax')}, {_number(times, 'times')} times as large as now.</p>"
        f'<p class="room"{"" if times == 0 else " hidden"}>No {gamma} meets every condition.</p>{notes}</article>'
    )


def _bars(found: dict[Version, TheoremAnswer]) -> str:
    largest = max((float(a.bound.total) for a in found.values() if math.isfinite(a.bound.total)), default=0.0)
    rows = []
    for version, one in found.items():
        total = float(one.bound.total)
        width = 1000 * (total / largest if largest > 0 and math.isfinite(total) else 1.0)
        left, pieces = 0.0, []
        for term, share in zip(one.bound.terms, one.shares, strict=True):
            pieces.append(
                f'<rect class="t{find(one.theorem).term_facts(term.name).colour}" x="{left:.3f}" y="0" '
                f'width="{share * width:.3f}" height="10"/>'
            )
            left += share * width
        rows.append(
            f'<div class="row" data-version="{version}"><span class="name">{version}</span>'
            f'<svg viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">{"".join(pieces)}</svg>'
            f'<span class="sum">{_number(total, "bar")}</span></div>'
        )
    first = next(iter(found.values()))
    legend = "".join(f"<li>{_term_key(first.theorem, term.name)}</li>" for term in first.bound.terms)
    return (
        f'<div class="bars">{"".join(rows)}<ul class="legend">{legend}</ul>'
        '<label class="fill" hidden><input type="checkbox"> Draw every bar at full width</label></div>'
    )


def _panel(theorem: Theorem, found: dict[Version, TheoremAnswer]) -> str:
    cards = "".join(_card(one, version) for version, one in found.items())
    quantity = quantity_html(found[theorem.default].bound.quantity)
    return (
        f'<section class="panel" id="panel-{theorem.name}" data-theorem="{theorem.name}" '
        f'aria-labelledby="title-{theorem.name}"><h2 id="title-{theorem.name}"><small>{theorem.locator}</small>'
        f"{escape(theorem.title)}</h2>"
        f'<p class="quantity">bounds <span>{quantity}</span></p>{_bars(found)}'
        f'<div class="versions">{cards}</div></section>'
    )


def _cell(one: TheoremAnswer | None, version: Version) -> str:
    if one is None:
        return f'<td class="none" data-label="{version}">–</td>'
    mark, title, _ = STANDINGS[one.standing]
    return (
        f'<td data-theorem="{one.theorem}" data-version="{version}" data-label="{version}" '
        f'data-standing="{one.standing}">{_number(float(one.bound.total), "cell")}'
        f'<span class="mark" role="img" aria-label="{title}">{mark}</span></td>'
    )


def _overview(theorem: Theorem, found: dict[Version, TheoremAnswer]) -> str:
    cells = "".join(_cell(found.get(version), version) for version in VERSIONS)
    return (
        f'<tr data-theorem="{theorem.name}"><th scope="row"><label><input type="radio" name="theorem" '
        f'value="{theorem.name}"><span>{escape(theorem.title)} <small>{theorem.locator}</small></span></label></th>'
        f"{cells}</tr>"
    )


def _control(control: Control) -> str:
    name = control.name
    text = escape(meaning(name), quote=True)
    tie = ""
    if control.start is None:
        follow = symbol_math("L_h")
        tie = f'<label class="tie"><input type="checkbox" id="tie-{name}"> as <math>{follow}</math></label>'
    return (
        f'<div class="control" data-name="{name}"><label for="box-{name}"><math>{symbol_math(name)}</math>'
        f'<span>{text}</span></label><span class="kind" data-part="kind"></span>'
        f'<input type="range" id="slide-{name}" min="0" value="0" aria-label="{name}: {text}">'
        f'<input type="text" id="box-{name}" inputmode="decimal" autocomplete="off" spellcheck="false">{tie}</div>'
    )


def _start_rows(start: Start) -> str:
    rows = []
    for name, value in start.values.items():
        text = "as L_h" if value is None else shown(value)
        rows.append(
            f"<tr><th><math>{symbol_math(name)}</math></th><td>{text}</td><td>{escape(meaning(name))}</td></tr>"
        )
    return "".join(rows)


def _data(start: Start) -> dict[str, Any]:
    theorems = {}
    for theorem in THEOREMS.values():
        used = {
            version: [
                name
                for name in dict.fromkeys((*theorem.needed(version), *theorem.optional))
                if not (version == "prior" and name == "L_h_rms")
            ]
            for version in theorem.versions
        }
        everything = {name for names in used.values() for name in names}
        theorems[theorem.name] = {
            "title": theorem.title,
            "versions": list(theorem.versions),
            "main": theorem.default,
            "used": used,
            "sliders": [c.name for c in CONTROLS.values() if c.theorems_name in everything],
            "printIsRight": theorem.print_is_right,
        }
    return {
        "controls": [control.to_json() for control in CONTROLS.values()],
        "squared": SQUARED,
        "theorems": theorems,
        "standings": STANDINGS,
        "axes": RANGES,
        "contest": {role: [list(one) for one in held] for role, held in contestants().items()},
        "tie": TIE,
        "start": {
            # JSON has no infinity; the script reads it from text.
            "values": {n: v if v is None or math.isfinite(v) else written(v) for n, v in start.values.items()},
            "kinds": dict(start.kinds),
            "labels": dict(start.labels),
            "source": start.source,
            "own": dict(start.own),
            "theorem": start.theorem or next(iter(THEOREMS)),
        },
    }


def _script() -> str:
    recorded = ",\n".join(
        f"{json.dumps(theorem.name)}:{{"
        + ",\n".join(f"{json.dumps(version)}:{record(theorem, version)}" for version in theorem.versions)
        + "}"
        for theorem in THEOREMS.values()
    )
    shared = [resource(name) for name in _SHARED_SCRIPTS]
    first, *rest = [*shared, *(resource(name, _PACKAGE) for name in _SCRIPTS)]
    return f'(()=>{{"use strict";\n{first}\nconst FORMULAS={{{recorded}}};\n{"".join(rest)}}})();'


def build(start: Start) -> str:
    """Return the page with its sliders at the starting values.

    >>> from fedgauge_explorer.controls import start
    >>> page = build(start())
    >>> page.startswith("<!doctype html>"), "http://" in page or "https://" in page
    (True, False)
    """
    with np.errstate(all="ignore"):
        found = {
            theorem.name: {
                version: bound(theorem.name, version, start.theorem_kinds(), (), (), **start.spelled())
                for version in theorem.versions
            }
            for theorem in THEOREMS.values()
        }
    style = math_font() + resource("palette.css") + resource("page.css", _PACKAGE)
    script = _script()
    data = json.dumps(_data(start), allow_nan=False).replace("<", "\\u003c")  # nothing in it can end the element
    groups = "".join(
        f"<fieldset><legend>{title}</legend>{''.join(map(_control, controls))}</fieldset>"
        for title, controls in GROUPS.items()
    )
    axes = "".join(f'<option value="{name}">{name}: {escape(meaning(name))}</option>' for name in RANGES)
    return Template(resource("page.html", _PACKAGE)).substitute(
        policy=policy(style, script),
        style=style,
        script=script,
        data=data,
        groups=groups,
        axes=axes,
        choices="".join(f'<option value="{t.name}">{t.locator}: {escape(t.title)}</option>' for t in THEOREMS.values()),
        heads="".join(f'<th scope="col">{version}</th>' for version in VERSIONS),
        overview="".join(_overview(THEOREMS[name], answers) for name, answers in found.items()),
        panels="".join(_panel(THEOREMS[name], answers) for name, answers in found.items()),
        starts=_start_rows(start),
    )
