"""One run: what happened in it, how it ended, and whether it exceeds constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from fedgauge.show.charts import LineChart, Series
from fedgauge.show.views.answers import below_answer
from fedgauge.show.views.view import Cell, Deferred, Table, View, Written, counted_share, view
from fedgauge.show.web.writing import shown
from fedgauge.simulation.runs.reader import FoundRun, answer_of, source_of
from fedgauge.values import Round, Trace
from fedgauge.values.display import counted

PARTITION_KEYS = ("labels", "percent", "labels_per_worker", "per_worker", "fill", "alpha", "least", "shards")
"""The keys of an experiment that say how its data is divided."""
_RECORDED: tuple[tuple[str, str, str, bool], ...] = (
    ("loss", "Training loss f", "f", True),
    ("accuracy", "Test accuracy", "accuracy", False),
    ("grad2", "Squared gradient norm", "‖∇f‖²", True),
    ("spread", "How far the local models spread in a round", "mean squared distance", True),
)
_RATIOS = (("L_h_ratio", "L_h", 4), ("L_g_ratio", "L_g", 0), ("L_tilde_ratio", "L_tilde", 5))


def some(length: int, most: int = 12) -> list[int]:
    """At most ``most`` of the indices below ``length``, first and last included, denser at the start.

    >>> some(1000, 5)
    [0, 5, 31, 177, 999]
    """
    if length <= most:
        return list(range(length))
    return sorted({round(length ** (i / (most - 1))) - 1 for i in range(most)})


# -- one run ---------------------------------------------------------------------------------------------------------


@view.register
def view_of_trace(trace: Trace, num_workers: int | None = None, federation: str = "") -> View:
    """Some rounds of a run and how it ended; ``federation`` says on what it was run."""
    title = "\n".join(filter(None, (federation, title_of(trace.settings, num_workers))))
    return below_answer(answer_of(trace.settings, trace.rounds), _view_of_rounds(trace.rounds, title, [ending(trace)]))


@view.register
def view_of_run(run: FoundRun) -> View:
    """A run that was saved, below what a live gauge has learned in it, if there was one."""
    return below_answer(answer_of(run.settings, run.rounds), course_of(run))


def course_of(run: FoundRun) -> View:
    """What happened in a run that was saved, or in the recorded part of an unfinished one."""
    title = title_of(run.settings) if "algorithm" in run.settings else run.path
    took = f" in {run.seconds[-1]:.1f} s" if run.seconds else ""
    rounds = run.settings.get("rounds") or "–"
    notes = [*run.incidents, f"{run.path}: {run.status}, round {run.stopped_at} of {rounds}{took}."]
    if run.experiment:
        unfinished = run.status == "unfinished"
        again = f"To resume it: {run.resume_command}" if unfinished else f"To run it again: {run.rerun_command}"
        title, notes = f"{federation_line(run.experiment)}\n{title}", [*notes, again]
    return _view_of_rounds(run.rounds, title, [outcome(run)], [*notes, *notes_on([run])])


def _view_of_rounds(rounds: Sequence[Round], title: str, sentences: Sequence[str], notes: Sequence[str] = ()) -> View:
    tables = [_rounds_table(rounds), *_decisions(rounds)]
    # All records of a run are made in the same way; decoding those of a long one takes time.
    sampled = rounds[0] if rounds else None
    if sampled is not None and sampled.sample is not None:
        error = "" if sampled.loss_error is None else ", with the standard error of f"
        tests = "" if sampled.tests is None else f", and accuracy of {sampled.tests:,} test examples"
        sentence = (
            f"These are values of a fixed sample of {sampled.sample:,} examples{error}{tests};"
            " ‖∇f‖² and the ratios belong to the sample alone."
        )
        notes = [sentence, *notes]
    return View(sentences, title, tables=tables, charts=Deferred(lambda: run_charts(rounds)), notes=notes)


def _rounds_table(rounds: Sequence[Round]) -> Table:
    """Some rounds; accuracy and the workers' ratios only if they were recorded."""
    chosen = [rounds[index] for index in some(len(rounds))]
    columns: list[tuple[str, Callable[[Round], Cell]]] = [("round", lambda r: r.round), ("loss f", _loss)]
    if any(r.accuracy is not None for r in chosen):
        columns.append(("accuracy", lambda r: counted_share(r.accuracy)))
    if any(r.elapsed is not None for r in chosen):
        columns += [("I", lambda r: r.looked[-1] if r.looked else None), ("cost, s", lambda r: r.elapsed)]
    elif any(r.taken is not None for r in chosen):
        columns.append(("I", lambda r: r.taken))
    columns.append(("‖∇f‖²", lambda r: r.grad2))
    if not chosen or any(r.spread is not None for r in chosen):
        columns += [("spread of workers", lambda r: r.spread), ("L_h measured (lower)", lambda r: r.L_h_ratio)]
    rows = [[cell(record) for _, cell in columns] for record in chosen]
    return Table([head for head, _ in columns], rows)


