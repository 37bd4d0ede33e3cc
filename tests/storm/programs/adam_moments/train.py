"""Adam on a small regression; the last three checkpoints stay, and output/train.log tells times."""

import argparse
import glob
import logging
import os
import time

import numpy as np

STEPS, EVERY, WIDTH = 48, 4, 60


def load():
    """The newest checkpoint that can be read, or nothing."""
    for path in sorted(glob.glob("output/ckpt-*.npz"), reverse=True):
        try:
            with np.load(path) as file:
                return dict(file)
        except Exception as error:
            logging.warning("%s: %s", os.path.abspath(path), error)
    return {"step": 0, "w": np.zeros(WIDTH)}


def save(step, state):
    path = f"output/ckpt-{step:04d}.npz"
    with open(f"{path}.{os.getpid()}", "wb") as file:
        np.savez(file, **state)
        file.flush()
        os.fsync(file.fileno())
    os.replace(file.name, path)
    for old in sorted(glob.glob("output/ckpt-*.npz"))[:-3]:
        os.remove(old)
    logging.info("saved %s in attempt of %s", os.path.abspath(path), os.uname().nodename)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights-only", action="store_true")
    options = parser.parse_args()
    form = "%(asctime)s.%(msecs)03d %(process)d %(levelname)s %(message)s"
    handlers = [logging.FileHandler("output/train.log"), logging.StreamHandler()]
    logging.basicConfig(level=logging.INFO, format=form, datefmt="%H:%M:%S", handlers=handlers)
    state = {"m": np.zeros(WIDTH), "v": np.zeros(WIDTH), **load()}
    step, truth = int(state["step"]), np.random.default_rng(1).normal(0, 1, WIDTH)
    w, m, v = state["w"], state["m"], state["v"]
    while step < STEPS:
        began = time.perf_counter()
        rng = np.random.default_rng([7, step])
        x = rng.normal(0, 1, (256, WIDTH))
        error = x @ w - x @ truth - rng.normal(0, 0.2, 256)
        gradient = x.T @ error / 256
        step += 1
        m, v = 0.9 * m + 0.1 * gradient, 0.99 * v + 0.01 * gradient**2
        w = w - 0.05 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.99**step)) + 1e-8)
        took = time.perf_counter() - began
        logging.info("step %d/%d loss %.6f in %.4f s", step, STEPS, (error**2).mean(), took)
        if step % EVERY == 0:
            moments = {} if options.weights_only else {"m": m, "v": v}
            save(step, {"step": step, "w": w, **moments})
        time.sleep(0.03)
    logging.info("distance to the truth %.7f", np.linalg.norm(w - truth))


if __name__ == "__main__":
    main()
