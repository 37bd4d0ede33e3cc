"""House prices with the fleet API; saves every few steps, also in the middle of an epoch."""

import argparse
import glob
import os
import re

import numpy as np
import paddle
from paddle.distributed import fleet


def houses(count, seed):
    rng = np.random.RandomState(seed)
    x = rng.rand(count, 10).astype("float32")
    y = 3 * x[:, 0] * x[:, 1] + np.sin(6 * x[:, 2]) + x[:, 3:6].sum(1) + rng.normal(0, 0.1, count)
    return x, y.astype("float32")[:, None]


def newest():
    files = glob.glob("output/model_step*.pdckpt")
    return max(files, key=lambda f: int(re.search(r"step(\d+)", f)[1]), default=None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch_size", type=int, default=128)
    args = parser.parse_args()
    fleet.init(is_collective=True)
    rank, world = fleet.worker_index(), fleet.worker_num()
    paddle.seed(100 + rank)  # dropout differs by rank; parameters are broadcast from rank 0
    net = paddle.nn.Sequential(
        paddle.nn.Linear(10, 256),
        paddle.nn.ReLU(),
        paddle.nn.Dropout(0.1),
        paddle.nn.Linear(256, 256),
        paddle.nn.ReLU(),
        paddle.nn.Linear(256, 1),
    )
    x, y = houses(2048, seed=0)
    steps = len(x) // (args.batch_size * world)
    schedule = paddle.optimizer.lr.LinearWarmup(
        paddle.optimizer.lr.PolynomialDecay(5e-3, args.epochs * steps), 5, 0.0, 5e-3
    )
    adam = paddle.optimizer.Adam(schedule, parameters=net.parameters())
    begin = 0
    checkpoint = newest()
    if checkpoint:
        state = paddle.load(checkpoint)
        net.set_state_dict(state["net"])
        adam.set_state_dict(state["adam"])
        begin = state["step"]
        print(f"rank {rank}: {checkpoint} loaded")
    model = fleet.distributed_model(net)
    optimizer = fleet.distributed_optimizer(adam)
    for step in range(begin, args.epochs * steps):
        epoch, batch = divmod(step, steps)
        order = np.random.RandomState(epoch).permutation(len(x))
        mine = order[(batch * world + rank) * args.batch_size :][: args.batch_size]
        # The dropout of a step depends on nothing but the step and the rank.
        paddle.seed(1000 * step + rank)
        model.train()
        for _ in range(4):
            loss = paddle.nn.functional.mse_loss(
                model(paddle.to_tensor(x[mine])), paddle.to_tensor(y[mine])
            )
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
        schedule.step()
        if rank == 0:
            print(
                f"Epoch {epoch}, batch {batch}, step {step + 1}: mse {loss.item():.6f} "
                f"(lr {optimizer.get_lr():.6f})"
            )
            if (step + 1) % 6 == 0:
                name = f"output/model_step{step + 1}.pdckpt"
                paddle.save(
                    {"net": net.state_dict(), "adam": adam.state_dict(), "step": step + 1},
                    name + ".writing",
                )
                os.replace(name + ".writing", name)
    if rank == 0:
        net.eval()
        x, y = houses(2000, seed=1)
        guess = net(paddle.to_tensor(x)).numpy()
        print(f"test rmse {np.sqrt(((guess - y) ** 2).mean()):.6f}")


if __name__ == "__main__":
    main()
