from __future__ import annotations

import copy
import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.federation.networks import chained, chains, convolutional, convolutions, data, federation, mlp, ragged
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from fedgauge.base.errors import InputError
from fedgauge.base.randomness import Purpose, Streams
from fedgauge.federation.factory import federate
from fedgauge.federation.kernels.base import squared_error
from fedgauge.federation.supervised import SupervisedFederation

STREAMS = Streams(0, Purpose.NOISE)
pytestmark = pytest.mark.usefixtures("one_thread")


def draws(of: SupervisedFederation, workers: Any, steps: int) -> Any:
    return of.draws(STREAMS, 0, workers, np.zeros_like(workers), steps)


def textbook(of: SupervisedFederation, worker: int, batches: Any, gamma: float) -> torch.Tensor:
    """One worker's local steps with torch.optim.SGD on a module of its own."""
    module = copy.deepcopy(of.module)
    optimiser = torch.optim.SGD(module.parameters(), lr=gamma, weight_decay=of.l2)
    for batch in batches:
        optimiser.zero_grad()
        of.loss(module(of.inputs[batch[worker]]), of.targets[batch[worker]]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return of.flatten(module)


@pytest.mark.parametrize("path", ["dense", "plain", "convolutional", "normalised"])
@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_fifty_local_steps_are_those_of_the_textbook(path: str, l2: float) -> None:
    if path == "normalised":
        of = federation(convolutional(), shape=(2, 4, 4), l2=l2)
    elif path == "convolutional":
        of = federation(chained(), shape=(2, 4, 4), l2=l2, path=path)
    else:
        of = federation(path=path, l2=l2)
    workers = np.arange(5)
    batches = draws(of, workers, 50)
    found = of.local_sgd(of.start(0).expand(5, -1), workers, batches, 0.1)
    for worker in range(5):
        torch.testing.assert_close(found[worker], textbook(of, worker, batches, 0.1), rtol=1e-4, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(
    chain=chains(),
    loss=st.sampled_from([functional.cross_entropy, squared_error]),
    workers=st.integers(1, 4),
    values=st.booleans(),
)
def test_the_dense_path_agrees_with_the_plain_one_over_fifty_steps(
    chain: Any, loss: Any, workers: int, values: bool
) -> None:
    module, inputs, outputs = chain
    x, y = data(24, inputs, classes=outputs)
    if values and loss is squared_error:
        y = torch.randn(24, outputs, generator=torch.Generator().manual_seed(2))
    how = {"loss": loss, "x": x, "y": y, "shards": ragged(24, workers), "l2": 0.01}
    dense, plain = federation(module, path="dense", **how), federation(module, path="plain", **how)
    everyone = np.arange(workers)
    first = dense.start(0).expand(workers, -1)
    batches = draws(dense, everyone, 50)
    ends = [of.local_sgd(first, everyone, batches, 0.05) for of in (dense, plain)]
    torch.testing.assert_close(*ends, rtol=1e-3, atol=1e-4)
    for name in ("losses", "gradients"):
        torch.testing.assert_close(
            *(getattr(of, name)(ends[0], everyone) for of in (dense, plain)), rtol=1e-4, atol=1e-5
        )
    gradients = [of.stochastic_gradients(ends[0], everyone, batches[0]) for of in (dense, plain)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    module=convolutions(),
    loss=st.sampled_from([functional.cross_entropy, squared_error]),
    l2=st.sampled_from([0.0, 0.1]),
)
def test_written_out_convolutions_agree_with_the_plain_path_over_fifty_steps(
    module: nn.Module, loss: Any, l2: float
) -> None:
    # In float64, where the paths differ by rounding alone: a ReLU near zero would turn 1e-7 into another branch.
    how = {"loss": loss, "shape": (2, 9, 9), "dtype": torch.float64, "samples": 12, "workers": 2, "l2": l2}
    module = module.to(torch.float64)
    written, plain = federation(module, path="convolutional", **how), federation(module, path="plain", **how)
    batches = draws(written, np.arange(2), 50)
    # At 0.05 some of these diverge under squared error, on both paths alike, and nothing could be compared.
    ends = [of.local_sgd(of.start(0).expand(2, -1), np.arange(2), batches, 0.01) for of in (written, plain)]
    assert torch.isfinite(ends[1]).all()
    torch.testing.assert_close(*ends, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("path", ["dense", "plain"])
@pytest.mark.parametrize("equal", [True, False])
def test_exact_passes_are_autograd_over_the_whole_shard(
    path: str, equal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedgauge.federation.shards.BLOCK", 16 if not equal else 2048)
    monkeypatch.setattr("fedgauge.federation.kernels.dense._SAMPLES", 7)
    shards = [range(i, 60, 5) for i in range(5)] if equal else ragged(60, 5)
    of = federation(mlp(dtype=torch.float64), path=path, dtype=torch.float64, l2=0.3, shards=shards)
    x, y = data(60, 6, dtype=torch.float64)
    models = torch.randn(5, of.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    weights, workers = np.array([0.1, 0.1, 0.5, 0.2, 0.1]), np.arange(5)
    losses, gradients = of.evaluate(models, workers)
    torch.testing.assert_close(of.losses(models, workers), losses)
    torch.testing.assert_close(of.gradients(models, workers), gradients)

    def truth(worker: int, model: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        point = model.clone().requires_grad_()
        held = torch.tensor(list(shards[worker]))
        value = functional.cross_entropy(
            torch.func.functional_call(of.module, of.unflatten(point), (x[held],)), y[held]
        )
        value = value + 0.15 * point.square().sum()
        return value.detach(), torch.autograd.grad(value, point)[0]

    pool = [truth(i, models[0]) for i in range(5)]
    for worker in range(5):
        loss, gradient = truth(worker, models[worker])
        torch.testing.assert_close(losses[worker], loss)
        torch.testing.assert_close(gradients[worker], gradient)
    total, gradient = of.pooled(models[0], workers, weights)
    assert of.pooled_loss(models[0], workers, weights) == pytest.approx(total, rel=1e-12)
    assert total == pytest.approx(sum(w * float(value) for w, (value, _) in zip(weights, pool, strict=True)))
    torch.testing.assert_close(gradient, sum(w * slope for w, (_, slope) in zip(weights, pool, strict=True)))


@pytest.mark.parametrize("path", ["dense", "plain"])
@pytest.mark.parametrize("order", ["partition", "overlapping"])
def test_rows_together_are_those_alone_whoever_they_are(path: str, order: str) -> None:
    shards = np.arange(60).reshape(5, 12) if order == "partition" else np.arange(60).reshape(12, 5).T[:, ::2] // 2
    of = federation(mlp(dtype=torch.float64), path=path, dtype=torch.float64, shards=shards)
    models = torch.randn(3, of.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    for workers in ([1, 2, 3], [4, 0, 2], [3, 2, 1], [2, 2, 2]):
        losses, gradients = of.evaluate(models, np.array(workers))
        for row, worker in enumerate(workers):
            loss, gradient = of.evaluate(models[row : row + 1], np.array([worker]))
            torch.testing.assert_close(losses[row], loss[0])
            torch.testing.assert_close(gradients[row], gradient[0])


def test_the_mean_over_all_batches_is_exact() -> None:
    of = federation(mlp(dtype=torch.float64), dtype=torch.float64, workers=2, samples=10, batch_size=1, l2=0.1)
    model, (first, last) = of.start(0), (0, len(ragged(10, 2)[0]))
    every = [
        of.stochastic_gradients(model.expand(1, -1), np.array([0]), torch.tensor([[i]])) for i in range(first, last)
    ]
    torch.testing.assert_close(torch.cat(every).mean(dim=0), of.gradients(model.expand(1, -1), np.array([0]))[0])


def test_shards_as_two_arrays_may_overlap_and_mean_the_same() -> None:
    shards = [[3, 1, 2], [2, 2, 9, 8], [5]]
    listed = federation(shards=shards)
    packed = federation(shards=SimpleNamespace(sizes=[3, 4, 1], indices=[3, 1, 2, 2, 2, 9, 8, 5]))
    assert listed.digest == packed.digest
    x, y = data(60, 6)
    rows = listed.start(0).expand(3, -1)
    value = functional.cross_entropy(listed.module(x[[2, 2, 9, 8]]), y[[2, 2, 9, 8]])
    assert float(packed.losses(rows, np.arange(3))[1]) == pytest.approx(value.item(), rel=1e-6)
    for batch in draws(packed, np.arange(3), 20):
        assert all(set(numbers.tolist()) <= set(shard) for numbers, shard in zip(batch, shards, strict=True))


def test_a_partition_is_held_worker_by_worker() -> None:
    order = np.random.default_rng(0).permutation(60)
    listed = federation(shards=[order[:20], order[20:]])
    x, _ = data(60, 6)
    assert torch.equal(listed.inputs, x[order])
    assert torch.equal(federation(shards=[range(20), range(20, 60)]).inputs, x)


def test_the_path_is_chosen_and_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fedgauge")
    assert federation().path == "dense"
    assert federation(convolutional(), shape=(2, 4, 4)).path == "plain"
    assert federation(chained(), shape=(2, 4, 4)).path == "convolutional"
    assert federation(loss=lambda outputs, targets: functional.cross_entropy(outputs, targets)).path == "plain"
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "path dense",
        "path plain",
        "path convolutional",
        "path plain",
    ]


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(layer := nn.Linear(6, 6), nn.ReLU(), layer),
        nn.Sequential(nn.Linear(6, 3), nn.ReLU()),
        nn.Sequential(nn.Linear(6, 3), nn.Tanh(), nn.Linear(3, 3)),
    ],
    ids=["a layer used twice", "a ReLU at the end", "another activation"],
)
def test_what_only_looks_like_a_chain_is_not_computed_as_one(module: nn.Module) -> None:
    assert federation(module).path != "dense"
    with pytest.raises(InputError, match="path dense needs a chain"):
        federation(module, path="dense")


def test_frozen_statistics_make_a_function_and_stay_as_they_are() -> None:
    module = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).eval()
    of = federation(module)
    before = {name: buffer.clone() for name, buffer in of.module.named_buffers()}
    everyone = np.arange(5)
    rows = of.local_sgd(of.start(0).expand(5, -1), everyone, draws(of, everyone, 5), 0.1)
    of.evaluate(rows, everyone)
    assert all(torch.equal(buffer, before[name]) for name, buffer in of.module.named_buffers())


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        outputs: torch.Tensor = self.layer(x)
        return outputs


X, Y = data(60, 6)
PAIRS = [(X[:20], Y[:20]), (X[20:], Y[20:])]


def test_numpy_arrays_are_taken_and_their_fractions_get_the_models_number_type() -> None:
    array = X.double().numpy()
    array.flags.writeable = False
    found, expected = federation(x=array, y=Y.numpy().astype(np.int32)), federation()
    assert found.inputs.dtype == torch.float32
    assert found.digest == expected.digest
    assert torch.equal(found.inputs, X)


@pytest.mark.parametrize("convert", [lambda part: part, lambda part: part.numpy()])
def test_each_workers_own_data_make_the_same_federation(convert: Any) -> None:
    state = torch.get_rng_state()
    made = federate(mlp, functional.cross_entropy, [tuple(map(convert, pair)) for pair in PAIRS], batch_size=4, l2=0.1)
    assert torch.equal(torch.get_rng_state(), state)
    shards = [range(20), range(20, 60)]
    expected = SupervisedFederation(mlp, functional.cross_entropy, X, Y, shards, batch_size=4, l2=0.1)
    assert made.digest == expected.digest
    assert torch.equal(made.start(3), expected.start(3))


@pytest.mark.parametrize(
    ("shards", "says"),
    [
        ([], "but is empty"),
        (None, "not None"),
        (TensorDataset(X, Y), "one per worker, not a TensorDataset"),
        ([PAIRS[0], TensorDataset(X, Y)], "worker 1 has a TensorDataset"),
        ([PAIRS[0], (X[20:], Y[20:], Y)], "worker 1 has a tuple"),
        ([(X[:20].tolist(), Y[:20])], "The inputs of worker 0 must be a torch tensor or a numpy array .* not a list"),
        ([PAIRS[0], (X, Y[:20])], "Worker 1 has 60 inputs and 20 targets"),
        ([PAIRS[0], (X[:, :5], Y)], r"worker 0 has \(6,\) and worker 1 \(5,\)"),
    ],
)
def test_data_of_workers_that_do_not_fit_are_refused_in_one_sentence(shards: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as refused:
        federate(mlp, functional.cross_entropy, shards)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"module": nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3, track_running_stats=False))}, "no running stat"),
        ({"module": nn.Sequential(nn.Flatten(), nn.ReLU())}, "no parameters"),
        ({"module": Counts()}, "changes its buffer calls"),
        ({"loss": lambda o, t: functional.cross_entropy(o, t, reduction="none")}, "must be one number"),
        ({"loss": lambda o, t: (o @ t.float()).mean()}, "The loss does not take outputs"),
        ({"module": mlp(5)}, "does not take inputs of shape"),
        ({"module": mlp(classes=2)}, "does not fit labels 0 to 2"),
        ({"y": Y - 1}, "does not fit labels -1 to 1"),
        ({"x": X.clone().index_put_((torch.tensor(3),), torch.tensor(float("nan")))}, "hold NaN or infinity"),
        ({"x": X[:9]}, "of one length, not 9 and 60"),
        ({"x": X.tolist()}, "inputs must be a torch tensor or a numpy array .* not a list; convert it"),
        ({"x": TensorDataset(X, Y)}, "inputs must be .* not a TensorDataset"),
        ({"x": np.array(["a"] * 60)}, "inputs must be .* not an array of <U1"),
        ({"y": Y.tolist()}, "targets must be .* not a list"),
        ({"y": torch.tensor(1)}, "targets must have one entry per sample"),
        ({"module": "mlp"}, "model must be a torch module, or a function that makes one, not the text 'mlp'"),
        ({"module": lambda: "mlp"}, "model must be a torch module, or a function that makes one, not the text 'mlp'"),
        ({"loss": "cross_entropy"}, "loss must be a function .* not a str"),
        ({"shards": PAIRS}, "those of worker 0 are no list of whole numbers; to give each worker's own inputs"),
        ({"shards": [X[:, 0] > 0, X[:, 0] <= 0]}, "those of worker 0 are no list of whole numbers"),
        ({"shards": 5}, "shards must list the samples of each worker, not be of type int"),
        ({"shards": [[0], []]}, "at least one sample"),
        ({"shards": []}, "at least one sample"),
        ({"shards": [[0, 60]]}, "samples 0 to 59, not 0 to 60"),
        ({"shards": SimpleNamespace(sizes=[3], indices=[1, 2])}, "add up to 3, but 2"),
        ({"module": convolutional(), "shape": (2, 4, 4), "path": "dense"}, "path dense needs a chain"),
        ({"module": convolutional(), "shape": (2, 4, 4), "path": "convolutional"}, "path convolutional needs images"),
        ({"path": "dens"}, "did you mean dense"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"l2": -1.0}, "l2 must be"),
    ],
)
def test_what_is_no_federation_is_refused_in_one_sentence(how: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says) as refused:
        federation(**how)
    assert "\n" not in str(refused.value)


def unmasked(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy over the labels that are not 0: the mean over blocks would be another function."""
    return functional.cross_entropy(outputs, labels, ignore_index=0)


@pytest.mark.parametrize(("loss", "block"), [(functional.cross_entropy, 200), (unmasked, None)])
def test_blocks_are_small_only_where_they_change_no_objective(loss: Any, block: int | None) -> None:
    x, y = data(700, 6, dtype=torch.float64)
    y[150:400] = 0
    module = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    of = SupervisedFederation(module, loss, x, y, [range(700)])
    assert of.path == "plain"
    assert of._data.block == block
    with torch.no_grad():
        whole = float(loss(module(x), y))
    assert float(of.losses(of.start(0)[None], np.arange(1))[0]) == pytest.approx(whole, rel=1e-12)
