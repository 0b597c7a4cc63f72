"""fedgauge: ``simulate`` with its defaults and two processes, recording nothing."""

from __future__ import annotations

from contextlib import suppress

import torch
from torch.nn import functional

import fedgauge
from fedgauge.federation.supervised import SupervisedFederation
from fedgauge.values import Observer
from peers.networks import make_network, values_of
from peers.workloads import BATCH, GAMMA, Contestant, NoMoreTurns, Pauses

ENDLESS = 10**9
"""More rounds than all turns together have; the last turn ends the program."""


def main() -> None:
    """Run the check and the turns."""
    contestant = Contestant("fedgauge", "torch")
    work = contestant.work
    x, y = map(torch.from_numpy, contestant.data)
    shards = [range(work.samples * worker, work.samples * (worker + 1)) for worker in range(work.num_workers)]
    federation = SupervisedFederation(make_network(), functional.cross_entropy, x, y, shards, batch_size=BATCH)
    participation = fedgauge.Participation()
    if work.participants < work.num_workers:
        participation = fedgauge.Participation("without-replacement", work.participants)

    def simulate(rounds: int, observer: Observer | None = None) -> fedgauge.Trace:
        return fedgauge.simulate(
            federation,
            fedgauge.fedavg(GAMMA),
            local_steps=work.local_steps,
            rounds=rounds,
            participation=participation,
            record=fedgauge.Recording(every=rounds + 1, observer=observer),
            compute=fedgauge.Compute(processes=contestant.processes),
        )

    last = torch.from_numpy(simulate(work.check_rounds).model)
    contestant.ready(values_of(federation.unflatten(last).values()))
    pauses = Pauses(contestant, warm_up=work.rounds)
    with suppress(NoMoreTurns):
        simulate(ENDLESS, lambda *_: pauses.round_is_over())


if __name__ == "__main__":
    main()
