"""Bad input is answered with one sentence and exit code 2, without a traceback, and no file is changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import FEDERATION, run, snapshot

from fedgauge.cli import main

NAN, INFINITY = float("nan"), float("inf")


def changed(**entries: Any) -> dict[str, Any]:
    return {**FEDERATION, **entries}


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in FEDERATION.items() if name != key}


def write_federation(path: Path, content: Any) -> None:
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))


def check_sentence(status: int, out: str, err: str, words: tuple[str, ...]) -> None:
    assert status == 2
    assert out == ""
    assert err.startswith("fedgauge: ")
    assert err.endswith((".\n", "?\n"))
    assert err.count("\n") == 1
    assert "Traceback" not in err
    for word in words:
        # typer writes the names of arguments in capitals or not, as its version is.
        assert word.casefold() in err.casefold()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a sound federation, a run, a directory of other files, and a file."""
    monkeypatch.chdir(tmp_path)
    write_federation(tmp_path / "fed.json", FEDERATION)
    write_federation(tmp_path / "other.json", changed(sigma2=1.0))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "note.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    return tmp_path


# What the file of a federation may get wrong -> words that the sentence must have.
FILES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "not symmetric": (changed(hessians=[[[1, 2], [0, 1]], [[1, 0], [0, 1]]]), ("hessian", "symmetric", "worker 0")),
    "second not symmetric": (changed(hessians=[[[1, 0], [0, 1]], [[1, 0], [1e-6, 1]]]), ("symmetric", "worker 1")),
    "not square": (changed(hessians=[[[1, 0, 0], [0, 1, 0]]] * 2), ("hessians", "square", "2 rows and 3 columns")),
    "linear of another N": (changed(linear=[[1, 0]]), ("linear", "(2, 2)", "(1, 2)")),
    "linear of another d": (changed(linear=[[1], [2]]), ("linear", "(2, 2)", "(2, 1)")),
    "constant of another N": (changed(constant=[1, 2, 3]), ("constant", "(2,)", "(3,)")),
    "constant a number": (changed(constant=1), ("constant", "list")),
    "start of another d": (changed(start=[1, 1, 1]), ("start", "2 entries", "3")),
    "start a matrix": (changed(start=[[1, 1]]), ("start", "list", "(1, 2)")),
    "NaN in hessians": (changed(hessians=[[[NAN, 0], [0, 1]], [[1, 0], [0, 1]]]), ("hessians", "finite", "nan")),
    "infinity in linear": (changed(linear=[[INFINITY, 0], [0, 0]]), ("linear", "finite")),
    "NaN in constant": (changed(constant=[0, NAN]), ("constant", "finite")),
    "infinity in start": (changed(start=[0, -INFINITY]), ("start", "finite")),
    "NaN sigma2": (changed(sigma2=NAN), ("sigma2", "finite", "nan")),
    "infinite sigma2": (changed(sigma2=INFINITY), ("sigma2", "finite", "inf")),
    "negative sigma2": (changed(sigma2=-1), ("sigma2", "at least 0", "-1")),
    "sigma2 a string": (changed(sigma2="1"), ("sigma2", "number", "'1'")),
    "sigma2 null": (changed(sigma2=None), ("sigma2", "number")),
    "null in hessians": (changed(hessians=[[[None, 0], [0, 1]]] * 2), ("hessians",)),
    "no worker": (changed(hessians=[], linear=[], constant=[]), ("hessians", "matrices")),
    "no dimension": (changed(hessians=[[], []], linear=[[], []]), ("hessians", "matrices")),
    "ragged hessians": (changed(hessians=[[[1, 0], [0]], [[1, 0], [0, 1]]]), ("hessians", "equal length")),
    "ragged linear": (changed(linear=[[1, 0], [1]]), ("linear", "equal length")),
    "words in hessians": (changed(hessians=[[["a", 0], [0, 1]]] * 2), ("hessians", "numbers")),
    "hessians an object": (changed(hessians={}), ("hessians", "list")),
    "no hessians": (without("hessians"), ("hessians",)),
    "no linear": (without("linear"), ("linear",)),
    "unknown entry": (changed(hesians=[]), ("'hesians'", "did you mean hessians?")),
    "a list": ("[1, 2]", ("JSON object", "hessians")),
    "a string": ('"federation"', ("JSON object",)),
    "null": ("null", ("JSON object",)),
    "empty": ("", ("not valid JSON", "line 1")),
    "cut short": ('{"hessians": [[[1, 0', ("not valid JSON", "bad.json")),
    "too deep": ("[" * 100_000, ("not valid JSON",)),
    "binary": (b"\xff\xfe\x00\x80", ("bad.json", "not text")),
    "numbers as strings": (changed(hessians=[[["1", 0], [0, 1]]] * 2), ("hessians", "numbers")),
    "truth as numbers": (changed(hessians=[[[True, 0], [0, 1]]] * 2), ("hessians", "numbers")),
    "integer beyond floats": (changed(constant=[10**400, 0]), ("constant",)),
    "integer beyond parsing": ('{"constant": [' + "1" * 5000 + "]}", ("bad.json",)),
    "overflow": (changed(hessians=[[[1e308, 0], [0, 1]]] * 2), ("hessians",)),
}
# The same, where the mistake is not caught yet.
COMMANDS = (
    ("theory", "constants", "bad.json"),
    ("theory", "expect", "bad.json", "--gamma", "0.1"),
    ("simulate", "bad.json", "--gamma", "0.1", "--rounds", "2", "--out", "new"),
)


