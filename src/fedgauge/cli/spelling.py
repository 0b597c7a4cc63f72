"""Messages of the library as the command line says them.

The library's messages name arguments as Python and TOML do: ``local_steps``, ``percent=50``, ``resume=True``. On the
command line the same arguments are options: ``--local-steps``, ``--percent 50``, ``--resume``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_QUOTES = "'\""
_VALUE = r"'[^']*'|\"[^\"]*\"|[^\s,;:()]*[^\s,;:().]"


def as_options(sentence: str, options: Mapping[str, str], typed: Sequence[str] = ()) -> str:
    """The sentence with every argument that is one of the command's ``options`` spelt as that option.

    A sentence that begins with an option is the command line's own and stays as it is. A sentence about an
    experiment's file ("run.toml: ...") keeps the file's spelling, except for options that were typed, as those do not
    come from the file.

    Args:
        sentence: as an error says it.
        options: the options of the command by the names of their arguments, such as ``--local-steps``.
        typed: the words of the command line.

    >>> as_options("percent=50 is too much; set fill=True.", {"percent": "--percent", "fill": "--fill"})
    '--percent 50 is too much; set --fill.'
    >>> as_options("rounds must be at least 1, not 0.", {"rounds": "--rounds"}, ["simulate", "--rounds", "0"])
    '--rounds must be at least 1, not 0.'
    >>> as_options("resume it with Keep(..., resume=True).", {"resume": "--resume"})
    'resume it with --resume.'
    """
    # What Python groups in a value is an option by itself.
    sentence = re.sub(r"\bKeep\(\.\.\., (\w+=\w+)\)", r"\1", sentence)
    flags = {word.partition("=")[0] for word in typed if word.startswith("--")}
    in_file = re.match(r"\S+\.toml: ", sentence) is not None
    names = {name: flag for name, flag in options.items() if not in_file or flag in flags}
    if not names or sentence.startswith("--"):
        return sentence
    any_name = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    start = rf"(?<![\w.,'/=-])(?:(?:data|model|algorithm|run)\.)?({any_name})"
    sentence = re.sub(rf"{start} ?= ?({_VALUE})", lambda found: _option(names[found[1]], found[2]), sentence)
    # A name of several words, or one with its section, cannot be mistaken for anything else.
    sentence = re.sub(
        rf"{start}(?![\w='.])",
        lambda found: names[found[1]] if "_" in found[1] or "." in found[0] else found[0],
        sentence,
    )
    # A plain word can; at the beginning, and typed, it is the option.
    subject = re.match(rf"((?:\S+\.toml: )?)({any_name}) (?=must|needs|is|names|cannot|has)", sentence)
    if subject and names[subject[2]] in flags:
        sentence = f"{subject[1]}{names[subject[2]]}{sentence[subject.end(2) :]}"
    return sentence


def _option(flag: str, value: str) -> str:
    if value.lower() == "true":
        return flag
    if value.lower() == "false":
        return f"--no-{flag[2:]}"
    return f"{flag} {value if ' ' in value else value.strip(_QUOTES)}"
