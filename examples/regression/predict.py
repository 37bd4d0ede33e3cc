"""Predicts prices with plain Paddle: `python program/predict.py DISTRICT,ROOMS,AREA ...` in the
folder of the model, which `paddle-aws results --model` fetches; without arguments it reads lines.
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
agreed = json.loads((MODEL / "flats.json").read_text())

for line in sys.argv[1:] or sys.stdin:
    district, rooms, area = map(float, line.split(",")[:3])
    ids = np.array([[int(district) if district <= agreed["districts"] else 0]], "int64")
    record = {
        "district": paddle.base.create_lod_tensor(ids, [[1]], paddle.CPUPlace()),
        "rooms": np.array([[rooms / 4]], "float32"),
        "area": np.array([[area / 100]], "float32"),
    }
    (price,) = executor.run(program, feed=record, fetch_list=outputs)
    print(round(float(price[0][0]) * agreed["price"]))
