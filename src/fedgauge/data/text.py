"""The data set ``text``: documents that need no download, each written by a grammar of its own.

All documents share the rules of a small language and its dictionary. How often a document uses each rule, and which
words it prefers, is its own, so that dividing the data by document gives workers that differ as authors do. Everything
follows from uniform numbers at fixed addresses, so that the text is the same on every machine.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from itertools import accumulate
from string import ascii_lowercase

import numpy as np

from fedgauge.base.randomness import Purpose, Streams
from fedgauge.base.types import Array
from fedgauge.data.dataset import Dataset

CHARACTERS = " .,;\n" + ascii_lowercase
"""The token of a character is its place here."""
DOCUMENTS, TIME, TRAIN, TEST = 20, 32, 120, 24
"""Documents; characters in an example; examples of a document to train on, and those after them to test on."""

_WORDS = {"noun": 60, "verb": 30, "adjective": 30, "name": 20, "preposition": 6}
"""The dictionary: how many words of each kind there are."""
_RULES: dict[str, tuple[tuple[str, ...], ...]] = {
    "paragraph": (("sentence", " ", "paragraph"), ("sentence", "\n")),
    "sentence": (("clause", "."), ("clause", ", ", "clause", "."), ("clause", "; ", "clause", ".")),
    "clause": (("someone", " ", "verb"), ("someone", " ", "verb", " ", "someone"), ("where", " ", "clause")),
    "where": (("preposition", " ", "someone"),),
    "someone": (("name",), ("article", " ", "thing"), ("article", " ", "thing", " ", "where")),
    "thing": (("noun",), ("adjective", " ", "thing")),
    "article": (("the",), ("a",)),
}
"""What each part may consist of; a part without a rule or words is written as it is."""
_FIRST, _LAST = ("b", "d", "f", "j", "l", "m", "n", "r", "s", "t", "v", "w"), ("n", "r", "s", "l", "", "")
_VOWELS = ("a", "e", "i", "o", "u")
_DEPTH = 12
"""Below this depth, a part becomes its shortest form, so that every sentence ends."""


class _Uniform:
    """Uniform numbers of one address, and choices made with them."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def weights(self, number: int, power: float) -> list[float]:
        """Cumulative weights for a choice among ``number`` things; the higher the power, the fewer are preferred."""
        return list(accumulate(float(u) ** power + 1e-3 for u in self._generator.random(number)))

    def choose(self, weights: Sequence[float]) -> int:
        """A place among cumulative weights."""
        return min(bisect(weights, float(self._generator.random()) * weights[-1]), len(weights) - 1)

    def among(self, things: Sequence[str]) -> str:
        """One of several things, with equal chances."""
        return things[int(float(self._generator.random()) * len(things))]


def _dictionary(streams: Streams) -> dict[str, list[str]]:
    """Words of one to three syllables by kind; no word is there twice."""
    uniform = _Uniform(streams.at())
    seen: set[str] = {"the", "a"}
    words: dict[str, list[str]] = {}
    for kind, number in _WORDS.items():
        words[kind] = []
        while len(words[kind]) < number:
            syllables = 1 if kind == "preposition" else 1 + uniform.choose((3, 6, 7))
            word = "".join(uniform.among(_FIRST) + uniform.among(_VOWELS) for _ in range(syllables))
            word += uniform.among(_LAST)
            if word not in seen:
                seen.add(word)
                words[kind].append(word)
    return words


class _Author:
    """Writes with one document's own preferences."""

    def __init__(self, words: dict[str, list[str]], uniform: _Uniform) -> None:
        self._words, self._uniform = words, uniform
        self._rules = {part: uniform.weights(len(forms), 1.0) for part, forms in _RULES.items()}
        self._tastes = {kind: uniform.weights(len(known), 6.0) for kind, known in words.items()}

    def write(self, part: str, depth: int = 0) -> Iterator[str]:
        """The pieces of a part of the text."""
        if part in self._words:
            yield self._words[part][self._uniform.choose(self._tastes[part])]
        elif part in _RULES:
            forms = _RULES[part]
            chosen = forms[self._uniform.choose(self._rules[part])] if depth < _DEPTH else min(forms, key=len)
            for piece in chosen:
                yield from self.write(piece, depth + 1)
        else:
            yield part


def documents() -> list[str]:
    """The text of each document.

    >>> len(documents()), {len(text) for text in documents()}
    (20, {4609})
    """
    streams = Streams(0, Purpose.TEXT)
    words = _dictionary(streams)
    # One character more than the examples hold, because the last one has to be followed by something.
    length = (TRAIN + TEST) * TIME + 1
    texts = []
    for number in range(DOCUMENTS):
        author = _Author(words, _Uniform(streams.at(worker=1 + number)))
        text = ""
        while len(text) < length:
            text += "".join(author.write("paragraph"))
        texts.append(text[:length])
    return texts


def read_text() -> Dataset:
    """Every document cut into examples of 32 characters; the target of each character is the one that follows it.

    The first 120 examples of a document are for training, the last 24 for testing; the id ``document`` says which
    document a training example is from.

    >>> text = read_text()
    >>> text.train_inputs.shape, text.num_test, text.num_classes
    ((2400, 32), 480, 31)
    """
    places = {character: place for place, character in enumerate(CHARACTERS)}
    tokens = np.array([[places[character] for character in text] for text in documents()], np.int64)

    def cut(part: Array) -> Array:
        return part.reshape(DOCUMENTS, TRAIN + TEST, TIME)

    x, y = cut(tokens[:, :-1]), cut(tokens[:, 1:])
    flat = (-1, TIME)
    return Dataset(
        "text",
        x[:, :TRAIN].reshape(flat),
        y[:, :TRAIN].reshape(flat),
        x[:, TRAIN:].reshape(flat),
        y[:, TRAIN:].reshape(flat),
        tuple(CHARACTERS),
        {"document": np.repeat(np.arange(DOCUMENTS), TRAIN)},
    )
