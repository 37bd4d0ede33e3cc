"""Writes a table with a row for each step, output/history.csv, which is what its users read."""

import argparse
import csv
import json
import os
import random
import time
import uuid
from pathlib import Path

STEPS = 40
FIELDS = ["step", "estimate"]


def restore():
    for path in sorted(Path("output").glob("state-*.json"), reverse=True):
        try:
            return json.loads(path.read_text())
        except ValueError:
            print(f"{path} cannot be read", flush=True)
    return {"step": 0, "inside": 0, "rows": []}


def save(state):
    path = Path(f"output/state-{state['step']:03d}.json")
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(state))
    draft.replace(path)
    for old in sorted(Path("output").glob("state-*.json"))[:-3]:
        old.unlink()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rewrite", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    run = uuid.uuid4()
    print(f"run {run} of {os.getpid()}", flush=True)
    Path(f"output/run-{run}.json").write_text(json.dumps({"started": time.time()}))
    state = restore()
    with open("output/history.csv", "w", newline="") as file:
        table = csv.DictWriter(file, FIELDS)
        table.writeheader()
        if options.rewrite:
            table.writerows(state["rows"])
        while state["step"] < STEPS:
            state["step"] += 1
            rng = random.Random(state["step"])
            state["inside"] += sum(rng.random() ** 2 + rng.random() ** 2 < 1 for _ in range(9000))
            row = {"step": state["step"], "estimate": 4 * state["inside"] / 9000 / state["step"]}
            state["rows"].append(row)
            table.writerow(row)
            file.flush()
            print(f"step {row['step']}: pi is {row['estimate']:.6f}", flush=True)
            if state["step"] % 4 == 0:
                save(state)
            time.sleep(0.03)
    print(f"result: {state['rows'][-1]['estimate']:.9f}", flush=True)


main()
