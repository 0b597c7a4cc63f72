"""The parameters that an experiment and the command offer come from the signatures and docstrings of the factories."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fedgauge.algorithms import ALGORITHMS, OPTIONS, parameters_of
from fedgauge.algorithms.parameters import parameters

# What somebody does who adds an algorithm: a factory with a docstring, and its name in the one list.
ADDED = '''
import sys
import fedgauge.algorithms as algorithms

def fedfoo(gamma: float, eta: float = 3.0, patience: int = 5) -> algorithms.Algorithm:
    """A new algorithm.

    Args:
        gamma: local learning rate.
        eta: global learning rate.
        patience: rounds to wait; this is a remark.
    """
    return algorithms.fedavg(gamma, eta)

algorithms.ALGORITHMS["fedfoo"] = fedfoo
from fedgauge.cli import main
sys.exit(main(sys.argv[1:]))
'''


def added(*line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", ADDED, *line], capture_output=True, text=True, check=False)


def test_a_new_parameter_is_an_option_and_a_key() -> None:
    shown = " ".join(added("simulate", "--help-all").stdout.replace("│", "").split())
    assert "--patience INTEGER Rounds to wait (fedfoo) [default: 5]." in shown
    assert "3 for fedfoo" in shown
    refused = added("simulate", "digits", "--gamma", "0.1", "--patience", "2")
    assert (refused.returncode, "fedavg has no parameter patience" in refused.stderr) == (2, True)


def test_every_parameter_is_offered_and_described() -> None:
    own = {parameter for name in ALGORITHMS for parameter in parameters_of(name)}
    assert set(parameters()) == own | set(OPTIONS)
    for name, each in parameters().items():
        assert len(each.help.split()) > 3, name
        assert not set("`\n") & set(each.help)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("gamma", float, "Local learning rate of the workers."),
        ("nesterov", bool, "(fedavgm) [default: no]."),
        ("eta", float, "[default: 1; 0.1 for fedadam, fedadagrad, fedyogi; 0.7 for diloco]."),
        ("weight_decay", float, "(sgd, adamw) [default: 0; 0.01 for adamw; 0.1 for diloco]."),
        ("clip", float, "The length to which longer gradients of the workers are shortened."),
        ("gamma_schedule", str, "How gamma changes: constant, step, cosine or linear"),
    ],
)
def test_texts_types_and_defaults(name: str, kind: type, words: str) -> None:
    assert parameters()[name].kind is kind
    assert words in parameters()[name].help
