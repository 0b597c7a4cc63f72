"""Pages are made by jinja2, which escapes everything that is not marked as HTML; this is where it is set up.

:func:`environment` gives the templates of a package together with the shared ones in ``web/templates``;
:func:`render_page` makes a page that is one file, with a policy that allows its own style and script and nothing else.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedgauge.web import mathml
from fedgauge.web.writing import distance, percent, policy, shown, written


@functools.cache
def environment(package: str | None = None) -> Environment:
    """The templates in the directory ``templates`` of a package and of this one, with what all pages use.

    >>> environment().from_string("{{ text }}, {{ 0.123456 | shown }}").render(text="<b>")
    '&lt;b&gt;, 0.1235'
    """
    packages = [name for name in (package, "fedgauge.web") if name]
    made = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "place": place,
        "shown": shown,
        "written": written,
        "percent": percent,
        "formula": formula,
        "symbol": lambda name: Markup(f"<math>{mathml.symbol_math(name)}</math>"),
        "quantity": lambda text: Markup(mathml.quantity_html(text)),
    }
    made.globals["distance"] = distance
    return made


def place(number: float) -> str:
    """A place in a picture, to a tenth of a unit.

    >>> place(3.14159), place(2.0)
    ('3.1', '2')
    """
    return f"{number:.1f}".removesuffix(".0")


def formula(text: str) -> Markup:
    """A formula as MathML; what its letters stand for is on lines of its own.

    >>> formula("L_g")
    Markup('<div class="line"><math><msub><mi>L</mi><mi>g</mi></msub></math></div>')
    """
    return Markup("").join(Markup(f'<div class="line">{mathml.math(part)}</div>') for part in text.split(", "))


def finite(value: Any) -> Any:
    """The same data with infinite and undefined numbers as text, because JSON has no other way to hold them.

    >>> finite({"F": math.inf, "I": 3})
    {'F': 'Infinity', 'I': 3}
    """
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return written(value)
    return value


def embedded(data: Any) -> Markup:
    r"""JSON for the inside of a script element, which nothing in the data can end.

    >>> embedded("</script>")
    Markup('"\\u003c/script>"')
    """
    return Markup(json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))


def render_page(made: Environment, template: str, *, style: str, script: str, data: Any, **context: Any) -> str:
    """A page from a template that extends ``page.html``.

    Args:
        made: of the package that has the template.
        template: its name.
        style: CSS from the package.
        script: JavaScript from the package.
        data: what the script reads, as JSON.
        **context: what the template shows.
    """
    trusted = {"style": Markup(style), "script": Markup(script), "data": embedded(data)}
    return made.get_template(template).render(policy=policy(style, script), **trusted, **context)
