"""Two ranks with a generator each; a rank saves its own state, and rank 0 the weights."""

import argparse
import os
import time
from multiprocessing.connection import Client, Listener

import numpy as np

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEPS, EVERY = 40, 5


def connect():
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if RANK == 0:
        with Listener(address, backlog=WORLD) as listener:
            return [listener.accept() for _ in range(WORLD - 1)]
    for _ in range(1200):
        try:
            return [Client(address)]
        except OSError:
            time.sleep(0.1)
    raise SystemExit("rank 0 is not there")


def receive(link):
    if not link.poll(120):
        raise SystemExit("a rank says nothing")
    return link.recv()


def share(links, value, combine):
    if RANK:
        links[0].send(value)
        return receive(links[0])
    result = combine([value, *map(receive, links)])
    for link in links:
        link.send(result)
    return result


def save(name, state):
    draft = f"output/.{name}.{RANK}"
    with open(draft, "wb") as file:
        np.savez(file, **state)
    os.replace(draft, f"output/{name}.npz")


def load(step, name):
    try:
        with np.load(f"output/{name}.npz", allow_pickle=True) as file:
            return dict(file)
    except Exception as error:
        print(f"rank {RANK}: step {step}: {error}", flush=True)
        return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--one-state", action="store_true")
    one = parser.parse_args().one_state
    pattern = "step{step}" if one else "step{step}-rank{rank}"
    links = connect()
    w, begin, rng = np.zeros(50), 0, np.random.default_rng(RANK)
    for step in range(STEPS, 0, -EVERY):
        name = pattern.format(step=step, rank=RANK)
        state = load(step, name) if os.path.exists(f"output/{name}.npz") else None
        if share(links, state is not None and int(state["step"]) == step, all):
            w, begin = state["w"], step
            rng.bit_generator.state = state["generator"].item()
            break
    truth = np.random.default_rng(99).normal(0, 1, 50)
    for step in range(begin + 1, STEPS + 1):
        x = rng.normal(0, 1, (150, 50))
        error = x @ w - x @ truth - rng.normal(0, 1, 150)
        w = w - 0.2 * share(links, x.T @ error / 150, lambda all_ranks: sum(all_ranks) / WORLD)
        loss = share(links, float((error**2).mean()), lambda all_ranks: sum(all_ranks) / WORLD)
        if RANK == 0:
            print(f"step={step} loss={loss:.6f}", flush=True)
        if step % EVERY == 0:
            generator = np.array(rng.bit_generator.state, dtype=object)
            state = {"w": w, "step": step, "generator": generator}
            save(pattern.format(step=step, rank=RANK), state)
            share(links, True, all)
        time.sleep(0.03)
    if RANK == 0:
        print(f"squared distance={((w - truth) ** 2).sum():.8f}", flush=True)


main()
