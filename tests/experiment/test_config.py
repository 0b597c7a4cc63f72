"""An experiment is read, checked, changed and written without loss."""

from __future__ import annotations

import dataclasses
import tomllib
from typing import Any

import pytest
import typer.main
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgauge.algorithms import ALGORITHMS, OPTIONS, parameters_of
from fedgauge.base.codec import toml
from fedgauge.base.errors import InputError
from fedgauge.cli import app
from fedgauge.data.schemes import SCHEMES
from fedgauge.data.schemes import parameters_of as scheme_parameters_of
from fedgauge.simulation.experiment.config import Experiment
from fedgauge.simulation.experiment.prepare import prepare
from fedgauge.simulation.experiment.sections import DataSection, keys

BASE: dict[str, Any] = {"source": "digits", "gamma": 0.1}

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
plain = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), names)
values = st.recursive(
    plain, lambda each: st.one_of(st.lists(each, max_size=3), st.dictionaries(names, each, max_size=3))
)


@settings(max_examples=40)
@given(st.dictionaries(names, values, max_size=4))
def test_what_is_written_as_toml_is_read_as_it_was(value: dict[str, Any]) -> None:
    assert tomllib.loads(f"value = {toml(value)}") == {"value": value}


optional = {
    "percent": st.floats(0, 100),
    "workers": st.integers(1, 100),
    "scale": st.sampled_from(["unit", "published", "measured"]),
    "fill": st.booleans(),
    "data": names,
    "model": st.sampled_from(["mlp", "cnn", "a.b:c"]),
    "model_option": st.dictionaries(names.filter(lambda name: name != "name"), plain, max_size=2),
    "eta": st.floats(0.1, 10),
    "local_steps": st.one_of(st.integers(1, 9), st.lists(st.integers(1, 9), min_size=1, max_size=3)),
    "weights": st.one_of(st.just("sizes"), st.lists(st.floats(0.5, 2), min_size=1, max_size=3)),
    "watch": st.booleans(),
    "goal": st.floats(0.1, 1).map("accuracy={!r}".format),
}


@settings(max_examples=40)
@given(st.fixed_dictionaries({}, optional=optional))
def test_an_experiment_is_its_toml_and_its_json(changes: dict[str, Any]) -> None:
    experiment = Experiment.of({**BASE, **changes})
    assert Experiment.from_toml(experiment.to_toml()) == experiment
    assert Experiment.from_json(experiment.to_json()) == experiment
    assert hash(Experiment.from_toml(experiment.to_toml())) == hash(experiment)
    assert Experiment.of(BASE).changed(changes) == experiment
    assert experiment.changed(dict.fromkeys(changes)) == Experiment.of(BASE)


def test_what_has_a_default_goes_back_to_it_by_none() -> None:
    asked = Experiment.of({**BASE, "rounds": 3, "local_steps": 7, "algorithm": "fedprox", "proximal": 0.1})
    assert asked.changed({"rounds": None, "local_steps": None}).run == Experiment.of(BASE).run
    assert asked.changed({"algorithm": None, "proximal": None, "rounds": 100, "local_steps": 10}) == Experiment.of(BASE)
    without = asked.changed({"gamma": None})
    assert without.lacks_rate
    with pytest.raises(InputError, match=r"fedprox needs gamma, .* as in gamma=0\.1"):
        prepare(without)


def test_every_key_is_an_option_of_the_commands_that_take_an_experiment() -> None:
    commands: Any = typer.main.get_command(app)
    for command in (commands.commands["simulate"], commands.commands["runs"].commands["sweep"]):
        taken = {parameter.name for parameter in command.params}
        assert {key.option for key in keys()} <= taken


def test_no_parameter_of_an_algorithm_or_a_scheme_is_left_out() -> None:
    taken = {key.name for key in keys() if key.section == "algorithm"}
    own = {parameter for name in ALGORITHMS for parameter in parameters_of(name)}
    assert taken == {"name", "options", *OPTIONS} | own
    fields = {item.name for item in dataclasses.fields(DataSection)}
    assert fields >= {parameter for name in SCHEMES for parameter in scheme_parameters_of(name)}