@pytest.mark.parametrize(
    ("content", "words"),
    [pytest.param(*case, id=name) for name, case in FILES.items()],
)
def test_file(content: Any, words: tuple[str, ...], place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_federation(place / "bad.json", content)
    before = snapshot(place)
    for command in COMMANDS:
        check_sentence(main(list(command)), *capsys.readouterr(), words)
        assert snapshot(place) == before


# What a command may be told wrong -> words that the sentence must have. {RUN} is a run that would be sound.
RUN = "simulate fed.json --gamma 0.1 --rounds 2 --out new"
EXPECT = "theory expect fed.json --gamma 0.1"
OPTIONS: dict[str, tuple[str, ...]] = {
    # counts
    f"{RUN} --local-steps 0": ("--local-steps must", "at least 1", "0"),
    f"{RUN} --local-steps -3": ("--local-steps must", "at least 1", "-3"),
    f"{RUN} --local-steps 2.5": ("--local-steps", "whole number", "'2.5'"),
    f"{RUN} --rounds 0": ("rounds", "at least 1", "0"),
    f"{RUN} --record-every 0": ("--record-every", "at least 1"),
    f"{RUN} --checkpoint-every 0": ("--checkpoint-every", "at least 1"),
    f"{RUN} --chunk 0": ("chunk", "at least 1"),
    f"{RUN} --seed -1": ("seed", "from 0", "-1"),
    f"{RUN} --goal loss=nan": ("goal loss", "finite", "nan"),
    f"{EXPECT} --local-steps 0": ("--local-steps must", "at least 1"),
    f"{EXPECT} --rounds 0": ("rounds", "at least 1"),
    # rates
    "simulate fed.json --gamma 0 --out new": ("gamma", "above 0", "0.0"),
    "simulate fed.json --gamma -0.1 --out new": ("gamma", "above 0", "-0.1"),
    "simulate fed.json --gamma nan --out new": ("gamma", "finite", "nan"),
    "simulate fed.json --gamma inf --out new": ("gamma", "finite", "inf"),
    "simulate fed.json --gamma abc --out new": ("--gamma", "number", "'abc'", "fedgauge simulate --help"),
    "theory expect fed.json --gamma 0": ("gamma", "above 0"),
    "theory expect fed.json --gamma -1": ("gamma", "above 0", "-1.0"),
    f"{RUN} --eta 0": ("eta", "above 0"),
    f"{RUN} --eta -1": ("eta", "above 0", "-1.0"),
    f"{RUN} --eta nan": ("eta", "finite"),
    f"{RUN} --algorithm momentum --beta 1": ("beta", "below 1", "1.0"),
    f"{RUN} --algorithm momentum --beta -0.1": ("beta", "at least 0", "-0.1"),
    f"{RUN} --algorithm momentum --beta nan": ("beta", "nan"),
    f"{RUN} --algorithm slowmo --beta 1.5": ("beta", "below 1", "1.5"),
    f"{RUN} --algorithm fedadam --beta1 1": ("beta1", "below 1"),
    f"{RUN} --algorithm fedadam --beta2 -1": ("beta2", "at least 0"),
    f"{RUN} --algorithm fedadam --tau 0": ("tau", "above 0"),
    f"{RUN} --algorithm fedprox --proximal -1": ("proximal", "at least 0"),
    f"{EXPECT} --algorithm momentum --beta 1": ("beta", "below 1"),
    # algorithms
    f"{RUN} --algorithm fedavgg": ("fedavgg", "did you mean fedavg?"),
    f"{RUN} --algorithm xyz": ("xyz", "fedavg", "scaffold"),
    f"{RUN} --beta 0.9": ("fedavg", "no parameter beta", "gamma, eta"),
    f"{RUN} --algorithm fednova --tau 0.1": ("fednova", "no parameter tau"),
    f"{EXPECT} --algorithm fedadam": ("fedadam", "fedavg, momentum, minibatch, fedavgm and slowmo"),
    f"{EXPECT} --algorithm momentun": ("momentun", "did you mean momentum?"),
    # who takes part
    f"{RUN} --participants 3 --sampling without-replacement": ("participants", "at most", "2", "3"),
    f"{RUN} --participants 3": ("--participants must be at most 2", "not 3", "--sampling with-replacement"),
    f"{EXPECT} --participants 3": ("--participants must be at most 2", "not 3", "--sampling with-replacement"),
    f"{RUN} --participants 0": ("participants", "at least 1", "0"),
    f"{RUN} --participants 1 --sampling full": ("participants", "1", "contradicts", "2"),
    f"{RUN} --sampling with-replacement": ("with-replacement", "needs participants"),
    f"{RUN} --sampling without-replacment --participants 1": ("did you mean without-replacement?",),
    f"{RUN} --algorithm scaffold --participants 2": ("scaffold", "drawn twice", "without-replacement"),
    f"{EXPECT} --participants 3 --sampling without-replacement": ("participants", "at most", "3"),
    f"{EXPECT} --participants 1 --sampling full": ("participants", "contradicts"),
    f"{RUN} --weights 1": ("weights", "2", "1"),
    f"{RUN} --weights 1,2,3": ("weights", "2", "3"),
    f"{RUN} --weights 1,-1": ("weights", "at least 0"),
    f"{RUN} --weights 0,0": ("weights", "all 0"),
    f"{RUN} --weights 1,nan": ("weights", "finite"),
    f"{RUN} --weights a,b": ("weights", "numbers", "'a,b'"),
    f"{RUN} --weights 1,": ("weights", "numbers", "'1,'"),
    # files
    "theory constants missing.json": ("missing.json", "No such file"),
    "theory constants notes": ("notes", "directory"),
    "simulate missing.json --gamma 0.1 --out new": ("missing.json", "No such file"),
    "theory generate fed.json": ("fed.json", "exists", "--force"),
    "theory generate notes": ("notes", "is a directory"),
    "theory generate notes --force": ("notes", "is a directory"),
    "theory generate none/fed.json": ("none/fed.json", "no directory none"),
    "theory generate new.json --workers 0": ("workers", "at least 1", "0"),
    "theory generate new.json --dim 0": ("dim", "at least 1"),
    "theory generate new.json --shape convecks": ("shape", "convecks", "convex"),
    "theory generate new.json --hessian-spread 2": ("--hessian-spread", "0 to 1", "2"),
    "theory generate new.json --conditioning 0.5": ("conditioning", "at least 1", "0.5"),
    "theory generate new.json --sigma2 nan": ("sigma2", "nan"),
    "theory generate new.json --seed -1": ("seed", "-1"),
    # where results go: refused before the run, for new is not begun
    "simulate fed.json --gamma 0.1 --out notes": ("notes", "holds files but no run", "choose"),
    "simulate fed.json --gamma 0.1 --out file": ("file", "is a file", "directory"),
    "simulate fed.json --gamma 0.1 --out file/run": ("file/run", "Not a directory"),
    "simulate fed.json --gamma 0.1 --out notes --resume": ("notes", "holds files but no run"),
    "simulate fed.json --gamma 0.1 --resume": ("--resume", "--out"),
    f"{RUN} --plot picture.bmp": ("plot", ".png, .pdf or .svg", "picture.bmp"),
    f"{RUN} --plot picture": ("plot", ".png, .pdf or .svg", "'picture'"),
    f"{RUN} --plot none/picture.png": ("none/picture.png", "no directory none"),
    f"{RUN} --plot file/picture.png": ("file/picture.png", "no directory file"),
    f"{EXPECT} --plot picture.bmp": ("plot", ".png, .pdf or .svg", "picture.bmp"),
    f"{EXPECT} --plot none/picture.svg": ("none/picture.svg", "no directory none"),
    "demo --out file": ("out", "directory", "file"),
    "demo --out file/demo": ("out", "directory", "file"),
    "paper table 2 --out file": ("out", "directory", "file"),
    "paper table 2 --seeds 0": ("seeds", "at least 1"),
    "paper table 2 --seed -1": ("seed", "-1"),
    "paper table 2 --jobs 0": ("jobs", "at least 1"),
    "paper table 2 --engine rey": ("engine", "'rey'", "did you mean ray?"),
    "paper table 1 --model resnet": ("'resnet'", "choose one of mlp, cnn, vgg11, vgg16."),
    "paper table 1 --model cinic10": ("'cinic10'", "choose one of mlp, cnn, vgg11, vgg16."),
    "plan fed.json --gamma 0.1 --goal grad2=1 --over foo=1": (
        "does not choose 'foo'",
        "choose one of gamma, eta, local_steps, participants.",
    ),
    "paper table 1 --address head:1": ("--address head:1", "--engine ray"),
    "paper table 2 --engine ray --address head": ("address must be HOST:PORT", "'head'"),
    "paper lenses --source cifar10": ("source", "mnist or digits", "'cifar10'"),
    "paper lenses --goal loss=0": ("goal", "above 0"),
    "paper lenses --source digits --seeds 0": ("seeds", "at least 1"),
    "paper lenses --out file": ("out", "directory", "file"),
    "theory region --points 100000": ("points", "at most 1,000", "100,000"),
    # the words themselves
    "simulat fed.json": ("simulat", "did you mean 'simulate'?"),
    "paper tabel 2": ("tabel", "did you mean 'table'"),
    "paper table 3": ("no table 3", "1 to 2"),
    "paper figure 10": ("no figure 10", "1 to 9"),
    "paper figure 1 --effort laptop": ("Figure 1 has no --effort",),
    "paper table 2 --model cnn": ("Table 2 has no --model",),
    "paper table 1 --seed 3": ("Table 1 has no --seed",),
    "paper figure 8 --model cnn": ("Figure 8 has no model 'cnn'", "vgg16"),
    "paper status --model resnet": ("'resnet'",),
    "paper status --seconds 0": ("seconds", "above 0"),
    "xyz": ("xyz", "fedgauge --help"),
    "simulate fed.json": ("needs gamma", "as in --gamma 0.1"),
    "theory expect fed.json": ("needs gamma", "as in --gamma 0.1"),
    "simulate --gamma 0.1": ("source", "fedgauge simulate --help"),
    "simulate fed.json --gamma": ("--gamma", "argument"),
    f"{RUN} --gama 1": ("no option --gama", "did you mean --gamma?"),
    "theory bound --theorem nonconvex": ("--theorem is not supported", "the first argument"),
    f"{RUN} --start a.pt": ("--start is not supported", "--at MODEL"),
    f"{RUN} --target-loss 1": ("--target-loss is not supported", "--goal loss=0.1"),
    "theory bound nonconvex --version printed": ("--version is not supported", "--theorem-version"),
    f"{RUN} --lr 1": ("no option --lr", "did you mean --gamma?"),
    f"{RUN} --learning_rate 1": ("did you mean --gamma?",),
    f"{RUN} --server-lr 1": ("did you mean --eta?",),
    f"{RUN} --num-clients 1": ("did you mean --workers?",),
    f"{RUN} --clients-per-round 1": ("did you mean --participants?",),
    f"{RUN} --num-rounds 1": ("did you mean --rounds?",),
    f"{RUN} --bs 1": ("did you mean --batch-size?",),
    f"{RUN} --steps 1": ("did you mean --local-steps?",),
    f"{RUN} --epochs 1": ("no option --epochs", "did you mean --local-epochs?"),
    f"{RUN} --momentum 0.9": ("--momentum is not supported", "--local-momentum", "--algorithm fedavgm --beta"),
    f"{RUN} --l2 0.1": ("--l2 is not supported", "--weight-decay", "l2=0.01"),
    f"{RUN} --warmup 5": ("--warmup is not supported", "--gamma-schedule"),
    f"{RUN} --optimizer adamw": ("no option --optimizer", "did you mean --optimiser?"),
    f"{RUN} --local-epochs 2": ("quadratics", "local-epochs means nothing"),
    f"{RUN} --optimiser adam": ("optimiser", "did you mean adamw?"),
    f"{RUN} --algorithm scaffold --local-momentum 0.9": ("control variates", "use fedavg"),
    f"{RUN} --gamma-schedule cosin": ("no schedule", "did you mean cosine?"),
    f"{RUN} --gamma-schedule cosine,by=step --local-steps auto": ("cosine,by=step", "over=1000"),
    f"{RUN} --max-norm 1": ("did you mean --clip?",),
    f"{RUN} --dataset mnist": ("--dataset is not supported", "first argument"),
    f"{RUN} --xyzzy": ("no option --xyzzy", "see 'fedgauge simulate --help'"),
    # a word may mean something to one command and nothing to another
    "theory constants fed.json --epochs 1": ("no option --epochs", "see 'fedgauge theory constants --help'"),
    "theory constants fed.json --jsn": ("did you mean --json?",),
    "runs sweep fed.json --gamma 0.1 --out new --over lr=1,2": ("--over names no key", "'lr'", "did you mean gamma?"),
    f"{RUN} more": ("more", "fedgauge simulate --help"),
    "theory constants": ("file", "fedgauge theory constants --help"),
    f"{EXPECT} --weights 1": ("weights", "2", "1"),
}


@pytest.mark.parametrize(
    ("line", "words"),
    OPTIONS.items(),
)
def test_options(line: str, words: tuple[str, ...], place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = snapshot(place)
    check_sentence(main(line.split()), *capsys.readouterr(), words)
    assert snapshot(place) == before


# How a second command may depart from the run that is there -> the setting, its value then, its value now.
OTHER: dict[str, tuple[str, ...]] = {
    "simulate fed.json --gamma 0.2 --rounds 2": ("gamma", "0.1", "0.2"),
    "simulate fed.json --gamma 0.1 --rounds 2 --eta 2": ("eta", "1.0", "2.0"),
    "simulate fed.json --gamma 0.1 --rounds 3": ("rounds", "2", "3"),
    "simulate fed.json --gamma 0.1 --rounds 2 --seed 1": ("seed", "0", "1"),
    "simulate fed.json --gamma 0.1 --rounds 2 --local-steps 4": ("--local-steps", "10", "4"),
    "simulate fed.json --gamma 0.1 --rounds 2 --algorithm slowmo": ("algorithm", "'fedavg'", "'slowmo'"),
    "simulate fed.json --gamma 0.1 --rounds 2 --participants 1": ("--sampling full", "'with-replacement'"),
    "simulate fed.json --gamma 0.1 --rounds 2 --weights 1,2": ("weights", "None", "[1.0, 2.0]"),
    "simulate fed.json --gamma 0.1 --rounds 2 --goal loss=0": ("target_loss = None", "0.0"),
    "simulate fed.json --gamma 0.1 --rounds 2 --record-every 2": ("--record-every", "1", "2"),
    "simulate fed.json --gamma 0.1 --rounds 2 --chunk 1": ("chunk", "32", "1"),
    "simulate other.json --gamma 0.1 --rounds 2": ("federation",),
}


def test_another_run_is_neither_overwritten_nor_resumed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = "simulate fed.json --gamma 0.1 --rounds 2 --out run"
    assert main(same.split()) == 0
    capsys.readouterr()
    before = snapshot(place)
    check_sentence(main(same.split()), *capsys.readouterr(), ("run", "already holds a run", "--resume"))
    for line, words in OTHER.items():
        check_sentence(main([*line.split(), "--out", "run", "--resume"]), *capsys.readouterr(), (*words, "resume it"))
        assert snapshot(place) == before
    (place / "run" / "settings.json").write_text("[]")
    (place / "run" / "manifest.json").unlink()  # with it, the run's own settings would be written again
    before = snapshot(place)
    check_sentence(main([*same.split(), "--resume"]), *capsys.readouterr(), ("settings.json", "damaged"))
    assert snapshot(place) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize(
    "line", [f"{RUN} --plot locked/picture.png", "theory generate locked/fed.json", "demo --out locked/x"]
)
def test_place_that_may_not_be_written(line: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "locked").mkdir(mode=0o500)
    before = snapshot(place)
    check_sentence(main(line.split()), *capsys.readouterr(), ("locked", "permission denied"))
    assert snapshot(place) == before


@pytest.mark.parametrize(
    ("line", "words"),
    [
        # The other commands and mistakes are tried above, in this process.
        ("theory constants bad.json", ("symmetric",)),
        ("simulate bad.json --gamma 0.1 --out new", ("symmetric",)),
        ("simulate fed.json --gamma abc", ("--gamma", "'abc'")),
        ("simulat", ("did you mean 'simulate'?",)),
    ],
)
def test_real_process(line: str, words: tuple[str, ...], place: Path) -> None:
    write_federation(place / "bad.json", FILES["not symmetric"][0])
    before = snapshot(place)
    answer = run(*line.split(), cwd=place)
    check_sentence(answer.returncode, answer.stdout, answer.stderr, words)
    assert snapshot(place) == before


def test_more_than_the_memory_is_the_machines_limit_and_one_sentence(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A matrix of 10^7 x 10^7 floats takes 728 TiB.
    assert main(["theory", "generate", "huge.json", "--dim", "10000000"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.startswith("fedgauge: There is not enough memory")) == ("", 1, True)
    assert not (place / "huge.json").exists()


def test_a_module_of_ones_own_does_not_shadow_an_installed_one(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('shadowed')\n")
    (tmp_path / "mine.py").write_text("from torch import nn\n\ndef tiny(shape, classes):\n    return nn.Flatten()\n")
    code = (
        "import sys; sys.path.remove('') if '' in sys.path else None; from fedgauge.cli import main; sys.exit(main())"
    )
    line = ["simulate", "digits", "--gamma", "0.1", "--rounds", "1", "--model", "mine:tiny"]
    done = subprocess.run(
        [sys.executable, "-c", code, *line], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "shadowed" not in done.stderr
    # The user's own module is found all the same: its model has nothing to learn, which is said.
    assert "no parameters to learn" in done.stderr
