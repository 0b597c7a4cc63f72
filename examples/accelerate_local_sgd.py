"""accelerate's LocalSGD with a live gauge that chooses the local steps.

ACCELERATE_USE_CPU=true torchrun --nproc-per-node 2 examples/accelerate_local_sgd.py
"""

import os

import torch
from accelerate import Accelerator
from accelerate.local_sgd import LocalSGD
from torch.nn.functional import cross_entropy

import fedgauge as fg

LOCAL_STEPS, STEPS, COST = 16, int(os.environ.get("STEPS", "4096")), 10

torch.set_num_threads(1)
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
digits = fg.load_dataset("digits")
inputs, labels = torch.tensor(digits.train_inputs).float().flatten(1) / 16, torch.tensor(digits.train_labels)
mine = torch.argsort(labels, stable=True).chunk(accelerator.num_processes)[accelerator.process_index]
model = torch.nn.Linear(inputs.shape[1], 10)
model, optimiser = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
batches = torch.Generator().manual_seed(accelerator.process_index)

gauge = fg.DistributedGauge(fg.LiveGauge(local_steps=LOCAL_STEPS, steps=STEPS, cost=COST))
with LocalSGD(accelerator=accelerator, model=model, local_sgd_steps=LOCAL_STEPS, enabled=True) as local_sgd:
    gauge.pace(local_sgd)
    taken = done = 0
    while done < STEPS:
        batch = mine[torch.randint(len(mine), (20,), generator=batches)]
        optimiser.zero_grad()
        accelerator.backward(cross_entropy(model(inputs[batch]), labels[batch]))
        optimiser.step()
        local_sgd.step()
        taken, done = taken + 1, done + 1
        if taken == gauge.local_steps:  # LocalSGD has just averaged
            with torch.no_grad():
                gauge.record(cross_entropy(model(inputs[mine]), labels[mine]).item())
            gauge.pace(local_sgd)
            taken = 0
accelerator.print(gauge.answer())
accelerator.print(f"Of those that it tried, the run stays with {gauge.local_steps} local steps.")
accelerator.wait_for_everyone()
accelerator.end_training()
