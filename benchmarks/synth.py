"""How long a synth takes: the whole app against an empty one, growth with node groups, and many
synths in one process.

    python benchmarks/synth.py [--repeat 5] [--row 100]

Both apps run in the same way, in fresh processes that take turns (a busy machine slows both);
processor time is shown beside the clock's because it does not see other programs. The CDK's
validation is off unless a line says otherwise.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PROJECT = Path(__file__).parents[1]
EMPTY = "from aws_cdk import App; App().synth()"
IMPORTS = """
from aws_cdk import App, aws_ec2, aws_ecr, aws_efs, aws_eks_v2, aws_iam, aws_kms, aws_lambda
from aws_cdk import aws_logs, aws_route53, aws_s3
import paddle_aws.stacks.cluster_spec
CLASSES = aws_ec2.Vpc, aws_efs.FileSystem, aws_eks_v2.Cluster, aws_s3.Bucket, aws_lambda.Function
[module.__name__ for module in CLASSES]
App().synth()
"""
WHOLE = "import runpy; runpy.run_path('app.py', run_name='__main__')"
UNTYPED = """
import json, os, pathlib
from aws_cdk import App, CfnResource, Stack
app = App()
for file in sorted(pathlib.Path(os.environ["TEMPLATES"]).glob("*.template.json")):
    stack = Stack(app, file.name.partition(".")[0])
    for name, resource in json.loads(file.read_text())["Resources"].items():
        CfnResource(stack, name, type=resource["Type"], properties=resource.get("Properties", {}))
app.synth()
"""
# The empty app; the minimum for these resources; what importing their typed modules costs; what the
# constructs cost.
APPS = {
    "empty app": EMPTY,
    "the same resources as untyped JSON": UNTYPED,
    "empty app that imports the same modules": IMPORTS,
    "whole app": WHOLE,
}
TABLE = "{:<58} {:>9} {:>9}"


def fresh(code: str, validation: bool, templates: str) -> tuple[float, float]:
    """Runs one program in its own process. Returns its wall-clock seconds and processor seconds."""
    context = json.loads((PROJECT / "cdk.json").read_text())["context"]
    environment = {
        **os.environ,
        "CDK_VALIDATION": str(validation).lower(),
        "CDK_CONTEXT_JSON": json.dumps(context),
    }
    environment["TEMPLATES"] = templates
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, env=environment, check=True, capture_output=True
    )
    clock, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compared(repeat: int, validation: bool, templates: str) -> dict[str, tuple[float, float]]:
    """Returns the medians of each app; the apps take turns."""
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in APPS}
    for _ in range(repeat):
        for name, code in APPS.items():
            runs[name].append(fresh(code, validation, templates))
    return {
        name: (_median(c for c, _ in measurements), _median(p for _, p in measurements))
        for name, measurements in runs.items()
    }


def shipped(out: str) -> None:
    """Writes the templates of the shipped cluster.yaml to the folder `out`."""
    from aws_cdk import App

    from paddle_aws.stacks.cluster_spec import ClusterSpec
    from paddle_aws.stacks.platform import TrainingPlatform

    app = App(
        context=json.loads((PROJECT / "cdk.json").read_text())["context"],
        analytics_reporting=False,
        outdir=out,
    )
    spec = ClusterSpec.load(PROJECT / "cluster.yaml")
    TrainingPlatform(app, "Platform", spec, stacks_in=app)
    app.synth()


def warm(groups: int, repeat: int) -> list[float]:
    """Returns the seconds of each further synth in this process, with `groups` node groups."""
    from aws_cdk import App

    from paddle_aws.stacks.cluster_spec import ClusterSpec
    from paddle_aws.stacks.platform import TrainingPlatform

    context = json.loads((PROJECT / "cdk.json").read_text())["context"]
    nodes = {f"group-{number}": {"max": 3} for number in range(groups)}
    spec = ClusterSpec.model_validate({"retain": False, "nodes": nodes})

    def synth() -> None:
        app = App(context=context, analytics_reporting=False)
        TrainingPlatform(app, "Platform", spec, stacks_in=app)
        app.synth()

    synth()
    return [_timed(synth) for _ in range(repeat)]


def _timed(what: Callable[[], None]) -> float:
    start = time.perf_counter()
    what()
    return time.perf_counter() - start


def _median(values: object) -> float:
    return statistics.median(values)  # type: ignore[call-overload, no-any-return]


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--row", type=int, default=100, help="synths in a row, 20 or more")
    options = parser.parse_args()
    repeat = options.repeat
    os.environ["CDK_VALIDATION"] = "false"
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    sys.path.insert(0, str(PROJECT))
    print(TABLE.format(f"fresh process, median of {repeat}", "clock s", "CPU s"))
    with tempfile.TemporaryDirectory() as templates:
        shipped(templates)
        for validation in (False, True):
            medians = compared(repeat, validation, templates)
            for name, (clock, processor) in medians.items():
                print(
                    TABLE.format(
                        f"{name}{', validated' if validation else ''}",
                        f"{clock:.2f}",
                        f"{processor:.2f}",
                    )
                )
            (empty_clock, empty_processor), *_, (clock, processor) = medians.values()
            print(
                TABLE.format(
                    "  whole / empty",
                    f"{clock / empty_clock:.2f}x",
                    f"{processor / empty_processor:.2f}x",
                )
            )
    version = [
        _timed(lambda: subprocess.run(["cdk", "--version"], check=True, capture_output=True))
        for _ in range(repeat)
    ]
    print(TABLE.format("cdk --version", f"{_median(version):.2f}", ""))
    print()
    print(TABLE.format("one process, a further synth", "median s", "slowest s"))
    for groups in (1, 10, 50):
        times = warm(groups, repeat)
        print(TABLE.format(f"{groups} node groups", f"{_median(times):.2f}", f"{max(times):.2f}"))
    row = warm(1, options.row)
    first, last = _median(row[:10]), _median(row[-10:])
    print(
        TABLE.format(
            f"{options.row} synths in a row: the first ten, the last ten",
            f"{first:.2f}",
            f"{last:.2f}",
        )
    )


if __name__ == "__main__":
    main()
