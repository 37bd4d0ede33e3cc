"""A small dense network whose gradients all workers exchange: a program for a PaddleJob of mode
Collective.

It needs only what the PaddleJob operator puts into the environment, on Paddle 2.6.2 or later, and
none of this project's code. The workers talk over gloo unless PADDLE_DISTRI_BACKEND names another.
The program makes its own seeded rows with a planted rule; worker 0 measures the model on rows that
nobody trained on and prints one JSON line.
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np

RANK = int(os.environ["PADDLE_TRAINER_ID"])
ENDPOINTS = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
HOST, PORT = ENDPOINTS[0].rsplit(":", 1)
# What Paddle's launcher would derive from the operator's variables; Paddle reads it when it is
# imported.
os.environ["PADDLE_CURRENT_ENDPOINT"] = ENDPOINTS[RANK]
os.environ["PADDLE_MASTER"] = f"{HOST}:{int(PORT) + 1}"
os.environ.setdefault("PADDLE_DISTRI_BACKEND", "gloo")

import paddle  # noqa: E402
import paddle.distributed as dist  # noqa: E402

WIDTH, STEPS, BATCH = 16, int(os.environ.get("STEPS", "100")), 64


def rows(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns features, and answers by a rule that is the same for every seed and that no linear
    model can learn.
    """
    weights = np.random.default_rng(7).normal(size=(2, WIDTH))
    features = np.random.default_rng(seed).normal(size=(count, WIDTH)).astype("float32")
    left, right = weights @ features.T
    return features, (np.maximum(left, right) > 1.5).astype("int64")


def main() -> None:
    """Runs one worker from start to finish."""
    dist.init_parallel_env()
    paddle.seed(1)
    network = paddle.nn.Sequential(
        paddle.nn.Linear(WIDTH, 64), paddle.nn.ReLU(), paddle.nn.Linear(64, 2)
    )
    parallel = paddle.DataParallel(network)
    optimizer = paddle.optimizer.Adam(0.01, parameters=parallel.parameters())
    losses = []
    for step in range(STEPS):
        features, answers = rows(1000 + 10_000 * RANK + step, BATCH)
        loss = paddle.nn.functional.cross_entropy(
            parallel(paddle.to_tensor(features)), paddle.to_tensor(answers)
        )
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    if RANK == 0:
        features, answers = rows(1, 1000)
        guesses = network(paddle.to_tensor(features)).numpy().argmax(axis=1)
        share = float(answers.mean())
        result = {
            "accuracy": round(float((guesses == answers).mean()), 3),
            "baseline": round(max(share, 1 - share), 3),
            "first_loss": losses[0],
            "last_loss": losses[-1],
        }
        print(json.dumps(result), flush=True)
    dist.barrier()
    sys.stdout.flush()
    # Exits here instead of returning: the process group's threads outlive Python's clean-up.
    os._exit(0)


if __name__ == "__main__":
    main()
