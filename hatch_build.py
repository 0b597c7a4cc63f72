"""The README as the package index shows it: with absolute links, as nothing else of this repository is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)\s]+)\)")


def absolute(text: str, pages: str, files: str) -> str:
    """A page whose links and pictures lead to a repository.

    Args:
        text: of the page, which lies at the top of the repository.
        pages: where the repository shows a file.
        files: where it serves the file itself.

    >>> absolute("[a](docs/a.md#b) ![c](c.png) [d](https://d)", "https://x/blob", "https://x/raw")
    '[a](https://x/blob/docs/a.md#b) ![c](https://x/raw/c.png) [d](https://d)'
    """

    def lead(match: re.Match[str]) -> str:
        return f"{match[1]}[{match[2]}]({files if match[1] else pages}/{match[3]})"

    return _LINK.sub(lead, text)


class ReadmeHook(MetadataHookInterface):
    """Writes the README into the metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README to the project's metadata."""
        text = (Path(self.root) / "README.md").read_text("utf-8")
        where = self.config
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute(text, where["pages"], where["files"]),
        }
