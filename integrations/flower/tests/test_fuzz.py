"""Answers drawn at random: each is read whole, or refused in a few words; a refused one has no influence at all."""

from __future__ import annotations

import copy
import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from hypothesis import given, settings
from hypothesis import strategies as st
from integrations.flower.tests.attacks import OTHER_TYPES, RAW, described, npy
from integrations.flower.tests.here import HereGrid
from integrations.flower.tests.measured_app import own_app
from integrations.flower.tests.task import read
from integrations.flower.tests.test_exchange import grid_of
from safetensors.torch import load, save

from fedgauge import Experiment
from fedgauge_flower import Gauge, run_on
from fedgauge_flower.answers import (
    LARGEST,
    Expected,
    Like,
    RefusedError,
    check_model,
    combined_names,
    read_greeting,
    read_measured,
    read_work,
)
from fedgauge_flower.mod import SEEN, VALUES

# -- answers -----------------------------------------------------------------------------------------------------------

scalars = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=9), st.binary(max_size=9), st.booleans()
)
values = st.one_of(
    scalars, *(st.lists(each, max_size=3) for each in (st.integers(0, 9), st.floats(), st.text(max_size=3)))
)
metrics = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(), st.lists(st.floats(), max_size=3))
dtypes = st.sampled_from(["'<f4'", "'<f8'", "'>f8'", "'<f2'", "'|u1'", "'|b1'", "'<c8'", "'|O'", "'<U3'", "'nonsense'"])
shapes = st.one_of(
    st.lists(st.integers(-3, 10**18), max_size=4).map(lambda axes: repr(tuple(axes))), st.text(max_size=9)
)
headers = st.builds(npy, st.builds(described, shapes, dtypes, st.sampled_from(["False", "True", "None"])), st.binary())
data = st.one_of(st.sampled_from(list(RAW.values())), st.binary(max_size=200), headers)


@st.composite
def changed_bytes(draw: Any, honest: bytes) -> bytes:
    """The honest bytes with a few of them changed, or cut."""
    spoiled = bytearray(honest)
    for _ in range(draw(st.integers(1, 3))):
        spoiled[draw(st.integers(0, min(len(spoiled), 600) - 1))] = draw(st.integers(0, 255))
    return bytes(spoiled[: draw(st.one_of(st.just(len(spoiled)), st.integers(0, len(spoiled))))])


@st.composite
def changed_array(draw: Any, honest: Array, flips: bool) -> Array:
    """Another array, or another description of the same bytes."""
    return Array(
        draw(st.sampled_from([honest.dtype, "float99", ""])),
        draw(st.one_of(st.just(tuple(honest.shape)), st.lists(st.integers(-9, 2**62), max_size=3).map(tuple))),
        draw(st.sampled_from([honest.stype] * 4 + ["pickle", ""])),
        draw(st.one_of(data, *([changed_bytes(honest.data)] if flips and honest.data else []))),
    )


@st.composite
def changed_tensors(draw: Any, honest: Array) -> Array:
    """Tensors of other types, shapes, names or numbers, packed as an honest node packs them."""
    tensors = load(honest.numpy().tobytes())
    name = draw(st.sampled_from(sorted(tensors)))
    tensor = tensors.pop(name)
    how = draw(st.sampled_from(["missing", "type", "shape", "numbers", "name"]))
    if how == "type":
        tensors[name] = tensor.to(draw(st.sampled_from([*OTHER_TYPES.values(), torch.float32])))
    elif how == "shape":
        shape = draw(st.lists(st.integers(0, 5), max_size=3))
        tensors[name] = torch.zeros(shape, dtype=tensor.dtype)
    elif how == "numbers":
        number = draw(st.sampled_from([math.nan, math.inf, -math.inf]))
        tensors[name] = tensor.clone().index_fill_(0, torch.tensor([0]), number)
    elif how == "name":
        tensors[draw(st.text(max_size=5))] = tensor
    return Array(np.frombuffer(save(tensors), dtype=np.uint8))


