"""A standard Paddle program for parameter servers, which knows nothing of this project.

Start it with `fleetrun --server_num=1 --worker_num=1 train.py --output DIRECTORY` on one machine.
The same command line makes pservers and trainers; the trainers need gloo to sum their counts. With
`--hold FILE` they wait for that file after each epoch.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import paddle
from paddle.distributed import fleet

EPOCHS = 3
arguments = argparse.ArgumentParser()
arguments.add_argument("--output", type=Path, required=True)
arguments.add_argument("--hold", type=Path)
arguments = arguments.parse_args()

paddle.enable_static()
os.environ["PADDLE_WITH_GLOO"] = "1"
fleet.init(fleet.PaddleCloudRoleMaker())
numbers = paddle.static.data("numbers", [None, 2])
answer = paddle.static.data("answer", [None, 1])
loss = paddle.mean(paddle.square(paddle.static.nn.fc(numbers, 1) - answer))
strategy = fleet.DistributedStrategy()
strategy.a_sync = True
fleet.distributed_optimizer(paddle.optimizer.SGD(0.01), strategy).minimize(loss)

if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
else:
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    fleet.init_worker()
    random = np.random.default_rng(fleet.worker_index())
    for epoch in range(EPOCHS):
        steps = 20 + fleet.worker_index()
        for _ in range(steps):
            given = random.random((8, 2), dtype="float32")
            (found,) = executor.run(
                feed={"numbers": given, "answer": given.sum(1, keepdims=True)}, fetch_list=[loss]
            )
        together = fleet.util.all_reduce(np.array([steps], dtype="int64"))
        fleet.barrier_worker()
        if fleet.is_first_worker():
            said = json.dumps({"steps": together.tolist(), "loss": float(found)})
            (arguments.output / f"epoch-{epoch}.json").write_text(said)
        while arguments.hold is not None and not arguments.hold.exists():
            time.sleep(0.05)
        fleet.barrier_worker()
        print(f"epoch {epoch} of trainer {fleet.worker_index()}", flush=True)
    fleet.stop_worker()
