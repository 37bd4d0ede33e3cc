"""The PaddleJob operator's part: which pods a PaddleJob becomes, and what their first container is told.

Promises: names and variables are those of the operator (api batch.paddlepaddle.org/v1); nothing is started here. Its
limit: no operator runs, so what it does to pods over time (clean-up, elastic scaling) is not played.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PORT = 36000
"""The first of each pod's ports; the operator's own choice."""
PORTS = 20
ROLES = {"ps": "PSERVER", "worker": "TRAINER", "heter": "HETER"}


@dataclass(frozen=True)
class OperatorPod:
    """One pod of a PaddleJob."""

    name: str
    role: str
    """ps, worker or heter."""
    index: int
    template: Mapping[str, Any]


def pods(job: Mapping[str, Any]) -> list[OperatorPod]:
    """All pods of the job, servers first; `<job>-<role>-<index>` each."""
    name, spec = job["metadata"]["name"], job["spec"]
    return [
        OperatorPod(f"{name}-{role}-{index}", role, index, spec[role]["template"])
        for role in ROLES
        if role in spec
        for index in range(spec[role]["replicas"])
    ]


def injected(job: Mapping[str, Any], pod: OperatorPod, addresses: Mapping[str, str]) -> dict[str, str]:
    """The variables that the operator adds to the pod's first container; `addresses` are all pods' by their names."""
    spec = job["spec"]
    by_name = spec.get("intranet") == "Service"
    own = {
        "POD_IP": pod.name if by_name else addresses[pod.name],
        "PADDLE_TRAINER_ID": str(pod.index),
        "TRAINING_ROLE": ROLES[pod.role],
        "PADDLE_TRAINING_ROLE": ROLES[pod.role],
    }
    if "elastic" in spec:
        metadata = job["metadata"]
        own["PADDLE_ELASTIC_JOB_ID"] = f"{metadata['namespace']}-{metadata['name']}"
        own["PADDLE_ELASTIC_NP"] = str(spec["worker"]["replicas"])
        own["PADDLE_ELASTIC_TIMEOUT"] = "60"
        return own
    return {**own, **_shared(job, addresses, by_name)}


def _shared(job: Mapping[str, Any], addresses: Mapping[str, str], by_name: bool) -> dict[str, str]:
    """What the operator writes into the job's ConfigMap, once all pods have addresses."""
    hosts: dict[str, list[str]] = {}
    for pod in pods(job):
        hosts.setdefault(pod.role, []).append(pod.name if by_name else addresses[pod.name])
    shared = {"TRAINER_PORTS_NUM": str(PORTS), "PADDLE_PORT": str(PORT)}
    if "ps" in hosts:
        shared["PADDLE_PSERVERS_IP_PORT_LIST"] = _endpoints(hosts["ps"])
    if "worker" in hosts:
        shared["PADDLE_TRAINER_ENDPOINTS"] = _endpoints(hosts["worker"])
        shared["PADDLE_TRAINERS"] = ",".join(hosts["worker"])
        shared["PADDLE_TRAINERS_NUM"] = str(len(hosts["worker"]))
    if "heter" in hosts:
        shared["PADDLE_HETER_ENDPOINTS"] = _endpoints(hosts["heter"])
    if job["spec"].get("withGloo", 0) > 0 and not by_name and "ps" in hosts:
        shared["PADDLE_WITH_GLOO"] = str(job["spec"]["withGloo"])
        shared["PADDLE_GLOO_RENDEZVOUS"] = "3"
        shared["PADDLE_GLOO_HTTP_ENDPOINT"] = f"{hosts['ps'][0]}:{PORT + PORTS - 2}"
    return shared


def _endpoints(hosts: Sequence[str]) -> str:
    return ",".join(f"{host}:{PORT}" for host in hosts)
