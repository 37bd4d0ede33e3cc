"""Half precision with a dynamic loss scale: it doubles after ten good steps, and halves at inf."""

import argparse
import os
import pickle
import time
from pathlib import Path

import numpy as np

CHECKPOINTS = Path("output")


def restore():
    for path in sorted(CHECKPOINTS.glob("step-*.pkl"), reverse=True):
        try:
            return pickle.loads(path.read_bytes())
        except (pickle.UnpicklingError, EOFError) as error:
            print(f"{path} is cut: {error}", flush=True)
    return {"step": 0, "w": np.zeros(40, "float32")}


def keep(state):
    draft = CHECKPOINTS / ".draft"
    draft.write_bytes(pickle.dumps(state))
    draft.rename(CHECKPOINTS / f"step-{state['step']:03d}.pkl")
    for old in sorted(CHECKPOINTS.glob("step-*.pkl"))[:-2]:
        old.unlink()


parser = argparse.ArgumentParser()
parser.add_argument("--fresh-scale", action="store_true")
fresh = parser.parse_args().fresh_scale
state = restore()
scale, good = state.get("scale", 2.0**20), state.get("good", 0)
truth = np.random.default_rng(3).normal(0, 2, 40).astype("float32")
for step in range(state["step"] + 1, 61):
    began = time.time()
    rng = np.random.default_rng(step)
    x = rng.normal(0, 1, (512, 40)).astype("float32")
    error = x @ state["w"] - x @ truth
    with np.errstate(over="ignore"):
        gradient = (x.T @ error / 512 * scale).astype("float16")
    if np.isfinite(gradient).all():
        state["w"] = state["w"] - 0.1 * gradient.astype("float32") / scale
        good += 1
        if good % 10 == 0:
            scale *= 2
    else:
        scale, good = scale / 2, 0
    time.sleep(0.03)
    speed = 512 / (time.time() - began)
    print(f"step {step} loss {(error**2).mean():.6f} throughput {speed:.1f}", flush=True)
    state["step"] = step
    if step % 5 == 0:
        keep(state if fresh else state | {"scale": scale, "good": good})
error = np.abs(state["w"] - truth).max()
print(f"final error {error:.8f}", flush=True)
where = os.uname().nodename
Path("output/summary.txt").write_text(f"finished at {time.ctime()} on {where}\nerror {error}\n")
