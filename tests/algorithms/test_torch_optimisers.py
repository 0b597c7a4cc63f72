"""Torch's optimisers on workers against plain loops, on the same batches; what they cannot do is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.algorithms.test_optimisers import GAMMA, ROUNDS, SEED, STEPS, assert_equal, network, quadratics, run
from torch import nn

import fedgauge as fg
from fedgauge.algorithms import Schedule, fingerprint
from fedgauge.base.errors import InputError
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.federation.flat import load_flat
from fedgauge.simulation.experiment.prepare import execute
from fedgauge.simulation.options import StopAt

pytestmark = pytest.mark.usefixtures("one_thread")

Parameters = list[tuple[str, nn.Parameter]]
Make = Callable[[Parameters], list[torch.optim.Optimizer]]
VECTORS = {"vectors": {"optimiser": "torch.optim.AdamW", "weight_decay": 0.0, "rate": 0.5}}


class Signs(torch.optim.Optimizer):
    """An optimiser of a user's own: steps by the sign of an average, whose number is kept as a plain number."""

    def __init__(self, params: Any, lr: float, keep: float = 0.5) -> None:
        super().__init__(params, {"lr": lr})
        self.keep = keep

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["steps"] = state.get("steps", 0) + 1
                state["mean"] = self.keep * state.get("mean", torch.zeros_like(p)) + p.grad
                p.data = p.data - group["lr"] * state["mean"].sign() / state["steps"] ** 0.5


class Counting(torch.optim.SGD):
    """An optimiser that remembers something outside its state."""

    steps = 0

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        for group in self.param_groups:
            group["lr"] = GAMMA / self.steps
        return super().step(closure)


