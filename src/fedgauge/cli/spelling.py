"""Messages of the library as the command line says them.

The library's messages name arguments as Python and TOML do: ``local_steps``, ``percent=50``, ``resume=True``. On the
command line the same arguments are options: ``--local-steps``, ``--percent 50``, ``--resume``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_QUOTES = "'\""
_VALUE = r"'[^']*'|\"[^\"]*\"|[^\s,;:()]*[^\s,;:().]"


def as_options(sentence: str, options: Collection[str], typed: Sequence[str] = ()) -> str:
    """The sentence with every argument that is one of the command's ``options`` spelt as that option.

    A sentence that begins with an option is the command line's own and stays as it is. A sentence about an
    experiment's file ("run.toml: ...") keeps the file's spelling, except for options that were typed, as those do not
    come from the file.

    Args:
        sentence: as an error says it.
        options: all options of the command, such as ``--local-steps``.
        typed: the words of the command line.

    >>> as_options("percent=50 is too much; set fill=True or per_worker = 20.", ["--percent", "--fill", "--per-worker"])
    '--percent 50 is too much; set --fill or --per-worker 20.'
    >>> as_options("rounds must be at least 1, not 0.", ["--rounds"], ["simulate", "--rounds", "0"])
    '--rounds must be at least 1, not 0.'
    >>> as_options("resume it with Keep(..., resume=True).", ["--resume"])
    'resume it with --resume.'
    """
    # What Python groups in a value is an option by itself.
    sentence = re.sub(r"\bKeep\(\.\.\., (\w+=\w+)\)", r"\1", sentence)
    flags = {word.partition("=")[0] for word in typed if word.startswith("--")}
    in_file = re.match(r"\S+\.toml: ", sentence) is not None
    names = {flag[2:].replace("-", "_") for flag in options if flag.startswith("--") and (not in_file or flag in flags)}
    if not names or sentence.startswith("--"):
        return sentence
    any_name = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    start = rf"(?<![\w.,'/=-])(?:(?:data|model|algorithm|run)\.)?({any_name})"
    sentence = re.sub(rf"{start} ?= ?({_VALUE})", lambda found: _option(found[1], found[2]), sentence)
    # A name of several words, or one with its section, cannot be mistaken for anything else.
    sentence = re.sub(
        rf"{start}(?![\w='.])",
        lambda found: _flag(found[1]) if "_" in found[1] or "." in found[0] else found[0],
        sentence,
    )
    # A plain word can; at the beginning, and typed, it is the option.
    subject = re.match(rf"((?:\S+\.toml: )?)({any_name}) (?=must|needs|is|names|cannot|has)", sentence)
    if subject and _flag(subject[2]) in flags:
        sentence = f"{subject[1]}{_flag(subject[2])}{sentence[subject.end(2) :]}"
    return sentence


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _option(name: str, value: str) -> str:
    if value.lower() == "true":
        return _flag(name)
    if value.lower() == "false":
        return f"--no-{_flag(name)[2:]}"
    return f"{_flag(name)} {value if ' ' in value else value.strip(_QUOTES)}"
