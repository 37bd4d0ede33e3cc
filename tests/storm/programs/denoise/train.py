"""Denoising autoencoder for sine waves: fresh noise and dropout in every step."""

import argparse
import json
import logging
import os
import time
from multiprocessing.connection import Client, Listener
from pathlib import Path

import numpy as np

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
log = logging.getLogger("denoise")


class Group:
    def __init__(self):
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        if self.rank == 0:
            with Listener(where) as listener:
                self.links = [listener.accept() for _ in range(self.size - 1)]
        else:
            self.links = [self._connect(where)]

    def _connect(self, where):
        deadline = time.monotonic() + 120
        while True:
            try:
                return Client(where)
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def receive(self, link):
        if not link.poll(120):
            raise TimeoutError("the peer has been silent for two minutes")
        return link.recv()

    def average(self, arrays):
        if self.rank:
            self.links[0].send(arrays)
            return self.receive(self.links[0])
        for link in self.links:
            for mine, theirs in zip(arrays, self.receive(link), strict=True):
                mine += theirs
        arrays = [array / self.size for array in arrays]
        for link in self.links:
            link.send(arrays)
        return arrays


class Trainer:
    def __init__(self, options):
        self.options, self.group = options, Group()
        self.rng = np.random.default_rng(options.seed + self.group.rank)
        init = np.random.default_rng(options.seed)
        sizes = [256, 320, 256]
        self.weights = [
            init.normal(0, a**-0.5, (a, b)) for a, b in zip(sizes, sizes[1:], strict=False)
        ]
        self.momenta = [np.zeros_like(w) for w in self.weights]
        self.step = 0

    @property
    def file(self):
        return Path(self.options.output) / "state.npz"

    def load(self):
        if not self.file.exists():
            return
        saved = np.load(self.file)
        self.step = int(saved["step"])
        self.weights = [saved["w0"], saved["w1"]]
        self.momenta = [saved["m0"], saved["m1"]]
        log.info("continue at step %d from %s", self.step, self.file)

    def save(self):
        draft = self.file.with_name("state.tmp.npz")
        np.savez(
            draft,
            step=self.step,
            w0=self.weights[0],
            w1=self.weights[1],
            m0=self.momenta[0],
            m1=self.momenta[1],
        )
        os.replace(draft, self.file)

    def batch(self, rng, count):
        t = np.linspace(0, 1, 256)
        frequency, phase = rng.uniform(2, 9, (count, 1)), rng.uniform(0, 6.28, (count, 1))
        return np.sin(6.28 * frequency * t + phase)

    def run(self):
        while self.step < self.options.steps:
            clean = self.batch(self.rng, 600)
            noisy = clean + self.rng.normal(0, 0.6, clean.shape)
            hidden = np.tanh(noisy @ self.weights[0])
            keep = (self.rng.random(hidden.shape) < 0.8) / 0.8
            dropped = hidden * keep
            error = dropped @ self.weights[1] - clean
            gradients = [
                noisy.T @ ((error @ self.weights[1].T) * keep * (1 - hidden**2)) / len(clean),
                dropped.T @ error / len(clean),
            ]
            for w, m, g in zip(
                self.weights, self.momenta, self.group.average(gradients), strict=True
            ):
                m *= 0.9
                m += g
                w -= self.options.lr * m
            self.step += 1
            if self.group.rank == 0:
                log.info("step=%d mse=%.6f", self.step, (error**2).mean())
                if self.step % 6 == 0:
                    self.save()

    def evaluate(self):
        rng = np.random.default_rng(12345)
        clean = self.batch(rng, 1000)
        noisy = clean + rng.normal(0, 0.6, clean.shape)
        guess = np.tanh(noisy @ self.weights[0]) @ self.weights[1]
        result = {"mse": round(float(((guess - clean) ** 2).mean()), 8), "steps": self.step}
        (Path(self.options.output) / "result.json").write_text(json.dumps(result))
        log.info("evaluation mse=%.8f", result["mse"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=42)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--output", default="output")
    trainer = Trainer(parser.parse_args())
    trainer.load()
    trainer.run()
    if trainer.group.rank == 0:
        trainer.evaluate()
