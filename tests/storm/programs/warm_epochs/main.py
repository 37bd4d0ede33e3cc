"""The rate falls by a fifth with each epoch; checkpoints come in the middle of epochs."""

import json
import os
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime

import numpy as np

EPOCHS, BATCHES = 6, 8
STEPS_AGAIN = os.environ.get("SCHEDULE") == "at-each-start"


@dataclass
class State:
    step: int = 0
    rate: float = 0.25
    weights: list = field(default_factory=lambda: [0.0] * 20)


def restore() -> State:
    for name in ("state.json", "state.json.bak"):
        try:
            with open(f"output/{name}") as file:
                return State(**json.load(file)["state"])
        except FileNotFoundError:
            continue
        except ValueError as error:
            print(f"{name}: {error}", flush=True)
    return State()


def keep(state: State, began: datetime) -> None:
    now = datetime.now(UTC)
    document = {
        "saved": now.isoformat(),
        "seconds": (now - began).total_seconds(),
        "host": os.uname().nodename,
        "pid": os.getpid(),
        "state": asdict(state),
    }
    with open("output/state.json.new", "w") as file:
        json.dump(document, file, indent=1)
    if os.path.exists("output/state.json"):
        os.replace("output/state.json", "output/state.json.bak")
    os.replace("output/state.json.new", "output/state.json")


def main() -> None:
    began, state = datetime.now(UTC), restore()
    rng = np.random.default_rng(2)
    x = rng.normal(0, 1, (BATCHES, 100, 20))
    y = x @ rng.normal(0, 1, 20) + rng.normal(0, 0.5, (BATCHES, 100))
    weights = np.array(state.weights)
    for epoch in range(state.step // BATCHES, EPOCHS):
        if STEPS_AGAIN or state.step % BATCHES == 0:
            state.rate *= 0.8
        for batch in range(state.step % BATCHES, BATCHES):
            error = x[batch] @ weights - y[batch]
            weights = weights - state.rate * x[batch].T @ error / 100
            state.step += 1
            left = (datetime.now(UTC) - began) / state.step * (EPOCHS * BATCHES - state.step)
            print(
                f"epoch {epoch}: batch {batch}: step {state.step}: loss {(error**2).mean():.5f} "
                f"eta {left}",
                flush=True,
            )
            if state.step % 3 == 0:
                state.weights = weights.tolist()
                keep(state, began)
            time.sleep(0.03)
    print(f"training error {((x @ weights - y) ** 2).mean():.8f}", flush=True)


main()
