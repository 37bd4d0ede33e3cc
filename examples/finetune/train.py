"""Plain Paddle that makes its own data: a small network tells the arms of a spiral apart. With
`--weights` it continues from parameters that were trained before.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn


def points(count: int, noise: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns points of two arms, and the arm of each."""
    chance = np.random.default_rng(seed)
    turn, arm = chance.uniform(0.4, 2.6, count), np.arange(count) % 2
    angle = turn * 3 + np.pi * arm
    place = np.stack([turn * np.cos(angle), turn * np.sin(angle)], 1)
    return (place + chance.normal(0, noise, place.shape)).astype("float32"), arm


def main() -> None:
    """Trains, and saves the parameters to output/model.pdparams."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", type=Path, help="parameters to begin with")
    parser.add_argument("--names", type=Path, help="a file with the arms' names")
    parser.add_argument("--noise", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=150)
    arguments = parser.parse_args()
    names = arguments.names.read_text().split() if arguments.names else ["0", "1"]
    dist.init_parallel_env()
    paddle.seed(1)
    layers = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
    layers.add_sublayer("head", nn.Linear(64, len(names)))
    if arguments.weights:
        layers.set_state_dict(paddle.load(str(arguments.weights)))
    model = paddle.DataParallel(layers)
    optimizer = paddle.optimizer.Adam(0.01, parameters=layers.parameters())
    losses = []
    for step in range(arguments.steps):
        seen, arms = points(100, arguments.noise, step * dist.get_world_size() + dist.get_rank())
        loss = nn.functional.cross_entropy(model(paddle.to_tensor(seen)), paddle.to_tensor(arms))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
        if dist.get_rank() == 0 and step % 10 == 0:
            print(f"step {step}, loss {losses[-1]:.4f}", flush=True)
    if dist.get_rank() == 0:
        paddle.save(layers.state_dict(), "output/model.pdparams")
        result = {"names": names, "first_loss": losses[0], "last_loss": losses[-1]}
        Path("output/result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
