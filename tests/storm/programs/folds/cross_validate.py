#!/usr/bin/env python
"""Cross-validation: every worker trains the folds that are its own, and saves after each epoch.

The workers do not talk to each other. The last line is printed by the first, when the others'
results are there.
"""

import json
import os
import time
from pathlib import Path

import numpy as np

OUTPUT = Path(os.environ.get("OUTPUT", "output"))
EPOCHS, FOLDS = 20, 4


def dataset():
    rng = np.random.default_rng(2)
    x = rng.normal(0, 1, (6000, 60))
    y = (np.sin(x[:, 0] * 2) + x[:, 1] * x[:, 2] + rng.normal(0, 0.3, 6000) > 0).astype(float)
    return x, y


def forward(x, w):
    h = np.tanh(x @ w["a"])
    return h, 1 / (1 + np.exp(-h @ w["b"]))


def save(path, w, epoch):
    draft = path.with_suffix(".draft")
    with draft.open("wb") as file:
        np.savez(file, epoch=epoch, **w)
    draft.replace(path)


def load(path):
    try:
        with np.load(path) as saved:
            return int(saved["epoch"]), {"a": saved["a"], "b": saved["b"]}
    except FileNotFoundError:
        return 0, None
    except Exception as error:
        print(f"{path} is not readable ({error}): this fold starts again", flush=True)
        return 0, None


def train_fold(fold, x, y):
    test = np.arange(len(x)) % FOLDS == fold
    path = OUTPUT / f"fold-{fold}.npz"
    done, w = load(path)
    if w is None:
        rng = np.random.default_rng([fold, 0])
        w = {"a": rng.normal(0, 0.15, (60, 300)), "b": rng.normal(0, 0.1, 300)}
    train_x, train_y = x[~test], y[~test]
    for epoch in range(done, EPOCHS):
        order = np.random.default_rng([fold, epoch, 1]).permutation(len(train_x))
        rate = 0.8 * 0.9**epoch
        for rows in np.array_split(order, 60):
            h, p = forward(train_x[rows], w)
            d = (p - train_y[rows]) / len(rows)
            back = np.outer(d, w["b"]) * (1 - h**2)
            w = {"a": w["a"] - rate * train_x[rows].T @ back, "b": w["b"] - rate * h.T @ d}
        p = np.clip(forward(x[test], w)[1], 1e-7, 1 - 1e-7)
        loss = -(y[test] * np.log(p) + (1 - y[test]) * np.log(1 - p)).mean()
        save(path, w, epoch + 1)
        print(f"fold {fold} epoch {epoch + 1}/{EPOCHS} val_loss={loss:.6f}", flush=True)
    p = forward(x[test], w)[1]
    return float(((p > 0.5) == y[test]).mean())


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    x, y = dataset()
    for fold in range(rank, FOLDS, world):
        accuracy = train_fold(fold, x, y)
        result = OUTPUT / f"result-{fold}.json"
        draft = result.with_suffix(".tmp")
        draft.write_text(json.dumps({"fold": fold, "accuracy": accuracy}))
        draft.replace(result)
    if rank == 0:
        results = [OUTPUT / f"result-{fold}.json" for fold in range(FOLDS)]
        deadline = time.monotonic() + 300
        while not all(result.exists() for result in results):
            if time.monotonic() > deadline:
                raise SystemExit("the other workers' results are missing")
            time.sleep(0.2)
        scores = [json.loads(result.read_text())["accuracy"] for result in results]
        print(f"cross-validated accuracy: {np.mean(scores):.6f} +- {np.std(scores):.6f}")


if __name__ == "__main__":
    main()
