"""Writes the manifests of a job whose pods have a sidecar, for the cluster whose outputs
`cdk deploy --outputs-file outputs.json` wrote.

python job.py outputs.json > job.yaml
"""

import sys
from pathlib import Path
from typing import Any

import cdk8s

from k8s_charts.deployed import ClusterOutputs
from k8s_charts.documents import charts
from k8s_charts.names import Role
from k8s_charts.spec import TrainingJob

REGISTRY = "111122223333.dkr.ecr.us-west-2.amazonaws.com"


def with_exporter(template: dict[str, Any], role: Role) -> None:
    """Gives trainers a container that watches them; it starts before them, and ends with them."""
    if role != "trainer":
        return
    template["spec"].setdefault("initContainers", []).append(
        {
            "name": "exporter",
            "image": f"{REGISTRY}/exporter:1",
            "restartPolicy": "Always",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        }
    )


def main(outputs: Path) -> None:
    """Prints the manifests."""
    deployed = ClusterOutputs.load(outputs)
    settings: dict[str, Any] = {"name": "variants", "trainers": 3, "data": {"source": "reads.tsv"}}
    if not deployed.access_point_id:  # Not EFS, but OpenZFS.
        settings["volume"] = {"kind": "nfs", "path": "/fsx"}
    job = TrainingJob.parse(settings)
    for chart in charts(job, deployed, f"{REGISTRY}/trainer:1", customize=with_exporter):
        print(cdk8s.Yaml.stringify(*chart.to_json()), end="---\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
