"""A small convolutional network; one checkpoint an epoch, `--resume` names one without suffix."""

import argparse
import json
from pathlib import Path

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn
from paddle.io import DataLoader, DistributedBatchSampler, TensorDataset


def shapes(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Crosses, bars and squares at random places of a noisy picture."""
    rng = np.random.default_rng(seed)
    images = rng.normal(0, 0.3, (count, 1, 16, 16)).astype("float32")
    labels = rng.integers(0, 3, count)
    for image, label, (y, x) in zip(images, labels, rng.integers(2, 11, (count, 2)), strict=True):
        if label != 1:
            image[0, y : y + 4, x + 1] += 1
        if label != 2:
            image[0, y + 1, x : x + 4] += 1
    return images, labels


def save(state: dict, path: Path) -> None:
    draft = path.with_name(path.name + ".tmp")
    paddle.save(state, str(draft))
    draft.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--resume", type=Path)
    arguments = parser.parse_args()
    dist.init_parallel_env()
    rank = dist.get_rank()
    paddle.seed(42)
    layers = nn.Sequential(
        nn.Conv2D(1, 12, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2D(2),
        nn.Conv2D(12, 24, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2D(2),
        nn.Flatten(),
        nn.Linear(96, 3),
    )
    images, labels = shapes(960, seed=1)
    data = TensorDataset([paddle.to_tensor(images), paddle.to_tensor(labels)])
    sampler = DistributedBatchSampler(data, batch_size=60, shuffle=True, drop_last=True)
    loader = DataLoader(data, batch_sampler=sampler, num_workers=0)
    rate = paddle.optimizer.lr.PiecewiseDecay(
        [4 * len(loader), 6 * len(loader)], [1e-2, 3e-3, 1e-3]
    )
    optimizer = paddle.optimizer.AdamW(rate, parameters=layers.parameters())
    first = 0
    if arguments.resume is not None:
        layers.set_state_dict(paddle.load(f"{arguments.resume}.pdparams"))
        # Has the schedule's position as well.
        optimizer.set_state_dict(paddle.load(f"{arguments.resume}.pdopt"))
        first = int(arguments.resume.name.removeprefix("epoch-")) + 1
        print(f"resuming with epoch {first}", flush=True)
    model = paddle.DataParallel(layers)
    for epoch in range(first, arguments.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for number, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            rate.step()
            if rank == 0:
                shown = {
                    "epoch": epoch,
                    "batch": number,
                    "global_step": epoch * len(loader) + number,
                    "loss": round(float(loss), 6),
                    "lr": optimizer.get_lr(),
                }
                print(json.dumps(shown), flush=True)
        if rank == 0:
            # The parameters last: by them a resume finds the epoch.
            save(optimizer.state_dict(), Path(f"output/epoch-{epoch:03d}.pdopt"))
            save(layers.state_dict(), Path(f"output/epoch-{epoch:03d}.pdparams"))
    if rank == 0:
        layers.eval()
        images, labels = shapes(1500, seed=2)
        scores = layers(paddle.to_tensor(images))
        loss = nn.functional.cross_entropy(scores, paddle.to_tensor(labels))
        accuracy = float((scores.numpy().argmax(1) == labels).mean())
        result = {"accuracy": round(accuracy, 4), "val_loss": round(float(loss), 6)}
        Path("output/result.json").write_text(json.dumps(result))
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
