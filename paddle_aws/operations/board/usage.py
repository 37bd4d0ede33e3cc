"""What a job's pods use, where something on the cluster says so: the metrics server (processor and
memory) and NVIDIA's dcgm-exporter (GPUs). Who may not read them, and a cluster without them, sees
no numbers.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from urllib.parse import quote

from paddle_aws.operations.cluster.cluster_api import ClusterApi
from paddle_aws.operations.errors import OperationError
from paddle_aws.operations.jobs.objects.job_objects import selector

EXPORTERS = "app.kubernetes.io/name=dcgm-exporter"
GPU_METRICS = {"DCGM_FI_DEV_GPU_UTIL": "gpu_percent", "DCGM_FI_DEV_FB_USED": "gpu_mib"}
UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}
"""Suffixes of quantities as the metrics server writes them."""
EXPORTER_TIMEOUT = 3.0
"""Seconds for an exporter's answer: a page waits for it."""
Usage = dict[str, dict[str, float]]
"""By pod: processor in cores, memory in bytes; of its GPUs the mean load and the memory in MiB."""


def quantity(text: str) -> float:
    """Returns a Kubernetes quantity; 0 for one that this does not know."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", text)
    return float(match[1]) * UNITS.get(match[2], 0.0) if match else 0.0


def gpu_usage(exposition: str, namespace: str) -> Usage:
    """Parses what an exporter wrote: one sample a GPU, with the pod that has it."""
    found: dict[str, dict[str, list[float]]] = {}
    for metric, labels, value in re.findall(r"^(DCGM_\w+)\{(.*)\} ([\d.]+)$", exposition, re.M):
        of = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if metric in GPU_METRICS and of.get("namespace") == namespace and of.get("pod"):
            samples = found.setdefault(of["pod"], {}).setdefault(GPU_METRICS[metric], [])
            samples.append(float(value))
    return {
        pod: {
            name: sum(values) / (len(values) if name == "gpu_percent" else 1)
            for name, values in of_pod.items()
        }
        for pod, of_pod in found.items()
    }


def read_usage(
    cluster: ClusterApi, job: str, namespace: str, pods: Iterable[Mapping[str, object]]
) -> Usage:
    """Returns what the job's pods use now."""
    usage: Usage = {}
    with suppress(OperationError):
        path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods"
        for item in cluster.get(path, labelSelector=selector(job)).get("items", ()):
            used = [container["usage"] for container in item["containers"]]
            usage[item["metadata"]["name"]] = {
                "cores": sum(quantity(each["cpu"]) for each in used),
                "bytes": sum(quantity(each["memory"]) for each in used),
            }
    nodes = {pod["node"] for pod in pods}
    place = "/api/v1/namespaces/kube-system/pods"
    exporters = []
    with suppress(OperationError):
        exporters = cluster.items(place, EXPORTERS)
    for exporter in exporters:
        if exporter["spec"].get("nodeName") in nodes:
            path = f"{place}/{quote(exporter['metadata']['name'])}:9400/proxy/metrics"
            with suppress(OperationError):
                answer = cluster.request("GET", path, tries=1, read=EXPORTER_TIMEOUT)
                for name, of_gpus in gpu_usage(answer.data.decode(), namespace).items():
                    usage.setdefault(name, {}).update(of_gpus)
    return usage
