import random

import numpy as np

WORDS = [f"w{n}" for n in range(500)]


def tokens(count, seed):
    """A text in which each word makes a few others likely."""
    table = np.random.default_rng(0).integers(0, len(WORDS), (len(WORDS), 3))
    chooser, word, text = random.Random(seed), 0, []
    for _ in range(count):
        text.append(word)
        word = (
            int(table[word][chooser.randrange(3)])
            if chooser.random() < 0.9
            else chooser.randrange(500)
        )
    return np.array(text)


class Bigram:
    """P(next | word) by two matrices; the parameters are one flat vector, cut into shards."""

    def __init__(self, width=48):
        self.width, self.size = width, 2 * len(WORDS) * width

    def initial(self):
        return np.random.default_rng(1).normal(0, 0.1, self.size)

    def loss_and_gradient(self, flat, x, y):
        a, b = flat.reshape(2, len(WORDS), self.width)
        h = a[x]
        z = h @ b.T
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        loss = -np.log(p[np.arange(len(x)), y] + 1e-12).mean()
        p[np.arange(len(x)), y] -= 1
        p /= len(x)
        gradient = np.zeros((2, len(WORDS), self.width))
        np.add.at(gradient[0], x, p @ b)
        gradient[1] = p.T @ h
        return float(loss), gradient.ravel()
