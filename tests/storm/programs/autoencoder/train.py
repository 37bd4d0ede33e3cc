"""Denoising-free autoencoder on synthetic strokes, data parallel over a hand-made all-reduce."""

import argparse
import os
import time
from multiprocessing.connection import Client, Listener

import numpy as np

RANK = int(os.environ.get("RANK", 0))
WORLD = int(os.environ.get("WORLD_SIZE", 1))
CHECKPOINT = "output/checkpoint.npz"


class AllReduce:
    """Rank 0 collects, averages and sends back."""

    def __init__(self):
        address = (os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ["MASTER_PORT"]))
        self.peers = []
        if WORLD == 1:
            return
        if RANK == 0:
            listener = Listener(address, backlog=WORLD)
            self.peers = [listener.accept() for _ in range(WORLD - 1)]
        else:
            for _ in range(300):
                try:
                    self.peers = [Client(address)]
                    break
                except OSError:
                    time.sleep(0.1)

    def mean(self, array):
        if RANK == 0:
            total = array.astype("float64")
            for peer in self.peers:
                total += peer.recv()
            total /= WORLD
            for peer in self.peers:
                peer.send(total)
            return total.astype("float32")
        self.peers[0].send(array)
        return self.peers[0].recv().astype("float32")


def strokes(count, seed):
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(np.arange(28), np.arange(28)), -1).reshape(-1, 2) / 27
    start, end = rng.random((2, count, 1, 2))
    t = np.clip(((grid - start) * (end - start)).sum(-1) / ((end - start) ** 2).sum(-1), 0, 1)
    distance = np.linalg.norm(start + t[..., None] * (end - start) - grid, axis=-1)
    return np.exp(-((distance * 12) ** 2)).astype("float32")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--hidden", type=int, default=384)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--save-every", type=int, default=5)
    args = parser.parse_args()

    images = strokes(1500, seed=RANK)
    test = strokes(256, seed=99)
    rng = np.random.default_rng()
    state = {
        "w1": rng.normal(0, 0.05, (784, args.hidden)).astype("float32"),
        "w2": rng.normal(0, 0.05, (args.hidden, 784)).astype("float32"),
        "step": np.array(0),
    }
    for name in ("w1", "w2"):
        state["m_" + name] = np.zeros_like(state[name])
        state["v_" + name] = np.zeros_like(state[name])
    if os.path.exists(CHECKPOINT):
        loaded = np.load(CHECKPOINT)
        state = {name: loaded[name] for name in loaded.files}
        print(f"resumed from step {state['step']}", flush=True)

    reduce = AllReduce()
    # Everybody begins with rank 0's weights.
    for name in ("w1", "w2"):
        state[name] = reduce.mean(state[name] if RANK == 0 else state[name] * 0) * WORLD

    for step in range(int(state["step"]), args.steps):
        batch = images[rng.integers(0, len(images), 512)]
        code = np.tanh(batch @ state["w1"])
        error = code @ state["w2"] - batch
        loss = float((error**2).mean())
        grad2 = code.T @ error / len(batch)
        grad1 = batch.T @ ((error @ state["w2"].T) * (1 - code**2)) / len(batch)
        for name, grad in (("w1", grad1), ("w2", grad2)):
            grad = reduce.mean(grad)
            state["m_" + name] = 0.9 * state["m_" + name] + 0.1 * grad
            state["v_" + name] = 0.99 * state["v_" + name] + 0.01 * grad**2
            state[name] -= args.lr * state["m_" + name] / (np.sqrt(state["v_" + name]) + 1e-6)
        state["step"] = np.array(step + 1)
        if RANK == 0:
            print(f"step {step + 1}/{args.steps} loss {loss:.4f}", flush=True)
            if (step + 1) % args.save_every == 0:
                np.savez_compressed(CHECKPOINT, **state)

    if RANK == 0:
        mse = float(((np.tanh(test @ state["w1"]) @ state["w2"] - test) ** 2).mean())
        print(f"test mse {mse:.4f}", flush=True)


if __name__ == "__main__":
    main()
