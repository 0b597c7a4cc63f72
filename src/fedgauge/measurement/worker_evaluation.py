"""How well a global model does on each worker's own examples: an average hides the workers that it serves badly."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedgauge.base.errors import InputError
from fedgauge.base.progress import reported
from fedgauge.base.threads import undisturbed
from fedgauge.base.types import ProgressOption
from fedgauge.federation.identity import digest_of
from fedgauge.federation.protocols import Federation, HasLosses
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.measurement.values import WorkerEvaluation
from fedgauge.simulation.runs.checkpoints import Given, given_model


@undisturbed
def evaluate_workers(
    federation: Federation,
    model: Given,
    progress: ProgressOption = "auto",
) -> WorkerEvaluation:
    """Evaluate a model on each worker's own examples, one pass over all of them.

    Args:
        federation: the workers.
        model: a flat tensor, a module, its ``state_dict``, or the name of a file or run.
        progress: called after every worker. By default, a bar is shown on a terminal and in a notebook; None shows
            nothing.

    >>> from fedgauge import random_quadratics
    >>> federation = random_quadratics(4, 3)
    >>> evaluation = evaluate_workers(federation, federation.start(0))
    >>> len(evaluation.losses), evaluation.accuracies
    (4, None)
    """
    if not isinstance(federation, HasLosses):
        raise InputError(
            f"Losses by worker need the method losses, which a {type(federation).__name__} does not offer; add it."
        )
    flat = given_model(federation, model)
    losses, right = [], []
    labelled = isinstance(federation, SupervisedFederation) and _has_labels(federation, flat)
    with reported(progress) as tell:
        for worker in range(federation.num_workers):
            losses.append(float(federation.losses(flat.unsqueeze(0), np.array([worker]))[0]))
            if labelled:
                assert isinstance(federation, SupervisedFederation)
                right.append(_accuracy(federation, flat, worker))
            tell("workers", worker + 1, federation.num_workers)
    sizes: Any = federation.sizes(np.arange(federation.num_workers)) if hasattr(federation, "sizes") else None
    return WorkerEvaluation(
        tuple(losses),
        tuple(right) if labelled else None,
        None if sizes is None else tuple(sizes.tolist()),
        federation.digest,
        digest_of(flat),
    )


def _outputs(federation: SupervisedFederation, model: torch.Tensor, x: torch.Tensor) -> Any:
    with torch.no_grad():
        return federation.outputs(model, x)


def _has_labels(federation: SupervisedFederation, model: torch.Tensor) -> bool:
    """Whether targets are whole numbers, one per example, and outputs one number per class."""
    x, y = next(federation.blocks(0))
    if y.ndim != 1 or y.is_floating_point():
        return False
    outputs = _outputs(federation, model, x[:1])
    return isinstance(outputs, torch.Tensor) and outputs.ndim == 2 and outputs.shape[1] > 1


def _accuracy(federation: SupervisedFederation, model: torch.Tensor, worker: int) -> float:
    right = number = 0
    for x, y in federation.blocks(worker):
        right += int((_outputs(federation, model, x).argmax(dim=1) == y).sum())
        number += len(y)
    return right / number
