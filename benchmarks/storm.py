"""How many planted faults a storm finds, and how many sound programs it blames, over the programs
of tests/storm/programs: `python benchmarks/storm.py [--seed N] [--runs K] [NAME...]`.

The programs were written by somebody who had not seen the verdict's code. Prints a line for each
program, with its minutes, and the counts of missed faults and false alarms, as they are.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

PROGRAMS = Path(__file__).resolve().parents[1] / "tests/storm/programs"


def main() -> None:
    """Storms each program in a folder of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", default="1")
    parser.add_argument("--runs", default="5")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    planted = yaml.safe_load(PROGRAMS.with_suffix(".yaml").read_text())
    missed, alarms, storms = [], [], 0
    for name in arguments.names or planted:
        with tempfile.TemporaryDirectory() as folder:
            program, _, job = name.partition("/")
            place = Path(folder, program)
            shutil.copytree(PROGRAMS / program, place)
            began = time.monotonic()
            words = [sys.executable, "-P", "-m", "paddle_aws.operations.main", "storm"]
            words += [
                f"{job or 'job'}.yaml",
                "--seed",
                arguments.seed,
                "--runs",
                arguments.runs,
                "--no-shrink",
            ]
            done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)
            minutes = (time.monotonic() - began) / 60
            storms += 1
            sound = planted[name]["fault"] == "sound"
            if done.returncode != (0 if sound else 1):
                (alarms if sound else missed).append(name)
            outcome = done.stderr.strip()
            receipt = place / ".storm/receipt.json"
            if receipt.is_file():
                document = json.loads(receipt.read_text())
                runs = document["calm"]["runs"] + document["runs"]
                sentences = [finding["sentence"] for run in runs for finding in run["findings"]]
                outcome = sentences[0] if sentences else "as undisturbed"
            print(
                f"{name}: {planted[name]['fault']}: exit {done.returncode}, {minutes:.1f} min: "
                f"{outcome[:160]}",
                flush=True,
            )
    print(f"{storms} programs; missed: {missed or 'none'}; false alarms: {alarms or 'none'}")


if __name__ == "__main__":
    main()
