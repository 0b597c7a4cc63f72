"""Formulas as MathML, which browsers set by themselves: from the LaTeX of symbols and the text of terms."""

from __future__ import annotations

import re
from html import escape

from fedgauge.base.symbols import SYMBOLS

_LETTERS = {"gamma": "γ", "eta": "η", "beta": "β", "tau": "τ", "mu": "μ", "sigma": "σ", "zeta": "ζ", "kappa": "κ"}
_LETTERS |= {"varphi": "φ", "phi": "ϕ", "nabla": "∇", "rho": "ρ", "alpha": "α", "Delta": "Δ"}
_ACCENTS = {"tilde": "~", "bar": "¯", "hat": "^"}
_LATEX = re.compile(r"\\[a-zA-Z]+|\\\||[a-zA-Z]|[0-9]+|[{}^_]|[^\s]")
_TEXT = re.compile(r"sum_\{|sqrt\(|exp\(|[a-zA-Z_][a-zA-Z_]*[0-9]*|[0-9.]+|<=|[-+=<|^/()}]")
_ENDS = {")", "}", "|", "+", "-", "=", "<", "<=", "/", ""}


def _row(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"<mrow>{''.join(parts)}</mrow>"


class _Latex:
    """The few commands of LaTeX that symbols.py uses."""

    def __init__(self, text: str) -> None:
        self._tokens = _LATEX.findall(text)

    def row(self, end: str = "") -> str:
        parts: list[str] = []
        while self._tokens and self._tokens[0] != end:
            if self._tokens[0] in "^_":
                marks: dict[str, str] = {}
                while self._tokens and self._tokens[0] in "^_":
                    mark = self._tokens.pop(0)
                    marks[mark] = self._part()
                base = parts.pop()
                if len(marks) == 2:
                    parts.append(f"<msubsup>{base}{marks['_']}{marks['^']}</msubsup>")
                else:
                    tag = "msup" if "^" in marks else "msub"
                    parts.append(f"<{tag}>{base}{next(iter(marks.values()))}</{tag}>")
            else:
                parts.append(self._part())
        if end:
            self._tokens.pop(0)
        return _row(parts)

    def _part(self) -> str:
        token = self._tokens.pop(0)
        command = token[1:]
        if token == "{":
            return self.row("}")
        if token.isdigit():
            return f"<mn>{token}</mn>"
        if not token.startswith("\\"):
            return f"<mi>{token}</mi>" if token.isalpha() else f"<mo>{escape(token.replace('-', '−'))}</mo>"
        if command == "|":
            return '<mo stretchy="false">‖</mo>'
        if command == "sqrt":
            return f"<msqrt>{self._part()}</msqrt>"
        if command == "frac":
            # \frac1N: a digit alone is an argument.
            return f"<mfrac>{self._part()}{self._part()}</mfrac>"
        if command in _ACCENTS:
            # A bar that is an accent runs through the letter in fonts without mathematics; above it is clear in all.
            accent = "" if command == "bar" else ' accent="true"'
            return f'<mover{accent}>{self._part()}<mo stretchy="false">{_ACCENTS[command]}</mo></mover>'
        if command == "mathcal":
            return self._part().replace("<mi>F</mi>", "<mi>ℱ</mi>")
        if command == "mathrm":
            # A name of several letters, which is set upright.
            letters = re.sub("<[^>]*>", "", self._part())
            return f'<mi mathvariant="normal">{letters}</mi>'
        if command == "max":
            return "<mo>max</mo>"
        if command == "sum":
            return "<mo>∑</mo>"
        return f"<mi>{_LETTERS[command]}</mi>"


def symbol_math(name: str) -> str:
    """Return a symbol as MathML, without the argument that a function's LaTeX shows.

    >>> symbol_math("L_h"), symbol_math("varphi")
    ('<msub><mi>L</mi><mi>h</mi></msub>', '<mi>φ</mi>')
    >>> symbol_math("zeta_rms")
    '<msub><mi>ζ</mi><mi mathvariant="normal">rms</mi></msub>'
    """
    return _Latex(re.sub(r"\(.*\)$", "", SYMBOLS[name].latex)).row()


class _Text:
    """The text of a formula: products are written with spaces, and a slash divides all before it by what follows."""

    def __init__(self, text: str) -> None:
        self._tokens = _TEXT.findall(text)

    def _next(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def sum(self, end: str = "") -> str:
        parts: list[str] = []
        while self._next() != end:
            token = self._next()
            if token in ("+", "-", "=", "<", "<="):
                self._tokens.pop(0)
                shown = {"-": "−", "<": "&lt;", "<=": "≤"}.get(token, token)
                parts.append(f"<mo>{shown}</mo>")
            else:
                parts.append(self._product())
        if end:
            self._tokens.pop(0)
        return _row(parts)

    def _product(self) -> str:
        parts = [self._factor()]
        while self._next() not in _ENDS:
            parts.append(self._factor())
        if self._next() != "/":
            return _row(parts)
        self._tokens.pop(0)
        return f"<mfrac>{_row(parts)}{self._factor(bare=True)}</mfrac>"

    def _factor(self, bare: bool = False) -> str:
        base = self._atom(bare)
        if self._next() != "^":
            return base
        self._tokens.pop(0)
        sign = ""
        if self._next() == "-":
            self._tokens.pop(0)
            sign = "<mo>−</mo>"
        exponent = _row([part for part in (sign, self._atom(bare=True)) if part])
        inner = re.fullmatch(r"<msub>(.*)</msub>", base)
        # Subscript and power stand above each other.
        return f"<msubsup>{inner[1]}{exponent}</msubsup>" if inner else f"<msup>{base}{exponent}</msup>"

    def _atom(self, bare: bool) -> str:
        token = self._tokens.pop(0)
        if token == "(":
            inner = self.sum(")")
            plain = bare or re.fullmatch(r"<mfrac><mn>\d+</mn><mn>\d+</mn></mfrac>", inner)
            return inner if plain else f"<mrow><mo>(</mo>{inner}<mo>)</mo></mrow>"
        if token == "sqrt(":
            return f"<msqrt>{self.sum(')')}</msqrt>"
        if token == "exp(":
            return f"<msup><mi>e</mi>{self.sum(')')}</msup>"
        if token == "sum_{":
            return f"<munder><mo>∑</mo>{self.sum('}')}</munder>"
        if token == "|":
            inner = self.sum("|")
            return f"<mrow><mo>|</mo>{inner}<mo>|</mo></mrow>"
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token in SYMBOLS:
            return symbol_math(token)
        letter, _, index = token.partition("_")
        return f"<msub><mi>{letter}</mi><mi>{index}</mi></msub>" if index else f"<mi>{escape(token)}</mi>"


def math(text: str) -> str:
    """Return the text of a term or condition as MathML.

    >>> math("2 F/(gamma R I)")
    '<math><mfrac><mrow><mn>2</mn><mi>ℱ</mi></mrow><mrow><mi>γ</mi><mi>R</mi><mi>I</mi></mrow></mfrac></math>'
    """
    return f"<math>{_Text(text).sum()}</math>"


_WORDS = (
    (r"E\|grad f\((.*?)\)\|\^2", r"E‖∇f(\1)‖²"),
    (r"xbar\^(\w)", r"x̄<sup>\1</sup>"),
    (r"xhat\^(\w)", r"x̂<sup>\1</sup>"),
    (r"\b(min|sum|w)_(\w)", r"\1<sub>\2</sub>"),
    (r"\bsum<", "∑<"),
    (r"q\^-\(r\+1\)", "q<sup>−(r+1)</sup>"),
    (r" - ", " − "),
)


def quantity_html(text: str) -> str:
    """Return the quantity that a theorem bounds as HTML.

    >>> quantity_html("min_r E|grad f(xbar^r)|^2")
    'min<sub>r</sub> E‖∇f(x̄<sup>r</sup>)‖²'
    """
    shown = escape(text)
    for pattern, written in _WORDS:
        shown = re.sub(pattern, written, shown)
    return shown
