"""Predicts a text's label with plain Paddle: `python program/predict.py 'a text' ...` in the folder
of the model, which `paddle-aws results --model` fetches; without texts it reads lines.
"""

import json
import sys
from pathlib import Path

import paddle

MODEL = Path(__file__).resolve().parents[1]

model = paddle.jit.load(str(MODEL / "model"))
model.eval()
agreed = json.loads((MODEL / "vocabulary.json").read_text())
words = {word: number for number, word in enumerate(agreed["words"], start=1)}

for text in sys.argv[1:] or sys.stdin:
    ids = [words.get(word, 0) for word in text.split()] or [0]
    print(agreed["labels"][int(model(paddle.to_tensor([ids])).argmax())])
