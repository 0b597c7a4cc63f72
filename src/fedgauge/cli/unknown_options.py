"""What to answer when somebody types an option that a command does not have.

Three kinds of answer, tried in this order: the option that the word means here (``--lr`` is ``--gamma``), a sentence
that says what to do instead where nothing of the kind exists (``--dropout``), and the option that is spelt most alike.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping

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


def answer(typed: str, options: Collection[str]) -> str | None:
    """The sentence for an option that is not among ``options``, without its end; None where nothing comes close.

    Names may be written with or without the dashes in front.

    >>> answer("--lr", ["--gamma", "--fill"])
    'There is no option --lr; did you mean --gamma?'
    >>> answer("--warmup", ["--gamma-schedule"]).split(":")[0]
    '--warmup is not supported'
    >>> answer("--xyzzy", ["--gamma"])
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
