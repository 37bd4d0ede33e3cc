"""Topics of short texts by stochastic EM. Each worker has its own documents.

Everything is kept in ~/experiments/<name>, like my other projects.
"""

import argparse
import os
import socket
import time
from datetime import datetime
from pathlib import Path

import numpy as np

TOPICS, WORDS = 12, 900


def say(text):
    print(f"{datetime.now():%Y-%m-%d %H:%M:%S} | {text}", flush=True)


class Link:
    def __init__(self, rank, size):
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        self.rank, self.size = rank, size
        if rank == 0:
            server = socket.create_server(address)
            self.peers = [server.accept()[0] for _ in range(size - 1)]
        else:
            self.peers = [self.dial(address)]
        for peer in self.peers:
            peer.settimeout(100)

    @staticmethod
    def dial(address):
        for _ in range(600):
            try:
                return socket.create_connection(address)
            except OSError:
                time.sleep(0.1)
        raise SystemExit("the first worker does not answer")

    def receive(self, peer, like):
        buffer = np.empty_like(like)
        view = memoryview(buffer).cast("B")
        while view:
            count = peer.recv_into(view)
            if not count:
                raise ConnectionResetError("a worker is gone")
            view = view[count:]
        return buffer

    def broadcast(self, array):
        if self.rank:
            return self.receive(self.peers[0], array)
        for peer in self.peers:
            peer.sendall(array.tobytes())
        return array

    def sum(self, array):
        if self.rank:
            self.peers[0].sendall(array.tobytes())
            return self.receive(self.peers[0], array)
        array = array + sum(self.receive(peer, array) for peer in self.peers)
        return self.broadcast(array)


def documents(rank):
    truth = np.random.default_rng(0).dirichlet(np.full(WORDS, 0.03), TOPICS)
    rng = np.random.default_rng(rank + 10)
    mixture = rng.dirichlet(np.full(TOPICS, 0.1), 1000) @ truth
    return np.stack([rng.multinomial(80, p / p.sum()) for p in mixture]).astype("float64")


def fit(counts, topics):
    """One round: how much each word of each topic is used, and the log likelihood."""
    mixture = np.full((len(counts), TOPICS), 1 / TOPICS)
    for _ in range(8):
        ratio = counts / (mixture @ topics + 1e-12)
        mixture = mixture * (ratio @ topics.T)
        mixture /= mixture.sum(1, keepdims=True)
    expected = mixture @ topics + 1e-12
    return topics * (mixture.T @ (counts / expected)), (counts * np.log(expected)).sum()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="topics")
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    folder = Path("~/experiments").expanduser() / args.name
    folder.mkdir(parents=True, exist_ok=True)
    counts, link = documents(rank), Link(rank, size)
    topics = np.random.default_rng().dirichlet(np.ones(WORDS), TOPICS)
    start = np.zeros(1)
    saved = folder / "topics.npz"
    if rank == 0 and saved.exists():
        with np.load(saved) as archive:
            topics, start = archive["topics"], archive["done"]
        say(f"found {saved}: {int(start[0])} rounds are done")
    start, topics = link.broadcast(start), link.broadcast(topics)
    for number in range(int(start[0]), args.rounds):
        used, likelihood = fit(counts, topics)
        used = link.sum(used) + 0.01
        topics = used / used.sum(1, keepdims=True)
        total = link.sum(np.array([likelihood, counts.sum()]))
        if rank == 0:
            perplexity = np.exp(-total[0] / total[1])
            say(f"round {number + 1:02d} of {args.rounds}: perplexity {perplexity:.2f}")
            with (folder / "draft.npz").open("wb") as draft:
                np.savez(draft, topics=topics, done=np.array([number + 1.0]))
            (folder / "draft.npz").replace(saved)
    if rank == 0:
        say(f"topics are in {saved}, final perplexity {perplexity:.2f}")


if __name__ == "__main__":
    main()
