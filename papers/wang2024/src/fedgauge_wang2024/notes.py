"""What people write down beside results: why a claim was not reproduced, and on which data.

Verdicts are computed; a reason is found by looking, with an instrument, and written by hand into ``notes.json`` in the
directory of results::

    {"page": "Results of the laptop scale were made with …",
     "data": {"CIFAR-100": "on a subset with 125 training images per label"},
     "reasons": [{"claim": "…", "scale": "workstation", "because": "…", "instrument": "…"}]}

A reason belongs to one claim at one scale, and says which instrument found it: a command, a reading or a run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fedgauge.base.errors import InputError, nearest

FILE = "notes.json"


class Reason(NamedTuple):
    """Why a claim has the verdict that it has.

    Attributes:
        claim: its text.
        scale: of the result.
        because: the reason, as the end of a sentence.
        instrument: what found it.
    """

    claim: str
    scale: str
    because: str
    instrument: str

    def __str__(self) -> str:
        return f"because {self.because} (found by {self.instrument})"


@dataclass(frozen=True)
class Notes:
    """The notes beside results.

    Attributes:
        data: remarks about data, by a name that the claims on it contain.
        reasons: for claims that were not reproduced.
        page: a paragraph about the results as a whole.
    """

    data: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    page: str = ""

    def remark(self, claim: str) -> str:
        """What is to be said about the data of a claim; mostly nothing.

        >>> Notes({"CIFAR-100": "on a subset"}).remark("VGG-16, CIFAR-100: L_h grows with X")
        'on a subset'
        """
        return "; ".join(remark for name, remark in self.data.items() if name in claim)

    def reason(self, claim: str, scale: str, verdict: str) -> str:
        """Why a claim has its verdict, if somebody found out; a reason whose verdict is gone is refused.

        >>> notes = Notes(reasons=(Reason("A", "laptop", "it is small", "fedgauge gauge"),))
        >>> notes.reason("A", "laptop", "not reproduced")
        'because it is small (found by fedgauge gauge)'
        """
        found = next((each for each in self.reasons if each.claim == claim), None)
        if found is None:
            return ""
        if found.scale != scale or verdict not in ("not reproduced", "reproduced in order but not in size"):
            raise InputError(
                f"{FILE} says why {claim!r} was not reproduced at the scale {found.scale}, but the result now is of the"
                f" scale {scale} and {verdict}; correct the reason or remove it."
            )
        return str(found)


def read_notes(directory: Path, claims: Sequence[str]) -> Notes:
    """The notes in a directory of results; none if it has no such file.

    Args:
        directory: of the results.
        claims: the texts of all claims, of which a reason must name one.
    """
    path = directory / FILE
    if not path.exists():
        return Notes()
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        reasons = tuple(_reason(each, path, claims) for each in held.get("reasons", ()))
        remarks = {str(name): str(remark) for name, remark in held.get("data", {}).items()}
        return Notes(remarks, reasons, str(held.get("page", "")))
    except InputError:
        raise
    except (OSError, ValueError, AttributeError, TypeError):
        raise InputError(
            f"{path} is no file of notes; write a JSON object with page, data and reasons, or remove it."
        ) from None


def _reason(given: Mapping[str, Any], path: Path, claims: Sequence[str]) -> Reason:
    for name in Reason._fields:
        if not isinstance(given.get(name), str) or not given[name].strip():
            raise InputError(f"A reason in {path} must have {', '.join(Reason._fields)}, each a text; add {name}.")
    if set(given) - set(Reason._fields):
        raise InputError(f"A reason in {path} has only {', '.join(Reason._fields)}; leave out the others.")
    if given["claim"] not in claims:
        meant = nearest(given["claim"], claims)
        raise InputError(f"{path} has a reason for {given['claim']!r}, which is no claim; {meant}")
    return Reason(**given)
