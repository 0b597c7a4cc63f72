"""What happened in a run: every recorded quantity over the rounds, and why local steps changed where they adapt."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from fedgauge.show.page.chart import Chart, Series, lines
from fedgauge.show.page.section import Heading, ReportInput, Section
from fedgauge.show.page.sections import bound
from fedgauge.show.web.elements import CellValue
from fedgauge.show.web.writing import shown
from fedgauge.simulation.runs.reader import FoundRun
from fedgauge.values import Round
from fedgauge.values.display import counted

_RECORDED: tuple[tuple[str, str, str, bool], ...] = (
    ("loss", "Training loss f", "f", True),
    ("accuracy", "Test accuracy", "accuracy", False),
    ("grad2", "Squared gradient norm", "‖∇f‖²", True),
    ("spread", "How far the local models spread in a round", "mean squared distance", True),
)
_RATIOS = (("L_h_ratio", "L_h", 4), ("L_g_ratio", "L_g", 0), ("L_tilde_ratio", "L_tilde", 5))
_TEMPLATE = """\
{% if charts %}<div class="charts">{% for chart in charts %}{{ chart.html }}{% endfor %}</div>{% endif %}
{% if decisions %}<h3>Why the local steps changed</h3>
{{ table(("round", "I", "what followed, and why"), decisions) }}{% endif %}
"""


def _show(given: ReportInput) -> Mapping[str, Any] | None:
    run = given.found.run
    if run is None or not run.rounds:
        return None
    charts = []
    for name, title, label, log in _RECORDED:
        x, y = _column(run.rounds, name)
        if x:
            charts.append(lines(name, [Series(label, x, y)], title=title, x_label="round", y_label=label, log=log))
    paced = [record for record in run.rounds if record.looked]
    if paced:
        charts.append(_pace(paced))
    ratios = [(label, colour, *_column(run.rounds, name)) for name, label, colour in _RATIOS]
    seen = [Series(label, x, y, colour) for label, colour, x, y in ratios if x]
    if seen:
        charts.append(_ratios(seen, everyone=any(record.L_g_ratio is not None for record in run.rounds)))
    decisions = [
        [record.round, record.looked[-1] if record.looked else None, record.why] for record in paced if record.why
    ]
    return {"charts": charts, "decisions": decisions}


def _ratios(seen: Sequence[Series], everyone: bool) -> Chart:
    return lines(
        "ratios",
        seen,
        title="Constants as each round showed them",
        x_label="round",
        y_label="ratio, a lower bound" if everyone else "ratio",
        note="A bound evaluated with less than a round has shown does not cover the run."
        if everyone
        else "A few workers alone may show more than the L_h of all, so these ratios are not bounds of it.",
    )


def _pace(records: Sequence[Round]) -> Chart:
    """The local steps of a run that adapts them."""
    x = [float(record.round) for record in records]
    made = [float(record.looked[-1]) if record.looked else math.nan for record in records]
    kept = [math.nan if record.taken is None else float(record.taken) for record in records]
    return lines(
        "pace",
        [Series("made", x, made, 0, "steps"), Series("kept", x, kept, 4, "steps")],
        title="Local steps of each round",
        x_label="round",
        y_label="local steps I",
        note="How many were made, and how many were kept: fewer if f was lower after fewer steps.",
    )


def _column(rounds: Sequence[Round], name: str) -> tuple[list[float], list[float]]:
    kept = [(r.round, value) for r in rounds if (value := getattr(r, name)) is not None]
    return [float(at) for at, _ in kept], [float(value) for _, value in kept]


# -- what a report on a run says at its beginning and its end --------------------------------------------------------


def _run(given: ReportInput) -> FoundRun:
    assert given.found.run is not None
    return given.found.run


def _steps(held: Any) -> Any:
    """The local steps of a run for a reader."""
    if held is None:
        return "unknown"
    if isinstance(held, Mapping):
        return "auto"
    return f"{min(held)} to {max(held)}, one number per worker" if isinstance(held, list) else held


def _verdict(given: ReportInput) -> str:
    """What came of the run, in one short sentence."""
    run, last = _run(given), _run(given).last
    if last is None:
        return "The run has recorded nothing yet."
    first = run.rounds[0]
    if run.status == "diverged":
        return f"The run diverged in round {run.stopped_at}."
    way = "fell" if last.loss < first.loss else "rose" if last.loss > first.loss else "stayed"
    came = (
        f"f {way} from {shown(first.loss)} to {shown(last.loss)}" if way != "stayed" else f"f stayed {shown(last.loss)}"
    )
    if last.accuracy is not None:
        came += f" and {last.accuracy:.1%} of the test examples are right"
    if run.status in ("unfinished", "stopped"):
        return f"Not finished: after {last.round} of {run.settings['rounds']} rounds {came}."
    if run.status == "target":
        return f"Target reached after {counted(run.stopped_at, 'round')}: {came}."
    # The last records of an altered run may be missing; f is then what the last one that is there says.
    whole = last.round == run.stopped_at
    return f"After {'' if whole else f'{last.round} of '}{counted(run.stopped_at, 'round')} {came}."


def _summary(given: ReportInput) -> str:
    """What was run, and the theorem about it."""
    what, comparison = _what(_run(given)), given.background.comparison
    return f"{what}. {bound.words(comparison)}" if comparison else f"{what}."


def _says(value: Any) -> bool:
    return isinstance(value, int | float | str)


def _word(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else value if isinstance(value, str) else f"{value:g}"


def _what(run: FoundRun) -> str:
    """The algorithm, its rates and where it ran, and from how many examples f was computed if not from all."""
    algorithm, last = dict(run.settings["algorithm"]), run.last
    name = algorithm.pop("name", "–")
    rates = ", ".join(f"{key} = {_word(algorithm[key])}" for key in ("gamma", "eta") if _says(algorithm.get(key)))
    what = f"{name} with I = {_steps(run.settings['local_steps'])}" + (f", {rates}" if rates else "")
    where = f" on {run.source}" if run.source != "–" else ""
    if last is None or last.sample is None:
        return f"{what}{where}"
    return f"{what}{where}; f (± {last.loss_error or 0.0:.2g}) is from a sample of {last.sample:,} examples"


def _settings(given: ReportInput) -> Mapping[str, CellValue]:
    run = _run(given)
    settings = run.settings
    algorithm, participation = dict(settings["algorithm"]), settings["participation"]
    targets = ("target_loss", "target_accuracy", "target_grad2", "target_records")
    return {
        "algorithm": str(algorithm.pop("name", "–")),
        **{key: _word(value) if isinstance(value, bool) else value for key, value in algorithm.items()},
        "local steps I": _steps(settings["local_steps"]),
        "rounds R": settings["rounds"],
        "recorded every": settings.get("record_every"),
        "examples per worker in a record": settings.get("record_sample"),
        "participation": str(participation.get("sampling", "full")),
        "participants M": participation.get("participants"),
        "seed": settings["seed"],
        **{name.replace("_", " "): settings.get(name) for name in targets},
        "status": f"{run.status}, round {run.stopped_at}",
        "seconds": run.seconds[-1] if run.seconds else None,
    }


def _commands(given: ReportInput) -> list[str]:
    run = _run(given)
    command = str(run.environment.get("command", ""))
    found = ["# how the run was started", command] if command else []
    if run.experiment:
        found += ["# the same run again", f"{run.rerun_command} --out {shlex.quote('again')}"]
        if run.status in ("unfinished", "stopped"):
            found += ["# to resume it", run.resume_command]
    return found


SECTION = Section(
    "rounds", "What happened", ("run",), _show, _TEMPLATE, Heading("run", _verdict, _settings, _commands, _summary)
)
