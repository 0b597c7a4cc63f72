"""FedJAX: its ``federated_averaging``, compiled, clients one after another or on several devices at once.

Its own sampler chooses clients without replacement, and its own ``shuffle_repeat_batch`` gives exactly I batches, drawn
without replacement until the data is used up. With one process it uses its jit backend, with one thread or XLA's own
number of threads; with several it uses its pmap backend, with the processor split into as many XLA devices. A turn ends
when the model has been computed, not when JAX returns its future. jax is 0.5.3, because FedJAX 0.0.17 calls functions
that 0.6 removed.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from peers.workloads import BATCH, GAMMA, Contestant, Network, first_network


def main() -> None:
    """Run the check and the turns."""
    contestant = Contestant("fedjax", "jax")
    work = contestant.work
    # The pmap backend was written for arrays without the device axis, which JAX keeps unless told otherwise.
    os.environ["JAX_PMAP_NO_RANK_REDUCTION"] = "0"
    # XLA reads this once, when it is loaded.
    os.environ["XLA_FLAGS"] = (
        f"--xla_force_host_platform_device_count={contestant.processes}"
        f" --xla_cpu_multi_thread_eigen={'true' if contestant.threads > 1 else 'false'}"
    )
    import fedjax
    import jax
    import jax.numpy as jnp

    def losses(parameters: Any, batch: Any, _: Any) -> Any:
        hidden = jax.nn.relu(batch["x"] @ parameters["first"] + parameters["first_bias"])
        outputs = hidden @ parameters["second"] + parameters["second_bias"]
        return -jnp.take_along_axis(jax.nn.log_softmax(outputs), batch["y"][:, None], axis=1)[:, 0]

    x, y = contestant.data
    clients = fedjax.InMemoryFederatedData(
        {i: {"x": x[work.rows(i)], "y": y[work.rows(i)].astype(np.int32)} for i in range(work.num_workers)}
    )
    sampler = fedjax.client_samplers.UniformGetClientSampler(clients, work.participants, seed=0)
    with fedjax.for_each_client_backend("pmap" if contestant.processes > 1 else "jit"):
        algorithm = fedjax.algorithms.fed_avg.federated_averaging(
            fedjax.grad(losses),
            client_optimizer=fedjax.optimizers.sgd(GAMMA),
            server_optimizer=fedjax.optimizers.sgd(1.0),
            client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(
                batch_size=BATCH, num_epochs=None, num_steps=work.local_steps
            ),
        )
    first, first_bias, second, second_bias = map(jnp.asarray, first_network())
    state = algorithm.init({"first": first.T, "first_bias": first_bias, "second": second.T, "second_bias": second_bias})

    def run(rounds: int) -> None:
        nonlocal state
        for _ in range(rounds):
            state, _ = algorithm.apply(state, sampler.sample())
        jax.block_until_ready(state.params)

    def network() -> Network:
        values = {name: np.asarray(value) for name, value in state.params.items()}
        return values["first"].T, values["first_bias"], values["second"].T, values["second_bias"]

    contestant.serve(run, network)


if __name__ == "__main__":
    main()
