"""A line is fitted by all ranks together; each tenth step is saved."""

import sys
from pathlib import Path

import torch
from torch.distributed import destroy_process_group, get_rank, init_process_group
from torch.nn.parallel import DistributedDataParallel

init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer, start = torch.optim.Adam(model.parameters(), 0.05), 0
if "--resume" in sys.argv:
    saved = torch.load(sys.argv[sys.argv.index("--resume") + 1])
    model.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    start = saved["step"]
for step in range(start + 1, 201):
    random = torch.Generator().manual_seed(1000 * step + get_rank())
    x = torch.randn(32, 4, generator=random)
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.6f}", flush=True)
    if step % 10 == 0 and get_rank() == 0:
        state = {
            "model": model.module.state_dict(),
            "optimizer": optimizer.state_dict(),
            "step": step,
        }
        torch.save(state, "output/new")
        Path("output/new").replace(f"output/step-{step}.pt")
destroy_process_group()
