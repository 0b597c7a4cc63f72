"""Install the wheels that make dist has built into a clean environment, and try them there as a user would.

Usage: python try_dist.py DIST DIRECTORY, with the Python to try. The newest versions that the wheels allow are
installed; only torch is held (torch.txt). The README's commands are run from a directory of their own, and a user's
program is checked by mypy, strictly.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = {"fedgauge": "[data]", "fedgauge_verification": "[sdp]"}
APART = ("fedgauge_nvflare",)
"""Its requirements exclude those of others; make test-nvflare installs it."""


def main() -> None:
    """Make the environment, install, try; the first failure ends it."""
    dist, place = (Path(argument).resolve() for argument in sys.argv[1:])
    place.mkdir(parents=True)
    os.environ.pop("PYTHONPATH", None)

    def run(*command: object) -> None:
        subprocess.run([str(part) for part in command], cwd=place, check=True)

    run(sys.executable, "-m", "venv", "venv")
    python = place / "venv" / "bin" / "python"
    wheels = {path.name.split("-")[0]: path for path in sorted(dist.glob("*.whl"))}
    assert wheels, f"There are no wheels in {dist}; run make dist first."
    chosen = [f"{path}{EXTRAS.get(name, '')}" for name, path in wheels.items() if name not in APART]
    run(python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "torch.txt", *chosen, "mypy")
    run(python, "-m", "pip", "check")
    run(python, ROOT / "tests" / "packaging" / "try_installed.py", place / "use")
    run(python, "-m", "mypy", "--strict", "--config-file", "", place / "use" / "program.py")
    print(f"Python {sys.version.split()[0]}: installed, used and type-checked in {place}.")


if __name__ == "__main__":
    main()
