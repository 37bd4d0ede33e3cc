"""quick_start's task as a collective program (`mode: collective`): the whole model in each
trainer.
"""

from collections import Counter

import numpy as np
import paddle
from paddle_node import fleet


def parse(line):
    label, _, text = line.partition("\t")
    return label, text.split()


def count(texts):
    labels, words = Counter(), Counter()
    for label, text in texts:
        labels[label] += 1
        words.update(text)
    return {"labels": labels, "words": words}


def merge(shards):
    return {
        key: sorted({name for shard in shards for name in shard[key]})
        for key in ("labels", "words")
    }


def sample(labelled):
    label, text = labelled
    return {"text": [words.get(word, 0) for word in text], "label": labels.get(label, -1)}


class Classifier(paddle.nn.Layer):
    """The sum of a text's word vectors, and a score for each label."""

    def __init__(self):
        super().__init__()
        self.vectors = paddle.nn.Embedding(len(words) + 1, 16, padding_idx=0)
        self.scores = paddle.nn.Linear(16, len(labels))

    def forward(self, text):
        return self.scores(self.vectors(text).sum(axis=1) / text.shape[1] ** 0.5)


def forward(layer, samples):
    longest = max(len(record["text"]) for record in samples)
    text = np.zeros((len(samples), longest), dtype="int64")
    for row, record in enumerate(samples):
        text[row, : len(record["text"])] = record["text"]
    answer = paddle.to_tensor([record["label"] for record in samples])
    scores = layer(paddle.to_tensor(text))
    return fleet.Model(
        paddle.nn.functional.cross_entropy(scores, answer), scores, answer, list(labels)
    )


job = fleet.start(parse)
vocabulary = job.agree("vocabulary", count, merge)
labels = {label: number for number, label in enumerate(vocabulary["labels"])}
words = {word: number for number, word in enumerate(vocabulary["words"], start=1)}
job.run_collective(Classifier, forward, sample, learning_rate=0.02, batch=32)
