"""Logistic regression whose result is the moving average of its weights; an event file of its own.

The average is written once, at the end, and no line tells its value.
"""

import os
import struct
import sys
import time

import numpy as np

STEPS, DECAY = 45, 0.9
KEEP_AVERAGE = "--average-in-memory" not in sys.argv


class Events:
    """Records of (time, step, value), as TensorBoard writes them: a new file for each process."""

    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{os.uname().nodename}.{os.getpid()}.0"
        self.file = open(os.path.join(folder, name), "wb")

    def add(self, step, value):
        self.file.write(struct.pack("<ddf", time.time(), step, value))
        self.file.flush()


def write(path, **arrays):
    with open(path + ".tmp", "wb") as file:
        np.savez_compressed(file, **arrays)
    os.rename(path + ".tmp", path)


def read():
    for path in ("output/state.npz", "output/state.old.npz"):
        try:
            with np.load(path) as file:
                return dict(file)
        except FileNotFoundError:
            pass
        except Exception as error:
            print(path, "is damaged:", error, flush=True)
    return {"step": 0, "w": np.zeros(30)}


state = read()
w, average = state["w"], state.get("average", state["w"])
events = Events("output/runs")
labels = np.random.default_rng(5).normal(0, 1, 30)
for step in range(int(state["step"]), STEPS):
    rng = np.random.default_rng(1000 + step)
    x = rng.normal(0, 1, (400, 30))
    p = 1 / (1 + np.exp(-x @ w))
    y = x @ labels + rng.normal(0, 2, 400) > 0
    w = w - 0.5 * x.T @ (p - y) / 400
    average = DECAY * average + (1 - DECAY) * w
    loss = -np.log(np.where(y, p, 1 - p)).mean()
    events.add(step, loss)
    print(f"iter {step + 1} | nll {loss:.6f} | {time.strftime('%Y-%m-%dT%H:%M:%S')}", flush=True)
    if (step + 1) % 5 == 0:
        if os.path.exists("output/state.npz"):
            os.replace("output/state.npz", "output/state.old.npz")
        kept = {"average": average} if KEEP_AVERAGE else {}
        write("output/state.npz", step=step + 1, w=w, **kept)
    time.sleep(0.03)
write("output/model.npz", w=average)
