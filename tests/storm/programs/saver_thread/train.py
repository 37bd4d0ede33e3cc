"""Checkpoints and the final model are written by threads while the training goes on."""

import argparse
import os
import threading
import time
import traceback

import numpy as np

STEPS, EVERY = 42, 6


class Saver(threading.Thread):
    def __init__(self, path, arrays):
        super().__init__(daemon=True)
        self.path, self.arrays, self.done = path, arrays, False

    def run(self):
        try:
            time.sleep(0.05)  # A copy from the accelerator.
            with open(self.path + ".part", "wb") as file:
                np.savez(file, **self.arrays)
            os.replace(self.path + ".part", self.path)
            self.done = True
        except OSError:
            traceback.print_exc()


def newest():
    for step in range(STEPS, 0, -EVERY):
        path = f"output/model-{step}.npz"
        if os.path.exists(path):
            try:
                with np.load(path) as file:
                    return step, file["w"]
            except Exception as error:
                print("cannot load", path, error, flush=True)
    return 0, np.zeros(64)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--wait", action="store_true")
    wait = parser.parse_args().wait
    first, w = newest()
    truth, saver = np.random.default_rng(4).normal(0, 1, 64), None

    def settle():
        if wait and saver is not None:
            saver.join()
            if not saver.done:
                raise SystemExit(f"{saver.path} is not saved")

    for step in range(first + 1, STEPS + 1):
        x = np.random.default_rng(step).normal(0, 1, (200, 64))
        error = x @ (w - truth)
        w = w - 0.15 * x.T @ error / 200
        print(f"at step {step}: mse {(error**2).mean():.6f}", flush=True)
        if step % EVERY == 0:
            settle()
            saver = Saver(f"output/model-{step}.npz", {"w": w})
            saver.start()
        time.sleep(0.03)
    x = np.random.default_rng(0).normal(0, 1, (2000, 64))
    time.sleep(0.3)
    print(f"test mse {((x @ (w - truth)) ** 2).mean():.8f}", flush=True)
    settle()


main()