def _loss(record: Round) -> Cell:
    if record.loss_error is None:
        return record.loss
    return Written(record.loss, f"{record.loss:.4g} ± {record.loss_error:.2g}")


def _decisions(rounds: Sequence[Round]) -> list[Table]:
    """Where the local steps of a run changed and why, of many the first and the last; nothing for other runs."""
    if not rounds or rounds[0].looked is None:
        return []
    changes = [(before, after) for before, after in pairwise(rounds) if before.why and before.looked and after.looked]
    most = 8
    parts = changes if len(changes) <= 2 * most else [*changes[:most], *changes[-most:]]
    rows = [
        (after.round, after.elapsed, f"{before.looked[-1]} -> {after.looked[-1]}", str(before.why))
        for before, after in parts
        if before.looked and after.looked
    ]
    left = f"{len(changes) - len(parts)} changes between these are left out" if len(parts) < len(changes) else ""
    return [Table(("round", "cost, s", "I", "why"), rows, "Why the local steps changed", left)] if rows else []


def run_charts(rounds: Sequence[Round]) -> list[LineChart]:
    """Every recorded quantity over the rounds."""
    charts = []
    for name, title, label, log in _RECORDED:
        x, y = _column(rounds, name)
        if x:
            low, high = _errors(rounds) if name == "loss" else ((), ())
            note = "The band is the standard error of f." if low else ""
            charts.append(
                LineChart(name, [Series(label, x, y, 0, "line", low, high)], title, "round", label, note, log)
            )
    paced = [record for record in rounds if record.looked]
    if paced:
        charts.append(_pace(paced))
    ratios = [(label, colour, *_column(rounds, name)) for name, label, colour in _RATIOS]
    series = [Series(label, x, y, colour) for label, colour, x, y in ratios if x]
    if series:
        everyone = any(record.L_g_ratio is not None for record in rounds)
        note = "A few workers alone may show more than the L_h of all, so these ratios are not bounds of it."
        if everyone:
            note = "A bound evaluated with less than a round has shown does not cover the run."
        label = "ratio, a lower bound" if everyone else "ratio"
        charts.append(LineChart("ratios", series, "Constants as each round showed them", "round", label, note))
    return charts or [LineChart("loss", [], "Training loss f", "round", "f")]


def _errors(rounds: Sequence[Round]) -> tuple[Sequence[float], Sequence[float]]:
    """The edges of a band around f, where it was computed from a sample."""
    if not rounds or any(each.loss_error is None for each in rounds):
        return (), ()
    pairs = [(each.loss - error, each.loss + error) for each in rounds if (error := each.loss_error) is not None]
    return [low for low, _ in pairs], [high for _, high in pairs]


def _pace(records: Sequence[Round]) -> LineChart:
    """The local steps of a run that adapts them."""
    x = [float(record.round) for record in records]
    made = [float(record.looked[-1]) if record.looked else math.nan for record in records]
    used = [math.nan if record.taken is None else float(record.taken) for record in records]
    return LineChart(
        "pace",
        [Series("made", x, made, 0, "steps"), Series("used", x, used, 4, "steps")],
        title="Local steps of each round",
        x_label="round",
        y_label="local steps I",
        note="How many were made, and how many were used: fewer if f was lower after fewer steps.",
    )


