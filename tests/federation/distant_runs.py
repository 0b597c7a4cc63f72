"""What is computed on a device that is not the CPU, compared with the CPU; a program of its own (see ``distant``)."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.federation import distant
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

import fedgauge as fg
import fedgauge_planning as fp
from fedgauge.measurement.session import MeasureOptions

HERE = fg.Compute(processes=1)
X, Y = torch.linspace(-1, 1, 144).sin().reshape(24, 6), torch.arange(24) % 3
IMAGES = torch.linspace(-3, 3, 24 * 64).sin().reshape(24, 1, 8, 8)


def chain() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def images() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, 3))


def smooth() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 3))


def normalising() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


def made(model: Any, device: str, x: torch.Tensor = X, **how: Any) -> fg.SupervisedFederation:
    pairs = [(x[:10], Y[:10]), (x[10:], Y[10:])]
    return fg.federate(model, how.pop("loss", functional.cross_entropy), pairs, batch_size=4, device=device, **how)


KINDS: dict[str, Any] = {
    "one layer": lambda device: made(lambda: nn.Linear(6, 3), device),
    "dense": lambda device: made(chain, device),
    "convolutional": lambda device: made(images, device, IMAGES),
    "plain": lambda device: made(smooth, device),
    "dropout": lambda device: made(dropping, device),
    "averaged BatchNorm": lambda device: made(normalising, device, batch_norm="averaged"),
    "local BatchNorm": lambda device: made(normalising, device, batch_norm="local"),
    "augmented": lambda device: made(chain, device, augment=lambda x: x + 0.1 * torch.randn_like(x)),
    "class weights": lambda device: made(chain, device, loss=nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 3.0]))),
    "lazy": lambda device: fg.federate(
        chain, functional.cross_entropy, [Items(slice(10)), Items(slice(10, 24))], batch_size=4, device=device
    ),
}


def simulated(of: Any, name: str = "fedavg", **how: Any) -> Any:
    algorithm = fg.make_algorithm(name, gamma=0.05)
    trace = fg.simulate(of, algorithm, local_steps=3, rounds=3, compute=HERE, **how)
    return trace.losses.tolist(), trace.model.tolist(), [each.spread for each in trace.rounds]


def unequal(of: Any) -> Any:
    participation = fg.Participation("without-replacement", participants=1)
    trace = fg.simulate(of, fg.fedavg(0.05), local_steps=[2, 3], rounds=3, participation=participation, compute=HERE)
    return trace.losses.tolist()


def resumed(of: Any) -> Any:
    with tempfile.TemporaryDirectory() as place:
        keep = fg.Keep(Path(place) / "run", resume=True, checkpoint_every=1)
        simulated(of, "scaffold", stop=fg.StopAt(round=2), keep=keep)
        found = simulated(of, "scaffold", keep=keep)
        assert simulated(of, "scaffold", keep=keep)[:2] == found[:2]
        return found


def measured(of: Any) -> Any:
    """Measured at the first model; all of it with few parameters, as it takes many small operations."""
    readings = ["trajectory", "divergence", *(["noise", "sampled", "curvature"] if of.dim < 30 else [])]
    options = MeasureOptions(tuple(readings), rounds=1, seeds=1, tolerance=0.9)
    found = fg.measure(of, fg.fedavg(0.05), local_steps=2, options=options, compute=HERE, model=of.start(0))
    return [each.value for each in found.constants.values()]


def gauged(of: Any) -> Any:
    options = fg.GaugeOptions(steps=60, local_steps=(4,))
    return [each.value for each in fg.gauge(of, fg.fedavg(0.05), options=options, compute=HERE).efficiency]


def planned(of: Any) -> Any:
    found = fp.plan(
        of,
        fg.fedavg(0.1),
        goal=fp.Goal("loss", 1.15),
        cost=fg.Cost("given", fixed=1.0, step=0.1),
        over={"local_steps": [2], "gamma": [0.1]},
        options=fp.PlanOptions(seeds=1, jobs=1),
    )
    return [found.rounds, found.seconds]


CALLS: dict[str, Any] = {
    "simulate": simulated,
    "scaffold": lambda of: simulated(of, "scaffold"),
    "adam": lambda of: simulated(of, "fedadam"),
    "diloco": lambda of: simulated(of, "diloco"),
    "unequal steps": unequal,
    "resume": resumed,
    "measure": measured,
    "gauge": gauged,
    "evaluate": lambda of: fg.evaluate_workers(of, of.start(0)).losses,
    "plan": planned,
}
LONG = ("gauge", "plan")


class Items(Dataset[Any]):
    def __init__(self, part: slice) -> None:
        self.part = part

    def __len__(self) -> int:
        return len(X[self.part])

    def __getitem__(self, number: int) -> Any:
        return X[self.part][number], int(Y[self.part][number])


class Listening(logging.Handler):
    def __init__(self, into: list[str]) -> None:
        super().__init__()
        self.into = into

    def emit(self, record: logging.LogRecord) -> None:
        self.into.append(record.getMessage())


def numbers(found: Any) -> list[float]:
    if isinstance(found, list | tuple):
        return [each for part in found for each in numbers(part)]
    return [float("nan") if found is None else float(found)]


def attempt(call: Any, of: Any) -> Any:
    """What a call returns, or the sentence with which it refuses."""
    try:
        return call(of)
    except fg.InputError as error:
        return str(error)


def choices() -> None:
    """What is said and done about the choice of a device."""
    said: list[str] = []
    logging.getLogger("fedgauge").addHandler(Listening(said))
    of = made(chain, "auto")
    assert said == ["Computing on distant, as device is auto."], said
    assert of.inputs.device.type == distant.NAME
    assert of.processes == 1
    with tempfile.TemporaryDirectory() as place:
        simulated(of, keep=Path(place) / "run")
        assert json.loads((Path(place) / "run" / "federation.json").read_text())["device"] == "distant:0"
        # The same run goes on on the CPU, as the federation is the same.
        simulated(made(chain, "cpu"), keep=fg.Keep(Path(place) / "run", resume=True))
    with pytest.raises(fg.InputError, match=r"^processes must be 1 on distant, which several processes cannot share"):
        fg.simulate(of, fg.fedavg(0.05), local_steps=3, rounds=3, compute=fg.Compute(processes=2))


def processes() -> None:
    """Autograd on the CPU, in several processes beside an accelerator: they are not forked."""
    of = made(smooth, "cpu")
    assert of.processes == 1
    alone, shared = ([simulated(of)[:2]], [])
    for number in (1, 2):
        trace = fg.simulate(of, fg.fedavg(0.05), local_steps=3, rounds=3, compute=fg.Compute(processes=number))
        shared.append((trace.losses.tolist(), trace.model.tolist()))
    assert shared == 2 * alone


def main() -> int:
    failed, registered = 0, distant.register()
    torch.set_num_threads(1)
    choices()
    processes()
    for kind, make in KINDS.items():
        here, there = make("cpu"), make(distant.NAME)
        assert there.start(0).device.type == there.inputs.device.type == distant.NAME
        for name, call in CALLS.items():
            if name in LONG and kind != "one layer":
                continue
            began = time.perf_counter()
            try:
                found, expected = attempt(call, there), attempt(call, here)
                if isinstance(expected, str):
                    assert found == expected, (found, expected)
                else:
                    np.testing.assert_allclose(numbers(found), numbers(expected), rtol=1e-5, atol=1e-7)
            except Exception:
                failed += 1
                print(f"== {name} of {kind}")
                traceback.print_exc(limit=-4, file=sys.stdout)
            print(f"{time.perf_counter() - began:6.2f} s  {name} of {kind}", flush=True)
    del registered
    return failed


if __name__ == "__main__":
    sys.exit(main())