@st.composite
def changed(draw: Any, honest: RecordDict, flips: bool = True) -> RecordDict:
    """An answer that differs from an honest one in up to three places.

    Without ``flips``, its model is never another one of finite numbers: a node may lie within what is finite, and no
    check of its answer can notice that.
    """
    content = copy.deepcopy(honest)
    for _ in range(draw(st.integers(1, 3))):
        if not content:
            break
        name = draw(st.sampled_from(sorted(content)))
        record = content[name]
        how = draw(st.sampled_from(["item"] * 8 + ["no record", "another kind", "one more"]))
        if how == "no record":
            del content[name]
        elif how == "another kind":
            content[name] = draw(st.sampled_from([ArrayRecord(), ConfigRecord({"a": 1}), MetricRecord({"a": 1.0})]))
        elif how == "one more":
            content[draw(st.text(min_size=1, max_size=4))] = ArrayRecord({"a": Array(np.zeros(2))})
        elif record:
            key = draw(st.sampled_from(sorted(record)))
            if draw(st.integers(0, 3)) == 0:
                del record[key]
            elif isinstance(record, ArrayRecord):
                packed = key == "safetensors" and record[key] == honest[name][key]
                others = [changed_tensors(record[key])] if packed else []
                record[key] = draw(st.one_of(changed_array(record[key], flips), *others))
            elif isinstance(record, MetricRecord):
                record[key] = draw(metrics)
            else:
                record[key] = draw(values)
    return content


def _check(mistake: RefusedError) -> None:
    """Check that a reason fits on a few lines of the terminal."""
    assert 0 < len(str(mistake)) < 1000
    assert str(mistake).isprintable()


# -- reading -----------------------------------------------------------------------------------------------------------

_GRADIENT, _NUMBERS = "evaluate.0.gradient", ("evaluate.0.loss", "evaluate.0.noise2")
_TENSORS = {_GRADIENT: torch.linspace(-1, 1, 5, dtype=torch.float64), "local_phase.0.message.change": torch.ones(5)}
_ECHO: dict[str, Any] = {"asked": "a.1", "round": 2, "worker": 1}


def _work() -> RecordDict:
    packed = ArrayRecord({"safetensors": Array(np.frombuffer(save(_TENSORS), dtype=np.uint8))})
    said = ConfigRecord({**_ECHO, _NUMBERS[0]: 0.5, _NUMBERS[1]: 0.1})
    return RecordDict({"fedgauge.arrays": packed, "fedgauge.said": said})


def _greeting() -> RecordDict:
    said: dict[str, Any] = {"method": "hello", "worker": 1, "examples": 9, "dim": 5, "form": "abc", "digest": "def"}
    return RecordDict({"fedgauge.arrays": ArrayRecord(), "fedgauge.said": ConfigRecord(said)})


_MODEL = {"a": Array(np.ones((2, 2), dtype=np.float32)), "b": Array(np.ones(1, dtype=np.float32))}


def _measured() -> RecordDict:
    said: dict[str, Any] = {"round": 2, "asked": "a.1", "worker": 0, "loss": 0.5, "noise2": 0.1, "keys": ["a", "b"]}
    seen = {name: Array(np.linspace(0, 1, 5).astype(np.float32)) for name in ("at_global", "gradient", "look")}
    return RecordDict(
        {
            VALUES: ConfigRecord({**said, "squares": 1.0, "steepest": 2.0}),
            SEEN: ArrayRecord(seen),
            "arrays": ArrayRecord(_MODEL),
            "metrics": MetricRecord({"num-examples": 9}),
        }
    )


@settings(max_examples=400, deadline=None)
@given(changed(_work()))
def test_work_is_read_or_refused(content: RecordDict) -> None:
    expected = Expected(
        _ECHO,
        {name: -math.inf if name.endswith("loss") else 0.0 for name in _NUMBERS},
        {name: Like.of(tensor) for name, tensor in _TENSORS.items()},
    )
    try:
        found = read_work(content, expected)
    except RefusedError as mistake:
        _check(mistake)
        return
    assert set(found.numbers) == set(_NUMBERS)
    assert {name: Like.of(tensor) for name, tensor in found.tensors.items()} == expected.tensors
    scalars = torch.tensor([*found.numbers.values()], dtype=torch.float64)
    numbers = torch.cat([scalars, *map(torch.Tensor.double, found.tensors.values())])
    assert bool((numbers.abs() <= LARGEST).all()) == (found.not_finite == "")


