"""Predicts clicks with a wide and a deep part together, in plain Paddle: a program for a PaddleJob
of mode PS.

It needs only what the PaddleJob operator puts into the environment, on Paddle 2.6.2, and none of
this project's code. It makes its own seeded rows with a planted rule, as the guide's demo image
brings its own data. Every worker trains on different rows. At the end, worker 0 measures the model
on rows that nobody trained on, prints one JSON line, and stops the parameter servers, which never
end on their own.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

import numpy as np
import paddle
from paddle.distributed import fleet
from paddle.distributed.ps.utils.public import get_the_one_recv_context

WIDE, SLOTS, IDS = 8, 4, 500
BATCH, STEPS = 64, int(os.environ.get("STEPS", "150"))


def rows(seed: int, count: int) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Returns dense features, the ids in each slot, and clicks by a rule over both that is the same
    for every seed.
    """
    rule = np.random.default_rng(7)
    weights, tastes = rule.normal(size=WIDE), rule.normal(size=(SLOTS, IDS))
    generator = np.random.default_rng(seed)
    dense = generator.normal(size=(count, WIDE)).astype("float32")
    ids = [generator.integers(0, IDS, size=count) for _ in range(SLOTS)]
    score = dense @ weights + sum(tastes[slot][ids[slot]] for slot in range(SLOTS))
    return dense, ids, (score > 0).astype("float32").reshape(-1, 1)


def network() -> tuple[
    list[paddle.static.Variable], paddle.static.Variable, paddle.static.Variable
]:
    """Returns inputs, loss and prediction."""
    dense = paddle.static.data("dense", [None, WIDE])
    slots = [paddle.static.data(f"slot{i}", [None, 1], "int64", lod_level=1) for i in range(SLOTS)]
    click = paddle.static.data("click", [None, 1])
    embedded = [
        paddle.static.nn.sparse_embedding(
            slot, [IDS, 8], param_attr=paddle.ParamAttr(name=f"table{i}")
        )
        for i, slot in enumerate(slots)
    ]
    deep = paddle.static.nn.fc(paddle.concat([dense, *embedded], axis=1), 32, activation="relu")
    logit = paddle.static.nn.fc(dense, 1) + paddle.static.nn.fc(deep, 1)
    loss = paddle.mean(paddle.nn.functional.binary_cross_entropy_with_logits(logit, click))
    return [dense, *slots, click], loss, paddle.nn.functional.sigmoid(logit)


def feed(dense: np.ndarray, ids: list[np.ndarray], clicks: np.ndarray) -> dict[str, object]:
    """Returns one batch in the form that the executor takes."""
    one_each = [[1] * len(clicks)]
    slots = {
        f"slot{i}": paddle.base.create_lod_tensor(part.reshape(-1, 1), one_each, paddle.CPUPlace())
        for i, part in enumerate(ids)
    }
    return {"dense": dense, "click": clicks, **slots}


def meet(rank: int, endpoints: list[str]) -> None:
    """Returns when every worker has arrived: worker 0 listens on its own endpoint, which the
    operator reserved for it.
    """
    host, port = endpoints[0].rsplit(":", 1)
    if rank == 0:
        with socket.create_server((host, int(port))) as server:
            others = [server.accept()[0] for _ in endpoints[1:]]
            for other in others:
                other.close()
        return
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=5) as other:
                other.settimeout(None)
                other.recv(1)
                return
        except OSError:
            time.sleep(0.2)


def train(
    rank: int, endpoints: list[str], loss: paddle.static.Variable, predicted: paddle.static.Variable
) -> None:
    """Runs one worker from start to finish."""
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    fleet.init_worker()
    handle = fleet.fleet._runtime_handle
    received = get_the_one_recv_context(handle.context, split_dense_table=False)

    def pull() -> None:
        handle._pull_all_dense([paddle.static.global_scope()], handle._send_ctx, received)

    program = paddle.static.default_main_program()
    losses = []
    for step in range(STEPS):
        pull()
        batch = feed(*rows(1000 + 10_000 * rank + step, BATCH))
        losses.append(float(executor.run(program, feed=batch, fetch_list=[loss])[0]))
    handle._worker.client_flush()
    meet(rank, endpoints)
    if rank == 0:
        pull()
        dense, ids, clicks = rows(1, 1000)
        guesses = executor.run(program, feed=feed(dense, ids, clicks), fetch_list=[predicted])[0]
        accuracy = float(((guesses > 0.5) == (clicks > 0.5)).mean())
        share = float(clicks.mean())
        result = {
            "accuracy": round(accuracy, 3),
            "baseline": round(max(share, 1 - share), 3),
            "first_loss": losses[0],
            "last_loss": losses[-1],
        }
        print(json.dumps(result), flush=True)
        handle._worker.stop_server()


def main() -> None:
    """Runs a parameter server or a worker, as TRAINING_ROLE says."""
    paddle.enable_static()
    paddle.seed(1)
    fleet.init(is_collective=False)
    _, loss, predicted = network()
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    strategy.sparse_table_configs = {
        f"table{i}": {f"table_parameters.table{i}.shard_num": 8} for i in range(SLOTS)
    }
    fleet.distributed_optimizer(paddle.optimizer.Adam(0.01), strategy).minimize(loss)
    if os.environ["TRAINING_ROLE"] == "PSERVER":
        fleet.init_server()
        fleet.run_server()
    else:
        train(
            int(os.environ["PADDLE_TRAINER_ID"]),
            os.environ["PADDLE_TRAINER_ENDPOINTS"].split(","),
            loss,
            predicted,
        )
    # Exits here instead of returning: Paddle's threads outlive Python's clean-up, and have been
    # seen to crash in it.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
