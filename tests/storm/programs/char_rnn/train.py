"""A character model (tanh RNN, truncated backpropagation) on generated verse."""

import argparse
import os
import pickle
import random
import re

import numpy as np
from comm import Hub, rank, world

WORDS = "the sea sky wind rose fell soft under over long gone grey light stone river moon".split()


def corpus(lines=4000):
    chooser = random.Random(7)
    text = "\n".join(" ".join(chooser.choices(WORDS, k=6)) for _ in range(lines))
    alphabet = sorted(set(text))
    return np.array([alphabet.index(c) for c in text]), alphabet


class Model:
    def __init__(self, size, hidden):
        rng = np.random.RandomState(1)
        self.p = {
            "wx": rng.randn(size, hidden).astype("float32") * 0.1,
            "wh": rng.randn(hidden, hidden).astype("float32") * 0.05,
            "wy": rng.randn(hidden, size).astype("float32") * 0.1,
        }
        self.cache = {name: np.zeros_like(value) for name, value in self.p.items()}

    def loss_and_grads(self, x, y):
        p, (batch, length) = self.p, x.shape
        h = np.zeros((length + 1, batch, p["wh"].shape[0]), "float32")
        g = {name: np.zeros_like(value) for name, value in p.items()}
        loss, probabilities = 0.0, []
        for t in range(length):
            h[t] = np.tanh(p["wx"][x[:, t]] + h[t - 1] @ p["wh"])
            z = h[t] @ p["wy"]
            e = np.exp(z - z.max(1, keepdims=True))
            e /= e.sum(1, keepdims=True)
            probabilities.append(e)
            loss -= np.log(e[np.arange(batch), y[:, t]] + 1e-9).mean() / length
        back = np.zeros_like(h[0])
        for t in reversed(range(length)):
            d = probabilities[t].copy()
            d[np.arange(batch), y[:, t]] -= 1
            d /= batch * length
            g["wy"] += h[t].T @ d
            back = (d @ p["wy"].T + back) * (1 - h[t] ** 2)
            g["wh"] += h[t - 1].T @ back
            np.add.at(g["wx"], x[:, t], back)
            back = back @ p["wh"].T
        return float(loss), g


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--iters", type=int, default=40)
    ap.add_argument("--lr", type=float, default=0.02)
    ap.add_argument("--save_freq", type=int, default=5)
    ap.add_argument("--resume")
    a = ap.parse_args()

    data, alphabet = corpus()
    held_out, data = data[:6000], data[6000:]
    model = Model(len(alphabet), 160)
    if a.resume:
        with open(a.resume, "rb") as f:
            saved = pickle.load(f)
        model.p, model.cache = saved["params"], saved["adagrad"]
        print(f"=> loaded checkpoint {a.resume}", flush=True)

    hub = Hub()
    for it in range(a.iters):
        order = np.random.RandomState(1000 * it + rank())
        starts = order.randint(0, len(data) - 41, 160)
        block = np.stack([data[s : s + 41] for s in starts])
        loss, grads = model.loss_and_grads(block[:, :-1], block[:, 1:])
        for name in sorted(grads):
            g = np.clip(hub.mean(grads[name]), -1, 1)
            model.cache[name] = model.cache[name] + g * g
            model.p[name] = model.p[name] - a.lr * g / np.sqrt(model.cache[name] + 1e-8)
        if rank() == 0:
            print(f"iter {it}: loss = {loss:.5f} ({world()} workers)", flush=True)
            if it % a.save_freq == a.save_freq - 1:
                name = f"output/ckpt_{it + 1:06d}.pkl"
                with open(name + ".tmp", "wb") as f:
                    pickle.dump({"iter": it, "params": model.p, "adagrad": model.cache}, f)
                os.rename(name + ".tmp", name)
                for old in os.listdir("output"):
                    match = re.fullmatch(r"ckpt_(\d+)\.pkl", old)
                    if match and int(match[1]) < it + 1 - 2 * a.save_freq:
                        os.remove("output/" + old)
    if rank() == 0:
        block = held_out[: 41 * 140].reshape(140, 41)
        loss, _ = model.loss_and_grads(block[:, :-1], block[:, 1:])
        print(f"held-out bits per character: {loss / np.log(2):.5f}", flush=True)


if __name__ == "__main__":
    main()
