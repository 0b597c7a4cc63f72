"""A new Flower project, from the template beside this file."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fedgauge.base.errors import InputError

FILES = {
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
    "federation.py": "federation.py.txt",
    "federated/__init__.py": None,
    "federated/task.py": "task.py.txt",
    "federated/client_app.py": "client_app.py.txt",
    "federated/server_app.py": "server_app.py.txt",
}
"""The project's files, and the template from which each is made."""


def write_project(place: Path) -> list[Path]:
    """Write a project into a new or empty directory; existing files are never overwritten.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "mine"
    >>> [path.name for path in write_project(place)][:2]
    ['pyproject.toml', 'README.md']
    """
    if place.exists() and not place.is_dir():
        raise InputError(f"{place} is a file; name a directory for the project.")
    if place.exists() and any(place.iterdir()):
        raise InputError(f"{place} is not empty; name a new or an empty directory for the project.")
    template = files("fedgauge_flower") / "template"
    written = []
    try:
        for name, source in FILES.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("" if source is None else (template / source).read_text(encoding="utf-8"), encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise InputError(f"Cannot write {place}: {error.strerror}; name a directory that you can write to.") from None
    return written
