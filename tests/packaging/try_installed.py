"""Run the README's commands and program, and some of the tutorial's, with an installed fedgauge in an empty directory.

Usage: python try_installed.py DIRECTORY, with the interpreter of the environment that has the wheel.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
COMMANDS = """
fedgauge --version
fedgauge plan --help
fedgauge runs sweep --help
fedgauge paper --help
fedgauge falsify --help
fedgauge theory explore --help
fedgauge new --help
fedgauge data list
fedgauge demo --out demo
fedgauge simulate digits --model mlp --percent 50 --gamma 0.1 --eta 2 --local-steps 20 --rounds 20 --out runs/first
fedgauge simulate runs/first/experiment.toml --local-steps 1 --out runs/I1
fedgauge runs compare runs/I1 runs/first --plot compare.png
fedgauge simulate digits --gamma 0.1 --local-steps auto --cost cross-silo --rounds 20 --out runs/auto
fedgauge measure runs/first --readings curvature --spend 20s --out curvature
fedgauge report runs/first --measure curvature/measure.json --out report.html
fedgauge theory generate fed.json --workers 10 --dim 20 --hessian-spread 0.1 --sigma2 0.01
fedgauge theory constants fed.json
fedgauge theory expect fed.json --algorithm fedavg --gamma 0.05 --local-steps 10 --rounds 100 --plot exact.png
fedgauge theory bound nonconvex F=1 I=8 R=500 N=10 sigma2=1 zeta2=4 L_g=1 L_h=0.1 L_tilde=1.2 gamma=0.01
fedgauge data partition digits --scheme paper --percent 50 --workers 10 --plot partition.png
"""
MADE = ("demo/report.html", "compare.png", "report.html", "exact.png", "partition.png")


def main() -> None:
    """Run every command and the program; stop at the first that fails or leaves its file out."""
    place = Path(sys.argv[1]).resolve()
    place.mkdir(parents=True)
    command = Path(sys.executable).with_name("fedgauge")
    shown = re.findall(r"^\$ (fedgauge [^#\n]*)", README, re.MULTILINE)
    assert shown, "The README has no command."
    for line in (*COMMANDS.strip().splitlines(), *map(str.strip, shown)):
        print(f"$ {line}", flush=True)
        subprocess.run([command, *line.split()[1:]], cwd=place, check=True, stdout=subprocess.DEVNULL)
    for name in MADE:
        if not (place / name).stat().st_size:
            sys.exit(f"{name} is empty.")
    shutil.copy(Path(__file__).with_name("user_program.py"), place / "program.py")
    subprocess.run([sys.executable, "program.py"], cwd=place, check=True)
    programs = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert programs, "The README has no program."
    for number, program in enumerate(programs):
        path = place / f"readme{number}.py"
        path.write_text(program)
        subprocess.run([sys.executable, path.name], cwd=place, check=True, stdout=subprocess.DEVNULL)
    print(f"All commands ran in {place}.")


if __name__ == "__main__":
    main()
