import argparse

import numpy as np
from comm import Communicator
from engine import Checkpointer

SIZE = 24


def pictures(count, rng):
    """Bright discs on a noisy ground, and their masks."""
    y, x = np.mgrid[:SIZE, :SIZE]
    cx, cy = rng.uniform(5, 19, (2, count, 1, 1))
    r = rng.uniform(3, 7, (count, 1, 1))
    mask = ((x - cx) ** 2 + (y - cy) ** 2 < r**2).astype(float)
    return mask + rng.normal(0, 0.7, mask.shape), mask


def patches(image):
    padded = np.pad(image, ((0, 0), (3, 3), (3, 3)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (7, 7), axis=(1, 2))
    return windows.reshape(-1, 49)


def forward(x, p):
    h = np.maximum(x @ p["w1"] + p["b1"], 0)
    return h, 1 / (1 + np.exp(-(h @ p["w2"] + p["b2"])))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iters", type=int, default=40)
    parser.add_argument("--save_interval", type=int, default=8)
    parser.add_argument("--learning_rate", type=float, default=0.3)
    args = parser.parse_args()
    comm = Communicator()
    store = Checkpointer("output/checkpoints")
    rng = np.random.default_rng(0)
    p = {
        "w1": rng.normal(0, 0.14, (49, 32)),
        "b1": np.zeros(32),
        "w2": rng.normal(0, 0.2, (32, 1)),
        "b2": np.zeros(1),
    }
    v = {"v_" + name: np.zeros_like(value) for name, value in p.items()}
    start = np.zeros(1)
    if comm.rank == 0 and (good := store.load()):
        arrays, meta = good
        p = {name: arrays[name] for name in p}
        v = {name: arrays[name] for name in v}
        start[0] = meta["iter"]
        print(f"resume from iter {meta['iter']}")
    start = int(comm.from_first(start)[0])
    p = {name: comm.from_first(value) for name, value in p.items()}
    v = {name: comm.from_first(value) for name, value in v.items()}

    for it in range(start, args.iters):
        lr = args.learning_rate * (1 - it / args.iters) ** 0.9
        image, mask = pictures(80, np.random.default_rng([it, comm.rank]))
        x, t = patches(image), mask.reshape(-1, 1)
        h, y = forward(x, p)
        d = (y - t) / len(t)
        back = (d @ p["w2"].T) * (h > 0)
        grads = {"w1": x.T @ back, "b1": back.sum(0), "w2": h.T @ d, "b2": d.sum(0)}
        for name, g in grads.items():
            v["v_" + name] = 0.9 * v["v_" + name] + comm.mean(g)
            p[name] = p[name] - lr * v["v_" + name]
        if comm.rank == 0:
            loss = -np.log(np.where(t == 1, y, 1 - y) + 1e-9).mean()
            print(f"[TRAIN] iter: {it + 1}/{args.iters}, loss: {loss:.4f}, lr: {lr:.6f}")
            if (it + 1) % args.save_interval == 0 or it + 1 == args.iters:
                store.save(it + 1, {**p, **v}, {"iter": it + 1})
    if comm.rank == 0:
        image, mask = pictures(200, np.random.default_rng(77))
        guess = forward(patches(image), p)[1].reshape(mask.shape) > 0.5
        iou = (guess & (mask > 0)).sum() / (guess | (mask > 0)).sum()
        print(f"[EVAL] IoU: {iou:.6f}")


if __name__ == "__main__":
    main()
