"""Plain Paddle, for one machine or many: a small network tells two spirals apart. It knows nothing
of this project.

Promises: all ranks together use each training record once per epoch (counted, and logged in
epochs.jsonl) if the ranks divide the records; each epoch's model and optimizer have separate names;
`--resume` continues exactly after their epoch.
"""

import argparse
import json
import re
from pathlib import Path

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn
from paddle.io import DataLoader, Dataset, DistributedBatchSampler

HOLD_OUT = 9
"""Every ninth record is kept for the metric."""


class Points(Dataset):
    """Records with their numbers."""

    def __init__(self, rows: np.ndarray) -> None:
        super().__init__()
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> tuple[int, np.ndarray, np.int64]:
        return number, self.rows[number, :2].astype("float32"), np.int64(self.rows[number, 2])


def save(state: dict, path: Path) -> None:
    """Saves the whole file or nothing."""
    draft = path.with_suffix(".draft")
    paddle.save(state, str(draft))
    draft.replace(path)


def main() -> None:
    """Trains, and prints one line of JSON with the metric."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True, help="a folder of lines x,y,class")
    parser.add_argument("--output", type=Path, default=Path("output"))
    parser.add_argument("--resume", type=Path, help="a saved epoch, without its suffix")
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()
    dist.init_parallel_env()
    rank = dist.get_rank()
    paddle.seed(1)
    files = sorted(path for path in arguments.data.rglob("*") if path.is_file())
    rows = np.concatenate([np.loadtxt(path, delimiter=",", ndmin=2) for path in files])
    held_out = np.arange(len(rows)) % HOLD_OUT == 0
    train, test = Points(rows[~held_out]), Points(rows[held_out])

    layers = nn.Sequential(
        nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
    )
    optimizer = paddle.optimizer.Adam(0.01, parameters=layers.parameters())
    first = 0
    if arguments.resume:
        layers.set_state_dict(paddle.load(f"{arguments.resume}.pdparams"))
        optimizer.set_state_dict(paddle.load(f"{arguments.resume}.pdopt"))
        first = int(re.findall(r"\d+", arguments.resume.name)[-1]) + 1
    model = paddle.DataParallel(layers)
    sampler = DistributedBatchSampler(train, batch_size=20, shuffle=True)
    loader = DataLoader(train, batch_sampler=sampler, num_workers=0)
    arguments.output.mkdir(exist_ok=True)
    for epoch in range(first, arguments.epochs):
        sampler.set_epoch(epoch)
        used, losses = np.zeros(len(train), "int64"), []
        for numbers, points, labels in loader:
            loss = nn.functional.cross_entropy(model(points), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            np.add.at(used, numbers.numpy().ravel(), 1)
            losses.append(float(loss))
        times = paddle.to_tensor(used)
        if dist.get_world_size() > 1:
            dist.all_reduce(times)
        if rank == 0:
            entry = {
                "epoch": epoch,
                "records": int(times.sum()),
                "least": int(times.min()),
                "most": int(times.max()),
            }
            with (arguments.output / "epochs.jsonl").open("a") as log:
                log.write(
                    json.dumps(
                        entry
                        | {"ranks": dist.get_world_size(), "loss": round(float(np.mean(losses)), 5)}
                    )
                    + "\n"
                )
            save(optimizer.state_dict(), arguments.output / f"epoch-{epoch:03d}.pdopt")
            save(layers.state_dict(), arguments.output / f"epoch-{epoch:03d}.pdparams")
            print(
                f"epoch {epoch}: {entry['records']} records, loss {np.mean(losses):.4f}", flush=True
            )
    if rank == 0:
        layers.eval()
        guesses = (
            layers(paddle.to_tensor(test.rows[:, :2].astype("float32"))).numpy().argmax(axis=1)
        )
        epochs = [
            json.loads(line)["loss"]
            for line in (arguments.output / "epochs.jsonl").read_text().splitlines()
        ]
        result = {"accuracy": round(float((guesses == test.rows[:, 2]).mean()), 4), "baseline": 0.5}
        (arguments.output / "result.json").write_text(json.dumps(result))
        print(json.dumps(result | {"first_loss": epochs[0], "last_loss": epochs[-1]}), flush=True)


if __name__ == "__main__":
    main()
