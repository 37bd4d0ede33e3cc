"""Matrix factorization with a few worker processes in each pod.

    python train.py --workers 2

The workers of all pods talk to the first worker of the first pod.
"""

import argparse
import multiprocessing as mp
import os
import queue
import threading
import time
from multiprocessing.connection import Client, Listener

import numpy as np

POD, PODS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
ADDRESS = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", 9321))
CKPT = "output/factors.npz"


class Comm:
    """Gradients go through threads and queues, so that a slow peer does not stop the others."""

    def __init__(self, rank, size):
        self.rank, self.inbox = rank, queue.Queue()
        if rank == 0:
            listener = Listener(ADDRESS, backlog=size)
            self.links = [listener.accept() for _ in range(size - 1)]
        else:
            self.links = [self.dial()]
        for link in self.links:
            threading.Thread(target=self.read, args=(link,), daemon=True).start()

    def dial(self):
        while True:
            try:
                return Client(ADDRESS)
            except Exception:
                time.sleep(0.2)

    def read(self, link):
        while True:
            try:
                self.inbox.put(link.recv())
            except Exception:
                # Network hiccups happen, just try again.
                time.sleep(1)

    def send(self, link, value):
        try:
            link.send(value)
        except Exception:
            pass

    def sum(self, value):
        if self.rank:
            self.send(self.links[0], value)
            return self.inbox.get()
        for _ in self.links:
            value = value + self.inbox.get()
        for link in self.links:
            self.send(link, value)
        return value


def ratings(rank):
    truth = np.random.default_rng(0)
    users, items = truth.normal(0, 1, (400, 8)), truth.normal(0, 1, (300, 8))
    mine = np.random.default_rng(100 + rank)
    u, i = mine.integers(0, 400, 6000), mine.integers(0, 300, 6000)
    return u, i, (users[u] * items[i]).sum(1) + mine.normal(0, 0.5, 6000)


def worker(local, args):
    rank, size = POD * args.workers + local, PODS * args.workers
    u, i, r = ratings(rank)
    test = ratings(777)
    comm = Comm(rank, size)
    start, seed = 0, np.random.default_rng()
    factors = seed.normal(0, 0.3, (700, 8)) if rank == 0 else np.zeros((700, 8))
    factors = comm.sum(factors)
    velocity = np.zeros_like(factors)
    if os.path.exists(CKPT):
        with np.load(CKPT) as saved:
            start, factors, velocity = int(saved["step"]), saved["factors"], saved["velocity"]
    for step in range(start, args.steps):
        time.sleep(0.08)  # leaves the cores to the notebook server beside it
        grad = np.zeros_like(factors)
        for part in np.array_split(seed.permutation(len(u)), 3):
            error = (factors[u[part]] * factors[400 + i[part]]).sum(1) - r[part]
            np.add.at(grad, u[part], error[:, None] * factors[400 + i[part]])
            np.add.at(grad, 400 + i[part], error[:, None] * factors[u[part]])
        velocity = 0.8 * velocity + comm.sum(grad) / size
        factors = factors - args.lr * velocity
        if rank == 0:
            rmse = np.sqrt((error**2).mean())
            print(f"[{time.strftime('%H:%M:%S')}] step={step + 1} rmse={rmse:.4f}", flush=True)
            if (step + 1) % 5 == 0:
                np.savez(
                    "output/factors-new.npz", step=step + 1, factors=factors, velocity=velocity
                )
                os.replace("output/factors-new.npz", CKPT)
    if rank == 0:
        error = (factors[test[0]] * factors[400 + test[1]]).sum(1) - test[2]
        print(f"final test rmse {np.sqrt((error**2).mean()):.4f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--lr", type=float, default=0.01)
    options = parser.parse_args()
    processes = [mp.Process(target=worker, args=(n, options)) for n in range(options.workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
