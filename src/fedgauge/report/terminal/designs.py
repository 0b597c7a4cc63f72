"""Designs, as a table and as files."""

from __future__ import annotations

from pathlib import Path

from fedgauge.measurement.designed import Design
from fedgauge.report.terminal import console
from fedgauge.system.files import make_directories, write_atomically, write_json
from fedgauge.values.text import counted


def show(found: Design) -> None:
    """Print the federations side by side."""
    where = {"common": "at models common to all", "own": "along each one's own pooled run"}[found.settings["along"]]
    head = ("kind", "strength", "zeta_rms", "first", "own run", "L_h", "L_h seen", "L_tilde", "E")
    rows = []
    for each in found.federations:
        numbers = (each.zeta_rms, each.zeta_first, each.zeta_own, each.L_h, each.L_h_seen, each.L_tilde)
        cells = [console.number(value) for value in numbers]
        rows.append((each.kind, f"{each.strength:.4g}", *cells, each.efficiency.share))
    steps = counted(found.local_steps, "local step")
    console.table(f"Federations of zeta_rms {console.number(found.zeta)}, {where}", head, rows, padding=0)
    console.out.print(
        f"Without these kinds zeta_rms is {console.number(found.plain)}. Beside it: zeta_rms at the first model and"
        " along each one's own pooled run, and L_h, L_h seen and L_tilde in the middle of that run. E is the efficiency"
        f" of {steps} per round, by the gauge.",
        soft_wrap=True,
    )
    for each in found.federations:
        if not each.reached:
            console.out.print(
                f"{each.kind} does not have this zeta_rms: the nearest is {console.number(each.zeta_rms)}, at strength"
                f" {each.strength:.4g}.",
                soft_wrap=True,
            )


def save(found: Design, directory: Path) -> list[Path]:
    """Write design.json and an experiment file for every federation that has the wanted zeta_rms; return the files."""
    make_directories(directory)
    paths = [directory / "design.json"]
    write_json(paths[0], found.to_json())
    for each in found.federations:
        if each.reached:
            paths.append(directory / f"{each.kind}.toml")
            write_atomically(paths[-1], each.to_toml().encode())
    return paths
