"""The common base of all results that fedgauge writes as JSON files: every file names its kind and its version.

Files of earlier fedgauge versions have neither entry; :mod:`fedgauge.results.kinds` recognises them by their shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from fedgauge.codec import Value
from fedgauge.errors import InputError


@dataclass(frozen=True)
class Result(Value):
    """A value that is written to its own file.

    Attributes:
        kind: the name of this kind of result in its files; report sections are registered by it.
        version: the version of the file format.
        written_by: the command that writes such files, without the word fedgauge.

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
    fedgauge.errors.InputError: Colour is read from a result of kind 'colour', not 'plan'.
    """

    kind: ClassVar[str]
    version: ClassVar[int] = 1
    written_by: ClassVar[str]

    @classmethod
    def heading(cls) -> dict[str, Any]:
        """The two entries with which a file of this kind begins."""
        return {"kind": cls.kind, "version": cls.version}

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain lists, objects and numbers, with its kind and version first."""
        return {**self.heading(), **super().to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Make the result from what :meth:`to_json` returned, with or without kind and version."""
        if not isinstance(data, Mapping):
            return super().from_json(data)
        data = dict(data)
        kind, version = data.pop("kind", cls.kind), data.pop("version", cls.version)
        if kind != cls.kind:
            raise InputError(f"{cls.__name__} is read from a result of kind {cls.kind!r}, not {kind!r}.")
        if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= cls.version:
            raise InputError(
                f"This fedgauge reads version {cls.version} of a {kind} or earlier, not {version!r}; read it with a"
                " newer fedgauge."
            )
        return super().from_json(data)
