"""Text classification: a line is `label<TAB>text`; it predicts the label from the words in the
text.

Any number of labels and any words work without a change here: the program counts labels and words
in the data.
"""

from collections import Counter

import paddle
from paddle_node import fleet

WORDS = 100_000  # The most common words have a vector each; all others share row 0.
WIDTH = 16


def parse(line):
    if not line.strip():
        return None  # An empty line teaches nothing.
    label, tab, text = line.partition("\t")
    if not tab:
        raise ValueError("a line must be label<TAB>text")
    return label.strip(), text.lower().split()


def count(texts):
    labels, words = Counter(), Counter()
    for label, text in texts:
        labels[label] += 1
        words.update(text)
    return {"labels": labels, "words": words}


def merge(shards):
    words = sum((Counter(shard["words"]) for shard in shards), Counter())
    commonest = sorted(words, key=lambda word: (-words[word], word))[: WORDS - 1]
    return {
        "labels": sorted({label for shard in shards for label in shard["labels"]}),
        "words": commonest,
    }


def sample(labelled):
    label, text = labelled
    return {"text": [words.get(word, 0) for word in text] or [0], "label": labels.get(label, -1)}


def network():
    text, label = fleet.ids("text"), fleet.label("label")
    vectors = fleet.embedding("words", text, rows=len(words) + 1, width=WIDTH)
    document = fleet.pooled(
        vectors, "sqrt"
    )  # Long texts weigh more than short ones, but not in proportion.
    scores = paddle.static.nn.fc(document, len(labels))
    loss = paddle.mean(paddle.nn.functional.cross_entropy(scores, label))
    return fleet.Model(loss, prediction=scores, answer=label, answers=list(labels))


job = fleet.start(parse)
vocabulary = job.agree("vocabulary", count, merge)
labels = {label: number for number, label in enumerate(vocabulary["labels"])}
words = {word: number for number, word in enumerate(vocabulary["words"], start=1)}
job.run(network, sample, learning_rate=0.01, batch=32)
