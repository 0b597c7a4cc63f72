"""How the command line spells things: in messages of the library, and where somebody types an option that there is not.

The library's messages name arguments as Python and TOML do: ``local_steps``, ``percent=50``, ``resume=True``. On the
command line the same arguments are options: ``--local-steps``, ``--percent 50``, ``--resume``.

An option that a command does not have gets one of three answers, tried in this order: the option that the word means
here (``--lr`` is ``--gamma``), a sentence that says what to do instead where nothing of the kind exists
(``--dropout``), and the option that is spelt most alike.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence

_QUOTES = "'\""
_VALUE = r"'[^']*'|\"[^\"]*\"|[^\s,;:()]*[^\s,;:().]"


def as_options(sentence: str, options: Mapping[str, str], typed: Sequence[str] = ()) -> str:
    """The sentence with every argument that is one of the command's ``options`` spelt as that option.

    A sentence that begins with an option is the command line's own and stays as it is. A sentence about an
    experiment's file ("run.toml: ...") keeps the file's spelling, except for options that were typed, as those do not
    come from the file.

    Args:
        sentence: as an error says it.
        options: the options of the command by the names of their arguments, such as ``--local-steps``.
        typed: the words of the command line.

    >>> as_options("percent=50 is too much; set fill=True.", {"percent": "--percent", "fill": "--fill"})
    '--percent 50 is too much; set --fill.'
    >>> as_options("rounds must be at least 1, not 0.", {"rounds": "--rounds"}, ["simulate", "--rounds", "0"])
    '--rounds must be at least 1, not 0.'
    >>> as_options("resume it with Keep(..., resume=True).", {"resume": "--resume"})
    'resume it with --resume.'
    """
    # What Python groups in a value is an option by itself.
    sentence = re.sub(r"\bKeep\(\.\.\., (\w+=\w+)\)", r"\1", sentence)
    flags = {word.partition("=")[0] for word in typed if word.startswith("--")}
    in_file = re.match(r"\S+\.toml: ", sentence) is not None
    names = {name: flag for name, flag in options.items() if not in_file or flag in flags}
    if not names or sentence.startswith("--"):
        return sentence
    any_name = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    start = rf"(?<![\w.,'/=-])(?:(?:data|model|algorithm|run)\.)?({any_name})"
    sentence = re.sub(rf"{start} ?= ?({_VALUE})", lambda match: _option(names[match[1]], match[2]), sentence)
    # A name of several words, or one with its section, cannot be mistaken for anything else.
    sentence = re.sub(
        rf"{start}(?![\w='.])",
        lambda match: names[match[1]] if "_" in match[1] or "." in match[0] else match[0],
        sentence,
    )
    # A plain word can; at the beginning, and typed, it is the option.
    subject = re.match(rf"((?:\S+\.toml: )?)({any_name}) (?=must|needs|is|names|cannot|has)", sentence)
    if subject and names[subject[2]] in flags:
        sentence = f"{subject[1]}{names[subject[2]]}{sentence[subject.end(2) :]}"
    return sentence


def _option(flag: str, value: str) -> str:
    if value.lower() == "true":
        return flag
    if value.lower() == "false":
        return f"--no-{flag[2:]}"
    return f"{flag} {value if ' ' in value else value.strip(_QUOTES)}"


# -- options that there are not ----------------------------------------------------------------------------------------


_CUTOFF = 0.6
"""How alike two spellings must be, as :class:`difflib.SequenceMatcher` measures it: the standard library's default."""

_MEANS: Mapping[str, tuple[str, ...]] = {
    "gamma": (
        "lr",
        "learning-rate",
        "local-lr",
        "client-lr",
        "local-learning-rate",
        "client-learning-rate",
        "step-size",
    ),
    "eta": ("server-lr", "global-lr", "server-learning-rate", "global-learning-rate"),
    "workers": ("clients", "num-clients", "n-clients", "num-workers", "nodes", "num-nodes", "num-partitions"),
    "participants": (
        "clients-per-round",
        "workers-per-round",
        "cohort",
        "cohort-size",
        "num-participants",
        "participation",
        "m",
    ),
    "rounds": (
        "num-rounds",
        "n-rounds",
        "num-server-rounds",
        "server-rounds",
        "communication-rounds",
        "iterations",
        "r",
    ),
    "batch-size": ("batch", "bs", "b", "batchsize", "minibatch", "minibatch-size", "mini-batch-size"),
    "local-steps": ("steps", "num-steps", "local-updates", "local-iterations", "inner-steps", "tau", "h", "i", "k"),
    "proximal": ("mu", "prox", "proximal-mu", "prox-mu"),
    "scheme": ("partition", "partitioner", "partition-scheme", "split"),
    "alpha": ("dirichlet", "dirichlet-alpha", "concentration"),
    "data": ("data-dir", "data-path", "root"),
    "model": ("net", "network", "arch", "architecture"),
    "algorithm": ("algo", "strategy", "method", "aggregator", "server-optimizer", "server-optimiser"),
    "optimiser": ("optimizer", "inner-optimizer", "local-optimizer", "local-optimiser", "client-optimizer"),
    "weight-decay": ("wd", "decay"),
    "clip": ("clip-norm", "max-norm", "gradient-clipping", "grad-clip", "clip-grad-norm"),
    "gamma-schedule": ("scheduler", "lr-scheduler", "lr-schedule", "schedule"),
    "eta-schedule": ("server-lr-schedule", "outer-lr-schedule"),
    "local-epochs": ("epochs", "num-epochs", "e"),
    "out": ("output", "output-dir", "out-dir", "save", "save-dir", "log-dir", "logdir", "directory"),
    "resume": ("continue", "restart"),
    "device": ("gpu", "cuda"),
    "processes": ("num-processes", "num-cpus", "cpus"),
    "jobs": ("parallel", "n-jobs", "num-jobs"),
    "seed": ("random-seed", "random-state", "rng"),
    "record-every": ("eval-every", "log-every", "evaluate-every"),
    "checkpoint-every": ("save-every", "checkpoint"),
}
"""For each option, the other words that people use for it."""

