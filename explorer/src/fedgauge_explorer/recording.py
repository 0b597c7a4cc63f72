"""Formulas in JavaScript, recorded while the Python ones are evaluated, so that there is one source of them.

A :class:`Recorded` number computes nothing: each operation on it, by operators or numpy, adds a line of JavaScript.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from fedgauge.theory.base import Theorem, largest_gamma
from fedgauge.values import Version

# How JavaScript writes each function of numpy; web/numbers.js defines what Math lacks.
_WRITTEN = {
    "add": "{}+{}",
    "subtract": "{}-{}",
    "multiply": "{}*{}",
    "divide": "{}/{}",
    "negative": "-{}",
    "power": "Math.pow({},{})",
    "absolute": "Math.abs({})",
    "sqrt": "Math.sqrt({})",
    "cbrt": "Math.cbrt({})",
    "exp": "Math.exp({})",
    "expm1": "Math.expm1({})",
    "log1p": "Math.log1p({})",
    "minimum": "Math.min({},{})",
    "maximum": "Math.max({},{})",
    "nextafter": "nextAfter({},{})",
    "equal": "{}==={}",
    "less": "{}<{}",
    "less_equal": "{}<={}",
    "greater": "{}>{}",
    "greater_equal": "{}>={}",
    "logical_and": "{}&&{}",
    "logical_or": "{}||{}",
    "where": "{}?{}:{}",
    "drift_sum_root": "driftSumRoot({},{})",
    "model_growth": "growths({},{})[0]",
    "model_growth_slope": "growths({},{})[1]",
    "noise_growth": "growths({},{})[2]",
    "noise_growth_slope": "growths({},{})[3]",
    "growth_limit": "growthLimit({},{})",
    "momentum_divergence": "momentumSpread({},{},{})[0]",
    "momentum_product": "momentumSpread({},{},{})[1]",
    "momentum_noise": "momentumSpread({},{},{})[2]",
}


class RecordedLines:
    """The lines recorded so far; the same expression is written once."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def add(self, expression: str) -> Recorded:
        """Return the number that an expression stands for."""
        name = self._names.setdefault(expression, f"a{len(self._names)}")
        return Recorded(name, self)

    def __str__(self) -> str:
        return "".join(f"const {name}={expression};" for expression, name in self._names.items())


class Recorded(NDArrayOperatorsMixin):
    """A number that is known only by how JavaScript writes it.

    >>> lines = RecordedLines()
    >>> gamma = Recorded("v.gamma", lines)
    >>> found = np.where(gamma > 1, np.sqrt(gamma), 2 * gamma)
    >>> print(found.name, lines)
    a3 const a0=v.gamma>1;const a1=Math.sqrt(v.gamma);const a2=2*v.gamma;const a3=a0?a1:a2;
    """

    def __init__(self, name: str, lines: RecordedLines) -> None:
        self.name = name
        self._lines = lines

    def record_call(self, name: str, *arguments: Any) -> Recorded:
        """Record a function by its name."""
        if name not in _WRITTEN:
            raise NotImplementedError(
                f"{name} has no JavaScript; add it to _WRITTEN and, if needed, to web/numbers.js."
            )
        return self._lines.add(_WRITTEN[name].format(*map(write, arguments)))

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            raise NotImplementedError(f"{function.__name__}.{method} cannot be recorded; call it plainly.")
        if function is np.isnan:
            # A formula that asks is about to replace NaN; the replacement is right for other numbers too.
            return np.True_
        return self.record_call(function.__name__, *inputs)

    def __array_function__(
        self, function: Callable[..., Any], types: Sequence[type], arguments: Sequence[Any], options: Any
    ) -> Recorded:
        return self.record_call(function.__name__, *arguments)

    def __bool__(self) -> bool:
        raise TypeError("A recorded formula cannot branch on a value; use np.where.")


def write(value: Any) -> str:
    """Return a number as JavaScript writes it.

    >>> write(np.float64(0.5)), write(np.inf), write(True)
    ('0.5', 'Infinity', 'true')
    """
    if isinstance(value, Recorded):
        return value.name
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    number = float(value)
    text = repr(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)
    text = text.replace("inf", "Infinity").replace("nan", "NaN")
    return f"({text})" if text.startswith("-") else text


def record(theorem: Theorem, version: Version) -> str:
    """Return a version of a theorem as a JavaScript function of the values.

    It returns the terms, [limit, value] of each condition, and the largest gamma.

    >>> from fedgauge.theory import find
    >>> record(find("minibatch"), "corrected").startswith("v=>{const a0=2*v.F;")
    True
    """
    lines = RecordedLines()
    names = dict.fromkeys((*theorem.needed(version), *theorem.optional))
    values: dict[str, Any] = {name: Recorded(f"v.{name}", lines) for name in names}
    said = theorem.statement(version, values)
    gamma_max, _ = largest_gamma(said.conditions, values.get("eta", 1.0))
    terms = ",".join(write(term.value) for term in said.terms)
    conditions = ",".join(f"[{write(c.limit)},{write(c.value)}]" for c in said.conditions)
    result = f"{{terms:[{terms}],conditions:[{conditions}],gammaMax:{write(gamma_max)}}}"
    return f"v=>{{{lines}return {result}}}"
