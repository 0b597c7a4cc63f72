"""Algorithms of a user's own: made by name, sent to other processes as they are, and recognised by a fingerprint."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.algorithms import own
from tests.algorithms.own import STEPS, replaced, scaled, sign_step

from fedgauge import fedavg, momentum, random_quadratics, simulate
from fedgauge.algorithms import ALGORITHMS, Algorithm, fingerprint, make_algorithm, parameters_of
from fedgauge.base.errors import InputError
from fedgauge.base.fingerprints import alike, digest
from fedgauge.base.user_code import is_user_code
from fedgauge.simulation.options import Compute

ROOT = Path(__file__).parents[2]
FEDERATION = random_quadratics(4, 3, sigma2=0.1)
every_step = pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


def sent(algorithm: Algorithm) -> Algorithm:
    found: Algorithm = pickle.loads(pickle.dumps(algorithm))
    return found


def run(algorithm: Algorithm) -> Any:
    return simulate(FEDERATION, algorithm, local_steps=3, rounds=4, compute=Compute(processes=1))


# -- in this process ---------------------------------------------------------------------------------------------


@every_step
def test_a_replaced_step_is_the_one_that_is_taken(step: Any) -> None:
    algorithm = replaced(step)
    assert algorithm.sgd_rate is None, "the federation must not take plain steps in its place"
    assert not np.array_equal(run(algorithm).model, run(fedavg(0.1)).model)


def test_plain_steps_are_known_by_their_step_and_their_beginning() -> None:
    assert fedavg(0.1).sgd_rate == 0.1
    assert momentum(0.1).sgd_rate is None
    other = replace(fedavg(0.1), begin=lambda model, server, memory: {"x": 2 * model})
    assert other.sgd_rate is None


def test_an_algorithm_is_its_own_copy() -> None:
    algorithm = fedavg(0.1)
    assert copy.copy(algorithm) is algorithm
    assert copy.deepcopy(algorithm) is algorithm


# -- sent to another process -------------------------------------------------------------------------------------


@every_step
def test_what_arrives_gives_the_same_bits(step: Any) -> None:
    algorithm = replaced(step)
    np.testing.assert_array_equal(run(sent(algorithm)).model, run(algorithm).model)
    assert sent(algorithm).parameters == algorithm.parameters


@every_algorithm
def test_what_fedgauge_has_arrives_too(name: str) -> None:
    algorithm = make_algorithm(name, gamma=0.1)
    found = sent(algorithm)
    assert (found.name, found.parameters, found.sgd_rate) == (name, algorithm.parameters, algorithm.sgd_rate)
    np.testing.assert_array_equal(run(found).model, run(algorithm).model)


def test_functions_of_ones_own_modules_need_no_module_on_the_other_side(tmp_path: Path) -> None:
    (tmp_path / "mine_helpers.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "mine.py").write_text(
        "from mine_helpers import double\nSCALE = 0.25\n\n\n"
        "def step(local, gradient):\n    return {'x': local['x'] - double(SCALE) * gradient}\n"
    )
    write = (
        "import sys, pickle, dataclasses, fedgauge as fg; sys.path.insert(0, sys.argv[1]); import mine;"
        "a = dataclasses.replace(fg.fedavg(gamma=0.1), step=mine.step);"
        "sys.stdout.buffer.write(pickle.dumps(a))"
    )
    read = (
        "import sys, pickle, torch; a = pickle.loads(sys.stdin.buffer.read());"
        "print(a.step({'x': torch.ones(1)}, torch.ones(1))['x'].item(), 'mine' in sys.modules)"
    )
    how: dict[str, Any] = {
        "check": True,
        "capture_output": True,
        "env": {**os.environ, "PYTHONPATH": str(ROOT / "src")},
    }
    content = subprocess.run([sys.executable, "-c", write, str(tmp_path)], **how).stdout
    found = subprocess.run([sys.executable, "-c", read], input=content, **how).stdout.decode()
    assert found.split() == ["0.5", "False"]


def _locked() -> Any:
    lock = threading.Lock()

    def step(local: Any, gradient: torch.Tensor) -> Any:
        with lock:
            return {"x": local["x"] - gradient}

    return step


def _writing(path: Path) -> Any:
    file = path.open("w")

    def step(local: Any, gradient: torch.Tensor) -> Any:
        file.write("step")
        return {"x": local["x"] - gradient}

    return step, file


def test_what_cannot_be_sent_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"fedavg cannot be sent .*lock.*processes = 1") as refused:
        pickle.dumps(replaced(_locked()))
    assert "\n" not in str(refused.value)
    step, file = _writing(tmp_path / "log")
    with file, pytest.raises(InputError, match="fedavg cannot be sent to other processes"):
        pickle.dumps(replaced(step))


def test_nothing_stays_registered() -> None:
    import cloudpickle

    before = cloudpickle.list_registry_pickle_by_value()
    pickle.dumps(replaced(sign_step))
    with pytest.raises(InputError):
        pickle.dumps(replaced(_locked()))
    assert cloudpickle.list_registry_pickle_by_value() == before


def test_own_modules_are_told_from_installed_ones() -> None:
    assert is_user_code(own.__name__)
    assert is_user_code("a_module_that_only_the_sender_has")
    installed = ("torch.nn", "torch.ops", "hypothesis", "sys", "dataclasses", "fedgauge.simulation.loop")
    assert not any(map(is_user_code, installed))


# -- by name -----------------------------------------------------------------------------------------------------

SIGNED, RATELESS = "tests.algorithms.own:signed", "tests.algorithms.own:rateless"


def test_a_factory_of_ones_own_is_named_by_its_module() -> None:
    assert parameters_of(SIGNED) == ["gamma", "power"]
    made = make_algorithm(SIGNED, gamma=0.1)
    assert (made.name, made.parameters) == (SIGNED, {"gamma": 0.1, "power": 0.5})
    np.testing.assert_array_equal(run(made).model, run(own.signed(0.1)).model)
    again = make_algorithm(made.name, **made.parameters)
    assert run(again) == run(made)


def test_gamma_is_required_only_where_the_factory_requires_it() -> None:
    assert parameters_of(RATELESS) == ["steps_per_epoch", "decay"]
    made = make_algorithm(RATELESS, steps_per_epoch=10)
    assert made.parameters == {"steps_per_epoch": 10, "decay": 0.9}
    assert made.sgd_rate == 0.09


@pytest.mark.parametrize(
    ("name", "parameters", "says"),
    [
        (SIGNED, {}, f"{SIGNED} needs gamma, the local learning rate; give it, as in gamma=0.1."),
        (RATELESS, {"decay": 0.5}, f"{RATELESS} needs steps_per_epoch; give it as a parameter."),
        (SIGNED, {"gamma": 0.1, "eta": 1.0}, f"{SIGNED} has no parameter eta; it takes gamma, power."),
        ("tests.algorithms.own:wrong", {"gamma": 0.1}, "wrong must return an Algorithm, not a dict."),
        ("tests.algorithms.own:NUMBER", {}, "NUMBER must be a function that makes an algorithm, not a int."),
        ("tests.algorithms.own:absent", {}, "has no absent"),
        ("no.such.module:factory", {}, "Cannot import no.such.module for the algorithm"),
        ("fedavg", {}, "fedavg needs gamma, the local learning rate; give it, as in gamma=0.1."),
        ("fedavg", {"gamma": 0.1, "beta": 0.9}, "fedavg has no parameter beta; it takes gamma, eta."),
    ],
)
def test_what_makes_no_algorithm_is_refused_in_one_sentence(name: str, parameters: Any, says: str) -> None:
    with pytest.raises(InputError) as refused:
        make_algorithm(name, **parameters)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


# -- fingerprints ------------------------------------------------------------------------------------------------


@every_algorithm
@given(gamma=st.floats(1e-6, 1e3))
def test_what_the_registry_makes_has_no_fingerprint(name: str, gamma: float) -> None:
    assert fingerprint(ALGORITHMS[name](gamma)) is None
    assert fingerprint(make_algorithm(name, gamma=gamma)) is None


@every_algorithm
@given(rates=st.lists(st.sampled_from([0.1, 0.2, 1.0]), min_size=2, max_size=2))
def test_results_of_a_factory_are_alike_where_their_digests_are_the_same(name: str, rates: list[float]) -> None:
    one, other = (vars(make_algorithm(name, gamma=gamma)) for gamma in rates)
    assert alike(one, other) == (digest(one) == digest(other)) == (rates[0] == rates[1])


@every_algorithm
def test_nor_has_it_after_it_was_sent(name: str) -> None:
    assert fingerprint(sent(make_algorithm(name, gamma=0.1))) is None


@every_step
def test_a_replaced_step_has_one_that_arrives_with_it(step: Any) -> None:
    algorithm = replaced(step)
    found = fingerprint(algorithm)
    assert found is not None
    assert len(found) == 64
    assert fingerprint(sent(algorithm)) == found
    assert fingerprint(sent(sent(algorithm))) == found


def test_fingerprints_tell_algorithms_apart() -> None:
    made = [fingerprint(replaced(step)) for step in STEPS.values()]
    made += [fingerprint(replaced(scaled(0.2))), fingerprint(replaced(own.Clipped(0.6)))]
    made += [fingerprint(make_algorithm(SIGNED, gamma=gamma)) for gamma in (0.1, 0.2)]
    made += [fingerprint(replace(fedavg(0.1), **change)) for change in ({"name": "mine"}, {"repeats": False})]
    made += [fingerprint(replace(fedavg(0.1), parameters={"gamma": 0.2, "eta": 1.0}))]
    assert None not in made
    assert len(set(made)) == len(made)


def test_a_fingerprint_follows_the_functions_that_a_function_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(replaced(sign_step))
    monkeypatch.setattr(own, "RATE", 0.06)
    number = fingerprint(replaced(sign_step))
    monkeypatch.undo()
    assert fingerprint(replaced(sign_step)) == before
    monkeypatch.setattr(own, "helper", lambda gradient: gradient)
    assert len({before, number, fingerprint(replaced(sign_step))}) == 3


def test_a_fingerprint_follows_what_is_used_of_ones_own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for text in ("def clip(x):\n    return x\n\nOTHER = 1\n", "def clip(x):\n    return 2 * x\n\nOTHER = 1\n"):
        for other in (text, text.replace("OTHER = 1", "OTHER = 2")):
            helpers = types.ModuleType("my_own_helpers")
            exec(other, vars(helpers))
            monkeypatch.setitem(sys.modules, "my_own_helpers", helpers)
            space: dict[str, Any] = {"__name__": "my_own_program", "my_own_helpers": helpers}
            exec("def step(local, gradient):\n    return {'x': local['x'] - my_own_helpers.clip(gradient)}", space)
            found.append(fingerprint(replaced(space["step"])))
    assert found[0] == found[1] != found[2] == found[3]


@pytest.mark.slow
def test_a_fingerprint_is_the_same_in_another_process_whatever_its_hashes() -> None:
    code = (
        "from tests.algorithms.own import STEPS, replaced; from fedgauge.algorithms import fingerprint;"
        "print(*(fingerprint(replaced(step)) for step in STEPS.values()))"
    )
    expected = [fingerprint(replaced(step)) for step in STEPS.values()]
    for seed in ("0", "1"):
        env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONHASHSEED": seed}
        found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=env).stdout
        assert found.decode().split() == expected


def _recursive(n: int) -> int:
    return n and _recursive(n - 1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (True, 1),
        ("1", 1),
        ((1, 2), [1, 2]),
        ([1, [2]], [[1], 2]),
        ({"a": 1}, {"a": 2}),
        ({1, 2}, {1, 3}),
        (np.zeros(2), np.zeros(3)),
        (np.zeros(2), np.zeros(2, np.float32)),
        (torch.zeros(2), torch.ones(2)),
        (np.float64(1), np.float32(1)),
        (torch.float32, torch.float64),
        (lambda x, y=1: x, lambda x, y=2: x),
        (lambda x: x.abs(), lambda x: x.sign()),
        (lambda x: (lambda y: y + 1)(x), lambda x: (lambda y: y + 2)(x)),
        (len, max),
        (_recursive, 0),
    ],
)
def test_digests_tell_values_apart_and_are_stable(one: Any, other: Any) -> None:
    assert digest(one) == digest(copy.deepcopy(one))
    assert digest(one) != digest(other)


def test_digests_do_not_depend_on_order_where_there_is_none_nor_on_sharing() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({"x", "y", "z"}) == digest({"z", "y", "x"})
    part = (1.5, "x")
    assert digest([part, part]) == digest([part, (float("1.5"), "x")])
    circle: list[Any] = [1]
    circle.append(circle)
    assert len(digest(circle)) == 64
