"""Predicts ratings with plain Paddle: `python program/predict.py USER::MOVIE ...` in the folder of
the model, which `paddle-aws results --model` fetches; without arguments it reads lines.
"""

import json
import sys
from pathlib import Path

import numpy as np
import paddle

MODEL = Path(__file__).resolve().parents[1]

paddle.enable_static()
executor = paddle.static.Executor()
program, _, outputs = paddle.static.load_inference_model(str(MODEL / "model"), executor)
agreed = json.loads((MODEL / "ratings.json").read_text())


def row(number, rows):
    """Returns one id as the model takes it: row 0 is for what was not seen in training."""
    ids = np.array([[number if number <= rows else 0]], "int64")
    return paddle.base.create_lod_tensor(ids, [[1]], paddle.CPUPlace())


for line in sys.argv[1:] or sys.stdin:
    user, movie = map(int, line.split("::")[:2])
    record = {"user": row(user, agreed["users"]), "movie": row(movie, agreed["movies"])}
    (rating,) = executor.run(program, feed=record, fetch_list=outputs)
    print(f"{rating[0][0]:.2f}")
