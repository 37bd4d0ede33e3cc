"""Factorization machine on a click log; reads the log in shuffled blocks, epoch by epoch."""

import argparse
import glob
import json
import os
import pickle
import socket
import sys
import time

import numpy as np

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def connect():
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank == 0:
        server = socket.create_server((host, port))
        server.settimeout(100)
        files = [server.accept()[0].makefile("rwb") for _ in range(world - 1)]
        server.close()
        return files
    for attempt in range(200):
        try:
            return [socket.create_connection((host, port), timeout=100).makefile("rwb")]
        except ConnectionRefusedError:
            time.sleep(0.1)
    sys.exit(f"no master at {host}:{port}")


def all_reduce(files, value):
    def send(f, v):
        pickle.dump(v, f)
        f.flush()

    if rank:
        send(files[0], value)
        return pickle.load(files[0])
    for f in files:
        value = value + pickle.load(f)
    for f in files:
        send(f, value)
    return value


class BlockSampler:
    """This rank's blocks of rows, in another order each epoch."""

    def __init__(self, rows, block, seed):
        self.rows, self.block, self.seed, self.epoch = rows, block, seed, 0

    def __len__(self):
        return self.rows // self.block // world

    def __iter__(self):
        order = np.random.RandomState(self.seed + self.epoch).permutation(self.rows // self.block)
        for number in order[rank::world][: len(self)]:
            yield slice(number * self.block, (number + 1) * self.block)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--resume", default="")
    args = parser.parse_args()
    table = np.concatenate([np.loadtxt(f, delimiter=",") for f in sorted(glob.glob(args.data))])
    table = table.astype("int64")
    test, table = table[::6], table[np.arange(len(table)) % 6 != 0]
    rng = np.random.RandomState(0)
    model = {
        "user": rng.normal(0, 0.3, (60, 24)),
        "item": rng.normal(0, 0.3, (40, 24)),
        "bias": np.zeros(24),
    }
    epoch, step = 0, 0
    if args.resume:
        with open(args.resume, "rb") as f:
            model, epoch, step = pickle.load(f)
        print(json.dumps({"event": "resume", "file": args.resume, "epoch": epoch, "step": step}))

    def scores(rows):
        u, i, h = rows[:, 0], rows[:, 1], rows[:, 2]
        return 1 / (1 + np.exp(-(model["user"][u] * model["item"][i]).sum(1) - model["bias"][h]))

    files = connect()
    sampler = BlockSampler(len(table), 100, seed=17)
    total = args.epochs * len(sampler)
    while step < total:
        sampler.epoch = epoch
        for where in sampler:
            rows = table[where]
            for _ in range(8):  # inner steps on the block, the log is on slow storage
                u, i, h = rows[:, 0], rows[:, 1], rows[:, 2]
                d = (scores(rows) - rows[:, 3])[:, None] / len(rows)
                grads = {name: np.zeros_like(value) for name, value in model.items()}
                np.add.at(grads["user"], u, d * model["item"][i])
                np.add.at(grads["item"], i, d * model["user"][u])
                np.add.at(grads["bias"], h, d[:, 0])
                flat = np.concatenate([grads[name].ravel() for name in sorted(grads)])
                flat = all_reduce(files, flat) / world
                for name in sorted(grads):
                    g, flat = np.split(flat, [grads[name].size])
                    model[name] = model[name] - 3.0 * g.reshape(grads[name].shape)
            time.sleep(0.1)  # pacing: the feature store allows ten reads a second
            p = scores(rows)
            loss = -np.log(np.where(rows[:, 3] == 1, p, 1 - p) + 1e-9).mean()
            step += 1
            line = {"step": step, "epoch": epoch, "rank": rank, "loss": round(float(loss), 6)}
            print(json.dumps(line | {"rows": f"{where.start}-{where.stop - 1}"}), flush=True)
            if rank == 0 and step % 4 == 0:
                name = f"output/step-{step:05d}.pkl"
                with open(name + "~", "wb") as f:
                    pickle.dump((model, epoch, step), f)
                os.replace(name + "~", name)
            if step == total:
                break
        epoch += 1
    if rank == 0:
        p = scores(test)
        loss = -np.log(np.where(test[:, 3] == 1, p, 1 - p) + 1e-9).mean()
        print(json.dumps({"event": "done", "steps": step, "test_logloss": round(float(loss), 6)}))


main()
