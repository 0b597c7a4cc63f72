"""The common base of all results that fedgauge writes as JSON files: every file names its kind and its version.

What was measured or planned is sealed too: its file ends with a digest of the rest, so that a number that somebody has
changed in it does not pass for one that was measured.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from fedgauge.base.codec import Value
from fedgauge.base.errors import InputError

DIGEST = "digest"
"""The entry of a file that holds the digest of all others."""


class AlteredError(InputError):
    """The contents of a file are not what fedgauge wrote."""


def digest_of(data: Mapping[str, Any]) -> str:
    """The digest of an object as a JSON file holds it, whatever the order of its entries."""
    plain = json.loads(json.dumps({name: entry for name, entry in data.items() if name != DIGEST}))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def sealed(data: Mapping[str, Any]) -> dict[str, Any]:
    """The same object with the digest of its entries.

    >>> check_seal(sealed({"sigma": 0.5}), "It")
    >>> check_seal({**sealed({"sigma": 0.5}), "sigma": 0.1}, "It")
    Traceback (most recent call last):
    fedgauge.values.results.AlteredError: It has changed since fedgauge wrote it: its contents do not fit its digest.
    """
    return {**data, DIGEST: digest_of(data)}


def check_seal(data: Mapping[str, Any], name: str) -> None:
    """Refuse an object whose entries are not those that its digest was made of."""
    if DIGEST not in data:
        raise InputError(f"{name} needs the entry {DIGEST!r}.")
    if data[DIGEST] != digest_of(data):
        raise AlteredError(f"{name} has changed since fedgauge wrote it: its contents do not fit its digest.")


class Origin(NamedTuple):
    """What a result is about, as far as it says so: by this a report tells whether it belongs to a run.

    Attributes:
        federation: the digest of the federation.
        algorithm: the name of the algorithm; None if the result holds for every algorithm.
        experiment: the experiment, as a JSON object of sections.
    """

    federation: str | None = None
    algorithm: str | None = None
    experiment: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Result(Value):
    """A value that is written to its own file.

    Attributes:
        kind: the name of this kind of result in its files; report sections are registered by it.
        version: the version of the file format.
        written_by: the command that writes such files, without the word fedgauge.
        file: the name of such files, without their suffix.
        lies_beside: whether a report on a run looks for such a file in the directories around the run.
        is_sealed: whether such files hold a digest of their contents, without which they are not read.
        derived_names: entries that :meth:`derived` adds for readers of the file, and that are not read back.

    >>> @dataclass(frozen=True)
    ... class Colour(Result):
    ...     kind, written_by = "colour", "paint"
    ...     name: str
    >>> Colour("teal").to_json()
    {'kind': 'colour', 'version': 1, 'name': 'teal'}
    >>> Colour.from_json({"name": "teal"}) == Colour.from_json(Colour("teal").to_json())
    True
    >>> Colour.from_json({"kind": "plan", "name": "teal"})
    Traceback (most recent call last):
    fedgauge.base.errors.InputError: Colour is read from a result of kind 'colour', not 'plan'.
    """

    kind: ClassVar[str]
    version: ClassVar[int] = 1
    written_by: ClassVar[str]
    file: ClassVar[str] = "result"
    lies_beside: ClassVar[bool] = False
    is_sealed: ClassVar[bool] = False
    derived_names: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def heading(cls) -> dict[str, Any]:
        """The two entries with which a file of this kind begins."""
        return {"kind": cls.kind, "version": cls.version}

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain lists, objects and numbers, with its kind and version first."""
        derived = dict(zip(self.derived_names, self.derived(), strict=True))
        entries = {**self.heading(), **super().to_json(), **derived}
        return sealed(entries) if self.is_sealed else entries

    @property
    def origin(self) -> Origin:
        """What the result is about; nothing, unless a kind of result says more."""
        return Origin()

    def derived(self) -> tuple[Any, ...]:
        """What readers of the file want to know beyond its fields, in the order of ``derived_names``."""
        return ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Make the result from what :meth:`to_json` returned, with or without kind and version."""
        if not isinstance(data, Mapping):
            return super().from_json(data)
        if cls.is_sealed:
            check_seal(data, cls.__name__)
        data = {name: entry for name, entry in data.items() if name not in (*cls.derived_names, DIGEST)}
        kind, version = data.pop("kind", cls.kind), data.pop("version", cls.version)
        if kind != cls.kind:
            raise InputError(f"{cls.__name__} is read from a result of kind {cls.kind!r}, not {kind!r}.")
        if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= cls.version:
            raise InputError(
                f"This fedgauge reads version {cls.version} of a {kind} or earlier, not {version!r}; read it with a"
                " newer fedgauge."
            )
        return super().from_json(data)