_INSTEAD: Mapping[tuple[str, ...], tuple[str, str]] = {
    ("momentum",): (
        "local-momentum",
        "use --local-momentum 0.9 for the workers, or --algorithm fedavgm --beta 0.9 for the server",
    ),
    ("server-momentum",): ("beta", "the server's momentum is an algorithm; use --algorithm fedavgm --beta 0.9"),
    ("l2", "regularisation", "regularization"): (
        "weight-decay",
        "use --weight-decay for the workers' steps; the model softmax also has a penalty that is part of f, with"
        " --model softmax --model-option l2=0.01",
    ),
    ("fraction", "fraction-fit", "participation-rate", "sample-rate", "c"): (
        "participants",
        "participants are given as a number; use --participants",
    ),
    ("warmup", "warm-up", "warmup-steps", "lr-decay"): (
        "gamma-schedule",
        "it is part of a schedule; use --gamma-schedule, as in --gamma-schedule cosine,warmup=5",
    ),
    ("dataset", "source", "dataset-name", "experiment", "config"): (
        "scheme",
        "what to run on is the first argument, without an option, as in 'fedgauge simulate mnist --gamma 0.1'",
    ),
    ("theorem",): ("theorem-version", "it is the first argument, as in 'fedgauge theory bound nonconvex'"),
    ("version",): ("theorem-version", "the version of a theorem is --theorem-version"),
    ("start", "from", "init", "checkpoint-path", "weights-file"): ("at", "a model is named by --at MODEL"),
    ("labels", "group-by", "by"): ("divide-by", "what the data is divided by is --divide-by"),
    ("target-loss", "target", "loss"): ("goal", "use --goal, as in --goal loss=0.1"),
    ("target-accuracy", "target-acc", "accuracy"): ("goal", "use --goal, as in --goal accuracy=0.9"),
    ("dropout",): ("model-option", "the models here have no dropout; name your own model with --model MODULE:FACTORY"),
    ("num-workers-loader", "dataloader-workers", "num-threads", "threads"): (
        "processes",
        "each process computes with one thread; use --processes",
    ),
    ("verbose", "quiet", "v", "q"): ("json", "there is no such switch; use --json for results without tables"),
}
"""Words for what does not exist here: an option that a command must have for the advice to apply, and the advice."""

_SYNONYMS = {word: option for option, words in _MEANS.items() for word in words}
_ADVICE = {word: advice for words, advice in _INSTEAD.items() for word in words}


def answer_to(typed: str, options: Collection[str]) -> str | None:
    """The sentence for an option that is not among ``options``, without its end; None where nothing comes close.

    Names may be written with or without the dashes in front.

    >>> answer_to("--lr", ["--gamma", "--fill"])
    'There is no option --lr; did you mean --gamma?'
    >>> answer_to("--warmup", ["--gamma-schedule"]).split(":")[0]
    '--warmup is not supported'
    >>> answer_to("--xyzzy", ["--gamma"])
    """
    known = [option.lstrip("-") for option in options]
    needed, advice = _ADVICE.get(_plain(typed), ("", ""))
    if needed in known:
        return f"{typed} is not supported: {advice}."
    likely = meant(typed, known)
    return f"There is no option {typed}; did you mean --{likely}?" if likely else None


def meant(typed: str, known: Collection[str]) -> str | None:
    """Which of the ``known`` names somebody probably means: by its meaning if there is one, else by its spelling.

    >>> meant("learning_rate", ["gamma", "local_steps"]), meant("localsteps", ["gamma", "local_steps"])
    ('gamma', 'local_steps')
    """
    spelt = {_plain(name): name for name in known}
    word = _plain(typed)
    if _SYNONYMS.get(word) in spelt:
        return spelt[_SYNONYMS[word]]
    close = difflib.get_close_matches(word, spelt, n=1, cutoff=_CUTOFF)
    return spelt[close[0]] if close else None


def _plain(name: str) -> str:
    return name.lstrip("-").replace("_", "-").lower()
