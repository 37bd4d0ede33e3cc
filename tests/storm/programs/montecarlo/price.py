"""Prices an Asian option by regression on simulated paths. It is short and keeps no checkpoint."""

import argparse
import json
import os
import socket
import sys
import time

import numpy as np

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def simulate(rng, count, days=128):
    moves = rng.standard_normal((count, days)) * 0.2 / np.sqrt(days) - 0.02 / days
    return np.exp(np.cumsum(moves, axis=1))


def bar(done, total, began, price):
    filled = "█" * (20 * done // total) + " " * (20 - 20 * done // total)
    spent = time.time() - began
    end = "\n" if done == total else ""
    sys.stderr.write(
        f"\rpricing: {100 * done // total:3d}%|{filled}| {done}/{total} "
        f"[{spent:05.2f}<{spent / done * (total - done):05.2f}, price={price:.4f}]{end}"
    )
    sys.stderr.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=25)
    args = parser.parse_args()
    rng, began, payoffs = np.random.default_rng(), time.time(), []
    for number in range(args.rounds):
        for _ in range(3):
            paths = simulate(rng, 8000)
            payoffs.append(np.maximum(paths.mean(axis=1) - 1, 0).mean())
        bar(number + 1, args.rounds, began, np.mean(payoffs))
    mine = [float(np.sum(payoffs)), len(payoffs)]
    address = os.environ.get("MASTER_ADDR", "localhost"), int(os.environ.get("MASTER_PORT", 9000))
    if RANK:
        for _ in range(600):
            try:
                with socket.create_connection(address, timeout=60) as connection:
                    connection.sendall(json.dumps(mine).encode() + b"\n")
                    if connection.makefile().readline().strip() == "thanks":
                        return 0
            except OSError:
                time.sleep(0.1)
        print("rank 0 has not taken the result", file=sys.stderr)
        return 1
    with socket.create_server(address, backlog=WORLD) as server:
        server.settimeout(120)
        waiting = WORLD - 1
        while waiting:
            connection, _ = server.accept()
            with connection:
                line = connection.makefile().readline()
                if line.endswith("\n"):
                    mine = [a + b for a, b in zip(mine, json.loads(line), strict=True)]
                    waiting -= 1
                    connection.sendall(b"thanks\n")
    price = mine[0] / mine[1]
    with open("output/price.json", "w") as f:
        json.dump({"price": price, "paths": 8000 * mine[1]}, f)
    print(f"option price {price:.5f} of {8000 * mine[1]} paths")
    return 0


if __name__ == "__main__":
    sys.exit(main())