def _column(rounds: Sequence[Round], name: str) -> tuple[list[float], list[float]]:
    recorded = [(r.round, value) for r in rounds if (value := getattr(r, name)) is not None]
    return [float(at) for at, _ in recorded], [float(value) for _, value in recorded]


def outcome(run: FoundRun) -> str:
    """What came of a run, in one short sentence."""
    last = run.last
    if last is None:
        return "The run has recorded nothing yet."
    first = run.rounds[0]
    if run.status == "diverged":
        return f"The run diverged in round {run.stopped_at}."
    if last.loss == first.loss:
        came = f"f stayed {shown(last.loss)}"
    else:
        came = f"f {'fell' if last.loss < first.loss else 'rose'} from {shown(first.loss)} to {shown(last.loss)}"
    if last.accuracy is not None:
        came += f" and {last.accuracy:.1%} of the test examples are right"
    if run.status in ("unfinished", "stopped"):
        whole = run.settings.get("rounds")
        return f"Not finished: after {last.round} {f'of {whole} ' if whole else ''}rounds {came}."
    if run.status == "target":
        return f"Target reached after {counted(run.stopped_at, 'round')}: {came}."
    # The last records of an altered run may be missing; f is then what the last one that is there says.
    is_whole = last.round == run.stopped_at
    return f"After {'' if is_whole else f'{last.round} of '}{counted(run.stopped_at, 'round')} {came}."


def ending(trace: Trace) -> str:
    """How a run ended, in one sentence."""
    return {
        "finished": f"Finished {counted(trace.stopped_at, 'round')}.",
        "target": f"Reached the target{_reached(trace)} in round {trace.stopped_at}.",
        "diverged": f"Diverged in round {trace.stopped_at}; try a smaller gamma or eta, or fewer local steps.",
        "stopped": f"Stopped in round {trace.stopped_at}.",
    }[trace.status]


def _reached(trace: Trace) -> str:
    """Which target its last record reached; empty if a rule of the caller's own stopped the run."""
    if not trace.rounds:
        return ""
    last = trace.rounds[-1]
    for name, value, sign in (("accuracy", last.accuracy, -1), ("loss", last.loss, 1), ("grad2", last.grad2, 1)):
        target = trace.settings.get(f"target_{name}")
        if target is not None and value is not None and sign * value <= sign * target:
            return " |grad f|^2" if name == "grad2" else f" {name}"
    return ""


# -- what was run ----------------------------------------------------------------------------------------------------


def federation_line(
    experiment: Mapping[str, Any], num_workers: int | None = None, parameters: Mapping[str, Any] | None = None
) -> str:
    """What an experiment is run on: data, model, partition, N and batch size, as far as they are known.

    Args:
        experiment: as an object of sections.
        num_workers: N; that of the experiment by default.
        parameters: of the partition; those that the experiment names by default.

    >>> federation_line({"data": {"name": "digits", "percent": 50}}, num_workers=10)
    'digits, mlp; paper partition (percent 50); 10 workers; batch size 20'
    >>> federation_line({"data": {"name": "digits", "scheme": "iid", "shift": ["swap=0.2"]}})
    'digits, mlp; iid partition; shift swap 0.2; 10 workers; batch size 20'
    >>> federation_line({"data": {"name": "fed.json"}}, num_workers=1)
    'fed.json; 1 worker'
    """
    data, run = (experiment.get(name) or {} for name in ("data", "run"))
    is_quadratic = str(data.get("name", ".json")).endswith(".json")
    workers = data.get("workers") if num_workers is None else num_workers
    if workers is None and not is_quadratic and data.get("scheme") != "id":
        workers = 10
    who = [counted(workers, "worker")] if workers is not None else []
    if is_quadratic:
        return "; ".join([source_of(experiment), *who])
    given = {key: data[key] for key in PARTITION_KEYS if data.get(key) is not None}
    named = given if parameters is None else parameters
    details = ", ".join(f"{key.replace('_', ' ')} {_plain(value)}" for key, value in named.items())
    partition = [f"{data.get('scheme') or 'paper'} partition" + (f" ({details})" if details else "")]
    if ":" in data["name"] and not data.get("scheme") and not named:
        partition = []  # a function of the user's own may give every worker its own data
    shifted = ["shift " + ", ".join(text.replace("=", " ") for text in data["shift"])] if data.get("shift") else []
    parts = [source_of(experiment), *partition, *shifted, *who, f"batch size {run.get('batch_size') or 20}"]
    return "; ".join(parts)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def title_of(settings: Mapping[str, Any], num_workers: int | None = None) -> str:
    """A run's algorithm with its parameters, its local steps, who takes part if not all do, and its seed."""
    algorithm = settings["algorithm"]
    named = [f"{name} {_plain(value)}" for name, value in algorithm.items() if name not in ("name", "code")]
    rates = ", ".join([*named, "your own functions"] if "code" in algorithm else named)
    who = _taking_part(settings.get("participation") or {}, num_workers)
    steps = _local_steps(settings.get("local_steps"))
    return f"{algorithm['name']} ({rates}), {steps}{who}, seed {settings.get('seed')}"