WRONG: dict[str, tuple[str, ...]] = {
    "[run]\nround = 3": ("[run]", "'round'", "did you mean rounds?"),
    "[data]\nprecent = 50": ("[data]", "'precent'", "did you mean percent?"),
    "[run]\ngamma = 0.1": ("[run]", "'gamma'", "belongs in [algorithm]"),
    "gamma = 0.1": ("'gamma'", "belongs in [algorithm]"),
    "[dta]\n": ("'dta'", "did you mean data?"),
    "data = 3": ("data must be a section", "3"),
    "[data]\npercent = 'half'": ("data.percent", "a number", "'half'"),
    "[data]\nworkers = 2.5": ("data.workers", "whole number", "2.5"),
    "[data]\nworkers = true": ("data.workers", "whole number", "True"),
    "[data]\nfill = 1": ("data.fill", "true or false", "1"),
    "[data]\nscale = 'publshed'": ("data.scale", "did you mean published?"),
    "[run]\nsampling = 'all'": ("run.sampling", "without-replacement", "'all'"),
    "[run]\nweights = 'size'": ("run.weights", "did you mean sizes?"),
    "[run]\nweights = ['a']": ("run.weights", "a number", "'a'"),
    "[run]\nlocal_steps = '5'": ("run.local_steps", "whole number", "'5'"),
    "[run]\nrounds = 0": ("rounds", "at least 1", "0"),
    "[run]\nbatch_size = 0": ("batch_size", "at least 1"),
    "[run]\nprocesses = -1": ("processes", "at least 1"),
    "[run]\ngoal = 'accuracy=95'": ("accuracy", "at most 1", "95"),
    "[algorithm]\nname = 'fedavgg'\ngamma = 0.1": ("fedavgg", "did you mean fedavg?"),
    "[algorithm]\ngamma = 0.1\nbeta = 0.9": ("no parameter beta",),
    "[algorithm]\ngamma = -1": ("gamma", "above 0"),
    "[data]\nname = 'f.json'\npercent = 50\n[algorithm]\ngamma = 1": ("f.json", "data.percent means nothing"),
    "[data]\nname = 'f.json'\n[model]\nname = 'mlp'\n[algorithm]\ngamma = 1": ("model.name means nothing",),
    "[data]\nname = 'f.json'\n[run]\nbatch_size = 9\n[algorithm]\ngamma = 1": ("run.batch_size means nothing",),
    "[run\n": ("not TOML", "line 1"),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_said(text: str) -> None:
    with pytest.raises(InputError) as caught:
        Experiment.from_toml(text)
    for word in WRONG[text]:
        assert word in str(caught.value)


def test_epochs_and_steps_replace_each_other() -> None:
    base = Experiment.of({"gamma": 0.1, "local_steps": 20})
    changed = base.changed({"local_epochs": 2})
    assert "local_steps" not in changed.to_json()["run"]
    assert Experiment.from_toml(changed.to_toml()) == changed
    assert changed.changed({"local_steps": 20}) == base
    with pytest.raises(InputError, match="leave one of them out"):
        base.changed({"local_epochs": 2, "local_steps": 5})


def test_a_schedule_ends_with_the_run_unless_it_says_otherwise() -> None:
    base = Experiment.of(
        {"gamma": 0.1, "rounds": 40, "gamma_schedule": "cosine,warmup=5", "eta_schedule": "linear,by=step"}
    )
    assert base.algorithm.parameters_in(40, 200.0) == {
        "gamma": 0.1,
        "gamma_schedule": "cosine,over=40,warmup=5",
        "eta_schedule": "linear,by=step,over=200",
    }
    assert Experiment.from_toml(base.to_toml()) == base
