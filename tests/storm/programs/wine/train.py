"""Softmax regression on random features; the checkpoint holds all that a step depends on."""

import argparse
import hashlib
import io
import os
import time
from multiprocessing.connection import Client, Listener
from pathlib import Path

import numpy as np

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def write_durably(path: Path, data: bytes) -> None:
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("wb") as file:
        file.write(hashlib.sha256(data).digest() + data)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_whole(path: Path) -> bytes | None:
    data = path.read_bytes()
    if hashlib.sha256(data[32:]).digest() != data[:32]:
        return None
    return data[32:]


class Peers:
    def __init__(self) -> None:
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if RANK == 0:
            with Listener(address, backlog=WORLD) as listener:
                self.links = [listener.accept() for _ in range(WORLD - 1)]
            return
        deadline = time.monotonic() + 180
        while True:
            try:
                self.links = [Client(address)]
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def receive(self, link):
        if not link.poll(180):
            raise TimeoutError("a peer says nothing for 180 s")
        return link.recv()

    def gather_and_spread(self, value, combine):
        if RANK:
            self.links[0].send(value)
            return self.receive(self.links[0])
        result = combine([value, *(self.receive(link) for link in self.links)])
        for link in self.links:
            link.send(result)
        return result

    def mean(self, array):
        return self.gather_and_spread(array, lambda arrays: sum(arrays) / WORLD)


PROJECTION = np.random.default_rng(9).normal(0, 1, (13, 700))


def features(rows: np.ndarray) -> np.ndarray:
    return np.tanh(rows @ PROJECTION)


def wine(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    centres = np.random.default_rng(8).normal(0, 1, (6, 13))
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 6, count)
    return centres[label] + rng.normal(0, 1.1, (count, 13)), label % 3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=45)
    parser.add_argument("--batch", type=int, default=400)
    parser.add_argument("--every", type=int, default=4)
    arguments = parser.parse_args()
    rows, labels = wine(6000, seed=1)
    peers = Peers()
    checkpoint = Path("output/checkpoint.npz")

    weights, velocity = np.zeros((700, 3)), np.zeros((700, 3))
    step, epoch, cursor = 0, 0, 0
    rng = np.random.default_rng(RANK)
    order = np.random.default_rng(epoch).permutation(len(rows))
    # Rank 0 reads, so that all ranks see the same file.
    data = b""
    if RANK == 0 and checkpoint.exists():
        data = read_whole(checkpoint) or b""
        if not data:
            print(f"{checkpoint} is damaged: training begins anew", flush=True)
    data = peers.gather_and_spread(data, lambda all_ranks: all_ranks[0])
    if data:
        saved = np.load(io.BytesIO(data), allow_pickle=True)
        weights, velocity, order = saved["weights"], saved["velocity"], saved["order"]
        step, epoch, cursor = (int(saved[name]) for name in ("step", "epoch", "cursor"))
        rng.bit_generator.state = saved["generators"][RANK]
        if RANK == 0:
            print(f"resumed: step {step}, epoch {epoch}, record {cursor}", flush=True)

    share = arguments.batch // WORLD
    while step < arguments.steps:
        if cursor + arguments.batch > len(rows):
            epoch, cursor = epoch + 1, 0
            order = np.random.default_rng(epoch).permutation(len(rows))
        mine = order[cursor + RANK * share : cursor + (RANK + 1) * share]
        cursor += arguments.batch
        loss = 0.0
        for _ in range(2):  # noisy views of the same records
            x = features(rows[mine] + rng.normal(0, 0.3, (share, 13)))
            scores = np.exp(x @ weights)
            scores /= scores.sum(1, keepdims=True)
            loss -= np.log(scores[np.arange(share), labels[mine]]).mean() / 2
            scores[np.arange(share), labels[mine]] -= 1
            rate = 0.02 * (1 - step / arguments.steps)
            velocity = 0.9 * velocity + peers.mean(x.T @ scores / share)
            weights = weights - rate * velocity
        step += 1
        loss = float(peers.mean(np.array(loss)))
        if RANK == 0:
            print(f"step {step:2d}  epoch {epoch}  lr {rate:.5f}  loss {loss:.6f}", flush=True)
        if step % arguments.every == 0:
            generators = peers.gather_and_spread(rng.bit_generator.state, list)
            if RANK == 0:
                buffer = io.BytesIO()
                np.savez(
                    buffer,
                    weights=weights,
                    velocity=velocity,
                    order=order,
                    step=step,
                    epoch=epoch,
                    cursor=cursor,
                    generators=np.array(generators, dtype=object),
                )
                write_durably(checkpoint, buffer.getvalue())
    if RANK == 0:
        rows, labels = wine(3000, seed=2)
        scores = features(rows) @ weights
        accuracy = (scores.argmax(1) == labels).mean()
        loss = (np.log(np.exp(scores).sum(1)) - scores[np.arange(3000), labels]).mean()
        print(f"test accuracy {accuracy:.4f} test loss {loss:.8f}", flush=True)


if __name__ == "__main__":
    main()
