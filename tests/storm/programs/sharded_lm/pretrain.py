"""Each rank keeps Adam's moments of its part of the parameters, and writes them itself:
output/step-<n>/rank-<r>.npz. A folder counts when rank 0 has written COMPLETE into it.

On SIGTERM all ranks agree on a step to stop at, save, and exit with 143.
"""

import argparse
import os
import shutil
import signal
import sys
import time
from multiprocessing.connection import Client, Listener
from pathlib import Path

import numpy as np
from model import Bigram, tokens

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
TERMINATED = 128 + signal.SIGTERM


class World:
    def __init__(self):
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if RANK == 0:
            with Listener(address, backlog=WORLD) as listener:
                links = [listener.accept() for _ in range(WORLD - 1)]
            self.links = [
                link for _, link in sorted((link.recv(), link) for link in links if link.poll(120))
            ]
            if len(self.links) != WORLD - 1:
                sys.exit("not every rank has said who it is")
            return
        deadline = time.monotonic() + 120
        while True:
            try:
                self.links = [Client(address)]
                self.links[0].send(RANK)
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def exchange(self, value, combine):
        if RANK:
            self.links[0].send(value)
            return self.wait(self.links[0])
        result = combine([value, *map(self.wait, self.links)])
        for link in self.links:
            link.send(result)
        return result

    @staticmethod
    def wait(link):
        if not link.poll(120):
            sys.exit("a rank has been silent for two minutes")
        return link.recv()


class Checkpoints:
    def __init__(self, root, world):
        self.root, self.world = Path(root), world

    def complete(self):
        marks = self.root.glob("step-*/COMPLETE")
        return sorted(int(mark.parent.name.removeprefix("step-")) for mark in marks)

    def save(self, step, **arrays):
        folder = self.root / f"step-{step:06d}"
        folder.mkdir(exist_ok=True)
        draft = folder / f"rank-{RANK}.tmp"
        with draft.open("wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(folder / f"rank-{RANK}.npz")
        self.world.exchange(True, all)  # everybody has written
        if RANK == 0:
            (folder / "COMPLETE").write_text(f"{WORLD} ranks\n")
            for old in self.complete()[:-2]:
                # First the mark, so that no half of it ever counts.
                (self.root / f"step-{old:06d}" / "COMPLETE").unlink()
                shutil.rmtree(self.root / f"step-{old:06d}")

    def load(self):
        """The newest step whose shards all ranks can read."""
        for step in reversed(self.world.exchange(self.complete(), lambda each: each[0])):
            try:
                with np.load(self.root / f"step-{step:06d}" / f"rank-{RANK}.npz") as file:
                    arrays = dict(file)
            except Exception as error:
                print(f"rank {RANK}: step {step} is not readable: {error}", flush=True)
                arrays = None
            if self.world.exchange(arrays is not None, all):
                return step, arrays
        return 0, None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-steps", type=int, default=36)
    parser.add_argument("--save-steps", type=int, default=6)
    options = parser.parse_args()
    asked = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    world, model = World(), Bigram()
    text = tokens(30_000, seed=3)
    store = Checkpoints("output", world)
    parts = np.array_split(np.arange(model.size), WORLD)
    step, saved = store.load()
    if saved is None:
        mine = model.initial()[parts[RANK]]
        first, second = np.zeros_like(mine), np.zeros_like(mine)
    else:
        mine, first, second = saved["mine"], saved["first"], saved["second"]
        if RANK == 0:
            print(f"loaded checkpoint of step {step}", flush=True)
    flat = world.exchange(mine, np.concatenate)
    while step < options.max_steps:
        at = np.random.default_rng([step, RANK]).integers(0, len(text) - 1, 1000)
        loss, gradient = model.loss_and_gradient(flat, text[at], text[at + 1])
        gradient = world.exchange(gradient, lambda every: sum(every) / WORLD)[parts[RANK]]
        step += 1
        first = 0.9 * first + 0.1 * gradient
        second = 0.99 * second + 0.01 * gradient**2
        rate = 0.03 * min(1, step / 6) * (1 - step / (options.max_steps + 1))
        corrected = first / (1 - 0.9**step)
        mine = mine - rate * corrected / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
        flat = world.exchange(mine, np.concatenate)
        stop = world.exchange(bool(asked), any)
        if RANK == 0:
            print(f"step: {step} | loss: {loss:.5f} | lr: {rate:.5f}", flush=True)
        if step % options.save_steps == 0 or stop:
            store.save(step, mine=mine, first=first, second=second)
        if stop and step < options.max_steps:
            print(f"rank {RANK}: stopped at step {step} as asked", flush=True)
            sys.exit(TERMINATED)
    if RANK == 0:
        test = tokens(4000, seed=4)
        loss, _ = model.loss_and_gradient(flat, test[:-1], test[1:])
        print(f"validation perplexity: {np.exp(loss):.5f}", flush=True)


if __name__ == "__main__":
    main()
