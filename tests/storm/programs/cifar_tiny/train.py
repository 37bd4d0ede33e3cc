import argparse
import os
import time

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn


class Textures(paddle.io.Dataset):
    """Little pictures of four kinds of stripes."""

    def __init__(self, count, seed):
        rng = np.random.RandomState(seed)
        self.labels = rng.randint(0, 4, count)
        angle = self.labels * np.pi / 4 + rng.normal(0, 0.25, count)
        x, y = np.meshgrid(np.arange(16), np.arange(16))
        wave = np.cos(angle)[:, None, None] * x + np.sin(angle)[:, None, None] * y
        phase = rng.uniform(0, 6.3, count)[:, None, None]
        images = np.sin(wave * 0.9 + phase) + rng.normal(0, 0.6, (count, 16, 16))
        self.images = images[:, None].astype("float32")

    def __getitem__(self, i):
        return self.images[i], self.labels[i]

    def __len__(self):
        return len(self.labels)


def network():
    return nn.Sequential(
        nn.Conv2D(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2D(2),
        nn.Conv2D(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2D(2),
        nn.Flatten(),
        nn.Linear(32 * 16, 4),
    )


def save(path, **states):
    for suffix, state in states.items():
        paddle.save(state, f"{path}.{suffix}.tmp")
        os.replace(f"{path}.{suffix}.tmp", f"{path}.{suffix}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--checkpoint", default=None)
    args = parser.parse_args()
    dist.init_parallel_env()
    paddle.seed(2024)

    train = Textures(768, seed=0)
    sampler = paddle.io.DistributedBatchSampler(train, batch_size=64, shuffle=True)
    loader = paddle.io.DataLoader(train, batch_sampler=sampler)
    model = network()
    optimizer = paddle.optimizer.Momentum(
        learning_rate=0.08, momentum=0.9, parameters=model.parameters()
    )
    start_epoch = 0
    if args.checkpoint:
        model.set_state_dict(paddle.load(args.checkpoint + ".pdparams"))
        optimizer.set_state_dict(paddle.load(args.checkpoint + ".pdopt"))
        start_epoch = int(args.checkpoint.rsplit("_", 1)[1])
        print(f"resume from {args.checkpoint}, epoch {start_epoch}", flush=True)
    schedule = paddle.optimizer.lr.CosineAnnealingDecay(0.08, T_max=args.epochs * len(loader))
    optimizer.set_lr_scheduler(schedule)
    parallel = paddle.DataParallel(model)

    for epoch in range(start_epoch, args.epochs):
        sampler.set_epoch(epoch)
        parallel.train()
        began = time.time()
        for i, (images, labels) in enumerate(loader):
            loss = nn.functional.cross_entropy(parallel(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            schedule.step()
            if dist.get_rank() == 0:
                cost = (time.time() - began) / (i + 1)
                print(
                    f"epoch: [{epoch + 1}/{args.epochs}] iter: {i} loss: {float(loss):.5f} "
                    f"lr: {optimizer.get_lr():.6f} avg_batch_cost: {cost:.3f} s",
                    flush=True,
                )
        if dist.get_rank() == 0:
            save(
                f"output/epoch_{epoch + 1}",
                pdopt=optimizer.state_dict(),
                pdparams=model.state_dict(),
            )
    if dist.get_rank() == 0:
        model.eval()
        test = Textures(1500, seed=1)
        scores = model(paddle.to_tensor(test.images))
        loss = nn.functional.cross_entropy(scores, paddle.to_tensor(test.labels))
        top1 = (scores.numpy().argmax(1) == test.labels).mean()
        print(f"best metric, top1: {top1:.5f}, val_loss: {float(loss):.5f}", flush=True)


if __name__ == "__main__":
    main()
