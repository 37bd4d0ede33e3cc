"""How long a job's manifests take, and how they grow with the number of trainers, beside cdk8s
doing nothing.

`python benchmarks/manifests.py [--rounds N]` measures, each round in a process of its own:

* nothing: cdk8s starts (Node and all) and synthesizes an app without a chart: the floor that any
  cdk8s user pays;
* 1, 100 and 6,500 trainers, the most that job.yaml allows: the same process makes and writes
  job.yaml's manifests with that many.

Shown are medians of wall-clock seconds, documents and bytes. Documents are the same for every
number of trainers, and bytes differ by the digits of the numbers alone: the program ends with 1
when they do not.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[1]
SIZES = (1, 100, 6_500)


def nothing(folder: Path) -> dict[str, Any]:
    """cdk8s without a chart."""
    from cdk8s import App

    import k8s_charts  # noqa: F401 (chooses the project's own Node)

    App(outdir=str(folder)).synth()
    return {"documents": 0, "bytes": 0, "text": ""}


def manifests(trainers: int, folder: Path) -> dict[str, Any]:
    """job.yaml's manifests with `trainers` trainers."""
    from k8s_charts import documents
    from k8s_charts.deployed import PLACEHOLDER, ClusterOutputs
    from k8s_charts.spec import TrainingJob
    from paddle_settings import file as settings_file

    settings = {**settings_file.mapping(PROJECT / "job.yaml"), "trainers": trainers}
    written = documents.write(
        TrainingJob.parse(settings, PROJECT),
        ClusterOutputs.placeholder(),
        PLACEHOLDER,
        folder,
    )
    text = "".join(path.read_text() for path in written)
    return {"documents": text.count("---\n"), "bytes": len(text.encode()), "text": text}


def measure(case: str) -> dict[str, Any]:
    """Measures one round of one case in a fresh interpreter."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "--case", case],
        check=True,
        capture_output=True,
        text=True,
        cwd=PROJECT,
    )
    return {"seconds": time.perf_counter() - began, **json.loads(done.stdout)}


def shape(text: str) -> str:
    """The manifests without numbers that depend on the number of trainers, and without the hashes
    of what contains these.
    """
    text = re.sub(r"-[0-9a-f]{8}\b", "-hash", text)
    text = re.sub(r'value: "?[0-9a-f]{8}"?$', "value: hash", text, flags=re.MULTILINE)
    for size in SIZES:
        text = re.sub(rf'(: "?){size}("?)$', r"\1N\2", text, flags=re.MULTILINE)
        text = re.sub(rf'(: "?){size - 1}("?)$', r"\1N-1\2", text, flags=re.MULTILINE)
    return text


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case is not None:
        with tempfile.TemporaryDirectory() as folder:
            result = (
                nothing(Path(folder))
                if arguments.case == "0"
                else manifests(int(arguments.case), Path(folder))
            )
        print(json.dumps(result))
        return 0
    results: dict[int, list[dict[str, Any]]] = {case: [] for case in (0, *SIZES)}
    # Round by round, so that other load on the machine affects all cases alike.
    for _ in range(arguments.rounds):
        for case, runs in results.items():
            runs.append(measure(str(case)))
    floor = statistics.median(run["seconds"] for run in results[0])
    print(f"{'trainers':>10} {'seconds':>8} {'x cdk8s':>8} {'documents':>10} {'bytes':>8}")
    for case, runs in results.items():
        seconds = statistics.median(run["seconds"] for run in runs)
        print(
            f"{case or 'nothing':>10} {seconds:8.2f} {seconds / floor:8.2f} "
            f"{runs[0]['documents']:10d} {runs[0]['bytes']:8d}"
        )
    shapes = {shape(results[size][0]["text"]) for size in SIZES}
    if len(shapes) != 1:
        print("the manifests' shape depends on the number of trainers", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
