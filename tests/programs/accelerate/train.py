"""Accelerate's own loop: its Accelerator prepares, saves and loads; each tenth step is saved."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

parser = argparse.ArgumentParser()
parser.add_argument("--resume_step", type=int, default=0)
start = parser.parse_args().resume_step
set_seed(0)
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), 0.05)
model, optimizer = accelerator.prepare(model, optimizer)
if start:
    accelerator.load_state(f"output/step-{start}", map_location="cpu")
for step in range(start + 1, 201):
    random = torch.Generator().manual_seed(1000 * step + accelerator.process_index)
    x = torch.randn(32, 4, generator=random)
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
    print(f"step {step} loss {loss.item():.6f}", flush=True)
    if step % 10 == 0:
        accelerator.save_state(f"output/step-{step}")
accelerator.end_training()
