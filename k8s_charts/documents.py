"""Turns a job into its Kubernetes documents, in the order in which they are applied.

The same job, outputs and image give the same bytes, whether they are returned or written here, also
for `cdk8s synth`.
"""

from itertools import groupby
from pathlib import Path
from typing import Any

from cdk8s import App, Chart

from k8s_charts import yaml_documents
from k8s_charts.deployed import ClusterOutputs, check_namespace, use_deployed_volume
from k8s_charts.kinds.data_job import DataChart
from k8s_charts.kinds.environment import EnvironmentChart
from k8s_charts.kinds.namespace import NamespaceChart
from k8s_charts.kinds.paddle_job import HOST_PORTS, OperatorChart, PaddleJobChart
from k8s_charts.kinds.training_job import TrainingChart
from k8s_charts.kinds.volume import VolumeChart
from k8s_charts.pods.pod import Customize
from k8s_charts.spec import TrainingJob
from paddle_settings.errors import SettingError


def charts(
    job: TrainingJob,
    outputs: ClusterOutputs,
    image: str,
    *,
    customize: Customize | None = None,
) -> list[Chart]:
    """Returns the job's charts in apply order: one for each step that is applied on its own.

    `customize` changes the pods' templates, as `PodChart.customize_pod` has it.
    """
    if job.takes_the_node:
        _check_ports(job, outputs)
    check_namespace(job, outputs)
    job = use_deployed_volume(job, outputs)
    app = App()
    steps: list[Chart] = [NamespaceChart(app, job)]
    if not job.has_agent and job.operator.install_operator:
        steps.append(OperatorChart(app, job))
    if job.volume.kind not in ("claim", "none"):
        steps.append(VolumeChart(app, job, outputs))
    if job.builds_environment:
        steps.append(EnvironmentChart(app, job, outputs, image, customize=customize))
    if job.splits:
        steps.append(DataChart(app, job, outputs, image, customize=customize))
    training = TrainingChart if job.has_agent else PaddleJobChart
    steps.append(training(app, job, outputs, image, customize=customize))
    return steps


def _check_ports(job: TrainingJob, outputs: ClusterOutputs) -> None:
    """Raises SettingError if the job takes ports of its nodes that the nodes do not open to each
    other.
    """
    taken, setting, instead = (
        (job.ports.on_host, "ports.host_ports is given", "leave it and discovery out")
        if job.has_agent
        else (HOST_PORTS, "paddlejob.intranet is Host", "leave it out")
    )
    if closed := outputs.closed_ports(taken):
        runs = groupby(enumerate(closed), lambda at: at[1] - at[0])
        ends = [(ports[0][1], ports[-1][1]) for ports in (list(run) for _, run in runs)]
        named = ", ".join(f"{first}-{last}" if first < last else str(first) for first, last in ends)
        raise SettingError(
            f"{setting}: the nodes of this self-managed cluster do not open {named} to each other; "
            f"add that to cluster.host_ports in cluster.yaml and deploy, or {instead}"
        )


def documents(
    job: TrainingJob,
    outputs: ClusterOutputs,
    image: str,
    *,
    customize: Customize | None = None,
) -> list[dict[str, Any]]:
    """Returns every document of the job, in apply order. `customize`: as in `charts`."""
    steps = charts(job, outputs, image, customize=customize)
    return [document for chart in steps for document in chart.to_json()]


def files(job: TrainingJob, outputs: ClusterOutputs, image: str) -> dict[str, str]:
    """Returns one YAML file per step, by name; the names are numbered in apply order."""
    steps = enumerate(charts(job, outputs, image))
    return {
        f"{number:04d}-{chart.node.id}.k8s.yaml": yaml_documents.dump(chart.to_json())
        for number, chart in steps
    }


def read_files(folder: Path) -> dict[str, str]:
    """Returns the files that an earlier synthesis left in a folder, by name."""
    return {
        path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.k8s.yaml"))
    }


def write(job: TrainingJob, outputs: ClusterOutputs, image: str, folder: Path) -> list[Path]:
    """Writes the files, and removes those of an earlier synthesis from the folder. Returns their
    paths.
    """
    texts = files(job, outputs, image)
    folder.mkdir(parents=True, exist_ok=True)
    for old in read_files(folder):
        (folder / old).unlink()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    return [folder / name for name in texts]
