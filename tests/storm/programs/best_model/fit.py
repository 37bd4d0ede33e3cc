"""Keeps the model of the epoch with the lowest validation loss in output/best.npz."""

import os
import sys
import time
import uuid

import numpy as np

EPOCHS = 36
FORGETS = "--best-from-now" in sys.argv[1:]


def write(name, **arrays):
    draft = f"output/.{uuid.uuid4().hex}"
    with open(draft, "wb") as file:
        np.savez(file, **arrays)
        os.fsync(file.fileno())
    os.replace(draft, f"output/{name}.npz")


def last():
    """The newer of two files that are written in turn."""
    states = []
    for name in ("even", "odd"):
        try:
            with np.load(f"output/{name}.npz") as file:
                states.append(dict(file))
        except FileNotFoundError:
            pass
        except Exception as error:
            print(f"{name}: {error}", flush=True)
    return max(states, key=lambda state: int(state["epoch"]), default=None)


rng = np.random.default_rng(21)
x, truth = rng.normal(0, 1, (60, 50)), rng.normal(0, 0.3, 50)
y = x @ truth + rng.normal(0, 1.5, 60)
valid = rng.normal(0, 1, (500, 50))
state = last() or {"epoch": 0, "w": np.zeros(50), "best": np.inf}
w, best = state["w"], float(state["best"])
if FORGETS:
    best = float("inf")
for epoch in range(int(state["epoch"]) + 1, EPOCHS + 1):
    # Overfits: the validation loss falls, and then rises again.
    for _ in range(4):
        w = w - 0.05 * x.T @ (x @ w - y) / 60
    loss = float(((valid @ (w - truth)) ** 2).mean())
    print(f"{time.strftime('%H:%M:%S')} epoch {epoch:02d} of {EPOCHS} val {loss:.6f}", flush=True)
    if loss < best:
        best = loss
        write("best", w=w, saved_at=time.time())
    if epoch % 3 == 0:
        write("odd" if epoch % 2 else "even", epoch=epoch, w=w, best=best)
    time.sleep(0.04)
