"""Cart on a hill by fitted Q-learning; actors in all workers explore at random, without a seed."""

import logging
import os
import re
import socket
import sys
import time

import numpy as np

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
logging.basicConfig(stream=sys.stderr, level=logging.INFO if rank == 0 else logging.WARNING)
log = logging.getLogger("q")
ITERATIONS, SAVE = 40, 5


def features(state, centres):
    return np.exp(-(((state[:, None] - centres) / [0.25, 0.02]) ** 2).sum(-1))


def move(state, action):
    position, speed = state[:, 0], state[:, 1]
    speed = np.clip(speed + 0.001 * (action - 1) - 0.0025 * np.cos(3 * position), -0.07, 0.07)
    position = np.clip(position + speed, -1.2, 0.6)
    speed = np.where(position == -1.2, 0, speed)
    return np.stack([position, speed], 1), position >= 0.5


class Ring:
    """Everybody tells the first, and hears from it."""

    def __init__(self):
        where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        if rank == 0:
            door = socket.create_server(where, backlog=world)
            door.settimeout(120)
            self.others = [door.accept()[0] for _ in range(world - 1)]
            door.close()
        else:
            until = time.monotonic() + 120
            while True:
                try:
                    self.others = [socket.create_connection(where)]
                    break
                except ConnectionError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.1)
        for other in self.others:
            other.settimeout(120)
            other.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def hear(self, other, size):
        got = bytearray()
        while len(got) < size:
            some = other.recv(size - len(got))
            if not some:
                raise ConnectionAbortedError("a worker has left")
            got.extend(some)
        return np.frombuffer(bytes(got))

    def sum(self, x):
        flat = np.ascontiguousarray(x).ravel()
        if rank:
            self.others[0].sendall(flat.tobytes())
            return self.hear(self.others[0], flat.nbytes).reshape(x.shape)
        for other in self.others:
            flat = flat + self.hear(other, flat.nbytes)
        for other in self.others:
            other.sendall(flat.tobytes())
        return flat.reshape(x.shape)


def checkpoints():
    names = [n for n in os.listdir("output") if re.fullmatch(r"q-\d{4}\.npy", n)]
    return [os.path.join("output", n) for n in sorted(names)]


def load(centres):
    for path in reversed(checkpoints()):
        try:
            table = np.load(path)
        except (ValueError, EOFError, OSError) as error:
            log.warning("%s cannot be read: %s", path, error)
            continue
        if table.shape == (3, len(centres)):
            return int(path[-8:-4]), table
    return 0, np.zeros((3, len(centres)))


def evaluate(q, centres):
    starts = np.random.default_rng(1).uniform([-0.6, 0], [-0.4, 0.0001], (50, 2))
    state, alive, length = starts, np.ones(50, bool), np.full(50, 200.0)
    for t in range(200):
        action = (features(state, centres) @ q.T).argmax(1)
        state, done = move(state, action)
        length[alive & done] = t + 1
        alive &= ~done
    return length.mean()


def main():
    grid = np.meshgrid(np.linspace(-1.2, 0.6, 12), np.linspace(-0.07, 0.07, 9))
    centres = np.stack(grid, -1).reshape(-1, 2)
    begin, q = load(centres)
    ring = Ring()
    # All of them go on from what the first has read.
    begin = int(ring.sum(np.array([float(begin) if rank == 0 else 0.0]))[0])
    q = ring.sum(q if rank == 0 else q * 0)
    if begin:
        log.info("continuing after iteration %d", begin)
    rng = np.random.default_rng()
    for iteration in range(begin, ITERATIONS):
        for _ in range(3):
            state = rng.uniform([-1.2, -0.07], [0.6, 0.07], (1000, 2))
            phi = features(state, centres)
            phi = phi / (phi.sum(1, keepdims=True) + 1e-9)
            action = rng.integers(0, 3, 1000)
            after, done = move(state, action)
            psi = features(after, centres)
            psi = psi / (psi.sum(1, keepdims=True) + 1e-9)
            target = -1 + 0.98 * np.where(done, 0, (psi @ q.T).max(1))
            moments = np.zeros((2, *q.shape))
            for a in range(3):
                chosen = action == a
                error = target[chosen] - phi[chosen] @ q[a]
                moments[:, a] = phi[chosen].T @ error, phi[chosen].sum(0)
            moments = ring.sum(moments)
            q = q + 0.9 * moments[0] / (moments[1] + 1e-3)
        if rank == 0:
            log.info("iteration %d of %d, mean q %.3f", iteration + 1, ITERATIONS, q.mean())
            if (iteration + 1) % SAVE == 0:
                name = f"output/q-{iteration + 1:04d}.npy"
                with open(name + ".part", "wb") as f:
                    np.save(f, q)
                    f.flush()
                    os.fsync(f.fileno())
                os.rename(name + ".part", name)
                for old in checkpoints()[:-3]:
                    os.remove(old)
        time.sleep(0.03)
    if rank == 0:
        log.info("mean steps to the goal: %.2f", evaluate(q, centres))


if __name__ == "__main__":
    main()
