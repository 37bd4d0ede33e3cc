"""Variational autoencoder; a checkpoint has parameters, Adam, step, and each rank's generator."""

import glob
import os
import sys
import time

import numpy as np
import paddle
import paddle.distributed as dist
import paddle.nn.functional as F
from paddle import nn

STEPS, SAVE_EVERY, BATCH = int(os.environ.get("STEPS", 40)), 8, 96


class VAE(nn.Layer):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(144, 400), nn.ReLU(), nn.Linear(400, 16))
        self.decode = nn.Sequential(nn.Linear(8, 400), nn.ReLU(), nn.Linear(400, 144))

    def forward(self, x, noise):
        mean, spread = self.encode(x).split(2, axis=1)
        y = self.decode(mean + paddle.exp(spread / 2) * noise)
        kl = -0.5 * (1 + spread - mean**2 - paddle.exp(spread)).sum(1).mean()
        return F.binary_cross_entropy_with_logits(y, x, reduction="sum") / len(x) + kl


def blobs(rng, count):
    y, x = np.mgrid[:12, :12]
    cx, cy, r = rng.uniform(2, 10, (3, count, 1, 1))
    picture = np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / (1 + r))
    return picture.reshape(count, 144).astype("float32")


def write(state, path):
    paddle.save(state, path + ".tmp")
    with open(path + ".tmp", "rb") as f:
        os.fsync(f.fileno())
    os.replace(path + ".tmp", path)


def read():
    """The newest checkpoint that can be loaded; all ranks' parts of a step have to be there."""
    for path in sorted(glob.glob("output/vae-*.pdckpt"), reverse=True):
        try:
            return path, paddle.load(path, return_numpy=True)
        except Exception as error:
            print(f"skipping {path}: {error}", file=sys.stderr)
    return None, None


def main():
    dist.init_parallel_env()
    rank = dist.get_rank()
    paddle.seed(0)
    vae = VAE()
    adam = paddle.optimizer.Adam(3e-3, parameters=vae.parameters())
    rng = np.random.RandomState(1 + rank)
    begin = 0
    path, state = read()
    if path:
        vae.set_state_dict(state["vae"])
        adam.set_state_dict(state["adam"])
        begin = int(state["step"])
        keys, position = state["keys"][rank], int(state["positions"][rank])
        rng.set_state(("MT19937", keys.astype("uint32"), position))
        print(f"\nrestored {path}", flush=True)
    model = paddle.DataParallel(vae)
    began = time.time()
    for step in range(begin, STEPS):
        for _ in range(6):
            x = paddle.to_tensor(blobs(rng, BATCH))
            # uniform numbers only: the generator keeps no half of a pair of normal ones
            u, v = rng.rand(2, BATCH, 8)
            noise = np.sqrt(-2 * np.log(u + 1e-12)) * np.cos(2 * np.pi * v)
            loss = model(x, paddle.to_tensor(noise.astype("float32")))
            loss.backward()
            adam.step()
            adam.clear_grad()
        if rank == 0:
            spent = time.time() - began
            sys.stderr.write(
                f"\r{100 * (step + 1) // STEPS:3d}%|{'#' * ((step + 1) // 2):<20}| "
                f"{step + 1}/{STEPS} [{spent:.1f}s, {(step + 1 - begin) / spent:.2f}it/s, "
                f"elbo={-float(loss):.4f}]"
            )
        if (step + 1) % SAVE_EVERY == 0:
            _, keys, position, _, _ = rng.get_state()
            all_keys, positions = [], []
            dist.all_gather(all_keys, paddle.to_tensor(keys.astype("int64")))
            dist.all_gather(positions, paddle.to_tensor([position]))
            if rank == 0:
                state = {
                    "vae": vae.state_dict(),
                    "adam": adam.state_dict(),
                    "step": step + 1,
                    "keys": [k.numpy() for k in all_keys],
                    "positions": [p.item() for p in positions],
                }
                write(state, f"output/vae-{step + 1:04d}.pdckpt")
                for old in sorted(glob.glob("output/vae-*.pdckpt"))[:-2]:
                    os.remove(old)
    if rank == 0:
        vae.eval()
        test = np.random.RandomState(9)
        x, noise = blobs(test, 800), test.randn(800, 8).astype("float32")
        loss = vae(paddle.to_tensor(x), paddle.to_tensor(noise))
        print(f"\nnegative elbo on test data: {float(loss):.5f}", flush=True)


if __name__ == "__main__":
    main()
