"""Tiny Shakespeare by role: the speeches of a text of plays, cut into examples of characters for each role.

The text is that of the project karpathy/char-rnn: 40,000 lines of nine plays, whose speeches are separated by blank
lines and begin with a line ``NAME:``. A role is a name that says something, in whichever play: 299 do, with 7,097
speeches; eleven more names are followed by no words. The text has no titles, so the plays are told apart by their first
lines.

All speeches of a role, in the order of the text, are one document. It is cut into examples of ``context`` characters,
whose targets are the characters that follow; the places after its end have no target. The last sixth of each document's
examples is for testing, so that the test examples come later than those that the role's model was trained on. Roles of
fewer than six examples have none to test on.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from fedgauge.base.errors import InputError, count
from fedgauge.base.files import open_named
from fedgauge.base.types import Array
from fedgauge.data.dataset import Dataset, Labels
from fedgauge_datasets.catalogue import DamagedFileError

CONTEXT = 64
"""Characters in an example, if none are given."""
PLAYS = {
    "First Citizen:Before we proceed any further, hear me speak.": "Coriolanus",
    "GLOUCESTER:Now is the winter of our discontent": "Richard III",
    "KING RICHARD II:Old John of Gaunt, time-honour'd Lancaster,": "Richard II",
    "SAMPSON:Gregory, o' my word, we'll not carry coals.": "Romeo and Juliet",
    "WARWICK:I wonder how the king escaped our hands.": "Henry VI, Part 3",
    "ARCHIDAMUS:If you shall chance, Camillo, to visit Bohemia, on": "The Winter's Tale",
    "DUKE VINCENTIO:Escalus.": "Measure for Measure",
    "SLY:I'll pheeze you, in faith.": "The Taming of the Shrew",
    "Master:Boatswain!": "The Tempest",
}
"""The plays of the published text by who speaks first in them, and the first line."""
_TESTED = 6
"""One of so many examples of a role is for testing."""
_NOTHING = -1
"""The target of a place after the end of a document."""
_HEADING = re.compile(r"[^\n:]+:")


def speeches(text: str) -> list[tuple[str, str]]:
    r"""The role and the words of each speech; a part without a heading goes on with the speech before it.

    >>> speeches("ANNE:\nWell met.\n\nAll:\n\nBEN:\nHow now?\n")
    [('ANNE', 'Well met.'), ('BEN', 'How now?')]
    """
    spoken: list[tuple[str, str]] = []
    role = ""
    for part in re.split(r"\n\s*\n", text.strip()):
        first, _, words = part.strip().partition("\n")
        if _HEADING.fullmatch(first):
            role = first[:-1]
        else:
            words = part.strip()
        if role and words:
            spoken.append((role, words))
    return spoken


def read_shakespeare(path: Path, context: int | None = None) -> Dataset:
    """Read a text of plays, with the ids ``role`` and, where their first lines are known, ``play``.

    Roles and plays are numbered in the order of the text. An example has the play in which it begins.

    Args:
        path: the text.
        context: the number of characters in an example.
    """
    context = CONTEXT if context is None else count("context", context)
    try:
        with open_named(path) as file:
            said = speeches(file.read().decode())
    except UnicodeDecodeError:
        raise DamagedFileError(path, "it is not text in UTF-8") from None
    if not said:
        raise InputError(
            f"{path} has no roles: speeches must be separated by blank lines and begin with a line NAME:; name a text"
            " of plays."
        )
    documents, plays = _documents(said)
    longest = max(map(len, documents.values()))
    if context >= longest:
        raise InputError(
            f"context must be smaller than {longest}, the number of characters of the longest role, not {context};"
            " choose a smaller one."
        )
    letters = sorted(set().union(*documents.values()))
    cut = [_cut(document, letters, context) for document in documents.values()]
    ends = [len(each) - len(each) // _TESTED for each in cut]
    train = np.concatenate([each[:end] for each, end in zip(cut, ends, strict=True)])
    test = np.concatenate([each[end:] for each, end in zip(cut, ends, strict=True)])
    _check_letters(train, test, letters)
    ids: dict[str, Labels] = {"role": np.repeat(np.arange(len(cut)), ends)}
    by_example = [each[: end * context : context] for each, end in zip(plays, ends, strict=True)]
    if len(np.unique(play := np.concatenate(by_example))) > 1:
        ids["play"] = play
    (x, y), (x_test, y_test) = _pair(train, letters), _pair(test, letters)
    return Dataset("shakespeare", x, y, x_test, y_test, tuple(letters), ids, usual_id="role")


def _documents(said: list[tuple[str, str]]) -> tuple[dict[str, str], list[Labels]]:
    """The document of each role, and the play of each of its characters."""
    parts: dict[str, list[str]] = {}
    plays: dict[str, list[Labels]] = {}
    known = set(PLAYS)
    play = -1
    for role, words in said:
        first = f"{role}:{words.partition(chr(10))[0]}"
        if first in known:
            known.remove(first)
            play += 1
        parts.setdefault(role, []).append(f"{words}\n")
        plays.setdefault(role, []).append(np.full(len(words) + 1, max(play, 0)))
    return {role: "".join(each) for role, each in parts.items()}, [np.concatenate(each) for each in plays.values()]


def _cut(document: str, letters: list[str], context: int) -> Array:
    """The tokens of each example of a document and the one that follows, with nothing after its end."""
    number = {letter: place for place, letter in enumerate(letters)}
    tokens = np.array([number[letter] for letter in document], np.int64)
    examples = -(-(len(tokens) - 1) // context)
    padded = np.full(examples * context + 1, _NOTHING)
    padded[: len(tokens)] = tokens
    places: Array = np.arange(examples)[:, None] * context + np.arange(context + 1)
    return padded[places]


def _pair(rows: Array, letters: list[str]) -> tuple[Array, Array]:
    """Inputs and targets; where there is nothing, the input is a line break."""
    inputs = rows[:, :-1]
    return np.where(inputs == _NOTHING, letters.index("\n"), inputs), rows[:, 1:]


def _check_letters(train: Array, test: Array, letters: list[str]) -> None:
    """Refuse characters that a model would be tested on without having been trained on them."""
    unknown = np.setdiff1d(test, train)
    if unknown.size and (unknown := unknown[unknown != _NOTHING]).size:
        raise InputError(
            f"The character {letters[unknown[0]]!r} is only in the last sixth of a role's text, which is for testing,"
            " so that no model could learn it; choose another context, or take it out of the text."
        )
