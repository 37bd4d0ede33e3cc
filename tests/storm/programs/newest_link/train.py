"""Users load output/newest, a link to the checkpoint of the last step; all checkpoints stay."""

import os
import sys
import time

import numpy as np

STEPS, EVERY = 44, 4
CAREFUL = "--link-once" not in sys.argv


class Store:
    link = "output/newest"

    def __init__(self):
        self.linked = False

    def save(self, step, w):
        name = f"step-{step:03d}.npy"
        with open(f"output/{name}.draft", "wb") as file:
            np.save(file, w)
        os.rename(file.name, f"output/{name}")
        if CAREFUL or self.linked:
            draft = f"{self.link}.draft"
            if os.path.lexists(draft):
                os.remove(draft)
            os.symlink(name, draft)
            os.replace(draft, self.link)
            return
        try:
            os.symlink(name, self.link)
            self.linked = True
        except FileExistsError:
            pass  # Somebody else has made it.

    def load(self):
        for step in range(STEPS, 0, -EVERY):
            path = f"output/step-{step:03d}.npy"
            if os.path.exists(path):
                try:
                    return step, np.load(path)
                except (ValueError, EOFError) as error:
                    print(f"{path}: {error}", flush=True)
        return 0, np.zeros((16, 16))


store = Store()
first, w = store.load()
print(f"from step {first}", flush=True)
for step in range(first + 1, STEPS + 1):
    x = np.random.default_rng(step).normal(0, 1, (300, 16))
    x = x * np.linspace(3, 0.2, 16)
    w = w + 0.02 * (x.T @ x / 300 @ (np.eye(16) + w) - (np.eye(16) + w) * np.trace(w @ w.T) / 40)
    print(f"step {step:3d} norm {np.linalg.norm(w):.6f}", flush=True)
    if step % EVERY == 0:
        store.save(step, w)
    time.sleep(0.03)