class Random(torch.optim.SGD):
    """An optimiser that draws random numbers."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                p.grad += torch.randn_like(p)
        return super().step(closure)


def loop(
    make: Make, state: str = "kept", clip: float | None = None, factor: Callable[[int, int], float] = lambda r, k: 1.0
) -> torch.Tensor:
    """What a researcher would write: a module and its optimisers per worker, averaged after every round."""
    federation, _ = network()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 6, generator=generator, dtype=torch.float64)  # the data of network()
    y = torch.randint(3, (60,), generator=generator)
    world = federation.start(SEED).clone()
    modules = [copy.deepcopy(federation.module) for _ in range(3)]
    optimisers = [make(list(module.named_parameters())) for module in modules]
    rates = [[group["lr"] for each in own for group in each.param_groups] for own in optimisers]
    streams = Streams(SEED, Purpose.NOISE)
    for r in range(ROUNDS):
        for i, module in enumerate(modules):
            draws = federation.draws(streams, r, np.array([i]), np.array([0]), STEPS)
            load_flat(module, world)
            for k in range(STEPS):
                groups = [group for each in optimisers[i] for group in each.param_groups]
                for group, rate in zip(groups, rates[i], strict=True):
                    group["lr"] = rate * factor(r, k)
                module.zero_grad()
                nn.functional.cross_entropy(module(x[draws[k][0]]), y[draws[k][0]]).backward()  # type: ignore[no-untyped-call]
                if clip is not None:
                    nn.utils.clip_grad_norm_(module.parameters(), clip)
                for each in optimisers[i]:
                    each.step()
        world = torch.stack([nn.utils.parameters_to_vector(module.parameters()).detach() for module in modules]).mean(0)
        if state == "reset":
            optimisers = [make(list(module.named_parameters())) for module in modules]
        if state == "averaged":
            _average([list(module.parameters()) for module in modules], optimisers)
    return world


def _average(parameters: list[list[nn.Parameter]], optimisers: list[list[torch.optim.Optimizer]]) -> None:
    for place in range(len(parameters[0])):
        held = [
            next(each.state[own[place]] for each in mine if own[place] in each.state)
            for own, mine in zip(parameters, optimisers, strict=True)
        ]
        for key, value in held[0].items():
            if isinstance(value, torch.Tensor):
                mean = torch.stack([each[key] for each in held]).mean(dim=0)
                for each in held:
                    each[key] = mean.clone()


def of(kind: Any, **options: Any) -> Make:
    return lambda named: [kind([p for _, p in named], lr=GAMMA, **options)]


def muon(named: Parameters) -> list[torch.optim.Optimizer]:
    matrices, vectors = [[p for _, p in named if (p.ndim == 2) == big] for big in (True, False)]
    return [
        torch.optim.Muon(matrices, lr=GAMMA, momentum=0.9),
        torch.optim.AdamW(vectors, lr=GAMMA / 2, weight_decay=0.0),
    ]


CASES: dict[str, tuple[dict[str, Any], Make]] = {
    "Adam": ({"optimiser": torch.optim.Adam, "betas": (0.8, 0.9)}, of(torch.optim.Adam, betas=(0.8, 0.9))),
    "NAdam": ({"optimiser": "torch.optim.NAdam"}, of(torch.optim.NAdam)),
    "RAdam": ({"optimiser": torch.optim.RAdam}, of(torch.optim.RAdam)),
    "Adafactor": ({"optimiser": torch.optim.Adafactor}, of(torch.optim.Adafactor)),
    "RMSprop": ({"optimiser": torch.optim.RMSprop, "momentum": 0.5}, of(torch.optim.RMSprop, momentum=0.5)),
    "Rprop": ({"optimiser": torch.optim.Rprop}, of(torch.optim.Rprop)),
    "Adagrad": ({"optimiser": torch.optim.Adagrad}, of(torch.optim.Adagrad)),
    "Adadelta": ({"optimiser": torch.optim.Adadelta}, of(torch.optim.Adadelta)),
    "ASGD": ({"optimiser": torch.optim.ASGD}, of(torch.optim.ASGD)),
    "Muon": ({"optimiser": torch.optim.Muon, "momentum": 0.9, "optimiser_groups": VECTORS}, muon),
    "a user's own": ({"optimiser": Signs, "keep": 0.8}, of(Signs, keep=0.8)),
}


@pytest.mark.parametrize("state", ["reset", "kept", "averaged"])
@pytest.mark.parametrize("case", CASES)
def test_fifty_steps_are_those_of_torch(case: str, state: str) -> None:
    options, make = CASES[case]
    federation, _ = network()
    found = run(federation, fg.with_optimiser(fg.fedavg(GAMMA), optimiser_state=state, **options))
    expected = loop(make, state)
    if (case, state) == ("ASGD", "averaged"):  # its rates are float32 numbers, which are averaged in float64 here
        np.testing.assert_allclose(found, expected.numpy(), rtol=0, atol=1e-8)
    else:
        assert_equal(found, expected)


HANDWRITTEN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sgd": ({"optimiser": "sgd", "weight_decay": 0.1}, {"optimiser": torch.optim.SGD, "weight_decay": 0.1}),
    "momentum": (
        {"optimiser": "sgd", "momentum": 0.9, "nesterov": True},
        {"optimiser": torch.optim.SGD, "momentum": 0.9, "nesterov": True},
    ),
    "adamw": ({"optimiser": "adamw", "weight_decay": 0.2}, {"optimiser": torch.optim.AdamW, "weight_decay": 0.2}),
}


@pytest.mark.parametrize("problem", [quadratics, network])
@pytest.mark.parametrize("case", HANDWRITTEN)
def test_the_hand_written_optimisers_agree_with_torchs(problem: Any, case: str) -> None:
    federation, _ = problem()
    fast, slow = (run(federation, fg.with_optimiser(fg.fedavg(GAMMA), **options)) for options in HANDWRITTEN[case])
    assert_equal(slow, torch.from_numpy(fast))
    assert fg.with_optimiser(fg.fedavg(GAMMA), "sgd").sgd_rate == GAMMA
    assert fg.with_optimiser(fg.fedavg(GAMMA), torch.optim.SGD).sgd_rate is None


@pytest.mark.parametrize("by", ["round", "step"])
def test_schedules_and_clipping_are_as_with_the_others(by: str) -> None:
    schedule = Schedule("cosine", by=by, over=ROUNDS if by == "round" else ROUNDS * STEPS, warmup=2)
    federation, _ = network()
    made = fg.with_optimiser(
        fg.fedavg(GAMMA), torch.optim.Muon, momentum=0.9, optimiser_groups=VECTORS, clip=0.5, optimiser_state="kept"
    )
    expected = loop(muon, clip=0.5, factor=lambda r, k: schedule.at(r if by == "round" else r * STEPS + k))
    assert_equal(run(federation, fg.with_schedules(made, str(schedule))), expected)
    by_name = fg.make_algorithm("fedavg", **{**made.parameters, "gamma_schedule": str(schedule)})
    assert_equal(run(federation, by_name), expected)


class Net(nn.Module):
    """A table of embeddings, a norm and a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.norm, self.head = nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.token(x)))  # type: ignore[no-any-return]