def _local_steps(steps: Any) -> str:
    if steps is None:
        return "unknown local steps"
    if isinstance(steps, Mapping):
        return f"{steps['name']} local steps"
    if isinstance(steps, list | tuple):
        return f"{min(steps)} to {max(steps)} local steps, one number per worker"
    return counted(steps, "local step")


def _taking_part(participation: Mapping[str, Any], num_workers: int | None) -> str:
    sampling, participants = participation.get("sampling", "full"), participation.get("participants")
    if sampling == "full" or participants is None:
        return ""
    who = f"{participants} of {num_workers} workers" if num_workers else counted(participants, "worker")
    return f", {who} per round, {sampling.replace('-shared', ', shared').replace('-', ' ')}"


# -- several runs ----------------------------------------------------------------------------------------------------


def local_steps_of(run: FoundRun) -> Any:
    """The local steps of a run, or what chooses them."""
    steps = run.settings.get("local_steps")
    return steps.get("name", "auto") if isinstance(steps, Mapping) else steps


def outline(run: FoundRun) -> dict[str, Any]:
    """The main facts about a run, as JSON."""
    last = run.last
    return {
        "run": run.path,
        "status": run.status,
        "round": run.stopped_at,
        "rounds": run.settings.get("rounds"),
        "source": run.source,
        "algorithm": run.settings.get("algorithm"),
        "local_steps": local_steps_of(run),
        "seed": run.settings.get("seed"),
        "loss": last.loss if last else None,
        "accuracy": last.accuracy if last else None,
        "best_accuracy": max((r.accuracy for r in run.rounds if r.accuracy is not None), default=None),
        "L_h_seen": run.L_h_seen,
        "seconds": run.seconds[-1] if run.seconds else None,
        "note": run.note,
    }


def notes_on(runs: Sequence[FoundRun]) -> list[str]:
    """What is wrong with runs that could not be read whole."""
    return [f"{run.path}: {run.note}" for run in runs if run.note]


def check_view(
    run: FoundRun, limits: Mapping[str, float], flags: Sequence[tuple[int, str, float]], rounds: int
) -> View:
    """The rounds that exceed a constant, or that there are none."""
    if not flags:
        names = ", ".join(f"{name} = {limit:.4g}" for name, limit in limits.items())
        return View((f"None of {rounds} watched rounds of {run.path} exceeds {names}.",))
    chosen = [flags[index] for index in some(len(flags))]
    more = len(flags) - len(chosen)
    title = f"{counted(len(flags), 'ratio')} exceed{'s' if len(flags) == 1 else ''} the constant"
    left_out = f"{more} more {'is' if more == 1 else 'are'} left out; --json lists all of them" if more else ""
    rows = [(number, name, ratio, limits[name]) for number, name, ratio in chosen]
    table = Table(("round", "symbol", "measured", "constant"), rows, title, left_out)
    return View(("A bound that was evaluated with these constants does not cover this run.",), tables=(table,))