@settings(max_examples=200, deadline=None)
@given(changed(_greeting()))
def test_a_greeting_is_read_or_refused(content: RecordDict) -> None:
    try:
        found = read_greeting(content)
    except RefusedError as mistake:
        _check(mistake)
        return
    assert found.worker >= 0
    assert min(found.examples, found.dim) >= 1
    assert all(isinstance(text, str) and text for text in (found.form, found.digest))


@settings(max_examples=400, deadline=None)
@given(changed(_measured()))
def test_what_a_gauge_gets_is_read_or_refused(content: RecordDict) -> None:
    model = ArrayRecord(_MODEL)
    try:
        said = read_measured(content, (VALUES, SEEN), {"round": 2, "asked": "a.1"}, model, trained=True)
        del content[VALUES], content[SEEN]
        arrays = check_model(content, model, {"a", "b"})
        combined_names(content, "num-examples")
    except RefusedError as mistake:
        _check(mistake)
        return
    assert said.worker >= -1
    size = sum(arrays[key].numpy().size for key in said.keys)
    for tensor in (said.at_global, said.gradient, *([] if said.look is None else [said.look])):
        assert tensor is not None
        assert tensor.shape == (size,)
        assert tensor.isfinite().all()
    assert all(np.isfinite(array.numpy()).all() for array in arrays.values())
    assert all(arrays[key].numpy().dtype.kind == "f" for key in ("a", "b"))
    assert all(abs(number) <= LARGEST for number in (said.loss, said.noise2 or 0.0, said.squares, said.steepest))
    assert min(said.noise2 or 0.0, said.squares, said.steepest) >= 0


# -- whole runs --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one_refused(experiment: Experiment, shards: Path) -> Callable[[Callable[[RecordDict], None]], Any]:
    """Runs two rounds in which worker 1's answer in round 1 is changed."""

    def run(change: Callable[[RecordDict], None], out: Path | None = None) -> Any:
        grid = grid_of(shards)

        def spoil(worker: int, message: Message, reply: Message) -> Message:
            if worker == 1 and message.content.config_records["fedgauge.said"].get("round") == 1:
                change(reply.content)
            return reply

        grid.spoil = spoil
        return run_on(grid, experiment.changed({"rounds": 2}), read(shards / "test.npz"), out=out)

    return run


@settings(max_examples=12, deadline=None)
@given(random=st.data())
def test_a_refused_answer_has_no_influence(one_refused: Any, random: Any) -> None:
    reference = _without(one_refused)
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "run"

        def change(content: RecordDict) -> None:
            spoiled = random.draw(changed(content, flips=False))
            for name in list(content):
                del content[name]
            content.update(spoiled)

        trace = one_refused(change, out)
        lines = (out / "events.jsonl").read_text().splitlines() if (out / "events.jsonl").exists() else []
    events = [json.loads(line) for line in lines]
    assert all((event["what"], event["worker"], event["round"]) == ("refused", 1, 1) for event in events)
    if events:
        assert trace.rounds == reference.rounds
        assert np.array_equal(trace.model, reference.model)
        assert trace.status == "finished"


_REFERENCE: list[Any] = []


def _without(one_refused: Any) -> Any:
    """The run in which that answer is refused for being empty."""
    if not _REFERENCE:
        _REFERENCE.append(one_refused(lambda content: content.pop("fedgauge.said")))
    return _REFERENCE[0]


@settings(max_examples=12, deadline=None)
@given(random=st.data())
def test_a_strategy_goes_on_whatever_a_node_answers(shards: Path, random: Any) -> None:
    grid = HereGrid([own_app(shards)] * 3)
    first = ArrayRecord(read(shards / "test.npz").federation()._made(3).state_dict())

    def spoil(worker: int, message: Message, reply: Message) -> Message:
        # In both rounds and in the last exchange.
        if worker == 1:
            spoiled = random.draw(changed(reply.content, flips=False))
            for name in list(reply.content):
                del reply.content[name]
            reply.content.update(spoiled)
        return reply

    grid.spoil = spoil
    gauge = Gauge(FedAvg(fraction_evaluate=0.0))
    result = gauge.start(grid, first, num_rounds=2, timeout=10)
    assert result.arrays is not None
    assert all(np.isfinite(array.numpy()).all() for array in result.arrays.values())
    assert all(event["node"] == "101" and event["what"] == "refused" for event in gauge.events)
    assert [record.round for record in gauge.rounds] == [0, 1, 2]
    assert all(np.isfinite(record.loss) for record in gauge.rounds)
