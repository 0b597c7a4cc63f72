"""Tokens, sequences, values and data of one's own through the front door: .npz files, TOML, functions and Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fedgauge as fg
from fedgauge.base.errors import InputError
from fedgauge.cli import main
from fedgauge.federation.supervised import SupervisedFederation

HERE = "tests.experiment.test_own_data"
DRAWN = np.random.default_rng(0)
TOKENS = DRAWN.integers(0, 7, size=(24, 5))
FEATURES = DRAWN.standard_normal((24, 6)).astype(np.float32)


def tagger(shape: Any, classes: int) -> nn.Module:
    """A class for each token; cross-entropy wants classes first."""
    assert shape == (5,)
    return nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, classes), _Classes())


class _Classes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2)


def regression(shape: Any, classes: int) -> fg.Model:
    return fg.Model("regression", lambda: nn.Linear(shape[0], classes), functional.mse_loss)


def several(shape: Any, classes: int) -> fg.Model:
    def right(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return ((outputs > 0) == (targets > 0.5)).float().mean()

    return fg.Model(
        "several",
        lambda: nn.Linear(shape[0], classes),
        functional.binary_cross_entropy_with_logits,
        accuracy=right,
    )


def made(tmp_path: Path, **arrays: Any) -> str:
    np.savez(tmp_path / "own.npz", **arrays)
    return str(tmp_path / "own.npz")


def run(source: str, **changes: Any) -> tuple[SupervisedFederation, fg.Trace]:
    how = {"gamma": 0.05, "rounds": 3, "local_steps": 2, "workers": 3, "processes": 1, **changes}
    experiment = fg.Experiment.of({"source": source, **how})
    # What is written is read again: the same run from TOML.
    setup = fg.prepare(fg.Experiment.from_toml(experiment.to_toml()))
    assert isinstance(setup.federation, SupervisedFederation)
    trace = fg.execute(experiment, setup=setup)
    assert trace.losses[-1] < trace.losses[0]
    return setup.federation, trace


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint16])
def test_whole_numbers_in_a_file_are_tokens(kind: Any, tmp_path: Path) -> None:
    federation, _ = run(
        made(tmp_path, x=TOKENS.astype(kind), y=np.roll(TOKENS, -1, axis=1)), model=f"{HERE}:tagger", gamma=1.0
    )
    assert federation.inputs.dtype == torch.int64
    assert federation.targets.shape == (24, 5)
    assert sorted(federation.inputs.flatten().tolist()) == sorted(TOKENS.flatten().tolist())


def test_bytes_are_tokens_if_that_is_said_and_never_scaled_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = made(tmp_path, x=TOKENS.astype(np.uint8), y=TOKENS)
    federation, _ = run(source, model=f"{HERE}:tagger", scale="none", gamma=1.0)
    assert federation.inputs.dtype == torch.int64
    assert int(federation.inputs.max()) == 6
    assert not caplog.messages
    with pytest.raises(InputError, match="does not take inputs"):
        run(source, model=f"{HERE}:tagger")
    assert any("divided by 255" in message and "scale='none'" in message for message in caplog.messages)


def test_tokens_are_not_scaled(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="are tokens and are not scaled"):
        run(made(tmp_path, x=TOKENS, y=TOKENS), model=f"{HERE}:tagger", scale="unit")


def test_fractions_are_values_and_whole_numbers_are_if_that_is_said(tmp_path: Path) -> None:
    federation, _ = run(made(tmp_path, x=FEATURES, y=FEATURES @ np.ones((6, 2))), model=f"{HERE}:regression")
    assert federation.targets.shape == (24, 2)
    source = made(tmp_path, x=FEATURES, y=np.arange(24)[:, None] % 3)
    federation, _ = run(source, model=f"{HERE}:regression", targets="values")
    assert federation.targets.dtype == torch.float32
    assert federation.dim == 7
    source = made(tmp_path, x=FEATURES, y=np.arange(24) % 3)
    with pytest.raises(InputError, match=r"outputs of shape \(4, 1\) and targets of shape \(4,\)"):
        run(source, model=f"{HERE}:regression", targets="values")


def test_several_labels_have_an_accuracy_of_their_own(tmp_path: Path) -> None:
    y = FEATURES[:, :3] > 0
    federation, trace = run(
        made(tmp_path, x_train=FEATURES, y_train=y, x_test=FEATURES[:9], y_test=y[:9]),
        model=f"{HERE}:several",
        gamma=1.0,
    )
    assert federation.targets.dtype == torch.float32
    with torch.no_grad():
        outputs = federation.outputs(torch.from_numpy(trace.model), torch.from_numpy(FEATURES[:9]))
    assert trace.accuracies[-1] == pytest.approx(float(((outputs > 0).numpy() == y[:9]).mean()))


def test_sequences_without_an_accuracy_of_their_own_have_none(tmp_path: Path) -> None:
    source = made(tmp_path, x_train=TOKENS, y_train=TOKENS, x_test=TOKENS, y_test=TOKENS)
    _, trace = run(source, model=f"{HERE}:tagger", gamma=1.0)
    assert np.isnan(trace.accuracies).all()
    with pytest.raises(InputError, match="one class per example"):
        run(source, model=f"{HERE}:tagger", goal="accuracy=0.5")


def test_data_without_classes_are_divided_at_random_or_by_ids(tmp_path: Path, capsys: Any) -> None:
    source = made(tmp_path, x=FEATURES, y=FEATURES[:, :2], document=np.arange(24) % 4)
    setup = fg.prepare(fg.Experiment.of({"source": source, "gamma": 0.1, "workers": 3, "model": f"{HERE}:regression"}))
    assert setup.partition is not None
    assert setup.partition.scheme == setup.experiment["data"]["scheme"] == "iid"
    by_document = {"source": source, "gamma": 0.1, "scheme": "id", "model": f"{HERE}:regression"}
    assert fg.prepare(fg.Experiment.of(by_document)).num_workers == 4
    with pytest.raises(InputError, match="no class per example to divide it by; choose the scheme iid"):
        fg.prepare(fg.Experiment.of({**by_document, "scheme": "dirichlet", "workers": 3}))
    assert main(["data", "partition", source, "--scheme", "iid", "--workers", "3"]) == 0
    assert "examples" in capsys.readouterr().out


# -- functions of one's own ----------------------------------------------------------------------------------------


def whole() -> fg.Dataset:
    return fg.Dataset("whole", TOKENS, TOKENS, TOKENS[:0], TOKENS[:0])


def from_torch() -> Any:
    both = torch.utils.data.TensorDataset(torch.from_numpy(TOKENS), torch.from_numpy(TOKENS))
    return both, both


def by_worker() -> fg.PerWorker:
    parts = (slice(0, 13), slice(13, 23), slice(23, 24))
    shards = [list(zip(torch.from_numpy(TOKENS[part]), torch.from_numpy(TOKENS[part]), strict=True)) for part in parts]
    return fg.PerWorker([lambda shard=shard: _Items(shard) for shard in shards], classes=7, test=(TOKENS, TOKENS))


class _Items:
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: int) -> Any:
        return self.items[number]


def wrong() -> str:
    return "data"


def failing() -> None:
    raise OSError("no such disk")


def test_a_function_gives_the_data_set(tmp_path: Path) -> None:
    how: dict[str, Any] = {"model": f"{HERE}:tagger", "gamma": 1.0}
    by_name = [run(f"{HERE}:{name}", **how)[1] for name in ("whole", "from_torch")]
    by_file = run(made(tmp_path, x=TOKENS, y=TOKENS), **how)[1]
    assert all(np.array_equal(trace.model, by_file.model) for trace in by_name)
    experiment = fg.Experiment.of(
        {"rounds": 3, "local_steps": 2, "workers": 3, "processes": 1, "model": f"{HERE}:tagger", "gamma": 1.0}
    )
    by_hand = fg.execute(experiment, data=whole(), keep=tmp_path / "run")
    assert np.array_equal(by_hand.model, by_file.model)
    assert 'name = "whole"' in (tmp_path / "run" / "experiment.toml").read_text()


def test_a_function_gives_each_worker_its_own_data(tmp_path: Path, capsys: Any) -> None:
    federation, trace = run(f"{HERE}:by_worker", model=f"{HERE}:tagger", workers=None, gamma=1.0, weights="sizes")
    assert federation.is_lazy
    assert federation.sizes(np.arange(3)).tolist() == [13, 10, 1]
    assert trace.settings["participation"]["weights"] == pytest.approx([13 / 24, 10 / 24, 1 / 24])
    command = f"simulate {HERE}:by_worker --model {HERE}:tagger --gamma 1 --rounds 2 --processes 1 --out"
    assert main([*command.split(), str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "3 workers" in shown
    assert "paper partition" not in shown
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "report.html")]) == 0


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("wrong", {}, "must return a fedgauge Dataset.*not a str"),
        ("failing", {}, r"cannot be made \(OSError: no such disk\)"),
        ("nothing", {}, "has no nothing"),
        ("by_worker", {"workers": 3}, "data.workers means nothing; leave it out"),
        ("by_worker", {"scale": "unit"}, "data.scale means nothing"),
    ],
)
def test_what_a_function_cannot_give_is_refused(name: str, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says) as refused:
        run(f"{HERE}:{name}", model=f"{HERE}:tagger", **{"workers": None, **changes})
    assert "\n" not in str(refused.value)
