"""A small program of a user, which is type-checked against the installed package and can be run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

import fedgauge as fg


def exact_loss(num_workers: int, local_steps: int) -> float:
    """The expected loss of FedAvg after ten rounds on quadratics."""
    federation: fg.QuadraticFederation = fg.random_quadratics(num_workers, 5, hessian_spread=0.1, seed=0)
    exact = fg.expect(federation, fg.fedavg(gamma=0.05), local_steps=local_steps, rounds=10)
    return float(exact.loss[-1])


def losses_on_digits(directory: Path) -> npt.NDArray[np.float64]:
    """The losses of a run on digits, read back from its directory."""
    experiment = fg.Experiment.of({"source": "digits", "gamma": 0.1, "local_steps": 2, "rounds": 2})
    trace: fg.Trace = fg.execute(experiment, keep=directory)
    assert trace.status == "finished"
    return fg.read_trace(directory).losses


def bound_inputs() -> dict[str, float]:
    """The constants of a federation by symbol."""
    constants: fg.Constants = fg.random_quadratics(4, 3).constants()
    estimate: fg.Estimate = constants["L_h"]
    return {estimate.symbol: estimate.value}


if __name__ == "__main__":
    try:
        exact_loss(0, 1)
    except fg.InputError as mistake:
        print(mistake)
    print(exact_loss(4, 2), bound_inputs(), losses_on_digits(Path("run")))
