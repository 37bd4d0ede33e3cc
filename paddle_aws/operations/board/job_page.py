"""The page of one job. It reads the job's folder as `results` does.

What its pods use is there where something on the cluster says so: the metrics server (processor and
memory) and NVIDIA's dcgm-exporter (GPUs). Who may not read them, and a cluster without them, sees
no numbers.
"""

import json
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from paddle_node.contract import DATA_MANIFEST

from paddle_aws.operations.board.site import NOT_FOUND, Query, Response, json_answer, read_page_file
from paddle_aws.operations.cluster.cluster_api import ClusterApi
from paddle_aws.operations.errors import OperationError
from paddle_aws.operations.jobs.backend import Backend
from paddle_aws.operations.jobs.objects.job_objects import selector
from paddle_aws.operations.jobs.rehearsal_backend import RehearsalBackend
from paddle_aws.operations.jobs.volume.access import Volume
from paddle_aws.operations.jobs.watch.log_stream import PodSelection

POINTS = 10_000
"""Lines of metrics that a page gets at most, for all ranks together."""
READ_BYTES = 4 << 20
"""Bytes of an event file that one request reads."""
LOG_LINES = 400
"""Newest lines of a pod's log that the page shows."""

EXPORTERS = "app.kubernetes.io/name=dcgm-exporter"
GPU_METRICS = {"DCGM_FI_DEV_GPU_UTIL": "gpu_percent", "DCGM_FI_DEV_FB_USED": "gpu_mib"}
UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}
"""Suffixes of quantities as the metrics server writes them."""
EXPORTER_TIMEOUT = 3.0
"""Seconds for an exporter's answer: a page waits for it."""
Usage = dict[str, dict[str, float]]
"""By pod: processor in cores, memory in bytes; of its GPUs the mean load and the memory in MiB."""


class JobPage:
    """Answers a browser's requests about a job."""

    def __init__(
        self,
        where: Backend,
        volume: Volume,
        evaluation: dict[str, Any] | None,
        usd_per_hour: float | None,
        *,
        listed: bool = False,
    ) -> None:
        """`usd_per_hour`: the price of a trainer's node, None if none was read. `listed`: there is
        a list of jobs above the page.
        """
        self._where, self._volume, self._evaluation = where, volume, evaluation
        self._usd_per_hour, self._listed = usd_per_hour, listed
        self._shards: list[int] = []
        self._events: set[str] = set()
        self._settings: dict[str, str] = {}

    def answer(self, name: str, query: Query) -> Response:
        """Answers a request for the page, its data or its files."""
        if name == "data":
            return json_answer(self.data())
        if name == "events" and (file := query.get("path", [""])[0]) in self._events:
            offset = query.get("offset", [""])[0]
            begin = int(offset) if offset.isdecimal() else 0
            piece = self._volume.read(f"output/{file}", begin, READ_BYTES)
            return Response(200, "application/octet-stream", piece)
        if name == "log":
            of, rank = (query.get(key, [""])[0] for key in ("of", "rank"))
            chosen = PodSelection(
                frozenset({int(rank)}) if rank.isdecimal() and len(rank) < 6 else None, of
            )
            lines = [line.text for line in self._where.logs(chosen, LOG_LINES)]
            return Response(
                200, "text/plain; charset=utf-8", "\n".join(lines[-LOG_LINES:]).encode()
            )
        return NOT_FOUND if name == "events" else read_page_file(name or "job.html")

    def refresh(self) -> None:
        """Keeps the inspection pod alive while no browser shows the page."""
        with suppress(OperationError, OSError):
            self.data()

    def data(self) -> dict[str, Any]:
        """Returns the job as it is now, and the raw lines of its ranks' metrics."""
        view, steps = self._where.status(), self._volume.steps("output", POINTS)
        self._events = {event["name"] for event in steps["events"]}
        if not self._shards:
            manifest = self._json(DATA_MANIFEST)
            self._shards = [
                sum(file["records"] for file in shard["files"])
                for shard in manifest.get("shards", ())
            ]
        if not self._settings:
            self._settings = self._where.settings()
        training, pods = view.training, view.as_json()["pods"]
        parts = {pod.name: pod.part for pod in view.pods}
        document = {
            "job": self._where.name,
            "state": view.phase,
            "reason": view.reason,
            "pods": [{**pod, "part": parts[pod["pod"]]} for pod in pods],
            "settings": self._settings,
            "world": {
                "pods": training.completions if training else 0,
                "processes": training.processes if training else 1,
            },
            "attempts": self._json("output/run/attempts.json").get("attempts", []),
            "shards": self._shards,
            "evaluation": self._evaluation,
            "listed": self._listed,
            "now": time.time(),
            **steps,
        }
        # A rehearsal costs nothing.
        if not isinstance(self._where, RehearsalBackend):
            document["usd_per_hour"] = self._usd_per_hour
            where = self._where
            document["usage"] = read_usage(where.cluster, where.name, where.namespace, pods)
        return document

    def _json(self, path: str) -> dict[str, Any]:
        """Reads a JSON object from the volume; empty if it does not exist yet, or is damaged."""
        with suppress(FileNotFoundError, ValueError, RecursionError):
            # Drops Python's own numbers (NaN, Infinity), which a browser cannot parse.
            document = json.loads(self._volume.read(path), parse_constant=lambda _: None)
            return document if isinstance(document, dict) else {}
        return {}


def quantity(text: str) -> float:
    """Returns a Kubernetes quantity; 0 for one that this does not know."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", text)
    return float(match[1]) * UNITS.get(match[2], 0.0) if match else 0.0


def gpu_usage(exposition: str, namespace: str) -> Usage:
    """Parses what an exporter wrote: one sample a GPU, with the pod that has it."""
    readings: dict[str, dict[str, list[float]]] = {}
    for metric, labels, value in re.findall(r"^(DCGM_\w+)\{(.*)\} ([\d.]+)$", exposition, re.M):
        of = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if metric in GPU_METRICS and of.get("namespace") == namespace and of.get("pod"):
            samples = readings.setdefault(of["pod"], {}).setdefault(GPU_METRICS[metric], [])
            samples.append(float(value))
    return {
        pod: {
            name: sum(values) / (len(values) if name == "gpu_percent" else 1)
            for name, values in of_pod.items()
        }
        for pod, of_pod in readings.items()
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
            cores, size = (
                sum(quantity(amounts[name]) for amounts in used) for name in ("cpu", "memory")
            )
            usage[item["metadata"]["name"]] = {"cores": cores, "bytes": size}
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