def test_groups_are_parameter_groups() -> None:
    x = torch.arange(40) % 5
    loss = nn.functional.cross_entropy
    federation = fg.federate(Net, loss, [(x, (x + 1) % 5)], batch_size=40)
    groups: dict[str, dict[str, Any]] = {
        "vectors": {"weight_decay": 0.0},
        "embeddings": {"weight_decay": 0.0, "lr": 0.3},
        "head.*": {"rate": 2},
    }
    made = fg.with_optimiser(fg.fedavg(0.1), torch.optim.AdamW, weight_decay=0.5, optimiser_groups=groups)
    found = fg.simulate(federation, made, local_steps=6, rounds=1, compute=fg.Compute(1), seed=1).model
    module = Net()
    load_flat(module, federation.start(1))
    sets = [
        {"params": [module.norm.weight, module.norm.bias, module.head.bias], "weight_decay": 0.0},
        {"params": [module.token.weight], "weight_decay": 0.0, "lr": 0.3},
        {"params": [module.head.weight], "lr": 0.2},
    ]
    optimiser = torch.optim.AdamW(sets, lr=0.1, weight_decay=0.5)
    for draw in federation.draws(Streams(1, Purpose.NOISE), 0, np.array([0]), np.array([0]), 6):
        optimiser.zero_grad()
        loss(module(x[draw[0]]), ((x + 1) % 5)[draw[0]]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    expected = nn.utils.parameters_to_vector(module.parameters()).detach()
    np.testing.assert_allclose(found, expected.numpy(), rtol=0, atol=1e-5)  # other orders of float32 sums
    one = fg.with_optimiser(fg.fedavg(0.1), torch.optim.AdamW, weight_decay=0.5)
    apart = fg.simulate(federation, one, local_steps=6, rounds=1, compute=fg.Compute(1), seed=1).model
    assert abs(apart - found).max() > 0.01


STATEFUL = ("Muon", "Adafactor", "a user's own")


class KilledError(Exception):
    """What ends a run at once, without a checkpoint."""


@pytest.mark.parametrize("state", ["reset", "kept", "averaged"])
@pytest.mark.parametrize("case", STATEFUL)
def test_the_bits_are_the_same_in_processes_in_chunks_and_after_a_kill(case: str, state: str, tmp_path: Path) -> None:
    federation, _ = network()
    algorithm = fg.with_optimiser(fg.fedavg(GAMMA), optimiser_state=state, **CASES[case][0])
    how: dict[str, Any] = {"algorithm": algorithm, "local_steps": 3, "rounds": 6, "seed": SEED}
    how["record"] = fg.Recording(every=1, watch=False)
    whole = fg.simulate(federation, compute=fg.Compute(1, chunk=3), **how)
    alone = fg.simulate(federation, compute=fg.Compute(1, chunk=1), **how)
    np.testing.assert_allclose(alone.model, whole.model, rtol=0, atol=1e-12)  # the order of the server's sum
    assert fg.simulate(federation, compute=fg.Compute(2, chunk=3), **how) == whole

    def kill(done: int, record: fg.Round | None) -> None:
        if done == 5:
            raise KilledError

    keep = fg.Keep(tmp_path, checkpoint_every=2)
    one = {**how, "compute": fg.Compute(1, chunk=3)}
    with pytest.raises(KilledError):
        fg.simulate(federation, keep=keep, **{**one, "record": fg.Recording(1, watch=False, observer=kill)})
    again = fg.Keep(tmp_path, resume=True, checkpoint_every=2)
    assert fg.simulate(federation, keep=again, stop=StopAt(round=5), **one).status == "stopped"
    assert fg.simulate(federation, keep=again, **one) == whole


def test_a_users_own_optimiser_is_part_of_the_fingerprint() -> None:
    assert fingerprint(fg.with_optimiser(fg.fedavg(GAMMA), torch.optim.Muon)) is None
    own = fingerprint(fg.with_optimiser(fg.fedavg(GAMMA), Signs))
    assert own is not None
    assert own == fingerprint(fg.with_optimiser(fg.fedavg(2 * GAMMA), f"{__name__}:Signs"))
    assert own != fingerprint(fg.with_optimiser(fg.fedavg(GAMMA), f"{__name__}:Other"))


class Other(Signs):
    """Another of the user's own."""


def test_it_is_chosen_by_text_in_an_experiment() -> None:
    text = """
[data]
name = "digits"

[algorithm]
gamma = 0.02
optimiser = "torch.optim.Muon"
optimiser_options = "momentum=0.9, nesterov=true"
optimiser_groups = "vectors: optimiser='torch.optim.AdamW', weight_decay=0.0, rate=0.1"
optimiser_state = "kept"
weight_decay = 0.05
gamma_schedule = "cosine"

[run]
rounds = 6
local_steps = 5
processes = 1
"""
    experiment = fg.Experiment.from_toml(text)
    assert fg.Experiment.from_toml(experiment.to_toml()) == experiment
    trace = execute(experiment)
    groups = {"vectors": {"optimiser": torch.optim.AdamW, "weight_decay": 0.0, "lr": 0.002}}
    made = fg.with_optimiser(
        fg.fedavg(1.0),
        torch.optim.Muon,
        lr=0.02,
        optimiser_groups=groups,
        optimiser_state="kept",
        momentum=0.9,
        nesterov=True,
        weight_decay=0.05,
    )
    setup = fg.prepare(experiment)
    algorithm = fg.with_schedules(made, "cosine,over=6")
    assert algorithm == setup.algorithm or algorithm.parameters == setup.algorithm.parameters
    again = fg.simulate(setup.federation, algorithm, local_steps=5, rounds=6, compute=setup.compute)
    np.testing.assert_array_equal(again.model, trace.model)
    assert trace.losses[-1] < 0.9 * trace.losses[0]


def closing(params: Iterable[Any], lr: float) -> torch.optim.Optimizer:
    raise RuntimeError("no such device")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "closure": ({"optimiser": torch.optim.LBFGS}, "needs a closure"),
    "sparse": ({"optimiser": torch.optim.SparseAdam}, "SparseAdam does not support dense gradients"),
    "no state": ({"optimiser": torch.optim.SGD, "optimiser_state": "averaged"}, "SGD with these options has none"),
    "unknown": ({"optimiser": "torch.optim.Mouon"}, "did you mean Muon"),
    "option": ({"optimiser": torch.optim.AdamW, "momentum": 0.9}, "unexpected keyword argument 'momentum'"),
    "option of a group": (
        {"optimiser": torch.optim.AdamW, "optimiser_groups": {"vectors": {"wieght_decay": 0.0}}},
        "In the group vectors: .*unexpected keyword argument 'wieght_decay'",
    ),
    "value": ({"optimiser": torch.optim.AdamW, "betas": (0.9, 2.0)}, "Invalid beta parameter at index 1"),
    "object": ({"optimiser": torch.optim.AdamW, "eps": torch.tensor(1.0)}, "must be a number, text or a list"),
    "local": ({"optimiser": torch.optim.SGD, "local_momentum": 0.9}, "is for the hand-written"),
    "text": ({"optimiser": "torch.optim.Adam", "optimiser_options": "betas=0.9 0.8"}, "must be written as in betas="),
    "code": ({"optimiser": "torch.optim.Adam", "optimiser_options": "eps=exit()"}, "must be written as in betas="),
    "groups": ({"optimiser": "torch.optim.Adam", "optimiser_groups": "vectors"}, "must be NAME: OPTIONS"),
    "rate": ({"optimiser": "torch.optim.Adam", "optimiser_groups": "vectors: rate=0"}, "rate must be"),
    "hand-written": ({"optimiser": "adamw", "optimiser_options": "eps=1"}, "not for the hand-written adamw"),
    "hand-written groups": ({"optimiser": "sgd", "optimiser_groups": "vectors: lr=1"}, "for the hand-written sgd"),
    "lr twice": ({"optimiser": "torch.optim.Adam", "optimiser_options": "lr=0.1"}, "is the algorithm's gamma"),
    "outside": ({"optimiser": Counting}, "remembers something outside its state"),
    "random": ({"optimiser": Random}, "draws random numbers"),
    "factory": ({"optimiser": closing}, "cannot be made: no such device"),
    "inner": ({"optimiser": lambda params, lr: None}, "at the top of a module"),
    "missing": ({"optimiser": f"{__name__}:Missing"}, "has no Missing"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_it_cannot_do_is_refused_in_a_sentence(case: str) -> None:
    options, said = REFUSED[case]
    with pytest.raises(InputError, match=said) as caught:
        fg.with_optimiser(fg.fedavg(GAMMA), **options)
    assert str(caught.value).endswith((".", "?"))
    assert "\n" not in str(caught.value)


def test_shapes_that_do_not_fit_are_refused_before_a_directory_is_made(tmp_path: Path) -> None:
    federation, _ = network()
    made = fg.with_optimiser(fg.fedavg(GAMMA), torch.optim.Muon)
    for given in (federation, quadratics()[0]):
        with pytest.raises(InputError, match=r"Muon only supports 2D parameters .*give these parameters another"):
            fg.simulate(given, made, local_steps=1, rounds=1, keep=tmp_path / "run")
    none = fg.with_optimiser(fg.fedavg(GAMMA), torch.optim.Adam, optimiser_groups={"norm*": {"weight_decay": 0.1}})
    with pytest.raises(InputError, match=r"The group 'norm\*' .*has no parameter; the model's are called 0.weight"):
        fg.simulate(federation, none, local_steps=1, rounds=1, keep=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="has to know the model's shapes"):
        made.init(federation.start(0)) or made.begin(federation.start(0), {}, {})


def test_others_that_have_steps_of_their_own_refuse_it() -> None:
    with pytest.raises(InputError, match="control variates"):
        fg.with_optimiser(fg.scaffold(0.1), torch.optim.Adam)
    with pytest.raises(InputError, match="local steps of its own"):
        fg.with_optimiser(fg.diloco(0.1), torch.optim.Adam)
    mine = fg.Algorithm("mine", {}, lambda local, gradient: local, fg.fedavg(0.1).update)
    with pytest.raises(InputError, match="lr replaces the rate gamma"):
        fg.with_optimiser(mine, torch.optim.Adam, lr=0.1)


@pytest.mark.parametrize("base", ["fedavgm", "fedprox", "slowmo", "fedadam"])
def test_servers_with_a_memory_and_corrections_take_it(base: str) -> None:
    federation, _ = network()
    made = {"fedprox": {"proximal": 0.3}}.get(base, {})
    fast = fg.make_algorithm(base, gamma=GAMMA, optimiser="adamw", optimiser_state="kept", **made)
    slow = fg.with_optimiser(fg.make_algorithm(base, gamma=GAMMA, **made), torch.optim.AdamW, optimiser_state="kept")
    assert_equal(run(federation, slow), torch.from_numpy(run(federation, fast)))


def test_torchs_own_random_numbers_are_left_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    run(network()[0], fg.with_optimiser(fg.fedavg(GAMMA), torch.optim.Adamax))
    assert torch.equal(torch.rand(3), expected)
