"""Predicts a text's label with plain Paddle: `python program/predict.py 'a text' ...` in the folder
of the model, which `paddle-aws results --model` fetches; without texts it reads lines.
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
agreed = json.loads((MODEL / "vocabulary.json").read_text())
words = {word: number for number, word in enumerate(agreed["words"], start=1)}

for text in sys.argv[1:] or sys.stdin:
    ids = [words.get(word, 0) for word in text.lower().split()] or [0]
    column = np.array(ids, "int64").reshape(-1, 1)
    record = {"text": paddle.base.create_lod_tensor(column, [[len(ids)]], paddle.CPUPlace())}
    (scores,) = executor.run(program, feed=record, fetch_list=outputs)
    print(agreed["labels"][int(scores[0].argmax())])
