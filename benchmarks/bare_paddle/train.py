"""quick_start's training as one writes it by hand for three processes: Paddle alone, nothing of
this project.

The same network, batch and optimizer, a dense pull each step (without it the trainers would not
learn from each other), a save each pass. No discovery, no check of the data, no recovery: file
barriers, and hope.
"""

import json
import os
import random
import sys
import time
import zlib  # noqa: F401  Before Paddle, or it crashes when gzip is needed.
from pathlib import Path

import numpy as np
import paddle
from paddle import static
from paddle.distributed import fleet
from paddle.distributed.ps.utils.public import get_the_one_recv_context

SHARD, VOCABULARY, OUT, PASSES = (
    Path(sys.argv[1]),
    Path(sys.argv[2]),
    Path(sys.argv[3]),
    int(sys.argv[4]),
)
BATCH = 32
TRAINER, TRAINERS = (
    int(os.environ.get("PADDLE_TRAINER_ID", "-1")),
    int(os.environ["PADDLE_TRAINERS_NUM"]),
)

vocabulary = json.loads(VOCABULARY.read_text())
words = {word: number for number, word in enumerate(vocabulary["words"], start=1)}
labels = {label: number for number, label in enumerate(vocabulary["labels"])}


def barrier(name):
    (OUT / f"{name}.{TRAINER}").touch()
    while sum((OUT / f"{name}.{other}").exists() for other in range(TRAINERS)) < TRAINERS:
        time.sleep(0.002)


paddle.enable_static()
fleet.init(is_collective=False)
text = static.data("text", [None, 1], "int64", lod_level=1)
label = static.data("label", [None, 1], "int64")
attribute = paddle.ParamAttr(name="words", initializer=paddle.nn.initializer.Uniform(-0.05, 0.05))
vectors = static.nn.sparse_embedding(text, size=[len(words) + 1, 16], param_attr=attribute)
scores = static.nn.fc(static.nn.sequence_lod.sequence_pool(vectors, "sqrt"), len(labels))
loss = paddle.mean(paddle.nn.functional.cross_entropy(scores, label))
strategy = fleet.DistributedStrategy()
strategy.a_sync = True
strategy.sparse_table_configs = {"words": {"table_parameters.words.shard_num": 9}}
fleet.distributed_optimizer(paddle.optimizer.Adam(0.01), strategy).minimize(loss)
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
    os._exit(0)

executor = static.Executor()
executor.run(static.default_startup_program())
fleet.init_worker()
handle = fleet.fleet._runtime_handle
received = get_the_one_recv_context(handle.context, split_dense_table=False)
barrier("connected")
lines = [line for file in sorted(SHARD.iterdir()) for line in file.read_text().splitlines()]
for number in range(PASSES):
    began, cpu_began = time.monotonic(), time.process_time()
    order = list(lines)
    random.Random(number).shuffle(order)
    for start in range(0, len(order), BATCH):
        rows = [line.partition("\t") for line in order[start : start + BATCH]]
        ids = [[words[word] for word in row[2].lower().split()] for row in rows]
        tensor = paddle.base.core.LoDTensor()
        tensor.set(
            np.concatenate([np.array(row, "int64") for row in ids]).reshape(-1, 1),
            paddle.CPUPlace(),
        )
        tensor.set_recursive_sequence_lengths([[len(row) for row in ids]])
        answers = np.array([[labels[row[0]]] for row in rows], "int64")
        executor.run(
            static.default_main_program(),
            feed={"text": tensor, "label": answers},
            fetch_list=[loss],
        )
        handle._pull_all_dense([static.global_scope()], handle._send_ctx, received)
    spent = {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - cpu_began}
    print(json.dumps({"pass": number, "records": len(order), **spent}), flush=True)
    handle._worker.client_flush()
    barrier(f"trained-{number}")
    if TRAINER == 0:
        fleet.save_persistables(executor, str(OUT / f"pass-{number}"))
    barrier(f"saved-{number}")
if TRAINER == 0:
    handle._worker.stop_server()
os._exit(0)
