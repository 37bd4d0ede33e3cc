"""Pairwise ranking of documents with a small network; started by any launcher that sets RANK."""

import os
import signal
import socket
import sys
import time

import numpy as np

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEPS, LR = 60, 0.05
stopping = False


def on_term(signum, frame):
    global stopping
    print(f"rank {RANK}: got signal {signum}, will save and stop", flush=True)
    stopping = True


def rendezvous():
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if RANK == 0:
        server = socket.create_server(address, backlog=WORLD)
        server.settimeout(90)
        peers = [server.accept()[0] for _ in range(WORLD - 1)]
        server.close()
    else:
        deadline = time.time() + 90
        while True:
            try:
                peers = [socket.create_connection(address)]
                break
            except OSError:
                if time.time() > deadline:
                    raise
                time.sleep(0.1)
    for peer in peers:
        peer.settimeout(90)
    return peers


def read(peer, count):
    data = b""
    while len(data) < count:
        part = peer.recv(count - len(data))
        if not part:
            raise EOFError("peer is gone")
        data += part
    return np.frombuffer(data)


def mean(peers, vector):
    if RANK == 0:
        total = vector + sum(read(peer, vector.nbytes) for peer in peers)
        for peer in peers:
            peer.sendall(total.tobytes())
    else:
        peers[0].sendall(vector.tobytes())
        total = read(peers[0], vector.nbytes)
    return total / WORLD


def save(w, step):
    np.savez("output/.ranker.tmp.npz", w=w, step=step)
    os.replace("output/.ranker.tmp.npz", "output/ranker.npz")


def train():
    truth = np.random.default_rng(1).normal(0, 1, 400)
    w, first = np.zeros(400), 0
    if os.path.exists("output/ranker.npz"):
        saved = np.load("output/ranker.npz")
        w, first = saved["w"].copy(), int(saved["step"])
        if RANK == 0:
            print(f"resuming at step {first}", flush=True)
    peers = rendezvous()
    for step in range(first, STEPS):
        rng = np.random.default_rng((RANK, step))
        a, b = rng.normal(0, 1, (2, 1200, 400))
        better = ((a - b) @ truth > 0) * 2.0 - 1
        margin = better * ((a - b) @ w)
        weight = -better / (1 + np.exp(margin))
        w = w - LR * mean(peers, (a - b).T @ weight / 1200)
        if RANK == 0:
            print(f"step {step + 1:>3}/{STEPS}  loss {np.log1p(np.exp(-margin)).mean():.4f}")
            if (step + 1) % 10 == 0 or stopping:
                save(w, step + 1)
        if stopping:
            print(f"rank {RANK}: stopped at step {step + 1}", flush=True)
            sys.exit(0)
    if RANK == 0:
        save(w, STEPS)
        a, b = np.random.default_rng(99).normal(0, 1, (2, 4000, 400))
        right = (((a - b) @ truth > 0) == ((a - b) @ w > 0)).mean()
        print(f"pairwise accuracy: {right:.5f}", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, on_term)
    try:
        train()
    except (EOFError, OSError) as error:
        # The others were stopped: nothing left to do here.
        print(f"rank {RANK}: {error}, stopping", flush=True)
        sys.exit(0)
