"""How a job's pods find each other: by index and name, or by asking the API server."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from k8s_charts import names, yaml_documents
from k8s_charts.pods import network
from k8s_charts.spec import TrainingJob


@dataclass(frozen=True)
class Discovery:
    """What one way of discovery needs."""

    documents: tuple[dict[str, Any], ...]
    account: str
    """The pods' service account."""
    service: str | None = None
    """The headless Service below which peer i is <training job>-<i>; None: peers have no names."""
    asks_api_server: bool = False
    """The pods get a token, and may reach the API server."""

    @property
    def indexed(self) -> bool:
        """Whether the Job gives each pod an index."""
        return self.service is not None

    @property
    def rules(self) -> list[dict[str, Any]]:
        """The network rules that it needs beside those of all jobs."""
        return [network.RULES["api-server"]] if self.asks_api_server else []


def choose_discovery(job: TrainingJob, ports: Mapping[str, int]) -> Discovery:
    """Returns what the job's way of discovery needs. `ports`: those at which its pods meet."""
    return {"index": _index_discovery, "pod-list": _pod_list_discovery}[job.discovery](job, ports)


def _index_discovery(job: TrainingJob, ports: Mapping[str, int]) -> Discovery:
    (service,) = yaml_documents.template("peers.yaml", namespace=job.namespace, job=job.name)
    service["spec"]["ports"] = [
        {"name": name, "port": port, "protocol": "TCP"} for name, port in ports.items()
    ]
    return Discovery((service,), names.TRAINER_ACCOUNT, service=job.name)


def _pod_list_discovery(job: TrainingJob, ports: Mapping[str, int]) -> Discovery:
    account = f"{job.name}-pod-list"
    rights = yaml_documents.template(
        "pod_list.yaml", account=account, namespace=job.namespace, job=job.name
    )
    return Discovery(tuple(rights), account, asks_api_server=True)
